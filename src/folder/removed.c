#include "folder/removed.h"

#include <inttypes.h>
#include <string.h>

static const char *const kind_names[] = {
	[REMOVED_OVER] = "over",
	[REMOVED_STRAY] = "stray",
	[REMOVED_UNFINISHED] = "unfinished",
};

void removed_write(struct buf *buf, const struct removed *removed)
{
	buf_append_c(buf, kind_names[removed->kind]);
	switch (removed->kind) {
	case REMOVED_OVER:
		buf_printf(buf, " %s\n", removed->transfer_id);
		break;
	case REMOVED_STRAY:
		buf_printf(buf, " %s %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", removed->transfer_id, removed->file_id,
			   removed->chunk_index, removed->size_bytes);
		break;
	case REMOVED_UNFINISHED:
		buf_printf(buf, " %" PRIu64 "\n", removed->count);
		break;
	}
}

static bool find_kind(struct str word, enum removed_kind *ret_kind)
{
	for (size_t i = 0; i < COUNT_OF(kind_names); i++) {
		if (str_eq_c(word, kind_names[i])) {
			*ret_kind = (enum removed_kind)i;
			return true;
		}
	}
	return false;
}

static bool cut_number(struct str *rest, uint64_t *ret_value)
{
	struct str word;

	/* The tables keep signed 64-bit numbers. */
	return str_cut(rest, ' ', &word) && str_to_u64(word, ret_value) && *ret_value <= INT64_MAX;
}

static bool read_fields(struct str rest, struct removed *removed)
{
	struct str word;

	if (!str_cut(&rest, ' ', &word) || !find_kind(word, &removed->kind))
		return false;
	if (removed->kind == REMOVED_UNFINISHED)
		return cut_number(&rest, &removed->count) && rest.size == 0;
	if (!str_cut(&rest, ' ', &word) || !ulid_is_valid(word.data, word.size) ||
	    !str_copy(word, removed->transfer_id, sizeof(removed->transfer_id)))
		return false;
	if (removed->kind == REMOVED_OVER)
		return rest.size == 0;
	return cut_number(&rest, &removed->file_id) && cut_number(&rest, &removed->chunk_index) &&
	       cut_number(&rest, &removed->size_bytes) && rest.size == 0;
}

int removed_parse(struct str line, struct removed *ret, struct err *err)
{
	memset(ret, 0, sizeof(*ret));
	if (line.size >= REMOVED_LINE_MAX || !read_fields(line, ret))
		return err_set(err, ERR_BAD_REQUEST, "a line does not say what was removed");
	return 0;
}
