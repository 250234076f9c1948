/* The staging tree: odd names, long paths, modes and times, refusal to overwrite. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "folder/stage.h"
#include "sys/fs.h"

#define ID "01HZZZZZZZZZZZZZZZZZZZZZZZ"
#define NAME_255                                                                                               \
	"nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn" \
	"nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn" \
	"nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn"

struct world {
	char path[64];
	int root_fd, staging_fd, final_fd;
	struct stage stage;
	struct stage_cursor cursor;
};

static int setup(void **state)
{
	struct world *world = must_zalloc(1, sizeof(*world));
	struct err err = ERR_INIT;

	snprintf(world->path, sizeof(world->path), "/tmp/t_stage-XXXXXX");
	assert_non_null(mkdtemp(world->path));
	world->root_fd = open(world->path, O_RDONLY | O_DIRECTORY);
	assert_int_equal(mkdirat(world->root_fd, "staging", 0700), 0);
	assert_int_equal(mkdirat(world->root_fd, "final", 0700), 0);
	world->staging_fd = openat(world->root_fd, "staging", O_RDONLY | O_DIRECTORY);
	world->final_fd = openat(world->root_fd, "final", O_RDONLY | O_DIRECTORY);
	assert_int_equal(stage_open(&world->stage, world->staging_fd, ID, &err), 0);
	stage_cursor_init(&world->cursor, &world->stage);
	*state = world;
	return 0;
}

static int teardown(void **state)
{
	struct world *world = *state;
	struct err err = ERR_INIT;

	stage_cursor_fini(&world->cursor);
	stage_close(&world->stage);
	close(world->staging_fd);
	close(world->final_fd);
	close(world->root_fd);
	int tmp_fd = open("/tmp", O_RDONLY | O_DIRECTORY);
	assert_int_equal(fs_remove_tree(tmp_fd, world->path + strlen("/tmp/"), &err), 0);
	close(tmp_fd);
	free(world);
	return 0;
}

static int folder(struct world *world, struct str path, uint32_t mode, int64_t mtime_ns, struct err *err)
{
	struct store_entry entry = { .type = 'D', .mode = mode, .mtime_ns = mtime_ns, .path = path };

	return stage_folder(&world->stage, &world->cursor, &entry, err);
}

static int file(struct world *world, struct str path, uint32_t mode, int64_t mtime_ns, struct err *err)
{
	int fd = stage_file(&world->cursor, path, mode, err);

	if (fd < 0)
		return fd;
	assert_int_equal(write(fd, "x", 1), 1);
	return stage_file_end(&world->stage, &fd, path, mode, mtime_ns, err);
}

static struct stat look(int dir_fd, const char *path)
{
	struct stat st;

	if (fstatat(dir_fd, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
		fail_msg("'%s' is not there: %s", path, strerror(errno));
	return st;
}

static int64_t mtime_of(const struct stat *st)
{
	return (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
}

/* Every kind of name, mode and time comes out as it went in, and the root's too. */
static void test_attributes(void **state)
{
	struct world *world = *state;
	struct err err = ERR_INIT;
	static const struct {
		char type;
		const char *path;
		uint32_t mode;
		int64_t mtime_ns;
	} rows[] = {
		{ 'D', ".", 0555, 1700000000123456789 },
		{ 'F', "\xff\xfe\n\t", 0444, 1 },
		{ 'F', NAME_255, 0640, -1 },
		{ 'D', "a", 0500, 999999999 },
		{ 'F', "a/one", 0000, 0 },
		{ 'D', "a/b", 02755, -1500000000 },
		{ 'D', "a/b/c", 0, 1600000000000000001 },
		{ 'F', "a/b/c/two", 04711, 4102444800123456789 },
		{ 'F', "a/three", 0666, 1600000000999999999 },
		{ 'D', "d", 0700, 5 },
		{ 'D', "z \xe4\xb8\xad", 01777, 1500000000000000000 },
	};

	/* The umask must not show, nor that folders made in a set-group-id one have that too. */
	mode_t old = umask(077);
	assert_int_equal(fchmod(world->staging_fd, 02700), 0);
	stage_cursor_fini(&world->cursor);
	stage_close(&world->stage);
	assert_int_equal(stage_open(&world->stage, world->staging_fd, ID, &err), 0);
	stage_cursor_init(&world->cursor, &world->stage);
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct str path = str_from(rows[i].path);
		int result = rows[i].type == 'D' ? folder(world, path, rows[i].mode, rows[i].mtime_ns, &err)
						 : file(world, path, rows[i].mode, rows[i].mtime_ns, &err);
		if (result < 0)
			fail_msg("row %zu: %s", i, err.text);
	}
	assert_int_equal(stage_finish(&world->stage, &err), 0);
	assert_int_equal(stage_publish(&world->stage, world->final_fd, "batch", &err), 0);
	umask(old);

	int batch_fd = openat(world->final_fd, "batch", O_RDONLY | O_DIRECTORY);
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct stat st = look(batch_fd, rows[i].path);
		if ((st.st_mode & 07777) != rows[i].mode || mtime_of(&st) != rows[i].mtime_ns)
			fail_msg("row %zu: mode %o, time %lld", i, st.st_mode & 07777, (long long)mtime_of(&st));
		assert_int_equal(S_ISDIR(st.st_mode), rows[i].type == 'D');
	}
	close(batch_fd);
	assert_int_equal(faccessat(world->staging_fd, ID "/tree", F_OK, 0), -1);
}

