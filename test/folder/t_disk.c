#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/rng.h"
#include "folder/disk.h"

static const char T[] = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
static const char hello[] = "hello, chunk";
#define HELLO_SIZE (sizeof(hello) - 1)

struct world {
	char path[64];
	struct disk *disk;
};

static struct disk *open_disk(const char *path, uint64_t floor_bytes)
{
	const struct disk_options options = { .path = path, .free_floor_bytes = floor_bytes };
	struct disk *disk = NULL;
	struct err err = ERR_INIT;

	if (disk_open(&options, &disk, &err) < 0)
		fail_msg("%s", err.text);
	return disk;
}

static int setup(void **state)
{
	struct world *world = must_zalloc(1, sizeof(*world));

	snprintf(world->path, sizeof(world->path), "/tmp/t_disk-XXXXXX");
	assert_non_null(mkdtemp(world->path));
	world->disk = open_disk(world->path, 0);
	*state = world;
	return 0;
}

static int teardown(void **state)
{
	struct world *world = *state;
	struct err err;

	disk_close(&world->disk);
	assert_int_equal(fs_remove_tree(AT_FDCWD, world->path, &err), 0);
	free(world);
	return 0;
}

/* What is in the chunk's folder, names joined by spaces and sorted. */
static void list(const struct world *world, uint64_t file_id, char *target, size_t target_size)
{
	char path[256];
	struct dirent **entries;

	target[0] = '\0';
	snprintf(path, sizeof(path), "%s/tmp/%s/%llu", world->path, T, (unsigned long long)file_id);
	const int count = scandir(path, &entries, NULL, alphasort);
	size_t used = 0;
	for (int i = 0; i < count; i++) {
		if (entries[i]->d_name[0] != '.')
			used += (size_t)snprintf(target + used, target_size - used, "%s ", entries[i]->d_name);
		free(entries[i]);
	}
	if (count >= 0)
		free(entries);
}

struct chunk_text {
	struct disk_chunk chunk;
	char hex[DIGEST_HEX_SIZE];
};

static void fill(struct chunk_text *text, uint64_t file_id, uint64_t index, const char *data, size_t size,
		 const char *request_id)
{
	digest_of(DIGEST_SHA256, data, size, text->hex);
	text->chunk = (struct disk_chunk){ T, file_id, index, size, DIGEST_SHA256, text->hex, request_id, 0 };
}

/* Begins, writes in two pieces, commits. Returns DISK_HAVE, or commit's result. */
static int put(struct disk *disk, const struct disk_chunk *chunk, const char *data, size_t size, struct err *err)
{
	struct disk_put *put = NULL;
	int r = disk_begin(disk, chunk, &put, err);

	if (r != DISK_WRITE) {
		assert_null(put);
		return r;
	}
	assert_int_equal(disk_write(put, data, size / 2, err), 0);
	assert_int_equal(disk_write(put, data + size / 2, size - size / 2, err), 0);
	r = disk_commit(&put, err);
	assert_null(put);
	return r;
}

static void assert_space_returned(struct disk *disk)
{
	struct fs_space space;
	uint64_t reserved_bytes;
	bool is_low;
	struct err err;

	assert_int_equal(disk_space(disk, &space, &reserved_bytes, &is_low, &err), 0);
	assert_int_equal(reserved_bytes, 0);
}

/* In place of libc's: remembers which folders were synced, and can be told to fail for folders. */
static ino_t synced_folders[1024];
static atomic_size_t synced_count;
static atomic_bool is_sync_broken;

int fsync(int fd)
{
	struct stat facts;

	if (fstat(fd, &facts) == 0 && S_ISDIR(facts.st_mode)) {
		if (is_sync_broken) {
			errno = EIO;
			return -1;
		}
		synced_folders[atomic_fetch_add(&synced_count, 1) % COUNT_OF(synced_folders)] = facts.st_ino;
	}
	return (int)syscall(SYS_fsync, fd);
}

static bool is_synced(const char *path)
{
	struct stat facts;

	assert_int_equal(stat(path, &facts), 0);
	for (size_t i = 0; i < min_size(synced_count, COUNT_OF(synced_folders)); i++)
		if (synced_folders[i] == facts.st_ino)
			return true;
	return false;
}

