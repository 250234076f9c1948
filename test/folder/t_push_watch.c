/* Nodes that hang, with the clock wound by hand: calls are begun and never go anywhere. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "folder/push_impl.h"

#define CHUNKS 4
#define CUT    4096
#define N1     0u
#define N2     1u
#define N3     2u

struct world {
	struct push push;
	struct push_options options;
	int64_t now_us;
	char notices[4096];
};

static void notice(void *owner, const char *line)
{
	struct world *world = owner;
	size_t size = strlen(world->notices);
	snprintf(world->notices + size, sizeof(world->notices) - size, "%s\n", line);
}

/* Three nodes, and chunks that want n2, then n3, then n1. */
static int setup(void **state)
{
	struct world *world = must_zalloc(1, sizeof(*world));
	struct push *push = &world->push;
	struct err err = ERR_INIT;
	static const char *const ids[] = { "n1", "n2", "n3" };

	world->now_us = 1000 * SEC_US;
	world->options = (struct push_options){
		.url = "http://127.0.0.1:1", .digest = DIGEST_SHA256, .notice = notice, .owner = world
	};
	push->options = &world->options;
	snprintf(push->transfer_id, sizeof(push->transfer_id), "01ARZ3NDEKTSV4RRFFQ69G5FAV");
	snprintf(push->api_key_header, sizeof(push->api_key_header), "X-Api-Key: k");
	push->nodes = must_zalloc(PUSH_NODES_MAX, sizeof(*push->nodes));
	push->chunk_bytes = CUT;
	push->walk.total_bytes = CHUNKS * CUT;
	push->parallel = push->copies = 1;
	world->options.parallel = push->parallel = CHUNKS;
	rng_seed(&push->rng, 7);
	pthread_mutex_init(&push->shared.lock, NULL);
	pthread_cond_init(&push->shared.buffer_came, NULL);
	*state = world;
	if (fetch_new(&push->fetch, &err) < 0 || push_buffers_make(push, &err) < 0)
		return -1;
	for (size_t i = 0; i < COUNT_OF(ids); i++) {
		uint16_t index;
		assert_int_equal(push_node_index(push, str_from(ids[i]), &index, &err), 0);
		snprintf(push->nodes[index].addr, sizeof(push->nodes[index].addr), "127.0.0.1:%zu", i + 1);
	}
	push->is_nodes_wanted = false;
	push_send_begin(push);
	for (uint64_t i = 0; i < CHUNKS; i++) {
		struct push_chunk *chunk = push_chunks_take(&push->shared.free);
		chunk->file_id = 1;
		chunk->chunk_index = i;
		chunk->size_bytes = CUT;
		snprintf(chunk->ticket, sizeof(chunk->ticket), "1.ticket");
		digest_of(DIGEST_SHA256, chunk->data, CUT, chunk->digest);
		chunk->nodes[0] = N2;
		chunk->nodes[1] = N3;
		chunk->nodes[2] = N1;
		chunk->node_count = 3;
		chunk->copies_left = 1;
		push_chunks_add(&push->shared.ready, chunk);
	}
	return 0;
}

static int teardown(void **state)
{
	struct world *world = *state;
	push_send_end(&world->push);
	fetch_free(&world->push.fetch);
	push_buffers_free(&world->push);
	free(world->push.nodes);
	free(world->push.shared.digested);
	pthread_cond_destroy(&world->push.shared.buffer_came);
	pthread_mutex_destroy(&world->push.shared.lock);
	free(world);
	return 0;
}

static void step(struct world *world, int64_t passed_us)
{
	struct err err = ERR_INIT;
	world->now_us += passed_us;
	assert_int_equal(push_send_step(&world->push, world->now_us, &err), 0);
}

static unsigned under_way_at(const struct world *world, unsigned node)
{
	unsigned count = 0;
	for (const struct push_chunk *chunk = world->push.sending.head; chunk != NULL; chunk = chunk->next)
		count += chunk->phase == CHUNK_IS_SENDING && chunk->sent_to == node;
	return count;
}

