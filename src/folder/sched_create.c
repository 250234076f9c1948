/* POST /api/v1/transfers: the manifest's way from the wire to the spool file to a plan. */
#include "folder/batch.h"
#include "folder/sched_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "sys/fs.h"

struct create {
	char resume_id[ULID_SIZE]; /* "": whatever transfer it is */
	char batch[STORE_BATCH_MAX + 1];
	char source[512];
	enum digest_kind digest;
	char seal[SEAL_LABEL_SIZE]; /* "": the files are not encrypted */
	uint64_t chunk_bytes;       /* 0: whatever the scheduler cuts */
	uint64_t chunk_wish_bytes;  /* the same for a new transfer; one under way stays as it is */
	uint64_t priority;
	uint64_t copies; /* 0: as many as the scheduler's */
	bool is_dry_run;
	uint32_t told_crc32c, crc32c;
	uint64_t spooled_bytes;
	int fd; /* the spool file, -1 before the first byte */
	struct sched_claim *claim;
	struct plan_change *changes; /* NULL, or what a new scan changes of a transfer */
	size_t change_count;
};

static void create_drop(struct sched_call *c)
{
	struct create *create = c->state;

	sched_unclaim(c->sched, create->claim);
	fs_close(&create->fd);
	free(create->changes);
	free(create);
}

/* --- what is asked --- */

static int parse_batch(struct sched_call *c, struct create *create)
{
	char text[1024];
	struct str batch = { text, 0 };

	if (!http_query(c->call, "batch", text, sizeof(text), &batch.size) || batch.size == 0)
		return create->resume_id[0] != '\0'
			       ? 0
			       : err_set(&c->err, ERR_BATCH_NAME, "the call names no batch, or one far too long");
	if (batch_check(batch, &c->err) < 0)
		return -ERR_BATCH_NAME;
	MUST(str_copy(batch, create->batch, sizeof(create->batch)));
	return 0;
}

static int parse_resume(struct sched_call *c, struct create *create)
{
	char text[64], shown[80];
	size_t size = 0;

	if (!http_query(c->call, "resume", text, sizeof(text), &size))
		return 0;
	if (ulid_is_valid(text, size) && str_copy((struct str){ text, size }, create->resume_id, ULID_SIZE))
		return 0;
	return err_set(&c->err, ERR_NO_TRANSFER, "there is no transfer '%s'",
		       str_display((struct str){ text, size }, shown, sizeof(shown)));
}

/* A source too long to be kept whole is kept as its beginning and a hash: it is only ever compared. */
static int parse_source(struct sched_call *c, struct create *create)
{
	enum { RAW_MAX = 4096 + 512, KEPT = 400 };
	char raw[RAW_MAX], encoded[3 * RAW_MAX + 1];
	size_t size = 0, encoded_size;
	struct hash128 hash;

	if (!http_query(c->call, "source", raw, sizeof(raw), &size) || size == 0)
		return 0;
	encoded_size = percent_encode((struct str){ raw, size }, true, encoded, sizeof(encoded));
	if (encoded_size < sizeof(create->source)) {
		memcpy(create->source, encoded, encoded_size + 1);
		return 0;
	}
	hash = hash128(raw, size);
	snprintf(create->source, sizeof(create->source), "%.*s...%016llx%016llx", (int)KEPT, encoded,
		 (unsigned long long)hash.high, (unsigned long long)hash.low);
	return 0;
}

static int parse_digest(struct sched_call *c, struct create *create)
{
	char text[32], shown[64];
	size_t size = 0;

	create->digest = DIGEST_SHA256;
	if (!http_query(c->call, "digest", text, sizeof(text), &size))
		return 0;
	if (digest_from_name((struct str){ text, size }, &create->digest))
		return 0;
	return err_set(&c->err, ERR_BAD_REQUEST, "the query's digest '%s' is none of " DIGEST_NAMES,
		       str_display((struct str){ text, size }, shown, sizeof(shown)));
}

