/* TLS of OpenSSL: what a process is known by (a certificate and its key) and whom it believes (certificates of authorities), read from files
 * that may be replaced while it runs. Thread-safe: connections hold what was there when they began. The byte stream itself is tls_stream.h. */
#ifndef HENG_SYS_TLS_H
#define HENG_SYS_TLS_H

#include "base/buf.h"
#include "base/err.h"

struct tls;
struct tls_context; /* what the files held at one moment */

/* Paths of PEM files, each NULL or "" where there is none. certificate and key come together, and make a server possible. */
struct tls_files {
	const char *certificate; /* the own one first, then those that lead to the authority */
	const char *key;         /* nobody but its owner may have access to it */
	const char
		*ca; /* who is believed: servers that are called; and peers with certificates of it are the cluster's */
	const char *client_ca; /* whose certificates callers may show as well */
};

/* Reads and checks the files; what is wrong is said with the file's name: absent, not PEM, expired, a key that does not fit or that others can read
 * (-ERR_CONFIG). */
int tls_new(const struct tls_files *files, struct tls **ret_tls, struct err *err);
/* What holds a context may go on. */
void tls_free(struct tls **tls);
/* Looks whether a file is another one than at the last look, or reads them in any case when is_forced. 1: what they hold is taken for new connections.
 * 0: nothing is new. Negative: it is wrong, is said once, and what was there stays. */
int tls_reload(struct tls *tls, bool is_forced, struct err *err);
/* When the own certificate, or one that leads to its authority, expires: microseconds since 1970. INT64_MAX without one. */
int64_t tls_expiry_wall_us(struct tls *tls);
bool tls_is_server(struct tls *tls); /* has it a certificate? */
bool tls_has_ca(struct tls *tls);    /* can peers be proved to be of the cluster? */

struct tls_context *tls_take(struct tls *tls);
struct tls_context *tls_context_ref(struct tls_context *context);
void tls_context_drop(struct tls_context **context);
/* The files' texts, for libraries that make their own connections (libcurl); empty where there was none. They live as long as the context. */
struct str tls_context_certificate(const struct tls_context *context);
struct str tls_context_key(const struct tls_context *context);
struct str tls_context_ca(const struct tls_context *context);

/* --- who a peer has proved to be --- */
#define TLS_NAMES_MAX 64
struct tls_peer {
	char subject[256]; /* RFC 2253, cut where longer: for logs. "CN=shanghai,O=Bank" */
	char sha256[65];   /* of the certificate, lower-case hex */
	/* Its subject alternative names: "dns:...", "uri:...", "email:...". Visible ASCII only; others are left out. */
	const char *names[TLS_NAMES_MAX];
	size_t name_count;
	bool is_cluster; /* its chain ends at an authority of `ca`, not only of `client_ca` */
};
/* Who we say that we are: the own certificate, which nobody has checked (is_cluster is true). NULL without one. The caller frees it, by free. */
struct tls_peer *tls_own(struct tls *tls);
/* A name of that kind ("uri"), byte for byte; "dns" without regard to case. */
bool tls_peer_has_name(const struct tls_peer *peer, const char *kind, const char *name);

#endif
