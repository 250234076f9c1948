/* Opens an encrypted file while it comes in, in pieces of any size; a segment's plain bytes are handed on once it was found to be true. One MiB twice
 * of memory. */
#ifndef HENG_WIRE_UNSEAL_H
#define HENG_WIRE_UNSEAL_H

#include "base/err.h"
#include "wire/seal.h"

struct unseal; /* one file after another; for one thread at a time */
/* Plain bytes, in order; negative ends it. */
typedef int unseal_sink_fn(void *owner, const void *plain, size_t size, struct err *err);

struct unseal *unseal_new(const uint8_t key[SEAL_KEY_SIZE], unseal_sink_fn *sink,
			  void *owner); /* the key is borrowed */
void unseal_free(struct unseal **unseal);
/* stored_bytes: of the whole file. path: within the folder; borrowed until the file's end. */
void unseal_begin(struct unseal *unseal, struct str path, uint64_t stored_bytes);
/* -ERR_INTEGRITY: it is not encrypted, not with this key, not this path's, or not what was encrypted. Not to be fed on after an error. */
int unseal_feed(struct unseal *unseal, const void *data, size_t size, struct err *err);
int unseal_end(struct unseal *unseal, struct err *err); /* all stored_bytes have come */

#endif
