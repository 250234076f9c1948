/* Inside the push: one pushing thread that talks (push.c, push_buffers.c, push_call.c, push_plan.c, push_send.c,
 * push_again.c, push_nodes.c, push_watch.c, push_pending.c) and a few reader threads that open, check,
 * read and hash files (push_read.c). They meet at struct push_shared only. */
#ifndef HENG_FOLDER_PUSH_IMPL_H
#define HENG_FOLDER_PUSH_IMPL_H

#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>

#include "folder/key_file.h"
#include "folder/push.h"
#include "folder/push_budget.h"
#include "folder/push_file.h"
#include "folder/push_learnt.h"
#include "folder/push_pace.h"
#include "sys/fetch.h"
#include "wire/manifest.h"
#include "wire/ticket.h"

#define PUSH_CANDIDATES_MAX 5
#define PUSH_NODES_MAX      4096
#define PUSH_NODE_ID_SIZE   65
#define PUSH_ADDR_SIZE      72
#define PUSH_READERS        2
#define PUSH_PLAN_PAGE      2000
/* The longest URL of a scheduler that is taken (struct client), and what is asked of it. */
#define PUSH_CALL_URL_SIZE 1024
/* Planned chunks waiting for a reader below which the next page is asked for. */
#define PUSH_PLAN_LOW        1000
#define PUSH_SILENCE_US      (3 * SEC_US) /* after which it is said what is waited for */
#define PUSH_DOWN_US         (5 * SEC_US) /* a node that does not answer is left alone for so long */
#define PUSH_TRIES_MAX       10
#define PUSH_REVISE_MAX      1000 /* different entries that changed, in one push; the scheduler takes no more at once */
#define PUSH_TRIES_SAME_NODE 3

/* What a transfer's state means to the client. */
enum push_state { PUSH_UPLOADING, PUSH_MERGING, PUSH_COMPLETED, PUSH_FAILED };

/* --- the manifest file, read again in step with the plan --- */
struct push_lines {
	int fd;
	uint64_t seq;    /* of the next entry */
	int64_t offset;  /* in the file, of data[0] */
	size_t at, size; /* data[at..size) is not used yet */
	bool is_head_read;
	char *data;
	char path[MANIFEST_PATH_MAX + 1];
};
void push_lines_init(struct push_lines *lines, int fd);
/* Goes on at a place that push_lines_place gave. */
void push_lines_init_at(struct push_lines *lines, int fd, int64_t offset, uint64_t seq);
void push_lines_fini(struct push_lines *lines);
int64_t push_lines_place(const struct push_lines *lines); /* the offset of the next entry */
/* Skips to the entry `seq`; ERR_PEER when there is none: the plan speaks of what was never sent. */
int push_lines_skip(struct push_lines *lines, uint64_t seq, struct err *err);
/* 1: an entry (path is NUL-terminated; valid until the next call), 0: the end. A link's target is not given. */
int push_lines_next(struct push_lines *lines, struct manifest_entry *ret_entry, struct err *err);

/* --- what the planner hands to the readers --- */
struct push_planned {
	struct push_planned *next;
	uint64_t chunk_index, size_bytes;
	bool is_stored;
	bool has_copy;        /* a node has it, and another one is to have it too */
	unsigned copies_left; /* nodes that are still to take it */
	bool is_suspect;      /* was stored once and did not hold: its file is hashed again */
	char digest[DIGEST_HEX_SIZE];
	uint16_t nodes[PUSH_CANDIDATES_MAX]; /* indexes into the node table */
	unsigned node_count;
};
/* An object to read; its planned chunks come page by page. file_id 0: no object, only the entries at the end of the manifest. */
struct push_object {
	struct push_object *next;
	uint64_t file_id, size_bytes, chunk_count;
	uint64_t gap_seq, first_seq, last_seq; /* entries from gap_seq to first_seq have no bytes in any object */
	int64_t gap_offset;                    /* of gap_seq's line in the manifest */
	bool is_pack;
	char ticket[TICKET_TEXT_SIZE]; /* this, and the next line, by the lock */
	struct push_planned *head, **tail;
	uint64_t given_count; /* planned so far; pushing thread */
};

