#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/err.h"
#include "folder/users.h"

#define NOW_US  (1000 * SEC_US)
#define WALL_US (1800000000 * SEC_US)
#define MOMENT  "2027-01-15T08:00:00Z" /* WALL_US */
#define KEY_A   "aa11.a-secret-of-ann"
#define KEY_OLD "a key from before keys had ids"

static char hash_a[ARGON_TEXT_SIZE], sha_old[DIGEST_HEX_SIZE];

static int set_up(void **state)
{
	(void)state;
	assert_int_equal(argon_hash(STR(KEY_A), hash_a, NULL), 0);
	digest_of(DIGEST_SHA256, KEY_OLD, sizeof(KEY_OLD) - 1, sha_old);
	return 0;
}

static void put(struct users *users, const struct sched_user *items, size_t count)
{
	struct conf_list conf = { .items = (void *)(uintptr_t)items, .count = count };
	struct users_list *list;
	struct err err = ERR_INIT;

	if (users_list_new(&conf, &list, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(users_put(users, &list), count);
}

static void test_expiry_texts(void **state)
{
	static const struct {
		const char *text;
		int64_t wall_s; /* -1: refused */
	} rows[] = {
		{ "", 0 },
		{ "2027-01-15", 1800057600 },
		{ MOMENT, 1800000000 },
		{ "2028-02-29", 1835481600 },
		{ "2027-02-29", -1 },
		{ "2027-1-15", -1 },
		{ "2027-01-15T08:00:00", -1 },
		{ "2027-01-15T08:00:00+01:00", -1 },
		{ "2027-01-15T24:00:00Z", -1 },
		{ "2027-01-15 ", -1 },
		{ "never", -1 },
		{ "1969-12-31", -1 },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		int64_t wall_us = 0;
		const bool is_good = users_expiry(str_from(rows[i].text), &wall_us);

		if (is_good != (rows[i].wall_s >= 0) || (is_good && wall_us != rows[i].wall_s * SEC_US))
			fail_msg("'%s': %d, %lld", rows[i].text, is_good, (long long)wall_us);
	}
}

static void test_lists_that_are_wrong(void **state)
{
	const struct {
		struct sched_user users[2];
		size_t count;
		const char *why;
	} rows[] = {
		{ .count = 0, .why = "there are no users" },
		{ { { .name = "a" } }, 1, "has no key" },
		{ { { .name = "", .key_sha256 = sha_old } }, 1, "is no user name" },
		{ { { .name = "a\n", .key_sha256 = sha_old } }, 1, "is no user name" },
		{ { { .name = "a", .key_sha256 = "abc" } }, 1, "not a SHA-256" },
		{ { { .name = "a", .key_argon2 = hash_a } }, 1, "go together" },
		{ { { .name = "a", .key_sha256 = sha_old, .key_id = "x" } }, 1, "go together" },
		{ { { .name = "a", .key_argon2 = hash_a, .key_id = "a.b" } }, 1, "go together" },
		{ { { .name = "a", .key_argon2 = "$argon2id$", .key_id = "x" } }, 1, "key_argon2" },
		{ { { .name = "a", .key_sha256 = sha_old, .expires = "soon" } }, 1, "expires" },
		{ { { .name = "a", .cert_sha256 = "AA" } }, 1, "cert_sha256" },
		{ { { .name = "a", .cert_subject = "CN=a" }, { .name = "b", .cert_subject = "CN=a" } },
		  2,
		  "the same certificate" },
		{ { { .name = "a", .key_sha256 = sha_old }, { .name = "a", .key_argon2 = hash_a, .key_id = "x" } },
		  2,
		  "twice" },
		{ { { .name = "a", .key_sha256 = sha_old }, { .name = "b", .key_sha256 = sha_old } },
		  2,
		  "the same key" },
		{ { { .name = "a", .key_argon2 = hash_a, .key_id = "x" },
		    { .name = "b", .key_argon2 = hash_a, .key_id = "x" } },
		  2,
		  "the same key" },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct conf_list conf = { .items = (void *)(uintptr_t)rows[i].users, .count = rows[i].count };
		struct users_list *list;
		struct err err = ERR_INIT;

		assert_int_equal(users_list_new(&conf, &list, &err), -ERR_CONFIG);
		assert_null(list);
		if (!strstr(err.text, rows[i].why))
			fail_msg("row %zu: '%s' does not say '%s'", i, err.text, rows[i].why);
	}
}

static int find(struct users *users, const char *key, int64_t mono_us, int64_t wall_us, struct sched_account *account,
		struct err *err)
{
	memset(account, 0, sizeof(*account));
	*err = ERR_INIT;
	return users_find(users, str_from(key), mono_us, wall_us, account, err);
}

static void test_keys(void **state)
{
	const struct sched_user items[] = {
		{ .name = "ann", .key_id = "aa11", .key_argon2 = hash_a, .role = ROLE_AUDITOR, .quota_bytes = 7 },
		{ .name = "old", .key_sha256 = sha_old, .role = ROLE_OPERATOR, .quota_entries = 8 },
	};
	struct users *users = users_new();
	struct sched_account account;
	struct err err;
	char huge[USERS_KEY_MAX + 2];

	(void)state;
	memset(huge, 'a', sizeof(huge));
	huge[sizeof(huge) - 1] = '\0';
	assert_int_equal(find(users, KEY_A, NOW_US, WALL_US, &account, &err), -ERR_UNAUTHENTICATED);
	put(users, items, COUNT_OF(items));
	assert_int_equal(find(users, KEY_OLD, NOW_US, WALL_US, &account, &err), 0);
	assert_string_equal(account.name, "old");
	assert_int_equal(account.role, ROLE_OPERATOR);
	assert_int_equal(account.quota_entries, 8);
	static const char *const nobodys[] = { "", ".", "aa11", "aa1.x", "bb22.a-secret-of-ann", KEY_OLD " ", "x" };

	for (size_t i = 0; i < COUNT_OF(nobodys); i++)
		assert_int_equal(find(users, nobodys[i], NOW_US, WALL_US, &account, &err), -ERR_UNAUTHENTICATED);
	assert_int_equal(find(users, huge, NOW_US, WALL_US, &account, &err), -ERR_UNAUTHENTICATED);

	/* The id says which hash to try; a wrong secret is remembered as little as it is known. */
	for (int i = 0; i < 2; i++) {
		assert_int_equal(find(users, "aa11.wrong", NOW_US, WALL_US, &account, &err), USERS_UNPROVEN);
		assert_int_equal(users_prove(users, STR("aa11.wrong"), NOW_US, WALL_US, &account, &err),
				 -ERR_UNAUTHENTICATED);
	}
	assert_int_equal(find(users, KEY_A, NOW_US, WALL_US, &account, &err), USERS_UNPROVEN);
	assert_int_equal(users_prove(users, STR(KEY_A), NOW_US, WALL_US, &account, &err), 0);
	assert_string_equal(account.name, "ann");
	/* From then on without the hash, for so long. */
	assert_int_equal(find(users, KEY_A, NOW_US + USERS_REMEMBERED_US - 1, WALL_US, &account, &err), 0);
	assert_string_equal(account.name, "ann");
	assert_int_equal(account.quota_bytes, 7);
	assert_int_equal(find(users, "aa11.wrong", NOW_US, WALL_US, &account, &err), USERS_UNPROVEN);
	assert_int_equal(find(users, KEY_A, NOW_US + USERS_REMEMBERED_US, WALL_US, &account, &err), USERS_UNPROVEN);
	users_free(&users);
	assert_null(users);
}

static void test_users_that_may_not_call_any_more(void **state)
{
	struct sched_user items[] = {
		{ .name = "old", .key_sha256 = sha_old },
		{ .name = "ann", .key_id = "aa11", .key_argon2 = hash_a, .expires = MOMENT },
	};
	struct users *users = users_new();
	struct sched_account account;
	struct err err;

	(void)state;
	put(users, items, COUNT_OF(items));
	assert_int_equal(users_prove(users, STR(KEY_A), NOW_US, WALL_US - 1, &account, &err), 0);
	/* Also while the key is remembered. */
	assert_int_equal(find(users, KEY_A, NOW_US, WALL_US - 1, &account, &err), 0);
	assert_int_equal(find(users, KEY_A, NOW_US, WALL_US, &account, &err), -ERR_UNAUTHENTICATED);
	assert_non_null(strstr(err.text, "expired at 2027-01-15"));
	items[0].is_disabled = true;
	items[1].expires = "";
	put(users, items, COUNT_OF(items));
	assert_int_equal(find(users, KEY_OLD, NOW_US, WALL_US, &account, &err), -ERR_UNAUTHENTICATED);
	assert_non_null(strstr(err.text, "disabled"));
	/* Another list: nothing is remembered, so that a key that is gone is gone at once. */
	assert_int_equal(find(users, KEY_A, NOW_US, WALL_US, &account, &err), USERS_UNPROVEN);
	put(users, items, 1);
	assert_int_equal(find(users, KEY_A, NOW_US, WALL_US, &account, &err), -ERR_UNAUTHENTICATED);
	assert_int_equal(users_prove(users, STR(KEY_A), NOW_US, WALL_US, &account, &err), -ERR_UNAUTHENTICATED);
	users_free(&users);
}

static void test_certificates(void **state)
{
	static char sha[65], long_subject[256];
	struct sched_user items[] = {
		{ .name = "ann", .cert_subject = "CN=ann,O=Bank", .role = ROLE_AUDITOR },
		{ .name = "bob", .cert_sha256 = sha, .expires = MOMENT },
	};
	struct users *users = users_new();
	struct sched_account account;
	struct err err;
	static const struct {
		const char *subject;
		bool has_sha;
		int64_t wall_us;
		const char *name; /* NULL: nobody */
	} rows[] = {
		{ "CN=ann,O=Bank", false, WALL_US, "ann" },    { "CN=ann,O=Ban", false, WALL_US, NULL },
		{ "cn=ann,O=Bank", false, WALL_US, NULL },     { "", false, WALL_US, NULL },
		{ "CN=other", true, WALL_US - 1, "bob" },      { "CN=other", true, WALL_US, NULL },
		{ "CN=ann,O=Bank", true, WALL_US - 1, "bob" }, /* the certificate itself says more than its name */
		{ long_subject, false, WALL_US, NULL },
	};

	(void)state;
	memset(sha, 'a', 64);
	memset(long_subject, 'x', 255);
	put(users, items, COUNT_OF(items));
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		memset(&account, 0, sizeof(account));
		const int result = users_by_cert(users, rows[i].has_sha ? sha : "bb", rows[i].subject, rows[i].wall_us,
						 &account, &err);

		if (result != (rows[i].name ? 0 : -ERR_UNAUTHENTICATED) ||
		    strcmp(account.name, rows[i].name ? rows[i].name : "") != 0)
			fail_msg("row %zu: %d '%s'", i, result, account.name);
	}
	/* No key opens what a certificate does. */
	assert_int_equal(find(users, "", NOW_US, WALL_US, &account, &err), -ERR_UNAUTHENTICATED);
	assert_int_equal(find(users, sha, NOW_US, WALL_US, &account, &err), -ERR_UNAUTHENTICATED);
	/* One that fills the place of a subject may be cut: it is nobody's, also when somebody is called so. */
	items[0].cert_subject = long_subject;
	put(users, items, COUNT_OF(items));
	assert_int_equal(users_by_cert(users, "bb", long_subject, WALL_US, &account, &err), -ERR_UNAUTHENTICATED);
	users_free(&users);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_expiry_texts), cmocka_unit_test(test_lists_that_are_wrong),
		cmocka_unit_test(test_keys),         cmocka_unit_test(test_users_that_may_not_call_any_more),
		cmocka_unit_test(test_certificates),
	};
	return cmocka_run_group_tests(tests, set_up, NULL);
}
