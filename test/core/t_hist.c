#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "core/hist.h"

static const uint32_t quantiles_ppm[] = { 0, 1, 100000, 500000, 900000, 990000, 999000, 1000000 };

static void test_buckets(void **state)
{
	static const struct {
		int64_t value_us;
		size_t bucket;
	} rows[] = {
		{ INT64_MIN, 0 },
		{ -1, 0 },
		{ 0, 0 },
		{ 1, 1 },
		{ 15, 15 },
		{ 16, 16 },
		{ 31, 31 },
		{ 32, 32 },
		{ 33, 32 },
		{ 34, 33 },
		{ 63, 47 },
		{ 64, 48 },
		{ HIST_VALUE_MAX_US, HIST_BUCKETS - 1 },
		{ HIST_VALUE_MAX_US + 1, HIST_BUCKETS - 1 },
		{ INT64_MAX, HIST_BUCKETS - 1 },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++)
		assert_int_equal(hist_bucket(rows[i].value_us), rows[i].bucket);
	/* The buckets leave no gap and do not overlap. */
	for (size_t i = 0; i < HIST_BUCKETS; i++) {
		assert_int_equal(hist_bucket(hist_bucket_floor_us(i)), i);
		if (i > 0)
			assert_int_equal(hist_bucket(hist_bucket_floor_us(i) - 1), i - 1);
	}
}

static void test_empty_and_odd(void **state)
{
	struct hist hist;

	(void)state;
	hist_init(&hist);
	for (size_t i = 0; i < COUNT_OF(quantiles_ppm); i++)
		assert_int_equal(hist_quantile_us(&hist, quantiles_ppm[i]), -1);
	assert_int_equal(hist_mean_us(&hist), -1);
	hist_feed(&hist, -5);
	assert_int_equal(hist_quantile_us(&hist, 990000), 0);
	assert_int_equal(hist_mean_us(&hist), 0);

	/* One sample is every quantile; a share above one is the greatest. */
	hist_init(&hist);
	hist_feed(&hist, 7);
	for (size_t i = 0; i < COUNT_OF(quantiles_ppm); i++)
		assert_int_equal(hist_quantile_us(&hist, quantiles_ppm[i]), 7);
	hist_feed(&hist, 9);
	assert_int_equal(hist_quantile_us(&hist, 2000000), 9);
	assert_int_equal(hist_quantile_us(&hist, 500000), 7);
	assert_int_equal(hist_quantile_us(&hist, 500001), 9);
	assert_int_equal(hist_mean_us(&hist), 8);
}

static void test_saturation(void **state)
{
	struct hist hist, other;

	(void)state;
	hist_init(&hist);
	hist_feed(&hist, INT64_MAX);
	assert_int_equal(hist.sum_us, HIST_VALUE_MAX_US);
	assert_true(hist_quantile_us(&hist, 500000) > HIST_VALUE_MAX_US / 32 * 31);

	/* A full bucket takes no more, and the total is what is in the buckets. */
	hist_init(&hist);
	hist.counts[3] = UINT32_MAX - 1;
	hist.total_count = UINT32_MAX - 1;
	hist.sum_us = (uint64_t)INT64_MAX - 4;
	hist_feed(&hist, 3);
	hist_feed(&hist, 3);
	assert_int_equal(hist.counts[3], UINT32_MAX);
	assert_int_equal(hist.total_count, UINT32_MAX);
	hist_feed(&hist, 5);
	assert_int_equal(hist.sum_us, INT64_MAX);
	assert_int_equal(hist.total_count, (uint64_t)UINT32_MAX + 1);
	other = hist;
	hist_merge(&other, &hist);
	assert_int_equal(other.counts[3], UINT32_MAX);
	assert_int_equal(other.counts[5], 2);
	assert_int_equal(other.total_count, (uint64_t)UINT32_MAX + 2);
	assert_int_equal(other.sum_us, INT64_MAX);
	assert_int_equal(hist_quantile_us(&other, 990000), 3);
	assert_int_equal(hist_quantile_us(&other, 1000000), 5);

	/* All buckets full. */
	for (size_t i = 0; i < HIST_BUCKETS; i++)
		other.counts[i] = UINT32_MAX;
	other.total_count = (uint64_t)UINT32_MAX * HIST_BUCKETS;
	assert_int_equal(hist_bucket(hist_quantile_us(&other, 1000000)), HIST_BUCKETS - 1);
	assert_int_equal(hist_bucket(hist_quantile_us(&other, 500000)), HIST_BUCKETS / 2 - 1);
}

