#include "folder/pool.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "folder/pool_health.h"
#include "sys/fetch.h"

/* How long the former holder of a node id may take to show that it is alive. */
#define POOL_CHECK_TIMEOUT_US SEC_US

struct pool_entry {
	struct pool *pool;
	/* Guarded by pool->lock. */
	struct pool_node node;
	struct member member;
	bool was_healthy;             /* since this scheduler started: the first good probe suffices until then */
	bool is_faulty;               /* by its own word, or it is another node: no work, whatever the member state */
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
	char internal_key[65];
	char key_header[96];
	int64_t probe_interval_us, probe_timeout_us;
	struct fetch *fetch; /* the probing thread's, but for fetch_wake */
	pthread_t thread;
	bool is_thread_running; /* the owner's: pool_halt has not joined it yet */
	atomic_bool is_stopping;

	pthread_mutex_t lock;                       /* protects all that follows, and the entries' parts that say so */
	struct pool_entry *entries[POOL_NODES_MAX]; /* never removed, so pointers stay good without the lock */
	size_t entry_count;
	struct pool_ring *ring; /* the pool's own reference is one of use_count */
	bool is_change_untold;
	struct pool_listener listeners[POOL_LISTENERS_MAX];
	size_t listener_count;
};

/* --- the ring; the lock is held --- */

static void ring_put_locked(struct pool_ring *ring)
{
	if (--ring->use_count > 0)
		return;
	ring_free(&ring->ring);
	free(ring);
}

static int pool_rebuild_locked(struct pool *pool, struct err *err)
{
	struct ring_node *nodes = must_zalloc(POOL_NODES_MAX, sizeof(*nodes));
	struct pool_ring *fresh;
	struct ring *ring = NULL;
	size_t count = 0;
	int result;

	for (size_t i = 0; i < pool->entry_count; i++) {
		const struct pool_node *node = &pool->entries[i]->node;

		if (!node->takes_work)
			continue;
		nodes[count].id = node->id;
		nodes[count].weight_milli = node->weight_milli;
		nodes[count].domain = node->domain[0] != '\0' ? node->domain : NULL;
		count++;
	}
	result = ring_build(nodes, count, &ring, err);
	free(nodes);
	if (result < 0)
		return result;
	fresh = must_zalloc(1, sizeof(*fresh));
	fresh->ring = ring;
	fresh->version = pool->ring ? pool->ring->version + 1 : 1;
	fresh->use_count = 1;
	if (pool->ring)
		ring_put_locked(pool->ring);
	pool->ring = fresh;
	return 0;
}

/* Call after anything about an entry changed: works out whether it takes work and renews the ring when that differs. */
static void pool_settle_locked(struct pool *pool, struct pool_entry *entry, bool is_ring_stale)
{
	struct pool_node *node = &entry->node;
	bool takes_work = member_takes_work(entry->member.state) && !node->is_disk_low && !entry->is_faulty &&
			  node->weight_milli > 0;
	struct err err = ERR_INIT;

	node->state = entry->member.state;
	node->state_since_mono_us = entry->member.since_us;
	node->missed_count = entry->member.missed_count;
	if (takes_work != node->takes_work) {
		node->takes_work = takes_work;
		is_ring_stale = true;
		log_say(takes_work ? LOG_INFO : LOG_WARN, "node %s at %s is %s and %s%s%s%s", node->id, node->addr,
			member_state_name(node->state), takes_work ? "takes work" : "takes no new work",
			node->is_disk_low ? ": its disk is low" : "", node->diagnosis[0] != '\0' ? ": " : "",
			node->diagnosis);
	}
	if (!is_ring_stale)
		return;
	pool->is_change_untold = true;
	/* The former ring stays in use then: it may name a node that is out, which clients pass over. */
	if (pool_rebuild_locked(pool, &err) < 0)
		log_err(LOG_ERROR, &err, "the ring of nodes cannot be renewed after a change of node %s", node->id);
}

struct pool_ring *pool_ring_get(struct pool *pool)
{
	struct pool_ring *ring;

	pthread_mutex_lock(&pool->lock);
	ring = pool->ring;
	ring->use_count++;
	pthread_mutex_unlock(&pool->lock);
	return ring;
}

