#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "score_set.h"

/* One normaliser on one node: a, b are its two numbers. -1 as wanted: unknown, so that 1 stands in. */
static void test_norms(void **state)
{
	static const struct {
		enum profile_norm norm;
		int64_t parameter, a, b, wanted_ppm;
	} rows[] = {
		{ NORM_cpu_per_core, 0, UNKNOWN, 8000, -1 },
		{ NORM_cpu_per_core, 0, 8000, UNKNOWN, -1 },
		{ NORM_cpu_per_core, 0, 8000, 0, -1 }, /* no cores at all: nonsense, not a full load */
		{ NORM_cpu_per_core, 0, 0, 8000, PPM },
		{ NORM_cpu_per_core, 0, 4000, 8000, 500000 },
		{ NORM_cpu_per_core, 0, 2000, 4000, 500000 },
		{ NORM_cpu_per_core, 0, 8000, 8000, 0 },
		{ NORM_cpu_per_core, 0, 9000, 8000, 0 },
		{ NORM_cpu_per_core, 0, INT64_MAX, 1, 0 },
		{ NORM_cpu_per_core, 0, INT64_MAX, INT64_MAX, 0 },
		{ NORM_cpu_per_core, 0, INT64_MIN, 8000, -1 },
		{ NORM_memory, 0, UNKNOWN, 8, -1 },
		{ NORM_memory, 0, 1, 3, 666667 },
		{ NORM_memory, 0, 3, 2, 0 },
		{ NORM_memory, 0, INT64_MAX / 2, INT64_MAX, 500000 },
		{ NORM_disk_queue, 0, UNKNOWN, 0, -1 },
		{ NORM_disk_queue, 0, 0, 0, PPM },
		{ NORM_disk_queue, 0, 4000, 0, 750000 },
		{ NORM_disk_queue, 0, 15999, 0, 62 },
		{ NORM_disk_queue, 0, 16000, 0, 0 },
		{ NORM_disk_queue, 0, 1000000, 0, 0 },
		{ NORM_disk_queue, 32000, 16000, 0, 500000 },
		{ NORM_latency, 0, UNKNOWN, 0, -1 },
		{ NORM_latency, 0, 0, 0, PPM },
		{ NORM_latency, 0, 100000, 0, 500000 },
		{ NORM_latency, 0, 200000, 0, 333333 },
		{ NORM_latency, 0, 300000, 0, 250000 },
		{ NORM_latency, 5000, 5000, 0, 500000 },
		{ NORM_latency, 0, INT64_MAX, 0, 0 },
		{ NORM_stability, 0, UNKNOWN, 5, -1 },
		{ NORM_stability, 0, 5, UNKNOWN, -1 },
		{ NORM_stability, 0, 0, 0, PPM },
		{ NORM_stability, 0, 0, 8, 250000 }, /* the clock's own grain */
		{ NORM_stability, 0, 45000, 55000, PPM },
		{ NORM_stability, 0, 20000, 40000, PPM },
		{ NORM_stability, 0, 20000, 80000, 500000 },
		{ NORM_stability, 0, 1, INT64_MAX, 0 },
		{ NORM_stability, 0, INT64_MAX, INT64_MAX, PPM },
		{ NORM_rt_ratio, 0, UNKNOWN, 0, -1 },
		{ NORM_rt_ratio, 0, 250000, 0, 750000 },
		{ NORM_rt_ratio, 0, 1000000, 0, 0 },
		{ NORM_rt_ratio, 0, INT64_MAX, 0, 0 },
		{ NORM_rt_ratio, 500000, 250000, 0, 500000 },
		{ NORM_wal_lag, 0, UNKNOWN, 0, -1 },
		{ NORM_wal_lag, 0, 0, 0, PPM },
		{ NORM_wal_lag, 0, 100000, 0, 900000 },
		{ NORM_wal_lag, 200000, 100000, 0, 500000 },
		{ NORM_wal_lag, 0, 5000000, 0, 0 },
		/* a: verified, b: sync progress */
		{ NORM_data_ready, 0, UNKNOWN, UNKNOWN, -1 },
		{ NORM_data_ready, 0, 1, UNKNOWN, PPM },
		{ NORM_data_ready, 0, 1, 300000, PPM },
		{ NORM_data_ready, 0, 0, UNKNOWN, 400000 },
		{ NORM_data_ready, 0, 0, 0, 400000 },
		{ NORM_data_ready, 0, 0, 500000, 700000 },
		{ NORM_data_ready, 0, UNKNOWN, 500000, 700000 },
		{ NORM_data_ready, 0, 0, PPM, PPM },
		{ NORM_data_ready, 0, 0, INT64_MAX, PPM },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct profile profile = one_dim(rows[i].norm, rows[i].parameter);
		int64_t a = rows[i].a, b = rows[i].b;
		struct score_input *input;
		struct set set;

		init_set(&set, 1);
		input = &set.inputs[0];
		switch (rows[i].norm) {
		case NORM_cpu_per_core:
			input->report.cpu_busy_milli = a;
			input->report.cpu_cores_milli = b;
			break;
		case NORM_memory:
			input->report.rss_bytes = a;
			input->report.mem_limit_bytes = b;
			break;
		case NORM_disk_queue:
			input->report.disk_queue_milli = a;
			break;
		case NORM_latency:
			input->p99_smooth_us = a;
			break;
		case NORM_stability:
			input->report.p10_us = a;
			input->report.p90_us = b;
			break;
		case NORM_rt_ratio:
			input->rt_mean_us = a;
			break;
		case NORM_wal_lag:
			input->report.wal_lag_us = a;
			break;
		default:
			input->report.verified = a;
			input->report.sync_progress_ppm = b;
			break;
		}
		score(&set, &profile);
		if (set.outputs[0].dim_ppm[0] != (rows[i].wanted_ppm < 0 ? PPM : rows[i].wanted_ppm) ||
		    set.outputs[0].dims_assumed != (rows[i].wanted_ppm < 0 ? 1u : 0u))
			fail_msg("row %zu: %lld", i, (long long)set.outputs[0].dim_ppm[0]);
		assert_int_equal(set.outputs[0].sum_ppm, set.outputs[0].dim_ppm[0]);
	}
}

