/* An archive of the audit: a text file of JSON lines. The first says after which row of the chain it begins, each other one is a row (plug/audit_line.h),
 * the last one says where it ends, so that a file that was cut is known. The name says which rows are in it. */
#ifndef HENG_FOLDER_AUDIT_FILE_H
#define HENG_FOLDER_AUDIT_FILE_H

#include "plug/audit_chain.h"

#define AUDIT_FILE_NAME_SIZE 64

/* "audit-00000000000000000001-00000000000000100000.jsonl": sorted by name they are in the order of the chain. */
void audit_file_name(uint64_t first_id, uint64_t last_id, char target[AUDIT_FILE_NAME_SIZE]);
void audit_file_begin(struct buf *buf, const struct audit_point *after);
void audit_file_end(struct buf *buf, const struct audit_point *last, uint64_t row_count);

/* Reads one, line by line. each: as many faults as it finds are its own to count; non-zero stops. Returns 0 when the file is whole in its form,
 * and what it says of itself in *ret_after and *ret_last; -ERR_AUDIT_BROKEN when it is not, with the line's number. */
int audit_file_read(const char *path, struct audit_point *ret_after, struct audit_point *ret_last,
		    int (*each)(void *owner, const struct audit_row *row), void *owner, struct err *err);

#endif
