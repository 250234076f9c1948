/* A mergeable latency histogram: log-linear buckets (the idea of HdrHistogram; 16 to an octave), so a quantile is off by at most 1/32 of its
 * value; one microsecond to 268 s, above that it saturates. And a sliding window of it in slices. */
#ifndef HENG_CORE_HIST_H
#define HENG_CORE_HIST_H

#include "base/json.h"

#define HIST_SUB_BITS 4
#define HIST_OCTAVES  28
#define HIST_BUCKETS  ((HIST_OCTAVES - HIST_SUB_BITS + 1) << HIST_SUB_BITS)
#define HIST_SLICES   10

#define HIST_VALUE_MAX_US (((int64_t)1 << HIST_OCTAVES) - 1)

struct hist {
	uint64_t total_count;          /* always the sum of counts */
	uint64_t sum_us;               /* for the mean; saturates at INT64_MAX, which JSON readers can hold */
	uint32_t counts[HIST_BUCKETS]; /* a full one takes no more samples */
};
void hist_init(struct hist *hist);
void hist_feed(struct hist *hist, int64_t value_us); /* below 0 counts as 0, above HIST_VALUE_MAX_US as that */
void hist_merge(struct hist *into, const struct hist *from);
/* The middle of the bucket that holds the quantile (rank ceil(q*n)); -1 when empty. ppm: 990000 is P99. */
int64_t hist_quantile_us(const struct hist *hist, uint32_t quantile_ppm);
int64_t hist_mean_us(const struct hist *hist); /* -1 when empty */
size_t hist_bucket(int64_t value_us);
int64_t hist_bucket_floor_us(size_t bucket);
/* Sparse: {"sum_us":n,"buckets":[[index,count],...]} under the key. */
void hist_json(struct json *json, const char *key, const struct hist *hist);

/* The last HIST_SLICES slices of time, the one that is being filled among them; what is older falls out slice by slice. Time may stand still or
 * jump ahead; an instant before the newest slice counts as in it. */
struct hist_window {
	int64_t slice_us;
	int64_t slice_number; /* of the newest */
	struct hist slices[HIST_SLICES];
};
void hist_window_init(struct hist_window *window, int64_t window_us, int64_t now_us);
void hist_window_feed(struct hist_window *window, int64_t value_us, int64_t now_us);
void hist_window_read(const struct hist_window *window, int64_t now_us, struct hist *ret_hist);

#endif
