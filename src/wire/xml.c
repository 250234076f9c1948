#include "wire/xml.h"

#include <string.h>

static struct str after(struct str text, size_t count) { return (struct str){ text.data + count, text.size - count }; }

static bool ends_name(char c) { return c == '>' || c == '/' || c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

/* Where the next tag with this name begins: at its '<'. */
static const char *find_tag(struct str text, const char *opening, struct str name)
{
	size_t head = strlen(opening);

	for (size_t i = 0; i + head + name.size < text.size; i++) {
		const char *at = text.data + i;
		if (memcmp(at, opening, head) == 0 && memcmp(at + head, name.data, name.size) == 0 &&
		    ends_name(at[head + name.size]))
			return at;
	}
	return NULL;
}

bool xml_cut(struct str *rest, const char *name, struct str *ret_inner)
{
	struct str tag = str_from(name);
	const char *begin = rest->size > 0 ? find_tag(*rest, "<", tag) : NULL, *end;

	*ret_inner = STR_NONE;
	if (!begin)
		return false;
	struct str inner = after(*rest, (size_t)(begin - rest->data));
	end = memchr(inner.data, '>', inner.size);
	if (!end)
		return false;
	bool is_empty = end[-1] == '/';
	inner = after(inner, (size_t)(end - inner.data) + 1);
	if (is_empty) {
		*ret_inner = (struct str){ inner.data, 0 };
		*rest = inner;
		return true;
	}
	end = find_tag(inner, "</", tag);
	if (!end)
		return false;
	*ret_inner = (struct str){ inner.data, (size_t)(end - inner.data) };
	*rest = after(inner, (size_t)(end - inner.data));
	end = memchr(rest->data, '>', rest->size);
	*rest = end ? after(*rest, (size_t)(end - rest->data) + 1) : after(*rest, rest->size);
	return true;
}

/* --- entities --- */

static size_t utf8_write(uint32_t code, char target[4])
{
	if (code < 0x80) {
		target[0] = (char)code;
		return 1;
	}
	if (code < 0x800) {
		target[0] = (char)(0xC0 | (code >> 6));
		target[1] = (char)(0x80 | (code & 0x3F));
		return 2;
	}
	if (code < 0x10000) {
		target[0] = (char)(0xE0 | (code >> 12));
		target[1] = (char)(0x80 | ((code >> 6) & 0x3F));
		target[2] = (char)(0x80 | (code & 0x3F));
		return 3;
	}
	target[0] = (char)(0xF0 | (code >> 18));
	target[1] = (char)(0x80 | ((code >> 12) & 0x3F));
	target[2] = (char)(0x80 | ((code >> 6) & 0x3F));
	target[3] = (char)(0x80 | (code & 0x3F));
	return 4;
}

/* "#38", "#x26": 0 when it is none. */
static uint32_t read_reference(struct str name)
{
	bool is_hex = name.size > 1 && (name.data[1] == 'x' || name.data[1] == 'X');
	uint32_t code = 0;
	size_t i = is_hex ? 2 : 1;

	if (i >= name.size || name.size > 9)
		return 0;
	for (; i < name.size; i++) {
		char c = name.data[i];
		uint32_t digit;
		if (c >= '0' && c <= '9')
			digit = (uint32_t)(c - '0');
		else if (is_hex && ((c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F')))
			digit = (uint32_t)((c | 0x20) - 'a') + 10;
		else
			return 0;
		code = code * (is_hex ? 16 : 10) + digit;
	}
	return code > 0x10FFFF || (code >= 0xD800 && code < 0xE000) ? 0 : code;
}

static size_t read_entity(struct str name, char target[4])
{
	static const struct {
		const char *name;
		char c;
	} rows[] = { { "amp", '&' }, { "lt", '<' }, { "gt", '>' }, { "quot", '"' }, { "apos", '\'' } };
	uint32_t code;

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		if (str_eq_c(name, rows[i].name)) {
			target[0] = rows[i].c;
			return 1;
		}
	}
	code = name.size > 0 && name.data[0] == '#' ? read_reference(name) : 0;
	return code == 0 ? 0 : utf8_write(code, target);
}

bool xml_text(struct str inner, char *target, size_t target_size)
{
	char piece[4];
	size_t size = 0;

	MUST(target_size > 0);
	target[0] = '\0';
	while (inner.size > 0) {
		size_t count = 1, used = 1;

		piece[0] = inner.data[0];
		if (piece[0] == '&') {
			const char *end = memchr(inner.data, ';', min_size(inner.size, 12));
			used = end ? (size_t)(end - inner.data) + 1 : 0;
			count = end ? read_entity((struct str){ inner.data + 1, used - 2 }, piece) : 0;
		}
		if (count == 0 || piece[0] == '\0' || (inner.data[0] == '<') || size + count >= target_size) {
			target[0] = '\0';
			return false;
		}
		memcpy(target + size, piece, count);
		size += count;
		inner = after(inner, used);
	}
	target[size] = '\0';
	return true;
}

bool xml_find(struct str text, const char *name, char *target, size_t target_size)
{
	struct str inner;

	target[0] = '\0';
	return xml_cut(&text, name, &inner) && xml_text(inner, target, target_size);
}
