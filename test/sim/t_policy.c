#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "core/decide.h"
#include "sim/policy.h"

#define NODES    6
#define SETS     4
#define PENDING  256
#define STEP_US  700
#define RTT_US   9000
#define LEAVER   2
#define EPOCH_US (1000 * SEC_US) /* the clock does not begin at 0 */
#define REPORTS  REPORT_INTERVAL_US

/* A small world that keeps time by hand: each step one request is chosen for, and the answer to an older one comes. */
struct pending {
	uint16_t node;
	bool is_failed;
	int64_t sent_us;
};
struct probing {
	uint16_t node;
	int64_t due_us;
};
struct world {
	const struct sim_policy *kind;
	void *policy;
	uint16_t members[SETS][NODES];
	struct sim_set sets[SETS];
	struct sim_view view;
	struct rng rng;
	int64_t now_us, ticked_us, reported_us;
	uint64_t sequence;
	struct pending pending[PENDING];
	struct probing probing[PENDING];
	size_t pending_count, probing_count;
	uint32_t in_flight[NODES];
	uint64_t counts[NODES];
	int failing; /* a node whose requests fail, -1: none */
	int slow;    /* a node that takes ten times as long, -1: none */
	struct buf log;
};

static const uint32_t weights_milli[NODES] = { 1000, 1000, 1000, 1000, 1000, 1000 };
static const char *const ids[NODES] = { "n0", "n1", "n2", "n3", "n4", "n5" };

static void keep_lines(void *owner, struct str lines)
{
	struct world *world = owner;

	assert_true(lines.size > 0 && lines.data[lines.size - 1] == '\n');
	assert_true(buf_append(&world->log, lines));
}

/* Set 0 is empty, 1 has one node, 2 has three, 3 has all. */
static void fill_sets(struct world *world, int without)
{
	static const size_t sizes[SETS] = { 0, 1, 3, NODES };

	for (size_t i = 0; i < SETS; i++) {
		size_t count = 0;

		for (size_t j = 0; j < sizes[i]; j++) {
			if ((int)(i + j) % NODES != without)
				world->members[i][count++] = (uint16_t)((i + j) % NODES);
		}
		world->sets[i] = (struct sim_set){ world->members[i], count };
	}
}

static void world_init(struct world *world, const struct sim_policy *kind, uint64_t seed, bool is_logged)
{
	*world = (struct world){ .kind = kind, .failing = -1, .slow = -1, .log = BUF_INIT(64 * MIB) };
	world->now_us = world->ticked_us = world->reported_us = EPOCH_US;
	fill_sets(world, -1);
	rng_seed(&world->rng, seed);
	world->view = (struct sim_view){
		.node_count = NODES,
		.set_count = SETS,
		.router_count = 2,
		.router_index = 1,
		.sets = world->sets,
		.weights_milli = weights_milli,
		.node_ids = ids,
		.timeout_us = SEC_US,
		.log = is_logged ? keep_lines : NULL,
		.log_owner = world,
	};
	world->policy = kind->new (&world->view, seed);
}

static void world_fini(struct world *world)
{
	world->kind->free(world->policy);
	buf_fini(&world->log);
}

static void answer_at(struct world *world, size_t place)
{
	struct pending *pending = &world->pending[place];
	struct sim_answer answer = {
		.rtt_ns = (world->now_us - pending->sent_us) * 1000,
		.is_failed = pending->is_failed,
		.service_ns = pending->is_failed ? 0 : RTT_US * 500,
		.queue_count = world->in_flight[pending->node],
	};

	world->in_flight[pending->node]--;
	world->kind->answered(world->policy, pending->node, &answer, world->now_us);
	memmove(pending, pending + 1, (--world->pending_count - place) * sizeof(*pending));
}

static void send_reports(struct world *world)
{
	world->sequence++;
	for (uint16_t node = 0; node < NODES; node++) {
		struct report report;

		if ((int)node == world->failing)
			continue;
		report_init(&report);
		report.cpu_cores_milli = 4000;
		report.cpu_busy_milli = (int)node == world->slow ? 3500 : 1000;
		report.p99_us = (int)node == world->slow ? 900000 : 20000;
		report.in_flight = world->in_flight[node];
		report.verified = 1;
		world->kind->report(world->policy, node, &report, world->sequence, world->now_us);
	}
}

