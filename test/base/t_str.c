#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/str.h"

static void test_compare(void **state UNUSED)
{
	assert_true(str_eq(STR_NONE, STR("")));
	assert_true(str_eq_c(STR_NONE, NULL));
	assert_false(str_eq(STR("a"), STR("ab")));
	assert_false(str_eq(STR("a\0b"), STR("a\0c")));
	assert_true(str_eq_nocase(STR("Content-LENGTH"), STR("content-length")));
	/* '@' and '`' differ by the bit that tells upper from lower case, too. */
	assert_false(str_eq_nocase(STR("@"), STR("`")));
	assert_false(str_eq_nocase(STR("\xC4"), STR("\xE4")));
	assert_true(str_starts(STR("abc"), STR("")));
	assert_true(str_starts(STR_NONE, STR_NONE));
	assert_true(str_starts(STR("abc"), STR("abc")));
	assert_false(str_starts(STR("ab"), STR("abc")));
	assert_true(str_eq_secret(STR("key"), STR("key")));
	assert_false(str_eq_secret(STR("key"), STR("kex")));
	assert_false(str_eq_secret(STR("\x80key"), STR("\x00key")));
	assert_false(str_eq_secret(STR("key"), STR("ke")));
	assert_true(str_eq_secret(STR_NONE, STR("")));
}

static void test_trim(void **state UNUSED)
{
	assert_true(str_eq_c(str_trim(STR(" \t a b\t ")), "a b"));
	assert_int_equal(str_trim(STR(" \t ")).size, 0);
	assert_int_equal(str_trim(STR_NONE).size, 0);
	assert_true(str_eq_c(str_trim(STR("\ra\n")), "\ra\n"));
}

static void test_cut(void **state UNUSED)
{
	static const struct {
		const char *text, *joined; /* the pieces, each behind a '|' */
	} ROWS[] = {
		{ "", "" },      { "a", "|a" },  { ",", "|" },   { "a,,b", "|a||b" },
		{ ",a", "||a" }, { "a,", "|a" }, { ",,", "||" }, { "a,b,c", "|a|b|c" },
	};

	for (size_t i = 0; i < COUNT_OF(ROWS); i++) {
		struct str rest = str_from(ROWS[i].text), piece;
		char joined[64] = "";
		size_t used = 0;

		while (str_cut(&rest, ',', &piece))
			used += (size_t)snprintf(joined + used, sizeof(joined) - used, "|%.*s", STR_ARG(piece));
		assert_string_equal(joined, ROWS[i].joined);
	}
}

static void test_copy(void **state UNUSED)
{
	char target[4] = "zzz";

	assert_true(str_copy(STR("abc"), target, sizeof(target)));
	assert_string_equal(target, "abc");
	assert_false(str_copy(STR("abcd"), target, sizeof(target)));
	assert_string_equal(target, "");
	assert_false(str_copy(STR("a\0b"), target, sizeof(target)));
	assert_string_equal(target, "");
	assert_true(str_copy(STR_NONE, target, 1));
	assert_false(str_copy(STR_NONE, target, 0));
}

static void test_numbers(void **state UNUSED)
{
	static const char *const BAD[] = { "",
					   " 1",
					   "1 ",
					   "+1",
					   "-",
					   "--1",
					   "0x1",
					   "1a",
					   "18446744073709551616",
					   "99999999999999999999999",
					   "1.0",
					   "\xD9\xA1" };
	uint64_t value = 77;
	int64_t with_sign = 77;

	for (size_t i = 0; i < COUNT_OF(BAD); i++) {
		assert_false(str_to_u64(str_from(BAD[i]), &value));
		assert_false(str_to_i64(str_from(BAD[i]), &with_sign));
	}
	assert_int_equal(value, 77);
	assert_int_equal(with_sign, 77);
	assert_false(str_to_u64(STR("-1"), &value));
	assert_false(str_to_u64(STR("1\0"), &value));
	assert_true(str_to_u64(STR("18446744073709551615"), &value) && value == UINT64_MAX);
	assert_true(str_to_u64(STR("0"), &value) && value == 0);
	assert_true(str_to_u64(STR("007"), &value) && value == 7);
	assert_true(str_to_i64(STR("-9223372036854775808"), &with_sign) && with_sign == INT64_MIN);
	assert_true(str_to_i64(STR("9223372036854775807"), &with_sign) && with_sign == INT64_MAX);
	assert_false(str_to_i64(STR("9223372036854775808"), &with_sign));
	assert_false(str_to_i64(STR("-9223372036854775809"), &with_sign));
	assert_true(str_to_i64(STR("-0"), &with_sign) && with_sign == 0);
	assert_true(str_to_i64(STR("-12"), &with_sign) && with_sign == -12);
}

