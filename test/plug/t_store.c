/* The contract of the metadata store, run over every driver. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <malloc.h>
#include <stdio.h>
#include <string.h>

#include "plug/store_world.h"

/* ---- planning ---- */

static void test_plan_shows_only_when_committed(void **state)
{
	struct world *w = *state;
	struct store_transfer t = transfer_make(id_a, "q3", 2, 3), got;
	struct store_plan *plan = plan_rows(w, &t, 3);

	assert_int_equal(w->store->ops->transfer_get(w->store, id_a, &got, &w->err), -ERR_NO_TRANSFER);
	assert_int_equal(w->store->ops->plan_commit(&plan, &t, &w->err), 0);
	assert_int_equal(w->store->ops->transfer_get(w->store, id_a, &got, &w->err), 0);
	assert_int_equal(got.state, TRANSFER_UPLOADING);
	assert_int_equal(got.version, 1);
	assert_string_equal(got.user, "clerk");
	assert_string_equal(got.batch, "q3");
	assert_string_equal(got.source, "host:/srv/q3");
	assert_string_equal(got.manifest_digest, "00112233445566778899aabbccddeeff");
	assert_string_equal(got.client_addr, "10.0.0.9:4000");
	assert_string_equal(got.seal, "aes:0123456789abcdef");
	assert_int_equal(got.manifest_crc32c, 0xfedcba98);
	assert_int_equal(got.digest, DIGEST_SHA256);
	assert_int_equal(got.priority, -3);
	assert_int_equal(got.chunk_bytes, 100);
	assert_int_equal(got.pack_bytes, 50);
	assert_int_equal(got.entry_count, 3);
	assert_int_equal(got.file_count, 2);
	assert_int_equal(got.object_count, 2);
	assert_int_equal(got.chunk_count, 6);
	assert_int_equal(got.total_bytes, 600);
	assert_int_equal(got.stored_chunk_count, 0);
	assert_int_equal(got.created_wall_us, 1000);
	assert_int_equal(got.completed_wall_us, 0);
	counters_agree(w, id_a);
}

static void test_plan_aborted_leaves_nothing(void **state)
{
	struct world *w = *state;
	struct store_transfer t = transfer_make(id_a, "q3", 2, 3);
	struct store_plan *plan = plan_rows(w, &t, 3);

	w->store->ops->plan_abort(&plan);
	assert_null(plan);
	w->store->ops->plan_abort(&plan);
	assert_int_equal(w->store->ops->transfer_get(w->store, id_a, &t, &w->err), -ERR_NO_TRANSFER);
	(void)planned(w, id_a, "q3", 1, 1); /* the writer is free again, the id too */
}

static void test_plan_with_wrong_totals_is_refused(void **state)
{
	struct world *w = *state;
	struct store_transfer t = transfer_make(id_a, "q3", 2, 3);
	struct store_plan *plan = plan_rows(w, &t, 3);

	t.chunk_count++;
	assert_int_equal(w->store->ops->plan_commit(&plan, &t, &w->err), -ERR_INTERNAL);
	assert_null(plan);
	assert_int_equal(w->store->ops->transfer_get(w->store, id_a, &t, &w->err), -ERR_NO_TRANSFER);
}

static void test_plan_refuses_the_same_id_and_the_same_chunk(void **state)
{
	struct world *w = *state;
	struct store_transfer t = planned(w, id_a, "q3", 1, 1);
	struct store_chunk chunk = { .file_id = 1, .size_bytes = 100 };
	struct store_entry huge = { .seq = 1, .type = 'F', .size_bytes = UINT64_MAX };
	struct store_plan *plan = NULL;

	assert_int_equal(w->store->ops->plan_begin(w->store, &t, &plan, &w->err), -ERR_STORE);
	assert_null(plan);
	copy_text(t.id, sizeof(t.id), id_b);
	assert_int_equal(w->store->ops->plan_begin(w->store, &t, &plan, &w->err), 0);
	assert_int_equal(w->store->ops->plan_chunk(plan, &chunk, &w->err), 0);
	/* Rows are inserted some at a time, so that the commit may be the first to notice. */
	(void)w->store->ops->plan_chunk(plan, &chunk, &w->err);
	assert_int_equal(w->store->ops->plan_entry(plan, &huge, &w->err), -ERR_LIMIT);
	assert_int_equal(w->store->ops->plan_commit(&plan, &t, &w->err), -ERR_STORE);
	assert_null(plan);
	assert_int_equal(w->store->ops->transfer_get(w->store, id_b, &t, &w->err), -ERR_NO_TRANSFER);
	assert_int_equal(give(w, receipt_make(id_a, 1, 0, digest_1, "n1")), ERR_NONE);
}

