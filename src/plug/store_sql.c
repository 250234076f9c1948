#include "plug/store_sql.h"

#include <stdlib.h>
#include <string.h>

#define SQL_READERS_IDLE_MAX 8

void sql_conn_close(struct sql_conn *conn)
{
	audit_hasher_free(&conn->audit.hasher);
	conn->engine->close(conn);
}

int sql_begin(struct sql_conn *conn, struct err *err)
{
	/* Another process may have written since: the chain's end is read anew. */
	conn->audit.is_read = conn->audit.is_moved = false;
	return conn->engine->begin(conn, err);
}

int sql_commit(struct sql_conn *conn, struct err *err)
{
	struct sql_stmt *stmt;

	if (conn->audit.is_moved) {
		stmt = sql_stmt(conn, SQL_AUDIT_HEAD_SET, err);
		if (!stmt)
			return -ERR_STORE;
		sql_bind_u64(stmt, 1, conn->audit.last.id);
		sql_bind_bytes(stmt, 2, (struct str){ (const char *)conn->audit.last.hash, AUDIT_HASH_SIZE });
		if (sql_run(conn, stmt, err, "keeping the end of the audit's chain") < 0)
			return -ERR_STORE;
	}
	return conn->engine->commit(conn, err);
}

int sql_run_id(struct sql_conn *conn, enum sql_id id, struct err *err, const char *doing)
{
	struct sql_stmt *stmt = sql_stmt(conn, id, err);

	return stmt ? sql_run(conn, stmt, err, doing) : -ERR_STORE;
}

void sql_bind_u64(struct sql_stmt *stmt, int index, uint64_t value)
{
	sql_bind_i64(stmt, index, sql_fits(value) ? (int64_t)value : INT64_MAX);
}

void sql_text(struct sql_stmt *stmt, int column, char *target, size_t target_size)
{
	struct str text = sql_bytes(stmt, column);

	if (text.size >= target_size)
		text.size = target_size - 1;
	if (text.size)
		memcpy(target, text.data, text.size);
	target[text.size] = '\0';
}

uint64_t sql_u64(struct sql_stmt *stmt, int column)
{
	int64_t value = sql_i64(stmt, column);

	return value > 0 ? (uint64_t)value : 0;
}

/* What lay idle while its server went away is of no use: the next is tried, and in the end a new one is made. */
struct sql_conn *sql_reader_get(struct sql_store *store, struct err *err)
{
	struct sql_conn *conn;

	do {
		pthread_mutex_lock(&store->readers_lock);
		conn = store->readers;
		if (conn) {
			store->readers = conn->next;
			store->idle_count--;
		}
		pthread_mutex_unlock(&store->readers_lock);
		if (conn && conn->engine->is_alive(conn))
			return conn;
		if (conn)
			sql_conn_close(conn);
	} while (conn);
	return store->engine->open(store->where, false, &conn, err) < 0 ? NULL : conn;
}

void sql_reader_put(struct sql_store *store, struct sql_conn *conn)
{
	bool is_kept;

	pthread_mutex_lock(&store->readers_lock);
	is_kept = store->idle_count < SQL_READERS_IDLE_MAX;
	if (is_kept) {
		conn->next = store->readers;
		store->readers = conn;
		store->idle_count++;
	}
	pthread_mutex_unlock(&store->readers_lock);
	if (!is_kept)
		sql_conn_close(conn);
}

struct sql_stmt *sql_reader_stmt(struct store *store, enum sql_id id, struct err *err)
{
	struct sql_conn *conn = sql_reader_get(sql_store_of(store), err);
	struct sql_stmt *stmt = conn ? sql_stmt(conn, id, err) : NULL;

	if (conn && !stmt)
		sql_reader_put(sql_store_of(store), conn);
	return stmt;
}

int sql_reader_end(struct store *store, struct sql_stmt *stmt, int row)
{
	struct sql_conn *conn = stmt->conn;

	sql_reset(stmt);
	sql_reader_put(sql_store_of(store), conn);
	return row < 0 ? row : 0;
}

