/* What only the SQLite store has: its audit table, its views for people, its refusals. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "plug/store_world.h"

static int64_t ask(struct world *w, const char *sql)
{
	sqlite3 *db = NULL;
	sqlite3_stmt *stmt = NULL;
	int64_t value = -1;

	assert_int_equal(sqlite3_open(w->path, &db), SQLITE_OK);
	if (sqlite3_prepare_v2(db, sql, -1, &stmt, NULL) != SQLITE_OK)
		fail_msg("%s: %s", sql, sqlite3_errmsg(db));
	if (sqlite3_step(stmt) == SQLITE_ROW)
		value = sqlite3_column_int64(stmt, 0);
	sqlite3_finalize(stmt);
	sqlite3_close(db);
	return value;
}

static void test_sqlite_audit_has_a_row_for_everything(void **state)
{
	struct world *w = *state;
	struct store_transfer t = planned(w, id_a, "q3", 1, 2);
	struct store_audit row = { .at_wall_us = 5, .kind = "operator", .user = "root", .detail = "looked" };
	struct store_receipt low = receipt_make(id_a, 1, 0, "", "n2");
	uint64_t count;

	low.outcome = ERR_DISK_LOW;
	(void)give(w, low);
	(void)give(w, receipt_make(id_a, 1, 0, digest_1, "n1"));
	(void)give(w, receipt_make(id_a, 1, 0, digest_2, "n1"));
	(void)give(w, receipt_make(id_none, 1, 0, digest_2, "n1"));
	assert_int_equal(w->store->ops->audit(w->store, &row, &w->err), 0);
	assert_int_equal(w->store->ops->chunks_reopen(w->store, id_a, 0, NULL, CHUNK_LOST, "burnt", 5, &count, &w->err),
			 0);
	assert_int_equal(w->store->ops->transfer_move(w->store, &t, TRANSFER_FAILED, "why", false, 9, &w->err), 0);
	assert_int_equal(ask(w, "SELECT count(*) FROM audit"), 8);
	assert_int_equal(
		ask(w, "SELECT count(*) FROM audit_view WHERE outcome='disk_low' AND result='ok' AND node_id='n2'"), 1);
	assert_int_equal(ask(w, "SELECT count(*) FROM audit_view WHERE outcome='stored' AND result='ok' AND "
				"node_addr='10.0.0.1:7081'"
				" AND request_id='req-1' AND disk_path='/srv/x.part' AND length(digest)=64"),
			 1);
	assert_int_equal(ask(w, "SELECT count(*) FROM audit WHERE result='digest_conflict'"), 1);
	assert_int_equal(ask(w, "SELECT count(*) FROM audit WHERE result='no_such_transfer'"), 1);
	assert_int_equal(
		ask(w, "SELECT count(*) FROM audit WHERE kind='operator' AND user='root' AND transfer_id IS NULL"), 1);
	assert_int_equal(
		ask(w, "SELECT count(*) FROM audit WHERE outcome='lost' AND detail='1 chunks reopened: burnt'"), 1);
	assert_int_equal(ask(w, "SELECT count(*) FROM audit WHERE kind='state' AND outcome='failed' AND detail='why'"),
			 1);
	(void)ask(w, "DELETE FROM audit");
	(void)ask(w, "UPDATE audit SET outcome='stored'");
	(void)ask(w, "UPDATE audit SET hash=prev_hash");
	assert_int_equal(ask(w, "SELECT count(*) FROM audit"), 8);
	assert_int_equal(ask(w, "SELECT count(*) FROM audit WHERE outcome='stored'"), 3);
}

/* A kept receipt may come when its chunk is merged and gone from its node: the attempt that stored it is told as one that did, and no other. */
static void test_sqlite_kept_receipt_of_a_merged_chunk(void **state)
{
	static const char stored[] = "SELECT count(*) FROM audit WHERE kind='chunk' AND outcome='stored'";
	static const struct {
		const char *digest, *node, *move;
		enum err_code outcome;
		int64_t stored_count;
	} rows[] = {
		{ digest_1, "n1", "UPDATE chunks SET state='stored'", ERR_CHUNK_GONE, 0 },
		{ digest_1, "n1", "UPDATE chunks SET state='lost'", ERR_CHUNK_GONE, 0 },
		{ digest_1, "n1", "UPDATE chunks SET state='merged'", ERR_CHUNK_GONE, 1 },
		{ digest_1, "n1", "UPDATE chunks SET state='merged'", ERR_DISK_LOW, 0 },
		{ digest_1, "n2", "UPDATE chunks SET state='merged'", ERR_CHUNK_GONE, 0 },
		{ digest_2, "n1", "UPDATE chunks SET state='merged'", ERR_CHUNK_GONE, 0 },
	};
	struct world *w = *state;

	(void)planned(w, id_a, "q3", 1, 1);
	assert_int_equal(give(w, receipt_make(id_a, 1, 0, digest_1, "n1")), ERR_NONE);
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct store_receipt receipt = receipt_make(id_a, 1, 0, rows[i].digest, rows[i].node);
		const int64_t before = ask(w, stored);

		(void)ask(w, rows[i].move);
		receipt.outcome = rows[i].outcome;
		assert_int_equal(give(w, receipt), ERR_NONE);
		assert_int_equal(ask(w, stored) - before, rows[i].stored_count);
	}
}

