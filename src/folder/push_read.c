#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "folder/push_impl.h"
#include "sys/fs.h"
#include "sys/quiet.h"

/* What is read at once: small enough to be hashed while it is still in the processor's cache. */
#define READ_PIECE_BYTES    (256 * KIB)
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
	bool is_single;        /* the object is one file in one chunk: hashed once, since both digests are the same */
	/* The open file. */
	int fd;
	struct manifest_entry entry;
	struct stat before;
	uint64_t file_at;
	char file_hex[DIGEST_HEX_SIZE]; /* of the file that ended last */
};

/* --- notes to the pushing thread --- */
PRINTF(3, 4) static void read_note(struct reader *reader, struct str path, const char *fmt, ...)
{
	struct push_shared *shared = &reader->push->shared;
	struct push_note *note = must_zalloc(1, sizeof(*note) + path.size + 1);
	memcpy(note->text, path.data, path.size);
	note->path = (struct str){ note->text, path.size };
	va_list args;
	va_start(args, fmt);
	vsnprintf(note->reason, sizeof(note->reason), fmt, args);
	va_end(args);
	atomic_fetch_add(&shared->changed_count, 1);
	pthread_mutex_lock(&shared->lock);
	*shared->note_tail = note;
	shared->note_tail = &note->next;
	pthread_mutex_unlock(&shared->lock);
	reader->is_changed = true;
}

static void read_fail(struct reader *reader, const struct err *err)
{
	struct push_shared *shared = &reader->push->shared;
	pthread_mutex_lock(&shared->lock);
	if (shared->fatal.code == ERR_NONE)
		shared->fatal = *err;
	pthread_mutex_unlock(&shared->lock);
	fetch_wake(reader->push->fetch);
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
	digest_hex(reader->file_digest, reader->file_hex);
	pthread_mutex_lock(&shared->lock);
	buf_printf(&shared->digests, "%llu %s\n", (unsigned long long)reader->entry.seq, reader->file_hex);
	int r = shared->digests.size >= DIGESTS_FLUSH_BYTES || shared->digests.is_failed
			? digests_write(reader->push, err)
			: 0;
	pthread_mutex_unlock(&shared->lock);
	atomic_fetch_add(&shared->files_done, 1);
	return r;
}

/* --- files --- */
static bool read_is_as_scanned(struct reader *reader, const struct stat *now)
{
	const struct manifest_entry *entry = &reader->entry;
	int64_t mtime_ns = (int64_t)now->st_mtim.tv_sec * 1000000000 + now->st_mtim.tv_nsec;
	if (!S_ISREG(now->st_mode))
		read_note(reader, entry->path, "it is not a file any more");
	else if ((uint64_t)now->st_size != entry->size_bytes)
		read_note(reader, entry->path, "its size went from %llu to %llu bytes since the scan",
			  (unsigned long long)entry->size_bytes, (unsigned long long)now->st_size);
	else if (mtime_ns != entry->mtime_ns)
		read_note(reader, entry->path, "it was modified since the scan");
	else
		return true;
	return false;
}

