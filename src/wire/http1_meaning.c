/* What a whole head means: target, framing of the body, fate of the connection (RFC 9112 3.2, 6, 9). */
#include <string.h>

#include "wire/http1_char.h"

bool http1_is_authority(struct str s)
{
	size_t at = 0;
	bool is_bracketed = s.size > 0 && s.data[0] == '[';
	if (is_bracketed) {
		const char *end = memchr(s.data, ']', s.size);
		if (!end || end == s.data + 1)
			return false;
		at = 1;
		for (size_t last = (size_t)(end - s.data); at < last; at++) {
			if (!http1_char_is(s.data[at], CHAR_HOST) || s.data[at] == '[')
				return false;
		}
		at++;
	} else {
		for (; at < s.size && s.data[at] != ':'; at++) {
			if (!http1_char_is(s.data[at], CHAR_HOST) || s.data[at] == '[' || s.data[at] == ']')
				return false;
		}
	}
	if (at == s.size)
		return true;
	/* A port without a host names nothing. */
	if (s.data[at] != ':' || at == 0 || s.size - at > 6)
		return false;
	for (at++; at < s.size; at++) {
		if (!http1_char_is_digit(s.data[at]))
			return false;
	}
	return true;
}

struct facts {
	unsigned host_count, length_count, coding_count;
	struct http1_span host, length, coding;
	bool is_close, is_keep_alive, is_connection_upgrade, has_upgrade, has_expect_continue, has_expect_other;
};

static int fail_bad(struct http1_head *head, const char *fault) { return http1_fail(head, ERR_BAD_REQUEST, fault); }

static void note_connection(struct facts *facts, struct str value)
{
	struct str piece;
	while (str_cut(&value, ',', &piece)) {
		piece = str_trim(piece);
		if (str_eq_nocase(piece, STR("close")))
			facts->is_close = true;
		else if (str_eq_nocase(piece, STR("keep-alive")))
			facts->is_keep_alive = true;
		else if (str_eq_nocase(piece, STR("upgrade")))
			facts->is_connection_upgrade = true;
	}
}

static void note_header(struct facts *facts, const char *data, const struct http1_header *header)
{
	struct str name = http1_text(data, header->name), value = http1_text(data, header->value);
	switch (name.size) {
	case 4:
		if (str_eq_nocase(name, STR("host"))) {
			facts->host_count++;
			facts->host = header->value;
		}
		break;
	case 6:
		if (str_eq_nocase(name, STR("expect"))) {
			if (str_eq_nocase(value, STR("100-continue")))
				facts->has_expect_continue = true;
			else
				facts->has_expect_other = true;
		}
		break;
	case 7:
		facts->has_upgrade |= str_eq_nocase(name, STR("upgrade"));
		break;
	case 10:
		if (str_eq_nocase(name, STR("connection")))
			note_connection(facts, value);
		break;
	case 14:
		if (str_eq_nocase(name, STR("content-length"))) {
			facts->length_count++;
			facts->length = header->value;
		}
		break;
	case 17:
		if (str_eq_nocase(name, STR("transfer-encoding"))) {
			facts->coding_count++;
			facts->coding = header->value;
		}
		break;
	}
}

static void split_query(struct http1_head *head, const char *data, struct http1_span rest)
{
	const char *mark = memchr(data + rest.offset, '?', rest.size);
	head->path = rest;
	if (!mark) {
		head->query = (struct http1_span){ rest.offset + rest.size, 0 };
		return;
	}
	head->path.size = (uint32_t)(mark - (data + rest.offset));
	head->query.offset = rest.offset + head->path.size + 1;
	head->query.size = rest.size - head->path.size - 1;
}

static int absolute_target(struct http1_head *head, const char *data)
{
	struct str target = http1_text(data, head->target);
	uint32_t scheme_size = 0;
	if (target.size > 7 && str_eq_nocase((struct str){ target.data, 7 }, STR("http://")))
		scheme_size = 7;
	else if (target.size > 8 && str_eq_nocase((struct str){ target.data, 8 }, STR("https://")))
		scheme_size = 8;
	else
		return fail_bad(head, "the target is neither a path nor an http URL");
	uint32_t end = scheme_size;
	while (end < target.size && target.data[end] != '/' && target.data[end] != '?')
		end++;
	head->form = HTTP1_ABSOLUTE;
	head->authority = (struct http1_span){ head->target.offset + scheme_size, end - scheme_size };
	if (head->authority.size == 0 || !http1_is_authority(http1_text(data, head->authority)))
		return fail_bad(head, "the URL in the request line has no valid host");
	split_query(head, data, (struct http1_span){ head->target.offset + end, head->target.size - end });
	return 0;
}

