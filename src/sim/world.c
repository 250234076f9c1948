#include "sim/world.h"

#include "sim/draw.h"
#include "sim/request.h"
#include "sim/tell.h"

static void on_tick(struct world *world, size_t router)
{
	world->policy->tick(world->routers[router], now_us(world));
	event_put(&world->queue, world->now_ns + world->policy->tick_us * 1000, TICK, (uint32_t)router, 0);
}

/* What each node would have got of the requests so far, by the members that the sets had. */
static void settle_fair(struct world *world)
{
	for (size_t set = 0; set < world->members.set_count; set++) {
		const struct sim_set *members = &world->members.sets[set];
		for (size_t i = 0; i < members->count; i++)
			world->result->fair[members->nodes[i]] += (double)world->set_measured[set] /
								  (double)members->count;
		world->set_measured[set] = 0;
	}
}

static void announce(struct world *world, size_t node, bool is_member, bool is_new)
{
	for (size_t router = 0; world->policy->changed != NULL && router < world->router_count; router++)
		world->policy->changed(world->routers[router], (uint16_t)node, is_member, is_new, now_us(world));
}

static int on_change(struct world *world, size_t index, struct err *err)
{
	const struct scenario_change *change = (const struct scenario_change *)world->scenario->events.items + index;
	size_t node = (size_t)change->node;
	struct server *server = &world->servers[node];
	int r = 0;
	switch ((enum scenario_do)change->what) {
	case SCENARIO_JOIN:
		settle_fair(world);
		r = member_set_join(&world->members, node, change->set, err);
		server_start(server, change->sync_us * 1000, world->now_ns);
		announce(world, node, true, true);
		break;
	case SCENARIO_LEAVE:
		settle_fair(world);
		server->is_leaving = true;
		r = member_set_leave(&world->members, node, err);
		announce(world, node, false, false);
		break;
	case SCENARIO_CRASH:
		server_crash(server, world->now_ns, request_crash, world);
		break;
	case SCENARIO_VANISH:
		world->is_vanished[node] = true;
		server_crash(server, world->now_ns, request_vanish, world);
		break;
	case SCENARIO_RESTART:
		world->is_vanished[node] = false;
		server_start(server, change->sync_us * 1000, world->now_ns);
		break;
	}
	return r;
}

static int step(struct world *world, const struct event *event, struct err *err)
{
	switch ((enum happening)event_kind(event)) {
	case ARRIVAL:
		request_arrive(world);
		break;
	case AT_SERVER:
		request_reach(world, event->a);
		break;
	case FINISHED:
		request_finish(world, event);
		break;
	case ANSWERED:
		request_answer(world, event->a);
		break;
	case ALARM:
		request_time_out(world);
		break;
	case ASKED:
		tell_asked(world, event->a);
		break;
	case TOLD:
		tell_told(world, event->a);
		break;
	case REPORT_DUE:
		tell_due(world, event->a);
		break;
	case REPORTED:
		tell_reported(world, event->a);
		break;
	case TICK:
		on_tick(world, event->a);
		break;
	case HELD:
		request_release(world, event->a, event->b);
		break;
	case CHANGE:
		return on_change(world, event->a, err);
	}
	return 0;
}

static void world_init_servers(struct world *world)
{
	size_t node_count = world->members.node_count;
	world->servers = must_zalloc(node_count, sizeof(*world->servers));
	world->is_vanished = must_zalloc(node_count, sizeof(*world->is_vanished));
	for (size_t node = 0; node < node_count; node++) {
		server_init(&world->servers[node], (uint32_t)world->scenario->workers,
			    (size_t)world->scenario->queue_limit, 0);
		scenario_pace(world->scenario, node, &world->servers[node].pace);
		world->servers[node].is_reporting = world->policy->report != NULL;
		world->servers[node].is_estimating = world->policy->probes != NULL;
		tell_first(world, node);
	}
	for (size_t i = 0; i < world->scenario->events.count; i++) {
		const struct scenario_change *change = (const struct scenario_change *)world->scenario->events.items +
						       i;
		event_put(&world->queue, change->at_us * 1000, CHANGE, (uint32_t)i, 0);
	}
}

