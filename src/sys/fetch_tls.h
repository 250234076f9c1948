/* TLS of outgoing calls. For src/sys/fetch.c alone. */
#ifndef HENG_SYS_FETCH_TLS_H
#define HENG_SYS_FETCH_TLS_H

#include <curl/curl.h>

#include "sys/fetch.h"

/* context: NULL: the system's authorities, no certificate. It must live as long as the handle works. */
void fetch_tls_set(CURL *easy, const struct tls_context *context, bool is_anonymous);
/* Did one of the two ends refuse the other, or can our own files not be used? The same again will end the same. */
bool fetch_tls_is_refusal(CURLcode result, const char *reason);
/* What to do about a handshake that failed. reason: libcurl's words. */
void fetch_tls_hint(struct err *err, CURLcode result, const char *reason);

#endif
