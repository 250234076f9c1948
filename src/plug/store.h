/* The metadata store of the folder door: transfers, entries, objects, chunks, nodes, audit. One interface, an SQL database below it (SQLite, PostgreSQL).
 * All calls block (use a pool thread), are thread-safe, and have committed durably when they return 0. Names of states are stored as words. */
#ifndef HENG_PLUG_STORE_H
#define HENG_PLUG_STORE_H

#include "base/digest.h"
#include "wire/seal.h"
#include "base/err.h"
#include "base/rng.h"
#include "base/str.h"

#define STORE_NODE_ID_SIZE 65
#define STORE_USER_SIZE    65
#define STORE_BATCH_MAX    200 /* bytes of a batch name */
#define STORE_ADDR_SIZE    72  /* "https://" before what a socket's address may have */
#define STORE_REASON_SIZE  512

enum transfer_state {
	TRANSFER_CREATED,
	TRANSFER_DISTRIBUTING,
	TRANSFER_UPLOADING,
	TRANSFER_MERGING,
	TRANSFER_COMPLETED,
	TRANSFER_FAILED
};
enum chunk_state { CHUNK_PENDING, CHUNK_STORED, CHUNK_DIGEST_FAILED, CHUNK_LOST, CHUNK_MERGED };
const char *transfer_state_name(enum transfer_state state);
bool transfer_state_from_name(struct str name, enum transfer_state *ret_state);
const char *chunk_state_name(enum chunk_state state);
bool chunk_state_from_name(struct str name, enum chunk_state *ret_state);

struct store_transfer {
	char id[ULID_SIZE];
	char user[STORE_USER_SIZE];
	char batch[STORE_BATCH_MAX + 1]; /* bytes, no NUL within */
	char source[512];                /* "host:/absolute/path", percent-encoded, for recognising a re-push */
	char manifest_digest[33];        /* XXH3-128 of the manifest */
	uint32_t manifest_crc32c;
	enum digest_kind digest;
	char seal
		[SEAL_LABEL_SIZE]; /* how the client encrypted the files, cipher and key id (wire/seal.h); "": it did not */
	uint64_t chunk_bytes, pack_bytes;
	uint64_t entry_count, file_count, object_count, chunk_count, total_bytes;
	uint64_t stored_chunk_count, stored_bytes; /* filled by the getters */
	/* On so many nodes each chunk is wanted: 1 (0 counts as 1) or 2. Without a waiver it is merged only when every chunk is. */
	unsigned copies;
	bool is_copies_waived;                     /* filled by the getters, as the next */
	uint64_t copied_chunk_count, copied_bytes; /* stored or merged chunks that have their second copy */
	enum transfer_state state;
	int64_t version; /* optimistic lock */
	bool is_retryable;
	int priority;
	char reason[STORE_REASON_SIZE]; /* why failed, or what a merge waits for */
	char client_addr[STORE_ADDR_SIZE];
	int64_t created_wall_us, updated_wall_us, completed_wall_us;
};

/* Exactly an entry of the manifest; a file of at least one byte lies in object file_id at object_offset (a pack holds many). */
struct store_entry {
	uint64_t seq;
	char type; /* 'D' 'F' 'L' */
	uint32_t mode;
	int64_t mtime_ns;
	uint64_t size_bytes;
	struct str path, target; /* raw bytes */
	uint64_t file_id;        /* 0: no bytes to send (folder, link, empty file) */
	uint64_t object_offset;
	char digest[DIGEST_HEX_SIZE]; /* "" until bound at complete */
};

struct store_object {
	uint64_t
		file_id; /* 1.. in manifest order; those of revisions come after, each revision's in manifest order again */
	bool is_pack;
	/* The entries from which its bytes come, in order; entries between without bytes do not matter. */
	uint64_t first_seq, last_seq;
	uint64_t size_bytes;
	uint64_t chunk_count;
};

struct store_chunk {
	uint64_t file_id, chunk_index;
	uint64_t size_bytes;
	enum chunk_state state;
	char target_node[STORE_NODE_ID_SIZE];
	char actual_node[STORE_NODE_ID_SIZE]; /* "" until stored */
	char copy_node[STORE_NODE_ID_SIZE];   /* another node that has it too, or ""; a plan's chunks have none */
	char digest[DIGEST_HEX_SIZE];
	int64_t updated_wall_us;
};

