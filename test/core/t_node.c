#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "core/node.h"

#define BEGIN_US (1000 * SEC_US)

struct stage {
	struct node_view view;
	const struct member_rules *rules;
	int64_t now_us;
	struct report report;
	uint64_t sequence;
};

static void stage_init(struct stage *stage, const struct member_rules *rules, enum member_state state)
{
	stage->rules = rules;
	stage->now_us = BEGIN_US;
	stage->sequence = 0;
	report_init(&stage->report);
	stage->report.started_wall_us = 77 * SEC_US;
	node_view_init(&stage->view, "n1", 1000, state, BEGIN_US);
}

static bool stage_report(struct stage *stage)
{
	return node_view_report(&stage->view, stage->rules, &stage->report, ++stage->sequence, stage->now_us);
}

/* R a report, P probe good, p missed, G gossip good, d doubts, f confirms, x says nothing any more, T traffic good, t failed, L leave, S stay,
 * D drained, . a second goes by, - ten do (a step of the view each second). True when the event said that the state changed. */
static bool stage_event(struct stage *stage, char event)
{
	struct node_view *view = &stage->view;
	const struct member_rules *rules = stage->rules;
	bool is_changed = false;

	switch (event) {
	case 'R':
		return stage_report(stage);
	case 'P':
	case 'p':
		return node_view_probe(view, rules, event == 'P', stage->now_us);
	case 'G':
		return node_view_gossip(view, rules, HEALTH_GOOD, stage->now_us);
	case 'd':
		return node_view_gossip(view, rules, HEALTH_DOUBTFUL, stage->now_us);
	case 'f':
		return node_view_gossip(view, rules, HEALTH_FAILED, stage->now_us);
	case 'x':
		return node_view_gossip(view, rules, HEALTH_UNKNOWN, stage->now_us);
	case 'T':
	case 't':
		return node_view_traffic(view, rules, event == 'T', stage->now_us);
	case 'L':
		return node_view_tell(view, rules, MEMBER_LEAVE, stage->now_us);
	case 'S':
		return node_view_tell(view, rules, MEMBER_STAY, stage->now_us);
	case 'D':
		return node_view_tell(view, rules, MEMBER_DRAINED, stage->now_us);
	case '.':
	case '-':
		for (int i = 0; i < (event == '.' ? 1 : 10); i++) {
			stage->now_us += SEC_US;
			is_changed |= node_view_step(view, rules, stage->now_us);
		}
		return is_changed;
	default:
		fail_msg("no event '%c'", event);
		return false;
	}
}

/* In a story '=' and a letter say which state it is then: h s l u r. */
static void play(struct stage *stage, const char *why, const char *story)
{
	static const char letters[] = "hslur";

	for (size_t i = 0; story[i]; i++) {
		enum member_state before = stage->view.member.state;
		bool is_changed;

		if (story[i] == ' ')
			continue;
		if (story[i] == '=') {
			i++;
			if (letters[before] != story[i])
				fail_msg("%s: after '%.*s' %s", why, (int)i - 1, story, member_state_name(before));
			continue;
		}
		is_changed = stage_event(stage, story[i]);
		if (stage->view.member.state != before)
			assert_true(is_changed);
		else if (story[i] != '-')
			assert_false(is_changed);
	}
}

struct row {
	const char *why;
	const struct member_rules *rules;
	enum member_state from;
	const char *story;
};

static void play_rows(const struct row *rows, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct stage stage;

		stage_init(&stage, rows[i].rules, rows[i].from);
		play(&stage, rows[i].why, rows[i].story);
	}
}

#define FOLDER  (&member_rules_folder)
#define KV      (&member_rules_kv)
#define GATEWAY (&member_rules_gateway)

