#include "plug/store_sql.h"

#include <string.h>

/* Of one statement: engines may hold all that it gives in memory, and a transfer may have ten million. */
#define READ_ROWS_MAX 8192u

/* A word in the database that is none of ours: somebody edited it, or a newer heng wrote it. Never guessed at. */
static int word_unknown(struct err *err, const char *what, struct str word)
{
	return err_set(err, ERR_STORE_SCHEMA, "the database holds the %s '%.*s', which this heng does not know", what,
		       (int)min_size(word.size, 40), word.size ? word.data : "");
}

static int no_transfer(struct err *err, const char *id)
{
	return err_set(err, ERR_NO_TRANSFER, "there is no transfer %s", id);
}

static int read_transfer(struct sql_stmt *stmt, struct store_transfer *ret, struct err *err)
{
	struct str batch = sql_bytes(stmt, 2);

	memset(ret, 0, sizeof(*ret));
	sql_text(stmt, 0, ret->id, sizeof(ret->id));
	sql_text(stmt, 1, ret->user, sizeof(ret->user));
	(void)str_copy(batch, ret->batch, sizeof(ret->batch));
	sql_text(stmt, 3, ret->source, sizeof(ret->source));
	sql_text(stmt, 4, ret->manifest_digest, sizeof(ret->manifest_digest));
	ret->manifest_crc32c = (uint32_t)sql_i64(stmt, 5);
	if (!digest_from_name(sql_bytes(stmt, 6), &ret->digest))
		return word_unknown(err, "digest", sql_bytes(stmt, 6));
	ret->chunk_bytes = sql_u64(stmt, 7);
	ret->pack_bytes = sql_u64(stmt, 8);
	ret->entry_count = sql_u64(stmt, 9);
	ret->file_count = sql_u64(stmt, 10);
	ret->object_count = sql_u64(stmt, 11);
	ret->chunk_count = sql_u64(stmt, 12);
	ret->total_bytes = sql_u64(stmt, 13);
	ret->stored_chunk_count = sql_u64(stmt, 14);
	ret->stored_bytes = sql_u64(stmt, 15);
	if (!transfer_state_from_name(sql_bytes(stmt, 16), &ret->state))
		return word_unknown(err, "transfer state", sql_bytes(stmt, 16));
	ret->version = sql_i64(stmt, 17);
	ret->is_retryable = sql_i64(stmt, 18) != 0;
	ret->priority = (int)sql_i64(stmt, 19);
	sql_text(stmt, 20, ret->reason, sizeof(ret->reason));
	sql_text(stmt, 21, ret->client_addr, sizeof(ret->client_addr));
	ret->created_wall_us = sql_i64(stmt, 22);
	ret->updated_wall_us = sql_i64(stmt, 23);
	ret->completed_wall_us = sql_i64(stmt, 24);
	ret->copies = (unsigned)sql_u64(stmt, 25);
	ret->copied_chunk_count = sql_u64(stmt, 26);
	ret->copied_bytes = sql_u64(stmt, 27);
	ret->is_copies_waived = sql_i64(stmt, 28) != 0;
	sql_text(stmt, 29, ret->seal, sizeof(ret->seal));
	return 0;
}

/* One transfer from a statement that gives at most one. 1: found; 0: none. */
static int transfer_one(struct sql_stmt *stmt, struct store_transfer *ret, struct err *err)
{
	int row = sql_row(stmt->conn, stmt, err, "reading a transfer");

	if (row <= 0)
		return row;
	row = read_transfer(stmt, ret, err);
	sql_reset(stmt);
	return row < 0 ? row : 1;
}

int sql_transfer_get(struct store *store, const char *id, struct store_transfer *ret, struct err *err)
{
	struct sql_stmt *stmt = sql_reader_stmt(store, SQL_TRANSFER_GET, err);
	int found;

	if (!stmt)
		return -ERR_STORE;
	sql_bind_text(stmt, 1, id);
	found = transfer_one(stmt, ret, err);
	if (found == 0)
		found = no_transfer(err, id);
	return sql_reader_end(store, stmt, found);
}

