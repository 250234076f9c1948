/* What is on a disk, listed a page at a time, and unfinished files that nobody writes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/rng.h"
#include "folder/disk.h"

static const char T[] = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
static const struct held_range all = { 0, 0, INT64_MAX, INT64_MAX };

struct world {
	char path[64];
	struct disk *disk;
};

/* In place of libc's: counts, and fails when told to. */
static atomic_uint tree_sync_count;
static atomic_bool is_tree_sync_broken;

int syncfs(int fd)
{
	atomic_fetch_add(&tree_sync_count, 1);
	if (atomic_load(&is_tree_sync_broken)) {
		errno = EIO;
		return -1;
	}
	return (int)syscall(SYS_syncfs, fd);
}

static void open_disk(struct world *world)
{
	const struct disk_options options = { .path = world->path };
	struct err err = ERR_INIT;

	if (disk_open(&options, &world->disk, &err) < 0)
		fail_msg("%s", err.text);
}

static int setup(void **state)
{
	struct world *world = must_zalloc(1, sizeof(*world));

	snprintf(world->path, sizeof(world->path), "/tmp/t_disk_list-XXXXXX");
	assert_non_null(mkdtemp(world->path));
	atomic_store(&is_tree_sync_broken, false);
	open_disk(world);
	*state = world;
	return 0;
}

static int teardown(void **state)
{
	struct world *world = *state;

	disk_close(&world->disk);
	assert_int_equal(fs_remove_tree(AT_FDCWD, world->path, NULL), 0);
	free(world);
	return 0;
}

static void put(struct world *world, uint64_t file_id, uint64_t chunk_index, const char *data)
{
	char hex[DIGEST_HEX_SIZE];
	const struct disk_chunk chunk = { .transfer_id = T,
					  .file_id = file_id,
					  .chunk_index = chunk_index,
					  .size_bytes = strlen(data),
					  .digest = DIGEST_SHA256,
					  .digest_hex = hex,
					  .request_id = "r" };
	struct disk_put *put = NULL;
	struct err err = ERR_INIT;

	digest_of(DIGEST_SHA256, data, strlen(data), hex);
	assert_int_equal(disk_begin(world->disk, &chunk, &put, &err), DISK_WRITE);
	assert_int_equal(disk_write(put, data, strlen(data), &err), 0);
	assert_int_equal(disk_commit(&put, &err), 0);
}

/* A file as somebody else may have left it there. */
static void plant(const struct world *world, const char *folder, const char *name, int64_t age_us)
{
	char path[512];
	const int64_t at_us = clock_wall_us() - age_us;
	const struct timespec at = { .tv_sec = at_us / SEC_US, .tv_nsec = at_us % SEC_US * 1000 };
	const struct timespec times[2] = { at, at };

	snprintf(path, sizeof(path), "%s/tmp/%s/%s", world->path, T, folder);
	assert_int_equal(fs_make_dirs(path, NULL), 0);
	snprintf(path, sizeof(path), "%s/tmp/%s/%s/%s", world->path, T, folder, name);
	assert_int_equal(fs_replace_file(path, STR("planted"), 0600, NULL), 0);
	assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

/* "file/chunk file/chunk ... [+]" */
static const char *listed(struct world *world, const struct held_range *range, size_t limit)
{
	static char text[1024];
	struct held_chunk *chunks = must_zalloc(limit, sizeof(*chunks));
	struct err err = ERR_INIT;
	size_t count, used = 0;
	bool has_more;

	text[0] = '\0';
	if (disk_list(world->disk, T, DIGEST_SHA256, range, limit, chunks, &count, &has_more, &err) < 0)
		fail_msg("%s", err.text);
	assert_true(count <= limit);
	for (size_t i = 0; i < count; i++)
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%llu/%llu ",
					 (unsigned long long)chunks[i].file_id,
					 (unsigned long long)chunks[i].chunk_index);
	snprintf(text + used, sizeof(text) - used, has_more ? "+" : "");
	free(chunks);
	return text;
}

