#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/digest.h"
#include "wire/seal_key.h"
#include "wire/unseal.h"

#define T "01ARZ3NDEKTSV4RRFFQ69G5FAV"
static const struct str path = { "a/\xe5\x87\xad b", 7 };

static void make_key(uint8_t key[SEAL_KEY_SIZE])
{
	for (unsigned i = 0; i < SEAL_KEY_SIZE; i++)
		key[i] = (uint8_t)i;
}

static uint8_t *make_plain(size_t size)
{
	uint8_t *plain = must_alloc(size + 1);

	for (size_t i = 0; i < size; i++)
		plain[i] = (uint8_t)(i * 31 + i / 97);
	return plain;
}

static void give_content(struct seal *seal, enum seal_cipher cipher, struct str name, const uint8_t *plain, size_t size)
{
	seal_content_begin(seal, T, name, size);
	for (uint64_t i = 0; i < seal_segment_count(cipher, size); i++)
		seal_content_add(seal, plain + seal_span(cipher, size, i).plain_at);
	seal_content_end(seal);
}

/* Segments from the last to the first: their order does not matter. */
static uint8_t *seal_whole(enum seal_cipher cipher, struct str name, const uint8_t *plain, size_t size)
{
	uint8_t key[SEAL_KEY_SIZE], *stored = must_alloc(seal_stored_size(cipher, size));

	make_key(key);
	struct seal *seal = seal_new(cipher, key);
	/* Another file before this one leaves nothing behind. */
	give_content(seal, cipher, STR("other"), (const uint8_t *)"x", 1);
	give_content(seal, cipher, name, plain, size);
	for (uint64_t i = seal_segment_count(cipher, size); i-- > 0;) {
		const struct seal_span span = seal_span(cipher, size, i);
		assert_true(seal_segment(seal, i, plain + span.plain_at, stored + span.stored_at));
	}
	seal_free(&seal);
	return stored;
}

/* --- what comes out --- */

struct sink {
	uint8_t *data;
	size_t size, capacity;
};

static int take(void *owner, const void *plain, size_t size, struct err *err UNUSED)
{
	struct sink *sink = owner;

	assert_true(size <= sink->capacity - sink->size);
	memcpy(sink->data + sink->size, plain, size);
	sink->size += size;
	return 0;
}

/* In pieces; 0 or the error. told_bytes: the size that the file is said to have. */
static int open_told(const uint8_t *stored, size_t size, size_t told_bytes, size_t piece, struct str name,
		     struct sink *sink, struct err *err)
{
	uint8_t key[SEAL_KEY_SIZE];
	int result = 0;

	make_key(key);
	*sink = (struct sink){ .data = must_alloc(size + 1), .capacity = size };
	*err = ERR_INIT;
	struct unseal *unseal = unseal_new(key, take, sink);
	unseal_begin(unseal, name, told_bytes);
	for (size_t at = 0; result == 0 && at < size; at += piece)
		result = unseal_feed(unseal, stored + at, min_size(piece, size - at), err);
	if (result == 0)
		result = unseal_end(unseal, err);
	unseal_free(&unseal);
	return result;
}

static void assert_refused(const uint8_t *stored, size_t size, struct str name, const char *what)
{
	struct sink sink;
	struct err err;

	if (open_told(stored, size, size, size > 0 ? size : 1, name, &sink, &err) != -ERR_INTEGRITY)
		fail_msg("%s was taken", what);
	free(sink.data);
}

