/* The core as its doors run it: reports and probes come, a table each two seconds and at each change of a state, requests are look-ups in it. Minutes
 * and hours by a hand-wound clock. The candidates are dealt out anew for each table, so whatever holds here holds in any order of them. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "core/node.h"
#include "core/pick.h"

#define NODES_MAX 4
#define BEGIN_US  (1000 * SEC_US)
#define KV        (&member_rules_kv)
#define GATEWAY   (&member_rules_gateway)
#define FOLDER    (&member_rules_folder)

/* A machine, as it is; what its watcher knows of it is its view. */
struct worker {
	bool is_silent, is_mute, is_dead; /* sends no reports; answers no probe; no request */
	struct report report;
	uint64_t sequence;
	unsigned count; /* requests it got */
};
struct story {
	const struct profile *profile;
	const struct member_rules *rules;
	size_t count;
	struct worker workers[NODES_MAX];
	struct node_view views[NODES_MAX];
	/* Of the last table, by node. */
	struct score_output outputs[NODES_MAX];
	struct judge_memory memory;
	struct decision decision;
	int selected; /* node; -1: nobody */
	unsigned flips_count, tables_count;
	struct route *route;
	struct pick pick;
	struct rng rng;
	int64_t now_us, judged_us;
};

static void report_idle(struct report *report)
{
	report_init(report);
	report->cpu_busy_milli = 0;
	report->cpu_cores_milli = 4000;
	report->rss_bytes = 0;
	report->mem_limit_bytes = 1000000;
	report->disk_queue_milli = 0;
	report->p99_us = 0;
	report->verified = 1;
	report->migrating = 0;
	report->leaving = 0;
	report->started_wall_us = 77 * SEC_US;
}

/* Deals the candidates out, judges them, makes the route. */
static void story_judge(struct story *story)
{
	struct route_builder *builder = route_builder_new(1, story->count);
	const struct score_input *pointers[NODES_MAX];
	struct score_input inputs[NODES_MAX];
	struct score_output outputs[NODES_MAX];
	uint16_t nodes[NODES_MAX];
	int before = story->selected;

	for (size_t i = 0; i < story->count; i++) {
		size_t other = (size_t)rng_below(&story->rng, i + 1);

		nodes[i] = nodes[other];
		nodes[other] = (uint16_t)i;
	}
	for (size_t i = 0; i < story->count; i++) {
		node_view_input(&story->views[nodes[i]], 0, 0, story->now_us, &inputs[i]);
		pointers[i] = &inputs[i];
		if (strcmp(inputs[i].id, story->memory.selected) == 0)
			story->memory.failed_picks = story->pick.loads[nodes[i]].fails_in_row;
	}
	score_set(story->profile, pointers, story->count, outputs);
	judge_set(story->profile, &story->memory, story->now_us - story->judged_us, pointers, outputs, story->count,
		  &story->decision);
	story->judged_us = story->now_us;
	for (size_t i = 0; i < story->count; i++) {
		story->outputs[nodes[i]] = outputs[i];
		node_view_keep(&story->views[nodes[i]], &outputs[i]);
	}
	route_builder_add(builder, &story->decision, outputs, nodes, story->count, NULL, NULL);
	route_free(&story->route);
	story->route = route_builder_end(&builder, ++story->tables_count, story->now_us);
	story->selected = story->decision.selected < 0 ? -1 : nodes[story->decision.selected];
	assert_int_equal(story->decision.is_changed, story->selected != before);
	story->flips_count += story->selected != before;
}

/* Established nodes with news of this instant; the first table is made. */
static void story_init(struct story *story, const char *profile, const struct member_rules *rules, size_t count,
		       enum pick_strategy strategy)
{
	*story = (struct story){ .profile = profile_builtin(profile),
				 .rules = rules,
				 .count = count,
				 .selected = -1,
				 .now_us = BEGIN_US,
				 .judged_us = BEGIN_US };
	rng_seed(&story->rng, 2026);
	pick_init(&story->pick, strategy, count, 1, 7);
	for (size_t i = 0; i < count; i++) {
		char id[SCORE_ID_SIZE];

		snprintf(id, sizeof(id), "n%zu", i);
		node_view_init(&story->views[i], id, 1000, MEMBER_HEALTHY, BEGIN_US);
		report_idle(&story->workers[i].report);
		node_view_report(&story->views[i], rules, &story->workers[i].report, ++story->workers[i].sequence,
				 BEGIN_US);
	}
	story_judge(story);
	story->flips_count = 0;
}

static void story_fini(struct story *story)
{
	route_free(&story->route);
	pick_fini(&story->pick);
}

/* Reports come at each third second, probes one later, time alone is judged each two. */
static void story_run(struct story *story, int64_t seconds)
{
	for (int64_t end_us = story->now_us + seconds * SEC_US; story->now_us < end_us;) {
		bool is_changed = false;
		int64_t second;

		story->now_us += SEC_US;
		second = (story->now_us - BEGIN_US) / SEC_US;
		for (size_t i = 0; i < story->count; i++) {
			struct worker *worker = &story->workers[i];
			struct node_view *view = &story->views[i];

			if (second % 3 == 0 && !worker->is_silent)
				is_changed |= node_view_report(view, story->rules, &worker->report, ++worker->sequence,
							       story->now_us);
			if (second % 3 == 1)
				is_changed |= node_view_probe(view, story->rules, !worker->is_mute, story->now_us);
			if (second % 2 == 0)
				is_changed |= node_view_step(view, story->rules, story->now_us);
		}
		if (is_changed || second % 2 == 0)
			story_judge(story);
	}
}

