/* The contract of the metadata store, run over every driver: whatever is done to a transfer, in whatever order, its counters are those of its rows. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/rng.h"
#include "plug/store_world.h"

#define OBJECTS 4u
#define CHUNKS  3u
#define ROUNDS  2u
#define STEPS   120u

struct walk {
	struct world *w;
	struct rng rng;
	struct store_transfer t;
	uint64_t file_ids[OBJECTS], last_file_id; /* of the entry OBJECTS + 2, ... */
	uint64_t steps[8];                        /* that did something, by kind */
};

static const char *a_node(struct walk *walk)
{
	static const char *const nodes[] = { "n1", "n2", "n3" };

	return nodes[rng_below(&walk->rng, COUNT_OF(nodes))];
}

static uint64_t an_id(struct walk *walk)
{
	/* Sometimes one that the plan has had, or will have. */
	return rng_below(&walk->rng, 6) == 0 ? 1 + rng_below(&walk->rng, walk->last_file_id + 2)
					     : walk->file_ids[rng_below(&walk->rng, OBJECTS)];
}

static bool receive(struct walk *walk)
{
	struct store_receipt receipts[6];
	size_t count = 1 + rng_below(&walk->rng, COUNT_OF(receipts));
	bool is_one_good = false;

	for (size_t i = 0; i < count; i++) {
		receipts[i] = receipt_make(id_a, an_id(walk), rng_below(&walk->rng, CHUNKS),
					   rng_below(&walk->rng, 8) == 0 ? digest_2 : digest_1, a_node(walk));
		if (rng_below(&walk->rng, 6) == 0)
			receipts[i].outcome = ERR_DIGEST_MISMATCH;
	}
	assert_int_equal(walk->w->store->ops->receipts(walk->w->store, receipts, count, &walk->w->err), 0);
	for (size_t i = 0; i < count; i++)
		is_one_good |= receipts[i].result == ERR_NONE;
	return is_one_good;
}

static bool reopen_some(struct walk *walk)
{
	static const enum chunk_state states[] = { CHUNK_PENDING, CHUNK_LOST, CHUNK_DIGEST_FAILED };
	uint64_t count, file_id = rng_below(&walk->rng, 3) == 0 ? 0 : an_id(walk);
	const char *node_id = rng_below(&walk->rng, 3) == 0 ? NULL : a_node(walk);

	assert_int_equal(walk->w->store->ops->chunks_reopen(walk->w->store, id_a, file_id, node_id,
							    states[rng_below(&walk->rng, COUNT_OF(states))], "test", 7,
							    &count, &walk->w->err),
			 0);
	return count > 0;
}

/* As an inventory does: what was read a while ago, so that some of it has changed since; one chunk twice. */
static bool lose(struct walk *walk)
{
	struct pages pages = { .stop_at = 64 };
	uint64_t lost_count, kept_count;

	assert_int_equal(walk->w->store->ops->chunks(walk->w->store, id_a, 0, 0, ALL_STATES, 64, chunk_keep, &pages,
						     &walk->w->err),
			 0);
	if (rng_below(&walk->rng, 2) == 0)
		(void)receive(walk);
	pages.chunks[pages.count] = pages.chunks[rng_below(&walk->rng, pages.count)];
	assert_int_equal(walk->w->store->ops->chunks_lose(walk->w->store, id_a, TRANSFER_UPLOADING, a_node(walk),
							  pages.chunks, pages.count + 1, "test", 8, &lost_count,
							  &kept_count, &walk->w->err),
			 0);
	return lost_count + kept_count > 0;
}

