/* Which of the waiting merges goes next; time is wound by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "folder/merge_impl.h"

#define JOBS_MAX 5

static void test_the_next_job(void **state)
{
	(void)state;
	static const struct {
		const char *name;
		struct {
			int priority;
			bool is_running, is_ahead;
			int64_t due_us;
		} jobs[JOBS_MAX];
		size_t count;
		bool is_ahead;
		int next; /* -1: none */
		int64_t due_us;
	} rows[] = {
		{ .name = "none", .count = 0, .next = -1 },
		{ .name = "the first of equals",
		  .jobs = { { .priority = 0 }, { .priority = 0 }, { .priority = 0 } },
		  .count = 3,
		  .next = 0 },
		{ .name = "the highest",
		  .jobs = { { .priority = 0 }, { .priority = 7 }, { .priority = 1000 }, { .priority = 7 } },
		  .count = 4,
		  .next = 2 },
		{ .name = "the first of the highest",
		  .jobs = { { .priority = 1 }, { .priority = 7 }, { .priority = 0 }, { .priority = 7 } },
		  .count = 4,
		  .next = 1 },
		{ .name = "one that runs is not interrupted",
		  .jobs = { { .priority = 3 }, { .priority = 9, .is_running = true }, { .priority = 4 } },
		  .count = 3,
		  .next = 2 },
		{ .name = "all run", .jobs = { { .priority = 3, .is_running = true } }, .count = 1, .next = -1 },
		{ .name = "one that waits for its time holds nobody up",
		  .jobs = { { .priority = 9, .due_us = 101 }, { .priority = 1, .due_us = 100 }, { .priority = 0 } },
		  .count = 3,
		  .next = 1,
		  .due_us = 101 },
		{ .name = "the soonest",
		  .jobs = { { .priority = 9, .due_us = 500 },
			    { .priority = 1, .due_us = 300 },
			    { .priority = 1, .due_us = 400 } },
		  .count = 3,
		  .next = -1,
		  .due_us = 300 },
		{ .name = "of its own kind",
		  .jobs = { { .priority = 9, .is_ahead = true },
			    { .priority = 1 },
			    { .priority = 0, .is_ahead = true } },
		  .count = 3,
		  .next = 1 },
		{ .name = "of the other kind",
		  .jobs = { { .priority = 9 },
			    { .priority = 0, .is_ahead = true },
			    { .priority = 0, .is_ahead = true, .due_us = 50 } },
		  .count = 3,
		  .is_ahead = true,
		  .next = 1 },
	};
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct merge_job jobs[JOBS_MAX] = { 0 };
		int64_t due_us = -1;
		for (size_t n = 0; n < rows[i].count; n++) {
			jobs[n].priority = rows[i].jobs[n].priority;
			jobs[n].is_running = rows[i].jobs[n].is_running;
			jobs[n].is_ahead = rows[i].jobs[n].is_ahead;
			jobs[n].due_us = rows[i].jobs[n].due_us;
			jobs[n].next = n + 1 < rows[i].count ? &jobs[n + 1] : NULL;
		}
		const struct merge_job *next = merge_next_job(rows[i].count > 0 ? jobs : NULL, rows[i].is_ahead, 100,
							      &due_us);
		if (next != (rows[i].next < 0 ? NULL : &jobs[rows[i].next]) || due_us != rows[i].due_us)
			fail_msg("%s: job %td, due at %lld", rows[i].name, next ? next - jobs : -1, (long long)due_us);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_the_next_job) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
