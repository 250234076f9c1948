#include "sim/policy_snitch.h"

#include "sim/policy.h"
#include "sim/reservoir.h"

#define SNITCH_UPDATE_US (100 * MSEC_US)
#define SNITCH_RESET_US  (600 * SEC_US)

struct snitch {
	const struct sim_view *view;
	struct rng rng;
	struct reservoir *samples; /* by node, as are the next four */
	bool *is_fed;              /* since the last update */
	double *medians, *severities, *scores;
	double *ordered, *sorted; /* room for one set */
	int64_t reset_us;
};

void snitch_scores(const double *medians, const double *severities, size_t count, double *ret_scores)
{
	double greatest = 1.0;

	for (size_t i = 0; i < count; i++) {
		if (medians[i] > greatest)
			greatest = medians[i];
	}
	for (size_t i = 0; i < count; i++)
		ret_scores[i] = medians[i] < 0.0 ? 0.0 : medians[i] / greatest + severities[i];
}

static int by_score(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;

	return left < right ? -1 : left > right;
}

static void sort_scores(double *scores, size_t count)
{
	if (count > 16) {
		qsort(scores, count, sizeof(scores[0]), by_score);
		return;
	}
	/* Sets are mostly of three; this runs for each request. */
	for (size_t i = 1; i < count; i++) {
		double score = scores[i];
		size_t place = i;

		for (; place > 0 && scores[place - 1] > score; place--)
			scores[place] = scores[place - 1];
		scores[place] = score;
	}
}

size_t snitch_first(const double *scores, size_t count, double badness, double *sorted)
{
	size_t best = 0;
	bool is_bad = false;

	if (count < 2)
		return 0;
	memcpy(sorted, scores, count * sizeof(scores[0]));
	sort_scores(sorted, count);
	for (size_t i = 0; i < count; i++) {
		is_bad = is_bad || scores[i] > sorted[i] * (1.0 + badness);
		if (scores[i] < scores[best])
			best = i;
	}
	return is_bad ? best : 0;
}

static void *snitch_new(const struct sim_view *view, uint64_t seed)
{
	struct snitch *snitch = must_zalloc(1, sizeof(*snitch));
	size_t count = view->node_count;

	snitch->view = view;
	rng_seed(&snitch->rng, seed);
	snitch->samples = must_zalloc(count, sizeof(snitch->samples[0]));
	snitch->is_fed = must_zalloc(count, sizeof(snitch->is_fed[0]));
	snitch->medians = must_zalloc(count, sizeof(double));
	snitch->severities = must_zalloc(count, sizeof(double));
	snitch->scores = must_zalloc(count, sizeof(double));
	snitch->ordered = must_zalloc(count, sizeof(double));
	snitch->sorted = must_zalloc(count, sizeof(double));
	for (size_t i = 0; i < count; i++)
		snitch->medians[i] = -1.0;
	snitch->reset_us = -1;
	return snitch;
}

static void snitch_free(void *policy)
{
	struct snitch *snitch = policy;

	free(snitch->samples);
	free(snitch->is_fed);
	free(snitch->medians);
	free(snitch->severities);
	free(snitch->scores);
	free(snitch->ordered);
	free(snitch->sorted);
	free(snitch);
}

/* The static order is that of the key's tokens: each key has its own first replica, as on Cassandra's ring. */
static int snitch_choose(void *policy, size_t set_index, uint64_t key_hash, int64_t now_us)
{
	struct snitch *snitch = policy;
	const struct sim_set *set = &snitch->view->sets[set_index];
	size_t turn;

	(void)now_us;
	if (set->count == 0)
		return -1;
	/* The high half: the low one may have chosen the set. */
	turn = (key_hash >> 32) % set->count;
	for (size_t i = 0; i < set->count; i++)
		snitch->ordered[i] = snitch->scores[set->nodes[(turn + i) % set->count]];
	return set->nodes[(turn + snitch_first(snitch->ordered, set->count, SNITCH_BADNESS, snitch->sorted)) %
			  set->count];
}

static void snitch_sent(void *policy, uint16_t node, int64_t now_us)
{
	(void)policy;
	(void)node;
	(void)now_us;
}

static void snitch_answered(void *policy, uint16_t node, const struct sim_answer *answer, int64_t now_us)
{
	struct snitch *snitch = policy;
	int64_t rtt_us = max_i64(answer->rtt_ns, 0) / 1000;

	/* Cassandra's expiring callbacks give the time-out as the latency of what did not come. */
	if (answer->is_failed)
		rtt_us = max_i64(rtt_us, snitch->view->timeout_us);
	reservoir_feed(&snitch->samples[node], (double)rtt_us, now_us, &snitch->rng);
	snitch->is_fed[node] = true;
}

static void snitch_forget(struct snitch *snitch, size_t node)
{
	reservoir_clear(&snitch->samples[node]);
	snitch->medians[node] = -1.0;
	snitch->is_fed[node] = false;
}

static void snitch_tick(void *policy, int64_t now_us)
{
	struct snitch *snitch = policy;
	size_t count = snitch->view->node_count;

	if (snitch->reset_us < 0)
		snitch->reset_us = now_us - SNITCH_UPDATE_US + SNITCH_RESET_US;
	if (now_us >= snitch->reset_us) {
		snitch->reset_us = now_us + SNITCH_RESET_US;
		for (size_t i = 0; i < count; i++)
			snitch_forget(snitch, i);
	}
	for (size_t i = 0; i < count; i++) {
		if (!snitch->is_fed[i])
			continue;
		snitch->medians[i] = reservoir_median(&snitch->samples[i]);
		snitch->is_fed[i] = false;
	}
	snitch_scores(snitch->medians, snitch->severities, count, snitch->scores);
}

static void snitch_changed(void *policy, uint16_t node, bool is_member, bool is_new, int64_t now_us)
{
	struct snitch *snitch = policy;

	(void)is_new;
	(void)now_us;
	if (!is_member)
		snitch_forget(snitch, node);
	snitch->scores[node] = snitch->medians[node] < 0.0 ? 0.0 : snitch->scores[node];
}

const struct sim_policy sim_policy_snitch = {
	.name = "snitch",
	.help = "static order of the key's replicas, by median latency as soon as one is worse by more than 10 %",
	.source = "Cassandra, DynamicEndpointSnitch.java of 2.x to 4.0: reservoir 100, alpha 0.75, unweighted median, "
		  "update 100 ms, reset 10 min, "
		  "badness threshold 0.1, unsampled scores 0; in microseconds where Cassandra rounds to milliseconds; "
		  "severity 0, as since "
		  "CASSANDRA-11738 only an operator sets it; static order: the set turned by the key's hash; no gossip "
		  "failure detector",
	.new = snitch_new,
	.free = snitch_free,
	.choose = snitch_choose,
	.sent = snitch_sent,
	.answered = snitch_answered,
	.tick = snitch_tick,
	.tick_us = SNITCH_UPDATE_US,
	.changed = snitch_changed,
};
