#include <limits.h>
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

#include "folder/push_learnt.h"

#include "sys/fs.h"

#define URL  "http://127.0.0.1:7080"
#define HEAD "heng-network 1\nurl " URL "\n"

static void test_what_a_push_teaches(void **state)
{
	(void)state;
	static const struct {
		uint64_t acked, refused, rate;
		int64_t took_us, round_trip_us;
		unsigned limit;
		bool is_enough;
		uint64_t chunk_bytes;
		unsigned parallel;
	} rows[] = {
		/* Too short, too few, nothing measured. */
		{ 1000, 0, 100 * MIB, 999 * MSEC_US, 100, 8, false, 0, 0 },
		{ 15, 0, 100 * MIB, 9 * SEC_US, 100, 8, false, 0, 0 },
		{ 1000, 0, 0, 9 * SEC_US, 100, 8, false, 0, 0 },
		/* A fast network takes the scheduler's own chunks. */
		{ 100, 0, 800 * MIB, 9 * SEC_US, 100, 12, true, 0, 12 },
		{ 100, 0, 64 * MIB, 9 * SEC_US, 100, 8, true, 0, 8 },
		/* 64 MiB/s by 32 at once: 2 MiB are a second each. */
		{ 100, 0, 64 * MIB, 9 * SEC_US, 50 * MSEC_US, 32, true, 2 * MIB, 32 },
		{ 100, 6, 64 * MIB, 9 * SEC_US, 50 * MSEC_US, 32, true, 1 * MIB, 32 },
		{ 100, 5, 64 * MIB, 9 * SEC_US, 50 * MSEC_US, 32, true, 2 * MIB, 32 },
		/* Over a satellite a chunk is worth ten round trips. */
		{ 100, 0, 64 * MIB, 60 * SEC_US, 400 * MSEC_US, 32, true, 0, 32 },
		{ 100, 0, 1, 9 * SEC_US, 100, 2, true, 1 * MIB, 4 },
		{ 100, 0, UINT64_MAX, 9 * SEC_US, INT64_MAX / 100, 1, true, 0, 4 },
	};
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct push_pace pace;
		struct push_learnt learnt = { 0 };
		push_pace_init(&pace, rows[i].limit, 64, false);
		pace.acked_count = rows[i].acked;
		pace.refused_count = rows[i].refused;
		pace.best_rate = rows[i].rate;
		pace.first_us = 5;
		pace.last_us = 5 + rows[i].took_us;
		bool is_enough = push_learnt_from(&pace, rows[i].round_trip_us, &learnt);
		if (is_enough != rows[i].is_enough || learnt.chunk_bytes != rows[i].chunk_bytes ||
		    learnt.parallel != rows[i].parallel)
			fail_msg("row %zu: %d %llu %u", i, is_enough, (unsigned long long)learnt.chunk_bytes,
				 learnt.parallel);
	}
}

static void test_only_sound_text_is_taken(void **state)
{
	(void)state;
	static const struct {
		const char *text;
		unsigned parallel;
		uint64_t chunk_bytes;
	} rows[] = {
		{ HEAD "chunk_bytes 2097152\nparallel 24\nrate_bytes 5\nround_trip_us 6\nfailure_ppm 7\n", 24,
		  2 * MIB },
		{ HEAD "parallel 2\n", 2, 0 },
		{ HEAD "parallel 8\na_later_word 1\n", 8, 0 },
		{ "", 0, 0 },
		{ "\n\n\n", 0, 0 },
		{ "heng-network 2\nurl " URL "\nparallel 8\n", 0, 0 },
		{ "heng-network 1\nurl http://127.0.0.1:70800\nparallel 8\n", 0, 0 },
		{ HEAD, 0, 0 },
		{ HEAD "parallel 1\n", 0, 0 },
		{ HEAD "parallel 65\n", 0, 0 },
		{ HEAD "parallel -8\n", 0, 0 },
		{ HEAD "parallel 8\nchunk_bytes 1\n", 0, 0 },
		{ HEAD "parallel 8\nchunk_bytes 16777216\n", 0, 0 },
		{ HEAD "parallel 8\nfailure_ppm 1000001\n", 0, 0 },
		{ HEAD "parallel 8\nround_trip_us 99999999999999999999\n", 0, 0 },
		{ HEAD "parallel 8\nrate_bytes", 0, 0 },
	};
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct push_learnt learnt;
		push_learnt_parse(str_from(rows[i].text), URL, &learnt);
		if (learnt.parallel != rows[i].parallel || learnt.chunk_bytes != rows[i].chunk_bytes)
			fail_msg("row %zu: %u %llu", i, learnt.parallel, (unsigned long long)learnt.chunk_bytes);
	}
}

static void test_it_is_kept_for_each_scheduler(void **state)
{
	(void)state;
	char dir[] = "/tmp/heng-t_push_learnt-XXXXXX", deep[sizeof(dir) + 16];
	struct push_learnt none = { 0 }, learnt = { .parallel = 24, .chunk_bytes = MIB, .rate_bytes = 1000 }, got;
	struct err err = ERR_INIT;

	assert_non_null(mkdtemp(dir));
	snprintf(deep, sizeof(deep), "%s/state/heng", dir);
	push_learnt_read(deep, URL, &got);
	assert_int_equal(got.parallel, 0);
	push_learnt_write(deep, URL, &none, &learnt);
	push_learnt_read(deep, URL, &got);
	assert_memory_equal(&got, &learnt, sizeof(got));
	push_learnt_read(deep, "http://127.0.0.1:7081", &got);
	assert_int_equal(got.parallel, 0);
	/* What hardly differs is not written. */
	struct push_learnt near = learnt, far = learnt;
	near.rate_bytes = 1240;
	push_learnt_write(deep, URL, &learnt, &near);
	push_learnt_read(deep, URL, &got);
	assert_int_equal(got.rate_bytes, 1000);
	far.rate_bytes = 1300;
	push_learnt_write(deep, URL, &learnt, &far);
	push_learnt_read(deep, URL, &got);
	assert_int_equal(got.rate_bytes, 1300);
	/* No place, and a place that is none: nothing happens. */
	push_learnt_write(NULL, URL, &none, &learnt);
	push_learnt_write("", URL, &none, &learnt);
	push_learnt_write("/dev/null/heng", URL, &none, &learnt);
	push_learnt_read("/dev/null/heng", URL, &got);
	assert_int_equal(got.parallel, 0);
	int fd = fs_open_dir("/tmp", &err);
	assert_int_equal(fs_remove_tree(fd, dir + 5, &err), 0);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_a_push_teaches),
		cmocka_unit_test(test_only_sound_text_is_taken),
		cmocka_unit_test(test_it_is_kept_for_each_scheduler),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