static void test_write_by_the_plan_holder_is_refused_not_stuck(void **state)
{
	struct world *w = *state;
	struct store_transfer t = transfer_make(id_b, "q4", 1, 1);
	struct store_plan *plan, *other = NULL;
	struct store_receipt receipt = receipt_make(id_a, 1, 0, digest_1, "n1");

	(void)planned(w, id_a, "q3", 1, 1);
	plan = plan_rows(w, &t, 1);
	assert_int_equal(w->store->ops->receipts(w->store, &receipt, 1, &w->err), -ERR_INTERNAL);
	assert_int_equal(w->store->ops->plan_begin(w->store, &t, &other, &w->err), -ERR_INTERNAL);
	assert_int_equal(w->store->ops->plan_commit(&plan, &t, &w->err), 0);
	assert_int_equal(w->store->ops->receipts(w->store, &receipt, 1, &w->err), 0);
}

/* ---- reading ---- */

static void test_chunk_pages_neither_skip_nor_repeat(void **state)
{
	struct world *w = *state;
	struct pages pages = { .stop_at = 0 };
	uint64_t file_id = 0, chunk_index = 0;

	(void)planned(w, id_a, "q3", 3, 5);
	(void)planned(w, id_b, "q4", 1, 1);
	for (size_t before = SIZE_MAX; before != pages.count;) {
		before = pages.count;
		assert_int_equal(w->store->ops->chunks(w->store, id_a, file_id, chunk_index, ALL_STATES, 4, chunk_keep,
						       &pages, &w->err),
				 0);
		assert_true(pages.count - before <= 4);
		file_id = pages.chunks[pages.count - 1].file_id;
		chunk_index = pages.chunks[pages.count - 1].chunk_index;
	}
	assert_int_equal(pages.count, 15);
	for (size_t i = 0; i < 15; i++) {
		assert_int_equal(pages.chunks[i].file_id, i / 5 + 1);
		assert_int_equal(pages.chunks[i].chunk_index, i % 5);
		assert_int_equal(pages.chunks[i].state, CHUNK_PENDING);
		assert_string_equal(pages.chunks[i].target_node, "n1");
		assert_string_equal(pages.chunks[i].actual_node, "");
		assert_string_equal(pages.chunks[i].digest, "");
	}
}

static void test_chunk_pages_filter_stop_and_bounds(void **state)
{
	struct world *w = *state;
	struct pages pages = { .stop_at = 2 };
	const struct store_ops *ops = w->store->ops;

	(void)planned(w, id_a, "q3", 1, 6);
	assert_int_equal(give(w, receipt_make(id_a, 1, 2, digest_1, "n2")), ERR_NONE);
	assert_int_equal(give(w, receipt_make(id_a, 1, 5, digest_1, "n2")), ERR_NONE);
	assert_int_equal(ops->chunks(w->store, id_a, 0, 0, ALL_STATES, 64, chunk_keep, &pages, &w->err), 0);
	assert_int_equal(pages.count, 2); /* the callback said stop */
	pages = (struct pages){ .stop_at = 64 };
	assert_int_equal(ops->chunks(w->store, id_a, 0, 0, 1u << CHUNK_STORED, 64, chunk_keep, &pages, &w->err), 0);
	assert_int_equal(pages.count, 2);
	assert_int_equal(pages.chunks[0].chunk_index, 2);
	assert_int_equal(pages.chunks[1].chunk_index, 5);
	pages.count = 0;
	assert_int_equal(ops->chunks(w->store, id_a, 0, 0, ALL_STATES, 0, chunk_keep, &pages, &w->err), 0);
	assert_int_equal(ops->chunks(w->store, id_a, 0, 0, 0, 9, chunk_keep, &pages, &w->err), 0);
	assert_int_equal(
		ops->chunks(w->store, id_a, UINT64_MAX, UINT64_MAX, ALL_STATES, 9, chunk_keep, &pages, &w->err), 0);
	assert_int_equal(pages.count, 0);
	assert_int_equal(ops->chunks(w->store, id_none, 0, 0, ALL_STATES, 9, chunk_keep, &pages, &w->err),
			 -ERR_NO_TRANSFER);
}

struct seen {
	struct store_object objects[8];
	struct store_entry entries[8];
	char path[8][8];
	struct store_transfer transfers[8];
	struct store_node nodes[8];
	size_t count;
};

static int object_keep(void *owner, const struct store_object *object)
{
	struct seen *seen = owner;

	seen->objects[seen->count++] = *object;
	return 0;
}

static int entry_keep(void *owner, const struct store_entry *entry)
{
	struct seen *seen = owner;

	(void)snprintf(seen->path[seen->count], 8, "%.*s", STR_ARG(entry->path));
	seen->entries[seen->count++] = *entry;
	return 0;
}

static int transfer_keep(void *owner, const struct store_transfer *transfer)
{
	struct seen *seen = owner;

	seen->transfers[seen->count++] = *transfer;
	return 0;
}

static int node_keep(void *owner, const struct store_node *node)
{
	struct seen *seen = owner;

	seen->nodes[seen->count++] = *node;
	return 0;
}

