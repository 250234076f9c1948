/* From a plan to the end of sending, and what nodes say meanwhile. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sched_world.h"
#include "wire/ticket.h"

/* --- plans --- */

static void plan_pages(void **state)
{
	static const uint64_t file_ids[] = { 1, 1, 2 }, indexes[] = { 0, 1, 0 };
	struct ticket_keys keys;
	char id[ULID_SIZE];
	uint64_t after_file = 0, after_chunk = 0;

	(void)state;
	assert_int_equal(ticket_keys_parse(STR("7 " CLUSTER_KEY "\n"), &keys, NULL), 0);
	post_a(id);
	for (size_t i = 0; i < 3; i++) {
		unsigned long long file_id, chunk_index, size, object_file_id, first, last, bytes, count;
		char path[128], ticket_text[TICKET_TEXT_SIZE], line_state[32], digest[80], target[80];
		int is_pack, more;
		long long time_us;
		struct ticket ticket;

		snprintf(path, sizeof(path), "/plan?after_file=%llu&after_chunk=%llu&limit=1",
			 (unsigned long long)after_file, (unsigned long long)after_chunk);
		call_transfer("ann", "GET", id, path, STR_NONE);
		expect_status(200);
		assert_int_equal(
			sscanf(answer.text,
			       "O %llu %d %llu %llu %llu %llu %511s\nC %llu %llu %llu %31s %79s %79s\nN %d %lld\n",
			       &object_file_id, &is_pack, &first, &last, &bytes, &count, ticket_text, &file_id,
			       &chunk_index, &size, line_state, digest, target, &more, &time_us),
			15);
		assert_int_equal(object_file_id, file_ids[i]);
		assert_int_equal(file_id, file_ids[i]);
		assert_int_equal(chunk_index, indexes[i]);
		assert_int_equal(is_pack, file_id == 2);
		assert_int_equal(first, file_id == 2 ? 3 : 1);
		assert_int_equal(last, first);
		assert_int_equal(bytes, file_id == 2 ? 1 : 65537);
		assert_int_equal(count, file_id == 2 ? 1 : 2);
		assert_int_equal(size, chunk_index == 0 && file_id == 1 ? 65536 : 1);
		assert_string_equal(line_state, "pending");
		assert_string_equal(digest, "-");
		assert_string_equal(target, "n1");
		assert_int_equal(more, i < 2);
		assert_int_equal(ticket_open(&keys, str_from(ticket_text), &ticket, NULL), 0);
		assert_string_equal(ticket.transfer_id, id);
		assert_string_equal(ticket.user, "ann");
		assert_int_equal(ticket.file_id, file_id);
		assert_int_equal(ticket_chunk_size(&ticket, chunk_index), size);
		after_file = file_id;
		after_chunk = chunk_index;
	}
	call_transfer("ann", "GET", id, "/plan?after_file=2", STR_NONE);
	assert_int_equal(strncmp(answer.text, "N 0 ", 4), 0);
	call_transfer("ann", "GET", id, "/plan?limit=0", STR_NONE);
	expect_error(400, "bad_request");
	call_transfer("ann", "GET", id, "/plan?after_file=18446744073709551615", STR_NONE);
	expect_error(400, "bad_request");
}

static void plans_show_what_is_stored(void **state)
{
	char id[ULID_SIZE];

	(void)state;
	post_a(id);
	give_receipt(id, 1, 1, 1, ERR_NONE);
	assert_string_equal(answer.text, "ok\n");
	call_transfer("ann", "GET", id, "/plan", STR_NONE);
	assert_non_null(strstr(answer.text, "C 1 1 1 stored " SHA_A " n1\n"));
	assert_non_null(strstr(answer.text, "C 1 0 65536 pending - n1\n"));
	call_transfer("ann", "GET", id, "/chunks?state=stored", STR_NONE);
	expect_status(200);
	assert_int_equal(json_array_size(json_object_get(answer.json, "chunks")), 1);
	assert_true(json_is_false(json_object_get(answer.json, "more")));
	call_transfer("ann", "GET", id, "/chunks?state=pending,lost&limit=1", STR_NONE);
	assert_int_equal(json_array_size(json_object_get(answer.json, "chunks")), 1);
	assert_true(json_is_true(json_object_get(answer.json, "more")));
	call_transfer("ann", "GET", id, "/chunks?state=odd", STR_NONE);
	expect_error(400, "bad_request");
	call_transfer("ann", "GET", id, "", STR_NONE);
	assert_int_equal(number_of("stored_chunks"), 1);
	assert_int_equal(number_of("pending_chunks"), 2);
	call_as("ann", "GET", "/api/v1/nodes", STR_NONE);
	assert_int_equal(json_integer_value(json_object_get(json_array_get(json_object_get(answer.json, "nodes"), 0),
							    "chunks_in")),
			 1);
}

