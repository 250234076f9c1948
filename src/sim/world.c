#include "sim/world.h"

#include "sim/arrival.h"
#include "sim/draw.h"
#include "sim/event.h"
#include "sim/keys.h"
#include "sim/member_set.h"
#include "sim/pool.h"
#include "sim/server.h"

#define REPORT_EVERY_NS (REPORT_INTERVAL_US * 1000)
#define PROBES_MAX      16
#define NOBODY          UINT32_MAX
#define STREAM_ARRIVALS 1 /* of random numbers, each for one purpose, so that no choice shifts another's */
#define STREAM_KEYS     2
#define STREAM_WORK     3
#define STREAM_RETRIES  4
#define STREAM_LOSSES   5
#define STREAM_OTHERS   6
#define STREAM_POLICIES 16

/* What always comes the same delay after it was put. */
enum lane { LANE_ARRIVALS, LANE_OUT, LANE_BACK, LANE_ALARM, LANE_REPORTS };
_Static_assert(LANE_REPORTS < EVENT_LANES, "a lane for each delay");
enum happening {
	ARRIVAL,    /* of a request at a router */
	AT_SERVER,  /* a: flight */
	FINISHED,   /* a: node | worker << 16, b: the server's epoch */
	ANSWERED,   /* a: flight */
	ALARM,      /* the oldest flight may have timed out */
	ASKED,      /* a: probe, at its server */
	TOLD,       /* a: probe, back at its router */
	REPORT_DUE, /* a: node */
	REPORTED,   /* a: mail */
	TICK,       /* a: router */
	CHANGE,     /* a: index of the scenario's event */
};

/* One try of a request. It lives until both its router and its server are done with it. */
struct flight {
	int64_t start_ns, sent_ns; /* when the request arrived; when this try left the router */
	int64_t work_ns, service_ns;
	uint64_t number, key_hash;
	uint32_t older, newer; /* those sent before and after it that their routers wait for too */
	uint32_t queue_count;
	uint16_t router, set, node;
	bool is_retry, is_measured, is_failed;
	bool is_given_up; /* by the router */
	bool is_lost;     /* no answer will come */
};
struct probe {
	uint16_t router, node;
	uint32_t load_count;
	int64_t latency_ns;
};
struct mail {
	uint16_t node;
	uint64_t sequence;
	struct report report;
};
struct world {
	const struct scenario *scenario;
	const struct sim_policy *policy;
	struct event_queue queue;
	int64_t now_ns, network_ns, timeout_ns, report_delay_ns, warmup_ns;
	uint64_t seed, request_limit, arrived_count, ended_count;
	struct service service;
	struct keys keys;
	struct arrival arrival;
	struct rng arrivals, key_draws, work, others;
	struct member_set members;
	struct server *servers;
	bool *is_vanished;      /* of each node */
	uint64_t *set_measured; /* of each set: measured requests since its members last changed */
	void **routers;         /* each one's policy */
	struct sim_view *views;
	size_t router_count;
	struct pool flights, probes, mails;
	uint32_t oldest, newest; /* flights that routers wait for, in the order in which they will time out */
	bool is_alarm_set;
	struct result *result;
};

static int64_t now_us(const struct world *world) { return WORLD_EPOCH_US + world->now_ns / 1000; }
static struct flight *flight_at(const struct world *world, uint32_t index) { return pool_at(&world->flights, index); }

static void set_alarm(struct world *world)
{
	world->is_alarm_set = world->oldest != NOBODY;
	if (world->is_alarm_set)
		event_put_lane(&world->queue, LANE_ALARM, flight_at(world, world->oldest)->sent_ns + world->timeout_ns,
			       ALARM, 0, 0);
}

static void wait_begin(struct world *world, uint32_t index)
{
	struct flight *flight = flight_at(world, index);
	flight->older = world->newest;
	flight->newer = NOBODY;
	if (world->newest != NOBODY)
		flight_at(world, world->newest)->newer = index;
	else
		world->oldest = index;
	world->newest = index;
	if (!world->is_alarm_set)
		set_alarm(world);
}

/* The alarm stays as it is: when it comes it looks again. */
static void wait_end(struct world *world, uint32_t index)
{
	const struct flight *flight = flight_at(world, index);
	if (flight->older != NOBODY)
		flight_at(world, flight->older)->newer = flight->newer;
	else
		world->oldest = flight->newer;
	if (flight->newer != NOBODY)
		flight_at(world, flight->newer)->older = flight->older;
	else
		world->newest = flight->older;
}

