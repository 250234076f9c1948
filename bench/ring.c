/* How fast the ring is built and read at 1,000 nodes (160,000 points), what one weight change moves, how even shares are. One line each. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/rng.h"
#include "core/ring.h"

#define NODE_COUNT 1000
#define KEY_COUNT  2000000
#define ROUNDS     5 /* the best counts: other programs only ever make it slower */

static struct ring_node nodes[NODE_COUNT];
static char ids[NODE_COUNT][16];

static struct ring *build(size_t node_count)
{
	struct ring *ring;
	struct err err = ERR_INIT;

	if (ring_build(nodes, node_count, &ring, &err) == 0)
		return ring;
	(void)fprintf(stderr, "bench/ring: %s\n", err.text);
	exit(1);
}

static void bench_build(void)
{
	int64_t best_us = INT64_MAX;
	size_t point_count = 0;

	for (int round = 0; round < ROUNDS; round++) {
		int64_t start_us = clock_mono_us();
		struct ring *ring = build(NODE_COUNT);

		best_us = min_i64(best_us, clock_mono_us() - start_us);
		point_count = ring_point_count(ring);
		ring_free(&ring);
	}
	(void)printf("ring: build, %d nodes, %zu points: %lld.%03lld ms\n", NODE_COUNT, point_count,
		     (long long)(best_us / 1000), (long long)(best_us % 1000));
}

static void bench_owner(size_t node_count)
{
	struct ring *ring = build(node_count);
	int64_t best_us = INT64_MAX;
	uint64_t sum = 0;
	struct rng rng;

	rng_seed(&rng, 1);
	for (int round = 0; round < ROUNDS; round++) {
		int64_t start_us = clock_mono_us();

		for (int i = 0; i < KEY_COUNT; i++)
			sum += (uint64_t)ring_owner(ring, rng_u64(&rng));
		best_us = min_i64(best_us, clock_mono_us() - start_us);
	}
	(void)printf("ring: look-up, %zu nodes: %lld.%lld ns (mean owner %llu)\n", node_count,
		     (long long)(best_us * 1000 / KEY_COUNT), (long long)(best_us * 10000 / KEY_COUNT % 10),
		     (unsigned long long)(sum / KEY_COUNT / ROUNDS));
	ring_free(&ring);
}

static void bench_candidates(void)
{
	struct ring *ring = build(NODE_COUNT);
	int64_t start_us = clock_mono_us();
	uint16_t got[5];
	uint64_t sum = 0;
	struct rng rng;

	rng_seed(&rng, 1);
	for (int i = 0; i < KEY_COUNT / 10; i++) {
		if (ring_candidates(ring, rng_u64(&rng), 5, got) == 5)
			sum += got[4];
	}
	(void)printf("ring: 5 candidates, %d nodes: %lld ns (mean fifth %llu)\n", NODE_COUNT,
		     (long long)((clock_mono_us() - start_us) * 1000 / (KEY_COUNT / 10)),
		     (unsigned long long)(sum / (KEY_COUNT / 10)));
	ring_free(&ring);
}

static void bench_weight_change(void)
{
	struct ring *before = build(NODE_COUNT), *after;
	unsigned to_count = 0, else_count = 0;
	struct rng rng;

	nodes[7].weight_milli = 2000;
	after = build(NODE_COUNT);
	nodes[7].weight_milli = 1000;
	rng_seed(&rng, 2);
	for (int i = 0; i < KEY_COUNT; i++) {
		uint64_t hash = rng_u64(&rng);
		int was = ring_owner(before, hash), is = ring_owner(after, hash);

		to_count += was != is && is == 7;
		else_count += was != is && is != 7;
	}
	(void)printf("ring: one weight from 1 to 2: %zu arcs added, %u of %d keys moved to that node (its new share "
		     "asks for %d), %u others\n",
		     ring_point_count(after) - ring_point_count(before), to_count, KEY_COUNT,
		     KEY_COUNT / (NODE_COUNT + 1), else_count);
	ring_free(&before);
	ring_free(&after);
}

static void bench_share(size_t node_count)
{
	static uint64_t owned[NODE_COUNT];
	struct ring *ring;
	uint64_t weight_sum = 0, worst = 0, sum = 0;
	struct rng rng;

	for (size_t i = 0; i < node_count; i++) {
		nodes[i].weight_milli = 1000 * (1 + (uint32_t)i % 4);
		weight_sum += nodes[i].weight_milli;
		owned[i] = 0;
	}
	ring = build(node_count);
	rng_seed(&rng, 3);
	for (int i = 0; i < 2 * KEY_COUNT; i++)
		owned[ring_owner(ring, rng_u64(&rng))]++;
	for (size_t i = 0; i < node_count; i++) {
		uint64_t fair = 2 * KEY_COUNT * (uint64_t)nodes[i].weight_milli / weight_sum;
		uint64_t off = (owned[i] > fair ? owned[i] - fair : fair - owned[i]) * 10000 / fair;

		worst = off > worst ? off : worst;
		sum += off;
	}
	for (size_t i = 0; i < node_count; i++)
		nodes[i].weight_milli = 1000;
	(void)printf("ring: share against weight, %zu nodes of weights 1 to 4: mean %llu.%02llu %% off, worst "
		     "%llu.%02llu %%\n",
		     node_count, (unsigned long long)(sum / node_count / 100),
		     (unsigned long long)(sum / node_count % 100), (unsigned long long)(worst / 100),
		     (unsigned long long)(worst % 100));
	ring_free(&ring);
}

int main(void)
{
	for (size_t i = 0; i < NODE_COUNT; i++) {
		(void)snprintf(ids[i], sizeof(ids[i]), "node-%zu", i);
		nodes[i] = (struct ring_node){ ids[i], 1000, NULL };
	}
	bench_build();
	bench_owner(NODE_COUNT);
	bench_owner(10);
	bench_candidates();
	bench_weight_change();
	bench_share(4);
	bench_share(10);
	bench_share(100);
	return 0;
}
