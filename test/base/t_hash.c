#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/hash.h"

/* The input of xxHash's own table of wanted values. */
static void fill_sanity(unsigned char *data, size_t size)
{
	uint64_t generator = 2654435761U;

	for (size_t i = 0; i < size; i++) {
		data[i] = (unsigned char)(generator >> 56);
		generator *= 11400714785074694797U;
	}
}

static void test_xxh3_64(void **state UNUSED)
{
	static const struct {
		size_t size;
		uint64_t hash;
	} ROWS[] = {
		{ 0, 0x2D06800538D394C2U },   { 1, 0xC44BDFF4074EECDBU },    { 6, 0x27B56A84CD2D7325U },
		{ 12, 0xA713DAF0DFBB77E7U },  { 24, 0xA3FE70BF9D3510EBU },   { 48, 0x397DA259ECBA1F11U },
		{ 80, 0xBCDEFBBB2C47C90AU },  { 195, 0xCD94217EE362EC3AU },  { 403, 0xCDEB804D65C6DEA4U },
		{ 512, 0x617E49599013CB6BU }, { 2048, 0xDD59E2C3A5F038E0U }, { 2367, 0xCB37AEB9E5D361EDU },
	};
	unsigned char data[2367];

	fill_sanity(data, sizeof(data));
	for (size_t i = 0; i < COUNT_OF(ROWS); i++) {
		if (hash64(data, ROWS[i].size) != ROWS[i].hash)
			fail_msg("XXH3 64 of %zu bytes is %llx", ROWS[i].size,
				 (unsigned long long)hash64(data, ROWS[i].size));
	}
	assert_true(hash64(NULL, 0) == ROWS[0].hash);
}

static void test_xxh3_128(void **state UNUSED)
{
	static const struct {
		size_t size;
		struct hash128 hash;
	} ROWS[] = {
		{ 0, { 0x6001C324468D497FU, 0x99AA06D3014798D8U } },
		{ 1, { 0xC44BDFF4074EECDBU, 0xA6CD5E9392000F6AU } },
		{ 6, { 0x3E7039BDDA43CFC6U, 0x082AFE0B8162D12AU } },
		{ 12, { 0x061A192713F69AD9U, 0x6E3EFD8FC7802B18U } },
		{ 24, { 0x1E7044D28B1B901DU, 0x0CE966E4678D3761U } },
		{ 2367, { 0xCB37AEB9E5D361EDU, 0xE89C0F6FF369B427U } },
	};
	unsigned char data[2367];

	fill_sanity(data, sizeof(data));
	for (size_t i = 0; i < COUNT_OF(ROWS); i++) {
		struct hash128 hash = hash128(data, ROWS[i].size);

		if (hash.low != ROWS[i].hash.low || hash.high != ROWS[i].hash.high)
			fail_msg("XXH3 128 of %zu bytes is %llx %llx", ROWS[i].size, (unsigned long long)hash.low,
				 (unsigned long long)hash.high);
	}
	assert_true(hash128(NULL, 0).low == ROWS[0].hash.low);
}

static void test_crc32c(void **state UNUSED)
{
	/* RFC 3720, appendix B.4 */
	unsigned char zeros[32] = { 0 }, ones[32], rising[32], falling[32];

	memset(ones, 0xFF, sizeof(ones));
	for (size_t i = 0; i < 32; i++) {
		rising[i] = (unsigned char)i;
		falling[i] = (unsigned char)(31 - i);
	}
	assert_int_equal(crc32c(0, zeros, 32), 0x8A9136AA);
	assert_int_equal(crc32c(0, ones, 32), 0x62A8AB43);
	assert_int_equal(crc32c(0, rising, 32), 0x46DD794E);
	assert_int_equal(crc32c(0, falling, 32), 0x113FDB5C);
	assert_int_equal(crc32c(0, "123456789", 9), 0xE3069283);
	assert_int_equal(crc32c(0, NULL, 0), 0);
	assert_int_equal(crc32c(0xE3069283, NULL, 0), 0xE3069283);
}

static void test_crc32c_in_pieces(void **state UNUSED)
{
	unsigned char data[300];
	uint32_t whole, pieces = 0;

	fill_sanity(data, sizeof(data));
	whole = crc32c(0, data, sizeof(data));
	for (size_t cut = 0; cut <= sizeof(data); cut++)
		assert_int_equal(crc32c(crc32c(0, data, cut), data + cut, sizeof(data) - cut), whole);
	for (size_t i = 0; i < sizeof(data); i++)
		pieces = crc32c(pieces, data + i, 1);
	assert_int_equal(pieces, whole);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_xxh3_64),
		cmocka_unit_test(test_xxh3_128),
		cmocka_unit_test(test_crc32c),
		cmocka_unit_test(test_crc32c_in_pieces),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
