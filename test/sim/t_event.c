/* The event queue against a sorted list, the pool, and the fine histogram against exact ranks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/rng.h"
#include "sim/event.h"
#include "sim/fine.h"
#include "sim/pool.h"

static void test_empty(void **state)
{
	(void)state;
	struct event_queue queue;
	struct event event;
	event_queue_init(&queue);
	assert_false(event_next(&queue, &event));
	event_put(&queue, 5, 7, 1, 2);
	assert_true(event_next(&queue, &event));
	assert_int_equal(event.time_ns, 5);
	assert_int_equal(event_kind(&event), 7);
	assert_int_equal(event.a, 1);
	assert_int_equal(event.b, 2);
	assert_false(event_next(&queue, &event));
	event_queue_fini(&queue);
}

/* What has one time comes in the order in which it was put, from whichever lane. */
static void test_equal_times(void **state)
{
	(void)state;
	struct event_queue queue;
	struct event event;
	event_queue_init(&queue);
	for (uint32_t i = 0; i < 1000; i++) {
		if (i % (EVENT_LANES + 1) == EVENT_LANES)
			event_put(&queue, 42, 255, i, 0);
		else
			event_put_lane(&queue, i % (EVENT_LANES + 1), 42, 255, i, 0);
	}
	for (uint32_t i = 0; i < 1000; i++) {
		assert_true(event_next(&queue, &event));
		assert_int_equal(event.a, i);
	}
	assert_false(event_next(&queue, &event));
	event_queue_fini(&queue);
}

struct model {
	int64_t time_ns;
	uint32_t number;
};

static int compare(const void *a, const void *b)
{
	const struct model *x = a, *y = b;
	if (x->time_ns != y->time_ns)
		return x->time_ns < y->time_ns ? -1 : 1;
	return x->number < y->number ? -1 : 1;
}

/* Puts and takes in turn, as a simulation does: always ahead of the present. */
static void test_against_sorting(void **state)
{
	(void)state;
	enum { EVENTS = 20000 };
	struct event_queue queue;
	struct event event;
	struct rng rng;
	struct model *all = must_zalloc(EVENTS, sizeof(*all)), *taken = must_zalloc(EVENTS, sizeof(*taken));
	size_t put = 0, got = 0;
	int64_t now = 0, delays[EVENT_LANES] = { 0, 3, 50, 1000, 7 };
	event_queue_init(&queue);
	rng_seed(&rng, 1);
	while (got < EVENTS) {
		/* The queue grows, then shrinks, again and again. */
		bool is_growing = put < EVENTS && rng_below(&rng, 100) < (got / 500 % 2 == 0 ? 70 : 35);
		if (is_growing || put == got) {
			size_t lane = (size_t)rng_below(&rng, EVENT_LANES + 4);
			int64_t time = now + (lane < EVENT_LANES ? delays[lane] : (int64_t)rng_below(&rng, 300));
			all[put] = (struct model){ time, (uint32_t)put };
			if (lane < EVENT_LANES)
				event_put_lane(&queue, lane, time, (unsigned)lane, (uint32_t)put, 0);
			else
				event_put(&queue, time, (unsigned)lane, (uint32_t)put, 0);
			put++;
		} else {
			assert_true(event_next(&queue, &event));
			assert_true(event.time_ns >= now);
			now = event.time_ns;
			taken[got++] = (struct model){ event.time_ns, event.a };
		}
	}
	assert_false(event_next(&queue, &event));
	qsort(all, EVENTS, sizeof(*all), compare);
	for (size_t i = 0; i < EVENTS; i++) {
		assert_int_equal(taken[i].time_ns, all[i].time_ns);
		/* An event put for the present after others of that time were taken has the greater number too. */
		assert_int_equal(taken[i].number, all[i].number);
	}
	free(all);
	free(taken);
	event_queue_fini(&queue);
}

static void test_pool(void **state)
{
	(void)state;
	struct pool pool = POOL_INIT(uint64_t);
	uint32_t indexes[1000];
	for (size_t i = 0; i < COUNT_OF(indexes); i++) {
		indexes[i] = pool_take(&pool);
		uint64_t *item = pool_at(&pool, indexes[i]);
		assert_int_equal(*item, 0);
		*item = i + 1;
	}
	assert_int_equal(pool_out_count(&pool), COUNT_OF(indexes));
	for (size_t i = 0; i < COUNT_OF(indexes); i++)
		assert_int_equal(*(uint64_t *)pool_at(&pool, indexes[i]), i + 1);
	for (size_t i = 0; i < COUNT_OF(indexes); i += 2)
		pool_give(&pool, indexes[i]);
	/* What is given back is taken before anything grows. */
	uint32_t capacity = pool.capacity;
	for (size_t i = 0; i < COUNT_OF(indexes); i += 2)
		assert_true(pool_take(&pool) < capacity);
	assert_int_equal(pool_out_count(&pool), COUNT_OF(indexes));
	pool_fini(&pool);
}

static void test_fine_error(void **state)
{
	(void)state;
	struct fine *fine = must_alloc(sizeof(*fine));
	struct rng rng;
	rng_seed(&rng, 2);
	for (size_t i = 0; i < 20000; i++) {
		int64_t value = (int64_t)(rng_u64(&rng) >> (24 + rng_below(&rng, 40)));
		fine_init(fine);
		fine_feed(fine, value);
		fine_feed(fine, INT64_MAX);
		int64_t found = fine_quantile_ns(fine, 500000), off = found > value ? found - value : value - found;
		if (off * 512 > value)
			fail_msg("%lld became %lld", (long long)value, (long long)found);
	}
	free(fine);
}

static void test_fine_odd(void **state)
{
	(void)state;
	struct fine *fine = must_alloc(sizeof(*fine)), *other = must_alloc(sizeof(*other));
	fine_init(fine);
	assert_int_equal(fine_quantile_ns(fine, 990000), -1);
	assert_int_equal(fine_mean_ns(fine), -1);
	fine_feed(fine, -5);
	assert_int_equal(fine_quantile_ns(fine, 0), 0);
	assert_int_equal(fine_quantile_ns(fine, 1000000), 0);
	fine_init(fine);
	fine_init(other);
	/* Exact ranks: below 256 each value has its own bucket. */
	for (int64_t value = 1; value <= 200; value++)
		fine_feed(value <= 100 ? fine : other, value);
	fine_merge(fine, other);
	assert_int_equal(fine_quantile_ns(fine, 500000), 100);
	assert_int_equal(fine_quantile_ns(fine, 500001), 101);
	assert_int_equal(fine_quantile_ns(fine, 990000), 198);
	assert_int_equal(fine_quantile_ns(fine, 1000000), 200);
	assert_int_equal(fine_quantile_ns(fine, 0), 1);
	assert_int_equal(fine_mean_ns(fine), 101); /* 100.5, rounded */
	assert_int_equal(fine->max_ns, 200);
	/* Beyond its range it saturates, and the maximum is exact. */
	fine_init(fine);
	fine_feed(fine, (int64_t)1 << 50);
	assert_int_equal(fine->max_ns, (int64_t)1 << 50);
	assert_true(fine_quantile_ns(fine, 500000) > (int64_t)1 << 39);
	free(fine);
	free(other);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_empty),           cmocka_unit_test(test_equal_times),
		cmocka_unit_test(test_against_sorting), cmocka_unit_test(test_pool),
		cmocka_unit_test(test_fine_error),      cmocka_unit_test(test_fine_odd),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
