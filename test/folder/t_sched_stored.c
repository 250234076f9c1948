/* What was stored, asked for again: by whom, when, and what became of it in the final folder meanwhile. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sched_world.h"

/* No bytes to send, so it can be completed without a node's help. */
static const char folder_hollow[] = "heng-manifest 1\n"
				    "D 755 0 .\n"
				    "D 755 0 d\n"
				    "F 644 0 0 d/empty\n"
				    "L 777 0 empty d/l\n"
				    "end 4 0\n";

static void complete_hollow(char id[ULID_SIZE])
{
	int64_t deadline_us = clock_mono_us() + 20 * SEC_US;

	post("ann", "batch=hollow&source=h:/hollow", folder_hollow);
	expect_status(201);
	assert_true(str_copy(str_from(text_of("transfer_id")), id, ULID_SIZE));
	call_transfer("ann", "POST", id, "/digests", STR("2 " SHA_EMPTY "\n"));
	expect_status(200);
	call_transfer("ann", "POST", id, "/complete", STR_NONE);
	for (;;) {
		call_transfer("ann", "GET", id, "", STR_NONE);
		expect_status(200);
		if (strcmp(text_of("state"), "completed") == 0)
			return;
		if (clock_mono_us() > deadline_us)
			fail_msg("not completed: %s", answer.text);
	}
}

static void only_what_is_completed_is_given(void **state)
{
	char id[ULID_SIZE];

	(void)state;
	post_a(id);
	store_all_of_a(id);
	call_transfer("ann", "GET", id, "/manifest", STR_NONE);
	expect_error(409, "wrong_state");
	call_transfer("ann", "GET", id, "/files/1", STR_NONE);
	expect_error(409, "wrong_state");
}

static void only_ones_own_is_given(void **state)
{
	static const char *const readers[] = { "ann", "aud", "op" };
	char id[ULID_SIZE];

	(void)state;
	complete_hollow(id);
	for (size_t i = 0; i < COUNT_OF(readers); i++) {
		call_transfer(readers[i], "GET", id, "/manifest", STR_NONE);
		expect_status(200);
		assert_string_equal(answer.text, "heng-manifest 1\n"
						 "D 755 0 .\n"
						 "D 755 0 d\n"
						 "F 644 0 0 d/empty\n"
						 "# 2 " SHA_EMPTY "\n"
						 "L 777 0 empty d/l\n"
						 "end 4 0\n");
		call_transfer(readers[i], "GET", id, "/files/2", STR_NONE);
		expect_status(200);
		assert_string_equal(answer.text, "");
	}
	call_transfer("bob", "GET", id, "/manifest", STR_NONE);
	expect_error(404, "no_such_transfer");
	call_transfer("bob", "GET", id, "/files/2", STR_NONE);
	expect_error(404, "no_such_transfer");
	call_transfer("nobody", "GET", id, "/files/2", STR_NONE);
	expect_error(401, "unauthenticated");
}

static void only_files_are_given(void **state)
{
	static const char *const others[] = {
		"/files/0", "/files/1", "/files/3", "/files/4", "/files/x", "/files/-2", "/files/9223372036854775808"
	};
	char id[ULID_SIZE];

	(void)state;
	complete_hollow(id);
	for (size_t i = 0; i < COUNT_OF(others); i++) {
		call_transfer("ann", "GET", id, others[i], STR_NONE);
		expect_error(400, "bad_request");
	}
	const char *headers[] = { "X-Api-Key: key of ann", "Range: bytes=0-", NULL };
	char path[128];
	snprintf(path, sizeof(path), "/api/v1/transfers/%s/files/2", id);
	call_with("GET", path, headers, STR_NONE);
	expect_error(416, "range");
}

static void what_changed_is_not_given(void **state)
{
	char id[ULID_SIZE], path[128], other[128];

	(void)state;
	complete_hollow(id);
	snprintf(path, sizeof(path), "%s/final/hollow/d/empty", dir);
	assert_int_equal(fs_replace_file(path, STR("x"), 0644, NULL), 0);
	call_transfer("ann", "GET", id, "/files/2", STR_NONE);
	expect_error(500, "integrity");
	assert_int_equal(unlink(path), 0);
	call_transfer("ann", "GET", id, "/files/2", STR_NONE);
	expect_error(500, "integrity");
	assert_int_equal(symlink("/dev/null", path), 0);
	call_transfer("ann", "GET", id, "/files/2", STR_NONE);
	expect_error(500, "integrity");
	/* In a folder that took its place, as from a backup, what is the same is given, and nothing else; the manifest still says what was. */
	snprintf(path, sizeof(path), "%s/final/hollow", dir);
	snprintf(other, sizeof(other), "%s/moved", dir);
	assert_int_equal(rename(path, other), 0);
	assert_int_equal(mkdir(path, 0700), 0);
	call_transfer("ann", "GET", id, "/files/2", STR_NONE);
	expect_error(500, "integrity");
	snprintf(path, sizeof(path), "%s/final/hollow/d", dir);
	assert_int_equal(mkdir(path, 0700), 0);
	snprintf(path, sizeof(path), "%s/final/hollow/d/empty", dir);
	assert_int_equal(fs_replace_file(path, STR_NONE, 0644, NULL), 0);
	call_transfer("ann", "GET", id, "/files/2", STR_NONE);
	expect_status(200);
	snprintf(path, sizeof(path), "%s/final/hollow", dir);
	snprintf(other, sizeof(other), "%s/moved too", dir);
	assert_int_equal(rename(path, other), 0);
	call_transfer("ann", "GET", id, "/files/2", STR_NONE);
	expect_error(409, "wrong_state");
	call_transfer("ann", "GET", id, "/manifest", STR_NONE);
	expect_status(200);
	snprintf(path, sizeof(path), "%s/final/.heng/hollow.owner", dir);
	assert_int_equal(fs_replace_file(path, STR("01HZZZZZZZZZZZZZZZZZZZZZZZ\n1\n"), 0644, NULL), 0);
	call_transfer("ann", "GET", id, "/manifest", STR_NONE);
	expect_error(409, "wrong_state");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(only_what_is_completed_is_given, set_up, tear_down),
		cmocka_unit_test_setup_teardown(only_ones_own_is_given, set_up, tear_down),
		cmocka_unit_test_setup_teardown(only_files_are_given, set_up, tear_down),
		cmocka_unit_test_setup_teardown(what_changed_is_not_given, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
