/* The scheduler judges its nodes: reports over the wire, what is shown of them, the profile, the decision log. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sched_world.h"
#include "core/decide.h"

static uint64_t sequence;

static void fill_message(struct report_message *message)
{
	memset(message, 0, sizeof(*message));
	snprintf(message->node_id, sizeof(message->node_id), "%s", node.id);
	snprintf(message->incarnation, sizeof(message->incarnation), "%s", node.incarnation);
	message->sequence = ++sequence;
	report_init(&message->report);
	message->report.cpu_cores_milli = 2000;
	message->report.cpu_busy_milli = 200;
	message->report.started_wall_us = 1700000000000000;
	message->dir_count = 1;
	snprintf(message->dirs[0].path, sizeof(message->dirs[0].path), "/srv/n1");
}

static void give(const struct report_message *message)
{
	const char *headers[] = { internal_header, NULL };
	struct buf body = BUF_INIT(MIB);

	report_write(&body, message);
	call_with("POST", "/internal/v1/reports", headers, buf_str(&body));
	buf_fini(&body);
}

static const json_t *node_shown(void)
{
	call_as("aud", "GET", "/api/v1/nodes", STR_NONE);
	expect_status(200);
	return json_array_get(json_object_get(answer.json, "nodes"), 0);
}

static double shown_number(const char *key) { return json_number_value(json_object_get(node_shown(), key)); }

static void await_weight(double weight)
{
	int64_t deadline_us = clock_mono_us() + 20 * SEC_US;

	while (shown_number("weight_effective") != weight) {
		if (clock_mono_us() > deadline_us)
			fail_msg("the weight did not come to be %f: %s", weight, answer.text);
	}
}

static void reports_are_taken_and_shown(void **state)
{
	struct report_message message;
	const json_t *shown, *sources, *acted;

	(void)state;
	shown = node_shown();
	assert_null(json_object_get(shown, "report"));
	assert_null(json_object_get(shown, "report_age_us"));
	assert_true(json_is_true(json_object_get(shown, "takes_work")));
	fill_message(&message);
	message.report.cpu_busy_milli = 1800;
	give(&message);
	expect_status(200);
	assert_true(number_of("server_time_us") > 0);
	await_weight(0.6);
	shown = node_shown();
	assert_true(json_number_value(json_object_get(shown, "score")) == 0.6);
	assert_true(json_number_value(json_object_get(shown, "weight")) == 1);
	assert_true(json_number_value(json_object_get(shown, "share_expected")) == 1);
	assert_int_equal(json_integer_value(json_object_get(json_object_get(shown, "report"), "cpu_busy_milli")), 1800);
	assert_null(json_object_get(json_object_get(shown, "report"), "wal_lag_us")); /* unknown */
	assert_true(json_integer_value(json_object_get(shown, "report_age_us")) >= 0);
	sources = json_object_get(shown, "sources");
	assert_string_equal(json_string_value(json_object_get(json_object_get(sources, "probe"), "word")), "good");
	assert_string_equal(json_string_value(json_object_get(json_object_get(sources, "heartbeat"), "word")), "good");
	assert_string_equal(json_string_value(json_object_get(json_object_get(sources, "gossip"), "word")), "unknown");
	acted = json_array_get(json_object_get(shown, "acted"), 0);
	assert_string_equal(json_string_value(json_object_get(acted, "name")), "cpu");
	assert_true(json_number_value(json_object_get(acted, "factor")) == 0.6);
	assert_string_equal(
		json_string_value(json_object_get(json_array_get(json_object_get(shown, "dirs"), 0), "path")),
		"/srv/n1");
	assert_string_equal(text_of("profile"), "folder");
	assert_string_equal(text_of("selected"), "n1");
	assert_true(number_of("table_version") > 0);
}

static void a_folder_that_fails_takes_no_work(void **state)
{
	struct report_message message;
	const json_t *shown;

	(void)state;
	fill_message(&message);
	message.report.dirs_failed = 1;
	snprintf(message.dirs[0].diagnosis, sizeof(message.dirs[0].diagnosis), "/srv/n1 is read-only: remount it");
	give(&message);
	expect_status(200);
	await_node(false);
	shown = node_shown();
	assert_string_equal(json_string_value(json_object_get(shown, "state")), "healthy");
	assert_string_equal(json_string_value(json_object_get(shown, "barred")),
			    "a folder of it failed the self-check");
	assert_string_equal(json_string_value(json_object_get(shown, "diagnosis")), "/srv/n1 is read-only: remount it");
	post("ann", "batch=b", folder_b);
	expect_error(503, "no_nodes");
	fill_message(&message);
	give(&message);
	await_node(true);
}

