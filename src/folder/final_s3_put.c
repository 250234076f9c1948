/* One object of a batch: looked for, put in one piece or in parts. */
#include "folder/final_s3.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/log.h"
#include "sys/fs.h"
#include "wire/xml.h"

#define PARTS_AT_ONCE 4
#define READ_BYTES    ((size_t)256 * KIB)
#define COMPLETE_MAX  ((size_t)4 * MIB)
#define STEP_US       (50 * MSEC_US)
#define SHOWN_SIZE    200

/* The object at hand. */
struct object {
	const struct final_s3_entry *entry;
	char key[FINAL_S3_KEY_SIZE];
	char mode[16], mtime[48], digest[DIGEST_HEX_SIZE + 16];
	struct str body; /* of a link; of a file: */
	int fd;
};

/* --- what is said of it --- */

static int name_object(struct final_s3_worker *worker, const struct final_s3_entry *entry, struct object *object,
		       struct err *err)
{
	const struct store_transfer *transfer = &worker->put->run->transfer;
	const int64_t second_ns = 1000000000;
	int64_t seconds = entry->mtime_ns / second_ns, rest_ns = entry->mtime_ns % second_ns;
	unsigned type = entry->type == MANIFEST_DIR ? S_IFDIR : entry->type == MANIFEST_LINK ? S_IFLNK : S_IFREG;

	/* Times before 1970: as other programs write them, the nanoseconds count away from zero too. */
	bool is_negative = entry->mtime_ns < 0;
	*object = (struct object){ .entry = entry, .fd = -1 };
	snprintf(object->mode, sizeof(object->mode), "%o", type | entry->mode);
	snprintf(object->mtime, sizeof(object->mtime), "%s%" PRId64 ".%09" PRId64, is_negative ? "-" : "",
		 is_negative ? -seconds : seconds, is_negative ? -rest_ns : rest_ns);
	if (entry->type == MANIFEST_FILE)
		snprintf(object->digest, sizeof(object->digest), "%s:%s", digest_name(transfer->digest), entry->digest);
	if (entry->type == MANIFEST_LINK)
		object->body = str_from(entry->target);
	int result = final_s3_key(worker->put->final, transfer->batch, entry->path, object->key, err);
	if (result == 0 && entry->type == MANIFEST_DIR)
		memcpy(object->key + strlen(object->key), "/", 2); /* FINAL_S3_KEY_SIZE has room for it */
	return result;
}

static void add_metas(struct s3_call *call, const struct final_s3_worker *worker, const struct object *object)
{
	s3_call_header(call, "x-amz-meta-heng-transfer", str_from(worker->put->run->transfer.id));
	s3_call_header(call, "x-amz-meta-mode", str_from(object->mode));
	s3_call_header(call, "x-amz-meta-mtime", str_from(object->mtime));
	if (object->digest[0] != '\0')
		s3_call_header(call, "x-amz-meta-heng-digest", str_from(object->digest));
}

static uint64_t size_of(const struct object *object)
{
	return object->entry->type == MANIFEST_FILE ? object->entry->size_bytes : object->body.size;
}

/* --- is it there? --- */

int final_s3_whose(struct final_s3_run *put, const struct s3_call *head, struct err *err)
{
	struct store *store = put->run->merge->store;
	const char *id = s3_call_meta(head, "heng-transfer");
	struct store_transfer other;

	if (strcmp(id, put->run->transfer.id) == 0)
		return FINAL_S3_OWN;
	if (!ulid_is_valid(id, strlen(id)))
		return FINAL_S3_FOREIGN;
	int result = store->ops->transfer_get(store, id, &other, err);
	if (result == -ERR_NO_TRANSFER)
		return FINAL_S3_FOREIGN;
	if (result < 0)
		return result;
	return other.state == TRANSFER_FAILED ? FINAL_S3_DEAD : FINAL_S3_FOREIGN;
}

enum look { LOOK_ABSENT, LOOK_RIGHT, LOOK_REPLACE };

static int foreign(const struct object *object, struct err *err)
{
	char shown[SHOWN_SIZE];

	err_set(err, ERR_BATCH_EXISTS, "the bucket has an object '%s' that is not this transfer's",
		str_display(str_from(object->key), shown, sizeof(shown)));
	err_hint(err, "remove it, or push under another batch name");
	return -ERR_BATCH_EXISTS;
}

