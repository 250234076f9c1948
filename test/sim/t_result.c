/* What is made of the figures: shares, stretches of time, table, JSON and picture. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>

#include "sim/result.h"

static const char text[] =
	"name: t\ntitle: a <title> & \"more\"\nnodes: 4\nworkers: 1\nrequests: 24000\nload_milli: 1000\n"
	"service_mean: 10ms\nwarmup: 10s\nrouters: 2\n"; /* 400 a second for 60 s, 10 of them warm-up */

struct fixture {
	struct arena arena;
	struct scenario scenario;
	struct result *results[2];
};

static int setup(void **state)
{
	struct fixture *fixture = must_zalloc(1, sizeof(*fixture));
	struct err err = ERR_INIT;
	fixture->arena = ARENA_INIT(MIB);
	if (scenario_parse("t", str_from(text), &fixture->arena, &fixture->scenario, &err) < 0)
		fail_msg("%s", err.text);
	for (size_t i = 0; i < 2; i++) {
		fixture->results[i] = must_zalloc(1, sizeof(struct result));
		result_init(fixture->results[i], i == 0 ? "first" : "heng_<x>", &fixture->scenario);
	}
	*state = fixture;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *fixture = *state;
	for (size_t i = 0; i < 2; i++) {
		result_fini(fixture->results[i]);
		free(fixture->results[i]);
	}
	arena_fini(&fixture->arena);
	free(fixture);
	return 0;
}

/* A request each 10 ms from the warm-up to beyond the end; slow ones in the second half of the time. */
static void feed(struct result *result)
{
	for (int64_t now = 10000000000; now < 62000000000; now += 10000000)
		result_feed(result, now < 35000000000 ? 20000000 : 80000000, now % 1000000000 == 0, now);
	result_end(result);
}

static void test_stretches(void **state)
{
	struct fixture *fixture = *state;
	struct result *result = fixture->results[0];
	assert_int_equal(result->stretch_ns, 50000000000 / RESULT_POINTS);
	feed(result);
	assert_int_equal(result->measured_count, 5200);
	assert_int_equal(result->latency.total_count, 5200);
	assert_int_equal(result_error_ppm(result), 10000);
	for (size_t i = 0; i < RESULT_POINTS; i++) {
		int64_t expected = i < RESULT_POINTS / 2 ? 20000000 : 80000000;
		assert_true(result->points_ns[i] >= expected * 511 / 512 &&
			    result->points_ns[i] <= expected * 513 / 512);
	}
}

/* Nothing for long: those stretches have no point, and later ones are in their place. */
static void test_gaps(void **state)
{
	struct fixture *fixture = *state;
	struct result *result = fixture->results[0];
	result_feed(result, 1000, false, 10000000000);
	result_feed(result, 2000, false, 59999999999);
	result_feed(result, 3000, false, 900000000000);
	result_end(result);
	assert_int_equal(result->points_ns[0], 1000);
	for (size_t i = 1; i < RESULT_POINTS - 1; i++)
		assert_int_equal(result->points_ns[i], -1);
	assert_true(result->points_ns[RESULT_POINTS - 1] > 2000);
	assert_int_equal(result->latency.total_count, 3);
	assert_int_equal(result->latency.max_ns, 3000);
}

static void test_shares(void **state)
{
	struct fixture *fixture = *state;
	struct result *result = fixture->results[0];
	int64_t least, most;
	result_shares(result, &least, &most);
	assert_int_equal(least, -1);
	assert_int_equal(most, -1);
	static const uint64_t served[] = { 100, 300, 0, 0 };
	static const double fair[] = { 200, 100, 100, 0 };
	memcpy(result->served, served, sizeof(served));
	memcpy(result->fair, fair, sizeof(fair));
	assert_int_equal(result_share_milli(result, 0), 500);
	assert_int_equal(result_share_milli(result, 1), 3000);
	assert_int_equal(result_share_milli(result, 2), 0);
	assert_int_equal(result_share_milli(result, 3), -1);
	result_shares(result, &least, &most);
	assert_int_equal(least, 0);
	assert_int_equal(most, 3000);
	result->flips = 9;
	result->length_ns = 90000000000;
	/* Of two routers in a minute and a half. */
	assert_int_equal(result_flips_milli_per_min(result, &fixture->scenario), 3000);
	result->length_ns = 0;
	assert_int_equal(result_flips_milli_per_min(result, &fixture->scenario), 0);
}