static void t_put_and_read(void **state)
{
	struct world *world = *state;
	struct chunk_text text;
	struct err err = ERR_INIT;
	char path[256], names[512], back[64];
	uint64_t size;
	size_t got;

	assert_false(disk_has(world->disk, T, 1, 2));
	assert_int_equal(disk_read(world->disk, T, 1, 2, &size, &err), -ERR_CHUNK_GONE);
	fill(&text, 1, 2, hello, HELLO_SIZE, "r1");
	assert_int_equal(put(world->disk, &text.chunk, hello, HELLO_SIZE, &err), 0);
	disk_chunk_path(T, 1, 2, path, sizeof(path));
	assert_string_equal(path, "tmp/01ARZ3NDEKTSV4RRFFQ69G5FAV/1/01ARZ3NDEKTSV4RRFFQ69G5FAV_1_2.part");
	list(world, 1, names, sizeof(names));
	assert_string_equal(names, "01ARZ3NDEKTSV4RRFFQ69G5FAV_1_2.part ");
	int fd = disk_read(world->disk, T, 1, 2, &size, &err);
	assert_true(fd >= 0);
	assert_int_equal(size, HELLO_SIZE);
	assert_int_equal(fs_read_all(fd, back, sizeof(back), 0, &got, &err), 0);
	assert_int_equal(got, HELLO_SIZE);
	assert_memory_equal(back, hello, HELLO_SIZE);
	close(fd);
	assert_true(disk_has(world->disk, T, 1, 2));
	/* Again: known, nothing written. */
	text.chunk.request_id = "r2";
	assert_int_equal(put(world->disk, &text.chunk, hello, HELLO_SIZE, &err), DISK_HAVE);
	struct disk_counts counts;
	disk_counts(world->disk, &counts);
	assert_int_equal(counts.chunks_written, 1);
	assert_int_equal(counts.write_failures, 0);
	/* An empty chunk is a chunk. */
	fill(&text, 9, 0, "", 0, "r3");
	assert_int_equal(put(world->disk, &text.chunk, "", 0, &err), 0);
	assert_int_equal(put(world->disk, &text.chunk, "", 0, &err), DISK_HAVE);
	assert_space_returned(world->disk);
}

/* Zeros take no room on the disk, and are there all the same. */
static void t_holes(void **state)
{
	struct world *world = *state;
	struct chunk_text text;
	struct err err = ERR_INIT;
	struct stat st;
	char *data = must_zalloc(1, MIB), *back = must_alloc(MIB);
	uint64_t size;
	size_t got;

	for (uint64_t row = 0; row < 3; row++) {
		memset(data, 0, MIB);
		/* All zeros; zeros at the end; zeros at the front. */
		if (row > 0)
			data[row == 1 ? 0 : MIB - 1] = 'x';
		fill(&text, 1, row, data, MIB, "r1");
		assert_int_equal(put(world->disk, &text.chunk, data, MIB, &err), 0);
		AUTO(fs_close) int fd = disk_read(world->disk, T, 1, row, &size, &err);
		assert_int_equal(size, MIB);
		assert_int_equal(fs_read_all(fd, back, MIB, 0, &got, &err), 0);
		assert_int_equal(got, MIB);
		assert_memory_equal(back, data, MIB);
		assert_int_equal(fstat(fd, &st), 0);
		assert_in_range(st.st_blocks * 512, 0, 64 * KIB);
		text.chunk.request_id = "r2";
		assert_int_equal(put(world->disk, &text.chunk, data, MIB, &err), DISK_HAVE);
	}
	free(back);
	free(data);
}

static void t_conflict(void **state)
{
	struct world *world = *state;
	struct chunk_text text;
	struct err err = ERR_INIT;
	char names[512];

	for (int round = 0; round < 2; round++) {
		fill(&text, 1, 0, hello, HELLO_SIZE, "r1");
		assert_int_equal(put(world->disk, &text.chunk, hello, HELLO_SIZE, &err), round ? DISK_HAVE : 0);
		fill(&text, 1, 0, "other bytes!", 12, "r2");
		assert_int_equal(put(world->disk, &text.chunk, "other bytes!", 12, &err), -ERR_DIGEST_CONFLICT);
		fill(&text, 1, 0, "longer other bytes", 18, "r3");
		assert_int_equal(put(world->disk, &text.chunk, "longer other bytes", 18, &err), -ERR_DIGEST_CONFLICT);
		/* The same after a restart, from the bytes alone. */
		disk_close(&world->disk);
		world->disk = open_disk(world->path, 0);
	}
	list(world, 1, names, sizeof(names));
	assert_string_equal(names, "01ARZ3NDEKTSV4RRFFQ69G5FAV_1_0.part ");
	/* The same bytes under the other digest are the same chunk. */
	char md5[DIGEST_HEX_SIZE];
	digest_of(DIGEST_MD5, hello, HELLO_SIZE, md5);
	const struct disk_chunk chunk = { T, 1, 0, HELLO_SIZE, DIGEST_MD5, md5, "r4", 0 };
	assert_int_equal(put(world->disk, &chunk, hello, HELLO_SIZE, &err), DISK_HAVE);
	assert_space_returned(world->disk);
}

