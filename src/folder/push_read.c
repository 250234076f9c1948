#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "folder/push_impl.h"
#include "folder/sealer.h"
#include "sys/fs.h"
#include "sys/quiet.h"

#define DIGESTS_FLUSH_BYTES (256 * KIB)

/* One object being read: a cursor over the files that make it up, in manifest order. */
struct reader {
	struct push *push;
	struct push_object *object;
	struct push_lines lines;
	struct digest *file_digest, *chunk_digest;
	char *scratch;
	bool is_digest_wanted; /* of whole files */
	bool is_changed;       /* the object cannot be sent: a file of it is not what the manifest says */
	bool has_noted;        /* some entry of it, or before it, is not what the manifest says */
	uint64_t noted_seq;    /* the last such entry of the object */
	bool is_single;        /* the object is one file in one chunk: hashed once, since both digests are the same */
	/* The open file. */
	struct push_file file;
	struct manifest_entry entry;  /* as it is stored */
	struct manifest_entry source; /* the same with the size that the file has here */
	struct sealer *sealer;        /* NULL: files are sent as they are */
	uint64_t file_at;
	char file_hex[DIGEST_HEX_SIZE]; /* of the file that ended last */
};

/* The entry at hand is not what the manifest says of it. is_final: sending it again would not mend it. */
static void read_note(struct reader *reader, bool is_final, const char *reason)
{
	bool is_other = !reader->has_noted || reader->noted_seq != reader->entry.seq;
	reader->noted_seq = reader->entry.seq;
	reader->is_changed = reader->has_noted = true;
	push_note_add(reader->push, reader->object, &reader->entry, is_other, is_final, reason);
}

/* --- digests of whole files --- */
static int digests_write(struct push *push, struct err *err)
{
	struct push_shared *shared = &push->shared;
	if (shared->digests.is_failed)
		return err_set(err, ERR_NO_MEMORY, "no memory for the digests' text");
	int r = fs_write_all(push->digests_fd, shared->digests.data, shared->digests.size, shared->digests_size, err);
	if (r < 0)
		return err_wrap(err, "writing digests to a temporary file");
	shared->digests_size += (int64_t)shared->digests.size;
	buf_clear(&shared->digests);
	return 0;
}

int push_digests_flush(struct push *push, struct err *err)
{
	pthread_mutex_lock(&push->shared.lock);
	int r = push->shared.digests.size > 0 || push->shared.digests.is_failed ? digests_write(push, err) : 0;
	pthread_mutex_unlock(&push->shared.lock);
	return r;
}

static int read_emit_digest(struct reader *reader, struct err *err)
{
	struct push_shared *shared = &reader->push->shared;
	pthread_mutex_lock(&shared->lock);
	buf_printf(&shared->digests, "%llu %s\n", (unsigned long long)reader->entry.seq, reader->file_hex);
	int r = shared->digests.size >= DIGESTS_FLUSH_BYTES || shared->digests.is_failed
			? digests_write(reader->push, err)
			: 0;
	pthread_mutex_unlock(&shared->lock);
	atomic_fetch_add(&shared->files_done, 1);
	return r;
}

static bool read_is_digested(struct push *push, uint64_t seq)
{
	pthread_mutex_lock(&push->shared.lock);
	bool is_digested = (push->shared.digested[seq / 8] & (1u << (seq % 8))) != 0;
	pthread_mutex_unlock(&push->shared.lock);
	return is_digested;
}

static void read_set_digested(struct push *push, uint64_t seq)
{
	pthread_mutex_lock(&push->shared.lock);
	push->shared.digested[seq / 8] |= (uint8_t)(1u << (seq % 8));
	pthread_mutex_unlock(&push->shared.lock);
}

/* --- files --- */
/* Nothing came where the manifest says that there are bytes. number: the system's word, 0 at the end of the file. */
static int read_cut(struct reader *reader, int number)
{
	char reason[PUSH_REASON_SIZE] = "it shrank while it was read";
	if (number != 0)
		snprintf(reason, sizeof(reason), "it cannot be read: %s", strerror(number));
	read_note(reader, number != 0, reason);
	fs_close(&reader->file.fd);
	return -ERR_SOURCE_CHANGED;
}

/* Whatever a sealer refused. A push that is stopped has nothing to note. */
static int read_sealed_fault(struct reader *reader, int r, const struct err *err)
{
	if (r == -ERR_SOURCE_CHANGED)
		read_note(reader, false, err->text);
	else if (r != -ERR_WAITING)
		return read_cut(reader, err->sys_errno);
	fs_close(&reader->file.fd);
	return -ERR_SOURCE_CHANGED;
}

