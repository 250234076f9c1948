/* Rows of the audit as people and spreadsheets get them, and the times that people give. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "app/audit_show.h"

static void test_csv_runs_nothing(void **state UNUSED)
{
	static const struct {
		const char *text, *field;
	} rows[] = {
		{ NULL, "" },
		{ "", "\"\"" },
		{ "clerk", "\"clerk\"" },
		{ "a,b", "\"a,b\"" },
		{ "a\"b", "\"a\"\"b\"" },
		{ "a\r\nb", "\"a\r\nb\"" },
		{ "=1+1", "\"'=1+1\"" },
		{ "+1", "\"'+1\"" },
		{ "-1", "\"'-1\"" },
		{ "@SUM(A1)", "\"'@SUM(A1)\"" },
		{ "\t=1", "\"'\t=1\"" },
		{ "\r=1", "\"'\r=1\"" },
		{ "=\"", "\"'=\"\"\"" },
		{ "a=1", "\"a=1\"" },
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		const struct store_audit audit = { .at_wall_us = 0, .kind = "k", .user = rows[i].text };
		struct buf buf = BUF_INIT(16 * KIB);
		struct audit_room room;
		struct audit_row row;
		char wanted[128];

		audit_row_fill(&row, &audit, NULL, &room);
		row.id = 7;
		audit_show_row(&buf, AUDIT_FORM_CSV, &row);
		(void)snprintf(wanted, sizeof(wanted), "7,1970-01-01T00:00:00.000Z,0,\"k\",,%s,,,,0,0,", rows[i].field);
		if (!str_starts(buf_str(&buf), str_from(wanted)))
			fail_msg("%s: %s", wanted, buf_cstr(&buf));
		buf_fini(&buf);
	}
}

static void test_text_moves_no_cursor(void **state UNUSED)
{
	const struct store_audit audit = { .kind = "alert", .user = "a\x1b[2Jb", .detail = "two\nlines" };
	struct buf buf = BUF_INIT(16 * KIB);
	struct audit_room room;
	struct audit_row row;

	audit_row_fill(&row, &audit, NULL, &room);
	audit_show_row(&buf, AUDIT_FORM_TEXT, &row);
	assert_null(memchr(buf.data, '\x1b', buf.size));
	assert_ptr_equal(memchr(buf.data, '\n', buf.size), buf.data + buf.size - 1);
	buf_fini(&buf);
}

static void test_times_as_people_give_them(void **state UNUSED)
{
	static const int64_t now_us = 1800000000000000;
	static const struct {
		const char *text;
		int64_t wall_us; /* -1: refused */
	} rows[] = {
		{ "2026-01-31", 1769817600000000 },
		{ "2026-01-31T08:00:00Z", 1769846400000000 },
		{ "2026-01-31 08:00", 1769846400000000 },
		{ "7d", 1800000000000000 - 7 * 86400 * INT64_C(1000000) },
		{ "0s", 1800000000000000 },
		{ "2026-02-30T08:00:00ZZ", -1 },
		{ "2026-13-01", -1 },
		{ "1969-12-31", -1 },
		{ "", -1 },
		{ "yesterday", -1 },
		{ "99999999d", -1 },
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct err err = ERR_INIT;
		int64_t wall_us = -1;
		int result = audit_read_time("since", rows[i].text, now_us, &wall_us, &err);

		if (wall_us != rows[i].wall_us || (result == 0) != (rows[i].wall_us >= 0))
			fail_msg("%s: %lld", rows[i].text, (long long)wall_us);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_csv_runs_nothing),
		cmocka_unit_test(test_text_moves_no_cursor),
		cmocka_unit_test(test_times_as_people_give_them),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