/* Bytes that rotted on the disk are replaced by whoever has the right ones; after a restart too, where the file system keeps the digest. */
static void t_rot(void **state)
{
	struct world *world = *state;
	struct chunk_text text;
	struct err err = ERR_INIT;
	char path[256], full[512], kept[128];

	fill(&text, 1, 0, hello, HELLO_SIZE, "r1");
	assert_int_equal(put(world->disk, &text.chunk, hello, HELLO_SIZE, &err), 0);
	disk_chunk_path(T, 1, 0, path, sizeof(path));
	snprintf(full, sizeof(full), "%s/%s", world->path, path);
	const bool is_kept = getxattr(full, "user.heng.digest", kept, sizeof(kept)) > 0 || errno != ENOTSUP;
	for (int round = 0; round < 2; round++) {
		if (round == 1) {
			disk_close(&world->disk);
			world->disk = open_disk(world->path, 0);
		}
		int fd = open(full, O_WRONLY);
		assert_int_equal(pwrite(fd, "X", 1, 3), 1);
		close(fd);
		/* Neither those of the file nor those that were written. */
		fill(&text, 1, 0, "other bytes!", 12, "r2");
		assert_int_equal(put(world->disk, &text.chunk, "other bytes!", 12, &err), -ERR_DIGEST_CONFLICT);
		fill(&text, 1, 0, hello, HELLO_SIZE, "r2");
		const int expected = round == 0 || is_kept ? 0 : -ERR_DIGEST_CONFLICT;
		assert_int_equal(put(world->disk, &text.chunk, hello, HELLO_SIZE, &err), expected);
		text.chunk.request_id = "r3";
		if (expected == 0)
			assert_int_equal(put(world->disk, &text.chunk, hello, HELLO_SIZE, &err), DISK_HAVE);
	}
}

/* An attribute that says nothing we understand is none, and so is that of another kind of digest: no reason to overwrite. */
static void t_rot_unknown(void **state)
{
	static const char *const values[] = { "", "sha256:", "sha256:abc", "md5:5d41402abc4b2a76b9719d911017c592" };
	struct world *world = *state;
	struct chunk_text text;
	struct err err = ERR_INIT;
	char path[256], full[512];

	fill(&text, 1, 0, hello, HELLO_SIZE, "r1");
	assert_int_equal(put(world->disk, &text.chunk, hello, HELLO_SIZE, &err), 0);
	disk_chunk_path(T, 1, 0, path, sizeof(path));
	snprintf(full, sizeof(full), "%s/%s", world->path, path);
	int fd = open(full, O_WRONLY);
	assert_int_equal(pwrite(fd, "X", 1, 3), 1);
	close(fd);
	for (size_t i = 0; i < COUNT_OF(values); i++) {
		disk_close(&world->disk);
		if (setxattr(full, "user.heng.digest", values[i], strlen(values[i]), 0) < 0)
			assert_int_equal(errno, ENOTSUP);
		world->disk = open_disk(world->path, 0);
		assert_int_equal(put(world->disk, &text.chunk, hello, HELLO_SIZE, &err), -ERR_DIGEST_CONFLICT);
	}
}

static void t_transfers(void **state)
{
	struct world *world = *state;
	struct chunk_text text;
	struct err err = ERR_INIT;
	struct buf lines = BUF_INIT(ULID_SIZE);
	char path[256];

	assert_int_equal(disk_transfers(world->disk, &lines, &err), 0);
	assert_int_equal(lines.size, 0);
	fill(&text, 1, 0, hello, HELLO_SIZE, "r1");
	assert_int_equal(put(world->disk, &text.chunk, hello, HELLO_SIZE, &err), 0);
	snprintf(path, sizeof(path), "%s/tmp/nobodys", world->path);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(disk_transfers(world->disk, &lines, &err), 0);
	assert_int_equal(lines.size, ULID_SIZE);
	assert_memory_equal(lines.data, "01ARZ3NDEKTSV4RRFFQ69G5FAV\n", ULID_SIZE);
	/* No room for a second. */
	text.chunk.transfer_id = "01ARZ3NDEKTSV4RRFFQ69G5FAW";
	assert_int_equal(put(world->disk, &text.chunk, hello, HELLO_SIZE, &err), 0);
	buf_clear(&lines);
	assert_int_equal(disk_transfers(world->disk, &lines, &err), 0);
	assert_int_equal(lines.size, ULID_SIZE);
	assert_false(lines.is_failed);
	buf_fini(&lines);
}

static void t_mismatch_and_truncation(void **state)
{
	struct world *world = *state;
	struct chunk_text text;
	struct disk_put *one = NULL;
	struct err err = ERR_INIT;
	char names[512];

	fill(&text, 1, 0, hello, HELLO_SIZE, "r1");
	assert_int_equal(put(world->disk, &text.chunk, "hello, chunK", HELLO_SIZE, &err), -ERR_DIGEST_MISMATCH);
	list(world, 1, names, sizeof(names));
	assert_string_equal(names, "");
	/* Too short. */
	assert_int_equal(disk_begin(world->disk, &text.chunk, &one, &err), DISK_WRITE);
	assert_int_equal(disk_write(one, hello, HELLO_SIZE - 1, &err), 0);
	list(world, 1, names, sizeof(names));
	assert_string_equal(names, "01ARZ3NDEKTSV4RRFFQ69G5FAV_1_0.part.r1 ");
	assert_int_equal(disk_commit(&one, &err), -ERR_TRUNCATED);
	/* Too long. */
	assert_int_equal(disk_begin(world->disk, &text.chunk, &one, &err), DISK_WRITE);
	assert_int_equal(disk_write(one, hello, HELLO_SIZE, &err), 0);
	assert_int_equal(disk_write(one, "x", 1, &err), -ERR_CHUNK_SIZE);
	disk_abort(&one);
	assert_null(one);
	list(world, 1, names, sizeof(names));
	assert_string_equal(names, "");
	assert_space_returned(world->disk);
	assert_int_equal(put(world->disk, &text.chunk, hello, HELLO_SIZE, &err), 0);
}