static bool read_open(struct reader *reader)
{
	struct push *push = reader->push;
	/* O_NONBLOCK: a named pipe that took the file's place must not hang the reader. It means nothing to a file. */
	reader->fd = walk_open(push->root_fd, reader->entry.path.data, O_RDONLY | O_NONBLOCK | O_NOCTTY,
			       push->options->links);
	if (reader->fd < 0) {
		if (reader->fd == -ENOENT)
			read_note(reader, reader->entry.path, "it vanished since the scan");
		else
			read_note(reader, reader->entry.path, "it cannot be opened: %s", strerror(-reader->fd));
		reader->fd = -1;
		return false;
	}
	if (fstat(reader->fd, &reader->before) < 0) {
		read_note(reader, reader->entry.path, "it cannot be examined: %s", strerror(errno));
		return false;
	}
	if (!read_is_as_scanned(reader, &reader->before))
		return false;
	if (reader->entry.size_bytes > READ_PIECE_BYTES)
		(void)posix_fadvise(reader->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
	digest_restart(reader->file_digest);
	reader->file_at = 0;
	return true;
}

/* The file's last byte was read: is it still the same file, and does it end here? */
static bool read_close(struct reader *reader)
{
	struct stat after;
	char more;
	bool is_good = false;
	ssize_t r = pread(reader->fd, &more, 1, (off_t)reader->entry.size_bytes);
	if (r < 0)
		read_note(reader, reader->entry.path, "it cannot be read to its end: %s", strerror(errno));
	else if (r > 0)
		read_note(reader, reader->entry.path, "it grew while it was read");
	else if (fstat(reader->fd, &after) < 0)
		read_note(reader, reader->entry.path, "it cannot be examined after reading: %s", strerror(errno));
	else if (after.st_ino != reader->before.st_ino || after.st_dev != reader->before.st_dev)
		read_note(reader, reader->entry.path, "another file took its place while it was read");
	else
		is_good = read_is_as_scanned(reader, &after);
	fs_close(&reader->fd);
	return is_good;
}

/* A file without bytes: nothing to send, but it must still be there and empty, and it has a digest. */
static int read_empty(struct reader *reader, struct err *err)
{
	bool was_changed = reader->is_changed;
	if (read_open(reader) && read_close(reader)) {
		int r = read_emit_digest(reader, err);
		if (r < 0)
			return r;
	}
	fs_close(&reader->fd);
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
		if (!read_open(reader)) {
			fs_close(&reader->fd);
			return -ERR_SOURCE_CHANGED;
		}
		reader->is_single = reader->is_digest_wanted && reader->object->chunk_count == 1 &&
				    reader->entry.size_bytes == reader->object->size_bytes;
		return 0;
	}
	return 1;
}

