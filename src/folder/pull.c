#include "folder/pull.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "folder/place.h"
#include "folder/pull_impl.h"
#include "sys/fs.h"
#include "sys/quiet.h"

#define TICK_US    (100 * MSEC_US)
#define SHOWN_SIZE 300

/* --- what the threads share --- */

bool pull_is_over(const struct pull *pull)
{
	return atomic_load(&pull->is_over) || stored_is_interrupted(&pull->place);
}

void pull_fail(struct pull *pull, const struct err *err)
{
	pthread_mutex_lock(&pull->lock);
	/* Whoever fails because the pull is over already has nothing to tell. */
	if (!atomic_load(&pull->is_over)) {
		pull->failure = *err;
		pull->is_failed = true;
		atomic_store(&pull->is_over, true);
	}
	pthread_cond_broadcast(&pull->changed);
	pthread_mutex_unlock(&pull->lock);
}

void pull_note_retry(struct pull *pull, const struct err *err)
{
	atomic_fetch_add(&pull->retries, 1);
	pthread_mutex_lock(&pull->lock);
	pull->last = *err;
	pthread_mutex_unlock(&pull->lock);
}

void pull_note_life(struct pull *pull) { atomic_store(&pull->life_us, clock_mono_us()); }

void pull_await(struct pull *pull)
{
	pull_note_life(pull);
	atomic_fetch_add(&pull->awaiting_count, 1);
}

void pull_await_end(struct pull *pull) { atomic_fetch_sub(&pull->awaiting_count, 1); }

/* The lock is held. A signal wakes nobody, so no wait is longer than a tick. */
static void wait_a_tick(struct pull *pull)
{
	struct timespec until;

	(void)clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += (long)(TICK_US * 1000);
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	(void)pthread_cond_timedwait(&pull->changed, &pull->lock, &until);
}

struct pull_file *pull_take(struct pull *pull)
{
	struct pull_file *file = NULL;

	pthread_mutex_lock(&pull->lock);
	/* Who comes for the next file has ended one, and the pulling thread may be waiting for the last. */
	if (pull->is_closed)
		pthread_cond_broadcast(&pull->changed);
	while (pull->queue_count == 0 && !pull->is_closed && !pull_is_over(pull))
		wait_a_tick(pull);
	if (pull->queue_count > 0 && !pull_is_over(pull)) {
		file = pull->queue[pull->queue_first];
		pull->queue_first = (pull->queue_first + 1) % PULL_QUEUE_MAX;
		pull->queue_count--;
		pthread_cond_broadcast(&pull->changed);
	}
	pthread_mutex_unlock(&pull->lock);
	return file;
}

static void tell(const struct pull *pull, const char *waiting_for)
{
	struct push_progress progress = { .phase = "pull",
					  .waiting_for = waiting_for,
					  .files_total = pull->stored.file_count,
					  .bytes_total = pull->stored.total_bytes,
					  .files_done = atomic_load(&pull->files_done),
					  .bytes_done = atomic_load(&pull->bytes_done),
					  .retries = atomic_load(&pull->retries),
					  .elapsed_us = clock_mono_us() - pull->started_us };

	if (pull->options->progress)
		pull->options->progress(pull->options->owner, &progress);
}

/* Before there is a manifest. */
static void tell_waiting(void *owner, const char *text) { tell(owner, text); }

/* Says for what it waits, and gives the pull up when patience ends. */
static void tell_silence(struct pull *pull, int64_t silent_us)
{
	char text[STORED_TEXT_SIZE];
	struct err err = ERR_INIT, last;

	pthread_mutex_lock(&pull->lock);
	last = pull->last;
	pthread_mutex_unlock(&pull->lock);
	stored_waiting_text(&pull->place, silent_us, &last, text);
	tell(pull, text);
	if (silent_us < stored_give_up_us(&pull->place))
		return;
	(void)stored_given_up(&pull->place, silent_us, &last, &err);
	pull_fail(pull, &err);
}

/* --- the pulling thread --- */

struct walk_back {
	struct pull *pull;
	struct stage_cursor cursor;
	int64_t told_us;
	char empty_digest[DIGEST_HEX_SIZE];
};

static void tell_now_and_then(struct walk_back *walk)
{
	int64_t now_us = clock_mono_us();

	if (now_us - walk->told_us < TICK_US)
		return;
	walk->told_us = now_us;
	int64_t silent_us = now_us - atomic_load(&walk->pull->life_us);
	if (silent_us >= STORED_SILENCE_US && atomic_load(&walk->pull->awaiting_count) > 0)
		tell_silence(walk->pull, silent_us);
	else
		tell(walk->pull, NULL);
}

