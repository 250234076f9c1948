#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "wire/resp.h"

static const struct resp_limits limits = {
	.line_bytes = 32, .bulk_bytes = 64, .value_bytes = 256, .element_count = 32
};

/* One whole value and no more, or how it fails; torn at every byte it is the same. */
static void test_values(void **state)
{
	static const struct {
		const char *text;
		size_t more; /* bytes that follow the value */
		int result;
	} rows[] = {
		{ "", 0, RESP_MORE },
		{ "+OK\r\n", 0, RESP_DONE },
		{ "+\r\n", 0, RESP_DONE },
		{ "+OK\r\n+OK\r\n", 5, RESP_DONE },
		{ "-ERR what\r\n", 0, RESP_DONE },
		{ ":0\r\n", 0, RESP_DONE },
		{ ":-9223372036854775808\r\n", 0, RESP_DONE },
		{ ":9223372036854775808\r\n", 0, -ERR_PEER },
		{ ":+5\r\n", 0, RESP_DONE },
		{ ":+-5\r\n", 0, -ERR_PEER },
		{ ":\r\n", 0, -ERR_PEER },
		{ ": 1\r\n", 0, -ERR_PEER },
		{ "$5\r\na\r\nbc\r\n", 0, RESP_DONE },
		{ "$0\r\n\r\n", 0, RESP_DONE },
		{ "$-1\r\n", 0, RESP_DONE },
		{ "$-2\r\n", 0, -ERR_PEER },
		{ "$3\r\nabcd\r\n", 0, -ERR_PEER },
		{ "$3\r\nab\r\n\r\n", 0, -ERR_PEER },
		{ "$64\r\n", 0, RESP_MORE },
		{ "$65\r\n", 0, -ERR_LIMIT },
		{ "$18446744073709551615\r\n", 0, -ERR_LIMIT },
		{ "$18446744073709551616\r\n", 0, -ERR_PEER },
		{ "$?\r\n", 0, -ERR_PEER },
		{ "*0\r\n", 0, RESP_DONE },
		{ "*-1\r\n", 0, RESP_DONE },
		{ "*2\r\n:1\r\n$1\r\nx\r\n", 0, RESP_DONE },
		{ "*2\r\n:1\r\n", 0, RESP_MORE },
		{ "*1\r\n*1\r\n*2\r\n:1\r\n*0\r\n:9\r\n", 4, RESP_DONE },
		{ "*33\r\n", 0, -ERR_LIMIT },
		{ "*?\r\n", 0, -ERR_PEER },
		{ "%1\r\n+k\r\n%1\r\n+k\r\n+v\r\n", 0, RESP_DONE },
		{ "%-1\r\n", 0, -ERR_PEER },
		{ "~1\r\n#t\r\n", 0, RESP_DONE },
		{ "#x\r\n", 0, -ERR_PEER },
		{ "_\r\n", 0, RESP_DONE },
		{ "_x\r\n", 0, -ERR_PEER },
		{ ",-inf\r\n", 0, RESP_DONE },
		{ ",1.5e+10\r\n", 0, RESP_DONE },
		{ ",.\r\n", 0, -ERR_PEER },
		{ "(-123456789012345678901\r\n", 0, RESP_DONE },
		{ "(12a\r\n", 0, -ERR_PEER },
		{ "!3\r\nERR\r\n", 0, RESP_DONE },
		{ "=5\r\ntxt:a\r\n", 0, RESP_DONE },
		{ "=3\r\ntxt\r\n", 0, -ERR_PEER },
		{ ">2\r\n+message\r\n+x\r\n", 0, RESP_DONE },
		/* An attribute is none of the values, wherever it stands. */
		{ "|1\r\n+a\r\n+b\r\n", 0, RESP_MORE },
		{ "|1\r\n+a\r\n+b\r\n:1\r\n", 0, RESP_DONE },
		{ "|0\r\n:1\r\n", 0, RESP_DONE },
		{ "*2\r\n|1\r\n+a\r\n*1\r\n:1\r\n:1\r\n:2\r\n:3\r\n", 4, RESP_DONE },
		{ "+a\nb\r\n", 0, -ERR_PEER },
		{ "+a\rb\r\n", 0, -ERR_PEER },
		{ "+\n", 0, -ERR_PEER },
		{ "x\r\n", 0, -ERR_PEER },
		{ "\r\n", 0, -ERR_PEER },
		{ "+0123456789012345678901234567890\r\n", 0, RESP_DONE },
		{ "+01234567890123456789012345678901\r\n", 0, RESP_DONE },
		{ "+012345678901234567890123456789012\r\n", 0, -ERR_LIMIT },
		{ "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n", 0,
		  RESP_DONE },
		{ "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:"
		  "1\r\n",
		  0, -ERR_LIMIT },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		const struct str whole = str_from(rows[i].text);
		struct resp_scan scan = { 0 }, slow = { 0 };
		size_t size = 0, slow_size = 0;
		const int result = resp_scan(&scan, whole, &limits, &size);
		int torn = RESP_MORE;

		if (result != rows[i].result || (result == RESP_DONE && size != whole.size - rows[i].more))
			fail_msg("row %zu '%s': %d, %zu bytes", i, rows[i].text, result, size);
		for (size_t n = 0; n <= whole.size && torn == RESP_MORE; n++) {
			char copy[256];

			/* Exactly so many bytes, so that a sanitizer sees who looks beyond. */
			memcpy(copy, whole.data ? whole.data : "", n);
			torn = resp_scan(&slow, (struct str){ copy, n }, &limits, &slow_size);
		}
		if (torn != result || slow_size != size)
			fail_msg("row %zu '%s', byte by byte: %d, %zu bytes", i, rows[i].text, torn, slow_size);
	}
}

