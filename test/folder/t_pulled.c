#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "folder/pulled.h"

static const char one[] = "01ARZ3NDEKTSV4RRFFQ69G5FAV", other[] = "01ARZ3NDEKTSV4RRFFQ69G5FAW";

static struct pulled_who who(const char *transfer_id, const char *user, const char *from)
{
	struct pulled_who made;
	struct sock_addr addr;

	assert_int_equal(sock_addr_parse(from, &addr, NULL), 0);
	pulled_who_set(&made, transfer_id, user, &addr);
	return made;
}

static void test_one_row_a_pull(void **state)
{
	(void)state;
	struct pulled pulled;
	struct pulled_who a = who(one, "ann", "10.0.0.1:4000"), again = who(one, "ann", "10.0.0.1:4001");
	struct pulled_who others[] = { who(other, "ann", "10.0.0.1:4000"), who(one, "bob", "10.0.0.1:4000"),
				       who(one, "ann", "10.0.0.2:4000"), who(one, "ann", "[::1]:4000") };

	pulled_init(&pulled);
	assert_true(pulled_begins(&pulled, &a, 0));
	assert_false(pulled_begins(&pulled, &a, 1));
	/* Another connection of the same client. */
	assert_false(pulled_begins(&pulled, &again, 2));
	for (size_t i = 0; i < COUNT_OF(others); i++) {
		assert_true(pulled_begins(&pulled, &others[i], 3));
		assert_false(pulled_begins(&pulled, &others[i], 3));
	}
	/* The next pull asks for the manifest first. */
	pulled_ends(&pulled, &a);
	pulled_ends(&pulled, &a);
	assert_true(pulled_begins(&pulled, &again, 4));
	assert_false(pulled_begins(&pulled, &others[0], 4));
	/* Each request keeps a long pull alive; silence ends it. */
	assert_false(pulled_begins(&pulled, &a, 4 + PULLED_IDLE_US));
	assert_false(pulled_begins(&pulled, &a, 4 + 2 * PULLED_IDLE_US));
	assert_true(pulled_begins(&pulled, &a, 5 + 3 * PULLED_IDLE_US));
	assert_false(pulled_begins(&pulled, &a, 6 + 3 * PULLED_IDLE_US));
	pulled_fini(&pulled);
}

static void test_more_than_are_remembered(void **state)
{
	(void)state;
	struct pulled pulled;
	char user[32];

	pulled_init(&pulled);
	for (int i = 0; i <= PULLED_PULLS_MAX; i++) {
		snprintf(user, sizeof(user), "user%d", i);
		struct pulled_who each = who(one, user, "10.0.0.1:1");
		assert_true(pulled_begins(&pulled, &each, i));
	}
	/* Who has been silent for longest is forgotten: a row too many. */
	struct pulled_who first = who(one, "user0", "10.0.0.1:1"), last = who(one, user, "10.0.0.1:1");
	assert_false(pulled_begins(&pulled, &last, 100));
	assert_true(pulled_begins(&pulled, &first, 101));
	pulled_fini(&pulled);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_row_a_pull),
		cmocka_unit_test(test_more_than_are_remembered),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
