/* HTTP/1: however a message is cut into pieces, the parser must come to the same result, and what it accepts must keep its promises.
 * The first byte of an input chooses: 'q' a request, 's' a response, 'h' a response to HEAD, 'c' a chunked body. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/rng.h"
#include "wire/http1.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct outcome {
	int result;
	size_t used;
	uint64_t body_size;
	uint32_t body_crc;
	const char *fault;
};

/* Cuts of 1..16 bytes, now and then of many: drawn from the input, so that a finding can be repeated. */
static size_t next_cut(struct rng *rng, size_t at, size_t size)
{
	size_t step = 1 + (size_t)rng_below(rng, rng_below(rng, 8) == 0 ? 4096 : 16);
	return min_size(size, at + step);
}

static int parse_in_pieces(struct http1_head *head, struct rng *rng, const char *data, size_t size)
{
	for (size_t at = 0;;) {
		/* A copy of exactly what has come, so that a look beyond it is seen. */
		char *copy = must_alloc(at + !at);
		memcpy(copy, data, at);
		int result = http1_head_parse(head, copy, at);
		free(copy);
		if (result != HTTP1_MORE || at == size)
			return result;
		at = next_cut(rng, at, size);
	}
}

static bool is_same(struct http1_span a, struct http1_span b) { return a.offset == b.offset && a.size == b.size; }

static void compare_heads(const struct http1_head *a, const struct http1_head *b)
{
	MUST(a->fault == b->fault && a->failure == b->failure && a->head_size == b->head_size);
	MUST(a->header_count == b->header_count && a->framing == b->framing && a->content_length == b->content_length);
	MUST(a->is_keep_alive == b->is_keep_alive && a->status == b->status && a->minor_version == b->minor_version);
	MUST(a->is_expect_continue == b->is_expect_continue && a->is_expect_unknown == b->is_expect_unknown);
	MUST(a->form == b->form && a->is_upgrade == b->is_upgrade);
	MUST(is_same(a->method, b->method) && is_same(a->target, b->target) && is_same(a->reason, b->reason));
	MUST(is_same(a->path, b->path) && is_same(a->query, b->query) && is_same(a->authority, b->authority));
	for (unsigned i = 0; i < a->header_count; i++)
		MUST(is_same(a->headers[i].name, b->headers[i].name) &&
		     is_same(a->headers[i].value, b->headers[i].value));
}

static void check_inside(struct http1_span span, const struct http1_head *head)
{
	MUST((uint64_t)span.offset + span.size <= head->head_size);
}

static void check_accepted(const struct http1_head *head, const char *data, size_t size)
{
	unsigned length_count = 0, coding_count = 0, host_count = 0;
	MUST(head->head_size >= 4 && head->head_size <= size && head->head_size <= HTTP1_HEAD_MAX);
	MUST(memcmp(data + head->head_size - 4, "\r\n\r\n", 4) == 0);
	check_inside(head->method, head);
	check_inside(head->target, head);
	check_inside(head->reason, head);
	check_inside(head->path, head);
	check_inside(head->query, head);
	check_inside(head->authority, head);
	for (unsigned i = 0; i < head->header_count; i++) {
		struct str name = http1_text(data, head->headers[i].name),
			   value = http1_text(data, head->headers[i].value);
		check_inside(head->headers[i].name, head);
		check_inside(head->headers[i].value, head);
		MUST(http1_is_token(name) && http1_is_field_value(value));
		length_count += str_eq_nocase(name, STR("content-length"));
		coding_count += str_eq_nocase(name, STR("transfer-encoding"));
		host_count += str_eq_nocase(name, STR("host"));
	}
	/* One framing, and one only. */
	MUST(length_count <= 1 && coding_count <= 1 && (length_count == 0 || coding_count == 0));
	MUST(head->framing != HTTP1_LENGTH || (length_count == 1 && head->content_length <= INT64_MAX));
	MUST(head->framing != HTTP1_CHUNKED || (coding_count == 1 && head->minor_version == 1));
	if (head->kind == HTTP1_REQUEST) {
		MUST(http1_is_token(http1_text(data, head->method)));
		MUST(host_count == 1 || (host_count == 0 && head->minor_version == 0));
		MUST(head->framing != HTTP1_UNTIL_CLOSE);
		MUST((head->framing == HTTP1_NO_BODY) == (length_count + coding_count == 0));
	} else {
		MUST(head->framing != HTTP1_UNTIL_CLOSE || !head->is_keep_alive);
	}
}

/* Decodes with cuts from rng, or at once without one. */
static struct outcome decode(const struct http1_head *head, struct rng *rng, const char *data, size_t size)
{
	struct outcome out = { .result = HTTP1_MORE };
	struct http1_body body;
	http1_body_init(&body, head);
	while (out.result == HTTP1_MORE && out.used < size) {
		size_t given = rng ? next_cut(rng, out.used, size) - out.used : size - out.used;
		char *copy = must_alloc(given);
		memcpy(copy, data + out.used, given);
		for (size_t begin = 0; out.result == HTTP1_MORE && begin < given;) {
			size_t used;
			struct str piece;
			out.result = http1_body_step(&body, copy + begin, given - begin, &used, &piece);
			MUST(used <= given - begin && (used > 0 || out.result != HTTP1_MORE));
			MUST(piece.size == 0 ||
			     (piece.data >= copy + begin && piece.data + piece.size <= copy + given));
			MUST(out.result >= 0 || body.fault);
			if (piece.size > 0)
				out.body_crc = crc32c(out.body_crc, piece.data, piece.size);
			out.body_size += piece.size;
			begin += used;
			out.used += used;
		}
		free(copy);
	}
	out.fault = body.fault;
	return out;
}

static void check_body(const struct http1_head *head, struct rng *rng, const char *data, size_t size)
{
	struct outcome whole = decode(head, NULL, data, size), pieces = decode(head, rng, data, size);
	MUST(whole.result == pieces.result && whole.used == pieces.used && whole.fault == pieces.fault);
	MUST(whole.body_size == pieces.body_size && whole.body_crc == pieces.body_crc);
	MUST(whole.body_size <= size);
	if (head->framing == HTTP1_LENGTH && whole.result == HTTP1_DONE && size > 0)
		MUST(whole.body_size == head->content_length && whole.used == head->content_length);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size == 0)
		return 0;
	const char *text = (const char *)data + 1;
	size--;
	struct rng rng;
	rng_seed(&rng, hash64(data, size));

	if (data[0] == 'c') {
		check_body(&(struct http1_head){ .framing = HTTP1_CHUNKED }, &rng, text, size);
		return 0;
	}
	struct http1_head whole, pieces;
	enum http1_kind kind = data[0] == 's' || data[0] == 'h' ? HTTP1_RESPONSE : HTTP1_REQUEST;
	http1_head_init(&whole, kind);
	http1_head_init(&pieces, kind);
	whole.is_head_request = pieces.is_head_request = data[0] == 'h';
	int result = http1_head_parse(&whole, text, size);
	MUST(parse_in_pieces(&pieces, &rng, text, size) == result);
	compare_heads(&whole, &pieces);
	MUST((result < 0) == (whole.fault != NULL));
	if (result != HTTP1_DONE)
		return 0;
	check_accepted(&whole, text, size);
	check_body(&whole, &rng, text + whole.head_size, size - whole.head_size);
	return 0;
}