static void t_order_and_pages(void **state)
{
	static const struct {
		struct held_range range;
		size_t limit;
		const char *text;
	} rows[] = {
		{ { 0, 0, INT64_MAX, INT64_MAX }, 100, "1/0 2/0 2/1 2/9 2/10 10/3 11/0 " },
		{ { 0, 0, INT64_MAX, INT64_MAX }, 7, "1/0 2/0 2/1 2/9 2/10 10/3 11/0 " },
		{ { 0, 0, INT64_MAX, INT64_MAX }, 6, "1/0 2/0 2/1 2/9 2/10 10/3 +" },
		{ { 0, 0, INT64_MAX, INT64_MAX }, 1, "1/0 +" },
		{ { 1, 0, INT64_MAX, INT64_MAX }, 3, "2/0 2/1 2/9 +" },
		{ { 2, 1, INT64_MAX, INT64_MAX }, 2, "2/9 2/10 +" },
		{ { 2, 10, INT64_MAX, INT64_MAX }, 2, "10/3 11/0 " },
		{ { 2, 10, 10, 3 }, 2, "10/3 " },
		{ { 2, 0, 2, 9 }, 2, "2/1 2/9 " },
		{ { 2, 2, 2, 8 }, 2, "" },
		{ { 11, 0, INT64_MAX, INT64_MAX }, 2, "" },
		{ { 3, 0, 9, INT64_MAX }, 2, "" },
		{ { INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX }, 2, "" },
	};
	static const uint64_t chunks[][2] = { { 11, 0 }, { 2, 10 }, { 2, 9 }, { 10, 3 }, { 2, 0 }, { 1, 0 }, { 2, 1 } };
	struct world *world = *state;

	assert_string_equal(listed(world, &all, 5), "");
	for (size_t i = 0; i < COUNT_OF(chunks); i++)
		put(world, chunks[i][0], chunks[i][1], "bytes");
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		const char *text = listed(world, &rows[i].range, rows[i].limit);

		if (strcmp(text, rows[i].text) != 0)
			fail_msg("row %zu: '%s'", i, text);
	}
}

/* Many chunks and many folders, walked in pages of each size: each comes once, in order. */
static void t_every_page_size(void **state)
{
	struct world *world = *state;
	struct held_chunk chunks[64];
	struct err err = ERR_INIT;

	for (uint64_t i = 0; i < 60; i++)
		put(world, 1 + i * 7 % 20, i * 11 % 13, "x");
	for (size_t limit = 1; limit <= COUNT_OF(chunks); limit += limit < 8 ? 1 : 9) {
		struct held_range range = all;
		bool has_more = true;
		size_t total = 0, count;

		while (has_more) {
			assert_int_equal(disk_list(world->disk, T, DIGEST_SHA256, &range, limit, chunks, &count,
						   &has_more, &err),
					 0);
			for (size_t i = 0; i < count; i++) {
				assert_true(held_compare(chunks[i].file_id, chunks[i].chunk_index, range.after_file_id,
							 range.after_chunk_index) > 0);
				range.after_file_id = chunks[i].file_id;
				range.after_chunk_index = chunks[i].chunk_index;
			}
			total += count;
		}
		assert_int_equal(total, 60);
	}
}

static void t_nothing_that_is_no_chunk(void **state)
{
	struct world *world = *state;
	char path[256], link[300];

	put(world, 1, 0, "bytes");
	plant(world, "1", "01ARZ3NDEKTSV4RRFFQ69G5FAV_1_1.part.r", 0);
	plant(world, "1", "01ARZ3NDEKTSV4RRFFQ69G5FAV_1_01.part", 0);
	plant(world, "1", "01ARZ3NDEKTSV4RRFFQ69G5FAV_2_1.part", 0);
	plant(world, "1", "01ARZ3NDEKTSV4RRFFQ69G5FAW_1_1.part", 0);
	plant(world, "1", "_1.part", 0);
	plant(world, "01", "01ARZ3NDEKTSV4RRFFQ69G5FAV_1_1.part", 0);
	plant(world, "0", "01ARZ3NDEKTSV4RRFFQ69G5FAV_0_1.part", 0);
	plant(world, "x", "01ARZ3NDEKTSV4RRFFQ69G5FAV_1_1.part", 0);
	snprintf(path, sizeof(path), "%s/tmp/%s/1", world->path, T);
	snprintf(link, sizeof(link), "%s/tmp/%s/5", world->path, T);
	assert_int_equal(symlink(path, link), 0);
	snprintf(link, sizeof(link), "%s/tmp/%s/6", world->path, T);
	assert_int_equal(fs_replace_file(link, STR("a file"), 0600, NULL), 0);
	snprintf(link, sizeof(link), "%s/%s_1_8.part", path, T);
	assert_int_equal(mkdir(link, 0700), 0);
	assert_string_equal(listed(world, &all, 10), "1/0 ");
	assert_int_equal(
		disk_list(world->disk, "../x", DIGEST_MD5, &all, 1, NULL, &(size_t){ 0 }, &(bool){ false }, NULL),
		-ERR_BAD_REQUEST);
}

static struct held_chunk only(struct world *world, enum digest_kind kind)
{
	struct held_chunk chunk;
	struct err err = ERR_INIT;
	bool has_more;
	size_t count;

	assert_int_equal(disk_list(world->disk, T, kind, &all, 1, &chunk, &count, &has_more, &err), 0);
	assert_int_equal(count, 1);
	assert_false(has_more);
	return chunk;
}

