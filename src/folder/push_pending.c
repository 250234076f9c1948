/* Chunks that a node has stored durably while the scheduler was away (202 stored_pending): the node will tell it. Until then the plan goes on calling
 * them pending, and the client waits instead of sending them again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "folder/push_impl.h"

#define PENDING_CAPACITY_MIN 256
#define PENDING_BROKEN_MAX   2 /* how often in a row patience may end before the push does */

void push_pending_add(struct push *push, const struct push_chunk *chunk)
{
	struct push_pending *pending = &push->pending;
	/* One that is not remembered is sent again in the next pass, and the node has it. */
	if (pending->count == PUSH_PENDING_MAX)
		return;
	if (pending->count == pending->capacity) {
		size_t capacity = pending->capacity > 0 ? 2 * pending->capacity : PENDING_CAPACITY_MIN;
		struct push_pending_chunk *chunks = realloc(pending->chunks, capacity * sizeof(*chunks));
		if (chunks == NULL)
			return;
		pending->chunks = chunks;
		pending->capacity = capacity;
	}
	pending->chunks[pending->count++] = (struct push_pending_chunk){ .file_id = chunk->file_id,
									 .chunk_index = chunk->chunk_index };
}

void push_pending_fini(struct push *push)
{
	free(push->pending.chunks);
	push->pending = (struct push_pending){ 0 };
}

static int pending_compare(const void *a, const void *b)
{
	const struct push_pending_chunk *left = a, *right = b;
	if (left->file_id != right->file_id)
		return left->file_id < right->file_id ? -1 : 1;
	return (left->chunk_index > right->chunk_index) - (left->chunk_index < right->chunk_index);
}

/* --- asking what the scheduler knows by now --- */
struct pending_round {
	struct push_pending *pending;
	size_t at, kept_count; /* chunks[0..kept) stay, [at..count) were not looked at yet */
	uint64_t stored_count;
};

static int pending_line(void *owner, const struct push_plan_line *line, struct err *err)
{
	(void)err;
	struct pending_round *round = owner;
	struct push_pending *pending = round->pending;
	const struct push_pending_chunk here = { .file_id = line->file_id, .chunk_index = line->chunk_index };
	if (line->is_object)
		return 0;
	/* What the plan passes over is not in it any more. */
	while (round->at < pending->count && pending_compare(&pending->chunks[round->at], &here) < 0)
		round->at++;
	/* Where two nodes store each chunk it is here twice; `copy` is the word for one of them. */
	bool is_one_known = str_eq_c(line->state, "copy");
	while (round->at < pending->count && pending_compare(&pending->chunks[round->at], &here) == 0) {
		struct push_pending_chunk chunk = pending->chunks[round->at++];
		/* Lost, or failed on its digest: the node's word does not stand any more, and the next pass sends it. */
		if (str_eq_c(line->state, "pending") || (str_eq_c(line->state, "copy") && !is_one_known))
			pending->chunks[round->kept_count++] = chunk;
		else if (is_one_known || str_eq_c(line->state, "stored") || str_eq_c(line->state, "merged"))
			round->stored_count++;
		is_one_known = false;
	}
	return 0;
}

static int pending_page(struct push *push, struct pending_round *round, struct err *err)
{
	const struct push_pending_chunk *first = &round->pending->chunks[round->at];
	uint64_t after_file = first->chunk_index > 0 ? first->file_id : first->file_id - 1;
	uint64_t after_chunk = first->chunk_index > 0 ? first->chunk_index - 1 : INT64_MAX;
	char url[PUSH_CALL_URL_SIZE];
	snprintf(url, sizeof(url), "%s/api/v1/transfers/%s/plan?after_file=%llu&after_chunk=%llu&limit=%d",
		 push->options->url, push->transfer_id, (unsigned long long)after_file,
		 (unsigned long long)(after_file > 0 ? after_chunk : 0), PUSH_PLAN_PAGE);
	struct push_ask ask = {
		.method = "GET", .what = "asking which stored chunks the scheduler knows of", .url = url, .body_fd = -1
	};
	struct buf page;
	int r = push_ask_body(push, &ask, &page, err);
	if (r < 0)
		return r;
	size_t at = round->at;
	bool has_more = false;
	int64_t server_time_us;
	r = push_plan_parse(buf_str(&page), pending_line, round, &has_more, &server_time_us, err);
	buf_fini(&page);
	if (r < 0)
		return r;
	if (has_more && at == round->at)
		return err_set(err, ERR_PEER, "the scheduler's plan has a page that says nothing of what was asked");
	if (!has_more)
		round->at = round->pending->count;
	return 0;
}

