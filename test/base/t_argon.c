#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/argon.h"

#define KEY_A "aa11.a-secret-of-ann"

static void test_argon_texts(void **state)
{
	static const char *const bad[] = {
		"",
		"$",
		"x$argon2id$v=19$m=19456,t=2,p=1$ctW3qJZY5rT/9FEr+AoU6w$ydmyyL4sTyWmkABt0spwyg",
		"$argon2i$v=19$m=19456,t=2,p=1$ctW3qJZY5rT/9FEr+AoU6w$ydmyyL4sTyWmkABt0spwyg",
		"$argon2id$m=19456,t=2,p=1$ctW3qJZY5rT/9FEr+AoU6w$ydmyyL4sTyWmkABt0spwyg",
		"$argon2id$v=19$m=7167,t=2,p=1$ctW3qJZY5rT/9FEr+AoU6w$ydmyyL4sTyWmkABt0spwyg",
		"$argon2id$v=19$m=99999999,t=2,p=1$ctW3qJZY5rT/9FEr+AoU6w$ydmyyL4sTyWmkABt0spwyg",
		"$argon2id$v=19$m=19456,t=0,p=1$ctW3qJZY5rT/9FEr+AoU6w$ydmyyL4sTyWmkABt0spwyg",
		"$argon2id$v=19$m=19456,t=17,p=1$ctW3qJZY5rT/9FEr+AoU6w$ydmyyL4sTyWmkABt0spwyg",
		"$argon2id$v=19$m=19456,t=2,p=5$ctW3qJZY5rT/9FEr+AoU6w$ydmyyL4sTyWmkABt0spwyg",
		"$argon2id$v=19$m=19456,t=2,p=1,x=1$ctW3qJZY5rT/9FEr+AoU6w$ydmyyL4sTyWmkABt0spwyg",
		"$argon2id$v=19$m=19456,t=2$ctW3qJZY5rT/9FEr+AoU6w$ydmyyL4sTyWmkABt0spwyg",
		"$argon2id$v=19$m=19456,t=2,p=1$short$ydmyyL4sTyWmkABt0spwyg",
		"$argon2id$v=19$m=19456,t=2,p=1$ctW3qJZY5rT/9FEr+AoU6w$ydmyy",
		"$argon2id$v=19$m=19456,t=2,p=1$ctW3qJZY5rT/9FEr+AoU6w$ydmyyL4sTyWmkABt0spw yg",
	};
	char hash_a[ARGON_TEXT_SIZE];
	bool fits;

	(void)state;
	assert_int_equal(argon_hash(STR(KEY_A), hash_a, NULL), 0);
	for (size_t i = 0; i < COUNT_OF(bad); i++) {
		if (argon_text_check(str_from(bad[i]), NULL) != -ERR_CONFIG)
			fail_msg("row %zu was taken: %s", i, bad[i]);
	}
	assert_int_equal(argon_text_check(str_from(hash_a), NULL), 0);
	/* Of the reference implementation's own tests, with a cost below ours: "password", "somesalt". */
	assert_int_equal(
		argon_check("$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4",
			    STR("password"), &fits, NULL),
		0);
	assert_true(fits);
	assert_int_equal(argon_check(hash_a, STR(KEY_A "x"), &fits, NULL), 0);
	assert_false(fits);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_argon_texts) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