/* --- a chunk on its way: a buffer of the pool with everything about what is in it --- */
enum push_chunk_phase { CHUNK_IS_READY, CHUNK_IS_WAITING, CHUNK_IS_SENDING, CHUNK_IS_ASKING };
struct push_chunk {
	struct push *push;
	struct push_chunk *next;
	char *data;
	uint64_t file_id, chunk_index, size_bytes;
	char digest[DIGEST_HEX_SIZE];
	char ticket[TICKET_TEXT_SIZE];
	uint16_t nodes[PUSH_CANDIDATES_MAX];
	unsigned node_count, node_at; /* node_at: the candidate whose turn it is */
	unsigned copies_left;         /* acknowledgements that are still wanted */
	bool has_copy;                /* a node has acknowledged it; none of the candidates */
	/* The pushing thread's own. */
	enum push_chunk_phase phase;
	bool is_done; /* the call has come back */
	unsigned try_count, try_here_count, conflict_count;
	bool is_ask_due; /* every candidate was tried: those of now are asked for before the next attempt */
	int64_t due_us;
	int64_t started_us; /* of the attempt */
	int64_t seen_bytes; /* of the call's bytes_sent, for the sign of life */
	int64_t moved_us;   /* when they last grew, or the attempt began */
	uint16_t sent_to;
	struct fetch_call call;
	char url[PUSH_CALL_URL_SIZE], token_header[TICKET_TOKEN_SIZE + 32], digest_header[DIGEST_HEX_SIZE + 32],
		size_header[64];
};
struct push_chunks {
	struct push_chunk *head, **tail;
};
void push_chunks_init(struct push_chunks *list);
void push_chunks_add(struct push_chunks *list, struct push_chunk *chunk);
struct push_chunk *push_chunks_take(struct push_chunks *list); /* NULL when empty */

/* An entry that is not what the manifest says of it, and the entries whose digests are in doubt with it. */
struct push_note {
	struct push_note *next;
	uint64_t seq, first_seq, last_seq;
	bool is_final;   /* nothing that sending it again would mend */
	struct str path; /* in text, where a NUL follows it */
	char reason[PUSH_REASON_SIZE];
	char text[];
};

/* Between the pushing thread and the readers; `lock` protects every field but the atomics. */
struct push_shared {
	pthread_mutex_t lock;
	pthread_cond_t object_came, planned_came, buffer_came;
	struct push_object *object_head, **object_tail;
	uint64_t object_count;  /* queued or being read */
	uint64_t planned_count; /* given to objects, not taken yet */
	struct push_chunks free, ready;
	struct push_note *note_head, **note_tail;
	bool is_stopping;
	atomic_bool is_over;  /* the same, for those who read a large file */
	struct err fatal;     /* of a reader */
	struct buf digests;   /* lines not yet written to the digests file */
	int64_t digests_size; /* of the file */
	/* A bit per entry: its digest is in the digests file. Of an object's files only the first one's counts, which is set when all are. */
	uint8_t *digested;
	atomic_uint_fast64_t files_done;
	atomic_uint_fast64_t changed_count; /* different entries noted in this pass; PUSH_REVISE_MAX at most */
};

/* --- chunks that are durable on a node which could not tell the scheduler yet --- */
#define PUSH_PENDING_MAX (1024 * 1024)
struct push_pending_chunk {
	uint64_t file_id, chunk_index;
};
struct push_pending {
	struct push_pending_chunk *chunks;
	size_t count, capacity;
	unsigned broken_count; /* how often in a row patience ended without any news */
};

struct push_node {
	char id[PUSH_NODE_ID_SIZE];
	char addr[PUSH_ADDR_SIZE];      /* "" when not known */
	unsigned connect_failure_count; /* in a row */
	int64_t down_until_us;
	int64_t failing_since_us; /* the first failure to reach it since it last took a chunk; 0: none */
	int64_t noticed_us;
	int64_t answered_us;     /* its last answer to a chunk, whatever it was */
	int64_t silent_us;       /* the last step in which a call to it was silent for too long, */
	int64_t silent_since_us; /* and since when it was */
	bool is_doubted;         /* by the scheduler's last word: it takes no work, or missed its last probe */
	uint64_t bytes, chunk_count;
};

