/* Transfers that end before they have arrived: cancelled, or expired; and what becomes of their chunks, also after a crash. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sched_world.h"
#include "plug/store.h"

static void cancel_as(const char *user, const char *id) { call_transfer(user, "POST", id, "/cancel", STR_NONE); }

/* Until the node was asked to remove the transfer and no chunk of it counts as stored. */
static void await_cleaned(const char *id, uint64_t lost_count)
{
	int64_t deadline_us = clock_mono_us() + 20 * SEC_US;

	do {
		assert_true(clock_mono_us() < deadline_us);
		call_transfer("op", "GET", id, "", STR_NONE);
		expect_status(200);
	} while (atomic_load(&node.removed_count) == 0 || number_of("stored_chunks") > 0);
	assert_string_equal(text_of("state"), "failed");
	assert_int_equal(number_of("lost_chunks"), lost_count);
	assert_string_equal(node.removed_id, id);
}

static void open_store(struct store **ret_store)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/heng.db", dir);
	assert_int_equal(store_sqlite_open(path, ret_store, NULL), 0);
}

static void a_cancelled_transfer_ends(void **state)
{
	char id[ULID_SIZE];

	(void)state;
	post_a(id);
	give_receipt(id, 1, 0, 65536, ERR_NONE);
	assert_string_equal(answer.text, "ok\n");
	cancel_as("ann", id);
	expect_status(200);
	assert_string_equal(text_of("state"), "failed");
	assert_string_equal(text_of("reason"), "cancelled by ann");
	await_cleaned(id, 1);
	/* A client that still pushes hears why. */
	give_receipt(id, 1, 1, 1, ERR_NONE);
	assert_string_equal(answer.text, "wrong_state\n");
	call_transfer("ann", "POST", id, "/complete", STR_NONE);
	expect_error(409, "wrong_state");
	assert_non_null(strstr(text_of("message"), "cancelled by ann"));
	call_transfer("ann", "POST", id, "/digests", STR("0 " SHA_A "\n"));
	expect_error(409, "wrong_state");
	assert_non_null(strstr(text_of("message"), "cancelled by ann"));
	/* Again, by another: as it is. */
	cancel_as("op", id);
	expect_status(200);
	assert_string_equal(text_of("reason"), "cancelled by ann");
	assert_int_equal(atomic_load(&node.removed_count), 1);
	/* The batch is free. */
	post("ann", "batch=books&source=h:/a", folder_a);
	expect_status(201);
	assert_string_not_equal(text_of("transfer_id"), id);
}

static void who_may_cancel(void **state)
{
	char id[ULID_SIZE];

	(void)state;
	post_a(id);
	cancel_as("bob", id);
	expect_error(404, "no_such_transfer");
	cancel_as("aud", id);
	expect_error(403, "forbidden");
	cancel_as("nobody", id);
	expect_error(401, "unauthenticated");
	cancel_as("op", "01ARZ3NDEKTSV4RRFFQ69G5FAV");
	expect_error(404, "no_such_transfer");
	cancel_as("op", "x");
	expect_error(404, "no_such_transfer");
	call_transfer("ann", "GET", id, "", STR_NONE);
	assert_string_equal(text_of("state"), "uploading");
	cancel_as("op", id);
	expect_status(200);
	assert_string_equal(text_of("reason"), "cancelled by op");
}

static void what_has_arrived_stays(void **state)
{
	char id[ULID_SIZE];
	int64_t deadline_us = clock_mono_us() + 20 * SEC_US;

	(void)state;
	post("ann", "batch=empty", folder_empty);
	expect_status(201);
	assert_true(str_copy(str_from(text_of("transfer_id")), id, sizeof(id)));
	call_transfer("ann", "POST", id, "/complete", STR_NONE);
	expect_status(202);
	do {
		assert_true(clock_mono_us() < deadline_us);
		call_transfer("ann", "GET", id, "", STR_NONE);
	} while (strcmp(text_of("state"), "completed") != 0);
	cancel_as("ann", id);
	expect_error(409, "wrong_state");
	assert_non_null(strstr(text_of("message"), "completed"));
	assert_non_null(strstr(text_of("hint"), "/final/empty"));
}

