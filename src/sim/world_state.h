/* A simulated world as it is now: for the files that make it go, which are world.c (set-up, clock, nodes that come and go), request.c and tell.c. */
#ifndef HENG_SIM_WORLD_STATE_H
#define HENG_SIM_WORLD_STATE_H

#include "sim/demand.h"
#include "sim/event.h"
#include "sim/flight.h"
#include "sim/member_set.h"
#include "sim/server.h"
#include "sim/world.h"

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
	HELD,       /* a: router, b: set; the first of those held back may go now */
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
	struct demand demand;
	struct rng others;
	struct member_set members;
	struct server *servers;
	bool *is_vanished;      /* of each node */
	uint64_t *set_measured; /* of each set: measured requests since its members last changed */
	void **routers;         /* each one's policy */
	struct sim_view *views;
	size_t router_count;
	struct pool flights, probes, mails;
	struct flight_list awaited; /* by their routers, in the order in which they will time out */
	bool is_alarm_set;
	struct flight_list *held; /* of each router its sets: requests that wait there; NULL: the policy holds none */
	struct result *result;
};

/* As policies see it. */
static inline int64_t now_us(const struct world *world) { return WORLD_EPOCH_US + world->now_ns / 1000; }
static inline struct flight *flight_at(const struct world *world, uint32_t index)
{
	return pool_at(&world->flights, index);
}

#endif
