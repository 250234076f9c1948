#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "sys/fs.h"

static char scratch[64];
static int root_fd;

static const char *at(const char *name)
{
	static char path[4][PATH_MAX];
	static unsigned turn;
	char *target = path[turn++ % 4];

	(void)snprintf(target, PATH_MAX, "%s/%s", scratch, name);
	return target;
}

static void put(const char *name, const char *text)
{
	int fd = open(at(name), O_WRONLY | O_CREAT | O_TRUNC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	assert_int_equal(close(fd), 0);
}

static bool exists(const char *name)
{
	struct stat info;

	return lstat(at(name), &info) == 0;
}

static int setup(void **state)
{
	(void)state;
	(void)snprintf(scratch, sizeof(scratch), "/tmp/heng-t-fs-XXXXXX");
	assert_non_null(mkdtemp(scratch));
	root_fd = fs_open_dir(scratch, NULL);
	return root_fd < 0;
}

static int teardown(void **state)
{
	struct err err = ERR_INIT;

	(void)state;
	fs_close(&root_fd);
	int tmp_fd = fs_open_dir("/tmp", NULL);
	int result = fs_remove_tree(tmp_fd, strrchr(scratch, '/') + 1, &err);
	fs_close(&tmp_fd);
	if (result < 0)
		print_message("%s\n", err.text);
	return result < 0;
}

static void test_open_beneath(void **state)
{
	static const struct {
		const char *path;
		int flags, sys_errno; /* 0: opens */
		const char *word;
	} rows[] = {
		{ "link-out/passwd", O_RDONLY, ELOOP, "symbolic link" },
		{ "link-in/file", O_RDONLY, ELOOP, "symbolic link" },
		{ "file-link", O_RDONLY, ELOOP, "symbolic link" },
		{ "dangling", O_WRONLY | O_CREAT, ELOOP, "symbolic link" },
		{ "../x", O_RDONLY, EXDEV, "outside" },
		{ "dir/../../x", O_RDONLY, EXDEV, "outside" },
		{ "/etc/passwd", O_RDONLY, EXDEV, "outside" },
		{ "", O_RDONLY, ENOENT, "cannot open ''" },
		{ "absent", O_RDONLY, ENOENT, "cannot open 'absent'" },
		{ "dir/file/below", O_RDONLY, ENOTDIR, "cannot open" },
		{ "dir/file", O_WRONLY | O_CREAT | O_EXCL, EEXIST, "exists" },
		{ "dir/file", O_RDONLY, 0, NULL },
		{ "dir/../dir/./file", O_RDONLY, 0, NULL },
		{ "dir/new", O_WRONLY | O_CREAT | O_EXCL, 0, NULL },
		{ ".", O_RDONLY | O_DIRECTORY, 0, NULL },
	};

	(void)state;
	assert_int_equal(mkdir(at("dir"), 0755), 0);
	put("dir/file", "x");
	assert_int_equal(symlink("/etc", at("link-out")), 0);
	assert_int_equal(symlink("dir", at("link-in")), 0);
	assert_int_equal(symlink("dir/file", at("file-link")), 0);
	assert_int_equal(symlink("nowhere", at("dangling")), 0);
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct err err = ERR_INIT;
		AUTO(fs_close) int fd = fs_open_beneath(root_fd, rows[i].path, rows[i].flags, 0600, &err);
		if (rows[i].sys_errno == 0) {
			assert_true(fd >= 0);
			assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
			continue;
		}
		assert_int_equal(fd, -ERR_SYSTEM);
		assert_int_equal(err.sys_errno, rows[i].sys_errno);
		assert_non_null(strstr(err.text, rows[i].word));
	}
	assert_false(exists("nowhere"));
}

