/* Scores the candidates of one set by a profile. A pure function of its arguments in integers: two machines and two compilers agree, and the
 * decision log replays. */
#ifndef HENG_CORE_SCORE_H
#define HENG_CORE_SCORE_H

#include "core/member.h"
#include "core/profile.h"
#include "core/report.h"

#define SCORE_ID_SIZE 65
#define SCORE_SET_MAX 1024 /* candidates of one set */

struct score_input {
	char id[SCORE_ID_SIZE];
	uint32_t weight_milli;
	enum member_state state;
	enum health_word words[HEALTH_SOURCES]; /* for the record; the state is drawn from them */
	struct report report;
	int64_t age_us;        /* of the report; -1: never came */
	int64_t p99_smooth_us; /* -1: unknown, as below */
	int64_t write_failure_ppm;
	int64_t in_flight;
	int64_t rt_mean_us;
	int64_t joined_age_us; /* since it came (back); -1: established */
	bool was_ever_verified;
	bool is_barred; /* the door's word: no new work */
	char bar_reason[64];
	uint32_t rules_on;        /* bit i: rule i was on before */
	int64_t score_before_ppm; /* -1: none */
};

/* The factors are kept one by one so that a person can follow: score = min(sum * rules, cap) * decay * start, step-limited. */
struct score_output {
	int64_t dim_ppm[PROFILE_DIMS_MAX];
	uint32_t dims_assumed; /* bit i: unknown, so the peers' mean stands in (all unknown: 1) */
	int64_t sum_ppm;       /* weighted sum of the dimensions */
	uint32_t rules_on;
	int64_t rule_ppm[PROFILE_RULES_MAX];
	int64_t cap_ppm, decay_ppm, start_ppm;
	bool is_assumed; /* blackout or drift: the peers' mean stands in for it, wholly or partly */
	bool is_step_limited;
	int64_t score_ppm;
	/* weight_milli * score, slow start included: what strategies share by. 0: gets nothing. */
	uint32_t weight_milli;
	/* weight_milli * what state, rules, cap, age of the news and slow start leave of it, without the dimensions and the rules about load and
	 * latency: for strategies that see those themselves, fresher than any report, and would only be told their own echo by the score. */
	uint32_t standing_milli;
	bool may_serve;
};

/* outputs: as many as inputs. count <= SCORE_SET_MAX. */
void score_set(const struct profile *profile, const struct score_input *const *inputs, size_t count,
	       struct score_output *ret_outputs);

#endif