/* A target that takes no work is still named, since it may be back before the others refuse. */
static void a_target_that_is_out(void **state)
{
	char id[ULID_SIZE];

	(void)state;
	post_a(id);
	pthread_mutex_lock(&node.lock);
	node.is_low = true;
	pthread_mutex_unlock(&node.lock);
	await_node(false);
	call_transfer("ann", "GET", id, "/plan", STR_NONE);
	expect_status(200);
	assert_non_null(strstr(answer.text, "C 2 0 1 pending - n1\n"));
	call_transfer("ann", "GET", id, "/nodes", STR_NONE);
	assert_true(
		json_is_false(json_object_get(json_array_get(json_object_get(answer.json, "nodes"), 0), "takes_work")));
}

/* The order of a pending chunk's two nodes on the plan: "n1 n2", say. */
static void pending_order(const char *id, char order[2][8])
{
	const char *line;

	call_transfer("ann", "GET", id, "/plan", STR_NONE);
	expect_status(200);
	line = strstr(answer.text, "\nC 2 0 1 pending - ");
	assert_non_null(line);
	assert_int_equal(sscanf(line, "\nC 2 0 1 pending - %7s %7s\n", order[0], order[1]), 2);
}

static void preferences(void **state)
{
	struct fake_node second;
	struct fake_node *target;
	char id[ULID_SIZE], before[2][8], after[2][8];
	int64_t deadline_us = clock_mono_us() + 20 * SEC_US;

	(void)state;
	fake_start(&second, "n2", "second");
	register_node(&second);
	do {
		assert_true(clock_mono_us() < deadline_us);
		call_as("op", "GET", "/api/v1/nodes", STR_NONE);
	} while (strstr(answer.text, "\"takes_work\":false"));
	post_a(id);
	pending_order(id, before);
	assert_string_not_equal(before[0], before[1]);
	/* The target leaves: it is named last. */
	target = strcmp(before[0], "n1") == 0 ? &node : &second;
	pthread_mutex_lock(&target->lock);
	target->is_low = true;
	pthread_mutex_unlock(&target->lock);
	do {
		assert_true(clock_mono_us() < deadline_us);
		call_as("op", "GET", "/api/v1/nodes", STR_NONE);
	} while (!strstr(answer.text, "\"takes_work\":false"));
	pending_order(id, after);
	assert_string_equal(after[0], before[1]);
	assert_string_equal(after[1], before[0]);
	/* Stored on n1, so it is asked for there whatever the target is. */
	give_receipt(id, 2, 0, 1, ERR_NONE);
	call_transfer("ann", "GET", id, "/plan", STR_NONE);
	assert_non_null(strstr(answer.text, "C 2 0 1 stored " SHA_A " n1 n2\n"));
	fake_stop(&second);
}

/* --- nodes' calls --- */

static void receipts_that_are_refused(void **state)
{
	const char *headers[] = { internal_header, NULL };
	char id[ULID_SIZE], unknown[] = "01ARZ3NDEKTSV4RRFFQ69G5FAV";

	(void)state;
	post_a(id);
	give_receipt(unknown, 1, 0, 1, ERR_NONE);
	assert_string_equal(answer.text, "no_such_transfer\n");
	give_receipt(id, 9, 0, 1, ERR_NONE);
	assert_string_equal(answer.text, "no_such_chunk\n");
	give_receipt(id, 1, 0, 5, ERR_NONE);
	assert_string_equal(answer.text, "chunk_size\n");
	call_with("POST", "/internal/v1/receipts", headers, STR("nonsense\n\nmore\n"));
	expect_status(200);
	assert_string_equal(answer.text, "bad_request\nbad_request\nbad_request\n");
	call_with("POST", "/internal/v1/receipts", headers, STR("no end"));
	expect_error(400, "bad_request");
	call_with("POST", "/internal/v1/receipts", headers, STR_NONE);
	expect_error(400, "bad_request");
	call_transfer("ann", "GET", id, "", STR_NONE);
	assert_int_equal(number_of("pending_chunks"), 3);
}

/* Without a probe to contradict. */
static void a_low_disk_by_receipt(void **state)
{
	char id[ULID_SIZE];

	(void)state;
	sched_stop(&sched);
	probe_interval_us = 3600 * SEC_US;
	start_sched();
	await_node(true);
	post_a(id);
	give_receipt(id, 1, 0, 65536, ERR_DISK_LOW);
	assert_string_equal(answer.text, "ok\n");
	assert_false(node_works());
	call_transfer("ann", "GET", id, "", STR_NONE);
	assert_int_equal(number_of("pending_chunks"), 3);
}

