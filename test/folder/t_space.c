#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "folder/space.h"

#define NODES_MAX 4

static void each_file_system_counts_once(void **state UNUSED)
{
	static const struct {
		struct {
			const char *fs;
			uint64_t free_bytes;
			bool is_out;
		} nodes[NODES_MAX];
		size_t node_count;
		const char *final_fs;
		size_t working_count;
		uint64_t bytes;
		bool is_final_shared;
		uint64_t final_bytes;
	} ROWS[] = {
		{ .node_count = 0, .final_fs = "f" },
		{ { { "a", 10, false } }, 1, "f", 1, 10, false, 0 },
		/* Three on one: the smallest word. */
		{ { { "a", 10, false }, { "a", 8, false }, { "a", 9, false } }, 3, "f", 3, 8, false, 0 },
		{ { { "a", 10, false }, { "b", 5, false }, { "a", 9, false } }, 3, "f", 3, 14, false, 0 },
		/* Without names nobody shares, with the final store neither. */
		{ { { "", 10, false }, { "", 10, false }, { "a", 1, false } }, 3, "", 3, 21, false, 0 },
		/* One that takes no work says nothing, first or last. */
		{ { { "a", 1, true }, { "a", 8, false } }, 2, "f", 1, 8, false, 0 },
		{ { { "a", 1, true }, { "b", 8, true } }, 2, "a", 0, 0, false, 0 },
		{ { { "f", 7, false }, { "f", 6, false }, { "b", 8, false } }, 3, "f", 3, 8, true, 6 },
		/* Lies do not wrap. */
		{ { { "a", UINT64_MAX, false }, { "b", 8, false } }, 2, "f", 2, UINT64_MAX, false, 0 },
	};

	for (size_t i = 0; i < COUNT_OF(ROWS); i++) {
		static struct pool_node nodes[NODES_MAX];
		struct space_room room;

		for (size_t n = 0; n < ROWS[i].node_count; n++) {
			nodes[n] = (struct pool_node){ .free_bytes = ROWS[i].nodes[n].free_bytes,
						       .takes_work = !ROWS[i].nodes[n].is_out };
			(void)snprintf(nodes[n].fs_name, sizeof(nodes[n].fs_name), "%s", ROWS[i].nodes[n].fs);
		}
		space_room(nodes, ROWS[i].node_count, ROWS[i].final_fs, &room);
		if (room.node_count != ROWS[i].working_count || room.bytes != ROWS[i].bytes ||
		    room.is_final_shared != ROWS[i].is_final_shared || room.final_bytes != ROWS[i].final_bytes)
			fail_msg("row %zu: %zu nodes, %llu bytes, %llu with the final store", i, room.node_count,
				 (unsigned long long)room.bytes, (unsigned long long)room.final_bytes);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(each_file_system_counts_once) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
