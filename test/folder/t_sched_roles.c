/* Every call about a transfer, by everybody: its owner, another uploader, an auditor, an operator, somebody without a key, a node's key. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "folder/guard.h"
#include "sched_world.h"

/* What each is answered, by word: "" is no refusal. What a call says to who may make it is other tests' business: here it only must not be one of
 * these refusals. */
struct row {
	const char *method, *rest;
	const char *foreign, *auditor, *operator; /* another uploader's; the auditor's; the operator's */
};
static const struct row rows[] = {
	{ "GET", "", "no_such_transfer", "", "" },
	{ "GET", "/plan", "no_such_transfer", "", "" },
	{ "GET", "/chunks", "no_such_transfer", "", "" },
	{ "GET", "/nodes", "no_such_transfer", "", "" },
	{ "GET", "/manifest", "no_such_transfer", "", "" },
	{ "GET", "/files/1", "no_such_transfer", "", "" },
	{ "POST", "/digests", "no_such_transfer", "forbidden", "" },
	{ "POST", "/revise", "no_such_transfer", "forbidden", "forbidden" },
	{ "POST", "/complete", "no_such_transfer", "forbidden", "" },
	{ "POST", "/cancel", "no_such_transfer", "forbidden", "" },
};

static bool is_refusal(const char *word)
{
	return strcmp(word, "no_such_transfer") == 0 || strcmp(word, "forbidden") == 0 ||
	       strcmp(word, "unauthenticated") == 0 || strcmp(word, "no_such_path") == 0;
}

static void expect_word(const struct row *row, const char *who, const char *wanted)
{
	const char *word = text_of("error");

	if (wanted[0] != '\0' ? strcmp(word, wanted) != 0 : is_refusal(word))
		fail_msg("%s %s as %s: awaited '%s', got %d %s", row->method, row->rest, who, wanted, answer.status,
			 answer.text);
}

static void call_row(const struct row *row, const char *id, const char *header)
{
	const char *headers[] = { "X-Manifest-CRC32C: 00000000", header, NULL };
	char path[256];

	snprintf(path, sizeof(path), "/api/v1/transfers/%s%s", id, row->rest);
	call_with(row->method, path, headers, strcmp(row->rest, "/revise") == 0 ? STR("1 65537 0 644\n") : STR_NONE);
}

static void test_each_call_by_each_role(void **state)
{
	/* The owner and the operator last: some of their calls change the transfer. */
	const char *const keys[] = { "X-Api-Key: key of bob", "X-Api-Key: key of aud", "X-Api-Key: nobody's",  NULL,
				     internal_header,         "X-Api-Key: key of op",  "X-Api-Key: key of ann" };
	char id[ULID_SIZE];

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		const struct row *row = &rows[i];
		char batch[64];

		snprintf(batch, sizeof(batch), "batch=b%zu&source=h:/%zu", i, i);
		post("ann", batch, folder_a);
		expect_status(201);
		assert_true(str_copy(str_from(text_of("transfer_id")), id, ULID_SIZE));
		for (size_t k = 0; k < COUNT_OF(keys); k++) {
			call_row(row, id, keys[k]);
			expect_word(row, keys[k] ? keys[k] : "nobody",
				    k == 0   ? row->foreign
				    : k == 1 ? row->auditor
				    : k < 5  ? "unauthenticated"
				    : k == 5 ? row->operator
					     : "");
			/* Whoever was refused has changed nothing. */
			if (k < 5) {
				call_as("ann", "GET", "/api/v1/transfers?state=uploading&limit=1", STR_NONE);
				assert_string_equal(
					json_string_value(json_object_get(
						json_array_get(json_object_get(answer.json, "transfers"), 0),
						"transfer_id")),
					id);
			}
		}
	}
}

/* Lists: each sees its own, auditor and operator everybody's; and what an auditor sees gives nothing to send with. */
static void test_lists_and_keys(void **state)
{
	static const struct {
		const char *user;
		size_t count;
		bool has_key;
	} wanted[] = { { "ann", 1, true }, { "bob", 0, false }, { "aud", 1, false }, { "op", 1, true } };
	char id[ULID_SIZE];

	(void)state;
	post_a(id);
	for (size_t i = 0; i < COUNT_OF(wanted); i++) {
		call_as(wanted[i].user, "GET", "/api/v1/transfers", STR_NONE);
		expect_status(200);
		const json_t *list = json_object_get(answer.json, "transfers");

		assert_int_equal(json_array_size(list), wanted[i].count);
		if (wanted[i].count == 0)
			continue;
		const char *key = json_string_value(json_object_get(json_array_get(list, 0), "transfer_key"));

		assert_int_equal(strlen(key), wanted[i].has_key ? 64 : 0);
		call_transfer(wanted[i].user, "GET", id, "/nodes", STR_NONE);
		assert_int_equal(strlen(text_of("transfer_key")), wanted[i].has_key ? 64 : 0);
		call_transfer(wanted[i].user, "GET", id, "/plan", STR_NONE);
		assert_int_equal(strstr(answer.text, " -\n") != NULL, !wanted[i].has_key);
	}
	/* A batch of that name is taken, and says nothing of whose it is. */
	post("bob", "batch=books&source=h:/a", folder_a);
	expect_error(409, "batch_exists");
	assert_null(strstr(answer.text, "ann"));
	post("aud", "batch=other", folder_a);
	expect_error(403, "forbidden");
	for (size_t i = 0; i < 3; i++) {
		call_as((const char *[]){ "ann", "bob", "aud" }[i], "POST", "/api/v1/nodes/n1",
			STR("{\"order\":\"drain\"}"));
		expect_error(403, "forbidden");
	}
}

