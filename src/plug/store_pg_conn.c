/* Connections to PostgreSQL, and what their failures are called. */
#include "plug/store_pg.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "core/curve.h"

#define PG_CONNECT_US      10000000 /* so long it is tried again to reach the server */
#define PG_BACKOFF_BASE_US 50000
#define PG_BACKOFF_CAP_US  1000000

/* A commit that was answered survives a crash of the server. A machine that is gone keeps neither a transaction nor the writer's lock for long. */
static const char session_text[] =
	"SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit')='off';"
	"SET lock_timeout='30s'; SET idle_in_transaction_session_timeout='60s'; SET statement_timeout=0;"
	"SET tcp_keepalives_idle=10; SET tcp_keepalives_interval=5; SET tcp_keepalives_count=3;"
	"SET default_transaction_isolation='read committed'; SET client_min_messages='warning'";

static void notice_ignore(void *arg, const PGresult *result) { (void)arg, (void)result; }

/* libpq's words as one line. */
static void one_line(const char *text, char *target, size_t target_size)
{
	size_t size = strnlen(text, target_size - 1);

	while (size > 0 && (text[size - 1] == '\n' || text[size - 1] == ' '))
		size--;
	for (size_t i = 0; i < size; i++)
		target[i] = text[i] == '\n' || text[i] == '\t' ? ' ' : text[i];
	target[size] = '\0';
}

static const struct {
	const char *state; /* SQLSTATE, or how it begins */
	const char *hint;
} hints[] = {
	{ "53100", "free space on the disk of the PostgreSQL server, then try again" },
	{ "53300", "the server has no connection left: raise its max_connections, or end other sessions" },
	{ "28", "the password comes from the file that PGPASSFILE or passfile= names (mode 0600), or ~/.pgpass; "
		"pg_hba.conf must let this user in" },
	{ "3D000", "make the database first: createdb --encoding=UTF8 --owner=USER NAME" },
	{ "42501", "the user of the URL must own the schema, or have the rights USAGE and CREATE on it" },
	{ "3F000", "the search_path of this user must begin with a schema that exists" },
	{ "25006", "this server takes no writes: name the primary in the URL" },
	{ "55P03", "another session holds a lock on heng's tables: look at pg_stat_activity, and end its transaction" },
	{ "XX001", "the database is damaged: look at the server's log, restore a backup" },
	{ "XX002", "an index is damaged: look at the server's log; REINDEX may help" },
};

int pg_fail(struct pg_conn *conn, const PGresult *result, struct err *err, const char *doing)
{
	const char *state = result ? PQresultErrorField(result, PG_DIAG_SQLSTATE) : NULL;
	const char *words = result ? PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY) : NULL;
	char text[400];

	one_line(words && *words ? words : PQerrorMessage(conn->pg), text, sizeof(text));
	if (!state) {
		err_set(err, ERR_STORE, "%s: the connection to PostgreSQL is lost: %s", doing, text);
		err_hint(err, "it is made anew by itself once the server is back");
		return -ERR_STORE;
	}
	/* Serialization failures and deadlocks take the whole transaction back: the same again may pass. */
	if (strcmp(state, "40001") == 0 || strcmp(state, "40P01") == 0)
		conn->is_taken_back = true;
	err_set(err, ERR_STORE, "%s: %s (PostgreSQL %s)", doing, text, state);
	for (size_t i = 0; i < COUNT_OF(hints); i++) {
		if (strncmp(state, hints[i].state, strlen(hints[i].state)) == 0)
			err_hint(err, "%s", hints[i].hint);
	}
	return -ERR_STORE;
}

/* A password in the text would stand in configuration files that many may read, and in whatever shows them. libpq's own words are not given on: they
 * repeat the text. */
int pg_where_check(const char *where, struct err *err)
{
	PQconninfoOption *options = PQconninfoParse(where, NULL);
	bool has_password = false;

	if (!options) {
		err_set(err, ERR_CONFIG, "store: this is no PostgreSQL URL or connection string");
		err_hint(err, "like postgresql://heng@db.example:5432/heng?sslmode=verify-full");
		return -ERR_CONFIG;
	}
	for (const PQconninfoOption *option = options; option->keyword; option++) {
		if (strcmp(option->keyword, "password") == 0 && option->val)
			has_password = true;
	}
	PQconninfoFree(options);
	if (!has_password)
		return 0;
	err_set(err, ERR_CONFIG, "store: a password must not stand in the URL");
	err_hint(err,
		 "put it into a file of mode 0600 (HOST:PORT:DATABASE:USER:PASSWORD), and name that by PGPASSFILE, or "
		 "by ?passfile=/path in the URL");
	return -ERR_CONFIG;
}

