#include "core/decide_impl.h"

/* --- the profiles that are kept --- */

void decide_write_profile(struct buf *buf, const struct profile *profile, int64_t wall_us)
{
	struct buf text = BUF_INIT(PROFILE_TEXT_MAX);
	struct json json;

	profile_write(&text, profile);
	json_init(&json, buf);
	json_open(&json, NULL);
	json_c(&json, "kind", "profile");
	json_i64(&json, "ts_us", wall_us);
	json_c(&json, "name", profile->name);
	decide_put_hex(&json, "profile", profile->hash);
	json_str(&json, "yaml", buf_str(&text));
	json_close(&json);
	buf_append(buf, STR("\n"));
	buf->is_failed = buf->is_failed || text.is_failed;
	buf_fini(&text);
}

const struct profile *decide_profile_find(const struct decide_replay *replay, uint64_t hash)
{
	for (size_t i = 0; i < replay->profile_count; i++) {
		if (replay->profiles[i].hash == hash)
			return &replay->profiles[i];
	}
	return NULL;
}

/* Kept under the hash that its text has: a line that says another one finds nothing here. */
static int profile_read(struct decide_replay *replay, struct err *err)
{
	const json_t *yaml = json_object_get(replay->root, "yaml");
	struct decide_record *record = &replay->record;
	struct profile profile;
	uint64_t hash;
	int result = decide_get_hex(json_object_get(replay->root, "profile"), "profile", &hash, err);

	if (result < 0)
		return result;
	if (!json_is_string(yaml) || json_string_length(yaml) > PROFILE_TEXT_MAX)
		return err_set(err, ERR_BAD_REQUEST, "'yaml' is not a text of at most %zu bytes",
			       (size_t)PROFILE_TEXT_MAX);
	if (profile_parse("yaml", (struct str){ json_string_value(yaml), json_string_length(yaml) }, &profile, err) <
	    0) {
		err_wrap(err, "the profile in it is none");
		err->code = ERR_BAD_REQUEST;
		return -ERR_BAD_REQUEST;
	}
	(void)str_copy(str_from(profile.name), record->set, sizeof(record->set));
	if (replay->line_count == 1) {
		replay->has_head = true;
		replay->head_wall_us = record->wall_us;
	}
	record->profile = decide_profile_find(replay, profile.hash);
	if (record->profile)
		return 0;
	if (!replay->profiles)
		replay->profiles = must_zalloc(DECIDE_PROFILES_MAX, sizeof(*replay->profiles));
	replay->is_profile_forgotten |= replay->profile_count == DECIDE_PROFILES_MAX;
	replay->profiles[replay->profile_next] = profile;
	record->profile = &replay->profiles[replay->profile_next];
	replay->profile_next = (replay->profile_next + 1) % DECIDE_PROFILES_MAX;
	replay->profile_count = min_size(replay->profile_count + 1, DECIDE_PROFILES_MAX);
	return 0;
}

int decide_lacks(bool is_told_here, const char *what, const char *name, struct err *err)
{
	char shown[JUDGE_SET_SIZE];

	(void)str_display(str_from(name), shown, sizeof(shown));
	if (is_told_here)
		return err_set(err, ERR_BAD_REQUEST,
			       "its %s '%s' is on no line before it: it was altered, or that line is missing", what,
			       shown);
	err_set(err, ERR_INCOMPLETE, "its %s '%s' has not been read before it", what, shown);
	err_hint(err, "it is in an older file: --rotated reads those too");
	return -ERR_INCOMPLETE;
}

/* --- a line --- */

struct decide_replay *decide_replay_new(const struct profile *what_if, int64_t squeeze_ppm)
{
	struct decide_replay *replay = must_zalloc(1, sizeof(*replay));

	MUST(squeeze_ppm > 0 && squeeze_ppm <= PPM);
	replay->is_what_if = what_if != NULL;
	if (what_if)
		replay->what_if = *what_if;
	replay->squeeze_ppm = squeeze_ppm;
	replay->text = BUF_INIT(2 * DECIDE_LINE_MAX);
	return replay;
}

static void line_drop(struct decide_replay *replay)
{
	json_decref(replay->root);
	replay->root = NULL;
	decide_pick_free(&replay->pick);
	ring_free(&replay->pick_ring);
	replay->record = (struct decide_record){ .wall_us = 0 };
	replay->recorded_selected[0] = '\0';
	replay->plan = NULL;
	buf_clear(&replay->text);
}

