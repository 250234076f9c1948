#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "core/curve.h"
#include "folder/peer.h"
#include "folder/push_impl.h"

#define PUSH_BACKOFF_BASE_US (100 * MSEC_US)
#define PUSH_BACKOFF_MAX_US  (5 * SEC_US)
/* A server may ask for more patience than that, but not for all of ours. */
#define PUSH_RETRY_AFTER_MAX_US (60 * SEC_US)
#define PUSH_TICK_US            (100 * MSEC_US)
#define PUSH_STALL_US           (30 * SEC_US)
#define PUSH_ANSWER_MAX         (4 * MIB)
#define PUSH_TIME_MAX_US        (253402300800 * SEC_US) /* the year 10000 */

bool push_is_interrupted(const struct push *push)
{
	return push->options->is_interrupted != NULL && atomic_load(push->options->is_interrupted);
}

int64_t push_backoff_us(struct push *push, unsigned try_count)
{
	/* Never quite nothing, so that a refusal that comes at once does not become a busy loop. */
	return 5 * MSEC_US + curve_backoff_us(try_count > 0 ? try_count - 1 : 0, PUSH_BACKOFF_BASE_US,
					      PUSH_BACKOFF_MAX_US, &push->rng);
}

int64_t push_retry_us(struct push *push, unsigned try_count, int64_t retry_after_us)
{
	/* What is asked is tried at least once more before patience ends. */
	int64_t most_us = min_i64(PUSH_RETRY_AFTER_MAX_US, push->give_up_us / 2);
	return min_i64(retry_after_us, most_us) + push_backoff_us(push, try_count);
}

/* Fills the shares: the nodes that took most, in the table's order. */
static void push_count_shares(struct push *push)
{
	struct push_progress *progress = &push->progress;
	progress->share_count = 0;
	for (size_t i = 0; i < push->node_count && progress->share_count < COUNT_OF(progress->shares); i++) {
		const struct push_node *node = &push->nodes[i];
		if (node->chunk_count == 0)
			continue;
		struct push_node_share *share = &progress->shares[progress->share_count++];
		snprintf(share->id, sizeof(share->id), "%s", node->id);
		share->bytes = node->bytes;
		share->chunk_count = node->chunk_count;
	}
}

void push_tick(struct push *push, const char *phase, bool is_now)
{
	int64_t now_us = clock_mono_us();
	if (push->options->progress == NULL || (!is_now && now_us - push->progress_told_us < PUSH_TICK_US))
		return;
	push->progress_told_us = now_us;
	push->progress.phase = phase;
	push->progress.elapsed_us = now_us - push->started_us;
	/* Files read again in a later pass count once. */
	uint64_t files_done = atomic_load(&push->shared.files_done);
	push->progress.files_done = files_done < push->progress.files_total ? files_done : push->progress.files_total;
	push->progress.parallel = push->pace.limit;
	push_count_shares(push);
	push->options->progress(push->options->owner, &push->progress);
}

/* --- JSON --- */
const char *push_json_text(const json_t *root, const char *name)
{
	const char *text = json_string_value(json_object_get(root, name));
	return text != NULL ? text : "";
}

uint64_t push_json_u64(const json_t *root, const char *name)
{
	json_int_t value = json_integer_value(json_object_get(root, name));
	return value > 0 ? (uint64_t)value : 0;
}

bool push_json_bool(const json_t *root, const char *name) { return json_is_true(json_object_get(root, name)); }

void push_take_time(struct push *push, int64_t server_time_us)
{
	/* What is no time is no clock's, and sums with it must not overflow. */
	if (server_time_us > 0 && server_time_us < PUSH_TIME_MAX_US)
		push->clock_offset_us = server_time_us - clock_wall_us();
}

int push_node_index(struct push *push, struct str id, uint16_t *ret_index, struct err *err)
{
	for (size_t i = 0; i < push->node_count; i++) {
		if (str_eq_c(id, push->nodes[i].id)) {
			*ret_index = (uint16_t)i;
			return 0;
		}
	}
	if (push->node_count == PUSH_NODES_MAX || id.size == 0)
		return err_set(err, ERR_PEER, "the scheduler names more than %d nodes, or one without a name",
			       PUSH_NODES_MAX);
	struct push_node *node = &push->nodes[push->node_count];
	memset(node, 0, sizeof(*node));
	if (!str_copy(id, node->id, sizeof(node->id)))
		return err_set(err, ERR_PEER, "the scheduler names a node whose id is too long");
	push->is_nodes_wanted = true;
	*ret_index = (uint16_t)push->node_count++;
	return 0;
}

