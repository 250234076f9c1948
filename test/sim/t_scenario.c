/* Scenarios: what is read, what is refused and how, and that those in etc/sim are sound and stable. Run from the tree's top. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>

#include <cmocka.h>

#include "sim/keys.h"
#include "sim/member_set.h"
#include "sim/scenario.h"

#define HEAD "name: t\ntitle: test\nnodes: 8\n"

static void test_defaults(void **state)
{
	(void)state;
	AUTO(arena_fini) struct arena arena = ARENA_INIT(MIB);
	struct err err = ERR_INIT;
	struct scenario scenario;
	struct pace pace;
	assert_int_equal(scenario_parse("t", STR(HEAD), &arena, &scenario, &err), 0);
	assert_int_equal(scenario.workers, 4);
	assert_int_equal(scenario.load_milli, 700);
	assert_int_equal(scenario.service, SERVICE_exponential);
	assert_int_equal(scenario.placement, SCENARIO_RING);
	assert_false(scenario.is_retried);
	/* 8 nodes of 4 workers at 70 %: 2240 a second of 10 ms each. */
	assert_true(fabs(scenario_gap_ns(&scenario) - 1e9 / 2240) < 1e-3);
	assert_int_equal(scenario_length_ns(&scenario) / 1000000000, 446);
	scenario_pace(&scenario, 7, &pace);
	assert_int_equal(pace.rule_count, 0);
}

static void test_modifiers(void **state)
{
	(void)state;
	AUTO(arena_fini) struct arena arena = ARENA_INIT(MIB);
	struct err err = ERR_INIT;
	struct scenario scenario;
	struct pace pace;
	static const char text[] = HEAD "slow: [{node: 3, factor_milli: 5000, at: 2s, length: 3s}]\n"
					"freeze: [{length: 2s, every: 20s, phase: 1s, stagger: true}]\n"
					"leak: [{node: 3, growth_milli: 600, max_milli: 3000}]\n"
					"cold: [{node: 3, factor_milli: 2000, requests: 50}]\n";
	assert_int_equal(scenario_parse("t", str_from(text), &arena, &scenario, &err), 0);
	scenario_pace(&scenario, 2, &pace);
	assert_int_equal(pace.rule_count, 1);
	/* A quarter of the nodes before it: a quarter of the 20 s. */
	assert_int_equal(pace_thaw_ns(&pace, 5999999999), 5999999999);
	assert_int_equal(pace_thaw_ns(&pace, 6000000000), 8000000000);
	assert_int_equal(pace_thaw_ns(&pace, 26000000001), 28000000000);
	scenario_pace(&scenario, 3, &pace);
	assert_int_equal(pace.rule_count, 4);
	assert_int_equal(pace.rules[0].kind, PACE_freeze);
	assert_int_equal(pace_stretch_ns(&pace, 1000000, 0), 1000000);
	/* Five times, and 3 s of a leak of 0.6 a minute. */
	assert_int_equal(pace_stretch_ns(&pace, 1000000, 3000000000), 5150000);
	assert_int_equal(pace_stretch_ns(&pace, 1000000, 3600000000000), 3000000);
}

