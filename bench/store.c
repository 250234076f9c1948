/* How fast the metadata store plans and takes receipts, durably. Prints one line each. usage: store [folder] */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "plug/store.h"

#define OBJECT_COUNT       300
#define CHUNKS_PER_OBJECT  1000
#define RECEIPTS_PER_BATCH 500
#define THREAD_COUNT       4

static const char transfer_id[] = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
static const char digest[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

struct worker {
	pthread_t thread;
	struct store *store;
	uint64_t first_object, object_count;
};

static void check(int result, const struct err *err)
{
	if (result >= 0)
		return;
	(void)fprintf(stderr, "bench/store: %s\n", err->text);
	exit(1);
}

/* Of all threads, the callers' too. */
static int64_t cpu_us(void)
{
	struct rusage usage;

	if (getrusage(RUSAGE_SELF, &usage) != 0)
		return 0;
	return (int64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * SEC_US + usage.ru_utime.tv_usec +
	       usage.ru_stime.tv_usec;
}

/* A busy machine stretches the time, not the CPU seconds. */
static void rate(const char *what, uint64_t count, int64_t start_us, int64_t start_cpu_us)
{
	int64_t took_us = max_i64(clock_mono_us() - start_us, 1), spent_us = max_i64(cpu_us() - start_cpu_us, 1);

	(void)printf("store: %s: %llu rows in %lld ms, %llu rows/s, %llu rows a CPU second\n", what,
		     (unsigned long long)count, (long long)(took_us / 1000),
		     (unsigned long long)(count * 1000000 / (uint64_t)took_us),
		     (unsigned long long)(count * 1000000 / (uint64_t)spent_us));
}

static void bench_plan(struct store *store)
{
	struct err err = ERR_INIT;
	struct store_transfer transfer = { .digest = DIGEST_SHA256,
					   .chunk_bytes = MIB,
					   .entry_count = OBJECT_COUNT,
					   .file_count = OBJECT_COUNT,
					   .object_count = OBJECT_COUNT,
					   .chunk_count = OBJECT_COUNT * CHUNKS_PER_OBJECT };
	struct store_chunk chunk = { .size_bytes = MIB, .target_node = "node-1" };
	struct store_plan *plan;
	int64_t start_us = clock_mono_us(), start_cpu_us = cpu_us();

	memcpy(transfer.id, transfer_id, sizeof(transfer_id));
	check(store->ops->plan_begin(store, &transfer, &plan, &err), &err);
	for (uint64_t i = 1; i <= OBJECT_COUNT; i++) {
		struct store_entry entry = { .seq = i, .type = 'F', .path = STR("some/folder/file"), .file_id = i };
		struct store_object object = {
			.file_id = i, .first_seq = i, .last_seq = i, .chunk_count = CHUNKS_PER_OBJECT
		};

		check(store->ops->plan_entry(plan, &entry, &err), &err);
		check(store->ops->plan_object(plan, &object, &err), &err);
		chunk.file_id = i;
		for (chunk.chunk_index = 0; chunk.chunk_index < CHUNKS_PER_OBJECT; chunk.chunk_index++)
			check(store->ops->plan_chunk(plan, &chunk, &err), &err);
	}
	check(store->ops->plan_commit(&plan, &transfer, &err), &err);
	rate("plan", OBJECT_COUNT * (CHUNKS_PER_OBJECT + 2), start_us, start_cpu_us);
}

static void *worker_main(void *arg)
{
	struct worker *worker = arg;
	struct store_receipt *receipts = calloc(RECEIPTS_PER_BATCH, sizeof(*receipts));
	struct err err = ERR_INIT;

	if (!receipts)
		exit(1);
	for (uint64_t n = 0; n < worker->object_count * CHUNKS_PER_OBJECT; n += RECEIPTS_PER_BATCH) {
		for (uint64_t i = 0; i < RECEIPTS_PER_BATCH; i++) {
			struct store_receipt *r = &receipts[i];

			memcpy(r->transfer_id, transfer_id, sizeof(transfer_id));
			memcpy(r->digest, digest, sizeof(digest));
			r->file_id = worker->first_object + (n + i) / CHUNKS_PER_OBJECT;
			r->chunk_index = (n + i) % CHUNKS_PER_OBJECT;
			r->size_bytes = MIB;
			(void)snprintf(r->node_id, sizeof(r->node_id), "node-1");
			(void)snprintf(r->node_addr, sizeof(r->node_addr), "10.0.0.1:7081");
			(void)snprintf(r->client_addr, sizeof(r->client_addr), "10.0.0.9:41234");
			(void)snprintf(r->request_id, sizeof(r->request_id), "01ARZ3NDEKTSV4RRFFQ69G5FAV");
			(void)snprintf(r->user, sizeof(r->user), "clerk");
			(void)snprintf(r->user_agent, sizeof(r->user_agent), "heng/0.1.0");
			(void)snprintf(r->disk_path, sizeof(r->disk_path),
				       "/srv/heng/01ARZ3NDEKTSV4RRFFQ69G5FAV/%llu/%llu.part",
				       (unsigned long long)r->file_id, (unsigned long long)r->chunk_index);
		}
		check(worker->store->ops->receipts(worker->store, receipts, RECEIPTS_PER_BATCH, &err), &err);
	}
	free(receipts);
	return NULL;
}

static void bench_receipts(struct store *store, uint64_t first_object, unsigned thread_count)
{
	struct worker workers[THREAD_COUNT] = { 0 };
	const uint64_t each = OBJECT_COUNT / 3 / thread_count;
	int64_t start_us = clock_mono_us(), start_cpu_us = cpu_us();
	char what[64];

	for (unsigned i = 0; i < thread_count; i++) {
		workers[i] = (struct worker){ .store = store,
					      .first_object = first_object + i * each,
					      .object_count = each };
		if (pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]) != 0)
			exit(1);
	}
	for (unsigned i = 0; i < thread_count; i++)
		pthread_join(workers[i].thread, NULL);
	(void)snprintf(what, sizeof(what), "receipts, %d per call, %u caller%s", RECEIPTS_PER_BATCH, thread_count,
		       thread_count > 1 ? "s" : "");
	rate(what, each * thread_count * CHUNKS_PER_OBJECT, start_us, start_cpu_us);
}

int main(int argc, char **argv)
{
	char folder[256], path[300];
	struct err err = ERR_INIT;
	struct store *store;

	(void)snprintf(folder, sizeof(folder), "%s/heng-bench-XXXXXX", argc > 1 ? argv[1] : "/tmp");
	if (!mkdtemp(folder))
		return 1;
	(void)snprintf(path, sizeof(path), "%s/heng.db", folder);
	check(store_sqlite_open(path, &store, &err), &err);
	bench_plan(store);
	bench_receipts(store, 1, 1);
	bench_receipts(store, 1 + OBJECT_COUNT / 3, THREAD_COUNT);
	store->ops->close(store);
	(void)unlink(path);
	(void)rmdir(folder);
	return 0;
}
