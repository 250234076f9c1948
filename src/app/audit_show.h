/* Rows of the audit for people, for programs and for spreadsheets. */
#ifndef HENG_APP_AUDIT_SHOW_H
#define HENG_APP_AUDIT_SHOW_H

#include "plug/audit_chain.h"

enum audit_form { AUDIT_FORM_TEXT, AUDIT_FORM_JSON, AUDIT_FORM_CSV };

/* What stands before the rows: the headings of a CSV. */
void audit_show_begin(struct buf *buf, enum audit_form form);
/* One row, with its line end. CSV: RFC 4180, text quoted; text that a spreadsheet would take for a formula has an apostrophe before it. */
void audit_show_row(struct buf *buf, enum audit_form form, const struct audit_row *row);
/* "2026-01-31", "2026-01-31T08:00:00Z" (UTC), or a duration like "90d": so long before now. -ERR_USAGE names the option. */
int audit_read_time(const char *option, const char *text, int64_t now_wall_us, int64_t *ret_wall_us, struct err *err);

#endif
