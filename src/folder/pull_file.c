#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "core/curve.h"
#include "folder/pull_impl.h"
#include "sys/fetch.h"
#include "sys/fs.h"
#include "wire/unseal.h"

#define TRIES_MAX     5 /* in a row that bring nothing; each goes on where the last one broke off */
#define RETRY_US      (400 * MSEC_US)
#define RETRY_MOST_US (10 * SEC_US)
/* What the scheduler may ask for on top. */
#define RETRY_AFTER_MAX_US (60 * SEC_US)
#define STEP_US            (100 * MSEC_US)
#define URL_SIZE           1024
#define HEADER_SIZE        300
#define SHOWN_SIZE         300
#define ERROR_MAX          (64 * KIB)
#define RETRY_STEP_US      (20 * MSEC_US)
/* Asked for at a time: what a scheduler gives of a bucket without streaming it, and little to do again where a call breaks off. */
#define RANGE_BYTES ((uint64_t)16 * MIB)

/* One thread's own. */
struct worker {
	struct pull *pull;
	struct fetch *fetch;
	struct stage_cursor cursor;
	struct digest *digest;
	struct rng rng;
	int64_t retry_after_us; /* of the last answer */
	/* The file at hand. */
	const struct pull_file *file;
	int fd;
	uint64_t received_bytes;
	struct unseal *unseal;  /* NULL: files stay as they are stored */
	uint64_t written_bytes; /* by it */
	bool ends_in_hole;
	bool is_call_over;
	bool is_local_fault; /* trying again would not help: the disk here, or a server that sends too much */
};

static int write_opened(void *owner, const void *plain, size_t size, struct err *err)
{
	struct worker *worker = owner;
	const int result = fs_write_sparse(worker->fd, plain, size, (int64_t)worker->written_bytes,
					   &worker->ends_in_hole, err);

	worker->written_bytes += size;
	return result;
}

static int keep_piece(struct worker *worker, struct str piece, struct err *err)
{
	if (worker->unseal)
		return unseal_feed(worker->unseal, piece.data, piece.size, err);
	return fs_write_sparse(worker->fd, piece.data, piece.size, (int64_t)worker->received_bytes,
			       &worker->ends_in_hole, err);
}

static bool take_piece(struct fetch_call *call, struct str piece)
{
	struct worker *worker = call->owner;

	if (pull_is_over(worker->pull))
		return false;
	if (piece.size > worker->file->size_bytes - worker->received_bytes) {
		worker->is_local_fault = true;
		err_set(&call->err, ERR_INTEGRITY, "more than the %" PRIu64 " bytes of the file came",
			worker->file->size_bytes);
		return false;
	}
	pull_await_end(worker->pull);
	int result = keep_piece(worker, piece, &call->err);
	pull_await(worker->pull);
	if (result < 0) {
		worker->is_local_fault = true;
		return false;
	}
	digest_feed(worker->digest, piece.data, piece.size);
	worker->received_bytes += piece.size;
	atomic_fetch_add(&worker->pull->bytes_done, piece.size);
	return true;
}

static void call_done(struct fetch *fetch, struct fetch_call *call)
{
	struct worker *worker = call->owner;

	(void)fetch;
	worker->is_call_over = true;
}

/* One call for what is missing, or the next stretch of it. */
static int fetch_rest(struct worker *worker, struct err *err)
{
	const struct stored_place *place = &worker->pull->place;
	char url[URL_SIZE], key[HEADER_SIZE], range[64];
	struct fetch_call call = FETCH_CALL_INIT;

	snprintf(url, sizeof(url), "%s/api/v1/transfers/%s/files/%" PRIu64, place->url, place->transfer_id,
		 worker->file->seq);
	snprintf(key, sizeof(key), "X-Api-Key: %s", place->api_key);
	bool is_whole = worker->received_bytes == 0 && worker->file->size_bytes <= RANGE_BYTES;
	uint64_t left = worker->file->size_bytes - worker->received_bytes;
	snprintf(range, sizeof(range), "Range: bytes=%" PRIu64 "-%" PRIu64, worker->received_bytes,
		 worker->received_bytes + (left < RANGE_BYTES ? left : RANGE_BYTES) - 1);
	call.url = url;
	call.headers[0] = key;
	call.headers[1] = is_whole ? NULL : range;
	call.answer.limit = ERROR_MAX;
	call.sink = take_piece;
	call.done = call_done;
	call.owner = worker;
	worker->is_call_over = false;
	fetch_start(worker->fetch, &call);
	while (!worker->is_call_over && !pull_is_over(worker->pull))
		fetch_step(worker->fetch, STEP_US);
	if (!worker->is_call_over)
		fetch_cancel(worker->fetch, &call);
	buf_fini(&call.answer);
	mem_wipe(key, sizeof(key));
	if (!worker->is_call_over)
		return err_set(err, ERR_CLOSED, "the pull was given up");
	worker->retry_after_us = min_i64(call.retry_after_us, RETRY_AFTER_MAX_US);
	/* A refusal is an answer. */
	if (call.status != 0)
		pull_note_life(worker->pull);
	*err = call.err;
	return -(int)call.err.code;
}

