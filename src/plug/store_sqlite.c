/* The SQLite engine: a file with a write-ahead log. */
#include "plug/store_sqlite.h"

#include <stdlib.h>
#include <string.h>

#define SQL_BUSY_MS 10000 /* somebody with the sqlite3 shell may hold the lock */

#define SQL_GREATEST       "max"
#define SQL_INDEXED(index) " INDEXED BY " #index
/* A statement of sixteen rows costs about half of sixteen statements; what is left out lets it serve the last, shorter batch too. */
#define TUPLES4(tuple) tuple "," tuple "," tuple "," tuple
#define SQL_INSERT_ROWS(into, numbered, tuple)                                                       \
	"INSERT INTO " into " SELECT * FROM (VALUES " TUPLES4(tuple) "," TUPLES4(tuple) "," TUPLES4( \
		tuple) "," TUPLES4(tuple) ") WHERE column1 NOT NULL"
#define ROW_COUNT 16
static const char *const sql_texts[SQL_COUNT] = {
#define SQL(name, text) [SQL_##name] = text,
#include "plug/store_sql_list.h"
#undef SQL
};

int sqlite_fail(struct sqlite_conn *conn, struct err *err, const char *doing)
{
	const int code = sqlite3_extended_errcode(conn->db);
	const int number = sqlite3_system_errno(conn->db);

	/* By the time SQLite asks for it, the system's word may be gone: "Success" is none. */
	if (number != 0 && ((code & 0xff) == SQLITE_IOERR || (code & 0xff) == SQLITE_CANTOPEN))
		err_sys(err, ERR_STORE, number, "%s: %s (SQLite %d)", doing, sqlite3_errmsg(conn->db), code);
	else
		err_set(err, ERR_STORE, "%s: %s (SQLite %d)", doing, sqlite3_errmsg(conn->db), code);
	switch (code & 0xff) {
	case SQLITE_FULL:
		err_hint(err, "free space on the disk that holds the scheduler's database, then try again");
		break;
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
		err_hint(err, "another program holds the database's lock: end its transaction");
		break;
	case SQLITE_READONLY:
	case SQLITE_CANTOPEN:
		err_hint(err,
			 "the folder must exist and this user must be able to write to it and to the database file");
		break;
	case SQLITE_CORRUPT:
	case SQLITE_NOTADB:
		err_hint(err, "check it with: sqlite3 FILE 'pragma integrity_check'; restore a backup if that fails");
		break;
	default:
		break;
	}
	return -ERR_STORE;
}

/* FULL: a commit that was answered survives a power cut. secure_delete: Debian's default rewrites every freed page. */
static const char writer_pragmas[] = "PRAGMA synchronous=FULL; PRAGMA secure_delete=fast; PRAGMA foreign_keys=OFF;"
				     "PRAGMA temp_store=MEMORY; PRAGMA cache_size=-65536;"
				     "PRAGMA journal_size_limit=67108864; PRAGMA trusted_schema=OFF";
static const char reader_pragmas[] =
	"PRAGMA query_only=ON; PRAGMA temp_store=MEMORY; PRAGMA cache_size=-8192; PRAGMA trusted_schema=OFF";

/* SQLite answers with the mode it could get: on a network file system that is not WAL, and then nothing here would be safe. */
static int conn_wal(struct sqlite_conn *conn, struct err *err)
{
	sqlite3_stmt *stmt = NULL;
	char mode[16] = "";

	if (sqlite3_prepare_v2(conn->db, "PRAGMA journal_mode=WAL", -1, &stmt, NULL) == SQLITE_OK &&
	    sqlite3_step(stmt) == SQLITE_ROW)
		(void)str_copy(str_from((const char *)sqlite3_column_text(stmt, 0)), mode, sizeof(mode));
	if (mode[0] == '\0')
		(void)sqlite_fail(conn, err, "switching the database to write-ahead logging");
	sqlite3_finalize(stmt);
	if (mode[0] == '\0')
		return -ERR_STORE;
	if (strcmp(mode, "wal") != 0) {
		err_set(err, ERR_STORE,
			"the database cannot use write-ahead logging where it lies (it stays in mode '%s')", mode);
		err_hint(err, "put it on a local file system");
		return -ERR_STORE;
	}
	return 0;
}