/* Returns an enum look, or a negative code. */
static int look(struct final_s3_worker *worker, const struct object *object, struct err *err)
{
	struct s3_call call = S3_CALL_INIT;

	call.method = "HEAD";
	call.key = str_from(object->key);
	int result = final_s3_ask(worker, &call, err);
	s3_call_fini(&call);
	if (result == -ERR_FINAL_REFUSED && call.status == 404)
		return LOOK_ABSENT;
	if (result == 0)
		result = final_s3_whose(worker->put, &call, err);
	if (result < 0)
		return result;
	if (result == FINAL_S3_FOREIGN)
		return foreign(object, err);
	bool is_right = result == FINAL_S3_OWN && call.size_bytes == size_of(object) &&
			strcmp(s3_call_meta(&call, "mode"), object->mode) == 0 &&
			strcmp(s3_call_meta(&call, "mtime"), object->mtime) == 0 &&
			strcmp(s3_call_meta(&call, "heng-digest"), object->digest) == 0;
	return is_right ? LOOK_RIGHT : LOOK_REPLACE;
}

/* --- in one piece --- */

static int put_whole(struct final_s3_worker *worker, const struct object *object, bool is_conditional,
		     struct s3_call *call, struct err *err)
{
	const struct store_transfer *transfer = &worker->put->run->transfer;
	char sha256[DIGEST_HEX_SIZE];

	*call = S3_CALL_INIT;
	call->method = "PUT";
	call->key = str_from(object->key);
	add_metas(call, worker, object);
	if (is_conditional)
		s3_call_header(call, "if-none-match", STR("*"));
	if (object->fd >= 0) {
		call->body_fd = object->fd;
		call->body_size = (int64_t)object->entry->size_bytes;
		call->sha256 = object->entry->digest;
		/* What was compared a moment ago is signed as it is. */
		if (transfer->digest != DIGEST_SHA256) {
			int result = fs_digest(object->fd, DIGEST_SHA256, sha256, err);
			if (result < 0)
				return result;
			call->sha256 = sha256;
		}
	} else {
		call->body = object->body;
	}
	int result = final_s3_ask(worker, call, err);
	call->sha256 = NULL;
	s3_call_fini(call);
	return result;
}

/* --- in parts --- */

struct part {
	struct s3_call call;
	char sha256[DIGEST_HEX_SIZE], number[24];
	uint64_t index;
	unsigned try_count;
	int64_t due_us;
	bool is_taken, is_running, is_ended;
};

struct parts {
	struct final_s3_worker *worker;
	const struct object *object;
	char upload_id[512];
	uint64_t part_bytes, count, next, done_count;
	char (*etags)[S3_ETAG_SIZE];
	struct part window[PARTS_AT_ONCE];
	struct digest *digest;
	char *block;
};

/* As many as are allowed, of the configured size or, where there would be more, of whole MiB. */
static uint64_t part_size(uint64_t configured_bytes, uint64_t size_bytes)
{
	uint64_t least = (size_bytes + S3_PARTS_MAX - 1) / S3_PARTS_MAX;

	return least <= configured_bytes ? configured_bytes : (least + MIB - 1) / MIB * MIB;
}

static int begin_parts(struct parts *parts, struct err *err)
{
	struct s3_call call = S3_CALL_INIT;

	call.method = "POST";
	call.key = str_from(parts->object->key);
	s3_call_query(&call, "uploads", STR_NONE);
	add_metas(&call, parts->worker, parts->object);
	int result = final_s3_ask(parts->worker, &call, err);
	if (result == 0 && !xml_find(buf_str(&call.answer), "UploadId", parts->upload_id, sizeof(parts->upload_id)))
		result = err_set(err, ERR_FINAL_STORE, "the bucket began an upload in parts without naming it");
	s3_call_fini(&call);
	return result;
}

static void abort_parts(struct parts *parts)
{
	struct s3_call call = S3_CALL_INIT;
	struct err err = ERR_INIT;

	if (parts->upload_id[0] == '\0')
		return;
	call.method = "DELETE";
	call.key = str_from(parts->object->key);
	call.is_interrupted = &parts->worker->put->run->merge->is_stopping;
	s3_call_query(&call, "uploadId", str_from(parts->upload_id));
	/* What stays is found by the next publishing of the batch. */
	if (s3_do(parts->worker->put->final->s3, parts->worker->fetch, &call, &err) < 0)
		log_err(LOG_WARN, &err, "an upload in parts could not be taken back now");
	s3_call_fini(&call);
}

