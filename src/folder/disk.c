#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "folder/disk_inside.h"
#include "base/rng.h"

#define INODE_FLOOR_COUNT 256
#define CHUNK_PATH_SIZE   256
#define SILENCE_US        (2 * SEC_US)

/* --- names --- */

void disk_chunk_path(const char *transfer_id, uint64_t file_id, uint64_t chunk_index, char *target, size_t target_size)
{
	(void)snprintf(target, target_size, "tmp/%s/%" PRIu64 "/%s_%" PRIu64 "_%" PRIu64 ".part", transfer_id, file_id,
		       transfer_id, file_id, chunk_index);
}

void disk_chunk_name(const char *transfer_id, uint64_t file_id, uint64_t chunk_index, char *target, size_t target_size)
{
	(void)snprintf(target, target_size, "%s_%" PRIu64 "_%" PRIu64 ".part", transfer_id, file_id, chunk_index);
}

void disk_folder_path(const char *transfer_id, uint64_t file_id, char *target, size_t target_size)
{
	(void)snprintf(target, target_size, "tmp/%s/%" PRIu64, transfer_id, file_id);
}

struct hash128 disk_name_key(const char *text) { return hash128(text, strlen(text)); }

/* --- failures --- */

static enum err_code failure_code(int number)
{
	switch (number) {
	case ENOSPC:
	case EDQUOT:
		return ERR_DISK_LOW;
	case EMFILE:
	case ENFILE:
	case ENOMEM:
		return ERR_BUSY;
	default:
		return ERR_DISK;
	}
}

int disk_fail(struct disk *disk, struct err *err, const char *doing)
{
	char folder[120];

	str_display(str_from(disk->path), folder, sizeof(folder));
	err_wrap(err, "%s in '%s'", doing, folder);
	err->code = failure_code(err->sys_errno);
	if (err->code != ERR_DISK)
		return -(int)err->code;
	pthread_mutex_lock(&disk->lock);
	disk->is_failed = true;
	disk->counts.write_failures++;
	str_display(str_from(err->text), disk->failure, sizeof(disk->failure));
	pthread_mutex_unlock(&disk->lock);
	return -ERR_DISK;
}

/* --- opening --- */

bool disk_is_unfinished(const char *name)
{
	const char *part = strstr(name, ".part.");

	return part && part[sizeof(".part.") - 1] != '\0';
}

int disk_each_entry(int dir_fd, int (*each)(void *owner, int dir_fd, const char *name, struct err *err), void *owner,
		    struct err *err)
{
	DIR *dir = fdopendir(dir_fd);
	const struct dirent *entry;
	int r = 0;

	if (!dir) {
		const int number = errno;

		close(dir_fd);
		return err_sys(err, ERR_DISK, number, "cannot list a folder of chunks");
	}
	for (;;) {
		errno = 0;
		entry = readdir(dir);
		if (!entry)
			break;
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		r = each(owner, dirfd(dir), entry->d_name, err);
		if (r != 0)
			break;
	}
	if (r == 0 && errno != 0)
		r = err_sys(err, ERR_DISK, errno, "cannot list a folder of chunks");
	closedir(dir);
	return r < 0 ? r : 0;
}

static int clean_file(void *owner, int dir_fd, const char *name, struct err *err)
{
	struct disk *disk = owner;

	if (!disk_is_unfinished(name))
		return 0;
	if (unlinkat(dir_fd, name, 0) == 0) {
		disk->counts.unfinished_removed++;
		return 0;
	}
	if (errno == ENOENT)
		return 0;
	return err_sys(err, ERR_DISK, errno, "cannot remove the unfinished chunk '%.200s'", name);
}

int disk_enter(int dir_fd, const char *name, int (*each)(void *owner, int dir_fd, const char *name, struct err *err),
	       void *owner, struct err *err)
{
	const int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return errno == ENOTDIR || errno == ELOOP || errno == ENOENT
			       ? 0
			       : err_sys(err, ERR_DISK, errno, "cannot enter the folder '%.200s'", name);
	return disk_each_entry(fd, each, owner, err);
}

static int clean_file_folder(void *owner, int dir_fd, const char *name, struct err *err)
{
	return disk_enter(dir_fd, name, clean_file, owner, err);
}
static int clean_transfer(void *owner, int dir_fd, const char *name, struct err *err)
{
	return disk_enter(dir_fd, name, clean_file_folder, owner, err);
}

