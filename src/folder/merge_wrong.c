/* An object whose bytes do not make its files: which chunk is at fault, and what must come again. */
#include "folder/merge_pull_impl.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct bad_search {
	struct pull *pull;
	bool is_all;        /* every chunk is dropped, whatever its bytes */
	bool is_all_copies; /* wherever it is */
	unsigned bad_count;
	uint64_t bad_index;
	uint64_t seen_count;
	char bad_node[STORE_NODE_ID_SIZE];
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
	if (search->bad_count++ == 0) {
		search->bad_index = chunk->chunk_index;
		memcpy(search->bad_node, chunk->actual_node, sizeof(search->bad_node));
	}
	pull->rows[pull->row_count++] = *chunk;
	return 0;
}

/* A copy elsewhere may be right; but when the file is to be read again, it is as old as this one. */
static void drop_chunk(const struct bad_search *search, struct store_chunk *chunk)
{
	struct pull *pull = search->pull;

	if (chunk->actual_node[0])
		merge_node_drop(pull->run, pull->fetch, chunk);
	if (!search->is_all_copies || !chunk->copy_node[0])
		return;
	merge_copy_swap(chunk);
	merge_node_drop(pull->run, pull->fetch, chunk);
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
		for (size_t i = 0; i < pull->row_count && !merge_is_over(run); i++)
			drop_chunk(search, &pull->rows[i]);
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
	char why[STORE_REASON_SIZE];
	struct bad_search search = { .pull = pull, .is_all = pull->object.is_pack || pull->object.chunk_count == 1 };
	struct err cause = pull->err;

	if (drop_chunks(&search) < 0) {
		merge_fail(pull->run, &pull->err, true);
		return;
	}
	if (search.is_all)
		snprintf(why, sizeof(why), "%.400s; its bytes came from node %s", cause.text, search.bad_node);
	else if (search.bad_count > 0)
		snprintf(why, sizeof(why), "%.360s; node %s gave wrong bytes for chunk %" PRIu64, cause.text,
			 search.bad_node, search.bad_index);
	else
		snprintf(why, sizeof(why), "%.360s; every chunk is as it was sent, so the file is to be read again",
			 cause.text);
	if (!search.is_all && search.bad_count == 0) {
		search.is_all = search.is_all_copies = true;
		if (drop_chunks(&search) < 0) {
			merge_fail(pull->run, &pull->err, true);
			return;
		}
	}
	merge_reopen(pull->run, pull->object.file_id,
		     search.is_all_copies ? NULL : merge_copy_scope(pull->run, search.bad_node), CHUNK_PENDING, why);
}
