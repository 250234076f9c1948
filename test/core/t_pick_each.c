/* What is special to each strategy, and what a picker keeps. The contract that they share is in t_pick.c. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/pick_impl.h"
#include "pick_world.h"

static struct world world;

static void begin(enum pick_strategy strategy, const uint32_t *weights_milli, size_t node_count)
{
	world_init(&world, node_count);
	for (size_t i = 0; i < node_count; i++)
		world.nodes[i].weight_milli = weights_milli ? weights_milli[i] : 1000;
	world_publish(&world);
	world_pick(&world, strategy, 7);
}

/* How often each is chosen in 3,000 first tries when nothing changes between them. */
static void count_choices(unsigned *counts)
{
	enum reason reason;

	memset(counts, 0, WORLD_NODES_MAX * sizeof(*counts));
	for (unsigned i = 0; i < 3000; i++)
		counts[world_next(&world, i * 0x9e3779b97f4a7c15u, &reason)]++;
}

static void sample(size_t node, int64_t rtt_ns)
{
	pick_sent(&world.pick, (uint16_t)node, world.now_us);
	pick_done(&world.pick, (uint16_t)node, false, rtt_ns, world.now_us);
}

static void test_loads(void **state)
{
	static const struct {
		bool is_sent, is_failed;
		int64_t rtt_ns, now_us;
		uint32_t in_flight, fails_in_row;
		int64_t answered_us, cost_ns;
	} rows[] = {
		{ true, false, 0, 100, 1, 0, 100, -1 },
		{ true, false, 0, 200, 2, 0, 100, -1 },
		{ false, true, 5000, 300, 1, 1, 100, 5000 }, /* no answer: the silence goes on */
		{ false, true, 9000, 400, 0, 2, 100, 9000 },
		{ true, false, 0, 500, 1, 2, 500, 9000 },   /* nothing was in flight: it begins anew */
		{ false, false, -1, 600, 0, 2, 500, 9000 }, /* the client gave up: nothing is learnt */
		{ true, false, 0, 700, 1, 2, 700, 9000 },
		{ false, false, 20000, 800, 0, 0, 800, 20000 },
		{ true, false, 0, 900, 1, 0, 900, 20000 },
		{ false, true, -1, 1000, 0, 1, 900, PICK_FAILED_NS }, /* a failure is never fast */
		{ true, false, 0, 1100, 1, 1, 1100, PICK_FAILED_NS },
		{ false, true, INT64_MAX, 1200, 0, 2, 1100, PICK_COST_MAX_NS },
	};

	(void)state;
	begin(PICK_best, NULL, 2);
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		const struct pick_load *load = &world.pick.loads[1];

		if (rows[i].is_sent)
			pick_sent(&world.pick, 1, rows[i].now_us);
		else
			pick_done(&world.pick, 1, rows[i].is_failed, rows[i].rtt_ns, rows[i].now_us);
		assert_int_equal(load->in_flight, rows[i].in_flight);
		assert_int_equal(load->fails_in_row, rows[i].fails_in_row);
		assert_int_equal(load->answered_us, rows[i].answered_us);
		assert_int_equal(load->peak.cost_ns, rows[i].cost_ns);
	}
	assert_int_equal(world.pick.loads[0].answered_us, 0);
	assert_int_equal(world.pick.loads[0].peak.cost_ns, -1);
	world_fini(&world);
}

