#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "sim/policy.h"
#include "sim/policy_c3.h"
#include "sim/policy_peak_ewma.h"
#include "sim/policy_prequal.h"
#include "sim/policy_snitch.h"
#include "sim/reservoir.h"

static void assert_near(double value, double expected)
{
	double tolerance = fmax(fabs(expected), 1.0) * 1e-9;

	if (fabs(value - expected) > tolerance)
		fail_msg("%.12g instead of %.12g", value, expected);
}

/* A world of one set of all nodes, for questions that only a whole policy answers. */
struct world {
	uint16_t members[32];
	struct sim_set set;
	uint32_t weights_milli[32];
	const char *ids[32];
	struct sim_view view;
};
static void world_init(struct world *world, size_t node_count)
{
	static const char names[32][4] = { "n0",  "n1",  "n2",  "n3",  "n4",  "n5",  "n6",  "n7",  "n8",  "n9",  "n10",
					   "n11", "n12", "n13", "n14", "n15", "n16", "n17", "n18", "n19", "n20", "n21",
					   "n22", "n23", "n24", "n25", "n26", "n27", "n28", "n29", "n30", "n31" };

	for (size_t i = 0; i < node_count; i++) {
		world->members[i] = (uint16_t)i;
		world->weights_milli[i] = 1000;
		world->ids[i] = names[i];
	}
	world->set = (struct sim_set){ world->members, node_count };
	world->view = (struct sim_view){
		.node_count = node_count,
		.set_count = 1,
		.router_count = 2,
		.sets = &world->set,
		.weights_milli = world->weights_milli,
		.node_ids = world->ids,
		.timeout_us = SEC_US,
	};
}

static void answer_after(const struct sim_policy *kind, void *policy, uint16_t node, int64_t rtt_us, int64_t now_us)
{
	struct sim_answer answer = { .rtt_ns = rtt_us * 1000, .service_ns = rtt_us * 1000 };

	kind->sent(policy, node, now_us - rtt_us);
	kind->answered(policy, node, &answer, now_us);
}

/* --- C3 --- */

static void test_c3_score(void **state)
{
	static const struct {
		double response_us, service_us, queue;
		uint32_t outstanding;
		size_t client_count;
		double score;
	} rows[] = {
		{ 10000, 10000, 0, 0, 1, 10000 },            /* idle: the service time */
		{ 12000, 10000, 2, 1, 2, 2000 + 1250000 },   /* (1 + 1*2 + 2)^3 = 125 */
		{ 12000, 10000, 2, 1, 10, 2000 + 21970000 }, /* others are supposed to send as much: 13^3 */
		{ 50000, 2000, 4.5, 0, 3, 48000 + 332750 },  /* 5.5^3 = 166.375 */
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct c3_node node = { 0 };

		assert_near(c3_score(&node, rows[i].outstanding, rows[i].client_count), 0.0);
		c3_feed(&node, rows[i].response_us, rows[i].service_us, rows[i].queue);
		assert_near(c3_score(&node, rows[i].outstanding, rows[i].client_count), rows[i].score);
	}
}

static void test_c3_averages(void **state)
{
	struct c3_node node = { 0 };

	(void)state;
	c3_feed(&node, 1000, 500, 10);
	c3_feed(&node, 2000, 700, 0);
	assert_near(node.response_us, 1900); /* 0.9 of the new, 0.1 of the old */
	assert_near(node.service_us, 680);
	assert_near(node.queue, 1);
	c3_feed_failed(&node, 1000000);
	assert_near(node.response_us, 900190);
	assert_near(node.service_us, 680);
	node = (struct c3_node){ 0 };
	c3_feed_failed(&node, 1000000);
	assert_near(c3_score(&node, 1, 2), 27e6); /* no longer the best there is */
}

static void test_c3_tokens(void **state)
{
	struct c3_rate rate;

	(void)state;
	c3_rate_init(&rate, 5000);
	for (size_t i = 0; i < 10; i++) {
		assert_int_equal(c3_rate_wait_us(&rate, 5000), 0);
		c3_rate_sent(&rate, 5000);
	}
	assert_int_equal(c3_rate_wait_us(&rate, 5000), 2000); /* ten in 20 ms */
	assert_int_equal(c3_rate_wait_us(&rate, 6500), 500);
	assert_int_equal(c3_rate_wait_us(&rate, 7000), 0);
	assert_int_equal(rate.ran_out_us, 5000);
	c3_rate_sent(&rate, 1000000); /* full again, but ten at most */
	assert_near(rate.tokens, 9);
	assert_int_equal(rate.ran_out_us, 5000);
}

