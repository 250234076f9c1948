/* One publishing: what lies about from before is looked at, the objects are put in the manifest's order by several threads, the manifest comes last. */
#include "folder/final_s3.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "core/curve.h"
#include "sys/fs.h"
#include "wire/xml.h"

#define RETRY_US       (200 * MSEC_US)
#define RETRY_MOST_US  (5 * SEC_US)
#define PAGE_ENTRIES   16
#define LIST_PAGES_MAX 100000
#define TOKEN_SIZE     1024
#define SHOWN_SIZE     200

/* --- calls that are tried again --- */

bool final_s3_is_over(const struct final_s3_run *put)
{
	return atomic_load(&put->is_over) || atomic_load(&put->run->merge->is_stopping);
}

static void note(struct final_s3_run *put, const char *text, bool is_noted)
{
	struct store *store = put->run->merge->store;
	struct err err = ERR_INIT;

	if (atomic_exchange(&put->is_noted, is_noted) == is_noted)
		return;
	if (store->ops->transfer_note(store, put->run->transfer.id, text, &err) < 0)
		log_err(LOG_WARN, &err, "transfer %s: a note of what it waits for", put->run->transfer.id);
}

bool final_s3_may_retry(struct final_s3_worker *worker, const struct err *err, unsigned try_count, int64_t *ret_wait_us)
{
	struct final_s3_run *put = worker->put;
	char text[STORE_REASON_SIZE];

	if (err->code != ERR_FINAL_STORE || final_s3_is_over(put) ||
	    clock_mono_us() - atomic_load(&put->success_us) > put->final->give_up_us)
		return false;
	snprintf(text, sizeof(text), "waiting for the final store: %.440s", err->text);
	note(put, text, true);
	*ret_wait_us = curve_backoff_us(try_count, RETRY_US, RETRY_MOST_US, &worker->rng);
	return true;
}

int final_s3_ask(struct final_s3_worker *worker, struct s3_call *call, struct err *err)
{
	struct final_s3_run *put = worker->put;
	int64_t wait_us;

	call->is_interrupted = &put->run->merge->is_stopping;
	for (unsigned try_count = 0;; try_count++) {
		int result = s3_do(put->final->s3, worker->fetch, call, err);
		if (result == 0 || (call->status > 0 && result != -ERR_FINAL_STORE)) {
			atomic_store(&put->success_us, clock_mono_us());
			note(put, "", false);
			return result;
		}
		if (!final_s3_may_retry(worker, err, try_count, &wait_us))
			return result;
		merge_pause(put->run->merge, wait_us);
	}
}

/* --- what lies about --- */

static int delete_object(struct final_s3_worker *worker, const char *key, const char *upload_id, struct err *err)
{
	struct s3_call call = S3_CALL_INIT;

	call.method = "DELETE";
	call.key = str_from(key);
	if (upload_id)
		s3_call_query(&call, "uploadId", str_from(upload_id));
	int result = final_s3_ask(worker, &call, err);
	s3_call_fini(&call);
	/* Gone already is as good. */
	return result == -ERR_FINAL_REFUSED && call.status == 404 ? 0 : result;
}

static int abort_page(struct final_s3_worker *worker, struct str rest, uint64_t *ret_count, struct err *err)
{
	char key[FINAL_S3_KEY_SIZE], upload_id[TOKEN_SIZE];
	struct str upload;
	int result = 0;

	*ret_count = 0;
	while (result == 0 && xml_cut(&rest, "Upload", &upload)) {
		if (!xml_find(upload, "Key", key, sizeof(key)) ||
		    !xml_find(upload, "UploadId", upload_id, sizeof(upload_id)))
			continue;
		++*ret_count;
		result = delete_object(worker, key, upload_id, err);
	}
	return result;
}