static void test_make_dirs(void **state)
{
	struct err err = ERR_INIT;
	struct stat info;
	char long_path[PATH_MAX + 10];

	(void)state;
	assert_int_equal(fs_make_dirs(at("a/b//c/"), &err), 0);
	assert_int_equal(stat(at("a/b/c"), &info), 0);
	assert_int_equal(info.st_mode & 07777, 0700);
	assert_int_equal(fs_make_dirs(at("a/b/c"), &err), 0);
	assert_int_equal(fs_make_dirs("/", &err), 0);
	/* A link to a folder is the operator's own choice here. */
	assert_int_equal(symlink("a", at("alias")), 0);
	assert_int_equal(fs_make_dirs(at("alias/d"), &err), 0);
	assert_true(exists("a/d"));

	put("file", "x");
	assert_int_equal(fs_make_dirs(at("file"), &err), -ERR_SYSTEM);
	assert_int_equal(err.sys_errno, ENOTDIR);
	assert_true(err.hint[0] != '\0');
	assert_int_equal(fs_make_dirs(at("file/below"), &err), -ERR_SYSTEM);
	assert_int_equal(err.sys_errno, ENOTDIR);
	assert_int_equal(fs_make_dirs("", &err), -ERR_SYSTEM);
	memset(long_path, 'x', sizeof(long_path) - 1);
	long_path[sizeof(long_path) - 1] = '\0';
	assert_int_equal(fs_make_dirs(long_path, &err), -ERR_SYSTEM);
	assert_int_equal(err.sys_errno, ENAMETOOLONG);
}

static void test_make_dirs_at(void **state)
{
	static const char *const refused[] = { "", "/abs", "..", "a/../../b", "x/..", "escape/in", "escape", "file/x" };
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(mkdir(at("outside"), 0755), 0);
	assert_int_equal(mkdir(at("root"), 0755), 0);
	assert_int_equal(symlink("../outside", at("root/escape")), 0);
	put("root/file", "x");
	AUTO(fs_close) int fd = fs_open_dir(at("root"), &err);
	for (size_t i = 0; i < COUNT_OF(refused); i++)
		assert_true(fs_make_dirs_at(fd, refused[i], &err) < 0);
	assert_false(exists("outside/in"));
	assert_false(exists("b"));
	assert_int_equal(fs_make_dirs_at(fd, "p/q//./r", &err), 0);
	assert_int_equal(fs_make_dirs_at(fd, "p/q/r", &err), 0);
	assert_int_equal(fs_make_dirs_at(fd, ".", &err), 0);
	assert_true(exists("root/p/q/r"));
}

static void test_read_and_write(void **state)
{
	static const struct {
		size_t size, limit;
		int result;
	} rows[] = { { 0, 0, 0 },
		     { 1, 0, -ERR_LIMIT },
		     { 4095, 4095, 0 },
		     { 4096, 4096, 0 },
		     { 4097, 4096, -ERR_LIMIT },
		     { 10000, 10000, 0 },
		     { 10000, 9999, -ERR_LIMIT } };
	struct err err = ERR_INIT;
	char data[10000], back[10000];
	size_t size;

	(void)state;
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (char)(i * 7);
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct buf text;
		assert_int_equal(fs_replace_file(at("f"), (struct str){ data, rows[i].size }, 0600, &err), 0);
		assert_int_equal(fs_read_file(at("f"), rows[i].limit, &text, &err), rows[i].result);
		if (rows[i].result == 0) {
			assert_int_equal(text.size, rows[i].size);
			if (text.size > 0)
				assert_memory_equal(text.data, data, text.size);
			(void)buf_cstr(&text);
			assert_false(text.is_failed);
		}
		buf_fini(&text);
	}
	AUTO(fs_close) int fd = open(at("f"), O_RDWR | O_TRUNC);
	assert_int_equal(fs_write_all(fd, "world", 5, 5, &err), 0);
	assert_int_equal(fs_write_all(fd, "hello", 5, -1, &err), 0);
	assert_int_equal(fs_read_all(fd, back, sizeof(back), 0, &size, &err), 0);
	assert_int_equal(size, 10);
	assert_memory_equal(back, "helloworld", 10);
	assert_int_equal(fs_read_all(fd, back, 5, -1, &size, &err), 0);
	assert_memory_equal(back, "world", 5);
	AUTO(fs_close) int read_fd = open(at("f"), O_RDONLY);
	assert_int_equal(fs_write_all(read_fd, "x", 1, 0, &err), -ERR_SYSTEM);
	assert_int_equal(err.sys_errno, EBADF);
	AUTO(fs_close) int full_fd = open("/dev/full", O_WRONLY);
	assert_int_equal(fs_write_all(full_fd, "x", 1, -1, &err), -ERR_SYSTEM);
	assert_int_equal(err.sys_errno, ENOSPC);
	assert_non_null(strstr(err.hint, "free space"));
	struct buf none;
	assert_int_equal(fs_read_file(at("absent"), 10, &none, &err), -ERR_SYSTEM);
	assert_int_equal(fs_read_file(scratch, 10, &none, &err), -ERR_SYSTEM);
	assert_int_equal(err.sys_errno, EISDIR);
	/* Endless: must be refused, not read. */
	assert_int_equal(fs_read_file("/dev/zero", 100000, &none, &err), -ERR_LIMIT);
}

