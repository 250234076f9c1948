/* Quotas of users and of transfers: what is let in, what is refused, and what gives its share back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "folder/sched_impl.h"
#include "sched_world.h"

#define MANIFEST_SIZE 2048
#define STEPS_MAX     12

enum action { DONE, PUSH, DRY_RUN, RESUME, REVISE, CANCEL, COMPLETE, RESTART };

/* A folder has a file of so many bytes and so many empty folders, so 2 entries more than these. */
struct step {
	enum action action;
	const char *user, *batch;
	uint64_t bytes; /* RESTART: the new quota_bytes of ann */
	unsigned folders;
	int status;
};

struct row {
	const char *name;
	uint64_t bytes; /* quotas of ann and of bob */
	int64_t entries;
	uint64_t transfer_bytes;
	int64_t transfer_entries;
	struct step steps[STEPS_MAX];
};

static const struct row rows[] = {
	{ "no quota", 0, 0, 0, 0, { { PUSH, "ann", "a", (uint64_t)1 << 30, 20, 201 } } },
	{ "at the limit, and one over",
	  100,
	  0,
	  0,
	  0,
	  { { PUSH, "ann", "a", 101, 0, 403 },
	    { PUSH, "ann", "a", 100, 0, 201 },
	    { PUSH, "ann", "b", 1, 0, 403 },
	    { PUSH, "ann", "c", 0, 30, 201 } } },
	{ "several together",
	  100,
	  0,
	  0,
	  0,
	  { { PUSH, "ann", "a", 60, 0, 201 },
	    { PUSH, "ann", "b", 41, 0, 403 },
	    { PUSH, "ann", "b", 30, 0, 201 },
	    { PUSH, "ann", "c", 10, 0, 201 },
	    { PUSH, "ann", "d", 1, 0, 403 } } },
	{ "entries",
	  0,
	  10,
	  0,
	  0,
	  { { PUSH, "ann", "a", 1, 9, 403 },
	    { PUSH, "ann", "a", 1, 4, 201 },
	    { PUSH, "ann", "b", 1, 3, 403 },
	    { PUSH, "ann", "b", 1, 2, 201 } } },
	{ "each user has its own",
	  100,
	  0,
	  0,
	  0,
	  { { PUSH, "ann", "a", 100, 0, 201 },
	    { PUSH, "bob", "b", 100, 0, 201 },
	    { PUSH, "bob", "c", 1, 0, 403 },
	    { PUSH, "op", "d", 1000000, 0, 201 } } },
	{ "a dry run is checked, and takes nothing",
	  100,
	  0,
	  0,
	  0,
	  { { DRY_RUN, "ann", "a", 101, 0, 403 },
	    { DRY_RUN, "ann", "a", 100, 0, 201 },
	    { PUSH, "ann", "b", 100, 0, 201 },
	    { DRY_RUN, "ann", "a", 1, 0, 403 } } },
	{ "resumed, it counts once",
	  100,
	  0,
	  0,
	  0,
	  { { PUSH, "ann", "a", 60, 0, 201 },
	    { PUSH, "ann", "a", 60, 0, 200 },
	    { DRY_RUN, "ann", "a", 60, 0, 200 },
	    { RESUME, "ann", "a", 60, 0, 200 },
	    { PUSH, "ann", "b", 40, 0, 201 } } },
	{ "cancelled, it counts no more",
	  100,
	  0,
	  0,
	  0,
	  { { PUSH, "ann", "a", 100, 0, 201 },
	    { PUSH, "ann", "b", 100, 0, 403 },
	    { CANCEL, "ann", "a", 0, 0, 200 },
	    { PUSH, "ann", "b", 100, 0, 201 } } },
	{ "completed, it counts no more",
	  0,
	  10,
	  0,
	  0,
	  { { PUSH, "ann", "a", 0, 6, 201 },
	    { PUSH, "ann", "b", 0, 1, 403 },
	    { COMPLETE, "ann", "a", 0, 6, 200 },
	    { PUSH, "ann", "b", 0, 8, 201 } } },
	{ "what is superseded does not count",
	  100,
	  0,
	  0,
	  0,
	  { { PUSH, "ann", "a", 80, 0, 201 },
	    { PUSH, "ann", "a", 101, 1, 403 },
	    { RESUME, "ann", "a", 80, 0, 200 }, /* the old one was not given up for what is refused */
	    { DRY_RUN, "ann", "a", 100, 1, 201 },
	    { PUSH, "ann", "a", 100, 1, 201 },
	    { PUSH, "ann", "b", 1, 0, 403 } } },
	{ "a revision may grow up to it",
	  100,
	  0,
	  0,
	  0,
	  { { PUSH, "ann", "a", 50, 0, 201 },
	    { PUSH, "ann", "b", 40, 0, 201 },
	    { REVISE, "ann", "a", 61, 0, 403 },
	    { REVISE, "ann", "a", 60, 0, 200 },
	    { PUSH, "ann", "a", 61, 0, 403 }, /* found by a new scan */
	    { REVISE, "ann", "a", 59, 0, 200 },
	    { PUSH, "ann", "a", 60, 0, 200 } } },
	{ "one transfer",
	  0,
	  0,
	  1000,
	  5,
	  { { PUSH, "op", "a", 1001, 0, 403 },
	    { PUSH, "op", "a", 1000, 0, 201 },
	    { PUSH, "op", "b", 1000, 0, 201 },
	    { DRY_RUN, "op", "c", 1, 4, 403 },
	    { PUSH, "op", "c", 1, 4, 403 },
	    { PUSH, "op", "c", 999, 3, 201 },
	    { REVISE, "op", "c", 1001, 3, 403 },
	    { REVISE, "op", "c", 1000, 3, 200 } } },
	{ "a quota that was lowered stops nothing under way",
	  100,
	  0,
	  0,
	  0,
	  { { PUSH, "ann", "a", 50, 0, 201 },
	    { RESTART, .bytes = 20 },
	    { PUSH, "ann", "a", 50, 0, 200 },
	    { PUSH, "ann", "a", 51, 0, 403 },
	    { PUSH, "ann", "a", 40, 0, 200 },
	    { PUSH, "ann", "b", 0, 0, 201 },
	    { PUSH, "ann", "c", 1, 0, 403 } } },
	{ "a folder far beyond it",
	  100,
	  0,
	  0,
	  0,
	  { { PUSH, "ann", "a", 10, 0, 201 }, { PUSH, "ann", "b", (uint64_t)1 << 40, 0, 403 } } },
};

