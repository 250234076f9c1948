/* What operators order about nodes, over a true store: drained, lost, weighed, and all of it after a restart of the pool. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "fake_node.h"
#include "folder/pool.h"
#include "sys/fs.h"

#define OFTEN_US (30 * MSEC_US)
#define KEY      "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static const struct internal_key shown_key = { .header = "X-Internal-Key: " KEY };
static char dir[64];
static struct store *store;
static struct pool *pool;
static struct fake_node node;
static struct err err;

static void pool_up(void)
{
	const struct pool_options options = { .store = store,
					      .internal_key = &shown_key,
					      .probe_interval_us = OFTEN_US,
					      .probe_timeout_us = 2 * SEC_US };

	assert_int_equal(pool_start(&options, &pool, &err), 0);
}

static void register_node(uint32_t weight_milli)
{
	struct store_node row = { .weight_milli = weight_milli };

	snprintf(row.id, sizeof(row.id), "%s", node.id);
	snprintf(row.addr, sizeof(row.addr), "%s", node.addr);
	snprintf(row.incarnation, sizeof(row.incarnation), "%s", node.incarnation);
	assert_int_equal(pool_register(pool, &row, &err), 0);
}

static struct pool_node shown(void)
{
	struct pool_node now = { .id = "" };

	assert_true(pool_get(pool, "n1", &now));
	return now;
}

static struct pool_node await_state(enum member_state state, bool takes_work)
{
	int64_t deadline_us = clock_mono_us() + 20 * SEC_US;
	struct pool_node now = shown();

	while (now.state != state || now.takes_work != takes_work) {
		if (clock_mono_us() > deadline_us)
			fail_msg("n1 is %s and takes %s", member_state_name(now.state),
				 now.takes_work ? "work" : "none");
		usleep(1000);
		now = shown();
	}
	return now;
}

static int set_up(void **state)
{
	char path[128];

	(void)state;
	err = ERR_INIT;
	snprintf(dir, sizeof(dir), "/tmp/heng-t_pool_order-XXXXXX");
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/heng.db", dir);
	assert_int_equal(store_sqlite_open(path, &store, &err), 0);
	pool_up();
	fake_start(&node, "n1", "one");
	register_node(1000);
	await_state(MEMBER_HEALTHY, true);
	return 0;
}

static int tear_down(void **state)
{
	int fd = fs_open_dir("/tmp", NULL);

	(void)state;
	pool_stop(&pool);
	fake_stop(&node);
	store->ops->close(store);
	assert_int_equal(fs_remove_tree(fd, dir + 5, NULL), 0);
	close(fd);
	return 0;
}

static int order(enum pool_word word, uint32_t weight_milli)
{
	const struct pool_order wanted = { .word = word, .weight_milli = weight_milli };
	uint64_t lost_count = 99;
	int result = pool_order(pool, "n1", &wanted, NULL, &lost_count, &err);

	assert_int_equal(lost_count, 0);
	return result;
}

static void restart(void)
{
	pool_stop(&pool);
	pool_up();
}

static void a_drained_node_stays_so(void **state)
{
	struct pool_node now;

	(void)state;
	assert_int_equal(order(POOL_DRAIN, 0), 0);
	/* Not by the next tick: what is planned from now on must know. */
	now = shown();
	assert_int_equal(now.state, MEMBER_LEAVING);
	assert_int_equal(now.order, NODE_ORDER_DRAIN);
	assert_false(now.takes_work);
	assert_int_equal(order(POOL_DRAIN, 0), 0);
	register_node(1000);
	await_state(MEMBER_LEAVING, false);
	/* Its process goes and comes back. */
	pthread_mutex_lock(&node.lock);
	node.is_failing = true;
	pthread_mutex_unlock(&node.lock);
	await_state(MEMBER_UNREACHABLE, false);
	pthread_mutex_lock(&node.lock);
	node.is_failing = false;
	pthread_mutex_unlock(&node.lock);
	await_state(MEMBER_LEAVING, false);
	restart();
	assert_int_equal(shown().order, NODE_ORDER_DRAIN);
	await_state(MEMBER_LEAVING, false);
	assert_int_equal(order(POOL_READY, 0), 0);
	await_state(MEMBER_HEALTHY, true);
	assert_int_equal(order(POOL_READY, 0), 0);
	restart();
	await_state(MEMBER_HEALTHY, true);
	assert_int_equal(shown().order, NODE_ORDER_NONE);
}

