#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "core/robust.h"

#define MS_NS INT64_C(1000000)

static void test_first_answers(void **state)
{
	struct robust robust = ROBUST_INIT;

	(void)state;
	assert_int_equal(robust_read(&robust, -1, true, 0), -1);
	assert_int_equal(robust_read(&robust, 7 * MS_NS, true, 0), 7 * MS_NS);
	assert_int_equal(robust_stall(&robust, -1, 3600 * SEC_US), 0);
	robust_feed(&robust, 10 * MS_NS, -1, 0, SEC_US);
	assert_int_equal(robust_read(&robust, -1, false, SEC_US), 10 * MS_NS);
	/* Against peers the first answer counts, but not beyond eight times theirs; held up by a stall, twice. */
	robust = ROBUST_INIT;
	robust_feed(&robust, 500 * MS_NS, 10 * MS_NS, 0, 100 * SEC_US);
	assert_int_equal(robust_read(&robust, 10 * MS_NS, false, 100 * SEC_US), 80 * MS_NS);
	robust = ROBUST_INIT;
	robust_feed(&robust, 2000 * MS_NS, 10 * MS_NS, 2 * SEC_US, 100 * SEC_US);
	assert_int_equal(robust_read(&robust, 10 * MS_NS, false, 100 * SEC_US), 20 * MS_NS);
}

/* Answers of 10 ms each 5 ms, then the given ones: where the estimate stands. */
static int64_t after(const int64_t *answers_ms, size_t count, int64_t first_silence_us)
{
	struct robust robust = ROBUST_INIT;
	int64_t now_us = SEC_US;

	for (int i = 0; i < 200; i++, now_us += 5 * MSEC_US)
		robust_feed(&robust, 10 * MS_NS, 10 * MS_NS, 5 * MSEC_US, now_us);
	now_us += first_silence_us;
	for (size_t i = 0; i < count; i++) {
		int64_t silent_us = i == 0 ? first_silence_us : 100;

		robust_feed(&robust, answers_ms[i] * MS_NS, 10 * MS_NS, silent_us, now_us);
		now_us += 100;
	}
	return robust_read(&robust, 10 * MS_NS, false, now_us) / (MS_NS / 10);
}

static void test_freeze_is_not_slowness(void **state)
{
	static const int64_t frozen[] = { 2000, 1990, 1980, 1970, 1960, 1950 };
	static const int64_t slow[] = { 100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 100 };

	(void)state;
	/* Six answers that a freeze of two seconds held up leave the node within twice the usual (tenths of ms)... */
	assert_in_range(after(frozen, COUNT_OF(frozen), 2 * SEC_US), 100, 200);
	/* ...fourteen that are slow by themselves show it nearly as slow as it is. */
	assert_in_range(after(slow, COUNT_OF(slow), 5 * MSEC_US), 700, 1000);
}

static void test_fades_while_idle(void **state)
{
	struct robust robust = ROBUST_INIT;
	int64_t last_ns = 50 * MS_NS;

	(void)state;
	robust_feed(&robust, 50 * MS_NS, -1, 0, 0);
	for (int64_t now_us = 0; now_us <= 60 * SEC_US; now_us += SEC_US) {
		int64_t read_ns = robust_read(&robust, 10 * MS_NS, true, now_us);

		assert_true(read_ns <= last_ns);
		assert_true(read_ns >= 10 * MS_NS);
		/* With a request in flight the proof is awaited, not presumed. */
		assert_int_equal(robust_read(&robust, 10 * MS_NS, false, now_us), 50 * MS_NS);
		last_ns = read_ns;
	}
	assert_true(last_ns < 11 * MS_NS);
	/* A fast node does not grow slower by waiting. */
	assert_int_equal(robust_read(&robust, 90 * MS_NS, true, 60 * SEC_US), 50 * MS_NS);
	/* One fresh answer outweighs what is old. */
	robust_feed(&robust, 10 * MS_NS, 10 * MS_NS, 0, 60 * SEC_US);
	assert_in_range(robust_read(&robust, 10 * MS_NS, false, 60 * SEC_US), 10 * MS_NS, 11 * MS_NS);
}

static void test_stall(void **state)
{
	struct robust robust = ROBUST_INIT;

	(void)state;
	robust_feed(&robust, 10 * MS_NS, 10 * MS_NS, 0, SEC_US);
	assert_int_equal(robust_stall(&robust, 10 * MS_NS, 29 * MSEC_US), 0);
	assert_int_equal(robust_stall(&robust, 10 * MS_NS, 31 * MSEC_US), 1);
	assert_int_equal(robust_stall(&robust, 10 * MS_NS, 2 * SEC_US), 66);
	/* The usual of a slow node is its own, of a fast one its peers'. */
	assert_int_equal(robust_stall(&robust, 100 * MS_NS, 299 * MSEC_US), 0);
	assert_int_equal(robust_stall(&robust, 1 * MS_NS, 29 * MSEC_US), 0);
}

static void test_hostile_numbers(void **state)
{
	struct robust robust = ROBUST_INIT;

	(void)state;
	robust_feed(&robust, INT64_MAX, -1, INT64_MAX, 1);
	robust_feed(&robust, INT64_MAX, INT64_MAX / 2, INT64_MAX, 2);
	assert_true(robust_read(&robust, INT64_MAX / 2, true, INT64_MAX) >= 0);
	robust_feed(&robust, -5, -1, 0, 3);
	assert_true(robust_read(&robust, -1, false, 3) >= 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_first_answers),    cmocka_unit_test(test_freeze_is_not_slowness),
		cmocka_unit_test(test_fades_while_idle), cmocka_unit_test(test_stall),
		cmocka_unit_test(test_hostile_numbers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
