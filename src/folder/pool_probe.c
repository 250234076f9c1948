/* The probing thread: asks each node how it is, judges at each tick and at once after a change, tells those who listen. */
#include "folder/pool_inside.h"

#include <string.h>

#include "base/clock.h"

/* --- words --- */

/* Coming back needs several good words, coming up does not: a start of all nodes would wait a whole interval for nothing. */
void pool_good_word_locked(struct pool_entry *entry, enum health_source source, int64_t now_us)
{
	struct member *member = &entry->member.view.member;

	if (entry->was_healthy || health_any(&entry->member.view.health, HEALTH_FAILED, source))
		return;
	entry->was_healthy = true;
	if (member->state == MEMBER_HEALTHY)
		return;
	/* A node that is drained comes up as leaving. */
	member_init(member, member->is_leaving ? MEMBER_LEAVING : MEMBER_HEALTHY, now_us);
	entry->pool->is_judge_due = true;
}

/* What bars a node from work changes with probes too; such a change is judged at once. */
struct entry_bars {
	bool is_disk_low, is_faulty, is_misplaced, was_probed;
};

static struct entry_bars entry_bars(const struct pool_entry *entry)
{
	return (struct entry_bars){ entry->node.is_disk_low, entry->is_faulty, entry->is_misplaced, entry->was_probed };
}

static void note_bars(struct pool_entry *entry, const struct entry_bars *before)
{
	const struct entry_bars now = entry_bars(entry);

	if (now.is_disk_low != before->is_disk_low || now.is_faulty != before->is_faulty ||
	    now.is_misplaced != before->is_misplaced || now.was_probed != before->was_probed)
		entry->pool->is_judge_due = true;
}

static void entry_good_locked(struct pool_entry *entry, const struct pool_health *health, int64_t now_us)
{
	struct pool_node *node = &entry->node;

	node->free_bytes = health->free_bytes;
	node->floor_bytes = health->floor_bytes;
	node->total_bytes = health->total_bytes;
	node->inodes_free = health->inodes_free;
	memcpy(node->fs_name, health->fs_name, sizeof(node->fs_name));
	/* The first word of another process; and the first good one after a miss, for whoever put something off until then. */
	if (strcmp(node->start_id, health->start_id) != 0 || node->missed_count > 0)
		entry->pool->is_change_untold = true;
	memcpy(node->start_id, health->start_id, sizeof(node->start_id));
	memcpy(entry->probe_diagnosis, health->diagnosis, sizeof(entry->probe_diagnosis));
	entry->is_faulty = health->diagnosis[0] != '\0';
	entry->is_misplaced = false;
	entry->was_probed = true;
	if (entry->probe_began_mono_us > entry->low_reported_mono_us)
		node->is_disk_low = health->is_low;
	else
		node->is_disk_low |= health->is_low;
	pool_good_word_locked(entry, HEALTH_PROBE, now_us);
	entry->pool->is_judge_due |= node_view_probe(&entry->member.view, &member_rules_folder, true, now_us);
}

static void entry_missed_locked(struct pool_entry *entry, const struct err *why, int64_t now_us)
{
	str_display(str_from(why->text), entry->probe_diagnosis, sizeof(entry->probe_diagnosis));
	entry->pool->is_judge_due |= node_view_probe(&entry->member.view, &member_rules_folder, false, now_us);
}

/* --- probing --- */

static void probe_done(struct fetch *fetch, struct fetch_call *call)
{
	struct pool_entry *entry = call->owner;
	struct pool *pool = entry->pool;
	struct pool_health health;
	struct err why = ERR_INIT;
	int64_t now_us = clock_mono_us();
	struct entry_bars before;
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
	before = entry_bars(entry);
	entry->node.probed_mono_us = now_us;
	entry->due_mono_us = max_i64(entry->probe_began_mono_us + pool->probe_interval_us, now_us);
	if (is_good && strcmp(health.node_id, entry->node.id) != 0) {
		err_set(&why, ERR_NODE_CONFLICT, "node '%s' answers at %s, not '%s'", health.node_id, entry->node.addr,
			entry->node.id);
		entry->is_misplaced = true;
		is_good = false;
	}
	if (is_good)
		entry_good_locked(entry, &health, now_us);
	else
		entry_missed_locked(entry, &why, now_us);
	note_bars(entry, &before);
	pool_show_locked(entry);
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
	entry->call.headers[0] = internal_key_header(pool->internal_key);
	entry->call.headers[1] = pool_order_header(entry->order.order);
	entry->call.connect_timeout_us = pool->probe_timeout_us;
	entry->call.timeout_us = pool->probe_timeout_us;
	entry->call.answer = BUF_INIT(POOL_HEALTH_BODY_MAX);
	entry->call.done = probe_done;
	entry->call.owner = entry;
}

/* Starts the probes that are due, all at once. Returns how long until the next is, or the next judgement. */
static int64_t pool_start_due(struct pool *pool)
{
	struct pool_entry *due[POOL_NODES_MAX];
	int64_t now_us = clock_mono_us(), wait_us = pool->probe_interval_us;
	size_t due_count = 0;

	pthread_mutex_lock(&pool->lock);
	wait_us = pool->is_judge_due ? 0 : min_i64(wait_us, max_i64(0, pool_judge_due_us(&pool->judge) - now_us));
	for (size_t i = 0; i < pool->entry_count; i++) {
		struct pool_entry *entry = pool->entries[i];

		/* A lost node is not asked, so that one that lives after all finds out and registers. */
		if (entry->is_probing || entry->order.order == NODE_ORDER_LOST)
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

static void pool_judge_when_due(struct pool *pool)
{
	pthread_mutex_lock(&pool->lock);
	if (pool->is_judge_due || clock_mono_us() >= pool_judge_due_us(&pool->judge))
		pool_settle_locked(pool);
	pthread_mutex_unlock(&pool->lock);
}

void *pool_probe_main(void *arg)
{
	struct pool *pool = arg;

	while (!atomic_load(&pool->is_stopping)) {
		int64_t wait_us = pool_start_due(pool);

		fetch_step(pool->fetch, wait_us);
		pool_judge_when_due(pool);
		pool_tell(pool);
	}
	return NULL;
}
