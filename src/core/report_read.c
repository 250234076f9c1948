/* Reading a report that a peer sent: nothing in it is believed before it is checked. */
#include "core/report_impl.h"

#include <inttypes.h>
#include <jansson.h>

static bool is_id_text(struct str text)
{
	for (size_t i = 0; i < text.size; i++) {
		char c = text.data[i];

		if (!(c >= 'A' && c <= 'Z') && !(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') && c != '.' &&
		    c != '_' && c != '-')
			return false;
	}
	return text.size > 0;
}

static struct str text_of(const json_t *value)
{
	return json_is_string(value) ? (struct str){ json_string_value(value), json_string_length(value) } : STR_NONE;
}

static int read_id(const json_t *root, const char *key, char *target, size_t target_size, struct err *err)
{
	struct str text = text_of(json_object_get(root, key));

	if (!is_id_text(text) || !str_copy(text, target, target_size))
		return err_set(err, ERR_PEER, "'%s' is not 1 to %zu of A-Za-z0-9._-", key, target_size - 1);
	return 0;
}

static int read_number(const json_t *value, const char *key, int64_t max, int64_t *ret_value, struct err *err)
{
	int64_t number;

	if (!json_is_integer(value))
		return err_set(err, ERR_PEER, "'%s' is not a whole number", key);
	number = (int64_t)json_integer_value(value);
	if (number < 0 || number > max)
		return err_set(err, ERR_PEER, "'%s' is %" PRId64 ", not 0 to %" PRId64, key, number, max);
	*ret_value = number;
	return 0;
}

static int read_metrics(json_t *metrics, struct report *report, struct err *err)
{
	const char *key;
	json_t *value;

	if (!json_is_object(metrics))
		return err_set(err, ERR_PEER, "'metrics' is not an object");
	json_object_foreach(metrics, key, value)
	{
		enum report_field field;
		int64_t number;

		/* A newer node may measure more. */
		if (!report_field_find(key, &field))
			continue;
		if (read_number(value, report_rows[field].name, report_field_max(field), &number, err) < 0)
			return -ERR_PEER;
		report_set(report, field, number);
	}
	return 0;
}

static int read_buckets(const json_t *buckets, struct hist *hist, struct err *err)
{
	int64_t index, count, last = -1;

	if (!json_is_array(buckets))
		return err_set(err, ERR_PEER, "'latency.buckets' is not a list");
	for (size_t i = 0; i < json_array_size(buckets); i++) {
		const json_t *pair = json_array_get(buckets, i);

		if (json_array_size(pair) != 2)
			return err_set(err, ERR_PEER, "'latency.buckets' item %zu is not [index, count]", i);
		if (read_number(json_array_get(pair, 0), "latency.buckets index", HIST_BUCKETS - 1, &index, err) < 0 ||
		    read_number(json_array_get(pair, 1), "latency.buckets count", UINT32_MAX, &count, err) < 0)
			return -ERR_PEER;
		if (index <= last)
			return err_set(err, ERR_PEER,
				       "'latency.buckets' item %zu does not come after the one before it", i);
		last = index;
		hist->counts[index] = (uint32_t)count;
		hist->total_count += (uint64_t)count;
	}
	return 0;
}

static int read_latency(const json_t *latency, struct hist *hist, struct err *err)
{
	int64_t sum_us = 0;

	if (!latency)
		return 0;
	if (!json_is_object(latency))
		return err_set(err, ERR_PEER, "'latency' is not an object");
	if (read_buckets(json_object_get(latency, "buckets"), hist, err) < 0 ||
	    read_number(json_object_get(latency, "sum_us"), "latency.sum_us", INT64_MAX, &sum_us, err) < 0)
		return -ERR_PEER;
	/* No sample is longer than the last bucket tells. */
	if ((unsigned __int128)sum_us > (unsigned __int128)hist->total_count * (uint64_t)HIST_VALUE_MAX_US)
		return err_set(err, ERR_PEER, "'latency.sum_us' is more than its %" PRIu64 " samples can add up to",
			       hist->total_count);
	hist->sum_us = (uint64_t)sum_us;
	return 0;
}

static int read_dirs(const json_t *dirs, struct report_message *message, struct err *err)
{
	if (!dirs)
		return 0;
	if (!json_is_array(dirs) || json_array_size(dirs) > REPORT_DIRS_MAX)
		return err_set(err, ERR_PEER, "'dirs' is not a list of at most %d folders", REPORT_DIRS_MAX);
	for (size_t i = 0; i < json_array_size(dirs); i++) {
		const json_t *item = json_array_get(dirs, i), *diagnosis = json_object_get(item, "diagnosis");
		struct report_dir *dir = &message->dirs[i];
		struct str path = text_of(json_object_get(item, "path"));

		if (path.size == 0)
			return err_set(err, ERR_PEER, "'dirs' item %zu has no 'path'", i);
		if (diagnosis && !json_is_string(diagnosis))
			return err_set(err, ERR_PEER, "'dirs' item %zu has a 'diagnosis' that is no text", i);
		str_display(path, dir->path, sizeof(dir->path));
		str_display(text_of(diagnosis), dir->diagnosis, sizeof(dir->diagnosis));
	}
	message->dir_count = json_array_size(dirs);
	return 0;
}

/* What follows from other parts of the message is worked out here, so that no two of its parts can disagree. */
static void derive(struct report_message *message)
{
	static const struct {
		enum report_field field;
		uint32_t quantile_ppm;
	} rows[] = {
		{ REPORT_p10_us, 100000 },
		{ REPORT_p50_us, 500000 },
		{ REPORT_p90_us, 900000 },
		{ REPORT_p99_us, 990000 },
	};
	int64_t failed_count = 0;

	if (message->latency.total_count > 0) {
		for (size_t i = 0; i < COUNT_OF(rows); i++)
			report_set(&message->report, rows[i].field,
				   hist_quantile_us(&message->latency, rows[i].quantile_ppm));
		message->report.mean_us = hist_mean_us(&message->latency);
	}
	for (size_t i = 0; i < message->dir_count; i++)
		failed_count += message->dirs[i].diagnosis[0] != '\0';
	if (failed_count > 0)
		message->report.dirs_failed = max_i64(message->report.dirs_failed, failed_count);
}

static int read_message(const json_t *root, struct report_message *message, struct err *err)
{
	int64_t sequence;

	if (!json_is_object(root))
		return err_set(err, ERR_PEER, "it is not a JSON object");
	if (read_id(root, "node_id", message->node_id, sizeof(message->node_id), err) < 0 ||
	    read_id(root, "incarnation", message->incarnation, sizeof(message->incarnation), err) < 0 ||
	    read_number(json_object_get(root, "sequence"), "sequence", INT64_MAX, &sequence, err) < 0 ||
	    read_metrics(json_object_get(root, "metrics"), &message->report, err) < 0 ||
	    read_latency(json_object_get(root, "latency"), &message->latency, err) < 0 ||
	    read_dirs(json_object_get(root, "dirs"), message, err) < 0)
		return -ERR_PEER;
	message->sequence = (uint64_t)sequence;
	derive(message);
	return 0;
}

static void message_init(struct report_message *message)
{
	memset(message, 0, sizeof(*message));
	report_init(&message->report);
}

int report_read(struct str body, struct report_message *ret_message, struct err *err)
{
	char sender[sizeof(ret_message->node_id)], shown[128];
	json_error_t fault;
	json_t *root;
	int result;

	message_init(ret_message);
	if (body.size == 0 || body.size > REPORT_BODY_MAX)
		return err_set(err, ERR_PEER, "a report of %zu bytes is not read: it must have 1 to %zu", body.size,
			       REPORT_BODY_MAX);
	root = json_loadb(body.data, body.size, JSON_REJECT_DUPLICATES, &fault);
	if (!root)
		return err_set(err, ERR_PEER, "a report is not JSON: %s at byte %d",
			       str_display(str_from(fault.text), shown, sizeof(shown)), fault.position);
	result = read_message(root, ret_message, err);
	json_decref(root);
	if (result < 0) {
		memcpy(sender, ret_message->node_id, sizeof(sender));
		message_init(ret_message);
		err_wrap(err, "the report of node '%s' is refused", sender[0] != '\0' ? sender : "?");
		err_hint(err, "see whether the node runs a version of heng that fits this one");
	}
	return result;
}
