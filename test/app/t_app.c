#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "app/boot.h"
#include "app/cmd.h"
#include "app/progress.h"
#include "app/progress_json.h"

static void test_exit_codes(void **state)
{
	(void)state;
	static const struct {
		enum err_code code;
		int exit;
	} rows[] = {
		{ ERR_NONE, 0 },           { ERR_INTERNAL, 1 },   { ERR_USAGE, 2 },           { ERR_CONFIG, 2 },
		{ ERR_SOURCE_SPECIAL, 3 }, { ERR_SOURCE, 3 },     { ERR_UNAUTHENTICATED, 3 }, { ERR_BATCH_EXISTS, 3 },
		{ ERR_ENTRY_REFUSED, 3 },  { ERR_NO_SPACE, 3 },   { ERR_CONNECT, 4 },         { ERR_DISK_LOW, 4 },
		{ ERR_SOURCE_CHANGED, 4 }, { ERR_INCOMPLETE, 4 }, { ERR_WAITING, 4 },         { ERR_SCHEDULER_DOWN, 4 },
		{ ERR_INTEGRITY, 5 },      { ERR_QUOTA, 3 },
	};
	for (size_t i = 0; i < COUNT_OF(rows); i++)
		assert_int_equal((int)err_exit(rows[i].code), rows[i].exit);
}

/* --- a command of our own, to see what the parser makes of words --- */
static const struct cmd_option probe_options[] = {
	{ "size", 's', "N", "a number" },
	{ "flag", 'f', NULL, "a flag" },
	{ "long-only", 0, "WORD", "a word" },
	{ .name = NULL },
};
static char seen[200];

static int probe_run(const struct cmd *cmd, int operand_count, char **operands, const char *const *values)
{
	const char *size = cmd_value(cmd, values, "size"), *flag = cmd_value(cmd, values, "flag");
	const char *word = cmd_value(cmd, values, "long-only");
	snprintf(seen, sizeof(seen), "%s|%s|%s|%d%s%s", size ? size : "-", flag ? "flag" : "-", word ? word : "-",
		 operand_count, operand_count > 0 ? ":" : "", operand_count > 0 ? operands[0] : "");
	return 0;
}

static void test_words_of_a_command(void **state)
{
	(void)state;
	static const struct cmd probe = { "probe", "[X]", 0, 1, "", probe_options, probe_run };
	static const struct {
		const char *words[8];
		int exit;
		const char *want;
	} rows[] = {
		{ { NULL }, 0, "-|-|-|0" },
		{ { "x" }, 0, "-|-|-|1:x" },
		{ { "--size", "5", "x" }, 0, "5|-|-|1:x" },
		{ { "x", "--size=5", "-f" }, 0, "5|flag|-|1:x" },
		{ { "-s5", "-f", "--long-only=w" }, 0, "5|flag|w|0" },
		{ { "-s", "1", "-s", "2" }, 0, "2|-|-|0" },
		{ { "--", "--size" }, 0, "-|-|-|1:--size" },
		{ { "x", "y" }, 2, "" },
		{ { "--nope" }, 2, "" },
		{ { "-z" }, 2, "" },
		{ { "--size" }, 2, "" },
		{ { "-s" }, 2, "" },
		{ { "--flag=x" }, 2, "" },
	};
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		char *argv[10] = { must_strdup("probe") };
		int argc = 1;
		for (; argc <= 8 && rows[i].words[argc - 1] != NULL; argc++)
			argv[argc] = must_strdup(rows[i].words[argc - 1]);
		char *owned[10];
		memcpy(owned, argv, sizeof(owned));
		seen[0] = '\0';
		assert_int_equal(cmd_run(&probe, argc, argv), rows[i].exit);
		assert_string_equal(seen, rows[i].want);
		for (int j = 0; j < argc; j++)
			free(owned[j]);
	}
}