/* One request with its one retry; a dead node's time out. The node that served, or -1. */
static int story_ask(struct story *story)
{
	struct pick_call call = { .key_hash = rng_u64(&story->rng) };
	enum reason reason;

	for (;;) {
		int offset;
		uint16_t node;

		call.now_us = ++story->now_us;
		offset = pick_next(&story->pick, story->route, 0, &call, &reason);
		if (offset < 0) {
			assert_true(reason == REASON_none || reason == REASON_unavailable);
			return -1;
		}
		node = story->route->candidates[offset].node_index;
		story->workers[node].count++;
		pick_sent(&story->pick, node, story->now_us);
		pick_done(&story->pick, node, story->workers[node].is_dead, 1000000, story->now_us);
		if (story->rules->traffic_limit_count > 0 &&
		    node_view_traffic(&story->views[node], story->rules, !story->workers[node].is_dead, story->now_us))
			story_judge(story);
		if (!story->workers[node].is_dead)
			return node;
		call.tried[call.tried_count++] = node;
	}
}

/* How many of a thousand requests each gets. */
static void story_shares(struct story *story)
{
	int64_t now_us = story->now_us;

	for (size_t i = 0; i < story->count; i++)
		story->workers[i].count = 0;
	for (unsigned i = 0; i < 1000; i++)
		(void)story_ask(story);
	story->now_us = now_us;
}

static int64_t score_of(const struct story *story, size_t node) { return story->outputs[node].score_ppm; }
static enum member_state state_of(const struct story *story, size_t node) { return story->views[node].member.state; }

/* --- a worker that is new, or back --- */

/* 0.3 health + 0.25 load + 0.25 latency, and of data_ready's 0.2 what is ready. */
#define IDLE_PPM(ready_ppm) (800000 + (ready_ppm) / 5)

/* What the node may score at most after so many seconds, as the spec has it in words. */
static int64_t cap_by_the_spec(int64_t second, bool is_fast, bool was_verified)
{
	int64_t cap_ppm = 400000;

	if (second >= 300)
		cap_ppm += (second - 300) / (is_fast ? 15 : 30) * 100000;
	return min_i64(cap_ppm, was_verified ? PPM : 500000);
}

static void test_a_new_worker(void **state)
{
	static const struct {
		const char *why;
		bool was_verified;
		int64_t progress_ppm;
	} rows[] = {
		{ "never verified", false, 0 },
		{ "never verified, nearly whole", false, 990000 },
		{ "verified before", true, 0 },
		{ "verified before, nearly whole", true, 900000 },
		{ "at the mark is not over", true, 800000 },
		{ "a little over it is", true, 800001 },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		int64_t ready_ppm = IDLE_PPM(400000 + rows[i].progress_ppm * 6 / 10);
		struct story story;
		int64_t cap_ppm;

		story_init(&story, "kv", KV, 3, PICK_best);
		node_view_join(&story.views[1], true, story.now_us);
		story.views[1].was_ever_verified = rows[i].was_verified;
		story.workers[1].report.verified = 0;
		story.workers[1].report.sync_progress_ppm = rows[i].progress_ppm;
		story_run(&story, 4);
		for (int64_t second = 6; second <= 35 * 60; second += 2) {
			story_run(&story, 2);
			cap_ppm = cap_by_the_spec(second, rows[i].progress_ppm > 800000, rows[i].was_verified);
			if (score_of(&story, 1) != min_i64(cap_ppm, ready_ppm))
				fail_msg("%s, second %lld: %lld", rows[i].why, (long long)second,
					 (long long)score_of(&story, 1));
		}
		/* Verified: the cap is gone at once, with the next report. */
		story.workers[1].report.verified = 1;
		story_run(&story, 4);
		assert_int_equal(score_of(&story, 1), PPM);
		assert_int_equal(story.outputs[1].cap_ppm, PPM);
		assert_true(story.views[1].was_ever_verified);
		story_fini(&story);
	}
}

/* "Recovering" is asked each tick: no order of verified and not verified leaves it standing, or gone while it should stand. */
static void test_recovering_is_no_latch(void **state)
{
	struct story story;

	(void)state;
	story_init(&story, "kv", KV, 2, PICK_best);
	node_view_join(&story.views[0], true, story.now_us);
	for (unsigned i = 0; i < 10; i++) {
		story.workers[0].report.verified = i % 2;
		story_run(&story, 6);
		assert_int_equal(story.outputs[0].cap_ppm, i % 2 ? PPM : 400000);
	}
	story.workers[0].report.verified = 0;
	story_run(&story, 3600);
	assert_int_equal(story.outputs[0].cap_ppm, PPM);
	story_fini(&story);
}

