/* What was decided is written, read and computed again: every line that the core makes must agree, and no altered one may. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "core/decide.h"

#define WALL_US INT64_C(1767225600123456)

static const char *const PROFILES[] = { "kv", "gateway", "folder" };

/* --- a set that lives through ticks --- */

struct world {
	struct rng rng;
	struct score_input inputs[SCORE_SET_MAX];
	const struct score_input *pointers[SCORE_SET_MAX];
	struct score_output outputs[SCORE_SET_MAX];
	struct decision decision;
	struct judge_memory memory;
	uint64_t version;
	size_t count;
};
static struct world world;

static int64_t any_of(const int64_t *values, size_t count) { return values[rng_below(&world.rng, count)]; }
#define ANY_OF(...) any_of((const int64_t[]){ __VA_ARGS__ }, COUNT_OF(((const int64_t[]){ __VA_ARGS__ })))

static void world_input(struct score_input *input, size_t index)
{
	*input = (struct score_input){ .weight_milli = (uint32_t)ANY_OF(0, 1, 1000, 2500, UINT32_MAX) };
	(void)snprintf(input->id, sizeof(input->id), "node-%zu", index);
	input->state = (enum member_state)ANY_OF(MEMBER_HEALTHY, MEMBER_HEALTHY, MEMBER_HEALTHY, MEMBER_SUSPECT,
						 MEMBER_LEAVING, MEMBER_UNREACHABLE, MEMBER_REMOVED);
	for (size_t source = 0; source < HEALTH_SOURCES; source++)
		input->words[source] = (enum health_word)rng_below(&world.rng, HEALTH_FAILED + 1);
	for (int field = 0; field < REPORT_FIELDS; field++)
		report_set(
			&input->report, (enum report_field)field,
			ANY_OF(REPORT_UNKNOWN, 0, 1, 1000, (int64_t)rng_below(&world.rng, 1000000), INT64_C(1) << 40));
	input->age_us = ANY_OF(-1, 0, 3 * SEC_US, 30 * SEC_US);
	input->p99_smooth_us = ANY_OF(-1, 0, 100000, 5000000);
	input->write_failure_ppm = ANY_OF(-1, 0, 50000, PPM);
	input->in_flight = ANY_OF(-1, 0, 7, 100000);
	input->rt_mean_us = ANY_OF(-1, 0, 20000, 900000);
	input->joined_age_us = ANY_OF(-1, 0, 31 * SEC_US, 400 * SEC_US);
	input->was_ever_verified = rng_below(&world.rng, 2);
	input->is_barred = rng_below(&world.rng, 8) == 0;
	if (input->is_barred)
		(void)snprintf(input->bar_reason, sizeof(input->bar_reason), "disk \"low\"\n\xff");
	input->rules_on = (uint32_t)rng_below(&world.rng, 4096);
	input->score_before_ppm = ANY_OF(-1, 0, 300000, PPM);
}

static void world_make(uint64_t seed, size_t count)
{
	memset(&world, 0, sizeof(world));
	rng_seed(&world.rng, seed);
	world.count = count;
	for (size_t i = 0; i < count; i++) {
		world_input(&world.inputs[i], i);
		world.pointers[i] = &world.inputs[i];
	}
}

static void world_tick(struct buf *buf, const struct profile *profile, int64_t elapsed_us)
{
	struct decide_table table = {
		.set = "set-7",
		.router = "router-1",
		.wall_us = WALL_US,
		.version = ++world.version,
		.elapsed_us = elapsed_us,
		.before = world.memory,
		.count = world.count,
		.inputs = world.pointers,
		.outputs = world.outputs,
		.decision = &world.decision,
	};

	score_set(profile, world.pointers, world.count, world.outputs);
	judge_set(profile, &world.memory, elapsed_us, world.pointers, world.outputs, world.count, &world.decision);
	decide_write_table(buf, profile, &table);
}

/* --- lines --- */

static enum decide_result replay_line(struct decide_replay *replay, struct str line, struct decide_change *change)
{
	enum decide_result result;
	struct err err = ERR_INIT;

	if (decide_replay_line(replay, line, &result, change, &err) < 0)
		fail_msg("%s\nin: %.*s", err.text, STR_ARG(line));
	return result;
}

static void assert_all_same(struct decide_replay *replay, struct str text, size_t expected_count)
{
	struct decide_change change;
	struct str line;
	size_t count = 0;

	while (str_cut(&text, '\n', &line)) {
		enum decide_result result = replay_line(replay, line, &change);

		if (result == DECIDE_OTHER)
			fail_msg("%s\nin: %.*s", change.what, STR_ARG(line));
		count += result == DECIDE_SAME;
	}
	assert_int_equal(count, expected_count);
}

static void assert_refused(struct decide_replay *replay, struct str line, int code, const char *words)
{
	enum decide_result result;
	struct decide_change change;
	struct err err = ERR_INIT;

	if (decide_replay_line(replay, line, &result, &change, &err) != -code)
		fail_msg("not refused with %d (%s): %.*s", code, err.text, STR_ARG(line));
	if (!strstr(err.text, words))
		fail_msg("'%s' does not say '%s'", err.text, words);
	assert_int_equal(result, DECIDE_NO_CHOICE);
}

/* The line with `from` replaced by `to` where it first stands after `after`. */
static struct str with_text(struct buf *target, struct str line, const char *after, const char *from, const char *to)
{
	struct buf copy = BUF_INIT(DECIDE_LINE_MAX);
	const char *at;

	buf_append(&copy, line);
	at = strstr(buf_cstr(&copy), after);
	at = at ? strstr(at, from) : NULL;
	if (!at)
		fail_msg("no '%s' after '%s' in %s", from, after, copy.data);
	buf_clear(target);
	buf_append(target, (struct str){ copy.data, (size_t)(at - copy.data) });
	buf_append_c(target, to);
	buf_append_c(target, at + strlen(from));
	buf_fini(&copy);
	return buf_str(target);
}

static struct str first_line(const struct buf *buf)
{
	struct str rest = buf_str(buf), line = STR_NONE;

	assert_true(str_cut(&rest, '\n', &line));
	return line;
}

/* A replay that has read the profile. */
static struct decide_replay *replay_of(const struct profile *profile, const struct profile *what_if,
				       int64_t squeeze_ppm)
{
	struct decide_replay *replay = decide_replay_new(what_if, squeeze_ppm);
	struct buf buf = BUF_INIT(DECIDE_LINE_MAX);
	struct decide_change change;

	decide_write_profile(&buf, profile, WALL_US);
	assert_false(buf.is_failed);
	assert_int_equal(replay_line(replay, buf_str(&buf), &change), DECIDE_NO_CHOICE);
	buf_fini(&buf);
	return replay;
}

/* --- tables --- */

static void test_tables_of_every_profile_replay(void **state)
{
	(void)state;
	for (size_t p = 0; p < COUNT_OF(PROFILES); p++) {
		const struct profile *profile = profile_builtin(PROFILES[p]);
		struct decide_replay *replay = replay_of(profile, NULL, PPM);
		struct buf buf = BUF_INIT(64 * MIB);

		for (uint64_t seed = 0; seed < 60; seed++) {
			static const size_t counts[] = { 0, 1, 2, 3, 10, 40 };

			world_make(seed, counts[seed % COUNT_OF(counts)]);
			for (size_t tick = 0; tick < 4; tick++) {
				world_tick(&buf, profile, tick ? JUDGE_TICK_US : 0);
				world.memory.failed_picks = (unsigned)rng_below(&world.rng, 4);
				if (world.count)
					world_input(&world.inputs[0], 0);
			}
		}
		assert_false(buf.is_failed);
		assert_all_same(replay, buf_str(&buf), 240);
		buf_fini(&buf);
		decide_replay_free(&replay);
	}
}

