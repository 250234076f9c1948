/* The pool against nodes that answer as told. Waits are for conditions, never for times; an interval of an hour shows what needs no waiting. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "fake_node.h"
#include "folder/pool.h"
#include "folder/pool_health.h"

#define NEVER_US  (3600 * SEC_US)
#define OFTEN_US  (30 * MSEC_US)
#define PROBE_US  (2 * SEC_US)
#define KEY       "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define NODES_MAX 8

/* --- a store that knows nodes only --- */

static const struct internal_key shown_key = { .header = "X-Internal-Key: " KEY };
static struct {
	struct store store;
	struct store_node nodes[NODES_MAX];
	size_t count;
	bool is_failing;
} memory;

static int told_save(struct store *store, const struct store_node *node, struct err *err)
{
	size_t i = 0;

	(void)store;
	if (memory.is_failing)
		return err_set(err, ERR_STORE, "made to fail");
	while (i < memory.count && strcmp(memory.nodes[i].id, node->id) != 0)
		i++;
	assert_true(i < NODES_MAX);
	memory.nodes[i] = *node;
	memory.count = max_size(memory.count, i + 1);
	return 0;
}
static int told_list(struct store *store, int (*each)(void *owner, const struct store_node *node), void *owner,
		     struct err *err)
{
	(void)store;
	(void)err;
	for (size_t i = 0; i < memory.count && each(owner, &memory.nodes[i]) == 0; i++)
		;
	return 0;
}
/* Orders have a test and a true store of their own: t_pool_order. */
static int no_orders(struct store *store, int (*each)(void *owner, const struct store_order *order), void *owner,
		     struct err *err)
{
	(void)store, (void)each, (void)owner, (void)err;
	return 0;
}
static const struct store_ops told_ops = { .node_save = told_save, .node_list = told_list, .order_list = no_orders };

/* --- the pool under test, and waiting for what it finds --- */

static struct pool *pool;
static struct fake_node nodes[3];
static pthread_mutex_t change_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t change_cond = PTHREAD_COND_INITIALIZER;
static unsigned change_count;

static void on_change(void *owner)
{
	(void)owner;
	pthread_mutex_lock(&change_lock);
	change_count++;
	pthread_cond_broadcast(&change_cond);
	pthread_mutex_unlock(&change_lock);
}

static int set_up(void **state)
{
	(void)state;
	memset(&memory, 0, sizeof(memory));
	memset(nodes, 0, sizeof(nodes));
	memory.store.ops = &told_ops;
	change_count = 0;
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	pool_stop(&pool);
	for (size_t i = 0; i < COUNT_OF(nodes); i++)
		fake_stop(&nodes[i]);
	return 0;
}

static void start(int64_t interval_us)
{
	const struct pool_options options = { .store = &memory.store,
					      .internal_key = &shown_key,
					      .probe_interval_us = interval_us,
					      .probe_timeout_us = PROBE_US };

	assert_int_equal(pool_start(&options, &pool, NULL), 0);
	pool_on_change(pool, on_change, NULL);
}

static struct store_node row_of(const struct fake_node *fake)
{
	struct store_node node = { .weight_milli = 1000, .domain = "rack1" };

	snprintf(node.id, sizeof(node.id), "%s", fake->id);
	snprintf(node.addr, sizeof(node.addr), "%s", fake->addr);
	snprintf(node.incarnation, sizeof(node.incarnation), "%s", fake->incarnation);
	return node;
}

static int register_fake(const struct fake_node *fake, struct err *err)
{
	struct store_node node = row_of(fake);

	return pool_register(pool, &node, err);
}

typedef bool condition_fn(const struct pool_node *node);
static bool is_working(const struct pool_node *node) { return node->takes_work; }
static bool is_idle(const struct pool_node *node) { return !node->takes_work; }
static bool is_probed(const struct pool_node *node) { return node->probed_mono_us != 0; }
static bool is_healthy(const struct pool_node *node) { return node->state == MEMBER_HEALTHY; }
static bool is_unreachable(const struct pool_node *node) { return node->state == MEMBER_UNREACHABLE; }
static bool has_missed(const struct pool_node *node) { return node->missed_count > 0; }