/* Made by test/system/seal.py, from the published format and with another library. */
static const struct known {
	enum seal_cipher cipher;
	size_t size, stored_size;
	const char *sha256;
} KNOWN[] = {
	{ SEAL_AES, 0, 56, "621a88560f25d37450e3a90fd6effdfabce9b99a22829b85346ce6c0fcf2cb0e" },
	{ SEAL_AES, 1, 57, "2470b62f825d4dedf6bf00c7741ae95d6407aaa4e0da3d620cf0321da6f609d8" },
	{ SEAL_AES, 1048519, 1048575, "829a13d597b6cf30ee2c87a848a6fad55ab05953d9380e26d69068a0fef327ca" },
	{ SEAL_AES, 1048520, 1048576, "562b8c18dbca541bbe0a2ef0890e9013c6a5ca169f4e3bd5aa251a081916e48d" },
	{ SEAL_AES, 1048521, 1048593, "c934dcc43fe514c59c90f241fbdcda24824dc48b9ec9030425733bb096e3843b" },
	{ SEAL_AES, 2097080, 2097152, "8daaee809e2aab967ea05af1e427c3231b7f134b8b965b72336cad526a1ace25" },
	{ SEAL_AES, 3145733, 3145837, "7d24595dc6393231c1d418d823b1d31dc36a16ece6e97faeddfe586007aa8128" },
	{ SEAL_SM4, 0, 80, "754644eb9e8c15a431f461307a5dbfb413f52311268882cb1ebc7392aab5a0a6" },
	{ SEAL_SM4, 1, 81, "cca6f25a58014efcf50fc7700615d3d43996d082c3790640c4d2d1a8f33d635c" },
	{ SEAL_SM4, 1048495, 1048575, "2bf5ff26a41d4500cb83c921a9f9814ef1b07253006fe403487b2c249f5ab858" },
	{ SEAL_SM4, 1048496, 1048576, "d61aa8658cbbda28acbe6caa0f48862dda6f90c9d5cdf32cf1d49013f233f1d9" },
	{ SEAL_SM4, 1048497, 1048609, "2dd7acbed66f7bd6dcbfe247a5f59d3ce78c24eca14bdfdc47c02697eeada68f" },
	{ SEAL_SM4, 2097040, 2097152, "668b584e3a4249fb50a3facdeca464b86bb93c9bba8c252c97fa6cda90c50e8c" },
	{ SEAL_SM4, 3145733, 3145909, "da36549a86a4e3300622222c70ba3537da97c160f7072d0a9cf109d5703e888c" },
};

static void test_known_answers(void **state UNUSED)
{
	static const size_t PIECES[] = { 1 << 20, 999999, 3 << 20 };

	for (size_t i = 0; i < COUNT_OF(KNOWN); i++) {
		const struct known *row = &KNOWN[i];
		char hex[DIGEST_HEX_SIZE];
		uint8_t *plain = make_plain(row->size);
		uint8_t *stored = seal_whole(row->cipher, path, plain, row->size);
		struct sink sink;
		struct err err;

		assert_int_equal(seal_stored_size(row->cipher, row->size), row->stored_size);
		digest_of(DIGEST_SHA256, stored, row->stored_size, hex);
		assert_string_equal(hex, row->sha256);
		for (size_t j = 0; j < COUNT_OF(PIECES); j++) {
			assert_int_equal(
				open_told(stored, row->stored_size, row->stored_size, PIECES[j], path, &sink, &err), 0);
			assert_int_equal(sink.size, row->size);
			assert_memory_equal(sink.data, plain, row->size);
			free(sink.data);
		}
		free(plain);
		free(stored);
	}
}

static void test_byte_by_byte(void **state UNUSED)
{
	struct sink sink;
	struct err err;

	for (enum seal_cipher cipher = SEAL_AES; cipher <= SEAL_SM4; cipher++) {
		uint8_t *stored = seal_whole(cipher, path, (const uint8_t *)"hello", 5);
		const size_t size = seal_stored_size(cipher, 5);

		assert_int_equal(open_told(stored, size, size, 1, path, &sink, &err), 0);
		assert_int_equal(sink.size, 5);
		free(sink.data);
		free(stored);
	}
}

static void test_sizes(void **state UNUSED)
{
	for (enum seal_cipher cipher = SEAL_AES; cipher <= SEAL_SM4; cipher++) {
		uint64_t plain = 0, found = 0;
		/* Every size that a file can have is one file's; all others are none's. */
		for (uint64_t stored = 0; stored < 2 * SEAL_SEGMENT_BYTES + 200; stored++) {
			const bool is_one = seal_stored_size(cipher, plain) == stored;
			if (seal_plain_size(cipher, stored, &found) != is_one || (is_one && found != plain))
				fail_msg("%s: %llu stored bytes", seal_cipher_name(cipher), (unsigned long long)stored);
			plain += is_one;
		}
		assert_true(seal_plain_size(cipher, seal_stored_size(cipher, (uint64_t)16 << 40), &found));
		assert_int_equal(found, (uint64_t)16 << 40);
		assert_false(seal_plain_size(cipher, UINT64_MAX, &found));
	}
}