static bool read_open(struct reader *reader)
{
	struct push *push = reader->push;
	char reason[PUSH_REASON_SIZE];
	reader->source = reader->entry;
	if (reader->sealer != NULL)
		MUST(seal_plain_size(push->options->cipher, reader->entry.size_bytes, &reader->source.size_bytes));
	if (!push_file_open(&reader->file, push->root_fd, push->options->links, &reader->source, reason)) {
		read_note(reader, false, reason);
		return false;
	}
	struct err err = ERR_INIT;
	int r = reader->sealer == NULL
			? 0
			: sealer_open(reader->sealer, reader->file.fd, push->transfer_id, reader->source.path,
				      reader->source.size_bytes, &push->shared.is_over, &err);
	if (r < 0) {
		(void)read_sealed_fault(reader, r, &err);
		return false;
	}
	digest_restart(reader->file_digest);
	reader->file_at = 0;
	return true;
}

/* The file's last byte was read, or the last that was wanted of it: is it still the same file, and does it end here? */
static bool read_close(struct reader *reader, bool is_whole)
{
	char reason[PUSH_REASON_SIZE];
	if (is_whole)
		digest_hex(reader->file_digest, reader->file_hex);
	/* A sealed file was read twice and was the same each time, so it was what was read when the first reading ended: nothing is hashed again. */
	const char *hex = is_whole && reader->sealer == NULL ? reader->file_hex : NULL;
	if (push_file_close(&reader->file, &reader->source, hex, reader->file_digest, reader->scratch, reason))
		return true;
	read_note(reader, false, reason);
	return false;
}

/* A file without bytes: nothing to send, but it must still be there and empty, and it has a digest. */
static int read_empty(struct reader *reader, struct err *err)
{
	bool was_changed = reader->is_changed;
	if (read_open(reader) && read_close(reader, true)) {
		int r = read_emit_digest(reader, err);
		if (r < 0)
			return r;
		read_set_digested(reader->push, reader->entry.seq);
	}
	/* An empty file's change is reported, but it does not spoil the object that it happens to stand in. */
	reader->is_changed = was_changed;
	return 0;
}

/* The next file with bytes, at most up to entry `last_seq`, opened and checked; empty ones on the way are done. 0: opened. 1: none left.
 * -ERR_SOURCE_CHANGED: noted. */
static int read_next_file(struct reader *reader, uint64_t last_seq, struct err *err)
{
	while (reader->lines.seq <= last_seq) {
		int r = push_lines_next(&reader->lines, &reader->entry, err);
		if (r <= 0)
			return r < 0 ? r : 1;
		if (reader->entry.type != MANIFEST_FILE)
			continue;
		if (reader->entry.size_bytes == 0) {
			r = reader->is_digest_wanted ? read_empty(reader, err) : 0;
			if (r < 0)
				return r;
			continue;
		}
		if (!read_open(reader))
			return -ERR_SOURCE_CHANGED;
		reader->is_single = reader->is_digest_wanted && reader->object->chunk_count == 1 &&
				    reader->entry.size_bytes == reader->object->size_bytes;
		return 0;
	}
	return 1;
}

/* The open file has been read to its end. */
static int read_end_file(struct reader *reader, struct err *err)
{
	if (!read_close(reader, reader->is_digest_wanted))
		return -ERR_SOURCE_CHANGED;
	return reader->is_digest_wanted ? read_emit_digest(reader, err) : 0;
}

static void read_hash(struct reader *reader, const char *piece, size_t size)
{
	if (reader->is_single)
		digest_feed(reader->file_digest, piece, size);
	else if (reader->is_digest_wanted)
		digest_feed_two(reader->file_digest, reader->chunk_digest, piece, size);
	else
		digest_feed(reader->chunk_digest, piece, size);
}

static int read_piece(struct reader *reader, char *piece, size_t want, struct err *err)
{
	size_t got = 0;
	int r;
	if (reader->sealer != NULL) {
		r = sealer_read(reader->sealer, reader->file_at, piece, want, err);
		return r < 0 ? read_sealed_fault(reader, r, err) : 0;
	}
	r = fs_read_all(reader->file.fd, piece, want, (int64_t)reader->file_at, &got, err);
	return r < 0 || got < want ? read_cut(reader, r < 0 ? err->sys_errno : 0) : 0;
}

