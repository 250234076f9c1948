/* Argon2id (RFC 9106) of API keys, in the PHC text form: $argon2id$v=19$m=19456,t=2,p=1$<salt>$<hash>. Costs tens of milliseconds and m KiB of
 * memory on purpose: on a pool thread only, and never for whoever just asks. */
#ifndef HENG_BASE_ARGON_H
#define HENG_BASE_ARGON_H

#include "base/err.h"
#include "base/str.h"

#define ARGON_TEXT_SIZE 256
/* What our own hashes cost: OWASP's least for Argon2id. The keys that heng makes have 256 random bits, so that the cost protects others' only. */
#define ARGON_MEMORY_KIB 19456u
#define ARGON_PASSES     2u
/* What a hash may ask of us. */
#define ARGON_MEMORY_KIB_MIN 7168u
#define ARGON_MEMORY_KIB_MAX (256u * 1024u)
#define ARGON_PASSES_MAX     16u
#define ARGON_LANES_MAX      4u

/* With a fresh salt. */
int argon_hash(struct str secret, char target[ARGON_TEXT_SIZE], struct err *err);
/* Is it a text that argon_check can use, within the bounds above? -ERR_CONFIG says what is wrong with it. */
int argon_text_check(struct str text, struct err *err);
/* The text must have passed argon_text_check. Negative: it could not be computed (no memory). */
int argon_check(const char *text, struct str secret, bool *ret_fits, struct err *err);

#endif
