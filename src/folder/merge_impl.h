/* Private to merging: what merge.c (queue, threads), merge_run.c (one attempt), merge_end.c (how a merge ends), merge_node.c (which node may be asked, at which address),
 * merge_pull.c (the chunks of one object) and merge_object.c (from bytes to files) share. */
#ifndef HENG_FOLDER_MERGE_IMPL_H
#define HENG_FOLDER_MERGE_IMPL_H

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "folder/final.h"
#include "folder/merge.h"
#include "folder/stage.h"
#include "sys/fetch.h"

#define MERGE_THREAD_COUNT  4 /* transfers at once: one that waits for a node must not hold up the others */
#define MERGE_AHEAD_COUNT   2 /* more threads, for transfers that are still being sent */
#define MERGE_AHEAD_NOTES   64
#define MERGE_PULLERS_MAX   64
#define MERGE_WINDOW_MAX    4  /* chunks of one object at once */
#define MERGE_TRIES_MAX     5  /* per chunk, while its node answers */
#define MERGE_STALLS_MAX    3  /* merges of a transfer in a row that nodes do not let get any further */
#define MERGE_STALLED_MAX   64 /* transfers of which that is remembered */
#define MERGE_WAIT_US       (200 * MSEC_US)
#define MERGE_RETRY_US      (5 * SEC_US)
#define MERGE_SYSTEM_FOLDER ".heng"

struct merge_job {
	char id[ULID_SIZE];
	bool is_running, is_wanted_again;
	bool is_ahead; /* the transfer is still being sent, as far as is known: for the threads that merge ahead */
	struct merge_run *ahead; /* the run that began so, while it goes on */
	int64_t due_us;          /* not before then */
	struct merge_run *run;   /* the one that began when it was merging, while it goes on */
	int priority;            /* the transfer's, once it is merging */
	struct merge_job *next;
};

/* A transfer whose last merge ended because nodes did not give chunks that they have. */
struct merge_stall {
	char id[ULID_SIZE];
	unsigned count;          /* of such merges in a row, none of which got further than the one before */
	uint64_t unpulled_count; /* objects in the last */
};

/* A transfer of which running ahead came to nothing. */
struct merge_ahead_note {
	char id[ULID_SIZE];
	unsigned count;
	int64_t not_before_us;
};

/* What this process has seen of a node while pulling. */
struct merge_node {
	char id[STORE_NODE_ID_SIZE];
	unsigned connection_count;
	int64_t out_since_us; /* 0: the last attempt reached it */
	int64_t out_seen_us;  /* the last attempt that did not */
	struct merge_node *next;
};

struct merge {
	struct merge_options options; /* own copies of the texts */
	char *staging_dir, *final_dir;
	const struct final_ops *final;
	const struct final_s3 *bucket; /* NULL: a folder */
	struct store *store;
	struct pool *pool;
	int staging_fd, final_fd, system_fd;
	pthread_t threads[MERGE_THREAD_COUNT + MERGE_AHEAD_COUNT];
	unsigned thread_count;
	atomic_bool is_stopping;
	pthread_mutex_t lock;   /* protects all that follows */
	pthread_cond_t changed; /* a job came or ended, a connection became free, stopping began */
	struct merge_job *jobs;
	struct merge_node *nodes;
	struct merge_stall stalls[MERGE_STALLED_MAX]; /* the newest, in a ring */
	unsigned stall_next;
	struct merge_ahead_note ahead_notes[MERGE_AHEAD_NOTES]; /* the newest, in a ring */
	unsigned ahead_note_next;
};

