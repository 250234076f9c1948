#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/rng.h"
#include "core/ring.h"

#define KEY_COUNT  200000
#define POOL_COUNT 8

static struct ring *build(const struct ring_node *nodes, size_t count)
{
	struct ring *ring = NULL;
	struct err err = ERR_INIT;

	if (ring_build(nodes, count, &ring, &err) != 0)
		fail_msg("%s", err.text);
	return ring;
}

static struct ring *build_ids(const char *const *ids, size_t count)
{
	struct ring_node nodes[64];

	assert_true(count <= COUNT_OF(nodes));
	for (size_t i = 0; i < count; i++)
		nodes[i] = (struct ring_node){ .id = ids[i], .weight_milli = 1000 };
	return build(nodes, count);
}

static uint64_t path_hash(unsigned number)
{
	char key[32];
	int size = snprintf(key, sizeof(key), "T path %u", number);

	return ring_hash_key(key, (size_t)size);
}

/* Written by an independent model (sorting all distances, XXH3 from the system's library): placement must never change by accident, as chunks
 * are found by it. */
static void test_golden(void **state)
{
	static const struct ring_node nodes[] = {
		{ "n1", 1000, NULL }, { "n2", 1000, NULL }, { "n3", 1000, NULL }, { "n4", 2000, NULL }
	};
	static const struct {
		uint64_t hash;
		const char *owners[4];
	} rows[] = {
		{ 0x68ef28c823324907, { "n4", "n1", "n2", "n3" } }, { 0xee80b16e9a52c416, { "n4", "n2", "n3", "n1" } },
		{ 0x6002972fcff1982a, { "n4", "n2", "n3", "n1" } }, { 0x0b5515ca65426c14, { "n4", "n1", "n2", "n3" } },
		{ 0xd5ccabe085d7ff83, { "n4", "n1", "n3", "n2" } }, { 0xb2c1ed121fb73701, { "n1", "n3", "n2", "n4" } },
		{ 0xa95a83e7b26cd519, { "n4", "n2", "n3", "n1" } }, { 0x75ccaa967a39f768, { "n4", "n1", "n2", "n3" } },
		{ 0x4775cfb4f3d024bb, { "n4", "n3", "n2", "n1" } }, { 0xe797b2bf953bebf9, { "n4", "n3", "n2", "n1" } },
		{ 0x5d2ebd6ec2c43ee2, { "n3", "n4", "n2", "n1" } }, { 0x1ca6a174f216abc9, { "n4", "n2", "n1", "n3" } },
		{ 0x3f62ad9072b2eabe, { "n4", "n1", "n2", "n3" } }, { 0xc1892d3958aa3f42, { "n4", "n1", "n3", "n2" } },
		{ 0x828042201de0c701, { "n4", "n2", "n1", "n3" } }, { 0x32fcf2c3961acca4, { "n4", "n3", "n1", "n2" } },
		{ 0xcb7886179249bb6c, { "n1", "n4", "n3", "n2" } }, { 0xb76376b9069874d5, { "n3", "n4", "n2", "n1" } },
		{ 0x3f00197011bcc38d, { "n2", "n1", "n3", "n4" } }, { 0x3f7f887bef80f0f9, { "n3", "n1", "n4", "n2" } },
	};
	struct ring *ring = build(nodes, 4);
	uint16_t candidates[4];

	(void)state;
	assert_int_equal(hash64("n1\0\0\0\0", 7), 0xc39ce7446ee20c42); /* virtual node 0 of n1 */
	assert_int_equal(ring_point_count(ring), 800);
	for (unsigned i = 0; i < COUNT_OF(rows); i++) {
		assert_int_equal(path_hash(i), rows[i].hash);
		assert_string_equal(ring_node_id(ring, (size_t)ring_owner(ring, rows[i].hash)), rows[i].owners[0]);
		assert_int_equal(ring_candidates(ring, rows[i].hash, 4, candidates), 4);
		for (size_t j = 0; j < 4; j++)
			assert_string_equal(ring_node_id(ring, candidates[j]), rows[i].owners[j]);
	}
	ring_free(&ring);
	assert_null(ring);
	ring_free(&ring);
}

