#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "sys/box.h"
#include "sys/work.h"

struct task {
	struct job job;
	pthread_t run_thread, done_thread;
	struct loop *done_home;
	int run_count, done_count;
	struct queue *entered, *gate; /* says that it runs, then waits for leave */
	int *left;
};

static void on_run(struct job *job)
{
	struct task *task = job->owner;

	task->run_count++;
	task->run_thread = pthread_self();
	if (task->entered)
		assert_true(queue_push(task->entered, task));
	if (task->gate)
		(void)queue_pop(task->gate, -1);
}

static void on_done(struct job *job, struct loop *home)
{
	struct task *task = job->owner;

	task->done_count++;
	task->done_home = home;
	task->done_thread = pthread_self();
	if (task->left && --*task->left == 0)
		loop_stop(home);
}

static void make(struct task *task)
{
	*task = (struct task){ .job = { .run = on_run, .done = on_done, .owner = task } };
}

static void test_home(void **state)
{
	enum { TASKS = 200 };
	struct task *tasks = calloc(TASKS, sizeof(*tasks));
	struct loop *loop = NULL;
	struct work *work = NULL;
	struct err err = ERR_INIT;
	int left = TASKS;

	(void)state;
	assert_int_equal(loop_new(LOOP_AUTO, &loop, &err), 0);
	assert_int_equal(work_new("disk", 3, TASKS, &work, &err), 0);
	for (int i = 0; i < TASKS; i++) {
		make(&tasks[i]);
		tasks[i].left = &left;
		assert_true(work_submit(work, &tasks[i].job, loop));
	}
	loop_run(loop);
	for (int i = 0; i < TASKS; i++) {
		assert_int_equal(tasks[i].run_count, 1);
		assert_int_equal(tasks[i].done_count, 1);
		assert_ptr_equal(tasks[i].done_home, loop);
		assert_true(pthread_equal(tasks[i].done_thread, pthread_self()));
		assert_false(pthread_equal(tasks[i].run_thread, pthread_self()));
	}
	work_free(&work);
	loop_free(&loop);
	free(tasks);
}

static void test_full_and_free(void **state)
{
	struct queue *entered = queue_new(1), *gate = queue_new(1);
	struct task tasks[4];
	struct work *work = NULL;
	struct err err = ERR_INIT;

	(void)state;
	for (int i = 0; i < 4; i++)
		make(&tasks[i]);
	tasks[0].entered = entered;
	tasks[0].gate = gate;
	assert_int_equal(work_new("a name that is rather long", 1, 2, &work, &err), 0);
	assert_true(work_submit(work, &tasks[0].job, NULL));
	/* Only once it runs is it out of the queue. */
	assert_ptr_equal(queue_pop(entered, -1), &tasks[0]);
	assert_true(work_submit(work, &tasks[1].job, NULL));
	assert_true(work_submit(work, &tasks[2].job, NULL));
	assert_false(work_submit(work, &tasks[3].job, NULL));
	assert_true(queue_push(gate, &tasks[0]));
	/* Ends what is queued. */
	work_free(&work);
	assert_null(work);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(tasks[i].run_count, i < 3);
		assert_int_equal(tasks[i].done_count, i < 3);
		assert_null(tasks[i].done_home);
	}
	work_free(&work);
	queue_free(&entered);
	queue_free(&gate);
}

static void test_refused(void **state)
{
	struct work *work = NULL;
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(work_new("x", 0, 1, &work, &err), -ERR_CONFIG);
	assert_int_equal(work_new("x", 100000, 1, &work, &err), -ERR_CONFIG);
	assert_int_equal(work_new("x", 1, 0, &work, &err), -ERR_CONFIG);
	assert_null(work);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_home),
		cmocka_unit_test(test_full_and_free),
		cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
