/* What operators order about nodes: drained, lost, another weight. The store has each order before it counts. */
#include <inttypes.h>

#include "base/clock.h"
#include "base/log.h"
#include "folder/pool_inside.h"

/* How long a node may take to hear that it is drained, or no more; the next probe tells it in any case. */
#define TELL_TIMEOUT_US SEC_US

uint64_t pool_lost_count(struct pool *pool) { return atomic_load(&pool->lost_count); }

const char *pool_order_header(enum node_order order)
{
	return order == NODE_ORDER_DRAIN ? "X-Node-Order: drain" : "X-Node-Order: none";
}

void pool_weigh_locked(struct pool_entry *entry)
{
	const struct store_order *order = &entry->order;
	struct pool_node *node = &entry->node;

	node->is_weight_ordered = order->is_weight_ordered;
	node->weight_milli = order->is_weight_ordered ? order->weight_milli : node->weight_own_milli;
	entry->member.view.weight_milli = node->weight_milli;
	entry->pool->is_judge_due = true;
}

/* --- an order, applied --- */

static void lose(struct pool_entry *entry, int64_t now_us)
{
	struct node_view *view = &entry->member.view;

	member_init(&view->member, MEMBER_UNREACHABLE, now_us);
	view->is_told_to_leave = false;
	/* A probe under way says nothing any more. */
	entry->address_version++;
	atomic_fetch_add(&entry->pool->lost_count, 1);
}

/* It comes back like one that was never here. */
static void return_from_lost(struct pool_entry *entry, int64_t now_us)
{
	pool_forget_former(entry, now_us);
	entry->was_healthy = entry->was_probed = false;
	entry->due_mono_us = now_us;
	entry->address_version++;
}

static void apply_locked(struct pool_entry *entry, const struct store_order *order)
{
	struct node_view *view = &entry->member.view;
	enum node_order before = entry->order.order;
	int64_t now_us = clock_mono_us();

	entry->order = *order;
	entry->node.order = order->order;
	pool_weigh_locked(entry);
	if (order->order == before)
		return;
	if (before == NODE_ORDER_LOST)
		return_from_lost(entry, now_us);
	if (order->order == NODE_ORDER_LOST)
		lose(entry, now_us);
	else if (order->order == NODE_ORDER_DRAIN)
		(void)node_view_tell(view, &member_rules_folder, MEMBER_LEAVE, now_us);
	else if (before == NODE_ORDER_DRAIN)
		(void)node_view_tell(view, &member_rules_folder, MEMBER_STAY, now_us);
	entry->due_mono_us = now_us;
	entry->pool->is_judge_due = true;
}

/* --- an order, given --- */

static int order_next(const struct store_order *before, const struct pool_order *order, struct store_order *ret_next,
		      struct err *err)
{
	*ret_next = *before;
	if (before->order == NODE_ORDER_LOST && (order->word == POOL_DRAIN || order->word == POOL_READY)) {
		err_set(err, ERR_STATE, "node %s was declared lost", before->node_id);
		err_hint(err, "start it: it comes back when it registers");
		return -ERR_STATE;
	}
	switch (order->word) {
	case POOL_DRAIN:
		ret_next->order = NODE_ORDER_DRAIN;
		break;
	case POOL_READY:
		ret_next->order = NODE_ORDER_NONE;
		break;
	case POOL_LOST:
		ret_next->order = NODE_ORDER_LOST;
		break;
	case POOL_WEIGHT:
		if (order->weight_milli > POOL_WEIGHT_MAX_MILLI)
			return err_set(err, ERR_BAD_REQUEST,
				       "a weight of %" PRIu32 " milli is more than the %u allowed", order->weight_milli,
				       POOL_WEIGHT_MAX_MILLI);
		ret_next->is_weight_ordered = true;
		ret_next->weight_milli = order->weight_milli;
		break;
	case POOL_WEIGHT_AUTO:
		ret_next->is_weight_ordered = false;
		ret_next->weight_milli = 0;
		break;
	}
	return 0;
}