static int parse_seal(struct sched_call *c, struct create *create)
{
	enum seal_cipher cipher;
	char text[256];
	size_t size = 0;

	if (!http_query(c->call, "seal", text, sizeof(text), &size))
		return 0;
	if (seal_label_parse((struct str){ text, size }, &cipher, NULL) &&
	    str_copy((struct str){ text, size }, create->seal, sizeof(create->seal)))
		return 0;
	return err_set(&c->err, ERR_BAD_REQUEST,
		       "the query's seal is not <cipher>:<16 hex digits>, the cipher one of " SEAL_CIPHER_NAMES);
}

int sched_read_crc(struct sched_call *c, uint32_t *ret_crc32c)
{
	struct str text = http_header(c->call, "X-Manifest-CRC32C");
	uint8_t bytes[4];

	if (!hex_decode(text, bytes, sizeof(bytes)))
		return err_set(&c->err, ERR_BAD_REQUEST, "the header X-Manifest-CRC32C with 8 hex digits is missing");
	*ret_crc32c = (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
	return 0;
}

/* Whole pages: a large file's chunks then start at SHA-256's block boundaries, where the client hashes chunk and file at once. */
static uint64_t whole_pages(uint64_t chunk_bytes)
{
	enum { PAGE_BYTES = 4096 };

	return chunk_bytes - chunk_bytes % PAGE_BYTES;
}

/* 0 when it is not there. */
static int parse_chunk_bytes(struct sched_call *c, const char *name, uint64_t *ret_bytes)
{
	int result = sched_query_u64(c, name, 0, ret_bytes);

	if (result < 0)
		return result;
	if (*ret_bytes != 0 && (*ret_bytes < SCHED_CHUNK_BYTES_MIN || *ret_bytes > SCHED_CHUNK_BYTES_MAX))
		return err_set(&c->err, ERR_BAD_REQUEST, "a chunk size of %llu bytes is not within 64 KiB and 64 MiB",
			       (unsigned long long)*ret_bytes);
	*ret_bytes = whole_pages(*ret_bytes);
	return 0;
}

static int parse_numbers(struct sched_call *c, struct create *create)
{
	uint64_t dry_run = 0;
	int result = parse_chunk_bytes(c, "chunk_size", &create->chunk_bytes);

	if (result == 0)
		result = parse_chunk_bytes(c, "chunk_wish", &create->chunk_wish_bytes);
	if (result == 0)
		result = sched_query_u64(c, "priority", 0, &create->priority);
	if (result == 0)
		result = sched_query_u64(c, "copies", 0, &create->copies);
	if (result == 0)
		result = sched_query_u64(c, "dry_run", 0, &dry_run);
	if (result < 0)
		return result;
	create->is_dry_run = dry_run != 0;
	if (create->priority > 1000)
		return err_set(&c->err, ERR_BAD_REQUEST, "the priority is above 1000");
	if (create->copies > SCHED_COPIES_MAX)
		return err_set(&c->err, ERR_BAD_REQUEST, "%llu copies of each chunk are more than the %u there can be",
			       (unsigned long long)create->copies, SCHED_COPIES_MAX);
	return 0;
}

static int parse_all(struct sched_call *c, struct create *create)
{
	int result = 0;

	if (!sched_may_write(c->user))
		return err_set(&c->err, ERR_FORBIDDEN, "user '%s' is an auditor, who may look but not send",
			       c->user->name);
	if (result == 0)
		result = parse_resume(c, create);
	if (result == 0)
		result = parse_batch(c, create);
	if (result == 0)
		result = parse_source(c, create);
	if (result == 0)
		result = parse_digest(c, create);
	if (result == 0)
		result = parse_seal(c, create);
	if (result == 0)
		result = parse_numbers(c, create);
	if (result == 0)
		result = sched_read_crc(c, &create->told_crc32c);
	return result;
}

/* --- the spool file --- */

/* The name goes as soon as the file is open: whatever ends the call, or the scheduler, leaves nothing behind. */
static int spool_open(struct sched_call *c, struct create *create)
{
	char path[PATH_TEXT_MAX];
	int size = snprintf(path, sizeof(path), "%s/%s.manifest", c->sched->spool_dir, http_request_id(c->call));

	if (size < 0 || (size_t)size >= sizeof(path))
		return err_set(&c->err, ERR_CONFIG, "the spool folder's path is too long");
	create->fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (create->fd < 0)
		return err_sys(&c->err, ERR_SYSTEM, errno, "cannot make the spool file %s", path);
	if (unlink(path) < 0)
		return err_sys(&c->err, ERR_SYSTEM, errno, "cannot unlink the spool file %s", path);
	return 0;
}

static int create_take(struct sched_call *c, struct str piece)
{
	struct create *create = c->state;
	int result = create->fd >= 0 ? 0 : spool_open(c, create);

	if (result == 0)
		result = fs_write_all(create->fd, piece.data, piece.size, (int64_t)create->spooled_bytes, &c->err);
	if (result < 0)
		return err_wrap(&c->err, "spooling the manifest");
	create->spooled_bytes += piece.size;
	create->crc32c = crc32c(create->crc32c, piece.data, piece.size);
	return 0;
}

/* --- which transfer --- */

enum choice { CHOOSE_NEW, CHOOSE_RESUME, CHOOSE_REVISE, CHOOSE_SUPERSEDE };

static int batch_exists(struct err *err, const char *what)
{
	err_set(err, ERR_BATCH_EXISTS, "%s", what);
	err_hint(err, "choose another name with --name, or wait for that transfer's end");
	return -ERR_BATCH_EXISTS;
}

static bool is_same_push(const struct store_transfer *old, const struct sched_call *c, const struct create *create,
			 const struct plan_facts *facts)
{
	return strcmp(old->user, c->user->name) == 0 && strcmp(old->manifest_digest, facts->digest) == 0 &&
	       old->manifest_crc32c == facts->crc32c && old->digest == create->digest &&
	       strcmp(old->seal, create->seal) == 0 &&
	       (create->chunk_bytes == 0 || create->chunk_bytes == old->chunk_bytes);
}

/* The folder of before, in which some files have changed: what is stored of the others need not come again. */
static int choose_over(struct sched_call *c, const struct plan_facts *facts, const struct store_transfer *old)
{
	struct create *create = c->state;
	int result;

	if (create->is_dry_run || old->state != TRANSFER_UPLOADING || old->digest != create->digest ||
	    strcmp(old->seal, create->seal) != 0 ||
	    (create->chunk_bytes != 0 && create->chunk_bytes != old->chunk_bytes))
		return CHOOSE_SUPERSEDE;
	create->changes = must_zalloc(PLAN_CHANGES_MAX, sizeof(*create->changes));
	result = plan_differences(c->sched->store, old, create->fd, facts, create->changes, &create->change_count,
				  &c->err);
	if (result < 0)
		return err_wrap(&c->err, "comparing the folder with transfer %s", old->id);
	return result > 0 ? CHOOSE_REVISE : CHOOSE_SUPERSEDE;
}

/* Returns an enum choice, or a negative code. */
static int choose(struct sched_call *c, const struct plan_facts *facts, struct store_transfer *ret_old)
{
	const struct create *create = c->state;
	struct str batch = str_from(create->batch);
	int choice = CHOOSE_NEW;
	int result = c->sched->store->ops->transfer_by_batch(c->sched->store, batch, ret_old, &c->err);

	if (result < 0 && result != -ERR_NO_TRANSFER)
		return err_wrap(&c->err, "looking for a transfer of this batch");
	if (result == 0) {
		if (is_same_push(ret_old, c, create, facts))
			return CHOOSE_RESUME;
		if (ret_old->state == TRANSFER_MERGING || ret_old->state == TRANSFER_COMPLETED)
			return batch_exists(&c->err,
					    ret_old->state == TRANSFER_MERGING
						    ? "a batch of this name is being merged"
						    : "a batch of this name is complete, and it is another folder");
		if (strcmp(ret_old->user, c->user->name) != 0 || create->source[0] == '\0' ||
		    strcmp(ret_old->source, create->source) != 0)
			return batch_exists(&c->err,
					    "a batch of this name is being sent, from elsewhere or cut otherwise");
		choice = choose_over(c, facts, ret_old);
		if (choice < 0)
			return choice;
	}
	if (merge_batch_exists(c->sched->merge, batch))
		return batch_exists(&c->err, "the final store has a folder of this name that no transfer explains");
	return choice;
}

/* --- the plan --- */

static int answer(struct sched_call *c, const struct store_transfer *transfer, bool is_resumed)
{
	struct json json;

	json_init(&json, &c->answer);
	json_open(&json, NULL);
	sched_json_transfer(&json, c, transfer);
	json_bool(&json, "is_resumed", is_resumed);
	sched_json_nodes(&json, c->sched);
	json_close(&json);
	c->status = is_resumed ? 200 : 201;
	return 0;
}

static unsigned wanted_copies(const struct sched_call *c)
{
	const struct create *create = c->state;

	return create->copies != 0 ? (unsigned)create->copies : c->sched->copies;
}

static void fill_transfer(struct sched_call *c, const struct plan_facts *facts, struct store_transfer *transfer)
{
	const struct create *create = c->state;
	int64_t now_us = clock_wall_us();

	memset(transfer, 0, sizeof(*transfer));
	ulid_make(now_us, transfer->id);
	snprintf(transfer->user, sizeof(transfer->user), "%s", c->user->name);
	snprintf(transfer->batch, sizeof(transfer->batch), "%s", create->batch);
	snprintf(transfer->source, sizeof(transfer->source), "%s", create->source);
	snprintf(transfer->manifest_digest, sizeof(transfer->manifest_digest), "%s", facts->digest);
	transfer->manifest_crc32c = facts->crc32c;
	transfer->digest = create->digest;
	memcpy(transfer->seal, create->seal, sizeof(transfer->seal));
	transfer->chunk_bytes = create->chunk_bytes != 0        ? create->chunk_bytes
				: create->chunk_wish_bytes != 0 ? create->chunk_wish_bytes
								: whole_pages(c->sched->chunk_bytes);
	transfer->state = TRANSFER_DISTRIBUTING;
	transfer->priority = (int)create->priority;
	transfer->copies = wanted_copies(c);
	sock_addr_text(http_peer(c->call), transfer->client_addr);
	transfer->created_wall_us = transfer->updated_wall_us = now_us;
}

static int plan(struct sched_call *c, const struct plan_facts *facts)
{
	const struct create *create = c->state;
	struct store *store = c->sched->store;
	struct pool_ring *ring = pool_ring_get(c->sched->pool);
	const struct plan_record record = {
		.file = c->sched->decisions,
		.is_every = c->sched->is_every_place,
		.nodes = ring->nodes,
		.node_count = ring->node_count,
	};
	struct store_transfer transfer;
	int result;

	fill_transfer(c, facts, &transfer);
	result = plan_write(create->is_dry_run ? NULL : store, ring->ring, create->fd, facts, &transfer, &record,
			    &c->err);
	pool_ring_put(c->sched->pool, ring);
	if (result < 0)
		return err_wrap(&c->err, "planning transfer %s", transfer.id);
	if (create->is_dry_run) {
		transfer.id[0] = '\0';
		return answer(c, &transfer, false);
	}
	result = store->ops->transfer_get(store, transfer.id, &transfer, &c->err);
	if (result < 0)
		return err_wrap(&c->err, "reading the new transfer back");
	log_say(LOG_INFO, "transfer %s of user %s is planned: %llu files, %llu bytes, %llu chunks", transfer.id,
		transfer.user, (unsigned long long)transfer.file_count, (unsigned long long)transfer.total_bytes,
		(unsigned long long)transfer.chunk_count);
	return answer(c, &transfer, false);
}

static int supersede(struct sched_call *c, struct store_transfer *old)
{
	struct store *store = c->sched->store;
	int result = store->ops->transfer_move(store, old, TRANSFER_FAILED,
					       "superseded by a new scan of the same folder", false, clock_wall_us(),
					       &c->err);

	if (result < 0)
		return err_wrap(&c->err, "giving up transfer %s for the new scan of its folder", old->id);
	log_say(LOG_INFO, "transfer %s is superseded by a new scan of its folder", old->id);
	keeper_remove(c->sched->keeper, old->id);
	return 0;
}

static int run_plan(struct sched_call *c, const struct plan_facts *facts)
{
	struct create *create = c->state;
	struct store_transfer old;
	int result, choice;

	result = sched_claim(c->sched, c->user->name, str_from(create->batch), facts, wanted_copies(c), &create->claim,
			     &c->err);
	if (result < 0)
		return result;
	choice = choose(c, facts, &old);
	if (choice < 0)
		return choice;
	if (choice == CHOOSE_RESUME) {
		if (create->is_dry_run)
			old.id[0] = '\0';
		else if (create->copies != 0)
			result = sched_copies_ask(c, &old, (unsigned)create->copies);
		return result < 0 ? result : answer(c, &old, true);
	}
	if (choice == CHOOSE_REVISE) {
		result = sched_revise(c, &old, create->changes, create->change_count, facts, create->claim);
		if (result == 0 && create->copies != 0)
			result = sched_copies_ask(c, &old, (unsigned)create->copies);
		return result < 0 ? result : answer(c, &old, true);
	}
	result = sched_quota_check(c->sched, c->user, facts, create->claim, choice == CHOOSE_SUPERSEDE ? &old : NULL,
				   &c->err);
	if (result == 0)
		result = sched_space_check(c->sched, facts, wanted_copies(c), create->claim,
					   choice == CHOOSE_SUPERSEDE ? old.id : NULL, &c->err);
	if (result == 0 && choice == CHOOSE_SUPERSEDE && !create->is_dry_run)
		result = supersede(c, &old);
	return result < 0 ? result : plan(c, facts);
}

static int run_resume(struct sched_call *c, const struct plan_facts *facts)
{
	const struct create *create = c->state;
	const struct resume_ask ask = { .transfer_id = create->resume_id,
					.batch = str_from(create->batch),
					.digest = create->digest,
					.seal = create->seal,
					.chunk_bytes = create->chunk_bytes,
					.manifest_fd = create->fd,
					.facts = facts };
	struct store_transfer transfer;
	int result = sched_resume(c, &ask, &transfer);

	if (result < 0)
		return result;
	if (create->is_dry_run)
		transfer.id[0] = '\0';
	return answer(c, &transfer, true);
}

/* Asked for each transfer, since another file system may be mounted there meanwhile. */
static int check_names(struct sched_call *c, const struct create *create)
{
	struct fold fold;
	struct err err;

	if (c->sched->bucket)
		return final_s3_check_names(c->sched->bucket, str_from(create->batch), create->fd, &c->err);
	if (fold_probe(c->sched->staging_dir, &fold, &err) < 0)
		fold = c->sched->fold;
	return fold_is_any(&fold) ? fold_check(create->fd, &fold, &c->err) : 0;
}

static int run_create(struct sched_call *c)
{
	struct create *create = c->state;
	struct plan_facts facts;
	int result;

	if (create->fd < 0)
		return err_set(&c->err, ERR_MANIFEST_BAD, "the manifest is empty");
	if (create->crc32c != create->told_crc32c)
		return err_set(&c->err, ERR_MANIFEST_CRC, "the manifest came with CRC-32C %08x, not the %08x told",
			       create->crc32c, create->told_crc32c);
	result = plan_scan(create->fd, &manifest_limits_default, &facts, &c->err);
	if (result == 0)
		result = check_names(c, create);
	if (result == 0)
		result = create->resume_id[0] != '\0' ? run_resume(c, &facts) : run_plan(c, &facts);
	if (result == -ERR_NO_SPACE)
		c->retry_after_us = SCHED_NO_SPACE_RETRY_US;
	/* Here rather than in drop: giving back a large file's blocks takes a while, which no loop should wait for. */
	fs_close(&create->fd);
	return result;
}

static int check_create(struct sched_call *c) { return parse_all(c, c->state); }

void sched_begin_create(struct http_call *call, void *app)
{
	struct sched_call *c = sched_client_call(call, app, run_create);
	struct create *create;

	if (!c)
		return;
	create = must_zalloc(1, sizeof(*create));
	create->fd = -1;
	c->state = create;
	c->drop = create_drop;
	c->take = create_take;
	c->work = c->sched->plans;
	c->body_limit_bytes = SCHED_MANIFEST_MAX;
	c->check = check_create;
	sched_call_go(c);
}
