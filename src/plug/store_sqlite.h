/* Private to the SQLite engine. */
#ifndef HENG_PLUG_STORE_SQLITE_H
#define HENG_PLUG_STORE_SQLITE_H

#include <sqlite3.h>

#include "plug/store_sql.h"

struct sqlite_stmt {
	struct sql_stmt base;
	sqlite3_stmt *handle;
};

struct sqlite_conn {
	struct sql_conn base;
	sqlite3 *db;
	char *where;
	struct sqlite_checkpoint *checkpoint; /* a writer's */
	struct sqlite_stmt stmts[SQL_COUNT];
};

static inline struct sqlite_conn *sqlite_conn_of(struct sql_conn *base)
{
	return CONTAINER_OF(base, struct sqlite_conn, base);
}

/* The failure of the connection's last call, as an error of the store. */
int sqlite_fail(struct sqlite_conn *conn, struct err *err, const char *doing);
int sqlite_exec(struct sqlite_conn *conn, const char *sql, struct err *err, const char *doing);
/* The thread that moves the write-ahead log of a writer into its database. stop: NULL-safe, before the connection is closed. */
int sqlite_checkpoint_start(struct sqlite_conn *writer, struct err *err);
void sqlite_checkpoint_stop(struct sqlite_conn *writer);
int sqlite_migrate(struct sql_conn *base, struct err *err);

#endif
