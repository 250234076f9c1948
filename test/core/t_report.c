#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/report.h"

static void test_fields(void **state)
{
	struct report report;

	(void)state;
	assert_int_equal(sizeof(report), REPORT_FIELDS * sizeof(int64_t));
	report_init(&report);
	for (unsigned i = 0; i < REPORT_FIELDS; i++) {
		assert_int_equal(report_get(&report, (enum report_field)i), REPORT_UNKNOWN);
		assert_true(report_rows[i].name[0] != '\0' && report_rows[i].help[0] != '\0');
		report_set(&report, (enum report_field)i, 1000 + i);
	}
	assert_int_equal(report.cpu_busy_milli, 1000 + REPORT_cpu_busy_milli);
	assert_int_equal(report.wal_lag_us, 1000 + REPORT_wal_lag_us);
	assert_int_equal(report.started_wall_us, 1000 + REPORT_started_wall_us);
	for (unsigned i = 0; i < REPORT_FIELDS; i++) {
		assert_int_equal(report_get(&report, (enum report_field)i), 1000 + i);
	}
	/* Nought is a number, below it is unknown. */
	report_set(&report, REPORT_threads, 0);
	assert_int_equal(report.threads, 0);
	report_set(&report, REPORT_threads, -40);
	assert_int_equal(report.threads, REPORT_UNKNOWN);
	report_set(&report, REPORT_threads, INT64_MIN);
	assert_int_equal(report.threads, REPORT_UNKNOWN);
}

static void test_json_leaves_out_the_unknown(void **state)
{
	struct buf buf = BUF_INIT(MIB);
	struct report report;
	struct json json;

	(void)state;
	report_init(&report);
	json_init(&json, &buf);
	json_open(&json, NULL);
	report_json(&json, &report);
	json_close(&json);
	assert_string_equal(buf_cstr(&buf), "{}");
	buf_clear(&buf);
	report.tcp_conns = 0;
	report.cpu_busy_milli = 1500;
	report.started_wall_us = INT64_MAX;
	json_init(&json, &buf);
	json_open(&json, NULL);
	report_json(&json, &report);
	json_close(&json);
	assert_string_equal(buf_cstr(&buf),
			    "{\"cpu_busy_milli\":1500,\"tcp_conns\":0,\"started_wall_us\":9223372036854775807}");
	buf_fini(&buf);
}

static struct report_message *message_new(void)
{
	struct report_message *message = calloc(1, sizeof(*message));

	assert_non_null(message);
	memcpy(message->node_id, "n-1.a_B", 8);
	memcpy(message->incarnation, "0123456789abcdef0123456789abcdef", 33);
	message->sequence = 12;
	report_init(&message->report);
	hist_init(&message->latency);
	return message;
}

static void assert_same(const struct report_message *a, const struct report_message *b)
{
	assert_string_equal(a->node_id, b->node_id);
	assert_string_equal(a->incarnation, b->incarnation);
	assert_int_equal(a->sequence, b->sequence);
	assert_memory_equal(&a->report, &b->report, sizeof(a->report));
	assert_memory_equal(&a->latency, &b->latency, sizeof(a->latency));
	assert_int_equal(a->dir_count, b->dir_count);
	for (size_t i = 0; i < a->dir_count; i++) {
		assert_string_equal(a->dirs[i].path, b->dirs[i].path);
		assert_string_equal(a->dirs[i].diagnosis, b->dirs[i].diagnosis);
	}
}

static void round_trip(const struct report_message *message, struct report_message *ret_message)
{
	struct buf buf = BUF_INIT(REPORT_BODY_MAX);
	struct err err = ERR_INIT;

	report_write(&buf, message);
	assert_false(buf.is_failed);
	if (report_read(buf_str(&buf), ret_message, &err) < 0)
		fail_msg("%s", err.text);
	buf_fini(&buf);
}

