/* Who a peer has proved to be. Texts of certificates come from outside: they are bounded, and what could look like something else is left out. */
#include "sys/tls_inside.h"

#include <strings.h>

#define NAME_MAX_BYTES 255

static void digest_hex(const X509 *certificate, char target[65])
{
	unsigned char digest[EVP_MAX_MD_SIZE];
	unsigned size = 0;

	target[0] = '\0';
	if (X509_digest(certificate, EVP_sha256(), digest, &size) == 1 && size == 32)
		hex_encode(digest, size, target);
	else
		ERR_clear_error();
}

static bool name_is_plain(struct str name)
{
	if (name.size == 0 || name.size > NAME_MAX_BYTES)
		return false;
	for (size_t i = 0; i < name.size; i++) {
		if (name.data[i] <= ' ' || name.data[i] >= 0x7f)
			return false;
	}
	return true;
}

static const char *kind_of(int type)
{
	switch (type) {
	case GEN_DNS:
		return "dns";
	case GEN_URI:
		return "uri";
	case GEN_EMAIL:
		return "email";
	default:
		return NULL;
	}
}

/* Visits the names that count; their bytes go to `room`, which has been made large enough for `count` of them. NULL: they are counted only. */
static size_t collect(const GENERAL_NAMES *all, struct tls_peer *peer, char *room)
{
	size_t bytes = 0, count = 0;

	for (int i = 0; i < sk_GENERAL_NAME_num(all) && count < TLS_NAMES_MAX; i++) {
		int type;
		const ASN1_STRING *text = GENERAL_NAME_get0_value(sk_GENERAL_NAME_value(all, i), &type);
		const char *kind = kind_of(type);
		if (!kind)
			continue;
		struct str name = { (const char *)ASN1_STRING_get0_data(text), (size_t)ASN1_STRING_length(text) };
		if (!name_is_plain(name))
			continue;
		size_t size = strlen(kind) + 1 + name.size + 1;
		if (room) {
			snprintf(room + bytes, size, "%s:%.*s", kind, STR_ARG(name));
			peer->names[count] = room + bytes;
		}
		bytes += size;
		count++;
	}
	if (room)
		peer->name_count = count;
	return bytes;
}

static void subject_of(const X509 *certificate, char *target, size_t target_size)
{
	BIO *bio = BIO_new(BIO_s_mem());
	char *data = NULL;
	long size = 0;

	MUST(bio);
	if (X509_NAME_print_ex(bio, X509_get_subject_name(certificate), 0, XN_FLAG_RFC2253 & ~ASN1_STRFLGS_ESC_MSB) >=
	    0)
		size = BIO_get_mem_data(bio, &data);
	str_display((struct str){ data, size > 0 ? (size_t)size : 0 }, target, target_size);
	BIO_free(bio);
	ERR_clear_error();
}

static bool is_of(STACK_OF(X509) * chain, STACK_OF(X509) * authorities)
{
	for (int i = 0; i < sk_X509_num(chain); i++) {
		for (int j = 0; j < sk_X509_num(authorities); j++) {
			if (X509_cmp(sk_X509_value(chain, i), sk_X509_value(authorities, j)) == 0)
				return true;
		}
	}
	return false;
}

struct tls_peer *tls_peer_make(const X509 *certificate, bool is_cluster)
{
	GENERAL_NAMES *all = X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
	struct tls_peer *peer = must_zalloc(1, sizeof(*peer) + collect(all, NULL, NULL));

	collect(all, peer, (char *)(peer + 1));
	GENERAL_NAMES_free(all);
	subject_of(certificate, peer->subject, sizeof(peer->subject));
	digest_hex(certificate, peer->sha256);
	peer->is_cluster = is_cluster;
	ERR_clear_error();
	return peer;
}

struct tls_peer *tls_peer_of(SSL *ssl, const struct tls_context *context)
{
	const X509 *certificate = SSL_get0_peer_certificate(ssl);

	if (!certificate || SSL_get_verify_result(ssl) != X509_V_OK)
		return NULL;
	return tls_peer_make(certificate, is_of(SSL_get0_verified_chain(ssl), context->ca));
}

bool tls_peer_has_name(const struct tls_peer *peer, const char *kind, const char *name)
{
	size_t size = strlen(kind);

	for (size_t i = 0; i < peer->name_count; i++) {
		const char *have = peer->names[i];
		if (strncmp(have, kind, size) != 0 || have[size] != ':')
			continue;
		have += size + 1;
		if (strcmp(kind, "dns") == 0 ? strcasecmp(have, name) == 0 : strcmp(have, name) == 0)
			return true;
	}
	return false;
}