/* Each way back is one back: through the warm-up (kv), through slow start (gateway). */
static void leave_and_come_back(struct story *story, unsigned way)
{
	struct worker *worker = &story->workers[1];

	switch (way) {
	case 0: /* the reports stop, and come again */
		worker->is_silent = worker->is_mute = true;
		story_run(story, 60);
		worker->is_silent = worker->is_mute = false;
		break;
	case 1: /* probes fail and the peers confirm */
		worker->is_mute = true;
		story_run(story, 12);
		node_view_gossip(&story->views[1], story->rules, HEALTH_FAILED, story->now_us);
		story_run(story, 6);
		node_view_gossip(&story->views[1], story->rules, HEALTH_GOOD, story->now_us);
		worker->is_mute = false;
		break;
	case 2: /* it says itself that it leaves, is gone, and stays when it is back */
		worker->report.leaving = 1;
		story_run(story, 6);
		worker->is_silent = worker->is_mute = true;
		story_run(story, 60);
		worker->is_silent = worker->is_mute = false;
		worker->report.leaving = 0;
		break;
	default: /* its process is started anew, so soon that no report is missed */
		assert_int_equal(state_of(story, 1), MEMBER_HEALTHY);
		worker->report.started_wall_us += 500 * SEC_US;
		worker->sequence = 0;
		story_run(story, 3);
		return;
	}
	assert_int_equal(state_of(story, 1), MEMBER_UNREACHABLE);
	assert_int_equal(score_of(story, 1), 0);
	assert_false(story->outputs[1].may_serve);
	for (unsigned i = 0; i < 12 && state_of(story, 1) != MEMBER_HEALTHY; i++)
		story_run(story, 1);
	assert_int_equal(state_of(story, 1), MEMBER_HEALTHY);
}

static void test_every_way_back_is_slow(void **state)
{
	(void)state;
	for (unsigned way = 0; way < 4; way++) {
		struct story story;
		int64_t back_us;

		story_init(&story, "kv", KV, 3, PICK_best);
		story.workers[1].report.verified = 0;
		leave_and_come_back(&story, way);
		back_us = story.views[1].joined_us;
		if (back_us < 0)
			fail_msg("way %u: not new", way);
		story_run(&story, 290);
		assert_int_equal(score_of(&story, 1), 400000);
		story_run(&story, 240);
		assert_int_equal(story.outputs[1].cap_ppm, PPM);
		assert_int_equal(story.views[1].joined_us, back_us);
		story_fini(&story);

		story_init(&story, "gateway", GATEWAY, 3, PICK_weighted_round_robin);
		leave_and_come_back(&story, way);
		story_run(&story, 8);
		assert_int_equal(story.outputs[1].start_ppm, 100000);
		/* At most a tenth of what the others get, but its turns. */
		story_shares(&story);
		assert_in_range(story.workers[1].count, 5, 60);
		story_run(&story, 60);
		assert_int_equal(story.outputs[1].start_ppm, PPM);
		assert_int_equal(score_of(&story, 1), score_of(&story, 0));
		story_shares(&story);
		assert_in_range(story.workers[1].count, 320, 346);
		story_fini(&story);
	}
}

/* More than half of the pool new: slow start would slow nothing but the start. Half is not more than half. */
static void test_a_new_pool_starts_at_once(void **state)
{
	(void)state;
	for (size_t new_count = 1; new_count <= 4; new_count++) {
		struct story story;

		story_init(&story, "gateway", GATEWAY, 4, PICK_weighted_ewma);
		for (size_t i = 0; i < new_count; i++)
			node_view_join(&story.views[i], true, story.now_us);
		story_run(&story, 2);
		assert_int_equal(story.outputs[0].start_ppm, new_count > 2 ? PPM : 100000);
		story_fini(&story);
	}
}

/* --- who falls silent --- */

static void test_one_lost_report_changes_nothing(void **state)
{
	static const struct {
		const char *profile;
		const struct member_rules *rules;
	} doors[] = { { "kv", KV }, { "gateway", GATEWAY }, { "folder", FOLDER } };

	(void)state;
	for (size_t i = 0; i < COUNT_OF(doors); i++) {
		struct story story;
		int64_t score_ppm;

		story_init(&story, doors[i].profile, doors[i].rules, 3, PICK_best);
		story_run(&story, 60);
		score_ppm = score_of(&story, 0);
		/* One, then two in a row. */
		for (unsigned lost = 3; lost <= 6; lost += 3) {
			story.workers[0].is_silent = true;
			for (unsigned second = 0; second < lost; second++) {
				story_run(&story, 1);
				assert_int_equal(score_of(&story, 0), score_ppm);
			}
			story.workers[0].is_silent = false;
			story_run(&story, 30);
			assert_int_equal(score_of(&story, 0), score_ppm);
			assert_int_equal(state_of(&story, 0), MEMBER_HEALTHY);
			assert_int_equal(story.views[0].joined_us, -1);
		}
		assert_int_equal(story.flips_count, 0);
		story_fini(&story);
	}
}

