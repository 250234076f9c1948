#include "core/score_norm.h"

bool score_is_able(const struct score_input *input)
{
	return !input->is_barred &&
	       (input->state == MEMBER_HEALTHY || input->state == MEMBER_SUSPECT || input->state == MEMBER_LEAVING);
}

int64_t score_times(int64_t a_ppm, int64_t b_ppm) { return (a_ppm * b_ppm + PPM / 2) / PPM; }

int64_t score_ratio(int64_t part, int64_t whole)
{
	__int128 ratio;

	if (part < 0 || whole <= 0)
		return -1;
	ratio = ((__int128)part * PPM + whole / 2) / whole;
	return ratio > INT64_MAX ? INT64_MAX : (int64_t)ratio;
}

/* 1 - x, x clamped; -1 stays unknown. */
static int64_t rest_of(int64_t x_ppm) { return x_ppm < 0 ? -1 : PPM - min_i64(x_ppm, PPM); }

static int64_t parameter_of(const struct profile_dim *dim, int64_t fallback)
{
	return dim->parameter > 0 ? dim->parameter : fallback;
}

static int64_t norm_latency(const struct profile_dim *dim, const struct score_input *input)
{
	int64_t expected_us = parameter_of(dim, SCORE_LATENCY_EXPECTED_US);
	__int128 whole;

	if (input->p99_smooth_us < 0)
		return -1;
	whole = (__int128)expected_us + input->p99_smooth_us;
	return (int64_t)(((__int128)expected_us * PPM + whole / 2) / whole);
}

static int64_t norm_stability(const struct score_input *input)
{
	/* What takes no measurable time takes a microsecond: a band over nothing would be endless. */
	int64_t low_us = max_i64(input->report.p10_us, 1), high_us = input->report.p90_us;

	if (input->report.p10_us < 0 || high_us < 0)
		return -1;
	if (high_us / SCORE_STABLE_BAND < low_us)
		return PPM;
	return min_i64(PPM, score_ratio(low_us, high_us) * SCORE_STABLE_BAND);
}

static int64_t norm_conn_share(const struct score_input *input, const struct score_flow *flow)
{
	__int128 weight = max_i64(input->weight_milli, 1), fair;

	if (input->in_flight < 0)
		return -1;
	/* in-flight / (2 * sum * weight / weights), multiplied out. A share of less than one request cannot be kept to, so one is fair always:
	 * else the only busy node of an idle set would score nothing. */
	fair = flow->in_flight_sum * weight;
	if (fair < flow->weight_sum)
		fair = flow->weight_sum;
	if ((__int128)input->in_flight * flow->weight_sum >= 2 * fair)
		return 0;
	return PPM - (int64_t)((__int128)input->in_flight * flow->weight_sum * PPM / (2 * fair));
}

static int64_t norm_data_ready(const struct score_input *input)
{
	const struct report *report = &input->report;

	if (input->state == MEMBER_LEAVING || report->leaving > 0)
		return member_health_ppm(MEMBER_LEAVING);
	if (report->verified > 0)
		return PPM;
	if (report->verified < 0 && report->sync_progress_ppm < 0)
		return -1;
	return SCORE_UNVERIFIED_READY_PPM +
	       score_times(PPM - SCORE_UNVERIFIED_READY_PPM, min_i64(max_i64(report->sync_progress_ppm, 0), PPM));
}

int64_t score_norm(const struct profile_dim *dim, const struct score_input *input, const struct score_flow *flow)
{
	const struct report *report = &input->report;

	switch (dim->norm) {
	case NORM_health:
		return member_health_ppm(input->state);
	case NORM_cpu_per_core:
		return rest_of(score_ratio(report->cpu_busy_milli, report->cpu_cores_milli));
	case NORM_memory:
		return rest_of(score_ratio(report->rss_bytes, report->mem_limit_bytes));
	case NORM_disk_queue:
		return rest_of(score_ratio(report->disk_queue_milli, parameter_of(dim, SCORE_DISK_QUEUE_FULL_MILLI)));
	case NORM_latency:
		return norm_latency(dim, input);
	case NORM_stability:
		return norm_stability(input);
	case NORM_conn_share:
		return norm_conn_share(input, flow);
	case NORM_rt_ratio:
		return rest_of(score_ratio(input->rt_mean_us, parameter_of(dim, SCORE_RT_THRESHOLD_US)));
	case NORM_wal_lag:
		return rest_of(score_ratio(report->wal_lag_us, parameter_of(dim, SCORE_WAL_LAG_FULL_US)));
	case NORM_data_ready:
		return norm_data_ready(input);
	case NORM_COUNT:
		break;
	}
	MUST(false);
	return -1;
}

int64_t score_source(enum profile_source source, const struct score_input *input, int64_t load_ppm)
{
	const struct report *report = &input->report;

	switch (source) {
	case RULE_load:
		return max_i64(load_ppm, score_ratio(report->cpu_busy_milli, report->cpu_cores_milli));
	case RULE_cpu:
		return score_ratio(report->cpu_busy_milli, report->cpu_cores_milli);
	case RULE_memory_pressure:
		return report->mem_pressure_ppm;
	case RULE_disk_io:
		return report->disk_io_us;
	case RULE_disk_free:
		return score_ratio(report->disk_free_bytes, report->disk_total_bytes);
	case RULE_tcp_conns:
		return report->tcp_conns;
	case RULE_write_failures:
		return input->write_failure_ppm;
	case RULE_rt:
		return input->rt_mean_us;
	case RULE_migrating:
		return report->migrating;
	case RULE_leaving:
		/* The operator's word reaches the state first, the node's own the report. */
		return input->state == MEMBER_LEAVING ? 1 : report->leaving;
	case RULE_dirs_failed:
		return report->dirs_failed;
	case RULE_COUNT:
		break;
	}
	MUST(false);
	return -1;
}

bool score_is_fact(enum profile_source source)
{
	return source == RULE_migrating || source == RULE_leaving || source == RULE_dirs_failed;
}

bool score_is_echo(enum profile_source source)
{
	return source == RULE_load || source == RULE_cpu || source == RULE_rt || source == RULE_disk_io ||
	       source == RULE_tcp_conns;
}

int64_t score_rule(const struct profile_rule *rule, int64_t value, bool was_on, bool *ret_is_on)
{
	/* Mirrored, "below the marks" is "above the marks": one set of comparisons serves both. */
	bool is_mirrored = rule->source == RULE_disk_free;
	int64_t first = is_mirrored ? -rule->high : rule->low, last = is_mirrored ? -rule->low : rule->high;
	int64_t x = is_mirrored ? -value : value;
	__int128 way, done;

	if (value < 0) {
		*ret_is_on = was_on && rule->kind == PROFILE_STEP;
		return PPM;
	}
	if (rule->kind == PROFILE_STEP) {
		*ret_is_on = x > last || (was_on && first < last && x >= first);
		return *ret_is_on ? rule->factor_ppm : PPM;
	}
	*ret_is_on = x > first;
	if (x <= first)
		return PPM;
	if (x >= last)
		return rule->factor_ppm;
	way = (__int128)last - first;
	done = (__int128)x - first;
	return PPM - (int64_t)(((PPM - rule->factor_ppm) * done + way / 2) / way);
}
