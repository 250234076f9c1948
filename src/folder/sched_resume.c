/* POST /api/v1/transfers?resume=ID: exactly that transfer goes on, or the refusal says in words why it cannot. */
#include "folder/sched_impl.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE_ENTRIES     256u
#define DIFFERENCES_TOLD 3u
#define SHOWN_SIZE       100

/* --- where the folder differs from the transfer's --- */

struct known_entry {
	char type;
	uint32_t mode;
	int64_t mtime_ns;
	uint64_t size_bytes;
	size_t path_at, path_size, target_at, target_size; /* in the page's text */
};

struct comparison {
	struct store *store;
	const struct store_transfer *transfer;
	struct known_entry page[PAGE_ENTRIES];
	uint64_t page_seq; /* of page[0] */
	size_t page_count;
	struct buf text;
	struct err err;     /* of the store */
	bool is_over;       /* enough is known: the rest is not looked at */
	bool is_order_lost; /* from here on the entries stand for one another no more */
	unsigned told_count;
	char told[DIFFERENCES_TOLD * (SHOWN_SIZE * 2 + 64)];
};

PRINTF(2, 3) static void tell(struct comparison *comparison, const char *fmt, ...)
{
	size_t size = strlen(comparison->told);
	va_list args;

	size += (size_t)snprintf(comparison->told + size, sizeof(comparison->told) - size, "%s", size > 0 ? "; " : "");
	va_start(args, fmt);
	vsnprintf(comparison->told + size, sizeof(comparison->told) - size, fmt, args);
	va_end(args);
	comparison->is_over = ++comparison->told_count == DIFFERENCES_TOLD || comparison->is_order_lost;
}

static int keep_entry(void *owner, const struct store_entry *entry)
{
	struct comparison *comparison = owner;
	struct known_entry *known = &comparison->page[comparison->page_count];

	*known = (struct known_entry){ .type = entry->type,
				       .mode = entry->mode,
				       .mtime_ns = entry->mtime_ns,
				       .size_bytes = entry->size_bytes,
				       .path_at = comparison->text.size,
				       .path_size = entry->path.size,
				       .target_at = comparison->text.size + entry->path.size,
				       .target_size = entry->target.size };
	(void)buf_append(&comparison->text, entry->path);
	(void)buf_append(&comparison->text, entry->target);
	return ++comparison->page_count == PAGE_ENTRIES;
}

/* The transfer's entry of that number; NULL: there is none, or the store failed (err). */
static const struct known_entry *known_entry(struct comparison *comparison, uint64_t seq)
{
	if (seq >= comparison->transfer->entry_count)
		return NULL;
	if (seq < comparison->page_seq || seq - comparison->page_seq >= comparison->page_count) {
		comparison->page_seq = seq;
		comparison->page_count = 0;
		buf_clear(&comparison->text);
		if (comparison->store->ops->entries(comparison->store, comparison->transfer->id, seq,
						    seq + PAGE_ENTRIES - 1, keep_entry, comparison,
						    &comparison->err) < 0)
			return NULL;
		if (comparison->text.is_failed || comparison->page_count == 0) {
			err_set(&comparison->err, ERR_INTERNAL, "entry %" PRIu64 " cannot be read back", seq);
			return NULL;
		}
	}
	return &comparison->page[seq - comparison->page_seq];
}

static const char *shown(struct str path, char target[SHOWN_SIZE]) { return str_display(path, target, SHOWN_SIZE); }

static const char *difference(const struct manifest_entry *entry, const struct known_entry *known, struct str target)
{
	if ((char)entry->type != known->type)
		return "is of another kind now";
	if (entry->type == MANIFEST_FILE && entry->size_bytes != known->size_bytes)
		return "has another size now";
	if (entry->type == MANIFEST_LINK && !str_eq(entry->target, target))
		return "leads elsewhere now";
	if (entry->mtime_ns != known->mtime_ns)
		return "was modified since";
	return entry->mode != known->mode ? "has another mode now" : NULL;
}

static int compare_entry(void *owner, const struct manifest_entry *entry, struct err *err)
{
	struct comparison *comparison = owner;
	char mine[SHOWN_SIZE], theirs[SHOWN_SIZE];
	const struct known_entry *known = known_entry(comparison, entry->seq);

	if (comparison->err.code != ERR_NONE) {
		*err = comparison->err;
		return -(int)err->code;
	}
	if (!known) {
		tell(comparison, "'%s' is new", shown(entry->path, mine));
	} else {
		struct str path = { comparison->text.data + known->path_at, known->path_size };
		struct str target = { comparison->text.data + known->target_at, known->target_size };
		const char *word = difference(entry, known, target);

		comparison->is_order_lost = !str_eq(entry->path, path);
		if (comparison->is_order_lost)
			tell(comparison, "'%s' stands where the transfer has '%s'", shown(entry->path, mine),
			     shown(path, theirs));
		else if (word)
			tell(comparison, "'%s' %s", shown(entry->path, mine), word);
	}
	return comparison->is_over ? err_set(err, ERR_OTHER_FOLDER, "enough is known") : 0;
}