static void test_octal(void **state UNUSED)
{
	uint32_t value = 0;

	assert_true(str_to_octal(STR("0755"), &value) && value == 0755);
	assert_true(str_to_octal(STR("37777777777"), &value) && value == UINT32_MAX);
	assert_false(str_to_octal(STR("40000000000"), &value));
	assert_false(str_to_octal(STR("8"), &value));
	assert_false(str_to_octal(STR(""), &value));
	assert_false(str_to_octal(STR("-7"), &value));
}

static void test_size(void **state UNUSED)
{
	static const struct {
		const char *text;
		uint64_t bytes;
	} GOOD[] = {
		{ "0", 0 },
		{ "1048576", 1048576 },
		{ "817B", 817 },
		{ "64k", 65536 },
		{ "64K", 65536 },
		{ "64KiB", 65536 },
		{ "64kB", 65536 },
		{ "8MiB", 8388608 },
		{ "8M", 8388608 },
		{ "8MB", 8388608 },
		{ "2 GiB", (uint64_t)2 << 30 },
		{ "3T", (uint64_t)3 << 40 },
		{ "16777215TiB", (uint64_t)16777215 << 40 },
		{ "18446744073709551615", UINT64_MAX },
	};
	static const char *const BAD[] = { "",
					   "k",
					   "MiB",
					   "-1",
					   "1.5M",
					   "8Mi",
					   "8 ",
					   " 8",
					   "8 MiB ",
					   "8MiBB",
					   "8BB",
					   "8P",
					   "8m",
					   "8 M B",
					   "8iB",
					   "0x8",
					   "16777216TiB",
					   "18446744073709551615k",
					   "18446744073709551616" };
	uint64_t bytes;

	for (size_t i = 0; i < COUNT_OF(GOOD); i++) {
		bytes = 1;
		if (!str_to_size(str_from(GOOD[i].text), &bytes) || bytes != GOOD[i].bytes)
			fail_msg("'%s' reads as %llu", GOOD[i].text, (unsigned long long)bytes);
	}
	for (size_t i = 0; i < COUNT_OF(BAD); i++) {
		if (str_to_size(str_from(BAD[i]), &bytes))
			fail_msg("'%s' is taken for %llu", BAD[i], (unsigned long long)bytes);
	}
}

static void test_duration(void **state UNUSED)
{
	static const struct {
		const char *text;
		int64_t us;
	} GOOD[] = {
		{ "0s", 0 },
		{ "10us", 10 },
		{ "250ms", 250000 },
		{ "3s", 3 * SEC_US },
		{ "3 s", 3 * SEC_US },
		{ "5m", 300 * SEC_US },
		{ "2h", 7200 * SEC_US },
		{ "7d", 7 * 86400 * SEC_US },
		{ "9223372036854775807us", INT64_MAX },
		{ "106751991d", 106751991 * (86400 * SEC_US) },
	};
	static const char *const BAD[] = { "",           "3",
					   "s",          "-3s",
					   "3.5s",       "3S",
					   "3sec",       "3s ",
					   "1h30m",      "9223372036854775808us",
					   "106751992d", "18446744073709551615d" };
	int64_t us;

	for (size_t i = 0; i < COUNT_OF(GOOD); i++) {
		us = 1;
		if (!str_to_duration(str_from(GOOD[i].text), &us) || us != GOOD[i].us)
			fail_msg("'%s' reads as %lld", GOOD[i].text, (long long)us);
	}
	for (size_t i = 0; i < COUNT_OF(BAD); i++) {
		if (str_to_duration(str_from(BAD[i]), &us))
			fail_msg("'%s' is taken for %lld", BAD[i], (long long)us);
	}
}

