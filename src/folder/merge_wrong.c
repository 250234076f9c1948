/* An object whose bytes do not make its files: which chunk is at fault, and what must come again. */
#include "folder/merge_pull_impl.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"

struct bad_search {
	struct pull *pull;
	bool is_all;        /* every chunk is dropped, whatever its bytes */
	bool is_all_copies; /* wherever it is */
	uint64_t seen_count, bad_count;
	uint64_t lost_count; /* those of them that nobody else has; of copies only */
	const struct err *cause;
	char why[STORE_REASON_SIZE]; /* of the first */
};

static int on_suspect(void *owner, const struct store_chunk *chunk)
{
	struct bad_search *search = owner;
	struct pull *pull = search->pull;
	char hex[DIGEST_HEX_SIZE];
	struct err err = ERR_INIT;

	if (chunk->file_id != pull->object.file_id || merge_is_over(pull->run) || pull->row_count == PULL_ROWS_AHEAD)
		return 1;
	search->seen_count++;
	if (!search->is_all && (merge_target_digest(pull->target, pull_offset(pull, chunk->chunk_index),
						    chunk->size_bytes, hex, &err) < 0 ||
				strcmp(hex, chunk->digest) == 0))
		return 0;
	pull->rows[pull->row_count++] = *chunk;
	return 0;
}

/* When the file is to be read again, a copy elsewhere is as old as this one. */
static void drop_everywhere(struct pull *pull, struct store_chunk *chunk)
{
	if (chunk->actual_node[0])
		merge_node_drop(pull->run, pull->fetch, chunk);
	merge_copy_swap(chunk);
	if (chunk->copy_node[0])
		merge_node_drop(pull->run, pull->fetch, chunk);
}

static void write_why(struct bad_search *search, const struct store_chunk *chunk)
{
	if (search->is_all)
		snprintf(search->why, sizeof(search->why), "%.400s; its bytes came from node %s", search->cause->text,
			 chunk->actual_node);
	else
		snprintf(search->why, sizeof(search->why), "%.360s; node %s gave wrong bytes for chunk %" PRIu64,
			 search->cause->text, chunk->actual_node, chunk->chunk_index);
}

/* A copy elsewhere may be right, so what goes is the one that was read. Removed at its node first: told of it only then, a client that sends the chunk
 * again is not answered that it is here. */
static int drop_where_read(struct bad_search *search, struct store_chunk *chunk)
{
	struct pull *pull = search->pull;
	struct merge_run *run = pull->run;
	struct store *store = run->merge->store;
	const struct store_chunk row = *chunk;
	uint64_t lost_count = 0, kept_count = 0;
	int result = 0;

	if (!pull_source_choose(pull, chunk))
		return 0;
	if (search->bad_count++ == 0)
		write_why(search, chunk);
	merge_node_drop(run, pull->fetch, chunk);
	if (run->transfer.copies > 1)
		result = store->ops->chunks_lose(store, run->transfer.id, TRANSFER_MERGING, chunk->actual_node, &row, 1,
						 search->why, clock_wall_us(), &lost_count, &kept_count, &pull->err);
	search->lost_count += lost_count;
	return result;
}

/* Goes through the object's chunks and drops those at fault, a page at a time and outside of the store's reading. */
static int drop_chunks(struct bad_search *search)
{
	struct pull *pull = search->pull;
	struct merge_run *run = pull->run;
	struct store *store = run->merge->store;
	uint64_t after_file_id = pull->object.file_id - 1, after_index = (uint64_t)PULL_INDEX_MAX;

	for (uint64_t done = 0; done < pull->object.chunk_count && !merge_is_over(run);) {
		pull->row_count = 0;
		search->seen_count = 0;
		int result = store->ops->chunks(store, run->transfer.id, after_file_id, after_index, ~0u,
						PULL_ROWS_AHEAD, on_suspect, search, &pull->err);
		if (result < 0)
			return result;
		if (search->seen_count == 0)
			break;
		for (size_t i = 0; i < pull->row_count && !merge_is_over(run) && result == 0; i++)
			if (search->is_all_copies)
				drop_everywhere(pull, &pull->rows[i]);
			else
				result = drop_where_read(search, &pull->rows[i]);
		if (result < 0)
			return result;
		done += search->seen_count;
		after_file_id = pull->object.file_id;
		after_index = done - 1;
	}
	return 0;
}

/* The bytes do not make the file that the client described. Either a node gave wrong bytes for a chunk, or the client's digest is of other bytes
 * than it sent (the file changed): then all chunks are read again. In both cases the node must forget what it has, as it would answer the
 * same chunk with "already here". */
void pull_object_is_wrong(struct pull *pull)
{
	const struct err cause = pull->err;
	struct bad_search search = { .pull = pull,
				     .is_all = pull->object.is_pack || pull->object.chunk_count == 1,
				     .cause = &cause };
	int result = drop_chunks(&search);

	if (result == 0 && !search.is_all && search.bad_count == 0) {
		search.is_all = search.is_all_copies = true;
		snprintf(search.why, sizeof(search.why),
			 "%.360s; every chunk is as it was sent, so the file is to be read again", cause.text);
		result = drop_chunks(&search);
	}
	if (result < 0)
		merge_fail(pull->run, &pull->err, true);
	else if (pull->run->transfer.copies > 1 && !search.is_all_copies)
		merge_reopened(pull->run, search.lost_count, search.why);
	else
		merge_reopen(pull->run, pull->object.file_id, NULL, CHUNK_PENDING, search.why);
}
