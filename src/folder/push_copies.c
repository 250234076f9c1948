#include "folder/push_impl.h"

/* A node that is started again takes less; a merge need not wait longer for a copy that nobody may ever miss. */
#define COPIES_PATIENCE_US (10 * SEC_US)

bool push_copies_next(struct push_chunk *chunk)
{
	chunk->has_copy = true;
	if (chunk->copies_left <= 1)
		return false;
	chunk->copies_left--;
	for (unsigned i = chunk->node_at; i + 1 < chunk->node_count; i++)
		chunk->nodes[i] = chunk->nodes[i + 1];
	chunk->node_count--;
	/* Those before it in the list have refused the first copy a moment ago, but they may be the only ones left. */
	if (chunk->node_at >= chunk->node_count)
		chunk->node_at = 0;
	chunk->try_count = chunk->try_here_count = chunk->conflict_count = 0;
	return true;
}

bool push_copies_are_hopeless(const struct push *push, const struct push_chunk *chunk, int64_t now_us)
{
	if (!chunk->has_copy)
		return false;
	for (unsigned i = 0; i < chunk->node_count; i++) {
		int64_t since_us = push->nodes[chunk->nodes[i]].failing_since_us;

		if (since_us == 0 || now_us - since_us < COPIES_PATIENCE_US)
			return false;
	}
	return true;
}