void decide_replay_free(struct decide_replay **replay)
{
	if (!*replay)
		return;
	line_drop(*replay);
	for (size_t i = 0; i < DECIDE_PLANS_MAX; i++)
		decide_plan_drop(&(*replay)->plans[i]);
	free((*replay)->profiles);
	free((*replay)->inputs);
	free((*replay)->input_pointers);
	free((*replay)->outputs);
	free((*replay)->computed);
	buf_fini(&(*replay)->text);
	free(*replay);
	*replay = NULL;
}

/* What a crash leaves of a record: its beginning. No record ends without its brace, and one that ends too early with some brace is not whole. */
static bool is_torn(struct str line, const json_error_t *fault)
{
	const struct str head = STR("{\"kind\":\"");
	size_t size = min_size(line.size, head.size);

	if (size == 0 || memcmp(line.data, head.data, size) != 0)
		return false;
	return line.data[line.size - 1] != '}' || json_error_code(fault) == json_error_premature_end_of_input;
}

static int line_parse(struct decide_replay *replay, struct str line, char kind[16], struct err *err)
{
	json_error_t fault;
	char shown[160];
	int result;

	if (line.size > DECIDE_LINE_MAX)
		return err_set(err, ERR_BAD_REQUEST, "it has more than %zu bytes", (size_t)DECIDE_LINE_MAX);
	replay->root = json_loadb(line.data ? line.data : "", line.size, JSON_REJECT_DUPLICATES, &fault);
	if (!replay->root && is_torn(line, &fault))
		return err_set(err, ERR_TRUNCATED, "it is torn: its end was never written");
	if (!replay->root)
		return err_set(err, ERR_BAD_REQUEST, "it is not JSON, at byte %d: %s", fault.position,
			       str_display(str_from(fault.text), shown, sizeof(shown)));
	if (!json_is_object(replay->root))
		return err_set(err, ERR_BAD_REQUEST, "it is not a JSON object");
	result = decide_get_text(replay->root, "kind", false, kind, 16, err);
	if (result < 0)
		return result;
	return decide_get_i64(replay->root, strcmp(kind, "dropped") == 0 ? "wall_us" : "ts_us", INT64_MIN, INT64_MAX,
			      &replay->record.wall_us, err);
}

static int dropped_read(struct decide_replay *replay, struct err *err)
{
	static const struct decide_field fields[] = {
		{ "lines", DECIDE_U64, offsetof(struct decide_record, dropped_count), 0, 0, DECIDE_ALWAYS },
		{ .name = NULL },
	};

	return decide_get_fields(replay->root, fields, &replay->record, err);
}

static int line_read(struct decide_replay *replay, struct str line, bool with_outputs, struct err *err)
{
	static const char *const kind_names[] = {
		[DECIDE_PROFILE] = "profile", [DECIDE_TABLE] = "table", [DECIDE_PLAN] = "plan",
		[DECIDE_PLACE] = "place",     [DECIDE_PICK] = "pick",   [DECIDE_DROPPED] = "dropped",
	};
	struct decide_record *record = &replay->record;
	char kind[16] = "", shown[64];
	int result;

	line_drop(replay);
	replay->line_count++;
	if (line.size > 0 && line.data[line.size - 1] == '\n')
		line.size--;
	result = line_parse(replay, line, kind, err);
	if (result < 0)
		return result;
	record->selected = replay->recorded_selected;
	for (size_t i = 0; i < COUNT_OF(kind_names); i++) {
		if (strcmp(kind, kind_names[i]) != 0)
			continue;
		record->kind = (enum decide_kind)i;
		switch (record->kind) {
		case DECIDE_PROFILE:
			return profile_read(replay, err);
		case DECIDE_TABLE:
			return decide_table_read(replay, with_outputs, err);
		case DECIDE_PLAN:
			return decide_plan_read(replay, err);
		case DECIDE_PLACE:
			return decide_place_read(replay, err);
		case DECIDE_PICK:
			return decide_pick_read(replay, err);
		case DECIDE_DROPPED:
			return dropped_read(replay, err);
		}
	}
	return err_set(err, ERR_BAD_REQUEST, "there is no kind '%s' of records",
		       str_display(str_from(kind), shown, sizeof(shown)));
}

int decide_read_line(struct decide_replay *replay, struct str line, const struct decide_record **ret_record,
		     struct err *err)
{
	int result = line_read(replay, line, true, err);

	*ret_record = &replay->record;
	return result;
}

const struct decide_record *decide_replay_record(const struct decide_replay *replay) { return &replay->record; }

/* --- comparing --- */

struct difference {
	char path[96];
	char *what;
	size_t what_size;
};

