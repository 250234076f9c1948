#include "folder/merge_impl.h"
#include "folder/peer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"

/* Attempts are at most this far apart while somebody waits for a node; an older failure says nothing about now. */
#define OUT_STALE_US      (20 * SEC_US)
#define DELETE_TIMEOUT_US (60 * SEC_US)
#define DELETE_CONNECT_US (2 * SEC_US)
#define DELETE_TRIES_MAX  10
#define FORGET_NODES_MAX  4096
#define URL_SIZE          256

/* Call with the lock held. */
static struct merge_node *node_get(struct merge *merge, const char *node_id)
{
	for (struct merge_node *node = merge->nodes; node; node = node->next)
		if (strcmp(node->id, node_id) == 0)
			return node;
	struct merge_node *node = must_zalloc(1, sizeof(*node));
	str_copy(str_from(node_id), node->id, sizeof(node->id));
	node->next = merge->nodes;
	merge->nodes = node;
	return node;
}

void merge_nodes_free(struct merge *merge)
{
	for (struct merge_node *node = merge->nodes, *next; node; node = next) {
		next = node->next;
		free(node);
	}
	merge->nodes = NULL;
}

static bool is_reachable(enum member_state state)
{
	return state == MEMBER_HEALTHY || state == MEMBER_SUSPECT || state == MEMBER_LEAVING;
}

bool merge_node_is_up(struct merge_run *run, const char *node_id)
{
	struct pool_node known;

	return pool_get(run->merge->pool, node_id, &known) && is_reachable(known.state);
}

bool merge_node_is_declared_lost(struct merge_run *run, const char *node_id)
{
	struct pool_node known;

	return pool_get(run->merge->pool, node_id, &known) && known.order == NODE_ORDER_LOST;
}

/* The note is written once per wait, not once per look. */
static void note_wait(struct merge_run *run, const char *node_id, const struct pool_node *known)
{
	char note[STORE_REASON_SIZE];
	struct err err = ERR_INIT;

	if (merge_is_ahead(run))
		return;
	pthread_mutex_lock(&run->lock);
	bool is_new = strcmp(run->waiting_node, node_id) != 0;
	if (is_new)
		str_copy(str_from(node_id), run->waiting_node, sizeof(run->waiting_node));
	pthread_mutex_unlock(&run->lock);
	if (!is_new)
		return;
	snprintf(note, sizeof(note),
		 "the merge waits for node %s%s%s, which has chunks of it and cannot be reached%s%.200s", node_id,
		 known ? " at " : "", known ? known->addr : "", known && known->diagnosis[0] ? ": " : "",
		 known ? known->diagnosis : "");
	log_say(LOG_WARN, "transfer %s: %s", run->transfer.id, note);
	if (run->merge->store->ops->transfer_note(run->merge->store, run->transfer.id, note, &err) < 0)
		log_err(LOG_WARN, &err, "transfer %s: what its merge waits for could not be noted", run->transfer.id);
}

static void note_wait_over(struct merge_run *run, const char *node_id)
{
	struct err err = ERR_INIT;

	pthread_mutex_lock(&run->lock);
	bool was_waiting = strcmp(run->waiting_node, node_id) == 0;
	if (was_waiting)
		run->waiting_node[0] = '\0';
	pthread_mutex_unlock(&run->lock);
	if (!was_waiting)
		return;
	log_say(LOG_INFO, "transfer %s: node %s is back, the merge goes on", run->transfer.id, node_id);
	if (run->merge->store->ops->transfer_note(run->merge->store, run->transfer.id, "", &err) < 0)
		log_err(LOG_WARN, &err, "transfer %s: its note could not be cleared", run->transfer.id);
}

enum merge_gate merge_node_take(struct merge_run *run, const char *node_id, char addr[STORE_ADDR_SIZE])
{
	struct merge *merge = run->merge;
	struct pool_node known;
	bool is_known = pool_get(merge->pool, node_id, &known);
	bool is_declared_lost = is_known && known.order == NODE_ORDER_LOST;
	bool is_up = is_known && !is_declared_lost && is_reachable(known.state);
	bool is_ahead = merge_is_ahead(run);
	int64_t now_us = clock_mono_us();
	enum merge_gate gate = MERGE_NODE_READY;

