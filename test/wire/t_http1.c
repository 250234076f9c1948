#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "wire/http1.h"

#define HOST "Host: h\r\n"

/* --- heads --- */

struct row {
	const char *name, *text;
	int result; /* HTTP1_DONE, HTTP1_MORE, or negative */
	enum http1_framing framing;
	uint64_t length;
	bool is_keep_alive;
	size_t rest; /* bytes that must be left for what follows */
};

static const struct row request_rows[] = {
	/* What must be refused, since two readers may take it differently. */
	{ "CL and TE", "POST / HTTP/1.1\r\n" HOST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
	  .result = -ERR_BAD_REQUEST },
	{ "TE and CL", "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
	  .result = -ERR_BAD_REQUEST },
	{ "two CL, same", "POST / HTTP/1.1\r\n" HOST "Content-Length: 5\r\ncontent-length: 5\r\n\r\n",
	  .result = -ERR_BAD_REQUEST },
	{ "two CL", "POST / HTTP/1.1\r\n" HOST "Content-Length: 5\r\nContent-Length: 6\r\n\r\n",
	  .result = -ERR_BAD_REQUEST },
	{ "CL plus", "POST / HTTP/1.1\r\n" HOST "Content-Length: +5\r\n\r\n", .result = -ERR_BAD_REQUEST },
	{ "CL minus", "POST / HTTP/1.1\r\n" HOST "Content-Length: -5\r\n\r\n", .result = -ERR_BAD_REQUEST },
	{ "CL list", "POST / HTTP/1.1\r\n" HOST "Content-Length: 5,5\r\n\r\n", .result = -ERR_BAD_REQUEST },
	{ "CL hex", "POST / HTTP/1.1\r\n" HOST "Content-Length: 0x5\r\n\r\n", .result = -ERR_BAD_REQUEST },
	{ "CL empty", "POST / HTTP/1.1\r\n" HOST "Content-Length:\r\n\r\n", .result = -ERR_BAD_REQUEST },
	{ "CL inner space", "POST / HTTP/1.1\r\n" HOST "Content-Length: 1 0\r\n\r\n", .result = -ERR_BAD_REQUEST },
	{ "CL overflow", "POST / HTTP/1.1\r\n" HOST "Content-Length: 18446744073709551616\r\n\r\n",
	  .result = -ERR_BAD_REQUEST },
	{ "CL over 2^63", "POST / HTTP/1.1\r\n" HOST "Content-Length: 9223372036854775808\r\n\r\n",
	  .result = -ERR_BAD_REQUEST },
	{ "TE identity last", "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked, identity\r\n\r\n",
	  .result = -ERR_BAD_REQUEST },
	{ "TE xchunked", "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: xchunked\r\n\r\n", .result = -ERR_BAD_REQUEST },
	{ "TE quoted", "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: \"chunked\"\r\n\r\n",
	  .result = -ERR_BAD_REQUEST },
	{ "TE parameter", "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked;q=1\r\n\r\n",
	  .result = -ERR_BAD_REQUEST },
	{ "TE empty", "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding:\r\n\r\n", .result = -ERR_BAD_REQUEST },
	{ "TE comma", "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: ,chunked,\r\n\r\n", .result = -ERR_BAD_REQUEST },
	{ "TE gzip", "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: gzip\r\n\r\n", .result = -ERR_BAD_REQUEST },
	{ "TE gzip, chunked", "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: gzip, chunked\r\n\r\n",
	  .result = -ERR_NOT_IMPLEMENTED },
	{ "TE twice in one", "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked, chunked\r\n\r\n",
	  .result = -ERR_BAD_REQUEST },
	{ "TE twice", "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
	  .result = -ERR_BAD_REQUEST },
	{ "TE vertical tab", "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: \vchunked\r\n\r\n",
	  .result = -ERR_BAD_REQUEST },
	{ "TE in 1.0", "POST / HTTP/1.0\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n", .result = -ERR_BAD_REQUEST },
	{ "bare LF", "GET / HTTP/1.1\n" HOST "\r\n", .result = -ERR_BAD_REQUEST },
	{ "bare LF in a header", "GET / HTTP/1.1\r\nHost: h\n\r\n", .result = -ERR_BAD_REQUEST },
	{ "bare LF at the end", "GET / HTTP/1.1\r\n" HOST "\n", .result = -ERR_BAD_REQUEST },
	{ "bare CR in a header", "GET / HTTP/1.1\r\nHost: h\rX: y\r\n\r\n", .result = -ERR_BAD_REQUEST },
	{ "bare CR at the end", "GET / HTTP/1.1\r\n" HOST "\rX", .result = -ERR_BAD_REQUEST },
	{ "CR only", "GET / HTTP/1.1\rHost: h\r\r", .result = -ERR_BAD_REQUEST },
	{ "space before colon", "GET / HTTP/1.1\r\nHost : h\r\n\r\n", .result = -ERR_BAD_REQUEST },
	{ "tab before colon", "GET / HTTP/1.1\r\nHost\t: h\r\n\r\n", .result = -ERR_BAD_REQUEST },
	{ "space in a name", "GET / HTTP/1.1\r\n" HOST "X Y: z\r\n\r\n", .result = -ERR_BAD_REQUEST },
	{ "no name", "GET / HTTP/1.1\r\n" HOST ": z\r\n\r\n", .result = -ERR_BAD_REQUEST },
	{ "no colon", "GET / HTTP/1.1\r\n" HOST "Xyz\r\n\r\n", .result = -ERR_BAD_REQUEST },
	{ "name with a bracket", "GET / HTTP/1.1\r\n" HOST "X(Y): z\r\n\r\n", .result = -ERR_BAD_REQUEST },
	{ "name not ASCII", "GET / HTTP/1.1\r\n" HOST "X\xc3\xa9: z\r\n\r\n", .result = -ERR_BAD_REQUEST },
	{ "folded", "GET / HTTP/1.1\r\n" HOST "X: y\r\n z\r\n\r\n", .result = -ERR_BAD_REQUEST },
	{ "folded by tab", "GET / HTTP/1.1\r\n" HOST "X: y\r\n\tz\r\n\r\n", .result = -ERR_BAD_REQUEST },
	{ "folded first line", "GET / HTTP/1.1\r\n Host: h\r\n\r\n", .result = -ERR_BAD_REQUEST },
	{ "CL behind a fold", "GET / HTTP/1.1\r\n" HOST " Content-Length: 5\r\n\r\n", .result = -ERR_BAD_REQUEST },
	{ "bell in a value", "GET / HTTP/1.1\r\n" HOST "X: a\ab\r\n\r\n", .result = -ERR_BAD_REQUEST },
	{ "DEL in a value", "GET / HTTP/1.1\r\n" HOST "X: a\x7f\r\n\r\n", .result = -ERR_BAD_REQUEST },
	{ "no Host", "GET / HTTP/1.1\r\n\r\n", .result = -ERR_BAD_REQUEST },
	{ "two Hosts", "GET / HTTP/1.1\r\n" HOST HOST "\r\n", .result = -ERR_BAD_REQUEST },
	{ "two Hosts in 1.0", "GET / HTTP/1.0\r\n" HOST HOST "\r\n", .result = -ERR_BAD_REQUEST },
	{ "Host with a path", "GET / HTTP/1.1\r\nHost: h/x\r\n\r\n", .result = -ERR_BAD_REQUEST },
	{ "Host with a user", "GET / HTTP/1.1\r\nHost: a@h\r\n\r\n", .result = -ERR_BAD_REQUEST },
	{ "Host list", "GET / HTTP/1.1\r\nHost: a,b\r\n\r\n", .result = -ERR_BAD_REQUEST },
	{ "Host with a bad port", "GET / HTTP/1.1\r\nHost: h:8x\r\n\r\n", .result = -ERR_BAD_REQUEST },
	{ "Host with two ports", "GET / HTTP/1.1\r\nHost: h:1:2\r\n\r\n", .result = -ERR_BAD_REQUEST },
	{ "Host of v6, open", "GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", .result = -ERR_BAD_REQUEST },
	{ "method with a bracket", "G[T / HTTP/1.1\r\n" HOST "\r\n", .result = -ERR_BAD_REQUEST },
	{ "no method", " / HTTP/1.1\r\n" HOST "\r\n", .result = -ERR_BAD_REQUEST },
	{ "tab after the method", "GET\t/ HTTP/1.1\r\n" HOST "\r\n", .result = -ERR_BAD_REQUEST },
	{ "two spaces", "GET  / HTTP/1.1\r\n" HOST "\r\n", .result = -ERR_BAD_REQUEST },
	{ "two spaces before the version", "GET /  HTTP/1.1\r\n" HOST "\r\n", .result = -ERR_BAD_REQUEST },
	{ "space after the version", "GET / HTTP/1.1 \r\n" HOST "\r\n", .result = -ERR_BAD_REQUEST },
	{ "raw UTF-8", "GET /\xc3\xa9 HTTP/1.1\r\n" HOST "\r\n", .result = -ERR_BAD_REQUEST },
	{ "control in the target", "GET /\x01 HTTP/1.1\r\n" HOST "\r\n", .result = -ERR_BAD_REQUEST },
	{ "fragment", "GET /a#b HTTP/1.1\r\n" HOST "\r\n", .result = -ERR_BAD_REQUEST },
	{ "0.9", "GET /\r\n", .result = -ERR_BAD_REQUEST },
	{ "HTTP/0.9", "GET / HTTP/0.9\r\n\r\n", .result = -ERR_HTTP_VERSION },
	{ "HTTP/2.0", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", .result = -ERR_HTTP_VERSION },
	{ "HTTP/1.2", "GET / HTTP/1.2\r\n" HOST "\r\n", .result = -ERR_HTTP_VERSION },
	{ "HTTP/1.10", "GET / HTTP/1.10\r\n" HOST "\r\n", .result = -ERR_BAD_REQUEST },
	{ "http/1.1", "GET / http/1.1\r\n" HOST "\r\n", .result = -ERR_BAD_REQUEST },
	{ "HTTP/1", "GET / HTTP/1\r\n" HOST "\r\n", .result = -ERR_BAD_REQUEST },
	{ "TLS", "\x16\x03\x01\x02", .result = -ERR_BAD_REQUEST },
	{ "two empty lines first", "\r\n\r\nGET / HTTP/1.1\r\n" HOST "\r\n", .result = -ERR_BAD_REQUEST },
	{ "relative target", "GET a/b HTTP/1.1\r\n" HOST "\r\n", .result = -ERR_BAD_REQUEST },
	{ "foreign scheme", "GET ftp://h/ HTTP/1.1\r\n" HOST "\r\n", .result = -ERR_BAD_REQUEST },
	{ "URL without a host", "GET http:///a HTTP/1.1\r\n" HOST "\r\n", .result = -ERR_BAD_REQUEST },
	{ "URL with a user", "GET http://a@h/ HTTP/1.1\r\n" HOST "\r\n", .result = -ERR_BAD_REQUEST },
	{ "star for GET", "GET * HTTP/1.1\r\n" HOST "\r\n", .result = -ERR_BAD_REQUEST },
	{ "CONNECT to a path", "CONNECT / HTTP/1.1\r\n" HOST "\r\n", .result = -ERR_BAD_REQUEST },
	{ "CONNECT without a port", "CONNECT h HTTP/1.1\r\n" HOST "\r\n", .result = -ERR_BAD_REQUEST },
	{ "CONNECT with an empty port", "CONNECT h1: HTTP/1.1\r\n" HOST "\r\n", .result = -ERR_BAD_REQUEST },
	{ "GET of host:port", "GET h:80 HTTP/1.1\r\n" HOST "\r\n", .result = -ERR_BAD_REQUEST },
	/* Not all of it yet. */
	{ "nothing", "", .result = HTTP1_MORE },
	{ "a CR", "\r", .result = HTTP1_MORE },
	{ "half a line", "GET /ab", .result = HTTP1_MORE },
	{ "no empty line", "GET / HTTP/1.1\r\n" HOST, .result = HTTP1_MORE },
	{ "all but the last LF", "GET / HTTP/1.1\r\n" HOST "\r", .result = HTTP1_MORE },
	/* What must be taken. */
	{ "plain", "GET / HTTP/1.1\r\n" HOST "\r\n", HTTP1_DONE, HTTP1_NO_BODY, 0, true, 0 },
	{ "an empty line first", "\r\nGET / HTTP/1.1\r\n" HOST "\r\n", HTTP1_DONE, HTTP1_NO_BODY, 0, true, 0 },
	{ "lower-case method", "get / HTTP/1.1\r\n" HOST "\r\n", HTTP1_DONE, HTTP1_NO_BODY, 0, true, 0 },
	{ "new method", "QUERY / HTTP/1.1\r\n" HOST "\r\n", HTTP1_DONE, HTTP1_NO_BODY, 0, true, 0 },
	{ "empty Host", "GET / HTTP/1.1\r\nHost:\r\n\r\n", HTTP1_DONE, HTTP1_NO_BODY, 0, true, 0 },
	{ "Host of v6", "GET / HTTP/1.1\r\nhOST: [::1]:80\r\n\r\n", HTTP1_DONE, HTTP1_NO_BODY, 0, true, 0 },
	{ "no space after colon", "GET / HTTP/1.1\r\nHost:h\r\n\r\n", HTTP1_DONE, HTTP1_NO_BODY, 0, true, 0 },
	{ "1.0", "GET / HTTP/1.0\r\n\r\n", HTTP1_DONE, HTTP1_NO_BODY, 0, false, 0 },
	{ "1.0 kept", "GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", HTTP1_DONE, HTTP1_NO_BODY, 0, true, 0 },
	{ "closed", "GET / HTTP/1.1\r\n" HOST "Connection: x, Close\r\n\r\n", HTTP1_DONE, HTTP1_NO_BODY, 0, false, 0 },
	{ "closed by the second", "GET / HTTP/1.1\r\n" HOST "Connection: keep-alive\r\nConnection:close\r\n\r\n",
	  HTTP1_DONE, HTTP1_NO_BODY, 0, false, 0 },
	{ "not closed", "GET / HTTP/1.1\r\n" HOST "Connection: closed\r\n\r\n", HTTP1_DONE, HTTP1_NO_BODY, 0, true, 0 },
	{ "length", "PUT / HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\nhello", HTTP1_DONE, HTTP1_LENGTH, 5, true, 5 },
	{ "length 0", "PUT / HTTP/1.1\r\n" HOST "Content-Length: 0\r\n\r\n", HTTP1_DONE, HTTP1_LENGTH, 0, true, 0 },
	{ "length with zeros and tabs", "PUT / HTTP/1.1\r\n" HOST "Content-Length:\t 007 \t\r\n\r\n", HTTP1_DONE,
	  HTTP1_LENGTH, 7, true, 0 },
	{ "the longest", "PUT / HTTP/1.1\r\n" HOST "Content-Length: 9223372036854775807\r\n\r\n", HTTP1_DONE,
	  HTTP1_LENGTH, INT64_MAX, true, 0 },
	{ "chunked", "PUT / HTTP/1.1\r\n" HOST "TRANSFER-encoding: ChUnKeD\r\n\r\n0", HTTP1_DONE, HTTP1_CHUNKED, 0,
	  true, 1 },
	{ "value not ASCII", "GET / HTTP/1.1\r\n" HOST "X: \xff\x80 a\tb\r\n\r\n", HTTP1_DONE, HTTP1_NO_BODY, 0, true,
	  0 },
	{ "star", "OPTIONS * HTTP/1.1\r\n" HOST "\r\n", HTTP1_DONE, HTTP1_NO_BODY, 0, true, 0 },
};

static const struct row response_rows[] = {
	{ "CL and TE", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
	  .result = -ERR_PEER },
	{ "two CL", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n", .result = -ERR_PEER },
	{ "gzip, chunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", .result = -ERR_PEER },
	{ "TE in 1.0", "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", .result = -ERR_PEER },
	{ "folded", "HTTP/1.1 200 OK\r\nX: y\r\n z\r\n\r\n", .result = -ERR_PEER },
	{ "bare LF", "HTTP/1.1 200 OK\n\n", .result = -ERR_PEER },
	{ "version 2", "HTTP/2.0 200 OK\r\n\r\n", .result = -ERR_PEER },
	{ "two digits", "HTTP/1.1 20 OK\r\n\r\n", .result = -ERR_PEER },
	{ "four digits", "HTTP/1.1 2000 OK\r\n\r\n", .result = -ERR_PEER },
	{ "below 100", "HTTP/1.1 099 OK\r\n\r\n", .result = -ERR_PEER },
	{ "two spaces", "HTTP/1.1  200 OK\r\n\r\n", .result = -ERR_PEER },
	{ "control in the reason", "HTTP/1.1 200 O\x01K\r\n\r\n", .result = -ERR_PEER },
	{ "an empty line first", "\r\nHTTP/1.1 200 OK\r\n\r\n", .result = -ERR_PEER },
	{ "a request", "GET / HTTP/1.1\r\n", .result = -ERR_PEER },
	{ "ICY", "ICY 200 OK\r\n\r\n", .result = -ERR_PEER },
	{ "until close", "HTTP/1.1 200 OK\r\n\r\nabc", HTTP1_DONE, HTTP1_UNTIL_CLOSE, 0, false, 3 },
	{ "length", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", HTTP1_DONE, HTTP1_LENGTH, 3, true, 3 },
	{ "chunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", HTTP1_DONE, HTTP1_CHUNKED, 0, true, 0 },
	{ "no reason", "HTTP/1.1 200 \r\nContent-Length: 0\r\n\r\n", HTTP1_DONE, HTTP1_LENGTH, 0, true, 0 },
	{ "no space either", "HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", HTTP1_DONE, HTTP1_LENGTH, 0, true, 0 },
	{ "204", "HTTP/1.1 204 No Content\r\n\r\n", HTTP1_DONE, HTTP1_NO_BODY, 0, true, 0 },
	{ "204 with a length", "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", HTTP1_DONE, HTTP1_NO_BODY, 5,
	  false, 0 },
	{ "204, chunked", "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n", HTTP1_DONE, HTTP1_NO_BODY, 0,
	  false, 0 },
	{ "304 with a length", "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", HTTP1_DONE, HTTP1_NO_BODY, 5,
	  true, 0 },
	{ "100", "HTTP/1.1 100 Continue\r\n\r\nHTTP", HTTP1_DONE, HTTP1_NO_BODY, 0, true, 4 },
	{ "1.0 kept", "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\n", HTTP1_DONE,
	  HTTP1_LENGTH, 1, true, 0 },
	{ "status 999", "HTTP/1.1 999 Odd \x80\r\nContent-Length: 1\r\n\r\n", HTTP1_DONE, HTTP1_LENGTH, 1, true, 0 },
};

/* An exact allocation each time: the sanitizer then sees a parser that looks past what it was given. */
static int parse_piecewise(struct http1_head *head, const char *text, size_t size, size_t step)
{
	int result = HTTP1_MORE;
	for (size_t given = 0; given <= size && result == HTTP1_MORE; given += step) {
		char *copy = malloc(given + !given);
		assert_non_null(copy);
		memcpy(copy, text, given);
		result = http1_head_parse(head, copy, given);
		free(copy);
		if (given < size && given + step > size)
			given = size - step;
	}
	return result;
}

static bool is_same(struct http1_span a, struct http1_span b) { return a.offset == b.offset && a.size == b.size; }

static void assert_same_head(const char *name, const struct http1_head *a, const struct http1_head *b)
{
	bool same = a->framing == b->framing && a->content_length == b->content_length &&
		    a->head_size == b->head_size && a->header_count == b->header_count &&
		    a->is_keep_alive == b->is_keep_alive && a->fault == b->fault && a->status == b->status &&
		    a->minor_version == b->minor_version && is_same(a->method, b->method) &&
		    is_same(a->target, b->target) && is_same(a->reason, b->reason) && is_same(a->path, b->path) &&
		    is_same(a->query, b->query) && is_same(a->authority, b->authority) &&
		    a->is_upgrade == b->is_upgrade;
	for (unsigned i = 0; same && i < a->header_count; i++)
		same = is_same(a->headers[i].name, b->headers[i].name) &&
		       is_same(a->headers[i].value, b->headers[i].value);
	if (!same)
		fail_msg("%s: piecewise differs from at once", name);
}

static void check_rows(enum http1_kind kind, const struct row *rows, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const struct row *row = &rows[i];
		size_t size = strlen(row->text);
		struct http1_head head, pieces;
		http1_head_init(&head, kind);
		int result = http1_head_parse(&head, row->text, size);
		if (result != row->result)
			fail_msg("%s: got %d (%s), not %d", row->name, result, head.fault ? head.fault : "",
				 row->result);
		for (size_t step = 1; step <= 3; step++) {
			http1_head_init(&pieces, kind);
			if (parse_piecewise(&pieces, row->text, size, step) != result)
				fail_msg("%s: piecewise by %zu ends otherwise", row->name, step);
			assert_same_head(row->name, &head, &pieces);
		}
		if (result < 0) {
			if (!head.fault)
				fail_msg("%s: refused without a reason", row->name);
			assert_int_equal(http1_head_parse(&head, "GET / HTTP/1.1\r\n" HOST "\r\n", 27), result);
		}
		if (result != HTTP1_DONE)
			continue;
		if (head.framing != row->framing || head.content_length != row->length ||
		    head.is_keep_alive != row->is_keep_alive || size - head.head_size != row->rest)
			fail_msg("%s: framing %d length %llu keep %d rest %zu", row->name, (int)head.framing,
				 (unsigned long long)head.content_length, head.is_keep_alive, size - head.head_size);
		assert_int_equal(http1_head_parse(&head, row->text, size), HTTP1_DONE);
	}
}

static void test_requests(void **state)
{
	(void)state;
	check_rows(HTTP1_REQUEST, request_rows, COUNT_OF(request_rows));
}

static void test_responses(void **state)
{
	(void)state;
	check_rows(HTTP1_RESPONSE, response_rows, COUNT_OF(response_rows));
}

static void test_nul_bytes(void **state)
{
	static const char in_value[] = "GET / HTTP/1.1\r\nHost: h\r\nX: a\0b\r\n\r\n";
	static const char in_target[] = "GET /\0 HTTP/1.1\r\nHost: h\r\n\r\n";
	static const char in_name[] = "GET / HTTP/1.1\r\nHo\0st: h\r\n\r\n";
	struct http1_head head;
	(void)state;
	http1_head_init(&head, HTTP1_REQUEST);
	assert_int_equal(http1_head_parse(&head, in_value, sizeof(in_value) - 1), -ERR_BAD_REQUEST);
	http1_head_init(&head, HTTP1_REQUEST);
	assert_int_equal(http1_head_parse(&head, in_target, sizeof(in_target) - 1), -ERR_BAD_REQUEST);
	http1_head_init(&head, HTTP1_REQUEST);
	assert_int_equal(http1_head_parse(&head, in_name, sizeof(in_name) - 1), -ERR_BAD_REQUEST);
}

static void test_head_response_has_no_body(void **state)
{
	static const char text[] = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
	struct http1_head head;
	(void)state;
	http1_head_init(&head, HTTP1_RESPONSE);
	head.is_head_request = true;
	assert_int_equal(http1_head_parse(&head, text, sizeof(text) - 1), HTTP1_DONE);
	assert_int_equal(head.framing, HTTP1_NO_BODY);
	assert_int_equal(head.content_length, 5);
	assert_true(head.is_keep_alive);
}

static void test_targets(void **state)
{
	static const struct {
		const char *line;
		enum http1_form form;
		const char *path, *query, *authority;
	} rows[] = {
		{ "GET /", HTTP1_ORIGIN, "/", "", "h" },
		{ "GET /?", HTTP1_ORIGIN, "/", "", "h" },
		{ "GET /a/b?c=d?e", HTTP1_ORIGIN, "/a/b", "c=d?e", "h" },
		{ "GET //a/../b", HTTP1_ORIGIN, "//a/../b", "", "h" },
		{ "GET http://x.y:81/a?b", HTTP1_ABSOLUTE, "/a", "b", "x.y:81" },
		{ "GET HTTPS://x?b", HTTP1_ABSOLUTE, "", "b", "x" },
		{ "OPTIONS http://x", HTTP1_ABSOLUTE, "", "", "x" },
		{ "OPTIONS *", HTTP1_ASTERISK, "*", "", "h" },
		{ "CONNECT [::1]:443", HTTP1_AUTHORITY, "", "", "[::1]:443" },
	};
	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		char text[128];
		snprintf(text, sizeof(text), "%s HTTP/1.1\r\nHost: h\r\n\r\n", rows[i].line);
		struct http1_head head;
		http1_head_init(&head, HTTP1_REQUEST);
		if (http1_head_parse(&head, text, strlen(text)) != HTTP1_DONE)
			fail_msg("%s: %s", rows[i].line, head.fault);
		assert_int_equal(head.form, rows[i].form);
		if (!str_eq_c(http1_text(text, head.path), rows[i].path) ||
		    !str_eq_c(http1_text(text, head.query), rows[i].query) ||
		    !str_eq_c(http1_text(text, head.authority), rows[i].authority))
			fail_msg("%s: path '%.*s' query '%.*s' authority '%.*s'", rows[i].line,
				 STR_ARG(http1_text(text, head.path)), STR_ARG(http1_text(text, head.query)),
				 STR_ARG(http1_text(text, head.authority)));
	}
}

static void test_header_access(void **state)
{
	static const char text[] = "GET / HTTP/1.1\r\nHost: h\r\nX-A: \t one two \t\r\nx-a: second\r\nX-Empty: \r\n"
				   "Connection: a, upgrade\r\nUpgrade: websocket\r\nExpect: 100-Continue\r\n\r\n";
	struct http1_head head;
	(void)state;
	http1_head_init(&head, HTTP1_REQUEST);
	assert_int_equal(http1_head_parse(&head, text, sizeof(text) - 1), HTTP1_DONE);
	assert_true(str_eq_c(http1_header_get(&head, text, STR("x-A")), "one two"));
	assert_non_null(http1_header_get(&head, text, STR("X-EMPTY")).data);
	assert_int_equal(http1_header_get(&head, text, STR("X-EMPTY")).size, 0);
	assert_null(http1_header_get(&head, text, STR("X-B")).data);
	assert_true(http1_header_has_token(&head, text, STR("connection"), STR("Upgrade")));
	assert_false(http1_header_has_token(&head, text, STR("connection"), STR("close")));
	assert_true(head.is_upgrade);
	assert_true(head.is_expect_continue);
	assert_false(head.is_expect_unknown);
}

static void test_expectations(void **state)
{
	static const struct {
		const char *text;
		bool is_continue, is_unknown;
	} rows[] = {
		{ "PUT / HTTP/1.1\r\nHost: h\r\nExpect: magic\r\n\r\n", false, true },
		{ "PUT / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue, magic\r\n\r\n", false, true },
		{ "PUT / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nExpect: magic\r\n\r\n", true, true },
		{ "PUT / HTTP/1.0\r\nHost: h\r\nExpect: 100-continue\r\n\r\n", false, false },
		{ "PUT / HTTP/1.0\r\nHost: h\r\nExpect: magic\r\n\r\n", false, false },
	};
	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct http1_head head;
		http1_head_init(&head, HTTP1_REQUEST);
		assert_int_equal(http1_head_parse(&head, rows[i].text, strlen(rows[i].text)), HTTP1_DONE);
		assert_int_equal(head.is_expect_continue, rows[i].is_continue);
		assert_int_equal(head.is_expect_unknown, rows[i].is_unknown);
	}
}

