#include "base/digest.h"
#include "base/mem.h"
#include "base/sha256.h"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <pthread.h>
#include <stdatomic.h>

static const struct digest_row {
	const char *name;
	const char *openssl_name;
	const char *header;
	size_t size;
} ROWS[] = {
	[DIGEST_MD5] = { "md5", "MD5", "X-Chunk-MD5", 16 },
	[DIGEST_SHA256] = { "sha256", "SHA256", "X-Chunk-SHA256", 32 },
	[DIGEST_SM3] = { "sm3", "SM3", "X-Chunk-SM3", 32 },
};

/* Written once, under the pthread_once; read-only afterwards. They live as long as the process. */
static struct {
	EVP_MD *digests[COUNT_OF(ROWS)]; /* NULL: this OpenSSL lacks it */
	EVP_MAC_CTX *hmacs[COUNT_OF(
		ROWS)]; /* keyed ones, to be duplicated: a fresh one would look up its digest each time */
} fetched;
static pthread_once_t fetched_once = PTHREAD_ONCE_INIT;

static void fetch_all(void)
{
	static const unsigned char ANY_KEY[MAC_SIZE];
	EVP_MAC *mac = EVP_MAC_fetch(NULL, "HMAC", NULL);

	MUST(mac);
	for (size_t i = 0; i < COUNT_OF(ROWS); i++) {
		char name[8];
		OSSL_PARAM params[2];

		MUST(str_copy(str_from(ROWS[i].openssl_name), name, sizeof(name)));
		params[0] = OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, name, 0); /* measures it */
		params[1] = OSSL_PARAM_construct_end();
		fetched.digests[i] = EVP_MD_fetch(NULL, name, NULL);
		if (!fetched.digests[i] || ROWS[i].size != MAC_SIZE)
			continue;
		fetched.hmacs[i] = EVP_MAC_CTX_new(mac);
		/* Keyed with anything, as OpenSSL 3.0 does not duplicate one that never had a key. */
		MUST(fetched.hmacs[i] && EVP_MAC_init(fetched.hmacs[i], ANY_KEY, sizeof(ANY_KEY), params) == 1);
	}
	EVP_MAC_free(mac);
}

static bool is_available(enum digest_kind kind)
{
	MUST(pthread_once(&fetched_once, fetch_all) == 0);
	return fetched.digests[kind] != NULL;
}

static const EVP_MD *fetched_digest(enum digest_kind kind)
{
	MUST((size_t)kind < COUNT_OF(ROWS));
	MUST(is_available(kind));
	return fetched.digests[kind];
}

static atomic_bool is_openssl_forced;

void digest_force_openssl(bool is_forced) { atomic_store(&is_openssl_forced, is_forced); }

static bool is_own(enum digest_kind kind)
{
	return kind == DIGEST_SHA256 && sha256x2_is_available() && !atomic_load(&is_openssl_forced);
}

struct digest {
	enum digest_kind kind;
	EVP_MD_CTX *context; /* NULL: our own SHA-256 */
	struct sha256 sha256;
};

struct digest *digest_new(enum digest_kind kind)
{
	struct digest *digest = must_alloc(sizeof(*digest));

	digest->kind = kind;
	digest->context = NULL;
	if (!is_own(kind)) {
		digest->context = EVP_MD_CTX_new();
		MUST(digest->context);
	}
	digest_restart(digest);
	return digest;
}

void digest_free(struct digest **digest)
{
	if (!*digest)
		return;
	EVP_MD_CTX_free((*digest)->context);
	free(*digest);
	*digest = NULL;
}

void digest_restart(struct digest *digest)
{
	if (digest->context)
		MUST(EVP_DigestInit_ex2(digest->context, fetched_digest(digest->kind), NULL) == 1);
	else
		sha256_start(&digest->sha256);
}

void digest_feed(struct digest *digest, const void *data, size_t size)
{
	if (!digest->context)
		sha256_feed(&digest->sha256, data, size);
	else if (size > 0)
		MUST(EVP_DigestUpdate(digest->context, data, size) == 1);
}

void digest_feed_two(struct digest *a, struct digest *b, const void *data, size_t size)
{
	MUST(a != b);
	if (!a->context && !b->context) {
		sha256_feed_two(&a->sha256, &b->sha256, data, size);
		return;
	}
	digest_feed(a, data, size);
	digest_feed(b, data, size);
}

void digest_bytes(struct digest *digest, uint8_t target[DIGEST_SIZE_MAX])
{
	if (digest->context)
		MUST(EVP_DigestFinal_ex(digest->context, target, NULL) == 1);
	else
		sha256_end(&digest->sha256, target);
}

void digest_hex(struct digest *digest, char target[DIGEST_HEX_SIZE])
{
	uint8_t bytes[DIGEST_SIZE_MAX];

	digest_bytes(digest, bytes);
	hex_encode(bytes, digest_size(digest->kind), target);
}

