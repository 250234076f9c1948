/* The text of a key file: "heng-key 1 <key id> <64 hex digits>" on a line of its own; lines that begin with # and empty ones do not count. The key
 * may also stand alone, as 64 hex digits or as base64 of 32 bytes (of any alphabet, padded or not), as other tools make it. */
#ifndef HENG_WIRE_SEAL_KEY_H
#define HENG_WIRE_SEAL_KEY_H

#include "wire/seal.h"

#define SEAL_KEY_TEXT_MAX 4096 /* of a whole key file */

/* NULL, or what is wrong with it, in words that say nothing of the key. An id that is not the key's is wrong: a digit was lost. */
const char *seal_key_parse(struct str text, uint8_t ret_key[SEAL_KEY_SIZE], char ret_id[SEAL_ID_SIZE]);
/* Writes a whole file's text, for which a buffer of SEAL_KEY_TEXT_MAX is enough, and returns its size; to be wiped by the caller. */
size_t seal_key_write(const uint8_t key[SEAL_KEY_SIZE], char *target, size_t target_size);

#endif