/* Uploads in parts that a publishing of the batch left when it died: their parts take room for ever. Asked for until there are none. */
static int abort_uploads(struct final_s3_worker *worker, const char *prefix, struct err *err)
{
	uint64_t count = 1;
	int result = 0;

	for (unsigned i = 0; i < LIST_PAGES_MAX && result == 0 && count > 0; i++) {
		struct s3_call call = S3_CALL_INIT;
		s3_call_query(&call, "uploads", STR_NONE);
		s3_call_query(&call, "prefix", str_from(prefix));
		result = final_s3_ask(worker, &call, err);
		if (result == 0)
			result = abort_page(worker, buf_str(&call.answer), &count, err);
		s3_call_fini(&call);
	}
	return result < 0 ? err_wrap(err, "looking for uploads that were left") : 0;
}

enum survey {
	SURVEY_CLAIM,    /* what others own is in the way, what dead transfers own goes */
	SURVEY_WITHDRAW, /* what this transfer owns goes too, others' stays */
};

static int survey_object(struct final_s3_worker *worker, enum survey survey, const char *key, struct err *err)
{
	struct s3_call call = S3_CALL_INIT;
	char shown[SHOWN_SIZE];

	call.method = "HEAD";
	call.key = str_from(key);
	int result = final_s3_ask(worker, &call, err);
	s3_call_fini(&call);
	if (result == -ERR_FINAL_REFUSED && call.status == 404)
		return 0;
	if (result == 0)
		result = final_s3_whose(worker->put, &call, err);
	if (result < 0)
		return result;
	if (result == FINAL_S3_DEAD || (result == FINAL_S3_OWN && survey == SURVEY_WITHDRAW))
		return delete_object(worker, key, NULL, err);
	if (result == FINAL_S3_OWN || survey == SURVEY_WITHDRAW)
		return 0;
	err_set(err, ERR_BATCH_EXISTS, "the bucket has an object '%s' that no transfer here explains",
		str_display(str_from(key), shown, sizeof(shown)));
	err_hint(err, "remove what is under that name, or push under another batch name");
	return -ERR_BATCH_EXISTS;
}

static int survey_page(struct final_s3_worker *worker, enum survey survey, struct str rest, uint64_t *count,
		       struct err *err)
{
	char key[FINAL_S3_KEY_SIZE];
	struct str contents;
	int result = 0;

	while (result == 0 && xml_cut(&rest, "Contents", &contents)) {
		++*count;
		if (xml_find(contents, "Key", key, sizeof(key)))
			result = survey_object(worker, survey, key, err);
		else if (survey == SURVEY_CLAIM)
			result = err_set(err, ERR_BATCH_EXISTS,
					 "the bucket has an object under the batch's name that no transfer put there");
	}
	return result;
}

/* Looks at all objects under the batch's name, and who put them there. */
static int survey_objects(struct final_s3_worker *worker, enum survey survey, const char *prefix, uint64_t *ret_count,
			  struct err *err)
{
	char token[TOKEN_SIZE] = "", next[TOKEN_SIZE];
	int result = 0;

	*ret_count = 0;
	do {
		struct s3_call call = S3_CALL_INIT;
		s3_call_query(&call, "list-type", STR("2"));
		s3_call_query(&call, "prefix", str_from(prefix));
		if (token[0] != '\0')
			s3_call_query(&call, "continuation-token", str_from(token));
		result = final_s3_ask(worker, &call, err);
		if (result == 0)
			result = survey_page(worker, survey, buf_str(&call.answer), ret_count, err);
		bool is_more = result == 0 &&
			       xml_find(buf_str(&call.answer), "NextContinuationToken", next, sizeof(next));
		s3_call_fini(&call);
		if (!is_more || strcmp(next, token) == 0)
			break;
		memcpy(token, next, sizeof(token));
	} while (result == 0);
	return result < 0 ? err_wrap(err, "looking at what is under the batch's name") : 0;
}

/* --- the entries, in order --- */

struct publishing {
	struct final_s3_run put;
	pthread_mutex_t lock; /* protects what follows */
	struct final_s3_entry page[PAGE_ENTRIES], folder;
	size_t page_count, page_next;
	uint64_t next_seq;
	bool has_folder; /* `folder` was read, and whether anything is in it is not known yet */
	bool is_listed;
	bool is_too_long; /* an entry's path is */
	int result;       /* the first failure */
	struct err err;
};