/* The bytes are the same whether or not there are holes, wherever the zeros begin and end; and holes there are. */
/* One read of it is less than a piece, a whole piece, or a bit more. */
static void test_digest(void **state)
{
	(void)state;
	static const size_t sizes[] = { 0, 1, 256 * KIB - 1, 256 * KIB, 256 * KIB + 1, 600 * KIB };
	char *data = must_zalloc(600 * KIB, 1), want[DIGEST_HEX_SIZE], found[DIGEST_HEX_SIZE];
	struct err err = ERR_INIT;

	for (size_t i = 0; i < 600 * KIB; i++)
		data[i] = (char)(i * 2654435761u >> 13);
	for (size_t i = 0; i < COUNT_OF(sizes); i++) {
		AUTO(fs_close) int fd = open(at("d"), O_RDWR | O_CREAT | O_TRUNC, 0600);
		assert_int_equal(fs_write_all(fd, data, sizes[i], -1, &err), 0);
		for (int kind = DIGEST_MD5; kind <= DIGEST_SHA256; kind++) {
			digest_of((enum digest_kind)kind, data, sizes[i], want);
			assert_int_equal(fs_digest(fd, (enum digest_kind)kind, found, &err), 0);
			assert_string_equal(found, want);
		}
	}
	AUTO(fs_close) int write_fd = open(at("d"), O_WRONLY);
	assert_int_equal(fs_digest(write_fd, DIGEST_MD5, found, &err), -ERR_SYSTEM);
	free(data);
}

static void test_sparse(void **state)
{
	static const struct {
		size_t size, data_at, data_size; /* all else is zeros */
		int64_t offset;
	} rows[] = {
		{ 1, 0, 1, 0 },
		{ 1, 0, 0, 0 },
		{ 4095, 0, 0, 0 },
		{ 4096, 0, 0, 0 },
		{ 4097, 4096, 1, 0 },
		{ 3 * 4096, 4096, 4096, 0 },
		{ 3 * 4096, 4095, 2, 0 },
		{ 3 * 4096 + 5, 0, 1, 7 },
		{ 3 * 4096 + 5, 0, 0, 4095 },
		{ 8 * 4096, 8 * 4096 - 1, 1, 4096 },
		{ 8 * 4096, 5000, 9000, 1 },
		{ 2 * 4096 - 1, 0, 0, 1 },
		{ 100, 0, 100, 4090 },
	};
	static char data[8 * 4096 + 64], back[sizeof(data) + 4096];

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct err err = ERR_INIT;
		bool ends_in_hole = false;
		struct stat st;
		size_t got = 0;
		AUTO(fs_close) int fd = open(at("sparse"), O_RDWR | O_CREAT | O_TRUNC, 0600);

		memset(data, 0, sizeof(data));
		memset(data + rows[i].data_at, 'x', rows[i].data_size);
		assert_int_equal(fs_write_sparse(fd, data, rows[i].size, rows[i].offset, &ends_in_hole, &err), 0);
		assert_int_equal(fstat(fd, &st), 0);
		assert_int_equal(ends_in_hole, (size_t)st.st_size < (size_t)rows[i].offset + rows[i].size);
		assert_int_equal(fs_set_size(fd, (uint64_t)rows[i].offset + rows[i].size, &err), 0);
		assert_int_equal(fs_read_all(fd, back, sizeof(back), rows[i].offset, &got, &err), 0);
		assert_int_equal(got, rows[i].size);
		assert_memory_equal(back, data, got);
	}
	/* A gap between two blocks with data is a hole for the file system too, where it has any. */
	struct err err = ERR_INIT;
	bool ends_in_hole = true;
	AUTO(fs_close) int fd = open(at("sparse"), O_RDWR | O_CREAT | O_TRUNC, 0600);
	memset(data, 0, sizeof(data));
	data[0] = data[7 * 4096] = 'x';
	assert_int_equal(fs_write_sparse(fd, data, (size_t)8 * 4096, 0, &ends_in_hole, &err), 0);
	assert_false(ends_in_hole);
	assert_int_equal(lseek(fd, 0, SEEK_HOLE), 4096);
	assert_int_equal(lseek(fd, 4096, SEEK_DATA), 7 * 4096);
	AUTO(fs_close) int full_fd = open("/dev/full", O_WRONLY);
	assert_int_equal(fs_write_sparse(full_fd, data, 4096, 0, &ends_in_hole, &err), -ERR_SYSTEM);
	assert_int_equal(err.sys_errno, ENOSPC);
}