void pool_ring_put(struct pool *pool, struct pool_ring *ring)
{
	pthread_mutex_lock(&pool->lock);
	ring_put_locked(ring);
	pthread_mutex_unlock(&pool->lock);
}

/* --- probing --- */

static bool entry_step_locked(struct pool_entry *entry, enum member_event event, int64_t now_us)
{
	enum member_state before = entry->member.state;
	bool is_changed;

	/* Coming back needs several good probes, coming up does not: a start of all nodes would wait a whole interval for nothing. */
	if (event == MEMBER_PROBE_GOOD && !entry->was_healthy) {
		member_init(&entry->member, MEMBER_HEALTHY, now_us);
		is_changed = before != MEMBER_HEALTHY;
	} else {
		is_changed = member_step(&entry->member, &member_rules_folder, event, now_us);
	}
	entry->was_healthy |= entry->member.state == MEMBER_HEALTHY;
	if (is_changed)
		log_say(entry->member.state == MEMBER_HEALTHY ? LOG_INFO : LOG_WARN, "node %s at %s: %s, was %s%s%s",
			entry->node.id, entry->node.addr, member_state_name(entry->member.state),
			member_state_name(before), entry->node.diagnosis[0] != '\0' ? ": " : "", entry->node.diagnosis);
	return is_changed;
}

static void entry_good_locked(struct pool_entry *entry, const struct pool_health *health, int64_t now_us)
{
	struct pool_node *node = &entry->node;

	node->free_bytes = health->free_bytes;
	node->total_bytes = health->total_bytes;
	node->inodes_free = health->inodes_free;
	memcpy(node->diagnosis, health->diagnosis, sizeof(node->diagnosis));
	entry->is_faulty = health->diagnosis[0] != '\0';
	if (entry->probe_began_mono_us > entry->low_reported_mono_us)
		node->is_disk_low = health->is_low;
	else
		node->is_disk_low |= health->is_low;
	if (entry_step_locked(entry, MEMBER_PROBE_GOOD, now_us))
		entry->pool->is_change_untold = true;
}

static void entry_missed_locked(struct pool_entry *entry, const struct err *why, int64_t now_us)
{
	str_display(str_from(why->text), entry->node.diagnosis, sizeof(entry->node.diagnosis));
	if (entry_step_locked(entry, MEMBER_PROBE_MISSED, now_us))
		entry->pool->is_change_untold = true;
}

static void probe_done(struct fetch *fetch, struct fetch_call *call)
{
	struct pool_entry *entry = call->owner;
	struct pool *pool = entry->pool;
	struct pool_health health;
	struct err why = ERR_INIT;
	int64_t now_us = clock_mono_us();
	bool is_good = false;

	(void)fetch;
	/* A node whose disk failed may say so with a 503: its body is still its health. */
	if (call->status == 200 || call->status == 503)
		is_good = pool_health_parse(buf_str(&call->answer), &health, &why) == 0;
	else
		why = call->err;
	buf_fini(&call->answer);

	pthread_mutex_lock(&pool->lock);
	entry->is_probing = false;
	if (entry->probe_address_version != entry->address_version) {
		entry->due_mono_us = now_us;
		pthread_mutex_unlock(&pool->lock);
		return;
	}
	entry->node.probed_mono_us = now_us;
	entry->due_mono_us = max_i64(entry->probe_began_mono_us + pool->probe_interval_us, now_us);
	if (is_good && strcmp(health.node_id, entry->node.id) != 0) {
		err_set(&why, ERR_NODE_CONFLICT, "node '%s' answers at %s, not '%s'", health.node_id, entry->node.addr,
			entry->node.id);
		entry->is_faulty = true;
		is_good = false;
	}
	if (is_good)
		entry_good_locked(entry, &health, now_us);
	else
		entry_missed_locked(entry, &why, now_us);
	pool_settle_locked(pool, entry, false);
	pthread_mutex_unlock(&pool->lock);
}