/* The quick reading is within 0.02 % of the exact one, and never rises. */
static void test_decay_is_the_curve(void **state)
{
	static const int64_t taus_us[] = { 1, 1000, PICK_TAU_US, 3600 * SEC_US };
	static const int64_t costs_ns[] = { 0, 1, 999, 1000000, PICK_COST_MAX_NS };

	(void)state;
	for (size_t i = 0; i < COUNT_OF(taus_us); i++) {
		for (size_t j = 0; j < COUNT_OF(costs_ns); j++) {
			struct curve_peak peak = { .cost_ns = costs_ns[j], .stamp_us = 1000 };
			int64_t last_ns = INT64_MAX;

			for (int64_t step = -2; step < 4000; step++) {
				int64_t now_us = 1000 + taus_us[i] * step / 80;
				struct pick_decay decay = pick_decay_at(now_us, taus_us[i]);
				int64_t got_ns = pick_cost_ns(&decay, &peak);
				int64_t exact_ns = curve_peak_read(&peak, taus_us[i], now_us);

				/* curve.h has nothing left after 30 halvings. */
				if (exact_ns > 0)
					assert_true(llabs(got_ns - exact_ns) <=
						    exact_ns / 5000 + (PICK_COST_MAX_NS >> 29) * (j == 4) + 1);
				assert_true(got_ns <= last_ns);
				last_ns = got_ns;
			}
		}
	}
	assert_int_equal(pick_cost_ns(&(struct pick_decay){ .now_us = 9, .span_us = 1 }, &CURVE_PEAK_INIT), -1);
}

static void test_best_says_why(void **state)
{
	enum reason reason;

	(void)state;
	begin(PICK_best, NULL, 3);
	world.pick.loads[2].in_flight = 1000;
	assert_int_equal(world_next(&world, 1, &reason), 2); /* the world's last node is its table's first */
	assert_int_equal(reason, REASON_first);
	world_fini(&world);
}

static void test_band_takes_the_fewest_in_flight(void **state)
{
	unsigned counts[WORLD_NODES_MAX];

	(void)state;
	world_init(&world, 6);
	world.band_count = 4; /* nodes 5 4 3 2 */
	world_publish(&world);
	world_pick(&world, PICK_band, 7);
	for (size_t i = 0; i < 6; i++)
		world.pick.loads[i].in_flight = i < 2 ? 0 : 3;
	world.pick.loads[5].in_flight = 4;
	count_choices(counts);
	assert_int_equal(counts[0] + counts[1] + counts[5], 0);
	for (size_t i = 2; i < 5; i++)
		assert_in_range(counts[i], 850, 1150);
	world_fini(&world);
}

static void test_least_conn_by_weight(void **state)
{
	static const uint32_t weights_milli[] = { 1000, 2000, 4000 };
	unsigned counts[WORLD_NODES_MAX];

	(void)state;
	begin(PICK_least_conn, weights_milli, 3);
	world.pick.loads[1].in_flight = 2;
	world.pick.loads[2].in_flight = 5;
	count_choices(counts); /* 1/1, 3/2, 6/4 */
	assert_int_equal(counts[0], 3000);
	world.pick.loads[2].in_flight = 2;
	count_choices(counts); /* 3/4 */
	assert_int_equal(counts[2], 3000);
	world_fini(&world);

	begin(PICK_least_conn, NULL, 3);
	world.pick.loads[1].in_flight = 1;
	count_choices(counts);
	assert_in_range(counts[0], 1350, 1650);
	assert_int_equal(counts[0] + counts[2], 3000);
	world_fini(&world);
}

/* Two draws without replacement: with two nodes both are always compared. */
static void test_p2c_compares_two_different_ones(void **state)
{
	static const uint32_t weights_milli[] = { 9000, 1000 };
	unsigned counts[WORLD_NODES_MAX];

	(void)state;
	begin(PICK_p2c, weights_milli, 2);
	count_choices(counts); /* idle: the first drawn, by weight */
	assert_in_range(counts[0], 2600, 2800);
	world.pick.loads[0].in_flight = 10; /* 10/9 against 1/1 */
	world.pick.loads[1].in_flight = 1;
	count_choices(counts);
	assert_int_equal(counts[1], 3000);
	world.pick.loads[0].in_flight = 8;
	count_choices(counts);
	assert_int_equal(counts[0], 3000);
	world_fini(&world);
}

