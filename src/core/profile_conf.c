#include "base/conf.h"
#include "core/profile_impl.h"

#include <stdarg.h>

#define ARENA_MAX_BYTES (256 * KIB)
#define MARK_MAX        ((int64_t)1000000000000000) /* of a rule or a parameter: a petabyte, thirty years of microseconds */
#define BASES           "none|kv|gateway|folder"

/* One entry of `dims`, of `rules`, and the whole, as they are written. */
struct dim_form {
	const char *name, *group;
	int norm;
	int64_t weight_ppm, parameter;
};
struct rule_form {
	const char *name;
	int source, kind;
	int64_t low, high, above_peers, factor_ppm;
};
struct form {
	struct profile profile; /* its plain numbers are read in place */
	const char *name;
	int base, stale;
	struct conf_list dims, rules;
};

static const char *const BASE_NAMES[] = { NULL, "kv", "gateway", "folder" }; /* in the order of BASES */

static const struct conf_row DIM_ROWS[] = {
	{ .name = "name",
	  .type = CONF_TEXT,
	  .offset = offsetof(struct dim_form, name),
	  .help = "what it is called in logs" },
	{ .name = "group",
	  .type = CONF_TEXT,
	  .offset = offsetof(struct dim_form, group),
	  .fallback = "",
	  .help = "summed up under this name" },
	{ .name = "norm",
	  .type = CONF_CHOICE,
	  .offset = offsetof(struct dim_form, norm),
	  .choices = ""
#define NORM(name, unit, help) #name "|"
#include "core/profile_list.h"
#undef NORM
	  ,
	  .help = "the normaliser" },
	{ .name = "weight_ppm",
	  .type = CONF_INT,
	  .offset = offsetof(struct dim_form, weight_ppm),
	  .min = 0,
	  .max = PPM,
	  .help = "share of the whole in millionths" },
	{ .name = "parameter",
	  .type = CONF_INT,
	  .offset = offsetof(struct dim_form, parameter),
	  .min = 0,
	  .max = MARK_MAX,
	  .fallback = "0",
	  .help = "in the normaliser's unit; 0: its default" },
	{ .name = NULL },
};

static const struct conf_row RULE_ROWS[] = {
	{ .name = "name",
	  .type = CONF_TEXT,
	  .offset = offsetof(struct rule_form, name),
	  .help = "what it is called in logs" },
	{ .name = "source",
	  .type = CONF_CHOICE,
	  .offset = offsetof(struct rule_form, source),
	  .choices = ""
#define RULE(name, unit, help) #name "|"
#include "core/profile_rule_list.h"
#undef RULE
	  ,
	  .help = "what it looks at" },
	{ .name = "kind",
	  .type = CONF_CHOICE,
	  .offset = offsetof(struct rule_form, kind),
	  .choices = "step|ramp",
	  .fallback = "step",
	  .help = "on and off, or sliding" },
	{ .name = "low",
	  .type = CONF_INT,
	  .offset = offsetof(struct rule_form, low),
	  .min = 0,
	  .max = MARK_MAX,
	  .fallback = "0",
	  .help = "the lower mark in the source's unit" },
	{ .name = "high",
	  .type = CONF_INT,
	  .offset = offsetof(struct rule_form, high),
	  .min = 0,
	  .max = MARK_MAX,
	  .fallback = "0",
	  .help = "the upper mark" },
	{ .name = "above_peers",
	  .type = CONF_INT,
	  .offset = offsetof(struct rule_form, above_peers),
	  .min = 0,
	  .max = MARK_MAX,
	  .fallback = "0",
	  .help = "not 0: and above the mean of the peers by this" },
	{ .name = "factor_ppm",
	  .type = CONF_INT,
	  .offset = offsetof(struct rule_form, factor_ppm),
	  .min = 0,
	  .max = PPM,
	  .help = "what the score is multiplied by" },
	{ .name = NULL },
};

