#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "score_set.h"

/* calculate_score() of seed 004 §3.1 in its own arithmetic; the profile must give the same to the last digits. */
static double seed_score(double health, double cpu, double memory, double queue, double p99_ms, double ready,
			 double penalty)
{
	double load = (1 - cpu) * 0.4 + (1 - memory) * 0.3 + (1 - (queue < 16 ? queue : 16) / 16) * 0.3;

	return (0.30 * health + 0.25 * load + 0.25 / (1 + p99_ms / 100) + 0.20 * ready) * penalty;
}

static void test_kv_by_the_seed(void **state)
{
	static const struct {
		enum member_state member;
		double health;
		int cpu_percent, memory_percent, queue, p99_ms;
		bool is_new, is_migrating;
		int progress_percent;
	} rows[] = {
		{ MEMBER_HEALTHY, 1, 50, 50, 4, 100, false, false, 0 },
		{ MEMBER_HEALTHY, 1, 0, 0, 0, 0, false, false, 0 },
		{ MEMBER_HEALTHY, 1, 80, 60, 16, 200, false, false, 0 },
		{ MEMBER_HEALTHY, 1, 80, 60, 900, 200, false, true, 0 },
		{ MEMBER_HEALTHY, 1, 30, 20, 1, 45, true, false, 50 },
		{ MEMBER_HEALTHY, 1, 30, 20, 1, 45, true, true, 0 },
		{ MEMBER_SUSPECT, 0.3, 50, 50, 4, 100, false, false, 0 },
		{ MEMBER_LEAVING, 0.15, 50, 50, 4, 100, false, false, 0 },
		{ MEMBER_LEAVING, 0.15, 50, 50, 4, 100, false, true, 0 },
	};
	struct set set;

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		bool is_leaving = rows[i].member == MEMBER_LEAVING;
		double ready = is_leaving ? 0.15 : rows[i].is_new ? 0.4 + 0.6 * rows[i].progress_percent / 100 : 1;
		double wanted = seed_score(rows[i].health, rows[i].cpu_percent / 100.0, rows[i].memory_percent / 100.0,
					   rows[i].queue, rows[i].p99_ms, ready,
					   (rows[i].is_migrating ? 0.8 : 1) * (is_leaving ? 0.5 : 1));
		struct score_input *input;

		init_set(&set, 1);
		input = &set.inputs[0];
		fill_kv(input);
		input->state = rows[i].member;
		input->report.cpu_busy_milli = rows[i].cpu_percent * 80;
		input->report.rss_bytes = rows[i].memory_percent * 80;
		input->report.disk_queue_milli = rows[i].queue * 1000;
		input->p99_smooth_us = rows[i].p99_ms * MSEC_US;
		input->report.verified = rows[i].is_new ? 0 : 1;
		input->report.sync_progress_ppm = rows[i].is_new ? rows[i].progress_percent * 10000 : UNKNOWN;
		input->report.migrating = rows[i].is_migrating ? 1 : 0;
		score(&set, profile_builtin("kv"));
		assert_near(set.outputs[0].score_ppm, (int64_t)(wanted * PPM + 0.5), 2);
		assert_int_equal(set.outputs[0].dims_assumed, 0);
	}
	/* The first row by hand: .3 + .25 * (.2 + .15 + .225) + .25 * .5 + .2 */
	assert_near((int64_t)(seed_score(1, 0.5, 0.5, 4, 100, 1, 1) * PPM + 0.5), 768750, 0);
}

static void test_unknown_is_the_peers_mean(void **state)
{
	struct set set;

	(void)state;
	init_set(&set, 4);
	for (size_t i = 0; i < 4; i++)
		fill_kv(&set.inputs[i]);
	set.inputs[0].p99_smooth_us = 0;             /* 1.0 */
	set.inputs[1].p99_smooth_us = 300 * MSEC_US; /* 0.25 */
	set.inputs[2].p99_smooth_us = 900 * MSEC_US; /* 0.1, but it takes no work: no peer */
	set.inputs[2].is_barred = true;
	set.inputs[3].p99_smooth_us = UNKNOWN;
	score(&set, profile_builtin("kv"));
	assert_int_equal(set.outputs[3].dim_ppm[4], 625000);
	assert_int_equal(set.outputs[3].dims_assumed, 1u << 4);
	assert_int_equal(set.outputs[2].dim_ppm[4], 100000);
	assert_int_equal(set.outputs[0].dims_assumed, 0);
	/* Nobody knows: the same for all. */
	for (size_t i = 0; i < 4; i++)
		set.inputs[i].p99_smooth_us = UNKNOWN;
	score(&set, profile_builtin("kv"));
	for (size_t i = 0; i < 4; i++) {
		assert_int_equal(set.outputs[i].dim_ppm[4], PPM);
		assert_int_equal(set.outputs[i].dims_assumed, 1u << 4);
	}
}

