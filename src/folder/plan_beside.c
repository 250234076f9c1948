/* A manifest read along with what the store knows of a transfer's. */
#include "folder/plan.h"

#include <inttypes.h>
#include <stdlib.h>

#define PAGE_ENTRIES 256u

struct beside_entry {
	struct store_entry entry;               /* but for the slices */
	size_t path_at, path_size, target_size; /* in the page's text, the target behind the path */
};

struct beside {
	struct store *store;
	const struct store_transfer *transfer;
	plan_pair_fn *on_pair;
	void *owner;
	struct beside_entry page[PAGE_ENTRIES];
	uint64_t page_seq; /* of page[0] */
	size_t page_count;
	struct buf text;
};

static int keep_entry(void *owner, const struct store_entry *entry)
{
	struct beside *beside = owner;

	beside->page[beside->page_count] = (struct beside_entry){ .entry = *entry,
								  .path_at = beside->text.size,
								  .path_size = entry->path.size,
								  .target_size = entry->target.size };
	(void)buf_append(&beside->text, entry->path);
	(void)buf_append(&beside->text, entry->target);
	return ++beside->page_count == PAGE_ENTRIES;
}

static int read_page(struct beside *beside, uint64_t seq, struct err *err)
{
	int result;

	beside->page_seq = seq;
	beside->page_count = 0;
	buf_clear(&beside->text);
	result = beside->store->ops->entries(beside->store, beside->transfer->id, seq, seq + PAGE_ENTRIES - 1,
					     keep_entry, beside, err);
	if (result < 0)
		return err_wrap(err, "reading the entries of transfer %s", beside->transfer->id);
	if (beside->text.is_failed || beside->page_count == 0)
		return err_set(err, ERR_INTERNAL, "entry %" PRIu64 " cannot be read back", seq);
	return 0;
}

static int beside_entry(void *owner, const struct manifest_entry *entry, struct err *err)
{
	struct beside *beside = owner;
	struct store_entry known;
	const struct beside_entry *kept;
	int result = 0;

	if (entry->seq >= beside->transfer->entry_count)
		return beside->on_pair(beside->owner, entry, NULL, err);
	if (entry->seq < beside->page_seq || entry->seq - beside->page_seq >= beside->page_count)
		result = read_page(beside, entry->seq, err);
	if (result < 0)
		return result;
	kept = &beside->page[entry->seq - beside->page_seq];
	known = kept->entry;
	known.path = (struct str){ beside->text.data + kept->path_at, kept->path_size };
	known.target = (struct str){ beside->text.data + kept->path_at + kept->path_size, kept->target_size };
	return beside->on_pair(beside->owner, entry, &known, err);
}

int plan_scan_beside(struct store *store, const struct store_transfer *transfer, int manifest_fd, plan_pair_fn *on_pair,
		     void *owner, struct err *err)
{
	struct beside *beside = must_zalloc(1, sizeof(*beside));
	struct plan_facts facts;
	int result;

	beside->store = store;
	beside->transfer = transfer;
	beside->on_pair = on_pair;
	beside->owner = owner;
	beside->text = BUF_INIT(2 * PAGE_ENTRIES * (MANIFEST_PATH_MAX + 1));
	result = plan_scan_each(manifest_fd, beside_entry, beside, &facts, err);
	buf_fini(&beside->text);
	free(beside);
	return result;
}

/* --- what a new scan changes --- */

struct differences {
	struct plan_change *changes;
	size_t count;
	bool is_other;
};

static int differ(void *owner, const struct manifest_entry *entry, const struct store_entry *known, struct err *err)
{
	struct differences *differences = owner;
	bool is_same = known && (char)entry->type == known->type && str_eq(entry->path, known->path) &&
		       (entry->type != MANIFEST_LINK || str_eq(entry->target, known->target));
	uint64_t size_bytes = entry->type == MANIFEST_FILE ? entry->size_bytes : 0;

	if (is_same && size_bytes == known->size_bytes && entry->mtime_ns == known->mtime_ns &&
	    entry->mode == known->mode)
		return 0;
	differences->is_other = !is_same || differences->count == PLAN_CHANGES_MAX;
	if (differences->is_other)
		return err_set(err, ERR_OTHER_FOLDER, "enough is known");
	differences->changes[differences->count++] = (struct plan_change){ entry->seq, size_bytes, entry->mtime_ns,
									   entry->mode };
	return 0;
}

int plan_differences(struct store *store, const struct store_transfer *transfer, int manifest_fd,
		     const struct plan_facts *facts, struct plan_change changes[PLAN_CHANGES_MAX], size_t *ret_count,
		     struct err *err)
{
	struct differences differences = { .changes = changes };
	int result;

	if (facts->entry_count != transfer->entry_count)
		return 0;
	result = plan_scan_beside(store, transfer, manifest_fd, differ, &differences, err);
	if (differences.is_other) {
		*err = ERR_INIT;
		return 0;
	}
	*ret_count = differences.count;
	return result < 0 ? result : differences.count > 0;
}
