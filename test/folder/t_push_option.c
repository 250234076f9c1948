#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "folder/push_option.h"

static uint64_t read_back(const struct push_options *options, const char *name)
{
	const struct {
		const char *name;
		uint64_t value;
	} rows[] = {
		{ "name", options->batch.size },
		{ "resume", options->resume != NULL },
		{ "parallel", options->parallel },
		{ "priority", (uint64_t)options->priority },
		{ "give-up", (uint64_t)(options->give_up_us / SEC_US) },
		{ "digest", options->digest },
		{ "encrypt", options->encrypt != NULL },
		{ "cipher", options->cipher },
		{ "links", options->links },
		{ "network", options->network },
		{ "dry-run", options->is_dry_run },
		{ "chunk-size", options->chunk_bytes },
		{ "limit-rate", options->limit_rate_bytes },
		{ "state-dir", options->state_dir != NULL },
	};
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		if (strcmp(rows[i].name, name) == 0)
			return rows[i].value;
	}
	fail_msg("no option %s", name);
	return 0;
}

static void test_values(void **state)
{
	(void)state;
	static const struct {
		const char *name, *value;
		int64_t want; /* -1: refused */
	} rows[] = {
		{ "name", "", -1 },
		{ "name", "x", 1 },
		{ "resume", "01ARZ3NDEKTSV4RRFFQ69G5FAV", 1 },
		{ "resume", "01ARZ3NDEKTSV4RRFFQ69G5FA", -1 },
		{ "resume", "../../../../../etc/passwd1", -1 },
		{ "resume", "", -1 },
		{ "network", "lan", PUSH_NETWORK_LAN },
		{ "network", "wan", PUSH_NETWORK_WAN },
		{ "network", "auto", PUSH_NETWORK_AUTO },
		{ "network", "", -1 },
		{ "network", "LAN", -1 },
		{ "parallel", "0", -1 },
		{ "parallel", "1", 1 },
		{ "parallel", "64", 64 },
		{ "parallel", "65", -1 },
		{ "parallel", "", -1 },
		{ "parallel", "8x", -1 },
		{ "parallel", "-1", -1 },
		{ "parallel", "18446744073709551617", -1 },
		{ "priority", "0", 0 },
		{ "priority", "1000", 1000 },
		{ "priority", "1001", -1 },
		{ "give-up", "0", -1 },
		{ "give-up", "1", 1 },
		{ "give-up", "604800", 604800 },
		{ "give-up", "604801", -1 },
		{ "digest", "md5", DIGEST_MD5 },
		{ "digest", "sha256", DIGEST_SHA256 },
		{ "digest", "sm3", DIGEST_SM3 },
		{ "digest", "sha", -1 },
		{ "digest", "", -1 },
		{ "encrypt", "", -1 },
		{ "encrypt", "/k", 1 },
		{ "cipher", "aes", SEAL_AES },
		{ "cipher", "sm4", SEAL_SM4 },
		{ "cipher", "", -1 },
		{ "cipher", "des", -1 },
		{ "links", "keep", WALK_LINKS_KEEP },
		{ "links", "skip", WALK_LINKS_SKIP },
		{ "links", "follow", WALK_LINKS_FOLLOW },
		{ "links", "refuse", -1 },
		{ "dry-run", "", 1 },
		{ "dry-run", "yes", 1 },
		{ "dry-run", "1", 1 },
		{ "dry-run", "no", 0 },
		{ "dry-run", "0", 0 },
		{ "dry-run", "perhaps", -1 },
		{ "chunk-size", "64KiB", 64 << 10 },
		{ "chunk-size", "65535", -1 },
		{ "chunk-size", "64MiB", 64 << 20 },
		{ "chunk-size", "65MiB", -1 },
		{ "state-dir", "", -1 },
		{ "state-dir", "/x", 1 },
		{ "limit-rate", "0", 0 },
		{ "limit-rate", "1", -1 },
		{ "limit-rate", "4KiB", 4096 },
		{ "limit-rate", "2TiB", -1 },
	};
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct push_options options = { .parallel = 7 }, before = options;
		struct err err = ERR_INIT;
		assert_true(push_option_exists(rows[i].name));
		int result = push_option_set(&options, rows[i].name, "--it", rows[i].value, &err);
		assert_int_equal(result, rows[i].want < 0 ? -ERR_USAGE : 0);
		if (rows[i].want >= 0) {
			assert_int_equal(read_back(&options, rows[i].name), rows[i].want);
			continue;
		}
		/* Refused by the user's own word for it, and nothing was changed. */
		assert_non_null(strstr(err.text, "--it"));
		/* Nor does the list of what is allowed name a word of no letters. */
		assert_null(strstr(err.text, ", ,"));
		assert_true(err.text[strlen(err.text) - 1] != ' ');
		assert_memory_equal(&options, &before, sizeof(options));
	}
}

static void test_no_such_option(void **state)
{
	(void)state;
	struct push_options options = { .parallel = 7 };
	struct err err = ERR_INIT;
	assert_false(push_option_exists("url"));
	assert_false(push_option_exists(""));
	assert_int_equal(push_option_set(&options, "url", "'url'", "x", &err), -ERR_USAGE);
	assert_non_null(strstr(err.text, "'url' is no option of a push"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_values),
		cmocka_unit_test(test_no_such_option),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
