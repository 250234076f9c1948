#include "folder/inventory.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "core/curve.h"
#include "folder/inventory_impl.h"

#define THREADS         4u
#define SETTLE_US       (10 * SEC_US)
#define TRY_LIMIT       10u
#define CHANGED_MAX     3u /* comparisons of a transfer whose state changes meanwhile */
#define BACKOFF_BASE_US SEC_US
#define BACKOFF_MAX_US  (60 * SEC_US)
#define IDLE_WAIT_US    (60 * SEC_US)
#define TRANSFERS_MAX \
	100000u /* open ones that a node is asked about, the longest idle first: bounds the memory of their ids */

/* What this scheduler has asked a node so far. */
struct known {
	char id[STORE_NODE_ID_SIZE];
	char start_id[33];   /* of the life that was asked */
	uint64_t lost_count; /* the pool's, before it was asked */
	bool is_running, is_done;
	unsigned try_count;
	int64_t due_mono_us; /* of the next try */
};

struct inventory {
	struct store *store;
	struct pool *pool;
	const struct internal_key *internal_key;
	int64_t began_wall_us, settled_mono_us;
	unsigned try_limit;
	struct inventory_worker workers[THREADS];
	_Atomic bool is_stopping, is_settled;

	pthread_mutex_t lock; /* protects the rest */
	pthread_cond_t changed;
	uint64_t change_count; /* of the pool's word that something changed */
	struct known *nodes;   /* POOL_NODES_MAX places */
	size_t node_count;
	struct rng rng;
};

/* --- which node is due --- */

/* The lock is held. NULL: more nodes than a pool keeps. */
static struct known *known_get(struct inventory *inventory, const struct pool_node *node)
{
	const uint64_t lost_count = pool_lost_count(inventory->pool);
	struct known *known = NULL;

	for (size_t i = 0; i < inventory->node_count && !known; i++)
		if (strcmp(inventory->nodes[i].id, node->id) == 0)
			known = &inventory->nodes[i];
	if (!known && inventory->node_count < POOL_NODES_MAX) {
		known = &inventory->nodes[inventory->node_count++];
		memcpy(known->id, node->id, sizeof(known->id));
	}
	/* Started anew: what was asked of its former life says nothing. Nor when a node was declared lost since: its chunks are nobody's by the
	 * tables, but others may have them too, and it may live after all. One that is being asked is looked at again afterwards. */
	if (known && !known->is_running &&
	    (strcmp(known->start_id, node->start_id) != 0 || known->lost_count != lost_count)) {
		known->lost_count = lost_count;
		memcpy(known->start_id, node->start_id, sizeof(known->start_id));
		known->is_done = false;
		known->try_count = 0;
		known->due_mono_us = 0;
	}
	return known;
}

/* Can the node be asked? A node that was declared lost registers anew when it lives after all. */
static bool is_reachable(const struct pool_node *node)
{
	return node->order != NODE_ORDER_LOST && node->probed_mono_us != 0 && node->missed_count == 0 &&
	       node->start_id[0] != '\0';
}

/* All that are known, in memory of the caller's. */
static struct pool_node *list_nodes(struct inventory *inventory, size_t *ret_count)
{
	const size_t limit = pool_list(inventory->pool, NULL, 0);
	struct pool_node *nodes = must_zalloc(limit + 1, sizeof(*nodes));

	*ret_count = min_size(pool_list(inventory->pool, nodes, limit), limit);
	return nodes;
}

/* Takes a node that is due, else says how long none will be. */
static struct known *take_due(struct inventory *inventory, struct pool_node *ret_node, int64_t *ret_wait_us)
{
	size_t count;
	struct pool_node *nodes = list_nodes(inventory, &count);
	struct known *due = NULL;
	const int64_t now_us = clock_mono_us();

	*ret_wait_us = IDLE_WAIT_US;
	pthread_mutex_lock(&inventory->lock);
	for (size_t i = 0; i < count && !due; i++) {
		struct known *known = is_reachable(&nodes[i]) ? known_get(inventory, &nodes[i]) : NULL;

		if (!known || known->is_running || known->is_done)
			continue;
		if (known->due_mono_us > now_us) {
			*ret_wait_us = min_i64(*ret_wait_us, known->due_mono_us - now_us);
			continue;
		}
		known->is_running = true;
		*ret_node = nodes[i];
		due = known;
	}
	pthread_mutex_unlock(&inventory->lock);
	free(nodes);
	return due;
}