static void test_misses(void **state)
{
	static const struct row rows[] = {
		{ "never heard is never missed", KV, MEMBER_HEALTHY, "------=h" },
		{ "one lost report", KV, MEMBER_HEALTHY, "R...R......R...R=h" },
		{ "two lost reports", KV, MEMBER_HEALTHY, "R.........=hR=h" },
		{ "three lost reports: kv", KV, MEMBER_HEALTHY, "R.........=h.=sR=h" },
		{ "three lost reports: folder", FOLDER, MEMBER_HEALTHY, "R.........=h.=uR=u...R=h" },
		{ "three lost reports: gateway", GATEWAY, MEMBER_HEALTHY, "R.........=h.=uR=u...R=h" },
		{ "three missed probes: folder", FOLDER, MEMBER_HEALTHY, "pp=hp=u" },
		{ "three missed probes: kv", KV, MEMBER_HEALTHY, "pp=hp=s" },
		{ "not in a row", FOLDER, MEMBER_HEALTHY, "ppPppPpp=hp=u" },
		{ "two of one source and two of the other are not three", FOLDER, MEMBER_HEALTHY, "Rpp........=h..=u" },
		{ "the row of one source is not broken by another's good word", FOLDER, MEMBER_HEALTHY, "ppRpR=u" },
		{ "gateway: three failures on live traffic", GATEWAY, MEMBER_HEALTHY, "tt=ht=u" },
		{ "a success starts anew", GATEWAY, MEMBER_HEALTHY, "ttTttTtt=ht=u" },
		{ "good probes do not hold a node whose traffic fails", GATEWAY, MEMBER_HEALTHY, "tPtPtP=u" },
		{ "folder and kv: traffic is no reason", FOLDER, MEMBER_HEALTHY, "tttttttt=h" },
		{ "nor for kv", KV, MEMBER_HEALTHY, "tttttttt=h" },
		{ "gossip alone is no reason", KV, MEMBER_HEALTHY, "dddd=hf=h" },
	};

	(void)state;
	play_rows(rows, COUNT_OF(rows));
}

static void test_ways_back(void **state)
{
	static const struct row rows[] = {
		{ "two good probes", FOLDER, MEMBER_UNREACHABLE, "P=uP=h" },
		{ "two good reports", FOLDER, MEMBER_UNREACHABLE, "R=u...R=h" },
		{ "one of each", FOLDER, MEMBER_UNREACHABLE, "P=uR=h" },
		{ "in a row", FOLDER, MEMBER_UNREACHABLE, "PpP=uP=h" },
		{ "a report that stays out breaks the row", GATEWAY, MEMBER_UNREACHABLE, "R....P=uP=h" },
		{ "not while another source says failed", FOLDER, MEMBER_HEALTHY, "Rppp=u R...R...R=u P=uP=h" },
		{ "nor the other way round", FOLDER, MEMBER_HEALTHY, "R-=u PPPP=u R=u P=h" },
		{ "suspect by reports, a good probe is not enough", KV, MEMBER_HEALTHY, "R-=s PP=s R=h" },
		{ "suspect by probes, a good report is not enough", KV, MEMBER_HEALTHY, "Rppp=s R...R=s P=h" },
		{ "gossip says failed: as well", KV, MEMBER_HEALTHY, "R-=sf=u R...R...R=u G=uR=u...R=h" },
		{ "gossip says nothing any more", KV, MEMBER_HEALTHY, "R-=sf=u x=u R...R=h" },
		{ "gossip doubts: failed stays failed", KV, MEMBER_HEALTHY, "R-=sf=u d R...R=u" },
		{ "gossip is no probe and no report", KV, MEMBER_UNREACHABLE, "GGGG=u" },
		{ "nor is traffic", GATEWAY, MEMBER_UNREACHABLE, "TTTT=u" },
		{ "out by traffic: two good probes", GATEWAY, MEMBER_HEALTHY, "PPPttt=u P=uP=h" },
		{ "or reports", GATEWAY, MEMBER_HEALTHY, "Rttt=u ...R=u...R=h" },
		{ "failures that were on their way do not stop it", GATEWAY, MEMBER_HEALTHY, "ttt=uPtttP=h" },
		{ "and its traffic begins anew", GATEWAY, MEMBER_HEALTHY, "ttt=uPP=htt=ht=u" },
		{ "unknown to known", KV, MEMBER_UNREACHABLE, "-=uR=u...R=h" },
	};

	(void)state;
	play_rows(rows, COUNT_OF(rows));
}