/* Of the last transfer that was made of each batch, "a" to "d". */
static char ids[4][ULID_SIZE];

static char *id_of(const char *batch) { return ids[batch[0] - 'a']; }

static void folder_text(uint64_t bytes, unsigned folders, char text[MANIFEST_SIZE])
{
	size_t size = (size_t)snprintf(text, MANIFEST_SIZE, "heng-manifest 1\nD 755 0 .\n");

	for (unsigned i = 0; i < folders; i++)
		size += (size_t)snprintf(text + size, MANIFEST_SIZE - size, "D 755 0 d%02u\n", i);
	snprintf(text + size, MANIFEST_SIZE - size, "F 644 0 %llu f\nend %u %llu\n", (unsigned long long)bytes,
		 folders + 2, (unsigned long long)bytes);
}

static void push(const struct step *step)
{
	char text[MANIFEST_SIZE], query[128];

	folder_text(step->bytes, step->folders, text);
	if (step->action == RESUME)
		snprintf(query, sizeof(query), "resume=%s", id_of(step->batch));
	else
		snprintf(query, sizeof(query), "batch=%s&source=h:/%s&dry_run=%d", step->batch, step->batch,
			 step->action == DRY_RUN);
	post(step->user, query, text);
	if (answer.status == 201 && step->action == PUSH)
		assert_true(str_copy(str_from(text_of("transfer_id")), id_of(step->batch), ULID_SIZE));
}