static void test_objects_and_entries_come_back_as_given(void **state)
{
	struct world *w = *state;
	struct seen seen = { .count = 0 };

	(void)planned(w, id_a, "q3", 4, 2);
	assert_int_equal(w->store->ops->objects(w->store, id_a, 1, 2, object_keep, &seen, &w->err), 0);
	assert_int_equal(seen.count, 2);
	assert_int_equal(seen.objects[0].file_id, 2);
	assert_true(seen.objects[0].is_pack);
	assert_false(seen.objects[1].is_pack);
	assert_int_equal(seen.objects[1].first_seq, 4);
	assert_int_equal(seen.objects[1].last_seq, 4);
	assert_int_equal(seen.objects[1].size_bytes, 200);
	assert_int_equal(seen.objects[1].chunk_count, 2);
	seen.count = 0;
	assert_int_equal(w->store->ops->entries(w->store, id_a, 0, 2, entry_keep, &seen, &w->err), 0);
	assert_int_equal(seen.count, 2);
	assert_int_equal(seen.entries[0].type, 'D');
	assert_int_equal(seen.entries[0].mode, 0755);
	assert_int_equal(seen.entries[0].mtime_ns, -5);
	assert_int_equal(seen.entries[0].target.size, 0);
	assert_string_equal(seen.path[0], "d\xff");
	assert_int_equal(seen.entries[1].seq, 2);
	assert_int_equal(seen.entries[1].mtime_ns, 1700000000123456789);
	assert_int_equal(seen.entries[1].size_bytes, 200);
	assert_int_equal(seen.entries[1].file_id, 1);
	assert_int_equal(seen.entries[1].object_offset, 7);
	assert_string_equal(seen.path[1], "d\xff/f");
	seen.count = 0;
	assert_int_equal(w->store->ops->entries(w->store, id_a, 4, UINT64_MAX, entry_keep, &seen, &w->err), 0);
	assert_int_equal(seen.count, 2);
	assert_int_equal(w->store->ops->entries(w->store, id_none, 1, 2, entry_keep, &seen, &w->err), -ERR_NO_TRANSFER);
	assert_int_equal(w->store->ops->objects(w->store, id_none, 1, 2, object_keep, &seen, &w->err),
			 -ERR_NO_TRANSFER);
}

struct many {
	uint64_t count, stop_at;
	size_t memory_before, memory_most;
};

static size_t memory_used(void)
{
	const struct mallinfo2 info = mallinfo2();

	return info.uordblks + info.hblkhd;
}

static int many_one(struct many *many, uint64_t number)
{
	assert_int_equal(number, ++many->count);
	if (memory_used() > many->memory_before + many->memory_most)
		many->memory_most = memory_used() - many->memory_before;
	return many->count == many->stop_at;
}

static int many_entry(void *owner, const struct store_entry *entry) { return many_one(owner, entry->seq); }
static int many_object(void *owner, const struct store_object *object) { return many_one(owner, object->file_id); }
static int many_chunk(void *owner, const struct store_chunk *chunk) { return many_one(owner, chunk->file_id); }

static void many_read(struct world *w, int what, size_t limit, uint64_t stop_at, uint64_t count)
{
	const struct store_ops *ops = w->store->ops;
	struct many many = { .stop_at = stop_at, .memory_before = memory_used() };
	int result;

	if (what == 0)
		result = ops->entries(w->store, id_a, 0, limit, many_entry, &many, &w->err);
	else if (what == 1)
		result = ops->objects(w->store, id_a, 0, limit, many_object, &many, &w->err);
	else
		result = ops->chunks(w->store, id_a, 0, 0, ALL_STATES, limit, many_chunk, &many, &w->err);
	assert_int_equal(result, 0);
	assert_int_equal(many.count, count);
	assert_in_range(many.memory_most, 0, 6 << 20);
}

/* Each once, whatever is asked for at once, and never all of them in memory. */
static void test_many_rows_are_read_in_little_memory(void **state)
{
	enum { COUNT = 30000 };
	struct world *w = *state;

	(void)planned(w, id_a, "q3", COUNT, 1);
	for (int what = 0; what < 3; what++) {
		many_read(w, what, SIZE_MAX, 0, what == 0 ? COUNT + 1 : COUNT);
		many_read(w, what, 20000, 0, 20000);
		many_read(w, what, 8192, 0, 8192);
		many_read(w, what, SIZE_MAX, 8192, 8192);
		many_read(w, what, SIZE_MAX, 16385, 16385);
	}
}

