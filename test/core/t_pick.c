/* The contract that every strategy keeps, over every row of pick_list.h. What is special to one is in t_pick_each.c. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pick_world.h"

#define EACH_STRATEGY(s) for (enum pick_strategy s = 0; s < PICK_STRATEGIES; s++)

/* By what a strategy shares. A new row without a claim here fails. */
enum share { SHARE_UNSAID, SHARE_WEIGHT, SHARE_EQUAL, SHARE_FIRST, SHARE_BEST3, SHARE_KEYS };
struct claim {
	enum share share;
	bool is_by_weight; /* weight 0 gets nothing even when all have it */
	bool has_turns;
};
static const struct claim claims[PICK_STRATEGIES] = {
	[PICK_best] = { SHARE_FIRST, false, false },
	[PICK_band] = { SHARE_EQUAL, false, true },
	[PICK_weighted_ewma] = { SHARE_WEIGHT, true, true },
	[PICK_adaptive] = { SHARE_WEIGHT, true, true },
	[PICK_ring] = { SHARE_KEYS, true, false },
	[PICK_round_robin] = { SHARE_EQUAL, true, true },
	[PICK_weighted_round_robin] = { SHARE_WEIGHT, true, true },
	[PICK_least_conn] = { SHARE_WEIGHT, true, true },
	[PICK_p2c] = { SHARE_WEIGHT, true, true },
	[PICK_peak_ewma] = { SHARE_EQUAL, true, true },
	[PICK_random3] = { SHARE_BEST3, false, false },
};
static const size_t sizes[] = { 1, 2, 3, 8, 9, 100 };
static struct world world;

static void test_every_row_has_a_name_and_a_claim(void **state)
{
	enum pick_strategy found;

	(void)state;
	EACH_STRATEGY(strategy)
	{
		assert_true(pick_find(pick_names[strategy], &found));
		assert_int_equal(found, strategy);
		assert_true(strlen(pick_helps[strategy]) > 0);
		assert_int_not_equal(claims[strategy].share, SHARE_UNSAID);
	}
	assert_false(pick_find("", &found));
	assert_false(pick_find("p2", &found));
	assert_false(pick_find("P2C", &found));
}

static void test_nobody_serves(void **state)
{
	struct pick_call call = { .key_hash = 1, .now_us = SEC_US };
	enum reason reason;

	(void)state;
	EACH_STRATEGY(strategy)
	{
		world_init(&world, 3);
		for (size_t i = 0; i < 3; i++)
			world.nodes[i].is_out = true;
		world_publish(&world);
		world_pick(&world, strategy, 1);
		call.tried_count = 0;
		assert_int_equal(world_choose(&world, &call, &reason), -1);
		assert_int_equal(reason, REASON_none);
		call.tried_count = 1;
		assert_int_equal(world_choose(&world, &call, &reason), -1);
		assert_int_equal(reason, REASON_unavailable);
		world_fini(&world);
	}
}

static void test_weight_zero_gets_nothing(void **state)
{
	(void)state;
	EACH_STRATEGY(strategy)
	{
		for (size_t size = 1; size < COUNT_OF(sizes); size++) {
			unsigned counts[WORLD_NODES_MAX] = { 0 };
			enum reason reason;

			/* The first, the last and one amid, but never the only other. `best` is the score's word alone. */
			if (strategy == PICK_best)
				continue;
			world_init(&world, sizes[size]);
			world.nodes[sizes[size] - 1].weight_milli = 0;
			if (sizes[size] > 3)
				world.nodes[0].weight_milli = world.nodes[2].weight_milli = 0;
			world_publish(&world);
			world_pick(&world, strategy, 1);
			world_run(&world, 3000, sizes[size] * 3, counts);
			for (size_t i = 0; i < sizes[size]; i++)
				assert_true(world.nodes[i].weight_milli > 0 || counts[i] == 0);
			/* Nor as a retry. */
			for (unsigned i = 0; i < 100; i++) {
				struct pick_call call = { .key_hash = i, .now_us = SEC_US, .tried_count = 1 };
				int node;

				call.tried[0] = 1;
				node = world_choose(&world, &call, &reason);
				assert_true(node < 0 || world.nodes[node].weight_milli > 0 ||
					    (!claims[strategy].is_by_weight && sizes[size] == 2));
			}
			world_fini(&world);
		}
	}
}