/* Not every field announces itself, so the wait also looks now and then. */
static struct pool_node wait_for(const char *id, condition_fn *condition)
{
	struct pool_node node = { .id = "" };
	int64_t deadline_us = clock_mono_us() + 20 * SEC_US;

	while (!pool_get(pool, id, &node) || !condition(&node)) {
		struct timespec until;

		if (clock_mono_us() > deadline_us)
			fail_msg("node %s did not come to be as awaited: %s, %s", id, member_state_name(node.state),
				 node.diagnosis);
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_nsec += 5000000;
		until.tv_sec += until.tv_nsec / 1000000000;
		until.tv_nsec %= 1000000000;
		pthread_mutex_lock(&change_lock);
		(void)pthread_cond_timedwait(&change_cond, &change_lock, &until);
		pthread_mutex_unlock(&change_lock);
	}
	return node;
}

static size_t ring_size(uint64_t *ret_version)
{
	struct pool_ring *ring = pool_ring_get(pool);
	size_t count = ring_node_count(ring->ring);

	if (ret_version)
		*ret_version = ring->version;
	pool_ring_put(pool, ring);
	return count;
}

/* --- coming and going --- */

static void a_new_node_works_at_its_first_probe(void **state)
{
	struct pool_node node;
	uint64_t before, after;

	(void)state;
	start(NEVER_US);
	assert_int_equal(ring_size(&before), 0);
	fake_start(&nodes[0], "n1", "one");
	assert_int_equal(register_fake(&nodes[0], NULL), 0);
	node = wait_for("n1", is_working);
	assert_int_equal(node.state, MEMBER_HEALTHY);
	assert_string_equal(node.addr, nodes[0].addr);
	assert_string_equal(node.domain, "rack1");
	assert_int_equal(node.free_bytes, 100 * (uint64_t)GIB - 1000); /* less what is reserved */
	assert_int_equal(node.inodes_free, 1000000);
	assert_int_equal(ring_size(&after), 1);
	assert_true(after > before);
	assert_int_equal(memory.count, 1);
}

static void known_nodes_are_probed_after_a_restart(void **state)
{
	(void)state;
	fake_start(&nodes[0], "n1", "one");
	memory.nodes[memory.count++] = row_of(&nodes[0]);
	memory.nodes[memory.count] = row_of(&nodes[0]);
	snprintf(memory.nodes[memory.count++].id, STORE_NODE_ID_SIZE, "bad id"); /* left out, in the log */
	start(NEVER_US);
	wait_for("n1", is_working);
	assert_int_equal(pool_list(pool, NULL, 0), 1);
}

static void three_misses_out_two_good_back(void **state)
{
	struct pool_node node;
	unsigned good;

	(void)state;
	start(OFTEN_US);
	fake_start(&nodes[0], "n1", "one");
	assert_int_equal(register_fake(&nodes[0], NULL), 0);
	wait_for("n1", is_working);
	pthread_mutex_lock(&nodes[0].lock);
	nodes[0].is_failing = true;
	pthread_mutex_unlock(&nodes[0].lock);
	node = wait_for("n1", is_unreachable);
	assert_true(node.missed_count >= 3);
	assert_false(node.takes_work);
	assert_true(node.diagnosis[0] != '\0');
	assert_int_equal(ring_size(NULL), 0);
	good = atomic_load(&nodes[0].good_count);
	pthread_mutex_lock(&nodes[0].lock);
	nodes[0].is_failing = false;
	pthread_mutex_unlock(&nodes[0].lock);
	node = wait_for("n1", is_healthy);
	assert_true(atomic_load(&nodes[0].good_count) - good >= 2);
	assert_true(node.takes_work);
	assert_string_equal(node.diagnosis, "");
	assert_int_equal(ring_size(NULL), 1);
}

