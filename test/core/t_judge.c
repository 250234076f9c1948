#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "core/judge.h"

#define NODES_MAX 6
#define TICK_US   JUDGE_TICK_US

/* A set with scores as given, and what is remembered of it. */
struct bench {
	struct profile profile;
	struct score_input inputs[NODES_MAX];
	const struct score_input *pointers[NODES_MAX];
	struct score_output outputs[NODES_MAX];
	size_t count;
	struct judge_memory memory;
	struct decision decision;
};

static void init_bench(struct bench *bench, size_t count)
{
	memset(bench, 0, sizeof(*bench));
	bench->profile = *profile_builtin("kv");
	bench->count = count;
	for (size_t i = 0; i < count; i++) {
		snprintf(bench->inputs[i].id, sizeof(bench->inputs[i].id), "n%zu", i);
		bench->inputs[i].weight_milli = 1000;
		bench->pointers[i] = &bench->inputs[i];
		bench->outputs[i].cap_ppm = PPM;
	}
}

/* Percent; below 0: may not serve. */
static void set_scores(struct bench *bench, const int *percents)
{
	for (size_t i = 0; i < bench->count; i++) {
		bench->outputs[i].may_serve = percents[i] >= 0;
		bench->outputs[i].score_ppm = percents[i] < 0 ? 0 : percents[i] * (PPM / 100);
	}
}

static void judge(struct bench *bench)
{
	memset(&bench->decision, 0x5a, sizeof(bench->decision));
	judge_set(&bench->profile, &bench->memory, TICK_US, bench->pointers, bench->outputs, bench->count,
		  &bench->decision);
}

static void test_names(void **state)
{
	enum reason reason;

	(void)state;
	for (size_t i = 0; i < REASONS; i++) {
		assert_true(reason_find(reason_names[i], &reason));
		assert_int_equal(reason, i);
		assert_true(reason_helps[i][0] != '\0');
	}
	assert_string_equal(reason_names[REASON_held_by_hysteresis], "held_by_hysteresis");
	assert_false(reason_find("", &reason));
	assert_false(reason_find("Best", &reason));
}

/* One tick with a holder: n0 has the choice. */
static void test_one_tick(void **state)
{
	static const struct {
		const char *why;
		const char *holder;
		int scores[3];
		unsigned failed_picks;
		int64_t held_s, dwell_s;
		int selected;
		enum reason reason;
		bool is_changed;
	} rows[] = {
		{ "nobody, nobody before", "", { -1, -1, -1 }, 0, 0, 0, -1, REASON_none, false },
		{ "nobody any more", "n0", { -1, -1, -1 }, 0, 0, 0, -1, REASON_none, true },
		{ "first", "", { 20, 50, 30 }, 0, 0, 0, 1, REASON_first, true },
		{ "first of equals by id", "", { 50, 50, 50 }, 0, 0, 0, 0, REASON_first, true },
		{ "first among those that may", "", { -1, 20, -1 }, 0, 0, 0, 1, REASON_first, true },
		{ "first, no dwell", "", { 20, 50, 30 }, 0, 0, 60, 1, REASON_first, true },
		{ "still the best", "n0", { 50, 40, 30 }, 0, 0, 0, 0, REASON_best, false },
		{ "as good as the best", "n1", { 50, 50, 30 }, 0, 0, 0, 1, REASON_best, false },
		{ "behind, but not by much", "n0", { 80, 85, 30 }, 0, 0, 0, 0, REASON_held_by_hysteresis, false },
		{ "behind by 0.10: not by more", "n0", { 80, 90, 30 }, 0, 0, 0, 0, REASON_held_by_hysteresis, false },
		{ "behind by more", "n0", { 79, 90, 30 }, 0, 0, 0, 1, REASON_best, true },
		{ "at 80 % of it", "n0", { 32, 40, 30 }, 0, 0, 0, 0, REASON_held_by_hysteresis, false },
		{ "under 80 % of it", "n0", { 31, 40, 30 }, 0, 0, 0, 1, REASON_best, true },
		{ "the best of two challengers", "n0", { 10, 90, 95 }, 0, 0, 0, 2, REASON_best, true },
		{ "cannot serve", "n0", { -1, 5, 4 }, 0, 0, 60, 1, REASON_failover, true },
		{ "is gone", "gone", { 10, 5, 4 }, 0, 0, 60, 0, REASON_failover, true },
		{ "failed once", "n0", { 80, 85, 30 }, 1, 0, 0, 0, REASON_held_by_hysteresis, false },
		{ "failed twice", "n0", { 80, 70, 30 }, 2, 0, 60, 1, REASON_failover, true },
		{ "failed twice, behind", "n0", { 80, 85, 30 }, 2, 0, 60, 1, REASON_failover, true },
		{ "failed twice, alone", "n0", { 80, -1, -1 }, 2, 0, 0, 0, REASON_best, false },
		{ "beaten too soon", "n0", { 10, 90, 30 }, 0, 55, 60, 0, REASON_held_by_dwell, false },
		{ "beaten late enough", "n0", { 10, 90, 30 }, 0, 58, 60, 1, REASON_best, true },
		{ "close and soon", "n0", { 85, 90, 30 }, 0, 0, 60, 0, REASON_held_by_hysteresis, false },
	};
	struct bench bench;

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		init_bench(&bench, 3);
		set_scores(&bench, rows[i].scores);
		bench.profile.dwell_us = rows[i].dwell_s * SEC_US;
		snprintf(bench.memory.selected, sizeof(bench.memory.selected), "%s", rows[i].holder);
		bench.memory.failed_picks = rows[i].failed_picks;
		bench.memory.held_us = rows[i].held_s * SEC_US;
		judge(&bench);
		if (bench.decision.selected != rows[i].selected || bench.decision.reason != rows[i].reason ||
		    bench.decision.is_changed != rows[i].is_changed)
			fail_msg("%s: %d, %s, %d", rows[i].why, bench.decision.selected,
				 reason_names[bench.decision.reason], bench.decision.is_changed);
		if (rows[i].selected < 0) {
			assert_string_equal(bench.memory.selected, "");
			assert_int_equal(bench.decision.order_count + bench.decision.band_count, 0);
			assert_int_equal(bench.decision.best_ppm, 0);
			continue;
		}
		assert_string_equal(bench.memory.selected, bench.inputs[rows[i].selected].id);
		assert_int_equal(bench.decision.order[0], rows[i].selected);
		assert_int_equal(bench.memory.held_us, rows[i].is_changed ? 0 : rows[i].held_s * SEC_US + TICK_US);
		assert_int_equal(bench.memory.failed_picks, rows[i].is_changed ? 0 : rows[i].failed_picks);
	}
}