static void request_end(struct world *world, const struct flight *flight, bool is_failed)
{
	int64_t latency_ns = world->now_ns - flight->start_ns;
	world->ended_count++;
	if (is_failed)
		world->result->failed_count++;
	else
		world->result->succeeded_count++;
	if (flight->is_measured)
		result_feed(world->result, is_failed ? max_i64(latency_ns, world->timeout_ns) : latency_ns, is_failed,
			    world->now_ns);
}

static void ask_probes(struct world *world, size_t router, size_t set)
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

/* The try leaves its router for the node. */
static void flight_send(struct world *world, uint32_t index, uint16_t node)
{
	struct flight *flight = flight_at(world, index);
	void *router = world->routers[flight->router];
	flight->node = node;
	flight->sent_ns = world->now_ns;
	if (flight->is_measured) {
		world->result->served[node]++;
		world->result->retried_count += flight->is_retry;
		world->result->unsynced_count += !server_is_synced(&world->servers[node], world->now_ns);
	}
	world->policy->sent(router, node, now_us(world));
	event_put_lane(&world->queue, LANE_OUT, world->now_ns + world->network_ns, AT_SERVER, index, 0);
	wait_begin(world, index);
	if (world->policy->probes != NULL)
		ask_probes(world, flight->router, flight->set);
}

static bool is_choice(const struct world *world, int node)
{
	return node >= 0 && (size_t)node < world->members.node_count && world->members.is_member[node];
}

/* Another node for a request that failed at `tried`; -1: none. */
static int choose_again(struct world *world, const struct flight *flight)
{
	const struct sim_policy *policy = world->policy;
	void *router = world->routers[flight->router];
	if (policy->retry != NULL)
		return policy->retry(router, flight->set, flight->key_hash, flight->node, now_us(world));
	int node = policy->choose(router, flight->set, flight->key_hash, now_us(world));
	if (node != flight->node)
		return node;
	const struct sim_set *set = &world->members.sets[flight->set];
	size_t other_count = 0;
	for (size_t i = 0; i < set->count; i++)
		other_count += set->nodes[i] != flight->node;
	if (other_count == 0)
		return -1;
	size_t skip = (size_t)rng_below(&world->others, other_count);
	for (size_t i = 0; i < set->count; i++) {
		if (set->nodes[i] != flight->node && skip-- == 0)
			return set->nodes[i];
	}
	return -1;
}

/* The router knows what became of a try; a failed first one may be followed by a second. */
static void flight_done(struct world *world, uint32_t index, bool is_failed)
{
	struct flight flight = *flight_at(world, index);
	struct sim_answer answer = {
		.rtt_ns = world->now_ns - flight.sent_ns,
		.is_failed = is_failed,
		.service_ns = flight.service_ns,
		.queue_count = flight.queue_count,
	};
	world->policy->answered(world->routers[flight.router], flight.node, &answer, now_us(world));
	int node = -1;
	if (is_failed && world->scenario->is_retried && !flight.is_retry)
		node = choose_again(world, &flight);
	if (!is_choice(world, node) || node == flight.node) {
		request_end(world, &flight, is_failed);
		return;
	}
	uint32_t again = pool_take(&world->flights);
	struct flight *second = flight_at(world, again);
	struct rng rng;
	rng_seed(&rng, draw_mix(world->seed, STREAM_RETRIES, flight.number));
	*second = (struct flight){
		.start_ns = flight.start_ns,
		.work_ns = service_draw_ns(&world->service, &rng),
		.number = flight.number,
		.key_hash = flight.key_hash,
		.router = flight.router,
		.set = flight.set,
		.is_retry = true,
		.is_measured = flight.is_measured,
	};
	flight_send(world, again, (uint16_t)node);
}

static void put_next_arrival(struct world *world)
{
	if (world->arrived_count < world->request_limit)
		event_put_lane(&world->queue, LANE_ARRIVALS,
			       world->now_ns + arrival_gap_ns(&world->arrival, &world->arrivals), ARRIVAL, 0, 0);
}