/* 4096 bytes of path in components of 255: far more than one system call takes with anything before it. */
static void test_longest_path(void **state)
{
	struct world *world = *state;
	struct err err = ERR_INIT;
	char path[MANIFEST_PATH_MAX + 2];
	size_t size = 0;

	while (size + 256 <= MANIFEST_PATH_MAX) {
		if (size > 0)
			path[size++] = '/';
		memset(path + size, 'd', 255);
		size += 255;
		if (folder(world, (struct str){ path, size }, 0711, (int64_t)size, &err) < 0)
			fail_msg("%zu bytes: %s", size, err.text);
	}
	/* 16 folders are 4095 bytes; a name of their last parent's ends at 4096. */
	assert_int_equal(size, 4095);
	size_t parent = size - 256;
	path[parent] = '/';
	memset(path + parent + 1, 'f', 255);
	assert_int_equal(file(world, (struct str){ path, size }, 0600, 7, &err), 0);
	path[parent + 1 + 255] = 'f';
	assert_true(stage_file(&world->cursor, (struct str){ path, size + 1 }, 0600, &err) < 0);
	assert_int_equal(stage_finish(&world->stage, &err), 0);

	/* Down by one folder after the other: the last has its own time and mode. */
	int fd = dup(world->stage.tree_fd);
	for (size_t depth = 1; depth <= 16; depth++) {
		char name[256];
		memset(name, 'd', 255);
		name[255] = '\0';
		struct stat st = look(fd, name);
		assert_int_equal(mtime_of(&st), depth * 256 - 1);
		assert_int_equal(st.st_mode & 07777, 0711);
		int next = openat(fd, name, O_RDONLY | O_DIRECTORY);
		assert_true(next >= 0);
		close(fd);
		fd = next;
	}
	close(fd);
}

static void test_refused_paths(void **state)
{
	struct world *world = *state;
	static const struct str rows[] = {
		{ "", 0 },        { "..", 2 }, { ".", 1 },    { "a/..", 4 },      { "../x", 4 },         { "out/x", 5 },
		{ "a/", 2 },      { "/x", 2 }, { "x\0y", 3 }, { "missing/x", 9 }, { NAME_255 "n", 256 }, { "there", 5 },
		{ "there/x", 7 },
	};
	struct err err = ERR_INIT;

	assert_int_equal(folder(world, STR("a"), 0700, 0, &err), 0);
	assert_int_equal(file(world, STR("there"), 0600, 0, &err), 0);
	/* Somebody who got into staging put a link out of it: still nothing is written there. */
	assert_int_equal(symlinkat(world->path, world->stage.tree_fd, "out"), 0);
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		err = ERR_INIT;
		int fd = stage_file(&world->cursor, rows[i], 0600, &err);
		if (fd >= 0 || err.code == ERR_NONE || !err.text[0])
			fail_msg("row %zu was not refused", i);
	}
	assert_int_equal(faccessat(world->root_fd, "x", F_OK, 0), -1);
}

