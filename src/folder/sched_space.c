#include "folder/sched_impl.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "sys/fs.h"

/* So many open transfers are counted; a scheduler that holds more is far beyond its other limits. */
#define OPEN_TRANSFERS_MAX 1000000u

struct space_need {
	const char *except_id;
	uint64_t node_bytes;                /* still to be sent to nodes */
	uint64_t final_bytes, final_inodes; /* still to be written to the final store */
};

/* Numbers from clients can be large enough to wrap: then the sum is simply "too much". */
static uint64_t add_capped(uint64_t a, uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }

static int need_each(void *owner, const struct store_transfer *transfer)
{
	struct space_need *need = owner;

	if (need->except_id && strcmp(transfer->id, need->except_id) == 0)
		return 0;
	if (transfer->state != TRANSFER_MERGING && transfer->stored_bytes < transfer->total_bytes)
		need->node_bytes = add_capped(need->node_bytes, transfer->total_bytes - transfer->stored_bytes);
	need->final_bytes = add_capped(need->final_bytes, transfer->total_bytes);
	need->final_inodes = add_capped(need->final_inodes, transfer->entry_count);
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

static uint64_t nodes_free(struct sched *sched, size_t *ret_count)
{
	struct pool_node *nodes = must_zalloc(POOL_NODES_MAX, sizeof(*nodes));
	size_t count = min_size(pool_list(sched->pool, nodes, POOL_NODES_MAX), POOL_NODES_MAX);
	uint64_t bytes = 0;

	*ret_count = 0;
	for (size_t i = 0; i < count; i++) {
		if (!nodes[i].takes_work)
			continue;
		(*ret_count)++;
		bytes = add_capped(bytes, nodes[i].free_bytes);
	}
	free(nodes);
	return bytes;
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
	return add_capped(add_capped(wanted, promised), kept) <= available;
}

static int check_final(struct sched *sched, const struct plan_facts *facts, const struct space_need *need,
		       struct err *err)
{
	struct fs_space space = { 0 };
	int result = fs_space(sched->final_fd, &space, err);

	if (result < 0)
		return err_wrap(err, "asking for the space of the final store %s", sched->final_dir);
	if (!fits(facts->total_bytes, need->final_bytes, sched->final_free_floor_bytes, space.free_bytes))
		return no_space(err, "in the final store", facts->total_bytes, need->final_bytes,
				sched->final_free_floor_bytes, space.free_bytes);
	/* File systems that make inodes as they go (btrfs) report none at all. */
	if (space.inodes_total == 0 || fits(facts->entry_count, need->final_inodes, 0, space.inodes_free))
		return 0;
	err_set(err, ERR_NO_SPACE,
		"no room in the final store: the folder has %" PRIu64 " entries, other open transfers %" PRIu64
		", and %" PRIu64 " inodes are free",
		facts->entry_count, need->final_inodes, space.inodes_free);
	err_hint(err, "free inodes there, or let open transfers end, then push again");
	return -ERR_NO_SPACE;
}

int sched_space_check(struct sched *sched, const struct plan_facts *facts, const struct sched_claim *own,
		      const char *except_id, struct err *err)
{
	struct space_need need = { .except_id = except_id };
	uint64_t available;
	size_t node_count;
	int result = space_need(sched, &need, err);

	if (result < 0)
		return result;
	pthread_mutex_lock(&sched->claim_lock);
	for (size_t i = 0; i < SCHED_PLANNERS; i++) {
		const struct sched_claim *claim = &sched->claims[i];

		if (!claim->is_taken || claim == own)
			continue;
		need.node_bytes = add_capped(need.node_bytes, claim->bytes);
		need.final_bytes = add_capped(need.final_bytes, claim->bytes);
		need.final_inodes = add_capped(need.final_inodes, claim->entries);
	}
	pthread_mutex_unlock(&sched->claim_lock);
	available = nodes_free(sched, &node_count);
	if (node_count == 0) {
		err_set(err, ERR_NO_NODES, "no node takes work at present");
		err_hint(err, "see GET /api/v1/nodes for what each node says; start one, or free space");
		return -ERR_NO_NODES;
	}
	if (!fits(facts->total_bytes, need.node_bytes, 0, available))
		return no_space(err, "on the nodes", facts->total_bytes, need.node_bytes, 0, available);
	return check_final(sched, facts, &need, err);
}

int sched_claim(struct sched *sched, struct str batch, const struct plan_facts *facts, struct sched_claim **ret_claim,
		struct err *err)
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
