#include "core/decide_impl.h"

static const struct decide_field INPUT_FIELDS[] = {
	{ "base_milli", DECIDE_U32, offsetof(struct score_input, weight_milli), 0, UINT32_MAX, DECIDE_ALWAYS },
	{ "age_us", DECIDE_I64, offsetof(struct score_input, age_us), -1, INT64_MAX, -1 },
	{ "p99_smooth_us", DECIDE_I64, offsetof(struct score_input, p99_smooth_us), -1, INT64_MAX, -1 },
	{ "write_failure_ppm", DECIDE_I64, offsetof(struct score_input, write_failure_ppm), -1, INT64_MAX, -1 },
	{ "in_flight", DECIDE_I64, offsetof(struct score_input, in_flight), -1, INT64_MAX, -1 },
	{ "rt_mean_us", DECIDE_I64, offsetof(struct score_input, rt_mean_us), -1, INT64_MAX, -1 },
	{ "joined_age_us", DECIDE_I64, offsetof(struct score_input, joined_age_us), -1, INT64_MAX, -1 },
	{ "was_ever_verified", DECIDE_BOOL, offsetof(struct score_input, was_ever_verified), 0, 0, 0 },
	{ "is_barred", DECIDE_BOOL, offsetof(struct score_input, is_barred), 0, 0, 0 },
	{ "rules_before", DECIDE_U32, offsetof(struct score_input, rules_on), 0, UINT32_MAX, 0 },
	{ "score_before_ppm", DECIDE_I64, offsetof(struct score_input, score_before_ppm), -1, INT64_MAX, -1 },
	{ .name = NULL },
};

/* What comes first in a candidate: how it ended. */
static const struct decide_field RESULT_FIELDS[] = {
	{ "score_ppm", DECIDE_I64, offsetof(struct score_output, score_ppm), 0, INT64_MAX, DECIDE_ALWAYS },
	{ "weight_milli", DECIDE_U32, offsetof(struct score_output, weight_milli), 0, UINT32_MAX, DECIDE_ALWAYS },
	{ "standing_milli", DECIDE_U32, offsetof(struct score_output, standing_milli), 0, UINT32_MAX, DECIDE_ALWAYS },
	{ "may_serve", DECIDE_BOOL, offsetof(struct score_output, may_serve), 0, 0, DECIDE_ALWAYS },
	{ .name = NULL },
};

/* And how it came about. */
static const struct decide_field STEP_FIELDS[] = {
	{ "dims_assumed", DECIDE_U32, offsetof(struct score_output, dims_assumed), 0, UINT32_MAX, 0 },
	{ "sum_ppm", DECIDE_I64, offsetof(struct score_output, sum_ppm), 0, INT64_MAX, DECIDE_ALWAYS },
	{ "rules_on", DECIDE_U32, offsetof(struct score_output, rules_on), 0, UINT32_MAX, 0 },
	{ "cap_ppm", DECIDE_I64, offsetof(struct score_output, cap_ppm), 0, INT64_MAX, PPM },
	{ "decay_ppm", DECIDE_I64, offsetof(struct score_output, decay_ppm), 0, INT64_MAX, PPM },
	{ "start_ppm", DECIDE_I64, offsetof(struct score_output, start_ppm), 0, INT64_MAX, PPM },
	{ "is_assumed", DECIDE_BOOL, offsetof(struct score_output, is_assumed), 0, 0, 0 },
	{ "is_step_limited", DECIDE_BOOL, offsetof(struct score_output, is_step_limited), 0, 0, 0 },
	{ .name = NULL },
};

struct before {
	int64_t failed_picks, held_us, flat_us, dwell_us;
};
static const struct decide_field BEFORE_FIELDS[] = {
	{ "failed_picks", DECIDE_I64, offsetof(struct before, failed_picks), 0, UINT32_MAX, DECIDE_ALWAYS },
	{ "held_us", DECIDE_I64, offsetof(struct before, held_us), 0, DECIDE_TIME_MAX_US, DECIDE_ALWAYS },
	{ "flat_us", DECIDE_I64, offsetof(struct before, flat_us), 0, DECIDE_TIME_MAX_US, DECIDE_ALWAYS },
	{ "dwell_us", DECIDE_I64, offsetof(struct before, dwell_us), 0, DECIDE_TIME_MAX_US, 0 },
	{ .name = NULL },
};

/* --- writing --- */

/* A dimension without a group is one of its own. */
static const char *group_name(const struct profile_dim *dim) { return dim->group[0] ? dim->group : dim->name; }

