/* The table that data threads read: an immutable, versioned snapshot of all sets, in a few flat arrays. Built by the control thread, published by
 * pointer, freed when the last reader is done (the owner's business). */
#ifndef HENG_CORE_ROUTE_H
#define HENG_CORE_ROUTE_H

#include "core/judge.h"
#include "core/ring.h"

#define ROUTE_NO_CANDIDATE UINT16_MAX
/* Weights of a set above these are halved together until they fit, so that inverses and sums stay exact enough. */
#define ROUTE_WEIGHT_MAX_MILLI       (1u << 24)
#define ROUTE_WEIGHT_TOTAL_MAX_MILLI (1u << 31)

struct route_candidate {
	/* The process's own small number of a node, the same in all sets: index of struct pick_load. */
	uint16_t node_index;
	uint16_t input_index;  /* its place among the set's candidates as they were given */
	uint32_t weight_milli; /* effective; 0: gets nothing unless selected by score */
	uint32_t start_ppm;    /* below PPM: in slow start */
	int32_t score_ppm;
	uint32_t weight_before_milli; /* the sum of those before it in the set: a weighted draw is a binary search */
	uint64_t weight_inverse;      /* 2^32 / weight_milli, so that nobody divides per request; 0 for weight 0 */
	uint32_t standing_milli;      /* the weight without load and latency: see struct score_output */
	uint64_t standing_inverse;
};
struct route_set {
	uint32_t first; /* into candidates: only those that may serve, in the order of struct decision */
	uint16_t serving_count, band_count;
	uint16_t weighted_count; /* of the serving ones, those with a weight above 0 */
	uint16_t start_count;    /* and of these, those in slow start */
	uint32_t start_first;    /* into starting */
	uint32_t weight_total_milli;
	enum reason reason;      /* why the first is first */
	const struct ring *ring; /* over the set's candidates, or NULL; belongs to the caller and outlives the route */
	/* Into ring_candidates: ring node index -> candidate offset in the set, or ROUTE_NO_CANDIDATE. */
	uint32_t ring_first;
};
struct route {
	uint64_t version;
	int64_t built_wall_us;
	size_t set_count, candidate_count;
	size_t node_limit; /* above every node_index in it */
	struct route_set *sets;
	struct route_candidate *candidates;
	uint16_t *ring_candidates;
	uint16_t *starting; /* candidate offsets, ascending */
};

/* Sizes are ceilings; candidate_count is that of the inputs, serving or not, or of all rings' nodes if they are more. The build does one
 * allocation. */
struct route_builder;
struct route_builder *route_builder_new(size_t set_count, size_t candidate_count);
/* Adds the next set. node_indexes: of each candidate, as given to score_set. ring may be NULL; its node i must be candidate ring_nodes[i] of the
 * inputs. */
void route_builder_add(struct route_builder *builder, const struct decision *decision,
		       const struct score_output *outputs, const uint16_t *node_indexes, size_t count,
		       const struct ring *ring, const uint16_t *ring_nodes);
/* The same from candidates that are in a table's order already, such as those of a recorded choice: of each, all but weight_before_milli and
 * the inverses is taken, the rest is worked out. Never make a struct route by hand. ring_offsets: of each node of the ring, its place among
 * `candidates` or ROUTE_NO_CANDIDATE. */
void route_builder_add_candidates(struct route_builder *builder, const struct route_candidate *candidates, size_t count,
				  size_t band_count, enum reason reason, const struct ring *ring,
				  const uint16_t *ring_offsets);
/* Ends the builder. */
struct route *route_builder_end(struct route_builder **builder, uint64_t version, int64_t wall_us);
void route_free(struct route **route);

#endif