	pthread_mutex_lock(&merge->lock);
	struct merge_node *node = node_get(merge, node_id);
	if (node->out_since_us != 0 && now_us - node->out_seen_us > OUT_STALE_US)
		node->out_since_us = 0;
	/* Who runs ahead does not wait, so nobody's waiting is counted by it. */
	if (!is_up && !is_ahead) {
		if (node->out_since_us == 0)
			node->out_since_us = now_us;
		node->out_seen_us = now_us;
		/* The pool may have missed it for longer than this merge has asked. */
		if (is_known && known.state_since_mono_us > 0)
			node->out_since_us = min_i64(node->out_since_us, known.state_since_mono_us);
	}
	if (is_declared_lost ||
	    (node->out_since_us != 0 && now_us - node->out_since_us > merge->options.node_lost_after_us))
		gate = MERGE_NODE_LOST;
	else if (!is_up)
		gate = MERGE_NODE_OUT;
	else if (node->connection_count >= merge->options.node_connection_limit)
		gate = MERGE_NODE_BUSY;
	else
		node->connection_count++;
	/* The next merge that finds it out waits anew. */
	if (gate == MERGE_NODE_LOST && !is_ahead)
		node->out_since_us = 0;
	bool is_failing = node->out_since_us != 0;
	pthread_mutex_unlock(&merge->lock);

	if (gate == MERGE_NODE_READY)
		str_copy(str_from(known.addr), addr, STORE_ADDR_SIZE);
	if (gate == MERGE_NODE_OUT || (gate == MERGE_NODE_READY && is_failing))
		note_wait(run, node_id, is_known ? &known : NULL);
	return gate;
}

void merge_node_give(struct merge_run *run, const char *node_id)
{
	struct merge *merge = run->merge;

	pthread_mutex_lock(&merge->lock);
	struct merge_node *node = node_get(merge, node_id);
	MUST(node->connection_count > 0);
	/* Nobody waits for a connection unless all were in use. */
	if (node->connection_count-- >= merge->options.node_connection_limit)
		pthread_cond_broadcast(&merge->changed);
	pthread_mutex_unlock(&merge->lock);
}

void merge_node_saw(struct merge_run *run, const char *node_id, bool is_reached)
{
	struct merge *merge = run->merge;
	int64_t now_us = clock_mono_us();

	pthread_mutex_lock(&merge->lock);
	struct merge_node *node = node_get(merge, node_id);
	if (is_reached) {
		node->out_since_us = 0;
	} else {
		if (node->out_since_us == 0)
			node->out_since_us = now_us;
		node->out_seen_us = now_us;
	}
	pthread_mutex_unlock(&merge->lock);
	if (is_reached)
		note_wait_over(run, node_id);
}

/* --- removing chunk files --- */

/* What was removed, or why it was not, for good. */
static void record_removal(struct merge *merge, const struct store_audit *row)
{
	struct err err = ERR_INIT;

	if (merge->store->ops->audit(merge->store, row, &err) < 0)
		log_err(LOG_WARN, &err, "transfer %s: what node %s removed is not in the audit", row->transfer_id,
			row->node_id);
}

static int delete_at(struct merge *merge, struct fetch *fetch, const char *url, struct err *err)
{
	struct fetch_call call = FETCH_CALL_INIT;

	call.method = "DELETE";
	call.url = url;
	call.headers[0] = internal_key_header(merge->options.internal_key);
	call.connect_timeout_us = DELETE_CONNECT_US;
	call.timeout_us = DELETE_TIMEOUT_US;
	int result = fetch_do(fetch, &call, err);
	buf_fini(&call.answer);
	return result;
}