bool inventory_is_settled(struct inventory *inventory)
{
	struct pool_node *nodes;
	bool is_settled = true;
	size_t count;

	if (atomic_load(&inventory->is_settled))
		return true;
	nodes = list_nodes(inventory, &count);
	pthread_mutex_lock(&inventory->lock);
	for (size_t i = 0; i < count && is_settled; i++) {
		const struct known *known;

		if (nodes[i].order == NODE_ORDER_LOST)
			continue;
		if (nodes[i].probed_mono_us == 0)
			is_settled = false;
		if (!is_reachable(&nodes[i]))
			continue;
		known = known_get(inventory, &nodes[i]);
		is_settled &= !known || known->is_done || (known->try_count > 0 && !known->is_running);
	}
	pthread_mutex_unlock(&inventory->lock);
	free(nodes);
	is_settled |= clock_mono_us() >= inventory->settled_mono_us;
	if (is_settled)
		atomic_store(&inventory->is_settled, true);
	return is_settled;
}

int64_t inventory_began_wall_us(const struct inventory *inventory) { return inventory->began_wall_us; }

/* --- one node --- */

struct ids {
	char (*ids)[ULID_SIZE];
	size_t count, capacity;
};

static int ids_keep(void *owner, const struct store_transfer *transfer)
{
	struct ids *ids = owner;

	if (ids->count == ids->capacity) {
		const size_t capacity = ids->capacity > 0 ? 2 * ids->capacity : 64;
		char(*more)[ULID_SIZE] = must_alloc(capacity * sizeof(*more));

		if (ids->count > 0)
			memcpy(more, ids->ids, ids->count * sizeof(*more));
		free(ids->ids);
		ids->ids = more;
		ids->capacity = capacity;
	}
	memcpy(ids->ids[ids->count++], transfer->id, ULID_SIZE);
	return 0;
}

static int ask_about(struct inventory_worker *worker, const char *transfer_id, struct inventory_found *found,
		     struct err *err)
{
	int result = -ERR_VERSION_CONFLICT;

	for (unsigned i = 0; i < CHANGED_MAX && result == -ERR_VERSION_CONFLICT; i++)
		result = inventory_compare(worker, transfer_id, found, err);
	return result;
}

static int ask_all(struct inventory_worker *worker, const struct ids *ids, struct err *err)
{
	for (size_t i = 0; i < ids->count && !atomic_load(worker->is_stopping); i++) {
		struct inventory_found found = { .adopted_count = 0 };
		const int result = ask_about(worker, ids->ids[i], &found, err);

		if (found.adopted_count > 0)
			log_say(LOG_INFO, "transfer %s: %" PRIu64 " chunks that the tables did not know are on node %s",
				ids->ids[i], found.adopted_count, worker->node.id);
		if (found.lost_count > 0)
			log_say(LOG_WARN,
				"transfer %s: %" PRIu64 " chunks are not on node %s any more and are to be sent again",
				ids->ids[i], found.lost_count, worker->node.id);
		if (found.kept_count > 0)
			log_say(LOG_WARN,
				"transfer %s: %" PRIu64 " chunks are not on node %s any more; each has another copy",
				ids->ids[i], found.kept_count, worker->node.id);
		if (result < 0)
			return result;
	}
	return 0;
}

static int ask_node(struct inventory_worker *worker, struct err *err)
{
	struct store *store = worker->store;
	struct ids ids = { .ids = NULL };
	int result = store->ops->transfers_idle(store, INT64_MAX, TRANSFERS_MAX, ids_keep, &ids, err);

	if (result == 0)
		result = ask_all(worker, &ids, err);
	free(ids.ids);
	return result < 0 ? err_wrap(err, "asking node %s what it holds", worker->node.id) : 0;
}

/* Whoever looks after the nodes is to know: until it is started again, what this one lost is found only by merges. */
static void alert(struct inventory *inventory, const struct known *known, const struct err *cause)
{
	const struct store_audit row = { .at_wall_us = clock_wall_us(),
					 .kind = "alert",
					 .node_id = known->id,
					 .outcome = "inventory_given_up",
					 .detail = cause->text };
	struct err err = ERR_INIT;

	if (inventory->store->ops->audit(inventory->store, &row, &err) < 0)
		log_err(LOG_ERROR, &err, "that node %s does not tell what it holds is not in the audit", known->id);
}

/* What came of it. Tried again at growing distances, but not for ever: the merge asks for each chunk anyway. */
static void note_result(struct inventory *inventory, struct known *known, int result, const struct err *err)
{
	bool is_given_up;

	pthread_mutex_lock(&inventory->lock);
	known->is_running = false;
	known->try_count++;
	known->is_done = result == 0 || known->try_count == inventory->try_limit;
	is_given_up = result < 0 && known->is_done;
	known->due_mono_us = clock_mono_us() + BACKOFF_BASE_US +
			     curve_backoff_us(known->try_count - 1, BACKOFF_BASE_US, BACKOFF_MAX_US, &inventory->rng);
	pthread_mutex_unlock(&inventory->lock);
	if (result == 0 || atomic_load(&inventory->is_stopping))
		return;
	log_err(LOG_WARN, err,
		is_given_up ? "what node %s holds stays unknown until it is started again"
			    : "what node %s holds is not known yet",
		known->id);
	if (is_given_up)
		alert(inventory, known, err);
}

