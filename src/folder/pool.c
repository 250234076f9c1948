#include "folder/pool.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "folder/pool_inside.h"

/* How long the former holder of a node id may take to show that it is alive. */
#define POOL_CHECK_TIMEOUT_US SEC_US

/* --- nodes --- */

struct pool_entry *pool_find_locked(struct pool *pool, const char *node_id)
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
	memcpy(entry->order.node_id, node->id, sizeof(entry->order.node_id));
	entry->node.state = MEMBER_UNREACHABLE;
	entry->node.state_since_mono_us = now_us;
	node_view_init(&entry->member.view, node->id, node->weight_milli, MEMBER_UNREACHABLE, now_us);
	entry->due_mono_us = now_us;
	pool->members[pool->entry_count] = &entry->member;
	pool->entries[pool->entry_count++] = entry;
	return entry;
}

/* What the former one said of itself says nothing of this one; what an operator said of the id still counts. */
void pool_forget_former(struct pool_entry *entry, int64_t now_us)
{
	struct node_view *view = &entry->member.view, fresh;

	node_view_init(&fresh, view->id, view->weight_milli, view->member.state, now_us);
	fresh.member = view->member;
	fresh.joined_us = view->joined_us;
	fresh.is_told_to_leave = view->is_told_to_leave;
	fresh.health.views[HEALTH_PROBE] = view->health.views[HEALTH_PROBE];
	*view = fresh;
	entry->dir_count = 0;
}

static void pool_apply_locked(struct pool *pool, struct pool_entry *entry, const struct store_node *node,
			      int64_t now_us)
{
	struct pool_node *to = &entry->node;
	bool is_other = strcmp(to->incarnation, node->incarnation) != 0;
	bool is_moved = strcmp(to->addr, node->addr) != 0 || is_other;

	if (is_other)
		pool_forget_former(entry, now_us);
	memcpy(to->addr, node->addr, sizeof(to->addr));
	memcpy(to->incarnation, node->incarnation, sizeof(to->incarnation));
	memcpy(to->domain, node->domain, sizeof(to->domain));
	memcpy(entry->member.domain, node->domain, sizeof(entry->member.domain));
	to->weight_own_milli = node->weight_milli;
	pool_weigh_locked(entry);
	if (is_moved) {
		entry->address_version++;
		pool->is_change_untold = true;
	}
	entry->due_mono_us = now_us;
	pool->is_judge_due = true;
}

/* Is the former holder of the id alive? Then two nodes claim one id, and chunks would seem to be where they are not. */
static int pool_check_former(struct pool *pool, const struct pool_node *former, const struct store_node *node,
			     struct err *err)
{
	struct pool_health health;