/* An address goes into a URL: nothing but a host and a port may be in it. */
static bool push_addr_is_valid(const char *addr)
{
	const char *host = peer_host(addr);
	size_t size = strlen(host);
	return size > 0 && strlen(addr) < PUSH_ADDR_SIZE &&
	       strspn(host, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-_:[]%") == size;
}

/* One that came back, here or elsewhere, is tried at once. */
static void push_node_is_back(struct push_node *node)
{
	node->connect_failure_count = 0;
	node->down_until_us = 0;
}

int push_take_nodes(struct push *push, const json_t *root, struct err *err)
{
	const json_t *list = json_object_get(root, "nodes");
	size_t i;
	const json_t *item;
	json_array_foreach(list, i, item)
	{
		const char *addr = push_json_text(item, "addr");
		uint16_t index;
		int r = push_node_index(push, str_from(push_json_text(item, "id")), &index, err);
		if (r < 0)
			return r;
		struct push_node *node = &push->nodes[index];
		bool was_doubted = node->is_doubted;
		node->is_doubted = json_is_false(json_object_get(item, "takes_work")) ||
				   push_json_u64(item, "missed") > 0;
		if (was_doubted && !node->is_doubted)
			push_node_is_back(node);
		if (!push_addr_is_valid(addr) || strcmp(node->addr, addr) == 0)
			continue;
		snprintf(node->addr, sizeof(node->addr), "%s", addr);
		push_node_is_back(node);
	}
	push->is_nodes_wanted = false;
	return 0;
}

static bool push_state_from_name(const char *name, enum push_state *ret_state)
{
	static const struct {
		const char *name;
		enum push_state state;
	} rows[] = {
		{ "created", PUSH_UPLOADING }, { "distributing", PUSH_UPLOADING }, { "uploading", PUSH_UPLOADING },
		{ "merging", PUSH_MERGING },   { "completed", PUSH_COMPLETED },    { "failed", PUSH_FAILED },
	};
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		if (strcmp(rows[i].name, name) == 0) {
			*ret_state = rows[i].state;
			return true;
		}
	}
	return false;
}

/* Which transfer it is and how it was cut is settled by the first answer: paths and buffers are made for it. */
static int push_check_same(const struct push *push, const char *id, uint64_t chunk_bytes, struct err *err)
{
	if (id[0] != '\0' && !ulid_is_valid(id, strlen(id)))
		return err_set(err, ERR_PEER, "the scheduler's answer has no proper transfer id");
	if (push->transfer_id[0] != '\0' && (strcmp(id, push->transfer_id) != 0 || chunk_bytes != push->chunk_bytes))
		return err_set(err, ERR_PEER,
			       "the scheduler's answer is not about transfer %s with its chunks of %llu bytes",
			       push->transfer_id, (unsigned long long)push->chunk_bytes);
	return 0;
}

