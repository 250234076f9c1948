/* Private to the PostgreSQL engine.
 *
 * A connection is in libpq's pipeline mode: what gives no rows is sent, and its answer is waited for with that of the next statement that does, or at
 * the end of a job. Rows of plans and of the audit are gathered and go by COPY. */
#ifndef HENG_PLUG_STORE_PG_H
#define HENG_PLUG_STORE_PG_H

#include <libpq-fe.h>

#include "base/buf.h"
#include "plug/store_sql.h"

#define PG_PARAMS_MAX  24
#define PG_PENDING_MAX 1024 /* statements under way */

struct pg_stmt {
	struct sql_stmt base;
	enum sql_id id;
	bool is_prepared;
	int param_count; /* the highest that was bound */
	const char *values[PG_PARAMS_MAX];
	int lengths[PG_PARAMS_MAX];
	Oid types[PG_PARAMS_MAX];
	char numbers[PG_PARAMS_MAX][8]; /* where values that are numbers lie */
	char *cleaned[PG_PARAMS_MAX];   /* and text that had to be made valid; freed with the next binding */
	PGresult *result;               /* its rows, all of them; NULL: not run */
	int row;                        /* the one at hand */
	PGresult *ahead[SQL_AHEAD_MAX]; /* asked for already, oldest first, from ahead_first on */
	size_t ahead_first, ahead_count;
};

enum pg_sort { PG_PREPARE, PG_RUN, PG_ROWS, PG_AHEAD };

struct pg_pending {
	enum pg_sort sort;
	struct pg_stmt *stmt; /* NULL: a text of its own */
	const char *doing;
};

struct pg_conn {
	struct sql_conn base;
	PGconn *pg;
	char *where;
	bool is_writer;
	bool is_open;      /* in a transaction */
	bool is_retryable; /* the transaction at hand, if its connection is lost: it had begun, and its fate is known */
	bool is_taken_back;  /* the server took it back, and the same again may pass */
	char name[40];       /* of the connection, as the server lists it; of the writer also its row in heng_writers */
	int64_t serial;      /* of the writer's transactions */
	int64_t changes;     /* of the last statement that was run */
	struct err deferred; /* of something that was sent, not yet told */
	struct pg_stmt *stmts[SQL_COUNT];
	struct pg_pending pending[PG_PENDING_MAX];
	size_t pending_count;
	struct buf copies[SQL_COUNT]; /* rows gathered; of those statements that have a text in pg_copy_text */
};

static inline struct pg_conn *pg_conn_of(struct sql_conn *base) { return CONTAINER_OF(base, struct pg_conn, base); }
static inline struct pg_stmt *pg_stmt_of(struct sql_stmt *base) { return CONTAINER_OF(base, struct pg_stmt, base); }
static inline bool pg_is_lost(const struct pg_conn *conn) { return PQstatus(conn->pg) != CONNECTION_OK; }

/* store_pg_conn.c. Connects, trying again for a while; the connection's name stays. */
int pg_connect(struct pg_conn *conn, struct err *err);
void pg_forget(struct pg_conn *conn); /* all that was prepared, gathered and under way */
/* The failure of a result (NULL: of the connection), as an error of the store. */
int pg_fail(struct pg_conn *conn, const PGresult *result, struct err *err, const char *doing);
/* Whether the text is a URL or a connection string that may be used. */
int pg_where_check(const char *where, struct err *err);

/* store_pg_send.c. With a deadline; NULL also when the connection is lost. */
PGresult *pg_answer(struct pg_conn *conn);
int pg_send_text(struct pg_conn *conn, const char *text, struct err *err, const char *doing);
/* Waits for all that is under way. The first failure, be it of long ago. */
int pg_drain(struct pg_conn *conn, struct err *err);
void pg_drain_quietly(struct pg_conn *conn);
int pg_flush(struct pg_conn *conn, bool is_all, struct err *err); /* what was gathered; not all: but the audit */
void pg_drop_copies(struct pg_conn *conn);
int pg_run(struct sql_stmt *stmt, struct err *err, const char *doing);
int pg_row(struct sql_stmt *stmt, struct err *err, const char *doing);
int pg_ahead(struct sql_stmt *stmt, struct err *err);
void pg_reset(struct sql_stmt *stmt);
int64_t pg_changes(struct sql_conn *base, struct err *err);
/* One statement with text parameters, outside of the list; its one value as text, "" when there is no row. */
int pg_ask(struct pg_conn *conn, const char *text, int count, const char *const *params, char *target,
	   size_t target_size, struct err *err, const char *doing);
/* Several statements at once. */
int pg_exec(struct pg_conn *conn, const char *text, struct err *err, const char *doing);

/* store_pg_schema.c */
int pg_migrate(struct sql_conn *base, struct err *err);

#endif