/* What each group of dimensions adds to the score: the "weights" that a person looks for first. */
static void put_groups(struct json *json, const struct profile *profile, const struct score_output *output)
{
	if (profile->dim_count == 0)
		return;
	json_open(json, "groups_ppm");
	for (size_t i = 0; i < profile->dim_count; i++) {
		const char *name = group_name(&profile->dims[i]);
		int64_t sum = 0;
		size_t first = 0;

		while (strcmp(group_name(&profile->dims[first]), name) != 0)
			first++;
		if (first < i)
			continue;
		for (size_t k = i; k < profile->dim_count; k++) {
			if (strcmp(group_name(&profile->dims[k]), name) == 0)
				sum += output->dim_ppm[k] * profile->dims[k].weight_ppm;
		}
		json_i64(json, name, (sum + PPM / 2) / PPM);
	}
	json_close(json);
}

static void put_rules(struct json *json, const struct profile *profile, const struct score_output *output)
{
	int64_t penalty_ppm = PPM;
	bool is_open = false;

	for (size_t i = 0; i < profile->rule_count; i++) {
		penalty_ppm = penalty_ppm * output->rule_ppm[i] / PPM;
		if (output->rule_ppm[i] == PPM)
			continue;
		if (!is_open)
			json_open(json, "rules_ppm");
		is_open = true;
		json_i64(json, profile->rules[i].name, output->rule_ppm[i]);
	}
	if (is_open)
		json_close(json);
	json_i64(json, "penalty_ppm", penalty_ppm);
}

static void put_words(struct json *json, const struct score_input *input)
{
	bool is_open = false;

	for (size_t source = 0; source < HEALTH_SOURCES; source++) {
		if (input->words[source] == HEALTH_UNKNOWN)
			continue;
		if (!is_open)
			json_open(json, "words");
		is_open = true;
		json_c(json, health_source_name((enum health_source)source), health_word_name(input->words[source]));
	}
	if (is_open)
		json_close(json);
}

static void put_candidate(struct json *json, const struct profile *profile, const struct score_input *input,
			  const struct score_output *output)
{
	json_open(json, NULL);
	decide_put_text(json, "node", str_from(input->id), sizeof(input->id));
	json_c(json, "state", member_state_name(input->state));
	decide_put_fields(json, RESULT_FIELDS, output);
	put_groups(json, profile, output);
	put_rules(json, profile, output);
	if (profile->dim_count > 0) {
		json_open(json, "dims_ppm");
		for (size_t i = 0; i < profile->dim_count; i++)
			json_i64(json, profile->dims[i].name, output->dim_ppm[i]);
		json_close(json);
	}
	decide_put_fields(json, STEP_FIELDS, output);
	put_words(json, input);
	decide_put_fields(json, INPUT_FIELDS, input);
	if (input->bar_reason[0])
		decide_put_text(json, "bar_reason", str_from(input->bar_reason), sizeof(input->bar_reason));
	json_open(json, "report");
	report_json(json, &input->report);
	json_close(json);
	json_close(json);
}

static void put_decision(struct json *json, const struct decide_table *table)
{
	const struct decision *decision = table->decision;
	const char *selected = decision->selected < 0 ? NULL : table->inputs[decision->selected]->id;

	json_c(json, "selected", selected);
	json_c(json, "previous", table->before.selected[0] ? table->before.selected : NULL);
	json_c(json, "reason", reason_names[decision->reason]);
	json_bool(json, "changed", decision->is_changed);
	json_bool(json, "flat", decision->is_flat);
	json_i64(json, "best_ppm", decision->best_ppm);
	json_u64(json, "band", decision->band_count);
	json_open_list(json, "order");
	for (size_t i = 0; i < decision->order_count; i++)
		json_u64(json, NULL, decision->order[i]);
	json_close_list(json);
}

void decide_write_table(struct buf *buf, const struct profile *profile, const struct decide_table *table)
{
	const struct before before = { table->before.failed_picks, table->before.held_us, table->before.flat_us,
				       table->before.dwell_us };
	struct json json;

	json_init(&json, buf);
	json_open(&json, NULL);
	json_c(&json, "kind", "table");
	json_i64(&json, "ts_us", table->wall_us);
	decide_put_text(&json, "router", str_from(table->router), sizeof(table->router));
	decide_put_text(&json, "set", str_from(table->set), sizeof(table->set));
	decide_put_u64(&json, "version", table->version);
	decide_put_hex(&json, "profile", profile->hash);
	put_decision(&json, table);
	json_i64(&json, "elapsed_us", table->elapsed_us);
	json_open(&json, "before");
	decide_put_fields(&json, BEFORE_FIELDS, &before);
	json_close(&json);
	json_open_list(&json, "candidates");
	for (size_t i = 0; i < table->count; i++)
		put_candidate(&json, profile, table->inputs[i], &table->outputs[i]);
	json_close_list(&json);
	json_close(&json);
	buf_append(buf, STR("\n"));
}

