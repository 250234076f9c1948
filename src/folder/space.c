#include "folder/space.h"

#include <stdlib.h>
#include <string.h>

/* By file system, and the smallest word on each first. */
static int by_file_system(const void *a, const void *b)
{
	const struct pool_node *left = a, *right = b;
	int order = strcmp(left->fs_name, right->fs_name);

	return order != 0 ? order : (left->free_bytes > right->free_bytes) - (left->free_bytes < right->free_bytes);
}

/* Counts one more file system: `node` has the smallest word on it. A floor above what is free keeps all of it. */
static void add(struct space_room *room, const struct pool_node *node, uint64_t floor_bytes, const char *final_fs)
{
	const uint64_t kept_bytes = floor_bytes < node->free_bytes ? floor_bytes : node->free_bytes;

	if (node->fs_name[0] != '\0' && strcmp(node->fs_name, final_fs) == 0) {
		room->is_final_shared = true;
		room->final_bytes = node->free_bytes;
		room->final_kept_bytes = kept_bytes;
	} else {
		room->bytes = space_add(room->bytes, node->free_bytes);
		room->kept_bytes = space_add(room->kept_bytes, kept_bytes);
	}
}

void space_room(struct pool_node *nodes, size_t node_count, const char *final_fs, struct space_room *ret_room)
{
	const struct pool_node *first = NULL; /* of those on one file system */
	uint64_t floor_bytes = 0;

	*ret_room = (struct space_room){ .node_count = 0 };
	if (node_count > 1)
		qsort(nodes, node_count, sizeof(*nodes), by_file_system);
	for (size_t i = 0; i < node_count; i++) {
		const struct pool_node *node = &nodes[i];

		if (!node->takes_work)
			continue;
		ret_room->node_count++;
		if (!first || node->fs_name[0] == '\0' || strcmp(first->fs_name, node->fs_name) != 0) {
			if (first)
				add(ret_room, first, floor_bytes, final_fs);
			first = node;
			floor_bytes = 0;
		}
		floor_bytes = node->floor_bytes > floor_bytes ? node->floor_bytes : floor_bytes;
	}
	if (first)
		add(ret_room, first, floor_bytes, final_fs);
}
