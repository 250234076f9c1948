#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"

static void test_must_says_where_and_aborts(void **state UNUSED)
{
	int ends[2], status;
	char text[512];
	size_t size = 0;
	ssize_t count;
	pid_t child;

	assert_int_equal(pipe(ends), 0);
	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		struct rlimit no_core = { 0, 0 };

		setrlimit(RLIMIT_CORE, &no_core);
		/* cmocka catches the signal otherwise. */
		signal(SIGABRT, SIG_DFL);
		dup2(ends[1], STDERR_FILENO);
		MUST(1 + 1 == 3);
		_exit(0);
	}
	close(ends[1]);
	while ((count = read(ends[0], text + size, sizeof(text) - 1 - size)) > 0)
		size += (size_t)count;
	text[size] = '\0';
	close(ends[0]);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	assert_non_null(strstr(text, "'1 + 1 == 3'"));
	assert_non_null(strstr(text, "t_base.c:"));
}

static void test_must_takes_a_true_claim(void **state UNUSED) { MUST(1 + 1 == 2); }

static void test_min_max(void **state UNUSED)
{
	assert_true(min_i64(INT64_MIN, 0) == INT64_MIN && max_i64(INT64_MIN, 0) == 0);
	assert_true(min_size(SIZE_MAX, 0) == 0 && max_size(SIZE_MAX, 0) == SIZE_MAX);
}

struct pair {
	int first;
	int second;
};

static void test_container_of(void **state UNUSED)
{
	struct pair pair = { 1, 2 };

	assert_ptr_equal(CONTAINER_OF(&pair.second, struct pair, second), &pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_must_says_where_and_aborts),
		cmocka_unit_test(test_must_takes_a_true_claim),
		cmocka_unit_test(test_min_max),
		cmocka_unit_test(test_container_of),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
