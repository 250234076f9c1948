/* What the scheduler answers while its nodes have not said what they hold, and what they tell that they remove. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sched_world.h"
#include "folder/removed.h"

static atomic_bool is_gate_open;

/* Not for ever, so that a test that fails meanwhile ends. */
static void wait_at_gate(void *owner UNUSED)
{
	for (const int64_t until_us = clock_mono_us() + 10 * SEC_US;
	     !atomic_load(&is_gate_open) && clock_mono_us() < until_us; usleep(1000))
		;
}

static void plan_of(const char *id) { call_transfer("ann", "GET", id, "/plan?after_file=0&after_chunk=0", STR_NONE); }

/* Two of three chunks are known to the tables; the third is on the node. Whoever asks before it could tell is to ask again. */
static void old_transfers_wait_for_the_first_inventory(void **state)
{
	char id[ULID_SIZE], young[ULID_SIZE];

	(void)state;
	post_a(id);
	give_receipt(id, 1, 0, 65536, ERR_NONE);
	give_receipt(id, 2, 0, 1, ERR_NONE);
	plan_of(id);
	expect_status(200);
	sched_stop(&sched);
	pthread_mutex_lock(&node.lock);
	snprintf(node.start_id, sizeof(node.start_id), "life");
	node.held = "1 0 65536 sha256:" SHA_A "\n1 1 1 sha256:" SHA_A "\n2 0 1 sha256:" SHA_A "\nN 0\n";
	node.before_held = wait_at_gate;
	pthread_mutex_unlock(&node.lock);
	atomic_store(&is_gate_open, false);
	start_sched();
	plan_of(id);
	expect_error(503, "busy");
	assert_int_equal(answer.retry_after_us, SEC_US);
	call_transfer("ann", "POST", id, "/complete", STR_NONE);
	expect_error(503, "busy");
	/* One that is younger than the scheduler's start has nothing that could be unknown. */
	await_node(true);
	post("ann", "batch=young&source=h:/y", folder_b);
	expect_status(201);
	assert_true(str_copy(str_from(text_of("transfer_id")), young, sizeof(young)));
	plan_of(young);
	expect_status(200);
	call_transfer("ann", "POST", young, "/complete", STR_NONE);
	expect_error(409, "incomplete");
	atomic_store(&is_gate_open, true);
	for (const int64_t until_us = clock_mono_us() + 20 * SEC_US;;) {
		plan_of(id);
		if (answer.status == 200)
			break;
		expect_error(503, "busy");
		assert_true(clock_mono_us() < until_us);
	}
	assert_null(strstr(answer.text, "pending"));
	call_transfer("ann", "GET", id, "", STR_NONE);
	assert_int_equal(number_of("stored_chunks"), 3);
	call_transfer("ann", "POST", id, "/complete", STR_NONE);
	expect_error(409, "incomplete");
	assert_non_null(strstr(text_of("message"), "digest"));
}

static void tell_removed(const char *query, struct str body)
{
	const char *headers[] = { internal_header, NULL };
	char path[256];

	snprintf(path, sizeof(path), "/internal/v1/removed%s", query);
	call_with("POST", path, headers, body);
}

static void removals_are_written_down(void **state)
{
	static const char over[] = "over 01ARZ3NDEKTSV4RRFFQ69G5FAV\n";
	struct buf many = BUF_INIT(MIB);

	(void)state;
	tell_removed("?node=n1",
		     STR("over 01ARZ3NDEKTSV4RRFFQ69G5FAV\nstray 01ARZ3NDEKTSV4RRFFQ69G5FAV 1 2 3\nunfinished 4\n"));
	expect_status(200);
	assert_int_equal(number_of("recorded"), 3);
	tell_removed("?node=n1", STR_NONE);
	expect_status(200);
	assert_int_equal(number_of("recorded"), 0);
	/* Nothing of what is not understood; from nobody else. */
	tell_removed("?node=n1", STR("over 01ARZ3NDEKTSV4RRFFQ69G5FAV\nall\n"));
	expect_error(400, "bad_request");
	tell_removed("", str_from(over));
	expect_error(400, "bad_request");
	tell_removed("?node=a%20b", str_from(over));
	expect_error(400, "bad_request");
	call_as("op", "POST", "/internal/v1/removed?node=n1", str_from(over));
	expect_error(401, "unauthenticated");
	for (unsigned i = 0; i <= REMOVED_LINES_MAX; i++)
		buf_append_c(&many, over);
	tell_removed("?node=n1", buf_str(&many));
	expect_error(413, "limit");
	buf_fini(&many);
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(old_transfers_wait_for_the_first_inventory),
		CASE(removals_are_written_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
