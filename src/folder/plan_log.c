#include "folder/plan_log.h"

#include <inttypes.h>
#include <stdlib.h>

#include "core/decide.h"

/* Lines are given to the file in blocks, each with the plan's line before it, so that a file that rotated meanwhile can be read alone. */
#define BLOCK_BYTES MIB
/* A log of every chunk can be longer than the file's queue: after so much the planner waits for the disk rather than lose a line. */
#define SYNC_BYTES (16 * MIB)
#define LOOK_FIRST 8

struct plan_log {
	struct plan_log_options options;
	struct buf lines; /* of places; a block */
	bool was_written; /* the plan's line, with some block */
	uint64_t number;  /* of keys so far */
	bool is_any_full; /* a node may have no room for a key: from then on owners are compared */
	uint64_t unsynced_bytes;
	uint16_t looked[RING_NODES_MAX];
	uint64_t held_bytes[RING_NODES_MAX], cap_bytes[RING_NODES_MAX];
};

static void note_room(struct plan_log *log, size_t node_index)
{
	uint64_t held_bytes, cap_bytes;

	ring_batch_load(log->options.batch, node_index, &held_bytes, &cap_bytes);
	log->is_any_full |= !ring_batch_fits(held_bytes, cap_bytes, log->options.key_bytes_max);
}

struct plan_log *plan_log_new(const struct plan_log_options *options)
{
	struct plan_log *log = must_zalloc(1, sizeof(*log));

	log->options = *options;
	log->lines = BUF_INIT(2 * BLOCK_BYTES + DECIDE_LINE_MAX);
	for (size_t i = 0; i < ring_node_count(options->ring); i++)
		note_room(log, i);
	return log;
}

static void log_write(struct plan_log *log)
{
	const struct plan_log_options *options = &log->options;
	struct buf block = BUF_INIT(2 * BLOCK_BYTES + 2 * DECIDE_LINE_MAX);

	decide_write_plan(&block, options->plan_id, options->nodes, options->node_count, options->total_bytes,
			  options->epsilon_milli, options->wall_us);
	buf_append(&block, buf_str(&log->lines));
	if (!block.is_failed)
		(void)logfile_write(options->file, buf_str(&block));
	log->was_written = true;
	log->unsynced_bytes += block.size;
	/* A disk that fails is the file's business: it counts what is lost and says so. */
	if (log->unsynced_bytes >= SYNC_BYTES) {
		(void)logfile_sync(options->file, NULL);
		log->unsynced_bytes = 0;
	}
	buf_clear(&log->lines);
	buf_fini(&block);
}

/* What each of the key's candidates had before it: since then nothing but the selected one's has changed. */
static size_t look(struct plan_log *log, size_t want, uint64_t key_hash, uint64_t size_bytes, int selected,
		   size_t *ret_found)
{
	/* Looking for more nodes than there are would walk all of the ring. */
	size_t count = ring_candidates(log->options.ring, key_hash, min_size(want, log->options.node_count),
				       log->looked);

	*ret_found = count;
	for (size_t i = 0; i < count; i++) {
		ring_batch_load(log->options.batch, log->looked[i], &log->held_bytes[i], &log->cap_bytes[i]);
		if (log->looked[i] != selected)
			continue;
		log->held_bytes[i] -= size_bytes;
		*ret_found = i;
	}
	return count;
}

/* Up to the selected one. */
static size_t look_back(struct plan_log *log, uint64_t key_hash, uint64_t size_bytes, int selected)
{
	size_t count, found;

	count = look(log, LOOK_FIRST, key_hash, size_bytes, selected, &found);
	/* Further away, or at the owner although it has no room: then everybody was looked at. */
	if (found == count || (found == 0 && !ring_batch_fits(log->held_bytes[0], log->cap_bytes[0], size_bytes)))
		return look(log, RING_NODES_MAX, key_hash, size_bytes, selected, &found);
	return found + 1;
}

static void log_place(struct plan_log *log, uint64_t key_hash, uint64_t size_bytes, int selected, bool is_spilled,
		      struct str what)
{
	struct decide_place place = {
		.plan_id = log->options.plan_id,
		.key_hash = key_hash,
		.size_bytes = size_bytes,
		.selected = selected,
		.reason = is_spilled ? REASON_spill : REASON_hash,
		.looked = log->looked,
		.held_bytes = log->held_bytes,
		.cap_bytes = log->cap_bytes,
		.what = what,
		.number = log->number,
	};

	place.looked_count = look_back(log, key_hash, size_bytes, selected);
	decide_write_place(&log->lines, log->options.ring, &place, log->options.wall_us);
	if (log->lines.size >= BLOCK_BYTES)
		log_write(log);
}

static void name_place(struct str path, uint64_t chunk_index, struct buf *what)
{
	buf_append(what, path);
	buf_printf(what, " %" PRIu64, chunk_index);
}

int plan_log_assign(struct plan_log *log, uint64_t key_hash, uint64_t size_bytes, struct str path, uint64_t chunk_index)
{
	bool is_looking = log->is_any_full || log->options.is_every;
	int owner = is_looking ? ring_owner(log->options.ring, key_hash) : -1;
	int selected = ring_batch_assign(log->options.batch, key_hash, size_bytes);

	if (selected < 0)
		return selected;
	log->number++;
	note_room(log, (size_t)selected);
	if (log->options.is_every || (is_looking && owner != selected)) {
		struct buf what = BUF_INIT(8 * KIB);

		name_place(path, chunk_index, &what);
		log_place(log, key_hash, size_bytes, selected, owner != selected, buf_str(&what));
		buf_fini(&what);
	}
	return selected;
}

void plan_log_commit(struct plan_log *log)
{
	if (!log->was_written || log->lines.size > 0)
		log_write(log);
}

void plan_log_free(struct plan_log **log)
{
	if (!*log)
		return;
	buf_fini(&(*log)->lines);
	free(*log);
	*log = NULL;
}
