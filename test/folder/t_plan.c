/* Planning against a store that only remembers what it was told. */
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

#define CHUNK    (64 * KIB)
#define ROWS_MAX 4096
#define TRANSFER "01ARZ3NDEKTSV4RRFFQ69G5FAV"

/* --- a store that remembers --- */

struct told_entry {
	uint64_t seq, size_bytes, file_id, object_offset;
	char type;
	char path[64];
};
struct memory {
	struct store store;
	struct told_entry entries[ROWS_MAX];
	struct store_object objects[ROWS_MAX];
	struct store_chunk chunks[ROWS_MAX];
	size_t entry_count, object_count, chunk_count;
	int begun, committed, aborted;
	size_t fail_at_chunk; /* 1..: that chunk cannot be written */
};
static struct memory memory;

static int told_begin(struct store *store, const struct store_transfer *transfer, struct store_plan **ret,
		      struct err *err)
{
	(void)transfer;
	(void)err;
	memory.begun++;
	*ret = (struct store_plan *)(void *)store;
	return 0;
}
static int told_entry(struct store_plan *plan, const struct store_entry *entry, struct err *err)
{
	struct told_entry *to = &memory.entries[memory.entry_count++];

	(void)plan;
	(void)err;
	to->seq = entry->seq;
	to->type = entry->type;
	to->size_bytes = entry->size_bytes;
	to->file_id = entry->file_id;
	to->object_offset = entry->object_offset;
	snprintf(to->path, sizeof(to->path), "%.*s", STR_ARG(entry->path));
	return 0;
}
static int told_object(struct store_plan *plan, const struct store_object *object, struct err *err)
{
	(void)plan;
	(void)err;
	memory.objects[memory.object_count++] = *object;
	return 0;
}
static int told_chunk(struct store_plan *plan, const struct store_chunk *chunk, struct err *err)
{
	(void)plan;
	if (memory.chunk_count + 1 == memory.fail_at_chunk)
		return err_set(err, ERR_STORE, "made to fail");
	memory.chunks[memory.chunk_count++] = *chunk;
	return 0;
}
static int told_commit(struct store_plan **plan, const struct store_transfer *transfer, struct err *err)
{
	(void)transfer;
	(void)err;
	memory.committed++;
	*plan = NULL;
	return 0;
}
static void told_abort(struct store_plan **plan)
{
	memory.aborted++;
	*plan = NULL;
}
static const struct store_ops told_ops = {
	.plan_begin = told_begin,
	.plan_entry = told_entry,
	.plan_object = told_object,
	.plan_chunk = told_chunk,
	.plan_commit = told_commit,
	.plan_abort = told_abort,
};

static int set_up(void **state)
{
	(void)state;
	memset(&memory, 0, sizeof(memory));
	memory.store.ops = &told_ops;
	return 0;
}

/* --- manifests --- */

static int spool(struct str text)
{
	int fd = memfd_create("manifest", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text.data, text.size), (ssize_t)text.size);
	return fd;
}

/* A folder of files named f0, f1, ... of these sizes; a negative size is a folder. */
static int spool_sizes(const int64_t *sizes, size_t count)
{
	struct buf text = BUF_INIT(MIB);
	struct manifest_entry root = { .type = MANIFEST_DIR, .mode = 0755, .path = STR(".") };
	uint64_t total = 0;
	int fd;

	manifest_write_head(&text);
	manifest_write(&text, &root);
	for (size_t i = 0; i < count; i++) {
		char name[32];
		struct manifest_entry entry = { .seq = i + 1, .mode = 0644, .type = MANIFEST_FILE };

		snprintf(name, sizeof(name), "f%zu", i);
		entry.path = str_from(name);
		if (sizes[i] < 0)
			entry.type = MANIFEST_DIR;
		else
			entry.size_bytes = (uint64_t)sizes[i];
		total += entry.size_bytes;
		manifest_write(&text, &entry);
	}
	manifest_write_end(&text, count + 1, total);
	fd = spool(buf_str(&text));
	buf_fini(&text);
	return fd;
}

static struct ring *ring_of(size_t count)
{
	static const char *const ids[] = { "n1", "n2", "n3", "n4" };
	struct ring_node nodes[4] = { 0 };
	struct ring *ring = NULL;

	for (size_t i = 0; i < count; i++)
		nodes[i] = (struct ring_node){ .id = ids[i], .weight_milli = 1000 };
	assert_int_equal(ring_build(nodes, count, &ring, NULL), 0);
	return ring;
}

