#include <pthread.h>

#include "plug/self.h"
#include "sys/fs.h"

#define FREE_FLOOR_BYTES  (64 * MIB)
#define INODE_FLOOR_COUNT 256

_Static_assert(HOST_UNKNOWN == REPORT_UNKNOWN, "the facts' unknown is the report's");

struct self {
	struct host *host;
	char node_id[sizeof(((struct report_message *)0)->node_id)];
	char incarnation[sizeof(((struct report_message *)0)->incarnation)];
	uint64_t sequence;
	char *dirs[REPORT_DIRS_MAX];
	struct report_dir results[REPORT_DIRS_MAX];
	size_t dir_count;
	bool was_checked;
	int64_t checked_us;
	uint64_t free_floor_bytes, inode_floor_count;
	unsigned free_floor_percent;

	pthread_mutex_t lock; /* guards all below: requests end on many threads */
	struct hist_window latency;
	int64_t in_flight_count, requests_count, failures_count, writes_count, write_failures_count;
};

struct self *self_new(const char *node_id, const char *incarnation, const char *data_dir, const char *const *dirs,
		      size_t dir_count)
{
	struct self *self = must_zalloc(1, sizeof(*self));

	MUST(dir_count <= REPORT_DIRS_MAX);
	MUST(str_copy(str_from(node_id), self->node_id, sizeof(self->node_id)));
	MUST(str_copy(str_from(incarnation), self->incarnation, sizeof(self->incarnation)));
	MUST(pthread_mutex_init(&self->lock, NULL) == 0);
	self->host = host_new("", data_dir, 0);
	for (; self->dir_count < dir_count; self->dir_count++) {
		self->dirs[self->dir_count] = must_strdup(dirs[self->dir_count]);
		(void)str_display(str_from(dirs[self->dir_count]), self->results[self->dir_count].path,
				  REPORT_PATH_SIZE);
	}
	self_set_floors(self, FREE_FLOOR_BYTES, 0, INODE_FLOOR_COUNT);
	hist_window_init(&self->latency, SELF_WINDOW_US, 0);
	return self;
}

void self_free(struct self **self)
{
	if (!*self)
		return;
	host_free(&(*self)->host);
	for (size_t i = 0; i < (*self)->dir_count; i++)
		free((*self)->dirs[i]);
	(void)pthread_mutex_destroy(&(*self)->lock);
	free(*self);
	*self = NULL;
}

void self_set_floors(struct self *self, uint64_t free_bytes, unsigned free_percent, uint64_t inodes_count)
{
	self->free_floor_bytes = free_bytes;
	self->free_floor_percent = free_percent;
	self->inode_floor_count = inodes_count;
}

void self_began(struct self *self)
{
	(void)pthread_mutex_lock(&self->lock);
	self->in_flight_count++;
	(void)pthread_mutex_unlock(&self->lock);
}

void self_ended(struct self *self, int64_t latency_us, bool is_failed, bool is_write, int64_t now_us)
{
	(void)pthread_mutex_lock(&self->lock);
	self->in_flight_count = max_i64(self->in_flight_count - 1, 0);
	self->requests_count++;
	self->failures_count += is_failed;
	self->writes_count += is_write;
	self->write_failures_count += is_write && is_failed;
	hist_window_feed(&self->latency, latency_us, now_us);
	(void)pthread_mutex_unlock(&self->lock);
}

/* --- the folders --- */

/* "folder '/a/b' failed its check: <why>; <what to do>". Why and what to do matter more than a long path, whose end tells most. */
static void diagnose(struct report_dir *result, const char *path, const char *why, const char *cure)
{
	const size_t fixed = strlen("folder '...' failed its check: ; ") + strlen(why) + strlen(cure);
	const size_t path_size = strlen(path),
		     room = fixed + 16 < REPORT_WORDS_SIZE ? REPORT_WORDS_SIZE - 1 - fixed : 16;
	const bool is_cut = path_size > room;
	char text[REPORT_WORDS_SIZE * 4];

	(void)snprintf(text, sizeof(text), "folder '%s%s' failed its check: %s%s%s", is_cut ? "..." : "",
		       is_cut ? path + path_size - room : path, why, cure[0] != '\0' ? "; " : "", cure);
	(void)str_display(str_from(text), result->diagnosis, sizeof(result->diagnosis));
}