int push_take_transfer(struct push *push, const json_t *root, struct err *err)
{
	const char *id = push_json_text(root, "transfer_id"), *key = push_json_text(root, "transfer_key");
	uint64_t chunk_bytes = push_json_u64(root, "chunk_bytes");
	int r = push_check_same(push, id, chunk_bytes, err);
	if (r < 0)
		return r;
	if (!push_state_from_name(push_json_text(root, "state"), &push->state) && !push->options->is_dry_run)
		return err_set(err, ERR_PEER, "the scheduler's answer has no state of the transfer that is known here");
	if (key[0] != '\0' && !hex_decode(str_from(key), push->transfer_key, sizeof(push->transfer_key)))
		return err_set(err, ERR_PEER, "the scheduler's answer has no proper transfer key");
	snprintf(push->transfer_id, sizeof(push->transfer_id), "%s", id);
	snprintf(push->reason, sizeof(push->reason), "%s", push_json_text(root, "reason"));
	/* Encoded, as a path of bytes that are not UTF-8 cannot stand in JSON. */
	size_t final_size = 0;
	char final_path[sizeof(push->final_path)];
	if (percent_decode(str_from(push_json_text(root, "final_enc")), final_path, sizeof(final_path) - 1,
			   &final_size) &&
	    final_size > 0) {
		final_path[final_size] = '\0';
		memcpy(push->final_path, final_path, final_size + 1);
	}
	push->is_in_place = push_json_bool(root, "is_in_place");
	push->chunk_bytes = chunk_bytes;
	push->progress.merging_files = push_json_u64(root, "merging_files");
	push->progress.merging_bytes = push_json_u64(root, "merging_bytes");
	push->object_count = push_json_u64(root, "objects");
	push->chunk_count = push_json_u64(root, "chunks");
	/* Two pushes of one folder may be under way, and a file change: what the other one has told of it is not what this one has scanned. */
	const char *crc = push_json_text(root, "manifest_crc32c");
	char own_crc[9];
	snprintf(own_crc, sizeof(own_crc), "%08x", push->walk.crc32c);
	if (push->pass > 0 && push->state == PUSH_UPLOADING && crc[0] != '\0' && strcmp(crc, own_crc) != 0) {
		err_set(err, ERR_SOURCE_CHANGED, "the folder changed, and another push of it was quicker to say so");
		err_hint(err, "push again: the folder is scanned anew then");
		return -(int)ERR_SOURCE_CHANGED;
	}
	push->version = (int64_t)push_json_u64(root, "version");
	uint64_t copies = push_json_u64(root, "copies");
	push->copies = (unsigned)(copies < 1 ? 1 : min_size(copies, PUSH_CANDIDATES_MAX));
	push->missing_count = push_json_u64(root, "pending_chunks") + push_json_u64(root, "lost_chunks") +
			      push_json_u64(root, "digest_failed_chunks");
	return push_take_nodes(push, root, err);
}

/* --- calls --- */
static void push_ask_done(struct fetch *fetch, struct fetch_call *call)
{
	(void)fetch;
	*(bool *)call->owner = true;
}

static void push_ask_say(struct push *push, const struct push_ask *ask, bool is_thinking, bool is_notice)
{
	snprintf(push->waiting_text, sizeof(push->waiting_text), "%s: %s", ask->what,
		 is_thinking ? "the scheduler is there and works on it" : "no answer yet");
	push->progress.waiting_for = push->waiting_text;
	if (is_notice && push->options->notice != NULL)
		push->options->notice(push->options->owner, push->waiting_text);
}

static int push_ask_wait(struct push *push, const struct push_ask *ask, struct fetch_call *call, const bool *is_done,
			 struct err *err)
{
	int64_t start_us = clock_mono_us();
	bool is_told = false;
	struct push_alive alive;
	int r = 0;
	push_alive_begin(&alive, push, start_us);
	while (!*is_done && r == 0) {
		fetch_step(push->fetch, PUSH_TICK_US);
		if (*is_done)
			break;
		int64_t now_us = clock_mono_us(), silent_us = now_us - start_us;
		if (ask->stall_us > 0)
			silent_us = push_alive_step(&alive, push, call->bytes_sent, now_us);
		if (now_us - start_us > PUSH_SILENCE_US) {
			bool is_silent = silent_us > PUSH_SILENCE_US;
			push_ask_say(push, ask, alive.is_thinking && !is_silent, is_silent && !is_told);
			is_told |= is_silent;
		}
		push_tick(push, push->progress.phase, false);
		if (push_is_interrupted(push))
			r = err_set(err, ERR_WAITING, "interrupted while %s", ask->what);
		else if (ask->stall_us > 0 && silent_us > push->give_up_us)
			r = err_set(
				err, ERR_TIMEOUT,
				"nothing came from the scheduler for %lld s, nor does it answer whether it is there",
				(long long)(silent_us / SEC_US));
	}
	push_alive_end(&alive, push);
	return r;
}

