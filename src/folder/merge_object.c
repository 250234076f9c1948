#include "folder/merge_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sys/fs.h"

#define MEMBER_PAGE_COUNT 512
#define MEMBER_PAGE_BYTES (256 * KIB) /* of paths; one more path may pass it */
#define READ_BACK_BYTES   (512 * KIB)
#define WRITE_BACK_BYTES  (8 * MIB)
#define WHY_DISPLAY_SIZE  200

/* A file of the object: the only one, or one of those in a pack. */
struct part {
	uint64_t seq, size_bytes, object_offset;
	uint32_t mode;
	int64_t mtime_ns;
	size_t path_offset, path_size; /* in the page's text */
	uint64_t facts;                /* merge_record_facts */
	char digest[DIGEST_HEX_SIZE];
};

struct merge_target {
	struct merge_run *run;
	struct stage_cursor cursor;
	struct digest *digest; /* of the open file, up to the frontier */
	struct store_object object;
	uint64_t frontier; /* of the object: all before it is written and hashed */
	uint64_t next_seq; /* where the next page of members begins */
	struct part members[MEMBER_PAGE_COUNT];
	size_t member_next, member_count;
	bool is_page_full;
	struct buf paths;
	/* the open file */
	bool is_open;
	bool is_sized; /* it is as long as it will be */
	struct part file;
	int fd;
	uint64_t written_back;
	uint64_t file_count;
	struct merge_records records; /* of a run ahead */
	char *read_back;              /* READ_BACK_BYTES, made when first needed */
};

struct merge_target *merge_target_new(struct merge_run *run)
{
	struct merge_target *target = must_zalloc(1, sizeof(*target));

	target->run = run;
	target->fd = -1;
	target->digest = digest_new(run->transfer.digest);
	target->records.fd = merge_is_ahead(run) ? merge_records_fd(run) : -1;
	target->paths = BUF_INIT(MEMBER_PAGE_BYTES + MANIFEST_PATH_MAX);
	stage_cursor_init(&target->cursor, &run->stage);
	return target;
}

void merge_target_free(struct merge_target **target)
{
	if (!*target)
		return;
	merge_target_abort(*target);
	stage_cursor_fini(&(*target)->cursor);
	digest_free(&(*target)->digest);
	buf_fini(&(*target)->paths);
	merge_records_fini(&(*target)->records);
	free((*target)->read_back);
	free(*target);
	*target = NULL;
}

static struct str member_path(const struct merge_target *target, const struct part *member)
{
	return (struct str){ target->paths.data + member->path_offset, member->path_size };
}

static int integrity(struct merge_target *target, struct err *err, const char *what)
{
	char shown[WHY_DISPLAY_SIZE];

	return err_set(err, ERR_INTEGRITY, "%s '%s'", what,
		       str_display(member_path(target, &target->file), shown, sizeof(shown)));
}

/* --- the list of members, a page at a time: an object may have millions --- */

static int on_entry(void *owner, const struct store_entry *entry)
{
	struct merge_target *target = owner;

	if (entry->type != MANIFEST_FILE || entry->file_id != target->object.file_id)
		return 0;
	if (target->member_count == MEMBER_PAGE_COUNT || target->paths.size >= MEMBER_PAGE_BYTES) {
		target->is_page_full = true;
		return 1;
	}
	struct part *member = &target->members[target->member_count++];
	*member = (struct part){ .seq = entry->seq,
				 .size_bytes = entry->size_bytes,
				 .object_offset = entry->object_offset,
				 .mode = entry->mode,
				 .mtime_ns = entry->mtime_ns,
				 .path_offset = target->paths.size,
				 .path_size = entry->path.size,
				 .facts = target->records.fd < 0 ? 0 : merge_record_facts(entry) };
	memcpy(member->digest, entry->digest, sizeof(member->digest));
	buf_append(&target->paths, entry->path);
	return 0;
}

static int load_members(struct merge_target *target, struct err *err)
{
	struct store *store = target->run->merge->store;

	target->member_next = target->member_count = 0;
	target->is_page_full = false;
	buf_clear(&target->paths);
	if (target->next_seq > target->object.last_seq)
		return 0;
	int result = store->ops->entries(store, target->run->transfer.id, target->next_seq, target->object.last_seq,
					 on_entry, target, err);
	if (result < 0)
		return err_wrap(err, "while reading the files of object %" PRIu64, target->object.file_id);
	if (target->paths.is_failed)
		return err_set(err, ERR_NO_MEMORY, "no memory for the paths of object %" PRIu64,
			       target->object.file_id);
	target->next_seq = target->is_page_full ? target->members[target->member_count - 1].seq + 1
						: target->object.last_seq + 1;
	return 0;
}