static void test_refused(void **state)
{
	(void)state;
	static const struct {
		const char *text, *words;
	} rows[] = {
		{ "name: t\ntitle: t\n", "nodes" },
		{ HEAD "nodez: 1\n", "nodez" },
		{ HEAD "workers: 0\n", "workers" },
		{ HEAD "service: gamma\n", "lognormal" },
		{ HEAD "timeout: 0s\n", "timeout" },
		{ HEAD "warmup: 10\n", "warmup" },
		{ HEAD "slow: [{node: 8, factor_milli: 2000}]\n", "slow 1: node must be 'all' or 0 to 7, not '8'" },
		{ HEAD "slow: [{node: 1, factor_milli: 2000}, {node: -1, factor_milli: 2000}]\n", "slow 2" },
		{ HEAD "slow: [{node: every, factor_milli: 2000}]\n", "'every'" },
		{ HEAD "freeze: [{length: 20s, every: 20s}]\n", "freeze 1: 'every' must be longer" },
		{ HEAD "freeze: [{length: 12s, every: 20s}, {node: 1, length: 8s, every: 20s}]\n", "node 1 has" },
		{ HEAD "compaction: [{length: 21s, every: 20s, factor_milli: 2000}]\n", "compaction 1" },
		{ HEAD "placement: own\n", "replicas" },
		{ HEAD "placement: own\nsets: 3\nreplicas: 3\n", "the 8 nodes" },
		{ HEAD "placement: own\nsets: 3\nreplicas: 2\nevents: [{at: 1s, node: 5, do: join}]\n", "node 5" },
		{ "name: t\ntitle: t\nnodes: 4096\nsets: 65535\n", "at most" },
		{ HEAD "arrivals: bursty\nburst_milli: 11000\n", "bursts" },
		{ HEAD "arrivals: bursty\nburst_length: 5s\nburst_milli: 1000\n", "bursts" },
		{ HEAD "events: [{at: 1s, node: 8, do: leave}]\n", "no node 8" },
		{ HEAD "events: [{at: 1s, node: 7, do: join, set: 1}]\n", "no set 1" },
		{ HEAD "events: [{at: 1s, node: 7, do: explode}]\n", "vanish" },
		{ HEAD "events: [{at: 1s, node: 7, do: restart}]\n", "node 7" },
		{ HEAD "events: [{at: 1s, node: 7, do: leave}, {at: 2s, node: 7, do: crash}]\n", "node 7" },
		{ HEAD "events: [{at: 2s, node: 7, do: join}, {at: 1s, node: 7, do: crash}]\n", "node 7" },
		{ HEAD "events: [{at: 2s, node: 7, do: join}, {at: 3s, node: 7, do: join}]\n", "node 7" },
		{ "name: t\ntitle: t\nnodes: 1\nevents: [{at: 2s, node: 0, do: join}]\n", "no node is there" },
	};
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		AUTO(arena_fini) struct arena arena = ARENA_INIT(MIB);
		struct err err = ERR_INIT;
		struct scenario scenario;
		int r = scenario_parse("t.yaml", str_from(rows[i].text), &arena, &scenario, &err);
		if (r != -(int)ERR_CONFIG || strstr(err.text, rows[i].words) == NULL ||
		    strstr(err.text, "t.yaml") == NULL)
			fail_msg("%s: %d %s", rows[i].text, r, err.text);
	}
}

static void test_accepted(void **state)
{
	(void)state;
	static const char *const texts[] = {
		/* By time, not by place in the file. */
		HEAD "events: [{at: 3s, node: 7, do: leave}, {at: 2s, node: 7, do: restart}, {at: 1s, node: 7, do: "
		     "crash}]\n",
		HEAD "events: [{at: 3s, node: 7, do: crash}, {at: 2s, node: 7, do: join}]\n",
		HEAD "placement: own\nsets: 4\nreplicas: 2\n",
		HEAD "arrivals: bursty\nburst_milli: 10000\n",
		HEAD "freeze: [{length: 12s, every: 20s}, {node: 1, length: 7s, every: 20s}]\n",
	};
	for (size_t i = 0; i < COUNT_OF(texts); i++) {
		AUTO(arena_fini) struct arena arena = ARENA_INIT(MIB);
		struct err err = ERR_INIT;
		struct scenario scenario;
		if (scenario_parse("t", str_from(texts[i]), &arena, &scenario, &err) < 0)
			fail_msg("%s: %s", texts[i], err.text);
	}
}

static bool holds(const struct member_set *members, size_t set, size_t node)
{
	for (size_t i = 0; i < members->sets[set].count; i++) {
		if (members->sets[set].nodes[i] == node)
			return true;
	}
	return false;
}

