/* One attempt to merge one transfer, from what its pullers ask of it to how it is judged. */
#include "folder/merge_impl.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"

/* --- the run, as the pullers see it --- */

bool merge_is_over(const struct merge_run *run)
{
	return atomic_load_explicit(&run->is_given_up, memory_order_relaxed) ||
	       atomic_load_explicit(&run->merge->is_stopping, memory_order_relaxed);
}

void merge_fail(struct merge_run *run, const struct err *err, bool is_retryable)
{
	pthread_mutex_lock(&run->lock);
	if (!run->is_failed) {
		run->is_failed = true;
		run->is_retryable = is_retryable;
		run->failure = *err;
	}
	pthread_mutex_unlock(&run->lock);
	atomic_store(&run->is_given_up, true);
}

void merge_reopen_note(struct merge_run *run, const char *why)
{
	pthread_mutex_lock(&run->lock);
	if (run->reopened_count++ == 0)
		snprintf(run->reason, sizeof(run->reason), "%s", why);
	pthread_mutex_unlock(&run->lock);
	log_say(LOG_WARN, "transfer %s: %s", run->transfer.id, why);
}

void merge_reopened(struct merge_run *run, uint64_t count, const char *why)
{
	merge_reopen_note(run, why);
	if (count > 0 || run->transfer.copies < 2)
		return;
	pthread_mutex_lock(&run->lock);
	run->kept_count++;
	pthread_mutex_unlock(&run->lock);
}

void merge_reopen(struct merge_run *run, uint64_t file_id, const char *node_id, enum chunk_state state, const char *why)
{
	struct store *store = run->merge->store;
	struct err err = ERR_INIT;
	uint64_t count = 0;

	if (store->ops->chunks_reopen(store, run->transfer.id, file_id, node_id, state, why, clock_wall_us(), &count,
				      &err) < 0) {
		err_wrap(&err, "while opening chunks again (%s)", why);
		merge_fail(run, &err, true);
		return;
	}
	merge_reopened(run, count, why);
}

void merge_unpulled(struct merge_run *run)
{
	pthread_mutex_lock(&run->lock);
	run->unpulled_count++;
	pthread_mutex_unlock(&run->lock);
}

void merge_count(struct merge_run *run, uint64_t file_count, uint64_t bytes)
{
	atomic_fetch_add(&run->merged_files, file_count);
	atomic_fetch_add(&run->merged_bytes, bytes);
}

struct timespec merge_deadline(int64_t wait_us)
{
	int64_t until_us = clock_mono_us() + wait_us;

	return (struct timespec){ .tv_sec = (time_t)(until_us / SEC_US), .tv_nsec = (long)(until_us % SEC_US) * 1000 };
}

void merge_cond_init(pthread_cond_t *cond)
{
	pthread_condattr_t attributes;

	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(cond, &attributes);
	pthread_condattr_destroy(&attributes);
}

void merge_pause(struct merge *merge, int64_t wait_us)
{
	struct timespec until = merge_deadline(wait_us);

	pthread_mutex_lock(&merge->lock);
	/* Woken for nothing is no harm: the caller looks again. */
	if (!atomic_load(&merge->is_stopping))
		pthread_cond_timedwait(&merge->changed, &merge->lock, &until);
	pthread_mutex_unlock(&merge->lock);
}

void merge_end_list(struct merge_run *run)
{
	pthread_mutex_lock(&run->lock);
	run->is_listed = true;
	run->page_next = run->page_count;
	pthread_mutex_unlock(&run->lock);
}

static int on_object(void *owner, const struct store_object *object)
{
	struct merge_run *run = owner;

	if (run->page_count == COUNT_OF(run->page))
		return 1;
	run->page[run->page_count++] = *object;
	return 0;
}