	/* An operator has said that it is dead. */
	if (former->order == NODE_ORDER_LOST)
		return 0;
	/* The probing thread has just found out. Before its first word nobody knows. */
	if (former->state == MEMBER_UNREACHABLE && former->probed_mono_us != 0)
		return 0;
	if (pool_health_ask(former->addr, pool->internal_key, NULL, POOL_CHECK_TIMEOUT_US, &health, NULL) < 0)
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
	pthread_mutex_lock(&pool->order_lock);
	result = pool->store->ops->node_save(pool->store, node, err);
	if (result == 0)
		result = pool_order_lift(pool, node->id, err);
	pthread_mutex_unlock(&pool->order_lock);
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

/* A node's words and paths are shown to people later, so they are made fit for that here. Returns whether it failed a folder, or does no more. */
static bool take_dirs(struct pool_entry *entry, const struct report_message *message)
{
	bool was_failed = false, is_failed = false;

	for (size_t i = 0; i < entry->dir_count; i++)
		was_failed |= entry->dirs[i].diagnosis[0] != '\0';
	entry->dir_count = min_size(message->dir_count, REPORT_DIRS_MAX);
	for (size_t i = 0; i < entry->dir_count; i++) {
		struct report_dir *to = &entry->dirs[i];

		str_display(str_from(message->dirs[i].path), to->path, sizeof(to->path));
		str_display(str_from(message->dirs[i].diagnosis), to->diagnosis, sizeof(to->diagnosis));
		is_failed |= to->diagnosis[0] != '\0';
	}
	return was_failed != is_failed;
}

static void take_report_locked(struct pool_entry *entry, const struct report_message *message, int64_t now_us)
{
	struct node_view *view = &entry->member.view;
	struct pool *pool = entry->pool;

	pool_good_word_locked(entry, HEALTH_HEARTBEAT, now_us);
	pool->is_judge_due |= node_view_report(view, &member_rules_folder, &message->report, message->sequence, now_us);
	/* A report that was overtaken by a newer one is dropped whole: what it says of the folders is as old as its numbers. */
	if (view->report_us == now_us && view->report_sequence == message->sequence)
		pool->is_judge_due |= take_dirs(entry, message);
	pool_show_locked(entry);
}

int pool_report(struct pool *pool, const struct report_message *message, struct err *err)
{
	struct pool_entry *entry;
	bool is_judge_due = false;
	int result = 0;

	pthread_mutex_lock(&pool->lock);
	entry = pool_find_locked(pool, message->node_id);
	if (!entry) {
		result = err_set(err, ERR_STATE, "node %s is not registered here", message->node_id);
		err_hint(err, "a node registers by itself, at its start and when it is not probed for 10 s");
	} else if (strcmp(entry->node.incarnation, message->incarnation) != 0) {
		result = err_set(err, ERR_NODE_CONFLICT, "node id '%s' is held by another node, at %s",
				 message->node_id, entry->node.addr);
		err_hint(err, "give one of them an id and a state folder of its own");
	} else if (entry->order.order == NODE_ORDER_LOST) {
		result = err_set(err, ERR_STATE, "an operator has declared node %s lost", message->node_id);
		err_hint(err, "a node registers by itself, at its start and when it is not probed for 10 s");
	} else {
		take_report_locked(entry, message, clock_mono_us());
		is_judge_due = pool->is_judge_due;
	}
	pthread_mutex_unlock(&pool->lock);
	if (is_judge_due)
		fetch_wake(pool->fetch);
	return result;
}

void pool_report_disk_low(struct pool *pool, const char *node_id)
{
	struct pool_entry *entry;

	pthread_mutex_lock(&pool->lock);
	entry = pool_find_locked(pool, node_id);
	if (entry) {
		entry->low_reported_mono_us = clock_mono_us();
		/* Not left to the probing thread: what is planned from now on must know. */
		if (!entry->node.is_disk_low) {
			entry->node.is_disk_low = true;
			pool_settle_locked(pool);
		}
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

static void fill_judged(const struct pool_entry *entry, int64_t now_us, struct pool_judged *ret)
{
	const struct node_view *view = &entry->member.view;

	ret->node = entry->node;
	memcpy(ret->sources, view->health.views, sizeof(ret->sources));
	ret->report = view->report;
	ret->report_age_us = view->report_us < 0 ? -1 : max_i64(0, now_us - view->report_us);
	memcpy(ret->dirs, entry->dirs, sizeof(ret->dirs));
	ret->dir_count = entry->dir_count;
	memcpy(ret->bar_reason, view->bar_reason, sizeof(ret->bar_reason));
	ret->output = entry->member.output;
	ret->ring_milli = entry->member.ring_milli;
}

size_t pool_judged(struct pool *pool, struct pool_judged **ret_nodes, struct pool_verdict *ret_verdict)
{
	const struct pool_judge *judge = &pool->judge;
	int64_t now_us = clock_mono_us();
	size_t count;

	pthread_mutex_lock(&pool->lock);
	count = pool->entry_count;
	*ret_nodes = must_zalloc(count + 1, sizeof(**ret_nodes));
	for (size_t i = 0; i < count; i++)
		fill_judged(pool->entries[i], now_us, &(*ret_nodes)[i]);
	*ret_verdict = (struct pool_verdict){
		.profile = judge->profile,
		.table_version = judge->version,
		.reason = judge->decision.reason,
		.now_mono_us = now_us,
	};
	memcpy(ret_verdict->selected, judge->memory.selected, sizeof(ret_verdict->selected));
	pthread_mutex_unlock(&pool->lock);
	return count;
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

int pool_start(const struct pool_options *options, struct pool **ret_pool, struct err *err)
{
	struct pool *pool = must_zalloc(1, sizeof(*pool));
	struct store *store = options->store;
	int result;

	*ret_pool = NULL;
	pool->store = store;
	pool->log = options->log;
	pool->probe_interval_us = options->probe_interval_us;
	pool->probe_timeout_us = options->probe_timeout_us;
	pool->internal_key = options->internal_key;
	pthread_mutex_init(&pool->lock, NULL);
	pthread_mutex_init(&pool->order_lock, NULL);
	pool_judge_init(&pool->judge, options->profile ? options->profile : profile_builtin("folder"));
	result = pool_ring_build_locked(pool, err);
	if (result == 0)
		result = internal_fetch_new(pool->internal_key, &pool->fetch, err);
	if (result == 0)
		result = store->ops->node_list(store, pool_load_each, pool, err);
	if (result == 0)
		result = pool_orders_load(pool, err);
	if (result == 0) {
		int fault = pthread_create(&pool->thread, NULL, pool_probe_main, pool);

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
		pool_ring_put_locked(pool->ring);
	pool_judge_fini(&pool->judge);
	pthread_mutex_destroy(&pool->lock);
	pthread_mutex_destroy(&pool->order_lock);
	free(pool);
	*pool_ref = NULL;
}
