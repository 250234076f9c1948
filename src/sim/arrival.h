/* When the next request comes: an open loop, whatever became of the former ones. Poisson, or Poisson whose rate jumps between calm and bursts. */
#ifndef HENG_SIM_ARRIVAL_H
#define HENG_SIM_ARRIVAL_H

#include "base/rng.h"

struct arrival {
	double gap_ns[2];  /* mean gap in calm and in a burst */
	double stay_ns[2]; /* mean length of a calm and of a burst; 0 for calm: no bursts */
	unsigned state;
	double left_ns; /* of this state */
};
void arrival_poisson(struct arrival *arrival, double mean_gap_ns);
/* Bursts of mean length burst_ns begin each cycle_ns on average; in them the rate is factor times the mean. The calm's rate keeps the mean:
 * factor * burst_ns must not exceed cycle_ns. */
void arrival_bursty(struct arrival *arrival, double mean_gap_ns, double factor, double burst_ns, double cycle_ns);
int64_t arrival_gap_ns(struct arrival *arrival, struct rng *rng);

#endif
