#include "sim/tell.h"

#include "sim/draw.h"

#define REPORT_EVERY_NS (REPORT_INTERVAL_US * 1000)
#define PROBES_MAX      16

void tell_ask(struct world *world, size_t router, size_t set)
{
	uint16_t nodes[PROBES_MAX];
	size_t count = world->policy->probes(world->routers[router], set, nodes, COUNT_OF(nodes), now_us(world));
	for (size_t i = 0; i < min_size(count, COUNT_OF(nodes)); i++) {
		if (nodes[i] >= world->members.node_count)
			continue;
		uint32_t index = pool_take(&world->probes);
		*(struct probe *)pool_at(&world->probes, index) = (struct probe){ .router = (uint16_t)router,
										  .node = nodes[i] };
		event_put_lane(&world->queue, LANE_OUT, world->now_ns + world->network_ns, ASKED, index, 0);
	}
}

void tell_asked(struct world *world, uint32_t index)
{
	struct probe *probe = pool_at(&world->probes, index);
	struct server *server = &world->servers[probe->node];
	if (!server->is_up || world->is_vanished[probe->node]) {
		pool_give(&world->probes, index);
		return;
	}
	/* A frozen process answers nobody. */
	int64_t thaw_ns = pace_thaw_ns(&server->pace, world->now_ns);
	if (thaw_ns > world->now_ns) {
		event_put(&world->queue, thaw_ns, ASKED, index, 0);
		return;
	}
	probe->load_count = server_load(server);
	probe->latency_ns = server_estimate_ns(server);
	event_put_lane(&world->queue, LANE_BACK, world->now_ns + world->network_ns, TOLD, index, 0);
}

void tell_told(struct world *world, uint32_t index)
{
	const struct probe *probe = pool_at(&world->probes, index);
	if (world->policy->probed != NULL)
		world->policy->probed(world->routers[probe->router], probe->node, probe->load_count, probe->latency_ns,
				      now_us(world));
	pool_give(&world->probes, index);
}

/* Each node reports at its own time, as processes that were started by hand do. */
void tell_first(struct world *world, size_t node)
{
	event_put(&world->queue, REPORT_EVERY_NS * (int64_t)(node + 1) / (int64_t)world->members.node_count, REPORT_DUE,
		  (uint32_t)node, 0);
}

void tell_due(struct world *world, size_t node)
{
	struct server *server = &world->servers[node];
	int64_t thaw_ns = pace_thaw_ns(&server->pace, world->now_ns);
	if (thaw_ns > world->now_ns) {
		event_put(&world->queue, thaw_ns, REPORT_DUE, (uint32_t)node, 0);
		return;
	}
	event_put(&world->queue, world->now_ns + REPORT_EVERY_NS, REPORT_DUE, (uint32_t)node, 0);
	if (!server->is_up || world->is_vanished[node] || !world->members.is_member[node] ||
	    world->policy->report == NULL)
		return;
	uint32_t index = pool_take(&world->mails);
	struct mail *mail = pool_at(&world->mails, index);
	server_report(server, world->now_ns, WORLD_EPOCH_US, &mail->report);
	mail->node = (uint16_t)node;
	mail->sequence = server->report_sequence;
	event_put_lane(&world->queue, LANE_REPORTS, world->now_ns + world->report_delay_ns, REPORTED, index, 0);
}

void tell_reported(struct world *world, uint32_t index)
{
	const struct mail *mail = pool_at(&world->mails, index);
	for (size_t router = 0; router < world->router_count; router++) {
		uint64_t lot = draw_mix(draw_mix(world->seed, DRAW_LOSSES, router), mail->node, mail->sequence) %
			       1000000;
		if (lot >= (uint64_t)world->scenario->report_loss_ppm)
			world->policy->report(world->routers[router], mail->node, &mail->report, mail->sequence,
					      now_us(world));
	}
	pool_give(&world->mails, index);
}
