/* Preloaded into a process of a system test (faults.py): chosen calls on chosen paths fail or are slow, and the wall clock is off.
 *
 * The file named by SHIM_FILE is read at each call, so that a test may change its mind; one rule a line, of which the first that fits counts:
 *     CALL ERRNO SKIP DELAY_MS PATH     CALL: its name, or *; ERRNO: a number, 0: it only is slow; SKIP: that many calls go well first;
 *                                       PATH: a piece of the path (of an open descriptor: the path it was opened by)
 * The call `fold` does not fail: files are made there by their names in lower case, as where cases are not told apart.
 * SHIM_CLOCK_US moves CLOCK_REALTIME, in whole seconds. What the event loop does through io_uring (sockets; no file) passes by here. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define RULES_MAX 16

/* Calls that went well so far, by rule; a rule that is replaced by another one begins anew. */
static struct seen {
	char line[600];
	long count;
} seen[RULES_MAX];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

#define REAL(type, name, ...)             \
	static type (*real)(__VA_ARGS__); \
	if (!real)                        \
	real = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

/* The kernel itself: the functions of the library are those that we stand in for. */
static long kernel(long number, long a, long b, long c, long d, long e, long f)
{
	REAL(long, syscall, long, ...);
	return real(number, a, b, c, d, e, f);
}

static bool read_rules(char *text, size_t size)
{
	const char *path = getenv("SHIM_FILE");
	const int fd = path ? (int)kernel(SYS_openat, AT_FDCWD, (long)path, O_RDONLY | O_CLOEXEC, 0, 0, 0) : -1;
	long got;

	if (fd < 0)
		return false;
	got = kernel(SYS_read, fd, (long)text, (long)size - 1, 0, 0, 0);
	kernel(SYS_close, fd, 0, 0, 0, 0, 0);
	text[got > 0 ? got : 0] = '\0';
	return got > 0;
}

static bool is_due(const char *line, int index, long skip)
{
	bool due;

	pthread_mutex_lock(&lock);
	if (strcmp(seen[index].line, line) != 0) {
		snprintf(seen[index].line, sizeof(seen[index].line), "%s", line);
		seen[index].count = 0;
	}
	due = seen[index].count++ >= skip;
	pthread_mutex_unlock(&lock);
	return due;
}

/* A sanitizer's library makes the folder of its reports before it stands in for the functions that are called below: until the program's libraries are
 * all set up, every call goes through. */
static bool is_set_up;
__attribute__((constructor)) static void set_up(void) { is_set_up = true; }

/* 0: go on; else errno is set. */
static int judge(const char *call, const char *path)
{
	char text[4096], *rest = NULL;
	int index = 0;

	if (!read_rules(text, sizeof(text)))
		return 0;
	for (char *line = strtok_r(text, "\n", &rest); line && index < RULES_MAX;
	     line = strtok_r(NULL, "\n", &rest), index++) {
		char name[32], piece[512];
		int number;
		long skip, delay_ms;

		if (sscanf(line, "%31s %d %ld %ld %511s", name, &number, &skip, &delay_ms, piece) != 5)
			continue;
		if ((strcmp(name, "*") != 0 && strcmp(name, call) != 0) || !strstr(path, piece) ||
		    !is_due(line, index, skip))
			continue;
		if (delay_ms > 0) {
			const struct timespec pause = { delay_ms / 1000, delay_ms % 1000 * 1000000 };
			nanosleep(&pause, NULL);
		}
		if (number == 0)
			return 0;
		errno = number;
		return -1;
	}
	return 0;
}

static void path_of(int fd, const char *name, char path[2 * PATH_MAX])
{
	char link[64];
	ssize_t size = 0;

	path[0] = '\0';
	if (fd != AT_FDCWD && (!name || name[0] != '/')) {
		snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
		size = readlink(link, path, PATH_MAX);
		path[size > 0 ? size : 0] = '\0';
	}
	if (name)
		snprintf(path + strlen(path), PATH_MAX, "%s%s", path[0] ? "/" : "", name);
}

static int judge_fd(const char *call, int fd)
{
	const int before = errno;
	char path[2 * PATH_MAX];
	int r;

	if (!is_set_up)
		return 0;
	path_of(fd, NULL, path);
	errno = before;
	if (path[0] != '/' || strncmp(path, "/proc", 5) == 0)
		return 0;
	r = judge(call, path);
	if (r == 0)
		errno = before;
	return r;
}

static int judge_at(const char *call, int dir_fd, const char *name)
{
	const int before = errno;
	char path[2 * PATH_MAX];
	int r;

	if (!is_set_up)
		return 0;
	path_of(dir_fd, name, path);
	r = judge(call, path);
	if (r == 0)
		errno = before;
	return r;
}

ssize_t write(int fd, const void *data, size_t size)
{
	REAL(ssize_t, write, int, const void *, size_t);
	return judge_fd("write", fd) < 0 ? -1 : real(fd, data, size);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset)
{
	REAL(ssize_t, pwrite64, int, const void *, size_t, off64_t);
	return judge_fd("write", fd) < 0 ? -1 : real(fd, data, size, offset);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) { return pwrite64(fd, data, size, offset); }

ssize_t writev(int fd, const struct iovec *pieces, int count)
{
	REAL(ssize_t, writev, int, const struct iovec *, int);
	return judge_fd("write", fd) < 0 ? -1 : real(fd, pieces, count);
}

ssize_t pwritev(int fd, const struct iovec *pieces, int count, off_t offset)
{
	REAL(ssize_t, pwritev, int, const struct iovec *, int, off_t);
	return judge_fd("write", fd) < 0 ? -1 : real(fd, pieces, count, offset);
}

