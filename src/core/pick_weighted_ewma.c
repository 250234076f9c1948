#include "core/pick_impl.h"

#define COST_FLOOR_NS \
	1000 /* below that nobody is slow, and a cost that fell to nothing would hide any number of requests */
#define IN_FLIGHT_MAX  ((1 << 20) - 1) /* with PICK_COST_MAX_NS the product stays below 2^63 */
#define SILENCE_MAX_US (PICK_COST_MAX_NS / 1000)

/* How long nothing has come from a node that owes answers: one that stands still is known by it long before its requests time out (nginx's
 * least_time counts the age of requests in flight likewise). */
static int64_t silence_ns(const struct pick_load *load, int64_t now_us)
{
	if (load->in_flight == 0 || load->answered_us <= 0)
		return 0;
	return min_i64(max_i64(pick_elapsed_us(now_us, load->answered_us), 0), SILENCE_MAX_US) * 1000;
}

/* (in flight + 1) * cost / weight, with 32 bits behind the point. */
static unsigned __int128 load_of(const struct pick_view *view, size_t offset, int64_t cost_ns)
{
	const struct pick_load *load = pick_load_of(view, offset);
	uint64_t in_flight = load->in_flight < IN_FLIGHT_MAX ? load->in_flight : IN_FLIGHT_MAX;
	int64_t whole_ns = max_i64(max_i64(cost_ns, silence_ns(load, view->call->now_us)), COST_FLOOR_NS);

	return (unsigned __int128)((in_flight + 1) * (uint64_t)whole_ns) * view->candidates[offset].weight_inverse;
}

/* All are compared. A node without a sample counts as the mean of those that have one: as the fastest it would get everything until its first
 * answer. */
static int choose_of_all(const struct pick_view *view, const struct pick_decay *decay)
{
	size_t count = view->set->serving_count, known_count = 0, tie_count = 0;
	int64_t costs_ns[PICK_SCAN_MAX], sum_ns = 0;
	unsigned __int128 least = 0;
	int ties[PICK_SCAN_MAX];

	for (size_t i = 0; i < count; i++) {
		costs_ns[i] = pick_cost_ns(decay, &pick_load_of(view, i)->peak);
		sum_ns += max_i64(costs_ns[i], 0);
		known_count += costs_ns[i] >= 0;
	}
	for (size_t i = 0; i < count; i++) {
		unsigned __int128 load;

		if (view->candidates[i].weight_milli == 0)
			continue;
		if (costs_ns[i] < 0 && known_count > 0)
			costs_ns[i] = sum_ns / (int64_t)known_count;
		load = load_of(view, i, costs_ns[i]);
		if (tie_count == 0 || load < least) {
			least = load;
			tie_count = 0;
		}
		if (load == least)
			ties[tie_count++] = (int)i;
	}
	if (tie_count <= 1)
		return tie_count == 1 ? ties[0] : -1;
	return ties[pick_draw(view->pick, tie_count)];
}

static int choose_of_two(const struct pick_view *view, const struct pick_decay *decay)
{
	int64_t first_ns, second_ns;
	size_t drawn[2];

	if (!pick_two_weighted(view, drawn))
		return -1;
	first_ns = pick_cost_ns(decay, &pick_load_of(view, drawn[0])->peak);
	second_ns = pick_cost_ns(decay, &pick_load_of(view, drawn[1])->peak);
	first_ns = first_ns < 0 ? second_ns : first_ns;
	second_ns = second_ns < 0 ? first_ns : second_ns;
	return (int)drawn[load_of(view, drawn[1], second_ns) < load_of(view, drawn[0], first_ns)];
}

static int choose(const struct pick_view *view, UNUSED enum reason *ret_reason)
{
	struct pick_decay decay = pick_decay_at(view->call->now_us, view->pick->tau_us);

	if (view->set->serving_count <= PICK_SCAN_MAX)
		return choose_of_all(view, &decay);
	return choose_of_two(view, &decay);
}

const struct pick_kind pick_kind_weighted_ewma = { .choose = choose, .is_by_weight = true, .has_turns = true };
