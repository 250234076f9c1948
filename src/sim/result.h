/* What a policy made of a scenario, and how it is shown. */
#ifndef HENG_SIM_RESULT_H
#define HENG_SIM_RESULT_H

#include "base/json.h"
#include "sim/fine.h"
#include "sim/scenario.h"

#define RESULT_POINTS 60 /* in time, each a stretch of the scenario after the warm-up */

struct result {
	const char *policy;
	/* Of all requests. */
	uint64_t arrived_count, succeeded_count, failed_count, event_count;
	int64_t length_ns; /* until the last request ended */
	uint64_t flips;    /* of all routers */
	/* Of the measured: those that arrived after the warm-up. */
	uint64_t measured_count, measured_failed_count, retried_count, timed_out_count, refused_count;
	uint64_t unsynced_count; /* sent to a node that was not verified */
	struct fine
		latency; /* of all measured; a failed one counts with its time or the timeout, whichever is more, lest failing look fast */
	size_t node_count;
	uint64_t *served; /* of each node: how often it was chosen */
	double *fair;     /* how often it would have been, had each set shared evenly among its members */
	int64_t points_ns[RESULT_POINTS]; /* P99 of what ended in each stretch; -1: nothing did */
	/* The stretch that is being fed. */
	struct fine stretch;
	size_t stretch_index;
	int64_t stretch_ns, warmup_ns;
};
void result_init(struct result *result, const char *policy, const struct scenario *scenario);
void result_fini(struct result *result);
/* A measured request ended. now_ns never goes back. */
void result_feed(struct result *result, int64_t latency_ns, bool is_failed, int64_t now_ns);
void result_end(struct result *result); /* the last stretch too */

/* A node's share of the requests over its fair share, thousandths; -1: it has no fair share. */
int64_t result_share_milli(const struct result *result, size_t node);
void result_shares(const struct result *result, int64_t *ret_least_milli, int64_t *ret_most_milli);
int64_t result_error_ppm(const struct result *result);
/* Of one router on average. */
int64_t result_flips_milli_per_min(const struct result *result, const struct scenario *scenario);

/* Results of one scenario: a table for people, one JSON object, an SVG picture. Pure functions of their arguments. */
void result_write_table(struct buf *buf, const struct scenario *scenario, const struct result *const *results,
			size_t count);
void result_write_json(struct buf *buf, const struct scenario *scenario, const struct result *const *results,
		       size_t count);
void result_write_svg(struct buf *buf, const struct scenario *scenario, const struct result *const *results,
		      size_t count);

#endif
