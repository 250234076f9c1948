/* A set of candidates to score, for the tests of score. Include after cmocka. */
#ifndef HENG_TEST_SCORE_SET_H
#define HENG_TEST_SCORE_SET_H

#include "core/score.h"

#define NODES_MAX 8
#define UNKNOWN   REPORT_UNKNOWN

/* A set of candidates, and what the last scoring made of it. */
struct set {
	struct score_input inputs[NODES_MAX];
	const struct score_input *pointers[NODES_MAX];
	struct score_output outputs[NODES_MAX];
	size_t count;
};

/* Healthy, established, heard a second ago, and nothing else known. */
static inline void init_input(struct score_input *input, size_t index)
{
	memset(input, 0, sizeof(*input));
	snprintf(input->id, sizeof(input->id), "n%zu", index);
	input->weight_milli = 1000;
	input->state = MEMBER_HEALTHY;
#define REPORT(name, help) input->report.name = UNKNOWN;
#include "core/report_list.h"
#undef REPORT
	input->age_us = SEC_US;
	input->p99_smooth_us = UNKNOWN;
	input->write_failure_ppm = UNKNOWN;
	input->in_flight = UNKNOWN;
	input->rt_mean_us = UNKNOWN;
	input->joined_age_us = -1;
	input->score_before_ppm = -1;
}

static inline void init_set(struct set *set, size_t count)
{
	assert_true(count <= NODES_MAX);
	set->count = count;
	for (size_t i = 0; i < count; i++) {
		init_input(&set->inputs[i], i);
		set->pointers[i] = &set->inputs[i];
	}
}

static inline void score(struct set *set, const struct profile *profile)
{
	memset(set->outputs, 0x5a, sizeof(set->outputs));
	score_set(profile, set->pointers, set->count, set->outputs);
}

/* What a node's owner does between two tables. */
static inline void keep(struct set *set)
{
	for (size_t i = 0; i < set->count; i++) {
		set->inputs[i].rules_on = set->outputs[i].rules_on;
		set->inputs[i].score_before_ppm = set->outputs[i].score_ppm;
	}
}

/* A kv worker in good order: cpu 50 %, memory 50 %, disk queue 4, P99 100 ms. */
static inline void fill_kv(struct score_input *input)
{
	input->report.cpu_busy_milli = 4000;
	input->report.cpu_cores_milli = 8000;
	input->report.rss_bytes = 4000;
	input->report.mem_limit_bytes = 8000;
	input->report.disk_queue_milli = 4000;
	input->p99_smooth_us = 100 * MSEC_US;
	input->report.verified = 1;
	input->was_ever_verified = true;
}

static inline void fill_gateway(struct score_input *input)
{
	input->report.cpu_busy_milli = 2000;
	input->report.cpu_cores_milli = 4000;
	input->report.rss_bytes = 5000;
	input->report.mem_limit_bytes = 10000;
	input->in_flight = 10;
	input->rt_mean_us = 200 * MSEC_US;
}

static inline void assert_near(int64_t value, int64_t wanted, int64_t slack)
{
	if (value < wanted - slack || value > wanted + slack)
		fail_msg("%lld is not within %lld of %lld", (long long)value, (long long)slack, (long long)wanted);
}

/* The profile's dimensions as they are, all else neutral. */
static inline struct profile one_dim(enum profile_norm norm, int64_t parameter)
{
	struct profile profile = { .decay = { .life_us = 9 * SEC_US, .step_us = SEC_US, .factor_ppm = 900000 },
				   .start = { .floor_ppm = PPM } };

	profile.dim_count = 1;
	profile.dims[0] = (struct profile_dim){ .name = "d", .norm = norm, .weight_ppm = PPM, .parameter = parameter };
	return profile;
}

#endif
