/* Private to the SQL stores: what they do is written once, over the few calls of `struct sql_engine`; each database has one file set below it.
 *
 * One connection writes, owned by one thread. Callers hand it closures and wait; it runs all that are queued in one transaction, each in a
 * savepoint of its own, and wakes them after the commit: so many callers share one sync (group commit). A plan borrows the writer's
 * connection between two such transactions. Readers are connections of their own and never wait for the writer. */
#ifndef HENG_PLUG_STORE_SQL_H
#define HENG_PLUG_STORE_SQL_H

#include <pthread.h>

#include "plug/audit_chain.h"

/* The words that the engines spell differently do not matter for the names. */
#define SQL_GREATEST                           ""
#define SQL_INDEXED(index)                     ""
#define SQL_INSERT_ROWS(into, numbered, tuple) ""
enum sql_id {
#define SQL(name, text) SQL_##name,
#include "plug/store_sql_list.h"
#undef SQL
	SQL_COUNT,
};
#undef SQL_GREATEST
#undef SQL_INDEXED
#undef SQL_INSERT_ROWS

#define SQL_CHUNK_STATES (CHUNK_MERGED + 1)

/* A connection, the first field of its engine's own; one thread at a time. */
struct sql_conn {
	const struct sql_engine *engine;
	struct sql_audit_chain {
		struct audit_hasher *hasher; /* NULL until the first row is written */
		struct audit_point last;
		bool is_read, is_moved; /* in the transaction at hand */
	} audit;
	struct sql_conn *next; /* in the list of idle readers */
};

/* A prepared statement, the first field of its engine's own. */
struct sql_stmt {
	struct sql_conn *conn;
};

/* What a database must be able to do. `where` is a path or a URL. */
struct sql_engine {
	const char *name;
	/* Rows that its SQL_INSERT_ROWS takes at once, at most SQL_ROWS_MAX; those whose first column is NULL are left out. */
	unsigned row_count;
	int (*open)(const char *where, bool is_writer, struct sql_conn **ret_conn, struct err *err);
	void (*close)(struct sql_conn *conn);
	/* Brings the schema up to date, or refuses the database in words. */
	int (*migrate)(struct sql_conn *conn, struct err *err);
	/* A connection that has lain idle: false when it is of no use any more. */
	bool (*is_alive)(struct sql_conn *conn);

	/* From begin to commit nobody else writes. A transaction whose commit failed was not kept: engines find that out. */
	int (*begin)(struct sql_conn *conn, struct err *err);
	int (*commit)(struct sql_conn *conn, struct err *err);
	void (*rollback)(struct sql_conn *conn);
	bool (*is_in_transaction)(struct sql_conn *conn);
	/* Waits until what `run` sent has been done. */
	int (*settle)(struct sql_conn *conn, struct err *err);
	/* After a transaction was lost: 0 when it may be run again on this connection, which may have been made anew. */
	int (*mend)(struct sql_conn *conn, struct err *err);

	struct sql_stmt *(*stmt)(struct sql_conn *conn, enum sql_id id, struct err *err);
	void (*bind_text)(struct sql_stmt *stmt, int index, const char *text);
	void (*bind_str)(struct sql_stmt *stmt, int index, struct str text);
	void (*bind_bytes)(struct sql_stmt *stmt, int index, struct str bytes);
	void (*bind_i64)(struct sql_stmt *stmt, int index, int64_t value);
	void (*bind_null)(struct sql_stmt *stmt, int index);
	int (*run)(struct sql_stmt *stmt, struct err *err, const char *doing);
	int (*row)(struct sql_stmt *stmt, struct err *err, const char *doing);
	int (*ahead)(struct sql_stmt *stmt, struct err *err); /* an engine that waits for nobody does nothing */
	void (*reset)(struct sql_stmt *stmt);
	int64_t (*changes)(struct sql_conn *conn, struct err *err);
	struct str (*bytes)(struct sql_stmt *stmt, int column);
	int64_t (*i64)(struct sql_stmt *stmt, int column);
	bool (*is_null)(struct sql_stmt *stmt, int column);
};