static void show_value(const json_t *value, char *target, size_t target_size)
{
	char *text = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;

	str_display(str_from(text ? text : "nothing"), target, target_size);
	free(text);
}

static bool differ(json_t *recorded, json_t *computed, struct difference *difference);

/* Goes into a member or an item, and leaves the path as it was when that is the same. */
static bool differ_below(json_t *recorded, json_t *computed, const char *name, size_t index,
			 struct difference *difference)
{
	size_t size = strlen(difference->path), room = sizeof(difference->path) - size;

	if (name)
		(void)snprintf(difference->path + size, room, "%s%s", size ? "." : "", name);
	else
		(void)snprintf(difference->path + size, room, "[%zu]", index);
	if (differ(recorded, computed, difference))
		return true;
	difference->path[size] = '\0';
	return false;
}

/* The first difference in the order of the line. Goes no deeper than what we wrote, whatever was recorded. */
static bool differ(json_t *recorded, json_t *computed, struct difference *difference)
{
	char left[64], right[64], path[128];
	const char *name;
	json_t *value;

	if (json_is_object(recorded) && json_is_object(computed)) {
		json_object_foreach(computed, name, value)
		{
			if (differ_below(json_object_get(recorded, name), value, name, 0, difference))
				return true;
		}
		json_object_foreach(recorded, name, value)
		{
			if (!json_object_get(computed, name) && differ_below(value, NULL, name, 0, difference))
				return true;
		}
		return false;
	}
	if (json_is_array(recorded) && json_is_array(computed)) {
		size_t count = max_size(json_array_size(recorded), json_array_size(computed));

		for (size_t i = 0; i < count; i++) {
			if (differ_below(json_array_get(recorded, i), json_array_get(computed, i), NULL, i, difference))
				return true;
		}
		return false;
	}
	if (recorded && computed && json_equal(recorded, computed))
		return false;
	show_value(recorded, left, sizeof(left));
	show_value(computed, right, sizeof(right));
	(void)snprintf(difference->what, difference->what_size, "%s: recorded %s, computed %s",
		       str_display(str_from(difference->path), path, sizeof(path)), left, right);
	return true;
}

/* The same bytes nearly always; else the same content in another spelling, or a difference. */
static enum decide_result line_compare(struct decide_replay *replay, struct str line, struct decide_change *change)
{
	struct difference difference = { .what = change->what, .what_size = sizeof(change->what) };
	struct str computed = buf_str(&replay->text);
	json_t *root;
	bool is_other;

	if (line.size > 0 && line.data[line.size - 1] == '\n')
		line.size--;
	MUST(!replay->text.is_failed);
	computed.size--;
	if (str_eq(line, computed))
		return DECIDE_SAME;
	root = json_loadb(computed.data, computed.size, 0, NULL);
	MUST(root);
	is_other = differ(replay->root, root, &difference);
	json_decref(root);
	return is_other ? DECIDE_OTHER : DECIDE_SAME;
}

int decide_replay_line(struct decide_replay *replay, struct str line, enum decide_result *ret_result,
		       struct decide_change *ret_change, struct err *err)
{
	bool is_choice_only = replay->is_what_if || replay->squeeze_ppm != PPM;
	struct decide_record *record = &replay->record;
	int result = line_read(replay, line, false, err);

	*ret_change = (struct decide_change){ .wall_us = record->wall_us, .recorded_ppm = -1, .computed_ppm = -1 };
	(void)str_copy(str_from(record->set), ret_change->set, sizeof(ret_change->set));
	*ret_result = DECIDE_NO_CHOICE;
	if (result < 0)
		return result;
	if (is_choice_only && record->kind != DECIDE_TABLE)
		return 0;
	switch (record->kind) {
	case DECIDE_PLAN:
	case DECIDE_DROPPED:
		return 0;
	case DECIDE_PROFILE:
		decide_write_profile(&replay->text, record->profile, record->wall_us);
		break;
	case DECIDE_TABLE:
		if (!is_choice_only) {
			decide_table_again(replay, ret_change);
			break;
		}
		decide_table_what_if(replay, ret_change);
		*ret_result = strcmp(ret_change->recorded, ret_change->computed) == 0 ? DECIDE_SAME : DECIDE_OTHER;
		return 0;
	case DECIDE_PLACE:
		decide_place_again(replay, ret_change);
		break;
	case DECIDE_PICK:
		decide_pick_again(replay, ret_change);
		break;
	}
	*ret_result = line_compare(replay, line, ret_change);
	if (record->kind == DECIDE_PROFILE && *ret_result == DECIDE_SAME)
		*ret_result = DECIDE_NO_CHOICE;
	return 0;
}