static void test_suspicion(void **state)
{
	static const struct row rows[] = {
		{ "expires after thirty seconds", KV, MEMBER_HEALTHY, "R-=s ---=s.=u" },
		{ "not while a probe says good", KV, MEMBER_HEALTHY, "R-=sP---P---P---P---P=s" },
		{ "nor traffic", KV, MEMBER_HEALTHY, "R-=sT---T---T---T---T=s" },
		{ "nor gossip, which tells of changes alone", KV, MEMBER_HEALTHY, "GR-=s--------=s" },
		{ "nor the node itself", KV, MEMBER_HEALTHY, "ppp=s R...R...R...R...R...R...R...R...R...R...R...R=s" },
		{ "a good word grows old", KV, MEMBER_HEALTHY, "R-=sP---=s.=u" },
		{ "of traffic too", KV, MEMBER_HEALTHY, "TR-=s---.=u" },
		{ "a probe that is no longer good", KV, MEMBER_HEALTHY, "R-=sP--P--=sp=u" },
		{ "gossip confirms", KV, MEMBER_HEALTHY, "R-=sd=sf=u" },
		{ "confirms before", KV, MEMBER_HEALTHY, "Rf=h......... =h.=u" },
		{ "confirms, but the worker answers", KV, MEMBER_HEALTHY, "R-P=sf=s ---=s.=u" },
		{ "confirms, but the worker serves", KV, MEMBER_HEALTHY, "R-T=sf=s T--=s" },
		{ "confirms, and the worker stops answering", KV, MEMBER_HEALTHY, "R-P=sf=sp=u" },
		{ "confirms, and its own word does not help", KV, MEMBER_HEALTHY, "ppp=sR=sf=u" },
		{ "confirms, the agent is back, gossip not yet", KV, MEMBER_HEALTHY, "R-P=sf=sR=sG=s...R=h" },
		{ "other doors: no limit", FOLDER, MEMBER_SUSPECT, "---------=s" },
		{ "nor does a good word grow old", FOLDER, MEMBER_SUSPECT, "T------=sf=s" },
		{ "doubts are no confirmation, however many", KV, MEMBER_HEALTHY, "R-=sdddddd=s" },
	};

	(void)state;
	play_rows(rows, COUNT_OF(rows));
}

static void test_leaving(void **state)
{
	static const struct row rows[] = {
		{ "drained", FOLDER, MEMBER_HEALTHY, "L=lD=r" },
		{ "drained without having been told to leave", FOLDER, MEMBER_HEALTHY, "D=h" },
		{ "removed is the end", GATEWAY, MEMBER_REMOVED, "PPRR...RLSDpppttt-f=r" },
		{ "stays", KV, MEMBER_HEALTHY, "L=lS=h" },
		{ "good words do not end it", KV, MEMBER_HEALTHY, "LPPR...RGT=l" },
		{ "told while unreachable", FOLDER, MEMBER_UNREACHABLE, "LP=uP=l" },
		{ "unreachable meanwhile", FOLDER, MEMBER_LEAVING, "ppp=uPP=lD=r" },
		{ "suspect meanwhile", KV, MEMBER_LEAVING, "ppp=sP=l" },
		{ "silent and told to leave: suspicion goes on with the next miss", KV, MEMBER_HEALTHY,
		  "R-=sL=l...=s" },
	};

	(void)state;
	play_rows(rows, COUNT_OF(rows));
}