static void test_round_trip(void **state)
{
	struct report_message *message = message_new(), *read = message_new();

	(void)state;
	/* The least. */
	round_trip(message, read);
	assert_same(message, read);
	/* All of it, at its most: it must fit a body. */
	message->sequence = INT64_MAX;
	for (unsigned i = 0; i < REPORT_FIELDS; i++)
		report_set(&message->report, (enum report_field)i, report_field_max((enum report_field)i));
	for (size_t i = 0; i < HIST_BUCKETS; i++) {
		message->latency.counts[i] = UINT32_MAX;
		message->latency.total_count += UINT32_MAX;
	}
	message->latency.sum_us = INT64_MAX;
	message->report.p10_us = hist_quantile_us(&message->latency, 100000);
	message->report.p50_us = hist_quantile_us(&message->latency, 500000);
	message->report.p90_us = hist_quantile_us(&message->latency, 900000);
	message->report.p99_us = hist_quantile_us(&message->latency, 990000);
	message->report.mean_us = hist_mean_us(&message->latency);
	message->dir_count = REPORT_DIRS_MAX;
	for (size_t i = 0; i < REPORT_DIRS_MAX; i++) {
		memset(message->dirs[i].path, '"', REPORT_PATH_SIZE - 1);
		memset(message->dirs[i].diagnosis, '\\', REPORT_WORDS_SIZE - 1);
	}
	round_trip(message, read);
	assert_same(message, read);
	/* Bytes that no one should see become such that one may, and stay within the array. */
	for (size_t i = 0; i < REPORT_DIRS_MAX; i++) {
		memset(message->dirs[i].path, 0xff, REPORT_PATH_SIZE - 1);
		memset(message->dirs[i].diagnosis, '\033', REPORT_WORDS_SIZE - 1);
	}
	round_trip(message, read);
	assert_int_equal(read->dir_count, REPORT_DIRS_MAX);
	assert_int_equal(strncmp(read->dirs[7].diagnosis, "\\x1b\\x1b", 8), 0);
	assert_null(strchr(read->dirs[7].diagnosis, '\033'));
	round_trip(read, message);
	assert_same(message, read);
	free(message);
	free(read);
}

static void test_what_follows_is_worked_out(void **state)
{
	static const char *const text =
		"{\"node_id\":\"n\",\"incarnation\":\"i\",\"sequence\":1,"
		"\"metrics\":{\"p10_us\":1,\"p50_us\":1,\"p90_us\":1,\"p99_us\":1,\"mean_us\":1,\"dirs_failed\":0},"
		"\"latency\":{\"sum_us\":1200,\"buckets\":[[3,100],[9,100]]},"
		"\"dirs\":[{\"path\":\"/a\",\"diagnosis\":\"\"},{\"path\":\"/b\",\"diagnosis\":\"it is "
		"full\"},{\"path\":\"/c\"}]}";
	struct report_message *message = message_new();
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(report_read(str_from(text), message, &err), 0);
	assert_int_equal(message->report.p10_us, 3);
	assert_int_equal(message->report.p50_us, 3);
	assert_int_equal(message->report.p90_us, 9);
	assert_int_equal(message->report.p99_us, 9);
	assert_int_equal(message->report.mean_us, 6);
	assert_int_equal(message->report.dirs_failed, 1);
	assert_int_equal(message->dir_count, 3);
	assert_string_equal(message->dirs[2].diagnosis, "");
	free(message);
}

static void test_without_samples_the_numbers_stand(void **state)
{
	static const char *const text =
		"{\"node_id\":\"n\",\"incarnation\":\"i\",\"sequence\":0,"
		"\"metrics\":{\"p99_us\":5000,\"dirs_failed\":2,\"of_tomorrow\":\"x\"},\"more\":[1.5]}";
	struct report_message *message = message_new();
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(report_read(str_from(text), message, &err), 0);
	assert_int_equal(message->report.p99_us, 5000);
	assert_int_equal(message->report.p50_us, REPORT_UNKNOWN);
	assert_int_equal(message->report.dirs_failed, 2);
	assert_int_equal(message->latency.total_count, 0);
	assert_int_equal(message->dir_count, 0);
	free(message);
}

