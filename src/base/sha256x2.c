#include "base/sha256x2.h"

#if defined(__x86_64__)

#include <cpuid.h>
#include <immintrin.h>
#include <stdatomic.h>

#define WITH_SHA __attribute__((target("sha,sse4.1,ssse3")))
/* The variants differ in constants only; each caller gets a copy without the branches. */
#define INTO_CALLER WITH_SHA __attribute__((always_inline)) static inline

/* CPUID: leaf 1 in ecx, leaf 7 in ebx. */
#define CPU_SSSE3  (1u << 9)
#define CPU_SSE4_1 (1u << 19)
#define CPU_SHA    (1u << 29)

static const uint32_t ROUND_KEYS[64] __attribute__((aligned(16))) = {
	0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
	0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
	0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
	0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
	0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
	0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
	0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
	0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static bool find_instructions(void)
{
	unsigned eax, ebx, ecx, edx;

	if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !(ecx & CPU_SSSE3) || !(ecx & CPU_SSE4_1))
		return false;
	return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && (ebx & CPU_SHA);
}

bool sha256x2_is_available(void)
{
	/* Asking takes long in a virtual machine, which traps it. Threads that race here find the same. */
	enum { UNKNOWN, ABSENT, PRESENT };
	static atomic_int known = UNKNOWN;
	int now = atomic_load_explicit(&known, memory_order_relaxed);

	if (now == UNKNOWN) {
		now = find_instructions() ? PRESENT : ABSENT;
		atomic_store_explicit(&known, now, memory_order_relaxed);
	}
	return now == PRESENT;
}

/* The words a to h in the order in which the instructions want them. */
struct lanes {
	__m128i abef, cdgh;
};

INTO_CALLER struct lanes lanes_load(const uint32_t state[8])
{
	__m128i cdab = _mm_shuffle_epi32(_mm_loadu_si128((const void *)state), 0xb1);
	__m128i efgh = _mm_shuffle_epi32(_mm_loadu_si128((const void *)(state + 4)), 0x1b);

	return (struct lanes){ _mm_alignr_epi8(cdab, efgh, 8), _mm_blend_epi16(efgh, cdab, 0xf0) };
}

INTO_CALLER void lanes_store(uint32_t state[8], struct lanes lanes)
{
	__m128i feba = _mm_shuffle_epi32(lanes.abef, 0x1b), dchg = _mm_shuffle_epi32(lanes.cdgh, 0xb1);

	_mm_storeu_si128((void *)state, _mm_blend_epi16(feba, dchg, 0xf0));
	_mm_storeu_si128((void *)(state + 4), _mm_alignr_epi8(dchg, feba, 8));
}

/* A block's sixteen words, which the schedule replaces by the next sixteen, four at a time. */
struct words {
	__m128i w0, w1, w2, w3;
};

INTO_CALLER struct words words_load(const uint8_t *block)
{
	const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);

	return (struct words){
		_mm_shuffle_epi8(_mm_loadu_si128((const void *)block), big_endian),
		_mm_shuffle_epi8(_mm_loadu_si128((const void *)(block + 16)), big_endian),
		_mm_shuffle_epi8(_mm_loadu_si128((const void *)(block + 32)), big_endian),
		_mm_shuffle_epi8(_mm_loadu_si128((const void *)(block + 48)), big_endian),
	};
}

/* w0 becomes the four words after w3. */
INTO_CALLER __m128i words_next(__m128i w0, __m128i w1, __m128i w2, __m128i w3)
{
	__m128i sum = _mm_add_epi32(_mm_sha256msg1_epu32(w0, w1), _mm_alignr_epi8(w3, w2, 4));

	return _mm_sha256msg2_epu32(sum, w3);
}

enum variant { ONE, TWO_TOGETHER, TWO_APART };

struct pair {
	struct lanes a, b;
};

/* Four rounds. Two states' instructions alternate, since each state's own have to wait for each other. */
INTO_CALLER void rounds(struct pair *pair, enum variant variant, __m128i words_a, __m128i words_b, const uint32_t *keys)
{
	__m128i key = _mm_load_si128((const void *)keys);
	__m128i sum_a = _mm_add_epi32(words_a, key);
	__m128i sum_b = variant == TWO_APART ? _mm_add_epi32(words_b, key) : sum_a;

	pair->a.cdgh = _mm_sha256rnds2_epu32(pair->a.cdgh, pair->a.abef, sum_a);
	if (variant != ONE)
		pair->b.cdgh = _mm_sha256rnds2_epu32(pair->b.cdgh, pair->b.abef, sum_b);
	sum_a = _mm_shuffle_epi32(sum_a, 0x0e);
	sum_b = variant == TWO_APART ? _mm_shuffle_epi32(sum_b, 0x0e) : sum_a;
	pair->a.abef = _mm_sha256rnds2_epu32(pair->a.abef, pair->a.cdgh, sum_a);
	if (variant != ONE)
		pair->b.abef = _mm_sha256rnds2_epu32(pair->b.abef, pair->b.cdgh, sum_b);
}

