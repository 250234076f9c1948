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
#include "folder/removed.h"
#include "sys/fetch.h"

#define URL_SIZE           512
#define CONNECT_TIMEOUT_US (2 * SEC_US)
#define CALL_TIMEOUT_US    (30 * SEC_US)
#define ASK_MAX            4096      /* ids in one call, as docs/api.md says */
#define LINE_BYTES         ULID_SIZE /* an id and its line end */
#define LIST_MAX           (16 * MIB)
/* All folders are read in search of strays: rarely, since they are rare and in nobody's way. */
#define STRAY_LOOKS 24
#define STRAYS_MAX  REMOVED_LINES_MAX /* in one look; the rest at the next */

struct sweep {
	struct disk *disk;
	int64_t interval_us, stray_after_us;
	char url[URL_SIZE], removed_url[URL_SIZE];
	const struct internal_key *internal_key;
	struct fetch *fetch;
	pthread_t thread;
	bool is_thread_started;
	_Atomic bool is_stopping;

	/* The thread's own. */
	struct fetch_call call;
	bool was_answered; /* for saying a change once */
	bool is_unfinished_told;
	int64_t strays_due_us;
};

static bool is_stopping(const struct sweep *sweep) { return atomic_load(&sweep->is_stopping); }

/* Posts `lines`; the answer is in the call. False when it came to nothing: err says why unless the sweep stops. */
static bool post(struct sweep *sweep, const char *url, struct str lines, struct err *err)
{
	struct fetch_call *call = &sweep->call;

	fetch_call_post(call, url, internal_key_header(sweep->internal_key), "Content-Type: text/plain", lines);
	call->connect_timeout_us = CONNECT_TIMEOUT_US;
	call->timeout_us = CALL_TIMEOUT_US;
	call->answer = BUF_INIT(ASK_MAX * LINE_BYTES);
	call->is_interrupted = &sweep->is_stopping;
	if (fetch_do(sweep->fetch, call, err) == 0)
		return true;
	if (is_stopping(sweep))
		*err = ERR_INIT;
	return false;
}

static void remove_transfer(struct sweep *sweep, const char *transfer_id)
{
	struct err err = ERR_INIT;

	if (disk_remove_transfer(sweep->disk, transfer_id, &err) == 0)
		log_say(LOG_INFO, "removed the files of transfer %s, which is over", transfer_id);
	else
		log_err(LOG_WARN, &err, "the files of a finished transfer stay for now");
}

/* Transfers that are to go, until they have been announced: nothing goes that the scheduler has not written down. */
struct batch {
	char ids[REMOVED_LINES_MAX][ULID_SIZE];
	size_t count;
};

static bool batch_remove(struct sweep *sweep, struct batch *batch, struct err *err)
{
	AUTO(buf_fini) struct buf lines = BUF_INIT(REMOVED_LINES_MAX * REMOVED_LINE_MAX);
	const size_t count = batch->count;

	batch->count = 0;
	for (size_t i = 0; i < count; i++) {
		struct removed removed = { .kind = REMOVED_OVER };

		memcpy(removed.transfer_id, batch->ids[i], sizeof(removed.transfer_id));
		removed_write(&lines, &removed);
	}
	if (count > 0 && !post(sweep, sweep->removed_url, buf_str(&lines), err))
		return false;
	for (size_t i = 0; i < count && !is_stopping(sweep); i++)
		remove_transfer(sweep, batch->ids[i]);
	return true;
}

/* The answer names some of the ids in the order in which they were asked for: nothing else is removed on anybody's word. */
static bool remove_finished(struct sweep *sweep, struct str ids, struct str finished, struct batch *batch,
			    struct err *err)
{
	struct str line, id = STR_NONE;

	while (str_cut(&finished, '\n', &line) && !is_stopping(sweep)) {
		while (str_cut(&ids, '\n', &id) && !str_eq(id, line))
			;
		if (!str_eq(id, line) || !str_copy(line, batch->ids[batch->count], ULID_SIZE)) {
			err_set(err, ERR_PEER, "the scheduler's answer names a transfer that it was not asked about");
			return false;
		}
		if (++batch->count == REMOVED_LINES_MAX && !batch_remove(sweep, batch, err))
			return false;
		id = STR_NONE;
	}
	return batch_remove(sweep, batch, err);
}

