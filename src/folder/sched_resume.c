/* POST /api/v1/transfers?resume=ID: exactly that transfer goes on, or the refusal says in words why it cannot. */
#include "folder/sched_impl.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIFFERENCES_TOLD 3u
#define SHOWN_SIZE       100

/* --- where the folder differs from the transfer's --- */

struct comparison {
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

static const char *shown(struct str path, char target[SHOWN_SIZE]) { return str_display(path, target, SHOWN_SIZE); }

static const char *difference(const struct manifest_entry *entry, const struct store_entry *known)
{
	if ((char)entry->type != known->type)
		return "is of another kind now";
	if (entry->type == MANIFEST_FILE && entry->size_bytes != known->size_bytes)
		return "has another size now";
	if (entry->type == MANIFEST_LINK && !str_eq(entry->target, known->target))
		return "leads elsewhere now";
	if (entry->mtime_ns != known->mtime_ns)
		return "was modified since";
	return entry->mode != known->mode ? "has another mode now" : NULL;
}

static int compare_entry(void *owner, const struct manifest_entry *entry, const struct store_entry *known,
			 struct err *err)
{
	struct comparison *comparison = owner;
	char mine[SHOWN_SIZE], theirs[SHOWN_SIZE];

	if (!known) {
		tell(comparison, "'%s' is new", shown(entry->path, mine));
	} else {
		const char *word = difference(entry, known);

		comparison->is_order_lost = !str_eq(entry->path, known->path);
		if (comparison->is_order_lost)
			tell(comparison, "'%s' stands where the transfer has '%s'", shown(entry->path, mine),
			     shown(known->path, theirs));
		else if (word)
			tell(comparison, "'%s' %s", shown(entry->path, mine), word);
	}
	return comparison->is_over ? err_set(err, ERR_OTHER_FOLDER, "enough is known") : 0;
}

static int tell_gone(void *owner, const struct store_entry *entry)
{
	char path[SHOWN_SIZE];

	tell(owner, "'%s' is gone", shown(entry->path, path));
	return 1;
}

static int compare(struct sched_call *c, const struct resume_ask *ask, const struct store_transfer *transfer)
{
	struct store *store = c->sched->store;
	struct comparison *comparison = must_zalloc(1, sizeof(*comparison));
	uint64_t count = ask->facts->entry_count;
	int result = plan_scan_beside(store, transfer, ask->manifest_fd, compare_entry, comparison, &c->err);

	if (result == 0 && count < transfer->entry_count)
		result = store->ops->entries(store, transfer->id, count, count, tell_gone, comparison, &c->err);
	if (comparison->told_count > 0) {
		err_set(&c->err, ERR_OTHER_FOLDER, "the folder is not as transfer %s has it: %s%s", transfer->id,
			comparison->told, comparison->is_over ? " ..." : "");
		err_hint(&c->err, "without --resume the folder as it is now is sent in that transfer's place");
		result = -ERR_OTHER_FOLDER;
	} else if (result == 0) {
		result = err_set(&c->err, ERR_OTHER_FOLDER, "the list of entries is not the one of transfer %s",
				 transfer->id);
	}
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
	if (strcmp(ask->seal, transfer->seal) != 0) {
		const char *seal = transfer->seal;

		err_set(&c->err, ERR_OTHER_FOLDER, "transfer %s was begun %s%s", transfer->id,
			seal[0] ? "with encrypted files, " : "without encryption", seal);
		err_hint(&c->err, seal[0] ? "say --encrypt with the file of that key, and the same --cipher"
					  : "leave out --encrypt");
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
