/* A routing policy in the simulator: one instance for each router, which sees only what a router sees. heng's own run core's real code; the rivals
 * follow their published definitions, each with its source named. */
#ifndef HENG_SIM_POLICY_H
#define HENG_SIM_POLICY_H

#include "base/err.h"
#include "base/rng.h"
#include "core/report.h"

struct sim_set {
	const uint16_t *nodes; /* node indexes that may serve this set's keys */
	size_t count;
};
/* What a router knows from the start. All of it outlives the policy. */
struct sim_view {
	size_t node_count, set_count, router_count, router_index;
	struct sim_set *sets;          /* members change with joins and leaves: the policy is told by `changed` */
	const uint32_t *weights_milli; /* of each node */
	const char *const *node_ids;
	int64_t timeout_us;
	/* For a policy that keeps a decision log: NULL when nobody wants it. Lines end with a newline. */
	void (*log)(void *owner, struct str lines);
	void *log_owner;
};
/* What a server may tell beside its answer (C3 and Cassandra's snitch ask for it; others ignore it). */
struct sim_answer {
	int64_t rtt_ns; /* as the router saw it */
	bool is_failed;
	int64_t service_ns;   /* time the server spent on it */
	uint32_t queue_count; /* waiting and running at the server when it answered */
};
#define POLICY_HOLD_MAX_US (3600 * SEC_US)
struct sim_policy {
	const char *name, *help, *source;
	void *(*new)(const struct sim_view *view, uint64_t seed);
	void (*free)(void *policy);
	/* A node index out of the set, or -1: nobody may serve. */
	int (*choose)(void *policy, size_t set_index, uint64_t key_hash, int64_t now_us);
	void (*sent)(void *policy, uint16_t node, int64_t now_us);
	void (*answered)(void *policy, uint16_t node, const struct sim_answer *answer, int64_t now_us);
	/* All below may be NULL. */
	/* The one retry of a request that failed at `tried`, as choose. NULL: choose is asked, and when it names `tried` again any other of the set
	 * takes its place. Returning `tried` is no retry: the request has failed. */
	int (*retry)(void *policy, size_t set_index, uint64_t key_hash, uint16_t tried, int64_t now_us);
	/* Backpressure (C3): how long a request of the set has to wait at the router before `choose` is asked; 0: it may go at once. Requests of one
	 * set wait in the order they came, a new one behind those that wait; the first is asked for again after that time, at most
	 * POLICY_HOLD_MAX_US. The wait counts into the request's latency, not into a try's timeout; a retry does not wait. NULL: nobody waits. */
	int64_t (*hold)(void *policy, size_t set_index, int64_t now_us);
	void (*report)(void *policy, uint16_t node, const struct report *report, uint64_t sequence, int64_t now_us);
	void (*tick)(void *policy, int64_t now_us); /* every tick_us of virtual time */
	int64_t tick_us;
	/* Node came (is_new: with no data yet), or left the sets. */
	void (*changed)(void *policy, uint16_t node, bool is_member, bool is_new, int64_t now_us);
	/* Asynchronous probes: after each choice, the nodes to ask (at most limit); each answers with its requests in flight and its latency estimate. */
	size_t (*probes)(void *policy, size_t set_index, uint16_t *ret_nodes, size_t limit, int64_t now_us);
	void (*probed)(void *policy, uint16_t node, uint32_t in_flight, int64_t latency_ns, int64_t now_us);
	uint64_t (*flips)(void *policy); /* how often a set's selected node changed, for those that select */
};
#define POLICY(name) extern const struct sim_policy sim_policy_##name;
#include "sim/policy_list.h"
#undef POLICY
extern const struct sim_policy *const sim_policies[]; /* ends with NULL */
const struct sim_policy *sim_policy_find(const char *name);

#endif
