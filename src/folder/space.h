/* How much room the nodes have together. Nodes that share a file system share its room too. */
#ifndef HENG_FOLDER_SPACE_H
#define HENG_FOLDER_SPACE_H

#include "folder/pool.h"

struct space_room {
	size_t node_count;    /* that take work */
	uint64_t bytes;       /* free on their file systems, each counted once, but for the final store's */
	uint64_t kept_bytes;  /* of those: below the nodes' floors, so never used */
	bool is_final_shared; /* some of them are on the final store's file system */
	uint64_t final_bytes; /* free there, by their own word */
	uint64_t final_kept_bytes;
};
/* Nodes that take no work count for nothing. Of several words on one file system the smallest is taken, and the highest floor. A node that does not name its own, and a
 * final store without a name (""), share with nobody. Sorts the nodes. */
void space_room(struct pool_node *nodes, size_t node_count, const char *final_fs, struct space_room *ret_room);
/* Numbers from the network can be large enough to wrap: then the sum is simply "too much". */
static inline uint64_t space_add(uint64_t a, uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }

#endif