static int compare(struct sched_call *c, const struct resume_ask *ask, const struct store_transfer *transfer)
{
	struct comparison *comparison = must_zalloc(1, sizeof(*comparison));
	struct plan_facts facts;
	char path[SHOWN_SIZE];

	comparison->store = c->sched->store;
	comparison->transfer = transfer;
	comparison->text = BUF_INIT(2 * PAGE_ENTRIES * (MANIFEST_PATH_MAX + 1));
	int result = plan_scan_each(ask->manifest_fd, compare_entry, comparison, &facts, &c->err);
	if (result == 0 && ask->facts->entry_count < transfer->entry_count) {
		const struct known_entry *known = known_entry(comparison, ask->facts->entry_count);
		if (known)
			tell(comparison, "'%s' is gone",
			     shown((struct str){ comparison->text.data + known->path_at, known->path_size }, path));
	}
	if (comparison->told_count > 0) {
		err_set(&c->err, ERR_OTHER_FOLDER, "the folder is not as transfer %s has it: %s%s", transfer->id,
			comparison->told, comparison->is_over ? " ..." : "");
		err_hint(&c->err, "without --resume the folder as it is now is sent in that transfer's place");
		result = -ERR_OTHER_FOLDER;
	} else if (result == 0) {
		result = err_set(&c->err, ERR_OTHER_FOLDER, "the list of entries is not the one of transfer %s",
				 transfer->id);
	}
	buf_fini(&comparison->text);
	free(comparison);
	return result;
}

/* --- which transfer --- */

static int check_state(struct sched_call *c, const struct store_transfer *transfer)
{
	switch (transfer->state) {
	case TRANSFER_COMPLETED:
		return err_set(&c->err, ERR_STATE, "transfer %s is complete: there is nothing to resume", transfer->id);
	case TRANSFER_FAILED:
		err_set(&c->err, ERR_STATE, "transfer %s has failed: %s", transfer->id, transfer->reason);
		err_hint(&c->err, "without --resume the folder is sent anew");
		return -ERR_STATE;
	case TRANSFER_CREATED:
	case TRANSFER_DISTRIBUTING:
	case TRANSFER_UPLOADING:
	case TRANSFER_MERGING:
		break;
	}
	return 0;
}

/* What was asked for beside the folder itself must be what the transfer was begun with. */
static int check_terms(struct sched_call *c, const struct resume_ask *ask, const struct store_transfer *transfer)
{
	char batch[SHOWN_SIZE];

	if (ask->batch.size > 0 && !str_eq_c(ask->batch, transfer->batch))
		return err_set(&c->err, ERR_OTHER_FOLDER, "transfer %s is of the batch '%s'", transfer->id,
			       shown(str_from(transfer->batch), batch));
	if (ask->digest != transfer->digest) {
		err_set(&c->err, ERR_OTHER_FOLDER, "transfer %s was begun with %s digests", transfer->id,
			digest_name(transfer->digest));
		err_hint(&c->err, "say --digest %s", digest_name(transfer->digest));
		return -ERR_OTHER_FOLDER;
	}
	if (ask->chunk_bytes != 0 && ask->chunk_bytes != transfer->chunk_bytes) {
		err_set(&c->err, ERR_OTHER_FOLDER, "transfer %s is cut into chunks of %" PRIu64 " bytes", transfer->id,
			transfer->chunk_bytes);
		err_hint(&c->err, "leave out --chunk-size: a transfer stays as it was cut");
		return -ERR_OTHER_FOLDER;
	}
	return 0;
}

int sched_resume(struct sched_call *c, const struct resume_ask *ask, struct store_transfer *ret_transfer)
{
	struct store *store = c->sched->store;
	int result = store->ops->transfer_get(store, ask->transfer_id, ret_transfer, &c->err);

	/* In the same words: that another's transfer exists is nobody's business. */
	if (result == -ERR_NO_TRANSFER || (result == 0 && strcmp(ret_transfer->user, c->user->name) != 0)) {
		err_set(&c->err, ERR_NO_TRANSFER, "user '%s' has no transfer '%s'", c->user->name, ask->transfer_id);
		err_hint(&c->err, "heng status lists them");
		return -ERR_NO_TRANSFER;
	}
	if (result < 0)
		return err_wrap(&c->err, "looking up transfer %s", ask->transfer_id);
	result = check_state(c, ret_transfer);
	if (result == 0)
		result = check_terms(c, ask, ret_transfer);
	if (result < 0 || (strcmp(ret_transfer->manifest_digest, ask->facts->digest) == 0 &&
			   ret_transfer->manifest_crc32c == ask->facts->crc32c))
		return result;
	return compare(c, ask, ret_transfer);
}
