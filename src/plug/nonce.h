/* Memory of nonces already used: each is accepted once until it expires. One interface, a driver per kind. */
#ifndef HENG_PLUG_NONCE_H
#define HENG_PLUG_NONCE_H

#include "base/err.h"
#include "base/str.h"

struct nonce_store;
struct nonce_ops {
	const char *name;
	/* 0: first use, now remembered. -ERR_NONCE_REPLAYED: seen before. Other codes: cannot tell (the caller refuses: fail closed). Thread-safe; may block. */
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

/* The same, and each is written into a file (and `path`.1) before it is accepted, so that a process that was killed knows them again. The file is
 * not synced for each: what a machine's crash may have taken is made good by refusing (-ERR_CLOCK_SKEW) all that expire until a while after the newest
 * one found, and by syncing those that would expire later still. -ERR_DISK: it could not be written. */
int nonce_file_open(const char *path, size_t limit_count, int64_t now_wall_us, struct nonce_store **ret_store,
		    struct err *err);

struct nonce_redis_options {
	const char *url;           /* redis://host:port/db */
	const char *user;          /* "": none, as before Redis 6 */
	const char *password_file; /* "": none */
	int64_t timeout_us;        /* of each step; 0: 1 s */
};
/* In a Redis that all nodes share: SET key NX PX. -ERR_NONCES while it cannot be asked, at once when it could not be a moment ago. Nothing is
 * connected yet. */
int nonce_redis_new(const struct nonce_redis_options *options, struct nonce_store **ret_store, struct err *err);

#endif
