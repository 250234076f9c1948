#include "folder/merge_impl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "sys/fs.h"

#define STALE_US           (3600 * SEC_US) /* of a note that was being written when its process ended */
#define RESUME_LIMIT_COUNT 1000000

/* --- the queue --- */

struct merge_job *merge_next_job(struct merge_job *jobs, bool is_ahead, int64_t now_us, int64_t *ret_due_us)
{
	struct merge_job *next = NULL;

	*ret_due_us = 0;
	for (struct merge_job *job = jobs; job; job = job->next) {
		if (job->is_running || job->is_ahead != is_ahead)
			continue;
		if (job->due_us > now_us)
			*ret_due_us = *ret_due_us == 0 ? job->due_us : min_i64(*ret_due_us, job->due_us);
		else if (!next || job->priority > next->priority)
			next = job;
	}
	return next;
}

static void end_job_locked(struct merge *merge, struct merge_job *job, bool is_to_retry)
{
	job->is_running = false;
	job->due_us = is_to_retry && !job->is_wanted_again ? clock_mono_us() + merge->options.retry_after_us : 0;
	if (job->is_wanted_again || is_to_retry) {
		job->is_wanted_again = false;
		/* What a run ahead leaves is for the other threads. */
		pthread_cond_broadcast(&merge->changed);
		return;
	}
	struct merge_job **link = &merge->jobs;
	while (*link != job)
		link = &(*link)->next;
	*link = job->next;
	free(job);
}

static void wait_locked(struct merge *merge, int64_t due_us)
{
	struct timespec until = { .tv_sec = (time_t)(due_us / SEC_US), .tv_nsec = (long)(due_us % SEC_US) * 1000 };

	if (due_us == 0)
		pthread_cond_wait(&merge->changed, &merge->lock);
	else
		pthread_cond_timedwait(&merge->changed, &merge->lock, &until);
}

/* is_ahead: for transfers that are still being sent, else for those that are to be merged. */
static void work(struct merge *merge, bool is_ahead)
{
	int64_t due_us;

	pthread_mutex_lock(&merge->lock);
	while (!atomic_load(&merge->is_stopping)) {
		struct merge_job *job = merge_next_job(merge->jobs, is_ahead, clock_mono_us(), &due_us);
		if (!job) {
			wait_locked(merge, due_us);
			continue;
		}
		job->is_running = true;
		pthread_mutex_unlock(&merge->lock);
		bool is_to_retry = is_ahead ? merge_run_ahead(merge, job) : merge_run_job(merge, job);
		pthread_mutex_lock(&merge->lock);
		end_job_locked(merge, job, is_to_retry);
	}
	pthread_mutex_unlock(&merge->lock);
}

static void *merge_main(void *arg)
{
	work(arg, false);
	return NULL;
}

static void *ahead_main(void *arg)
{
	work(arg, true);
	return NULL;
}

void merge_enqueue(struct merge *merge, const char *transfer_id, int priority)
{
	struct merge_job **link = &merge->jobs;

	pthread_mutex_lock(&merge->lock);
	while (*link && strcmp((*link)->id, transfer_id) != 0)
		link = &(*link)->next;
	if (*link) {
		/* It may just be leaving the state that it comes back to: looked at once more when it ends. */
		(*link)->is_wanted_again = (*link)->is_running;
		(*link)->is_ahead = false;
		(*link)->due_us = 0;
		if ((*link)->ahead)
			merge_ahead_promote((*link)->ahead->ahead);
	} else {
		*link = must_zalloc(1, sizeof(**link));
		str_copy(str_from(transfer_id), (*link)->id, sizeof((*link)->id));
	}
	(*link)->priority = priority;
	pthread_cond_broadcast(&merge->changed);
	pthread_mutex_unlock(&merge->lock);
}