static void test_all_weights_zero(void **state)
{
	(void)state;
	EACH_STRATEGY(strategy)
	{
		for (size_t size = 0; size < COUNT_OF(sizes); size++) {
			enum reason reason;
			int node;

			world_init(&world, sizes[size]);
			for (size_t i = 0; i < sizes[size]; i++)
				world.nodes[i].weight_milli = 0;
			world_publish(&world);
			world_pick(&world, strategy, 1);
			node = world_next(&world, 1, &reason);
			assert_int_equal(node >= 0, !claims[strategy].is_by_weight);
			assert_int_equal(reason == REASON_none, claims[strategy].is_by_weight);
			world_fini(&world);
		}
	}
}

/* State is plain data: two pickers that begin alike choose alike, and so does one that takes the other's state over in the midst. */
static void test_same_state_same_choice(void **state)
{
	(void)state;
	EACH_STRATEGY(strategy)
	{
		for (size_t size = 0; size < COUNT_OF(sizes); size++) {
			struct pick late, *one = &world.pick;

			world_init(&world, sizes[size]);
			for (size_t i = 0; i < sizes[size]; i++) {
				world.nodes[i].weight_milli = (uint32_t)(1000 + 500 * (i % 3));
				world.nodes[i].start_ppm = i % 4 == 1 ? 100000 : PPM;
			}
			world_publish(&world);
			world_pick(&world, strategy, 42);
			pick_init(&late, strategy, sizes[size], 1, 1);
			for (unsigned i = 0; i < 400; i++) {
				struct pick_call call = { .key_hash = i * 0x9e3779b97f4a7c15u, .now_us = world.now_us };
				enum reason reason, late_reason;
				int node, late_node;

				world.now_us += 1000;
				if (i == 200) {
					late.rng = one->rng;
					memcpy(late.loads, one->loads, sizes[size] * sizeof(*one->loads));
					if (one->turns) {
						late.turns->picks = one->turns->picks;
						late.turns->cursor = one->turns->cursor;
						memcpy(late.turns->last, one->turns->last,
						       sizes[size] * sizeof(*one->turns->last));
					}
					if (one->turns && one->turns->current)
						memcpy(late.turns->current, one->turns->current,
						       sizes[size] * sizeof(*one->turns->current));
				}
				node = pick_next(one, world.route, 0, &call, &reason);
				assert_true(node >= 0);
				if (i >= 200) {
					late_node = pick_next(&late, world.route, 0, &call, &late_reason);
					assert_int_equal(node, late_node);
					assert_int_equal(reason, late_reason);
				}
				node = world.route->candidates[node].node_index;
				for (struct pick *pick = one; pick; pick = pick == one && i >= 200 ? &late : NULL) {
					pick_sent(pick, (uint16_t)node, world.now_us);
					if (i % 4 != 0)
						pick_done(pick, (uint16_t)node, i % 16 == 1, 500000 + node * 1000,
							  world.now_us + 500);
				}
			}
			pick_fini(&late);
			world_fini(&world);
		}
	}
}

