#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "wire/prom.h"

static void test_text(void **state)
{
	const struct prom_label labels[] = { { "a", "x" }, { "b", "q\"\\\n\xff" } };
	struct buf text = BUF_INIT(1024);

	(void)state;
	prom_value(&text, "one_total", PROM_COUNTER, "Of one.", UINT64_MAX);
	prom_family(&text, "two", PROM_GAUGE, "Of two.");
	prom_sample(&text, "two", labels, 1, 0);
	prom_sample(&text, "two", labels, 2, 5);
	assert_string_equal(buf_cstr(&text),
			    "# HELP one_total Of one.\n# TYPE one_total counter\none_total 18446744073709551615\n"
			    "# HELP two Of two.\n# TYPE two gauge\ntwo{a=\"x\"} 0\n"
			    "two{a=\"x\",b=\"q\\\"\\\\\\\\x0a\\\\xff\"} 5\n");
	buf_fini(&text);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_text) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
