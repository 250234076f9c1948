#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "wire/xml.h"

static void finding(void **state UNUSED)
{
	static const struct {
		const char *xml, *text; /* text NULL: nothing is found */
	} rows[] = {
		{ "", NULL },
		{ "<Key>a</Key>", "a" },
		{ "<?xml version=\"1.0\"?>\n<R xmlns=\"u\"><Key >a</Key\n></R>", "a" },
		{ "<Keys>b</Keys><Key>a</Key>", "a" },
		{ "<Key/>", "" },
		{ "<Key></Key>", "" },
		{ "<Key id=\"1\">a b</Key>", "a b" },
		{ "<Key>&amp;&lt;&gt;&quot;&apos;&#65;&#x4f60;&#233;</Key>", "&<>\"'A\xe4\xbd\xa0\xc3\xa9" },
		{ "<Key>a", NULL },
		{ "<Key", NULL },
		{ "<Key>a</Keys>", NULL },
		{ "<Key><b>a</b></Key>", NULL },
		{ "<Key>&unknown;</Key>", NULL },
		{ "<Key>&amp</Key>", NULL },
		{ "<Key>&#0;</Key>", NULL },
		{ "<Key>&#xD800;</Key>", NULL },
		{ "<Key>&#x110000;</Key>", NULL },
		{ "<Key>&#;</Key>", NULL },
		{ "<Key>1234567890123456789012345678901234567890</Key>", NULL }, /* no room */
	};
	char target[40];

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		bool is_found = xml_find(str_from(rows[i].xml), "Key", target, sizeof(target));
		if (is_found != (rows[i].text != NULL) || strcmp(target, rows[i].text ? rows[i].text : "") != 0)
			fail_msg("%s: %d '%s'", rows[i].xml, is_found, target);
	}
}

static void one_after_the_other(void **state UNUSED)
{
	struct str rest = STR("<L><C><Key>1</Key></C><C/><C><Key>3</Key></C></L>"), inner;
	size_t count = 0;
	char target[8];

	for (; xml_cut(&rest, "C", &inner); count++)
		assert_int_equal(xml_find(inner, "Key", target, sizeof(target)), count != 1);
	assert_int_equal(count, 3);
	assert_string_equal(target, "3");
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(finding), cmocka_unit_test(one_after_the_other) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