static void test_order_and_band(void **state)
{
	static const struct {
		const char *why, *holder;
		int scores[5];
		unsigned capped; /* bit i: n<i> is warming up */
		const char *order;
		size_t band_count;
	} rows[] = {
		{ "one", "", { -1, -1, 7, -1, -1 }, 0, "2", 1 },
		{ "80 % is in, 79 is not", "", { 79, 80, 100, 81, -1 }, 0, "2310", 3 },
		{ "equals by id", "", { 50, 50, 50, 50, 50 }, 0, "01234", 5 },
		{ "the holder leads", "n3", { 90, 95, 10, 92, 30 }, 0, "31042", 3 },
		{ "warming up is no equal", "", { 100, 90, 85, 10, -1 }, 1u << 1, "0213", 2 },
		{ "unless all are", "", { 40, 40, 40, -1, -1 }, 7, "012", 3 },
		{ "or all that are as good", "", { 40, 40, 10, -1, -1 }, 3, "012", 2 },
		{ "the holder is in its band", "n0", { 40, 45, 45, -1, -1 }, 1, "012", 3 },
	};
	struct bench bench;

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		init_bench(&bench, 5);
		set_scores(&bench, rows[i].scores);
		for (size_t node = 0; node < 5; node++)
			bench.outputs[node].cap_ppm = (rows[i].capped & (1u << node)) != 0 ? 400000 : PPM;
		snprintf(bench.memory.selected, sizeof(bench.memory.selected), "%s", rows[i].holder);
		judge(&bench);
		if (bench.decision.order_count != strlen(rows[i].order) ||
		    bench.decision.band_count != rows[i].band_count)
			fail_msg("%s: %zu, band %zu", rows[i].why, bench.decision.order_count,
				 bench.decision.band_count);
		for (size_t place = 0; place < bench.decision.order_count; place++) {
			if (bench.decision.order[place] != rows[i].order[place] - '0')
				fail_msg("%s: place %zu is n%u", rows[i].why, place, bench.decision.order[place]);
		}
	}
}