static int conn_set_up(struct sqlite_conn *conn, bool is_writer, struct err *err)
{
	sqlite3_extended_result_codes(conn->db, 1);
	sqlite3_busy_timeout(conn->db, SQL_BUSY_MS);
	sqlite3_db_config(conn->db, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0, NULL);
	sqlite3_db_config(conn->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
	if (is_writer && conn_wal(conn, err) < 0)
		return -ERR_STORE;
	if (sqlite3_exec(conn->db, is_writer ? writer_pragmas : reader_pragmas, NULL, NULL, NULL) != SQLITE_OK)
		return sqlite_fail(conn, err, "setting the connection up");
	return 0;
}

static void engine_close(struct sql_conn *base)
{
	struct sqlite_conn *conn = sqlite_conn_of(base);

	sqlite_checkpoint_stop(conn);
	for (size_t i = 0; i < SQL_COUNT; i++)
		sqlite3_finalize(conn->stmts[i].handle);
	MUST(sqlite3_close(conn->db) == SQLITE_OK); /* fails only while a statement is left */
	free(conn->where);
	free(conn);
}

/* SQLite counts its memory under a lock that each allocation takes, for a figure that nobody asks for. */
static void sqlite_set_up(void) { (void)sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0); }

static int engine_open(const char *where, bool is_writer, struct sql_conn **ret_conn, struct err *err)
{
	static pthread_once_t set_up_once = PTHREAD_ONCE_INIT;
	const int flags = SQLITE_OPEN_NOMUTEX |
			  (is_writer ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE : SQLITE_OPEN_READONLY);
	struct sqlite_conn *conn = must_zalloc(1, sizeof(*conn));

	conn->base.engine = &sql_engine_sqlite;
	conn->where = must_strdup(where);
	(void)pthread_once(&set_up_once, sqlite_set_up);
	if (sqlite3_open_v2(where, &conn->db, flags, NULL) != SQLITE_OK) {
		if (!conn->db)
			(void)err_set(err, ERR_STORE, "opening it: no memory");
		else
			(void)sqlite_fail(conn, err, "opening it");
	} else if (conn_set_up(conn, is_writer, err) == 0 && (!is_writer || sqlite_checkpoint_start(conn, err) == 0)) {
		*ret_conn = &conn->base;
		return 0;
	}
	err_wrap(err, "database '%s'", where);
	sql_conn_close(&conn->base);
	return -ERR_STORE;
}

/* A file does not go away. */
static bool engine_is_alive(struct sql_conn *base)
{
	(void)base;
	return true;
}

int sqlite_exec(struct sqlite_conn *conn, const char *sql, struct err *err, const char *doing)
{
	return sqlite3_exec(conn->db, sql, NULL, NULL, NULL) == SQLITE_OK ? 0 : sqlite_fail(conn, err, doing);
}

static int engine_begin(struct sql_conn *base, struct err *err)
{
	return sqlite_exec(sqlite_conn_of(base), "BEGIN IMMEDIATE", err, "starting a transaction");
}

static int engine_commit(struct sql_conn *base, struct err *err)
{
	return sqlite_exec(sqlite_conn_of(base), "COMMIT", err, "committing a transaction");
}

static void engine_rollback(struct sql_conn *base)
{
	(void)sqlite_exec(sqlite_conn_of(base), "ROLLBACK", NULL, "rolling a transaction back");
}

static bool engine_is_in_transaction(struct sql_conn *base)
{
	return !sqlite3_get_autocommit(sqlite_conn_of(base)->db);
}

/* Whatever was run has been done, well or not. */
static int engine_settle(struct sql_conn *base, struct err *err)
{
	(void)base, (void)err;
	return 0;
}

/* A disk that failed is not mended by trying again. */
static int engine_mend(struct sql_conn *base, struct err *err)
{
	(void)base, (void)err;
	return -ERR_STORE;
}

static struct sql_stmt *engine_stmt(struct sql_conn *base, enum sql_id id, struct err *err)
{
	struct sqlite_conn *conn = sqlite_conn_of(base);
	struct sqlite_stmt *stmt = &conn->stmts[id];