static void test_c3_cubic(void **state)
{
	static const struct {
		int64_t since_decrease_ms;
		double rate, expected;
	} rows[] = {
		{ 0, 2, 8 }, /* Rmax less its share beta */
		{ 0, 5, 8 },
		{ 2000, 2, 12 }, /* no more than smax at once */
		{ 179370, 100, 110 },
	};
	double saddle_ms = cbrt(10 * 0.2 / 4e-6);
	struct c3_rate rate;

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		c3_rate_init(&rate, 0);
		rate.rate = rows[i].rate;
		rate.received = 1000; /* more comes back than we send: room */
		rate.slot = rows[i].since_decrease_ms / 20;
		c3_rate_answered(&rate, false, rows[i].since_decrease_ms * 1000);
		assert_near(rate.rate, rows[i].expected);
	}
	/* At the saddle it is what it was; 100 ms on 4e-6 * 100^3 = 4 more. */
	for (size_t i = 0; i < 2; i++) {
		int64_t now_us = (int64_t)((saddle_ms + (i == 0 ? 0 : 100)) * 1000);

		c3_rate_init(&rate, 0);
		rate.rate = 9;
		rate.received = 1000;
		rate.slot = now_us / C3_INTERVAL_US;
		c3_rate_answered(&rate, false, now_us);
		assert_true(fabs(rate.rate - (i == 0 ? 10 : 14)) < 0.001);
	}
}

static void test_c3_decrease(void **state)
{
	struct c3_rate rate;

	(void)state;
	c3_rate_init(&rate, 0);
	/* Nothing came back in a whole interval yet: no sign of congestion. */
	c3_rate_sent(&rate, 19000);
	rate.ran_out_us = 19000;
	c3_rate_answered(&rate, false, 19000);
	assert_near(rate.rate, 10);
	/* One answer in the first interval: 0.1 of it; we may send ten. Within four intervals of an increase (or the start) nothing falls. */
	rate.ran_out_us = 80000;
	c3_rate_answered(&rate, false, 80000);
	assert_near(rate.received, 0.1 * 0.9 * 0.9 * 0.9);
	assert_near(rate.rate, 10);
	/* Nor where the rate was not the limit. */
	rate.ran_out_us = 60000;
	c3_rate_answered(&rate, false, 80001);
	assert_near(rate.rate, 10);
	rate.ran_out_us = 60001;
	c3_rate_answered(&rate, false, 80001);
	assert_near(rate.rate, 2);
	assert_near(rate.rate_before, 10);
	assert_int_equal(rate.decreased_us, 80001);
	/* A failed one is no answer: three came since 80 ms, none after 100 ms. */
	c3_rate_answered(&rate, true, 100000);
	assert_near(rate.received, 0.1 * 3 + 0.9 * 0.0729);
	c3_rate_answered(&rate, true, 120000);
	assert_near(rate.received, 0.9 * (0.1 * 3 + 0.9 * 0.0729));
	for (int64_t now_us = 200000; now_us < 4 * SEC_US; now_us += 50000) {
		rate.ran_out_us = now_us;
		c3_rate_answered(&rate, true, now_us);
	}
	assert_near(rate.rate, C3_RATE_MIN);
}

static void test_c3_policy(void **state)
{
	const struct sim_policy *kind = sim_policy_find("c3");
	struct world world;
	void *policy;

	(void)state;
	world_init(&world, 2);
	policy = kind->new (&world.view, 7);
	answer_after(kind, policy, 0, 10000, 100000);
	answer_after(kind, policy, 1, 11000, 100000);
	for (size_t i = 0; i < 20; i++)
		assert_int_equal(kind->choose(policy, 0, i, 100000), 0);
	kind->sent(policy, 0, 100000); /* (1 + 1 * 2)^3 * 10 ms against 11 ms */
	assert_int_equal(kind->choose(policy, 0, 0, 100000), 1);
	/* A better score does not help where the rate is used up; and when it is so everywhere the request is held. */
	for (size_t i = 0; i < 10; i++)
		kind->sent(policy, 1, 100000);
	assert_int_equal(kind->hold(policy, 0, 100000), 0);
	for (size_t i = 0; i < 10; i++)
		kind->sent(policy, 0, 100000);
	assert_true(kind->hold(policy, 0, 100000) > 0);
	assert_int_equal(kind->hold(policy, 0, 100000 + kind->hold(policy, 0, 100000)), 0);
	kind->free(policy);
}