static void test_leaving_by_report(void **state)
{
	struct stage stage;

	(void)state;
	stage_init(&stage, KV, MEMBER_HEALTHY);
	stage.report.leaving = 1;
	assert_true(stage_report(&stage));
	play(&stage, "says it leaves", "=l...R=l");
	/* Takes its word back. */
	stage.report.leaving = 0;
	play(&stage, "stays", "...R=h...R=h");
	/* Not the operator's. */
	play(&stage, "told", "L=l...R=l");
	stage.report.leaving = 1;
	play(&stage, "told, and says so", "...R=l");
	stage.report.leaving = 0;
	play(&stage, "forgot", "...R=lS=h");
	/* The operator's later word stands. */
	stage.report.leaving = 1;
	play(&stage, "leaves, may stay", "...R=lS=h...R=h");
	/* A field that is not told is no word. */
	stage.report.leaving = 0;
	stage_report(&stage);
	stage.report.leaving = 1;
	stage_report(&stage);
	stage.report.leaving = REPORT_UNKNOWN;
	play(&stage, "does not tell", "...R=l");

	/* Back from Unreachable as leaving. */
	stage_init(&stage, FOLDER, MEMBER_HEALTHY);
	stage_report(&stage);
	stage.report.leaving = 1;
	play(&stage, "back to leave", "-=uR=u...R=l");
}

static void test_late_answers_hide_no_failure(void **state)
{
	struct stage stage;

	(void)state;
	stage_init(&stage, GATEWAY, MEMBER_HEALTHY);
	play(&stage, "out by traffic", "ttt=uTT=u");
	assert_int_equal(stage.view.health.views[HEALTH_TRAFFIC].word, HEALTH_FAILED);
	play(&stage, "back", "PP=h");
	assert_int_equal(stage.view.health.views[HEALTH_TRAFFIC].word, HEALTH_UNKNOWN);
}

static void test_leaving_suspect_is_offered_no_more(void **state)
{
	struct score_input input;
	struct stage stage;

	(void)state;
	stage_init(&stage, KV, MEMBER_HEALTHY);
	play(&stage, "suspect", "RL-=s");
	node_view_input(&stage.view, -1, -1, stage.now_us, &input);
	assert_int_equal(input.state, MEMBER_LEAVING);
	play(&stage, "stays", "S=s");
	node_view_input(&stage.view, -1, -1, stage.now_us, &input);
	assert_int_equal(input.state, MEMBER_SUSPECT);
}

static void test_misses_are_shown(void **state)
{
	struct stage stage;

	(void)state;
	stage_init(&stage, FOLDER, MEMBER_HEALTHY);
	play(&stage, "two", "pp");
	assert_int_equal(stage.view.member.missed_count, 2);
	play(&stage, "more", "ppp");
	assert_int_equal(stage.view.member.missed_count, 5);
	play(&stage, "good", "P");
	assert_int_equal(stage.view.member.missed_count, 0);

	/* A leap of the clock in one step: as unreachable as by many. */
	stage_init(&stage, FOLDER, MEMBER_HEALTHY);
	stage_report(&stage);
	assert_true(node_view_step(&stage.view, FOLDER, BEGIN_US + 1000000 * SEC_US));
	assert_int_equal(stage.view.member.state, MEMBER_UNREACHABLE);
	/* A clock that went back is no miss. */
	stage_init(&stage, FOLDER, MEMBER_HEALTHY);
	stage_report(&stage);
	assert_false(node_view_step(&stage.view, FOLDER, 0));
	assert_int_equal(stage.view.health.views[HEALTH_HEARTBEAT].word, HEALTH_GOOD);
	/* At nine seconds the third is not late yet. */
	assert_false(node_view_step(&stage.view, FOLDER, BEGIN_US + 3 * REPORT_INTERVAL_US));
	assert_true(node_view_step(&stage.view, FOLDER, BEGIN_US + 3 * REPORT_INTERVAL_US + 1));
}

