#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/clock.h"
#include "sys/box.h"

static int items[4000];

static void test_order_and_limits(void **state)
{
	struct queue *queue = queue_new(3);

	(void)state;
	assert_null(queue_pop(queue, 0));
	/* Round and round, so that the ring wraps at each place. */
	for (int round = 0; round < 7; round++) {
		for (int i = 0; i < 3; i++)
			assert_true(queue_try_push(queue, &items[round + i]));
		assert_false(queue_try_push(queue, &items[9]));
		for (int i = 0; i < 3; i++)
			assert_ptr_equal(queue_pop(queue, -1), &items[round + i]);
		assert_true(queue_push(queue, &items[0]));
		assert_ptr_equal(queue_pop(queue, 0), &items[0]);
	}
	int64_t before_us = clock_mono_us();
	assert_null(queue_pop(queue, 3000));
	assert_true(clock_mono_us() - before_us >= 3000);
	/* Closed: what is in it is still given out, nothing more is taken. */
	assert_true(queue_push(queue, &items[1]));
	queue_close(queue);
	assert_false(queue_push(queue, &items[2]));
	assert_false(queue_try_push(queue, &items[2]));
	assert_ptr_equal(queue_pop(queue, -1), &items[1]);
	assert_null(queue_pop(queue, -1));
	queue_free(&queue);
	assert_null(queue);
	queue_free(&queue);
}

static void *push_half(void *owner)
{
	struct queue *queue = owner;

	for (int i = 0; i < 2000; i++)
		assert_true(queue_push(queue, &items[i]));
	return NULL;
}

static void *pop_all(void *owner)
{
	struct queue *queue = owner;
	intptr_t count = 0;

	for (int *item; (item = queue_pop(queue, -1)) != NULL; count++)
		__atomic_add_fetch(item, 1, __ATOMIC_RELAXED);
	return (void *)count;
}

static void test_many_to_many(void **state)
{
	struct queue *queue = queue_new(4);
	pthread_t pushers[2], poppers[3];
	void *count;
	intptr_t sum = 0;

	(void)state;
	memset(items, 0, sizeof(items));
	for (int i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&poppers[i], NULL, pop_all, queue), 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&pushers[i], NULL, push_half, queue), 0);
	for (int i = 0; i < 2; i++)
		(void)pthread_join(pushers[i], NULL);
	queue_close(queue);
	for (int i = 0; i < 3; i++) {
		(void)pthread_join(poppers[i], &count);
		sum += (intptr_t)count;
	}
	assert_int_equal(sum, 4000);
	for (int i = 0; i < 2000; i++)
		assert_int_equal(items[i], 2);
	queue_free(&queue);
}

static void *push_one(void *owner) { return queue_push(owner, &items[0]) ? owner : NULL; }

static void test_close_wakes(void **state)
{
	struct queue *full = queue_new(1), *empty = queue_new(1);
	pthread_t pusher, popper;
	void *result;

	(void)state;
	assert_true(queue_push(full, &items[0]));
	assert_int_equal(pthread_create(&pusher, NULL, push_one, full), 0);
	assert_int_equal(pthread_create(&popper, NULL, pop_all, empty), 0);
	queue_close(full);
	queue_close(empty);
	(void)pthread_join(pusher, &result);
	assert_null(result);
	(void)pthread_join(popper, &result);
	assert_null(result);
	queue_free(&full);
	queue_free(&empty);
}

static void test_letterbox(void **state)
{
	struct letterbox box = { NULL };
	int a, b;

	(void)state;
	assert_null(letterbox_take(&box));
	assert_null(letterbox_put(&box, &a));
	assert_ptr_equal(letterbox_put(&box, &b), &a);
	assert_ptr_equal(letterbox_take(&box), &b);
	assert_null(letterbox_take(&box));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_order_and_limits),
		cmocka_unit_test(test_many_to_many),
		cmocka_unit_test(test_close_wakes),
		cmocka_unit_test(test_letterbox),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
