#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "folder/client.h"

static void test_urls(void **state)
{
	(void)state;
	static const struct {
		const char *text, *want; /* NULL: refused */
	} rows[] = {
		{ "http://127.0.0.1:7080", "http://127.0.0.1:7080" },
		{ "http://[::1]:7080//", "http://[::1]:7080" },
		{ "http://host", "http://host" },
		{ "", NULL },
		{ "http://", NULL },
		{ "127.0.0.1:7080", NULL },
		{ "https://host", "https://host" },
		{ "https://[::1]:7080/", "https://[::1]:7080" },
		{ "https://", NULL },
		{ "https://host/path", NULL },
		{ "ftp://host", NULL },
		{ "HTTPS://host", NULL },
		{ "http://host/path", NULL },
		{ "http://user@host", NULL },
		{ "http://host\r\nX: y", NULL },
		{ "http://host?x", NULL },
	};
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		char url[64];
		struct err err = ERR_INIT;
		int r = client_url(rows[i].text, url, sizeof(url), &err);
		assert_int_equal(r, rows[i].want != NULL ? 0 : -ERR_USAGE);
		if (r == 0)
			assert_string_equal(url, rows[i].want);
	}
}

static void test_keys(void **state)
{
	(void)state;
	static const struct {
		const char *text, *want;
	} rows[] = {
		{ "abc\n", "abc" }, { "abc", "abc" },       { " abc \r\n\n", "abc" },
		{ "", NULL },       { "\n", NULL },         { "a b\n", NULL },
		{ "a\nb\n", NULL }, { "\xc3\xa4\n", NULL }, { "0123456789abcdef\n", NULL }, /* longer than the target */
	};
	char path[] = "/tmp/heng-t-app-XXXXXX";
	int fd = mkstemp(path);
	assert_true(fd >= 0);
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		char key[16];
		struct err err = ERR_INIT;
		assert_int_equal(ftruncate(fd, 0), 0);
		assert_int_equal(pwrite(fd, rows[i].text, strlen(rows[i].text), 0), (ssize_t)strlen(rows[i].text));
		int r = client_key_file(path, key, sizeof(key), &err);
		assert_int_equal(r, rows[i].want != NULL ? 0 : -ERR_USAGE);
		if (r == 0)
			assert_string_equal(key, rows[i].want);
	}
	close(fd);
	unlink(path);
	char key[16];
	struct err err = ERR_INIT;
	assert_int_equal(client_key_file(path, key, sizeof(key), &err), -ERR_USAGE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_urls),
		cmocka_unit_test(test_keys),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