static void registrations(void **state)
{
	static const char *const rows[] = {
		"",
		"[]",
		"{}",
		"{\"node_id\":\"n2\"}",
		"{\"node_id\":\"n 2\",\"addr\":\"127.0.0.1:1\",\"incarnation\":\"i\",\"weight_milli\":1000}",
		"{\"node_id\":\"n2\",\"addr\":\"nowhere\",\"incarnation\":\"i\",\"weight_milli\":1000}",
		"{\"node_id\":\"n2\",\"addr\":\"127.0.0.1:1\",\"incarnation\":\"i\",\"weight_milli\":-1}",
		"{\"node_id\":\"n2\",\"addr\":\"127.0.0.1:1\",\"incarnation\":\"i\",\"weight_milli\":1.5}",
		"{\"node_id\":\"n2\",\"addr\":\"127.0.0.1:1\",\"incarnation\":\"i\",\"weight_milli\":1,\"domain\":7}",
	};
	const char *headers[] = { internal_header, NULL };
	struct fake_node twin;

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		call_with("POST", "/internal/v1/nodes/register", headers, str_from(rows[i]));
		expect_error(400, "bad_request");
	}
	fake_start(&twin, "n1", "second");
	register_node(&twin);
	expect_error(409, "node_id_in_use");
	assert_non_null(strstr(text_of("message"), twin.addr));
	assert_non_null(strstr(text_of("message"), node.addr));
	fake_stop(&twin);
}

/* --- digests and the end --- */

static void digests_are_checked(void **state)
{
	static const char *const rows[] = { "x\n",
					    "1\n",
					    "1 \n",
					    "1 abc\n",
					    "-1 " SHA_A "\n",
					    "5 " SHA_A "\n",
					    "1 " SHA_A,
					    "2 " SHA_A "\n",
					    "0 " SHA_A "\n",
					    "1  " SHA_A "\n",
					    "\n" };
	char id[ULID_SIZE], *many;

	(void)state;
	post_a(id);
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		call_transfer("ann", "POST", id, "/digests", str_from(rows[i]));
		if (answer.status != 400)
			fail_msg("row %zu: %d %s", i, answer.status, answer.text);
	}
	call_transfer("ann", "POST", id, "/digests", STR_NONE);
	expect_status(200);
	assert_int_equal(number_of("bound"), 0);
	/* Many lines: they cross pieces and batches. */
	many = malloc(30000 * 68 + 1);
	for (size_t i = 0; i < 30000; i++)
		snprintf(many + i * 67, 68, "%d %s\n", i % 2 == 0 ? 3 : 4, SHA_A);
	call_transfer("ann", "POST", id, "/digests", str_from(many));
	free(many);
	expect_status(200);
	assert_int_equal(number_of("bound"), 30000);
}

static void the_end_needs_everything(void **state)
{
	char id[ULID_SIZE];

	(void)state;
	post_a(id);
	call_transfer("ann", "POST", id, "/complete", STR_NONE);
	expect_error(409, "incomplete");
	assert_non_null(strstr(text_of("message"), "3 of 3"));
	give_receipt(id, 1, 0, 65536, ERR_NONE);
	give_receipt(id, 2, 0, 1, ERR_NONE);
	call_transfer("ann", "POST", id, "/complete", STR_NONE);
	expect_error(409, "incomplete");
	assert_non_null(strstr(text_of("message"), "1 of 3"));
	give_receipt(id, 1, 1, 1, ERR_NONE);
	call_transfer("ann", "POST", id, "/digests", STR("1 " SHA_A "\n3 " SHA_A "\n"));
	expect_status(200);
	call_transfer("ann", "POST", id, "/complete", STR_NONE);
	expect_error(409, "incomplete");
	assert_non_null(strstr(text_of("message"), "d/empty"));
	call_transfer("ann", "POST", id, "/digests", STR("4 " SHA_EMPTY "\n"));
	call_transfer("ann", "POST", id, "/complete", STR_NONE);
	expect_status(202);
	assert_string_equal(text_of("state"), "merging");
	assert_string_equal(text_of("transfer_id"), id);
}