int sql_transfer_by_batch(struct store *store, struct str batch, struct store_transfer *ret, struct err *err)
{
	struct sql_stmt *stmt = sql_reader_stmt(store, SQL_TRANSFER_BY_BATCH, err);
	int found;

	if (!stmt)
		return -ERR_STORE;
	sql_bind_bytes(stmt, 1, batch);
	found = transfer_one(stmt, ret, err);
	if (found == 0)
		found = err_set(err, ERR_NO_TRANSFER, "there is no transfer of this batch that has not failed");
	return sql_reader_end(store, stmt, found);
}

static int transfer_rows(struct store *store, struct sql_stmt *stmt,
			 int (*each)(void *owner, const struct store_transfer *transfer), void *owner, struct err *err)
{
	struct store_transfer transfer;
	int row;

	do {
		row = sql_row(stmt->conn, stmt, err, "listing transfers");
		if (row > 0)
			row = read_transfer(stmt, &transfer, err) < 0 ? -ERR_STORE_SCHEMA : 1;
	} while (row > 0 && each(owner, &transfer) == 0);
	return sql_reader_end(store, stmt, row);
}

int sql_transfer_list(struct store *store, const char *user, unsigned state_mask, size_t limit,
		      int (*each)(void *owner, const struct store_transfer *transfer), void *owner, struct err *err)
{
	struct sql_stmt *stmt = sql_reader_stmt(store, user ? SQL_TRANSFER_LIST_USER : SQL_TRANSFER_LIST, err);

	if (!stmt)
		return -ERR_STORE;
	sql_bind_i64(stmt, 1, state_mask);
	sql_bind_u64(stmt, 2, limit);
	if (user)
		sql_bind_text(stmt, 3, user);
	return transfer_rows(store, stmt, each, owner, err);
}

int sql_transfers_idle(struct store *store, int64_t before_wall_us, size_t limit,
		       int (*each)(void *owner, const struct store_transfer *transfer), void *owner, struct err *err)
{
	struct sql_stmt *stmt = sql_reader_stmt(store, SQL_TRANSFER_IDLE, err);

	if (!stmt)
		return -ERR_STORE;
	sql_bind_i64(stmt, 1, before_wall_us);
	sql_bind_u64(stmt, 2, limit);
	return transfer_rows(store, stmt, each, owner, err);
}

int sql_transfers_uncleaned(struct store *store, const char *after_id, size_t limit,
			    int (*each)(void *owner, const struct store_transfer *transfer), void *owner,
			    struct err *err)
{
	struct sql_stmt *stmt = sql_reader_stmt(store, SQL_TRANSFER_UNCLEANED, err);

	if (!stmt)
		return -ERR_STORE;
	sql_bind_text(stmt, 1, after_id);
	sql_bind_u64(stmt, 2, limit);
	return transfer_rows(store, stmt, each, owner, err);
}

/* A reader on which `id` is ready with the transfer's number as its first parameter. */
static struct sql_stmt *page_open(struct store *store, const char *transfer_id, enum sql_id id, int *ret_result,
				  struct err *err)
{
	struct sql_stmt *find = sql_reader_stmt(store, SQL_TRANSFER_NUM, err), *stmt = NULL;
	int row;

	*ret_result = -ERR_STORE;
	if (!find)
		return NULL;
	sql_bind_text(find, 1, transfer_id);
	row = sql_row(find->conn, find, err, "looking a transfer up");
	if (row == 0)
		*ret_result = no_transfer(err, transfer_id);
	if (row == 1)
		stmt = sql_stmt(find->conn, id, err);
	if (!stmt) {
		(void)sql_reader_end(store, find, row);
		return NULL;
	}
	sql_bind_i64(stmt, 1, sql_i64(find, 0));
	sql_reset(find);
	return stmt;
}

