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
			uint64_t floor_bytes;
		} nodes[NODES_MAX];
		size_t node_count;
		const char *final_fs;
		size_t working_count;
		uint64_t bytes;
		bool is_final_shared;
		uint64_t final_bytes;
		uint64_t kept_bytes, final_kept_bytes;
	} ROWS[] = {
		{ .node_count = 0, .final_fs = "f" },
		{ { { "a", 10, false, 0 } }, 1, "f", 1, 10, false, 0, 0, 0 },
		/* Three on one: the smallest word. */
		{ { { "a", 10, false, 0 }, { "a", 8, false, 0 }, { "a", 9, false, 0 } }, 3, "f", 3, 8, false, 0, 0, 0 },
		{ { { "a", 10, false, 0 }, { "b", 5, false, 0 }, { "a", 9, false, 0 } },
		  3,
		  "f",
		  3,
		  14,
		  false,
		  0,
		  0,
		  0 },
		/* Without names nobody shares, with the final store neither. */
		{ { { "", 10, false, 0 }, { "", 10, false, 0 }, { "a", 1, false, 0 } }, 3, "", 3, 21, false, 0, 0, 0 },
		/* One that takes no work says nothing, first or last. */
		{ { { "a", 1, true, 0 }, { "a", 8, false, 0 } }, 2, "f", 1, 8, false, 0, 0, 0 },
		{ { { "a", 1, true, 0 }, { "b", 8, true, 0 } }, 2, "a", 0, 0, false, 0, 0, 0 },
		{ { { "f", 7, false, 0 }, { "f", 6, false, 0 }, { "b", 8, false, 0 } }, 3, "f", 3, 8, true, 6, 0, 0 },
		/* Lies do not wrap. */
		{ { { "a", UINT64_MAX, false, 0 }, { "b", 8, false, 0 } }, 2, "f", 2, UINT64_MAX, false, 0, 0, 0 },
		{ { { "a", 9, false, UINT64_MAX }, { "b", 8, false, UINT64_MAX } }, 2, "f", 2, 17, false, 0, 17, 0 },
		/* Floors: the highest on a file system, each once; of one that takes no work none; no more than is free. */
		{ { { "a", 10, false, 2 }, { "a", 8, false, 1 }, { "b", 7, false, 3 } },
		  3,
		  "f",
		  3,
		  15,
		  false,
		  0,
		  5,
		  0 },
		{ { { "a", 10, true, 9 }, { "a", 8, false, 1 }, { "", 5, false, 6 } }, 3, "f", 2, 13, false, 0, 6, 0 },
		{ { { "f", 7, false, 2 }, { "f", 6, false, 4 }, { "b", 8, false, 1 } }, 3, "f", 3, 8, true, 6, 1, 4 },
	};

	for (size_t i = 0; i < COUNT_OF(ROWS); i++) {
		static struct pool_node nodes[NODES_MAX];
		struct space_room room;

		for (size_t n = 0; n < ROWS[i].node_count; n++) {
			nodes[n] = (struct pool_node){ .free_bytes = ROWS[i].nodes[n].free_bytes,
						       .floor_bytes = ROWS[i].nodes[n].floor_bytes,
						       .takes_work = !ROWS[i].nodes[n].is_out };
			(void)snprintf(nodes[n].fs_name, sizeof(nodes[n].fs_name), "%s", ROWS[i].nodes[n].fs);
		}
		space_room(nodes, ROWS[i].node_count, ROWS[i].final_fs, &room);
		if (room.node_count != ROWS[i].working_count || room.bytes != ROWS[i].bytes ||
		    room.is_final_shared != ROWS[i].is_final_shared || room.final_bytes != ROWS[i].final_bytes ||
		    room.kept_bytes != ROWS[i].kept_bytes || room.final_kept_bytes != ROWS[i].final_kept_bytes)
			fail_msg("row %zu: %zu nodes, %llu bytes, %llu with the final store", i, room.node_count,
				 (unsigned long long)room.bytes, (unsigned long long)room.final_bytes);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(each_file_system_counts_once) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