static void keep_time(struct world *world)
{
	world->now_us += STEP_US;
	if (world->kind->tick && world->now_us - world->ticked_us >= world->kind->tick_us) {
		world->ticked_us = world->now_us;
		world->kind->tick(world->policy, world->now_us);
	}
	if (world->kind->report && world->now_us - world->reported_us >= REPORTS) {
		world->reported_us = world->now_us;
		send_reports(world);
	}
	for (size_t i = 0; i < world->probing_count;) {
		struct probing *probing = &world->probing[i];

		if (probing->due_us > world->now_us) {
			i++;
			continue;
		}
		world->kind->probed(world->policy, probing->node, world->in_flight[probing->node], RTT_US * 1000,
				    world->now_us);
		memmove(probing, probing + 1, (--world->probing_count - i) * sizeof(*probing));
	}
	for (size_t i = 0; i < world->pending_count;) {
		int64_t rtt_us = (int)world->pending[i].node == world->slow ? 10 * RTT_US : RTT_US;

		if (world->now_us - world->pending[i].sent_us >= rtt_us)
			answer_at(world, i);
		else
			i++;
	}
}

static void check_member(const struct world *world, size_t set_index, int node)
{
	const struct sim_set *set = &world->sets[set_index];

	for (size_t i = 0; i < set->count; i++) {
		if (set->nodes[i] == node)
			return;
	}
	fail_msg("%s chose %d, which is not in set %zu", world->kind->name, node, set_index);
}

/* One request. Returns whom it went to, -1: nobody. */
static int world_step(struct world *world, size_t set_index)
{
	uint64_t key_hash = rng_u64(&world->rng);
	uint16_t asked[3];
	int node;

	keep_time(world);
	for (size_t i = 0; world->kind->hold && i < 10000; i++) {
		int64_t wait_us = world->kind->hold(world->policy, set_index, world->now_us);

		assert_true(wait_us >= 0);
		if (wait_us == 0)
			break;
		assert_true(i < 9999);
		keep_time(world);
	}
	node = world->kind->choose(world->policy, set_index, key_hash, world->now_us);
	if (world->kind->probes) {
		size_t count = world->kind->probes(world->policy, set_index, asked, COUNT_OF(asked), world->now_us);

		assert_true(count <= min_size(COUNT_OF(asked), world->sets[set_index].count));
		for (size_t i = 0; i < count && world->probing_count < PENDING; i++) {
			check_member(world, set_index, asked[i]);
			world->probing[world->probing_count++] = (struct probing){ asked[i], world->now_us + 500 };
		}
	}
	if (node < 0) {
		assert_int_equal(node, -1);
		return node;
	}
	check_member(world, set_index, node);
	world->kind->sent(world->policy, (uint16_t)node, world->now_us);
	world->counts[node]++;
	world->in_flight[node]++;
	world->pending[world->pending_count++] = (struct pending){ (uint16_t)node, node == world->failing,
								   world->now_us };
	return node;
}

static void world_leave(struct world *world)
{
	fill_sets(world, LEAVER);
	if (world->kind->changed)
		world->kind->changed(world->policy, LEAVER, false, false, world->now_us);
}

static void world_join(struct world *world)
{
	fill_sets(world, -1);
	if (world->kind->changed)
		world->kind->changed(world->policy, LEAVER, true, true, world->now_us);
}

/* --- the contract, for every row --- */

static void test_rows(void **state)
{
	(void)state;
	assert_null(sim_policy_find("none"));
	for (size_t i = 0; sim_policies[i]; i++) {
		const struct sim_policy *kind = sim_policies[i];

		assert_ptr_equal(sim_policy_find(kind->name), kind);
		assert_true(strlen(kind->help) > 10 && strlen(kind->source) > 10);
		assert_true(!kind->tick == (kind->tick_us == 0));
		assert_true(!kind->probes == !kind->probed);
	}
}

