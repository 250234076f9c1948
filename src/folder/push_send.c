#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "folder/push_impl.h"
#include "folder/peer.h"

#define SEND_SIGNATURE_LIFE_US (120 * SEC_US)
#define SEND_STALL_US          (15 * SEC_US)
#define SEND_DOWN_FAILURES     3
#define SEND_NOTICE_EVERY_US   (1 * SEC_US)
#define SEND_STEP_MAX_US       (100 * MSEC_US)
#define SEND_UNKNOWN_US        (1 * SEC_US) /* the nodes are not asked for more often, and each chunk asks then */

static struct push_node *send_node(struct push *push, const struct push_chunk *chunk)
{
	return &push->nodes[chunk->nodes[chunk->node_at]];
}

PRINTF(3, 4) static void send_notice(struct push *push, struct push_node *node, const char *fmt, ...)
{
	int64_t now_us = clock_mono_us();
	if (push->options->notice == NULL ||
	    (node != NULL && node->noticed_us != 0 && now_us - node->noticed_us < SEND_NOTICE_EVERY_US))
		return;
	if (node != NULL)
		node->noticed_us = now_us;
	char line[1024];
	va_list args;
	va_start(args, fmt);
	vsnprintf(line, sizeof(line), fmt, args);
	va_end(args);
	push->options->notice(push->options->owner, line);
}

/* --- what becomes of a chunk --- */
void push_chunk_wait(struct push *push, struct push_chunk *chunk, int64_t due_us)
{
	buf_fini(&chunk->call.answer);
	chunk->phase = CHUNK_IS_WAITING;
	chunk->due_us = due_us;
	push_chunks_add(&push->waiting, chunk);
	push->waiting_count++;
}

/* is_pending: stored, but the scheduler does not know it yet. */
static void send_acknowledged(struct push *push, struct push_chunk *chunk, bool is_repeat, bool is_pending,
			      int64_t now_us)
{
	struct push_node *node = &push->nodes[chunk->sent_to];
	node->connect_failure_count = 0;
	node->down_until_us = node->failing_since_us = 0;
	node->bytes += chunk->size_bytes;
	node->chunk_count++;
	push->progress.chunks_sent += !is_repeat;
	push->progress.waiting_for = NULL;
	if (is_pending)
		push_pending_add(push, chunk);
	else
		push->acked_count++;
	push->life_us = now_us;
	push_budget_earn(&push->budget);
	push_pace_acked(&push->pace, chunk->size_bytes, now_us - chunk->started_us, now_us);
	if (push_copies_next(chunk)) {
		push_chunk_wait(push, chunk, now_us);
		return;
	}
	push->progress.chunks_done++;
	push->progress.bytes_done += chunk->size_bytes;
	push_chunk_release(push, chunk);
}

/* No more of it in this pass. A chunk that has a copy is not missing: `complete` says whether one will do. */
void push_chunk_put_off(struct push *push, struct push_chunk *chunk)
{
	if (!chunk->has_copy) {
		push->dropped_count++;
	} else if (push->thin_count++ == 0) {
		send_notice(push, NULL, "chunk %llu/%llu, maybe others too, is on one node only for now%s%s",
			    (unsigned long long)chunk->file_id, (unsigned long long)chunk->chunk_index,
			    push->last_err.code != ERR_NONE ? ": " : "", push->last_err.text);
	}
	push_chunk_release(push, chunk);
}

static void send_turn_to(struct push *push, struct push_chunk *chunk, unsigned node_at)
{
	chunk->try_here_count = 0;
	chunk->node_at = node_at;
	if (chunk->node_count > 1)
		push->progress.failovers++;
}

static void send_tell_turn(struct push *push, const struct push_chunk *chunk)
{
	struct push_node *from = &push->nodes[chunk->sent_to];
	send_notice(push, from, "chunk %llu/%llu goes to %s instead of %s: %s", (unsigned long long)chunk->file_id,
		    (unsigned long long)chunk->chunk_index, send_node(push, chunk)->id, from->id, push->last_err.text);
}