static void test_empty_one_and_weightless(void **state)
{
	static const struct ring_node nodes[] = { { "a", 0, NULL }, { "b", 1, NULL }, { "c", 0, NULL } };
	struct ring *ring = build(NULL, 0);
	uint16_t candidates[4];
	struct ring_batch *batch = ring_batch_new(ring, 100, 100);

	(void)state;
	assert_int_equal(ring_owner(ring, 0), -1);
	assert_int_equal(ring_candidates(ring, 7, 4, candidates), 0);
	assert_int_equal(ring_batch_assign(batch, 7, 1), -1);
	ring_batch_free(&batch);
	assert_null(batch);
	ring_free(&ring);

	ring = build(nodes, 1);
	assert_int_equal(ring_node_count(ring), 1);
	assert_int_equal(ring_point_count(ring), 0);
	assert_int_equal(ring_owner(ring, 0), -1);
	ring_free(&ring);

	ring = build(nodes, 3);
	assert_int_equal(ring_point_count(ring), 1); /* the smallest weight is still a point */
	assert_int_equal(ring_owner(ring, 0), 1);
	assert_int_equal(ring_owner(ring, UINT64_MAX), 1);
	assert_int_equal(ring_candidates(ring, UINT64_MAX, 4, candidates), 1);
	assert_int_equal(candidates[0], 1);
	assert_int_equal(ring_candidates(ring, 5, 0, candidates), 0);
	ring_free(&ring);
}

static void test_refusals(void **state)
{
	static const char long_id[] = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
	static const struct {
		struct ring_node nodes[2];
		size_t count;
		enum err_code code;
		const char *word;
	} rows[] = {
		{ { { "a", 1000, NULL }, { "a", 0, NULL } }, 2, ERR_NODE_CONFLICT, "'a'" },
		{ { { "a", 1000, NULL }, { "", 1000, NULL } }, 2, ERR_CONFIG, "node 1" },
		{ { { NULL, 1000, NULL } }, 1, ERR_CONFIG, "node 0" },
		{ { { "a b", 1000, NULL } }, 1, ERR_CONFIG, "node 0" },
		{ { { "\xc3\xa9", 1000, NULL } }, 1, ERR_CONFIG, "node 0" },
		{ { { long_id, 1000, NULL } }, 1, ERR_CONFIG, "1 to 64" },
		{ { { "a", UINT32_MAX, NULL } }, 1, ERR_LIMIT, "weights" },
		{ { { "a", 104857600, NULL }, { "b", 1000, NULL } }, 2, ERR_LIMIT, "weights" },
		{ { { NULL, 0, NULL } }, RING_NODES_MAX + 1, ERR_LIMIT, "4097 nodes" },
	};
	struct ring *ring = NULL;

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct err err = ERR_INIT;

		assert_int_equal(ring_build(rows[i].nodes, rows[i].count, &ring, &err), -(int)rows[i].code);
		assert_int_equal(err.code, rows[i].code);
		assert_non_null(strstr(err.text, rows[i].word));
		assert_null(ring);
	}
	ring = build_ids((const char *const[]){ long_id + 1, "A-z_0.9" }, 2);
	ring_free(&ring);
}

static void test_twenty_chunks_reach_all_of_four_nodes(void **state)
{
	struct ring *ring = build_ids((const char *const[]){ "n1", "n2", "n3", "n4" }, 4);
	unsigned counts[4] = { 0 };

	(void)state;
	for (unsigned i = 0; i < 20; i++)
		counts[ring_owner(ring, path_hash(i))]++;
	for (size_t i = 0; i < 4; i++)
		assert_in_range(counts[i], 1, 12);
	ring_free(&ring);
}