static struct store_transfer transfer_of(uint64_t chunk_bytes)
{
	struct store_transfer transfer = { .chunk_bytes = chunk_bytes };

	memcpy(transfer.id, TRANSFER, sizeof(TRANSFER));
	return transfer;
}

/* Scans and plans; returns plan_write's result. */
static int plan_fd(int fd, size_t node_count, struct store_transfer *transfer, bool is_dry, struct err *err)
{
	struct ring *ring = ring_of(node_count);
	struct plan_facts facts;
	int result = plan_scan(fd, &manifest_limits_default, &facts, err);

	assert_int_equal(result, 0);
	result = plan_write(is_dry ? NULL : &memory.store, ring, fd, &facts, transfer, NULL, err);
	ring_free(&ring);
	close(fd);
	return result;
}

/* --- what a manifest says --- */

static void scan_counts(void **state)
{
	const int64_t sizes[] = { 0, -1, 5, 1000000, 7 };
	int fd = spool_sizes(sizes, COUNT_OF(sizes));
	struct plan_facts facts;

	(void)state;
	assert_int_equal(plan_scan(fd, &manifest_limits_default, &facts, NULL), 0);
	assert_int_equal(facts.entry_count, 6);
	assert_int_equal(facts.file_count, 4);
	assert_int_equal(facts.total_bytes, 1000012);
	assert_int_equal(facts.largest_file_bytes, 1000000);
	assert_int_equal(strlen(facts.digest), 32);
	close(fd);
}

static void scan_refuses(void **state)
{
	static const struct {
		const char *text;
		enum err_code code;
		const char *word; /* must be in the message */
	} rows[] = {
		{ "", ERR_MANIFEST_BAD, "" },
		{ "heng-manifest 1\nD 755 0 .\n", ERR_MANIFEST_BAD, "" },
		{ "heng-manifest 1\nD 755 0 .\nend 2 0\n", ERR_MANIFEST_BAD, "" },
		{ "heng-manifest 1\nD 755 0 .\nF 644 0 5 ../out\nend 2 5\n", ERR_ENTRY_REFUSED, "../out" },
		{ "heng-manifest 1\nD 755 0 .\nF 644 0 5 a\nF 644 0 5 a\nend 3 10\n", ERR_ENTRY_REFUSED, "a" },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct err err = ERR_INIT;
		struct plan_facts facts;
		int fd = spool(str_from(rows[i].text));

		assert_int_equal(plan_scan(fd, &manifest_limits_default, &facts, &err), -(int)rows[i].code);
		assert_non_null(strstr(err.text, rows[i].word));
		close(fd);
	}
}

/* --- packing and cutting --- */

/* Every file's bytes lie in its object without gap or overlap, every object's in its chunks, and the counts agree. */
static void check_whole(const struct store_transfer *transfer)
{
	uint64_t file_bytes = 0, chunk_bytes = 0;
	size_t chunk = 0;

	for (size_t i = 0; i < memory.object_count; i++) {
		const struct store_object *object = &memory.objects[i];
		uint64_t end = 0, cut = 0;

		assert_int_equal(object->file_id, i + 1);
		for (size_t j = 0; j < memory.entry_count; j++) {
			if (memory.entries[j].file_id != object->file_id)
				continue;
			assert_int_equal(memory.entries[j].object_offset, end);
			assert_in_range(memory.entries[j].seq, object->first_seq, object->last_seq);
			end += memory.entries[j].size_bytes;
		}
		assert_int_equal(end, object->size_bytes);
		for (uint64_t index = 0; index < object->chunk_count; index++, chunk++) {
			assert_int_equal(memory.chunks[chunk].file_id, object->file_id);
			assert_int_equal(memory.chunks[chunk].chunk_index, index);
			assert_int_equal(memory.chunks[chunk].state, CHUNK_PENDING);
			assert_true(memory.chunks[chunk].size_bytes > 0);
			assert_true(memory.chunks[chunk].size_bytes <= transfer->chunk_bytes);
			assert_true(memory.chunks[chunk].target_node[0] == 'n');
			cut += memory.chunks[chunk].size_bytes;
		}
		assert_int_equal(cut, object->size_bytes);
		if (object->is_pack)
			assert_int_equal(object->chunk_count, 1);
		chunk_bytes += cut;
	}
	for (size_t i = 0; i < memory.entry_count; i++) {
		file_bytes += memory.entries[i].size_bytes;
		assert_int_equal(memory.entries[i].file_id != 0, memory.entries[i].size_bytes > 0);
	}
	assert_int_equal(chunk, memory.chunk_count);
	assert_int_equal(file_bytes, transfer->total_bytes);
	assert_int_equal(chunk_bytes, transfer->total_bytes);
	assert_int_equal(transfer->entry_count, memory.entry_count);
	assert_int_equal(transfer->object_count, memory.object_count);
	assert_int_equal(transfer->chunk_count, memory.chunk_count);
	assert_int_equal(transfer->pack_bytes, plan_pack_bytes(transfer->chunk_bytes));
}