/* One missed probe is not yet a reason to send nothing. */
static void one_miss_is_no_reason(void **state)
{
	struct pool_node node;

	(void)state;
	start(300 * MSEC_US);
	fake_start(&nodes[0], "n1", "one");
	assert_int_equal(register_fake(&nodes[0], NULL), 0);
	wait_for("n1", is_working);
	pthread_mutex_lock(&nodes[0].lock);
	nodes[0].is_failing = true;
	pthread_mutex_unlock(&nodes[0].lock);
	node = wait_for("n1", has_missed);
	assert_in_range(node.missed_count, 1, 2);
	assert_true(node.takes_work);
	assert_int_equal(ring_size(NULL), 1);
	assert_true(node.diagnosis[0] != '\0');
}

/* --- disks --- */

static void a_low_disk_is_out_and_comes_back(void **state)
{
	struct pool_node node;

	(void)state;
	start(OFTEN_US);
	fake_start(&nodes[0], "n1", "one");
	nodes[0].is_low = true;
	assert_int_equal(register_fake(&nodes[0], NULL), 0);
	node = wait_for("n1", is_healthy);
	assert_true(node.is_disk_low);
	assert_false(node.takes_work);
	assert_int_equal(ring_size(NULL), 0);
	pthread_mutex_lock(&nodes[0].lock);
	nodes[0].is_low = false;
	pthread_mutex_unlock(&nodes[0].lock);
	wait_for("n1", is_working);
	assert_int_equal(ring_size(NULL), 1);
}

static void a_reported_low_disk_is_out_at_once(void **state)
{
	struct pool_node node;
	unsigned changes;

	(void)state;
	start(NEVER_US);
	fake_start(&nodes[0], "n1", "one");
	assert_int_equal(register_fake(&nodes[0], NULL), 0);
	wait_for("n1", is_working);
	pthread_mutex_lock(&change_lock);
	changes = change_count;
	pthread_mutex_unlock(&change_lock);
	pool_report_disk_low(pool, "n1");
	assert_true(pool_get(pool, "n1", &node));
	assert_false(node.takes_work);
	assert_int_equal(ring_size(NULL), 0);
	pool_report_disk_low(pool, "unknown"); /* nothing happens */
	/* A registration has it probed, and the probe knows better. */
	assert_int_equal(register_fake(&nodes[0], NULL), 0);
	wait_for("n1", is_working);
	pthread_mutex_lock(&change_lock);
	while (change_count == changes)
		pthread_cond_wait(&change_cond, &change_lock);
	pthread_mutex_unlock(&change_lock);
}

static void a_failed_disk_is_out_at_once(void **state)
{
	struct pool_node node;

	(void)state;
	start(OFTEN_US);
	fake_start(&nodes[0], "n1", "one");
	assert_int_equal(register_fake(&nodes[0], NULL), 0);
	wait_for("n1", is_working);
	pthread_mutex_lock(&nodes[0].lock);
	snprintf(nodes[0].diagnosis, sizeof(nodes[0].diagnosis), "/data is read-only");
	pthread_mutex_unlock(&nodes[0].lock);
	node = wait_for("n1", is_idle);
	assert_int_equal(node.state, MEMBER_HEALTHY);
	assert_string_equal(node.diagnosis, "/data is read-only");
	assert_int_equal(ring_size(NULL), 0);
}

/* --- what nodes report --- */

static void fill_message(const struct fake_node *fake, struct report_message *message)
{
	static uint64_t sequence;

	memset(message, 0, sizeof(*message));
	snprintf(message->node_id, sizeof(message->node_id), "%s", fake->id);
	snprintf(message->incarnation, sizeof(message->incarnation), "%s", fake->incarnation);
	message->sequence = ++sequence;
	report_init(&message->report);
	message->report.cpu_cores_milli = 4000;
	message->report.cpu_busy_milli = 400;
	message->report.started_wall_us = 1700000000000000;
}

static uint32_t ring_weight(const char *id)
{
	struct pool_ring *ring = pool_ring_get(pool);
	uint32_t weight_milli = 0;

	assert_int_equal(ring->node_count, ring_node_count(ring->ring));
	for (size_t i = 0; i < ring->node_count; i++) {
		if (strcmp(ring->nodes[i].id, id) == 0)
			weight_milli = ring->nodes[i].weight_milli;
	}
	pool_ring_put(pool, ring);
	return weight_milli;
}

