#include "app/explain.h"

#include <inttypes.h>
#include <stdarg.h>

#include "app/declog.h"
#include "base/clock.h"

const char *explain_span(int64_t span_us, char target[24])
{
	if (span_us < 0)
		(void)snprintf(target, 24, "-");
	else if (span_us < SEC_US)
		(void)snprintf(target, 24, "%" PRId64 " ms", span_us / MSEC_US);
	else if (span_us < 600 * SEC_US)
		(void)snprintf(target, 24, "%" PRId64 ".%d s", span_us / SEC_US, (int)(span_us % SEC_US / 100000));
	else
		(void)snprintf(target, 24, "%" PRId64 " min", span_us / (60 * SEC_US));
	return target;
}

/* --- warnings --- */

static void PRINTF(2, 3) warn(struct explain_warnings *warnings, const char *fmt, ...)
{
	va_list args;

	if (warnings->count == EXPLAIN_WARNINGS)
		return;
	va_start(args, fmt);
	vsnprintf(warnings->texts[warnings->count], sizeof(warnings->texts[0]), fmt, args);
	va_end(args);
	warnings->count++;
}

static void warn_assumed(const struct profile *profile, const char *who, uint32_t dims,
			 struct explain_warnings *warnings)
{
	char names[160] = "";
	size_t size = 0;

	for (size_t i = 0; i < profile->dim_count && size < sizeof(names) - 1; i++) {
		if (dims >> i & 1)
			size += (size_t)snprintf(names + size, sizeof(names) - size, " %s", profile->dims[i].name);
	}
	if (dims)
		warn(warnings, "%s:%s", who, names);
}

/* What nobody tells is said once, of all. */
static uint32_t dims_told_by_nobody(const struct decide_record *record)
{
	uint32_t dims = record->table.count ? UINT32_MAX : 0;

	for (size_t i = 0; i < record->table.count; i++)
		dims &= record->table.outputs[i].dims_assumed;
	return dims;
}

static void warn_candidate(const struct decide_record *record, size_t index, uint32_t told_by_nobody,
			   struct explain_warnings *warnings)
{
	const struct score_input *input = record->table.inputs[index];
	const struct score_output *output = &record->table.outputs[index];
	char id[SCORE_ID_SIZE], reason[sizeof(input->bar_reason)], span[24], who[SCORE_ID_SIZE + 64];

	str_display(str_from(input->id), id, sizeof(id));
	if (input->is_barred)
		warn(warnings, "%s takes no new work: %s", id,
		     str_display(str_from(input->bar_reason), reason, sizeof(reason)));
	if (input->age_us < 0)
		warn(warnings, "%s has never reported", id);
	else if (input->age_us > record->profile->decay.life_us)
		warn(warnings, "%s has not reported for %s", id, explain_span(input->age_us, span));
	(void)snprintf(who, sizeof(who), "%s does not tell, so the peers' mean stands in", id);
	warn_assumed(record->profile, who, output->dims_assumed & ~told_by_nobody, warnings);
	if (output->is_assumed)
		warn(warnings, "%s: the peers' mean stands in for its metrics, wholly or partly", id);
	if (output->is_step_limited)
		warn(warnings, "%s: its score rises no faster than the profile lets it", id);
}

void explain_warn(const struct explain_line *line, struct explain_warnings *ret_warnings)
{
	const struct decide_record *record = line->record;
	uint32_t told_by_nobody;

	ret_warnings->count = 0;
	if (!line->agrees)
		warn(ret_warnings, "this line does not agree with what is computed from it: %s", line->difference);
	if (record->kind != DECIDE_TABLE)
		return;
	if (record->table.decision->is_flat)
		warn(ret_warnings, "flat scores: they have been alike for long though the metrics differ, so that "
				   "scoring has become round robin");
	if (record->table.decision->order_count == 0)
		warn(ret_warnings, "nobody may serve");
	told_by_nobody = dims_told_by_nobody(record);
	warn_assumed(record->profile, "nobody tells, so that it counts as 1 for all", told_by_nobody, ret_warnings);
	for (size_t i = 0; i < record->table.count; i++)
		warn_candidate(record, i, told_by_nobody, ret_warnings);
}

/* --- for people --- */

static void print_table_head(const struct decide_record *record)
{
	const struct decide_table *table = &record->table;
	char text[SCORE_ID_SIZE], span[24];

	printf("router     %s, table %" PRIu64 "\n", str_display(str_from(table->router), text, sizeof(text)),
	       table->version);
	printf("profile    %s %016" PRIx64 "\n", record->profile->name, record->profile->hash);
	if (table->before.selected[0])
		printf("previous   %s, held for %s\n",
		       str_display(str_from(table->before.selected), text, sizeof(text)),
		       explain_span(table->before.held_us + table->elapsed_us, span));
	else
		printf("previous   none\n");
}

