#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "folder/journal.h"
#include "folder/receipt.h"
#include "base/hash.h"
#include "sys/fs.h"

/* A frame: the marker, the payload's size (32 bits, little-endian), the CRC-32C of that size and the payload, the payload: a letter, then the
 * receipt's line as it goes over the wire. The marker's first byte is in no payload, since those are ASCII: whatever a fault did to the bytes
 * before it, the next frame is found. Its last byte is the format's version. */
#define MARKER_SIZE  4
#define HEAD_SIZE    (MARKER_SIZE + 8)
#define PAYLOAD_MAX  (1 + RECEIPT_LINE_MAX)
#define WINDOW_SIZE  (64 * KIB)
#define COMPACT_SIZE MIB /* dropped bytes at the front that are worth a new file */
#define FILE_MODE    0600
#define LETTER_NEW   'n'
#define LETTER_AGAIN 'r'

static const unsigned char marker[MARKER_SIZE] = { 0xa5, 'H', 'J', '1' };

struct journal {
	char path[PATH_MAX];
	int fd;
	uint64_t limit_bytes;
	bool is_shut;        /* by a fault: takes nothing until it is opened again */
	uint64_t head, size; /* what waits is in between */
	size_t count;
	uint64_t compact_at; /* no new file before the head is here: after one that failed */
	/* What the last read gave. */
	uint64_t read_end;
	size_t read_count;
	/* A piece of the file. */
	char *window;
	uint64_t window_offset;
	size_t window_size;
};

/* --- frames --- */

