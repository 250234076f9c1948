#include "sim/result.h"

void result_init(struct result *result, const char *policy, const struct scenario *scenario)
{
	*result = (struct result){ .policy = policy, .node_count = (size_t)scenario->nodes };
	result->served = must_zalloc(result->node_count, sizeof(*result->served));
	result->fair = must_zalloc(result->node_count, sizeof(*result->fair));
	result->warmup_ns = scenario->warmup_us * 1000;
	result->stretch_ns = max_i64((scenario_length_ns(scenario) - result->warmup_ns) / RESULT_POINTS, 1);
	for (size_t i = 0; i < RESULT_POINTS; i++)
		result->points_ns[i] = -1;
}

void result_fini(struct result *result)
{
	free(result->served);
	free(result->fair);
	result->served = NULL;
	result->fair = NULL;
}

static void close_stretch(struct result *result)
{
	if (result->stretch.total_count == 0)
		return;
	result->points_ns[result->stretch_index] = fine_quantile_ns(&result->stretch, 990000);
	fine_merge(&result->latency, &result->stretch);
	fine_init(&result->stretch);
}

void result_feed(struct result *result, int64_t latency_ns, bool is_failed, int64_t now_ns)
{
	/* What ends after the last arrival belongs to the last stretch. */
	int64_t end_ns = result->warmup_ns + result->stretch_ns * (int64_t)(result->stretch_index + 1);
	if (now_ns >= end_ns && result->stretch_index + 1 < RESULT_POINTS) {
		close_stretch(result);
		result->stretch_index = min_size((size_t)((now_ns - result->warmup_ns) / result->stretch_ns),
						 RESULT_POINTS - 1);
	}
	result->measured_count++;
	result->measured_failed_count += is_failed;
	fine_feed(&result->stretch, latency_ns);
}

void result_end(struct result *result) { close_stretch(result); }

int64_t result_share_milli(const struct result *result, size_t node)
{
	double served_total = 0, fair_total = 0;
	for (size_t i = 0; i < result->node_count; i++) {
		served_total += (double)result->served[i];
		fair_total += result->fair[i];
	}
	if (result->fair[node] <= 0 || served_total <= 0)
		return -1;
	return (int64_t)(1000.0 * ((double)result->served[node] / served_total) / (result->fair[node] / fair_total) +
			 0.5);
}

void result_shares(const struct result *result, int64_t *ret_least_milli, int64_t *ret_most_milli)
{
	*ret_least_milli = *ret_most_milli = -1;
	for (size_t i = 0; i < result->node_count; i++) {
		int64_t share = result_share_milli(result, i);
		if (share < 0)
			continue;
		*ret_least_milli = *ret_least_milli < 0 ? share : min_i64(*ret_least_milli, share);
		*ret_most_milli = max_i64(*ret_most_milli, share);
	}
}

int64_t result_error_ppm(const struct result *result)
{
	if (result->measured_count == 0)
		return 0;
	return (int64_t)(1e6 * (double)result->measured_failed_count / (double)result->measured_count + 0.5);
}

int64_t result_flips_milli_per_min(const struct result *result, const struct scenario *scenario)
{
	double minutes = (double)result->length_ns / 60e9;
	if (minutes <= 0)
		return 0;
	return (int64_t)(1000.0 * (double)result->flips / (double)scenario->routers / minutes + 0.5);
}

/* 0.42, 12.3, 1234 */
static void milliseconds(int64_t value_ns, char *target, size_t target_size)
{
	double value = (double)value_ns / 1e6;
	int digits = value >= 1000 ? 0 : value >= 100 ? 1 : value >= 10 ? 2 : 3;
	if (value_ns < 0)
		snprintf(target, target_size, "-");
	else
		snprintf(target, target_size, "%.*f", digits, value);
}

