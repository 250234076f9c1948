#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "folder/receipt.h"

#define T  "01ARZ3NDEKTSV4RRFFQ69G5FAV"
#define D  "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define M5 "d41d8cd98f00b204e9800998ecf8427e"

static struct store_receipt a_receipt(void)
{
	struct store_receipt receipt = { .file_id = 3,
					 .chunk_index = 0,
					 .size_bytes = 8388608,
					 .digest_kind = DIGEST_SHA256,
					 .started_wall_us = 1,
					 .finished_wall_us = INT64_MAX };

	snprintf(receipt.transfer_id, sizeof(receipt.transfer_id), T);
	snprintf(receipt.digest, sizeof(receipt.digest), D);
	snprintf(receipt.node_id, sizeof(receipt.node_id), "n1");
	snprintf(receipt.node_addr, sizeof(receipt.node_addr), "[::1]:7081");
	snprintf(receipt.client_addr, sizeof(receipt.client_addr), "127.0.0.1:4711");
	snprintf(receipt.request_id, sizeof(receipt.request_id), "abc");
	snprintf(receipt.user, sizeof(receipt.user), "li wei\t%%\n");
	snprintf(receipt.user_agent, sizeof(receipt.user_agent), "heng/0.1 \xff\x01");
	snprintf(receipt.disk_path, sizeof(receipt.disk_path), "tmp/x");
	return receipt;
}

static void round_trip(const struct store_receipt *receipt)
{
	struct buf buf = BUF_INIT(RECEIPT_LINE_MAX);
	struct store_receipt again;
	struct err err = ERR_INIT;

	receipt_write(&buf, receipt);
	assert_false(buf.is_failed);
	assert_int_equal(buf.data[buf.size - 1], '\n');
	assert_ptr_equal(memchr(buf.data, '\n', buf.size), buf.data + buf.size - 1);
	assert_int_equal(receipt_parse((struct str){ buf.data, buf.size - 1 }, &again, &err), 0);
	assert_string_equal(again.transfer_id, receipt->transfer_id);
	assert_int_equal(again.file_id, receipt->file_id);
	assert_int_equal(again.chunk_index, receipt->chunk_index);
	assert_int_equal(again.size_bytes, receipt->size_bytes);
	assert_int_equal(again.digest_kind, receipt->digest_kind);
	assert_string_equal(again.digest, receipt->digest);
	assert_string_equal(again.node_id, receipt->node_id);
	assert_string_equal(again.node_addr, receipt->node_addr);
	assert_string_equal(again.client_addr, receipt->client_addr);
	assert_string_equal(again.request_id, receipt->request_id);
	assert_string_equal(again.user, receipt->user);
	assert_string_equal(again.user_agent, receipt->user_agent);
	assert_string_equal(again.disk_path, receipt->disk_path);
	assert_int_equal(again.started_wall_us, receipt->started_wall_us);
	assert_int_equal(again.finished_wall_us, receipt->finished_wall_us);
	assert_int_equal(again.outcome, receipt->outcome);
	assert_int_equal(again.result, ERR_NONE);
	buf_fini(&buf);
}

static void t_round(void **state UNUSED)
{
	struct store_receipt receipt = a_receipt();

	round_trip(&receipt);
	receipt.outcome = ERR_DIGEST_MISMATCH;
	receipt.user[0] = receipt.user_agent[0] = receipt.disk_path[0] = receipt.request_id[0] = '\0';
	round_trip(&receipt);
	receipt.outcome = ERR_INTERNAL;
	receipt.digest_kind = DIGEST_SM3;
	round_trip(&receipt);
	/* Every field full of what needs three bytes, and still a line within the limit. */
	memset(receipt.user, 0xff, sizeof(receipt.user) - 1);
	memset(receipt.user_agent, 0xff, sizeof(receipt.user_agent) - 1);
	memset(receipt.disk_path, 0xff, sizeof(receipt.disk_path) - 1);
	memset(receipt.node_id, 0xff, sizeof(receipt.node_id) - 1);
	memset(receipt.node_addr, 0xff, sizeof(receipt.node_addr) - 1);
	memset(receipt.client_addr, 0xff, sizeof(receipt.client_addr) - 1);
	memset(receipt.request_id, 0xff, sizeof(receipt.request_id) - 1);
	receipt.file_id = receipt.chunk_index = receipt.size_bytes = INT64_MAX;
	round_trip(&receipt);
}

#define LINE(transfer, file, chunk, size, digest, node, user, started, outcome)                              \
	transfer "\t" file "\t" chunk "\t" size "\t" digest "\t" node "\ta\tc\tr\t" user "\tua\tp\t" started \
		 "\t9\t" outcome