static void test_members_alone(void **state)
{
	(void)state;
	for (size_t i = 0; sim_policies[i]; i++) {
		struct world world;

		world_init(&world, sim_policies[i], 11, false);
		for (size_t round = 0; round < 6000; round++) {
			size_t set_index = round % SETS;
			int node;

			if (round == 2000)
				world_leave(&world);
			if (round == 4000)
				world_join(&world);
			node = world_step(&world, set_index);
			/* The only member of set 1 stays; set 0 never has one. */
			assert_true(set_index == 0 ? node == -1 : node >= 0);
		}
		while (world.pending_count > 0)
			answer_at(&world, 0);
		for (size_t node = 0; node < NODES; node++) {
			/* One that selects stays with the selected. */
			if (world.counts[node] == 0 && strcmp(sim_policies[i]->name, "heng_best") != 0)
				fail_msg("%s never chose node %zu", sim_policies[i]->name, node);
		}
		world_fini(&world);
	}
}

static void test_deterministic(void **state)
{
	(void)state;
	for (size_t i = 0; sim_policies[i]; i++) {
		struct world worlds[2];

		for (size_t j = 0; j < 2; j++)
			world_init(&worlds[j], sim_policies[i], 5, j == 0); /* a log changes nothing */
		for (size_t round = 0; round < 5000; round++) {
			int first = world_step(&worlds[0], 3), second = world_step(&worlds[1], 3);

			if (first != second)
				fail_msg("%s chose %d, then %d", sim_policies[i]->name, first, second);
		}
		for (size_t j = 0; j < 2; j++)
			world_fini(&worlds[j]);
	}
}

/* Of equal nodes none starves and none gets the most, but with those that herd: the snitch by design, and heng's best, which is one node. */
static void test_shares(void **state)
{
	(void)state;
	for (size_t i = 0; sim_policies[i]; i++) {
		bool is_herd = strcmp(sim_policies[i]->name, "snitch") == 0 ||
			       strcmp(sim_policies[i]->name, "heng_best") == 0;
		struct world world;

		if (is_herd)
			continue;
		world_init(&world, sim_policies[i], 23, false);
		for (size_t round = 0; round < 30000; round++)
			world_step(&world, 3);
		for (size_t node = 0; node < NODES; node++) {
			if (world.counts[node] < 2500 || world.counts[node] > 10000)
				fail_msg("%s gave node %zu %ju of 30000", sim_policies[i]->name, node,
					 (uintmax_t)world.counts[node]);
		}
		world_fini(&world);
	}
}

/* A node ten times slower gets less than its share from all that look. */
static void test_slow_node(void **state)
{
	static const char *const blind[] = { "random", "round_robin" };

	(void)state;
	for (size_t i = 0; sim_policies[i]; i++) {
		bool is_blind = false;
		struct world world;

		for (size_t j = 0; j < COUNT_OF(blind); j++)
			is_blind = is_blind || strcmp(sim_policies[i]->name, blind[j]) == 0;
		world_init(&world, sim_policies[i], 31, false);
		world.slow = 4;
		for (size_t round = 0; round < 30000; round++)
			world_step(&world, 3);
		if ((world.counts[4] < 4000) == is_blind)
			fail_msg("%s gave the slow node %ju of 30000", sim_policies[i]->name,
				 (uintmax_t)world.counts[4]);
		world_fini(&world);
	}
}

/* --- heng --- */

static const char *const heng_names[] = { "heng_best", "heng_band", "heng_weighted_ewma", "heng_adaptive" };

static size_t replay_all(struct world *world, size_t *ret_same)
{
	struct decide_replay *replay = decide_replay_new(NULL, PPM);
	struct str rest = buf_str(&world->log), line;
	size_t line_count = 0;

	*ret_same = 0;
	while (str_cut(&rest, '\n', &line)) {
		struct err err = ERR_INIT;
		enum decide_result result;
		struct decide_change change;

		line_count++;
		if (decide_replay_line(replay, line, &result, &change, &err) != 0)
			fail_msg("line %zu: %s", line_count, err.text);
		if (result == DECIDE_OTHER)
			fail_msg("line %zu computes otherwise: %s", line_count, change.what);
		*ret_same += result == DECIDE_SAME;
	}
	decide_replay_free(&replay);
	return line_count;
}

