/* The nodes' addresses, asked for again while nodes do not answer: they may have been started elsewhere. And the key to sign with, asked for again
 * when nodes refuse what it signed. */
#include <stdio.h>

#include "folder/push_impl.h"
#include "base/mem.h"

#define NODES_EVERY_US (1 * SEC_US)

static void nodes_called(struct fetch *fetch, struct fetch_call *call)
{
	(void)fetch;
	struct push *push = call->owner;
	push->is_nodes_done = true;
}

/* Nodes that do not know the key we sign with any more: the cluster's keys were changed, and the scheduler gives this transfer another one. */
static void push_take_key(struct push *push, const json_t *root)
{
	uint8_t key[TICKET_KEY_SIZE];
	if (hex_decode(str_from(push_json_text(root, "transfer_key")), key, sizeof(key)))
		memcpy(push->transfer_key, key, sizeof(key));
	mem_wipe(key, sizeof(key));
}

void push_nodes_step(struct push *push, int64_t now_us)
{
	if (push->is_nodes_running && push->is_nodes_done) {
		push->is_nodes_running = false;
		json_error_t fault;
		const struct buf *answer = &push->nodes_call.answer;
		json_t *root = push->nodes_call.err.code == ERR_NONE && answer->data != NULL
				       ? json_loadb(answer->data, answer->size, 0, &fault)
				       : NULL;
		struct err err;
		/* The addresses we have stay good enough when this fails: it is asked again while nodes do not answer. */
		if (root != NULL) {
			(void)push_take_nodes(push, root, &err);
			push_take_key(push, root);
		}
		json_decref(root);
	}
	if (push->is_nodes_running || !push->is_nodes_wanted || now_us - push->nodes_asked_us < NODES_EVERY_US)
		return;
	snprintf(push->nodes_url, sizeof(push->nodes_url), "%s/api/v1/transfers/%s/nodes", push->options->url,
		 push->transfer_id);
	buf_fini(&push->nodes_call.answer);
	push->nodes_call = FETCH_CALL_INIT;
	push->nodes_call.url = push->nodes_url;
	push->nodes_call.headers[0] = push->api_key_header;
	push->nodes_call.done = nodes_called;
	push->nodes_call.owner = push;
	push->is_nodes_running = true;
	push->is_nodes_done = false;
	push->nodes_asked_us = now_us;
	fetch_start(push->fetch, &push->nodes_call);
}
