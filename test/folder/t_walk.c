#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "folder/walk.h"

#include "base/hash.h"
#include "folder/push_impl.h"
#include "sys/fs.h"
#include "wire/manifest.h"

struct world {
	char root[64];
	int root_fd, manifest_fd;
	struct buf problems; /* "path|reason\n" */
};

static int setup(void **state)
{
	struct world *world = must_zalloc(1, sizeof(*world));
	snprintf(world->root, sizeof(world->root), "/tmp/heng-t-walk-XXXXXX");
	if (mkdtemp(world->root) == NULL)
		return -1;
	chmod(world->root, 0751);
	world->root_fd = open(world->root, O_RDONLY | O_DIRECTORY);
	world->manifest_fd = open("/tmp", O_TMPFILE | O_RDWR, 0600);
	world->problems = BUF_INIT(MIB);
	*state = world;
	return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

static int teardown(void **state)
{
	struct world *world = *state;
	nftw(world->root, remove_one, 32, FTW_DEPTH | FTW_PHYS);
	close(world->root_fd);
	close(world->manifest_fd);
	buf_fini(&world->problems);
	free(world);
	return 0;
}

static void put(struct world *world, const char *path, const char *text)
{
	int fd = openat(world->root_fd, path, O_WRONLY | O_CREAT | O_TRUNC, 0640);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	struct timespec times[2] = { { .tv_sec = 1, .tv_nsec = 5 }, { .tv_sec = 1, .tv_nsec = 5 } };
	assert_int_equal(futimens(fd, times), 0);
	close(fd);
}

static void folder(struct world *world, const char *path) { assert_int_equal(mkdirat(world->root_fd, path, 0700), 0); }

static void on_problem(void *owner, struct str path, const char *reason)
{
	struct world *world = owner;
	buf_append(&world->problems, path);
	buf_printf(&world->problems, "|%s\n", reason);
}

static int walk(struct world *world, enum walk_links links, struct walk_result *ret, struct err *err)
{
	struct walk_options options = { .links = links };
	assert_int_equal(ftruncate(world->manifest_fd, 0), 0);
	buf_clear(&world->problems);
	return walk_folder(world->root_fd, &options, world->manifest_fd, on_problem, world, ret, err);
}

/* "type path size" of each line, from the manifest as the scheduler reads it. */
static int list_entry(void *owner, const struct manifest_entry *entry, struct err *err)
{
	(void)err;
	struct buf *text = owner;
	char path[3 * MANIFEST_PATH_MAX + 1], target[3 * MANIFEST_PATH_MAX + 1];
	percent_encode(entry->path, true, path, sizeof(path));
	buf_printf(text, "%c %s", (char)entry->type, path);
	if (entry->type == MANIFEST_FILE)
		buf_printf(text, " %llu %lld", (unsigned long long)entry->size_bytes, (long long)entry->mtime_ns);
	if (entry->type == MANIFEST_LINK && percent_encode(entry->target, true, target, sizeof(target)) > 0)
		buf_printf(text, " -> %s", target);
	buf_printf(text, "\n");
	return 0;
}

static void check_manifest(struct world *world, const struct walk_result *result, const char *want)
{
	struct err err = ERR_INIT;
	struct buf text = BUF_INIT(MIB), list = BUF_INIT(MIB);
	assert_true(buf_reserve(&text, result->manifest_bytes + 1));
	assert_int_equal(pread(world->manifest_fd, text.data, result->manifest_bytes + 1, 0),
			 (ssize_t)result->manifest_bytes);
	text.size = result->manifest_bytes;
	struct manifest_parser *parser = manifest_parser_new(&manifest_limits_default, list_entry, &list);
	int r = manifest_feed(parser, buf_str(&text), &err);
	if (r == 0)
		r = manifest_end(parser, &err);
	if (r < 0)
		print_error("%s\n", err.text);
	assert_int_equal(r, 0);
	assert_int_equal(manifest_crc32c(parser), result->crc32c);
	if (want != NULL)
		assert_string_equal(buf_cstr(&list), want);
	manifest_parser_free(&parser);
	buf_fini(&text);
	buf_fini(&list);
}

static void test_empty_folder(void **state)
{
	struct walk_result result;
	struct err err = ERR_INIT;
	assert_int_equal(walk(*state, WALK_LINKS_REFUSE, &result, &err), 0);
	assert_int_equal(result.entry_count, 1);
	assert_int_equal(result.file_count, 0);
	check_manifest(*state, &result, "D .\n");
}

static void test_names_are_bytes_in_byte_order(void **state)
{
	struct world *world = *state;
	struct walk_result result;
	struct err err = ERR_INIT;
	folder(world, "b");
	put(world, "b/x", "12345");
	folder(world, "b/empty");
	put(world, "b.c", "");
	put(world, "a\nb", "1");
	put(world, "\xff\xfe", "22");
	put(world, "B", "333");
	assert_int_equal(walk(world, WALK_LINKS_REFUSE, &result, &err), 0);
	assert_int_equal(result.entry_count, 8);
	assert_int_equal(result.file_count, 5);
	assert_int_equal(result.total_bytes, 11);
	check_manifest(
		world, &result,
		"D .\nF B 3 1000000005\nF a%0Ab 1 1000000005\nD b\nD b/empty\nF b/x 5 1000000005\nF b.c 0 1000000005\n"
		"F %FF%FE 2 1000000005\n");
}

static void test_deep_folders_need_few_descriptors(void **state)
{
	struct world *world = *state;
	struct walk_result result;
	struct err err = ERR_INIT;
	char path[MANIFEST_PATH_MAX] = "";
	int fd = dup(world->root_fd);
	for (int i = 0; i < 500; i++) {
		/* Names on both sides of the folder that is entered, so that each level is come back to. */
		assert_int_equal(mkdirat(fd, "m", 0700), 0);
		int file = openat(fd, "z", O_WRONLY | O_CREAT, 0600);
		close(file);
		int next = openat(fd, "m", O_RDONLY | O_DIRECTORY);
		close(fd);
		fd = next;
		snprintf(path + strlen(path), sizeof(path) - strlen(path), "%sm", i > 0 ? "/" : "");
	}
	close(fd);
	assert_int_equal(walk(world, WALK_LINKS_REFUSE, &result, &err), 0);
	assert_int_equal(result.entry_count, 1001);
	assert_int_equal(result.file_count, 500);
	check_manifest(world, &result, NULL);
}

/* The longest path a manifest has is longer than what the kernel takes in one call. */
static void test_the_longest_path(void **state)
{
	struct world *world = *state;
	struct walk_result result;
	struct err err = ERR_INIT;
	char name[241], path[MANIFEST_PATH_MAX + 1] = "";
	size_t size = 0;
	int dir_fd = dup(world->root_fd);
	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	for (; size + 2 * sizeof(name) <= MANIFEST_PATH_MAX + 1; size += sizeof(name)) {
		assert_int_equal(mkdirat(dir_fd, name, 0700), 0);
		int next_fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY);
		assert_true(next_fd >= 0);
		close(dir_fd);
		dir_fd = next_fd;
		memcpy(path + size, name, sizeof(name));
		path[size + sizeof(name) - 1] = '/';
	}
	name[MANIFEST_PATH_MAX - size] = '\0';
	memcpy(path + size, name, MANIFEST_PATH_MAX - size + 1);
	assert_int_equal(strlen(path), MANIFEST_PATH_MAX);
	int fd = openat(dir_fd, name, O_WRONLY | O_CREAT, 0600);
	assert_true(fd >= 0);
	close(fd);
	close(dir_fd);

	assert_int_equal(walk(world, WALK_LINKS_REFUSE, &result, &err), 0);
	assert_int_equal(result.file_count, 1);
	check_manifest(world, &result, NULL);
	fd = walk_open(world->root_fd, path, O_RDONLY, WALK_LINKS_REFUSE);
	assert_true(fd >= 0);
	close(fd);
	path[0] = 'x';
	assert_int_equal(walk_open(world->root_fd, path, O_RDONLY, WALK_LINKS_REFUSE), -ENOENT);
	memset(name, 'n', sizeof(name) - 1);
	assert_int_equal(fs_remove_tree(world->root_fd, name, &err), 0); /* nftw could not */
}