/* The ring's sets have their size whoever comes and goes, and change only where they must. */
static void test_placement(void **state)
{
	(void)state;
	AUTO(arena_fini) struct arena arena = ARENA_INIT(MIB);
	struct err err = ERR_INIT;
	struct scenario scenario;
	struct member_set members;
	size_t had = 0, gone = 0;
	assert_int_equal(
		scenario_parse("t", STR(HEAD "sets: 200\nreplicas: 3\nevents: [{at: 1s, node: 7, do: join, set: 5}]\n"),
			       &arena, &scenario, &err),
		0);
	assert_int_equal(member_set_init(&members, &scenario, &err), 0);
	bool before[200][8];
	for (size_t set = 0; set < 200; set++) {
		assert_int_equal(members.sets[set].count, 3);
		assert_false(holds(&members, set, 7));
		for (size_t node = 0; node < 8; node++)
			before[set][node] = holds(&members, set, node);
	}
	assert_int_equal(member_set_join(&members, 7, 5, &err), 0);
	assert_int_equal(members.sets[5].count, 4);
	assert_true(holds(&members, 5, 7) && !holds(&members, 4, 7));
	assert_int_equal(member_set_leave(&members, 2, &err), 0);
	for (size_t set = 0; set < 200; set++) {
		assert_int_equal(members.sets[set].count, set == 5 ? 4 : 3);
		assert_false(holds(&members, set, 2));
		for (size_t node = 0; node < 7; node++) {
			had += before[set][node] && node != 2;
			gone += before[set][node] && node != 2 && !holds(&members, set, node);
		}
	}
	assert_true(had > 300);
	assert_int_equal(gone, 0);
	assert_int_equal(member_set_leave(&members, 7, &err), 0);
	assert_int_equal(members.sets[5].count, 3);
	member_set_fini(&members);
}

/* Load of the busiest set's nodes at nominal speed, when each set shares evenly among its first members. */
static double hottest_load(const struct scenario *scenario, const struct member_set *members)
{
	double hottest = 0, total = 0, *loads = must_zalloc((size_t)scenario->nodes, sizeof(*loads));
	double rate = 1e9 / scenario_gap_ns(scenario) * (double)scenario->service_mean_us / 1e6 /
		      (double)scenario->workers;
	for (int64_t key = 0; key < scenario->keys; key++)
		total += pow((double)key + 1, -(double)scenario->zipf_milli / 1e3);
	for (int64_t key = 0; key < scenario->keys; key++) {
		const struct sim_set *set = &members->sets[(size_t)key % members->set_count];
		double share = pow((double)key + 1, -(double)scenario->zipf_milli / 1e3) / total / (double)set->count;
		for (size_t i = 0; i < set->count; i++)
			loads[set->nodes[i]] += share * rate;
	}
	for (size_t node = 0; node < (size_t)scenario->nodes; node++)
		hottest = fmax(hottest, loads[node]);
	free(loads);
	return hottest;
}

static void test_examples(void **state)
{
	(void)state;
	static const struct {
		const char *path, *name;
		double least, most; /* of the busiest node's nominal load, shared evenly */
	} rows[] = {
		{ "etc/sim/homogeneous.yaml", "homogeneous", 0.69, 0.71 },
		{ "etc/sim/slow_node.yaml", "slow_node", 0.69, 0.71 },
		{ "etc/sim/freezes.yaml", "freezes", 0.69, 0.71 },
		{ "etc/sim/compaction.yaml", "compaction", 0.69, 0.71 },
		{ "etc/sim/hot_shard.yaml", "hot_shard", 0.745, 0.755 },
		/* The ring spreads sets unevenly; choosing well within each makes up for it. */
		{ "etc/sim/large.yaml", "large", 0.6, 1.3 },
	};
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		AUTO(arena_fini) struct arena arena = ARENA_INIT(MIB);
		struct err err = ERR_INIT;
		struct scenario scenario;
		struct member_set members;
		if (scenario_load(rows[i].path, &arena, &scenario, &err) < 0 ||
		    member_set_init(&members, &scenario, &err) < 0)
			fail_msg("%s", err.text);
		assert_string_equal(scenario.name, rows[i].name);
		assert_true(scenario.warmup_us * 1000 < scenario_length_ns(&scenario) / 4);
		double load = hottest_load(&scenario, &members);
		if (load < rows[i].least || load > rows[i].most)
			fail_msg("%s: the busiest node has %.3f", rows[i].path, load);
		member_set_fini(&members);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_defaults), cmocka_unit_test(test_modifiers), cmocka_unit_test(test_refused),
		cmocka_unit_test(test_accepted), cmocka_unit_test(test_placement), cmocka_unit_test(test_examples),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
