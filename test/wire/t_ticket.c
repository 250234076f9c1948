#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "wire/ticket.h"

#define NOW  ((int64_t)1700000000 * SEC_US)
#define SKEW (30 * SEC_US)

static const char transfer[] = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
static const char other_transfer[] = "01ARZ3NDEKTSV4RRFFQ69G5FAW";
static const char sha_hex[] = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
static const char md5_hex[] = "d41d8cd98f00b204e9800998ecf8427e";

static struct ticket_keys keys_of(uint8_t first, uint8_t second)
{
	struct ticket_keys keys = { .count = second ? 2 : 1 };

	keys.keys[0].id = first;
	memset(keys.keys[0].key, first, TICKET_KEY_SIZE);
	keys.keys[1].id = second;
	memset(keys.keys[1].key, second, TICKET_KEY_SIZE);
	return keys;
}

static struct ticket a_ticket(void)
{
	struct ticket ticket = { .file_id = 7,
				 .object_bytes = 2500,
				 .chunk_bytes = 1000,
				 .digest = DIGEST_SHA256,
				 .expires_wall_us = NOW + 600 * SEC_US };

	memcpy(ticket.transfer_id, transfer, sizeof(transfer));
	memcpy(ticket.user, "li wei", 7);
	return ticket;
}

static struct ticket_request a_request(void)
{
	return (struct ticket_request){ .transfer_id = transfer,
					.file_id = 7,
					.chunk_index = 2,
					.size_bytes = 500,
					.digest_hex = str_from(sha_hex) };
}

/* A signed token for the request; signs with the transfer key of `signer`. */
static void make_token(const struct ticket_keys *issuer, const struct ticket_keys *signer, const struct ticket *ticket,
		       const struct ticket_request *request, int64_t expires, char token[TICKET_TOKEN_SIZE])
{
	struct err err = ERR_INIT;
	char text[TICKET_TEXT_SIZE];
	uint8_t key[TICKET_KEY_SIZE];

	assert_int_equal(ticket_issue(issuer, ticket, text, &err), 0);
	ticket_transfer_key(signer->keys[0].key, ticket->transfer_id, key);
	assert_int_equal(ticket_sign(str_from(text), key, request, expires, token, &err), 0);
}

static int check(const struct ticket_keys *keys, const char *token, const struct ticket_request *request, int64_t now)
{
	struct err err = ERR_INIT;
	struct ticket ticket;
	char nonce[TICKET_NONCE_SIZE];
	int64_t expires;
	const int r = ticket_check(keys, str_from(token), request, now, SKEW, &ticket, nonce, &expires, &err);

	if (r < 0)
		assert_int_equal(err.code, -r);
	else
		assert_int_equal(strlen(nonce), TICKET_NONCE_SIZE - 1);
	return r;
}

static void t_counts(void **state UNUSED)
{
	static const struct {
		uint64_t object, chunk, count, first, last;
	} rows[] = {
		{ 0, 1000, 1, 0, 0 },
		{ 1, 1000, 1, 1, 1 },
		{ 999, 1000, 1, 999, 999 },
		{ 1000, 1000, 1, 1000, 1000 },
		{ 1001, 1000, 2, 1000, 1 },
		{ 2000, 1000, 2, 1000, 1000 },
		{ 3, 1, 3, 1, 1 },
		{ UINT64_MAX, UINT64_MAX, 1, UINT64_MAX, UINT64_MAX },
		{ UINT64_MAX, (uint64_t)1 << 63, 2, (uint64_t)1 << 63, ((uint64_t)1 << 63) - 1 },
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		const struct ticket ticket = { .object_bytes = rows[i].object, .chunk_bytes = rows[i].chunk };

		assert_int_equal(ticket_chunk_count(&ticket), rows[i].count);
		assert_int_equal(ticket_chunk_size(&ticket, 0), rows[i].first);
		assert_int_equal(ticket_chunk_size(&ticket, rows[i].count - 1), rows[i].last);
		assert_int_equal(ticket_chunk_size(&ticket, rows[i].count), 0);
		assert_int_equal(ticket_chunk_size(&ticket, UINT64_MAX), 0);
	}
}

