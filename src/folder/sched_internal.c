/* Calls of nodes: they register, they tell what they stored, they ask what is over. */
#include "folder/sched_impl.h"

#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/clock.h"
#include "folder/receipt.h"

#define RECEIPTS_MAX 4096u /* in one call */

/* --- register --- */

static bool text_field(const json_t *root, const char *key, char *target, size_t target_size)
{
	const json_t *value = json_object_get(root, key);

	target[0] = '\0';
	return json_is_string(value) &&
	       str_copy((struct str){ json_string_value(value), json_string_length(value) }, target, target_size);
}

static int read_node(const json_t *root, struct store_node *node, struct err *err)
{
	const json_t *weight = json_object_get(root, "weight_milli");

	memset(node, 0, sizeof(*node));
	if (!text_field(root, "node_id", node->id, sizeof(node->id)))
		return err_set(err, ERR_BAD_REQUEST, "the registration has no usable node_id");
	if (!text_field(root, "addr", node->addr, sizeof(node->addr)))
		return err_set(err, ERR_BAD_REQUEST, "the registration of node %s has no usable addr", node->id);
	if (!text_field(root, "incarnation", node->incarnation, sizeof(node->incarnation)))
		return err_set(err, ERR_BAD_REQUEST, "the registration of node %s has no usable incarnation", node->id);
	if (json_object_get(root, "domain") && !text_field(root, "domain", node->domain, sizeof(node->domain)))
		return err_set(err, ERR_BAD_REQUEST, "the registration of node %s has no usable domain", node->id);
	if (!json_is_integer(weight) || json_integer_value(weight) < 0 ||
	    json_integer_value(weight) > POOL_WEIGHT_MAX_MILLI)
		return err_set(err, ERR_BAD_REQUEST, "the registration of node %s has no weight_milli of 0 to %u",
			       node->id, POOL_WEIGHT_MAX_MILLI);
	node->weight_milli = (uint32_t)json_integer_value(weight);
	node->seen_wall_us = clock_wall_us();
	return 0;
}

/* A node in the clear would undo what the scheduler's own TLS is for: clients show their tickets to it. */
static int check_transport(struct sched_call *c, const struct store_node *node)
{
	if (!sched_serves_tls(c->sched) || c->sched->is_insecure || peer_is_https(node->addr))
		return 0;
	err_set(&c->err, ERR_FORBIDDEN, "node %s at %s serves without TLS, and this scheduler with it", node->id,
		node->addr);
	err_hint(&c->err, "give the node tls_certificate and tls_key, or the scheduler insecure: true");
	return -ERR_FORBIDDEN;
}

static int run_register(struct sched_call *c)
{
	struct store_node node;
	json_error_t fault;
	json_t *root = json_loadb(c->body.size != 0 ? c->body.data : "", c->body.size, JSON_REJECT_DUPLICATES, &fault);
	struct json json;
	int result;

	if (!json_is_object(root))
		result = err_set(&c->err, ERR_BAD_REQUEST, "the registration is not a JSON object");
	else
		result = read_node(root, &node, &c->err);
	json_decref(root);
	if (result == 0)
		result = sched_check_node(c, node.id);
	if (result == 0)
		result = check_transport(c, &node);
	if (result == 0)
		result = pool_register(c->sched->pool, &node, &c->err);
	if (result < 0)
		return result;
	json_init(&json, &c->answer);
	json_open(&json, NULL);
	json_i64(&json, "probe_interval_us", c->sched->probe_interval_us);
	json_i64(&json, "server_time_us", clock_wall_us());
	json_close(&json);
	return 0;
}

void sched_begin_register(struct http_call *call, void *app)
{
	struct sched_call *c = sched_internal_call(call, app, run_register);

	if (!c)
		return;
	c->body_limit_bytes = SCHED_REGISTER_MAX;
	sched_call_go(c);
}

/* --- receipts --- */

/* How each line of the call fared: those that parse are packed into `receipts`, so that one commit takes them all. */
struct receipts {
	struct store_receipt *receipts;
	size_t count;
	enum err_code *results; /* of each line: ERR_NONE means "the next of receipts" */
	size_t line_count;
};

