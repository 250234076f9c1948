#include "wire/http1.h"

#include <string.h>

#include "wire/http1_char.h"

#define F CHAR_FIELD
#define T CHAR_TARGET
#define K CHAR_TOKEN
#define H CHAR_HOST
#define X CHAR_HEX
const uint8_t http1_char[256] = {
	['\t'] = F,
	[' '] = F,
	['!'] = F | T | K | H,
	['"'] = F | T,
	['#'] = F | K,
	['$' ... '\''] = F | T | K | H,
	['(' ... ')'] = F | T | H,
	['*' ... '+'] = F | T | K | H,
	[','] = F | T,
	['-' ... '.'] = F | T | K | H,
	['/'] = F | T,
	['0' ... '9'] = F | T | K | H | X,
	[':' ... ';'] = F | T | H,
	['<'] = F | T,
	['='] = F | T | H,
	['>' ... '@'] = F | T,
	['A' ... 'F'] = F | T | K | H | X,
	['G' ... 'Z'] = F | T | K | H,
	['['] = F | T | H,
	['\\'] = F | T,
	[']'] = F | T | H,
	['^'] = F | T | K,
	['_'] = F | T | K | H,
	['`'] = F | T | K,
	['a' ... 'f'] = F | T | K | H | X,
	['g' ... 'z'] = F | T | K | H,
	['{'] = F | T,
	['|'] = F | T | K,
	['}'] = F | T,
	['~'] = F | T | K | H,
	[0x80 ... 0xff] = F,
};
#undef F
#undef T
#undef K
#undef H
#undef X

/* One row per state: each is named for what it waits for. The order matters once: states before FIELD belong to the start line. */
#define HEAD_STATES(ROW) \
	ROW(START)       \
	ROW(START_LF)    \
	ROW(METHOD)      \
	ROW(TARGET)      \
	ROW(VERSION)     \
	ROW(STATUS)      \
	ROW(REASON)      \
	ROW(LINE_CR)     \
	ROW(LINE_LF)     \
	ROW(FIELD)       \
	ROW(NAME)        \
	ROW(VALUE_START) \
	ROW(VALUE)       \
	ROW(VALUE_LF)    \
	ROW(END_LF)

enum head_state {
#define ROW(name) HEAD_##name,
	HEAD_STATES(ROW)
#undef ROW
};

/* A step sees at least one unread byte at data[head->parsed_size], and none at or after `end`. It uses one or more, and returns 0 to go on,
 * DONE, or a negative code. */
typedef int head_step(struct http1_head *head, const char *data, uint32_t end);

int http1_fail(struct http1_head *head, enum err_code code, const char *fault)
{
	if (head->kind == HTTP1_RESPONSE && code != ERR_HEADER_LIMIT)
		code = ERR_PEER;
	head->fault = fault;
	head->failure = -(int)code;
	return head->failure;
}

static int fail_bad(struct http1_head *head, const char *fault) { return http1_fail(head, ERR_BAD_REQUEST, fault); }

static int expect_byte(struct http1_head *head, const char *data, char byte, enum head_state next, const char *fault)
{
	if (data[head->parsed_size] != byte)
		return fail_bad(head, fault);
	head->parsed_size++;
	head->state = next;
	return 0;
}

static int step_START(struct http1_head *head, const char *data, uint32_t end)
{
	(void)end;
	/* RFC 9112 2.2: one empty line before a request is forgiven, as old clients send it after a POST body. */
	if (head->kind == HTTP1_REQUEST && data[head->parsed_size] == '\r') {
		head->parsed_size++;
		head->state = HEAD_START_LF;
		return 0;
	}
	head->line_offset = head->parsed_size;
	head->method.offset = head->parsed_size;
	head->state = head->kind == HTTP1_REQUEST ? HEAD_METHOD : HEAD_VERSION;
	return 0;
}

static int step_START_LF(struct http1_head *head, const char *data, uint32_t end)
{
	(void)end;
	int result = expect_byte(head, data, '\n', HEAD_METHOD, "a CR before the request line is not followed by LF");
	head->line_offset = head->method.offset = head->parsed_size;
	return result;
}

static int step_METHOD(struct http1_head *head, const char *data, uint32_t end)
{
	uint32_t at = http1_char_run(data, head->parsed_size, end, CHAR_TOKEN);
	head->method.size = at - head->method.offset;
	head->parsed_size = at;
	if (at == end)
		return 0;
	if (data[at] != ' ')
		return fail_bad(head, "the method holds a byte that is not of a token");
	if (head->method.size == 0)
		return fail_bad(head, "the request line begins with a space");
	head->parsed_size = at + 1;
	head->target.offset = at + 1;
	head->state = HEAD_TARGET;
	return 0;
}

