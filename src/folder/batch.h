/* A batch's name: it becomes a folder of the final store, and stands in logs. One rule for both sides, so that a client refuses before it sends anything
 * what a scheduler would refuse after it. */
#ifndef HENG_FOLDER_BATCH_H
#define HENG_FOLDER_BATCH_H

#include "base/err.h"
#include "base/str.h"

/* 1 to STORE_BATCH_MAX bytes, no '/', no control character, no dot at the start; else ERR_BATCH_NAME, with the rule in words. */
int batch_check(struct str batch, struct err *err);

#endif
