/* Many nodes and routers in one thread, on a clock of their own. What comes out depends on scenario and policy alone: the same arrivals, keys and
 * work for each policy, whatever it chooses. */
#ifndef HENG_SIM_WORLD_H
#define HENG_SIM_WORLD_H

#include "sim/policy.h"
#include "sim/result.h"
#include "sim/scenario.h"

/* What policies see as now when the simulated clock is 0: core takes 0 for "never". */
#define WORLD_EPOCH_US (1000 * SEC_US)

struct world_conf {
	const struct scenario *scenario;
	const struct sim_policy *policy;
	void (*log)(void *owner, struct str lines); /* NULL: no decision log */
	void *log_owner;
};
/* Until each request has ended. result: of result_init. */
int world_run(const struct world_conf *conf, struct result *result, struct err *err);

#endif