static void t_names(void **state)
{
	struct world *world = *state;
	struct chunk_text text;
	struct err err = ERR_INIT;
	static const char *const transfers[] = { "", "..", "../../etc", "01ARZ3NDEKTSV4RRFFQ69G5FA/",
						 "01ARZ3NDEKTSV4RRFFQ69G5FAVV" };
	static const char *const requests[] = { "", "a/b", "a b", "\n", "0123456789012345678901234567890123456789X" };
	uint64_t size;

	fill(&text, 1, 0, hello, HELLO_SIZE, "r1");
	for (size_t i = 0; i < COUNT_OF(transfers); i++) {
		text.chunk.transfer_id = transfers[i];
		assert_int_equal(put(world->disk, &text.chunk, hello, HELLO_SIZE, &err), -ERR_BAD_REQUEST);
		assert_int_equal(disk_read(world->disk, transfers[i], 1, 0, &size, &err), -ERR_CHUNK_GONE);
		assert_int_equal(disk_remove_transfer(world->disk, transfers[i], &err), -ERR_BAD_REQUEST);
		assert_int_equal(disk_remove_chunk(world->disk, transfers[i], 1, 0, &err), -ERR_BAD_REQUEST);
	}
	text.chunk.transfer_id = T;
	for (size_t i = 0; i < COUNT_OF(requests); i++) {
		text.chunk.request_id = requests[i];
		assert_int_equal(put(world->disk, &text.chunk, hello, HELLO_SIZE, &err), -ERR_BAD_REQUEST);
	}
	text.chunk.request_id = "r";
	text.chunk.digest_hex = "abc";
	assert_int_equal(put(world->disk, &text.chunk, hello, HELLO_SIZE, &err), -ERR_BAD_REQUEST);
	/* The largest ids, the longest request id: the name fits and is found again. */
	fill(&text, UINT64_MAX, UINT64_MAX, hello, HELLO_SIZE, "0123456789012345678901234567890123456789");
	assert_int_equal(put(world->disk, &text.chunk, hello, HELLO_SIZE, &err), 0);
	assert_true(disk_has(world->disk, T, UINT64_MAX, UINT64_MAX));
}

static void t_symlink(void **state)
{
	struct world *world = *state;
	struct chunk_text text;
	struct err err = ERR_INIT;
	char path[256];

	snprintf(path, sizeof(path), "%s/tmp/%s", world->path, T);
	assert_int_equal(symlink("/tmp", path), 0);
	fill(&text, 1, 0, hello, HELLO_SIZE, "r1");
	assert_true(put(world->disk, &text.chunk, hello, HELLO_SIZE, &err) < 0);
	assert_int_equal(disk_remove_transfer(world->disk, T, &err), 0);
	assert_int_equal(access("/tmp", F_OK), 0);
	assert_int_equal(access(path, F_OK), -1);
}

struct racer {
	struct disk *disk;
	struct chunk_text text;
	int result;
	struct err err;
	pthread_barrier_t *start;
};

static void *race(void *owner)
{
	struct racer *racer = owner;

	pthread_barrier_wait(racer->start);
	racer->result = put(racer->disk, &racer->text.chunk, hello, HELLO_SIZE, &racer->err);
	return NULL;
}

static void t_two_at_once(void **state)
{
	struct world *world = *state;
	pthread_barrier_t start;
	char names[512];

	pthread_barrier_init(&start, NULL, 2);
	for (uint64_t round = 1; round <= 20; round++) {
		struct racer racers[2];
		pthread_t threads[2];

		for (int i = 0; i < 2; i++) {
			racers[i] = (struct racer){ .disk = world->disk, .start = &start };
			fill(&racers[i].text, round, 0, hello, HELLO_SIZE, i ? "two" : "one");
			racers[i].text.chunk.turn_wait_us = 10 * SEC_US;
			assert_int_equal(pthread_create(&threads[i], NULL, race, &racers[i]), 0);
		}
		for (int i = 0; i < 2; i++)
			pthread_join(threads[i], NULL);
		/* One wrote (0), the other found it. */
		assert_true(racers[0].result >= 0 && racers[1].result >= 0);
		assert_int_equal(racers[0].result + racers[1].result, DISK_HAVE);
		list(world, round, names, sizeof(names));
		assert_non_null(strstr(names, "_0.part "));
		assert_null(strstr(names, ".part."));
	}
	pthread_barrier_destroy(&start);
	assert_space_returned(world->disk);
}