static void test_the_largest_set_fits_a_line(void **state)
{
	const struct profile *profile = profile_builtin("kv");
	struct decide_replay *replay = replay_of(profile, NULL, PPM);
	struct buf buf = BUF_INIT(DECIDE_LINE_MAX);

	(void)state;
	world_make(5, SCORE_SET_MAX);
	for (size_t i = 0; i < world.count; i++) {
		(void)snprintf(world.inputs[i].id, sizeof(world.inputs[i].id), "%064zu", i);
		for (int field = 0; field < REPORT_FIELDS; field++)
			report_set(&world.inputs[i].report, (enum report_field)field, INT64_C(1) << 50);
	}
	world_tick(&buf, profile, JUDGE_TICK_US);
	assert_false(buf.is_failed);
	assert_all_same(replay, buf_str(&buf), 1);
	buf_fini(&buf);
	decide_replay_free(&replay);
}

/* What explain shows is what was decided. */
static void test_reading_gives_everything_back(void **state)
{
	const struct profile *profile = profile_builtin("kv");
	struct decide_replay *replay = replay_of(profile, NULL, PPM);
	struct buf buf = BUF_INIT(DECIDE_LINE_MAX);
	const struct decide_record *record;
	struct err err = ERR_INIT;

	(void)state;
	for (uint64_t seed = 0; seed < 20; seed++) {
		buf_clear(&buf);
		world_make(seed, 6);
		world_tick(&buf, profile, 0);
		assert_int_equal(decide_read_line(replay, buf_str(&buf), &record, &err), 0);
		assert_int_equal(record->kind, DECIDE_TABLE);
		assert_string_equal(record->set, "set-7");
		assert_string_equal(record->table.router, "router-1");
		assert_int_equal(record->wall_us, WALL_US);
		assert_int_equal(record->table.version, 1);
		assert_int_equal(record->table.count, 6);
		assert_true(record->profile->hash == profile->hash);
		assert_int_equal(record->table.decision->selected, world.decision.selected);
		assert_int_equal(record->table.decision->reason, world.decision.reason);
		assert_int_equal(record->table.decision->band_count, world.decision.band_count);
		assert_int_equal(record->table.decision->order_count, world.decision.order_count);
		for (size_t i = 0; i < 6; i++) {
			const struct score_output *read = &record->table.outputs[i], *made = &world.outputs[i];

			assert_memory_equal(&record->table.inputs[i]->report, &world.inputs[i].report,
					    sizeof(struct report));
			assert_memory_equal(read->dim_ppm, made->dim_ppm, profile->dim_count * sizeof(int64_t));
			assert_memory_equal(read->rule_ppm, made->rule_ppm, profile->rule_count * sizeof(int64_t));
			assert_int_equal(read->score_ppm, made->score_ppm);
			assert_int_equal(read->cap_ppm, made->cap_ppm);
			assert_int_equal(read->decay_ppm, made->decay_ppm);
			assert_int_equal(read->start_ppm, made->start_ppm);
			assert_int_equal(read->weight_milli, made->weight_milli);
			assert_int_equal(read->rules_on, made->rules_on);
			assert_int_equal(read->may_serve, made->may_serve);
		}
	}
	buf_fini(&buf);
	decide_replay_free(&replay);
}

/* Three nodes of which the second is plainly best; all numbers known. */
static void world_plain(void)
{
	world_make(1, 3);
	for (size_t i = 0; i < 3; i++) {
		struct score_input *input = &world.inputs[i];

		*input = (struct score_input){
			.weight_milli = 1000,
			.state = MEMBER_HEALTHY,
			.p99_smooth_us = i == 1 ? 20000 : 300000,
			.write_failure_ppm = -1,
			.in_flight = -1,
			.rt_mean_us = -1,
			.joined_age_us = -1,
			.score_before_ppm = -1,
		};
		(void)snprintf(input->id, sizeof(input->id), "node-%zu", i);
		report_init(&input->report);
		input->report.cpu_cores_milli = 4000;
		input->report.cpu_busy_milli = i == 1 ? 400 : 2000;
		input->report.rss_bytes = 1 << 28;
		input->report.mem_limit_bytes = 1 << 30;
		input->report.disk_queue_milli = 1000;
		input->report.verified = 1;
	}
}

static void test_any_other_output_is_told(void **state)
{
	static const struct {
		const char *after, *from, *to, *what;
	} rows[] = {
		{ "", "\"selected\":\"node-1\"", "\"selected\":\"node-0\"", "selected: recorded \"node-0\"" },
		{ "", "\"selected\":\"node-1\"", "\"selected\":null", "selected: recorded null" },
		{ "", "\"selected\":\"node-1\"", "\"selected\":\"nobody\"", "selected: recorded \"nobody\"" },
		{ "", "\"reason\":\"first\"", "\"reason\":\"best\"", "reason: recorded \"best\", computed \"first\"" },
		{ "", "\"changed\":true", "\"changed\":false", "changed: recorded false, computed true" },
		{ "", "\"flat\":false", "\"flat\":true", "flat: " },
		{ "", "\"best_ppm\":9", "\"best_ppm\":8", "best_ppm: " },
		{ "", "\"band\":1", "\"band\":2", "band: recorded 2, computed 1" },
		{ "", "\"order\":[1,0,2]", "\"order\":[1,2,0]", "order[1]: recorded 2, computed 0" },
		{ "", "\"order\":[1,0,2]", "\"order\":[1,0]", "order[2]: recorded nothing" },
		{ "node-1\",\"state", "\"score_ppm\":9", "\"score_ppm\":8", "candidates[1].score_ppm: " },
		{ "node-2\",\"state", "\"weight_milli\":", "\"weight_milli\":1", "candidates[2].weight_milli: " },
		{ "node-0\",\"state", "\"may_serve\":true", "\"may_serve\":false", "candidates[0].may_serve: " },
		{ "node-0\",\"state", "\"groups_ppm\":{", "\"groups_ppm\":{\"x\":1,", "candidates[0].groups_ppm.x: " },
		{ "node-0\",\"state", "\"penalty_ppm\":1000000", "\"penalty_ppm\":1000001", ".penalty_ppm: " },
		{ "node-0\",\"state", "\"dims_ppm\":{\"health\":1000000", "\"dims_ppm\":{\"health\":999999",
		  "candidates[0].dims_ppm.health: recorded 999999, computed 1000000" },
		{ "node-0\",\"state", "\"sum_ppm\":", "\"sum_ppm\":1", "candidates[0].sum_ppm: " },
		{ "node-0\",\"state", "\"sum_ppm\":", "\"cap_ppm\":500000,\"sum_ppm\":", "].cap_ppm: recorded 500000" },
		{ "node-0\",\"state", "\"sum_ppm\":", "\"rules_on\":1,\"sum_ppm\":", "].rules_on: recorded 1" },
		{ "node-0\",\"state", "\"sum_ppm\":", "\"novelty\":1,\"sum_ppm\":", "].novelty: recorded 1" },
		/* Inputs: what follows from them differs. */
		{ "node-1\",\"state", "\"p99_smooth_us\":20000", "\"p99_smooth_us\":20001", ": recorded " },
		{ "node-1\",\"state", "\"cpu_busy_milli\":400", "\"cpu_busy_milli\":401", ": recorded " },
		{ "\"node\":\"node-1\"", "\"state\":\"healthy\"", "\"state\":\"suspect\"", ": recorded " },
		{ "", "\"previous\":null", "\"previous\":\"node-0\"", "reason: recorded \"first\"" },
	};
	const struct profile *profile = profile_builtin("kv");
	struct decide_replay *replay = replay_of(profile, NULL, PPM);
	struct buf buf = BUF_INIT(DECIDE_LINE_MAX), altered = BUF_INIT(DECIDE_LINE_MAX);
	struct decide_change change;

	(void)state;
	world_plain();
	world_tick(&buf, profile, 0);
	assert_all_same(replay, buf_str(&buf), 1);
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct str line = with_text(&altered, first_line(&buf), rows[i].after, rows[i].from, rows[i].to);

		if (replay_line(replay, line, &change) != DECIDE_OTHER)
			fail_msg("row %zu passed: %s", i, rows[i].to);
		if (!strstr(change.what, rows[i].what))
			fail_msg("row %zu: '%s' does not say '%s'", i, change.what, rows[i].what);
		assert_string_equal(change.set, "set-7");
		assert_int_equal(change.wall_us, WALL_US);
	}
	/* Another spelling of the same is the same. */
	assert_int_equal(replay_line(replay,
				     with_text(&altered, first_line(&buf), "", "\"set\":\"set-7\"",
					       " \"set\" : \"\\u0073et-7\""),
				     &change),
			 DECIDE_SAME);
	buf_fini(&altered);
	buf_fini(&buf);
	decide_replay_free(&replay);
}

