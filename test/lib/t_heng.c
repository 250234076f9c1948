#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <heng.h>

#include "lib/op.h"

static const char good_url[] = "http://127.0.0.1:1", good_id[] = "01ARZ3NDEKTSV4RRFFQ69G5FAV";

static struct heng_op *op_for(const char *url)
{
	struct heng_client *client = NULL;
	struct heng_error *error = NULL;

	assert_int_equal(heng_client_new(&client, url, "key", &error), HENG_DONE);
	assert_null(error);
	struct heng_op *op = heng_op_new(client);
	assert_non_null(op);
	/* The operation outlives the handle that it was made with. */
	heng_client_free(client);
	return op;
}

static void expect(int result, struct heng_error **error, const char *word, const char *said)
{
	assert_non_null(*error);
	assert_int_equal(heng_error_result(*error), result);
	assert_string_equal(heng_error_word(*error), word);
	if (!strstr(heng_error_text(*error), said))
		fail_msg("'%s' does not say '%s'", heng_error_text(*error), said);
	heng_error_free(*error);
	*error = NULL;
}

static void test_clients(void **state)
{
	(void)state;
	static const struct {
		const char *url, *key, *said; /* NULL: taken */
	} rows[] = {
		{ good_url, "key", NULL },
		{ good_url, " key\n", NULL },
		{ NULL, "key", "NULL" },
		{ good_url, NULL, "NULL" },
		{ "", "key", "URL" },
		{ "ftp://x", "key", "URL" },
		{ "http://x/y", "key", "URL" },
		{ good_url, "", "one word" },
		{ good_url, "a b", "one word" },
		{ good_url, "a\r\nX: y", "one word" },
	};
	struct heng_client *client;
	struct heng_error *error;

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		client = NULL;
		error = NULL;
		int result = heng_client_new(&client, rows[i].url, rows[i].key, &error);
		assert_int_equal(result, rows[i].said ? HENG_USAGE : HENG_DONE);
		assert_true((client != NULL) == (rows[i].said == NULL));
		if (rows[i].said)
			expect(result, &error, "usage", rows[i].said);
		assert_null(error);
		heng_client_free(client);
		assert_int_equal(heng_client_new(&client, rows[i].url, rows[i].key, NULL), result);
		if (result == HENG_DONE)
			heng_client_free(client);
	}
	assert_int_equal(heng_client_new(NULL, good_url, "key", &error), HENG_USAGE);
	expect(HENG_USAGE, &error, "usage", "NULL");
	assert_int_equal(heng_client_new_key_file(&client, good_url, "/nowhere/at/all", &error), HENG_USAGE);
	expect(HENG_USAGE, &error, "usage", "/nowhere/at/all");
}

static void test_nothing_is_taken_for_something(void **state)
{
	(void)state;
	struct heng_error *error = (struct heng_error *)&error;

	heng_client_free(NULL);
	heng_op_free(NULL);
	heng_error_free(NULL);
	heng_stop(NULL);
	heng_op_on_progress(NULL, NULL, NULL);
	heng_op_on_notice(NULL, NULL, NULL);
	heng_op_on_problem(NULL, NULL, NULL);
	assert_null(heng_op_new(NULL));
	assert_int_equal(heng_number(NULL, HENG_FILES), 0);
	assert_string_equal(heng_text(NULL, HENG_STATE), "");
	assert_int_equal(heng_row_count(NULL), 0);
	assert_int_equal(heng_row_number(NULL, 0, HENG_FILES), 0);
	assert_string_equal(heng_row_text(NULL, 0, HENG_NODE), "");
	assert_int_equal(heng_error_result(NULL), HENG_DONE);
	assert_int_equal(heng_error_code(NULL), 0);
	assert_string_equal(heng_error_word(NULL), "");
	assert_string_equal(heng_error_text(NULL), "");
	assert_string_equal(heng_error_hint(NULL), "");
	assert_int_equal(heng_push(NULL, "/", &error), HENG_USAGE);
	expect(HENG_USAGE, &error, "usage", "NULL");
	assert_int_equal(heng_pull(NULL, good_id, "/x", NULL), HENG_USAGE);
	assert_int_equal(heng_verify(NULL, "/", good_id, NULL), HENG_USAGE);
	assert_int_equal(heng_status(NULL, good_id, NULL), HENG_USAGE);
	assert_int_equal(heng_list(NULL, NULL, NULL), HENG_USAGE);
	assert_int_equal(heng_cancel(NULL, good_id, NULL), HENG_USAGE);
	struct heng_op *op = op_for(good_url);
	assert_int_equal(heng_push(op, NULL, NULL), HENG_USAGE);
	assert_int_equal(heng_pull(op, NULL, "/x", NULL), HENG_USAGE);
	assert_int_equal(heng_pull(op, good_id, NULL, NULL), HENG_USAGE);
	assert_int_equal(heng_verify(op, NULL, good_id, NULL), HENG_USAGE);
	assert_int_equal(heng_verify(op, "/", NULL, NULL), HENG_USAGE);
	assert_int_equal(heng_status(op, NULL, NULL), HENG_USAGE);
	assert_int_equal(heng_status(op, "../nodes", NULL), HENG_USAGE);
	assert_int_equal(heng_cancel(op, "", NULL), HENG_USAGE);
	assert_int_equal(heng_list(op, "", NULL), HENG_USAGE);
	assert_int_equal(heng_list(op, "failed&limit=9", NULL), HENG_USAGE);
	heng_op_free(op);
}

