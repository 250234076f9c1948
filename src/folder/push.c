#include "folder/push.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "folder/batch.h"
#include "folder/push_impl.h"
#include "sys/fs.h"

#define PUSH_GIVE_UP_US      (60 * SEC_US)
#define PUSH_POLL_US         (200 * MSEC_US)
#define PUSH_STUCK_PASSES    5
#define PUSH_MERGE_RETURNS   4
#define PUSH_MERGE_PUT_OFFS  2
#define PUSH_CHUNK_BYTES_MAX GIB
/* The scheduler reads a million entries and writes its plan before it answers. */
#define PUSH_PLANNING_STALL_US (180 * SEC_US)
#define PUSH_URL_SIZE          8192

/* --- what is pushed --- */
/* A transfer that is named by its id has its batch; one that is asked for by name as well must fit. */
static bool push_tells_batch(const struct push *push)
{
	return push->options->resume == NULL || push->options->batch.size > 0;
}

/* The folder's absolute path gives the default batch name, and with the host's name the source by which a later push is recognised. */
static int push_name_source(struct push *push, struct push_result *result, struct err *err)
{
	AUTO(fs_close) int fd = open(push->options->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return err_sys(err, ERR_SOURCE, errno, "opening the folder '%s'", push->options->folder);
	char path[PATH_MAX];
	if (realpath(push->options->folder, path) == NULL)
		return err_sys(err, ERR_SOURCE, errno, "finding the absolute path of '%s'", push->options->folder);
	char host[256] = "", text[PATH_MAX + 300];
	if (gethostname(host, sizeof(host) - 1) < 0)
		snprintf(host, sizeof(host), "unknown");
	int size = snprintf(text, sizeof(text), "%s:%s", host, path);
	push->source = must_alloc(3 * (size_t)size + 1);
	percent_encode((struct str){ text, (size_t)size }, true, push->source, 3 * (size_t)size + 1);
	struct str batch = push->options->batch.size > 0 ? push->options->batch : str_from(strrchr(path, '/') + 1);
	/* A transfer that is named by its id has its batch: the folder's name is only shown, cut if need be. */
	if (push_tells_batch(push)) {
		int r = batch_check(batch, err);
		if (r < 0)
			return r;
	}
	(void)str_copy((struct str){ batch.data, min_size(batch.size, sizeof(result->batch) - 1) }, result->batch,
		       sizeof(result->batch));
	push->root_fd = fd;
	fd = -1;
	return 0;
}

static void push_walk_problem(void *owner, struct str path, const char *reason)
{
	struct push *push = owner;
	if (push->options->problem != NULL)
		push->options->problem(push->options->owner, path, reason);
}

static void push_walk_tick(void *owner, uint64_t file_count, uint64_t total_bytes)
{
	struct push *push = owner;
	push->progress.files_total = file_count;
	push->progress.bytes_total = total_bytes;
	push_tick(push, "scan", false);
}

static int push_scan(struct push *push, struct push_result *result, struct err *err)
{
	push_tick(push, "scan", true);
	push->manifest_fd = fs_temp_file(err);
	if (push->manifest_fd < 0)
		return -(int)err->code;
	push->digests_fd = fs_temp_file(err);
	if (push->digests_fd < 0)
		return -(int)err->code;
	struct walk_options options = { .links = push->options->links,
					.is_sealed = push->key != NULL,
					.cipher = push->options->cipher,
					.is_interrupted = push->options->is_interrupted,
					.tick = push_walk_tick };
	int r = walk_folder(push->root_fd, &options, push->manifest_fd, push_walk_problem, push, &push->walk, err);
	result->skipped_count = push->walk.skipped_count;
	if (r < 0)
		return err_wrap(err, "scanning '%s'", push->options->folder);
	result->files = push->progress.files_total = push->walk.file_count;
	result->bytes = push->progress.bytes_total = push->walk.total_bytes;
	return 0;
}

/* --- what is known of the network --- */
static void push_recall(struct push *push)
{
	const struct push_options *options = push->options;
	push_learnt_read(options->state_dir, options->url, &push->learnt);
	if (options->network == PUSH_NETWORK_LAN)
		push->learnt.chunk_bytes = PUSH_LEARNT_LAN_BYTES;
	if (options->network == PUSH_NETWORK_WAN)
		push->learnt.chunk_bytes = PUSH_LEARNT_WAN_BYTES;
	push->parallel = options->parallel > 0 ? options->parallel : push->learnt.parallel;
	if (push->parallel == 0)
		push->parallel = PUSH_PACE_START;
	if (push->parallel > PUSH_PARALLEL_MAX)
		push->parallel = PUSH_PARALLEL_MAX;
}

/* Whatever came of the push: what it measured is true. */
static void push_remember(struct push *push)
{
	struct push_learnt old, now;
	/* A rate that was asked for says nothing about the network. */
	if (push->chunks == NULL || push->options->limit_rate_bytes > 0 ||
	    !push_learnt_from(&push->pace, push->round_trip_us, &now))
		return;
	push_learnt_read(push->options->state_dir, push->options->url, &old);
	if (push->options->parallel > 0)
		now.parallel = old.parallel > 0 ? old.parallel : PUSH_PACE_START;
	push_learnt_write(push->options->state_dir, push->options->url, &old, &now);
}

/* --- the transfer --- */
static int push_create_url(const struct push *push, const char *name, char *target, size_t target_size, struct err *err)
{
	const struct push_options *options = push->options;
	char batch[3 * PUSH_BATCH_SIZE + 1];
	/* What was learnt is a wish: a transfer that is under way stays as it was cut. */
	bool is_asked = options->chunk_bytes > 0;
	uint64_t chunk_bytes = is_asked ? options->chunk_bytes : push->learnt.chunk_bytes;

	percent_encode(push_tells_batch(push) ? str_from(name) : STR_NONE, false, batch, sizeof(batch));
	int size = snprintf(target, target_size, "%s/api/v1/transfers?batch=%s&digest=%s&source=%s&priority=%d%s",
			    options->url, batch, digest_name(options->digest), push->source, options->priority,
			    options->is_dry_run ? "&dry_run=1" : "");
	if (chunk_bytes > 0 && size < (int)target_size)
		size += snprintf(target + size, target_size - (size_t)size, "&%s=%llu",
				 is_asked ? "chunk_size" : "chunk_wish", (unsigned long long)chunk_bytes);
	if (options->copies > 0 && size < (int)target_size)
		size += snprintf(target + size, target_size - (size_t)size, "&copies=%u", options->copies);
	if (push->key != NULL && size < (int)target_size) {
		char label[SEAL_LABEL_SIZE];
		seal_label(options->cipher, push->key->id, label);
		size += snprintf(target + size, target_size - (size_t)size, "&seal=%s", label);
	}
	if (options->resume != NULL && size < (int)target_size)
		size += snprintf(target + size, target_size - (size_t)size, "&resume=%s", options->resume);
	if (size >= (int)target_size)
		return err_set(err, ERR_LIMIT,
			       "the names of the scheduler, the batch and the folder are too long together");
	return 0;
}

/* Of a transfer that was named by its id. */
static void push_take_batch(const json_t *root, char target[PUSH_BATCH_SIZE])
{
	struct str encoded = str_from(push_json_text(root, "batch_enc"));
	char raw[3 * PUSH_BATCH_SIZE];
	size_t size = 0;

	if (encoded.size < sizeof(raw) && percent_decode(encoded, raw, sizeof(raw), &size))
		(void)str_copy((struct str){ raw, size }, target, PUSH_BATCH_SIZE);
}

static int push_create(struct push *push, struct push_result *result, struct err *err)
{
	char url[PUSH_URL_SIZE + 3 * PATH_MAX], crc_header[64];
	int r = push_create_url(push, result->batch, url, sizeof(url), err);
	if (r < 0)
		return r;
	snprintf(crc_header, sizeof(crc_header), "X-Manifest-CRC32C: %08x", push->walk.crc32c);
	push_tick(push, "plan", true);
	struct push_ask ask = { .method = "POST",
				.what = "announcing the folder to the scheduler",
				.url = url,
				.body_fd = push->manifest_fd,
				.body_size = (int64_t)push->walk.manifest_bytes,
				.header = crc_header,
				.stall_us = PUSH_PLANNING_STALL_US };
	json_t *root;
	r = push_ask(push, &ask, &root, err);
	if (r < 0)
		return r;
	r = push_take_transfer(push, root, err);
	if (r == 0 && push->options->resume != NULL)
		push_take_batch(root, result->batch);
	json_decref(root);
	if (r < 0)
		return r;
	result->chunks = push->progress.chunks_total = push->chunk_count;
	if (push->options->is_dry_run)
		return 0;
	push->was_completed = push->state == PUSH_COMPLETED;
	if (push->transfer_id[0] == '\0' || push->chunk_bytes == 0 || push->chunk_bytes > PUSH_CHUNK_BYTES_MAX ||
	    push->object_count > push->walk.entry_count)
		return err_set(err, ERR_PEER, "the scheduler's answer to the manifest does not fit the folder");
	return 0;
}

int push_ask_transfer(struct push *push, const char *method, const char *suffix, const char *what, struct err *err)
{
	char url[PUSH_URL_SIZE];
	snprintf(url, sizeof(url), "%s/api/v1/transfers/%s%s", push->options->url, push->transfer_id, suffix);
	struct push_ask ask = { .method = method, .what = what, .url = url, .body_fd = -1 };
	json_t *root;
	int r = push_ask(push, &ask, &root, err);
	if (r < 0)
		return r;
	r = push_take_transfer(push, root, err);
	json_decref(root);
	return r;
}

/* A failed transfer stays so: cancelled, expired, superseded or given up by the merge. */
static int push_failed(const struct push *push, struct err *err)
{
	err_set(err, ERR_REFUSED, "the transfer failed: %s",
		push->reason[0] != '\0' ? push->reason : "no reason was given");
	err_hint(err, "the same heng push again begins a new transfer");
	return -(int)ERR_REFUSED;
}

int push_refused_for_state(struct push *push, int r, struct err *err)
{
	struct err ask_err = ERR_INIT;
	if (r != -(int)ERR_STATE)
		return r;
	if (push_ask_transfer(push, "GET", "", "asking for the transfer's state", &ask_err) == 0 &&
	    push->state == PUSH_FAILED)
		return push_failed(push, err);
	return r;
}

static int push_bind_digests(struct push *push, struct err *err)
{
	int r = push_digests_flush(push, err);
	if (r < 0 || push->shared.digests_size == 0)
		return r;
	char url[PUSH_URL_SIZE];
	snprintf(url, sizeof(url), "%s/api/v1/transfers/%s/digests", push->options->url, push->transfer_id);
	struct push_ask ask = { .method = "POST",
				.what = "giving the files' digests to the scheduler",
				.url = url,
				.body_fd = push->digests_fd,
				.body_size = push->shared.digests_size,
				.stall_us = PUSH_PLANNING_STALL_US };
	json_t *root;
	r = push_ask(push, &ask, &root, err);
	json_decref(root);
	if (r < 0)
		return r;
	/* Bound durably: a later pass brings only what it reads anew. */
	push->shared.digests_size = 0;
	return 0;
}

/* --- a pass over the plan --- */
/* Has everything come to its end? Negative: a reader met something that stops the push. */
static int push_pass_state(struct push *push, struct err *err)
{
	struct push_shared *shared = &push->shared;
	pthread_mutex_lock(&shared->lock);
	bool is_idle = shared->object_count == 0 && shared->ready.head == NULL;
	int r = 0;
	if (shared->fatal.code != ERR_NONE) {
		*err = shared->fatal;
		r = -(int)err->code;
	}
	pthread_mutex_unlock(&shared->lock);
	if (r < 0)
		return r;
	return push->is_state_changed ||
	       (is_idle && push->is_plan_finished && push->sending_count + push->waiting_count == 0);
}

static int push_give_up(struct push *push, struct err *err)
{
	enum err_code code = push->last_err.code != ERR_NONE ? push->last_err.code : ERR_TIMEOUT;
	err_set(err, ERR_INCOMPLETE, "nothing was acknowledged for %lld s; last: %s (%s)",
		(long long)(push->give_up_us / SEC_US),
		push->last_err.code != ERR_NONE ? push->last_err.text : "no answer", err_word(code));
	return -(int)ERR_INCOMPLETE;
}

static int push_pass_run(struct push *push, struct err *err)
{
	for (;;) {
		int64_t now_us = clock_mono_us();
		int r = push_plan_step(push, now_us, err);
		if (r == 0)
			r = push_send_step(push, now_us, err);
		if (r == 0)
			r = push_pass_state(push, err);
		push_take_notes(push);
		if (r != 0)
			return r < 0 ? r : 0;
		if (push_is_interrupted(push))
			return err_set(err, ERR_WAITING, "interrupted: %llu of %llu chunks are stored",
				       (unsigned long long)push->progress.chunks_done,
				       (unsigned long long)push->chunk_count);
		/* While files are read and nothing is asked of anybody, nothing can be acknowledged. */
		if (push->sending_count + push->waiting_count == 0 && !push->is_plan_running &&
		    push->plan_try_count == 0)
			push->life_us = now_us;
		if (now_us - push->life_us > push->give_up_us)
			return push_give_up(push, err);
		if (now_us - push->life_us > PUSH_SILENCE_US && !push->is_budget_spent) {
			snprintf(push->waiting_text, sizeof(push->waiting_text), "%s",
				 push->last_err.code != ERR_NONE ? push->last_err.text : "no answer yet");
			push->progress.waiting_for = push->waiting_text;
		}
		push_tick(push, "send", false);
		fetch_step(push->fetch, push_send_wait_us(push, now_us));
	}
}

static int push_pass(struct push *push, struct err *err)
{
	int r = push_buffers_make(push, err);
	if (r < 0)
		return r;
	push->progress.bytes_done = push->progress.chunks_done = 0;
	push_tick(push, "send", true);
	r = push_read_begin(push, err);
	if (r < 0)
		return r;
	push_plan_begin(push);
	push_send_begin(push);
	r = push_pass_run(push, err);
	push_plan_end(push);
	push_read_end(push);
	push_send_end(push);
	push_take_notes(push);
	push->progress.waiting_for = NULL;
	return r;
}

/* --- to the end --- */
int push_pause(struct push *push, int64_t pause_us, struct err *err)
{
	int64_t until_us = clock_mono_us() + pause_us;
	for (int64_t now_us = clock_mono_us(); now_us < until_us; now_us = clock_mono_us()) {
		if (push_is_interrupted(push))
			return err_set(err, ERR_WAITING, "interrupted; the transfer goes on without this command");
		fetch_step(push->fetch, min_i64(until_us - now_us, 100 * MSEC_US));
		push_tick(push, push->progress.phase, false);
	}
	return 0;
}

static int push_await_merge(struct push *push, struct err *err)
{
	push_tick(push, "merge", true);
	for (;;) {
		if (push->state != PUSH_MERGING)
			return 0;
		push->progress.waiting_for = push->reason[0] != '\0' ? push->reason : NULL;
		int r = push_pause(push, PUSH_POLL_US, err);
		if (r < 0)
			return r;
		r = push_ask_transfer(push, "GET", "", "asking how the merge goes on", err);
		if (r < 0)
			return r;
	}
}

/* After a pass that left nothing out: bind, complete, wait. 1: everything is done. 0: chunks are wanted again. */
static int push_finish(struct push *push, struct err *err)
{
	push_tick(push, "merge", true);
	int r = push_refused_for_state(push, push_bind_digests(push, err), err);
	if (r < 0)
		return r;
	r = push_refused_for_state(push, push_ask_transfer(push, "POST", "/complete", "asking for the merge", err),
				   err);
	if (r == -ERR_INCOMPLETE) {
		push->last_err = *err;
		return 0;
	}
	if (r < 0)
		return r;
	r = push_await_merge(push, err);
	if (r < 0)
		return r;
	push->progress.waiting_for = NULL;
	if (push->state == PUSH_COMPLETED) {
		if (push->was_completed && !push->is_in_place && push->options->notice != NULL)
			push->options->notice(
				push->options->owner,
				"this folder has arrived before, and was taken out of the final store since; "
				"another --name sends it again");
		return 1;
	}
	if (push->state == PUSH_FAILED)
		return push_failed(push, err);
	if (push->missing_count == 0 && ++push->merge_put_off_count >= PUSH_MERGE_PUT_OFFS) {
		err_set(err, ERR_INCOMPLETE, "every chunk is stored, but the folder cannot be put together: %s",
			push->reason[0] != '\0' ? push->reason : "no reason was given");
		err_hint(err, "when that is mended, the same heng push again sends nothing and puts it together");
		return -(int)ERR_INCOMPLETE;
	}
	push->merge_return_count++;
	if (push->merge_return_count >= PUSH_MERGE_RETURNS)
		return err_set(err, ERR_INTEGRITY, "the merge gave chunks back %u times: %s", push->merge_return_count,
			       push->reason);
	if (push->options->notice != NULL)
		push->options->notice(push->options->owner,
				      push->reason[0] != '\0' ? push->reason : "the merge wants chunks again");
	return 0;
}

static int push_passes(struct push *push, struct err *err)
{
	unsigned stuck_count = 0;
	for (push->pass = 1;; push->pass++) {
		int r = push_pass(push, err);
		if (r == 0)
			r = push_pending_await(push, err);
		if (r < 0)
			return r;
		if (push->notes != NULL) {
			r = push_revise(push, err);
			if (r < 0)
				return r;
			stuck_count = 0;
			continue;
		}
		unsigned merge_return_count = push->merge_return_count;
		if (push->dropped_count == 0 && !push->is_state_changed) {
			r = push_finish(push, err);
			if (r != 0)
				return r < 0 ? r : 0;
		} else {
			r = push_ask_transfer(push, "GET", "", "asking for the transfer's state", err);
			if (r < 0)
				return r;
			if (push->state == PUSH_FAILED)
				return push_failed(push, err);
		}
		bool has_moved = push->acked_count > 0 || push->merge_return_count != merge_return_count;
		stuck_count = has_moved ? 0 : stuck_count + 1;
		if (stuck_count >= PUSH_STUCK_PASSES) {
			if (push->last_err.code == ERR_NONE)
				err_set(&push->last_err, ERR_INCOMPLETE, "the scheduler still misses chunks");
			return err_set(err, ERR_INCOMPLETE, "%u rounds brought no chunk further; last: %s", stuck_count,
				       push->last_err.text);
		}
		r = push_pause(push, stuck_count > 0 ? SEC_US << (stuck_count - 1) : 100 * MSEC_US, err);
		if (r < 0)
			return r;
	}
}

static int push_run(struct push *push, struct push_result *result, struct err *err)
{
	int r = push_name_source(push, result, err);
	if (r < 0)
		return r;
	int size = snprintf(push->api_key_header, sizeof(push->api_key_header), "X-Api-Key: %s",
			    push->options->api_key);
	if (size >= (int)sizeof(push->api_key_header) || strpbrk(push->options->api_key, "\r\n") != NULL)
		return err_set(err, ERR_USAGE, "the API key is too long or has a line break in it");
	r = fetch_new(&push->fetch, err);
	if (r < 0)
		return r;
	fetch_use_tls(push->fetch, push->options->tls);
	fetch_limit_rate(push->fetch, push->options->limit_rate_bytes);
	r = push->options->encrypt != NULL ? key_file_load(push->options->encrypt, &push->key, err) : 0;
	if (r == 0)
		r = push_scan(push, result, err);
	if (r < 0)
		return r;
	r = push_create(push, result, err);
	if (r < 0 || push->options->is_dry_run)
		return r;
	return push_passes(push, err);
}

static void push_fill_result(struct push *push, int r, struct push_result *result, struct err *err)
{
	static const char *const names[] = { "uploading", "merging", "completed", "failed" };
	bool is_created = push->transfer_id[0] != '\0';
	memcpy(result->transfer_id, push->transfer_id, sizeof(result->transfer_id));
	snprintf(result->state, sizeof(result->state), "%s",
		 push->options->is_dry_run && r == 0 ? "planned"
		 : is_created                        ? names[push->state]
						     : "");
	memcpy(result->final_path, push->final_path, sizeof(result->final_path));
	result->chunks_sent = push->progress.chunks_sent;
	result->retries = push->progress.retries;
	result->failovers = push->progress.failovers;
	result->changed_count = push->lost_count;
	result->revised_count = push->revised_count;
	result->bytes = push->walk.total_bytes;
	result->chunks = push->chunk_count;
	result->elapsed_us = clock_mono_us() - push->started_us;
	result->is_taken_away = r == 0 && push->was_completed && !push->is_in_place;
	if (r == 0)
		return;
	result->is_resumable = is_created && push->state != PUSH_FAILED && err->code != ERR_INTEGRITY &&
			       err->code != ERR_BATCH_EXISTS;
	if (err->hint[0] != '\0')
		return;
	if (result->is_resumable)
		err_hint(err,
			 "the same heng push again continues where this stopped, and so does heng push --resume %s",
			 push->transfer_id);
	else if (err->code == ERR_WAITING)
		err_hint(err, "no file was sent yet; the same heng push again sends them");
}

static void push_fini(struct push *push)
{
	push_buffers_free(push);
	free(push->shared.digested);
	free(push->nodes);
	free(push->source);
	push_pending_fini(push);
	buf_fini(&push->shared.digests);
	fetch_free(&push->fetch);
	fs_close(&push->root_fd);
	fs_close(&push->manifest_fd);
	fs_close(&push->digests_fd);
	pthread_cond_destroy(&push->shared.object_came);
	pthread_cond_destroy(&push->shared.planned_came);
	pthread_cond_destroy(&push->shared.buffer_came);
	pthread_mutex_destroy(&push->shared.lock);
	key_file_free(&push->key);
	mem_wipe(push->api_key_header, sizeof(push->api_key_header));
	mem_wipe(push->transfer_key, sizeof(push->transfer_key));
	free(push);
}

int push_folder(const struct push_options *options, struct push_result *ret_result, struct err *err)
{
	*ret_result = (struct push_result){ 0 };
	struct push *push = must_zalloc(1, sizeof(*push));
	push->options = options;
	push->started_us = clock_mono_us();
	push->root_fd = push->manifest_fd = push->digests_fd = -1;
	push->patience_us = options->give_up_us > 0 ? options->give_up_us : PUSH_GIVE_UP_US;
	push->give_up_us = push->patience_us;
	push_recall(push);
	push->nodes = must_zalloc(PUSH_NODES_MAX, sizeof(*push->nodes));
	push->progress.phase = "scan";
	push->progress.limit_rate_bytes = options->limit_rate_bytes;
	rng_seed_kernel(&push->rng);
	struct push_shared *shared = &push->shared;
	shared->object_tail = &shared->object_head;
	shared->note_tail = &shared->note_head;
	shared->digests = BUF_INIT(4 * MIB);
	pthread_mutex_init(&shared->lock, NULL);
	pthread_cond_init(&shared->object_came, NULL);
	pthread_cond_init(&shared->planned_came, NULL);
	pthread_cond_init(&shared->buffer_came, NULL);
	int r = push_run(push, ret_result, err);
	push_revise_end(push);
	if (r == 0) {
		*err = ERR_INIT;
		push_tick(push, "done", true);
	}
	push_remember(push);
	push_fill_result(push, r, ret_result, err);
	push_fini(push);
	return r;
}
