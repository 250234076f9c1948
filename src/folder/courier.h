/* The node's line to its scheduler: a thread that registers the node, and carries receipts of finished chunks in batches, one batch at a
 * time: while one is under way the next gathers, so that batches grow with the load and the scheduler commits once for many. While the
 * scheduler is away they go into a journal, and to the scheduler when it is back, before any new ones. */
#ifndef HENG_FOLDER_COURIER_H
#define HENG_FOLDER_COURIER_H

#include "folder/keyring.h"
#include "plug/store.h"
#include "sys/loop.h"

struct courier;
struct courier_options {
	const char *scheduler; /* URL, http://host:port */
	const struct internal_key *internal_key;
	struct store_node node;   /* as it registers */
	const char *journal_path; /* NULL: no journal, and the next three are not used */
	uint64_t journal_limit_bytes;
	/* Both on the courier's thread, until courier_stop returns. Is the chunk of a kept receipt still there, with its bytes? If that
	 * is certainly not so, the receipt is delivered as an attempt that came to chunk_not_here. */
	bool (*is_stored)(void *owner, const struct store_receipt *receipt);
	/* The scheduler did not take a receipt of a stored chunk that its sender was told is pending. */
	void (*refused)(void *owner, const struct store_receipt *receipt, bool is_repeat, enum err_code code);
	void *owner;
};

/* In the sender's memory until done is called. */
struct courier_parcel {
	struct store_receipt receipt;
	bool is_repeat; /* the chunk was here before: for the journal */
	/* Afterwards, on the home loop's thread; without a home: on the courier's, or the sender's when the parcel is turned away at once. */
	void (*done)(struct courier_parcel *parcel, struct loop *home);
	void *owner;
	struct loop *home;
	/* ERR_NONE: the scheduler has committed the receipt, or, is_kept, it is durable in the journal. ERR_SCHEDULER_DOWN: neither could be done.
	 * ERR_BUSY: without a home, and too many wait already. Else: the scheduler's refusal. A failed attempt's receipt counts as kept when the
	 * journal has no room to spare for it, too. */
	struct err err;
	bool is_kept;
	/* The rest belongs to the courier. */
	struct post post;
	struct courier_parcel *next;
};

/* Reads the journal back. No network yet: parcels sent before courier_start wait. */
int courier_new(const struct courier_options *options, struct courier **ret_courier, struct err *err);
/* Registers once before it returns: fails when the scheduler refuses the node for good (its id is in use, the key is wrong), and then answers
 * what waits, and all that comes after, with ERR_SCHEDULER_DOWN. A scheduler that cannot be reached is tried again from the thread, as is one
 * that did not probe the node for 10 s. */
int courier_start(struct courier *courier, struct err *err);
/* Receipts are carried for grace_us more; what is not answered by then is kept, and all that comes later is answered with ERR_SCHEDULER_DOWN. For a
 * server that cannot end before its calls have their answers, however long the scheduler takes. */
void courier_end(struct courier *courier, int64_t grace_us);
/* What is under way may finish for a moment; what waits is kept, or answered with ERR_SCHEDULER_DOWN. Started or not; frees. */
void courier_stop(struct courier **courier);
void courier_send(struct courier *courier, struct courier_parcel *parcel); /* any thread */
size_t courier_kept_count(struct courier *courier);                        /* any thread: receipts in the journal */
void courier_note_probe(struct courier *courier); /* any thread: the scheduler asked how we are */

#endif
