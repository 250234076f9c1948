#include <ftw.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "folder/plan.h"

#include "base/clock.h"
#include "base/rng.h"
#include "sys/fs.h"

#define CUT       ((uint64_t)800) /* packed up to 100 bytes */
#define FILES_MAX 200
#define DIGEST    "1111111111111111111111111111111111111111111111111111111111111111"

static const char transfer_id[] = "01ARZ3NDEKTSV4RRFFQ69G5FAA";

/* A planned folder in a real store, and what is known of it. Entry 0 is the root, i the file "f<i>". */
struct world {
	char folder[64];
	struct store *store;
	struct ring *ring;
	struct err err;
	uint64_t sizes[FILES_MAX + 1], count;
	int64_t times[FILES_MAX + 1];
	struct store_transfer transfer;
};

static int set_up(void **state)
{
	struct world *w = must_zalloc(1, sizeof(*w));
	const struct ring_node nodes[] = { { .id = "n1", .weight_milli = 1000 }, { .id = "n2", .weight_milli = 1000 } };
	char path[96];

	snprintf(w->folder, sizeof(w->folder), "/tmp/heng-t-revise-XXXXXX");
	*state = w;
	if (!mkdtemp(w->folder) || ring_build(nodes, 2, &w->ring, &w->err) < 0)
		return -1;
	snprintf(path, sizeof(path), "%s/heng.db", w->folder);
	return store_sqlite_open(path, &w->store, &w->err);
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *ftw)
{
	(void)info, (void)type, (void)ftw;
	return remove(path);
}

