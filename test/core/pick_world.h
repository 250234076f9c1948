/* A small world to pick in: nodes with weights, of which some serve, one route table, one picker, and requests that end after a fixed time. */
#ifndef HENG_TEST_PICK_WORLD_H
#define HENG_TEST_PICK_WORLD_H

#include "core/pick.h"

#define WORLD_NODES_MAX       100
#define WORLD_FLIGHT_MAX      4096
#define RING_WEIGHT_MAX_MILLI 5000 /* a ring costs time by its points */

struct world_node {
	uint32_t weight_milli; /* on the ring too */
	uint32_t start_ppm;
	bool is_out; /* may not serve */
};
struct world {
	size_t node_count;
	struct world_node nodes[WORLD_NODES_MAX];
	size_t band_count; /* 0: all that serve */
	char ids[WORLD_NODES_MAX][32];
	struct ring *ring;
	struct route *route;
	struct pick pick;
	int64_t now_us;
	/* Requests under way, the oldest first; all take equally long. */
	uint16_t flight[WORLD_FLIGHT_MAX];
	size_t sent_count, done_count;
};

/* All of weight 1000, established and serving. world_publish makes the route. */
static inline void world_init(struct world *world, size_t node_count)
{
	memset(world, 0, sizeof(*world));
	world->node_count = node_count;
	world->now_us = SEC_US;
	for (size_t i = 0; i < node_count; i++) {
		world->nodes[i] = (struct world_node){ .weight_milli = 1000, .start_ppm = PPM };
		(void)snprintf(world->ids[i], sizeof(world->ids[i]), "node-%zu", i);
	}
}

/* (Re)makes the ring, which knows nodes and weights but not who serves, and a route of one set in which the last node is the first candidate. */
static inline void world_publish(struct world *world)
{
	struct route_builder *builder = route_builder_new(1, world->node_count);
	struct route_candidate candidates[WORLD_NODES_MAX];
	struct ring_node ring_nodes[WORLD_NODES_MAX];
	uint16_t offsets[WORLD_NODES_MAX];
	struct err err = ERR_INIT;
	size_t count = 0;

	ring_free(&world->ring);
	route_free(&world->route);
	for (size_t i = 0; i < world->node_count; i++)
		ring_nodes[i] = (struct ring_node){
			world->ids[i], (uint32_t)min_i64(world->nodes[i].weight_milli, RING_WEIGHT_MAX_MILLI), NULL
		};
	assert_int_equal(ring_build(ring_nodes, world->node_count, &world->ring, &err), 0);
	for (size_t i = world->node_count; i-- > 0;) {
		const struct world_node *node = &world->nodes[i];

		offsets[i] = ROUTE_NO_CANDIDATE;
		if (node->is_out)
			continue;
		offsets[i] = (uint16_t)count;
		candidates[count++] = (struct route_candidate){
			.node_index = (uint16_t)i,
			.input_index = (uint16_t)i,
			.weight_milli = (uint32_t)((uint64_t)node->weight_milli * node->start_ppm / PPM),
			.standing_milli = (uint32_t)((uint64_t)node->weight_milli * node->start_ppm / PPM),
			.start_ppm = node->start_ppm,
		};
	}
	route_builder_add_candidates(builder, candidates, count,
				     world->band_count ? min_size(world->band_count, count) : count, REASON_first,
				     world->ring, offsets);
	world->route = route_builder_end(&builder, 1, 1);
}

static inline void world_pick(struct world *world, enum pick_strategy strategy, uint64_t seed)
{
	pick_init(&world->pick, strategy, world->node_count, 1, seed);
}

static inline void world_fini(struct world *world)
{
	pick_fini(&world->pick);
	route_free(&world->route);
	ring_free(&world->ring);
}

/* The chosen node's number, or -1. */
static inline int world_choose(struct world *world, const struct pick_call *call, enum reason *ret_reason)
{
	int offset = pick_next(&world->pick, world->route, 0, call, ret_reason);

	if (offset < 0)
		return -1;
	assert_true(offset < world->route->sets[0].serving_count);
	return world->route->candidates[world->route->sets[0].first + (size_t)offset].node_index;
}

/* A first try for a key. */
static inline int world_next(struct world *world, uint64_t key_hash, enum reason *ret_reason)
{
	const struct pick_call call = { .key_hash = key_hash, .now_us = world->now_us };

	return world_choose(world, &call, ret_reason);
}

/* One request each 10 us in a closed loop: when `limit_count` are under way the oldest must end first. Counts the choices by node. */
static inline void world_run(struct world *world, size_t request_count, size_t limit_count, unsigned *counts)
{
	struct rng rng;

	rng_seed(&rng, 5);
	assert_true(limit_count < WORLD_FLIGHT_MAX);
	for (size_t i = 0; i < request_count; i++) {
		enum reason reason;
		int node;

		world->now_us += 10;
		if (world->sent_count - world->done_count >= limit_count)
			pick_done(&world->pick, world->flight[world->done_count++ % WORLD_FLIGHT_MAX], false, 1000000,
				  world->now_us);
		node = world_next(world, rng_u64(&rng), &reason);
		assert_true(node >= 0);
		assert_false(world->nodes[node].is_out);
		pick_sent(&world->pick, (uint16_t)node, world->now_us);
		world->flight[world->sent_count++ % WORLD_FLIGHT_MAX] = (uint16_t)node;
		counts[node]++;
	}
}

#endif