/* Each pair as often as its weights say: the second draw is by weight among the others. */
static void test_weighted_draws(void **state)
{
	static const uint32_t weights_milli[] = { 3000, 0, 2000, 1000, 0 };
	unsigned pairs[5][5] = { { 0 } };
	struct pick_view view;

	(void)state;
	begin(PICK_p2c, weights_milli, 5);
	view = (struct pick_view){ .pick = &world.pick,
				   .route = world.route,
				   .set = world.route->sets,
				   .candidates = world.route->candidates };
	for (unsigned i = 0; i < 60000; i++) {
		size_t drawn[2];

		assert_true(pick_two_weighted(&view, drawn));
		pairs[4 - drawn[0]][4 - drawn[1]]++;
	}
	for (size_t i = 0; i < 5; i++) {
		for (size_t j = 0; j < 5; j++) {
			uint32_t left = 6000 - weights_milli[i];
			uint32_t fair = i == j ? 0 : 10 * weights_milli[i] * weights_milli[j] / left;

			assert_in_range(pairs[i][j], fair * 19 / 20, fair * 21 / 20);
		}
	}
	world_fini(&world);
}

static void test_weighted_ewma_weighs_latency_and_load(void **state)
{
	static const struct {
		int64_t rtt_ns[3];
		uint32_t in_flight[3], weights_milli[3];
		int choice;
	} rows[] = {
		{ { 5000, 4000, 6000 }, { 0, 0, 0 }, { 1000, 1000, 1000 }, 1 },
		{ { 5000, 4000, 6000 }, { 0, 1, 0 }, { 1000, 1000, 1000 }, 0 },
		{ { 5000, 4000, 6000 }, { 3, 5, 2 }, { 1000, 1000, 1000 }, 2 },
		{ { 5000, 4000, 6000 }, { 0, 0, 0 }, { 1000, 700, 1000 }, 0 },
		{ { 5000, 4000, 6000 }, { 1, 1, 1 }, { 1000, 1000, 3000 }, 2 },
		{ { 5000, 4000, 6000 }, { 0, 0, 9 }, { 0, 0, 1 }, 2 },
		/* One without a sample is as the mean of the others: better than the worse, worse than the better. */
		{ { 4000, -1, 8000 }, { 0, 0, 0 }, { 1000, 1000, 1000 }, 0 },
		{ { 4000, -1, 8000 }, { 1, 0, 0 }, { 1000, 1000, 1000 }, 1 },
		{ { 4000, -1, 8000 }, { 1, 1, 0 }, { 1000, 1000, 1000 }, -1 }, /* 8000, 12000, 8000 */
		/* Nobody has one: by load and weight alone. */
		{ { -1, -1, -1 }, { 2, 1, 3 }, { 1000, 1000, 1000 }, 1 },
		/* Under a microsecond all are alike. */
		{ { 10, 900, 500 }, { 3, 1, 2 }, { 1000, 1000, 1000 }, 1 },
	};

	(void)state;
	for (size_t row = 0; row < COUNT_OF(rows); row++) {
		unsigned counts[WORLD_NODES_MAX];

		begin(PICK_weighted_ewma, rows[row].weights_milli, 3);
		for (size_t i = 0; i < 3; i++) {
			if (rows[row].rtt_ns[i] >= 0)
				sample(i, rows[row].rtt_ns[i]);
			world.pick.loads[i].in_flight = rows[row].in_flight[i];
		}
		count_choices(counts);
		if (rows[row].choice < 0)
			assert_in_range(counts[0], 1350, 1650);
		else if (counts[rows[row].choice] != 3000)
			fail_msg("row %zu: %u %u %u", row, counts[0], counts[1], counts[2]);
		world_fini(&world);
	}
}