/* Within a tenth (and some noise) of what the strategy claims, while requests come and go. */
static void check_shares(enum pick_strategy strategy, const uint32_t *weights_milli, size_t node_count)
{
	const unsigned request_count = 40000;
	unsigned counts[WORLD_NODES_MAX] = { 0 };
	uint64_t weight_total = 0;

	world_init(&world, node_count);
	for (size_t i = 0; i < node_count; i++) {
		world.nodes[i].weight_milli = weights_milli[i];
		weight_total += weights_milli[i];
	}
	world_publish(&world);
	world_pick(&world, strategy, 3);
	world_run(&world, request_count, 60 * node_count, counts);
	for (size_t i = 0; i < node_count; i++) {
		uint64_t fair = 0;
		bool is_selected = i == node_count - 1, is_best3 = i + 3 >= node_count;

		switch (claims[strategy].share) {
		case SHARE_WEIGHT:
		case SHARE_KEYS:
			fair = request_count * (uint64_t)weights_milli[i] / weight_total;
			break;
		case SHARE_EQUAL:
			fair = request_count / node_count;
			break;
		case SHARE_FIRST:
			fair = is_selected ? request_count : 0;
			break;
		case SHARE_BEST3:
			fair = is_best3 ? request_count / min_size(node_count, 3) : 0;
			break;
		case SHARE_UNSAID:
			fail();
		}
		if (counts[i] * 10 < fair * 9 - min_size(fair, 200) || counts[i] * 10 > fair * 11 + 200)
			fail_msg("%s, %zu nodes: node %zu got %u, fair is %llu", pick_names[strategy], node_count, i,
				 counts[i], (unsigned long long)fair);
	}
	world_fini(&world);
}

static void test_shares(void **state)
{
	uint32_t weights_milli[20];

	(void)state;
	for (size_t i = 0; i < COUNT_OF(weights_milli); i++)
		weights_milli[i] = (uint32_t)(1000 + 1000 * (i % 3));
	EACH_STRATEGY(strategy)
	{
		check_shares(strategy, weights_milli, 1);
		check_shares(strategy, weights_milli, 2);
		check_shares(strategy, weights_milli, 3);
		check_shares(strategy, weights_milli, 8);
		check_shares(strategy, weights_milli, 9);
		check_shares(strategy, weights_milli, 20);
	}
}

static void test_never_a_tried_node_twice_and_no_third_try(void **state)
{
	(void)state;
	EACH_STRATEGY(strategy)
	{
		for (size_t size = 0; size < COUNT_OF(sizes); size++) {
			unsigned counts[WORLD_NODES_MAX] = { 0 };

			world_init(&world, sizes[size]);
			world_publish(&world);
			world_pick(&world, strategy, 9);
			for (unsigned i = 0; i < 1200; i++) {
				struct pick_call call = { .key_hash = i * 0x9e3779b97f4a7c15u, .now_us = SEC_US };
				int first, second;
				enum reason reason;

				first = world_choose(&world, &call, &reason);
				assert_true(first >= 0);
				call.tried[call.tried_count++] = (uint16_t)first;
				second = world_choose(&world, &call, &reason);
				assert_int_not_equal(first, second);
				if (sizes[size] == 1) {
					assert_int_equal(second, -1);
					assert_int_equal(reason, REASON_unavailable);
					continue;
				}
				assert_int_equal(reason, REASON_degraded_random3);
				/* Of the best three that are left. */
				assert_true(second >= (int)sizes[size] - 4);
				counts[second]++;
				call.tried[call.tried_count++] = (uint16_t)second;
				assert_int_equal(world_choose(&world, &call, &reason), -1);
				assert_int_equal(reason, REASON_unavailable);
			}
			/* One of three at random: none is left out. */
			if (sizes[size] > 3)
				assert_true(counts[sizes[size] - 2] > 200 && counts[sizes[size] - 3] > 200);
			world_fini(&world);
		}
	}
}

