#include "core/pick_impl.h"

#define DEGRADE_BEST 3

const char *const pick_names[PICK_STRATEGIES] = {
#define PICK(name, help) #name,
#include "core/pick_list.h"
#undef PICK
};
const char *const pick_helps[PICK_STRATEGIES] = {
#define PICK(name, help) help,
#include "core/pick_list.h"
#undef PICK
};
static const struct pick_kind *const pick_kinds[PICK_STRATEGIES] = {
#define PICK(name, help) &pick_kind_##name,
#include "core/pick_list.h"
#undef PICK
};

bool pick_find(const char *name, enum pick_strategy *ret_strategy)
{
	for (size_t i = 0; i < PICK_STRATEGIES; i++) {
		if (strcmp(name, pick_names[i]) == 0) {
			*ret_strategy = (enum pick_strategy)i;
			return true;
		}
	}
	return false;
}

/* The sets' turns and the rows they point to are one block, by calloc: the kernel gives pages of it only as sets are really asked. */
static void turns_init(struct pick *pick)
{
	bool has_current = pick_kinds[pick->strategy]->has_current;
	size_t row_bytes = pick->node_count * (sizeof(uint64_t) + (has_current ? sizeof(int64_t) : 0));
	char *row;

	pick->turns = must_zalloc(pick->set_count, sizeof(*pick->turns) + row_bytes);
	row = (char *)&pick->turns[pick->set_count];
	for (size_t i = 0; i < pick->set_count; i++, row += row_bytes) {
		struct pick_turns *turns = &pick->turns[i];

		turns->last = (uint64_t *)(void *)row;
		if (has_current)
			turns->current = (int64_t *)(void *)(row + pick->node_count * sizeof(uint64_t));
		/* Threads that all began with the first node would send it all their first requests. */
		if (pick->node_count > 0)
			turns->cursor = (uint32_t)pick_draw(pick, pick->node_count);
	}
}

void pick_init(struct pick *pick, enum pick_strategy strategy, size_t node_count, size_t set_count, uint64_t seed)
{
	MUST(strategy < PICK_STRATEGIES);
	*pick = (struct pick){
		.strategy = strategy,
		.node_count = node_count,
		.set_count = set_count,
		.tau_us = PICK_TAU_US,
	};
	rng_seed(&pick->rng, seed);
	pick->loads = must_zalloc(node_count, sizeof(*pick->loads));
	for (size_t i = 0; i < node_count; i++)
		pick_forget(pick, (uint16_t)i);
	if (pick_kinds[strategy]->has_turns)
		turns_init(pick);
}

void pick_fini(struct pick *pick)
{
	free(pick->turns);
	free(pick->loads);
	*pick = (struct pick){ 0 };
}

/* The first candidate whose weights before it and its own reach beyond `at`; those with weight 0 are passed over. */
static size_t weighted_find(const struct pick_view *view, uint32_t at)
{
	size_t low = 0, count = view->set->serving_count;

	while (count > 1) {
		size_t half = count / 2;

		low = view->candidates[low + half].weight_before_milli <= at ? low + half : low;
		count -= half;
	}
	return low;
}

bool pick_two_weighted(const struct pick_view *view, size_t ret_offsets[2])
{
	uint32_t total = view->set->weight_total_milli, at;
	const struct route_candidate *first;

	if (view->set->weighted_count == 0)
		return false;
	ret_offsets[0] = weighted_find(view, (uint32_t)pick_draw(view->pick, total));
	ret_offsets[1] = ret_offsets[0];
	if (view->set->weighted_count == 1)
		return true;
	/* The second out of what is left when the first one's part is cut out. */
	first = &view->candidates[ret_offsets[0]];
	at = (uint32_t)pick_draw(view->pick, total - first->weight_milli);
	if (at >= first->weight_before_milli)
		at += first->weight_milli;
	ret_offsets[1] = weighted_find(view, at);
	return true;
}

