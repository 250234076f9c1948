/* Statements on their way to PostgreSQL and back. */
#include "plug/store_pg.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"

#define PG_ANSWER_US       120000000 /* a server that says nothing for so long is given up */
#define PG_COPY_SEND_BYTES (256 << 10)
#define PG_COPY_MAX_BYTES  (16 << 20)

#define SQL_GREATEST                           "greatest"
#define SQL_INDEXED(index)                     ""
#define SQL_INSERT_ROWS(into, numbered, tuple) "INSERT INTO " into " VALUES (" numbered ")"
static const char *const sql_texts[SQL_COUNT] = {
#define SQL(name, text) [SQL_##name] = text,
#include "plug/store_sql_list.h"
#undef SQL
};

/* Inserts of which there are many: their parameters are the columns here, in order. */
static const char *const pg_copy_texts[SQL_COUNT] = {
	[SQL_ENTRIES_INSERT] = "COPY entries (transfer, seq, type, mode, mtime_ns, size_bytes, path, target, file_id,"
			       " object_offset, digest) FROM STDIN (FORMAT binary)",
	[SQL_OBJECT_INSERT] = "COPY objects (transfer, file_id, is_pack, first_seq, last_seq, size_bytes, chunk_count)"
			      " FROM STDIN (FORMAT binary)",
	[SQL_CHUNKS_INSERT] =
		"COPY chunks (transfer, file_id, chunk_index, size_bytes, state, target_node, actual_node,"
		" digest, updated_us) FROM STDIN (FORMAT binary)",
	[SQL_AUDIT_INSERT] = "COPY audit (id, at_us, kind, transfer_id, \"user\", node_id, outcome, detail, file_id,"
			     " chunk_index, result, size_bytes, algorithm, digest, node_addr, client_addr, request_id,"
			     " user_agent, disk_path, started_us, finished_us, prev_hash, hash)"
			     " FROM STDIN (FORMAT binary)",
};

PGresult *pg_answer(struct pg_conn *conn)
{
	const int64_t give_up_us = clock_mono_us() + PG_ANSWER_US;

	while (!pg_is_lost(conn) && PQisBusy(conn->pg)) {
		struct pollfd wait = { .fd = PQsocket(conn->pg), .events = POLLIN };
		const int64_t left_us = give_up_us - clock_mono_us();

		/* libpq sees the end of a socket only when it reads. */
		if (left_us <= 0 || (poll(&wait, 1, (int)(left_us / 1000) + 1) == 0))
			(void)shutdown(PQsocket(conn->pg), SHUT_RDWR);
		if (!PQconsumeInput(conn->pg))
			break;
	}
	return pg_is_lost(conn) ? NULL : PQgetResult(conn->pg);
}

static void ahead_drop(struct pg_stmt *stmt)
{
	for (size_t i = 0; i < stmt->ahead_count; i++)
		PQclear(stmt->ahead[(stmt->ahead_first + i) % SQL_AHEAD_MAX]);
	stmt->ahead_first = stmt->ahead_count = 0;
}

static void aheads_drop(struct pg_conn *conn)
{
	for (size_t i = 0; i < SQL_COUNT; i++) {
		if (conn->stmts[i])
			ahead_drop(conn->stmts[i]);
	}
}

void pg_drop_copies(struct pg_conn *conn)
{
	for (size_t i = 0; i < SQL_COUNT; i++)
		buf_fini(&conn->copies[i]);
}

void pg_forget(struct pg_conn *conn)
{
	aheads_drop(conn);
	pg_drop_copies(conn);
	conn->pending_count = 0;
	conn->deferred = ERR_INIT;
	conn->is_open = false;
	for (size_t i = 0; i < SQL_COUNT; i++) {
		if (!conn->stmts[i])
			continue;
		pg_reset(&conn->stmts[i]->base);
		conn->stmts[i]->is_prepared = false;
	}
}

/* --- what is under way --- */

static void pending_add(struct pg_conn *conn, enum pg_sort sort, struct pg_stmt *stmt, const char *doing)
{
	MUST(conn->pending_count < PG_PENDING_MAX);
	conn->pending[conn->pending_count++] = (struct pg_pending){ sort, stmt, doing };
}

static void failed(struct pg_conn *conn, const PGresult *result, const char *doing)
{
	struct err err = ERR_INIT;

	(void)pg_fail(conn, result, &err, doing);
	if (conn->deferred.code == ERR_NONE)
		conn->deferred = err;
}

