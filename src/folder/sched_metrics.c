/* GET /metrics of the scheduler. */
#include "folder/sched_impl.h"

#include <stdlib.h>

#include "base/clock.h"
#include "core/member.h"
#include "folder/metrics.h"

#define OPEN_STATES \
	(1u << TRANSFER_CREATED | 1u << TRANSFER_DISTRIBUTING | 1u << TRANSFER_UPLOADING | 1u << TRANSFER_MERGING)

struct sums {
	uint64_t transfers[TRANSFER_FAILED + 1];
	uint64_t bytes, stored_bytes, chunks, stored_chunks;
};

static int sum_each(void *owner, const struct store_transfer *transfer)
{
	struct sums *sums = owner;

	if (transfer->state <= TRANSFER_FAILED)
		sums->transfers[transfer->state]++;
	sums->bytes += transfer->total_bytes;
	sums->stored_bytes += transfer->stored_bytes;
	sums->chunks += transfer->chunk_count;
	sums->stored_chunks += transfer->stored_chunk_count;
	return 0;
}

static int write_transfers(struct sched_call *c)
{
	struct store *store = c->sched->store;
	struct sums sums = { .bytes = 0 };
	const int result = store->ops->transfer_list(store, NULL, OPEN_STATES, SIZE_MAX / 2, sum_each, &sums, &c->err);

	if (result < 0)
		return err_wrap(&c->err, "counting transfers");
	prom_family(&c->answer, "heng_open_transfers", PROM_GAUGE, "Transfers that are neither completed nor failed.");
	for (enum transfer_state state = TRANSFER_CREATED; state <= TRANSFER_FAILED; state++) {
		const struct prom_label label = { "state", transfer_state_name(state) };

		if (OPEN_STATES & 1u << state)
			prom_sample(&c->answer, "heng_open_transfers", &label, 1, sums.transfers[state]);
	}
	prom_value(&c->answer, "heng_open_bytes", PROM_GAUGE, "Bytes of their folders.", sums.bytes);
	prom_value(&c->answer, "heng_open_stored_bytes", PROM_GAUGE, "Those of them that nodes have.",
		   sums.stored_bytes);
	prom_value(&c->answer, "heng_open_chunks", PROM_GAUGE, "Their chunks.", sums.chunks);
	prom_value(&c->answer, "heng_open_stored_chunks", PROM_GAUGE, "Those of them that nodes have.",
		   sums.stored_chunks);
	return 0;
}

static void write_nodes(struct sched_call *c)
{
	struct pool_node *nodes = must_zalloc(POOL_NODES_MAX, sizeof(*nodes));
	const size_t count = min_size(pool_list(c->sched->pool, nodes, POOL_NODES_MAX), POOL_NODES_MAX);

	prom_family(&c->answer, "heng_node_up", PROM_GAUGE, "Nodes by state: 1.");
	for (size_t i = 0; i < count; i++) {
		const struct prom_label labels[] = { { "node", nodes[i].id },
						     { "state", member_state_name(nodes[i].state) } };

		prom_sample(&c->answer, "heng_node_up", labels, COUNT_OF(labels), 1);
	}
	prom_family(&c->answer, "heng_node_takes_work", PROM_GAUGE, "Does the node get new chunks?");
	for (size_t i = 0; i < count; i++)
		prom_sample(&c->answer, "heng_node_takes_work", &(struct prom_label){ "node", nodes[i].id }, 1,
			    nodes[i].takes_work);
	prom_family(&c->answer, "heng_node_free_bytes", PROM_GAUGE,
		    "Free space of the node, less what it has promised.");
	for (size_t i = 0; i < count; i++)
		prom_sample(&c->answer, "heng_node_free_bytes", &(struct prom_label){ "node", nodes[i].id }, 1,
			    nodes[i].free_bytes);
	prom_family(&c->answer, "heng_receipts_total", PROM_COUNTER,
		    "Chunks that the node stored and the scheduler recorded.");
	for (size_t i = 0; i < count; i++)
		prom_sample(&c->answer, "heng_receipts_total", &(struct prom_label){ "node", nodes[i].id }, 1,
			    nodes[i].chunk_count_in);
	free(nodes);
}

static int run_metrics(struct sched_call *c)
{
	metrics_common(&c->answer, "scheduler", c->sched->alerts);
	prom_value(&c->answer, "heng_up_seconds", PROM_GAUGE, "Since the start.",
		   (uint64_t)((clock_mono_us() - c->sched->started_mono_us) / SEC_US));
	write_nodes(c);
	return write_transfers(c);
}

static int check_metrics(struct sched_call *c)
{
	if (c->user->role != ROLE_UPLOADER)
		return 0;
	return err_set(&c->err, ERR_FORBIDDEN,
		       "user '%s' is an uploader: the scheduler's numbers are for auditors and operators",
		       c->user->name);
}

/* A collector on this machine needs no key; another one shows an auditor's or operator's. */
void sched_begin_metrics(struct http_call *call, void *app)
{
	const bool is_open = sock_addr_is_loopback(http_peer(call)) && http_header(call, "X-Api-Key").size == 0;
	struct sched_call *c = is_open ? sched_call_new(app, call, run_metrics)
				       : sched_client_call(call, app, run_metrics);

	if (!c)
		return;
	if (!is_open)
		c->check = check_metrics;
	c->type = PROM_TYPE;
	sched_call_go(c);
}