static bool order_get(struct pool *pool, const char *node_id, struct store_order *ret_order)
{
	const struct pool_entry *entry;

	pthread_mutex_lock(&pool->lock);
	entry = pool_find_locked(pool, node_id);
	if (entry)
		*ret_order = entry->order;
	pthread_mutex_unlock(&pool->lock);
	return entry != NULL;
}

/* The order lock is held, so nobody has changed the order since it was looked at. Entries never go. */
static void order_put(struct pool *pool, const struct store_order *order)
{
	pthread_mutex_lock(&pool->lock);
	apply_locked(pool_find_locked(pool, order->node_id), order);
	/* Not left to the probing thread: what is planned from now on must know. */
	pool_settle_locked(pool);
	pthread_mutex_unlock(&pool->lock);
}

static int order_change(struct pool *pool, const char *node_id, const struct pool_order *order,
			const struct store_audit *row, uint64_t *ret_lost_count, struct err *err)
{
	struct store_order before, next;
	int result;

	if (!order_get(pool, node_id, &before)) {
		err_set(err, ERR_NO_NODE, "there is no node '%s' here", node_id);
		err_hint(err, "heng nodes lists them");
		return -ERR_NO_NODE;
	}
	result = order_next(&before, order, &next, err);
	if (result == 0)
		result = pool->store->ops->order_save(pool->store, &next, row, clock_wall_us(), ret_lost_count, err);
	if (result == 0)
		order_put(pool, &next);
	return result;
}

/* Clients hold plans that name the node; they turn to others when it refuses. So it must know at once, not by the next probe. */
static void tell(struct pool *pool, const char *node_id)
{
	struct pool_node node;
	struct pool_health health;
	struct err err = ERR_INIT;

	if (!pool_get(pool, node_id, &node) || node.state == MEMBER_UNREACHABLE)
		return;
	if (pool_health_ask(node.addr, pool->internal_key, pool_order_header(node.order), TELL_TIMEOUT_US, &health,
			    &err) < 0)
		log_err(LOG_WARN, &err, "node %s hears of the operator's order by its next probe only", node_id);
}

int pool_order(struct pool *pool, const char *node_id, const struct pool_order *order, const struct store_audit *row,
	       uint64_t *ret_lost_count, struct err *err)
{
	int result;

	*ret_lost_count = 0;
	if (!pool_id_is_valid(str_from(node_id)))
		return err_set(err, ERR_NO_NODE, "that is no node id: 1 to 64 of A-Z a-z 0-9 . _ -");
	pthread_mutex_lock(&pool->order_lock);
	result = order_change(pool, node_id, order, row, ret_lost_count, err);
	pthread_mutex_unlock(&pool->order_lock);
	if (result < 0)
		return err_wrap(err, "ordering something about node %s", node_id);
	fetch_wake(pool->fetch);
	if (order->word == POOL_DRAIN || order->word == POOL_READY)
		tell(pool, node_id);
	return 0;
}

int pool_order_lift(struct pool *pool, const char *node_id, struct err *err)
{
	struct store_order order;
	uint64_t lost_count;
	int result;

	if (!order_get(pool, node_id, &order) || order.order != NODE_ORDER_LOST)
		return 0;
	order.order = NODE_ORDER_NONE;
	result = pool->store->ops->order_save(pool->store, &order, NULL, clock_wall_us(), &lost_count, err);
	if (result < 0)
		return result;
	order_put(pool, &order);
	log_say(LOG_INFO, "node %s, which was declared lost, has registered again", node_id);
	return 0;
}

/* --- after a restart --- */

static int load_each(void *owner, const struct store_order *order)
{
	struct pool *pool = owner;
	struct pool_entry *entry = pool_find_locked(pool, order->node_id);

	/* Its node was left out, or is one of those that are too many. */
	if (!entry)
		return 0;
	apply_locked(entry, order);
	if (order->order != NODE_ORDER_NONE)
		log_say(LOG_INFO, "node %s: an operator's order stands: %s", order->node_id,
			node_order_name(order->order));
	return 0;
}

int pool_orders_load(struct pool *pool, struct err *err)
{
	return pool->store->ops->order_list(pool->store, load_each, pool, err);
}
