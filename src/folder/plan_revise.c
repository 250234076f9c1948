#include "folder/plan_inside.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

/* --- what is to be revised --- */

int plan_changes_parse(struct str text, struct plan_change changes[PLAN_CHANGES_MAX], size_t *ret_count,
		       struct err *err)
{
	struct str line, seq, size, mtime;
	size_t count = 0;

	while (text.size > 0) {
		struct plan_change change = { .seq = 0 };
		bool is_ended = memchr(text.data, '\n', text.size) != NULL;
		bool is_good = str_cut(&text, '\n', &line) && str_cut(&line, ' ', &seq) &&
			       str_to_u64(seq, &change.seq) && str_cut(&line, ' ', &size) &&
			       str_to_u64(size, &change.size_bytes) && str_cut(&line, ' ', &mtime) &&
			       str_to_i64(mtime, &change.mtime_ns) && str_to_octal(line, &change.mode) &&
			       change.mode <= 07777;

		if (!is_good || !is_ended)
			return err_set(err, ERR_BAD_REQUEST,
				       "line %zu is not '<number> <size> <mtime in ns> <mode in octal>'", count + 1);
		if (count == PLAN_CHANGES_MAX)
			return err_set(err, ERR_BAD_REQUEST, "more than %u entries are revised at once",
				       PLAN_CHANGES_MAX);
		if (count > 0 && change.seq <= changes[count - 1].seq)
			return err_set(err, ERR_BAD_REQUEST, "line %zu is not in the order of the entries' numbers",
				       count + 1);
		changes[count++] = change;
	}
	if (count == 0)
		return err_set(err, ERR_BAD_REQUEST, "no entry is named that is to be revised");
	*ret_count = count;
	return 0;
}

/* --- the manifest as it is then --- */

struct revised {
	const struct plan_change *changes;
	size_t count, next; /* next: the first change that has not been met */
	struct manifest_parser *parser;
	struct buf text;
	struct plan_facts *facts;
	int result;
	struct err *err;
};

static int revised_flush(struct revised *revised)
{
	if (revised->text.is_failed)
		return err_set(revised->err, ERR_NO_MEMORY, "no memory for a piece of the manifest");
	int result = manifest_feed(revised->parser, buf_str(&revised->text), revised->err);
	buf_clear(&revised->text);
	return result;
}

static int revised_each(void *owner, const struct store_entry *stored)
{
	struct revised *revised = owner;
	struct manifest_entry entry = {
		.seq = stored->seq,
		.type = (enum manifest_type)stored->type,
		.mode = stored->mode,
		.mtime_ns = stored->mtime_ns,
		.size_bytes = stored->size_bytes,
		.path = stored->path,
		.target = stored->target,
	};

	if (revised->next < revised->count && revised->changes[revised->next].seq == stored->seq) {
		const struct plan_change *change = &revised->changes[revised->next++];

		entry.mode = change->mode;
		entry.mtime_ns = change->mtime_ns;
		entry.size_bytes = change->size_bytes;
		if (entry.type != MANIFEST_FILE && entry.size_bytes != 0) {
			revised->result = err_set(revised->err, ERR_BAD_REQUEST,
						  "entry %" PRIu64 " is no file, and has no size to revise", entry.seq);
			return 1;
		}
	}
	plan_count(revised->facts, &entry);
	manifest_write(&revised->text, &entry);
	if (revised->text.size >= PLAN_PIECE_BYTES)
		revised->result = revised_flush(revised);
	return revised->result < 0;
}

static int revised_whole(struct revised *revised, struct store *store, const struct store_transfer *transfer,
			 struct err *err)
{
	int result;

	manifest_write_head(&revised->text);
	result = store->ops->entries(store, transfer->id, 0, transfer->entry_count, revised_each, revised, err);
	if (result < 0)
		return err_wrap(err, "reading the entries of transfer %s", transfer->id);
	if (revised->result < 0)
		return revised->result;
	if (revised->next != revised->count)
		return err_set(err, ERR_BAD_REQUEST, "transfer %s has no entry %" PRIu64, transfer->id,
			       revised->changes[revised->next].seq);
	manifest_write_end(&revised->text, revised->facts->entry_count, revised->facts->total_bytes);
	result = revised_flush(revised);
	return result < 0 ? result : manifest_end(revised->parser, err);
}

/* The rules are the parser's; it has nothing to add to what passes. */
static int revised_accept(void *owner, const struct manifest_entry *entry, struct err *err)
{
	(void)owner, (void)entry, (void)err;
	return 0;
}