static int step_TARGET(struct http1_head *head, const char *data, uint32_t end)
{
	uint32_t at = http1_char_run(data, head->parsed_size, end, CHAR_TARGET);
	head->target.size = at - head->target.offset;
	head->parsed_size = at;
	if (at == end)
		return 0;
	if (data[at] == '\r' || data[at] == '\n')
		return fail_bad(head, "the request line has no HTTP version");
	if (data[at] != ' ')
		return fail_bad(head, "the target holds a control character, a '#' or a byte that is not ASCII (it "
				      "must be percent-encoded)");
	if (head->target.size == 0)
		return fail_bad(head, "two spaces after the method");
	head->parsed_size = at + 1;
	head->line_offset = at + 1;
	head->state = HEAD_VERSION;
	return 0;
}

/* HTTP/d.d, a byte at a time; line_offset is where it began. */
static int step_VERSION(struct http1_head *head, const char *data, uint32_t end)
{
	static const char shape[] = "HTTP/0.0";
	for (; head->parsed_size < end; head->parsed_size++) {
		uint32_t index = head->parsed_size - head->line_offset;
		char byte = data[head->parsed_size];
		if (shape[index] == '0' ? !http1_char_is_digit(byte) : byte != shape[index])
			return fail_bad(head, "the version is not HTTP/<digit>.<digit>");
		if (index + 1 < sizeof(shape) - 1)
			continue;
		char major = data[head->parsed_size - 2];
		head->parsed_size++;
		if (major != '1' || byte > '1')
			return http1_fail(head, ERR_HTTP_VERSION, "the version is neither HTTP/1.1 nor HTTP/1.0");
		head->minor_version = byte - '0';
		head->line_offset = head->parsed_size;
		head->state = head->kind == HTTP1_REQUEST ? HEAD_LINE_CR : HEAD_STATUS;
		return 0;
	}
	return 0;
}

/* " 200" and then a space, or the end of the line as some servers leave the last space out. line_offset is where it began. */
static int step_STATUS(struct http1_head *head, const char *data, uint32_t end)
{
	for (; head->parsed_size < end; head->parsed_size++) {
		uint32_t index = head->parsed_size - head->line_offset;
		char byte = data[head->parsed_size];
		if (index == 0 && byte != ' ')
			return fail_bad(head, "no space after the version");
		if (index >= 1 && index <= 3) {
			if (!http1_char_is_digit(byte) || (index == 1 && byte == '0'))
				return fail_bad(head, "the status is not three digits from 100");
			head->status = head->status * 10 + (byte - '0');
		}
		if (index == 4) {
			if (byte != ' ' && byte != '\r')
				return fail_bad(head, "no space after the status");
			head->parsed_size++;
			head->reason.offset = head->parsed_size;
			head->state = byte == ' ' ? HEAD_REASON : HEAD_LINE_LF;
			return 0;
		}
	}
	return 0;
}

static int step_REASON(struct http1_head *head, const char *data, uint32_t end)
{
	uint32_t at = http1_char_run(data, head->parsed_size, end, CHAR_FIELD);
	head->reason.size = at - head->reason.offset;
	head->parsed_size = at;
	if (at == end)
		return 0;
	return expect_byte(head, data, '\r', HEAD_LINE_LF, "the reason holds a control character");
}

static int step_LINE_CR(struct http1_head *head, const char *data, uint32_t end)
{
	(void)end;
	return expect_byte(head, data, '\r', HEAD_LINE_LF, "the version is not followed by CR LF");
}

static int step_LINE_LF(struct http1_head *head, const char *data, uint32_t end)
{
	(void)end;
	return expect_byte(head, data, '\n', HEAD_FIELD, "a CR in the start line is not followed by LF");
}

static int step_FIELD(struct http1_head *head, const char *data, uint32_t end)
{
	(void)end;
	char byte = data[head->parsed_size];
	if (byte == '\r') {
		head->parsed_size++;
		head->state = HEAD_END_LF;
		return 0;
	}
	if (byte == ' ' || byte == '\t')
		return fail_bad(head, "a header line begins with white space (obsolete folding)");
	if (byte == ':')
		return fail_bad(head, "a header without a name");
	if (head->header_count == HTTP1_HEADERS_MAX)
		return http1_fail(head, ERR_HEADER_LIMIT, "more than 100 headers");
	head->current_name = (struct http1_span){ head->parsed_size, 0 };
	head->state = HEAD_NAME;
	return 0;
}

static int step_NAME(struct http1_head *head, const char *data, uint32_t end)
{
	uint32_t at = http1_char_run(data, head->parsed_size, end, CHAR_TOKEN);
	head->current_name.size = at - head->current_name.offset;
	head->parsed_size = at;
	if (at == end)
		return 0;
	if (data[at] == ' ' || data[at] == '\t')
		return fail_bad(head, "white space in or after a header name");
	return expect_byte(head, data, ':', HEAD_VALUE_START, "a header name holds a byte that is not of a token");
}