/* All 1,024 states of ten nodes: one that serves is enough for a choice, two for a retry, and nobody else is ever chosen. */
static void test_every_subset_of_ten(void **state)
{
	(void)state;
	EACH_STRATEGY(strategy)
	{
		world_init(&world, 10);
		world_pick(&world, strategy, 1);
		for (unsigned mask = 0; mask < 1024; mask++) {
			for (size_t i = 0; i < 10; i++)
				world.nodes[i].is_out = !(mask >> i & 1);
			world_publish(&world);
			for (unsigned i = 0; i < 4; i++) {
				struct pick_call call = { .key_hash = (mask * 4 + i) * 0x9e3779b97f4a7c15u,
							  .now_us = SEC_US + mask * MSEC_US };
				enum reason reason;
				int node = world_choose(&world, &call, &reason);

				assert_int_equal(node >= 0, mask != 0);
				if (node < 0)
					continue;
				assert_true(mask >> node & 1);
				call.tried[call.tried_count++] = (uint16_t)node;
				node = world_choose(&world, &call, &reason);
				assert_int_equal(node >= 0, (mask & (mask - 1)) != 0);
				assert_true(node < 0 || (mask >> node & 1));
			}
		}
		world_fini(&world);
	}
}

/* Nodes go and come, the order turns round, weights change a thousandfold: the picker's memory of before must harm nobody. */
static void test_after_a_swap(void **state)
{
	(void)state;
	EACH_STRATEGY(strategy)
	{
		for (size_t size = 2; size < COUNT_OF(sizes); size++) {
			unsigned counts[WORLD_NODES_MAX] = { 0 };
			size_t count = sizes[size];

			world_init(&world, count);
			for (size_t i = 0; i < count; i++)
				world.nodes[i].weight_milli = (uint32_t)(1000000 + i * 300000);
			world.nodes[0].is_out = true;
			world_publish(&world);
			world_pick(&world, strategy, 1);
			world_run(&world, 2003, 3 * count, counts);
			assert_int_equal(counts[0], 0);
			for (size_t i = 0; i < count; i++)
				world.nodes[i] = (struct world_node){ .weight_milli = 1000, .start_ppm = PPM };
			world.nodes[count - 1].is_out = true;
			memset(counts, 0, sizeof(counts));
			world_publish(&world);
			world_run(&world, 20000, 3 * count, counts);
			assert_int_equal(counts[count - 1], 0);
			for (size_t i = 0; i + 1 < count; i++) {
				if (claims[strategy].share == SHARE_WEIGHT || claims[strategy].share == SHARE_EQUAL)
					assert_in_range(counts[i], 20000 / (count - 1) * 3 / 4,
							20000 / (count - 1) * 4 / 3 + 1);
			}
			world_fini(&world);
		}
	}
}

/* The longest that the node waits for its turn among request_count picks; *ret_turns: how many times the reason was its turn. */
static unsigned longest_wait(size_t node, unsigned request_count, unsigned *ret_turns, unsigned *ret_picks)
{
	unsigned wait = 0, longest = 0;

	*ret_turns = 0;
	*ret_picks = 0;
	for (unsigned i = 0; i < request_count; i++) {
		enum reason reason;
		int chosen = world_next(&world, i * 0x9e3779b97f4a7c15u, &reason);

		world.now_us += 10;
		assert_true(chosen >= 0);
		*ret_turns += reason == REASON_turn;
		wait = (size_t)chosen == node ? 0 : wait + 1;
		longest = wait > longest ? wait : longest;
		*ret_picks += wait == 0;
	}
	return longest;
}

static void test_slow_start_has_its_turns(void **state)
{
	(void)state;
	EACH_STRATEGY(strategy)
	{
		for (size_t size = 1; size < COUNT_OF(sizes); size++) {
			size_t count = sizes[size];
			/* 2 * total / weight, for one of a tenth of its weight among full ones. */
			unsigned due = (unsigned)(2 * (1000 * (count - 1) + 100) / 100), turns, picks, longest;
			enum reason reason;

			world_init(&world, count);
			world_publish(&world);
			world_pick(&world, strategy, 2);
			/* It has come long after the set's first pick, and then nobody else is busy, so that nothing but its turn
			 * speaks for it. */
			for (unsigned i = 0; i < 10 * due + 1; i++)
				assert_true(world_next(&world, i, &reason) >= 0);
			world.nodes[0].start_ppm = 100000;
			world.band_count = 1;
			world_publish(&world);
			world.pick.loads[0].in_flight = 1000;
			world.pick.loads[0].answered_us = world.now_us;
			longest = longest_wait(0, 20 * due, &turns, &picks);
			if (!claims[strategy].has_turns) {
				assert_int_equal(turns, 0);
				world_fini(&world);
				continue;
			}
			if (longest > due)
				fail_msg("%s, %zu nodes: a turn after %u picks instead of %u", pick_names[strategy],
					 count, longest, due);
			if (turns > 21 || picks > 60)
				fail_msg("%s, %zu nodes: %u turns, %u picks of %u", pick_names[strategy], count, turns,
					 picks, 20 * due);
			world_fini(&world);
		}
	}
}

