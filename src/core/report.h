/* What a node measured on itself: raw numbers with their units, no averages of averages, no estimates (seed 004 §1.2). As JSON on the wire
 * (one object; unknown numbers are absent), and in the decision log. */
#ifndef HENG_CORE_REPORT_H
#define HENG_CORE_REPORT_H

#include "base/json.h"
#include "core/hist.h"

#define REPORT_INTERVAL_US (3 * SEC_US)
#define REPORT_UNKNOWN     (-1)
#define REPORT_DIRS_MAX    8
#define REPORT_PATH_SIZE   256
#define REPORT_WORDS_SIZE  256
#define REPORT_BODY_MAX    (64 * KIB)
#define REPORT_VALUE_MAX   ((int64_t)1 << 60) /* of any number; shares end at a million, flags at 1 */

struct report {
#define REPORT(name, help) int64_t name;
#include "core/report_list.h"
#undef REPORT
};
enum report_field {
#define REPORT(name, help) REPORT_##name,
#include "core/report_list.h"
#undef REPORT
	REPORT_FIELDS
};
struct report_row {
	const char *name, *help;
};
extern const struct report_row report_rows[REPORT_FIELDS];

/* One folder the node depends on, with the result of its self-check. */
struct report_dir {
	char path[REPORT_PATH_SIZE];
	char diagnosis[REPORT_WORDS_SIZE]; /* "" when all is well: path, step, errno in words, what to do */
};
/* A report as it travels: who sends it, the numbers, the histogram they come from, the folders. */
struct report_message {
	char node_id[65];
	char incarnation[33];
	uint64_t sequence; /* grows by one with each report of a process; at most INT64_MAX */
	struct report report;
	struct hist latency; /* the last five minutes, microseconds */
	struct report_dir dirs[REPORT_DIRS_MAX];
	size_t dir_count;
};

void report_init(struct report *report); /* all unknown */
int64_t report_get(const struct report *report, enum report_field field);
void report_set(struct report *report, enum report_field field, int64_t value); /* below 0: unknown */
/* The most that a field may say. */
int64_t report_field_max(enum report_field field);
/* Numbers as keys of the object that is open; unknown ones are left out. */
void report_json(struct json *json, const struct report *report);

/* The whole message as one JSON object:
 * {"node_id":"n1","incarnation":"...","sequence":7,"metrics":{"cpu_busy_milli":1500,...},
 *  "latency":{"sum_us":n,"buckets":[[index,count],...]},"dirs":[{"path":"/data","diagnosis":""},...]} */
void report_write(struct buf *buf, const struct report_message *message);
/* Reads what report_write wrote, from a peer that may be hostile: bounded, duplicate keys refused, unknown keys skipped (a newer node may say
 * more), numbers that are negative, too great or no integers refused, the quantiles p10_us..p99_us and mean_us worked out anew from the histogram
 * when it has samples, dirs_failed at least the folders with a diagnosis. "latency" and "dirs" may be absent. Paths and diagnoses are made fit
 * to be shown (no control characters) and cut to their arrays at a whole character. -ERR_PEER says what is wrong; *ret_message is then empty. */
int report_read(struct str body, struct report_message *ret_message, struct err *err);

#endif