/* Keeps or drops the answer to what was sent. */
static void pending_take(struct pg_conn *conn, const struct pg_pending *pending, PGresult *result)
{
	const ExecStatusType status = PQresultStatus(result);
	const bool is_good = status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;
	struct pg_stmt *stmt = pending->stmt;

	if (!is_good && status != PGRES_PIPELINE_ABORTED)
		failed(conn, result, pending->doing);
	if (!is_good && pending->sort == PG_PREPARE)
		stmt->is_prepared = false;
	if (is_good && pending->sort == PG_RUN)
		conn->changes = strtoll(PQcmdTuples(result), NULL, 10);
	if (is_good && pending->sort == PG_ROWS) {
		PQclear(stmt->result);
		stmt->result = result;
		return;
	}
	if (is_good && pending->sort == PG_AHEAD) {
		stmt->ahead[(stmt->ahead_first + stmt->ahead_count++) % SQL_AHEAD_MAX] = result;
		return;
	}
	PQclear(result);
}

/* The answers to all that was sent, up to the mark behind it. False: the connection is lost. */
static bool pending_answers(struct pg_conn *conn)
{
	PGresult *result;

	if (pg_is_lost(conn) || !PQpipelineSync(conn->pg))
		return false;
	for (size_t i = 0; i < conn->pending_count; i++) {
		result = pg_answer(conn);
		if (!result)
			return false;
		pending_take(conn, &conn->pending[i], result);
		/* Each answer ends with none. */
		result = pg_answer(conn);
		if (result || pg_is_lost(conn)) {
			PQclear(result);
			return false;
		}
	}
	result = pg_answer(conn);
	PQclear(result);
	return result != NULL && !pg_is_lost(conn);
}

static int deferred_tell(struct pg_conn *conn, struct err *err)
{
	const struct err told = conn->deferred;

	if (told.code == ERR_NONE)
		return 0;
	conn->deferred = ERR_INIT;
	aheads_drop(conn);
	if (err)
		*err = told;
	return -(int)told.code;
}

int pg_drain(struct pg_conn *conn, struct err *err)
{
	if (conn->pending_count > 0) {
		if (!pending_answers(conn))
			failed(conn, NULL, conn->pending[0].doing);
		conn->pending_count = 0;
	}
	return deferred_tell(conn, err);
}

void pg_drain_quietly(struct pg_conn *conn)
{
	(void)pg_drain(conn, NULL);
	aheads_drop(conn);
}

/* Room for two more. */
static int pending_room(struct pg_conn *conn, struct err *err, const char *doing)
{
	if (pg_is_lost(conn))
		return pg_fail(conn, NULL, err, doing);
	return conn->pending_count + 2 > PG_PENDING_MAX ? pg_drain(conn, err) : 0;
}

int pg_send_text(struct pg_conn *conn, const char *text, struct err *err, const char *doing)
{
	int result = pending_room(conn, err, doing);

	if (result < 0)
		return result;
	if (!PQsendQueryParams(conn->pg, text, 0, NULL, NULL, NULL, NULL, 0))
		return pg_fail(conn, NULL, err, doing);
	pending_add(conn, PG_RUN, NULL, doing);
	return 0;
}

/* Parameters of the statements are ?N. */
static int prepare(struct pg_conn *conn, struct pg_stmt *stmt, const char *name, struct err *err)
{
	char *text = must_strdup(sql_texts[stmt->id]);
	int is_sent;

	for (char *at = text; (at = strchr(at, '?')); at++)
		*at = '$';
	is_sent = PQsendPrepare(conn->pg, name, text, stmt->param_count, stmt->types);
	free(text);
	if (!is_sent)
		return pg_fail(conn, NULL, err, "preparing a statement of the store");
	pending_add(conn, PG_PREPARE, stmt, "preparing a statement of the store");
	stmt->is_prepared = true;
	return 0;
}

static int send_stmt(struct pg_conn *conn, struct pg_stmt *stmt, enum pg_sort sort, struct err *err, const char *doing)
{
	static const int formats[PG_PARAMS_MAX] = { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
						    1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 };
	char name[16];
	int result = pending_room(conn, err, doing);

	if (result < 0)
		return result;
	(void)snprintf(name, sizeof(name), "s%d", (int)stmt->id);
	if (!stmt->is_prepared && prepare(conn, stmt, name, err) < 0)
		return -ERR_STORE;
	if (!PQsendQueryPrepared(conn->pg, name, stmt->param_count, stmt->values, stmt->lengths, formats, 1))
		return pg_fail(conn, NULL, err, doing);
	pending_add(conn, sort, stmt, doing);
	return 0;
}