static int step_VALUE_START(struct http1_head *head, const char *data, uint32_t end)
{
	while (head->parsed_size < end && (data[head->parsed_size] == ' ' || data[head->parsed_size] == '\t'))
		head->parsed_size++;
	if (head->parsed_size == end)
		return 0;
	head->current_value = (struct http1_span){ head->parsed_size, 0 };
	head->state = HEAD_VALUE;
	return 0;
}

static int step_VALUE(struct http1_head *head, const char *data, uint32_t end)
{
	uint32_t at = http1_char_run(data, head->parsed_size, end, CHAR_FIELD);
	head->parsed_size = at;
	if (at == end)
		return 0;
	uint32_t last = at;
	while (last > head->current_value.offset && (data[last - 1] == ' ' || data[last - 1] == '\t'))
		last--;
	head->current_value.size = last - head->current_value.offset;
	return expect_byte(head, data, '\r', HEAD_VALUE_LF, "a header value holds a control character");
}

static int step_VALUE_LF(struct http1_head *head, const char *data, uint32_t end)
{
	(void)end;
	head->headers[head->header_count++] = (struct http1_header){ head->current_name, head->current_value };
	return expect_byte(head, data, '\n', HEAD_FIELD, "a CR in a header is not followed by LF");
}

static int step_END_LF(struct http1_head *head, const char *data, uint32_t end)
{
	(void)end;
	int result = expect_byte(head, data, '\n', HEAD_END_LF, "the CR that ends the head is not followed by LF");
	if (result < 0)
		return result;
	head->head_size = head->parsed_size;
	return http1_meaning(head, data);
}

static head_step *const head_steps[] = {
#define ROW(name) [HEAD_##name] = step_##name,
	HEAD_STATES(ROW)
#undef ROW
};

void http1_head_init(struct http1_head *head, enum http1_kind kind)
{
	/* The headers are written before they are read: clearing two kilobytes per request would be for nothing. */
	memset(head, 0, offsetof(struct http1_head, headers));
	memset(&head->header_count, 0, sizeof(*head) - offsetof(struct http1_head, header_count));
	head->kind = kind;
}

int http1_head_parse(struct http1_head *head, const char *data, size_t size)
{
	if (head->failure < 0)
		return head->failure;
	if (head->head_size > 0)
		return HTTP1_DONE;
	for (;;) {
		/* Every limit is a property of the byte's place, not of how the bytes came: that keeps feeding piecewise and feeding at
		 * once the same. */
		uint32_t limit = head->state < HEAD_FIELD ? HTTP1_LINE_MAX : HTTP1_HEAD_MAX;
		if (head->parsed_size >= limit)
			return http1_fail(head, ERR_HEADER_LIMIT,
					  head->state < HEAD_FIELD ? "the start line is longer than 8 KiB"
								   : "the head is larger than 64 KiB");
		if (head->parsed_size >= size)
			return HTTP1_MORE;
		int result = head_steps[head->state](head, data, (uint32_t)min_size(size, limit));
		if (result != 0)
			return result;
	}
}

struct str http1_header_get(const struct http1_head *head, const char *data, struct str name)
{
	for (unsigned i = 0; i < head->header_count; i++) {
		if (head->headers[i].name.size == name.size &&
		    str_eq_nocase(http1_text(data, head->headers[i].name), name))
			return http1_text(data, head->headers[i].value);
	}
	return STR_NONE;
}

bool http1_header_has_token(const struct http1_head *head, const char *data, struct str name, struct str token)
{
	for (unsigned i = 0; i < head->header_count; i++) {
		if (!str_eq_nocase(http1_text(data, head->headers[i].name), name))
			continue;
		struct str rest = http1_text(data, head->headers[i].value), piece;
		while (str_cut(&rest, ',', &piece)) {
			if (str_eq_nocase(str_trim(piece), token))
				return true;
		}
	}
	return false;
}

bool http1_is_token(struct str s)
{
	for (size_t i = 0; i < s.size; i++) {
		if (!http1_char_is(s.data[i], CHAR_TOKEN))
			return false;
	}
	return s.size > 0;
}

bool http1_is_field_value(struct str s)
{
	for (size_t i = 0; i < s.size; i++) {
		if (!http1_char_is(s.data[i], CHAR_FIELD))
			return false;
	}
	/* White space at the ends would not survive a parser. */
	return s.size == 0 ||
	       (s.data[0] != ' ' && s.data[0] != '\t' && s.data[s.size - 1] != ' ' && s.data[s.size - 1] != '\t');
}