/* kv: whose agent died while it answers probes stays, at 0.3 of health, and is believed less and less: 9 s whole, then a tenth less each 5 s. */
static void test_a_reporter_that_stops(void **state)
{
	const int64_t suspect_ppm = 700000 + 300000 * 3 / 10;
	int64_t left_ppm = PPM, heard_us;
	struct story story;

	(void)state;
	story_init(&story, "kv", KV, 3, PICK_best);
	story_run(&story, 3);
	heard_us = story.now_us;
	story.workers[0].is_silent = true;
	for (int64_t age_s = 1; age_s < 400; age_s++) {
		int64_t steps = age_s < 9 ? 0 : (age_s - 9) / 5;

		story_run(&story, 1);
		story_judge(&story);
		assert_int_equal(story.now_us, heard_us + age_s * SEC_US);
		left_ppm = PPM;
		for (int64_t i = 0; i < steps && left_ppm > 0; i++)
			left_ppm = left_ppm * 9 / 10 < 50000 ? 0 : left_ppm * 9 / 10;
		assert_int_equal(story.outputs[0].decay_ppm, left_ppm);
		if (age_s <= 9)
			assert_int_equal(score_of(&story, 0), PPM);
		else if (age_s > 11)
			assert_in_range(score_of(&story, 0), suspect_ppm * left_ppm / PPM,
					suspect_ppm * left_ppm / PPM + 1);
	}
	assert_int_equal(state_of(&story, 0), MEMBER_SUSPECT);
	assert_int_equal(score_of(&story, 0), 0);
	assert_false(story.outputs[0].may_serve);
	/* Its agent is started again: one report, and it is what it was. */
	story.workers[0].is_silent = false;
	story_run(&story, 6);
	assert_int_equal(score_of(&story, 0), PPM);
	story_fini(&story);
}

static void test_three_lost(void **state)
{
	static const struct {
		const char *profile;
		const struct member_rules *rules;
		enum member_state state;
	} doors[] = { { "kv", KV, MEMBER_SUSPECT },
		      { "gateway", GATEWAY, MEMBER_UNREACHABLE },
		      { "folder", FOLDER, MEMBER_UNREACHABLE } };

	(void)state;
	for (size_t i = 0; i < COUNT_OF(doors); i++) {
		struct story story;

		story_init(&story, doors[i].profile, doors[i].rules, 3, PICK_band);
		story_run(&story, 3);
		story.workers[2].is_silent = story.workers[2].is_mute = true;
		story_run(&story, 6);
		assert_int_equal(state_of(&story, 2), MEMBER_HEALTHY);
		story_run(&story, 5);
		assert_int_equal(state_of(&story, 2), doors[i].state);
		/* No door sends it anything: kv's others are better by more than the band. */
		story_shares(&story);
		assert_int_equal(story.workers[2].count, 0);
		if (doors[i].state == MEMBER_SUSPECT) {
			node_view_gossip(&story.views[2], KV, HEALTH_FAILED, story.now_us);
			story_judge(&story);
			assert_int_equal(state_of(&story, 2), MEMBER_UNREACHABLE);
		}
		assert_int_equal(score_of(&story, 2), 0);
		assert_int_equal(story.outputs[2].weight_milli, 0);
		assert_int_equal(story.decision.order_count, 2);
		story_fini(&story);
	}
}

/* --- traffic --- */

static void test_gateway_traffic(void **state)
{
	struct story story;
	unsigned asked = 0;

	(void)state;
	story_init(&story, "gateway", GATEWAY, 3, PICK_round_robin);
	story_run(&story, 30);
	story.workers[1].is_dead = true;
	/* Not a request is lost, and with the third failure it is out, between two ticks. */
	for (; state_of(&story, 1) == MEMBER_HEALTHY && asked < 100; asked++) {
		/* After two time-outs it is spared for a second, then one request is the third. */
		story.now_us += asked == 50 ? SEC_US : 0;
		assert_int_not_equal(story_ask(&story), -1);
	}
	assert_int_equal(story.workers[1].count, 3);
	assert_int_equal(state_of(&story, 1), MEMBER_UNREACHABLE);
	assert_false(story.outputs[1].may_serve);
	story_shares(&story);
	assert_int_equal(story.workers[1].count, 0);
	/* Two good words lead back, in slow start. */
	story.workers[1].is_dead = false;
	story.now_us = (story.now_us + SEC_US - 1) / SEC_US * SEC_US;
	story_run(&story, 4);
	assert_int_equal(state_of(&story, 1), MEMBER_HEALTHY);
	assert_int_equal(story.outputs[1].start_ppm, 100000);
	story_fini(&story);
}

