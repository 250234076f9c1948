#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "sys/timer.h"

#define START_US ((int64_t)1234567890123)

struct item {
	struct timer timer;
	int fired;
	int64_t fired_us;
	struct timer_wheel *wheel;
	struct timer *to_stop, *to_set;
	int64_t set_due_us;
};

static void on_fire(struct timer *timer, int64_t now_us)
{
	struct item *item = timer->owner;

	assert_int_equal(timer->due_us, 0);
	item->fired++;
	item->fired_us = now_us;
	if (item->to_stop)
		timer_stop(item->wheel, item->to_stop);
	if (item->to_set)
		timer_set(item->wheel, item->to_set, item->set_due_us);
}

static void make(struct item *item, struct timer_wheel *wheel)
{
	*item = (struct item){ .timer = { .fire = on_fire, .owner = item }, .wheel = wheel };
}

static void test_one(void **state)
{
	/* How long after the start it is due; the steps straddle that time. */
	static const int64_t delays_us[] = {
		-5000000,
		0,
		1,
		877,
		878,
		999,
		1000,
		62999,
		63000,
		64000,
		65000,
		4095000,
		4096000,
		4097123,
		262144000,
		16777216000,
		(int64_t)1 << 40,
		(int64_t)1 << 43,
		(int64_t)1 << 50,
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(delays_us); i++) {
		struct timer_wheel wheel;
		struct item item;
		int64_t due_us = START_US + delays_us[i];
		int64_t due_ms = (due_us + 999) / 1000;
		timer_wheel_init(&wheel, START_US);
		make(&item, &wheel);
		assert_int_equal(timer_wheel_wait_us(&wheel, START_US), -1);
		timer_set(&wheel, &item.timer, due_us);
		if (delays_us[i] > 1000) {
			/* A lower bound that is worth something, and the tick before. */
			int64_t wait_us = timer_wheel_wait_us(&wheel, START_US);
			assert_true(wait_us > 0 && wait_us <= due_ms * 1000 - START_US);
			assert_int_equal(timer_wheel_step(&wheel, due_ms * 1000 - 1), 0);
			assert_int_equal(item.fired, 0);
		}
		int64_t now_us = max_i64(due_ms * 1000, START_US);
		assert_int_equal(timer_wheel_wait_us(&wheel, now_us), 0);
		assert_int_equal(timer_wheel_step(&wheel, now_us), 1);
		assert_int_equal(item.fired, 1);
		assert_int_equal(item.fired_us, now_us);
		assert_int_equal(timer_wheel_step(&wheel, now_us + ((int64_t)1 << 51)), 0);
		assert_int_equal(timer_wheel_wait_us(&wheel, now_us), -1);
	}
}

static void test_waits_lead_there(void **state)
{
	struct timer_wheel wheel;
	struct item item;
	int64_t now_us = START_US, due_us = START_US + 5000000000 + 321;
	int steps = 0;

	(void)state;
	timer_wheel_init(&wheel, now_us);
	make(&item, &wheel);
	timer_set(&wheel, &item.timer, due_us);
	/* Sleeping as told: few wake-ups, and on time. */
	for (; item.fired == 0; steps++) {
		now_us += timer_wheel_wait_us(&wheel, now_us);
		(void)timer_wheel_step(&wheel, now_us);
	}
	assert_true(steps <= TIMER_LEVELS);
	assert_true(now_us >= due_us && now_us < due_us + 1000);
}

