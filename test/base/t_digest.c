#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>

#include "base/digest.h"

static const struct digest_case {
	enum digest_kind kind;
	const char *text, *hex;
} CASES[] = {
	/* RFC 1321, A.5 */
	{ DIGEST_MD5, "", "d41d8cd98f00b204e9800998ecf8427e" },
	{ DIGEST_MD5, "a", "0cc175b9c0f1b6a831c399e269772661" },
	{ DIGEST_MD5, "abc", "900150983cd24fb0d6963f7d28e17f72" },
	{ DIGEST_MD5, "message digest", "f96b697d7cb7938d525a2f31aaf161d0" },
	{ DIGEST_MD5, "abcdefghijklmnopqrstuvwxyz", "c3fcd3d76192e4007dfb496cca67e13b" },
	{ DIGEST_MD5, "12345678901234567890123456789012345678901234567890123456789012345678901234567890",
	  "57edf4a22be3c955ac49da2e2107b67a" },
	/* FIPS 180-2, B */
	{ DIGEST_SHA256, "", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" },
	{ DIGEST_SHA256, "abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" },
	{ DIGEST_SHA256, "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
	  "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1" },
	/* GB/T 32905-2016, A */
	{ DIGEST_SM3, "", "1ab21d8355cfa17f8e61194831e81a8f22bec8c728fefb747ed035eb5082aa2b" },
	{ DIGEST_SM3, "abc", "66c7f0f462eeedd9d1f2d46bdc10e4e24167c4875cf2f7a2297da02b8f4ba8e0" },
	{ DIGEST_SM3, "abcdabcdabcdabcdabcdabcdabcdabcdabcdabcdabcdabcdabcdabcdabcdabcd",
	  "debe9ff92275b8a138604889c18e5a4d6fdb70e5387e5765293dcba39c0c5732" },
};

static void test_whole_and_in_pieces(void **state UNUSED)
{
	char hex[DIGEST_HEX_SIZE];

	for (size_t i = 0; i < COUNT_OF(CASES); i++) {
		const struct digest_case *row = &CASES[i];
		struct digest *digest = digest_new(row->kind);
		size_t size = strlen(row->text);

		digest_of(row->kind, row->text, size, hex);
		assert_string_equal(hex, row->hex);
		for (size_t j = 0; j < size; j++)
			digest_feed(digest, row->text + j, 1);
		digest_feed(digest, NULL, 0);
		digest_hex(digest, hex);
		assert_string_equal(hex, row->hex);
		digest_free(&digest);
		assert_null(digest);
		digest_free(&digest);
	}
	digest_of(DIGEST_MD5, NULL, 0, hex);
	assert_string_equal(hex, CASES[0].hex);
}

static void test_restart(void **state UNUSED)
{
	struct digest *digest = digest_new(DIGEST_SHA256);
	char hex[DIGEST_HEX_SIZE], thousand[1000];

	/* In the middle as well as at the end. */
	digest_feed(digest, "dropped", 7);
	digest_restart(digest);
	memset(thousand, 'a', sizeof(thousand));
	for (int i = 0; i < 1000; i++)
		digest_feed(digest, thousand, sizeof(thousand));
	digest_hex(digest, hex);
	assert_string_equal(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
	digest_restart(digest);
	digest_feed(digest, "abc", 3);
	digest_hex(digest, hex);
	assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
	digest_free(&digest);
}

/* Two digests that get the same bytes behind different beginnings are as two that were fed alone, whoever computes them. */
static void test_feed_two(void **state UNUSED)
{
	static const struct {
		enum digest_kind first, second;
		bool is_first_openssl, is_second_openssl;
		size_t prefix, common;
	} ROWS[] = {
		{ DIGEST_SHA256, DIGEST_SHA256, false, false, 0, 0 },
		{ DIGEST_SHA256, DIGEST_SHA256, false, false, 0, 5000 },
		{ DIGEST_SHA256, DIGEST_SHA256, false, false, 128, 5000 },
		{ DIGEST_SHA256, DIGEST_SHA256, false, false, 13, 5000 },
		{ DIGEST_SHA256, DIGEST_SHA256, true, true, 64, 5000 },
		{ DIGEST_SHA256, DIGEST_SHA256, true, true, 1, 30 },
		{ DIGEST_SHA256, DIGEST_SHA256, true, false, 64, 5000 },
		{ DIGEST_SHA256, DIGEST_SHA256, false, true, 64, 5000 },
		{ DIGEST_MD5, DIGEST_MD5, false, false, 7, 5000 },
		{ DIGEST_MD5, DIGEST_SHA256, false, false, 7, 5000 },
		{ DIGEST_SHA256, DIGEST_MD5, false, false, 7, 5000 },
		{ DIGEST_SM3, DIGEST_SM3, false, false, 7, 5000 },
		{ DIGEST_SHA256, DIGEST_SM3, false, false, 64, 5000 },
	};
	uint8_t data[5128];
	char hex[DIGEST_HEX_SIZE], wanted[DIGEST_HEX_SIZE];

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 31 + i / 97);
	for (size_t i = 0; i < COUNT_OF(ROWS); i++) {
		struct digest *first, *second;

		digest_force_openssl(ROWS[i].is_first_openssl);
		first = digest_new(ROWS[i].first);
		digest_force_openssl(ROWS[i].is_second_openssl);
		second = digest_new(ROWS[i].second);
		digest_feed(first, data, ROWS[i].prefix);
		digest_feed_two(first, second, data + ROWS[i].prefix, ROWS[i].common);
		digest_force_openssl(true);
		digest_hex(first, hex);
		digest_of(ROWS[i].first, data, ROWS[i].prefix + ROWS[i].common, wanted);
		assert_string_equal(hex, wanted);
		digest_hex(second, hex);
		digest_of(ROWS[i].second, data + ROWS[i].prefix, ROWS[i].common, wanted);
		assert_string_equal(hex, wanted);
		digest_force_openssl(false);
		digest_free(&first);
		digest_free(&second);
	}
}

/* Once more as on a processor without SHA instructions. */
static void test_openssl_alone(void **state)
{
	digest_force_openssl(true);
	test_whole_and_in_pieces(state);
	test_restart(state);
	digest_force_openssl(false);
}

static void test_names(void **state UNUSED)
{
	enum digest_kind kind = DIGEST_MD5;

	assert_true(digest_from_name(STR("sha256"), &kind) && kind == DIGEST_SHA256);
	assert_true(digest_from_name(STR("md5"), &kind) && kind == DIGEST_MD5);
	assert_false(digest_from_name(STR("MD5"), &kind));
	assert_false(digest_from_name(STR("md"), &kind));
	assert_false(digest_from_name(STR_NONE, &kind));
	assert_string_equal(digest_name(DIGEST_MD5), "md5");
	assert_string_equal(digest_name(DIGEST_SHA256), "sha256");
	/* Messages name each, in the order of the kinds. */
	struct str names = STR(DIGEST_NAMES), name;
	for (int i = DIGEST_MD5; i <= DIGEST_SM3; i++) {
		assert_true(str_cut(&names, ',', &name));
		assert_true(digest_from_name(str_trim(name), &kind) && (int)kind == i);
		assert_true(str_eq_c(str_trim(name), digest_name(kind)));
	}
	assert_false(str_cut(&names, ',', &name));
	assert_string_equal(digest_header(DIGEST_SHA256), "X-Chunk-SHA256");
	assert_int_equal(digest_size(DIGEST_MD5), 16);
	assert_int_equal(digest_size(DIGEST_SHA256), 32);
}

static void test_hex_is_valid(void **state UNUSED)
{
	assert_true(digest_hex_is_valid(DIGEST_MD5, STR("d41d8cd98f00b204e9800998ecf8427e")));
	assert_false(digest_hex_is_valid(DIGEST_SHA256, STR("d41d8cd98f00b204e9800998ecf8427e")));
	assert_false(digest_hex_is_valid(DIGEST_MD5, STR("D41d8cd98f00b204e9800998ecf8427e")));
	assert_false(digest_hex_is_valid(DIGEST_MD5, STR("d41d8cd98f00b204e9800998ecf8427g")));
	assert_false(digest_hex_is_valid(DIGEST_MD5, STR("d41d8cd98f00b204e9800998ecf8427")));
	assert_false(digest_hex_is_valid(DIGEST_MD5, STR_NONE));
}

static void check_mac(const void *key, size_t key_size, const void *data, size_t size, const char *wanted)
{
	uint8_t mac[MAC_SIZE];
	char hex[2 * MAC_SIZE + 1];

	mac_sha256(key, key_size, data, size, mac);
	hex_encode(mac, sizeof(mac), hex);
	assert_string_equal(hex, wanted);
}

static void test_hmac(void **state UNUSED)
{
	/* RFC 4231 */
	static const char LONG_TEXT[] =
		"This is a test using a larger than block-size key and a larger than block-size data. The key needs "
		"to be hashed before being used by the HMAC algorithm.";
	static const char HASHED_KEY_TEXT[] = "Test Using Larger Than Block-Size Key - Hash Key First";
	uint8_t key[131], data[50];

	memset(key, 0x0B, 20);
	check_mac(key, 20, "Hi There", 8, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
	check_mac("Jefe", 4, "what do ya want for nothing?", 28,
		  "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
	memset(key, 0xAA, sizeof(key));
	memset(data, 0xDD, sizeof(data));
	check_mac(key, 20, data, 50, "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
	check_mac(key, 131, HASHED_KEY_TEXT, strlen(HASHED_KEY_TEXT),
		  "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
	check_mac(key, 131, LONG_TEXT, strlen(LONG_TEXT),
		  "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2");
	for (size_t i = 0; i < 25; i++)
		key[i] = (uint8_t)(i + 1);
	memset(data, 0xCD, sizeof(data));
	check_mac(key, 25, data, 50, "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b");
	/* No key must not mean the key from before. */
	check_mac(NULL, 0, NULL, 0, "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
	check_mac("", 0, "", 0, "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
}

static void test_hkdf(void **state UNUSED)
{
	/* RFC 5869, test case 3: neither salt nor info. Its first 32 bytes are ours. */
	uint8_t input[22], key[MAC_SIZE], other[MAC_SIZE], second[MAC_SIZE];
	char hex[2 * MAC_SIZE + 1];

	memset(input, 0x0B, sizeof(input));
	mac_derive(input, sizeof(input), STR_NONE, key);
	hex_encode(key, sizeof(key), hex);
	assert_string_equal(hex, "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d");
	mac_derive(input, sizeof(input), STR("internal"), other);
	assert_memory_not_equal(key, other, sizeof(key));
	mac_derive(input, sizeof(input), STR("internal"), second);
	assert_memory_equal(other, second, sizeof(other));
}

static void *hash_many(void *wrong UNUSED)
{
	char hex[DIGEST_HEX_SIZE];
	uint8_t mac[MAC_SIZE];
	uintptr_t bad_count = 0;

	for (int i = 0; i < 500; i++) {
		digest_of(DIGEST_MD5, "abc", 3, hex);
		if (strcmp(hex, CASES[2].hex) != 0)
			bad_count++;
		digest_of(DIGEST_SHA256, "abc", 3, hex);
		mac_sha256("Jefe", 4, "what do ya want for nothing?", 28, mac);
		if (strcmp(hex, CASES[7].hex) != 0 || mac[0] != 0x5B || mac[31] != 0x43)
			bad_count++;
	}
	return (void *)bad_count;
}

static void test_several_threads(void **state UNUSED)
{
	pthread_t threads[4];
	void *bad_count;

	for (size_t i = 0; i < COUNT_OF(threads); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, hash_many, NULL), 0);
	for (size_t i = 0; i < COUNT_OF(threads); i++) {
		assert_int_equal(pthread_join(threads[i], &bad_count), 0);
		assert_null(bad_count);
	}
}

int main(void)
{
	/* The threads first: they race for the one fetch. */
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_several_threads),
		cmocka_unit_test(test_whole_and_in_pieces),
		cmocka_unit_test(test_restart),
		cmocka_unit_test(test_feed_two),
		cmocka_unit_test(test_openssl_alone),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_hex_is_valid),
		cmocka_unit_test(test_hmac),
		cmocka_unit_test(test_hkdf),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
