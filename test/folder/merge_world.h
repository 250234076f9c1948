/* For the tests of merging: a source folder, scripted nodes that hold its chunks, a real store and pool, and the comparison of two trees. */
#ifndef HENG_TEST_MERGE_WORLD_H
#define HENG_TEST_MERGE_WORLD_H

#include <stdatomic.h>

#include "folder/merge.h"
#include "http/server.h"

#define WORLD_NODE_COUNT  2
#define WORLD_CHUNK_BYTES 65536
#define WORLD_KEY         "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

enum world_place { WORLD_PLACE_NONE, WORLD_PLACE_TRUE, WORLD_PLACE_OTHER_FILE };

/* Serves chunk files from a folder, as docs/api.md says, with the faults that a test asks for. */
struct world_node {
	char id[STORE_NODE_ID_SIZE];
	int dir_fd; /* <transfer>_<file>_<chunk> */
	struct http_server *server;
	atomic_int get_count, forget_count, wrong_key_count;
	atomic_bool is_answering_503;
	atomic_int cut_count;  /* so many answers break off in the middle */
	atomic_int busy_count; /* so many removals of a chunk are answered with busy */
	/* What the node says when asked where a chunk lies. */
	atomic_int place; /* enum world_place */
};

struct world {
	char path[64];
	int root_fd, source_fd, final_fd, staging_fd;
	char staging_dir[128], final_dir[128];
	struct store *store;
	struct pool *pool;
	struct merge *merge;
	struct merge_options options;
	struct world_node nodes[WORLD_NODE_COUNT];
	enum digest_kind digest;
	unsigned copies; /* 2: every chunk is put on both nodes */
	struct store_transfer transfer;
};

struct world *world_new(void);
void world_free(struct world **world);
void world_node_start(struct world *world, unsigned index); /* and registers it */
void world_node_stop(struct world *world, unsigned index);

/* A file of the source: bytes made from the seed. */
void world_file(struct world *world, const char *path, size_t size, unsigned seed, unsigned mode, int64_t mtime_ns);
void world_folder(struct world *world, const char *path);
void world_attributes(struct world *world, const char *path, unsigned mode, int64_t mtime_ns);

/* Scans and plans the source, puts every chunk on its node, binds the digests, moves the transfer to merging. */
void world_send(struct world *world, const char *batch);
/* Sends whatever is not stored, and completes again. */
void world_resend(struct world *world);
void world_merge_start(struct world *world);
/* Waits until the transfer is in that state; fails after some seconds. Refreshes world->transfer. */
void world_wait(struct world *world, enum transfer_state state);
/* ... until its note holds the text (anything when text is ""). */
void world_wait_note(struct world *world, const char *text);
void world_wait_job_end(struct world *world); /* until staging is empty */
void world_wait_empty(int dir_fd, const char *what);

bool world_chunk(struct world *world, uint64_t file_id, uint64_t chunk_index, struct store_chunk *ret_chunk);
/* The object that the entry with this path lies in. */
uint64_t world_file_id(struct world *world, const char *path);
struct world_node *world_node_of(struct world *world, const struct store_chunk *chunk);
void world_chunk_name(const struct world *world, const struct store_chunk *chunk, char target[128]);
bool world_chunk_is_there(struct world *world, const struct store_chunk *chunk);
void world_flip_byte(struct world *world, const struct store_chunk *chunk);
size_t world_count_in_state(struct world *world, enum chunk_state state);
size_t world_dir_count(int dir_fd); /* entries, not . and .. */
void world_assert_same_tree(int left_fd, int right_fd);
void world_assert_completed(struct world *world); /* in place, identical, nothing left behind */

#endif
