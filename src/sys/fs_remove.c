#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "sys/fs_impl.h"

/* Folders held open at once while a tree is removed; what lies deeper is first moved up. */
#define DEPTH_MAX 48

/* State of one removal. */
struct removal {
	int top_fd;
	const char *top_name;
	struct err *err;
};

static int remove_fail(struct removal *removal, int number, const char *name)
{
	err_sys(removal->err, ERR_SYSTEM, number, "cannot remove '%s' in the tree '%s'", name, removal->top_name);
	return fs_fail(removal->err, ERR_SYSTEM, number);
}

/* Too deep to go on: the folder is moved to the top of the tree, where a later pass finds it. */
static int move_to_top(struct removal *removal, int dir_fd, const char *name)
{
	char target[32], suffix[FS_UNIQUE_SIZE];

	fs_unique(suffix);
	(void)snprintf(target, sizeof(target), ".rm-%s", suffix);
	if (renameat2(dir_fd, name, removal->top_fd, target, RENAME_NOREPLACE) < 0 &&
	    renameat(dir_fd, name, removal->top_fd, target) < 0)
		return remove_fail(removal, errno, name);
	return 0;
}

/* A folder of the tree, opened for reading and writable by us, or -1 with errno. Never follows a link. */
static int open_for_removal(int dir_fd, const char *name)
{
	struct stat info;
	int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0 && errno == EACCES && fstatat(dir_fd, name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
	    S_ISDIR(info.st_mode) && fchmodat(dir_fd, name, 0700, 0) == 0)
		fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	/* A merged tree may hold folders that their owner made read-only. A failure here shows as one to remove what is inside. */
	if (fd >= 0 && fstat(fd, &info) == 0 && (info.st_mode & 0700) != 0700)
		(void)fchmod(fd, 0700);
	return fd;
}

static int remove_contents(struct removal *removal, int fd, unsigned depth);

static int remove_entry(struct removal *removal, int dir_fd, const char *name, bool is_dir, unsigned depth)
{
	int result;

	if (!is_dir) {
		if (unlinkat(dir_fd, name, 0) == 0 || errno == ENOENT)
			return 0;
		/* Not every file system tells the types in its listing. */
		if (errno != EISDIR)
			return remove_fail(removal, errno, name);
	}
	if (depth >= DEPTH_MAX)
		return move_to_top(removal, dir_fd, name);
	int fd = open_for_removal(dir_fd, name);
	if (fd < 0)
		return errno == ENOENT ? 0 : remove_fail(removal, errno, name);
	result = remove_contents(removal, fd, depth + 1);
	(void)close(fd);
	if (result < 0)
		return result;
	if (unlinkat(dir_fd, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
		return remove_fail(removal, errno, name);
	return 0;
}

/* Passes over the folder until one finds nothing: some file systems skip entries while others are being removed. */
static int remove_contents(struct removal *removal, int fd, unsigned depth)
{
	int list_fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	DIR *list = list_fd < 0 ? NULL : fdopendir(list_fd);
	int result = 0;
	bool is_found = true;

	if (!list) {
		result = remove_fail(removal, errno, "(a folder)");
		if (list_fd >= 0)
			(void)close(list_fd);
		return result;
	}
	while (result == 0 && is_found) {
		is_found = false;
		rewinddir(list);
		for (struct dirent *entry; result == 0 && (entry = readdir(list)) != NULL;) {
			if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
				continue;
			is_found = true;
			result = remove_entry(removal, fd, entry->d_name, entry->d_type == DT_DIR, depth);
		}
	}
	(void)closedir(list);
	return result;
}

int fs_remove_tree(int dir_fd, const char *name, struct err *err)
{
	struct removal removal = { .top_fd = -1, .top_name = name, .err = err };
	AUTO(fs_close) int fd = -1;
	int result;

	if (unlinkat(dir_fd, name, 0) == 0 || errno == ENOENT)
		return 0;
	if (errno != EISDIR)
		return remove_fail(&removal, errno, name);
	fd = open_for_removal(dir_fd, name);
	if (fd < 0)
		return errno == ENOENT ? 0 : remove_fail(&removal, errno, name);
	removal.top_fd = fd;
	result = remove_contents(&removal, fd, 1);
	if (result < 0)
		return result;
	if (unlinkat(dir_fd, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
		return remove_fail(&removal, errno, name);
	return 0;
}
