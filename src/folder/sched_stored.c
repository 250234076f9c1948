/* What was stored, given back: the manifest that lies beside the final folder, and the bytes of the folder's files. A client names a file by its
 * entry's number and never by a path, so no path of a client is ever opened. */
#include "folder/sched_audit.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "folder/walk.h"
#include "sys/fs.h"
#include "wire/manifest.h"

#define SHOWN_SIZE 300

static int find_completed(struct sched_call *c, struct store_transfer *ret_transfer)
{
	int result = sched_find(c, ret_transfer);

	if (result < 0)
		return result;
	if (ret_transfer->state != TRANSFER_COMPLETED)
		return err_set(&c->err, ERR_STATE, "transfer %s is %s: only what is completed can be fetched",
			       ret_transfer->id, transfer_state_name(ret_transfer->state));
	return 0;
}

/* --- ranges --- */

enum range { RANGE_WHOLE, RANGE_PART, RANGE_BAD };

/* Of "bytes=FIRST-LAST", "bytes=FIRST-" and "bytes=-COUNT" (RFC 9110 14.2). Whatever else there is, several ranges too, may be ignored, and is. */
static enum range read_range(struct str text, uint64_t size, uint64_t *ret_first, uint64_t *ret_size)
{
	struct str prefix = STR("bytes="), first_text;
	uint64_t first = 0, last = UINT64_MAX;
	const char *dash;

	*ret_first = 0;
	*ret_size = size;
	if (!str_starts(text, prefix))
		return RANGE_WHOLE;
	text = str_trim((struct str){ text.data + prefix.size, text.size - prefix.size });
	dash = text.size > 0 ? memchr(text.data, '-', text.size) : NULL;
	if (!dash)
		return RANGE_WHOLE;
	first_text = (struct str){ text.data, (size_t)(dash - text.data) };
	struct str last_text = { dash + 1, text.size - first_text.size - 1 };
	if (last_text.size > 0 && !str_to_u64(last_text, &last))
		return RANGE_WHOLE;
	if (first_text.size == 0) {
		if (last_text.size == 0)
			return RANGE_WHOLE;
		*ret_size = last < size ? last : size;
		*ret_first = size - *ret_size;
		return *ret_size > 0 ? RANGE_PART : RANGE_BAD;
	}
	if (!str_to_u64(first_text, &first) || first > last)
		return RANGE_WHOLE;
	if (first >= size)
		return RANGE_BAD;
	*ret_first = first;
	*ret_size = (last < size - 1 ? last : size - 1) - first + 1;
	return RANGE_PART;
}

/* What is asked for of so many bytes: status, offset and size of the answer. */
static int choose_range(struct sched_call *c, uint64_t size)
{
	enum range range = RANGE_WHOLE;

	c->file_offset = 0;
	c->file_bytes = size;
	/* Nothing here names a version, so a condition on one cannot be met: the whole, as RFC 9110 13.1.5 has it. */
	if (http_header(c->call, "If-Range").size == 0)
		range = read_range(http_header(c->call, "Range"), size, &c->file_offset, &c->file_bytes);
	if (range == RANGE_PART) {
		c->status = 206;
		snprintf(c->content_range, sizeof(c->content_range), "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64,
			 c->file_offset, c->file_offset + c->file_bytes - 1, size);
	} else if (range == RANGE_BAD) {
		snprintf(c->content_range, sizeof(c->content_range), "bytes */%" PRIu64, size);
		return err_set(&c->err, ERR_RANGE, "there are only %" PRIu64 " bytes", size);
	}
	return 0;
}

/* The call's answer becomes the file, or the range of it that is asked for. Takes the descriptor. */
static int give_file(struct sched_call *c, int fd, uint64_t size)
{
	c->file_fd = fd;
	return choose_range(c, size);
}

/* --- the audit: who has got what --- */

