#include "folder/plan_inside.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "folder/plan_log.h"
#include "sys/fs.h"

/* --- reading the spool file --- */

static int feed_file(struct manifest_parser *parser, int fd, char *piece, struct err *err)
{
	int64_t offset = 0;

	for (;;) {
		size_t size = 0;
		int result = fs_read_all(fd, piece, PLAN_PIECE_BYTES, offset, &size, err);

		if (result < 0)
			return err_wrap(err, "reading the spooled manifest");
		if (size == 0)
			return 0;
		result = manifest_feed(parser, (struct str){ piece, size }, err);
		if (result < 0)
			return result;
		offset += (int64_t)size;
	}
}

/* The whole manifest from its start through a fresh parser; the parser's own sums go to ret_facts. */
static int parse_file(int fd, const struct manifest_limits *limits, manifest_entry_fn *on_entry, void *owner,
		      struct plan_facts *ret_facts, struct err *err)
{
	struct manifest_parser *parser = manifest_parser_new(limits, on_entry, owner);
	char *piece = must_alloc(PLAN_PIECE_BYTES);
	int result = feed_file(parser, fd, piece, err);

	if (result == 0)
		result = manifest_end(parser, err);
	if (result == 0) {
		ret_facts->crc32c = manifest_crc32c(parser);
		manifest_digest(parser, ret_facts->digest);
	}
	free(piece);
	manifest_parser_free(&parser);
	return result;
}

void plan_count(struct plan_facts *facts, const struct manifest_entry *entry)
{
	facts->entry_count++;
	if (entry->type != MANIFEST_FILE)
		return;
	facts->file_count++;
	facts->total_bytes += entry->size_bytes;
	if (entry->size_bytes > facts->largest_file_bytes)
		facts->largest_file_bytes = entry->size_bytes;
}

static int scan_entry(void *owner, const struct manifest_entry *entry, struct err *err)
{
	(void)err;
	plan_count(owner, entry);
	return 0;
}

int plan_scan(int manifest_fd, const struct manifest_limits *limits, struct plan_facts *ret_facts, struct err *err)
{
	memset(ret_facts, 0, sizeof(*ret_facts));
	return parse_file(manifest_fd, limits, scan_entry, ret_facts, ret_facts, err);
}

int plan_scan_each(int manifest_fd, manifest_entry_fn *on_entry, void *owner, struct plan_facts *ret_facts,
		   struct err *err)
{
	memset(ret_facts, 0, sizeof(*ret_facts));
	return parse_file(manifest_fd, &manifest_limits_default, on_entry, owner, ret_facts, err);
}

/* --- keys --- */

uint64_t plan_pack_bytes(uint64_t chunk_bytes) { return chunk_bytes / 8; }

/* Decimal digits at target, without a NUL; returns how many. */
static size_t put_u64(char *target, uint64_t value)
{
	char reversed[20];
	size_t count = 0;

	do {
		reversed[count++] = (char)('0' + value % 10);
		value /= 10;
	} while (value != 0);
	for (size_t i = 0; i < count; i++)
		target[i] = reversed[count - 1 - i];
	return count;
}

uint64_t plan_chunk_key(const char *transfer_id, struct str path, uint64_t file_id, bool is_pack, uint64_t chunk_index)
{
	char key[ULID_SIZE + MANIFEST_PATH_MAX + 64];
	size_t size = strnlen(transfer_id, ULID_SIZE - 1);

	/* A million times a plan: without printf. The path is bytes, so it is laid in by length; the manifest's rules bound it. */
	memcpy(key, transfer_id, size);
	key[size++] = ' ';
	if (is_pack) {
		size += put_u64(key + size, file_id);
	} else {
		MUST(path.size <= MANIFEST_PATH_MAX);
		if (path.size != 0)
			memcpy(key + size, path.data, path.size);
		size += path.size;
	}
	key[size++] = ' ';
	size += put_u64(key + size, chunk_index);
	return ring_hash_key(key, size);
}

/* --- writing the plan --- */

