/* What the scheduler says of the nodes, asked for while some do not answer: they may have been started elsewhere, or hang. And the key to sign with,
 * asked for again when nodes refuse what it signed. */
#include <stdio.h>

#include "folder/push_impl.h"
#include "base/mem.h"

#define NODES_EVERY_US   (1 * SEC_US)
#define NODES_TIMEOUT_US (5 * SEC_US)
#define NODES_DOUBT_US   (10 * SEC_US) /* a word counts for so long; longer than between two of them */

static void nodes_called(struct fetch *fetch, struct fetch_call *call)
{
	(void)fetch;
	struct push *push = call->owner;
	push->is_nodes_done = true;
}

/* Those that have failed here and are doubted there are left alone until the scheduler takes that back; so it is asked again. */
static void nodes_heard(struct push *push, int64_t now_us)
{
	push->nodes_heard_us = now_us;
	for (size_t i = 0; i < push->node_count; i++) {
		struct push_node *node = &push->nodes[i];
		if (node->failing_since_us == 0 || !node->is_doubted)
			continue;
		node->down_until_us = max_i64(node->down_until_us, now_us + NODES_DOUBT_US);
		push->is_nodes_wanted = true;
	}
}

/* Nodes that do not know the key we sign with any more: the cluster's keys were changed, and the scheduler gives this transfer another one. */
static void push_take_key(struct push *push, const json_t *root)
{
	uint8_t key[TICKET_KEY_SIZE];
	if (hex_decode(str_from(push_json_text(root, "transfer_key")), key, sizeof(key)))
		memcpy(push->transfer_key, key, sizeof(key));
	mem_wipe(key, sizeof(key));
}

static void nodes_answered(struct push *push, int64_t now_us)
{
	json_error_t fault;
	const struct buf *answer = &push->nodes_call.answer;
	json_t *root = push->nodes_call.err.code == ERR_NONE && answer->data != NULL
			       ? json_loadb(answer->data, answer->size, 0, &fault)
			       : NULL;
	struct err err;
	/* What we know stays good enough when this fails: it is asked again while nodes do not answer. */
	if (root != NULL && push_take_nodes(push, root, &err) == 0)
		nodes_heard(push, now_us);
	if (root != NULL)
		push_take_key(push, root);
	json_decref(root);
}

void push_nodes_step(struct push *push, int64_t now_us)
{
	if (push->is_nodes_running && push->is_nodes_done) {
		push->is_nodes_running = false;
		nodes_answered(push, now_us);
	} else if (!push->is_nodes_running && !push->is_nodes_wanted) {
		push->nodes_try_count = 0;
	}
	if (push->is_nodes_running || !push->is_nodes_wanted || now_us < push->nodes_due_us)
		return;
	snprintf(push->nodes_url, sizeof(push->nodes_url), "%s/api/v1/transfers/%s/nodes", push->options->url,
		 push->transfer_id);
	buf_fini(&push->nodes_call.answer);
	push->nodes_call = FETCH_CALL_INIT;
	push->nodes_call.url = push->nodes_url;
	push->nodes_call.headers[0] = push->api_key_header;
	push->nodes_call.timeout_us = NODES_TIMEOUT_US;
	push->nodes_call.done = nodes_called;
	push->nodes_call.owner = push;
	push->is_nodes_running = true;
	push->is_nodes_done = false;
	/* Of a node that never comes back it is asked less and less often. */
	push->nodes_due_us = now_us + NODES_EVERY_US + push_backoff_us(push, ++push->nodes_try_count);
	fetch_start(push->fetch, &push->nodes_call);
}
