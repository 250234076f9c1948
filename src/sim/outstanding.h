/* What every router counts for itself: its own requests in flight, by node. And the draws that policies share. */
#ifndef HENG_SIM_OUTSTANDING_H
#define HENG_SIM_OUTSTANDING_H

#include "sim/policy.h"

struct outstanding {
	const struct sim_view *view;
	struct rng rng;
	uint32_t *counts; /* by node */
};

void outstanding_init(struct outstanding *own, const struct sim_view *view, uint64_t seed);
void outstanding_fini(struct outstanding *own);
static inline void outstanding_sent(struct outstanding *own, uint16_t node) { own->counts[node]++; }
static inline void outstanding_answered(struct outstanding *own, uint16_t node)
{
	if (own->counts[node] > 0)
		own->counts[node]--;
}

/* A member of the set, uniformly; -1 of an empty one. */
int outstanding_draw(struct outstanding *own, const struct sim_set *set);
/* Two different members, each pair as likely; false when there are fewer than two. */
bool outstanding_draw_two(struct outstanding *own, const struct sim_set *set, uint16_t ret_nodes[2]);

#endif