/* One attempt to merge one transfer. */
struct merge_run {
	struct merge *merge;
	struct store_transfer transfer;
	struct stage stage;
	unsigned puller_count, window_count;
	atomic_bool is_given_up; /* pullers stop: a failure, a lost node, or the end of the process */
	atomic_uint_fast64_t merged_bytes, merged_files;
	pthread_mutex_t lock; /* protects what follows */
	struct store_object page[64];
	size_t page_next, page_count;
	uint64_t last_file_id;
	bool is_listed; /* no more objects are handed out */
	bool is_failed, is_retryable;
	bool is_unrecorded;      /* how it ended could not be written down */
	bool is_to_repeat;       /* it has not ended: it starts again, with what other nodes have */
	struct err failure;      /* the first */
	uint64_t reopened_count; /* objects or entries that must come again */
	uint64_t kept_count;     /* those of them of which every chunk is kept by another node's copy */
	uint64_t unpulled_count; /* those of them whose node answers, but not with the chunk */
	char reason[STORE_REASON_SIZE];
	char waiting_node[STORE_NODE_ID_SIZE];
	struct merge_ahead *ahead; /* NULL unless it began while the transfer was still being sent */
};

/* --- merge.c --- */
/* Of the jobs that are due and of that kind, the one to do next; NULL: *ret_due_us says when one will be due (0: none waits for its time). */
struct merge_job *merge_next_job(struct merge_job *jobs, bool is_ahead, int64_t now_us, int64_t *ret_due_us);

/* --- merge_run.c --- */
/* One attempt. True: to be done again a little later. */
bool merge_run_job(struct merge *merge, struct merge_job *job);
bool merge_is_over(const struct merge_run *run); /* stopping or given up: stop what you do */
void merge_fail(struct merge_run *run, const struct err *err, bool is_retryable);
/* Something must come again; the transfer goes back to uploading for it. The first reason is kept. */
void merge_reopen_note(struct merge_run *run, const char *why);
void merge_unpulled(struct merge_run *run); /* one more object whose node does not give it */
/* The next object, or false. */
bool merge_next_object(struct merge_run *run, struct store_object *ret_object);
void merge_count(struct merge_run *run, uint64_t file_count, uint64_t bytes);
/* The store's chunks of one object (0: all that node_id has) are to be sent again, but for those that another node has too; with none left that is,
 * the merge is only done again. A store that fails ends the run. */
void merge_reopen(struct merge_run *run, uint64_t file_id, const char *node_id, enum chunk_state state,
		  const char *why);
/* The same when the store knows already: so many of an object's chunks are to be sent again. */
void merge_reopened(struct merge_run *run, uint64_t count, const char *why);
void merge_end_list(struct merge_run *run);             /* no more objects are handed out */
void merge_pause(struct merge *merge, int64_t wait_us); /* until something changes, at most that long */
struct timespec merge_deadline(int64_t wait_us);        /* from now, for a condition of: */
void merge_cond_init(pthread_cond_t *cond);

/* Has the run begun ahead, and does it still only prepare? Then nothing may be recorded, reopened or waited for. */
bool merge_is_ahead(const struct merge_run *run);
/* Pulls all objects that are not there yet, by several threads. */
void merge_pull_all(struct merge_run *run, uint64_t object_count);
/* The transfer is in state merging: to the end. The stage of a run that began ahead is closed in any case. */
void merge_transfer(struct merge_run *run);
void merge_clear_stage(struct merge_run *run);

/* --- merge_ahead.c --- */
/* One run ahead, for a job that is marked so. True: to be done again a little later, as it went on to the merge itself. */
bool merge_run_ahead(struct merge *merge, struct merge_job *job);
/* With the merge's lock held: the transfer goes to merging, the run goes on to that. */
void merge_ahead_promote(struct merge_ahead *ahead);
bool merge_ahead_is_wanted(const struct merge_run *run); /* has it? */
#define MERGE_ANY_ARRIVALS UINT64_MAX
/* Receipts that came so far; wait returns when that is not `seen` any more, or at the latest after wait_us. */
uint64_t merge_ahead_arrivals(const struct merge_run *run);
void merge_ahead_wait(struct merge_run *run, uint64_t seen, int64_t wait_us);
/* To be called often while a run is ahead: gives it up when that has become pointless or harmful. */
void merge_ahead_check(struct merge_run *run);
/* What became of an object. True: it is to be tried again at once. */
bool merge_ahead_pulled(struct merge_run *run, const struct store_object *object, bool is_done, unsigned try_count);
void merge_ahead_give_up(struct merge_run *run, const char *why);
bool merge_ahead_wants(const struct merge_run *run, uint64_t file_id); /* is the object to be pulled now? */
bool merge_ahead_has(const struct merge_run *run, uint64_t file_id);   /* is it in staging? */
void merge_ahead_lacks(struct merge_run *run, uint64_t file_id);       /* it is not, after all; of one that it has */
void merge_ahead_forget(struct merge_run *run);                        /* all of them are */

