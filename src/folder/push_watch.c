/* Signs of life. A node that hangs keeps its calls until they time out, and a push has only so many of them: where a node is silent and the scheduler
 * doubts it too, what was sent to it goes to another one at once. Two witnesses, since a node that is only slow would get the same bytes again. */
#include "folder/push_impl.h"

#define SILENT_US (3 * SEC_US)

/* Since when nothing has come of the call: no byte of it moved, nor did its node answer another one. */
static int64_t silent_since_us(const struct push *push, const struct push_chunk *chunk)
{
	return max_i64(chunk->moved_us, push->nodes[chunk->sent_to].answered_us);
}

/* Bytes of a first attempt moving are a sign of life, so that big chunks over a slow link are not taken for a standstill. Those of
 * repeated attempts are not: a node may take the bytes again and again and never acknowledge them. */
static void watch_bytes(struct push *push, struct push_chunk *chunk, int64_t now_us)
{
	if (chunk->call.bytes_sent <= chunk->seen_bytes)
		return;
	chunk->seen_bytes = chunk->call.bytes_sent;
	chunk->moved_us = now_us;
	if (chunk->try_count == 1)
		push->life_us = now_us;
}

void push_watch_step(struct push *push, int64_t now_us)
{
	for (const struct push_chunk *chunk = push->sending.head; chunk != NULL; chunk = chunk->next) {
		if (chunk->phase == CHUNK_IS_SENDING && chunk->is_done && chunk->call.status != 0)
			push->nodes[chunk->sent_to].answered_us = now_us;
	}
	for (struct push_chunk *chunk = push->sending.head; chunk != NULL; chunk = chunk->next) {
		if (chunk->phase != CHUNK_IS_SENDING || chunk->is_done)
			continue;
		watch_bytes(push, chunk, now_us);
		int64_t since_us = silent_since_us(push, chunk);
		if (now_us - since_us < SILENT_US)
			continue;
		struct push_node *node = &push->nodes[chunk->sent_to];
		node->silent_since_us = node->silent_us == now_us ? min_i64(node->silent_since_us, since_us) : since_us;
		node->silent_us = now_us;
		push->is_nodes_wanted = true;
	}
}

static bool watch_is_well(const struct push_node *node, int64_t now_us)
{
	return node->addr[0] != '\0' && !node->is_doubted && node->silent_us != now_us && node->down_until_us <= now_us;
}

bool push_watch_is_lost(const struct push *push, const struct push_chunk *chunk, int64_t now_us, unsigned *ret_at)
{
	const struct push_node *node = &push->nodes[chunk->sent_to];
	/* What was said of it before it fell silent does not count. */
	if (chunk->phase != CHUNK_IS_SENDING || node->silent_us != now_us || !node->is_doubted ||
	    push->nodes_heard_us < node->silent_since_us + SILENT_US)
		return false;
	for (unsigned i = 1; i < chunk->node_count; i++) {
		*ret_at = (chunk->node_at + i) % chunk->node_count;
		if (watch_is_well(&push->nodes[chunk->nodes[*ret_at]], now_us))
			return true;
	}
	return false;
}