int plan_revised_facts(struct store *store, const struct store_transfer *transfer, const struct plan_change *changes,
		       size_t count, struct plan_facts *ret_facts, struct err *err)
{
	struct revised revised = {
		.changes = changes,
		.count = count,
		.parser = manifest_parser_new(&manifest_limits_default, revised_accept, NULL),
		.text = BUF_INIT(PLAN_PIECE_BYTES + 2 * MANIFEST_LINE_MAX),
		.facts = ret_facts,
		.err = err,
	};
	int result;

	memset(ret_facts, 0, sizeof(*ret_facts));
	result = revised_whole(&revised, store, transfer, err);
	if (result == 0) {
		ret_facts->crc32c = manifest_crc32c(revised.parser);
		manifest_digest(revised.parser, ret_facts->digest);
	}
	manifest_parser_free(&revised.parser);
	buf_fini(&revised.text);
	return result;
}

/* --- planning anew --- */

/* An object in which a changed entry lies, or a changed entry that lies in none: file_id 0. Their ranges never overlap. */
struct unit {
	uint64_t file_id, first_seq, last_seq, size_bytes, chunk_count;
};

struct revision {
	struct plan_writer writer;
	const struct plan_change *changes;
	size_t count;
	struct unit *units; /* at most one for each change */
	size_t unit_count;
	const struct unit *unit; /* at hand */
	int result;
	struct err *err;
};

/* The index of the first change at or after seq. */
static size_t change_from(const struct revision *revision, uint64_t seq)
{
	size_t low = 0, high = revision->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (revision->changes[middle].seq < seq)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static const struct plan_change *change_of(const struct revision *revision, uint64_t seq)
{
	size_t i = change_from(revision, seq);

	return i < revision->count && revision->changes[i].seq == seq ? &revision->changes[i] : NULL;
}

static int unit_each(void *owner, const struct store_object *object)
{
	struct revision *revision = owner;
	size_t i = change_from(revision, object->first_seq);

	if (i == revision->count || revision->changes[i].seq > object->last_seq)
		return 0;
	if (revision->unit_count == revision->count) {
		revision->result = err_set(revision->err, ERR_INTEGRITY, "the plan has objects that overlap");
		return 1;
	}
	revision->units[revision->unit_count++] = (struct unit){ object->file_id, object->first_seq, object->last_seq,
								 object->size_bytes, object->chunk_count };
	return 0;
}

static int by_seq(const void *a, const void *b)
{
	const struct unit *x = a, *y = b;

	return (x->first_seq > y->first_seq) - (x->first_seq < y->first_seq);
}

/* In the order of the manifest, so that the new file ids are in it too: a client reads its manifest along. */
static int find_units(struct revision *revision, struct err *err)
{
	struct store *store = revision->writer.store;
	const struct store_transfer *transfer = revision->writer.transfer;
	size_t found_count, at = 0;
	int result = store->ops->objects(store, transfer->id, 0, SIZE_MAX, unit_each, revision, err);

	if (result < 0)
		return err_wrap(err, "reading the objects of transfer %s", transfer->id);
	if (revision->result < 0)
		return revision->result;
	found_count = revision->unit_count;
	qsort(revision->units, found_count, sizeof(*revision->units), by_seq);
	for (size_t i = 0; i < revision->count; i++) {
		uint64_t seq = revision->changes[i].seq;

		while (at < found_count && revision->units[at].last_seq < seq)
			at++;
		if (at < found_count && revision->units[at].first_seq <= seq)
			continue;
		if (revision->unit_count == revision->count)
			return err_set(err, ERR_INTEGRITY, "the plan has objects that overlap");
		revision->units[revision->unit_count++] = (struct unit){ .first_seq = seq, .last_seq = seq };
	}
	qsort(revision->units, revision->unit_count, sizeof(*revision->units), by_seq);
	return 0;
}

static uint64_t revision_bytes(const struct revision *revision)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < revision->unit_count; i++)
		bytes += revision->units[i].size_bytes;
	for (size_t i = 0; i < revision->count; i++)
		bytes += revision->changes[i].size_bytes;
	return bytes;
}

static int write_row(struct revision *revision, const struct store_entry *old, const struct store_entry *entry)
{
	char shown[300], detail[STORE_REASON_SIZE];
	struct plan_writer *writer = &revision->writer;
	const struct store_audit row = {
		.at_wall_us = writer->now_wall_us,
		.kind = "revised",
		.transfer_id = writer->transfer->id,
		.user = writer->transfer->user,
		.outcome = "ok",
		.detail = detail,
		.file_id = entry->file_id,
	};

	(void)snprintf(detail, sizeof(detail),
		       "entry %" PRIu64 " changed while it was sent: %" PRIu64 " bytes of object %" PRIu64
		       " became %" PRIu64 ": %s",
		       entry->seq, old->size_bytes, old->file_id, entry->size_bytes,
		       str_display(entry->path, shown, sizeof(shown)));
	return writer->store->ops->revise_row(writer->plan, &row, revision->err);
}

