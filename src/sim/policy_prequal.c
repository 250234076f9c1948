#include "sim/policy_prequal.h"

#include "sim/outstanding.h"

#include <math.h>

/* Which set asked: answers of a node come back in the order of its probes, but for those lost. */
#define ASKED_MAX 32

struct prequal_node {
	int64_t failed_us;           /* probes received until then are void; -1: none */
	struct prequal_probe latest; /* for whichever set; its received_us is -1 before the first */
	uint32_t asked_sets[ASKED_MAX];
	size_t asked_first, asked_count;
};
struct prequal {
	struct outstanding own;
	struct prequal_pool *pools; /* by set */
	struct prequal_node *nodes;
};

double prequal_reuse(size_t replica_count)
{
	double kept = 1.0 - (double)PREQUAL_POOL_MAX / (double)replica_count;
	double surplus = kept * PREQUAL_PROBES - PREQUAL_REMOVES;

	return surplus > 0.0 ? fmax(1.0, (1.0 + PREQUAL_DELTA) / surplus) : INFINITY;
}

void prequal_drop(struct prequal_pool *pool, size_t place)
{
	pool->count--;
	memmove(&pool->probes[place], &pool->probes[place + 1], (pool->count - place) * sizeof(pool->probes[0]));
}

static void seen_insert(struct prequal_pool *pool, uint32_t in_flight)
{
	uint32_t *sorted = pool->seen_sorted;
	size_t place;

	if (pool->seen_count == PREQUAL_SEEN_MAX) {
		uint32_t oldest = pool->seen[pool->seen_next];

		for (place = 0; sorted[place] != oldest; place++)
			;
		memmove(&sorted[place], &sorted[place + 1], (PREQUAL_SEEN_MAX - 1 - place) * sizeof(sorted[0]));
		pool->seen_count--;
	}
	for (place = pool->seen_count; place > 0 && sorted[place - 1] > in_flight; place--)
		sorted[place] = sorted[place - 1];
	sorted[place] = in_flight;
	pool->seen[pool->seen_next] = in_flight;
	pool->seen_next = (pool->seen_next + 1) % PREQUAL_SEEN_MAX;
	pool->seen_count++;
}

/* Equal times: the one that was added first. */
static size_t oldest(const struct prequal_pool *pool)
{
	size_t oldest = 0;

	for (size_t i = 1; i < pool->count; i++) {
		if (pool->probes[i].received_us < pool->probes[oldest].received_us)
			oldest = i;
	}
	return oldest;
}

void prequal_add(struct prequal_pool *pool, const struct prequal_probe *probe)
{
	seen_insert(pool, probe->in_flight);
	for (size_t i = 0; i < pool->count; i++) {
		if (pool->probes[i].node == probe->node) {
			prequal_drop(pool, i);
			break;
		}
	}
	if (pool->count == PREQUAL_POOL_MAX)
		prequal_drop(pool, oldest(pool));
	pool->probes[pool->count++] = *probe;
}

uint32_t prequal_hot_above(const struct prequal_pool *pool)
{
	size_t rank = (size_t)ceil(PREQUAL_HOT_SHARE * (double)pool->seen_count);

	return rank > 0 ? pool->seen_sorted[rank - 1] : UINT32_MAX;
}

/* Whether a is the better choice; equals are told apart by the other number. */
static bool is_better(const struct prequal_probe *a, const struct prequal_probe *b, uint32_t hot_above)
{
	bool is_hot = a->in_flight > hot_above;

	if (is_hot != (b->in_flight > hot_above))
		return !is_hot;
	if (is_hot)
		return a->in_flight != b->in_flight ? a->in_flight < b->in_flight : a->latency_ns < b->latency_ns;
	return a->latency_ns != b->latency_ns ? a->latency_ns < b->latency_ns : a->in_flight < b->in_flight;
}

