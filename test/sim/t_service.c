/* Draws against theory: work, keys, arrivals; what a node's modifiers do to time. Seeds are fixed, so that a deviation is a fault, not bad luck. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdlib.h>

#include <cmocka.h>

#include "sim/arrival.h"
#include "sim/draw.h"
#include "sim/keys.h"
#include "sim/recent.h"
#include "sim/service.h"

#define DRAWS 400000

static void assert_near(double found, double expected, double tolerance, const char *what)
{
	if (!(fabs(found - expected) <= tolerance * fabs(expected)))
		fail_msg("%s: %.6g, expected %.6g within %.3g %%", what, found, expected, tolerance * 100);
}

static int compare_i64(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
	return (x > y) - (x < y);
}

static double drawn_quantile(const int64_t *sorted, double q) { return (double)sorted[(size_t)(q * (DRAWS - 1))]; }

static void test_work(void **state)
{
	(void)state;
	/* z of the normal distribution at 10, 50, 90, 99, 99.9 %. */
	static const double qs[] = { 0.1, 0.5, 0.9, 0.99, 0.999 },
			    zs[] = { -1.2815516, 0, 1.2815516, 2.3263479, 3.0902323 };
	static const struct service services[] = {
		{ .kind = SERVICE_constant, .mean_ns = 10e6 },
		{ .kind = SERVICE_exponential, .mean_ns = 10e6 },
		{ .kind = SERVICE_lognormal, .mean_ns = 10e6, .sigma = 0.5 },
		{ .kind = SERVICE_lognormal, .mean_ns = 1e6, .sigma = 1.2 },
	};
	int64_t *draws = must_zalloc(DRAWS, sizeof(*draws));
	for (size_t s = 0; s < COUNT_OF(services); s++) {
		const struct service *service = &services[s];
		struct rng rng;
		double sum = 0;
		rng_seed(&rng, 7 + s);
		for (size_t i = 0; i < DRAWS; i++)
			sum += (double)(draws[i] = service_draw_ns(service, &rng));
		qsort(draws, DRAWS, sizeof(*draws), compare_i64);
		assert_near(sum / DRAWS, service->mean_ns, 0.01, "mean");
		for (size_t q = 0; q < COUNT_OF(qs); q++) {
			double expected = service->mean_ns, sigma = service->sigma;
			if (service->kind == SERVICE_exponential)
				expected *= -log1p(-qs[q]);
			if (service->kind == SERVICE_lognormal)
				expected *= exp(zs[q] * sigma - sigma * sigma / 2);
			assert_near(drawn_quantile(draws, qs[q]), expected, qs[q] > 0.99 ? 0.03 : 0.015, "quantile");
		}
	}
	free(draws);
}

static void test_bimodal(void **state)
{
	(void)state;
	struct service service = { .kind = SERVICE_bimodal, .mean_ns = 10e6, .long_share = 0.05, .long_factor = 20 };
	struct rng rng;
	double sum = 0;
	size_t long_count = 0;
	/* 0.95 s + 0.05 * 20 s = 10 ms */
	int64_t short_ns = (int64_t)(10e6 / 1.95 + 0.5), long_ns = (int64_t)(20 * 10e6 / 1.95 + 0.5);
	rng_seed(&rng, 3);
	for (size_t i = 0; i < DRAWS; i++) {
		int64_t work = service_draw_ns(&service, &rng);
		assert_true(work == short_ns || work == long_ns);
		long_count += work == long_ns;
		sum += (double)work;
	}
	assert_near(sum / DRAWS, 10e6, 0.01, "mean");
	assert_near((double)long_count / DRAWS, 0.05, 0.03, "share of the long");
}

/* Pearson's test: with k classes the sum of (observed - expected)^2 / expected is about k, give or take sqrt(2 k). */
static void check_zipf(uint64_t count, double exponent)
{
	struct keys keys;
	struct rng rng;
	uint64_t *seen = must_zalloc(count, sizeof(*seen));
	double total = 0, chi = 0, tail_expected = 0;
	uint64_t tail_seen = 0, classes = 0;
	keys_init(&keys, count, exponent);
	rng_seed(&rng, 11);
	for (size_t i = 0; i < DRAWS; i++) {
		uint64_t rank = keys_draw(&keys, &rng);
		assert_true(rank < count);
		seen[rank]++;
	}
	for (uint64_t rank = 0; rank < count; rank++)
		total += pow((double)rank + 1, -exponent);
	for (uint64_t rank = 0; rank < count; rank++) {
		double expected = DRAWS * pow((double)rank + 1, -exponent) / total;
		/* Rare ones are one class together. */
		if (expected < 20) {
			tail_expected += expected;
			tail_seen += seen[rank];
			continue;
		}
		chi += ((double)seen[rank] - expected) * ((double)seen[rank] - expected) / expected;
		classes++;
	}
	if (tail_expected > 20) {
		chi += ((double)tail_seen - tail_expected) * ((double)tail_seen - tail_expected) / tail_expected;
		classes++;
	}
	double limit = (double)classes + 4 * sqrt(2 * (double)classes) + 4;
	if (chi > limit)
		fail_msg("%llu keys, exponent %.2f: chi square %.1f over %llu classes", (unsigned long long)count,
			 exponent, chi, (unsigned long long)classes);
	free(seen);
}

