#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "folder/merge_impl.h"

static const struct {
	uint64_t added[8], sorted[8];
} rows[] = {
	{ { 0 }, { 0 } },
	{ { 1 }, { 1 } },
	{ { 1, 1, 1 }, { 1 } },
	{ { 1, 2, 1, 2, 3 }, { 1, 2, 3 } },
	/* Revised in the middle, at the beginning, and at the end. */
	{ { 1, 2, 9000000, 4, 5 }, { 1, 2, 4, 5, 9000000 } },
	{ { INT64_MAX, 9000000, 2, 3 }, { 2, 3, 9000000, INT64_MAX } },
	{ { 3, 2, 1, 9000000 }, { 1, 2, 3, 9000000 } },
};

static void test_rows(void **state UNUSED)
{
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct merge_ids ids = { .count = 0 };
		size_t count = 0;

		for (const uint64_t *id = rows[i].added; *id; id++)
			merge_ids_add(&ids, *id);
		while (rows[i].sorted[count])
			count++;
		assert_int_equal(ids.count, count);
		for (size_t k = 0; k < count; k++) {
			assert_int_equal(ids.ids[k], rows[i].sorted[k]);
			assert_int_equal(merge_ids_find(&ids, rows[i].sorted[k]), k);
		}
		assert_int_equal(merge_ids_find(&ids, 8999999), MERGE_IDS_NONE);
		assert_int_equal(merge_ids_find(&ids, 0), MERGE_IDS_NONE);
		merge_ids_fini(&ids);
	}
}

static void test_many(void **state UNUSED)
{
	struct merge_ids ids = { .count = 0 };

	for (uint64_t id = 1; id <= 5000; id++) {
		merge_ids_add(&ids, id);
		merge_ids_add(&ids, 1000000 - id);
	}
	assert_int_equal(ids.count, 10000);
	for (uint64_t id = 1; id <= 5000; id++) {
		assert_int_equal(merge_ids_find(&ids, id), id - 1);
		assert_int_equal(merge_ids_find(&ids, 1000000 - id), 10000 - id);
	}
	merge_ids_fini(&ids);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rows),
		cmocka_unit_test(test_many),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