/* One that has just come did not wait since the beginning: were it asked at once, it would be by every set at the same time. */
static void test_a_newcomer_waits_like_others(void **state)
{
	(void)state;
	EACH_STRATEGY(strategy)
	{
		enum reason reason;
		unsigned turns = 0;

		world_init(&world, 3);
		world.nodes[0].is_out = true;
		world_publish(&world);
		world_pick(&world, strategy, 2);
		for (unsigned i = 0; i < 1000; i++)
			assert_true(world_next(&world, i, &reason) > 0);
		world.nodes[0] = (struct world_node){ .weight_milli = 1000, .start_ppm = 100000 };
		world_publish(&world);
		for (unsigned i = 0; i < 30; i++) {
			assert_true(world_next(&world, i, &reason) >= 0);
			turns += reason == REASON_turn;
		}
		assert_int_equal(turns, 0);
		world_fini(&world);
	}
}

/* Every node in slow start: nothing is refused. */
static void test_all_in_slow_start(void **state)
{
	(void)state;
	EACH_STRATEGY(strategy)
	{
		for (size_t size = 0; size < COUNT_OF(sizes); size++) {
			unsigned counts[WORLD_NODES_MAX] = { 0 };

			world_init(&world, sizes[size]);
			for (size_t i = 0; i < sizes[size]; i++)
				world.nodes[i].start_ppm = i % 2 ? 100000 : 1000;
			world_publish(&world);
			world_pick(&world, strategy, 2);
			world_run(&world, 2000, 3 * sizes[size], counts);
			world_fini(&world);
		}
	}
}

/* Two time-outs in a row on the choice: another of the best three, until the node was left in peace for a while; then one request at a time. */
static void test_two_timeouts_degrade(void **state)
{
	(void)state;
	EACH_STRATEGY(strategy)
	{
		for (size_t size = 1; size < COUNT_OF(sizes); size++) {
			size_t count = sizes[size];
			unsigned spared = 0;
			enum reason reason;
			int node;

			/* The last node is the first candidate; its weight makes that it is nearly always the choice. */
			world_init(&world, count);
			world.nodes[count - 1].weight_milli = 1000000;
			world.band_count = 1;
			world_publish(&world);
			world_pick(&world, strategy, 2);
			for (size_t i = 0; i + 1 < count; i++) {
				pick_sent(&world.pick, (uint16_t)i, world.now_us);
				pick_done(&world.pick, (uint16_t)i, false, 1000000, world.now_us);
			}
			for (unsigned i = 0; i < PICK_FAILS_LIMIT; i++) {
				pick_sent(&world.pick, (uint16_t)(count - 1), world.now_us);
				pick_done(&world.pick, (uint16_t)(count - 1), true, 1000000, world.now_us);
			}
			for (unsigned i = 0; i < 300; i++) {
				node = world_next(&world, i * 0x9e3779b97f4a7c15u, &reason);
				assert_int_not_equal(node, count - 1);
				assert_true(node >= 0);
				spared += reason == REASON_degraded_random3;
				assert_true(reason != REASON_degraded_random3 || node >= (int)count - 4);
			}
			if (spared == 0)
				fail_msg("%s, %zu nodes: never degraded", pick_names[strategy], count);
			/* Later one request may find out; while it is under way all others stay away. */
			world.now_us += PICK_FAILS_HOLD_US;
			do {
				node = world_next(&world, (uint64_t)world.now_us++ * 0x9e3779b97f4a7c15u, &reason);
			} while (node != (int)count - 1);
			pick_sent(&world.pick, (uint16_t)node, world.now_us);
			for (unsigned i = 0; i < 100; i++)
				assert_int_not_equal(world_next(&world, i, &reason), count - 1);
			/* It answers: all is as before. */
			pick_done(&world.pick, (uint16_t)node, false, 1000, world.now_us);
			do {
				node = world_next(&world, (uint64_t)world.now_us++ * 0x9e3779b97f4a7c15u, &reason);
				assert_int_not_equal(reason, REASON_degraded_random3);
			} while (node != (int)count - 1);
			world_fini(&world);
		}
	}
}

