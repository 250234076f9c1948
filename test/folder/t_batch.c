#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "folder/batch.h"

static void test_names(void **state)
{
	(void)state;
	char most[201];
	memset(most, 'n', sizeof(most));
	const struct {
		struct str name;
		const char *rule; /* NULL: good */
	} rows[] = {
		{ STR("b"), NULL },
		{ { most, 200 }, NULL },
		{ STR(" blank, 账 and \xff"), NULL },
		{ STR("a.b."), NULL },
		{ STR(""), "is empty" },
		{ { most, 201 }, "has 201 bytes, and 200 are the most" },
		{ STR("."), "begins with a dot" },
		{ STR(".heng"), "begins with a dot" },
		{ STR("a/b"), "has a '/' in it" },
		{ STR("a\nb"), "has a control character in it" },
		{ { "a\0b", 3 }, "has a control character in it" },
		{ STR("a\x7f"), "has a control character in it" },
	};
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct err err = ERR_INIT;
		int r = batch_check(rows[i].name, &err);
		assert_int_equal(r, rows[i].rule != NULL ? -ERR_BATCH_NAME : 0);
		if (rows[i].rule != NULL)
			assert_non_null(strstr(err.text, rows[i].rule));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_names) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
