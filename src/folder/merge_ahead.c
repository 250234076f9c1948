/* Merging ahead: while a folder is still being sent, what has come is put together already. Files' digests are known only at the end: until then
 * nothing of this counts, and nothing is recorded, reopened or waited for beyond some patience. When the transfer goes to merging, the same run goes
 * on: it compares every file with its digest, and what differs or is missing is pulled as by any merge. A run that gives up leaves nothing behind,
 * and the merge begins from nothing, as if it had never been. */
#include "folder/merge_impl.h"

#include <fcntl.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "sys/fs.h"

#define RECORDS_FILE     "records"
#define CHECK_US         (250 * MSEC_US)
#define STEP_US          (100 * MSEC_US) /* so long a wait may last when everything ends */
#define PATIENCE_US      (60 * SEC_US)   /* without receipts */
#define HURRY_US         (10 * SEC_US)   /* the same, while other transfers wait for a thread */
#define TRIES_MAX        3               /* an object, while sending goes on */
#define TRY_AGAIN_US     (300 * MSEC_US)
#define RUNS_MAX         4 /* of a transfer, that came to nothing */
#define RUN_AGAIN_US     (5 * SEC_US)
#define JOBS_WAITING_MAX 64
#define SPACE_FACTOR     2  /* times what is still to come, both to nodes and here */
#define SPACE_SHARE      10 /* and this part of the disk, where nodes have their own floors */

struct merge_ahead {
	struct merge_run *run;
	atomic_bool is_wanted;   /* the transfer is in state merging */
	atomic_bool is_settling; /* preparing is over: it is a merge like any other */
	atomic_uint_least64_t arrival_count;
	atomic_int_least64_t arrived_us, check_due_us;
	int records_fd;
	struct merge_ids ids; /* of the plan that it was laid out by */
	pthread_mutex_t lock; /* protects what follows, while pullers run */
	pthread_cond_t changed;
	bool *has; /* of each of them: it is in staging, with records of its files */
	uint64_t has_bytes;
};

/* --- what others ask --- */

bool merge_is_ahead(const struct merge_run *run)
{
	return run->ahead && !atomic_load_explicit(&run->ahead->is_settling, memory_order_relaxed);
}

bool merge_ahead_is_wanted(const struct merge_run *run) { return atomic_load(&run->ahead->is_wanted); }
uint64_t merge_ahead_arrivals(const struct merge_run *run) { return atomic_load(&run->ahead->arrival_count); }
int merge_records_fd(const struct merge_run *run) { return run->ahead->records_fd; }

/* NULL: an id that the plan did not have. */
static bool *has_place(const struct merge_ahead *ahead, uint64_t file_id)
{
	const size_t place = merge_ids_find(&ahead->ids, file_id);

	return place == MERGE_IDS_NONE ? NULL : &ahead->has[place];
}

bool merge_ahead_has(const struct merge_run *run, uint64_t file_id)
{
	const bool *place = has_place(run->ahead, file_id);

	return place && *place;
}

/* Every path is one object's in the plan that the tree was laid out by. An object that was planned anew since has paths of one that is no more,
 * which somebody here may still be making: it is left until nobody is. */
bool merge_ahead_wants(const struct merge_run *run, uint64_t file_id)
{
	return merge_is_ahead(run) ? has_place(run->ahead, file_id) != NULL : !merge_ahead_has(run, file_id);
}

void merge_ahead_lacks(struct merge_run *run, uint64_t file_id) { *has_place(run->ahead, file_id) = false; }

void merge_ahead_forget(struct merge_run *run)
{
	memset(run->ahead->has, 0, run->ahead->ids.count * sizeof(*run->ahead->has));
}

static void wake(struct merge_ahead *ahead)
{
	pthread_mutex_lock(&ahead->lock);
	pthread_cond_broadcast(&ahead->changed);
	pthread_mutex_unlock(&ahead->lock);
}

void merge_ahead_promote(struct merge_ahead *ahead)
{
	atomic_store(&ahead->is_wanted, true);
	wake(ahead);
}