size_t digest_size(enum digest_kind kind)
{
	MUST((size_t)kind < COUNT_OF(ROWS));
	return ROWS[kind].size;
}

const char *digest_name(enum digest_kind kind)
{
	MUST((size_t)kind < COUNT_OF(ROWS));
	return ROWS[kind].name;
}

const char *digest_header(enum digest_kind kind)
{
	MUST((size_t)kind < COUNT_OF(ROWS));
	return ROWS[kind].header;
}

bool digest_from_name(struct str name, enum digest_kind *ret_kind)
{
	for (size_t i = 0; i < COUNT_OF(ROWS); i++) {
		if (str_eq_c(name, ROWS[i].name) && is_available((enum digest_kind)i)) {
			*ret_kind = (enum digest_kind)i;
			return true;
		}
	}
	return false;
}

bool digest_hex_is_valid(enum digest_kind kind, struct str hex)
{
	if (hex.size != 2 * digest_size(kind))
		return false;
	for (size_t i = 0; i < hex.size; i++) {
		char c = hex.data[i];

		if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')))
			return false;
	}
	return true;
}

static void openssl_digest_of(enum digest_kind kind, const void *data, size_t size, uint8_t bytes[DIGEST_SIZE_MAX])
{
	unsigned got = 0;

	MUST(EVP_Digest(size > 0 ? data : "", size, bytes, &got, fetched_digest(kind), NULL) == 1);
	MUST(got == digest_size(kind));
}

void digest_of(enum digest_kind kind, const void *data, size_t size, char target[DIGEST_HEX_SIZE])
{
	uint8_t bytes[DIGEST_SIZE_MAX];
	struct sha256 sha256;

	if (is_own(kind)) {
		sha256_start(&sha256);
		sha256_feed(&sha256, data, size);
		sha256_end(&sha256, bytes);
	} else {
		openssl_digest_of(kind, data, size, bytes);
	}
	hex_encode(bytes, digest_size(kind), target);
}

/* The MAC of pieces, as if they stood behind each other. */
static void mac_pieces(enum digest_kind kind, const void *key, size_t key_size, const struct str *pieces,
		       size_t piece_count, uint8_t target[MAC_SIZE])
{
	EVP_MAC_CTX *context;
	size_t size = 0;

	MUST(is_available(kind));
	MUST(fetched.hmacs[kind]);
	context = EVP_MAC_CTX_dup(fetched.hmacs[kind]);
	MUST(context);
	/* No key at all would mean "the key from before" to OpenSSL. */
	MUST(EVP_MAC_init(context, key_size > 0 ? key : (const unsigned char *)"", key_size, NULL) == 1);
	for (size_t i = 0; i < piece_count; i++)
		if (pieces[i].size > 0)
			MUST(EVP_MAC_update(context, (const unsigned char *)pieces[i].data, pieces[i].size) == 1);
	MUST(EVP_MAC_final(context, target, &size, MAC_SIZE) == 1 && size == MAC_SIZE);
	EVP_MAC_CTX_free(context);
}

void mac_of(enum digest_kind kind, const void *key, size_t key_size, const void *data, size_t size,
	    uint8_t target[MAC_SIZE])
{
	mac_pieces(kind, key, key_size, &(struct str){ data, size }, 1, target);
}

void mac_sha256(const void *key, size_t key_size, const void *data, size_t size, uint8_t target[MAC_SIZE])
{
	mac_of(DIGEST_SHA256, key, key_size, data, size, target);
}

void mac_hkdf(enum digest_kind kind, const void *key, size_t key_size, struct str salt, struct str info, void *target,
	      size_t target_size)
{
	uint8_t extracted[MAC_SIZE], block[MAC_SIZE];

	MUST(target_size <= 255 * (size_t)MAC_SIZE);
	/* Extract: no salt is a salt of zeros, and so is an empty key to HMAC. */
	mac_of(kind, salt.data, salt.size, key, key_size, extracted);
	for (size_t at = 0; at < target_size; at += MAC_SIZE) {
		const uint8_t number = (uint8_t)(at / MAC_SIZE + 1);
		const struct str pieces[] = { { (const char *)block, at > 0 ? MAC_SIZE : 0 },
					      info,
					      { (const char *)&number, 1 } };

		mac_pieces(kind, extracted, sizeof(extracted), pieces, COUNT_OF(pieces), block);
		memcpy((uint8_t *)target + at, block, min_size(MAC_SIZE, target_size - at));
	}
	mem_wipe(extracted, sizeof(extracted));
	mem_wipe(block, sizeof(block));
}

void mac_derive(const void *key, size_t key_size, struct str info, uint8_t target[MAC_SIZE])
{
	mac_hkdf(DIGEST_SHA256, key, key_size, STR_NONE, info, target, MAC_SIZE);
}