static void test_degrade(void **state)
{
	struct story story;
	struct pick_call call;
	enum reason reason;
	int first;

	(void)state;
	story_init(&story, "kv", KV, 4, PICK_best);
	first = story.selected;
	assert_int_equal(story_ask(&story), first);
	/* Its first time-outs are retried once elsewhere; from the second on it is not asked. */
	story.workers[first].is_dead = true;
	story.workers[first].count = 0;
	for (unsigned i = 0; i < 100; i++) {
		int node = story_ask(&story);

		assert_true(node >= 0 && node != first);
	}
	assert_int_equal(story.workers[first].count, 2);
	/* All fail: two tries and no third, and the caller is told to check again. */
	for (size_t i = 0; i < story.count; i++) {
		story.workers[i].is_dead = true;
		story.workers[i].count = 0;
	}
	assert_int_equal(story_ask(&story), -1);
	assert_int_equal(
		story.workers[0].count + story.workers[1].count + story.workers[2].count + story.workers[3].count, 2);
	call = (struct pick_call){ .now_us = story.now_us, .tried = { 0, 1 }, .tried_count = 2 };
	assert_int_equal(pick_next(&story.pick, story.route, 0, &call, &reason), -1);
	assert_int_equal(reason, REASON_unavailable);
	/* All are well again: within a few seconds all is as it was, though nothing but requests told of it. */
	for (size_t i = 0; i < story.count; i++)
		story.workers[i].is_dead = false;
	for (unsigned i = 0; i < 10; i++) {
		story.now_us += SEC_US;
		assert_int_not_equal(story_ask(&story), -1);
		story_judge(&story);
	}
	assert_int_equal(story_ask(&story), story.selected);
	story_fini(&story);
}

/* kv: reports and probes say that all is well, requests time out. The table must not send them back to it at each tick because its score is better. */
static void test_a_node_that_only_looks_well(void **state)
{
	unsigned lost_count = 0;
	struct story story;

	(void)state;
	story_init(&story, "kv", KV, 2, PICK_best);
	story.workers[1].report.cpu_busy_milli = 3500;
	story.workers[1].report.rss_bytes = 900000;
	story.workers[1].report.disk_queue_milli = 12000;
	story_run(&story, 6);
	assert_int_equal(story.selected, 0);
	assert_true(score_of(&story, 0) > score_of(&story, 1) + 100000);
	story.workers[0].is_dead = true;
	for (unsigned i = 0; i < 600; i++) {
		int64_t now_us = story.now_us;

		for (unsigned j = 0; j < 10; j++)
			lost_count += story_ask(&story) != 1;
		story.now_us = now_us;
		story_run(&story, 1);
	}
	assert_int_equal(lost_count, 0);
	/* Away, and each half minute a look whether it is well again. */
	assert_in_range(story.flips_count, 3, 45);
	story.workers[0].is_dead = false;
	for (unsigned i = 0; i < 60; i++) {
		int64_t now_us = story.now_us;

		(void)story_ask(&story);
		story.now_us = now_us;
		story_run(&story, 1);
	}
	assert_int_equal(story.selected, 0);
	assert_int_equal(story_ask(&story), 0);
	story_fini(&story);
}

/* --- who leaves --- */

static void test_leaving_and_drained(void **state)
{
	struct story story;

	(void)state;
	for (unsigned way = 0; way < 3; way++) {
		story_init(&story, "kv", KV, 3, PICK_best);
		node_view_tell(&story.views[0], KV, MEMBER_LEAVE, story.now_us);
		story_judge(&story);
		assert_int_equal(state_of(&story, 0), MEMBER_LEAVING);
		/* 0.3 * 0.15 + 0.5 + 0.2 * 0.15, and half of it. */
		assert_int_equal(score_of(&story, 0), (45000 + 500000 + 30000) / 2);
		assert_true(story.selected != 0);
		/* What happens to it on the way keeps nobody from confirming that it is drained. */
		story.workers[0].is_silent = story.workers[0].is_mute = way > 0;
		story_run(&story, way == 2 ? 120 : 12);
		assert_int_equal(state_of(&story, 0), way == 0   ? MEMBER_LEAVING
						      : way == 1 ? MEMBER_SUSPECT
								 : MEMBER_UNREACHABLE);
		assert_true(score_of(&story, 0) <= (45000 + 500000 + 30000) / 2);
		node_view_tell(&story.views[0], KV, MEMBER_DRAINED, story.now_us);
		story_judge(&story);
		assert_int_equal(state_of(&story, 0), MEMBER_REMOVED);
		story.workers[0].is_silent = story.workers[0].is_mute = false;
		story_run(&story, 60);
		assert_int_equal(state_of(&story, 0), MEMBER_REMOVED);
		assert_false(story.outputs[0].may_serve);
		assert_int_equal(score_of(&story, 0), 0);
		story_fini(&story);
	}
	/* Nobody told the node to leave: drained is no word about it, whatever it goes through. */
	story_init(&story, "kv", KV, 1, PICK_best);
	story.workers[0].is_silent = story.workers[0].is_mute = true;
	story_run(&story, 12);
	node_view_tell(&story.views[0], KV, MEMBER_DRAINED, story.now_us);
	assert_int_equal(state_of(&story, 0), MEMBER_SUSPECT);
	story_run(&story, 60);
	node_view_tell(&story.views[0], KV, MEMBER_DRAINED, story.now_us);
	assert_int_equal(state_of(&story, 0), MEMBER_UNREACHABLE);
	story_fini(&story);
}

