/* Finagle's peak EWMA in floating point as its authors have it; core/curve.h has heng's own in integers. */
#ifndef HENG_SIM_POLICY_PEAK_EWMA_H
#define HENG_SIM_POLICY_PEAK_EWMA_H

#include "base/base.h"

#define PEAK_EWMA_TAU_US 10000000.0
/* Of a node with requests under way but no answer yet, so that it is asked one at a time: Long.MaxValue >> 16. */
#define PEAK_EWMA_PENALTY ((double)(INT64_MAX >> 16))

struct peak_ewma {
	double cost_ns;
	int64_t stamp_us;
};
/* rtt above the cost: the cost is the rtt; else they are blended by the time that went by. */
void peak_ewma_feed(struct peak_ewma *peak, double rtt_ns, int64_t now_us);
/* (requests in flight + 1) times the cost as it has decayed until now. */
double peak_ewma_load(const struct peak_ewma *peak, uint32_t in_flight, int64_t now_us);

#endif
