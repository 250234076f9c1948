#include "base/str.h"

#include <strings.h>

struct str str_from(const char *text) { return text ? (struct str){ text, strlen(text) } : STR_NONE; }

bool str_eq(struct str a, struct str b)
{
	return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

bool str_eq_c(struct str a, const char *b) { return str_eq(a, str_from(b)); }

static char lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c; }

bool str_eq_nocase(struct str a, struct str b)
{
	if (a.size != b.size)
		return false;
	for (size_t i = 0; i < a.size; i++) {
		if (lower(a.data[i]) != lower(b.data[i]))
			return false;
	}
	return true;
}

bool str_starts(struct str s, struct str prefix)
{
	return s.size >= prefix.size && str_eq((struct str){ s.data, prefix.size }, prefix);
}

static bool is_blank(char c) { return c == ' ' || c == '\t'; }

struct str str_trim(struct str s)
{
	while (s.size > 0 && is_blank(s.data[0])) {
		s.data++;
		s.size--;
	}
	while (s.size > 0 && is_blank(s.data[s.size - 1]))
		s.size--;
	return s;
}

bool str_cut(struct str *rest, char separator, struct str *ret_piece)
{
	const char *end;
	size_t size;

	if (rest->size == 0)
		return false;
	end = memchr(rest->data, separator, rest->size);
	if (!end) {
		*ret_piece = *rest;
		*rest = STR_NONE;
		return true;
	}
	size = (size_t)(end - rest->data);
	*ret_piece = (struct str){ rest->data, size };
	*rest = (struct str){ end + 1, rest->size - size - 1 };
	return true;
}

bool str_copy(struct str s, char *target, size_t target_size)
{
	if (target_size == 0)
		return false;
	target[0] = '\0';
	if (s.size >= target_size || (s.size > 0 && memchr(s.data, '\0', s.size)))
		return false;
	if (s.size > 0)
		memcpy(target, s.data, s.size);
	target[s.size] = '\0';
	return true;
}

bool str_eq_secret(struct str a, struct str b)
{
	/* volatile, or the compiler may stop at the first difference and so tell a caller with a clock where it is. */
	volatile unsigned char difference = 0;

	if (a.size != b.size)
		return false;
	for (size_t i = 0; i < a.size; i++)
		difference = (unsigned char)(difference | ((unsigned char)a.data[i] ^ (unsigned char)b.data[i]));
	return difference == 0;
}

bool str_to_u64(struct str s, uint64_t *ret_value)
{
	uint64_t value = 0;

	if (s.size == 0)
		return false;
	for (size_t i = 0; i < s.size; i++) {
		if (s.data[i] < '0' || s.data[i] > '9')
			return false;
		if (__builtin_mul_overflow(value, 10U, &value) ||
		    __builtin_add_overflow(value, (unsigned)(s.data[i] - '0'), &value))
			return false;
	}
	*ret_value = value;
	return true;
}

bool str_to_i64(struct str s, int64_t *ret_value)
{
	bool is_negative = s.size > 0 && s.data[0] == '-';
	uint64_t size;

	if (is_negative)
		s = (struct str){ s.data + 1, s.size - 1 };
	if (!str_to_u64(s, &size))
		return false;
	if (size > (uint64_t)INT64_MAX + (is_negative ? 1 : 0))
		return false;
	if (!is_negative)
		*ret_value = (int64_t)size;
	else
		*ret_value = size == 0 ? 0 : -(int64_t)(size - 1) - 1;
	return true;
}

bool str_to_octal(struct str s, uint32_t *ret_value)
{
	uint32_t value = 0;

	if (s.size == 0)
		return false;
	for (size_t i = 0; i < s.size; i++) {
		if (s.data[i] < '0' || s.data[i] > '7' || value > UINT32_MAX >> 3)
			return false;
		value = value << 3 | (uint32_t)(s.data[i] - '0');
	}
	*ret_value = value;
	return true;
}

/* Splits "12 KiB" into 12 and "KiB". */
static bool cut_number(struct str s, uint64_t *ret_value, struct str *ret_unit)
{
	size_t digits = 0;

	while (digits < s.size && s.data[digits] >= '0' && s.data[digits] <= '9')
		digits++;
	if (!str_to_u64((struct str){ s.data, digits }, ret_value))
		return false;
	*ret_unit = (struct str){ s.data + digits, s.size - digits };
	if (ret_unit->size == 0)
		return true;
	*ret_unit = str_trim(*ret_unit);
	/* A blank with nothing behind it, or behind the unit, is a slip. */
	return ret_unit->size > 0 && ret_unit->data + ret_unit->size == s.data + s.size;
}

