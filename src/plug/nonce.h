/* Memory of nonces already used: each is accepted once until it expires. One interface, a driver per kind (in-process now, Redis beside it). */
#ifndef HENG_PLUG_NONCE_H
#define HENG_PLUG_NONCE_H

#include "base/err.h"
#include "base/str.h"

struct nonce_store;
struct nonce_ops {
	const char *name;
	/* 0: first use, now remembered. -ERR_NONCE_REPLAYED: seen before. Other codes: cannot tell (the caller refuses: fail closed). Thread-safe. */
	int (*use)(struct nonce_store *store, struct str nonce, int64_t expires_wall_us, int64_t now_wall_us,
		   struct err *err);
	void (*free)(struct nonce_store *store);
};
struct nonce_store {
	const struct nonce_ops *ops;
};

/* In this process. At most limit_count live nonces (then -ERR_BUSY); expired ones are dropped as time passes. A nonce that has
 * expired already, by the latest time it was ever shown, is refused (-ERR_TICKET_EXPIRED), as is one of no or over 256 bytes (-ERR_BAD_REQUEST). */
struct nonce_store *nonce_mem_new(size_t limit_count);

#endif
