#include "folder/merge_pull_impl.h"
#include "folder/peer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "sys/fs.h"

#define CONNECT_TIMEOUT_US (2 * SEC_US)
#define BACK_OFF_US        (100 * MSEC_US)
#define RETRY_AFTER_MAX_US (5 * SEC_US)
#define BUSY_WAIT_US       (20 * MSEC_US)
#define STEP_US            (100 * MSEC_US)
#define LOOK_SOONEST_US    (20 * MSEC_US) /* after the last look for chunks that have come */
#define LOOK_LATEST_US     (500 * MSEC_US)

/* --- the chunk rows --- */

static int on_row(void *owner, const struct store_chunk *chunk)
{
	struct pull *pull = owner;

	if (chunk->file_id != pull->object.file_id || pull->row_count == PULL_ROWS_AHEAD)
		return 1;
	pull->rows[pull->row_count++] = *chunk;
	return 0;
}

static int load_rows(struct pull *pull, struct err *err)
{
	struct merge_run *run = pull->run;
	struct store *store = run->merge->store;
	bool is_first = pull->rows_seen == 0;

	pull->row_next = pull->row_count = 0;
	if (run->ahead) {
		/* In this order: what comes in between is looked for once more. */
		pull->is_last_look = merge_ahead_is_wanted(run);
		pull->arrivals_seen = merge_ahead_arrivals(run);
		pull->looked_us = clock_mono_us();
	}
	uint64_t left = pull->object.chunk_count - pull->rows_seen;
	int result = store->ops->chunks(store, run->transfer.id,
					is_first ? pull->object.file_id - 1 : pull->object.file_id,
					is_first ? (uint64_t)PULL_INDEX_MAX : pull->rows_seen - 1, ~0u,
					left < PULL_ROWS_AHEAD ? (size_t)left : PULL_ROWS_AHEAD, on_row, pull, err);
	return result < 0 ? err_wrap(err, "while reading the chunks of object %" PRIu64, pull->object.file_id) : 0;
}

/* While sending goes on, what is not there yet is looked for again. */
static enum outcome not_here_yet(struct pull *pull)
{
	if (pull->is_last_look)
		return OUTCOME_LEFT;
	pull->row_next = pull->row_count = 0;
	pull->is_starved = true;
	return OUTCOME_GOING;
}

static bool is_starving(struct pull *pull)
{
	if (!pull->is_starved)
		return false;
	int64_t waited_us = clock_mono_us() - pull->looked_us;
	pull->is_starved = !merge_ahead_is_wanted(pull->run) && waited_us < LOOK_LATEST_US &&
			   (waited_us < LOOK_SOONEST_US || merge_ahead_arrivals(pull->run) == pull->arrivals_seen);
	return pull->is_starved;
}

/* Puts the next chunk into its place. The rows must cover the object without a gap: that is half of the proof that the file is whole. */
static enum outcome place_next(struct pull *pull)
{
	char why[STORE_REASON_SIZE];

	if (pull->row_next == pull->row_count && load_rows(pull, &pull->err) < 0)
		return OUTCOME_FAILED;
	const struct store_chunk *row = &pull->rows[pull->row_next];
	uint64_t chunk_bytes = pull->run->transfer.chunk_bytes, offset = pull_offset(pull, pull->rows_seen);
	uint64_t left = pull->object.size_bytes > offset ? pull->object.size_bytes - offset : 0;
	if (pull->row_next == pull->row_count || row->chunk_index != pull->rows_seen || left == 0 ||
	    row->size_bytes != (left < chunk_bytes ? left : chunk_bytes)) {
		err_set(&pull->err, ERR_INTERNAL,
			"the chunks of object %" PRIu64 " do not add up to its %" PRIu64 " bytes (at %" PRIu64 ")",
			pull->object.file_id, pull->object.size_bytes, pull->rows_seen);
		return OUTCOME_FAILED;
	}
	if (row->state != CHUNK_STORED || !row->actual_node[0]) {
		if (merge_is_ahead(pull->run))
			return not_here_yet(pull);
		snprintf(why, sizeof(why), "chunk %" PRIu64 " of object %" PRIu64 " is %s", row->chunk_index,
			 row->file_id, chunk_state_name(row->state));
		merge_reopen_note(pull->run, why);
		return OUTCOME_AGAIN;
	}
	struct pull_call *place = &pull->calls[row->chunk_index % pull->window_count];
	place->chunk = *row;
	place->state = CALL_WAITING;
	place->seen_bytes = place->kept_bytes = 0;
	place->try_count = 0;
	place->not_before_us = 0;
	pull->row_next++;
	pull->rows_seen++;
	return OUTCOME_GOING;
}