static void world_init_routers(struct world *world, const struct world_conf *conf)
{
	const struct sim_policy *policy = world->policy;
	world->router_count = (size_t)world->scenario->routers;
	world->views = must_zalloc(world->router_count, sizeof(*world->views));
	world->routers = must_zalloc(world->router_count, sizeof(*world->routers));
	size_t held_count = policy->hold != NULL ? world->router_count * world->members.set_count : 0;
	if (held_count > 0)
		world->held = must_zalloc(held_count, sizeof(*world->held));
	for (size_t i = 0; i < held_count; i++)
		world->held[i] = FLIGHT_LIST_EMPTY;
	for (size_t router = 0; router < world->router_count; router++) {
		world->views[router] = (struct sim_view){
			.node_count = world->members.node_count,
			.set_count = world->members.set_count,
			.router_count = world->router_count,
			.router_index = router,
			.sets = world->members.sets,
			.weights_milli = world->members.weights_milli,
			.node_ids = world->members.id_list,
			.timeout_us = world->scenario->timeout_us,
			.log = conf->log,
			.log_owner = conf->log_owner,
		};
		world->routers[router] = policy->new (&world->views[router],
						      draw_mix(world->seed, DRAW_POLICIES, router));
		if (policy->tick != NULL && policy->tick_us > 0)
			event_put(&world->queue,
				  policy->tick_us * 1000 * (int64_t)(router + 1) / (int64_t)world->router_count, TICK,
				  (uint32_t)router, 0);
	}
}

static void world_fini(struct world *world)
{
	for (size_t router = 0; router < world->router_count; router++)
		world->policy->free(world->routers[router]);
	for (size_t node = 0; world->servers != NULL && node < world->members.node_count; node++)
		server_fini(&world->servers[node]);
	free(world->held);
	free(world->routers);
	free(world->views);
	free(world->servers);
	free(world->is_vanished);
	free(world->set_measured);
	member_set_fini(&world->members);
	pool_fini(&world->flights);
	pool_fini(&world->probes);
	pool_fini(&world->mails);
	event_queue_fini(&world->queue);
}

int world_run(const struct world_conf *conf, struct result *result, struct err *err)
{
	const struct scenario *scenario = conf->scenario;
	struct world world = {
		.scenario = scenario,
		.policy = conf->policy,
		.network_ns = scenario->network_us * 1000,
		.timeout_ns = scenario->timeout_us * 1000,
		.report_delay_ns = scenario->report_delay_us * 1000,
		.warmup_ns = scenario->warmup_us * 1000,
		.seed = (uint64_t)scenario->seed,
		.request_limit = (uint64_t)scenario->requests,
		.flights = POOL_INIT(struct flight),
		.probes = POOL_INIT(struct probe),
		.mails = POOL_INIT(struct mail),
		.awaited = FLIGHT_LIST_EMPTY,
		.result = result,
	};
	event_queue_init(&world.queue);
	demand_init(&world.demand, scenario);
	rng_seed(&world.others, draw_mix(world.seed, DRAW_OTHERS, 0));
	int r = member_set_init(&world.members, scenario, err);
	if (r == 0) {
		world.set_measured = must_zalloc(world.members.set_count, sizeof(*world.set_measured));
		world_init_servers(&world);
		world_init_routers(&world, conf);
		request_put_next(&world);
	}
	struct event event;
	while (r == 0 && world.ended_count < world.request_limit && event_next(&world.queue, &event)) {
		world.now_ns = event.time_ns;
		result->event_count++;
		r = step(&world, &event, err);
	}
	if (r == 0) {
		MUST(world.ended_count == world.request_limit && world.arrived_count == world.request_limit);
		settle_fair(&world);
		result_end(result);
	}
	result->arrived_count = world.arrived_count;
	result->length_ns = world.now_ns;
	for (size_t router = 0; conf->policy->flips != NULL && router < world.router_count; router++)
		result->flips += conf->policy->flips(world.routers[router]);
	world_fini(&world);
	return r < 0 ? err_wrap(err, "simulating '%s'", scenario->name) : 0;
}
