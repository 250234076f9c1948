#include "core/pick_impl.h"

/* A weight of 0 means that somebody took the node out: it comes behind all others, however few requests it has. */
static int choose(const struct pick_view *view, UNUSED enum reason *ret_reason)
{
	struct pick_least least;

	pick_least_init(&least);
	for (size_t i = 0; i < view->set->band_count; i++) {
		uint64_t is_out = view->candidates[i].weight_milli == 0;

		pick_least_feed(&least, is_out << 32 | pick_load_of(view, i)->in_flight, i);
	}
	return pick_least_end(&least, view->pick);
}

const struct pick_kind pick_kind_band = { .choose = choose, .has_turns = true };
