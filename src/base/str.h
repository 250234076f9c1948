/* Slices of bytes that never own, and the text encodings used on the wire. */
#ifndef HENG_BASE_STR_H
#define HENG_BASE_STR_H

#include "base/base.h"

struct str {
	const char *data;
	size_t size;
};

#define STR(literal) ((struct str){ "" literal, sizeof(literal) - 1 })
#define STR_NONE     ((struct str){ NULL, 0 })
/* For printf: "%.*s", STR_ARG(s) */
#define STR_ARG(s) (int)(s).size, (s).data ? (s).data : ""

struct str str_from(const char *text); /* NULL gives STR_NONE */
bool str_eq(struct str a, struct str b);
bool str_eq_c(struct str a, const char *b);
bool str_eq_nocase(struct str a, struct str b); /* ASCII */
bool str_starts(struct str s, struct str prefix);
struct str str_trim(struct str s); /* spaces and tabs at both ends */
/* Cuts the next piece up to `separator` from *rest; false when nothing is left. "a,,b" gives a, "", b; "a," gives a alone, so that
 * text whose lines all end with the separator has no empty last line. */
bool str_cut(struct str *rest, char separator, struct str *ret_piece);
/* Copies with a terminating NUL; false when it does not fit or holds a NUL (then target is ""). */
bool str_copy(struct str s, char *target, size_t target_size);
/* Constant time in the content (not the length): for secrets. */
bool str_eq_secret(struct str a, struct str b);

/* Strict decimal, digits only, no sign, whole slice, overflow refused. */
bool str_to_u64(struct str s, uint64_t *ret_value);
bool str_to_i64(struct str s, int64_t *ret_value); /* one leading '-' allowed */
bool str_to_octal(struct str s, uint32_t *ret_value);
/* "8MiB", "64k", "1048576", "2 GiB": binary units (k, K, KiB, M, MiB, G, GiB, T, TiB; B may follow). */
bool str_to_size(struct str s, uint64_t *ret_bytes);
/* "3s", "250ms", "5m", "2h", "7d", "10us": microseconds. */
bool str_to_duration(struct str s, int64_t *ret_us);

/* target holds 2*size+1 bytes; lower case, NUL-terminated. */
void hex_encode(const void *data, size_t size, char *target);
bool hex_decode(struct str text, void *target, size_t target_size); /* exactly target_size bytes */
/* URL-safe, no padding. Encoded size: (size*4+2)/3; target holds one more for the NUL. */
size_t base64url_encode(const void *data, size_t size, char *target, size_t target_size);
/* Returns false on a bad character or overflow; sets *ret_size. */
bool base64url_decode(struct str text, void *target, size_t target_size, size_t *ret_size);

/* Percent-encoding of bytes: what is not A-Za-z0-9-._~ (and '/' when keep_slash) becomes %XX. Returns the encoded size, or
 * 0 with target "" when it does not fit (3*size+1 always fits). */
size_t percent_encode(struct str s, bool keep_slash, char *target, size_t target_size);
/* In lower-level form: decodes into target (may alias s.data). False on a malformed %XX. */
bool percent_decode(struct str s, char *target, size_t target_size, size_t *ret_size);

bool utf8_is_valid(struct str s); /* RFC 3629: no surrogates, no overlong forms */
/* The bytes of the valid character that s begins with: 1..4; 0 when s is empty or begins with something else. */
size_t utf8_char_size(struct str s);
/* For showing a byte string to a person: valid UTF-8 stays, control characters and stray bytes become \xNN. Always NUL-terminated,
 * cut at a whole character. Returns target. */
char *str_display(struct str s, char *target, size_t target_size);

/* "12.3 MiB", "817 B" */
char *size_display(uint64_t bytes, char *target, size_t target_size);

#endif