#define HEAD      "{\"node_id\":\"n1\",\"incarnation\":\"i\",\"sequence\":1,"
#define METRICS   HEAD "\"metrics\":{"
#define LATENCY   HEAD "\"metrics\":{},\"latency\":"
#define BUCKETS   LATENCY "{\"sum_us\":9,\"buckets\":"
#define DIRS      HEAD "\"metrics\":{},\"dirs\":"
#define SIXTY_5   "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define A_DIR     "{\"path\":\"/a\"}"
#define FOUR_DIRS A_DIR "," A_DIR "," A_DIR "," A_DIR

static void test_hostile(void **state)
{
	static const struct {
		const char *text, *words;
	} rows[] = {
		{ "", "0 bytes" },
		{ " ", "not JSON" },
		{ "{", "not JSON" },
		{ "[]", "not a JSON object" },
		{ "7", "not JSON" },
		{ HEAD "\"metrics\":{}} x", "not JSON" },
		{ HEAD "\"metrics\":{},\"sequence\":2}", "duplicate" },
		{ METRICS "\"threads\":1,\"threads\":1}}", "duplicate" },
		{ HEAD "\"metrics\":{\"x\":\"\\u0000\"}}", "not JSON" },
		{ HEAD "\"metrics\":{\"x\":\"\xff\"}}", "not JSON" },
		{ "{}", "'node_id' is not" },
		{ "{\"node_id\":7,\"incarnation\":\"i\",\"sequence\":1,\"metrics\":{}}", "'node_id' is not" },
		{ "{\"node_id\":\"\",\"incarnation\":\"i\",\"sequence\":1,\"metrics\":{}}", "'node_id' is not" },
		{ "{\"node_id\":\"a b\",\"incarnation\":\"i\",\"sequence\":1,\"metrics\":{}}", "'node_id' is not" },
		{ "{\"node_id\":\"../x\",\"incarnation\":\"i\",\"sequence\":1,\"metrics\":{}}", "'node_id' is not" },
		{ "{\"node_id\":\"" SIXTY_5 "\",\"incarnation\":\"i\",\"sequence\":1,\"metrics\":{}}", "1 to 64" },
		{ "{\"node_id\":\"n1\",\"sequence\":1,\"metrics\":{}}", "'incarnation' is not" },
		{ "{\"node_id\":\"n1\",\"incarnation\":\"" SIXTY_5 "\",\"sequence\":1,\"metrics\":{}}", "1 to 32" },
		{ "{\"node_id\":\"n1\",\"incarnation\":\"i\",\"metrics\":{}}", "'sequence' is not" },
		{ "{\"node_id\":\"n1\",\"incarnation\":\"i\",\"sequence\":-1,\"metrics\":{}}", "'sequence' is -1" },
		{ "{\"node_id\":\"n1\",\"incarnation\":\"i\",\"sequence\":1.0,\"metrics\":{}}", "'sequence' is not" },
		{ "{\"node_id\":\"n1\",\"incarnation\":\"i\",\"sequence\":9223372036854775808,\"metrics\":{}}",
		  "not JSON" },
		{ HEAD "\"x\":1}", "'metrics' is not" },
		{ HEAD "\"metrics\":[]}", "'metrics' is not" },
		{ METRICS "\"threads\":-1}}", "'threads' is -1" },
		{ METRICS "\"threads\":1.5}}", "'threads' is not" },
		{ METRICS "\"threads\":1e3}}", "'threads' is not" },
		{ METRICS "\"threads\":\"1\"}}", "'threads' is not" },
		{ METRICS "\"threads\":null}}", "'threads' is not" },
		{ METRICS "\"threads\":true}}", "'threads' is not" },
		{ METRICS "\"threads\":1152921504606846977}}", "'threads' is 1152921504606846977" },
		{ METRICS "\"verified\":2}}", "'verified' is 2, not 0 to 1" },
		{ METRICS "\"leaving\":2}}", "'leaving' is 2" },
		{ METRICS "\"migrating\":2}}", "'migrating' is 2" },
		{ METRICS "\"sync_progress_ppm\":1000001}}", "'sync_progress_ppm' is 1000001" },
		{ METRICS "\"mem_pressure_ppm\":1000001}}", "'mem_pressure_ppm' is" },
		{ LATENCY "7}", "'latency' is not" },
		{ LATENCY "null}", "'latency' is not" },
		{ LATENCY "{}}", "'latency.buckets' is not" },
		{ LATENCY "{\"buckets\":[]}}", "'latency.sum_us' is not" },
		{ BUCKETS "{}}}", "'latency.buckets' is not" },
		{ BUCKETS "[7]}}", "item 0 is not [index, count]" },
		{ BUCKETS "[[1]]}}", "item 0 is not [index, count]" },
		{ BUCKETS "[[1,2,3]]}}", "item 0 is not [index, count]" },
		{ BUCKETS "[[1,9],[\"2\",1]]}}", "index' is not a whole" },
		{ BUCKETS "[[-1,1]]}}", "index' is -1" },
		{ BUCKETS "[[400,1]]}}", "index' is 400, not 0 to 399" },
		{ BUCKETS "[[1,-1]]}}", "count' is -1" },
		{ BUCKETS "[[1,4294967296]]}}", "count' is 4294967296" },
		{ BUCKETS "[[1,1],[1,1]]}}", "item 1 does not come after" },
		{ BUCKETS "[[5,1],[1,1]]}}", "item 1 does not come after" },
		{ BUCKETS "[]}}", "more than its 0 samples" },
		{ LATENCY "{\"sum_us\":268435456,\"buckets\":[[399,1]]}}", "more than its 1 samples" },
		{ DIRS "{}}", "'dirs' is not" },
		{ DIRS "[" FOUR_DIRS "," FOUR_DIRS "," A_DIR "]}", "at most 8" },
		{ DIRS "[7]}", "item 0 has no 'path'" },
		{ DIRS "[{}]}", "item 0 has no 'path'" },
		{ DIRS "[" A_DIR ",{\"path\":\"\"}]}", "item 1 has no 'path'" },
		{ DIRS "[{\"path\":\"/a\",\"diagnosis\":7}]}", "'diagnosis' that is no text" },
	};
	struct report_message *message = message_new();

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct err err = ERR_INIT;

		if (report_read(str_from(rows[i].text), message, &err) != -ERR_PEER)
			fail_msg("%s: is read", rows[i].text);
		assert_int_equal(err.code, ERR_PEER);
		if (!strstr(err.text, rows[i].words))
			fail_msg("%s: '%s'", rows[i].text, err.text);
		assert_string_equal(message->node_id, "");
		assert_int_equal(message->dir_count, 0);
		assert_int_equal(message->latency.total_count, 0);
		assert_int_equal(message->report.threads, REPORT_UNKNOWN);
	}
	free(message);
}

