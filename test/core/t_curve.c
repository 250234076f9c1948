#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "core/curve.h"

#define TAU_US (10 * SEC_US)

/* e^-x for x >= 0 by its own series, halved until it is quick: the reference that the integers are held against. */
static double reference_exp(double x)
{
	double sum = 1, term = 1;

	if (x > 0.5) {
		double half = reference_exp(x / 2);

		return half * half;
	}
	for (int i = 1; i < 20; i++) {
		term *= -x / i;
		sum += term;
	}
	return sum;
}

static void test_exp(void **state)
{
	static const int64_t taus_us[] = { 1, 7, 1000, TAU_US, 60 * SEC_US + 1, INT64_MAX / 30 };

	(void)state;
	assert_int_equal(curve_exp_ppm(0, TAU_US), PPM);
	assert_int_equal(curve_exp_ppm(-1, TAU_US), PPM);
	assert_int_equal(curve_exp_ppm(INT64_MIN, TAU_US), PPM);
	assert_int_equal(curve_exp_ppm(0, 0), PPM);
	assert_int_equal(curve_exp_ppm(1, 0), 0);
	assert_int_equal(curve_exp_ppm(1, -5), 0);
	assert_int_equal(curve_exp_ppm(INT64_MAX, 1), 0);
	assert_int_equal(curve_exp_ppm(TAU_US, TAU_US), 367879);
	for (size_t i = 0; i < COUNT_OF(taus_us); i++) {
		for (int64_t step = 0; step <= 6000; step++) {
			int64_t elapsed_us = (int64_t)((__int128)taus_us[i] * step / 300);
			double exact = reference_exp((double)elapsed_us / (double)taus_us[i]) * PPM;
			double off = (double)curve_exp_ppm(elapsed_us, taus_us[i]) - exact;

			if (off > 1 || off < -1)
				fail_msg("e^-(%lld/%lld) is off by %f ppm", (long long)elapsed_us,
					 (long long)taus_us[i], off);
		}
	}
}

static void test_exp_never_rises(void **state)
{
	int64_t before = PPM;

	(void)state;
	/* Every step of a fine grid: the rows of the table, and the halvings, meet within it. */
	for (int64_t elapsed_us = 0; elapsed_us < 3000000; elapsed_us++) {
		int64_t now = curve_exp_ppm(elapsed_us, 100003);

		if (now > before)
			fail_msg("rises from %lld to %lld at %lld", (long long)before, (long long)now,
				 (long long)elapsed_us);
		before = now;
	}
	assert_int_equal(before, 0);
}

static void test_ewma(void **state)
{
	static const struct {
		int64_t old, sample, elapsed_us, expected;
	} rows[] = {
		{ -1, -1, SEC_US, -1 },
		{ -1, 70, SEC_US, 70 },
		{ -1, 70, 0, 70 },
		{ 70, -1, SEC_US, 70 },
		{ 70, 90, 0, 70 },
		{ 70, 90, -5, 70 },
		{ 1000000, 0, TAU_US, 367879 },
		{ 0, 1000000, TAU_US, 632121 },
		{ 70, 70, TAU_US, 70 },
		{ 5, 1000, 100 * TAU_US, 1000 },
		{ INT64_MAX, 0, TAU_US, 3393088949000000000 }, /* no overflow */
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		int64_t got = curve_ewma(rows[i].old, rows[i].sample, rows[i].elapsed_us, TAU_US);

		if (llabs(got - rows[i].expected) > rows[i].expected / 1000000)
			fail_msg("row %zu: %lld", i, (long long)got);
	}
	/* Many small steps come to the same as one. */
	int64_t value = 1000000000;
	for (int i = 0; i < 1000; i++)
		value = curve_ewma(value, 0, TAU_US / 1000, TAU_US);
	assert_in_range(value, 367879441 - 40000, 367879441 + 40000);
}

