/* A sample of a stream that favours what is new: forward decay (Cormode, Shkapenyuk, Srivastava, Xu, ICDE 2009), as in Codahale's and yammer's
 * ExponentiallyDecayingSample. Each value gets the priority e^(alpha * seconds) / u with u uniform in (0, 1]; those with the highest stay. */
#ifndef HENG_SIM_RESERVOIR_H
#define HENG_SIM_RESERVOIR_H

#include "base/rng.h"

#define RESERVOIR_SIZE  100
#define RESERVOIR_ALPHA 0.75

struct reservoir {
	size_t count;
	/* A heap by priority, the least first. Logarithms, so that nothing overflows and no rescaling is needed, however long it runs. */
	struct reservoir_item {
		double log_priority, value;
	} items[RESERVOIR_SIZE];
};
void reservoir_clear(struct reservoir *reservoir);
void reservoir_feed(struct reservoir *reservoir, double value, int64_t now_us, struct rng *rng);
/* At place (n + 1) / 2 of the sorted values, between two of them by a straight line; -1 when empty. */
double reservoir_median(const struct reservoir *reservoir);

#endif