static void reports_that_are_refused(void **state)
{
	static const char *const none[] = { "", "[]", "{", "{\"node_id\":5}", "{\"node_id\":\"n1\"}", "null" };
	const char *headers[] = { internal_header, NULL };
	struct report_message message;
	struct buf large = BUF_INIT(MIB);

	(void)state;
	for (size_t i = 0; i < COUNT_OF(none); i++) {
		call_with("POST", "/internal/v1/reports", headers, str_from(none[i]));
		expect_error(400, "bad_request");
	}
	call_as("op", "POST", "/internal/v1/reports", STR("{}"));
	expect_error(401, "unauthenticated");
	fill_message(&message);
	snprintf(message.node_id, sizeof(message.node_id), "n7");
	give(&message);
	expect_error(409, "wrong_state");
	fill_message(&message);
	snprintf(message.incarnation, sizeof(message.incarnation), "another");
	give(&message);
	expect_error(409, "node_id_in_use");
	while (large.size <= REPORT_BODY_MAX)
		buf_append_c(&large, "                                ");
	call_with("POST", "/internal/v1/reports", headers, buf_str(&large));
	expect_error(413, "limit");
	buf_fini(&large);
	assert_true(json_is_true(json_object_get(node_shown(), "takes_work")));
}

/* --- the decision log --- */

struct kinds {
	size_t profiles, tables, plans, places;
};

/* Reads the log to its end; every line comes out as it is written. */
static struct kinds replay(void)
{
	struct decide_replay *again = decide_replay_new(NULL, PPM);
	const struct decide_record *record;
	struct buf text = BUF_INIT(64 * MIB);
	struct kinds kinds = { .profiles = 0 };
	struct str rest, line;
	char path[128];

	snprintf(path, sizeof(path), "%s/decisions.jsonl", dir);
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
		assert_int_equal(decide_read_line(again, line, &record, &err), 0);
		kinds.profiles += record->kind == DECIDE_PROFILE;
		kinds.tables += record->kind == DECIDE_TABLE;
		kinds.plans += record->kind == DECIDE_PLAN;
		kinds.places += record->kind == DECIDE_PLACE;
	}
	buf_fini(&text);
	decide_replay_free(&again);
	return kinds;
}

static void decisions_are_kept(void **state)
{
	struct report_message message;
	struct kinds kinds;
	char id[ULID_SIZE];

	(void)state;
	post_a(id);
	fill_message(&message);
	message.report.cpu_busy_milli = 1900;
	give(&message);
	await_weight(0.6);
	/* A dry run and a folder that is there already decide nothing. */
	post("ann", "batch=dry&dry_run=1", folder_b);
	expect_status(201);
	post("ann", "batch=books&source=h:/a", folder_a);
	expect_status(200);
	sched_stop(&sched);
	kinds = replay();
	assert_int_equal(kinds.profiles, 1);
	assert_true(kinds.tables >= 2);
	assert_int_equal(kinds.plans, 1);
	assert_int_equal(kinds.places, 0);
	/* The next start goes on in the same file. */
	conf_places = 1;
	start_sched();
	await_node(true);
	post("bob", "batch=all", folder_a);
	expect_status(201);
	sched_stop(&sched);
	conf_places = 0;
	kinds = replay();
	assert_int_equal(kinds.profiles, 2);
	assert_int_equal(kinds.plans, 2);
	assert_int_equal(kinds.places, 3);
}

static void the_log_can_be_elsewhere_or_off(void **state)
{
	char path[128], other[128];

	(void)state;
	sched_stop(&sched);
	snprintf(path, sizeof(path), "%s/decisions.jsonl", dir);
	snprintf(other, sizeof(other), "%s/other.jsonl", dir);
	assert_int_equal(unlink(path), 0);
	conf_decision_log = "off";
	start_sched();
	await_node(true);
	post("bob", "batch=b", folder_b);
	expect_status(201);
	sched_stop(&sched);
	assert_int_equal(access(path, F_OK), -1);
	conf_decision_log = other;
	start_sched();
	await_node(true);
	sched_stop(&sched);
	conf_decision_log = "";
	assert_int_equal(access(path, F_OK), -1);
	assert_int_equal(access(other, F_OK), 0);
}