/* This candidate will not do: the next one, at once; after a whole round only after a pause. */
static int64_t send_next_candidate(struct push *push, struct push_chunk *chunk, int64_t now_us)
{
	send_turn_to(push, chunk, (chunk->node_at + 1) % chunk->node_count);
	if (chunk->node_at != 0) {
		send_tell_turn(push, chunk);
		return now_us;
	}
	chunk->is_ask_due = true;
	return now_us + push_retry_us(push, chunk->try_count, chunk->call.retry_after_us);
}

static void send_note_connect_failure(struct push *push, struct push_node *node, bool is_stalled, int64_t now_us)
{
	node->connect_failure_count += is_stalled ? SEND_DOWN_FAILURES : 1;
	if (node->failing_since_us == 0)
		node->failing_since_us = now_us;
	push->is_nodes_wanted = true;
	if (node->connect_failure_count >= SEND_DOWN_FAILURES && node->down_until_us <= now_us) {
		node->down_until_us = now_us + PUSH_DOWN_US;
		send_notice(push, node, "node %s at %s does not answer; its chunks go elsewhere for a while: %s",
			    node->id, node->addr, push->last_err.text);
	}
}

/* --- calls --- */
static void send_called(struct fetch *fetch, struct fetch_call *call)
{
	(void)fetch;
	struct push_chunk *chunk = call->owner;
	chunk->is_done = true;
}

void push_chunk_start(struct push *push, struct push_chunk *chunk, enum push_chunk_phase phase)
{
	chunk->phase = phase;
	chunk->is_done = false;
	chunk->seen_bytes = 0;
	chunk->call.done = send_called;
	chunk->call.owner = chunk;
	push_chunks_add(&push->sending, chunk);
	push->sending_count++;
	fetch_start(push->fetch, &chunk->call);
}

/* --- an attempt --- */
enum send_fate { SEND_FATAL, SEND_SAME, SEND_OTHER, SEND_ASK, SEND_ASK_CONFLICT, SEND_OVER };

/* What to do about an answer. Rows stand here for codes whose retry class alone does not say it. */
static enum send_fate send_fate(enum err_code code)
{
	static const struct {
		enum err_code code;
		enum send_fate fate;
	} rows[] = {
		{ ERR_TICKET_EXPIRED, SEND_ASK },
		{ ERR_CLOCK_SKEW, SEND_ASK },
		{ ERR_TICKET_BAD, SEND_ASK },
		{ ERR_DIGEST_CONFLICT, SEND_ASK_CONFLICT },
		{ ERR_MERGING, SEND_OVER },
		{ ERR_STATE, SEND_OVER },
		{ ERR_NO_TRANSFER, SEND_OVER }, /* it was removed from the node: the scheduler knows why */
		{ ERR_NO_CHUNK, SEND_OVER },    /* another push of the folder had it planned anew */
		/* The network repeated the request. The first copy may have got through; where it did not, a new attempt has a new nonce. */
		{ ERR_NONCE_REPLAYED, SEND_ASK },
		{ ERR_TIMEOUT, SEND_OTHER }, /* the node hangs: waiting for it again would take as long */
		{ ERR_SYSTEM, SEND_OTHER },
		{ ERR_INTERNAL, SEND_OTHER },
	};
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		if (rows[i].code == code)
			return rows[i].fate;
	}
	switch (err_retry(code)) {
	case ERR_RETRY_SAME:
		return SEND_SAME;
	case ERR_RETRY_OTHER:
		return SEND_OTHER;
	case ERR_RETRY_NO:
		break;
	}
	return SEND_FATAL;
}

/* Is it a sign that too much is asked of the nodes at once? A full disk or a dead node is none: the others take as much as before. */
static bool send_is_congestion(enum err_code code)
{
	return code == ERR_BUSY || code == ERR_TIMEOUT || code == ERR_SLOW || code == ERR_NO_MEMORY ||
	       code == ERR_SCHEDULER_DOWN;
}

