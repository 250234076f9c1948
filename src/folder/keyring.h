/* The cluster's keys of a process: read from the cluster key file at its start, and again when it is told to, while calls go on. Tickets and calls are
 * checked with all of them; the first signs. A file that cannot be used leaves the keys as they are. */
#ifndef HENG_FOLDER_KEYRING_H
#define HENG_FOLDER_KEYRING_H

#include <pthread.h>
#include <stdatomic.h>

#include "sys/fetch.h"
#include "wire/ticket.h"

#define KEYRING_KEYS_MAX    COUNT_OF(((struct ticket_keys *)0)->keys)
#define KEYRING_HEX_SIZE    (2 * TICKET_KEY_SIZE + 1)
#define KEYRING_HEADER_SIZE (sizeof("X-Internal-Key: ") + 2 * TICKET_KEY_SIZE)

/* What calls between scheduler and nodes show. Those who make calls keep a pointer to it and ask at each call. */
struct internal_key {
	_Atomic(const char *) header; /* "X-Internal-Key: <hex>" */
	struct tls *tls;              /* its certificate is shown too; NULL: none. Set before anybody calls */
};
/* Any thread. The text lives as long as the keyring, also when the key is another one meanwhile. */
static inline const char *internal_key_header(const struct internal_key *key) { return atomic_load(&key->header); }

/* For calls to other members of the cluster. */
int internal_fetch_new(const struct internal_key *key, struct fetch **ret_fetch, struct err *err);

struct keyring_header; /* a text that calls may still use */
struct keyring {
	struct internal_key internal;
	pthread_rwlock_t lock; /* protects the rest */
	struct ticket_keys keys;
	char internal_hex[KEYRING_KEYS_MAX][KEYRING_HEX_SIZE]; /* of each key */
	struct keyring_header *headers;
};

void keyring_init(struct keyring *keyring); /* without keys; memory of the caller's, which may not move */
void keyring_fini(struct keyring *keyring); /* wipes; nobody may use it or its header any more */
/* Any thread. */
int keyring_load(struct keyring *keyring, const char *path, struct err *err);
/* A copy, to be wiped. */
void keyring_get(const struct keyring *keyring, struct ticket_keys *ret_keys);
/* Is it the key that a scheduler or node of this cluster shows? Constant time. */
bool keyring_is_internal(const struct keyring *keyring, struct str shown);
/* "2, 1": the keys' ids for a log, the signer's first. */
void keyring_ids(const struct keyring *keyring, char *target, size_t target_size);

#endif
