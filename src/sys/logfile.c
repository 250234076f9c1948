#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "sys/fs.h"
#include "sys/logfile.h"

#define SYNC_INTERVAL_US SEC_US
#define QUEUE_BYTES      (64 * MIB)
#define HEAD_BYTES_MAX   (16 * MIB)
#define DROP_LINE_MAX    256
/* So much is written without waiting for the interval's end; the sync waits. */
#define WRITE_AHEAD_BYTES MIB
/* A buffer that a burst blew up beyond it is given back. */
#define KEEP_BYTES (4 * MIB)
/* Old files beyond keep_count are from a configuration that kept more. */
#define OLD_FILES_MAX 1000

struct logfile {
	char path[PATH_MAX];
	uint64_t rotate_bytes, queue_bytes;
	unsigned keep_count;
	int64_t sync_interval_us;
	void (*head)(void *owner, struct buf *buf);
	void (*told)(void *owner, const struct err *fault, uint64_t dropped_count);
	void *owner;
	pthread_t thread;

	pthread_mutex_t lock; /* guards down to the blank line */
	pthread_cond_t wake, answered;
	struct buf pending;      /* lines that wait for the thread */
	uint64_t held_bytes;     /* taken over by the thread and not written yet; they count against the queue too */
	int64_t oldest_us;       /* when the first line came that is not synced; 0: none */
	uint64_t dropped_unsaid; /* lines whose count stands in no line yet */
	uint64_t
		asked_count; /* syncs asked for, and answered: each round answers all that were asked before it began */
	uint64_t answered_count;
	struct err answer;
	bool is_closing;

	_Atomic uint64_t dropped_count;

	/* The thread's own. */
	int fd;
	bool is_regular; /* only such files rotate */
	bool needs_head; /* no line of ours is in this file yet */
	bool is_torn;    /* its last byte is no newline */
	bool is_unsynced;
	uint64_t size_bytes, rotate_at_bytes;
	struct buf writing;   /* whole lines */
	size_t written_bytes; /* of them, from the front; inside a line after a short write */
	int64_t retry_us;     /* after a failure: not before */
	bool is_failing;      /* and the owner was told */
};

/* --- the file --- */

static int refuse(const char *what, const char *path, int number, struct err *err)
{
	err_sys(err, ERR_SYSTEM, number, "cannot %s log file '%s'", what, path);
	if (number == ENOSPC || number == EDQUOT)
		err_hint(err, "free space there; lines are kept in memory until then, up to the queue's bound");
	else
		err_hint(err, "see that the folder exists and that this user may write there");
	return -ERR_SYSTEM;
}

/* The rest of a line whose beginning is in a file that we lost would be garbage in the next one. */
static void leave_file(struct logfile *file)
{
	const struct buf *buf = &file->writing;
	const char *end;

	if (file->written_bytes > 0 && buf->data[file->written_bytes - 1] != '\n') {
		end = memchr(buf->data + file->written_bytes, '\n', buf->size - file->written_bytes);
		file->written_bytes = end ? (size_t)(end - buf->data) + 1 : buf->size;
		(void)pthread_mutex_lock(&file->lock);
		file->dropped_unsaid++;
		(void)pthread_mutex_unlock(&file->lock);
		file->dropped_count++;
	}
	file->is_torn = false;
	fs_close(&file->fd);
}

static bool ends_torn(int fd, off_t size)
{
	char last = '\n';

	return size > 0 && pread(fd, &last, 1, size - 1) == 1 && last != '\n';
}

static int open_file(struct logfile *file, struct err *err)
{
	AUTO(fs_close) int fd = open(file->path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0640);
	struct stat info;

	if (fd < 0 || fstat(fd, &info) < 0)
		return refuse("open", file->path, errno, err);
	file->is_regular = S_ISREG(info.st_mode);
	/* Two writers would rotate each other's lines away. A file system without locks is no reason to refuse. */
	if (file->is_regular && flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK) {
		err_set(err, ERR_BUSY, "log file '%s' is being written by another process", file->path);
		err_hint(err, "stop that process first, or give this one a file of its own");
		return -ERR_BUSY;
	}
	file->size_bytes = file->is_regular ? (uint64_t)info.st_size : 0;
	file->is_torn = file->is_regular && ends_torn(fd, info.st_size);
	file->rotate_at_bytes = file->rotate_bytes;
	file->needs_head = true;
	file->fd = fd;
	fd = -1;
	return 0;
}

