#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/bucket.h"

static void begins_empty_and_fills_by_the_clock(void **state UNUSED)
{
	struct bucket bucket;

	bucket_init(&bucket, 1000000, 5000);
	assert_int_equal(bucket_take(&bucket, 100, 5000), 0);
	assert_int_equal(bucket_wait_us(&bucket, 100, 5000), 100);
	assert_int_equal(bucket_take(&bucket, 100, 5040), 40);
	assert_int_equal(bucket_take(&bucket, 100, 5040), 0);
	assert_int_equal(bucket_take(&bucket, 10, 5140), 10);
	assert_int_equal(bucket_take(&bucket, 1000, 5140), 90);
}

/* A pause of any length, also one near the end of time, leaves a quarter of a second of the rate. */
static void holds_no_more_than_a_burst(void **state UNUSED)
{
	static const int64_t PAUSES_US[] = { 250000, 250001, 3600 * SEC_US, INT64_MAX };
	struct bucket bucket;

	for (size_t i = 0; i < COUNT_OF(PAUSES_US); i++) {
		bucket_init(&bucket, 8 * MIB, 0);
		assert_int_equal(bucket_take(&bucket, UINT64_MAX, PAUSES_US[i]), 2 * MIB);
		assert_int_equal(bucket_take(&bucket, UINT64_MAX, PAUSES_US[i]), 0);
	}
	bucket_init(&bucket, BUCKET_RATE_MAX_BYTES, 0);
	assert_int_equal(bucket_take(&bucket, UINT64_MAX, INT64_MAX), 256 * GIB);
}

static void a_clock_that_goes_back_gives_nothing(void **state UNUSED)
{
	struct bucket bucket;

	bucket_init(&bucket, 1000000, 1000);
	assert_int_equal(bucket_take(&bucket, 50, 1050), 50);
	assert_int_equal(bucket_take(&bucket, 50, 900), 0);
	assert_int_equal(bucket_take(&bucket, 50, 1050), 0);
	assert_int_equal(bucket_take(&bucket, 50, 1060), 10);
}

/* Asked each microsecond for less than one byte's worth, nothing is lost in rounding. */
static void is_exact_however_often_it_is_asked(void **state UNUSED)
{
	static const uint64_t RATES_BYTES[] = { 4096, 4097, 999983, 20 * MIB, 3 * GIB + 7 };

	for (size_t i = 0; i < COUNT_OF(RATES_BYTES); i++) {
		struct bucket bucket;
		uint64_t taken_bytes = 0;

		bucket_init(&bucket, RATES_BYTES[i], 0);
		for (int64_t now_us = 0; now_us <= 2 * SEC_US; now_us += 1 + now_us % 7)
			taken_bytes += bucket_take(&bucket, UINT64_MAX, now_us);
		taken_bytes += bucket_take(&bucket, UINT64_MAX, 2 * SEC_US);
		assert_int_equal(taken_bytes, 2 * RATES_BYTES[i]);
	}
}

/* Whoever waits as long as it was told gets what it wanted, and a microsecond earlier would not have. */
static void waits_are_just_long_enough(void **state UNUSED)
{
	static const struct {
		uint64_t rate_bytes, want_bytes, gets_bytes;
	} ROWS[] = {
		{ 4096, 1, 1 },
		{ 4096, 1024, 1024 },
		{ 4096, 1025, 1024 }, /* more than a burst: as much as that holds */
		{ 4097, UINT64_MAX, 1024 },
		{ 1000003, 777, 777 },
		{ 20 * MIB, 400 * KIB, 400 * KIB },
		{ BUCKET_RATE_MAX_BYTES, MIB, MIB },
	};

	for (size_t i = 0; i < COUNT_OF(ROWS); i++) {
		struct bucket bucket;
		int64_t wait_us;

		bucket_init(&bucket, ROWS[i].rate_bytes, 0);
		wait_us = bucket_wait_us(&bucket, ROWS[i].want_bytes, 0);
		assert_true(wait_us > 0);
		assert_true(bucket_wait_us(&bucket, ROWS[i].want_bytes, wait_us - 1) == 1);
		assert_int_equal(bucket_wait_us(&bucket, ROWS[i].want_bytes, wait_us), 0);
		assert_int_equal(bucket_take(&bucket, ROWS[i].want_bytes, wait_us), ROWS[i].gets_bytes);
	}
	struct bucket bucket;
	bucket_init(&bucket, 4096, 0);
	assert_int_equal(bucket_wait_us(&bucket, 0, 0), 0);
}

static void what_is_given_back_can_be_taken(void **state UNUSED)
{
	struct bucket bucket;

	bucket_init(&bucket, 4096, 0);
	assert_int_equal(bucket_take(&bucket, 1024, 250000), 1024);
	bucket_give_back(&bucket, 1000);
	assert_int_equal(bucket_take(&bucket, 1024, 250000), 1000);
	/* Never above a burst. */
	bucket_give_back(&bucket, UINT64_MAX);
	assert_int_equal(bucket_take(&bucket, UINT64_MAX, 250000), 1024);
}

static void rates_are_kept_within_limits(void **state UNUSED)
{
	struct bucket bucket;

	bucket_init(&bucket, 0, 0);
	assert_int_equal(bucket.rate_bytes, BUCKET_RATE_MIN_BYTES);
	bucket_init(&bucket, UINT64_MAX, 0);
	assert_int_equal(bucket.rate_bytes, BUCKET_RATE_MAX_BYTES);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(begins_empty_and_fills_by_the_clock),
		cmocka_unit_test(holds_no_more_than_a_burst),
		cmocka_unit_test(a_clock_that_goes_back_gives_nothing),
		cmocka_unit_test(is_exact_however_often_it_is_asked),
		cmocka_unit_test(waits_are_just_long_enough),
		cmocka_unit_test(what_is_given_back_can_be_taken),
		cmocka_unit_test(rates_are_kept_within_limits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
