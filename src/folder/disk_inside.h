/* What disk.c (the store) and disk_put.c (one chunk being written) share. */
#ifndef HENG_FOLDER_DISK_INSIDE_H
#define HENG_FOLDER_DISK_INSIDE_H

#include <pthread.h>

#include "folder/disk.h"
#include "folder/memo.h"

#define DISK_TURN_BUCKETS 256

struct disk {
	char *path, *tmp_path;
	int root_fd, tmp_fd;
	uint64_t free_floor_bytes;
	unsigned free_floor_percent;
	int64_t silence_us;
	pthread_mutex_t lock; /* protects everything below, and the fields of puts that say so */
	pthread_cond_t turn_ended;
	struct disk_put *turns[DISK_TURN_BUCKETS]; /* who has the turn of a chunk */
	struct memo *memo;
	uint64_t reserved_bytes; /* accepted, not yet written */
	uint64_t refused_bytes;  /* the last chunk that found no space: low until as much is free */
	/* Removals of transfers begun or ended: names made durable before one say nothing afterwards. */
	uint64_t remove_count;
	unsigned removing_count; /* removals under way */
	struct disk_counts counts;
	bool is_failed;
	char failure[200];
};

/* A failure of the file system becomes the disk's: full is one thing (ERR_DISK_LOW), our own limits another (ERR_BUSY), broken a third
 * (ERR_DISK, which takes the disk out of use). doing: "cannot write a chunk". */
int disk_fail(struct disk *disk, struct err *err, const char *doing);

/* What is never to be used of such a file system. */
uint64_t disk_floor_bytes(const struct disk *disk, const struct fs_space *space);
/* disk->lock held. Does the file system, less what is promised, hold `size_bytes` above the floor? */
bool disk_has_room(const struct disk *disk, const struct fs_space *space, uint64_t size_bytes);

#endif
