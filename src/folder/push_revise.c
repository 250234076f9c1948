/* Files that changed while they were sent. What was read of them is no version that ever was, and is given up; once they stand still the scheduler
 * plans them anew as they are, and the next pass sends them. Everything else that is stored stays stored. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "folder/push_impl.h"
#include "sys/fs.h"

#define REVISE_TIMES_MAX   2 /* of one entry: after that it is one that never stands still */
#define REVISE_PAUSE_US    (200 * MSEC_US)
#define REVISE_LOOKS_MAX   15
#define REVISE_PIECE_BYTES (64 * KIB)

/* How often an entry was revised in this push. */
struct push_revised {
	uint64_t seq;
	unsigned count;
};

/* A file that is looked at until two looks see the same. */
struct revise_file {
	struct push_note *note;
	struct stat now;
	bool is_seen, is_settled, is_lost;
	char reason[PUSH_REASON_SIZE]; /* why it is lost */
};

struct revision {
	struct push *push;
	struct revise_file *files; /* by seq */
	size_t count;
};

/* --- notes --- */
static void revise_lose(struct push *push, const struct push_note *note, const char *reason)
{
	push->lost_count++;
	if (push->options->problem != NULL)
		push->options->problem(push->options->owner, note->path, reason);
}

static void revise_free_notes(struct push *push)
{
	while (push->notes != NULL) {
		struct push_note *note = push->notes;
		push->notes = note->next;
		free(note);
	}
}

void push_revise_end(struct push *push)
{
	push_take_notes(push);
	for (const struct push_note *note = push->notes; note != NULL; note = note->next)
		revise_lose(push, note, note->reason);
	revise_free_notes(push);
	free(push->revised);
	push->revised = NULL;
}

static int revise_by_seq(const void *a, const void *b)
{
	const struct revise_file *x = a, *y = b;
	return (x->note->seq > y->note->seq) - (x->note->seq < y->note->seq);
}

/* A file may have been noted twice. */
static void revise_gather(struct revision *revision)
{
	size_t noted_count = 0;
	for (const struct push_note *note = revision->push->notes; note != NULL; note = note->next)
		noted_count++;
	revision->files = must_zalloc(noted_count + 1, sizeof(*revision->files));
	for (struct push_note *note = revision->push->notes; note != NULL; note = note->next)
		revision->files[revision->count++].note = note;
	qsort(revision->files, revision->count, sizeof(*revision->files), revise_by_seq);
	size_t kept = 0;
	for (size_t i = 0; i < revision->count; i++) {
		if (kept > 0 && revision->files[kept - 1].note->seq == revision->files[i].note->seq)
			revision->files[kept - 1].note->is_final |= revision->files[i].note->is_final;
		else
			revision->files[kept++] = revision->files[i];
	}
	revision->count = kept;
}

/* --- until they stand still --- */
static unsigned revise_times(const struct push *push, uint64_t seq)
{
	for (size_t i = 0; i < push->revised_count; i++) {
		if (push->revised[i].seq == seq)
			return push->revised[i].count;
	}
	return 0;
}

