/* Tables and nodes that disagree, over a real store and pool, with nodes that answer as told. Waits are for conditions. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "../plug/store_world.h"
#include "base/clock.h"
#include "fake_node.h"
#include "folder/held.h"
#include "folder/inventory.h"
#include "folder/pool.h"
#include "plug/audit_chain.h"
#include "sys/fs.h"

#define KEY "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define D1  "1111111111111111111111111111111111111111111111111111111111111111"
#define D2  "2222222222222222222222222222222222222222222222222222222222222222"
#define MD5 "33333333333333333333333333333333"

static const struct internal_key shown_key = { .header = "X-Internal-Key: " KEY };
static struct world *w;
static struct pool *pool;
static struct inventory *inventory;
static struct fake_node nodes[2];

static int set_up_all(void **state)
{
	*state = NULL;
	if (set_up(state) != 0)
		return -1;
	w = *state;
	pool = NULL;
	inventory = NULL;
	for (size_t i = 0; i < COUNT_OF(nodes); i++) {
		char id[] = { 'n', (char)('1' + i), '\0' };

		fake_start(&nodes[i], id, "first");
		nodes[i].held = "N 0\n";
	}
	return 0;
}

static void stop_all(void)
{
	if (pool)
		pool_halt(pool);
	inventory_stop(&inventory);
	pool_stop(&pool);
}

static int tear_down_all(void **state)
{
	stop_all();
	for (size_t i = 0; i < COUNT_OF(nodes); i++)
		fake_stop(&nodes[i]);
	return tear_down(state);
}

/* Object 1 with four chunks of 100 bytes: 0 and 1 stored on n1, 2 on n2, 3 nowhere. */
static void plan_and_store(unsigned copies)
{
	struct store_transfer t = transfer_make(id_a, "q3", 1, 4);
	struct store_plan *plan;

	t.copies = copies;
	plan = plan_rows(w, &t, 4);
	assert_int_equal(w->store->ops->plan_commit(&plan, &t, &w->err), 0);
	for (uint64_t i = 0; i < 3; i++)
		assert_int_equal(give(w, receipt_make(id_a, 1, i, D1, i == 2 ? "n2" : "n1")), ERR_NONE);
}

static void script(struct fake_node *node, const char *start_id, const char *held)
{
	pthread_mutex_lock(&node->lock);
	snprintf(node->start_id, sizeof(node->start_id), "%s", start_id);
	node->held = held;
	pthread_mutex_unlock(&node->lock);
}

static void start_pool(void)
{
	const struct pool_options options = { .store = w->store,
					      .internal_key = &shown_key,
					      .probe_interval_us = 30 * MSEC_US,
					      .probe_timeout_us = 2 * SEC_US };

	assert_int_equal(pool_start(&options, &pool, &w->err), 0);
	for (size_t i = 0; i < COUNT_OF(nodes); i++) {
		struct store_node node = { .weight_milli = 1000 };

		copy_text(node.id, sizeof(node.id), nodes[i].id);
		copy_text(node.addr, sizeof(node.addr), nodes[i].addr);
		copy_text(node.incarnation, sizeof(node.incarnation), nodes[i].incarnation);
		assert_int_equal(pool_register(pool, &node, &w->err), 0);
	}
}

static void start_inventory(int64_t settle_us)
{
	const struct inventory_options options = {
		.store = w->store, .pool = pool, .internal_key = &shown_key, .settle_us = settle_us
	};

	assert_int_equal(inventory_start(&options, &inventory, &w->err), 0);
}

static void await_settled(void)
{
	for (const int64_t until_us = clock_mono_us() + 20 * SEC_US; !inventory_is_settled(inventory); usleep(2000))
		assert_true(clock_mono_us() < until_us);
}

/* "stored@n1 lost@ ..." of the four chunks. */
static const char *chunks_now(void)
{
	static char text[256];

	text[0] = '\0';
	for (uint64_t i = 0; i < 4; i++) {
		const struct store_chunk chunk = chunk_get(w, id_a, 1, i);
		const size_t used = strlen(text);

		snprintf(text + used, sizeof(text) - used, "%s@%s%s%s ", chunk_state_name(chunk.state),
			 chunk.actual_node, chunk.copy_node[0] != '\0' ? "+" : "", chunk.copy_node);
	}
	return text;
}

static void expect_chunks(const char *expected)
{
	assert_string_equal(chunks_now(), expected);
	counters_agree(w, id_a);
}

static void await_chunks(const char *expected)
{
	for (const int64_t until_us = clock_mono_us() + 20 * SEC_US; strcmp(chunks_now(), expected) != 0; usleep(2000))
		if (clock_mono_us() > until_us)
			fail_msg("not '%s' but '%s'", expected, chunks_now());
	counters_agree(w, id_a);
}

