/* Cryptographic digests and MACs (OpenSSL 3). Algorithms are fetched once per process, as each implicit fetch costs more than
 * hashing a small message and does not scale over threads. SHA-256 is our own where the processor has instructions for it, since two of
 * those can share the work on the same bytes (sha256.h). */
#ifndef HENG_BASE_DIGEST_H
#define HENG_BASE_DIGEST_H

#include "base/str.h"

enum digest_kind { DIGEST_MD5, DIGEST_SHA256, DIGEST_SM3 };
#define DIGEST_NAMES "md5, sha256, sm3" /* all of them, for messages */

#define DIGEST_SIZE_MAX 32
#define DIGEST_HEX_SIZE (2 * DIGEST_SIZE_MAX + 1)

struct digest; /* a running computation; one thread at a time */

struct digest *digest_new(enum digest_kind kind); /* started; aborts when OpenSSL lacks the algorithm */
void digest_free(struct digest **digest);
void digest_restart(struct digest *digest);
void digest_feed(struct digest *digest, const void *data, size_t size);
/* The same bytes to two computations, for much less than twice the time when both are SHA-256 of our own: least when both have been fed the
 * same number of bytes modulo 64. */
void digest_feed_two(struct digest *a, struct digest *b, const void *data, size_t size);
/* Ends the computation; restart before feeding again. target holds DIGEST_HEX_SIZE. */
void digest_hex(struct digest *digest, char target[DIGEST_HEX_SIZE]);
/* The same as bytes; as many as digest_size says. */
void digest_bytes(struct digest *digest, uint8_t target[DIGEST_SIZE_MAX]);

size_t digest_size(enum digest_kind kind);        /* bytes: 16, 32, 32 */
const char *digest_name(enum digest_kind kind);   /* "md5", "sha256", "sm3" */
const char *digest_header(enum digest_kind kind); /* of a request that brings a chunk: "X-Chunk-MD5", ... */
/* False also for one that this OpenSSL was built without: whoever names it is refused before anything is computed. */
bool digest_from_name(struct str name, enum digest_kind *ret_kind);
/* Lower-case hex of the right length for this kind? SHA-256 and SM3 have one length: it does not tell the kind. */
bool digest_hex_is_valid(enum digest_kind kind, struct str hex);
void digest_of(enum digest_kind kind, const void *data, size_t size, char target[DIGEST_HEX_SIZE]);
/* From the next digest_new or digest_of on, all are OpenSSL's, as on a processor without the instructions: for tests and benchmarks. */
void digest_force_openssl(bool is_forced);

#define MAC_SIZE 32
/* HMAC (RFC 2104) with a digest of MAC_SIZE bytes: SHA-256 or SM3. */
void mac_of(enum digest_kind kind, const void *key, size_t key_size, const void *data, size_t size,
	    uint8_t target[MAC_SIZE]);
/* HKDF (RFC 5869) with the same; target_size is at most 255 * MAC_SIZE. */
void mac_hkdf(enum digest_kind kind, const void *key, size_t key_size, struct str salt, struct str info, void *target,
	      size_t target_size);
/* HMAC-SHA256. */
void mac_sha256(const void *key, size_t key_size, const void *data, size_t size, uint8_t target[MAC_SIZE]);
/* HKDF-SHA256, empty salt. */
void mac_derive(const void *key, size_t key_size, struct str info, uint8_t target[MAC_SIZE]);

#endif