static int tear_down(void **state)
{
	struct world *w = *state;

	w->store->ops->close(w->store);
	ring_free(&w->ring);
	(void)nftw(w->folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
	free(w);
	return 0;
}

/* The manifest of the world as it is now. */
static void scan(struct world *w, int *ret_fd, struct plan_facts *ret_facts)
{
	struct buf text = BUF_INIT(MIB);
	struct manifest_entry root = { .type = MANIFEST_DIR, .mode = 0755, .path = STR(".") };
	uint64_t total = 0;

	manifest_write_head(&text);
	manifest_write(&text, &root);
	for (uint64_t i = 1; i <= w->count; i++) {
		char name[32];
		struct manifest_entry entry = { .seq = i,
						.type = MANIFEST_FILE,
						.mode = 0644,
						.size_bytes = w->sizes[i],
						.mtime_ns = w->times[i] };

		snprintf(name, sizeof(name), "f%" PRIu64, 1000 + i);
		entry.path = str_from(name);
		total += entry.size_bytes;
		manifest_write(&text, &entry);
	}
	manifest_write_end(&text, w->count + 1, total);
	*ret_fd = memfd_create("manifest", MFD_CLOEXEC);
	assert_int_equal(write(*ret_fd, text.data, text.size), (ssize_t)text.size);
	assert_int_equal(plan_scan(*ret_fd, &manifest_limits_default, ret_facts, &w->err), 0);
	buf_fini(&text);
}

static void plan(struct world *w)
{
	struct store_transfer transfer = { .chunk_bytes = CUT, .digest = DIGEST_SHA256, .copies = 1 };
	struct plan_facts facts;
	int fd;

	scan(w, &fd, &facts);
	memcpy(transfer.id, transfer_id, sizeof(transfer_id));
	snprintf(transfer.user, sizeof(transfer.user), "ann");
	snprintf(transfer.batch, sizeof(transfer.batch), "q3");
	memcpy(transfer.manifest_digest, facts.digest, sizeof(facts.digest));
	transfer.manifest_crc32c = facts.crc32c;
	transfer.state = TRANSFER_DISTRIBUTING;
	assert_int_equal(plan_write(w->store, w->ring, fd, &facts, &transfer, NULL, &w->err), 0);
	assert_int_equal(w->store->ops->transfer_get(w->store, transfer_id, &w->transfer, &w->err), 0);
	close(fd);
}

static int revise(struct world *w, const struct plan_change *changes, size_t count)
{
	struct plan_facts facts;
	int result = plan_revised_facts(w->store, &w->transfer, changes, count, &facts, &w->err);

	if (result == 0)
		result = plan_revise(w->store, w->ring, &w->transfer, changes, count, &facts, NULL, &w->err);
	if (result < 0)
		return result;
	for (size_t i = 0; i < count; i++) {
		w->sizes[changes[i].seq] = changes[i].size_bytes;
		w->times[changes[i].seq] = changes[i].mtime_ns;
	}
	return w->store->ops->transfer_get(w->store, transfer_id, &w->transfer, &w->err);
}

/* --- what the store holds, read whole --- */

struct rows {
	struct store_object objects[FILES_MAX + 1];
	struct store_chunk chunks[8 * FILES_MAX];
	struct {
		uint64_t size_bytes, file_id, offset;
		bool has_digest;
	} entries[FILES_MAX + 1];
	size_t object_count, chunk_count, entry_count;
};

static int keep_object(void *owner, const struct store_object *object)
{
	struct rows *rows = owner;

	rows->objects[rows->object_count++] = *object;
	return 0;
}

static int keep_chunk(void *owner, const struct store_chunk *chunk)
{
	struct rows *rows = owner;

	assert_true(rows->chunk_count < COUNT_OF(rows->chunks));
	rows->chunks[rows->chunk_count++] = *chunk;
	return 0;
}

static int keep_entry(void *owner, const struct store_entry *entry)
{
	struct rows *rows = owner;

	assert_int_equal(entry->seq, rows->entry_count);
	rows->entries[rows->entry_count].size_bytes = entry->size_bytes;
	rows->entries[rows->entry_count].file_id = entry->file_id;
	rows->entries[rows->entry_count].offset = entry->object_offset;
	rows->entries[rows->entry_count++].has_digest = entry->digest[0] != '\0';
	return 0;
}

static void read_rows(struct world *w, struct rows *rows)
{
	const struct store_ops *ops = w->store->ops;

	memset(rows, 0, sizeof(*rows));
	assert_int_equal(ops->objects(w->store, transfer_id, 0, FILES_MAX + 1, keep_object, rows, &w->err), 0);
	assert_int_equal(
		ops->chunks(w->store, transfer_id, 0, 0, ~0u, COUNT_OF(rows->chunks), keep_chunk, rows, &w->err), 0);
	assert_int_equal(ops->entries(w->store, transfer_id, 0, w->count, keep_entry, rows, &w->err), 0);
	assert_int_equal(rows->entry_count, w->count + 1);
}

/* Every byte of every file lies in exactly one object, in order; every object is cut whole into chunks; every count is that of the rows. */
static void check_rows(struct world *w, const struct rows *rows)
{
	uint64_t counts[CHUNK_MERGED + 1] = { 0 }, told[CHUNK_MERGED + 1] = { 0 }, total = 0, chunk = 0,
				       stored_bytes = 0;
	struct plan_facts facts;
	int fd;

	for (size_t i = 0; i < rows->object_count; i++) {
		const struct store_object *object = &rows->objects[i];
		uint64_t at = 0;

		for (uint64_t seq = object->first_seq; seq <= object->last_seq; seq++) {
			if (w->sizes[seq] == 0)
				continue;
			assert_int_equal(rows->entries[seq].file_id, object->file_id);
			assert_int_equal(rows->entries[seq].offset, at);
			at += w->sizes[seq];
		}
		assert_int_equal(at, object->size_bytes);
		assert_true(w->sizes[object->first_seq] > 0 && w->sizes[object->last_seq] > 0);
		assert_true(object->is_pack ? at <= CUT : object->first_seq == object->last_seq && at > CUT / 8);
		assert_int_equal(object->chunk_count, (at + CUT - 1) / CUT);
		for (uint64_t index = 0; index < object->chunk_count; index++, chunk++) {
			assert_int_equal(rows->chunks[chunk].file_id, object->file_id);
			assert_int_equal(rows->chunks[chunk].chunk_index, index);
			assert_int_equal(rows->chunks[chunk].size_bytes,
					 at - index * CUT < CUT ? at - index * CUT : CUT);
			assert_true(rows->chunks[chunk].target_node[0] == 'n');
			counts[rows->chunks[chunk].state]++;
			if (rows->chunks[chunk].state == CHUNK_STORED)
				stored_bytes += rows->chunks[chunk].size_bytes;
		}
		total += at;
	}
	assert_int_equal(chunk, rows->chunk_count);
	for (uint64_t seq = 0; seq <= w->count; seq++) {
		assert_int_equal(rows->entries[seq].size_bytes, w->sizes[seq]);
		assert_true((rows->entries[seq].file_id == 0) == (w->sizes[seq] == 0));
	}
	assert_int_equal(w->store->ops->chunk_counts(w->store, transfer_id, told, &w->err), 0);
	assert_memory_equal(counts, told, sizeof(counts));
	assert_int_equal(w->transfer.object_count, rows->object_count);
	assert_int_equal(w->transfer.chunk_count, rows->chunk_count);
	assert_int_equal(w->transfer.total_bytes, total);
	assert_int_equal(w->transfer.stored_bytes, stored_bytes);
	/* And the same folder scanned anew is this very transfer. */
	scan(w, &fd, &facts);
	close(fd);
	assert_string_equal(w->transfer.manifest_digest, facts.digest);
	assert_int_equal(w->transfer.manifest_crc32c, facts.crc32c);
}

static enum err_code receipt_of(struct world *w, uint64_t file_id, uint64_t chunk_index, uint64_t size_bytes)
{
	struct store_receipt receipt = { .file_id = file_id, .chunk_index = chunk_index, .size_bytes = size_bytes };

	memcpy(receipt.transfer_id, transfer_id, sizeof(transfer_id));
	snprintf(receipt.digest, sizeof(receipt.digest), "%s", DIGEST);
	snprintf(receipt.node_id, sizeof(receipt.node_id), "n1");
	assert_int_equal(w->store->ops->receipts(w->store, &receipt, 1, &w->err), 0);
	return receipt.result;
}

static void store_all(struct world *w, const struct rows *rows)
{
	for (size_t i = 0; i < rows->chunk_count; i++) {
		if (rows->chunks[i].state == CHUNK_PENDING)
			assert_int_equal(receipt_of(w, rows->chunks[i].file_id, rows->chunks[i].chunk_index,
						    rows->chunks[i].size_bytes),
					 ERR_NONE);
	}
	assert_int_equal(w->store->ops->transfer_get(w->store, transfer_id, &w->transfer, &w->err), 0);
}

static size_t count_pending(const struct rows *rows)
{
	size_t count = 0;

	for (size_t i = 0; i < rows->chunk_count; i++)
		count += rows->chunks[i].state == CHUNK_PENDING;
	return count;
}

static void fill(struct world *w, const uint64_t *sizes, size_t count)
{
	w->count = count;
	for (size_t i = 0; i < count; i++)
		w->sizes[i + 1] = sizes[i];
	plan(w);
}

/* --- tests --- */

/* 1 is cut into chunks; 2, 4 and 5 are a pack with the empty 3 in its midst; 6 is cut; 7 is empty, beside any object. */
static const uint64_t shape[] = { 2000, 60, 0, 70, 80, 900, 0 };

static void each_kind_of_change(void **state)
{
	static const struct {
		uint64_t seq, size_bytes;
		size_t object_count, pending_count;
	} rows_of[] = {
		{ 1, 2000, 3, 3 },                   /* its content alone */
		{ 1, 700, 3, 1 },                    /* one chunk fewer, two fewer */
		{ 1, 5000, 3, 7 }, { 1, 100, 3, 1 }, /* a pack of its own now */
		{ 1, 0, 2, 0 },                      /* nothing to send of it any more */
		{ 2, 61, 3, 1 },                     /* its pack again, a byte longer */
		{ 4, 0, 3, 1 },                      /* its pack without it */
		{ 4, 1000, 5, 4 },                   /* too large for the pack: it parts it in two */
		{ 3, 5, 3, 1 },                      /* its first bytes, within the pack's range */
		{ 7, 5, 4, 1 },                      /* and outside any */
		{ 7, 1700, 4, 3 }, { 7, 0, 3, 0 },   /* an empty file that was touched */
	};

	for (size_t i = 0; i < COUNT_OF(rows_of); i++) {
		struct rows *rows = must_zalloc(1, sizeof(*rows));
		struct plan_change change = { rows_of[i].seq, rows_of[i].size_bytes, 77, 0644 };

		if (i > 0)
			assert_int_equal(set_up(state), 0);
		struct world *w = *state;
		fill(w, shape, COUNT_OF(shape));
		read_rows(w, rows);
		check_rows(w, rows);
		store_all(w, rows);
		assert_int_equal(revise(w, &change, 1), 0);
		assert_int_equal(w->transfer.version, 2);
		read_rows(w, rows);
		check_rows(w, rows);
		assert_int_equal(rows->object_count, rows_of[i].object_count);
		assert_int_equal(count_pending(rows), rows_of[i].pending_count);
		free(rows);
		if (i + 1 < COUNT_OF(rows_of))
			assert_int_equal(tear_down(state), 0);
	}
}

static void an_old_chunk_is_never_taken_for_a_new_one(void **state)
{
	struct world *w = *state;
	struct rows *rows = must_zalloc(1, sizeof(*rows));
	struct plan_change gone = { 6, 0, 5, 0644 }, back = { 6, 900, 6, 0644 };

	fill(w, shape, COUNT_OF(shape));
	assert_int_equal(receipt_of(w, 3, 0, 800), ERR_NONE);
	assert_int_equal(revise(w, &gone, 1), 0);
	assert_int_equal(receipt_of(w, 3, 1, 100), ERR_NO_CHUNK);
	/* The largest id is gone from the plan, and is not given again. */
	assert_int_equal(revise(w, &back, 1), 0);
	read_rows(w, rows);
	check_rows(w, rows);
	const uint64_t first = rows->entries[6].file_id;
	assert_true(first > 3);
	assert_int_equal(revise(w, &gone, 1), 0);
	assert_int_equal(revise(w, &back, 1), 0);
	read_rows(w, rows);
	assert_true(rows->entries[6].file_id > first);
	assert_int_equal(receipt_of(w, 3, 0, 800), ERR_NO_CHUNK);
	assert_int_equal(receipt_of(w, first, 0, 800), ERR_NO_CHUNK);
	assert_int_equal(receipt_of(w, rows->entries[6].file_id, 0, 800), ERR_NONE);
	free(rows);
}

static void only_changed_files_lose_their_digest(void **state)
{
	struct world *w = *state;
	struct rows *rows = must_zalloc(1, sizeof(*rows));
	const uint64_t seqs[] = { 1, 2, 3, 4, 5 };
	char digests[5][DIGEST_HEX_SIZE];
	struct plan_change change = { 4, 71, 5, 0600 };

	fill(w, shape, COUNT_OF(shape));
	for (size_t i = 0; i < 5; i++)
		snprintf(digests[i], DIGEST_HEX_SIZE, "%s", DIGEST);
	assert_int_equal(w->store->ops->bind_digests(w->store, transfer_id, seqs,
						     (const char(*)[DIGEST_HEX_SIZE])digests, 5, &w->err),
			 0);
	assert_int_equal(revise(w, &change, 1), 0);
	read_rows(w, rows);
	for (size_t i = 1; i <= 5; i++)
		assert_int_equal(rows->entries[i].has_digest, i != 4);
	free(rows);
}

/* Two at once: the second finds that the transfer moved. And not while it is merged. */
static void one_at_a_time(void **state)
{
	struct world *w = *state;
	struct rows *rows = must_zalloc(1, sizeof(*rows));
	struct plan_change change = { 1, 10, 5, 0644 };
	struct plan_facts facts;
	struct store_transfer stale;

	fill(w, shape, COUNT_OF(shape));
	stale = w->transfer;
	assert_int_equal(revise(w, &change, 1), 0);
	assert_int_equal(plan_revised_facts(w->store, &stale, &change, 1, &facts, &w->err), 0);
	assert_int_equal(plan_revise(w->store, w->ring, &stale, &change, 1, &facts, NULL, &w->err),
			 -ERR_VERSION_CONFLICT);
	read_rows(w, rows);
	check_rows(w, rows);
	store_all(w, rows);
	assert_int_equal(w->store->ops->transfer_move(w->store, &w->transfer, TRANSFER_MERGING, "", true, 5, &w->err),
			 0);
	assert_int_equal(revise(w, &change, 1), -ERR_VERSION_CONFLICT);
	free(rows);
}

static void what_is_not_there_is_refused(void **state)
{
	struct world *w = *state;
	struct plan_change none = { 8, 1, 5, 0644 }, folder = { 0, 1, 5, 0755 };

	fill(w, shape, COUNT_OF(shape));
	assert_int_equal(revise(w, &none, 1), -ERR_BAD_REQUEST);
	assert_int_equal(revise(w, &folder, 1), -ERR_BAD_REQUEST);
}

/* A new scan of the folder, compared with what was planned. */
static void a_new_scan_tells_what_changed(void **state)
{
	struct world *w = *state;
	struct rows *rows = must_zalloc(1, sizeof(*rows));
	struct plan_change *changes = must_zalloc(PLAN_CHANGES_MAX, sizeof(*changes));
	struct plan_facts facts;
	size_t count = 0;
	int fd;

	fill(w, shape, COUNT_OF(shape));
	w->sizes[4] = 90;
	w->times[7] = 9;
	scan(w, &fd, &facts);
	assert_int_equal(plan_differences(w->store, &w->transfer, fd, &facts, changes, &count, &w->err), 1);
	close(fd);
	assert_int_equal(count, 2);
	assert_int_equal(changes[0].seq, 4);
	assert_int_equal(changes[0].size_bytes, 90);
	assert_int_equal(changes[1].seq, 7);
	assert_int_equal(changes[1].mtime_ns, 9);
	assert_int_equal(plan_revise(w->store, w->ring, &w->transfer, changes, count, &facts, NULL, &w->err), 0);
	assert_int_equal(w->store->ops->transfer_get(w->store, transfer_id, &w->transfer, &w->err), 0);
	read_rows(w, rows);
	check_rows(w, rows);
	/* Now they are the same; and one entry more is another folder. */
	scan(w, &fd, &facts);
	assert_int_equal(plan_differences(w->store, &w->transfer, fd, &facts, changes, &count, &w->err), 0);
	close(fd);
	w->count++;
	scan(w, &fd, &facts);
	assert_int_equal(plan_differences(w->store, &w->transfer, fd, &facts, changes, &count, &w->err), 0);
	close(fd);
	free(changes);
	free(rows);
}

/* Any folders, any changes, one after the other, with what was stored before: the seed is printed. */
static void random_changes(void **state)
{
	struct rng rng;
	uint64_t seed = (uint64_t)clock_wall_us();
	struct world *w = *state;
	struct rows *rows = must_zalloc(1, sizeof(*rows));

	print_message("seed %" PRIu64 "\n", seed);
	rng_seed(&rng, seed);
	w->count = 120;
	for (uint64_t i = 1; i <= w->count; i++)
		w->sizes[i] = rng_below(&rng, 4) == 0 ? 0 : rng_below(&rng, rng_below(&rng, 8) == 0 ? 4000 : 160);
	plan(w);
	for (unsigned round = 0; round < 25; round++) {
		struct plan_change changes[FILES_MAX];
		size_t count = 0;

		for (uint64_t seq = 1; seq <= w->count; seq++) {
			if (rng_below(&rng, 12) != 0)
				continue;
			uint64_t kind = rng_below(&rng, 4);

			changes[count++] = (struct plan_change){ seq,
								 kind == 0   ? 0
								 : kind == 1 ? w->sizes[seq]
									     : rng_below(&rng, kind == 2 ? 160 : 4000),
								 (int64_t)round, 0644 };
		}
		if (count == 0)
			continue;
		assert_int_equal(revise(w, changes, count), 0);
		read_rows(w, rows);
		check_rows(w, rows);
		if (rng_below(&rng, 2) == 0)
			store_all(w, rows);
	}
	free(rows);
}

static void lines(void **state)
{
	static const struct {
		const char *text;
		int result;
		size_t count;
	} rows[] = {
		{ "1 2 3 644\n", 0, 1 },
		{ "1 0 -3 0\n9 18446744073709551615 9223372036854775807 7777\n", 0, 2 },
		{ "", -ERR_BAD_REQUEST, 0 },
		{ "\n", -ERR_BAD_REQUEST, 0 },
		{ "1 2 3 644", -ERR_BAD_REQUEST, 0 },
		{ "1 2 3\n", -ERR_BAD_REQUEST, 0 },
		{ "1 2 3 644 5\n", -ERR_BAD_REQUEST, 0 },
		{ "1 2 3 10000\n", -ERR_BAD_REQUEST, 0 },
		{ "1 2 3 648\n", -ERR_BAD_REQUEST, 0 },
		{ "1 -2 3 644\n", -ERR_BAD_REQUEST, 0 },
		{ "18446744073709551616 2 3 644\n", -ERR_BAD_REQUEST, 0 },
		{ "2 2 3 644\n2 2 3 644\n", -ERR_BAD_REQUEST, 0 },
		{ "2 2 3 644\n1 2 3 644\n", -ERR_BAD_REQUEST, 0 },
	};
	struct plan_change *changes = must_zalloc(PLAN_CHANGES_MAX, sizeof(*changes));
	struct buf many = BUF_INIT(MIB);
	struct err err;
	size_t count = 0;

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		count = 0;
		assert_int_equal(plan_changes_parse(str_from(rows[i].text), changes, &count, &err), rows[i].result);
		assert_int_equal(count, rows[i].count);
	}
	for (unsigned i = 0; i < PLAN_CHANGES_MAX; i++)
		buf_printf(&many, "%u 1 1 644\n", i);
	assert_int_equal(plan_changes_parse(buf_str(&many), changes, &count, &err), 0);
	assert_int_equal(count, PLAN_CHANGES_MAX);
	buf_printf(&many, "%u 1 1 644\n", PLAN_CHANGES_MAX);
	assert_int_equal(plan_changes_parse(buf_str(&many), changes, &count, &err), -ERR_BAD_REQUEST);
	buf_fini(&many);
	free(changes);
}

