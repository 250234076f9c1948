#include "sim/request.h"

#include "sim/tell.h"

static void set_alarm(struct world *world)
{
	world->is_alarm_set = !flight_list_is_empty(&world->awaited);
	if (world->is_alarm_set)
		event_put_lane(&world->queue, LANE_ALARM,
			       flight_at(world, world->awaited.oldest)->sent_ns + world->timeout_ns, ALARM, 0, 0);
}

/* An alarm that is set stays as it is: when it comes it looks again. */
static void await(struct world *world, uint32_t index)
{
	flight_list_add(&world->awaited, &world->flights, index);
	if (!world->is_alarm_set)
		set_alarm(world);
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
	await(world, index);
	if (world->policy->probes != NULL)
		tell_ask(world, flight->router, flight->set);
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
	*second = (struct flight){
		.start_ns = flight.start_ns,
		.work_ns = demand_retry_work_ns(&world->demand, flight.number),
		.number = flight.number,
		.key_hash = flight.key_hash,
		.router = flight.router,
		.set = flight.set,
		.is_retry = true,
		.is_measured = flight.is_measured,
	};
	flight_send(world, again, (uint16_t)node);
}

void request_put_next(struct world *world)
{
	if (world->arrived_count < world->request_limit)
		event_put_lane(&world->queue, LANE_ARRIVALS, world->now_ns + demand_gap_ns(&world->demand), ARRIVAL, 0,
			       0);
}

/* The request's policy says where it goes. */
static void start(struct world *world, uint32_t index)
{
	const struct flight *flight = flight_at(world, index);
	world->set_measured[flight->set] += flight->is_measured;
	int node = world->policy->choose(world->routers[flight->router], flight->set, flight->key_hash, now_us(world));
	if (is_choice(world, node)) {
		flight_send(world, index, (uint16_t)node);
		return;
	}
	request_end(world, flight, true);
	pool_give(&world->flights, index);
}

static struct flight_list *held_at(const struct world *world, size_t router, size_t set)
{
	return &world->held[router * world->members.set_count + set];
}

void request_arrive(struct world *world)
{
	uint64_t number = world->arrived_count++;
	struct demand_request request;
	demand_draw(&world->demand, &request);
	uint32_t index = pool_take(&world->flights);
	struct flight *flight = flight_at(world, index);
	*flight = (struct flight){
		.start_ns = world->now_ns,
		.work_ns = request.work_ns,
		.number = number,
		.key_hash = request.key_hash,
		.router = request.router,
		.set = request.set,
		.is_measured = world->now_ns >= world->warmup_ns,
	};
	request_put_next(world);
	if (world->policy->hold == NULL) {
		start(world, index);
		return;
	}
	/* Behind those that wait already, or the first: nobody overtakes. */
	struct flight_list *held = held_at(world, request.router, request.set);
	bool is_first = flight_list_is_empty(held);
	flight_list_add(held, &world->flights, index);
	if (is_first)
		request_release(world, request.router, request.set);
}

void request_release(struct world *world, size_t router, size_t set)
{
	struct flight_list *held = held_at(world, router, set);
	while (!flight_list_is_empty(held)) {
		int64_t wait_us = world->policy->hold(world->routers[router], set, now_us(world));
		MUST(wait_us >= 0 && wait_us <= POLICY_HOLD_MAX_US);
		if (wait_us > 0) {
			event_put(&world->queue, world->now_ns + wait_us * 1000, HELD, (uint32_t)router, (uint32_t)set);
			return;
		}
		uint32_t index = held->oldest;
		flight_list_remove(held, &world->flights, index);
		start(world, index);
	}
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

void request_reach(struct world *world, uint32_t index)
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

void request_finish(struct world *world, const struct event *event)
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

void request_answer(struct world *world, uint32_t index)
{
	if (!flight_at(world, index)->is_given_up) {
		flight_list_remove(&world->awaited, &world->flights, index);
		flight_done(world, index, flight_at(world, index)->is_failed);
	}
	pool_give(&world->flights, index);
}

static void on_timed_out(struct world *world, uint32_t index)
{
	struct flight *flight = flight_at(world, index);
	flight_list_remove(&world->awaited, &world->flights, index);
	flight->is_given_up = true;
	world->result->timed_out_count += flight->is_measured;
	flight_done(world, index, true);
	if (flight_at(world, index)->is_lost)
		pool_give(&world->flights, index);
}

void request_time_out(struct world *world)
{
	while (!flight_list_is_empty(&world->awaited) &&
	       flight_at(world, world->awaited.oldest)->sent_ns + world->timeout_ns <= world->now_ns)
		on_timed_out(world, world->awaited.oldest);
	set_alarm(world);
}

void request_crash(void *owner, const struct server_job *job)
{
	struct world *world = owner;
	flight_at(world, job->id)->is_failed = true;
	put_answer(world, job->id);
}

void request_vanish(void *owner, const struct server_job *job) { flight_lose(owner, job->id); }
