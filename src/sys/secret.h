/* Memory for keys: pages of their own that are not swapped out (where the limit on locked memory allows it), not in a core dump, not in a child,
 * and wiped before they are given back. */
#ifndef HENG_SYS_SECRET_H
#define HENG_SYS_SECRET_H

#include "base/base.h"

/* Zeroed; aborts without memory. */
void *secret_new(size_t size_bytes);
void secret_free(void **secret, size_t size_bytes); /* nulls; NULL is fine */

#endif