void merge_ahead_give_up(struct merge_run *run, const char *why)
{
	if (!atomic_exchange(&run->is_given_up, true))
		log_say(LOG_INFO, "transfer %s: nothing more of it is put together ahead: %s", run->transfer.id, why);
	wake(run->ahead);
}

void merge_ahead_wait(struct merge_run *run, uint64_t seen, int64_t wait_us)
{
	struct merge_ahead *ahead = run->ahead;
	struct timespec until = merge_deadline(min_i64(wait_us, STEP_US));
	int result = 0;

	pthread_mutex_lock(&ahead->lock);
	while (result == 0 && (seen == MERGE_ANY_ARRIVALS || atomic_load(&ahead->arrival_count) == seen) &&
	       !atomic_load(&ahead->is_wanted) && !merge_is_over(run))
		result = pthread_cond_timedwait(&ahead->changed, &ahead->lock, &until);
	pthread_mutex_unlock(&ahead->lock);
}

bool merge_ahead_pulled(struct merge_run *run, const struct store_object *object, bool is_done, unsigned try_count)
{
	struct merge_ahead *ahead = run->ahead;

	if (!is_done && !merge_is_over(run) && !atomic_load(&ahead->is_wanted) && try_count < TRIES_MAX) {
		merge_ahead_wait(run, MERGE_ANY_ARRIVALS, TRY_AGAIN_US);
		return true;
	}
	if (is_done) {
		pthread_mutex_lock(&ahead->lock);
		*has_place(ahead, object->file_id) = true;
		ahead->has_bytes += object->size_bytes;
		pthread_mutex_unlock(&ahead->lock);
	} else if (atomic_load(&ahead->is_wanted)) {
		/* Whatever is wrong, the merge proper says and settles it. */
		merge_end_list(run);
	}
	return false;
}

/* --- is it still worth it? --- */

/* Nodes may keep their chunks on the same disk, and those come first: running ahead must not be why one of them is full. */
static bool has_space(struct merge_run *run, const struct store_transfer *now)
{
	struct merge *merge = run->merge;
	struct fs_space space;

	if (fs_space(merge->staging_fd, &space, NULL) < 0)
		return false;
	pthread_mutex_lock(&run->ahead->lock);
	uint64_t has_bytes = run->ahead->has_bytes;
	pthread_mutex_unlock(&run->ahead->lock);
	uint64_t to_copy = now->total_bytes > has_bytes ? now->total_bytes - has_bytes : 0;
	uint64_t to_send = now->total_bytes > now->stored_bytes ? now->total_bytes - now->stored_bytes : 0;
	uint64_t kept = space.total_bytes / SPACE_SHARE + merge->options.free_floor_bytes;

	return space.free_bytes > kept && (space.free_bytes - kept) / SPACE_FACTOR >= to_copy &&
	       (space.free_bytes - kept) / SPACE_FACTOR - to_copy >= to_send &&
	       (space.inodes_total == 0 || space.inodes_free / SPACE_FACTOR >= now->entry_count);
}

/* Does another transfer wait for a thread that merges ahead? */
static bool has_others_waiting(struct merge *merge)
{
	bool result = false;

	pthread_mutex_lock(&merge->lock);
	for (const struct merge_job *job = merge->jobs; job && !result; job = job->next)
		result = job->is_ahead && !job->is_running;
	pthread_mutex_unlock(&merge->lock);
	return result;
}