struct push {
	const struct push_options *options;
	struct fetch *fetch;
	struct rng rng;
	int root_fd, manifest_fd, digests_fd;
	struct walk_result walk;
	struct key_file *key; /* with which the files are encrypted; NULL: they are not */
	char api_key_header[512];
	char *source; /* host:/path, percent-encoded */
	int64_t started_us;
	int64_t patience_us; /* as asked for */
	int64_t give_up_us;  /* with what a limited rate needs on top (push_buffers.c) */

	/* The transfer, from the scheduler's answers. */
	char transfer_id[ULID_SIZE];
	enum push_state state;
	char reason[512], final_path[4608];
	bool was_completed; /* before this push */
	bool is_in_place;   /* completed, and the folder is still where it was put */
	uint8_t transfer_key[TICKET_KEY_SIZE];
	uint64_t chunk_bytes, object_count, chunk_count;
	int64_t version;         /* of the transfer, as the scheduler counts */
	unsigned copies;         /* nodes that are to store each chunk */
	uint64_t missing_count;  /* chunks that are not stored, where the answer says so */
	int64_t clock_offset_us; /* server's wall clock less ours */
	struct push_node *nodes;
	size_t node_count;

	/* One pass over the plan. */
	unsigned pass;                /* 1.. */
	unsigned merge_return_count;  /* how often a merge gave chunks back */
	unsigned merge_put_off_count; /* how often one met something that may pass, with every chunk stored */
	struct push_shared shared;
	pthread_t readers[PUSH_READERS];
	unsigned reader_count;
	struct push_chunk *chunks;
	size_t chunk_pool_count, chunk_use_count, chunk_data_bytes;
	struct push_chunks spare; /* not in use: the pace wants fewer */
	unsigned parallel;        /* to start with */
	struct push_pace pace;
	struct push_budget budget;
	bool is_budget_spent;      /* a chunk waits for it since the last step */
	struct push_learnt learnt; /* before this push */
	int64_t round_trip_us;     /* the quickest answer of the scheduler; 0: none yet */
	int64_t budget_told_us;    /* when that was last said */

	struct push_lines plan_lines;
	struct push_lines
		back_lines; /* for objects that stand before where plan_lines has come to: those of revisions */
	struct fetch_call plan_call;
	char plan_url[PUSH_CALL_URL_SIZE];
	bool is_plan_running, is_plan_done, is_plan_finished; /* done: the call came back; finished: no more pages */
	int64_t plan_due_us;
	unsigned plan_try_count;
	uint64_t plan_after_file, plan_after_chunk, plan_next_seq;
	struct push_object *plan_object; /* whose chunks are not all given yet */
	uint64_t plan_object_count, plan_bytes;

	struct fetch_call nodes_call;
	char nodes_url[PUSH_CALL_URL_SIZE];
	bool is_nodes_running, is_nodes_done, is_nodes_wanted;
	int64_t nodes_due_us;     /* not asked before */
	int64_t nodes_heard_us;   /* the last answer */
	unsigned nodes_try_count; /* in a row */

	struct push_chunks waiting; /* ready or waiting for their time */
	struct push_chunks sending; /* calls under way, sending or asking */
	unsigned sending_count, waiting_count;
	uint64_t dropped_count; /* chunks whose tries are used up in this pass */
	uint64_t thin_count;    /* chunks that have fewer copies than wanted after this pass */
	uint64_t acked_count;   /* in this pass */
	int64_t life_us;        /* the last sign of progress */
	bool is_state_changed;  /* a node said that the transfer is not being uploaded any more */
	struct err last_err;    /* of the last failed attempt, for people */
	struct push_pending pending;

	struct push_progress progress;
	int64_t progress_told_us;
	char waiting_text[800];

	/* What changed while it was sent (push_revise.c). */
	struct push_note *notes; /* of this pass */
	struct push_revised *revised;
	size_t revised_count;
	uint64_t lost_count; /* entries that ended the push */
};

