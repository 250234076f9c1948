/* Files encrypted by the client. AES: the streaming format of Google's Tink, AES256_GCM_HKDF_1MB, so that other tools can open it:
 *   file    = header, segment 0, segment 1, ...       cut every MiB, the header counted to segment 0; only the last may be shorter
 *   header  = its own size (1 byte, 40), salt (32), nonce prefix (7)
 *   key     = HKDF-SHA256(the key file's key, salt, info = the path within the folder), 32 bytes
 *   segment = AES-256-GCM(key, nonce = prefix (7), the segment's number (4, big-endian), 1 for the last or 0), ciphertext and tag (16)
 * SM4: heng's own with the same framing, of Chinese algorithms alone, as OpenSSL 3.0 has no SM4-GCM:
 *   header  = its own size (1 byte, 48), "hengsm4\1", salt (32), nonce prefix (7)
 *   keys    = HKDF-SM3(...), 16 bytes for the cipher, 32 for the MAC
 *   segment = SM4-CTR (counter block = nonce as above, 4 zeros), then HMAC-SM3 of nonce and ciphertext (32)
 * A path or salt of another file, another number or a changed byte does not open; nor does a file that was cut, as its last segment is missing.
 *
 * Salt and prefix are made from the content: from a secret MAC of every segment of it, bound to transfer and path. So the same file sent again
 * within a transfer has the same bytes, and a salt belongs to one content only: no key and nonce ever meet two different plaintexts
 * (docs/encryption.md has the argument). */
#ifndef HENG_WIRE_SEAL_H
#define HENG_WIRE_SEAL_H

#include "base/str.h"

#define SEAL_SEGMENT_BYTES MIB /* of the stored file */
#define SEAL_KEY_SIZE      32
#define SEAL_HEADER_MAX    48
#define SEAL_TAG_MAX       32
#define SEAL_ID_SIZE       17 /* 16 hex digits */
#define SEAL_LABEL_SIZE    32 /* "aes:0123456789abcdef" */

enum seal_cipher { SEAL_AES, SEAL_SM4 };
#define SEAL_CIPHER_NAMES "aes, sm4"

const char *seal_cipher_name(enum seal_cipher cipher);
/* False also for one that this OpenSSL was built without. */
bool seal_cipher_from_name(struct str name, enum seal_cipher *ret_cipher);
/* Which it is, from the first byte of a stored file. */
bool seal_cipher_from_head(uint8_t head, enum seal_cipher *ret_cipher);

/* A name for a key that says nothing about it: it may stand in tables and logs. */
void seal_key_id(const uint8_t key[SEAL_KEY_SIZE], char target[SEAL_ID_SIZE]);
/* How a transfer was encrypted, as its record has it: "<cipher>:<key id>". */
void seal_label(enum seal_cipher cipher, const char *key_id, char target[SEAL_LABEL_SIZE]);
/* ret_key_id may be NULL. False: it is no label. */
bool seal_label_parse(struct str label, enum seal_cipher *ret_cipher, char ret_key_id[SEAL_ID_SIZE]);

/* --- sizes --- */
uint64_t seal_stored_size(enum seal_cipher cipher, uint64_t plain_bytes);
bool seal_plain_size(enum seal_cipher cipher, uint64_t stored_bytes,
		     uint64_t *ret_bytes); /* false: no file has this one */
uint64_t seal_segment_count(enum seal_cipher cipher, uint64_t plain_bytes);
/* Where a segment is; the header is counted to segment 0. */
struct seal_span {
	uint64_t plain_at, stored_at;
	size_t plain_bytes, stored_bytes;
};
struct seal_span seal_span(enum seal_cipher cipher, uint64_t plain_bytes, uint64_t segment_index);
/* The segment that holds this byte of the stored file. */
static inline uint64_t seal_segment_of(uint64_t stored_at) { return stored_at / SEAL_SEGMENT_BYTES; }

/* --- one file after another; for one thread at a time --- */
struct seal;
struct seal *seal_new(enum seal_cipher cipher, const uint8_t key[SEAL_KEY_SIZE]); /* the key is borrowed */
void seal_free(struct seal **seal);

/* Encrypting: first the whole content, segment by segment as the spans cut it; this makes salt and prefix. */
void seal_content_begin(struct seal *seal, const char *transfer_id, struct str path, uint64_t plain_bytes);
void seal_content_add(struct seal *seal, const void *plain);
void seal_content_end(struct seal *seal);
/* Then any segments in any order, any number of times. Writes the stored bytes of its span. False: this is not the content that was given
 * first, and nothing is encrypted. */
bool seal_segment(struct seal *seal, uint64_t segment_index, const void *plain, void *target);

/* Opening. `head`: the first bytes of the stored file, as many as the cipher's header has; false: they are no header of this cipher. */
bool seal_open_begin(struct seal *seal, struct str path, uint64_t plain_bytes, const void *head);
/* `stored`: the bytes of its span. Writes the plain ones; false: they are not what was encrypted there, and the target holds nothing of it. */
bool seal_open_segment(struct seal *seal, uint64_t segment_index, const void *stored, void *target);

#endif
