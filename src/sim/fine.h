/* A latency histogram fine enough to compare policies that differ by a few per cent: log-linear, 256 buckets to an octave, so that a quantile is off
 * by at most 1/512 of its value. Nanoseconds, up to 2^40 (18 minutes); above that it saturates. */
#ifndef HENG_SIM_FINE_H
#define HENG_SIM_FINE_H

#include "base/base.h"

#define FINE_SUB_BITS 8
#define FINE_OCTAVES  40
#define FINE_BUCKETS  ((size_t)(FINE_OCTAVES - FINE_SUB_BITS + 1) << FINE_SUB_BITS)

struct fine {
	uint64_t total_count;
	int64_t max_ns;
	double sum_ns;
	uint64_t counts[FINE_BUCKETS];
};
void fine_init(struct fine *fine);
void fine_feed(struct fine *fine, int64_t value_ns); /* below 0 counts as 0 */
void fine_merge(struct fine *into, const struct fine *from);
/* The middle of the bucket that holds rank ceil(q * n), at most the greatest value; -1 when empty. ppm: 999000 is P99.9. */
int64_t fine_quantile_ns(const struct fine *fine, uint32_t quantile_ppm);
int64_t fine_mean_ns(const struct fine *fine); /* -1 when empty */

#endif
