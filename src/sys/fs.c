#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sys/fs_impl.h"

#define OPENAT2_TRIES 64

int fs_fail(struct err *err, enum err_code code, int number)
{
	switch (number) {
	case ENOSPC:
	case EDQUOT:
		err_hint(err, "free space (or inodes) there, or raise the quota, then try again");
		break;
	case EACCES:
	case EPERM:
		err_hint(err, "give this user the right to that path, or run as a user who has it");
		break;
	case EROFS:
		err_hint(err, "the file system is mounted read-only: remount it writable, or choose another path");
		break;
	case EIO:
		err_hint(err, "the device failed: look at the kernel's log (dmesg) and replace it");
		break;
	case EMFILE:
	case ENFILE:
		err_hint(err, "too many files are open: raise the limit (ulimit -n, LimitNOFILE=)");
		break;
	case ENOTDIR:
		err_hint(err, "a file stands where a folder is expected: move it away, or choose another path");
		break;
	default:
		break;
	}
	return -(int)code;
}

void fs_close(int *fd)
{
	if (*fd >= 0)
		(void)close(*fd);
	*fd = -1;
}

void fs_unique(char target[FS_UNIQUE_SIZE])
{
	uint64_t number = 0;

	MUST(getrandom(&number, sizeof(number), 0) == (ssize_t)sizeof(number));
	(void)snprintf(target, FS_UNIQUE_SIZE, "%016llx", (unsigned long long)number);
}

int fs_open_beneath(int root_fd, const char *path, int flags, mode_t mode, struct err *err)
{
	bool is_making = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
	struct open_how how = {
		.flags = (uint64_t)(unsigned)(flags | O_CLOEXEC),
		/* The kernel refuses a mode where nothing is made. */
		.mode = is_making ? mode : 0,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
	};
	long fd = -1;

	/* EAGAIN: a rename somewhere on the system ran beside the walk, so that the kernel could not vouch for "..". */
	for (int try = 0; try < OPENAT2_TRIES; try++) {
		fd = syscall(SYS_openat2, root_fd, path, &how, sizeof(how));
		if (fd >= 0)
			return (int)fd;
		if (errno != EAGAIN && errno != EINTR)
			break;
	}
	int number = errno;
	if (number == ELOOP || number == EXDEV)
		return err_sys(err, ERR_SYSTEM, number, "refused to open '%s': %s", path,
			       number == ELOOP ? "a symbolic link is on the way" : "it leads outside its folder");
	err_sys(err, ERR_SYSTEM, number, "cannot open '%s'", path);
	if (number == ENOSYS)
		err_hint(err, "heng needs openat2: Linux 5.6 or later, and a container profile that allows it");
	return fs_fail(err, ERR_SYSTEM, number);
}

int fs_open_dir(const char *path, struct err *err)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd >= 0)
		return fd;
	int number = errno;
	err_sys(err, ERR_SYSTEM, number, "cannot open folder '%s'", path);
	return fs_fail(err, ERR_SYSTEM, number);
}

/* The folder that holds `path`, opened; *ret_name is the last component (points into path). */
static int open_parent(const char *path, const char **ret_name, struct err *err)
{
	const char *slash = strrchr(path, '/');
	char parent[PATH_MAX];

	if (strlen(path) >= sizeof(parent))
		return err_sys(err, ERR_SYSTEM, ENAMETOOLONG, "cannot use path '%.80s...'", path);
	*ret_name = slash ? slash + 1 : path;
	if (!slash)
		return fs_open_dir(".", err);
	if (slash == path)
		return fs_open_dir("/", err);
	memcpy(parent, path, (size_t)(slash - path));
	parent[slash - path] = '\0';
	return fs_open_dir(parent, err);
}

static int make_one_dir(const char *path, struct err *err)
{
	AUTO(fs_close) int parent_fd = -1;
	const char *name;
	struct stat info;

	if (stat(path, &info) == 0) {
		if (S_ISDIR(info.st_mode))
			return 0;
		err_sys(err, ERR_SYSTEM, ENOTDIR, "cannot make folder '%s'", path);
		return fs_fail(err, ERR_SYSTEM, ENOTDIR);
	}
	/* Another process that makes the same folder at the same moment does us no harm. */
	if (mkdir(path, 0700) < 0 && errno != EEXIST) {
		int number = errno;
		err_sys(err, ERR_SYSTEM, number, "cannot make folder '%s'", path);
		return fs_fail(err, ERR_SYSTEM, number);
	}
	parent_fd = open_parent(path, &name, err);
	if (parent_fd < 0)
		return parent_fd;
	return fs_sync_dir(parent_fd, path, err);
}

