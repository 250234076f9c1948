#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "folder/held.h"
#include "folder/removed.h"

#define D  "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define M5 "d41d8cd98f00b204e9800998ecf8427e"
#define T  "01ARZ3NDEKTSV4RRFFQ69G5FAV"

static const struct held_range all = { 0, 0, INT64_MAX, INT64_MAX };

struct seen {
	size_t count, stop_at;
};

static int see(void *owner, const struct held_chunk *chunk, struct err *err)
{
	struct seen *seen = owner;
	struct buf line = BUF_INIT(HELD_LINE_MAX);

	/* What was read is fit to be written. */
	held_write(&line, chunk);
	assert_false(line.is_failed);
	buf_fini(&line);
	return ++seen->count == seen->stop_at ? err_set(err, ERR_STORE, "stop") : 0;
}

static void t_pages(void **state)
{
	static const struct {
		const char *page;
		int result;
		bool has_more;
		size_t count;
	} rows[] = {
		{ "N 0\n", 0, false, 0 },
		{ "1 0 5 sha256:" D "\nN 0\n", 0, false, 1 },
		{ "1 0 5 sha256:" D "\n1 1 0 md5:" M5 "\n2 0 5 sha256:" D "\nN 1\n", 0, true, 3 },
		{ "9223372036854775807 9223372036854775807 9223372036854775807 sha256:" D "\nN 0\n", 0, false, 1 },
		/* Nothing, or cut off. */
		{ "", -ERR_PEER, false, 0 },
		{ "N 0", -ERR_PEER, false, 0 },
		{ "1 0 5 sha256:" D "\n", -ERR_PEER, false, 1 },
		{ "1 0 5 sha256:" D "\nN", -ERR_PEER, false, 0 },
		{ "\n", -ERR_PEER, false, 0 },
		/* After the end, or an end that would never come. */
		{ "N 0\nN 0\n", -ERR_PEER, false, 0 },
		{ "N 0\n1 0 5 sha256:" D "\n", -ERR_PEER, false, 0 },
		{ "N 1\n", -ERR_PEER, true, 0 },
		{ "N 2\n", -ERR_PEER, false, 0 },
		/* Order. */
		{ "1 0 5 sha256:" D "\n1 0 5 sha256:" D "\nN 0\n", -ERR_PEER, false, 1 },
		{ "1 1 5 sha256:" D "\n1 0 5 sha256:" D "\nN 0\n", -ERR_PEER, false, 1 },
		{ "2 0 5 sha256:" D "\n1 1 5 sha256:" D "\nN 0\n", -ERR_PEER, false, 1 },
		/* Fields. */
		{ "0 0 5 sha256:" D "\nN 0\n", -ERR_PEER, false, 0 },
		{ "-1 0 5 sha256:" D "\nN 0\n", -ERR_PEER, false, 0 },
		{ "1 0 9223372036854775808 sha256:" D "\nN 0\n", -ERR_PEER, false, 0 },
		{ "1 0 5 sha1:" D "\nN 0\n", -ERR_PEER, false, 0 },
		{ "1 0 5 md5:" D "\nN 0\n", -ERR_PEER, false, 0 },
		{ "1 0 5 sha256:" D "0\nN 0\n", -ERR_PEER, false, 0 },
		{ "1 0 5 sha256:\nN 0\n", -ERR_PEER, false, 0 },
		{ "1 0 5\nN 0\n", -ERR_PEER, false, 0 },
		{ "1 0 sha256:" D "\nN 0\n", -ERR_PEER, false, 0 },
		{ "1 0 5 6 sha256:" D "\nN 0\n", -ERR_PEER, false, 0 },
	};
	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct seen seen = { .count = 0 };
		struct err err = ERR_INIT;
		bool has_more = false;

		if (held_parse(str_from(rows[i].page), &all, see, &seen, &has_more, &err) != rows[i].result ||
		    seen.count != rows[i].count || has_more != rows[i].has_more)
			fail_msg("row %zu: %zu chunks, %s", i, seen.count, err.text);
		assert_true(rows[i].result == 0 || err.text[0] != '\0');
	}
}

