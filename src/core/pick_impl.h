/* What the strategies share: the view of one call, draws, comparisons. Private to pick*.c. */
#ifndef HENG_CORE_PICK_IMPL_H
#define HENG_CORE_PICK_IMPL_H

#include "core/pick.h"

/* A set as a strategy sees it, in one call. serving_count is above 0 and nobody was tried yet. */
struct pick_view {
	struct pick *pick;
	const struct route *route;
	const struct route_set *set;
	const struct route_candidate *candidates; /* of the set */
	struct pick_turns *turns;                 /* NULL when the strategy keeps none */
	const struct pick_call *call;
};
struct pick_kind {
	/* The offset, or -1: none that the strategy may choose. *ret_reason is REASON_strategy until it says otherwise. */
	int (*choose)(const struct pick_view *view, enum reason *ret_reason);
	bool is_by_weight; /* weight 0 gets nothing */
	bool has_turns;    /* a node in slow start is guaranteed its turns */
	bool has_current;
	bool has_robust; /* keeps the robust estimates */
};
#define PICK(name, help) extern const struct pick_kind pick_kind_##name;
#include "core/pick_list.h"
#undef PICK

/* 0..bound-1 by Lemire's multiplication (2019) without its rejection: no division, and a bias below bound / 2^64, which no count of requests
 * shows. */
static inline uint64_t pick_draw(struct pick *pick, uint64_t bound)
{
	return (uint64_t)(((unsigned __int128)rng_u64(&pick->rng) * bound) >> 64);
}

static inline struct pick_load *pick_load_of(const struct pick_view *view, size_t offset)
{
	return &view->pick->loads[view->candidates[offset].node_index];
}

/* Instants may come from a log that somebody wrote, so their difference must not overflow. */
static inline int64_t pick_elapsed_us(int64_t now_us, int64_t then_us)
{
	return (int64_t)((uint64_t)now_us - (uint64_t)then_us);
}

/* The least of the values that are fed, each with its offset; ties broken at random. Two passes without a branch: counts in flight are small
 * and tie often, which no processor foretells. */
struct pick_least {
	uint64_t least;
	size_t count;
	uint64_t values[SCORE_SET_MAX];
	uint16_t offsets[SCORE_SET_MAX];
};
static inline void pick_least_init(struct pick_least *least)
{
	least->least = UINT64_MAX;
	least->count = 0;
}
static inline void pick_least_feed(struct pick_least *least, uint64_t value, size_t offset)
{
	least->offsets[least->count] = (uint16_t)offset;
	least->values[least->count++] = value;
	least->least = value < least->least ? value : least->least;
}
/* The offset; -1 when nothing was fed. */
static inline int pick_least_end(const struct pick_least *least, struct pick *pick)
{
	uint16_t ties[SCORE_SET_MAX + 1];
	size_t tie_count = 0;

	for (size_t i = 0; i < least->count; i++) {
		ties[tie_count] = least->offsets[i];
		tie_count += least->values[i] == least->least;
	}
	if (tie_count <= 1)
		return tie_count == 1 ? ties[0] : -1;
	return ties[pick_draw(pick, tie_count)];
}

/* Two different offsets at random, by weight or all alike, of those with a weight above 0; when there is only one, both are it. False: none. */
bool pick_two_weighted(const struct pick_view *view, size_t ret_offsets[2]);
bool pick_two_uniform(const struct pick_view *view, size_t ret_offsets[2]);

/* Reading many peak EWMAs at the same instant. A cubic instead of curve_peak_read: 0.02 % off at most, and a fraction of the time. */
struct pick_decay {
	int64_t now_us;
	int64_t span_us;  /* after which nothing is left */
	uint64_t inverse; /* 2^48 * log2(e) / tau */
};
struct pick_decay pick_decay_at(int64_t now_us, int64_t tau_us);

#define PICK_COST_MAX_NS ((int64_t)1 << 43) /* two hours: beyond it all are alike, and products fit */

/* ns, 0..PICK_COST_MAX_NS; -1: no sample. */
static inline int64_t pick_cost_ns(const struct pick_decay *decay, const struct curve_peak *peak)
{
	int64_t cost_ns = min_i64(peak->cost_ns, PICK_COST_MAX_NS);
	int64_t elapsed_us = pick_elapsed_us(decay->now_us, peak->stamp_us);
	uint64_t halvings, fraction, rest;

	if (cost_ns <= 0 || elapsed_us <= 0)
		return max_i64(cost_ns, -1);
	if (elapsed_us >= decay->span_us)
		return 0;
	halvings = ((uint64_t)elapsed_us * decay->inverse) >> 32; /* 16 bits of fraction */
	fraction = halvings & 0xffff;
	/* 2^-f as 1 - f (0.6914 - f (0.2305 - 0.0391 f)) in 32 binary places: exact at 0 and 1, 0.011 % off at most between. */
	rest = 990027042u - ((167992802u * fraction) >> 16);
	rest = 2969517888u - ((rest * fraction) >> 16);
	rest = ((uint64_t)1 << 32) - ((rest * fraction) >> 16);
	return (int64_t)((((uint64_t)cost_ns * (rest >> 16)) >> 16) >> (halvings >> 16));
}

#endif
