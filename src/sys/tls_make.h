/* Makes keys and certificates: for heng up, which is its own authority. Real sites have an authority already (docs/security.md). */
#ifndef HENG_SYS_TLS_MAKE_H
#define HENG_SYS_TLS_MAKE_H

#include "base/buf.h"
#include "base/err.h"

struct tls_make {
	const char *common_name;
	const char *const *names; /* "dns:...", "ip:...", "uri:..."; NULL ends; NULL: none */
	int64_t begin_wall_us, end_wall_us;
	struct str ca_certificate, ca_key; /* PEM of who signs; STR_NONE: it signs itself, and is an authority */
};
/* A new ECDSA key on P-256 and a certificate for it, for servers and clients alike; both in PEM, appended. */
int tls_make(const struct tls_make *facts, struct buf *ret_certificate, struct buf *ret_key, struct err *err);
/* When the first certificate of a PEM text expires, microseconds since 1970; 0: there is none. */
int64_t tls_pem_expiry_wall_us(struct str pem);

#endif