int prequal_select(const struct prequal_pool *pool)
{
	uint32_t hot_above = prequal_hot_above(pool);
	size_t best = 0;

	if (pool->count < 2)
		return -1;
	for (size_t i = 1; i < pool->count; i++) {
		if (is_better(&pool->probes[i], &pool->probes[best], hot_above))
			best = i;
	}
	return (int)best;
}

void prequal_use(struct prequal_pool *pool, size_t place)
{
	struct prequal_probe *probe = &pool->probes[place];

	probe->in_flight++;
	if (probe->uses_left == PREQUAL_USES_NEVER)
		return;
	if (--probe->uses_left == 0)
		prequal_drop(pool, place);
}

void prequal_remove(struct prequal_pool *pool)
{
	uint32_t hot_above = prequal_hot_above(pool);
	size_t gone = 0;

	if (pool->count == 0)
		return;
	for (size_t i = 1; pool->removes_worst && i < pool->count; i++) {
		if (is_better(&pool->probes[gone], &pool->probes[i], hot_above))
			gone = i;
	}
	prequal_drop(pool, pool->removes_worst ? gone : oldest(pool));
	pool->removes_worst = !pool->removes_worst;
}

static void *prequal_new(const struct sim_view *view, uint64_t seed)
{
	struct prequal *prequal = must_zalloc(1, sizeof(*prequal));

	outstanding_init(&prequal->own, view, seed);
	prequal->pools = must_zalloc(view->set_count, sizeof(prequal->pools[0]));
	prequal->nodes = must_zalloc(view->node_count, sizeof(prequal->nodes[0]));
	for (size_t i = 0; i < view->node_count; i++)
		prequal->nodes[i] = (struct prequal_node){ .failed_us = -1, .latest.received_us = -1 };
	return prequal;
}

static void prequal_free(void *policy)
{
	struct prequal *prequal = policy;

	outstanding_fini(&prequal->own);
	free(prequal->pools);
	free(prequal->nodes);
	free(prequal);
}

/* What a node told another set's pool is news for this one too; then the probes that are too old or void go. */
static void refresh(struct prequal *prequal, struct prequal_pool *pool, int64_t now_us)
{
	for (size_t i = pool->count; i > 0; i--) {
		struct prequal_probe *probe = &pool->probes[i - 1];
		const struct prequal_probe *latest = &prequal->nodes[probe->node].latest;

		if (latest->received_us > probe->received_us) {
			probe->in_flight = latest->in_flight;
			probe->latency_ns = latest->latency_ns;
			probe->received_us = latest->received_us;
		}
		if (now_us - probe->received_us > PREQUAL_AGE_US ||
		    probe->received_us <= prequal->nodes[probe->node].failed_us)
			prequal_drop(pool, i - 1);
	}
}

static int prequal_choose(void *policy, size_t set_index, uint64_t key_hash, int64_t now_us)
{
	struct prequal *prequal = policy;
	const struct sim_set *set = &prequal->own.view->sets[set_index];
	struct prequal_pool *pool = &prequal->pools[set_index];
	int place, chosen;

	(void)key_hash;
	refresh(prequal, pool, now_us);
	place = prequal_select(pool);
	if (place < 0)
		return outstanding_draw(&prequal->own, set);
	chosen = pool->probes[place].node;
	prequal_use(pool, (size_t)place);
	/* In the authors' pools hundreds of replicas stand behind 16 probes. Where the pool holds all there are, the last two stay: with fewer the
	 * choice would be random. */
	if (set->count > PREQUAL_POOL_MAX || pool->count > 2)
		prequal_remove(pool);
	return chosen;
}

static void prequal_sent(void *policy, uint16_t node, int64_t now_us)
{
	struct prequal *prequal = policy;

	(void)now_us;
	outstanding_sent(&prequal->own, node);
}