/* Durable before the first byte leaves. */
static int record(struct sched_call *c, const struct pulled_who *who, const char *what)
{
	struct store *store = c->sched->store;
	char detail[sizeof(who->host) + sizeof("from ")];
	struct sched_audit_room room;
	struct store_audit row;

	snprintf(detail, sizeof(detail), "from %s", who->host);
	sched_audit_note(c, "pulled", what, who->transfer_id, detail, &row, &room);
	int result = store->ops->audit(store, &row, &c->err);
	if (result == 0)
		return 0;
	/* Nothing was given; the next request is to be recorded. */
	pulled_ends(&c->sched->pulled, who);
	return err_wrap(&c->err, "recording who fetches transfer %s", who->transfer_id);
}

/* --- the manifest --- */

static int run_manifest(struct sched_call *c)
{
	struct store_transfer transfer;
	struct stat st;
	int result = find_completed(c, &transfer);

	if (result < 0)
		return result;
	int fd = merge_open_manifest(c->sched->merge, &transfer, &c->err);
	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0) {
		int saved_errno = errno;
		fs_close(&fd);
		return err_sys(&c->err, ERR_SYSTEM, saved_errno, "cannot look at the manifest");
	}
	struct pulled_who who;
	pulled_who_set(&who, transfer.id, c->user->name, http_peer(c->call));
	pulled_ends(&c->sched->pulled, &who);
	result = record(c, &who, "manifest");
	if (result < 0) {
		fs_close(&fd);
		return result;
	}
	c->type = "text/plain; charset=us-ascii";
	return give_file(c, fd, (uint64_t)st.st_size);
}

void sched_begin_manifest(struct http_call *call, void *app)
{
	struct sched_call *c = sched_client_call(call, app, run_manifest);

	if (c)
		sched_call_go(c);
}

/* --- a file --- */

struct wanted_file {
	bool is_found;
	char type;
	uint64_t size_bytes;
	char digest[DIGEST_HEX_SIZE];
	char path[MANIFEST_PATH_MAX + 1];
};

static int on_entry(void *owner, const struct store_entry *entry)
{
	struct wanted_file *wanted = owner;

	wanted->is_found = str_copy(entry->path, wanted->path, sizeof(wanted->path));
	wanted->type = entry->type;
	wanted->size_bytes = entry->size_bytes;
	memcpy(wanted->digest, entry->digest, sizeof(wanted->digest));
	return 1;
}

static int find_file(struct sched_call *c, const struct store_transfer *transfer, struct wanted_file *ret_wanted)
{
	struct store *store = c->sched->store;
	struct str text = http_param(c->call, "seq");
	char shown[64];
	uint64_t seq;

	*ret_wanted = (struct wanted_file){ .is_found = false };
	if (!str_to_u64(text, &seq))
		return err_set(&c->err, ERR_BAD_REQUEST, "'%s' is not the number of an entry",
			       str_display(text, shown, sizeof(shown)));
	if (seq < transfer->entry_count) {
		int result = store->ops->entries(store, transfer->id, seq, seq, on_entry, ret_wanted, &c->err);
		if (result < 0)
			return err_wrap(&c->err, "looking up entry %" PRIu64 " of transfer %s", seq, transfer->id);
	}
	if (!ret_wanted->is_found || ret_wanted->type != MANIFEST_FILE)
		return err_set(&c->err, ERR_BAD_REQUEST, "entry %" PRIu64 " of transfer %s is not a file", seq,
			       transfer->id);
	return 0;
}

/* The file as it was stored, or in words what became of it. */
static int open_file(struct sched_call *c, int batch_fd, const struct wanted_file *wanted)
{
	char shown[SHOWN_SIZE];
	struct stat st;

	str_display(str_from(wanted->path), shown, sizeof(shown));
	/* Without O_NONBLOCK the opening of a pipe that somebody put there would never end. */
	AUTO(fs_close) int fd = walk_open(batch_fd, wanted->path, O_RDONLY | O_NONBLOCK, WALK_LINKS_KEEP);
	if (fd == -ENOENT || fd == -ENOTDIR || fd == -ELOOP)
		return err_set(&c->err, ERR_INTEGRITY, "'%s' is no longer in the final folder", shown);
	if (fd < 0)
		return err_sys(&c->err, ERR_SYSTEM, -fd, "cannot open '%s' in the final folder", shown);
	if (fstat(fd, &st) < 0)
		return err_sys(&c->err, ERR_SYSTEM, errno, "cannot look at '%s' in the final folder", shown);
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != wanted->size_bytes)
		return err_set(&c->err, ERR_INTEGRITY, "'%s' was changed in the final folder", shown);
	/* On a plain file it would make io_uring give up where it should wait for the disk. */
	if (fcntl(fd, F_SETFL, 0) < 0)
		return err_sys(&c->err, ERR_SYSTEM, errno, "cannot prepare '%s' for reading", shown);
	int result = fd;
	fd = -1;
	return result;
}