static void test_sqlite_views_are_for_people(void **state)
{
	struct world *w = *state;

	(void)planned(w, id_a, "q3", 1, 2);
	(void)give(w, receipt_make(id_a, 1, 1, digest_1, "n3"));
	assert_int_equal(
		ask(w,
		    "SELECT count(*) FROM chunk_view WHERE transfer_id='01ARZ3NDEKTSV4RRFFQ69G5FAA' AND state='stored'"
		    " AND target_node='n1' AND actual_node='n3'"),
		1);
	assert_int_equal(
		ask(w, "SELECT count(*) FROM transfer_view WHERE batch='q3' AND state='uploading' AND stored_count=1"
		       " AND created='1970-01-01T00:00:00.001Z'"),
		1);
	assert_int_equal(ask(w, "SELECT count(*) FROM entry_view WHERE mode='644' AND mtime='2023-11-14T22:13:20Z'"),
			 1);
	assert_int_equal(ask(w, "SELECT count(*) FROM object_view WHERE transfer_id='01ARZ3NDEKTSV4RRFFQ69G5FAA'"), 1);
}

/* As a former release left it: what it holds is kept, and what came since is added. Whoever appends a migration undoes it here. */
static void test_sqlite_brings_an_old_file_up_to_date(void **state)
{
	struct world *w = *state;
	int64_t version;
	struct store_transfer t;

	(void)planned(w, id_a, "q3", 1, 1);
	w->store->ops->close(w->store);
	w->store = NULL;
	version = ask(w, "PRAGMA user_version");
	(void)ask(w, "DROP VIEW chunk_view");
	(void)ask(w, "ALTER TABLE chunks DROP COLUMN copy_node");
	(void)ask(w, "ALTER TABLE transfers DROP COLUMN copies");
	(void)ask(w, "ALTER TABLE transfers DROP COLUMN copied_count");
	(void)ask(w, "ALTER TABLE transfers DROP COLUMN copied_bytes");
	(void)ask(w, "ALTER TABLE transfers DROP COLUMN is_copies_waived");
	(void)ask(w, "CREATE VIEW chunk_view AS SELECT * FROM chunks");
	(void)ask(w, "ALTER TABLE transfers DROP COLUMN last_file_id");
	(void)ask(w, "ALTER TABLE transfers DROP COLUMN seal");
	(void)ask(w, "DROP INDEX transfers_idle");
	(void)ask(w, "DROP INDEX transfers_uncleaned");
	(void)ask(w, "DROP TABLE node_orders");
	(void)ask(w, "DROP TRIGGER audit_keeps_rows");
	(void)ask(w, "DROP TRIGGER audit_keeps_text");
	(void)ask(w, "DROP INDEX audit_chunk");
	(void)ask(w, "DROP VIEW audit_view");
	(void)ask(w, "ALTER TABLE audit DROP COLUMN algorithm");
	(void)ask(w, "ALTER TABLE audit DROP COLUMN prev_hash");
	(void)ask(w, "ALTER TABLE audit DROP COLUMN hash");
	(void)ask(w, "DROP TABLE audit_head");
	(void)ask(w, "CREATE INDEX audit_transfer ON audit (transfer_id)");
	(void)ask(w, "CREATE VIEW audit_view AS SELECT * FROM audit");
	(void)ask(w, "CREATE TRIGGER audit_keeps_rows BEFORE DELETE ON audit BEGIN SELECT RAISE(ABORT, 'no'); END");
	(void)ask(w, "CREATE TRIGGER audit_keeps_text BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'no'); END");
	(void)ask(w, "INSERT INTO audit (at_us, kind, user) VALUES (5, 'operator', CAST(x'ff' AS TEXT))");
	(void)ask(w, "PRAGMA user_version=1");
	assert_int_equal(world_open(w), 0);
	assert_int_equal(ask(w, "PRAGMA user_version"), version);
	assert_int_equal(w->store->ops->transfer_get(w->store, id_a, &t, &w->err), 0);
	assert_int_equal(t.copies, 1);
	/* What was there is chained as it is, bytes that are no text too. */
	assert_int_equal(ask(w, "SELECT count(*) FROM audit WHERE length(hash)=32 AND length(prev_hash)=32"), 2);
	assert_int_equal(ask(w, "SELECT last_id FROM audit_head WHERE last_hash=(SELECT hash FROM audit WHERE id=2)"),
			 2);
	assert_int_equal(ask(w, "SELECT count(*) FROM audit b JOIN audit a ON b.prev_hash=a.hash WHERE b.id=2"), 1);
	assert_string_equal(chunk_get(w, id_a, 1, 0).copy_node, "");
	assert_int_equal(
		ask(w, "SELECT count(*) FROM sqlite_schema WHERE name IN ('transfers_idle', 'transfers_uncleaned')"),
		2);
}

