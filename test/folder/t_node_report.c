/* A node's reports against a scheduler that answers as told. Waits are for conditions. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "folder/node_report.h"
#include "http/server.h"
#include "sys/fs.h"

#define KEY            "00ff"
#define INTERVAL_US    (20 * MSEC_US)
#define SERVER_TIME_US 815

static const struct internal_key shown_key = { .header = "X-Internal-Key: " KEY };
static struct {
	struct http_server *server;
	struct work *work;
	char url[SOCK_TEXT_SIZE + 16];
	pthread_mutex_t lock; /* protects the rest */
	pthread_cond_t changed;
	struct report_message last;
	unsigned count;
	bool is_keyed, is_refusing, is_held;
	struct err fault;
} scheduler;
static char dir[64];
static struct self *self;
static struct node_report *report;
static atomic_int times_count;

static int report_run(struct http_task *task)
{
	struct report_message *message = must_zalloc(1, sizeof(*message));
	struct err fault = ERR_INIT;
	int result = report_read(buf_str(&task->body), message, &fault);

	pthread_mutex_lock(&scheduler.lock);
	scheduler.count++;
	scheduler.last = *message;
	scheduler.fault = result < 0 ? fault : ERR_INIT;
	scheduler.is_keyed = str_eq_c(http_header(task->call, "X-Internal-Key"), KEY);
	pthread_cond_broadcast(&scheduler.changed);
	while (scheduler.is_held)
		pthread_cond_wait(&scheduler.changed, &scheduler.lock);
	if (scheduler.is_refusing)
		result = err_set(&task->err, ERR_STATE, "told to refuse");
	else
		buf_printf(&task->answer, "{\"server_time_us\":%d}", SERVER_TIME_US);
	pthread_mutex_unlock(&scheduler.lock);
	free(message);
	return result;
}

static void report_begin(struct http_call *call, void *app)
{
	(void)app;
	http_run_task(call, scheduler.work, MIB, MIB, report_run);
}

static const struct http_route routes[] = {
	{ "POST", "/internal/v1/reports", report_begin },
	{ NULL, NULL, NULL },
};

static int set_up(void **state)
{
	struct http_options options = http_options_default;
	struct sock_addr addr;
	char text[SOCK_TEXT_SIZE];

	(void)state;
	memset(&scheduler, 0, sizeof(scheduler));
	pthread_mutex_init(&scheduler.lock, NULL);
	pthread_cond_init(&scheduler.changed, NULL);
	snprintf(dir, sizeof(dir), "/tmp/heng-t_node_report-XXXXXX");
	assert_non_null(mkdtemp(dir));
	options.thread_count = 1;
	options.backend = LOOP_EPOLL;
	assert_int_equal(work_new("test", 2, 100, &scheduler.work, NULL), 0);
	assert_int_equal(sock_addr_parse("127.0.0.1:0", &addr, NULL), 0);
	assert_int_equal(http_server_new(&options, &addr, routes, NULL, &scheduler.server, NULL), 0);
	assert_int_equal(http_server_start(scheduler.server, NULL), 0);
	snprintf(scheduler.url, sizeof(scheduler.url), "http://%s/",
		 sock_addr_text(http_server_addr(scheduler.server), text));
	self = self_new("n1", "one", dir, (const char *const[]){ dir }, 1);
	return 0;
}

static void scheduler_stop(void)
{
	if (!scheduler.server)
		return;
	http_server_stop(scheduler.server, 0);
	work_free(&scheduler.work);
	http_server_free(&scheduler.server);
}

static int tear_down(void **state)
{
	int fd = fs_open_dir("/tmp", NULL);

	(void)state;
	node_report_stop(&report);
	self_free(&self);
	scheduler_stop();
	pthread_mutex_destroy(&scheduler.lock);
	pthread_cond_destroy(&scheduler.changed);
	assert_int_equal(fs_remove_tree(fd, dir + 5, NULL), 0);
	close(fd);
	return 0;
}

static void fill(void *owner, struct report *to)
{
	(void)owner;
	to->disk_free_bytes = 4711;
}

static void take_time(void *owner, int64_t server_wall_us, int64_t round_trip_us)
{
	(void)owner;
	assert_int_equal(server_wall_us, SERVER_TIME_US);
	assert_true(round_trip_us >= 0 && round_trip_us < 10 * SEC_US);
	atomic_fetch_add(&times_count, 1);
}