static void test_options(void **state)
{
	(void)state;
	struct heng_op *op = op_for(good_url);
	struct heng_error *error = NULL;

	assert_int_equal(heng_op_set(op, "parallel", "4", &error), HENG_DONE);
	assert_null(error);
	assert_int_equal(heng_op_set(op, "parallel", "5", NULL), HENG_DONE);
	assert_string_equal(op->values->value, "5");
	assert_null(op->values->next);
	assert_int_equal(heng_op_set(op, "name", "x", NULL), HENG_DONE);
	assert_int_equal(heng_op_set(op, "parallel", NULL, NULL), HENG_DONE);
	assert_string_equal(op->values->name, "name");
	assert_null(op->values->next);
	assert_int_equal(heng_op_set(op, "parallel", "65", &error), HENG_USAGE);
	expect(HENG_USAGE, &error, "usage", "parallel '65' is not a number from 1 to 64");
	assert_int_equal(heng_op_set(op, "url", "x", &error), HENG_USAGE);
	expect(HENG_USAGE, &error, "usage", "url");
	assert_int_equal(heng_op_set(op, "url", NULL, NULL), HENG_USAGE);
	assert_int_equal(heng_op_set(op, NULL, "x", NULL), HENG_USAGE);
	assert_int_equal(heng_op_set(NULL, "name", "x", NULL), HENG_USAGE);
	heng_op_free(op);
}

static void test_facts(void **state)
{
	(void)state;
	struct heng_op *op = op_for(good_url);
	static const int wrong[] = { -1, 0, 26, 99, 99999, INT32_MIN, INT32_MAX };

	facts_set(&op->facts, HENG_COMPLETED_US, 7);
	facts_say(&op->facts, HENG_NODE, "n1");
	assert_int_equal(heng_number(op, HENG_COMPLETED_US), 7);
	assert_string_equal(heng_text(op, HENG_NODE), "n1");
	/* A number's key is no text's, and the other way. */
	assert_string_equal(heng_text(op, HENG_COMPLETED_US), "");
	assert_int_equal(heng_number(op, HENG_NODE), 0);
	for (size_t i = 0; i < COUNT_OF(wrong); i++) {
		assert_int_equal(heng_number(op, wrong[i]), 0);
		assert_string_equal(heng_text(op, wrong[i]), "");
	}
	/* What is the same stays where it is: the caller may hold it. */
	const char *before = heng_text(op, HENG_NODE);
	facts_say(&op->facts, HENG_NODE, "n1");
	assert_ptr_equal(heng_text(op, HENG_NODE), before);
	op_set_rows(op, 2);
	facts_say(&op->rows[1], HENG_NODE, "n2");
	op_set_rows(op, 5);
	assert_string_equal(heng_row_text(op, 1, HENG_NODE), "n2");
	assert_string_equal(heng_row_text(op, 5, HENG_NODE), "");
	op_set_rows(op, 1);
	op_set_rows(op, 2);
	assert_string_equal(heng_row_text(op, 1, HENG_NODE), "");
	op_clear(op);
	assert_int_equal(heng_row_count(op), 0);
	assert_string_equal(heng_text(op, HENG_NODE), "");
	heng_op_free(op);
}

