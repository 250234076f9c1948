/* Decision logs as files: torn, rotated, hostile; and what the commands over them answer. */
#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "app/cmd.h"
#include "app/declog.h"

static char folder[] = "/tmp/heng-declog-XXXXXX";
static char path[64];

/* --- times and shares --- */

static void test_times(void **state)
{
	static const struct {
		const char *text;
		int64_t wall_us;
		bool is_time;
	} rows[] = {
		{ "1970-01-01T00:00:00Z", 0, true },
		{ "2026-01-31T08:00:00Z", INT64_C(1769846400000000), true },
		{ "2026-01-31t08:00:00.5z", INT64_C(1769846400500000), true },
		{ "2026-01-31 08:00:00.123456789Z", INT64_C(1769846400123456), true },
		{ "2026-01-31T09:30:00+01:30", INT64_C(1769846400000000), true },
		{ "2026-01-30T20:00:00-12:00", INT64_C(1769846400000000), true },
		{ "2024-02-29T00:00:00Z", INT64_C(1709164800000000), true },
		{ "2024-12-31T23:59:60Z", INT64_C(1735689600000000), true },
		{ "1969-12-31T23:59:59Z", -SEC_US, true },
		{ "0000-01-01T00:00:00Z", INT64_C(-62167219200000000), true },
		{ "@1769846400000001", INT64_C(1769846400000001), true },
		{ "@-5", -5, true },
		{ "", 0, false },
		{ "@", 0, false },
		{ "@12x", 0, false },
		{ "2026-01-31", 0, false },
		{ "2026-01-31T08:00:00", 0, false },
		{ "2026-01-31T08:00:00.Z", 0, false },
		{ "2026-01-31T08:00Z", 0, false },
		{ "2026-1-31T08:00:00Z", 0, false },
		{ "2026-00-31T08:00:00Z", 0, false },
		{ "2026-13-01T08:00:00Z", 0, false },
		{ "2026-02-29T08:00:00Z", 0, false },
		{ "2026-04-31T08:00:00Z", 0, false },
		{ "2026-01-00T08:00:00Z", 0, false },
		{ "2026-01-31T24:00:00Z", 0, false },
		{ "2026-01-31T08:00:00+1:00", 0, false },
		{ "2026-01-31T08:00:00+24:00", 0, false },
		{ "2026-01-31T08:00:00Zulu", 0, false },
		{ "yesterday", 0, false },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		int64_t wall_us = 0;

		if (declog_time(str_from(rows[i].text), &wall_us) != rows[i].is_time)
			fail_msg("'%s' is judged wrongly", rows[i].text);
		if (rows[i].is_time && wall_us != rows[i].wall_us)
			fail_msg("'%s' is %" PRId64, rows[i].text, wall_us);
	}
}

static void test_shares(void **state)
{
	static const struct {
		int64_t share_ppm;
		const char *text;
	} rows[] = {
		{ 0, "0.000" },      { PPM, "1.000" },    { 812000, "0.812" },  { 812499, "0.812" },
		{ 812500, "0.813" }, { 999999, "1.000" }, { 9648885, "9.649" }, { -1, "-" },
	};
	char text[24];

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++)
		assert_string_equal(declog_share(rows[i].share_ppm, text, sizeof(text)), rows[i].text);
}

/* --- files --- */

static void write_file(const char *name, struct str data)
{
	FILE *file = fopen(name, "w");

	assert_non_null(file);
	assert_int_equal(fwrite(data.data, 1, data.size, file), data.size);
	assert_int_equal(fclose(file), 0);
}

static void assert_lines(bool with_rotated, const char *const *lines)
{
	struct declog *log;
	struct err err = ERR_INIT;
	struct str line;

	assert_int_equal(declog_open(path, with_rotated, &log, &err), 0);
	for (; *lines; lines++) {
		assert_int_equal(declog_next(log, &line, &err), 1);
		if (!str_eq_c(line, *lines))
			fail_msg("read '%.*s', not '%s'", STR_ARG(line), *lines);
	}
	assert_int_equal(declog_next(log, &line, &err), 0);
	declog_close(&log);
	assert_null(log);
}