static void test_transfers_by_batch_and_list(void **state)
{
	struct world *w = *state;
	const struct store_ops *ops = w->store->ops;
	struct store_transfer a = planned(w, id_a, "q3\xfe", 1, 1), b = planned(w, id_b, "q3\xfe", 1, 1), got;
	struct seen seen = { .count = 0 };

	assert_int_equal(ops->transfer_by_batch(w->store, STR("q3\xfe"), &got, &w->err), 0);
	assert_string_equal(got.id, id_b);
	assert_int_equal(ops->transfer_move(w->store, &b, TRANSFER_FAILED, "gone", true, 9, &w->err), 0);
	assert_int_equal(ops->transfer_by_batch(w->store, STR("q3\xfe"), &got, &w->err), 0);
	assert_string_equal(got.id, id_a);
	assert_string_equal(got.batch, a.batch);
	assert_int_equal(ops->transfer_by_batch(w->store, STR("q3"), &got, &w->err), -ERR_NO_TRANSFER);
	assert_int_equal(ops->transfer_list(w->store, NULL, ALL_STATES, 8, transfer_keep, &seen, &w->err), 0);
	assert_int_equal(seen.count, 2);
	assert_string_equal(seen.transfers[0].id, id_b);
	assert_string_equal(seen.transfers[0].reason, "gone");
	assert_true(seen.transfers[0].is_retryable);
	seen.count = 0;
	assert_int_equal(
		ops->transfer_list(w->store, "clerk", 1u << TRANSFER_UPLOADING, 1, transfer_keep, &seen, &w->err), 0);
	assert_int_equal(seen.count, 1);
	assert_string_equal(seen.transfers[0].id, id_a);
	assert_int_equal(ops->transfer_list(w->store, "mallory", ALL_STATES, 8, transfer_keep, &seen, &w->err), 0);
	assert_int_equal(seen.count, 1);
}

/* A callback may use the store: nothing waits for itself. */
static int nested_read(void *owner, const struct store_chunk *chunk)
{
	struct world *w = owner;
	struct store_transfer t;

	assert_int_equal(w->store->ops->transfer_get(w->store, id_a, &t, &w->err), 0);
	assert_int_equal(give(w, receipt_make(id_a, chunk->file_id, chunk->chunk_index, digest_1, "n1")), ERR_NONE);
	return 0;
}

static void test_callbacks_may_read_and_write(void **state)
{
	struct world *w = *state;

	(void)planned(w, id_a, "q3", 2, 2);
	assert_int_equal(w->store->ops->chunks(w->store, id_a, 0, 0, ALL_STATES, 9, nested_read, w, &w->err), 0);
	counters_agree(w, id_a);
	assert_int_equal(chunk_get(w, id_a, 2, 1).state, CHUNK_STORED);
}

/* ---- receipts ---- */

static void test_receipt_results(void **state)
{
	struct world *w = *state;
	static const struct {
		const char *why, *id;
		uint64_t file_id, chunk_index, size_bytes;
		const char *digest;
		enum err_code outcome, result;
	} rows[] = {
		{ "no such transfer", id_none, 1, 0, 100, digest_1, ERR_NONE, ERR_NO_TRANSFER },
		{ "empty transfer id", "", 1, 0, 100, digest_1, ERR_NONE, ERR_NO_TRANSFER },
		{ "no such object", id_a, 9, 0, 100, digest_1, ERR_NONE, ERR_NO_CHUNK },
		{ "no such index", id_a, 1, 3, 100, digest_1, ERR_NONE, ERR_NO_CHUNK },
		{ "numbers of another world", id_a, UINT64_MAX, UINT64_MAX, 100, digest_1, ERR_NONE, ERR_NO_CHUNK },
		{ "size differs", id_a, 1, 0, 99, digest_1, ERR_NONE, ERR_CHUNK_SIZE },
		{ "digest is none", id_a, 1, 0, 100, "zz", ERR_NONE, ERR_BAD_REQUEST },
		{ "digest of the other kind", id_a, 1, 0, 100, "11111111111111111111111111111111", ERR_NONE,
		  ERR_BAD_REQUEST },
		{ "an attempt that failed, unknown chunk", id_a, 1, 3, 100, "", ERR_DISK_LOW, ERR_NONE },
		{ "an attempt that failed for its disk", id_a, 1, 0, 100, "", ERR_DISK_LOW, ERR_NONE },
		{ "stored", id_a, 1, 0, 100, digest_1, ERR_NONE, ERR_NONE },
		{ "again", id_a, 1, 0, 100, digest_1, ERR_NONE, ERR_NONE },
		{ "other bytes", id_a, 1, 0, 100, digest_2, ERR_NONE, ERR_DIGEST_CONFLICT },
		{ "late mismatch of a stored chunk", id_a, 1, 0, 100, digest_2, ERR_DIGEST_MISMATCH, ERR_NONE },
	};
	struct store_receipt receipts[COUNT_OF(rows)];
	uint64_t counts[COUNT_STATES];

	(void)planned(w, id_a, "q3", 1, 3);
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		receipts[i] = receipt_make(rows[i].id, rows[i].file_id, rows[i].chunk_index, rows[i].digest,
					   i < 11 ? "n1" : "n2");
		receipts[i].size_bytes = rows[i].size_bytes;
		receipts[i].outcome = rows[i].outcome;
	}
	assert_int_equal(w->store->ops->receipts(w->store, receipts, COUNT_OF(rows), &w->err), 0);
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		if (receipts[i].result != rows[i].result)
			fail_msg("%s: %s, not %s", rows[i].why, err_word(receipts[i].result), err_word(rows[i].result));
	}
	assert_int_equal(w->store->ops->chunk_counts(w->store, id_a, counts, &w->err), 0);
	assert_int_equal(counts[CHUNK_STORED], 1);
	assert_int_equal(counts[CHUNK_PENDING], 2);
	assert_string_equal(chunk_get(w, id_a, 1, 0).actual_node, "n1"); /* the first receipt stays */
	assert_string_equal(chunk_get(w, id_a, 1, 0).digest, digest_1);
	counters_agree(w, id_a);
	assert_int_equal(w->store->ops->receipts(w->store, receipts, 0, &w->err), 0);
}