static void t_turn(void **state)
{
	struct world *world = *state;
	struct chunk_text text;
	struct disk_put *first = NULL, *second = NULL;
	struct err err = ERR_INIT;
	const struct disk_options options = { .path = world->path, .silence_us = SEC_US / 2 };

	disk_close(&world->disk);
	assert_int_equal(disk_open(&options, &world->disk, &err), 0);

	fill(&text, 1, 0, hello, HELLO_SIZE, "first");
	assert_int_equal(disk_begin(world->disk, &text.chunk, &first, &err), DISK_WRITE);
	text.chunk.request_id = "second";
	assert_int_equal(disk_begin(world->disk, &text.chunk, &second, &err), -ERR_BUSY);
	assert_null(second);
	/* Another chunk is another turn. */
	fill(&text, 1, 1, hello, HELLO_SIZE, "third");
	assert_int_equal(put(world->disk, &text.chunk, hello, HELLO_SIZE, &err), 0);
	/* The first falls silent: whoever waits long enough gets the turn, and the first can do no harm any more. */
	fill(&text, 1, 0, hello, HELLO_SIZE, "second");
	text.chunk.turn_wait_us = 30 * SEC_US;
	assert_int_equal(disk_begin(world->disk, &text.chunk, &second, &err), DISK_WRITE);
	assert_int_equal(disk_write(first, hello, HELLO_SIZE, &err), -ERR_BUSY);
	assert_int_equal(disk_commit(&first, &err), -ERR_BUSY);
	assert_int_equal(disk_write(second, hello, HELLO_SIZE, &err), 0);
	assert_int_equal(disk_commit(&second, &err), 0);
	assert_true(disk_has(world->disk, T, 1, 0));
	assert_space_returned(world->disk);
}

static void touch(const char *root, const char *name)
{
	char path[512];

	snprintf(path, sizeof(path), "%s/tmp/%s/1/%s", root, T, name);
	const int fd = open(path, O_WRONLY | O_CREAT, 0600);
	assert_true(fd >= 0);
	close(fd);
}

static void t_restart(void **state)
{
	struct world *world = *state;
	struct chunk_text text;
	struct err err = ERR_INIT;
	char names[512];

	fill(&text, 1, 0, hello, HELLO_SIZE, "r1");
	assert_int_equal(put(world->disk, &text.chunk, hello, HELLO_SIZE, &err), 0);
	disk_close(&world->disk);
	touch(world->path, "01ARZ3NDEKTSV4RRFFQ69G5FAV_1_1.part.abc");
	touch(world->path, "01ARZ3NDEKTSV4RRFFQ69G5FAV_1_0.part.abc.part");
	touch(world->path, "01ARZ3NDEKTSV4RRFFQ69G5FAV_1_7.part");
	world->disk = open_disk(world->path, 0);
	list(world, 1, names, sizeof(names));
	assert_string_equal(names, "01ARZ3NDEKTSV4RRFFQ69G5FAV_1_0.part 01ARZ3NDEKTSV4RRFFQ69G5FAV_1_7.part ");
	assert_int_equal(put(world->disk, &text.chunk, hello, HELLO_SIZE, &err), DISK_HAVE);
}

/* A node that died between the rename and the sync of the folders left a chunk whose name may yet be lost. Whoever says that the chunk is here
 * makes its name durable first. */
static void t_known_is_durable(void **state)
{
	struct world *world = *state;
	struct chunk_text text;
	struct err err = ERR_INIT;
	char path[3][256];

	snprintf(path[0], sizeof(path[0]), "%s/tmp/%s/1", world->path, T);
	snprintf(path[1], sizeof(path[1]), "%s/tmp/%s", world->path, T);
	snprintf(path[2], sizeof(path[2]), "%s/tmp", world->path);
	fill(&text, 1, 0, hello, HELLO_SIZE, "r1");
	assert_int_equal(put(world->disk, &text.chunk, hello, HELLO_SIZE, &err), 0);
	disk_close(&world->disk);
	world->disk = open_disk(world->path, 0);
	synced_count = 0;
	assert_int_equal(put(world->disk, &text.chunk, hello, HELLO_SIZE, &err), DISK_HAVE);
	for (size_t i = 0; i < COUNT_OF(path); i++)
		assert_true(is_synced(path[i]));
	/* Once is enough. */
	synced_count = 0;
	assert_int_equal(put(world->disk, &text.chunk, hello, HELLO_SIZE, &err), DISK_HAVE);
	assert_int_equal(synced_count, 0);
}

/* A name that cannot be made durable is not acknowledged, whether the chunk is new or known. */
static void t_sync_fails(void **state)
{
	struct world *world = *state;
	struct chunk_text text;
	struct err err = ERR_INIT;

	fill(&text, 1, 0, hello, HELLO_SIZE, "r1");
	is_sync_broken = true;
	const int new_result = put(world->disk, &text.chunk, hello, HELLO_SIZE, &err);
	is_sync_broken = false;
	assert_int_equal(new_result, -ERR_DISK);
	assert_false(disk_has(world->disk, T, 1, 0));
	assert_int_equal(disk_check(world->disk, &err), 0);
	assert_int_equal(put(world->disk, &text.chunk, hello, HELLO_SIZE, &err), 0);
	disk_close(&world->disk);
	world->disk = open_disk(world->path, 0);
	is_sync_broken = true;
	const int known_result = put(world->disk, &text.chunk, hello, HELLO_SIZE, &err);
	is_sync_broken = false;
	assert_int_equal(known_result, -ERR_DISK);
	assert_int_equal(disk_check(world->disk, &err), 0);
	assert_int_equal(put(world->disk, &text.chunk, hello, HELLO_SIZE, &err), DISK_HAVE);
}