static void test_from_fire(void **state)
{
	struct timer_wheel wheel;
	struct item a, b, c;

	(void)state;
	timer_wheel_init(&wheel, START_US);
	make(&a, &wheel);
	make(&b, &wheel);
	make(&c, &wheel);
	/* Two due in one tick stop each other: exactly one fires. */
	a.to_stop = &b.timer;
	b.to_stop = &a.timer;
	timer_set(&wheel, &a.timer, START_US + 5000);
	timer_set(&wheel, &b.timer, START_US + 5000);
	assert_int_equal(timer_wheel_step(&wheel, START_US + 6000), 1);
	assert_int_equal(a.fired + b.fired, 1);
	assert_int_equal(wheel.set_count, 0);

	/* One that sets itself for the past: once a step, though the step spans much time. */
	make(&a, &wheel);
	a.to_set = &a.timer;
	a.set_due_us = 1;
	timer_set(&wheel, &a.timer, START_US);
	size_t fired = timer_wheel_step(&wheel, START_US + 6000);
	assert_int_equal(fired, 1);
	assert_int_equal(timer_wheel_step(&wheel, START_US + 6000), 0);
	assert_int_equal(timer_wheel_step(&wheel, START_US + 7000), 1);
	timer_stop(&wheel, &a.timer);

	/* One that sets another, due within the same step. */
	make(&a, &wheel);
	a.to_set = &c.timer;
	a.set_due_us = START_US + 200000;
	timer_set(&wheel, &a.timer, START_US + 100000);
	assert_int_equal(timer_wheel_step(&wheel, START_US + 300000), 2);
	assert_int_equal(c.fired, 1);

	/* Moved by another, from the tick that is being fired to a later one. */
	make(&a, &wheel);
	make(&b, &wheel);
	a.to_set = &b.timer;
	b.to_set = &a.timer;
	a.set_due_us = b.set_due_us = START_US + 900000;
	timer_set(&wheel, &a.timer, START_US + 400000);
	timer_set(&wheel, &b.timer, START_US + 400000);
	assert_int_equal(timer_wheel_step(&wheel, START_US + 500000), 1);
	assert_int_equal(wheel.set_count, 1);
	timer_stop(&wheel, &a.timer);
	timer_stop(&wheel, &b.timer);
	timer_stop(&wheel, &b.timer);
	assert_int_equal(timer_wheel_wait_us(&wheel, START_US), -1);
	/* A clock that goes back fires nothing. */
	timer_set(&wheel, &c.timer, START_US + 100);
	assert_int_equal(timer_wheel_step(&wheel, START_US), 0);
	assert_int_equal(timer_wheel_step(&wheel, START_US + 500000), 1);
}

/* Many timers against the plainest model: a list of due times. */
static void test_against_model(void **state)
{
	enum { ITEMS = 300, STEPS = 4000 };
	struct timer_wheel wheel;
	struct item *items = calloc(ITEMS, sizeof(*items));
	int64_t *due_ms = calloc(ITEMS, sizeof(*due_ms)); /* 0: not set */
	struct rng rng;
	int64_t now_us = START_US;

	(void)state;
	rng_seed(&rng, 42);
	timer_wheel_init(&wheel, now_us);
	for (int i = 0; i < ITEMS; i++)
		make(&items[i], &wheel);
	for (int step = 0; step < STEPS; step++) {
		for (int n = 0; n < 20; n++) {
			size_t i = rng_below(&rng, ITEMS);
			if (rng_below(&rng, 4) == 0) {
				timer_stop(&wheel, &items[i].timer);
				due_ms[i] = 0;
			} else {
				int64_t due_us = now_us + (int64_t)rng_below(&rng, (uint64_t)1 << rng_below(&rng, 42));
				timer_set(&wheel, &items[i].timer, due_us);
				due_ms[i] = (due_us + 999) / 1000;
			}
		}
		size_t set_count = 0;
		int64_t first_ms = INT64_MAX;
		for (int i = 0; i < ITEMS; i++) {
			set_count += due_ms[i] != 0;
			first_ms = due_ms[i] != 0 ? min_i64(first_ms, due_ms[i]) : first_ms;
		}
		assert_int_equal(wheel.set_count, set_count);
		if (set_count > 0)
			assert_true(timer_wheel_wait_us(&wheel, now_us) <= max_i64(0, first_ms * 1000 - now_us));
		now_us += (int64_t)rng_below(&rng, (uint64_t)1 << rng_below(&rng, 36));
		(void)timer_wheel_step(&wheel, now_us);
		for (int i = 0; i < ITEMS; i++) {
			bool is_due = due_ms[i] != 0 && due_ms[i] <= now_us / 1000;
			assert_int_equal(items[i].fired, is_due);
			items[i].fired = 0;
			due_ms[i] = is_due ? 0 : due_ms[i];
		}
	}
	free(items);
	free(due_ms);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one),
		cmocka_unit_test(test_waits_lead_there),
		cmocka_unit_test(test_from_fire),
		cmocka_unit_test(test_against_model),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