extern const struct sql_engine sql_engine_sqlite, sql_engine_pg;

/* A row of store_sql_schema_list.h. */
struct sql_migration {
	const char *text;
	int (*then)(struct sql_conn *conn, struct err *err);
};

/* A transaction: whoever writes into the audit begins and ends it by these, as the chain goes on only with a commit. */
void sql_conn_close(struct sql_conn *conn);
int sql_begin(struct sql_conn *conn, struct err *err);
int sql_commit(struct sql_conn *conn, struct err *err);

/* NULL when it cannot be prepared. Parameters keep what was bound before. */
static inline struct sql_stmt *sql_stmt(struct sql_conn *conn, enum sql_id id, struct err *err)
{
	return conn->engine->stmt(conn, id, err);
}
/* Runs a statement that gives no rows. An engine may only send it: then its failure is told by the next call that waits, at the latest by settle
 * or commit, and undoes as much. */
static inline int sql_run(struct sql_conn *conn, struct sql_stmt *stmt, struct err *err, const char *doing)
{
	return conn->engine->run(stmt, err, doing);
}
int sql_run_id(struct sql_conn *conn, enum sql_id id, struct err *err, const char *doing);
/* How many rows the last statement that was run changed, or negative: it failed. Waits for it. */
static inline int64_t sql_changes(struct sql_conn *conn, struct err *err) { return conn->engine->changes(conn, err); }
/* Asks for the rows of a statement that gives at most one, so that many are waited for once: the next calls of sql_row on it give what was asked, in
 * that order, if the same is bound again; each is then to be reset. At most SQL_AHEAD_MAX. */
#define SQL_AHEAD_MAX 256
static inline int sql_ahead(struct sql_stmt *stmt, struct err *err) { return stmt->conn->engine->ahead(stmt, err); }
/* 1: a row is there; 0: no more (already reset); negative: failed (already reset). */
static inline int sql_row(struct sql_conn *conn, struct sql_stmt *stmt, struct err *err, const char *doing)
{
	return conn->engine->row(stmt, err, doing);
}
/* Gives up the rows that are left. NULL is fine. */
static inline void sql_reset(struct sql_stmt *stmt)
{
	if (stmt)
		stmt->conn->engine->reset(stmt);
}

/* Bound memory must live until the statement has run. NULL text binds NULL. */
static inline void sql_bind_text(struct sql_stmt *stmt, int index, const char *text)
{
	stmt->conn->engine->bind_text(stmt, index, text);
}
static inline void sql_bind_str(struct sql_stmt *stmt, int index, struct str text)
{
	stmt->conn->engine->bind_str(stmt, index, text);
}
static inline void sql_bind_bytes(struct sql_stmt *stmt, int index, struct str bytes)
{
	stmt->conn->engine->bind_bytes(stmt, index, bytes);
}
static inline void sql_bind_i64(struct sql_stmt *stmt, int index, int64_t value)
{
	stmt->conn->engine->bind_i64(stmt, index, value);
}
static inline void sql_bind_null(struct sql_stmt *stmt, int index) { stmt->conn->engine->bind_null(stmt, index); }
/* Values over INT64_MAX become INT64_MAX: only for bounds of ranges and for what was checked by sql_fits. */
void sql_bind_u64(struct sql_stmt *stmt, int index, uint64_t value);
static inline bool sql_fits(uint64_t value) { return value <= INT64_MAX; }

/* Of the row that is there. Bytes live until the next call on the statement. */
void sql_text(struct sql_stmt *stmt, int column, char *target, size_t target_size);
static inline struct str sql_bytes(struct sql_stmt *stmt, int column)
{
	return stmt->conn->engine->bytes(stmt, column);
}
static inline int64_t sql_i64(struct sql_stmt *stmt, int column) { return stmt->conn->engine->i64(stmt, column); }
uint64_t sql_u64(struct sql_stmt *stmt, int column); /* 0 for what is below */
static inline bool sql_is_null(struct sql_stmt *stmt, int column) { return stmt->conn->engine->is_null(stmt, column); }

