#include "sim/server.h"

#define LATENCY_WINDOW_US (300 * SEC_US)
#define FIRST_QUEUE       16

void server_init(struct server *server, uint32_t worker_count, size_t queue_limit, int64_t now_ns)
{
	MUST(worker_count > 0);
	*server = (struct server){ .is_up = true, .worker_count = worker_count, .queue_limit = queue_limit };
	server->is_reporting = server->is_estimating = true;
	server->slots = must_zalloc(worker_count, sizeof(*server->slots) + sizeof(*server->idle));
	server->idle = (void *)(server->slots + worker_count);
	for (uint32_t i = 0; i < worker_count; i++)
		server->idle[i] = worker_count - 1 - i;
	server->busy_until_ns = server->reported_ns = server->started_ns = now_ns;
	server->synced_ns = server->sync_began_ns = now_ns;
	hist_window_init(&server->latency, LATENCY_WINDOW_US, now_ns / 1000);
	pace_init(&server->pace);
	recent_init(&server->recent);
}

void server_fini(struct server *server)
{
	free(server->slots);
	free(server->queue);
	*server = (struct server){ 0 };
}

/* Sums busy time up to now: to be called before busy_count changes. A frozen worker works at nothing. */
static void count_busy(struct server *server, int64_t now_ns)
{
	if (server->busy_count > 0)
		server->busy_ns += (int64_t)server->busy_count *
				   pace_active_ns(&server->pace, server->busy_until_ns, now_ns);
	server->busy_until_ns = now_ns;
}

static int64_t begin(struct server *server, uint32_t worker, const struct server_job *job, int64_t now_ns)
{
	server->slots[worker] = (struct server_slot){ .job = *job, .began_ns = now_ns };
	return pace_end_ns(&server->pace, now_ns, pace_stretch_ns(&server->pace, job->work_ns, now_ns));
}

static void queue_push(struct server *server, const struct server_job *job)
{
	if (server->queue_count == server->queue_capacity) {
		size_t capacity = server->queue_capacity == 0 ? FIRST_QUEUE : 2 * server->queue_capacity;
		struct server_job *queue = must_alloc(capacity * sizeof(*queue));
		for (size_t i = 0; i < server->queue_count; i++)
			queue[i] = server->queue[(server->queue_head + i) & (server->queue_capacity - 1)];
		free(server->queue);
		server->queue = queue;
		server->queue_capacity = capacity;
		server->queue_head = 0;
	}
	server->queue[(server->queue_head + server->queue_count++) & (server->queue_capacity - 1)] = *job;
}

static struct server_job queue_pop(struct server *server)
{
	struct server_job job = server->queue[server->queue_head];
	server->queue_head = (server->queue_head + 1) & (server->queue_capacity - 1);
	server->queue_count--;
	return job;
}

enum server_took server_offer(struct server *server, const struct server_job *job, int64_t now_ns, uint32_t *ret_worker,
			      int64_t *ret_end_ns)
{
	if (!server->is_up)
		return SERVER_REFUSED;
	struct server_job taken = *job;
	taken.load_before_count = server_load(server);
	if (server->busy_count == server->worker_count) {
		if (server->queue_count >= server->queue_limit) {
			server->request_count++;
			server->failure_count++;
			return SERVER_REFUSED;
		}
		queue_push(server, &taken);
		return SERVER_QUEUED;
	}
	count_busy(server, now_ns);
	*ret_worker = server->idle[server->worker_count - ++server->busy_count];
	*ret_end_ns = begin(server, *ret_worker, &taken, now_ns);
	return SERVER_STARTED;
}

void server_finish(struct server *server, uint32_t worker, int64_t now_ns, struct server_done *ret_done)
{
	const struct server_slot *slot = &server->slots[worker];
	*ret_done = (struct server_done){ .job = slot->job, .service_ns = now_ns - slot->began_ns };
	server->request_count++;
	server->pace.served_count++;
	if (server->is_reporting)
		hist_window_feed(&server->latency, (now_ns - slot->job.arrived_ns) / 1000, now_ns / 1000);
	if (server->is_estimating)
		recent_feed(&server->recent, slot->job.load_before_count, now_ns - slot->job.arrived_ns);
	if (server->queue_count > 0) {
		struct server_job next = queue_pop(server);
		ret_done->is_next_started = true;
		ret_done->next_end_ns = begin(server, worker, &next, now_ns);
	} else {
		count_busy(server, now_ns);
		server->idle[server->worker_count - server->busy_count--] = worker;
	}
	ret_done->queue_count = server_load(server);
}