static void copy_file(const char *folder, const char *from, const char *to)
{
	char from_path[96], to_path[96];
	struct buf text = BUF_INIT(64 * MIB);

	snprintf(from_path, sizeof(from_path), "%s/%s", folder, from);
	snprintf(to_path, sizeof(to_path), "%s/%s", folder, to);
	assert_int_equal(fs_read_file(from_path, 64 * MIB, &text, NULL), 0);
	assert_int_equal(fs_replace_file(to_path, buf_str(&text), 0600, NULL), 0);
	buf_fini(&text);
}

static void open_again(struct world *w)
{
	char path[96];

	snprintf(path, sizeof(path), "%s/heng.db", w->folder);
	assert_int_equal(store_sqlite_open(path, &w->store, &w->err), 0);
	assert_int_equal(w->store->ops->transfer_get(w->store, transfer_id, &w->transfer, &w->err), 0);
}

/* Nodes have chunks by the ids of a revision that the tables, put back from an older copy, have never heard of. */
static void ids_are_new_after_an_old_copy_too(void **state)
{
	struct world *w = *state;
	struct rows *rows = must_zalloc(1, sizeof(*rows));
	struct plan_change first = { 6, 801, 5, 0644 }, second = { 6, 802, 6, 0644 };

	fill(w, shape, COUNT_OF(shape));
	w->store->ops->close(w->store);
	copy_file(w->folder, "heng.db", "copy.db");
	open_again(w);
	assert_int_equal(revise(w, &first, 1), 0);
	read_rows(w, rows);
	const uint64_t given = rows->objects[rows->object_count - 1].file_id;
	w->store->ops->close(w->store);
	copy_file(w->folder, "copy.db", "heng.db");
	open_again(w);
	assert_int_equal(revise(w, &second, 1), 0);
	read_rows(w, rows);
	check_rows(w, rows);
	assert_true(rows->entries[6].file_id > given);
	free(rows);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		CASE(each_kind_of_change),
		CASE(an_old_chunk_is_never_taken_for_a_new_one),
		CASE(ids_are_new_after_an_old_copy_too),
		CASE(only_changed_files_lose_their_digest),
		CASE(one_at_a_time),
		CASE(what_is_not_there_is_refused),
		CASE(a_new_scan_tells_what_changed),
		CASE(random_changes),
		cmocka_unit_test(lines),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
