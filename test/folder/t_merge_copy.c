/* Merging chunks that two nodes have: what one of them has lost, or spoilt, is read from the other, and nothing is sent again. */
/* The world is a second source of this test; tests are built from one. */
#include "folder/merge_world.c"

#include "folder/merge_impl.h"

#define T0 1700000000123456789

static int setup(void **state)
{
	struct world *world = world_new();
	char name[64];

	world->copies = 2;
	world->options.retry_after_us = 20 * MSEC_US;
	world->options.node_lost_after_us = 3600 * SEC_US;
	world_file(world, "big", 4 * WORLD_CHUNK_BYTES + 17, 1, 0644, T0);
	world_file(world, "one", WORLD_CHUNK_BYTES, 3, 0444, T0 + 2);
	for (unsigned i = 0; i < 20; i++) {
		snprintf(name, sizeof(name), "small%02u", i);
		world_file(world, name, 1000 + 97 * i, 100 + i, 0640, T0 + 1000 + i);
	}
	*state = world;
	return 0;
}

static int teardown(void **state)
{
	struct world *world = *state;

	world_free(&world);
	return 0;
}

static struct store_chunk chunk_of(struct world *world, const char *path, uint64_t chunk_index)
{
	struct store_chunk chunk;

	assert_true(world_chunk(world, world_file_id(world, path), chunk_index, &chunk));
	assert_string_not_equal(chunk.copy_node, "");
	return chunk;
}

static struct store_chunk other_copy(struct store_chunk chunk)
{
	merge_copy_swap(&chunk);
	return chunk;
}

static void damage(struct world *world, const struct store_chunk *chunk, off_t size)
{
	char name[128];
	int dir_fd = world_node_of(world, chunk)->dir_fd;

	world_chunk_name(world, chunk, name);
	if (size < 0) {
		assert_int_equal(unlinkat(dir_fd, name, 0), 0);
		return;
	}
	int fd = openat(dir_fd, name, O_WRONLY | O_CLOEXEC);
	assert_int_equal(ftruncate(fd, size), 0);
	close(fd);
}

/* The transfer never left merging, so no client was asked for anything. */
static void assert_merged_at_once(struct world *world)
{
	int64_t version = world->transfer.version;

	world_assert_completed(world);
	assert_int_equal(world->transfer.version, version + 1);
}

static void test_a_node_is_down(void **state)
{
	struct world *world = *state;

	world_send(world, "batch");
	world_node_stop(world, 0);
	int64_t version = world->transfer.version;
	world_merge_start(world);
	/* Its chunk files stay: it cannot be asked to remove them. */
	world_wait(world, TRANSFER_COMPLETED);
	assert_int_equal(world->transfer.version, version + 1);
	int fd = openat(world->final_fd, world->transfer.batch, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(fd >= 0);
	world_assert_same_tree(world->source_fd, fd);
	close(fd);
}

static void test_a_node_refuses_everything(void **state)
{
	struct world *world = *state;

	world_send(world, "batch");
	world->options.pull_try_limit = 2;
	atomic_store(&world->nodes[1].is_answering_503, true);
	world_merge_start(world);
	assert_merged_at_once(world);
}

enum fault { FLIPPED, GONE, SHORT, LONG };

static void spoil(struct world *world, const struct store_chunk *chunk, enum fault fault)
{
	switch (fault) {
	case FLIPPED:
		world_flip_byte(world, chunk);
		break;
	case GONE:
		damage(world, chunk, -1);
		break;
	case SHORT:
		damage(world, chunk, (off_t)chunk->size_bytes - 1);
		break;
	case LONG:
		damage(world, chunk, (off_t)chunk->size_bytes + 1);
		break;
	}
}

static const struct row {
	const char *path;
	uint64_t chunk_index;
	enum fault fault;
} rows[] = {
	{ "big", 0, FLIPPED }, { "big", 4, FLIPPED },  { "one", 0, FLIPPED }, { "small07", 0, FLIPPED },
	{ "big", 2, GONE },    { "small00", 0, GONE }, { "big", 1, SHORT },   { "one", 0, LONG },
};

/* Each kind of fault, in the copy that is read first. */
static void test_one_copy_is_spoilt(void **state)
{
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct world *world = *state;

		world_send(world, "batch");
		struct store_chunk chunk = chunk_of(world, rows[i].path, rows[i].chunk_index);
		spoil(world, &chunk, rows[i].fault);
		world_merge_start(world);
		assert_merged_at_once(world);
		teardown(state);
		setup(state);
	}
}

static struct store_chunk wait_for_one_copy(struct world *world, const struct store_chunk *chunk)
{
	const int64_t until_us = clock_mono_us() + WAIT_LIMIT_US;
	struct store_chunk left;

	do {
		nap();
		assert_true(world_chunk(world, chunk->file_id, chunk->chunk_index, &left));
		assert_true(clock_mono_us() < until_us);
	} while (left.copy_node[0]);
	return left;
}

/* The node that is read first is away, and what comes from the other one is wrong: that copy goes, and the right one is waited for. */
static void test_the_copy_that_was_read_is_spoilt(void **state)
{
	static const struct {
		const char *path;
		uint64_t chunk_index;
	} spoilt[] = { { "big", 0 }, { "big", 4 }, { "one", 0 }, { "small03", 0 } };

	for (size_t i = 0; i < COUNT_OF(spoilt); i++) {
		struct world *world = *state;

		world_send(world, "batch");
		const struct store_chunk chunk = chunk_of(world, spoilt[i].path, spoilt[i].chunk_index);
		const struct store_chunk read = other_copy(chunk);
		struct store_chunk left;
		const unsigned away = world_node_of(world, &chunk) == &world->nodes[0] ? 0 : 1;
		const int64_t version = world->transfer.version;

		spoil(world, &read, FLIPPED);
		world_node_stop(world, away);
		world_merge_start(world);
		left = wait_for_one_copy(world, &chunk);
		assert_int_equal(left.state, CHUNK_STORED);
		assert_string_equal(left.actual_node, chunk.actual_node);
		world_node_start(world, away);
		world_wait(world, TRANSFER_COMPLETED);
		assert_int_equal(world->transfer.version, version + 1);
		teardown(state);
		setup(state);
	}
}

