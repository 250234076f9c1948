/* What pool.c (nodes and the pool's life), pool_probe.c (the probing thread) and pool_ring.c (judgement and ring) share. */
#ifndef HENG_FOLDER_POOL_INSIDE_H
#define HENG_FOLDER_POOL_INSIDE_H

#include <pthread.h>
#include <stdatomic.h>

#include "folder/pool.h"
#include "folder/pool_health.h"
#include "folder/pool_judge.h"
#include "sys/fetch.h"

struct pool_entry {
	struct pool *pool;
	/* Guarded by pool->lock. */
	struct pool_node node; /* as shown: state and takes_work are those of the last judgement */
	struct pool_member member;
	struct store_order order; /* the operator's */
	bool was_healthy;         /* since this scheduler started: the first good word suffices until then */
	bool was_probed;          /* and well: before that nobody knows whether it can be reached, and its space */
	bool is_faulty;           /* by its own word: no work, whatever the member state */
	bool is_misplaced;        /* another node answers at its address */
	char probe_diagnosis[256];
	struct report_dir dirs[REPORT_DIRS_MAX]; /* of the last report */
	size_t dir_count;
	int64_t low_reported_mono_us; /* a probe that began before then knows nothing of it */
	int64_t due_mono_us;
	uint64_t address_version; /* a probe of a former address says nothing about the present one */
	/* Of the probing thread. */
	bool is_probing;
	int64_t probe_began_mono_us;
	uint64_t probe_address_version;
	struct fetch_call call;
	char url[POOL_HEALTH_URL_SIZE];
};

struct pool_listener {
	void (*fn)(void *owner);
	void *owner;
};

struct pool {
	struct store *store;
	struct logfile *log;
	const struct internal_key *internal_key;
	int64_t probe_interval_us, probe_timeout_us;
	struct fetch *fetch; /* the probing thread's, but for fetch_wake */
	pthread_t thread;
	bool is_thread_running; /* the owner's: pool_halt has not joined it yet */
	atomic_bool is_stopping;
	atomic_uint_fast64_t lost_count;
	pthread_mutex_t order_lock; /* one change of orders at a time, store and pool alike; taken before `lock` */

	pthread_mutex_t lock;                        /* protects all that follows, and the entries' parts that say so */
	struct pool_entry *entries[POOL_NODES_MAX];  /* never removed, so pointers stay good without the lock */
	struct pool_member *members[POOL_NODES_MAX]; /* of the entries */
	size_t entry_count;
	struct pool_judge judge;
	bool is_judge_due;      /* before its tick: something has changed */
	struct pool_ring *ring; /* the pool's own reference is one of use_count */
	bool is_change_untold;
	struct pool_listener listeners[POOL_LISTENERS_MAX];
	size_t listener_count;
};

/* --- pool.c --- */

struct pool_entry *pool_find_locked(struct pool *pool, const char *node_id);
/* What was known of the node's former life says nothing of this one. */
void pool_forget_former(struct pool_entry *entry, int64_t now_us);

/* --- pool_order.c --- */

/* The header by which each probe tells the node what is ordered. */
const char *pool_order_header(enum node_order order);
/* The weight that counts, after either of the two has changed. */
void pool_weigh_locked(struct pool_entry *entry);
int pool_orders_load(struct pool *pool, struct err *err);
/* A node that was declared lost has registered: it is one like any other again. The order lock is held. */
int pool_order_lift(struct pool *pool, const char *node_id, struct err *err);

/* --- pool_ring.c; the lock is held --- */

/* Judges all nodes, shows what came of it, renews the ring if it has to be. */
void pool_settle_locked(struct pool *pool);
/* What changes without a judgement: diagnosis, missed probes. */
void pool_show_locked(struct pool_entry *entry);
int pool_ring_build_locked(struct pool *pool, struct err *err);
void pool_ring_put_locked(struct pool_ring *ring);

/* --- pool_probe.c --- */

void *pool_probe_main(void *pool);
/* A good word of either source, before it is given to the entry's view. */
void pool_good_word_locked(struct pool_entry *entry, enum health_source source, int64_t now_us);

#endif