/* --- reading --- */

static int read_words(const json_t *candidate, struct score_input *input, struct err *err)
{
	const json_t *words = json_object_get(candidate, "words");
	size_t seen_count = 0;

	if (words && !json_is_object(words))
		return err_set(err, ERR_BAD_REQUEST, "'words' is not an object");
	for (size_t source = 0; source < HEALTH_SOURCES; source++) {
		const json_t *value = json_object_get(words, health_source_name((enum health_source)source));
		const char *text = json_string_value(value);
		size_t word = 0;

		input->words[source] = HEALTH_UNKNOWN;
		if (!value)
			continue;
		while (text && word <= HEALTH_FAILED && strcmp(text, health_word_name((enum health_word)word)) != 0)
			word++;
		if (!text || word > HEALTH_FAILED)
			return err_set(err, ERR_BAD_REQUEST, "'words' has no word of that name for '%s'",
				       health_source_name((enum health_source)source));
		input->words[source] = (enum health_word)word;
		seen_count++;
	}
	if (words && seen_count != json_object_size(words))
		return err_set(err, ERR_BAD_REQUEST, "'words' names a source that does not exist");
	return 0;
}

static int read_report(const json_t *candidate, struct report *report, struct err *err)
{
	const json_t *numbers = json_object_get(candidate, "report"), *value;
	size_t seen_count = 0;

	report_init(report);
	if (!json_is_object(numbers))
		return err_set(err, ERR_BAD_REQUEST, "'report' is not an object");
	for (int field = 0; field < REPORT_FIELDS; field++) {
		int64_t number = 0;

		value = json_object_get(numbers, report_rows[field].name);
		if (!value)
			continue;
		if (decide_get_i64(numbers, report_rows[field].name, 0, INT64_MAX, &number, err) < 0)
			return err_wrap(err, "'report'");
		report_set(report, (enum report_field)field, number);
		seen_count++;
	}
	if (seen_count != json_object_size(numbers))
		return err_set(err, ERR_BAD_REQUEST, "'report' has a number that no node measures");
	return 0;
}

static int read_input(const json_t *candidate, struct score_input *input, struct err *err)
{
	char state[24], shown[40];
	int result;

	if (!json_is_object(candidate))
		return err_set(err, ERR_BAD_REQUEST, "it is not an object");
	*input = (struct score_input){ 0 };
	result = decide_get_text(candidate, "node", false, input->id, sizeof(input->id), err);
	if (result == 0)
		result = decide_get_text(candidate, "state", false, state, sizeof(state), err);
	if (result < 0)
		return result;
	if (!member_state_find(state, &input->state))
		return err_set(err, ERR_BAD_REQUEST, "there is no state '%s'",
			       str_display(str_from(state), shown, sizeof(shown)));
	result = read_words(candidate, input, err);
	if (result == 0)
		result = decide_get_fields(candidate, INPUT_FIELDS, input, err);
	if (result == 0)
		result = decide_get_text(candidate, "bar_reason", true, input->bar_reason, sizeof(input->bar_reason),
					 err);
	return result < 0 ? result : read_report(candidate, &input->report, err);
}

static int read_output(const json_t *candidate, const struct profile *profile, struct score_output *output,
		       struct err *err)
{
	const json_t *dims = json_object_get(candidate, "dims_ppm"), *rules = json_object_get(candidate, "rules_ppm");
	int result;

	*output = (struct score_output){ 0 };
	result = decide_get_fields(candidate, RESULT_FIELDS, output, err);
	if (result == 0)
		result = decide_get_fields(candidate, STEP_FIELDS, output, err);
	for (size_t i = 0; i < profile->dim_count && result == 0; i++)
		result = decide_get_i64(dims, profile->dims[i].name, 0, PPM, &output->dim_ppm[i], err);
	for (size_t i = 0; i < profile->rule_count && result == 0; i++) {
		output->rule_ppm[i] = PPM;
		if (json_object_get(rules, profile->rules[i].name))
			result = decide_get_i64(rules, profile->rules[i].name, 0, PPM, &output->rule_ppm[i], err);
	}
	return result;
}

