/* SHA-256's compression function (FIPS 180-4) by the SHA instructions of x86-64 processors: for one state, and for two at once. One state
 * alone waits for each round's result before the next; a second one does its rounds meanwhile, so two cost little more than one. */
#ifndef HENG_BASE_SHA256X2_H
#define HENG_BASE_SHA256X2_H

#include "base/base.h"

#define SHA256_BLOCK_BYTES ((size_t)64)

/* Has this processor the instructions? Nothing below may be called without. */
bool sha256x2_is_available(void);
void sha256x1_blocks(uint32_t state[8], const void *data, size_t block_count);
/* Both states take the same blocks; their message schedule is worked out once. */
void sha256x2_blocks(uint32_t a[8], uint32_t b[8], const void *data, size_t block_count);
/* Each state takes blocks of its own. */
void sha256x2_blocks_apart(uint32_t a[8], const void *data_a, uint32_t b[8], const void *data_b, size_t block_count);

#endif