static int by_value(const void *a, const void *b)
{
	int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;

	return (left > right) - (left < right);
}

/* Flat, spread over all magnitudes, and with a tail. */
static int64_t draw(struct rng *rng, unsigned shape)
{
	switch (shape) {
	case 0:
		return (int64_t)rng_below(rng, 200000);
	case 1:
		return (int64_t)rng_below(rng, (uint64_t)1 << (1 + rng_below(rng, 27)));
	default:
		return rng_below(rng, 50) == 0 ? 5 * SEC_US + (int64_t)rng_below(rng, 1000000)
					       : 800 + (int64_t)rng_below(rng, 400);
	}
}

static void test_quantiles_of_random_data(void **state)
{
	static int64_t values[5000];
	struct rng rng;

	(void)state;
	rng_seed(&rng, 20);
	for (unsigned round = 0; round < 60; round++) {
		size_t count = 1 + (size_t)rng_below(&rng, COUNT_OF(values));
		struct hist hist;
		int64_t sum_us = 0;

		hist_init(&hist);
		for (size_t i = 0; i < count; i++) {
			values[i] = draw(&rng, round % 3);
			sum_us += values[i];
			hist_feed(&hist, values[i]);
		}
		qsort(values, count, sizeof(values[0]), by_value);
		for (size_t i = 0; i < COUNT_OF(quantiles_ppm); i++) {
			size_t rank = (count * quantiles_ppm[i] + 999999) / 1000000;
			int64_t exact_us = values[rank == 0 ? 0 : rank - 1];
			int64_t off_us = hist_quantile_us(&hist, quantiles_ppm[i]) - exact_us;

			if (llabs(off_us) * 32 > exact_us)
				fail_msg("round %u, %u ppm of %zu: off by %lld of %lld", round, quantiles_ppm[i], count,
					 (long long)off_us, (long long)exact_us);
		}
		assert_int_equal(hist_mean_us(&hist), sum_us / (int64_t)count);
	}
}

static void test_merging_equals_feeding_all(void **state)
{
	struct hist parts[3], all, merged;
	struct rng rng;

	(void)state;
	rng_seed(&rng, 21);
	hist_init(&all);
	hist_init(&merged);
	for (size_t i = 0; i < COUNT_OF(parts); i++)
		hist_init(&parts[i]);
	for (size_t i = 0; i < 10000; i++) {
		int64_t value_us = draw(&rng, 1);

		hist_feed(&all, value_us);
		hist_feed(&parts[rng_below(&rng, 2)], value_us); /* the third stays empty */
	}
	for (size_t i = 0; i < COUNT_OF(parts); i++)
		hist_merge(&merged, &parts[i]);
	assert_memory_equal(&merged, &all, sizeof(all));
}

static void test_json(void **state)
{
	struct buf buf = BUF_INIT(MIB);
	struct hist hist;
	struct json json;

	(void)state;
	hist_init(&hist);
	hist_feed(&hist, 3);
	hist_feed(&hist, 3);
	hist_feed(&hist, HIST_VALUE_MAX_US);
	json_init(&json, &buf);
	json_open(&json, NULL);
	hist_json(&json, "latency", &hist);
	hist_init(&hist);
	hist_json(&json, "none", &hist);
	json_close(&json);
	assert_string_equal(buf_cstr(&buf), "{\"latency\":{\"sum_us\":268435461,\"buckets\":[[3,2],[399,1]]},"
					    "\"none\":{\"sum_us\":0,\"buckets\":[]}}");
	buf_fini(&buf);
}

static uint64_t seen_at(const struct hist_window *window, int64_t now_us)
{
	struct hist hist;

	hist_window_read(window, now_us, &hist);
	return hist.total_count;
}