static void test_odd_names_and_great_numbers(void **state)
{
	const struct profile *profile = profile_builtin("folder");
	struct decide_replay *replay = replay_of(profile, NULL, PPM);
	struct buf buf = BUF_INIT(DECIDE_LINE_MAX);
	struct decide_table table;

	(void)state;
	world_plain();
	memcpy(world.inputs[0].bar_reason, "full: \x01 \xc3\xa9 \"\\", 13);
	memset(world.inputs[1].bar_reason, 0xff, sizeof(world.inputs[1].bar_reason) - 1);
	world.version = UINT64_MAX - 1;
	world_tick(&buf, profile, DECIDE_LINE_MAX);
	world.version = (uint64_t)INT64_MAX - 1;
	world_tick(&buf, profile, 0);
	/* Nobody, before 1970, in a set without a name. */
	table = (struct decide_table){ .wall_us = INT64_MIN, .decision = &world.decision };
	world.memory = (struct judge_memory){ .selected = "" };
	judge_set(profile, &world.memory, 0, NULL, NULL, 0, &world.decision);
	decide_write_table(&buf, profile, &table);
	assert_all_same(replay, buf_str(&buf), 3);
	assert_non_null(strstr(buf_cstr(&buf), "\"version\":\"18446744073709551615\""));
	assert_non_null(strstr(buf_cstr(&buf), "\"selected\":null"));
	buf_fini(&buf);
	decide_replay_free(&replay);
}

/* --- what is no record --- */

static void test_hostile_lines_are_refused_in_words(void **state)
{
	static const struct {
		const char *line, *words;
	} rows[] = {
		{ "", "it is not JSON" },
		{ "\n", "it is not JSON" },
		{ "x{\"kind\":\"table\"", "it is not JSON, at byte 1" },
		{ "{\"kind\":\"table\",}", "it is not JSON, at byte 17" },
		{ "{\"kind\":\"dropped\",\"ts_us\":1,\"lines\":1}", "'wall_us' is missing" },
		{ "{\"kind\":\"dropped\",\"wall_us\":1,\"lines\":-1}", "'lines' is not" },
		{ "[]", "not a JSON object" },
		{ "{}", "'kind' is missing" },
		{ "{\"kind\":7,\"ts_us\":1}", "'kind' is not a text" },
		{ "{\"kind\":\"a-kind-of-a-name-too-long\",\"ts_us\":1}", "'kind' is not a text of at most 15" },
		{ "{\"kind\":\"guess\",\"ts_us\":1}", "no kind 'guess'" },
		{ "{\"kind\":\"pick\"}", "'ts_us' is missing" },
		{ "{\"kind\":\"pick\",\"ts_us\":1.5}", "'ts_us' is not a whole number" },
		{ "{\"kind\":\"pick\",\"ts_us\":99999999999999999999}", "it is not JSON" },
		{ "{\"kind\":\"pick\",\"ts_us\":1,\"ts_us\":1}", "duplicate" },
		{ "{\"kind\":\"profile\",\"ts_us\":1}", "'profile' is missing" },
		{ "{\"kind\":\"profile\",\"ts_us\":1,\"profile\":\"xyz\"}", "16 hexadecimal digits" },
		{ "{\"kind\":\"profile\",\"ts_us\":1,\"profile\":\"0000000000000000\"}", "'yaml' is not a text" },
		{ "{\"kind\":\"profile\",\"ts_us\":1,\"profile\":\"0000000000000000\",\"yaml\":\"name: [\"}",
		  "the profile in it is none" },
		{ "{\"kind\":\"plan\",\"ts_us\":1,\"plan\":\"t\",\"total_bytes\":-1}", "'total_bytes' is not" },
		{ "{\"kind\":\"plan\",\"ts_us\":1,\"plan\":\"t\",\"total_bytes\":1,\"epsilon_milli\":1,"
		  "\"nodes\":[{\"node\":\"a b\",\"weight_milli\":1}]}",
		  "an id is 1 to" },
		{ "{\"kind\":\"plan\",\"ts_us\":1,\"plan\":\"t\",\"total_bytes\":1,\"epsilon_milli\":1,"
		  "\"nodes\":[{\"node\":\"a\",\"weight_milli\":4294967295}]}",
		  "points on the ring" },
		{ "{\"kind\":\"plan\",\"ts_us\":1,\"plan\":\"t\",\"total_bytes\":1,\"epsilon_milli\":1,\"nodes\":[7]}",
		  "nodes[0]: the field 'node' is missing" },
		{ "{\"kind\":\"pick\",\"ts_us\":1,\"set\":\"s\",\"candidates\":{}}", "'candidates' is not a list" },
	};
	struct decide_replay *replay = decide_replay_new(NULL, PPM);
	struct buf large = BUF_INIT(2 * DECIDE_LINE_MAX);

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++)
		assert_refused(replay, str_from(rows[i].line), ERR_BAD_REQUEST, rows[i].words);
	assert_refused(replay, STR_NONE, ERR_BAD_REQUEST, "not JSON");
	while (large.size <= DECIDE_LINE_MAX)
		buf_append_c(&large, "                                                                ");
	assert_refused(replay, buf_str(&large), ERR_BAD_REQUEST, "more than");
	buf_fini(&large);
	decide_replay_free(&replay);
}

/* A crash may end a line at any byte. */
static void test_torn_lines_are_known(void **state)
{
	const struct profile *profile = profile_builtin("kv");
	struct decide_replay *replay = replay_of(profile, NULL, PPM);
	struct buf buf = BUF_INIT(DECIDE_LINE_MAX);
	const struct decide_record *record;
	struct err err = ERR_INIT;

	(void)state;
	world_plain();
	memcpy(world.inputs[2].bar_reason, "\xc3\xa9 \x01 \"", 7);
	world_tick(&buf, profile, 0);
	for (size_t size = 1; size < buf.size - 1; size++)
		assert_refused(replay, (struct str){ buf.data, size }, ERR_TRUNCATED, "torn");
	assert_all_same(replay, (struct str){ buf.data, buf.size - 1 }, 1);
	/* And what could not be written at all is told by the writer. */
	assert_int_equal(
		decide_read_line(replay, STR("{\"kind\":\"dropped\",\"lines\":12,\"wall_us\":5}"), &record, &err), 0);
	assert_int_equal(record->kind, DECIDE_DROPPED);
	assert_int_equal(record->dropped_count, 12);
	assert_int_equal(record->wall_us, 5);
	buf_fini(&buf);
	decide_replay_free(&replay);
}

