#include "folder/final_s3.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "folder/plan.h"
#include "sys/fs.h"

#define PLACE_SCHEME     "s3://"
#define ASK_TIMEOUT_US   (20 * SEC_US) /* of what somebody waits for */
#define RANGE_TIMEOUT_US (120 * SEC_US)
#define SHOWN_SIZE       160

/* --- set-up --- */

static int read_prefix(const char *text, char **ret_prefix, struct err *err)
{
	size_t size = strlen(text);

	while (size > 0 && text[size - 1] == '/')
		size--;
	char *prefix = must_alloc(size + 2);
	memcpy(prefix, text, size);
	prefix[size] = '\0';
	*ret_prefix = prefix;
	if (size == 0)
		return 0;
	const char *fault = manifest_path_fault((struct str){ prefix, size });
	if (!fault && (size > S3_KEY_MAX / 2 || !utf8_is_valid((struct str){ prefix, size })))
		fault = "is too long, or not UTF-8";
	if (fault)
		return err_set(err, ERR_CONFIG, "the prefix of `final` %s", fault);
	memcpy(prefix + size, "/", 2);
	return 0;
}

static int open_place(struct final_s3 *final, const struct final_s3_options *options, struct err *err)
{
	char bucket[128];
	struct str rest = str_from(options->place), scheme = STR(PLACE_SCHEME), name;

	if (!str_starts(rest, scheme))
		return err_set(err, ERR_CONFIG, "`final` '%.200s' is not s3://BUCKET[/PREFIX]", options->place);
	rest = (struct str){ rest.data + scheme.size, rest.size - scheme.size };
	if (!str_cut(&rest, '/', &name) || !str_copy(name, bucket, sizeof(bucket)))
		return err_set(err, ERR_CONFIG, "`final` '%.200s' names no bucket", options->place);
	int result = read_prefix(rest.size > 0 ? rest.data : "", &final->prefix, err);
	const struct s3_options s3 = { .endpoint = options->endpoint,
				       .region = options->region,
				       .bucket = bucket,
				       .credentials_file = options->credentials_file };
	return result < 0 ? result : s3_new(&s3, &final->s3, err);
}

int final_s3_new(const struct final_s3_options *options, struct final_s3 **ret_final, struct err *err)
{
	struct final_s3 *final = must_zalloc(1, sizeof(*final));

	final->part_bytes = options->part_bytes > S3_PART_BYTES_MIN ? options->part_bytes : S3_PART_BYTES_MIN;
	final->connection_count = options->connection_count > 0 ? options->connection_count : 1;
	final->give_up_us = options->give_up_us;
	int result = open_place(final, options, err);
	if (result < 0)
		final_s3_free(&final);
	*ret_final = final;
	return result < 0 ? err_wrap(err, "the final store") : 0;
}

void final_s3_free(struct final_s3 **final_ref)
{
	struct final_s3 *final = *final_ref;

	if (!final)
		return;
	s3_free(&final->s3);
	free(final->prefix);
	free(final);
	*final_ref = NULL;
}

/* --- keys --- */

static int keep_key(int size, char target[FINAL_S3_KEY_SIZE], struct err *err)
{
	if (size <= S3_KEY_MAX)
		return 0;
	target[0] = '\0';
	return err_set(err, ERR_ENTRY_REFUSED, "the key of an object would have more than %d bytes", S3_KEY_MAX);
}

int final_s3_key(const struct final_s3 *final, const char *batch, const char *path, char target[FINAL_S3_KEY_SIZE],
		 struct err *err)
{
	return keep_key(snprintf(target, FINAL_S3_KEY_SIZE, "%s%s/%s", final->prefix, batch, path ? path : ""), target,
			err);
}

int final_s3_manifest_key(const struct final_s3 *final, const char *batch, char target[FINAL_S3_KEY_SIZE],
			  struct err *err)
{
	return keep_key(
		snprintf(target, FINAL_S3_KEY_SIZE, "%s" MERGE_SYSTEM_FOLDER "/%s.manifest", final->prefix, batch),
		target, err);
}

struct name_check {
	const struct final_s3 *final;
	size_t before_bytes; /* of the key, before the path */
	uint64_t bad_count;
	char shown[SHOWN_SIZE];
	const char *rule;
};

/* NULL: it may be a part of a key. */
static const char *name_fault(struct str name, size_t before_bytes)
{
	if (!utf8_is_valid(name))
		return "is not UTF-8";
	for (size_t i = 0; i < name.size; i++)
		if ((unsigned char)name.data[i] < 0x20 || name.data[i] == 0x7f)
			return "has a control character";
	/* A folder's has a '/' at its end. */
	return before_bytes + name.size + 1 > S3_KEY_MAX ? "makes a key of more than 1,024 bytes" : NULL;
}

static int check_entry(void *owner, const struct manifest_entry *entry, struct err *err UNUSED)
{
	struct name_check *check = owner;
	const char *fault = name_fault(entry->path, check->before_bytes);

	if (fault && check->bad_count++ == 0) {
		check->rule = fault;
		str_display(entry->path, check->shown, sizeof(check->shown));
	}
	return 0;
}