bool str_to_size(struct str s, uint64_t *ret_bytes)
{
	static const char LETTERS[] = "KMGT";
	struct str unit;
	uint64_t value, scale = 1;
	const char *letter;

	if (!cut_number(s, &value, &unit))
		return false;
	letter = unit.size > 0 ? memchr(LETTERS, unit.data[0] == 'k' ? 'K' : unit.data[0], sizeof(LETTERS) - 1) : NULL;
	if (letter) {
		scale = (uint64_t)1 << (10 * (letter - LETTERS + 1));
		unit = (struct str){ unit.data + 1, unit.size - 1 };
		if (unit.size > 0 && unit.data[0] == 'i') {
			unit = (struct str){ unit.data + 1, unit.size - 1 };
			if (unit.size == 0)
				return false;
		}
	}
	if (unit.size > 0 && !str_eq(unit, STR("B")))
		return false;
	return !__builtin_mul_overflow(value, scale, ret_bytes);
}

bool str_to_duration(struct str s, int64_t *ret_us)
{
	static const struct {
		const char *name;
		int64_t scale_us;
	} UNITS[] = {
		{ "us", 1 },          { "ms", MSEC_US },      { "s", SEC_US },
		{ "m", 60 * SEC_US }, { "h", 3600 * SEC_US }, { "d", 86400 * SEC_US },
	};
	struct str unit;
	uint64_t value;

	if (!cut_number(s, &value, &unit))
		return false;
	for (size_t i = 0; i < COUNT_OF(UNITS); i++) {
		if (str_eq_c(unit, UNITS[i].name))
			return !__builtin_mul_overflow(value, UNITS[i].scale_us, ret_us);
	}
	return false;
}

static const char HEX[] = "0123456789abcdef";

void hex_encode(const void *data, size_t size, char *target)
{
	const unsigned char *bytes = data;

	for (size_t i = 0; i < size; i++) {
		target[2 * i] = HEX[bytes[i] >> 4];
		target[2 * i + 1] = HEX[bytes[i] & 15];
	}
	target[2 * size] = '\0';
}

/* -1 when c is not a hex digit. */
static int hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = lower(c);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* -1 when the two characters are not a byte in hex. */
static int hex_byte(const char *text)
{
	int high = hex_value(text[0]);
	int low = hex_value(text[1]);

	return high < 0 || low < 0 ? -1 : high << 4 | low;
}

bool hex_decode(struct str text, void *target, size_t target_size)
{
	unsigned char *bytes = target;

	if (text.size % 2 != 0 || text.size / 2 != target_size)
		return false;
	for (size_t i = 0; i < target_size; i++) {
		int value = hex_byte(text.data + 2 * i);

		if (value < 0)
			return false;
		bytes[i] = (unsigned char)value;
	}
	return true;
}