static void test_values(void **state)
{
	(void)state;
	static const struct cmd probe = { "probe", "", 0, 0, "", probe_options, probe_run };
	static const struct {
		const char *text;
		int result;
		uint64_t number;
	} rows[] = {
		{ NULL, 0, 77 },          { "1", 0, 1 },          { "64", 0, 64 },          { "0", -ERR_USAGE, 77 },
		{ "65", -ERR_USAGE, 77 }, { "", -ERR_USAGE, 77 }, { "-1", -ERR_USAGE, 77 }, { "1x", -ERR_USAGE, 77 },
	};
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		const char *values[CMD_OPTIONS_MAX] = { rows[i].text };
		struct err err = ERR_INIT;
		uint64_t number = 77;
		assert_int_equal(cmd_number(&probe, values, "size", 1, 64, &number, &err), rows[i].result);
		assert_int_equal(number, rows[i].number);
		if (rows[i].result < 0)
			assert_non_null(strstr(err.text, "from 1 to 64"));
	}
	static const char *const choices[] = { "keep", "skip", NULL };
	const char *values[CMD_OPTIONS_MAX] = { NULL, NULL, "skip" };
	struct err err = ERR_INIT;
	int choice = -1;
	assert_int_equal(cmd_choice(&probe, values, "long-only", choices, &choice, &err), 0);
	assert_int_equal(choice, 1);
	values[2] = "ski";
	assert_int_equal(cmd_choice(&probe, values, "long-only", choices, &choice, &err), -ERR_USAGE);
	assert_non_null(strstr(err.text, "keep, skip"));
}

static void test_every_command_has_a_row(void **state)
{
	(void)state;
	static const char *const names[] = { "up", "scheduler", "node", "push", "status", "nodes", "version", "help" };
	for (size_t i = 0; i < COUNT_OF(names); i++) {
		const struct cmd *cmd = cmd_find(names[i]);
		assert_non_null(cmd);
		assert_non_null(cmd->run);
		assert_non_null(cmd->options);
		assert_true(strlen(cmd->help) > 5);
	}
	assert_null(cmd_find("pus"));
	assert_null(cmd_find(""));
}

static void test_when_children_start_again(void **state)
{
	(void)state;
	static const struct {
		int64_t restart_after_us;
		unsigned deaths;
		int64_t want_us;
	} rows[] = {
		{ 0, 0, 0 },
		{ 0, 1, 0 },
		{ 0, 2, 200 * MSEC_US },
		{ 0, 3, 400 * MSEC_US },
		{ 0, 6, 3200 * MSEC_US },
		{ 0, 7, 5 * SEC_US },
		{ 0, 4000000000u, 5 * SEC_US },
		{ 10 * SEC_US, 0, 10 * SEC_US },
		{ 10 * SEC_US, 50, 10 * SEC_US },
		{ 1 * SEC_US, 50, 5 * SEC_US },
		{ BOOT_NEVER, 0, BOOT_NEVER },
		{ BOOT_NEVER, 9, BOOT_NEVER },
	};
	for (size_t i = 0; i < COUNT_OF(rows); i++)
		assert_int_equal(boot_restart_delay_us(rows[i].restart_after_us, rows[i].deaths), rows[i].want_us);
}

static void test_file_limit(void **state)
{
	(void)state;
	struct rlimit before, low, after;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	low = (struct rlimit){ 64, before.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
	boot_raise_file_limit();
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &after), 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	assert_int_equal(after.rlim_cur, before.rlim_max);
}

