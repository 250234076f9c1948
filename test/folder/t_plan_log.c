/* What plans leave in the decision log, on a real file; every line is computed again by the replay. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "core/decide.h"
#include "folder/plan_log.h"
#include "sys/fs.h"

#define PLAN_ID "01J0000000000000000000PLAN"
#define KEYS    2000

static char dir[64], path[128];
static struct logfile *file;
static struct ring_node nodes[] = {
	{ .id = "n1", .weight_milli = 1000 },
	{ .id = "n2", .weight_milli = 1000, .domain = "rack2" },
	{ .id = "n3", .weight_milli = 600 },
};
static struct ring *ring;

static int set_up(void **state)
{
	struct logfile_conf conf = {
		.path = path, .keep_count = 8, .sync_interval_us = SEC_US, .queue_bytes = 64 * MIB
	};

	(void)state;
	snprintf(dir, sizeof(dir), "/tmp/heng-t_plan_log-XXXXXX");
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/decisions.jsonl", dir);
	assert_int_equal(logfile_open(&conf, &file, NULL), 0);
	assert_int_equal(ring_build(nodes, COUNT_OF(nodes), &ring, NULL), 0);
	return 0;
}

static int tear_down(void **state)
{
	int fd = fs_open_dir("/tmp", NULL);

	(void)state;
	if (file)
		logfile_close(&file);
	ring_free(&ring);
	assert_int_equal(fs_remove_tree(fd, dir + 5, NULL), 0);
	close(fd);
	return 0;
}

static uint64_t key_of(uint64_t i) { return ring_hash_key(&i, sizeof(i)); }

/* Assigns KEYS keys of size 1..size_max, with a log and without one: both must place alike. Returns how many did not go to their owner. */
static size_t plan(bool is_every, uint64_t size_max, uint32_t epsilon_milli, bool is_committed)
{
	uint64_t total_bytes = 0;
	size_t spilled_count = 0;
	struct ring_batch *batch, *bare;
	struct plan_log *log;

	for (uint64_t i = 0; i < KEYS; i++)
		total_bytes += 1 + i * 7 % size_max;
	batch = ring_batch_new(ring, total_bytes, epsilon_milli);
	bare = ring_batch_new(ring, total_bytes, epsilon_milli);
	log = plan_log_new(&(struct plan_log_options){
		.file = file,
		.is_every = is_every,
		.plan_id = PLAN_ID,
		.ring = ring,
		.nodes = nodes,
		.node_count = COUNT_OF(nodes),
		.batch = batch,
		.total_bytes = total_bytes,
		.key_bytes_max = size_max,
		.epsilon_milli = epsilon_milli,
		.wall_us = clock_wall_us(),
	});
	for (uint64_t i = 0; i < KEYS; i++) {
		uint64_t size_bytes = 1 + i * 7 % size_max;
		int selected = plan_log_assign(log, key_of(i), size_bytes, STR("a \"path\"\n"), i);

		assert_int_equal(selected, ring_batch_assign(bare, key_of(i), size_bytes));
		spilled_count += selected != ring_owner(ring, key_of(i));
	}
	if (is_committed)
		plan_log_commit(log);
	plan_log_free(&log);
	ring_batch_free(&batch);
	ring_batch_free(&bare);
	assert_int_equal(logfile_sync(file, NULL), 0);
	return spilled_count;
}

/* Returns how many choices the log holds; all of them come out the same. */
static size_t replay(size_t *ret_line_count)
{
	struct decide_replay *again = decide_replay_new(NULL, PPM);
	struct buf text = BUF_INIT(64 * MIB);
	struct str rest, line;
	size_t choice_count = 0;

	*ret_line_count = 0;
	assert_int_equal(fs_read_file(path, text.limit, &text, NULL), 0);
	rest = buf_str(&text);
	while (str_cut(&rest, '\n', &line)) {
		struct decide_change change;
		enum decide_result result;
		struct err err = ERR_INIT;

		if (decide_replay_line(again, line, &result, &change, &err) < 0)
			fail_msg("%.*s\nis no line: %s", STR_ARG(line), err.text);
		if (result == DECIDE_OTHER)
			fail_msg("%.*s\ncomes out otherwise: %s", STR_ARG(line), change.what);
		choice_count += result == DECIDE_SAME;
		++*ret_line_count;
	}
	buf_fini(&text);
	decide_replay_free(&again);
	return choice_count;
}

static void a_batch_with_room_has_one_line(void **state)
{
	size_t line_count;

	(void)state;
	assert_int_equal(plan(false, 1000, 250, true), 0);
	assert_int_equal(replay(&line_count), 0);
	assert_int_equal(line_count, 1);
}

static void what_spills_has_a_line(void **state)
{
	size_t line_count, spilled_count = plan(false, 1000, 0, true);

	(void)state;
	assert_true(spilled_count > 0);
	assert_int_equal(replay(&line_count), spilled_count);
	assert_int_equal(line_count, spilled_count + 1);
}

/* One key as large as several shares: everybody is full, and it stays with its owner. */
static void keys_larger_than_any_share(void **state)
{
	size_t line_count;

	(void)state;
	plan(false, 1000000000, 0, true);
	replay(&line_count);
	plan(true, 1000000000, 0, true);
	assert_true(replay(&line_count) >= KEYS);
}

static void every_place_has_a_line(void **state)
{
	size_t line_count;

	(void)state;
	plan(true, 1000, 0, true);
	assert_int_equal(replay(&line_count), KEYS);
	assert_true(line_count > KEYS);
}

/* What was not planned in the end was not decided. */
static void a_plan_that_fails_leaves_nothing(void **state)
{
	size_t line_count;

	(void)state;
	assert_true(plan(false, 1000, 0, false) > 0);
	assert_int_equal(replay(&line_count), 0);
	assert_int_equal(line_count, 0);
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(a_batch_with_room_has_one_line),   CASE(what_spills_has_a_line),
		CASE(keys_larger_than_any_share),       CASE(every_place_has_a_line),
		CASE(a_plan_that_fails_leaves_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