/* The lock is held, but the call does not begin before the lock is given back: see pool_start_due. */
static void probe_prepare_locked(struct pool_entry *entry, int64_t now_us)
{
	struct pool *pool = entry->pool;

	pool_health_url(entry->node.addr, entry->url);
	entry->is_probing = true;
	entry->probe_began_mono_us = now_us;
	entry->probe_address_version = entry->address_version;
	entry->call = FETCH_CALL_INIT;
	entry->call.url = entry->url;
	entry->call.headers[0] = pool->key_header;
	entry->call.connect_timeout_us = pool->probe_timeout_us;
	entry->call.timeout_us = pool->probe_timeout_us;
	entry->call.answer = BUF_INIT(POOL_HEALTH_BODY_MAX);
	entry->call.done = probe_done;
	entry->call.owner = entry;
}

/* Starts the probes that are due, all at once. Returns how long until the next is. */
static int64_t pool_start_due(struct pool *pool)
{
	struct pool_entry *due[POOL_NODES_MAX];
	int64_t now_us = clock_mono_us(), wait_us = pool->probe_interval_us;
	size_t due_count = 0;

	pthread_mutex_lock(&pool->lock);
	for (size_t i = 0; i < pool->entry_count; i++) {
		struct pool_entry *entry = pool->entries[i];

		if (entry->is_probing)
			continue;
		if (entry->due_mono_us > now_us) {
			wait_us = min_i64(wait_us, entry->due_mono_us - now_us);
			continue;
		}
		probe_prepare_locked(entry, now_us);
		due[due_count++] = entry;
	}
	pthread_mutex_unlock(&pool->lock);
	/* Outside the lock, since a call that cannot even start may report that from within. */
	for (size_t i = 0; i < due_count; i++)
		fetch_start(pool->fetch, &due[i]->call);
	return wait_us;
}

static void pool_tell(struct pool *pool)
{
	struct pool_listener listeners[POOL_LISTENERS_MAX];
	size_t count = 0;

	pthread_mutex_lock(&pool->lock);
	if (pool->is_change_untold) {
		pool->is_change_untold = false;
		count = pool->listener_count;
		memcpy(listeners, pool->listeners, sizeof(listeners));
	}
	pthread_mutex_unlock(&pool->lock);
	for (size_t i = 0; i < count; i++)
		listeners[i].fn(listeners[i].owner);
}

static void *pool_main(void *arg)
{
	struct pool *pool = arg;

	while (!atomic_load(&pool->is_stopping)) {
		int64_t wait_us = pool_start_due(pool);

		fetch_step(pool->fetch, wait_us);
		pool_tell(pool);
	}
	return NULL;
}

/* --- nodes --- */

static struct pool_entry *pool_find_locked(struct pool *pool, const char *node_id)
{
	for (size_t i = 0; i < pool->entry_count; i++) {
		if (strcmp(pool->entries[i]->node.id, node_id) == 0)
			return pool->entries[i];
	}
	return NULL;
}

static int pool_check_node(const struct store_node *node, struct err *err)
{
	char shown[96];

	if (!pool_id_is_valid(str_from(node->id)))
		return err_set(err, ERR_BAD_REQUEST, "node id '%s' is not 1 to 64 of A-Z a-z 0-9 . _ -",
			       str_display(str_from(node->id), shown, sizeof(shown)));
	if (!pool_addr_is_valid(str_from(node->addr)))
		return err_set(err, ERR_BAD_REQUEST, "node %s gives '%s' as its address, which is not host:port",
			       node->id, str_display(str_from(node->addr), shown, sizeof(shown)));
	if (node->incarnation[0] == '\0')
		return err_set(err, ERR_BAD_REQUEST, "node %s gives no incarnation", node->id);
	if (node->weight_milli > POOL_WEIGHT_MAX_MILLI)
		return err_set(err, ERR_BAD_REQUEST, "node %s has weight %" PRIu32 " milli; at most %u are allowed",
			       node->id, node->weight_milli, POOL_WEIGHT_MAX_MILLI);
	return 0;
}

static struct pool_entry *pool_add_locked(struct pool *pool, const struct store_node *node, int64_t now_us)
{
	struct pool_entry *entry = must_zalloc(1, sizeof(*entry));

	entry->pool = pool;
	memcpy(entry->node.id, node->id, sizeof(entry->node.id));
	member_init(&entry->member, MEMBER_UNREACHABLE, now_us);
	entry->due_mono_us = now_us;
	pool->entries[pool->entry_count++] = entry;
	return entry;
}