static void test_list_order_means_nothing(void **state)
{
	static const char *const ids[] = { "n1", "n10", "n2", "N1", "z", "a.b" };
	static const char *const shuffled[] = { "z", "n2", "a.b", "N1", "n1", "n10" };
	struct ring *one = build_ids(ids, 6), *other = build_ids(shuffled, 6);
	uint16_t a[6], b[6];

	(void)state;
	for (unsigned i = 0; i < 2000; i++) {
		assert_int_equal(ring_candidates(one, path_hash(i), 6, a), 6);
		assert_int_equal(ring_candidates(other, path_hash(i), 6, b), 6);
		for (size_t j = 0; j < 6; j++)
			assert_string_equal(ring_node_id(one, a[j]), ring_node_id(other, b[j]));
	}
	ring_free(&one);
	ring_free(&other);
}

/* Removing a node gives each of its keys to the next candidate and touches no other key; read backwards, so does adding one. */
static void test_a_node_less_moves_only_its_keys(void **state)
{
	static const char *const ids[] = { "n1", "n2", "n3", "n4", "n5" };
	static const char *const less[] = { "n1", "n2", "n4", "n5" };
	struct ring *before = build_ids(ids, 5), *after = build_ids(less, 4);
	unsigned moved_count = 0;
	uint16_t candidates[2];

	(void)state;
	for (unsigned i = 0; i < KEY_COUNT; i++) {
		uint64_t hash = path_hash(i);
		const char *now = ring_node_id(after, (size_t)ring_owner(after, hash));

		assert_int_equal(ring_candidates(before, hash, 2, candidates), 2);
		assert_int_equal(candidates[0], ring_owner(before, hash));
		if (strcmp(ring_node_id(before, candidates[0]), "n3") == 0) {
			moved_count++;
			assert_string_equal(now, ring_node_id(before, candidates[1]));
		} else {
			assert_string_equal(now, ring_node_id(before, candidates[0]));
		}
	}
	assert_in_range(moved_count, KEY_COUNT / 5 * 95 / 100, KEY_COUNT / 5 * 105 / 100);
	ring_free(&before);
	ring_free(&after);
}

static void test_a_weight_moves_keys_of_that_node_only(void **state)
{
	struct ring_node nodes[] = { { "n1", 1000, NULL }, { "n2", 1000, NULL }, { "n3", 2000, NULL } };
	struct ring *before = build(nodes, 3), *after;
	unsigned moved_count = 0;

	(void)state;
	nodes[1].weight_milli = 1500;
	after = build(nodes, 3);
	assert_int_equal(ring_point_count(after), ring_point_count(before) + 80);
	for (unsigned i = 0; i < KEY_COUNT; i++) {
		int was = ring_owner(before, path_hash(i)), is = ring_owner(after, path_hash(i));

		if (was != is) {
			assert_int_equal(is, 1);
			moved_count++;
		}
	}
	/* From 1/4 to 1.5/4.5: a twelfth of all keys. */
	assert_in_range(moved_count, KEY_COUNT / 12 * 85 / 100, KEY_COUNT / 12 * 115 / 100);
	ring_free(&before);
	ring_free(&after);
}

/* Shares against weights in parts per thousand; pools of 3 to 10 nodes of weights 1 to 4. */
static void test_share_follows_weight_within_five_percent(void **state)
{
	struct rng rng;

	(void)state;
	rng_seed(&rng, 2016);
	for (size_t pool = 0; pool < POOL_COUNT; pool++) {
		size_t count = 3 + pool;
		struct ring_node nodes[POOL_COUNT + 3];
		char ids[POOL_COUNT + 3][16];
		uint64_t owned[POOL_COUNT + 3] = { 0 }, weight_sum = 0;
		struct ring *ring;

		for (size_t i = 0; i < count; i++) {
			(void)snprintf(ids[i], sizeof(ids[i]), "node-%zu", i + 1);
			nodes[i] = (struct ring_node){ ids[i], 1000 * (1 + (uint32_t)((i * 7 + pool) % 4)), NULL };
			weight_sum += nodes[i].weight_milli;
		}
		ring = build(nodes, count);
		for (size_t i = 0; i < 1000000; i++)
			owned[ring_owner(ring, rng_u64(&rng))]++;
		for (size_t i = 0; i < count; i++) {
			uint64_t fair = 1000000 * (uint64_t)nodes[i].weight_milli / weight_sum;

			if (owned[i] * 1000 < fair * 950 || owned[i] * 1000 > fair * 1050)
				fail_msg("pool of %zu, %s of weight %u owns %llu, fair is %llu", count, ids[i],
					 nodes[i].weight_milli, (unsigned long long)owned[i], (unsigned long long)fair);
		}
		ring_free(&ring);
	}
}

