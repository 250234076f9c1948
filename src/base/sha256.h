/* A running SHA-256 (FIPS 180-4) of our own, for processors with SHA instructions (sha256x2.h). OpenSSL's hides its state, so that two of
 * them cannot share the work on the same bytes; these can. Callers want digest.h, which chooses. */
#ifndef HENG_BASE_SHA256_H
#define HENG_BASE_SHA256_H

#include "base/sha256x2.h"

#define SHA256_BYTES ((size_t)32)

struct sha256 {
	uint32_t words[8];
	uint64_t size_bytes; /* fed so far */
	uint8_t partial[64]; /* its first size_bytes % 64 bytes wait for the rest of their block */
};

/* All need sha256x2_is_available(). */
void sha256_start(struct sha256 *sha256);
void sha256_feed(struct sha256 *sha256, const void *data, size_t size);
/* The same bytes to both, which may have been fed different ones before. Best when both stand at the same byte of a block. */
void sha256_feed_two(struct sha256 *a, struct sha256 *b, const void *data, size_t size);
/* Start before feeding again. */
void sha256_end(struct sha256 *sha256, uint8_t target[SHA256_BYTES]);

#endif