static void sql_close(struct store *store)
{
	struct sql_store *sql = sql_store_of(store);
	struct sql_conn *conn;

	sql_writer_stop(&sql->writer);
	while ((conn = sql->readers)) {
		sql->readers = conn->next;
		sql_conn_close(conn);
	}
	/* Last, so that SQLite can fold the write-ahead log into the file. */
	sql_conn_close(sql->writer.conn);
	pthread_mutex_destroy(&sql->readers_lock);
	free(sql->where);
	free(sql);
}

/* --- for looking at the audit alone --- */

static void sql_close_audit(struct store *store)
{
	struct sql_store *sql = sql_store_of(store);
	struct sql_conn *conn;

	while ((conn = sql->readers)) {
		sql->readers = conn->next;
		sql_conn_close(conn);
	}
	pthread_mutex_destroy(&sql->readers_lock);
	free(sql->where);
	free(sql);
}

static const struct store_ops sql_audit_ops = {
	.close = sql_close_audit,
	.audit_rows = sql_audit_rows,
	.audit_head = sql_audit_head,
};

int sql_open_audit(const struct sql_engine *engine, const char *where, struct store **ret_store, struct err *err)
{
	struct sql_store *sql = must_zalloc(1, sizeof(*sql));
	struct audit_head head;
	int result;

	pthread_mutex_init(&sql->readers_lock, NULL);
	sql->engine = engine;
	sql->where = must_strdup(where);
	sql->store.ops = &sql_audit_ops;
	result = sql_audit_head(&sql->store, &head, err);
	if (result < 0) {
		err_wrap(err, "looking at the audit in '%s'", where);
		sql_close_audit(&sql->store);
		return result;
	}
	*ret_store = &sql->store;
	return 0;
}

static const struct store_ops sql_ops = {
	.close = sql_close,
	.plan_begin = sql_plan_begin,
	.plan_entry = sql_plan_entry,
	.plan_object = sql_plan_object,
	.plan_chunk = sql_plan_chunk,
	.plan_commit = sql_plan_commit,
	.plan_abort = sql_plan_abort,
	.revise_begin = sql_revise_begin,
	.revise_drop = sql_revise_drop,
	.revise_row = sql_revise_row,
	.revise_commit = sql_revise_commit,
	.transfer_get = sql_transfer_get,
	.transfer_by_batch = sql_transfer_by_batch,
	.transfer_list = sql_transfer_list,
	.transfers_idle = sql_transfers_idle,
	.transfers_uncleaned = sql_transfers_uncleaned,
	.transfer_move = sql_transfer_move,
	.transfer_note = sql_transfer_note,
	.chunks = sql_chunks,
	.objects = sql_objects,
	.entries = sql_entries,
	.chunk_counts = sql_chunk_counts,
	.receipts = sql_receipts,
	.bind_digests = sql_bind_digests,
	.chunks_reopen = sql_chunks_reopen,
	.copies_set = sql_copies_set,
	.chunks_lose = sql_chunks_lose,
	.node_save = sql_node_save,
	.node_list = sql_node_list,
	.order_save = sql_order_save,
	.order_list = sql_order_list,
	.audit = sql_audit_row,
	.audit_rows = sql_audit_rows,
	.audit_head = sql_audit_head,
	.audit_cut = sql_audit_cut,
};

int sql_open(const struct sql_engine *engine, const char *where, struct store **ret_store, struct err *err)
{
	struct sql_store *sql = must_zalloc(1, sizeof(*sql));
	int result = engine->open(where, true, &sql->writer.conn, err);

	if (result < 0)
		goto no_conn;
	result = engine->migrate(sql->writer.conn, err);
	if (result == 0)
		result = sql_writer_start(&sql->writer, err);
	if (result < 0)
		goto no_writer;
	pthread_mutex_init(&sql->readers_lock, NULL);
	sql->engine = engine;
	sql->where = must_strdup(where);
	sql->store.ops = &sql_ops;
	*ret_store = &sql->store;
	return 0;
no_writer:
	sql_conn_close(sql->writer.conn);
no_conn:
	free(sql);
	return result;
}
