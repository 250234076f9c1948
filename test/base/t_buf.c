#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/buf.h"

static void test_empty(void **state UNUSED)
{
	struct buf buf = BUF_INIT(100);

	assert_string_equal(buf_cstr(&buf), "");
	assert_int_equal(buf_str(&buf).size, 0);
	buf_consume(&buf, 0);
	assert_true(buf_append(&buf, STR_NONE));
	assert_true(buf_append_c(&buf, NULL));
	assert_string_equal(buf_cstr(&buf), "");
	buf_fini(&buf);
	assert_null(buf.data);
	assert_int_equal(buf.limit, 100);
}

static void test_limit_is_exact_and_failure_sticks(void **state UNUSED)
{
	struct buf buf = BUF_INIT(5);

	assert_true(buf_append_c(&buf, "abc"));
	assert_true(buf_printf(&buf, "%d", 42));
	assert_string_equal(buf_cstr(&buf), "abc42");
	assert_true(buf_append(&buf, STR_NONE));
	assert_false(buf_append_c(&buf, "x"));
	assert_true(buf.is_failed);
	assert_int_equal(buf.size, 5);
	assert_string_equal(buf_cstr(&buf), "");
	buf_consume(&buf, 5);
	assert_false(buf_append_c(&buf, "x"));
	buf_clear(&buf);
	assert_true(buf_append_c(&buf, "x"));
	assert_false(buf_printf(&buf, "%s", "12345"));
	assert_int_equal(buf.size, 1);
	buf_fini(&buf);
	assert_false(buf.is_failed);
}

static void test_nothing_fits_in_nothing(void **state UNUSED)
{
	struct buf buf = BUF_INIT(0);

	assert_true(buf_append(&buf, STR_NONE));
	assert_false(buf_append_c(&buf, "x"));
	buf_fini(&buf);
}

static void test_grows(void **state UNUSED)
{
	struct buf buf = BUF_INIT(SIZE_MAX);
	char line[16];

	for (int i = 0; i < 10000; i++)
		assert_true(buf_printf(&buf, "%d,", i));
	assert_int_equal(buf.size, 48890);
	assert_true(buf.capacity < 2 * 48890 + 256);
	for (int i = 0; i < 10000; i++) {
		size_t size = (size_t)snprintf(line, sizeof(line), "%d,", i);

		assert_memory_equal(buf.data, line, size);
		/* From the front, but not each time: moving is what it costs. */
		if (i < 100)
			buf_consume(&buf, size);
		else
			break;
	}
	assert_memory_equal(buf.data, "100,101,", 8);
	assert_true(buf_reserve(&buf, 1000));
	assert_true(buf.capacity - buf.size >= 1000);
	assert_false(buf_reserve(&buf, SIZE_MAX - 10));
	buf_fini(&buf);
}

static void test_printf_longer_than_the_room(void **state UNUSED)
{
	struct buf buf = BUF_INIT(10000);
	char text[3000];

	memset(text, 'y', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	assert_true(buf_printf(&buf, "%s", text));
	assert_string_equal(buf_cstr(&buf), text);
	buf_fini(&buf);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_empty),
		cmocka_unit_test(test_limit_is_exact_and_failure_sticks),
		cmocka_unit_test(test_nothing_fits_in_nothing),
		cmocka_unit_test(test_grows),
		cmocka_unit_test(test_printf_longer_than_the_room),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
