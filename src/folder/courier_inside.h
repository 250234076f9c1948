/* What courier.c (the queue, the thread, its life), courier_post.c (batches of receipts, and those kept in the journal) and courier_register.c
 * (registering the node) share. */
#ifndef HENG_FOLDER_COURIER_INSIDE_H
#define HENG_FOLDER_COURIER_INSIDE_H

#include <pthread.h>
#include <stdatomic.h>

#include "folder/courier.h"
#include "folder/journal.h"
#include "folder/receipt.h"
#include "base/rng.h"
#include "sys/fetch.h"

#define COURIER_URL_SIZE           512
#define COURIER_CONNECT_TIMEOUT_US (2 * SEC_US)
#define COURIER_CALL_TIMEOUT_US    (10 * SEC_US)
#define COURIER_ATTEMPTS_MAX       4096 /* parcels waiting when one that nobody waits for is turned away */

struct courier {
	char receipts_url[COURIER_URL_SIZE], register_url[COURIER_URL_SIZE];
	const struct internal_key *internal_key;
	struct store_node node;
	bool (*is_stored)(void *owner, const struct store_receipt *receipt);
	void (*refused)(void *owner, const struct store_receipt *receipt, bool is_repeat, enum err_code code);
	void *owner;
	struct fetch *fetch;
	pthread_t thread;
	bool is_thread_started;
	_Atomic bool is_stopping;
	_Atomic int64_t end_mono_us; /* the thread ends then; 0: not known yet */
	_Atomic int64_t probed_mono_us;
	_Atomic size_t kept_count; /* of the journal, for whoever asks */

	pthread_mutex_t lock; /* protects the queue */
	struct courier_parcel *first, **last_link;
	size_t waiting_count;
	bool is_closed; /* nothing is carried any more */

	/* The thread's own. */
	struct fetch_call post_call, register_call;
	struct buf post_body, register_body;
	struct courier_parcel *batch; /* under way, when it is not one of the journal's */
	size_t batch_count;
	bool is_posting, is_registering, is_registered;
	int64_t registered_mono_us; /* last attempt */
	int64_t interval_us;
	bool is_reachable;    /* the last batch was answered */
	bool is_failure_told; /* in the log, so that its end is told too */
	bool is_refusing; /* it was answered with a refusal of the node itself: nothing that keeping receipts would mend */
	struct err cause;       /* of not being reachable, as a client is told */
	unsigned failure_count; /* in a row */
	int64_t failed_mono_us, retry_mono_us;
	int64_t waiting_since_us; /* the queue has something that could not be posted yet; 0: not */
	struct journal *journal;  /* NULL: none */
	struct journal_record *kept,
		*to_keep; /* a batch each: those of the journal that are under way, those on their way into it */
	size_t kept_under_way_count;               /* 0: what is under way is not the journal's */
	bool is_keeping_failed, is_reading_failed; /* the last time */
	struct rng rng;
};

/* courier.c */
void courier_deliver(struct courier_parcel *parcel);
void courier_deliver_all(struct courier_parcel *parcels, const struct err *err);
/* Takes up to `limit` from the front of the queue; NULL: it is empty. */
struct courier_parcel *courier_take(struct courier *courier, size_t limit, size_t *ret_count);

/* courier_post.c */
int courier_open_journal(struct courier *courier, const struct courier_options *options, struct err *err);
/* Starts the next batch when its time has come, and keeps what cannot be told now. Returns when it wants to be called again, at the latest. */
int64_t courier_post_step(struct courier *courier, int64_t now_us, bool is_stopping);
/* The scheduler gave a sign of life: it is asked again at once. */
void courier_post_hurry(struct courier *courier);
/* Keeps these, a batch at most, in the journal, and tells their senders so. What it does not take is answered with `cause`, and why not. */
void courier_keep(struct courier *courier, struct courier_parcel *parcels, const struct err *cause);
void courier_note_failure(struct courier *courier, const struct err *err, bool is_refusing, int64_t now_us);

/* courier_register.c */
int courier_register_first(struct courier *courier, struct err *err);
void courier_register_step(struct courier *courier, int64_t now_us);

#endif