int pg_ask(struct pg_conn *conn, const char *text, int count, const char *const *params, char *target,
	   size_t target_size, struct err *err, const char *doing)
{
	struct pg_stmt own = { .row = 0 };
	int result = pg_drain(conn, err);

	target[0] = '\0';
	if (result == 0)
		result = pending_room(conn, err, doing);
	if (result < 0)
		return result;
	if (!PQsendQueryParams(conn->pg, text, count, NULL, params, NULL, NULL, 0))
		return pg_fail(conn, NULL, err, doing);
	pending_add(conn, PG_ROWS, &own, doing);
	result = pg_drain(conn, err);
	if (result == 0 && PQntuples(own.result) > 0)
		(void)str_copy(str_from(PQgetvalue(own.result, 0, 0)), target, target_size);
	PQclear(own.result);
	return result;
}

/* --- outside of the pipeline --- */

/* All answers to a text, until there are no more. */
static int plain_answers(struct pg_conn *conn, struct err *err, const char *doing)
{
	PGresult *result;
	int first = 0;

	while ((result = pg_answer(conn))) {
		const ExecStatusType status = PQresultStatus(result);

		if (first == 0 && status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
			first = pg_fail(conn, result, err, doing);
		PQclear(result);
	}
	if (first == 0 && pg_is_lost(conn))
		first = pg_fail(conn, NULL, err, doing);
	return first;
}

int pg_exec(struct pg_conn *conn, const char *text, struct err *err, const char *doing)
{
	int result = pg_drain(conn, err);

	if (result < 0)
		return result;
	if (pg_is_lost(conn) || !PQexitPipelineMode(conn->pg) || !PQsendQuery(conn->pg, text))
		return pg_fail(conn, NULL, err, doing);
	result = plain_answers(conn, err, doing);
	if (!pg_is_lost(conn))
		MUST(PQenterPipelineMode(conn->pg));
	return result;
}

static int copy_send(struct pg_conn *conn, const struct buf *rows, struct err *err)
{
	static const char doing[] = "writing rows";
	static const char head[19] = "PGCOPY\n\377\r\n\0\0\0\0\0\0\0\0\0", tail[2] = "\377\377";
	PGresult *result = pg_answer(conn);

	if (PQresultStatus(result) != PGRES_COPY_IN) {
		const int failure = pg_fail(conn, result, err, doing);

		PQclear(result);
		(void)plain_answers(conn, NULL, doing);
		return failure;
	}
	PQclear(result);
	if (PQputCopyData(conn->pg, head, sizeof(head)) != 1 ||
	    PQputCopyData(conn->pg, rows->data, (int)rows->size) != 1 ||
	    PQputCopyData(conn->pg, tail, sizeof(tail)) != 1 || PQputCopyEnd(conn->pg, NULL) != 1)
		return pg_fail(conn, NULL, err, doing);
	return plain_answers(conn, err, doing);
}

static int copy_flush(struct pg_conn *conn, enum sql_id id, struct err *err)
{
	struct buf *rows = &conn->copies[id];
	int result = pg_drain(conn, err);

	if (result == 0 && rows->is_failed)
		result = err_set(err, ERR_NO_MEMORY, "gathering rows for the database: no memory");
	if (result < 0)
		return result;
	if (pg_is_lost(conn) || !PQexitPipelineMode(conn->pg) || !PQsendQuery(conn->pg, pg_copy_texts[id]))
		return pg_fail(conn, NULL, err, "writing rows");
	result = copy_send(conn, rows, err);
	buf_clear(rows);
	if (!pg_is_lost(conn))
		MUST(PQenterPipelineMode(conn->pg));
	return result;
}

int pg_flush(struct pg_conn *conn, bool is_all, struct err *err)
{
	int result = 0;

	for (int id = 0; id < SQL_COUNT && result == 0; id++) {
		if (conn->copies[id].size > 0 && (is_all || id != SQL_AUDIT_INSERT))
			result = copy_flush(conn, (enum sql_id)id, err);
	}
	return result;
}

static void put_be(struct buf *rows, uint32_t value, size_t size)
{
	char bytes[4];

	for (size_t i = 0; i < size; i++)
		bytes[i] = (char)(value >> (8 * (size - 1 - i)));
	(void)buf_append(rows, (struct str){ bytes, size });
}

static int copy_add(struct pg_conn *conn, struct pg_stmt *stmt, struct err *err)
{
	struct buf *rows = &conn->copies[stmt->id];

	rows->limit = PG_COPY_MAX_BYTES;
	put_be(rows, (uint32_t)stmt->param_count, 2);
	for (int i = 0; i < stmt->param_count; i++) {
		if (!stmt->values[i]) {
			put_be(rows, UINT32_MAX, 4);
			continue;
		}
		put_be(rows, (uint32_t)stmt->lengths[i], 4);
		(void)buf_append(rows, (struct str){ stmt->values[i], (size_t)stmt->lengths[i] });
	}
	return rows->size >= PG_COPY_SEND_BYTES || rows->is_failed ? copy_flush(conn, stmt->id, err) : 0;
}

/* --- as the engine's table names them --- */

int pg_run(struct sql_stmt *base, struct err *err, const char *doing)
{
	struct pg_conn *conn = pg_conn_of(base->conn);
	struct pg_stmt *stmt = pg_stmt_of(base);
	int result;

	if (pg_copy_texts[stmt->id])
		return pg_is_lost(conn) ? pg_fail(conn, NULL, err, doing) : copy_add(conn, stmt, err);
	if (stmt->id == SQL_SAVE_UNDO) {
		pg_drop_copies(conn);
		pg_drain_quietly(conn);
	}
	result = pg_flush(conn, false, err);
	if (result == 0)
		result = send_stmt(conn, stmt, PG_RUN, err, doing);
	return result;
}

int pg_ahead(struct sql_stmt *base, struct err *err)
{
	struct pg_conn *conn = pg_conn_of(base->conn);
	int result = pg_flush(conn, false, err);

	return result < 0 ? result : send_stmt(conn, pg_stmt_of(base), PG_AHEAD, err, "asking for rows");
}

static bool is_asked(const struct pg_conn *conn, const struct pg_stmt *stmt)
{
	for (size_t i = 0; i < conn->pending_count; i++) {
		if (conn->pending[i].stmt == stmt && conn->pending[i].sort == PG_AHEAD)
			return true;
	}
	return false;
}

static int rows_ask(struct pg_conn *conn, struct pg_stmt *stmt, struct err *err, const char *doing)
{
	int result = pg_flush(conn, false, err);

	if (result == 0)
		result = send_stmt(conn, stmt, PG_ROWS, err, doing);
	return result == 0 ? pg_drain(conn, err) : result;
}

/* Fills stmt->result. Outside of a transaction a statement that was lost with its connection is asked once more: it only reads. */
static int rows_get(struct pg_conn *conn, struct pg_stmt *stmt, struct err *err, const char *doing)
{
	int result;

	if (stmt->ahead_count == 0 && is_asked(conn, stmt)) {
		result = pg_drain(conn, err);
		if (result < 0)
			return result;
	}
	if (stmt->ahead_count > 0) {
		stmt->result = stmt->ahead[stmt->ahead_first];
		stmt->ahead_first = (stmt->ahead_first + 1) % SQL_AHEAD_MAX;
		stmt->ahead_count--;
		return 0;
	}
	result = rows_ask(conn, stmt, err, doing);
	if (result < 0 && pg_is_lost(conn) && !conn->is_writer) {
		result = pg_connect(conn, err);
		if (result == 0)
			result = rows_ask(conn, stmt, err, doing);
	}
	return result;
}

int pg_row(struct sql_stmt *base, struct err *err, const char *doing)
{
	struct pg_stmt *stmt = pg_stmt_of(base);
	int result = 0;

	if (!stmt->result) {
		stmt->row = -1;
		result = rows_get(pg_conn_of(base->conn), stmt, err, doing);
	}
	if (result == 0 && ++stmt->row < PQntuples(stmt->result))
		return 1;
	pg_reset(base);
	return result;
}

void pg_reset(struct sql_stmt *base)
{
	struct pg_stmt *stmt = pg_stmt_of(base);

	PQclear(stmt->result);
	stmt->result = NULL;
}

int64_t pg_changes(struct sql_conn *base, struct err *err)
{
	struct pg_conn *conn = pg_conn_of(base);
	const int result = pg_drain(conn, err);

	return result < 0 ? result : conn->changes;
}
