/* From judgement to ring: who is on it, with which weight, and what the log and the operator hear of it. */
#include "folder/pool_inside.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "core/decide.h"

/* --- the ring --- */

void pool_ring_put_locked(struct pool_ring *ring)
{
	if (--ring->use_count > 0)
		return;
	free(ring->nodes);
	free(ring->names);
	ring_free(&ring->ring);
	free(ring);
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
	pool_ring_put_locked(ring);
	pthread_mutex_unlock(&pool->lock);
}

int pool_ring_build_locked(struct pool *pool, struct err *err)
{
	struct pool_ring *fresh = must_zalloc(1, sizeof(*fresh));
	int result;

	fresh->use_count = 1;
	fresh->version = pool->ring ? pool->ring->version + 1 : 1;
	fresh->nodes = must_zalloc(pool->entry_count + 1, sizeof(*fresh->nodes));
	fresh->names = must_zalloc(pool->entry_count + 1, sizeof(*fresh->names));
	for (size_t i = 0; i < pool->entry_count; i++) {
		const struct pool_member *member = pool->members[i];
		struct pool_ring_name *name = &fresh->names[fresh->node_count];

		if (member->ring_milli == 0)
			continue;
		memcpy(name->id, member->view.id, sizeof(name->id));
		memcpy(name->domain, member->ring_domain, sizeof(name->domain));
		fresh->nodes[fresh->node_count++] = (struct ring_node){
			.id = name->id,
			.weight_milli = member->ring_milli,
			.domain = name->domain[0] != '\0' ? name->domain : NULL,
		};
	}
	result = ring_build(fresh->nodes, fresh->node_count, &fresh->ring, err);
	if (result < 0) {
		pool_ring_put_locked(fresh);
		return result;
	}
	if (pool->ring)
		pool_ring_put_locked(pool->ring);
	pool->ring = fresh;
	return 0;
}

/* --- what is shown --- */

void pool_show_locked(struct pool_entry *entry)
{
	struct pool_node *node = &entry->node;
	const char *words = entry->probe_diagnosis;

	for (size_t i = 0; i < entry->dir_count && words[0] == '\0'; i++)
		words = entry->dirs[i].diagnosis;
	snprintf(node->diagnosis, sizeof(node->diagnosis), "%s", words);
	node->missed_count = entry->member.view.health.views[HEALTH_PROBE].missed_count;
}

static bool has_failed_dir(const struct pool_entry *entry)
{
	for (size_t i = 0; i < entry->dir_count; i++) {
		if (entry->dirs[i].diagnosis[0] != '\0')
			return true;
	}
	return false;
}

/* Why the door gives it no work, whatever its score; NULL: no reason. */
static const char *entry_bar(const struct pool_entry *entry)
{
	if (entry->order.order == NODE_ORDER_LOST)
		return "an operator declared it lost";
	if (entry->is_misplaced)
		return "another node answers at its address";
	if (entry->is_faulty)
		return "its disk failed the self-check";
	if (has_failed_dir(entry))
		return "a folder of it failed the self-check";
	if (entry->node.is_disk_low)
		return "its disk is low";
	if (!entry->was_probed)
		return "it was not reached yet";
	return NULL;
}

/* The rules that lower its score, for the log's line. */
static void rules_text(const struct pool *pool, const struct score_output *output, char *target, size_t target_size)
{
	size_t size = 0;

	target[0] = '\0';
	for (size_t i = 0; i < pool->judge.profile.rule_count && size < target_size; i++) {
		int written;

		if (output->rule_ppm[i] == PPM)
			continue;
		written = snprintf(target + size, target_size - size, "%s%s", size > 0 ? ", " : ": ",
				   pool->judge.profile.rules[i].name);
		size += written > 0 ? (size_t)written : 0;
	}
}

static void entry_shows_work(struct pool *pool, struct pool_entry *entry)
{
	struct pool_node *node = &entry->node;
	const char *bar = entry->member.view.bar_reason;

	(void)pool;
	node->takes_work = entry->member.takes_work;
	log_say(node->takes_work ? LOG_INFO : LOG_WARN, "node %s at %s is %s and %s%s%s%s%s", node->id, node->addr,
		member_state_name(node->state), node->takes_work ? "takes work" : "takes no new work",
		bar[0] != '\0' ? ": " : "", bar, node->diagnosis[0] != '\0' ? ": " : "", node->diagnosis);
}

/* Returns whether its state is another than was shown. */
static bool entry_show(struct pool *pool, struct pool_entry *entry)
{
	const struct member *member = &entry->member.view.member;
	struct pool_node *node = &entry->node;
	enum member_state before = node->state;

	pool_show_locked(entry);
	entry->was_healthy |= member->state == MEMBER_HEALTHY;
	node->state = member->state;
	node->state_since_mono_us = member->since_us;
	if (before != node->state)
		log_say(node->state == MEMBER_HEALTHY ? LOG_INFO : LOG_WARN, "node %s at %s: %s, was %s%s%s", node->id,
			node->addr, member_state_name(node->state), member_state_name(before),
			node->diagnosis[0] != '\0' ? ": " : "", node->diagnosis);
	if (entry->member.takes_work != node->takes_work)
		entry_shows_work(pool, entry);
	return before != node->state;
}

static void say_weight(const struct pool *pool, const struct pool_member *member, uint32_t before_milli)
{
	char rules[256];

	if (before_milli == 0 || member->ring_milli == 0 || member->ring_milli == before_milli)
		return;
	rules_text(pool, &member->output, rules, sizeof(rules));
	log_say(LOG_INFO, "node %s gets work by weight %u.%03u, was %u.%03u%s", member->view.id,
		member->ring_milli / 1000, member->ring_milli % 1000, before_milli / 1000, before_milli % 1000, rules);
}

/* --- together --- */

void pool_settle_locked(struct pool *pool)
{
	struct buf lines = BUF_INIT(DECIDE_LINE_MAX);
	uint32_t *before_milli = must_zalloc(pool->entry_count + 1, sizeof(*before_milli));
	struct err err = ERR_INIT;
	bool is_stale;

	for (size_t i = 0; i < pool->entry_count; i++) {
		pool->members[i]->bar = entry_bar(pool->entries[i]);
		before_milli[i] = pool->members[i]->ring_milli;
	}
	pool->is_judge_due = false;
	is_stale = pool_judge_step(&pool->judge, pool->members, pool->entry_count, clock_mono_us(), clock_wall_us(),
				   pool->log ? &lines : NULL);
	for (size_t i = 0; i < pool->entry_count; i++) {
		if (entry_show(pool, pool->entries[i]))
			pool->is_change_untold = true;
		if (is_stale)
			say_weight(pool, pool->members[i], before_milli[i]);
	}
	/* Should that fail the former ring stays in use: it may name a node that is out, which clients pass over. */
	if (is_stale && pool_ring_build_locked(pool, &err) < 0)
		log_err(LOG_ERROR, &err, "the ring of nodes cannot be renewed");
	pool->is_change_untold |= is_stale;
	/* Lines that do not fit are dropped and counted by the log itself. */
	if (lines.size > 0 && !lines.is_failed)
		(void)logfile_write(pool->log, buf_str(&lines));
	buf_fini(&lines);
	free(before_milli);
}