static void test_altered_inputs_out_of_bounds_are_refused(void **state)
{
	static const struct {
		const char *after, *from, *to, *words;
	} rows[] = {
		{ "", "\"elapsed_us\":0", "\"elapsed_us\":-1", "'elapsed_us' is not" },
		{ "", "\"held_us\":0", "\"held_us\":9223372036854775807", "'held_us' is not" },
		{ "", "\"failed_picks\":0", "\"failed_picks\":4294967296", "'failed_picks' is not" },
		{ "", "\"order\":[1,0,2]", "\"order\":[1,0,3]", "no candidate's number" },
		{ "", "\"order\":[1,0,2]", "\"order\":[1,0,2,1]", "at most 3" },
		{ "", "\"order\":[1,0,2]", "\"order\":[-1]", "no candidate's number" },
		{ "", "\"band\":1", "\"band\":4", "'band' is not" },
		{ "", "\"reason\":\"first\"", "\"reason\":\"whim\"", "no reason called 'whim'" },
		{ "", "\"changed\":true", "\"changed\":1", "'changed' is neither" },
		{ "", "\"candidates\":[", "\"candidates\":[[],", "candidates[0]: it is not an object" },
		{ "\"node\":\"node-1\"", "\"state\":\"healthy\"", "\"state\":\"tired\"",
		  "candidates[1]: there is no state 'tired'" },
		{ "\"node\":\"node-1\"", "\"p99_smooth_us\":20000", "\"p99_smooth_us\":-2",
		  "candidates[1]: 'p99_smooth_us'" },
		{ "\"node\":\"node-1\"", "\"base_milli\":1000", "\"base_milli\":4294967296",
		  "candidates[1]: 'base_milli'" },
		{ "\"node\":\"node-1\"", "\"base_milli\":1000", "\"base\":1000", "'base_milli' is missing" },
		{ "\"node\":\"node-1\"", "\"cpu_busy_milli\"", "\"cpu_bu\"", "'report' has a number that no node" },
		{ "\"node\":\"node-1\"", "\"cpu_busy_milli\":400", "\"cpu_busy_milli\":-4",
		  "candidates[1]: 'report': 'cpu_busy_milli' is not" },
		{ "node-1",
		  "\"report\":", "\"words\":{\"rumour\":\"good\"},\"report\":", "a source that does not exist" },
		{ "\"node\":\"node-1\"",
		  "\"report\":", "\"words\":{\"probe\":\"fine\"},\"report\":", "no word of that name" },
		{ "\"node\":\"node-1\"", "\"report\":", "\"words\":[],\"report\":", "'words' is not an object" },
		{ "\"node\":\"node-1\"", "\"report\":", "\"is_barred\":1,\"report\":", "'is_barred' is neither" },
		{ "", "\"router\":\"router-1\"", "\"router\":null", "'router' is not a text" },
	};
	const struct profile *profile = profile_builtin("kv");
	struct decide_replay *replay = replay_of(profile, NULL, PPM);
	struct buf buf = BUF_INIT(DECIDE_LINE_MAX), altered = BUF_INIT(DECIDE_LINE_MAX);

	(void)state;
	world_plain();
	world_tick(&buf, profile, 0);
	for (size_t i = 0; i < COUNT_OF(rows); i++)
		assert_refused(replay, with_text(&altered, first_line(&buf), rows[i].after, rows[i].from, rows[i].to),
			       ERR_BAD_REQUEST, rows[i].words);
	/* One candidate more than a set may have. */
	buf_clear(&altered);
	buf_append_c(&altered,
		     "{\"kind\":\"table\",\"ts_us\":1,\"set\":\"s\",\"router\":\"r\",\"version\":1,\"profile\":\"");
	buf_printf(&altered, "%016" PRIx64, profile->hash);
	buf_append_c(&altered, "\",\"elapsed_us\":0,\"before\":{\"failed_picks\":0,\"held_us\":0,\"flat_us\":0},"
			       "\"candidates\":[0");
	for (size_t i = 0; i < SCORE_SET_MAX; i++)
		buf_append_c(&altered, ",0");
	buf_append_c(&altered, "]}");
	assert_refused(replay, buf_str(&altered), ERR_BAD_REQUEST, "has 1025 items: at most 1024");
	buf_fini(&altered);
	buf_fini(&buf);
	decide_replay_free(&replay);
}

static void test_profiles_come_first_and_are_what_they_say(void **state)
{
	const struct profile *profile = profile_builtin("kv");
	struct decide_replay *replay = decide_replay_new(NULL, PPM);
	struct buf table = BUF_INIT(DECIDE_LINE_MAX), line = BUF_INIT(DECIDE_LINE_MAX),
		   altered = BUF_INIT(DECIDE_LINE_MAX);
	struct decide_change change;

	(void)state;
	world_plain();
	world_tick(&table, profile, 0);
	assert_refused(replay, first_line(&table), ERR_INCOMPLETE, "has not been read before it");
	/* A tuned profile under the hash of another is found out, and helps nobody. */
	decide_write_profile(&line, profile, WALL_US);
	assert_int_equal(
		replay_line(replay, with_text(&altered, first_line(&line), "lead_ppm", "100000", "100001"), &change),
		DECIDE_OTHER);
	assert_non_null(strstr(change.what, "profile: recorded"));
	assert_refused(replay, first_line(&table), ERR_INCOMPLETE, "has not been read before it");
	assert_int_equal(replay_line(replay, buf_str(&line), &change), DECIDE_NO_CHOICE);
	assert_int_equal(replay_line(replay, first_line(&table), &change), DECIDE_SAME);
	/* The latest are kept. */
	for (unsigned i = 1; i < DECIDE_PROFILES_MAX; i++) {
		char text[80];
		struct profile tuned;
		struct err err = ERR_INIT;

		(void)snprintf(text, sizeof(text), "name: tuned-%u\nbase: kv\n", i);
		assert_int_equal(profile_parse("tuned", str_from(text), &tuned, &err), 0);
		buf_clear(&line);
		decide_write_profile(&line, &tuned, WALL_US);
		assert_int_equal(replay_line(replay, buf_str(&line), &change), DECIDE_NO_CHOICE);
	}
	/* 63 tuned ones and the altered one: the plain one has just been read and stays until its place comes round. */
	assert_int_equal(replay_line(replay, first_line(&table), &change), DECIDE_SAME);
	buf_fini(&altered);
	buf_fini(&line);
	buf_fini(&table);
	decide_replay_free(&replay);
}

/* --- what if --- */