/* --- threads --- */

static uint64_t change_count(struct inventory *inventory)
{
	uint64_t count;

	pthread_mutex_lock(&inventory->lock);
	count = inventory->change_count;
	pthread_mutex_unlock(&inventory->lock);
	return count;
}

/* Until the pool changes from what it was at `count`, or wait_us are over. */
static void await_change(struct inventory *inventory, uint64_t count, int64_t wait_us)
{
	const int64_t until_us = clock_mono_us() + wait_us;
	const struct timespec until = { .tv_sec = until_us / SEC_US, .tv_nsec = until_us % SEC_US * 1000 };

	pthread_mutex_lock(&inventory->lock);
	while (inventory->change_count == count && !atomic_load(&inventory->is_stopping))
		if (pthread_cond_timedwait(&inventory->changed, &inventory->lock, &until) != 0)
			break;
	pthread_mutex_unlock(&inventory->lock);
}

static void pool_changed(void *owner)
{
	struct inventory *inventory = owner;

	pthread_mutex_lock(&inventory->lock);
	inventory->change_count++;
	pthread_cond_broadcast(&inventory->changed);
	pthread_mutex_unlock(&inventory->lock);
}

static void *worker_main(void *owner)
{
	struct inventory_worker *worker = owner;
	struct inventory *inventory = worker->inventory;

	(void)pthread_setname_np(pthread_self(), "inventory");
	while (!atomic_load(&inventory->is_stopping)) {
		const uint64_t count = change_count(inventory);
		struct err err = ERR_INIT;
		int64_t wait_us;
		struct known *known = take_due(inventory, &worker->node, &wait_us);

		if (!known)
			await_change(inventory, count, wait_us);
		else
			note_result(inventory, known, ask_node(worker, &err), &err);
	}
	return NULL;
}

static int start_worker(struct inventory *inventory, struct inventory_worker *worker, struct err *err)
{
	int number;

	worker->inventory = inventory;
	worker->store = inventory->store;
	worker->internal_key = inventory->internal_key;
	worker->is_stopping = &inventory->is_stopping;
	if (internal_fetch_new(worker->internal_key, &worker->fetch, err) < 0)
		return -(int)err->code;
	number = pthread_create(&worker->thread, NULL, worker_main, worker);
	worker->is_thread_started = number == 0;
	return number == 0 ? 0 : err_sys(err, ERR_SYSTEM, number, "cannot start a thread");
}

int inventory_start(const struct inventory_options *options, struct inventory **ret_inventory, struct err *err)
{
	struct inventory *inventory = must_zalloc(1, sizeof(*inventory));
	pthread_condattr_t attributes;
	int result = 0;

	*ret_inventory = NULL;
	inventory->store = options->store;
	inventory->pool = options->pool;
	inventory->began_wall_us = clock_wall_us();
	inventory->settled_mono_us = clock_mono_us() + (options->settle_us > 0 ? options->settle_us : SETTLE_US);
	inventory->try_limit = options->try_limit > 0 ? options->try_limit : TRY_LIMIT;
	inventory->nodes = must_zalloc(POOL_NODES_MAX, sizeof(*inventory->nodes));
	rng_seed_kernel(&inventory->rng);
	inventory->internal_key = options->internal_key;
	pthread_mutex_init(&inventory->lock, NULL);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	MUST(pthread_cond_init(&inventory->changed, &attributes) == 0);
	pthread_condattr_destroy(&attributes);
	for (size_t i = 0; i < THREADS && result == 0; i++)
		result = start_worker(inventory, &inventory->workers[i], err);
	if (result < 0) {
		inventory_stop(&inventory);
		return err_wrap(err, "starting the inventory of nodes");
	}
	/* Last: a listener cannot be taken back. */
	pool_on_change(inventory->pool, pool_changed, inventory);
	pool_changed(inventory);
	*ret_inventory = inventory;
	return 0;
}

void inventory_stop(struct inventory **inventory_ref)
{
	struct inventory *inventory = *inventory_ref;

	if (!inventory)
		return;
	pthread_mutex_lock(&inventory->lock);
	atomic_store(&inventory->is_stopping, true);
	pthread_cond_broadcast(&inventory->changed);
	pthread_mutex_unlock(&inventory->lock);
	for (size_t i = 0; i < THREADS; i++) {
		struct inventory_worker *worker = &inventory->workers[i];

		if (worker->is_thread_started) {
			fetch_wake(worker->fetch);
			pthread_join(worker->thread, NULL);
		}
		if (worker->fetch)
			fetch_free(&worker->fetch);
		buf_fini(&worker->call.answer);
	}
	pthread_cond_destroy(&inventory->changed);
	pthread_mutex_destroy(&inventory->lock);
	free(inventory->nodes);
	free(inventory);
	*inventory_ref = NULL;
}