/* Opens either store: makes or migrates its tables. */
int sql_open(const struct sql_engine *engine, const char *where, struct store **ret_store, struct err *err);

/* Opens it for reading and changes nothing: only close, audit_rows and audit_head may be called. */
int sql_open_audit(const struct sql_engine *engine, const char *where, struct store **ret_store, struct err *err);

/* Something to be written. `run` may be called on another thread, and once more when a connection was lost before the commit: it starts from
 * nothing each time. It must not call the store. */
struct sql_job {
	int (*run)(struct sql_conn *conn, void *arg, struct err *err);
	void *arg;
	struct err *err;
	int result;
	bool is_plan; /* no run: the connection is lent to the caller until sql_writer_return */
	bool is_done;
	pthread_t caller;
	pthread_cond_t done;
	struct sql_job *next;
};

struct sql_writer {
	struct sql_conn *conn; /* the writer thread's, but for the time it is lent */
	pthread_t thread;
	pthread_mutex_t lock; /* protects the fields below */
	pthread_cond_t wake;
	struct sql_job *head, **tail; /* first come, first served: neither plans nor receipts can starve the other */
	bool is_closing, is_lent;
	pthread_t lent_to; /* means something while is_lent */
};

struct sql_store {
	struct store store;
	const struct sql_engine *engine;
	char *where;
	struct sql_writer writer;
	pthread_mutex_t readers_lock; /* protects the two fields below */
	struct sql_conn *readers;     /* idle */
	size_t idle_count;
};

static inline struct sql_store *sql_store_of(struct store *store)
{
	return CONTAINER_OF(store, struct sql_store, store);
}

int sql_writer_start(struct sql_writer *writer, struct err *err); /* conn is open already */
void sql_writer_stop(struct sql_writer *writer);                  /* what is queued is still written */
/* Returns after the commit, with the closure's result; when that is negative nothing of it was kept. */
int sql_writer_do(struct sql_writer *writer, int (*run)(struct sql_conn *, void *, struct err *), void *arg,
		  struct err *err);
int sql_writer_lend(struct sql_writer *writer, struct err *err);
void sql_writer_return(struct sql_writer *writer);

/* An idle reader, or a new one: never waits, so that a callback may read too. */
struct sql_conn *sql_reader_get(struct sql_store *store, struct err *err);
void sql_reader_put(struct sql_store *store, struct sql_conn *conn);
/* A reader on which the statement is ready, until sql_reader_end. NULL: it failed, and none is held. */
struct sql_stmt *sql_reader_stmt(struct store *store, enum sql_id id, struct err *err);
/* Gives both back, and ends the read transaction: a page never holds the write-ahead log back for longer than it lasts. row is the last that sql_row said: negative is returned, anything else is 0. */
int sql_reader_end(struct store *store, struct sql_stmt *stmt, int row);

/* What a write needs to know of its transfer. */
struct sql_brief {
	char id[ULID_SIZE];
	bool is_found;
	int64_t num, version;
	enum transfer_state state;
	enum digest_kind digest;
	char user[STORE_USER_SIZE];
	uint64_t chunk_count, arrived_count; /* arrived: stored or merged */
	unsigned copies;
	uint64_t copied_count;
	bool is_copies_waived;
};
/* 0 also when there is none: look at is_found. */
int sql_brief_read(struct sql_conn *conn, const char *id, struct sql_brief *brief, struct err *err);

/* A row of the audit table; receipt NULL: the fields of `row` only. In whatever transaction the connection is. */
int sql_audit(struct sql_conn *conn, const struct store_audit *row, const struct store_receipt *receipt,
	      struct err *err);