static void test_lines_of_files(void **state)
{
	char name[80], former[80];
	struct declog *log;
	struct err err = ERR_INIT;

	(void)state;
	write_file(path, STR(""));
	assert_lines(false, (const char *const[]){ NULL });
	write_file(path, STR("one\n\ntwo"));
	assert_lines(false, (const char *const[]){ "one", "", "two", NULL });
	/* Oldest first, up to the first that is missing; a file without a last newline does not run into the next. */
	(void)snprintf(name, sizeof(name), "%s.1", path);
	write_file(name, STR("zero"));
	(void)snprintf(name, sizeof(name), "%s.3", path);
	write_file(name, STR("lost\n"));
	assert_lines(true, (const char *const[]){ "zero", "one", "", "two", NULL });
	assert_lines(false, (const char *const[]){ "one", "", "two", NULL });
	(void)unlink(name);
	/* As if the writer had rotated between the opening of the first and of the second: that one is the first again. */
	(void)snprintf(name, sizeof(name), "%s.2", path);
	(void)snprintf(former, sizeof(former), "%s.1", path);
	assert_int_equal(rename(former, name), 0);
	assert_int_equal(link(path, former), 0);
	assert_lines(true, (const char *const[]){ "zero", "one", "", "two", NULL });
	assert_int_equal(unlink(former), 0);
	assert_int_equal(rename(name, former), 0);
	(void)snprintf(name, sizeof(name), "%s.1", path);
	(void)unlink(name);

	(void)snprintf(name, sizeof(name), "%s/missing", folder);
	assert_int_equal(declog_open(name, true, &log, &err), -ERR_USAGE);
	assert_non_null(strstr(err.text, "No such file"));
	assert_int_equal(declog_open(folder, true, &log, &err), 0);
	struct str line;

	assert_int_equal(declog_next(log, &line, &err), -ERR_SYSTEM);
	declog_close(&log);
}

/* A line without an end is cut, said to be too long once, and what follows is read. */
static void test_endless_lines(void **state)
{
	static const size_t sizes[] = { 100000, DECIDE_LINE_MAX - 1, DECIDE_LINE_MAX, DECIDE_LINE_MAX + 1,
					5 * DECIDE_LINE_MAX };

	(void)state;
	for (size_t i = 0; i < COUNT_OF(sizes); i++) {
		char *data = must_alloc(sizes[i] + 6);
		struct declog *log;
		struct err err = ERR_INIT;
		struct str line;

		memset(data, 'x', sizes[i]);
		memcpy(data + sizes[i], "\nnext\n", 6);
		write_file(path, (struct str){ data, sizes[i] + 6 });
		free(data);
		assert_int_equal(declog_open(path, false, &log, &err), 0);
		assert_int_equal(declog_next(log, &line, &err), 1);
		if (sizes[i] <= DECIDE_LINE_MAX)
			assert_int_equal(line.size, sizes[i]);
		else
			assert_in_range(line.size, DECIDE_LINE_MAX + 1, 2 * DECIDE_LINE_MAX);
		assert_int_equal(declog_next(log, &line, &err), 1);
		assert_true(str_eq_c(line, "next"));
		assert_string_equal(declog_where(log), "line 2");
		assert_int_equal(declog_next(log, &line, &err), 0);
		declog_close(&log);
	}
}

/* --- commands --- */

/* A log of one set over some tables, in which node n2 takes over. */
static void write_log(const char *tail)
{
	const struct profile *profile = profile_builtin("kv");
	static struct score_input inputs[2];
	static struct score_output outputs[2];
	const struct score_input *pointers[] = { &inputs[0], &inputs[1] };
	struct judge_memory memory = { .selected = "" };
	struct buf buf = BUF_INIT(MIB);

	decide_write_profile(&buf, profile, 0);
	for (int64_t i = 0; i < 4; i++) {
		struct decision decision;
		struct decide_table table = {
			.set = "pool",
			.router = "r",
			.wall_us = i * SEC_US,
			.version = (uint64_t)i,
			.elapsed_us = i ? SEC_US : 0,
			.before = memory,
			.count = 2,
			.inputs = pointers,
			.outputs = outputs,
			.decision = &decision,
		};

		for (size_t n = 0; n < 2; n++) {
			inputs[n] = (struct score_input){
				.weight_milli = 1000,
				.state = MEMBER_HEALTHY,
				.p99_smooth_us = (n == 0) == (i < 2) ? 10000 : 1000000,
				.write_failure_ppm = -1,
				.in_flight = -1,
				.rt_mean_us = -1,
				.joined_age_us = -1,
				.score_before_ppm = -1,
			};
			(void)snprintf(inputs[n].id, sizeof(inputs[n].id), "n%zu", n + 1);
			report_init(&inputs[n].report);
			inputs[n].report.verified = 1;
		}
		score_set(profile, pointers, 2, outputs);
		judge_set(profile, &memory, table.elapsed_us, pointers, outputs, 2, &decision);
		decide_write_table(&buf, profile, &table);
	}
	buf_append_c(&buf, tail);
	write_file(path, buf_str(&buf));
	buf_fini(&buf);
}

