/* Second copies: are they all there, and may a transfer do with fewer? */
#include "folder/sched_impl.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"

/* A node that is started again, or a scheduler that does not know its nodes yet, must not cost a copy. Shorter than a client waits. */
#define COPIES_PATIENCE_US (10 * SEC_US)
#define COPIES_PAGE        2000u

struct takers {
	size_t count;                /* nodes that take work */
	char id[STORE_NODE_ID_SIZE]; /* the last of them */
	int64_t since_mono_us;       /* the last change of state of those that take none */
};

static void find_takers(struct sched *sched, struct takers *takers)
{
	struct pool_node *nodes = must_zalloc(POOL_NODES_MAX, sizeof(*nodes));
	size_t count = min_size(pool_list(sched->pool, nodes, POOL_NODES_MAX), POOL_NODES_MAX);

	*takers = (struct takers){ .since_mono_us = sched->started_mono_us };
	for (size_t i = 0; i < count; i++) {
		if (!nodes[i].takes_work) {
			takers->since_mono_us = max_i64(takers->since_mono_us, nodes[i].state_since_mono_us);
			continue;
		}
		takers->count++;
		MUST(str_copy(str_from(nodes[i].id), takers->id, sizeof(takers->id)));
	}
	free(nodes);
}

/* --- with one node left: is there a chunk that it has not? --- */

struct thin_walk {
	const char *taker_id;
	uint64_t file_id, chunk_index;
	size_t count;
	bool is_found;
};

static int thin_each(void *owner, const struct store_chunk *chunk)
{
	struct thin_walk *walk = owner;

	walk->count++;
	walk->file_id = chunk->file_id;
	walk->chunk_index = chunk->chunk_index;
	walk->is_found = chunk->copy_node[0] == '\0' && strcmp(chunk->actual_node, walk->taker_id) != 0;
	return walk->is_found;
}

static int can_take_more(struct sched_call *c, const struct store_transfer *transfer, const char *taker_id,
			 bool *ret_can)
{
	struct store *store = c->sched->store;
	struct thin_walk walk = { .taker_id = taker_id };

	do {
		walk.count = 0;
		int result = store->ops->chunks(store, transfer->id, walk.file_id, walk.chunk_index, 1u << CHUNK_STORED,
						COPIES_PAGE, thin_each, &walk, &c->err);

		if (result < 0)
			return err_wrap(&c->err, "looking for chunks without a second copy");
	} while (!walk.is_found && walk.count == COPIES_PAGE);
	*ret_can = walk.is_found;
	return 0;
}

/* --- complete --- */

static int waive(struct sched_call *c, struct store_transfer *transfer)
{
	struct store *store = c->sched->store;
	int result = store->ops->copies_set(store, transfer->id, transfer->copies, true, "no other node takes work",
					    clock_wall_us(), &c->err);

	if (result < 0)
		return err_wrap(&c->err, "doing with fewer copies of transfer %s", transfer->id);
	log_say(LOG_WARN,
		"transfer %s: %" PRIu64 " of %" PRIu64 " chunks have %u copies, and no other node takes work: it is "
		"merged with fewer",
		transfer->id, transfer->copied_chunk_count, transfer->chunk_count, transfer->copies);
	return store->ops->transfer_get(store, transfer->id, transfer, &c->err);
}

int sched_copies_check(struct sched_call *c, struct store_transfer *transfer)
{
	struct takers takers;
	bool can_take = true;
	int64_t idle_us = clock_wall_us() - transfer->updated_wall_us;
	int result = 0;

	if (transfer->copies < 2 || transfer->copied_chunk_count == transfer->chunk_count || transfer->is_copies_waived)
		return 0;
	find_takers(c->sched, &takers);
	if (takers.count == 1)
		result = can_take_more(c, transfer, takers.id, &can_take);
	if (result < 0)
		return result;
	can_take = takers.count > 1 || (takers.count == 1 && can_take);
	if (!can_take && min_i64(idle_us, clock_mono_us() - takers.since_mono_us) >= COPIES_PATIENCE_US)
		return waive(c, transfer);
	err_set(&c->err, ERR_INCOMPLETE,
		"%" PRIu64 " of %" PRIu64 " chunks are on one node only, and %u copies are wanted%s",
		transfer->chunk_count - transfer->copied_chunk_count, transfer->chunk_count, transfer->copies,
		can_take ? "" : "; no other node takes work");
	err_hint(&c->err, "ask for the plan again and send the chunks that it calls 'copy'");
	return -ERR_INCOMPLETE;
}

/* --- another wish --- */

int sched_copies_ask(struct sched_call *c, struct store_transfer *transfer, unsigned copies)
{
	struct store *store = c->sched->store;
	int result;

	if (transfer->state != TRANSFER_UPLOADING || transfer->copies == copies)
		return 0;
	result = store->ops->copies_set(store, transfer->id, copies, false, "", clock_wall_us(), &c->err);
	if (result == -ERR_STATE) {
		/* It has just gone on to merging, and has what it needs. */
		c->err = ERR_INIT;
		result = 0;
	}
	if (result == 0)
		result = store->ops->transfer_get(store, transfer->id, transfer, &c->err);
	return result < 0 ? err_wrap(&c->err, "asking for %u copies of each chunk", copies) : 0;
}