/* A weight of 0 takes a node out, however well it scores; only when all are out it is better than nobody. */
static void test_weight_zero(void **state)
{
	(void)state;
	for (enum pick_strategy strategy = 0; strategy < PICK_STRATEGIES; strategy++) {
		struct story story;

		story_init(&story, "kv", KV, 3, strategy);
		assert_int_equal(story.selected, 0);
		story.workers[1].report.cpu_busy_milli = story.workers[2].report.cpu_busy_milli = 3900;
		story.views[0].weight_milli = 0;
		story_run(&story, 6);
		assert_true(story.outputs[0].may_serve);
		assert_true(score_of(&story, 0) > 4 * score_of(&story, 1));
		assert_int_not_equal(story.selected, 0);
		assert_int_equal(story.decision.band_count, 2);
		story_shares(&story);
		assert_int_equal(story.workers[0].count, 0);
		/* Nor when those that have a weight fail. */
		story.workers[1].is_dead = story.workers[2].is_dead = true;
		for (unsigned i = 0; i < 10; i++) {
			(void)story_ask(&story);
			story_judge(&story);
			assert_int_not_equal(story.selected, 0);
		}
		story.views[1].weight_milli = story.views[2].weight_milli = 0;
		story_judge(&story);
		assert_int_equal(story.selected, 0);
		story_fini(&story);
	}
}

/* --- scores that move, or do not --- */

/* A worker whose P99 swings fivefold from report to report, beside one that is steady. */
static void test_latency_that_flaps(void **state)
{
	struct story story;

	(void)state;
	story_init(&story, "kv", KV, 2, PICK_best);
	story.workers[0].report.p99_us = story.workers[1].report.p99_us = 60 * MSEC_US;
	story_run(&story, 300);
	story.flips_count = 0;
	for (unsigned i = 0; i < 1200; i++) {
		story.workers[0].report.p99_us = (i % 2 ? 20 : 100) * MSEC_US;
		story_run(&story, 3);
	}
	assert_int_equal(story.flips_count, 0);
	/* But one that stays bad is left, once. */
	story.workers[story.selected].report.p99_us = 900 * MSEC_US;
	story_run(&story, 300);
	assert_int_equal(story.flips_count, 1);
	story_fini(&story);
}

static void test_flat_scores(void **state)
{
	struct story story;

	(void)state;
	story_init(&story, "kv", KV, 2, PICK_best);
	/* What one lacks in processors the other lacks in memory: the same scores of unlike workers. */
	story.workers[0].report.cpu_busy_milli = 1200;
	story.workers[1].report.rss_bytes = 400000;
	story_run(&story, 298);
	assert_false(story.decision.is_flat);
	story_run(&story, 8);
	assert_true(story.decision.is_flat);
	/* It ends with its cause. */
	story.workers[1].report.rss_bytes = 900000;
	story_run(&story, 6);
	assert_false(story.decision.is_flat);
	/* Alike and with like scores is as it should be. */
	story.workers[1].report = story.workers[0].report;
	story_run(&story, 900);
	assert_false(story.decision.is_flat);
	story_fini(&story);
}

/* --- clocks --- */

/* A clock that stands still, leaps by a year, or goes back: no harm, and all is as it was a minute later. */
static void test_clocks(void **state)
{
	static const int64_t leaps_us[] = { 0, -500 * SEC_US, (int64_t)365 * 86400 * SEC_US };

	(void)state;
	for (size_t i = 0; i < COUNT_OF(leaps_us); i++) {
		struct story story;
		int64_t leap_us = leaps_us[i] / (6 * SEC_US) * (6 * SEC_US);

		story_init(&story, "gateway", GATEWAY, 3, PICK_weighted_ewma);
		story_run(&story, 60);
		story.now_us += leap_us;
		for (unsigned j = 0; j < 5; j++) {
			for (size_t node = 0; node < 3; node++)
				node_view_step(&story.views[node], GATEWAY, story.now_us);
			story_judge(&story);
			if (leap_us <= 0)
				assert_int_not_equal(story_ask(&story), -1);
		}
		story.now_us = story.now_us / (6 * SEC_US) * (6 * SEC_US);
		story_run(&story, 120);
		for (size_t node = 0; node < 3; node++) {
			assert_int_equal(state_of(&story, node), MEMBER_HEALTHY);
			assert_int_equal(score_of(&story, node), PPM);
			assert_int_equal(story.outputs[node].start_ppm, PPM);
		}
		story_fini(&story);
	}
}

/* --- anything --- */

static void story_fault(struct story *story, struct rng *rng)
{
	size_t node = (size_t)rng_below(rng, story->count);
	struct worker *worker = &story->workers[node];
	struct node_view *view = &story->views[node];

	switch (rng_below(rng, 12)) {
	case 0:
		worker->is_silent = !worker->is_silent;
		break;
	case 1:
		worker->is_mute = !worker->is_mute;
		break;
	case 2:
		worker->is_dead = !worker->is_dead;
		break;
	case 3:
		worker->report.cpu_busy_milli = (int64_t)rng_below(rng, 4001);
		break;
	case 4:
		worker->report.p99_us = (int64_t)rng_below(rng, 2 * SEC_US);
		break;
	case 5:
		worker->report.verified = (int64_t)rng_below(rng, 2);
		break;
	case 6:
		worker->report.leaving = (int64_t)rng_below(rng, 2);
		break;
	case 7:
		worker->report.migrating = (int64_t)rng_below(rng, 2);
		break;
	case 8:
		worker->report.started_wall_us += 60 * SEC_US;
		worker->sequence = 0;
		break;
	case 9:
		node_view_gossip(view, story->rules, (enum health_word)rng_below(rng, 4), story->now_us);
		break;
	case 10:
		node_view_tell(view, story->rules, rng_below(rng, 2) ? MEMBER_LEAVE : MEMBER_STAY, story->now_us);
		break;
	default:
		view->is_barred = rng_below(rng, 2);
		break;
	}
}