/* Runs words as a command line; what it says on both streams goes to *said. */
static int run(struct buf *said, const char *const *words)
{
	char *argv[12] = { NULL }, name[80], block[4096];
	int argc = 0, exit_code, saved[2], fd;
	ssize_t size;

	for (; words[argc]; argc++)
		argv[argc] = must_strdup(words[argc]);
	(void)snprintf(name, sizeof(name), "%s/said", folder);
	fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
	assert_true(fd >= 0);
	(void)fflush(NULL);
	for (int i = 0; i < 2; i++) {
		saved[i] = dup(1 + i);
		(void)dup2(fd, 1 + i);
	}
	exit_code = cmd_run(cmd_find(argv[0]), argc, argv);
	(void)fflush(NULL);
	for (int i = 0; i < 2; i++) {
		(void)dup2(saved[i], 1 + i);
		close(saved[i]);
	}
	buf_clear(said);
	(void)lseek(fd, 0, SEEK_SET);
	while ((size = read(fd, block, sizeof(block))) > 0)
		buf_append(said, (struct str){ block, (size_t)size });
	close(fd);
	for (int i = 0; i < argc; i++)
		free(argv[i]);
	return exit_code;
}

static void test_commands(void **state)
{
	const struct {
		const char *tail;
		const char *words[10];
		int exit;
		const char *says[6];
	} rows[] = {
		{ "", { "replay", path }, 0, { "4 of 4 recorded choices agree, 0 differ", "5 lines in" } },
		{ "{\"kind\":\"table\",\"ts",
		  { "replay", path },
		  0,
		  { "4 of 4", "line 6: it is torn", "1 torn lines" } },
		/* Its profile would be in this file. */
		{ "{\"kind\":\"table\",\"ts_us\":1,\"router\":\"r\",\"set\":\"s\",\"version\":1,\"profile\":"
		  "\"0000000000000001\","
		  "\"elapsed_us\":0,\"before\":{\"failed_picks\":0,\"held_us\":0,\"flat_us\":0},\"candidates\":[]}\n",
		  { "replay", path },
		  1,
		  { "line 6: its profile '0000000000000001' is on no line before it", "1 lines are no records" } },
		{ "oops\n", { "replay", path }, 1, { "4 of 4", "line 6: it is not JSON", "1 lines are no records" } },
		{ "{\"kind\":\"dropped\",\"lines\":7,\"wall_us\":1}\n",
		  { "replay", path },
		  0,
		  { "4 of 4", "7 lines were never" } },
		{ "", { "replay" }, CMD_USAGE, { "missing: LOG" } },
		{ "", { "replay", path, "--profile", path }, CMD_USAGE, { "cannot use the profile" } },
		{ "", { "replay", "/nowhere/log" }, CMD_USAGE, { "cannot open the decision log /nowhere/log" } },
		{ "",
		  { "explain", "--log", path, "--set", "pool" },
		  0,
		  { "selected   n2\nreason     best: the best score", "previous   n2, held for 1.0 s",
		    "n2        1.000 x 0.300" } },
		{ "",
		  { "explain", "--log", path, "--set", "pool", "--at", "1970-01-01T00:00:01.999999Z" },
		  0,
		  { "(line 3)", "selected   n1\nreason     best",
		    "warning: nobody tells, so that it counts as 1 for all: cpu memory disk" } },
		{ "",
		  { "explain", "--log", path, "--set", "none" },
		  CMD_REFUSED,
		  { "no decision about 'none'", "other sets, such as 'pool'" } },
		{ "", { "explain", "--log", path }, CMD_USAGE, { "--log and --set must say" } },
		{ "",
		  { "explain", "--log", path, "--set", "pool", "--at", "noon" },
		  CMD_USAGE,
		  { "--at 'noon' is no time" } },
		{ "",
		  { "explain", "--log", path, "--set", "pool", "--at", "@-1" },
		  CMD_REFUSED,
		  { "at or before that time" } },
		{ "",
		  { "explain", "--log", path, "--set", "pool", "--router", "q" },
		  CMD_REFUSED,
		  { "of other routers, such as 'r'" } },
		{ "",
		  { "score", "squeeze", path },
		  0,
		  { "drawn together by 0.500, 4 of 4 choices stay the same (1.000)" } },
		{ "",
		  { "score", "squeeze", path, "--factor", "0.4" },
		  0,
		  { "3 of 4 choices stay the same (0.750)", "line 4" } },
		{ "", { "score", "squeeze", path, "--factor", "1" }, 0, { "4 of 4 choices stay the same (1.000)" } },
		{ "", { "score", "squeeze", path, "--factor", "0" }, CMD_USAGE, { "--factor '0' is not" } },
		{ "", { "score", "squeeze", path, "--factor", "0.0001" }, CMD_USAGE, { "--factor" } },
		{ "", { "score", "squeeze", path, "--factor", "1.001" }, CMD_USAGE, { "--factor" } },
		{ "", { "score", "squeeze", path, "--factor", "x" }, CMD_USAGE, { "--factor" } },
		{ "", { "score", "stretch", path }, CMD_USAGE, { "'stretch' is nothing" } },
	};
	struct buf said = BUF_INIT(MIB);

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		write_log(rows[i].tail);
		int exit_code = run(&said, rows[i].words);

		if (exit_code != rows[i].exit)
			fail_msg("row %zu: exit %d and: %s", i, exit_code, buf_cstr(&said));
		for (size_t k = 0; rows[i].says[k]; k++) {
			if (!strstr(buf_cstr(&said), rows[i].says[k]))
				fail_msg("row %zu does not say '%s': %s", i, rows[i].says[k], buf_cstr(&said));
		}
	}
	buf_fini(&said);
}