static void test_zipf(void **state)
{
	(void)state;
	static const struct {
		uint64_t count;
		double exponent;
	} rows[] = { { 1, 0.99 },   { 2, 1.0 },    { 6, 0.99 },      { 6, 0 },        { 100, 1.0 },
		     { 1000, 0.5 }, { 1000, 2.0 }, { 100000, 0.99 }, { 100000, 1.5 }, { 5000, 0 } };
	for (size_t i = 0; i < COUNT_OF(rows); i++)
		check_zipf(rows[i].count, rows[i].exponent);
}

static void test_poisson(void **state)
{
	(void)state;
	struct arrival arrival;
	struct rng rng;
	double sum = 0, squares = 0;
	arrival_poisson(&arrival, 1e6);
	rng_seed(&rng, 5);
	for (size_t i = 0; i < DRAWS; i++) {
		double gap = (double)arrival_gap_ns(&arrival, &rng);
		sum += gap;
		squares += gap * gap;
	}
	double mean = sum / DRAWS;
	assert_near(mean, 1e6, 0.01, "mean gap");
	assert_near(squares / DRAWS - mean * mean, 1e12, 0.02, "variance of the gaps");
}

/* Counted in slots of 100 ms: the mean rate is kept, and the counts vary far more than Poisson's, whose variance is their mean. */
static void test_bursty(void **state)
{
	(void)state;
	enum { SLOTS = 40000 };
	struct arrival arrival;
	struct rng rng;
	uint32_t *slots = must_zalloc(SLOTS, sizeof(*slots));
	double sum = 0, squares = 0;
	arrival_bursty(&arrival, 1e6, 4, 200e6, 1e9);
	rng_seed(&rng, 6);
	for (int64_t now = arrival_gap_ns(&arrival, &rng); now < SLOTS * (int64_t)100000000;
	     now += arrival_gap_ns(&arrival, &rng))
		slots[now / 100000000]++;
	for (size_t i = 0; i < SLOTS; i++) {
		sum += slots[i];
		squares += (double)slots[i] * slots[i];
	}
	assert_near(sum / SLOTS, 100, 0.02, "arrivals in a slot");
	double dispersion = (squares / SLOTS - sum / SLOTS * (sum / SLOTS)) / (sum / SLOTS);
	/* The rate is 400 or 25 a slot, a fifth and four fifths of the time: variance up to 22500 about the mean of 100. */
	assert_true(dispersion > 100 && dispersion < 226);
	/* With all that comes in bursts the calm has none. */
	arrival_bursty(&arrival, 1e6, 5, 200e6, 1e9);
	sum = 0;
	for (size_t i = 0; i < DRAWS; i++)
		sum += (double)arrival_gap_ns(&arrival, &rng);
	assert_near(sum / DRAWS, 1e6, 0.1, "mean gap, calm without any");
	free(slots);
}

static void test_factors(void **state)
{
	(void)state;
	const struct pace_rule slow = { .kind = PACE_slow, .factor = 5, .from_ns = 100, .length_ns = 50 };
	const struct pace_rule compaction = {
		.kind = PACE_compaction, .factor = 2, .from_ns = 120, .length_ns = 10, .every_ns = 40
	};
	struct pace pace;
	pace_init(&pace);
	assert_int_equal(pace_stretch_ns(&pace, 1000, 0), 1000);
	assert_true(pace_add(&pace, &slow));
	assert_true(pace_add(&pace, &compaction));
	static const struct {
		int64_t now_ns, expected;
	} rows[] = {
		{ 0, 1000 },    { 99, 1000 },  { 100, 5000 }, { 119, 5000 },  { 120, 10000 },
		{ 129, 10000 }, { 130, 5000 }, { 149, 5000 }, { 150, 1000 },  { 159, 1000 },
		{ 160, 2000 },  { 169, 2000 }, { 170, 1000 }, { 4120, 2000 }, { 4130, 1000 },
	};
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		int64_t found = pace_stretch_ns(&pace, 1000, rows[i].now_ns);
		if (found != rows[i].expected)
			fail_msg("at %lld: %lld", (long long)rows[i].now_ns, (long long)found);
	}
	/* However fast, some time it takes. */
	const struct pace_rule fast = { .kind = PACE_slow, .factor = 0.001 };
	pace_init(&pace);
	assert_true(pace_add(&pace, &fast));
	assert_int_equal(pace_stretch_ns(&pace, 1, 0), 1);
}

