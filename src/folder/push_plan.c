#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "folder/push_impl.h"

#define PUSH_PLAN_ANSWER_MAX (8 * MIB)
#define PUSH_PLAN_STALL_US   (15 * SEC_US)

/* --- the page's text --- */
static bool push_plan_u64(struct str *line, uint64_t *ret)
{
	struct str word;
	return str_cut(line, ' ', &word) && str_to_u64(word, ret);
}

static bool push_plan_object_line(struct str line, struct push_plan_line *ret)
{
	struct str pack;
	bool is_good = push_plan_u64(&line, &ret->file_id) && str_cut(&line, ' ', &pack) &&
		       (str_eq_c(pack, "0") || str_eq_c(pack, "1")) && push_plan_u64(&line, &ret->first_seq) &&
		       push_plan_u64(&line, &ret->last_seq) && push_plan_u64(&line, &ret->object_bytes) &&
		       push_plan_u64(&line, &ret->chunk_count) && str_cut(&line, ' ', &ret->ticket) && line.size == 0;
	if (!is_good)
		return false;
	ret->is_pack = str_eq_c(pack, "1");
	return ret->file_id > 0 && ret->first_seq <= ret->last_seq && ret->object_bytes > 0 && ret->chunk_count > 0 &&
	       ret->ticket.size > 0 && ret->ticket.size < TICKET_TEXT_SIZE;
}

static bool push_plan_chunk_line(struct str line, struct push_plan_line *ret)
{
	bool is_good = push_plan_u64(&line, &ret->file_id) && push_plan_u64(&line, &ret->chunk_index) &&
		       push_plan_u64(&line, &ret->chunk_bytes) && str_cut(&line, ' ', &ret->state) &&
		       str_cut(&line, ' ', &ret->digest);
	struct str node;
	while (is_good && str_cut(&line, ' ', &node)) {
		if (node.size == 0)
			continue;
		if (ret->node_count == PUSH_CANDIDATES_MAX)
			return false;
		ret->nodes[ret->node_count++] = node;
	}
	return is_good && ret->file_id > 0 && ret->chunk_bytes > 0 && ret->state.size > 0 && ret->digest.size > 0;
}

static bool push_plan_end_line(struct str line, bool *ret_more, int64_t *ret_server_time_us)
{
	uint64_t more, now_us;
	if (!push_plan_u64(&line, &more) || more > 1 || !push_plan_u64(&line, &now_us) || now_us > INT64_MAX ||
	    line.size > 0)
		return false;
	*ret_more = more == 1;
	*ret_server_time_us = (int64_t)now_us;
	return true;
}

int push_plan_parse(struct str page, int (*on_line)(void *owner, const struct push_plan_line *line, struct err *err),
		    void *owner, bool *ret_more, int64_t *ret_server_time_us, struct err *err)
{
	struct str line;
	unsigned line_count = 0;
	while (str_cut(&page, '\n', &line)) {
		line_count++;
		struct push_plan_line fields = { 0 };
		struct str rest = { line.size >= 2 ? line.data + 2 : NULL, line.size >= 2 ? line.size - 2 : 0 };
		char kind = line.size >= 2 && line.data[1] == ' ' ? line.data[0] : '?';
		if (kind == 'N' && push_plan_end_line(rest, ret_more, ret_server_time_us)) {
			if (page.size > 0)
				break;
			return 0;
		}
		fields.is_object = kind == 'O';
		bool is_good = kind == 'O' ? push_plan_object_line(rest, &fields)
					   : kind == 'C' && push_plan_chunk_line(rest, &fields);
		if (!is_good)
			break;
		int r = on_line(owner, &fields, err);
		if (r < 0)
			return r;
	}
	return err_set(err, ERR_PEER, "the scheduler's plan cannot be understood at or after line %u of a page",
		       line_count);
}

/* --- the planner --- */
/* Finds the object's lines in the manifest. Objects come in its order, but for those of revisions, which stand in for entries that were gone by. */
static int push_plan_place(struct push *push, struct push_object *object, struct err *err)
{
	struct push_lines *lines = &push->plan_lines;
	object->gap_seq = push->plan_next_seq;
	if (object->first_seq >= push->plan_next_seq) {
		push->plan_next_seq = object->last_seq + 1;
	} else {
		lines = &push->back_lines;
		object->gap_seq = object->first_seq;
		if (lines->seq > object->first_seq) {
			push_lines_fini(lines);
			push_lines_init(lines, push->manifest_fd);
		}
		int r = push_lines_skip(lines, object->first_seq, err);
		if (r < 0)
			return r;
	}
	object->gap_offset = push_lines_place(lines);
	return push_lines_skip(lines, object->last_seq + 1, err);
}

