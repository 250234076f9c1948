/* Which key a request is for: Zipf's law over N keys, exactly. Rank r comes with a probability proportional to 1 / (r + 1)^exponent. */
#ifndef HENG_SIM_KEYS_H
#define HENG_SIM_KEYS_H

#include "base/rng.h"

struct keys {
	uint64_t count;
	double exponent; /* 0: all alike */
	double integral_first, integral_last, squeeze;
};
void keys_init(struct keys *keys, uint64_t count, double exponent); /* count > 0, exponent >= 0 */
uint64_t keys_draw(const struct keys *keys, struct rng *rng);       /* 0..count-1; 0 is the hottest */
uint64_t keys_hash(uint64_t rank);                                  /* what a router would make of the key */

#endif
