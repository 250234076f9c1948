#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "folder/push_budget.h"
#include "folder/push_pace.h"

#include "base/rng.h"

/* --- a link of bandwidth and delay, full of chunks as the pace allows; time is wound by hand --- */
struct link {
	int64_t delay_us;     /* of a chunk alone, besides its bytes */
	uint64_t bytes_per_s; /* of all chunks together */
	uint64_t chunk_bytes;
	unsigned busy_above;    /* so many at once are taken; more are answered with busy. 0: any number */
	unsigned noise_percent; /* of the delay */
	unsigned source_limit;  /* the folder is read no faster than this many at once; 0: no matter */
};
struct world {
	struct link link;
	struct push_pace pace;
	struct rng rng;
	int64_t now_us, free_us; /* free: when the link has sent all that is on it */
	int64_t began_us[PUSH_PACE_MOST], ends_us[PUSH_PACE_MOST];
	bool is_refused[PUSH_PACE_MOST];
	unsigned count, taken_count, sending_max;
	uint64_t refused_count;
};

static void world_init(struct world *world, struct link link, unsigned start, unsigned most, bool is_fixed)
{
	*world = (struct world){ .link = link, .now_us = SEC_US, .free_us = SEC_US };
	rng_seed(&world->rng, 7);
	push_pace_init(&world->pace, start, most, is_fixed);
}

static void world_send(struct world *world)
{
	const struct link *link = &world->link;
	unsigned limit = world->pace.limit;

	if (link->source_limit > 0 && limit > link->source_limit)
		limit = link->source_limit;
	while (world->count < limit) {
		unsigned at = world->count++;
		int64_t delay_us = link->delay_us;
		if (link->noise_percent > 0)
			delay_us += (int64_t)rng_below(&world->rng, (uint64_t)delay_us * link->noise_percent / 100);
		world->began_us[at] = world->now_us;
		world->is_refused[at] = link->busy_above > 0 && world->taken_count == link->busy_above;
		if (world->is_refused[at]) {
			world->ends_us[at] = world->now_us + delay_us;
			continue;
		}
		world->taken_count++;
		int64_t bytes_us = (int64_t)(link->chunk_bytes * (uint64_t)SEC_US / link->bytes_per_s);
		world->free_us = max_i64(world->free_us, world->now_us) + bytes_us;
		world->ends_us[at] = world->free_us + delay_us;
	}
	if (world->count > world->sending_max)
		world->sending_max = world->count;
}

static void world_run(struct world *world, int64_t run_us)
{
	int64_t until_us = world->now_us + run_us;

	while (world->now_us < until_us) {
		world_send(world);
		unsigned first = 0;
		for (unsigned i = 1; i < world->count; i++)
			first = world->ends_us[i] < world->ends_us[first] ? i : first;
		world->now_us = world->ends_us[first];
		int64_t began_us = world->began_us[first];
		bool is_refused = world->is_refused[first];
		world->count--;
		world->began_us[first] = world->began_us[world->count];
		world->ends_us[first] = world->ends_us[world->count];
		world->is_refused[first] = world->is_refused[world->count];
		world->refused_count += is_refused;
		world->taken_count -= !is_refused;
		if (is_refused)
			push_pace_refused(&world->pace, began_us, world->now_us);
		else
			push_pace_acked(&world->pace, world->link.chunk_bytes, world->now_us - began_us, world->now_us);
	}
}

#define MIB_S(n) ((uint64_t)(n)*MIB)

static void test_it_finds_what_a_link_carries(void **state)
{
	(void)state;
	static const struct {
		const char *name;
		struct link link;
		unsigned start, least, most;
	} rows[] = {
		/* 100 MiB/s × 500 ms are 50 chunks of 1 MiB: eight would leave most of the link unused. */
		{ "long and fat", { 500 * MSEC_US, MIB_S(100), MIB, 0, 0, 0 }, 8, 40, 64 },
		{ "long and fat, uneven", { 400 * MSEC_US, MIB_S(100), MIB, 0, 40, 0 }, 8, 36, 64 },
		/* Two chunks fill it: the others only wait for one another. */
		{ "slow", { 20 * MSEC_US, MIB_S(10), MIB, 0, 0, 0 }, 8, 2, 10 },
		{ "slow, from many", { 20 * MSEC_US, MIB_S(10), MIB, 0, 0, 0 }, 64, 2, 66 },
		{ "busy above 12", { 200 * MSEC_US, MIB_S(1000), MIB, 12, 0, 0 }, 8, 4, 16 },
		{ "the folder is read slowly", { 100 * MSEC_US, MIB_S(1000), MIB, 0, 0, 3 }, 8, 8, 8 },
	};
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct world world;
		world_init(&world, rows[i].link, rows[i].start, PUSH_PACE_MOST, false);
		world_run(&world, 120 * SEC_US);
		if (world.pace.limit < rows[i].least || world.pace.limit > rows[i].most)
			fail_msg("%s: %u", rows[i].name, world.pace.limit);
	}
}

static void test_more_that_brings_nothing_is_taken_back(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, (struct link){ 20 * MSEC_US, MIB_S(10), MIB, 0, 0, 0 }, 32, PUSH_PACE_MOST, false);
	world_run(&world, 20 * SEC_US);
	assert_true(world.sending_max <= 34);
	world_run(&world, 1000 * SEC_US);
	assert_true(world.pace.limit < 12);
	/* And nothing of the link is lost by it. */
	assert_true(world.pace.acked_bytes > MIB_S(10) * 1000);
}