/* Chains the rows from before there was a chain. */
int sql_audit_chain_old(struct sql_conn *conn, struct err *err);
/* As store->chunks_reopen, within the job at hand. */
int sql_reopen(struct sql_conn *conn, const char *transfer_id, uint64_t file_id, const char *node_id,
	       enum chunk_state state, const char *why, int64_t now_wall_us, uint64_t *ret_count, struct err *err);
/* Adds to the transfer's counters; delta has a place per chunk state. */
int sql_counters_add(struct sql_conn *conn, int64_t transfer_num, const int64_t *delta, int64_t delta_stored_bytes,
		     int64_t now_wall_us, struct err *err);

/* The same for its chunks that have a second copy. */
int sql_copies_add(struct sql_conn *conn, int64_t transfer_num, int64_t delta_count, int64_t delta_bytes,
		   int64_t now_wall_us, struct err *err);
/* Before chunks are reopened: the second copies that go with them, or that take a lost one's place. Parameters as of chunks_reopen;
 * *ret_kept_count: chunks that stay stored by their other copy. */
int sql_copies_drop(struct sql_conn *conn, int64_t transfer_num, uint64_t file_id, const char *node_id,
		    int64_t now_wall_us, uint64_t *ret_kept_count, struct err *err);

/* Rows of a plan that are not inserted yet. */
#define SQL_ROWS_MAX 16
struct sql_rows {
	unsigned entry_count, chunk_count;
	struct store_entry entries[SQL_ROWS_MAX];
	struct store_chunk chunks[SQL_ROWS_MAX];
	struct buf text; /* the entries' paths and targets, one after the other */
};

/* A plan, or a revision of one: it holds the writer's connection with a transaction open on it, and ends in sql_plan_end. */
struct store_plan {
	struct sql_store *sql;
	bool is_revision;
	int64_t transfer_num;
	char transfer_id[ULID_SIZE];
	uint64_t entry_count, object_count, chunk_count, last_file_id;
	int64_t state_counts[SQL_CHUNK_STATES]; /* a revision's: by how much they change, as the next */
	int64_t stored_bytes;
	struct sql_rows rows;
};
static inline struct sql_conn *sql_plan_conn(struct store_plan *plan) { return plan->sql->writer.conn; }
/* Lends the connection and opens the transaction. */
int sql_plan_open(struct store *store, const char *transfer_id, struct store_plan **ret_plan, struct err *err);
void sql_plan_end(struct store_plan **plan);
int sql_plan_check(const struct store_plan *plan, const struct store_transfer *transfer, struct err *err);

void sql_rows_init(struct sql_rows *rows);
void sql_rows_fini(struct sql_rows *rows);
/* Copies; inserts once there are enough. */
int sql_rows_entry(struct store_plan *plan, const struct store_entry *entry, struct err *err);
int sql_rows_chunk(struct store_plan *plan, const struct store_chunk *chunk, struct err *err);
/* Inserts what is left. */
int sql_rows_flush(struct store_plan *plan, struct err *err);
/* An entry's columns, from parameter at + 1 on. */
void sql_entry_bind(struct sql_stmt *stmt, int at, int64_t transfer_num, const struct store_entry *entry);

/* The rows of the store's table of operations, by file. */
int sql_plan_begin(struct store *store, const struct store_transfer *transfer, struct store_plan **ret_plan,
		   struct err *err);
int sql_plan_entry(struct store_plan *plan, const struct store_entry *entry, struct err *err);
int sql_plan_object(struct store_plan *plan, const struct store_object *object, struct err *err);
int sql_plan_chunk(struct store_plan *plan, const struct store_chunk *chunk, struct err *err);
int sql_plan_commit(struct store_plan **plan, const struct store_transfer *transfer, struct err *err);
void sql_plan_abort(struct store_plan **plan);
int sql_revise_begin(struct store *store, const struct store_transfer *transfer, struct store_plan **ret_plan,
		     uint64_t *ret_next_file_id, struct err *err);