/* After an attempt that failed, for the reason in last_err. False: that was the last one in this pass. */
static bool send_may_try_again(struct push *push, struct push_chunk *chunk)
{
	if (chunk->try_count < PUSH_TRIES_MAX) {
		push->progress.retries++;
		return true;
	}
	send_notice(push, NULL, "chunk %llu/%llu is put off after %u tries: %s", (unsigned long long)chunk->file_id,
		    (unsigned long long)chunk->chunk_index, chunk->try_count, push->last_err.text);
	push_chunk_put_off(push, chunk);
	return false;
}

static void send_again(struct push *push, struct push_chunk *chunk, enum send_fate fate, int64_t now_us)
{
	struct push_node *node = &push->nodes[chunk->sent_to];
	if (!send_may_try_again(push, chunk))
		return;
	if (chunk->call.err.code == ERR_TICKET_BAD && chunk->try_count > 1) {
		/* A fresh ticket did not help: the key that we sign with is another one now. It comes with the nodes. */
		push->is_nodes_wanted = chunk->is_ask_due = true;
		push_chunk_wait(push, chunk, now_us + push_retry_us(push, chunk->try_count, 0));
		return;
	}
	if (fate == SEND_ASK || fate == SEND_ASK_CONFLICT) {
		chunk->conflict_count += fate == SEND_ASK_CONFLICT;
		push_again_ask(push, chunk);
		return;
	}
	if (fate == SEND_OTHER || chunk->try_here_count >= PUSH_TRIES_SAME_NODE) {
		push_chunk_wait(push, chunk, send_next_candidate(push, chunk, now_us));
		return;
	}
	send_notice(push, node, "chunk %llu/%llu is sent to %s again: %s", (unsigned long long)chunk->file_id,
		    (unsigned long long)chunk->chunk_index, node->id, push->last_err.text);
	push_chunk_wait(push, chunk, now_us + push_retry_us(push, chunk->try_here_count, chunk->call.retry_after_us));
}

static int send_failed(struct push *push, struct push_chunk *chunk, int64_t now_us, struct err *err)
{
	enum err_code code = chunk->call.err.code;
	struct push_node *node = &push->nodes[chunk->sent_to];
	enum send_fate fate = send_fate(code);
	push->last_err = chunk->call.err;
	err_wrap(&push->last_err, "node %s", node->id);
	if (fate == SEND_FATAL) {
		*err = push->last_err;
		return err_wrap(err, "sending chunk %llu/%llu", (unsigned long long)chunk->file_id,
				(unsigned long long)chunk->chunk_index);
	}
	if (fate == SEND_OVER) {
		push->is_state_changed = true;
		push_chunk_release(push, chunk);
		return 0;
	}
	if (send_is_congestion(code))
		push_pace_refused(&push->pace, chunk->started_us, now_us);
	if (code == ERR_CONNECT || code == ERR_TIMEOUT || code == ERR_TLS)
		send_note_connect_failure(push, node, code == ERR_TIMEOUT, now_us);
	send_again(push, chunk, fate, now_us);
	return 0;
}

/* Its node hangs, and the one at node_at is well. What the node may still do with what it has is fenced off, as with any attempt that comes late. It
 * says nothing about how much the others can take. */
static void send_give_up(struct push *push, struct push_chunk *chunk, unsigned node_at, int64_t now_us)
{
	struct push_node *node = &push->nodes[chunk->sent_to];
	fetch_cancel(push->fetch, &chunk->call);
	err_set(&push->last_err, ERR_TIMEOUT, "node %s: no sign of life for %lld s, and the scheduler misses it too",
		node->id, (long long)((now_us - node->silent_since_us) / SEC_US));
	send_note_connect_failure(push, node, true, now_us);
	if (!send_may_try_again(push, chunk))
		return;
	send_turn_to(push, chunk, node_at);
	send_tell_turn(push, chunk);
	push_chunk_wait(push, chunk, now_us);
}