static int write_chunk(struct plan_writer *writer, const struct store_object *object, struct str path,
		       uint64_t chunk_index, struct err *err)
{
	uint64_t cut = writer->transfer->chunk_bytes, offset = chunk_index * cut;
	struct store_chunk chunk = {
		.file_id = object->file_id,
		.chunk_index = chunk_index,
		.size_bytes = object->size_bytes - offset < cut ? object->size_bytes - offset : cut,
		.state = CHUNK_PENDING,
		.updated_wall_us = writer->now_wall_us,
	};
	uint64_t key;
	int node_index;

	if (writer->transfer->chunk_count == PLAN_CHUNKS_MAX) {
		err_set(err, ERR_LIMIT, "the folder needs more than %u chunks of %" PRIu64 " bytes", PLAN_CHUNKS_MAX,
			cut);
		err_hint(err, "ask for a larger chunk size, or send the folder in parts");
		return -ERR_LIMIT;
	}
	writer->transfer->chunk_count++;
	if (!writer->plan)
		return 0;
	key = plan_chunk_key(writer->transfer->id, path, object->file_id, object->is_pack, chunk_index);
	node_index = writer->log ? plan_log_assign(writer->log, key, chunk.size_bytes,
						   object->is_pack ? STR("(pack)") : path, chunk_index)
				 : ring_batch_assign(writer->batch, key, chunk.size_bytes);
	if (node_index < 0)
		return err_set(err, ERR_NO_NODES, "no node takes work");
	MUST(str_copy(str_from(ring_node_id(writer->ring, (size_t)node_index)), chunk.target_node,
		      sizeof(chunk.target_node)));
	return writer->store->ops->plan_chunk(writer->plan, &chunk, err);
}

static int write_object(struct plan_writer *writer, struct store_object *object, struct str path, struct err *err)
{
	uint64_t cut = writer->transfer->chunk_bytes;
	int result = 0;

	object->chunk_count = object->size_bytes / cut + (object->size_bytes % cut != 0);
	writer->transfer->object_count++;
	if (writer->plan)
		result = writer->store->ops->plan_object(writer->plan, object, err);
	for (uint64_t i = 0; i < object->chunk_count && result == 0; i++)
		result = write_chunk(writer, object, path, i, err);
	return result;
}

/* A pack is known whole only now, after the last of its files went by. */
int plan_close_pack(struct plan_writer *writer, struct err *err)
{
	int result;

	if (writer->pack.file_id == 0)
		return 0;
	result = write_object(writer, &writer->pack, STR_NONE, err);
	writer->pack.file_id = 0;
	return result;
}

static int place_small(struct plan_writer *writer, struct store_entry *entry, struct err *err)
{
	struct store_object *pack = &writer->pack;

	if (pack->file_id != 0 && pack->size_bytes + entry->size_bytes > writer->transfer->chunk_bytes) {
		int result = plan_close_pack(writer, err);

		if (result < 0)
			return result;
	}
	if (pack->file_id == 0)
		*pack = (struct store_object){ .file_id = writer->next_file_id++,
					       .is_pack = true,
					       .first_seq = entry->seq };
	entry->file_id = pack->file_id;
	entry->object_offset = pack->size_bytes;
	pack->last_seq = entry->seq;
	pack->size_bytes += entry->size_bytes;
	return 0;
}

static int place_large(struct plan_writer *writer, struct store_entry *entry, struct err *err)
{
	struct store_object object = { .first_seq = entry->seq,
				       .last_seq = entry->seq,
				       .size_bytes = entry->size_bytes };
	int result = plan_close_pack(writer, err);

	if (result < 0)
		return result;
	object.file_id = writer->next_file_id++;
	entry->file_id = object.file_id;
	return write_object(writer, &object, entry->path, err);
}

/* Puts the entry's bytes into an object: entry->file_id and object_offset say which. */
int plan_place(struct plan_writer *writer, struct store_entry *entry, struct err *err)
{
	entry->file_id = entry->object_offset = 0;
	if (entry->size_bytes > writer->transfer->pack_bytes)
		return place_large(writer, entry, err);
	return entry->size_bytes > 0 ? place_small(writer, entry, err) : 0;
}

