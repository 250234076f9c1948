/* Receipts on the wire between node and scheduler: one receipt a line, fields separated by one tab, in the order of docs/api.md. Text
 * fields are percent-encoded, so a tab or a line end cannot be in one. The node writes, the scheduler parses; both are here so that
 * they cannot disagree. */
#ifndef HENG_FOLDER_RECEIPT_H
#define HENG_FOLDER_RECEIPT_H

#include "base/buf.h"
#include "plug/store.h"

#define RECEIPT_LINE_MAX  4096 /* bytes, with the line end */
#define RECEIPT_BATCH_MAX 500  /* receipts in one request */

/* Appends the line with its '\n'. receipt->result is not written. */
void receipt_write(struct buf *buf, const struct store_receipt *receipt);
/* line: without the '\n'. Checks every field (ids, digest, ranges, the outcome's word); result is ERR_NONE afterwards. Returns
 * -ERR_BAD_REQUEST naming the field. */
int receipt_parse(struct str line, struct store_receipt *ret, struct err *err);

/* The answer: one line a receipt, "ok" or an error's word. */
void receipt_answer_write(struct buf *buf, enum err_code result);
/* line: without the '\n'. -ERR_PEER when it is neither "ok" nor a known word. */
int receipt_answer_parse(struct str line, enum err_code *ret_result, struct err *err);

#endif
