#include "core/report.h"

#include "core/report_impl.h"

const struct report_row report_rows[REPORT_FIELDS] = {
#define REPORT(name, help) { #name, help },
#include "core/report_list.h"
#undef REPORT
};

static const size_t offsets[REPORT_FIELDS] = {
#define REPORT(name, help) offsetof(struct report, name),
#include "core/report_list.h"
#undef REPORT
};

void report_init(struct report *report)
{
	for (unsigned i = 0; i < REPORT_FIELDS; i++)
		report_set(report, (enum report_field)i, REPORT_UNKNOWN);
}

int64_t report_get(const struct report *report, enum report_field field)
{
	int64_t value;

	MUST((unsigned)field < REPORT_FIELDS);
	memcpy(&value, (const char *)report + offsets[field], sizeof(value));
	return value;
}

void report_set(struct report *report, enum report_field field, int64_t value)
{
	MUST((unsigned)field < REPORT_FIELDS);
	value = max_i64(value, REPORT_UNKNOWN);
	memcpy((char *)report + offsets[field], &value, sizeof(value));
}

int64_t report_field_max(enum report_field field)
{
	switch (field) {
	case REPORT_mem_pressure_ppm:
	case REPORT_sync_progress_ppm:
		return 1000000;
	case REPORT_verified:
	case REPORT_migrating:
	case REPORT_leaving:
		return 1;
	default:
		return REPORT_VALUE_MAX;
	}
}

bool report_field_find(const char *name, enum report_field *ret_field)
{
	for (unsigned i = 0; i < REPORT_FIELDS; i++) {
		if (strcmp(report_rows[i].name, name) == 0) {
			*ret_field = (enum report_field)i;
			return true;
		}
	}
	return false;
}

void report_json(struct json *json, const struct report *report)
{
	for (unsigned i = 0; i < REPORT_FIELDS; i++) {
		int64_t value = report_get(report, (enum report_field)i);

		if (value >= 0)
			json_i64(json, report_rows[i].name, value);
	}
}

void report_write(struct buf *buf, const struct report_message *message)
{
	struct json json;

	json_init(&json, buf);
	json_open(&json, NULL);
	json_c(&json, "node_id", message->node_id);
	json_c(&json, "incarnation", message->incarnation);
	json_u64(&json, "sequence", message->sequence);
	json_open(&json, "metrics");
	report_json(&json, &message->report);
	json_close(&json);
	hist_json(&json, "latency", &message->latency);
	json_open_list(&json, "dirs");
	for (size_t i = 0; i < message->dir_count; i++) {
		json_open(&json, NULL);
		json_c(&json, "path", message->dirs[i].path);
		json_c(&json, "diagnosis", message->dirs[i].diagnosis);
		json_close(&json);
	}
	json_close_list(&json);
	json_close(&json);
}