/* In a folder that is not the one that was put there (it came back from a backup, or from anywhere): no byte is given but what was stored. */
static int check_content(struct sched_call *c, const struct store_transfer *transfer, const struct wanted_file *wanted,
			 int fd)
{
	char found[DIGEST_HEX_SIZE], shown[SHOWN_SIZE];
	int result = fs_digest(fd, transfer->digest, found, &c->err);

	str_display(str_from(wanted->path), shown, sizeof(shown));
	if (result < 0)
		return err_wrap(&c->err, "comparing '%s' with what was stored", shown);
	if (strcmp(found, wanted->digest) != 0)
		return err_set(&c->err, ERR_INTEGRITY, "'%s' in the final folder is not what was stored", shown);
	return 0;
}

/* From the bucket, a stretch at a time: so many bytes wait here for the client to take them. */
static int give_from_bucket(struct sched_call *c, const struct store_transfer *transfer,
			    const struct wanted_file *wanted)
{
	int result = choose_range(c, wanted->size_bytes);

	if (result < 0)
		return result;
	if (c->file_bytes > SCHED_BUCKET_RANGE_MAX) {
		err_set(&c->err, ERR_LIMIT, "%" PRIu64 " bytes are more than are given of a bucket at a time",
			c->file_bytes);
		err_hint(&c->err, "ask for ranges of at most %" PRIu64 " bytes", SCHED_BUCKET_RANGE_MAX);
		c->content_range[0] = '\0';
		return -ERR_LIMIT;
	}
	c->file_fd = final_s3_open_range(c->sched->merge, transfer, str_from(wanted->path), c->file_offset,
					 c->file_bytes, &c->err);
	c->file_offset = 0;
	return c->file_fd < 0 ? c->file_fd : 0;
}

static int record_pull(struct sched_call *c, const struct store_transfer *transfer)
{
	struct pulled_who who;

	pulled_who_set(&who, transfer->id, c->user->name, http_peer(c->call));
	return pulled_begins(&c->sched->pulled, &who, clock_mono_us()) ? record(c, &who, "files") : 0;
}

static int run_file(struct sched_call *c)
{
	struct store_transfer transfer;
	struct wanted_file wanted;
	bool is_same = false;
	int result = find_completed(c, &transfer);

	if (result == 0)
		result = find_file(c, &transfer, &wanted);
	if (result < 0)
		return result;
	c->type = "application/octet-stream";
	if (merge_is_bucket(c->sched->merge)) {
		result = record_pull(c, &transfer);
		return result < 0 ? result : give_from_bucket(c, &transfer, &wanted);
	}
	AUTO(fs_close) int batch_fd = merge_open_batch(c->sched->merge, &transfer, &is_same, &c->err);
	if (batch_fd < 0)
		return batch_fd;
	int fd = open_file(c, batch_fd, &wanted);
	if (fd < 0)
		return fd;
	if (!is_same)
		result = check_content(c, &transfer, &wanted, fd);
	if (result == 0)
		result = record_pull(c, &transfer);
	if (result < 0) {
		fs_close(&fd);
		return result;
	}
	return give_file(c, fd, wanted.size_bytes);
}

void sched_begin_file(struct http_call *call, void *app)
{
	struct sched_call *c = sched_client_call(call, app, run_file);

	if (c)
		sched_call_go(c);
}
