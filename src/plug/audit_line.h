/* An audit row as a line of JSON, for the interface and for archives: {"id":1,"at_us":...,"prev_hash":HEX,"hash":HEX}. Fields that are null are left
 * out. Text that JSON cannot hold as it is (no UTF-8, or with a NUL) stands percent-encoded in a field of that name with _enc behind it:
 * whoever reads the line can compute the row's hash from it. */
#ifndef HENG_PLUG_AUDIT_LINE_H
#define HENG_PLUG_AUDIT_LINE_H

#include <jansson.h>

#include "plug/audit_chain.h"

#define AUDIT_LINE_MAX (64 * KIB)

/* Without a line end. */
void audit_line_write(struct buf *buf, const struct audit_row *row);
/* A row that was read. Its text points into the parsed line. */
struct audit_line {
	json_t *root;
	struct buf room;
	struct audit_row row;
};
/* line: without its end. -ERR_BAD_REQUEST says what is wrong with it. audit_line_fini in any case. */
int audit_line_parse(struct str line, struct audit_line *ret, struct err *err);
void audit_line_fini(struct audit_line *line);

#endif
