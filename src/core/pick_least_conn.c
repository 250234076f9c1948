#include "core/pick_impl.h"

/* HAProxy ranks all idle nodes alike whatever their weights; with the request that is about to come counted in they are not. */
static int choose(const struct pick_view *view, UNUSED enum reason *ret_reason)
{
	struct pick_least least;

	if (view->set->weighted_count == 0)
		return -1;
	pick_least_init(&least);
	for (size_t i = 0; i < view->set->serving_count; i++) {
		/* The inverse of weight 0 is 0, which less 1 is the greatest. */
		uint64_t load = ((uint64_t)pick_load_of(view, i)->in_flight + 1) * view->candidates[i].weight_inverse;

		pick_least_feed(&least, load - 1, i);
	}
	return pick_least_end(&least, view->pick);
}

const struct pick_kind pick_kind_least_conn = { .choose = choose, .is_by_weight = true, .has_turns = true };