/* --- one file --- */

/* What a run ahead put there for an object that it did not finish, or that turned out wrong, makes way. */
static int make_file(struct merge_target *target, struct err *err)
{
	struct str path = member_path(target, &target->file);
	struct err cause = ERR_INIT;

	target->fd = stage_file(&target->cursor, path, target->file.mode, &cause);
	if (target->fd < 0 && cause.sys_errno == EEXIST && target->run->ahead) {
		int result = stage_unlink(&target->cursor, path, err);
		if (result < 0)
			return result;
		target->fd = stage_file(&target->cursor, path, target->file.mode, &cause);
	}
	if (target->fd >= 0)
		return 0;
	if (err)
		*err = cause;
	return target->fd;
}

static int open_next(struct merge_target *target, struct err *err)
{
	if (target->member_next == target->member_count) {
		int result = load_members(target, err);
		if (result < 0)
			return result;
		if (target->member_count == 0)
			return err_set(err, ERR_INTERNAL, "the files of object %" PRIu64 " end before its bytes do",
				       target->object.file_id);
	}
	target->file = target->members[target->member_next++];
	if (target->file.object_offset != target->frontier || target->file.size_bytes == 0 ||
	    target->file.size_bytes > target->object.size_bytes - target->frontier)
		return err_set(err, ERR_INTERNAL,
			       "entry %" PRIu64 " does not lie in object %" PRIu64 " where the plan says",
			       target->file.seq, target->object.file_id);
	int result = make_file(target, err);
	if (result < 0)
		return result;
	target->is_open = true;
	target->is_sized = false;
	target->written_back = 0;
	digest_restart(target->digest);
	return 0;
}

static int end_file(struct merge_target *target, struct err *err)
{
	target->is_open = false;
	target->file_count++;
	return stage_file_end(&target->run->stage, &target->fd, member_path(target, &target->file), target->file.mode,
			      target->file.mtime_ns, err);
}

/* What the bytes should be is not known yet: what they are is kept. */
static int note_file(struct merge_target *target, const char hex[DIGEST_HEX_SIZE], struct err *err)
{
	struct merge_record record = { .facts = target->file.facts };

	merge_record_digest(hex, record.digest);
	int result = end_file(target, err);
	return result < 0 ? result : merge_records_put(&target->records, target->file.seq, &record, err);
}

static int close_file(struct merge_target *target, struct err *err)
{
	char hex[DIGEST_HEX_SIZE];

	digest_hex(target->digest, hex);
	if (target->records.fd >= 0)
		return note_file(target, hex, err);
	if (!target->file.digest[0])
		return integrity(target, err, "no digest of the whole file was given for");
	if (strcmp(hex, target->file.digest) != 0)
		return integrity(target, err, "the digest of the merged bytes differs from the client's for");
	return end_file(target, err);
}

static int write_file(struct merge_target *target, uint64_t object_offset, struct str piece, struct err *err)
{
	uint64_t offset = object_offset - target->file.object_offset;
	bool ends_in_hole = false;

	/* No byte is written twice into one file, so blocks of zeros may stay out. Who reads back must not meet its end too soon. */
	int result = fs_write_sparse(target->fd, piece.data, piece.size, (int64_t)offset, &ends_in_hole, err);
	if (result == 0 && ends_in_hole && !target->is_sized) {
		result = fs_set_size(target->fd, target->file.size_bytes, err);
		target->is_sized = result == 0;
	}
	if (result < 0) {
		char shown[WHY_DISPLAY_SIZE];
		return err_wrap(err, "while writing '%s' into staging",
				str_display(member_path(target, &target->file), shown, sizeof(shown)));
	}
	return 0;
}

/* Large files begin to reach the disk while the rest still comes; the sync at the end then finds little to do. Only a hint, so not checked. */
static void start_write_back(struct merge_target *target)
{
	uint64_t done = target->frontier - target->file.object_offset;

	if (done - target->written_back < WRITE_BACK_BYTES)
		return;
	(void)sync_file_range(target->fd, (off_t)target->written_back, (off_t)(done - target->written_back),
			      SYNC_FILE_RANGE_WRITE);
	target->written_back = done;
}

/* --- the object --- */