static void test_joining(void **state)
{
	struct score_input input;
	struct stage stage;

	(void)state;
	stage_init(&stage, KV, MEMBER_HEALTHY);
	assert_int_equal(stage.view.joined_us, -1);
	stage.report.verified = 1;
	stage_report(&stage);
	assert_true(stage.view.was_ever_verified);
	/* A node that is new here has verified nothing yet. */
	node_view_join(&stage.view, true, stage.now_us);
	assert_int_equal(stage.view.joined_us, stage.now_us);
	assert_false(stage.view.was_ever_verified);
	node_view_join(&stage.view, false, stage.now_us);
	assert_int_equal(stage.view.joined_us, -1);

	/* Suspect and back is not away; unreachable is, also for a node that comes back to leave. */
	stage_init(&stage, KV, MEMBER_HEALTHY);
	play(&stage, "suspect", "R-=sR=h");
	assert_int_equal(stage.view.joined_us, -1);
	play(&stage, "gone", "-=s---.=u...R=u...R=h");
	assert_int_equal(stage.view.joined_us, stage.now_us);
	play(&stage, "later", "...R");
	node_view_input(&stage.view, -1, -1, stage.now_us, &input);
	assert_int_equal(input.joined_age_us, 3 * SEC_US);
	stage_init(&stage, FOLDER, MEMBER_LEAVING);
	play(&stage, "back", "ppp=u.P.P=l");
	assert_int_equal(stage.view.joined_us, stage.now_us);
	/* Told to leave or stay is not back. */
	stage_init(&stage, FOLDER, MEMBER_HEALTHY);
	play(&stage, "told", "L=lS=h");
	assert_int_equal(stage.view.joined_us, -1);
}

/* The number that the last accepted report told. */
static int64_t told(const struct stage *stage) { return stage->view.report.threads; }

static bool report_as(struct stage *stage, int64_t started_wall_us, uint64_t sequence, int64_t threads)
{
	struct report report = stage->report;

	report.started_wall_us = started_wall_us;
	report.threads = threads;
	return node_view_report(&stage->view, stage->rules, &report, sequence, stage->now_us);
}

static void test_old_reports_are_dropped(void **state)
{
	static const struct {
		const char *why;
		int64_t started_before_us, started_us, waited_us;
		uint64_t sequence; /* after 10 */
		bool is_taken;
	} rows[] = {
		{ "the next", 100 * SEC_US, 100 * SEC_US, 1, 11, true },
		{ "some were lost", 100 * SEC_US, 100 * SEC_US, 1, 15, true },
		{ "twice", 100 * SEC_US, 100 * SEC_US, 1, 10, false },
		{ "late", 100 * SEC_US, 100 * SEC_US, 1, 9, false },
		{ "late, after a silence", 100 * SEC_US, 100 * SEC_US, 60 * SEC_US, 9, false },
		{ "a new process", 100 * SEC_US, 103 * SEC_US, 1, 1, true },
		{ "the clock was set a little", 100 * SEC_US, 102 * SEC_US, 1, 9, false },
		{ "the same, and the next", 102 * SEC_US, 100 * SEC_US, 1, 11, true },
		{ "the former process", 103 * SEC_US, 100 * SEC_US, 1, 900, false },
		{ "a new process whose clock was set back", 103 * SEC_US, 100 * SEC_US, 9 * SEC_US + 1, 1, true },
		{ "not yet", 103 * SEC_US, 100 * SEC_US, 9 * SEC_US, 1, false },
		{ "does not tell when it was started", -1, 100 * SEC_US, 1, 9, false },
		{ "the same, and the next", -1, -1, 1, 11, true },
		{ "the same, after a silence", -1, -1, 9 * SEC_US + 1, 1, true },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct stage stage;

		stage_init(&stage, KV, MEMBER_HEALTHY);
		report_as(&stage, rows[i].started_before_us, 10, 5);
		stage.now_us += rows[i].waited_us;
		report_as(&stage, rows[i].started_us, rows[i].sequence, 6);
		if ((told(&stage) == 6) != rows[i].is_taken)
			fail_msg("%s", rows[i].why);
		assert_int_equal(stage.view.report_us, rows[i].is_taken ? stage.now_us : BEGIN_US);
		assert_int_equal(stage.view.report_sequence, rows[i].is_taken ? rows[i].sequence : 10);
	}
	/* A dropped one is no good word either. */
	struct stage stage;

	stage_init(&stage, KV, MEMBER_HEALTHY);
	report_as(&stage, 5, 10, 5);
	play(&stage, "suspect", "-=s");
	assert_false(report_as(&stage, 5, 10, 5));
	play(&stage, "still", "=s");
	assert_true(report_as(&stage, 5, 11, 5));
}