/* --- the profile --- */

static void a_profile_of_ones_own(void **state)
{
	struct report_message message;
	char path[128];

	(void)state;
	sched_stop(&sched);
	snprintf(path, sizeof(path), "%s/profile.yaml", dir);
	assert_int_equal(
		fs_replace_file(path,
				STR("name: strict\nbase: folder\nrules:\n"
				    "  - {name: hot, source: cpu, low: 300000, high: 400000, factor_ppm: 250000}\n"),
				0600, NULL),
		0);
	conf_profile = path;
	start_sched();
	conf_profile = "";
	await_node(true);
	fill_message(&message);
	message.report.cpu_busy_milli = 900;
	give(&message);
	expect_status(200);
	await_weight(0.25);
	assert_string_equal(text_of("profile"), "strict");
	sched_stop(&sched);
	replay();
}

static void profiles_that_are_none(void **state)
{
	struct sched *other = NULL;
	struct err err = ERR_INIT;
	char path[128];

	(void)state;
	sched_stop(&sched);
	snprintf(path, sizeof(path), "%s/profile.yaml", dir);
	conf_profile = path;
	for (int i = 0; i < 2; i++) {
		struct sched_conf conf = conf_of();

		if (sched_start(&conf, &other, &err) == 0)
			fail_msg("a scheduler started with no profile there");
		assert_non_null(strstr(err.text, path));
		assert_true(err.hint[0] != '\0');
		assert_int_equal(fs_replace_file(path, STR("base: folder\nlead_ppm: much\n"), 0600, NULL), 0);
	}
	conf_profile = "";
}

static void order(const char *user, const char *id, const char *body)
{
	char path[128];

	snprintf(path, sizeof(path), "/api/v1/nodes/%s", id);
	call_as(user, "POST", path, str_from(body));
}

static void orders_are_for_operators(void **state)
{
	(void)state;
	order("ann", "n1", "{\"order\":\"drain\"}");
	expect_error(403, "forbidden");
	order("aud", "n1", "{\"order\":\"drain\"}");
	expect_error(403, "forbidden");
	assert_string_equal(json_string_value(json_object_get(node_shown(), "order")), "");
	order("op", "n1", "{\"order\":\"drain\"}");
	expect_status(200);
	assert_string_equal(text_of("state"), "leaving");
	assert_string_equal(text_of("order"), "drain");
	assert_int_equal(number_of("lost_chunks"), 0);
	assert_string_equal(json_string_value(json_object_get(node_shown(), "barred")), "it is leaving");
	order("op", "n1", "{\"order\":\"ready\"}");
	expect_status(200);
	assert_true(json_is_true(json_object_get(answer.json, "takes_work")));
	order("op", "n1", "{\"weight_milli\":2500}");
	expect_status(200);
	await_weight(2.5);
	order("op", "n1", "{\"weight_milli\":null}");
	expect_status(200);
	await_weight(1);
	order("op", "n2", "{\"order\":\"drain\"}");
	expect_error(404, "no_such_node");
}

static void orders_that_are_none(void **state)
{
	static const char *const bodies[] = {
		"",
		"drain",
		"[]",
		"null",
		"{}",
		"{\"order\":null}",
		"{\"order\":5}",
		"{\"order\":\"Drain\"}",
		"{\"order\":\"drain\",\"order\":\"lost\"}",
		"{\"order\":\"drain\",\"weight_milli\":1}",
		"{\"order\":\"drain\",\"why\":\"x\"}",
		"{\"weight_milli\":-1}",
		"{\"weight_milli\":1000001}",
		"{\"weight_milli\":1.0}",
		"{\"weight_milli\":\"auto\"}",
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(bodies); i++) {
		order("op", "n1", bodies[i]);
		expect_error(400, "bad_request");
	}
	assert_true(node_works());
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(orders_are_for_operators),        CASE(orders_that_are_none),
		CASE(reports_are_taken_and_shown),     CASE(a_folder_that_fails_takes_no_work),
		CASE(reports_that_are_refused),        CASE(decisions_are_kept),
		CASE(the_log_can_be_elsewhere_or_off), CASE(a_profile_of_ones_own),
		CASE(profiles_that_are_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