static void test_sqlite_refuses_files_it_does_not_know(void **state)
{
	struct world *w = *state;
	FILE *file;

	w->store->ops->close(w->store);
	w->store = NULL;
	(void)ask(w, "PRAGMA user_version=1000");
	assert_int_equal(world_open(w), -ERR_STORE_SCHEMA);
	assert_non_null(strstr(w->err.text, "schema 1000"));
	assert_non_null(strstr(w->err.text, w->path));
	(void)ask(w, "PRAGMA user_version=1");
	(void)ask(w, "PRAGMA application_id=7");
	assert_int_equal(world_open(w), -ERR_STORE_SCHEMA);
	assert_int_equal(unlink(w->path), 0);
	file = fopen(w->path, "w");
	assert_non_null(file);
	for (int i = 0; i < 1000; i++)
		(void)fputs("this is no database. ", file);
	(void)fclose(file);
	assert_int_equal(world_open(w), -ERR_STORE);
	assert_int_equal(w->driver->open("/nonexistent/folder/heng.db", &w->store, &w->err), -ERR_STORE);
	assert_non_null(strstr(w->err.text, "/nonexistent/folder/heng.db"));
	assert_true(w->err.hint[0] != '\0');
	assert_null(w->store);
}

/* A state word that is none of ours is an error, not a guess. */
static void test_sqlite_refuses_words_it_does_not_know(void **state)
{
	struct world *w = *state;
	struct pages pages = { .stop_at = 64 };
	struct store_receipt receipt = receipt_make(id_a, 1, 0, digest_1, "n1");

	(void)planned(w, id_a, "q3", 1, 1);
	(void)ask(w, "UPDATE chunks SET state='dancing'");
	assert_int_equal(w->store->ops->chunks(w->store, id_a, 0, 0, ALL_STATES, 9, chunk_keep, &pages, &w->err),
			 -ERR_STORE_SCHEMA);
	assert_non_null(strstr(w->err.text, "dancing"));
	assert_int_equal(w->store->ops->receipts(w->store, &receipt, 1, &w->err), -ERR_STORE_SCHEMA);
	assert_int_equal(ask(w, "SELECT count(*) FROM audit WHERE kind='chunk'"), 0);
}

/* A part of a transaction that fails after it wrote a row takes the row back, and its link. */
static void test_sqlite_chain_forgets_what_is_undone(void **state)
{
	static const char broken[] =
		"SELECT count(*) FROM audit b JOIN audit a ON a.id=b.id-1 WHERE a.hash<>b.prev_hash";
	struct world *w = *state;
	struct store_receipt both[] = { receipt_make(id_a, 1, 0, digest_1, "n1"),
					receipt_make(id_a, 1, 1, digest_1, "n1") };

	(void)planned(w, id_a, "q3", 1, 2);
	(void)ask(w, "UPDATE chunks SET state='dancing' WHERE chunk_index=1");
	assert_int_equal(w->store->ops->receipts(w->store, both, 2, &w->err), -ERR_STORE_SCHEMA);
	assert_int_equal(ask(w, "SELECT count(*) FROM audit"), 1);
	assert_int_equal(give(w, both[0]), ERR_NONE);
	assert_int_equal(ask(w, "SELECT count(*) FROM audit"), 2);
	assert_int_equal(ask(w, broken), 0);
	assert_int_equal(ask(w, "SELECT max(id) FROM audit"), 2);
	assert_int_equal(ask(w, "SELECT count(*) FROM audit_head WHERE last_id=2"), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_sqlite_chain_forgets_what_is_undone),   CASE(test_sqlite_audit_has_a_row_for_everything),
		CASE(test_sqlite_kept_receipt_of_a_merged_chunk), CASE(test_sqlite_views_are_for_people),
		CASE(test_sqlite_brings_an_old_file_up_to_date),  CASE(test_sqlite_refuses_files_it_does_not_know),
		CASE(test_sqlite_refuses_words_it_does_not_know),
	};

	return cmocka_run_group_tests_name("sqlite", tests, NULL, NULL);
}