#define LEADING_ROWS 3 /* name, base, stale; then the numbers; then the two lists and the end */
struct form_rows {
	struct conf_row rows[LEADING_ROWS + PROFILE_NUMBERS + 3];
	char fallbacks[PROFILE_NUMBERS][PROFILE_NUMBER_SIZE];
};

/* What is not given is as in base. */
static void make_rows(struct form_rows *rows, const struct profile *base)
{
	struct conf_row *next = rows->rows;

	*next++ = (struct conf_row){ .name = "name",
				     .type = CONF_TEXT,
				     .offset = offsetof(struct form, name),
				     .fallback = base->name[0] != '\0' ? base->name : NULL };
	*next++ = (struct conf_row){ .name = "base",
				     .type = CONF_CHOICE,
				     .offset = offsetof(struct form, base),
				     .choices = BASES,
				     .fallback = "none" };
	*next++ = (struct conf_row){ .name = "stale",
				     .type = CONF_CHOICE,
				     .offset = offsetof(struct form, stale),
				     .choices = "decay|drift",
				     .fallback = base->stale == PROFILE_DRIFT ? "drift" : "decay" };
	for (size_t i = 0; i < PROFILE_NUMBERS; i++) {
		const struct profile_number *number = &profile_numbers[i];

		*next++ = (struct conf_row){ .name = number->name,
					     .type = number->type,
					     .offset = offsetof(struct form, profile) + number->offset,
					     .min = number->min,
					     .max = number->max,
					     .fallback = profile_number_text(number->type,
									     profile_number_get(base, number),
									     rows->fallbacks[i]),
					     .help = number->help };
	}
	*next++ = (struct conf_row){ .name = "dims",
				     .type = CONF_LIST,
				     .offset = offsetof(struct form, dims),
				     .item_rows = DIM_ROWS,
				     .item_size = sizeof(struct dim_form) };
	*next++ = (struct conf_row){ .name = "rules",
				     .type = CONF_LIST,
				     .offset = offsetof(struct form, rules),
				     .item_rows = RULE_ROWS,
				     .item_size = sizeof(struct rule_form) };
	*next = (struct conf_row){ .name = NULL };
}

/* What is wrong in the whole though each value is right. */
struct faults {
	const char *file_name;
	struct str text;
	struct buf buf;
};

/* conf keeps no lines of what it has read, so the line is looked for: that of the key at the margin, or of the entry-th dash below it. 0 when
 * the text is laid out in another way. */
static size_t find_line(struct str text, const char *key, size_t entry)
{
	size_t line_number = 0, entries = 0;
	bool is_inside = false;
	struct str line;

	while (str_cut(&text, '\n', &line)) {
		struct str trimmed = str_trim(line);

		line_number++;
		if (trimmed.size == 0 || trimmed.data[0] == '#')
			continue;
		if (is_inside && trimmed.data[0] == '-') {
			if (entries++ == entry)
				return line_number;
			continue;
		}
		if (trimmed.data != line.data)
			continue;
		if (is_inside)
			return 0;
		is_inside = str_starts(line, str_from(key)) && line.size > strlen(key) && line.data[strlen(key)] == ':';
		if (is_inside && entry == SIZE_MAX)
			return line_number;
	}
	return 0;
}

static void PRINTF(4, 5) add_fault(struct faults *faults, const char *key, size_t entry, const char *fmt, ...)
{
	size_t line = find_line(faults->text, key, entry);
	char shown[64], text[200];
	va_list args;

	va_start(args, fmt);
	if (vsnprintf(text, sizeof(text), fmt, args) < 0)
		text[0] = '\0';
	va_end(args);
	str_display(str_from(faults->file_name), shown, sizeof(shown));
	/* More faults than fit are no help to anyone: the first ones stay. */
	if (line > 0)
		buf_printf(&faults->buf, "%s%s:%zu: %s", faults->buf.size > 0 ? "; " : "", shown, line, text);
	else
		buf_printf(&faults->buf, "%s%s: %s", faults->buf.size > 0 ? "; " : "", shown, text);
	faults->buf.is_failed = false;
}