static int push_plan_take_object(struct push *push, const struct push_plan_line *line, struct err *err)
{
	struct push_object *current = push->plan_object;
	if (current != NULL && current->file_id == line->file_id) {
		/* Goes on from the page before; chunks read from now on use the fresher ticket. */
		pthread_mutex_lock(&push->shared.lock);
		bool is_copied = str_copy(line->ticket, current->ticket, sizeof(current->ticket));
		pthread_mutex_unlock(&push->shared.lock);
		return is_copied ? 0 : err_set(err, ERR_PEER, "the scheduler's plan has a ticket with a NUL");
	}
	uint64_t want_count = line->object_bytes / push->chunk_bytes + (line->object_bytes % push->chunk_bytes != 0);
	bool is_good = current == NULL && line->file_id > push->plan_after_file &&
		       push->plan_object_count < push->object_count && line->chunk_count == want_count &&
		       line->object_bytes <= push->walk.total_bytes - push->plan_bytes &&
		       line->last_seq < push->walk.entry_count &&
		       (line->is_pack ? want_count == 1 : line->first_seq == line->last_seq);
	if (!is_good)
		return err_set(err, ERR_PEER, "the scheduler's plan does not fit the manifest at object %llu",
			       (unsigned long long)line->file_id);
	struct push_object *object = must_zalloc(1, sizeof(*object));
	object->tail = &object->head;
	object->file_id = line->file_id;
	object->is_pack = line->is_pack;
	object->size_bytes = line->object_bytes;
	object->chunk_count = line->chunk_count;
	object->first_seq = line->first_seq;
	object->last_seq = line->last_seq;
	int r = str_copy(line->ticket, object->ticket, sizeof(object->ticket))
			? push_plan_place(push, object, err)
			: err_set(err, ERR_PEER, "the scheduler's plan has a ticket with a NUL");
	if (r < 0) {
		free(object);
		return r;
	}
	push->plan_object_count++;
	push->plan_bytes += object->size_bytes;
	push->plan_object = object;
	push_read_object(push, object);
	return 0;
}

static int push_plan_take_chunk(struct push *push, const struct push_plan_line *line, struct err *err)
{
	struct push_object *object = push->plan_object;
	uint64_t left_bytes = object != NULL ? object->size_bytes - object->given_count * push->chunk_bytes : 0;
	if (object == NULL || object->file_id != line->file_id || line->chunk_index != object->given_count ||
	    line->chunk_bytes != (left_bytes < push->chunk_bytes ? left_bytes : push->chunk_bytes))
		return err_set(err, ERR_PEER, "the scheduler's plan does not fit the manifest at chunk %llu/%llu",
			       (unsigned long long)line->file_id, (unsigned long long)line->chunk_index);
	struct push_planned *planned = must_zalloc(1, sizeof(*planned));
	planned->chunk_index = line->chunk_index;
	planned->size_bytes = line->chunk_bytes;
	planned->is_stored = str_eq_c(line->state, "stored") || str_eq_c(line->state, "merged");
	planned->has_copy = str_eq_c(line->state, "copy");
	planned->copies_left = planned->has_copy ? 1 : push->copies;
	planned->is_suspect = push->merge_return_count > 0 &&
			      (str_eq_c(line->state, "pending") || str_eq_c(line->state, "digest_failed"));
	int r = 0;
	if ((planned->is_stored || planned->has_copy) &&
	    !(digest_hex_is_valid(push->options->digest, line->digest) &&
	      str_copy(line->digest, planned->digest, sizeof(planned->digest))))
		r = err_set(err, ERR_PEER, "the scheduler's plan has a stored chunk without a digest");
	for (unsigned i = 0; r == 0 && i < line->node_count; i++)
		r = push_node_index(push, line->nodes[i], &planned->nodes[planned->node_count++], err);
	if (r < 0) {
		free(planned);
		return r;
	}
	if (planned->is_stored) {
		push->progress.chunks_done++;
		push->progress.bytes_done += planned->size_bytes;
		if (push->pass == 1)
			push->progress.chunks_skipped++;
	}
	push->plan_after_file = line->file_id;
	push->plan_after_chunk = line->chunk_index;
	object->given_count++;
	bool is_last = object->given_count == object->chunk_count;
	push_read_planned(push, object, planned);
	/* The readers free an object once its last chunk has been given: it may not be touched from here on. */
	if (is_last)
		push->plan_object = NULL;
	return 0;
}

static int push_plan_line(void *owner, const struct push_plan_line *line, struct err *err)
{
	struct push *push = owner;
	return line->is_object ? push_plan_take_object(push, line, err) : push_plan_take_chunk(push, line, err);
}

static void push_plan_called(struct fetch *fetch, struct fetch_call *call)
{
	(void)fetch;
	struct push *push = call->owner;
	push->is_plan_done = true;
}

