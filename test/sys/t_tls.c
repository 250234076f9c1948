/* Certificates and keys from files: what is refused, in which words, and what a change of the files does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "sys/tls_world.h"

static struct tls_world world;

static int set_up(void **state)
{
	*state = &world;
	tls_world_init(&world);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	tls_world_fini(&world);
	return 0;
}

static void make_bad_ones(void)
{
	char path[128];
	AUTO(buf_fini) struct buf locked = BUF_INIT(64 * KIB);

	tls_world_make(&world, "expired", false, NULL, -3 * DAY_US, -DAY_US);
	tls_world_make(&world, "early", false, NULL, DAY_US, 3 * DAY_US);
	tls_world_make(&world, "open", false, NULL, -DAY_US, DAY_US);
	assert_int_equal(chmod(tls_world_path(&world, "open.key", path), 0640), 0);
	tls_world_write(&world, "empty.pem", STR(""), 0644);
	tls_world_write(&world, "junk.pem", STR("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
			0644);
	tls_world_write(&world, "junk.key", STR("no key at all\n"), 0600);
	assert_true(buf_append_c(&locked, "-----BEGIN ENCRYPTED PRIVATE KEY-----\n"
					  "MIHsMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAiWRqMmYpiXuwICCAAw\n"
					  "DAYIKoZIhvcNAgkFADAdBglghkgBZQMEASoEEA==\n"
					  "-----END ENCRYPTED PRIVATE KEY-----\n"));
	tls_world_write(&world, "locked.key", buf_str(&locked), 0600);
}

static void test_what_is_refused(void **state)
{
	static const struct {
		const char *certificate, *key, *ca, *words;
	} rows[] = {
		{ "server.pem", "server.key", "absent.pem", "absent.pem" },
		{ "server.pem", "server.key", "empty.pem", "empty.pem" },
		{ "server.pem", "server.key", "junk.pem", "junk.pem" },
		{ "server.pem", "server.key", "server.key", "server.key" },
		{ "absent.pem", "server.key", NULL, "absent.pem" },
		{ "empty.pem", "server.key", NULL, "no certificates" },
		{ "server.pem", "absent.key", NULL, "absent.key" },
		{ "server.pem", "junk.key", NULL, "no private key" },
		{ "server.pem", "locked.key", NULL, "key" },
		{ "server.pem", "open.key", NULL, "others than its owner (mode 640)" },
		{ "server.pem", "expired.key", NULL, "is not that of the first certificate" },
		{ "expired.pem", "expired.key", NULL, "expired at 20" },
		{ "early.pem", "early.key", NULL, "not good before" },
		{ "server.pem", NULL, NULL, "key is missing" },
		{ NULL, "server.key", NULL, "certificate is missing" },
	};
	(void)state;
	make_bad_ones();
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		char paths[3][128];
		struct tls *tls;
		struct err err = ERR_INIT;
		const struct tls_files files = {
			.certificate = rows[i].certificate ? tls_world_path(&world, rows[i].certificate, paths[0]) : "",
			.key = rows[i].key ? tls_world_path(&world, rows[i].key, paths[1]) : "",
			.ca = rows[i].ca ? tls_world_path(&world, rows[i].ca, paths[2]) : "",
		};
		assert_int_equal(tls_new(&files, &tls, &err), -ERR_CONFIG);
		assert_null(tls);
		if (err.code != ERR_CONFIG || !strstr(err.text, rows[i].words))
			fail_msg("row %zu: %s", i, err.text);
	}
}

static void test_a_bundle_of_authorities(void **state)
{
	AUTO(buf_fini) struct buf both = BUF_INIT(64 * KIB);
	(void)state;
	assert_true(buf_append(&both, buf_str(&world.ca)) && buf_append(&both, buf_str(&world.other_ca)));
	tls_world_write(&world, "both.pem", buf_str(&both), 0644);
	struct tls *tls = tls_world_open(&world, NULL, "both.pem", NULL);
	assert_false(tls_is_server(tls));
	assert_true(tls_has_ca(tls));
	assert_true(tls_expiry_wall_us(tls) == INT64_MAX);
	struct tls_context *context = tls_take(tls);
	assert_int_equal(tls_context_ca(context).size, both.size);
	assert_int_equal(tls_context_key(context).size, 0);
	tls_context_drop(&context);
	tls_free(&tls);
}

static void test_reload(void **state)
{
	struct err err = ERR_INIT;
	(void)state;
	tls_world_make(&world, "moving", false, NULL, -DAY_US, 2 * DAY_US);
	struct tls *tls = tls_world_open(&world, "moving", NULL, NULL);
	struct tls_context *old = tls_take(tls);
	int64_t before_us = tls_expiry_wall_us(tls);

	assert_int_equal(tls_reload(tls, false, &err), 0);
	/* Half a renewal: said once, and what was there stays. */
	tls_world_write(&world, "moving.key", STR("half"), 0600);
	assert_int_equal(tls_reload(tls, false, &err), -ERR_CONFIG);
	assert_non_null(strstr(err.text, "stay in use"));
	assert_int_equal(tls_reload(tls, false, &err), 0);
	assert_int_equal(tls_reload(tls, true, &err), -ERR_CONFIG);
	assert_true(tls_expiry_wall_us(tls) == before_us);
	tls_world_make(&world, "moving", false, NULL, -DAY_US, 7 * DAY_US);
	assert_int_equal(tls_reload(tls, false, &err), 1);
	assert_true(tls_expiry_wall_us(tls) > before_us + 4 * DAY_US);
	assert_int_equal(tls_reload(tls, false, &err), 0);
	assert_int_equal(tls_reload(tls, true, &err), 1);
	/* Whoever held the former one holds it still. */
	assert_true(tls_context_key(old).size > 0);
	tls_context_drop(&old);
	tls_free(&tls);
}

static void test_expiry_of_a_text(void **state)
{
	AUTO(buf_fini) struct buf text = BUF_INIT(64 * KIB);
	char path[128];
	(void)state;
	assert_int_equal(fs_read_file(tls_world_path(&world, "server.pem", path), MIB, &text, NULL), 0);
	int64_t left_us = tls_pem_expiry_wall_us(buf_str(&text)) - clock_wall_us();
	assert_true(left_us > 4 * DAY_US && left_us <= 5 * DAY_US);
	assert_true(tls_pem_expiry_wall_us(STR("nothing")) == 0);
	assert_true(tls_pem_expiry_wall_us(STR_NONE) == 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_is_refused),
		cmocka_unit_test(test_a_bundle_of_authorities),
		cmocka_unit_test(test_reload),
		cmocka_unit_test(test_expiry_of_a_text),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