static int open_layout(struct disk *disk, struct err *err)
{
	int fd;

	if (fs_make_dirs(disk->tmp_path, err) < 0)
		return -(int)err->code;
	disk->root_fd = fs_open_dir(disk->path, err);
	if (disk->root_fd < 0)
		return disk->root_fd;
	disk->tmp_fd = fs_open_beneath(disk->root_fd, "tmp", O_RDONLY | O_DIRECTORY, 0, err);
	if (disk->tmp_fd < 0)
		return disk->tmp_fd;
	fs_clean_probes(disk->tmp_path);
	if (fs_check_dir(disk->tmp_path, err) < 0)
		return -(int)err->code;
	fd = fs_open_beneath(disk->root_fd, "tmp", O_RDONLY | O_DIRECTORY, 0, err);
	return fd < 0 ? fd : disk_each_entry(fd, clean_transfer, disk, err);
}

int disk_open(const struct disk_options *options, struct disk **ret_disk, struct err *err)
{
	struct disk *disk = must_zalloc(1, sizeof(*disk));
	const size_t path_size = strlen(options->path);
	struct err local = ERR_INIT;
	struct err *to = err ? err : &local;
	pthread_condattr_t attributes;
	int r;

	disk->path = must_strdup(options->path);
	disk->tmp_path = must_alloc(path_size + sizeof("/tmp"));
	(void)snprintf(disk->tmp_path, path_size + sizeof("/tmp"), "%s/tmp", options->path);
	disk->root_fd = -1;
	disk->tmp_fd = -1;
	disk->free_floor_bytes = options->free_floor_bytes;
	disk->free_floor_percent = options->free_floor_percent;
	disk->silence_us = options->silence_us > 0 ? options->silence_us : SILENCE_US;
	disk->memo = memo_new();
	MUST(pthread_mutex_init(&disk->lock, NULL) == 0);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	MUST(pthread_cond_init(&disk->turn_ended, &attributes) == 0);
	pthread_condattr_destroy(&attributes);
	r = open_layout(disk, to);
	if (r < 0) {
		err_wrap(to, "cannot open the chunk store in '%s'", options->path);
		disk_close(&disk);
		return r;
	}
	*ret_disk = disk;
	return 0;
}

void disk_close(struct disk **disk)
{
	struct disk *d = *disk;

	if (!d)
		return;
	for (size_t i = 0; i < DISK_TURN_BUCKETS; i++)
		MUST(d->turns[i] == NULL);
	fs_close(&d->tmp_fd);
	fs_close(&d->root_fd);
	memo_free(&d->memo);
	pthread_cond_destroy(&d->turn_ended);
	pthread_mutex_destroy(&d->lock);
	free(d->tmp_path);
	free(d->path);
	free(d);
	*disk = NULL;
}

/* --- state of the disk --- */

int disk_check(struct disk *disk, struct err *err)
{
	struct err local = ERR_INIT;
	struct err *to = err ? err : &local;

	if (fs_check_dir(disk->tmp_path, to) < 0)
		to->code = failure_code(to->sys_errno);
	else
		to->code = ERR_NONE;
	/* Our own limits say nothing of the disk, good or bad. */
	if (to->code == ERR_BUSY)
		return -ERR_BUSY;
	pthread_mutex_lock(&disk->lock);
	/* A full disk fails the check too, but it is full, not broken. */
	disk->is_failed = to->code == ERR_DISK;
	str_display(disk->is_failed ? str_from(to->text) : STR_NONE, disk->failure, sizeof(disk->failure));
	pthread_mutex_unlock(&disk->lock);
	return -(int)to->code;
}

void disk_failure(struct disk *disk, char *target, size_t target_size)
{
	pthread_mutex_lock(&disk->lock);
	(void)snprintf(target, target_size, "%s", disk->is_failed ? disk->failure : "");
	pthread_mutex_unlock(&disk->lock);
}

void disk_counts(struct disk *disk, struct disk_counts *ret)
{
	pthread_mutex_lock(&disk->lock);
	*ret = disk->counts;
	pthread_mutex_unlock(&disk->lock);
}

uint64_t disk_floor_bytes(const struct disk *disk, const struct fs_space *space)
{
	/* Divided first: a large file system times a percentage would not overflow, but a faked size might. */
	const uint64_t share = space->total_bytes / 100 * disk->free_floor_percent;

	return share > disk->free_floor_bytes ? share : disk->free_floor_bytes;
}

bool disk_has_room(const struct disk *disk, const struct fs_space *space, uint64_t size_bytes)
{
	const uint64_t floor = disk_floor_bytes(disk, space);

	if (space->inodes_total > 0 && space->inodes_free < INODE_FLOOR_COUNT)
		return false;
	return space->free_bytes >= disk->reserved_bytes && space->free_bytes - disk->reserved_bytes >= floor &&
	       space->free_bytes - disk->reserved_bytes - floor >= size_bytes;
}

