#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>

#include "base/err.h"
#include "base/str.h"

static void test_null_err_still_answers_the_code(void **state UNUSED)
{
	assert_int_equal(err_set(NULL, ERR_DISK, "x"), -ERR_DISK);
	assert_int_equal(err_sys(NULL, ERR_DISK, EIO, "x"), -ERR_DISK);
	assert_int_equal(err_wrap(NULL, "x"), -ERR_INTERNAL);
	err_hint(NULL, "x");
}

static void test_set_replaces_everything(void **state UNUSED)
{
	struct err err = ERR_INIT;

	assert_int_equal(err_sys(&err, ERR_DISK, ENOSPC, "cannot write '%s'", "f"), -ERR_DISK);
	assert_int_equal(err.sys_errno, ENOSPC);
	assert_string_equal(err.text, "cannot write 'f': No space left on device");
	err_hint(&err, "free %d bytes", 7);
	assert_string_equal(err.hint, "free 7 bytes");
	assert_int_equal(err_set(&err, ERR_BUSY, "later"), -ERR_BUSY);
	assert_string_equal(err.text, "later");
	assert_string_equal(err.hint, "");
	assert_int_equal(err.sys_errno, 0);
}

static void test_own_text_as_argument(void **state UNUSED)
{
	struct err err = ERR_INIT;

	err_set(&err, ERR_DISK, "inner");
	err_set(&err, ERR_BUSY, "outer (%s)", err.text);
	assert_string_equal(err.text, "outer (inner)");
}

static void test_wrap_keeps_code_and_hint(void **state UNUSED)
{
	struct err err = ERR_INIT;

	err_sys(&err, ERR_SOURCE, ENOENT, "cannot open 'a'");
	err_hint(&err, "look");
	assert_int_equal(err_wrap(&err, "push of '%s'", "q3"), -ERR_SOURCE);
	assert_string_equal(err.text, "push of 'q3': cannot open 'a': No such file or directory");
	assert_string_equal(err.hint, "look");
	assert_int_equal(err.sys_errno, ENOENT);
	/* Wrapping what nobody filled is a fault of ours, not a success. */
	err = ERR_INIT;
	assert_int_equal(err_wrap(&err, "x"), -ERR_INTERNAL);
}

static void test_long_text_is_cut_at_a_character(void **state UNUSED)
{
	struct err err = ERR_INIT;
	char long_text[2000];

	for (size_t shift = 0; shift < 3; shift++) {
		memset(long_text, 'a', shift);
		for (size_t i = shift; i + 3 < sizeof(long_text); i += 3)
			memcpy(long_text + i, "\xE4\xBD\xA0\0", 4);
		err_set(&err, ERR_DISK, "%s", long_text);
		assert_true(strlen(err.text) > sizeof(err.text) - 8);
		assert_true(utf8_is_valid(str_from(err.text)));
		assert_string_equal(err.text + strlen(err.text) - 3, "...");
		err_hint(&err, "%s", long_text);
		assert_true(utf8_is_valid(str_from(err.hint)));
	}
	/* The system's word outlives a long message, the cause a long context. */
	err_sys(&err, ERR_DISK, ENOSPC, "%s", long_text);
	assert_non_null(strstr(err.text, "...: No space left on device"));
	err_set(&err, ERR_DISK, "the cause");
	err_wrap(&err, "%s", long_text);
	assert_non_null(strstr(err.text, "...: the cause"));
	for (int i = 0; i < 20; i++)
		err_wrap(&err, "context %d of a long way up through many floors", i);
	assert_true(strlen(err.text) < sizeof(err.text));
	assert_non_null(strstr(err.text, "context 19"));
}

static void test_exact_fit_is_not_cut(void **state UNUSED)
{
	struct err err = ERR_INIT;
	char text[sizeof(err.text)];

	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	err_set(&err, ERR_DISK, "%s", text);
	assert_string_equal(err.text, text);
}

static void test_list_is_sound(void **state UNUSED)
{
	static const struct {
		enum err_code code;
		const char *word;
	} ROWS[] = {
#define ERR(name, number, retry, http, word) { ERR_##name, word },
#include "base/err_list.h"
#undef ERR
	};

	for (size_t i = 0; i < COUNT_OF(ROWS); i++) {
		assert_string_equal(err_word(ROWS[i].code), ROWS[i].word);
		assert_int_equal(err_from_word(ROWS[i].word, strlen(ROWS[i].word)), ROWS[i].code);
		assert_in_range(err_http_status(ROWS[i].code), 400, 599);
		for (size_t j = 0; j < i; j++) {
			assert_int_not_equal(ROWS[i].code, ROWS[j].code);
			assert_string_not_equal(ROWS[i].word, ROWS[j].word);
		}
	}
	assert_int_equal(err_retry(ERR_DISK_LOW), ERR_RETRY_OTHER);
	assert_int_equal(err_retry(ERR_BUSY), ERR_RETRY_SAME);
	assert_int_equal(err_retry(ERR_FORBIDDEN), ERR_RETRY_NO);
	assert_int_equal(err_http_status(ERR_NO_SPACE), 507);
}

static void test_unknown_reads_as_internal(void **state UNUSED)
{
	assert_string_equal(err_word((enum err_code)9999), "internal");
	assert_int_equal(err_http_status((enum err_code)9999), 500);
	assert_int_equal(err_from_word("bus", 3), ERR_INTERNAL);
	assert_int_equal(err_from_word("busyx", 4), ERR_BUSY);
	assert_int_equal(err_from_word("", 0), ERR_INTERNAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_null_err_still_answers_the_code),
		cmocka_unit_test(test_set_replaces_everything),
		cmocka_unit_test(test_own_text_as_argument),
		cmocka_unit_test(test_wrap_keeps_code_and_hint),
		cmocka_unit_test(test_long_text_is_cut_at_a_character),
		cmocka_unit_test(test_exact_fit_is_not_cut),
		cmocka_unit_test(test_list_is_sound),
		cmocka_unit_test(test_unknown_reads_as_internal),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