/* Reads the object's next `size` bytes. With a target they are kept there, else they are only hashed. */
static int read_bytes(struct reader *reader, char *target, uint64_t size, struct err *err)
{
	int r;
	for (uint64_t done = 0; done < size;) {
		if (reader->file.fd < 0) {
			r = read_next_file(reader, reader->object->last_seq, err);
			if (r == 1)
				return err_set(err, ERR_PEER, "the plan's object %llu is larger than its files",
					       (unsigned long long)reader->object->file_id);
			if (r < 0)
				return r;
		}
		uint64_t left = reader->entry.size_bytes - reader->file_at;
		size_t want = min_size((size_t)(left < size - done ? left : size - done), PUSH_PIECE_BYTES);
		char *piece = target != NULL ? target + done : reader->scratch;
		r = read_piece(reader, piece, want, err);
		if (r < 0)
			return r;
		read_hash(reader, piece, want);
		reader->file_at += want;
		done += want;
		r = reader->file_at == reader->entry.size_bytes ? read_end_file(reader, err) : 0;
		if (r < 0)
			return r;
	}
	return 0;
}

/* --- chunks --- */
static struct push_planned *read_take_planned(struct reader *reader, char ticket[TICKET_TEXT_SIZE])
{
	struct push_shared *shared = &reader->push->shared;
	struct push_object *object = reader->object;
	pthread_mutex_lock(&shared->lock);
	while (object->head == NULL && !shared->is_stopping)
		pthread_cond_wait(&shared->planned_came, &shared->lock);
	struct push_planned *planned = shared->is_stopping ? NULL : object->head;
	if (planned != NULL) {
		object->head = planned->next;
		if (object->head == NULL)
			object->tail = &object->head;
		shared->planned_count--;
		memcpy(ticket, object->ticket, TICKET_TEXT_SIZE);
	}
	pthread_mutex_unlock(&shared->lock);
	return planned;
}

static struct push_chunk *read_take_buffer(struct push_shared *shared)
{
	pthread_mutex_lock(&shared->lock);
	struct push_chunk *chunk = NULL;
	while (!shared->is_stopping) {
		chunk = push_chunks_take(&shared->free);
		if (chunk != NULL)
			break;
		pthread_cond_wait(&shared->buffer_came, &shared->lock);
	}
	pthread_mutex_unlock(&shared->lock);
	return chunk;
}

static void read_give(struct push *push, struct push_chunk *chunk, bool is_ready)
{
	pthread_mutex_lock(&push->shared.lock);
	push_chunks_add(is_ready ? &push->shared.ready : &push->shared.free, chunk);
	if (!is_ready)
		pthread_cond_signal(&push->shared.buffer_came);
	pthread_mutex_unlock(&push->shared.lock);
	if (is_ready)
		fetch_wake(push->fetch);
}

/* The bytes of one planned chunk, into `target` or only through the digests. */
static int read_planned_bytes(struct reader *reader, const struct push_planned *planned, char *target,
			      char hex[DIGEST_HEX_SIZE], struct err *err)
{
	if (!reader->is_digest_wanted && !reader->object->is_pack) {
		/* Chunks before this one may have been left unread. */
		if (reader->file.fd < 0) {
			int r = read_next_file(reader, reader->object->last_seq, err);
			if (r != 0)
				return r < 0 ? r : err_set(err, ERR_PEER, "the plan's object has no file");
		}
		reader->file_at = planned->chunk_index * reader->push->chunk_bytes;
	}
	digest_restart(reader->chunk_digest);
	int r = read_bytes(reader, target, planned->size_bytes, err);
	if (r < 0)
		return r;
	if (reader->is_single)
		memcpy(hex, reader->file_hex, DIGEST_HEX_SIZE);
	else
		digest_hex(reader->chunk_digest, hex);
	return 0;
}

static int read_is_other(struct reader *reader)
{
	read_note(reader, false, "its content is not what was sent before, though size and time are the same");
	return -ERR_SOURCE_CHANGED;
}

static int read_stored(struct reader *reader, const struct push_planned *planned, struct err *err)
{
	if (!reader->is_digest_wanted)
		return 0;
	char hex[DIGEST_HEX_SIZE];
	int r = read_planned_bytes(reader, planned, NULL, hex, err);
	if (r < 0 || strcmp(hex, planned->digest) == 0)
		return r;
	return read_is_other(reader);
}