int disk_space(struct disk *disk, struct fs_space *ret_space, uint64_t *ret_reserved_bytes, bool *ret_is_low,
	       struct err *err)
{
	const int r = fs_space(disk->root_fd, ret_space, err);

	if (r < 0)
		return r;
	pthread_mutex_lock(&disk->lock);
	*ret_reserved_bytes = disk->reserved_bytes;
	/* Low until what was last refused would fit: else a probe would call the disk fit while it refuses chunk after chunk. */
	*ret_is_low = !disk_has_room(disk, ret_space, disk->refused_bytes);
	if (!*ret_is_low)
		disk->refused_bytes = 0;
	pthread_mutex_unlock(&disk->lock);
	ret_space->free_bytes -= *ret_reserved_bytes < ret_space->free_bytes ? *ret_reserved_bytes
									     : ret_space->free_bytes;
	return 0;
}

/* --- reading and removing --- */

int disk_read(struct disk *disk, const char *transfer_id, uint64_t file_id, uint64_t chunk_index, uint64_t *ret_size,
	      struct err *err)
{
	char path[CHUNK_PATH_SIZE];
	struct err local = ERR_INIT;
	struct err *to = err ? err : &local;
	struct stat stat;
	int fd;

	if (!ulid_is_valid(transfer_id, strlen(transfer_id)))
		return err_set(to, ERR_CHUNK_GONE, "no such chunk: the transfer id is not a ULID");
	disk_chunk_path(transfer_id, file_id, chunk_index, path, sizeof(path));
	fd = fs_open_beneath(disk->root_fd, path, O_RDONLY, 0, to);
	if (fd < 0 && to->sys_errno == ENOENT)
		return err_set(to, ERR_CHUNK_GONE, "chunk %" PRIu64 " of file %" PRIu64 " of transfer %s is not here",
			       chunk_index, file_id, transfer_id);
	if (fd < 0)
		return disk_fail(disk, to, "cannot open a chunk");
	if (fstat(fd, &stat) < 0) {
		err_sys(to, ERR_DISK, errno, "cannot ask for the size of a chunk");
		close(fd);
		return -ERR_DISK;
	}
	*ret_size = (uint64_t)stat.st_size;
	return fd;
}

bool disk_has(struct disk *disk, const char *transfer_id, uint64_t file_id, uint64_t chunk_index)
{
	uint64_t size;
	AUTO(fs_close) int fd = disk_read(disk, transfer_id, file_id, chunk_index, &size, NULL);

	return fd >= 0;
}

static int list_transfer(void *owner, int dir_fd UNUSED, const char *name, struct err *err UNUSED)
{
	struct buf *lines = owner;

	if (!ulid_is_valid(name, strlen(name)))
		return 0;
	if (lines->limit - lines->size < ULID_SIZE)
		return 1;
	buf_append_c(lines, name);
	buf_append_c(lines, "\n");
	return 0;
}

int disk_transfers(struct disk *disk, struct buf *lines, struct err *err)
{
	struct err local = ERR_INIT;
	struct err *to = err ? err : &local;
	const int fd = fs_open_beneath(disk->root_fd, "tmp", O_RDONLY | O_DIRECTORY, 0, to);

	if (fd < 0)
		return fd;
	const int r = disk_each_entry(fd, list_transfer, lines, to);
	return r == 0 && lines->is_failed ? err_set(to, ERR_NO_MEMORY, "no memory for the list of transfers") : r;
}

int disk_remove_transfer(struct disk *disk, const char *transfer_id, struct err *err)
{
	struct err local = ERR_INIT;
	struct err *to = err ? err : &local;
	int r;

	if (!ulid_is_valid(transfer_id, strlen(transfer_id)))
		return err_set(to, ERR_BAD_REQUEST, "the transfer id is not a ULID");
	pthread_mutex_lock(&disk->lock);
	disk->remove_count++;
	disk->removing_count++;
	memo_forget_folders(disk->memo);
	pthread_mutex_unlock(&disk->lock);
	r = fs_remove_tree(disk->tmp_fd, transfer_id, to);
	pthread_mutex_lock(&disk->lock);
	disk->remove_count++;
	disk->removing_count--;
	pthread_mutex_unlock(&disk->lock);
	if (r < 0)
		err_wrap(to, "cannot remove the chunks of transfer %s", transfer_id);
	return r;
}