/* Its name has to survive a crash as well as its bytes. */
static int sync_parent(const struct logfile *file, struct err *err)
{
	AUTO(fs_close) int dir_fd = -1;
	const char *slash = strrchr(file->path, '/');
	char parent[PATH_MAX] = ".";

	if (slash) {
		const size_t size = slash == file->path ? 1 : (size_t)(slash - file->path);
		memcpy(parent, file->path, size);
		parent[size] = '\0';
	}
	dir_fd = fs_open_dir(parent, err);
	return dir_fd < 0 ? dir_fd : fs_sync_dir(dir_fd, parent, err);
}

static int sync_file(struct logfile *file, struct err *err)
{
	if (file->fd < 0 || !file->is_unsynced || !file->is_regular)
		return 0;
	/* After a failure the kernel forgets which pages were lost, so that a second try would say "done" and lie: the lines since the last sync
	 * are in doubt, which the answer says once. */
	file->is_unsynced = false;
	return fdatasync(file->fd) < 0 ? refuse("sync", file->path, errno, err) : 0;
}

static bool old_path(const struct logfile *file, unsigned number, char target[PATH_MAX])
{
	const int size = number == 0 ? snprintf(target, PATH_MAX, "%s", file->path)
				     : snprintf(target, PATH_MAX, "%s.%u", file->path, number);

	return size > 0 && size < PATH_MAX;
}

/* path.1 -> path.2, path -> path.1; the oldest go. When the move fails the present file is written on, and tried again a file's size later. */
static int rotate(struct logfile *file, struct err *err)
{
	char from[PATH_MAX], to[PATH_MAX];
	const int result = sync_file(file, err);
	bool is_moved;

	file->rotate_at_bytes = file->size_bytes + file->rotate_bytes;
	for (unsigned number = file->keep_count > 0 ? file->keep_count : 1; number < OLD_FILES_MAX; number++) {
		if (!old_path(file, number, to) || unlink(to) < 0)
			break;
	}
	for (unsigned number = file->keep_count; number > 1; number--) {
		if (old_path(file, number - 1, from) && old_path(file, number, to))
			(void)rename(from, to);
	}
	if (file->keep_count == 0)
		is_moved = unlink(file->path) == 0;
	else
		is_moved = old_path(file, 1, to) && rename(file->path, to) == 0;
	if (is_moved)
		leave_file(file);
	return result;
}

/* Somebody else's logrotate, or a person, may have moved it, deleted it or cut it short. */
static int check_name(struct logfile *file, struct err *err)
{
	struct stat open_info, named_info;
	int result;

	if (file->fd < 0 || !file->is_regular || fstat(file->fd, &open_info) < 0)
		return 0;
	if (stat(file->path, &named_info) == 0 && named_info.st_ino == open_info.st_ino &&
	    named_info.st_dev == open_info.st_dev) {
		file->size_bytes = (uint64_t)open_info.st_size;
		return 0;
	}
	result = sync_file(file, err);
	leave_file(file);
	return result;
}

/* --- writing --- */

/* Writes until done or refused; *ret_done is what was written before that. */
static int write_some(struct logfile *file, const char *data, size_t size, size_t *ret_done, struct err *err)
{
	size_t done = 0;
	int number = 0;

	while (done < size && number == 0) {
		const ssize_t written = write(file->fd, data + done, size - done);
		if (written >= 0)
			done += (size_t)written;
		else if (errno != EINTR)
			number = errno;
	}
	if (done > 0) {
		file->is_unsynced = true;
		file->is_torn = data[done - 1] != '\n';
		file->size_bytes += done;
	}
	*ret_done = done;
	return number != 0 ? refuse("write", file->path, number, err) : 0;
}

