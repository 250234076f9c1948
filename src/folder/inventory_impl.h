/* What inventory.c (which node is asked when) and inventory_compare.c (what comes of it) share. */
#ifndef HENG_FOLDER_INVENTORY_IMPL_H
#define HENG_FOLDER_INVENTORY_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "folder/inventory.h"
#include "sys/fetch.h"

/* One thread, and the node that it asks now. */
struct inventory_worker {
	struct inventory *inventory;
	struct store *store;
	const struct internal_key *internal_key;
	const _Atomic bool *is_stopping;
	pthread_t thread;
	bool is_thread_started;
	struct fetch *fetch; /* the thread's, but for fetch_wake */
	struct pool_node node;
	struct fetch_call call;
};

struct inventory_found {
	uint64_t adopted_count, lost_count;
	uint64_t kept_count; /* not there, but elsewhere there is another copy */
};
/* Compares what the worker's node has of the transfer with the tables, and puts the tables right. What was found counts even when it fails later. A
 * transfer that is not being uploaded is passed over. -ERR_VERSION_CONFLICT: its state changed meanwhile. */
int inventory_compare(struct inventory_worker *worker, const char *transfer_id, struct inventory_found *found,
		      struct err *err);

#endif
