/* One chunk's line in the plan, asked for again: a fresh ticket, its state, its candidates. */
#include <stdio.h>
#include <string.h>

#include "folder/push_impl.h"

/* As an index: "after the last chunk of that file". */
#define LAST_INDEX ((unsigned long long)INT64_MAX)

void push_again_ask(struct push *push, struct push_chunk *chunk)
{
	chunk->is_ask_due = false;
	unsigned long long after_file = chunk->chunk_index > 0 ? chunk->file_id : chunk->file_id - 1;
	unsigned long long after_chunk = chunk->chunk_index > 0 ? chunk->chunk_index - 1 : LAST_INDEX;
	snprintf(chunk->url, sizeof(chunk->url), "%s/api/v1/transfers/%s/plan?after_file=%llu&after_chunk=%llu&limit=1",
		 push->options->url, push->transfer_id, after_file, after_file == 0 ? 0 : after_chunk);
	buf_fini(&chunk->call.answer);
	chunk->call = FETCH_CALL_INIT;
	chunk->call.url = chunk->url;
	chunk->call.headers[0] = push->api_key_header;
	push_chunk_start(push, chunk, CHUNK_IS_ASKING);
}

struct again_answer {
	struct push *push;
	struct push_chunk *chunk;
	bool is_found, is_stored, is_copy;
	char digest[DIGEST_HEX_SIZE];
};

static int again_line(void *owner, const struct push_plan_line *line, struct err *err)
{
	struct again_answer *answer = owner;
	struct push_chunk *chunk = answer->chunk;
	if (line->file_id != chunk->file_id)
		return err_set(err, ERR_PEER, "the scheduler answered about another chunk than it was asked");
	if (line->is_object) {
		if (!str_copy(line->ticket, chunk->ticket, sizeof(chunk->ticket)))
			return err_set(err, ERR_PEER, "the scheduler's plan has a ticket with a NUL");
		return 0;
	}
	if (line->chunk_index != chunk->chunk_index || line->chunk_bytes != chunk->size_bytes)
		return err_set(err, ERR_PEER, "the scheduler answered about another chunk than it was asked");
	answer->is_found = true;
	answer->is_stored = str_eq_c(line->state, "stored") || str_eq_c(line->state, "merged");
	answer->is_copy = str_eq_c(line->state, "copy");
	if ((answer->is_stored || answer->is_copy) && !str_copy(line->digest, answer->digest, sizeof(answer->digest)))
		return err_set(err, ERR_PEER, "the scheduler's plan has a stored chunk without a digest");
	chunk->node_count = 0;
	for (unsigned i = 0; i < line->node_count; i++) {
		int r = push_node_index(answer->push, line->nodes[i], &chunk->nodes[chunk->node_count++], err);
		if (r < 0)
			return r;
	}
	return 0;
}

int push_again_asked(struct push *push, struct push_chunk *chunk, int64_t now_us, struct err *err)
{
	if (chunk->call.err.code != ERR_NONE) {
		push->last_err = chunk->call.err;
		if (err_retry(chunk->call.err.code) != ERR_RETRY_SAME) {
			*err = chunk->call.err;
			return err_wrap(err, "asking the scheduler about a chunk");
		}
		/* As in an attempt: the chunk is tried again with the ticket it has, and asked about again if that is refused. */
		push_chunk_wait(push, chunk,
				now_us + push_retry_us(push, chunk->try_count, chunk->call.retry_after_us));
		return 0;
	}
	struct again_answer answer = { .push = push, .chunk = chunk };
	bool has_more;
	int64_t server_time_us = 0;
	int r = push_plan_parse(buf_str(&chunk->call.answer), again_line, &answer, &has_more, &server_time_us, err);
	if (r < 0)
		return r;
	if (!answer.is_found)
		return err_set(err, ERR_PEER, "the scheduler does not know chunk %llu/%llu any more",
			       (unsigned long long)chunk->file_id, (unsigned long long)chunk->chunk_index);
	push_take_time(push, server_time_us);
	bool is_same = strcmp(answer.digest, chunk->digest) == 0;
	if (answer.is_stored && is_same) {
		/* An earlier attempt got through and only its answer was lost. */
		push->life_us = now_us;
		push->acked_count++;
		push->progress.chunks_done++;
		push->progress.bytes_done += chunk->size_bytes;
		push_chunk_release(push, chunk);
		return 0;
	}
	if (answer.is_stored || (answer.is_copy && !is_same))
		return err_set(err, ERR_SOURCE_CHANGED,
			       "chunk %llu/%llu is stored with other content than the folder has now",
			       (unsigned long long)chunk->file_id, (unsigned long long)chunk->chunk_index);
	chunk->has_copy = answer.is_copy;
	chunk->copies_left = answer.is_copy ? 1 : push->copies;
	if (chunk->conflict_count > 0 && chunk->conflict_count >= chunk->node_count && chunk->has_copy) {
		push_chunk_put_off(push, chunk);
		return 0;
	}
	if (chunk->conflict_count > 0 && chunk->conflict_count >= chunk->node_count)
		return err_set(err, ERR_SOURCE_CHANGED,
			       "every node holds other content for chunk %llu/%llu than the folder has now",
			       (unsigned long long)chunk->file_id, (unsigned long long)chunk->chunk_index);
	/* A node that holds other content of this chunk from before is no place for it: the candidates after it are. */
	chunk->node_at = chunk->node_count > 0 ? chunk->conflict_count % chunk->node_count : 0;
	chunk->try_here_count = 0;
	push_chunk_wait(push, chunk, now_us);
	return 0;
}
