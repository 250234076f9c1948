#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <openssl/evp.h>

#include "base/rng.h"
#include "base/sha256.h"

/* Everything is compared with OpenSSL's SHA-256 over the same bytes. */

enum { LENGTH_MAX = 300, LONG_BYTES = 1 << 20 };

static uint8_t *bytes; /* LONG_BYTES + 64 */

static void check(struct sha256 *sha256, EVP_MD_CTX *wanted, const char *what)
{
	uint8_t got_bytes[SHA256_BYTES], wanted_bytes[EVP_MAX_MD_SIZE];

	sha256_end(sha256, got_bytes);
	assert_int_equal(EVP_DigestFinal_ex(wanted, wanted_bytes, NULL), 1);
	if (memcmp(got_bytes, wanted_bytes, SHA256_BYTES) != 0)
		fail_msg("%s: not OpenSSL's digest", what);
}

/* One computation of each sort, to be fed alike. */
struct both {
	struct sha256 own;
	EVP_MD_CTX *openssl;
};

static void both_start(struct both *both)
{
	sha256_start(&both->own);
	both->openssl = EVP_MD_CTX_new();
	assert_int_equal(EVP_DigestInit_ex(both->openssl, EVP_sha256(), NULL), 1);
}

static void both_feed(struct both *both, const void *data, size_t size)
{
	sha256_feed(&both->own, data, size);
	assert_int_equal(EVP_DigestUpdate(both->openssl, data, size), 1);
}

static void both_feed_two(struct both *a, struct both *b, const void *data, size_t size)
{
	sha256_feed_two(&a->own, &b->own, data, size);
	assert_int_equal(EVP_DigestUpdate(a->openssl, data, size), 1);
	assert_int_equal(EVP_DigestUpdate(b->openssl, data, size), 1);
}

static void both_end(struct both *both, const char *what)
{
	check(&both->own, both->openssl, what);
	EVP_MD_CTX_free(both->openssl);
}

static int bytes_make(void **state UNUSED)
{
	struct rng rng;

	bytes = must_alloc(LONG_BYTES + 64);
	rng_seed(&rng, 42);
	for (size_t i = 0; i < LONG_BYTES + 64; i++)
		bytes[i] = (uint8_t)rng_u64(&rng);
	return 0;
}

static int bytes_free(void **state UNUSED)
{
	free(bytes);
	return 0;
}

static void test_every_length(void **state UNUSED)
{
	struct both one, a, b;
	char what[64];

	for (size_t size = 0; size <= LENGTH_MAX; size++) {
		/* An allocation of just this size, so that a sanitizer sees one byte too many; and every alignment. */
		uint8_t *exact = must_alloc(size + size % 16 + 1), *start = exact + size % 16 + 1;

		memcpy(start, bytes, size);
		(void)snprintf(what, sizeof(what), "%zu bytes", size);
		both_start(&one);
		both_feed(&one, start, size);
		both_end(&one, what);
		both_start(&a);
		both_start(&b);
		both_feed_two(&a, &b, start, size);
		both_end(&a, what);
		both_end(&b, what);
		free(exact);
	}
}

static void test_no_bytes(void **state UNUSED)
{
	struct both a, b;

	both_start(&a);
	both_start(&b);
	both_feed(&a, bytes, 5);
	sha256_feed(&a.own, NULL, 0);
	sha256_feed_two(&a.own, &b.own, NULL, 0);
	both_end(&a, "nothing after 5 bytes");
	both_end(&b, "nothing at all");
}

