#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/rng.h"

static void test_seed_is_splitmix64(void **state UNUSED)
{
	static const uint64_t WANTED[4] = { 6457827717110365317U, 3203168211198807973U, 9817491932198370423U,
					    4593380528125082431U };
	struct rng rng;

	rng_seed(&rng, 1234567);
	assert_memory_equal(rng.state, WANTED, sizeof(WANTED));
}

static void test_sequence_is_xoshiro256starstar(void **state UNUSED)
{
	/* The authors' own code started with 1, 2, 3, 4 gives these. */
	static const uint64_t WANTED[] = { 11520, 0, 1509978240, 1215971899390074240U };
	struct rng rng = { .state = { 1, 2, 3, 4 } };

	for (size_t i = 0; i < COUNT_OF(WANTED); i++)
		assert_true(rng_u64(&rng) == WANTED[i]);
}

static void test_below(void **state UNUSED)
{
	static const uint64_t BOUNDS[] = { 1, 2, 3, 7, 1000, ((uint64_t)1 << 63) + 1, UINT64_MAX };
	unsigned counts[3] = { 0 };
	struct rng rng;

	rng_seed(&rng, 42);
	for (size_t i = 0; i < COUNT_OF(BOUNDS); i++) {
		for (int j = 0; j < 1000; j++)
			assert_true(rng_below(&rng, BOUNDS[i]) < BOUNDS[i]);
	}
	for (int i = 0; i < 30000; i++)
		counts[rng_below(&rng, 3)]++;
	for (size_t i = 0; i < COUNT_OF(counts); i++)
		assert_in_range(counts[i], 9700, 10300);
}

static void test_kernel(void **state UNUSED)
{
	unsigned char first[600], second[600];
	struct rng a, b;

	rng_secret(first, sizeof(first));
	rng_secret(second, sizeof(second));
	assert_memory_not_equal(first, second, sizeof(first));
	rng_secret(first, 0);
	rng_seed_kernel(&a);
	rng_seed_kernel(&b);
	assert_memory_not_equal(&a, &b, sizeof(a));
}

static void test_ulid_time(void **state UNUSED)
{
	static const struct {
		int64_t wall_us;
		const char *time;
	} ROWS[] = {
		{ -5, "0000000000" },
		{ 0, "0000000000" },
		{ 999, "0000000000" },
		{ 1000, "0000000001" },
		{ 31999, "000000000Z" },
		{ 32000, "0000000010" },
		{ 1469918176385000, "01ARYZ6S41" }, /* the specification's example */
		{ INT64_MAX, "7ZZZZZZZZZ" },
	};
	char ulid[ULID_SIZE], again[ULID_SIZE];

	for (size_t i = 0; i < COUNT_OF(ROWS); i++) {
		ulid_make(ROWS[i].wall_us, ulid);
		ulid_make(ROWS[i].wall_us, again);
		if (ROWS[i].wall_us != INT64_MAX)
			assert_memory_equal(ulid, ROWS[i].time, 10);
		assert_int_equal(strlen(ulid), 26);
		assert_true(ulid_is_valid(ulid, 26));
		assert_string_not_equal(ulid, again);
	}
}

static void test_ulid_order(void **state UNUSED)
{
	char before[ULID_SIZE], after[ULID_SIZE];

	ulid_make(1700000000000000, before);
	for (int64_t i = 1; i < 2000; i++) {
		ulid_make(1700000000000000 + i * 1000, after);
		assert_true(strcmp(before, after) < 0);
		memcpy(before, after, sizeof(before));
	}
}

static void test_ulid_validity(void **state UNUSED)
{
	static const char *const BAD[] = {
		"",
		"01ARYZ6S41TSV4RRFFQ69G5FA", /* 25 */
		"01ARYZ6S41TSV4RRFFQ69G5FAVX",
		"81ARYZ6S41TSV4RRFFQ69G5FAV", /* past 48 bits */
		"01aryz6s41tsv4rrffq69g5fav",
		"01ARYZ6S41TSV4RRFFQ69G5FAI",
		"01ARYZ6S41TSV4RRFFQ69G5FAL",
		"01ARYZ6S41TSV4RRFFQ69G5FAO",
		"01ARYZ6S41TSV4RRFFQ69G5FAU",
		"../../../../../etc/passwd0",
		"/1ARYZ6S41TSV4RRFFQ69G5FAV",
	};

	assert_true(ulid_is_valid("01ARYZ6S41TSV4RRFFQ69G5FAV", 26));
	assert_true(ulid_is_valid("7ZZZZZZZZZZZZZZZZZZZZZZZZZ", 26));
	for (size_t i = 0; i < COUNT_OF(BAD); i++) {
		if (ulid_is_valid(BAD[i], strlen(BAD[i])))
			fail_msg("'%s' is taken for a ULID", BAD[i]);
	}
	assert_false(ulid_is_valid("01ARYZ6S41TSV4RRFFQ69G5FA\0", 26));
	assert_false(ulid_is_valid("\0"
				   "1ARYZ6S41TSV4RRFFQ69G5FAV",
				   26));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_seed_is_splitmix64),
		cmocka_unit_test(test_sequence_is_xoshiro256starstar),
		cmocka_unit_test(test_below),
		cmocka_unit_test(test_kernel),
		cmocka_unit_test(test_ulid_time),
		cmocka_unit_test(test_ulid_order),
		cmocka_unit_test(test_ulid_validity),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
