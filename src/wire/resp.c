#include "wire/resp.h"

#include <inttypes.h>
#include <string.h>

#define LENGTH_LINE_MAX 32 /* "$18446744073709551615": more digits are no length */

/* The line after the type's byte, without its CRLF. */
static int take_line(struct str data, size_t line_max, struct str *ret_line, size_t *ret_used)
{
	const size_t seen = min_size(data.size - 1, line_max + 1);
	const char *end = memchr(data.data + 1, '\r', seen);

	/* A line feed alone, or a CR that is followed by something else, is no line end: nobody may see two lines where another sees one. */
	if (memchr(data.data + 1, '\n', end ? (size_t)(end - data.data - 1) : seen))
		return -ERR_PEER;
	if (!end)
		return data.size - 1 > line_max ? -ERR_LIMIT : RESP_MORE;
	*ret_line = (struct str){ data.data + 1, (size_t)(end - data.data - 1) };
	*ret_used = ret_line->size + 3;
	if (*ret_used > data.size)
		return RESP_MORE;
	return end[1] == '\n' ? RESP_DONE : -ERR_PEER;
}

static bool is_digits(struct str text)
{
	for (size_t i = 0; i < text.size; i++) {
		if (text.data[i] < '0' || text.data[i] > '9')
			return false;
	}
	return text.size > 0;
}

static struct str without_sign(struct str text, bool may_be_plus)
{
	if (text.size > 0 && (text.data[0] == '-' || (may_be_plus && text.data[0] == '+')))
		text = (struct str){ text.data + 1, text.size - 1 };
	return text;
}

static bool read_int(struct str text, int64_t *ret)
{
	if (text.size > 0 && text.data[0] == '+')
		return is_digits(without_sign(text, true)) && str_to_i64(without_sign(text, true), ret);
	return str_to_i64(text, ret);
}

/* inf, -inf, nan, 10, -1.5, 1e+20: its digits are the reader's business. */
static bool is_double(struct str text)
{
	const struct str word = without_sign(text, true);

	if (str_eq_c(word, "inf") || str_eq_c(word, "nan"))
		return true;
	bool has_digit = false;
	for (size_t i = 0; i < word.size; i++) {
		const char c = word.data[i];

		has_digit |= c >= '0' && c <= '9';
		if (!((c >= '0' && c <= '9') || c == '.' || c == 'e' || c == 'E' || ((c == '+' || c == '-') && i > 0)))
			return false;
	}
	return has_digit;
}

static int take_bulk(struct str data, uint64_t size, const struct resp_limits *limits, size_t *used,
		     struct str *ret_text)
{
	if (size > limits->bulk_bytes)
		return -ERR_LIMIT;
	const size_t head = *used, whole = head + (size_t)size + 2;

	/* The line end is looked at as soon as it is there, byte by byte. */
	if (data.size > head + size && data.data[head + size] != '\r')
		return -ERR_PEER;
	if (data.size < whole)
		return RESP_MORE;
	if (data.data[whole - 1] != '\n')
		return -ERR_PEER;
	*ret_text = (struct str){ data.data + head, (size_t)size };
	*used = whole;
	return RESP_DONE;
}

static int sized_item(struct str data, enum resp_type type, const struct resp_limits *limits, size_t *ret_used,
		      struct resp_item *item)
{
	struct str line;
	uint64_t size;
	int r = take_line(data, LENGTH_LINE_MAX, &line, ret_used);

	if (r != RESP_DONE)
		return r == -ERR_LIMIT ? -ERR_PEER : r;
	if (str_eq_c(line, "-1") && (type == RESP_BULK || type == RESP_ARRAY)) {
		item->type = RESP_NULL;
		return RESP_DONE;
	}
	if (!str_to_u64(line, &size))
		return -ERR_PEER;
	item->type = type;
	if (type == RESP_BULK || type == RESP_BULK_ERROR || type == RESP_VERBATIM) {
		r = take_bulk(data, size, limits, ret_used, &item->text);
		if (r == RESP_DONE && type == RESP_VERBATIM && (size < 4 || item->text.data[3] != ':'))
			return -ERR_PEER;
		return r;
	}
	const bool is_pairs = type == RESP_MAP || type == RESP_ATTRIBUTE;

	if (size > limits->element_count)
		return -ERR_LIMIT;
	item->element_count = is_pairs ? 2 * size : size;
	return RESP_DONE;
}

