#include "sys/tls_make.h"

#include <time.h>

#include "base/mem.h"
#include "sys/tls_inside.h"

static BIO *bio_of(struct str text)
{
	BIO *bio = BIO_new_mem_buf(text.data ? text.data : "", (int)min_size(text.size, MIB));

	MUST(bio);
	return bio;
}

static X509 *certificate_of(struct str pem)
{
	BIO *bio = bio_of(pem);
	X509 *certificate = PEM_read_bio_X509(bio, NULL, NULL, NULL);

	BIO_free(bio);
	ERR_clear_error();
	return certificate;
}

static EVP_PKEY *key_of(struct str pem)
{
	BIO *bio = bio_of(pem);
	EVP_PKEY *key = PEM_read_bio_PrivateKey(bio, NULL, NULL, (char[]){ "" });

	BIO_free(bio);
	ERR_clear_error();
	return key;
}

int64_t tls_pem_expiry_wall_us(struct str pem)
{
	X509 *certificate = certificate_of(pem);
	struct tm parts;
	int64_t end_us = 0;

	if (certificate && ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &parts) == 1)
		end_us = (int64_t)timegm(&parts) * SEC_US;
	X509_free(certificate);
	return end_us;
}

static bool add_extension(X509 *certificate, X509V3_CTX *context, int kind, const char *value)
{
	X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, context, kind, value);
	bool is_good = extension && X509_add_ext(certificate, extension, -1) == 1;

	X509_EXTENSION_free(extension);
	return is_good;
}

/* "dns:a" as OpenSSL's own configuration language has it: "DNS:a". */
static bool add_names(X509 *certificate, X509V3_CTX *context, const char *const *names)
{
	AUTO(buf_fini) struct buf text = BUF_INIT(64 * KIB);

	for (size_t i = 0; names && names[i]; i++) {
		const char *colon = strchr(names[i], ':');
		MUST(colon);
		for (const char *c = names[i]; c < colon; c++)
			buf_printf(&text, "%c", *c >= 'a' && *c <= 'z' ? *c - 'a' + 'A' : *c);
		buf_printf(&text, "%s%s", colon, names[i + 1] ? "," : "");
	}
	return text.size == 0 || add_extension(certificate, context, NID_subject_alt_name, buf_cstr(&text));
}

static bool set_serial(X509 *certificate)
{
	BIGNUM *number = BN_new();
	bool is_good = number && BN_rand(number, 126, BN_RAND_TOP_ONE, BN_RAND_BOTTOM_ANY) == 1 &&
		       BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate));

	BN_free(number);
	return is_good;
}

static bool fill(X509 *certificate, const struct tls_make *facts, EVP_PKEY *key, X509 *issuer)
{
	X509_NAME *name = X509_get_subject_name(certificate);
	bool is_authority = issuer == certificate;
	X509V3_CTX context;

	X509V3_set_ctx_nodb(&context);
	X509V3_set_ctx(&context, issuer, certificate, NULL, NULL, 0);
	return X509_set_version(certificate, 2) == 1 && set_serial(certificate) &&
	       ASN1_TIME_set(X509_getm_notBefore(certificate), (time_t)(facts->begin_wall_us / SEC_US)) &&
	       ASN1_TIME_set(X509_getm_notAfter(certificate), (time_t)(facts->end_wall_us / SEC_US)) &&
	       X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8, (const unsigned char *)facts->common_name, -1, -1,
					  0) == 1 &&
	       X509_set_issuer_name(certificate, X509_get_subject_name(issuer)) == 1 &&
	       X509_set_pubkey(certificate, key) == 1 &&
	       add_extension(certificate, &context, NID_basic_constraints,
			     is_authority ? "critical,CA:TRUE,pathlen:0" : "critical,CA:FALSE") &&
	       add_extension(certificate, &context, NID_key_usage,
			     is_authority ? "critical,keyCertSign,cRLSign" : "critical,digitalSignature") &&
	       (is_authority || add_extension(certificate, &context, NID_ext_key_usage, "serverAuth,clientAuth")) &&
	       add_extension(certificate, &context, NID_subject_key_identifier, "hash") &&
	       add_extension(certificate, &context, NID_authority_key_identifier, "keyid:always") &&
	       add_names(certificate, &context, facts->names);
}

static bool take_text(BIO *bio, struct buf *ret_text)
{
	char *data = NULL;
	long size = BIO_get_mem_data(bio, &data);
	bool is_good = size > 0 && buf_append(ret_text, (struct str){ data, (size_t)size });

	if (size > 0)
		mem_wipe(data, (size_t)size);
	return is_good;
}

int tls_make(const struct tls_make *facts, struct buf *ret_certificate, struct buf *ret_key, struct err *err)
{
	bool is_authority = facts->ca_certificate.size == 0;
	X509 *certificate = X509_new(), *issuer = is_authority ? NULL : certificate_of(facts->ca_certificate);
	EVP_PKEY *key = EVP_EC_gen("P-256"), *signer = is_authority ? NULL : key_of(facts->ca_key);
	BIO *certificate_text = BIO_new(BIO_s_mem()), *key_text = BIO_new(BIO_s_mem());
	int r = 0;

	MUST(certificate && certificate_text && key_text);
	if (!key || (!is_authority && (!issuer || !signer)))
		r = tls_err(err, ERR_CONFIG, "the authority's certificate or key is none, making one for",
			    facts->common_name);
	else if (!fill(certificate, facts, key, issuer ? issuer : certificate) ||
		 X509_sign(certificate, signer ? signer : key, EVP_sha256()) <= 0)
		r = tls_err(err, ERR_SYSTEM, "cannot make a certificate for", facts->common_name);
	else if (PEM_write_bio_X509(certificate_text, certificate) != 1 ||
		 PEM_write_bio_PrivateKey(key_text, key, NULL, NULL, 0, NULL, NULL) != 1 ||
		 !take_text(certificate_text, ret_certificate) || !take_text(key_text, ret_key))
		r = tls_err(err, ERR_SYSTEM, "cannot write a certificate for", facts->common_name);
	BIO_free(certificate_text);
	BIO_free(key_text);
	EVP_PKEY_free(key);
	EVP_PKEY_free(signer);
	X509_free(certificate);
	X509_free(issuer);
	ERR_clear_error();
	return r;
}
