/* The node's word on itself: a thread that measures every 3 s and posts the report to the scheduler. A scheduler that is away costs nothing, and is
 * said once until it is back: the report that could not be given is dropped, since the next one says more. */
#ifndef HENG_FOLDER_NODE_REPORT_H
#define HENG_FOLDER_NODE_REPORT_H

#include "folder/keyring.h"
#include "plug/self.h"

struct node_report;
struct node_report_options {
	const char *scheduler; /* URL, http://host:port */
	const struct internal_key *internal_key;
	struct self *self; /* outlives it */
	/* Adds what only the node knows, on the reporting thread. */
	void (*fill)(void *owner, struct report *report);
	/* The scheduler's time by its answer, and how long the call took; on the reporting thread. May be NULL. */
	void (*take_time)(void *owner, int64_t server_wall_us, int64_t round_trip_us);
	void *owner;
	int64_t interval_us; /* 0: REPORT_INTERVAL_US */
};

/* The first report goes out at once. */
int node_report_start(const struct node_report_options *options, struct node_report **ret_report, struct err *err);
void node_report_stop(struct node_report **report);

#endif
