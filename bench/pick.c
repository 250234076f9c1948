/* How long one choice takes by each strategy, how long a table of 16,384 sets takes to score, judge and build. One line each. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "core/judge.h"
#include "core/node.h"
#include "core/pick.h"

#define PICK_COUNT   20000
#define ROUNDS       60 /* the best counts: other programs only ever make it slower */
#define SET_COUNT    16384
#define SET_SIZE     3
#define NODES_MAX    100
#define FLIGHT_COUNT 256 /* requests under way, a power of two */

static char ids[NODES_MAX][32];

static struct ring *ring_make(size_t node_count)
{
	struct ring_node nodes[NODES_MAX];
	struct err err = ERR_INIT;
	struct ring *ring;

	for (size_t i = 0; i < node_count; i++)
		nodes[i] = (struct ring_node){ ids[i], 1000, NULL };
	if (ring_build(nodes, node_count, &ring, &err) == 0)
		return ring;
	(void)fprintf(stderr, "bench/pick: %s\n", err.text);
	exit(1);
}

/* set_count sets of set_size candidates each, out of node_count nodes of weights 700 to 1000. */
static struct route *route_make(size_t set_count, size_t set_size, size_t node_count, const struct ring *ring)
{
	struct route_builder *builder = route_builder_new(set_count, set_count * set_size);
	struct route_candidate candidates[NODES_MAX];
	uint16_t offsets[NODES_MAX];

	for (size_t set = 0; set < set_count; set++) {
		for (size_t i = 0; i < set_size; i++) {
			uint32_t weight_milli = (uint32_t)(700 + i * 37 % 300);

			candidates[i] = (struct route_candidate){ .node_index = (uint16_t)((set + i) % node_count),
								  .weight_milli = weight_milli,
								  .standing_milli = weight_milli,
								  .start_ppm = PPM };
			offsets[i] = (uint16_t)i;
		}
		route_builder_add_candidates(builder, candidates, set_size, set_size, REASON_best, ring, offsets);
	}
	return route_builder_end(&builder, 1, 1);
}

/* In hundredths of a nanosecond: choices with the counts in flight moving, as they do. */
static int64_t pick_time(enum pick_strategy strategy, const struct route *route, size_t node_count)
{
	uint16_t flight[FLIGHT_COUNT];
	int64_t best_us = INT64_MAX;
	struct pick pick;
	struct rng rng;

	pick_init(&pick, strategy, node_count, route->set_count, 1);
	rng_seed(&rng, 2);
	for (size_t i = 0; i < node_count; i++)
		curve_peak_feed(&pick.loads[i].peak, 1000000 + (int64_t)rng_below(&rng, 1000000), pick.tau_us, 1);
	for (size_t i = 0; i < FLIGHT_COUNT; i++) {
		flight[i] = (uint16_t)rng_below(&rng, node_count);
		pick.loads[flight[i]].in_flight++;
	}
	for (int round = 0; round < ROUNDS; round++) {
		int64_t start_us = clock_mono_us();

		for (size_t i = 0; i < PICK_COUNT; i++) {
			struct pick_call call = { .key_hash = i * 0x9e3779b97f4a7c15u, .now_us = SEC_US + (int64_t)i };
			size_t set = call.key_hash >> 32 & (route->set_count - 1);
			uint16_t *slot = &flight[i % FLIGHT_COUNT];
			enum reason reason;
			int offset = pick_next(&pick, route, set, &call, &reason);

			MUST(offset >= 0);
			pick.loads[*slot].in_flight--;
			*slot = route->candidates[route->sets[set].first + (size_t)offset].node_index;
			pick.loads[*slot].in_flight++;
		}
		best_us = min_i64(best_us, clock_mono_us() - start_us);
	}
	pick_fini(&pick);
	return best_us * 100000 / PICK_COUNT;
}

static void bench_strategies(void)
{
	static const size_t sizes[] = { 3, 8, NODES_MAX };

	for (enum pick_strategy strategy = 0; strategy < PICK_STRATEGIES; strategy++) {
		struct ring *ring = ring_make(SET_SIZE);
		struct route *route;
		int64_t time;

		(void)printf("pick: %s:", pick_names[strategy]);
		for (size_t i = 0; i < COUNT_OF(sizes); i++) {
			struct ring *own = ring_make(sizes[i]);

			route = route_make(1, sizes[i], sizes[i], own);
			time = pick_time(strategy, route, sizes[i]);
			(void)printf(" %lld.%02lld ns of %zu,", (long long)(time / 100), (long long)(time % 100),
				     sizes[i]);
			route_free(&route);
			ring_free(&own);
		}
		route = route_make(SET_COUNT, SET_SIZE, NODES_MAX, ring);
		time = pick_time(strategy, route, NODES_MAX);
		(void)printf(" %lld.%02lld ns of %d in %d sets at random\n", (long long)(time / 100),
			     (long long)(time % 100), SET_SIZE, SET_COUNT);
		route_free(&route);
		ring_free(&ring);
	}
}