	if (!stmt->handle && sqlite3_prepare_v3(conn->db, sql_texts[id], -1, SQLITE_PREPARE_PERSISTENT, &stmt->handle,
						NULL) != SQLITE_OK) {
		(void)sqlite_fail(conn, err, "preparing a statement of the store");
		return NULL;
	}
	stmt->base.conn = base;
	return &stmt->base;
}

static sqlite3_stmt *handle_of(struct sql_stmt *base) { return CONTAINER_OF(base, struct sqlite_stmt, base)->handle; }

static int engine_row(struct sql_stmt *stmt, struct err *err, const char *doing)
{
	const int rc = sqlite3_step(handle_of(stmt));

	if (rc == SQLITE_ROW)
		return 1;
	if (rc != SQLITE_DONE)
		(void)sqlite_fail(sqlite_conn_of(stmt->conn), err, doing);
	sqlite3_reset(handle_of(stmt));
	return rc == SQLITE_DONE ? 0 : -ERR_STORE;
}

static int engine_run(struct sql_stmt *stmt, struct err *err, const char *doing)
{
	const int row = engine_row(stmt, err, doing);

	MUST(row <= 0);
	return row;
}

static void engine_reset(struct sql_stmt *stmt) { sqlite3_reset(handle_of(stmt)); }

static int engine_ahead(struct sql_stmt *stmt, struct err *err)
{
	(void)stmt, (void)err;
	return 0;
}

static int64_t engine_changes(struct sql_conn *base, struct err *err)
{
	(void)err;
	return sqlite3_changes(sqlite_conn_of(base)->db);
}

/* What can fail here is a wrong index (our mistake) or memory for a small copy. */
static void engine_bind_text(struct sql_stmt *stmt, int index, const char *text)
{
	MUST(sqlite3_bind_text(handle_of(stmt), index, text, -1, SQLITE_STATIC) == SQLITE_OK);
}

static void engine_bind_str(struct sql_stmt *stmt, int index, struct str text)
{
	MUST(sqlite3_bind_text64(handle_of(stmt), index, text.size ? text.data : "", text.size, SQLITE_STATIC,
				 SQLITE_UTF8) == SQLITE_OK);
}

static void engine_bind_bytes(struct sql_stmt *stmt, int index, struct str bytes)
{
	MUST(sqlite3_bind_blob64(handle_of(stmt), index, bytes.size ? bytes.data : "", bytes.size, SQLITE_STATIC) ==
	     SQLITE_OK);
}

static void engine_bind_i64(struct sql_stmt *stmt, int index, int64_t value)
{
	MUST(sqlite3_bind_int64(handle_of(stmt), index, value) == SQLITE_OK);
}

static void engine_bind_null(struct sql_stmt *stmt, int index)
{
	MUST(sqlite3_bind_null(handle_of(stmt), index) == SQLITE_OK);
}

static struct str engine_bytes(struct sql_stmt *stmt, int column)
{
	const char *data = sqlite3_column_blob(handle_of(stmt), column);

	return (struct str){ data, data ? (size_t)sqlite3_column_bytes(handle_of(stmt), column) : 0 };
}

static int64_t engine_i64(struct sql_stmt *stmt, int column) { return sqlite3_column_int64(handle_of(stmt), column); }

static bool engine_is_null(struct sql_stmt *stmt, int column)
{
	return sqlite3_column_type(handle_of(stmt), column) == SQLITE_NULL;
}

const struct sql_engine sql_engine_sqlite = {
	.name = "sqlite",
	.row_count = ROW_COUNT,
	.open = engine_open,
	.close = engine_close,
	.migrate = sqlite_migrate,
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
	.run = engine_run,
	.row = engine_row,
	.ahead = engine_ahead,
	.reset = engine_reset,
	.changes = engine_changes,
	.bytes = engine_bytes,
	.i64 = engine_i64,
	.is_null = engine_is_null,
};

int store_sqlite_open(const char *path, struct store **ret_store, struct err *err)
{
	return sql_open(&sql_engine_sqlite, path, ret_store, err);
}

int store_sqlite_open_audit(const char *path, struct store **ret_store, struct err *err)
{
	return sql_open_audit(&sql_engine_sqlite, path, ret_store, err);
}