static void test_warmup(void **state)
{
	static const struct {
		int64_t joined_s, progress_ppm;
		bool is_verified, was_ever_verified;
		int64_t cap_ppm;
	} rows[] = {
		{ -1, UNKNOWN, false, true, PPM },
		{ 0, UNKNOWN, false, true, 400000 },
		{ 299, PPM, false, true, 400000 },
		{ 330, UNKNOWN, false, true, 500000 },
		{ 360, 800000, false, true, 600000 },
		{ 360, 800001, false, true, 800000 },
		{ 3600, UNKNOWN, false, true, PPM },
		{ 3600, PPM, false, false, 500000 },
		{ 1, 0, true, true, PPM },
	};
	struct set set;

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		init_set(&set, 1);
		fill_kv(&set.inputs[0]);
		set.inputs[0].joined_age_us = rows[i].joined_s < 0 ? -1 : rows[i].joined_s * SEC_US;
		set.inputs[0].report.sync_progress_ppm = rows[i].progress_ppm;
		set.inputs[0].report.verified = rows[i].is_verified ? 1 : 0;
		set.inputs[0].was_ever_verified = rows[i].was_ever_verified;
		score(&set, profile_builtin("kv"));
		assert_int_equal(set.outputs[0].cap_ppm, rows[i].cap_ppm);
		assert_int_equal(set.outputs[0].score_ppm, min_i64(set.outputs[0].sum_ppm, rows[i].cap_ppm));
		/* The folder door has no such thing. */
		score(&set, profile_builtin("folder"));
		assert_int_equal(set.outputs[0].score_ppm, PPM);
	}
}

static void test_decay(void **state)
{
	static const struct {
		int64_t age_us, decay_ppm;
	} rows[] = {
		{ -1, 0 },
		{ INT64_MIN, 0 },
		{ 0, PPM },
		{ 9 * SEC_US, PPM },
		{ 13 * SEC_US, PPM },
		{ 14 * SEC_US, 900000 },
		{ 19 * SEC_US, 810000 },
		{ 154 * SEC_US, 0 }, /* .9^29 is .0471 */
		{ INT64_MAX, 0 },
	};
	struct set set;

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		init_set(&set, 1);
		fill_kv(&set.inputs[0]);
		set.inputs[0].age_us = rows[i].age_us;
		score(&set, profile_builtin("kv"));
		assert_int_equal(set.outputs[0].decay_ppm, rows[i].decay_ppm);
		assert_near(set.outputs[0].score_ppm, 768750 * rows[i].decay_ppm / PPM, 1);
		assert_int_equal(set.outputs[0].may_serve, rows[i].decay_ppm > 0);
		/* No floor lifts what decayed to nothing. */
		score(&set, profile_builtin("folder"));
		assert_int_equal(set.outputs[0].score_ppm, rows[i].decay_ppm);
	}
}

static void test_leaving(void **state)
{
	struct set set;

	(void)state;
	/* The state and the node's own word count once, not twice. */
	init_set(&set, 2);
	fill_gateway(&set.inputs[0]);
	fill_gateway(&set.inputs[1]);
	set.inputs[0].state = MEMBER_LEAVING;
	set.inputs[0].report.leaving = 1;
	score(&set, profile_builtin("gateway"));
	assert_true(set.outputs[0].may_serve);
	assert_near(set.outputs[0].score_ppm, set.outputs[1].score_ppm * 15 / 100, 1);
	score(&set, profile_builtin("folder"));
	assert_int_equal(set.outputs[0].score_ppm, 500000);
}