static int given_up(struct err *err) { return err_set(err, ERR_WAITING, "interrupted"); }

static int hand_out(struct walk_back *walk, const struct manifest_entry *entry, const char *digest, struct err *err)
{
	struct pull *pull = walk->pull;
	struct pull_file *file = must_alloc(sizeof(*file) + entry->path.size);

	file->seq = entry->seq;
	file->size_bytes = entry->size_bytes;
	file->mode = entry->mode;
	file->mtime_ns = entry->mtime_ns;
	MUST(str_copy(str_from(digest), file->digest, sizeof(file->digest)));
	file->path_size = entry->path.size;
	memcpy(file->path, entry->path.data, entry->path.size);
	pthread_mutex_lock(&pull->lock);
	while (pull->queue_count == PULL_QUEUE_MAX && !pull_is_over(pull)) {
		wait_a_tick(pull);
		/* Without the lock: the callback may print, and nobody should wait for a terminal. */
		pthread_mutex_unlock(&pull->lock);
		tell_now_and_then(walk);
		pthread_mutex_lock(&pull->lock);
	}
	bool is_added = !pull_is_over(pull);
	if (is_added) {
		pull->queue[(pull->queue_first + pull->queue_count++) % PULL_QUEUE_MAX] = file;
		pthread_cond_broadcast(&pull->changed);
	}
	pthread_mutex_unlock(&pull->lock);
	if (is_added)
		return 0;
	free(file);
	return given_up(err);
}

static int make_empty(struct walk_back *walk, const struct manifest_entry *entry, const char *digest, struct err *err)
{
	char shown[SHOWN_SIZE];

	if (strcmp(digest, walk->empty_digest) != 0)
		return err_set(err, ERR_INTEGRITY, "'%s' is empty, but the stored digest is not that of nothing",
			       str_display(entry->path, shown, sizeof(shown)));
	int fd = stage_file(&walk->cursor, entry->path, entry->mode, err);
	if (fd < 0)
		return fd;
	atomic_fetch_add(&walk->pull->files_done, 1);
	return stage_file_end(&walk->pull->stage, &fd, entry->path, entry->mode, entry->mtime_ns, err);
}

static int on_entry(void *owner, const struct manifest_entry *entry, const char *digest, struct err *err)
{
	struct walk_back *walk = owner;
	struct store_entry made = { .seq = entry->seq,
				    .type = (char)entry->type,
				    .mode = entry->mode,
				    .mtime_ns = entry->mtime_ns,
				    .path = entry->path,
				    .target = entry->target };

	tell_now_and_then(walk);
	if (pull_is_over(walk->pull))
		return given_up(err);
	switch (entry->type) {
	case MANIFEST_DIR:
		return stage_folder(&walk->pull->stage, &walk->cursor, &made, err);
	case MANIFEST_LINK:
		return stage_link(&walk->cursor, &made, err);
	case MANIFEST_FILE:
		/* An encrypted file is never empty: one that is opens as little as any other that is not encrypted. */
		return entry->size_bytes == 0 && !walk->pull->key ? make_empty(walk, entry, digest, err)
								  : hand_out(walk, entry, digest, err);
	}
	return err_set(err, ERR_INTERNAL, "entry %" PRIu64 " is of the unknown kind %d", entry->seq, (int)entry->type);
}

static bool is_all_done(struct pull *pull) { return atomic_load(&pull->files_done) == pull->stored.file_count; }

static void wait_for_files(struct walk_back *walk)
{
	struct pull *pull = walk->pull;

	pthread_mutex_lock(&pull->lock);
	pull->is_closed = true;
	pthread_cond_broadcast(&pull->changed);
	while (!pull_is_over(pull) && !is_all_done(pull)) {
		wait_a_tick(pull);
		pthread_mutex_unlock(&pull->lock);
		tell_now_and_then(walk);
		pthread_mutex_lock(&pull->lock);
	}
	pthread_mutex_unlock(&pull->lock);
}

static int start_threads(struct pull *pull, pthread_t *threads, unsigned *ret_count, struct err *err)
{
	unsigned wanted = pull->options->parallel > 0 ? pull->options->parallel : PULL_PARALLEL_DEFAULT;

	for (*ret_count = 0; *ret_count < wanted && *ret_count < PULL_PARALLEL_MAX; (*ret_count)++) {
		int number = quiet_thread(&threads[*ret_count], pull_files, pull);
		if (number != 0)
			return err_sys(err, ERR_SYSTEM, number, "cannot start a thread that fetches files");
	}
	return 0;
}

