/* What only the PostgreSQL store has: sessions that are ended under it, a commit whose answer is lost, refusals. */
#include "plug/store_world.h"

#include <pthread.h>

/* In the schema of the world. */
static int64_t ask(struct world *w, const char *text) { return pg_ask_number(w->path, text); }

/* Ends all sessions that the store has; what the server does when it restarts. */
static void sessions_end(struct world *w)
{
	(void)ask(w,
		  "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name LIKE 'heng-%'"
		  " AND pid IN (SELECT pid FROM pg_locks WHERE locktype='advisory' AND"
		  " objid=(SELECT oid FROM pg_namespace WHERE nspname=current_schema()))");
}

static int pg_set_up(void **state)
{
	static const struct driver *const pg = &drivers[1];

	*state = (void *)(uintptr_t)pg;
	return set_up(state);
}

static void test_a_session_that_was_ended_is_made_anew(void **state)
{
	struct world *w = *state;
	struct store_transfer t = planned(w, id_a, "q3", 1, 10);

	for (uint64_t i = 0; i < 10; i++) {
		sessions_end(w);
		if (i % 2 == 0)
			assert_int_equal(w->store->ops->transfer_get(w->store, id_a, &t, &w->err), 0);
		assert_int_equal(give(w, receipt_make(id_a, 1, i, digest_1, "n1")), ERR_NONE);
	}
	assert_int_equal(ask(w, "SELECT count(*) FROM audit WHERE kind='chunk'"), 10);
	counters_agree(w, id_a);
}

/* The transaction is held up by another's lock when its session ends: it is run again, and counts once. */
struct blocked {
	struct world *w;
	int result;
};

static void *reopen_blocked(void *arg)
{
	struct blocked *blocked = arg;
	struct err err = ERR_INIT;
	uint64_t count = 0;

	blocked->result = blocked->w->store->ops->chunks_reopen(blocked->w->store, id_a, 0, NULL, CHUNK_LOST, "test", 5,
								&count, &err);
	if (blocked->result == 0 && count != 4)
		blocked->result = -1000;
	return NULL;
}

static void test_a_transaction_that_was_taken_back_is_run_again(void **state)
{
	struct world *w = *state;
	struct blocked blocked = { .w = w };
	PGconn *pg = PQconnectdb(w->path);
	pthread_t thread;

	(void)planned(w, id_a, "q3", 1, 4);
	for (uint64_t i = 0; i < 4; i++)
		assert_int_equal(give(w, receipt_make(id_a, 1, i, digest_1, "n1")), ERR_NONE);
	PQclear(PQexec(pg, "BEGIN"));
	PQclear(PQexec(pg, "LOCK TABLE chunks IN ACCESS EXCLUSIVE MODE"));
	assert_int_equal(pthread_create(&thread, NULL, reopen_blocked, &blocked), 0);
	while (ask(w, "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation='chunks'::regclass") == 0)
		usleep(1000);
	sessions_end(w);
	PQclear(PQexec(pg, "COMMIT"));
	PQfinish(pg);
	pthread_join(thread, NULL);
	assert_int_equal(blocked.result, 0);
	assert_int_equal(ask(w, "SELECT count(*) FROM audit WHERE outcome='lost'"), 1);
	counters_agree(w, id_a);
}

/* The session is ended by the commit itself: before it is kept (a deferred trigger), or when it was kept and only the answer is lost (a server that waits for a
 * standby which never comes has committed by then). */
static void test_a_commit_whose_answer_is_lost(void **state)
{
	static const struct {
		const char *prepare;
		bool is_kept;
	} rows[] = {
		{ "CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
		  " IF (SELECT last_value FROM deaths)=1 AND NOT (SELECT is_called FROM deaths) THEN PERFORM "
		  "nextval('deaths');"
		  " PERFORM pg_terminate_backend(pg_backend_pid()); PERFORM pg_sleep(5); END IF; RETURN NULL; END $$;"
		  "CREATE SEQUENCE deaths;"
		  "CREATE CONSTRAINT TRIGGER dies AFTER INSERT ON audit DEFERRABLE INITIALLY DEFERRED FOR EACH ROW "
		  "EXECUTE"
		  " FUNCTION die()",
		  false },
	};
	struct world *w = *state;

	(void)planned(w, id_a, "q3", 1, 4);
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		(void)ask(w, rows[i].prepare);
		assert_int_equal(give(w, receipt_make(id_a, 1, i, digest_1, "n1")), ERR_NONE);
		assert_int_equal(ask(w, "SELECT count(*) FROM audit WHERE kind='chunk'"), (int64_t)i + 1);
		counters_agree(w, id_a);
	}
	assert_int_equal(ask(w, "SELECT is_called::int FROM deaths"), 1);
}