static void test_folder(void **state)
{
	static const struct {
		const char *why;
		size_t field;
		int64_t value, wanted_ppm;
	} rows[] = {
		{ "nothing is known", 0, UNKNOWN, PPM },
		{ "cpu at the mark", REPORT_cpu_busy_milli, 800, PPM },
		{ "cpu over it", REPORT_cpu_busy_milli, 801, 600000 },
		{ "disk slow", REPORT_disk_io_us, 275000, 650000 },
		{ "disk very slow", REPORT_disk_io_us, 9000000, 300000 },
		{ "disk well", REPORT_disk_io_us, 50000, PPM },
		{ "half-way full", REPORT_disk_free_bytes, 110, 750000 },
		{ "full", REPORT_disk_free_bytes, 0, 500000 },
		{ "many connections", REPORT_tcp_conns, 12500, 750000 },
		{ "too many", REPORT_tcp_conns, 20000, 500000 },
		{ "moving", REPORT_migrating, 1, 800000 },
		{ "leaving", REPORT_leaving, 1, 500000 },
		{ "a bad folder", REPORT_dirs_failed, 1, 0 },
		{ "no bad folder", REPORT_dirs_failed, 0, PPM },
	};
	struct set set;

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct report *report = &set.inputs[0].report;

		init_set(&set, 1);
		report->cpu_cores_milli = 1000;
		report->disk_total_bytes = 1000;
		switch (rows[i].field) {
#define REPORT(name, help)                    \
	case REPORT_##name:                   \
		report->name = rows[i].value; \
		break;
#include "core/report_list.h"
#undef REPORT
		}
		score(&set, profile_builtin("folder"));
		if (set.outputs[0].score_ppm != rows[i].wanted_ppm)
			fail_msg("%s: %lld", rows[i].why, (long long)set.outputs[0].score_ppm);
		assert_int_equal(set.outputs[0].may_serve, rows[i].wanted_ppm > 0);
	}
	init_set(&set, 1);
	set.inputs[0].write_failure_ppm = 105000;
	score(&set, profile_builtin("folder"));
	assert_int_equal(set.outputs[0].score_ppm, 600000);
	/* Everything at once is the floor, not nothing. */
	set.inputs[0].report = (struct report){ .cpu_busy_milli = 1,
						.cpu_cores_milli = 1,
						.disk_total_bytes = 1,
						.disk_io_us = INT64_MAX,
						.tcp_conns = INT64_MAX,
						.migrating = 1,
						.leaving = 1 };
	set.inputs[0].write_failure_ppm = PPM;
	set.inputs[0].weight_milli = 1;
	score(&set, profile_builtin("folder"));
	assert_int_equal(set.outputs[0].score_ppm, 10000);
	assert_int_equal(set.outputs[0].weight_milli, 1);
	set.inputs[0].weight_milli = 0;
	score(&set, profile_builtin("folder"));
	assert_int_equal(set.outputs[0].weight_milli, 0);
	assert_true(set.outputs[0].may_serve);
}

static void test_gateway_gate(void **state)
{
	const struct profile *gateway = profile_builtin("gateway");
	int64_t well_ppm;
	struct set set;

	(void)state;
	init_set(&set, 4);
	for (size_t i = 0; i < 4; i++)
		fill_gateway(&set.inputs[i]);
	score(&set, gateway);
	well_ppm = set.outputs[0].score_ppm;
	/* .4 * .5 + .1 * .5 + .3 * .5 + .2 * .8 */
	assert_int_equal(well_ppm, 560000);
	keep(&set);
	/* Over 90 %: down at once, to less than a tenth of a well node. */
	set.inputs[0].report.cpu_busy_milli = 3700;
	/* Over the threshold, the same. */
	set.inputs[1].rt_mean_us = 1000001;
	score(&set, gateway);
	for (size_t i = 0; i < 2; i++) {
		assert_true(set.outputs[i].score_ppm * 10 < well_ppm);
		assert_true(set.outputs[i].score_ppm >= gateway->floor_ppm);
		assert_true(set.outputs[i].may_serve);
		assert_false(set.outputs[i].is_step_limited);
	}
	keep(&set);
	/* Just under the marks they stay gated. */
	set.inputs[0].report.cpu_busy_milli = 3400;
	set.inputs[1].rt_mean_us = 900000;
	score(&set, gateway);
	assert_true(set.outputs[0].score_ppm * 8 < well_ppm && set.outputs[1].score_ppm * 8 < well_ppm);
	keep(&set);
	/* Well under them they come back, step by step. */
	set.inputs[0].report.cpu_busy_milli = 2000;
	set.inputs[1].rt_mean_us = 200000;
	for (unsigned table = 0; table < 12; table++) {
		int64_t before_ppm = set.inputs[0].score_before_ppm;

		score(&set, gateway);
		assert_true(set.outputs[0].score_ppm <= before_ppm + max_i64(before_ppm / 5 + 1, 50000));
		assert_true(set.outputs[0].score_ppm > before_ppm || before_ppm == well_ppm);
		assert_int_equal(set.outputs[0].is_step_limited, set.outputs[0].score_ppm < well_ppm);
		keep(&set);
	}
	assert_int_equal(set.outputs[0].score_ppm, well_ppm);
	assert_int_equal(set.outputs[1].score_ppm, well_ppm);
}

