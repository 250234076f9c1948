#include "sim/outstanding.h"

void outstanding_init(struct outstanding *own, const struct sim_view *view, uint64_t seed)
{
	own->view = view;
	own->counts = must_zalloc(view->node_count, sizeof(own->counts[0]));
	rng_seed(&own->rng, seed);
}

void outstanding_fini(struct outstanding *own) { free(own->counts); }

int outstanding_draw(struct outstanding *own, const struct sim_set *set)
{
	if (set->count == 0)
		return -1;
	return set->nodes[set->count == 1 ? 0 : rng_below(&own->rng, set->count)];
}

bool outstanding_draw_two(struct outstanding *own, const struct sim_set *set, uint16_t ret_nodes[2])
{
	size_t first, second;

	if (set->count < 2)
		return false;
	first = rng_below(&own->rng, set->count);
	second = rng_below(&own->rng, set->count - 1);
	if (second >= first)
		second++;
	ret_nodes[0] = set->nodes[first];
	ret_nodes[1] = set->nodes[second];
	return true;
}

static void *own_new(const struct sim_view *view, uint64_t seed)
{
	struct outstanding *own = must_zalloc(1, sizeof(*own));

	outstanding_init(own, view, seed);
	return own;
}

static void own_free(void *policy)
{
	outstanding_fini(policy);
	free(policy);
}

static void own_sent(void *policy, uint16_t node, int64_t now_us)
{
	(void)now_us;
	outstanding_sent(policy, node);
}

static void own_answered(void *policy, uint16_t node, const struct sim_answer *answer, int64_t now_us)
{
	(void)answer;
	(void)now_us;
	outstanding_answered(policy, node);
}

static int random_choose(void *policy, size_t set_index, uint64_t key_hash, int64_t now_us)
{
	struct outstanding *own = policy;

	(void)key_hash;
	(void)now_us;
	return outstanding_draw(own, &own->view->sets[set_index]);
}

/* Ties must not go to whoever comes first in the set, or an idle pool would be served by one node. */
static int least_choose(void *policy, size_t set_index, uint64_t key_hash, int64_t now_us)
{
	struct outstanding *own = policy;
	const struct sim_set *set = &own->view->sets[set_index];
	uint32_t least = UINT32_MAX;
	uint64_t tied_count = 0;
	int chosen = -1;

	(void)key_hash;
	(void)now_us;
	for (size_t i = 0; i < set->count; i++) {
		uint32_t count = own->counts[set->nodes[i]];

		if (count > least)
			continue;
		tied_count = count < least ? 1 : tied_count + 1;
		least = count;
		if (tied_count == 1 || rng_below(&own->rng, tied_count) == 0)
			chosen = set->nodes[i];
	}
	return chosen;
}

static int p2c_choose(void *policy, size_t set_index, uint64_t key_hash, int64_t now_us)
{
	struct outstanding *own = policy;
	const struct sim_set *set = &own->view->sets[set_index];
	uint16_t nodes[2];

	(void)key_hash;
	(void)now_us;
	if (!outstanding_draw_two(own, set, nodes))
		return outstanding_draw(own, set);
	/* The order of the two is random, so a tie is decided by chance. */
	return own->counts[nodes[1]] < own->counts[nodes[0]] ? nodes[1] : nodes[0];
}

const struct sim_policy sim_policy_random = {
	.name = "random",
	.help = "any member of the set, each as likely",
	.source = "no model to interpret",
	.new = own_new,
	.free = own_free,
	.choose = random_choose,
	.sent = own_sent,
	.answered = own_answered,
};
const struct sim_policy sim_policy_least_outstanding = {
	.name = "least_outstanding",
	.help = "the member with the fewest of the router's own requests in flight; ties at random",
	.source = "leastconn of HAProxy and nginx (least_conn), all members compared; equal weights, no queue at the "
		  "router",
	.new = own_new,
	.free = own_free,
	.choose = least_choose,
	.sent = own_sent,
	.answered = own_answered,
};
const struct sim_policy sim_policy_p2c = {
	.name = "p2c",
	.help = "two members at random, the one with fewer of the router's own requests in flight",
	.source = "Mitzenmacher, The Power of Two Choices in Randomized Load Balancing (2001); HAProxy random(2), "
		  "nginx random two "
		  "least_conn, Envoy LEAST_REQUEST: two different members, equal weights",
	.new = own_new,
	.free = own_free,
	.choose = p2c_choose,
	.sent = own_sent,
	.answered = own_answered,
};