static void test_a_plan_whose_session_was_ended_fails_whole(void **state)
{
	struct world *w = *state;
	struct store_transfer t = transfer_make(id_b, "q4", 3, 3);
	struct store_plan *plan = plan_rows(w, &t, 3);

	sessions_end(w);
	assert_int_equal(w->store->ops->plan_commit(&plan, &t, &w->err), -ERR_STORE);
	assert_int_equal(w->store->ops->transfer_get(w->store, id_b, &t, &w->err), -ERR_NO_TRANSFER);
	(void)planned(w, id_b, "q4", 3, 3);
	counters_agree(w, id_b);
}

static void test_refusals_in_words(void **state)
{
	struct world *w = *state;
	struct store *other = NULL;
	static const struct {
		const char *url;
		int result;
		const char *words;
	} rows[] = {
		{ "postgresql://heng:secret@127.0.0.1/heng", -ERR_CONFIG, "password" },
		{ "host=/tmp password=secret", -ERR_CONFIG, "password" },
		{ "postgresql://heng:secret@[broken", -ERR_CONFIG, "PostgreSQL URL" },
		{ "sqlite", -ERR_CONFIG, "PostgreSQL URL" },
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		assert_int_equal(store_pg_open(rows[i].url, &other, &w->err), rows[i].result);
		assert_non_null(strstr(w->err.text, rows[i].words));
		assert_null(strstr(w->err.text, "secret"));
		assert_null(other);
	}
	w->store->ops->close(w->store);
	w->store = NULL;
	(void)ask(w, "UPDATE heng_schema SET version=1000");
	assert_int_equal(world_open(w), -ERR_STORE_SCHEMA);
	assert_non_null(strstr(w->err.text, "schema 1000"));
	(void)ask(w, "DROP TABLE heng_schema");
	assert_int_equal(world_open(w), -ERR_STORE_SCHEMA);
	assert_non_null(strstr(w->err.text, "another program"));
}

static void test_a_second_one_is_refused(void **state)
{
	struct world *w = *state;
	struct store *other = NULL;

	assert_int_equal(store_pg_open(w->path, &other, &w->err), -ERR_STORE);
	assert_non_null(strstr(w->err.text, "another scheduler"));
	(void)planned(w, id_a, "q3", 1, 1);
}

/* Bytes that are no text come in headers: they are kept as what can be read, and take nothing else down. */
static void test_bytes_that_are_no_text(void **state)
{
	struct world *w = *state;
	struct store_receipt receipt = receipt_make(id_a, 1, 0, digest_1, "n1");

	(void)planned(w, id_a, "q3", 1, 1);
	copy_text(receipt.user_agent, sizeof(receipt.user_agent), "a\xff\xe5\x87");
	copy_text(receipt.request_id, sizeof(receipt.request_id), "r\xff");
	assert_int_equal(give(w, receipt), ERR_NONE);
	assert_int_equal(w->store->ops->transfer_note(w->store, id_a, "cut \xe5\x87", &w->err), 0);
	assert_int_equal(ask(w, "SELECT count(*) FROM transfers WHERE reason='cut ?"
				"?'"),
			 1);
}

static void test_views_are_for_people(void **state)
{
	struct world *w = *state;

	(void)planned(w, id_a, "q3", 1, 2);
	(void)give(w, receipt_make(id_a, 1, 1, digest_1, "n3"));
	assert_int_equal(ask(w, "SELECT count(*) FROM chunk_view WHERE transfer_id='01ARZ3NDEKTSV4RRFFQ69G5FAA'"
				" AND state='stored' AND target_node='n1' AND actual_node='n3'"),
			 1);
	assert_int_equal(
		ask(w, "SELECT count(*) FROM transfer_view WHERE batch='q3' AND state='uploading' AND stored_count=1"
		       " AND created='1970-01-01T00:00:00.001Z'"),
		1);
	assert_int_equal(
		ask(w, "SELECT count(*) FROM entry_view WHERE mode LIKE '%644' AND mtime='2023-11-14T22:13:20Z'"), 1);
	assert_int_equal(ask(w, "SELECT count(*) FROM audit"), 2);
	(void)ask(w, "DELETE FROM audit");
	(void)ask(w, "UPDATE audit SET kind='x'");
	(void)ask(w, "TRUNCATE audit");
	assert_int_equal(ask(w, "SELECT count(*) FROM audit WHERE kind<>'x'"), 2);
}

int main(void)
{
#define PG_CASE(function) cmocka_unit_test_setup_teardown(function, pg_set_up, tear_down)
	const struct CMUnitTest tests[] = {
		PG_CASE(test_a_session_that_was_ended_is_made_anew),
		PG_CASE(test_a_transaction_that_was_taken_back_is_run_again),
		PG_CASE(test_a_commit_whose_answer_is_lost),
		PG_CASE(test_a_plan_whose_session_was_ended_fails_whole),
		PG_CASE(test_refusals_in_words),
		PG_CASE(test_a_second_one_is_refused),
		PG_CASE(test_bytes_that_are_no_text),
		PG_CASE(test_views_are_for_people),
	};

	return cmocka_run_group_tests_name("postgresql", tests, NULL, NULL);
}
