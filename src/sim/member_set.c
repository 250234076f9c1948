#include "sim/member_set.h"

#include "base/hash.h"
#include "core/ring.h"

#define WEIGHT_MILLI 1000

static uint16_t *set_nodes(struct member_set *members, size_t set)
{
	return members->nodes + set * members->set_capacity;
}

static void set_add(struct member_set *members, size_t set, size_t node)
{
	MUST(members->sets[set].count < members->set_capacity);
	set_nodes(members, set)[members->sets[set].count++] = (uint16_t)node;
}

static void set_remove(struct member_set *members, size_t set, size_t node)
{
	uint16_t *nodes = set_nodes(members, set);
	size_t kept = 0;
	for (size_t i = 0; i < members->sets[set].count; i++) {
		if (nodes[i] != node)
			nodes[kept++] = nodes[i];
	}
	members->sets[set].count = kept;
}

static bool is_on_ring(const struct member_set *members, size_t node)
{
	return members->is_member[node] && members->pinned_set[node] < 0;
}

/* All sets anew from the nodes that are there. */
static int place_by_ring(struct member_set *members, struct err *err)
{
	struct ring_node *ring_nodes = must_zalloc(members->node_count, sizeof(*ring_nodes));
	uint16_t *numbers = must_zalloc(members->node_count, sizeof(*numbers));
	uint16_t *chosen = must_zalloc(members->node_count, sizeof(*chosen));
	struct ring *ring = NULL;
	size_t count = 0;
	for (size_t node = 0; node < members->node_count; node++) {
		if (!is_on_ring(members, node))
			continue;
		ring_nodes[count] = (struct ring_node){ .id = members->ids[node], .weight_milli = WEIGHT_MILLI };
		numbers[count++] = (uint16_t)node;
	}
	int r = ring_build(ring_nodes, count, &ring, err);
	for (size_t set = 0; r == 0 && set < members->set_count; set++) {
		uint64_t name[2] = { 0x746573, set };
		size_t found = ring_candidates(ring, hash64(name, sizeof(name)), (size_t)members->scenario->replicas,
					       chosen);
		members->sets[set].count = 0;
		for (size_t i = 0; i < found; i++)
			set_add(members, set, numbers[chosen[i]]);
	}
	for (size_t node = 0; r == 0 && node < members->node_count; node++) {
		if (members->is_member[node] && members->pinned_set[node] >= 0)
			set_add(members, (size_t)members->pinned_set[node], node);
	}
	ring_free(&ring);
	free(ring_nodes);
	free(numbers);
	free(chosen);
	return r;
}

static bool is_ring(const struct member_set *members)
{
	return members->scenario->replicas > 0 && members->scenario->placement == SCENARIO_RING;
}

static int place_first(struct member_set *members, struct err *err)
{
	if (is_ring(members))
		return place_by_ring(members, err);
	for (size_t set = 0; set < members->set_count; set++) {
		size_t replicas = (size_t)members->scenario->replicas;
		for (size_t node = 0; node < members->node_count; node++) {
			if (members->is_member[node] && (replicas == 0 || node / replicas == set))
				set_add(members, set, node);
		}
	}
	return 0;
}

int member_set_init(struct member_set *members, const struct scenario *scenario, struct err *err)
{
	size_t node_count = (size_t)scenario->nodes, set_count = (size_t)scenario->sets;
	*members = (struct member_set){ .scenario = scenario, .node_count = node_count, .set_count = set_count };
	members->set_capacity = min_size(
		scenario->replicas > 0 ? (size_t)scenario->replicas + scenario->events.count : node_count, node_count);
	members->sets = must_zalloc(set_count, sizeof(*members->sets));
	members->nodes = must_zalloc(set_count * members->set_capacity, sizeof(*members->nodes));
	members->ids = must_zalloc(node_count, sizeof(*members->ids));
	members->id_list = must_zalloc(node_count, sizeof(*members->id_list));
	members->weights_milli = must_zalloc(node_count, sizeof(*members->weights_milli));
	members->is_member = must_zalloc(node_count, sizeof(*members->is_member));
	members->pinned_set = must_zalloc(node_count, sizeof(*members->pinned_set));
	for (size_t set = 0; set < set_count; set++)
		members->sets[set].nodes = set_nodes(members, set);
	for (size_t node = 0; node < node_count; node++) {
		snprintf(members->ids[node], sizeof(members->ids[node]), "n%zu", node);
		members->id_list[node] = members->ids[node];
		members->weights_milli[node] = WEIGHT_MILLI;
		members->is_member[node] = scenario_is_there_first(scenario, node);
		members->pinned_set[node] = -1;
	}
	return place_first(members, err);
}

void member_set_fini(struct member_set *members)
{
	free(members->sets);
	free(members->nodes);
	free(members->ids);
	free(members->id_list);
	free(members->weights_milli);
	free(members->is_member);
	free(members->pinned_set);
	*members = (struct member_set){ 0 };
}

int member_set_join(struct member_set *members, size_t node, int64_t set, struct err *err)
{
	MUST(!members->is_member[node]);
	members->is_member[node] = true;
	members->pinned_set[node] = set;
	if (set >= 0) {
		set_add(members, (size_t)set, node);
		return 0;
	}
	if (is_ring(members))
		return place_by_ring(members, err);
	/* With places of their own all sets have what they need, and a node without a set waits. */
	for (size_t i = 0; members->scenario->replicas == 0 && i < members->set_count; i++)
		set_add(members, i, node);
	return 0;
}

int member_set_leave(struct member_set *members, size_t node, struct err *err)
{
	MUST(members->is_member[node]);
	members->is_member[node] = false;
	if (is_ring(members) && members->pinned_set[node] < 0)
		return place_by_ring(members, err);
	for (size_t set = 0; set < members->set_count; set++)
		set_remove(members, set, node);
	return 0;
}