static void test_peak(void **state)
{
	struct curve_peak peak = CURVE_PEAK_INIT;

	(void)state;
	assert_int_equal(curve_peak_read(&peak, TAU_US, 5), -1);
	curve_peak_feed(&peak, 1000000, TAU_US, 100);
	assert_int_equal(curve_peak_read(&peak, TAU_US, 100), 1000000);
	assert_int_equal(curve_peak_read(&peak, TAU_US, 50), 1000000);
	/* Falls while nothing comes. */
	assert_in_range(curve_peak_read(&peak, TAU_US, 100 + TAU_US), 367878, 367880);
	assert_int_equal(curve_peak_read(&peak, TAU_US, 100 + 100 * TAU_US), 0);
	/* A greater one counts at once, at whatever time. */
	curve_peak_feed(&peak, 3000000, TAU_US, 90);
	assert_int_equal(peak.cost_ns, 3000000);
	assert_int_equal(peak.stamp_us, 100);
	/* A lower one by its weight: 3 ms * e^-1 + 1 ms * (1 - e^-1). */
	curve_peak_feed(&peak, 1000000, TAU_US, 100 + TAU_US);
	assert_in_range(peak.cost_ns, 1735757, 1735760);
	/* At the same instant it has none. */
	curve_peak_feed(&peak, 0, TAU_US, 100 + TAU_US);
	assert_in_range(peak.cost_ns, 1735757, 1735760);
	/* Below 0 is 0, and a first sample below 0 is one. */
	peak = CURVE_PEAK_INIT;
	curve_peak_feed(&peak, -7, TAU_US, 0);
	assert_int_equal(curve_peak_read(&peak, TAU_US, 0), 0);
}

/* A hundred thousand and a million samples a second forget a peak as fast as ten do. */
static void test_peak_under_many_samples(void **state)
{
	static const int64_t gaps_us[] = { 100000, 1000, 10, 1 };

	(void)state;
	for (size_t i = 0; i < COUNT_OF(gaps_us); i++) {
		struct curve_peak peak = CURVE_PEAK_INIT;

		curve_peak_feed(&peak, 5000000, TAU_US, 0);
		for (int64_t now_us = gaps_us[i]; now_us <= TAU_US; now_us += gaps_us[i])
			curve_peak_feed(&peak, 100000, TAU_US, now_us);
		/* 0.1 ms + 4.9 ms * e^-1 */
		assert_in_range(curve_peak_read(&peak, TAU_US, TAU_US), 1902609 - 20000, 1902609 + 20000);
	}
}

static const struct curve_decay decay = {
	.life_us = 9 * SEC_US, .step_us = 5 * SEC_US, .factor_ppm = 900000, .zero_below_ppm = 50000
};

static void test_decay(void **state)
{
	static const struct {
		int64_t age_us, expected_ppm;
	} rows[] = {
		{ -1, 0 },
		{ 0, 1000000 },
		{ 3 * SEC_US, 1000000 }, /* one lost report */
		{ 6 * SEC_US, 1000000 },
		{ 9 * SEC_US, 1000000 },
		{ 14 * SEC_US - 1, 1000000 },
		{ 14 * SEC_US, 900000 },
		{ 19 * SEC_US - 1, 900000 },
		{ 19 * SEC_US, 810000 },
		{ 24 * SEC_US, 729000 },
		{ (9 + 5 * 10) * SEC_US, 348678 },
		{ (9 + 5 * 28) * SEC_US, 52331 }, /* the last above 0.05 */
		{ (9 + 5 * 29) * SEC_US - 1, 52331 },
		{ (9 + 5 * 29) * SEC_US, 0 },
		{ INT64_MAX, 0 },
	};
	struct curve_decay odd = decay;
	int64_t before = PPM;

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		int64_t got = curve_decay_ppm(&decay, rows[i].age_us);

		if (llabs(got - rows[i].expected_ppm) > 10)
			fail_msg("age %lld: %lld", (long long)rows[i].age_us, (long long)got);
	}
	for (int64_t age_us = 0; age_us < 200 * SEC_US; age_us += 1000) {
		assert_true(curve_decay_ppm(&decay, age_us) <= before);
		before = curve_decay_ppm(&decay, age_us);
	}
	/* At the mark is not below it. */
	odd.factor_ppm = 500000;
	odd.zero_below_ppm = 250000;
	assert_int_equal(curve_decay_ppm(&odd, 19 * SEC_US), 250000);
	assert_int_equal(curve_decay_ppm(&odd, 24 * SEC_US), 0);
	/* However slow, it ends; without a factor it does not decay; without a step it does at once. */
	odd.zero_below_ppm = 0;
	odd.factor_ppm = 999999;
	assert_int_equal(curve_decay_ppm(&odd, INT64_MAX), 0);
	odd.factor_ppm = PPM;
	assert_int_equal(curve_decay_ppm(&odd, INT64_MAX), PPM);
	odd.factor_ppm = 0;
	assert_int_equal(curve_decay_ppm(&odd, 14 * SEC_US), 0);
	odd.factor_ppm = 900000;
	odd.step_us = 0;
	assert_int_equal(curve_decay_ppm(&odd, 9 * SEC_US + 1), 0);
}

