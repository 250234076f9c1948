#include "folder/sched_impl.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "folder/space.h"
#include "sys/fs.h"

/* So many open transfers are counted; a scheduler that holds more is far beyond its other limits. */
#define OPEN_TRANSFERS_MAX 1000000u

struct space_need {
	const char *except_id;
	uint64_t node_bytes;                /* still to be sent to nodes */
	uint64_t final_bytes, final_inodes; /* still to be written to the final store */
};

static uint64_t all_copies(uint64_t bytes, unsigned copies)
{
	uint64_t sum = bytes;

	for (unsigned i = 1; i < copies; i++)
		sum = space_add(sum, bytes);
	return sum;
}

static int need_each(void *owner, const struct store_transfer *transfer)
{
	struct space_need *need = owner;

	if (need->except_id && strcmp(transfer->id, need->except_id) == 0)
		return 0;
	uint64_t wanted_bytes = all_copies(transfer->total_bytes, transfer->copies);
	uint64_t held_bytes = space_add(transfer->stored_bytes, transfer->copied_bytes);

	if (transfer->state != TRANSFER_MERGING && held_bytes < wanted_bytes)
		need->node_bytes = space_add(need->node_bytes, wanted_bytes - held_bytes);
	need->final_bytes = space_add(need->final_bytes, transfer->total_bytes);
	need->final_inodes = space_add(need->final_inodes, transfer->entry_count);
	return 0;
}

static int space_need(struct sched *sched, struct space_need *need, struct err *err)
{
	unsigned open_mask = 1u << TRANSFER_CREATED | 1u << TRANSFER_DISTRIBUTING | 1u << TRANSFER_UPLOADING |
			     1u << TRANSFER_MERGING;
	int result = sched->store->ops->transfer_list(sched->store, NULL, open_mask, OPEN_TRANSFERS_MAX, need_each,
						      need, err);

	return result < 0 ? err_wrap(err, "counting what open transfers still need") : 0;
}

static void nodes_room(struct sched *sched, const char *final_fs, struct space_room *ret_room)
{
	struct pool_node *nodes = must_zalloc(POOL_NODES_MAX, sizeof(*nodes));
	size_t count = min_size(pool_list(sched->pool, nodes, POOL_NODES_MAX), POOL_NODES_MAX);

	space_room(nodes, count, final_fs, ret_room);
	free(nodes);
}

static int no_space(struct err *err, const char *where, uint64_t wanted, uint64_t promised, uint64_t kept,
		    uint64_t available)
{
	char wanted_text[32], promised_text[32], kept_text[32], available_text[32];

	err_set(err, ERR_NO_SPACE,
		"no room %s: the folder needs %s, other open transfers %s, kept free %s, there are %s", where,
		size_display(wanted, wanted_text, sizeof(wanted_text)),
		size_display(promised, promised_text, sizeof(promised_text)),
		size_display(kept, kept_text, sizeof(kept_text)),
		size_display(available, available_text, sizeof(available_text)));
	err_hint(err, "free space there, or let open transfers end, then push again");
	return -ERR_NO_SPACE;
}

static bool fits(uint64_t wanted, uint64_t promised, uint64_t kept, uint64_t available)
{
	return space_add(space_add(wanted, promised), kept) <= available;
}

static int check_final(struct sched *sched, const struct plan_facts *facts, const struct space_need *need,
		       const struct fs_space *space, struct err *err)
{
	if (!fits(facts->total_bytes, need->final_bytes, sched->final_free_floor_bytes, space->free_bytes))
		return no_space(err, "in the final store", facts->total_bytes, need->final_bytes,
				sched->final_free_floor_bytes, space->free_bytes);
	/* File systems that make inodes as they go (btrfs) report none at all. */
	if (space->inodes_total == 0 || fits(facts->entry_count, need->final_inodes, 0, space->inodes_free))
		return 0;
	err_set(err, ERR_NO_SPACE,
		"no room in the final store: the folder has %" PRIu64 " entries, other open transfers %" PRIu64
		", and %" PRIu64 " inodes are free",
		facts->entry_count, need->final_inodes, space->inodes_free);
	err_hint(err, "free inodes there, or let open transfers end, then push again");
	return -ERR_NO_SPACE;
}