void merge_node_drop(struct merge_run *run, struct fetch *fetch, const struct store_chunk *chunk)
{
	struct merge *merge = run->merge;
	struct pool_node known;
	char url[URL_SIZE];
	struct err err = ERR_INIT;

	if (!pool_get(merge->pool, chunk->actual_node, &known)) {
		log_say(LOG_WARN,
			"transfer %s: a bad chunk cannot be removed from node %s, which is not known any more",
			run->transfer.id, chunk->actual_node);
		return;
	}
	snprintf(url, sizeof(url), "%s%s/internal/v1/chunk/%s/%" PRIu64 "/%" PRIu64, peer_scheme(known.addr),
		 known.addr, run->transfer.id, chunk->file_id, chunk->chunk_index);
	/* Busy: somebody writes it this very moment, which is soon over. */
	for (int i = 0; i < DELETE_TRIES_MAX && !merge_is_over(run); i++) {
		if (delete_at(merge, fetch, url, &err) == 0 || err.code == ERR_CHUNK_GONE) {
			const struct store_audit row = { .at_wall_us = clock_wall_us(),
							 .kind = "removed",
							 .transfer_id = run->transfer.id,
							 .node_id = chunk->actual_node,
							 .outcome = "ok",
							 .detail = "a chunk that was not what was sent",
							 .file_id = chunk->file_id,
							 .chunk_index = chunk->chunk_index };

			record_removal(merge, &row);
			return;
		}
		if (err.code != ERR_BUSY)
			break;
		merge_pause(merge, MERGE_WAIT_US);
	}
	log_err(LOG_WARN, &err, "transfer %s: node %s did not remove a bad chunk", run->transfer.id,
		chunk->actual_node);
}

struct forget {
	struct fetch_call call;
	char url[URL_SIZE];
	const char *node_id;
};

static void forget_done(struct fetch *fetch UNUSED, struct fetch_call *call)
{
	struct forget *forget = call->owner;

	if (call->status < 200 || call->status > 299)
		log_err(LOG_WARN, &call->err,
			"node %s did not remove the chunk files of a completed transfer; its own sweep will",
			forget->node_id);
}

static void record_forget(struct merge *merge, const char *transfer_id, const struct forget *forget)
{
	const struct fetch_call *call = &forget->call;
	const bool is_removed = call->status >= 200 && call->status <= 299;
	char detail[STORE_REASON_SIZE];
	const struct store_audit row = { .at_wall_us = clock_wall_us(),
					 .kind = "removed",
					 .transfer_id = transfer_id,
					 .node_id = forget->node_id,
					 .outcome = is_removed                   ? "ok"
						    : call->err.code != ERR_NONE ? err_word(call->err.code)
										 : err_word(ERR_CLOSED),
					 .detail = detail };

	if (is_removed)
		snprintf(detail, sizeof(detail), "all chunk files of the transfer, whose merge has ended");
	else
		snprintf(detail, sizeof(detail), "chunk files stay until the node's own sweep: %.400s",
			 call->err.code != ERR_NONE ? call->err.text : "the scheduler was stopped");
	record_removal(merge, &row);
}

void merge_nodes_forget(struct merge *merge, const char *transfer_id)
{
	struct err err = ERR_INIT;
	struct fetch *fetch = NULL;
	size_t limit = min_size(pool_list(merge->pool, NULL, 0), FORGET_NODES_MAX);

	if (limit == 0)
		return;
	struct pool_node *nodes = must_zalloc(limit, sizeof(*nodes));
	struct forget *forgets = must_zalloc(limit, sizeof(*forgets));
	size_t count = min_size(pool_list(merge->pool, nodes, limit), limit);
	if (internal_fetch_new(merge->options.internal_key, &fetch, &err) < 0) {
		log_err(LOG_WARN, &err, "transfer %s: its chunk files stay on the nodes", transfer_id);
		count = 0;
	}
	for (size_t i = 0; i < count; i++) {
		struct forget *forget = &forgets[i];
		snprintf(forget->url, sizeof(forget->url), "%s%s/internal/v1/transfer/%s", peer_scheme(nodes[i].addr),
			 nodes[i].addr, transfer_id);
		forget->node_id = nodes[i].id;
		forget->call = FETCH_CALL_INIT;
		forget->call.method = "DELETE";
		forget->call.url = forget->url;
		forget->call.headers[0] = internal_key_header(merge->options.internal_key);
		forget->call.connect_timeout_us = DELETE_CONNECT_US;
		forget->call.timeout_us = DELETE_TIMEOUT_US;
		forget->call.done = forget_done;
		forget->call.owner = forget;
		fetch_start(fetch, &forget->call);
	}
	while (count > 0 && fetch_running_count(fetch) > 0 && !atomic_load(&merge->is_stopping))
		fetch_step(fetch, MERGE_WAIT_US);
	/* Dropped calls must be gone before their memory. */
	fetch_free(&fetch);
	for (size_t i = 0; i < count; i++) {
		record_forget(merge, transfer_id, &forgets[i]);
		buf_fini(&forgets[i].call.answer);
	}
	free(forgets);
	free(nodes);
}