/* The offset of the nth candidate with a weight. */
static size_t weighted_nth(const struct pick_view *view, size_t n)
{
	size_t offset = 0;

	if (view->set->weighted_count == view->set->serving_count)
		return n;
	for (;; offset++) {
		if (view->candidates[offset].weight_milli > 0 && n-- == 0)
			return offset;
	}
}

bool pick_two_uniform(const struct pick_view *view, size_t ret_offsets[2])
{
	size_t count = view->set->weighted_count, first, second;

	if (count == 0)
		return false;
	first = (size_t)pick_draw(view->pick, count);
	second = first;
	if (count > 1) {
		second = (size_t)pick_draw(view->pick, count - 1);
		second += second >= first;
	}
	ret_offsets[0] = weighted_nth(view, first);
	ret_offsets[1] = weighted_nth(view, second);
	return true;
}

struct pick_decay pick_decay_at(int64_t now_us, int64_t tau_us)
{
	/* 2^48 * log2(e) / tau; 40 tau leave less than a nanosecond of two hours, and keep the product below 2^64. */
	uint64_t tau = (uint64_t)min_i64(max_i64(tau_us, 1), INT64_MAX / 64);

	return (struct pick_decay){ .now_us = now_us, .span_us = 40 * (int64_t)tau, .inverse = 406082553034874U / tau };
}

/* Timed out on its last two requests, and either that was a moment ago or the request that shall show whether it is well again is under way. */
static bool is_failing(const struct pick_load *load, int64_t now_us)
{
	if (load->fails_in_row < PICK_FAILS_LIMIT)
		return false;
	return load->in_flight > 0 || load->peak.cost_ns < 0 ||
	       pick_elapsed_us(now_us, load->peak.stamp_us) < PICK_FAILS_HOLD_US;
}

static bool is_tried(const struct pick_call *call, uint16_t node_index)
{
	for (size_t i = 0; i < call->tried_count; i++) {
		if (call->tried[i] == node_index)
			return true;
	}
	return false;
}

/* Whom the degraded choice may take: first only the well ones, then all but the one to avoid, then whoever there is. */
enum degrade_level { DEGRADE_WELL, DEGRADE_OTHER, DEGRADE_ANY, DEGRADE_LEVELS };

static bool degrade_may(const struct pick_view *view, size_t offset, int avoid, enum degrade_level level)
{
	const struct route_candidate *candidate = &view->candidates[offset];

	if (is_tried(view->call, candidate->node_index))
		return false;
	if (level == DEGRADE_ANY)
		return candidate->weight_milli > 0 || !pick_kinds[view->pick->strategy]->is_by_weight;
	if (candidate->weight_milli == 0 || (int)offset == avoid)
		return false;
	return level == DEGRADE_OTHER || !is_failing(pick_load_of(view, offset), view->call->now_us);
}

/* One of the best three at random; -1 when all were tried. avoid: -1 or the offset that is taken only when it is alone. */
static int degrade(const struct pick_view *view, int avoid)
{
	for (enum degrade_level level = 0; level < DEGRADE_LEVELS; level++) {
		int best[DEGRADE_BEST];
		size_t count = 0;

		for (size_t i = 0; i < view->set->serving_count && count < DEGRADE_BEST; i++) {
			if (degrade_may(view, i, avoid, level))
				best[count++] = (int)i;
		}
		if (count > 0)
			return best[pick_draw(view->pick, count)];
	}
	return -1;
}

/* A node in slow start whose turn has come, or -1. The wait is counted only while it is in slow start: one that has just come would else have
 * waited since for ever in every set, and meet its first requests from all sets at once. Whoever waited for twice its turn was away meanwhile,
 * because none waits longer than for its turn and those of the others in slow start. */
static int turn_due(const struct pick_view *view)
{
	const struct route_set *set = view->set;
	struct pick_turns *turns = view->turns;
	uint64_t turn = 2 * (uint64_t)set->weight_total_milli;
	int due = -1;

	for (size_t i = 0; i < set->start_count; i++) {
		uint16_t offset = view->route->starting[set->start_first + i];
		const struct route_candidate *candidate = &view->candidates[offset];
		uint64_t *last = &turns->last[candidate->node_index];
		uint64_t wait = turns->picks - *last, weight = candidate->weight_milli;

		wait = wait < UINT32_MAX ? wait : UINT32_MAX;
		if (wait * weight > 2 * turn + set->start_count * weight) {
			*last = turns->picks - 1;
			wait = 1;
		}
		if (due < 0 && wait * weight >= turn && !is_failing(pick_load_of(view, offset), view->call->now_us))
			due = offset;
	}
	return due;
}