static void test_json(void **state)
{
	struct fixture *fixture = *state;
	struct buf buf = BUF_INIT(MIB);
	json_error_t fault;
	feed(fixture->results[0]);
	result_end(fixture->results[1]);
	result_write_json(&buf, &fixture->scenario, (const struct result *const *)fixture->results, 2);
	json_t *root = json_loadb(buf.data, buf.size, JSON_REJECT_DUPLICATES, &fault);
	if (root == NULL)
		fail_msg("%s", fault.text);
	assert_int_equal(json_integer_value(json_object_get(root, "requests")), 24000);
	const json_t *policies = json_object_get(root, "policies"), *one = json_array_get(policies, 0);
	assert_int_equal(json_array_size(policies), 2);
	assert_string_equal(json_string_value(json_object_get(one, "policy")), "first");
	assert_int_equal(json_integer_value(json_object_get(one, "requests")), 5200);
	assert_int_equal(json_integer_value(json_object_get(one, "failed")), 52);
	assert_int_equal(json_integer_value(json_object_get(one, "max_ns")), 80000000);
	assert_int_equal(json_integer_value(json_object_get(one, "p999_ns")),
			 fine_quantile_ns(&fixture->results[0]->latency, 999000));
	assert_int_equal(json_array_size(json_object_get(one, "nodes")), 4);
	assert_int_equal(json_array_size(json_object_get(one, "p99_over_time")), RESULT_POINTS);
	/* A policy that served nothing has no quantiles and is no fault. */
	one = json_array_get(policies, 1);
	assert_int_equal(json_integer_value(json_object_get(one, "p99_ns")), -1);
	json_decref(root);
	buf_fini(&buf);
}

static void test_table(void **state)
{
	struct fixture *fixture = *state;
	struct buf buf = BUF_INIT(MIB);
	feed(fixture->results[0]);
	result_end(fixture->results[1]);
	result_write_table(&buf, &fixture->scenario, (const struct result *const *)fixture->results, 2);
	assert_non_null(strstr(buf_cstr(&buf), "a <title>"));
	/* Name, title; names of columns; one line for each. */
	size_t lines = 0;
	for (const char *c = buf_cstr(&buf); *c != '\0'; c++)
		lines += *c == '\n';
	assert_int_equal(lines, 4);
	assert_non_null(strstr(buf_cstr(&buf), "\nfirst"));
	assert_non_null(strstr(buf_cstr(&buf), " 80.00 "));
	assert_non_null(strstr(buf_cstr(&buf), " 1.0000 "));
	/* Who was not measured has no latency, not one of 0. */
	assert_non_null(strstr(buf_cstr(&buf), "\nheng_<x>            "
					       "        -        -        -        -        -        - "));
	buf_fini(&buf);
}

/* Counts what begins with the words. */
static size_t occurrences(const char *all, const char *words)
{
	size_t count = 0;
	for (const char *place = all; (place = strstr(place, words)) != NULL; place++)
		count++;
	return count;
}

/* Each tag is closed, nothing of the scenario's text is markup, and each policy has its bars, its line and its names. */
static void check_svg(const char *svg, size_t policy_count, size_t with_figures)
{
	assert_int_equal(occurrences(svg, "<svg "), 1);
	assert_int_equal(occurrences(svg, "</svg>"), 1);
	assert_int_equal(occurrences(svg, "<text "), occurrences(svg, "</text>"));
	assert_null(strstr(svg, "<title>"));
	assert_non_null(strstr(svg, "a &#60;title&#62; &#38; &#34;more&#34;"));
	assert_null(strstr(svg, "nan"));
	assert_null(strstr(svg, "inf"));
	/* White ground, two of the legend, two bars a policy. */
	assert_int_equal(occurrences(svg, "<rect "), 3 + 2 * with_figures);
	assert_int_equal(occurrences(svg, "stroke-linejoin"), policy_count);
	assert_non_null(strstr(svg, "P99 over time"));
	assert_non_null(strstr(svg, "simulated time (s)"));
}

static void test_svg(void **state)
{
	struct fixture *fixture = *state;
	struct buf buf = BUF_INIT(MIB);
	const struct result *const *results = (const struct result *const *)fixture->results;
	feed(fixture->results[0]);
	result_end(fixture->results[1]);
	result_write_svg(&buf, &fixture->scenario, results, 2);
	check_svg(buf_cstr(&buf), 2, 1);
	assert_int_equal(occurrences(buf_cstr(&buf), ">first</text>"), 2);
	assert_int_equal(occurrences(buf_cstr(&buf), ">heng_&#60;x&#62;</text>"), 2);
	buf_clear(&buf);
	/* More policies than colours, and a title that is no text. */
	const struct result *many[40];
	for (size_t i = 0; i < COUNT_OF(many); i++)
		many[i] = fixture->results[0];
	result_write_svg(&buf, &fixture->scenario, many, COUNT_OF(many));
	check_svg(buf_cstr(&buf), COUNT_OF(many), COUNT_OF(many));
	buf_clear(&buf);
	struct scenario odd = fixture->scenario;
	odd.title = "\x01\xff\xc3\xa9";
	result_write_svg(&buf, &odd, results, 1);
	assert_non_null(strstr(buf_cstr(&buf), ">??\xc3\xa9</text>"));
	buf_clear(&buf);
	/* Nobody ran. */
	result_write_svg(&buf, &fixture->scenario, results, 0);
	check_svg(buf_cstr(&buf), 0, 0);
	buf_fini(&buf);
}

