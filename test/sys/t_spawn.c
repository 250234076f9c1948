#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/clock.h"
#include "sys/spawn.h"

static const char *const env[] = { "PATH=/usr/bin:/bin", "WORD=a b", NULL };

static int sh(const char *script, struct str input, int64_t timeout_us, size_t limit, struct spawn *ret,
	      struct err *err)
{
	const char *const argv[] = { "/bin/sh", "-c", script, NULL };

	*ret = (struct spawn){
		.argv = argv, .env = env, .input = input, .timeout_us = timeout_us, .output = BUF_INIT(limit)
	};
	return spawn_run(ret, err);
}

static void what_it_is_given(void **state UNUSED)
{
	struct spawn spawn;
	struct err err = ERR_INIT;

	/* Its input, its environment and no other, the root as its folder, no descriptor but three. */
	assert_int_equal(sh("cat; echo \"$WORD|$HOME|$(pwd)|$(ls /proc/self/fd | wc -l)\"; echo end >&2", STR("in\n"),
			    10 * SEC_US, KIB, &spawn, &err),
			 0);
	assert_string_equal(buf_cstr(&spawn.output), "in\na b||/|4\nend\n");
	assert_false(spawn.is_output_cut);
	buf_fini(&spawn.output);
}

static void how_it_ends(void **state UNUSED)
{
	static const struct {
		const char *script;
		int64_t timeout_us;
		enum err_code code;
		const char *says;
	} rows[] = {
		{ "exit 0", 10 * SEC_US, ERR_NONE, "" },
		{ "exit 3", 10 * SEC_US, ERR_REFUSED, "ended with 3" },
		{ "kill -9 $$", 10 * SEC_US, ERR_REFUSED, "signal 9" },
		/* Ignored here, and yet not by what is run. */
		{ "kill -PIPE $$", 10 * SEC_US, ERR_REFUSED, "signal 13" },
		{ "exec sleep 60", 50 * MSEC_US, ERR_TIMEOUT, "within 50 ms" },
		/* One that was told to end and ends well has been too slow all the same. */
		{ "trap 'exit 0' TERM; while :; do sleep 0.05; done", 50 * MSEC_US, ERR_TIMEOUT, "within 50 ms" },
		/* Its child holds the output open: nobody waits for that. */
		{ "sleep 60 & echo $!; exit 0", 10 * SEC_US, ERR_NONE, "" },
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct spawn spawn;
		struct err err = ERR_INIT;
		int64_t began_us = clock_mono_us();

		assert_int_equal(sh(rows[i].script, STR(""), rows[i].timeout_us, KIB, &spawn, &err),
				 -(int)rows[i].code);
		assert_non_null(strstr(err.text, rows[i].says));
		assert_true(clock_mono_us() - began_us < 30 * SEC_US);
		buf_fini(&spawn.output);
	}
}

static void what_cannot_be_started(void **state UNUSED)
{
	const char *const argv[] = { "/nowhere/at/all", NULL };
	struct spawn spawn = { .argv = argv, .env = env, .timeout_us = SEC_US, .output = BUF_INIT(KIB) };
	struct err err = ERR_INIT;

	assert_int_equal(spawn_run(&spawn, &err), -(int)ERR_SYSTEM);
	assert_non_null(strstr(err.text, "/nowhere/at/all"));
}

static void output_is_bounded(void **state UNUSED)
{
	struct spawn spawn;
	struct err err = ERR_INIT;

	/* More than a pipe holds, of which little is kept; and an input larger than a pipe that is not read. */
	static char input[200000];
	memset(input, 'x', sizeof(input));
	assert_int_equal(sh("head -c 300000 /dev/zero | tr '\\0' y", (struct str){ input, sizeof(input) }, 20 * SEC_US,
			    100, &spawn, &err),
			 0);
	assert_int_equal(spawn.output.size, 100);
	assert_true(spawn.is_output_cut);
	buf_fini(&spawn.output);
	assert_int_equal(sh("wc -c", (struct str){ input, sizeof(input) }, 20 * SEC_US, 100, &spawn, &err), 0);
	assert_string_equal(buf_cstr(&spawn.output), "200000\n");
	buf_fini(&spawn.output);
}

static void interrupted(void **state UNUSED)
{
	const char *const argv[] = { "/bin/sleep", "60", NULL };
	const atomic_bool is_interrupted = true;
	struct spawn spawn = { .argv = argv,
			       .env = env,
			       .timeout_us = 60 * SEC_US,
			       .output = BUF_INIT(KIB),
			       .is_interrupted = &is_interrupted };
	struct err err = ERR_INIT;

	assert_int_equal(spawn_run(&spawn, &err), -(int)ERR_WAITING);
}

/* The kernel then keeps no child's end: a failure must not be taken for a success. */
static void an_end_that_nobody_keeps(void **state UNUSED)
{
	struct spawn spawn;
	struct err err = ERR_INIT;

	(void)signal(SIGCHLD, SIG_IGN);
	assert_int_equal(sh("exit 3", STR(""), 10 * SEC_US, KIB, &spawn, &err), -(int)ERR_SYSTEM);
	buf_fini(&spawn.output);
	(void)signal(SIGCHLD, SIG_DFL);
}

/* What its own child writes without end does not keep us. */
static void output_without_end(void **state UNUSED)
{
	struct spawn spawn;
	struct err err = ERR_INIT;

	assert_int_equal(sh("yes & yes & yes & exec yes", STR(""), 300 * MSEC_US, KIB, &spawn, &err),
			 -(int)ERR_TIMEOUT);
	buf_fini(&spawn.output);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_it_is_given),
		cmocka_unit_test(how_it_ends),
		cmocka_unit_test(what_cannot_be_started),
		cmocka_unit_test(output_is_bounded),
		cmocka_unit_test(interrupted),
		cmocka_unit_test(an_end_that_nobody_keeps),
		cmocka_unit_test(output_without_end),
	};

	(void)signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
