/* The audit as its readers fetch it from the scheduler: page after page, each row as it was written, with its hash. */
#ifndef HENG_FOLDER_AUDIT_ASK_H
#define HENG_FOLDER_AUDIT_ASK_H

#include "folder/client.h"
#include "plug/audit_chain.h"

/* A negative return stops and is the call's; 1 stops without a fault. The row lives until the callback returns. */
typedef int audit_ask_fn(void *owner, const struct audit_row *row, struct err *err);

/* query: what the rows are to fit, as the interface wants it ("transfer=ID&kind=state"), or "". One that names no to_id ends with the rows that were
 * there when it began. */
int audit_ask(const struct client *client, const char *query, audit_ask_fn *each, void *owner, struct err *err);
int audit_ask_head(const struct client *client, struct audit_head *ret_head, struct err *err);

#endif
