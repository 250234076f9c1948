/* Two copies: in which order the plan names nodes, and what it says of a chunk that has one copy. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sched_world.h"

static void register_in(const struct fake_node *from, const char *domain)
{
	char body[512];
	const char *headers[] = { internal_header, "Content-Type: application/json", NULL };

	snprintf(body, sizeof(body),
		 "{\"node_id\":\"%s\",\"addr\":\"%s\",\"incarnation\":\"%s\",\"weight_milli\":1000,\"domain\":\"%s\"}",
		 from->id, from->addr, from->incarnation, domain);
	call_with("POST", "/internal/v1/nodes/register", headers, str_from(body));
	expect_status(200);
}

static void expect_line(const char *id, const char *line)
{
	call_transfer("ann", "GET", id, "/plan", STR_NONE);
	expect_status(200);
	if (!strstr(answer.text, line))
		fail_msg("no line '%s' in: %s", line, answer.text);
}

/* n1 and n2 share a domain, n3 is elsewhere. */
static void plans_of_two_copies(void **state)
{
	struct fake_node second, third;
	char id[ULID_SIZE], first[8], next[8];
	int64_t deadline_us = clock_mono_us() + 20 * SEC_US;
	size_t seen = 0;

	(void)state;
	fake_start(&second, "n2", "second");
	fake_start(&third, "n3", "third");
	register_in(&node, "east");
	register_in(&second, "east");
	register_in(&third, "west");
	do {
		assert_true(clock_mono_us() < deadline_us);
		call_as("op", "GET", "/api/v1/nodes", STR_NONE);
	} while (strstr(answer.text, "\"takes_work\":false"));
	/* Several, as the ring may happen to have the right order. */
	for (unsigned i = 0; i < 8; i++) {
		char query[64];

		snprintf(query, sizeof(query), "batch=books%u&copies=2", i);
		post("ann", query, folder_a);
		expect_status(201);
		assert_true(str_copy(str_from(text_of("transfer_id")), id, ULID_SIZE));
		call_transfer("ann", "GET", id, "/plan", STR_NONE);
		for (const char *at = answer.text; (at = strstr(at, " pending - ")) != NULL; seen++) {
			at += strlen(" pending - ");
			assert_int_equal(sscanf(at, "%7s %7s", first, next), 2);
			assert_true((strcmp(first, "n3") == 0) != (strcmp(next, "n3") == 0));
		}
		/* Stored once: never the holder, the other domain first. */
		give_receipt(id, 2, 0, 1, ERR_NONE);
		expect_line(id, "C 2 0 1 copy " SHA_A " n3 n2\n");
	}
	assert_int_equal(seen, 8 * 3);
	receipt_node = "n3";
	give_receipt(id, 2, 0, 1, ERR_NONE);
	receipt_node = "n1";
	expect_line(id, "C 2 0 1 stored " SHA_A " n1 n3 n2\n");
	/* The others have one copy still. */
	store_all_of_a(id);
	call_transfer("ann", "POST", id, "/digests", STR("1 " SHA_A "\n3 " SHA_A "\n4 " SHA_EMPTY "\n"));
	expect_status(200);
	call_transfer("ann", "POST", id, "/complete", STR_NONE);
	expect_error(409, "incomplete");
	assert_non_null(strstr(text_of("message"), "2 of 3 chunks are on one node only"));
	fake_stop(&second);
	fake_stop(&third);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(plans_of_two_copies, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
