#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/route.h"

static struct ring *ring_of(const char *const *ids, size_t count)
{
	struct ring_node nodes[8];
	struct ring *ring = NULL;
	struct err err = ERR_INIT;

	assert_true(count <= COUNT_OF(nodes));
	for (size_t i = 0; i < count; i++)
		nodes[i] = (struct ring_node){ .id = ids[i], .weight_milli = 1000 };
	assert_int_equal(ring_build(nodes, count, &ring, &err), 0);
	return ring;
}

static void test_nothing(void **state)
{
	struct route_builder *builder = route_builder_new(0, 0);
	struct route *route = route_builder_end(&builder, 7, 9);

	(void)state;
	assert_null(builder);
	assert_int_equal(route->version, 7);
	assert_int_equal(route->built_wall_us, 9);
	assert_int_equal(route->set_count, 0);
	assert_int_equal(route->candidate_count, 0);
	assert_int_equal(route->node_limit, 0);
	route_free(&route);
	assert_null(route);
	route_free(&route);
}

/* Three sets: one that nobody serves, one with a ring and some out, one that shares nodes with it. */
static void test_sets_in_the_order_of_decisions(void **state)
{
	static const char *const ids[] = { "c", "a", "d", "b" };
	static const uint16_t ring_nodes[] = { 2, 0, 3, 1 }, node_indexes[] = { 40, 41, 42, 43 }, others[] = { 42, 7 };
	static const struct score_output outputs[] = {
		{ .weight_milli = 100, .start_ppm = 100000, .score_ppm = 100000 },
		{ .weight_milli = 0, .start_ppm = PPM, .score_ppm = 950000 },
		{ .weight_milli = 5, .start_ppm = PPM, .score_ppm = 0 },
		{ .weight_milli = 900, .start_ppm = PPM, .score_ppm = 900000 },
	};
	struct decision *decision = calloc(1, sizeof(*decision));
	struct ring *ring = ring_of(ids, COUNT_OF(ids));
	struct route_builder *builder = route_builder_new(3, 10);
	const struct route_candidate *candidates;
	const struct route_set *set;
	struct route *route;

	(void)state;
	assert_non_null(decision);
	decision->reason = REASON_none;
	route_builder_add(builder, decision, outputs, node_indexes, 4, NULL, NULL);
	decision->order_count = 3;
	decision->band_count = 2;
	decision->reason = REASON_held_by_hysteresis;
	memcpy(decision->order, (const uint16_t[]){ 1, 3, 0 }, 3 * sizeof(uint16_t));
	route_builder_add(builder, decision, outputs, node_indexes, 4, ring, ring_nodes);
	decision->order_count = 1;
	decision->band_count = 1;
	decision->order[0] = 0;
	route_builder_add(builder, decision, outputs, others, 2, NULL, NULL);
	route = route_builder_end(&builder, 1, 2);

	assert_int_equal(route->set_count, 3);
	assert_int_equal(route->candidate_count, 4);
	assert_int_equal(route->node_limit, 44);
	set = &route->sets[0];
	assert_int_equal(set->serving_count, 0);
	assert_int_equal(set->reason, REASON_none);
	assert_null(set->ring);

	set = &route->sets[1];
	candidates = &route->candidates[set->first];
	assert_int_equal(set->serving_count, 3);
	assert_int_equal(set->band_count, 2);
	assert_int_equal(set->weighted_count, 2);
	assert_int_equal(set->weight_total_milli, 1000);
	assert_int_equal(set->reason, REASON_held_by_hysteresis);
	assert_int_equal(candidates[0].node_index, 41);
	assert_int_equal(candidates[0].input_index, 1);
	assert_int_equal(candidates[0].weight_inverse, 0);
	assert_int_equal(candidates[0].score_ppm, 950000);
	assert_int_equal(candidates[1].node_index, 43);
	assert_int_equal(candidates[1].weight_before_milli, 0);
	assert_int_equal(candidates[1].weight_inverse, (1ULL << 32) / 900);
	assert_int_equal(candidates[2].weight_before_milli, 900);
	assert_int_equal(candidates[2].start_ppm, 100000);
	assert_int_equal(set->start_count, 1);
	assert_int_equal(route->starting[set->start_first], 2);
	/* The ring's nodes c a d b are the inputs 2 0 3 1, of which 2 does not serve. */
	assert_ptr_equal(set->ring, ring);
	assert_memory_equal(&route->ring_candidates[set->ring_first],
			    ((const uint16_t[]){ ROUTE_NO_CANDIDATE, 2, 1, 0 }), 4 * sizeof(uint16_t));

	set = &route->sets[2];
	assert_int_equal(set->first, 3);
	assert_int_equal(route->candidates[3].node_index, 42);
	assert_int_equal(route->starting[set->start_first], 0);
	route_free(&route);
	ring_free(&ring);
	free(decision);
}