static void test_what_if_tells_from_and_to(void **state)
{
	const struct profile *profile = profile_builtin("kv");
	struct profile tuned;
	struct buf buf = BUF_INIT(DECIDE_LINE_MAX), altered = BUF_INIT(DECIDE_LINE_MAX);
	struct decide_change change;
	struct decide_replay *replay;
	struct err err = ERR_INIT;

	(void)state;
	/* Node 2 has the freest disk, which alone counts there. */
	assert_int_equal(profile_parse("disk",
				       STR("name: disk\nbase: kv\ndims:\n  - name: disk\n    group: load\n"
					   "    norm: disk_queue\n    weight_ppm: 1000000\n    parameter: 0\n"),
				       &tuned, &err),
			 0);
	world_plain();
	world.inputs[2].report.disk_queue_milli = 0;
	world_tick(&buf, profile, 0);

	/* Not even the recorded profile is needed. */
	replay = decide_replay_new(&tuned, PPM);
	assert_int_equal(replay_line(replay, buf_str(&buf), &change), DECIDE_OTHER);
	assert_string_equal(change.recorded, "node-1");
	assert_string_equal(change.computed, "node-2");
	assert_int_equal(change.recorded_ppm, 937500);
	assert_int_equal(change.computed_ppm, PPM);
	/* A recorded choice that never was a candidate has no score. */
	assert_int_equal(
		replay_line(replay,
			    with_text(&altered, first_line(&buf), "", "\"selected\":\"node-1\"", "\"selected\":\"x\""),
			    &change),
		DECIDE_OTHER);
	assert_int_equal(change.recorded_ppm, -1);
	decide_replay_free(&replay);

	/* The same profile changes nothing, and only choices are looked at. */
	replay = decide_replay_new(profile, PPM);
	assert_int_equal(replay_line(replay, buf_str(&buf), &change), DECIDE_SAME);
	assert_int_equal(replay_line(replay,
				     with_text(&altered, first_line(&buf), "", "\"best_ppm\":9", "\"best_ppm\":1"),
				     &change),
			 DECIDE_SAME);
	decide_replay_free(&replay);
	buf_fini(&altered);
	buf_fini(&buf);
}

/* A latch is known by its rule's name: a what-if profile may have it at another place. */
static void test_what_if_keeps_latches_by_name(void **state)
{
	static const char *const texts[] = {
		"name: one\nbase: kv\nrules:\n"
		"  - {name: hot, source: cpu, kind: step, low: 500000, high: 900000, factor_ppm: 100000}\n",
		"name: two\nbase: kv\nrules:\n"
		"  - {name: idle, source: migrating, kind: step, low: 0, high: 0, factor_ppm: 500000}\n"
		"  - {name: hot, source: cpu, kind: step, low: 500000, high: 900000, factor_ppm: 100000}\n",
	};
	struct profile one, two;
	struct buf buf = BUF_INIT(DECIDE_LINE_MAX);
	struct decide_change change;
	struct decide_replay *replay;
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(profile_parse("one", str_from(texts[0]), &one, &err), 0);
	assert_int_equal(profile_parse("two", str_from(texts[1]), &two, &err), 0);
	/* Between the marks, and it was on: so node 1 scores a tenth. */
	world_plain();
	world.inputs[1].report.cpu_busy_milli = 2800;
	world.inputs[1].rules_on = 1;
	world_tick(&buf, &one, 0);
	assert_string_equal(world.memory.selected, "node-0");
	replay = replay_of(&one, &two, PPM);
	assert_int_equal(replay_line(replay, buf_str(&buf), &change), DECIDE_SAME);
	decide_replay_free(&replay);
	buf_fini(&buf);
}

static void test_squeeze_brings_scores_under_the_lead(void **state)
{
	const struct profile *profile = profile_builtin("kv");
	struct buf buf = BUF_INIT(DECIDE_LINE_MAX);
	struct decide_change change;
	struct decide_replay *replay;

	(void)state;
	/* Node 1 leads by enough to take over. */
	world_plain();
	(void)snprintf(world.memory.selected, sizeof(world.memory.selected), "node-0");
	world_tick(&buf, profile, JUDGE_TICK_US);
	assert_string_equal(world.memory.selected, "node-1");
	assert_in_range(world.outputs[1].score_ppm - world.outputs[0].score_ppm, 100001, 400000);

	replay = replay_of(profile, NULL, PPM - 1);
	assert_int_equal(replay_line(replay, buf_str(&buf), &change), DECIDE_SAME);
	decide_replay_free(&replay);
	replay = replay_of(profile, NULL, PPM / 5);
	assert_int_equal(replay_line(replay, buf_str(&buf), &change), DECIDE_OTHER);
	assert_string_equal(change.recorded, "node-1");
	assert_string_equal(change.computed, "node-0");
	/* Drawn together around the mean: the distance is a fifth. */
	assert_in_range(change.recorded_ppm - change.computed_ppm,
			(world.outputs[1].score_ppm - world.outputs[0].score_ppm) / 5 - 2,
			(world.outputs[1].score_ppm - world.outputs[0].score_ppm) / 5 + 2);
	decide_replay_free(&replay);
	buf_fini(&buf);
}

/* --- batches --- */

static const struct ring_node BATCH_NODES[] = {
	{ "n1", 1000, "left" }, { "n2", 500, "left" }, { "n3", 2000, "right" }, { "n4", 0, NULL }, { "n5", 1000, NULL },
};

struct batch {
	struct ring *ring;
	struct ring_batch *batch;
	uint64_t number;
};

static void batch_open(struct batch *batch, struct buf *buf, const char *id, uint64_t total_bytes,
		       uint32_t epsilon_milli)
{
	struct err err = ERR_INIT;

	assert_int_equal(ring_build(BATCH_NODES, COUNT_OF(BATCH_NODES), &batch->ring, &err), 0);
	batch->batch = ring_batch_new(batch->ring, total_bytes, epsilon_milli);
	batch->number = 0;
	decide_write_plan(buf, id, BATCH_NODES, COUNT_OF(BATCH_NODES), total_bytes, epsilon_milli, WALL_US);
}

static void batch_close(struct batch *batch)
{
	ring_batch_free(&batch->batch);
	ring_free(&batch->ring);
}

/* As the folder door does it. Returns whether the key spilled. */
static bool batch_put(struct batch *batch, struct buf *buf, const char *id, uint64_t key, uint64_t size_bytes,
		      bool is_numbered, bool is_spilled_only)
{
	uint16_t order[8];
	uint64_t held[8], caps[8];
	size_t count = ring_candidates(batch->ring, key, COUNT_OF(order), order), looked = 0;
	struct decide_place place = {
		.plan_id = id,
		.key_hash = key,
		.size_bytes = size_bytes,
		.what = STR("a/b\xff 3"),
	};

	while (looked < count) {
		ring_batch_load(batch->batch, order[looked], &held[looked], &caps[looked]);
		looked++;
		if (ring_batch_fits(held[looked - 1], caps[looked - 1], size_bytes))
			break;
	}
	place.selected = ring_batch_assign(batch->batch, key, size_bytes);
	place.reason = place.selected == order[0] ? REASON_hash : REASON_spill;
	place.looked_count = looked;
	place.looked = order;
	place.held_bytes = held;
	place.cap_bytes = caps;
	batch->number++;
	place.number = is_numbered ? batch->number : 0;
	if (!is_spilled_only || place.reason == REASON_spill)
		decide_write_place(buf, batch->ring, &place, WALL_US);
	return place.reason == REASON_spill;
}