/* --- the snitch --- */

static void test_snitch_order(void **state)
{
	static const struct {
		size_t count;
		double scores[4];
		size_t first;
	} rows[] = {
		{ 1, { 9 }, 0 },
		{ 2, { 1.0, 1.0 }, 0 },
		{ 2, { 1.0, 0.91 }, 0 }, /* 1.0 <= 0.91 * 1.1 */
		{ 2, { 1.0, 0.90 }, 1 },
		{ 2, { 0.5, 1.0 }, 0 },
		{ 2, { 0.5, 0.0 }, 1 },           /* without samples: the best */
		{ 3, { 0.5, 1.0, 0.6 }, 0 },      /* the second is out of its place, yet the first leads */
		{ 3, { 0.96, 1.0, 0.94 }, 0 },    /* within 10 % of one another: static */
		{ 4, { 0.8, 0.6, 0.7, 0.6 }, 1 }, /* the first of equals */
	};
	double sorted[4];

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++)
		assert_int_equal(snitch_first(rows[i].scores, rows[i].count, SNITCH_BADNESS, sorted), rows[i].first);
}

static void test_snitch_first_of_many(void **state)
{
	double scores[40], sorted[40];

	(void)state;
	for (size_t i = 0; i < COUNT_OF(scores); i++)
		scores[i] = 1.0 - (double)((i * 7) % 40) / 100.0;
	assert_int_equal(snitch_first(scores, 40, SNITCH_BADNESS, sorted), 17); /* 17 * 7 = 39 modulo 40 */
	assert_int_equal(snitch_first(scores, 40, 1.0, sorted), 0);
}

static void test_snitch_scores(void **state)
{
	static const double medians[] = { 5000, 20000, -1, 10000 }, severities[] = { 0, 0, 0, 0.25 };
	static const double small[] = { 0.5, 0.25 };
	double scores[4];

	(void)state;
	snitch_scores(medians, severities, 4, scores);
	assert_near(scores[0], 0.25);
	assert_near(scores[1], 1.0);
	assert_near(scores[2], 0.0);
	assert_near(scores[3], 0.75); /* severity is added without weight */
	snitch_scores(small, severities, 2, scores);
	assert_near(scores[0], 0.5); /* by 1 at least */
}

static void test_reservoir(void **state)
{
	static struct reservoir reservoir;
	struct rng rng;

	(void)state;
	rng_seed(&rng, 3);
	assert_near(reservoir_median(&reservoir), -1);
	reservoir_feed(&reservoir, 30, 0, &rng);
	assert_near(reservoir_median(&reservoir), 30);
	reservoir_feed(&reservoir, 10, 0, &rng);
	assert_near(reservoir_median(&reservoir), 20);
	reservoir_feed(&reservoir, 11, 0, &rng);
	assert_near(reservoir_median(&reservoir), 11);
	reservoir_clear(&reservoir);
	/* e^(0.75 * 60) outweighs any luck of the old. */
	for (size_t i = 0; i < 1000; i++)
		reservoir_feed(&reservoir, 1, 0, &rng);
	assert_int_equal(reservoir.count, RESERVOIR_SIZE);
	for (size_t i = 0; i < 51; i++)
		reservoir_feed(&reservoir, 9, 60 * SEC_US, &rng);
	assert_near(reservoir_median(&reservoir), 9);
	for (size_t i = 0; i < reservoir.count; i++)
		assert_true(reservoir.items[i].log_priority >= reservoir.items[0].log_priority);
}

/* At one moment every value is as likely to stay; later ones by e^(0.75 t). Fed 1000 a second for 10 s the share of the last second is
 * 1 - e^-0.75 = 0.53. */
static void test_reservoir_bias(void **state)
{
	static struct reservoir reservoir;
	struct rng rng;
	size_t last_second = 0;

	(void)state;
	for (uint64_t seed = 0; seed < 100; seed++) {
		rng_seed(&rng, seed);
		reservoir_clear(&reservoir);
		for (int64_t i = 0; i < 10000; i++)
			reservoir_feed(&reservoir, (double)i, i * 1000, &rng);
		for (size_t i = 0; i < reservoir.count; i++)
			last_second += reservoir.items[i].value >= 9000;
	}
	assert_in_range(last_second, 5000, 5500);
}

