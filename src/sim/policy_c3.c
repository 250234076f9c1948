#include "sim/policy_c3.h"

#include "sim/outstanding.h"

#include <math.h>

struct c3 {
	struct outstanding own;
	struct c3_node *nodes;
	struct c3_rate *rates;
	bool is_begun;
};

static double blend(double old, double sample) { return C3_ALPHA * sample + (1.0 - C3_ALPHA) * old; }

void c3_feed(struct c3_node *node, double response_us, double service_us, double queue)
{
	if (!node->is_known) {
		*node = (struct c3_node){ true, response_us, service_us, queue };
		return;
	}
	node->response_us = blend(node->response_us, response_us);
	node->service_us = blend(node->service_us, service_us);
	node->queue = blend(node->queue, queue);
}

void c3_feed_failed(struct c3_node *node, double response_us)
{
	/* Without any feedback the node would keep the score 0, the best there is, for as long as it is dead. */
	if (!node->is_known)
		*node = (struct c3_node){ true, response_us, response_us, 0.0 };
	node->response_us = blend(node->response_us, response_us);
}

double c3_score(const struct c3_node *node, uint32_t outstanding, size_t client_count)
{
	double queue;

	if (!node->is_known)
		return 0.0;
	queue = 1.0 + (double)outstanding * (double)client_count + node->queue;
	return node->response_us - node->service_us + queue * queue * queue * node->service_us;
}

void c3_rate_init(struct c3_rate *rate, int64_t now_us)
{
	*rate = (struct c3_rate){
		.rate = C3_TOKENS_MAX,
		.rate_before = C3_TOKENS_MAX,
		.decreased_us = now_us,
		.increased_us = now_us,
		.ran_out_us = -1,
		.tokens = C3_TOKENS_MAX,
		.tokens_us = now_us,
		.slot = now_us / C3_INTERVAL_US,
	};
}

static double tokens_at(const struct c3_rate *rate, int64_t now_us)
{
	double tokens = rate->tokens + rate->rate * (double)(now_us - rate->tokens_us) / (double)C3_INTERVAL_US;

	return tokens < C3_TOKENS_MAX ? tokens : C3_TOKENS_MAX;
}

int64_t c3_rate_wait_us(const struct c3_rate *rate, int64_t now_us)
{
	double lack = 1.0 - tokens_at(rate, now_us);

	/* What rounding leaves is no reason to wait. */
	if (lack <= 1e-9)
		return 0;
	return (int64_t)ceil(lack * (double)C3_INTERVAL_US / rate->rate);
}

void c3_rate_sent(struct c3_rate *rate, int64_t now_us)
{
	double tokens = tokens_at(rate, now_us) - 1.0;

	rate->tokens = tokens > 0.0 ? tokens : 0.0;
	rate->tokens_us = now_us;
	if (tokens < 1.0)
		rate->ran_out_us = now_us;
}

/* Closes the intervals that are over; those that nothing came in are closed in one go. */
static void close_slots(struct c3_rate *rate, int64_t now_us)
{
	int64_t slot = now_us / C3_INTERVAL_US;

	if (slot <= rate->slot)
		return;
	rate->received = C3_RECEIVE_SHARE * (double)rate->received_count + (1.0 - C3_RECEIVE_SHARE) * rate->received;
	if (slot > rate->slot + 1)
		rate->received *= pow(1.0 - C3_RECEIVE_SHARE, (double)(slot - rate->slot - 1));
	rate->received_count = 0;
	rate->slot = slot;
}

/* Tokens that came at the old rate stay what they are. */
static void set_rate(struct c3_rate *rate, double value, int64_t now_us)
{
	rate->tokens = tokens_at(rate, now_us);
	rate->tokens_us = now_us;
	rate->rate = value > C3_RATE_MIN ? value : C3_RATE_MIN;
}

void c3_rate_answered(struct c3_rate *rate, bool is_failed, int64_t now_us)
{
	bool is_limit = rate->ran_out_us >= 0 && now_us - rate->ran_out_us <= C3_INTERVAL_US;

	close_slots(rate, now_us);
	if (!is_failed)
		rate->received_count++;
	if (rate->rate < rate->received) {
		double since_ms = (double)(now_us - rate->decreased_us) / 1000.0;
		double saddle_ms = cbrt(rate->rate_before * C3_BETA / C3_GAMMA);
		double target = C3_GAMMA * pow(since_ms - saddle_ms, 3.0) + rate->rate_before;

		rate->increased_us = now_us;
		set_rate(rate, fmin(target, rate->rate + C3_STEP_MAX), now_us);
	} else if (is_limit && rate->received > 0.0 && rate->rate > rate->received &&
		   now_us - rate->increased_us > C3_HYSTERESIS * C3_INTERVAL_US) {
		rate->rate_before = rate->rate;
		rate->decreased_us = now_us;
		set_rate(rate, rate->rate * C3_BETA, now_us);
	}
}

static void *c3_new(const struct sim_view *view, uint64_t seed)
{
	struct c3 *c3 = must_zalloc(1, sizeof(*c3));

	outstanding_init(&c3->own, view, seed);
	c3->nodes = must_zalloc(view->node_count, sizeof(c3->nodes[0]));
	c3->rates = must_zalloc(view->node_count, sizeof(c3->rates[0]));
	return c3;
}