/* A bar's top is where the axis says: equal P99 and P99.9 have one height, and twice the latency is the same step up everywhere. */
static void test_svg_heights(void **state)
{
	struct fixture *fixture = *state;
	struct buf buf = BUF_INIT(MIB);
	double tops[4];
	size_t found = 0;
	for (int i = 0; i < 1000; i++) {
		result_feed(fixture->results[0], 10000000, false, 11000000000);
		result_feed(fixture->results[1], 1000000000, false, 11000000000);
	}
	result_end(fixture->results[0]);
	result_end(fixture->results[1]);
	result_write_svg(&buf, &fixture->scenario, (const struct result *const *)fixture->results, 2);
	for (const char *place = buf_cstr(&buf); (place = strstr(place, "<rect x=\"")) != NULL; place++) {
		double x, y, width, height;
		if (sscanf(place, "<rect x=\"%lf\" y=\"%lf\" width=\"%lf\" height=\"%lf\"", &x, &y, &width, &height) ==
			    4 &&
		    width > 13) {
			assert_true(found < 4);
			assert_true(y + height > 335.8 && y + height < 336.2); /* all stand on the axis */
			tops[found++] = y;
		}
	}
	assert_int_equal(found, 4);
	assert_true(tops[0] - tops[1] < 0.5 && tops[1] - tops[0] < 0.5);
	/* The axis is from 5 ms to 2 s: 10 ms stand at log(2)/log(400), 1 s at log(200)/log(400) of its 250 points. */
	assert_true(tops[0] > 336 - 28.92 - 0.5 && tops[0] < 336 - 28.92 + 0.5);
	assert_true(tops[2] > 336 - 221.08 - 0.5 && tops[2] < 336 - 221.08 + 0.5);
	buf_fini(&buf);
}

/* Whatever the latencies: what is written at the left of the axis leaves room for the axis's name, which ends 52 points from it. */
static void test_svg_labels(void **state)
{
	static const int64_t ranges_ns[][2] = {
		{ 0, 0 },
		{ 1000, 9000 },
		{ 20000, 400000 },
		{ 90000, 110000 },
		{ 300000, 2000000000 },
		{ 1, 3600000000000 },
		{ 900000000000, 3600000000000 },
	};
	static const char tick[] = "text-anchor=\"end\" fill=\"#444444\">";
	struct fixture *fixture = *state;
	struct buf buf = BUF_INIT(MIB);
	for (size_t i = 0; i < COUNT_OF(ranges_ns); i++) {
		struct result result;
		size_t count = 0;
		result_init(&result, "p", &fixture->scenario);
		for (size_t end = 0; end < 2; end++)
			result_feed(&result, ranges_ns[i][end], false, (int64_t)(11 + 30 * end) * 1000000000);
		result_end(&result);
		buf_clear(&buf);
		result_write_svg(&buf, &fixture->scenario, (const struct result *const[]){ &result }, 1);
		for (const char *place = buf_cstr(&buf); (place = strstr(place, tick)) != NULL; count++) {
			size_t size = 0;
			place += strlen(tick);
			for (; *place != '<'; place++) {
				assert_true(*place != 'e' && *place != '+');
				size += ((unsigned char)*place & 0xc0) != 0x80;
			}
			assert_true(size >= 3 && size <= 7);
		}
		assert_true(count >= 4);
		assert_int_equal(occurrences(buf_cstr(&buf), "µs</text>") > 0, ranges_ns[i][0] < 100000);
		result_fini(&result);
	}
	buf_fini(&buf);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_stretches, setup, teardown),
		cmocka_unit_test_setup_teardown(test_gaps, setup, teardown),
		cmocka_unit_test_setup_teardown(test_shares, setup, teardown),
		cmocka_unit_test_setup_teardown(test_json, setup, teardown),
		cmocka_unit_test_setup_teardown(test_table, setup, teardown),
		cmocka_unit_test_setup_teardown(test_svg, setup, teardown),
		cmocka_unit_test_setup_teardown(test_svg_heights, setup, teardown),
		cmocka_unit_test_setup_teardown(test_svg_labels, setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