/* Another process answers under its index: nothing of the former one's speed or failures is held against it. */
static void test_forgotten(void **state)
{
	(void)state;
	EACH_STRATEGY(strategy)
	{
		const struct pick_load *load;
		enum reason reason;

		world_init(&world, 2);
		world.nodes[0].is_out = true;
		world_publish(&world);
		world_pick(&world, strategy, 2);
		load = &world.pick.loads[1];
		for (unsigned i = 0; i < 3; i++) {
			pick_sent(&world.pick, 1, world.now_us);
			pick_done(&world.pick, 1, true, 5000000, world.now_us);
		}
		pick_sent(&world.pick, 1, world.now_us);
		assert_int_equal(load->fails_in_row, 3);
		pick_forget(&world.pick, 1);
		assert_int_equal(load->fails_in_row, 0);
		assert_int_equal(load->peak.cost_ns, -1);
		assert_int_equal(load->robust.estimate_ns, -1);
		/* What is under way is so still. */
		assert_int_equal(load->in_flight, 1);
		assert_int_equal(world_next(&world, 1, &reason), 1);
		assert_int_not_equal(reason, REASON_degraded_random3);
		world_fini(&world);
	}
}

static void test_alone_it_is_asked_whatever_happened(void **state)
{
	(void)state;
	EACH_STRATEGY(strategy)
	{
		enum reason reason;

		world_init(&world, 3);
		world.nodes[0].is_out = world.nodes[2].is_out = true;
		world_publish(&world);
		world_pick(&world, strategy, 2);
		world.pick.loads[1].fails_in_row = 99;
		assert_int_equal(world_next(&world, 1, &reason), 1);
		assert_int_equal(reason, REASON_degraded_random3);
		world_fini(&world);
	}
}

/* All fail: the choice goes on among them and asks nobody who may not serve. */
static void test_all_failing(void **state)
{
	(void)state;
	EACH_STRATEGY(strategy)
	{
		unsigned counts[WORLD_NODES_MAX] = { 0 };
		enum reason reason;

		world_init(&world, 4);
		world.nodes[3].is_out = true;
		world_publish(&world);
		world_pick(&world, strategy, 2);
		for (size_t i = 0; i < 4; i++)
			world.pick.loads[i].fails_in_row = 5;
		for (unsigned i = 0; i < 300; i++) {
			int node = world_next(&world, i * 0x9e3779b97f4a7c15u, &reason);

			assert_true(node >= 0);
			assert_int_equal(reason, REASON_degraded_random3);
			counts[node]++;
		}
		assert_int_equal(counts[3], 0);
		assert_true(counts[0] > 0 && counts[1] > 0);
		/* Who is the choice each time gives way to the others, though they fail too. */
		assert_int_equal(counts[2] > 0, strategy != PICK_best);
		world_fini(&world);
	}
}