/* A pool that is busy as a whole gates nobody: the work of one would only drive the next over the mark. */
static void test_gate_compares_with_peers(void **state)
{
	static const struct {
		const char *why;
		int64_t busy_milli[4]; /* of 4000 */
		bool is_gated;         /* the first */
	} rows[] = {
		{ "alone", { 3700, 2000, 2000, 2000 }, true },
		{ "all busy", { 3700, 3700, 3700, 3700 }, false },
		{ "fifteen points above the mean of the others", { 3700, 3100, 3000, 3200 }, true },
		{ "not quite", { 3700, 3104, 3104, 3104 }, false },
		{ "under the mark", { 3500, 2000, 2000, 2000 }, false },
		{ "nobody else tells", { 3700, UNKNOWN, UNKNOWN, UNKNOWN }, true },
		{ "it does not tell", { UNKNOWN, 2000, 2000, 2000 }, false },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct set set;

		init_set(&set, 4);
		for (size_t j = 0; j < 4; j++) {
			fill_gateway(&set.inputs[j]);
			set.inputs[j].report.cpu_busy_milli = rows[i].busy_milli[j];
		}
		score(&set, profile_builtin("gateway"));
		if ((set.outputs[0].rule_ppm[0] < PPM) != rows[i].is_gated)
			fail_msg("%s", rows[i].why);
		/* The latch goes off as soon as the others are as busy. */
		set.inputs[0].rules_on = 1;
		for (size_t j = 0; j < 4; j++)
			set.inputs[j].report.cpu_busy_milli = 3500;
		score(&set, profile_builtin("gateway"));
		assert_int_equal(set.outputs[0].rule_ppm[0], PPM);
		assert_int_equal(set.outputs[0].rules_on & 1, 0);
	}
}

/* The marks of the built-in profiles' latches: on above the one, off below the other. */
static void test_marks(void **state)
{
	static const struct {
		const char *profile, *rule;
		int64_t cpu_milli, rt_us;
		bool was_on, is_on;
	} rows[] = {
		{ "folder", "cpu", 800, 0, false, false },
		{ "folder", "cpu", 801, 0, false, true },
		{ "folder", "cpu", 700, 0, true, true },
		{ "folder", "cpu", 699, 0, true, false },
		{ "kv", "overload", 900, 0, false, false },
		{ "kv", "overload", 901, 0, false, true },
		{ "kv", "overload", 850, 0, true, true },
		{ "kv", "overload", 849, 0, true, false },
		{ "gateway", "cpu_gate", 900, 0, false, false },
		{ "gateway", "cpu_gate", 901, 0, false, true },
		{ "gateway", "cpu_gate", 800, 0, true, true },
		{ "gateway", "cpu_gate", 799, 0, true, false },
		{ "gateway", "rt_gate", 0, 1000000, false, false },
		{ "gateway", "rt_gate", 0, 1000001, false, true },
		{ "gateway", "rt_gate", 0, 800000, true, true },
		{ "gateway", "rt_gate", 0, 799999, true, false },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		const struct profile *profile = profile_builtin(rows[i].profile);
		struct set set;
		size_t rule = 0;

		while (strcmp(profile->rules[rule].name, rows[i].rule) != 0)
			rule++;
		init_set(&set, 1);
		set.inputs[0].report.cpu_busy_milli = rows[i].cpu_milli;
		set.inputs[0].report.cpu_cores_milli = 1000;
		set.inputs[0].rt_mean_us = rows[i].rt_us;
		set.inputs[0].rules_on = rows[i].was_on ? (uint32_t)1 << rule : 0;
		score(&set, profile);
		if (set.outputs[0].rules_on != (rows[i].is_on ? (uint32_t)1 << rule : 0))
			fail_msg("%s %s: row %zu", rows[i].profile, rows[i].rule, i);
		assert_int_equal(set.outputs[0].rule_ppm[rule], rows[i].is_on ? profile->rules[rule].factor_ppm : PPM);
	}
}