/* Takes out of the set what the scheduler has heard of, page by page, as far as there is news. */
static int pending_ask(struct push *push, uint64_t *ret_stored_count, struct err *err)
{
	struct push_pending *pending = &push->pending;
	struct pending_round round = { .pending = pending };
	int r = 0;
	while (r == 0 && round.at < pending->count && round.kept_count == 0)
		r = pending_page(push, &round, err);
	memmove(pending->chunks + round.kept_count, pending->chunks + round.at,
		(pending->count - round.at) * sizeof(*pending->chunks));
	pending->count -= round.at - round.kept_count;
	*ret_stored_count = round.stored_count;
	return r;
}

/* --- waiting --- */
static const char *pending_noun(size_t count) { return count == 1 ? "chunk" : "chunks"; }

/* The plan of a transfer that was cancelled goes on calling its chunks pending. */
static int pending_check_state(struct push *push, struct err *err)
{
	int r = push_ask_transfer(push, "GET", "", "asking for the transfer's state", err);
	if (r == 0 && push->state != PUSH_UPLOADING) {
		push->pending.count = 0;
		push->is_state_changed = true;
	}
	return r;
}

static void pending_say(struct push *push, bool is_notice)
{
	size_t count = push->pending.count;
	snprintf(push->waiting_text, sizeof(push->waiting_text), "waiting for the scheduler to learn of %zu stored %s",
		 count, pending_noun(count));
	push->progress.waiting_for = push->waiting_text;
	if (is_notice && push->options->notice != NULL)
		push->options->notice(push->options->owner, push->waiting_text);
}

static int pending_give_up(struct push *push, struct err *err)
{
	struct push_pending *pending = &push->pending;
	size_t count = pending->count;
	long long patience_s = (long long)(push->give_up_us / SEC_US);
	pending->count = 0;
	if (++pending->broken_count >= PENDING_BROKEN_MAX) {
		err_set(err, ERR_INCOMPLETE,
			"the nodes store chunks, but for %lld s the scheduler heard of none of %zu %s", patience_s,
			count, pending_noun(count));
		err_hint(err, "can the nodes reach the scheduler? then the same heng push again continues where this "
			      "stopped");
		return -(int)ERR_INCOMPLETE;
	}
	char line[200];
	snprintf(line, sizeof(line), "the scheduler did not hear of %zu stored %s for %lld s: sent again", count,
		 pending_noun(count), patience_s);
	if (push->options->notice != NULL)
		push->options->notice(push->options->owner, line);
	return 0;
}

int push_pending_await(struct push *push, struct err *err)
{
	struct push_pending *pending = &push->pending;
	if (pending->count == 0)
		return 0;
	qsort(pending->chunks, pending->count, sizeof(*pending->chunks), pending_compare);
	int64_t life_us = clock_mono_us();
	int r = 0;
	for (unsigned try_count = 1; r == 0 && pending->count > 0; try_count++) {
		uint64_t stored_count = 0;
		r = pending_ask(push, &stored_count, err);
		int64_t now_us = clock_mono_us();
		push->acked_count += stored_count;
		if (stored_count > 0) {
			/* A scheduler that is learning is asked soon again. */
			try_count = 1;
			pending->broken_count = 0;
			life_us = now_us;
		} else if (r == 0 && pending->count > 0)
			r = pending_check_state(push, err);
		if (r < 0 || pending->count == 0)
			break;
		if (now_us - life_us >= push->give_up_us)
			r = pending_give_up(push, err);
		else {
			pending_say(push, try_count == 1 && stored_count == 0);
			r = push_wait(push, push_backoff_us(push, try_count),
				      "waiting for the scheduler to learn of stored chunks", err);
		}
	}
	push->progress.waiting_for = NULL;
	return r;
}
