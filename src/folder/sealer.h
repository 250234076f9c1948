/* A file as it is stored when it is encrypted, computed where it is needed: any bytes of it, in any order, from the plain file. */
#ifndef HENG_FOLDER_SEALER_H
#define HENG_FOLDER_SEALER_H

#include <stdatomic.h>

#include "base/err.h"
#include "wire/seal.h"

struct sealer; /* one file after another; for one thread at a time; two MiB */
struct sealer *sealer_new(enum seal_cipher cipher, const uint8_t key[SEAL_KEY_SIZE]); /* the key is borrowed */
void sealer_free(struct sealer **sealer);

/* Reads the file to its end once, which makes its salt. fd is borrowed until the next one. is_over: NULL, or looked at on the way; then it ends with
 * -ERR_WAITING. -ERR_SOURCE_CHANGED: it is shorter than plain_bytes. Else the failure to read, with the system's number. */
int sealer_open(struct sealer *sealer, int fd, const char *transfer_id, struct str path, uint64_t plain_bytes,
		const atomic_bool *is_over, struct err *err);
/* size bytes from `at` of the stored file, within its size. -ERR_SOURCE_CHANGED: the file is not any more what it was when it was opened; nothing of what
 * it is now was encrypted. */
int sealer_read(struct sealer *sealer, uint64_t at, void *target, size_t size, struct err *err);

#endif