/* A node that stands still is left long before its requests time out, and found again when it answers. */
static void test_weighted_ewma_hears_silence(void **state)
{
	unsigned counts[WORLD_NODES_MAX];

	(void)state;
	begin(PICK_weighted_ewma, NULL, 2);
	sample(0, 1000000);
	sample(1, 3000000);
	pick_sent(&world.pick, 0, world.now_us);
	count_choices(counts);
	assert_int_equal(counts[0], 3000);
	world.now_us += 5000; /* (1 + 1) * 5 ms */
	count_choices(counts);
	assert_int_equal(counts[1], 3000);
	pick_done(&world.pick, 0, false, 1500000, world.now_us);
	count_choices(counts);
	assert_int_equal(counts[0], 3000);
	world_fini(&world);
}

/* Above eight candidates two are drawn: a slow one is chosen only when it is drawn against one as loaded. */
static void test_weighted_ewma_draws_among_many(void **state)
{
	unsigned counts[WORLD_NODES_MAX];

	(void)state;
	begin(PICK_weighted_ewma, NULL, 9);
	for (size_t i = 0; i < 8; i++)
		sample(i, i == 0 ? 9000000 : 1000000);
	count_choices(counts);
	/* The one without a sample counts as whom it is drawn against, be that the slow one: half of one pair in 36. */
	assert_in_range(counts[0], 15, 75);
	assert_in_range(counts[8], 250, 600);
	/* And with a request in flight it is more loaded than any. */
	world.pick.loads[8].in_flight = 1;
	world.pick.loads[8].answered_us = world.now_us;
	count_choices(counts);
	assert_int_equal(counts[8], 0);
	world_fini(&world);
}

/* Within half and double of the usual latency requests in flight decide; outside how many times slower or faster. */
static void test_adaptive_minds_only_who_is_out_of_the_common(void **state)
{
	static const struct {
		int64_t estimate_ns[3];
		uint32_t in_flight[3], weights_milli[3];
		int choice;
	} rows[] = {
		{ { 5000, 4000, 6000 }, { 0, 1, 1 }, { 1000, 1000, 1000 }, 0 },
		{ { 5000, 4000, 6000 }, { 1, 1, 0 }, { 1000, 1000, 1000 }, 2 },
		/* Double: twice the wait weighs more than one request. */
		{ { 9999, 5000, 5000 }, { 0, 1, 1 }, { 1000, 1000, 1000 }, 0 },
		{ { 10000, 5000, 5000 }, { 0, 1, 1 }, { 1000, 1001, 1000 }, 1 },
		/* Half: and less. */
		{ { 2501, 5000, 5000 }, { 1, 0, 0 }, { 1000, 1001, 1000 }, 1 },
		{ { 2500, 5000, 5000 }, { 1, 0, 0 }, { 1000, 1001, 1000 }, 0 },
		/* A slow one that is idle is not better than it looks: half of what the others have in flight counts. */
		{ { 20000, 5000, 5000 }, { 0, 3, 3 }, { 1000, 1001, 1000 }, 1 },
		{ { 15000, 5000, 5000 }, { 0, 9, 9 }, { 1000, 1000, 1000 }, 0 },
		/* But not for ever: where all queue up, a slow one serves too. */
		{ { 50000, 5000, 5000 }, { 0, 44, 44 }, { 1000, 1001, 1000 }, 1 },
		{ { 50000, 5000, 5000 }, { 0, 46, 46 }, { 1000, 1000, 1000 }, 0 },
		{ { 5000, 5000, 5000 }, { 0, 1, 0 }, { 1000, 3000, 1000 }, 1 },
		{ { 5000, 5000, 5000 }, { 0, 0, 9 }, { 0, 0, 1 }, 2 },
		/* One without an estimate is as usual; when none has one they are alike. */
		{ { 5000, -1, 50000 }, { 1, 0, 0 }, { 1000, 1000, 1000 }, 1 },
		{ { -1, -1, -1 }, { 2, 1, 3 }, { 1000, 1000, 1000 }, 1 },
	};

	(void)state;
	for (size_t row = 0; row < COUNT_OF(rows); row++) {
		unsigned counts[WORLD_NODES_MAX];

		begin(PICK_adaptive, rows[row].weights_milli, 3);
		for (size_t i = 0; i < 3; i++) {
			struct pick_load *load = &world.pick.loads[i];

			load->robust = (struct robust){ .estimate_ns = rows[row].estimate_ns[i],
							.stamp_us = world.now_us };
			load->in_flight = rows[row].in_flight[i];
			load->answered_us = world.now_us;
		}
		count_choices(counts);
		if (counts[rows[row].choice] != 3000)
			fail_msg("row %zu: %u %u %u", row, counts[0], counts[1], counts[2]);
		world_fini(&world);
	}
}