/* Whatever a storage server could do to a file. */
static void test_refused(void **state UNUSED)
{
	for (enum seal_cipher cipher = SEAL_AES; cipher <= SEAL_SM4; cipher++) {
		const size_t size = 2 * SEAL_SEGMENT_BYTES, stored_size = seal_stored_size(cipher, size);
		const size_t tail = stored_size - 2 * SEAL_SEGMENT_BYTES;
		uint8_t *plain = make_plain(size), *stored = seal_whole(cipher, path, plain, size);
		uint8_t *other, *work = must_alloc(stored_size + SEAL_SEGMENT_BYTES);

		plain[size - 1] ^= 1;
		other = seal_whole(cipher, path, plain, size);
		assert_memory_not_equal(stored, other, 48);
		assert_refused(stored, stored_size, STR("a/b"), "another path");
		assert_refused(stored, SEAL_SEGMENT_BYTES, path, "one segment of three");
		assert_refused(stored, 2 * SEAL_SEGMENT_BYTES, path, "two segments of three");
		assert_refused(stored, stored_size - 1, path, "a byte less");
		assert_refused(stored, 0, path, "nothing");
		assert_refused(plain, size, path, "plain bytes");
		static const size_t FLIPS[] = {
			0, 1, 8, 9, 40, 47, 48, 100, SEAL_SEGMENT_BYTES - 1, SEAL_SEGMENT_BYTES, 2 * SEAL_SEGMENT_BYTES
		};
		for (size_t i = 0; i < COUNT_OF(FLIPS); i++) {
			memcpy(work, stored, stored_size);
			work[FLIPS[i]] ^= 0x10;
			assert_refused(work, stored_size, path, "a changed byte");
		}
		memcpy(work, stored, stored_size);
		work[stored_size - 1] ^= 1;
		assert_refused(work, stored_size, path, "a changed last byte");
		memcpy(work, stored, stored_size);
		memcpy(work + SEAL_SEGMENT_BYTES, other + SEAL_SEGMENT_BYTES, SEAL_SEGMENT_BYTES);
		assert_refused(work, stored_size, path, "another file's segment");
		memcpy(work, stored, 2 * SEAL_SEGMENT_BYTES);
		memcpy(work + 2 * SEAL_SEGMENT_BYTES, stored + SEAL_SEGMENT_BYTES, SEAL_SEGMENT_BYTES);
		memcpy(work + 3 * SEAL_SEGMENT_BYTES, stored + 2 * SEAL_SEGMENT_BYTES, tail);
		assert_refused(work, 3 * SEAL_SEGMENT_BYTES + tail, path, "a segment twice");
		memcpy(work, stored, SEAL_SEGMENT_BYTES);
		memcpy(work + SEAL_SEGMENT_BYTES, stored + 2 * SEAL_SEGMENT_BYTES, tail);
		assert_refused(work, SEAL_SEGMENT_BYTES + tail, path, "a segment left out");
		free(plain);
		free(stored);
		free(other);
		free(work);
	}
}

/* More or less comes than was said. */
static void test_other_size_than_told(void **state UNUSED)
{
	uint8_t *stored = seal_whole(SEAL_AES, path, (const uint8_t *)"hello", 5);
	const size_t size = seal_stored_size(SEAL_AES, 5);
	struct sink sink;
	struct err err;

	assert_int_equal(open_told(stored, size, size - 1, 7, path, &sink, &err), -ERR_INTEGRITY);
	free(sink.data);
	assert_int_equal(open_told(stored, size - 1, size, 7, path, &sink, &err), -ERR_INTEGRITY);
	assert_non_null(strstr(err.text, "before its"));
	free(sink.data);
	free(stored);
}

/* No key and nonce for two contents: what is not the content that made the salt is not encrypted at all. */
static void test_other_content(void **state UNUSED)
{
	for (enum seal_cipher cipher = SEAL_AES; cipher <= SEAL_SM4; cipher++) {
		const size_t size = SEAL_SEGMENT_BYTES + 10;
		uint8_t key[SEAL_KEY_SIZE], *plain = make_plain(size), *target = must_zalloc(1, SEAL_SEGMENT_BYTES);

		make_key(key);
		struct seal *seal = seal_new(cipher, key);
		give_content(seal, cipher, path, plain, size);
		const struct seal_span last = seal_span(cipher, size, 1);
		assert_true(seal_segment(seal, 1, plain + last.plain_at, target));
		memset(target, 0, SEAL_SEGMENT_BYTES);
		plain[size - 1] ^= 1;
		assert_false(seal_segment(seal, 1, plain + last.plain_at, target));
		plain[0] ^= 1;
		assert_false(seal_segment(seal, 0, plain, target));
		for (size_t i = 0; i < SEAL_SEGMENT_BYTES; i++)
			assert_int_equal(target[i], 0);
		seal_free(&seal);
		free(plain);
		free(target);
	}
}

