#include "wire/seal.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <pthread.h>

#include "base/digest.h"
#include "base/mem.h"
#include "wire/seal_impl.h"

#define SALT_SIZE   32
#define PREFIX_SIZE 7
#define NONCE_SIZE  12
#define BLOCK_SIZE  16
/* Of a segment's plain bytes, kept until its file is done: 16 bytes for each MiB. */
#define CONTENT_SIZE 16
/* With these, the keys of a file's content and salt are no other's. */
#define CONTENT_INFO "heng seal content 1"
#define PREFIX_INFO  "prefix"

struct seal {
	enum seal_cipher cipher;
	const uint8_t *key; /* borrowed */
	EVP_CIPHER_CTX *segments, *contents;
	uint8_t mac_key[MAC_SIZE]; /* SM4's */
	uint8_t header[SEAL_HEADER_MAX];
	uint64_t plain_bytes, segment_count;
	/* The content that is encrypted. */
	uint8_t content_keys[2][MAC_SIZE]; /* of the segments' MACs, and of the salt */
	uint8_t (*content)[CONTENT_SIZE];
	size_t content_count, content_capacity;
	char *path; /* its own copy, until the header is made */
	size_t path_size;
};

/* Written once, under the pthread_once; as long as the process lives. NULL: this OpenSSL lacks it. */
static struct {
	EVP_CIPHER *gcm, *ctr;
} fetched;
static pthread_once_t fetched_once = PTHREAD_ONCE_INIT;

static void fetch_ciphers(void)
{
	fetched.gcm = EVP_CIPHER_fetch(NULL, "AES-256-GCM", NULL);
	fetched.ctr = EVP_CIPHER_fetch(NULL, "SM4-CTR", NULL);
}

static const EVP_CIPHER *cipher_of(enum seal_cipher cipher)
{
	MUST(pthread_once(&fetched_once, fetch_ciphers) == 0);
	return cipher == SEAL_AES ? fetched.gcm : fetched.ctr;
}

bool seal_cipher_is_here(enum seal_cipher cipher)
{
	enum digest_kind kind;

	return cipher_of(cipher) != NULL && (cipher != SEAL_SM4 || digest_from_name(STR("sm3"), &kind));
}

static enum digest_kind digest_kind(enum seal_cipher cipher) { return cipher == SEAL_AES ? DIGEST_SHA256 : DIGEST_SM3; }

struct seal *seal_new(enum seal_cipher cipher, const uint8_t key[SEAL_KEY_SIZE])
{
	struct seal *seal = must_zalloc(1, sizeof(*seal));

	MUST(seal_cipher_is_here(cipher));
	seal->cipher = cipher;
	seal->key = key;
	seal->segments = EVP_CIPHER_CTX_new();
	seal->contents = EVP_CIPHER_CTX_new();
	MUST(seal->segments && seal->contents);
	return seal;
}

void seal_free(struct seal **seal)
{
	if (!*seal)
		return;
	/* OpenSSL wipes the keys in its contexts. */
	EVP_CIPHER_CTX_free((*seal)->segments);
	EVP_CIPHER_CTX_free((*seal)->contents);
	free((*seal)->content);
	free((*seal)->path);
	mem_wipe(*seal, sizeof(**seal));
	free(*seal);
	*seal = NULL;
}

enum seal_cipher seal_cipher_of(const struct seal *seal) { return seal->cipher; }

/* --- the content --- */

/* AES: GMAC, whose tags never leave this process, so that a nonce may come twice. */
static void content_mac(struct seal *seal, uint64_t segment_index, const void *plain, size_t size,
			uint8_t target[CONTENT_SIZE])
{
	uint8_t number[8], nonce[NONCE_SIZE] = { 0 }, mac[MAC_SIZE];
	int done;

	for (unsigned i = 0; i < sizeof(number); i++)
		number[i] = (uint8_t)(segment_index >> (56 - 8 * i));
	if (seal->cipher == SEAL_SM4) {
		uint8_t key[MAC_SIZE];

		mac_of(DIGEST_SM3, seal->content_keys[0], MAC_SIZE, number, sizeof(number), key);
		mac_of(DIGEST_SM3, key, sizeof(key), plain, size, mac);
		memcpy(target, mac, CONTENT_SIZE);
		mem_wipe(key, sizeof(key));
		return;
	}
	memcpy(nonce + NONCE_SIZE - sizeof(number), number, sizeof(number));
	MUST(EVP_EncryptInit_ex2(seal->contents, NULL, NULL, nonce, NULL) == 1);
	MUST(size == 0 || EVP_EncryptUpdate(seal->contents, NULL, &done, plain, (int)size) == 1);
	MUST(EVP_EncryptFinal_ex(seal->contents, mac, &done) == 1);
	MUST(EVP_CIPHER_CTX_ctrl(seal->contents, EVP_CTRL_AEAD_GET_TAG, CONTENT_SIZE, target) == 1);
}