int final_s3_check_names(const struct final_s3 *final, struct str batch, int manifest_fd, struct err *err)
{
	struct name_check check = { .final = final, .before_bytes = strlen(final->prefix) + batch.size + 1 };
	const char *fault = name_fault(batch, strlen(final->prefix) + sizeof(MERGE_SYSTEM_FOLDER "/.manifest"));
	struct plan_facts facts;

	if (fault)
		return err_set(err, ERR_BATCH_NAME, "the batch's name %s: it cannot be in a bucket", fault);
	int result = plan_scan_each(manifest_fd, check_entry, &check, &facts, err);
	if (result < 0 || check.bad_count == 0)
		return result;
	err_set(err, ERR_ENTRY_REFUSED, "%" PRIu64 " %s cannot be in a bucket: '%s' %s", check.bad_count,
		check.bad_count == 1 ? "entry" : "entries", check.shown, check.rule);
	err_hint(err, "rename it: keys of objects are UTF-8 without control characters, at most 1,024 bytes with the "
		      "batch's name");
	return -ERR_ENTRY_REFUSED;
}

/* --- what is there --- */

static int publish_again(struct merge_run *run UNUSED, struct err *err UNUSED)
{
	/* The manifest is there: so is everything, durably. */
	return 0;
}

/* Asked once, and briefly: whoever pushes waits for the answer, and the merge will look again. */
static bool exists(const struct merge *merge, const char *batch)
{
	char key[FINAL_S3_KEY_SIZE];
	struct s3_call call = S3_CALL_INIT;
	struct fetch *fetch = NULL;

	call.method = "HEAD";
	call.timeout_us = ASK_TIMEOUT_US;
	call.is_interrupted = &merge->is_stopping;
	if (final_s3_manifest_key(merge->bucket, batch, key, NULL) < 0 ||
	    s3_fetch_new(merge->bucket->s3, &fetch, NULL) < 0)
		return false;
	call.key = str_from(key);
	int result = s3_do(merge->bucket->s3, fetch, &call, NULL);
	fetch_free(&fetch);
	s3_call_fini(&call);
	return result == 0;
}

/* --- giving it back --- */

/* A file without a name where folders are put together: there is room, and nothing is left of it whatever happens. */
int final_s3_temp_file(const struct merge *merge, struct err *err)
{
	int fd = openat(merge->staging_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	return fd >= 0 ? fd : fs_temp_file(err);
}

struct download {
	int fd;
	uint64_t size_bytes, most_bytes;
};

static bool take_piece(struct s3_call *call, struct str piece)
{
	struct download *download = call->owner;

	if (piece.size > download->most_bytes - download->size_bytes) {
		err_set(&call->err, ERR_PEER, "the bucket gives more than was asked for");
		return false;
	}
	if (fs_write_all(download->fd, piece.data, piece.size, (int64_t)download->size_bytes, &call->err) < 0)
		return false;
	download->size_bytes += piece.size;
	return true;
}

/* range "": the whole object. Returns the descriptor. */
static int fetch_object(const struct merge *merge, const struct store_transfer *transfer, const char *key,
			const char *range, struct download *download, struct err *err)
{
	struct s3_call call = S3_CALL_INIT;
	struct fetch *fetch = NULL;

	call.key = str_from(key);
	call.timeout_us = RANGE_TIMEOUT_US;
	call.is_interrupted = &merge->is_stopping;
	call.sink = take_piece;
	call.owner = download;
	if (range[0] != '\0')
		s3_call_header(&call, "range", str_from(range));
	AUTO(fs_close) int fd = final_s3_temp_file(merge, err);
	if (fd < 0)
		return fd;
	download->fd = fd;
	int result = s3_fetch_new(merge->bucket->s3, &fetch, err);
	if (result == 0)
		result = s3_do(merge->bucket->s3, fetch, &call, err);
	if ((result < 0 && call.status == 404) ||
	    (result == 0 && strcmp(s3_call_meta(&call, "heng-transfer"), transfer->id) != 0)) {
		result = err_set(err, ERR_STATE, "transfer %s is no longer in the bucket as it was put there",
				 transfer->id);
		err_hint(err, "its objects were removed, or replaced by others");
	}
	fetch_free(&fetch);
	s3_call_fini(&call);
	if (result < 0)
		return result;
	result = fd;
	fd = -1;
	return result;
}

static int open_manifest(const struct merge *merge, const struct store_transfer *transfer, struct err *err)
{
	char key[FINAL_S3_KEY_SIZE];
	struct download download = { .most_bytes = UINT64_MAX };

	int result = final_s3_manifest_key(merge->bucket, transfer->batch, key, err);
	return result < 0 ? result : fetch_object(merge, transfer, key, "", &download, err);
}

int final_s3_open_range(const struct merge *merge, const struct store_transfer *transfer, struct str path,
			uint64_t first, uint64_t size, struct err *err)
{
	char key[FINAL_S3_KEY_SIZE], path_text[S3_KEY_MAX + 1], range[64] = "";
	struct download download = { .most_bytes = size };

	if (!str_copy(path, path_text, sizeof(path_text)))
		return err_set(err, ERR_INTEGRITY, "the entry's name cannot be an object's key");
	int result = final_s3_key(merge->bucket, transfer->batch, path_text, key, err);
	if (result < 0)
		return result;
	/* Of an empty object no range can be asked for. */
	if (size > 0)
		snprintf(range, sizeof(range), "bytes=%" PRIu64 "-%" PRIu64, first, first + size - 1);
	int fd = fetch_object(merge, transfer, key, range, &download, err);
	if (fd >= 0 && download.size_bytes != size) {
		fs_close(&fd);
		return err_set(err, ERR_INTEGRITY, "the bucket has %" PRIu64 " of %" PRIu64 " bytes of what was stored",
			       download.size_bytes, size);
	}
	return fd;
}

const struct final_ops final_s3_ops = {
	.is_remote = true,
	.placed = final_s3_placed,
	.publish = final_s3_publish,
	.publish_again = publish_again,
	.withdraw = final_s3_withdraw,
	.exists = exists,
	.open_manifest = open_manifest,
};
