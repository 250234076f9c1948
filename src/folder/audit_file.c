#include "folder/audit_file.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "plug/audit_line.h"

void audit_file_name(uint64_t first_id, uint64_t last_id, char target[AUDIT_FILE_NAME_SIZE])
{
	(void)snprintf(target, AUDIT_FILE_NAME_SIZE, "audit-%020" PRIu64 "-%020" PRIu64 ".jsonl", first_id, last_id);
}

static void write_point(struct buf *buf, const char *id_name, const char *hash_name, const struct audit_point *point,
			const uint64_t *row_count)
{
	struct json json;
	char hex[AUDIT_HASH_HEX_SIZE];

	hex_encode(point->hash, AUDIT_HASH_SIZE, hex);
	json_init(&json, buf);
	json_open(&json, NULL);
	json_u64(&json, id_name, point->id);
	json_c(&json, hash_name, hex);
	if (row_count)
		json_u64(&json, "rows", *row_count);
	json_close(&json);
	buf_append_c(buf, "\n");
}

void audit_file_begin(struct buf *buf, const struct audit_point *after)
{
	write_point(buf, "after_id", "after_hash", after, NULL);
}

void audit_file_end(struct buf *buf, const struct audit_point *last, uint64_t row_count)
{
	write_point(buf, "last_id", "last_hash", last, &row_count);
}

/* --- reading --- */

struct reader {
	const char *path;
	uint64_t line_number, row_count;
	struct audit_point after, last;
	bool is_begun, is_ended;
	int (*each)(void *owner, const struct audit_row *row);
	void *owner;
};

/* Is the line such a one? */
static bool read_point(struct str line, const char *id_name, const char *hash_name, struct audit_point *ret,
		       uint64_t *ret_row_count)
{
	json_t *root = json_loadb(line.data, line.size, JSON_REJECT_DUPLICATES, NULL);
	const json_t *id = json_object_get(root, id_name), *hash = json_object_get(root, hash_name),
		     *rows = json_object_get(root, "rows");
	bool is_one = json_is_integer(id) && json_integer_value(id) >= 0 && json_is_string(hash) &&
		      (!ret_row_count || (json_is_integer(rows) && json_integer_value(rows) >= 0)) &&
		      json_object_size(root) == (ret_row_count ? 3 : 2) &&
		      hex_decode((struct str){ json_string_value(hash), json_string_length(hash) }, ret->hash,
				 sizeof(ret->hash));

	if (is_one)
		ret->id = (uint64_t)json_integer_value(id);
	if (is_one && ret_row_count)
		*ret_row_count = (uint64_t)json_integer_value(rows);
	json_decref(root);
	return is_one;
}

static int bad(const struct reader *reader, const char *what, struct err *err)
{
	return err_set(err, ERR_AUDIT_BROKEN, "'%s', line %" PRIu64 ": %s", reader->path, reader->line_number, what);
}

/* 1: stop, without a fault. */
static int take_line(struct reader *reader, struct str line, struct err *err)
{
	struct audit_line row;
	uint64_t row_count;
	int result;

	reader->line_number++;
	if (!reader->is_begun) {
		reader->is_begun = read_point(line, "after_id", "after_hash", &reader->after, NULL);
		return reader->is_begun ? 0 : bad(reader, "this is no archive of the audit", err);
	}
	if (reader->is_ended)
		return bad(reader, "there is something behind the archive's end", err);
	if (str_starts(line, STR("{\"last_id\":")) &&
	    read_point(line, "last_id", "last_hash", &reader->last, &row_count)) {
		reader->is_ended = true;
		return row_count == reader->row_count ? 0 : bad(reader, "the archive had another number of rows", err);
	}
	result = audit_line_parse(line, &row, err);
	if (result == 0) {
		reader->row_count++;
		result = reader->each(reader->owner, &row.row) != 0;
	} else {
		char why[sizeof(err->text)];

		(void)snprintf(why, sizeof(why), "%s", err->text);
		result = bad(reader, why, err);
	}
	audit_line_fini(&row);
	return result;
}

int audit_file_read(const char *path, struct audit_point *ret_after, struct audit_point *ret_last,
		    int (*each)(void *owner, const struct audit_row *row), void *owner, struct err *err)
{
	struct reader reader = { .path = path, .each = each, .owner = owner };
	FILE *file = fopen(path, "re");
	char *line;
	size_t size;
	int result = 0;

	if (!file)
		return err_sys(err, ERR_SYSTEM, errno, "cannot open '%s'", path);
	line = must_alloc(AUDIT_LINE_MAX + 2);
	while (result == 0 && fgets(line, AUDIT_LINE_MAX + 2, file)) {
		size = strlen(line);
		/* What stands behind a NUL would not be looked at. */
		if (size == 0 || line[size - 1] != '\n') {
			reader.line_number++;
			result = bad(&reader,
				     "the line has no end: it was cut, has a NUL, or is longer than any of ours", err);
			break;
		}
		result = take_line(&reader, (struct str){ line, size - 1 }, err);
	}
	if (result == 0 && ferror(file))
		result = err_sys(err, ERR_SYSTEM, errno, "cannot read '%s'", path);
	else if (result == 0 && !reader.is_ended)
		result = bad(&reader, "the archive ends before its last line: it was cut", err);
	free(line);
	(void)fclose(file);
	*ret_after = reader.after;
	*ret_last = reader.last;
	return result < 0 ? result : 0;
}
