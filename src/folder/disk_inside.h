/* What disk.c (the store), disk_put.c (one chunk being written), disk_digest.c, disk_list.c (what is here) and disk_stray.c share. */
#ifndef HENG_FOLDER_DISK_INSIDE_H
#define HENG_FOLDER_DISK_INSIDE_H

#include <pthread.h>

#include "folder/disk.h"
#include "folder/memo.h"

#define DISK_TURN_BUCKETS 256
#define DISK_FOLDER_SIZE  64 /* of tmp/<transfer>/<file> */

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

/* --- names --- */

void disk_chunk_name(const char *transfer_id, uint64_t file_id, uint64_t chunk_index, char *target, size_t target_size);
void disk_folder_path(const char *transfer_id, uint64_t file_id, char *target, size_t target_size);
/* "X.part.<request>": begun and never committed. */
bool disk_is_unfinished(const char *name);
/* By which memo and turns know a chunk (its name) or a folder (its path). */
struct hash128 disk_name_key(const char *text);
/* Calls each(owner, fd of parent, name) for the entries of the folder until it returns something else than 0; dir_fd is taken. */
int disk_each_entry(int dir_fd, int (*each)(void *owner, int dir_fd, const char *name, struct err *err), void *owner,
		    struct err *err);
/* The same for a folder within dir_fd. What is not a folder there is nobody's chunk: left alone. */
int disk_enter(int dir_fd, const char *name, int (*each)(void *owner, int dir_fd, const char *name, struct err *err),
	       void *owner, struct err *err);

/* --- digests (disk_digest.c) --- */

/* As an attribute of the file that is being written. */
void disk_keep_digest(int fd, enum digest_kind kind, const char *digest_hex);
bool disk_attribute_digest(int fd, enum digest_kind kind, char target[DIGEST_HEX_SIZE]);
/* What the memo knows was written, or found, and is durable. */
bool disk_remembered_digest(struct disk *disk, struct hash128 key, enum digest_kind kind, char target[DIGEST_HEX_SIZE]);
/* Of what we once wrote: by the memo, else by the attribute of the chunk's file `fd`. False when neither knows one of that kind. */
bool disk_written_digest(struct disk *disk, struct hash128 key, int fd, enum digest_kind kind,
			 char target[DIGEST_HEX_SIZE]);

/* --- writers (disk_put.c) --- */

/* Is it a writer of this process, which has the chunk's turn, whose file this is? */
bool disk_is_written(struct disk *disk, struct hash128 key, const char *part_name);

/* --- state --- */

/* A failure of the file system becomes the disk's: full is one thing (ERR_DISK_LOW), our own limits another (ERR_BUSY), broken a third
 * (ERR_DISK, which takes the disk out of use). doing: "cannot write a chunk". */
int disk_fail(struct disk *disk, struct err *err, const char *doing);

/* disk->lock held. Does the file system, less what is promised, hold `size_bytes` above the floor? */
bool disk_has_room(const struct disk *disk, const struct fs_space *space, uint64_t size_bytes);

#endif