static void test_heng_log_replays(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT_OF(heng_names); i++) {
		size_t line_count, same_count;
		struct world world;

		world_init(&world, sim_policy_find(heng_names[i]), 3, true);
		for (size_t round = 0; round < 40000; round++) {
			if (round == 10000)
				world.slow = 4;
			if (round == 20000)
				world_leave(&world);
			if (round == 22000)
				world_join(&world);
			if (round == 30000)
				world.failing = 5;
			world_step(&world, round % SETS);
		}
		line_count = replay_all(&world, &same_count);
		assert_true(line_count > 8);
		assert_int_equal(same_count, line_count - 1); /* the profile comes first and is no choice */
		world_fini(&world);
	}
}

/* A router that has just started has no reports, and yet it serves; and a set whose nodes all went silent long ago is served by nobody but by the
 * gateway's profile, which takes them for alike. */
static void test_heng_silence(void **state)
{
	static const struct {
		const char *name;
		bool is_served;
	} rows[] = { { "heng_best", false },
		     { "heng_band", false },
		     { "heng_weighted_ewma", true },
		     { "heng_adaptive", true } };

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct world world;
		int node = -1;

		world_init(&world, sim_policy_find(rows[i].name), 3, false);
		assert_true(world_step(&world, 3) >= 0);
		for (int64_t now_us = EPOCH_US + SEC_US; now_us <= EPOCH_US + 600 * SEC_US;
		     now_us += world.kind->tick_us) {
			world.kind->tick(world.policy, now_us);
			node = world.kind->choose(world.policy, 3, 0, now_us);
		}
		assert_true((node >= 0) == rows[i].is_served);
		world_fini(&world);
	}
}

/* The node whose requests fail is left within a few of them; a retry goes elsewhere. */
static void test_heng_failing(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT_OF(heng_names); i++) {
		struct world world;
		uint64_t count;

		world_init(&world, sim_policy_find(heng_names[i]), 3, false);
		for (size_t round = 0; round < 10000; round++)
			world.failing = (int)max_i64(world_step(&world, 3), 0);
		count = world.counts[world.failing];
		for (size_t round = 0; round < 10000; round++)
			world_step(&world, 3);
		if (world.counts[world.failing] - count > 500)
			fail_msg("%s sent %ju of 10000 to a node that fails", heng_names[i],
				 (uintmax_t)(world.counts[world.failing] - count));
		for (uint16_t tried = 0; tried < NODES; tried++) {
			int node = world.kind->retry(world.policy, 3, tried, tried, world.now_us);

			assert_true(node >= 0 && node != tried);
		}
		world_fini(&world);
	}
}

/* Two routers on the same reports agree on the best node, and of equal nodes the selected one stays. */
static void test_heng_best_stays(void **state)
{
	struct world world;
	int first;

	(void)state;
	world_init(&world, sim_policy_find("heng_best"), 3, false);
	first = world_step(&world, 3);
	for (size_t round = 0; round < 20000; round++)
		assert_int_equal(world_step(&world, 3), first);
	assert_int_equal(world.kind->flips(world.policy), 0);
	world.slow = first;
	for (size_t round = 0; round < 20000; round++)
		world_step(&world, 3);
	assert_int_not_equal(world_step(&world, 3), first);
	assert_true(world.kind->flips(world.policy) > 0);
	world_fini(&world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rows),
		cmocka_unit_test(test_members_alone),
		cmocka_unit_test(test_deterministic),
		cmocka_unit_test(test_shares),
		cmocka_unit_test(test_slow_node),
		cmocka_unit_test(test_heng_log_replays),
		cmocka_unit_test(test_heng_silence),
		cmocka_unit_test(test_heng_failing),
		cmocka_unit_test(test_heng_best_stays),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