/* The choice goes by ids: candidates in another order, or others beside them, change nothing. */
static void test_order_of_input(void **state)
{
	static const int scores[] = { 70, 75, 75, 20 }, turned_scores[] = { 20, 75, 75, 70 };
	struct bench bench;

	(void)state;
	init_bench(&bench, 4);
	set_scores(&bench, scores);
	judge(&bench);
	assert_int_equal(bench.decision.selected, 1);
	set_scores(&bench, turned_scores);
	for (size_t i = 0; i < 4; i++)
		snprintf(bench.inputs[i].id, sizeof(bench.inputs[i].id), "n%zu", 3 - i);
	judge(&bench);
	assert_int_equal(bench.decision.selected, 2);
	assert_false(bench.decision.is_changed);
	assert_string_equal(bench.memory.selected, "n1");
	assert_int_equal(bench.decision.order[1], 1);
}

static void test_time_is_bounded(void **state)
{
	static const int scores[] = { 10, 90 };
	struct bench bench;

	(void)state;
	init_bench(&bench, 2);
	set_scores(&bench, scores);
	bench.profile.dwell_us = 10 * SEC_US;
	snprintf(bench.memory.selected, sizeof(bench.memory.selected), "n0");
	/* A clock that went back makes nothing younger or older. */
	bench.memory.held_us = INT64_MIN;
	judge_set(&bench.profile, &bench.memory, INT64_MIN, bench.pointers, bench.outputs, 2, &bench.decision);
	assert_int_equal(bench.memory.held_us, 0);
	assert_int_equal(bench.decision.reason, REASON_held_by_dwell);
	bench.memory.held_us = 1;
	bench.memory.flat_us = INT64_MAX;
	judge_set(&bench.profile, &bench.memory, INT64_MAX, bench.pointers, bench.outputs, 2, &bench.decision);
	assert_int_equal(bench.decision.selected, 1);
	assert_int_equal(bench.decision.reason, REASON_best);
	judge_set(&bench.profile, &bench.memory, INT64_MAX, bench.pointers, bench.outputs, 2, &bench.decision);
	judge_set(&bench.profile, &bench.memory, INT64_MAX, bench.pointers, bench.outputs, 2, &bench.decision);
	assert_int_equal(bench.memory.held_us, INT64_MAX);
	judge_set(&bench.profile, &bench.memory, 1, bench.pointers, bench.outputs, 0, &bench.decision);
	assert_int_equal(bench.decision.selected, -1);
}

static void test_flat(void **state)
{
	static const struct {
		const char *why;
		int64_t scores_ppm[3], dim_ppm[3];
		uint32_t assumed; /* bit i: n<i> does not know the dimension */
		bool is_out;      /* n2 may not serve */
		bool is_flat;
	} rows[] = {
		{ "alike, and so is what it is made of",
		  { 500000, 500000, 500000 },
		  { 900000, 850000, 810000 },
		  0,
		  false,
		  false },
		{ "alike, though the metrics are not",
		  { 500000, 495000, 490000 },
		  { 900000, 850000, 809999 },
		  0,
		  false,
		  true },
		{ "two hundredths apart are alike", { 500000, 490000, 490000 }, { 900000, 100000, 0 }, 0, false, true },
		{ "a hair more", { 500000, 490000, 489999 }, { 900000, 100000, 0 }, 0, false, false },
		{ "what is assumed says nothing", { 500000, 500000, 500000 }, { 900000, 900000, 0 }, 4, false, false },
		{ "nor does who may not serve", { 500000, 500000, 500000 }, { 900000, 900000, 0 }, 0, true, false },
		{ "nor his score", { 500000, 500000, 10 }, { 900000, 100000, 0 }, 0, true, true },
	};
	struct bench bench;

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		init_bench(&bench, 3);
		for (size_t node = 0; node < 3; node++) {
			bench.outputs[node].score_ppm = rows[i].scores_ppm[node];
			bench.outputs[node].may_serve = !(rows[i].is_out && node == 2);
			bench.outputs[node].dim_ppm[3] = rows[i].dim_ppm[node];
			bench.outputs[node].dims_assumed = (rows[i].assumed & (1u << node)) != 0 ? 1u << 3 : 0;
		}
		/* Five minutes, to the tick. */
		for (int64_t age_us = TICK_US; age_us < 300 * SEC_US; age_us += TICK_US) {
			judge(&bench);
			assert_false(bench.decision.is_flat);
		}
		judge(&bench);
		if (bench.decision.is_flat != rows[i].is_flat)
			fail_msg("%s", rows[i].why);
		/* One tick apart, and the count begins anew. */
		bench.outputs[0].score_ppm += 50000;
		judge(&bench);
		bench.outputs[0].score_ppm -= 50000;
		assert_false(bench.decision.is_flat);
		judge(&bench);
		assert_false(bench.decision.is_flat);
	}
	/* One alone is not flat, and without a time nobody is. */
	init_bench(&bench, 1);
	bench.outputs[0].may_serve = true;
	bench.outputs[0].score_ppm = 5;
	bench.memory.flat_us = INT64_MAX;
	judge(&bench);
	assert_false(bench.decision.is_flat);
	init_bench(&bench, 2);
	bench.profile.flat_us = 0;
	bench.outputs[0].may_serve = bench.outputs[1].may_serve = true;
	bench.outputs[0].score_ppm = bench.outputs[1].score_ppm = 5;
	bench.outputs[0].dim_ppm[0] = PPM;
	judge(&bench);
	assert_false(bench.decision.is_flat);
}

