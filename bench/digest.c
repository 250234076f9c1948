/* How fast bytes are hashed, from memory that is in the processor's cache, as the client hashes what it has just read: by OpenSSL, by our own
 * SHA-256, and for two digests at once (per byte of input, not per byte hashed). One line each. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/digest.h"
#include "base/sha256x2.h"

#define PIECE_BYTES (256 * KIB)
#define PIECE_COUNT 256
#define ROUNDS      5 /* the best counts: other programs only ever make it slower */

static unsigned char piece[PIECE_BYTES];

static void report(const char *what, int64_t best_us)
{
	uint64_t mb_per_s = (uint64_t)PIECE_BYTES * PIECE_COUNT / (uint64_t)max_i64(best_us, 1);

	(void)printf("digest: %s: %llu.%02llu GB/s\n", what, (unsigned long long)(mb_per_s / 1000),
		     (unsigned long long)(mb_per_s % 1000 / 10));
}

/* For two, both get every piece, the second after `ahead` bytes of its own. */
static void bench(const char *what, bool is_openssl, enum digest_kind kind, bool is_two, size_t ahead)
{
	struct digest *first, *second;
	int64_t best_us = INT64_MAX;
	char hex[DIGEST_HEX_SIZE];

	digest_force_openssl(is_openssl);
	first = digest_new(kind);
	second = digest_new(kind);
	for (int round = 0; round < ROUNDS; round++) {
		int64_t start_us;

		digest_restart(first);
		digest_restart(second);
		digest_feed(second, piece, ahead);
		start_us = clock_mono_us();
		for (int i = 0; i < PIECE_COUNT; i++) {
			if (is_two)
				digest_feed_two(first, second, piece, PIECE_BYTES);
			else
				digest_feed(first, piece, PIECE_BYTES);
		}
		digest_hex(first, hex);
		digest_hex(second, hex);
		best_us = min_i64(best_us, clock_mono_us() - start_us);
	}
	report(what, best_us);
	digest_free(&first);
	digest_free(&second);
	digest_force_openssl(false);
}

int main(void)
{
	for (size_t i = 0; i < PIECE_BYTES; i++)
		piece[i] = (unsigned char)(i * 31 + i / 251);
	bench("SHA-256, OpenSSL", true, DIGEST_SHA256, false, 0);
	bench("SHA-256, OpenSSL, for two", true, DIGEST_SHA256, true, 0);
	if (sha256x2_is_available()) {
		bench("SHA-256, own", false, DIGEST_SHA256, false, 0);
		bench("SHA-256, own, for two at the same byte of a block", false, DIGEST_SHA256, true, 0);
		bench("SHA-256, own, for two at different bytes of a block", false, DIGEST_SHA256, true, 13);
	} else {
		(void)puts("digest: this processor has no SHA instructions; SHA-256 is OpenSSL's");
	}
	bench("MD5, OpenSSL", true, DIGEST_MD5, false, 0);
	bench("MD5, OpenSSL, for two", true, DIGEST_MD5, true, 0);
	return 0;
}
