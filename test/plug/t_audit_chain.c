/* The bytes of the audit's chain, and what is found of rows that were touched. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "plug/audit_chain.h"

#define ROW_COUNT 6

/* Worked out by an implementation of docs/audit.md in another language. */
static void test_chain_bytes_are_the_documented_ones(void **state UNUSED)
{
	static const char HASHES[2][AUDIT_HASH_HEX_SIZE] = {
		"c23f435f3589d7c1958530862329dfbfeb3880c89152544f6ec257410ee2f9a7",
		"aed6ddb0797337b526f5f02b36e728581e231721ecd766594984dcae4a9ce45e",
	};
	struct audit_hasher *hasher = audit_hasher_new();
	struct audit_point last = { .id = 0 };
	struct audit_room room;
	struct audit_row row;
	struct store_audit plain = { .at_wall_us = -1, .kind = "operator", .user = "root", .detail = "" };
	struct store_audit chunk = { .at_wall_us = 1700000000000000,
				     .kind = "chunk",
				     .transfer_id = "01ARZ3NDEKTSV4RRFFQ69G5FAA",
				     .outcome = "stored",
				     .algorithm = "sha256",
				     .file_id = UINT64_MAX,
				     .chunk_index = 3 };
	struct store_receipt receipt = { .size_bytes = 7, .user_agent = "caf\xc3\xa9/\xff", .finished_wall_us = 9 };
	char hex[AUDIT_HASH_HEX_SIZE];

	audit_row_fill(&row, &plain, NULL, &room);
	assert_true(row.fields[AUDIT_node_id].is_null);
	assert_false(row.fields[AUDIT_detail].is_null);
	audit_row_link(hasher, &last, &row);
	hex_encode(row.hash, sizeof(row.hash), hex);
	assert_string_equal(hex, HASHES[0]);
	audit_row_fill(&row, &chunk, &receipt, &room);
	assert_int_equal(row.fields[AUDIT_file_id].number, INT64_MAX);
	assert_true(str_eq_c(row.fields[AUDIT_user_agent].text, "caf\xc3\xa9/\\xff"));
	audit_row_link(hasher, &last, &row);
	hex_encode(row.hash, sizeof(row.hash), hex);
	assert_string_equal(hex, HASHES[1]);
	assert_int_equal(last.id, 2);
	audit_hasher_free(&hasher);
}

/* An engine that keeps no other text would change it, and the chain would not hold. */
static void test_every_text_is_utf8(void **state UNUSED)
{
	static const char BAD[] = "x\xff";
	const struct store_audit audit = { .kind = BAD,
					   .transfer_id = BAD,
					   .user = BAD,
					   .node_id = BAD,
					   .outcome = BAD,
					   .detail = BAD,
					   .algorithm = BAD };
	struct store_receipt receipt = { .digest = "x\xff",
					 .node_addr = "x\xff",
					 .client_addr = "x\xff",
					 .request_id = "x\xff",
					 .user_agent = "x\xff",
					 .disk_path = "x\xff" };
	struct audit_room room;
	struct audit_row row;

	audit_row_fill(&row, &audit, &receipt, &room);
	for (int i = 0; i < AUDIT_FIELD_COUNT; i++)
		if (!audit_field_is_number((enum audit_field)i) && i != AUDIT_result)
			assert_true(str_eq_c(row.fields[i].text, "x\\xff"));
}

/* A chain of six operators' rows; what is done to it, and which row is then accused of what. */
struct world {
	struct audit_hasher *hasher;
	struct audit_row rows[ROW_COUNT];
	size_t count;
};

static void change_text(struct world *w) { w->rows[2].fields[AUDIT_user].text = STR("eve"); }
static void change_number(struct world *w) { w->rows[2].fields[AUDIT_file_id].number++; }
static void null_text(struct world *w) { w->rows[2].fields[AUDIT_user] = (struct audit_value){ true, 0, STR("") }; }
static void move_text(struct world *w)
{
	w->rows[2].fields[AUDIT_detail] = w->rows[2].fields[AUDIT_user];
	w->rows[2].fields[AUDIT_user] = (struct audit_value){ .text = STR("") };
}
static void change_and_hash(struct world *w)
{
	change_text(w);
	audit_row_hash(w->hasher, &w->rows[2], w->rows[2].hash);
}
static void drop(struct world *w, size_t from, size_t count)
{
	memmove(&w->rows[from], &w->rows[from + count], (w->count - from - count) * sizeof(w->rows[0]));
	w->count -= count;
}
static void remove_one(struct world *w) { drop(w, 2, 1); }
static void remove_two(struct world *w) { drop(w, 2, 2); }
static void remove_first(struct world *w) { drop(w, 0, 1); }
static void swap_ids(struct world *w)
{
	const struct audit_row kept = w->rows[2];

	w->rows[2] = w->rows[3];
	w->rows[3] = kept;
	w->rows[2].id = 3;
	w->rows[3].id = 4;
}
static void swap_rows(struct world *w)
{
	const struct audit_row kept = w->rows[2];

	w->rows[2] = w->rows[3];
	w->rows[3] = kept;
}
static void remove_and_number(struct world *w)
{
	drop(w, 2, 1);
	for (size_t i = 2; i < w->count; i++)
		w->rows[i].id--;
}
static void nothing(struct world *w UNUSED) {}

static void test_chain_names_the_row_that_was_touched(void **state UNUSED)
{
	static const struct {
		void (*touch)(struct world *w);
		size_t fault_count;
		const char *first;
	} cases[] = {
		{ nothing, 0, NULL },
		{ change_text, 1, "row 3 was changed" },
		{ change_number, 1, "row 3 was changed" },
		{ null_text, 1, "row 3 was changed" },
		{ move_text, 1, "row 3 was changed" },
		{ change_and_hash, 1, "row 4 does not follow row 3" },
		{ remove_one, 1, "row 3 is missing" },
		{ remove_two, 1, "rows 3 to 4 are missing" },
		{ remove_first, 1, "row 1 is missing" },
		{ swap_ids, 3, "row 3 was changed" },
		{ swap_rows, 3, "row 3 is missing" },
		{ remove_and_number, 3, "row 3 was changed" },
	};

	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct world w = { .hasher = audit_hasher_new(), .count = ROW_COUNT };
		struct audit_point last = { .id = 0 };
		static const struct store_audit audit = { .kind = "operator", .user = "root" };
		struct audit_room room;
		struct err first = ERR_INIT, err = ERR_INIT;
		size_t fault_count = 0;

		for (size_t j = 0; j < ROW_COUNT; j++) {
			audit_row_fill(&w.rows[j], &audit, NULL, &room);
			audit_row_link(w.hasher, &last, &w.rows[j]);
		}
		cases[i].touch(&w);
		last = (struct audit_point){ .id = 0 };
		for (size_t j = 0; j < w.count; j++) {
			if (audit_row_check(w.hasher, &last, &w.rows[j], fault_count ? &err : &first) < 0)
				fault_count++;
		}
		if (fault_count != cases[i].fault_count || (cases[i].first && !strstr(first.text, cases[i].first)))
			fail_msg("case %zu: %zu faults, first: %s", i, fault_count, first.text);
		audit_hasher_free(&w.hasher);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_chain_bytes_are_the_documented_ones),
		cmocka_unit_test(test_every_text_is_utf8),
		cmocka_unit_test(test_chain_names_the_row_that_was_touched),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