static size_t entry_count(void)
{
	char command[128];
	size_t count = 0;

	(void)snprintf(command, sizeof(command), "ls -A %s | wc -l", scratch);
	FILE *pipe = popen(command, "r");
	assert_non_null(pipe);
	assert_int_equal(fscanf(pipe, "%zu", &count), 1);
	(void)pclose(pipe);
	return count;
}

static void test_replace(void **state)
{
	struct err err = ERR_INIT;
	struct buf text;
	struct stat info;

	(void)state;
	assert_int_equal(fs_replace_file(at("f"), STR("one"), 0600, &err), 0);
	assert_int_equal(stat(at("f"), &info), 0);
	assert_int_equal(info.st_mode & 07777, 0600);
	/* A link is replaced itself; what it points to stays. */
	assert_int_equal(symlink("f", at("l")), 0);
	assert_int_equal(fs_replace_file(at("l"), STR("two"), 0600, &err), 0);
	assert_int_equal(fs_read_file(at("f"), 10, &text, &err), 0);
	assert_true(str_eq_c(buf_str(&text), "one"));
	buf_fini(&text);
	assert_int_equal(fs_replace_file(at("f"), STR("three"), 0600, &err), 0);
	assert_int_equal(fs_read_file(at("f"), 10, &text, &err), 0);
	assert_true(str_eq_c(buf_str(&text), "three"));
	buf_fini(&text);
	/* Failures leave nothing behind. */
	assert_int_equal(mkdir(at("d"), 0755), 0);
	put("d/in", "x");
	assert_int_equal(fs_replace_file(at("d"), STR("x"), 0600, &err), -ERR_SYSTEM);
	assert_non_null(strstr(err.text, "replacing"));
	assert_int_equal(fs_replace_file(at("f/x"), STR("x"), 0600, &err), -ERR_SYSTEM);
	assert_int_equal(err.sys_errno, ENOTDIR);
	assert_int_equal(fs_replace_file(at("none/x"), STR("x"), 0600, &err), -ERR_SYSTEM);
	assert_int_equal(entry_count(), 3);
}

static void test_rename(void **state)
{
	struct err err = ERR_INIT;

	(void)state;
	put("a", "a");
	put("b", "b");
	assert_int_equal(fs_rename(root_fd, "a", root_fd, "b", true, &err), -ERR_SYSTEM);
	assert_int_equal(err.sys_errno, EEXIST);
	assert_true(exists("a"));
	assert_int_equal(fs_rename(root_fd, "a", root_fd, "c", true, &err), 0);
	assert_int_equal(fs_rename(root_fd, "c", root_fd, "b", false, &err), 0);
	assert_false(exists("c"));
	assert_int_equal(fs_rename(root_fd, "c", root_fd, "b", false, &err), -ERR_SYSTEM);
	assert_int_equal(err.sys_errno, ENOENT);
	assert_int_equal(fs_sync_dir(root_fd, "b", &err), 0);
	assert_int_equal(fs_sync_tree(root_fd, &err), 0);
	assert_int_equal(fs_sync_data(-1, "nothing", &err), -ERR_SYSTEM);
	assert_int_equal(fs_sync_dir(-1, "nothing", &err), -ERR_SYSTEM);
	assert_int_equal(fs_sync_tree(-1, &err), -ERR_SYSTEM);
}