/* Threads with other seeds do not all begin with the same node, unless the strategy's point is that they do. */
static void test_threads_do_not_march_in_step(void **state)
{
	(void)state;
	EACH_STRATEGY(strategy)
	{
		bool was_first[8] = { false };
		unsigned first_count = 0;

		world_init(&world, 8);
		world_publish(&world);
		for (uint64_t seed = 0; seed < 64; seed++) {
			enum reason reason;

			world_pick(&world, strategy, seed);
			was_first[world_next(&world, 77, &reason)] = true;
			pick_fini(&world.pick);
		}
		for (size_t i = 0; i < 8; i++)
			first_count += was_first[i];
		if (strategy == PICK_best || strategy == PICK_ring)
			assert_int_equal(first_count, 1);
		else
			assert_true(first_count >= 3);
		world_fini(&world);
	}
}

/* A log that somebody wrote may hold any numbers. */
static void test_absurd_state(void **state)
{
	static const int64_t odd[] = { INT64_MIN, -1, 0, 1, INT64_MAX };

	(void)state;
	EACH_STRATEGY(strategy)
	{
		for (size_t size = 0; size < COUNT_OF(sizes); size++) {
			world_init(&world, sizes[size]);
			for (size_t i = 0; i < sizes[size]; i++)
				world.nodes[i] = (struct world_node){ .weight_milli = (uint32_t)(i % 2 ? 1 : 100000000),
								      .start_ppm = i % 3 ? PPM : 1 };
			/* The ring refuses such weights in that number. */
			if (sizes[size] > 3)
				for (size_t i = 0; i < sizes[size]; i++)
					world.nodes[i].weight_milli = (uint32_t)(i % 2 ? 1 : 1000000);
			else
				world.nodes[2].weight_milli = 1;
			world_publish(&world);
			world_pick(&world, strategy, 1);
			for (unsigned i = 0; i < 500; i++) {
				struct pick_call call = { .key_hash = i, .now_us = odd[i % COUNT_OF(odd)] };
				enum reason reason;

				for (size_t j = 0; j < sizes[size]; j++) {
					struct pick_load *load = &world.pick.loads[j];

					load->in_flight = (i + j) % 3 ? UINT32_MAX : 0;
					load->fails_in_row = (i + j) % 5 ? 0 : UINT32_MAX;
					load->peak.cost_ns = odd[(i + j) % COUNT_OF(odd)];
					load->peak.stamp_us = odd[(i / 5 + j) % COUNT_OF(odd)];
					load->answered_us = odd[(i / 25 + j) % COUNT_OF(odd)];
					if (world.pick.turns && i % 7 == 0)
						world.pick.turns->last[j] = (uint64_t)odd[(i + 2 * j) % COUNT_OF(odd)];
				}
				if (world.pick.turns && world.pick.turns->current)
					world.pick.turns->current[0] = odd[i % COUNT_OF(odd)];
				world.pick.tau_us = odd[i % COUNT_OF(odd)];
				assert_true(world_choose(&world, &call, &reason) >= 0);
			}
			world_fini(&world);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_row_has_a_name_and_a_claim),
		cmocka_unit_test(test_nobody_serves),
		cmocka_unit_test(test_weight_zero_gets_nothing),
		cmocka_unit_test(test_all_weights_zero),
		cmocka_unit_test(test_same_state_same_choice),
		cmocka_unit_test(test_shares),
		cmocka_unit_test(test_never_a_tried_node_twice_and_no_third_try),
		cmocka_unit_test(test_every_subset_of_ten),
		cmocka_unit_test(test_after_a_swap),
		cmocka_unit_test(test_slow_start_has_its_turns),
		cmocka_unit_test(test_a_newcomer_waits_like_others),
		cmocka_unit_test(test_all_in_slow_start),
		cmocka_unit_test(test_two_timeouts_degrade),
		cmocka_unit_test(test_forgotten),
		cmocka_unit_test(test_alone_it_is_asked_whatever_happened),
		cmocka_unit_test(test_all_failing),
		cmocka_unit_test(test_threads_do_not_march_in_step),
		cmocka_unit_test(test_absurd_state),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