void merge_ahead_check(struct merge_run *run)
{
	struct merge_ahead *ahead = run->ahead;
	struct store *store = run->merge->store;
	struct store_transfer now;
	struct err err = ERR_INIT;
	int64_t now_us = clock_mono_us(), due_us = atomic_load(&ahead->check_due_us);

	/* One puller looks for all. */
	if (now_us < due_us || atomic_load(&ahead->is_wanted) || merge_is_over(run) ||
	    !atomic_compare_exchange_strong(&ahead->check_due_us, &due_us, now_us + CHECK_US))
		return;
	if (store->ops->transfer_get(store, run->transfer.id, &now, &err) < 0) {
		merge_ahead_give_up(run, err.text);
		return;
	}
	/* Merging: the queue says so presently. */
	if (now.state == TRANSFER_MERGING)
		return;
	if (now.state != TRANSFER_UPLOADING) {
		merge_ahead_give_up(run, "its sending has ended");
		return;
	}
	if (!has_space(run, &now)) {
		merge_ahead_give_up(run, "space is getting short in the final store");
		return;
	}
	int64_t idle_us = now_us - atomic_load(&ahead->arrived_us);
	if (idle_us > PATIENCE_US || (idle_us > HURRY_US && has_others_waiting(run->merge)))
		merge_ahead_give_up(run, "nothing of it has come for a while");
}

/* --- one run --- */

