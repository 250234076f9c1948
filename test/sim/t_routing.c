/* What docs/routing.md claims, on shorter runs of the same scenarios: heng's default strategy is the best or nearly so in each. The seed is fixed,
 * so this passes always or never. Run from the tree's top. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "sim/world.h"

static const char *const rivals[] = { "least_outstanding", "p2c", "peak_ewma", "c3", "prequal", "heng_band" };

static void run(const struct scenario *scenario, const char *policy, int64_t *ret_p99_ns, int64_t *ret_p999_ns)
{
	struct world_conf conf = { .scenario = scenario, .policy = sim_policy_find(policy) };
	struct result *result = must_zalloc(1, sizeof(*result));
	struct err err = ERR_INIT;

	assert_non_null(conf.policy);
	result_init(result, policy, scenario);
	assert_int_equal(world_run(&conf, result, &err), 0);
	*ret_p99_ns = fine_quantile_ns(&result->latency, 990000);
	*ret_p999_ns = fine_quantile_ns(&result->latency, 999000);
	assert_int_equal(result_error_ppm(result), 0);
	result_fini(result);
	free(result);
}

static void test_default_is_best_or_nearly(void **state)
{
	static const struct {
		const char *path;
		int64_t requests;
	} rows[] = {
		{ "etc/sim/homogeneous.yaml", 250000 }, { "etc/sim/slow_node.yaml", 250000 },
		{ "etc/sim/freezes.yaml", 250000 },     { "etc/sim/compaction.yaml", 250000 },
		{ "etc/sim/hot_shard.yaml", 900000 }, /* the replica joins at 300 s */
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct arena arena = ARENA_INIT(0);
		int64_t own_p99_ns, own_p999_ns, best_p99_ns = INT64_MAX, best_p999_ns = INT64_MAX;
		struct scenario scenario;
		struct err err = ERR_INIT;

		assert_int_equal(scenario_load(rows[i].path, &arena, &scenario, &err), 0);
		scenario.requests = rows[i].requests;
		run(&scenario, "heng_adaptive", &own_p99_ns, &own_p999_ns);
		for (size_t j = 0; j < COUNT_OF(rivals); j++) {
			int64_t p99_ns, p999_ns;

			run(&scenario, rivals[j], &p99_ns, &p999_ns);
			best_p99_ns = min_i64(best_p99_ns, p99_ns);
			best_p999_ns = min_i64(best_p999_ns, p999_ns);
		}
		/* Some two hundred requests make the P99.9 of a run this short: two seeds differ by 4 %. */
		if (own_p99_ns * 100 > best_p99_ns * 103 || own_p999_ns * 100 > best_p999_ns * 107)
			fail_msg("%s: P99 %lld us against %lld, P99.9 %lld against %lld", rows[i].path,
				 (long long)own_p99_ns / 1000, (long long)best_p99_ns / 1000,
				 (long long)own_p999_ns / 1000, (long long)best_p999_ns / 1000);
		arena_fini(&arena);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_default_is_best_or_nearly),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