static void part_ended(struct s3_call *call)
{
	struct part *part = call->owner;

	part->is_running = false;
	part->is_ended = true;
}

static int hash_part(struct parts *parts, struct part *part, uint64_t offset, uint64_t size, struct err *err)
{
	digest_restart(parts->digest);
	for (uint64_t at = 0; at < size;) {
		size_t got = 0, want = (size_t)(size - at < READ_BYTES ? size - at : READ_BYTES);
		int result = fs_read_all(parts->object->fd, parts->block, want, (int64_t)(offset + at), &got, err);
		if (result < 0)
			return result;
		if (got < want)
			return err_set(err, ERR_SYSTEM, "a file in staging has become shorter");
		digest_feed(parts->digest, parts->block, got);
		at += got;
	}
	digest_hex(parts->digest, part->sha256);
	return 0;
}

static int take_part(struct parts *parts, struct part *part, struct err *err)
{
	uint64_t offset = parts->next * parts->part_bytes, left = parts->object->entry->size_bytes - offset;

	*part = (struct part){ .index = parts->next++, .is_taken = true, .call = S3_CALL_INIT };
	part->call.method = "PUT";
	part->call.key = str_from(parts->object->key);
	part->call.body_fd = parts->object->fd;
	part->call.body_offset = (int64_t)offset;
	part->call.body_size = (int64_t)(left < parts->part_bytes ? left : parts->part_bytes);
	part->call.sha256 = part->sha256;
	part->call.done = part_ended;
	part->call.owner = part;
	snprintf(part->number, sizeof(part->number), "%" PRIu64, part->index + 1);
	s3_call_query(&part->call, "partNumber", str_from(part->number));
	s3_call_query(&part->call, "uploadId", str_from(parts->upload_id));
	return hash_part(parts, part, offset, (uint64_t)part->call.body_size, err);
}

static int end_part(struct parts *parts, struct part *part, struct err *err)
{
	int64_t wait_us;

	part->is_ended = false;
	if (part->call.err.code != ERR_NONE) {
		*err = part->call.err;
		if (!final_s3_may_retry(parts->worker, err, part->try_count++, &wait_us))
			return -(int)err->code;
		part->due_us = clock_mono_us() + wait_us;
		return 0;
	}
	atomic_store(&parts->worker->put->success_us, clock_mono_us());
	if (part->call.etag[0] == '\0' || strpbrk(part->call.etag, "<&"))
		return err_set(err, ERR_FINAL_REFUSED, "the bucket took a part and gave no tag for it");
	memcpy(parts->etags[part->index], part->call.etag, S3_ETAG_SIZE);
	s3_call_fini(&part->call);
	part->is_taken = false;
	parts->done_count++;
	return 0;
}

static int drive_part(struct parts *parts, struct part *part, struct err *err)
{
	int result = 0;

	if (part->is_ended)
		result = end_part(parts, part, err);
	if (result == 0 && !part->is_taken && parts->next < parts->count)
		result = take_part(parts, part, err);
	if (result == 0 && part->is_taken && !part->is_running && clock_mono_us() >= part->due_us) {
		part->is_running = true;
		s3_start(parts->worker->put->final->s3, parts->worker->fetch, &part->call);
	}
	return result;
}

static int send_parts(struct parts *parts, struct err *err)
{
	int result = 0;

	while (result == 0 && parts->done_count < parts->count) {
		for (size_t i = 0; i < PARTS_AT_ONCE && result == 0; i++)
			result = drive_part(parts, &parts->window[i], err);
		if (result == 0 && final_s3_is_over(parts->worker->put))
			result = err_set(err, ERR_WAITING, "the publishing was given up");
		if (result == 0)
			fetch_step(parts->worker->fetch, STEP_US);
	}
	for (size_t i = 0; i < PARTS_AT_ONCE; i++) {
		struct s3_call *call = &parts->window[i].call;
		if (call->fetch.is_running) {
			fetch_cancel(parts->worker->fetch, &call->fetch);
			call->answer = call->fetch.answer;
		}
		s3_call_fini(call);
	}
	return result;
}