/* --- limits --- */

static int parse_buf(struct buf *buf, struct http1_head *head)
{
	http1_head_init(head, HTTP1_REQUEST);
	int result = http1_head_parse(head, buf->data, buf->size);
	/* A limit is a matter of the byte's place: the same in two halves. */
	struct http1_head halves;
	http1_head_init(&halves, HTTP1_REQUEST);
	int half = http1_head_parse(&halves, buf->data, buf->size / 2);
	if (half == HTTP1_MORE)
		half = http1_head_parse(&halves, buf->data, buf->size);
	assert_int_equal(half, result);
	return result;
}

static void fill(struct buf *buf, char byte, size_t count)
{
	while (count-- > 0)
		assert_true(buf_append(buf, (struct str){ &byte, 1 }));
}

static void test_limits(void **state)
{
	struct http1_head head;
	struct buf buf = BUF_INIT(MIB);
	(void)state;
	/* The start line with its CR LF: 8 KiB pass, one more does not. */
	for (size_t over = 0; over <= 1; over++) {
		buf_clear(&buf);
		buf_append_c(&buf, "GET /");
		fill(&buf, 'a', HTTP1_LINE_MAX - strlen("GET / HTTP/1.1\r\n") + over);
		buf_append_c(&buf, " HTTP/1.1\r\nHost: h\r\n\r\n");
		assert_int_equal(parse_buf(&buf, &head), over ? -ERR_HEADER_LIMIT : HTTP1_DONE);
	}
	for (size_t over = 0; over <= 1; over++) {
		buf_clear(&buf);
		buf_append_c(&buf, "GET / HTTP/1.1\r\nHost: h\r\nX: ");
		fill(&buf, 'a', HTTP1_HEAD_MAX - buf.size - 4 + over);
		buf_append_c(&buf, "\r\n\r\n");
		assert_int_equal(parse_buf(&buf, &head), over ? -ERR_HEADER_LIMIT : HTTP1_DONE);
	}
	for (unsigned count = HTTP1_HEADERS_MAX; count <= HTTP1_HEADERS_MAX + 1; count++) {
		buf_clear(&buf);
		buf_append_c(&buf, "GET / HTTP/1.1\r\nHost: h\r\n");
		for (unsigned i = 1; i < count; i++)
			buf_append_c(&buf, "X: y\r\n");
		buf_append_c(&buf, "\r\n");
		assert_int_equal(parse_buf(&buf, &head), count > HTTP1_HEADERS_MAX ? -ERR_HEADER_LIMIT : HTTP1_DONE);
	}
	/* A full buffer without an end is decided: the caller need never offer more. */
	buf_clear(&buf);
	buf_append_c(&buf, "GET / HTTP/1.1\r\nHost: h\r\nX: ");
	fill(&buf, 'a', HTTP1_HEAD_MAX - buf.size);
	assert_int_equal(parse_buf(&buf, &head), -ERR_HEADER_LIMIT);
	buf_fini(&buf);
}