static void test_an_interrupt_ends_the_walk(void **state)
{
	struct world *world = *state;
	static const atomic_bool is_interrupted = true;
	struct walk_options options = { .is_interrupted = &is_interrupted };
	struct walk_result result;
	struct err err = ERR_INIT;
	put(world, "a", "b");
	assert_int_equal(walk_folder(world->root_fd, &options, world->manifest_fd, on_problem, world, &result, &err),
			 -ERR_WAITING);
}

struct ticks {
	unsigned count;
	uint64_t file_count, total_bytes;
};

static void on_tick(void *owner, uint64_t file_count, uint64_t total_bytes)
{
	struct ticks *ticks = owner;
	/* What was found never becomes less. */
	assert_true(file_count >= ticks->file_count && total_bytes >= ticks->total_bytes);
	*ticks = (struct ticks){ ticks->count + 1, file_count, total_bytes };
}

/* Progress is told while one large folder is read and sorted, and while its entries are looked at. */
static void test_a_walk_ticks(void **state)
{
	struct world *world = *state;
	enum { COUNT = 9000 };
	struct ticks ticks = { 0 };
	struct walk_options options = { .tick = on_tick };
	struct walk_result result;
	struct err err = ERR_INIT;
	char name[32];
	put(world, "f00000", "x");
	for (int i = 1; i < COUNT; i++) {
		/* An order that has to be sorted. */
		snprintf(name, sizeof(name), "f%05d", i * 7919 % COUNT);
		assert_int_equal(linkat(world->root_fd, "f00000", world->root_fd, name, 0), 0);
	}
	assert_int_equal(walk_folder(world->root_fd, &options, world->manifest_fd, NULL, &ticks, &result, &err), 0);
	assert_int_equal(result.file_count, COUNT);
	/* 2 for its names, 1 at least for sorting them, 1 for each 256 entries. */
	assert_true(ticks.count >= 2 + 1 + COUNT / 256);
	assert_true(ticks.file_count > COUNT - 256 && ticks.total_bytes == ticks.file_count);
}