/* Goes out whole, or is written again from its start: what a full disk tore of it is ended like any torn line. */
static int write_head(struct logfile *file, struct err *err)
{
	struct buf head = BUF_INIT(HEAD_BYTES_MAX);
	size_t done;
	int result = 0;

	if (file->is_torn)
		result = write_some(file, "\n", 1, &done, err);
	if (result == 0 && file->head)
		file->head(file->owner, &head);
	if (!head.is_failed && head.size > 0 && head.data[head.size - 1] != '\n')
		(void)buf_append(&head, STR("\n"));
	if (result == 0 && head.is_failed)
		result = err_set(err, ERR_LIMIT, "the first lines of log file '%s' take more than %zu bytes",
				 file->path, HEAD_BYTES_MAX);
	else if (result == 0)
		result = write_some(file, head.data, head.size, &done, err);
	/* Lines without their head are worth more than none: one that is too large is not waited for. */
	file->needs_head = result < 0 && !head.is_failed;
	buf_fini(&head);
	return result;
}

static int ready_file(struct logfile *file, struct err *err)
{
	int result = 0;

	if (file->fd >= 0)
		return 0;
	result = open_file(file, err);
	return result < 0 || !file->is_regular ? result : sync_parent(file, err);
}

/* Up to the line that passes the file's limit; all when there is none. */
static size_t piece_size(const struct logfile *file)
{
	const char *data = file->writing.data + file->written_bytes;
	const size_t size = file->writing.size - file->written_bytes;
	const char *end;
	uint64_t room;

	if (file->rotate_bytes == 0 || !file->is_regular)
		return size;
	room = file->rotate_at_bytes > file->size_bytes ? file->rotate_at_bytes - file->size_bytes : 0;
	if (room >= size)
		return size;
	end = memchr(data + room, '\n', size - room);
	return end ? (size_t)(end - data) + 1 : size;
}

static int write_lines(struct logfile *file, struct err *err)
{
	int result = 0;
	size_t done;

	while (result == 0 && (file->written_bytes < file->writing.size || file->is_torn)) {
		/* Only between two lines; a torn one goes on where it was torn. */
		if (file->fd >= 0 && file->is_regular && file->rotate_bytes > 0 && !file->is_torn &&
		    file->size_bytes >= file->rotate_at_bytes)
			result = rotate(file, err);
		if (result == 0)
			result = ready_file(file, err);
		if (result == 0 && file->needs_head)
			result = write_head(file, err);
		if (result == 0 && file->written_bytes < file->writing.size) {
			result = write_some(file, file->writing.data + file->written_bytes, piece_size(file), &done,
					    err);
			file->written_bytes += done;
		}
	}
	if (file->written_bytes == file->writing.size) {
		file->written_bytes = 0;
		if (file->writing.capacity > KEEP_BYTES)
			buf_fini(&file->writing);
		buf_clear(&file->writing);
	}
	return result;
}

/* --- the thread --- */

static void say_dropped(struct logfile *file)
{
	struct json json;

	json_init(&json, &file->writing);
	json_open(&json, NULL);
	json_c(&json, "kind", "dropped");
	json_u64(&json, "lines", file->dropped_unsaid);
	json_i64(&json, "wall_us", clock_wall_us());
	json_close(&json);
	if (buf_append(&file->writing, STR("\n")))
		file->dropped_unsaid = 0;
}

/* Takes over what waits. The lines that were dropped came when these filled the queue, so their count comes after them. */
static void take_pending(struct logfile *file)
{
	struct buf empty = file->writing;
	size_t size;

	(void)pthread_mutex_lock(&file->lock);
	file->writing = file->pending;
	file->pending = empty;
	if (file->dropped_unsaid > 0) {
		size = file->writing.size;
		say_dropped(file);
		/* No memory for it: another time, and no half of it now. */
		if (file->writing.is_failed) {
			file->writing.size = size;
			file->writing.is_failed = false;
		}
	}
	file->held_bytes = file->writing.size;
	(void)pthread_mutex_unlock(&file->lock);
}

static void release_held(struct logfile *file)
{
	(void)pthread_mutex_lock(&file->lock);
	file->held_bytes = file->writing.size - file->written_bytes;
	(void)pthread_mutex_unlock(&file->lock);
}

