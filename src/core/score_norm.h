/* The parts of a score, one number each: normalisers, the sources of rules, what a rule makes of its source. Private to score. */
#ifndef HENG_CORE_SCORE_NORM_H
#define HENG_CORE_SCORE_NORM_H

#include "core/score.h"

/* What a dimension's parameter is when the profile gives none. */
#define SCORE_DISK_QUEUE_FULL_MILLI 16000
#define SCORE_LATENCY_EXPECTED_US   (100 * MSEC_US)
#define SCORE_RT_THRESHOLD_US       (1000 * MSEC_US)
#define SCORE_WAL_LAG_FULL_US       (1000 * MSEC_US)
#define SCORE_UNVERIFIED_READY_PPM  400000
#define SCORE_STABLE_BAND           2 /* a P90 of up to twice the P10 is as stable as can be asked */

/* All in flight over those of the set that can take work, and what they weigh together: of it each has a fair share. */
struct score_flow {
	__int128 in_flight_sum;
	int64_t weight_sum; /* each at least 1 */
};

/* Not barred, and in a state that leaves it in the table. */
bool score_is_able(const struct score_input *input);
/* a * b of two shares, rounded. */
int64_t score_times(int64_t a_ppm, int64_t b_ppm);
/* part / whole in millionths, rounded, at most INT64_MAX; -1 when either is unknown or the whole is nothing. */
int64_t score_ratio(int64_t part, int64_t whole);
/* 0..PPM, or -1: the node's numbers do not tell. */
int64_t score_norm(const struct profile_dim *dim, const struct score_input *input, const struct score_flow *flow);
/* In the source's unit, or -1. load_ppm: of the dimensions in group "load", -1 when none is known. */
int64_t score_source(enum profile_source source, const struct score_input *input, int64_t load_ppm);
/* Facts that hold however old or young the metrics are: migrating, leaving, folders that failed. */
bool score_is_fact(enum profile_source source);
/* What whoever sends the requests sees itself, and fresher: load, latency, connections. */
bool score_is_echo(enum profile_source source);
/* The factor. was_on: the latch; *ret_is_on the new one, for a ramp whether it takes anything. */
int64_t score_rule(const struct profile_rule *rule, int64_t value, bool was_on, bool *ret_is_on);

#endif
