/* The pool's tick by a hand-wound clock: rules, bars, ring, log. Every line that is written is computed again by the replay. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/decide.h"
#include "folder/pool_judge.h"

#define NODES 4
#define WALL  1700000000000000

static struct pool_judge judge;
static struct pool_member members[NODES], *refs[NODES];
static size_t member_count;
static uint64_t sequence;
static int64_t now_us;
static struct buf lines;

static int set_up(void **state)
{
	(void)state;
	memset(members, 0, sizeof(members));
	now_us = 1000 * SEC_US;
	sequence = 0;
	member_count = 0;
	lines = BUF_INIT(16 * MIB);
	pool_judge_init(&judge, profile_builtin("folder"));
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	pool_judge_fini(&judge);
	buf_fini(&lines);
	return 0;
}

static struct pool_member *add(const char *id, uint32_t weight_milli)
{
	struct pool_member *member = &members[member_count];

	node_view_init(&member->view, id, weight_milli, MEMBER_HEALTHY, now_us);
	node_view_probe(&member->view, &member_rules_folder, true, now_us);
	refs[member_count++] = member;
	return member;
}

static struct report calm(void)
{
	struct report report;

	report_init(&report);
	report.cpu_cores_milli = 2000;
	report.cpu_busy_milli = 200;
	report.started_wall_us = WALL;
	return report;
}

static void give(struct pool_member *member, const struct report *report)
{
	node_view_report(&member->view, &member_rules_folder, report, ++sequence, now_us);
}

static bool step(void) { return pool_judge_step(&judge, refs, member_count, now_us, WALL + now_us, &lines); }

static size_t line_count(void)
{
	size_t count = 0;

	for (size_t i = 0; i < lines.size; i++)
		count += lines.data[i] == '\n';
	return count;
}

/* All that was written so far comes out the same when it is computed again. */
static void replay_all(void)
{
	struct decide_replay *replay = decide_replay_new(NULL, PPM);
	struct buf head = BUF_INIT(MIB);
	struct str rest = buf_str(&lines), line;
	struct decide_change change;
	enum decide_result result;
	struct err err = ERR_INIT;

	decide_write_profile(&head, &judge.profile, WALL);
	head.size--; /* the newline */
	assert_int_equal(decide_replay_line(replay, buf_str(&head), &result, &change, &err), 0);
	assert_int_equal(result, DECIDE_NO_CHOICE);
	while (str_cut(&rest, '\n', &line)) {
		if (decide_replay_line(replay, line, &result, &change, &err) < 0)
			fail_msg("a line of ours is none: %s", err.text);
		if (result != DECIDE_SAME)
			fail_msg("%.*s\ncomes out otherwise: %s", STR_ARG(line), change.what);
	}
	buf_fini(&head);
	decide_replay_free(&replay);
}

/* --- rules --- */

static void a_busy_node_gets_less_and_comes_back_late(void **state)
{
	/* The band between the marks keeps whatever was, from both sides. */
	static const struct {
		int64_t busy_milli;
		uint32_t weight_milli;
	} rows[] = {
		{ 1500, 1000 }, { 1600, 1000 }, { 1620, 600 },  { 2000, 600 }, { 1500, 600 },
		{ 1410, 600 },  { 1390, 1000 }, { 1500, 1000 }, { 1601, 600 }, { 0, 1000 },
	};
	struct pool_member *member = add("n1", 1000);
	struct report report = calm();

	(void)state;
	add("n2", 2000);
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		uint32_t before_milli = member->ring_milli;

		report.cpu_busy_milli = rows[i].busy_milli;
		give(member, &report);
		if (step() != (before_milli != rows[i].weight_milli))
			fail_msg("row %zu: the ring was%s to be made anew", i,
				 before_milli != rows[i].weight_milli ? "" : " not");
		if (member->ring_milli != rows[i].weight_milli || !member->takes_work)
			fail_msg("row %zu: weight %u", i, member->ring_milli);
		assert_int_equal(refs[1]->ring_milli, 2000);
		now_us += JUDGE_TICK_US;
	}
	replay_all();
}

static void a_trifle_does_not_move_the_ring(void **state)
{
	/* Slow disks: 1 at 50 ms, straight down to 0.3 at 500 ms. */
	static const struct {
		int64_t io_us;
		uint32_t ring_milli;
	} rows[] = {
		{ 0, 1000 },     { 50000, 1000 },  { 80000, 1000 }, /* 0.953 */
		{ 84000, 947 },                                     /* 0.947: 5 % since the ring was made */
		{ 110000, 947 },                                    /* 0.907 */
		{ 120000, 891 },                                    /* it creeps, and is seen all the same */
		{ 500000, 300 }, { 9000000, 300 }, { 480000, 300 }, /* 0.331 */
		{ 50000, 1000 },
	};
	struct pool_member *member = add("n1", 1000);
	struct report report = calm();

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		report.disk_io_us = rows[i].io_us;
		give(member, &report);
		step();
		if (member->ring_milli != rows[i].ring_milli)
			fail_msg("row %zu: weight %u, score %lld", i, member->ring_milli,
				 (long long)member->output.score_ppm);
		now_us += JUDGE_TICK_US;
	}
	replay_all();
}

static void weight_and_domain_are_the_operators(void **state)
{
	struct pool_member *member = add("n1", 1000);

	(void)state;
	assert_true(step());
	assert_false(step());
	member->view.weight_milli = 1001;
	assert_true(step());
	assert_int_equal(member->ring_milli, 1001);
	snprintf(member->domain, sizeof(member->domain), "rack2");
	assert_true(step());
	assert_string_equal(member->ring_domain, "rack2");
	assert_false(step());
	member->view.weight_milli = 0;
	assert_true(step());
	assert_false(member->takes_work);
	assert_int_equal(member->ring_milli, 0);
	replay_all();
}