static int read_pending(struct reader *reader, const struct push_planned *planned, const char ticket[TICKET_TEXT_SIZE],
			struct err *err)
{
	struct push_chunk *chunk = read_take_buffer(&reader->push->shared);
	if (chunk == NULL)
		return 0;
	int r = read_planned_bytes(reader, planned, chunk->data, chunk->digest, err);
	if (r == 0 && planned->has_copy && strcmp(chunk->digest, planned->digest) != 0)
		r = read_is_other(reader);
	if (r < 0) {
		read_give(reader->push, chunk, false);
		return r;
	}
	chunk->file_id = reader->object->file_id;
	chunk->chunk_index = planned->chunk_index;
	chunk->size_bytes = planned->size_bytes;
	memcpy(chunk->ticket, ticket, TICKET_TEXT_SIZE);
	memcpy(chunk->nodes, planned->nodes, sizeof(chunk->nodes));
	chunk->node_count = planned->node_count;
	chunk->copies_left = planned->copies_left;
	chunk->has_copy = planned->has_copy;
	read_give(reader->push, chunk, true);
	return 0;
}

/* Takes every planned chunk of the object, even those of one that turned out to be changed: who gave them counts on it. */
static int read_chunks(struct reader *reader, struct err *err)
{
	for (uint64_t i = 0; i < reader->object->chunk_count; i++) {
		char ticket[TICKET_TEXT_SIZE];
		struct push_planned *planned = read_take_planned(reader, ticket);
		if (planned == NULL)
			return 0;
		int r = 0;
		reader->is_digest_wanted = reader->is_digest_wanted || (i == 0 && planned->is_suspect);
		if (!reader->is_changed)
			r = planned->is_stored ? read_stored(reader, planned, err)
					       : read_pending(reader, planned, ticket, err);
		free(planned);
		if (r < 0 && r != -ERR_SOURCE_CHANGED)
			return r;
		reader->is_changed = reader->is_changed || r < 0;
	}
	return 0;
}

/* What remains after the last chunk: the end of a file of which only some chunks were read; empty files at the end of a pack; and, when the
 * object was found changed, a look at its other files, so that all that changed are named at once. */
static int read_rest(struct reader *reader, struct err *err)
{
	if (reader->file.fd >= 0 && !reader->is_changed)
		(void)read_close(reader, false);
	fs_close(&reader->file.fd);
	if (!reader->is_digest_wanted && !reader->is_changed)
		return 0;
	for (;;) {
		int r = read_next_file(reader, reader->object->last_seq, err);
		if (r == 1)
			return 0;
		if (r == 0 && !reader->is_changed) {
			fs_close(&reader->file.fd);
			return err_set(err, ERR_PEER, "the plan's object %llu is smaller than its files",
				       (unsigned long long)reader->object->file_id);
		}
		if (r < 0 && r != -ERR_SOURCE_CHANGED)
			return r;
		fs_close(&reader->file.fd);
	}
}

/* The entries before the object: empty files among them have digests. Those with bytes lie in objects of their own, which a revision made. */
static int read_gap(struct reader *reader, struct err *err)
{
	while (reader->lines.seq < reader->object->first_seq) {
		uint64_t seq = reader->lines.seq;
		int r = push_lines_next(&reader->lines, &reader->entry, err);
		if (r <= 0)
			return r;
		if (reader->entry.type != MANIFEST_FILE || reader->entry.size_bytes > 0 ||
		    read_is_digested(reader->push, seq))
			continue;
		r = read_empty(reader, err);
		if (r < 0)
			return r;
	}
	return 0;
}

static int read_object(struct reader *reader, struct err *err)
{
	struct push *push = reader->push;
	struct push_object *object = reader->object;
	reader->is_changed = reader->is_single = reader->has_noted = false;
	push_lines_init_at(&reader->lines, push->manifest_fd, object->gap_offset, object->gap_seq);
	int r = read_gap(reader, err);
	reader->is_digest_wanted = object->file_id != 0 && !read_is_digested(push, object->first_seq);
	reader->has_noted = false;
	if (r == 0)
		r = read_chunks(reader, err);
	pthread_mutex_lock(&push->shared.lock);
	bool is_stopping = push->shared.is_stopping;
	pthread_mutex_unlock(&push->shared.lock);
	if (r == 0 && object->file_id != 0 && !is_stopping)
		r = read_rest(reader, err);
	if (r == 0 && object->file_id != 0 && !is_stopping && !reader->has_noted)
		read_set_digested(push, object->first_seq);
	fs_close(&reader->file.fd);
	push_lines_fini(&reader->lines);
	return r;
}

