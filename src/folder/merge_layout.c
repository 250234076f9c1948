/* Laying out: all of a folder that needs no bytes from nodes, and the list of what it holds. */
#include "folder/merge_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "sys/fs.h"
#include "wire/manifest.h"

#define FLUSH_BYTES (256 * KIB)

enum layout_step {
	LAYOUT_WHOLE,  /* all is known */
	LAYOUT_AHEAD,  /* digests are not: no manifest; what was made is noted */
	LAYOUT_SETTLE, /* now they are: the manifest, and what was made is compared */
};

struct layout {
	struct merge_run *run;
	enum layout_step step;
	struct stage_cursor cursor;
	struct buf text;
	int manifest_fd;
	uint64_t entry_count, total_bytes, empty_count;
	struct merge_records records;
	uint64_t ready_files, ready_bytes; /* as the manifest wants them */
	uint64_t full_count;               /* files with bytes */
	struct merge_ids *file_ids;        /* ahead: of all entries with bytes */
	bool is_stale, is_some_wrong;
	char empty_digest[DIGEST_HEX_SIZE];
	int result;
	struct err *err;
};

static int flush_manifest(struct layout *layout)
{
	if (layout->text.is_failed)
		return err_set(layout->err, ERR_NO_MEMORY, "no memory for a line of the manifest");
	int result = fs_write_all(layout->manifest_fd, layout->text.data, layout->text.size, -1, layout->err);
	if (result < 0)
		return err_wrap(layout->err, "while writing the manifest into staging");
	buf_clear(&layout->text);
	return 0;
}

/* The manifest's own line, and for files one with the digest: without the lines that begin with # it is the text that the client sent. */
static int note_entry(struct layout *layout, const struct store_entry *entry)
{
	struct manifest_entry line = { .seq = entry->seq,
				       .type = (enum manifest_type)entry->type,
				       .mode = entry->mode,
				       .mtime_ns = entry->mtime_ns,
				       .size_bytes = entry->size_bytes,
				       .path = entry->path,
				       .target = entry->target };

	manifest_write(&layout->text, &line);
	if (entry->type == MANIFEST_FILE)
		buf_printf(&layout->text, "# %" PRIu64 " %s\n", entry->seq, entry->digest);
	layout->entry_count++;
	layout->total_bytes += entry->type == MANIFEST_FILE ? entry->size_bytes : 0;
	return layout->text.size < FLUSH_BYTES && !layout->text.is_failed ? 0 : flush_manifest(layout);
}

static int make_empty(struct layout *layout, const struct store_entry *entry)
{
	struct stage *stage = &layout->run->stage;
	char why[STORE_REASON_SIZE], shown[256];

	if (layout->step != LAYOUT_AHEAD && strcmp(entry->digest, layout->empty_digest) != 0) {
		snprintf(why, sizeof(why), "'%s' is empty, but the digest given for it is not that of nothing",
			 str_display(entry->path, shown, sizeof(shown)));
		merge_reopen_note(layout->run, why);
		return 0;
	}
	layout->empty_count++;
	if (layout->step == LAYOUT_SETTLE)
		return 0;
	int fd = stage_file(&layout->cursor, entry->path, entry->mode, layout->err);
	if (fd < 0)
		return fd;
	return stage_file_end(stage, &fd, entry->path, entry->mode, entry->mtime_ns, layout->err);
}

static int make_entry(struct layout *layout, const struct store_entry *entry)
{
	switch (entry->type) {
	case MANIFEST_DIR:
		return stage_folder(&layout->run->stage, &layout->cursor, entry, layout->err);
	case MANIFEST_LINK:
		return stage_link(&layout->cursor, entry, layout->err);
	case MANIFEST_FILE:
		return entry->file_id == 0 ? make_empty(layout, entry) : 0;
	default:
		return err_set(layout->err, ERR_INTERNAL, "entry %" PRIu64 " is of the unknown kind %d", entry->seq,
			       entry->type);
	}
}

/* A folder, link or empty file is noted when it is made, a file with bytes when they are there (merge_object.c). */
static int make_noted(struct layout *layout, const struct store_entry *entry)
{
	const struct merge_record record = { .facts = merge_record_facts(entry) };
	int result = make_entry(layout, entry);

	layout->entry_count++;
	layout->total_bytes += entry->type == MANIFEST_FILE ? entry->size_bytes : 0;
	if (entry->file_id != 0)
		merge_ids_add(layout->file_ids, entry->file_id);
	if (result < 0 || (entry->type == MANIFEST_FILE && entry->file_id != 0))
		return result;
	return merge_records_put(&layout->records, entry->seq, &record, layout->err);
}

/* Entries may have been revised since, and chunks sent again with other bytes: nothing is taken for granted that was not compared here. */
static int settle_entry(struct layout *layout, const struct store_entry *entry)
{
	const bool has_bytes = entry->type == MANIFEST_FILE && entry->file_id != 0;
	struct merge_record record;
	char hex[DIGEST_HEX_SIZE];
	int result = note_entry(layout, entry);

	if (result == 0)
		result = merge_records_get(&layout->records, entry->seq, &record, layout->err);
	if (result < 0)
		return result;
	layout->full_count += has_bytes;
	bool is_same = record.facts == merge_record_facts(entry);
	if (!has_bytes) {
		layout->is_stale |= !is_same;
		return entry->type == MANIFEST_FILE && is_same ? make_empty(layout, entry) : 0;
	}
	if (!merge_ahead_has(layout->run, entry->file_id))
		return 0;
	hex_encode(record.digest, digest_size(layout->run->transfer.digest), hex);
	if (is_same && strcmp(hex, entry->digest) == 0) {
		layout->ready_files++;
		layout->ready_bytes += entry->size_bytes;
		return 0;
	}
	merge_ahead_lacks(layout->run, entry->file_id);
	layout->is_some_wrong = true;
	return 0;
}

