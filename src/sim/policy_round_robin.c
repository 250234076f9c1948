#include "sim/policy.h"

struct round_robin {
	const struct sim_view *view;
	size_t *cursors; /* by set */
};

/* Each set begins at a place of its own, or all routers would walk over the nodes in step. */
static void *round_robin_new(const struct sim_view *view, uint64_t seed)
{
	struct round_robin *turns = must_zalloc(1, sizeof(*turns));
	struct rng rng;

	turns->view = view;
	turns->cursors = must_zalloc(view->set_count, sizeof(turns->cursors[0]));
	rng_seed(&rng, seed);
	for (size_t i = 0; i < view->set_count; i++)
		turns->cursors[i] = view->sets[i].count > 0 ? rng_below(&rng, view->sets[i].count) : 0;
	return turns;
}

static void round_robin_free(void *policy)
{
	struct round_robin *turns = policy;

	free(turns->cursors);
	free(turns);
}

static int round_robin_choose(void *policy, size_t set_index, uint64_t key_hash, int64_t now_us)
{
	struct round_robin *turns = policy;
	const struct sim_set *set = &turns->view->sets[set_index];
	size_t *cursor = &turns->cursors[set_index];
	uint16_t node;

	(void)key_hash;
	(void)now_us;
	if (set->count == 0)
		return -1;
	if (*cursor >= set->count) /* the set has shrunk */
		*cursor = 0;
	node = set->nodes[*cursor];
	*cursor = (*cursor + 1) % set->count;
	return node;
}

static void round_robin_sent(void *policy, uint16_t node, int64_t now_us)
{
	(void)policy;
	(void)node;
	(void)now_us;
}

static void round_robin_answered(void *policy, uint16_t node, const struct sim_answer *answer, int64_t now_us)
{
	(void)policy;
	(void)node;
	(void)answer;
	(void)now_us;
}

const struct sim_policy sim_policy_round_robin = {
	.name = "round_robin",
	.help = "each member of the set in turn",
	.source = "no model to interpret; each router begins at a random place",
	.new = round_robin_new,
	.free = round_robin_free,
	.choose = round_robin_choose,
	.sent = round_robin_sent,
	.answered = round_robin_answered,
};