/* Who owes answers for three times the usual, and gives none, is left to the others. */
static void test_adaptive_hears_silence(void **state)
{
	const int64_t limit_us = 3 * (1000 + 1);
	unsigned counts[WORLD_NODES_MAX];

	(void)state;
	begin(PICK_adaptive, NULL, 2);
	for (size_t i = 0; i < 2; i++) {
		struct pick_load *load = &world.pick.loads[i];

		load->robust = (struct robust){ .estimate_ns = MSEC_US * 1000, .stamp_us = world.now_us };
		load->in_flight = i == 0 ? 1 : 2;
		load->answered_us = world.now_us;
	}
	for (int64_t silent_us = limit_us - 1; silent_us <= limit_us; silent_us++) {
		world.pick.loads[0].answered_us = world.now_us - silent_us;
		count_choices(counts);
		assert_int_equal(counts[silent_us == limit_us], 3000);
	}
	/* One answer, and it is as before. */
	pick_done(&world.pick, 0, false, MSEC_US * 1000, world.now_us);
	pick_sent(&world.pick, 0, world.now_us);
	count_choices(counts);
	assert_int_equal(counts[0], 3000);
	world_fini(&world);
}

/* A slow one that nobody asks is tried again; one that is busy is as slow as it is. */
static void test_adaptive_tries_again(void **state)
{
	unsigned counts[WORLD_NODES_MAX];

	(void)state;
	begin(PICK_adaptive, NULL, 2);
	world.now_us += 60 * SEC_US;
	for (size_t i = 0; i < 2; i++)
		world.pick.loads[i].robust.estimate_ns = (i == 0 ? 10 : 1) * MSEC_US * 1000;
	world.pick.loads[0].robust.stamp_us = world.now_us - 60 * SEC_US;
	world.pick.loads[1].robust.stamp_us = world.pick.loads[1].answered_us = world.now_us;
	world.pick.loads[1].in_flight = 1;
	count_choices(counts);
	assert_int_equal(counts[0], 3000);
	pick_sent(&world.pick, 0, world.now_us);
	world.pick.loads[1].in_flight = 2;
	count_choices(counts);
	assert_int_equal(counts[1], 3000);
	world_fini(&world);
}

static void test_peak_ewma_asks_an_unknown_one_once(void **state)
{
	unsigned counts[WORLD_NODES_MAX];

	(void)state;
	begin(PICK_peak_ewma, NULL, 2);
	sample(0, 1000000);
	count_choices(counts);
	assert_int_equal(counts[1], 3000); /* Finagle: one request to find out */
	pick_sent(&world.pick, 1, world.now_us);
	world.pick.loads[0].in_flight = 100000;
	count_choices(counts);
	assert_int_equal(counts[0], 3000);
	world.pick.loads[0].in_flight = 2;
	pick_done(&world.pick, 1, false, 2000000, world.now_us);
	count_choices(counts); /* 3 * 1 ms, 1 * 2 ms */
	assert_int_equal(counts[1], 3000);
	world_fini(&world);
}