void server_crash(struct server *server, int64_t now_ns, void (*lost)(void *owner, const struct server_job *job),
		  void *owner)
{
	count_busy(server, now_ns);
	bool *is_idle = must_zalloc(server->worker_count, sizeof(*is_idle));
	for (uint32_t i = 0; i < server->worker_count - server->busy_count; i++)
		is_idle[server->idle[i]] = true;
	for (uint32_t worker = 0; worker < server->worker_count; worker++) {
		if (!is_idle[worker])
			lost(owner, &server->slots[worker].job);
		server->idle[worker] = server->worker_count - 1 - worker;
	}
	free(is_idle);
	while (server->queue_count > 0) {
		struct server_job job = queue_pop(server);
		lost(owner, &job);
	}
	server->busy_count = 0;
	server->is_up = false;
	server->epoch++;
}

void server_start(struct server *server, int64_t sync_ns, int64_t now_ns)
{
	MUST(server_load(server) == 0);
	server->is_up = true;
	server->is_leaving = false;
	server->started_ns = server->sync_began_ns = now_ns;
	server->synced_ns = now_ns + sync_ns;
	/* A new process counts from 0 and remembers nothing. */
	server->request_count = server->failure_count = 0;
	server->busy_ns = server->reported_busy_ns = 0;
	server->busy_until_ns = server->reported_ns = now_ns;
	hist_window_init(&server->latency, LATENCY_WINDOW_US, now_ns / 1000);
	recent_init(&server->recent);
	pace_restart(&server->pace, now_ns);
}

bool server_is_synced(const struct server *server, int64_t now_ns) { return now_ns >= server->synced_ns; }

uint32_t server_load(const struct server *server) { return server->busy_count + (uint32_t)server->queue_count; }

int64_t server_estimate_ns(const struct server *server)
{
	return recent_median_ns(&server->recent, server_load(server));
}

void server_report(struct server *server, int64_t now_ns, int64_t epoch_us, struct report *ret_report)
{
	struct hist hist;
	int64_t passed = max_i64(now_ns - server->reported_ns, 1);
	report_init(ret_report);
	count_busy(server, now_ns);
	ret_report->cpu_cores_milli = (int64_t)server->worker_count * 1000;
	ret_report->cpu_busy_milli = (int64_t)((double)(server->busy_ns - server->reported_busy_ns) * 1000.0 /
					       (double)passed);
	server->reported_busy_ns = server->busy_ns;
	server->reported_ns = now_ns;
	hist_window_read(&server->latency, now_ns / 1000, &hist);
	ret_report->p10_us = hist_quantile_us(&hist, 100000);
	ret_report->p50_us = hist_quantile_us(&hist, 500000);
	ret_report->p90_us = hist_quantile_us(&hist, 900000);
	ret_report->p99_us = hist_quantile_us(&hist, 990000);
	ret_report->mean_us = hist_mean_us(&hist);
	ret_report->requests = (int64_t)server->request_count;
	ret_report->failures = (int64_t)server->failure_count;
	ret_report->in_flight = (int64_t)server_load(server);
	ret_report->verified = server_is_synced(server, now_ns);
	ret_report->sync_progress_ppm = 1000000;
	if (!server_is_synced(server, now_ns))
		ret_report->sync_progress_ppm = (int64_t)(1e6 * (double)(now_ns - server->sync_began_ns) /
							  (double)(server->synced_ns - server->sync_began_ns));
	ret_report->migrating = 0;
	ret_report->leaving = server->is_leaving;
	ret_report->dirs_failed = 0;
	ret_report->started_wall_us = epoch_us + server->started_ns / 1000;
	server->report_sequence++;
}