/* The first try. */
static int choose(const struct pick_view *view, enum reason *ret_reason)
{
	struct pick_turns *turns = view->turns;
	int offset = -1;

	if (turns) {
		turns->picks++;
		if (view->set->start_count > 0)
			offset = turn_due(view);
	}
	*ret_reason = offset < 0 ? REASON_strategy : REASON_turn;
	if (offset < 0)
		offset = pick_kinds[view->pick->strategy]->choose(view, ret_reason);
	if (offset < 0) {
		*ret_reason = REASON_none;
		return -1;
	}
	if (is_failing(pick_load_of(view, (size_t)offset), view->call->now_us)) {
		offset = degrade(view, offset);
		*ret_reason = REASON_degraded_random3;
	}
	if (turns && view->candidates[offset].start_ppm < PPM)
		turns->last[view->candidates[offset].node_index] = turns->picks;
	return offset;
}

int pick_next(struct pick *pick, const struct route *route, size_t set_index, const struct pick_call *call,
	      enum reason *ret_reason)
{
	const struct route_set *set = &route->sets[set_index];
	struct pick_view view;
	int offset;

	MUST(set_index < route->set_count && set_index < pick->set_count && route->node_limit <= pick->node_count);
	if (call->tried_count >= PICK_TRIES) {
		*ret_reason = REASON_unavailable;
		return -1;
	}
	if (set->serving_count == 0) {
		*ret_reason = call->tried_count > 0 ? REASON_unavailable : REASON_none;
		return -1;
	}
	view = (struct pick_view){
		.pick = pick,
		.route = route,
		.set = set,
		.candidates = &route->candidates[set->first],
		.turns = pick->turns ? &pick->turns[set_index] : NULL,
		.call = call,
	};
	if (call->tried_count == 0)
		return choose(&view, ret_reason);
	offset = degrade(&view, -1);
	*ret_reason = offset < 0 ? REASON_unavailable : REASON_degraded_random3;
	return offset;
}

void pick_forget(struct pick *pick, uint16_t node_index)
{
	struct pick_load *load = &pick->loads[node_index];

	MUST(node_index < pick->node_count);
	load->fails_in_row = 0;
	load->peak = CURVE_PEAK_INIT;
	load->robust = ROBUST_INIT;
	load->peers_ns = -1;
}

void pick_sent(struct pick *pick, uint16_t node_index, int64_t now_us)
{
	struct pick_load *load = &pick->loads[node_index];

	MUST(node_index < pick->node_count);
	if (load->in_flight == 0)
		load->answered_us = now_us;
	load->in_flight++;
}

void pick_done(struct pick *pick, uint16_t node_index, bool is_failed, int64_t rtt_ns, int64_t now_us)
{
	struct pick_load *load = &pick->loads[node_index];

	MUST(node_index < pick->node_count && load->in_flight > 0);
	load->in_flight--;
	if (is_failed)
		rtt_ns = rtt_ns < 0 ? PICK_FAILED_NS : rtt_ns;
	if (rtt_ns >= 0 && pick_kinds[pick->strategy]->has_robust)
		robust_feed(&load->robust, rtt_ns, load->peers_ns,
			    max_i64(pick_elapsed_us(now_us, load->answered_us), 0), now_us);
	if (is_failed) {
		/* No answer: the silence goes on. */
		load->fails_in_row += load->fails_in_row < UINT32_MAX;
	} else if (rtt_ns >= 0) {
		load->fails_in_row = 0;
		load->answered_us = now_us;
	}
	if (rtt_ns >= 0)
		curve_peak_feed(&load->peak, min_i64(rtt_ns, PICK_COST_MAX_NS), pick->tau_us, now_us);
}