static int on_entry(void *owner, const struct store_entry *entry)
{
	struct layout *layout = owner;

	if (merge_is_over(layout->run)) {
		layout->result = err_set(layout->err, ERR_CLOSED, "the merge was given up");
		return 1;
	}
	switch (layout->step) {
	case LAYOUT_WHOLE:
		layout->result = note_entry(layout, entry);
		if (layout->result == 0)
			layout->result = make_entry(layout, entry);
		break;
	case LAYOUT_AHEAD:
		layout->result = make_noted(layout, entry);
		break;
	case LAYOUT_SETTLE:
		layout->result = settle_entry(layout, entry);
		break;
	}
	return layout->result < 0 || layout->is_stale;
}

/* After an object turned out wrong: its other files do not count either, wherever they stand in the manifest. */
static int on_count(void *owner, const struct store_entry *entry)
{
	struct layout *layout = owner;

	if (entry->type == MANIFEST_FILE && entry->file_id != 0 && merge_ahead_has(layout->run, entry->file_id)) {
		layout->ready_files++;
		layout->ready_bytes += entry->size_bytes;
	}
	return 0;
}

static int count_ready(struct layout *layout)
{
	struct merge_run *run = layout->run;
	struct store *store = run->merge->store;
	int result = 0;

	if (layout->is_some_wrong) {
		layout->ready_files = layout->ready_bytes = 0;
		result = store->ops->entries(store, run->transfer.id, 0, INT64_MAX, on_count, layout, layout->err);
	}
	merge_count(run, layout->ready_files, layout->ready_bytes);
	return result;
}

static int end_manifest(struct layout *layout)
{
	manifest_write_end(&layout->text, layout->entry_count, layout->total_bytes);
	return flush_manifest(layout);
}

static int lay_out(struct layout *layout)
{
	struct merge_run *run = layout->run;
	struct store *store = run->merge->store;

	manifest_write_head(&layout->text);
	int result = store->ops->entries(store, run->transfer.id, 0, INT64_MAX, on_entry, layout, layout->err);
	if (layout->result < 0)
		return layout->result;
	if (result < 0 || layout->is_stale)
		return result;
	result = layout->step == LAYOUT_AHEAD ? merge_records_flush(&layout->records, layout->err)
					      : end_manifest(layout);
	if (result < 0)
		return result;
	if (layout->entry_count != run->transfer.entry_count || layout->total_bytes != run->transfer.total_bytes)
		return err_set(
			layout->err, ERR_INTERNAL,
			"the store has %" PRIu64 " entries of %" PRIu64 " bytes, the plan %" PRIu64 " of %" PRIu64,
			layout->entry_count, layout->total_bytes, run->transfer.entry_count, run->transfer.total_bytes);
	if (layout->step == LAYOUT_AHEAD)
		return 0;
	merge_count(run, layout->empty_count, 0);
	return layout->step == LAYOUT_SETTLE ? count_ready(layout) : 0;
}

static int open_manifest(struct layout *layout)
{
	layout->manifest_fd = openat(layout->run->stage.home_fd, MERGE_MANIFEST,
				     O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	return layout->manifest_fd >= 0
		       ? 0
		       : err_sys(layout->err, ERR_SYSTEM, errno, "cannot make the manifest in staging");
}

static int run_layout(struct layout *layout)
{
	struct merge_run *run = layout->run;

	layout->text = BUF_INIT(MIB);
	layout->manifest_fd = -1;
	digest_of(run->transfer.digest, "", 0, layout->empty_digest);
	layout->records.fd = layout->step == LAYOUT_WHOLE ? -1 : merge_records_fd(run);
	stage_cursor_init(&layout->cursor, &run->stage);
	int result = layout->step == LAYOUT_AHEAD ? 0 : open_manifest(layout);
	if (result == 0)
		result = lay_out(layout);
	stage_cursor_fini(&layout->cursor);
	fs_close(&layout->manifest_fd);
	buf_fini(&layout->text);
	merge_records_fini(&layout->records);
	return result;
}

int merge_lay_out(struct merge_run *run, struct err *err)
{
	struct layout layout = { .run = run, .step = LAYOUT_WHOLE, .err = err };

	return run_layout(&layout);
}

int merge_lay_out_ahead(struct merge_run *run, struct merge_ids *ids, struct err *err)
{
	struct layout layout = { .run = run, .step = LAYOUT_AHEAD, .file_ids = ids, .err = err };

	return run_layout(&layout);
}

int merge_settle(struct merge_run *run, bool *ret_is_stale, uint64_t *ret_missing_count, struct err *err)
{
	struct layout layout = { .run = run, .step = LAYOUT_SETTLE, .err = err };
	int result = run_layout(&layout);

	*ret_is_stale = layout.is_stale;
	*ret_missing_count = layout.full_count - layout.ready_files;
	return result;
}