/* First what an earlier round could not write, then what came since. */
static int work_once(struct logfile *file, bool is_sync, struct err *err)
{
	int result = is_sync ? check_name(file, err) : 0;

	if (result == 0)
		result = write_lines(file, err);
	if (result == 0) {
		take_pending(file);
		result = write_lines(file, err);
	}
	release_held(file);
	/* Also after a failure, for what was written before it, whose error is the one to tell. */
	if (is_sync) {
		const int sync_result = sync_file(file, result == 0 ? err : NULL);
		result = result == 0 ? sync_result : result;
	}
	return result;
}

/* When to begin the next round; INT64_MAX: when somebody calls. */
static int64_t due_us(const struct logfile *file, bool *ret_is_sync)
{
	int64_t sync_us = INT64_MAX;

	if (file->oldest_us > 0)
		sync_us = max_i64(file->oldest_us + file->sync_interval_us, file->retry_us);
	*ret_is_sync = true;
	if (file->is_closing || file->asked_count > file->answered_count)
		return 0;
	if (file->pending.size >= WRITE_AHEAD_BYTES && file->retry_us < sync_us) {
		*ret_is_sync = false;
		return file->retry_us;
	}
	return sync_us;
}

static void wait_until(struct logfile *file, int64_t until_us)
{
	struct timespec until = { .tv_sec = until_us / SEC_US, .tv_nsec = until_us % SEC_US * 1000 };

	if (until_us == INT64_MAX)
		(void)pthread_cond_wait(&file->wake, &file->lock);
	else
		(void)pthread_cond_timedwait(&file->wake, &file->lock, &until);
}

/* Once at each change: a full disk is one message, not one a second. */
static void tell(struct logfile *file, bool is_failing, const struct err *err)
{
	if (is_failing != file->is_failing && file->told)
		file->told(file->owner, is_failing ? err : NULL, logfile_dropped(file));
	file->is_failing = is_failing;
}

static void *run(void *argument)
{
	struct logfile *file = argument;
	bool is_sync, is_last = false;

	(void)pthread_mutex_lock(&file->lock);
	while (!is_last) {
		const int64_t now_us = clock_mono_us(), until_us = due_us(file, &is_sync);
		struct err err = ERR_INIT;
		int result;

		if (until_us > now_us) {
			wait_until(file, until_us);
			continue;
		}
		const uint64_t asked_count = file->asked_count;
		is_last = file->is_closing;
		(void)pthread_mutex_unlock(&file->lock);
		result = work_once(file, is_sync, &err);
		tell(file, result < 0, &err);
		(void)pthread_mutex_lock(&file->lock);
		file->retry_us = result < 0 ? now_us + file->sync_interval_us : 0;
		/* What came during the round is as old as the round at most. */
		if (result == 0 && is_sync)
			file->oldest_us = file->pending.size > 0 || file->dropped_unsaid > 0 ? now_us : 0;
		if (asked_count > file->answered_count) {
			file->answer = err;
			file->answered_count = asked_count;
			(void)pthread_cond_broadcast(&file->answered);
		}
	}
	(void)pthread_mutex_unlock(&file->lock);
	return NULL;
}

/* --- the callers' side --- */

/* Signals are for the threads that know what to do with them; and a limit of file size is to be an error, not a death. */
static int start_thread(struct logfile *file, struct err *err)
{
	sigset_t all, former;
	int number;

	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &former);
	number = pthread_create(&file->thread, NULL, run, file);
	(void)pthread_sigmask(SIG_SETMASK, &former, NULL);
	return number == 0 ? 0
			   : err_sys(err, ERR_SYSTEM, number, "cannot start the writer of log file '%s'", file->path);
}

static void free_file(struct logfile *file)
{
	fs_close(&file->fd);
	(void)pthread_cond_destroy(&file->wake);
	(void)pthread_cond_destroy(&file->answered);
	(void)pthread_mutex_destroy(&file->lock);
	buf_fini(&file->pending);
	buf_fini(&file->writing);
	free(file);
}

