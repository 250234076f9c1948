/* The contract of the metadata store, run over every driver: chunks that are wanted on two nodes. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "plug/store_world.h"

/* Two objects of two chunks, each chunk wanted on so many nodes. */
static void planned_copies(struct world *w, const char *id, unsigned copies)
{
	struct store_transfer t = transfer_make(id, id, 2, 2);
	struct store_plan *plan;

	t.copies = copies;
	plan = plan_rows(w, &t, 2);
	assert_int_equal(w->store->ops->plan_commit(&plan, &t, &w->err), 0);
}

static struct store_transfer transfer_of(struct world *w, const char *id)
{
	struct store_transfer t;

	assert_int_equal(w->store->ops->transfer_get(w->store, id, &t, &w->err), 0);
	return t;
}

static int move(struct world *w, const char *id, enum transfer_state state)
{
	struct store_transfer t = transfer_of(w, id);

	return w->store->ops->transfer_move(w->store, &t, state, "", true, 9, &w->err);
}

static void expect_nodes(struct world *w, uint64_t file_id, uint64_t chunk_index, enum chunk_state state,
			 const char *actual, const char *copy)
{
	struct store_chunk chunk = chunk_get(w, id_a, file_id, chunk_index);

	assert_int_equal(chunk.state, state);
	assert_string_equal(chunk.actual_node, actual);
	assert_string_equal(chunk.copy_node, copy);
	counters_agree(w, id_a);
}

static uint64_t reopened(struct world *w, uint64_t file_id, const char *node_id)
{
	uint64_t count = 99;

	assert_int_equal(
		w->store->ops->chunks_reopen(w->store, id_a, file_id, node_id, CHUNK_LOST, "gone", 5, &count, &w->err),
		0);
	counters_agree(w, id_a);
	return count;
}

static void test_receipts_of_two_nodes(void **state)
{
	static const struct {
		unsigned copies;
		const char *node, *digest;
		enum err_code result;
		const char *actual, *copy;
		unsigned copied_count;
	} rows[] = {
		{ 2, "n1", digest_1, ERR_NONE, "n1", "", 0 }, /* the same node's word again */
		{ 2, "n2", digest_1, ERR_NONE, "n1", "n2", 1 },
		{ 2, "n2", digest_1, ERR_NONE, "n1", "n2", 1 }, /* and again */
		{ 2, "n1", digest_1, ERR_NONE, "n1", "n2", 1 },
		{ 2, "n3", digest_1, ERR_NONE, "n1", "n2", 1 }, /* more than was asked for */
		{ 2, "n3", digest_2, ERR_DIGEST_CONFLICT, "n1", "n2", 1 },
		{ 1, "n2", digest_1, ERR_NONE, "n1", "", 0 },
		{ 0, "n2", digest_1, ERR_NONE, "n1", "", 0 },
		{ 2, "n2", digest_2, ERR_DIGEST_CONFLICT, "n1", "", 0 },
	};
	struct world *w = *state;
	unsigned before = 99;

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		bool is_new = i == 0 || rows[i].copies != before || i == COUNT_OF(rows) - 1;

		before = rows[i].copies;
		if (is_new) {
			assert_int_equal(tear_down(state), 0);
			*state = NULL;
			assert_int_equal(set_up(state), 0);
			w = *state;
			planned_copies(w, id_a, rows[i].copies);
			assert_int_equal(transfer_of(w, id_a).copies, rows[i].copies > 1 ? 2 : 1);
			assert_int_equal(give(w, receipt_make(id_a, 1, 0, digest_1, "n1")), ERR_NONE);
		}
		assert_int_equal(give(w, receipt_make(id_a, 1, 0, rows[i].digest, rows[i].node)), rows[i].result);
		expect_nodes(w, 1, 0, CHUNK_STORED, rows[i].actual, rows[i].copy);
		assert_int_equal(transfer_of(w, id_a).copied_chunk_count, rows[i].copied_count);
		assert_int_equal(transfer_of(w, id_a).stored_chunk_count, 1);
	}
}

/* In one batch, in either order, with another transfer's receipts between. */
static void test_one_batch(void **state)
{
	struct world *w = *state;
	struct store_receipt batch[5];

	planned_copies(w, id_a, 2);
	planned_copies(w, id_b, 1);
	batch[0] = receipt_make(id_a, 1, 0, digest_1, "n2");
	batch[1] = receipt_make(id_b, 1, 0, digest_1, "n2");
	batch[2] = receipt_make(id_a, 1, 0, digest_1, "n1");
	batch[3] = receipt_make(id_b, 1, 0, digest_1, "n1");
	batch[4] = receipt_make(id_a, 1, 0, digest_1, "n2");
	assert_int_equal(w->store->ops->receipts(w->store, batch, COUNT_OF(batch), &w->err), 0);
	for (size_t i = 0; i < COUNT_OF(batch); i++)
		assert_int_equal(batch[i].result, ERR_NONE);
	expect_nodes(w, 1, 0, CHUNK_STORED, "n2", "n1");
	counters_agree(w, id_b);
	assert_int_equal(transfer_of(w, id_a).copied_bytes, 100);
	assert_int_equal(transfer_of(w, id_b).copied_chunk_count, 0);
	reopen(w);
	expect_nodes(w, 1, 0, CHUNK_STORED, "n2", "n1");
}

static void store_all(struct world *w, const char *first, const char *second)
{
	for (uint64_t file_id = 1; file_id <= 2; file_id++) {
		for (uint64_t i = 0; i < 2; i++) {
			assert_int_equal(give(w, receipt_make(id_a, file_id, i, digest_1, first)), ERR_NONE);
			if (second)
				assert_int_equal(give(w, receipt_make(id_a, file_id, i, digest_1, second)), ERR_NONE);
		}
	}
}