static void bench_sent_done(void)
{
	int64_t best_us = INT64_MAX;
	struct pick pick;

	pick_init(&pick, PICK_weighted_ewma, NODES_MAX, 1, 1);
	for (int round = 0; round < ROUNDS; round++) {
		int64_t start_us = clock_mono_us();

		for (int64_t i = 0; i < PICK_COUNT; i++) {
			int64_t now_us = SEC_US + (round * PICK_COUNT + i) * 20;

			pick_sent(&pick, (uint16_t)(i % NODES_MAX), now_us);
			pick_done(&pick, (uint16_t)(i % NODES_MAX), false, 1000000 + i % 7 * 100000, now_us + 1);
		}
		best_us = min_i64(best_us, clock_mono_us() - start_us);
	}
	(void)printf("pick: sent and done: %lld ns\n", (long long)(best_us * 1000 / PICK_COUNT));
	pick_fini(&pick);
}

/* A report as a busy kv worker sends it. */
static void input_make(struct score_input *input, size_t i, struct rng *rng)
{
	struct report *report = &input->report;

	memset(input, 0, sizeof(*input));
	(void)str_copy(str_from(ids[i]), input->id, sizeof(input->id));
	input->weight_milli = 1000;
	input->state = MEMBER_HEALTHY;
	input->age_us = (int64_t)rng_below(rng, 3 * SEC_US);
	input->joined_age_us = -1;
	input->was_ever_verified = true;
	input->score_before_ppm = -1;
	report_init(report);
	report->cpu_cores_milli = 4000;
	report->cpu_busy_milli = (int64_t)rng_below(rng, 3000);
	report->mem_limit_bytes = 1 << 30;
	report->rss_bytes = (int64_t)rng_below(rng, 1 << 29);
	report->disk_queue_milli = (int64_t)rng_below(rng, 8000);
	report->disk_free_bytes = (int64_t)1 << 38;
	report->disk_total_bytes = (int64_t)1 << 39;
	report->p10_us = 200;
	report->p50_us = 400;
	report->p90_us = 900;
	report->p99_us = 2000 + (int64_t)rng_below(rng, 20000);
	report->mean_us = 500;
	report->wal_lag_us = (int64_t)rng_below(rng, 20000);
	report->wal_lag_bytes = 4096;
	report->verified = 1;
	input->p99_smooth_us = report->p99_us;
	input->in_flight = (int64_t)rng_below(rng, 64);
	input->rt_mean_us = 600;
	input->write_failure_ppm = 0;
}

static void bench_publish(const struct profile *profile)
{
	struct score_input *inputs = must_zalloc(NODES_MAX, sizeof(*inputs));
	struct judge_memory *memories = must_zalloc(SET_COUNT, sizeof(*memories));
	struct score_output outputs[SET_SIZE];
	struct decision *decision = must_zalloc(1, sizeof(*decision));
	int64_t best_us[2] = { INT64_MAX, INT64_MAX };
	struct rng rng;

	rng_seed(&rng, 3);
	for (size_t i = 0; i < NODES_MAX; i++)
		input_make(&inputs[i], i, &rng);
	for (int round = 0; round < 20; round++) {
		int64_t start_us = clock_mono_us(), us;
		struct route_builder *builder = route_builder_new(SET_COUNT, SET_COUNT * SET_SIZE);
		struct route *route;

		for (size_t set = 0; set < SET_COUNT; set++) {
			const struct score_input *members[SET_SIZE];
			uint16_t node_indexes[SET_SIZE];

			for (size_t i = 0; i < SET_SIZE; i++) {
				node_indexes[i] = (uint16_t)((set + i * 33) % NODES_MAX);
				members[i] = &inputs[node_indexes[i]];
			}
			score_set(profile, members, SET_SIZE, outputs);
			if (round % 2)
				continue; /* scoring alone */
			judge_set(profile, &memories[set], JUDGE_TICK_US, members, outputs, SET_SIZE, decision);
			route_builder_add(builder, decision, outputs, node_indexes, SET_SIZE, NULL, NULL);
		}
		route = route_builder_end(&builder, 1, 1);
		us = clock_mono_us() - start_us;
		best_us[round % 2] = min_i64(best_us[round % 2], us);
		route_free(&route);
	}
	(void)printf("pick: publish %d sets of %d by profile %s: %lld.%02lld ms, of which scoring %lld.%02lld ms\n",
		     SET_COUNT, SET_SIZE, profile->name, (long long)(best_us[0] / 1000),
		     (long long)(best_us[0] % 1000 / 10), (long long)(best_us[1] / 1000),
		     (long long)(best_us[1] % 1000 / 10));
	free(decision);
	free(memories);
	free(inputs);
}

int main(void)
{
	for (size_t i = 0; i < NODES_MAX; i++)
		(void)snprintf(ids[i], sizeof(ids[i]), "node-%zu", i);
	bench_strategies();
	bench_sent_done();
	bench_publish(profile_builtin("kv"));
	bench_publish(profile_builtin("gateway"));
	return 0;
}
