#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/rng.h"
#include "folder/journal.h"
#include "sys/fs.h"

#define MANY 6000

struct world {
	char folder[64], path[128], copy[128];
	struct journal *journal;
	uint64_t lost_bytes;
};

static int setup(void **state)
{
	struct world *world = must_zalloc(1, sizeof(*world));

	snprintf(world->folder, sizeof(world->folder), "/tmp/t_journal-XXXXXX");
	assert_non_null(mkdtemp(world->folder));
	snprintf(world->path, sizeof(world->path), "%s/receipts.journal", world->folder);
	snprintf(world->copy, sizeof(world->copy), "%s/copy", world->folder);
	*state = world;
	return 0;
}

static int teardown(void **state)
{
	struct world *world = *state;

	journal_close(&world->journal);
	assert_int_equal(fs_remove_tree(AT_FDCWD, world->folder, NULL), 0);
	free(world);
	return 0;
}

static void reopen(struct world *world, const char *path, uint64_t limit_bytes)
{
	struct err err = ERR_INIT;

	journal_close(&world->journal);
	if (journal_open(path, limit_bytes, &world->journal, &world->lost_bytes, &err) < 0)
		fail_msg("%s", err.text);
}

/* Every field has something in it that a line or a frame could stumble over. */
static struct journal_record record_of(uint64_t number)
{
	struct journal_record record = { .is_repeat = number % 3 == 0 };
	struct store_receipt *receipt = &record.receipt;

	snprintf(receipt->transfer_id, sizeof(receipt->transfer_id), "01ARZ3NDEKTSV4RRFFQ69G5FAV");
	receipt->file_id = number + 1;
	receipt->chunk_index = number % 7;
	receipt->size_bytes = number * 1000;
	snprintf(receipt->digest, sizeof(receipt->digest), "%064llx", (unsigned long long)number);
	snprintf(receipt->node_id, sizeof(receipt->node_id), "n1");
	snprintf(receipt->node_addr, sizeof(receipt->node_addr), "[::1]:7081");
	snprintf(receipt->user_agent, sizeof(receipt->user_agent), "\xa5HJ1 a\tb\nc%%%.*s", (int)(number % 50),
		 "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx");
	receipt->started_wall_us = (int64_t)number;
	receipt->finished_wall_us = (int64_t)number + 5;
	receipt->outcome = number % 5 == 0 ? ERR_DIGEST_MISMATCH : ERR_NONE;
	return record;
}

static void assert_record(const struct journal_record *got, uint64_t number)
{
	const struct journal_record want = record_of(number);

	assert_int_equal(got->is_repeat, want.is_repeat);
	assert_int_equal(got->receipt.file_id, want.receipt.file_id);
	assert_int_equal(got->receipt.chunk_index, want.receipt.chunk_index);
	assert_int_equal(got->receipt.size_bytes, want.receipt.size_bytes);
	assert_string_equal(got->receipt.digest, want.receipt.digest);
	assert_string_equal(got->receipt.user_agent, want.receipt.user_agent);
	assert_int_equal(got->receipt.finished_wall_us, want.receipt.finished_wall_us);
	assert_int_equal(got->receipt.outcome, want.receipt.outcome);
}

static int append(struct world *world, uint64_t first, size_t count)
{
	struct journal_record *records = must_zalloc(count, sizeof(*records));
	struct err err = ERR_INIT;

	for (size_t i = 0; i < count; i++)
		records[i] = record_of(first + i);
	const int r = journal_append(world->journal, records, count, &err);
	free(records);
	return r;
}

/* Takes up to `limit` from the front; they must be first, first + 1, ... */
static size_t take(struct world *world, uint64_t first, size_t limit)
{
	struct journal_record *records = must_zalloc(limit, sizeof(*records));
	struct err err = ERR_INIT;
	size_t count;

	if (journal_read(world->journal, records, limit, &count, &world->lost_bytes, &err) < 0)
		fail_msg("%s", err.text);
	for (size_t i = 0; i < count; i++)
		assert_record(&records[i], first + i);
	free(records);
	if (count > 0)
		assert_int_equal(journal_drop(world->journal, &err), 0);
	return count;
}

static off_t size_of(const char *path)
{
	struct stat facts;

	assert_int_equal(stat(path, &facts), 0);
	return facts.st_size;
}

/* What is on the disk at this moment, as after a kill. */
static void copy_file(const struct world *world, size_t limit_bytes)
{
	struct buf text = BUF_INIT(16 * MIB);

	assert_int_equal(fs_read_file(world->path, 16 * MIB, &text, NULL), 0);
	const struct str head = { text.data, min_size(text.size, limit_bytes) };
	assert_int_equal(fs_replace_file(world->copy, head, 0600, NULL), 0);
	buf_fini(&text);
}