static void pool_apply_locked(struct pool *pool, struct pool_entry *entry, const struct store_node *node,
			      int64_t now_us)
{
	struct pool_node *to = &entry->node;
	bool is_moved = strcmp(to->addr, node->addr) != 0 || strcmp(to->incarnation, node->incarnation) != 0;
	bool is_on_ring_otherwise = to->weight_milli != node->weight_milli || strcmp(to->domain, node->domain) != 0;

	memcpy(to->addr, node->addr, sizeof(to->addr));
	memcpy(to->incarnation, node->incarnation, sizeof(to->incarnation));
	memcpy(to->domain, node->domain, sizeof(to->domain));
	to->weight_milli = node->weight_milli;
	if (is_moved) {
		entry->address_version++;
		pool->is_change_untold = true;
	}
	entry->due_mono_us = now_us;
	pool_settle_locked(pool, entry, is_on_ring_otherwise && to->takes_work);
}

/* Is the former holder of the id alive? Then two nodes claim one id, and chunks would seem to be where they are not. */
static int pool_check_former(struct pool *pool, const struct pool_node *former, const struct store_node *node,
			     struct err *err)
{
	struct pool_health health;

	/* The probing thread has just found out. Before its first word nobody knows. */
	if (former->state == MEMBER_UNREACHABLE && former->probed_mono_us != 0)
		return 0;
	if (pool_health_ask(former->addr, pool->internal_key, POOL_CHECK_TIMEOUT_US, &health, NULL) < 0)
		return 0;
	if (strcmp(health.node_id, node->id) != 0 || strcmp(health.incarnation, node->incarnation) == 0)
		return 0;
	err_set(err, ERR_NODE_CONFLICT,
		"node id '%s' is in use: a live node at %s holds it, and another at %s asks for it", node->id,
		former->addr, node->addr);
	err_hint(err, "give one of them an id and a state folder of its own, or stop the other first");
	return -ERR_NODE_CONFLICT;
}

int pool_register(struct pool *pool, const struct store_node *node, struct err *err)
{
	struct pool_node former;
	struct pool_entry *entry;
	char accepted[sizeof(former.incarnation)] = "";
	int64_t now_us;
	int result = pool_check_node(node, err);

	if (result < 0)
		return result;
	/* The former holder is asked without the lock, so it is looked at again afterwards. */
	while (pool_get(pool, node->id, &former) && strcmp(former.incarnation, node->incarnation) != 0 &&
	       strcmp(former.incarnation, accepted) != 0) {
		result = pool_check_former(pool, &former, node, err);
		if (result < 0)
			return result;
		memcpy(accepted, former.incarnation, sizeof(accepted));
	}
	result = pool->store->ops->node_save(pool->store, node, err);
	if (result < 0)
		return err_wrap(err, "registering node %s", node->id);
	now_us = clock_mono_us();
	pthread_mutex_lock(&pool->lock);
	entry = pool_find_locked(pool, node->id);
	if (!entry && pool->entry_count == POOL_NODES_MAX) {
		pthread_mutex_unlock(&pool->lock);
		return err_set(err, ERR_LIMIT, "node %s is one too many: this scheduler keeps %d", node->id,
			       POOL_NODES_MAX);
	}
	if (!entry) {
		entry = pool_add_locked(pool, node, now_us);
		log_say(LOG_INFO, "node %s at %s is new here", node->id, node->addr);
	}
	pool_apply_locked(pool, entry, node, now_us);
	pthread_mutex_unlock(&pool->lock);
	fetch_wake(pool->fetch);
	return 0;
}

void pool_report_disk_low(struct pool *pool, const char *node_id)
{
	struct pool_entry *entry;

	pthread_mutex_lock(&pool->lock);
	entry = pool_find_locked(pool, node_id);
	if (entry) {
		entry->low_reported_mono_us = clock_mono_us();
		entry->node.is_disk_low = true;
		pool_settle_locked(pool, entry, false);
	}
	pthread_mutex_unlock(&pool->lock);
	if (entry)
		fetch_wake(pool->fetch);
}

void pool_count_receipt(struct pool *pool, const char *node_id)
{
	struct pool_entry *entry;

	pthread_mutex_lock(&pool->lock);
	entry = pool_find_locked(pool, node_id);
	if (entry)
		entry->node.chunk_count_in++;
	pthread_mutex_unlock(&pool->lock);
}

