#include "base/sha256.h"

static void put_big_endian(uint8_t *target, uint64_t value, size_t size)
{
	for (size_t i = 0; i < size; i++)
		target[i] = (uint8_t)(value >> (8 * (size - 1 - i)));
}

/* What is still to be fed to one state. */
struct rest {
	const uint8_t *data;
	size_t size;
};

/* Completes the block that waits, as far as the bytes reach. */
static void feed_partial(struct sha256 *sha256, struct rest *rest)
{
	size_t used = sha256->size_bytes % SHA256_BLOCK_BYTES;
	size_t taken = min_size(rest->size, SHA256_BLOCK_BYTES - used);

	if (used == 0 || taken == 0)
		return;
	memcpy(sha256->partial + used, rest->data, taken);
	if (used + taken == SHA256_BLOCK_BYTES)
		sha256x1_blocks(sha256->words, sha256->partial, 1);
	sha256->size_bytes += taken;
	*rest = (struct rest){ rest->data + taken, rest->size - taken };
}

static void skip_blocks(struct sha256 *sha256, struct rest *rest, size_t block_count)
{
	size_t size = block_count * SHA256_BLOCK_BYTES;

	sha256->size_bytes += size;
	*rest = (struct rest){ rest->data + size, rest->size - size };
}

/* After the partial block: whole ones, and the next partial one. */
static void feed_rest(struct sha256 *sha256, struct rest rest)
{
	size_t block_count = rest.size / SHA256_BLOCK_BYTES;

	if (block_count > 0)
		sha256x1_blocks(sha256->words, rest.data, block_count);
	skip_blocks(sha256, &rest, block_count);
	if (rest.size > 0)
		memcpy(sha256->partial, rest.data, rest.size);
	sha256->size_bytes += rest.size;
}

void sha256_start(struct sha256 *sha256)
{
	static const uint32_t WORDS[8] = {
		0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
	};

	memcpy(sha256->words, WORDS, sizeof(WORDS));
	sha256->size_bytes = 0;
}

void sha256_feed(struct sha256 *sha256, const void *data, size_t size)
{
	struct rest rest = { data, size };

	if (size == 0) /* data may be NULL */
		return;
	feed_partial(sha256, &rest);
	if (rest.size > 0)
		feed_rest(sha256, rest);
}

void sha256_feed_two(struct sha256 *a, struct sha256 *b, const void *data, size_t size)
{
	struct rest rest_a = { data, size }, rest_b = rest_a;
	size_t block_count;

	if (size == 0)
		return;
	feed_partial(a, &rest_a);
	feed_partial(b, &rest_b);
	block_count = min_size(rest_a.size, rest_b.size) / SHA256_BLOCK_BYTES;
	if (block_count > 0 && rest_a.data == rest_b.data)
		sha256x2_blocks(a->words, b->words, rest_a.data, block_count);
	else if (block_count > 0)
		sha256x2_blocks_apart(a->words, rest_a.data, b->words, rest_b.data, block_count);
	skip_blocks(a, &rest_a, block_count);
	skip_blocks(b, &rest_b, block_count);
	if (rest_a.size > 0)
		feed_rest(a, rest_a);
	if (rest_b.size > 0)
		feed_rest(b, rest_b);
}

void sha256_end(struct sha256 *sha256, uint8_t target[SHA256_BYTES])
{
	uint8_t tail[2 * SHA256_BLOCK_BYTES] = { 0 };
	size_t used = sha256->size_bytes % SHA256_BLOCK_BYTES;
	/* A one bit, zeros, and the length in bits in the last eight bytes, which may take a block of their own. */
	size_t block_count = used + 1 + 8 > SHA256_BLOCK_BYTES ? 2 : 1;

	memcpy(tail, sha256->partial, used);
	tail[used] = 0x80;
	put_big_endian(tail + block_count * SHA256_BLOCK_BYTES - 8, sha256->size_bytes * 8, 8);
	sha256x1_blocks(sha256->words, tail, block_count);
	for (size_t i = 0; i < COUNT_OF(sha256->words); i++)
		put_big_endian(target + 4 * i, sha256->words[i], 4);
}