/* --- bodies --- */

struct body_row {
	const char *name, *text;
	int result;
	const char *body;
	size_t rest;
};

static const struct body_row chunked_rows[] = {
	{ "no digits", "\r\nabc", -ERR_BAD_REQUEST, "", 0 },
	{ "not hex", "g\r\n", -ERR_BAD_REQUEST, "", 0 },
	{ "0x", "0x3\r\nabc\r\n0\r\n\r\n", -ERR_BAD_REQUEST, "", 0 },
	{ "minus", "-3\r\nabc\r\n", -ERR_BAD_REQUEST, "", 0 },
	{ "space before", " 3\r\nabc\r\n", -ERR_BAD_REQUEST, "", 0 },
	{ "space after", "3 \r\nabc\r\n", -ERR_BAD_REQUEST, "", 0 },
	{ "space before the extension", "3 ;a\r\nabc\r\n", -ERR_BAD_REQUEST, "", 0 },
	{ "bare LF after the size", "3\nabc\r\n", -ERR_BAD_REQUEST, "", 0 },
	{ "bare CR after the size", "3\rabc\r\n", -ERR_BAD_REQUEST, "", 0 },
	{ "LF in the extension", "3;a\nabc\r\n", -ERR_BAD_REQUEST, "", 0 },
	{ "CR in a quoted value", "3;a=\"\r\n\"\r\nabc\r\n", -ERR_BAD_REQUEST, "", 0 },
	{ "empty extension", "3;\r\nabc\r\n", -ERR_BAD_REQUEST, "", 0 },
	{ "empty extension value", "3;a=\r\nabc\r\n", -ERR_BAD_REQUEST, "", 0 },
	{ "text after a quoted value", "3;a=\"b\"c\r\nabc\r\n", -ERR_BAD_REQUEST, "", 0 },
	{ "too long", "3\r\nabcd\r\n0\r\n\r\n", -ERR_BAD_REQUEST, "abc", 0 },
	{ "LF after the data", "3\r\nabc\n0\r\n\r\n", -ERR_BAD_REQUEST, "abc", 0 },
	{ "CR alone after the data", "3\r\nabc\r0\r\n\r\n", -ERR_BAD_REQUEST, "abc", 0 },
	{ "nothing after the data", "3\r\nabc0\r\n\r\n", -ERR_BAD_REQUEST, "abc", 0 },
	{ "17 digits", "00000000000000003\r\nabc\r\n", -ERR_BAD_REQUEST, "", 0 },
	{ "2^63", "8000000000000000\r\n", -ERR_BAD_REQUEST, "", 0 },
	{ "2^64", "10000000000000000\r\n", -ERR_BAD_REQUEST, "", 0 },
	{ "trailer folded", "0\r\nA: b\r\n c\r\n\r\n", -ERR_BAD_REQUEST, "", 0 },
	{ "trailer without a name", "0\r\n: b\r\n\r\n", -ERR_BAD_REQUEST, "", 0 },
	{ "trailer with a space before the colon", "0\r\nA : b\r\n\r\n", -ERR_BAD_REQUEST, "", 0 },
	{ "trailer with bare LF", "0\r\nA: b\n\r\n", -ERR_BAD_REQUEST, "", 0 },
	{ "trailer with a control", "0\r\nA: \x01\r\n\r\n", -ERR_BAD_REQUEST, "", 0 },
	{ "end with bare LF", "0\r\n\n", -ERR_BAD_REQUEST, "", 0 },
	{ "end with bare CR", "0\r\n\rx", -ERR_BAD_REQUEST, "", 0 },
	{ "nothing yet", "", HTTP1_MORE, "", 0 },
	{ "in the size", "3", HTTP1_MORE, "", 0 },
	{ "in the data", "3\r\nab", HTTP1_MORE, "ab", 0 },
	{ "in the end", "0\r\n\r", HTTP1_MORE, "", 0 },
	{ "the longest", "7FFFffffFFFFffff\r\nab", HTTP1_MORE, "ab", 0 },
	{ "empty", "0\r\n\r\n", HTTP1_DONE, "", 0 },
	{ "zeros", "0000\r\n\r\nGET", HTTP1_DONE, "", 3 },
	{ "one", "3\r\nabc\r\n0\r\n\r\n", HTTP1_DONE, "abc", 0 },
	{ "two and the next", "3\r\nabc\r\n0A\r\n0123456789\r\n0\r\n\r\nPUT /", HTTP1_DONE, "abc0123456789", 5 },
	{ "data like framing", "7\r\n\r\n0\r\n\r\n\r\n0\r\n\r\n", HTTP1_DONE, "\r\n0\r\n\r\n", 0 },
	{ "extensions", "3;a\r\nabc\r\n1;b=c;d=\"e \\\" ;\r\"\r\n", -ERR_BAD_REQUEST, "abc", 0 },
	{ "good extensions", "3;a\r\nabc\r\n1;b=c;d=\"e \\\" ;\"\r\nx\r\n0;z\r\n\r\n", HTTP1_DONE, "abcx", 0 },
	{ "trailers", "1\r\nx\r\n0\r\nA: b\r\nC:\r\n\r\nZ", HTTP1_DONE, "x", 1 },
};