static void t_order(void **state)
{
	struct world *world = *state;

	reopen(world, world->path, MIB);
	assert_true(journal_is_empty(world->journal));
	assert_int_equal(take(world, 0, 10), 0);
	assert_int_equal(append(world, 0, 1), 0);
	assert_int_equal(append(world, 1, 20), 0);
	assert_int_equal(journal_count(world->journal), 21);
	assert_int_equal(take(world, 0, 5), 5);
	/* New ones go behind what waits. */
	assert_int_equal(append(world, 21, 4), 0);
	assert_int_equal(take(world, 5, 16), 16);
	assert_int_equal(journal_count(world->journal), 4);
	assert_false(journal_is_empty(world->journal));
	assert_int_equal(take(world, 21, 100), 4);
	assert_true(journal_is_empty(world->journal));
	assert_int_equal(size_of(world->path), 0);
	assert_int_equal(append(world, 7, 1), 0);
	assert_int_equal(take(world, 7, 100), 1);
	assert_int_equal(size_of(world->path), 0);
}

/* Read without being dropped: they come again. */
static void t_not_dropped(void **state)
{
	struct world *world = *state;
	struct journal_record records[3];
	size_t count;

	reopen(world, world->path, MIB);
	assert_int_equal(append(world, 0, 5), 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(journal_read(world->journal, records, 3, &count, &world->lost_bytes, NULL), 0);
		assert_int_equal(count, 3);
	}
	/* An append between reading and dropping is not dropped with them. */
	assert_int_equal(append(world, 5, 2), 0);
	assert_int_equal(journal_drop(world->journal, NULL), 0);
	assert_int_equal(take(world, 3, 100), 4);
}

/* Killed between any two steps: what was promised comes back, and what was dropped may. */
static void t_kill(void **state)
{
	struct world *world = *state;

	reopen(world, world->path, MIB);
	assert_int_equal(append(world, 0, 8), 0);
	copy_file(world, SIZE_MAX);
	reopen(world, world->copy, MIB);
	assert_int_equal(journal_count(world->journal), 8);
	assert_int_equal(take(world, 0, 100), 8);

	reopen(world, world->path, MIB);
	assert_int_equal(take(world, 0, 3), 3);
	copy_file(world, SIZE_MAX);
	assert_int_equal(append(world, 8, 1), 0);
	reopen(world, world->copy, MIB);
	assert_int_equal(journal_count(world->journal), 8);
	assert_int_equal(take(world, 0, 100), 8);

	reopen(world, world->path, MIB);
	assert_int_equal(take(world, 0, 100), 9);
	copy_file(world, SIZE_MAX);
	reopen(world, world->copy, MIB);
	assert_true(journal_is_empty(world->journal));
}

static void t_torn(void **state)
{
	struct world *world = *state;

	reopen(world, world->path, MIB);
	assert_int_equal(append(world, 0, 2), 0);
	const size_t promised = (size_t)size_of(world->path);
	assert_int_equal(append(world, 2, 2), 0);
	const size_t whole = (size_t)size_of(world->path);
	for (size_t size = 0; size <= whole; size++) {
		reopen(world, world->path, MIB);
		copy_file(world, size);
		reopen(world, world->copy, MIB);
		const size_t count = journal_count(world->journal);
		assert_true(size < promised ? count < 2 : size < whole ? count == 2 || count == 3 : count == 4);
		assert_int_equal(world->lost_bytes, 0);
		/* The journal goes on where the good part ends. */
		assert_int_equal(append(world, count, 1), 0);
		reopen(world, world->copy, MIB);
		assert_int_equal(take(world, 0, 100), count + 1);
	}
}

/* Wrong bytes anywhere spoil the record that they are in, and no other. */
static void t_rot(void **state)
{
	struct world *world = *state;

	reopen(world, world->path, MIB);
	assert_int_equal(append(world, 0, 3), 0);
	const off_t size = size_of(world->path);
	journal_close(&world->journal);
	for (off_t at = 0; at < size; at += 3) {
		struct journal_record records[4];
		size_t count;
		char byte;

		copy_file(world, SIZE_MAX);
		int fd = open(world->copy, O_RDWR);
		assert_int_equal(pread(fd, &byte, 1, at), 1);
		byte = (char)(byte ^ 0x40);
		assert_int_equal(pwrite(fd, &byte, 1, at), 1);
		close(fd);
		reopen(world, world->copy, MIB);
		assert_int_equal(journal_count(world->journal), 2);
		/* In the last record it looks like a torn end, which is cut. */
		assert_true((world->lost_bytes > 0) == (size_of(world->copy) == size));
		assert_int_equal(journal_read(world->journal, records, 4, &count, &world->lost_bytes, NULL), 0);
		assert_int_equal(count, 2);
		for (size_t i = 0; i < count; i++)
			assert_record(&records[i], records[i].receipt.file_id - 1);
		assert_int_equal(journal_drop(world->journal, NULL), 0);
		assert_true(journal_is_empty(world->journal));
	}
	/* Rot while it is open. */
	reopen(world, world->path, MIB);
	int fd = open(world->path, O_RDWR);
	assert_int_equal(pwrite(fd, "?", 1, size - 20), 1);
	close(fd);
	assert_int_equal(take(world, 0, 100), 2);
	assert_true(world->lost_bytes > 0);
	assert_true(journal_is_empty(world->journal));
}

