/* Names and sizes of what seal.c encrypts. */
#include "base/digest.h"
#include "base/mem.h"
#include "wire/seal_impl.h"

#define KEY_ID_INFO "heng key id 1"

static const struct cipher_row {
	const char *name;
	size_t header_bytes, tag_bytes;
	struct str begin; /* of the header; its first byte is the header's size */
} ROWS[] = {
	[SEAL_AES] = { "aes", 40, 16, { "\x28", 1 } },
	[SEAL_SM4] = { "sm4", 48, 32, { "\x30hengsm4\x01", 9 } },
};

static const struct cipher_row *row_of(enum seal_cipher cipher)
{
	MUST((size_t)cipher < COUNT_OF(ROWS));
	return &ROWS[cipher];
}

size_t seal_header_bytes(enum seal_cipher cipher) { return row_of(cipher)->header_bytes; }

size_t seal_tag_bytes(enum seal_cipher cipher) { return row_of(cipher)->tag_bytes; }

size_t seal_header_begin(enum seal_cipher cipher, uint8_t *target)
{
	const struct str begin = row_of(cipher)->begin;

	memcpy(target, begin.data, begin.size);
	return begin.size;
}

const char *seal_cipher_name(enum seal_cipher cipher) { return row_of(cipher)->name; }

static bool find_name(struct str name, enum seal_cipher *ret_cipher)
{
	for (size_t i = 0; i < COUNT_OF(ROWS); i++) {
		*ret_cipher = (enum seal_cipher)i;
		if (str_eq_c(name, ROWS[i].name))
			return true;
	}
	return false;
}

bool seal_cipher_from_name(struct str name, enum seal_cipher *ret_cipher)
{
	enum seal_cipher cipher;

	if (!find_name(name, &cipher) || !seal_cipher_is_here(cipher))
		return false;
	*ret_cipher = cipher;
	return true;
}

bool seal_cipher_from_head(uint8_t head, enum seal_cipher *ret_cipher)
{
	for (size_t i = 0; i < COUNT_OF(ROWS); i++) {
		*ret_cipher = (enum seal_cipher)i;
		if (head == ROWS[i].header_bytes)
			return seal_cipher_is_here(*ret_cipher);
	}
	return false;
}

void seal_key_id(const uint8_t key[SEAL_KEY_SIZE], char target[SEAL_ID_SIZE])
{
	uint8_t derived[MAC_SIZE];

	mac_derive(key, SEAL_KEY_SIZE, STR(KEY_ID_INFO), derived);
	hex_encode(derived, (SEAL_ID_SIZE - 1) / 2, target);
	mem_wipe(derived, sizeof(derived));
}

void seal_label(enum seal_cipher cipher, const char *key_id, char target[SEAL_LABEL_SIZE])
{
	snprintf(target, SEAL_LABEL_SIZE, "%s:%s", seal_cipher_name(cipher), key_id);
}

/* A server need not be able to compute what it names. */
bool seal_label_parse(struct str label, enum seal_cipher *ret_cipher, char ret_key_id[SEAL_ID_SIZE])
{
	struct str name;
	uint8_t id[(SEAL_ID_SIZE - 1) / 2];
	char text[SEAL_ID_SIZE];

	if (!str_cut(&label, ':', &name) || !find_name(name, ret_cipher) || !hex_decode(label, id, sizeof(id)))
		return false;
	/* In lower case: two labels that say the same are the same. */
	hex_encode(id, sizeof(id), text);
	if (ret_key_id)
		memcpy(ret_key_id, text, sizeof(text));
	return str_eq_c(label, text);
}

/* --- sizes --- */

static uint64_t first_plain(const struct cipher_row *row)
{
	return SEAL_SEGMENT_BYTES - row->header_bytes - row->tag_bytes;
}

static uint64_t other_plain(const struct cipher_row *row) { return SEAL_SEGMENT_BYTES - row->tag_bytes; }

/* There is always a segment, and none but the first is empty. */
uint64_t seal_segment_count(enum seal_cipher cipher, uint64_t plain_bytes)
{
	const struct cipher_row *row = row_of(cipher);
	const uint64_t first = first_plain(row), other = other_plain(row);

	if (plain_bytes <= first)
		return 1;
	return 1 + (plain_bytes - first) / other + ((plain_bytes - first) % other != 0);
}

uint64_t seal_stored_size(enum seal_cipher cipher, uint64_t plain_bytes)
{
	const struct cipher_row *row = row_of(cipher);

	return row->header_bytes + plain_bytes + seal_segment_count(cipher, plain_bytes) * row->tag_bytes;
}

bool seal_plain_size(enum seal_cipher cipher, uint64_t stored_bytes, uint64_t *ret_bytes)
{
	const struct cipher_row *row = row_of(cipher);
	const uint64_t count = stored_bytes / SEAL_SEGMENT_BYTES + (stored_bytes % SEAL_SEGMENT_BYTES != 0);
	const uint64_t added = row->header_bytes + count * row->tag_bytes;

	/* The numbers of segments have 32 bits. */
	if (stored_bytes < added || count == 0 || count > UINT32_MAX)
		return false;
	*ret_bytes = stored_bytes - added;
	/* A last segment of nothing but a tag, or of less, is none. */
	return seal_stored_size(cipher, *ret_bytes) == stored_bytes;
}

struct seal_span seal_span(enum seal_cipher cipher, uint64_t plain_bytes, uint64_t segment_index)
{
	const struct cipher_row *row = row_of(cipher);
	const size_t header_bytes = segment_index == 0 ? row->header_bytes : 0;
	struct seal_span span = { .stored_at = segment_index * SEAL_SEGMENT_BYTES };

	MUST(segment_index < seal_segment_count(cipher, plain_bytes));
	if (segment_index > 0)
		span.plain_at = first_plain(row) + (segment_index - 1) * other_plain(row);
	span.plain_bytes = min_size(plain_bytes - span.plain_at,
				    segment_index == 0 ? first_plain(row) : other_plain(row));
	span.stored_bytes = header_bytes + span.plain_bytes + row->tag_bytes;
	return span;
}