static int revise_entry(struct revision *revision, const struct store_entry *old)
{
	struct plan_writer *writer = &revision->writer;
	const struct plan_change *change = change_of(revision, old->seq);
	struct store_entry entry = *old;
	int result = 0;

	if (old->file_id != revision->unit->file_id && old->file_id != 0)
		return err_set(revision->err, ERR_INTEGRITY,
			       "entry %" PRIu64 " of transfer %s lies in object %" PRIu64 " within object %" PRIu64,
			       old->seq, writer->transfer->id, old->file_id, revision->unit->file_id);
	if (!change && old->file_id == 0)
		return 0;
	if (change) {
		entry.mode = change->mode;
		entry.mtime_ns = change->mtime_ns;
		entry.size_bytes = change->size_bytes;
		entry.digest[0] = '\0';
		writer->transfer->total_bytes += entry.size_bytes - old->size_bytes;
	}
	if (entry.type == MANIFEST_FILE)
		result = plan_place(writer, &entry, revision->err);
	if (result == 0)
		result = writer->store->ops->plan_entry(writer->plan, &entry, revision->err);
	return result == 0 && change ? write_row(revision, old, &entry) : result;
}

static int revise_each(void *owner, const struct store_entry *entry)
{
	struct revision *revision = owner;

	revision->result = revise_entry(revision, entry);
	return revision->result < 0;
}

/* The entries are read as they were before this transaction, in which they are written: readers see what is committed. */
static int revise_unit(struct revision *revision, const struct unit *unit)
{
	struct plan_writer *writer = &revision->writer;
	struct store *store = writer->store;
	struct store_transfer *transfer = writer->transfer;
	int result = 0;

	revision->unit = unit;
	if (unit->file_id != 0) {
		result = store->ops->revise_drop(writer->plan, unit->file_id, revision->err);
		transfer->object_count--;
		transfer->chunk_count -= unit->chunk_count;
	}
	if (result == 0)
		result = store->ops->entries(store, transfer->id, unit->first_seq, unit->last_seq, revise_each,
					     revision, revision->err);
	if (result == 0)
		result = revision->result;
	return result < 0 ? result : plan_close_pack(writer, revision->err);
}

/* The tables know only what is theirs: put back from a copy that is older than a revision they would give its ids once more, to other bytes than those
 * that nodes still have under them. So ids grow with time as well: by a microsecond each, in which no plan makes two objects. */
static uint64_t never_given(uint64_t next_file_id, const struct store_transfer *transfer, int64_t now_wall_us)
{
	const int64_t age_us = now_wall_us - transfer->created_wall_us;

	return age_us > 0 && (uint64_t)age_us > next_file_id ? (uint64_t)age_us : next_file_id;
}

static int revise_all(struct revision *revision, struct err *err)
{
	struct plan_writer *writer = &revision->writer;
	struct store *store = writer->store;
	int result = store->ops->revise_begin(store, writer->transfer, &writer->plan, &writer->next_file_id, err);

	writer->next_file_id = never_given(writer->next_file_id, writer->transfer, writer->now_wall_us);
	for (size_t i = 0; i < revision->unit_count && result == 0; i++)
		result = revise_unit(revision, &revision->units[i]);
	return result == 0 ? store->ops->revise_commit(&writer->plan, writer->transfer, err) : result;
}

int plan_revise(struct store *store, const struct ring *ring, struct store_transfer *transfer,
		const struct plan_change *changes, size_t count, const struct plan_facts *facts,
		const struct plan_record *record, struct err *err)
{
	struct revision revision = {
		.writer = { .store = store, .ring = ring, .transfer = transfer, .now_wall_us = clock_wall_us() },
		.changes = changes,
		.count = count,
		.err = err,
	};
	struct plan_writer *writer = &revision.writer;
	char plan_id[ULID_SIZE + 24];
	int result = plan_check_ring(ring, err);

	MUST(transfer->pack_bytes > 0 && transfer->chunk_bytes > 0);
	if (result < 0)
		return result;
	revision.units = must_zalloc(count + 1, sizeof(*revision.units));
	result = find_units(&revision, err);
	if (result == 0) {
		uint64_t bytes = revision_bytes(&revision);

		/* Its own in the log of decisions: the plan that it revises had other bytes to share out. */
		snprintf(plan_id, sizeof(plan_id), "%s.%" PRId64, transfer->id, transfer->version);
		memcpy(transfer->manifest_digest, facts->digest, sizeof(transfer->manifest_digest));
		transfer->manifest_crc32c = facts->crc32c;
		transfer->updated_wall_us = writer->now_wall_us;
		writer->batch = ring_batch_new(ring, bytes, PLAN_LOAD_EPSILON);
		if (record && record->file)
			plan_open_log(writer, plan_id, bytes, record);
		result = revise_all(&revision, err);
	}
	if (writer->plan)
		store->ops->plan_abort(&writer->plan);
	if (result == 0 && writer->log)
		plan_log_commit(writer->log);
	plan_log_free(&writer->log);
	ring_batch_free(&writer->batch);
	free(revision.units);
	return result;
}