/* A process that was started again within seconds joins anew, though nobody missed it. */
static void test_a_new_process_joins(void **state)
{
	static const struct {
		const char *why;
		int64_t started_before_us, started_us, waited_us;
		uint64_t sequence; /* after 10 */
		bool is_new;
	} rows[] = {
		{ "the next", 100 * SEC_US, 100 * SEC_US, 3 * SEC_US, 11, false },
		{ "the clock was set a little", 100 * SEC_US, 102 * SEC_US, 3 * SEC_US, 11, false },
		{ "back a little", 102 * SEC_US, 100 * SEC_US, 3 * SEC_US, 11, false },
		{ "started later", 100 * SEC_US, 102 * SEC_US + 1, 3 * SEC_US, 11, true },
		{ "started later, counts anew", 100 * SEC_US, 103 * SEC_US, 3 * SEC_US, 1, true },
		{ "of the former process", 102 * SEC_US + 1, 100 * SEC_US, 3 * SEC_US, 11, false },
		{ "the clock was set back at its start", 102 * SEC_US + 1, 100 * SEC_US, 10 * SEC_US, 1, true },
		{ "does not tell, and the next", -1, -1, 3 * SEC_US, 11, false },
		{ "does not tell, counts anew", 100 * SEC_US, -1, 10 * SEC_US, 10, true },
		{ "does not tell, after a silence", -1, 100 * SEC_US, 10 * SEC_US, 11, false },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct stage stage;

		stage_init(&stage, GATEWAY, MEMBER_HEALTHY);
		report_as(&stage, rows[i].started_before_us, 10, 5);
		assert_int_equal(stage.view.joined_us, -1);
		play(&stage, "failures of the former process", "tt");
		stage.now_us += rows[i].waited_us;
		report_as(&stage, rows[i].started_us, rows[i].sequence, 6);
		if (stage.view.joined_us != (rows[i].is_new ? stage.now_us : -1))
			fail_msg("%s: %lld", rows[i].why, (long long)stage.view.joined_us);
		play(&stage, "are not those of the new one", rows[i].is_new ? "tt=ht=u" : "t=u");
	}
}

static int64_t write_failures_now(struct stage *stage)
{
	struct score_input input;

	node_view_input(&stage->view, 0, 0, stage->now_us, &input);
	return input.write_failure_ppm;
}

static void test_write_failures(void **state)
{
	static const struct {
		int64_t writes, write_failures, expected_ppm;
	} rows[] = {
		{ 1000, 100, -1 }, /* what was before is not known */
		{ 1010, 105, 500000 },
		{ 1020, 105, 0 },
		{ 1021, 106, 1000000 },
		{ 1021, 106, 1000000 }, /* no writes tell nothing */
		{ -1, 106, 1000000 },
		{ 1025, -1, 1000000 },
		{ 1025, 107, 250000 },
		{ 3, 3, 250000 }, /* a new process */
		{ 9, 3, 0 },
		{ 10, 500, 1000000 }, /* more failed than were tried */
		{ INT64_MAX, INT64_MAX, 999999 },
	};
	struct stage stage;

	(void)state;
	stage_init(&stage, FOLDER, MEMBER_HEALTHY);
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		stage.now_us += 3 * SEC_US;
		stage.report.writes = rows[i].writes;
		stage.report.write_failures = rows[i].write_failures;
		stage_report(&stage);
		if (write_failures_now(&stage) != rows[i].expected_ppm)
			fail_msg("row %zu: %lld", i, (long long)write_failures_now(&stage));
	}
	/* A new process whose counters are already beyond those of the former one. */
	stage.report.writes = stage.report.write_failures = 10;
	stage_report(&stage);
	stage.now_us += 3 * SEC_US;
	stage.report.started_wall_us += 60 * SEC_US;
	stage.report.writes = 1000;
	stage_report(&stage);
	assert_int_equal(write_failures_now(&stage), 999999);
	stage.report.writes = 1001;
	stage_report(&stage);
	assert_int_equal(write_failures_now(&stage), 0);
	stage.report.writes = stage.report.write_failures = 2001;
	stage_report(&stage);
	assert_int_equal(write_failures_now(&stage), PPM);
	/* A node that gets no more writes is not held to them for ever. */
	stage.now_us += NODE_WRITES_LIFE_US;
	assert_int_equal(write_failures_now(&stage), PPM);
	stage.now_us += 1;
	assert_int_equal(write_failures_now(&stage), -1);
}