/* Left because its picks failed: its score does not win the selection back within half a minute; a fault of the new one does. */
static void test_away(void **state)
{
	static const int scores[] = { 90, 40, 30 };
	struct bench bench;

	(void)state;
	init_bench(&bench, 3);
	set_scores(&bench, scores);
	judge(&bench);
	bench.memory.failed_picks = 2;
	judge(&bench);
	assert_int_equal(bench.decision.selected, 1);
	for (int64_t held_us = TICK_US; held_us < JUDGE_AWAY_US; held_us += TICK_US) {
		judge(&bench);
		assert_int_equal(bench.decision.selected, 1);
		assert_int_equal(bench.decision.reason, REASON_held_by_dwell);
	}
	judge(&bench);
	assert_int_equal(bench.decision.selected, 0);
	assert_int_equal(bench.decision.reason, REASON_best);
	assert_int_equal(bench.memory.dwell_us, 0);
	bench.memory.failed_picks = 2;
	judge(&bench);
	bench.memory.failed_picks = 2;
	judge(&bench);
	assert_int_equal(bench.decision.selected, 0);
	/* The one before was no longer there: no fault of its score. */
	bench.outputs[0].may_serve = false;
	judge(&bench);
	assert_int_equal(bench.decision.selected, 1);
	assert_int_equal(bench.memory.dwell_us, 0);
}

/* A weight of 0: behind all others, in no band and never selected beside one that has a weight. */
static void test_weight_zero(void **state)
{
	static const struct {
		const char *why, *holder;
		int scores[4];
		bool is_out[4];
		unsigned failed_picks;
		int selected, last;
		size_t band_count, order_count;
		enum reason reason;
		int best;
	} rows[] = {
		{ "first", "", { 90, 50, 45, 10 }, { true }, 0, 1, 0, 2, 4, REASON_first, 50 },
		{ "was the choice", "n0", { 90, 50, 45, 10 }, { true }, 0, 1, 0, 2, 4, REASON_failover, 50 },
		{ "no challenger", "n2", { 90, 50, 45, 10 }, { true }, 0, 2, 0, 2, 4, REASON_held_by_hysteresis, 50 },
		{ "nor when the only other fails", "n1", { 90, 50, -1, -1 }, { true }, 2, 1, 0, 1, 2, REASON_best, 50 },
		{ "better than nobody",
		  "",
		  { 90, -1, -1, 80 },
		  { true, false, false, true },
		  0,
		  0,
		  3,
		  2,
		  2,
		  REASON_first,
		  90 },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct bench bench;

		init_bench(&bench, 4);
		set_scores(&bench, rows[i].scores);
		for (size_t j = 0; j < 4; j++)
			bench.inputs[j].weight_milli = rows[i].is_out[j] ? 0 : 1;
		snprintf(bench.memory.selected, sizeof(bench.memory.selected), "%s", rows[i].holder);
		bench.memory.failed_picks = rows[i].failed_picks;
		judge(&bench);
		if (bench.decision.selected != rows[i].selected || bench.decision.reason != rows[i].reason ||
		    bench.decision.band_count != rows[i].band_count)
			fail_msg("%s: %d, %s, %zu", rows[i].why, bench.decision.selected,
				 reason_names[bench.decision.reason], bench.decision.band_count);
		assert_int_equal(bench.decision.order_count, rows[i].order_count);
		assert_int_equal(bench.decision.order[rows[i].order_count - 1], rows[i].last);
		assert_int_equal(bench.decision.best_ppm, rows[i].best * (PPM / 100));
	}
}

