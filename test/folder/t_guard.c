#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "folder/guard.h"

#define NOW_US (1000 * SEC_US)

static bool is_open(struct guard *guard, const struct sock_addr *from, int64_t now_us, int64_t *ret_wait_us)
{
	bool is_counted;
	const bool is_one = guard_begin(guard, from, now_us, ret_wait_us, &is_counted);

	if (is_counted)
		guard_passed(guard, from);
	return is_one;
}

/* Who fails often waits; who never failed does not, whatever others do, and memory stays what it is. */
static void test_guard(void **state)
{
	struct guard *guard = must_zalloc(1, sizeof(*guard));
	struct sock_addr bad, good, near, other;
	int64_t wait_us;

	(void)state;
	guard_init(guard);
	assert_int_equal(sock_addr_parse("192.0.2.1:1000", &bad, NULL), 0);
	assert_int_equal(sock_addr_parse("[2001:db8::1]:1", &good, NULL), 0);
	assert_int_equal(sock_addr_parse("[2001:db8::2]:2", &near, NULL), 0);
	for (unsigned i = 0; i < GUARD_ADDRESS_BURST; i++) {
		assert_true(is_open(guard, &bad, NOW_US, &wait_us));
		guard_failed(guard, &bad, NOW_US);
	}
	assert_false(is_open(guard, &bad, NOW_US, &wait_us));
	assert_int_equal(wait_us, GUARD_ADDRESS_EVERY_US);
	/* Another port is the same caller. */
	assert_int_equal(sock_addr_parse("192.0.2.1:1001", &bad, NULL), 0);
	assert_false(is_open(guard, &bad, NOW_US + GUARD_ADDRESS_EVERY_US - 1, &wait_us));
	assert_int_equal(wait_us, 1);
	assert_true(is_open(guard, &bad, NOW_US + GUARD_ADDRESS_EVERY_US, &wait_us));
	assert_true(is_open(guard, &good, NOW_US, &wait_us));
	/* All together have spent all: whoever has failed once waits, whoever has not does not. */
	guard_failed(guard, &near, NOW_US);
	guard_failed(guard, &near, NOW_US); /* twice, so that none of the others takes its place */
	for (unsigned i = 0; i < 4 * GUARD_TOTAL_BURST; i++) {
		char text[SOCK_TEXT_SIZE];

		snprintf(text, sizeof(text), "10.1.%u.%u:9", i / 256, i % 256);
		assert_int_equal(sock_addr_parse(text, &other, NULL), 0);
		guard_failed(guard, &other, NOW_US);
	}
	assert_false(is_open(guard, &good, NOW_US, &wait_us)); /* of one network with the one that failed */
	assert_int_equal(wait_us, GUARD_TOTAL_EVERY_US);
	assert_true(is_open(guard, &good, NOW_US + GUARD_TOTAL_EVERY_US, &wait_us));
	assert_int_equal(sock_addr_parse("198.51.100.7:9", &other, NULL), 0);
	assert_true(is_open(guard, &other, NOW_US, &wait_us));
	guard_fini(guard);
	free(guard);
}

/* Many that begin before the first has ended are no more than one after the other, once one of them has failed. */
static void test_many_at_once(void **state)
{
	struct guard *guard = must_zalloc(1, sizeof(*guard));
	struct sock_addr from;
	int64_t wait_us;
	bool is_counted;

	(void)state;
	guard_init(guard);
	assert_int_equal(sock_addr_parse("192.0.2.1:1000", &from, NULL), 0);
	for (unsigned i = 0; i < 3 * GUARD_ADDRESS_BURST; i++) {
		assert_true(guard_begin(guard, &from, NOW_US, &wait_us, &is_counted));
		assert_false(is_counted);
	}
	guard_failed(guard, &from, NOW_US);
	for (unsigned i = 1; i < GUARD_ADDRESS_BURST; i++) {
		assert_true(guard_begin(guard, &from, NOW_US, &wait_us, &is_counted));
		assert_true(is_counted);
	}
	assert_false(guard_begin(guard, &from, NOW_US, &wait_us, &is_counted));
	assert_false(is_counted);
	assert_int_equal(wait_us, GUARD_ADDRESS_EVERY_US);
	/* One of them was a good key: there is room for another. */
	guard_passed(guard, &from);
	assert_true(guard_begin(guard, &from, NOW_US, &wait_us, &is_counted));
	assert_false(guard_begin(guard, &from, NOW_US, &wait_us, &is_counted));
	guard_fini(guard);
	free(guard);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_guard), cmocka_unit_test(test_many_at_once) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