/* Deeper than descriptors may be open and than a path may be long. */
static void make_deep(unsigned depth)
{
	int fd = openat(root_fd, "t", O_RDONLY | O_DIRECTORY);

	for (unsigned i = 0; i < depth; i++) {
		assert_int_equal(mkdirat(fd, "deep-folder", 0700), 0);
		int next = openat(fd, "deep-folder", O_RDONLY | O_DIRECTORY);
		int file = openat(fd, "file", O_WRONLY | O_CREAT, 0600);
		assert_true(next >= 0 && file >= 0);
		(void)close(file);
		(void)close(fd);
		fd = next;
	}
	(void)close(fd);
}

static void test_remove_tree(void **state)
{
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(fs_remove_tree(root_fd, "absent", &err), 0);
	put("file", "x");
	assert_int_equal(fs_remove_tree(root_fd, "file", &err), 0);
	assert_false(exists("file"));
	assert_int_equal(mkdir(at("kept"), 0755), 0);
	put("kept/precious", "x");
	assert_int_equal(mkdir(at("t"), 0755), 0);
	assert_int_equal(symlink("../kept", at("t/link")), 0);
	assert_int_equal(symlink("kept", at("link")), 0);
	assert_int_equal(mkdir(at("t/read-only"), 0755), 0);
	put("t/read-only/x", "x");
	assert_int_equal(chmod(at("t/read-only"), 0500), 0);
	make_deep(1500);
	assert_int_equal(fs_remove_tree(root_fd, "t", &err), 0);
	assert_int_equal(fs_remove_tree(root_fd, "link", &err), 0);
	assert_false(exists("t"));
	assert_false(exists("link"));
	assert_true(exists("kept/precious"));
	/* Below a file there is nothing to remove, but that is not "absent". */
	assert_int_equal(fs_remove_tree(root_fd, "kept/precious/x", &err), -ERR_SYSTEM);
}

/* Where blocks cannot be shared nothing is touched; where they can, the bytes are the same and the two files lead their own lives. */
static void test_clone(void **state)
{
	(void)state;
	char data[3 * FS_BLOCK_BYTES], got[sizeof(data)];
	size_t size = 0;

	memset(data, 'a', sizeof(data));
	memset(data + FS_BLOCK_BYTES, 'b', FS_BLOCK_BYTES);
	AUTO(fs_close) int from_fd = fs_open_beneath(root_fd, "from", O_RDWR | O_CREAT, 0600, NULL);
	AUTO(fs_close) int to_fd = fs_open_beneath(root_fd, "to", O_RDWR | O_CREAT, 0600, NULL);
	assert_int_equal(fs_write_all(from_fd, data, sizeof(data), 0, NULL), 0);
	assert_false(fs_clone_range(from_fd, 0, 0, to_fd, 0));
	assert_false(fs_clone_range(from_fd, 0, 5, to_fd, 0));
	bool is_cloned = fs_clone_range(from_fd, 0, 2 * FS_BLOCK_BYTES, to_fd, FS_BLOCK_BYTES);
	assert_int_equal(fs_read_all(to_fd, got, sizeof(got), 0, &size, NULL), 0);
	assert_int_equal(size, is_cloned ? sizeof(data) : 0);
	if (!is_cloned)
		return;
	assert_memory_equal(got + FS_BLOCK_BYTES, data, 2 * FS_BLOCK_BYTES);
	assert_int_equal(fs_write_all(to_fd, "c", 1, FS_BLOCK_BYTES, NULL), 0);
	assert_int_equal(fs_read_all(from_fd, got, sizeof(got), 0, &size, NULL), 0);
	assert_memory_equal(got, data, sizeof(data));
}

static void test_space(void **state)
{
	struct err err = ERR_INIT;
	struct fs_space space, other;

	(void)state;
	assert_int_equal(fs_space(root_fd, &space, &err), 0);
	assert_true(space.total_bytes > 0 && space.free_bytes <= space.total_bytes);
	int proc_fd = fs_open_dir("/proc", &err);
	assert_int_equal(fs_space(proc_fd, &other, &err), 0);
	assert_true(other.fs_id != space.fs_id);
	fs_close(&proc_fd);
	assert_int_equal(fs_space(-1, &space, &err), -ERR_SYSTEM);
}