static int start(const char *url, int64_t interval_us, struct err *err)
{
	const struct node_report_options options = {
		.scheduler = url,
		.internal_key = &shown_key,
		.self = self,
		.fill = fill,
		.take_time = take_time,
		.interval_us = interval_us,
	};

	return node_report_start(&options, &report, err);
}

/* Until that many came; returns a copy of the last. */
static struct report_message *await(unsigned count)
{
	struct report_message *copy = must_zalloc(1, sizeof(*copy));
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 20;
	pthread_mutex_lock(&scheduler.lock);
	while (scheduler.count < count) {
		if (pthread_cond_timedwait(&scheduler.changed, &scheduler.lock, &until) != 0)
			fail_msg("%u reports came, not %u", scheduler.count, count);
	}
	*copy = scheduler.last;
	if (scheduler.fault.code != ERR_NONE)
		fail_msg("a report is none: %s", scheduler.fault.text);
	pthread_mutex_unlock(&scheduler.lock);
	return copy;
}

static void the_first_goes_out_at_once(void **state)
{
	struct report_message *message;

	(void)state;
	assert_int_equal(start(scheduler.url, 3600 * SEC_US, NULL), 0);
	message = await(1);
	assert_string_equal(message->node_id, "n1");
	assert_string_equal(message->incarnation, "one");
	assert_true(scheduler.is_keyed);
	assert_int_equal(message->report.disk_free_bytes, 4711);
	assert_int_equal(message->report.dirs_failed, 0);
	assert_int_equal(message->dir_count, 1);
	assert_string_equal(message->dirs[0].path, dir);
	assert_true(message->report.cpu_cores_milli > 0);
	free(message);
}

static void they_go_on_and_tell_what_happened(void **state)
{
	struct report_message *first, *later;

	(void)state;
	assert_int_equal(start(scheduler.url, INTERVAL_US, NULL), 0);
	first = await(1);
	self_began(self);
	self_ended(self, 5000, true, true, clock_mono_us());
	later = await(4);
	assert_true(later->sequence > first->sequence);
	assert_true(atomic_load(&times_count) >= 2);
	assert_int_equal(later->report.started_wall_us, first->report.started_wall_us);
	assert_int_equal(later->report.writes, 1);
	assert_int_equal(later->report.write_failures, 1);
	assert_in_range(later->report.p50_us, 4800, 5200);
	free(first);
	free(later);
}

/* Neither a refusal nor a scheduler that is gone ends them. */
static void a_scheduler_that_refuses_gets_the_next_one(void **state)
{
	(void)state;
	scheduler.is_refusing = true;
	assert_int_equal(start(scheduler.url, INTERVAL_US, NULL), 0);
	free(await(3));
	pthread_mutex_lock(&scheduler.lock);
	scheduler.is_refusing = false;
	pthread_mutex_unlock(&scheduler.lock);
	free(await(6));
}

static void a_scheduler_that_is_away_costs_nothing(void **state)
{
	int64_t began_us;

	(void)state;
	scheduler_stop();
	assert_int_equal(start(scheduler.url, INTERVAL_US, NULL), 0);
	began_us = clock_mono_us();
	node_report_stop(&report);
	assert_null(report);
	assert_true(clock_mono_us() - began_us < 2 * SEC_US);
}

static void stopping_does_not_wait_for_an_answer(void **state)
{
	int64_t began_us;

	(void)state;
	scheduler.is_held = true;
	assert_int_equal(start(scheduler.url, INTERVAL_US, NULL), 0);
	free(await(1));
	began_us = clock_mono_us();
	node_report_stop(&report);
	assert_true(clock_mono_us() - began_us < SEC_US);
	pthread_mutex_lock(&scheduler.lock);
	scheduler.is_held = false;
	pthread_cond_broadcast(&scheduler.changed);
	pthread_mutex_unlock(&scheduler.lock);
}

static void urls_that_are_none(void **state)
{
	struct err err = ERR_INIT;
	char url[1024];

	(void)state;
	memset(url, 'a', sizeof(url) - 1);
	url[sizeof(url) - 1] = '\0';
	assert_int_equal(start(url, INTERVAL_US, &err), -ERR_CONFIG);
	assert_null(report);
	assert_int_equal(start("///", INTERVAL_US, &err), -ERR_CONFIG);
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(the_first_goes_out_at_once),
		CASE(they_go_on_and_tell_what_happened),
		CASE(a_scheduler_that_refuses_gets_the_next_one),
		CASE(a_scheduler_that_is_away_costs_nothing),
		CASE(stopping_does_not_wait_for_an_answer),
		CASE(urls_that_are_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