/* --- one chunk --- */

static bool on_piece(struct fetch_call *call, struct str piece)
{
	struct pull_call *place = call->owner;
	struct pull *pull = place->pull;

	if (merge_is_over(pull->run) || place->is_local_failure)
		return false;
	if (piece.size > place->chunk.size_bytes - place->seen_bytes) {
		/* Longer than the plan says. */
		place->seen_bytes = UINT64_MAX;
		return false;
	}
	uint64_t known = place->kept_bytes > place->seen_bytes ? place->kept_bytes - place->seen_bytes : 0;
	size_t skip = known < piece.size ? (size_t)known : piece.size;
	place->seen_bytes += piece.size;
	piece.data += skip;
	piece.size -= skip;
	if (piece.size == 0)
		return true;
	uint64_t offset = pull_offset(pull, place->chunk.chunk_index) + place->kept_bytes;
	if (merge_target_feed(pull->target, offset, piece, &pull->err) < 0) {
		place->is_local_failure = true;
		return false;
	}
	place->kept_bytes += piece.size;
	return true;
}

static void on_done(struct fetch *fetch UNUSED, struct fetch_call *call)
{
	struct pull_call *place = call->owner;

	place->is_done = true;
}

static void start_call(struct pull *pull, struct pull_call *place, const char *addr)
{
	snprintf(place->url, sizeof(place->url), "%s%s/internal/v1/chunk/%s/%" PRIu64 "/%" PRIu64, peer_scheme(addr),
		 addr, pull->run->transfer.id, place->chunk.file_id, place->chunk.chunk_index);
	buf_fini(&place->call.answer);
	place->call = FETCH_CALL_INIT;
	place->call.url = place->url;
	place->call.headers[0] = internal_key_header(pull->run->merge->options.internal_key);
	place->call.connect_timeout_us = CONNECT_TIMEOUT_US;
	place->call.sink = on_piece;
	place->call.done = on_done;
	place->call.owner = place;
	place->pull = pull;
	place->is_done = place->is_local_failure = false;
	place->seen_bytes = 0;
	place->state = CALL_RUNNING;
	pull->running_count++;
	fetch_start(pull->fetch, &place->call);
}

/* A node that was waited for in vain: all it had is lost, and this attempt can come to nothing any more. */
static void node_is_lost(struct merge_run *run, const char *node_id)
{
	char why[STORE_REASON_SIZE];

	if (merge_node_is_declared_lost(run, node_id))
		snprintf(why, sizeof(why), "an operator declared node %s lost: its chunks must be sent again", node_id);
	else
		snprintf(why, sizeof(why),
			 "node %s has been out of reach for more than %" PRId64 " s: its chunks must be sent again",
			 node_id, run->merge->options.node_lost_after_us / SEC_US);
	atomic_store(&run->is_given_up, true);
	merge_reopen(run, 0, node_id, CHUNK_LOST, why);
}

/* A node on this machine: its file is read where it lies. False: the ordinary call is to follow, for what is missing. */
static bool copy_local(struct pull *pull, struct pull_call *place, const char *addr, enum outcome *ret_outcome)
{
	const struct store_chunk *chunk = &place->chunk;
	uint64_t done = 0;

	if (place->kept_bytes > 0 || place->try_count > 0)
		return false;
	AUTO(fs_close) int fd = merge_local_open(pull->run, pull->fetch, addr, chunk);
	if (fd < 0)
		return false;
	int result = merge_local_copy(pull->target, fd, pull_offset(pull, chunk->chunk_index), chunk->size_bytes, &done,
				      &pull->err);
	place->kept_bytes = done;
	if (result == 0 && done < chunk->size_bytes)
		return false;
	merge_node_give(pull->run, chunk->actual_node);
	merge_node_saw(pull->run, chunk->actual_node, true);
	place->state = CALL_COMPLETE;
	*ret_outcome = result < 0 ? OUTCOME_FAILED : OUTCOME_GOING;
	return true;
}

static enum outcome try_start(struct pull *pull, struct pull_call *place)
{
	enum outcome outcome;
	char addr[STORE_ADDR_SIZE];
	int64_t now_us = clock_mono_us();

