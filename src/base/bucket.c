#include "base/bucket.h"

#define MICRO ((uint64_t)1000000)

static uint64_t capacity(const struct bucket *bucket) { return bucket->rate_bytes * (uint64_t)BUCKET_BURST_US; }

void bucket_init(struct bucket *bucket, uint64_t rate_bytes, int64_t now_us)
{
	if (rate_bytes < BUCKET_RATE_MIN_BYTES)
		rate_bytes = BUCKET_RATE_MIN_BYTES;
	if (rate_bytes > BUCKET_RATE_MAX_BYTES)
		rate_bytes = BUCKET_RATE_MAX_BYTES;
	*bucket = (struct bucket){ .rate_bytes = rate_bytes, .filled_us = now_us };
}

static uint64_t level_at(const struct bucket *bucket, int64_t now_us)
{
	uint64_t passed_us, room = capacity(bucket) - bucket->level_microbytes;

	if (now_us <= bucket->filled_us)
		return bucket->level_microbytes;
	/* Capped first: the time since the last look may be anything. */
	passed_us = (uint64_t)min_i64(now_us - bucket->filled_us, BUCKET_BURST_US);
	return bucket->level_microbytes +
	       (passed_us * bucket->rate_bytes < room ? passed_us * bucket->rate_bytes : room);
}

uint64_t bucket_take(struct bucket *bucket, uint64_t want_bytes, int64_t now_us)
{
	uint64_t bytes;

	bucket->level_microbytes = level_at(bucket, now_us);
	bucket->filled_us = max_i64(bucket->filled_us, now_us);
	bytes = bucket->level_microbytes / MICRO;
	if (bytes > want_bytes)
		bytes = want_bytes;
	bucket->level_microbytes -= bytes * MICRO;
	return bytes;
}

void bucket_give_back(struct bucket *bucket, uint64_t bytes)
{
	uint64_t room = capacity(bucket) - bucket->level_microbytes;

	bucket->level_microbytes += bytes < room / MICRO ? bytes * MICRO : room;
}

int64_t bucket_wait_us(const struct bucket *bucket, uint64_t want_bytes, int64_t now_us)
{
	uint64_t level = level_at(bucket, now_us), whole = capacity(bucket), need;

	need = want_bytes < whole / MICRO ? want_bytes * MICRO : whole / MICRO * MICRO;
	return need <= level ? 0 : (int64_t)((need - level + bucket->rate_bytes - 1) / bucket->rate_bytes);
}
