/* A node in the simulator: parallel workers, one queue with a limit, a clock that its pace bends, and what it measures on itself. Knows nothing of
 * routers; a job is a number of its owner's. */
#ifndef HENG_SIM_SERVER_H
#define HENG_SIM_SERVER_H

#include "core/hist.h"
#include "core/report.h"
#include "sim/recent.h"
#include "sim/service.h"

struct server_job {
	uint32_t id;
	int64_t work_ns, arrived_ns;
	uint32_t load_before_count; /* what it found there; set by server_offer */
};
struct server_slot {
	struct server_job job;
	int64_t began_ns;
};
/* What each request touches comes first: thousands of servers do not fit into a processor's cache. */
struct server {
	bool is_up, is_leaving;
	bool is_reporting,
		is_estimating; /* whether anybody will ask for server_report, server_estimate_ns; true at first */
	uint32_t epoch;        /* grows with each crash: what ends in an older one is void */
	uint32_t worker_count, busy_count;
	uint32_t *idle;            /* the workers without a job: worker_count - busy_count of them */
	struct server_slot *slots; /* of each worker; idle lies behind */
	struct server_job *queue;  /* a ring; capacity a power of two */
	size_t queue_capacity, queue_head, queue_count, queue_limit;
	int64_t busy_ns, busy_until_ns; /* workers' busy time, and up to when it is summed */
	uint64_t request_count, failure_count;
	int64_t synced_ns; /* its data is whole from then on */
	struct pace pace;
	/* Of its own, for reports. */
	uint64_t report_sequence;
	int64_t reported_busy_ns, reported_ns;
	int64_t started_ns, sync_began_ns;
	struct hist_window latency;
	struct recent recent;
};
/* pace is set by the caller afterwards. */
void server_init(struct server *server, uint32_t worker_count, size_t queue_limit, int64_t now_ns);
void server_fini(struct server *server);

enum server_took { SERVER_STARTED, SERVER_QUEUED, SERVER_REFUSED };
/* Started: by *ret_worker, and it ends at *ret_end_ns. Refused: the queue is full, or it is down. */
enum server_took server_offer(struct server *server, const struct server_job *job, int64_t now_ns, uint32_t *ret_worker,
			      int64_t *ret_end_ns);
struct server_done {
	struct server_job job;
	int64_t service_ns;   /* from when a worker took it */
	uint32_t queue_count; /* waiting and running, without this one */
	bool is_next_started; /* the worker took the next in the queue, which ends at next_end_ns */
	int64_t next_end_ns;
};
/* The worker's job is done. */
void server_finish(struct server *server, uint32_t worker, int64_t now_ns, struct server_done *ret_done);
/* Down at once. lost is called with each job that it had. */
void server_crash(struct server *server, int64_t now_ns, void (*lost)(void *owner, const struct server_job *job),
		  void *owner);
/* Up again, or joined: cold, and its data whole after sync_ns. */
void server_start(struct server *server, int64_t sync_ns, int64_t now_ns);
bool server_is_synced(const struct server *server, int64_t now_ns);
uint32_t server_load(const struct server *server);       /* waiting and running */
int64_t server_estimate_ns(const struct server *server); /* of a request's latency now; 0: nothing to go by */

/* What it would report now, since the last report. epoch_us: what the simulated clock's 0 is for the reader. */
void server_report(struct server *server, int64_t now_ns, int64_t epoch_us, struct report *ret_report);

#endif
