/* A token bucket: how many bytes may go now, so that they go at a rate. Pure: the time is an argument, the monotonic clock's. It begins empty and
 * holds at most BUCKET_BURST_US of the rate, so that no pause is made good by a burst longer than that. */
#ifndef HENG_BASE_BUCKET_H
#define HENG_BASE_BUCKET_H

#include "base/base.h"

#define BUCKET_BURST_US (250 * MSEC_US)
/* Below, a burst would not even hold 1 KiB; above, the sums would not fit. */
#define BUCKET_RATE_MIN_BYTES ((uint64_t)4 * KIB)
#define BUCKET_RATE_MAX_BYTES ((uint64_t)1024 * GIB)

struct bucket {
	uint64_t rate_bytes;       /* a second */
	uint64_t level_microbytes; /* bytes times 10^6: nothing is lost in rounding, however often it is asked */
	int64_t filled_us;
};

/* A rate outside of MIN and MAX is taken for the nearer of them. */
void bucket_init(struct bucket *bucket, uint64_t rate_bytes, int64_t now_us);
/* Takes up to want_bytes and returns how many it took. A clock that goes back gives nothing. */
uint64_t bucket_take(struct bucket *bucket, uint64_t want_bytes, int64_t now_us);
/* Taken, but not used after all. */
void bucket_give_back(struct bucket *bucket, uint64_t bytes);
/* How long until so many bytes (or as many as a burst holds) can be taken: 0 when they can now. */
int64_t bucket_wait_us(const struct bucket *bucket, uint64_t want_bytes, int64_t now_us);

#endif