/* What heals all that story_fault does. */
static void story_heal(struct story *story)
{
	for (size_t i = 0; i < story->count; i++) {
		struct worker *worker = &story->workers[i];
		int64_t started_wall_us = worker->report.started_wall_us;

		worker->is_silent = worker->is_mute = worker->is_dead = false;
		report_idle(&worker->report);
		worker->report.started_wall_us = started_wall_us;
		story->views[i].is_barred = false;
		node_view_gossip(&story->views[i], story->rules, HEALTH_UNKNOWN, story->now_us);
		node_view_tell(&story->views[i], story->rules, MEMBER_STAY, story->now_us);
	}
}

/* Requests ask whom the table allows, whatever happens; and when the faults end all is as it was at the beginning: no latch, no lasting harm. */
static void test_it_settles_when_faults_stop(void **state)
{
	static const struct {
		const char *profile;
		const struct member_rules *rules;
	} doors[] = { { "kv", KV }, { "gateway", GATEWAY }, { "folder", FOLDER } };
	struct rng rng;

	(void)state;
	rng_seed(&rng, 10);
	for (unsigned round = 0; round < 66; round++) {
		struct story story;
		unsigned flips_count;

		story_init(&story, doors[round % 3].profile, doors[round % 3].rules, NODES_MAX,
			   (enum pick_strategy)(round % PICK_STRATEGIES));
		for (unsigned second = 0; second < 600; second++) {
			int64_t now_us = story.now_us;

			if (rng_below(&rng, 4) == 0)
				story_fault(&story, &rng);
			story_judge(&story);
			for (unsigned i = 0; i < 3; i++) {
				int node = story_ask(&story);

				assert_true(node < 0 || story.outputs[node].may_serve);
				assert_true(node < 0 || !story.views[node].is_barred);
			}
			story.now_us = now_us;
			story_run(&story, 1);
		}
		story_heal(&story);
		for (unsigned second = 0; second < 300; second++) {
			int64_t now_us = story.now_us;

			/* More than enough for two random draws to meet each node. */
			for (unsigned i = 0; i < 20; i++)
				(void)story_ask(&story);
			story.now_us = now_us;
			story_run(&story, 1);
		}
		flips_count = story.flips_count;
		story_run(&story, 300);
		assert_int_equal(story.flips_count, flips_count);
		assert_int_equal(story.decision.order_count, NODES_MAX);
		assert_int_equal(story.decision.band_count, NODES_MAX);
		for (size_t i = 0; i < NODES_MAX; i++) {
			assert_int_equal(state_of(&story, i), MEMBER_HEALTHY);
			if (score_of(&story, i) < PPM * 98 / 100)
				fail_msg("round %u: %lld", round, (long long)score_of(&story, i));
			assert_int_equal(story.outputs[i].rules_on, 0);
			assert_int_equal(story.outputs[i].start_ppm, PPM);
			assert_int_equal(story.outputs[i].cap_ppm, PPM);
		}
		for (unsigned i = 0; i < 100; i++)
			assert_int_not_equal(story_ask(&story), -1);
		story_fini(&story);
	}
}

/* --- sizes --- */

struct crowd {
	struct node_view views[SCORE_SET_MAX];
	struct score_input inputs[SCORE_SET_MAX];
	struct score_output outputs[SCORE_SET_MAX];
	const struct score_input *pointers[SCORE_SET_MAX];
	uint16_t nodes[SCORE_SET_MAX];
	struct decision decision;
	struct route *route;
};

static void crowd_init(struct crowd *crowd, size_t count, struct rng *rng)
{
	static const uint32_t weights[] = { 0, 1, 1000, 5000, UINT32_MAX };
	static const enum member_state states[] = { MEMBER_HEALTHY, MEMBER_HEALTHY,     MEMBER_SUSPECT,
						    MEMBER_LEAVING, MEMBER_UNREACHABLE, MEMBER_REMOVED };

	for (size_t i = 0; i < count; i++) {
		struct report report;
		char id[SCORE_ID_SIZE];

		snprintf(id, sizeof(id), "%064zu", i * 7919 % SCORE_SET_MAX);
		node_view_init(&crowd->views[i], id, weights[rng_below(rng, COUNT_OF(weights))],
			       states[rng_below(rng, COUNT_OF(states))], BEGIN_US);
		for (unsigned field = 0; field < REPORT_FIELDS; field++)
			report_set(&report, (enum report_field)field,
				   rng_below(rng, 4) ? (int64_t)rng_below(rng, 2000000) : REPORT_UNKNOWN);
		if (rng_below(rng, 8))
			node_view_report(&crowd->views[i], KV, &report, 1, BEGIN_US);
		if (rng_below(rng, 8) == 0)
			node_view_join(&crowd->views[i], true, BEGIN_US);
		crowd->views[i].is_barred = rng_below(rng, 8) == 0;
	}
}