/* The clock does not begin at 0, and a rate that was never lowered would seem to have been left alone since then. */
static void begin(struct c3 *c3, int64_t now_us)
{
	for (size_t i = 0; !c3->is_begun && i < c3->own.view->node_count; i++)
		c3_rate_init(&c3->rates[i], now_us);
	c3->is_begun = true;
}

static void c3_free(void *policy)
{
	struct c3 *c3 = policy;

	outstanding_fini(&c3->own);
	free(c3->nodes);
	free(c3->rates);
	free(c3);
}

/* By score, the first that its rate allows; as scores without feedback are all 0, ties go to the fewest outstanding, then to chance. When no rate
 * allows any, which `hold` keeps from happening where requests can wait, the one whose turn comes first. */
static int c3_choose(void *policy, size_t set_index, uint64_t key_hash, int64_t now_us)
{
	struct c3 *c3 = policy;
	const struct sim_set *set = &c3->own.view->sets[set_index];
	int64_t least_wait_us = INT64_MAX;
	double least_score = INFINITY;
	uint32_t least_outstanding = 0;
	uint64_t tied_count = 0;
	int chosen = -1;

	begin(c3, now_us);
	(void)key_hash;
	for (size_t i = 0; i < set->count; i++) {
		uint16_t node = set->nodes[i];
		uint32_t outstanding = c3->own.counts[node];
		int64_t wait_us = c3_rate_wait_us(&c3->rates[node], now_us);
		double score = c3_score(&c3->nodes[node], outstanding, c3->own.view->router_count);
		bool is_better = wait_us < least_wait_us;

		if (wait_us == least_wait_us)
			is_better = score < least_score || (score <= least_score && outstanding < least_outstanding);
		if (is_better)
			tied_count = 0;
		else if (wait_us != least_wait_us || score > least_score || outstanding != least_outstanding)
			continue;
		if (++tied_count == 1 || rng_below(&c3->own.rng, tied_count) == 0)
			chosen = node;
		least_wait_us = wait_us;
		least_score = score;
		least_outstanding = outstanding;
	}
	return chosen;
}

static int64_t c3_hold(void *policy, size_t set_index, int64_t now_us)
{
	struct c3 *c3 = policy;
	const struct sim_set *set = &c3->own.view->sets[set_index];
	int64_t least_us = INT64_MAX;

	begin(c3, now_us);
	for (size_t i = 0; i < set->count; i++) {
		least_us = min_i64(least_us, c3_rate_wait_us(&c3->rates[set->nodes[i]], now_us));
		if (least_us == 0)
			break;
	}
	return set->count > 0 ? least_us : 0;
}

static void c3_sent(void *policy, uint16_t node, int64_t now_us)
{
	struct c3 *c3 = policy;

	begin(c3, now_us);
	outstanding_sent(&c3->own, node);
	c3_rate_sent(&c3->rates[node], now_us);
}

static void c3_answered(void *policy, uint16_t node, const struct sim_answer *answer, int64_t now_us)
{
	struct c3 *c3 = policy;
	double response_us = (double)max_i64(answer->rtt_ns, 0) / 1000.0;

	outstanding_answered(&c3->own, node);
	if (answer->is_failed)
		c3_feed_failed(&c3->nodes[node], fmax(response_us, (double)c3->own.view->timeout_us));
	else
		c3_feed(&c3->nodes[node], response_us, (double)max_i64(answer->service_ns, 0) / 1000.0,
			(double)answer->queue_count);
	c3_rate_answered(&c3->rates[node], answer->is_failed, now_us);
}

static void c3_changed(void *policy, uint16_t node, bool is_member, bool is_new, int64_t now_us)
{
	struct c3 *c3 = policy;

	(void)is_new;
	if (!is_member)
		return;
	c3->nodes[node] = (struct c3_node){ .is_known = false };
	c3_rate_init(&c3->rates[node], now_us);
}

const struct sim_policy sim_policy_c3 = {
	.name = "c3",
	.help = "least (R - 1/mu) + (1 + outstanding * routers + queue)^3 / mu among those that a cubic send rate "
		"allows",
	.source = "Suresh et al., C3, NSDI 2015; constants of the paper and of the authors' code (absim, Cassandra): "
		  "EWMA 0.9, beta 0.2, gamma 4e-6, "
		  "smax 10, 20 ms, hysteresis four intervals, ten tokens at first and at most. Ours: a rate falls only "
		  "where its tokens ran out "
		  "(literally taken, a router's rates sink below an open-loop demand and its queues never end); where "
		  "no rate allows any and "
		  "requests cannot be held back at the router, the node whose token comes first; q counts running "
		  "requests too; a failure "
		  "counts as its time, at least the time-out; no shadow reads",
	.new = c3_new,
	.free = c3_free,
	.choose = c3_choose,
	.sent = c3_sent,
	.answered = c3_answered,
	.hold = c3_hold,
	.changed = c3_changed,
};
