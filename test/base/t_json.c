#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <jansson.h>

#include "base/json.h"

static void test_nesting_and_commas(void **state UNUSED)
{
	struct buf buf = BUF_INIT(1000);
	struct json json;

	json_init(&json, &buf);
	json_open(&json, NULL);
	json_open_list(&json, "empty");
	json_close_list(&json);
	json_open_list(&json, "list");
	json_i64(&json, NULL, 1);
	json_open(&json, NULL);
	json_close(&json);
	json_open(&json, NULL);
	json_bool(&json, "a", true);
	json_bool(&json, "b", false);
	json_close(&json);
	json_c(&json, NULL, NULL);
	json_close_list(&json);
	json_c(&json, "last", "x");
	json_close(&json);
	assert_int_equal(json.depth, 0);
	assert_string_equal(buf_cstr(&buf),
			    "{\"empty\":[],\"list\":[1,{},{\"a\":true,\"b\":false},null],\"last\":\"x\"}");
	buf_fini(&buf);
}

static void test_numbers(void **state UNUSED)
{
	static const struct {
		int64_t milli;
		const char *text;
	} ROWS[] = {
		{ 0, "0.000" },
		{ 5, "0.005" },
		{ -5, "-0.005" },
		{ 1000, "1.000" },
		{ -1234, "-1.234" },
		{ INT64_MAX, "9223372036854775.807" },
		{ INT64_MIN, "-9223372036854775.808" },
	};
	struct buf buf = BUF_INIT(1000);
	struct json json;

	json_init(&json, &buf);
	for (size_t i = 0; i < COUNT_OF(ROWS); i++) {
		buf_clear(&buf);
		json_milli(&json, NULL, ROWS[i].milli);
		assert_string_equal(buf_cstr(&buf), ROWS[i].text);
	}
	buf_clear(&buf);
	json_open_list(&json, NULL);
	json_i64(&json, NULL, INT64_MIN);
	json_u64(&json, NULL, UINT64_MAX);
	json_close_list(&json);
	assert_string_equal(buf_cstr(&buf), "[-9223372036854775808,18446744073709551615]");
	buf_fini(&buf);
}

static void test_text(void **state UNUSED)
{
	static const struct {
		struct str value;
		const char *text;
	} ROWS[] = {
		{ STR_NONE, "\"\"" },
		{ STR("a\"b\\c/"), "\"a\\\"b\\\\c/\"" },
		{ STR("\0\x1F\n\t\x7F"), "\"\\u0000\\u001f\\n\\u0009\x7F\"" },
		{ STR("\xE4\xBD\xA0"), "\"\xE4\xBD\xA0\"" },
		{ STR("x\xFF\xC3\xA9\xC3"), "\"x\\u00ff\xC3\xA9\\u00c3\"" },
		{ STR("\xED\xA0\x80"), "\"\\u00ed\\u00a0\\u0080\"" },
	};
	struct buf buf = BUF_INIT(1000);
	struct json json;

	json_init(&json, &buf);
	for (size_t i = 0; i < COUNT_OF(ROWS); i++) {
		buf_clear(&buf);
		json_str(&json, NULL, ROWS[i].value);
		assert_string_equal(buf_cstr(&buf), ROWS[i].text);
	}
	buf_fini(&buf);
}

static void test_every_byte_stays_valid_json(void **state UNUSED)
{
	char every[256];
	struct buf buf = BUF_INIT(10000);
	struct json json;
	json_t *root;

	for (size_t i = 0; i < sizeof(every); i++)
		every[i] = (char)(unsigned char)i;
	json_init(&json, &buf);
	json_open_list(&json, NULL);
	json_str(&json, NULL, (struct str){ every, sizeof(every) });
	json_close_list(&json);
	root = json_loadb(buf.data, buf.size, JSON_ALLOW_NUL, NULL);
	assert_non_null(root);
	/* Each of the 128 stray bytes became a character of two bytes. */
	assert_int_equal(json_string_length(json_array_get(root, 0)), 384);
	json_decref(root);
	buf_fini(&buf);
}

static void test_full_buffer_is_noticed(void **state UNUSED)
{
	struct buf buf = BUF_INIT(20);
	struct json json;

	json_init(&json, &buf);
	json_open(&json, NULL);
	json_c(&json, "key", "a text that is too long");
	json_close(&json);
	assert_true(buf.is_failed);
	buf_fini(&buf);
}

