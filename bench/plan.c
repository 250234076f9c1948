/* How long the plan of a million chunks takes: the manifest read, every chunk placed on a ring of ten nodes, all rows committed durably. Prints one line
 * a round. usage: plan [folder] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "folder/plan.h"
#include "sys/fs.h"
#include "wire/manifest.h"

#define FILE_COUNT  1000
#define FILE_CHUNKS 1000
#define NODE_COUNT  10
#define ROUND_COUNT 3

static void check(int result, const struct err *err)
{
	if (result >= 0)
		return;
	(void)fprintf(stderr, "bench/plan: %s\n", err->text);
	exit(1);
}

static int make_manifest(void)
{
	struct err err = ERR_INIT;
	struct buf text = BUF_INIT(64 * MIB);
	struct manifest_entry entry = { .type = MANIFEST_DIR, .mode = 0755, .path = STR(".") };
	int fd = fs_temp_file(&err);

	check(fd, &err);
	manifest_write_head(&text);
	manifest_write(&text, &entry);
	for (unsigned i = 0; i < FILE_COUNT; i++) {
		char path[64];

		snprintf(path, sizeof(path), "statements-of-the-day-%06u.dat", i);
		entry = (struct manifest_entry){ .seq = i + 1,
						 .type = MANIFEST_FILE,
						 .mode = 0644,
						 .size_bytes = FILE_CHUNKS * MIB,
						 .path = str_from(path) };
		manifest_write(&text, &entry);
	}
	manifest_write_end(&text, FILE_COUNT + 1, (uint64_t)FILE_COUNT * FILE_CHUNKS * MIB);
	check(fs_write_all(fd, text.data, text.size, 0, &err), &err);
	buf_fini(&text);
	return fd;
}

static void plan_once(struct store *store, const struct ring *ring, int manifest_fd)
{
	struct err err = ERR_INIT;
	struct plan_facts facts;
	struct store_transfer transfer = { .digest = DIGEST_SHA256, .chunk_bytes = MIB, .batch = "bench" };
	const int64_t start_us = clock_mono_us();

	ulid_make(clock_wall_us(), transfer.id);
	check(plan_scan(manifest_fd, &manifest_limits_default, &facts, &err), &err);
	check(plan_write(store, ring, manifest_fd, &facts, &transfer, NULL, &err), &err);
	int64_t took_us = clock_mono_us() - start_us;
	(void)printf("plan: %llu chunks in %lld ms%s\n", (unsigned long long)transfer.chunk_count,
		     (long long)(took_us / 1000), store ? ", committed" : ", nothing kept");
}

int main(int argument_count, char **arguments)
{
	struct err err = ERR_INIT;
	struct ring_node nodes[NODE_COUNT];
	char names[NODE_COUNT][16], folder[] = "/tmp/heng-bench-plan-XXXXXX", path[4096];
	const char *where = argument_count > 1 ? arguments[1] : mkdtemp(folder);
	struct ring *ring;
	struct store *store;

	for (size_t i = 0; i < NODE_COUNT; i++) {
		snprintf(names[i], sizeof(names[i]), "node-%zu", i);
		nodes[i] = (struct ring_node){ .id = names[i], .weight_milli = 1000 };
	}
	check(ring_build(nodes, NODE_COUNT, &ring, &err), &err);
	snprintf(path, sizeof(path), "%s/plan.db", where);
	check(store_sqlite_open(path, &store, &err), &err);
	int fd = make_manifest();
	for (int i = 0; i < ROUND_COUNT; i++) {
		plan_once(NULL, ring, fd);
		plan_once(store, ring, fd);
	}
	store->ops->close(store);
	ring_free(&ring);
	fs_close(&fd);
	for (const char *const *end = (const char *const[]){ "", "-wal", "-shm", NULL }; *end; end++) {
		snprintf(path, sizeof(path), "%s/plan.db%s", where, *end);
		(void)unlink(path);
	}
	if (argument_count <= 1)
		(void)rmdir(where);
	return 0;
}