static void test_a_storm_halves_it_once_and_it_comes_back(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, (struct link){ 200 * MSEC_US, MIB_S(1000), MIB, 0, 0, 0 }, 32, 32, false);
	world_run(&world, 2 * SEC_US);
	assert_int_equal(world.pace.limit, 32);
	/* All that were under way together come back busy: one cut. */
	int64_t began_us = world.now_us;
	for (int i = 0; i < 32; i++)
		push_pace_refused(&world.pace, began_us - i, began_us + MSEC_US + i);
	assert_int_equal(world.pace.limit, 16);
	/* Those sent since then are news. */
	for (int i = 0; i < 10; i++) {
		began_us += SEC_US;
		push_pace_refused(&world.pace, began_us, began_us + MSEC_US);
		assert_true(world.pace.limit >= PUSH_PACE_LEAST);
	}
	assert_int_equal(world.pace.limit, PUSH_PACE_LEAST);
	world.now_us = world.free_us = began_us;
	world.count = world.taken_count = 0;
	world_run(&world, 60 * SEC_US);
	assert_int_equal(world.pace.limit, 32);
}

static void test_bounds(void **state)
{
	(void)state;
	struct push_pace pace;
	push_pace_init(&pace, 8, 1, false);
	assert_int_equal(pace.limit, 1);
	push_pace_refused(&pace, 10, 20);
	assert_int_equal(pace.limit, 1);
	push_pace_init(&pace, 0, 0, false);
	assert_int_equal(pace.limit, 1);
	/* The user's own number stands. */
	struct world world;
	world_init(&world, (struct link){ 500 * MSEC_US, MIB_S(100), MIB, 3, 0, 0 }, 5, 5, true);
	world_run(&world, 60 * SEC_US);
	assert_int_equal(world.pace.limit, 5);
	assert_true(world.refused_count > 0 && world.pace.refused_count == world.refused_count);
	assert_true(world.pace.best_rate > 0);
	/* Chunks of no bytes, answers in no time, clocks that stand still: no division by nothing. */
	push_pace_init(&pace, 8, 64, false);
	for (int i = 0; i < 1000; i++)
		push_pace_acked(&pace, 0, 0, 5);
	for (int i = 0; i < 1000; i++)
		push_pace_acked(&pace, 0, SEC_US, SEC_US * (i + 1));
	assert_true(pace.limit >= PUSH_PACE_LEAST && pace.limit <= PUSH_PACE_MOST);
}

static void test_the_budget_fills_with_time_and_success(void **state)
{
	(void)state;
	struct push_budget budget;
	int64_t due_us = 0, now_us = 100;
	push_budget_init(&budget, now_us);
	for (int i = 0; i < PUSH_BUDGET_FLOOR; i++)
		assert_true(push_budget_take(&budget, now_us, &due_us));
	assert_false(push_budget_take(&budget, now_us, &due_us));
	assert_int_equal(due_us - now_us, (PUSH_BUDGET_WINDOW_US + PUSH_BUDGET_FLOOR - 1) / PUSH_BUDGET_FLOOR);
	/* One less than due is too early, and looking often neither costs nor brings anything. */
	for (int64_t at_us = now_us; at_us < due_us; at_us += 997)
		assert_false(push_budget_take(&budget, at_us, &(int64_t){ 0 }));
	assert_true(push_budget_take(&budget, due_us, &(int64_t){ 0 }));
	now_us = due_us;
	assert_false(push_budget_take(&budget, now_us, &due_us));
	for (int i = 0; i < 5; i++)
		push_budget_earn(&budget);
	assert_true(push_budget_take(&budget, now_us, &due_us));
	assert_false(push_budget_take(&budget, now_us, &due_us));
	/* A long silence fills it to the floor, success beyond it, up to a bound. */
	now_us += 1000 * SEC_US;
	int count = 0;
	while (push_budget_take(&budget, now_us, &due_us))
		count++;
	assert_int_equal(count, PUSH_BUDGET_FLOOR);
	for (int i = 0; i < 100000; i++)
		push_budget_earn(&budget);
	for (count = 0; push_budget_take(&budget, now_us, &due_us);)
		count++;
	assert_int_equal(count, PUSH_BUDGET_MOST);
}

/* Whatever is asked of it, and whenever: never more than what was there, what time brought and what was earned. */
static void test_the_budget_is_kept_over_any_time(void **state)
{
	(void)state;
	struct push_budget budget;
	struct rng rng;
	rng_seed(&rng, 11);
	int64_t now_us = 0, due_us = 0, taken = 0, earned = 0;
	push_budget_init(&budget, now_us);
	for (int i = 0; i < 200000; i++) {
		now_us += (int64_t)rng_below(&rng, 20 * MSEC_US);
		if (rng_below(&rng, 10) == 0) {
			push_budget_earn(&budget);
			earned++;
		}
		taken += push_budget_take(&budget, now_us, &due_us);
	}
	int64_t most = PUSH_BUDGET_FLOOR + now_us * PUSH_BUDGET_FLOOR / PUSH_BUDGET_WINDOW_US + earned / 5 + 1;
	assert_true(taken <= most);
	assert_true(taken > most - most / 50 - PUSH_BUDGET_FLOOR);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_it_finds_what_a_link_carries),
		cmocka_unit_test(test_more_that_brings_nothing_is_taken_back),
		cmocka_unit_test(test_a_storm_halves_it_once_and_it_comes_back),
		cmocka_unit_test(test_bounds),
		cmocka_unit_test(test_the_budget_fills_with_time_and_success),
		cmocka_unit_test(test_the_budget_is_kept_over_any_time),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