static int push_ask_once(struct push *push, const struct push_ask *ask, struct fetch_call *call, struct err *err)
{
	bool is_done = false;
	int64_t start_us = clock_mono_us();
	*call = FETCH_CALL_INIT;
	call->answer.limit = PUSH_ANSWER_MAX;
	call->method = ask->method;
	call->url = ask->url;
	call->headers[0] = push->api_key_header;
	call->headers[1] = ask->header;
	call->body = ask->body;
	if (ask->body_fd >= 0) {
		call->body_fd = ask->body_fd;
		call->body_fd_offset = ask->body_offset;
		call->body_fd_size = ask->body_size;
	}
	/* Waiting for a silent scheduler must not take longer than the user's patience, unless it has reason to think for long. */
	call->stall_timeout_us = ask->stall_us > 0 ? ask->stall_us
						   : max_i64(SEC_US, min_i64(PUSH_STALL_US, push->give_up_us));
	call->done = push_ask_done;
	call->owner = &is_done;
	fetch_start(push->fetch, call);
	int r = push_ask_wait(push, ask, call, &is_done, err);
	if (r < 0) {
		fetch_cancel(push->fetch, call);
		return r;
	}
	if (call->err.code != ERR_NONE) {
		*err = call->err;
		return -(int)err->code;
	}
	if (call->status < 200 || call->status > 299)
		return err_set(err, ERR_PEER, "the scheduler answered with HTTP status %d", call->status);
	/* A body has to be sent and digested: that is no round trip. */
	int64_t took_us = clock_mono_us() - start_us;
	if (ask->body_fd < 0 && (push->round_trip_us == 0 || took_us < push->round_trip_us))
		push->round_trip_us = max_i64(took_us, 1);
	return 0;
}

/* Which failures of a control call may pass by themselves. The others are for people. */
static bool push_ask_may_repeat(enum err_code code)
{
	return err_retry(code) == ERR_RETRY_SAME && code != ERR_NO_SPACE && code != ERR_INCOMPLETE &&
	       code != ERR_WAITING;
}

int push_wait(struct push *push, int64_t wait_us, const char *what, struct err *err)
{
	int64_t until_us = clock_mono_us() + wait_us;
	for (int64_t now_us = clock_mono_us(); now_us < until_us; now_us = clock_mono_us()) {
		if (push_is_interrupted(push))
			return err_set(err, ERR_WAITING, "interrupted while %s", what);
		fetch_step(push->fetch, min_i64(until_us - now_us, PUSH_TICK_US));
		push_tick(push, push->progress.phase, false);
	}
	return 0;
}

int push_ask_body(struct push *push, const struct push_ask *ask, struct buf *ret_body, struct err *err)
{
	int64_t start_us = clock_mono_us();
	struct fetch_call call;
	*ret_body = BUF_INIT(0);
	for (unsigned try_count = 1;; try_count++) {
		int r = push_ask_once(push, ask, &call, err);
		if (r == 0)
			break;
		int64_t retry_after_us = call.retry_after_us;
		buf_fini(&call.answer);
		if (!push_ask_may_repeat(err->code))
			return err->code == ERR_WAITING ? r : err_wrap(err, "%s", ask->what);
		if (clock_mono_us() - start_us >= push->give_up_us) {
			/* Where it answered, its own hint is the better one. */
			if (err->hint[0] == '\0')
				err_hint(err,
					 "is the scheduler at %s running? the same push again continues where this "
					 "stopped",
					 push->options->url);
			return try_count > 1 ? err_wrap(err, "%s (tried %u times)", ask->what, try_count)
					     : err_wrap(err, "%s", ask->what);
		}
		snprintf(push->waiting_text, sizeof(push->waiting_text), "%s: %s", ask->what, err->text);
		push->progress.waiting_for = push->waiting_text;
		if (try_count == 1 && push->options->notice != NULL)
			push->options->notice(push->options->owner, push->waiting_text);
		r = push_wait(push, push_retry_us(push, try_count, retry_after_us), ask->what, err);
		if (r < 0)
			return r;
	}
	push->progress.waiting_for = NULL;
	*err = ERR_INIT; /* earlier attempts have left theirs */
	*ret_body = call.answer;
	return 0;
}

int push_ask(struct push *push, const struct push_ask *ask, json_t **ret_root, struct err *err)
{
	struct buf body;
	*ret_root = NULL;
	int r = push_ask_body(push, ask, &body, err);
	if (r < 0)
		return r;
	json_error_t fault;
	json_t *root = json_loadb(body.data != NULL ? body.data : "", body.size, 0, &fault);
	buf_fini(&body);
	if (!json_is_object(root)) {
		json_decref(root);
		return err_set(err, ERR_PEER, "%s: the scheduler's answer is not a JSON object: %s", ask->what,
			       fault.text);
	}
	push_take_time(push, (int64_t)push_json_u64(root, "server_time_us"));
	*ret_root = root;
	return 0;
}
