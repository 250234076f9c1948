/* Random numbers as an argument: seeded by tests, from the kernel in production. xoshiro256** (Blackman, Vigna 2018).
 * Not for secrets: use rng_secret. */
#ifndef HENG_BASE_RNG_H
#define HENG_BASE_RNG_H

#include "base/base.h"

struct rng {
	uint64_t state[4];
};

void rng_seed(struct rng *rng, uint64_t seed); /* by splitmix64 */
void rng_seed_kernel(struct rng *rng);
uint64_t rng_u64(struct rng *rng);
uint64_t rng_below(struct rng *rng, uint64_t bound); /* 0..bound-1, unbiased; bound > 0 */
/* From getrandom(2): keys, nonces, incarnations. Aborts if the kernel cannot give any. */
void rng_secret(void *target, size_t size_bytes);

/* ULID (github.com/ulid/spec): 26 characters of Crockford base 32, time-ordered; target holds 27. */
#define ULID_SIZE 27
void ulid_make(int64_t wall_us, char target[ULID_SIZE]);
bool ulid_is_valid(const char *text, size_t size);

#endif