/* The listeners are told of a new ring, and whoever asks for one has the new weight. */
static void await_weight(const char *id, uint32_t weight_milli)
{
	int64_t deadline_us = clock_mono_us() + 20 * SEC_US;
	unsigned seen = 0;

	while (ring_weight(id) != weight_milli) {
		struct timespec until;

		assert_true(clock_mono_us() < deadline_us);
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_sec += 5;
		pthread_mutex_lock(&change_lock);
		while (change_count == seen && pthread_cond_timedwait(&change_cond, &change_lock, &until) == 0)
			;
		seen = change_count;
		pthread_mutex_unlock(&change_lock);
	}
}

static void a_busy_node_gets_less(void **state)
{
	struct report_message message;
	struct pool_judged *judged;
	struct pool_verdict verdict;

	(void)state;
	start(NEVER_US);
	for (size_t i = 0; i < 2; i++) {
		fake_start(&nodes[i], i == 0 ? "n1" : "n2", "one");
		assert_int_equal(register_fake(&nodes[i], NULL), 0);
		wait_for(nodes[i].id, is_working);
	}
	assert_int_equal(ring_weight("n1"), 1000);
	fill_message(&nodes[0], &message);
	message.report.cpu_busy_milli = 3600;
	assert_int_equal(pool_report(pool, &message, NULL), 0);
	await_weight("n1", 600);
	assert_int_equal(ring_weight("n2"), 1000);
	assert_int_equal(pool_judged(pool, &judged, &verdict), 2);
	assert_int_equal(judged[0].output.score_ppm, 600000);
	assert_int_equal(judged[0].ring_milli, 600);
	assert_int_equal(judged[0].report.cpu_busy_milli, 3600);
	assert_true(judged[0].report_age_us >= 0);
	assert_int_equal(judged[0].sources[HEALTH_PROBE].word, HEALTH_GOOD);
	assert_int_equal(judged[0].sources[HEALTH_HEARTBEAT].word, HEALTH_GOOD);
	assert_int_equal(judged[0].sources[HEALTH_GOSSIP].word, HEALTH_UNKNOWN);
	assert_int_equal(judged[1].report_age_us, -1);
	assert_string_equal(verdict.profile.name, "folder");
	assert_true(verdict.table_version > 0);
	free(judged);
	fill_message(&nodes[0], &message);
	message.report.cpu_busy_milli = 3000; /* 75 %: as it was */
	assert_int_equal(pool_report(pool, &message, NULL), 0);
	fill_message(&nodes[0], &message);
	message.report.cpu_busy_milli = 2700;
	assert_int_equal(pool_report(pool, &message, NULL), 0);
	await_weight("n1", 1000);
}

static void a_folder_that_fails_is_said(void **state)
{
	struct report_message message;
	struct pool_judged *judged;
	struct pool_verdict verdict;
	struct pool_node node;

	(void)state;
	start(NEVER_US);
	fake_start(&nodes[0], "n1", "one");
	assert_int_equal(register_fake(&nodes[0], NULL), 0);
	wait_for("n1", is_working);
	fill_message(&nodes[0], &message);
	message.dir_count = 2;
	snprintf(message.dirs[0].path, sizeof(message.dirs[0].path), "/srv/a");
	snprintf(message.dirs[1].path, sizeof(message.dirs[1].path), "/srv/b");
	snprintf(message.dirs[1].diagnosis, sizeof(message.dirs[1].diagnosis), "/srv/b is\nread-only");
	message.report.dirs_failed = 1;
	assert_int_equal(pool_report(pool, &message, NULL), 0);
	node = wait_for("n1", is_idle);
	assert_int_equal(node.state, MEMBER_HEALTHY);
	assert_string_equal(node.diagnosis, "/srv/b is\\x0aread-only");
	fill_message(&nodes[0], &message);
	message.dir_count = 1;
	message.report.dirs_failed = 0;
	assert_int_equal(pool_report(pool, &message, NULL), 0);
	node = wait_for("n1", is_working);
	assert_string_equal(node.diagnosis, "");
	/* One that comes late, after a newer one, says nothing of the folders either. */
	message.sequence--;
	message.report.dirs_failed = 1;
	snprintf(message.dirs[0].diagnosis, sizeof(message.dirs[0].diagnosis), "/srv/a is read-only");
	assert_int_equal(pool_report(pool, &message, NULL), 0);
	assert_int_equal(pool_judged(pool, &judged, &verdict), 1);
	assert_string_equal(judged[0].dirs[0].diagnosis, "");
	free(judged);
}