static void test_snitch_policy(void **state)
{
	const struct sim_policy *kind = sim_policy_find("snitch");
	uint64_t first_key = 0, second_key = (uint64_t)1 << 32;
	struct world world;
	void *policy;

	(void)state;
	world_init(&world, 2);
	policy = kind->new (&world.view, 7);
	assert_int_equal(kind->choose(policy, 0, first_key, 0), 0);
	assert_int_equal(kind->choose(policy, 0, second_key, 0), 1);
	answer_after(kind, policy, 0, 10000, 50000);
	answer_after(kind, policy, 1, 20000, 50000);
	assert_int_equal(kind->choose(policy, 0, second_key, 60000), 1); /* scores are of the last update */
	kind->tick(policy, 100000);
	assert_int_equal(kind->choose(policy, 0, second_key, 100000), 0);
	/* Ten minutes on all is forgotten, and the static order rules. */
	kind->tick(policy, 600 * SEC_US);
	assert_int_equal(kind->choose(policy, 0, second_key, 600 * SEC_US), 1);
	kind->free(policy);
}

/* --- peak EWMA --- */

static void test_peak_ewma(void **state)
{
	struct peak_ewma peak = { 0 };

	(void)state;
	assert_near(peak_ewma_load(&peak, 0, 0), 0);
	assert_near(peak_ewma_load(&peak, 2, 0), PEAK_EWMA_PENALTY + 2);
	peak_ewma_feed(&peak, 10e6, 0);
	assert_near(peak.cost_ns, 10e6);
	peak_ewma_feed(&peak, 20e6, 1000); /* up at once */
	assert_near(peak.cost_ns, 20e6);
	assert_near(peak_ewma_load(&peak, 3, 1000), 80e6);
	peak_ewma_feed(&peak, 10e6, 1000 + 10 * SEC_US);
	assert_near(peak.cost_ns, 20e6 * exp(-1) + 10e6 * (1 - exp(-1)));
	/* Idle, it fades; reading twice or once is the same. */
	assert_near(peak_ewma_load(&peak, 0, 1000 + 20 * SEC_US), peak.cost_ns * exp(-1));
	assert_near(peak_ewma_load(&peak, 0, 1000 + 20 * SEC_US), peak.cost_ns * exp(-1));
	/* Equal times: all weight on the old. */
	peak_ewma_feed(&peak, 1, peak.stamp_us);
	assert_near(peak.cost_ns, 20e6 * exp(-1) + 10e6 * (1 - exp(-1)));
}

static void test_peak_ewma_policy(void **state)
{
	const struct sim_policy *kind = sim_policy_find("peak_ewma");
	struct world world;
	void *policy;

	(void)state;
	world_init(&world, 2);
	policy = kind->new (&world.view, 7);
	answer_after(kind, policy, 0, 10000, 100000);
	answer_after(kind, policy, 1, 25000, 100000);
	assert_int_equal(kind->choose(policy, 0, 0, 100000), 0);
	kind->sent(policy, 0, 100000);
	assert_int_equal(kind->choose(policy, 0, 0, 100000), 0); /* 2 * 10 against 25 */
	kind->sent(policy, 0, 100000);
	assert_int_equal(kind->choose(policy, 0, 0, 100000), 1); /* 3 * 10 */
	kind->changed(policy, 0, true, true, 100000);
	assert_int_equal(kind->choose(policy, 0, 0, 100000), 1); /* new, with requests under way: the penalty */
	kind->free(policy);
}

/* --- Prequal --- */

static void add(struct prequal_pool *pool, uint16_t node, uint32_t in_flight, int64_t latency_ns)
{
	prequal_add(pool, &(struct prequal_probe){ node, in_flight, latency_ns, 0, 3 });
}

static void test_prequal_reuse(void **state)
{
	(void)state;
	assert_near(prequal_reuse(100), 2 / 1.52); /* 2 / (0.84 * 3 - 1) */
	assert_near(prequal_reuse(32), 4);         /* 2 / (0.5 * 3 - 1) */
	assert_near(prequal_reuse(100000), 2 / (0.99984 * 3 - 1));
	assert_true(isinf(prequal_reuse(24)));
	assert_true(isinf(prequal_reuse(3)));
}