static void print_head(const struct explain_line *line)
{
	const struct decide_record *record = line->record;
	static const char *const names[] = { "profile", "set", "plan", "transfer", "set", "log" };
	char text[DECIDE_WHAT_SIZE], size[24], time[CLOCK_TEXT_SIZE];

	printf("%-10s %s\n", names[record->kind], str_display(str_from(record->set), text, sizeof(text)));
	printf("time       %s @%" PRId64 " (%s)\n", clock_text(record->wall_us, time), record->wall_us, line->where);
	if (record->kind == DECIDE_TABLE)
		print_table_head(record);
	if (record->kind == DECIDE_PLACE) {
		printf("key        %016" PRIx64 " %s\n", record->place.key_hash,
		       str_display(record->place.what, text, sizeof(text)));
		printf("size       %s\n", size_display(record->place.size_bytes, size, sizeof(size)));
	}
	if (record->kind == DECIDE_PICK)
		printf("strategy   %s: %s\n", pick_names[record->pick->strategy], pick_helps[record->pick->strategy]);
}

static void print_choice(const struct decide_record *record)
{
	enum reason reason = REASON_none;
	char text[SCORE_ID_SIZE];

	if (record->kind == DECIDE_PLAN || record->kind == DECIDE_PROFILE || record->kind == DECIDE_DROPPED)
		return;
	if (record->kind == DECIDE_TABLE)
		reason = record->table.decision->reason;
	else if (record->kind == DECIDE_PLACE)
		reason = record->place.reason;
	else
		reason = record->pick->reason;
	printf("selected   %s\n",
	       record->selected[0] ? str_display(str_from(record->selected), text, sizeof(text)) : "nobody");
	printf("reason     %s: %s\n", reason_names[reason], reason_helps[reason]);
	if (record->kind == DECIDE_TABLE) {
		const struct decision *decision = record->table.decision;

		printf("band       %zu of the %zu that may serve are as good:", decision->band_count,
		       decision->order_count);
		for (size_t i = 0; i < min_size(decision->band_count, EXPLAIN_ROWS); i++)
			printf(" %s",
			       str_display(str_from(record->table.inputs[decision->order[i]]->id), text, sizeof(text)));
		printf("%s\n", decision->band_count > EXPLAIN_ROWS ? " ..." : "");
	}
}

void explain_print(const struct explain_line *line)
{
	struct explain_warnings warnings;
	char shown[512];

	print_head(line);
	print_choice(line->record);
	printf("\n");
	switch (line->record->kind) {
	case DECIDE_TABLE:
		explain_table(line->record);
		break;
	case DECIDE_PLACE:
		explain_place(line->record);
		break;
	case DECIDE_PICK:
		explain_pick(line->record);
		break;
	case DECIDE_PLAN:
		explain_plan(line->record);
		break;
	case DECIDE_PROFILE:
	case DECIDE_DROPPED:
		break;
	}
	explain_warn(line, &warnings);
	for (size_t i = 0; i < warnings.count; i++)
		printf("%swarning: %s\n", i == 0 ? "\n" : "",
		       str_display(str_from(warnings.texts[i]), shown, sizeof(shown)));
}

/* --- for programs --- */

void explain_json(struct json *json, const struct explain_line *line, struct str text)
{
	const struct decide_record *record = line->record;
	struct explain_warnings warnings;
	char time[CLOCK_TEXT_SIZE];

	json_open(json, NULL);
	json_c(json, "where", line->where);
	json_c(json, "time", clock_text(record->wall_us, time));
	if (record->kind == DECIDE_TABLE)
		json_c(json, "reason_text", reason_helps[record->table.decision->reason]);
	if (record->kind == DECIDE_PLACE)
		json_c(json, "reason_text", reason_helps[record->place.reason]);
	if (record->kind == DECIDE_PICK)
		json_c(json, "reason_text", reason_helps[record->pick->reason]);
	json_bool(json, "agrees", line->agrees);
	explain_warn(line, &warnings);
	json_open_list(json, "warnings");
	for (size_t i = 0; i < warnings.count; i++)
		json_c(json, NULL, warnings.texts[i]);
	json_close_list(json);
	/* The record was read as JSON, so it is some. */
	buf_append(json->buf, STR(",\"record\":"));
	buf_append(json->buf, text);
	json_close(json);
}
