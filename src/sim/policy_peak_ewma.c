#include "sim/policy_peak_ewma.h"

#include "sim/outstanding.h"

#include <math.h>

struct peak_ewma_policy {
	struct outstanding own;
	struct peak_ewma *peaks; /* by node */
};

static double remembered(const struct peak_ewma *peak, int64_t now_us)
{
	return exp(-(double)max_i64(now_us - peak->stamp_us, 0) / PEAK_EWMA_TAU_US);
}

void peak_ewma_feed(struct peak_ewma *peak, double rtt_ns, int64_t now_us)
{
	double share = remembered(peak, now_us);

	peak->cost_ns = rtt_ns > peak->cost_ns ? rtt_ns : peak->cost_ns * share + rtt_ns * (1.0 - share);
	peak->stamp_us = now_us;
}

/* Finagle's reader feeds a sample of 0 and keeps the result; as decay over two spans is decay over their sum, reading without keeping is the same. */
double peak_ewma_load(const struct peak_ewma *peak, uint32_t in_flight, int64_t now_us)
{
	double cost_ns = peak->cost_ns * remembered(peak, now_us);

	if (cost_ns <= 0.0 && in_flight > 0)
		return PEAK_EWMA_PENALTY + in_flight;
	return cost_ns * (in_flight + 1.0);
}

static void *peak_ewma_new(const struct sim_view *view, uint64_t seed)
{
	struct peak_ewma_policy *policy = must_zalloc(1, sizeof(*policy));

	outstanding_init(&policy->own, view, seed);
	policy->peaks = must_zalloc(view->node_count, sizeof(policy->peaks[0]));
	return policy;
}

static void peak_ewma_free(void *data)
{
	struct peak_ewma_policy *policy = data;

	outstanding_fini(&policy->own);
	free(policy->peaks);
	free(policy);
}

static int peak_ewma_choose(void *data, size_t set_index, uint64_t key_hash, int64_t now_us)
{
	struct peak_ewma_policy *policy = data;
	const struct sim_set *set = &policy->own.view->sets[set_index];
	uint16_t nodes[2];
	double loads[2];

	(void)key_hash;
	if (!outstanding_draw_two(&policy->own, set, nodes))
		return outstanding_draw(&policy->own, set);
	for (size_t i = 0; i < 2; i++)
		loads[i] = peak_ewma_load(&policy->peaks[nodes[i]], policy->own.counts[nodes[i]], now_us);
	return loads[1] < loads[0] ? nodes[1] : nodes[0];
}

static void peak_ewma_sent(void *data, uint16_t node, int64_t now_us)
{
	struct peak_ewma_policy *policy = data;

	(void)now_us;
	outstanding_sent(&policy->own, node);
}

/* A failure counts with the time it took, as in Finagle: a time-out is slow, a refusal looks fast. */
static void peak_ewma_answered(void *data, uint16_t node, const struct sim_answer *answer, int64_t now_us)
{
	struct peak_ewma_policy *policy = data;

	outstanding_answered(&policy->own, node);
	peak_ewma_feed(&policy->peaks[node], (double)max_i64(answer->rtt_ns, 0), now_us);
}

static void peak_ewma_changed(void *data, uint16_t node, bool is_member, bool is_new, int64_t now_us)
{
	struct peak_ewma_policy *policy = data;

	(void)is_new;
	/* A connection pool that is made anew begins with a metric that is new. */
	if (is_member)
		policy->peaks[node] = (struct peak_ewma){ .stamp_us = now_us };
}

const struct sim_policy sim_policy_peak_ewma = {
	.name = "peak_ewma",
	.help = "two members at random, the one with less peak EWMA of latency * (in flight + 1)",
	.source = "Finagle, PeakEwma.scala and its P2C balancer: tau 10 s, cost up at once and down by e^(-t/tau), the "
		  "penalty of a node "
		  "without an answer; its failure accrual is a module apart and left out",
	.new = peak_ewma_new,
	.free = peak_ewma_free,
	.choose = peak_ewma_choose,
	.sent = peak_ewma_sent,
	.answered = peak_ewma_answered,
	.changed = peak_ewma_changed,
};