/* What each answer of n1 makes of the tables; n2 has its chunk. */
static void t_compare(void **state)
{
	static const struct {
		const char *held, *chunks;
		unsigned copies;
	} rows[] = {
		/* As the tables say. */
		{ "1 0 100 sha256:" D1 "\n1 1 100 sha256:" D1 "\nN 0\n", "stored@n1 stored@n1 stored@n2 pending@ ", 1 },
		/* Nothing; some; what nobody knew of; what is stored elsewhere, and of no plan. */
		{ "N 0\n", "lost@ lost@ stored@n2 pending@ ", 1 },
		{ "1 1 100 sha256:" D1 "\nN 0\n", "lost@ stored@n1 stored@n2 pending@ ", 1 },
		{ "1 0 100 sha256:" D1 "\n1 1 100 sha256:" D1 "\n1 3 100 sha256:" D2 "\nN 0\n",
		  "stored@n1 stored@n1 stored@n2 stored@n1 ", 1 },
		{ "1 0 100 sha256:" D1 "\n1 1 100 sha256:" D1 "\n1 2 100 sha256:" D1 "\nN 0\n",
		  "stored@n1 stored@n1 stored@n2 pending@ ", 1 },
		/* Another size or kind of digest is not adopted; a stored one with other bytes is the merge's to judge. */
		{ "1 0 100 sha256:" D1 "\n1 1 100 sha256:" D1 "\n1 3 99 sha256:" D1 "\nN 0\n",
		  "stored@n1 stored@n1 stored@n2 pending@ ", 1 },
		{ "1 0 100 sha256:" D1 "\n1 1 100 sha256:" D1 "\n1 3 100 md5:" MD5 "\nN 0\n",
		  "stored@n1 stored@n1 stored@n2 pending@ ", 1 },
		{ "1 0 99 sha256:" D1 "\n1 1 100 sha256:" D2 "\nN 0\n", "stored@n1 stored@n1 stored@n2 pending@ ", 1 },
		/* A second copy that is wanted; but only of the same bytes. */
		{ "1 0 100 sha256:" D1 "\n1 1 100 sha256:" D1 "\n1 2 100 sha256:" D1 "\nN 0\n",
		  "stored@n1 stored@n1 stored@n2+n1 pending@ ", 2 },
		{ "1 0 100 sha256:" D1 "\n1 1 100 sha256:" D1 "\n1 2 100 sha256:" D2 "\nN 0\n",
		  "stored@n1 stored@n1 stored@n2 pending@ ", 2 },
		/* A list that is none proves nothing. */
		{ "1 1 100 sha256:" D1 "\n", "stored@n1 stored@n1 stored@n2 pending@ ", 1 },
		{ "1 1 100 sha256:" D1 "\n1 0 100 sha256:" D1 "\nN 0\n", "stored@n1 stored@n1 stored@n2 pending@ ", 1 },
		{ "N 1\n", "stored@n1 stored@n1 stored@n2 pending@ ", 1 },
		{ NULL, "stored@n1 stored@n1 stored@n2 pending@ ", 1 },
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		print_message("row %zu\n", i);
		if (i > 0) {
			assert_int_equal(tear_down_all(state), 0);
			assert_int_equal(set_up_all(state), 0);
		}
		plan_and_store(rows[i].copies);
		script(&nodes[0], "a", rows[i].held);
		script(&nodes[1], "b", "1 2 100 sha256:" D1 "\nN 0\n");
		start_pool();
		start_inventory(0);
		await_settled();
		expect_chunks(rows[i].chunks);
		assert_int_equal(atomic_load(&nodes[1].held_count), 1);
	}
}

/* Asked once a start, not once a probe; a failure is tried again. */
static void t_when(void **state)
{
	(void)state;
	plan_and_store(1);
	script(&nodes[0], "a", NULL);
	script(&nodes[1], "b", "1 2 100 sha256:" D1 "\nN 0\n");
	start_pool();
	start_inventory(0);
	await_settled();
	assert_int_equal(atomic_load(&nodes[1].held_count), 1);
	expect_chunks("stored@n1 stored@n1 stored@n2 pending@ ");
	script(&nodes[0], "a", "1 0 100 sha256:" D1 "\nN 0\n");
	await_chunks("stored@n1 lost@ stored@n2 pending@ ");
	/* Started anew: its chunk has gone, and another is there. */
	script(&nodes[1], "c", "1 3 100 sha256:" D2 "\nN 0\n");
	await_chunks("stored@n1 lost@ lost@ stored@n2 ");
	stop_all();
	assert_int_equal(atomic_load(&nodes[0].held_count), 2);
	assert_int_equal(atomic_load(&nodes[1].held_count), 2);
}

