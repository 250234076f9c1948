#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "folder/merge_world.h"

#include "base/clock.h"
#include "base/rng.h"
#include "folder/plan.h"
#include "folder/walk.h"
#include "sys/fs.h"

#define WAIT_LIMIT_US (60 * SEC_US)

#define GOOD(call)                                           \
	do {                                                 \
		if ((call) < 0)                              \
			fail_msg("%s: %s", #call, err.text); \
	} while (0)

/* --- the scripted node --- */

static const struct internal_key shown_key = { .header = "X-Internal-Key: " WORLD_KEY };
static bool has_key(struct http_call *call)
{
	struct world_node *node = http_app(call);

	if (str_eq_c(http_header(call, "X-Internal-Key"), WORLD_KEY))
		return true;
	atomic_fetch_add(&node->wrong_key_count, 1);
	struct err err = ERR_INIT;
	err_set(&err, ERR_UNAUTHENTICATED, "the internal key is wrong");
	http_reply_err(call, &err);
	return false;
}

static void name_of(struct http_call *call, char target[128])
{
	snprintf(target, 128, "%.*s_%.*s_%.*s", STR_ARG(http_param(call, "transfer")),
		 STR_ARG(http_param(call, "file")), STR_ARG(http_param(call, "chunk")));
}

static void reply_gone(struct http_call *call)
{
	struct err err = ERR_INIT;

	err_set(&err, ERR_CHUNK_GONE, "the chunk is not here");
	http_reply_err(call, &err);
}

static void on_get(struct http_call *call, void *app)
{
	struct world_node *node = app;
	struct err err = ERR_INIT;
	struct stat st;
	char name[128];

	if (!has_key(call))
		return;
	atomic_fetch_add(&node->get_count, 1);
	if (atomic_load(&node->is_answering_503)) {
		err_set(&err, ERR_DISK, "the disk cannot be read");
		http_reply_err(call, &err);
		return;
	}
	name_of(call, name);
	int fd = openat(node->dir_fd, name, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0) {
		reply_gone(call);
		return;
	}
	if (atomic_load(&node->cut_count) > 0 && atomic_fetch_sub(&node->cut_count, 1) > 0) {
		/* A file that ends before the promised length: the connection breaks there. */
		char bytes[WORLD_CHUNK_BYTES];
		int short_fd = memfd_create("short", MFD_CLOEXEC);
		ssize_t got = pread(fd, bytes, (size_t)st.st_size / 2, 0);
		if (short_fd >= 0 && got == write(short_fd, bytes, (size_t)got)) {
			close(fd);
			fd = short_fd;
		}
	}
	http_reply_file(call, 200, "application/octet-stream", fd, 0, (uint64_t)st.st_size);
}

static void on_place(struct http_call *call, void *app)
{
	struct world_node *node = app;
	char name[128], self[64], folder[256] = "", text[512];
	struct stat st;

	if (!has_key(call))
		return;
	name_of(call, name);
	snprintf(self, sizeof(self), "/proc/self/fd/%d", node->dir_fd);
	const int place = atomic_load(&node->place);
	if (place == WORLD_PLACE_NONE || fstatat(node->dir_fd, name, &st, 0) < 0 ||
	    readlink(self, folder, sizeof(folder) - 1) < 0) {
		reply_gone(call);
		return;
	}
	int size = snprintf(text, sizeof(text), "{\"path\":\"%s/%s\",\"device\":%ju,\"inode\":%ju,\"size\":%jd}",
			    folder, name, (uintmax_t)st.st_dev,
			    (uintmax_t)st.st_ino + (place == WORLD_PLACE_OTHER_FILE), (intmax_t)st.st_size);
	http_reply(call, 200, "application/json", (struct str){ text, (size_t)size });
}

static void on_drop(struct http_call *call, void *app)
{
	struct world_node *node = app;
	char name[128];

	if (!has_key(call))
		return;
	if (atomic_load(&node->busy_count) > 0 && atomic_fetch_sub(&node->busy_count, 1) > 0) {
		struct err err = ERR_INIT;
		err_set(&err, ERR_BUSY, "somebody writes this chunk");
		http_reply_err(call, &err);
		return;
	}
	name_of(call, name);
	if (unlinkat(node->dir_fd, name, 0) < 0)
		reply_gone(call);
	else
		http_reply(call, 200, "application/json", STR("{}"));
}

static void on_forget(struct http_call *call, void *app)
{
	struct world_node *node = app;
	struct str id = http_param(call, "transfer");

	if (!has_key(call))
		return;
	atomic_fetch_add(&node->forget_count, 1);
	DIR *dir = fdopendir(openat(node->dir_fd, ".", O_RDONLY | O_DIRECTORY));
	for (struct dirent *item = readdir(dir); item; item = readdir(dir))
		if (str_starts(str_from(item->d_name), id))
			unlinkat(node->dir_fd, item->d_name, 0);
	closedir(dir);
	http_reply(call, 200, "application/json", STR("{}"));
}

static void on_health(struct http_call *call, void *app)
{
	struct world_node *node = app;
	char text[512];

	int size = snprintf(
		text, sizeof(text),
		"{\"status\":\"ok\",\"node_id\":\"%s\",\"incarnation\":\"inc-%s\",\"free_bytes\":1000000000000,"
		"\"total_bytes\":2000000000000,\"inodes_free\":1000000,\"inodes_total\":2000000,\"reserved_bytes\":0,"
		"\"is_low\":false,\"diagnosis\":\"\",\"chunks_written\":0,\"write_failures\":0}",
		node->id, node->id);
	http_reply(call, 200, "application/json", (struct str){ text, (size_t)size });
}

static const struct http_route routes[] = {
	{ "GET", "/internal/v1/chunk/:transfer/:file/:chunk", on_get },
	{ "GET", "/internal/v1/chunk/:transfer/:file/:chunk/place", on_place },
	{ "DELETE", "/internal/v1/chunk/:transfer/:file/:chunk", on_drop },
	{ "DELETE", "/internal/v1/transfer/:transfer", on_forget },
	{ "GET", "/health", on_health },
	{ NULL, NULL, NULL },
};

void world_node_start(struct world *world, unsigned index)
{
	struct world_node *node = &world->nodes[index];
	struct http_options options = http_options_default;
	struct store_node registration = { .weight_milli = 1000 };
	struct sock_addr addr;
	struct err err = ERR_INIT;

	options.thread_count = 1;
	GOOD(sock_addr_parse("127.0.0.1:0", &addr, &err));
	GOOD(http_server_new(&options, &addr, routes, node, &node->server, &err));
	GOOD(http_server_start(node->server, &err));
	str_copy(str_from(node->id), registration.id, sizeof(registration.id));
	sock_addr_text(http_server_addr(node->server), registration.addr);
	snprintf(registration.incarnation, sizeof(registration.incarnation), "inc-%.20s", node->id);
	GOOD(pool_register(world->pool, &registration, &err));
}

void world_node_stop(struct world *world, unsigned index)
{
	struct world_node *node = &world->nodes[index];

	if (!node->server)
		return;
	http_server_stop(node->server, 0);
	http_server_free(&node->server);
}

/* --- the world --- */

static void nap(void) { nanosleep(&(struct timespec){ .tv_nsec = 3000000 }, NULL); }

static void wait_for_ring(struct world *world)
{
	int64_t until_us = clock_mono_us() + WAIT_LIMIT_US;

	for (;;) {
		struct pool_ring *ring = pool_ring_get(world->pool);
		size_t count = ring->ring ? ring_node_count(ring->ring) : 0;
		pool_ring_put(world->pool, ring);
		if (count == WORLD_NODE_COUNT)
			return;
		if (clock_mono_us() > until_us)
			fail_msg("the nodes did not become healthy");
		nap();
	}
}

struct world *world_new(void)
{
	struct world *world = must_zalloc(1, sizeof(*world));
	struct err err = ERR_INIT;
	char path[128];

	snprintf(world->path, sizeof(world->path), "/tmp/t_merge-XXXXXX");
	assert_non_null(mkdtemp(world->path));
	world->root_fd = open(world->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	snprintf(world->staging_dir, sizeof(world->staging_dir), "%s/staging", world->path);
	snprintf(world->final_dir, sizeof(world->final_dir), "%s/final", world->path);
	snprintf(path, sizeof(path), "%s/heng.db", world->path);
	assert_int_equal(mkdirat(world->root_fd, "source", 0700), 0);
	assert_int_equal(mkdirat(world->root_fd, "staging", 0700), 0);
	assert_int_equal(mkdirat(world->root_fd, "final", 0700), 0);
	world->source_fd = openat(world->root_fd, "source", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	world->staging_fd = openat(world->root_fd, "staging", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	world->final_fd = openat(world->root_fd, "final", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	world->digest = DIGEST_SHA256;
	GOOD(store_sqlite_open(path, &world->store, &err));
	const struct pool_options pooling = { .store = world->store,
					      .internal_key = &shown_key,
					      .probe_interval_us = 50 * MSEC_US,
					      .probe_timeout_us = 2 * SEC_US };
	GOOD(pool_start(&pooling, &world->pool, &err));
	for (unsigned i = 0; i < WORLD_NODE_COUNT; i++) {
		struct world_node *node = &world->nodes[i];
		snprintf(node->id, sizeof(node->id), "n%u", i + 1);
		assert_int_equal(mkdirat(world->root_fd, node->id, 0700), 0);
		node->dir_fd = openat(world->root_fd, node->id, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		world_node_start(world, i);
	}
	wait_for_ring(world);
	world->options = (struct merge_options){ .staging_dir = world->staging_dir,
						 .final_dir = world->final_dir,
						 .internal_key = &shown_key,
						 .object_limit_count = 8,
						 .node_connection_limit = 2,
						 .node_lost_after_us = 300 * SEC_US };
	return world;
}

void world_free(struct world **world_ref)
{
	struct world *world = *world_ref;
	struct err err = ERR_INIT;

	merge_stop(&world->merge);
	pool_stop(&world->pool);
	for (unsigned i = 0; i < WORLD_NODE_COUNT; i++) {
		world_node_stop(world, i);
		close(world->nodes[i].dir_fd);
		assert_int_equal(atomic_load(&world->nodes[i].wrong_key_count), 0);
	}
	world->store->ops->close(world->store);
	close(world->source_fd);
	close(world->staging_fd);
	close(world->final_fd);
	close(world->root_fd);
	int tmp_fd = open("/tmp", O_RDONLY | O_DIRECTORY);
	GOOD(fs_remove_tree(tmp_fd, world->path + strlen("/tmp/"), &err));
	close(tmp_fd);
	free(world);
	*world_ref = NULL;
}

void world_folder(struct world *world, const char *path) { assert_int_equal(mkdirat(world->source_fd, path, 0755), 0); }

void world_attributes(struct world *world, const char *path, unsigned mode, int64_t mtime_ns)
{
	struct timespec times[2] = { { .tv_nsec = UTIME_OMIT },
				     { .tv_sec = mtime_ns / 1000000000, .tv_nsec = mtime_ns % 1000000000 } };

	assert_int_equal(fchmodat(world->source_fd, path, mode, 0), 0);
	assert_int_equal(utimensat(world->source_fd, path, times, 0), 0);
}

void world_file(struct world *world, const char *path, size_t size, unsigned seed, unsigned mode, int64_t mtime_ns)
{
	struct rng rng;
	char *data = must_alloc(size + 8);
	struct err err = ERR_INIT;

	rng_seed(&rng, seed);
	for (size_t i = 0; i < size; i += 8) {
		uint64_t word = rng_u64(&rng);
		memcpy(data + i, &word, 8);
	}
	int fd = openat(world->source_fd, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	GOOD(fs_write_all(fd, data, size, 0, &err));
	close(fd);
	free(data);
	world_attributes(world, path, mode, mtime_ns);
}

/* --- sending --- */

static void on_problem(void *owner, struct str path, const char *reason)
{
	(void)owner;
	fail_msg("'%.*s': %s", STR_ARG(path), reason);
}

static void plan(struct world *world, const char *batch)
{
	struct store_transfer *transfer = &world->transfer;
	struct walk_options walk = { .links = WALK_LINKS_KEEP };
	struct walk_result walked;
	struct plan_facts facts;
	struct err err = ERR_INIT;
	int fd = openat(world->root_fd, "manifest", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	GOOD(walk_folder(world->source_fd, &walk, fd, on_problem, NULL, &walked, &err));
	GOOD(plan_scan(fd, &manifest_limits_default, &facts, &err));
	*transfer = (struct store_transfer){ .digest = world->digest,
					     .chunk_bytes = WORLD_CHUNK_BYTES,
					     .copies = world->copies,
					     .manifest_crc32c = facts.crc32c,
					     .created_wall_us = clock_wall_us() };
	ulid_make(clock_wall_us(), transfer->id);
	str_copy(str_from(batch), transfer->batch, sizeof(transfer->batch));
	str_copy(STR("tester"), transfer->user, sizeof(transfer->user));
	str_copy(str_from(facts.digest), transfer->manifest_digest, sizeof(transfer->manifest_digest));
	struct pool_ring *ring = pool_ring_get(world->pool);
	GOOD(plan_write(world->store, ring->ring, fd, &facts, transfer, NULL, &err));
	pool_ring_put(world->pool, ring);
	close(fd);
}

struct entries {
	struct world *world;
	uint64_t file_id;
	struct buf data;  /* of that object */
	const char *path; /* or: looked for */
	uint64_t found_file_id;
	uint64_t seqs[1000];
	char digests[1000][DIGEST_HEX_SIZE];
	size_t count;
};

static void read_source(struct entries *entries, const struct store_entry *entry, struct buf *target)
{
	char path[4200];
	struct err err = ERR_INIT;
	size_t got;

	assert_true(str_copy(entry->path, path, sizeof(path)));
	int fd = openat(entries->world->source_fd, path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_true(buf_reserve(target, entry->size_bytes + 1));
	GOOD(fs_read_all(fd, target->data + target->size, entry->size_bytes + 1, 0, &got, &err));
	assert_int_equal(got, entry->size_bytes);
	target->size += got;
	close(fd);
}

static int gather_object(void *owner, const struct store_entry *entry)
{
	struct entries *entries = owner;

	if (entry->type == 'F' && entry->file_id == entries->file_id)
		read_source(entries, entry, &entries->data);
	return 0;
}

static int gather_digest(void *owner, const struct store_entry *entry)
{
	struct entries *entries = owner;
	struct buf data = BUF_INIT(GIB);

	if (entry->type != 'F')
		return 0;
	read_source(entries, entry, &data);
	entries->seqs[entries->count] = entry->seq;
	digest_of(entries->world->digest, data.data, data.size, entries->digests[entries->count++]);
	buf_fini(&data);
	return entries->count == COUNT_OF(entries->seqs);
}

static void bind_all(struct world *world)
{
	struct entries *entries = must_zalloc(1, sizeof(*entries));
	struct store *store = world->store;
	struct err err = ERR_INIT;

	entries->world = world;
	GOOD(store->ops->entries(store, world->transfer.id, 0, INT64_MAX, gather_digest, entries, &err));
	if (entries->count > 0)
		GOOD(store->ops->bind_digests(store, world->transfer.id, entries->seqs,
					      (const char(*)[DIGEST_HEX_SIZE])entries->digests, entries->count, &err));
	free(entries);
}

struct chunk_list {
	struct store_chunk chunks[1000];
	size_t count;
};

static int collect_chunk(void *owner, const struct store_chunk *chunk)
{
	struct chunk_list *list = owner;

	assert_true(list->count < COUNT_OF(list->chunks));
	list->chunks[list->count++] = *chunk;
	return 0;
}

static struct chunk_list *chunks_of(struct world *world)
{
	struct chunk_list *list = must_zalloc(1, sizeof(*list));
	struct err err = ERR_INIT;

	GOOD(world->store->ops->chunks(world->store, world->transfer.id, 0, 0, ~0u, COUNT_OF(list->chunks),
				       collect_chunk, list, &err));
	return list;
}

static void put_chunk_on(struct world *world, const struct store_chunk *chunk, const char *node_id)
{
	struct entries entries = { .world = world, .file_id = chunk->file_id, .data = BUF_INIT(GIB) };
	struct store_receipt receipt = { .file_id = chunk->file_id,
					 .chunk_index = chunk->chunk_index,
					 .size_bytes = chunk->size_bytes };
	struct store *store = world->store;
	struct err err = ERR_INIT;
	char name[128];

	GOOD(store->ops->entries(store, world->transfer.id, 0, INT64_MAX, gather_object, &entries, &err));
	uint64_t offset = chunk->chunk_index * WORLD_CHUNK_BYTES;
	assert_true(offset + chunk->size_bytes <= entries.data.size);
	for (unsigned i = 0; i < WORLD_NODE_COUNT; i++)
		if (strcmp(world->nodes[i].id, node_id) == 0) {
			world_chunk_name(world, chunk, name);
			int fd = openat(world->nodes[i].dir_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
			GOOD(fs_write_all(fd, entries.data.data + offset, chunk->size_bytes, 0, &err));
			close(fd);
		}
	str_copy(str_from(world->transfer.id), receipt.transfer_id, sizeof(receipt.transfer_id));
	str_copy(str_from(node_id), receipt.node_id, sizeof(receipt.node_id));
	digest_of(world->digest, entries.data.data + offset, chunk->size_bytes, receipt.digest);
	GOOD(store->ops->receipts(store, &receipt, 1, &err));
	assert_int_equal(receipt.result, ERR_NONE);
	buf_fini(&entries.data);
}

static void put_chunk(struct world *world, const struct store_chunk *chunk)
{
	put_chunk_on(world, chunk, chunk->target_node);
	for (unsigned i = 0; i < WORLD_NODE_COUNT && world->copies > 1; i++)
		if (strcmp(world->nodes[i].id, chunk->target_node) != 0)
			put_chunk_on(world, chunk, world->nodes[i].id);
}

void world_resend(struct world *world)
{
	struct store *store = world->store;
	struct err err = ERR_INIT;
	struct chunk_list *list = chunks_of(world);

	for (size_t i = 0; i < list->count; i++)
		if (list->chunks[i].state != CHUNK_STORED || (world->copies > 1 && !list->chunks[i].copy_node[0]))
			put_chunk(world, &list->chunks[i]);
	free(list);
	bind_all(world);
	GOOD(store->ops->transfer_get(store, world->transfer.id, &world->transfer, &err));
	GOOD(store->ops->transfer_move(store, &world->transfer, TRANSFER_MERGING, "", false, clock_wall_us(), &err));
}

void world_send(struct world *world, const char *batch)
{
	plan(world, batch);
	world_resend(world);
}

void world_merge_start(struct world *world)
{
	struct err err = ERR_INIT;

	GOOD(merge_start(&world->options, world->store, world->pool, &world->merge, &err));
}

/* --- waiting and looking --- */

void world_wait(struct world *world, enum transfer_state state)
{
	int64_t until_us = clock_mono_us() + WAIT_LIMIT_US;
	struct err err = ERR_INIT;

	for (;;) {
		GOOD(world->store->ops->transfer_get(world->store, world->transfer.id, &world->transfer, &err));
		if (world->transfer.state == state)
			return;
		if (clock_mono_us() > until_us || world->transfer.state != TRANSFER_MERGING)
			fail_msg("the transfer is %s, not %s: %s", transfer_state_name(world->transfer.state),
				 transfer_state_name(state), world->transfer.reason);
		nap();
	}
}

void world_wait_note(struct world *world, const char *text)
{
	int64_t until_us = clock_mono_us() + WAIT_LIMIT_US;
	struct err err = ERR_INIT;

	for (;;) {
		GOOD(world->store->ops->transfer_get(world->store, world->transfer.id, &world->transfer, &err));
		assert_int_equal(world->transfer.state, TRANSFER_MERGING);
		if (strstr(world->transfer.reason, text))
			return;
		if (clock_mono_us() > until_us)
			fail_msg("no note with '%s': %s", text, world->transfer.reason);
		nap();
	}
}

void world_wait_empty(int dir_fd, const char *what)
{
	int64_t until_us = clock_mono_us() + WAIT_LIMIT_US;

	while (world_dir_count(dir_fd) > 0) {
		if (clock_mono_us() > until_us)
			fail_msg("%s is not cleared", what);
		nap();
	}
}

void world_wait_job_end(struct world *world) { world_wait_empty(world->staging_fd, "staging"); }

bool world_chunk(struct world *world, uint64_t file_id, uint64_t chunk_index, struct store_chunk *ret_chunk)
{
	struct chunk_list *list = chunks_of(world);
	bool is_found = false;

	for (size_t i = 0; i < list->count; i++)
		if (list->chunks[i].file_id == file_id && list->chunks[i].chunk_index == chunk_index) {
			*ret_chunk = list->chunks[i];
			is_found = true;
		}
	free(list);
	return is_found;
}

static int find_entry(void *owner, const struct store_entry *entry)
{
	struct entries *entries = owner;

	if (str_eq_c(entry->path, entries->path))
		entries->found_file_id = entry->file_id;
	return 0;
}

uint64_t world_file_id(struct world *world, const char *path)
{
	struct entries entries = { .world = world, .path = path };
	struct err err = ERR_INIT;

	GOOD(world->store->ops->entries(world->store, world->transfer.id, 0, INT64_MAX, find_entry, &entries, &err));
	assert_int_not_equal(entries.found_file_id, 0);
	return entries.found_file_id;
}

struct world_node *world_node_of(struct world *world, const struct store_chunk *chunk)
{
	for (unsigned i = 0; i < WORLD_NODE_COUNT; i++)
		if (strcmp(world->nodes[i].id, chunk->actual_node) == 0)
			return &world->nodes[i];
	fail_msg("the chunk is on no node");
	return NULL;
}

void world_chunk_name(const struct world *world, const struct store_chunk *chunk, char target[128])
{
	snprintf(target, 128, "%s_%" PRIu64 "_%" PRIu64, world->transfer.id, chunk->file_id, chunk->chunk_index);
}

bool world_chunk_is_there(struct world *world, const struct store_chunk *chunk)
{
	char name[128];

	world_chunk_name(world, chunk, name);
	for (unsigned i = 0; i < WORLD_NODE_COUNT; i++)
		if (faccessat(world->nodes[i].dir_fd, name, F_OK, 0) == 0)
			return true;
	return false;
}

void world_flip_byte(struct world *world, const struct store_chunk *chunk)
{
	char name[128], byte;

	world_chunk_name(world, chunk, name);
	int fd = openat(world_node_of(world, chunk)->dir_fd, name, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &byte, 1, (off_t)chunk->size_bytes / 2), 1);
	byte ^= 1;
	assert_int_equal(pwrite(fd, &byte, 1, (off_t)chunk->size_bytes / 2), 1);
	close(fd);
}

size_t world_count_in_state(struct world *world, enum chunk_state state)
{
	uint64_t counts[CHUNK_MERGED + 1] = { 0 };
	struct err err = ERR_INIT;

	GOOD(world->store->ops->chunk_counts(world->store, world->transfer.id, counts, &err));
	return counts[state];
}

size_t world_dir_count(int dir_fd)
{
	int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fdopendir(fd);
	size_t count = 0;

	assert_non_null(dir);
	while (readdir(dir))
		count++;
	closedir(dir);
	return count - 2;
}

static void assert_same_bytes(int left_dir_fd, int right_dir_fd, const char *name)
{
	static char left[MIB], right[MIB];
	int left_fd = openat(left_dir_fd, name, O_RDONLY | O_CLOEXEC);
	int right_fd = openat(right_dir_fd, name, O_RDONLY | O_CLOEXEC);
	struct err err = ERR_INIT;
	size_t left_got, right_got;

	assert_true(left_fd >= 0 && right_fd >= 0);
	for (int64_t at = 0;; at += (int64_t)left_got) {
		GOOD(fs_read_all(left_fd, left, sizeof(left), at, &left_got, &err));
		GOOD(fs_read_all(right_fd, right, sizeof(right), at, &right_got, &err));
		assert_int_equal(left_got, right_got);
		if (left_got == 0)
			break;
		assert_memory_equal(left, right, left_got);
	}
	close(left_fd);
	close(right_fd);
}

static void assert_same_entry(int left_fd, int right_fd, const char *name)
{
	struct stat left, right;
	char left_target[4096], right_target[4096];

	assert_int_equal(fstatat(left_fd, name, &left, AT_SYMLINK_NOFOLLOW), 0);
	if (fstatat(right_fd, name, &right, AT_SYMLINK_NOFOLLOW) < 0)
		fail_msg("'%s' is missing", name);
	if (left.st_mode != right.st_mode || left.st_mtim.tv_sec != right.st_mtim.tv_sec ||
	    left.st_mtim.tv_nsec != right.st_mtim.tv_nsec)
		fail_msg("'%s' has mode %o not %o, or another time", name, right.st_mode, left.st_mode);
	if (S_ISREG(left.st_mode)) {
		assert_same_bytes(left_fd, right_fd, name);
	} else if (S_ISLNK(left.st_mode)) {
		ssize_t size = readlinkat(left_fd, name, left_target, sizeof(left_target));
		assert_int_equal(readlinkat(right_fd, name, right_target, sizeof(right_target)), size);
		assert_memory_equal(left_target, right_target, (size_t)size);
	} else if (strcmp(name, ".") != 0) {
		int left_dir = openat(left_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		int right_dir = openat(right_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		world_assert_same_tree(left_dir, right_dir);
		close(left_dir);
		close(right_dir);
	}
}

void world_assert_same_tree(int left_fd, int right_fd)
{
	DIR *dir = fdopendir(openat(left_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));

	assert_non_null(dir);
	assert_int_equal(world_dir_count(left_fd), world_dir_count(right_fd));
	for (struct dirent *item = readdir(dir); item; item = readdir(dir))
		if (strcmp(item->d_name, "..") != 0)
			assert_same_entry(left_fd, right_fd, item->d_name);
	closedir(dir);
}

void world_assert_completed(struct world *world)
{
	world_wait(world, TRANSFER_COMPLETED);
	world_wait_job_end(world);
	int fd = openat(world->final_fd, world->transfer.batch, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(fd >= 0);
	world_assert_same_tree(world->source_fd, fd);
	close(fd);
	assert_int_equal(world_count_in_state(world, CHUNK_MERGED), world->transfer.chunk_count);
	for (unsigned i = 0; i < WORLD_NODE_COUNT; i++) {
		assert_int_equal(world_dir_count(world->nodes[i].dir_fd), 0);
		assert_int_equal(atomic_load(&world->nodes[i].forget_count), 1);
	}
}
