#include "sys/fetch_tls.h"

#define SUITES_12 "ECDHE+AESGCM:ECDHE+CHACHA20:!aNULL"

static void set_blob(CURL *easy, CURLoption option, struct str text)
{
	/* The context outlives the handle's work, so that nothing is copied here. */
	struct curl_blob blob = { .data = (void *)(uintptr_t)text.data, .len = text.size, .flags = CURL_BLOB_NOCOPY };

	if (text.size > 0)
		(void)curl_easy_setopt(easy, option, &blob);
}

void fetch_tls_set(CURL *easy, const struct tls_context *context, bool is_anonymous)
{
	(void)curl_easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
	(void)curl_easy_setopt(easy, CURLOPT_SSL_CIPHER_LIST, SUITES_12);
	(void)curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 1L);
	(void)curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 2L);
	if (!context)
		return;
	if (tls_context_ca(context).size > 0) {
		/* Whoever names an authority believes no other: the system's folder of them would count beside it. */
		(void)curl_easy_setopt(easy, CURLOPT_CAPATH, NULL);
		(void)curl_easy_setopt(easy, CURLOPT_CAINFO, NULL);
		set_blob(easy, CURLOPT_CAINFO_BLOB, tls_context_ca(context));
	}
	if (is_anonymous)
		return;
	set_blob(easy, CURLOPT_SSLCERT_BLOB, tls_context_certificate(context));
	set_blob(easy, CURLOPT_SSLKEY_BLOB, tls_context_key(context));
}

bool fetch_tls_is_refusal(CURLcode result, const char *reason)
{
	switch (result) {
	case CURLE_PEER_FAILED_VERIFICATION:
	case CURLE_SSL_CERTPROBLEM:
	case CURLE_SSL_CIPHER:
	case CURLE_SSL_CACERT_BADFILE:
	case CURLE_SSL_ISSUER_ERROR:
		return true;
	case CURLE_SSL_CONNECT_ERROR:
	case CURLE_RECV_ERROR:
	case CURLE_SEND_ERROR:
		/* With TLS 1.3 a client learns after its handshake that its certificate was refused. Lost connections say nothing of an alert. */
		return strstr(reason, "alert") != NULL;
	default:
		return false;
	}
}

void fetch_tls_hint(struct err *err, CURLcode result, const char *reason)
{
	if (strstr(reason, "wrong version number"))
		err_hint(err, "does the server speak TLS at all? without it its URL begins with http://");
	else if (strstr(reason, "alert"))
		err_hint(
			err,
			"the server refused the certificate that was shown (or showed none that it takes): is it of an "
			"authority that the server believes, and still good?");
	else if (strstr(reason, "does not match") || strstr(reason, "no alternative certificate"))
		err_hint(err, "call the server by a name or address that its certificate has (subjectAltName)");
	else if (strstr(reason, "expired"))
		err_hint(err, "the server's certificate has to be renewed; or is this machine's clock wrong?");
	else if (result == CURLE_PEER_FAILED_VERIFICATION)
		err_hint(err, "the server's certificate is not of an authority that is believed here: name it by --ca, "
			      "HENG_CA, "
			      "or tls_ca in a configuration");
	else if (result == CURLE_SSL_CONNECT_ERROR)
		err_hint(err, "is the server running, and does it speak TLS 1.2 or later?");
}
