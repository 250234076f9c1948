#include <inttypes.h>
#include <string.h>

#include "folder/receipt.h"

/* The order is the wire's: docs/api.md, "Internal: POST /internal/v1/receipts". */
enum receipt_field {
	FIELD_TRANSFER_ID,
	FIELD_FILE_ID,
	FIELD_CHUNK_INDEX,
	FIELD_SIZE,
	FIELD_DIGEST,
	FIELD_NODE_ID,
	FIELD_NODE_ADDR,
	FIELD_CLIENT_ADDR,
	FIELD_REQUEST_ID,
	FIELD_USER,
	FIELD_USER_AGENT,
	FIELD_DISK_PATH,
	FIELD_STARTED_US,
	FIELD_FINISHED_US,
	FIELD_OUTCOME,
	FIELD_COUNT
};
static const char *const field_names[FIELD_COUNT] = {
	"transfer_id", "file_id", "chunk_index", "size",      "digest",     "node_id",     "node_addr", "client_addr",
	"request_id",  "user",    "user_agent",  "disk_path", "started_us", "finished_us", "outcome",
};

static const char stored_word[] = "stored";
static const char ok_word[] = "ok";

/* The longest text field of a receipt, with its NUL. */
#define FIELD_TEXT_MAX 256

static void append_text(struct buf *buf, const char *text, char end)
{
	char encoded[3 * FIELD_TEXT_MAX + 1];

	(void)percent_encode(str_from(text), true, encoded, sizeof(encoded));
	buf_append_c(buf, encoded);
	buf_append(buf, (struct str){ &end, 1 });
}

static bool is_bare(enum digest_kind kind) { return kind == DIGEST_MD5 || kind == DIGEST_SHA256; }

static void append_digest(struct buf *buf, const struct store_receipt *receipt)
{
	if (!is_bare(receipt->digest_kind))
		buf_printf(buf, "%s:", digest_name(receipt->digest_kind));
	append_text(buf, receipt->digest, '\t');
}

void receipt_write(struct buf *buf, const struct store_receipt *receipt)
{
	append_text(buf, receipt->transfer_id, '\t');
	buf_printf(buf, "%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\t", receipt->file_id, receipt->chunk_index,
		   receipt->size_bytes);
	append_digest(buf, receipt);
	append_text(buf, receipt->node_id, '\t');
	append_text(buf, receipt->node_addr, '\t');
	append_text(buf, receipt->client_addr, '\t');
	append_text(buf, receipt->request_id, '\t');
	append_text(buf, receipt->user, '\t');
	append_text(buf, receipt->user_agent, '\t');
	append_text(buf, receipt->disk_path, '\t');
	buf_printf(buf, "%" PRId64 "\t%" PRId64 "\t", receipt->started_wall_us, receipt->finished_wall_us);
	append_text(buf, receipt->outcome == ERR_NONE ? stored_word : err_word(receipt->outcome), '\n');
}

static int field_fault(enum receipt_field field, const char *rule, struct err *err)
{
	return err_set(err, ERR_BAD_REQUEST, "receipt: field '%s' %s", field_names[field], rule);
}

static int parse_text(const struct str *fields, enum receipt_field field, char *target, size_t target_size,
		      struct err *err)
{
	char raw[3 * FIELD_TEXT_MAX];
	size_t size;

	if (fields[field].size > sizeof(raw))
		return field_fault(field, "is too long", err);
	if (!percent_decode(fields[field], raw, sizeof(raw), &size))
		return field_fault(field, "is not percent-encoded text", err);
	if (!str_copy((struct str){ raw, size }, target, target_size))
		return field_fault(field, "is too long or holds a NUL", err);
	return 0;
}

/* MD5 and SHA-256 stand bare, as they did before there were others: their length tells them apart. */
static bool parse_digest(struct str field, struct store_receipt *ret)
{
	const bool has_kind = field.size > 0 && memchr(field.data, ':', field.size);
	struct str kind;

	if (has_kind &&
	    (!str_cut(&field, ':', &kind) || !digest_from_name(kind, &ret->digest_kind) || is_bare(ret->digest_kind)))
		return false;
	if (!has_kind)
		ret->digest_kind = digest_hex_is_valid(DIGEST_MD5, field) ? DIGEST_MD5 : DIGEST_SHA256;
	return digest_hex_is_valid(ret->digest_kind, field) && str_copy(field, ret->digest, sizeof(ret->digest));
}

static int parse_number(const struct str *fields, enum receipt_field field, uint64_t *ret_value, struct err *err)
{
	/* The tables keep signed 64-bit numbers: a larger one could not be stored. */
	if (!str_to_u64(fields[field], ret_value) || *ret_value > INT64_MAX)
		return field_fault(field, "is not a number in range", err);
	return 0;
}

static int parse_time(const struct str *fields, enum receipt_field field, int64_t *ret_wall_us, struct err *err)
{
	uint64_t value = 0;

	if (parse_number(fields, field, &value, err) < 0)
		return -ERR_BAD_REQUEST;
	*ret_wall_us = (int64_t)value;
	return 0;
}

