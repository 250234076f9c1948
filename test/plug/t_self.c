#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "plug/self.h"
#include "sys/fs.h"

static char scratch[64];
static struct report_message message;

static int setup(void **state)
{
	(void)state;
	(void)snprintf(scratch, sizeof(scratch), "/tmp/heng-t-self-XXXXXX");
	return mkdtemp(scratch) == NULL;
}

static int teardown(void **state)
{
	int parent_fd = fs_open_dir("/tmp", NULL);

	(void)state;
	if (parent_fd < 0 || fs_remove_tree(parent_fd, scratch + strlen("/tmp/"), NULL) < 0)
		return 1;
	return close(parent_fd);
}

static struct self *make(const char *const *dirs, size_t dir_count)
{
	return self_new("n1", "0123abcd", scratch, dirs, dir_count);
}

static void test_facts(void **state)
{
	struct self *self = make(NULL, 0);
	const struct report *report = &message.report;
	struct timespec now;

	(void)state;
	self_measure(self, SEC_US, 10 * SEC_US, &message);
	assert_string_equal(message.node_id, "n1");
	assert_string_equal(message.incarnation, "0123abcd");
	assert_int_equal(message.sequence, 1);
	/* A rate needs two looks. */
	assert_int_equal(report->cpu_busy_milli, REPORT_UNKNOWN);
	assert_int_equal(report->net_rx_bps, REPORT_UNKNOWN);
	assert_true(report->cpu_cores_milli > 0);
	assert_true(report->rss_bytes > 100000 && report->mem_limit_bytes > report->rss_bytes);
	assert_true(report->disk_total_bytes > 0 && report->disk_free_bytes <= report->disk_total_bytes);
	assert_true(report->fds_open >= 3 && report->fds_limit > report->fds_open);
	assert_true(report->threads >= 1);
	assert_int_equal(clock_gettime(CLOCK_REALTIME, &now), 0);
	assert_in_range(report->started_wall_us, (now.tv_sec - 3600) * SEC_US, (now.tv_sec + 60) * SEC_US);
	assert_int_equal(report->requests, 0);
	assert_int_equal(report->in_flight, 0);
	assert_int_equal(report->dirs_failed, 0);
	assert_int_equal(message.dir_count, 0);
	/* What only the caller knows, and what nobody measured yet. */
	assert_int_equal(report->p10_us, REPORT_UNKNOWN);
	assert_int_equal(report->p99_us, REPORT_UNKNOWN);
	assert_int_equal(report->mean_us, REPORT_UNKNOWN);
	assert_int_equal(report->wal_lag_bytes, REPORT_UNKNOWN);
	assert_int_equal(report->wal_lag_us, REPORT_UNKNOWN);
	assert_int_equal(report->sync_progress_ppm, REPORT_UNKNOWN);
	assert_int_equal(report->verified, REPORT_UNKNOWN);
	assert_int_equal(report->migrating, REPORT_UNKNOWN);
	assert_int_equal(report->leaving, REPORT_UNKNOWN);
	self_measure(self, SEC_US, 11 * SEC_US, &message);
	assert_int_equal(message.sequence, 2);
	assert_true(report->cpu_busy_milli >= 0);
	self_free(&self);
	assert_null(self);
	self_free(&self);
}

static void test_requests(void **state)
{
	struct self *self = make(NULL, 0);
	const struct report *report = &message.report;
	int64_t start_us = 1000 * SEC_US;

	(void)state;
	for (int i = 0; i < 100; i++)
		self_began(self);
	/* 98 of 1 ms, one of 50 ms that failed, and one write of 80 ms that failed. */
	for (int i = 0; i < 98; i++)
		self_ended(self, 1000, false, i < 10, start_us);
	self_ended(self, 50000, true, false, start_us);
	self_measure(self, SEC_US, start_us + SEC_US, &message);
	assert_int_equal(report->in_flight, 1);
	assert_int_equal(report->requests, 99);
	self_ended(self, 80000, true, true, start_us + 100 * SEC_US);
	self_measure(self, SEC_US, start_us + 100 * SEC_US, &message);
	assert_int_equal(report->in_flight, 0);
	assert_int_equal(report->requests, 100);
	assert_int_equal(report->failures, 2);
	assert_int_equal(report->writes, 11);
	assert_int_equal(report->write_failures, 1);
	assert_int_equal(message.latency.total_count, 100);
	assert_in_range(report->p10_us, 1000 - 32, 1000 + 32);
	assert_in_range(report->p50_us, 1000 - 32, 1000 + 32);
	assert_in_range(report->p90_us, 1000 - 32, 1000 + 32);
	assert_in_range(report->p99_us, 50000 - 50000 / 32, 50000 + 50000 / 32);
	assert_int_equal(report->mean_us, (98 * 1000 + 50000 + 80000) / 100);
	/* The first ones are out of the window, the last one is not; counts go on. */
	self_measure(self, SEC_US, start_us + 350 * SEC_US, &message);
	assert_int_equal(message.latency.total_count, 1);
	assert_in_range(report->p10_us, 80000 - 80000 / 32, 80000 + 80000 / 32);
	assert_int_equal(report->requests, 100);
	self_measure(self, SEC_US, start_us + 1000 * SEC_US, &message);
	assert_int_equal(message.latency.total_count, 0);
	assert_int_equal(report->p99_us, REPORT_UNKNOWN);
	/* An end without a beginning is somebody's mistake, but never minus one request. */
	self_ended(self, 1, false, false, start_us);
	self_measure(self, SEC_US, start_us + 1000 * SEC_US, &message);
	assert_int_equal(report->in_flight, 0);
	self_free(&self);
}

