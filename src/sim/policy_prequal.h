/* Prequal's probe pool: what is known of some replicas of one set, how long it may be used, and who is chosen by it (Wydrowski, Kleinberg, Rumble,
 * Archer, NSDI 2024). */
#ifndef HENG_SIM_POLICY_PREQUAL_H
#define HENG_SIM_POLICY_PREQUAL_H

#include "base/rng.h"

#define PREQUAL_PROBES     3 /* a query */
#define PREQUAL_REMOVES    1 /* a query */
#define PREQUAL_POOL_MAX   16
#define PREQUAL_AGE_US     SEC_US
#define PREQUAL_DELTA      1.0
#define PREQUAL_HOT_SHARE  0.84 /* Q_RIF = 2^-0.25 */
#define PREQUAL_SEEN_MAX   64   /* RIFs of the last probes, for their quantile */
#define PREQUAL_USES_NEVER UINT32_MAX

struct prequal_probe {
	uint16_t node;
	uint32_t in_flight;
	int64_t latency_ns, received_us;
	uint32_t uses_left;
};
struct prequal_pool {
	struct prequal_probe probes[PREQUAL_POOL_MAX]; /* in the order they were added */
	size_t count;
	bool removes_worst; /* whose turn it is */
	/* In the order they came, and sorted. */
	uint32_t seen[PREQUAL_SEEN_MAX], seen_sorted[PREQUAL_SEEN_MAX];
	size_t seen_count, seen_next;
};
/* max(1, (1 + delta) / ((1 - m/n) * probes - removes)); infinite when probes cannot keep up with removals, as in a set hardly larger than the pool. */
double prequal_reuse(size_t replica_count);
/* Keeps the newest probe of a node, and the newest PREQUAL_POOL_MAX. */
void prequal_add(struct prequal_pool *pool, const struct prequal_probe *probe);
/* A RIF above this is hot; UINT32_MAX before any was seen. */
uint32_t prequal_hot_above(const struct prequal_pool *pool);
/* The place in the pool: the cold one with the least latency; when all are hot the one with the least RIF; -1 when fewer than two are there. */
int prequal_select(const struct prequal_pool *pool);
/* Counts the use: one more in flight there, one use less, gone at the last. */
void prequal_use(struct prequal_pool *pool, size_t place);
/* One goes at each query: by turns the oldest, and the worst: the hot one with the most in flight, else the one with the greatest latency. */
void prequal_remove(struct prequal_pool *pool);
void prequal_drop(struct prequal_pool *pool, size_t place);

#endif