static void test_a_lost_node_is_replaced_by_the_copy(void **state)
{
	struct world *w = *state;

	planned_copies(w, id_a, 2);
	store_all(w, "n1", "n2");
	assert_int_equal(reopened(w, 1, "n9"), 0);
	expect_nodes(w, 1, 0, CHUNK_STORED, "n1", "n2");
	/* One object only. */
	assert_int_equal(reopened(w, 1, "n1"), 0);
	expect_nodes(w, 1, 0, CHUNK_STORED, "n2", "");
	expect_nodes(w, 2, 0, CHUNK_STORED, "n1", "n2");
	/* The second copy goes, the first stays. */
	assert_int_equal(reopened(w, 2, "n2"), 0);
	expect_nodes(w, 2, 1, CHUNK_STORED, "n1", "");
	/* Both are gone. */
	assert_int_equal(reopened(w, 0, "n1"), 2);
	expect_nodes(w, 2, 1, CHUNK_LOST, "", "");
	assert_int_equal(give(w, receipt_make(id_a, 1, 0, digest_1, "n3")), ERR_NONE);
	expect_nodes(w, 1, 0, CHUNK_STORED, "n2", "n3");
	/* On whatever nodes: a kept copy would be of the wrong bytes. */
	assert_int_equal(reopened(w, 0, NULL), 2);
	expect_nodes(w, 1, 0, CHUNK_LOST, "", "");
	/* Other bytes are as good as any now. */
	assert_int_equal(give(w, receipt_make(id_a, 1, 0, digest_2, "n1")), ERR_NONE);
	expect_nodes(w, 1, 0, CHUNK_STORED, "n1", "");
}

static void test_an_operators_lost_node(void **state)
{
	struct world *w = *state;
	struct store_order order = { .node_id = "n2", .order = NODE_ORDER_LOST };
	uint64_t lost_count = 99;

	planned_copies(w, id_a, 2);
	store_all(w, "n1", NULL);
	/* One chunk has its copy on n2; another one only is there. */
	assert_int_equal(give(w, receipt_make(id_a, 1, 0, digest_1, "n2")), ERR_NONE);
	assert_int_equal(reopened(w, 2, NULL), 2);
	assert_int_equal(give(w, receipt_make(id_a, 2, 0, digest_1, "n2")), ERR_NONE);
	assert_int_equal(give(w, receipt_make(id_a, 2, 1, digest_1, "n2")), ERR_NONE);
	assert_int_equal(give(w, receipt_make(id_a, 2, 1, digest_1, "n3")), ERR_NONE);
	assert_int_equal(w->store->ops->order_save(w->store, &order, NULL, 7, &lost_count, &w->err), 0);
	assert_int_equal(lost_count, 1);
	expect_nodes(w, 1, 0, CHUNK_STORED, "n1", "");
	expect_nodes(w, 2, 0, CHUNK_LOST, "", "");
	expect_nodes(w, 2, 1, CHUNK_STORED, "n3", "");
}

static void test_merging_wants_all_copies_or_a_waiver(void **state)
{
	struct world *w = *state;
	const struct store_ops *ops = w->store->ops;

	planned_copies(w, id_a, 2);
	store_all(w, "n1", NULL);
	assert_int_equal(move(w, id_a, TRANSFER_MERGING), -ERR_INCOMPLETE);
	assert_non_null(strstr(w->err.text, "0 of 4 chunks have 2 copies"));
	assert_int_equal(ops->copies_set(w->store, id_a, 2, true, "no other node", 8, &w->err), 0);
	assert_true(transfer_of(w, id_a).is_copies_waived);
	assert_int_equal(move(w, id_a, TRANSFER_MERGING), 0);
	assert_int_equal(ops->copies_set(w->store, id_a, 1, false, "", 8, &w->err), -ERR_STATE);
	/* What goes back to uploading is to have its copies again. */
	assert_int_equal(move(w, id_a, TRANSFER_UPLOADING), 0);
	assert_false(transfer_of(w, id_a).is_copies_waived);
	assert_int_equal(move(w, id_a, TRANSFER_MERGING), -ERR_INCOMPLETE);
	store_all(w, "n1", "n2");
	assert_int_equal(move(w, id_a, TRANSFER_MERGING), 0);
	/* One copy is enough for a merge that has begun. */
	assert_int_equal(reopened(w, 0, "n1"), 0);
	assert_int_equal(move(w, id_a, TRANSFER_COMPLETED), 0);
	expect_nodes(w, 1, 0, CHUNK_MERGED, "n2", "");
}

static void test_copies_asked_for_later(void **state)
{
	struct world *w = *state;
	const struct store_ops *ops = w->store->ops;

	planned_copies(w, id_a, 1);
	store_all(w, "n1", "n2");
	assert_int_equal(ops->copies_set(w->store, id_a, 2, false, "", 8, &w->err), 0);
	assert_int_equal(move(w, id_a, TRANSFER_MERGING), -ERR_INCOMPLETE);
	store_all(w, "n3", NULL);
	expect_nodes(w, 1, 0, CHUNK_STORED, "n1", "n3");
	assert_int_equal(move(w, id_a, TRANSFER_MERGING), 0);
	assert_int_equal(ops->copies_set(w->store, id_none, 2, false, "", 8, &w->err), -ERR_NO_TRANSFER);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_receipts_of_two_nodes),
		CASE(test_one_batch),
		CASE(test_a_lost_node_is_replaced_by_the_copy),
		CASE(test_an_operators_lost_node),
		CASE(test_merging_wants_all_copies_or_a_waiver),
		CASE(test_copies_asked_for_later),
	};

	return drivers_run(tests, COUNT_OF(tests));
}