ssize_t copy_file_range(int from, off64_t *from_at, int to, off64_t *to_at, size_t size, unsigned flags)
{
	REAL(ssize_t, copy_file_range, int, off64_t *, int, off64_t *, size_t, unsigned);
	return judge_fd("write", to) < 0 ? -1 : real(from, from_at, to, to_at, size, flags);
}

ssize_t read(int fd, void *data, size_t size)
{
	REAL(ssize_t, read, int, void *, size_t);
	return judge_fd("read", fd) < 0 ? -1 : real(fd, data, size);
}

ssize_t pread64(int fd, void *data, size_t size, off64_t offset)
{
	REAL(ssize_t, pread64, int, void *, size_t, off64_t);
	return judge_fd("read", fd) < 0 ? -1 : real(fd, data, size, offset);
}

ssize_t pread(int fd, void *data, size_t size, off_t offset) { return pread64(fd, data, size, offset); }

int fdatasync(int fd)
{
	REAL(int, fdatasync, int);
	return judge_fd("fdatasync", fd) < 0 ? -1 : real(fd);
}

int fsync(int fd)
{
	REAL(int, fsync, int);
	return judge_fd("fsync", fd) < 0 ? -1 : real(fd);
}

int syncfs(int fd)
{
	REAL(int, syncfs, int);
	return judge_fd("fsync", fd) < 0 ? -1 : real(fd);
}

int ftruncate64(int fd, off64_t size)
{
	REAL(int, ftruncate64, int, off64_t);
	return judge_fd("write", fd) < 0 ? -1 : real(fd, size);
}

int ftruncate(int fd, off_t size) { return ftruncate64(fd, size); }

int renameat2(int from, const char *old, int to, const char *name, unsigned flags)
{
	REAL(int, renameat2, int, const char *, int, const char *, unsigned);
	return judge_at("rename", to, name) < 0 ? -1 : real(from, old, to, name, flags);
}

int renameat(int from, const char *old, int to, const char *name) { return renameat2(from, old, to, name, 0); }
int rename(const char *old, const char *name) { return renameat2(AT_FDCWD, old, AT_FDCWD, name, 0); }

int mkdirat(int fd, const char *name, mode_t mode)
{
	REAL(int, mkdirat, int, const char *, mode_t);
	return judge_at("mkdir", fd, name) < 0 ? -1 : real(fd, name, mode);
}

int mkdir(const char *name, mode_t mode) { return mkdirat(AT_FDCWD, name, mode); }

int unlinkat(int fd, const char *name, int flags)
{
	REAL(int, unlinkat, int, const char *, int);
	return judge_at("unlink", fd, name) < 0 ? -1 : real(fd, name, flags);
}

int unlink(const char *name) { return unlinkat(AT_FDCWD, name, 0); }

int linkat(int from, const char *old, int to, const char *name, int flags)
{
	REAL(int, linkat, int, const char *, int, const char *, int);
	return judge_at("link", to, name) < 0 ? -1 : real(from, old, to, name, flags);
}

int openat64(int fd, const char *name, int flags, ...)
{
	REAL(int, openat64, int, const char *, int, ...);
	mode_t mode = 0;

	if (flags & (O_CREAT | O_TMPFILE)) {
		va_list args;
		va_start(args, flags);
		mode = va_arg(args, mode_t);
		va_end(args);
	}
	if (judge_at("open", fd, name) < 0)
		return -1;
	if ((flags & O_EXCL) && judge_at("fold", fd, name) < 0) {
		char lower[PATH_MAX];
		size_t size = 0;

		for (; name[size] && size < sizeof(lower) - 1; size++)
			lower[size] = name[size] >= 'A' && name[size] <= 'Z' ? (char)(name[size] - 'A' + 'a')
									     : name[size];
		lower[size] = '\0';
		return real(fd, lower, flags, mode);
	}
	return real(fd, name, flags, mode);
}

int openat(int fd, const char *name, int flags, ...)
{
	va_list args;

	va_start(args, flags);
	const mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(args, mode_t) : 0;
	va_end(args);
	return openat64(fd, name, flags, mode);
}

int open64(const char *name, int flags, ...)
{
	va_list args;

	va_start(args, flags);
	const mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(args, mode_t) : 0;
	va_end(args);
	return openat64(AT_FDCWD, name, flags, mode);
}

int open(const char *name, int flags, ...)
{
	va_list args;

	va_start(args, flags);
	const mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(args, mode_t) : 0;
	va_end(args);
	return openat64(AT_FDCWD, name, flags, mode);
}

/* openat2 has no function of its own. */
long syscall(long number, ...)
{
	long a[6];
	va_list args;

	va_start(args, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(args, long);
	va_end(args);
	if (number == SYS_openat2 && judge_at("open", (int)a[0], (const char *)a[1]) < 0)
		return -1;
	return kernel(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* --- the wall clock --- */

static int64_t clock_offset_us(void)
{
	/* Once: a clock that is off is off from the start. */
	static int64_t offset_us = INT64_MIN;

	if (offset_us == INT64_MIN) {
		const char *text = getenv("SHIM_CLOCK_US");
		offset_us = text ? atoll(text) : 0;
	}
	return offset_us;
}

int clock_gettime(clockid_t id, struct timespec *ret)
{
	REAL(int, clock_gettime, clockid_t, struct timespec *);
	const int r = real(id, ret);

	if (r == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE))
		ret->tv_sec += clock_offset_us() / 1000000;
	return r;
}

int gettimeofday(struct timeval *restrict ret, void *restrict zone)
{
	struct timespec now;
	(void)zone;

	clock_gettime(CLOCK_REALTIME, &now);
	*ret = (struct timeval){ now.tv_sec, now.tv_nsec / 1000 };
	return 0;
}

time_t time(time_t *ret)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	if (ret)
		*ret = now.tv_sec;
	return now.tv_sec;
}