/* Feeds at most step bytes at a time, as a connection would. */
static int decode(struct http1_body *body, const char *text, size_t size, size_t step, struct buf *ret_body,
		  size_t *ret_used)
{
	int result = HTTP1_MORE;
	size_t at = 0;
	while (result == HTTP1_MORE && at < size) {
		size_t given = min_size(step, size - at), begin = 0;
		char *copy = malloc(given);
		assert_non_null(copy);
		memcpy(copy, text + at, given);
		while (result == HTTP1_MORE && begin < given) {
			size_t used;
			struct str piece;
			result = http1_body_step(body, copy + begin, given - begin, &used, &piece);
			assert_true(used > 0 || result != HTTP1_MORE);
			if (piece.size > 0)
				buf_append(ret_body, piece);
			begin += used;
		}
		free(copy);
		at += begin;
	}
	*ret_used = at;
	return result;
}

static void test_chunked(void **state)
{
	struct http1_head head = { .framing = HTTP1_CHUNKED };
	(void)state;
	for (size_t i = 0; i < COUNT_OF(chunked_rows); i++) {
		const struct body_row *row = &chunked_rows[i];
		size_t size = strlen(row->text);
		for (size_t step = 1; step <= max_size(size, 1); step++) {
			struct buf got = BUF_INIT(KIB);
			struct http1_body body;
			size_t used;
			http1_body_init(&body, &head);
			int result = decode(&body, row->text, size, step, &got, &used);
			if (result != row->result || !str_eq_c(buf_str(&got), row->body) ||
			    (result == HTTP1_DONE && size - used != row->rest))
				fail_msg("%s by %zu: %d (%s), body '%.*s', %zu left", row->name, step, result,
					 body.fault ? body.fault : "", STR_ARG(buf_str(&got)), size - used);
			size_t more;
			struct str piece;
			if (result != HTTP1_MORE) { /* stays as it is */
				assert_int_equal(http1_body_step(&body, "0\r\n\r\n", 5, &more, &piece), result);
				assert_int_equal(more, 0);
			}
			buf_fini(&got);
		}
	}
}

