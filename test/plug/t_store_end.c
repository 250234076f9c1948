/* The contract of the metadata store, run over every driver: which transfers stand still, and which failed ones are not cleaned up. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "plug/store_world.h"

struct ids {
	char text[512]; /* the last letter of each id that came */
	size_t count, stop_at;
};

static int id_keep(void *owner, const struct store_transfer *transfer)
{
	struct ids *ids = owner;

	ids->text[ids->count++] = transfer->id[ULID_SIZE - 2];
	ids->text[ids->count] = '\0';
	return ids->count == ids->stop_at;
}

static void expect_idle(struct world *w, int64_t before_wall_us, size_t limit, const char *expected)
{
	struct ids ids = { .text = "" };

	assert_int_equal(w->store->ops->transfers_idle(w->store, before_wall_us, limit, id_keep, &ids, &w->err), 0);
	assert_string_equal(ids.text, expected);
}

static void expect_uncleaned(struct world *w, const char *after_id, size_t limit, const char *expected)
{
	struct ids ids = { .text = "" };

	assert_int_equal(w->store->ops->transfers_uncleaned(w->store, after_id, limit, id_keep, &ids, &w->err), 0);
	assert_string_equal(ids.text, expected);
}

static void planned_at(struct world *w, const char *id, const char *batch, int64_t updated_wall_us)
{
	struct store_transfer t = transfer_make(id, batch, 1, 2);
	struct store_plan *plan;

	t.updated_wall_us = updated_wall_us;
	plan = plan_rows(w, &t, 2);
	assert_int_equal(w->store->ops->plan_commit(&plan, &t, &w->err), 0);
}

static void move(struct world *w, const char *id, enum transfer_state state, int64_t now_wall_us)
{
	struct store_transfer t;

	assert_int_equal(w->store->ops->transfer_get(w->store, id, &t, &w->err), 0);
	assert_int_equal(w->store->ops->transfer_move(w->store, &t, state, "", false, now_wall_us, &w->err), 0);
}

static void test_idle_are_those_without_progress(void **state)
{
	struct world *w = *state;
	struct ids first = { .text = "", .stop_at = 1 };
	struct store_transfer t;

	expect_idle(w, INT64_MAX, 9, "");
	planned_at(w, id_a, "q3", 2000);
	planned_at(w, id_b, "q4", 1500);
	/* The longest idle first; strictly before. */
	expect_idle(w, 1500, 9, "");
	expect_idle(w, 1501, 9, "B");
	expect_idle(w, 2000, 9, "B");
	expect_idle(w, 2001, 9, "BA");
	expect_idle(w, 2001, 1, "B");
	expect_idle(w, 2001, 0, "");
	assert_int_equal(w->store->ops->transfers_idle(w->store, 2001, 9, id_keep, &first, &w->err), 0);
	assert_string_equal(first.text, "B");
	/* A note is no progress. A stored chunk is, at the clock's time; its repeat, and an attempt that failed, are not. */
	assert_int_equal(w->store->ops->transfer_note(w->store, id_b, "waits", &w->err), 0);
	expect_idle(w, 2001, 9, "BA");
	assert_int_equal(give(w, receipt_make(id_b, 1, 0, digest_1, "n1")), ERR_NONE);
	expect_idle(w, 2001, 9, "A");
	assert_int_equal(w->store->ops->transfer_get(w->store, id_b, &t, &w->err), 0);
	expect_idle(w, t.updated_wall_us + 1, 9, "AB");
	assert_int_equal(give(w, receipt_make(id_b, 1, 0, digest_1, "n1")), ERR_NONE);
	expect_idle(w, t.updated_wall_us + 1, 9, "AB");
	reopen(w);
	expect_idle(w, t.updated_wall_us + 1, 9, "AB");
}

static void test_idle_are_only_those_being_sent(void **state)
{
	struct world *w = *state;

	planned_at(w, id_a, "q3", 1000);
	move(w, id_a, TRANSFER_FAILED, 1001);
	planned_at(w, id_b, "q4", 1000);
	assert_int_equal(give(w, receipt_make(id_b, 1, 0, digest_1, "n1")), ERR_NONE);
	assert_int_equal(give(w, receipt_make(id_b, 1, 1, digest_1, "n1")), ERR_NONE);
	move(w, id_b, TRANSFER_MERGING, 1002);
	expect_idle(w, INT64_MAX, 9, "");
	/* Back from the merge: that is a change of state, whose time counts. */
	move(w, id_b, TRANSFER_UPLOADING, 3000);
	expect_idle(w, 3000, 9, "");
	expect_idle(w, 3001, 9, "B");
	move(w, id_b, TRANSFER_MERGING, 3001);
	move(w, id_b, TRANSFER_COMPLETED, 3002);
	expect_idle(w, INT64_MAX, 9, "");
	expect_uncleaned(w, "", 9, "");
}

static void test_uncleaned_until_no_chunk_counts_as_stored(void **state)
{
	struct world *w = *state;
	const struct store_ops *ops = w->store->ops;
	uint64_t count = 0;

	planned_at(w, id_b, "q4", 1000);
	planned_at(w, id_a, "q3", 1000);
	assert_int_equal(give(w, receipt_make(id_a, 1, 0, digest_1, "n1")), ERR_NONE);
	assert_int_equal(give(w, receipt_make(id_b, 1, 0, digest_1, "n1")), ERR_NONE);
	assert_int_equal(give(w, receipt_make(id_b, 1, 1, digest_1, "n2")), ERR_NONE);
	expect_uncleaned(w, "", 9, "");
	move(w, id_a, TRANSFER_FAILED, 2000);
	expect_uncleaned(w, "", 9, "A");
	move(w, id_b, TRANSFER_FAILED, 2000);
	expect_uncleaned(w, "", 9, "AB");
	expect_uncleaned(w, "", 1, "A");
	expect_uncleaned(w, id_a, 9, "B");
	expect_uncleaned(w, id_b, 9, "");
	reopen(w);
	ops = w->store->ops;
	assert_int_equal(ops->chunks_reopen(w->store, id_b, 0, "n1", CHUNK_LOST, "gone", 5, &count, &w->err), 0);
	assert_int_equal(count, 1);
	expect_uncleaned(w, "", 9, "AB");
	assert_int_equal(ops->chunks_reopen(w->store, id_b, 0, NULL, CHUNK_LOST, "gone", 5, &count, &w->err), 0);
	assert_int_equal(count, 1);
	expect_uncleaned(w, "", 9, "A");
	counters_agree(w, id_b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_idle_are_those_without_progress),
		CASE(test_idle_are_only_those_being_sent),
		CASE(test_uncleaned_until_no_chunk_counts_as_stored),
	};

	return drivers_run(tests, COUNT_OF(tests));
}