/* Load and latency do not touch the standing; state, rules, caps, the age of news and slow start do. */
static void test_standing(void **state)
{
	const struct profile *kv = profile_builtin("kv"), *gateway = profile_builtin("gateway");
	struct set set;

	(void)state;
	init_set(&set, 3);
	for (size_t i = 0; i < 3; i++)
		fill_gateway(&set.inputs[i]);
	set.inputs[0].report.cpu_busy_milli = 100;
	set.inputs[1].report.cpu_busy_milli = 3000;
	set.inputs[1].rt_mean_us = 700 * MSEC_US;
	score(&set, gateway);
	assert_true(set.outputs[0].weight_milli > set.outputs[1].weight_milli);
	assert_int_equal(set.outputs[0].standing_milli, 1000);
	assert_int_equal(set.outputs[1].standing_milli, 1000);
	set.inputs[2].joined_age_us = 15 * SEC_US;
	set.inputs[1].report.migrating = 1;
	score(&set, gateway);
	assert_int_equal(set.outputs[2].standing_milli, 100);
	assert_int_equal(set.outputs[1].standing_milli, 800);
	init_set(&set, 3);
	for (size_t i = 0; i < 3; i++)
		fill_gateway(&set.inputs[i]);
	set.inputs[0].state = MEMBER_SUSPECT;
	set.inputs[1].age_us = 14 * SEC_US;
	set.inputs[2].joined_age_us = SEC_US;
	set.inputs[2].report.verified = 0;
	score(&set, kv);
	assert_int_equal(set.outputs[0].standing_milli, 300);
	assert_int_equal(set.outputs[1].standing_milli, 900);
	/* Capped at 0.4: the standing falls as the score does. */
	assert_int_equal(set.outputs[2].score_ppm, 400000);
	assert_near(set.outputs[2].standing_milli, 400000 * 1000 / set.outputs[2].sum_ppm, 1);
	set.inputs[0].state = MEMBER_UNREACHABLE;
	score(&set, kv);
	assert_int_equal(set.outputs[0].standing_milli, 0);
	/* A slow disk and many connections are heard of in each answer; a full disk, failed writes and folders are not. */
	init_set(&set, 3);
	set.inputs[0].report.disk_io_us = set.inputs[0].report.tcp_conns = INT64_MAX;
	set.inputs[1].write_failure_ppm = PPM;
	set.inputs[2].report.disk_free_bytes = 0;
	set.inputs[2].report.disk_total_bytes = 1000;
	score(&set, profile_builtin("folder"));
	assert_int_equal(set.outputs[0].standing_milli, 1000);
	assert_int_equal(set.outputs[1].standing_milli, 200);
	assert_int_equal(set.outputs[2].standing_milli, 500);
}

static void test_blackout(void **state)
{
	const struct profile *gateway = profile_builtin("gateway");
	struct set set;

	(void)state;
	init_set(&set, 4);
	for (size_t i = 0; i < 4; i++)
		fill_gateway(&set.inputs[i]);
	/* It looks idle because it has just come. */
	set.inputs[0].joined_age_us = 9 * SEC_US;
	set.inputs[0].report.cpu_busy_milli = 0;
	set.inputs[1].report.cpu_busy_milli = 1000;
	set.inputs[2].is_barred = true;
	set.inputs[2].report.cpu_busy_milli = 0;
	set.inputs[3].report.cpu_busy_milli = 3000;
	score(&set, gateway);
	assert_true(set.outputs[0].is_assumed);
	assert_false(set.outputs[1].is_assumed);
	/* The mean of the two that serve, at a tenth for the slow start. */
	assert_near(set.outputs[0].score_ppm, (set.outputs[1].score_ppm + set.outputs[3].score_ppm) / 20, 1);
	set.inputs[0].joined_age_us = 10 * SEC_US;
	score(&set, gateway);
	assert_false(set.outputs[0].is_assumed);
	assert_near(set.outputs[0].score_ppm, (set.outputs[0].sum_ppm + 5) / 10, 1);
	/* A fact is no metric: it counts from the first report on. */
	set.inputs[0].joined_age_us = 0;
	set.inputs[0].report.migrating = 1;
	score(&set, gateway);
	assert_near(set.outputs[0].score_ppm, (set.outputs[1].score_ppm + set.outputs[3].score_ppm) / 20 * 8 / 10, 1);
	/* All have just come: all alike, and slow start would slow nothing but the start. */
	for (size_t i = 0; i < 4; i++) {
		set.inputs[i].joined_age_us = SEC_US;
		set.inputs[i].report.migrating = 0;
	}
	score(&set, gateway);
	for (size_t i = 0; i < 4; i++)
		assert_int_equal(set.outputs[i].score_ppm, PPM);
}

