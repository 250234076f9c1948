/* Fast, non-cryptographic hashes: XXH3 (xxhash), CRC-32C (isa-l; RFC 3720 polynomial, as in iSCSI). */
#ifndef HENG_BASE_HASH_H
#define HENG_BASE_HASH_H

#include "base/str.h"

struct hash128 {
	uint64_t low, high;
};

uint64_t hash64(const void *data, size_t size);
struct hash128 hash128(const void *data, size_t size);
/* Start with crc 0; feeding pieces equals feeding the whole. CRC-32C of "123456789" is 0xE3069283. */
uint32_t crc32c(uint32_t crc, const void *data, size_t size);

#endif
