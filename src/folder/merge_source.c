/* Which node the bytes of a chunk came from, where two may have it: the tables name both, and only who read them knows which one it was. */
#include "folder/merge_pull_impl.h"

#include <stdlib.h>
#include <string.h>

void pull_sources_end(struct pull *pull)
{
	free(pull->sources);
	pull->sources = NULL;
}

void pull_sources_begin(struct pull *pull)
{
	pull_sources_end(pull);
	pull->source_node_count = 1;
	if (pull->run->transfer.copies > 1)
		pull->sources = must_zalloc(pull->object.chunk_count, sizeof(*pull->sources));
}

/* 0: a node too many. What it gave is nobody's fault then, and the next merge looks again. */
static uint16_t place_of(struct pull *pull, const char *node_id)
{
	for (uint16_t i = 1; i < pull->source_node_count; i++)
		if (strcmp(pull->source_nodes[i], node_id) == 0)
			return i;
	if (pull->source_node_count == POOL_NODES_MAX)
		return 0;
	str_copy(str_from(node_id), pull->source_nodes[pull->source_node_count], STORE_NODE_ID_SIZE);
	return pull->source_node_count++;
}

void pull_source_note(struct pull *pull, const struct pull_call *place)
{
	if (pull->sources && place->kept_bytes == 0)
		pull->sources[place->chunk.chunk_index] = place_of(pull, place->chunk.actual_node);
}

bool pull_source_choose(const struct pull *pull, struct store_chunk *chunk)
{
	if (!pull->sources)
		return chunk->actual_node[0] != '\0';
	const char *source = pull->source_nodes[pull->sources[chunk->chunk_index]];
	if (source[0] && strcmp(source, chunk->copy_node) == 0)
		merge_copy_swap(chunk);
	return source[0] && strcmp(source, chunk->actual_node) == 0;
}