static bool is_name(const char *name)
{
	struct str text = str_from(name);

	if (text.size == 0 || text.size >= PROFILE_NAME_SIZE)
		return false;
	for (size_t i = 0; i < text.size; i++) {
		char c = text.data[i];

		if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
		      c == '-' || c == '.'))
			return false;
	}
	return true;
}

static void check_name(struct faults *faults, const char *key, size_t entry, const char *what, const char *name)
{
	char shown[48];

	if (name && !is_name(name))
		add_fault(faults, key, entry, "%s must be 1 to %d of A-Za-z0-9._-, not '%s'", what,
			  PROFILE_NAME_SIZE - 1, str_display(str_from(name), shown, sizeof(shown)));
}

static void check_dims(struct faults *faults, const struct form *form, bool is_read)
{
	const struct dim_form *dims = form->dims.items;
	size_t count = form->dims.count;
	int64_t sum_ppm = 0;

	if (count > PROFILE_DIMS_MAX) {
		add_fault(faults, "dims", SIZE_MAX, "'dims' may have at most %d entries, not %zu", PROFILE_DIMS_MAX,
			  count);
		return;
	}
	for (size_t i = 0; i < count; i++) {
		check_name(faults, "dims", i, "the name of a dimension", dims[i].name);
		if (dims[i].group && dims[i].group[0] != '\0')
			check_name(faults, "dims", i, "the group of a dimension", dims[i].group);
		for (size_t j = 0; j < i; j++) {
			if (dims[i].name && dims[j].name && strcmp(dims[i].name, dims[j].name) == 0)
				add_fault(faults, "dims", i, "dimension '%.31s' is given twice", dims[i].name);
		}
		sum_ppm += is_read ? dims[i].weight_ppm : 0;
	}
	/* A weight that could not be read has its own fault, and makes any sum wrong. */
	if (is_read && count > 0 && sum_ppm != PPM)
		add_fault(faults, "dims", SIZE_MAX, "the weights of 'dims' must add up to %d, these add up to %lld",
			  PPM, (long long)sum_ppm);
}

static void check_rules(struct faults *faults, const struct form *form, bool is_read)
{
	const struct rule_form *rules = form->rules.items;
	size_t count = form->rules.count;

	if (count > PROFILE_RULES_MAX) {
		add_fault(faults, "rules", SIZE_MAX, "'rules' may have at most %d entries, not %zu", PROFILE_RULES_MAX,
			  count);
		return;
	}
	for (size_t i = 0; i < count; i++) {
		check_name(faults, "rules", i, "the name of a rule", rules[i].name);
		for (size_t j = 0; j < i; j++) {
			if (rules[i].name && rules[j].name && strcmp(rules[i].name, rules[j].name) == 0)
				add_fault(faults, "rules", i, "rule '%.31s' is given twice", rules[i].name);
		}
		if (is_read && rules[i].low > rules[i].high)
			add_fault(faults, "rules", i, "rule '%.31s': 'low' (%lld) must not be above 'high' (%lld)",
				  rules[i].name, (long long)rules[i].low, (long long)rules[i].high);
	}
}

static void fill_dims(struct profile *profile, const struct conf_list *list)
{
	const struct dim_form *forms = list->items;

	profile->dim_count = list->count;
	for (size_t i = 0; i < list->count; i++) {
		struct profile_dim *dim = &profile->dims[i];

		MUST(str_copy(str_from(forms[i].name), dim->name, sizeof(dim->name)));
		MUST(str_copy(str_from(forms[i].group), dim->group, sizeof(dim->group)));
		dim->norm = (enum profile_norm)forms[i].norm;
		dim->weight_ppm = forms[i].weight_ppm;
		dim->parameter = forms[i].parameter;
	}
}