static bool next_listed(struct merge_run *run, struct store_object *ret_object)
{
	struct store *store = run->merge->store;
	struct err err = ERR_INIT;
	int result = 0;

	pthread_mutex_lock(&run->lock);
	if (run->page_next == run->page_count && !run->is_listed) {
		run->page_next = run->page_count = 0;
		result = store->ops->objects(store, run->transfer.id, run->last_file_id, COUNT_OF(run->page), on_object,
					     run, &err);
		run->is_listed = result < 0 || run->page_count == 0;
		if (run->page_count > 0)
			run->last_file_id = run->page[run->page_count - 1].file_id;
	}
	bool is_found = result >= 0 && run->page_next < run->page_count;
	if (is_found)
		*ret_object = run->page[run->page_next++];
	pthread_mutex_unlock(&run->lock);
	if (result < 0) {
		err_wrap(&err, "while reading the objects of the transfer");
		merge_fail(run, &err, true);
	}
	return is_found;
}

bool merge_next_object(struct merge_run *run, struct store_object *ret_object)
{
	/* A run ahead leaves some for the end, and has put most of them there by then. */
	while (next_listed(run, ret_object))
		if (!run->ahead || merge_ahead_wants(run, ret_object->file_id))
			return true;
	return false;
}

static void *puller_main(void *arg)
{
	merge_pull_objects(arg);
	return NULL;
}