/* Declared lost: what the tables give up is on another node too, and on this one, which lives after all. */
static void t_back_from_lost(void **state)
{
	const struct pool_order order = { .word = POOL_LOST };
	struct store_node node = { .weight_milli = 1000 };
	uint64_t lost_count;

	(void)state;
	plan_and_store(1);
	script(&nodes[0], "a", "1 0 100 sha256:" D1 "\n1 1 100 sha256:" D1 "\nN 0\n");
	script(&nodes[1], "b", "1 0 100 sha256:" D1 "\n1 2 100 sha256:" D1 "\nN 0\n");
	start_pool();
	start_inventory(0);
	await_settled();
	expect_chunks("stored@n1 stored@n1 stored@n2 pending@ ");
	assert_int_equal(pool_order(pool, "n1", &order, NULL, &lost_count, &w->err), 0);
	await_chunks("stored@n2 lost@ stored@n2 pending@ ");
	copy_text(node.id, sizeof(node.id), nodes[0].id);
	copy_text(node.addr, sizeof(node.addr), nodes[0].addr);
	copy_text(node.incarnation, sizeof(node.incarnation), nodes[0].incarnation);
	assert_int_equal(pool_register(pool, &node, &w->err), 0);
	await_chunks("stored@n2 stored@n1 stored@n2 pending@ ");
}

/* A node that does not tell its start, or cannot be reached, is waited for by nobody; one that was not asked yet is, for a time. */
static void t_settled(void **state)
{
	(void)state;
	plan_and_store(1);
	script(&nodes[1], "b", "N 0\n");
	nodes[1].is_failing = true;
	start_pool();
	start_inventory(3600 * SEC_US);
	await_settled();
	assert_int_equal(atomic_load(&nodes[0].held_count) + atomic_load(&nodes[1].held_count), 0);
	expect_chunks("stored@n1 stored@n1 stored@n2 pending@ ");
	assert_true(inventory_began_wall_us(inventory) <= clock_wall_us());
}

static atomic_bool is_gate_open;

/* Not for ever, so that a test that fails meanwhile ends. */
static void wait_at_gate(void *owner UNUSED)
{
	for (const int64_t until_us = clock_mono_us() + 10 * SEC_US;
	     !atomic_load(&is_gate_open) && clock_mono_us() < until_us; usleep(1000))
		;
}

static void t_settled_after_a_time(void **state)
{
	(void)state;
	plan_and_store(1);
	script(&nodes[0], "a", "N 0\n");
	nodes[0].before_held = wait_at_gate;
	atomic_store(&is_gate_open, false);
	start_pool();
	start_inventory(300 * MSEC_US);
	assert_false(inventory_is_settled(inventory));
	await_settled();
	assert_int_equal(atomic_load(&nodes[0].held_count), 0);
	/* Nor does stopping wait for a node. */
	const int64_t began_us = clock_mono_us();
	stop_all();
	assert_true(clock_mono_us() - began_us < 5 * SEC_US);
	atomic_store(&is_gate_open, true);
	expect_chunks("stored@n1 stored@n1 stored@n2 pending@ ");
}

/* While the node answers: a chunk is lost and comes again, another comes for the first time. Neither is what was compared. */
static void receipts_meanwhile(void *owner UNUSED)
{
	uint64_t count;
	struct store_receipt again = receipt_make(id_a, 1, 0, D1, "n1");

	again.finished_wall_us = 9000;
	assert_int_equal(
		w->store->ops->chunks_reopen(w->store, id_a, 1, "n1", CHUNK_LOST, "test", 8000, &count, &w->err), 0);
	assert_int_equal(give(w, again), ERR_NONE);
	assert_int_equal(give(w, receipt_make(id_a, 1, 3, D1, "n1")), ERR_NONE);
}

static void t_race_with_receipts(void **state)
{
	(void)state;
	plan_and_store(1);
	script(&nodes[0], "a", "N 0\n");
	nodes[0].before_held = receipts_meanwhile;
	start_pool();
	start_inventory(0);
	await_settled();
	expect_chunks("stored@n1 lost@ stored@n2 stored@n1 ");
}

/* The same chunk comes once more to the node that has it by the tables, and that had lost it. */
static void resend_meanwhile(void *owner UNUSED)
{
	assert_int_equal(give(w, receipt_make(id_a, 1, 0, D1, "n1")), ERR_NONE);
}