/* Everything of the manifest into staging. */
static int bring(struct pull *pull, struct err *err)
{
	struct walk_back walk = { .pull = pull };
	pthread_t threads[PULL_PARALLEL_MAX];
	unsigned thread_count = 0;

	digest_of(pull->stored.digest, "", 0, walk.empty_digest);
	stage_cursor_init(&walk.cursor, &pull->stage);
	int result = start_threads(pull, threads, &thread_count, err);
	if (result == 0)
		result = stored_each(&pull->stored, on_entry, &walk, err);
	if (result < 0)
		atomic_store(&pull->is_over, true);
	wait_for_files(&walk);
	for (unsigned i = 0; i < thread_count; i++)
		(void)pthread_join(threads[i], NULL);
	while (pull->queue_count > 0) {
		free(pull->queue[pull->queue_first]);
		pull->queue_first = (pull->queue_first + 1) % PULL_QUEUE_MAX;
		pull->queue_count--;
	}
	stage_cursor_fini(&walk.cursor);
	tell(pull, NULL);
	if (stored_is_interrupted(&pull->place))
		return given_up(err);
	/* What made the others stop counts, not that they stopped. */
	if (pull->is_failed) {
		*err = pull->failure;
		return -(int)err->code;
	}
	return result;
}

/* --- all of it --- */

static int check_space(const struct place *place, const struct stored *stored, struct err *err)
{
	struct fs_space space;
	char needed[32], there[32];
	int result = fs_space(place->temp_fd, &space, err);

	if (result < 0)
		return result;
	if (space.free_bytes < stored->total_bytes) {
		err_set(err, ERR_NO_SPACE, "the folder needs %s, %s are free here",
			size_display(stored->total_bytes, needed, sizeof(needed)),
			size_display(space.free_bytes, there, sizeof(there)));
	} else if (space.inodes_total > 0 && space.inodes_free < stored->entry_count) {
		err_set(err, ERR_NO_SPACE, "the folder has %" PRIu64 " entries, %" PRIu64 " can be made here",
			stored->entry_count, space.inodes_free);
	} else {
		return 0;
	}
	err_hint(err, "free space on the target's file system");
	return -(int)ERR_NO_SPACE;
}

static int pull_into(struct pull *pull, struct place *place, struct err *err)
{
	int result = check_space(place, &pull->stored, err);

	if (result == 0)
		result = stage_open(&pull->stage, place->temp_fd, pull->place.transfer_id, err);
	if (result < 0)
		return result;
	result = bring(pull, err);
	if (result == 0)
		result = place_put(place, &pull->stage, pull->options->target, pull->place.is_interrupted, err);
	if (result == -ERR_NO_SPACE)
		err_hint(err, "free space on the target's file system, then pull again");
	stage_close(&pull->stage);
	return result;
}

static struct pull *pull_new(const struct pull_options *options)
{
	struct pull *pull = must_zalloc(1, sizeof(*pull));
	pthread_condattr_t attributes;

	pull->options = options;
	pull->started_us = clock_mono_us();
	pull->place = options->place;
	pull->place.waiting = tell_waiting;
	pull->place.owner = pull;
	pthread_mutex_init(&pull->lock, NULL);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&pull->changed, &attributes);
	pthread_condattr_destroy(&attributes);
	return pull;
}

static void pull_free(struct pull **pull)
{
	pthread_cond_destroy(&(*pull)->changed);
	pthread_mutex_destroy(&(*pull)->lock);
	free(*pull);
	*pull = NULL;
}

int pull_folder(const struct pull_options *options, struct pull_result *ret_result, struct err *err)
{
	struct pull *pull = pull_new(options);
	struct place place;

	*ret_result = (struct pull_result){ 0 };
	int result = place_open(&place, options->target, err);
	if (result == 0)
		result = stored_open(&pull->place, &pull->stored, err);
	if (result == 0) {
		if (options->decrypt)
			result = stored_key(&pull->stored, options->decrypt, &pull->key, err);
		if (result == 0)
			result = pull_into(pull, &place, err);
		key_file_free(&pull->key);
		stored_close(&pull->stored);
	}
	result = place_close(&place, result, err);
	ret_result->files = atomic_load(&pull->files_done);
	ret_result->bytes = atomic_load(&pull->bytes_done);
	ret_result->entries = pull->stored.entry_count;
	ret_result->retries = atomic_load(&pull->retries);
	ret_result->elapsed_us = clock_mono_us() - pull->started_us;
	pull_free(&pull);
	return result;
}