void seal_content_begin(struct seal *seal, const char *transfer_id, struct str path, uint64_t plain_bytes)
{
	/* Transfer ids have one length and no NUL: what follows the first NUL is the path. */
	const size_t id_size = strlen(transfer_id), info_size = sizeof(CONTENT_INFO) + id_size + 1 + path.size;
	char *info = must_alloc(info_size);

	memcpy(info, CONTENT_INFO, sizeof(CONTENT_INFO));
	memcpy(info + sizeof(CONTENT_INFO), transfer_id, id_size + 1);
	memcpy(info + sizeof(CONTENT_INFO) + id_size + 1, path.data, path.size);
	mac_hkdf(digest_kind(seal->cipher), seal->key, SEAL_KEY_SIZE, STR_NONE, (struct str){ info, info_size },
		 seal->content_keys, sizeof(seal->content_keys));
	free(info);
	if (seal->cipher == SEAL_AES)
		MUST(EVP_EncryptInit_ex2(seal->contents, cipher_of(SEAL_AES), seal->content_keys[0], NULL, NULL) == 1);
	seal->plain_bytes = plain_bytes;
	seal->segment_count = seal_segment_count(seal->cipher, plain_bytes);
	seal->content_count = 0;
	free(seal->path);
	seal->path = must_alloc(path.size + 1);
	seal->path_size = path.size;
	memcpy(seal->path, path.data, path.size);
}

void seal_content_add(struct seal *seal, const void *plain)
{
	const struct seal_span span = seal_span(seal->cipher, seal->plain_bytes, seal->content_count);

	if (seal->content_count == seal->content_capacity) {
		const size_t capacity = seal->content_capacity > 0 ? 2 * seal->content_capacity : 16;
		uint8_t(*larger)[CONTENT_SIZE] = must_zalloc(capacity, CONTENT_SIZE);

		if (seal->content_count > 0)
			memcpy(larger, seal->content, seal->content_count * CONTENT_SIZE);
		free(seal->content);
		seal->content = larger;
		seal->content_capacity = capacity;
	}
	content_mac(seal, seal->content_count, plain, span.plain_bytes, seal->content[seal->content_count]);
	seal->content_count++;
}

/* --- keys of the segments --- */

static void derive(struct seal *seal, struct str path, bool is_encrypting)
{
	uint8_t keys[BLOCK_SIZE + MAC_SIZE],
		*salt = seal->header + seal_header_bytes(seal->cipher) - PREFIX_SIZE - SALT_SIZE;
	const size_t size = seal->cipher == SEAL_AES ? 32 : sizeof(keys);

	mac_hkdf(digest_kind(seal->cipher), seal->key, SEAL_KEY_SIZE, (struct str){ (char *)salt, SALT_SIZE }, path,
		 keys, size);
	MUST(EVP_CipherInit_ex2(seal->segments, cipher_of(seal->cipher), keys, NULL, is_encrypting, NULL) == 1);
	memcpy(seal->mac_key, keys + BLOCK_SIZE, MAC_SIZE);
	mem_wipe(keys, sizeof(keys));
}

void seal_content_end(struct seal *seal)
{
	uint8_t salt[MAC_SIZE], prefix[MAC_SIZE], message[sizeof(PREFIX_INFO) - 1 + MAC_SIZE];
	uint8_t *at = seal->header;

	MUST(seal->content_count == seal->segment_count);
	/* The MACs together are a multiple of 16 bytes, the other message is not: the two can never be one. */
	mac_of(digest_kind(seal->cipher), seal->content_keys[1], MAC_SIZE, seal->content,
	       seal->content_count * CONTENT_SIZE, salt);
	memcpy(message, PREFIX_INFO, sizeof(PREFIX_INFO) - 1);
	memcpy(message + sizeof(PREFIX_INFO) - 1, salt, sizeof(salt));
	mac_of(digest_kind(seal->cipher), seal->content_keys[1], MAC_SIZE, message, sizeof(message), prefix);
	at += seal_header_begin(seal->cipher, at);
	memcpy(at, salt, SALT_SIZE);
	memcpy(at + SALT_SIZE, prefix, PREFIX_SIZE);
	derive(seal, (struct str){ seal->path, seal->path_size }, true);
}

bool seal_open_begin(struct seal *seal, struct str path, uint64_t plain_bytes, const void *head)
{
	const size_t begin_size = seal_header_begin(seal->cipher, seal->header);

	if (memcmp(head, seal->header, begin_size) != 0)
		return false;
	memcpy(seal->header, head, seal_header_bytes(seal->cipher));
	seal->plain_bytes = plain_bytes;
	seal->segment_count = seal_segment_count(seal->cipher, plain_bytes);
	derive(seal, path, false);
	return true;
}