static void copy_entry(struct final_s3_entry *target, const struct store_entry *entry)
{
	target->type = entry->type;
	target->mode = entry->mode;
	target->mtime_ns = entry->mtime_ns;
	target->size_bytes = entry->size_bytes;
	memcpy(target->digest, entry->digest, sizeof(target->digest));
	MUST(str_copy(entry->path, target->path, sizeof(target->path)));
	(void)str_copy(entry->target, target->target, sizeof(target->target));
}

/* A folder is an object of its own only when nothing is in it: what is in it says that it is there. */
static void end_folder(struct publishing *publishing, struct str path)
{
	size_t size = strlen(publishing->folder.path);

	if (!publishing->has_folder)
		return;
	publishing->has_folder = false;
	if (path.size > size && path.data[size] == '/' && memcmp(path.data, publishing->folder.path, size) == 0)
		return;
	publishing->page[publishing->page_count++] = publishing->folder;
}

static int on_entry(void *owner, const struct store_entry *entry)
{
	struct publishing *publishing = owner;

	publishing->next_seq = entry->seq + 1;
	if (entry->seq == 0) /* the root: the manifest has it */
		return 0;
	/* Of a transfer that was planned while the final store was a folder nobody looked whether a bucket takes its names. */
	if (entry->path.size > S3_KEY_MAX) {
		publishing->is_too_long = true;
		return 1;
	}
	end_folder(publishing, entry->path);
	if (entry->type == MANIFEST_DIR) {
		copy_entry(&publishing->folder, entry);
		publishing->has_folder = true;
	} else {
		copy_entry(&publishing->page[publishing->page_count++], entry);
	}
	/* An entry may bring a folder before it. */
	return publishing->page_count + 2 > PAGE_ENTRIES;
}

static int read_page_locked(struct publishing *publishing)
{
	struct merge_run *run = publishing->put.run;
	struct store *store = run->merge->store;
	uint64_t before = publishing->next_seq;

	publishing->page_next = publishing->page_count = 0;
	int result = store->ops->entries(store, run->transfer.id, before, INT64_MAX, on_entry, publishing,
					 &publishing->err);
	if (result < 0)
		return result;
	if (publishing->is_too_long)
		return err_set(&publishing->err, ERR_ENTRY_REFUSED,
			       "entry %" PRIu64 " has a path of more than %d bytes: it cannot be in a bucket",
			       publishing->next_seq - 1, S3_KEY_MAX);
	if (publishing->page_count == 0) {
		publishing->is_listed = true;
		end_folder(publishing, STR_NONE);
	}
	return 0;
}

static void fail_locked(struct publishing *publishing, int result, const struct err *err)
{
	if (publishing->result == 0) {
		publishing->result = result;
		publishing->err = *err;
	}
	atomic_store(&publishing->put.is_over, true);
}

static bool next_entry(struct publishing *publishing, struct final_s3_entry *ret_entry)
{
	bool is_found = false;

	pthread_mutex_lock(&publishing->lock);
	while (!final_s3_is_over(&publishing->put) && publishing->page_next == publishing->page_count &&
	       !publishing->is_listed) {
		int result = read_page_locked(publishing);
		if (result < 0) {
			struct err err = publishing->err;
			fail_locked(publishing, result, &err);
		}
	}
	is_found = !final_s3_is_over(&publishing->put) && publishing->page_next < publishing->page_count;
	if (is_found)
		*ret_entry = publishing->page[publishing->page_next++];
	pthread_mutex_unlock(&publishing->lock);
	return is_found;
}

/* --- the threads --- */

static int worker_init(struct final_s3_worker *worker, struct final_s3_run *put, struct err *err)
{
	worker->put = put;
	rng_seed_kernel(&worker->rng);
	return s3_fetch_new(put->final->s3, &worker->fetch, err);
}