static void revise(const struct step *step)
{
	char text[MANIFEST_SIZE], line[128], path[128], key[64], crc_header[64];
	const char *headers[] = { key, crc_header, NULL };

	folder_text(step->bytes, step->folders, text);
	snprintf(line, sizeof(line), "%u %llu 0 644\n", step->folders + 1, (unsigned long long)step->bytes);
	snprintf(key, sizeof(key), "X-Api-Key: key of %s", step->user);
	snprintf(crc_header, sizeof(crc_header), "X-Manifest-CRC32C: %08x", crc32c(0, text, strlen(text)));
	snprintf(path, sizeof(path), "/api/v1/transfers/%s/revise", id_of(step->batch));
	call_with("POST", path, headers, str_from(line));
}

static void complete(const struct step *step)
{
	int64_t deadline_us = clock_mono_us() + 20 * SEC_US;
	const char *id = id_of(step->batch);
	char line[128];

	snprintf(line, sizeof(line), "%u %s\n", step->folders + 1, SHA_EMPTY);
	call_transfer(step->user, "POST", id, "/digests", str_from(line));
	expect_status(200);
	call_transfer(step->user, "POST", id, "/complete", STR_NONE);
	expect_status(202);
	do {
		assert_true(clock_mono_us() < deadline_us);
		call_transfer(step->user, "GET", id, "", STR_NONE);
	} while (strcmp(text_of("state"), "completed") != 0);
}

static void restart(const struct step *step)
{
	sched_stop(&sched);
	users[0].quota_bytes = step->bytes;
	start_sched();
	await_node(true);
}

static void take_step(const struct step *step)
{
	switch (step->action) {
	case PUSH:
	case DRY_RUN:
	case RESUME:
		push(step);
		return;
	case REVISE:
		revise(step);
		return;
	case CANCEL:
		call_transfer(step->user, "POST", id_of(step->batch), "/cancel", STR_NONE);
		return;
	case COMPLETE:
		complete(step);
		return;
	case RESTART:
		restart(step);
		return;
	case DONE:
		break;
	}
	fail();
}

static void run_row(void **state)
{
	const struct row *row = *state;

	for (size_t i = 0; i < STEPS_MAX && row->steps[i].action != DONE; i++) {
		const struct step *step = &row->steps[i];

		take_step(step);
		if (step->status == 0)
			continue;
		if (answer.status != step->status)
			fail_msg("step %zu: awaited %d, got %d: %s", i, step->status, answer.status, answer.text);
		if (step->status == 403)
			expect_error(403, "quota");
	}
}

static int set_up_row(void **state)
{
	const struct row *row = *state;

	for (size_t i = 0; i < 2; i++) {
		users[i].quota_bytes = row ? row->bytes : 100;
		users[i].quota_entries = row ? row->entries : 0;
	}
	conf_transfer_bytes_max = row ? row->transfer_bytes : 1000;
	conf_transfer_entries_max = row ? row->transfer_entries : 0;
	return set_up(state);
}

static void expect_words(const char *key, const char *const *words)
{
	expect_error(403, "quota");
	for (; *words; words++) {
		if (!strstr(text_of(key), *words))
			fail_msg("no '%s' in: %s", *words, text_of(key));
	}
}

static void it_is_said_in_words(void **state)
{
	static const char *const of_user[] = { "'ann'", "100 bytes", "quota_bytes", "60 bytes", "41 bytes", NULL };
	static const char *const of_all[] = { "'ann'", "1000 bytes", "transfer_bytes_max", "1.0 KiB (1025 bytes)",
					      NULL };
	static const char *const cures[] = { "heng cancel", "quota_bytes raised", NULL };

	(void)state;
	push(&(struct step){ PUSH, "ann", "a", 60, 0, 201 });
	expect_status(201);
	push(&(struct step){ PUSH, "ann", "b", 41, 0, 403 });
	expect_words("message", of_user);
	expect_words("hint", cures);
	assert_int_equal(answer.retry_after_us, 0);
	push(&(struct step){ PUSH, "ann", "b", 1025, 0, 403 });
	expect_words("message", of_all);
}