static void test_hex(void **state UNUSED)
{
	unsigned char bytes[3] = { 9, 9, 9 };
	char text[7];

	hex_encode("\x00\x7F\xFF", 3, text);
	assert_string_equal(text, "007fff");
	hex_encode("", 0, text);
	assert_string_equal(text, "");
	assert_true(hex_decode(STR("00fFA0"), bytes, 3));
	assert_memory_equal(bytes, "\x00\xFF\xA0", 3);
	assert_true(hex_decode(STR_NONE, bytes, 0));
	assert_false(hex_decode(STR("00ff"), bytes, 3));
	assert_false(hex_decode(STR("00ffa"), bytes, 2));
	assert_false(hex_decode(STR("00ffa00"), bytes, 3));
	assert_false(hex_decode(STR("00ffag"), bytes, 3));
	assert_false(hex_decode(STR("0x00ff"), bytes, 3));
}

static void test_base64url(void **state UNUSED)
{
	/* RFC 4648, section 10, and one with the two letters that differ from plain base 64. */
	static const struct {
		struct str plain;
		const char *text;
	} ROWS[] = {
		{ STR(""), "" },
		{ STR("f"), "Zg" },
		{ STR("fo"), "Zm8" },
		{ STR("foo"), "Zm9v" },
		{ STR("foob"), "Zm9vYg" },
		{ STR("fooba"), "Zm9vYmE" },
		{ STR("foobar"), "Zm9vYmFy" },
		{ STR("\xFB\xFF\xFE"), "-__-" },
	};
	static const char *const BAD[] = { "Z", "Zg==", "Zm9vY", "Z+8", "Z/8", "Zm8\n", "Zh", "Zm9" };
	char text[16], plain[16];
	size_t size;

	for (size_t i = 0; i < COUNT_OF(ROWS); i++) {
		size_t text_size = strlen(ROWS[i].text);

		assert_int_equal(base64url_encode(ROWS[i].plain.data, ROWS[i].plain.size, text, text_size + 1),
				 text_size);
		assert_string_equal(text, ROWS[i].text);
		assert_true(base64url_decode(str_from(text), plain, ROWS[i].plain.size, &size));
		assert_true(str_eq((struct str){ plain, size }, ROWS[i].plain));
		if (text_size > 0) {
			assert_int_equal(base64url_encode(ROWS[i].plain.data, ROWS[i].plain.size, text, text_size), 0);
			assert_string_equal(text, "");
			assert_false(base64url_decode(str_from(ROWS[i].text), plain, ROWS[i].plain.size - 1, &size));
		}
	}
	for (size_t i = 0; i < COUNT_OF(BAD); i++) {
		if (base64url_decode(str_from(BAD[i]), plain, sizeof(plain), &size))
			fail_msg("'%s' is taken for base64url", BAD[i]);
	}
}

static void test_percent(void **state UNUSED)
{
	static const char *const BAD[] = { "%", "a%4", "%g0", "%0g", "%%41", "%-1" };
	char text[64], every[256], plain[256], encoded[3 * 256 + 1];
	size_t size;

	assert_int_equal(percent_encode(STR("a/b c%~\xE4\0"), true, text, sizeof(text)), 17);
	assert_string_equal(text, "a/b%20c%25~%E4%00");
	percent_encode(STR("a/b"), false, text, sizeof(text));
	assert_string_equal(text, "a%2Fb");
	assert_int_equal(percent_encode(STR("a/b"), false, text, 6), 5);
	assert_int_equal(percent_encode(STR("a/b"), false, text, 5), 0);
	assert_string_equal(text, "");
	assert_int_equal(percent_encode(STR_NONE, false, text, 1), 0);
	for (size_t i = 0; i < sizeof(every); i++)
		every[i] = (char)(unsigned char)i;
	size = percent_encode((struct str){ every, sizeof(every) }, false, encoded, sizeof(encoded));
	assert_true(percent_decode((struct str){ encoded, size }, plain, sizeof(plain), &size));
	assert_int_equal(size, sizeof(every));
	assert_memory_equal(plain, every, sizeof(every));
	/* In place; '+' is no blank outside forms. */
	size = (size_t)snprintf(text, sizeof(text), "%%41+%%e4%%2f");
	assert_true(percent_decode((struct str){ text, size }, text, sizeof(text), &size));
	assert_true(str_eq((struct str){ text, size }, STR("A+\xE4/")));
	assert_false(percent_decode(STR("abc"), text, 2, &size));
	assert_true(percent_decode(STR_NONE, text, 0, &size) && size == 0);
	for (size_t i = 0; i < COUNT_OF(BAD); i++) {
		if (percent_decode(str_from(BAD[i]), text, sizeof(text), &size))
			fail_msg("'%s' is taken for percent-encoding", BAD[i]);
	}
}