static uint64_t id_of(const char *path)
{
	struct err err = ERR_INIT;
	struct fs_space space;
	int fd = fs_open_dir(path, &err);

	assert_true(fd >= 0);
	assert_int_equal(fs_space(fd, &space, &err), 0);
	fs_close(&fd);
	assert_false(space.is_network);
	return space.fs_id;
}

/* What shares the space is one file system, whatever number its device has. */
static void test_one_space_one_id(void **state)
{
	char options[4 * PATH_MAX];
	struct stat lower, above;

	(void)state;
	assert_int_equal(mkdir(at("low"), 0755), 0);
	assert_int_equal(mkdir(at("up"), 0755), 0);
	assert_int_equal(mkdir(at("work"), 0755), 0);
	assert_int_equal(mkdir(at("all"), 0755), 0);
	assert_int_equal(id_of(at("up")), id_of(scratch));
	/* "uuid=null" is what older kernels do without being asked: the overlay tells of its upper layer. */
	(void)snprintf(options, sizeof(options), "lowerdir=%s/low,upperdir=%s/up,workdir=%s/work,uuid=null", scratch,
		       scratch, scratch);
	if (mount("overlay", at("all"), "overlay", 0, options) < 0)
		skip(); /* needs the right to mount, and a kernel that knows the option */
	assert_int_equal(stat(at("all"), &above), 0);
	assert_int_equal(stat(at("up"), &lower), 0);
	const uint64_t above_id = id_of(at("all")), lower_id = id_of(at("up"));
	assert_int_equal(umount(at("all")), 0);
	assert_int_not_equal(above.st_dev, lower.st_dev);
	assert_int_equal(above_id, lower_id);
}