static void test_batches_replay(void **state)
{
	(void)state;
	for (int mode = 0; mode < 4; mode++) {
		struct decide_replay *replay = decide_replay_new(NULL, PPM);
		struct buf buf = BUF_INIT(64 * MIB);
		struct batch a, b;
		struct rng rng;
		size_t spilled_count = 0, line_count = 0;

		rng_seed(&rng, (uint64_t)mode);
		/* Two at a time, one of which is so tight that nothing fits in the end. */
		batch_open(&a, &buf, "01A", 97000, 20);
		batch_open(&b, &buf, "01B", 20000, 0);
		for (size_t i = 0; i < 1000; i++) {
			bool is_numbered = mode & 1, is_spilled_only = mode & 2;
			size_t spilled = batch_put(&a, &buf, "01A", rng_u64(&rng), 100, is_numbered, is_spilled_only);

			spilled += batch_put(&b, &buf, "01B", rng_u64(&rng), rng_below(&rng, 60), is_numbered,
					     is_spilled_only);
			spilled_count += spilled;
			line_count += is_spilled_only ? spilled : 2;
		}
		assert_in_range(spilled_count, 20, 1500);
		assert_all_same(replay, buf_str(&buf), line_count);
		buf_fini(&buf);
		batch_close(&a);
		batch_close(&b);
		decide_replay_free(&replay);
	}
}

static void test_numbers_of_a_batch_only_grow(void **state)
{
	static const struct {
		const char *numbers[3]; /* what the keys' lines say instead of 1, 2 and 3 */
		const char *what;       /* of the last one; NULL: all is well */
	} rows[] = {
		{ { "1", "2", "3" }, NULL },
		{ { "1", "2", "30" }, NULL }, /* others may be missing */
		{ { "1", "7", "3" }, "number: recorded 3, computed 8" },
		{ { "1", "2", "2" }, "number: recorded 2, computed 3" },
		{ { "1", "3", "2" }, "number: recorded 2, computed 4" },
	};
	struct decide_replay *replay = decide_replay_new(NULL, PPM);
	struct buf line = BUF_INIT(MIB), altered = BUF_INIT(MIB);
	struct decide_change change;
	enum decide_result last = DECIDE_NO_CHOICE;
	struct batch batch;

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		buf_clear(&line);
		batch_open(&batch, &line, "01A", 100000, 20);
		assert_int_equal(replay_line(replay, buf_str(&line), &change), DECIDE_NO_CHOICE);
		for (unsigned k = 0; k < 3; k++) {
			char from[24], to[24];

			buf_clear(&line);
			batch_put(&batch, &line, "01A", 1000 + k, 100, true, false);
			(void)snprintf(from, sizeof(from), "\"number\":%u", k + 1);
			(void)snprintf(to, sizeof(to), "\"number\":%s", rows[i].numbers[k]);
			last = replay_line(replay, with_text(&altered, buf_str(&line), "", from, to), &change);
		}
		assert_int_equal(last, rows[i].what ? DECIDE_OTHER : DECIDE_SAME);
		if (rows[i].what)
			assert_string_equal(change.what, rows[i].what);
		batch_close(&batch);
	}
	buf_fini(&altered);
	buf_fini(&line);
	decide_replay_free(&replay);
}

/* A log that begins with a profile is a whole file, in which all that a line refers to comes before it: what does not was altered or taken out. One
 * whose beginning is missing proves nothing. */
static void test_what_a_whole_log_must_hold(void **state)
{
	const struct profile *profile = profile_builtin("kv");
	struct buf head = BUF_INIT(DECIDE_LINE_MAX), table = BUF_INIT(DECIDE_LINE_MAX), plan = BUF_INIT(MIB),
		   place = BUF_INIT(MIB), altered = BUF_INIT(DECIDE_LINE_MAX);
	struct decide_change change;
	struct batch batch;

	(void)state;
	world_plain();
	world_tick(&table, profile_builtin("gateway"), 0);
	batch_open(&batch, &plan, "01A", 100000, 20);
	batch_put(&batch, &place, "01A", 1000, 100, true, false);
	for (int has_head = 0; has_head < 2; has_head++) {
		int code = has_head ? ERR_BAD_REQUEST : ERR_INCOMPLETE;
		struct decide_replay *replay = decide_replay_new(NULL, PPM);

		/* Second comes no head, whatever it is. */
		if (!has_head)
			assert_int_equal(replay_line(replay, buf_str(&plan), &change), DECIDE_NO_CHOICE);
		buf_clear(&head);
		decide_write_profile(&head, profile, WALL_US);
		assert_int_equal(replay_line(replay, buf_str(&head), &change), DECIDE_NO_CHOICE);
		assert_refused(replay, first_line(&table), code, "its profile");
		assert_refused(replay, with_text(&altered, buf_str(&place), "", "01A", "01B"), code, "plan '01B'");
		decide_replay_free(&replay);
	}
	/* A plan that is older than the log's beginning is in an older file. */
	{
		struct decide_replay *replay = decide_replay_new(NULL, PPM);

		buf_clear(&head);
		decide_write_profile(&head, profile, WALL_US + 1);
		assert_int_equal(replay_line(replay, buf_str(&head), &change), DECIDE_NO_CHOICE);
		assert_refused(replay, buf_str(&place), ERR_INCOMPLETE, "plan '01A'");
		decide_replay_free(&replay);
	}
	batch_close(&batch);
	buf_fini(&altered);
	buf_fini(&place);
	buf_fini(&plan);
	buf_fini(&table);
	buf_fini(&head);
}

static void test_altered_places_are_told(void **state)
{
	static const struct {
		const char *from, *to, *what;
	} rows[] = {
		{ "\"held_bytes\":", "\"held_bytes\":1", "candidates[0].held_bytes: recorded 1" },
		{ "\"cap_bytes\":", "\"cap_bytes\":9", "candidates[0].cap_bytes: recorded 9" },
		{ "\"selected\":\"n", "\"selected\":\"n4-", "selected: recorded \"n4-" },
		{ "\"reason\":\"hash\"", "\"reason\":\"spill\"", "reason: recorded \"spill\", computed \"hash\"" },
		{ "\"candidates\":[{\"node\":\"n", "\"candidates\":[{\"node\":\"m",
		  "candidates[0].node: recorded \"m" },
		{ "\"key\":\"", "\"key\":\"0000000000000000\",\"k\":\"", ": recorded " },
		{ "\"size_bytes\":100", "\"size_bytes\":100000", "selected: " },
	};
	struct decide_replay *replay = decide_replay_new(NULL, PPM);
	struct buf plan = BUF_INIT(MIB), line = BUF_INIT(MIB), altered = BUF_INIT(MIB);
	struct decide_change change;
	struct batch batch;

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		buf_clear(&plan);
		buf_clear(&line);
		/* The plan again: what the batch held begins anew with it. */
		batch_open(&batch, &plan, "01A", 100000, 20);
		assert_int_equal(replay_line(replay, buf_str(&plan), &change), DECIDE_NO_CHOICE);
		batch_put(&batch, &line, "01A", 0xfeedfacecafebeef, 100, true, false);
		if (i == 0)
			assert_refused(replay, with_text(&altered, buf_str(&line), "", "01A", "01C"), ERR_INCOMPLETE,
				       "plan '01C'");
		assert_int_equal(replay_line(replay,
					     with_text(&altered, first_line(&line), "", rows[i].from, rows[i].to),
					     &change),
				 DECIDE_OTHER);
		if (!strstr(change.what, rows[i].what))
			fail_msg("row %zu: '%s' does not say '%s'", i, change.what, rows[i].what);
		assert_string_equal(change.set, "01A");
		batch_close(&batch);
	}
	/* What a node held cannot shrink, even when lines are missing. */
	buf_clear(&line);
	batch_open(&batch, &line, "01A", 100000, 20);
	batch_put(&batch, &line, "01A", 42, 100, false, false);
	assert_all_same(replay, buf_str(&line), 1);
	buf_clear(&line);
	batch_put(&batch, &line, "01A", 42, 100, false, false);
	assert_int_equal(replay_line(replay,
				     with_text(&altered, buf_str(&line), "", "\"held_bytes\":100", "\"held_bytes\":99"),
				     &change),
			 DECIDE_OTHER);
	/* Nor are there more candidates than nodes that take keys. */
	assert_refused(
		replay,
		with_text(&altered, buf_str(&line), "", "\"candidates\":[",
			  "\"candidates\":[{\"held_bytes\":0,\"cap_bytes\":0},{\"held_bytes\":0,\"cap_bytes\":0},"
			  "{\"held_bytes\":0,\"cap_bytes\":0},{\"held_bytes\":0,\"cap_bytes\":0},"),
		ERR_BAD_REQUEST, "only 4 nodes");
	batch_close(&batch);
	buf_fini(&altered);
	buf_fini(&line);
	buf_fini(&plan);
	decide_replay_free(&replay);
}