static int open_records(struct merge_run *run, struct err *err)
{
	struct merge_ahead *ahead = run->ahead;

	ahead->records_fd = openat(run->stage.home_fd, RECORDS_FILE, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	return ahead->records_fd >= 0 ? 0 : err_sys(err, ERR_SYSTEM, errno, "cannot make the records in staging");
}

/* 0: prepared, as far as that went, and the transfer is in state merging. Negative: given up. */
static int prepare(struct merge_run *run, struct err *err)
{
	struct merge_ahead *ahead = run->ahead;

	int result = stage_open(&run->stage, run->merge->staging_fd, run->transfer.id, err);
	if (result < 0)
		return result;
	result = open_records(run, err);
	if (result == 0)
		result = merge_lay_out_ahead(run, &ahead->ids, err);
	if (result < 0) {
		stage_close(&run->stage);
		return result;
	}
	ahead->has = must_zalloc(ahead->ids.count + 1, sizeof(*ahead->has));
	if (run->transfer.object_count > 0)
		merge_pull_all(run, run->transfer.object_count);
	while (!atomic_load(&ahead->is_wanted) && !merge_is_over(run)) {
		merge_ahead_check(run);
		merge_ahead_wait(run, merge_ahead_arrivals(run), STEP_US);
	}
	if (!merge_is_over(run))
		return 0;
	stage_close(&run->stage);
	if (run->is_failed) {
		*err = run->failure;
		return -(int)err->code;
	}
	return err_set(err, ERR_CLOSED, "it was given up");
}

static void note_in_vain(struct merge *merge, const char *id)
{
	struct merge_ahead_note *note = NULL;

	pthread_mutex_lock(&merge->lock);
	for (size_t i = 0; i < MERGE_AHEAD_NOTES && !note; i++)
		if (strcmp(merge->ahead_notes[i].id, id) == 0)
			note = &merge->ahead_notes[i];
	if (!note) {
		note = &merge->ahead_notes[merge->ahead_note_next++ % MERGE_AHEAD_NOTES];
		*note = (struct merge_ahead_note){ .count = 0 };
		str_copy(str_from(id), note->id, sizeof(note->id));
	}
	note->not_before_us = clock_mono_us() + (RUN_AGAIN_US << note->count++);
	pthread_mutex_unlock(&merge->lock);
}

/* The transfer is in state merging: from here on the run is a merge like any other, which has a good deal of its work behind it. */
static void go_on(struct merge_run *run)
{
	struct store *store = run->merge->store;
	struct err err = ERR_INIT;

	log_say(LOG_INFO, "transfer %s: %" PRIu64 " of its %" PRIu64 " bytes were put together ahead", run->transfer.id,
		run->ahead->has_bytes, run->transfer.total_bytes);
	run->page_next = run->page_count = 0;
	run->last_file_id = 0;
	run->is_listed = false;
	atomic_store(&run->ahead->is_settling, true);
	int result = store->ops->transfer_get(store, run->transfer.id, &run->transfer, &err);
	if (result == 0 && run->transfer.state == TRANSFER_MERGING) {
		merge_transfer(run);
		return;
	}
	stage_close(&run->stage);
	merge_clear_stage(run);
	if (result < 0)
		merge_end_unrecorded(run, &err, "anything");
}

static void run_ahead(struct merge_run *run)
{
	struct err err = ERR_INIT;

	if (!has_space(run, &run->transfer)) {
		note_in_vain(run->merge, run->transfer.id);
		return;
	}
	if (prepare(run, &err) == 0) {
		go_on(run);
		return;
	}
	if (atomic_load(&run->merge->is_stopping))
		return;
	if (err.code != ERR_CLOSED)
		log_err(LOG_INFO, &err, "transfer %s: nothing more of it is put together ahead", run->transfer.id);
	merge_clear_stage(run);
	note_in_vain(run->merge, run->transfer.id);
}

bool merge_run_ahead(struct merge *merge, struct merge_job *job)
{
	struct merge_run *run = must_zalloc(1, sizeof(*run));
	struct merge_ahead *ahead = must_zalloc(1, sizeof(*ahead));
	struct err err = ERR_INIT;

	run->merge = merge;
	run->ahead = ahead;
	ahead->run = run;
	ahead->records_fd = -1;
	atomic_store(&ahead->arrived_us, clock_mono_us());
	pthread_mutex_init(&run->lock, NULL);
	pthread_mutex_init(&ahead->lock, NULL);
	merge_cond_init(&ahead->changed);
	str_copy(str_from(job->id), run->transfer.id, sizeof(run->transfer.id));
	pthread_mutex_lock(&merge->lock);
	job->ahead = run;
	if (!job->is_ahead)
		atomic_store(&ahead->is_wanted, true);
	pthread_mutex_unlock(&merge->lock);

	if (merge->store->ops->transfer_get(merge->store, job->id, &run->transfer, &err) < 0)
		log_err(LOG_WARN, &err, "transfer %s: it cannot be put together ahead", job->id);
	else if (run->transfer.state == TRANSFER_UPLOADING)
		run_ahead(run);
	pthread_mutex_lock(&merge->lock);
	job->ahead = NULL;
	pthread_mutex_unlock(&merge->lock);
	bool is_to_repeat = run->is_unrecorded || run->is_to_repeat;
	fs_close(&ahead->records_fd);
	pthread_cond_destroy(&ahead->changed);
	pthread_mutex_destroy(&ahead->lock);
	pthread_mutex_destroy(&run->lock);
	free(ahead->has);
	merge_ids_fini(&ahead->ids);
	free(ahead);
	free(run);
	return is_to_repeat;
}

/* --- the queue --- */

static bool may_begin_locked(const struct merge *merge, const char *id)
{
	unsigned waiting_count = 0;

	for (const struct merge_job *job = merge->jobs; job; job = job->next)
		waiting_count += job->is_ahead && !job->is_running;
	if (waiting_count >= JOBS_WAITING_MAX)
		return false;
	for (size_t i = 0; i < MERGE_AHEAD_NOTES; i++)
		if (strcmp(merge->ahead_notes[i].id, id) == 0)
			return merge->ahead_notes[i].count < RUNS_MAX &&
			       clock_mono_us() >= merge->ahead_notes[i].not_before_us;
	return true;
}

void merge_ahead(struct merge *merge, const char *transfer_id)
{
	if (merge->options.is_ahead_off)
		return;
	pthread_mutex_lock(&merge->lock);
	struct merge_job **link = &merge->jobs;
	while (*link && strcmp((*link)->id, transfer_id) != 0)
		link = &(*link)->next;
	if (*link && (*link)->ahead) {
		struct merge_ahead *ahead = (*link)->ahead->ahead;
		atomic_store(&ahead->arrived_us, clock_mono_us());
		atomic_fetch_add(&ahead->arrival_count, 1);
		wake(ahead);
	} else if (!*link && may_begin_locked(merge, transfer_id)) {
		*link = must_zalloc(1, sizeof(**link));
		str_copy(str_from(transfer_id), (*link)->id, sizeof((*link)->id));
		(*link)->is_ahead = true;
		pthread_cond_broadcast(&merge->changed);
	}
	pthread_mutex_unlock(&merge->lock);
}