static void test_every_problem_is_named(void **state)
{
	struct world *world = *state;
	struct walk_result result;
	struct err err = ERR_INIT;
	put(world, "good", "x");
	assert_int_equal(mkfifoat(world->root_fd, "pipe", 0600), 0);
	assert_int_equal(symlinkat("good", world->root_fd, "link"), 0);
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/socket", world->root);
	assert_int_equal(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
	close(fd);
	assert_int_equal(walk(world, WALK_LINKS_REFUSE, &result, &err), -ERR_SOURCE_SPECIAL);
	assert_string_equal(
		buf_cstr(&world->problems),
		"link|a symbolic link (say --links=keep, skip or follow)\npipe|a named pipe\nsocket|a socket\n");
	assert_non_null(strstr(err.text, "3 entries"));
	/* Asked to leave out, they are counted. */
	assert_int_equal(walk(world, WALK_LINKS_SKIP, &result, &err), 0);
	assert_int_equal(result.skipped_count, 3);
	check_manifest(world, &result, "D .\nF good 1 1000000005\n");
	/* Keeping links says nothing about pipes. */
	assert_int_equal(walk(world, WALK_LINKS_KEEP, &result, &err), -ERR_SOURCE_SPECIAL);
}

static void test_problems_are_reported_up_to_a_limit(void **state)
{
	struct world *world = *state;
	struct walk_result result;
	struct err err = ERR_INIT;
	char name[32];
	for (int i = 0; i < WALK_PROBLEMS_MAX + 5; i++) {
		snprintf(name, sizeof(name), "l%d", i);
		assert_int_equal(symlinkat("x", world->root_fd, name), 0);
	}
	assert_int_equal(walk(world, WALK_LINKS_REFUSE, &result, &err), -ERR_SOURCE_SPECIAL);
	size_t lines = 0;
	for (size_t i = 0; i < world->problems.size; i++)
		lines += world->problems.data[i] == '\n';
	assert_int_equal(lines, WALK_PROBLEMS_MAX);
	assert_non_null(strstr(err.text, "1005 entries"));
}

static void test_links_are_kept(void **state)
{
	struct world *world = *state;
	struct walk_result result;
	struct err err = ERR_INIT;
	assert_int_equal(symlinkat("no where/\xe4", world->root_fd, "l"), 0);
	assert_int_equal(walk(world, WALK_LINKS_KEEP, &result, &err), 0);
	check_manifest(world, &result, "D .\nL l -> no%20where/%E4\n");
}

static void test_links_are_followed_within_the_folder(void **state)
{
	static const struct {
		const char *target, *reason; /* NULL: followed */
	} rows[] = {
		{ "sub/file", NULL },
		{ "sub", NULL },
		{ "nothing", "leads to nothing" },
		{ "/etc/passwd", "leads out" },
		{ "../../etc/passwd", "leads out" },
		{ "link", "circle" },
		{ ".", "leads back" },
	};
	struct world *world = *state;
	folder(world, "sub");
	put(world, "sub/file", "abc");
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct walk_result result;
		struct err err = ERR_INIT;
		assert_int_equal(symlinkat(rows[i].target, world->root_fd, "link"), 0);
		int r = walk(world, WALK_LINKS_FOLLOW, &result, &err);
		if (rows[i].reason != NULL) {
			assert_int_equal(r, -ERR_SOURCE_SPECIAL);
			assert_non_null(strstr(buf_cstr(&world->problems), rows[i].reason));
		} else {
			assert_int_equal(r, 0);
			check_manifest(world, &result, NULL);
			assert_int_equal(result.file_count, 2);
		}
		assert_int_equal(unlinkat(world->root_fd, "link", 0), 0);
	}
}