static int complete_parts(struct parts *parts, struct err *err)
{
	struct s3_call call = S3_CALL_INIT;
	struct buf body = BUF_INIT(COMPLETE_MAX);

	buf_append_c(&body, "<CompleteMultipartUpload>");
	for (uint64_t i = 0; i < parts->count; i++)
		buf_printf(&body, "<Part><PartNumber>%" PRIu64 "</PartNumber><ETag>%s</ETag></Part>", i + 1,
			   parts->etags[i]);
	buf_append_c(&body, "</CompleteMultipartUpload>");
	call.method = "POST";
	call.key = str_from(parts->object->key);
	call.body = buf_str(&body);
	s3_call_query(&call, "uploadId", str_from(parts->upload_id));
	int result = body.is_failed ? err_set(err, ERR_NO_MEMORY, "no memory for the list of parts")
				    : final_s3_ask(parts->worker, &call, err);
	s3_call_fini(&call);
	buf_fini(&body);
	/* Its first answer may have been lost: then the upload is no more, and the object is there. */
	if (result == -ERR_FINAL_REFUSED && call.status == 404 && look(parts->worker, parts->object, err) == LOOK_RIGHT)
		result = 0;
	return result;
}

static int put_parts(struct final_s3_worker *worker, const struct object *object, struct err *err)
{
	struct parts *parts = must_zalloc(1, sizeof(*parts));

	parts->worker = worker;
	parts->object = object;
	parts->part_bytes = part_size(worker->put->final->part_bytes, object->entry->size_bytes);
	parts->count = (object->entry->size_bytes + parts->part_bytes - 1) / parts->part_bytes;
	parts->etags = must_zalloc(parts->count, sizeof(*parts->etags));
	parts->digest = digest_new(DIGEST_SHA256);
	parts->block = must_alloc(READ_BYTES);
	int result = begin_parts(parts, err);
	if (result == 0)
		result = send_parts(parts, err);
	if (result == 0)
		result = complete_parts(parts, err);
	if (result < 0 && !atomic_load(&worker->put->run->merge->is_stopping))
		abort_parts(parts);
	digest_free(&parts->digest);
	free(parts->block);
	free(parts->etags);
	free(parts);
	return result;
}

/* --- the object --- */

/* A file of staging has its final mode already, which may forbid its owner to read it. */
static int open_file(struct final_s3_worker *worker, const struct final_s3_entry *entry, struct err *err)
{
	int tree_fd = worker->put->run->stage.tree_fd;
	int fd = fs_open_beneath(tree_fd, entry->path, O_RDONLY, 0, err);

	if (fd >= 0 || err->sys_errno != EACCES)
		return fd;
	if (fchmodat(tree_fd, entry->path, entry->mode | S_IRUSR, 0) < 0)
		return err_sys(err, ERR_SYSTEM, errno, "cannot change the mode of a file in staging");
	return fs_open_beneath(tree_fd, entry->path, O_RDONLY, 0, err);
}

static int put_object(struct final_s3_worker *worker, const struct object *object, struct err *err)
{
	bool is_in_parts = object->fd >= 0 && object->entry->size_bytes > worker->put->final->part_bytes;
	int found = worker->put->is_fresh ? LOOK_ABSENT : look(worker, object, err);
	struct s3_call call;

	/* Twice at most: what is in the way is looked at once. */
	for (unsigned i = 0; i < 2; i++) {
		if (found < 0 || found == LOOK_RIGHT)
			return found < 0 ? found : 0;
		if (is_in_parts)
			return put_parts(worker, object, err);
		int result = put_whole(worker, object, found == LOOK_ABSENT, &call, err);
		if (result != -ERR_FINAL_REFUSED || call.status != 412)
			return result;
		/* Often this one, whose first answer was lost. */
		found = look(worker, object, err);
	}
	return found < 0 ? found : found == LOOK_RIGHT ? 0 : foreign(object, err);
}

int final_s3_put(struct final_s3_worker *worker, const struct final_s3_entry *entry, struct err *err)
{
	struct object object;
	char shown[SHOWN_SIZE];

	int result = name_object(worker, entry, &object, err);
	if (result == 0 && entry->type == MANIFEST_FILE && entry->size_bytes > 0) {
		object.fd = open_file(worker, entry, err);
		result = object.fd < 0 ? object.fd : 0;
	}
	if (result == 0)
		result = put_object(worker, &object, err);
	fs_close(&object.fd);
	return result < 0 ? err_wrap(err, "publishing '%s'", str_display(str_from(entry->path), shown, sizeof(shown)))
			  : 0;
}
