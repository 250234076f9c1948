/* POST transfers?resume=ID: that transfer and no other, or a refusal that says why. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sched_world.h"

static char id[ULID_SIZE];

static void resume_as(const char *user, const char *more, const char *manifest)
{
	char query[256];

	snprintf(query, sizeof(query), "resume=%s%s", id, more);
	post(user, query, manifest);
}

static void expect_refusal(const char *word, int status, const char *named)
{
	expect_error(status, word);
	if (strstr(text_of("message"), named) == NULL)
		fail_msg("'%s' is not in: %s", named, text_of("message"));
}

static size_t transfers(void)
{
	call_as("ann", "GET", "/api/v1/transfers", STR_NONE);
	expect_status(200);
	return json_array_size(json_object_get(answer.json, "transfers"));
}

static void the_same_folder_goes_on(void **state)
{
	static const char *const terms[] = { "",
					     "&batch=books",
					     "&source=elsewhere:/b",
					     "&chunk_size=65536",
					     "&chunk_wish=1048576",
					     "&digest=sha256&priority=7" };

	(void)state;
	post_a(id);
	give_receipt(id, 1, 1, 1, ERR_NONE);
	for (size_t i = 0; i < COUNT_OF(terms); i++) {
		resume_as("ann", terms[i], folder_a);
		expect_status(200);
		assert_string_equal(text_of("transfer_id"), id);
		assert_string_equal(text_of("batch_enc"), "books");
		assert_int_equal(number_of("stored_chunks"), 1);
		assert_true(json_is_true(json_object_get(answer.json, "is_resumed")));
	}
	resume_as("ann", "&dry_run=1", folder_a);
	expect_status(200);
	assert_string_equal(text_of("transfer_id"), "");
	assert_int_equal(transfers(), 1);
}

static void other_terms_are_refused(void **state)
{
	static const struct {
		const char *terms, *named;
	} rows[] = {
		{ "&batch=other", "'books'" },
		{ "&digest=md5", "sha256" },
		{ "&seal=aes:0123456789abcdef", "without encryption" },
		{ "&chunk_size=131072", "65536" },
	};

	(void)state;
	post_a(id);
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		resume_as("ann", rows[i].terms, folder_a);
		expect_refusal("other_folder", 409, rows[i].named);
	}
	assert_int_equal(transfers(), 1);
}

static void anothers_and_none_are_not_found(void **state)
{
	(void)state;
	post_a(id);
	resume_as("bob", "", folder_a);
	expect_refusal("no_such_transfer", 404, id);
	/* An operator sees everybody's, but sends nobody else's. */
	resume_as("op", "", folder_a);
	expect_refusal("no_such_transfer", 404, id);
	post("ann", "resume=01ARZ3NDEKTSV4RRFFQ69G5FAV", folder_a);
	expect_refusal("no_such_transfer", 404, "01ARZ3NDEKTSV4RRFFQ69G5FAV");
	post("ann", "resume=x%27", folder_a);
	expect_error(404, "no_such_transfer");
	post("ann", "resume=", folder_a);
	expect_error(404, "no_such_transfer");
	/* Nothing was begun instead. */
	assert_int_equal(transfers(), 1);
}

static void an_ended_one_is_refused(void **state)
{
	(void)state;
	post_a(id);
	call_transfer("ann", "POST", id, "/cancel", STR_NONE);
	expect_status(200);
	resume_as("ann", "", folder_a);
	expect_refusal("wrong_state", 409, "cancelled by ann");
	assert_int_equal(transfers(), 1);
}

/* The first entries that differ are named. */
static void another_folder_is_refused(void **state)
{
#define HEAD "heng-manifest 1\nD 755 0 .\n"
	static const struct {
		const char *manifest;
		const char *named[4], *not_named;
	} rows[] = {
		{ HEAD "F 644 0 65538 big\nD 755 0 d\nF 644 0 1 d/a\nF 644 0 0 d/empty\nend 5 65539\n",
		  { "'big' has another size" },
		  "d/a" },
		{ HEAD "F 644 0 65537 big\nD 755 0 d\nF 644 5 1 d/a\nF 600 0 0 d/empty\nend 5 65538\n",
		  { "'d/a' was modified", "'d/empty' has another mode" },
		  "big" },
		{ HEAD "F 644 1 65537 big\nD 755 2 d\nF 644 3 1 d/a\nF 644 4 0 d/empty\nend 5 65538\n",
		  { "'big' was", "'d' was", "'d/a' was", " ..." },
		  "empty" },
		{ HEAD "F 644 0 65537 big\nL 755 0 x d\nend 3 65537\n",
		  { "'d' is of another kind", "'d/a' is gone" },
		  "big" },
		{ HEAD "F 644 0 65537 big\nD 755 0 d\nF 644 0 1 d/a\nend 4 65538\n", { "'d/empty' is gone" }, "d/a" },
		{ HEAD "F 644 0 65537 big\nD 755 0 d\nF 644 0 1 d/a\nF 644 0 0 d/empty\nF 644 0 1 d/new\nend 6 65539\n",
		  { "'d/new' is new" },
		  "'d/empty'" },
		{ HEAD "F 644 0 1 a\nF 644 0 65537 big\nD 755 0 d\nF 644 0 1 d/a\nF 644 0 0 d/empty\nend 6 65539\n",
		  { "'a' stands where the transfer has 'big'", " ..." },
		  "d/empty" },
		{ HEAD "end 1 0\n", { "'big' is gone" }, "d/a" },
	};

	(void)state;
	post_a(id);
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		resume_as("ann", "", rows[i].manifest);
		for (size_t n = 0; n < COUNT_OF(rows[i].named) && rows[i].named[n]; n++)
			expect_refusal("other_folder", 409, rows[i].named[n]);
		if (strstr(text_of("message"), rows[i].not_named) != NULL)
			fail_msg("row %zu: %s", i, text_of("message"));
	}
	/* Refusing costs the transfer nothing. */
	resume_as("ann", "", folder_a);
	expect_status(200);
	resume_as("ann", "", "heng-manifest 1\n");
	expect_error(400, "manifest_invalid");
	assert_int_equal(transfers(), 1);
}

/* More entries than one page of the comparison holds. */
static void a_late_difference_is_found(void **state)
{
	enum { COUNT = 1000, CHANGED = 777 };
	struct buf texts[2] = { BUF_INIT(MIB), BUF_INIT(MIB) };

	(void)state;
	for (int t = 0; t < 2; t++) {
		buf_append_c(&texts[t], HEAD);
		for (int i = 0; i < COUNT; i++)
			buf_printf(&texts[t], "F 644 %d 0 f%04d\n", t == 1 && i == CHANGED, i);
		buf_printf(&texts[t], "end %d 0\n", COUNT + 1);
	}
	post("ann", "batch=many&source=h:/a", buf_cstr(&texts[0]));
	expect_status(201);
	assert_true(str_copy(str_from(text_of("transfer_id")), id, ULID_SIZE));
	resume_as("ann", "", buf_cstr(&texts[1]));
	expect_refusal("other_folder", 409, "has it: 'f0777' was modified since");
	resume_as("ann", "", buf_cstr(&texts[0]));
	expect_status(200);
	buf_fini(&texts[0]);
	buf_fini(&texts[1]);
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(the_same_folder_goes_on), CASE(other_terms_are_refused),   CASE(anothers_and_none_are_not_found),
		CASE(an_ended_one_is_refused), CASE(another_folder_is_refused), CASE(a_late_difference_is_found),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