static void *end_many(void *argument)
{
	for (int i = 0; i < 5000; i++) {
		self_began(argument);
		self_ended(argument, i, i % 5 == 0, i % 2 == 0, SEC_US + i);
	}
	return NULL;
}

static void test_threads(void **state)
{
	struct self *self = make(NULL, 0);
	pthread_t threads[4];

	(void)state;
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, end_many, self), 0);
	self_measure(self, SEC_US, SEC_US, &message);
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	self_measure(self, SEC_US, 2 * SEC_US, &message);
	assert_int_equal(message.report.requests, 20000);
	assert_int_equal(message.report.failures, 4000);
	assert_int_equal(message.report.writes, 10000);
	assert_int_equal(message.report.write_failures, 2000);
	assert_int_equal(message.report.in_flight, 0);
	assert_int_equal(message.latency.total_count, 20000);
	self_free(&self);
}

static void assert_says(const char *text, const char *part)
{
	if (!strstr(text, part))
		fail_msg("'%s' does not say '%s'", text, part);
}

static void test_dirs(void **state)
{
	char good[128], missing[128], file[128];
	const char *const dirs[] = { good, missing, file };
	struct self *self;

	(void)state;
	(void)snprintf(good, sizeof(good), "%s/good", scratch);
	(void)snprintf(missing, sizeof(missing), "%s/missing", scratch);
	(void)snprintf(file, sizeof(file), "%s/file", scratch);
	assert_int_equal(mkdir(good, 0700), 0);
	assert_int_equal(close(open(file, O_WRONLY | O_CREAT, 0600)), 0);
	self = make(dirs, COUNT_OF(dirs));
	self_set_floors(self, 1, 0, 1);
	self_measure(self, 60 * SEC_US, 100 * SEC_US, &message);
	assert_int_equal(message.dir_count, 3);
	assert_int_equal(message.report.dirs_failed, 2);
	assert_string_equal(message.dirs[0].path, good);
	assert_string_equal(message.dirs[0].diagnosis, "");
	/* Path, step, errno in words, what to do. */
	assert_string_equal(message.dirs[1].path, missing);
	assert_says(message.dirs[1].diagnosis, missing);
	assert_says(message.dirs[1].diagnosis, "cannot open it as a folder");
	assert_says(message.dirs[1].diagnosis, strerror(ENOENT));
	assert_says(message.dirs[1].diagnosis, "make the folder");
	assert_says(message.dirs[2].diagnosis, strerror(ENOTDIR));
	assert_says(message.dirs[2].diagnosis, "a file stands where a folder is expected");
	/* Between two checks the results stand; then the cure is seen, and the next harm. */
	assert_int_equal(mkdir(missing, 0700), 0);
	assert_int_equal(rmdir(good), 0);
	self_measure(self, 60 * SEC_US, 159 * SEC_US, &message);
	assert_int_equal(message.report.dirs_failed, 2);
	assert_string_equal(message.dirs[0].diagnosis, "");
	self_measure(self, 60 * SEC_US, 160 * SEC_US, &message);
	assert_int_equal(message.report.dirs_failed, 2);
	assert_says(message.dirs[0].diagnosis, good);
	assert_string_equal(message.dirs[1].diagnosis, "");
	/* The check leaves nothing behind. */
	assert_int_equal(rmdir(missing), 0);
	assert_int_equal(unlink(file), 0);
	self_free(&self);
}

