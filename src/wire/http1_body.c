/* Decoding of bodies (RFC 9112 6 and 7). */
#include <string.h>

#include "wire/http1_char.h"

/* One row per state of the chunked coding, named for what it waits for. No white space is taken anywhere in a size line: two readers that
 * treat it differently are how requests are smuggled. */
#define BODY_STATES(ROW)   \
	ROW(SIZE)          \
	ROW(EXT_NAME)      \
	ROW(EXT_VALUE)     \
	ROW(EXT_TOKEN)     \
	ROW(EXT_QUOTED)    \
	ROW(EXT_ESCAPED)   \
	ROW(EXT_END)       \
	ROW(SIZE_LF)       \
	ROW(DATA_CR)       \
	ROW(DATA_LF)       \
	ROW(TRAILER)       \
	ROW(TRAILER_NAME)  \
	ROW(TRAILER_VALUE) \
	ROW(TRAILER_LF)    \
	ROW(END_LF)

enum body_state {
#define ROW(name) BODY_##name,
	BODY_STATES(ROW)
#undef ROW
		BODY_DATA, /* handled apart: the only state that looks at more than one byte */
	BODY_ENDED,
};

/* Takes one byte: 0 to go on, DONE, or a negative code. */
typedef int body_step(struct http1_body *body, char byte);

static int fail_body(struct http1_body *body, enum err_code code, const char *fault)
{
	if (body->is_response && code != ERR_HEADER_LIMIT)
		code = ERR_PEER;
	body->fault = fault;
	body->failure = -(int)code;
	return body->failure;
}

static int fail_bad(struct http1_body *body, const char *fault) { return fail_body(body, ERR_BAD_REQUEST, fault); }

static int expect_byte(struct http1_body *body, char byte, char expected, enum body_state next, const char *fault)
{
	if (byte != expected)
		return fail_bad(body, fault);
	body->state = next;
	return 0;
}

static unsigned hex_value(char digit)
{
	if (http1_char_is_digit(digit))
		return (unsigned)(digit - '0');
	return (unsigned)((digit | 0x20) - 'a') + 10;
}

/* Where a ';' or the CR may come next. */
static int end_of_size(struct http1_body *body, char byte, const char *fault)
{
	if (byte == ';') {
		body->line_bytes = 0;
		body->state = BODY_EXT_NAME;
		return 0;
	}
	return expect_byte(body, byte, '\r', BODY_SIZE_LF, fault);
}

static int step_SIZE(struct http1_body *body, char byte)
{
	if (!http1_char_is(byte, CHAR_HEX)) {
		if (body->line_bytes == 0)
			return fail_bad(body, "a chunk has no size in hexadecimal digits");
		return end_of_size(body, byte, "a chunk size is followed by something else than ';' or CR LF");
	}
	/* Sixteen digits hold every size; more would be zeros put there to confuse. */
	if (++body->line_bytes > 16 || body->left_bytes > (uint64_t)INT64_MAX >> 4)
		return fail_bad(body, "a chunk size is too large");
	body->left_bytes = body->left_bytes << 4 | hex_value(byte);
	return 0;
}

static int step_EXT_NAME(struct http1_body *body, char byte)
{
	if (http1_char_is(byte, CHAR_TOKEN)) {
		body->line_bytes++;
		return 0;
	}
	if (body->line_bytes == 0)
		return fail_bad(body, "a chunk extension has no name");
	if (byte == '=') {
		body->state = BODY_EXT_VALUE;
		return 0;
	}
	return end_of_size(body, byte, "a chunk extension's name holds a byte that is not of a token");
}

static int step_EXT_VALUE(struct http1_body *body, char byte)
{
	if (byte == '"') {
		body->state = BODY_EXT_QUOTED;
		return 0;
	}
	if (!http1_char_is(byte, CHAR_TOKEN))
		return fail_bad(body, "a chunk extension's value is neither a token nor quoted");
	body->state = BODY_EXT_TOKEN;
	return 0;
}

static int step_EXT_TOKEN(struct http1_body *body, char byte)
{
	if (http1_char_is(byte, CHAR_TOKEN))
		return 0;
	return end_of_size(body, byte, "a chunk extension's value holds a byte that is not of a token");
}

static int step_EXT_QUOTED(struct http1_body *body, char byte)
{
	if (!http1_char_is(byte, CHAR_FIELD))
		return fail_bad(body, "a chunk extension's quoted value holds a control character");
	if (byte == '\\')
		body->state = BODY_EXT_ESCAPED;
	else if (byte == '"')
		body->state = BODY_EXT_END;
	return 0;
}

static int step_EXT_ESCAPED(struct http1_body *body, char byte)
{
	if (!http1_char_is(byte, CHAR_FIELD))
		return fail_bad(body, "a chunk extension's quoted value holds a control character");
	body->state = BODY_EXT_QUOTED;
	return 0;
}

static int step_EXT_END(struct http1_body *body, char byte)
{
	return end_of_size(body, byte, "a chunk extension is followed by something else than ';' or CR LF");
}