/* Nobody has seen yet whether it can be reached, and how much space it has. */
static void a_report_before_the_first_probe_is_no_work(void **state)
{
	struct report_message message;
	struct pool_node node;

	(void)state;
	start(OFTEN_US);
	fake_start(&nodes[0], "n1", "one");
	nodes[0].is_failing = true;
	assert_int_equal(register_fake(&nodes[0], NULL), 0);
	fill_message(&nodes[0], &message);
	assert_int_equal(pool_report(pool, &message, NULL), 0);
	node = wait_for("n1", has_missed);
	assert_false(node.takes_work);
	assert_int_equal(ring_size(NULL), 0);
	pthread_mutex_lock(&nodes[0].lock);
	nodes[0].is_failing = false;
	pthread_mutex_unlock(&nodes[0].lock);
	wait_for("n1", is_working);
}

static void reports_that_are_refused(void **state)
{
	struct report_message message;
	struct err err = ERR_INIT;

	(void)state;
	start(NEVER_US);
	fake_start(&nodes[0], "n1", "one");
	fill_message(&nodes[0], &message);
	assert_int_equal(pool_report(pool, &message, &err), -ERR_STATE);
	assert_non_null(strstr(err.text, "n1"));
	assert_int_equal(register_fake(&nodes[0], NULL), 0);
	snprintf(message.incarnation, sizeof(message.incarnation), "two");
	assert_int_equal(pool_report(pool, &message, &err), -ERR_NODE_CONFLICT);
	assert_non_null(strstr(err.text, nodes[0].addr));
}

/* A replacement is not blamed for what its forerunner said. */
static void a_replacement_begins_anew(void **state)
{
	struct report_message message;
	struct pool_judged *judged;
	struct pool_verdict verdict;

	(void)state;
	start(NEVER_US);
	fake_start(&nodes[0], "n1", "one");
	fake_start(&nodes[1], "n1", "two");
	assert_int_equal(register_fake(&nodes[0], NULL), 0);
	wait_for("n1", is_working);
	fill_message(&nodes[0], &message);
	message.dir_count = 1;
	snprintf(message.dirs[0].diagnosis, sizeof(message.dirs[0].diagnosis), "broken");
	message.report.dirs_failed = 1;
	assert_int_equal(pool_report(pool, &message, NULL), 0);
	wait_for("n1", is_idle);
	fake_stop(&nodes[0]);
	assert_int_equal(register_fake(&nodes[1], NULL), 0);
	wait_for("n1", is_working);
	assert_int_equal(pool_judged(pool, &judged, &verdict), 1);
	assert_int_equal(judged[0].report_age_us, -1);
	assert_int_equal(judged[0].dir_count, 0);
	free(judged);
}

/* --- who is who --- */

static void another_node_at_the_address(void **state)
{
	struct pool_node node;
	struct store_node row;

	(void)state;
	start(NEVER_US);
	fake_start(&nodes[0], "n2", "one");
	row = row_of(&nodes[0]);
	snprintf(row.id, sizeof(row.id), "n1");
	assert_int_equal(pool_register(pool, &row, NULL), 0);
	node = wait_for("n1", is_probed);
	assert_false(node.takes_work);
	assert_non_null(strstr(node.diagnosis, "n2"));
	assert_int_equal(ring_size(NULL), 0);
}