/* Nothing is taken that was not asked for, and a refusal of who takes it ends it. */
static void t_range_and_stop(void **state)
{
	static const char page[] = "2 3 5 sha256:" D "\n2 4 5 sha256:" D "\n3 0 5 sha256:" D "\nN 0\n";
	static const struct {
		struct held_range range;
		size_t stop_at;
		int result;
		size_t count;
	} rows[] = {
		{ { 2, 2, 3, 0 }, 0, 0, 3 },
		{ { 2, 3, 3, 0 }, 0, -ERR_PEER, 0 },
		{ { 2, 2, 2, INT64_MAX }, 0, -ERR_PEER, 2 },
		{ { 0, 0, 2, 3 }, 0, -ERR_PEER, 1 },
		{ { 0, 0, 3, 0 }, 2, -ERR_STORE, 2 },
	};
	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct seen seen = { .stop_at = rows[i].stop_at };
		struct err err = ERR_INIT;
		bool has_more = true;

		if (held_parse(str_from(page), &rows[i].range, see, &seen, &has_more, &err) != rows[i].result ||
		    seen.count != rows[i].count)
			fail_msg("row %zu: %zu chunks, %s", i, seen.count, err.text);
	}
}

/* The longest page fits the answer; one line more is one too many. */
static void t_longest(void **state)
{
	struct buf page = BUF_INIT(HELD_ANSWER_MAX);
	struct held_chunk chunk = { .file_id = INT64_MAX, .size_bytes = INT64_MAX, .kind = DIGEST_SHA256, .digest = D };
	struct seen seen = { .count = 0 };
	struct err err = ERR_INIT;
	bool has_more;

	(void)state;
	chunk.chunk_index = INT64_MAX - HELD_PAGE_MAX - 1;
	for (size_t i = 0; i < HELD_PAGE_MAX; i++, chunk.chunk_index++)
		held_write(&page, &chunk);
	assert_true(page.size / HELD_PAGE_MAX < HELD_LINE_MAX);
	held_write_end(&page, true);
	assert_false(page.is_failed);
	assert_int_equal(held_parse(buf_str(&page), &all, see, &seen, &has_more, &err), 0);
	assert_true(has_more);
	assert_int_equal(seen.count, HELD_PAGE_MAX);
	page.size -= 4;
	held_write(&page, &chunk);
	held_write_end(&page, true);
	assert_false(page.is_failed);
	assert_int_equal(held_parse(buf_str(&page), &all, see, &seen, &has_more, &err), -ERR_PEER);
	buf_fini(&page);
}

static void t_removed(void **state)
{
	static const struct {
		const char *line;
		bool is_good;
	} rows[] = {
		{ "over " T, true },
		{ "stray " T " 1 2 3", true },
		{ "stray " T " 9223372036854775807 0 0", true },
		{ "unfinished 17", true },
		{ "", false },
		{ "over", false },
		{ "over ../../etc", false },
		{ "over " T " 1", false },
		{ "stray " T " 1 2", false },
		{ "stray " T " 1 2 3 4", false },
		{ "stray " T " 1 2 9223372036854775808", false },
		{ "stray " T " 1 -2 3", false },
		{ "unfinished", false },
		{ "unfinished x", false },
		{ "unfinished 1 2", false },
		{ "all " T, false },
	};
	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct buf buf = BUF_INIT(REMOVED_LINE_MAX);
		struct err err = ERR_INIT;
		struct removed removed;

		if ((removed_parse(str_from(rows[i].line), &removed, &err) == 0) != rows[i].is_good)
			fail_msg("'%s': %s", rows[i].line, err.text);
		if (!rows[i].is_good)
			continue;
		removed_write(&buf, &removed);
		assert_int_equal(buf.data[buf.size - 1], '\n');
		buf.size--;
		assert_string_equal(buf_cstr(&buf), rows[i].line);
		buf_fini(&buf);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(t_pages),
		cmocka_unit_test(t_range_and_stop),
		cmocka_unit_test(t_longest),
		cmocka_unit_test(t_removed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