/* A node's word that a chunk is durable with it. Also an audit row. */
struct store_receipt {
	char transfer_id[ULID_SIZE];
	uint64_t file_id, chunk_index, size_bytes;
	enum digest_kind digest_kind;
	char digest[DIGEST_HEX_SIZE];
	char node_id[STORE_NODE_ID_SIZE];
	char node_addr[STORE_ADDR_SIZE], client_addr[STORE_ADDR_SIZE];
	char request_id[40], user[STORE_USER_SIZE], user_agent[128], disk_path[256];
	int64_t started_wall_us, finished_wall_us;
	/* ERR_NONE: stored. DIGEST_MISMATCH, DISK_LOW, ...: an attempt that failed: recorded, and the chunk's state follows (digest_failed
	 * only when it is not stored already). CHUNK_GONE of a chunk that was merged from that node becomes ERR_NONE. */
	enum err_code outcome;
	/* Answer of store->receipts: ERR_NONE, NO_TRANSFER, NO_CHUNK, CHUNK_SIZE, MERGING, STATE, DIGEST_CONFLICT, BAD_REQUEST. */
	enum err_code result;
};

struct store_audit {
	int64_t at_wall_us;
	const char *
		kind; /* "state", "chunk", "refused", "removed", "revised", "alert", "operator", "pulled", "audit", "hook" */
	const char *transfer_id, *user, *node_id, *outcome, *detail; /* NULL allowed, as in the next */
	const char *algorithm, *client_addr, *request_id, *user_agent;
	uint64_t file_id, chunk_index;
};

struct store_node {
	char id[STORE_NODE_ID_SIZE];
	char addr[STORE_ADDR_SIZE];
	char incarnation[33];
	uint32_t weight_milli;
	char domain[STORE_NODE_ID_SIZE];
	int64_t seen_wall_us;
};

/* What an operator has ordered about a node. Outlives restarts of scheduler and node. */
enum node_order { NODE_ORDER_NONE, NODE_ORDER_DRAIN, NODE_ORDER_LOST };
const char *node_order_name(enum node_order order); /* "", "drain", "lost" */
bool node_order_from_name(struct str name, enum node_order *ret_order);

struct store_order {
	char node_id[STORE_NODE_ID_SIZE];
	enum node_order order;
	bool is_weight_ordered; /* else the node's own weight counts */
	uint32_t weight_milli;
};

/* See audit_chain.h. */
struct audit_row;
struct audit_query;
struct audit_place;
struct audit_point;
struct audit_head;

struct store;
struct store_plan; /* a plan being written: one transaction */

struct store_ops {
	void (*close)(struct store *store);

	/* Planning: one transaction from begin to commit. begin inserts the transfer as given (state distributing); commit sets it to uploading with
	 * the counts in *transfer, version 1, and writes an audit row. Nothing is visible before. abort (or a crash) leaves nothing. Slices are copied.
	 * Rows are inserted some at a time: one that is refused may be told by a later call, the commit at last.
	 * commit ends the plan in any case; counts that are not those of its rows: -ERR_INTERNAL. An open plan holds back every writer of the store:
	 * parse first, plan then; the thread that has one open must not write otherwise (-ERR_INTERNAL, it would wait for itself). */
	int (*plan_begin)(struct store *store, const struct store_transfer *transfer, struct store_plan **ret_plan,
			  struct err *err);
	int (*plan_entry)(struct store_plan *plan, const struct store_entry *entry, struct err *err);
	int (*plan_object)(struct store_plan *plan, const struct store_object *object, struct err *err);
	int (*plan_chunk)(struct store_plan *plan, const struct store_chunk *chunk, struct err *err);
	int (*plan_commit)(struct store_plan **plan, const struct store_transfer *transfer, struct err *err);
	void (*plan_abort)(struct store_plan **plan);

	/* Revising the plan of a transfer that is being uploaded: one transaction again, from revise_begin to revise_commit, or plan_abort. begin fails
	 * with -ERR_VERSION_CONFLICT when the transfer is not as it was read any more, and says which file id is free: ids are given once, so that
	 * what nodes have of a dropped object can never be taken for what replaces it. drop takes an object out with its chunks, whatever their
	 * state. Then plan_entry replaces what the row of that number, type and path says, and plan_object and plan_chunk add as above. row: one more
	 * of the audit. commit keeps digest, checksum and counts of *transfer, which must be those of its rows, and moves its version on. */
	int (*revise_begin)(struct store *store, const struct store_transfer *transfer, struct store_plan **ret_plan,
			    uint64_t *ret_next_file_id, struct err *err);
	int (*revise_drop)(struct store_plan *plan, uint64_t file_id, struct err *err);
	int (*revise_row)(struct store_plan *plan, const struct store_audit *row, struct err *err);
	int (*revise_commit)(struct store_plan **plan, const struct store_transfer *transfer, struct err *err);