static uint32_t get_u32(const char *bytes)
{
	const unsigned char *b = (const unsigned char *)bytes;

	return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static void put_u32(char *bytes, uint32_t value)
{
	for (unsigned i = 0; i < 4; i++)
		bytes[i] = (char)(value >> 8 * i & 0xff);
}

/* The size of the good frame that `text` begins with, 0 when there is none. */
static size_t frame_size(struct str text)
{
	uint32_t size;

	if (text.size < HEAD_SIZE || memcmp(text.data, marker, MARKER_SIZE) != 0)
		return 0;
	size = get_u32(text.data + MARKER_SIZE);
	if (size == 0 || size > PAYLOAD_MAX || size > text.size - HEAD_SIZE)
		return 0;
	const uint32_t crc = crc32c(crc32c(0, text.data + MARKER_SIZE, 4), text.data + HEAD_SIZE, size);
	return crc == get_u32(text.data + MARKER_SIZE + 4) ? HEAD_SIZE + size : 0;
}

static void frame_write(struct buf *buf, const struct journal_record *record)
{
	const size_t at = buf->size;
	const char letter = record->is_repeat ? LETTER_AGAIN : LETTER_NEW;
	char head[HEAD_SIZE] = { 0 };

	buf_append(buf, (struct str){ head, HEAD_SIZE });
	buf_append(buf, (struct str){ &letter, 1 });
	receipt_write(buf, &record->receipt);
	if (buf->is_failed)
		return;
	char *frame = buf->data + at;
	const size_t size = buf->size - at - HEAD_SIZE;
	memcpy(frame, marker, MARKER_SIZE);
	put_u32(frame + MARKER_SIZE, (uint32_t)size);
	put_u32(frame + MARKER_SIZE + 4, crc32c(crc32c(0, frame + MARKER_SIZE, 4), frame + HEAD_SIZE, size));
}

static bool payload_read(struct str payload, struct journal_record *ret)
{
	const char letter = payload.data[0];
	struct str line = { payload.data + 1, payload.size - 1 };

	ret->is_repeat = letter == LETTER_AGAIN;
	if ((letter != LETTER_NEW && letter != LETTER_AGAIN) || line.size == 0 || line.data[line.size - 1] != '\n')
		return false;
	line.size--;
	return receipt_parse(line, &ret->receipt, NULL) == 0;
}

/* --- the file --- */

/* The bytes from `offset` on: enough for any frame unless the file ends before. */
static int window_at(struct journal *journal, uint64_t offset, struct str *ret, struct err *err)
{
	const uint64_t window_end = journal->window_offset + journal->window_size;

	if (offset < journal->window_offset || offset + HEAD_SIZE + PAYLOAD_MAX > window_end) {
		const size_t want = min_size(WINDOW_SIZE, (size_t)(journal->size - offset));

		journal->window_size = 0;
		journal->window_offset = offset;
		if (fs_read_all(journal->fd, journal->window, want, (int64_t)offset, &journal->window_size, err) < 0)
			return err_wrap(err, "reading the receipt journal '%s'", journal->path);
	}
	const size_t at = (size_t)(offset - journal->window_offset);
	*ret = (struct str){ journal->window + at, journal->window_size - at };
	return 0;
}

/* The first good frame at or after *offset, which becomes its end. 1: found. 0: none, and *offset stays. */
static int next_frame(struct journal *journal, uint64_t *offset, struct str *ret_payload, uint64_t *ret_lost_bytes,
		      struct err *err)
{
	uint64_t at = *offset;
	struct str text;

	while (at < journal->size) {
		if (window_at(journal, at, &text, err) < 0)
			return -(int)ERR_SYSTEM;
		if (text.size == 0)
			break; /* somebody shortened the file under us */
		const size_t size = frame_size(text);
		if (size > 0) {
			*ret_lost_bytes += at - *offset;
			*ret_payload = (struct str){ text.data + HEAD_SIZE, size - HEAD_SIZE };
			*offset = at + size;
			return 1;
		}
		const char *next = text.size > 1 ? memchr(text.data + 1, marker[0], text.size - 1) : NULL;
		at += next ? (uint64_t)(next - text.data) : text.size;
	}
	return 0;
}

/* Finds the end of what is good, counts it, and cuts off the rest. */
static int scan(struct journal *journal, uint64_t *ret_lost_bytes, struct err *err)
{
	uint64_t end = 0;
	struct str payload;
	int r;

	*ret_lost_bytes = 0;
	while ((r = next_frame(journal, &end, &payload, ret_lost_bytes, err)) > 0)
		journal->count++;
	if (r < 0 || end == journal->size)
		return r;
	journal->window_size = 0;
	journal->size = end;
	if (ftruncate(journal->fd, (off_t)end) < 0)
		return err_sys(err, ERR_SYSTEM, errno, "cannot cut off what a crash left at the end of '%s'",
			       journal->path);
	return fs_sync_data(journal->fd, journal->path, err);
}

static int sync_folder(const char *path, struct err *err)
{
	char folder[PATH_MAX];
	const char *slash = strrchr(path, '/');

	if (!slash || slash == path)
		(void)snprintf(folder, sizeof(folder), "%s", slash ? "/" : ".");
	else
		(void)snprintf(folder, sizeof(folder), "%.*s", (int)(slash - path), path);
	AUTO(fs_close) int fd = fs_open_dir(folder, err);
	return fd < 0 ? fd : fs_sync_dir(fd, folder, err);
}

static int open_file(struct journal *journal, struct err *err)
{
	struct stat facts;

	journal->fd = open(journal->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, FILE_MODE);
	if (journal->fd < 0)
		return err_sys(err, ERR_SYSTEM, errno, "cannot open the receipt journal '%s'", journal->path);
	if (fstat(journal->fd, &facts) < 0)
		return err_sys(err, ERR_SYSTEM, errno, "cannot look at the receipt journal '%s'", journal->path);
	if (!S_ISREG(facts.st_mode)) {
		err_set(err, ERR_CONFIG, "'%s' is not a file", journal->path);
		err_hint(err, "move it away: the node keeps its receipt journal there");
		return -ERR_CONFIG;
	}
	journal->size = (uint64_t)facts.st_size;
	/* The file may have been made just now. */
	return sync_folder(journal->path, err);
}

int journal_open(const char *path, uint64_t limit_bytes, struct journal **ret_journal, uint64_t *ret_lost_bytes,
		 struct err *err)
{
	struct journal *journal = must_zalloc(1, sizeof(*journal));
	int r;

	journal->fd = -1;
	journal->limit_bytes = limit_bytes;
	journal->compact_at = COMPACT_SIZE;
	journal->window = must_alloc(WINDOW_SIZE);
	if (snprintf(journal->path, sizeof(journal->path), "%s", path) >= (int)sizeof(journal->path))
		r = err_set(err, ERR_CONFIG, "the path '%.200s...' is too long", path);
	else
		r = open_file(journal, err);
	if (r == 0)
		r = scan(journal, ret_lost_bytes, err);
	if (r < 0) {
		journal_close(&journal);
		return r;
	}
	*ret_journal = journal;
	return 0;
}

void journal_close(struct journal **journal)
{
	if (!*journal)
		return;
	fs_close(&(*journal)->fd);
	free((*journal)->window);
	free(*journal);
	*journal = NULL;
}

size_t journal_count(const struct journal *journal) { return journal->count; }

bool journal_is_empty(const struct journal *journal) { return journal->head == journal->size; }

bool journal_has_plenty(const struct journal *journal)
{
	return journal->size - journal->head < journal->limit_bytes / 2;
}

/* --- appending --- */

int journal_append(struct journal *journal, const struct journal_record *records, size_t count, struct err *err)
{
	AUTO(buf_fini) struct buf text = BUF_INIT(count * (HEAD_SIZE + PAYLOAD_MAX));
	int r;

	for (size_t i = 0; i < count; i++)
		frame_write(&text, &records[i]);
	if (text.is_failed)
		return err_set(err, ERR_NO_MEMORY, "no memory for %zu receipts", count);
	if (journal->is_shut) {
		err_set(err, ERR_SYSTEM, "the receipt journal '%s' could not be written anew", journal->path);
		err_hint(err, "mend the disk, then restart the node: what waits is delivered meanwhile");
		return -ERR_SYSTEM;
	}
	if (journal->limit_bytes == 0)
		return err_set(err, ERR_LIMIT, "this node keeps no receipts (receipt_journal is 0)");
	if (text.size > journal->limit_bytes || journal->size - journal->head > journal->limit_bytes - text.size) {
		err_set(err, ERR_LIMIT, "the receipt journal '%s' is full: %zu receipts in %llu bytes wait there",
			journal->path, journal->count, (unsigned long long)(journal->size - journal->head));
		err_hint(err, "bring the scheduler back; receipt_journal is how much the node keeps");
		return -ERR_LIMIT;
	}
	journal->window_size = 0;
	r = fs_write_all(journal->fd, text.data, text.size, (int64_t)journal->size, err);
	if (r == 0)
		r = fs_sync_data(journal->fd, journal->path, err);
	if (r < 0) {
		/* What may be there says nothing wrong, but nobody was promised it. Should this fail too, the next append writes over it. */
		if (ftruncate(journal->fd, (off_t)journal->size) < 0)
			err_wrap(err, "(nor can the file be cut back)");
		return err_wrap(err, "keeping %zu receipts in the journal '%s'", count, journal->path);
	}
	journal->size += text.size;
	journal->count += count;
	return 0;
}

/* --- reading and dropping --- */

/* Nothing waits: the file begins anew. Unsynced, since what a crash brings back is only told twice. */
static int start_over(struct journal *journal, struct err *err)
{
	journal->head = journal->size = 0;
	journal->count = journal->read_count = 0;
	journal->read_end = 0;
	journal->window_size = 0;
	journal->compact_at = COMPACT_SIZE;
	if (ftruncate(journal->fd, 0) < 0)
		return err_sys(err, ERR_SYSTEM, errno, "cannot empty the receipt journal '%s'", journal->path);
	return 0;
}

int journal_read(struct journal *journal, struct journal_record *ret_records, size_t limit, size_t *ret_count,
		 uint64_t *ret_lost_bytes, struct err *err)
{
	uint64_t end = journal->head;
	struct str payload;
	int r = 1;

	*ret_count = 0;
	*ret_lost_bytes = 0;
	journal->read_count = 0;
	while (*ret_count < limit && (r = next_frame(journal, &end, &payload, ret_lost_bytes, err)) > 0) {
		journal->read_count++;
		if (payload_read(payload, &ret_records[*ret_count]))
			++*ret_count;
		else
			*ret_lost_bytes += payload.size;
	}
	if (r < 0)
		return r;
	/* Bytes at the end that were good when they were written, and are not any more. */
	if (r == 0) {
		*ret_lost_bytes += journal->size - end;
		end = journal->size;
	}
	journal->read_end = end;
	return *ret_count == 0 ? start_over(journal, err) : 0;
}

/* Gives the space of what was dropped back, by a new file with the rest. The old one serves on when that fails. */
static int compact(struct journal *journal, struct err *err)
{
	const size_t rest_size = (size_t)(journal->size - journal->head);
	AUTO(buf_fini) struct buf rest = BUF_INIT(rest_size);
	struct stat old, new;
	int r = 0;

	journal->compact_at = journal->head + COMPACT_SIZE;
	if (!buf_reserve(&rest, rest_size))
		return err_set(err, ERR_NO_MEMORY, "no memory to shorten the receipt journal '%s'", journal->path);
	if (fs_read_all(journal->fd, rest.data, rest_size, (int64_t)journal->head, &rest.size, err) < 0)
		return err_wrap(err, "reading the receipt journal '%s'", journal->path);
	r = fs_replace_file(journal->path, buf_str(&rest), FILE_MODE, err);
	/* Whatever was said: records that went to a file which is not there after a crash would be lost. */
	AUTO(fs_close) int fd = open(journal->path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0 || fstat(fd, &new) < 0 || fstat(journal->fd, &old) < 0) {
		/* Nothing more is taken until a restart; what waits is still read from the old one. */
		journal->is_shut = true;
		return err_sys(err, ERR_SYSTEM, errno, "cannot open the receipt journal '%s' again", journal->path);
	}
	if (old.st_ino == new.st_ino)
		return r;
	const int old_fd = journal->fd;
	journal->fd = fd;
	fd = old_fd;
	journal->window_size = 0;
	journal->head = 0;
	journal->size = rest.size;
	journal->compact_at = COMPACT_SIZE;
	/* A new file that may not be there after a crash: nothing can be promised on it. */
	if (r < 0)
		journal->is_shut = true;
	return r;
}

int journal_drop(struct journal *journal, struct err *err)
{
	journal->head = journal->read_end;
	journal->count -= min_size(journal->count, journal->read_count);
	journal->read_count = 0;
	if (journal->head == journal->size)
		return start_over(journal, err);
	if (journal->head >= journal->compact_at && journal->head >= journal->size / 2)
		return compact(journal, err);
	return 0;
}
