/* The world of the store's tests: a database in a folder of its own, rows to fill it with, and the list of drivers. */
#ifndef HENG_TEST_PLUG_STORE_WORLD_H
#define HENG_TEST_PLUG_STORE_WORLD_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <ftw.h>
#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plug/store.h"

#define COUNT_STATES (CHUNK_MERGED + 1)
#define ALL_STATES   ~0u

struct driver {
	const char *name;
	int (*open)(const char *path, struct store **ret_store, struct err *err);
	bool is_server;
};
static const struct driver drivers[] = {
	{ "sqlite", store_sqlite_open, false },
	{ "postgresql", store_pg_open, true },
};

struct world {
	const struct driver *driver;
	char folder[64], path[256]; /* path: a file, or a URL that leads into the schema `space` */
	char space[64];
	struct store *store;
	struct err err;
};

/* The server of HENG_TEST_PG, or one of this program's own: "" until it is needed. */
static char pg_folder[64], pg_url[128];

static inline void pg_stop(void)
{
	char command[128];

	(void)snprintf(command, sizeof(command), "test/pg_server stop %s", pg_folder);
	if (system(command) != 0)
		print_error("%s failed\n", command);
}

static inline const char *pg_server(void)
{
	const char *given = getenv("HENG_TEST_PG");
	char command[128];
	FILE *pipe;

	if (given || pg_url[0] != '\0')
		return given ? given : pg_url;
	(void)snprintf(pg_folder, sizeof(pg_folder), "/tmp/heng-t-pg-XXXXXX");
	if (!mkdtemp(pg_folder))
		return "";
	(void)snprintf(command, sizeof(command), "test/pg_server start %s", pg_folder);
	pipe = popen(command, "r");
	if (!pipe || !fgets(pg_url, sizeof(pg_url), pipe))
		pg_url[0] = '\0';
	if (pipe)
		(void)pclose(pipe);
	pg_url[strcspn(pg_url, "\n")] = '\0';
	(void)atexit(pg_stop);
	return pg_url;
}

/* The one value that a statement gives, as a number; -1: none. */
static inline int64_t UNUSED pg_ask_number(const char *url, const char *text)
{
	PGconn *pg = PQconnectdb(url);
	int64_t value = -1;
	PGresult *result = PQexec(pg, "SET client_min_messages='warning'");

	PQclear(result);
	result = PQexec(pg, text);
	if (PQresultStatus(result) == PGRES_TUPLES_OK && PQntuples(result) > 0)
		value = strtoll(PQgetvalue(result, 0, 0), NULL, 10);
	else if (PQresultStatus(result) != PGRES_COMMAND_OK && PQresultStatus(result) != PGRES_TUPLES_OK)
		print_error("%s: %s\n", text, PQerrorMessage(pg));
	PQclear(result);
	PQfinish(pg);
	return value;
}

static const char UNUSED id_a[] = "01ARZ3NDEKTSV4RRFFQ69G5FAA";
static const char UNUSED id_b[] = "01ARZ3NDEKTSV4RRFFQ69G5FAB";
static const char UNUSED id_none[] = "01ARZ3NDEKTSV4RRFFQ69G5FZZ";
static const char UNUSED digest_1[] = "1111111111111111111111111111111111111111111111111111111111111111";
static const char UNUSED digest_2[] = "2222222222222222222222222222222222222222222222222222222222222222";

static inline void copy_text(char *target, size_t size, const char *text) { (void)snprintf(target, size, "%s", text); }

static inline int world_open(struct world *w) { return w->driver->open(w->path, &w->store, &w->err); }

static inline int set_up(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	if (!w)
		return -1;
	w->driver = *state ? *state : &drivers[0];
	(void)snprintf(w->folder, sizeof(w->folder), "/tmp/heng-t-store-XXXXXX");
	if (!mkdtemp(w->folder))
		return -1;
	*state = w;
	(void)snprintf(w->path, sizeof(w->path), "%s/heng.db", w->folder);
	if (w->driver->is_server) {
		char text[128];

		/* Of its own for each test, named by the folder. */
		(void)snprintf(w->space, sizeof(w->space), "t_%s", strrchr(w->folder, '-') + 1);
		(void)snprintf(text, sizeof(text), "CREATE SCHEMA \"%s\"", w->space);
		(void)pg_ask_number(pg_server(), text);
		(void)snprintf(w->path, sizeof(w->path), "%s&options=-csearch_path%%3D%%22%s%%22", pg_server(),
			       w->space);
	}
	if (world_open(w) == 0)
		return 0;
	print_error("%s\n", w->err.text);
	return -1;
}