static void test_health(void **state)
{
	static const struct {
		enum member_state member;
		bool is_barred;
		int64_t dim_ppm, score_ppm;
		bool may_serve;
	} rows[] = {
		{ MEMBER_HEALTHY, false, PPM, PPM, true },       { MEMBER_SUSPECT, false, 300000, 300000, true },
		{ MEMBER_LEAVING, false, 150000, 150000, true }, { MEMBER_UNREACHABLE, false, 0, 0, false },
		{ MEMBER_REMOVED, false, 0, 0, false },          { MEMBER_HEALTHY, true, PPM, PPM, false },
	};
	struct profile profile = one_dim(NORM_health, 0);
	struct set set;

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		init_set(&set, 1);
		set.inputs[0].state = rows[i].member;
		set.inputs[0].is_barred = rows[i].is_barred;
		score(&set, &profile);
		assert_int_equal(set.outputs[0].dim_ppm[0], rows[i].dim_ppm);
		assert_int_equal(set.outputs[0].score_ppm, rows[i].score_ppm);
		assert_int_equal(set.outputs[0].may_serve, rows[i].may_serve);
		assert_int_equal(set.outputs[0].weight_milli > 0, rows[i].may_serve);
	}
	/* However good the rest: unreachable is 0 in every profile. */
	for (size_t i = 0; i < 3; i++) {
		init_set(&set, 1);
		fill_kv(&set.inputs[0]);
		fill_gateway(&set.inputs[0]);
		set.inputs[0].state = MEMBER_UNREACHABLE;
		score(&set, profile_builtin(i == 0 ? "kv" : i == 1 ? "gateway" : "folder"));
		assert_int_equal(set.outputs[0].score_ppm, 0);
		assert_int_equal(set.outputs[0].weight_milli, 0);
	}
}

static void test_conn_share(void **state)
{
	struct profile profile = one_dim(NORM_conn_share, 0);
	struct set set;

	(void)state;
	/* As many as is fair: half. Twice as many: nothing. Weights count. */
	init_set(&set, 4);
	for (size_t i = 0; i < 4; i++)
		set.inputs[i].in_flight = 10;
	score(&set, &profile);
	for (size_t i = 0; i < 4; i++)
		assert_int_equal(set.outputs[i].dim_ppm[0], 500000);
	set.inputs[0].in_flight = 30;
	set.inputs[1].in_flight = 0;
	set.inputs[2].in_flight = 5;
	set.inputs[3].in_flight = 5;
	score(&set, &profile);
	assert_int_equal(set.outputs[0].dim_ppm[0], 0);
	assert_int_equal(set.outputs[1].dim_ppm[0], PPM);
	assert_int_equal(set.outputs[2].dim_ppm[0], 750000);
	set.inputs[0].weight_milli = 6000;
	set.inputs[1].weight_milli = 0;
	score(&set, &profile);
	assert_near(set.outputs[0].dim_ppm[0], 500000, 1000);
	/* One that does not tell is left out of the sum; one that is gone as well. */
	init_set(&set, 3);
	set.inputs[0].in_flight = 10;
	set.inputs[1].in_flight = 1000;
	set.inputs[1].state = MEMBER_UNREACHABLE;
	score(&set, &profile);
	assert_int_equal(set.outputs[0].dim_ppm[0], 500000);
	assert_int_equal(set.outputs[2].dim_ppm[0], 500000);
	assert_int_equal(set.outputs[2].dims_assumed, 1);
	/* The one busy node of an idle set is not at its limit. */
	init_set(&set, 8);
	for (size_t i = 0; i < 8; i++)
		set.inputs[i].in_flight = i == 0 ? 1 : 0;
	score(&set, &profile);
	assert_int_equal(set.outputs[0].dim_ppm[0], 500000);
	assert_int_equal(set.outputs[1].dim_ppm[0], PPM);
	/* Numbers as large as can be. */
	for (size_t i = 0; i < 8; i++) {
		set.inputs[i].in_flight = INT64_MAX;
		set.inputs[i].weight_milli = UINT32_MAX;
	}
	score(&set, &profile);
	assert_int_equal(set.outputs[7].dim_ppm[0], 500000);
}