static void an_ordered_weight_beats_the_nodes_own(void **state)
{
	struct pool_node now;

	(void)state;
	assert_int_equal(order(POOL_WEIGHT, 2000), 0);
	register_node(500);
	now = shown();
	assert_int_equal(now.weight_milli, 2000);
	assert_int_equal(now.weight_own_milli, 500);
	assert_true(now.is_weight_ordered);
	restart();
	assert_int_equal(shown().weight_milli, 2000);
	await_state(MEMBER_HEALTHY, true);
	assert_int_equal(order(POOL_WEIGHT, 0), 0);
	await_state(MEMBER_HEALTHY, false);
	/* A weight and a drain are two orders. */
	assert_int_equal(order(POOL_DRAIN, 0), 0);
	assert_int_equal(order(POOL_WEIGHT_AUTO, 0), 0);
	now = shown();
	assert_int_equal(now.weight_milli, 500);
	assert_false(now.is_weight_ordered);
	assert_int_equal(now.order, NODE_ORDER_DRAIN);
	assert_int_equal(order(POOL_WEIGHT, POOL_WEIGHT_MAX_MILLI + 1), -ERR_BAD_REQUEST);
	assert_int_equal(shown().weight_milli, 500);
}

static void a_lost_node_is_out_until_it_registers(void **state)
{
	struct report_message message = { .node_id = "n1", .incarnation = "one", .sequence = 1 };
	struct pool_node now;

	(void)state;
	report_init(&message.report);
	assert_int_equal(pool_lost_count(pool), 0);
	assert_int_equal(order(POOL_LOST, 0), 0);
	assert_int_equal(pool_lost_count(pool), 1);
	now = shown();
	assert_int_equal(now.state, MEMBER_UNREACHABLE);
	assert_int_equal(now.order, NODE_ORDER_LOST);
	assert_false(now.takes_work);
	/* It lives, says so, and is out all the same. */
	assert_int_equal(pool_report(pool, &message, &err), -ERR_STATE);
	assert_int_equal(order(POOL_DRAIN, 0), -ERR_STATE);
	assert_int_equal(order(POOL_READY, 0), -ERR_STATE);
	assert_int_equal(order(POOL_LOST, 0), 0);
	restart();
	now = shown();
	assert_int_equal(now.order, NODE_ORDER_LOST);
	assert_int_equal(now.state, MEMBER_UNREACHABLE);
	assert_false(now.takes_work);
	register_node(1000);
	await_state(MEMBER_HEALTHY, true);
	assert_int_equal(shown().order, NODE_ORDER_NONE);
	restart();
	await_state(MEMBER_HEALTHY, true);
}

static void orders_about_nobody(void **state)
{
	static const char *const ids[] = { "n2", "", "n 1", "../n1" };
	const struct pool_order wanted = { .word = POOL_DRAIN };
	uint64_t lost_count = 99;

	(void)state;
	for (size_t i = 0; i < COUNT_OF(ids); i++)
		assert_int_equal(pool_order(pool, ids[i], &wanted, NULL, &lost_count, &err), -ERR_NO_NODE);
	assert_int_equal(lost_count, 0);
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(a_drained_node_stays_so),
		CASE(an_ordered_weight_beats_the_nodes_own),
		CASE(a_lost_node_is_out_until_it_registers),
		CASE(orders_about_nobody),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