static void two_live_nodes_with_one_id(void **state)
{
	struct err err = ERR_INIT;
	struct pool_node node;

	(void)state;
	start(NEVER_US);
	fake_start(&nodes[0], "n1", "one");
	fake_start(&nodes[1], "n1", "two");
	assert_int_equal(register_fake(&nodes[0], NULL), 0);
	wait_for("n1", is_working);
	assert_int_equal(register_fake(&nodes[1], &err), -ERR_NODE_CONFLICT);
	assert_non_null(strstr(err.text, nodes[0].addr));
	assert_non_null(strstr(err.text, nodes[1].addr));
	assert_true(err.hint[0] != '\0');
	assert_true(pool_get(pool, "n1", &node));
	assert_string_equal(node.addr, nodes[0].addr);
	assert_string_equal(memory.nodes[0].addr, nodes[0].addr);
}

/* Before the first probe the pool knows nothing of the former holder, and asks it. */
static void a_conflict_right_after_a_restart(void **state)
{
	struct err err = ERR_INIT;

	(void)state;
	fake_start(&nodes[0], "n1", "one");
	fake_start(&nodes[1], "n1", "two");
	memory.nodes[memory.count++] = row_of(&nodes[0]);
	start(NEVER_US);
	assert_int_equal(register_fake(&nodes[1], &err), -ERR_NODE_CONFLICT);
}

static void a_dead_node_is_replaced(void **state)
{
	struct pool_node node;

	(void)state;
	start(NEVER_US);
	fake_start(&nodes[0], "n1", "one");
	fake_start(&nodes[1], "n1", "two");
	assert_int_equal(register_fake(&nodes[0], NULL), 0);
	wait_for("n1", is_working);
	fake_stop(&nodes[0]);
	assert_int_equal(register_fake(&nodes[1], NULL), 0);
	assert_true(pool_get(pool, "n1", &node));
	assert_string_equal(node.addr, nodes[1].addr);
	assert_string_equal(node.incarnation, "two");
	wait_for("n1", is_working);
}

static void a_node_restarts_in_place(void **state)
{
	struct pool_node node;

	(void)state;
	start(NEVER_US);
	fake_start(&nodes[0], "n1", "one");
	assert_int_equal(register_fake(&nodes[0], NULL), 0);
	wait_for("n1", is_working);
	pthread_mutex_lock(&nodes[0].lock);
	snprintf(nodes[0].incarnation, sizeof(nodes[0].incarnation), "two");
	pthread_mutex_unlock(&nodes[0].lock);
	assert_int_equal(register_fake(&nodes[0], NULL), 0);
	assert_true(pool_get(pool, "n1", &node));
	assert_string_equal(node.incarnation, "two");
}

static void registrations_that_are_refused(void **state)
{
	static const struct {
		const char *id, *addr, *incarnation;
		uint32_t weight_milli;
	} rows[] = {
		{ "", "127.0.0.1:1", "i", 1000 },
		{ "a b", "127.0.0.1:1", "i", 1000 },
		{ "../n", "127.0.0.1:1", "i", 1000 },
		{ "n1", "", "i", 1000 },
		{ "n1", "127.0.0.1", "i", 1000 },
		{ "n1", "127.0.0.1:", "i", 1000 },
		{ "n1", ":80", "i", 1000 },
		{ "n1", "127.0.0.1:0", "i", 1000 },
		{ "n1", "127.0.0.1:65536", "i", 1000 },
		{ "n1", "host/path:80", "i", 1000 },
		{ "n1", "user@host:80", "i", 1000 },
		{ "n1", "a:b:80", "i", 1000 },
		{ "n1", "[::1:80", "i", 1000 },
		{ "n1", "127.0.0.1:1", "", 1000 },
		{ "n1", "127.0.0.1:1", "i", POOL_WEIGHT_MAX_MILLI + 1 },
	};

	(void)state;
	start(NEVER_US);
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct store_node node = { .weight_milli = rows[i].weight_milli };

		snprintf(node.id, sizeof(node.id), "%s", rows[i].id);
		snprintf(node.addr, sizeof(node.addr), "%s", rows[i].addr);
		snprintf(node.incarnation, sizeof(node.incarnation), "%s", rows[i].incarnation);
		if (pool_register(pool, &node, NULL) != -ERR_BAD_REQUEST)
			fail_msg("row %zu was not refused", i);
	}
	assert_int_equal(pool_list(pool, NULL, 0), 0);
	assert_true(pool_addr_is_valid(STR("[::1]:80")));
	assert_true(pool_addr_is_valid(STR("node-1.example_x:7081")));
}