static int read_decision(struct decide_replay *replay, struct err *err)
{
	const json_t *root = replay->root, *order, *flag;
	struct decide_table *table = &replay->record.table;
	struct decision *decision = &replay->decision;
	const char *const flags[] = { "changed", "flat" };
	bool *const targets[] = { &decision->is_changed, &decision->is_flat };
	int64_t band_count;
	int result;

	*decision = (struct decision){ .selected = -1 };
	result = decide_get_text(root, "selected", true, replay->recorded_selected, sizeof(replay->recorded_selected),
				 err);
	if (result == 0)
		result = decide_get_reason(root, "reason", &decision->reason, err);
	if (result == 0)
		result = decide_get_i64(root, "best_ppm", INT64_MIN, INT64_MAX, &decision->best_ppm, err);
	if (result == 0)
		result = decide_get_list(root, "order", false, table->count, &order, err);
	if (result == 0)
		result = decide_get_i64(root, "band", 0, (int64_t)json_array_size(order), &band_count, err);
	for (size_t i = 0; i < COUNT_OF(flags) && result == 0; i++) {
		flag = json_object_get(root, flags[i]);
		if (!json_is_boolean(flag))
			result = err_set(err, ERR_BAD_REQUEST, "'%s' is neither true nor false", flags[i]);
		*targets[i] = json_is_true(flag);
	}
	if (result < 0)
		return result;
	decision->band_count = (size_t)band_count;
	decision->order_count = json_array_size(order);
	for (size_t i = 0; i < decision->order_count; i++) {
		const json_t *value = json_array_get(order, i);

		if (!json_is_integer(value) || json_integer_value(value) < 0 ||
		    (size_t)json_integer_value(value) >= table->count)
			return err_set(err, ERR_BAD_REQUEST, "'order' has an item that is no candidate's number");
		decision->order[i] = (uint16_t)json_integer_value(value);
	}
	for (size_t i = 0; i < table->count && decision->selected < 0 && replay->recorded_selected[0]; i++) {
		if (strcmp(replay->inputs[i].id, replay->recorded_selected) == 0)
			decision->selected = (int)i;
	}
	return 0;
}

static int read_head(struct decide_replay *replay, uint64_t *ret_hash, struct err *err)
{
	const json_t *root = replay->root, *memory = json_object_get(root, "before");
	struct decide_table *table = &replay->record.table;
	static const struct decide_field fields[] = {
		{ "version", DECIDE_U64, offsetof(struct decide_table, version), 0, 0, DECIDE_ALWAYS },
		{ "elapsed_us", DECIDE_I64, offsetof(struct decide_table, elapsed_us), 0, DECIDE_TIME_MAX_US,
		  DECIDE_ALWAYS },
		{ .name = NULL },
	};
	struct before before;
	int result;

	*table = (struct decide_table){ .wall_us = replay->record.wall_us };
	result = decide_get_text(root, "set", false, table->set, sizeof(table->set), err);
	if (result == 0)
		result = decide_get_text(root, "router", false, table->router, sizeof(table->router), err);
	if (result == 0)
		result = decide_get_fields(root, fields, table, err);
	if (result == 0)
		result = decide_get_hex(json_object_get(root, "profile"), "profile", ret_hash, err);
	if (result == 0)
		result = decide_get_text(root, "previous", true, table->before.selected, sizeof(table->before.selected),
					 err);
	if (result == 0)
		result = decide_get_fields(memory, BEFORE_FIELDS, &before, err);
	if (result < 0)
		return result;
	table->before.failed_picks = (unsigned)before.failed_picks;
	table->before.held_us = before.held_us;
	table->before.flat_us = before.flat_us;
	table->before.dwell_us = before.dwell_us;
	(void)str_copy(str_from(table->set), replay->record.set, sizeof(replay->record.set));
	return 0;
}

/* A line may be large; most are not. */
static void table_reserve(struct decide_replay *replay, size_t count)
{
	if (count <= replay->table_capacity)
		return;
	replay->table_capacity = count;
	free(replay->inputs);
	free(replay->input_pointers);
	free(replay->outputs);
	free(replay->computed);
	replay->inputs = must_zalloc(count, sizeof(*replay->inputs));
	replay->input_pointers = must_zalloc(count, sizeof(*replay->input_pointers));
	replay->outputs = must_zalloc(count, sizeof(*replay->outputs));
	replay->computed = must_zalloc(count, sizeof(*replay->computed));
	for (size_t i = 0; i < count; i++)
		replay->input_pointers[i] = &replay->inputs[i];
}