/* --- the threads --- */
static void read_free_object(struct push_shared *shared, struct push_object *object)
{
	for (struct push_planned *planned = object->head; planned != NULL;) {
		struct push_planned *next = planned->next;
		free(planned);
		shared->planned_count--;
		planned = next;
	}
	free(object);
}

static struct push_object *read_take_object(struct push_shared *shared)
{
	pthread_mutex_lock(&shared->lock);
	while (shared->object_head == NULL && !shared->is_stopping)
		pthread_cond_wait(&shared->object_came, &shared->lock);
	struct push_object *object = shared->is_stopping ? NULL : shared->object_head;
	if (object != NULL) {
		shared->object_head = object->next;
		if (shared->object_head == NULL)
			shared->object_tail = &shared->object_head;
	}
	pthread_mutex_unlock(&shared->lock);
	return object;
}

static void *read_main(void *owner)
{
	struct push *push = owner;
	struct reader reader = { .push = push, .file = { .fd = -1 } };
	reader.file_digest = digest_new(push->options->digest);
	reader.chunk_digest = digest_new(push->options->digest);
	reader.scratch = must_alloc(PUSH_PIECE_BYTES);
	if (push->key != NULL)
		reader.sealer = sealer_new(push->options->cipher, push->key->key);
	struct err err = ERR_INIT;
	while ((reader.object = read_take_object(&push->shared)) != NULL) {
		int r = read_object(&reader, &err);
		if (r < 0) {
			push_note_fatal(reader.push, &err);
			/* The pushing thread stops everything now; the object stays whole until then, since it may still be giving to it. */
			pthread_mutex_lock(&push->shared.lock);
			while (!push->shared.is_stopping)
				pthread_cond_wait(&push->shared.object_came, &push->shared.lock);
			pthread_mutex_unlock(&push->shared.lock);
		}
		pthread_mutex_lock(&push->shared.lock);
		read_free_object(&push->shared, reader.object);
		push->shared.object_count--;
		pthread_mutex_unlock(&push->shared.lock);
		fetch_wake(push->fetch);
	}
	digest_free(&reader.file_digest);
	digest_free(&reader.chunk_digest);
	sealer_free(&reader.sealer);
	free(reader.scratch);
	return NULL;
}

int push_read_begin(struct push *push, struct err *err)
{
	struct push_shared *shared = &push->shared;
	shared->is_stopping = false;
	atomic_store(&shared->is_over, false);
	shared->object_head = NULL;
	shared->object_tail = &shared->object_head;
	shared->object_count = shared->planned_count = 0;
	for (push->reader_count = 0; push->reader_count < PUSH_READERS; push->reader_count++) {
		int r = quiet_thread(&push->readers[push->reader_count], read_main, push);
		if (r != 0 && push->reader_count == 0)
			return err_sys(err, ERR_SYSTEM, r, "starting a thread that reads files");
		if (r != 0)
			break;
	}
	return 0;
}

void push_read_object(struct push *push, struct push_object *object)
{
	struct push_shared *shared = &push->shared;
	pthread_mutex_lock(&shared->lock);
	object->next = NULL;
	*shared->object_tail = object;
	shared->object_tail = &object->next;
	shared->object_count++;
	pthread_cond_signal(&shared->object_came);
	pthread_mutex_unlock(&shared->lock);
}

void push_read_planned(struct push *push, struct push_object *object, struct push_planned *planned)
{
	struct push_shared *shared = &push->shared;
	pthread_mutex_lock(&shared->lock);
	planned->next = NULL;
	*object->tail = planned;
	object->tail = &planned->next;
	shared->planned_count++;
	pthread_cond_broadcast(&shared->planned_came);
	pthread_mutex_unlock(&shared->lock);
}

void push_read_end(struct push *push)
{
	struct push_shared *shared = &push->shared;
	pthread_mutex_lock(&shared->lock);
	shared->is_stopping = true;
	atomic_store(&shared->is_over, true);
	pthread_cond_broadcast(&shared->object_came);
	pthread_cond_broadcast(&shared->planned_came);
	pthread_cond_broadcast(&shared->buffer_came);
	pthread_mutex_unlock(&shared->lock);
	while (push->reader_count > 0)
		pthread_join(push->readers[--push->reader_count], NULL);
	while (shared->object_head != NULL) {
		struct push_object *object = shared->object_head;
		shared->object_head = object->next;
		read_free_object(shared, object);
	}
	shared->object_tail = &shared->object_head;
}