static void *worker_main(void *arg)
{
	struct publishing *publishing = arg;
	struct final_s3_worker worker;
	struct final_s3_entry *entry = must_alloc(sizeof(*entry));
	struct err err = ERR_INIT;

	int result = worker_init(&worker, &publishing->put, &err);
	while (result == 0 && next_entry(publishing, entry))
		result = final_s3_put(&worker, entry, &err);
	if (result < 0) {
		pthread_mutex_lock(&publishing->lock);
		fail_locked(publishing, result, &err);
		pthread_mutex_unlock(&publishing->lock);
	}
	fetch_free(&worker.fetch);
	free(entry);
	return NULL;
}

static int put_entries(struct publishing *publishing, struct err *err)
{
	pthread_t threads[MERGE_PULLERS_MAX];
	unsigned count = 0, wanted = publishing->put.final->connection_count;

	while (count + 1 < wanted && count < MERGE_PULLERS_MAX &&
	       pthread_create(&threads[count], NULL, worker_main, publishing) == 0)
		count++;
	/* This thread puts too, so that a machine without threads to give still publishes. */
	(void)worker_main(publishing);
	for (unsigned i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
	if (publishing->result < 0)
		*err = publishing->err;
	else if (atomic_load(&publishing->put.run->merge->is_stopping))
		return err_set(err, ERR_WAITING, "the publishing was interrupted");
	return publishing->result;
}

/* --- the manifest --- */

/* By its first byte: of a HEAD that is refused nobody would learn why. */
static int ask_placed(struct final_s3_worker *worker, enum merge_placed *ret_placed, struct err *err)
{
	const struct store_transfer *transfer = &worker->put->run->transfer;
	char key[FINAL_S3_KEY_SIZE];
	struct s3_call call = S3_CALL_INIT;
	uint64_t version = 0;

	*ret_placed = MERGE_NOT_PLACED;
	int result = final_s3_manifest_key(worker->put->final, transfer->batch, key, err);
	if (result < 0)
		return result;
	call.key = str_from(key);
	s3_call_header(&call, "range", STR("bytes=0-0"));
	result = final_s3_ask(worker, &call, err);
	s3_call_fini(&call);
	if (result == -ERR_FINAL_REFUSED && strcmp(call.code, "NoSuchKey") == 0)
		return 0;
	if (result < 0)
		return err_wrap(err, "looking for the batch in the final store");
	if (strcmp(s3_call_meta(&call, "heng-transfer"), transfer->id) != 0)
		*ret_placed = MERGE_PLACED_BY_OTHER;
	else if (str_to_u64(str_from(s3_call_meta(&call, "heng-version")), &version) &&
		 version == (uint64_t)transfer->version)
		*ret_placed = MERGE_PLACED;
	else
		*ret_placed = MERGE_PLACED_BEFORE;
	return 0;
}

static int put_manifest(struct final_s3_worker *worker, struct err *err)
{
	struct merge_run *run = worker->put->run;
	char key[FINAL_S3_KEY_SIZE], sha256[DIGEST_HEX_SIZE], version[24];
	struct s3_call call = S3_CALL_INIT;
	enum merge_placed placed;
	struct stat st;

	AUTO(fs_close) int fd = fs_open_beneath(run->stage.home_fd, MERGE_MANIFEST, O_RDONLY, 0, err);
	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return err_set(err, ERR_SYSTEM, "cannot look at the manifest in staging");
	int result = final_s3_manifest_key(worker->put->final, run->transfer.batch, key, err);
	if (result == 0)
		result = fs_digest(fd, DIGEST_SHA256, sha256, err);
	if (result < 0)
		return result;
	snprintf(version, sizeof(version), "%" PRId64, run->transfer.version);
	call.method = "PUT";
	call.key = str_from(key);
	call.body_fd = fd;
	call.body_size = st.st_size;
	call.sha256 = sha256;
	s3_call_header(&call, "if-none-match", STR("*"));
	s3_call_header(&call, "content-type", STR("text/plain; charset=us-ascii"));
	s3_call_header(&call, "x-amz-meta-heng-transfer", str_from(run->transfer.id));
	s3_call_header(&call, "x-amz-meta-heng-version", str_from(version));
	result = final_s3_ask(worker, &call, err);
	s3_call_fini(&call);
	if (result != -ERR_FINAL_REFUSED || call.status != 412)
		return result < 0 ? err_wrap(err, "putting the manifest beside the batch") : 0;
	/* Often this one, whose first answer was lost. */
	result = ask_placed(worker, &placed, err);
	if (result < 0 || placed == MERGE_PLACED)
		return result;
	return err_set(err, ERR_BATCH_EXISTS, "somebody else put a batch of this name into the bucket meanwhile");
}

/* --- all of it --- */

static int publish_all(struct publishing *publishing, struct final_s3_worker *worker, struct err *err)
{
	struct merge_run *run = publishing->put.run;
	char prefix[FINAL_S3_KEY_SIZE];
	uint64_t count = 0;

	int result = final_s3_key(publishing->put.final, run->transfer.batch, NULL, prefix, err);
	if (result == 0)
		result = abort_uploads(worker, prefix, err);
	if (result == 0)
		result = survey_objects(worker, SURVEY_CLAIM, prefix, &count, err);
	publishing->put.is_fresh = count == 0;
	if (result == 0)
		result = put_entries(publishing, err);
	if (result == 0)
		result = merge_check_still_merging(run, err);
	if (result == 0)
		result = put_manifest(worker, err);
	/* What will never be whole does not stay; what may go on later does. */
	if (result == -ERR_BATCH_EXISTS || result == -ERR_STATE) {
		struct err other = ERR_INIT;
		atomic_store(&publishing->put.is_over, false);
		if (survey_objects(worker, SURVEY_WITHDRAW, prefix, &count, &other) < 0)
			log_err(LOG_WARN, &other, "transfer %s: objects of it stay in the bucket", run->transfer.id);
	}
	return result;
}

int final_s3_publish(struct merge_run *run, struct err *err)
{
	struct publishing *publishing = must_zalloc(1, sizeof(*publishing));
	struct final_s3_worker worker;

	publishing->put.run = run;
	publishing->put.final = run->merge->bucket;
	atomic_store(&publishing->put.success_us, clock_mono_us());
	pthread_mutex_init(&publishing->lock, NULL);
	int result = worker_init(&worker, &publishing->put, err);
	if (result == 0)
		result = publish_all(publishing, &worker, err);
	fetch_free(&worker.fetch);
	pthread_mutex_destroy(&publishing->lock);
	free(publishing);
	return result;
}

int final_s3_placed(struct merge_run *run, enum merge_placed *ret_placed, struct err *err)
{
	struct final_s3_run put = { .run = run, .final = run->merge->bucket };
	struct final_s3_worker worker;

	*ret_placed = MERGE_NOT_PLACED;
	atomic_store(&put.success_us, clock_mono_us());
	int result = worker_init(&worker, &put, err);
	if (result == 0)
		result = ask_placed(&worker, ret_placed, err);
	fetch_free(&worker.fetch);
	return result;
}

int final_s3_withdraw(struct merge_run *run, struct err *err)
{
	struct final_s3_run put = { .run = run, .final = run->merge->bucket };
	struct final_s3_worker worker;
	char key[FINAL_S3_KEY_SIZE];
	uint64_t count;

	atomic_store(&put.success_us, clock_mono_us());
	int result = worker_init(&worker, &put, err);
	if (result == 0)
		result = final_s3_manifest_key(put.final, run->transfer.batch, key, err);
	/* The manifest first: a batch that is being taken apart is none. */
	if (result == 0)
		result = delete_object(&worker, key, NULL, err);
	if (result == 0)
		result = final_s3_key(put.final, run->transfer.batch, NULL, key, err);
	if (result == 0)
		result = survey_objects(&worker, SURVEY_WITHDRAW, key, &count, err);
	fetch_free(&worker.fetch);
	return result;
}