static void test_chunk_taken_by_a_substitute_after_a_mismatch(void **state)
{
	struct world *w = *state;
	struct store_receipt bad = receipt_make(id_a, 1, 1, digest_2, "n1");
	struct store_chunk chunk;

	(void)planned(w, id_a, "q3", 1, 2);
	bad.outcome = ERR_DIGEST_MISMATCH;
	assert_int_equal(give(w, bad), ERR_NONE);
	assert_int_equal(chunk_get(w, id_a, 1, 1).state, CHUNK_DIGEST_FAILED);
	counters_agree(w, id_a);
	assert_int_equal(give(w, receipt_make(id_a, 1, 1, digest_1, "n3")), ERR_NONE);
	reopen(w);
	chunk = chunk_get(w, id_a, 1, 1);
	assert_int_equal(chunk.state, CHUNK_STORED);
	assert_string_equal(chunk.target_node, "n1");
	assert_string_equal(chunk.actual_node, "n3");
	assert_int_equal(chunk.updated_wall_us, 2001);
	counters_agree(w, id_a);
}

static void test_receipts_of_two_transfers_in_one_call(void **state)
{
	struct world *w = *state;
	struct store_receipt receipts[6];
	struct store_transfer t;

	(void)planned(w, id_a, "q3", 1, 3);
	(void)planned(w, id_b, "q4", 1, 3);
	for (size_t i = 0; i < 6; i++)
		receipts[i] = receipt_make(i % 2 ? id_a : id_b, 1, i / 2, digest_1, "n1");
	assert_int_equal(w->store->ops->receipts(w->store, receipts, 6, &w->err), 0);
	counters_agree(w, id_a);
	counters_agree(w, id_b);
	assert_int_equal(w->store->ops->transfer_get(w->store, id_b, &t, &w->err), 0);
	assert_int_equal(t.stored_chunk_count, 3);
	assert_int_equal(t.stored_bytes, 300);
}

/* ---- states ---- */

static void test_move_is_optimistic_and_guards_completeness(void **state)
{
	struct world *w = *state;
	const struct store_ops *ops = w->store->ops;
	struct store_transfer t = planned(w, id_a, "q3", 1, 2), loser = t, got;
	struct store_transfer none = t;

	copy_text(none.id, sizeof(none.id), id_none);
	assert_int_equal(ops->transfer_move(w->store, &none, TRANSFER_MERGING, "", false, 9, &w->err),
			 -ERR_NO_TRANSFER);
	assert_int_equal(give(w, receipt_make(id_a, 1, 0, digest_1, "n1")), ERR_NONE);
	assert_int_equal(ops->transfer_move(w->store, &t, TRANSFER_MERGING, "", false, 9, &w->err), -ERR_INCOMPLETE);
	assert_int_equal(t.state, TRANSFER_UPLOADING);
	assert_int_equal(t.version, 1);
	assert_int_equal(give(w, receipt_make(id_a, 1, 1, digest_1, "n1")), ERR_NONE);
	assert_int_equal(ops->transfer_move(w->store, &t, TRANSFER_MERGING, "go", false, 9, &w->err), 0);
	assert_int_equal(t.state, TRANSFER_MERGING);
	assert_int_equal(t.version, 2);
	assert_int_equal(ops->transfer_move(w->store, &loser, TRANSFER_FAILED, "", false, 9, &w->err),
			 -ERR_VERSION_CONFLICT);
	assert_int_equal(loser.version, 1);
	/* While merging: the same again is fine, anything else is too late. */
	assert_int_equal(give(w, receipt_make(id_a, 1, 1, digest_1, "n2")), ERR_NONE);
	assert_int_equal(give(w, receipt_make(id_a, 1, 1, digest_2, "n2")), ERR_MERGING);
	assert_int_equal(give(w, receipt_make(id_a, 7, 1, digest_1, "n2")), ERR_MERGING);
	assert_int_equal(ops->transfer_move(w->store, &t, TRANSFER_COMPLETED, "", false, 77, &w->err), 0);
	assert_int_equal(give(w, receipt_make(id_a, 1, 1, digest_1, "n2")), ERR_NONE);
	assert_int_equal(give(w, receipt_make(id_a, 1, 1, digest_2, "n2")), ERR_MERGING);
	reopen(w);
	assert_int_equal(w->store->ops->transfer_get(w->store, id_a, &got, &w->err), 0);
	assert_int_equal(got.state, TRANSFER_COMPLETED);
	assert_int_equal(got.version, 3);
	assert_int_equal(got.completed_wall_us, 77);
	assert_int_equal(got.stored_chunk_count, 2);
	assert_int_equal(chunk_get(w, id_a, 1, 0).state, CHUNK_MERGED);
	assert_string_equal(chunk_get(w, id_a, 1, 0).actual_node, "n1");
	counters_agree(w, id_a);
}

