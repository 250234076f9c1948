#include "folder/node_report.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include <jansson.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "sys/fetch.h"

#define URL_SIZE           512
#define CONNECT_TIMEOUT_US SEC_US
#define CALL_TIMEOUT_US    (2 * SEC_US) /* below the interval: there is one report under way at most */
/* Each check of a folder syncs a file; the disk itself is checked with each probe of the scheduler, so this may be rarer. */
#define CHECK_EVERY_REPORTS 3
#define ANSWER_MAX          (16 * KIB)

struct node_report {
	char url[URL_SIZE];
	const struct internal_key *internal_key;
	struct self *self;
	void (*fill)(void *owner, struct report *report);
	void (*take_time)(void *owner, int64_t server_wall_us, int64_t round_trip_us);
	void *owner;
	int64_t interval_us;
	struct fetch *fetch;
	pthread_t thread;
	bool is_thread_started;
	atomic_bool is_stopping;

	/* The thread's own. */
	struct fetch_call call;
	struct buf body;
	struct report_message *message; /* large */
	int64_t posted_us;
	bool is_posting, is_away;
};

static void note_away(struct node_report *report, const struct err *err)
{
	if (err && !report->is_away)
		log_err(LOG_WARN, err, "this node's reports do not reach the scheduler");
	if (!err && report->is_away)
		log_say(LOG_INFO, "the scheduler takes this node's reports again");
	report->is_away = err != NULL;
}

static void take_time(struct node_report *report, struct str answer)
{
	json_t *root = json_loadb(answer.data ? answer.data : "", answer.size, JSON_REJECT_DUPLICATES, NULL);
	const json_t *time = json_object_get(root, "server_time_us");

	if (report->take_time && json_is_integer(time))
		report->take_time(report->owner, json_integer_value(time), clock_mono_us() - report->posted_us);
	json_decref(root);
}

static void post_done(struct fetch *fetch UNUSED, struct fetch_call *call)
{
	struct node_report *report = call->owner;

	report->is_posting = false;
	note_away(report, call->err.code == ERR_NONE ? NULL : &call->err);
	if (call->err.code == ERR_NONE)
		take_time(report, buf_str(&call->answer));
	buf_fini(&call->answer);
}

static void post(struct node_report *report)
{
	struct report_message *message = report->message;
	struct err err = ERR_INIT;

	self_measure(report->self, CHECK_EVERY_REPORTS * report->interval_us, clock_mono_us(), message);
	report->fill(report->owner, &message->report);
	buf_clear(&report->body);
	report_write(&report->body, message);
	if (report->body.is_failed) {
		err_set(&err, ERR_NO_MEMORY, "no memory for a report");
		note_away(report, &err);
		return;
	}
	fetch_call_post(&report->call, report->url, internal_key_header(report->internal_key),
			"Content-Type: application/json", buf_str(&report->body));
	report->call.connect_timeout_us = CONNECT_TIMEOUT_US;
	report->call.timeout_us = CALL_TIMEOUT_US;
	report->call.answer = BUF_INIT(ANSWER_MAX);
	report->call.done = post_done;
	report->call.owner = report;
	report->is_posting = true;
	report->posted_us = clock_mono_us();
	fetch_start(report->fetch, &report->call);
}

static void *report_run(void *owner)
{
	struct node_report *report = owner;
	int64_t due_us = clock_mono_us();

	(void)pthread_setname_np(pthread_self(), "report");
	while (!atomic_load(&report->is_stopping)) {
		int64_t now_us = clock_mono_us();

		if (now_us >= due_us && !report->is_posting) {
			post(report);
			/* Where measuring took long, the interval begins anew: reports do not come in bursts. */
			now_us = clock_mono_us();
			due_us = max_i64(due_us + report->interval_us, now_us);
		}
		fetch_step(report->fetch, report->is_posting ? report->interval_us : max_i64(0, due_us - now_us));
	}
	if (report->is_posting)
		fetch_cancel(report->fetch, &report->call);
	return NULL;
}

static int fill_names(struct node_report *report, const struct node_report_options *options, struct err *err)
{
	size_t size = strlen(options->scheduler);
	int written;

	while (size > 0 && options->scheduler[size - 1] == '/')
		size--;
	written = snprintf(report->url, sizeof(report->url), "%.*s/internal/v1/reports", (int)size, options->scheduler);
	if (size == 0 || written >= URL_SIZE)
		return err_set(err, ERR_CONFIG, "the scheduler's URL is empty or too long");
	report->internal_key = options->internal_key;
	return 0;
}

int node_report_start(const struct node_report_options *options, struct node_report **ret_report, struct err *err)
{
	struct node_report *report = must_zalloc(1, sizeof(*report));
	int result;

	report->self = options->self;
	report->fill = options->fill;
	report->take_time = options->take_time;
	report->owner = options->owner;
	report->interval_us = options->interval_us > 0 ? options->interval_us : REPORT_INTERVAL_US;
	report->body = BUF_INIT(REPORT_BODY_MAX);
	report->message = must_zalloc(1, sizeof(*report->message));
	result = fill_names(report, options, err);
	if (result == 0)
		result = internal_fetch_new(report->internal_key, &report->fetch, err);
	if (result == 0) {
		int fault = pthread_create(&report->thread, NULL, report_run, report);

		report->is_thread_started = fault == 0;
		if (fault != 0)
			result = err_sys(err, ERR_SYSTEM, fault, "cannot start the thread for reports");
	}
	if (result < 0) {
		node_report_stop(&report);
		return result;
	}
	*ret_report = report;
	return 0;
}

void node_report_stop(struct node_report **report_ref)
{
	struct node_report *report = *report_ref;

	if (!report)
		return;
	if (report->is_thread_started) {
		atomic_store(&report->is_stopping, true);
		fetch_wake(report->fetch);
		pthread_join(report->thread, NULL);
	}
	if (report->fetch)
		fetch_free(&report->fetch);
	buf_fini(&report->call.answer);
	buf_fini(&report->body);
	free(report->message);
	free(report);
	*report_ref = NULL;
}