/* One rule on one node. value: of its source; was_on, is_on: the latch. */
static void test_rules(void **state)
{
	static const struct {
		enum profile_source source;
		enum profile_rule_kind kind;
		int64_t low, high, factor_ppm, value;
		bool was_on;
		int64_t wanted_ppm;
		bool is_on;
	} rows[] = {
		{ RULE_rt, PROFILE_STEP, 70, 80, 600000, UNKNOWN, false, PPM, false },
		{ RULE_rt, PROFILE_STEP, 70, 80, 600000, UNKNOWN, true, PPM, true }, /* keeps its latch */
		{ RULE_rt, PROFILE_STEP, 70, 80, 600000, 80, false, PPM, false },
		{ RULE_rt, PROFILE_STEP, 70, 80, 600000, 81, false, 600000, true },
		{ RULE_rt, PROFILE_STEP, 70, 80, 600000, 70, true, 600000, true },
		{ RULE_rt, PROFILE_STEP, 70, 80, 600000, 69, true, PPM, false },
		{ RULE_rt, PROFILE_STEP, 80, 80, 600000, 80, true, PPM, false }, /* no latch */
		{ RULE_rt, PROFILE_STEP, 80, 80, 600000, 81, false, 600000, true },
		{ RULE_rt, PROFILE_STEP, 0, 0, 0, 1, false, 0, true },
		{ RULE_rt, PROFILE_RAMP, 100, 200, 500000, UNKNOWN, true, PPM, false },
		{ RULE_rt, PROFILE_RAMP, 100, 200, 500000, 100, true, PPM, false },
		{ RULE_rt, PROFILE_RAMP, 100, 200, 500000, 101, false, 995000, true },
		{ RULE_rt, PROFILE_RAMP, 100, 200, 500000, 150, false, 750000, true },
		{ RULE_rt, PROFILE_RAMP, 100, 200, 500000, 200, false, 500000, true },
		{ RULE_rt, PROFILE_RAMP, 100, 200, 500000, INT64_MAX, false, 500000, true },
		{ RULE_rt, PROFILE_RAMP, 100, 100, 500000, 100, false, PPM, false },
		{ RULE_rt, PROFILE_RAMP, 100, 100, 500000, 101, false, 500000, true },
		{ RULE_rt, PROFILE_RAMP, 0, INT64_MAX, 0, INT64_MAX / 2, false, 500000, true },
		/* Free space: the other way round. value: millionths free. */
		{ RULE_disk_free, PROFILE_STEP, 70000, 150000, 500000, 70000, false, PPM, false },
		{ RULE_disk_free, PROFILE_STEP, 70000, 150000, 500000, 69999, false, 500000, true },
		{ RULE_disk_free, PROFILE_STEP, 70000, 150000, 500000, 150000, true, 500000, true },
		{ RULE_disk_free, PROFILE_STEP, 70000, 150000, 500000, 150001, true, PPM, false },
		{ RULE_disk_free, PROFILE_RAMP, 70000, 150000, 500000, 150000, false, PPM, false },
		{ RULE_disk_free, PROFILE_RAMP, 70000, 150000, 500000, 110000, false, 750000, true },
		{ RULE_disk_free, PROFILE_RAMP, 70000, 150000, 500000, 70000, false, 500000, true },
		{ RULE_disk_free, PROFILE_RAMP, 70000, 150000, 500000, 0, false, 500000, true },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct profile profile = one_dim(NORM_health, 0);
		struct set set;

		profile.rule_count = 1;
		profile.rules[0] = (struct profile_rule){ .name = "r",
							  .source = rows[i].source,
							  .kind = rows[i].kind,
							  .low = rows[i].low,
							  .high = rows[i].high,
							  .factor_ppm = rows[i].factor_ppm };
		init_set(&set, 1);
		set.inputs[0].rules_on = rows[i].was_on ? 1 : 0;
		if (rows[i].source == RULE_rt) {
			set.inputs[0].rt_mean_us = rows[i].value;
		} else {
			set.inputs[0].report.disk_free_bytes = rows[i].value;
			set.inputs[0].report.disk_total_bytes = PPM;
		}
		score(&set, &profile);
		if (set.outputs[0].rule_ppm[0] != rows[i].wanted_ppm ||
		    set.outputs[0].rules_on != (rows[i].is_on ? 1u : 0u))
			fail_msg("row %zu: %lld, %u", i, (long long)set.outputs[0].rule_ppm[0],
				 set.outputs[0].rules_on);
		assert_int_equal(set.outputs[0].score_ppm, rows[i].wanted_ppm);
	}
}