static const struct curve_warmup warmup = {
	.hold_us = 300 * SEC_US,
	.step_us = 30 * SEC_US,
	.start_ppm = 400000,
	.step_ppm = 100000,
	.unverified_ppm = 500000,
	.fast_progress_ppm = 800000,
};

static void test_warmup(void **state)
{
	static const struct {
		const char *why;
		int64_t age_us, progress_ppm;
		bool is_verified, was_ever_verified;
		int64_t expected_ppm;
	} rows[] = {
		{ "established", -1, -1, false, false, 1000000 },
		{ "new", 0, -1, false, false, 400000 },
		{ "new, most of its data there: five minutes all the same", 299 * SEC_US, 1000000, false, false,
		  400000 },
		{ "the end of five minutes", 300 * SEC_US, -1, false, true, 400000 },
		{ "a step that is not complete", 330 * SEC_US - 1, 0, false, true, 400000 },
		{ "one step", 330 * SEC_US, 0, false, true, 500000 },
		{ "two", 360 * SEC_US, -1, false, true, 600000 },
		{ "exactly 80 % is not over", 360 * SEC_US, 800000, false, true, 600000 },
		{ "twice as fast", 360 * SEC_US, 800001, false, true, 800000 },
		{ "a fast step", 315 * SEC_US, 900000, false, true, 500000 },
		{ "not complete", 315 * SEC_US - 1, 900000, false, true, 400000 },
		{ "the end, slow", 480 * SEC_US, -1, false, true, 1000000 },
		{ "just before", 480 * SEC_US - 1, -1, false, true, 900000 },
		{ "the end, fast", 390 * SEC_US, 810000, false, true, 1000000 },
		{ "never verified: one step", 330 * SEC_US, 0, false, false, 500000 },
		{ "and no more", 480 * SEC_US, 0, false, false, 500000 },
		{ "for ever", INT64_MAX, 1000000, false, false, 500000 },
		{ "verified: at once", 1, 0, true, true, 1000000 },
		{ "verified now, whatever was told before", 1, -1, true, false, 1000000 },
		{ "for ever, verified once", INT64_MAX, -1, false, true, 1000000 },
	};
	struct curve_warmup odd = warmup;

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		int64_t got = curve_warmup_ppm(&warmup, rows[i].age_us, rows[i].progress_ppm, rows[i].is_verified,
					       rows[i].was_ever_verified);

		if (got != rows[i].expected_ppm)
			fail_msg("%s: %lld", rows[i].why, (long long)got);
	}
	odd.start_ppm = 0;
	assert_int_equal(curve_warmup_ppm(&odd, 0, -1, false, false), PPM);
	odd = warmup;
	odd.step_us = 0;
	odd.step_ppm = INT64_MAX;
	assert_int_equal(curve_warmup_ppm(&odd, INT64_MAX, PPM, false, true), PPM);
}