INTO_CALLER void sixteen_rounds(struct pair *pair, enum variant variant, struct words *a, struct words *b,
				const uint32_t *keys, bool is_last)
{
	bool is_scheduled_a = !is_last, is_scheduled_b = !is_last && variant == TWO_APART;

	rounds(pair, variant, a->w0, b->w0, keys);
	a->w0 = is_scheduled_a ? words_next(a->w0, a->w1, a->w2, a->w3) : a->w0;
	b->w0 = is_scheduled_b ? words_next(b->w0, b->w1, b->w2, b->w3) : b->w0;
	rounds(pair, variant, a->w1, b->w1, keys + 4);
	a->w1 = is_scheduled_a ? words_next(a->w1, a->w2, a->w3, a->w0) : a->w1;
	b->w1 = is_scheduled_b ? words_next(b->w1, b->w2, b->w3, b->w0) : b->w1;
	rounds(pair, variant, a->w2, b->w2, keys + 8);
	a->w2 = is_scheduled_a ? words_next(a->w2, a->w3, a->w0, a->w1) : a->w2;
	b->w2 = is_scheduled_b ? words_next(b->w2, b->w3, b->w0, b->w1) : b->w2;
	rounds(pair, variant, a->w3, b->w3, keys + 12);
	a->w3 = is_scheduled_a ? words_next(a->w3, a->w0, a->w1, a->w2) : a->w3;
	b->w3 = is_scheduled_b ? words_next(b->w3, b->w0, b->w1, b->w2) : b->w3;
}

INTO_CALLER struct lanes lanes_add(struct lanes x, struct lanes y)
{
	return (struct lanes){ _mm_add_epi32(x.abef, y.abef), _mm_add_epi32(x.cdgh, y.cdgh) };
}

INTO_CALLER void blocks(enum variant variant, uint32_t a[8], const uint8_t *data_a, uint32_t b[8],
			const uint8_t *data_b, size_t block_count)
{
	struct pair pair = { lanes_load(a), lanes_load(b) };

	for (size_t i = 0; i < block_count; i++) {
		struct pair before = pair;
		struct words words_a = words_load(data_a + i * SHA256_BLOCK_BYTES);
		struct words words_b = variant == TWO_APART ? words_load(data_b + i * SHA256_BLOCK_BYTES) : words_a;

		sixteen_rounds(&pair, variant, &words_a, &words_b, ROUND_KEYS, false);
		sixteen_rounds(&pair, variant, &words_a, &words_b, ROUND_KEYS + 16, false);
		sixteen_rounds(&pair, variant, &words_a, &words_b, ROUND_KEYS + 32, false);
		sixteen_rounds(&pair, variant, &words_a, &words_b, ROUND_KEYS + 48, true);
		pair.a = lanes_add(pair.a, before.a);
		pair.b = lanes_add(pair.b, before.b);
	}
	lanes_store(a, pair.a);
	if (variant != ONE)
		lanes_store(b, pair.b);
}

WITH_SHA void sha256x1_blocks(uint32_t state[8], const void *data, size_t block_count)
{
	blocks(ONE, state, data, state, data, block_count);
}

WITH_SHA void sha256x2_blocks(uint32_t a[8], uint32_t b[8], const void *data, size_t block_count)
{
	blocks(TWO_TOGETHER, a, data, b, data, block_count);
}

WITH_SHA void sha256x2_blocks_apart(uint32_t a[8], const void *data_a, uint32_t b[8], const void *data_b,
				    size_t block_count)
{
	blocks(TWO_APART, a, data_a, b, data_b, block_count);
}

#else

bool sha256x2_is_available(void) { return false; }

void sha256x1_blocks(uint32_t state[8] UNUSED, const void *data UNUSED, size_t block_count UNUSED)
{
	MUST(sha256x2_is_available());
}

void sha256x2_blocks(uint32_t a[8] UNUSED, uint32_t b[8] UNUSED, const void *data UNUSED, size_t block_count UNUSED)
{
	MUST(sha256x2_is_available());
}

void sha256x2_blocks_apart(uint32_t a[8] UNUSED, const void *data_a UNUSED, uint32_t b[8] UNUSED,
			   const void *data_b UNUSED, size_t block_count UNUSED)
{
	MUST(sha256x2_is_available());
}

#endif