static int send_returned(struct push *push, struct push_chunk *chunk, int64_t now_us, struct err *err)
{
	if (chunk->phase == CHUNK_IS_ASKING)
		return push_again_asked(push, chunk, now_us, err);
	if (chunk->call.err.code == ERR_NONE && (chunk->call.status == 200 || chunk->call.status == 202)) {
		json_error_t fault;
		json_t *root = json_loadb(chunk->call.answer.data != NULL ? chunk->call.answer.data : "",
					  chunk->call.answer.size, 0, &fault);
		bool is_pending = chunk->call.status == 202;
		bool is_stored = strcmp(push_json_text(root, "state"), is_pending ? "stored_pending" : "stored") == 0;
		bool is_repeat = push_json_bool(root, "is_repeat");
		json_decref(root);
		if (is_stored) {
			send_acknowledged(push, chunk, is_repeat, is_pending, now_us);
			return 0;
		}
	}
	if (chunk->call.err.code == ERR_NONE)
		err_set(&chunk->call.err, ERR_PEER, "HTTP status %d without the word that the chunk is stored",
			chunk->call.status);
	return send_failed(push, chunk, now_us, err);
}

static int send_put(struct push *push, struct push_chunk *chunk, int64_t now_us, struct err *err)
{
	struct push_node *node = send_node(push, chunk);
	struct ticket_request request = { .transfer_id = push->transfer_id,
					  .file_id = chunk->file_id,
					  .chunk_index = chunk->chunk_index,
					  .size_bytes = chunk->size_bytes,
					  .digest_hex = str_from(chunk->digest) };
	/* Signed now, not when it was planned: a slow link must not make signatures stale, and each attempt has its own nonce. */
	char token[TICKET_TOKEN_SIZE];
	int r = ticket_sign(str_from(chunk->ticket), push->transfer_key, &request,
			    clock_wall_us() + push->clock_offset_us + SEND_SIGNATURE_LIFE_US, token, err);
	if (r < 0)
		return err_wrap(err, "signing chunk %llu/%llu", (unsigned long long)chunk->file_id,
				(unsigned long long)chunk->chunk_index);
	snprintf(chunk->token_header, sizeof(chunk->token_header), "X-Auth-Token: %s", token);
	snprintf(chunk->digest_header, sizeof(chunk->digest_header), "%s: %s", digest_header(push->options->digest),
		 chunk->digest);
	snprintf(chunk->size_header, sizeof(chunk->size_header), "X-Chunk-Size: %llu",
		 (unsigned long long)chunk->size_bytes);
	snprintf(chunk->url, sizeof(chunk->url), "%s%s/api/v1/upload/chunk/%s/%llu/%llu", peer_scheme(node->addr),
		 node->addr, push->transfer_id, (unsigned long long)chunk->file_id,
		 (unsigned long long)chunk->chunk_index);
	buf_fini(&chunk->call.answer);
	chunk->call = FETCH_CALL_INIT;
	chunk->call.method = "PUT";
	chunk->call.url = chunk->url;
	chunk->call.headers[0] = chunk->token_header;
	chunk->call.headers[1] = chunk->digest_header;
	chunk->call.headers[2] = chunk->size_header;
	chunk->call.body = (struct str){ chunk->data, (size_t)chunk->size_bytes };
	chunk->call.stall_timeout_us = SEND_STALL_US;
	/* The ticket says all that a node need know of us. */
	chunk->call.is_anonymous = true;
	chunk->sent_to = chunk->nodes[chunk->node_at];
	chunk->try_count++;
	chunk->try_here_count++;
	chunk->started_us = chunk->moved_us = now_us;
	push_chunk_start(push, chunk, CHUNK_IS_SENDING);
	return 0;
}

