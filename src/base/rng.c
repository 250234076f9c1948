#include "base/rng.h"

#include <errno.h>
#include <sys/random.h>

static uint64_t rotate_left(uint64_t value, int bits) { return (value << bits) | (value >> (64 - bits)); }

void rng_seed(struct rng *rng, uint64_t seed)
{
	for (size_t i = 0; i < COUNT_OF(rng->state); i++) {
		uint64_t mixed;

		seed += 0x9E3779B97F4A7C15U;
		mixed = seed;
		mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9U;
		mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBU;
		rng->state[i] = mixed ^ (mixed >> 31);
	}
}

void rng_seed_kernel(struct rng *rng)
{
	uint64_t seed;

	rng_secret(&seed, sizeof(seed));
	rng_seed(rng, seed);
}

uint64_t rng_u64(struct rng *rng)
{
	uint64_t *s = rng->state;
	uint64_t value = rotate_left(s[1] * 5, 7) * 9;
	uint64_t kept = s[1] << 17;

	s[2] ^= s[0];
	s[3] ^= s[1];
	s[1] ^= s[2];
	s[0] ^= s[3];
	s[2] ^= kept;
	s[3] = rotate_left(s[3], 45);
	return value;
}

uint64_t rng_below(struct rng *rng, uint64_t bound)
{
	uint64_t uneven, value;

	MUST(bound > 0);
	/* The first 2^64 mod bound values would make the low remainders likelier: they are drawn again. */
	uneven = (0 - bound) % bound;
	do {
		value = rng_u64(rng);
	} while (value < uneven);
	return value % bound;
}

void rng_secret(void *target, size_t size_bytes)
{
	unsigned char *next = target;

	while (size_bytes > 0) {
		ssize_t count = getrandom(next, size_bytes, 0);

		if (count < 0 && errno == EINTR)
			continue;
		MUST(count > 0);
		next += count;
		size_bytes -= (size_t)count;
	}
}

static const char CROCKFORD[] = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";

#define ULID_TIME_CHARS  10
#define ULID_TIME_MAX_MS (((int64_t)1 << 48) - 1)

void ulid_make(int64_t wall_us, char target[ULID_SIZE])
{
	uint64_t time_ms = (uint64_t)min_i64(max_i64(wall_us / MSEC_US, 0), ULID_TIME_MAX_MS);
	unsigned char noise[ULID_SIZE - 1 - ULID_TIME_CHARS];

	for (size_t i = ULID_TIME_CHARS; i > 0; i--) {
		target[i - 1] = CROCKFORD[time_ms & 31];
		time_ms >>= 5;
	}
	/* 16 characters of 5 bits are the 80 random bits; the other 3 bits of each byte are left out. */
	rng_secret(noise, sizeof(noise));
	for (size_t i = 0; i < sizeof(noise); i++)
		target[ULID_TIME_CHARS + i] = CROCKFORD[noise[i] & 31];
	target[ULID_SIZE - 1] = '\0';
}

bool ulid_is_valid(const char *text, size_t size)
{
	if (size != ULID_SIZE - 1)
		return false;
	/* Ten characters hold 50 bits, the time only 48. */
	if (text[0] > '7')
		return false;
	for (size_t i = 0; i < size; i++) {
		if (text[i] == '\0' || !strchr(CROCKFORD, text[i]))
			return false;
	}
	return true;
}