static inline int remove_one(const char *path, const struct stat *info, int type, struct FTW *ftw)
{
	(void)info, (void)type, (void)ftw;
	return remove(path);
}

static inline int tear_down(void **state)
{
	struct world *w = *state;

	if (w->store)
		w->store->ops->close(w->store);
	(void)nftw(w->folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
	if (w->driver->is_server) {
		char text[128];

		(void)snprintf(text, sizeof(text), "DROP SCHEMA \"%s\" CASCADE", w->space);
		(void)pg_ask_number(pg_server(), text);
	}
	free(w);
	return 0;
}

static inline void reopen(struct world *w)
{
	w->store->ops->close(w->store);
	w->store = NULL;
	assert_int_equal(world_open(w), 0);
}

static inline struct store_transfer transfer_make(const char *id, const char *batch, uint64_t object_count,
						  uint64_t chunks_each)
{
	struct store_transfer t = { .digest = DIGEST_SHA256,
				    .chunk_bytes = 100,
				    .pack_bytes = 50,
				    .entry_count = object_count + 1,
				    .file_count = object_count,
				    .object_count = object_count,
				    .chunk_count = object_count * chunks_each,
				    .total_bytes = object_count * chunks_each * 100,
				    .manifest_crc32c = 0xfedcba98,
				    .priority = -3,
				    .created_wall_us = 1000,
				    .updated_wall_us = 1001 };

	copy_text(t.id, sizeof(t.id), id);
	copy_text(t.user, sizeof(t.user), "clerk");
	copy_text(t.batch, sizeof(t.batch), batch);
	copy_text(t.source, sizeof(t.source), "host:/srv/q3");
	copy_text(t.manifest_digest, sizeof(t.manifest_digest), "00112233445566778899aabbccddeeff");
	copy_text(t.client_addr, sizeof(t.client_addr), "10.0.0.9:4000");
	copy_text(t.seal, sizeof(t.seal), "aes:0123456789abcdef");
	return t;
}

/* A folder entry, then one file an object. Paths hold bytes that are no UTF-8. */
static inline struct store_plan *plan_rows(struct world *w, const struct store_transfer *t, uint64_t chunks_each)
{
	const struct store_ops *ops = w->store->ops;
	struct store_plan *plan = NULL;
	struct store_entry folder = { .seq = 1, .type = 'D', .mode = 0755, .mtime_ns = -5, .path = STR("d\xff") };

	assert_int_equal(ops->plan_begin(w->store, t, &plan, &w->err), 0);
	assert_int_equal(ops->plan_entry(plan, &folder, &w->err), 0);
	for (uint64_t i = 1; i <= t->object_count; i++) {
		struct store_entry entry = { .seq = i + 1,
					     .type = 'F',
					     .mode = 0644,
					     .mtime_ns = 1700000000123456789,
					     .size_bytes = chunks_each * 100,
					     .path = STR("d\xff/f"),
					     .file_id = i,
					     .object_offset = 7 };
		struct store_object object = { .file_id = i,
					       .is_pack = i % 2 == 0,
					       .first_seq = i + 1,
					       .last_seq = i + 1,
					       .size_bytes = chunks_each * 100,
					       .chunk_count = chunks_each };
		struct store_chunk chunk = { .file_id = i, .size_bytes = 100, .target_node = "n1" };

		assert_int_equal(ops->plan_entry(plan, &entry, &w->err), 0);
		assert_int_equal(ops->plan_object(plan, &object, &w->err), 0);
		for (chunk.chunk_index = 0; chunk.chunk_index < chunks_each; chunk.chunk_index++)
			assert_int_equal(ops->plan_chunk(plan, &chunk, &w->err), 0);
	}
	return plan;
}

static inline struct store_transfer planned(struct world *w, const char *id, const char *batch, uint64_t object_count,
					    uint64_t chunks_each)
{
	struct store_transfer t = transfer_make(id, batch, object_count, chunks_each);
	struct store_plan *plan = plan_rows(w, &t, chunks_each);

	assert_int_equal(w->store->ops->plan_commit(&plan, &t, &w->err), 0);
	assert_null(plan);
	assert_int_equal(w->store->ops->transfer_get(w->store, id, &t, &w->err), 0);
	return t;
}

static inline struct store_receipt receipt_make(const char *id, uint64_t file_id, uint64_t chunk_index,
						const char *digest, const char *node)
{
	struct store_receipt r = { .file_id = file_id,
				   .chunk_index = chunk_index,
				   .size_bytes = 100,
				   .started_wall_us = 5,
				   .finished_wall_us = 2000 + (int64_t)chunk_index,
				   .result = ERR_INTERNAL };

	copy_text(r.transfer_id, sizeof(r.transfer_id), id);
	copy_text(r.digest, sizeof(r.digest), digest);
	copy_text(r.node_id, sizeof(r.node_id), node);
	copy_text(r.node_addr, sizeof(r.node_addr), "10.0.0.1:7081");
	copy_text(r.request_id, sizeof(r.request_id), "req-1");
	copy_text(r.disk_path, sizeof(r.disk_path), "/srv/x.part");
	return r;
}

static inline enum err_code give(struct world *w, struct store_receipt receipt)
{
	assert_int_equal(w->store->ops->receipts(w->store, &receipt, 1, &w->err), 0);
	return receipt.result;
}

struct pages {
	struct store_chunk chunks[64];
	size_t count, stop_at;
};

static inline int chunk_keep(void *owner, const struct store_chunk *chunk)
{
	struct pages *pages = owner;

	assert_true(pages->count < COUNT_OF(pages->chunks));
	pages->chunks[pages->count++] = *chunk;
	return pages->count == pages->stop_at;
}

static inline struct store_chunk chunk_get(struct world *w, const char *id, uint64_t file_id, uint64_t chunk_index)
{
	struct pages pages = { .stop_at = 64 };

	assert_int_equal(w->store->ops->chunks(w->store, id, 0, 0, ALL_STATES, 64, chunk_keep, &pages, &w->err), 0);
	for (size_t i = 0; i < pages.count; i++) {
		if (pages.chunks[i].file_id == file_id && pages.chunks[i].chunk_index == chunk_index)
			return pages.chunks[i];
	}
	fail_msg("no such chunk");
	return pages.chunks[0];
}

struct tally {
	uint64_t counts[COUNT_STATES], stored_bytes, copied_count, copied_bytes;
};

static inline int chunk_tally(void *owner, const struct store_chunk *chunk)
{
	struct tally *tally = owner;

	tally->counts[chunk->state]++;
	if (chunk->state == CHUNK_STORED || chunk->state == CHUNK_MERGED)
		tally->stored_bytes += chunk->size_bytes;
	if (chunk->copy_node[0] != '\0') {
		/* A copy is of what is stored, on another node. */
		assert_true(chunk->state == CHUNK_STORED || chunk->state == CHUNK_MERGED);
		assert_string_not_equal(chunk->copy_node, chunk->actual_node);
		tally->copied_count++;
		tally->copied_bytes += chunk->size_bytes;
	}
	return 0;
}

/* The counters that are kept aside must always be those of the rows. */
static inline void counters_agree(struct world *w, const char *id)
{
	struct tally tally = { .stored_bytes = 0 };
	uint64_t counts[COUNT_STATES];
	struct store_transfer t;

	assert_int_equal(w->store->ops->chunks(w->store, id, 0, 0, ALL_STATES, SIZE_MAX, chunk_tally, &tally, &w->err),
			 0);
	assert_int_equal(w->store->ops->chunk_counts(w->store, id, counts, &w->err), 0);
	assert_int_equal(w->store->ops->transfer_get(w->store, id, &t, &w->err), 0);
	assert_memory_equal(counts, tally.counts, sizeof(counts));
	assert_int_equal(t.stored_chunk_count, tally.counts[CHUNK_STORED] + tally.counts[CHUNK_MERGED]);
	assert_int_equal(t.stored_bytes, tally.stored_bytes);
	assert_int_equal(t.copied_chunk_count, tally.copied_count);
	assert_int_equal(t.copied_bytes, tally.copied_bytes);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
#define CASES_MAX      64

/* Every test once per driver. */
static inline int drivers_run(const struct CMUnitTest *tests, size_t count)
{
	struct CMUnitTest rows[CASES_MAX];
	int failed = 0;

	MUST(count <= CASES_MAX);
	for (size_t i = 0; i < COUNT_OF(drivers); i++) {
		memcpy(rows, tests, count * sizeof(rows[0]));
		for (size_t j = 0; j < count; j++)
			rows[j].initial_state = (void *)(uintptr_t)&drivers[i];
		failed += _cmocka_run_group_tests(drivers[i].name, rows, count, NULL, NULL);
	}
	return failed;
}

#endif