/* Nothing but noise is an empty journal, however it begins. */
static void t_noise(void **state)
{
	struct world *world = *state;
	char noise[5000];
	struct rng rng;

	rng_seed(&rng, 7);
	for (int round = 0; round < 20; round++) {
		for (size_t i = 0; i < sizeof(noise); i++)
			noise[i] = (char)rng_u64(&rng);
		memcpy(noise, "\xa5HJ1", round % 2 == 0 ? 4 : 0);
		assert_int_equal(fs_replace_file(world->path, (struct str){ noise, sizeof(noise) }, 0600, NULL), 0);
		reopen(world, world->path, MIB);
		assert_true(journal_is_empty(world->journal));
		assert_int_equal(size_of(world->path), 0);
	}
	/* Nor is a folder there taken for one. */
	struct err err = ERR_INIT;
	journal_close(&world->journal);
	assert_true(journal_open(world->folder, MIB, &world->journal, &world->lost_bytes, &err) < 0);
	assert_true(err.text[0] != '\0');
}

static void t_full(void **state)
{
	struct world *world = *state;
	struct err err = ERR_INIT;
	const struct journal_record record = record_of(0);
	size_t count = 0;

	reopen(world, world->path, 0);
	assert_int_equal(journal_append(world->journal, &record, 1, &err), -ERR_LIMIT);
	reopen(world, world->path, 10 * KIB);
	assert_true(journal_has_plenty(world->journal));
	while (append(world, count, 1) == 0)
		count++;
	assert_in_range(count, 10, 50);
	assert_true(size_of(world->path) <= (off_t)(10 * KIB));
	assert_false(journal_has_plenty(world->journal));
	assert_int_equal(journal_append(world->journal, &record, 1, &err), -ERR_LIMIT);
	assert_non_null(strstr(err.text, "is full"));
	assert_true(err.hint[0] != '\0');
	/* All of a batch or nothing of it. */
	assert_int_equal(take(world, 0, 2), 2);
	assert_int_equal(append(world, count, 10), -ERR_LIMIT);
	assert_int_equal(append(world, count, 1), 0);
	assert_int_equal(take(world, 2, 100), count - 1);
	assert_true(journal_has_plenty(world->journal));
	/* A smaller limit than what waits from before: nothing is lost, nothing is added. */
	assert_int_equal(append(world, 0, 10), 0);
	reopen(world, world->path, KIB);
	assert_int_equal(append(world, 10, 1), -ERR_LIMIT);
	assert_int_equal(take(world, 0, 100), 10);
}

/* Never quite empty: what was dropped does not fill the disk. */
static void t_compact(void **state)
{
	struct world *world = *state;
	off_t most = 0;
	size_t given = 0, taken = 0;

	reopen(world, world->path, 64 * MIB);
	assert_int_equal(append(world, given, 700), 0);
	given += 700;
	while (given < MANY) {
		assert_int_equal(append(world, given, 100), 0);
		given += 100;
		assert_int_equal(take(world, taken, 100), 100);
		taken += 100;
		const off_t size = size_of(world->path);
		most = size > most ? size : most;
	}
	assert_in_range(most, 0, 3 * MIB);
	/* And all that waits is there after a kill. */
	copy_file(world, SIZE_MAX);
	reopen(world, world->copy, 64 * MIB);
	assert_true(journal_count(world->journal) >= given - taken);
	reopen(world, world->path, 64 * MIB);
	struct journal_record first;
	size_t count;
	assert_int_equal(journal_read(world->journal, &first, 1, &count, &world->lost_bytes, NULL), 0);
	assert_int_equal(count, 1);
	assert_true(first.receipt.file_id - 1 <= taken);
	assert_int_equal(take(world, first.receipt.file_id - 1, MANY), given - (first.receipt.file_id - 1));
}

/* A disk that takes half of it and no more: no promise, and what was promised before stays. */
static void t_no_room(void **state)
{
	struct world *world = *state;
	struct rlimit old, tight;
	struct err err = ERR_INIT;
	const struct journal_record record = record_of(9);

	reopen(world, world->path, MIB);
	assert_int_equal(append(world, 0, 3), 0);
	const off_t size = size_of(world->path);
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	tight = old;
	tight.rlim_cur = (rlim_t)size + 100;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
	const int r = journal_append(world->journal, &record, 1, &err);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
	assert_int_equal(r, -ERR_SYSTEM);
	assert_non_null(strstr(err.text, world->path));
	assert_int_equal(size_of(world->path), size);
	assert_int_equal(append(world, 3, 1), 0);
	reopen(world, world->path, MIB);
	assert_int_equal(take(world, 0, 100), 4);
}

#define ROW(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		ROW(t_order), ROW(t_not_dropped), ROW(t_kill),    ROW(t_torn),    ROW(t_rot),
		ROW(t_noise), ROW(t_full),        ROW(t_compact), ROW(t_no_room),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