static void test_length_and_close(void **state)
{
	struct http1_body body;
	struct str piece;
	size_t used;
	(void)state;
	http1_body_init(&body, &(struct http1_head){ .framing = HTTP1_LENGTH, .content_length = 5 });
	assert_int_equal(http1_body_step(&body, NULL, 0, &used, &piece), HTTP1_MORE);
	assert_int_equal(http1_body_step(&body, "abc", 3, &used, &piece), HTTP1_MORE);
	assert_int_equal(used, 3);
	assert_int_equal(http1_body_step(&body, "deGET", 5, &used, &piece), HTTP1_DONE);
	assert_int_equal(used, 2);
	assert_true(str_eq_c(piece, "de"));
	assert_int_equal(http1_body_step(&body, "GET", 3, &used, &piece), HTTP1_DONE);
	assert_int_equal(used, 0);

	http1_body_init(&body, &(struct http1_head){ .framing = HTTP1_LENGTH, .content_length = 0 });
	assert_int_equal(http1_body_step(&body, NULL, 0, &used, &piece), HTTP1_DONE);
	http1_body_init(&body, &(struct http1_head){ .framing = HTTP1_NO_BODY });
	assert_int_equal(http1_body_step(&body, "GET", 3, &used, &piece), HTTP1_DONE);
	assert_int_equal(used, 0);

	http1_body_init(&body, &(struct http1_head){ .kind = HTTP1_RESPONSE, .framing = HTTP1_UNTIL_CLOSE });
	for (int i = 0; i < 3; i++) {
		assert_int_equal(http1_body_step(&body, "abc", 3, &used, &piece), HTTP1_MORE);
		assert_int_equal(used, 3);
		assert_true(str_eq_c(piece, "abc"));
	}
	http1_body_init(&body, &(struct http1_head){ .kind = HTTP1_RESPONSE, .framing = HTTP1_CHUNKED });
	assert_int_equal(http1_body_step(&body, "x", 1, &used, &piece), -ERR_PEER);
}