static void t_refused(void **state UNUSED)
{
	static const struct {
		const char *line;
		const char *word; /* NULL: fine */
	} rows[] = {
		{ LINE(T, "1", "0", "0", D, "n", "u", "0", "stored"), NULL },
		{ LINE(T, "1", "0", "0", M5, "n", "", "0", "disk_low"), NULL },
		{ LINE(T, "1", "0", "0", "sm3:" D, "n", "u", "0", "stored"), NULL },
		{ "", "0 bytes" },
		{ LINE(T, "1", "0", "0", "sm3:" M5, "n", "u", "0", "stored"), "digest" },
		{ LINE(T, "1", "0", "0", "sha256:" D, "n", "u", "0", "stored"), "digest" },
		{ LINE(T, "1", "0", "0", "sm4:" D, "n", "u", "0", "stored"), "digest" },
		{ LINE(T, "1", "0", "0", ":" D, "n", "u", "0", "stored"), "digest" },
		{ LINE(T, "1", "0", "0", "sm3:", "n", "u", "0", "stored"), "digest" },
		{ "\t", "2 fields" },
		{ LINE(T, "1", "0", "0", D, "n", "u", "0", "stored") "\t", "more than" },
		{ LINE("x", "1", "0", "0", D, "n", "u", "0", "stored"), "transfer_id" },
		{ LINE(T "0", "1", "0", "0", D, "n", "u", "0", "stored"), "transfer_id" },
		{ LINE(T, "0", "0", "0", D, "n", "u", "0", "stored"), "file_id" },
		{ LINE(T, "9223372036854775808", "0", "0", D, "n", "u", "0", "stored"), "file_id" },
		{ LINE(T, "1", "", "0", D, "n", "u", "0", "stored"), "chunk_index" },
		{ LINE(T, "1", "0", "-1", D, "n", "u", "0", "stored"), "size" },
		{ LINE(T, "1", "0", "0", "", "n", "u", "0", "stored"), "digest" },
		{ LINE(T, "1", "0", "0", D "00", "n", "u", "0", "stored"), "digest" },
		{ LINE(T, "1", "0", "0", D, "", "u", "0", "stored"), "node_id" },
		{ LINE(T, "1", "0", "0", D, "n", "%00", "0", "stored"), "user" },
		{ LINE(T, "1", "0", "0", D, "n", "%zz", "0", "stored"), "user" },
		{ LINE(T, "1", "0", "0", D, "n", "uuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuu",
		       "0", "stored"),
		  "user" },
		{ LINE(T, "1", "0", "0", D, "n", "u", "-1", "stored"), "started_us" },
		{ LINE(T, "1", "0", "0", D, "n", "u", "0", ""), "outcome" },
		{ LINE(T, "1", "0", "0", D, "n", "u", "0", "ok"), "outcome" },
		{ LINE(T, "1", "0", "0", D, "n", "u", "0", "stored "), "outcome" },
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct store_receipt receipt;
		struct err err = ERR_INIT;
		const int r = receipt_parse(str_from(rows[i].line), &receipt, &err);

		if (r != (rows[i].word ? -ERR_BAD_REQUEST : 0) || (rows[i].word && !strstr(err.text, rows[i].word)))
			fail_msg("row %zu: %d, '%s'", i, r, err.text);
	}
}

static void t_answers(void **state UNUSED)
{
	static const struct {
		const char *line;
		int want;
		enum err_code code;
	} rows[] = {
		{ "ok", 0, ERR_NONE },
		{ "merging", 0, ERR_MERGING },
		{ "internal", 0, ERR_INTERNAL },
		{ "", -ERR_PEER, ERR_INTERNAL },
		{ "stored", -ERR_PEER, ERR_INTERNAL },
		{ "ok ", -ERR_PEER, ERR_INTERNAL },
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct err err = ERR_INIT;
		enum err_code code;

		assert_int_equal(receipt_answer_parse(str_from(rows[i].line), &code, &err), rows[i].want);
		if (rows[i].want < 0)
			continue;
		assert_int_equal(code, rows[i].code);
		struct buf buf = BUF_INIT(100);
		receipt_answer_write(&buf, code);
		assert_int_equal(buf.size, strlen(rows[i].line) + 1);
		assert_memory_equal(buf.data, rows[i].line, buf.size - 1);
		buf_fini(&buf);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(t_round), cmocka_unit_test(t_refused),
					    cmocka_unit_test(t_answers) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
