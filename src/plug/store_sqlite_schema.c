#include "plug/store_sqlite.h"

#include <stdio.h>

#define SCHEMA_APPLICATION_ID 0x68656e67 /* "heng", shown by file(1) */

#define SQL_TIME(column)    "strftime('%Y-%m-%dT%H:%M:%fZ', " column " / 1e6, 'unixepoch')"
#define SQL_TIME_NS(column) "strftime('%Y-%m-%dT%H:%M:%SZ', " column " / 1000000000, 'unixepoch')"
#define SQL_SHOWN(column)   "CAST(" column " AS TEXT)"
#define SQL_OCTAL(column)   "printf('%o', " column ")"
#define SQL_HEX(column)     "lower(hex(" column "))"
#define SQL_ZEROS_32        "zeroblob(32)"
#define SQL_REFUSE          " BEGIN SELECT RAISE(ABORT, 'audit rows are only ever added'); END;"
#define SQL_AUDIT_KEEPS(condition)                                                          \
	"CREATE TRIGGER audit_keeps_rows BEFORE DELETE ON audit WHEN " condition SQL_REFUSE \
	"CREATE TRIGGER audit_keeps_text BEFORE UPDATE ON audit" SQL_REFUSE
#define SQL_DROP_TRIGGER(name, table) "DROP TRIGGER " name ";"
static const struct sql_migration migrations[] = {
#define MIGRATION(text, then) { text, then },
#include "plug/store_sql_schema_list.h"
#undef MIGRATION
};

static int schema_number(struct sqlite_conn *conn, const char *sql, int64_t *ret_value, struct err *err)
{
	sqlite3_stmt *stmt = NULL;
	int rc = sqlite3_prepare_v2(conn->db, sql, -1, &stmt, NULL);

	if (rc == SQLITE_OK)
		rc = sqlite3_step(stmt);
	if (rc == SQLITE_ROW)
		*ret_value = sqlite3_column_int64(stmt, 0);
	else
		(void)sqlite_fail(conn, err, "reading what kind of database this is");
	sqlite3_finalize(stmt);
	return rc == SQLITE_ROW ? 0 : -ERR_STORE;
}

/* Inside the transaction, so that of two processes that start together only one migrates. */
static int schema_check(struct sqlite_conn *conn, int64_t *ret_version, struct err *err)
{
	int64_t application, table_count;

	if (schema_number(conn, "PRAGMA application_id", &application, err) < 0 ||
	    schema_number(conn, "PRAGMA user_version", ret_version, err) < 0 ||
	    schema_number(conn, "SELECT count(*) FROM sqlite_schema", &table_count, err) < 0)
		return -ERR_STORE;
	if (application != SCHEMA_APPLICATION_ID && (application != 0 || *ret_version != 0 || table_count != 0)) {
		err_set(err, ERR_STORE_SCHEMA, "the file is a database of another program (application id %lld)",
			(long long)application);
		err_hint(err, "name a path that does not exist yet; heng makes the database itself");
		return -ERR_STORE_SCHEMA;
	}
	if (*ret_version < 0 || *ret_version > (int64_t)COUNT_OF(migrations)) {
		err_set(err, ERR_STORE_SCHEMA, "the database has schema %lld, this heng knows schemas up to %zu",
			(long long)*ret_version, COUNT_OF(migrations));
		err_hint(err, "it was written by a newer heng: run that version, or restore a backup made before the "
			      "upgrade");
		return -ERR_STORE_SCHEMA;
	}
	return 0;
}

static int schema_steps(struct sqlite_conn *conn, int64_t version, struct err *err)
{
	char stamp[128];

	for (size_t i = (size_t)version; i < COUNT_OF(migrations); i++) {
		if (sqlite_exec(conn, migrations[i].text, err, "bringing the database schema up to date") < 0)
			return -ERR_STORE;
		if (migrations[i].then && migrations[i].then(&conn->base, err) < 0)
			return -ERR_STORE;
	}
	(void)snprintf(stamp, sizeof(stamp), "PRAGMA application_id=%d; PRAGMA user_version=%zu", SCHEMA_APPLICATION_ID,
		       COUNT_OF(migrations));
	return sqlite_exec(conn, stamp, err, "noting the database schema's number");
}

int sqlite_migrate(struct sql_conn *base, struct err *err)
{
	struct sqlite_conn *conn = sqlite_conn_of(base);
	int64_t version = 0;
	int result = sql_begin(base, err);

	if (result < 0)
		return err_wrap(err, "database '%s'", conn->where);
	result = schema_check(conn, &version, err);
	if (result == 0 && version < (int64_t)COUNT_OF(migrations))
		result = schema_steps(conn, version, err);
	if (result == 0)
		result = sql_commit(base, err);
	if (result < 0 && base->engine->is_in_transaction(base))
		base->engine->rollback(base);
	if (result < 0)
		err_wrap(err, "database '%s'", conn->where);
	return result;
}
