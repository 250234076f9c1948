#include "folder/held.h"

#include <inttypes.h>

int held_compare(uint64_t file_a, uint64_t chunk_a, uint64_t file_b, uint64_t chunk_b)
{
	if (file_a != file_b)
		return file_a < file_b ? -1 : 1;
	if (chunk_a != chunk_b)
		return chunk_a < chunk_b ? -1 : 1;
	return 0;
}

void held_write(struct buf *buf, const struct held_chunk *chunk)
{
	buf_printf(buf, "%" PRIu64 " %" PRIu64 " %" PRIu64 " %s:%s\n", chunk->file_id, chunk->chunk_index,
		   chunk->size_bytes, digest_name(chunk->kind), chunk->digest);
}

void held_write_end(struct buf *buf, bool has_more) { buf_append_c(buf, has_more ? "N 1\n" : "N 0\n"); }

/* The tables keep signed 64-bit numbers: a larger one is no chunk's. */
static bool cut_number(struct str *rest, uint64_t *ret_value)
{
	struct str word;

	return str_cut(rest, ' ', &word) && str_to_u64(word, ret_value) && *ret_value <= INT64_MAX;
}

static bool read_chunk(struct str line, struct held_chunk *chunk)
{
	struct str kind;

	return line.size < HELD_LINE_MAX && cut_number(&line, &chunk->file_id) && chunk->file_id > 0 &&
	       cut_number(&line, &chunk->chunk_index) && cut_number(&line, &chunk->size_bytes) &&
	       str_cut(&line, ':', &kind) && digest_from_name(kind, &chunk->kind) &&
	       digest_hex_is_valid(chunk->kind, line) && str_copy(line, chunk->digest, sizeof(chunk->digest));
}

static int fault(size_t line_number, const char *rule, struct err *err)
{
	return err_set(err, ERR_PEER, "line %zu of the node's list of chunks %s", line_number, rule);
}

int held_parse(struct str page, const struct held_range *range,
	       int (*each)(void *owner, const struct held_chunk *chunk, struct err *err), void *owner, bool *ret_more,
	       struct err *err)
{
	uint64_t file_id = range->after_file_id, chunk_index = range->after_chunk_index;
	size_t count = 0;
	struct str line;

	if (page.size == 0 || page.data[page.size - 1] != '\n')
		return err_set(err, ERR_PEER, "the node's list of chunks ends within a line");
	while (str_cut(&page, '\n', &line)) {
		struct held_chunk chunk = { .file_id = 0 };
		int result;

		if (str_eq(line, STR("N 0")) || str_eq(line, STR("N 1"))) {
			*ret_more = line.data[2] == '1';
			if (page.size != 0)
				return fault(count + 2, "comes after the end", err);
			/* Else the same page would be asked for again and again. */
			return *ret_more && count == 0 ? fault(1, "says that there is more, and gives nothing", err)
						       : 0;
		}
		if (!read_chunk(line, &chunk))
			return fault(count + 1, "is not '<file> <chunk> <bytes> <kind>:<digest>'", err);
		if (++count > HELD_PAGE_MAX)
			return fault(count, "is one too many", err);
		if (held_compare(chunk.file_id, chunk.chunk_index, file_id, chunk_index) <= 0)
			return fault(count, "is out of order", err);
		if (held_compare(chunk.file_id, chunk.chunk_index, range->last_file_id, range->last_chunk_index) > 0)
			return fault(count, "is a chunk that was not asked for", err);
		file_id = chunk.file_id;
		chunk_index = chunk.chunk_index;
		result = each(owner, &chunk, err);
		if (result < 0)
			return result;
	}
	return err_set(err, ERR_PEER, "the node's list of chunks has no end");
}