static int read_target(struct http1_head *head, const char *data)
{
	struct str target = http1_text(data, head->target), method = http1_text(data, head->method);
	if (str_eq(method, STR("CONNECT"))) {
		head->form = HTTP1_AUTHORITY;
		head->authority = head->target;
		if (!http1_is_authority(target) || target.data[target.size - 1] < '0' ||
		    target.data[target.size - 1] > '9' || !memchr(target.data, ':', target.size))
			return fail_bad(head, "the target of CONNECT is not host:port");
		return 0;
	}
	if (str_eq(target, STR("*"))) {
		head->form = HTTP1_ASTERISK;
		head->path = head->target;
		return str_eq(method, STR("OPTIONS")) ? 0 : fail_bad(head, "the target '*' is for OPTIONS only");
	}
	if (target.data[0] != '/')
		return absolute_target(head, data);
	head->form = HTTP1_ORIGIN;
	split_query(head, data, head->target);
	return 0;
}

static int check_host(struct http1_head *head, const char *data, const struct facts *facts)
{
	if (facts->host_count > 1)
		return fail_bad(head, "more than one Host");
	if (facts->host_count == 0)
		return head->minor_version >= 1 ? fail_bad(head, "HTTP/1.1 without Host") : 0;
	if (!http1_is_authority(http1_text(data, facts->host)))
		return fail_bad(head, "Host is not a host with an optional port");
	if (head->form == HTTP1_ORIGIN || head->form == HTTP1_ASTERISK)
		head->authority = facts->host;
	return 0;
}

static int read_coding(struct http1_head *head, const char *data, const struct facts *facts)
{
	struct str coding = http1_text(data, facts->coding), piece, last = STR_NONE;
	unsigned chunked_count = 0, other_count = 0;
	if (head->minor_version == 0)
		return fail_bad(head, "Transfer-Encoding in HTTP/1.0");
	if (facts->length_count > 0)
		return fail_bad(head, "both Transfer-Encoding and Content-Length");
	if (facts->coding_count > 1)
		return fail_bad(head, "more than one Transfer-Encoding");
	if (str_eq_nocase(coding, STR("chunked"))) {
		head->framing = HTTP1_CHUNKED;
		return 0;
	}
	while (str_cut(&coding, ',', &piece)) {
		if (str_trim(piece).size == 0)
			continue;
		last = str_trim(piece);
		bool is_chunked = str_eq_nocase(last, STR("chunked"));
		chunked_count += is_chunked;
		other_count += !is_chunked;
	}
	if (chunked_count == 1 && other_count > 0 && str_eq_nocase(last, STR("chunked")))
		return http1_fail(head, ERR_NOT_IMPLEMENTED, "a transfer coding besides chunked");
	return fail_bad(head, "Transfer-Encoding is not 'chunked'");
}

static int read_length(struct http1_head *head, const char *data, const struct facts *facts)
{
	if (facts->length_count > 1)
		return fail_bad(head, "more than one Content-Length");
	/* Digits only; sizes stay below 2^63 so that signed arithmetic on them is safe everywhere. */
	if (!str_to_u64(http1_text(data, facts->length), &head->content_length) || head->content_length > INT64_MAX)
		return fail_bad(head, "Content-Length is not a number of bytes");
	head->framing = HTTP1_LENGTH;
	return 0;
}

static int read_framing(struct http1_head *head, const char *data, const struct facts *facts)
{
	int result = 0;
	head->framing = head->kind == HTTP1_REQUEST ? HTTP1_NO_BODY : HTTP1_UNTIL_CLOSE;
	if (facts->coding_count > 0)
		result = read_coding(head, data, facts);
	else if (facts->length_count > 0)
		result = read_length(head, data, facts);
	if (result < 0 || head->kind == HTTP1_REQUEST)
		return result;
	if (head->status < 200 || head->status == 204 || head->status == 304 || head->is_head_request) {
		/* No body follows whatever the fields say. Where they must not say anything, a sender that does is not to be trusted
		 * with what follows on this connection. */
		if ((head->status < 200 || head->status == 204) &&
		    (facts->coding_count > 0 || head->content_length > 0))
			head->is_keep_alive = false;
		head->framing = HTTP1_NO_BODY;
	}
	if (head->framing == HTTP1_UNTIL_CLOSE)
		head->is_keep_alive = false;
	return 0;
}

int http1_meaning(struct http1_head *head, const char *data)
{
	struct facts facts = { 0 };
	for (unsigned i = 0; i < head->header_count; i++)
		note_header(&facts, data, &head->headers[i]);

	head->is_keep_alive = !facts.is_close && (head->minor_version >= 1 || facts.is_keep_alive);
	int result = 0;
	if (head->kind == HTTP1_REQUEST) {
		result = read_target(head, data);
		if (result == 0)
			result = check_host(head, data, &facts);
	}
	if (result == 0)
		result = read_framing(head, data, &facts);
	if (result < 0)
		return result;
	head->is_upgrade = facts.has_upgrade && facts.is_connection_upgrade;
	if (head->kind == HTTP1_REQUEST && head->minor_version >= 1) {
		head->is_expect_continue = facts.has_expect_continue;
		head->is_expect_unknown = facts.has_expect_other;
	}
	return HTTP1_DONE;
}