static struct push_chunk *at(struct world *world, uint64_t index)
{
	for (struct push_chunk *chunk = world->push.sending.head; chunk != NULL; chunk = chunk->next) {
		if (chunk->chunk_index == index)
			return chunk;
	}
	fail_msg("chunk %u is not under way", (unsigned)index);
	return NULL;
}

/* The question about the nodes comes back; NULL: without an answer. */
static void nodes_say(struct world *world, const char *text)
{
	struct push *push = &world->push;
	assert_true(push->is_nodes_running);
	fetch_cancel(push->fetch, &push->nodes_call);
	if (text == NULL)
		err_set(&push->nodes_call.err, ERR_TIMEOUT, "no answer");
	else
		assert_true(buf_append_c(&push->nodes_call.answer, text));
	push->is_nodes_done = true;
}

static void chunk_answers(struct world *world, uint64_t index, int status, const char *text)
{
	struct push_chunk *chunk = at(world, index);
	fetch_cancel(world->push.fetch, &chunk->call);
	chunk->call.status = status;
	assert_true(buf_append_c(&chunk->call.answer, text));
	chunk->is_done = true;
}

#define STORED "{\"state\":\"stored\"}"
#define NODES(n1, n2, n3)                                                                                         \
	"{\"nodes\":[{\"id\":\"n1\",\"addr\":\"127.0.0.1:1\"," n1 "},{\"id\":\"n2\",\"addr\":\"127.0.0.1:2\"," n2 \
	"},{\"id\":\"n3\",\"addr\":\"127.0.0.1:3\"," n3 "}]}"
#define WELL   "\"takes_work\":true,\"missed\":0"
#define MISSED "\"takes_work\":true,\"missed\":1"
#define OUT    "\"takes_work\":false,\"missed\":3"
#define BARRED "\"takes_work\":false,\"missed\":0"

static void test_nobody_is_asked_while_all_is_well(void **state)
{
	struct world *world = *state;
	step(world, 0);
	assert_int_equal(under_way_at(world, N2), CHUNKS);
	/* Bytes move, or answers to others come: both are life. */
	for (int i = 0; i < 20; i++) {
		for (struct push_chunk *chunk = world->push.sending.head; chunk != NULL; chunk = chunk->next)
			chunk->call.bytes_sent++;
		step(world, 2 * SEC_US);
		assert_false(world->push.is_nodes_running);
	}
	chunk_answers(world, 0, 200, STORED);
	step(world, 2 * SEC_US);
	step(world, 2 * SEC_US);
	assert_false(world->push.is_nodes_running);
	assert_int_equal(world->push.nodes_try_count, 0);
	step(world, 1 * SEC_US);
	assert_true(world->push.is_nodes_running);
}

static void test_a_silent_node_that_is_doubted_loses_its_chunks(void **state)
{
	static const struct {
		const char *says;
		unsigned lost_to; /* N2: it keeps them */
	} rows[] = {
		{ NODES(WELL, WELL, WELL), N2 },
		{ NODES(WELL, MISSED, WELL), N3 },
		{ NODES(WELL, OUT, WELL), N3 },
		{ NODES(WELL, BARRED, WELL), N3 },
		/* The next one that is well, not just the next one. */
		{ NODES(WELL, OUT, OUT), N1 },
		{ NODES(WELL, OUT, MISSED), N1 },
		/* Where none is well, nothing would be won. */
		{ NODES(OUT, OUT, OUT), N2 },
		{ NODES(MISSED, MISSED, MISSED), N2 },
		/* Without an answer, or with one that is none, all stays as it is. */
		{ NULL, N2 },
		{ "", N2 },
		{ "[]", N2 },
		{ "{}", N2 },
	};
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		if (i > 0)
			assert_int_equal(setup(state), 0);
		struct world *world = *state;
		step(world, 0);
		step(world, 3 * SEC_US - 1);
		assert_false(world->push.is_nodes_running);
		step(world, 1);
		assert_true(world->push.is_nodes_running);
		nodes_say(world, rows[i].says);
		step(world, 1);
		/* What was heard counts from the next step on. */
		step(world, 1);
		if (under_way_at(world, rows[i].lost_to) != CHUNKS)
			print_error("row %zu\n", i);
		assert_int_equal(under_way_at(world, rows[i].lost_to), CHUNKS);
		assert_int_equal(world->push.progress.retries, rows[i].lost_to == N2 ? 0 : CHUNKS);
		/* Each of them was paid for as any attempt that is made again. */
		assert_true((at(world, 0)->try_count == 2) == (rows[i].lost_to != N2));
		if (i + 1 < COUNT_OF(rows))
			assert_int_equal(teardown(state), 0);
	}
}

