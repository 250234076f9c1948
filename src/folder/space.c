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

void space_room(struct pool_node *nodes, size_t node_count, const char *final_fs, struct space_room *ret_room)
{
	const struct pool_node *last = NULL;

	*ret_room = (struct space_room){ .node_count = 0 };
	if (node_count > 1)
		qsort(nodes, node_count, sizeof(*nodes), by_file_system);
	for (size_t i = 0; i < node_count; i++) {
		const struct pool_node *node = &nodes[i];
		bool is_named = node->fs_name[0] != '\0';

		if (!node->takes_work)
			continue;
		ret_room->node_count++;
		if (is_named && last && strcmp(last->fs_name, node->fs_name) == 0)
			continue;
		last = node;
		if (is_named && strcmp(node->fs_name, final_fs) == 0) {
			ret_room->is_final_shared = true;
			ret_room->final_bytes = node->free_bytes;
		} else {
			ret_room->bytes = space_add(ret_room->bytes, node->free_bytes);
		}
	}
}
