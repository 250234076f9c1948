#include "core/decide_impl.h"

#include <inttypes.h>

/* --- writing --- */

void decide_put_text(struct json *json, const char *key, struct str text, size_t size)
{
	char shown[DECIDE_WHAT_SIZE];

	json_str(json, key, str_from(str_display(text, shown, min_size(size, sizeof(shown)))));
}

void decide_put_hex(struct json *json, const char *key, uint64_t value)
{
	char digits[17];

	for (unsigned i = 0; i < 16; i++)
		digits[i] = "0123456789abcdef"[value >> (60 - 4 * i) & 15];
	json_str(json, key, (struct str){ digits, 16 });
}

void decide_put_u64(struct json *json, const char *key, uint64_t value)
{
	char digits[24];

	if (value <= DECIDE_NUMBER_MAX) {
		json_u64(json, key, value);
		return;
	}
	(void)snprintf(digits, sizeof(digits), "%" PRIu64, value);
	json_c(json, key, digits);
}

static void put_field(struct json *json, const struct decide_field *field, const void *from)
{
	const void *at = (const char *)from + field->offset;

	switch (field->type) {
	case DECIDE_I64:
		if (*(const int64_t *)at != field->fallback)
			json_i64(json, field->name, *(const int64_t *)at);
		break;
	case DECIDE_U32:
		if (*(const uint32_t *)at != field->fallback)
			json_u64(json, field->name, *(const uint32_t *)at);
		break;
	case DECIDE_U64:
		if (field->fallback == DECIDE_ALWAYS || *(const uint64_t *)at != (uint64_t)field->fallback)
			decide_put_u64(json, field->name, *(const uint64_t *)at);
		break;
	case DECIDE_HEX:
		decide_put_hex(json, field->name, *(const uint64_t *)at);
		break;
	case DECIDE_BOOL:
		if (field->fallback == DECIDE_ALWAYS || *(const bool *)at)
			json_bool(json, field->name, *(const bool *)at);
		break;
	}
}

void decide_put_fields(struct json *json, const struct decide_field *fields, const void *from)
{
	for (; fields->name; fields++)
		put_field(json, fields, from);
}

/* --- reading --- */

static int lacks(const char *key, struct err *err)
{
	return err_set(err, ERR_BAD_REQUEST, "the field '%s' is missing", key);
}

int decide_get_hex(const json_t *value, const char *key, uint64_t *ret, struct err *err)
{
	struct str text = { json_string_value(value), json_string_length(value) };
	uint8_t bytes[8];
	uint64_t number = 0;

	if (!value)
		return lacks(key, err);
	if (!json_is_string(value) || !hex_decode(text, bytes, sizeof(bytes)))
		return err_set(err, ERR_BAD_REQUEST, "'%s' is not a text of 16 hexadecimal digits", key);
	for (unsigned i = 0; i < sizeof(bytes); i++)
		number = number << 8 | bytes[i];
	*ret = number;
	return 0;
}

static int get_u64(const json_t *value, const char *key, uint64_t *ret, struct err *err)
{
	struct str text = { json_string_value(value), json_string_length(value) };

	if (json_is_integer(value) && json_integer_value(value) >= 0) {
		*ret = (uint64_t)json_integer_value(value);
		return 0;
	}
	if (json_is_string(value) && str_to_u64(text, ret) && *ret > DECIDE_NUMBER_MAX)
		return 0;
	return err_set(err, ERR_BAD_REQUEST,
		       "'%s' is not a whole number from 0 to 2^64-1 (above 2^63-1 as text of digits)", key);
}

static int get_number(const json_t *value, const char *key, int64_t least, int64_t most, int64_t *ret, struct err *err)
{
	if (!json_is_integer(value) || json_integer_value(value) < least || json_integer_value(value) > most)
		return err_set(err, ERR_BAD_REQUEST, "'%s' is not a whole number from %" PRId64 " to %" PRId64, key,
			       least, most);
	*ret = json_integer_value(value);
	return 0;
}

int decide_get_i64(const json_t *object, const char *key, int64_t least, int64_t most, int64_t *ret, struct err *err)
{
	const json_t *value = json_object_get(object, key);

	return value ? get_number(value, key, least, most, ret, err) : lacks(key, err);
}

static int get_field(const json_t *object, const struct decide_field *field, void *to, struct err *err)
{
	const json_t *value = json_object_get(object, field->name);
	void *at = (char *)to + field->offset;
	int64_t number = field->fallback;
	int result = 0;

	if (!value && field->fallback == DECIDE_ALWAYS)
		return lacks(field->name, err);
	switch (field->type) {
	case DECIDE_I64:
	case DECIDE_U32:
		if (value)
			result = get_number(value, field->name, field->least, field->most, &number, err);
		if (result == 0 && field->type == DECIDE_I64)
			*(int64_t *)at = number;
		else if (result == 0)
			*(uint32_t *)at = (uint32_t)number;
		return result;
	case DECIDE_U64:
		*(uint64_t *)at = value ? 0 : (uint64_t)number;
		return value ? get_u64(value, field->name, at, err) : 0;
	case DECIDE_HEX:
		return decide_get_hex(value, field->name, at, err);
	case DECIDE_BOOL:
		if (value && !json_is_boolean(value))
			return err_set(err, ERR_BAD_REQUEST, "'%s' is neither true nor false", field->name);
		*(bool *)at = json_is_true(value);
		return 0;
	}
	return 0;
}

int decide_get_fields(const json_t *object, const struct decide_field *fields, void *to, struct err *err)
{
	int result = 0;

	for (; fields->name && result == 0; fields++)
		result = get_field(object, fields, to, err);
	return result;
}

int decide_get_text(const json_t *object, const char *key, bool may_lack, char *target, size_t target_size,
		    struct err *err)
{
	const json_t *value = json_object_get(object, key);
	struct str text = { json_string_value(value), json_string_length(value) };

	target[0] = '\0';
	if (may_lack && (!value || json_is_null(value)))
		return 0;
	if (!value)
		return lacks(key, err);
	if (!json_is_string(value) || !str_copy(text, target, target_size))
		return err_set(err, ERR_BAD_REQUEST, "'%s' is not a text of at most %zu bytes", key, target_size - 1);
	return 0;
}

int decide_get_list(const json_t *object, const char *key, bool may_lack, size_t limit_count, const json_t **ret_list,
		    struct err *err)
{
	const json_t *list = json_object_get(object, key);

	*ret_list = list;
	if (!list && may_lack)
		return 0;
	if (!list)
		return lacks(key, err);
	if (!json_is_array(list))
		return err_set(err, ERR_BAD_REQUEST, "'%s' is not a list", key);
	if (json_array_size(list) > limit_count)
		return err_set(err, ERR_BAD_REQUEST, "'%s' has %zu items: at most %zu are possible", key,
			       json_array_size(list), limit_count);
	return 0;
}

int decide_get_reason(const json_t *object, const char *key, enum reason *ret_reason, struct err *err)
{
	char name[40], shown[64];
	int result = decide_get_text(object, key, false, name, sizeof(name), err);

	if (result < 0)
		return result;
	if (!reason_find(name, ret_reason))
		return err_set(err, ERR_BAD_REQUEST, "'%s' has no reason called '%s'", key,
			       str_display(str_from(name), shown, sizeof(shown)));
	return 0;
}
