#include "base/conf_value.h"

#include <inttypes.h>

#define NAME_MAX_BYTES 64

/* A limit as the operator would write it: in the largest unit that leaves no rest. */
static void limit_text(enum conf_type type, int64_t value, char *target, size_t target_size)
{
	static const struct unit {
		int64_t scale;
		const char *name;
	} DURATIONS[] = { { 86400 * SEC_US, "d" }, { 3600 * SEC_US, "h" }, { 60 * SEC_US, "m" },
			  { SEC_US, "s" },         { MSEC_US, "ms" },      { 1, "us" } },
	  SIZES[] = { { (int64_t)1 << 40, "TiB" },
		      { (int64_t)1 << 30, "GiB" },
		      { (int64_t)1 << 20, "MiB" },
		      { (int64_t)1 << 10, "KiB" },
		      { 1, "B" } };
	const struct unit *unit;

	if (type == CONF_INT) {
		snprintf(target, target_size, "%" PRId64, value);
		return;
	}
	unit = type == CONF_DURATION ? DURATIONS : SIZES;
	while (unit->scale > 1 && (value % unit->scale != 0 || value == 0))
		unit++;
	snprintf(target, target_size, "%" PRId64 "%s", value / unit->scale, unit->name);
}

const char *conf_value_allowed(const struct conf_row *row, char why[CONF_WHY_SIZE])
{
	static const char *const KINDS[] = {
		[CONF_TEXT] = "text",
		[CONF_INT] = "a whole number",
		[CONF_SIZE] = "a size such as 8MiB",
		[CONF_DURATION] = "a time with its unit such as 3s or 250ms",
		[CONF_BOOL] = "true or false",
		[CONF_CHOICE] = "one of",
		[CONF_WORDS] = "a list of words",
		[CONF_LIST] = "a list",
	};
	char low[32], high[32];
	struct str rest, choice;
	size_t used;

	used = min_size((size_t)snprintf(why, CONF_WHY_SIZE, "%s", KINDS[row->type]), CONF_WHY_SIZE - 1);
	if (row->type == CONF_CHOICE) {
		const char *mark = " ";

		rest = str_from(row->choices);
		while (used < CONF_WHY_SIZE - 1 && str_cut(&rest, '|', &choice)) {
			used += (size_t)snprintf(why + used, CONF_WHY_SIZE - used, "%s%.*s", mark, STR_ARG(choice));
			mark = ", ";
		}
	}
	if (row->type > CONF_DURATION || row->type == CONF_TEXT ||
	    (row->min == 0 && (row->max == 0 || row->max == INT64_MAX)))
		return why;
	limit_text(row->type, row->min, low, sizeof(low));
	limit_text(row->type, row->max, high, sizeof(high));
	snprintf(why + used, CONF_WHY_SIZE - used, ", %s to %s", low, high);
	return why;
}

/* Reads as the row's type, without looking at its limits. */
static bool read_typed(const struct conf_row *row, struct str text, char *place, struct arena *arena)
{
	struct str rest, choice;
	char *copy;
	int index = 0;

	switch (row->type) {
	case CONF_TEXT:
		/* A NUL would end the text early for those who read it. */
		if (text.size > 0 && memchr(text.data, '\0', text.size))
			return false;
		copy = arena_strdup(arena, text);
		memcpy(place, &copy, sizeof(copy));
		return copy != NULL;
	case CONF_INT:
		return str_to_i64(text, (void *)place);
	case CONF_SIZE:
		return str_to_size(text, (void *)place);
	case CONF_DURATION:
		return str_to_duration(text, (void *)place);
	case CONF_BOOL:
		*(bool *)place = str_eq(text, STR("true"));
		return str_eq(text, STR("true")) || str_eq(text, STR("false"));
	case CONF_CHOICE:
		rest = str_from(row->choices);
		for (; str_cut(&rest, '|', &choice); index++) {
			if (str_eq(text, choice)) {
				memcpy(place, &index, sizeof(index));
				return true;
			}
		}
		return false;
	case CONF_WORDS:
	case CONF_LIST:
		break;
	}
	return false;
}

static bool is_in_limits(const struct conf_row *row, const char *place)
{
	int64_t value;

	if ((row->type != CONF_INT && row->type != CONF_SIZE && row->type != CONF_DURATION) ||
	    (row->min == 0 && row->max == 0))
		return true;
	memcpy(&value, place, sizeof(value));
	/* A size past INT64_MAX looks negative here, and is past every limit that a row can name. */
	if (row->type == CONF_SIZE && value < 0)
		return false;
	return value >= row->min && value <= row->max;
}

bool conf_value_read(const struct conf_row *row, struct str text, char *target, struct arena *arena,
		     char why[CONF_WHY_SIZE])
{
	char shown[48], allowed[CONF_WHY_SIZE];

	if (read_typed(row, text, target + row->offset, arena) && is_in_limits(row, target + row->offset))
		return true;
	if (row->type == CONF_TEXT && (text.size == 0 || !memchr(text.data, '\0', text.size))) {
		snprintf(why, CONF_WHY_SIZE, "does not fit: the configuration is too large");
		return false;
	}
	conf_value_allowed(row, allowed);
	snprintf(why, CONF_WHY_SIZE, "must be %.180s, not '%s'", allowed, str_display(text, shown, sizeof(shown)));
	return false;
}

bool conf_value_default(const struct conf_row *row, char *target, struct arena *arena)
{
	if (row->type == CONF_LIST || row->type == CONF_WORDS)
		return true;
	if (!row->fallback)
		return false;
	/* A table whose default breaks its own rule is our mistake; only an exhausted arena is not. */
	if (row->type == CONF_TEXT)
		return read_typed(row, str_from(row->fallback), target + row->offset, arena);
	MUST(read_typed(row, str_from(row->fallback), target + row->offset, arena));
	MUST(is_in_limits(row, target + row->offset));
	return true;
}

/* Edits between two names, where exchanging two neighbours counts as one (Damerau, restricted). */
static size_t distance(struct str a, struct str b)
{
	size_t rows[3][NAME_MAX_BYTES + 1];
	size_t *before = rows[0], *last = rows[1], *now = rows[2];

	for (size_t j = 0; j <= b.size; j++)
		last[j] = j;
	for (size_t i = 1; i <= a.size; i++) {
		size_t *spare = before;

		now[0] = i;
		for (size_t j = 1; j <= b.size; j++) {
			size_t change = last[j - 1] + (a.data[i - 1] == b.data[j - 1] ? 0 : 1);

			now[j] = min_size(change, min_size(last[j], now[j - 1]) + 1);
			if (i > 1 && j > 1 && a.data[i - 1] == b.data[j - 2] && a.data[i - 2] == b.data[j - 1])
				now[j] = min_size(now[j], before[j - 2] + 1);
		}
		before = last;
		last = now;
		now = spare;
	}
	return last[b.size];
}

const char *conf_value_nearest(const struct conf_row *rows, struct str key)
{
	const char *nearest = NULL;
	/* Further away than a third of the name is another word. */
	size_t best = key.size / 3 + 2;

	if (key.size > NAME_MAX_BYTES)
		return NULL;
	for (; rows->name; rows++) {
		struct str name = str_from(rows->name);
		size_t edits;

		MUST(name.size <= NAME_MAX_BYTES);
		edits = distance(key, name);
		if (edits < best && edits < name.size) {
			best = edits;
			nearest = rows->name;
		}
	}
	return nearest;
}