static void test_utf8(void **state UNUSED)
{
	static const struct str GOOD[] = {
		STR(""),
		STR("a\0b"),
		STR("\x7F"),
		STR("\xC2\x80"),
		STR("\xDF\xBF"),
		STR("\xE0\xA0\x80"),
		STR("\xED\x9F\xBF"),
		STR("\xEE\x80\x80"),
		STR("\xEF\xBF\xBF"),
		STR("\xF0\x90\x80\x80"),
		STR("\xF4\x8F\xBF\xBF"),
		STR("\xE4\xBD\xA0\xE5\xA5\xBD"),
	};
	static const struct str BAD[] = {
		STR("\x80"),
		STR("\xBF"),
		STR("\xC0\x80"), /* overlong NUL */
		STR("\xC1\xBF"),
		STR("\xC2"),
		STR("\xC2\x41"),
		STR("\xE0\x9F\xBF"), /* overlong */
		STR("\xE4\xBD"),
		STR("\xE4\xBD\x41"),
		STR("\xED\xA0\x80"), /* surrogates */
		STR("\xED\xBF\xBF"),
		STR("\xF0\x8F\xBF\xBF"), /* overlong */
		STR("\xF0\x9F\x98"),
		STR("\xF4\x90\x80\x80"), /* past U+10FFFF */
		STR("\xF5\x80\x80\x80"),
		STR("\xFE"),
		STR("\xFF"),
		STR("ok\xFF"),
	};

	for (size_t i = 0; i < COUNT_OF(GOOD); i++) {
		if (!utf8_is_valid(GOOD[i]))
			fail_msg("good row %zu is refused", i);
	}
	for (size_t i = 0; i < COUNT_OF(BAD); i++) {
		if (utf8_is_valid(BAD[i]))
			fail_msg("bad row %zu is taken", i);
	}
	assert_int_equal(utf8_char_size(STR_NONE), 0);
	assert_int_equal(utf8_char_size(STR("\xF0\x9F\x98\x80x")), 4);
}

static void test_display(void **state UNUSED)
{
	char text[64], small[8];

	assert_string_equal(str_display(STR("a\xE4\xBD\xA0\n\x1B\x7F\xFF"), text, sizeof(text)),
			    "a\xE4\xBD\xA0\\x0a\\x1b\\x7f\\xff");
	/* U+009B starts a terminal command as ESC [ does. */
	assert_string_equal(str_display(STR("\xC2\x9B\xC2\xA0"), text, sizeof(text)), "\\xc2\\x9b\xC2\xA0");
	assert_string_equal(str_display(STR("abcdef\xE4\xBD\xA0"), small, sizeof(small)), "abcdef");
	assert_string_equal(str_display(STR("abcd\n"), small, sizeof(small)), "abcd");
	assert_string_equal(str_display(STR("abcdefgh"), small, sizeof(small)), "abcdefg");
	assert_string_equal(str_display(STR_NONE, small, 1), "");
}

static void test_size_display(void **state UNUSED)
{
	static const struct {
		uint64_t bytes;
		const char *text;
	} ROWS[] = {
		{ 0, "0 B" },
		{ 817, "817 B" },
		{ 1023, "1023 B" },
		{ 1024, "1.0 KiB" },
		{ 12897485, "12.3 MiB" },
		{ MIB - 1, "1023.9 KiB" },
		{ MIB, "1.0 MiB" },
		{ (uint64_t)5 << 40, "5.0 TiB" },
		{ UINT64_MAX, "15.9 EiB" },
	};
	char text[16];

	for (size_t i = 0; i < COUNT_OF(ROWS); i++)
		assert_string_equal(size_display(ROWS[i].bytes, text, sizeof(text)), ROWS[i].text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_compare),   cmocka_unit_test(test_trim),         cmocka_unit_test(test_cut),
		cmocka_unit_test(test_copy),      cmocka_unit_test(test_numbers),      cmocka_unit_test(test_octal),
		cmocka_unit_test(test_size),      cmocka_unit_test(test_duration),     cmocka_unit_test(test_hex),
		cmocka_unit_test(test_base64url), cmocka_unit_test(test_percent),      cmocka_unit_test(test_utf8),
		cmocka_unit_test(test_display),   cmocka_unit_test(test_size_display),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