static void test_size(void **state)
{
	struct report_message *message = message_new();
	char *body = malloc(REPORT_BODY_MAX + 1);
	static const char text[] = HEAD "\"metrics\":{}}";
	struct err err = ERR_INIT;

	(void)state;
	assert_non_null(body);
	memset(body, ' ', REPORT_BODY_MAX + 1);
	memcpy(body, text, sizeof(text) - 1);
	assert_int_equal(report_read((struct str){ body, REPORT_BODY_MAX }, message, &err), 0);
	assert_string_equal(message->node_id, "n1");
	assert_int_equal(report_read((struct str){ body, REPORT_BODY_MAX + 1 }, message, &err), -ERR_PEER);
	/* As deep as a body allows. */
	memset(body, '[', REPORT_BODY_MAX);
	assert_int_equal(report_read((struct str){ body, REPORT_BODY_MAX }, message, &err), -ERR_PEER);
	/* Cut anywhere it is refused, and nothing beyond the cut is looked at. */
	for (size_t size = 0; size < sizeof(text) - 1; size++) {
		char *cut = malloc(size + !size);

		assert_non_null(cut);
		memcpy(cut, text, size);
		assert_int_equal(report_read((struct str){ cut, size }, message, &err), -ERR_PEER);
		free(cut);
	}
	free(body);
	free(message);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fields),
		cmocka_unit_test(test_json_leaves_out_the_unknown),
		cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_what_follows_is_worked_out),
		cmocka_unit_test(test_without_samples_the_numbers_stand),
		cmocka_unit_test(test_hostile),
		cmocka_unit_test(test_size),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