static void test_lock(void **state)
{
	struct err err = ERR_INIT;
	char pid[24];
	struct buf text;
	int status;

	(void)state;
	put("lock", "99999999999999999999 stale, longer than a pid");
	int fd = fs_lock(at("lock"), &err);
	assert_true(fd >= 0);
	(void)snprintf(pid, sizeof(pid), "%ld", (long)getpid());
	assert_int_equal(fs_read_file(at("lock"), 100, &text, &err), 0);
	assert_true(str_starts(buf_str(&text), str_from(pid)));
	assert_int_equal(text.size, strlen(pid) + 1);
	buf_fini(&text);

	pid_t child = fork();
	if (child == 0) {
		int second = fs_lock(at("lock"), &err);
		_exit(second == -ERR_BUSY && strstr(err.text, pid) && err.hint[0] ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	fs_close(&fd);
	fd = fs_lock(at("lock"), &err);
	assert_true(fd >= 0);
	fs_close(&fd);
	assert_int_equal(symlink("lock", at("lock-link")), 0);
	assert_int_equal(fs_lock(at("lock-link"), &err), -ERR_SYSTEM);
	assert_int_equal(fs_lock(scratch, &err), -ERR_SYSTEM);
}

/* What killed processes left half made goes, nothing else. */
static void test_clean_replaced(void **state)
{
	static const char *const left[] = { ".f.0123456789abcdef", ".a.b.fedcba9876543210" };
	static const char *const kept[] = { "f",
					    "f.0123456789abcdef",
					    ".0123456789abcdef",
					    ".f.0123456789abcdeg",
					    ".f.0123456789abcde",
					    ".f.0123456789abcdef0" };
	const struct timespec old[2] = { { .tv_nsec = UTIME_NOW }, { .tv_sec = 1000 } };

	(void)state;
	for (size_t i = 0; i < COUNT_OF(kept); i++)
		put(kept[i], "x");
	for (size_t i = 0; i < COUNT_OF(left); i++)
		put(left[i], "x");
	assert_int_equal(mkdir(at(".d.0123456789abcdef"), 0755), 0);
	fs_clean_replaced(at("absent"), 0);
	fs_clean_replaced(scratch, 3600 * SEC_US);
	assert_int_equal(entry_count(), COUNT_OF(kept) + COUNT_OF(left) + 1);
	assert_int_equal(utimensat(AT_FDCWD, at(left[0]), old, 0), 0);
	fs_clean_replaced(scratch, 3600 * SEC_US);
	assert_int_equal(access(at(left[0]), F_OK), -1);
	assert_int_equal(access(at(left[1]), F_OK), 0);
	fs_clean_replaced(scratch, 0);
	assert_int_equal(access(at(left[1]), F_OK), -1);
	assert_int_equal(entry_count(), COUNT_OF(kept) + 1);
}

static void test_check_dir(void **state)
{
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(fs_check_dir(scratch, &err), 0);
	assert_int_equal(entry_count(), 0);
	assert_int_equal(fs_check_dir(at("absent"), &err), -ERR_DISK);
	assert_int_equal(err.sys_errno, ENOENT);
	assert_non_null(strstr(err.text, at("absent")));
	assert_true(err.hint[0] != '\0');
	put("file", "x");
	assert_int_equal(fs_check_dir(at("file"), &err), -ERR_DISK);
	assert_int_equal(err.sys_errno, ENOTDIR);
	put(".probe-0123", "of a check that was killed");
	put(".probe-0123.done", "");
	fs_clean_probes(at("absent"));
	fs_clean_probes(scratch);
	assert_int_equal(entry_count(), 1);
	/* Root may write everywhere but where nobody may. */
	assert_int_equal(fs_check_dir("/proc", &err), -ERR_DISK);
	assert_non_null(strstr(err.text, "make a file"));
}

static void test_read_only_and_full(void **state)
{
	struct err err = ERR_INIT;
	char data[PATH_MAX] = "";

	(void)state;
	assert_int_equal(mkdir(at("mnt"), 0755), 0);
	if (mount("none", at("mnt"), "tmpfs", 0, "size=8k") < 0)
		skip(); /* needs the right to mount */
	put("mnt/fill", "x");
	int fd = open(at("mnt/fill"), O_WRONLY | O_APPEND);
	while (fs_write_all(fd, data, sizeof(data), -1, &err) == 0)
		;
	fs_close(&fd);
	struct err full = ERR_INIT, read_only = ERR_INIT, replace = ERR_INIT, lock = ERR_INIT;
	int full_result = fs_check_dir(at("mnt"), &full);
	int remount_result = mount("none", at("mnt"), NULL, MS_REMOUNT | MS_RDONLY, NULL);
	int read_only_result = fs_check_dir(at("mnt"), &read_only);
	int replace_result = fs_replace_file(at("mnt/fill"), STR("y"), 0600, &replace);
	int lock_result = fs_lock(at("mnt/lock"), &lock);
	(void)umount2(at("mnt"), MNT_DETACH);

	assert_int_equal(err.sys_errno, ENOSPC);
	assert_int_equal(full_result, -ERR_DISK);
	assert_int_equal(full.sys_errno, ENOSPC);
	assert_non_null(strstr(full.text, "write a file"));
	assert_int_equal(remount_result, 0);
	assert_int_equal(read_only_result, -ERR_DISK);
	assert_int_equal(read_only.sys_errno, EROFS);
	assert_non_null(strstr(read_only.hint, "read-only"));
	assert_int_equal(replace_result, -ERR_SYSTEM);
	assert_int_equal(replace.sys_errno, EROFS);
	assert_int_equal(lock_result, -ERR_SYSTEM);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_open_beneath, setup, teardown),
		cmocka_unit_test_setup_teardown(test_make_dirs, setup, teardown),
		cmocka_unit_test_setup_teardown(test_make_dirs_at, setup, teardown),
		cmocka_unit_test_setup_teardown(test_read_and_write, setup, teardown),
		cmocka_unit_test_setup_teardown(test_digest, setup, teardown),
		cmocka_unit_test_setup_teardown(test_sparse, setup, teardown),
		cmocka_unit_test_setup_teardown(test_replace, setup, teardown),
		cmocka_unit_test_setup_teardown(test_rename, setup, teardown),
		cmocka_unit_test_setup_teardown(test_remove_tree, setup, teardown),
		cmocka_unit_test_setup_teardown(test_space, setup, teardown),
		cmocka_unit_test_setup_teardown(test_one_space_one_id, setup, teardown),
		cmocka_unit_test_setup_teardown(test_clone, setup, teardown),
		cmocka_unit_test_setup_teardown(test_lock, setup, teardown),
		cmocka_unit_test_setup_teardown(test_clean_replaced, setup, teardown),
		cmocka_unit_test_setup_teardown(test_check_dir, setup, teardown),
		cmocka_unit_test_setup_teardown(test_read_only_and_full, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