static void test_slow_start(void **state)
{
	const struct profile *gateway = profile_builtin("gateway");
	struct set set;

	(void)state;
	init_set(&set, 4);
	for (size_t i = 0; i < 4; i++)
		fill_gateway(&set.inputs[i]);
	set.inputs[0].joined_age_us = 30 * SEC_US - 1;
	score(&set, gateway);
	assert_int_equal(set.outputs[0].start_ppm, 100000);
	assert_int_equal(set.outputs[0].score_ppm, 56000);
	assert_int_equal(set.outputs[0].weight_milli, 56);
	assert_int_equal(set.outputs[1].weight_milli, 560);
	set.inputs[0].joined_age_us = 30 * SEC_US;
	score(&set, gateway);
	assert_int_equal(set.outputs[0].score_ppm, 560000);
	/* Half of the set is not more than half. */
	set.inputs[0].joined_age_us = set.inputs[1].joined_age_us = 20 * SEC_US;
	score(&set, gateway);
	assert_int_equal(set.outputs[0].start_ppm, 100000);
	/* A barred one is not of the set. */
	set.inputs[2].is_barred = true;
	score(&set, gateway);
	assert_int_equal(set.outputs[0].start_ppm, PPM);
	assert_int_equal(set.outputs[0].score_ppm, set.outputs[3].score_ppm);
}

static void test_drift(void **state)
{
	static const struct {
		int64_t age_us, share_ppm;
	} rows[] = {
		{ 0, 0 },           { 9 * SEC_US, 0 }, { 14 * SEC_US, 500000 }, { 19 * SEC_US, PPM },
		{ INT64_MAX, PPM }, { -1, PPM },
	};
	const struct profile *gateway = profile_builtin("gateway");
	struct set set;

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		int64_t own_ppm, mean_ppm;

		init_set(&set, 3);
		for (size_t node = 0; node < 3; node++)
			fill_gateway(&set.inputs[node]);
		set.inputs[0].report.cpu_busy_milli = 0;
		set.inputs[2].report.cpu_busy_milli = 1000;
		score(&set, gateway);
		own_ppm = set.outputs[0].score_ppm;
		mean_ppm = (set.outputs[1].score_ppm + set.outputs[2].score_ppm) / 2;
		set.inputs[0].age_us = rows[i].age_us;
		score(&set, gateway);
		assert_near(set.outputs[0].score_ppm,
			    (own_ppm * (PPM - rows[i].share_ppm) + mean_ppm * rows[i].share_ppm) / PPM, 2);
		assert_int_equal(set.outputs[0].is_assumed, rows[i].share_ppm > 0);
		assert_int_equal(set.outputs[0].decay_ppm, PPM);
		/* No news of anybody: all alike. */
		for (size_t node = 0; node < 3; node++)
			set.inputs[node].age_us = -1;
		score(&set, gateway);
		assert_int_equal(set.outputs[0].score_ppm, set.outputs[1].score_ppm);
		assert_true(set.outputs[0].may_serve);
	}
}