/* The nodes first, as if the final store needed nothing; then that; then both together where they share a file system, as the chunks stay until the
 * folder is put together. */
static int check_all(struct sched *sched, const struct plan_facts *facts, uint64_t wanted_bytes,
		     const struct space_need *need, const struct fs_space *final_space, const struct space_room *room,
		     struct err *err)
{
	uint64_t twice = space_add(wanted_bytes, facts->total_bytes), shared = 0;
	int result;

	if (room->is_final_shared)
		shared = room->final_bytes < final_space->free_bytes ? room->final_bytes : final_space->free_bytes;
	if (!fits(wanted_bytes, need->node_bytes, 0, space_add(room->bytes, shared)))
		return no_space(err, "on the nodes", wanted_bytes, need->node_bytes, 0, space_add(room->bytes, shared));
	result = check_final(sched, facts, need, final_space, err);
	if (result < 0 || !room->is_final_shared)
		return result;
	if (fits(twice, space_add(need->node_bytes, need->final_bytes), sched->final_free_floor_bytes,
		 space_add(room->bytes, shared)))
		return 0;
	return no_space(err, "for the folder twice, in chunks on the nodes and in the final store, which share a disk",
			twice, space_add(need->node_bytes, need->final_bytes), sched->final_free_floor_bytes,
			space_add(room->bytes, shared));
}

int sched_space_check(struct sched *sched, const struct plan_facts *facts, unsigned copies,
		      const struct sched_claim *own, const char *except_id, struct err *err)
{
	struct space_need need = { .except_id = except_id };
	struct fs_space final_space = { 0 };
	char final_fs[FS_NAME_SIZE];
	struct space_room room;
	int result = space_need(sched, &need, err);

	if (result < 0)
		return result;
	result = fs_space(sched->final_fd, &final_space, err);
	if (result < 0)
		return err_wrap(err, "asking for the space of the final store %s", sched->final_dir);
	fs_name(&final_space, final_fs);
	pthread_mutex_lock(&sched->claim_lock);
	for (size_t i = 0; i < SCHED_PLANNERS; i++) {
		const struct sched_claim *claim = &sched->claims[i];

		if (!claim->is_taken || claim == own)
			continue;
		need.node_bytes = space_add(need.node_bytes, claim->node_bytes);
		need.final_bytes = space_add(need.final_bytes, claim->bytes);
		need.final_inodes = space_add(need.final_inodes, claim->entries);
	}
	pthread_mutex_unlock(&sched->claim_lock);
	nodes_room(sched, final_fs, &room);
	if (room.node_count == 0) {
		err_set(err, ERR_NO_NODES, "no node takes work at present");
		err_hint(err, "see GET /api/v1/nodes for what each node says; start one, or free space");
		return -ERR_NO_NODES;
	}
	return check_all(sched, facts, all_copies(facts->total_bytes, copies), &need, &final_space, &room, err);
}

int sched_claim(struct sched *sched, struct str batch, const struct plan_facts *facts, unsigned copies,
		struct sched_claim **ret_claim, struct err *err)
{
	struct sched_claim *claim = NULL;
	bool is_contested = false;

	*ret_claim = NULL;
	pthread_mutex_lock(&sched->claim_lock);
	for (size_t i = 0; i < SCHED_PLANNERS; i++) {
		if (!sched->claims[i].is_taken)
			claim = &sched->claims[i];
		else
			is_contested |= str_eq_c(batch, sched->claims[i].batch);
	}
	if (!is_contested && claim) {
		claim->is_taken = true;
		MUST(str_copy(batch, claim->batch, sizeof(claim->batch)));
		claim->bytes = facts->total_bytes;
		claim->node_bytes = all_copies(facts->total_bytes, copies);
		claim->entries = facts->entry_count;
		*ret_claim = claim;
	}
	pthread_mutex_unlock(&sched->claim_lock);
	if (*ret_claim)
		return 0;
	return err_set(err, ERR_BUSY, "another call is planning this batch just now");
}

void sched_unclaim(struct sched *sched, struct sched_claim *claim)
{
	if (!claim)
		return;
	pthread_mutex_lock(&sched->claim_lock);
	claim->is_taken = false;
	pthread_mutex_unlock(&sched->claim_lock);
}