static void test_domains_take_turns(void **state)
{
	/* c and d have no label: each is a domain of its own. f would be the third domain, but has no points. */
	static const struct ring_node nodes[] = { { "a1", 1000, "rack-a" }, { "a2", 4000, "rack-a" },
						  { "b1", 1000, "rack-b" }, { "c", 500, NULL },
						  { "d", 500, NULL },       { "f", 0, "rack-f" } };
	struct ring *ring = build(nodes, 6);
	uint16_t got[8];
	unsigned second_is_other_count = 0;

	(void)state;
	for (unsigned i = 0; i < 2000; i++) {
		unsigned a_count = 0, mask = 0;

		assert_int_equal(ring_candidates(ring, path_hash(i), 8, got), 5);
		assert_int_equal(got[0], ring_owner(ring, path_hash(i)));
		for (size_t j = 0; j < 5; j++) {
			mask |= 1u << got[j];
			a_count += j < 4 && got[j] <= 1;
		}
		assert_int_equal(mask, 0x1f);
		assert_int_equal(a_count, 1);  /* the first four: one of each domain */
		assert_in_range(got[4], 0, 1); /* then the one passed over */
		assert_int_equal(ring_candidates(ring, path_hash(i), 2, got + 5), 2);
		assert_memory_equal(got, got + 5,
				    2 * sizeof(got[0])); /* a shorter list is the beginning of the longer */
		second_is_other_count += got[0] <= 1;
	}
	assert_in_range(second_is_other_count, 1000, 1700);
	ring_free(&ring);
}

static void test_batch_is_bounded_by_weight(void **state)
{
	static const struct ring_node nodes[] = {
		{ "n1", 1000, NULL }, { "n2", 1000, NULL }, { "n3", 2000, NULL }, { "n4", 0, NULL }
	};
	struct ring *ring = build(nodes, 4);
	struct ring_batch *batch = ring_batch_new(ring, 40000, 20), *again = ring_batch_new(ring, 40000, 20);
	uint64_t bytes[4] = { 0 };
	unsigned kept_count = 0;

	(void)state;
	for (unsigned i = 0; i < 4000; i++) {
		int node = ring_batch_assign(batch, path_hash(i), 10);

		assert_int_equal(node, ring_batch_assign(again, path_hash(i), 10));
		bytes[node] += 10;
		kept_count += node == ring_owner(ring, path_hash(i));
	}
	assert_in_range(bytes[0], 9000, 10200);
	assert_in_range(bytes[1], 9000, 10200);
	assert_in_range(bytes[2], 19000, 20400);
	assert_int_equal(bytes[3], 0);
	assert_true(kept_count > 3800); /* bounds move few keys */
	ring_batch_free(&batch);
	ring_batch_free(&again);
	ring_free(&ring);
}

