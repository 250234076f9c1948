/* HTTP/1.1 messages, strictly (RFC 9110, RFC 9112). Resumable at any byte; no allocation; no I/O. Used by every server in heng, and by the
 * gateway for both directions. What it refuses is as important as what it accepts: see docs/http1.md. */
#ifndef HENG_WIRE_HTTP1_H
#define HENG_WIRE_HTTP1_H

#include "base/err.h"
#include "base/str.h"

#define HTTP1_HEADERS_MAX   100
#define HTTP1_LINE_MAX      (8 * KIB)
#define HTTP1_HEAD_MAX      (64 * KIB)
#define HTTP1_CHUNK_EXT_MAX (4 * KIB)
#define HTTP1_TRAILER_MAX   (8 * KIB)

enum http1_kind { HTTP1_REQUEST, HTTP1_RESPONSE };
/* Or a negative error code. Of requests: -ERR_BAD_REQUEST, -ERR_HEADER_LIMIT, -ERR_HTTP_VERSION, -ERR_NOT_IMPLEMENTED (a transfer coding
 * besides chunked). Of responses: -ERR_PEER, -ERR_HEADER_LIMIT. A failed parser stays failed. */
enum http1_result { HTTP1_MORE = 0, HTTP1_DONE = 1 };
enum http1_framing { HTTP1_NO_BODY, HTTP1_LENGTH, HTTP1_CHUNKED, HTTP1_UNTIL_CLOSE };
/* RFC 9112 3.2: "/path?query", "http://host/path?query", "host:port" (CONNECT only), "*" (OPTIONS only). */
enum http1_form { HTTP1_ORIGIN, HTTP1_ABSOLUTE, HTTP1_AUTHORITY, HTTP1_ASTERISK };

/* Offsets, not pointers, since the buffer may move or grow between feeds. */
struct http1_span {
	uint32_t offset, size;
};
struct http1_header {
	struct http1_span name, value; /* value without surrounding white space */
};

struct http1_head {
	enum http1_kind kind;
	struct http1_span method, target; /* request */
	int status;                       /* response */
	struct http1_span reason;
	int minor_version; /* 0 or 1 */
	struct http1_header headers[HTTP1_HEADERS_MAX];
	unsigned header_count;
	/* Derived when the head is complete. */
	enum http1_framing framing;
	uint64_t content_length;
	bool is_keep_alive, is_expect_continue, is_upgrade;
	bool is_expect_unknown; /* HTTP/1.1 and something else than 100-continue is expected: 417 */
	enum http1_form form;   /* request; the next three are slices of the target */
	struct http1_span
		path; /* "*" for ASTERISK, empty for AUTHORITY and for "http://host" (which means "/", or "*" for OPTIONS) */
	struct http1_span query;     /* after the '?', or empty */
	struct http1_span authority; /* of the target (it overrides Host), else the value of Host, else empty */
	uint32_t head_size;          /* bytes of the buffer that the head took */
	/* Parser's own. */
	uint32_t state, parsed_size, line_offset;
	struct http1_span current_name, current_value;
	int failure;
	const char *fault;    /* after a negative result: which rule was broken, in words */
	bool is_head_request; /* response side: the request was HEAD, so no body follows; set before parsing */
};

void http1_head_init(struct http1_head *head, enum http1_kind kind);
/* data is everything received of this message so far, from its first byte; call again with more. DONE: head->head_size bytes were the head. */
int http1_head_parse(struct http1_head *head, const char *data, size_t size);
/* First header of that name (case-insensitive), or STR_NONE. */
struct str http1_header_get(const struct http1_head *head, const char *data, struct str name);
static inline struct str http1_text(const char *data, struct http1_span span)
{
	return (struct str){ data + span.offset, span.size };
}

/* Body decoding. One step: looks at data[0..size), says how many bytes of the input were used and which slice of it is body. Loop until
 * DONE; MORE with *ret_used == size wants more input. A piece (of the input given, never empty when its data is set) may come along with
 * DONE. After DONE, unused input belongs to the next message. UNTIL_CLOSE is never DONE: the peer's end is. */
struct http1_body {
	enum http1_framing framing;
	uint64_t left_bytes; /* of the length or of the current chunk */
	uint32_t state, line_bytes, ext_bytes, trailer_bytes;
	bool is_response;
	int failure;
	const char *fault;
};
void http1_body_init(struct http1_body *body, const struct http1_head *head);
int http1_body_step(struct http1_body *body, const char *data, size_t size, size_t *ret_used, struct str *ret_piece);

/* Is this a token (RFC 9110 5.6.2), a field value without CR, LF, NUL? For those who write messages. */
bool http1_is_token(struct str s);
bool http1_is_field_value(struct str s);
/* host, host:port, [v6]:port as in Host and in targets; empty is one. */
bool http1_is_authority(struct str s);
/* Is `token` among the comma-separated, case-insensitive members of every header of that name? (Connection, Transfer-Encoding, ...) */
bool http1_header_has_token(const struct http1_head *head, const char *data, struct str name, struct str token);

#endif