/* A node whose clock is beyond reason says twice that it has a chunk. */
static void test_a_receipt_of_the_last_moment_may_be_repeated(void **state)
{
	struct world *w = *state;
	struct store_receipt receipt = receipt_make(id_a, 1, 0, digest_1, "n1");

	(void)planned(w, id_a, "q3", 1, 1);
	receipt.finished_wall_us = INT64_MAX;
	for (int i = 0; i < 3; i++)
		assert_int_equal(give(w, receipt), ERR_NONE);
}

static void test_failed_transfer_takes_nothing(void **state)
{
	struct world *w = *state;
	struct store_transfer t = planned(w, id_a, "q3", 1, 1);
	char longest[2 * STORE_REASON_SIZE];

	memset(longest, 'x', sizeof(longest));
	longest[sizeof(longest) - 1] = '\0';
	assert_int_equal(w->store->ops->transfer_move(w->store, &t, TRANSFER_FAILED, longest, false, 9, &w->err), 0);
	assert_int_equal(strlen(t.reason), STORE_REASON_SIZE - 1);
	assert_int_equal(give(w, receipt_make(id_a, 1, 0, digest_1, "n1")), ERR_STATE);
	counters_agree(w, id_a);
}

static void test_note_changes_only_the_reason(void **state)
{
	struct world *w = *state;
	struct store_transfer t = planned(w, id_a, "q3", 1, 1);

	assert_int_equal(w->store->ops->transfer_note(w->store, id_a, "waits for n2", &w->err), 0);
	assert_int_equal(w->store->ops->transfer_note(w->store, id_none, "x", &w->err), -ERR_NO_TRANSFER);
	assert_int_equal(w->store->ops->transfer_get(w->store, id_a, &t, &w->err), 0);
	assert_string_equal(t.reason, "waits for n2");
	assert_int_equal(t.version, 1);
}

static void test_reopen_by_object_and_by_node(void **state)
{
	struct world *w = *state;
	const struct store_ops *ops = w->store->ops;
	struct store_chunk chunk;
	uint64_t count = 99;

	(void)planned(w, id_a, "q3", 2, 3);
	for (uint64_t i = 0; i < 6; i++)
		assert_int_equal(give(w, receipt_make(id_a, i / 3 + 1, i % 3, digest_1, i % 3 == 1 ? "n2" : "n1")),
				 ERR_NONE);
	assert_int_equal(ops->chunks_reopen(w->store, id_a, 0, "n9", CHUNK_LOST, "gone", 5, &count, &w->err), 0);
	assert_int_equal(count, 0);
	assert_int_equal(ops->chunks_reopen(w->store, id_a, 1, "n2", CHUNK_LOST, "gone", 5, &count, &w->err), 0);
	assert_int_equal(count, 1);
	chunk = chunk_get(w, id_a, 1, 1);
	assert_int_equal(chunk.state, CHUNK_LOST);
	assert_string_equal(chunk.actual_node, "");
	assert_string_equal(chunk.digest, "");
	assert_string_equal(chunk.target_node, "n1");
	counters_agree(w, id_a);
	/* What was lost may come back with other bytes and from elsewhere. */
	assert_int_equal(give(w, receipt_make(id_a, 1, 1, digest_2, "n3")), ERR_NONE);
	assert_string_equal(chunk_get(w, id_a, 1, 1).actual_node, "n3");
	assert_int_equal(ops->chunks_reopen(w->store, id_a, 2, NULL, CHUNK_PENDING, "integrity", 5, &count, &w->err),
			 0);
	assert_int_equal(count, 3);
	assert_int_equal(ops->chunks_reopen(w->store, id_a, 0, NULL, CHUNK_PENDING, NULL, 5, &count, &w->err), 0);
	assert_int_equal(count, 3);
	counters_agree(w, id_a);
	assert_int_equal(ops->chunks_reopen(w->store, id_none, 0, NULL, CHUNK_LOST, "x", 5, &count, &w->err),
			 -ERR_NO_TRANSFER);
	assert_int_equal(count, 0);
}

