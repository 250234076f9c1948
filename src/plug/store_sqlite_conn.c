#include "plug/store_sqlite.h"

#include <stdlib.h>
#include <string.h>

#define SQL_BUSY_MS          10000 /* somebody with the sqlite3 shell may hold the lock */
#define SQL_READERS_IDLE_MAX 8

static const char *const sql_texts[SQL_COUNT] = {
#define SQL(name, text) [SQL_##name] = text,
#include "plug/store_sqlite_list.h"
#undef SQL
};

int sql_fail(struct sql_conn *conn, struct err *err, const char *doing)
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
static const char writer_pragmas[] =
	"PRAGMA synchronous=FULL; PRAGMA secure_delete=fast; PRAGMA foreign_keys=OFF;"
	"PRAGMA temp_store=MEMORY; PRAGMA cache_size=-65536; PRAGMA wal_autocheckpoint=4000;"
	"PRAGMA journal_size_limit=67108864; PRAGMA trusted_schema=OFF";
static const char reader_pragmas[] =
	"PRAGMA query_only=ON; PRAGMA temp_store=MEMORY; PRAGMA cache_size=-8192; PRAGMA trusted_schema=OFF";

/* SQLite answers with the mode it could get: on a network file system that is not WAL, and then nothing here would be safe. */
static int conn_wal(struct sql_conn *conn, struct err *err)
{
	sqlite3_stmt *stmt = NULL;
	char mode[16] = "";

	if (sqlite3_prepare_v2(conn->db, "PRAGMA journal_mode=WAL", -1, &stmt, NULL) == SQLITE_OK &&
	    sqlite3_step(stmt) == SQLITE_ROW)
		sql_text(stmt, 0, mode, sizeof(mode));
	if (mode[0] == '\0')
		(void)sql_fail(conn, err, "switching the database to write-ahead logging");
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

static int conn_set_up(struct sql_conn *conn, bool is_writer, struct err *err)
{
	sqlite3_extended_result_codes(conn->db, 1);
	sqlite3_busy_timeout(conn->db, SQL_BUSY_MS);
	sqlite3_db_config(conn->db, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0, NULL);
	sqlite3_db_config(conn->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
	if (is_writer && conn_wal(conn, err) < 0)
		return -ERR_STORE;
	if (sqlite3_exec(conn->db, is_writer ? writer_pragmas : reader_pragmas, NULL, NULL, NULL) != SQLITE_OK)
		return sql_fail(conn, err, "setting the connection up");
	return 0;
}

int sql_conn_open(const char *path, bool is_writer, struct sql_conn *conn, struct err *err)
{
	int flags = SQLITE_OPEN_NOMUTEX |
		    (is_writer ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE : SQLITE_OPEN_READONLY);

	memset(conn, 0, sizeof(*conn));
	if (sqlite3_open_v2(path, &conn->db, flags, NULL) != SQLITE_OK) {
		if (!conn->db)
			return err_set(err, ERR_NO_MEMORY, "opening database '%s': no memory", path);
		(void)sql_fail(conn, err, "opening it");
	} else if (conn_set_up(conn, is_writer, err) == 0) {
		return 0;
	}
	sql_conn_close(conn);
	err_wrap(err, "database '%s'", path);
	return -ERR_STORE;
}

void sql_conn_close(struct sql_conn *conn)
{
	for (size_t i = 0; i < SQL_COUNT; i++)
		sqlite3_finalize(conn->stmts[i]);
	audit_hasher_free(&conn->audit.hasher);
	MUST(sqlite3_close(conn->db) == SQLITE_OK); /* fails only while a statement is left */
	memset(conn, 0, sizeof(*conn));
}

sqlite3_stmt *sql_stmt(struct sql_conn *conn, enum sql_id id, struct err *err)
{
	if (!conn->stmts[id] && sqlite3_prepare_v3(conn->db, sql_texts[id], -1, SQLITE_PREPARE_PERSISTENT,
						   &conn->stmts[id], NULL) != SQLITE_OK)
		(void)sql_fail(conn, err, "preparing a statement of the store");
	return conn->stmts[id];
}

int sql_row(struct sql_conn *conn, sqlite3_stmt *stmt, struct err *err, const char *doing)
{
	int rc = sqlite3_step(stmt);

	if (rc == SQLITE_ROW)
		return 1;
	if (rc != SQLITE_DONE)
		(void)sql_fail(conn, err, doing);
	sqlite3_reset(stmt);
	return rc == SQLITE_DONE ? 0 : -ERR_STORE;
}

int sql_run(struct sql_conn *conn, sqlite3_stmt *stmt, struct err *err, const char *doing)
{
	int row = sql_row(conn, stmt, err, doing);

	MUST(row <= 0);
	return row;
}

int sql_run_id(struct sql_conn *conn, enum sql_id id, struct err *err, const char *doing)
{
	sqlite3_stmt *stmt = sql_stmt(conn, id, err);

	return stmt ? sql_run(conn, stmt, err, doing) : -ERR_STORE;
}

int sql_begin(struct sql_conn *conn, struct err *err, const char *doing)
{
	/* Another process may have written since: the chain's end is read anew. */
	conn->audit.is_read = conn->audit.is_moved = false;
	return sql_run_id(conn, SQL_BEGIN, err, doing);
}

int sql_commit(struct sql_conn *conn, struct err *err, const char *doing)
{
	sqlite3_stmt *stmt;

	if (conn->audit.is_moved) {
		stmt = sql_stmt(conn, SQL_AUDIT_HEAD_SET, err);
		if (!stmt)
			return -ERR_STORE;
		sql_bind_u64(stmt, 1, conn->audit.last.id);
		sql_bind_bytes(stmt, 2, (struct str){ (const char *)conn->audit.last.hash, AUDIT_HASH_SIZE });
		if (sql_run(conn, stmt, err, "keeping the end of the audit's chain") < 0)
			return -ERR_STORE;
	}
	return sql_run_id(conn, SQL_COMMIT, err, doing);
}

/* What can fail here is a wrong index (our mistake) or memory for a small copy. */
void sql_bind_text(sqlite3_stmt *stmt, int index, const char *text)
{
	MUST(sqlite3_bind_text(stmt, index, text, -1, SQLITE_STATIC) == SQLITE_OK);
}

void sql_bind_str(sqlite3_stmt *stmt, int index, struct str text)
{
	MUST(sqlite3_bind_text64(stmt, index, text.size ? text.data : "", text.size, SQLITE_STATIC, SQLITE_UTF8) ==
	     SQLITE_OK);
}

void sql_bind_bytes(sqlite3_stmt *stmt, int index, struct str bytes)
{
	MUST(sqlite3_bind_blob64(stmt, index, bytes.size ? bytes.data : "", bytes.size, SQLITE_STATIC) == SQLITE_OK);
}

void sql_bind_i64(sqlite3_stmt *stmt, int index, int64_t value)
{
	MUST(sqlite3_bind_int64(stmt, index, value) == SQLITE_OK);
}

void sql_bind_null(sqlite3_stmt *stmt, int index) { MUST(sqlite3_bind_null(stmt, index) == SQLITE_OK); }

void sql_bind_u64(sqlite3_stmt *stmt, int index, uint64_t value)
{
	sql_bind_i64(stmt, index, sql_fits(value) ? (int64_t)value : INT64_MAX);
}

void sql_text(sqlite3_stmt *stmt, int column, char *target, size_t target_size)
{
	struct str text = sql_bytes(stmt, column);

	if (text.size >= target_size)
		text.size = target_size - 1;
	if (text.size)
		memcpy(target, text.data, text.size);
	target[text.size] = '\0';
}

struct str sql_bytes(sqlite3_stmt *stmt, int column)
{
	const char *data = sqlite3_column_blob(stmt, column);

	return (struct str){ data, data ? (size_t)sqlite3_column_bytes(stmt, column) : 0 };
}

uint64_t sql_u64(sqlite3_stmt *stmt, int column)
{
	int64_t value = sqlite3_column_int64(stmt, column);

	return value > 0 ? (uint64_t)value : 0;
}

struct sql_conn *sql_reader_get(struct sqlite_store *store, struct err *err)
{
	struct sql_conn *conn;

	pthread_mutex_lock(&store->readers_lock);
	conn = store->readers;
	if (conn) {
		store->readers = conn->next;
		store->idle_count--;
	}
	pthread_mutex_unlock(&store->readers_lock);
	if (conn)
		return conn;
	conn = must_alloc(sizeof(*conn));
	if (sql_conn_open(store->path, false, conn, err) < 0) {
		free(conn);
		return NULL;
	}
	return conn;
}

void sql_reader_put(struct sqlite_store *store, struct sql_conn *conn)
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
	if (is_kept)
		return;
	sql_conn_close(conn);
	free(conn);
}