static int parse_receipts(struct sched_call *c, struct receipts *all)
{
	struct str rest = buf_str(&c->body), line;

	if (rest.size == 0 || rest.data[rest.size - 1] != '\n')
		return err_set(&c->err, ERR_BAD_REQUEST, "the receipts do not end with a line end");
	rest.size--;
	for (size_t i = 0; i < rest.size; i++)
		all->line_count += rest.data[i] == '\n';
	all->line_count++;
	if (all->line_count > RECEIPTS_MAX)
		return err_set(&c->err, ERR_LIMIT, "%zu receipts in one call are more than %u", all->line_count,
			       RECEIPTS_MAX);
	all->receipts = must_zalloc(all->line_count, sizeof(*all->receipts));
	all->results = must_zalloc(all->line_count, sizeof(*all->results));
	for (size_t i = 0; i < all->line_count; i++) {
		int result;

		if (!str_cut(&rest, '\n', &line))
			line = STR_NONE;
		result = receipt_parse(line, &all->receipts[all->count], NULL);
		/* One node speaks of no other's chunks. */
		if (result == 0 && !sched_is_node(c, all->receipts[all->count].node_id))
			result = -ERR_FORBIDDEN;
		all->results[i] = (enum err_code) - result;
		all->count += result == 0;
	}
	return 0;
}

static void count_receipt(struct sched *sched, const struct store_receipt *receipt)
{
	if (receipt->outcome == ERR_DISK_LOW)
		pool_report_disk_low(sched->pool, receipt->node_id);
	else if (receipt->outcome == ERR_NONE && receipt->result == ERR_NONE)
		pool_count_receipt(sched->pool, receipt->node_id);
}

/* Neighbours are mostly of one transfer. */
static void tell_merge(struct merge *merge, const struct store_receipt *receipts, size_t count)
{
	const char *last = "";

	for (size_t i = 0; i < count; i++) {
		const struct store_receipt *receipt = &receipts[i];

		if (receipt->outcome != ERR_NONE || receipt->result != ERR_NONE ||
		    strcmp(receipt->transfer_id, last) == 0)
			continue;
		last = receipt->transfer_id;
		merge_ahead(merge, last);
	}
}

static int take_receipts(struct sched_call *c, struct receipts *all)
{
	struct store *store = c->sched->store;
	size_t next = 0;
	int result = parse_receipts(c, all);

	if (result == 0 && all->count > 0)
		result = store->ops->receipts(store, all->receipts, all->count, &c->err);
	if (result < 0)
		return err_wrap(&c->err, "taking receipts");
	for (size_t i = 0; i < all->line_count; i++) {
		enum err_code code = all->results[i];

		if (code == ERR_NONE) {
			count_receipt(c->sched, &all->receipts[next]);
			code = all->receipts[next++].result;
		}
		receipt_answer_write(&c->answer, code);
	}
	tell_merge(c->sched->merge, all->receipts, all->count);
	return 0;
}

static int run_receipts(struct sched_call *c)
{
	struct receipts all = { .count = 0 };
	int result = take_receipts(c, &all);

	free(all.receipts);
	free(all.results);
	return result;
}

void sched_begin_receipts(struct http_call *call, void *app)
{
	struct sched_call *c = sched_internal_call(call, app, run_receipts);

	if (!c)
		return;
	c->body_limit_bytes = SCHED_RECEIPTS_MAX;
	c->type = "text/plain; charset=utf-8";
	sched_call_go(c);
}

/* --- transfers that are over --- */

/* Unknown is as finished as failed, however young the id: a plan is committed before the first ticket is given, so no chunk can be older than its
 * transfer's row. (Should the rows themselves be lost, nothing would ever take those chunks either, and their clients still have the bytes.) */
static int find_finished(struct sched_call *c, struct str id, bool *ret_is_finished)
{
	struct store *store = c->sched->store;
	struct store_transfer transfer;
	char text[ULID_SIZE];
	int result;

	if (!ulid_is_valid(id.data, id.size) || !str_copy(id, text, sizeof(text)))
		return err_set(&c->err, ERR_BAD_REQUEST, "a line is not the id of a transfer");
	result = store->ops->transfer_get(store, text, &transfer, &c->err);
	if (result < 0 && result != -ERR_NO_TRANSFER)
		return result;
	*ret_is_finished = result < 0 || transfer.state == TRANSFER_COMPLETED || transfer.state == TRANSFER_FAILED;
	return 0;
}

static int run_finished(struct sched_call *c)
{
	struct str rest = buf_str(&c->body), line;
	bool is_finished = false;

	while (str_cut(&rest, '\n', &line)) {
		int result = find_finished(c, line, &is_finished);

		if (result < 0)
			return result;
		if (is_finished) {
			buf_append(&c->answer, line);
			buf_append_c(&c->answer, "\n");
		}
	}
	return 0;
}

void sched_begin_finished(struct http_call *call, void *app)
{
	struct sched_call *c = sched_internal_call(call, app, run_finished);

	if (!c)
		return;
	c->body_limit_bytes = SCHED_FINISHED_MAX * ULID_SIZE; /* an id and a line end each */
	c->type = "text/plain; charset=utf-8";
	sched_call_go(c);
}