/* What is not on disk has not happened. */
static void a_store_that_fails_registers_nothing(void **state)
{
	struct err err = ERR_INIT;

	(void)state;
	start(NEVER_US);
	fake_start(&nodes[0], "n1", "one");
	memory.is_failing = true;
	assert_int_equal(register_fake(&nodes[0], &err), -ERR_STORE);
	assert_int_equal(pool_list(pool, NULL, 0), 0);
}

/* --- the rest --- */

static void a_ring_in_use_outlives_changes(void **state)
{
	struct pool_ring *ring;

	(void)state;
	start(NEVER_US);
	fake_start(&nodes[0], "n1", "one");
	assert_int_equal(register_fake(&nodes[0], NULL), 0);
	wait_for("n1", is_working);
	ring = pool_ring_get(pool);
	pool_report_disk_low(pool, "n1");
	assert_int_equal(ring_size(NULL), 0);
	assert_int_equal(ring_node_count(ring->ring), 1);
	assert_string_equal(ring_node_id(ring->ring, 0), "n1");
	pool_ring_put(pool, ring);
}

static void receipts_are_counted(void **state)
{
	struct pool_node node;

	(void)state;
	start(NEVER_US);
	fake_start(&nodes[0], "n1", "one");
	assert_int_equal(register_fake(&nodes[0], NULL), 0);
	for (int i = 0; i < 3; i++)
		pool_count_receipt(pool, "n1");
	pool_count_receipt(pool, "unknown");
	assert_true(pool_get(pool, "n1", &node));
	assert_int_equal(node.chunk_count_in, 3);
	assert_false(pool_get(pool, "unknown", &node));
}

/* A node that takes the connection and says nothing must not hold up the end. */
static void stopping_does_not_wait_for_probes(void **state)
{
	struct store_node node = { .id = "n1", .incarnation = "i", .weight_milli = 1000 };
	struct sock_addr addr;
	int64_t began_us;
	int fd;

	(void)state;
	assert_int_equal(sock_addr_parse("127.0.0.1:0", &addr, NULL), 0);
	fd = sock_listen(&addr, false, NULL);
	assert_true(fd >= 0);
	assert_int_equal(sock_local(fd, &addr), 0);
	sock_addr_text(&addr, node.addr);
	start(NEVER_US);
	assert_int_equal(pool_register(pool, &node, NULL), 0);
	began_us = clock_mono_us();
	pool_stop(&pool);
	assert_null(pool);
	assert_true(clock_mono_us() - began_us < PROBE_US);
	close(fd);
}

static void a_halted_pool_answers_and_is_silent(void **state)
{
	struct pool_node node;
	unsigned changes;

	(void)state;
	start(OFTEN_US);
	fake_start(&nodes[0], "n1", "one");
	assert_int_equal(register_fake(&nodes[0], NULL), 0);
	wait_for("n1", is_working);
	pool_halt(pool);
	pool_halt(pool);
	changes = change_count;
	pool_report_disk_low(pool, "n1");
	assert_true(pool_get(pool, "n1", &node));
	assert_true(node.is_disk_low);
	assert_int_equal(change_count, changes);
}

