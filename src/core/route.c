#include "core/route.h"

/* Lives behind the route it fills, in the same block: the route's owner frees both. */
struct route_builder {
	struct route *route;
	size_t set_limit, candidate_limit;
	size_t ring_count, start_count; /* filled so far */
};

/* Every array starts where any type may. */
static size_t padded(size_t size_bytes)
{
	size_t unit = _Alignof(max_align_t);

	return (size_bytes + unit - 1) / unit * unit;
}

struct route_builder *route_builder_new(size_t set_count, size_t candidate_count)
{
	size_t route_bytes = padded(sizeof(struct route)), builder_bytes = padded(sizeof(struct route_builder));
	size_t sets_bytes, candidates_bytes, offsets_bytes;
	struct route_builder *builder;
	struct route *route;
	char *block;

	MUST(set_count <= UINT32_MAX && candidate_count <= UINT32_MAX);
	sets_bytes = padded(set_count * sizeof(struct route_set));
	candidates_bytes = padded(candidate_count * sizeof(struct route_candidate));
	offsets_bytes = padded(candidate_count * sizeof(uint16_t));
	block = must_alloc(route_bytes + builder_bytes + sets_bytes + candidates_bytes + 2 * offsets_bytes);
	route = (struct route *)(void *)block;
	*route = (struct route){ 0 };
	block += route_bytes;
	builder = (struct route_builder *)(void *)block;
	*builder = (struct route_builder){ .route = route, .set_limit = set_count, .candidate_limit = candidate_count };
	block += builder_bytes;
	route->sets = (struct route_set *)(void *)block;
	block += sets_bytes;
	route->candidates = (struct route_candidate *)(void *)block;
	block += candidates_bytes;
	route->ring_candidates = (uint16_t *)(void *)block;
	block += offsets_bytes;
	route->starting = (uint16_t *)(void *)block;
	return builder;
}

/* How often the weights must be halved. A weight above 0 never becomes 0, which can only add a little to the sum again: the ceiling of the sum
 * leaves room for that. */
static unsigned weight_shift(const struct route_candidate *candidates, size_t count)
{
	uint64_t total = 0;
	size_t most = 0;
	unsigned shift = 0;

	for (size_t i = 0; i < count; i++) {
		total += candidates[i].weight_milli;
		most = max_size(most, max_size(candidates[i].weight_milli, candidates[i].standing_milli));
	}
	while (most >> shift > ROUTE_WEIGHT_MAX_MILLI || total >> shift > ROUTE_WEIGHT_TOTAL_MAX_MILLI)
		shift++;
	return shift;
}

static uint32_t weight_shifted(uint32_t weight_milli, unsigned shift)
{
	return weight_milli > 0 && weight_milli >> shift == 0 ? 1 : weight_milli >> shift;
}

static uint64_t inverse_of(uint32_t weight_milli) { return weight_milli > 0 ? ((uint64_t)1 << 32) / weight_milli : 0; }

/* Works out what the candidates' own facts do not say, for the set's candidates in place. */
static void set_complete(struct route_builder *builder, struct route_set *set)
{
	struct route *route = builder->route;
	struct route_candidate *candidates = &route->candidates[set->first];
	unsigned shift = weight_shift(candidates, set->serving_count);
	uint32_t total = 0;

	for (size_t i = 0; i < set->serving_count; i++) {
		struct route_candidate *candidate = &candidates[i];

		candidate->weight_before_milli = total;
		route->node_limit = max_size(route->node_limit, (size_t)candidate->node_index + 1);
		candidate->weight_milli = weight_shifted(candidate->weight_milli, shift);
		candidate->weight_inverse = inverse_of(candidate->weight_milli);
		candidate->standing_milli = weight_shifted(candidate->standing_milli, shift);
		candidate->standing_inverse = inverse_of(candidate->standing_milli);
		if (candidate->weight_milli == 0)
			continue;
		total += candidate->weight_milli;
		set->weighted_count++;
		if (candidate->start_ppm < PPM) {
			route->starting[builder->start_count++] = (uint16_t)i;
			set->start_count++;
		}
	}
	set->weight_total_milli = total;
}