/* Its chunks are wanted from a node that does not give them: it merges until that node counts as lost. */
static void what_is_merged_is_not_cancelled(void **state)
{
	struct store *store;
	struct store_transfer transfer;
	char id[ULID_SIZE];

	(void)state;
	post_a(id);
	store_all_of_a(id);
	pthread_mutex_lock(&node.lock);
	node.is_failing = true;
	pthread_mutex_unlock(&node.lock);
	await_node(false);
	open_store(&store);
	assert_int_equal(store->ops->transfer_get(store, id, &transfer, NULL), 0);
	assert_int_equal(store->ops->transfer_move(store, &transfer, TRANSFER_MERGING, "", true, 1, NULL), 0);
	cancel_as("ann", id);
	expect_error(409, "merging");
	assert_non_null(strstr(text_of("hint"), "heng status"));
	/* Given back, it can be. */
	assert_int_equal(store->ops->transfer_move(store, &transfer, TRANSFER_UPLOADING, "", true, 1, NULL), 0);
	store->ops->close(store);
	cancel_as("ann", id);
	expect_status(200);
}

/* As after kill -9 between the commit and the first word to a node. */
static void a_crash_before_the_cleaning(void **state)
{
	struct store *store;
	struct store_transfer transfer;
	char id[ULID_SIZE];

	(void)state;
	post_a(id);
	store_all_of_a(id);
	sched_stop(&sched);
	open_store(&store);
	assert_int_equal(store->ops->transfer_get(store, id, &transfer, NULL), 0);
	assert_int_equal(store->ops->transfer_move(store, &transfer, TRANSFER_FAILED, "cancelled by ann", false,
						   clock_wall_us(), NULL),
			 0);
	store->ops->close(store);
	assert_int_equal(atomic_load(&node.removed_count), 0);
	start_sched();
	await_cleaned(id, 3);
	assert_string_equal(text_of("reason"), "cancelled by ann");
}

/* A node that is away removes them by itself, later; nobody waits for it. */
static void a_node_that_is_away(void **state)
{
	char id[ULID_SIZE];
	int64_t deadline_us = clock_mono_us() + 20 * SEC_US;

	(void)state;
	post_a(id);
	store_all_of_a(id);
	pthread_mutex_lock(&node.lock);
	node.is_failing = true;
	pthread_mutex_unlock(&node.lock);
	await_node(false);
	cancel_as("ann", id);
	expect_status(200);
	do {
		assert_true(clock_mono_us() < deadline_us);
		call_transfer("op", "GET", id, "", STR_NONE);
	} while (number_of("lost_chunks") != 3);
}

static void one_that_stands_still_expires(void **state)
{
	char id[ULID_SIZE];
	int64_t deadline_us = clock_mono_us() + 20 * SEC_US;

	(void)state;
	sched_stop(&sched);
	transfer_expiry_us = 300 * MSEC_US;
	start_sched();
	transfer_expiry_us = 7 * 24 * 3600 * SEC_US;
	await_node(true);
	post_a(id);
	give_receipt(id, 1, 0, 65536, ERR_NONE);
	do {
		assert_true(clock_mono_us() < deadline_us);
		call_transfer("ann", "GET", id, "", STR_NONE);
	} while (strcmp(text_of("state"), "uploading") == 0);
	assert_string_equal(text_of("state"), "failed");
	assert_non_null(strstr(text_of("reason"), "expired: no progress since 20"));
	await_cleaned(id, 1);
	cancel_as("ann", id);
	expect_status(200);
	assert_non_null(strstr(text_of("reason"), "expired"));
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(a_cancelled_transfer_ends),     CASE(who_may_cancel),
		CASE(what_has_arrived_stays),        CASE(what_is_merged_is_not_cancelled),
		CASE(a_crash_before_the_cleaning),   CASE(a_node_that_is_away),
		CASE(one_that_stands_still_expires),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