static void push_plan_ask(struct push *push)
{
	snprintf(push->plan_url, sizeof(push->plan_url),
		 "%s/api/v1/transfers/%s/plan?after_file=%llu&after_chunk=%llu&limit=%d", push->options->url,
		 push->transfer_id, (unsigned long long)push->plan_after_file,
		 (unsigned long long)push->plan_after_chunk, PUSH_PLAN_PAGE);
	buf_fini(&push->plan_call.answer);
	push->plan_call = FETCH_CALL_INIT;
	push->plan_call.answer.limit = PUSH_PLAN_ANSWER_MAX;
	push->plan_call.url = push->plan_url;
	push->plan_call.stall_timeout_us = PUSH_PLAN_STALL_US;
	push->plan_call.headers[0] = push->api_key_header;
	push->plan_call.done = push_plan_called;
	push->plan_call.owner = push;
	push->is_plan_running = true;
	push->is_plan_done = false;
	fetch_start(push->fetch, &push->plan_call);
}

/* The entries after the last object have no bytes, but empty files among them have digests. */
static void push_plan_finish(struct push *push)
{
	push->is_plan_finished = true;
	struct push_object *tail = must_zalloc(1, sizeof(*tail));
	tail->tail = &tail->head;
	tail->gap_seq = push->plan_next_seq;
	tail->gap_offset = push_lines_place(&push->plan_lines);
	tail->first_seq = push->walk.entry_count;
	tail->last_seq = push->walk.entry_count;
	push_read_object(push, tail);
}

static int push_plan_answered(struct push *push, int64_t now_us, struct err *err)
{
	push->is_plan_running = false;
	struct fetch_call *call = &push->plan_call;
	if (call->err.code != ERR_NONE) {
		if (err_retry(call->err.code) != ERR_RETRY_SAME) {
			*err = call->err;
			return err_wrap(err, "asking for the plan");
		}
		push->last_err = call->err;
		push->plan_due_us = now_us + push_retry_us(push, ++push->plan_try_count, call->retry_after_us);
		return 0;
	}
	push->plan_try_count = 0;
	push->life_us = now_us;
	bool has_more = false;
	int64_t server_time_us = 0;
	uint64_t file_id = push->plan_after_file, chunk_index = push->plan_after_chunk;
	int r = push_plan_parse(buf_str(&call->answer), push_plan_line, push, &has_more, &server_time_us, err);
	if (r < 0)
		return r;
	push_take_time(push, server_time_us);
	if (has_more && file_id == push->plan_after_file && chunk_index == push->plan_after_chunk)
		return err_set(err, ERR_PEER,
			       "the scheduler's plan has a page without chunks, and says that there are more");
	if (!has_more && push->plan_object != NULL)
		return err_set(err, ERR_PEER, "the scheduler's plan ends within object %llu",
			       (unsigned long long)push->plan_object->file_id);
	if (!has_more && push->plan_bytes != push->walk.total_bytes)
		return err_set(err, ERR_PEER, "the scheduler's plan is of %llu bytes, the folder has %llu",
			       (unsigned long long)push->plan_bytes, (unsigned long long)push->walk.total_bytes);
	if (!has_more)
		push_plan_finish(push);
	return 0;
}

void push_plan_begin(struct push *push)
{
	push->plan_call = FETCH_CALL_INIT;
	push_lines_init(&push->plan_lines, push->manifest_fd);
	push_lines_init(&push->back_lines, push->manifest_fd);
	push->plan_object_count = push->plan_bytes = 0;
	push->plan_after_file = push->plan_after_chunk = push->plan_next_seq = 0;
	push->plan_object = NULL;
	push->is_plan_running = push->is_plan_done = push->is_plan_finished = false;
	push->plan_due_us = 0;
	push->plan_try_count = 0;
}

int push_plan_step(struct push *push, int64_t now_us, struct err *err)
{
	if (push->is_plan_running && push->is_plan_done)
		return push_plan_answered(push, now_us, err);
	if (push->is_plan_running || push->is_plan_finished || now_us < push->plan_due_us)
		return 0;
	pthread_mutex_lock(&push->shared.lock);
	bool is_low = push->shared.planned_count < PUSH_PLAN_LOW;
	pthread_mutex_unlock(&push->shared.lock);
	if (is_low)
		push_plan_ask(push);
	return 0;
}

void push_plan_end(struct push *push)
{
	if (push->is_plan_running && !push->is_plan_done)
		fetch_cancel(push->fetch, &push->plan_call);
	push->is_plan_running = false;
	push->plan_object = NULL;
	buf_fini(&push->plan_call.answer);
	push_lines_fini(&push->plan_lines);
	push_lines_fini(&push->back_lines);
}