static void on_arrival(struct world *world)
{
	uint64_t number = world->arrived_count++;
	size_t router = (size_t)(((unsigned __int128)rng_u64(&world->key_draws) * world->router_count) >> 64);
	uint64_t rank = keys_draw(&world->keys, &world->key_draws);
	size_t set = (size_t)(rank % world->members.set_count);
	uint32_t index = pool_take(&world->flights);
	struct flight *flight = flight_at(world, index);
	*flight = (struct flight){
		.start_ns = world->now_ns,
		.work_ns = service_draw_ns(&world->service, &world->work),
		.number = number,
		.key_hash = keys_hash(rank),
		.router = (uint16_t)router,
		.set = (uint16_t)set,
		.is_measured = world->now_ns >= world->warmup_ns,
	};
	put_next_arrival(world);
	world->set_measured[set] += flight->is_measured;
	int node = world->policy->choose(world->routers[router], set, flight->key_hash, now_us(world));
	if (is_choice(world, node)) {
		flight_send(world, index, (uint16_t)node);
		return;
	}
	request_end(world, flight, true);
	pool_give(&world->flights, index);
}

static void put_answer(struct world *world, uint32_t index)
{
	event_put_lane(&world->queue, LANE_BACK, world->now_ns + world->network_ns, ANSWERED, index, 0);
}

static void put_finish(struct world *world, size_t node, uint32_t worker, int64_t end_ns)
{
	event_put(&world->queue, end_ns, FINISHED, (uint32_t)node | worker << 16, world->servers[node].epoch);
}

/* No answer will come of this try. Its router learns it by the timeout. */
static void flight_lose(struct world *world, uint32_t index)
{
	struct flight *flight = flight_at(world, index);
	flight->is_lost = true;
	if (flight->is_given_up)
		pool_give(&world->flights, index);
}

static void on_server(struct world *world, uint32_t index)
{
	struct flight *flight = flight_at(world, index);
	struct server *server = &world->servers[flight->node];
	if (world->is_vanished[flight->node]) {
		flight_lose(world, index);
		return;
	}
	struct server_job job = { .id = index, .work_ns = flight->work_ns, .arrived_ns = world->now_ns };
	uint32_t worker;
	int64_t end_ns;
	switch (server_offer(server, &job, world->now_ns, &worker, &end_ns)) {
	case SERVER_STARTED:
		put_finish(world, flight->node, worker, end_ns);
		break;
	case SERVER_QUEUED:
		break;
	case SERVER_REFUSED:
		flight->is_failed = true;
		flight->queue_count = server_load(server);
		world->result->refused_count += flight->is_measured;
		put_answer(world, index);
		break;
	}
}

static void on_finished(struct world *world, const struct event *event)
{
	size_t node = event->a & 0xffff;
	uint32_t worker = event->a >> 16;
	struct server *server = &world->servers[node];
	struct server_done done;
	if (event->b != server->epoch)
		return;
	server_finish(server, worker, world->now_ns, &done);
	if (done.is_next_started)
		put_finish(world, node, worker, done.next_end_ns);
	struct flight *flight = flight_at(world, done.job.id);
	flight->service_ns = done.service_ns;
	flight->queue_count = done.queue_count;
	put_answer(world, done.job.id);
}

static void on_answered(struct world *world, uint32_t index)
{
	if (!flight_at(world, index)->is_given_up) {
		wait_end(world, index);
		flight_done(world, index, flight_at(world, index)->is_failed);
	}
	pool_give(&world->flights, index);
}

static void on_timed_out(struct world *world, uint32_t index)
{
	struct flight *flight = flight_at(world, index);
	wait_end(world, index);
	flight->is_given_up = true;
	world->result->timed_out_count += flight->is_measured;
	flight_done(world, index, true);
	if (flight_at(world, index)->is_lost)
		pool_give(&world->flights, index);
}

static void on_alarm(struct world *world)
{
	while (world->oldest != NOBODY && flight_at(world, world->oldest)->sent_ns + world->timeout_ns <= world->now_ns)
		on_timed_out(world, world->oldest);
	set_alarm(world);
}

static void on_asked(struct world *world, uint32_t index)
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

static void on_told(struct world *world, uint32_t index)
{
	const struct probe *probe = pool_at(&world->probes, index);
	if (world->policy->probed != NULL)
		world->policy->probed(world->routers[probe->router], probe->node, probe->load_count, probe->latency_ns,
				      now_us(world));
	pool_give(&world->probes, index);
}

static void on_report_due(struct world *world, size_t node)
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