int logfile_open(const struct logfile_conf *conf, struct logfile **ret_file, struct err *err)
{
	struct logfile *file = must_zalloc(1, sizeof(*file));
	pthread_condattr_t monotonic;
	int result;

	*ret_file = NULL;
	file->fd = -1;
	file->rotate_bytes = conf->rotate_bytes;
	file->keep_count = conf->keep_count < OLD_FILES_MAX ? conf->keep_count : OLD_FILES_MAX - 1;
	file->sync_interval_us = conf->sync_interval_us > 0 ? conf->sync_interval_us : SYNC_INTERVAL_US;
	file->queue_bytes = conf->queue_bytes > 0 ? min_size(conf->queue_bytes, SIZE_MAX / 4) : QUEUE_BYTES;
	file->head = conf->head;
	file->told = conf->told;
	file->owner = conf->owner;
	file->pending = file->writing = BUF_INIT(file->queue_bytes + DROP_LINE_MAX);
	MUST(pthread_condattr_init(&monotonic) == 0 && pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC) == 0);
	MUST(pthread_mutex_init(&file->lock, NULL) == 0 && pthread_cond_init(&file->wake, &monotonic) == 0 &&
	     pthread_cond_init(&file->answered, NULL) == 0);
	(void)pthread_condattr_destroy(&monotonic);
	/* Room for the number of a rotated file. */
	if (strlen(conf->path) + sizeof(".4294967295") > sizeof(file->path))
		result = err_set(err, ERR_CONFIG, "path of log file '%.80s...' is too long", conf->path);
	else
		result = str_copy(str_from(conf->path), file->path, sizeof(file->path)) ? ready_file(file, err)
											: -ERR_CONFIG;
	if (result == 0 && file->is_torn)
		file->oldest_us = clock_mono_us();
	if (result == 0)
		result = start_thread(file, err);
	if (result < 0) {
		free_file(file);
		return result;
	}
	*ret_file = file;
	return 0;
}

static uint64_t count_lines(struct str lines)
{
	struct str line;
	uint64_t count = 0;

	while (str_cut(&lines, '\n', &line))
		count++;
	return count;
}

bool logfile_write(struct logfile *file, struct str lines)
{
	const bool is_ended = lines.size > 0 && lines.data[lines.size - 1] == '\n';
	const size_t size = lines.size + (is_ended ? 0 : 1);
	size_t size_before;
	bool is_taken, is_first;

	if (lines.size == 0)
		return true;
	(void)pthread_mutex_lock(&file->lock);
	size_before = file->pending.size;
	is_taken = size <= file->queue_bytes && file->pending.size + file->held_bytes <= file->queue_bytes - size &&
		   buf_reserve(&file->pending, size);
	if (is_taken) {
		(void)buf_append(&file->pending, lines);
		if (!is_ended)
			(void)buf_append(&file->pending, STR("\n"));
	} else {
		/* For want of memory, perhaps; there may be some for the next line. */
		file->pending.is_failed = false;
		file->dropped_unsaid += count_lines(lines);
	}
	is_first = file->oldest_us == 0;
	if (is_first)
		file->oldest_us = clock_mono_us();
	if (is_first || (size_before < WRITE_AHEAD_BYTES && file->pending.size >= WRITE_AHEAD_BYTES))
		(void)pthread_cond_signal(&file->wake);
	(void)pthread_mutex_unlock(&file->lock);
	if (!is_taken)
		file->dropped_count += count_lines(lines);
	return is_taken;
}

int logfile_sync(struct logfile *file, struct err *err)
{
	struct err answer;
	uint64_t number;

	(void)pthread_mutex_lock(&file->lock);
	number = ++file->asked_count;
	(void)pthread_cond_signal(&file->wake);
	while (file->answered_count < number)
		(void)pthread_cond_wait(&file->answered, &file->lock);
	answer = file->answer;
	(void)pthread_mutex_unlock(&file->lock);
	if (answer.code == ERR_NONE)
		return 0;
	if (err)
		*err = answer;
	return -(int)answer.code;
}

uint64_t logfile_dropped(const struct logfile *file) { return file->dropped_count; }

void logfile_close(struct logfile **file)
{
	if (!*file)
		return;
	(void)pthread_mutex_lock(&(*file)->lock);
	(*file)->is_closing = true;
	(void)pthread_cond_signal(&(*file)->wake);
	(void)pthread_mutex_unlock(&(*file)->lock);
	(void)pthread_join((*file)->thread, NULL);
	free_file(*file);
	*file = NULL;
}
