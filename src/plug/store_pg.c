/* The PostgreSQL engine: transactions, statements, values. */
#include "plug/store_pg.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define OID_BYTEA 17
#define OID_INT8  20
#define OID_TEXT  25

static void engine_close(struct sql_conn *base)
{
	struct pg_conn *conn = pg_conn_of(base);
	const char *params[] = { conn->name };
	char answer[8];

	/* Its row is of use only while a commit's fate may be asked for. */
	if (conn->is_writer && conn->serial > 0 && !pg_is_lost(conn))
		(void)pg_ask(conn, "DELETE FROM heng_writers WHERE id=$1", 1, params, answer, sizeof(answer), NULL,
			     "taking leave");
	pg_forget(conn);
	PQfinish(conn->pg);
	for (size_t i = 0; i < SQL_COUNT; i++) {
		for (int j = 0; conn->stmts[i] && j < PG_PARAMS_MAX; j++)
			free(conn->stmts[i]->cleaned[j]);
		free(conn->stmts[i]);
	}
	free(conn->where);
	free(conn);
}

static int engine_open(const char *where, bool is_writer, struct sql_conn **ret_conn, struct err *err)
{
	struct pg_conn *conn = must_zalloc(1, sizeof(*conn));
	char id[ULID_SIZE];
	int result;

	ulid_make(clock_wall_us(), id);
	(void)snprintf(conn->name, sizeof(conn->name), "heng-%s", id);
	conn->base.engine = &sql_engine_pg;
	conn->where = must_strdup(where);
	conn->is_writer = is_writer;
	result = pg_connect(conn, err);
	if (result < 0)
		sql_conn_close(&conn->base);
	else
		*ret_conn = &conn->base;
	return result;
}

/* The server's last word, or its end, lies in the socket. */
static bool engine_is_alive(struct sql_conn *base)
{
	struct pg_conn *conn = pg_conn_of(base);

	return !pg_is_lost(conn) && PQconsumeInput(conn->pg) && !pg_is_lost(conn);
}

static int engine_begin(struct sql_conn *base, struct err *err)
{
	struct pg_conn *conn = pg_conn_of(base);
	int result = 0;

	conn->is_retryable = conn->is_taken_back = false;
	if (!engine_is_alive(base))
		result = pg_connect(conn, err);
	if (result < 0)
		return result;
	/* What is lost from here on, before the commit, was never kept. */
	conn->is_retryable = true;
	conn->is_open = true;
	return pg_send_text(conn, "BEGIN", err, "starting a transaction");
}

static int engine_settle(struct sql_conn *base, struct err *err)
{
	const int result = pg_flush(pg_conn_of(base), true, err);

	return result == 0 ? pg_drain(pg_conn_of(base), err) : result;
}

static void engine_rollback(struct sql_conn *base)
{
	struct pg_conn *conn = pg_conn_of(base);

	pg_drop_copies(conn);
	pg_drain_quietly(conn);
	if (pg_send_text(conn, "ROLLBACK", NULL, "rolling a transaction back") == 0)
		pg_drain_quietly(conn);
	conn->is_open = false;
}

static bool engine_is_in_transaction(struct sql_conn *base)
{
	struct pg_conn *conn = pg_conn_of(base);

	return conn->is_open && !pg_is_lost(conn);
}

/* The connection went while a commit was under way. The writer's lock is given only when the former session has ended, one way or the other; then the
 * number of the last transaction that was kept tells. */
static int commit_fate(struct pg_conn *conn, struct err *err)
{
	const int64_t serial = conn->serial;
	const char *params[] = { conn->name };
	char kept[24];
	int result = pg_connect(conn, err);

	if (result == 0)
		result = pg_ask(conn, "SELECT serial FROM heng_writers WHERE id=$1", 1, params, kept, sizeof(kept), err,
				"asking whether a transaction was kept");
	if (result < 0) {
		conn->is_retryable = false;
		return err_wrap(err,
				"the connection was lost while a transaction was being committed; it may have been "
				"kept");
	}
	if (strtoll(kept, NULL, 10) == serial)
		return 0;
	conn->is_retryable = conn->is_taken_back = true;
	return err_set(err, ERR_STORE, "the connection to PostgreSQL was lost before a transaction was committed");
}

static int engine_commit(struct sql_conn *base, struct err *err)
{
	static const char doing[] = "committing a transaction";
	struct pg_conn *conn = pg_conn_of(base);
	char mark[256];
	int result = engine_settle(base, err);

	if (result < 0)
		return result;
	conn->serial++;
	(void)snprintf(mark, sizeof(mark),
		       "INSERT INTO heng_writers (id, serial, seen) VALUES ('%s', %" PRId64 ", now())"
		       " ON CONFLICT (id) DO UPDATE SET serial=excluded.serial, seen=excluded.seen",
		       conn->name, conn->serial);
	result = pg_send_text(conn, mark, err, doing);
	if (result == 0)
		result = pg_send_text(conn, "COMMIT", err, doing);
	if (result == 0)
		result = pg_drain(conn, err);
	if (result < 0 && pg_is_lost(conn))
		return commit_fate(conn, err);
	if (result == 0)
		conn->is_open = false;
	return result;
}

/* What was taken back with its connection may be run again: begin makes a new one. What failed by itself would fail again. */
static int engine_mend(struct sql_conn *base, struct err *err)
{
	struct pg_conn *conn = pg_conn_of(base);

	(void)err;
	return conn->is_retryable && (pg_is_lost(conn) || conn->is_taken_back) ? 0 : -ERR_STORE;
}