/* A first attempt is free; any other is paid for, or waits until it can be. */
static int send_attempt(struct push *push, struct push_chunk *chunk, int64_t now_us, struct err *err)
{
	int64_t due_us;
	if (chunk->try_count == 0 || push_budget_take(&push->budget, now_us, &due_us))
		return send_put(push, chunk, now_us, err);
	snprintf(push->waiting_text, sizeof(push->waiting_text),
		 "more than %d retries in %lld s, and 20 %% of what got through, are not made; last: %s",
		 PUSH_BUDGET_FLOOR, PUSH_BUDGET_WINDOW_US / (long long)SEC_US, push->last_err.text);
	push->progress.waiting_for = push->waiting_text;
	push->is_budget_spent = true;
	if (push->budget_told_us == 0 || now_us - push->budget_told_us >= PUSH_BUDGET_WINDOW_US) {
		push->budget_told_us = now_us;
		send_notice(push, NULL, "retries are slowed down: %s", push->waiting_text);
	}
	push_chunk_wait(push, chunk, due_us);
	return 0;
}

/* Turns to the first candidate, from this one on, that is not known to be down. Without one: when the first of them is worth a try again. */
static bool send_find_candidate(struct push *push, struct push_chunk *chunk, int64_t now_us, int64_t *ret_due_us)
{
	int64_t due_us = now_us + PUSH_DOWN_US;
	for (unsigned i = 0; i < chunk->node_count; i++) {
		unsigned at = (chunk->node_at + i) % chunk->node_count;
		const struct push_node *node = &push->nodes[chunk->nodes[at]];
		if (node->addr[0] != '\0' && node->down_until_us <= now_us) {
			if (at != chunk->node_at) {
				push->progress.failovers++;
				chunk->try_here_count = 0;
			}
			chunk->node_at = at;
			return true;
		}
		/* An address that is not known yet comes with the next look at the nodes. */
		if (node->addr[0] == '\0') {
			push->is_nodes_wanted = true;
			err_set(&push->last_err, ERR_NO_NODES, "the scheduler knows no address of node '%s'", node->id);
		}
		due_us = min_i64(due_us, node->addr[0] == '\0' ? now_us + SEND_UNKNOWN_US : node->down_until_us);
	}
	*ret_due_us = chunk->node_count > 0 ? due_us : now_us;
	chunk->is_ask_due = true;
	return false;
}

static int send_start_due(struct push *push, int64_t now_us, struct err *err)
{
	struct push_chunks waiting = push->waiting;
	push_chunks_init(&push->waiting);
	push->waiting_count = 0;
	struct push_chunk *chunk;
	while ((chunk = push_chunks_take(&waiting)) != NULL) {
		int64_t due_us = chunk->due_us;
		int r = 0;
		if (due_us > now_us || push->sending_count >= push->pace.limit) {
			push_chunk_wait(push, chunk, due_us);
		} else if (chunk->node_count == 0) {
			/* No node takes work: the plan is asked again in the next pass. */
			err_set(&push->last_err, ERR_NO_NODES, "no node takes chunk %llu/%llu",
				(unsigned long long)chunk->file_id, (unsigned long long)chunk->chunk_index);
			push_chunk_put_off(push, chunk);
		} else if (chunk->is_ask_due) {
			/* A node that was out when the plan was made may be back, and be the only one that is well. */
			push_again_ask(push, chunk);
		} else if (send_find_candidate(push, chunk, now_us, &due_us)) {
			r = send_attempt(push, chunk, now_us, err);
		} else if (push_copies_are_hopeless(push, chunk, now_us)) {
			push_chunk_put_off(push, chunk);
		} else {
			push_chunk_wait(push, chunk, due_us);
		}
		if (r < 0) {
			/* Back to the pool, as everything that still waits in the list that was taken. */
			push_chunk_release(push, chunk);
			while ((chunk = push_chunks_take(&waiting)) != NULL)
				push_chunk_wait(push, chunk, 0);
			return r;
		}
	}
	return 0;
}