/* --- who takes no work --- */

static void bars(void **state)
{
	struct pool_member *member = add("n1", 1000);
	struct report report = calm();

	(void)state;
	add("n2", 1000);
	give(member, &report);
	step();
	assert_true(member->takes_work);
	member->bar = "its disk is low";
	assert_true(step());
	assert_false(member->takes_work);
	assert_int_equal(member->ring_milli, 0);
	assert_string_equal(member->view.bar_reason, "its disk is low");
	assert_string_equal(judge.memory.selected, "n2");
	member->bar = NULL;
	assert_true(step());
	assert_true(member->takes_work);
	report.leaving = 1;
	give(member, &report);
	assert_true(step());
	assert_false(member->takes_work);
	assert_string_equal(member->view.bar_reason, "it is leaving");
	report.leaving = 0;
	give(member, &report);
	assert_true(step());
	assert_true(member->takes_work);
	assert_string_equal(member->view.bar_reason, "");
	/* A folder that fails is enough of a reason by itself. */
	report.dirs_failed = 1;
	give(member, &report);
	assert_true(step());
	assert_false(member->takes_work);
	replay_all();
}

static void three_missed_reports_out_two_good_back(void **state)
{
	struct pool_member *member = add("n1", 1000);
	const struct report report = calm();

	(void)state;
	give(member, &report);
	step();
	/* The first, the second and the third interval without one. */
	for (int i = 0; i < 3; i++) {
		now_us += REPORT_INTERVAL_US;
		node_view_probe(&member->view, &member_rules_folder, true, now_us);
		step();
		assert_true(member->takes_work);
	}
	now_us += JUDGE_TICK_US;
	assert_true(step());
	assert_int_equal(member->view.member.state, MEMBER_UNREACHABLE);
	assert_false(member->takes_work);
	/* Good probes alone do not refute the node's own silence. */
	for (int i = 0; i < 3; i++)
		node_view_probe(&member->view, &member_rules_folder, true, now_us);
	assert_false(step());
	give(member, &report);
	step();
	assert_false(member->takes_work);
	node_view_probe(&member->view, &member_rules_folder, true, now_us);
	assert_true(step());
	assert_true(member->takes_work);
	replay_all();
}

/* An older node, or one of which the scheduler has not heard yet: whoever probes well works. */
static void no_report_at_all(void **state)
{
	struct pool_member *member = add("n1", 1000);

	(void)state;
	for (int i = 0; i < 100; i++) {
		step();
		assert_true(member->takes_work);
		assert_int_equal(member->ring_milli, 1000);
		now_us += JUDGE_TICK_US;
	}
	for (int i = 0; i < 3; i++)
		node_view_probe(&member->view, &member_rules_folder, false, now_us);
	assert_true(step());
	assert_false(member->takes_work);
	replay_all();
}

static void nobody_at_all(void **state)
{
	(void)state;
	assert_false(step());
	assert_int_equal(judge.decision.selected, -1);
	add("n1", 0);
	assert_false(step());
	assert_int_equal(judge.decision.selected, -1);
	replay_all();
}

/* --- the log --- */

static void a_table_when_something_changed(void **state)
{
	struct pool_member *member = add("n1", 1000);
	struct report report = calm();
	size_t count;

	(void)state;
	add("n2", 1000);
	give(member, &report);
	step();
	assert_int_equal(line_count(), 1);
	assert_int_equal(judge.version, 1);
	/* Nothing, nothing, nothing. */
	for (int i = 0; i < 4; i++) {
		now_us += JUDGE_TICK_US;
		give(member, &report);
		step();
	}
	assert_int_equal(line_count(), 1);
	/* 0.6 % is no new table, 1.2 % is. */
	report.disk_io_us = 54000;
	give(member, &report);
	step();
	assert_int_equal(line_count(), 1);
	report.disk_io_us = 58000;
	give(member, &report);
	step();
	assert_int_equal(line_count(), 2);
	/* A state. */
	for (int i = 0; i < 3; i++)
		node_view_probe(&refs[1]->view, &member_rules_folder, false, now_us);
	step();
	assert_int_equal(line_count(), 3);
	/* And once a minute. */
	count = line_count();
	for (int i = 0; i < 31; i++) {
		now_us += JUDGE_TICK_US;
		give(member, &report);
		step();
	}
	assert_int_equal(line_count(), count + 1);
	/* Nobody wants it: the table is new all the same. */
	refs[0]->bar = "its disk is low";
	count = (size_t)judge.version;
	pool_judge_step(&judge, refs, member_count, now_us, WALL + now_us, NULL);
	assert_int_equal(judge.version, count + 1);
	replay_all();
}

static void time_passes_by_ticks(void **state)
{
	struct pool_member *member = add("n1", 1000);
	const struct report report = calm();

	(void)state;
	assert_int_equal(pool_judge_due_us(&judge), 0);
	give(member, &report);
	step();
	assert_int_equal(pool_judge_due_us(&judge), now_us + JUDGE_TICK_US);
	now_us += JUDGE_TICK_US - 1;
	step();
	/* Judging between two ticks does not put the next one off. */
	assert_int_equal(pool_judge_due_us(&judge), now_us + 1);
	replay_all();
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(a_busy_node_gets_less_and_comes_back_late),
		CASE(a_trifle_does_not_move_the_ring),
		CASE(weight_and_domain_are_the_operators),
		CASE(bars),
		CASE(three_missed_reports_out_two_good_back),
		CASE(no_report_at_all),
		CASE(nobody_at_all),
		CASE(a_table_when_something_changed),
		CASE(time_passes_by_ticks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