static void test_progress_lines(void **state)
{
	(void)state;
	struct push_progress progress = { .phase = "scan" };
	char line[512];
	progress_line(&progress, 0, 0, line, sizeof(line));
	assert_string_equal(line, "scan");
	/* What is found so far is no total. */
	progress = (struct push_progress){ .phase = "scan", .files_total = 2, .bytes_total = 4096 };
	progress_line(&progress, 0, 0, line, sizeof(line));
	assert_string_equal(line, "scan  files 2, 4.0 KiB so far");
	progress = (struct push_progress){
		.phase = "merge", .files_total = 5, .merging_files = 2, .bytes_total = 4096
	};
	progress_line(&progress, 0, 0, line, sizeof(line));
	assert_string_equal(line, "merge  0 B / 4.0 KiB  files 2/5");
	/* A folder of empty files is complete without a byte. */
	progress = (struct push_progress){ .phase = "send", .files_total = 2, .files_done = 1 };
	progress_line(&progress, 0, 0, line, sizeof(line));
	assert_string_equal(line, "send  0 B / 0 B  100%  files 1/2");
	progress = (struct push_progress){ .phase = "send",
					   .files_total = 4,
					   .files_done = 1,
					   .bytes_total = 4096,
					   .bytes_done = 1024,
					   .retries = 3,
					   .waiting_for = "n2",
					   .shares = { { "n1", 300, 1 }, { "n2", 100, 1 } },
					   .share_count = 2 };
	progress_line(&progress, 32, 0, line, sizeof(line));
	assert_string_equal(
		line,
		"send  1.0 KiB / 4.0 KiB  25%  files 1/4  32 B/s  ETA 1:36  n1 75% n2 25%  retries 3  waiting: n2");
	progress.limit_rate_bytes = 64;
	progress_line(&progress, 32, 0, line, sizeof(line));
	assert_non_null(strstr(line, "32 B/s  ETA 1:36  limit 64 B/s  n1 75%"));
	progress.limit_rate_bytes = 0;
	/* Cut to the terminal, between letters. */
	progress_line(&progress, 32, 10, line, sizeof(line));
	assert_string_equal(line, "send  1.0 ");
	progress.phase = "\xe9\x80\x81\xe9\x80\x81";
	progress_line(&progress, 32, 4, line, sizeof(line));
	assert_string_equal(line, "\xe9\x80\x81");
}

/* One line each, whatever bytes are in it, and the numbers as they are. */
static void test_progress_for_programs(void **state)
{
	(void)state;
	struct push_progress progress = { .phase = "send",
					  .elapsed_us = 1500 * MSEC_US,
					  .files_total = 4,
					  .files_done = 1,
					  .bytes_total = 4096,
					  .bytes_done = 1024,
					  .chunks_total = 9,
					  .parallel = 8,
					  .waiting_for = "n2:\n\"\xff",
					  .shares = { { "n1", 300, 2 } },
					  .share_count = 1 };
	struct buf text = BUF_INIT(MIB);
	progress_json(&text, &progress, 32);
	assert_string_equal(buf_cstr(&text),
			    "{\"event\":\"progress\",\"phase\":\"send\",\"seconds\":1.500,\"files_done\":1,\"files\":4,"
			    "\"bytes_done\":1024,\"bytes\":4096,\"chunks_done\":0,\"chunks\":9,\"chunks_skipped\":0,"
			    "\"chunks_sent\":0,\"merging_files\":0,\"merging_bytes\":0,\"retries\":0,\"failovers\":0,"
			    "\"parallel\":8,\"limit_rate_bytes\":0,"
			    "\"rate_bytes\":32,\"eta_seconds\":96,\"waiting_for\":\"n2:\\n\\\"\\u00ff\","
			    "\"nodes\":[{\"id\":\"n1\",\"bytes\":300,\"chunks\":2}]}");
	buf_clear(&text);
	progress = (struct push_progress){ .phase = "scan" };
	progress_json(&text, &progress, 0);
	assert_null(strstr(buf_cstr(&text), "eta_seconds"));
	assert_non_null(strstr(buf_cstr(&text), "\"waiting_for\":null,\"nodes\":[]}"));
	buf_clear(&text);
	progress_json_problem(&text, STR("a\xff\n/b c"), "why \"so\"");
	assert_string_equal(buf_cstr(&text), "{\"event\":\"problem\",\"path_enc\":\"a%FF%0A/b%20c\",\"reason\":\"why "
					     "\\\"so\\\"\"}");
	buf_clear(&text);
	progress_json_notice(&text, "two\nlines");
	assert_string_equal(buf_cstr(&text), "{\"event\":\"notice\",\"text\":\"two\\nlines\"}");
	buf_fini(&text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_exit_codes),
		cmocka_unit_test(test_words_of_a_command),
		cmocka_unit_test(test_values),
		cmocka_unit_test(test_every_command_has_a_row),
		cmocka_unit_test(test_when_children_start_again),
		cmocka_unit_test(test_file_limit),
		cmocka_unit_test(test_progress_lines),
		cmocka_unit_test(test_progress_for_programs),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
