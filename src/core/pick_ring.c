#include "core/pick_impl.h"

/* Of the preference list only as much is asked for as is needed: the further down it one is, the more points of the ring lie between. */
#define FIRST_COUNT 2
#define GROWTH      4

/* The finaliser of splitmix64 (Steele, Lea, Flood 2014) over another start than the ring's places: where a key stands among its owner's keys must
 * not depend on where it stands on the ring. Below PPM. */
static uint32_t key_ppm(uint64_t key_hash)
{
	uint64_t z = key_hash ^ 0xd1b54a32d192ed03u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	z ^= z >> 31;
	return (uint32_t)(((unsigned __int128)z * PPM) >> 64);
}

/* The candidate that stands for a node of the ring, or -1: it may not serve or has no weight. */
static int offset_of(const struct pick_view *view, size_t ring_node)
{
	uint16_t offset = view->route->ring_candidates[view->set->ring_first + ring_node];

	if (offset == ROUTE_NO_CANDIDATE || view->candidates[offset].weight_milli == 0)
		return -1;
	return offset;
}

/* The keys that a node in slow start takes are those that stand below its share: the set of them only grows as the share does. */
static bool takes_key(const struct pick_view *view, int offset)
{
	uint32_t start_ppm = view->candidates[offset].start_ppm;

	return start_ppm >= PPM || key_ppm(view->call->key_hash) < start_ppm;
}

/* The first of the preference list that takes the key; when none does because all are in slow start, the first that may serve. */
static int choose_next(const struct pick_view *view, enum reason *ret_reason)
{
	uint16_t nodes[RING_NODES_MAX];
	size_t known_count = 0, node_count = ring_node_count(view->set->ring);
	int first = -1;

	for (size_t i = 0; i < node_count; i++) {
		int offset;

		if (i == known_count) {
			size_t want = known_count == 0 ? FIRST_COUNT : min_size(known_count * GROWTH, node_count);

			known_count = ring_candidates(view->set->ring, view->call->key_hash, want, nodes);
			if (i == known_count)
				break;
		}
		offset = offset_of(view, nodes[i]);
		if (offset < 0)
			continue;
		if (takes_key(view, offset)) {
			*ret_reason = first < 0 ? REASON_failover : REASON_hash_start;
			return offset;
		}
		first = first < 0 ? offset : first;
	}
	*ret_reason = REASON_hash;
	return first;
}

/* For sets without a ring, or with one on which none of those that serve have their place yet: the first that has a weight. */
static int choose_first(const struct pick_view *view)
{
	for (size_t i = 0; i < view->set->serving_count; i++) {
		if (view->candidates[i].weight_milli > 0)
			return (int)i;
	}
	return -1;
}

static int choose(const struct pick_view *view, enum reason *ret_reason)
{
	int owner, offset;

	if (view->set->ring && view->set->weighted_count > 0) {
		owner = ring_owner(view->set->ring, view->call->key_hash);
		offset = owner < 0 ? -1 : offset_of(view, (size_t)owner);
		if (offset < 0 || !takes_key(view, offset))
			offset = owner < 0 ? -1 : choose_next(view, ret_reason);
		else
			*ret_reason = REASON_hash;
		if (offset >= 0)
			return offset;
	}
	*ret_reason = REASON_failover;
	return choose_first(view);
}

const struct pick_kind pick_kind_ring = { .choose = choose, .is_by_weight = true };