static int read_chunk(struct sql_stmt *stmt, struct store_chunk *ret, struct err *err)
{
	ret->file_id = sql_u64(stmt, 0);
	ret->chunk_index = sql_u64(stmt, 1);
	ret->size_bytes = sql_u64(stmt, 2);
	if (!chunk_state_from_name(sql_bytes(stmt, 3), &ret->state))
		return word_unknown(err, "chunk state", sql_bytes(stmt, 3));
	sql_text(stmt, 4, ret->target_node, sizeof(ret->target_node));
	sql_text(stmt, 5, ret->actual_node, sizeof(ret->actual_node));
	sql_text(stmt, 6, ret->digest, sizeof(ret->digest));
	ret->updated_wall_us = sql_i64(stmt, 7);
	sql_text(stmt, 8, ret->copy_node, sizeof(ret->copy_node));
	return 0;
}

/* Behind *chunk, which becomes the last one read. 1: there may be more. */
static int chunks_page(struct store *store, const char *transfer_id, struct store_chunk *chunk, unsigned state_mask,
		       size_t limit, int (*each)(void *owner, const struct store_chunk *chunk), void *owner,
		       struct err *err)
{
	bool is_stopped = false;
	size_t count = 0;
	int row;
	struct sql_stmt *stmt = page_open(store, transfer_id, SQL_CHUNK_PAGE, &row, err);

	if (!stmt)
		return row;
	sql_bind_u64(stmt, 2, chunk->file_id);
	sql_bind_u64(stmt, 3, chunk->chunk_index);
	sql_bind_i64(stmt, 4, state_mask);
	sql_bind_u64(stmt, 5, limit);
	do {
		row = sql_row(stmt->conn, stmt, err, "reading chunks");
		if (row > 0)
			row = read_chunk(stmt, chunk, err) < 0 ? -ERR_STORE_SCHEMA : 1;
		count += row > 0;
		is_stopped = row > 0 && each(owner, chunk) != 0;
	} while (row > 0 && !is_stopped);
	row = sql_reader_end(store, stmt, row);
	return row < 0 ? row : !is_stopped && count == limit;
}

int sql_chunks(struct store *store, const char *transfer_id, uint64_t after_file_id, uint64_t after_chunk_index,
	       unsigned state_mask, size_t limit, int (*each)(void *owner, const struct store_chunk *chunk),
	       void *owner, struct err *err)
{
	struct store_chunk chunk = { .file_id = after_file_id, .chunk_index = after_chunk_index };
	size_t count;
	int result;

	do {
		count = min_size(limit, READ_ROWS_MAX);
		result = chunks_page(store, transfer_id, &chunk, state_mask, count, each, owner, err);
		limit -= count;
	} while (result > 0 && limit > 0);
	return result < 0 ? result : 0;
}

static int objects_page(struct store *store, const char *transfer_id, uint64_t *after_file_id, size_t limit,
			int (*each)(void *owner, const struct store_object *object), void *owner, struct err *err)
{
	struct store_object object;
	bool is_stopped = false;
	size_t count = 0;
	int row;
	struct sql_stmt *stmt = page_open(store, transfer_id, SQL_OBJECT_PAGE, &row, err);

	if (!stmt)
		return row;
	sql_bind_u64(stmt, 2, *after_file_id);
	sql_bind_u64(stmt, 3, limit);
	while (!is_stopped && (row = sql_row(stmt->conn, stmt, err, "reading objects")) > 0) {
		object.file_id = *after_file_id = sql_u64(stmt, 0);
		object.is_pack = sql_i64(stmt, 1) != 0;
		object.first_seq = sql_u64(stmt, 2);
		object.last_seq = sql_u64(stmt, 3);
		object.size_bytes = sql_u64(stmt, 4);
		object.chunk_count = sql_u64(stmt, 5);
		count++;
		is_stopped = each(owner, &object) != 0;
	}
	row = sql_reader_end(store, stmt, row);
	return row < 0 ? row : !is_stopped && count == limit;
}