/* Each node spoils one chunk of the same file, and has the other's. */
static void test_each_node_has_the_others_chunk(void **state)
{
	struct world *world = *state;
	const struct store_chunk *first = NULL, *second = NULL;
	struct store_chunk chunks[5];

	world_send(world, "batch");
	for (uint64_t i = 0; i < COUNT_OF(chunks); i++)
		chunks[i] = chunk_of(world, "big", i);
	first = &chunks[0];
	for (size_t i = 1; i < COUNT_OF(chunks) && !second; i++)
		if (strcmp(chunks[i].actual_node, first->actual_node) != 0)
			second = &chunks[i];
	assert_non_null(second);
	world_flip_byte(world, first);
	world_flip_byte(world, second);
	world_merge_start(world);
	assert_merged_at_once(world);
}

/* In the copy that nobody reads: nothing is noticed. */
static void test_the_second_copy_is_spoilt(void **state)
{
	struct world *world = *state;

	world_send(world, "batch");
	struct store_chunk chunk = other_copy(chunk_of(world, "big", 1));
	spoil(world, &chunk, FLIPPED);
	world_merge_start(world);
	assert_merged_at_once(world);
}

/* Both copies of one chunk: that is sent again, to two nodes, and the rest stays. */
static void test_both_copies_are_spoilt(void **state)
{
	static const enum fault pairs[][2] = {
		{ FLIPPED, FLIPPED }, { GONE, GONE }, { SHORT, GONE }, { GONE, FLIPPED }
	};

	for (size_t i = 0; i < COUNT_OF(pairs); i++) {
		struct world *world = *state;

		world_send(world, "batch");
		struct store_chunk chunk = chunk_of(world, "big", 3), other = other_copy(chunk);
		spoil(world, &chunk, pairs[i][0]);
		spoil(world, &other, pairs[i][1]);
		world_merge_start(world);
		world_wait(world, TRANSFER_UPLOADING);
		assert_true(world->transfer.stored_chunk_count < world->transfer.chunk_count);
		/* What two nodes have of other objects is left alone. */
		(void)chunk_of(world, "one", 0);
		(void)chunk_of(world, "small07", 0);
		world_wait_job_end(world);
		world_resend(world);
		merge_enqueue(world->merge, world->transfer.id, 0);
		world_assert_completed(world);
		teardown(state);
		setup(state);
	}
}

/* The file was another one when its digest was taken: no copy helps, and none may be taken for the new content. */
static void test_the_digest_is_of_other_bytes(void **state)
{
	struct world *world = *state;
	struct store_chunk chunk;
	struct err err = ERR_INIT;
	char digest[1][DIGEST_HEX_SIZE];
	uint64_t seq = 1; /* after the root: "big" */

	world_send(world, "batch");
	GOOD(world->store->ops->transfer_move(world->store, &world->transfer, TRANSFER_UPLOADING, "", true, 1, &err));
	memset(digest[0], 'a', 2 * digest_size(world->digest));
	digest[0][2 * digest_size(world->digest)] = '\0';
	GOOD(world->store->ops->bind_digests(world->store, world->transfer.id, &seq,
					     (const char(*)[DIGEST_HEX_SIZE])digest, 1, &err));
	GOOD(world->store->ops->transfer_move(world->store, &world->transfer, TRANSFER_MERGING, "", true, 1, &err));
	world_merge_start(world);
	world_wait(world, TRANSFER_UPLOADING);
	for (uint64_t i = 0; i < 5; i++) {
		assert_true(world_chunk(world, world_file_id(world, "big"), i, &chunk));
		assert_int_equal(chunk.state, CHUNK_PENDING);
		assert_string_equal(chunk.copy_node, "");
		for (unsigned k = 0; k < WORLD_NODE_COUNT; k++) {
			memcpy(chunk.actual_node, world->nodes[k].id, sizeof(chunk.actual_node));
			assert_false(world_chunk_is_there(world, &chunk));
		}
	}
	world_wait_job_end(world);
	world_resend(world);
	merge_enqueue(world->merge, world->transfer.id, 0);
	world_assert_completed(world);
}

static void test_both_nodes_are_lost(void **state)
{
	struct world *world = *state;

	world->options.node_lost_after_us = 200 * MSEC_US;
	world_send(world, "batch");
	world_node_stop(world, 0);
	world_node_stop(world, 1);
	world_merge_start(world);
	world_wait(world, TRANSFER_UPLOADING);
	assert_int_equal(world->transfer.copied_chunk_count, 0);
	assert_true(world->transfer.stored_chunk_count < world->transfer.chunk_count);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_a_node_is_down, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_node_refuses_everything, setup, teardown),
		cmocka_unit_test_setup_teardown(test_one_copy_is_spoilt, setup, teardown),
		cmocka_unit_test_setup_teardown(test_the_copy_that_was_read_is_spoilt, setup, teardown),
		cmocka_unit_test_setup_teardown(test_each_node_has_the_others_chunk, setup, teardown),
		cmocka_unit_test_setup_teardown(test_the_second_copy_is_spoilt, setup, teardown),
		cmocka_unit_test_setup_teardown(test_both_copies_are_spoilt, setup, teardown),
		cmocka_unit_test_setup_teardown(test_the_digest_is_of_other_bytes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_both_nodes_are_lost, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
