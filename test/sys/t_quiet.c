#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <signal.h>
#include <unistd.h>

#include <cmocka.h>

#include "sys/quiet.h"

static bool is_blocked(int number)
{
	sigset_t mask;

	return pthread_sigmask(SIG_BLOCK, NULL, &mask) == 0 && sigismember(&mask, number) == 1;
}

static bool is_pending(int number)
{
	sigset_t pending;

	return sigpending(&pending) == 0 && sigismember(&pending, number) == 1;
}

static void *look(void *owner)
{
	*(bool *)owner = is_blocked(SIGINT) && is_blocked(SIGUSR1) && is_blocked(SIGPIPE);
	return NULL;
}

static void test_threads_take_no_signals(void **state)
{
	(void)state;
	bool is_quiet = false;
	pthread_t thread;

	assert_int_equal(quiet_thread(&thread, look, &is_quiet), 0);
	pthread_join(thread, NULL);
	assert_true(is_quiet);
	assert_false(is_blocked(SIGINT));
}

/* The disposition is the default all along: a signal that got through would end the test. */
static void test_a_broken_pipe(void **state)
{
	(void)state;
	struct quiet_pipe outer, inner;
	int ends[2];

	assert_int_equal(pipe(ends), 0);
	close(ends[0]);
	quiet_pipe_begin(&outer);
	quiet_pipe_begin(&inner);
	assert_int_equal(write(ends[1], "x", 1), -1);
	assert_int_equal(errno, EPIPE);
	assert_true(is_pending(SIGPIPE));
	quiet_pipe_end(&inner);
	assert_false(is_pending(SIGPIPE));
	assert_true(is_blocked(SIGPIPE));
	quiet_pipe_end(&outer);
	assert_false(is_blocked(SIGPIPE));
	close(ends[1]);
}

static void test_a_signal_of_others(void **state)
{
	(void)state;
	struct quiet_pipe quiet;
	sigset_t pipe_alone;

	sigemptyset(&pipe_alone);
	sigaddset(&pipe_alone, SIGPIPE);
	assert_int_equal(pthread_sigmask(SIG_BLOCK, &pipe_alone, NULL), 0);
	raise(SIGPIPE);
	quiet_pipe_begin(&quiet);
	raise(SIGPIPE);
	quiet_pipe_end(&quiet);
	/* It waited before, and waits again. */
	assert_true(is_pending(SIGPIPE));
	assert_true(is_blocked(SIGPIPE));
	int number;
	assert_int_equal(sigwait(&pipe_alone, &number), 0);
	assert_int_equal(pthread_sigmask(SIG_UNBLOCK, &pipe_alone, NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_threads_take_no_signals),
		cmocka_unit_test(test_a_broken_pipe),
		cmocka_unit_test(test_a_signal_of_others),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