static void cuts(void **state)
{
	enum { PACK = CHUNK / 8 };
	static const struct {
		int64_t sizes[16];
		size_t count;
		uint64_t objects, chunks;
	} rows[] = {
		{ { 0 }, 0, 0, 0 },              /* an empty folder */
		{ { 0, -1, 0 }, 3, 0, 0 },       /* nothing but empty files */
		{ { 1 }, 1, 1, 1 },              /* a pack of one */
		{ { PACK }, 1, 1, 1 },           /* the largest small file */
		{ { PACK + 1 }, 1, 1, 1 },       /* the smallest large one */
		{ { CHUNK }, 1, 1, 1 },          /* an exact chunk: no empty one follows */
		{ { CHUNK + 1 }, 1, 1, 2 },      /* a last chunk of one byte */
		{ { 3 * CHUNK }, 1, 1, 3 },      /* an exact multiple */
		{ { 1, 2, 3 }, 3, 1, 1 },        /* one pack */
		{ { 1, 0, -1, 3 }, 4, 1, 1 },    /* entries without bytes do not close it */
		{ { 1, PACK + 1, 3 }, 3, 3, 3 }, /* a large file does */
		{ { PACK, PACK, PACK, PACK, PACK, PACK, PACK, PACK }, 8, 1, 1 },    /* exactly full */
		{ { PACK, PACK, PACK, PACK, PACK, PACK, PACK, PACK, 1 }, 9, 2, 2 }, /* one byte too many */
		{ { PACK, PACK, PACK, PACK, PACK, PACK, PACK, 1, PACK }, 9, 2, 2 },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct store_transfer transfer = transfer_of(CHUNK);
		struct err err = ERR_INIT;

		set_up(NULL);
		assert_int_equal(plan_fd(spool_sizes(rows[i].sizes, rows[i].count), 3, &transfer, false, &err), 0);
		assert_int_equal(memory.committed, 1);
		assert_int_equal(memory.aborted, 0);
		assert_int_equal(memory.object_count, rows[i].objects);
		assert_int_equal(memory.chunk_count, rows[i].chunks);
		check_whole(&transfer);
	}
}

static void packs_are_marked(void **state)
{
	const int64_t sizes[] = { 1, CHUNK, 2 };
	struct store_transfer transfer = transfer_of(CHUNK);

	(void)state;
	assert_int_equal(plan_fd(spool_sizes(sizes, 3), 2, &transfer, false, NULL), 0);
	assert_true(memory.objects[0].is_pack);
	assert_false(memory.objects[1].is_pack);
	assert_true(memory.objects[2].is_pack);
	assert_int_equal(memory.objects[1].first_seq, 2);
	assert_int_equal(memory.objects[1].last_seq, 2);
	check_whole(&transfer);
}

/* --- targets --- */

static void load_is_bounded_and_spread(void **state)
{
	struct store_transfer transfer = transfer_of(CHUNK);
	const int64_t sizes[] = { 300 * (int64_t)CHUNK };
	uint64_t held[5] = { 0 };

	(void)state;
	assert_int_equal(plan_fd(spool_sizes(sizes, 1), 4, &transfer, false, NULL), 0);
	for (size_t i = 0; i < memory.chunk_count; i++)
		held[memory.chunks[i].target_node[1] - '0'] += memory.chunks[i].size_bytes;
	for (int n = 1; n <= 4; n++) {
		assert_true(held[n] > 0);
		/* A quarter of 300, and a quarter more, and at most a chunk over that. */
		assert_true(held[n] <= (75 + 19 + 1) * CHUNK);
	}
}