/* nginx's claim: no node of weight 5 among 1 and 1 has its five turns in a row, and in seven turns everyone has its own. */
static void test_smooth_turns(void **state)
{
	static const uint32_t weights_milli[] = { 5000, 1000, 1000 };
	unsigned run = 0, counts[3] = { 0 };
	enum reason reason;

	(void)state;
	begin(PICK_weighted_round_robin, weights_milli, 3);
	for (unsigned i = 0; i < 7; i++)
		assert_true(world_next(&world, i, &reason) >= 0);
	for (unsigned i = 0; i < 700; i++) {
		int node = world_next(&world, i, &reason);

		run = node == 0 ? run + 1 : 0;
		assert_true(run <= 4);
		counts[node]++;
		if (i % 7 == 6) {
			assert_int_equal(counts[0], 5);
			assert_int_equal(counts[1], 1);
			memset(counts, 0, sizeof(counts));
		}
	}
	world_fini(&world);
}

/* Each in turn by its number, whatever the order of the table. */
static void test_round_robin_goes_by_number(void **state)
{
	static const uint32_t weights_milli[] = { 1000, 9000, 0, 1, 1000 };
	int last;
	enum reason reason;

	(void)state;
	begin(PICK_round_robin, weights_milli, 5);
	last = world_next(&world, 1, &reason);
	for (unsigned i = 0; i < 40; i++) {
		static const int after[] = { 1, 3, -1, 4, 0 };
		struct route_candidate *candidates = world.route->candidates, kept = candidates[i % 4];
		int node;

		/* A new table has them in another order. */
		candidates[i % 4] = candidates[4];
		candidates[4] = kept;
		node = world_next(&world, i, &reason);
		assert_int_equal(node, after[last]);
		last = node;
	}
	world_fini(&world);
}

static void test_round_robin_starts_slowly(void **state)
{
	unsigned counts[WORLD_NODES_MAX];

	(void)state;
	begin(PICK_round_robin, NULL, 4);
	world.nodes[1].start_ppm = 300000;
	world_publish(&world);
	count_choices(counts);
	/* 0.3 of a turn, of 3.3 in a round. */
	assert_in_range(counts[1], 220, 330);
	assert_in_range(counts[2], 830, 1000);
	world_fini(&world);
}

static void test_random3_is_even(void **state)
{
	static const uint32_t weights_milli[] = { 1000, 1, 9000, 0, 1000 };
	unsigned counts[WORLD_NODES_MAX];

	(void)state;
	begin(PICK_random3, weights_milli, 5);
	count_choices(counts); /* 4, 2, 1: 3 was taken out, 0 is the fourth */
	assert_int_equal(counts[0] + counts[3], 0);
	for (size_t i = 1; i < 5; i++)
		assert_true(i == 3 || (counts[i] > 850 && counts[i] < 1150));
	world_fini(&world);
}

static uint64_t key(unsigned number) { return ring_hash_key(&number, sizeof(number)); }

/* Who is out gives its keys to the next of their preference lists; no other key moves. */
static void test_ring_fails_over_along_the_preference_list(void **state)
{
	unsigned moved = 0;

	(void)state;
	begin(PICK_ring, NULL, 10);
	world.nodes[3].is_out = world.nodes[7].is_out = true;
	world_publish(&world);
	for (unsigned i = 0; i < 3000; i++) {
		uint16_t list[10];
		enum reason reason;
		size_t at = 0;

		assert_int_equal(ring_candidates(world.ring, key(i), 10, list), 10);
		while (list[at] == 3 || list[at] == 7)
			at++;
		assert_int_equal(world_next(&world, key(i), &reason), list[at]);
		assert_int_equal(reason, at == 0 ? REASON_hash : REASON_failover);
		moved += at > 0;
	}
	assert_in_range(moved, 500, 700);
	world_fini(&world);
}