static void t_race_with_a_resend(void **state)
{
	(void)state;
	plan_and_store(1);
	script(&nodes[0], "a", "N 0\n");
	nodes[0].before_held = resend_meanwhile;
	start_pool();
	start_inventory(0);
	await_settled();
	expect_chunks("stored@n1 lost@ stored@n2 pending@ ");
}

/* One chunk a page, the next one that could be: of an object between two of the plan there is room for endless many. */
static void answer_without_end(struct http_call *call)
{
	char line[HELD_LINE_MAX + 8];
	uint64_t file_id = fake_query(call, "after_file"), chunk_index = fake_query(call, "after_chunk");

	if (file_id == 0 || chunk_index == INT64_MAX) {
		file_id++;
		chunk_index = 0;
	} else {
		chunk_index++;
	}
	const int length = snprintf(line, sizeof(line), "%" PRIu64 " %" PRIu64 " 100 sha256:" D1 "\nN 1\n", file_id,
				    chunk_index);
	http_reply(call, 200, "text/plain", (struct str){ line, (size_t)length });
}

static void t_pages_without_end(void **state)
{
	struct store_transfer t = transfer_make(id_a, "q3", 2, 4);
	struct store_plan *plan = plan_rows(w, &t, 4);

	(void)state;
	assert_int_equal(w->store->ops->plan_commit(&plan, &t, &w->err), 0);
	nodes[0].answer_held = answer_without_end;
	script(&nodes[0], "a", "");
	start_pool();
	start_inventory(0);
	await_settled();
	expect_chunks("stored@n1 stored@n1 stored@n1 stored@n1 ");
	assert_in_range(atomic_load(&nodes[0].held_count), 8, 9);
}

static int count_alert(void *owner, const struct audit_row *row)
{
	assert_true(row->fields[AUDIT_detail].text.size > 0);
	++*(unsigned *)owner;
	return 0;
}

static unsigned alerts_of(const char *node_id)
{
	struct audit_query query = { .kind = "alert", .node_id = node_id, .outcome = "inventory_given_up", .limit = 9 };
	unsigned count = 0;
	bool is_more = true;

	while (is_more)
		assert_int_equal(w->store->ops->audit_rows(w->store, &query, count_alert, &count, &query.after,
							   &is_more, &w->err),
				 0);
	return count;
}

/* Who looks after the nodes learns which one tells nothing, when nobody asks it any more. */
static void t_given_up(void **state)
{
	(void)state;
	plan_and_store(1);
	script(&nodes[0], "a", "1 1 100 sha256:" D1 "\n1 0 100 sha256:" D1 "\nN 0\n");
	script(&nodes[1], "b", "1 2 100 sha256:" D1 "\nN 0\n");
	start_pool();
	const struct inventory_options options = {
		.store = w->store, .pool = pool, .internal_key = &shown_key, .try_limit = 1
	};
	assert_int_equal(inventory_start(&options, &inventory, &w->err), 0);
	await_settled();
	stop_all();
	assert_int_equal(atomic_load(&nodes[0].held_count), 1);
	assert_int_equal(alerts_of("n1"), 1);
	assert_int_equal(alerts_of("n2"), 0);
}

static void merge_meanwhile(void *owner UNUSED)
{
	struct store_transfer t;

	if (atomic_load(&nodes[0].held_count) > 0)
		return;
	assert_int_equal(give(w, receipt_make(id_a, 1, 3, D1, "n1")), ERR_NONE);
	assert_int_equal(w->store->ops->transfer_get(w->store, id_a, &t, &w->err), 0);
	assert_int_equal(w->store->ops->transfer_move(w->store, &t, TRANSFER_MERGING, "", true, 9, &w->err), 0);
}

/* What is merged meanwhile is no more to be judged. */
static void t_race_with_merge(void **state)
{
	(void)state;
	plan_and_store(1);
	script(&nodes[0], "a", "N 0\n");
	nodes[0].before_held = merge_meanwhile;
	start_pool();
	start_inventory(0);
	await_settled();
	expect_chunks("stored@n1 stored@n1 stored@n2 stored@n1 ");
	assert_int_equal(atomic_load(&nodes[0].held_count), 1);
}

#define CASE_ALL(function) cmocka_unit_test_setup_teardown(function, set_up_all, tear_down_all)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE_ALL(t_compare),
		CASE_ALL(t_when),
		CASE_ALL(t_back_from_lost),
		CASE_ALL(t_settled),
		CASE_ALL(t_settled_after_a_time),
		CASE_ALL(t_race_with_receipts),
		CASE_ALL(t_race_with_merge),
		CASE_ALL(t_race_with_a_resend),
		CASE_ALL(t_pages_without_end),
		CASE_ALL(t_given_up),
	};

	return drivers_run(tests, COUNT_OF(tests));
}