static void test_prequal_select(void **state)
{
	struct prequal_pool pool = { 0 };

	(void)state;
	assert_int_equal(prequal_select(&pool), -1);
	add(&pool, 1, 2, 100);
	assert_int_equal(prequal_select(&pool), -1); /* one is not enough to choose from */
	/* RIFs seen: 2 4 4 4 4 9 9 9: the 0.84 quantile of eight is the seventh, 9; nobody is above it: all cold. */
	for (uint16_t i = 2; i < 6; i++)
		add(&pool, i, 4, 200 - i);
	add(&pool, 6, 9, 5);
	add(&pool, 7, 9, 7);
	add(&pool, 8, 9, 6);
	assert_int_equal(prequal_hot_above(&pool), 9);
	assert_int_equal(pool.probes[prequal_select(&pool)].node, 6); /* least latency */
	pool.probes[5].in_flight = 10;
	assert_int_equal(pool.probes[prequal_select(&pool)].node, 8); /* 6 is hot now */
	for (size_t i = 0; i < pool.count; i++)
		pool.probes[i].in_flight = (uint32_t)(30 - i);
	assert_int_equal(pool.probes[prequal_select(&pool)].node, 8); /* all hot: fewest in flight */
}

static void test_prequal_quantile(void **state)
{
	struct prequal_pool pool = { 0 };

	(void)state;
	assert_int_equal(prequal_hot_above(&pool), UINT32_MAX);
	for (uint32_t i = 0; i < 1000; i++)
		add(&pool, (uint16_t)i, i % 100, 1);
	/* The last 64: 936..999, so 36..99; rank ceil(0.84 * 64) = 54. */
	assert_int_equal(prequal_hot_above(&pool), 36 + 53);
}

static void test_prequal_pool(void **state)
{
	struct prequal_pool pool = { 0 };

	(void)state;
	for (uint16_t i = 0; i < 20; i++)
		add(&pool, i, 1, 1);
	assert_int_equal(pool.count, PREQUAL_POOL_MAX);
	assert_int_equal(pool.probes[0].node, 4); /* the oldest went */
	add(&pool, 10, 7, 1);
	assert_int_equal(pool.count, PREQUAL_POOL_MAX);
	assert_int_equal(pool.probes[15].in_flight, 7); /* the newest of a node stands for it */
	for (size_t i = 0; i < 15; i++)
		assert_int_not_equal(pool.probes[i].node, 10);
	prequal_use(&pool, 15);
	assert_int_equal(pool.probes[15].in_flight, 8);
	prequal_use(&pool, 15);
	prequal_use(&pool, 15); /* three uses were allowed */
	assert_int_equal(pool.count, 15);
	pool.probes[0].uses_left = PREQUAL_USES_NEVER;
	for (size_t i = 0; i < 100; i++)
		prequal_use(&pool, 0);
	assert_int_equal(pool.count, 15);
}

static void test_prequal_remove(void **state)
{
	struct prequal_pool pool = { 0 };

	(void)state;
	for (uint16_t i = 0; i < 5; i++)
		add(&pool, i, 3, 100 + (i == 2 ? 50 : 0));
	prequal_remove(&pool); /* the oldest */
	assert_int_equal(pool.probes[0].node, 1);
	prequal_remove(&pool); /* all cold: the slowest */
	assert_int_equal(pool.count, 3);
	for (size_t i = 0; i < pool.count; i++)
		assert_int_not_equal(pool.probes[i].node, 2);
	prequal_remove(&pool); /* the oldest again */
	assert_int_equal(pool.probes[0].node, 3);
	pool.probes[1].in_flight = 4; /* hot, though fast */
	pool.probes[1].latency_ns = 1;
	prequal_remove(&pool);
	assert_int_equal(pool.probes[0].node, 3);
	prequal_remove(&pool);
	prequal_remove(&pool);
	assert_int_equal(pool.count, 0);
}

