#include "core/pick_impl.h"

/* As HAProxy's random(2): drawn by weight and compared by weight. On a tie the first drawn, which is by weight too. */
static int choose(const struct pick_view *view, UNUSED enum reason *ret_reason)
{
	size_t drawn[2];
	uint64_t first, second;

	if (!pick_two_weighted(view, drawn))
		return -1;
	/* in flight / weight, multiplied out. */
	first = (uint64_t)pick_load_of(view, drawn[0])->in_flight * view->candidates[drawn[1]].weight_milli;
	second = (uint64_t)pick_load_of(view, drawn[1])->in_flight * view->candidates[drawn[0]].weight_milli;
	return (int)drawn[second < first];
}

const struct pick_kind pick_kind_p2c = { .choose = choose, .is_by_weight = true, .has_turns = true };