static PGconn *connect_once(const struct pg_conn *conn)
{
	/* What stands before the URL is its to change, what stands behind is not. */
	const char *keys[] = { "connect_timeout",
			       "keepalives_idle",
			       "keepalives_interval",
			       "keepalives_count",
			       "tcp_user_timeout",
			       "target_session_attrs",
			       "dbname",
			       "application_name",
			       "client_encoding",
			       NULL };
	const char *values[] = { "5", "10", "5", "3", "20000", "read-write", conn->where, conn->name, "UTF8", NULL };

	return PQconnectdbParams(keys, values, 1);
}

/* What a session must have. 0; -ERR_STORE: perhaps later; another: never. */
static int session_open(struct pg_conn *conn, struct err *err)
{
	const char *encoding;

	if (pg_is_lost(conn)) {
		char text[400];

		one_line(PQerrorMessage(conn->pg), text, sizeof(text));
		err_set(err, ERR_STORE, "connecting: %s", text);
		err_hint(err,
			 "is the server running, and does it let this user in? A password comes from the file that "
			 "PGPASSFILE or passfile= names (mode 0600), or ~/.pgpass");
		return -ERR_STORE;
	}
	PQsetNoticeReceiver(conn->pg, notice_ignore, NULL);
	encoding = PQparameterStatus(conn->pg, "server_encoding");
	if (!encoding || strcmp(encoding, "UTF8") != 0) {
		err_set(err, ERR_STORE_SCHEMA, "the database's encoding is %s: it must be UTF8",
			encoding ? encoding : "unknown");
		err_hint(err, "make one: createdb --encoding=UTF8 --template=template0 --owner=USER NAME");
		return -ERR_STORE_SCHEMA;
	}
	if (!PQenterPipelineMode(conn->pg))
		return pg_fail(conn, NULL, err, "setting the connection up");
	return pg_exec(conn, session_text, err, "setting the connection up");
}

/* A former session of ours that the server does not know to be gone would hold the writers' lock until it does. */
static void former_end(struct pg_conn *conn, int pid)
{
	char number[16], answer[8];
	const char *params[] = { number, conn->name };

	(void)snprintf(number, sizeof(number), "%d", pid);
	(void)pg_ask(conn,
		     "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid=$1::int AND application_name=$2"
		     " AND usename=current_user",
		     2, params, answer, sizeof(answer), NULL, "ending a former session");
}

/* One session writes, of however many processes: as SQLite has it, so that the chain of the audit, the counters and the checks of versions need no
 * locks of their own; and a scheduler keeps in memory what another would change. The key: "heng", and the schema that the tables lie in. */
static int writer_lock(struct pg_conn *conn, struct err *err)
{
	char answer[8];
	const int result = pg_ask(
		conn,
		"SELECT pg_try_advisory_lock((1751477863::bigint << 32) | oid::bigint) FROM pg_namespace"
		" WHERE nspname=current_schema()",
		0, NULL, answer, sizeof(answer), err, "asking to be the one that writes");

	if (result < 0)
		return result;
	if (strcmp(answer, "t") == 0)
		return 0;
	if (answer[0] == '\0') {
		err_set(err, ERR_STORE_SCHEMA, "the search_path of this user begins with no schema that exists");
		err_hint(err, "CREATE SCHEMA NAME, and ?options=-csearch_path%%3DNAME in the URL");
		return -ERR_STORE_SCHEMA;
	}
	err_set(err, ERR_STORE, "another scheduler has this database open");
	err_hint(err,
		 "one scheduler at a time: stop it, or give this one a database or schema of its own; pg_stat_activity "
		 "shows who it is (application_name heng-...)");
	return -ERR_STORE;
}

static void wait_us(int64_t wait)
{
	const struct timespec time = { wait / 1000000, wait % 1000000 * 1000 };

	(void)nanosleep(&time, NULL);
}

int pg_connect(struct pg_conn *conn, struct err *err)
{
	const int former_pid = conn->pg && conn->is_writer ? PQbackendPID(conn->pg) : 0;
	const int64_t give_up_us = clock_mono_us() + PG_CONNECT_US;
	struct err own = ERR_INIT;
	struct rng rng;
	int result;

	rng_seed_kernel(&rng);
	for (unsigned attempt = 0;; attempt++) {
		pg_forget(conn);
		PQfinish(conn->pg);
		conn->pg = connect_once(conn);
		result = session_open(conn, &own);
		if (result == 0 && former_pid != 0)
			former_end(conn, former_pid);
		if (result == 0 && conn->is_writer)
			result = writer_lock(conn, &own);
		if (result != -ERR_STORE || clock_mono_us() >= give_up_us)
			break;
		wait_us(curve_backoff_us(attempt, PG_BACKOFF_BASE_US, PG_BACKOFF_CAP_US, &rng));
	}
	if (result < 0 && err) {
		*err = own;
		err_wrap(err, "database '%s' at %s", PQdb(conn->pg) ? PQdb(conn->pg) : "",
			 PQhost(conn->pg) ? PQhost(conn->pg) : "");
	}
	return result;
}
