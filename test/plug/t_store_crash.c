/* The metadata store under many callers at once, and killed at any moment: what was answered is there. Run over every driver. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "plug/store_world.h"

/* ---- many callers ---- */

struct caller {
	pthread_t thread;
	struct world *w;
	uint64_t file_id;
	uint64_t failed_count;
};

static void *caller_main(void *arg)
{
	struct caller *caller = arg;
	struct err err = ERR_INIT;

	for (uint64_t i = 0; i < 40; i++) {
		struct store_receipt receipt = receipt_make(id_a, caller->file_id, i, digest_1, "n1");
		struct store_transfer t;

		/* One caller's refused write must not undo its neighbours' in the same commit. */
		if (caller->w->store->ops->transfer_note(caller->w->store, id_none, "x", &err) != -ERR_NO_TRANSFER ||
		    caller->w->store->ops->receipts(caller->w->store, &receipt, 1, &err) != 0 ||
		    receipt.result != ERR_NONE ||
		    caller->w->store->ops->transfer_get(caller->w->store, id_a, &t, &err) != 0 ||
		    t.stored_chunk_count == 0)
			caller->failed_count++;
	}
	return NULL;
}

static void *planner_main(void *arg)
{
	struct caller *caller = arg;
	struct world own = { .driver = caller->w->driver, .store = caller->w->store };
	char id[ULID_SIZE];

	for (int i = 0; i < 5; i++) {
		struct store_transfer t;
		struct store_plan *plan;

		(void)snprintf(id, sizeof(id), "01ARZ3NDEKTSV4RRFFQ69G500%c", (char)('0' + i));
		t = transfer_make(id, id, 2, 3);
		plan = plan_rows(&own, &t, 3);
		if (i % 2)
			own.store->ops->plan_abort(&plan);
		else if (own.store->ops->plan_commit(&plan, &t, &own.err) != 0)
			caller->failed_count++;
	}
	return NULL;
}

static void test_many_callers_and_planners_at_once(void **state)
{
	struct world *w = *state;
	struct caller callers[7] = { { .w = NULL } };
	struct store_transfer t;

	(void)planned(w, id_a, "q3", 6, 40);
	for (size_t i = 0; i < 7; i++) {
		callers[i] = (struct caller){ .w = w, .file_id = i + 1 };
		assert_int_equal(
			pthread_create(&callers[i].thread, NULL, i < 6 ? caller_main : planner_main, &callers[i]), 0);
	}
	for (size_t i = 0; i < 7; i++) {
		pthread_join(callers[i].thread, NULL);
		assert_int_equal(callers[i].failed_count, 0);
	}
	assert_int_equal(w->store->ops->transfer_get(w->store, id_a, &t, &w->err), 0);
	assert_int_equal(t.stored_chunk_count, 240);
	counters_agree(w, id_a);
}

/* ---- crashes: the child's answers are what a node would have been told ---- */

#define CRASH_OBJECTS 20
#define CRASH_CHUNKS  500

static void crash_child(const struct world *parent, int pipe_fd)
{
	struct world w = *parent;
	struct store_receipt receipts[10];

	if (world_open(&w) != 0)
		_exit(1);
	for (uint32_t n = 0; n < CRASH_OBJECTS * CRASH_CHUNKS - 1000; n += 10) {
		for (uint32_t i = 0; i < 10; i++)
			receipts[i] = receipt_make(id_a, (n + i) / CRASH_CHUNKS + 1, (n + i) % CRASH_CHUNKS, digest_1,
						   "n1");
		if (w.store->ops->receipts(w.store, receipts, 10, &w.err) != 0 ||
		    write(pipe_fd, &n, sizeof(n)) != sizeof(n))
			_exit(1);
	}
	for (;;)
		pause();
}

static void crash_once(struct world *w, uint32_t kill_after_answers)
{
	uint32_t n = 0, answers = 0, last = 0;
	struct store_transfer t;
	int fds[2], status;
	pid_t child;

	w->store->ops->close(w->store);
	w->store = NULL;
	assert_int_equal(pipe(fds), 0);
	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		close(fds[0]);
		crash_child(w, fds[1]);
		_exit(1);
	}
	close(fds[1]);
	while (read(fds[0], &n, sizeof(n)) == sizeof(n)) {
		last = n + 10;
		if (++answers == kill_after_answers)
			kill(child, SIGKILL);
	}
	close(fds[0]);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	assert_int_equal(world_open(w), 0);
	assert_int_equal(w->store->ops->transfer_get(w->store, id_a, &t, &w->err), 0);
	assert_true(t.stored_chunk_count >= last); /* receipts go in order: so many are the first ones */
	assert_int_equal(t.stored_chunk_count % 10, 0);
	counters_agree(w, id_a);
	assert_int_equal(w->store->ops->transfer_get(w->store, id_b, &t, &w->err), -ERR_NO_TRANSFER);
}

static void test_killed_while_taking_receipts(void **state)
{
	struct world *w = *state;
	static const uint32_t after[] = { 1, 7, 100 };

	(void)planned(w, id_a, "q3", CRASH_OBJECTS, CRASH_CHUNKS);
	for (size_t i = 0; i < COUNT_OF(after); i++)
		crash_once(w, after[i]);
}

static void test_killed_within_a_plan(void **state)
{
	struct world *w = *state;
	struct store_transfer t = transfer_make(id_b, "never", 2, 2);
	int status;
	pid_t child;

	(void)planned(w, id_a, "q3", 1, 1);
	w->store->ops->close(w->store);
	w->store = NULL;
	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		if (world_open(w) == 0 && plan_rows(w, &t, 2))
			raise(SIGKILL);
		_exit(1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(world_open(w), 0);
	assert_int_equal(w->store->ops->transfer_get(w->store, id_b, &t, &w->err), -ERR_NO_TRANSFER);
	(void)planned(w, id_b, "q4", 2, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_many_callers_and_planners_at_once),
		CASE(test_killed_while_taking_receipts),
		CASE(test_killed_within_a_plan),
	};

	return drivers_run(tests, COUNT_OF(tests));
}
