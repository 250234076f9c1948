/* Tickets: what a client shows a node with each chunk. A ticket covers one object (its chunk range) of one transfer and is MAC'd with a
 * key of the cluster; each request is signed with a key derived for that transfer, so that a ticket seen on the wire is worth nothing.
 *   X-Auth-Token: <ticket>.<expiry>.<nonce>.<signature>
 * No clock and no state here: time is an argument, nonces are remembered by the caller. */
#ifndef HENG_WIRE_TICKET_H
#define HENG_WIRE_TICKET_H

#include "base/digest.h"
#include "base/err.h"
#include "base/rng.h"

#define TICKET_KEY_SIZE   32
#define TICKET_TEXT_SIZE  512 /* with NUL */
#define TICKET_TOKEN_SIZE 768
#define TICKET_USER_SIZE  65
#define TICKET_NONCE_SIZE 33 /* 32 hex digits and a NUL */
/* A signature may not live longer than this from now: so long must its nonce be remembered. */
#define TICKET_SIGNATURE_LIFE_MAX_US (900 * SEC_US)

/* The cluster keys, newest first: the first signs, all verify (rotation). */
struct ticket_keys {
	size_t count;
	struct {
		uint32_t id;
		uint8_t key[TICKET_KEY_SIZE];
	} keys[4];
};

struct ticket {
	char transfer_id[ULID_SIZE];
	char user[TICKET_USER_SIZE];
	uint64_t file_id;
	uint64_t object_bytes;
	uint64_t chunk_bytes; /* the cut; chunk count = max(1, ceil(object/chunk)) */
	enum digest_kind digest;
	int64_t expires_wall_us;
	uint32_t key_id; /* set by issue and open */
};

uint64_t ticket_chunk_count(const struct ticket *ticket);
uint64_t ticket_chunk_size(const struct ticket *ticket, uint64_t chunk_index); /* the exact bytes of that chunk */

/* base64url of the fields and their HMAC-SHA256. */
int ticket_issue(const struct ticket_keys *keys, const struct ticket *ticket, char target[TICKET_TEXT_SIZE],
		 struct err *err);
/* Verifies the MAC in constant time, then parses; ERR_TICKET_BAD. Expiry is checked by ticket_check. */
int ticket_open(const struct ticket_keys *keys, struct str text, struct ticket *ret_ticket, struct err *err);
/* The signing key of a transfer: HKDF-SHA256 of the cluster key. The scheduler gives it to the client as hex; nodes derive it. */
void ticket_transfer_key(const uint8_t cluster_key[TICKET_KEY_SIZE], const char *transfer_id,
			 uint8_t target[TICKET_KEY_SIZE]);

/* What one chunk request claims. */
struct ticket_request {
	const char *transfer_id;
	uint64_t file_id, chunk_index, size_bytes;
	struct str digest_hex;
};

/* Client: signs `transferId fileId chunkIndex expiry nonce digest size` (spaces between, decimal, expiry in wall seconds). A fresh nonce is
 * made for each call. */
int ticket_sign(struct str ticket_text, const uint8_t transfer_key[TICKET_KEY_SIZE],
		const struct ticket_request *request, int64_t expires_wall_us, char target[TICKET_TOKEN_SIZE],
		struct err *err);
/* Node: all checks but the nonce's memory: MAC, signature, both expiries against now (tolerance skew_us), transfer and file as claimed, chunk
 * index in range (ERR_NO_CHUNK), size exact (ERR_CHUNK_SIZE), digest of the ticket's kind. Fills the opened ticket, the nonce and until when
 * it must be remembered. */
int ticket_check(const struct ticket_keys *keys, struct str token, const struct ticket_request *request,
		 int64_t now_wall_us, int64_t skew_us, struct ticket *ret_ticket, char ret_nonce[TICKET_NONCE_SIZE],
		 int64_t *ret_nonce_expires_wall_us, struct err *err);

/* Reads "hex-key" lines "<id> <64 hex>" (newest first; # comments) of a cluster key file's text. */
int ticket_keys_parse(struct str text, struct ticket_keys *ret_keys, struct err *err);

#endif