/* The salt is another one when anything is: transfer, path, a byte, the length. */
static void test_salts(void **state UNUSED)
{
	static const struct {
		const char *transfer, *path, *plain;
	} ROWS[] = {
		{ T, "a", "x" },  { "01ARZ3NDEKTSV4RRFFQ69G5FAW", "a", "x" },
		{ T, "b", "x" },  { T, "a", "y" },
		{ T, "a", "xx" }, { T, "a", "" },
		{ T, "", "" },    { T, "", "a" },
		{ T, "ax", "" },
	};
	uint8_t salts[COUNT_OF(ROWS)][SEAL_HEADER_MAX + SEAL_TAG_MAX + 2], key[SEAL_KEY_SIZE];

	make_key(key);
	struct seal *seal = seal_new(SEAL_AES, key);
	for (size_t i = 0; i < COUNT_OF(ROWS); i++) {
		seal_content_begin(seal, ROWS[i].transfer, str_from(ROWS[i].path), strlen(ROWS[i].plain));
		seal_content_add(seal, ROWS[i].plain);
		seal_content_end(seal);
		assert_true(seal_segment(seal, 0, ROWS[i].plain, salts[i]));
		for (size_t j = 0; j < i; j++)
			assert_memory_not_equal(salts[i] + 1, salts[j] + 1, 39);
	}
	seal_free(&seal);
}

/* --- names and keys --- */

static void test_labels(void **state UNUSED)
{
	static const struct {
		const char *text;
		bool is_good;
	} ROWS[] = {
		{ "aes:0f62c03437c878a6", true },
		{ "sm4:0f62c03437c878a6", true },
		{ "aes:0F62c03437c878a6", false },
		{ "aes:0f62c03437c878a", false },
		{ "aes:0f62c03437c878a6a", false },
		{ "des:0f62c03437c878a6", false },
		{ "aes", false },
		{ "", false },
		{ ":0f62c03437c878a6", false },
	};
	enum seal_cipher cipher;
	char id[SEAL_ID_SIZE], label[SEAL_LABEL_SIZE];

	for (size_t i = 0; i < COUNT_OF(ROWS); i++) {
		assert_int_equal(seal_label_parse(str_from(ROWS[i].text), &cipher, id), ROWS[i].is_good);
		if (!ROWS[i].is_good)
			continue;
		seal_label(cipher, id, label);
		assert_string_equal(label, ROWS[i].text);
	}
}

#define HEX "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
#define ID  "0f62c03437c878a6"

static void test_key_files(void **state UNUSED)
{
	static const struct {
		const char *text, *fault; /* a word of it; NULL: good */
	} ROWS[] = {
		{ "heng-key 1 " ID " " HEX "\n", NULL },
		{ "# a comment\r\n\n  heng-key  1\t" ID " " HEX "  \r\n", NULL },
		{ HEX, NULL },
		{ "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n", NULL },
		{ "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8", NULL },
		{ "", "empty" },
		{ "# only a comment\n", "empty" },
		{ "heng-key 1 " ID " " HEX "\n" HEX "\n", "more than one" },
		{ "heng-key 2 " ID " " HEX "\n", "version" },
		{ "heng-key 1 0f62c03437c878a7 " HEX "\n", "digit" },
		{ "heng-key 1 " ID "\n", "no key" },
		{ "heng-key 1 " ID " " HEX " x\n", "no key" },
		{ HEX "00", "no key" },
		{ "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8==", "no key" },
		{ "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh!", "no key" },
		{ "-----BEGIN PRIVATE KEY-----", "no key" },
	};
	uint8_t key[SEAL_KEY_SIZE], wanted[SEAL_KEY_SIZE];
	char id[SEAL_ID_SIZE], text[SEAL_KEY_TEXT_MAX];

	make_key(wanted);
	for (size_t i = 0; i < COUNT_OF(ROWS); i++) {
		const char *fault = seal_key_parse(str_from(ROWS[i].text), key, id);

		if (!fault != !ROWS[i].fault || (fault && !strstr(fault, ROWS[i].fault)))
			fail_msg("row %zu: %s", i, fault);
		if (fault)
			continue;
		assert_memory_equal(key, wanted, sizeof(key));
		assert_string_equal(id, ID);
	}
	const size_t size = seal_key_write(wanted, text, sizeof(text));
	assert_null(seal_key_parse((struct str){ text, size }, key, id));
	assert_memory_equal(key, wanted, sizeof(key));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_known_answers),
		cmocka_unit_test(test_byte_by_byte),
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_other_size_than_told),
		cmocka_unit_test(test_other_content),
		cmocka_unit_test(test_salts),
		cmocka_unit_test(test_labels),
		cmocka_unit_test(test_key_files),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
