#include "base/hash.h"

#include <isa-l/crc.h>
#include <xxhash.h>

uint64_t hash64(const void *data, size_t size) { return XXH3_64bits(size > 0 ? data : "", size); }

struct hash128 hash128(const void *data, size_t size)
{
	XXH128_hash_t hash = XXH3_128bits(size > 0 ? data : "", size);

	return (struct hash128){ .low = hash.low64, .high = hash.high64 };
}

uint32_t crc32c(uint32_t crc, const void *data, size_t size)
{
	/* isa-l takes an int as the size, and leaves the inversion at both ends to the caller. Its parameter lacks const
	 * but is only read. */
	unsigned char *next = (unsigned char *)data;
	uint32_t state = ~crc;

	while (size > 0) {
		size_t piece = min_size(size, GIB);

		state = crc32_iscsi(next, (int)piece, state);
		next += piece;
		size -= piece;
	}
	return ~state;
}
