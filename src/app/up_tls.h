/* heng up --tls: an authority of its own and certificates for its roles, in the folder `tls` of its data. */
#ifndef HENG_APP_UP_TLS_H
#define HENG_APP_UP_TLS_H

#include "base/err.h"

#define UP_TLS_LOOK_US ((int64_t)3600 * SEC_US) /* how often to ask whether they are due */

/* Makes dir/ca.pem and dir/ca.key where they are missing or due, and new certificates for the scheduler and nodes n1 to n<count>, that of the scheduler
 * also for the host of `listen` ("host:port"). is_start: in any case, since hosts may be others now; else only when they expire within 30 days. */
int up_tls_make(const char *dir, const char *listen, uint64_t node_count, bool is_start, struct err *err);

#endif