/* Asks which of the ids are over, and removes those. */
static bool ask(struct sweep *sweep, struct str ids, struct err *err)
{
	struct batch *batch;
	struct buf finished;
	bool is_good;

	if (!post(sweep, sweep->url, ids, err))
		return false;
	batch = must_zalloc(1, sizeof(*batch));
	/* The next call takes the answer's place. */
	finished = sweep->call.answer;
	sweep->call.answer = BUF_INIT(0);
	is_good = remove_finished(sweep, ids, buf_str(&finished), batch, err);
	buf_fini(&finished);
	free(batch);
	return is_good;
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
		const bool is_answered = ask(sweep, ids, &err);

		note_answered(sweep, is_answered, &err);
		if (!is_answered)
			return;
	}
}

/* --- unfinished chunks --- */

/* What was removed when the disk was opened: before there was anybody to tell. */
static void tell_unfinished(struct sweep *sweep)
{
	AUTO(buf_fini) struct buf line = BUF_INIT(REMOVED_LINE_MAX);
	struct removed removed = { .kind = REMOVED_UNFINISHED };
	struct disk_counts counts;
	struct err err = ERR_INIT;

	disk_counts(sweep->disk, &counts);
	removed.count = counts.unfinished_removed;
	removed_write(&line, &removed);
	sweep->is_unfinished_told = removed.count == 0 || post(sweep, sweep->removed_url, buf_str(&line), &err);
	note_answered(sweep, sweep->is_unfinished_told, &err);
}

static bool tell_strays(struct sweep *sweep, const struct disk_stray *strays, size_t count, struct err *err)
{
	AUTO(buf_fini) struct buf lines = BUF_INIT(REMOVED_LINES_MAX * REMOVED_LINE_MAX);

	for (size_t i = 0; i < count; i++) {
		struct removed removed = { .kind = REMOVED_STRAY,
					   .file_id = strays[i].file_id,
					   .chunk_index = strays[i].chunk_index,
					   .size_bytes = strays[i].size_bytes };

		memcpy(removed.transfer_id, strays[i].transfer_id, sizeof(removed.transfer_id));
		removed_write(&lines, &removed);
	}
	return post(sweep, sweep->removed_url, buf_str(&lines), err);
}

static int remove_strays(struct sweep *sweep, struct disk_stray *strays, struct err *err)
{
	const int64_t before_wall_us = clock_wall_us() - sweep->stray_after_us;
	const int count = disk_strays(sweep->disk, before_wall_us, strays, STRAYS_MAX, err);

	if (count <= 0)
		return count;
	if (!tell_strays(sweep, strays, (size_t)count, err))
		return -(int)err->code;
	for (int i = 0; i < count && !is_stopping(sweep); i++) {
		const int r = disk_remove_stray(sweep->disk, &strays[i], before_wall_us, err);

		if (r < 0)
			return r;
	}
	log_say(LOG_INFO, "removed %d unfinished chunks that nobody has written for long", count);
	return 0;
}

static void sweep_strays(struct sweep *sweep)
{
	struct disk_stray *strays = must_zalloc(STRAYS_MAX, sizeof(*strays));
	struct err err = ERR_INIT;

	if (remove_strays(sweep, strays, &err) < 0)
		log_err(LOG_WARN, &err, "unfinished chunks stay for now");
	free(strays);
}

static void sweep_when_due(struct sweep *sweep)
{
	const int64_t now_us = clock_mono_us();

	if (!sweep->is_unfinished_told)
		tell_unfinished(sweep);
	sweep_once(sweep);
	if (now_us < sweep->strays_due_us || is_stopping(sweep))
		return;
	sweep_strays(sweep);
	sweep->strays_due_us = now_us + sweep->stray_after_us / STRAY_LOOKS;
}

static void *sweep_run(void *owner)
{
	struct sweep *sweep = owner;

	(void)pthread_setname_np(pthread_self(), "sweep");
	while (!is_stopping(sweep)) {
		sweep_when_due(sweep);
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
	sweep->stray_after_us = options->stray_after_us;
	sweep->was_answered = true;
	sweep->internal_key = options->internal_key;
	if (snprintf(sweep->url, URL_SIZE, "%.*s/internal/v1/transfers/finished", (int)size, options->scheduler) >=
		    URL_SIZE ||
	    snprintf(sweep->removed_url, URL_SIZE, "%.*s/internal/v1/removed?node=%s", (int)size, options->scheduler,
		     options->node_id) >= URL_SIZE)
		r = err_set(err, ERR_CONFIG, "the scheduler's URL is too long");
	else
		r = internal_fetch_new(sweep->internal_key, &sweep->fetch, err);
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
	free(s);
	*sweep = NULL;
}
