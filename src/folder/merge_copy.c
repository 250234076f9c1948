/* Chunks that two nodes have: a merge reads the one that it can get. Which one that is, is nobody's business but the merge's: the store learns of it
 * only when a copy turns out to be lost or wrong. */
#include "folder/merge_impl.h"

#include <string.h>

#include "base/log.h"

static bool is_of_use(struct merge_run *run, const char *node_id)
{
	return merge_node_is_up(run, node_id) && !merge_node_is_declared_lost(run, node_id);
}

void merge_copy_swap(struct store_chunk *chunk)
{
	char node_id[STORE_NODE_ID_SIZE];

	if (!chunk->copy_node[0])
		return;
	memcpy(node_id, chunk->actual_node, sizeof(node_id));
	memcpy(chunk->actual_node, chunk->copy_node, sizeof(chunk->actual_node));
	memcpy(chunk->copy_node, node_id, sizeof(chunk->copy_node));
}

void merge_copy_choose(struct merge_run *run, struct store_chunk *chunk)
{
	if (chunk->copy_node[0] && !is_of_use(run, chunk->actual_node) && is_of_use(run, chunk->copy_node))
		merge_copy_swap(chunk);
}

bool merge_copy_turn(struct merge_run *run, struct store_chunk *chunk, const char *why)
{
	if (!chunk->copy_node[0])
		return false;
	log_say(LOG_WARN, "transfer %s: %s; it is read from node %s", run->transfer.id, why, chunk->copy_node);
	merge_copy_swap(chunk);
	chunk->copy_node[0] = '\0';
	return true;
}

const char *merge_copy_scope(const struct merge_run *run, const char *node_id)
{
	return run->transfer.copies > 1 && node_id[0] ? node_id : NULL;
}
