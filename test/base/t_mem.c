#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"

static void test_pieces_are_aligned_zeroed_and_apart(void **state UNUSED)
{
	static const size_t SIZES[] = { 0, 1, 15, 16, 17, 1000, 4096, 5000, 100000, 3, 2000, 2000, 2000 };
	struct arena arena = ARENA_INIT(0);
	unsigned char *pieces[COUNT_OF(SIZES)];

	for (size_t i = 0; i < COUNT_OF(SIZES); i++) {
		pieces[i] = arena_alloc(&arena, SIZES[i]);
		assert_non_null(pieces[i]);
		assert_int_equal((uintptr_t)pieces[i] % 16, 0);
		for (size_t j = 0; j < SIZES[i]; j++)
			assert_int_equal(pieces[i][j], 0);
		memset(pieces[i], (int)i + 1, SIZES[i]);
	}
	for (size_t i = 0; i < COUNT_OF(SIZES); i++) {
		for (size_t j = 0; j < SIZES[i]; j++)
			assert_int_equal(pieces[i][j], i + 1);
	}
	arena_fini(&arena);
	assert_int_equal(arena.used_bytes, 0);
	assert_null(arena.head);
}

static void test_ceiling(void **state UNUSED)
{
	struct arena arena = ARENA_INIT(64);

	assert_null(arena_alloc(&arena, 65));
	assert_non_null(arena_alloc(&arena, 40)); /* 48 */
	assert_null(arena_alloc(&arena, 17));
	assert_non_null(arena_alloc(&arena, 16));
	assert_null(arena_alloc(&arena, 0));
	assert_int_equal(arena.used_bytes, 64);
	arena_fini(&arena);
	/* Usable again. */
	assert_non_null(arena_alloc(&arena, 64));
	arena_fini(&arena);
}

static void test_impossible_sizes(void **state UNUSED)
{
	struct arena arena = ARENA_INIT(0);

	assert_null(arena_alloc(&arena, SIZE_MAX));
	assert_null(arena_alloc(&arena, SIZE_MAX - 15));
	assert_null(arena_strdup(&arena, (struct str){ "", SIZE_MAX }));
	assert_non_null(arena_alloc(&arena, 1));
	arena_fini(&arena);
}

static void test_strdup(void **state UNUSED)
{
	struct arena arena = ARENA_INIT(0);

	assert_string_equal(arena_strdup(&arena, STR("abc")), "abc");
	assert_string_equal(arena_strdup(&arena, (struct str){ "abc", 2 }), "ab");
	assert_string_equal(arena_strdup(&arena, STR_NONE), "");
	arena_fini(&arena);
}

static void test_wipe(void **state UNUSED)
{
	char secret[8] = "secret!";

	mem_wipe(secret, 6);
	assert_memory_equal(secret, "\0\0\0\0\0\0!", 8);
	mem_wipe(NULL, 0);
}

static void test_must_alloc(void **state UNUSED)
{
	char *text = must_strdup("a");
	unsigned char *zeros = must_zalloc(3, 5);
	void *nothing = must_alloc(0);

	assert_string_equal(text, "a");
	for (size_t i = 0; i < 15; i++)
		assert_int_equal(zeros[i], 0);
	assert_non_null(nothing);
	free(text);
	free(zeros);
	free(nothing);
}

static void test_large_buffers(void **state UNUSED)
{
	static const size_t sizes[] = { 1, 4 * KIB, 100 * KIB, 2 * MIB - 1, 2 * MIB, 2 * MIB + 1, 9 * MIB };

	for (size_t i = 0; i < COUNT_OF(sizes); i++) {
		unsigned char *data = mem_large_alloc(sizes[i]);

		assert_non_null(data);
		if (sizes[i] >= 2 * MIB)
			assert_int_equal((uintptr_t)data % (2 * MIB), 0);
		data[0] = data[sizes[i] - 1] = 7; /* both ends are there */
		mem_large_free(data, sizes[i]);
	}
	assert_null(mem_large_alloc(SIZE_MAX));
	assert_null(mem_large_alloc(SIZE_MAX / 2));
	mem_large_free(NULL, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pieces_are_aligned_zeroed_and_apart),
		cmocka_unit_test(test_ceiling),
		cmocka_unit_test(test_impossible_sizes),
		cmocka_unit_test(test_strdup),
		cmocka_unit_test(test_wipe),
		cmocka_unit_test(test_must_alloc),
		cmocka_unit_test(test_large_buffers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