/* The worst that a node can measure leaves it the floor, and its turn. */
static void test_floor(void **state)
{
	const struct profile *gateway = profile_builtin("gateway");
	struct set set;

	(void)state;
	init_set(&set, 3);
	for (size_t i = 0; i < 3; i++)
		fill_gateway(&set.inputs[i]);
	set.inputs[0].report.cpu_busy_milli = INT64_MAX;
	set.inputs[0].report.rss_bytes = INT64_MAX;
	set.inputs[0].in_flight = INT64_MAX;
	set.inputs[0].rt_mean_us = INT64_MAX;
	set.inputs[0].report.migrating = set.inputs[0].report.leaving = INT64_MAX;
	set.inputs[0].weight_milli = 1;
	score(&set, gateway);
	assert_int_equal(set.outputs[0].sum_ppm, 0);
	assert_int_equal(set.outputs[0].score_ppm, 20000);
	assert_int_equal(set.outputs[0].weight_milli, 1);
	/* Not if it may not serve. */
	set.inputs[0].is_barred = true;
	score(&set, gateway);
	assert_int_equal(set.outputs[0].score_ppm, 0);
	assert_int_equal(set.outputs[0].weight_milli, 0);
	/* Many small factors do not add up to none. */
	{
		struct profile profile = one_dim(NORM_health, 0);

		for (profile.rule_count = 0; profile.rule_count < PROFILE_RULES_MAX; profile.rule_count++)
			profile.rules[profile.rule_count] = (struct profile_rule){
				.source = RULE_rt, .high = 5, .low = 5, .factor_ppm = 1
			};
		score(&set, &profile);
		assert_int_equal(set.outputs[1].score_ppm, 1);
		assert_true(set.outputs[1].may_serve);
		assert_int_equal(set.outputs[1].weight_milli, 1);
	}
}

/* A cap of 0 means it, and a cap holds for what is assumed too. */
static void test_cap_is_kept(void **state)
{
	struct profile profile = *profile_builtin("gateway");
	struct set set;

	(void)state;
	profile.warmup = profile_builtin("kv")->warmup;
	profile.start.floor_ppm = PPM;
	init_set(&set, 2);
	for (size_t i = 0; i < 2; i++)
		fill_gateway(&set.inputs[i]);
	set.inputs[0].joined_age_us = 0;
	score(&set, &profile);
	assert_true(set.outputs[0].is_assumed);
	assert_int_equal(set.outputs[0].score_ppm, 400000);
	profile.warmup.unverified_ppm = 0;
	score(&set, &profile);
	assert_int_equal(set.outputs[0].score_ppm, 0);
	assert_false(set.outputs[0].may_serve);
}

/* A steady load whose measured cpu is off by up to 20 %: ten minutes of tables. */
static void test_noise(void **state)
{
	const struct profile *gateway = profile_builtin("gateway");
	int64_t totals[4] = { 0 };
	struct set set;
	struct rng rng;

	(void)state;
	rng_seed(&rng, 7);
	init_set(&set, 4);
	for (size_t i = 0; i < 4; i++)
		fill_gateway(&set.inputs[i]);
	for (unsigned table = 0; table < 300; table++) {
		int64_t sum = 0;

		for (size_t i = 0; i < 4; i++)
			set.inputs[i].report.cpu_busy_milli = 1600 + (int64_t)rng_below(&rng, 801);
		score(&set, gateway);
		keep(&set);
		for (size_t i = 0; i < 4; i++)
			sum += set.outputs[i].weight_milli;
		for (size_t i = 0; i < 4; i++) {
			int64_t share_ppm = (int64_t)set.outputs[i].weight_milli * PPM / sum;

			assert_near(share_ppm, 250000, 25000);
			totals[i] += share_ppm;
		}
	}
	for (size_t i = 0; i < 4; i++)
		assert_near(totals[i] / 300, 250000, 5000);
}

static int64_t wild_number(struct rng *rng)
{
	static const int64_t EDGES[] = { INT64_MIN,     -2,       -1, 0, 1, 2, PPM - 1, PPM, PPM + 1, 60 * SEC_US,
					 INT64_MAX - 1, INT64_MAX };
	uint64_t kind = rng_below(rng, 3);

	if (kind == 0)
		return EDGES[rng_below(rng, COUNT_OF(EDGES))];
	if (kind == 1)
		return (int64_t)rng_below(rng, 2 * PPM);
	return (int64_t)rng_u64(rng);
}