	if (now_us < place->not_before_us)
		return OUTCOME_GOING;
	merge_copy_choose(pull->run, &place->chunk);
	switch (merge_node_take(pull->run, place->chunk.actual_node, addr)) {
	case MERGE_NODE_READY:
		pull_source_note(pull, place);
		if (copy_local(pull, place, addr, &outcome))
			return outcome;
		start_call(pull, place, addr);
		return OUTCOME_GOING;
	case MERGE_NODE_BUSY:
		place->not_before_us = now_us + BUSY_WAIT_US;
		return OUTCOME_GOING;
	case MERGE_NODE_OUT:
		if (merge_is_ahead(pull->run))
			return OUTCOME_LEFT;
		place->not_before_us = now_us + MERGE_WAIT_US;
		return OUTCOME_GOING;
	case MERGE_NODE_LOST:
		break;
	}
	if (merge_copy_turn(pull->run, &place->chunk, "a node that has a chunk of it is lost"))
		return OUTCOME_GOING;
	if (merge_is_ahead(pull->run))
		return OUTCOME_LEFT;
	node_is_lost(pull->run, place->chunk.actual_node);
	return OUTCOME_AGAIN;
}

/* --- after a call --- */

/* The node answered, but not with the chunk: a few more tries, as this may pass; not without end. The other objects go on. */
static enum outcome try_again(struct pull *pull, struct pull_call *place)
{
	const struct fetch_call *call = &place->call;
	struct store_chunk *chunk = &place->chunk;
	char why[STORE_REASON_SIZE], status[64];

	if (++place->try_count < pull->run->merge->options.pull_try_limit) {
		place->not_before_us = clock_mono_us() + max_i64(min_i64(call->retry_after_us, RETRY_AFTER_MAX_US),
								 BACK_OFF_US << place->try_count);
		return OUTCOME_GOING;
	}
	snprintf(status, sizeof(status), "the answer's status is %d", call->status);
	snprintf(why, sizeof(why), "node %s did not give chunk %" PRIu64 " of object %" PRIu64 " in %u tries: %.300s",
		 chunk->actual_node, chunk->chunk_index, chunk->file_id, place->try_count,
		 call->err.code == ERR_NONE ? status : call->err.text);
	if (merge_copy_turn(pull->run, chunk, why)) {
		place->try_count = 0;
		return OUTCOME_GOING;
	}
	merge_unpulled(pull->run);
	/* It may still have the chunk, and then say so when it is sent again, or find that it cannot read it and refuse: another node takes it. */
	merge_reopen(pull->run, chunk->file_id, merge_copy_scope(pull->run, chunk->actual_node), CHUNK_LOST, why);
	return OUTCOME_AGAIN;
}

static enum outcome chunk_is_gone(struct pull *pull, struct store_chunk *chunk)
{
	char why[STORE_REASON_SIZE];

	snprintf(why, sizeof(why), "node %s has chunk %" PRIu64 " of object %" PRIu64 " no more", chunk->actual_node,
		 chunk->chunk_index, chunk->file_id);
	if (merge_copy_turn(pull->run, chunk, why))
		return OUTCOME_GOING;
	merge_reopen(pull->run, chunk->file_id, merge_copy_scope(pull->run, chunk->actual_node), CHUNK_LOST, why);
	return OUTCOME_AGAIN;
}

/* A whole answer of another length than the chunk's: the node's file is not what was stored there, and asking again gives the same. */
static enum outcome chunk_is_wrong(struct pull *pull, const struct pull_call *place)
{
	char why[STORE_REASON_SIZE];
	const struct store_chunk *chunk = &place->chunk;

	if (place->seen_bytes == UINT64_MAX)
		snprintf(why, sizeof(why),
			 "node %s has more than %" PRIu64 " bytes for chunk %" PRIu64 " of object %" PRIu64,
			 chunk->actual_node, chunk->size_bytes, chunk->chunk_index, chunk->file_id);
	else
		snprintf(why, sizeof(why),
			 "node %s has %" PRIu64 " of %" PRIu64 " bytes for chunk %" PRIu64 " of object %" PRIu64,
			 chunk->actual_node, place->seen_bytes, chunk->size_bytes, chunk->chunk_index, chunk->file_id);
	merge_node_drop(pull->run, pull->fetch, chunk);
	merge_reopen(pull->run, chunk->file_id, merge_copy_scope(pull->run, chunk->actual_node), CHUNK_PENDING, why);
	return OUTCOME_AGAIN;
}

static enum outcome look_at(struct pull *pull, struct pull_call *place)
{
	const struct fetch_call *call = &place->call;
	const char *node_id = place->chunk.actual_node;