static const char BASE64URL[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

size_t base64url_encode(const void *data, size_t size, char *target, size_t target_size)
{
	const unsigned char *bytes = data;
	uint32_t held = 0;
	unsigned held_bits = 0;
	size_t used = 0;

	if (target_size == 0)
		return 0;
	target[0] = '\0';
	if (size > (SIZE_MAX - 2) / 4 || (size * 4 + 2) / 3 >= target_size)
		return 0;
	for (size_t i = 0; i < size; i++) {
		held = held << 8 | bytes[i];
		held_bits += 8;
		while (held_bits >= 6) {
			held_bits -= 6;
			target[used++] = BASE64URL[held >> held_bits & 63];
		}
	}
	if (held_bits > 0)
		target[used++] = BASE64URL[held << (6 - held_bits) & 63];
	target[used] = '\0';
	return used;
}

static int base64url_value(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	if (c == '-')
		return 62;
	return c == '_' ? 63 : -1;
}

bool base64url_decode(struct str text, void *target, size_t target_size, size_t *ret_size)
{
	unsigned char *bytes = target;
	uint32_t held = 0;
	unsigned held_bits = 0;
	size_t used = 0;

	if (text.size % 4 == 1)
		return false;
	for (size_t i = 0; i < text.size; i++) {
		int value = base64url_value(text.data[i]);

		if (value < 0)
			return false;
		held = held << 6 | (uint32_t)value;
		held_bits += 6;
		if (held_bits < 8)
			continue;
		held_bits -= 8;
		if (used == target_size)
			return false;
		bytes[used++] = (unsigned char)(held >> held_bits & 255);
	}
	/* Left-over bits must be zero: otherwise two texts would stand for the same bytes. */
	if ((held & ((1U << held_bits) - 1)) != 0)
		return false;
	*ret_size = used;
	return true;
}

static bool is_unreserved(char c)
{
	return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
	       c == '_' || c == '~';
}

size_t percent_encode(struct str s, bool keep_slash, char *target, size_t target_size)
{
	static const char UPPER_HEX[] = "0123456789ABCDEF";
	size_t used = 0;

	if (target_size == 0)
		return 0;
	for (size_t i = 0; i < s.size; i++) {
		unsigned char byte = (unsigned char)s.data[i];
		bool is_kept = is_unreserved(s.data[i]) || (keep_slash && byte == '/');

		if (target_size - used <= (is_kept ? 1U : 3U)) {
			target[0] = '\0';
			return 0;
		}
		if (is_kept) {
			target[used++] = s.data[i];
			continue;
		}
		target[used++] = '%';
		target[used++] = UPPER_HEX[byte >> 4];
		target[used++] = UPPER_HEX[byte & 15];
	}
	target[used] = '\0';
	return used;
}

bool percent_decode(struct str s, char *target, size_t target_size, size_t *ret_size)
{
	size_t used = 0;

	for (size_t i = 0; i < s.size; i++) {
		char c = s.data[i];

		if (c == '%') {
			int value = s.size - i > 2 ? hex_byte(s.data + i + 1) : -1;

			if (value < 0)
				return false;
			c = (char)value;
			i += 2;
		}
		if (used == target_size)
			return false;
		target[used++] = c;
	}
	*ret_size = used;
	return true;
}

/* Table 3-7 of the Unicode standard: what the first byte allows as the second. The rest are 80..BF. */
size_t utf8_char_size(struct str s)
{
	static const struct {
		unsigned char first_low, first_high, second_low, second_high, size;
	} FORMS[] = {
		{ 0xC2, 0xDF, 0x80, 0xBF, 2 }, { 0xE0, 0xE0, 0xA0, 0xBF, 3 }, { 0xE1, 0xEC, 0x80, 0xBF, 3 },
		{ 0xED, 0xED, 0x80, 0x9F, 3 }, { 0xEE, 0xEF, 0x80, 0xBF, 3 }, { 0xF0, 0xF0, 0x90, 0xBF, 4 },
		{ 0xF1, 0xF3, 0x80, 0xBF, 4 }, { 0xF4, 0xF4, 0x80, 0x8F, 4 },
	};
	const unsigned char *bytes = (const unsigned char *)s.data;

	if (s.size == 0)
		return 0;
	if (bytes[0] < 0x80)
		return 1;
	for (size_t i = 0; i < COUNT_OF(FORMS); i++) {
		if (bytes[0] < FORMS[i].first_low || bytes[0] > FORMS[i].first_high)
			continue;
		if (s.size < FORMS[i].size || bytes[1] < FORMS[i].second_low || bytes[1] > FORMS[i].second_high)
			return 0;
		for (size_t j = 2; j < FORMS[i].size; j++) {
			if ((bytes[j] & 0xC0) != 0x80)
				return 0;
		}
		return FORMS[i].size;
	}
	return 0;
}

bool utf8_is_valid(struct str s)
{
	while (s.size > 0) {
		size_t size = utf8_char_size(s);

		if (size == 0)
			return false;
		s = (struct str){ s.data + size, s.size - size };
	}
	return true;
}

/* Would a terminal act on it? C0, DEL, and the C1 controls, which in UTF-8 are C2 80..9F. */
static bool is_control(const unsigned char *bytes, size_t size)
{
	if (size == 1)
		return bytes[0] < 0x20 || bytes[0] == 0x7F;
	return size == 2 && bytes[0] == 0xC2 && bytes[1] < 0xA0;
}

char *str_display(struct str s, char *target, size_t target_size)
{
	size_t used = 0;

	MUST(target_size > 0);
	while (s.size > 0) {
		const unsigned char *bytes = (const unsigned char *)s.data;
		size_t size = utf8_char_size(s);
		bool is_shown = size > 0 && !is_control(bytes, size);
		size_t taken = is_shown ? size : 1;
		size_t room = is_shown ? size : strlen("\\xNN");

		if (target_size - used <= room)
			break;
		if (is_shown) {
			memcpy(target + used, s.data, size);
		} else {
			target[used] = '\\';
			target[used + 1] = 'x';
			target[used + 2] = HEX[bytes[0] >> 4];
			target[used + 3] = HEX[bytes[0] & 15];
		}
		used += room;
		s = (struct str){ s.data + taken, s.size - taken };
	}
	target[used] = '\0';
	return target;
}

char *size_display(uint64_t bytes, char *target, size_t target_size)
{
	static const char LETTERS[] = "KMGTPE";
	size_t step = 0;
	uint64_t unit;

	if (bytes < 1024) {
		snprintf(target, target_size, "%u B", (unsigned)bytes);
		return target;
	}
	while (step + 1 < sizeof(LETTERS) - 1 && bytes >> (10 * (step + 2)) != 0)
		step++;
	unit = (uint64_t)1 << (10 * (step + 1));
	/* Cut, not rounded: free space is never overstated, and 1023.99 KiB does not become 1024.0. Ten times what is below
	 * an EiB still fits. */
	snprintf(target, target_size, "%u.%u %ciB", (unsigned)(bytes / unit), (unsigned)(bytes % unit * 10 / unit),
		 LETTERS[step]);
	return target;
}
