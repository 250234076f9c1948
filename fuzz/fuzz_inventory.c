/* A node's list of chunks, and what it removes, of any bytes: what is accepted is written again, and reads as the same. */
#include <string.h>

#include "folder/held.h"
#include "folder/removed.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int write_again(void *owner, const struct held_chunk *chunk, struct err *err)
{
	(void)err;
	held_write(owner, chunk);
	return 0;
}

static void check_page(struct str page)
{
	static const struct held_range all = { 0, 0, INT64_MAX, INT64_MAX };
	struct buf once = BUF_INIT(HELD_ANSWER_MAX), twice = BUF_INIT(HELD_ANSWER_MAX);
	bool has_more = false, has_more_again = false;
	struct err err = ERR_INIT;

	if (held_parse(page, &all, write_again, &once, &has_more, &err) == 0) {
		held_write_end(&once, has_more);
		MUST(!once.is_failed);
		MUST(held_parse(buf_str(&once), &all, write_again, &twice, &has_more_again, &err) == 0);
		held_write_end(&twice, has_more_again);
		MUST(str_eq(buf_str(&once), buf_str(&twice)));
	}
	buf_fini(&once);
	buf_fini(&twice);
}

static void check_removed(struct str line)
{
	struct buf buf = BUF_INIT(REMOVED_LINE_MAX);
	struct removed removed, again;
	struct err err = ERR_INIT;

	if (removed_parse(line, &removed, &err) < 0)
		return;
	removed_write(&buf, &removed);
	MUST(!buf.is_failed);
	MUST(removed_parse((struct str){ buf.data, buf.size - 1 }, &again, &err) == 0);
	MUST(memcmp(&removed, &again, sizeof(again)) == 0);
	buf_fini(&buf);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct str rest = { (const char *)data, size }, line;

	check_page(rest);
	while (str_cut(&rest, '\n', &line))
		check_removed(line);
	return 0;
}