size_t pool_list(struct pool *pool, struct pool_node *ret_nodes, size_t limit)
{
	size_t count;

	pthread_mutex_lock(&pool->lock);
	count = pool->entry_count;
	for (size_t i = 0; i < count && i < limit; i++)
		ret_nodes[i] = pool->entries[i]->node;
	pthread_mutex_unlock(&pool->lock);
	return count;
}

bool pool_get(struct pool *pool, const char *node_id, struct pool_node *ret_node)
{
	const struct pool_entry *entry;

	pthread_mutex_lock(&pool->lock);
	entry = pool_find_locked(pool, node_id);
	if (entry)
		*ret_node = entry->node;
	pthread_mutex_unlock(&pool->lock);
	return entry != NULL;
}

void pool_on_change(struct pool *pool, void (*fn)(void *owner), void *owner)
{
	pthread_mutex_lock(&pool->lock);
	MUST(pool->listener_count < POOL_LISTENERS_MAX);
	pool->listeners[pool->listener_count++] = (struct pool_listener){ .fn = fn, .owner = owner };
	pthread_mutex_unlock(&pool->lock);
}

/* --- life --- */

static int pool_load_each(void *owner, const struct store_node *node)
{
	struct pool *pool = owner;
	struct err err = ERR_INIT;
	struct pool_entry *entry;

	if (pool->entry_count == POOL_NODES_MAX)
		return 1;
	/* The table may be older than today's rules, or not ours: such a node has to register again. */
	if (pool_check_node(node, &err) < 0) {
		log_err(LOG_WARN, &err, "a node of the store is left out");
		return 0;
	}
	entry = pool_add_locked(pool, node, clock_mono_us());
	pool_apply_locked(pool, entry, node, clock_mono_us());
	return 0;
}

int pool_start(struct store *store, const char *internal_key, int64_t probe_interval_us, int64_t probe_timeout_us,
	       struct pool **ret_pool, struct err *err)
{
	struct pool *pool = must_zalloc(1, sizeof(*pool));
	int result;

	*ret_pool = NULL;
	pool->store = store;
	pool->probe_interval_us = probe_interval_us;
	pool->probe_timeout_us = probe_timeout_us;
	MUST(str_copy(str_from(internal_key), pool->internal_key, sizeof(pool->internal_key)));
	snprintf(pool->key_header, sizeof(pool->key_header), "X-Internal-Key: %s", pool->internal_key);
	pthread_mutex_init(&pool->lock, NULL);
	result = pool_rebuild_locked(pool, err);
	if (result == 0)
		result = fetch_new(&pool->fetch, err);
	if (result == 0)
		result = store->ops->node_list(store, pool_load_each, pool, err);
	if (result == 0) {
		int fault = pthread_create(&pool->thread, NULL, pool_main, pool);

		pool->is_thread_running = fault == 0;
		if (fault != 0)
			result = err_sys(err, ERR_SYSTEM, fault, "cannot start a thread");
	}
	if (result < 0) {
		pool_stop(&pool);
		return err_wrap(err, "starting the probes of nodes");
	}
	*ret_pool = pool;
	return 0;
}

void pool_halt(struct pool *pool)
{
	if (!pool->is_thread_running)
		return;
	atomic_store(&pool->is_stopping, true);
	fetch_wake(pool->fetch);
	pthread_join(pool->thread, NULL);
	pool->is_thread_running = false;
}

void pool_stop(struct pool **pool_ref)
{
	struct pool *pool = *pool_ref;

	if (!pool)
		return;
	pool_halt(pool);
	fetch_free(&pool->fetch);
	for (size_t i = 0; i < pool->entry_count; i++) {
		buf_fini(&pool->entries[i]->call.answer);
		free(pool->entries[i]);
	}
	if (pool->ring)
		ring_put_locked(pool->ring);
	pthread_mutex_destroy(&pool->lock);
	mem_wipe(pool->internal_key, sizeof(pool->internal_key));
	mem_wipe(pool->key_header, sizeof(pool->key_header));
	free(pool);
	*pool_ref = NULL;
}
