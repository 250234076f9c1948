/* What open transfers, and the calls that plan one just now, take together. */
#include "folder/sched_impl.h"

#include <string.h>

#include "folder/space.h"

/* So many open transfers are counted; a scheduler that holds more is far beyond its other limits. */
#define OPEN_TRANSFERS_MAX 1000000u

uint64_t sched_all_copies(uint64_t bytes, unsigned copies)
{
	uint64_t sum = bytes;

	for (unsigned i = 1; i < copies; i++)
		sum = space_add(sum, bytes);
	return sum;
}

/* --- claims --- */

int sched_claim(struct sched *sched, const char *user, struct str batch, const struct plan_facts *facts,
		unsigned copies, struct sched_claim **ret_claim, struct err *err)
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
		claim->number = ++sched->claim_count;
		MUST(str_copy(str_from(user), claim->user, sizeof(claim->user)));
		MUST(str_copy(batch, claim->batch, sizeof(claim->batch)));
		claim->bytes = facts->total_bytes;
		claim->node_bytes = sched_all_copies(facts->total_bytes, copies);
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

/* --- the sum --- */

struct need_walk {
	struct sched_need *need;
	const char *except_id;
	struct sched_claim claims[SCHED_PLANNERS];
	size_t claim_count;
};

/* Of two calls at once only the later one counts the other: neither would be let in otherwise, and together they never take more than there is. */
static void copy_claims(struct sched *sched, const char *user, const struct sched_claim *own, struct need_walk *walk)
{
	pthread_mutex_lock(&sched->claim_lock);
	for (size_t i = 0; i < SCHED_PLANNERS; i++) {
		const struct sched_claim *claim = &sched->claims[i];

		if (claim->is_taken && claim->number < own->number && (!user || strcmp(claim->user, user) == 0))
			walk->claims[walk->claim_count++] = *claim;
	}
	pthread_mutex_unlock(&sched->claim_lock);
}

/* The claim of a transfer's batch, taken off the list: its plan may be in the store already, or be about to replace what is. */
static struct sched_claim take_claim(struct need_walk *walk, const char *batch)
{
	struct sched_claim claim = { 0 };

	for (size_t i = 0; i < walk->claim_count; i++) {
		if (strcmp(walk->claims[i].batch, batch) != 0)
			continue;
		claim = walk->claims[i];
		walk->claims[i] = walk->claims[--walk->claim_count];
		break;
	}
	return claim;
}

static void need_more(struct sched_need *need, uint64_t node_bytes, uint64_t bytes, uint64_t entries)
{
	need->node_bytes = space_add(need->node_bytes, node_bytes);
	need->bytes = space_add(need->bytes, bytes);
	need->entries = space_add(need->entries, entries);
}

static int need_each(void *owner, const struct store_transfer *transfer)
{
	struct need_walk *walk = owner;
	uint64_t node_bytes = 0;

	if (walk->except_id && strcmp(transfer->id, walk->except_id) == 0)
		return 0;
	struct sched_claim claim = take_claim(walk, transfer->batch);
	uint64_t wanted_bytes = sched_all_copies(transfer->total_bytes, transfer->copies);
	uint64_t held_bytes = space_add(transfer->stored_bytes, transfer->copied_bytes);

	if (transfer->state != TRANSFER_MERGING && held_bytes < wanted_bytes)
		node_bytes = wanted_bytes - held_bytes;
	need_more(walk->need, max_u64(node_bytes, claim.node_bytes), max_u64(transfer->total_bytes, claim.bytes),
		  max_u64(transfer->entry_count, claim.entries));
	return 0;
}

int sched_need(struct sched *sched, const char *user, const struct sched_claim *own, const char *except_id,
	       struct sched_need *ret_need, struct err *err)
{
	const unsigned open_mask = 1u << TRANSFER_CREATED | 1u << TRANSFER_DISTRIBUTING | 1u << TRANSFER_UPLOADING |
				   1u << TRANSFER_MERGING;
	struct need_walk walk = { .need = ret_need, .except_id = except_id };
	int result;

	memset(ret_need, 0, sizeof(*ret_need));
	/* Claims first: a call that ends meanwhile has its transfer in the store before it gives its claim back. */
	copy_claims(sched, user, own, &walk);
	result = sched->store->ops->transfer_list(sched->store, user, open_mask, OPEN_TRANSFERS_MAX, need_each, &walk,
						  err);
	if (result < 0)
		return err_wrap(err, "counting what open transfers still need");
	for (size_t i = 0; i < walk.claim_count; i++)
		need_more(ret_need, walk.claims[i].node_bytes, walk.claims[i].bytes, walk.claims[i].entries);
	return 0;
}