/* A node serves a hundred requests a second in 8 to 12 ms; at the thirtieth minute it stands still for two seconds, and what came meanwhile
 * waits: less than one request in a hundred of five minutes. The smoothed p99 of its reports stays where it was. */
static void test_one_pause_does_not_move_the_p99(void **state)
{
	const int64_t pause_us = BEGIN_US + 1800 * SEC_US, end_us = pause_us + 2 * SEC_US;
	int64_t before_us = 0, most_us = 0, worst_us = 0;
	struct hist_window *window = malloc(sizeof(*window));
	struct hist hist;
	struct stage stage;
	struct rng rng;

	(void)state;
	assert_non_null(window);
	rng_seed(&rng, 24);
	stage_init(&stage, KV, MEMBER_HEALTHY);
	hist_window_init(window, 300 * SEC_US, BEGIN_US);
	for (int64_t i = 0; i < 250000; i++) {
		int64_t arrived_us = BEGIN_US + i * 10000, took_us = 8000 + (int64_t)rng_below(&rng, 4000);

		if (arrived_us >= pause_us && arrived_us < end_us)
			took_us += end_us - arrived_us;
		worst_us = max_i64(worst_us, took_us);
		hist_window_feed(window, took_us, arrived_us);
		if (i % 300 != 299)
			continue;
		stage.now_us = arrived_us;
		hist_window_read(window, arrived_us, &hist);
		stage.report.p99_us = hist_quantile_us(&hist, 990000);
		stage_report(&stage);
		if (arrived_us < pause_us)
			before_us = stage.view.p99_smooth_us;
		else
			most_us = max_i64(most_us, stage.view.p99_smooth_us);
	}
	free(window);
	assert_in_range(worst_us, 2000000, 2012000);
	assert_in_range(before_us, 11500, 12500);
	assert_in_range(most_us, before_us - before_us / 10, before_us + before_us / 10);
}

static void test_smoothed_p99(void **state)
{
	struct stage stage;

	(void)state;
	stage_init(&stage, KV, MEMBER_HEALTHY);
	assert_int_equal(stage.view.p99_smooth_us, -1);
	stage.report.p99_us = 10000;
	stage_report(&stage);
	assert_int_equal(stage.view.p99_smooth_us, 10000);
	/* A lasting change comes through: e^-1 of the difference is left after a minute. */
	stage.report.p99_us = 110000;
	for (int i = 0; i < 20; i++) {
		stage.now_us += 3 * SEC_US;
		stage_report(&stage);
	}
	assert_in_range(stage.view.p99_smooth_us, 73100, 73300);
	/* Reports that do not tell leave it, and the time counts on. */
	stage.report.p99_us = REPORT_UNKNOWN;
	stage.now_us += 30 * SEC_US;
	stage_report(&stage);
	assert_in_range(stage.view.p99_smooth_us, 73100, 73300);
	stage.report.p99_us = 110000;
	stage.now_us += 30 * SEC_US;
	stage_report(&stage);
	assert_in_range(stage.view.p99_smooth_us, 96400, 96600);
}

