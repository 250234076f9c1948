#include "core/pick_impl.h"

#define BEST_COUNT 3

/* A weight of 0 means that somebody took the node out; only when all are does the score alone speak. */
static int choose(const struct pick_view *view, UNUSED enum reason *ret_reason)
{
	const struct route_set *set = view->set;
	size_t count = min_size(set->weighted_count > 0 ? set->weighted_count : set->serving_count, BEST_COUNT);
	size_t nth = (size_t)pick_draw(view->pick, count), offset = 0;

	if (set->weighted_count == 0)
		return (int)nth;
	while (view->candidates[offset].weight_milli == 0 || nth-- > 0)
		offset++;
	return (int)offset;
}

const struct pick_kind pick_kind_random3 = { .choose = choose };
