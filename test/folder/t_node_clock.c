#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "folder/node_clock.h"

#define HOUR_US (3600 * SEC_US)

static void test_offsets(void **state)
{
	static const struct {
		int64_t server_us, trip_us, now_us, wanted_offset_us;
	} rows[] = {
		{ 1000 * SEC_US, 0, 1000 * SEC_US, 0 },
		/* Within what the trip leaves open. */
		{ 1000 * SEC_US, 2 * SEC_US, 1000 * SEC_US, 0 },
		{ 1000 * SEC_US, 0, 1000 * SEC_US + 90 * MSEC_US, 0 },
		{ 1000 * SEC_US, 0, 1000 * SEC_US + 110 * MSEC_US, -110 * MSEC_US },
		/* The answer was a second on its way. */
		{ 1010 * SEC_US, 2 * SEC_US, 1000 * SEC_US, 11 * SEC_US },
		{ 1010 * SEC_US, 0, 1000 * SEC_US, 10 * SEC_US },
		{ 2 * HOUR_US, 0, HOUR_US, HOUR_US },
		{ HOUR_US, 0, 2 * HOUR_US, -HOUR_US },
		/* No times: what was known stays. */
		{ 0, 0, HOUR_US, -HOUR_US },
		{ -5, 0, HOUR_US, -HOUR_US },
		{ INT64_MAX, 0, HOUR_US, -HOUR_US },
		{ 3 * HOUR_US, -1, HOUR_US, -HOUR_US },
		/* The machine's clock was set. */
		{ 2 * HOUR_US, 0, 2 * HOUR_US, 0 },
	};
	struct node_clock clock = { 0 };

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		node_clock_feed(&clock, rows[i].server_us, rows[i].trip_us, rows[i].now_us);
		assert_int_equal(atomic_load(&clock.offset_us), rows[i].wanted_offset_us);
	}
}

static void test_time_told(void **state)
{
	struct node_clock clock = { 0 };
	const int64_t before_us = clock_wall_us();

	(void)state;
	assert_true(node_clock_wall_us(&clock) >= before_us);
	assert_true(node_clock_wall_us(&clock) < before_us + HOUR_US);
	node_clock_feed(&clock, before_us + 2 * HOUR_US, 0, before_us);
	assert_true(node_clock_wall_us(&clock) >= before_us + 2 * HOUR_US);
}

/* The log speaks when the clocks part, when they part further, and when they agree again: not with each report. */
static void test_said_once(void **state)
{
	static const struct {
		int64_t offset_us, told_us;
	} rows[] = {
		{ 4 * SEC_US, 0 },
		{ 6 * SEC_US, 6 * SEC_US },
		{ 7 * SEC_US, 6 * SEC_US },
		{ 12 * SEC_US, 12 * SEC_US },
		{ -HOUR_US, -HOUR_US },
		{ -HOUR_US - SEC_US, -HOUR_US },
		{ SEC_US, 0 },
	};
	struct node_clock clock = { 0 };

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		node_clock_feed(&clock, 5 * HOUR_US + rows[i].offset_us, 0, 5 * HOUR_US);
		assert_int_equal(clock.told_us, rows[i].told_us);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_offsets),
		cmocka_unit_test(test_time_told),
		cmocka_unit_test(test_said_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
