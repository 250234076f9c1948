/* heng's own default. Requests in flight are the freshest and least noisy news there is, so among nodes whose latency is about the usual one of the
 * set the fewest in flight (by weight) win, and noise in latencies and scores decides nothing. Only who is out of the common is weighed by it: how many
 * times slower or faster, by an estimate that a pause does not move (robust.h); and who stands still with requests in flight is avoided the more the
 * longer it does, long before its requests time out. docs/routing.md has the figures beside other policies, and what was tried. */
#include "core/pick_impl.h"

#define DRAWS         4 /* above PICK_SCAN_MAX candidates; two draws of two */
#define USUAL_LIFE_US (10 * MSEC_US)
#define USUAL_SAMPLES 33
#define BAND_TIMES    2                  /* half to double of the usual is usual */
#define COST_MAX_NS   ((int64_t)1 << 36) /* over a minute; products fit */
#define IN_FLIGHT_MAX ((1 << 20) - 1)
#define STALL_MAX     1024
#define MEAN_MAX      8 /* requests in flight at the heaviest node: what is more is queue, not work in parallel */

/* Those that are compared, each with its cost and its lengths by weight, with 32 bits behind the point. */
struct rivals {
	size_t count;
	uint64_t length_sum; /* in flight */
	uint64_t least_inverse;
	uint64_t next[PICK_SCAN_MAX]; /* in flight + 1 */
	int64_t costs_ns[PICK_SCAN_MAX];
	uint16_t offsets[PICK_SCAN_MAX];
};

/* The lower median, so that of two the faster is the measure. -1: nobody has answered yet. */
static int64_t usual_of(const struct pick_view *view)
{
	size_t count = view->set->serving_count, stride = (count + USUAL_SAMPLES - 1) / USUAL_SAMPLES, size = 0;
	int64_t sorted[USUAL_SAMPLES];

	for (size_t i = 0; i < count; i += stride) {
		int64_t value_ns = pick_load_of(view, i)->robust.estimate_ns;
		size_t at = size;

		if (value_ns < 0)
			continue;
		for (; at > 0 && sorted[at - 1] > value_ns; at--)
			sorted[at] = sorted[at - 1];
		sorted[at] = value_ns;
		size++;
	}
	return size == 0 ? -1 : min_i64(sorted[(size - 1) / 2], COST_MAX_NS);
}

/* Worked out anew each few milliseconds, not with each request. Those of the set learn it for the next answer. */
static int64_t usual_get(const struct pick_view *view)
{
	struct pick_turns *turns = view->turns;
	int64_t age_us = pick_elapsed_us(view->call->now_us, turns->usual_us);

	if (turns->usual_us != 0 && turns->usual_ns >= 0 && age_us >= 0 && age_us < USUAL_LIFE_US)
		return turns->usual_ns;
	turns->usual_ns = usual_of(view);
	turns->usual_us = view->call->now_us;
	for (size_t i = 0; i < view->set->serving_count; i++)
		pick_load_of(view, i)->peers_ns = turns->usual_ns;
	return turns->usual_ns;
}

static int64_t cost_ns_of(const struct pick_load *load, int64_t usual_ns, int64_t now_us)
{
	int64_t cost_ns = robust_read(&load->robust, usual_ns, load->in_flight == 0, now_us), stall;

	/* Nobody has answered yet: all are alike. */
	if (usual_ns < 0)
		return 1;
	if (cost_ns < usual_ns * BAND_TIMES && cost_ns * BAND_TIMES > usual_ns)
		cost_ns = usual_ns;
	cost_ns = min_i64(max_i64(cost_ns, 1), COST_MAX_NS);
	if (load->in_flight == 0 || load->answered_us <= 0)
		return cost_ns;
	stall = robust_stall(&load->robust, usual_ns, pick_elapsed_us(now_us, load->answered_us));
	return stall <= 0 ? cost_ns : min_i64(cost_ns * (1 + min_i64(stall, STALL_MAX)), COST_MAX_NS);
}

static void rivals_add(struct rivals *rivals, const struct pick_view *view, size_t offset, int64_t usual_ns)
{
	const struct pick_load *load = pick_load_of(view, offset);
	uint64_t in_flight = load->in_flight < IN_FLIGHT_MAX ? load->in_flight : IN_FLIGHT_MAX;
	uint64_t inverse = view->candidates[offset].standing_inverse;

	/* The scorer leaves some standing to whoever has weight; a route made otherwise may not, and 0 would win every comparison. */
	if (inverse == 0)
		return;
	rivals->offsets[rivals->count] = (uint16_t)offset;
	rivals->next[rivals->count] = (in_flight + 1) * inverse;
	rivals->costs_ns[rivals->count] = cost_ns_of(load, usual_ns, view->call->now_us);
	rivals->length_sum += in_flight * inverse;
	rivals->least_inverse = inverse < rivals->least_inverse ? inverse : rivals->least_inverse;
	rivals->count++;
}

/* Least cost * ((in flight + 1) / weight + mean of (in flight / weight) / 2). A node works on several requests at once, so that twice the requests are
 * not twice the wait: without half of the mean a slow node that is idle would look better than it is. It changes nothing among nodes of like cost. It is
 * bounded, or a slow node would get nothing however long the others' queues grow. */
static int rivals_least(const struct rivals *rivals, const struct pick_view *view)
{
	uint64_t most = MEAN_MAX * rivals->least_inverse * rivals->count;
	uint64_t mean = rivals->length_sum < most ? rivals->length_sum : most;
	struct pick_least least;

	pick_least_init(&least);
	for (size_t i = 0; i < rivals->count; i++) {
		uint64_t length = 2 * rivals->next[i] * rivals->count + mean;
		unsigned __int128 value = (unsigned __int128)length * (uint64_t)rivals->costs_ns[i] >> 24;

		pick_least_feed(&least, value < UINT64_MAX ? (uint64_t)value : UINT64_MAX - 1, rivals->offsets[i]);
	}
	return pick_least_end(&least, view->pick);
}

static int choose(const struct pick_view *view, UNUSED enum reason *ret_reason)
{
	int64_t usual_ns = usual_get(view);
	struct rivals rivals;
	size_t drawn[2];

	rivals.count = 0;
	rivals.length_sum = 0;
	rivals.least_inverse = UINT64_MAX >> 8;
	if (view->set->serving_count <= PICK_SCAN_MAX) {
		for (size_t i = 0; i < view->set->serving_count; i++) {
			if (view->candidates[i].weight_milli > 0)
				rivals_add(&rivals, view, i, usual_ns);
		}
		return rivals_least(&rivals, view);
	}
	for (size_t i = 0; i < DRAWS && pick_two_uniform(view, drawn); i += 2) {
		rivals_add(&rivals, view, drawn[0], usual_ns);
		rivals_add(&rivals, view, drawn[1], usual_ns);
	}
	return rivals_least(&rivals, view);
}

const struct pick_kind pick_kind_adaptive = {
	.choose = choose, .is_by_weight = true, .has_turns = true, .has_robust = true
};
