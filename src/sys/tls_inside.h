/* What the sources of TLS share. For src/sys/tls*.c alone. */
#ifndef HENG_SYS_TLS_INSIDE_H
#define HENG_SYS_TLS_INSIDE_H

/* OpenSSL has a type by the name of one of our errors. */
#define ERR_STATE OPENSSL_ERR_STATE
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#undef ERR_STATE

#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

#include "sys/tls.h"

#define TLS_TICKET_KEYS 2 /* the one in use, and the one before it */

struct tls_ticket_key {
	uint8_t name[16], cipher[32], mac[32];
	int64_t made_us; /* 0: none */
};

struct tls_context {
	atomic_uint holder_count;
	SSL_CTX *server; /* NULL: no certificate */
	STACK_OF(X509) * ca;
	struct buf certificate_text, key_text, ca_text;
	int64_t expiry_wall_us;
	pthread_mutex_t ticket_lock; /* protects tickets */
	struct tls_ticket_key tickets[TLS_TICKET_KEYS];
};

/* Adds OpenSSL's own reason to an error, and empties its queue. Returns the negative code. */
int tls_err(struct err *err, enum err_code code, const char *what, const char *path);
/* tls_server.c: the server's side of a context whose files have been read. */
int tls_server_make(struct tls_context *context, EVP_PKEY *key, STACK_OF(X509) * chain, STACK_OF(X509) * client_ca,
		    struct err *err);
/* tls_peer.c: of a certificate alone. */
struct tls_peer *tls_peer_make(const X509 *certificate, bool is_cluster);
/* tls_peer.c: NULL when no certificate was shown. The caller frees it, by free. */
struct tls_peer *tls_peer_of(SSL *ssl, const struct tls_context *context);

#endif
