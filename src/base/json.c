#include "base/json.h"

#include <inttypes.h>
#include <jansson.h>

/* What an error answer may weigh: more is not one of ours. */
#define ANSWER_MAX_BYTES (64 * KIB)

static const char *const RETRY_WORDS[] = {
	[ERR_RETRY_NO] = "no",
	[ERR_RETRY_SAME] = "same_node",
	[ERR_RETRY_OTHER] = "other_node",
};

void json_init(struct json *json, struct buf *buf) { *json = (struct json){ .buf = buf }; }

static void put_text(struct buf *buf, struct str value)
{
	size_t clean = 0;

	buf_append(buf, STR("\""));
	while (clean < value.size) {
		struct str rest = { value.data + clean, value.size - clean };
		unsigned char byte = (unsigned char)rest.data[0];
		size_t size = utf8_char_size(rest);

		if (size > 0 && byte >= 0x20 && byte != '"' && byte != '\\') {
			clean += size;
			continue;
		}
		/* Runs of clean bytes go out in one piece. */
		buf_append(buf, (struct str){ value.data, clean });
		if (byte == '"' || byte == '\\')
			buf_printf(buf, "\\%c", byte);
		else if (byte == '\n')
			buf_append(buf, STR("\\n"));
		else
			buf_printf(buf, "\\u%04x", byte);
		value = (struct str){ rest.data + 1, rest.size - 1 };
		clean = 0;
	}
	buf_append(buf, value);
	buf_append(buf, STR("\""));
}

/* The comma and the key before a value. The root has neither, so that lines of documents can share a writer. */
static void begin_value(struct json *json, const char *key)
{
	if (json->depth > 0) {
		if (json->has_item[json->depth])
			buf_append(json->buf, STR(","));
		json->has_item[json->depth] = true;
	}
	if (key) {
		put_text(json->buf, str_from(key));
		buf_append(json->buf, STR(":"));
	}
}

static void open_level(struct json *json, const char *key, const char *bracket)
{
	begin_value(json, key);
	MUST(json->depth < JSON_DEPTH_MAX);
	json->depth++;
	json->has_item[json->depth] = false;
	buf_append_c(json->buf, bracket);
}

static void close_level(struct json *json, const char *bracket)
{
	MUST(json->depth > 0);
	json->depth--;
	buf_append_c(json->buf, bracket);
}

void json_open(struct json *json, const char *key) { open_level(json, key, "{"); }

void json_close(struct json *json) { close_level(json, "}"); }

void json_open_list(struct json *json, const char *key) { open_level(json, key, "["); }

void json_close_list(struct json *json) { close_level(json, "]"); }

void json_str(struct json *json, const char *key, struct str value)
{
	begin_value(json, key);
	put_text(json->buf, value);
}

void json_c(struct json *json, const char *key, const char *value)
{
	if (value) {
		json_str(json, key, str_from(value));
		return;
	}
	begin_value(json, key);
	buf_append(json->buf, STR("null"));
}

void json_i64(struct json *json, const char *key, int64_t value)
{
	begin_value(json, key);
	buf_printf(json->buf, "%" PRId64, value);
}

void json_u64(struct json *json, const char *key, uint64_t value)
{
	begin_value(json, key);
	buf_printf(json->buf, "%" PRIu64, value);
}

void json_bool(struct json *json, const char *key, bool value)
{
	begin_value(json, key);
	buf_append_c(json->buf, value ? "true" : "false");
}

void json_milli(struct json *json, const char *key, int64_t value_milli)
{
	/* The size as unsigned, as the lowest int64_t has no positive twin; the sign apart, as -5 is -0.005. */
	uint64_t size = value_milli < 0 ? 0 - (uint64_t)value_milli : (uint64_t)value_milli;

	begin_value(json, key);
	buf_printf(json->buf, "%s%" PRIu64 ".%03u", value_milli < 0 ? "-" : "", size / 1000, (unsigned)(size % 1000));
}

void json_err(struct buf *buf, const struct err *err, int64_t server_time_us, const char *request_id)
{
	struct json json;

	json_init(&json, buf);
	json_open(&json, NULL);
	json_c(&json, "error", err_word(err->code));
	json_i64(&json, "code", err->code == ERR_NONE ? ERR_INTERNAL : (int64_t)err->code);
	json_c(&json, "message", err->text);
	json_c(&json, "hint", err->hint);
	json_c(&json, "retry", RETRY_WORDS[err_retry(err->code)]);
	json_i64(&json, "server_time_us", server_time_us);
	if (request_id)
		json_c(&json, "request_id", request_id);
	json_close(&json);
}

static struct str member_text(const json_t *root, const char *key)
{
	const json_t *value = json_object_get(root, key);

	return json_is_string(value) ? (struct str){ json_string_value(value), json_string_length(value) } : STR_NONE;
}

void json_err_read(struct str body, int http_status, struct err *err)
{
	json_t *root = NULL;
	struct str word, message, hint;
	enum err_code code;
	char shown[sizeof(err->text)];

	if (body.size > 0 && body.size <= ANSWER_MAX_BYTES)
		root = json_loadb(body.data, body.size, JSON_REJECT_DUPLICATES, NULL);
	word = member_text(root, "error");
	if (word.size == 0) {
		err_set(err, ERR_PEER, "the server answered HTTP %d without heng's error text: '%s'", http_status,
			str_display(body, shown, 128));
		json_decref(root);
		return;
	}
	code = err_from_word(word.data, word.size);
	message = member_text(root, "message");
	if (code == ERR_INTERNAL && !str_eq_c(word, err_word(ERR_INTERNAL))) {
		/* A newer server may know words that we do not. */
		char shown_word[64];

		err_set(err, ERR_PEER, "the server answered HTTP %d with an error unknown here, '%s': %s", http_status,
			str_display(word, shown_word, sizeof(shown_word)), str_display(message, shown, sizeof(shown)));
	} else {
		err_set(err, code, "%s", str_display(message.size > 0 ? message : word, shown, sizeof(shown)));
	}
	hint = member_text(root, "hint");
	if (hint.size > 0)
		err_hint(err, "%s", str_display(hint, shown, sizeof(err->hint)));
	json_decref(root);
}
