#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "folder/disk_inside.h"
#include "base/clock.h"
#include "base/rng.h"

#define REQUEST_ID_MAX 40
#define FILE_MODE      0600

struct disk_put {
	struct disk *disk;
	struct disk_put *next; /* in its bucket of turns; disk->lock */
	struct hash128 key;
	char transfer_id[ULID_SIZE];
	char folder[DISK_FOLDER_SIZE]; /* tmp/<transfer>/<file> */
	char name[DISK_NAME_SIZE], part_name[DISK_NAME_SIZE];
	uint64_t size_bytes, written_bytes;
	uint64_t reserved_bytes;  /* disk->lock */
	bool has_turn, is_fenced; /* disk->lock */
	bool is_busy;             /* in a call now: not silent; disk->lock */
	int64_t active_mono_us;   /* disk->lock */
	uint64_t remove_count;    /* the disk's when the folder was opened */
	enum digest_kind kind;
	char digest_hex[DIGEST_HEX_SIZE];
	struct digest *digest;
	int dir_fd, fd;
	bool is_part_there;
	bool ends_in_hole; /* the file is shorter than what was written to it */
};

/* --- names --- */

static bool is_request_id(const char *text)
{
	const size_t size = text ? strlen(text) : 0;

	if (size == 0 || size > REQUEST_ID_MAX)
		return false;
	return strspn(text, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz._-") == size;
}

/* Names on disk are made of these and nothing else. */
static int check_ids(const struct disk_chunk *chunk, struct err *err)
{
	if (!ulid_is_valid(chunk->transfer_id, strlen(chunk->transfer_id)))
		return err_set(err, ERR_BAD_REQUEST, "the transfer id is not a ULID");
	if (!is_request_id(chunk->request_id))
		return err_set(err, ERR_BAD_REQUEST, "the request id is not 1 to %d of A-Z a-z 0-9 . _ -",
			       REQUEST_ID_MAX);
	if (!digest_hex_is_valid(chunk->digest, str_from(chunk->digest_hex)))
		return err_set(err, ERR_BAD_REQUEST, "the digest is not a %s digest in lower-case hex",
			       digest_name(chunk->digest));
	return 0;
}

/* --- turns and reservations --- */

static int admit(struct disk *disk, struct disk_put *put, struct err *err)
{
	struct fs_space space;
	char free_text[32], need_text[32], floor_text[32];
	int r = fs_space(disk->root_fd, &space, err);

	if (r < 0)
		return disk_fail(disk, err, "cannot tell the free space");
	pthread_mutex_lock(&disk->lock);
	if (disk->is_failed) {
		r = err_set(err, ERR_DISK, "the node's disk failed and is out of use: %s", disk->failure);
	} else if (!disk_has_room(disk, &space, put->size_bytes)) {
		disk->refused_bytes = put->size_bytes;
		r = err_set(err, ERR_DISK_LOW,
			    "the node's disk is low: %s free, %s promised or kept free, the chunk needs %s",
			    size_display(space.free_bytes, free_text, sizeof(free_text)),
			    size_display(disk->reserved_bytes + disk_floor_bytes(disk, &space), floor_text,
					 sizeof(floor_text)),
			    size_display(put->size_bytes, need_text, sizeof(need_text)));
		err_hint(err, "free space on that node, or lower its free_floor; other nodes go on meanwhile");
	} else {
		put->reserved_bytes = put->size_bytes;
		disk->reserved_bytes += put->size_bytes;
	}
	pthread_mutex_unlock(&disk->lock);
	return r;
}

static struct disk_put **turn_place(struct disk *disk, struct hash128 key)
{
	struct disk_put **place = &disk->turns[key.low % DISK_TURN_BUCKETS];

	while (*place && ((*place)->key.low != key.low || (*place)->key.high != key.high))
		place = &(*place)->next;
	return place;
}

bool disk_is_written(struct disk *disk, struct hash128 key, const char *part_name)
{
	const struct disk_put *holder;
	bool result;

	pthread_mutex_lock(&disk->lock);
	holder = *turn_place(disk, key);
	result = holder && strcmp(holder->part_name, part_name) == 0;
	pthread_mutex_unlock(&disk->lock);
	return result;
}

/* disk->lock held. */
static void end_turn(struct disk_put *put)
{
	if (!put->has_turn)
		return;
	struct disk_put **place = turn_place(put->disk, put->key);
	MUST(*place == put);
	*place = put->next;
	put->has_turn = false;
	pthread_cond_broadcast(&put->disk->turn_ended);
}

/* disk->lock held. */
static void end_reservation(struct disk_put *put, uint64_t bytes)
{
	const uint64_t count = bytes < put->reserved_bytes ? bytes : put->reserved_bytes;

	put->reserved_bytes -= count;
	put->disk->reserved_bytes -= count;
}

static int take_turn(struct disk *disk, struct disk_put *put, int64_t wait_us, struct err *err)
{
	const int64_t deadline_us = clock_mono_us() + wait_us;
	int r = 0;

	pthread_mutex_lock(&disk->lock);
	for (;;) {
		struct disk_put **place = turn_place(disk, put->key);
		struct disk_put *holder = *place;
		const int64_t now_us = clock_mono_us();

		/* A sender that vanished without a word must not keep the chunk from the one who came back. */
		if (holder && !holder->is_busy && now_us - holder->active_mono_us >= disk->silence_us) {
			holder->is_fenced = true;
			end_turn(holder);
			holder = NULL;
			place = turn_place(disk, put->key);
		}
		if (!holder) {
			put->has_turn = true;
			put->active_mono_us = now_us;
			*place = put;
			break;
		}
		if (now_us >= deadline_us) {
			r = err_set(err, ERR_BUSY, "another request is writing this chunk right now");
			break;
		}
		/* A silent holder wakes nobody, so look again from time to time. */
		const int64_t until_us = min_i64(deadline_us, now_us + SEC_US / 4);
		const struct timespec until = { .tv_sec = until_us / SEC_US, .tv_nsec = until_us % SEC_US * 1000 };
		pthread_cond_timedwait(&disk->turn_ended, &disk->lock, &until);
	}
	pthread_mutex_unlock(&disk->lock);
	return r;
}

/* Marks the put as being worked on, so that it is not taken for silent; refuses when it has been fenced off. */
static int put_enter(struct disk_put *put, struct err *err)
{
	int r = 0;

	pthread_mutex_lock(&put->disk->lock);
	if (put->is_fenced)
		r = err_set(err, ERR_BUSY, "a newer request took over the writing of this chunk");
	else
		put->is_busy = true;
	pthread_mutex_unlock(&put->disk->lock);
	return r;
}

static void put_leave(struct disk_put *put, uint64_t written_bytes)
{
	pthread_mutex_lock(&put->disk->lock);
	put->is_busy = false;
	put->active_mono_us = clock_mono_us();
	end_reservation(put, written_bytes);
	pthread_mutex_unlock(&put->disk->lock);
}

/* The file first, then the turn: whoever has the turn next must not meet it. */
static void put_free(struct disk_put **put)
{
	struct disk_put *p = *put;

	if (p->is_part_there)
		(void)unlinkat(p->dir_fd, p->part_name, 0);
	fs_close(&p->fd);
	fs_close(&p->dir_fd);
	pthread_mutex_lock(&p->disk->lock);
	end_reservation(p, p->reserved_bytes);
	end_turn(p);
	pthread_mutex_unlock(&p->disk->lock);
	if (p->digest)
		digest_free(&p->digest);
	free(p);
	*put = NULL;
}

/* --- beginning --- */

static struct disk_put *put_new(struct disk *disk, const struct disk_chunk *chunk)
{
	struct disk_put *put = must_zalloc(1, sizeof(*put));

	put->disk = disk;
	put->fd = -1;
	put->dir_fd = -1;
	put->size_bytes = chunk->size_bytes;
	put->kind = chunk->digest;
	(void)snprintf(put->transfer_id, sizeof(put->transfer_id), "%s", chunk->transfer_id);
	(void)snprintf(put->digest_hex, sizeof(put->digest_hex), "%s", chunk->digest_hex);
	disk_folder_path(chunk->transfer_id, chunk->file_id, put->folder, sizeof(put->folder));
	disk_chunk_name(chunk->transfer_id, chunk->file_id, chunk->chunk_index, put->name,
			sizeof(put->name) - REQUEST_ID_MAX - 1);
	(void)snprintf(put->part_name, sizeof(put->part_name), "%.*s.%s",
		       (int)sizeof(put->part_name) - REQUEST_ID_MAX - 2, put->name, chunk->request_id);
	put->key = disk_name_key(put->name);
	return put;
}

/* A name that is missing after a removal began is nobody's fault; every other failure is the disk's. */
static int put_fail(struct disk_put *put, struct err *err, const char *doing)
{
	struct disk *disk = put->disk;
	bool is_removed;

	pthread_mutex_lock(&disk->lock);
	is_removed = disk->removing_count > 0 || disk->remove_count != put->remove_count;
	pthread_mutex_unlock(&disk->lock);
	if (is_removed && err->sys_errno == ENOENT)
		return err_set(err, ERR_NO_TRANSFER, "transfer %s was removed while this chunk came", put->transfer_id);
	return disk_fail(disk, err, doing);
}

static int open_folder(struct disk_put *put, struct err *err)
{
	struct disk *disk = put->disk;
	struct err first = ERR_INIT;

	pthread_mutex_lock(&disk->lock);
	put->remove_count = disk->remove_count;
	pthread_mutex_unlock(&disk->lock);
	put->dir_fd = fs_open_beneath(disk->root_fd, put->folder, O_RDONLY | O_DIRECTORY, 0, &first);
	if (put->dir_fd < 0 && first.sys_errno == ENOENT) {
		if (fs_make_dirs_at(disk->root_fd, put->folder, err) < 0)
			return put_fail(put, err, "cannot make the chunk's folder");
		put->dir_fd = fs_open_beneath(disk->root_fd, put->folder, O_RDONLY | O_DIRECTORY, 0, &first);
	}
	if (put->dir_fd >= 0)
		return 0;
	*err = first;
	return put_fail(put, err, "cannot open the chunk's folder");
}

/* Is the chunk here already? DISK_HAVE, DISK_WRITE (absent, or what is there has rotted and is to be replaced), or a refusal. */
static int look(struct disk_put *put, struct err *err)
{
	struct disk *disk = put->disk;
	AUTO(fs_close) int fd = openat(put->dir_fd, put->name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	char found_hex[DIGEST_HEX_SIZE], written_hex[DIGEST_HEX_SIZE];
	struct stat stat;

	if (fd < 0 && errno == ENOENT)
		return DISK_WRITE;
	if (fd < 0 || fstat(fd, &stat) < 0) {
		err_sys(err, ERR_DISK, errno, "cannot open '%s'", put->name);
		return disk_fail(disk, err, "cannot look at the stored chunk");
	}
	if (fs_digest(fd, put->kind, found_hex, err) < 0)
		return disk_fail(disk, err, "cannot read the stored chunk");
	if ((uint64_t)stat.st_size == put->size_bytes && strcmp(found_hex, put->digest_hex) == 0)
		return DISK_HAVE;
	/* We wrote what the sender has, and now read something else: the bytes on the disk changed under us. The rename replaces them. */
	if (disk_written_digest(disk, put->key, fd, put->kind, written_hex) &&
	    strcmp(written_hex, put->digest_hex) == 0)
		return DISK_WRITE;
	err_set(err, ERR_DIGEST_CONFLICT, "this chunk is stored here already with other bytes (%s %s)",
		digest_name(put->kind), found_hex);
	err_hint(err, "the file changed while it was sent, or two clients send different folders as one: read the "
		      "transfer's state again");
	return -ERR_DIGEST_CONFLICT;
}

static int open_part(struct disk_put *put, struct err *err)
{
	/* Request ids are new each time; one that comes twice is refused rather than mixed with the other. */
	put->fd = openat(put->dir_fd, put->part_name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, FILE_MODE);
	if (put->fd < 0) {
		err_sys(err, ERR_DISK, errno, "cannot make '%s'", put->part_name);
		return put_fail(put, err, "cannot begin a chunk");
	}
	put->is_part_there = true;
	put->digest = digest_new(put->kind);
	return DISK_WRITE;
}

/* The names above a new chunk are as much a part of it as its bytes. Each is synced once, by whoever commits there first. */
static int sync_folders(struct disk_put *put, struct err *err)
{
	struct disk *disk = put->disk;
	char transfer_path[DISK_FOLDER_SIZE];
	bool is_file_known, is_transfer_known;
	int r;

	(void)snprintf(transfer_path, sizeof(transfer_path), "tmp/%s", put->transfer_id);
	pthread_mutex_lock(&disk->lock);
	is_file_known = disk->removing_count == 0 && memo_is_durable(disk->memo, disk_name_key(put->folder));
	is_transfer_known = disk->removing_count == 0 && memo_is_durable(disk->memo, disk_name_key(transfer_path));
	pthread_mutex_unlock(&disk->lock);

	r = fs_sync_dir(put->dir_fd, put->folder, err);
	if (r == 0 && !is_file_known) {
		AUTO(fs_close) int fd = fs_open_beneath(disk->root_fd, transfer_path, O_RDONLY | O_DIRECTORY, 0, err);

		r = fd < 0 ? fd : fs_sync_dir(fd, transfer_path, err);
	}
	if (r == 0 && !is_transfer_known)
		r = fs_sync_dir(disk->tmp_fd, "tmp", err);
	if (r < 0)
		return r;
	pthread_mutex_lock(&disk->lock);
	/* A removal in between took names away, perhaps those we just synced. */
	if (disk->removing_count == 0 && put->remove_count == disk->remove_count) {
		memo_set_durable(disk->memo, disk_name_key(put->folder));
		memo_set_durable(disk->memo, disk_name_key(transfer_path));
	}
	pthread_mutex_unlock(&disk->lock);
	return 0;
}

/* The chunk is here. But if it was not this process that wrote it, a crash may have come between its rename and the sync of its folder, and its
 * name may yet be lost. */
static int confirm(struct disk_put *put, struct err *err)
{
	struct disk *disk = put->disk;
	char hex[DIGEST_HEX_SIZE];

	if (disk_remembered_digest(disk, put->key, put->kind, hex) && strcmp(hex, put->digest_hex) == 0)
		return DISK_HAVE;
	if (sync_folders(put, err) < 0)
		return put_fail(put, err, "cannot sync the folder of a stored chunk");
	pthread_mutex_lock(&disk->lock);
	memo_set_digest(disk->memo, put->key, put->kind, put->digest_hex);
	pthread_mutex_unlock(&disk->lock);
	return DISK_HAVE;
}

/* Still in the chunk's turn: who would remove it has either done so before it was looked for, or sees this. */
static void tell(struct disk_put *put)
{
	pthread_mutex_lock(&put->disk->lock);
	memo_tell(put->disk->memo, put->key);
	pthread_mutex_unlock(&put->disk->lock);
}

uint64_t disk_told_count(struct disk *disk)
{
	pthread_mutex_lock(&disk->lock);
	const uint64_t count = memo_told_count(disk->memo);
	pthread_mutex_unlock(&disk->lock);
	return count;
}

int disk_begin(struct disk *disk, const struct disk_chunk *chunk, struct disk_put **ret_put, struct err *err)
{
	struct err local = ERR_INIT;
	struct err *to = err ? err : &local;
	struct disk_put *put;
	int r;

	*ret_put = NULL;
	r = check_ids(chunk, to);
	if (r < 0)
		return r;
	put = put_new(disk, chunk);
	r = admit(disk, put, to);
	if (r == 0)
		r = take_turn(disk, put, chunk->turn_wait_us, to);
	if (r == 0)
		r = put_enter(put, to);
	if (r == 0)
		r = open_folder(put, to);
	if (r == 0)
		r = look(put, to);
	if (r == DISK_HAVE)
		r = confirm(put, to);
	if (r == DISK_HAVE)
		tell(put);
	if (r == DISK_WRITE)
		r = open_part(put, to);
	if (r != DISK_WRITE) {
		put_free(&put);
		return r;
	}
	put_leave(put, 0);
	*ret_put = put;
	return DISK_WRITE;
}

/* --- writing and committing --- */

int disk_write(struct disk_put *put, const void *data, size_t size, struct err *err)
{
	struct err local = ERR_INIT;
	struct err *to = err ? err : &local;
	int r;

	if (size > put->size_bytes - put->written_bytes)
		return err_set(to, ERR_CHUNK_SIZE, "more than the %" PRIu64 " bytes of the chunk came",
			       put->size_bytes);
	r = put_enter(put, to);
	if (r < 0)
		return r;
	digest_feed(put->digest, data, size);
	r = fs_write_sparse(put->fd, data, size, (int64_t)put->written_bytes, &put->ends_in_hole, to);
	if (r < 0)
		r = disk_fail(put->disk, to, "cannot write a chunk");
	else
		put->written_bytes += size;
	put_leave(put, size);
	return r;
}

static int compare(struct disk_put *put, struct err *err)
{
	char found_hex[DIGEST_HEX_SIZE];

	if (put->written_bytes != put->size_bytes)
		return err_set(err, ERR_TRUNCATED, "the chunk ended after %" PRIu64 " of %" PRIu64 " bytes",
			       put->written_bytes, put->size_bytes);
	digest_hex(put->digest, found_hex);
	if (strcmp(found_hex, put->digest_hex) == 0)
		return 0;
	err_set(err, ERR_DIGEST_MISMATCH, "the chunk's bytes arrived with %s %s instead of %s", digest_name(put->kind),
		found_hex, put->digest_hex);
	err_hint(err, "nothing of it was kept: send the chunk again");
	return -ERR_DIGEST_MISMATCH;
}

/* Synced before it gets its name: a crash leaves a whole chunk of that name or none. */
static int make_durable(struct disk_put *put, struct err *err)
{
	int r;

	disk_keep_digest(put->fd, put->kind, put->digest_hex);
	if (put->ends_in_hole && fs_set_size(put->fd, put->size_bytes, err) < 0)
		return disk_fail(put->disk, err, "cannot end a chunk");
	r = fs_sync_data(put->fd, put->part_name, err);
	if (r < 0)
		return disk_fail(put->disk, err, "cannot sync a chunk");
	r = fs_rename(put->dir_fd, put->part_name, put->dir_fd, put->name, false, err);
	if (r < 0)
		return put_fail(put, err, "cannot name a chunk");
	put->is_part_there = false;
	r = sync_folders(put, err);
	if (r < 0) {
		(void)unlinkat(put->dir_fd, put->name, 0);
		return put_fail(put, err, "cannot sync the folder of a chunk");
	}
	return 0;
}

int disk_commit(struct disk_put **put, struct err *err)
{
	struct disk_put *p = *put;
	struct disk *disk = p->disk;
	struct err local = ERR_INIT;
	struct err *to = err ? err : &local;
	int r = put_enter(p, to);

	if (r == 0)
		r = compare(p, to);
	if (r == 0)
		r = make_durable(p, to);
	if (r == 0) {
		pthread_mutex_lock(&disk->lock);
		memo_set_digest(disk->memo, p->key, p->kind, p->digest_hex);
		disk->counts.chunks_written++;
		pthread_mutex_unlock(&disk->lock);
	}
	put_free(put);
	return r;
}

void disk_abort(struct disk_put **put)
{
	if (*put)
		put_free(put);
}

/* --- removing --- */

static int remove_file(struct disk_put *put, struct err *err)
{
	int number;

	put->dir_fd = fs_open_beneath(put->disk->root_fd, put->folder, O_RDONLY | O_DIRECTORY, 0, err);
	if (put->dir_fd < 0)
		number = err->sys_errno;
	else
		number = unlinkat(put->dir_fd, put->name, 0) == 0 ? 0 : errno;
	if (number == ENOENT)
		return err_set(err, ERR_CHUNK_GONE, "'%s' is not here", put->name);
	if (number != 0)
		return err_sys(err, ERR_DISK, number, "cannot remove '%s'", put->name);
	pthread_mutex_lock(&put->disk->lock);
	memo_forget_digest(put->disk->memo, put->key);
	pthread_mutex_unlock(&put->disk->lock);
	return 0;
}

static bool was_told(struct disk *disk, const struct disk_put *put, uint64_t told_count)
{
	pthread_mutex_lock(&disk->lock);
	const bool was_told = memo_was_told(disk->memo, put->key, told_count);
	pthread_mutex_unlock(&disk->lock);
	return was_told;
}

/* Takes the chunk's turn like a writer, so that it never removes what somebody writes meanwhile. */
static int remove_in_turn(struct disk *disk, const struct disk_chunk *chunk, bool is_any, uint64_t told_count,
			  struct err *err)
{
	struct disk_put *put;
	int r;

	if (!ulid_is_valid(chunk->transfer_id, strlen(chunk->transfer_id)))
		return err_set(err, ERR_BAD_REQUEST, "the transfer id is not a ULID");
	put = put_new(disk, chunk);
	r = take_turn(disk, put, 0, err);
	if (r == 0)
		r = put_enter(put, err);
	if (r == 0 && !is_any && !disk_may_have(disk, chunk, true))
		r = err_set(err, ERR_DIGEST_CONFLICT, "'%s' is not here, or has other bytes", put->name);
	if (r == 0 && !is_any && was_told(disk, put, told_count))
		r = err_set(err, ERR_STATE, "'%s' has come again since, and stays", put->name);
	if (r == 0)
		r = remove_file(put, err);
	put_free(&put);
	return r;
}

int disk_remove_chunk(struct disk *disk, const char *transfer_id, uint64_t file_id, uint64_t chunk_index,
		      struct err *err)
{
	const struct disk_chunk chunk = { .transfer_id = transfer_id,
					  .file_id = file_id,
					  .chunk_index = chunk_index,
					  .digest_hex = "",
					  .request_id = "" };
	struct err local = ERR_INIT;

	return remove_in_turn(disk, &chunk, true, 0, err ? err : &local);
}

int disk_remove_bytes(struct disk *disk, const struct disk_chunk *chunk, uint64_t told_count, struct err *err)
{
	struct err local = ERR_INIT;

	return remove_in_turn(disk, chunk, false, told_count, err ? err : &local);
}