static void test_bind_digests_all_or_nothing(void **state)
{
	struct world *w = *state;
	struct store_transfer t = planned(w, id_a, "q3", 2, 1);
	const struct store_ops *ops = w->store->ops;
	const uint64_t seqs[2] = { 2, 3 }, wrong[2] = { 2, 99 }, folder[1] = { 1 };
	char digests[2][DIGEST_HEX_SIZE], bad[1][DIGEST_HEX_SIZE] = { "xyz" };
	struct seen seen = { .count = 0 };

	memcpy(digests[0], digest_2, sizeof(digest_2));
	memcpy(digests[1], digest_2, sizeof(digest_2));
	assert_int_equal(ops->bind_digests(w->store, id_a, wrong, digests, 2, &w->err), -ERR_BAD_REQUEST);
	assert_int_equal(ops->bind_digests(w->store, id_a, folder, digests, 1, &w->err), -ERR_BAD_REQUEST);
	assert_int_equal(ops->bind_digests(w->store, id_a, seqs, bad, 1, &w->err), -ERR_BAD_REQUEST);
	assert_int_equal(ops->bind_digests(w->store, id_none, seqs, digests, 2, &w->err), -ERR_NO_TRANSFER);
	assert_int_equal(ops->entries(w->store, id_a, 2, 2, entry_keep, &seen, &w->err), 0);
	assert_string_equal(seen.entries[0].digest, "");
	assert_int_equal(ops->bind_digests(w->store, id_a, seqs, digests, 2, &w->err), 0);
	memcpy(digests[0], digest_1, sizeof(digest_1));
	assert_int_equal(ops->bind_digests(w->store, id_a, seqs, digests, 1, &w->err), 0);
	seen.count = 0;
	assert_int_equal(ops->entries(w->store, id_a, 2, 3, entry_keep, &seen, &w->err), 0);
	assert_string_equal(seen.entries[0].digest, digest_1);
	assert_string_equal(seen.entries[1].digest, digest_2);
	assert_int_equal(ops->transfer_move(w->store, &t, TRANSFER_FAILED, "", false, 9, &w->err), 0);
	assert_int_equal(ops->bind_digests(w->store, id_a, seqs, digests, 2, &w->err), -ERR_STATE);
}

static void test_nodes_are_saved_by_id(void **state)
{
	struct world *w = *state;
	struct store_node node = {
		.id = "n2", .addr = "10.0.0.2:1", .incarnation = "aa", .weight_milli = 1000, .seen_wall_us = 5
	};
	struct seen seen = { .count = 0 };

	assert_int_equal(w->store->ops->node_save(w->store, &node, &w->err), 0);
	copy_text(node.id, sizeof(node.id), "n1");
	assert_int_equal(w->store->ops->node_save(w->store, &node, &w->err), 0);
	copy_text(node.addr, sizeof(node.addr), "10.0.0.3:2");
	copy_text(node.domain, sizeof(node.domain), "rack-1");
	node.weight_milli = 4000000000u;
	assert_int_equal(w->store->ops->node_save(w->store, &node, &w->err), 0);
	reopen(w);
	assert_int_equal(w->store->ops->node_list(w->store, node_keep, &seen, &w->err), 0);
	assert_int_equal(seen.count, 2);
	assert_string_equal(seen.nodes[0].id, "n1");
	assert_string_equal(seen.nodes[0].addr, "10.0.0.3:2");
	assert_string_equal(seen.nodes[0].domain, "rack-1");
	assert_int_equal(seen.nodes[0].weight_milli, 4000000000u);
	assert_string_equal(seen.nodes[1].id, "n2");
}

static int order_keep(void *owner, const struct store_order *order)
{
	struct store_order **next = owner;

	*(*next)++ = *order;
	return 0;
}

static void test_orders_are_kept_by_node(void **state)
{
	struct world *w = *state;
	const struct store_ops *ops = w->store->ops;
	struct store_order order = { .node_id = "n2", .order = NODE_ORDER_DRAIN }, kept[4], *next = kept;
	const struct store_audit row = {
		.at_wall_us = 5, .kind = "operator", .user = "op", .node_id = "n2", .outcome = "drain"
	};
	uint64_t count = 99;

	assert_int_equal(ops->order_list(w->store, order_keep, &next, &w->err), 0);
	assert_ptr_equal(next, kept);
	assert_int_equal(ops->order_save(w->store, &order, &row, 5, &count, &w->err), 0);
	assert_int_equal(count, 0);
	order.is_weight_ordered = true;
	order.order = NODE_ORDER_NONE;
	assert_int_equal(ops->order_save(w->store, &order, NULL, 6, &count, &w->err), 0);
	copy_text(order.node_id, sizeof(order.node_id), "n1");
	order.order = NODE_ORDER_DRAIN;
	order.is_weight_ordered = false;
	assert_int_equal(ops->order_save(w->store, &order, NULL, 6, &count, &w->err), 0);
	reopen(w);
	assert_int_equal(w->store->ops->order_list(w->store, order_keep, &next, &w->err), 0);
	assert_int_equal(next - kept, 2);
	assert_string_equal(kept[0].node_id, "n1");
	assert_int_equal(kept[0].order, NODE_ORDER_DRAIN);
	assert_false(kept[0].is_weight_ordered);
	/* A weight of 0 is a weight. */
	assert_string_equal(kept[1].node_id, "n2");
	assert_int_equal(kept[1].order, NODE_ORDER_NONE);
	assert_true(kept[1].is_weight_ordered);
	assert_int_equal(kept[1].weight_milli, 0);
}