static void test_open_stays_beneath(void **state)
{
	struct world *world = *state;
	put(world, "file", "x");
	assert_int_equal(symlinkat("file", world->root_fd, "in"), 0);
	assert_int_equal(symlinkat("/etc/passwd", world->root_fd, "out"), 0);
	static const struct {
		const char *path;
		enum walk_links links;
		int result; /* 0: opens */
	} rows[] = {
		{ "file", WALK_LINKS_KEEP, 0 },
		{ "in", WALK_LINKS_FOLLOW, 0 },
		{ "in", WALK_LINKS_KEEP, -ELOOP },
		{ "out", WALK_LINKS_FOLLOW, -EXDEV },
		{ "out", WALK_LINKS_SKIP, -ELOOP },
		{ "../x", WALK_LINKS_FOLLOW, -EXDEV },
		{ "/etc/passwd", WALK_LINKS_KEEP, -EXDEV },
		{ "absent", WALK_LINKS_KEEP, -ENOENT },
	};
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		int fd = walk_open(world->root_fd, rows[i].path, O_RDONLY, rows[i].links);
		if (rows[i].result == 0)
			assert_true(fd >= 0);
		else
			assert_int_equal(fd, rows[i].result);
		if (fd >= 0)
			close(fd);
	}
}

/* What the readers get back is what was walked, from any place in the file. */
static void test_lines_read_back(void **state)
{
	struct world *world = *state;
	struct walk_result result;
	struct err err = ERR_INIT;
	char name[300];
	for (int i = 0; i < 3000; i++) {
		snprintf(name, sizeof(name), "%04d %-60d\xff", i, i);
		int fd = openat(world->root_fd, name, O_WRONLY | O_CREAT, 0600);
		assert_int_equal(ftruncate(fd, i), 0);
		close(fd);
	}
	assert_int_equal(walk(world, WALK_LINKS_REFUSE, &result, &err), 0);
	struct push_lines lines, again;
	struct manifest_entry entry;
	push_lines_init(&lines, world->manifest_fd);
	assert_int_equal(push_lines_next(&lines, &entry, &err), 1);
	assert_int_equal(entry.type, MANIFEST_DIR);
	assert_string_equal(entry.path.data, ".");
	assert_int_equal(push_lines_skip(&lines, 2001, &err), 0);
	int64_t place = push_lines_place(&lines);
	for (int i = 2000; i < 3000; i++) {
		assert_int_equal(push_lines_next(&lines, &entry, &err), 1);
		snprintf(name, sizeof(name), "%04d %-60d\xff", i, i);
		assert_string_equal(entry.path.data, name);
		assert_int_equal(entry.size_bytes, i);
		assert_int_equal(entry.seq, i + 1);
	}
	/* The end stays the end. */
	assert_int_equal(push_lines_next(&lines, &entry, &err), 0);
	assert_int_equal(push_lines_next(&lines, &entry, &err), 0);
	assert_int_equal(push_lines_skip(&lines, 3001, &err), 0);
	assert_int_equal(push_lines_skip(&lines, 3002, &err), -ERR_PEER);
	push_lines_init_at(&again, world->manifest_fd, place, 2001);
	assert_int_equal(push_lines_next(&again, &entry, &err), 1);
	assert_int_equal(entry.size_bytes, 2000);
	push_lines_fini(&lines);
	push_lines_fini(&again);
}

int main(void)
{
#define ROW(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
	const struct CMUnitTest tests[] = {
		ROW(test_empty_folder),
		ROW(test_names_are_bytes_in_byte_order),
		ROW(test_deep_folders_need_few_descriptors),
		ROW(test_the_longest_path),
		ROW(test_an_interrupt_ends_the_walk),
		ROW(test_a_walk_ticks),
		ROW(test_every_problem_is_named),
		ROW(test_problems_are_reported_up_to_a_limit),
		ROW(test_links_are_kept),
		ROW(test_links_are_followed_within_the_folder),
		ROW(test_open_stays_beneath),
		ROW(test_lines_read_back),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