int sql_objects(struct store *store, const char *transfer_id, uint64_t after_file_id, size_t limit,
		int (*each)(void *owner, const struct store_object *object), void *owner, struct err *err)
{
	size_t count;
	int result;

	do {
		count = min_size(limit, READ_ROWS_MAX);
		result = objects_page(store, transfer_id, &after_file_id, count, each, owner, err);
		limit -= count;
	} while (result > 0 && limit > 0);
	return result < 0 ? result : 0;
}

static int entries_page(struct store *store, const char *transfer_id, uint64_t *from_seq, uint64_t to_seq_inclusive,
			int (*each)(void *owner, const struct store_entry *entry), void *owner, struct err *err)
{
	struct store_entry entry;
	bool is_stopped = false;
	size_t count = 0;
	struct str type;
	int row;
	struct sql_stmt *stmt = page_open(store, transfer_id, SQL_ENTRY_PAGE, &row, err);

	if (!stmt)
		return row;
	sql_bind_u64(stmt, 2, *from_seq);
	sql_bind_u64(stmt, 3, to_seq_inclusive);
	sql_bind_i64(stmt, 4, READ_ROWS_MAX);
	while (!is_stopped && (row = sql_row(stmt->conn, stmt, err, "reading entries")) > 0) {
		entry.seq = sql_u64(stmt, 0);
		type = sql_bytes(stmt, 1);
		entry.type = type.size ? type.data[0] : '?';
		entry.mode = (uint32_t)sql_i64(stmt, 2);
		entry.mtime_ns = sql_i64(stmt, 3);
		entry.size_bytes = sql_u64(stmt, 4);
		entry.path = sql_bytes(stmt, 5);
		entry.target = sql_bytes(stmt, 6);
		entry.file_id = sql_u64(stmt, 7);
		entry.object_offset = sql_u64(stmt, 8);
		sql_text(stmt, 9, entry.digest, sizeof(entry.digest));
		*from_seq = entry.seq + 1;
		count++;
		is_stopped = each(owner, &entry) != 0;
	}
	row = sql_reader_end(store, stmt, row);
	return row < 0 ? row : !is_stopped && count == READ_ROWS_MAX;
}

int sql_entries(struct store *store, const char *transfer_id, uint64_t from_seq, uint64_t to_seq_inclusive,
		int (*each)(void *owner, const struct store_entry *entry), void *owner, struct err *err)
{
	int result;

	do
		result = entries_page(store, transfer_id, &from_seq, to_seq_inclusive, each, owner, err);
	while (result > 0);
	return result;
}

int sql_chunk_counts(struct store *store, const char *transfer_id, uint64_t *ret_counts, struct err *err)
{
	struct sql_stmt *stmt = sql_reader_stmt(store, SQL_TRANSFER_COUNTS, err);
	int row;

	if (!stmt)
		return -ERR_STORE;
	sql_bind_text(stmt, 1, transfer_id);
	row = sql_row(stmt->conn, stmt, err, "reading a transfer's counts");
	for (int i = 0; row > 0 && i < SQL_CHUNK_STATES; i++)
		ret_counts[i] = sql_u64(stmt, i);
	if (row == 0)
		row = no_transfer(err, transfer_id);
	return sql_reader_end(store, stmt, row);
}

int sql_node_list(struct store *store, int (*each)(void *owner, const struct store_node *node), void *owner,
		  struct err *err)
{
	struct sql_stmt *stmt = sql_reader_stmt(store, SQL_NODE_LIST, err);
	struct store_node node;
	int row;

	if (!stmt)
		return -ERR_STORE;
	while ((row = sql_row(stmt->conn, stmt, err, "listing nodes")) > 0) {
		sql_text(stmt, 0, node.id, sizeof(node.id));
		sql_text(stmt, 1, node.addr, sizeof(node.addr));
		sql_text(stmt, 2, node.incarnation, sizeof(node.incarnation));
		node.weight_milli = (uint32_t)sql_i64(stmt, 3);
		sql_text(stmt, 4, node.domain, sizeof(node.domain));
		node.seen_wall_us = sql_i64(stmt, 5);
		if (each(owner, &node) != 0)
			break;
	}
	return sql_reader_end(store, stmt, row);
}