static void test_input_and_keep(void **state)
{
	struct score_output output = { .rules_on = 5, .score_ppm = 640000 };
	struct score_input input;
	struct stage stage;

	(void)state;
	stage_init(&stage, KV, MEMBER_HEALTHY);
	node_view_input(&stage.view, -1, -1, stage.now_us, &input);
	assert_string_equal(input.id, "n1");
	assert_int_equal(input.weight_milli, 1000);
	assert_int_equal(input.state, MEMBER_HEALTHY);
	assert_int_equal(input.age_us, -1);
	assert_int_equal(input.joined_age_us, -1);
	assert_int_equal(input.p99_smooth_us, -1);
	assert_int_equal(input.write_failure_ppm, -1);
	assert_int_equal(input.in_flight, -1);
	assert_int_equal(input.rt_mean_us, -1);
	assert_int_equal(input.score_before_ppm, -1);
	assert_int_equal(input.rules_on, 0);
	assert_false(input.was_ever_verified);
	assert_false(input.is_barred);
	for (unsigned i = 0; i < REPORT_FIELDS; i++)
		assert_int_equal(report_get(&input.report, (enum report_field)i), REPORT_UNKNOWN);

	stage.report.verified = 1;
	stage.report.p99_us = 4000;
	play(&stage, "words", "RGTp");
	stage.view.is_barred = true;
	memcpy(stage.view.bar_reason, "disk", sizeof("disk"));
	node_view_keep(&stage.view, &output);
	stage.now_us += 2 * SEC_US;
	node_view_input(&stage.view, 3, 5000, stage.now_us, &input);
	assert_int_equal(input.age_us, 2 * SEC_US);
	assert_int_equal(input.p99_smooth_us, 4000);
	assert_int_equal(input.in_flight, 3);
	assert_int_equal(input.rt_mean_us, 5000);
	assert_int_equal(input.score_before_ppm, 640000);
	assert_int_equal(input.rules_on, 5);
	assert_true(input.was_ever_verified);
	assert_true(input.is_barred);
	assert_string_equal(input.bar_reason, "disk");
	assert_int_equal(input.words[HEALTH_PROBE], HEALTH_DOUBTFUL);
	assert_int_equal(input.words[HEALTH_HEARTBEAT], HEALTH_GOOD);
	assert_int_equal(input.words[HEALTH_GOSSIP], HEALTH_GOOD);
	assert_int_equal(input.words[HEALTH_TRAFFIC], HEALTH_GOOD);
	/* Nothing of `verified` latches but that it once was. */
	stage.report.verified = 0;
	stage_report(&stage);
	node_view_input(&stage.view, 3, 5000, stage.now_us, &input);
	assert_int_equal(input.report.verified, 0);
	assert_true(input.was_ever_verified);
	/* A clock that went back gives no negative age, which would mean never. */
	node_view_input(&stage.view, 3, 5000, 0, &input);
	assert_int_equal(input.age_us, 0);
}

/* Whatever comes in whatever order: who answers probes and reports again, and of whom gossip says nothing bad, is back within two rounds. */
static void test_always_a_way_back(void **state)
{
	static const char events[] = "RRPpGdfxTtLS.-";
	const struct member_rules *const doors[] = { FOLDER, KV, GATEWAY };
	struct rng rng;

	(void)state;
	rng_seed(&rng, 25);
	for (unsigned round = 0; round < 3000; round++) {
		struct stage stage;

		stage_init(&stage, doors[round % COUNT_OF(doors)], (enum member_state)rng_below(&rng, 4));
		for (unsigned i = 0; i < 60; i++) {
			enum member_state before = stage.view.member.state;
			bool is_changed = stage_event(&stage, events[rng_below(&rng, sizeof(events) - 1)]);

			assert_true(is_changed || before == stage.view.member.state);
		}
		for (const char *event = "xP.RP.R"; *event; event++)
			(void)stage_event(&stage, *event);
		assert_int_equal(stage.view.member.state,
				 stage.view.member.is_leaving ? MEMBER_LEAVING : MEMBER_HEALTHY);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_misses),
		cmocka_unit_test(test_ways_back),
		cmocka_unit_test(test_suspicion),
		cmocka_unit_test(test_leaving),
		cmocka_unit_test(test_leaving_by_report),
		cmocka_unit_test(test_late_answers_hide_no_failure),
		cmocka_unit_test(test_leaving_suspect_is_offered_no_more),
		cmocka_unit_test(test_misses_are_shown),
		cmocka_unit_test(test_joining),
		cmocka_unit_test(test_old_reports_are_dropped),
		cmocka_unit_test(test_a_new_process_joins),
		cmocka_unit_test(test_write_failures),
		cmocka_unit_test(test_one_pause_does_not_move_the_p99),
		cmocka_unit_test(test_smoothed_p99),
		cmocka_unit_test(test_input_and_keep),
		cmocka_unit_test(test_always_a_way_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