/* A receipt of other bytes, or of the same told again, says nothing of what is in their place now. */
static void t_other_bytes(void **state)
{
	struct world *world = *state;
	struct chunk_text old, new, shorter;
	char relative[256], path[512];
	struct err err = ERR_INIT;

	fill(&old, 1, 0, "hello, chunK", HELLO_SIZE, "r1");
	fill(&new, 1, 0, hello, HELLO_SIZE, "r2");
	fill(&shorter, 1, 0, hello, HELLO_SIZE - 1, "r3");
	assert_false(disk_may_have(world->disk, &new.chunk, false));
	assert_int_equal(disk_remove_bytes(world->disk, &new.chunk, 0, &err), -ERR_DIGEST_CONFLICT);
	assert_int_equal(put(world->disk, &new.chunk, hello, HELLO_SIZE, &err), 0);
	disk_chunk_path(T, 1, 0, relative, sizeof(relative));
	snprintf(path, sizeof(path), "%s/%s", world->path, relative);
	/* Known by memory, by the attribute, by nothing but the bytes. */
	for (unsigned i = 0; i < 3; i++) {
		const bool is_known = i < 2;

		for (unsigned is_read = 0; is_read < 2; is_read++) {
			assert_true(disk_may_have(world->disk, &new.chunk, is_read));
			assert_int_equal(disk_may_have(world->disk, &old.chunk, is_read), !is_known && !is_read);
			assert_false(disk_may_have(world->disk, &shorter.chunk, is_read));
		}
		assert_int_equal(disk_remove_bytes(world->disk, &old.chunk, 0, &err), -ERR_DIGEST_CONFLICT);
		assert_int_equal(disk_remove_bytes(world->disk, &shorter.chunk, 0, &err), -ERR_DIGEST_CONFLICT);
		assert_true(disk_has(world->disk, T, 1, 0));
		disk_close(&world->disk);
		world->disk = open_disk(world->path, 0);
		if (i == 1)
			(void)removexattr(path, "user.heng.digest");
	}
	assert_int_equal(disk_remove_bytes(world->disk, &new.chunk, 0, &err), 0);
	assert_false(disk_has(world->disk, T, 1, 0));
}

/* The receipt of a first attempt is refused, and a second one is told that the chunk is here before the first has removed it. */
static void t_told_meanwhile(void **state)
{
	struct world *world = *state;
	struct chunk_text first, again, other;
	struct err err = ERR_INIT;

	fill(&first, 1, 0, hello, HELLO_SIZE, "r1");
	fill(&again, 1, 0, hello, HELLO_SIZE, "r2");
	fill(&other, 1, 1, hello, HELLO_SIZE, "r3");
	assert_int_equal(put(world->disk, &first.chunk, hello, HELLO_SIZE, &err), 0);
	assert_int_equal(put(world->disk, &other.chunk, hello, HELLO_SIZE, &err), 0);
	const uint64_t before = disk_told_count(world->disk);
	assert_int_equal(put(world->disk, &again.chunk, hello, HELLO_SIZE, &err), DISK_HAVE);
	assert_int_equal(disk_remove_bytes(world->disk, &first.chunk, before, &err), -ERR_STATE);
	assert_true(disk_has(world->disk, T, 1, 0));
	/* Of another chunk nobody was told, and of this one nobody since. */
	assert_int_equal(disk_remove_bytes(world->disk, &other.chunk, before, &err), 0);
	assert_int_equal(disk_remove_bytes(world->disk, &first.chunk, disk_told_count(world->disk), &err), 0);
	assert_false(disk_has(world->disk, T, 1, 0));
	/* Who was not told that it is here wrote it, and is asked after it. */
	const uint64_t gone = disk_told_count(world->disk);
	assert_int_equal(put(world->disk, &again.chunk, hello, HELLO_SIZE, &err), 0);
	assert_int_equal(disk_remove_bytes(world->disk, &again.chunk, gone, &err), 0);
}

/* Want of descriptors is no sign that a chunk has gone. */
static void t_have_without_descriptors(void **state)
{
	struct world *world = *state;
	struct chunk_text text, absent;
	struct rlimit limit, none;
	struct err err = ERR_INIT;

	fill(&text, 1, 0, hello, HELLO_SIZE, "r1");
	fill(&absent, 1, 1, hello, HELLO_SIZE, "r2");
	assert_int_equal(put(world->disk, &text.chunk, hello, HELLO_SIZE, &err), 0);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	none = limit;
	none.rlim_cur = 0;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	const bool may_have = disk_may_have(world->disk, &text.chunk, false);
	const int removed = disk_remove_bytes(world->disk, &text.chunk, 0, &err);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	assert_true(may_have);
	assert_int_equal(removed, -ERR_DISK);
	assert_true(disk_may_have(world->disk, &text.chunk, true));
	assert_false(disk_may_have(world->disk, &absent.chunk, true));
}