static void test_many_plans_at_once(void **state)
{
	struct decide_replay *replay = decide_replay_new(NULL, PPM);
	struct buf buf = BUF_INIT(MIB), line = BUF_INIT(MIB), altered = BUF_INIT(MIB);
	struct decide_change change;
	struct batch batch;

	(void)state;
	for (unsigned i = 0; i <= DECIDE_PLANS_MAX; i++) {
		char id[8];

		(void)snprintf(id, sizeof(id), "p%u", i);
		buf_clear(&buf);
		batch_open(&batch, &buf, id, 1000, 20);
		buf_clear(&line);
		batch_put(&batch, &line, "p0", 7, 1, false, false);
		batch_close(&batch);
		replay_line(replay, buf_str(&buf), &change);
		/* The first is in use; so the second is the one that goes. */
		replay_line(replay, buf_str(&line), &change);
	}
	assert_refused(replay, with_text(&altered, buf_str(&line), "", "\"p0\"", "\"p1\""), ERR_INCOMPLETE, "'p1'");
	replay_line(replay, with_text(&altered, buf_str(&line), "", "\"p0\"", "\"p2\""), &change);
	buf_fini(&altered);
	buf_fini(&line);
	buf_fini(&buf);
	decide_replay_free(&replay);
}

/* --- picks --- */

struct picks {
	struct route *route;
	struct ring *ring;
	uint16_t node_indexes[64], ring_nodes[64];
	const char *ids[128]; /* by node index */
	char id_texts[64][32];
};

/* A set of `count` candidates scored by the gateway's profile, some in slow start, with node numbers that are not their places. */
static void picks_open(struct picks *picks, uint64_t seed, size_t count)
{
	const struct profile *profile = profile_builtin("gateway");
	struct ring_node nodes[64];
	struct route_builder *builder = route_builder_new(2, 2 * count);
	struct decision none = { .selected = -1 };
	struct buf unused = BUF_INIT(DECIDE_LINE_MAX);
	struct err err = ERR_INIT;

	world_make(seed, count);
	for (size_t i = 0; i < count; i++) {
		if (world.inputs[i].weight_milli == UINT32_MAX)
			world.inputs[i].weight_milli = 7000;
		picks->node_indexes[i] = (uint16_t)(count - 1 - i + 3);
		picks->ring_nodes[i] = (uint16_t)(count - 1 - i);
		(void)snprintf(picks->id_texts[i], sizeof(picks->id_texts[i]), "node-%zu", i);
		picks->ids[picks->node_indexes[i]] = picks->id_texts[i];
	}
	for (size_t i = 0; i < count; i++)
		nodes[i] = (struct ring_node){ picks->id_texts[count - 1 - i], 1000, i % 3 ? "rack" : NULL };
	assert_int_equal(ring_build(nodes, count, &picks->ring, &err), 0);
	world_tick(&unused, profile, 0);
	buf_fini(&unused);
	route_builder_add(builder, &none, NULL, NULL, 0, NULL, NULL);
	route_builder_add(builder, &world.decision, world.outputs, picks->node_indexes, count, picks->ring,
			  picks->ring_nodes);
	picks->route = route_builder_end(&builder, 77, WALL_US);
}

static void picks_close(struct picks *picks)
{
	route_free(&picks->route);
	ring_free(&picks->ring);
}

static void test_picks_of_every_strategy_replay(void **state)
{
	static const size_t counts[] = { 0, 1, 2, 3, 8, 9, 60 };
	size_t reasons[REASONS] = { 0 };

	(void)state;
	for (int strategy = 0; strategy < PICK_STRATEGIES; strategy++) {
		struct decide_replay *replay = decide_replay_new(NULL, PPM);
		struct buf buf = BUF_INIT(64 * MIB);

		for (size_t c = 0; c < COUNT_OF(counts); c++) {
			struct picks picks;
			struct pick pick;
			int64_t now_us = SEC_US;

			picks_open(&picks, (uint64_t)strategy * 100 + c, counts[c]);
			pick_init(&pick, (enum pick_strategy)strategy, 70, 2, c);
			for (size_t i = 0; i < 60; i++) {
				struct pick_call call = { .key_hash = rng_u64(&world.rng), .now_us = now_us };
				enum reason reason;

				now_us += (int64_t)rng_below(&world.rng, 300000);
				for (size_t try = 0; try < 3; try++) {
					struct decide_pick *before = decide_pick_before(&pick, picks.route, 1, &call);
					int chosen = pick_next(&pick, picks.route, 1, &call, &reason);
					uint16_t node;

					reasons[reason]++;
					decide_write_pick(&buf, &before, "set-7", picks.ids, chosen, reason, WALL_US);
					assert_null(before);
					if (chosen < 0)
						break;
					node = picks.route->candidates[picks.route->sets[1].first + (size_t)chosen]
						       .node_index;
					pick_sent(&pick, node, now_us);
					if (rng_below(&world.rng, 3) == 0)
						continue;
					bool is_failed = rng_below(&world.rng, 3) == 0;

					pick_done(&pick, node, is_failed, (int64_t)rng_below(&world.rng, 90000000),
						  now_us);
					if (!is_failed)
						break;
					call.tried[call.tried_count++] = node;
				}
			}
			pick_fini(&pick);
			picks_close(&picks);
		}
		assert_false(buf.is_failed);
		{
			size_t lines = 0;

			for (size_t i = 0; i < buf.size; i++)
				lines += buf.data[i] == '\n';
			assert_in_range(lines, 420, 1260);
			assert_all_same(replay, buf_str(&buf), lines);
		}
		buf_fini(&buf);
		decide_replay_free(&replay);
	}
	/* The interesting ways were gone. */
	assert_true(reasons[REASON_strategy] && reasons[REASON_turn] && reasons[REASON_degraded_random3] &&
		    reasons[REASON_unavailable] && reasons[REASON_none] && reasons[REASON_hash]);
}