	/* -ERR_NO_TRANSFER when absent. */
	int (*transfer_get)(struct store *store, const char *id, struct store_transfer *ret, struct err *err);
	/* The newest of this batch that is not `failed`; -ERR_NO_TRANSFER when there is none. */
	int (*transfer_by_batch)(struct store *store, struct str batch, struct store_transfer *ret, struct err *err);
	/* Newest first; user NULL: everybody's; state_mask: bits 1 << state. Calls back until it returns non-zero. A
	 * callback of this and of the pages below may use the store. */
	int (*transfer_list)(struct store *store, const char *user, unsigned state_mask, size_t limit,
			     int (*each)(void *owner, const struct store_transfer *transfer), void *owner,
			     struct err *err);
	/* Those in state uploading without progress (a chunk stored, a change of state) since before_wall_us, the longest idle first. Cheap however
	 * many transfers there are. Callbacks as above. */
	int (*transfers_idle)(struct store *store, int64_t before_wall_us, size_t limit,
			      int (*each)(void *owner, const struct store_transfer *transfer), void *owner,
			      struct err *err);
	/* Failed ones whose chunks count as stored still: what remains to be cleaned. In the order of their ids, strictly after the given one ("" starts).
	 * As cheap. */
	int (*transfers_uncleaned)(struct store *store, const char *after_id, size_t limit,
				   int (*each)(void *owner, const struct store_transfer *transfer), void *owner,
				   struct err *err);
	/* Optimistic: -ERR_VERSION_CONFLICT when the version moved meanwhile. On success transfer->version, state, reason are updated. An audit row of
	 * kind "state" is written in the same transaction. Completing also turns its stored chunks to merged. Neither merging nor completed can be
	 * reached while a chunk is missing, nor merging while a copy is that was not waived: -ERR_INCOMPLETE. Uploading ends a waiver. Other changes of state are the caller's to judge. */
	int (*transfer_move)(struct store *store, struct store_transfer *transfer, enum transfer_state state,
			     const char *reason, bool is_retryable, int64_t now_wall_us, struct err *err);
	/* Only the reason text (what a merge waits for); no version change. */
	int (*transfer_note)(struct store *store, const char *id, const char *reason, struct err *err);

	/* Pages in (file_id, chunk_index) order, strictly after the given pair ((0, 0) starts: file ids begin at 1); state_mask as above. */
	int (*chunks)(struct store *store, const char *transfer_id, uint64_t after_file_id, uint64_t after_chunk_index,
		      unsigned state_mask, size_t limit, int (*each)(void *owner, const struct store_chunk *chunk),
		      void *owner, struct err *err);
	int (*objects)(struct store *store, const char *transfer_id, uint64_t after_file_id, size_t limit,
		       int (*each)(void *owner, const struct store_object *object), void *owner, struct err *err);
	int (*entries)(struct store *store, const char *transfer_id, uint64_t from_seq, uint64_t to_seq_inclusive,
		       int (*each)(void *owner, const struct store_entry *entry), void *owner, struct err *err);
	/* How many chunks are in each state; counts has CHUNK_MERGED + 1 places. */
	int (*chunk_counts)(struct store *store, const char *transfer_id, uint64_t *ret_counts, struct err *err);