/* A node in slow start takes its share of its own keys; as the share grows the set of them only grows, and those refused go to one place. */
static void test_ring_slow_start_never_shuffles(void **state)
{
	static const uint32_t starts_ppm[] = { 0, 1000, 100000, 250000, 500000, 999999, PPM };
	enum { KEYS = 6000 };
	static bool had[KEYS];
	unsigned own = 0;

	(void)state;
	begin(PICK_ring, NULL, 5);
	memset(had, 0, sizeof(had));
	for (unsigned i = 0; i < KEYS; i++)
		own += ring_owner(world.ring, key(i)) == 2;
	for (size_t step = 0; step < COUNT_OF(starts_ppm); step++) {
		unsigned taken = 0;

		world.nodes[2].start_ppm = starts_ppm[step];
		world_publish(&world);
		for (unsigned i = 0; i < KEYS; i++) {
			uint16_t list[2];
			enum reason reason;
			int node = world_next(&world, key(i), &reason);

			assert_int_equal(ring_candidates(world.ring, key(i), 2, list), 2);
			if (list[0] != 2) {
				assert_int_equal(node, list[0]);
				continue;
			}
			assert_true(node == 2 || node == list[1]);
			assert_true(node == 2 || !had[i]);
			/* A share of nothing makes a weight of nothing, which is as good as out. */
			assert_int_equal(reason, node == 2                  ? REASON_hash
						 : world.nodes[2].start_ppm ? REASON_hash_start
									    : REASON_failover);
			had[i] = node == 2;
			taken += node == 2;
		}
		assert_in_range(taken, (uint64_t)own * starts_ppm[step] / PPM * 8 / 10,
				(uint64_t)own * starts_ppm[step] / PPM * 12 / 10 + 1);
	}
	world_fini(&world);
}

/* A ring that does not know those who serve, and none at all: still somebody. */
static void test_ring_without_a_place(void **state)
{
	struct route_candidate candidates[] = { { .node_index = 0, .weight_milli = 0, .start_ppm = PPM },
						{ .node_index = 1, .weight_milli = 5, .start_ppm = PPM } };

	(void)state;
	begin(PICK_ring, NULL, 3);
	for (unsigned has_ring = 0; has_ring < 2; has_ring++) {
		static const uint16_t offsets[] = { ROUTE_NO_CANDIDATE, ROUTE_NO_CANDIDATE, ROUTE_NO_CANDIDATE };
		struct route_builder *builder = route_builder_new(1, 3);
		enum reason reason;

		route_builder_add_candidates(builder, candidates, 2, 2, REASON_first, has_ring ? world.ring : NULL,
					     has_ring ? offsets : NULL);
		route_free(&world.route);
		world.route = route_builder_end(&builder, 1, 1);
		assert_int_equal(world_next(&world, 1, &reason), 1);
		assert_int_equal(reason, REASON_failover);
	}
	world_fini(&world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_loads),
		cmocka_unit_test(test_decay_is_the_curve),
		cmocka_unit_test(test_best_says_why),
		cmocka_unit_test(test_band_takes_the_fewest_in_flight),
		cmocka_unit_test(test_least_conn_by_weight),
		cmocka_unit_test(test_p2c_compares_two_different_ones),
		cmocka_unit_test(test_weighted_draws),
		cmocka_unit_test(test_weighted_ewma_weighs_latency_and_load),
		cmocka_unit_test(test_weighted_ewma_hears_silence),
		cmocka_unit_test(test_weighted_ewma_draws_among_many),
		cmocka_unit_test(test_adaptive_minds_only_who_is_out_of_the_common),
		cmocka_unit_test(test_adaptive_hears_silence),
		cmocka_unit_test(test_adaptive_tries_again),
		cmocka_unit_test(test_peak_ewma_asks_an_unknown_one_once),
		cmocka_unit_test(test_smooth_turns),
		cmocka_unit_test(test_round_robin_goes_by_number),
		cmocka_unit_test(test_round_robin_starts_slowly),
		cmocka_unit_test(test_random3_is_even),
		cmocka_unit_test(test_ring_fails_over_along_the_preference_list),
		cmocka_unit_test(test_ring_slow_start_never_shuffles),
		cmocka_unit_test(test_ring_without_a_place),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
