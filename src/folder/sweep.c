#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "folder/sweep.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "sys/fetch.h"

#define URL_SIZE           512
#define CONNECT_TIMEOUT_US (2 * SEC_US)
#define CALL_TIMEOUT_US    (30 * SEC_US)
#define STEP_US            SEC_US
#define ASK_MAX            4096      /* ids in one call, as docs/api.md says */
#define LINE_BYTES         ULID_SIZE /* an id and its line end */
#define LIST_MAX           (16 * MIB)

struct sweep {
	struct disk *disk;
	int64_t interval_us;
	char url[URL_SIZE], key_header[128];
	struct fetch *fetch;
	pthread_t thread;
	bool is_thread_started;
	_Atomic bool is_stopping;

	/* The thread's own. */
	struct fetch_call call;
	bool is_call_done;
	bool was_answered; /* for saying a change once */
};

static bool is_stopping(const struct sweep *sweep) { return atomic_load(&sweep->is_stopping); }

static void call_done(struct fetch *fetch UNUSED, struct fetch_call *call)
{
	((struct sweep *)call->owner)->is_call_done = true;
}

/* Asks about `ids`; the answer is in the call. False when it came to nothing: err says why unless the sweep stops. */
static bool ask(struct sweep *sweep, struct str ids, struct err *err)
{
	struct fetch_call *call = &sweep->call;

	buf_fini(&call->answer);
	*call = FETCH_CALL_INIT;
	call->method = "POST";
	call->url = sweep->url;
	call->headers[0] = sweep->key_header;
	call->headers[1] = "Content-Type: text/plain";
	call->body = ids;
	call->connect_timeout_us = CONNECT_TIMEOUT_US;
	call->timeout_us = CALL_TIMEOUT_US;
	call->answer = BUF_INIT(ASK_MAX * LINE_BYTES);
	call->done = call_done;
	call->owner = sweep;
	sweep->is_call_done = false;
	fetch_start(sweep->fetch, call);
	while (!sweep->is_call_done && !is_stopping(sweep))
		fetch_step(sweep->fetch, STEP_US);
	if (!sweep->is_call_done) {
		fetch_cancel(sweep->fetch, call);
		return false;
	}
	if (call->err.code == ERR_NONE && call->status >= 200 && call->status < 300)
		return true;
	*err = call->err;
	if (err->code == ERR_NONE)
		err_set(err, ERR_PEER, "the answer's status is %d", call->status);
	return false;
}

static void remove_transfer(struct sweep *sweep, struct str id)
{
	char transfer_id[ULID_SIZE];
	struct err err = ERR_INIT;

	if (str_copy(id, transfer_id, sizeof(transfer_id)) && disk_remove_transfer(sweep->disk, transfer_id, &err) == 0)
		log_say(LOG_INFO, "removed the files of transfer %s, which is over", transfer_id);
	else
		log_err(LOG_WARN, &err, "the files of a finished transfer stay for now");
}

/* The answer names some of the ids in the order in which they were asked for: nothing else is removed on anybody's word. */
static bool remove_finished(struct sweep *sweep, struct str ids, struct str finished, struct err *err)
{
	struct str line, id = STR_NONE;

	while (str_cut(&finished, '\n', &line) && !is_stopping(sweep)) {
		while (str_cut(&ids, '\n', &id) && !str_eq(id, line))
			;
		if (!str_eq(id, line)) {
			err_set(err, ERR_PEER, "the scheduler's answer names a transfer that it was not asked about");
			return false;
		}
		remove_transfer(sweep, line);
		id = STR_NONE;
	}
	return true;
}

static void note_answered(struct sweep *sweep, bool is_answered, const struct err *err)
{
	if (!is_answered && sweep->was_answered && err->code != ERR_NONE)
		log_err(LOG_WARN, err, "cannot ask the scheduler which transfers are over; their files stay meanwhile");
	sweep->was_answered = is_answered;
}

static void sweep_once(struct sweep *sweep)
{
	AUTO(buf_fini) struct buf lines = BUF_INIT(LIST_MAX);
	struct err err = ERR_INIT;

	if (disk_transfers(sweep->disk, &lines, &err) < 0) {
		log_err(LOG_WARN, &err, "cannot list the transfers that have files here");
		return;
	}
	for (size_t at = 0; at < lines.size && !is_stopping(sweep); at += ASK_MAX * LINE_BYTES) {
		const struct str ids = { lines.data + at, min_size(lines.size - at, ASK_MAX * LINE_BYTES) };
		const bool is_answered = ask(sweep, ids, &err) &&
					 remove_finished(sweep, ids, buf_str(&sweep->call.answer), &err);

		note_answered(sweep, is_answered, &err);
		if (!is_answered)
			return;
	}
}

static void *sweep_run(void *owner)
{
	struct sweep *sweep = owner;

	(void)pthread_setname_np(pthread_self(), "sweep");
	while (!is_stopping(sweep)) {
		sweep_once(sweep);
		const int64_t next_us = clock_mono_us() + sweep->interval_us;
		for (int64_t now_us = clock_mono_us(); now_us < next_us && !is_stopping(sweep);
		     now_us = clock_mono_us())
			fetch_step(sweep->fetch, next_us - now_us);
	}
	return NULL;
}

int sweep_start(const struct sweep_options *options, struct sweep **ret_sweep, struct err *err)
{
	struct sweep *sweep = must_zalloc(1, sizeof(*sweep));
	size_t size = strlen(options->scheduler);
	int r, number;

	while (size > 0 && options->scheduler[size - 1] == '/')
		size--;
	sweep->disk = options->disk;
	sweep->interval_us = options->interval_us;
	sweep->was_answered = true;
	(void)snprintf(sweep->key_header, sizeof(sweep->key_header), "X-Internal-Key: %s", options->internal_key);
	if (snprintf(sweep->url, URL_SIZE, "%.*s/internal/v1/transfers/finished", (int)size, options->scheduler) >=
	    URL_SIZE)
		r = err_set(err, ERR_CONFIG, "the scheduler's URL is too long");
	else
		r = fetch_new(&sweep->fetch, err);
	if (r < 0) {
		sweep_stop(&sweep);
		return r;
	}
	number = pthread_create(&sweep->thread, NULL, sweep_run, sweep);
	if (number != 0) {
		sweep_stop(&sweep);
		return err_sys(err, ERR_SYSTEM, number, "cannot start the sweep's thread");
	}
	sweep->is_thread_started = true;
	*ret_sweep = sweep;
	return 0;
}

void sweep_stop(struct sweep **sweep)
{
	struct sweep *s = *sweep;

	if (!s)
		return;
	atomic_store(&s->is_stopping, true);
	if (s->is_thread_started) {
		fetch_wake(s->fetch);
		pthread_join(s->thread, NULL);
	}
	if (s->fetch)
		fetch_free(&s->fetch);
	buf_fini(&s->call.answer);
	mem_wipe(s->key_header, sizeof(s->key_header));
	free(s);
	*sweep = NULL;
}
