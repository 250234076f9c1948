/* The contract of the metadata store, run over every driver: chunks that a node does not have any more. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "plug/store_world.h"

static void lose_in(struct world *w, enum transfer_state state, const struct store_chunk *chunks, size_t count,
		    uint64_t lost, uint64_t kept)
{
	uint64_t lost_count = 99, kept_count = 99;

	assert_int_equal(w->store->ops->chunks_lose(w->store, id_a, state, "n1", chunks, count, "gone", 7000,
						    &lost_count, &kept_count, &w->err),
			 0);
	assert_int_equal(lost_count, lost);
	assert_int_equal(kept_count, kept);
	counters_agree(w, id_a);
}

static void lose(struct world *w, const struct store_chunk *chunks, size_t count, uint64_t lost, uint64_t kept)
{
	lose_in(w, TRANSFER_UPLOADING, chunks, count, lost, kept);
}

static void planned_copies(struct world *w, unsigned copies)
{
	struct store_transfer t = transfer_make(id_a, "q3", 1, 4);
	struct store_plan *plan;

	t.copies = copies;
	plan = plan_rows(w, &t, 4);
	assert_int_equal(w->store->ops->plan_commit(&plan, &t, &w->err), 0);
}

/* Each row of what was read is compared with what is stored now. */
static void test_only_what_is_stored_as_given(void **state)
{
	struct world *w = *state;
	struct store_chunk chunks[4], old, chunk;

	planned_copies(w, 1);
	for (uint64_t i = 0; i < 3; i++)
		assert_int_equal(give(w, receipt_make(id_a, 1, i, digest_1, i == 2 ? "n2" : "n1")), ERR_NONE);
	for (uint64_t i = 0; i < 4; i++)
		chunks[i] = chunk_get(w, id_a, 1, i);
	lose(w, chunks, 0, 0, 0);
	/* Given again since it was read. */
	old = chunks[0];
	old.updated_wall_us--;
	lose(w, &old, 1, 0, 0);
	old = chunks[0];
	copy_text(old.digest, sizeof(old.digest), digest_2);
	lose(w, &old, 1, 0, 0);
	/* One of the node's, one of another's, one that never came; twice. */
	lose(w, &chunks[1], 3, 1, 0);
	lose(w, &chunks[1], 3, 0, 0);
	chunk = chunk_get(w, id_a, 1, 1);
	assert_int_equal(chunk.state, CHUNK_LOST);
	assert_string_equal(chunk.actual_node, "");
	assert_string_equal(chunk.digest, "");
	assert_int_equal(chunk.updated_wall_us, 7000);
	assert_int_equal(chunk_get(w, id_a, 1, 0).state, CHUNK_STORED);
	assert_int_equal(chunk_get(w, id_a, 1, 2).state, CHUNK_STORED);
	/* It may come again, from anywhere. */
	assert_int_equal(give(w, receipt_make(id_a, 1, 1, digest_2, "n3")), ERR_NONE);
	counters_agree(w, id_a);
}

/* What was found missing is sent again meanwhile, to the node that had it, whatever its clock says. */
static void test_not_what_was_stored_again(void **state)
{
	struct world *w = *state;
	struct store_chunk chunks[2];
	struct store_receipt early = receipt_make(id_a, 1, 0, digest_1, "n1");

	planned_copies(w, 2);
	for (uint64_t i = 0; i < 2; i++) {
		assert_int_equal(give(w, receipt_make(id_a, 1, i, digest_1, "n1")), ERR_NONE);
		assert_int_equal(give(w, receipt_make(id_a, 1, i, digest_1, "n2")), ERR_NONE);
		chunks[i] = chunk_get(w, id_a, 1, i);
	}
	early.finished_wall_us = 1;
	assert_int_equal(give(w, early), ERR_NONE);
	assert_int_equal(give(w, receipt_make(id_a, 1, 1, digest_1, "n2")), ERR_NONE);
	lose(w, chunks, 2, 0, 0);
	/* A third node's word says nothing of the other two. */
	for (uint64_t i = 0; i < 2; i++) {
		chunks[i] = chunk_get(w, id_a, 1, i);
		assert_int_equal(give(w, receipt_make(id_a, 1, i, digest_1, "n3")), ERR_NONE);
	}
	lose(w, chunks, 2, 0, 2);
}

static void test_a_copy_elsewhere_keeps_it(void **state)
{
	struct world *w = *state;
	struct store_chunk chunks[3], chunk;

	planned_copies(w, 2);
	for (uint64_t i = 0; i < 3; i++) {
		assert_int_equal(give(w, receipt_make(id_a, 1, i, digest_1, i == 1 ? "n2" : "n1")), ERR_NONE);
		if (i < 2)
			assert_int_equal(give(w, receipt_make(id_a, 1, i, digest_1, i == 1 ? "n1" : "n2")), ERR_NONE);
		chunks[i] = chunk_get(w, id_a, 1, i);
	}
	/* The first copy, the second, the only one. */
	lose(w, chunks, 3, 1, 2);
	for (uint64_t i = 0; i < 2; i++) {
		chunk = chunk_get(w, id_a, 1, i);
		assert_int_equal(chunk.state, CHUNK_STORED);
		assert_string_equal(chunk.actual_node, "n2");
		assert_string_equal(chunk.copy_node, "");
		assert_string_equal(chunk.digest, digest_1);
	}
	assert_int_equal(chunk_get(w, id_a, 1, 2).state, CHUNK_LOST);
}

static void test_only_in_the_state_that_is_meant(void **state)
{
	struct world *w = *state;
	struct store_transfer t;
	struct store_chunk chunk, other;
	uint64_t lost_count, kept_count;

	planned_copies(w, 1);
	for (uint64_t i = 0; i < 4; i++)
		assert_int_equal(give(w, receipt_make(id_a, 1, i, digest_1, "n1")), ERR_NONE);
	chunk = chunk_get(w, id_a, 1, 0);
	other = chunk_get(w, id_a, 1, 1);
	lose_in(w, TRANSFER_MERGING, &chunk, 1, 0, 0);
	assert_int_equal(w->store->ops->transfer_get(w->store, id_a, &t, &w->err), 0);
	assert_int_equal(w->store->ops->transfer_move(w->store, &t, TRANSFER_MERGING, "", true, 9, &w->err), 0);
	lose(w, &chunk, 1, 0, 0);
	lose_in(w, TRANSFER_MERGING, &other, 1, 1, 0);
	assert_int_equal(w->store->ops->transfer_move(w->store, &t, TRANSFER_UPLOADING, "", true, 9, &w->err), 0);
	lose(w, &chunk, 1, 1, 0);
	assert_int_equal(w->store->ops->chunks_lose(w->store, id_none, TRANSFER_UPLOADING, "n1", &chunk, 1, "gone", 7,
						    &lost_count, &kept_count, &w->err),
			 -ERR_NO_TRANSFER);
	assert_int_equal(lost_count + kept_count, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_only_what_is_stored_as_given),
		CASE(test_not_what_was_stored_again),
		CASE(test_a_copy_elsewhere_keeps_it),
		CASE(test_only_in_the_state_that_is_meant),
	};

	return drivers_run(tests, COUNT_OF(tests));
}