/* nodes: in what order they are given. */
static void crowd_judge(struct crowd *crowd, const struct profile *profile, size_t count, struct judge_memory *memory)
{
	struct route_builder *builder = route_builder_new(1, count);

	for (size_t i = 0; i < count; i++) {
		node_view_input(&crowd->views[crowd->nodes[i]], crowd->nodes[i] % 7, crowd->nodes[i], BEGIN_US + SEC_US,
				&crowd->inputs[i]);
		crowd->pointers[i] = &crowd->inputs[i];
	}
	score_set(profile, crowd->pointers, count, crowd->outputs);
	judge_set(profile, memory, 0, crowd->pointers, crowd->outputs, count, &crowd->decision);
	route_builder_add(builder, &crowd->decision, crowd->outputs, crowd->nodes, count, NULL, NULL);
	route_free(&crowd->route);
	crowd->route = route_builder_end(&builder, 1, 1);
}

static void check_choices(const struct crowd *crowd, const struct route *other, size_t count,
			  enum pick_strategy strategy)
{
	struct pick pick, pick_other;

	pick_init(&pick, strategy, count, 1, 3);
	pick_init(&pick_other, strategy, count, 1, 3);
	for (unsigned i = 0; i < 200; i++) {
		struct pick_call call = { .key_hash = i * 0x9e3779b97f4a7c15u, .now_us = BEGIN_US + i };
		enum reason reason, reason_other;
		int offset = pick_next(&pick, crowd->route, 0, &call, &reason), node;

		assert_int_equal(offset, pick_next(&pick_other, other, 0, &call, &reason_other));
		assert_int_equal(reason, reason_other);
		if (offset < 0)
			continue;
		node = crowd->route->candidates[offset].node_index;
		assert_int_equal(other->candidates[offset].node_index, node);
		assert_false(crowd->views[node].is_barred);
		assert_true(crowd->views[node].member.state < MEMBER_UNREACHABLE);
		pick_sent(&pick, (uint16_t)node, call.now_us);
		pick_sent(&pick_other, (uint16_t)node, call.now_us);
	}
	pick_fini(&pick);
	pick_fini(&pick_other);
}

static void test_crowds_in_any_order(void **state)
{
	static const char *const profiles[] = { "kv", "gateway", "folder" };
	static const size_t counts[] = { 0, 1, 2, 8, 9, 100, SCORE_SET_MAX };
	struct crowd *crowd = must_zalloc(1, sizeof(*crowd));
	struct rng rng;

	(void)state;
	rng_seed(&rng, 1024);
	for (size_t i = 0; i < COUNT_OF(profiles) * COUNT_OF(counts); i++) {
		const struct profile *profile = profile_builtin(profiles[i % COUNT_OF(profiles)]);
		struct judge_memory memory = { .selected = "" }, memory_other = memory;
		size_t count = counts[i / COUNT_OF(profiles)];
		struct route *straight;

		crowd_init(crowd, count, &rng);
		for (size_t node = 0; node < count; node++)
			crowd->nodes[node] = (uint16_t)node;
		crowd_judge(crowd, profile, count, &memory);
		straight = crowd->route;
		crowd->route = NULL;
		for (size_t node = count; node > 1; node--) {
			size_t other = (size_t)rng_below(&rng, node);
			uint16_t kept = crowd->nodes[node - 1];

			crowd->nodes[node - 1] = crowd->nodes[other];
			crowd->nodes[other] = kept;
		}
		crowd_judge(crowd, profile, count, &memory_other);
		assert_string_equal(memory.selected, memory_other.selected);
		for (enum pick_strategy strategy = 0; strategy < PICK_STRATEGIES; strategy++)
			check_choices(crowd, straight, count, strategy);
		route_free(&straight);
	}
	route_free(&crowd->route);
	free(crowd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_new_worker),
		cmocka_unit_test(test_recovering_is_no_latch),
		cmocka_unit_test(test_every_way_back_is_slow),
		cmocka_unit_test(test_a_new_pool_starts_at_once),
		cmocka_unit_test(test_one_lost_report_changes_nothing),
		cmocka_unit_test(test_a_reporter_that_stops),
		cmocka_unit_test(test_three_lost),
		cmocka_unit_test(test_gateway_traffic),
		cmocka_unit_test(test_degrade),
		cmocka_unit_test(test_a_node_that_only_looks_well),
		cmocka_unit_test(test_leaving_and_drained),
		cmocka_unit_test(test_weight_zero),
		cmocka_unit_test(test_latency_that_flaps),
		cmocka_unit_test(test_flat_scores),
		cmocka_unit_test(test_clocks),
		cmocka_unit_test(test_it_settles_when_faults_stop),
		cmocka_unit_test(test_crowds_in_any_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
