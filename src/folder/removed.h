/* What a node's own sweep is about to remove, on the wire, one thing a line:
 *   over <transfer_id>                                          all files of a transfer that is over
 *   stray <transfer_id> <file_id> <chunk_index> <bytes>         one file of a chunk that was begun, and that nobody has written for long
 *   unfinished <count>                                          files of chunks that a former process had begun, at its end
 * The node says it first and removes only what the scheduler has written down. */
#ifndef HENG_FOLDER_REMOVED_H
#define HENG_FOLDER_REMOVED_H

#include "base/buf.h"
#include "base/err.h"
#include "base/rng.h"

#define REMOVED_LINE_MAX  128u  /* bytes, with the line end */
#define REMOVED_LINES_MAX 1000u /* in one call */

enum removed_kind { REMOVED_OVER, REMOVED_STRAY, REMOVED_UNFINISHED };
struct removed {
	enum removed_kind kind;
	char transfer_id[ULID_SIZE];               /* "": unfinished */
	uint64_t file_id, chunk_index, size_bytes; /* of a stray one */
	uint64_t count;                            /* unfinished */
};

void removed_write(struct buf *buf, const struct removed *removed);
/* line: without the line end. -ERR_BAD_REQUEST. */
int removed_parse(struct str line, struct removed *ret, struct err *err);

#endif