/* --- the sender --- */
void push_send_begin(struct push *push)
{
	push_chunks_init(&push->waiting);
	push_chunks_init(&push->sending);
	push->sending_count = push->waiting_count = 0;
	push->dropped_count = push->thin_count = push->acked_count = 0;
	push->is_state_changed = push->is_nodes_running = false;
	push->nodes_call = FETCH_CALL_INIT;
	push->life_us = clock_mono_us();
}

static void send_take_ready(struct push *push, int64_t now_us)
{
	pthread_mutex_lock(&push->shared.lock);
	struct push_chunks ready = push->shared.ready;
	push_chunks_init(&push->shared.ready);
	pthread_mutex_unlock(&push->shared.lock);
	struct push_chunk *chunk;
	while ((chunk = push_chunks_take(&ready)) != NULL) {
		/* With nothing under way the clock of giving up starts at the first chunk: reading may have taken any time. */
		if (push->sending_count + push->waiting_count == 0)
			push->life_us = now_us;
		chunk->node_at = chunk->try_count = chunk->try_here_count = chunk->conflict_count = 0;
		chunk->is_ask_due = false;
		push_chunk_wait(push, chunk, now_us);
	}
}

int push_send_step(struct push *push, int64_t now_us, struct err *err)
{
	send_take_ready(push, now_us);
	push_watch_step(push, now_us);
	struct push_chunks under_way = push->sending;
	push_chunks_init(&push->sending);
	push->sending_count = 0;
	struct push_chunk *chunk;
	int r = 0;
	while ((chunk = push_chunks_take(&under_way)) != NULL) {
		unsigned node_at;
		if (!chunk->is_done && push_watch_is_lost(push, chunk, now_us, &node_at)) {
			send_give_up(push, chunk, node_at, now_us);
		} else if (!chunk->is_done) {
			push_chunks_add(&push->sending, chunk);
			push->sending_count++;
		} else if (r < 0) {
			push_chunk_release(push, chunk);
		} else {
			r = send_returned(push, chunk, now_us, err);
			/* Where it failed it was put nowhere. */
			if (r < 0)
				push_chunk_release(push, chunk);
		}
	}
	if (r < 0)
		return r;
	push_nodes_step(push, now_us);
	push_buffers_follow(push);
	push->is_budget_spent = false;
	if (push->is_state_changed)
		return 0;
	return send_start_due(push, now_us, err);
}

int64_t push_send_wait_us(const struct push *push, int64_t now_us)
{
	int64_t wait_us = SEND_STEP_MAX_US;
	for (const struct push_chunk *chunk = push->waiting.head; chunk != NULL; chunk = chunk->next) {
		/* One that waits for a free place among the parallel calls is woken by the call that ends. */
		if (chunk->due_us > now_us)
			wait_us = min_i64(wait_us, chunk->due_us - now_us);
	}
	return wait_us;
}

void push_send_end(struct push *push)
{
	struct push_chunk *chunk;
	while ((chunk = push_chunks_take(&push->sending)) != NULL) {
		if (!chunk->is_done)
			fetch_cancel(push->fetch, &chunk->call);
		push_chunk_release(push, chunk);
	}
	while ((chunk = push_chunks_take(&push->waiting)) != NULL)
		push_chunk_release(push, chunk);
	push->sending_count = push->waiting_count = 0;
	if (push->is_nodes_running && !push->is_nodes_done)
		fetch_cancel(push->fetch, &push->nodes_call);
	push->is_nodes_running = false;
	buf_fini(&push->nodes_call.answer);
	/* Chunks that the readers had made ready and nobody took. */
	pthread_mutex_lock(&push->shared.lock);
	while ((chunk = push_chunks_take(&push->shared.ready)) != NULL)
		push_chunks_add(&push->shared.free, chunk);
	pthread_mutex_unlock(&push->shared.lock);
}