int decide_table_read(struct decide_replay *replay, bool with_outputs, struct err *err)
{
	struct decide_table *table = &replay->record.table;
	const json_t *list;
	uint64_t hash = 0;
	char name[17];
	int result = read_head(replay, &hash, err);

	if (result == 0)
		result = decide_get_list(replay->root, "candidates", false, SCORE_SET_MAX, &list, err);
	if (result < 0)
		return result;
	replay->record.profile = decide_profile_find(replay, hash);
	if (!replay->record.profile && !(replay->is_what_if && !with_outputs)) {
		(void)snprintf(name, sizeof(name), "%016llx", (unsigned long long)hash);
		return decide_lacks(replay->has_head && !replay->is_profile_forgotten, "profile", name, err);
	}
	table->count = json_array_size(list);
	table_reserve(replay, table->count);
	table->inputs = replay->input_pointers;
	table->outputs = replay->outputs;
	table->decision = &replay->decision;
	for (size_t i = 0; i < table->count && result == 0; i++) {
		const json_t *candidate = json_array_get(list, i);

		result = read_input(candidate, &replay->inputs[i], err);
		if (result == 0 && with_outputs)
			result = read_output(candidate, replay->record.profile, &replay->outputs[i], err);
		if (result < 0)
			return err_wrap(err, "candidates[%zu]", i);
	}
	return read_decision(replay, err);
}

/* --- computing anew --- */

static int64_t score_of(const struct decide_replay *replay, const char *id)
{
	for (size_t i = 0; i < replay->record.table.count && id[0]; i++) {
		if (strcmp(replay->inputs[i].id, id) == 0)
			return replay->computed[i].score_ppm;
	}
	return -1;
}

static void table_judge(struct decide_replay *replay, const struct profile *profile, struct decision *ret_decision,
			struct decide_change *change)
{
	const struct decide_table *table = &replay->record.table;
	struct judge_memory memory = table->before;

	judge_set(profile, &memory, table->elapsed_us, table->inputs, replay->computed, table->count, ret_decision);
	(void)str_copy(str_from(replay->recorded_selected), change->recorded, sizeof(change->recorded));
	if (ret_decision->selected >= 0)
		(void)str_copy(str_from(table->inputs[ret_decision->selected]->id), change->computed,
			       sizeof(change->computed));
	change->recorded_ppm = score_of(replay, change->recorded);
	change->computed_ppm = score_of(replay, change->computed);
}

void decide_table_again(struct decide_replay *replay, struct decide_change *change)
{
	struct decide_table table = replay->record.table;
	struct decision decision;

	score_set(replay->record.profile, table.inputs, table.count, replay->computed);
	table_judge(replay, replay->record.profile, &decision, change);
	table.outputs = replay->computed;
	table.decision = &decision;
	decide_write_table(&replay->text, replay->record.profile, &table);
}

/* A rule that latches was on or off under the recorded profile; another one may have it at another place, or not at all. */
static void map_rules(struct decide_replay *replay, const struct profile *from, const struct profile *to)
{
	for (size_t i = 0; i < replay->record.table.count; i++) {
		uint32_t before = replay->inputs[i].rules_on, after = 0;

		for (size_t k = 0; from && k < from->rule_count; k++) {
			for (size_t m = 0; m < to->rule_count && before >> k & 1; m++) {
				if (strcmp(from->rules[k].name, to->rules[m].name) == 0)
					after |= 1u << m;
			}
		}
		replay->inputs[i].rules_on = after;
	}
}

static void squeeze(struct score_output *outputs, size_t count, int64_t factor_ppm)
{
	int64_t sum_ppm = 0, serving_count = 0, mean_ppm;

	for (size_t i = 0; i < count; i++) {
		sum_ppm += outputs[i].may_serve ? outputs[i].score_ppm : 0;
		serving_count += outputs[i].may_serve;
	}
	mean_ppm = serving_count ? sum_ppm / serving_count : 0;
	for (size_t i = 0; i < count; i++) {
		if (outputs[i].may_serve)
			outputs[i].score_ppm = mean_ppm + (outputs[i].score_ppm - mean_ppm) * factor_ppm / PPM;
	}
}

void decide_table_what_if(struct decide_replay *replay, struct decide_change *change)
{
	const struct decide_table *table = &replay->record.table;
	const struct profile *profile = replay->is_what_if ? &replay->what_if : replay->record.profile;
	struct decision decision;

	if (replay->is_what_if)
		map_rules(replay, replay->record.profile, profile);
	score_set(profile, table->inputs, table->count, replay->computed);
	squeeze(replay->computed, table->count, replay->squeeze_ppm);
	table_judge(replay, profile, &decision, change);
}