/* push.c */
int push_pause(struct push *push, int64_t pause_us, struct err *err);
/* GET (suffix "") or POST: what answers with the transfer. */
int push_ask_transfer(struct push *push, const char *method, const char *suffix, const char *what, struct err *err);
/* `r` is what a call about the transfer came to. Refused for its state: the state, and why, is better news than the refusal. */
int push_refused_for_state(struct push *push, int r, struct err *err);

/* push_revise.c: files that changed while they were sent. */
/* After a pass that noted changes: waits until the files stand still, has the scheduler plan them anew as they are now, and takes over the manifest
 * that says so. -ERR_SOURCE_CHANGED when that cannot be: every entry that stands in the way is named as a problem. */
int push_revise(struct push *push, struct err *err);
/* The end: what was noted and not revised is named, everything is freed. */
void push_revise_end(struct push *push);

/* push_alive.c: beside a call that may take long for good reasons */
struct push_alive {
	struct fetch_call call;
	char url[PUSH_CALL_URL_SIZE];
	int64_t heard_us; /* when bytes last went to the scheduler, or it last answered */
	int64_t due_us;
	int64_t bytes_sent;
	bool is_running, is_done;
	bool is_thinking; /* it has answered that it is there */
};
void push_alive_begin(struct push_alive *alive, const struct push *push, int64_t now_us);
/* bytes_sent: of the call's body. Returns for how long nothing has come. */
int64_t push_alive_step(struct push_alive *alive, struct push *push, int64_t bytes_sent, int64_t now_us);
void push_alive_end(struct push_alive *alive, struct push *push);

/* push_call.c: control calls, retried while the scheduler is away. */
struct push_ask {
	const char *method, *what; /* what: for people: "asking for the plan" */
	const char *url;           /* whole */
	struct str body;
	int body_fd; /* -1: none */
	int64_t body_offset, body_size;
	const char *header; /* one more, or NULL */
	int64_t stall_us;   /* so long it may think, while it answers that it is there; 0: it has no reason to */
};
/* The answer's JSON object (caller decrefs), server time taken. Retries what may be retried until give_up_us. */
int push_ask(struct push *push, const struct push_ask *ask, json_t **ret_root, struct err *err);
/* The same, with the answer as it came (caller buf_fini's it; empty after an error). */
int push_ask_body(struct push *push, const struct push_ask *ask, struct buf *ret_body, struct err *err);
/* Waits while calls go on; what: for people, "interrupted while ...". */
int push_wait(struct push *push, int64_t wait_us, const char *what, struct err *err);
void push_tick(struct push *push, const char *phase, bool is_now);
bool push_is_interrupted(const struct push *push);
int64_t push_backoff_us(struct push *push, unsigned try_count); /* full jitter, 100 ms doubling to 5 s */
/* The same on top of what the server asked for, so that those who were sent away together do not come back together. */
int64_t push_retry_us(struct push *push, unsigned try_count, int64_t retry_after_us);
const char *push_json_text(const json_t *root, const char *name); /* "" when absent */
uint64_t push_json_u64(const json_t *root, const char *name);
bool push_json_bool(const json_t *root, const char *name);
void push_take_time(struct push *push, int64_t server_time_us);
int push_take_nodes(struct push *push, const json_t *root, struct err *err);                 /* root has "nodes" */
int push_node_index(struct push *push, struct str id, uint16_t *ret_index, struct err *err); /* adds unknown ones */
int push_take_transfer(struct push *push, const json_t *root, struct err *err);

/* push_plan.c */
void push_plan_begin(struct push *push);
int push_plan_step(struct push *push, int64_t now_us, struct err *err); /* asks, parses, hands over */
void push_plan_end(struct push *push);
/* One page, or the answer to a question about one chunk. on_object and on_chunk as the lines come; pure, so that tests can feed it. */
struct push_plan_line {
	bool is_object;
	uint64_t file_id;
	/* O */
	bool is_pack;
	uint64_t first_seq, last_seq, object_bytes, chunk_count;
	struct str ticket;
	/* C */
	uint64_t chunk_index, chunk_bytes;
	struct str state, digest;
	struct str nodes[PUSH_CANDIDATES_MAX];
	unsigned node_count;
};
int push_plan_parse(struct str page, int (*on_line)(void *owner, const struct push_plan_line *line, struct err *err),
		    void *owner, bool *ret_more, int64_t *ret_server_time_us, struct err *err);