static void test_an_old_word_does_not_count(void **state)
{
	struct world *world = *state;
	struct err err = ERR_INIT;
	json_t *root = json_loads(NODES(WELL, OUT, WELL), 0, NULL);
	assert_int_equal(push_take_nodes(&world->push, root, &err), 0);
	json_decref(root);
	world->push.nodes_heard_us = world->now_us;
	step(world, 0);
	step(world, 2 * SEC_US);
	/* Silent only since the last answer, however old the other calls are. */
	chunk_answers(world, 0, 200, STORED);
	step(world, 1 * SEC_US);
	assert_false(world->push.is_nodes_running);
	step(world, 3 * SEC_US);
	step(world, 1);
	assert_int_equal(under_way_at(world, N2), CHUNKS - 1);
	assert_true(world->push.is_nodes_running);
}

static void test_one_question_at_a_time_and_fewer_and_fewer(void **state)
{
	struct world *world = *state;
	int64_t asked_us = 0, gap_us = 0;
	step(world, 0);
	step(world, 3 * SEC_US);
	for (unsigned asked_count = 1; asked_count < 12; asked_count++) {
		assert_true(world->push.is_nodes_running);
		assert_int_equal(world->push.nodes_try_count, asked_count);
		asked_us = world->now_us;
		/* Nobody answers for long: no second one. */
		if (asked_count == 1) {
			step(world, 4 * SEC_US);
			assert_int_equal(world->push.nodes_try_count, 1);
		}
		nodes_say(world, NODES(WELL, WELL, WELL));
		for (int i = 0; i < 100 && (i == 0 || !world->push.is_nodes_running); i++)
			step(world, 100 * MSEC_US);
		gap_us = world->now_us - asked_us;
		assert_true(gap_us >= SEC_US && gap_us < 7 * SEC_US);
	}
}

static void test_a_node_given_up_is_left_alone_until_it_is_back(void **state)
{
	struct world *world = *state;
	struct push_node *node = &world->push.nodes[N2];
	step(world, 0);
	step(world, 3 * SEC_US);
	nodes_say(world, NODES(WELL, OUT, WELL));
	step(world, 1);
	step(world, 1);
	assert_int_equal(under_way_at(world, N3), CHUNKS);
	assert_non_null(strstr(world->notices, "node n2 at 127.0.0.1:2 does not answer"));
	/* As long as the scheduler doubts it, longer than a node is left alone otherwise. */
	for (int i = 0; i < 400; i++) {
		if (world->push.is_nodes_running)
			nodes_say(world, NODES(WELL, OUT, WELL));
		for (struct push_chunk *chunk = world->push.sending.head; chunk != NULL; chunk = chunk->next)
			chunk->call.bytes_sent++;
		step(world, 100 * MSEC_US);
		assert_true(node->down_until_us > world->now_us);
	}
	while (!world->push.is_nodes_running)
		step(world, 100 * MSEC_US);
	nodes_say(world, NODES(WELL, WELL, WELL));
	step(world, 1);
	assert_true(node->down_until_us <= world->now_us);
	assert_int_equal(under_way_at(world, N3), CHUNKS);
}

int main(void)
{
#define ROW(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
	const struct CMUnitTest tests[] = {
		ROW(test_nobody_is_asked_while_all_is_well),
		ROW(test_a_silent_node_that_is_doubted_loses_its_chunks),
		ROW(test_an_old_word_does_not_count),
		ROW(test_one_question_at_a_time_and_fewer_and_fewer),
		ROW(test_a_node_given_up_is_left_alone_until_it_is_back),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