/* The first difference is told, and all are counted. */
static void test_a_forged_log(void **state)
{
	struct buf said = BUF_INIT(MIB), text = BUF_INIT(MIB);
	struct declog *log;
	struct err err = ERR_INIT;
	struct str line;

	(void)state;
	write_log("");
	assert_int_equal(declog_open(path, false, &log, &err), 0);
	while (declog_next(log, &line, &err) > 0) {
		char *copy = must_alloc(line.size + 1), *at;

		memcpy(copy, line.data, line.size);
		copy[line.size] = '\0';
		at = strstr(copy, "\"selected\":\"n2\"");
		if (at)
			at[13] = '1';
		buf_printf(&text, "%s\n", copy);
		free(copy);
	}
	declog_close(&log);
	write_file(path, buf_str(&text));
	assert_int_equal(run(&said, (const char *const[]){ "replay", path, NULL }), 1);
	for (const char *const *says =
		     (const char *const[]){ "2 of 4 recorded choices agree, 2 differ",
					    "first difference: line 4, set 'pool' at 1970-01-01T00:00:02.000Z",
					    "recorded n1, computed n2", "selected: recorded \"n1\", computed \"n2\"",
					    NULL };
	     *says; says++) {
		if (!strstr(buf_cstr(&said), *says))
			fail_msg("no '%s' in: %s", *says, buf_cstr(&said));
	}
	assert_int_equal(run(&said, (const char *const[]){ "explain", "--log", path, "--set", "pool", NULL }), 0);
	assert_non_null(strstr(buf_cstr(&said), "warning: this line does not agree"));
	assert_int_equal(run(&said, (const char *const[]){ "explain", "--log", path, "--set", "pool", "--json", NULL }),
			 0);
	assert_non_null(strstr(buf_cstr(&said), "\"agrees\":false,\"warnings\":[\"this line does not agree"));
	buf_fini(&text);
	buf_fini(&said);
}

static void test_what_if_command(void **state)
{
	char profile[80];
	struct buf said = BUF_INIT(MIB);

	(void)state;
	write_log("");
	(void)snprintf(profile, sizeof(profile), "%s/profile.yaml", folder);
	/* No lead is enough, so the first choice stays for ever; and a plain copy. */
	write_file(profile, STR("name: slow\nbase: kv\nlead_ppm: 1000000\nhold_ppm: 0\n"));
	assert_int_equal(run(&said, (const char *const[]){ "replay", path, "--profile", profile, NULL }), 0);
	for (const char *const *says = (const char *const[]){ "'slow' 1 of 4 choices would be others", "line 4",
							      "1970-01-01T00:00:02.000Z", NULL };
	     *says; says++) {
		if (!strstr(buf_cstr(&said), *says))
			fail_msg("no '%s' in: %s", *says, buf_cstr(&said));
	}
	write_file(profile, STR("name: same\nbase: kv\n"));
	assert_int_equal(run(&said, (const char *const[]){ "replay", path, "--profile", profile, NULL }), 0);
	assert_non_null(strstr(buf_cstr(&said), "'same' 0 of 4 choices"));
	buf_fini(&said);
}

static int make_folder(void **state)
{
	(void)state;
	if (!mkdtemp(folder))
		return -1;
	(void)snprintf(path, sizeof(path), "%s/log", folder);
	return 0;
}

static int remove_folder(void **state)
{
	static const char *const names[] = { "log", "said", "profile.yaml" };
	char name[80];

	(void)state;
	for (size_t i = 0; i < COUNT_OF(names); i++) {
		(void)snprintf(name, sizeof(name), "%s/%s", folder, names[i]);
		(void)unlink(name);
	}
	return rmdir(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_times),           cmocka_unit_test(test_shares),
		cmocka_unit_test(test_lines_of_files),  cmocka_unit_test(test_endless_lines),
		cmocka_unit_test(test_commands),        cmocka_unit_test(test_a_forged_log),
		cmocka_unit_test(test_what_if_command),
	};

	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