static void test_a_lost_node_loses_what_open_transfers_have(void **state)
{
	struct world *w = *state;
	const struct store_ops *ops = w->store->ops;
	const struct store_order order = { .node_id = "n2", .order = NODE_ORDER_LOST };
	struct store_transfer merging;
	uint64_t count = 99;

	(void)planned(w, id_a, "q3", 1, 3);
	merging = planned(w, id_b, "q4", 1, 1);
	for (uint64_t i = 0; i < 3; i++)
		assert_int_equal(give(w, receipt_make(id_a, 1, i, digest_1, i == 1 ? "n1" : "n2")), ERR_NONE);
	assert_int_equal(give(w, receipt_make(id_b, 1, 0, digest_1, "n2")), ERR_NONE);
	assert_int_equal(ops->transfer_get(w->store, id_b, &merging, &w->err), 0);
	assert_int_equal(ops->transfer_move(w->store, &merging, TRANSFER_MERGING, "", true, 9, &w->err), 0);
	assert_int_equal(ops->order_save(w->store, &order, NULL, 5, &count, &w->err), 0);
	assert_int_equal(count, 2);
	assert_int_equal(chunk_get(w, id_a, 1, 0).state, CHUNK_LOST);
	assert_int_equal(chunk_get(w, id_a, 1, 1).state, CHUNK_STORED);
	assert_int_equal(chunk_get(w, id_a, 1, 2).state, CHUNK_LOST);
	/* The merge may have read it already. */
	assert_int_equal(chunk_get(w, id_b, 1, 0).state, CHUNK_STORED);
	counters_agree(w, id_a);
	counters_agree(w, id_b);
	assert_int_equal(ops->order_save(w->store, &order, NULL, 6, &count, &w->err), 0);
	assert_int_equal(count, 0);
}

static void test_state_names_round_trip(void **state)
{
	enum transfer_state transfer;
	enum chunk_state chunk;

	(void)state;
	for (int i = 0; i <= TRANSFER_FAILED; i++) {
		assert_true(transfer_state_from_name(str_from(transfer_state_name((enum transfer_state)i)), &transfer));
		assert_int_equal(transfer, i);
	}
	for (int i = 0; i <= CHUNK_MERGED; i++) {
		assert_true(chunk_state_from_name(str_from(chunk_state_name((enum chunk_state)i)), &chunk));
		assert_int_equal(chunk, i);
	}
	assert_false(chunk_state_from_name(STR("store"), &chunk));
	assert_false(chunk_state_from_name(STR_NONE, &chunk));
	assert_false(transfer_state_from_name(STR("Failed"), &transfer));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_plan_shows_only_when_committed),
		CASE(test_plan_aborted_leaves_nothing),
		CASE(test_plan_with_wrong_totals_is_refused),
		CASE(test_plan_refuses_the_same_id_and_the_same_chunk),
		CASE(test_write_by_the_plan_holder_is_refused_not_stuck),
		CASE(test_chunk_pages_neither_skip_nor_repeat),
		CASE(test_chunk_pages_filter_stop_and_bounds),
		CASE(test_objects_and_entries_come_back_as_given),
		CASE(test_transfers_by_batch_and_list),
		CASE(test_callbacks_may_read_and_write),
		CASE(test_many_rows_are_read_in_little_memory),
		CASE(test_receipt_results),
		CASE(test_chunk_taken_by_a_substitute_after_a_mismatch),
		CASE(test_receipts_of_two_transfers_in_one_call),
		CASE(test_move_is_optimistic_and_guards_completeness),
		CASE(test_a_receipt_of_the_last_moment_may_be_repeated),
		CASE(test_failed_transfer_takes_nothing),
		CASE(test_note_changes_only_the_reason),
		CASE(test_reopen_by_object_and_by_node),
		CASE(test_bind_digests_all_or_nothing),
		CASE(test_nodes_are_saved_by_id),
		CASE(test_orders_are_kept_by_node),
		CASE(test_a_lost_node_loses_what_open_transfers_have),
		CASE(test_state_names_round_trip),
	};

	return drivers_run(tests, COUNT_OF(tests));
}