static void init_worker(struct score_input *input, size_t index)
{
	memset(input, 0, sizeof(*input));
	snprintf(input->id, sizeof(input->id), "n%zu", index);
	input->weight_milli = 1000;
#define REPORT(name, help) input->report.name = REPORT_UNKNOWN;
#include "core/report_list.h"
#undef REPORT
	input->report.cpu_cores_milli = 8000;
	input->report.mem_limit_bytes = 8000;
	input->report.verified = 1;
	input->write_failure_ppm = input->in_flight = input->rt_mean_us = -1;
	input->joined_age_us = -1;
	input->score_before_ppm = -1;
}

static int64_t shaken(struct rng *rng, int64_t value)
{
	return value * 9 / 10 + (int64_t)rng_below(rng, (uint64_t)value / 5 + 1);
}

/* Whole road, metrics to choice: three alike whose metrics flap by 10 % either way. Ten minutes without one change; and the change when it is
 * overloaded, within a tick. */
static void test_flapping_metrics(void **state)
{
	const struct profile *kv = profile_builtin("kv");
	struct score_output outputs[3];
	const struct score_input *pointers[3];
	struct score_input inputs[3];
	struct judge_memory memory = { .selected = "" };
	struct decision decision;
	unsigned challenged_count = 0;
	int chosen = -1;
	struct rng rng;

	(void)state;
	for (uint64_t seed = 1; seed <= 20; seed++) {
		rng_seed(&rng, seed);
		memory = (struct judge_memory){ .selected = "" };
		for (size_t i = 0; i < 3; i++) {
			init_worker(&inputs[i], i);
			pointers[i] = &inputs[i];
		}
		for (unsigned tick = 0; tick < 300; tick++) {
			for (size_t i = 0; i < 3; i++) {
				inputs[i].report.cpu_busy_milli = shaken(&rng, 5000);
				inputs[i].report.rss_bytes = shaken(&rng, 5000);
				inputs[i].report.disk_queue_milli = shaken(&rng, 6000);
				inputs[i].p99_smooth_us = shaken(&rng, 100 * MSEC_US);
				inputs[i].age_us = (int64_t)rng_below(&rng, 5 * SEC_US);
			}
			score_set(kv, pointers, 3, outputs);
			judge_set(kv, &memory, TICK_US, pointers, outputs, 3, &decision);
			assert_int_equal(decision.is_changed, tick == 0);
			challenged_count += decision.reason == REASON_held_by_hysteresis ? 1 : 0;
			assert_int_equal(decision.band_count, 3);
			chosen = decision.selected;
		}
		inputs[chosen].report.cpu_busy_milli = 7500;
		score_set(kv, pointers, 3, outputs);
		judge_set(kv, &memory, TICK_US, pointers, outputs, 3, &decision);
		assert_true(decision.is_changed);
		assert_int_equal(decision.reason, REASON_best);
		assert_true(decision.selected != chosen);
	}
	/* It was the hysteresis that held them, not the want of a challenger. */
	assert_true(challenged_count > 20 * 100);
}

static void test_largest_set(void **state)
{
	struct score_input *inputs = must_zalloc(SCORE_SET_MAX, sizeof(*inputs));
	struct score_output *outputs = must_zalloc(SCORE_SET_MAX, sizeof(*outputs));
	const struct score_input *pointers[SCORE_SET_MAX];
	struct judge_memory memory = { .selected = "" };
	struct decision decision;

	(void)state;
	for (size_t i = 0; i < SCORE_SET_MAX; i++) {
		/* As long as an id may be. */
		snprintf(inputs[i].id, sizeof(inputs[i].id), "%064zu", i);
		pointers[i] = &inputs[i];
		outputs[i].may_serve = true;
		outputs[i].cap_ppm = PPM;
		outputs[i].score_ppm = (int64_t)(i * 7919 % SCORE_SET_MAX) + 1;
	}
	judge_set(profile_builtin("kv"), &memory, TICK_US, pointers, outputs, SCORE_SET_MAX, &decision);
	assert_int_equal(decision.order_count, SCORE_SET_MAX);
	for (size_t i = 0; i < SCORE_SET_MAX; i++)
		assert_int_equal(outputs[decision.order[i]].score_ppm, SCORE_SET_MAX - i);
	assert_int_equal(decision.band_count, 205);
	assert_string_equal(memory.selected, inputs[decision.selected].id);
	free(inputs);
	free(outputs);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_one_tick),
		cmocka_unit_test(test_order_and_band),
		cmocka_unit_test(test_order_of_input),
		cmocka_unit_test(test_time_is_bounded),
		cmocka_unit_test(test_flat),
		cmocka_unit_test(test_away),
		cmocka_unit_test(test_weight_zero),
		cmocka_unit_test(test_flapping_metrics),
		cmocka_unit_test(test_largest_set),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