static struct route_set *set_begin(struct route_builder *builder, size_t serving_count, size_t band_count,
				   enum reason reason)
{
	struct route *route = builder->route;
	struct route_set *set = &route->sets[route->set_count];

	MUST(route->set_count < builder->set_limit);
	MUST(serving_count <= SCORE_SET_MAX && band_count <= serving_count);
	MUST(serving_count <= builder->candidate_limit - route->candidate_count);
	*set = (struct route_set){
		.first = (uint32_t)route->candidate_count,
		.serving_count = (uint16_t)serving_count,
		.band_count = (uint16_t)band_count,
		.start_first = (uint32_t)builder->start_count,
		.reason = reason,
	};
	route->set_count++;
	route->candidate_count += serving_count;
	return set;
}

/* Room for the ring's nodes in ring_candidates, which the caller fills. */
static uint16_t *set_ring(struct route_builder *builder, struct route_set *set, const struct ring *ring)
{
	size_t node_count = ring_node_count(ring);

	MUST(node_count <= builder->candidate_limit - builder->ring_count);
	set->ring = ring;
	set->ring_first = (uint32_t)builder->ring_count;
	builder->ring_count += node_count;
	return &builder->route->ring_candidates[set->ring_first];
}

void route_builder_add(struct route_builder *builder, const struct decision *decision,
		       const struct score_output *outputs, const uint16_t *node_indexes, size_t count,
		       const struct ring *ring, const uint16_t *ring_nodes)
{
	struct route_set *set = set_begin(builder, decision->order_count, decision->band_count, decision->reason);
	struct route_candidate *candidates = &builder->route->candidates[set->first];

	for (size_t i = 0; i < decision->order_count; i++) {
		uint16_t input = decision->order[i];
		const struct score_output *output = &outputs[input];

		MUST(input < count);
		candidates[i] = (struct route_candidate){
			.node_index = node_indexes[input],
			.input_index = input,
			.weight_milli = output->weight_milli,
			.standing_milli = output->standing_milli,
			.start_ppm = (uint32_t)min_i64(max_i64(output->start_ppm, 0), PPM),
			.score_ppm = (int32_t)min_i64(max_i64(output->score_ppm, 0), INT32_MAX),
		};
	}
	set_complete(builder, set);
	if (ring) {
		uint16_t *offsets = set_ring(builder, set, ring), offset_of_input[SCORE_SET_MAX];
		size_t node_count = ring_node_count(ring);

		MUST(count <= SCORE_SET_MAX);
		memset(offset_of_input, 0xff, count * sizeof(*offset_of_input));
		for (size_t i = 0; i < set->serving_count; i++)
			offset_of_input[candidates[i].input_index] = (uint16_t)i;
		for (size_t i = 0; i < node_count; i++) {
			MUST(ring_nodes[i] < count);
			offsets[i] = offset_of_input[ring_nodes[i]];
		}
	}
}

void route_builder_add_candidates(struct route_builder *builder, const struct route_candidate *candidates, size_t count,
				  size_t band_count, enum reason reason, const struct ring *ring,
				  const uint16_t *ring_offsets)
{
	struct route_set *set = set_begin(builder, count, band_count, reason);

	if (count > 0)
		memcpy(&builder->route->candidates[set->first], candidates, count * sizeof(*candidates));
	set_complete(builder, set);
	if (ring) {
		uint16_t *offsets = set_ring(builder, set, ring);
		size_t node_count = ring_node_count(ring);

		for (size_t i = 0; i < node_count; i++) {
			MUST(ring_offsets[i] < count || ring_offsets[i] == ROUTE_NO_CANDIDATE);
			offsets[i] = ring_offsets[i];
		}
	}
}

struct route *route_builder_end(struct route_builder **builder, uint64_t version, int64_t wall_us)
{
	struct route *route = (*builder)->route;

	route->version = version;
	route->built_wall_us = wall_us;
	*builder = NULL;
	return route;
}

void route_free(struct route **route)
{
	free(*route);
	*route = NULL;
}