/* --- statements and values --- */

static struct sql_stmt *engine_stmt(struct sql_conn *base, enum sql_id id, struct err *err)
{
	struct pg_conn *conn = pg_conn_of(base);

	(void)err;
	if (!conn->stmts[id]) {
		conn->stmts[id] = must_zalloc(1, sizeof(*conn->stmts[id]));
		conn->stmts[id]->base.conn = base;
		conn->stmts[id]->id = id;
	}
	return &conn->stmts[id]->base;
}

static void bind(struct sql_stmt *base, int index, Oid type, const char *data, size_t size)
{
	struct pg_stmt *stmt = pg_stmt_of(base);
	const int i = index - 1;

	MUST(i >= 0 && i < PG_PARAMS_MAX && size <= INT32_MAX);
	if (index > stmt->param_count)
		stmt->param_count = index;
	/* What was prepared while it was NULL has the type of its column, which is the same. */
	if (type != 0)
		stmt->types[i] = type;
	stmt->values[i] = data;
	stmt->lengths[i] = (int)size;
}

/* Bytes that are no text, which a header or a cut may bring, would be refused with all that is written beside them. */
static struct str text_valid(struct pg_stmt *stmt, int i, struct str text)
{
	char *copy;

	if (utf8_is_valid(text) && (text.size == 0 || !memchr(text.data, '\0', text.size)))
		return text;
	copy = must_alloc(text.size);
	for (size_t at = 0; at < text.size;) {
		const size_t size = utf8_char_size((struct str){ text.data + at, text.size - at });

		memcpy(copy + at, text.data + at, size > 0 ? size : 1);
		if (size == 0 || text.data[at] == '\0')
			copy[at] = '?';
		at += size > 0 ? size : 1;
	}
	free(stmt->cleaned[i]);
	stmt->cleaned[i] = copy;
	return (struct str){ copy, text.size };
}

static void engine_bind_str(struct sql_stmt *stmt, int index, struct str text)
{
	text = text_valid(pg_stmt_of(stmt), index - 1, text);
	bind(stmt, index, OID_TEXT, text.size ? text.data : "", text.size);
}

static void engine_bind_text(struct sql_stmt *stmt, int index, const char *text)
{
	if (text)
		engine_bind_str(stmt, index, str_from(text));
	else
		bind(stmt, index, OID_TEXT, NULL, 0);
}

static void engine_bind_bytes(struct sql_stmt *stmt, int index, struct str bytes)
{
	bind(stmt, index, OID_BYTEA, bytes.size ? bytes.data : "", bytes.size);
}

static void engine_bind_i64(struct sql_stmt *base, int index, int64_t value)
{
	char *number = pg_stmt_of(base)->numbers[index - 1];

	for (int i = 0; i < 8; i++)
		number[i] = (char)((uint64_t)value >> (56 - 8 * i));
	bind(base, index, OID_INT8, number, 8);
}

static void engine_bind_null(struct sql_stmt *stmt, int index) { bind(stmt, index, 0, NULL, 0); }

static struct str engine_bytes(struct sql_stmt *base, int column)
{
	const struct pg_stmt *stmt = pg_stmt_of(base);

	if (PQgetisnull(stmt->result, stmt->row, column))
		return (struct str){ NULL, 0 };
	return (struct str){ PQgetvalue(stmt->result, stmt->row, column),
			     (size_t)PQgetlength(stmt->result, stmt->row, column) };
}

/* bigint, integer or boolean: big-endian, of as many bytes as it has. */
static int64_t engine_i64(struct sql_stmt *base, int column)
{
	const struct str bytes = engine_bytes(base, column);
	uint64_t value = bytes.size > 0 && (bytes.data[0] & 0x80) ? UINT64_MAX : 0;

	for (size_t i = 0; i < bytes.size && i < 8; i++)
		value = value << 8 | (unsigned char)bytes.data[i];
	return (int64_t)value;
}

static bool engine_is_null(struct sql_stmt *base, int column)
{
	const struct pg_stmt *stmt = pg_stmt_of(base);

	return PQgetisnull(stmt->result, stmt->row, column) != 0;
}

const struct sql_engine sql_engine_pg = {
	.name = "postgresql",
	.row_count = 1, /* gathered below, for COPY */
	.open = engine_open,
	.close = engine_close,
	.migrate = pg_migrate,
	.is_alive = engine_is_alive,
	.begin = engine_begin,
	.commit = engine_commit,
	.rollback = engine_rollback,
	.is_in_transaction = engine_is_in_transaction,
	.settle = engine_settle,
	.mend = engine_mend,
	.stmt = engine_stmt,
	.bind_text = engine_bind_text,
	.bind_str = engine_bind_str,
	.bind_bytes = engine_bind_bytes,
	.bind_i64 = engine_bind_i64,
	.bind_null = engine_bind_null,
	.run = pg_run,
	.row = pg_row,
	.ahead = pg_ahead,
	.reset = pg_reset,
	.changes = pg_changes,
	.bytes = engine_bytes,
	.i64 = engine_i64,
	.is_null = engine_is_null,
};

int store_pg_open(const char *url, struct store **ret_store, struct err *err)
{
	const int result = pg_where_check(url, err);

	return result < 0 ? result : sql_open(&sql_engine_pg, url, ret_store, err);
}