/* --- segments --- */

static void nonce_of(const struct seal *seal, uint64_t segment_index, uint8_t target[BLOCK_SIZE])
{
	MUST(segment_index < seal->segment_count && segment_index <= UINT32_MAX);
	memset(target, 0, BLOCK_SIZE);
	memcpy(target, seal->header + seal_header_bytes(seal->cipher) - PREFIX_SIZE, PREFIX_SIZE);
	for (unsigned i = 0; i < 4; i++)
		target[PREFIX_SIZE + i] = (uint8_t)(segment_index >> (24 - 8 * i));
	target[PREFIX_SIZE + 4] = segment_index + 1 == seal->segment_count;
}

/* Of nonce and ciphertext; the key is this file's alone. */
static void sm4_tag(const struct seal *seal, const uint8_t nonce[BLOCK_SIZE], const void *cipher, size_t size,
		    uint8_t target[MAC_SIZE])
{
	uint8_t key[MAC_SIZE];

	/* A key of its own for each nonce: a message then needs no copy to stand behind it. */
	mac_of(DIGEST_SM3, seal->mac_key, MAC_SIZE, nonce, NONCE_SIZE, key);
	mac_of(DIGEST_SM3, key, sizeof(key), cipher, size, target);
	mem_wipe(key, sizeof(key));
}

bool seal_segment(struct seal *seal, uint64_t segment_index, const void *plain, void *target)
{
	const struct seal_span span = seal_span(seal->cipher, seal->plain_bytes, segment_index);
	const size_t header_size = segment_index == 0 ? seal_header_bytes(seal->cipher) : 0;
	const size_t tag_size = seal_tag_bytes(seal->cipher);
	uint8_t nonce[BLOCK_SIZE], content[CONTENT_SIZE], *at = target, *tag = at + span.stored_bytes - tag_size;
	int done = 0;

	content_mac(seal, segment_index, plain, span.plain_bytes, content);
	if (CRYPTO_memcmp(content, seal->content[segment_index], CONTENT_SIZE) != 0)
		return false;
	memcpy(at, seal->header, header_size);
	at += header_size;
	nonce_of(seal, segment_index, nonce);
	MUST(EVP_CipherInit_ex2(seal->segments, NULL, NULL, nonce, 1, NULL) == 1);
	MUST(span.plain_bytes == 0 || (EVP_CipherUpdate(seal->segments, at, &done, plain, (int)span.plain_bytes) == 1 &&
				       (size_t)done == span.plain_bytes));
	if (seal->cipher == SEAL_SM4) {
		sm4_tag(seal, nonce, at, span.plain_bytes, tag);
		return true;
	}
	MUST(EVP_CipherFinal_ex(seal->segments, at + done, &done) == 1);
	MUST(EVP_CIPHER_CTX_ctrl(seal->segments, EVP_CTRL_AEAD_GET_TAG, (int)tag_size, tag) == 1);
	return true;
}

bool seal_open_segment(struct seal *seal, uint64_t segment_index, const void *stored, void *target)
{
	const struct seal_span span = seal_span(seal->cipher, seal->plain_bytes, segment_index);
	const uint8_t *at = (const uint8_t *)stored + (segment_index == 0 ? seal_header_bytes(seal->cipher) : 0);
	const size_t tag_size = seal_tag_bytes(seal->cipher);
	uint8_t nonce[BLOCK_SIZE], tag[SEAL_TAG_MAX], wanted[MAC_SIZE], end[BLOCK_SIZE];
	bool is_good = true;
	int done = 0;

	memcpy(tag, at + span.plain_bytes, tag_size);
	nonce_of(seal, segment_index, nonce);
	if (seal->cipher == SEAL_SM4) {
		sm4_tag(seal, nonce, at, span.plain_bytes, wanted);
		if (CRYPTO_memcmp(tag, wanted, tag_size) != 0)
			return false;
	}
	MUST(EVP_CipherInit_ex2(seal->segments, NULL, NULL, nonce, 0, NULL) == 1);
	if (seal->cipher == SEAL_AES)
		MUST(EVP_CIPHER_CTX_ctrl(seal->segments, EVP_CTRL_AEAD_SET_TAG, (int)tag_size, tag) == 1);
	MUST(span.plain_bytes == 0 || EVP_CipherUpdate(seal->segments, target, &done, at, (int)span.plain_bytes) == 1);
	if (seal->cipher == SEAL_AES)
		is_good = EVP_CipherFinal_ex(seal->segments, end, &done) == 1;
	if (!is_good && span.plain_bytes > 0)
		mem_wipe(target, span.plain_bytes);
	return is_good;
}
