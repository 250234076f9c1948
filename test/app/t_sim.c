/* The command over the simulator: which policies run, and whose decisions are kept. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "app/cmd.h"
#include "base/buf.h"

static const char scenario[] = "name: small\ntitle: small\nnodes: 3\nrequests: 4000\nwarmup: 1s\nrouters: 1\n";

static char folder[] = "/tmp/heng-sim-XXXXXX";
static char file[64], log_file[64], said_file[64];

/* Runs words as a command line; what it says on both streams goes to *said. */
static int run(struct buf *said, const char *const *words)
{
	char *argv[12] = { NULL }, block[4096];
	int argc = 0, saved[2];
	for (; words[argc] != NULL; argc++)
		argv[argc] = must_strdup(words[argc]);
	int fd = open(said_file, O_RDWR | O_CREAT | O_TRUNC, 0600);
	assert_true(fd >= 0);
	fflush(NULL);
	for (int i = 0; i < 2; i++) {
		saved[i] = dup(1 + i);
		assert_true(dup2(fd, 1 + i) >= 0);
	}
	int exit_code = cmd_run(cmd_find(argv[0]), argc, argv);
	fflush(NULL);
	for (int i = 0; i < 2; i++) {
		assert_true(dup2(saved[i], 1 + i) >= 0);
		close(saved[i]);
	}
	buf_clear(said);
	assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
	ssize_t size;
	while ((size = read(fd, block, sizeof(block))) > 0)
		buf_append(said, (struct str){ block, (size_t)size });
	close(fd);
	for (int i = 0; i < argc; i++)
		free(argv[i]);
	return exit_code;
}

static void test_sim(void **state)
{
	const struct {
		const char *words[10];
		int exit_code;
		int64_t log_least_bytes; /* -1: there must be no log */
		const char *says[4];
	} rows[] = {
		/* Whose decisions they are would not be in the log. */
		{ { "sim", file, "--log", log_file },
		  CMD_USAGE,
		  -1,
		  { "--log keeps the decisions of one policy, and ", " are to run", "--policy heng_adaptive" } },
		{ { "sim", file, "--log", log_file, "--policy", "heng_band,heng_adaptive" },
		  CMD_USAGE,
		  -1,
		  { "one policy, and 2 are to run" } },
		{ { "sim", file, "--log", log_file, "--policy", "p2c,p2c" }, CMD_USAGE, -1, { "and 2 are to run" } },
		{ { "sim", file, "--log", log_file, "--policy", "nobody" }, CMD_USAGE, -1, { "no policy 'nobody'" } },
		{ { "sim", file, "--policy", "heng_band,p2c" }, CMD_DONE, -1, { "\nheng_band ", "\np2c " } },
		{ { "sim", file, "--log", log_file, "--policy", "heng_band" }, CMD_DONE, 1000, { "\nheng_band " } },
		{ { "replay", log_file }, CMD_DONE, 1000, { "0 differ" } },
		{ { "sim", file, "--log", log_file, "--policy", "p2c" },
		  CMD_DONE,
		  0,
		  { "note: 'p2c' makes no decision log", "\np2c " } },
		{ { "sim", file, "--policy", "p2c", "--requests", "10" },
		  CMD_DONE,
		  0,
		  { "all 10 requests arrive within the warm-up" } },
		{ { "sim", file, "--policy", "p2c", "--requests", "0" }, CMD_USAGE, 0, { "--requests" } },
	};
	struct buf said = BUF_INIT(MIB);
	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		int exit_code = run(&said, rows[i].words);
		struct stat stat_buf;
		int64_t log_bytes = stat(log_file, &stat_buf) == 0 ? (int64_t)stat_buf.st_size : -1;
		if (exit_code != rows[i].exit_code)
			fail_msg("row %zu: exit %d instead of %d: %s", i, exit_code, rows[i].exit_code,
				 buf_cstr(&said));
		for (size_t j = 0; j < COUNT_OF(rows[i].says) && rows[i].says[j] != NULL; j++) {
			if (strstr(buf_cstr(&said), rows[i].says[j]) == NULL)
				fail_msg("row %zu: '%s' is not in: %s", i, rows[i].says[j], buf_cstr(&said));
		}
		if (rows[i].log_least_bytes <= 0)
			assert_int_equal(log_bytes, rows[i].log_least_bytes);
		else
			assert_true(log_bytes >= rows[i].log_least_bytes);
	}
	buf_fini(&said);
}

static int setup(void **state)
{
	(void)state;
	if (mkdtemp(folder) == NULL)
		return -1;
	(void)snprintf(file, sizeof(file), "%s/small.yaml", folder);
	(void)snprintf(log_file, sizeof(log_file), "%s/log.jsonl", folder);
	(void)snprintf(said_file, sizeof(said_file), "%s/said", folder);
	FILE *out = fopen(file, "we");
	if (out == NULL)
		return -1;
	bool is_written = fputs(scenario, out) >= 0;
	return fclose(out) == 0 && is_written ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	unlink(file);
	unlink(log_file);
	unlink(said_file);
	return rmdir(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_sim) };
	return cmocka_run_group_tests(tests, setup, teardown);
}