int merge_target_begin(struct merge_target *target, const struct store_object *object, struct err *err)
{
	merge_target_abort(target);
	target->object = *object;
	target->frontier = 0;
	target->file_count = 0;
	target->next_seq = object->first_seq;
	target->member_next = target->member_count = 0;
	if (object->is_pack)
		return 0;
	int result = open_next(target, err);
	if (result == 0 && target->file.size_bytes != object->size_bytes)
		return err_set(err, ERR_INTERNAL, "entry %" PRIu64 " is not as long as object %" PRIu64,
			       target->file.seq, object->file_id);
	return result;
}

static int feed_pack(struct merge_target *target, struct str piece, struct err *err)
{
	while (piece.size > 0) {
		int result = target->is_open ? 0 : open_next(target, err);
		if (result < 0)
			return result;
		uint64_t left = target->file.object_offset + target->file.size_bytes - target->frontier;
		struct str now = { piece.data, piece.size < left ? piece.size : (size_t)left };
		result = write_file(target, target->frontier, now, err);
		if (result < 0)
			return result;
		digest_feed(target->digest, now.data, now.size);
		target->frontier += now.size;
		piece.data += now.size;
		piece.size -= now.size;
		if (now.size == left)
			result = close_file(target, err);
		if (result < 0)
			return result;
	}
	return 0;
}

int merge_target_feed(struct merge_target *target, uint64_t offset, struct str piece, struct err *err)
{
	if (target->object.is_pack) {
		MUST(offset == target->frontier);
		return feed_pack(target, piece, err);
	}
	int result = write_file(target, offset, piece, err);
	if (result == 0)
		merge_target_hash(target, offset, piece);
	return result;
}

void merge_target_hash(struct merge_target *target, uint64_t offset, struct str piece)
{
	if (offset != target->frontier)
		return;
	digest_feed(target->digest, piece.data, piece.size);
	target->frontier += piece.size;
	start_write_back(target);
}

bool merge_target_clone(struct merge_target *target, int fd, uint64_t offset, uint64_t size_bytes)
{
	/* Files in a pack do not begin where blocks do. */
	return !target->object.is_pack &&
	       fs_clone_range(fd, 0, size_bytes, target->fd, (int64_t)(offset - target->file.object_offset));
}

uint64_t merge_target_frontier(const struct merge_target *target) { return target->frontier; }

/* The bytes are in the page cache: they were written a moment ago. */
static int hash_written(struct merge_target *target, struct digest *digest, uint64_t offset, uint64_t end,
			struct err *err)
{
	if (!target->read_back)
		target->read_back = must_alloc(READ_BACK_BYTES);
	while (offset < end) {
		size_t want = (size_t)min_i64((int64_t)(end - offset), (int64_t)READ_BACK_BYTES), got = 0;
		int result = fs_read_all(target->fd, target->read_back, want, (int64_t)offset, &got, err);
		if (result < 0)
			return err_wrap(err, "while reading a staged file back");
		if (got != want)
			return err_set(err, ERR_SYSTEM, "a staged file is shorter than what was written to it");
		digest_feed(digest, target->read_back, got);
		offset += got;
	}
	return 0;
}

int merge_target_catch_up(struct merge_target *target, uint64_t end, struct err *err)
{
	if (target->object.is_pack || end <= target->frontier)
		return 0;
	int result = hash_written(target, target->digest, target->frontier, end, err);
	if (result < 0)
		return result;
	target->frontier = end;
	start_write_back(target);
	return 0;
}

int merge_target_end(struct merge_target *target, struct err *err)
{
	int result = 0;

	if (target->frontier != target->object.size_bytes || (target->object.is_pack && target->is_open))
		return err_set(err, ERR_INTERNAL, "object %" PRIu64 " ended at byte %" PRIu64 " of %" PRIu64,
			       target->object.file_id, target->frontier, target->object.size_bytes);
	if (!target->object.is_pack)
		result = close_file(target, err);
	/* What a run ahead has is counted when it is compared. */
	if (result == 0 && target->records.fd >= 0)
		return merge_records_flush(&target->records, err);
	if (result == 0)
		merge_count(target->run, target->file_count, target->frontier);
	return result;
}

void merge_target_abort(struct merge_target *target)
{
	fs_close(&target->fd);
	target->is_open = false;
	target->records.count = 0;
}

int merge_target_digest(struct merge_target *target, uint64_t offset, uint64_t size, char hex[DIGEST_HEX_SIZE],
			struct err *err)
{
	struct digest *digest = digest_new(target->run->transfer.digest);

	int result = hash_written(target, digest, offset, offset + size, err);
	if (result == 0)
		digest_hex(digest, hex);
	digest_free(&digest);
	return result;
}