/* Recovering is asked anew each tick, so that it ends in the tick in which the data is verified, and begins again when it no longer is. */
static void test_recovering_ends(void **state)
{
	int64_t verified_at_us = 500 * SEC_US, lost_at_us = 600 * SEC_US, joined_us = 0;

	(void)state;
	for (int64_t now_us = 0; now_us < 700 * SEC_US; now_us += 2 * SEC_US) {
		bool is_verified = now_us >= verified_at_us && now_us < lost_at_us;
		bool is_recovering;

		if (now_us == lost_at_us)
			joined_us = now_us;
		is_recovering = curve_warmup_ppm(&warmup, now_us - joined_us, 100000, is_verified,
						 now_us >= verified_at_us) < PPM;
		assert_int_equal(is_recovering, !is_verified);
	}
}

static void test_slow_start(void **state)
{
	const struct curve_start hold = { .hold_us = 30 * SEC_US, .floor_ppm = 100000 };
	const struct curve_start ramp = { .hold_us = 10 * SEC_US, .ramp_us = 20 * SEC_US, .floor_ppm = 100000 };
	const struct curve_start none = { .hold_us = 30 * SEC_US, .floor_ppm = PPM };
	const struct curve_start far = { .hold_us = 0, .ramp_us = INT64_MAX, .floor_ppm = 0 };
	const struct {
		const struct curve_start *start;
		int64_t age_us, expected_ppm;
	} rows[] = {
		{ &hold, -1, 1000000 },
		{ &hold, 0, 100000 },
		{ &hold, 30 * SEC_US - 1, 100000 },
		{ &hold, 30 * SEC_US, 1000000 },
		{ &hold, INT64_MAX, 1000000 },
		{ &ramp, 10 * SEC_US, 100000 },
		{ &ramp, 20 * SEC_US, 550000 },
		{ &ramp, 30 * SEC_US - 1, 999999 },
		{ &ramp, 30 * SEC_US, 1000000 },
		{ &none, 0, 1000000 },
		{ &far, INT64_MAX - 1, 999999 },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++)
		assert_int_equal(curve_start_ppm(rows[i].start, rows[i].age_us), rows[i].expected_ppm);
}

static void test_backoff(void **state)
{
	static const struct {
		unsigned attempt;
		int64_t base_us, cap_us, ceiling_us;
	} rows[] = {
		{ 0, 100, 1000, 100 },
		{ 1, 100, 1000, 200 },
		{ 3, 100, 1000, 800 },
		{ 4, 100, 1000, 1000 },
		{ 62, 1, INT64_MAX, (int64_t)1 << 62 },
		{ 62, 2, INT64_MAX, INT64_MAX },
		{ 63, 1, 50, 50 },
		{ UINT32_MAX, 100, 1000, 1000 },
		{ 0, 100, 7, 7 },
		{ 3, 0, 1000, 0 },
		{ 3, -4, 1000, 0 },
		{ 3, 100, 0, 0 },
		{ 3, 100, -1, 0 },
	};
	struct rng rng;

	(void)state;
	rng_seed(&rng, 23);
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		int64_t least = INT64_MAX, most = -1;

		for (int j = 0; j < 2000; j++) {
			int64_t got = curve_backoff_us(rows[i].attempt, rows[i].base_us, rows[i].cap_us, &rng);

			least = min_i64(least, got);
			most = max_i64(most, got);
		}
		/* Full jitter: anything between, and nothing beyond. */
		assert_true(least >= 0 && most <= rows[i].ceiling_us);
		assert_true(least <= rows[i].ceiling_us / 50 && most >= rows[i].ceiling_us - rows[i].ceiling_us / 50);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_exp),
		cmocka_unit_test(test_exp_never_rises),
		cmocka_unit_test(test_ewma),
		cmocka_unit_test(test_peak),
		cmocka_unit_test(test_peak_under_many_samples),
		cmocka_unit_test(test_decay),
		cmocka_unit_test(test_warmup),
		cmocka_unit_test(test_recovering_ends),
		cmocka_unit_test(test_slow_start),
		cmocka_unit_test(test_backoff),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