/* The limits run over the whole body: many small extensions are as bad as one long one. */
static void test_body_limits(void **state)
{
	struct http1_head head = { .framing = HTTP1_CHUNKED };
	(void)state;
	for (size_t over = 0; over <= 1; over++) {
		struct buf text = BUF_INIT(MIB), got = BUF_INIT(MIB);
		struct http1_body body;
		size_t used;
		/* "a" and the CR after it count: two bytes a chunk. */
		for (size_t i = 0; i < HTTP1_CHUNK_EXT_MAX / 2 + over; i++)
			buf_append_c(&text, "1;a\r\nx\r\n");
		buf_append_c(&text, "0\r\n\r\n");
		http1_body_init(&body, &head);
		assert_int_equal(decode(&body, text.data, text.size, 100, &got, &used),
				 over ? -ERR_HEADER_LIMIT : HTTP1_DONE);

		buf_clear(&text);
		buf_append_c(&text, "0\r\nA: ");
		fill(&text, 'b', HTTP1_TRAILER_MAX - strlen("A: \r\n\r\n") + over);
		buf_append_c(&text, "\r\n\r\n");
		http1_body_init(&body, &head);
		assert_int_equal(decode(&body, text.data, text.size, 100, &got, &used),
				 over ? -ERR_HEADER_LIMIT : HTTP1_DONE);
		buf_fini(&text);
		buf_fini(&got);
	}
}