static void check_space(const struct self *self, const char *path, struct report_dir *result)
{
	struct fs_space space;
	struct err err = ERR_INIT;
	char free_text[32], floor_text[32], why[160];
	AUTO(fs_close) int fd = fs_open_dir(path, &err);
	uint64_t floor_bytes;

	if (fd < 0 || fs_space(fd, &space, &err) < 0) {
		diagnose(result, path, strerror(err.sys_errno), err.hint);
		return;
	}
	floor_bytes = space.total_bytes / 100 * self->free_floor_percent;
	if (floor_bytes < self->free_floor_bytes)
		floor_bytes = self->free_floor_bytes;
	if (space.free_bytes < floor_bytes) {
		(void)snprintf(why, sizeof(why), "%s free, the floor is %s",
			       size_display(space.free_bytes, free_text, sizeof(free_text)),
			       size_display(floor_bytes, floor_text, sizeof(floor_text)));
		diagnose(result, path, why, "free space there, or choose another disk");
	} else if (space.inodes_total > 0 && space.inodes_free < self->inode_floor_count) {
		/* A file system that makes inodes as it likes says it has none in all. */
		(void)snprintf(why, sizeof(why), "%llu inodes free, the floor is %llu",
			       (unsigned long long)space.inodes_free, (unsigned long long)self->inode_floor_count);
		diagnose(result, path, why, "delete small files there, or choose another disk");
	}
}

static void check_dir(const struct self *self, const char *path, struct report_dir *result)
{
	static const char mark[] = "failed its check: ";
	struct err err = ERR_INIT;
	const char *why;

	result->diagnosis[0] = '\0';
	if (fs_check_dir(path, &err) < 0) {
		/* The path may have taken all the room of the text. */
		why = strstr(err.text, mark);
		diagnose(result, path, why ? why + strlen(mark) : strerror(err.sys_errno), err.hint);
		return;
	}
	check_space(self, path, result);
}

static void check_dirs(struct self *self, int64_t check_interval_us, int64_t now_us)
{
	if (self->was_checked && now_us - self->checked_us < check_interval_us)
		return;
	for (size_t i = 0; i < self->dir_count; i++)
		check_dir(self, self->dirs[i], &self->results[i]);
	self->was_checked = true;
	self->checked_us = now_us;
}

/* --- the report --- */

static void fill_facts(struct report *report, const struct host_facts *facts)
{
	report->cpu_busy_milli = facts->cpu_busy_milli;
	report->cpu_cores_milli = facts->cpu_cores_milli;
	report->rss_bytes = facts->rss_bytes;
	report->mem_limit_bytes = facts->mem_limit_bytes;
	report->mem_pressure_ppm = facts->mem_pressure_ppm;
	report->disk_queue_milli = facts->disk_queue_milli;
	report->disk_io_us = facts->disk_io_us;
	report->disk_free_bytes = facts->disk_free_bytes;
	report->disk_total_bytes = facts->disk_total_bytes;
	report->inodes_free = facts->inodes_free;
	report->net_rx_bps = facts->net_rx_bps;
	report->net_tx_bps = facts->net_tx_bps;
	report->tcp_conns = facts->tcp_conns;
	report->fds_open = facts->fds_open;
	report->fds_limit = facts->fds_limit;
	report->threads = facts->threads;
	report->started_wall_us = facts->started_wall_us;
}

static void fill_requests(struct self *self, int64_t now_us, struct report_message *message)
{
	struct report *report = &message->report;
	struct hist *latency = &message->latency;

	(void)pthread_mutex_lock(&self->lock);
	report->in_flight = self->in_flight_count;
	report->requests = self->requests_count;
	report->failures = self->failures_count;
	report->writes = self->writes_count;
	report->write_failures = self->write_failures_count;
	hist_window_read(&self->latency, now_us, latency);
	(void)pthread_mutex_unlock(&self->lock);
	/* Without requests in the window these are unknown. */
	report->p10_us = hist_quantile_us(latency, 100000);
	report->p50_us = hist_quantile_us(latency, 500000);
	report->p90_us = hist_quantile_us(latency, 900000);
	report->p99_us = hist_quantile_us(latency, 990000);
	report->mean_us = hist_mean_us(latency);
}

void self_measure(struct self *self, int64_t check_interval_us, int64_t now_us, struct report_message *ret_message)
{
	struct host_facts facts;

	memset(ret_message, 0, sizeof(*ret_message));
	report_init(&ret_message->report);
	memcpy(ret_message->node_id, self->node_id, sizeof(self->node_id));
	memcpy(ret_message->incarnation, self->incarnation, sizeof(self->incarnation));
	ret_message->sequence = ++self->sequence;
	check_dirs(self, check_interval_us, now_us);
	host_measure(self->host, now_us, &facts);
	fill_facts(&ret_message->report, &facts);
	fill_requests(self, now_us, ret_message);
	memcpy(ret_message->dirs, self->results, self->dir_count * sizeof(self->results[0]));
	ret_message->dir_count = self->dir_count;
	ret_message->report.dirs_failed = 0;
	for (size_t i = 0; i < self->dir_count; i++)
		ret_message->report.dirs_failed += self->results[i].diagnosis[0] != '\0';
}