static void test_items_lie_in_the_buffer(void **state)
{
	const struct str text = STR("*3\r\n:-7\r\n$5\r\na\r\nbc\r\n#f\r\n");
	struct resp_item item;
	size_t used, at = 0;

	(void)state;
	assert_int_equal(resp_item(text, &limits, &used, &item), RESP_DONE);
	assert_int_equal(item.type, RESP_ARRAY);
	assert_int_equal(item.element_count, 3);
	at += used;
	assert_int_equal(resp_item((struct str){ text.data + at, text.size - at }, &limits, &used, &item), RESP_DONE);
	assert_int_equal(item.type, RESP_INT);
	assert_int_equal(item.number, -7);
	at += used;
	assert_int_equal(resp_item((struct str){ text.data + at, text.size - at }, &limits, &used, &item), RESP_DONE);
	assert_int_equal(item.type, RESP_BULK);
	assert_ptr_equal(item.text.data, text.data + at + 4);
	assert_true(str_eq_c(item.text, "a\r\nbc"));
	at += used;
	assert_int_equal(resp_item((struct str){ text.data + at, text.size - at }, &limits, &used, &item), RESP_DONE);
	assert_int_equal(item.type, RESP_BOOL);
	assert_int_equal(item.number, 0);
	assert_int_equal(at + used, text.size);
}

static void test_commands(void **state)
{
	const struct str args[] = { STR("SET"), STR("a b\r\n"), STR("") };
	struct buf text = BUF_INIT(64), small = BUF_INIT(8);

	(void)state;
	assert_true(resp_command(&text, args, COUNT_OF(args)));
	assert_true(str_eq_c(buf_str(&text), "*3\r\n$3\r\nSET\r\n$5\r\na b\r\n\r\n$0\r\n\r\n"));
	assert_false(resp_command(&small, args, COUNT_OF(args)));
	buf_fini(&text);
	buf_fini(&small);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_values),
		cmocka_unit_test(test_items_lie_in_the_buffer),
		cmocka_unit_test(test_commands),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