void merge_progress(struct merge *merge, const char *transfer_id, uint64_t *ret_files, uint64_t *ret_bytes)
{
	*ret_files = *ret_bytes = 0;
	pthread_mutex_lock(&merge->lock);
	for (const struct merge_job *job = merge->jobs; job; job = job->next) {
		const struct merge_run *run = job->run ? job->run : job->ahead;
		if (!run || strcmp(job->id, transfer_id) != 0)
			continue;
		*ret_files = atomic_load(&run->merged_files);
		*ret_bytes = atomic_load(&run->merged_bytes);
		break;
	}
	pthread_mutex_unlock(&merge->lock);
}

/* --- start and stop --- */

static int open_folder(const char *path, const char *what, struct err *err)
{
	int result = fs_make_dirs(path, err);

	if (result == 0)
		result = fs_open_dir(path, err);
	return result < 0 ? err_wrap(err, "while opening the %s folder", what) : result;
}

static int open_folders(struct merge *merge, struct err *err)
{
	struct stat staging, final;
	char system_path[PATH_MAX];

	merge->staging_fd = open_folder(merge->staging_dir, "staging", err);
	if (merge->staging_fd < 0 || merge->bucket)
		return merge->staging_fd < 0 ? merge->staging_fd : 0;
	merge->final_fd = open_folder(merge->final_dir, "final", err);
	if (merge->final_fd < 0)
		return merge->final_fd;
	if (fstat(merge->staging_fd, &staging) < 0 || fstat(merge->final_fd, &final) < 0)
		return err_sys(err, ERR_SYSTEM, errno, "cannot look at the staging and final folders");
	/* At each start staging is cleared of what is named like a transfer. */
	if (staging.st_dev == final.st_dev && staging.st_ino == final.st_ino) {
		err_set(err, ERR_CONFIG, "'%s' is both the staging and the final folder", merge->final_dir);
		err_hint(err, "set staging_dir to a folder of its own beside final_dir");
		return -ERR_CONFIG;
	}
	if (staging.st_dev != final.st_dev) {
		err_set(err, ERR_CONFIG,
			"the staging folder '%s' and the final folder '%s' are on different file systems",
			merge->staging_dir, merge->final_dir);
		err_hint(err, "a folder appears at once by a rename, which needs one file system: set staging_dir "
			      "beside final_dir");
		return -ERR_CONFIG;
	}
	if (mkdirat(merge->final_fd, MERGE_SYSTEM_FOLDER, 0755) < 0 && errno != EEXIST)
		return err_sys(err, ERR_SYSTEM, errno, "cannot make '%s/" MERGE_SYSTEM_FOLDER "'", merge->final_dir);
	merge->system_fd = fs_open_beneath(merge->final_fd, MERGE_SYSTEM_FOLDER, O_RDONLY | O_DIRECTORY, 0, err);
	if (merge->system_fd < 0)
		return merge->system_fd;
	if (snprintf(system_path, sizeof(system_path), "%s/" MERGE_SYSTEM_FOLDER, merge->final_dir) <
	    (int)sizeof(system_path))
		fs_clean_replaced(system_path, STALE_US);
	return fs_sync_dir(merge->final_fd, "the final folder", err);
}

/* Left by a merge that ended with the process. Only what is named like a transfer is touched; those that are still in state merging are cleared by
 * their own merge. */