static int line_item(struct str data, enum resp_type type, const struct resp_limits *limits, size_t *ret_used,
		     struct resp_item *item)
{
	const int r = take_line(data, limits->line_bytes, &item->text, ret_used);
	const struct str text = item->text;
	bool is_good = true;

	if (r != RESP_DONE)
		return r;
	item->type = type;
	if (type == RESP_INT)
		is_good = read_int(text, &item->number);
	else if (type == RESP_BIG)
		is_good = is_digits(without_sign(text, true));
	else if (type == RESP_DOUBLE)
		is_good = is_double(text);
	else if (type == RESP_NULL)
		is_good = text.size == 0;
	else if (type == RESP_BOOL)
		is_good = str_eq_c(text, "t") || str_eq_c(text, "f");
	if (type == RESP_BOOL && is_good)
		item->number = text.data[0] == 't';
	return is_good ? RESP_DONE : -ERR_PEER;
}

int resp_item(struct str data, const struct resp_limits *limits, size_t *ret_used, struct resp_item *ret_item)
{
	static const struct {
		char byte;
		bool is_sized;
		enum resp_type type;
	} types[] = {
		{ '+', false, RESP_SIMPLE },    { '-', false, RESP_ERROR },   { ':', false, RESP_INT },
		{ '$', true, RESP_BULK },       { '*', true, RESP_ARRAY },    { '_', false, RESP_NULL },
		{ '#', false, RESP_BOOL },      { ',', false, RESP_DOUBLE },  { '(', false, RESP_BIG },
		{ '!', true, RESP_BULK_ERROR }, { '=', true, RESP_VERBATIM }, { '%', true, RESP_MAP },
		{ '~', true, RESP_SET },        { '>', true, RESP_PUSH },     { '|', true, RESP_ATTRIBUTE },
	};

	*ret_used = 0;
	*ret_item = (struct resp_item){ .text = STR_NONE };
	if (data.size == 0)
		return RESP_MORE;
	for (size_t i = 0; i < COUNT_OF(types); i++) {
		if (types[i].byte == data.data[0])
			return types[i].is_sized ? sized_item(data, types[i].type, limits, ret_used, ret_item)
						 : line_item(data, types[i].type, limits, ret_used, ret_item);
	}
	return -ERR_PEER;
}

/* One value less is to come; what is complete by that is one less above it. */
static void scan_close(struct resp_scan *scan)
{
	while (scan->depth > 0 && scan->open[scan->depth - 1].left == 0) {
		const bool is_attribute = scan->open[--scan->depth].is_attribute;

		if (is_attribute)
			break;
		if (scan->depth > 0)
			scan->open[scan->depth - 1].left--;
	}
}

int resp_scan(struct resp_scan *scan, struct str data, const struct resp_limits *limits, size_t *ret_size)
{
	if (scan->depth == 0) {
		*scan = (struct resp_scan){ .depth = 1 };
		scan->open[0].left = 1;
	}
	while (scan->depth > 0) {
		const struct str rest = { data.data + scan->at, data.size - scan->at };
		struct resp_item item;
		size_t used;
		const int r = resp_item(rest, limits, &used, &item);

		if (r == RESP_MORE)
			return data.size > limits->value_bytes ? -ERR_LIMIT : RESP_MORE;
		if (r < 0)
			return r;
		scan->at += used;
		if (++scan->item_count > limits->element_count || scan->at > limits->value_bytes)
			return -ERR_LIMIT;
		if (item.element_count > 0) {
			if (scan->depth == RESP_DEPTH_MAX)
				return -ERR_LIMIT;
			scan->open[scan->depth].left = item.element_count;
			scan->open[scan->depth++].is_attribute = item.type == RESP_ATTRIBUTE;
		} else if (item.type != RESP_ATTRIBUTE) {
			scan->open[scan->depth - 1].left--;
			scan_close(scan);
		}
	}
	*ret_size = scan->at;
	*scan = (struct resp_scan){ 0 };
	return RESP_DONE;
}

bool resp_command(struct buf *target, const struct str *args, size_t count)
{
	buf_printf(target, "*%zu\r\n", count);
	for (size_t i = 0; i < count; i++) {
		buf_printf(target, "$%zu\r\n", args[i].size);
		buf_append(target, args[i]);
		buf_append(target, STR("\r\n"));
	}
	return !target->is_failed;
}
