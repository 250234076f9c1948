/* The check of a folder: is what we do to files there done? */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "sys/fs_impl.h"

#define PROBE_SIZE 4096

static int probe_fail(const char *path, const char *step, int number, struct err *err)
{
	err_sys(err, ERR_DISK, number, "folder '%s' failed its check: cannot %s", path, step);
	return fs_fail(err, ERR_DISK, number);
}

static int open_folder(const char *path, struct err *err)
{
	const int dir_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	const int number = errno;

	if (dir_fd >= 0)
		return dir_fd;
	(void)probe_fail(path, "open it as a folder", number, err);
	if (number == ENOENT)
		err_hint(err, "make the folder (is its disk mounted?), or choose another path");
	return -ERR_DISK;
}

/* The steps by which a file becomes durable, all of them: a disk that fails one of them fails us. */
static int probe_file(const char *path, int dir_fd, int fd, const char *name, const char *last_name, struct err *err)
{
	char data[PROBE_SIZE];
	struct err cause = ERR_INIT;

	memset(data, 0x5a, sizeof(data));
	if (fs_write_all(fd, data, sizeof(data), 0, &cause) < 0)
		return probe_fail(path, "write a file in it", cause.sys_errno, err);
	if (fdatasync(fd) < 0)
		return probe_fail(path, "sync a file in it", errno, err);
	if (renameat(dir_fd, name, dir_fd, last_name) < 0)
		return probe_fail(path, "rename a file in it", errno, err);
	if (fsync(dir_fd) < 0)
		return probe_fail(path, "sync it", errno, err);
	return 0;
}

int fs_check_dir(const char *path, struct err *err)
{
	AUTO(fs_close) int dir_fd = open_folder(path, err);
	AUTO(fs_close) int fd = -1;
	char name[40], last_name[40], suffix[FS_UNIQUE_SIZE];
	int result;

	if (dir_fd < 0)
		return dir_fd;
	fs_unique(suffix);
	(void)snprintf(name, sizeof(name), FS_PROBE_PREFIX "%s", suffix);
	(void)snprintf(last_name, sizeof(last_name), FS_PROBE_PREFIX "%s.done", suffix);
	fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return probe_fail(path, "make a file in it", errno, err);
	result = probe_file(path, dir_fd, fd, name, last_name, err);
	/* The probe file goes away after a failure as well; the first failure is the one to tell. */
	if (unlinkat(dir_fd, last_name, 0) < 0 && (errno != ENOENT || unlinkat(dir_fd, name, 0) < 0) && result == 0)
		result = probe_fail(path, "delete a file in it", errno, err);
	return result;
}