/* Every source reads its own number: set that one alone to 7 and it is on, every other is not. */
static void test_sources(void **state)
{
	struct profile profile = one_dim(NORM_health, 0);
	struct set set;

	(void)state;
	profile.rule_count = 1;
	profile.rules[0] = (struct profile_rule){
		.name = "r", .kind = PROFILE_STEP, .high = 6, .low = 6, .factor_ppm = 1
	};
	for (int source = 0; source < RULE_COUNT; source++) {
		for (int told = 0; told < RULE_COUNT; told++) {
			bool is_cpu = told == RULE_cpu || told == RULE_load;
			struct score_input *input;

			init_set(&set, 1);
			input = &set.inputs[0];
			profile.rules[0].source = (enum profile_source)source;
			input->report.cpu_busy_milli = is_cpu ? 7 : UNKNOWN;
			input->report.cpu_cores_milli = is_cpu ? PPM : UNKNOWN;
			input->report.mem_pressure_ppm = told == RULE_memory_pressure ? 7 : UNKNOWN;
			input->report.disk_io_us = told == RULE_disk_io ? 7 : UNKNOWN;
			input->report.disk_free_bytes = told == RULE_disk_free ? 5 : UNKNOWN;
			input->report.disk_total_bytes = told == RULE_disk_free ? PPM : UNKNOWN;
			input->report.tcp_conns = told == RULE_tcp_conns ? 7 : UNKNOWN;
			input->write_failure_ppm = told == RULE_write_failures ? 7 : UNKNOWN;
			input->rt_mean_us = told == RULE_rt ? 7 : UNKNOWN;
			input->report.migrating = told == RULE_migrating ? 7 : UNKNOWN;
			input->report.leaving = told == RULE_leaving ? 7 : UNKNOWN;
			input->report.dirs_failed = told == RULE_dirs_failed ? 7 : UNKNOWN;
			score(&set, &profile);
			assert_int_equal(set.outputs[0].rules_on,
					 source == told || (is_cpu && (source == RULE_cpu || source == RULE_load)));
		}
	}
}

static void test_kv_load(void **state)
{
	static const struct {
		int64_t cpu_percent, memory_percent, queue_milli;
		bool was_on;
		int64_t factor_ppm;
	} rows[] = {
		{ 90, 0, 0, false, PPM },
		{ 91, 0, 0, false, 200000 }, /* the cores alone */
		{ 50, 50, 4000, false, PPM },
		{ 86, 0, 0, true, 200000 }, /* back only under 85 % */
		{ 84, 0, 0, true, PPM },
		{ 80, 100, 16000, false, 200000 },     /* .92 together: .4 * .8 + .3 + .3 */
		{ 70, 100, 16000, false, PPM },        /* .88 */
		{ 80, UNKNOWN, 16000, false, PPM },    /* what is known: (.4 * .8 + .3) / .7 = .886 */
		{ 84, UNKNOWN, 16000, false, 200000 }, /* .909 */
		{ UNKNOWN, UNKNOWN, UNKNOWN, false, PPM },
		{ UNKNOWN, UNKNOWN, 16000, false, 200000 },
	};
	struct set set;

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct score_input *input;

		init_set(&set, 1);
		input = &set.inputs[0];
		fill_kv(input);
		input->report.cpu_busy_milli = rows[i].cpu_percent < 0 ? UNKNOWN : rows[i].cpu_percent * 80;
		input->report.rss_bytes = rows[i].memory_percent < 0 ? UNKNOWN : rows[i].memory_percent * 80;
		input->report.disk_queue_milli = rows[i].queue_milli;
		input->rules_on = rows[i].was_on ? 1u << 2 : 0;
		score(&set, profile_builtin("kv"));
		if (set.outputs[0].rule_ppm[2] != rows[i].factor_ppm)
			fail_msg("row %zu: %lld", i, (long long)set.outputs[0].rule_ppm[2]);
		assert_near(set.outputs[0].score_ppm, set.outputs[0].sum_ppm * rows[i].factor_ppm / PPM, 1);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_norms), cmocka_unit_test(test_health),  cmocka_unit_test(test_conn_share),
		cmocka_unit_test(test_rules), cmocka_unit_test(test_sources), cmocka_unit_test(test_kv_load),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