/* Aversion to errors: a node that fails looks idle, so what its probes said of it is void. */
static void prequal_answered(void *policy, uint16_t node, const struct sim_answer *answer, int64_t now_us)
{
	struct prequal *prequal = policy;

	outstanding_answered(&prequal->own, node);
	if (answer->is_failed)
		prequal->nodes[node].failed_us = now_us;
}

/* Members drawn without replacement (Floyd's method). */
static size_t prequal_probes(void *policy, size_t set_index, uint16_t *ret_nodes, size_t limit, int64_t now_us)
{
	struct prequal *prequal = policy;
	const struct sim_set *set = &prequal->own.view->sets[set_index];
	size_t want = min_size(min_size(PREQUAL_PROBES, limit), set->count);
	size_t count = 0;

	(void)now_us;
	for (size_t last = set->count - want; count < want; last++) {
		uint16_t node = set->nodes[rng_below(&prequal->own.rng, last + 1)];
		struct prequal_node *asked;

		for (size_t i = 0; i < count; i++) {
			if (ret_nodes[i] == node)
				node = set->nodes[last];
		}
		ret_nodes[count++] = node;
		asked = &prequal->nodes[node];
		if (asked->asked_count == ASKED_MAX) {
			asked->asked_first = (asked->asked_first + 1) % ASKED_MAX;
			asked->asked_count--;
		}
		asked->asked_sets[(asked->asked_first + asked->asked_count++) % ASKED_MAX] = (uint32_t)set_index;
	}
	return count;
}

static uint32_t uses(struct prequal *prequal, size_t replica_count)
{
	double reuse = prequal_reuse(replica_count);
	double whole = floor(reuse);

	if (isinf(reuse))
		return PREQUAL_USES_NEVER;
	/* A part of a use is a use with that chance. */
	return (uint32_t)whole + ((double)(rng_u64(&prequal->own.rng) >> 11) * 0x1p-53 < reuse - whole ? 1 : 0);
}

static void prequal_probed(void *policy, uint16_t node, uint32_t in_flight, int64_t latency_ns, int64_t now_us)
{
	struct prequal *prequal = policy;
	struct prequal_node *asked = &prequal->nodes[node];
	struct prequal_probe probe = { node, in_flight, latency_ns, now_us, 0 };
	size_t set_index;

	if (asked->asked_count == 0)
		return; /* it left and came back meanwhile */
	set_index = asked->asked_sets[asked->asked_first];
	asked->asked_first = (asked->asked_first + 1) % ASKED_MAX;
	asked->asked_count--;
	probe.uses_left = uses(prequal, max_size(prequal->own.view->sets[set_index].count, 1));
	prequal_add(&prequal->pools[set_index], &probe);
	asked->latest = probe;
}

static void prequal_changed(void *policy, uint16_t node, bool is_member, bool is_new, int64_t now_us)
{
	struct prequal *prequal = policy;

	(void)is_member;
	(void)is_new;
	prequal->nodes[node].failed_us = now_us;
	prequal->nodes[node].asked_count = 0;
}

const struct sim_policy sim_policy_prequal = {
	.name = "prequal",
	.help = "of the replicas probed lately the one with least latency that is not hot, else the one with fewest in "
		"flight",
	.source = "Wydrowski et al., Load is not what you should balance, NSDI 2024, asynchronous mode: 3 probes a "
		  "query, pool 16, age 1 s, one removal a "
		  "query, delta 1, Q_RIF 0.84 over the last 64 RIFs. Ours: a pool for each set, and what a node tells "
		  "one is news for all; in sets of "
		  "at most 24 the reuse formula has no value: age alone ends a probe; in sets of at most 16 the last "
		  "two are not removed; a "
		  "failure voids the node's probes; no probes while idle",
	.new = prequal_new,
	.free = prequal_free,
	.choose = prequal_choose,
	.sent = prequal_sent,
	.answered = prequal_answered,
	.changed = prequal_changed,
	.probes = prequal_probes,
	.probed = prequal_probed,
};
