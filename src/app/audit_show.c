#include "app/audit_show.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "plug/audit_line.h"

/* --- for spreadsheets --- */

static void csv_text(struct buf *buf, struct str text)
{
	/* Spreadsheets run what begins like that. */
	const bool is_formula = text.size > 0 && strchr("=+-@\t\r\n|%", text.data[0]) && text.data[0] != '\0';

	buf_append_c(buf, is_formula ? "\"'" : "\"");
	for (size_t i = 0; i < text.size; i++) {
		if (text.data[i] == '"')
			buf_append_c(buf, "\"");
		buf_append(buf, (struct str){ text.data + i, 1 });
	}
	buf_append_c(buf, "\"");
}

static void csv_row(struct buf *buf, const struct audit_row *row)
{
	char at[CLOCK_TEXT_SIZE], hex[AUDIT_HASH_HEX_SIZE];

	buf_printf(buf, "%" PRIu64 ",%s", row->id, clock_text(row->fields[AUDIT_at_us].number, at));
	for (int i = 0; i < AUDIT_FIELD_COUNT; i++) {
		const struct audit_value *value = &row->fields[i];

		buf_append_c(buf, ",");
		if (value->is_null)
			continue;
		if (audit_field_is_number((enum audit_field)i))
			buf_printf(buf, "%" PRId64, value->number);
		else
			csv_text(buf, value->text);
	}
	hex_encode(row->prev, AUDIT_HASH_SIZE, hex);
	buf_printf(buf, ",%s", hex);
	hex_encode(row->hash, AUDIT_HASH_SIZE, hex);
	buf_printf(buf, ",%s\r\n", hex);
}

void audit_show_begin(struct buf *buf, enum audit_form form)
{
	if (form != AUDIT_FORM_CSV)
		return;
	buf_append_c(buf, "id,at");
	for (int i = 0; i < AUDIT_FIELD_COUNT; i++)
		buf_printf(buf, ",%s", audit_field_name((enum audit_field)i));
	buf_append_c(buf, ",prev_hash,hash\r\n");
}

/* --- for people --- */

static bool is_said(const struct audit_row *row, enum audit_field field)
{
	return !row->fields[field].is_null && row->fields[field].text.size > 0;
}

static void say(struct buf *buf, const char *before, const struct audit_row *row, enum audit_field field)
{
	char shown[2048];

	if (is_said(row, field))
		buf_printf(buf, "%s%s", before, str_display(row->fields[field].text, shown, sizeof(shown)));
}

static uint64_t number(const struct audit_row *row, enum audit_field field)
{
	return row->fields[field].number > 0 ? (uint64_t)row->fields[field].number : 0;
}

static bool is_result_odd(const struct audit_row *row)
{
	return is_said(row, AUDIT_result) && !str_eq_c(row->fields[AUDIT_result].text, "ok");
}

/* An attempt to write a chunk: by whom, to where, how long it took. */
static void text_attempt(struct buf *buf, const struct audit_row *row)
{
	const int64_t took_us = row->fields[AUDIT_finished_us].number - row->fields[AUDIT_started_us].number;
	char size[32];

	buf_printf(buf, ", %s", size_display(number(row, AUDIT_size_bytes), size, sizeof(size)));
	if (is_said(row, AUDIT_digest)) {
		say(buf, ", ", row, AUDIT_algorithm);
		say(buf, is_said(row, AUDIT_algorithm) ? " " : ", digest ", row, AUDIT_digest);
	}
	say(buf, ", at ", row, AUDIT_disk_path);
	if (took_us >= 0 && row->fields[AUDIT_started_us].number > 0)
		buf_printf(buf, ", in %" PRId64 ".%03" PRId64 " s", took_us / SEC_US, took_us % SEC_US / MSEC_US);
}

static void text_row(struct buf *buf, const struct audit_row *row)
{
	char at[CLOCK_TEXT_SIZE];

	buf_printf(buf, "%s  #%" PRIu64, clock_text(row->fields[AUDIT_at_us].number, at), row->id);
	say(buf, "  ", row, AUDIT_kind);
	if (number(row, AUDIT_file_id) > 0)
		buf_printf(buf, " %" PRIu64 "/%" PRIu64, number(row, AUDIT_file_id), number(row, AUDIT_chunk_index));
	say(buf, "  ", row, AUDIT_outcome);
	if (is_result_odd(row))
		say(buf, ", but the scheduler said: ", row, AUDIT_result);
	say(buf, "  node ", row, AUDIT_node_id);
	say(buf, " ", row, AUDIT_node_addr);
	say(buf, "  by ", row, AUDIT_user);
	say(buf, " from ", row, AUDIT_client_addr);
	say(buf, " with ", row, AUDIT_user_agent);
	say(buf, ", request ", row, AUDIT_request_id);
	if (!row->fields[AUDIT_size_bytes].is_null)
		text_attempt(buf, row);
	say(buf, "  ", row, AUDIT_detail);
	buf_append_c(buf, "\n");
}

void audit_show_row(struct buf *buf, enum audit_form form, const struct audit_row *row)
{
	if (form == AUDIT_FORM_CSV) {
		csv_row(buf, row);
	} else if (form == AUDIT_FORM_JSON) {
		audit_line_write(buf, row);
		buf_append_c(buf, "\n");
	} else {
		text_row(buf, row);
	}
}

/* --- times --- */

int audit_read_time(const char *option, const char *text, int64_t now_wall_us, int64_t *ret_wall_us, struct err *err)
{
	static const char *const forms[] = { "%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S",
					     "%Y-%m-%dT%H:%M",     "%Y-%m-%d %H:%M",    "%Y-%m-%d" };
	int64_t duration_us;

	for (size_t i = 0; i < COUNT_OF(forms); i++) {
		struct tm parts = { 0 };
		const char *end = strptime(text, forms[i], &parts);

		if (end && *end == '\0' && parts.tm_year >= 70) {
			*ret_wall_us = (int64_t)timegm(&parts) * SEC_US;
			return 0;
		}
	}
	if (str_to_duration(str_from(text), &duration_us) && duration_us < now_wall_us) {
		*ret_wall_us = now_wall_us - duration_us;
		return 0;
	}
	err_set(err, ERR_USAGE, "--%s '%s' is no time", option, text);
	err_hint(err, "like 2026-01-31, 2026-01-31T08:00:00Z (UTC), or 90d for so long ago");
	return -(int)ERR_USAGE;
}
