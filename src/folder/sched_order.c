/* POST nodes/:id: what an operator orders about a node. */
#include "folder/sched_audit.h"

#include <inttypes.h>
#include <stdio.h>

#include <jansson.h>

#include "base/clock.h"
#include "base/log.h"

static const struct {
	const char *name;
	enum pool_word word;
} words[] = {
	{ "drain", POOL_DRAIN },
	{ "ready", POOL_READY },
	{ "lost", POOL_LOST },
};

static int read_word(const json_t *value, struct pool_order *order, struct err *err)
{
	const char *name = json_string_value(value);

	for (size_t i = 0; name && i < COUNT_OF(words); i++) {
		if (strcmp(words[i].name, name) == 0) {
			order->word = words[i].word;
			return 0;
		}
	}
	return err_set(err, ERR_BAD_REQUEST, "'order' is none of: drain, ready, lost");
}

static int read_weight(const json_t *value, struct pool_order *order, struct err *err)
{
	if (json_is_null(value)) {
		order->word = POOL_WEIGHT_AUTO;
		return 0;
	}
	if (!json_is_integer(value) || json_integer_value(value) < 0 ||
	    json_integer_value(value) > POOL_WEIGHT_MAX_MILLI)
		return err_set(err, ERR_BAD_REQUEST, "'weight_milli' is neither 0 to %u nor null",
			       POOL_WEIGHT_MAX_MILLI);
	order->word = POOL_WEIGHT;
	order->weight_milli = (uint32_t)json_integer_value(value);
	return 0;
}

/* Exactly one order: two of them could come half-way. */
static int read_order(struct str body, struct pool_order *ret_order, struct err *err)
{
	json_error_t fault;
	json_t *root = json_loadb(body.size != 0 ? body.data : "", body.size, JSON_REJECT_DUPLICATES, &fault);
	const json_t *word = json_object_get(root, "order"), *weight = json_object_get(root, "weight_milli");
	int result;

	*ret_order = (struct pool_order){ .weight_milli = 0 };
	if (!json_is_object(root) || json_object_size(root) != 1 || (!word && !weight))
		result = err_set(err, ERR_BAD_REQUEST,
				 "the body is not a JSON object with 'order' or 'weight_milli', and nothing else");
	else
		result = word ? read_word(word, ret_order, err) : read_weight(weight, ret_order, err);
	json_decref(root);
	return result;
}

static void order_text(const struct pool_order *order, char *target, size_t target_size)
{
	for (size_t i = 0; i < COUNT_OF(words); i++) {
		if (words[i].word == order->word)
			(void)snprintf(target, target_size, "%s", words[i].name);
	}
	if (order->word == POOL_WEIGHT)
		(void)snprintf(target, target_size, "weight %" PRIu32, order->weight_milli);
	else if (order->word == POOL_WEIGHT_AUTO)
		(void)snprintf(target, target_size, "weight auto");
}

static int answer_node(struct sched_call *c, const char *node_id, uint64_t lost_count)
{
	struct pool_node node;
	struct json json;

	if (!pool_get(c->sched->pool, node_id, &node))
		return err_set(&c->err, ERR_INTERNAL, "node %s is gone from the pool", node_id);
	json_init(&json, &c->answer);
	json_open(&json, NULL);
	json_c(&json, "id", node.id);
	json_c(&json, "addr", node.addr);
	json_c(&json, "state", member_state_name(node.state));
	json_bool(&json, "takes_work", node.takes_work);
	json_c(&json, "order", node_order_name(node.order));
	json_milli(&json, "weight", node.weight_milli);
	json_milli(&json, "weight_own", node.weight_own_milli);
	json_bool(&json, "is_weight_ordered", node.is_weight_ordered);
	json_u64(&json, "lost_chunks", lost_count);
	json_i64(&json, "server_time_us", clock_wall_us());
	json_close(&json);
	return 0;
}

static int run_order(struct sched_call *c)
{
	struct pool_order order;
	char node_id[STORE_NODE_ID_SIZE], what[32], detail[128];
	struct sched_audit_room room;
	struct store_audit row;
	uint64_t lost_count = 0;
	int result = read_order(buf_str(&c->body), &order, &c->err);

	if (result < 0)
		return result;
	if (!str_copy(http_param(c->call, "id"), node_id, sizeof(node_id)))
		return err_set(&c->err, ERR_NO_NODE, "a node id has at most %zu characters", sizeof(node_id) - 1);
	order_text(&order, what, sizeof(what));
	sched_audit_note(c, "operator", what, NULL, detail, &row, &room);
	row.node_id = node_id;
	(void)snprintf(detail, sizeof(detail), "from %s", room.client_addr);
	result = pool_order(c->sched->pool, node_id, &order, &row, &lost_count, &c->err);
	if (result < 0)
		return result;
	log_say(LOG_WARN, "operator '%s' orders of node %s: %s", c->user->name, node_id, what);
	return answer_node(c, node_id, lost_count);
}

static int check_operator(struct sched_call *c)
{
	if (c->user->role == ROLE_OPERATOR)
		return 0;
	err_set(&c->err, ERR_FORBIDDEN, "user '%s' is no operator, and only they give orders about nodes",
		c->user->name);
	err_hint(&c->err, "use an operator's key; heng up makes one, operator.key");
	return -ERR_FORBIDDEN;
}

void sched_begin_node_order(struct http_call *call, void *app)
{
	struct sched_call *c = sched_client_call(call, app, run_order);

	if (!c)
		return;
	c->check = check_operator;
	c->body_limit_bytes = SCHED_ORDER_MAX;
	sched_call_go(c);
}