/* --- merge_ids.c --- the file ids of a plan, in order, each once */
struct merge_ids {
	uint64_t *ids;
	size_t count, capacity;
};
#define MERGE_IDS_NONE SIZE_MAX
void merge_ids_add(struct merge_ids *ids, uint64_t file_id);
size_t merge_ids_find(const struct merge_ids *ids, uint64_t file_id); /* its place, or NONE */
void merge_ids_fini(struct merge_ids *ids);

/* --- merge_record.c --- what was put into staging ahead, by entry: compared with what the transfer says in the end */
struct merge_record {
	uint64_t facts;                  /* hash of all that the manifest says of the entry; 0: nothing is there */
	uint8_t digest[DIGEST_SIZE_MAX]; /* of the bytes that were written */
};
/* A stretch of the file of records: written in order of seq, gaps allowed, and flushed in the end; or read so. */
struct merge_records {
	int fd; /* borrowed */
	uint64_t first_seq;
	size_t count;
	struct merge_record *items; /* MERGE_RECORDS_MAX, made when first needed */
};
#define MERGE_RECORDS_MAX 1024
int merge_records_put(struct merge_records *records, uint64_t seq, const struct merge_record *record, struct err *err);
int merge_records_flush(struct merge_records *records, struct err *err);
/* Not together with put. */
int merge_records_get(struct merge_records *records, uint64_t seq, struct merge_record *ret_record, struct err *err);
void merge_records_fini(struct merge_records *records);
uint64_t merge_record_facts(const struct store_entry *entry);
void merge_record_digest(const char hex[DIGEST_HEX_SIZE], uint8_t target[DIGEST_SIZE_MAX]);
int merge_records_fd(const struct merge_run *run); /* of a run that began ahead */

/* --- merge_end.c --- how a run ends; a failure to record it makes the run is_unrecorded */
void merge_end_completed(struct merge_run *run);
void merge_end_reopened(struct merge_run *run); /* back to uploading, as chunks are to be sent again */
/* Back to uploading with all chunks as they are when the cause may pass, else failed. */
void merge_end_in_failure(struct merge_run *run, const struct err *cause, bool is_retryable);
void merge_end_unrecorded(struct merge_run *run, const struct err *err, const char *what);
bool merge_is_passing(const struct err *err);
void merge_tell_hooks(struct merge_run *run); /* the transfer is completed */

/* --- merge_node.c --- */
enum merge_gate { MERGE_NODE_READY, MERGE_NODE_BUSY, MERGE_NODE_OUT, MERGE_NODE_LOST };
/* READY: a connection is taken (give it back) and addr is filled. BUSY: all its connections are in use. OUT: not reachable; the transfer's note
 * says so. LOST: out for longer than is waited. */
enum merge_gate merge_node_take(struct merge_run *run, const char *node_id, char addr[STORE_ADDR_SIZE]);
void merge_node_give(struct merge_run *run, const char *node_id);
void merge_node_saw(struct merge_run *run, const char *node_id, bool is_reached);
bool merge_node_is_up(struct merge_run *run, const char *node_id);            /* by the pool's word */
bool merge_node_is_declared_lost(struct merge_run *run, const char *node_id); /* by an operator's */
void merge_nodes_free(struct merge *merge);
/* Chunks that do not fit their digest are removed at their node, which would otherwise call the right bytes a conflict. Failures are logged only. */
void merge_node_drop(struct merge_run *run, struct fetch *fetch, const struct store_chunk *chunk);
/* After the end of a transfer every node forgets it. Failures are logged only. */
void merge_nodes_forget(struct merge *merge, const char *transfer_id);