	place->is_done = false;
	place->state = CALL_WAITING;
	pull->running_count--;
	merge_node_give(pull->run, node_id);
	if (place->is_local_failure)
		return OUTCOME_FAILED;
	if (merge_is_over(pull->run))
		return OUTCOME_OVER;
	if (call->status == 200 && place->seen_bytes == place->chunk.size_bytes) {
		place->state = CALL_COMPLETE;
		merge_node_saw(pull->run, node_id, true);
		return OUTCOME_GOING;
	}
	if (merge_is_ahead(pull->run))
		return OUTCOME_LEFT;
	/* A node that nobody can reach is waited for, and only time ends that; what happened on the way down does not count as a try. */
	if (call->status == 0 &&
	    (call->err.code == ERR_CONNECT || call->err.code == ERR_TLS || !merge_node_is_up(pull->run, node_id))) {
		merge_node_saw(pull->run, node_id, false);
		merge_copy_swap(&place->chunk);
		place->not_before_us = clock_mono_us() + MERGE_WAIT_US;
		return OUTCOME_GOING;
	}
	if (call->status != 0)
		merge_node_saw(pull->run, node_id, true);
	if (call->err.code == ERR_CHUNK_GONE)
		return chunk_is_gone(pull, &place->chunk);
	if (call->status == 200 && (call->err.code == ERR_NONE || place->seen_bytes == UINT64_MAX))
		return chunk_is_wrong(pull, place);
	return try_again(pull, place);
}

/* --- one object --- */

/* Hashes what lies behind the frontier in one piece, and frees the places that it has passed. */
static int advance(struct pull *pull)
{
	uint64_t frontier;

	for (;;) {
		frontier = merge_target_frontier(pull->target);
		uint64_t index = frontier / pull->run->transfer.chunk_bytes;
		const struct pull_call *place = &pull->calls[index % pull->window_count];
		if (place->state == CALL_NONE || place->chunk.chunk_index != index)
			break;
		uint64_t end = pull_offset(pull, index) + place->kept_bytes;
		if (end <= frontier)
			break;
		int result = merge_target_catch_up(pull->target, end, &pull->err);
		if (result < 0)
			return result;
	}
	for (unsigned i = 0; i < pull->window_count; i++) {
		struct pull_call *place = &pull->calls[i];
		if (place->state == CALL_COMPLETE &&
		    pull_offset(pull, place->chunk.chunk_index) + place->chunk.size_bytes <= frontier)
			place->state = CALL_NONE;
	}
	return 0;
}

static enum outcome fill_window(struct pull *pull)
{
	enum outcome outcome = OUTCOME_GOING;

	while (pull->rows_seen < pull->object.chunk_count && !is_starving(pull) &&
	       pull->calls[pull->rows_seen % pull->window_count].state == CALL_NONE) {
		outcome = place_next(pull);
		if (outcome != OUTCOME_GOING)
			return outcome;
	}
	/* The oldest first: what is read on this machine is there at once, and hashed on the way when it is the next. */
	for (unsigned i = 0; i < pull->window_count && outcome == OUTCOME_GOING; i++) {
		struct pull_call *place = &pull->calls[(pull->rows_seen + i) % pull->window_count];
		if (place->state == CALL_WAITING)
			outcome = try_start(pull, place);
	}
	return outcome;
}

/* There is nothing to do but to wait for receipts; a burst of them is one look at the rows. */
static void wait_starved(struct pull *pull)
{
	int64_t waited_us = clock_mono_us() - pull->looked_us;

	if (waited_us < LOOK_SOONEST_US)
		merge_ahead_wait(pull->run, MERGE_ANY_ARRIVALS, LOOK_SOONEST_US - waited_us);
	else
		merge_ahead_wait(pull->run, pull->arrivals_seen, LOOK_LATEST_US - waited_us);
}

static void wait_a_little(struct pull *pull)
{
	int64_t now_us = clock_mono_us(), wait_us = MERGE_WAIT_US;
	bool has_waiting = false;

	for (unsigned i = 0; i < pull->window_count; i++)
		if (pull->calls[i].state == CALL_WAITING) {
			has_waiting = true;
			wait_us = min_i64(wait_us, pull->calls[i].not_before_us - now_us);
		}
	if (pull->is_starved)
		wait_us = min_i64(wait_us, LOOK_SOONEST_US);
	if (pull->is_starved && !has_waiting && pull->running_count == 0) {
		wait_starved(pull);
		return;
	}
	/* What was read on this machine is there already. */
	if (wait_us <= 0 || (!has_waiting && pull->running_count == 0))
		return;
	if (pull->running_count > 0)
		fetch_step(pull->fetch, min_i64(wait_us, STEP_US));
	else
		merge_pause(pull->run->merge, wait_us);
}

/* A call to a node that hangs may run for long after an operator has said that nothing will come of it. */
static enum outcome check_lost(struct pull *pull)
{
	uint64_t lost_count = pool_lost_count(pull->run->merge->pool);