static void fill_rules(struct profile *profile, const struct conf_list *list)
{
	const struct rule_form *forms = list->items;

	profile->rule_count = list->count;
	for (size_t i = 0; i < list->count; i++) {
		struct profile_rule *rule = &profile->rules[i];

		MUST(str_copy(str_from(forms[i].name), rule->name, sizeof(rule->name)));
		rule->source = (enum profile_source)forms[i].source;
		rule->kind = (enum profile_rule_kind)forms[i].kind;
		rule->low = forms[i].low;
		rule->high = forms[i].high;
		rule->above_peers = forms[i].above_peers;
		rule->factor_ppm = forms[i].factor_ppm;
	}
}

static void fill_profile(const struct form *form, const struct profile *base, struct profile *ret_profile)
{
	*ret_profile = form->profile;
	MUST(str_copy(str_from(form->name), ret_profile->name, sizeof(ret_profile->name)));
	ret_profile->stale = (enum profile_stale)form->stale;
	if (form->dims.count > 0) {
		fill_dims(ret_profile, &form->dims);
	} else {
		memcpy(ret_profile->dims, base->dims, sizeof(base->dims));
		ret_profile->dim_count = base->dim_count;
	}
	if (form->rules.count > 0) {
		fill_rules(ret_profile, &form->rules);
	} else {
		memcpy(ret_profile->rules, base->rules, sizeof(base->rules));
		ret_profile->rule_count = base->rule_count;
	}
	ret_profile->hash = profile_hash(ret_profile);
}

/* Which one the rest tunes. Whatever else is wrong is found when the whole is read. */
static const struct profile *find_base(const char *file_name, struct str text)
{
	struct arena arena = ARENA_INIT(ARENA_MAX_BYTES);
	struct form_rows *rows = must_zalloc(1, sizeof(*rows));
	struct form form = { .base = 0 };
	const struct profile *base;

	make_rows(rows, &profile_neutral);
	(void)conf_parse(file_name, text, rows->rows, &form, sizeof(form), &arena, NULL);
	base = form.base > 0 ? profile_builtin(BASE_NAMES[form.base]) : &profile_neutral;
	arena_fini(&arena);
	free(rows);
	return base;
}

/* conf's faults, if any, are in err; what the whole has wrong joins them. */
static int report_faults(struct faults *faults, int result, struct err *err)
{
	char before[sizeof(((struct err *)0)->text)] = "";

	if (faults->buf.size == 0)
		return result;
	if (result < 0 && err) {
		memcpy(before, err->text, sizeof(before));
		before[sizeof(before) - 1] = '\0';
	}
	err_set(err, ERR_CONFIG, "%s%s%s", before, before[0] != '\0' ? "; " : "", buf_cstr(&faults->buf));
	err_hint(err, "correct the profile, then start again; docs/scoring.md tells what each key means");
	return -ERR_CONFIG;
}

int profile_parse(const char *file_name, struct str text, struct profile *ret_profile, struct err *err)
{
	struct faults faults = { .file_name = file_name, .text = text, .buf = BUF_INIT(512) };
	struct arena arena = ARENA_INIT(ARENA_MAX_BYTES);
	struct form form = { .base = 0 };
	const struct profile *base;
	struct form_rows *rows;
	int result;

	if (text.size > PROFILE_TEXT_MAX)
		return err_set(err, ERR_CONFIG, "%.100s: a score profile may have at most %zu KiB, this one has more",
			       file_name, PROFILE_TEXT_MAX / KIB);
	base = find_base(file_name, text);
	rows = must_zalloc(1, sizeof(*rows));
	make_rows(rows, base);
	result = conf_parse(file_name, text, rows->rows, &form, sizeof(form), &arena, err);
	check_name(&faults, "name", SIZE_MAX, "the name of a profile", form.name);
	check_dims(&faults, &form, result == 0);
	check_rules(&faults, &form, result == 0);
	result = report_faults(&faults, result, err);
	if (result == 0)
		fill_profile(&form, base, ret_profile);
	buf_fini(&faults.buf);
	arena_fini(&arena);
	free(rows);
	return result;
}