/* Prefixes of all relative places in a block; then so much that both, one or none of the states completes a block. */
static void test_every_pair_of_prefixes(void **state UNUSED)
{
	static const size_t COMMON[] = { 1, 60, 63, 64, 65, 127, 200 };
	struct both a, b;
	char what[64];

	for (size_t first = 0; first <= 65; first++) {
		for (size_t second = 0; second <= 65; second++) {
			for (size_t i = 0; i < COUNT_OF(COMMON); i++) {
				(void)snprintf(what, sizeof(what), "prefixes %zu, %zu, then %zu", first, second,
					       COMMON[i]);
				both_start(&a);
				both_start(&b);
				both_feed(&a, bytes + 1000, first);
				both_feed(&b, bytes + 2000, second);
				both_feed_two(&a, &b, bytes + first, COMMON[i]);
				/* And on from there, each its own way. */
				both_feed(&a, bytes + 3000, 70);
				both_end(&a, what);
				both_end(&b, what);
			}
		}
	}
}

/* Long messages in random pieces at random alignments, together and alone by turns; the second state begins anew now and then, as a chunk's
 * digest does within its file's. */
static void test_random_splits(void **state UNUSED)
{
	static const size_t PIECE_MAX[] = { 3, 64, 100, 1000, 65536 };
	struct both a, b;
	struct rng rng;

	for (uint64_t seed = 1; seed <= 60; seed++) {
		size_t piece_max = PIECE_MAX[seed % COUNT_OF(PIECE_MAX)];

		rng_seed(&rng, seed);
		both_start(&a);
		both_start(&b);
		for (size_t i = 0; i < 200; i++) {
			size_t size = rng_u64(&rng) % (piece_max + 1);
			const uint8_t *data = bytes + rng_u64(&rng) % (LONG_BYTES - size + 64);

			switch (rng_u64(&rng) % 8) {
			case 0:
				both_feed(&a, data, size);
				break;
			case 1:
				both_feed(&b, data, size);
				break;
			case 2:
				both_end(&b, "the one within");
				both_start(&b);
				break;
			default:
				both_feed_two(&a, &b, data, size);
			}
		}
		both_end(&a, "the one around");
		both_end(&b, "the last one within");
	}
}

static void test_long(void **state UNUSED)
{
	struct both a, b;

	/* Past 2^32 bits, where the length no longer fits one word. */
	both_start(&a);
	both_start(&b);
	both_feed(&b, bytes, 64);
	for (size_t done = 0; done < (size_t)513 * MIB; done += LONG_BYTES)
		both_feed_two(&a, &b, bytes, LONG_BYTES);
	both_end(&a, "513 MiB");
	both_end(&b, "513 MiB and 64 bytes");
}

/* The kernels by themselves: none touches more than its blocks and states. */
static void test_kernels_agree(void **state UNUSED)
{
	uint32_t a[8], b[8], one[8], other[8];

	for (size_t count = 0; count <= 9; count++) {
		uint8_t *exact = must_alloc(count * SHA256_BLOCK_BYTES + 1), *start = exact + 1;

		memcpy(start, bytes, count * SHA256_BLOCK_BYTES);
		for (size_t i = 0; i < 8; i++) {
			one[i] = a[i] = (uint32_t)i * 0x9e3779b9;
			other[i] = b[i] = ~a[i];
		}
		sha256x1_blocks(one, start, count);
		sha256x1_blocks(other, start, count);
		sha256x2_blocks(a, b, start, count);
		assert_memory_equal(a, one, sizeof(a));
		assert_memory_equal(b, other, sizeof(b));
		assert_memory_not_equal(a, b, sizeof(a));
		sha256x1_blocks(one, start, count);
		sha256x1_blocks(other, bytes + 77, count);
		sha256x2_blocks_apart(a, start, b, bytes + 77, count);
		assert_memory_equal(a, one, sizeof(a));
		assert_memory_equal(b, other, sizeof(b));
		free(exact);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_kernels_agree), cmocka_unit_test(test_every_length),
		cmocka_unit_test(test_no_bytes),      cmocka_unit_test(test_every_pair_of_prefixes),
		cmocka_unit_test(test_random_splits), cmocka_unit_test(test_long),
	};

	if (!sha256x2_is_available()) {
		(void)puts("t_sha256x2: this processor has no SHA instructions; t_digest tests what is used instead");
		return 0;
	}
	return cmocka_run_group_tests(tests, bytes_make, bytes_free);
}