static void test_altered_picks_are_told_or_refused(void **state)
{
	static const struct {
		const char *from, *to, *what;
		bool is_refused;
	} rows[] = {
		{ "\"selected\":\"", "\"selected\":\"x", "selected: recorded \"x", false },
		{ "\"reason\":\"strategy\"", "\"reason\":\"turn\"", "reason: recorded \"turn\"", false },
		{ "\"rng\":[\"", "\"rng\":[\"z", "'rng' is not a text of 16", true },
		{ "\"rng\":[", "\"rng\":[\"0000000000000000\",", "'rng' has 5 items", true },
		{ "\"strategy\":\"p2c\"", "\"strategy\":\"luck\"", "no strategy 'luck'", true },
		{ "\"node_count\":70", "\"node_count\":3", "not below 'node_count'", true },
		{ "\"node_count\":70", "\"node_count\":65537", "'node_count' is not", true },
		{ "\"band\":", "\"band\":9", "'band' is not", true },
		{ "\"in_flight\":", "\"in_flight\":99999999", "'in_flight' is not", true },
		{ "\"candidates\":[{", "\"candidates\":[7,{", "candidates[0]: the field 'node' is missing", true },
		{ "\"ring\":[{", "\"ring\":[7,{", "ring[0]: the field 'node' is missing", true },
		{ "\"candidate\":", "\"candidate\":99", "its 'candidate' is not one of the set", true },
		{ "\"candidates\":", "\"tried\":[65536],\"candidates\":", "no node's number", true },
		{ "\"candidates\":", "\"tried\":[1,2,3,4,5],\"candidates\":", "'tried' has 5 items", true },
	};
	struct decide_replay *replay = decide_replay_new(NULL, PPM);
	struct buf buf = BUF_INIT(DECIDE_LINE_MAX), altered = BUF_INIT(DECIDE_LINE_MAX);
	struct pick_call call = { .key_hash = 9, .now_us = SEC_US };
	struct decide_change change;
	struct decide_pick *before;
	enum reason reason;
	struct picks picks;
	struct pick pick;
	int chosen;

	(void)state;
	picks_open(&picks, 4, 9);
	pick_init(&pick, PICK_p2c, 70, 2, 1);
	do {
		buf_clear(&buf);
		before = decide_pick_before(&pick, picks.route, 1, &call);
		chosen = pick_next(&pick, picks.route, 1, &call, &reason);
		decide_write_pick(&buf, &before, "set-7", picks.ids, chosen, reason, WALL_US);
	} while (reason != REASON_strategy);
	assert_all_same(replay, buf_str(&buf), 1);
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct str line = with_text(&altered, first_line(&buf), "", rows[i].from, rows[i].to);

		if (rows[i].is_refused) {
			assert_refused(replay, line, ERR_BAD_REQUEST, rows[i].what);
			continue;
		}
		assert_int_equal(replay_line(replay, line, &change), DECIDE_OTHER);
		if (!strstr(change.what, rows[i].what))
			fail_msg("row %zu: '%s' does not say '%s'", i, change.what, rows[i].what);
	}
	/* One that nobody wants to write costs nothing. */
	before = decide_pick_before(&pick, picks.route, 0, &call);
	decide_pick_free(&before);
	assert_null(before);
	pick_fini(&pick);
	picks_close(&picks);
	buf_fini(&altered);
	buf_fini(&buf);
	decide_replay_free(&replay);
}

/* --- the manual --- */

/* Members of these are named by profiles, sources and reports. */
static bool has_named_members(const char *key)
{
	static const char *const keys[] = { "groups_ppm", "rules_ppm", "dims_ppm", "words", "report" };

	for (size_t i = 0; i < COUNT_OF(keys); i++) {
		if (strcmp(key, keys[i]) == 0)
			return true;
	}
	return false;
}

static void assert_keys_are_documented(json_t *value, const char *manual)
{
	const char *key;
	json_t *member;
	size_t i;

	json_array_foreach(value, i, member) assert_keys_are_documented(member, manual);
	json_object_foreach(value, key, member)
	{
		char quoted[64];

		(void)snprintf(quoted, sizeof(quoted), "`%s`", key);
		if (!strstr(manual, quoted))
			fail_msg("docs/decisions.md does not explain '%s'", key);
		if (!has_named_members(key))
			assert_keys_are_documented(member, manual);
	}
}

static void test_every_key_and_reason_is_documented(void **state)
{
	struct buf manual = BUF_INIT(MIB), lines = BUF_INIT(64 * MIB);
	const struct profile *profile = profile_builtin("kv");
	struct str rest, line;
	struct picks picks;
	struct batch batch;
	char block[4096];
	size_t size;
	FILE *file = fopen("docs/decisions.md", "r");

	(void)state;
	assert_non_null(file);
	while ((size = fread(block, 1, sizeof(block), file)) > 0)
		assert_true(buf_append(&manual, (struct str){ block, size }));
	assert_int_equal(fclose(file), 0);

	decide_write_profile(&lines, profile, WALL_US);
	for (uint64_t seed = 0; seed < 20; seed++) {
		world_make(seed, 20);
		world_tick(&lines, profile, 0);
	}
	batch_open(&batch, &lines, "01A", 1000, 20);
	batch_put(&batch, &lines, "01A", 1, 10, true, false);
	batch_close(&batch);
	for (int strategy = 0; strategy < PICK_STRATEGIES; strategy++) {
		struct pick_call call = { .key_hash = 1, .now_us = 1, .tried = { 1 }, .tried_count = 1 };
		struct decide_pick *before;
		struct pick pick;

		picks_open(&picks, 4, 9);
		pick_init(&pick, (enum pick_strategy)strategy, 70, 2, 1);
		for (int64_t node = 3; node < 12; node++) {
			pick_sent(&pick, (uint16_t)node, 1);
			pick_done(&pick, (uint16_t)node, node % 2, 1000 * node, 9000000 * node);
		}
		before = decide_pick_before(&pick, picks.route, 1, &call);
		decide_write_pick(&lines, &before, "set-7", picks.ids, -1, REASON_none, WALL_US);
		pick_fini(&pick);
		picks_close(&picks);
	}
	rest = buf_str(&lines);
	while (str_cut(&rest, '\n', &line)) {
		json_t *root = json_loadb(line.data, line.size, JSON_REJECT_DUPLICATES, NULL);

		assert_non_null(root);
		assert_keys_are_documented(root, buf_cstr(&manual));
		json_decref(root);
	}
	for (size_t i = 0; i < REASONS; i++) {
		char row[160];

		(void)snprintf(row, sizeof(row), "\n| `%s` | %s |\n", reason_names[i], reason_helps[i]);
		if (!strstr(buf_cstr(&manual), row))
			fail_msg("docs/decisions.md has no row:%s", row);
	}
	buf_fini(&lines);
	buf_fini(&manual);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tables_of_every_profile_replay),
		cmocka_unit_test(test_the_largest_set_fits_a_line),
		cmocka_unit_test(test_reading_gives_everything_back),
		cmocka_unit_test(test_any_other_output_is_told),
		cmocka_unit_test(test_odd_names_and_great_numbers),
		cmocka_unit_test(test_hostile_lines_are_refused_in_words),
		cmocka_unit_test(test_torn_lines_are_known),
		cmocka_unit_test(test_altered_inputs_out_of_bounds_are_refused),
		cmocka_unit_test(test_profiles_come_first_and_are_what_they_say),
		cmocka_unit_test(test_what_if_tells_from_and_to),
		cmocka_unit_test(test_what_if_keeps_latches_by_name),
		cmocka_unit_test(test_squeeze_brings_scores_under_the_lead),
		cmocka_unit_test(test_batches_replay),
		cmocka_unit_test(test_numbers_of_a_batch_only_grow),
		cmocka_unit_test(test_what_a_whole_log_must_hold),
		cmocka_unit_test(test_altered_places_are_told),
		cmocka_unit_test(test_many_plans_at_once),
		cmocka_unit_test(test_picks_of_every_strategy_replay),
		cmocka_unit_test(test_altered_picks_are_told_or_refused),
		cmocka_unit_test(test_every_key_and_reason_is_documented),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
