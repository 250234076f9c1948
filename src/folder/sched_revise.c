/* POST revise: some entries are not what the manifest said any more; the files' objects are planned anew, all others keep what is stored. */
#include "folder/sched_impl.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"

#define REVISE_TRIES_MAX 5
#define REVISE_BODY_MAX  ((uint64_t)128 * KIB)

struct revise {
	uint32_t told_crc32c;
	uint64_t told_version; /* of the transfer, as the caller knows it; 0: it does not say */
	struct plan_change changes[PLAN_CHANGES_MAX];
	size_t count;
};

static void revise_drop(struct sched_call *c) { free(c->state); }

static int check_may(struct sched_call *c, const struct store_transfer *transfer)
{
	/* Only who sends the folder knows what became of it. */
	if (strcmp(c->user->name, transfer->user) != 0)
		return err_set(&c->err, ERR_FORBIDDEN, "transfer %s is user %s's, who alone revises it", transfer->id,
			       transfer->user);
	switch (transfer->state) {
	case TRANSFER_UPLOADING:
		return 0;
	case TRANSFER_MERGING:
		return err_set(&c->err, ERR_MERGING, "transfer %s is being merged: its plan stays as it is",
			       transfer->id);
	case TRANSFER_FAILED:
		err_set(&c->err, ERR_STATE, "transfer %s has failed: %s", transfer->id, transfer->reason);
		err_hint(&c->err, "push the folder again");
		return -ERR_STATE;
	case TRANSFER_CREATED:
	case TRANSFER_DISTRIBUTING:
	case TRANSFER_COMPLETED:
		break;
	}
	return err_set(&c->err, ERR_STATE, "transfer %s is %s: its plan stays as it is", transfer->id,
		       transfer_state_name(transfer->state));
}

/* The caller's word for the whole manifest must be what follows from its changes: else the two are not about the same folder. */
static int check_manifest(struct sched_call *c, const struct store_transfer *transfer, struct plan_facts *ret_facts)
{
	const struct revise *revise = c->state;
	int result = plan_revised_facts(c->sched->store, transfer, revise->changes, revise->count, ret_facts, &c->err);

	if (result < 0)
		return result;
	if (ret_facts->crc32c == revise->told_crc32c)
		return 0;
	err_set(&c->err, ERR_SOURCE_CHANGED,
		"with these changes the manifest of transfer %s has the CRC-32C %08x, not the %08x told", transfer->id,
		ret_facts->crc32c, revise->told_crc32c);
	err_hint(&c->err, "push the folder again; it is scanned anew then");
	return -ERR_SOURCE_CHANGED;
}

int sched_revise(struct sched_call *c, struct store_transfer *transfer, const struct plan_change *changes, size_t count,
		 const struct plan_facts *facts, const struct sched_claim *claim)
{
	struct sched *sched = c->sched;
	struct err *err = &c->err;
	struct pool_ring *ring;
	int result = 0;

	if (facts->total_bytes > transfer->total_bytes)
		result = sched_quota_check(sched, c->user, facts, claim, transfer, err);
	if (result == 0 && facts->total_bytes > transfer->total_bytes)
		result = sched_space_check(sched, facts, transfer->copies, claim, transfer->id, err);
	if (result < 0)
		return result;
	ring = pool_ring_get(sched->pool);
	const struct plan_record record = {
		.file = sched->decisions,
		.is_every = sched->is_every_place,
		.nodes = ring->nodes,
		.node_count = ring->node_count,
	};
	result = plan_revise(sched->store, ring->ring, transfer, changes, count, facts, &record, err);
	pool_ring_put(sched->pool, ring);
	if (result < 0)
		return err_wrap(err, "revising transfer %s", transfer->id);
	log_say(LOG_INFO,
		"transfer %s is revised: %zu entries changed while the folder was sent; it has %llu chunks now",
		transfer->id, count, (unsigned long long)transfer->chunk_count);
	return sched->store->ops->transfer_get(sched->store, transfer->id, transfer, err);
}

/* An answer was lost and the call comes again, or another push of the same folder was quicker: planned anew twice, nobody would be the wiser. */
static bool is_done_before(const struct revise *revise, const struct store_transfer *transfer)
{
	return revise->told_version != 0 && (uint64_t)transfer->version != revise->told_version &&
	       transfer->manifest_crc32c == revise->told_crc32c;
}

/* One look and one attempt. -ERR_VERSION_CONFLICT: somebody else changed it meanwhile. */
static int try_revise(struct sched_call *c, struct store_transfer *transfer)
{
	const struct revise *revise = c->state;
	struct plan_facts facts;
	struct sched_claim *claim = NULL;
	int result = sched_find_to_write(c, transfer);

	if (result == 0)
		result = check_may(c, transfer);
	if (result < 0 || is_done_before(revise, transfer))
		return result;
	result = check_manifest(c, transfer, &facts);
	if (result == 0)
		result = sched_claim(c->sched, c->user->name, str_from(transfer->batch), &facts, transfer->copies,
				     &claim, &c->err);
	if (result == 0)
		result = sched_revise(c, transfer, revise->changes, revise->count, &facts, claim);
	sched_unclaim(c->sched, claim);
	return result;
}

static int run_revise(struct sched_call *c)
{
	struct revise *revise = c->state;
	struct store_transfer transfer;
	int result = plan_changes_parse(buf_str(&c->body), revise->changes, &revise->count, &c->err);

	if (result < 0)
		return result;
	result = -ERR_VERSION_CONFLICT;
	for (int i = 0; i < REVISE_TRIES_MAX && result == -ERR_VERSION_CONFLICT; i++)
		result = try_revise(c, &transfer);
	if (result == -ERR_NO_SPACE)
		c->retry_after_us = SCHED_NO_SPACE_RETRY_US;
	return result < 0 ? result : sched_answer_transfer(c, &transfer);
}

static int check_revise(struct sched_call *c)
{
	struct revise *revise = c->state;
	const int result = sched_read_crc(c, &revise->told_crc32c);

	return result < 0 ? result : sched_query_u64(c, "version", 0, &revise->told_version);
}

void sched_begin_revise(struct http_call *call, void *app)
{
	struct sched_call *c = sched_client_call(call, app, run_revise);
	struct revise *revise;

	if (!c)
		return;
	revise = must_zalloc(1, sizeof(*revise));
	c->state = revise;
	c->drop = revise_drop;
	c->work = c->sched->plans;
	c->body_limit_bytes = REVISE_BODY_MAX;
	c->check = check_revise;
	sched_call_go(c);
}