	if (lost_count == pull->lost_count)
		return OUTCOME_GOING;
	pull->lost_count = lost_count;
	for (unsigned i = 0; i < pull->window_count; i++) {
		const struct pull_call *place = &pull->calls[i];

		if (place->state != CALL_RUNNING || !merge_node_is_declared_lost(pull->run, place->chunk.actual_node))
			continue;
		if (merge_is_ahead(pull->run))
			return OUTCOME_LEFT;
		node_is_lost(pull->run, place->chunk.actual_node);
		return OUTCOME_AGAIN;
	}
	return OUTCOME_GOING;
}

static enum outcome step_object(struct pull *pull)
{
	enum outcome outcome = check_lost(pull);

	if (outcome == OUTCOME_GOING)
		outcome = fill_window(pull);
	if (outcome != OUTCOME_GOING)
		return outcome;
	wait_a_little(pull);
	for (unsigned i = 0; i < pull->window_count && outcome == OUTCOME_GOING; i++)
		if (pull->calls[i].is_done)
			outcome = look_at(pull, &pull->calls[i]);
	if (outcome != OUTCOME_GOING)
		return outcome;
	if (advance(pull) < 0)
		return OUTCOME_FAILED;
	return merge_target_frontier(pull->target) == pull->object.size_bytes && pull->running_count == 0
		       ? OUTCOME_DONE
		       : OUTCOME_GOING;
}

/* After an early end: calls that still run are dropped and their connections given back. */
static void clear_calls(struct pull *pull)
{
	for (unsigned i = 0; i < pull->window_count; i++) {
		struct pull_call *place = &pull->calls[i];
		if (place->state == CALL_RUNNING) {
			if (!place->is_done)
				fetch_cancel(pull->fetch, &place->call);
			merge_node_give(pull->run, place->chunk.actual_node);
		}
		buf_fini(&place->call.answer);
		place->state = CALL_NONE;
		place->is_done = false;
	}
	pull->running_count = 0;
}

static enum outcome pull_object(struct pull *pull)
{
	enum outcome outcome = OUTCOME_GOING;

	pull->window_count = pull->object.is_pack ? 1 : pull->run->window_count;
	pull->row_next = pull->row_count = 0;
	pull->rows_seen = 0;
	pull->is_starved = false;
	pull->err = ERR_INIT;
	pull_sources_begin(pull);
	if (merge_target_begin(pull->target, &pull->object, &pull->err) < 0)
		return OUTCOME_FAILED;
	while (outcome == OUTCOME_GOING) {
		if (merge_is_ahead(pull->run))
			merge_ahead_check(pull->run);
		outcome = merge_is_over(pull->run) ? OUTCOME_OVER : step_object(pull);
	}
	clear_calls(pull);
	if (outcome == OUTCOME_DONE && merge_target_end(pull->target, &pull->err) < 0)
		outcome = OUTCOME_FAILED;
	return outcome;
}

/* Nothing that goes wrong is anybody's concern yet. Only our own disk's trouble ends it all. */
static void pull_ahead(struct pull *pull)
{
	struct merge_run *run = pull->run;
	enum outcome outcome;
	unsigned try_count = 0;

	do {
		outcome = pull_object(pull);
		merge_target_abort(pull->target);
		if (outcome == OUTCOME_FAILED && pull->err.code != ERR_INTERNAL)
			merge_ahead_give_up(run, pull->err.text);
	} while (merge_ahead_pulled(run, &pull->object, outcome == OUTCOME_DONE, ++try_count));
}

void merge_pull_objects(struct merge_run *run)
{
	struct pull *pull = must_zalloc(1, sizeof(*pull));

	pull->run = run;
	if (internal_fetch_new(run->merge->options.internal_key, &pull->fetch, &pull->err) < 0) {
		merge_fail(run, &pull->err, true);
		free(pull);
		return;
	}
	pull->target = merge_target_new(run);
	while (!merge_is_over(run) && merge_next_object(run, &pull->object)) {
		if (merge_is_ahead(run)) {
			pull_ahead(pull);
			continue;
		}
		enum outcome outcome = pull_object(pull);
		if (outcome == OUTCOME_FAILED && pull->err.code == ERR_INTEGRITY)
			pull_object_is_wrong(pull);
		else if (outcome == OUTCOME_FAILED)
			merge_fail(run, &pull->err, pull->err.code != ERR_INTERNAL);
		merge_target_abort(pull->target);
	}
	pull_sources_end(pull);
	merge_target_free(&pull->target);
	fetch_free(&pull->fetch);
	free(pull);
}