static void test_leak_and_cold(void **state)
{
	(void)state;
	const struct pace_rule leak = { .kind = PACE_leak, .growth_per_ns = 1e-9, .growth_factor = 4 };
	const struct pace_rule cold = { .kind = PACE_cold, .factor = 9, .fade_count = 100 };
	struct pace pace;
	pace_init(&pace);
	assert_true(pace_add(&pace, &leak));
	assert_int_equal(pace_stretch_ns(&pace, 1000000, 0), 1000000);
	assert_int_equal(pace_stretch_ns(&pace, 1000000, 2000000000), 3000000);
	assert_int_equal(pace_stretch_ns(&pace, 1000000, 90000000000), 4000000);
	pace_restart(&pace, 90000000000);
	assert_int_equal(pace_stretch_ns(&pace, 1000000, 90000000000), 1000000);
	pace_init(&pace);
	assert_true(pace_add(&pace, &cold));
	/* It was there from the start: warm. */
	assert_int_equal(pace_stretch_ns(&pace, 1000000, 5), 1000000);
	pace_restart(&pace, 5);
	assert_int_equal(pace_stretch_ns(&pace, 1000000, 5), 9000000);
	pace.served_count = 100;
	assert_near((double)pace_stretch_ns(&pace, 1000000, 5), 1e6 * (1 + 8 * exp(-1)), 1e-5, "after 100");
	pace.served_count = 1000000;
	assert_int_equal(pace_stretch_ns(&pace, 1000000, 5), 1000000);
}

/* The walk of a clock nanosecond by nanosecond against the arithmetic, two overlapping freezes at once. */
static void test_freezes(void **state)
{
	(void)state;
	const struct pace_rule gc = { .kind = PACE_freeze, .from_ns = 10, .length_ns = 7, .every_ns = 40 };
	const struct pace_rule disk = { .kind = PACE_freeze, .from_ns = 3, .length_ns = 9, .every_ns = 33 };
	const struct pace_rule slow = { .kind = PACE_slow, .factor = 2 };
	struct pace pace;
	pace_init(&pace);
	assert_true(pace_add(&pace, &slow));
	assert_true(pace_add(&pace, &gc));
	assert_true(pace_add(&pace, &disk));
	bool is_frozen[2000];
	for (int64_t now = 0; now < 2000; now++)
		is_frozen[now] = (now >= 10 && (now - 10) % 40 < 7) || (now >= 3 && (now - 3) % 33 < 9);
	for (int64_t now = 0; now < 500; now++) {
		int64_t thaw = now, active = 0;
		while (is_frozen[thaw])
			thaw++;
		assert_int_equal(pace_thaw_ns(&pace, now), thaw);
		for (int64_t until = now; until < now + 200; until++) {
			assert_int_equal(pace_active_ns(&pace, now, until), active);
			active += !is_frozen[until];
		}
		for (int64_t duration = 1, end = now; duration < 150; duration++) {
			while (is_frozen[end])
				end++;
			end++; /* this nanosecond was worked */
			assert_int_equal(pace_end_ns(&pace, now, duration), end);
		}
	}
	assert_int_equal(pace_stretch_ns(&pace, 50, 0), 100);
}

static void test_refused_rules(void **state)
{
	(void)state;
	struct pace pace;
	struct pace_rule freeze = { .kind = PACE_freeze, .length_ns = 50, .every_ns = 100 };
	pace_init(&pace);
	assert_true(pace_add(&pace, &freeze));
	/* Two that may together leave no time at all. */
	assert_false(pace_add(&pace, &freeze));
	freeze.length_ns = 49;
	assert_true(pace_add(&pace, &freeze));
	const struct pace_rule slow = { .kind = PACE_slow, .factor = 1 };
	for (size_t i = pace.rule_count; i < PACE_RULES_MAX; i++)
		assert_true(pace_add(&pace, &slow));
	assert_false(pace_add(&pace, &slow));
}

static void test_recent(void **state)
{
	(void)state;
	struct recent *recent = must_alloc(sizeof(*recent));
	recent_init(recent);
	assert_int_equal(recent_median_ns(recent, 0), 0);
	recent_feed(recent, 5, 100);
	assert_int_equal(recent_median_ns(recent, 0), 100);
	assert_int_equal(recent_median_ns(recent, 1000000), 100);
	recent_feed(recent, 9, 900);
	assert_int_equal(recent_median_ns(recent, 6), 100);
	assert_int_equal(recent_median_ns(recent, 8), 900);
	for (int64_t i = 1; i <= 100; i++)
		recent_feed(recent, 9, i);
	/* The last nine are 92..100. */
	assert_int_equal(recent_median_ns(recent, 9), 96);
	recent_feed(recent, 4000000000U, 7);
	assert_int_equal(recent_median_ns(recent, 500), 7);
	free(recent);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_work),          cmocka_unit_test(test_bimodal),
		cmocka_unit_test(test_zipf),          cmocka_unit_test(test_poisson),
		cmocka_unit_test(test_bursty),        cmocka_unit_test(test_factors),
		cmocka_unit_test(test_leak_and_cold), cmocka_unit_test(test_freezes),
		cmocka_unit_test(test_refused_rules), cmocka_unit_test(test_recent),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