	/* Many receipts, one commit (group commit with other callers' too). Each gets its result and an audit row. Returns negative only when nothing
	 * was committed. The first good receipt stays, and another of its node moves the row's time on (what chunks_lose was
	 * to give up is there again); where two copies are wanted, the first of another node with the same digest is the second;
	 * text that is no digest of the transfer's kind: BAD_REQUEST. */
	int (*receipts)(struct store *store, struct store_receipt *receipts, size_t count, struct err *err);
	/* Binds whole-file digests, all or none. Entries that have another digest already: replaced while uploading; -ERR_STATE in other states,
	 * -ERR_BAD_REQUEST for a number that is no file's and for text that is no digest. */
	int (*bind_digests)(struct store *store, const char *transfer_id, const uint64_t *seqs,
			    const char (*digests)[DIGEST_HEX_SIZE], size_t count, struct err *err);
	/* Stored chunks of one object back to `state` (PENDING after an integrity failure, LOST), with an audit row; node_id NULL: on whatever nodes.
	 * file_id 0: every object. Their nodes and digest are forgotten. But a chunk of which another node than node_id has a copy stays stored: that
	 * node becomes its actual one. *ret_count: how many went back; the audit row says also how many were kept. */
	int (*chunks_reopen)(struct store *store, const char *transfer_id, uint64_t file_id, const char *node_id,
			     enum chunk_state state, const char *why, int64_t now_wall_us, uint64_t *ret_count,
			     struct err *err);
	/* The node does not have these chunks (any more, or not the right bytes) of a transfer that is in `state`, uploading or merging: each that is
	 * stored still as given (its nodes, digest and time are compared) becomes lost, or is kept by its copy elsewhere, with an audit row. How many of
	 * each is in *ret_lost_count and *ret_kept_count; none when the transfer is in another state. -ERR_NO_TRANSFER. */
	int (*chunks_lose)(struct store *store, const char *transfer_id, enum transfer_state state, const char *node_id,
			   const struct store_chunk *chunks, size_t count, const char *why, int64_t now_wall_us,
			   uint64_t *ret_lost_count, uint64_t *ret_kept_count, struct err *err);
	/* How many copies are wanted of each chunk, and whether fewer will do for now, with an audit row of kind "alert" when they will. -ERR_STATE when
	 * the transfer is not uploading. */
	int (*copies_set)(struct store *store, const char *transfer_id, unsigned copies, bool is_waived,
			  const char *why, int64_t now_wall_us, struct err *err);

	int (*node_save)(struct store *store, const struct store_node *node, struct err *err);
	int (*node_list)(struct store *store, int (*each)(void *owner, const struct store_node *node), void *owner,
			 struct err *err);
	/* Keeps what is ordered about a node and writes `row` (NULL: none), in one transaction. When the order is LOST, all that the node has stored
	 * of transfers in state uploading becomes lost in it too (or is kept by its copy elsewhere), with an audit row each; *ret_lost_count says how many
	 * chunks became lost. Merging transfers are
	 * the merge's to reopen. */
	int (*order_save)(struct store *store, const struct store_order *order, const struct store_audit *row,
			  int64_t now_wall_us, uint64_t *ret_lost_count, struct err *err);
	int (*order_list)(struct store *store, int (*each)(void *owner, const struct store_order *order), void *owner,
			  struct err *err);
	/* Every audit row, of this call and of all others, is chained to the one before it (audit_chain.h), in the transaction that writes it. */
	int (*audit)(struct store *store, const struct store_audit *row, struct err *err);
	/* Callbacks as above; what the row points to lives until the callback returns. A page looks at a bounded number of rows, so it may be short, even
	 * empty: *ret_place is where it ended, the `after` of the next one, and *ret_more says whether there may be any. */
	int (*audit_rows)(struct store *store, const struct audit_query *query,
			  int (*each)(void *owner, const struct audit_row *row), void *owner,
			  struct audit_place *ret_place, bool *ret_more, struct err *err);
	int (*audit_head)(struct store *store, struct audit_head *ret, struct err *err);
	/* Takes rows out that are in an archive: all up to to->id, whose hash must be the one given, after the anchor `from`. They are gone for good, the
	 * anchor is *to, and `row` is written, in one transaction: keep the pieces small. -ERR_VERSION_CONFLICT when the anchor is another or the
	 * row is not there as it was; nothing is taken then. The newest row stays always. */
	int (*audit_cut)(struct store *store, const struct audit_point *from, const struct audit_point *to,
			 const struct store_audit *row, struct err *err);
};

struct store {
	const struct store_ops *ops;
};

/* Opens or makes the database file (WAL, synchronous FULL, numbered migrations; refuses a newer schema in words). */
int store_sqlite_open(const char *path, struct store **ret_store, struct err *err);
/* The same file, to look at its audit and nothing else: nothing is made or migrated, and only close, audit_rows and audit_head may be called. */
int store_sqlite_open_audit(const char *path, struct store **ret_store, struct err *err);

/* Opens the tables in a PostgreSQL database, or makes them there (UTF8; one store at a time has them open; migrations as above). The URL or
 * connection string must hold no password. What a lost connection took back is run again; a commit whose answer was lost is looked up. */
int store_pg_open(const char *url, struct store **ret_store, struct err *err);

#endif