int sql_revise_drop(struct store_plan *plan, uint64_t file_id, struct err *err);
int sql_revise_row(struct store_plan *plan, const struct store_audit *row, struct err *err);
int sql_revise_commit(struct store_plan **plan, const struct store_transfer *transfer, struct err *err);

int sql_transfer_get(struct store *store, const char *id, struct store_transfer *ret, struct err *err);
int sql_transfer_by_batch(struct store *store, struct str batch, struct store_transfer *ret, struct err *err);
int sql_transfer_list(struct store *store, const char *user, unsigned state_mask, size_t limit,
		      int (*each)(void *owner, const struct store_transfer *transfer), void *owner, struct err *err);
int sql_transfers_idle(struct store *store, int64_t before_wall_us, size_t limit,
		       int (*each)(void *owner, const struct store_transfer *transfer), void *owner, struct err *err);
int sql_transfers_uncleaned(struct store *store, const char *after_id, size_t limit,
			    int (*each)(void *owner, const struct store_transfer *transfer), void *owner,
			    struct err *err);
int sql_chunks(struct store *store, const char *transfer_id, uint64_t after_file_id, uint64_t after_chunk_index,
	       unsigned state_mask, size_t limit, int (*each)(void *owner, const struct store_chunk *chunk),
	       void *owner, struct err *err);
int sql_objects(struct store *store, const char *transfer_id, uint64_t after_file_id, size_t limit,
		int (*each)(void *owner, const struct store_object *object), void *owner, struct err *err);
int sql_entries(struct store *store, const char *transfer_id, uint64_t from_seq, uint64_t to_seq_inclusive,
		int (*each)(void *owner, const struct store_entry *entry), void *owner, struct err *err);
int sql_chunk_counts(struct store *store, const char *transfer_id, uint64_t *ret_counts, struct err *err);
int sql_node_list(struct store *store, int (*each)(void *owner, const struct store_node *node), void *owner,
		  struct err *err);

int sql_transfer_move(struct store *store, struct store_transfer *transfer, enum transfer_state state,
		      const char *reason, bool is_retryable, int64_t now_wall_us, struct err *err);
int sql_transfer_note(struct store *store, const char *id, const char *reason, struct err *err);
int sql_receipts(struct store *store, struct store_receipt *receipts, size_t count, struct err *err);
int sql_bind_digests(struct store *store, const char *transfer_id, const uint64_t *seqs,
		     const char (*digests)[DIGEST_HEX_SIZE], size_t count, struct err *err);
int sql_chunks_reopen(struct store *store, const char *transfer_id, uint64_t file_id, const char *node_id,
		      enum chunk_state state, const char *why, int64_t now_wall_us, uint64_t *ret_count,
		      struct err *err);
int sql_copies_set(struct store *store, const char *transfer_id, unsigned copies, bool is_waived, const char *why,
		   int64_t now_wall_us, struct err *err);
int sql_chunks_lose(struct store *store, const char *transfer_id, enum transfer_state state, const char *node_id,
		    const struct store_chunk *chunks, size_t count, const char *why, int64_t now_wall_us,
		    uint64_t *ret_lost_count, uint64_t *ret_kept_count, struct err *err);
int sql_node_save(struct store *store, const struct store_node *node, struct err *err);
int sql_order_save(struct store *store, const struct store_order *order, const struct store_audit *row,
		   int64_t now_wall_us, uint64_t *ret_lost_count, struct err *err);
int sql_order_list(struct store *store, int (*each)(void *owner, const struct store_order *order), void *owner,
		   struct err *err);
int sql_audit_row(struct store *store, const struct store_audit *row, struct err *err);
int sql_audit_rows(struct store *store, const struct audit_query *query,
		   int (*each)(void *owner, const struct audit_row *row), void *owner, struct audit_place *ret_place,
		   bool *ret_more, struct err *err);
int sql_audit_head(struct store *store, struct audit_head *ret, struct err *err);
int sql_audit_cut(struct store *store, const struct audit_point *from, const struct audit_point *to,
		  const struct store_audit *row, struct err *err);

#endif