static int clear_staging(struct merge *merge, struct err *err)
{
	struct store_transfer transfer;
	int fd = openat(merge->staging_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	int result = 0;

	if (!dir) {
		fs_close(&fd);
		return err_sys(err, ERR_SYSTEM, errno, "cannot read the staging folder '%s'", merge->staging_dir);
	}
	for (struct dirent *item = readdir(dir); item && result == 0; item = readdir(dir)) {
		if (!ulid_is_valid(item->d_name, strlen(item->d_name)))
			continue;
		int found = merge->store->ops->transfer_get(merge->store, item->d_name, &transfer, err);
		if (found < 0 && found != -ERR_NO_TRANSFER)
			result = found;
		else if (found < 0 || transfer.state != TRANSFER_MERGING)
			result = stage_remove(merge->staging_fd, item->d_name, err);
	}
	closedir(dir);
	return result;
}

static int on_resumed(void *owner, const struct store_transfer *transfer)
{
	merge_enqueue(owner, transfer->id, transfer->priority);
	return 0;
}

static int start(struct merge *merge, struct err *err)
{
	struct store *store = merge->store;

	int result = open_folders(merge, err);
	if (result == 0)
		result = clear_staging(merge, err);
	if (result == 0)
		result = store->ops->transfer_list(store, NULL, 1u << TRANSFER_MERGING, RESUME_LIMIT_COUNT, on_resumed,
						   merge, err);
	if (result < 0)
		return result;
	while (merge->thread_count < COUNT_OF(merge->threads)) {
		int number = pthread_create(&merge->threads[merge->thread_count], NULL,
					    merge->thread_count < MERGE_THREAD_COUNT ? merge_main : ahead_main, merge);
		if (number != 0)
			return err_sys(err, ERR_SYSTEM, number, "cannot start a merging thread");
		merge->thread_count++;
	}
	return 0;
}

int merge_start(const struct merge_options *options, struct store *store, struct pool *pool, struct merge **ret_merge,
		struct err *err)
{
	struct merge *merge = must_zalloc(1, sizeof(*merge));

	merge->options = *options;
	merge->staging_dir = must_strdup(options->staging_dir);
	merge->final_dir = must_strdup(options->final_dir);
	merge->options.staging_dir = merge->staging_dir;
	merge->options.final_dir = merge->final_dir;
	merge->options.object_limit_count = (unsigned)min_i64(max_i64(options->object_limit_count, 1),
							      MERGE_PULLERS_MAX);
	if (options->retry_after_us == 0)
		merge->options.retry_after_us = MERGE_RETRY_US;
	if (options->pull_try_limit == 0)
		merge->options.pull_try_limit = MERGE_TRIES_MAX;
	merge->options.node_connection_limit = options->node_connection_limit > 0 ? options->node_connection_limit : 1;
	merge->bucket = options->bucket;
	merge->final = merge->bucket ? &final_s3_ops : &final_dir_ops;
	merge->store = store;
	merge->pool = pool;
	merge->staging_fd = merge->final_fd = merge->system_fd = -1;
	pthread_mutex_init(&merge->lock, NULL);
	merge_cond_init(&merge->changed);

	int result = start(merge, err);
	if (result < 0) {
		merge_stop(&merge);
		return err_wrap(err, "while starting to merge");
	}
	*ret_merge = merge;
	return 0;
}

void merge_stop(struct merge **merge_ref)
{
	struct merge *merge = *merge_ref;

	if (!merge)
		return;
	pthread_mutex_lock(&merge->lock);
	atomic_store(&merge->is_stopping, true);
	pthread_cond_broadcast(&merge->changed);
	pthread_mutex_unlock(&merge->lock);
	for (unsigned i = 0; i < merge->thread_count; i++)
		pthread_join(merge->threads[i], NULL);
	for (struct merge_job *job = merge->jobs, *next; job; job = next) {
		next = job->next;
		free(job);
	}
	merge_nodes_free(merge);
	fs_close(&merge->system_fd);
	fs_close(&merge->final_fd);
	fs_close(&merge->staging_fd);
	pthread_cond_destroy(&merge->changed);
	pthread_mutex_destroy(&merge->lock);
	free(merge->staging_dir);
	free(merge->final_dir);
	free(merge);
	*merge_ref = NULL;
}

void merge_final_path(const struct merge *merge, struct str batch, char *target, size_t target_size)
{
	snprintf(target, target_size, "%s/%.*s", merge->final_dir, STR_ARG(batch));
}

bool merge_batch_exists(const struct merge *merge, struct str batch)
{
	char name[STORE_BATCH_MAX + 1];

	return str_copy(batch, name, sizeof(name)) && merge->final->exists(merge, name);
}

bool merge_batch_is_in_place(const struct merge *merge, struct str batch)
{
	return merge->final->is_remote || merge_batch_exists(merge, batch);
}

int merge_open_manifest(const struct merge *merge, const struct store_transfer *transfer, struct err *err)
{
	return merge->final->open_manifest(merge, transfer, err);
}

bool merge_is_bucket(const struct merge *merge) { return merge->bucket != NULL; }