/* --- merge_copy.c --- */
/* The other node's copy from now on, if there is one; this one's remains the second choice. */
void merge_copy_swap(struct store_chunk *chunk);
/* The same where this node is out and the other one is up. */
void merge_copy_choose(struct merge_run *run, struct store_chunk *chunk);
/* This node's copy is of no use to the run: the other one, and no way back. False: there is none. */
bool merge_copy_turn(struct merge_run *run, struct store_chunk *chunk, const char *why);
/* Where only this node is at fault, only what it has is to be reopened: its id. NULL where chunks have one copy: the whole object is sent again. */
const char *merge_copy_scope(const struct merge_run *run, const char *node_id);

/* --- merge_object.c --- */
/* Where the bytes of the object at hand go. */
struct merge_target;
struct merge_target *merge_target_new(struct merge_run *run);
void merge_target_free(struct merge_target **target);
int merge_target_begin(struct merge_target *target, const struct store_object *object, struct err *err);
/* Bytes of the object at an offset; a pack takes them in order only. */
int merge_target_feed(struct merge_target *target, uint64_t offset, struct str piece, struct err *err);
/* A whole chunk from a file that holds just that, by sharing its blocks: nothing is copied. False: it can not be, or not here; feed it then. What was
 * cloned is hashed by pieces in order, read from that file while it is in the page cache, or by catch_up. */
bool merge_target_clone(struct merge_target *target, int fd, uint64_t offset, uint64_t size_bytes);
void merge_target_hash(struct merge_target *target, uint64_t offset, struct str piece);
/* How far everything is hashed. Bytes are there (written, not hashed yet) up to `end`: hashes them. */
uint64_t merge_target_frontier(const struct merge_target *target);
int merge_target_catch_up(struct merge_target *target, uint64_t end, struct err *err);
/* All bytes came: sizes and digests compared, modes and times set. -ERR_INTEGRITY: the object must come again, err names the file. */
int merge_target_end(struct merge_target *target, struct err *err);
void merge_target_abort(struct merge_target *target);
/* The digest of a stretch of the plain file at hand, for finding the chunk at fault after -ERR_INTEGRITY and before abort. */
int merge_target_digest(struct merge_target *target, uint64_t offset, uint64_t size, char hex[DIGEST_HEX_SIZE],
			struct err *err);

/* --- merge_local.c --- */
/* A node on this machine tells where its chunk lies: opens it there. -1: not local, or not the same file; pull it then. */
int merge_local_open(struct merge_run *run, struct fetch *fetch, const char *addr, const struct store_chunk *chunk);
/* Feeds the chunk from that file. *ret_bytes says how far it came; fewer than size_bytes: the rest must be pulled. Negative: the target failed. */
int merge_local_copy(struct merge_target *target, int fd, uint64_t offset, uint64_t size_bytes, uint64_t *ret_bytes,
		     struct err *err);

/* --- merge_pull.c --- */
/* Pulls objects of the run until none is left. One thread each. */
void merge_pull_objects(struct merge_run *run);

/* --- merge_publish.c --- */
/* Somebody may have ended the transfer meanwhile (a new scan of the same folder supersedes it): -ERR_STATE. */
int merge_check_still_merging(struct merge_run *run, struct err *err);
/* The publishing failed, or the transfer was ended by somebody meanwhile: its batch is taken back, if it is in place. */
void merge_unpublish(struct merge_run *run);

/* --- merge_layout.c --- */
#define MERGE_MANIFEST "manifest" /* in the transfer's staging folder, until it is published */
/* Makes folders, links and empty files of the whole transfer, and the manifest that will lie beside the folder. */
int merge_lay_out(struct merge_run *run, struct err *err);
/* The same in two steps. First what can be made while files' digests are not known: no manifest yet. ids: those of the plan
 * that the tree was laid out by are added; objects that are planned anew have others. */
int merge_lay_out_ahead(struct merge_run *run, struct merge_ids *ids, struct err *err);
/* Then the manifest, and all that was made ahead is compared with it: objects with a file that differs are not there any more. *ret_is_stale: what
 * stands there can not be mended object by object; begin anew. *ret_missing_count: so many files with bytes are not there. */
int merge_settle(struct merge_run *run, bool *ret_is_stale, uint64_t *ret_missing_count, struct err *err);

#endif