static void test_links(void **state)
{
	struct world *world = *state;
	struct err err = ERR_INIT;
	static const char *const targets[] = { "../../etc/passwd", "/nowhere", "\xff\n" };
	char target[64];

	for (size_t i = 0; i < COUNT_OF(targets); i++) {
		char name[2] = { (char)('a' + i), '\0' };
		struct store_entry entry = { .type = 'L',
					     .mtime_ns = 5000000001 + (int64_t)i,
					     .path = str_from(name),
					     .target = str_from(targets[i]) };
		assert_int_equal(stage_link(&world->cursor, &entry, &err), 0);
		ssize_t size = readlinkat(world->stage.tree_fd, name, target, sizeof(target));
		assert_int_equal(size, strlen(targets[i]));
		assert_memory_equal(target, targets[i], (size_t)size);
		struct stat st = look(world->stage.tree_fd, name);
		assert_int_equal(mtime_of(&st), entry.mtime_ns);
	}
	struct store_entry bad = { .type = 'L', .path = STR("z"), .target = { "a\0b", 3 } };
	assert_true(stage_link(&world->cursor, &bad, &err) < 0);
}

/* More folders than the list keeps in memory, and in an order that only going backwards gets right. */
static void test_many_folders(void **state)
{
	struct world *world = *state;
	struct err err = ERR_INIT;
	char path[64];

	assert_int_equal(folder(world, STR("."), 0750, 42, &err), 0);
	for (int i = 0; i < 4000; i++) {
		int size = snprintf(path, sizeof(path), "d%04d", i);
		assert_int_equal(folder(world, (struct str){ path, (size_t)size }, 0500, i + 1, &err), 0);
		size = snprintf(path, sizeof(path), "d%04d/in", i);
		assert_int_equal(folder(world, (struct str){ path, (size_t)size }, 0711, 100000 + i, &err), 0);
	}
	assert_int_equal(stage_finish(&world->stage, &err), 0);
	for (int i = 0; i < 4000; i++) {
		snprintf(path, sizeof(path), "d%04d", i);
		struct stat st = look(world->stage.tree_fd, path);
		assert_int_equal(mtime_of(&st), i + 1);
		assert_int_equal(st.st_mode & 07777, 0500);
		snprintf(path, sizeof(path), "d%04d/in", i);
		st = look(world->stage.tree_fd, path);
		assert_int_equal(mtime_of(&st), 100000 + i);
	}
	struct stat st;
	assert_int_equal(fstat(world->stage.tree_fd, &st), 0);
	assert_int_equal(mtime_of(&st), 42);
}

static void test_publish_never_overwrites(void **state)
{
	struct world *world = *state;
	struct err err = ERR_INIT;
	struct stat st;
	uint64_t inode;

	assert_int_equal(mkdirat(world->final_fd, "batch", 0700), 0);
	struct stat before = look(world->final_fd, "batch");
	assert_int_equal(file(world, STR("f"), 0600, 0, &err), 0);
	assert_int_equal(stage_finish(&world->stage, &err), 0);
	assert_int_equal(stage_publish(&world->stage, world->final_fd, "batch", &err), -ERR_BATCH_EXISTS);
	st = look(world->final_fd, "batch");
	assert_int_equal(st.st_ino, before.st_ino);
	/* The tree is still whole, and goes elsewhere as the same folder. */
	assert_int_equal(stage_inode(&world->stage, &inode, &err), 0);
	assert_int_equal(stage_publish(&world->stage, world->final_fd, "other", &err), 0);
	st = look(world->final_fd, "other");
	assert_int_equal(st.st_ino, inode);
}

static void test_begins_anew(void **state)
{
	struct world *world = *state;
	struct err err = ERR_INIT;

	assert_int_equal(folder(world, STR("a"), 0000, 0, &err), 0);
	assert_int_equal(file(world, STR("a/left"), 0000, 0, &err), 0);
	assert_int_equal(stage_finish(&world->stage, &err), 0);
	stage_cursor_fini(&world->cursor);
	stage_close(&world->stage);
	assert_int_equal(stage_open(&world->stage, world->staging_fd, ID, &err), 0);
	stage_cursor_init(&world->cursor, &world->stage);
	assert_int_equal(faccessat(world->stage.tree_fd, "a", F_OK, 0), -1);
	assert_int_equal(folder(world, STR("a"), 0700, 0, &err), 0);
	struct stage bad;
	assert_true(stage_open(&bad, world->staging_fd, "../final", &err) < 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_attributes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_longest_path, setup, teardown),
		cmocka_unit_test_setup_teardown(test_refused_paths, setup, teardown),
		cmocka_unit_test_setup_teardown(test_links, setup, teardown),
		cmocka_unit_test_setup_teardown(test_many_folders, setup, teardown),
		cmocka_unit_test_setup_teardown(test_publish_never_overwrites, setup, teardown),
		cmocka_unit_test_setup_teardown(test_begins_anew, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