static void test_prequal_policy(void **state)
{
	const struct sim_policy *kind = sim_policy_find("prequal");
	uint16_t asked[PREQUAL_PROBES];
	bool is_chosen[32] = { false };
	struct world world;
	size_t chosen_count = 0;
	void *policy;

	(void)state;
	world_init(&world, 32);
	policy = kind->new (&world.view, 7);
	assert_int_equal(kind->probes(policy, 0, asked, PREQUAL_PROBES, 0), 3);
	assert_true(asked[0] != asked[1] && asked[0] != asked[2] && asked[1] != asked[2]);
	for (size_t i = 0; i < 3; i++)
		kind->probed(policy, asked[i], 1, (int64_t)(1000 - i), 1000);
	assert_int_equal(kind->choose(policy, 0, 0, 1000), asked[2]); /* the fastest; the oldest is removed */
	/* One more in flight where it was sent, which makes it hot: the other of the two that are left. Now the worst is removed: one is left. */
	assert_int_equal(kind->choose(policy, 0, 0, 1001), asked[1]);
	for (uint64_t i = 0; i < 500; i++)
		is_chosen[kind->choose(policy, 0, 0, 1002)] = true; /* at random */
	for (size_t i = 0; i < 32; i++)
		chosen_count += is_chosen[i];
	assert_int_equal(chosen_count, 32);
	/* A probe lives a second; a failure ends it at once. */
	assert_int_equal(kind->probes(policy, 0, asked, 2, 2000), 2);
	kind->probed(policy, asked[0], 0, 5, 2000);
	kind->probed(policy, asked[1], 0, 6, 2000);
	kind->answered(policy, asked[0], &(struct sim_answer){ .is_failed = true }, 2500);
	chosen_count = 0;
	for (uint64_t i = 0; i < 100; i++)
		chosen_count += kind->choose(policy, 0, 0, 2600) == asked[0];
	assert_true(chosen_count < 20);
	kind->free(policy);
}

/* Two sets of the same nodes: an answer to one is news to the other. */
static void test_prequal_shared_news(void **state)
{
	const struct sim_policy *kind = sim_policy_find("prequal");
	struct sim_set sets[2];
	uint16_t asked[PREQUAL_PROBES];
	struct world world;
	void *policy;

	(void)state;
	world_init(&world, 2);
	sets[0] = sets[1] = world.set;
	world.view.sets = sets;
	world.view.set_count = 2;
	policy = kind->new (&world.view, 7);
	for (size_t set_index = 0; set_index < 2; set_index++) {
		assert_int_equal(kind->probes(policy, set_index, asked, PREQUAL_PROBES, 0), 2);
		kind->probed(policy, 0, 1, set_index == 0 ? 100 : 300, (int64_t)set_index);
		kind->probed(policy, 1, 1, 200, (int64_t)set_index);
	}
	assert_int_equal(kind->choose(policy, 0, 0, 10), 1);
	kind->free(policy);
}

/* In a set smaller than the pool every query would remove more than it brings: the last two stay, and a probe ends by its age alone. */
static void test_prequal_small_set(void **state)
{
	const struct sim_policy *kind = sim_policy_find("prequal");
	uint16_t asked[PREQUAL_PROBES], fastest;
	struct world world;
	size_t changes = 0;
	void *policy;

	(void)state;
	world_init(&world, 3);
	policy = kind->new (&world.view, 7);
	assert_int_equal(kind->probes(policy, 0, asked, PREQUAL_PROBES, 0), 3);
	for (size_t i = 0; i < 3; i++)
		kind->probed(policy, asked[i], 0, (int64_t)(100 + i), 1000);
	fastest = asked[0];
	for (uint64_t i = 0; i < 10; i++)
		changes += kind->choose(policy, 0, 0, SEC_US + 1000) != fastest;
	assert_true(changes > 0 && changes < 10); /* as it fills up the other takes its turns */
	kind->free(policy);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_c3_score),
		cmocka_unit_test(test_c3_averages),
		cmocka_unit_test(test_c3_tokens),
		cmocka_unit_test(test_c3_cubic),
		cmocka_unit_test(test_c3_decrease),
		cmocka_unit_test(test_c3_policy),
		cmocka_unit_test(test_snitch_order),
		cmocka_unit_test(test_snitch_first_of_many),
		cmocka_unit_test(test_snitch_scores),
		cmocka_unit_test(test_reservoir),
		cmocka_unit_test(test_reservoir_bias),
		cmocka_unit_test(test_snitch_policy),
		cmocka_unit_test(test_peak_ewma),
		cmocka_unit_test(test_peak_ewma_policy),
		cmocka_unit_test(test_prequal_reuse),
		cmocka_unit_test(test_prequal_select),
		cmocka_unit_test(test_prequal_quantile),
		cmocka_unit_test(test_prequal_pool),
		cmocka_unit_test(test_prequal_remove),
		cmocka_unit_test(test_prequal_policy),
		cmocka_unit_test(test_prequal_shared_news),
		cmocka_unit_test(test_prequal_small_set),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
