/* Audit rows as lines: what is written reads as the same row, with text that JSON cannot hold too. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "plug/audit_line.h"

#define ZEROS "0000000000000000000000000000000000000000000000000000000000000000"

static void test_line_reads_as_it_was_written(void **state UNUSED)
{
	static const struct str texts[] = {
		{ "", 0 }, { "clerk", 5 }, { "caf\xc3\xa9\n\"\\", 8 }, { "a\0b", 3 }, { "\xff\xfe%", 3 }, { "\x01", 1 },
	};
	struct audit_hasher *hasher = audit_hasher_new();

	for (size_t i = 0; i < COUNT_OF(texts); i++) {
		struct audit_point last = { .id = 41 };
		struct buf buf = BUF_INIT(AUDIT_LINE_MAX);
		struct err err = ERR_INIT;
		struct audit_room room;
		const struct store_audit audit = { .at_wall_us = INT64_MIN, .kind = "alert" };
		struct audit_row row;
		struct audit_line line;

		audit_row_fill(&row, &audit, NULL, &room);
		row.fields[AUDIT_user] = (struct audit_value){ .text = texts[i] };
		row.fields[AUDIT_detail] = (struct audit_value){ .text = texts[COUNT_OF(texts) - 1 - i] };
		audit_row_link(hasher, &last, &row);
		audit_line_write(&buf, &row);
		assert_int_equal(audit_line_parse(buf_str(&buf), &line, &err), 0);
		assert_true(line.row.fields[AUDIT_node_id].is_null);
		last = (struct audit_point){ .id = 41 };
		assert_int_equal(audit_row_check(hasher, &last, &line.row, &err), 0);
		audit_line_fini(&line);
		buf_fini(&buf);
	}
	audit_hasher_free(&hasher);
}

static void test_line_refuses_what_is_no_row(void **state UNUSED)
{
	static const struct {
		const char *text, *why;
	} rows[] = {
		{ "", "0 bytes" },
		{ "x", "no JSON object" },
		{ "[]", "no JSON object" },
		{ "{}", "missing" },
		{ "{\"id\":1,\"hash\":\"" ZEROS "\"}", "missing" },
		{ "{\"id\":0,\"prev_hash\":\"" ZEROS "\",\"hash\":\"" ZEROS "\"}", "'id'" },
		{ "{\"id\":-1}", "'id'" },
		{ "{\"id\":\"1\"}", "'id'" },
		{ "{\"id\":1,\"hash\":\"00\"}", "'hash' is no hash" },
		{ "{\"id\":1,\"hash\":7}", "'hash' is no hash" },
		{ "{\"id\":1,\"id\":2}", "no JSON object" },
		{ "{\"id\":1,\"colour\":\"red\"}", "'colour' is a field" },
		{ "{\"id\":1,\"_enc\":\"red\"}", "'_enc' is a field" },
		{ "{\"id\":1,\"user\":null}", "'user' is no text" },
		{ "{\"id\":1,\"user\":5}", "'user' is no text" },
		{ "{\"id\":1,\"user_enc\":\"%zz\"}", "'user_enc' is not percent-encoded" },
		{ "{\"id\":1,\"user\":\"a\",\"user_enc\":\"a\"}", "twice" },
		{ "{\"id\":1,\"file_id\":1.5}", "whole number" },
		{ "{\"id\":1,\"file_id_enc\":1}", "whole number" },
		{ "{\"id\":1,\"user\":\"a\\u0000\"}", "no JSON object" },
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct audit_line line;
		struct err err = ERR_INIT;

		assert_int_equal(audit_line_parse(str_from(rows[i].text), &line, &err), -ERR_BAD_REQUEST);
		if (!strstr(err.text, rows[i].why))
			fail_msg("%s: %s", rows[i].text, err.text);
		audit_line_fini(&line);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_line_reads_as_it_was_written),
		cmocka_unit_test(test_line_refuses_what_is_no_row),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
