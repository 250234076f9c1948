/* A server's own estimate of its latency, as Prequal's replicas make it (Wydrowski et al., NSDI 2024, section 4): the median of its last few
 * latencies of requests that arrived when as many were in flight as are now, or at the nearest such number that has any. */
#ifndef HENG_SIM_RECENT_H
#define HENG_SIM_RECENT_H

#include "base/base.h"

#define RECENT_LOADS   128 /* what is above counts as the last */
#define RECENT_SAMPLES 9

struct recent {
	struct recent_row {
		int64_t samples_ns[RECENT_SAMPLES];
		uint8_t count, next;
	} rows[RECENT_LOADS];
};
void recent_init(struct recent *recent);
void recent_feed(struct recent *recent, uint32_t load_count, int64_t latency_ns);
int64_t recent_median_ns(const struct recent *recent, uint32_t load_count); /* 0: never fed */

#endif