int fs_make_dirs(const char *path, struct err *err)
{
	char prefix[PATH_MAX];
	size_t size = strlen(path);

	if (size == 0 || size >= sizeof(prefix))
		return err_sys(err, ERR_SYSTEM, size == 0 ? ENOENT : ENAMETOOLONG, "cannot make folder '%.80s'", path);
	while (size > 1 && path[size - 1] == '/')
		size--;
	memcpy(prefix, path, size);
	prefix[size] = '\0';
	for (size_t i = 1; i < size; i++) {
		if (prefix[i] != '/' || prefix[i - 1] == '/')
			continue;
		prefix[i] = '\0';
		int result = make_one_dir(prefix, err);
		if (result < 0)
			return result;
		prefix[i] = '/';
	}
	return make_one_dir(prefix, err);
}

/* Makes `name` in *dir_fd unless it is there, and moves *dir_fd into it. */
static int descend_making(int *dir_fd, const char *name, const char *path, struct err *err)
{
	int number;

	if (mkdirat(*dir_fd, name, 0700) < 0 && errno != EEXIST) {
		number = errno;
		err_sys(err, ERR_SYSTEM, number, "cannot make folder '%s'", path);
		return fs_fail(err, ERR_SYSTEM, number);
	}
	int next_fd = openat(*dir_fd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (next_fd < 0) {
		number = errno;
		err_sys(err, ERR_SYSTEM, number, "cannot enter folder '%s' of '%s'", name, path);
		return fs_fail(err, ERR_SYSTEM, number);
	}
	fs_close(dir_fd);
	*dir_fd = next_fd;
	return 0;
}

int fs_make_dirs_at(int root_fd, const char *path, struct err *err)
{
	AUTO(fs_close) int dir_fd = -1;
	char name[NAME_MAX + 1];
	struct str rest = str_from(path), piece;

	if (rest.size == 0 || path[0] == '/')
		return err_set(err, ERR_SYSTEM, "refused to make folder '%s': not a path below its root", path);
	/* Mostly it is there already: one call then. */
	dir_fd = fs_open_beneath(root_fd, path, O_PATH | O_DIRECTORY, 0, NULL);
	if (dir_fd >= 0)
		return 0;
	dir_fd = openat(root_fd, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dir_fd < 0)
		return err_sys(err, ERR_SYSTEM, errno, "cannot open the folder above '%s'", path);
	while (str_cut(&rest, '/', &piece)) {
		if (piece.size == 0 || str_eq_c(piece, "."))
			continue;
		if (str_eq_c(piece, ".."))
			return err_set(err, ERR_SYSTEM, "refused to make folder '%s': it has '..' in it", path);
		if (!str_copy(piece, name, sizeof(name)))
			return err_sys(err, ERR_SYSTEM, ENAMETOOLONG, "cannot make folder '%.200s'", path);
		int result = descend_making(&dir_fd, name, path, err);
		if (result < 0)
			return result;
	}
	return 0;
}

int fs_write_all(int fd, const void *data, size_t size, int64_t offset, struct err *err)
{
	const char *from = data;
	size_t done_bytes = 0;

	while (done_bytes < size) {
		ssize_t count = offset < 0 ? write(fd, from + done_bytes, size - done_bytes)
					   : pwrite(fd, from + done_bytes, size - done_bytes,
						    offset + (int64_t)done_bytes);
		if (count < 0 && errno == EINTR)
			continue;
		if (count <= 0) {
			/* A disk that takes no byte and names no reason is full in every case we know. */
			int number = count < 0 ? errno : ENOSPC;
			err_sys(err, ERR_SYSTEM, number, "cannot write %zu bytes (%zu were written)", size, done_bytes);
			return fs_fail(err, ERR_SYSTEM, number);
		}
		done_bytes += (size_t)count;
	}
	return 0;
}

/* The first word settles it for nearly every block that is not zeros. */
static bool is_zeros(const char *data, size_t size) { return data[0] == 0 && memcmp(data, data + 1, size - 1) == 0; }

int fs_write_sparse(int fd, const void *data, size_t size, int64_t offset, bool *ret_ends_in_hole, struct err *err)
{
	const char *from = data;
	size_t start = 0;
	int result = 0;

	for (size_t at = (size_t)(-offset & (int64_t)(FS_BLOCK_BYTES - 1)); size >= at + FS_BLOCK_BYTES && result == 0;
	     at += FS_BLOCK_BYTES) {
		if (!is_zeros(from + at, FS_BLOCK_BYTES))
			continue;
		if (at > start)
			result = fs_write_all(fd, from + start, at - start, offset + (int64_t)start, err);
		start = at + FS_BLOCK_BYTES;
	}
	*ret_ends_in_hole = start == size && size > 0;
	if (result == 0 && start < size)
		result = fs_write_all(fd, from + start, size - start, offset + (int64_t)start, err);
	return result;
}

int fs_set_size(int fd, uint64_t size_bytes, struct err *err)
{
	if (ftruncate(fd, (off_t)size_bytes) == 0)
		return 0;
	int number = errno;
	err_sys(err, ERR_SYSTEM, number, "cannot make a file %llu bytes long", (unsigned long long)size_bytes);
	return fs_fail(err, ERR_SYSTEM, number);
}

int fs_read_all(int fd, void *target, size_t size, int64_t offset, size_t *ret_size, struct err *err)
{
	size_t done_bytes = 0;

	*ret_size = 0;
	while (done_bytes < size) {
		ssize_t count = offset < 0 ? read(fd, (char *)target + done_bytes, size - done_bytes)
					   : pread(fd, (char *)target + done_bytes, size - done_bytes,
						   offset + (int64_t)done_bytes);
		if (count < 0 && errno == EINTR)
			continue;
		if (count < 0) {
			int number = errno;
			err_sys(err, ERR_SYSTEM, number, "cannot read %zu bytes (%zu were read)", size, done_bytes);
			return fs_fail(err, ERR_SYSTEM, number);
		}
		if (count == 0)
			break;
		done_bytes += (size_t)count;
	}
	*ret_size = done_bytes;
	return 0;
}

int fs_read_file(const char *path, size_t limit_bytes, struct buf *ret_text, struct err *err)
{
	AUTO(fs_close) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	char piece[4096];
	size_t size;

	/* One more than asked, so that the caller may end it with a NUL. */
	*ret_text = BUF_INIT(limit_bytes + 1);
	if (fd < 0) {
		int number = errno;
		err_sys(err, ERR_SYSTEM, number, "cannot open '%s'", path);
		return fs_fail(err, ERR_SYSTEM, number);
	}
	do {
		int result = fs_read_all(fd, piece, sizeof(piece), -1, &size, err);
		if (result < 0) {
			buf_fini(ret_text);
			return err_wrap(err, "reading '%s'", path);
		}
		/* Files under /proc and pipes have no size to ask for beforehand, so it is counted while reading. */
		if (size > limit_bytes - ret_text->size) {
			buf_fini(ret_text);
			return err_set(err, ERR_LIMIT, "'%s' is larger than %zu bytes", path, limit_bytes);
		}
		if (!buf_append(ret_text, (struct str){ piece, size })) {
			buf_fini(ret_text);
			return err_set(err, ERR_NO_MEMORY, "no memory to read '%s'", path);
		}
	} while (size == sizeof(piece));
	return 0;
}

/* The half-made file goes away on every failure. */
static int write_and_rename(int dir_fd, const char *temp, const char *name, struct str data, mode_t mode,
			    struct err *err)
{
	AUTO(fs_close) int fd = openat(dir_fd, temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
	int result;

	if (fd < 0) {
		int number = errno;
		err_sys(err, ERR_SYSTEM, number, "cannot make the temporary file '%s'", temp);
		return fs_fail(err, ERR_SYSTEM, number);
	}
	result = fs_write_all(fd, data.data, data.size, 0, err);
	if (result == 0)
		result = fs_sync_data(fd, temp, err);
	if (result == 0)
		result = fs_rename(dir_fd, temp, dir_fd, name, false, err);
	if (result < 0)
		(void)unlinkat(dir_fd, temp, 0);
	return result;
}

int fs_replace_file(const char *path, struct str data, mode_t mode, struct err *err)
{
	const char *name;
	AUTO(fs_close) int dir_fd = open_parent(path, &name, err);
	char temp[NAME_MAX + 1], suffix[FS_UNIQUE_SIZE];
	int result;

	if (dir_fd < 0)
		return err_wrap(err, "replacing '%s'", path);
	fs_unique(suffix);
	if (snprintf(temp, sizeof(temp), ".%s.%s", name, suffix) >= (int)sizeof(temp))
		return err_sys(err, ERR_SYSTEM, ENAMETOOLONG, "cannot replace '%s'", path);
	result = write_and_rename(dir_fd, temp, name, data, mode, err);
	if (result == 0)
		result = fs_sync_dir(dir_fd, path, err);
	return result < 0 ? err_wrap(err, "replacing '%s'", path) : 0;
}

int fs_temp_file(struct err *err)
{
	const char *const dirs[] = { getenv("TMPDIR"), "/tmp", getenv("XDG_RUNTIME_DIR") };
	int failed_errno = ENOENT;
	for (size_t i = 0; i < COUNT_OF(dirs); i++) {
		if (dirs[i] == NULL || dirs[i][0] != '/')
			continue;
		int fd = open(dirs[i], O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
		if (fd >= 0)
			return fd;
		failed_errno = errno;
		char path[PATH_MAX];
		if (snprintf(path, sizeof(path), "%s/heng-XXXXXX", dirs[i]) >= (int)sizeof(path))
			continue;
		/* Some file systems do not know O_TMPFILE. */
		fd = mkostemp(path, O_CLOEXEC);
		if (fd >= 0) {
			(void)unlink(path);
			return fd;
		}
		failed_errno = errno;
	}
	err_sys(err, ERR_SYSTEM, failed_errno, "making a temporary file in $TMPDIR, /tmp or $XDG_RUNTIME_DIR");
	err_hint(err, "set TMPDIR to a folder that can be written");
	return -(int)ERR_SYSTEM;
}

int fs_sync_data(int fd, const char *what, struct err *err)
{
	if (fdatasync(fd) == 0)
		return 0;
	int number = errno;
	err_sys(err, ERR_SYSTEM, number, "cannot sync the data of '%s'", what);
	return fs_fail(err, ERR_SYSTEM, number);
}

int fs_sync_dir(int dir_fd, const char *what, struct err *err)
{
	if (fsync(dir_fd) == 0)
		return 0;
	int number = errno;
	err_sys(err, ERR_SYSTEM, number, "cannot sync the folder of '%s'", what);
	return fs_fail(err, ERR_SYSTEM, number);
}

int fs_sync_tree(int fd, struct err *err)
{
	if (syncfs(fd) == 0)
		return 0;
	int number = errno;
	err_sys(err, ERR_SYSTEM, number, "cannot sync the file system");
	return fs_fail(err, ERR_SYSTEM, number);
}

int fs_rename(int from_dir_fd, const char *from, int to_dir_fd, const char *to, bool is_exclusive, struct err *err)
{
	if (renameat2(from_dir_fd, from, to_dir_fd, to, is_exclusive ? RENAME_NOREPLACE : 0) == 0)
		return 0;
	int number = errno;
	err_sys(err, ERR_SYSTEM, number, "cannot rename '%s' to '%s'", from, to);
	if (number == EXDEV)
		err_hint(err, "both must be on one file system");
	if (number == EINVAL && is_exclusive)
		err_hint(err, "this file system cannot rename without replacing (RENAME_NOREPLACE): choose another");
	return fs_fail(err, ERR_SYSTEM, number);
}

int fs_space(int fd, struct fs_space *ret_space, struct err *err)
{
	struct statvfs fs;

	if (fstatvfs(fd, &fs) < 0)
		return err_sys(err, ERR_SYSTEM, errno, "cannot ask the file system for its free space");
	*ret_space = (struct fs_space){
		.total_bytes = (uint64_t)fs.f_blocks * fs.f_frsize,
		.free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize,
		.inodes_total = fs.f_files,
		.inodes_free = fs.f_favail,
	};
	return fs_identify(fd, ret_space, err);
}

static int lock_refused(int fd, const char *path, struct err *err)
{
	char text[24] = "";
	size_t size = 0;
	uint64_t pid;

	(void)fs_read_all(fd, text, sizeof(text) - 1, 0, &size, NULL);
	if (str_to_u64(str_trim((struct str){ text, size > 0 && text[size - 1] == '\n' ? size - 1 : size }), &pid))
		err_set(err, ERR_BUSY, "'%s' is locked by process %llu", path, (unsigned long long)pid);
	else
		err_set(err, ERR_BUSY, "'%s' is locked by another process", path);
	err_hint(err, "stop that process first, or give this one a folder of its own");
	return -ERR_BUSY;
}

int fs_lock(const char *path, struct err *err)
{
	AUTO(fs_close) int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	char text[24];
	int result;

	if (fd < 0) {
		int number = errno;
		err_sys(err, ERR_SYSTEM, number, "cannot open the lock file '%s'", path);
		return fs_fail(err, ERR_SYSTEM, number);
	}
	while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		if (errno == EINTR)
			continue;
		if (errno == EWOULDBLOCK)
			return lock_refused(fd, path, err);
		return err_sys(err, ERR_SYSTEM, errno, "cannot lock '%s'", path);
	}
	int size = snprintf(text, sizeof(text), "%ld\n", (long)getpid());
	if (ftruncate(fd, 0) < 0)
		return err_sys(err, ERR_SYSTEM, errno, "cannot empty the lock file '%s'", path);
	result = fs_write_all(fd, text, (size_t)size, 0, err);
	if (result < 0)
		return err_wrap(err, "writing the lock file '%s'", path);
	int held_fd = fd;
	fd = -1;
	return held_fd;
}