/* One sample a slice: after ten slices one falls out with each further one. */
static void test_window_slices_fall_out_one_by_one(void **state)
{
	struct hist_window window;
	int64_t slice_us = 30 * SEC_US, begin_us = 1000 * SEC_US + 5;

	(void)state;
	hist_window_init(&window, HIST_SLICES * slice_us, begin_us);
	assert_int_equal(seen_at(&window, begin_us), 0);
	for (int64_t i = 0; i < 25; i++) {
		hist_window_feed(&window, 100, begin_us + i * slice_us);
		assert_int_equal(seen_at(&window, begin_us + i * slice_us), min_i64(i + 1, HIST_SLICES));
	}
	/* And without any. Reading changes nothing. */
	for (int64_t i = 1; i <= HIST_SLICES; i++) {
		assert_int_equal(seen_at(&window, begin_us + (24 + i) * slice_us), HIST_SLICES - i);
		assert_int_equal(seen_at(&window, begin_us + 24 * slice_us), HIST_SLICES);
	}
	assert_int_equal(seen_at(&window, INT64_MAX), 0);
}

static void test_window_odd_times(void **state)
{
	struct hist_window window;
	struct hist hist;

	(void)state;
	hist_window_init(&window, 1000, 0);
	hist_window_feed(&window, 1, 0);
	hist_window_feed(&window, 1, 99);
	hist_window_feed(&window, 1, 100);
	assert_int_equal(seen_at(&window, 999), 3);
	assert_int_equal(seen_at(&window, 1000), 1);
	assert_int_equal(seen_at(&window, 1100), 0);
	/* Back in time counts as now. */
	hist_window_feed(&window, 1, 950);
	hist_window_feed(&window, 1, 20);
	assert_int_equal(seen_at(&window, 0), 5);
	assert_int_equal(seen_at(&window, 1800), 2);
	/* A jump of exactly the window, of a little less, and far. */
	hist_window_feed(&window, 1, 1850);
	assert_int_equal(seen_at(&window, 1850), 3);
	hist_window_feed(&window, 1, 2850);
	assert_int_equal(seen_at(&window, 2850), 1);
	hist_window_feed(&window, 9, INT64_MAX);
	hist_window_read(&window, INT64_MAX, &hist);
	assert_int_equal(hist.total_count, 1);
	assert_int_equal(hist_quantile_us(&hist, 500000), 9);

	/* Times before the origin, and a window too short for its slices. */
	hist_window_init(&window, 3, -50);
	hist_window_feed(&window, 1, -50);
	assert_int_equal(seen_at(&window, -1), 1);
	assert_int_equal(seen_at(&window, 9), 1);
	assert_int_equal(seen_at(&window, 10), 0);
}

/* Whatever the times, the window holds what a list of samples says it must. */
static void test_window_against_a_list(void **state)
{
	static int64_t times[3000];
	struct hist_window window;
	struct rng rng;
	int64_t now_us = 12345;

	(void)state;
	rng_seed(&rng, 22);
	hist_window_init(&window, 1000, now_us);
	for (size_t count = 0; count < COUNT_OF(times); count++) {
		uint64_t expected = 0;

		now_us += (int64_t)rng_below(&rng, rng_below(&rng, 20) == 0 ? 2000 : 40);
		times[count] = now_us;
		hist_window_feed(&window, 5, now_us);
		for (size_t i = 0; i <= count; i++)
			expected += times[i] / 100 > now_us / 100 - HIST_SLICES;
		assert_int_equal(seen_at(&window, now_us), expected);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_buckets),
		cmocka_unit_test(test_empty_and_odd),
		cmocka_unit_test(test_saturation),
		cmocka_unit_test(test_quantiles_of_random_data),
		cmocka_unit_test(test_merging_equals_feeding_all),
		cmocka_unit_test(test_json),
		cmocka_unit_test(test_window_slices_fall_out_one_by_one),
		cmocka_unit_test(test_window_odd_times),
		cmocka_unit_test(test_window_against_a_list),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
