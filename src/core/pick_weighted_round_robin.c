#include "core/pick_impl.h"

/* At the set's first pick: threads that all began alike would send their first requests to the same node. */
static void begin(const struct pick_view *view)
{
	for (size_t i = 0; i < view->set->serving_count; i++) {
		const struct route_candidate *candidate = &view->candidates[i];

		view->turns->current[candidate->node_index] = (int64_t)pick_draw(view->pick,
										 (uint64_t)candidate->weight_milli + 1);
	}
}

/* nginx's smooth weighted round robin: everyone gains its weight, the richest is chosen and pays the total. What a node holds stays between
 * -total and total of itself; the clamp is for what it holds from another table, in which the weights may have been a hundred times these. */
static int choose(const struct pick_view *view, UNUSED enum reason *ret_reason)
{
	int64_t total = view->set->weight_total_milli, most = INT64_MIN, *current = view->turns->current;
	size_t richest = 0;

	if (view->set->weighted_count == 0)
		return -1;
	if (view->turns->picks == 1)
		begin(view);
	for (size_t i = 0; i < view->set->serving_count; i++) {
		const struct route_candidate *candidate = &view->candidates[i];
		int64_t *held = &current[candidate->node_index], has = *held;

		if (candidate->weight_milli == 0)
			continue;
		if ((uint64_t)has + (uint64_t)total > 2 * (uint64_t)total)
			has = has < 0 ? -total : total;
		has += candidate->weight_milli;
		*held = has;
		richest = has > most ? i : richest;
		most = max_i64(has, most);
	}
	current[view->candidates[richest].node_index] -= total;
	return (int)richest;
}

const struct pick_kind pick_kind_weighted_round_robin = {
	.choose = choose, .is_by_weight = true, .has_turns = true, .has_current = true
};