static void t_remove(void **state)
{
	struct world *world = *state;
	struct chunk_text text;
	struct disk_put *one = NULL;
	struct err err = ERR_INIT;

	fill(&text, 1, 0, hello, HELLO_SIZE, "r1");
	assert_int_equal(disk_remove_transfer(world->disk, T, &err), 0);
	assert_int_equal(disk_remove_chunk(world->disk, T, 1, 0, &err), -ERR_CHUNK_GONE);
	assert_int_equal(put(world->disk, &text.chunk, hello, HELLO_SIZE, &err), 0);
	assert_int_equal(disk_remove_chunk(world->disk, T, 1, 1, &err), -ERR_CHUNK_GONE);
	assert_int_equal(disk_remove_chunk(world->disk, T, 1, 0, &err), 0);
	assert_int_equal(disk_remove_chunk(world->disk, T, 1, 0, &err), -ERR_CHUNK_GONE);
	assert_false(disk_has(world->disk, T, 1, 0));
	assert_int_equal(put(world->disk, &text.chunk, hello, HELLO_SIZE, &err), 0);
	/* Removed under a writer: it is told, and the disk is not taken for broken. */
	fill(&text, 1, 1, hello, HELLO_SIZE, "r2");
	assert_int_equal(disk_begin(world->disk, &text.chunk, &one, &err), DISK_WRITE);
	assert_int_equal(disk_write(one, hello, HELLO_SIZE, &err), 0);
	assert_int_equal(disk_remove_chunk(world->disk, T, 1, 1, &err), -ERR_BUSY);
	assert_int_equal(disk_remove_transfer(world->disk, T, &err), 0);
	assert_int_equal(disk_commit(&one, &err), -ERR_NO_TRANSFER);
	assert_false(disk_has(world->disk, T, 1, 0));
	assert_int_equal(put(world->disk, &text.chunk, hello, HELLO_SIZE, &err), 0);
}

static void *remove_often(void *owner)
{
	struct world *world = owner;
	struct err err;

	for (int i = 0; i < 300; i++)
		(void)disk_remove_transfer(world->disk, T, &err);
	return NULL;
}

/* Folders vanish under writers at any moment: each is told, or its chunk goes with the rest, and the disk is not taken for broken. */
static void t_remove_race(void **state)
{
	struct world *world = *state;
	struct chunk_text text;
	pthread_t thread;
	struct err err = ERR_INIT;
	struct disk_counts counts;

	fill(&text, 1, 0, hello, HELLO_SIZE, "r1");
	assert_int_equal(pthread_create(&thread, NULL, remove_often, world), 0);
	for (int i = 0; i < 300; i++) {
		const int r = put(world->disk, &text.chunk, hello, HELLO_SIZE, &err);
		if (r != 0 && r != DISK_HAVE && r != -ERR_NO_TRANSFER)
			fail_msg("%s", err.text);
	}
	pthread_join(thread, NULL);
	disk_counts(world->disk, &counts);
	assert_int_equal(counts.write_failures, 0);
	assert_int_equal(disk_remove_transfer(world->disk, T, &err), 0);
	assert_int_equal(put(world->disk, &text.chunk, hello, HELLO_SIZE, &err), 0);
	/* Without a removal of ours, a folder that vanishes is the disk's fault. */
	fill(&text, 1, 1, hello, HELLO_SIZE, "r2");
	struct disk_put *one = NULL;
	char path[256];
	assert_int_equal(disk_begin(world->disk, &text.chunk, &one, &err), DISK_WRITE);
	assert_int_equal(disk_write(one, hello, HELLO_SIZE, &err), 0);
	snprintf(path, sizeof(path), "%s/tmp", world->path);
	assert_int_equal(fs_remove_tree(AT_FDCWD, path, &err), 0);
	assert_int_equal(disk_commit(&one, &err), -ERR_DISK);
}

static void t_floor(void **state)
{
	struct world *world = *state;
	struct chunk_text text;
	struct fs_space space;
	struct err err = ERR_INIT;
	uint64_t reserved_bytes;
	bool is_low;

	disk_close(&world->disk);
	world->disk = open_disk(world->path, (uint64_t)1 << 60);
	fill(&text, 1, 0, hello, HELLO_SIZE, "r1");
	assert_int_equal(put(world->disk, &text.chunk, hello, HELLO_SIZE, &err), -ERR_DISK_LOW);
	assert_int_equal(disk_space(world->disk, &space, &reserved_bytes, &is_low, &err), 0);
	assert_true(is_low);
	assert_int_equal(reserved_bytes, 0);
}