static void test_long_paths(void **state)
{
	/* A path longer than the report's field, and one longer than an error's text: the step and the cure still stand. */
	static const size_t sizes[] = { 100, 240, 300, 1500 };

	(void)state;
	for (size_t i = 0; i < COUNT_OF(sizes); i++) {
		char path[2000];
		const char *const dirs[] = { path };
		struct self *self;

		memset(path, 'a', sizeof(path));
		for (size_t j = 0; j < sizes[i]; j += 100)
			path[j] = '/';
		path[sizes[i]] = '\0';
		self = make(dirs, 1);
		self_measure(self, SEC_US, SEC_US, &message);
		assert_int_equal(message.report.dirs_failed, 1);
		assert_true(strlen(message.dirs[0].diagnosis) < REPORT_WORDS_SIZE);
		assert_says(message.dirs[0].diagnosis, "aaaa' failed its check: ");
		assert_says(message.dirs[0].diagnosis, strerror(ENOENT));
		assert_says(message.dirs[0].diagnosis, "make the folder");
		assert_int_equal(strlen(message.dirs[0].path), min_size(sizes[i], REPORT_PATH_SIZE - 1));
		self_free(&self);
	}
}

static void test_floors(void **state)
{
	static const struct {
		uint64_t free_bytes;
		unsigned percent;
		uint64_t inodes;
		const char *says;
	} rows[] = {
		{ 0, 0, 0, NULL },
		{ 1, 0, 1, NULL },
		{ UINT64_MAX, 0, 0, "free, the floor is" },
		{ 0, 101, 0, "free space there" },
		{ 0, 0, UINT64_MAX, "inodes free, the floor is" },
	};
	const char *const dirs[] = { scratch };

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct self *self = make(dirs, 1);

		self_set_floors(self, rows[i].free_bytes, rows[i].percent, rows[i].inodes);
		self_measure(self, SEC_US, SEC_US, &message);
		/* Some file systems count no inodes, so that none are ever too few. */
		if (rows[i].inodes == UINT64_MAX && message.report.inodes_free == REPORT_UNKNOWN)
			assert_string_equal(message.dirs[0].diagnosis, "");
		else if (rows[i].says)
			assert_says(message.dirs[0].diagnosis, rows[i].says);
		else
			assert_string_equal(message.dirs[0].diagnosis, "");
		self_free(&self);
	}
}

static void test_read_only(void **state)
{
	char path[128];
	const char *const dirs[] = { path };
	struct self *self;

	(void)state;
	(void)snprintf(path, sizeof(path), "%s/ro", scratch);
	assert_int_equal(mkdir(path, 0700), 0);
	if (mount("none", path, "tmpfs", MS_RDONLY, "size=64k") < 0) {
		print_message("the read-only folder is not tried: mounting a tmpfs here: %s\n", strerror(errno));
		skip();
	}
	self = make(dirs, 1);
	self_measure(self, SEC_US, SEC_US, &message);
	assert_int_equal(umount(path), 0);
	assert_says(message.dirs[0].diagnosis, "cannot make a file in it");
	assert_says(message.dirs[0].diagnosis, strerror(EROFS));
	assert_says(message.dirs[0].diagnosis, "remount it writable");
	self_free(&self);
}

/* What is measured travels: written, read by a peer, the same. */
static void test_travels(void **state)
{
	const char *const dirs[] = { scratch, "/no/such\nfolder" };
	struct self *self = make(dirs, 2);
	struct buf buf = BUF_INIT(REPORT_BODY_MAX);
	struct report_message read;
	struct err err = ERR_INIT;

	(void)state;
	self_began(self);
	self_ended(self, 1234, false, true, SEC_US);
	self_measure(self, SEC_US, SEC_US, &message);
	report_write(&buf, &message);
	assert_false(buf.is_failed);
	if (report_read(buf_str(&buf), &read, &err) < 0)
		fail_msg("%s", err.text);
	assert_memory_equal(&read.report, &message.report, sizeof(read.report));
	assert_memory_equal(&read.latency, &message.latency, sizeof(read.latency));
	assert_int_equal(read.dir_count, 2);
	assert_string_equal(read.dirs[1].path, message.dirs[1].path);
	assert_string_equal(read.dirs[1].diagnosis, message.dirs[1].diagnosis);
	buf_fini(&buf);
	self_free(&self);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_facts),     cmocka_unit_test(test_requests),   cmocka_unit_test(test_threads),
		cmocka_unit_test(test_dirs),      cmocka_unit_test(test_long_paths), cmocka_unit_test(test_floors),
		cmocka_unit_test(test_read_only), cmocka_unit_test(test_travels),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
