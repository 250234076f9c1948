/* Expiry with a hand-wound clock, over a real store. (What the keeper's thread does to nodes is in t_sched_cancel.) */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "../plug/store_world.h"
#include "base/clock.h"
#include "folder/keeper.h"

#define DAY_US   (24 * 3600 * SEC_US)
#define START_US (1800000000 * SEC_US) /* 2027-01-15T08:00:00Z */

struct told {
	char text[1024];
	size_t count;
};

static void told_expired(void *owner, const struct store_transfer *transfer)
{
	struct told *told = owner;

	told->text[told->count++] = transfer->id[ULID_SIZE - 2];
	told->text[told->count] = '\0';
	assert_int_equal(transfer->state, TRANSFER_FAILED);
}

static void expect_expired(struct world *w, int64_t expiry_us, int64_t now_wall_us, const char *expected)
{
	struct told told = { .text = "" };
	size_t count = 99;

	assert_int_equal(keeper_expire(w->store, expiry_us, now_wall_us, told_expired, &told, &count, &w->err), 0);
	assert_string_equal(told.text, expected);
	assert_int_equal(count, strlen(expected));
}

static void planned_at(struct world *w, const char *id, const char *batch, int64_t updated_wall_us)
{
	struct store_transfer t = transfer_make(id, batch, 1, 1);
	struct store_plan *plan;

	t.updated_wall_us = updated_wall_us;
	plan = plan_rows(w, &t, 1);
	assert_int_equal(w->store->ops->plan_commit(&plan, &t, &w->err), 0);
}

static void test_expires_by_time_alone(void **state)
{
	struct world *w = *state;
	struct store_transfer t;

	planned_at(w, id_a, "q3", START_US);
	planned_at(w, id_b, "q4", START_US + DAY_US);
	expect_expired(w, 7 * DAY_US, START_US, "");
	expect_expired(w, 7 * DAY_US, START_US + 7 * DAY_US, "");
	expect_expired(w, 7 * DAY_US, START_US + 7 * DAY_US + 1, "A");
	assert_int_equal(w->store->ops->transfer_get(w->store, id_a, &t, &w->err), 0);
	assert_int_equal(t.state, TRANSFER_FAILED);
	assert_string_equal(t.reason, "expired: no progress since 2027-01-15T08:00:00.000Z");
	assert_true(t.is_retryable);
	assert_int_equal(t.updated_wall_us, START_US + 7 * DAY_US + 1);
	/* Once only. A clock that goes backwards changes nothing. */
	expect_expired(w, 7 * DAY_US, START_US + 7 * DAY_US + 1, "");
	expect_expired(w, 7 * DAY_US, 0, "");
	expect_expired(w, 7 * DAY_US, START_US + 30 * DAY_US, "B");
}

static void test_progress_puts_it_off(void **state)
{
	struct world *w = *state;
	struct store_transfer t;

	planned_at(w, id_a, "q3", START_US);
	assert_int_equal(w->store->ops->transfer_get(w->store, id_a, &t, &w->err), 0);
	/* As when a merge gave it back. */
	assert_int_equal(w->store->ops->transfer_move(w->store, &t, TRANSFER_UPLOADING, "to be sent again", true,
						      START_US + 6 * DAY_US, &w->err),
			 0);
	expect_expired(w, 7 * DAY_US, START_US + 8 * DAY_US, "");
	expect_expired(w, 7 * DAY_US, START_US + 13 * DAY_US + 1, "A");
}

/* More than one page of them. */
static void test_many_expire_in_one_round(void **state)
{
	enum { MANY = 150 };
	struct world *w = *state;
	struct told told = { .text = "" };
	size_t count = 0;

	for (int i = 0; i < MANY; i++) {
		char id[ULID_SIZE];

		ulid_make(START_US, id);
		planned_at(w, id, "q3", START_US);
	}
	assert_int_equal(keeper_expire(w->store, DAY_US, START_US + 2 * DAY_US, told_expired, &told, &count, &w->err),
			 0);
	assert_int_equal(count, MANY);
	assert_int_equal(told.count, MANY);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_expires_by_time_alone),
		CASE(test_progress_puts_it_off),
		CASE(test_many_expire_in_one_round),
	};

	return drivers_run(tests, COUNT_OF(tests));
}