static int step_SIZE_LF(struct http1_body *body, char byte)
{
	body->line_bytes = 0;
	return expect_byte(body, byte, '\n', body->left_bytes > 0 ? BODY_DATA : BODY_TRAILER,
			   "a CR after a chunk size is not followed by LF");
}

static int step_DATA_CR(struct http1_body *body, char byte)
{
	return expect_byte(body, byte, '\r', BODY_DATA_LF, "a chunk's data is not followed by CR LF");
}

static int step_DATA_LF(struct http1_body *body, char byte)
{
	return expect_byte(body, byte, '\n', BODY_SIZE, "a chunk's data is not followed by CR LF");
}

static int step_TRAILER(struct http1_body *body, char byte)
{
	if (byte == '\r') {
		body->state = BODY_END_LF;
		return 0;
	}
	if (!http1_char_is(byte, CHAR_TOKEN))
		return fail_bad(body, "a trailer line does not begin with a name");
	body->state = BODY_TRAILER_NAME;
	return 0;
}

static int step_TRAILER_NAME(struct http1_body *body, char byte)
{
	if (http1_char_is(byte, CHAR_TOKEN))
		return 0;
	return expect_byte(body, byte, ':', BODY_TRAILER_VALUE, "a trailer's name holds a byte that is not of a token");
}

static int step_TRAILER_VALUE(struct http1_body *body, char byte)
{
	if (http1_char_is(byte, CHAR_FIELD))
		return 0;
	return expect_byte(body, byte, '\r', BODY_TRAILER_LF, "a trailer's value holds a control character");
}

static int step_TRAILER_LF(struct http1_body *body, char byte)
{
	return expect_byte(body, byte, '\n', BODY_TRAILER, "a CR in a trailer is not followed by LF");
}

static int step_END_LF(struct http1_body *body, char byte)
{
	int result = expect_byte(body, byte, '\n', BODY_ENDED, "the CR that ends the trailers is not followed by LF");
	return result < 0 ? result : HTTP1_DONE;
}

static body_step *const body_steps[] = {
#define ROW(name) [BODY_##name] = step_##name,
	BODY_STATES(ROW)
#undef ROW
};

/* The limits run over the whole body, so that many small chunks cannot carry more around the data than one may. */
static int check_limits(struct http1_body *body)
{
	if (body->state >= BODY_EXT_NAME && body->state <= BODY_EXT_END && ++body->ext_bytes > HTTP1_CHUNK_EXT_MAX)
		return fail_body(body, ERR_HEADER_LIMIT, "more than 4 KiB of chunk extensions");
	if (body->state >= BODY_TRAILER && body->state <= BODY_END_LF && ++body->trailer_bytes > HTTP1_TRAILER_MAX)
		return fail_body(body, ERR_HEADER_LIMIT, "more than 8 KiB of trailers");
	return 0;
}

static void take_piece(struct http1_body *body, const char *data, size_t size, size_t *ret_used, struct str *ret_piece)
{
	size_t take = body->framing == HTTP1_UNTIL_CLOSE || body->left_bytes > size ? size : (size_t)body->left_bytes;
	if (take > 0)
		*ret_piece = (struct str){ data, take };
	*ret_used += take;
	if (body->framing != HTTP1_UNTIL_CLOSE)
		body->left_bytes -= take;
}

static int step_chunked(struct http1_body *body, const char *data, size_t size, size_t *ret_used, struct str *ret_piece)
{
	while (*ret_used < size) {
		if (body->state == BODY_DATA) {
			take_piece(body, data + *ret_used, size - *ret_used, ret_used, ret_piece);
			if (body->left_bytes == 0)
				body->state = BODY_DATA_CR;
			return HTTP1_MORE;
		}
		int result = check_limits(body);
		if (result == 0)
			result = body_steps[body->state](body, data[*ret_used]);
		if (result < 0)
			return result;
		(*ret_used)++;
		if (result == HTTP1_DONE)
			return HTTP1_DONE;
	}
	return HTTP1_MORE;
}

void http1_body_init(struct http1_body *body, const struct http1_head *head)
{
	*body = (struct http1_body){
		.framing = head->framing,
		.left_bytes = head->framing == HTTP1_LENGTH ? head->content_length : 0,
		.state = BODY_SIZE,
		.is_response = head->kind == HTTP1_RESPONSE,
	};
}

int http1_body_step(struct http1_body *body, const char *data, size_t size, size_t *ret_used, struct str *ret_piece)
{
	*ret_used = 0;
	*ret_piece = STR_NONE;
	if (body->failure < 0)
		return body->failure;
	switch (body->framing) {
	case HTTP1_NO_BODY:
		return HTTP1_DONE;
	case HTTP1_LENGTH:
		take_piece(body, data, size, ret_used, ret_piece);
		return body->left_bytes == 0 ? HTTP1_DONE : HTTP1_MORE;
	case HTTP1_UNTIL_CLOSE:
		take_piece(body, data, size, ret_used, ret_piece);
		return HTTP1_MORE;
	case HTTP1_CHUNKED:
		break;
	}
	if (body->state == BODY_ENDED)
		return HTTP1_DONE;
	return step_chunked(body, data, size, ret_used, ret_piece);
}