static void test_words(void **state)
{
	(void)state;
	assert_true(http1_is_token(STR("X-Abc_1!~")));
	assert_false(http1_is_token(STR_NONE));
	assert_false(http1_is_token(STR("a b")));
	assert_false(http1_is_token(STR("a:")));
	assert_true(http1_is_field_value(STR_NONE));
	assert_true(http1_is_field_value(STR("a \t\xff z")));
	assert_false(http1_is_field_value(STR(" a")));
	assert_false(http1_is_field_value(STR("a\t")));
	assert_false(http1_is_field_value(STR("a\r\nX: y")));
	assert_false(http1_is_field_value(STR("a\0b")));
	assert_true(http1_is_authority(STR_NONE));
	assert_true(http1_is_authority(STR("a.b-c_d")));
	assert_true(http1_is_authority(STR("[fe80::1]")));
	assert_true(http1_is_authority(STR("h:65535")));
	assert_false(http1_is_authority(STR(":80")));
	assert_false(http1_is_authority(STR("h:123456")));
	assert_false(http1_is_authority(STR("[]")));
	assert_false(http1_is_authority(STR("[::1]x")));
	assert_false(http1_is_authority(STR("a]b")));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_requests),     cmocka_unit_test(test_responses),
		cmocka_unit_test(test_nul_bytes),    cmocka_unit_test(test_head_response_has_no_body),
		cmocka_unit_test(test_targets),      cmocka_unit_test(test_header_access),
		cmocka_unit_test(test_expectations), cmocka_unit_test(test_limits),
		cmocka_unit_test(test_chunked),      cmocka_unit_test(test_length_and_close),
		cmocka_unit_test(test_body_limits),  cmocka_unit_test(test_words),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