/* By memory, by attribute, by the bytes; and what a former process named is synced once before it is told. */
static void t_digest_and_durability(void **state)
{
	struct world *world = *state;
	char expected[DIGEST_HEX_SIZE], path[512], relative[256];
	struct held_chunk chunk;
	unsigned syncs = atomic_load(&tree_sync_count);
	size_t count;
	bool has_more;

	digest_of(DIGEST_SHA256, "bytes", 5, expected);
	put(world, 1, 0, "bytes");
	chunk = only(world, DIGEST_SHA256);
	assert_string_equal(chunk.digest, expected);
	assert_int_equal(chunk.size_bytes, 5);
	assert_int_equal(atomic_load(&tree_sync_count), syncs);
	disk_close(&world->disk);
	open_disk(world);
	/* What cannot be made durable is not told. */
	atomic_store(&is_tree_sync_broken, true);
	assert_int_equal(disk_list(world->disk, T, DIGEST_SHA256, &all, 1, &chunk, &count, &has_more, NULL), -ERR_DISK);
	assert_int_equal(count, 0);
	atomic_store(&is_tree_sync_broken, false);
	syncs = atomic_load(&tree_sync_count);
	assert_string_equal(only(world, DIGEST_SHA256).digest, expected);
	assert_int_equal(atomic_load(&tree_sync_count), syncs + 1);
	assert_string_equal(only(world, DIGEST_SHA256).digest, expected);
	assert_int_equal(atomic_load(&tree_sync_count), syncs + 1);
	/* Another kind, and no attribute. */
	digest_of(DIGEST_MD5, "bytes", 5, expected);
	chunk = only(world, DIGEST_MD5);
	assert_int_equal(chunk.kind, DIGEST_MD5);
	assert_string_equal(chunk.digest, expected);
	disk_close(&world->disk);
	disk_chunk_path(T, 1, 0, relative, sizeof(relative));
	snprintf(path, sizeof(path), "%s/%s", world->path, relative);
	(void)removexattr(path, "user.heng.digest");
	open_disk(world);
	digest_of(DIGEST_SHA256, "bytes", 5, expected);
	assert_string_equal(only(world, DIGEST_SHA256).digest, expected);
}

static void t_strays(void **state)
{
	struct world *world = *state;
	char hex[DIGEST_HEX_SIZE];
	const struct disk_chunk chunk = { .transfer_id = T,
					  .file_id = 3,
					  .chunk_index = 1,
					  .size_bytes = 5,
					  .digest = DIGEST_SHA256,
					  .digest_hex = hex,
					  .request_id = "mine" };
	const int64_t before_us = clock_wall_us() - 60 * SEC_US;
	struct disk_stray strays[4];
	struct disk_put *put_now = NULL;
	struct err err = ERR_INIT;

	put(world, 1, 0, "bytes");
	assert_int_equal(disk_strays(world->disk, before_us, strays, 4, &err), 0);
	plant(world, "1", "01ARZ3NDEKTSV4RRFFQ69G5FAV_1_7.part.old", 120 * SEC_US);
	plant(world, "1", "01ARZ3NDEKTSV4RRFFQ69G5FAV_1_7.part.young", 0);
	plant(world, "1", "not_ours.part.old", 120 * SEC_US);
	plant(world, "2", "01ARZ3NDEKTSV4RRFFQ69G5FAV_1_7.part.elsewhere", 120 * SEC_US);
	/* A writer's own, however long it has been silent. */
	digest_of(DIGEST_SHA256, "bytes", 5, hex);
	assert_int_equal(disk_begin(world->disk, &chunk, &put_now, &err), DISK_WRITE);
	assert_int_equal(disk_strays(world->disk, clock_wall_us() + 60 * SEC_US, strays, 4, &err), 2);
	assert_int_equal(disk_strays(world->disk, before_us, strays, 4, &err), 1);
	assert_string_equal(strays[0].transfer_id, T);
	assert_string_equal(strays[0].name, "01ARZ3NDEKTSV4RRFFQ69G5FAV_1_7.part.old");
	assert_int_equal(strays[0].file_id, 1);
	assert_int_equal(strays[0].chunk_index, 7);
	assert_int_equal(strays[0].size_bytes, 7);
	assert_int_equal(disk_strays(world->disk, clock_wall_us() + 60 * SEC_US, strays, 1, &err), 1);
	disk_abort(&put_now);
	/* Written meanwhile: it stays. Absent: fine. */
	assert_int_equal(disk_strays(world->disk, before_us, strays, 4, &err), 1);
	plant(world, "1", strays[0].name, 0);
	assert_int_equal(disk_remove_stray(world->disk, &strays[0], before_us, &err), 0);
	plant(world, "1", strays[0].name, 120 * SEC_US);
	assert_int_equal(disk_strays(world->disk, before_us, strays, 4, &err), 1);
	for (int i = 0; i < 2; i++)
		assert_int_equal(disk_remove_stray(world->disk, &strays[0], before_us, &err), 0);
	assert_int_equal(disk_strays(world->disk, before_us, strays, 4, &err), 0);
	assert_int_equal(disk_remove_transfer(world->disk, T, &err), 0);
	assert_int_equal(disk_remove_stray(world->disk, &strays[0], before_us, &err), 0);
}

#define LIST_TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		LIST_TEST(t_order_and_pages),       LIST_TEST(t_every_page_size), LIST_TEST(t_nothing_that_is_no_chunk),
		LIST_TEST(t_digest_and_durability), LIST_TEST(t_strays),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
