/* A report as a peer sends it. What is accepted keeps its promises: names are names, numbers are within their bounds, texts may be shown, the
 * histogram adds up; written and read again it is the same, and a node's view takes it whatever it says. */
#include <stdlib.h>
#include <string.h>

#include "core/node.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_text(const char *text, size_t text_size)
{
	struct str shown = { text, strnlen(text, text_size) };

	MUST(shown.size < text_size && utf8_is_valid(shown));
	for (size_t i = 0; i < shown.size; i++)
		MUST((unsigned char)text[i] >= 0x20 && text[i] != 0x7f);
}

static void check_name(const char *text, size_t text_size)
{
	check_text(text, text_size);
	MUST(text[0] != '\0' && !strpbrk(text, "/\\ \"'<>&;"));
}

static void check_accepted(const struct report_message *message)
{
	uint64_t total_count = 0;

	check_name(message->node_id, sizeof(message->node_id));
	check_name(message->incarnation, sizeof(message->incarnation));
	MUST(message->sequence <= INT64_MAX);
	for (unsigned i = 0; i < REPORT_FIELDS; i++) {
		int64_t value = report_get(&message->report, (enum report_field)i);

		MUST(value >= REPORT_UNKNOWN && value <= report_field_max((enum report_field)i));
	}
	for (size_t i = 0; i < HIST_BUCKETS; i++)
		total_count += message->latency.counts[i];
	MUST(message->latency.total_count == total_count && message->latency.sum_us <= INT64_MAX);
	MUST(message->dir_count <= REPORT_DIRS_MAX);
	for (size_t i = 0; i < message->dir_count; i++) {
		check_text(message->dirs[i].path, sizeof(message->dirs[i].path));
		check_text(message->dirs[i].diagnosis, sizeof(message->dirs[i].diagnosis));
	}
}

static void check_round(const struct report_message *message, struct report_message *again)
{
	struct buf buf = BUF_INIT(REPORT_BODY_MAX);
	struct err err = ERR_INIT;

	report_write(&buf, message);
	MUST(!buf.is_failed && report_read(buf_str(&buf), again, &err) == 0);
	buf_fini(&buf);
	/* The reader clears the whole message first, so that equal ones are equal in every byte. */
	MUST(memcmp(message, again, sizeof(*message)) == 0);
}

static void check_view(const struct report_message *message)
{
	struct node_view view;
	struct score_input input;

	node_view_init(&view, message->node_id, 1000, MEMBER_HEALTHY, 0);
	for (int64_t i = 1; i <= 3; i++) {
		(void)node_view_report(&view, &member_rules_kv, &message->report, message->sequence, i * 20 * SEC_US);
		(void)node_view_step(&view, &member_rules_kv, i * 20 * SEC_US + SEC_US);
		node_view_input(&view, -1, -1, i * 20 * SEC_US + SEC_US, &input);
		MUST(input.age_us >= SEC_US && input.p99_smooth_us >= -1);
		MUST(input.write_failure_ppm >= -1 && input.write_failure_ppm <= PPM);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct report_message *message = must_alloc(sizeof(*message)), *again = must_alloc(sizeof(*again));
	struct err err = ERR_INIT;

	if (report_read((struct str){ (const char *)data, size }, message, &err) == 0) {
		check_accepted(message);
		check_round(message, again);
		check_view(message);
	} else {
		MUST(err.code == ERR_PEER && message->node_id[0] == '\0');
		check_text(err.text, sizeof(err.text));
	}
	free(message);
	free(again);
	return 0;
}
