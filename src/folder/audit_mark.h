/* The end of the audit's chain, told to the log: whoever keeps the scheduler's log elsewhere has a witness against which a chain that was cut or
 * forged anew is found out (heng audit verify --head). */
#ifndef HENG_FOLDER_AUDIT_MARK_H
#define HENG_FOLDER_AUDIT_MARK_H

#include "plug/audit_chain.h"

#define AUDIT_MARK_INTERVAL_US (3600 * SEC_US)
#define AUDIT_MARK_SIZE        (21 + AUDIT_HASH_HEX_SIZE)

/* "4711:0123...", as --head takes it. */
void audit_mark_text(const struct audit_point *point, char target[AUDIT_MARK_SIZE]);
/* At the start: do the newest rows end where the chain does? When they do not, that is an error in the log and an "alert" row of the audit; the work
 * goes on, and the chain with it. Then the mark. Failures are logged only. */
void audit_mark_start(struct store *store);
/* The mark, when the chain has moved since the one in *last; at most every AUDIT_MARK_INTERVAL_US. Both begin as zeros. */
void audit_mark(struct store *store, int64_t now_us, int64_t *last_us, uint64_t *last_id);

#endif