static int write_entry(void *owner, const struct manifest_entry *from, struct err *err)
{
	struct plan_writer *writer = owner;
	struct store_entry entry = {
		.seq = from->seq,
		.type = (char)from->type,
		.mode = from->mode,
		.mtime_ns = from->mtime_ns,
		.size_bytes = from->type == MANIFEST_FILE ? from->size_bytes : 0,
		.path = from->path,
		.target = from->target,
	};
	int result;

	writer->transfer->entry_count++;
	writer->transfer->file_count += from->type == MANIFEST_FILE;
	writer->transfer->total_bytes += entry.size_bytes;
	result = plan_place(writer, &entry, err);
	if (result < 0 || !writer->plan)
		return result;
	return writer->store->ops->plan_entry(writer->plan, &entry, err);
}

static int write_all(struct plan_writer *writer, int manifest_fd, const struct plan_facts *facts, struct err *err)
{
	/* The first pass counted, so the second needs no wider limits than what was found. */
	struct manifest_limits limits = {
		.entry_count_max = facts->entry_count,
		.file_bytes_max = facts->largest_file_bytes,
		.total_bytes_max = facts->total_bytes,
	};
	struct plan_facts again = { .crc32c = 0 };
	int result = parse_file(manifest_fd, &limits, write_entry, writer, &again, err);

	if (result == 0)
		result = plan_close_pack(writer, err);
	if (result < 0)
		return result;
	if (again.crc32c != facts->crc32c || strcmp(again.digest, facts->digest) != 0)
		return err_set(err, ERR_MANIFEST_CRC, "the spooled manifest changed between two readings");
	return 0;
}

void plan_open_log(struct plan_writer *writer, const char *plan_id, uint64_t total_bytes,
		   const struct plan_record *record)
{
	const struct plan_log_options options = {
		.file = record->file,
		.is_every = record->is_every,
		.plan_id = plan_id,
		.ring = writer->ring,
		.nodes = record->nodes,
		.node_count = record->node_count,
		.batch = writer->batch,
		.total_bytes = total_bytes,
		.key_bytes_max = writer->transfer->chunk_bytes,
		.epsilon_milli = PLAN_LOAD_EPSILON,
		.wall_us = writer->now_wall_us,
	};

	writer->log = plan_log_new(&options);
}

int plan_check_ring(const struct ring *ring, struct err *err)
{
	if (ring && ring_point_count(ring) > 0)
		return 0;
	err_set(err, ERR_NO_NODES, "no node takes work at present");
	err_hint(err, "see GET /api/v1/nodes for what each node says; start one, or free space");
	return -ERR_NO_NODES;
}

int plan_write(struct store *store, const struct ring *ring, int manifest_fd, const struct plan_facts *facts,
	       struct store_transfer *transfer, const struct plan_record *record, struct err *err)
{
	struct plan_writer writer = {
		.store = store,
		.ring = ring,
		.transfer = transfer,
		.now_wall_us = clock_wall_us(),
		.next_file_id = 1,
	};
	int result = plan_check_ring(ring, err);

	MUST(transfer->chunk_bytes > 0);
	if (result < 0)
		return result;
	transfer->pack_bytes = plan_pack_bytes(transfer->chunk_bytes);
	transfer->entry_count = transfer->file_count = transfer->object_count = transfer->chunk_count = 0;
	transfer->total_bytes = 0;
	writer.batch = ring_batch_new(ring, facts->total_bytes, PLAN_LOAD_EPSILON);
	if (store && record && record->file)
		plan_open_log(&writer, transfer->id, facts->total_bytes, record);
	if (store)
		result = store->ops->plan_begin(store, transfer, &writer.plan, err);
	if (result == 0)
		result = write_all(&writer, manifest_fd, facts, err);
	if (result == 0 && store)
		result = store->ops->plan_commit(&writer.plan, transfer, err);
	if (writer.plan)
		store->ops->plan_abort(&writer.plan);
	if (result == 0 && writer.log)
		plan_log_commit(writer.log);
	plan_log_free(&writer.log);
	ring_batch_free(&writer.batch);
	return result;
}
