/* What the nodes of the simulated world tell beside answers: reports to all routers, and answers to a router's probes. Each function but the first
 * is a happening (world_state.h). */
#ifndef HENG_SIM_TELL_H
#define HENG_SIM_TELL_H

#include "sim/world_state.h"

void tell_ask(struct world *world, size_t router, size_t set); /* whom the policy wants to probe now; it has `probes` */
void tell_asked(struct world *world, uint32_t probe);
void tell_told(struct world *world, uint32_t probe);
void tell_first(struct world *world, size_t node); /* sees to the node's first report */
void tell_due(struct world *world, size_t node);
void tell_reported(struct world *world, uint32_t mail);

#endif