static void test_what_is_recorded_gives_the_same(void **state)
{
	static const char *const ids[] = { "a", "b" };
	static const struct route_candidate recorded[] = {
		{ .node_index = 3, .weight_milli = 7, .start_ppm = PPM, .score_ppm = 5 },
		/* What is derived is not taken over. */
		{ .node_index = 1, .weight_milli = 2, .start_ppm = 1, .weight_before_milli = 99, .weight_inverse = 99 },
	};
	struct ring *ring = ring_of(ids, 2);
	struct route_builder *builder = route_builder_new(1, 2);
	struct route *route;

	(void)state;
	route_builder_add_candidates(builder, recorded, 2, 1, REASON_first, ring,
				     (const uint16_t[]){ ROUTE_NO_CANDIDATE, 1 });
	route = route_builder_end(&builder, 1, 2);
	assert_int_equal(route->node_limit, 4);
	assert_int_equal(route->sets[0].weight_total_milli, 9);
	assert_int_equal(route->sets[0].start_count, 1);
	assert_int_equal(route->candidates[1].weight_before_milli, 7);
	assert_int_equal(route->candidates[1].weight_inverse, 1ULL << 31);
	assert_int_equal(route->ring_candidates[0], ROUTE_NO_CANDIDATE);
	assert_int_equal(route->ring_candidates[1], 1);
	route_free(&route);
	ring_free(&ring);
}

/* However large the configured weights: proportions stay, nobody's weight becomes 0, sums do not overflow. */
static void test_large_weights_are_halved_together(void **state)
{
	static const struct {
		uint32_t given[4], made[4];
	} rows[] = {
		{ { 1, 2, 3, 1u << 24 }, { 1, 2, 3, 1u << 24 } },
		{ { 0, 1, 4, 1u << 26 }, { 0, 1, 1, 1u << 24 } },
		{ { UINT32_MAX, UINT32_MAX, UINT32_MAX / 2, 256 },
		  { (1u << 24) - 1, (1u << 24) - 1, (1u << 23) - 1, 1 } },
	};

	(void)state;
	for (size_t row = 0; row < COUNT_OF(rows); row++) {
		struct route_builder *builder = route_builder_new(1, 4);
		struct route_candidate candidates[4] = { 0 };
		struct route *route;

		for (size_t i = 0; i < 4; i++)
			candidates[i] = (struct route_candidate){ .weight_milli = rows[row].given[i],
								  .start_ppm = PPM };
		route_builder_add_candidates(builder, candidates, 4, 4, REASON_first, NULL, NULL);
		route = route_builder_end(&builder, 1, 1);
		for (size_t i = 0; i < 4; i++)
			assert_int_equal(route->candidates[i].weight_milli, rows[row].made[i]);
		route_free(&route);
	}
}

/* A node whose score is low may stand for much: both are halved alike, and neither becomes 0. */
static void test_what_it_stands_for_is_halved_too(void **state)
{
	static const struct route_candidate candidates[] = {
		{ .weight_milli = 1, .standing_milli = 1u << 26 },
		{ .weight_milli = 4000, .standing_milli = 3 },
		{ .weight_milli = 0, .standing_milli = 0 },
	};
	struct route_builder *builder = route_builder_new(1, 3);
	struct route *route;

	(void)state;
	route_builder_add_candidates(builder, candidates, 3, 3, REASON_first, NULL, NULL);
	route = route_builder_end(&builder, 1, 1);
	assert_int_equal(route->candidates[0].weight_milli, 1);
	assert_int_equal(route->candidates[0].standing_milli, 1u << 24);
	assert_int_equal(route->candidates[0].standing_inverse, 256);
	assert_int_equal(route->candidates[1].weight_milli, 1000);
	assert_int_equal(route->candidates[1].standing_milli, 1);
	assert_int_equal(route->candidates[2].standing_inverse, 0);
	route_free(&route);
}

static void test_a_full_set_of_the_largest_weights(void **state)
{
	static struct route_candidate candidates[SCORE_SET_MAX];
	struct route_builder *builder = route_builder_new(1, SCORE_SET_MAX);
	uint64_t total = 0;
	struct route *route;

	(void)state;
	for (size_t i = 0; i < SCORE_SET_MAX; i++)
		candidates[i] = (struct route_candidate){ .node_index = (uint16_t)i, .weight_milli = UINT32_MAX };
	route_builder_add_candidates(builder, candidates, SCORE_SET_MAX, SCORE_SET_MAX, REASON_first, NULL, NULL);
	route = route_builder_end(&builder, 1, 1);
	for (size_t i = 0; i < SCORE_SET_MAX; i++) {
		assert_int_equal(route->candidates[i].weight_before_milli, total);
		total += route->candidates[i].weight_milli;
	}
	assert_int_equal(route->sets[0].weight_total_milli, total);
	assert_true(total <= ROUTE_WEIGHT_TOTAL_MAX_MILLI);
	assert_int_equal(route->sets[0].start_count, SCORE_SET_MAX);
	route_free(&route);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nothing),
		cmocka_unit_test(test_sets_in_the_order_of_decisions),
		cmocka_unit_test(test_what_is_recorded_gives_the_same),
		cmocka_unit_test(test_large_weights_are_halved_together),
		cmocka_unit_test(test_what_it_stands_for_is_halved_too),
		cmocka_unit_test(test_a_full_set_of_the_largest_weights),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
