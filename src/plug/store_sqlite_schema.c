#include "plug/store_sqlite.h"

#include <stdio.h>

#define SCHEMA_APPLICATION_ID 0x68656e67 /* "heng", shown by file(1) */

/* Migration i brings a file from schema i to i + 1. A row that was released is never edited: append the next one.
 *
 * Big tables hang on the transfer's number, not its 26 letters; the *_view views are for people with the sqlite3 shell. Names and paths
 * are bytes, so they are blobs. The counters in transfers are kept by the transaction that changes the chunks. */
static const struct migration {
	const char *sql;
	int (*then)(struct sql_conn *conn, struct err *err); /* what SQL cannot say; or NULL */
} migrations[] = {
	{ "CREATE TABLE transfers (num INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, user TEXT NOT NULL, batch BLOB "
	  "NOT "
	  "NULL,"
	  " source TEXT NOT NULL, manifest_digest TEXT NOT NULL, manifest_crc32c INTEGER NOT NULL, digest TEXT NOT "
	  "NULL,"
	  " chunk_bytes INTEGER NOT NULL, pack_bytes INTEGER NOT NULL, entry_count INTEGER NOT NULL DEFAULT 0,"
	  " file_count INTEGER NOT NULL DEFAULT 0, object_count INTEGER NOT NULL DEFAULT 0, chunk_count INTEGER NOT "
	  "NULL "
	  "DEFAULT 0,"
	  " total_bytes INTEGER NOT NULL DEFAULT 0, pending_count INTEGER NOT NULL DEFAULT 0, stored_count INTEGER NOT "
	  "NULL DEFAULT 0,"
	  " digest_failed_count INTEGER NOT NULL DEFAULT 0, lost_count INTEGER NOT NULL DEFAULT 0,"
	  " merged_count INTEGER NOT NULL DEFAULT 0, stored_bytes INTEGER NOT NULL DEFAULT 0, state TEXT NOT NULL,"
	  " version INTEGER NOT NULL, is_retryable INTEGER NOT NULL, priority INTEGER NOT NULL, reason TEXT NOT NULL,"
	  " client_addr TEXT NOT NULL, created_us INTEGER NOT NULL, updated_us INTEGER NOT NULL, completed_us INTEGER "
	  "NOT NULL) STRICT;"
	  "CREATE INDEX transfers_batch ON transfers (batch);"
	  "CREATE INDEX transfers_user ON transfers (user);"
	  "CREATE TABLE entries (transfer INTEGER NOT NULL, seq INTEGER NOT NULL, type TEXT NOT NULL, mode INTEGER NOT "
	  "NULL,"
	  " mtime_ns INTEGER NOT NULL, size_bytes INTEGER NOT NULL, path BLOB NOT NULL, target BLOB NOT NULL, file_id "
	  "INTEGER NOT NULL,"
	  " object_offset INTEGER NOT NULL, digest TEXT NOT NULL, PRIMARY KEY (transfer, seq)) STRICT, WITHOUT ROWID;"
	  "CREATE TABLE objects (transfer INTEGER NOT NULL, file_id INTEGER NOT NULL, is_pack INTEGER NOT NULL,"
	  " first_seq INTEGER NOT NULL, last_seq INTEGER NOT NULL, size_bytes INTEGER NOT NULL, chunk_count INTEGER "
	  "NOT "
	  "NULL,"
	  " PRIMARY KEY (transfer, file_id)) STRICT, WITHOUT ROWID;"
	  "CREATE TABLE chunks (transfer INTEGER NOT NULL, file_id INTEGER NOT NULL, chunk_index INTEGER NOT NULL,"
	  " size_bytes INTEGER NOT NULL, state TEXT NOT NULL, target_node TEXT NOT NULL, actual_node TEXT NOT NULL, "
	  "digest TEXT NOT NULL,"
	  " updated_us INTEGER NOT NULL, PRIMARY KEY (transfer, file_id, chunk_index)) STRICT, WITHOUT ROWID;"
	  "CREATE TABLE audit (id INTEGER PRIMARY KEY, at_us INTEGER NOT NULL, kind TEXT NOT NULL, transfer_id TEXT, "
	  "user TEXT,"
	  " node_id TEXT, outcome TEXT, detail TEXT, file_id INTEGER, chunk_index INTEGER, result TEXT, size_bytes "
	  "INTEGER, digest TEXT,"
	  " node_addr TEXT, client_addr TEXT, request_id TEXT, user_agent TEXT, disk_path TEXT, started_us INTEGER,"
	  " finished_us INTEGER) STRICT;"
	  "CREATE INDEX audit_transfer ON audit (transfer_id);"
	  "CREATE TRIGGER audit_keeps_rows BEFORE DELETE ON audit BEGIN SELECT RAISE(ABORT, 'audit rows are only ever "
	  "added'); END;"
	  "CREATE TRIGGER audit_keeps_text BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'audit rows are only ever "
	  "added'); END;"
	  "CREATE TABLE nodes (id TEXT NOT NULL PRIMARY KEY, addr TEXT NOT NULL, incarnation TEXT NOT NULL,"
	  " weight_milli INTEGER NOT NULL, domain TEXT NOT NULL, seen_us INTEGER NOT NULL) STRICT;"
	  "CREATE VIEW transfer_view AS SELECT id AS transfer_id, user, CAST(batch AS TEXT) AS batch, state, reason, "
	  "chunk_count,"
	  " pending_count, stored_count, digest_failed_count, lost_count, merged_count, total_bytes, stored_bytes, "
	  "version, digest,"
	  " is_retryable, priority, source, client_addr, strftime('%Y-%m-%dT%H:%M:%fZ', created_us / 1e6, 'unixepoch') "
	  "AS created,"
	  " strftime('%Y-%m-%dT%H:%M:%fZ', updated_us / 1e6, 'unixepoch') AS updated, CASE completed_us WHEN 0 THEN "
	  "NULL"
	  " ELSE strftime('%Y-%m-%dT%H:%M:%fZ', completed_us / 1e6, 'unixepoch') END AS completed FROM transfers;"
	  "CREATE VIEW chunk_view AS SELECT t.id AS transfer_id, CAST(t.batch AS TEXT) AS batch, c.file_id, "
	  "c.chunk_index, c.size_bytes, c.state, "
	  "c.target_node,"
	  " c.actual_node, c.digest, strftime('%Y-%m-%dT%H:%M:%fZ', c.updated_us / 1e6, 'unixepoch') AS updated"
	  " FROM chunks c JOIN transfers t ON t.num = c.transfer;"
	  "CREATE VIEW object_view AS SELECT t.id AS transfer_id, o.file_id, o.is_pack, o.first_seq, o.last_seq, "
	  "o.size_bytes,"
	  " o.chunk_count FROM objects o JOIN transfers t ON t.num = o.transfer;"
	  "CREATE VIEW entry_view AS SELECT t.id AS transfer_id, e.seq, e.type, printf('%o', e.mode) AS mode, "
	  "e.size_bytes,"
	  " CAST(e.path AS TEXT) AS path, CAST(e.target AS TEXT) AS target, e.file_id, e.object_offset, e.digest,"
	  " strftime('%Y-%m-%dT%H:%M:%SZ', e.mtime_ns / 1000000000, 'unixepoch') AS mtime"
	  " FROM entries e JOIN transfers t ON t.num = e.transfer;"
	  "CREATE VIEW audit_view AS SELECT id, strftime('%Y-%m-%dT%H:%M:%fZ', at_us / 1e6, 'unixepoch') AS at, kind, "
	  "transfer_id, file_id,"
	  " chunk_index, outcome, result, detail, user, node_id, size_bytes, digest, node_addr, client_addr, "
	  "request_id, "
	  "user_agent,"
	  " disk_path, strftime('%Y-%m-%dT%H:%M:%fZ', started_us / 1e6, 'unixepoch') AS started,"
	  " strftime('%Y-%m-%dT%H:%M:%fZ', finished_us / 1e6, 'unixepoch') AS finished FROM audit;",
	  NULL },
	/* What operators order about nodes; a weight that is NULL is the node's own to say. */
	{ "CREATE TABLE node_orders (id TEXT NOT NULL PRIMARY KEY, word TEXT NOT NULL, weight_milli INTEGER,"
	  " updated_us INTEGER NOT NULL) STRICT;",
	  NULL },
	/* For expiry and for cleaning up what failed: looked at again and again, and mostly empty. */
	{ "CREATE INDEX transfers_idle ON transfers (updated_us) WHERE state='uploading';"
	  "CREATE INDEX transfers_uncleaned ON transfers (id) WHERE state='failed' AND stored_count>0;",
	  NULL },
	/* A second copy of each chunk, on another node; '' where there is none. copied_*: the chunks that have one. */
	{ "ALTER TABLE transfers ADD COLUMN copies INTEGER NOT NULL DEFAULT 1;"
	  "ALTER TABLE transfers ADD COLUMN copied_count INTEGER NOT NULL DEFAULT 0;"
	  "ALTER TABLE transfers ADD COLUMN copied_bytes INTEGER NOT NULL DEFAULT 0;"
	  "ALTER TABLE transfers ADD COLUMN is_copies_waived INTEGER NOT NULL DEFAULT 0;"
	  "ALTER TABLE chunks ADD COLUMN copy_node TEXT NOT NULL DEFAULT '';"
	  "DROP VIEW chunk_view;"
	  "CREATE VIEW chunk_view AS SELECT t.id AS transfer_id, CAST(t.batch AS TEXT) AS batch, c.file_id, "
	  "c.chunk_index, c.size_bytes, c.state, c.target_node, c.actual_node, c.copy_node, c.digest,"
	  " strftime('%Y-%m-%dT%H:%M:%fZ', c.updated_us / 1e6, 'unixepoch') AS updated"
	  " FROM chunks c JOIN transfers t ON t.num = c.transfer;",
	  NULL },
	/* The largest file id that a revision of the transfer's plan gave, whether the object is there still or not. */
	{ "ALTER TABLE transfers ADD COLUMN last_file_id INTEGER NOT NULL DEFAULT 0;", NULL },
	/* The audit as a chain (audit_chain.h). Rows may be taken out up to the anchor, which only an archive moves. One index finds a transfer's
	 * rows, an object's and a chunk's. */
	{ "DROP TRIGGER audit_keeps_rows; DROP TRIGGER audit_keeps_text; DROP INDEX audit_transfer; DROP VIEW "
	  "audit_view;"
	  "ALTER TABLE audit ADD COLUMN algorithm TEXT;"
	  "ALTER TABLE audit ADD COLUMN prev_hash BLOB;"
	  "ALTER TABLE audit ADD COLUMN hash BLOB;"
	  "CREATE TABLE audit_head (one INTEGER PRIMARY KEY CHECK (one=1), last_id INTEGER NOT NULL, last_hash BLOB "
	  "NOT NULL,"
	  " anchor_id INTEGER NOT NULL, anchor_hash BLOB NOT NULL) STRICT;"
	  "INSERT INTO audit_head VALUES (1, 0, zeroblob(32), 0, zeroblob(32));",
	  sql_audit_chain_old },
	{ "CREATE INDEX audit_chunk ON audit (transfer_id, file_id, chunk_index);"
	  "CREATE TRIGGER audit_keeps_rows BEFORE DELETE ON audit WHEN OLD.id>(SELECT anchor_id FROM audit_head)"
	  " BEGIN SELECT RAISE(ABORT, 'audit rows are only ever added'); END;"
	  "CREATE TRIGGER audit_keeps_text BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'audit rows are only ever "
	  "added'); END;"
	  "CREATE VIEW audit_view AS SELECT id, strftime('%Y-%m-%dT%H:%M:%fZ', at_us / 1e6, 'unixepoch') AS at, kind,"
	  " transfer_id, file_id, chunk_index, outcome, result, detail, user, node_id, size_bytes, algorithm, digest,"
	  " node_addr, client_addr, request_id, user_agent, disk_path,"
	  " strftime('%Y-%m-%dT%H:%M:%fZ', started_us / 1e6, 'unixepoch') AS started,"
	  " strftime('%Y-%m-%dT%H:%M:%fZ', finished_us / 1e6, 'unixepoch') AS finished, lower(hex(hash)) AS hash FROM "
	  "audit;",
	  NULL },
	/* How the client encrypted the files: cipher and key id; '' where it did not. */
	{ "ALTER TABLE transfers ADD COLUMN seal TEXT NOT NULL DEFAULT '';", NULL },
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
		if (sqlite_exec(conn, migrations[i].sql, err, "bringing the database schema up to date") < 0)
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