static void health_answers_that_are_none(void **state)
{
	static const char *const rows[] = {
		"",
		"[]",
		"{",
		"null",
		"{}",
		"{\"status\":\"ok\"}",
		"{\"status\":\"ok\",\"node_id\":\"n1\"}",
		"{\"status\":\"ok\",\"node_id\":\"n 1\",\"incarnation\":\"i\"}",
		"{\"status\":\"ok\",\"node_id\":\"n1\",\"incarnation\":\"i\",\"free_bytes\":1}",
		"{\"status\":\"ok\",\"node_id\":\"n1\",\"incarnation\":\"i\",\"free_bytes\":-1,\"total_bytes\":1,"
		"\"inodes_free\":1,\"reserved_bytes\":0}",
		"{\"status\":\"ok\",\"node_id\":\"n1\",\"incarnation\":\"i\",\"free_bytes\":\"1\",\"total_bytes\":1,"
		"\"inodes_free\":1,\"reserved_bytes\":0}",
		"{\"status\":\"ok\",\"node_id\":\"n1\",\"node_id\":\"n2\",\"incarnation\":\"i\",\"free_bytes\":1,"
		"\"total_bytes\":1,\"inodes_free\":1,\"reserved_bytes\":0}",
	};
	struct pool_health health;

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		if (pool_health_parse(str_from(rows[i]), &health, NULL) != -ERR_PEER)
			fail_msg("row %zu passed for a health answer", i);
	}
	/* More reserved than free is nothing free, not a huge number. */
	assert_int_equal(
		pool_health_parse(STR("{\"status\":\"ok\",\"node_id\":\"n1\",\"incarnation\":\"i\",\"free_bytes\":5,"
				      "\"total_bytes\":9,\"inodes_free\":1,\"reserved_bytes\":6}"),
				  &health, NULL),
		0);
	assert_int_equal(health.free_bytes, 0);
	assert_string_equal(health.fs_name, "");
	/* A name of a file system is 32 hex digits, or none. */
	static const struct {
		const char *told, *kept;
	} names[] = {
		{ "\"0123456789abcdef0123456789abcdef\"", "0123456789abcdef0123456789abcdef" },
		{ "\"0123456789abcdef0123456789abcdef0\"", "" },
		{ "\"0123456789abcdef0123456789abcde\"", "" },
		{ "\"0123456789abcdef0123456789abcdeg\"", "" },
		{ "\"\"", "" },
		{ "7", "" },
	};
	for (size_t i = 0; i < COUNT_OF(names); i++) {
		char text[256];
		(void)snprintf(text, sizeof(text),
			       "{\"status\":\"ok\",\"node_id\":\"n1\",\"incarnation\":\"i\",\"free_bytes\":5,"
			       "\"total_bytes\":9,\"inodes_free\":1,\"reserved_bytes\":0,\"fs\":%s}",
			       names[i].told);
		assert_int_equal(pool_health_parse(str_from(text), &health, NULL), 0);
		assert_string_equal(health.fs_name, names[i].kept);
	}
	/* A failed disk cannot tell its space. */
	assert_int_equal(pool_health_parse(STR("{\"status\":\"failed\",\"node_id\":\"n1\",\"incarnation\":\"i\"}"),
					   &health, NULL),
			 0);
	assert_true(health.diagnosis[0] != '\0');
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(a_new_node_works_at_its_first_probe),
		CASE(known_nodes_are_probed_after_a_restart),
		CASE(three_misses_out_two_good_back),
		CASE(one_miss_is_no_reason),
		CASE(a_low_disk_is_out_and_comes_back),
		CASE(a_reported_low_disk_is_out_at_once),
		CASE(a_failed_disk_is_out_at_once),
		CASE(a_busy_node_gets_less),
		CASE(a_folder_that_fails_is_said),
		CASE(a_report_before_the_first_probe_is_no_work),
		CASE(reports_that_are_refused),
		CASE(a_replacement_begins_anew),
		CASE(another_node_at_the_address),
		CASE(two_live_nodes_with_one_id),
		CASE(a_conflict_right_after_a_restart),
		CASE(a_dead_node_is_replaced),
		CASE(a_node_restarts_in_place),
		CASE(registrations_that_are_refused),
		CASE(a_store_that_fails_registers_nothing),
		CASE(a_ring_in_use_outlives_changes),
		CASE(receipts_are_counted),
		CASE(stopping_does_not_wait_for_probes),
		CASE(a_halted_pool_answers_and_is_silent),
		CASE(health_answers_that_are_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