static void test_batch_when_nothing_fits(void **state)
{
	struct ring *ring = build_ids((const char *const[]){ "n1", "n2", "n3" }, 3);
	struct ring_batch *batch = ring_batch_new(ring, 900, 0);
	unsigned seen = 0;
	uint16_t order[3];
	uint64_t held_bytes, cap_bytes;

	(void)state;
	/* A chunk greater than any share goes to its owner, which is full from then on. */
	assert_int_equal(ring_candidates(ring, 42, 3, order), 3);
	assert_int_equal(ring_batch_assign(batch, 42, 700), order[0]);
	assert_int_equal(ring_batch_assign(batch, 42, 200), order[1]);
	assert_int_equal(ring_batch_assign(batch, 42, 200), order[2]);
	assert_int_equal(ring_batch_assign(batch, 42, 200), order[0]);
	assert_int_equal(ring_batch_assign(batch, 42, 100), order[1]);
	assert_int_equal(ring_batch_assign(batch, 42, 0), order[0]);
	for (size_t i = 0; i < 3; i++) {
		static const uint64_t expected[] = { 900, 300, 200 };
		uint64_t held, cap;

		ring_batch_load(batch, order[i], &held, &cap);
		assert_int_equal(held, expected[i]);
		assert_int_equal(cap, 300);
	}
	ring_batch_free(&batch);
	/* The greatest numbers neither wrap nor stop. */
	batch = ring_batch_new(ring, UINT64_MAX, UINT32_MAX);
	for (unsigned i = 0; i < 100; i++)
		seen |= 1u << ring_batch_assign(batch, path_hash(i), UINT64_MAX / 128);
	assert_int_equal(seen, 7);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(ring_batch_assign(batch, 42, UINT64_MAX), order[0]);
	ring_batch_load(batch, order[0], &held_bytes, &cap_bytes);
	assert_true(held_bytes == UINT64_MAX && cap_bytes == UINT64_MAX);
	ring_batch_free(&batch);
	ring_free(&ring);
}

/* More nodes than the first list of candidates that a spill looks at. */
static void test_batch_spills_past_the_first_candidates(void **state)
{
	struct ring_node nodes[40];
	char ids[40][8];
	uint64_t held[40] = { 0 };
	struct ring_batch *batch;
	struct ring *ring;

	(void)state;
	for (size_t i = 0; i < 40; i++) {
		(void)snprintf(ids[i], sizeof(ids[i]), "n%zu", i);
		nodes[i] = (struct ring_node){ ids[i], 1000, NULL };
	}
	ring = build(nodes, 40);
	batch = ring_batch_new(ring, 40, 0);
	for (unsigned i = 0; i < 40; i++)
		held[ring_batch_assign(batch, 99, 1)]++;
	for (size_t i = 0; i < 40; i++)
		assert_int_equal(held[i], 1);
	ring_batch_free(&batch);
	ring_free(&ring);
}

/* The quick search must agree with the definition, also where the ring closes. */
static void test_owner_agrees_with_first_candidate_everywhere(void **state)
{
	static const struct ring_node nodes[] = { { "n1", 7, NULL }, { "n2", 13, NULL }, { "n3", 1000, NULL } };
	static const uint64_t ends[] = { 0, 1, UINT64_MAX, UINT64_MAX - 1, 1ull << 63, (1ull << 63) - 1 };
	struct rng rng;

	(void)state;
	rng_seed(&rng, 7);
	for (size_t count = 1; count <= 3; count++) {
		struct ring *ring = build(nodes, count);
		uint16_t first;

		for (size_t i = 0; i < 5000; i++) {
			uint64_t hash = i < COUNT_OF(ends) ? ends[i] : rng_u64(&rng);

			assert_int_equal(ring_candidates(ring, hash, 1, &first), 1);
			assert_int_equal(first, ring_owner(ring, hash));
		}
		ring_free(&ring);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_golden),
		cmocka_unit_test(test_empty_one_and_weightless),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_twenty_chunks_reach_all_of_four_nodes),
		cmocka_unit_test(test_list_order_means_nothing),
		cmocka_unit_test(test_a_node_less_moves_only_its_keys),
		cmocka_unit_test(test_a_weight_moves_keys_of_that_node_only),
		cmocka_unit_test(test_share_follows_weight_within_five_percent),
		cmocka_unit_test(test_domains_take_turns),
		cmocka_unit_test(test_batch_is_bounded_by_weight),
		cmocka_unit_test(test_batch_when_nothing_fits),
		cmocka_unit_test(test_batch_spills_past_the_first_candidates),
		cmocka_unit_test(test_owner_agrees_with_first_candidate_everywhere),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