/* While it is merging (this node has no chunks to give, so it stays so, or comes back), digests are only compared. */
static void digests_after_the_end(void **state)
{
	int64_t deadline_us = clock_mono_us() + 20 * SEC_US;
	char id[ULID_SIZE];

	(void)state;
	/* An empty folder needs no node, so that it does get to its end. */
	post("ann", "batch=empty", "heng-manifest 1\nD 755 0 .\nF 644 0 0 none\nend 2 0\n");
	expect_status(201);
	assert_true(str_copy(str_from(text_of("transfer_id")), id, sizeof(id)));
	call_transfer("ann", "POST", id, "/digests", STR("1 " SHA_EMPTY "\n"));
	expect_status(200);
	call_transfer("ann", "POST", id, "/complete", STR_NONE);
	expect_status(202);
	do {
		assert_true(clock_mono_us() < deadline_us);
		call_transfer("ann", "GET", id, "", STR_NONE);
	} while (strcmp(text_of("state"), "merging") == 0);
	assert_string_equal(text_of("state"), "completed");
	assert_true(number_of("completed_us") > 0);
	call_transfer("ann", "POST", id, "/complete", STR_NONE);
	expect_status(200);
	call_transfer("ann", "POST", id, "/digests", STR("1 " SHA_EMPTY "\n"));
	expect_status(200);
	assert_int_equal(number_of("bound"), 1);
	call_transfer("ann", "POST", id, "/digests", STR("1 " SHA_B "\n"));
	expect_error(409, "batch_exists");
	assert_non_null(strstr(text_of("message"), "none"));
	/* The same folder again is done already; another under the name is refused. */
	post("ann", "batch=empty", "heng-manifest 1\nD 755 0 .\nF 644 0 0 none\nend 2 0\n");
	expect_status(200);
	assert_string_equal(text_of("state"), "completed");
	post("ann", "batch=empty", folder_a);
	expect_error(409, "batch_exists");
}

static void ask_finished(struct str body)
{
	const char *headers[] = { internal_header, NULL };

	call_with("POST", "/internal/v1/transfers/finished", headers, body);
}

/* What nodes may throw away: failed, completed and unknown transfers, in the order of the question. */
static void transfers_that_are_over(void **state)
{
	static const char unknown[] = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
	char old[ULID_SIZE], open[ULID_SIZE], young[ULID_SIZE], body[256], expected[256];
	struct buf many = BUF_INIT(MIB);

	(void)state;
	post_a(old);
	store_all_of_a(old);
	ask_finished(STR_NONE);
	expect_status(200);
	assert_string_equal(answer.text, "");
	snprintf(body, sizeof(body), "%s\n", old);
	ask_finished(str_from(body));
	expect_status(200);
	assert_string_equal(answer.text, "");
	/* Another scan supersedes it. */
	post("ann", "batch=books&source=h:/a", folder_b);
	expect_status(201);
	assert_true(str_copy(str_from(text_of("transfer_id")), open, sizeof(open)));
	ulid_make(clock_wall_us(), young);
	snprintf(body, sizeof(body), "%s\n%s\n%s\n%s\n", young, open, old, unknown);
	snprintf(expected, sizeof(expected), "%s\n%s\n%s\n", young, old, unknown);
	ask_finished(str_from(body));
	expect_status(200);
	assert_string_equal(answer.text, expected);
	/* All or nothing where a line is no id; and only the cluster may ask. */
	snprintf(body, sizeof(body), "%s\nx\n", old);
	ask_finished(str_from(body));
	expect_error(400, "bad_request");
	ask_finished(STR("\n"));
	expect_error(400, "bad_request");
	call_as("op", "POST", "/internal/v1/transfers/finished", str_from(body));
	expect_error(401, "unauthenticated");
	for (unsigned i = 0; i < 4096; i++)
		buf_printf(&many, "%s\n", unknown);
	ask_finished(buf_str(&many));
	expect_status(200);
	assert_int_equal(strlen(answer.text), many.size);
	buf_printf(&many, "%s\n", unknown);
	ask_finished(buf_str(&many));
	expect_error(413, "limit");
	buf_fini(&many);
}

static void what_is_said_survives_a_restart(void **state)
{
	char id[ULID_SIZE];

	(void)state;
	post_a(id);
	store_all_of_a(id);
	sched_stop(&sched);
	start_sched();
	await_node(true); /* by the store: it did not register again */
	call_transfer("ann", "GET", id, "", STR_NONE);
	expect_status(200);
	assert_int_equal(number_of("stored_chunks"), 3);
	post("ann", "batch=books&source=h:/a", folder_a);
	expect_status(200);
	assert_string_equal(text_of("transfer_id"), id);
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(plan_pages),
		CASE(plans_show_what_is_stored),
		CASE(a_target_that_is_out),
		CASE(preferences),
		CASE(receipts_that_are_refused),
		CASE(a_low_disk_by_receipt),
		CASE(registrations),
		CASE(digests_are_checked),
		CASE(the_end_needs_everything),
		CASE(digests_after_the_end),
		CASE(transfers_that_are_over),
		CASE(what_is_said_survives_a_restart),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
