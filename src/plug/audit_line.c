#include "plug/audit_line.h"
#include "base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_MAX_SIZE 32
#define ENCODED       "_enc"

/* --- writing --- */

static void write_text(struct json *json, const char *name, struct str text)
{
	char key[NAME_MAX_SIZE], *encoded;

	if (utf8_is_valid(text) && (text.size == 0 || !memchr(text.data, '\0', text.size))) {
		json_str(json, name, text);
		return;
	}
	(void)snprintf(key, sizeof(key), "%s" ENCODED, name);
	encoded = must_alloc(3 * text.size + 1);
	(void)percent_encode(text, true, encoded, 3 * text.size + 1);
	json_c(json, key, encoded);
	free(encoded);
}

static void write_hash(struct json *json, const char *name, const uint8_t hash[AUDIT_HASH_SIZE])
{
	char hex[AUDIT_HASH_HEX_SIZE];

	hex_encode(hash, AUDIT_HASH_SIZE, hex);
	json_c(json, name, hex);
}

void audit_line_write(struct buf *buf, const struct audit_row *row)
{
	struct json json;

	json_init(&json, buf);
	json_open(&json, NULL);
	json_u64(&json, "id", row->id);
	for (int i = 0; i < AUDIT_FIELD_COUNT; i++) {
		const struct audit_value *value = &row->fields[i];
		const char *name = audit_field_name((enum audit_field)i);

		if (value->is_null)
			continue;
		if (audit_field_is_number((enum audit_field)i))
			json_i64(&json, name, value->number);
		else
			write_text(&json, name, value->text);
	}
	write_hash(&json, "prev_hash", row->prev);
	write_hash(&json, "hash", row->hash);
	json_close(&json);
}

/* --- reading --- */

static int bad(struct err *err, const char *key, const char *rule)
{
	char shown[64];

	return err_set(err, ERR_BAD_REQUEST, "audit row: '%s' %s", str_display(str_from(key), shown, sizeof(shown)),
		       rule);
}

static int read_hash(const char *key, const json_t *value, uint8_t target[AUDIT_HASH_SIZE], struct err *err)
{
	const struct str hex = { json_string_value(value), json_string_length(value) };

	return json_is_string(value) && hex.size == 2 * (size_t)AUDIT_HASH_SIZE &&
			       hex_decode(hex, target, AUDIT_HASH_SIZE)
		       ? 0
		       : bad(err, key, "is no hash of 64 hex digits");
}

/* The field of that name; encoded: with _enc behind it. AUDIT_FIELD_COUNT: none. */
static int find_field(const char *key, bool *ret_encoded)
{
	const size_t size = strlen(key), tail = sizeof(ENCODED) - 1;
	int field;

	for (int pass = 0; pass < 2; pass++) {
		const size_t wanted = pass ? size - tail : size;

		*ret_encoded = pass;
		if (pass && (size <= tail || strcmp(key + wanted, ENCODED) != 0))
			break;
		for (field = 0; field < AUDIT_FIELD_COUNT; field++) {
			const char *name = audit_field_name((enum audit_field)field);

			if (strlen(name) == wanted && memcmp(name, key, wanted) == 0)
				return field;
		}
	}
	return AUDIT_FIELD_COUNT;
}

/* The room has been reserved whole, so that what points into it stays. */
static int decode(const char *key, struct str text, struct buf *room, struct str *ret_text, struct err *err)
{
	char *target = room->data + room->size;
	size_t size = 0;

	if (!percent_decode(text, target, room->capacity - room->size, &size))
		return bad(err, key, "is not percent-encoded");
	room->size += size;
	*ret_text = (struct str){ target, size };
	return 0;
}

static int read_field(struct audit_line *line, const char *key, const json_t *value, struct err *err)
{
	bool is_encoded;
	const int field = find_field(key, &is_encoded);
	struct audit_value *target;
	struct str text = { json_string_value(value), json_string_length(value) };

	if (field == AUDIT_FIELD_COUNT)
		return bad(err, key, "is a field that this heng does not know");
	target = &line->row.fields[field];
	if (!target->is_null)
		return bad(err, key, "stands there twice");
	target->is_null = false;
	if (audit_field_is_number((enum audit_field)field)) {
		target->number = json_integer_value(value);
		return json_is_integer(value) && !is_encoded ? 0 : bad(err, key, "is no whole number");
	}
	if (!json_is_string(value))
		return bad(err, key, "is no text");
	target->text = text;
	return is_encoded ? decode(key, text, &line->room, &target->text, err) : 0;
}

static int read_member(struct audit_line *line, const char *key, json_t *value, struct err *err)
{
	if (strcmp(key, "prev_hash") == 0)
		return read_hash(key, value, line->row.prev, err);
	if (strcmp(key, "hash") == 0)
		return read_hash(key, value, line->row.hash, err);
	if (strcmp(key, "id") != 0)
		return read_field(line, key, value, err);
	if (!json_is_integer(value) || json_integer_value(value) < 1)
		return bad(err, key, "is no number from 1");
	line->row.id = (uint64_t)json_integer_value(value);
	return 0;
}

int audit_line_parse(struct str text, struct audit_line *ret, struct err *err)
{
	json_error_t fault;
	const char *key;
	json_t *value;

	memset(ret, 0, sizeof(*ret));
	for (size_t i = 0; i < AUDIT_FIELD_COUNT; i++)
		ret->row.fields[i] = (struct audit_value){ .is_null = true, .text = STR("") };
	if (text.size == 0 || text.size > AUDIT_LINE_MAX)
		return err_set(err, ERR_BAD_REQUEST, "audit row: a line of %zu bytes (1 to %zu are allowed)", text.size,
			       (size_t)AUDIT_LINE_MAX);
	ret->root = json_loadb(text.data, text.size, JSON_REJECT_DUPLICATES, &fault);
	if (!json_is_object(ret->root))
		return err_set(err, ERR_BAD_REQUEST, "audit row: the line is no JSON object");
	ret->room = BUF_INIT(AUDIT_LINE_MAX);
	if (!buf_reserve(&ret->room, text.size))
		return err_set(err, ERR_NO_MEMORY, "no memory for an audit row");
	json_object_foreach(ret->root, key, value)
	{
		if (read_member(ret, key, value, err) < 0)
			return -ERR_BAD_REQUEST;
	}
	if (ret->row.id == 0 || !json_object_get(ret->root, "hash") || !json_object_get(ret->root, "prev_hash"))
		return err_set(err, ERR_BAD_REQUEST, "audit row: id, prev_hash or hash is missing");
	return 0;
}

void audit_line_fini(struct audit_line *line)
{
	json_decref(line->root);
	buf_fini(&line->room);
}