static void say_progress(void *owner, const struct heng_op *op)
{
	char *phases = owner;
	size_t size = strlen(phases);

	snprintf(phases + size, 64 - size, "%s ", heng_text(op, HENG_PHASE));
}

static void test_failing_calls(void **state)
{
	(void)state;
	struct heng_op *op = op_for(good_url);
	struct heng_error *error = NULL;
	char phases[64] = "";

	heng_op_on_progress(op, say_progress, phases);
	assert_int_equal(heng_push(op, "/nowhere/\033[2J", &error), HENG_REFUSED);
	/* An escape sequence in a name does not reach the terminal of whoever prints the error. */
	assert_null(strchr(heng_error_text(error), '\033'));
	expect(HENG_REFUSED, &error, "source_unreadable", "/nowhere/");
	assert_int_equal(heng_status(op, good_id, &error), HENG_INCOMPLETE);
	expect(HENG_INCOMPLETE, &error, "cannot_connect", good_url);
	/* The operation goes on being usable, until it is stopped. */
	heng_stop(op);
	assert_int_equal(heng_push(op, "/", &error), HENG_INCOMPLETE);
	expect(HENG_INCOMPLETE, &error, "waiting", "stopped");
	assert_int_equal(heng_status(op, good_id, &error), HENG_INCOMPLETE);
	expect(HENG_INCOMPLETE, &error, "waiting", "stopped");
	heng_op_free(op);
}

struct many {
	struct heng_client *client;
	struct heng_op *op;
	int result;
};

static void *ask_and_push(void *owner)
{
	struct many *many = owner;
	struct heng_error *error = NULL;

	/* Its own handle first: the client's holders come and go in all threads. */
	struct heng_op *own = heng_op_new(many->client);
	assert_int_equal(heng_op_set(own, "parallel", "1", NULL), HENG_DONE);
	assert_int_equal(heng_status(own, good_id, &error), HENG_INCOMPLETE);
	heng_error_free(error);
	heng_op_free(own);
	/* Nobody is there, so it tries again until somebody stops it. */
	assert_int_equal(heng_op_set(many->op, "give-up", "600", NULL), HENG_DONE);
	many->result = heng_push(many->op, "test/lib", &error);
	if (strcmp(heng_error_word(error), "waiting") != 0)
		many->result = HENG_FAULT;
	heng_error_free(error);
	return NULL;
}

static void test_many_threads(void **state)
{
	(void)state;
	struct many many[3];
	pthread_t threads[COUNT_OF(many)];
	struct heng_client *client;

	assert_int_equal(heng_client_new(&client, good_url, "key", NULL), HENG_DONE);
	for (size_t i = 0; i < COUNT_OF(many); i++) {
		many[i] = (struct many){ .client = client, .op = heng_op_new(client) };
		assert_int_equal(pthread_create(&threads[i], NULL, ask_and_push, &many[i]), 0);
	}
	/* Stopped before, during or after its scan: the result is the same. */
	for (size_t i = 0; i < COUNT_OF(many); i++)
		heng_stop(many[i].op);
	for (size_t i = 0; i < COUNT_OF(many); i++) {
		pthread_join(threads[i], NULL);
		assert_int_equal(many[i].result, HENG_INCOMPLETE);
		heng_op_free(many[i].op);
	}
	heng_client_free(client);
}

static void test_version(void **state)
{
	(void)state;
	assert_int_equal(heng_abi(), HENG_ABI);
	assert_string_equal(heng_version(), HENG_VERSION);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_clients),       cmocka_unit_test(test_nothing_is_taken_for_something),
		cmocka_unit_test(test_options),       cmocka_unit_test(test_facts),
		cmocka_unit_test(test_failing_calls), cmocka_unit_test(test_many_threads),
		cmocka_unit_test(test_version),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
