/* What scheduler and node have in common in GET /metrics. */
#ifndef HENG_FOLDER_METRICS_H
#define HENG_FOLDER_METRICS_H

#include "folder/alert.h"
#include "wire/prom.h"

#define METRICS_BYTES_MAX (1 * MIB)

/* heng_info, heng_errors_total and heng_alerts_total. */
void metrics_common(struct buf *target, const char *role, const struct alerts *alerts);

#endif
