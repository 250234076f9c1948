/* What scheduler and nodes do about TLS: the certificates of their configuration, and the watch over them. */
#ifndef HENG_FOLDER_SECURE_H
#define HENG_FOLDER_SECURE_H

#include "base/conf.h"
#include "sys/sock.h"
#include "sys/tls.h"

struct secure_conf {
	const char *certificate, *key, *ca, *client_ca; /* NULL or "": none */
};

/* The rows of a role's configuration whose struct has a secure_conf called `tls`. */
#define SECURE_ROWS(owner)                                                                                            \
	{ .name = "tls_certificate",                                                                                  \
	  .type = CONF_TEXT,                                                                                          \
	  .offset = offsetof(owner, tls.certificate),                                                                 \
	  .fallback = "",                                                                                             \
	  .help = "PEM file of its certificate and those that lead to the authority; empty: no TLS" },                \
		{ .name = "tls_key",                                                                                  \
		  .type = CONF_TEXT,                                                                                  \
		  .offset = offsetof(owner, tls.key),                                                                 \
		  .fallback = "",                                                                                     \
		  .help = "PEM file of the certificate's key, mode 0600" },                                           \
	{                                                                                                             \
		.name = "tls_ca", .type = CONF_TEXT, .offset = offsetof(owner, tls.ca), .fallback = "",               \
		.help = "PEM file of the cluster's authorities: scheduler and nodes prove by their certificates who " \
			"they are"                                                                                    \
	}
#define SECURE_CLIENT_ROW(owner)                                                                                      \
	{                                                                                                             \
		.name = "tls_client_ca", .type = CONF_TEXT, .offset = offsetof(owner, tls.client_ca), .fallback = "", \
		.help = "PEM file of authorities whose certificates users may show as well"                           \
	}

/* NULL when nothing is configured. Otherwise the caller frees it, after everything that uses it. */
int secure_open(const struct secure_conf *conf, struct tls **ret_tls, struct err *err);
/* Nobody else's machine is served in the clear, unless the configuration says that this is meant. `what` would be seen there. */
int secure_check_listen(const struct sock_addr *addr, const char *text, struct tls *tls, bool is_insecure,
			const char *what, struct err *err);

/* Does the own certificate name the role by which others of the cluster know it? node_id NULL: the scheduler's. Only where certificates are wanted. */
int secure_check_name(struct tls *tls, const char *node_id, struct err *err);

struct secure_watch {
	int64_t warned_wall_us; /* 0: not yet */
};
/* Now and then, by one thread: takes over files that have changed, and says so, or why not; says each day that a certificate expires within 30
 * days. is_forced: the files are read in any case. tls NULL: nothing. Returns what tls_reload returned. */
int secure_look(struct secure_watch *watch, struct tls *tls, bool is_forced);

#endif
