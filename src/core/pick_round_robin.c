#include "core/pick_impl.h"

#define NODE_NUMBERS ((uint32_t)UINT16_MAX + 1)

/* The next by node number after `cursor` that has a weight. Numbers, since the order in the table changes with the scores: turns by place would
 * then miss one and ask another twice. */
static size_t next_after(const struct pick_view *view, uint32_t cursor)
{
	uint32_t nearest = NODE_NUMBERS;
	size_t next = 0;

	for (size_t i = 0; i < view->set->serving_count; i++) {
		const struct route_candidate *candidate = &view->candidates[i];
		uint32_t distance = (uint16_t)(candidate->node_index - cursor - 1);

		distance = candidate->weight_milli > 0 ? distance : NODE_NUMBERS;
		next = distance < nearest ? i : next;
		nearest = distance < nearest ? distance : nearest;
	}
	return next;
}

/* A node in slow start takes only its part of its turns; when a whole round is refused so, whoever was first must. */
static int choose(const struct pick_view *view, UNUSED enum reason *ret_reason)
{
	struct pick_turns *turns = view->turns;
	size_t first, next;

	if (view->set->weighted_count == 0)
		return -1;
	first = next_after(view, turns->cursor);
	next = first;
	for (size_t asked = 0; asked < view->set->weighted_count; asked++) {
		const struct route_candidate *candidate = &view->candidates[next];

		if (candidate->start_ppm >= PPM || pick_draw(view->pick, PPM) < candidate->start_ppm) {
			turns->cursor = candidate->node_index;
			return (int)next;
		}
		next = next_after(view, candidate->node_index);
	}
	turns->cursor = view->candidates[first].node_index;
	return (int)first;
}

const struct pick_kind pick_kind_round_robin = { .choose = choose, .is_by_weight = true, .has_turns = true };
