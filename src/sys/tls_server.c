/* The server's side: which protocols and suites, who is asked for a certificate, and tickets for resuming. */
#include "sys/tls_inside.h"

#include <openssl/core_names.h>
#include <openssl/params.h>

#include "base/clock.h"
#include "base/rng.h"

#define SUITES_12 "ECDHE+AESGCM:ECDHE+CHACHA20:!aNULL"
#define SUITES_13 "TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256:TLS_AES_128_GCM_SHA256"
#define GROUPS    "X25519:P-256:P-384"
/* A ticket is good for an hour at least and two at most. */
#define TICKET_KEY_US (3600 * SEC_US)
#define TICKET_SEC    3600L

static int context_index = -1;
static void make_index(void) { context_index = SSL_CTX_get_ex_new_index(0, NULL, NULL, NULL, NULL); }

/* --- tickets --- */

static struct tls_ticket_key *find_key(struct tls_context *context, const unsigned char name[16])
{
	for (size_t i = 0; i < TLS_TICKET_KEYS; i++) {
		struct tls_ticket_key *key = &context->tickets[i];
		if (key->made_us != 0 && memcmp(key->name, name, sizeof(key->name)) == 0)
			return key;
	}
	return NULL;
}

static void rotate(struct tls_context *context)
{
	int64_t now_us = clock_mono_us();
	struct tls_ticket_key *newest = &context->tickets[0], *former = &context->tickets[1];

	if (former->made_us != 0 && now_us - former->made_us >= 2 * TICKET_KEY_US)
		*former = (struct tls_ticket_key){ .made_us = 0 };
	if (newest->made_us != 0 && now_us - newest->made_us < TICKET_KEY_US)
		return;
	*former = *newest;
	if (former->made_us != 0 && now_us - former->made_us >= 2 * TICKET_KEY_US)
		*former = (struct tls_ticket_key){ .made_us = 0 };
	rng_secret(newest->name, sizeof(newest->name));
	rng_secret(newest->cipher, sizeof(newest->cipher));
	rng_secret(newest->mac, sizeof(newest->mac));
	newest->made_us = now_us;
}

static int use_key(struct tls_ticket_key *key, unsigned char *iv, EVP_CIPHER_CTX *cipher, EVP_MAC_CTX *mac,
		   int is_encrypting)
{
	OSSL_PARAM params[] = {
		OSSL_PARAM_construct_octet_string(OSSL_MAC_PARAM_KEY, key->mac, sizeof(key->mac)),
		OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, (char[]){ "SHA256" }, 0),
		OSSL_PARAM_construct_end(),
	};

	return EVP_CipherInit_ex(cipher, EVP_aes_256_cbc(), NULL, key->cipher, iv, is_encrypting) == 1 &&
	       EVP_MAC_CTX_set_params(mac, params) == 1;
}

/* OpenSSL's: 1 good, 2 good and a fresh one is due, 0 none, -1 a fault. */
static int on_ticket(SSL *ssl, unsigned char name[16], unsigned char iv[EVP_MAX_IV_LENGTH], EVP_CIPHER_CTX *cipher,
		     EVP_MAC_CTX *mac, int is_encrypting)
{
	struct tls_context *context = SSL_CTX_get_ex_data(SSL_get_SSL_CTX(ssl), context_index);
	struct tls_ticket_key key = { .made_us = 0 };
	bool is_newest = true;

	/* Who shows a certificate proves it anew with each connection: a ticket would outlive its revocation. */
	if (is_encrypting && SSL_get0_peer_certificate(ssl))
		return 0;
	pthread_mutex_lock(&context->ticket_lock);
	rotate(context);
	if (is_encrypting) {
		key = context->tickets[0];
		memcpy(name, key.name, sizeof(key.name));
	} else {
		const struct tls_ticket_key *found = find_key(context, name);
		if (found)
			key = *found;
		is_newest = found == &context->tickets[0];
	}
	pthread_mutex_unlock(&context->ticket_lock);
	if (key.made_us == 0)
		return 0;
	if (is_encrypting)
		rng_secret(iv, 16);
	int result = !use_key(&key, iv, cipher, mac, is_encrypting) ? -1 : is_newest || is_encrypting ? 1 : 2;
	OPENSSL_cleanse(&key, sizeof(key));
	return result;
}

