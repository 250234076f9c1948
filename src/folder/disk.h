/* One node's chunk store on one folder. Layout below its root:
 *   tmp/<transferId>/<fileId>/<transferId>_<fileId>_<chunkIndex>.part            a durable chunk
 *   tmp/<transferId>/<fileId>/<transferId>_<fileId>_<chunkIndex>.part.<request>  one being written
 * The file itself is the record: when a chunk is sent again its digest is computed from the bytes that are there. The digest that was written is
 * kept beside them (an extended attribute, and in memory for recent writes), which tells bytes that rotted (replaced) from a sender who has other
 * bytes (refused).
 * A failed write or sync leaves a disk in a state nobody knows: from then on new chunks are refused (ERR_DISK) until disk_check passes.
 * Blocking: pool threads. Thread-safe; writers of the same chunk take turns. */
#ifndef HENG_FOLDER_DISK_H
#define HENG_FOLDER_DISK_H

#include "base/digest.h"
#include "base/err.h"
#include "base/rng.h"
#include "folder/held.h"
#include "sys/fs.h"

#define DISK_NAME_SIZE 192

struct disk;
struct disk_options {
	const char *path;
	uint64_t free_floor_bytes;   /* never go below */
	unsigned free_floor_percent; /* nor below this share of the file system */
	int64_t silence_us;          /* a writer that gives nothing for this long may lose its turn; 0: 2 s */
};
struct disk_chunk {
	const char *transfer_id;
	uint64_t file_id, chunk_index, size_bytes;
	enum digest_kind digest;
	const char *digest_hex;
	const char *request_id; /* 1-40 of A-Za-z0-9._- */
	int64_t turn_wait_us;   /* how long disk_begin may wait for another writer of this chunk; 0: not at all */
};

struct disk_counts {
	uint64_t chunks_written, write_failures; /* since disk_open */
	uint64_t unfinished_removed;             /* by disk_open: files that a former process had begun */
};
void disk_counts(struct disk *disk, struct disk_counts *ret);
/* The directory self-check. Passing closes the breaker, failing opens it (-ERR_DISK; err is the diagnosis). -ERR_DISK_LOW: full, not broken.
 * -ERR_BUSY: it could not be made for want of descriptors or memory, and changes nothing. */
int disk_check(struct disk *disk, struct err *err);
/* Why new chunks are refused since the last failure, which may be later than the last check; "" while they are taken. */
void disk_failure(struct disk *disk, char *target, size_t target_size);

/* Makes the layout, runs the directory self-check, removes every unfinished .part.<request> file. */
int disk_open(const struct disk_options *options, struct disk **ret_disk, struct err *err);
void disk_close(struct disk **disk);
/* Free space less what accepted writes still need; is_low when below the floor. */
int disk_space(struct disk *disk, struct fs_space *ret_space, uint64_t *ret_reserved_bytes, bool *ret_is_low,
	       struct err *err);

struct disk_put; /* one write under way; holds the chunk's turn and its reservation */
enum disk_begin { DISK_WRITE = 0, DISK_HAVE = 1 };
/* In order: space (ERR_DISK_LOW before any byte), the chunk's turn (another writer of the same chunk has it: ERR_BUSY after turn_wait_us; one
 * that has been silent for silence_us loses it to the newcomer, its next call fails with ERR_BUSY),
 * already here? same digest: DISK_HAVE and *ret_put NULL; other digest: -ERR_DIGEST_CONFLICT. Else DISK_WRITE. */
int disk_begin(struct disk *disk, const struct disk_chunk *chunk, struct disk_put **ret_put, struct err *err);
int disk_write(struct disk_put *put, const void *data, size_t size, struct err *err); /* hashes and writes at the end */
/* Size and digest compared (ERR_TRUNCATED, ERR_DIGEST_MISMATCH: file removed), fdatasync, rename, fsync of the folder(s). Frees put either way. */
int disk_commit(struct disk_put **put, struct err *err);
void disk_abort(struct disk_put **put); /* removes the file, ends the turn */

/* What is never to be used of such a file system. */
uint64_t disk_floor_bytes(const struct disk *disk, const struct fs_space *space);

/* The relative path of a chunk, for audit rows and for reading. */
void disk_chunk_path(const char *transfer_id, uint64_t file_id, uint64_t chunk_index, char *target, size_t target_size);
bool disk_has(struct disk *disk, const char *transfer_id, uint64_t file_id, uint64_t chunk_index);
/* False only where it is certain that the chunk was removed, or that others' bytes are in its place. What cannot be looked at just now (no
 * descriptors are left, the disk fails) is as it was. is_read: where nothing else tells what was written, the bytes do. Of `chunk`, request_id and
 * turn_wait_us are not used. */
bool disk_may_have(struct disk *disk, const struct disk_chunk *chunk, bool is_read);
/* Opens a durable chunk for reading: fd and its size, or -ERR_CHUNK_GONE. */
int disk_read(struct disk *disk, const char *transfer_id, uint64_t file_id, uint64_t chunk_index, uint64_t *ret_size,
	      struct err *err);
/* The durable chunks of a transfer within a range, in (file, chunk) order, at most `limit` (ret_chunks has as many places); *ret_more: others follow the
 * last one. Each is as durable as one that was acknowledged: what a former process named is synced first. Digests are those that were written, or are
 * computed from the bytes; that may end a page early. Memory does not grow with the number of chunks. */
int disk_list(struct disk *disk, const char *transfer_id, enum digest_kind kind, const struct held_range *range,
	      size_t limit, struct held_chunk *ret_chunks, size_t *ret_count, bool *ret_more, struct err *err);

/* A file that was begun and never committed: tmp/<transfer_id>/<file_id>/<name>. */
struct disk_stray {
	char transfer_id[ULID_SIZE];
	uint64_t file_id, chunk_index, size_bytes;
	char name[DISK_NAME_SIZE];
};
/* Those that were last written before before_wall_us and are no writer's of this process; at most `limit`. Returns how many, or negative. */
int disk_strays(struct disk *disk, int64_t before_wall_us, struct disk_stray *ret_strays, size_t limit,
		struct err *err);
/* Unless somebody has written it meanwhile. Absent is fine. */
int disk_remove_stray(struct disk *disk, const struct disk_stray *stray, int64_t before_wall_us, struct err *err);

/* One durable chunk. -ERR_CHUNK_GONE when it is not here, -ERR_BUSY while somebody writes it. */
int disk_remove_chunk(struct disk *disk, const char *transfer_id, uint64_t file_id, uint64_t chunk_index,
		      struct err *err);
/* The same, but only with these bytes: -ERR_DIGEST_CONFLICT when others are in their place, which stay. So does a chunk of which disk_begin has said
 * since then (disk_told_count, taken before the scheduler was asked about these bytes) that it is here: whoever sent it again may have been told by now that
 * it is stored, whatever was said of the first attempt. -ERR_STATE. */
int disk_remove_bytes(struct disk *disk, const struct disk_chunk *chunk, uint64_t told_count, struct err *err);
uint64_t disk_told_count(struct disk *disk);
/* All files of a transfer. Absent is fine. */
int disk_remove_transfer(struct disk *disk, const char *transfer_id, struct err *err);
/* Appends the ids of the transfers that have files here, each with a line end; those that `lines` has no room for are left out. */
int disk_transfers(struct disk *disk, struct buf *lines, struct err *err);

#endif