static void t_round(void **state UNUSED)
{
	const struct ticket_keys keys = keys_of(1, 0);
	struct ticket ticket = a_ticket(), opened;
	struct err err = ERR_INIT;
	char text[TICKET_TEXT_SIZE];

	/* The widest of everything still fits. */
	ticket.object_bytes = ticket.chunk_bytes = ticket.file_id = UINT64_MAX;
	ticket.expires_wall_us = INT64_MAX;
	memset(ticket.user, 'u', sizeof(ticket.user) - 1);
	assert_int_equal(ticket_issue(&keys, &ticket, text, &err), 0);
	assert_int_equal(ticket_open(&keys, str_from(text), &opened, &err), 0);
	ticket.key_id = 1;
	assert_string_equal(opened.user, ticket.user);
	assert_string_equal(opened.transfer_id, transfer);
	assert_int_equal(opened.file_id, UINT64_MAX);
	assert_int_equal(opened.object_bytes, UINT64_MAX);
	assert_int_equal(opened.expires_wall_us, INT64_MAX);
	assert_int_equal(opened.key_id, 1);
	assert_int_equal(opened.digest, DIGEST_SHA256);
	/* Users may have spaces, or no name at all. */
	memcpy(ticket.user, "", 1);
	assert_int_equal(ticket_issue(&keys, &ticket, text, &err), 0);
	assert_int_equal(ticket_open(&keys, str_from(text), &opened, &err), 0);
	assert_string_equal(opened.user, "");
	ticket.chunk_bytes = 0;
	assert_true(ticket_issue(&keys, &ticket, text, &err) < 0);
	ticket = a_ticket();
	memcpy(ticket.transfer_id, "short", 6);
	assert_true(ticket_issue(&keys, &ticket, text, &err) < 0);
}

/* No single change of a character makes another valid ticket or token. */
static void t_every_change(void **state UNUSED)
{
	static const char others[] = "A0_z-";
	const struct ticket_keys keys = keys_of(1, 0);
	const struct ticket ticket = a_ticket();
	const struct ticket_request request = a_request();
	char token[TICKET_TOKEN_SIZE];

	make_token(&keys, &keys, &ticket, &request, NOW + 60 * SEC_US, token);
	assert_int_equal(check(&keys, token, &request, NOW), 0);
	const size_t size = strlen(token);
	for (size_t i = 0; i < size; i++) {
		for (size_t k = 0; k < sizeof(others) - 1; k++) {
			const char was = token[i];

			if (was == others[k])
				continue;
			token[i] = others[k];
			assert_int_equal(check(&keys, token, &request, NOW), -ERR_TICKET_BAD);
			token[i] = was;
		}
	}
	for (size_t cut = 1; cut < size; cut++) {
		char shorter[TICKET_TOKEN_SIZE];

		memcpy(shorter, token, cut);
		shorter[cut] = '\0';
		assert_int_equal(check(&keys, shorter, &request, NOW), -ERR_TICKET_BAD);
	}
	assert_int_equal(check(&keys, "", &request, NOW), -ERR_UNAUTHENTICATED);
	assert_int_equal(check(&keys, "...", &request, NOW), -ERR_TICKET_BAD);
}