static bool revise_is_same(const struct stat *a, const struct stat *b)
{
	return a->st_ino == b->st_ino && a->st_dev == b->st_dev && a->st_size == b->st_size &&
	       a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec &&
	       a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

static void revise_look(struct push *push, struct revise_file *file)
{
	struct stat now = { .st_size = 0 };
	/* O_NONBLOCK, as when it is read: a named pipe may have taken its place. */
	AUTO(fs_close)
	int fd = walk_open(push->root_fd, file->note->path.data, O_RDONLY | O_NONBLOCK | O_NOCTTY,
			   push->options->links);
	int number = fd < 0 ? -fd : fstat(fd, &now) < 0 ? errno : 0;
	file->is_lost = number != 0 || !S_ISREG(now.st_mode);
	if (number == ENOENT)
		snprintf(file->reason, sizeof(file->reason), "it vanished while the folder was sent");
	else if (number != 0)
		snprintf(file->reason, sizeof(file->reason), "it cannot be opened: %s", strerror(number));
	else if (file->is_lost)
		snprintf(file->reason, sizeof(file->reason), "it is not a file any more");
	if (file->is_lost)
		return;
	file->is_settled = file->is_seen && revise_is_same(&now, &file->now);
	file->is_seen = true;
	file->now = now;
}

/* Those of which nothing can be hoped are not looked at. */
static void revise_judge(struct revision *revision)
{
	size_t room = PUSH_REVISE_MAX - revision->push->revised_count;
	for (size_t i = 0; i < revision->count; i++) {
		struct revise_file *file = &revision->files[i];
		unsigned times = revise_times(revision->push, file->note->seq);
		if (file->note->is_final || (times == 0 && room == 0)) {
			file->is_lost = true;
			memcpy(file->reason, file->note->reason, sizeof(file->reason));
		} else if (times >= REVISE_TIMES_MAX) {
			file->is_lost = true;
			snprintf(file->reason, sizeof(file->reason), "it changed again each time it was sent (%.160s)",
				 file->note->reason);
		} else {
			room -= times == 0;
		}
	}
}

static int revise_settle(struct revision *revision, struct err *err)
{
	struct push *push = revision->push;
	size_t unsettled_count = 1;
	for (unsigned look = 0; look < REVISE_LOOKS_MAX && unsettled_count > 0; look++) {
		int r = look > 0 ? push_pause(push, REVISE_PAUSE_US, err) : 0;
		if (r < 0)
			return r;
		unsettled_count = 0;
		for (size_t i = 0; i < revision->count; i++) {
			struct revise_file *file = &revision->files[i];
			if (!file->is_lost && !file->is_settled)
				revise_look(push, file);
			unsettled_count += !file->is_lost && !file->is_settled;
		}
	}
	for (size_t i = 0; i < revision->count; i++) {
		struct revise_file *file = &revision->files[i];
		if (file->is_lost || file->is_settled)
			continue;
		file->is_lost = true;
		snprintf(file->reason, sizeof(file->reason), "it goes on changing (%.200s)", file->note->reason);
	}
	return 0;
}

static int revise_give_up(struct revision *revision, struct err *err)
{
	struct push *push = revision->push;
	uint64_t lost_before = push->lost_count;
	for (size_t i = 0; i < revision->count; i++) {
		const struct revise_file *file = &revision->files[i];
		if (file->is_lost)
			revise_lose(push, file->note, file->reason);
	}
	uint64_t lost = push->lost_count - lost_before;
	if (lost == 0)
		return 0;
	err_set(err, ERR_SOURCE_CHANGED, "%llu %s changed, vanished or could not be read while the folder was sent",
		(unsigned long long)lost, lost == 1 ? "entry" : "entries");
	err_hint(err, "push again when nothing writes to the folder any more; it is scanned anew then");
	return -(int)ERR_SOURCE_CHANGED;
}

/* --- the manifest as it is now --- */
struct revise_text {
	int from_fd, fd;
	int64_t size;
	uint32_t crc32c;
	char *piece;
};

static int revise_add(struct revise_text *text, struct str piece, struct err *err)
{
	int r = fs_write_all(text->fd, piece.data, piece.size, text->size, err);
	if (r < 0)
		return err_wrap(err, "writing the revised manifest to a temporary file");
	text->crc32c = crc32c(text->crc32c, piece.data, piece.size);
	text->size += (int64_t)piece.size;
	return 0;
}

static int revise_copy(struct revise_text *text, int64_t from, int64_t to, struct err *err)
{
	while (from < to) {
		size_t want = min_size((size_t)(to - from), REVISE_PIECE_BYTES), got = 0;
		int r = fs_read_all(text->from_fd, text->piece, want, from, &got, err);
		if (r == 0 && got < want)
			r = err_set(err, ERR_INTERNAL, "the manifest file ends too soon");
		if (r == 0)
			r = revise_add(text, (struct str){ text->piece, got }, err);
		if (r < 0)
			return r;
		from += (int64_t)got;
	}
	return 0;
}

/* As the manifest has it: of the file as it is stored. */
static uint64_t revise_size(const struct push *push, const struct revise_file *file)
{
	const uint64_t size_bytes = (uint64_t)file->now.st_size;
	return push->key != NULL ? seal_stored_size(push->options->cipher, size_bytes) : size_bytes;
}

static int revise_line(const struct push *push, struct revise_text *text, struct manifest_entry *entry,
		       const struct revise_file *file, uint64_t *total_bytes, struct err *err)
{
	struct buf line = BUF_INIT(MANIFEST_LINE_MAX + 64);
	const uint64_t size_bytes = revise_size(push, file);
	*total_bytes += size_bytes - entry->size_bytes;
	entry->size_bytes = size_bytes;
	entry->mtime_ns = (int64_t)file->now.st_mtim.tv_sec * 1000000000 + file->now.st_mtim.tv_nsec;
	entry->mode = file->now.st_mode & 07777;
	manifest_write(&line, entry);
	int r = line.is_failed ? err_set(err, ERR_NO_MEMORY, "no memory for a line of the manifest")
			       : revise_add(text, buf_str(&line), err);
	buf_fini(&line);
	return r;
}

/* Everything between the changed lines is copied as it stands; the last line says the new total. */
static int revise_lines(struct revision *revision, struct revise_text *text, struct push_lines *lines,
			uint64_t *total_bytes, struct err *err)
{
	const struct walk_result *walk = &revision->push->walk;
	int64_t copied = 0;
	for (size_t i = 0; i < revision->count; i++) {
		struct manifest_entry entry;
		int r = push_lines_skip(lines, revision->files[i].note->seq, err);
		if (r == 0)
			r = revise_copy(text, copied, push_lines_place(lines), err);
		if (r == 0)
			r = push_lines_next(lines, &entry, err);
		if (r == 0)
			r = err_set(err, ERR_INTERNAL, "the manifest file has lost an entry");
		if (r > 0)
			r = revise_line(revision->push, text, &entry, &revision->files[i], total_bytes, err);
		if (r < 0)
			return r;
		copied = push_lines_place(lines);
	}
	int r = push_lines_skip(lines, walk->entry_count, err);
	if (r == 0)
		r = revise_copy(text, copied, push_lines_place(lines), err);
	if (r < 0)
		return r;
	struct buf end = BUF_INIT(KIB);
	manifest_write_end(&end, walk->entry_count, *total_bytes);
	r = revise_add(text, buf_str(&end), err);
	buf_fini(&end);
	return r;
}

static int revise_manifest(struct revision *revision, struct walk_result *ret_walk, int *ret_fd, struct err *err)
{
	struct push *push = revision->push;
	struct revise_text text = { .from_fd = push->manifest_fd, .fd = fs_temp_file(err) };
	if (text.fd < 0)
		return -(int)err->code;
	struct push_lines lines;
	push_lines_init(&lines, push->manifest_fd);
	text.piece = must_alloc(REVISE_PIECE_BYTES);
	*ret_walk = push->walk;
	int r = revise_lines(revision, &text, &lines, &ret_walk->total_bytes, err);
	free(text.piece);
	push_lines_fini(&lines);
	if (r < 0) {
		fs_close(&text.fd);
		return r;
	}
	ret_walk->crc32c = text.crc32c;
	ret_walk->manifest_bytes = (uint64_t)text.size;
	*ret_fd = text.fd;
	return 0;
}

/* --- the scheduler's part --- */
static int revise_ask(struct revision *revision, const struct walk_result *walk, json_t **ret_root, struct err *err)
{
	struct push *push = revision->push;
	struct buf body = BUF_INIT(PUSH_REVISE_MAX * 128);
	char url[1024], crc_header[64];
	for (size_t i = 0; i < revision->count; i++) {
		const struct revise_file *file = &revision->files[i];
		buf_printf(&body, "%llu %llu %lld %o\n", (unsigned long long)file->note->seq,
			   (unsigned long long)revise_size(push, file),
			   (long long)file->now.st_mtim.tv_sec * 1000000000 + file->now.st_mtim.tv_nsec,
			   file->now.st_mode & 07777u);
	}
	snprintf(url, sizeof(url), "%s/api/v1/transfers/%s/revise?version=%lld", push->options->url, push->transfer_id,
		 (long long)push->version);
	snprintf(crc_header, sizeof(crc_header), "X-Manifest-CRC32C: %08x", walk->crc32c);
	struct push_ask ask = { .method = "POST",
				.what = "telling the scheduler which files changed",
				.url = url,
				.body = buf_str(&body),
				.body_fd = -1,
				.header = crc_header };
	int r = push_ask(push, &ask, ret_root, err);
	buf_fini(&body);
	return push_refused_for_state(push, r, err);
}

static void revise_count(struct push *push, uint64_t seq)
{
	for (size_t i = 0; i < push->revised_count; i++) {
		if (push->revised[i].seq == seq) {
			push->revised[i].count++;
			return;
		}
	}
	if (push->revised == NULL)
		push->revised = must_zalloc(PUSH_REVISE_MAX, sizeof(*push->revised));
	MUST(push->revised_count < PUSH_REVISE_MAX);
	push->revised[push->revised_count++] = (struct push_revised){ .seq = seq, .count = 1 };
}

static void revise_tell(struct push *push, const struct push_note *note)
{
	char shown[512], line[1024];
	if (push->options->notice == NULL)
		return;
	snprintf(line, sizeof(line), "%s: %s; it is sent again as it is now",
		 str_display(note->path, shown, sizeof(shown)), note->reason);
	push->options->notice(push->options->owner, line);
}

/* The digests of what was planned anew are taken anew; in the file of digests a later line stands for an earlier one. */
static void revise_accept(struct revision *revision)
{
	struct push *push = revision->push;
	for (size_t i = 0; i < revision->count; i++) {
		const struct push_note *note = revision->files[i].note;
		for (uint64_t seq = note->first_seq; seq <= note->last_seq; seq++)
			push->shared.digested[seq / 8] &= (uint8_t) ~(1u << (seq % 8));
		revise_count(push, note->seq);
		revise_tell(push, note);
	}
	push->progress.bytes_total = push->walk.total_bytes;
	push->progress.chunks_total = push->chunk_count;
}

static int revise_send(struct revision *revision, struct err *err)
{
	struct push *push = revision->push;
	struct walk_result walk;
	int fd = -1;
	json_t *root = NULL;
	int r = revise_manifest(revision, &walk, &fd, err);
	if (r == 0)
		r = revise_ask(revision, &walk, &root, err);
	if (r < 0) {
		fs_close(&fd);
		return r;
	}
	fs_close(&push->manifest_fd);
	push->manifest_fd = fd;
	push->walk = walk;
	r = push_take_transfer(push, root, err);
	json_decref(root);
	if (r == 0)
		revise_accept(revision);
	return r;
}

/* 1: everything can be sent as it is now. */
static int revise_check(struct revision *revision, struct err *err)
{
	revise_judge(revision);
	int r = revise_settle(revision, err);
	return r < 0 ? r : revise_give_up(revision, err);
}

int push_revise(struct push *push, struct err *err)
{
	struct revision revision = { .push = push };
	push->progress.waiting_for = "files that changed while they were sent to stand still";
	revise_gather(&revision);
	int r = revise_check(&revision, err);
	bool is_named = r == -ERR_SOURCE_CHANGED;
	push->progress.waiting_for = NULL;
	if (r == 0)
		r = revise_send(&revision, err);
	/* Whatever else ends the push here, these files are a part of the reason: push_revise_end names them. */
	if (r == 0 || is_named)
		revise_free_notes(push);
	if (r == 0)
		atomic_store(&push->shared.changed_count, 0);
	free(revision.files);
	return r;
}
