/* Draws from distributions that several files need. */
#ifndef HENG_SIM_DRAW_H
#define HENG_SIM_DRAW_H

#include <math.h>

#include "base/rng.h"

/* Streams of random numbers, each for one purpose, so that no choice shifts another's; for draw_mix. */
enum draw_stream {
	DRAW_ARRIVALS = 1,
	DRAW_KEYS,
	DRAW_WORK,
	DRAW_RETRIES,       /* of each request that is tried again: its work */
	DRAW_LOSSES,        /* of each router: which reports it does not get */
	DRAW_OTHERS,        /* who takes the place of a node that failed */
	DRAW_POLICIES = 16, /* of each router: its policy's own */
};

/* 0 < x <= 1, so that its logarithm exists. */
static inline double draw_unit(struct rng *rng) { return ((double)(rng_u64(rng) >> 11) + 1.0) * 0x1p-53; }
static inline double draw_exponential(struct rng *rng, double mean) { return -mean * log(draw_unit(rng)); }
/* Box and Muller's; the second value is not kept, so that each draw takes the same two numbers of the generator. */
static inline double draw_normal(struct rng *rng)
{
	double radius = sqrt(-2.0 * log(draw_unit(rng)));
	return radius * cos(2.0 * M_PI * draw_unit(rng));
}
/* A number that depends on its arguments alone (splitmix64's mixing): for draws that must not depend on what was drawn before. */
static inline uint64_t draw_mix(uint64_t seed, uint64_t a, uint64_t b)
{
	uint64_t mixed = seed ^ (a * 0x9E3779B97F4A7C15U) ^ (b * 0xD1B54A32D192ED03U);
	mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9U;
	mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBU;
	return mixed ^ (mixed >> 31);
}

#endif