/* The open file has been read to its end. */
static int read_end_file(struct reader *reader, struct err *err)
{
	if (!read_close(reader))
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

/* Reads the object's next `size` bytes. With a target they are kept there, else they are only hashed. */
static int read_bytes(struct reader *reader, char *target, uint64_t size, struct err *err)
{
	int r;
	for (uint64_t done = 0; done < size;) {
		if (reader->fd < 0) {
			r = read_next_file(reader, reader->object->last_seq, err);
			if (r == 1)
				return err_set(err, ERR_PEER, "the plan's object %llu is larger than its files",
					       (unsigned long long)reader->object->file_id);
			if (r < 0)
				return r;
		}
		uint64_t left = reader->entry.size_bytes - reader->file_at;
		size_t want = min_size((size_t)(left < size - done ? left : size - done), READ_PIECE_BYTES);
		char *piece = target != NULL ? target + done : reader->scratch;
		size_t got = 0;
		r = fs_read_all(reader->fd, piece, want, (int64_t)reader->file_at, &got, err);
		if (r < 0)
			read_note(reader, reader->entry.path, "it cannot be read: %s", strerror(err->sys_errno));
		else if (got < want)
			read_note(reader, reader->entry.path, "it shrank while it was read");
		if (r < 0 || got < want)
			return -ERR_SOURCE_CHANGED;
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
		if (reader->fd < 0) {
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

static int read_stored(struct reader *reader, const struct push_planned *planned, struct err *err)
{
	if (!reader->is_digest_wanted)
		return 0;
	char hex[DIGEST_HEX_SIZE];
	int r = read_planned_bytes(reader, planned, NULL, hex, err);
	if (r < 0 || strcmp(hex, planned->digest) == 0)
		return r;
	read_note(reader, reader->entry.path,
		  "its content is not what was sent before, though size and time are the same (touch it, push again)");
	return -ERR_SOURCE_CHANGED;
}

static int read_pending(struct reader *reader, const struct push_planned *planned, const char ticket[TICKET_TEXT_SIZE],
			struct err *err)
{
	struct push_chunk *chunk = read_take_buffer(&reader->push->shared);
	if (chunk == NULL)
		return 0;
	int r = read_planned_bytes(reader, planned, chunk->data, chunk->digest, err);
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
	if (reader->fd >= 0 && !reader->is_changed)
		(void)read_close(reader);
	fs_close(&reader->fd);
	if (!reader->is_digest_wanted && !reader->is_changed)
		return 0;
	for (;;) {
		int r = read_next_file(reader, reader->object->last_seq, err);
		if (r == 1)
			return 0;
		if (r == 0 && !reader->is_changed) {
			fs_close(&reader->fd);
			return err_set(err, ERR_PEER, "the plan's object %llu is smaller than its files",
				       (unsigned long long)reader->object->file_id);
		}
		if (r < 0 && r != -ERR_SOURCE_CHANGED)
			return r;
		fs_close(&reader->fd);
	}
}

/* The entries before the object. */
static int read_gap(struct reader *reader, struct err *err)
{
	const struct push_object *object = reader->object;
	if (!reader->is_digest_wanted)
		return push_lines_skip(&reader->lines, object->first_seq, err);
	if (object->first_seq == 0)
		return 0;
	int r = read_next_file(reader, object->first_seq - 1, err);
	fs_close(&reader->fd);
	if (r == 1 || (r < 0 && r != -ERR_SOURCE_CHANGED))
		return r < 0 ? r : 0;
	return err_set(err, ERR_PEER, "the plan leaves out a file of %llu bytes",
		       (unsigned long long)reader->entry.size_bytes);
}

static bool read_is_digested(struct push *push, uint64_t file_id)
{
	pthread_mutex_lock(&push->shared.lock);
	bool is_digested = file_id == 0 ? push->shared.is_tail_digested
					: (push->shared.digested[file_id / 8] & (1u << (file_id % 8))) != 0;
	pthread_mutex_unlock(&push->shared.lock);
	return is_digested;
}

static void read_set_digested(struct push *push, uint64_t file_id)
{
	pthread_mutex_lock(&push->shared.lock);
	if (file_id == 0)
		push->shared.is_tail_digested = true;
	else
		push->shared.digested[file_id / 8] |= (uint8_t)(1u << (file_id % 8));
	pthread_mutex_unlock(&push->shared.lock);
}

static int read_object(struct reader *reader, struct err *err)
{
	struct push *push = reader->push;
	struct push_object *object = reader->object;
	reader->is_digest_wanted = !read_is_digested(push, object->file_id);
	reader->is_changed = reader->is_single = false;
	push_lines_init_at(&reader->lines, push->manifest_fd, object->gap_offset, object->gap_seq);
	uint64_t changed_before = atomic_load(&push->shared.changed_count);
	int r = read_gap(reader, err);
	if (r == 0)
		r = read_chunks(reader, err);
	pthread_mutex_lock(&push->shared.lock);
	bool is_stopping = push->shared.is_stopping;
	pthread_mutex_unlock(&push->shared.lock);
	if (r == 0 && object->file_id != 0 && !is_stopping)
		r = read_rest(reader, err);
	/* Any change at all (of an empty file beside the object, say) ends the push before `complete`, so the count of all threads will do. */
	if (r == 0 && !is_stopping && changed_before == atomic_load(&push->shared.changed_count))
		read_set_digested(push, object->file_id);
	fs_close(&reader->fd);
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
	struct reader reader = { .push = push, .fd = -1 };
	reader.file_digest = digest_new(push->options->digest);
	reader.chunk_digest = digest_new(push->options->digest);
	reader.scratch = must_alloc(READ_PIECE_BYTES);
	struct err err = ERR_INIT;
	while ((reader.object = read_take_object(&push->shared)) != NULL) {
		int r = read_object(&reader, &err);
		if (r < 0) {
			read_fail(&reader, &err);
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
	free(reader.scratch);
	return NULL;
}

int push_read_begin(struct push *push, struct err *err)
{
	struct push_shared *shared = &push->shared;
	shared->is_stopping = false;
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