void result_write_table(struct buf *buf, const struct scenario *scenario, const struct result *const *results,
			size_t count)
{
	static const uint32_t quantiles_ppm[] = { 500000, 900000, 990000, 999000 };
	buf_printf(buf, "%s: %s\n", scenario->name, scenario->title);
	buf_printf(buf, "%-20s %8s %8s %8s %8s %8s %8s %9s %14s %9s %10s\n", "POLICY (ms)", "P50", "P90", "P99",
		   "P99.9", "MEAN", "MAX", "ERRORS %", "SHARE (1=FAIR)", "FLIPS/MIN", "REQUESTS");
	for (size_t i = 0; i < count; i++) {
		const struct result *result = results[i];
		char text[16], shares[48] = "-";
		int64_t least, most;
		buf_printf(buf, "%-20s", result->policy);
		for (size_t q = 0; q < COUNT_OF(quantiles_ppm); q++) {
			milliseconds(fine_quantile_ns(&result->latency, quantiles_ppm[q]), text, sizeof(text));
			buf_printf(buf, " %8s", text);
		}
		milliseconds(fine_mean_ns(&result->latency), text, sizeof(text));
		buf_printf(buf, " %8s", text);
		milliseconds(result->measured_count > 0 ? result->latency.max_ns : -1, text, sizeof(text));
		result_shares(result, &least, &most);
		if (least >= 0)
			snprintf(shares, sizeof(shares), "%.2f..%.2f", (double)least / 1e3, (double)most / 1e3);
		buf_printf(buf, " %8s %9.4f %14s %9.1f %10llu\n", text, (double)result_error_ppm(result) / 1e4, shares,
			   (double)result_flips_milli_per_min(result, scenario) / 1e3,
			   (unsigned long long)result->measured_count);
	}
}

static void write_json_one(struct json *json, const struct scenario *scenario, const struct result *result)
{
	json_open(json, NULL);
	json_c(json, "policy", result->policy);
	json_u64(json, "requests", result->measured_count);
	json_u64(json, "failed", result->measured_failed_count);
	json_i64(json, "error_ppm", result_error_ppm(result));
	json_i64(json, "p50_ns", fine_quantile_ns(&result->latency, 500000));
	json_i64(json, "p90_ns", fine_quantile_ns(&result->latency, 900000));
	json_i64(json, "p99_ns", fine_quantile_ns(&result->latency, 990000));
	json_i64(json, "p999_ns", fine_quantile_ns(&result->latency, 999000));
	json_i64(json, "mean_ns", fine_mean_ns(&result->latency));
	json_i64(json, "max_ns", result->latency.max_ns);
	json_u64(json, "retried", result->retried_count);
	json_u64(json, "timed_out", result->timed_out_count);
	json_u64(json, "refused", result->refused_count);
	json_u64(json, "unverified", result->unsynced_count);
	json_u64(json, "flips", result->flips);
	json_milli(json, "flips_per_min", result_flips_milli_per_min(result, scenario));
	json_u64(json, "arrived", result->arrived_count);
	json_u64(json, "succeeded_all", result->succeeded_count);
	json_u64(json, "failed_all", result->failed_count);
	json_u64(json, "events", result->event_count);
	json_i64(json, "length_us", result->length_ns / 1000);
	json_open_list(json, "nodes");
	for (size_t i = 0; i < result->node_count; i++) {
		json_open(json, NULL);
		json_u64(json, "chosen", result->served[i]);
		if (result->fair[i] > 0)
			json_milli(json, "share", result_share_milli(result, i));
		json_close(json);
	}
	json_close_list(json);
	json_open_list(json, "p99_over_time");
	for (size_t i = 0; i < RESULT_POINTS; i++) {
		json_open(json, NULL);
		json_i64(json, "until_us", (result->warmup_ns + result->stretch_ns * (int64_t)(i + 1)) / 1000);
		if (result->points_ns[i] >= 0)
			json_i64(json, "p99_ns", result->points_ns[i]);
		json_close(json);
	}
	json_close_list(json);
	json_close(json);
}

void result_write_json(struct buf *buf, const struct scenario *scenario, const struct result *const *results,
		       size_t count)
{
	struct json json;
	json_init(&json, buf);
	json_open(&json, NULL);
	json_c(&json, "scenario", scenario->name);
	json_c(&json, "title", scenario->title);
	json_i64(&json, "seed", scenario->seed);
	json_i64(&json, "requests", scenario->requests);
	json_open_list(&json, "policies");
	for (size_t i = 0; i < count; i++)
		write_json_one(&json, scenario, results[i]);
	json_close_list(&json);
	json_close(&json);
	buf_append_c(buf, "\n");
}