static void same_plan_twice(void **state)
{
	const int64_t sizes[] = { 9 * (int64_t)CHUNK, 1, 2, 5 * (int64_t)CHUNK, 7 };
	struct store_transfer transfer = transfer_of(CHUNK);
	struct memory *first = malloc(sizeof(*first));

	(void)state;
	assert_int_equal(plan_fd(spool_sizes(sizes, COUNT_OF(sizes)), 3, &transfer, false, NULL), 0);
	*first = memory;
	set_up(NULL);
	assert_int_equal(plan_fd(spool_sizes(sizes, COUNT_OF(sizes)), 3, &transfer, false, NULL), 0);
	assert_int_equal(first->chunk_count, memory.chunk_count);
	for (size_t i = 0; i < memory.chunk_count; i++)
		assert_string_equal(first->chunks[i].target_node, memory.chunks[i].target_node);
	free(first);
}

static void keys_are_the_documented_text(void **state)
{
	static const char plain[] = TRANSFER " dir/a b 7", pack[] = TRANSFER " 12 0";

	(void)state;
	assert_int_equal(plan_chunk_key(TRANSFER, STR("dir/a b"), 12, false, 7),
			 ring_hash_key(plain, sizeof(plain) - 1));
	assert_int_equal(plan_chunk_key(TRANSFER, STR("ignored"), 12, true, 0), ring_hash_key(pack, sizeof(pack) - 1));
}

static void no_nodes(void **state)
{
	const int64_t sizes[] = { 1 };
	struct store_transfer transfer = transfer_of(CHUNK);
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(plan_fd(spool_sizes(sizes, 1), 0, &transfer, false, &err), -ERR_NO_NODES);
	assert_int_equal(memory.begun, 0);
}

static void dry_run_counts_only(void **state)
{
	const int64_t sizes[] = { 9 * (int64_t)CHUNK, 1, 2 };
	struct store_transfer transfer = transfer_of(CHUNK);

	(void)state;
	assert_int_equal(plan_fd(spool_sizes(sizes, 3), 3, &transfer, true, NULL), 0);
	assert_int_equal(memory.begun, 0);
	assert_int_equal(transfer.chunk_count, 10);
	assert_int_equal(transfer.object_count, 2);
	assert_int_equal(transfer.file_count, 3);
	assert_int_equal(transfer.entry_count, 4);
}

/* Whatever fails half-way, the transaction is given up and never committed. */
static void a_failure_aborts(void **state)
{
	const int64_t sizes[] = { 3 * (int64_t)CHUNK, 1, 2 };

	(void)state;
	for (size_t at = 1; at <= 4; at++) {
		struct store_transfer transfer = transfer_of(CHUNK);
		struct err err = ERR_INIT;

		set_up(NULL);
		memory.fail_at_chunk = at;
		assert_int_equal(plan_fd(spool_sizes(sizes, 3), 3, &transfer, false, &err), -ERR_STORE);
		assert_int_equal(memory.committed, 0);
		assert_int_equal(memory.aborted, 1);
	}
}

/* The facts come from the first reading: a file that is another one at the second must not become a plan. */
static void a_changed_spool_aborts(void **state)
{
	const int64_t sizes[] = { 5, 6 };
	struct store_transfer transfer = transfer_of(CHUNK);
	int fd = spool_sizes(sizes, 2);
	struct ring *ring = ring_of(2);
	struct plan_facts facts;

	(void)state;
	assert_int_equal(plan_scan(fd, &manifest_limits_default, &facts, NULL), 0);
	facts.digest[0] = facts.digest[0] == '0' ? '1' : '0';
	assert_int_equal(plan_write(&memory.store, ring, fd, &facts, &transfer, NULL, NULL), -ERR_MANIFEST_CRC);
	assert_int_equal(memory.committed, 0);
	assert_int_equal(memory.aborted, 1);
	ring_free(&ring);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(scan_counts, set_up),
		cmocka_unit_test_setup(scan_refuses, set_up),
		cmocka_unit_test_setup(cuts, set_up),
		cmocka_unit_test_setup(packs_are_marked, set_up),
		cmocka_unit_test_setup(load_is_bounded_and_spread, set_up),
		cmocka_unit_test_setup(same_plan_twice, set_up),
		cmocka_unit_test_setup(keys_are_the_documented_text, set_up),
		cmocka_unit_test_setup(no_nodes, set_up),
		cmocka_unit_test_setup(dry_run_counts_only, set_up),
		cmocka_unit_test_setup(a_failure_aborts, set_up),
		cmocka_unit_test_setup(a_changed_spool_aborts, set_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