static void test_error_goes_over_and_back(void **state UNUSED)
{
	static const enum err_code CODES[] = { ERR_INTERNAL, ERR_DISK_LOW, ERR_BUSY, ERR_BATCH_EXISTS };
	struct err sent = ERR_INIT, got = ERR_INIT;
	struct buf buf = BUF_INIT(10000);

	for (size_t i = 0; i < COUNT_OF(CODES); i++) {
		err_set(&sent, CODES[i], "node 'n%zu' \"said\" \xE4\xBD\xA0", i);
		err_hint(&sent, "do %s", "this");
		buf_clear(&buf);
		json_err(&buf, &sent, 1769846400123456, "r-1");
		json_err_read(buf_str(&buf), err_http_status(sent.code), &got);
		assert_int_equal(got.code, sent.code);
		assert_string_equal(got.text, sent.text);
		assert_string_equal(got.hint, sent.hint);
	}
	buf_clear(&buf);
	err_set(&sent, ERR_DISK_LOW, "low");
	json_err(&buf, &sent, 5, "r-1");
	assert_string_equal(buf_cstr(&buf), "{\"error\":\"disk_low\",\"code\":2104,\"message\":\"low\",\"hint\":\"\","
					    "\"retry\":\"other_node\",\"server_time_us\":5,\"request_id\":\"r-1\"}");
	buf_clear(&buf);
	json_err(&buf, &sent, 5, NULL);
	assert_null(strstr(buf_cstr(&buf), "request_id"));
	buf_fini(&buf);
}

static void test_foreign_answers(void **state UNUSED)
{
	static const char *const BODIES[] = {
		"",
		"<html>Bad gateway\x1B[2J</html>",
		"{}",
		"[]",
		"{\"error\":5}",
		"{\"error\":\"\"}",
		"{\"error\":\"busy\",\"error\":\"disk\"}",
		"{\"error\":\"busy\"",
		"{\"error\":\"quantum_flux\",\"message\":\"m\"}",
	};
	struct err err;

	for (size_t i = 0; i < COUNT_OF(BODIES); i++) {
		err = ERR_INIT;
		json_err_read(str_from(BODIES[i]), 502, &err);
		assert_int_equal(err.code, ERR_PEER);
		assert_non_null(strstr(err.text, "HTTP 502"));
		assert_null(strchr(err.text, '\x1B'));
	}
	assert_non_null(strstr(err.text, "quantum_flux"));
	assert_non_null(strstr(err.text, ": m"));
}

static void test_hostile_answers(void **state UNUSED)
{
	struct err err = ERR_INIT;
	struct buf buf = BUF_INIT(100 * KIB);

	/* Neither a message without end nor control characters get through. */
	buf_append_c(&buf, "{\"error\":\"busy\",\"hint\":\"\\u001b[2J\\n\",\"message\":\"");
	for (int i = 0; i < 10000; i++)
		buf_append_c(&buf, "\\n");
	buf_append_c(&buf, "\"}");
	json_err_read(buf_str(&buf), 503, &err);
	assert_int_equal(err.code, ERR_BUSY);
	assert_null(strchr(err.text, '\n'));
	assert_string_equal(err.hint, "\\x1b[2J\\x0a");
	/* Past the cap it is not even looked at. */
	buf_consume(&buf, 2);
	for (int i = 0; i < 5000; i++)
		buf_append_c(&buf, "           ");
	json_err_read(buf_str(&buf), 503, &err);
	assert_int_equal(err.code, ERR_PEER);
	buf_clear(&buf);
	for (int i = 0; i < 60000; i++)
		buf_append_c(&buf, "[");
	json_err_read(buf_str(&buf), 503, &err);
	assert_int_equal(err.code, ERR_PEER);
	buf_fini(&buf);
	json_err_read(STR("{\"error\":\"busy\"}"), 503, &err);
	assert_string_equal(err.text, "busy");
	assert_string_equal(err.hint, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nesting_and_commas),
		cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_text),
		cmocka_unit_test(test_every_byte_stays_valid_json),
		cmocka_unit_test(test_full_buffer_is_noticed),
		cmocka_unit_test(test_error_goes_over_and_back),
		cmocka_unit_test(test_foreign_answers),
		cmocka_unit_test(test_hostile_answers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
