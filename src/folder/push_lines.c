#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "folder/push_impl.h"
#include "sys/fs.h"

/* Reading back what walk_folder wrote. The rules of the format were kept when it was written and are checked again by the scheduler, so this
 * reader holds one line and no set of paths: a million entries cost it 64 KiB. */

#define PUSH_LINES_SIZE (64 * KIB)
_Static_assert(PUSH_LINES_SIZE > 2 * MANIFEST_LINE_MAX, "a whole line must fit");

void push_lines_init(struct push_lines *lines, int fd)
{
	*lines = (struct push_lines){ .fd = fd, .data = must_alloc(PUSH_LINES_SIZE) };
}

void push_lines_init_at(struct push_lines *lines, int fd, int64_t offset, uint64_t seq)
{
	push_lines_init(lines, fd);
	lines->offset = offset;
	lines->seq = seq;
	lines->is_head_read = offset > 0;
}

void push_lines_fini(struct push_lines *lines)
{
	free(lines->data);
	lines->data = NULL;
}

int64_t push_lines_place(const struct push_lines *lines) { return lines->offset + (int64_t)lines->at; }

/* The next whole line without its end. 0: the file has ended. */
static int push_lines_line(struct push_lines *lines, struct str *ret_line, struct err *err)
{
	for (;;) {
		const char *start = lines->data + lines->at;
		const char *end = memchr(start, '\n', lines->size - lines->at);
		if (end != NULL) {
			*ret_line = (struct str){ start, (size_t)(end - start) };
			lines->at += ret_line->size + 1;
			return 1;
		}
		size_t left = lines->size - lines->at;
		memmove(lines->data, start, left);
		lines->offset += (int64_t)lines->at;
		lines->at = 0;
		lines->size = left;
		size_t got = 0;
		int r = fs_read_all(lines->fd, lines->data + left, PUSH_LINES_SIZE - left,
				    lines->offset + (int64_t)left, &got, err);
		if (r < 0)
			return err_wrap(err, "reading the manifest back");
		if (got == 0 && left == 0)
			return 0;
		if (got == 0)
			return err_set(err, ERR_INTERNAL, "the manifest file ends within a line");
		lines->size += got;
	}
}

static int push_lines_entry_line(struct push_lines *lines, struct str *ret_line, struct err *err)
{
	if (!lines->is_head_read) {
		int r = push_lines_line(lines, ret_line, err);
		if (r <= 0)
			return r;
		lines->is_head_read = true;
	}
	size_t at = lines->at;
	int64_t offset = lines->offset;
	int r = push_lines_line(lines, ret_line, err);
	if (r <= 0)
		return r;
	if (ret_line->size >= 4 && memcmp(ret_line->data, "end ", 4) == 0) {
		/* Asked again, the end is still the end. */
		lines->at -= ret_line->size + 1;
		MUST(lines->offset + (int64_t)lines->at == offset + (int64_t)at);
		return 0;
	}
	return 1;
}

int push_lines_skip(struct push_lines *lines, uint64_t seq, struct err *err)
{
	while (lines->seq < seq) {
		struct str line;
		int r = push_lines_entry_line(lines, &line, err);
		if (r < 0)
			return r;
		if (r == 0)
			return err_set(err, ERR_PEER, "the plan names entry %llu, but the folder has %llu",
				       (unsigned long long)seq, (unsigned long long)lines->seq);
		lines->seq++;
	}
	return 0;
}

int push_lines_next(struct push_lines *lines, struct manifest_entry *ret_entry, struct err *err)
{
	struct str line, type, mode, mtime, fourth, path;
	int r = push_lines_entry_line(lines, &line, err);
	if (r <= 0)
		return r;
	struct manifest_entry entry = { .seq = lines->seq };
	bool is_good = str_cut(&line, ' ', &type) && type.size == 1 && str_cut(&line, ' ', &mode) &&
		       str_to_octal(mode, &entry.mode) && str_cut(&line, ' ', &mtime) &&
		       str_to_i64(mtime, &entry.mtime_ns);
	if (is_good) {
		entry.type = (enum manifest_type)type.data[0];
		if (entry.type == MANIFEST_FILE)
			is_good = str_cut(&line, ' ', &fourth) && str_to_u64(fourth, &entry.size_bytes);
		else if (entry.type == MANIFEST_LINK)
			is_good = str_cut(&line, ' ', &fourth);
	}
	size_t path_size = 0;
	path = line;
	char raw[3 * MANIFEST_PATH_MAX + 1];
	is_good = is_good && path.size < sizeof(raw) && percent_decode(path, raw, sizeof(raw), &path_size) &&
		  path_size <= MANIFEST_PATH_MAX;
	if (!is_good)
		return err_set(err, ERR_INTERNAL, "line %llu of the manifest file cannot be read back",
			       (unsigned long long)lines->seq + 2);
	memcpy(lines->path, raw, path_size);
	lines->path[path_size] = '\0';
	entry.path = (struct str){ lines->path, path_size };
	lines->seq++;
	*ret_entry = entry;
	return 1;
}