/* Another call that plans just now. */
static void planners_at_work_count(void **state)
{
	const struct plan_facts facts = { .total_bytes = 70, .entry_count = 2 };
	struct sched_claim *early, *late;
	struct sched_need need;

	(void)state;
	assert_int_equal(sched_claim(sched, "ann", STR("x"), &facts, 1, &early, NULL), 0);
	push(&(struct step){ PUSH, "ann", "a", 31, 0, 403 });
	expect_error(403, "quota");
	push(&(struct step){ PUSH, "ann", "a", 30, 0, 201 });
	expect_status(201);
	push(&(struct step){ PUSH, "bob", "b", 100, 0, 201 });
	expect_status(201);
	/* The earlier of two does not count the later one: they would keep each other out. */
	assert_int_equal(sched_claim(sched, "ann", STR("y"), &facts, 2, &late, NULL), 0);
	assert_int_equal(sched_need(sched, "ann", early, NULL, &need, NULL), 0);
	assert_int_equal(need.bytes, 30);
	assert_int_equal(sched_need(sched, "ann", late, NULL, &need, NULL), 0);
	assert_int_equal(need.bytes, 100);
	assert_int_equal(need.entries, 4);
	assert_int_equal(sched_need(sched, NULL, late, NULL, &need, NULL), 0);
	assert_int_equal(need.bytes, 200);
	assert_int_equal(need.node_bytes, 200);
	sched_unclaim(sched, early);
	assert_int_equal(sched_need(sched, "ann", late, NULL, &need, NULL), 0);
	assert_int_equal(need.bytes, 30);
	/* A claim on a batch that is in the store already: the larger of the two counts, once. */
	assert_int_equal(sched_claim(sched, "ann", STR("a"), &facts, 1, &early, NULL), 0);
	sched_unclaim(sched, late);
	assert_int_equal(sched_claim(sched, "ann", STR("y"), &facts, 1, &late, NULL), 0);
	assert_int_equal(sched_need(sched, "ann", late, NULL, &need, NULL), 0);
	assert_int_equal(need.bytes, 70);
	assert_int_equal(need.node_bytes, 70);
	assert_int_equal(sched_need(sched, "ann", late, ids[0], &need, NULL), 0);
	assert_int_equal(need.bytes, 70);
	sched_unclaim(sched, early);
	sched_unclaim(sched, late);
	push(&(struct step){ PUSH, "ann", "c", 70, 0, 201 });
	expect_status(201);
}

/* A revision that grows has a claim of its own while it is checked and written: it gives it back however it ends. */
static void revisions_give_their_claims_back(void **state)
{
	const struct plan_facts facts = { .total_bytes = 1, .entry_count = 2 };
	struct sched_claim *claim;

	(void)state;
	push(&(struct step){ PUSH, "ann", "a", 10, 0, 201 });
	for (unsigned i = 0; i < 3; i++) {
		revise(&(struct step){ REVISE, "ann", "a", 101 + i, 0, 403 });
		expect_error(403, "quota");
		revise(&(struct step){ REVISE, "ann", "a", 11 + i, 0, 200 });
		expect_status(200);
	}
	assert_int_equal(sched_claim(sched, "ann", STR("a"), &facts, 1, &claim, NULL), 0);
	revise(&(struct step){ REVISE, "ann", "a", 20, 0, 503 });
	expect_error(503, "busy");
	sched_unclaim(sched, claim);
	revise(&(struct step){ REVISE, "ann", "a", 20, 0, 200 });
	expect_status(200);
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, set_up_row, tear_down)

int main(void)
{
	const struct CMUnitTest others[] = {
		CASE(it_is_said_in_words),
		CASE(planners_at_work_count),
		CASE(revisions_give_their_claims_back),
	};
	struct CMUnitTest tests[COUNT_OF(rows) + COUNT_OF(others)];

	for (size_t i = 0; i < COUNT_OF(rows); i++)
		tests[i] = (struct CMUnitTest){ rows[i].name, run_row, set_up_row, tear_down, (void *)&rows[i] };
	memcpy(&tests[COUNT_OF(rows)], others, sizeof(others));
	return cmocka_run_group_tests(tests, NULL, NULL);
}