/* On a file system of 8 MiB: refused before the first byte, promises count, and what others eat meanwhile is no failure of the disk. */
static void t_full(void **state)
{
	struct world *world = *state;
	struct chunk_text text;
	struct disk_put *one = NULL, *two = NULL;
	struct fs_space space;
	struct err err = ERR_INIT;
	char path[128], *data = must_zalloc(1, 4 * MIB);
	uint64_t reserved_bytes;
	bool is_low;

	memset(data, 'x', 4 * MIB); /* zeros would take no room */
	snprintf(path, sizeof(path), "%s/small", world->path);
	assert_int_equal(mkdir(path, 0700), 0);
	if (mount("tmpfs", path, "tmpfs", 0, "size=8m") < 0) {
		print_message("no right to mount a tmpfs: %s\n", strerror(errno));
		free(data);
		skip();
	}
	struct disk *disk = open_disk(path, MIB);
	fill(&text, 1, 0, data, 4 * MIB, "r1");
	assert_int_equal(disk_begin(disk, &text.chunk, &one, &err), DISK_WRITE);
	/* 8 less 4 promised less 1 for the floor: no room for 4 more. */
	text.chunk.chunk_index = 1;
	assert_int_equal(disk_begin(disk, &text.chunk, &two, &err), -ERR_DISK_LOW);
	assert_null(two);
	assert_int_equal(disk_space(disk, &space, &reserved_bytes, &is_low, &err), 0);
	assert_int_equal(reserved_bytes, 4 * MIB);
	assert_true(is_low);
	assert_int_equal(disk_write(one, data, 2 * MIB, &err), 0);
	assert_int_equal(disk_space(disk, &space, &reserved_bytes, &is_low, &err), 0);
	assert_int_equal(reserved_bytes, 2 * MIB);
	/* Somebody else fills the file system. */
	char hog[160];
	snprintf(hog, sizeof(hog), "%s/hog", path);
	const int fd = open(hog, O_WRONLY | O_CREAT, 0600);
	while (write(fd, data, MIB) > 0)
		;
	close(fd);
	assert_int_equal(disk_write(one, data, 2 * MIB, &err), -ERR_DISK_LOW);
	disk_abort(&one);
	assert_int_equal(unlink(hog), 0);
	/* Low until the chunk that was refused would fit; now it does, so the disk is well again, and takes it. */
	assert_int_equal(disk_space(disk, &space, &reserved_bytes, &is_low, &err), 0);
	assert_int_equal(reserved_bytes, 0);
	assert_false(is_low);
	assert_int_equal(put(disk, &text.chunk, data, 4 * MIB, &err), 0);
	disk_close(&disk);
	assert_int_equal(umount(path), 0);
	free(data);
}

/* A disk that fails is left alone until its self-check passes. */
static void t_breaker(void **state)
{
	struct world *world = *state;
	struct chunk_text text;
	struct err err = ERR_INIT;
	char path[256], failure[200];
	struct disk_counts counts;

	/* A file in the place of the transfer's folder: the disk answers with nonsense. */
	snprintf(path, sizeof(path), "%s/tmp/%s", world->path, T);
	const int fd = open(path, O_WRONLY | O_CREAT, 0600);
	assert_true(fd >= 0);
	close(fd);
	fill(&text, 1, 0, hello, HELLO_SIZE, "r1");
	assert_int_equal(put(world->disk, &text.chunk, hello, HELLO_SIZE, &err), -ERR_DISK);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(put(world->disk, &text.chunk, hello, HELLO_SIZE, &err), -ERR_DISK);
	assert_non_null(strstr(err.text, "out of use"));
	disk_failure(world->disk, failure, sizeof(failure));
	assert_non_null(strstr(failure, "chunk"));
	disk_counts(world->disk, &counts);
	assert_int_equal(counts.write_failures, 1);
	assert_int_equal(disk_check(world->disk, &err), 0);
	disk_failure(world->disk, failure, sizeof(failure));
	assert_string_equal(failure, "");
	assert_int_equal(put(world->disk, &text.chunk, hello, HELLO_SIZE, &err), 0);
	assert_space_returned(world->disk);
}

/* Too many open files are our trouble, not the disk's. */
static void t_no_descriptors(void **state)
{
	struct world *world = *state;
	struct chunk_text text;
	struct rlimit before, none;
	struct err err = ERR_INIT;

	fill(&text, 1, 0, hello, HELLO_SIZE, "r1");
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	none = (struct rlimit){ 0, before.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	const int put_result = put(world->disk, &text.chunk, hello, HELLO_SIZE, &err);
	const int check_result = disk_check(world->disk, &err);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	assert_int_equal(put_result, -ERR_BUSY);
	assert_int_equal(check_result, -ERR_BUSY);
	assert_int_equal(put(world->disk, &text.chunk, hello, HELLO_SIZE, &err), 0);
}

#define DISK_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		DISK_TEST(t_put_and_read),
		DISK_TEST(t_holes),
		DISK_TEST(t_conflict),
		DISK_TEST(t_rot),
		DISK_TEST(t_mismatch_and_truncation),
		DISK_TEST(t_names),
		DISK_TEST(t_symlink),
		DISK_TEST(t_two_at_once),
		DISK_TEST(t_turn),
		DISK_TEST(t_restart),
		DISK_TEST(t_other_bytes),
		DISK_TEST(t_told_meanwhile),
		DISK_TEST(t_have_without_descriptors),
		DISK_TEST(t_remove),
		DISK_TEST(t_floor),
		DISK_TEST(t_full),
		DISK_TEST(t_breaker),
		DISK_TEST(t_rot_unknown),
		DISK_TEST(t_transfers),
		DISK_TEST(t_known_is_durable),
		DISK_TEST(t_remove_race),
		DISK_TEST(t_no_descriptors),
		DISK_TEST(t_sync_fails),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
