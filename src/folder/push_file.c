#include "folder/push_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "sys/fs.h"

/* A file system's clock moves in ticks of up to 10 ms: a file written twice within one has the same time after both. One that was written just now is
 * read a little later, so that whatever is written while it is read bears another time. */
#define FILE_TICK_US (20 * MSEC_US)
/* How often a file is hashed again before it counts as one that never stands still. */
#define FILE_AGAIN_MAX 3

static int64_t time_ns(struct timespec time) { return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec; }

static bool file_is_as_scanned(const struct manifest_entry *entry, const struct stat *now,
			       char reason[PUSH_REASON_SIZE])
{
	if (!S_ISREG(now->st_mode))
		snprintf(reason, PUSH_REASON_SIZE, "it is not a file any more");
	else if ((uint64_t)now->st_size != entry->size_bytes)
		snprintf(reason, PUSH_REASON_SIZE, "its size went from %llu to %llu bytes since the scan",
			 (unsigned long long)entry->size_bytes, (unsigned long long)now->st_size);
	else if (time_ns(now->st_mtim) != entry->mtime_ns)
		snprintf(reason, PUSH_REASON_SIZE, "it was modified since the scan");
	else
		return true;
	return false;
}

/* Looks at the file, and looks again once it has been left alone for a tick. */
static int file_settle(struct push_file *file)
{
	if (fstat(file->fd, &file->before) < 0)
		return -errno;
	int64_t age_us = clock_wall_us() - time_ns(file->before.st_ctim) / 1000;
	/* A time in the future is another clock's: nothing can be told from it. */
	if (age_us < 0 || age_us >= FILE_TICK_US)
		return 0;
	const struct timespec pause = { .tv_nsec = (FILE_TICK_US - age_us) * 1000 };
	(void)nanosleep(&pause, NULL);
	return fstat(file->fd, &file->before) < 0 ? -errno : 0;
}

bool push_file_open(struct push_file *file, int root_fd, enum walk_links links, const struct manifest_entry *entry,
		    char reason[PUSH_REASON_SIZE])
{
	/* O_NONBLOCK: a named pipe that took the file's place must not hang the reader. It means nothing to a file. */
	int r = walk_open(root_fd, entry->path.data, O_RDONLY | O_NONBLOCK | O_NOCTTY, links);
	if (r == -ENOENT)
		snprintf(reason, PUSH_REASON_SIZE, "it vanished since the scan");
	else if (r < 0)
		snprintf(reason, PUSH_REASON_SIZE, "it cannot be opened: %s", strerror(-r));
	if (r < 0)
		return false;
	*file = (struct push_file){ .fd = r, .root_fd = root_fd, .links = links };
	r = file_settle(file);
	if (r < 0)
		snprintf(reason, PUSH_REASON_SIZE, "it cannot be examined: %s", strerror(-r));
	if (r == 0 && file_is_as_scanned(entry, &file->before, reason)) {
		if (entry->size_bytes > PUSH_PIECE_BYTES)
			(void)posix_fadvise(file->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
		return true;
	}
	fs_close(&file->fd);
	return false;
}

/* 1: what was read is what the file is. 0: the file changed again meanwhile. */
static int file_hash_once(struct push_file *file, const struct manifest_entry *entry, const char *hex,
			  struct digest *digest, char *scratch, char reason[PUSH_REASON_SIZE])
{
	struct stat after;
	struct err err;
	char again[DIGEST_HEX_SIZE];
	int r = file_settle(file);
	if (r < 0) {
		snprintf(reason, PUSH_REASON_SIZE, "it cannot be examined after reading: %s", strerror(-r));
		return -1;
	}
	digest_restart(digest);
	for (uint64_t at = 0; at < entry->size_bytes;) {
		size_t want = min_size((size_t)(entry->size_bytes - at), PUSH_PIECE_BYTES), got = 0;
		r = fs_read_all(file->fd, scratch, want, (int64_t)at, &got, &err);
		if (r < 0)
			snprintf(reason, PUSH_REASON_SIZE, "it cannot be read again: %s", strerror(err.sys_errno));
		else if (got < want)
			snprintf(reason, PUSH_REASON_SIZE, "it shrank while it was read");
		if (r < 0 || got < want)
			return -1;
		digest_feed(digest, scratch, got);
		at += got;
	}
	digest_hex(digest, again);
	if (fstat(file->fd, &after) < 0 || !file_is_as_scanned(entry, &after, reason))
		return -1;
	if (time_ns(after.st_ctim) != time_ns(file->before.st_ctim))
		return 0;
	if (strcmp(again, hex) == 0)
		return 1;
	snprintf(reason, PUSH_REASON_SIZE, "its content changed while it was read, though size and time are the same");
	return -1;
}

static bool file_hash_again(struct push_file *file, const struct manifest_entry *entry, const char *hex,
			    struct digest *digest, char *scratch, char reason[PUSH_REASON_SIZE])
{
	for (unsigned i = 0; i < FILE_AGAIN_MAX; i++) {
		int r = file_hash_once(file, entry, hex, digest, scratch, reason);
		if (r != 0)
			return r > 0;
	}
	snprintf(reason, PUSH_REASON_SIZE, "it goes on changing while it is read");
	return false;
}

/* Does the name still lead to it? A file of one piece is read in one go; over a longer one much can happen. */
static bool file_is_named(const struct push_file *file, const struct manifest_entry *entry,
			  char reason[PUSH_REASON_SIZE])
{
	struct stat now;
	if (entry->size_bytes <= PUSH_PIECE_BYTES)
		return true;
	AUTO(fs_close) int fd = walk_open(file->root_fd, entry->path.data, O_PATH, file->links);
	if (fd == -ENOENT)
		snprintf(reason, PUSH_REASON_SIZE, "it vanished while it was read");
	else if (fd < 0 || fstat(fd, &now) < 0)
		snprintf(reason, PUSH_REASON_SIZE, "it cannot be found again: %s", strerror(fd < 0 ? -fd : errno));
	else if (now.st_ino != file->before.st_ino || now.st_dev != file->before.st_dev)
		snprintf(reason, PUSH_REASON_SIZE, "another took its place while it was read");
	else
		return true;
	return false;
}

bool push_file_close(struct push_file *file, const struct manifest_entry *entry, const char *hex, struct digest *digest,
		     char *scratch, char reason[PUSH_REASON_SIZE])
{
	struct stat after;
	char more;
	bool is_good = false;
	ssize_t r = pread(file->fd, &more, 1, (off_t)entry->size_bytes);
	if (r < 0)
		snprintf(reason, PUSH_REASON_SIZE, "it cannot be read to its end: %s", strerror(errno));
	else if (r > 0)
		snprintf(reason, PUSH_REASON_SIZE, "it grew while it was read");
	else if (fstat(file->fd, &after) < 0)
		snprintf(reason, PUSH_REASON_SIZE, "it cannot be examined after reading: %s", strerror(errno));
	else
		is_good = file_is_as_scanned(entry, &after, reason) && file_is_named(file, entry, reason);
	/* Of a file read in part nothing can be told by hashing; its whole digest, bound before, is what the merge will hold against it. */
	if (is_good && hex != NULL && time_ns(after.st_ctim) != time_ns(file->before.st_ctim))
		is_good = file_hash_again(file, entry, hex, digest, scratch, reason);
	fs_close(&file->fd);
	return is_good;
}
