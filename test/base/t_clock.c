#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"

static void test_text(void **state UNUSED)
{
	static const struct {
		int64_t wall_us;
		const char *text;
	} ROWS[] = {
		{ 0, "1970-01-01T00:00:00.000Z" },
		{ 999, "1970-01-01T00:00:00.000Z" },
		{ 1000, "1970-01-01T00:00:00.001Z" },
		{ -1, "1969-12-31T23:59:59.999Z" },
		{ -SEC_US, "1969-12-31T23:59:59.000Z" },
		{ 1769846400123456, "2026-01-31T08:00:00.123Z" },
		{ 1709164800000000, "2024-02-29T00:00:00.000Z" },
		{ INT64_MAX, "294247-01-10T04:00:54.775Z" },
		{ INT64_MIN, "-290308-12-21T19:59:05.224Z" },
	};
	char text[CLOCK_TEXT_SIZE];

	for (size_t i = 0; i < COUNT_OF(ROWS); i++) {
		assert_ptr_equal(clock_text(ROWS[i].wall_us, text), text);
		assert_string_equal(text, ROWS[i].text);
	}
}

static void test_clocks(void **state UNUSED)
{
	int64_t before_us = clock_mono_us();

	for (int i = 0; i < 1000; i++) {
		int64_t now_us = clock_mono_us();

		assert_true(now_us >= before_us);
		before_us = now_us;
	}
	/* After 2025, before 2200: microseconds, not another unit. */
	assert_true(clock_wall_us() > 1735689600 * SEC_US && clock_wall_us() < 7258118400 * SEC_US);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_text),
		cmocka_unit_test(test_clocks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