/* Any numbers at all: within bounds, nothing overflows (run with -fsanitize=undefined), the same twice, and no matter in which order. */
static void test_wild(void **state)
{
	static const char *const NAMES[] = { "kv", "gateway", "folder" };
	struct set set, turned;
	struct rng rng;

	(void)state;
	rng_seed(&rng, 1);
	memset(&set, 0, sizeof(set));
	memset(&turned, 0, sizeof(turned));
	for (unsigned round = 0; round < 3000; round++) {
		struct profile profile = *profile_builtin(NAMES[round % 3]);

		if (round % 2 == 0) {
			profile.dims[profile.dim_count++] = (struct profile_dim){
				.norm = (enum profile_norm)(round % NORM_COUNT),
				.parameter = (int64_t)rng_below(&rng, 1000000000)
			};
			profile.rules[profile.rule_count++] = (struct profile_rule){
				.source = (enum profile_source)(round % RULE_COUNT),
				.kind = round % 4 == 0 ? PROFILE_RAMP : PROFILE_STEP,
				.high = INT64_MAX
			};
		}
		init_set(&set, 1 + round % NODES_MAX);
		for (size_t i = 0; i < set.count; i++) {
			struct score_input *input = &set.inputs[i];

#define REPORT(name, help) input->report.name = wild_number(&rng);
#include "core/report_list.h"
#undef REPORT
			input->weight_milli = (uint32_t)rng_u64(&rng);
			input->state = (enum member_state)rng_below(&rng, MEMBER_REMOVED + 1);
			input->age_us = wild_number(&rng);
			input->p99_smooth_us = wild_number(&rng);
			input->write_failure_ppm = wild_number(&rng);
			input->in_flight = wild_number(&rng);
			input->rt_mean_us = wild_number(&rng);
			input->joined_age_us = wild_number(&rng);
			input->was_ever_verified = rng_below(&rng, 2) == 0;
			input->is_barred = rng_below(&rng, 4) == 0;
			input->rules_on = (uint32_t)rng_u64(&rng);
			input->score_before_ppm = wild_number(&rng);
		}
		score(&set, &profile);
		turned.count = set.count;
		for (size_t i = 0; i < set.count; i++)
			turned.pointers[i] = &set.inputs[set.count - 1 - i];
		score(&turned, &profile);
		for (size_t i = 0; i < set.count; i++) {
			const struct score_output *output = &set.outputs[i];

			assert_memory_equal(output, &turned.outputs[set.count - 1 - i], sizeof(*output));
			assert_in_range(output->score_ppm, 0, PPM);
			assert_in_range(output->sum_ppm, 0, PPM);
			assert_true(output->weight_milli <= set.inputs[i].weight_milli);
			assert_int_equal(output->weight_milli > 0, output->may_serve && set.inputs[i].weight_milli > 0);
			for (size_t dim = 0; dim < profile.dim_count; dim++)
				assert_in_range(output->dim_ppm[dim], 0, PPM);
			for (size_t rule = 0; rule < profile.rule_count; rule++)
				assert_in_range(output->rule_ppm[rule], 0, PPM);
		}
	}
}

/* Nobody, and as many as there can be. */
static void test_sizes(void **state)
{
	struct score_input *inputs = must_zalloc(SCORE_SET_MAX, sizeof(*inputs));
	struct score_output *outputs = must_zalloc(SCORE_SET_MAX, sizeof(*outputs));
	const struct score_input *pointers[SCORE_SET_MAX];

	(void)state;
	score_set(profile_builtin("kv"), NULL, 0, NULL);
	for (size_t i = 0; i < SCORE_SET_MAX; i++) {
		init_input(&inputs[i], i);
		fill_gateway(&inputs[i]);
		inputs[i].in_flight = INT64_MAX;
		inputs[i].weight_milli = UINT32_MAX;
		pointers[i] = &inputs[i];
	}
	score_set(profile_builtin("gateway"), pointers, SCORE_SET_MAX, outputs);
	assert_int_equal(outputs[0].dim_ppm[2], 500000);
	assert_int_equal(outputs[SCORE_SET_MAX - 1].score_ppm, 560000);
	free(inputs);
	free(outputs);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_kv_by_the_seed), cmocka_unit_test(test_unknown_is_the_peers_mean),
		cmocka_unit_test(test_warmup),         cmocka_unit_test(test_decay),
		cmocka_unit_test(test_leaving),        cmocka_unit_test(test_folder),
		cmocka_unit_test(test_gateway_gate),   cmocka_unit_test(test_gate_compares_with_peers),
		cmocka_unit_test(test_marks),          cmocka_unit_test(test_standing),
		cmocka_unit_test(test_blackout),       cmocka_unit_test(test_slow_start),
		cmocka_unit_test(test_drift),          cmocka_unit_test(test_floor),
		cmocka_unit_test(test_cap_is_kept),    cmocka_unit_test(test_noise),
		cmocka_unit_test(test_wild),           cmocka_unit_test(test_sizes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
