/* The way of a request in the simulated world: from its arrival at a router to a node and back, by the router's policy, with a timeout and one retry.
 * Each function is a happening (world_state.h). */
#ifndef HENG_SIM_REQUEST_H
#define HENG_SIM_REQUEST_H

#include "sim/world_state.h"

void request_put_next(struct world *world); /* sees to the next arrival, unless all have come */
void request_arrive(struct world *world);
void request_release(struct world *world, size_t router, size_t set); /* those held back that may go by now */
void request_reach(struct world *world, uint32_t flight);             /* its server */
void request_finish(struct world *world, const struct event *event);
void request_answer(struct world *world, uint32_t flight); /* back at its router */
void request_time_out(struct world *world);                /* those that are due, if any */
/* For server_crash: the router learns it at once, or by the timeout. owner: the world. */
void request_crash(void *owner, const struct server_job *job);
void request_vanish(void *owner, const struct server_job *job);

#endif