/* One object goes, and one takes its place, with as many chunks. */
static bool revise(struct walk *walk)
{
	const struct store_ops *ops = walk->w->store->ops;
	struct store_plan *plan = NULL;
	size_t i = rng_below(&walk->rng, OBJECTS);
	uint64_t next_file_id = 0;
	struct store_object object = {
		.first_seq = i + 2, .last_seq = i + 2, .size_bytes = CHUNKS * 100ull, .chunk_count = CHUNKS
	};
	struct store_entry entry = {
		.seq = i + 2, .type = 'F', .mode = 0600, .size_bytes = CHUNKS * 100ull, .path = STR("d\xff/f")
	};
	bool is_dropped = rng_below(&walk->rng, 4) == 0;

	if (walk->t.state != TRANSFER_UPLOADING)
		return false;
	assert_int_equal(ops->revise_begin(walk->w->store, &walk->t, &plan, &next_file_id, &walk->w->err), 0);
	/* An id is never given twice. */
	assert_true(next_file_id > walk->last_file_id);
	assert_int_equal(ops->revise_drop(plan, walk->file_ids[i], &walk->w->err), 0);
	entry.file_id = object.file_id = next_file_id;
	assert_int_equal(ops->plan_object(plan, &object, &walk->w->err), 0);
	for (uint64_t n = 0; n < CHUNKS; n++) {
		const struct store_chunk chunk = {
			.file_id = next_file_id, .chunk_index = n, .size_bytes = 100, .target_node = "n1"
		};
		assert_int_equal(ops->plan_chunk(plan, &chunk, &walk->w->err), 0);
	}
	assert_int_equal(ops->plan_entry(plan, &entry, &walk->w->err), 0);
	if (is_dropped) {
		ops->plan_abort(&plan);
		return true;
	}
	assert_int_equal(ops->revise_commit(&plan, &walk->t, &walk->w->err), 0);
	walk->file_ids[i] = walk->last_file_id = next_file_id;
	return true;
}

static bool ask_copies(struct walk *walk)
{
	int result = walk->w->store->ops->copies_set(walk->w->store, id_a, 1 + (unsigned)rng_below(&walk->rng, 2),
						     rng_below(&walk->rng, 2) == 0, "test", 9, &walk->w->err);

	assert_true(result == 0 || result == -ERR_STATE);
	return result == 0;
}

static bool fill(struct walk *walk)
{
	bool is_one_good = false;

	for (size_t i = 0; i < OBJECTS; i++)
		for (uint64_t n = 0; n < CHUNKS; n++) {
			is_one_good |= give(walk->w, receipt_make(id_a, walk->file_ids[i], n, digest_1, "n1")) == 0;
			is_one_good |= give(walk->w, receipt_make(id_a, walk->file_ids[i], n, digest_1, "n2")) == 0;
		}
	return is_one_good;
}

/* Forth, and back again when somebody's clock says so. Only when all is there does it go forth. */
static bool move(struct walk *walk)
{
	struct store *store = walk->w->store;

	if (rng_below(&walk->rng, 2) == 0)
		(void)fill(walk);
	assert_int_equal(store->ops->transfer_get(store, id_a, &walk->t, &walk->w->err), 0);
	bool is_all = walk->t.stored_chunk_count == walk->t.chunk_count &&
		      (walk->t.copies < 2 || walk->t.is_copies_waived ||
		       walk->t.copied_chunk_count == walk->t.chunk_count);
	bool is_forth = walk->t.state == TRANSFER_UPLOADING;
	int result = store->ops->transfer_move(store, &walk->t, is_forth ? TRANSFER_MERGING : TRANSFER_UPLOADING, "",
					       true, 10, &walk->w->err);

	assert_int_equal(result, is_forth && !is_all ? -(int)ERR_INCOMPLETE : 0);
	return result == 0;
}

static void test_counts_whatever_is_done(void **state)
{
	static bool (*const kinds[])(struct walk *) = { receive, reopen_some, lose, revise, ask_copies, move, fill };
	struct walk walk = { .w = *state };
	uint64_t seed = getenv("HENG_SEED") ? strtoull(getenv("HENG_SEED"), NULL, 10) : (uint64_t)clock_wall_us();

	print_message("seed %llu (HENG_SEED)\n", (unsigned long long)seed);
	rng_seed(&walk.rng, seed);
	walk.t = planned(walk.w, id_a, "batch", OBJECTS, CHUNKS);
	for (size_t i = 0; i < OBJECTS; i++)
		walk.file_ids[i] = i + 1;
	walk.last_file_id = OBJECTS;
	for (unsigned step = 0; step < ROUNDS * STEPS; step++) {
		size_t kind = rng_below(&walk.rng, COUNT_OF(kinds));
		walk.steps[kind] += kinds[kind](&walk);
		counters_agree(walk.w, id_a);
		assert_int_equal(walk.w->store->ops->transfer_get(walk.w->store, id_a, &walk.t, &walk.w->err), 0);
		assert_int_equal(walk.t.object_count, OBJECTS);
		assert_int_equal(walk.t.chunk_count, OBJECTS * CHUNKS);
		if (step % STEPS == STEPS - 1)
			reopen(walk.w);
	}
	for (size_t kind = 0; kind < COUNT_OF(kinds); kind++)
		assert_true(walk.steps[kind] > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = { CASE(test_counts_whatever_is_done) };

	return drivers_run(tests, COUNT_OF(tests));
}