void merge_pull_all(struct merge_run *run, uint64_t object_count)
{
	unsigned limit = run->merge->options.object_limit_count;
	pthread_t threads[MERGE_PULLERS_MAX];
	unsigned count = 0;

	run->puller_count = object_count < limit ? (unsigned)object_count : limit;
	/* With few objects their chunks are pulled side by side; with many the objects are. */
	run->window_count = (unsigned)min_i64(max_i64(limit / run->puller_count, 1), MERGE_WINDOW_MAX);
	while (count + 1 < run->puller_count && pthread_create(&threads[count], NULL, puller_main, run) == 0)
		count++;
	/* This thread pulls too, so that a machine without threads to give still merges. */
	merge_pull_objects(run);
	for (unsigned i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
}

/* --- one attempt --- */

/* What a run ahead has made and what it lacks. It may all be of no use: entries were revised that are no objects'. */
static int settle(struct merge_run *run, uint64_t *ret_missing_count, struct err *err)
{
	bool is_stale;

	int result = merge_settle(run, &is_stale, ret_missing_count, err);
	if (result < 0 || !is_stale)
		return result;
	*ret_missing_count = run->transfer.object_count;
	stage_close(&run->stage);
	merge_ahead_forget(run);
	result = stage_open(&run->stage, run->merge->staging_fd, run->transfer.id, err);
	return result < 0 ? result : merge_lay_out(run, err);
}

/* 0: everything is in staging. Otherwise the run says why not. */
static int gather(struct merge_run *run, struct err *err)
{
	uint64_t missing_count = run->transfer.object_count;

	int result = run->ahead ? settle(run, &missing_count, err) : merge_lay_out(run, err);
	if (result < 0)
		return result;
	if (missing_count > 0)
		merge_pull_all(run, missing_count);
	return 0;
}

/* The second half of the proof, beside each file's digest: nothing of the plan was left out. */
static int check_coverage(const struct merge_run *run, struct err *err)
{
	const struct store_transfer *transfer = &run->transfer;

	uint64_t files = atomic_load(&run->merged_files), bytes = atomic_load(&run->merged_bytes);

	if (files == transfer->file_count && bytes == transfer->total_bytes)
		return 0;
	return err_set(err, ERR_INTEGRITY,
		       "%" PRIu64 " of %" PRIu64 " files and %" PRIu64 " of %" PRIu64 " bytes were merged", files,
		       transfer->file_count, bytes, transfer->total_bytes);
}

void merge_clear_stage(struct merge_run *run)
{
	struct err err = ERR_INIT;

	if (stage_remove(run->merge->staging_fd, run->transfer.id, &err) < 0)
		log_err(LOG_WARN, &err, "transfer %s: its staging folder stays until the next start", run->transfer.id);
}

static void merge_from_start(struct merge_run *run)
{
	struct err err = ERR_INIT;

	int result = run->ahead ? 0 : stage_open(&run->stage, run->merge->staging_fd, run->transfer.id, &err);
	if (result < 0) {
		merge_clear_stage(run);
		merge_end_in_failure(run, &err, true);
		return;
	}
	result = gather(run, &err);
	if (atomic_load(&run->merge->is_stopping)) {
		stage_close(&run->stage);
		return;
	}
	if (result == 0 && !run->is_failed && run->reopened_count == 0) {
		result = check_coverage(run, &err);
		if (result == 0)
			result = run->merge->final->publish(run, &err);
		/* Cut short by the end of the process: it goes on at the next start. */
		if (result == -ERR_WAITING && atomic_load(&run->merge->is_stopping)) {
			stage_close(&run->stage);
			return;
		}
		/* Should the folder be in place without being safely so, it must not be seen. In a bucket the last step is what makes it seen. */
		if (result < 0 && !run->merge->final->is_remote)
			merge_unpublish(run);
	}
	stage_close(&run->stage);
	if (run->is_failed)
		err = run->failure;
	if (!run->is_failed && result == 0 && run->reopened_count == 0) {
		merge_end_completed(run);
		merge_clear_stage(run);
		return;
	}
	/* First of all its space is given back: the database may need some to record how this ended. */
	merge_clear_stage(run);
	if (result == -ERR_STATE && !run->is_failed)
		log_err(LOG_WARN, &err, "transfer %s: its merge was given up", run->transfer.id);
	else if (run->is_failed || result < 0)
		merge_end_in_failure(run, &err, run->is_failed ? run->is_retryable : merge_is_passing(&err));
	else
		merge_end_reopened(run);
}

void merge_transfer(struct merge_run *run)
{
	struct err err = ERR_INIT;
	enum merge_placed placed = MERGE_NOT_PLACED;
	char shown[256];

	int result = run->merge->final->placed(run, &placed, &err);
	if (result == 0 && placed == MERGE_PLACED_BEFORE) {
		result = run->merge->final->withdraw(run, &err);
		placed = MERGE_NOT_PLACED;
	}
	if (run->ahead && (result < 0 || placed != MERGE_NOT_PLACED)) {
		stage_close(&run->stage);
		merge_clear_stage(run);
	}
	if (result < 0) {
		merge_end_in_failure(run, &err, true);
		return;
	}
	switch (placed) {
	case MERGE_NOT_PLACED:
	case MERGE_PLACED_BEFORE:
		merge_from_start(run);
		return;
	case MERGE_PLACED_BY_OTHER:
		err_set(&err, ERR_BATCH_EXISTS, "'%s' exists in the final folder already and is not this transfer's",
			str_display(str_from(run->transfer.batch), shown, sizeof(shown)));
		err_hint(&err, "move that folder away, or push under another batch name");
		merge_end_in_failure(run, &err, false);
		return;
	case MERGE_PLACED:
		break;
	}
	result = run->merge->final->publish_again(run, &err);
	if (result == -ERR_STORE) {
		merge_end_unrecorded(run, &err, "that its folder is in place");
		return;
	}
	/* What the file system refuses now it will refuse again. The chunks are there still: the next merge begins anew. */
	if (result < 0) {
		merge_unpublish(run);
		merge_end_in_failure(run, &err, true);
		return;
	}
	merge_end_completed(run);
	merge_clear_stage(run);
}

/* Whoever asks how far a merge has come looks at its run, under the merge's lock. */
static void show_run(struct merge *merge, struct merge_job *job, struct merge_run *run)
{
	pthread_mutex_lock(&merge->lock);
	job->run = run;
	pthread_mutex_unlock(&merge->lock);
}

bool merge_run_job(struct merge *merge, struct merge_job *job)
{
	struct merge_run *run = must_zalloc(1, sizeof(*run));
	struct err err = ERR_INIT;

	run->merge = merge;
	pthread_mutex_init(&run->lock, NULL);
	str_copy(str_from(job->id), run->transfer.id, sizeof(run->transfer.id));
	show_run(merge, job, run);
	if (merge->store->ops->transfer_get(merge->store, job->id, &run->transfer, &err) < 0)
		merge_end_unrecorded(run, &err, "anything");
	else if (run->transfer.state == TRANSFER_MERGING)
		merge_transfer(run);
	else if (run->transfer.state == TRANSFER_COMPLETED)
		merge_tell_hooks(run); /* its end was recorded, and yet the answer was that it might not have been */
	show_run(merge, job, NULL);
	bool is_to_repeat = run->is_unrecorded || run->is_to_repeat;
	pthread_mutex_destroy(&run->lock);
	free(run);
	return is_to_repeat;
}