static int parse_outcome(const struct str *fields, enum err_code *ret_outcome, struct err *err)
{
	const struct str word = fields[FIELD_OUTCOME];

	*ret_outcome = ERR_NONE;
	if (str_eq_c(word, stored_word))
		return 0;
	*ret_outcome = err_from_word(word.data, word.size);
	/* An unknown word reads as INTERNAL: a newer node's outcome must not be taken for one it did not say. */
	if (*ret_outcome == ERR_INTERNAL && !str_eq_c(word, err_word(ERR_INTERNAL)))
		return field_fault(FIELD_OUTCOME, "is not a known word", err);
	return 0;
}

static int split(struct str line, struct str *ret_fields, struct err *err)
{
	size_t count = 0;
	const char *start = line.data;
	const char *end = line.data + line.size;

	if (line.size == 0 || line.size >= RECEIPT_LINE_MAX)
		return err_set(err, ERR_BAD_REQUEST, "receipt: a line of %zu bytes (1 to %d are allowed)", line.size,
			       RECEIPT_LINE_MAX - 1);
	for (;;) {
		const char *tab = memchr(start, '\t', (size_t)(end - start));
		const char *stop = tab ? tab : end;

		if (count == FIELD_COUNT)
			return err_set(err, ERR_BAD_REQUEST, "receipt: more than %d fields", FIELD_COUNT);
		ret_fields[count++] = (struct str){ start, (size_t)(stop - start) };
		if (!tab)
			break;
		start = tab + 1;
	}
	if (count != FIELD_COUNT)
		return err_set(err, ERR_BAD_REQUEST, "receipt: %zu fields instead of %d", count, FIELD_COUNT);
	return 0;
}

static int check_meaning(const struct store_receipt *receipt, struct err *err)
{
	if (!ulid_is_valid(receipt->transfer_id, strlen(receipt->transfer_id)))
		return field_fault(FIELD_TRANSFER_ID, "is not a ULID", err);
	if (receipt->file_id == 0)
		return field_fault(FIELD_FILE_ID, "is 0 (file ids begin at 1)", err);
	if (receipt->node_id[0] == '\0')
		return field_fault(FIELD_NODE_ID, "is empty", err);
	return 0;
}

int receipt_parse(struct str line, struct store_receipt *ret, struct err *err)
{
	struct str fields[FIELD_COUNT];
	const struct {
		enum receipt_field field;
		char *target;
		size_t target_size;
	} texts[] = {
		{ FIELD_TRANSFER_ID, ret->transfer_id, sizeof(ret->transfer_id) },
		{ FIELD_NODE_ID, ret->node_id, sizeof(ret->node_id) },
		{ FIELD_NODE_ADDR, ret->node_addr, sizeof(ret->node_addr) },
		{ FIELD_CLIENT_ADDR, ret->client_addr, sizeof(ret->client_addr) },
		{ FIELD_REQUEST_ID, ret->request_id, sizeof(ret->request_id) },
		{ FIELD_USER, ret->user, sizeof(ret->user) },
		{ FIELD_USER_AGENT, ret->user_agent, sizeof(ret->user_agent) },
		{ FIELD_DISK_PATH, ret->disk_path, sizeof(ret->disk_path) },
	};

	memset(ret, 0, sizeof(*ret));
	if (split(line, fields, err) < 0)
		return -ERR_BAD_REQUEST;
	for (size_t i = 0; i < COUNT_OF(texts); i++)
		if (parse_text(fields, texts[i].field, texts[i].target, texts[i].target_size, err) < 0)
			return -ERR_BAD_REQUEST;
	if (!parse_digest(fields[FIELD_DIGEST], ret))
		return field_fault(FIELD_DIGEST, "is not an MD5, SHA-256 or SM3 digest in lower-case hex", err);
	if (parse_number(fields, FIELD_FILE_ID, &ret->file_id, err) < 0 ||
	    parse_number(fields, FIELD_CHUNK_INDEX, &ret->chunk_index, err) < 0 ||
	    parse_number(fields, FIELD_SIZE, &ret->size_bytes, err) < 0 ||
	    parse_time(fields, FIELD_STARTED_US, &ret->started_wall_us, err) < 0 ||
	    parse_time(fields, FIELD_FINISHED_US, &ret->finished_wall_us, err) < 0 ||
	    parse_outcome(fields, &ret->outcome, err) < 0)
		return -ERR_BAD_REQUEST;
	return check_meaning(ret, err);
}

void receipt_answer_write(struct buf *buf, enum err_code result)
{
	buf_append_c(buf, result == ERR_NONE ? ok_word : err_word(result));
	buf_append_c(buf, "\n");
}

int receipt_answer_parse(struct str line, enum err_code *ret_result, struct err *err)
{
	*ret_result = ERR_NONE;
	if (str_eq_c(line, ok_word))
		return 0;
	*ret_result = err_from_word(line.data, line.size);
	if (*ret_result == ERR_INTERNAL && !str_eq_c(line, err_word(ERR_INTERNAL)))
		return err_set(err, ERR_PEER, "the scheduler answered a receipt with an unknown word of %zu bytes",
			       line.size);
	return 0;
}