/* --- who calls --- */

static int on_verify(int is_good, X509_STORE_CTX *store)
{
	SSL *ssl = X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx());

	/* See on_ticket: with TLS 1.3 none is made at all. */
	if (ssl)
		(void)SSL_set_num_tickets(ssl, 0);
	return is_good;
}

static void believe(SSL_CTX *server, STACK_OF(X509) * list)
{
	X509_STORE *store = SSL_CTX_get_cert_store(server);

	for (int i = 0; i < sk_X509_num(list); i++) {
		MUST(X509_STORE_add_cert(store, sk_X509_value(list, i)) == 1);
		MUST(SSL_CTX_add_client_CA(server, sk_X509_value(list, i)) == 1);
	}
}

/* --- which application --- */

static int on_alpn(SSL *ssl UNUSED, const unsigned char **ret_name, unsigned char *ret_size,
		   const unsigned char *offered, unsigned offered_size, void *owner UNUSED)
{
	static const unsigned char known[] = "\x08http/1.1";
	unsigned char *chosen = NULL;

	if (SSL_select_next_proto(&chosen, ret_size, known, sizeof(known) - 1, offered, offered_size) !=
	    OPENSSL_NPN_NEGOTIATED)
		return SSL_TLSEXT_ERR_ALERT_FATAL;
	*ret_name = chosen;
	return SSL_TLSEXT_ERR_OK;
}

int tls_server_make(struct tls_context *context, EVP_PKEY *key, STACK_OF(X509) * chain, STACK_OF(X509) * client_ca,
		    struct err *err)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	SSL_CTX *server = SSL_CTX_new(TLS_server_method());

	MUST(pthread_once(&once, make_index) == 0);
	if (!server)
		return tls_err(err, ERR_NO_MEMORY, "cannot make a context for", "TLS");
	context->server = server;
	MUST(SSL_CTX_set_ex_data(server, context_index, context) == 1);
	SSL_CTX_set_security_level(server, 2);
	(void)SSL_CTX_set_min_proto_version(server, TLS1_2_VERSION);
	(void)SSL_CTX_set_options(server,
				  SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE);
	/* Idle connections hold no record buffers; a send may be repeated from elsewhere. */
	(void)SSL_CTX_set_mode(server, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
					       SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	(void)SSL_CTX_set_session_cache_mode(server, SSL_SESS_CACHE_OFF);
	(void)SSL_CTX_set_session_id_context(server, (const unsigned char *)"heng", 4);
	(void)SSL_CTX_set_timeout(server, TICKET_SEC);
	(void)SSL_CTX_set_num_tickets(server, 1);
	(void)SSL_CTX_set_tlsext_ticket_key_evp_cb(server, on_ticket);
	SSL_CTX_set_alpn_select_cb(server, on_alpn, NULL);
	if (SSL_CTX_set_cipher_list(server, SUITES_12) != 1 || SSL_CTX_set_ciphersuites(server, SUITES_13) != 1 ||
	    SSL_CTX_set1_groups_list(server, GROUPS) != 1)
		return tls_err(err, ERR_SYSTEM, "OpenSSL does not have the suites of", "heng");
	/* Refused here: keys and signatures that are too weak. */
	if (SSL_CTX_use_certificate(server, sk_X509_value(chain, 0)) != 1 || SSL_CTX_use_PrivateKey(server, key) != 1)
		return tls_err(err, ERR_CONFIG, "OpenSSL does not serve with the", "certificate");
	for (int i = 1; i < sk_X509_num(chain); i++) {
		if (SSL_CTX_add1_chain_cert(server, sk_X509_value(chain, i)) != 1)
			return tls_err(err, ERR_CONFIG, "OpenSSL does not take a further", "certificate");
	}
	if (context->ca || client_ca) {
		believe(server, context->ca);
		believe(server, client_ca);
		SSL_CTX_set_verify(server, SSL_VERIFY_PEER, on_verify);
	}
	return 0;
}