static void pause_for(struct worker *worker, int64_t wait_us)
{
	const struct timespec step = { .tv_nsec = (long)(RETRY_STEP_US * 1000) };

	for (int64_t end_us = clock_mono_us() + wait_us; clock_mono_us() < end_us && !pull_is_over(worker->pull);)
		(void)nanosleep(&step, NULL);
}

static void pause_before_retry(struct worker *worker, unsigned try_count)
{
	/* Who asks us to wait is not silent. */
	if (worker->retry_after_us > 0) {
		pull_await_end(worker->pull);
		pause_for(worker, worker->retry_after_us);
		pull_await(worker->pull);
	}
	/* Full jitter on top of what was asked for: threads that were sent away together do not come back together. */
	pause_for(worker, RETRY_US + curve_backoff_us(try_count, RETRY_US, RETRY_MOST_US, &worker->rng));
}

/* All bytes, however many calls it takes. */
static int fetch_tries(struct worker *worker, struct err *err)
{
	unsigned try_count = 0;

	for (;;) {
		uint64_t before_bytes = worker->received_bytes;
		int result = fetch_rest(worker, err);
		uint64_t left = worker->file->size_bytes - before_bytes;
		uint64_t wanted_bytes = before_bytes + (left < RANGE_BYTES ? left : RANGE_BYTES);
		if (result == 0 && worker->received_bytes < wanted_bytes)
			return err_set(err, ERR_INTEGRITY, "%" PRIu64 " of its %" PRIu64 " bytes came",
				       worker->received_bytes, worker->file->size_bytes);
		if (result == 0 && worker->received_bytes == worker->file->size_bytes)
			return 0;
		if (result == 0) {
			try_count = 0;
			continue;
		}
		/* A break after the last byte: the digest will tell. */
		if (worker->received_bytes == worker->file->size_bytes && !worker->is_local_fault)
			return 0;
		try_count = worker->received_bytes > before_bytes ? 1 : try_count + 1;
		if (worker->is_local_fault || pull_is_over(worker->pull) || try_count >= TRIES_MAX ||
		    err_retry((enum err_code) - result) == ERR_RETRY_NO)
			return result;
		pull_note_retry(worker->pull, err);
		pause_before_retry(worker, try_count);
	}
}

static int fetch_bytes(struct worker *worker, struct err *err)
{
	pull_await(worker->pull);
	int result = fetch_tries(worker, err);
	pull_await_end(worker->pull);
	return result;
}

static int check_digest(struct worker *worker, struct err *err)
{
	char hex[DIGEST_HEX_SIZE];

	digest_hex(worker->digest, hex);
	if (strcmp(hex, worker->file->digest) == 0)
		return 0;
	return err_set(err, ERR_INTEGRITY, "its %s is %s, that of the stored file is %s",
		       digest_name(worker->pull->stored.digest), hex, worker->file->digest);
}

static int fetch_file(struct worker *worker, struct err *err)
{
	const struct pull_file *file = worker->file;
	struct str path = { file->path, file->path_size };
	char shown[SHOWN_SIZE];

	worker->received_bytes = 0;
	worker->is_local_fault = worker->ends_in_hole = false;
	digest_restart(worker->digest);
	worker->written_bytes = 0;
	if (worker->unseal)
		unseal_begin(worker->unseal, path, file->size_bytes);
	worker->fd = stage_file(&worker->cursor, path, file->mode, err);
	if (worker->fd < 0)
		return worker->fd;
	int result = fetch_bytes(worker, err);
	if (result == 0)
		result = check_digest(worker, err);
	if (result == 0 && worker->unseal)
		result = unseal_end(worker->unseal, err);
	if (result == 0 && worker->ends_in_hole)
		result = fs_set_size(worker->fd, worker->unseal ? worker->written_bytes : file->size_bytes, err);
	if (result == 0)
		result = stage_file_end(&worker->pull->stage, &worker->fd, path, file->mode, file->mtime_ns, err);
	fs_close(&worker->fd);
	if (result < 0)
		return err_wrap(err, "'%s'", str_display(path, shown, sizeof(shown)));
	atomic_fetch_add(&worker->pull->files_done, 1);
	return 0;
}

void *pull_files(void *argument)
{
	struct worker worker = { .pull = argument, .fd = -1 };
	struct err err = ERR_INIT;
	struct pull_file *file;

	int result = fetch_new(&worker.fetch, &err);
	if (result < 0) {
		pull_fail(worker.pull, &err);
		return NULL;
	}
	fetch_use_tls(worker.fetch, worker.pull->options->place.tls);
	rng_seed_kernel(&worker.rng);
	worker.digest = digest_new(worker.pull->stored.digest);
	if (worker.pull->key)
		worker.unseal = unseal_new(worker.pull->key->key, write_opened, &worker);
	stage_cursor_init(&worker.cursor, &worker.pull->stage);
	while ((file = pull_take(worker.pull)) != NULL) {
		worker.file = file;
		if (fetch_file(&worker, &err) < 0)
			pull_fail(worker.pull, &err);
		free(file);
	}
	stage_cursor_fini(&worker.cursor);
	digest_free(&worker.digest);
	unseal_free(&worker.unseal);
	fetch_free(&worker.fetch);
	return NULL;
}