static void t_claims(void **state UNUSED)
{
	const struct ticket_keys keys = keys_of(1, 0);
	const struct ticket ticket = a_ticket();
	const struct {
		const char *transfer_id;
		uint64_t file_id, chunk_index, size_bytes;
		const char *digest;
		int want;
	} rows[] = {
		{ transfer, 7, 0, 1000, sha_hex, 0 },
		{ transfer, 7, 2, 500, sha_hex, 0 },
		{ transfer, 7, 3, 0, sha_hex, -ERR_NO_CHUNK },
		{ transfer, 7, UINT64_MAX, 1000, sha_hex, -ERR_NO_CHUNK },
		{ transfer, 7, 2, 501, sha_hex, -ERR_CHUNK_SIZE },
		{ transfer, 7, 1, 999, sha_hex, -ERR_CHUNK_SIZE },
		{ transfer, 8, 0, 1000, sha_hex, -ERR_TICKET_BAD },
		{ other_transfer, 7, 0, 1000, sha_hex, -ERR_TICKET_BAD },
		{ transfer, 7, 0, 1000, md5_hex, -ERR_BAD_REQUEST },
		{ transfer, 7, 0, 1000, "E3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
		  -ERR_BAD_REQUEST },
		{ transfer, 7, 0, 1000, "", -ERR_BAD_REQUEST },
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		const struct ticket_request request = { rows[i].transfer_id, rows[i].file_id, rows[i].chunk_index,
							rows[i].size_bytes, str_from(rows[i].digest) };
		char token[TICKET_TOKEN_SIZE];

		make_token(&keys, &keys, &ticket, &request, NOW + 60 * SEC_US, token);
		assert_int_equal(check(&keys, token, &request, NOW), rows[i].want);
	}
	/* What was signed is what must be sent. */
	const struct ticket_request signed_one = a_request();
	char token[TICKET_TOKEN_SIZE];
	make_token(&keys, &keys, &ticket, &signed_one, NOW + 60 * SEC_US, token);
	struct ticket_request request = a_request();
	request.chunk_index = 1;
	request.size_bytes = 1000;
	assert_int_equal(check(&keys, token, &request, NOW), -ERR_TICKET_BAD);
	request = a_request();
	request.digest_hex = STR("a3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
	assert_int_equal(check(&keys, token, &request, NOW), -ERR_TICKET_BAD);
}

static void t_times(void **state UNUSED)
{
	const struct ticket_keys keys = keys_of(1, 0);
	const struct ticket_request request = a_request();
	static const struct {
		int64_t ticket, request; /* seconds from now */
		int want;
	} rows[] = {
		{ 600, 60, 0 },
		{ 600, -30, 0 },
		{ 600, -31, -ERR_CLOCK_SKEW },
		{ -30, 60, 0 },
		{ -31, 60, -ERR_TICKET_EXPIRED },
		{ -31, -31, -ERR_TICKET_EXPIRED },
		{ -31, 1000000000, -ERR_TICKET_EXPIRED },
		{ 600, -1700000000, -ERR_CLOCK_SKEW },
		{ 6000, 930, 0 },
		{ 6000, 931, -ERR_CLOCK_SKEW },
		{ 6000, 1000000000, -ERR_CLOCK_SKEW },
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct ticket ticket = a_ticket(), opened;
		struct err err = ERR_INIT;
		char token[TICKET_TOKEN_SIZE], nonce[TICKET_NONCE_SIZE];
		int64_t expires;

		ticket.expires_wall_us = NOW + rows[i].ticket * SEC_US;
		make_token(&keys, &keys, &ticket, &request, NOW + rows[i].request * SEC_US, token);
		const int r = ticket_check(&keys, str_from(token), &request, NOW, SKEW, &opened, nonce, &expires, &err);
		assert_int_equal(r, rows[i].want);
		/* The nonce is remembered for as long as the token could be taken again, and no longer. */
		if (r == 0)
			assert_int_equal(expires, NOW + min_i64(rows[i].ticket, rows[i].request) * SEC_US + SKEW);
	}
}

static void t_rotation(void **state UNUSED)
{
	const struct ticket_keys before = keys_of(1, 0), after = keys_of(2, 1), later = keys_of(2, 0);
	const struct ticket ticket = a_ticket();
	const struct ticket_request request = a_request();
	char token[TICKET_TOKEN_SIZE];

	make_token(&before, &before, &ticket, &request, NOW + 60 * SEC_US, token);
	assert_int_equal(check(&after, token, &request, NOW), 0);
	assert_int_equal(check(&later, token, &request, NOW), -ERR_TICKET_BAD);
	/* A client that still holds the old transfer key, with a ticket of the new one. */
	make_token(&after, &before, &ticket, &request, NOW + 60 * SEC_US, token);
	assert_int_equal(check(&after, token, &request, NOW), 0);
	assert_int_equal(check(&later, token, &request, NOW), -ERR_TICKET_BAD);
}

static void t_nonces_differ(void **state UNUSED)
{
	const struct ticket_keys keys = keys_of(1, 0);
	const struct ticket ticket = a_ticket();
	const struct ticket_request request = a_request();
	char one[TICKET_TOKEN_SIZE], two[TICKET_TOKEN_SIZE];

	make_token(&keys, &keys, &ticket, &request, NOW, one);
	make_token(&keys, &keys, &ticket, &request, NOW, two);
	assert_string_not_equal(one, two);
}

#define HEX_A "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
static void t_key_file(void **state UNUSED)
{
	static const struct {
		const char *text;
		size_t count; /* 0: refused */
	} rows[] = {
		{ "", 0 },
		{ "# nothing\n\n", 0 },
		{ "1 " HEX_A, 1 },
		{ "# two\n 2 " HEX_A "\r\n\n1 " HEX_A "\n", 2 },
		{ "1 " HEX_A "\n1 " HEX_A "\n", 0 },
		{ "1 " HEX_A "0\n", 0 },
		{ "1 00\n", 0 },
		{ HEX_A "\n", 0 },
		{ "4294967296 " HEX_A "\n", 0 },
		{ "4294967295   " HEX_A "  \n", 1 },
		{ "x " HEX_A "\n", 0 },
		{ "1 " HEX_A "\n2 " HEX_A "\n3 " HEX_A "\n4 " HEX_A "\n", 4 },
		{ "1 " HEX_A "\n2 " HEX_A "\n3 " HEX_A "\n4 " HEX_A "\n5 " HEX_A "\n", 0 },
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct ticket_keys keys;
		struct err err = ERR_INIT;
		const int r = ticket_keys_parse(str_from(rows[i].text), &keys, &err);

		assert_int_equal(keys.count, rows[i].count);
		assert_int_equal(r, rows[i].count ? 0 : -ERR_CONFIG);
		/* A key never shows in an error. */
		assert_null(strstr(err.text, "112233"));
		if (rows[i].count > 0)
			assert_int_equal(keys.keys[0].key[31], 0xff);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(t_counts),        cmocka_unit_test(t_round),    cmocka_unit_test(t_every_change),
		cmocka_unit_test(t_claims),        cmocka_unit_test(t_times),    cmocka_unit_test(t_rotation),
		cmocka_unit_test(t_nonces_differ), cmocka_unit_test(t_key_file),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
