#include "core/pick_impl.h"

/* Finagle's Penalty: above every load of a node with a sample, so that a new node gets one request at a time until its first answer. */
#define PENALTY ((unsigned __int128)1 << 96)

static unsigned __int128 load_of(const struct pick_view *view, const struct pick_decay *decay, size_t offset)
{
	const struct pick_load *load = pick_load_of(view, offset);
	int64_t cost_ns = pick_cost_ns(decay, &load->peak);

	if (cost_ns < 0)
		return load->in_flight > 0 ? PENALTY + load->in_flight : 0;
	return (unsigned __int128)cost_ns * ((uint64_t)load->in_flight + 1);
}

/* PeakEwma.scala's load of two nodes drawn alike, and the lesser of them. Weights only take out (0). */
static int choose(const struct pick_view *view, UNUSED enum reason *ret_reason)
{
	struct pick_decay decay = pick_decay_at(view->call->now_us, view->pick->tau_us);
	size_t drawn[2];

	if (!pick_two_uniform(view, drawn))
		return -1;
	return (int)drawn[load_of(view, &decay, drawn[1]) < load_of(view, &decay, drawn[0])];
}

const struct pick_kind pick_kind_peak_ewma = { .choose = choose, .is_by_weight = true, .has_turns = true };