/* Keys that are nobody's, again and again: refused, then told to wait; who has a good one is served all the while. */
static void test_guessing_keys(void **state)
{
	const char *headers[] = { "X-Api-Key: guess", NULL };

	(void)state;
	for (unsigned i = 0; i < GUARD_ADDRESS_BURST; i++) {
		call_with("GET", "/api/v1/transfers", headers, STR_NONE);
		expect_error(401, "unauthenticated");
	}
	call_with("GET", "/api/v1/transfers", headers, STR_NONE);
	expect_error(429, "too_many_failures");
	assert_true(answer.retry_after_us >= SEC_US);
	call_as("bob", "GET", "/api/v1/transfers", STR_NONE);
	expect_status(200);
}

/* Read anew while it runs: a user is gone, another one new; a list that is wrong changes nothing. */
static void test_reload(void **state)
{
	struct sched_conf conf = conf_of();
	struct sched_user other[] = { users[0], { .name = "new", .role = 0 } };
	char hash[ARGON_TEXT_SIZE];
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(argon_hash(STR("key of new"), hash, NULL), 0);
	other[1].key_id = "key of new";
	other[1].key_argon2 = hash;
	conf.users = (struct conf_list){ other, COUNT_OF(other) };
	assert_int_equal(sched_reload(sched, &conf, &err), -ERR_CONFIG); /* that is no id */
	call_as("bob", "GET", "/api/v1/transfers", STR_NONE);
	expect_status(200);
	other[1].key_id = "key-of-new";
	assert_int_equal(argon_hash(STR("key-of-new.secret"), hash, NULL), 0);
	assert_int_equal(sched_reload(sched, &conf, &err), 0);
	call_as("bob", "GET", "/api/v1/transfers", STR_NONE);
	expect_error(401, "unauthenticated");
	call_as("ann", "GET", "/api/v1/transfers", STR_NONE);
	expect_status(200);
	/* The first call costs the hash and may bring a body; the second goes by memory. */
	const uint32_t crc = crc32c(0, folder_b, strlen(folder_b));
	char crc_header[64];
	const char *headers[] = { "X-Api-Key: key-of-new.secret", crc_header, NULL };

	snprintf(crc_header, sizeof(crc_header), "X-Manifest-CRC32C: %08x", crc);
	call_with("POST", "/api/v1/transfers?batch=fresh", headers, str_from(folder_b));
	expect_status(201);
	call_with("GET", "/api/v1/transfers", headers, STR_NONE);
	expect_status(200);
	assert_int_equal(json_array_size(json_object_get(answer.json, "transfers")), 1);
	headers[0] = "X-Api-Key: key-of-new.guess";
	call_with("POST", "/api/v1/transfers?batch=other", headers, str_from(folder_b));
	expect_error(401, "unauthenticated");
}

/* Guesses at a key of Argon2id that come at once are no more than those that come one after the other. */
static void test_guessing_at_once(void **state)
{
	enum { CALLS = 3 * GUARD_ADDRESS_BURST };
	static struct fetch_call calls[CALLS];
	struct sched_conf conf = conf_of();
	struct sched_user other[] = { users[3], { .name = "new", .key_id = "k", .role = 0 } };
	const char *headers[] = { "X-Api-Key: k.wrong", NULL };
	char hash[ARGON_TEXT_SIZE], url[128], addr[SOCK_TEXT_SIZE];
	struct fetch *fetch;
	unsigned looked_at = 1;

	(void)state;
	assert_int_equal(argon_hash(STR("k.secret"), hash, NULL), 0);
	other[1].key_argon2 = hash;
	conf.users = (struct conf_list){ other, COUNT_OF(other) };
	assert_int_equal(sched_reload(sched, &conf, NULL), 0);
	call_with("GET", "/api/v1/transfers", headers, STR_NONE);
	expect_error(401, "unauthenticated");
	snprintf(url, sizeof(url), "http://%s/api/v1/transfers", sock_addr_text(sched_addr(sched), addr));
	assert_int_equal(fetch_new(&fetch, NULL), 0);
	for (size_t i = 0; i < CALLS; i++) {
		calls[i] = FETCH_CALL_INIT;
		calls[i].method = "GET";
		calls[i].url = url;
		calls[i].headers[0] = headers[0];
		fetch_start(fetch, &calls[i]);
	}
	while (fetch_running_count(fetch) > 0)
		fetch_step(fetch, SEC_US);
	for (size_t i = 0; i < CALLS; i++) {
		looked_at += calls[i].status == 401;
		buf_fini(&calls[i].answer);
	}
	fetch_free(&fetch);
	/* One more may have come back meanwhile. */
	if (looked_at > GUARD_ADDRESS_BURST + 1)
		fail_msg("%u guesses were looked at", looked_at);
	call_as("op", "GET", "/api/v1/transfers", STR_NONE);
	expect_status(200);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_each_call_by_each_role, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_lists_and_keys, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_guessing_keys, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_reload, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_guessing_at_once, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
