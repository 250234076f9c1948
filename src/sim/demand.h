/* What arrives, and when: the same for each policy, whatever it does. Times, keys and work come from generators of their own, and a retry's work
 * depends on its request's number alone, so that no draw shifts another's. */
#ifndef HENG_SIM_DEMAND_H
#define HENG_SIM_DEMAND_H

#include "sim/arrival.h"
#include "sim/keys.h"
#include "sim/scenario.h"

struct demand {
	uint64_t seed;
	size_t router_count, set_count;
	struct arrival arrival;
	struct keys keys;
	struct service service;
	struct rng arrivals, key_draws, work;
};
struct demand_request {
	uint64_t key_hash;
	int64_t work_ns;
	uint16_t router, set;
};
void demand_init(struct demand *demand, const struct scenario *scenario);
int64_t demand_gap_ns(struct demand *demand); /* from one arrival to the next */
void demand_draw(struct demand *demand, struct demand_request *ret_request);
int64_t demand_retry_work_ns(const struct demand *demand, uint64_t number); /* of the second try of that request */

#endif