static void on_reported(struct world *world, uint32_t index)
{
	const struct mail *mail = pool_at(&world->mails, index);
	for (size_t router = 0; router < world->router_count; router++) {
		uint64_t lot = draw_mix(draw_mix(world->seed, STREAM_LOSSES, router), mail->node, mail->sequence) %
			       1000000;
		if (lot >= (uint64_t)world->scenario->report_loss_ppm)
			world->policy->report(world->routers[router], mail->node, &mail->report, mail->sequence,
					      now_us(world));
	}
	pool_give(&world->mails, index);
}

static void on_tick(struct world *world, size_t router)
{
	world->policy->tick(world->routers[router], now_us(world));
	event_put(&world->queue, world->now_ns + world->policy->tick_us * 1000, TICK, (uint32_t)router, 0);
}

static void lost_to_crash(void *owner, const struct server_job *job)
{
	struct world *world = owner;
	flight_at(world, job->id)->is_failed = true;
	put_answer(world, job->id);
}

static void lost_to_silence(void *owner, const struct server_job *job) { flight_lose(owner, job->id); }

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

static void tell_changed(struct world *world, size_t node, bool is_member, bool is_new)
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
		tell_changed(world, node, true, true);
		break;
	case SCENARIO_LEAVE:
		settle_fair(world);
		server->is_leaving = true;
		r = member_set_leave(&world->members, node, err);
		tell_changed(world, node, false, false);
		break;
	case SCENARIO_CRASH:
		server_crash(server, world->now_ns, lost_to_crash, world);
		break;
	case SCENARIO_VANISH:
		world->is_vanished[node] = true;
		server_crash(server, world->now_ns, lost_to_silence, world);
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
		on_arrival(world);
		break;
	case AT_SERVER:
		on_server(world, event->a);
		break;
	case FINISHED:
		on_finished(world, event);
		break;
	case ANSWERED:
		on_answered(world, event->a);
		break;
	case ALARM:
		on_alarm(world);
		break;
	case ASKED:
		on_asked(world, event->a);
		break;
	case TOLD:
		on_told(world, event->a);
		break;
	case REPORT_DUE:
		on_report_due(world, event->a);
		break;
	case REPORTED:
		on_reported(world, event->a);
		break;
	case TICK:
		on_tick(world, event->a);
		break;
	case CHANGE:
		return on_change(world, event->a, err);
	}
	return 0;
}

static void world_init_draws(struct world *world)
{
	const struct scenario *scenario = world->scenario;
	double gap_ns = scenario_gap_ns(scenario);
	world->seed = (uint64_t)scenario->seed;
	rng_seed(&world->arrivals, draw_mix(world->seed, STREAM_ARRIVALS, 0));
	rng_seed(&world->key_draws, draw_mix(world->seed, STREAM_KEYS, 0));
	rng_seed(&world->work, draw_mix(world->seed, STREAM_WORK, 0));
	rng_seed(&world->others, draw_mix(world->seed, STREAM_OTHERS, 0));
	world->service = scenario_service(scenario);
	keys_init(&world->keys, (uint64_t)scenario->keys, (double)scenario->zipf_milli / 1e3);
	if (scenario->arrivals == SCENARIO_BURSTY)
		arrival_bursty(&world->arrival, gap_ns, (double)scenario->burst_milli / 1e3,
			       (double)scenario->burst_length_us * 1e3, (double)scenario->burst_every_us * 1e3);
	else
		arrival_poisson(&world->arrival, gap_ns);
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
		/* Each reports at its own time, as processes that were started by hand do. */
		event_put(&world->queue, REPORT_EVERY_NS * (int64_t)(node + 1) / (int64_t)node_count, REPORT_DUE,
			  (uint32_t)node, 0);
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
						      draw_mix(world->seed, STREAM_POLICIES, router));
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
		.request_limit = (uint64_t)scenario->requests,
		.flights = POOL_INIT(struct flight),
		.probes = POOL_INIT(struct probe),
		.mails = POOL_INIT(struct mail),
		.oldest = NOBODY,
		.newest = NOBODY,
		.result = result,
	};
	event_queue_init(&world.queue);
	world_init_draws(&world);
	int r = member_set_init(&world.members, scenario, err);
	if (r == 0) {
		world.set_measured = must_zalloc(world.members.set_count, sizeof(*world.set_measured));
		world_init_servers(&world);
		world_init_routers(&world, conf);
		put_next_arrival(&world);
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