/* push_send.c */
void push_send_begin(struct push *push);
int push_send_step(struct push *push, int64_t now_us, struct err *err);
int64_t push_send_wait_us(const struct push *push, int64_t now_us); /* until something is due, at most 100 ms */
void push_send_end(struct push *push);
/* Into the list of those that wait, until due_us. */
void push_chunk_wait(struct push *push, struct push_chunk *chunk, int64_t due_us);
/* No more of it in this pass. A chunk that has a copy is not missing: `complete` says whether one will do. */
void push_chunk_put_off(struct push *push, struct push_chunk *chunk);
/* Starts the chunk's call, filled but for its callback, and puts it into the list of those under way. */
void push_chunk_start(struct push *push, struct push_chunk *chunk, enum push_chunk_phase phase);

/* push_again.c */
void push_again_ask(struct push *push, struct push_chunk *chunk);
/* The call has come back: the chunk waits, is released or put off. Negative: the push ends, and the chunk is put nowhere. */
int push_again_asked(struct push *push, struct push_chunk *chunk, int64_t now_us, struct err *err);

/* push_buffers.c */
/* Before each pass; the first begins the pace and the budget, and so does one whose folder grew beyond what the buffers hold. */
int push_buffers_make(struct push *push, struct err *err);
void push_buffers_follow(struct push *push); /* the pace may have moved */
void push_chunk_release(struct push *push, struct push_chunk *chunk);
void push_buffers_free(struct push *push);

/* push_pending.c */
void push_pending_add(struct push *push, const struct push_chunk *chunk);
/* After a pass, before anything is asked for again: waits until the scheduler has heard of each, and takes out those whose node's word does not stand.
 * A transfer that is not being uploaded any more ends it: is_state_changed. Without any news for give_up_us they are given up, to be sent again; the second time in a row that is -ERR_INCOMPLETE. */
int push_pending_await(struct push *push, struct err *err);
void push_pending_fini(struct push *push);

/* push_nodes.c */
void push_nodes_step(struct push *push, int64_t now_us); /* once a second at most, while is_nodes_wanted */

/* push_watch.c */
/* Before anything else in a step: notes what moved, and which nodes are silent; of those it is asked. */
void push_watch_step(struct push *push, int64_t now_us);
/* Is the call to be given up, since its node is silent, the scheduler doubts it too, and another candidate is well: the one at ret_at? After
 * push_watch_step of the same time. */
bool push_watch_is_lost(const struct push *push, const struct push_chunk *chunk, int64_t now_us, unsigned *ret_at);

/* push_copies.c: a chunk that is wanted on more than one node */
/* After an acknowledgement of the candidate whose turn it was: true when another one is to have the chunk too; that one left the list. */
bool push_copies_next(struct push_chunk *chunk);
/* Nobody is left who might take a second copy: a chunk that has one does not wait for nodes that do not answer for long. */
bool push_copies_are_hopeless(const struct push *push, const struct push_chunk *chunk, int64_t now_us);

/* push_note.c: from the readers; any thread of theirs */
void push_note_fatal(struct push *push, const struct err *err); /* the push ends; the first counts */
/* The entry, read for the object, is not what the manifest says of it. is_other: not the one that was noted before it; is_final: sending it again would
 * not mend it. One different entry too many ends the push. */
void push_note_add(struct push *push, const struct push_object *object, const struct manifest_entry *entry,
		   bool is_other, bool is_final, const char *reason);
void push_take_notes(struct push *push); /* to the pushing thread */

/* push_read.c */
int push_read_begin(struct push *push, struct err *err);
void push_read_object(struct push *push, struct push_object *object); /* queues it; the readers free it */
void push_read_planned(struct push *push, struct push_object *object, struct push_planned *planned);
void push_read_end(struct push *push); /* stops and joins */
int push_digests_flush(struct push *push, struct err *err);

#endif
