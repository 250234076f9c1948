/* The order that Cassandra's dynamic snitch puts replicas in. */
#ifndef HENG_SIM_POLICY_SNITCH_H
#define HENG_SIM_POLICY_SNITCH_H

#include "base/base.h"

#define SNITCH_BADNESS 0.1

/* scores: of the replicas in their static order, lower is better, 0 for one without samples. Returns the place in that order of the one that is
 * asked first: place 0 as long as no replica is worse than the one at its place by score times 1 + badness; else the one with the lowest score, the
 * first of equals. `sorted` is room for count numbers. */
size_t snitch_first(const double *scores, size_t count, double badness, double *sorted);
/* Median latencies to scores: each by the greatest (at least 1), plus severity. median < 0: no samples, score 0. */
void snitch_scores(const double *medians, const double *severities, size_t count, double *ret_scores);

#endif
