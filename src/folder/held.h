/* What a node holds of a transfer, on the wire: one durable chunk a line in (file, chunk) order, then a line that says whether there is more:
 *   <file_id> <chunk_index> <bytes> <digest's kind>:<hex>
 *   N <0|1>
 * The node writes, the scheduler parses; both are here so that they cannot disagree. */
#ifndef HENG_FOLDER_HELD_H
#define HENG_FOLDER_HELD_H

#include "base/buf.h"
#include "base/digest.h"
#include "base/err.h"

#define HELD_PAGE_MAX   4096u         /* chunks in one answer */
#define HELD_LINE_MAX   192u          /* bytes, with the line end */
#define HELD_ANSWER_MAX ((size_t)MIB) /* holds a page of the longest lines */

struct held_chunk {
	uint64_t file_id, chunk_index, size_bytes;
	enum digest_kind kind;
	char digest[DIGEST_HEX_SIZE];
};
/* Strictly after the first pair, up to the second one. */
struct held_range {
	uint64_t after_file_id, after_chunk_index;
	uint64_t last_file_id, last_chunk_index;
};

/* Negative, 0, positive, as strcmp, by (file, chunk). */
int held_compare(uint64_t file_a, uint64_t chunk_a, uint64_t file_b, uint64_t chunk_b);

void held_write(struct buf *buf, const struct held_chunk *chunk);
void held_write_end(struct buf *buf, bool has_more);
/* Calls each(owner, chunk) for the chunks of a page until it returns negative, which is returned. -ERR_PEER when the page is not one: order, range,
 * digests and the last line are checked, and that a page that has more after it is not empty. */
int held_parse(struct str page, const struct held_range *range,
	       int (*each)(void *owner, const struct held_chunk *chunk, struct err *err), void *owner, bool *ret_more,
	       struct err *err);

#endif
