#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "folder/push_impl.h"

#include "sys/fs.h"

/* --- plan pages --- */
struct heard {
	unsigned object_count, chunk_count, node_count;
	uint64_t last_file, last_chunk;
	char states[64];
};

static int hear(void *owner, const struct push_plan_line *line, struct err *err)
{
	(void)err;
	struct heard *heard = owner;
	heard->last_file = line->file_id;
	if (line->is_object) {
		heard->object_count++;
		return 0;
	}
	heard->chunk_count++;
	heard->last_chunk = line->chunk_index;
	heard->node_count += line->node_count;
	snprintf(heard->states, sizeof(heard->states), "%.*s", STR_ARG(line->state));
	return 0;
}

static void test_plan_pages(void **state)
{
	(void)state;
	static const struct {
		const char *text;
		int result;
		unsigned objects, chunks, nodes;
		bool more;
	} rows[] = {
		{ "N 0 5\n", 0, 0, 0, 0, false },
		{ "N 1 5\n", 0, 0, 0, 0, true },
		{ "O 1 0 3 3 10 2 t1\nC 1 0 8 pending - n1 n2 n3\nC 1 1 2 stored aa n2\nN 1 99\n", 0, 1, 2, 4, true },
		{ "O 7 1 3 9 10 1 t1\nC 7 0 10 lost - a b c d e\nN 0 1\n", 0, 1, 1, 5, false },
		{ "O 7 1 3 9 10 1 t1\nC 7 0 10 pending - \nN 0 1\n", 0, 1, 1, 0, false },
		/* What is cut off, doubled, or not a line of a plan, is no plan. */
		{ "", -ERR_PEER, 0, 0, 0, false },
		{ "O 1 0 3 3 10 2 t1\n", -ERR_PEER, 1, 0, 0, false },
		{ "N 0 5\nN 0 5\n", -ERR_PEER, 0, 0, 0, false },
		{ "N 2 5\n", -ERR_PEER, 0, 0, 0, false },
		{ "N 0\n", -ERR_PEER, 0, 0, 0, false },
		{ "N 0 -5\n", -ERR_PEER, 0, 0, 0, false },
		{ "O 0 0 3 3 10 2 t1\nN 0 5\n", -ERR_PEER, 0, 0, 0, false },
		{ "O 1 2 3 3 10 2 t1\nN 0 5\n", -ERR_PEER, 0, 0, 0, false },
		{ "O 1 0 4 3 10 2 t1\nN 0 5\n", -ERR_PEER, 0, 0, 0, false },
		{ "O 1 0 3 3 0 2 t1\nN 0 5\n", -ERR_PEER, 0, 0, 0, false },
		{ "O 1 0 3 3 10 2\nN 0 5\n", -ERR_PEER, 0, 0, 0, false },
		{ "O 1 0 3 3 10 2 t1 more\nN 0 5\n", -ERR_PEER, 0, 0, 0, false },
		{ "C 1 0 8 pending - a b c d e f\nN 0 5\n", -ERR_PEER, 0, 0, 0, false },
		{ "C 1 0 0 pending - a\nN 0 5\n", -ERR_PEER, 0, 0, 0, false },
		{ "C 1 99999999999999999999 8 pending - a\nN 0 5\n", -ERR_PEER, 0, 0, 0, false },
		{ "C 1 0 8 pending\nN 0 5\n", -ERR_PEER, 0, 0, 0, false },
		{ "X 1\nN 0 5\n", -ERR_PEER, 0, 0, 0, false },
		{ "\nN 0 5\n", -ERR_PEER, 0, 0, 0, false },
	};
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct heard heard = { 0 };
		struct err err = ERR_INIT;
		bool more = false;
		int64_t time_us = 0;
		int r = push_plan_parse(str_from(rows[i].text), hear, &heard, &more, &time_us, &err);
		if (r != rows[i].result)
			print_error("row %zu: %s\n", i, err.text);
		assert_int_equal(r, rows[i].result);
		if (r < 0)
			continue;
		assert_int_equal(heard.object_count, rows[i].objects);
		assert_int_equal(heard.chunk_count, rows[i].chunks);
		assert_int_equal(heard.node_count, rows[i].nodes);
		assert_int_equal(more, rows[i].more);
	}
}

static void test_a_chunk_list_keeps_its_order_when_moved(void **state)
{
	(void)state;
	struct push_chunk chunks[3] = { { .file_id = 0 }, { .file_id = 1 }, { .file_id = 2 } };
	struct push_chunks list, moved;
	push_chunks_init(&list);
	assert_null(push_chunks_take(&list));
	for (int i = 0; i < 3; i++)
		push_chunks_add(&list, &chunks[i]);
	moved = list;
	push_chunks_init(&list);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(push_chunks_take(&moved)->file_id, i);
	assert_null(push_chunks_take(&moved));
	push_chunks_add(&moved, &chunks[1]);
	assert_ptr_equal(push_chunks_take(&moved), &chunks[1]);
	assert_null(push_chunks_take(&list));
}

static void test_backoff_is_jittered_and_bounded(void **state)
{
	(void)state;
	struct push push = { .pass = 1 };
	rng_seed(&push.rng, 42);
	for (unsigned try_count = 0; try_count < 40; try_count++) {
		int64_t most_us = 0, ceiling_us = try_count >= 7
							  ? 5 * SEC_US
							  : (100 * MSEC_US) << (try_count > 0 ? try_count - 1 : 0);
		ceiling_us = min_i64(ceiling_us, 5 * SEC_US);
		for (int i = 0; i < 200; i++) {
			int64_t wait_us = push_backoff_us(&push, try_count);
			assert_true(wait_us > 0 && wait_us <= ceiling_us + 5 * MSEC_US);
			most_us = max_i64(most_us, wait_us);
		}
		assert_true(most_us > ceiling_us / 2);
	}
}

static void test_answers_of_the_scheduler(void **state)
{
	(void)state;
	static const struct {
		const char *text;
		int result;
	} rows[] = {
		{ "{\"transfer_id\":\"01ARZ3NDEKTSV4RRFFQ69G5FAV\",\"state\":\"uploading\",\"chunk_bytes\":8,"
		  "\"nodes\":[{\"id\":\"n1\",\"addr\":\"127.0.0.1:1\"}]}",
		  0 },
		{ "{\"transfer_id\":\"../../x\",\"state\":\"uploading\"}", -ERR_PEER },
		{ "{\"transfer_id\":\"01ARZ3NDEKTSV4RRFFQ69G5FAV\",\"state\":\"odd\"}", -ERR_PEER },
		{ "{\"transfer_id\":\"01ARZ3NDEKTSV4RRFFQ69G5FAV\",\"state\":\"merging\",\"transfer_key\":\"12\"}",
		  -ERR_PEER },
		{ "{\"transfer_id\":\"01ARZ3NDEKTSV4RRFFQ69G5FAV\",\"state\":\"merging\",\"nodes\":[{\"id\":\"\"}]}",
		  -ERR_PEER },
	};
	struct push_options options = { .url = "" };
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct err err = ERR_INIT;
		struct push *push = must_zalloc(1, sizeof(*push));
		push->options = &options;
		push->nodes = must_zalloc(PUSH_NODES_MAX, sizeof(*push->nodes));
		json_t *root = json_loads(rows[i].text, 0, NULL);
		assert_non_null(root);
		assert_int_equal(push_take_transfer(push, root, &err), rows[i].result);
		json_decref(root);
		/* A node's address goes into a URL, so that nothing but host and port is taken. */
		root = json_loads("{\"nodes\":[{\"id\":\"n1\",\"addr\":\"127.0.0.1:1/"
				  "x?\"},{\"id\":\"n9\",\"addr\":\"[::1]:2\"}]}",
				  0, NULL);
		assert_int_equal(push_take_nodes(push, root, &err), 0);
		uint16_t index;
		assert_int_equal(push_node_index(push, STR("n1"), &index, &err), 0);
		assert_string_equal(push->nodes[index].addr, i == 0 ? "127.0.0.1:1" : "");
		assert_int_equal(push_node_index(push, STR("n9"), &index, &err), 0);
		assert_string_equal(push->nodes[index].addr, "[::1]:2");
		json_decref(root);
		free(push->nodes);
		free(push);
	}
}

static void test_a_transfer_stays_what_it_is(void **state)
{
	(void)state;
	static const char id[] = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
	static const struct {
		const char *id;
		int chunk_bytes, result;
	} rows[] = { { id, 8, 0 },
		     { "01ARZ3NDEKTSV4RRFFQ69G5FAW", 8, -ERR_PEER },
		     { "", 8, -ERR_PEER },
		     { id, 0, -ERR_PEER },
		     { id, 16, -ERR_PEER } };
	struct push_options options = { .url = "" };
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct err err = ERR_INIT;
		struct push push = { .options = &options, .chunk_bytes = 8 };
		memcpy(push.transfer_id, id, sizeof(id));
		json_t *root = json_pack("{s:s,s:s,s:i}", "transfer_id", rows[i].id, "state", "merging", "chunk_bytes",
					 rows[i].chunk_bytes);
		assert_int_equal(push_take_transfer(&push, root, &err), rows[i].result);
		/* What it is called is still known, so that the user can be told how to go on. */
		assert_string_equal(push.transfer_id, id);
		json_decref(root);
	}
	/* A time that is none moves no clock. */
	struct push push = { .clock_offset_us = 7 };
	push_take_time(&push, INT64_MAX);
	push_take_time(&push, 0);
	assert_int_equal(push.clock_offset_us, 7);
}

/* --- the readers, on a real folder with plans made by hand --- */
#define CUT 4096

struct world {
	char root[64];
	struct push push;
	struct push_options options;
	struct push_chunk chunks[8];
	struct walk_options walk_options;
};

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

static void put(struct world *world, const char *name, size_t size, char first)
{
	int fd = openat(world->push.root_fd, name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	assert_true(fd >= 0);
	for (size_t i = 0; i < size; i++) {
		char byte = (char)(first + (char)(i % 91));
		assert_int_equal(write(fd, &byte, 1), 1);
	}
	struct timespec times[2] = { { .tv_sec = 7 }, { .tv_sec = 7 } };
	assert_int_equal(futimens(fd, times), 0);
	close(fd);
}

/* Entries: 0 the root, 1 "a" (10,000 bytes), 2 "b" (empty), 3 "c" (100), 4 "d" (empty), 5 "e" (200), 6 "z" (empty). */
static int setup(void **state)
{
	struct world *world = must_zalloc(1, sizeof(*world));
	struct err err = ERR_INIT;
	struct push *push = &world->push;
	snprintf(world->root, sizeof(world->root), "/tmp/heng-t-push-XXXXXX");
	if (mkdtemp(world->root) == NULL || fetch_new(&push->fetch, &err) < 0)
		return -1;
	push->root_fd = open(world->root, O_RDONLY | O_DIRECTORY);
	push->manifest_fd = open("/tmp", O_TMPFILE | O_RDWR, 0600);
	push->digests_fd = open("/tmp", O_TMPFILE | O_RDWR, 0600);
	world->options.digest = DIGEST_SHA256;
	push->options = &world->options;
	push->chunk_bytes = CUT;
	push->object_count = 2;
	push->shared.digested = must_zalloc(1, 1);
	push->shared.note_tail = &push->shared.note_head;
	push->shared.digests = BUF_INIT(MIB);
	pthread_mutex_init(&push->shared.lock, NULL);
	pthread_cond_init(&push->shared.object_came, NULL);
	pthread_cond_init(&push->shared.planned_came, NULL);
	pthread_cond_init(&push->shared.buffer_came, NULL);
	for (size_t i = 0; i < COUNT_OF(world->chunks); i++) {
		world->chunks[i].data = must_alloc(CUT);
		push_chunks_add(&push->shared.free, &world->chunks[i]);
	}
	static const struct {
		const char *name;
		size_t size;
	} files[] = { { "a", 10000 }, { "b", 0 }, { "c", 100 }, { "d", 0 }, { "e", 200 }, { "z", 0 } };
	for (size_t i = 0; i < COUNT_OF(files); i++)
		put(world, files[i].name, files[i].size, (char)('A' + i));
	int r = walk_folder(push->root_fd, &world->walk_options, push->manifest_fd, NULL, NULL, &push->walk, &err);
	*state = world;
	return r;
}

static int teardown(void **state)
{
	struct world *world = *state;
	struct push *push = &world->push;
	nftw(world->root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
	close(push->root_fd);
	close(push->manifest_fd);
	close(push->digests_fd);
	for (size_t i = 0; i < COUNT_OF(world->chunks); i++)
		free(world->chunks[i].data);
	while (push->shared.note_head != NULL) {
		struct push_note *note = push->shared.note_head;
		push->shared.note_head = note->next;
		free(note);
	}
	fetch_free(&push->fetch);
	free(push->shared.digested);
	buf_fini(&push->shared.digests);
	free(world);
	return 0;
}

static struct push_object *give_object(struct world *world, uint64_t file_id, uint64_t gap, uint64_t first,
				       uint64_t last, uint64_t size, bool is_pack)
{
	struct err err = ERR_INIT;
	struct push_lines lines;
	struct push_object *object = must_zalloc(1, sizeof(*object));
	push_lines_init(&lines, world->push.manifest_fd);
	assert_int_equal(push_lines_skip(&lines, gap, &err), 0);
	object->tail = &object->head;
	object->file_id = file_id;
	object->gap_seq = gap;
	object->gap_offset = push_lines_place(&lines);
	object->first_seq = first;
	object->last_seq = last;
	object->size_bytes = size;
	object->chunk_count = (size + world->push.chunk_bytes - 1) / world->push.chunk_bytes;
	object->is_pack = is_pack;
	snprintf(object->ticket, sizeof(object->ticket), "ticket%llu", (unsigned long long)file_id);
	push_lines_fini(&lines);
	push_read_object(&world->push, object);
	return object;
}

static void give_chunk(struct world *world, struct push_object *object, uint64_t index, uint64_t size,
		       const char *stored_digest)
{
	struct push_planned *planned = must_zalloc(1, sizeof(*planned));
	planned->chunk_index = index;
	planned->size_bytes = size;
	planned->is_stored = stored_digest != NULL;
	if (stored_digest != NULL)
		snprintf(planned->digest, sizeof(planned->digest), "%s", stored_digest);
	push_read_planned(&world->push, object, planned);
}

/* Waits until the readers have nothing left to do; ends them. */
static void finish(struct world *world)
{
	struct push_shared *shared = &world->push.shared;
	for (;;) {
		pthread_mutex_lock(&shared->lock);
		bool is_done = shared->object_count == 0 || shared->fatal.code != ERR_NONE;
		pthread_mutex_unlock(&shared->lock);
		if (is_done)
			break;
		fetch_step(world->push.fetch, 10 * MSEC_US);
	}
	push_read_end(&world->push);
	struct err err = ERR_INIT;
	assert_int_equal(push_digests_flush(&world->push, &err), 0);
}

static void digest_of_file(struct world *world, const char *name, size_t offset, size_t size,
			   char target[DIGEST_HEX_SIZE])
{
	char data[16384];
	int fd = openat(world->push.root_fd, name, O_RDONLY);
	assert_int_equal(pread(fd, data, size, (off_t)offset), (ssize_t)size);
	close(fd);
	digest_of(DIGEST_SHA256, data, size, target);
}

/* Is "seq digest-of-name" among the lines that go to the scheduler? */
static bool has_digest(struct world *world, uint64_t seq, const char *name, size_t size)
{
	char hex[DIGEST_HEX_SIZE], want[DIGEST_HEX_SIZE + 16], text[4096];
	digest_of_file(world, name, 0, size, hex);
	snprintf(want, sizeof(want), "%llu %s\n", (unsigned long long)seq, hex);
	ssize_t got = pread(world->push.digests_fd, text, sizeof(text) - 1, 0);
	assert_true(got >= 0);
	text[got] = '\0';
	return strstr(text, want) != NULL;
}

static struct push_chunk *find_ready(struct world *world, uint64_t file_id, uint64_t index)
{
	for (struct push_chunk *chunk = world->push.shared.ready.head; chunk != NULL; chunk = chunk->next) {
		if (chunk->file_id == file_id && chunk->chunk_index == index)
			return chunk;
	}
	return NULL;
}

static void begin(struct world *world)
{
	struct err err = ERR_INIT;
	assert_int_equal(push_read_begin(&world->push, &err), 0);
}

static void give_all(struct world *world)
{
	struct push_object *big = give_object(world, 1, 0, 1, 1, 10000, false);
	give_chunk(world, big, 0, 4096, NULL);
	give_chunk(world, big, 1, 4096, NULL);
	give_chunk(world, big, 2, 1808, NULL);
	struct push_object *pack = give_object(world, 2, 2, 3, 5, 300, true);
	give_chunk(world, pack, 0, 300, NULL);
	give_object(world, 0, 6, 7, 7, 0, false);
}

static void test_everything_is_read_once_and_hashed(void **state)
{
	struct world *world = *state;
	begin(world);
	give_all(world);
	finish(world);
	assert_int_equal(atomic_load(&world->push.shared.changed_count), 0);
	assert_int_equal(world->push.shared.fatal.code, ERR_NONE);
	assert_int_equal(atomic_load(&world->push.shared.files_done), 6);
	char hex[DIGEST_HEX_SIZE], pack[300];
	for (uint64_t i = 0; i < 3; i++) {
		struct push_chunk *chunk = find_ready(world, 1, i);
		assert_non_null(chunk);
		digest_of_file(world, "a", i * CUT, i < 2 ? CUT : 1808, hex);
		assert_string_equal(chunk->digest, hex);
		assert_string_equal(chunk->ticket, "ticket1");
		assert_int_equal(chunk->size_bytes, i < 2 ? CUT : 1808);
	}
	struct push_chunk *chunk = find_ready(world, 2, 0);
	assert_non_null(chunk);
	int fd = openat(world->push.root_fd, "c", O_RDONLY);
	assert_int_equal(read(fd, pack, 100), 100);
	close(fd);
	fd = openat(world->push.root_fd, "e", O_RDONLY);
	assert_int_equal(read(fd, pack + 100, 200), 200);
	close(fd);
	assert_memory_equal(chunk->data, pack, 300);
	digest_of(DIGEST_SHA256, pack, 300, hex);
	assert_string_equal(chunk->digest, hex);
	static const struct {
		uint64_t seq, size;
		const char *name;
	} files[] = {
		{ 1, 10000, "a" }, { 2, 0, "b" }, { 3, 100, "c" }, { 4, 0, "d" }, { 5, 200, "e" }, { 6, 0, "z" }
	};
	for (size_t i = 0; i < COUNT_OF(files); i++)
		assert_true(has_digest(world, files[i].seq, files[i].name, files[i].size));
}

static void test_stored_chunks_are_hashed_not_sent(void **state)
{
	struct world *world = *state;
	char first[DIGEST_HEX_SIZE];
	digest_of_file(world, "a", 0, CUT, first);
	begin(world);
	struct push_object *big = give_object(world, 1, 0, 1, 1, 10000, false);
	give_chunk(world, big, 0, 4096, first);
	give_chunk(world, big, 1, 4096, NULL);
	give_chunk(world, big, 2, 1808, NULL);
	finish(world);
	assert_null(find_ready(world, 1, 0));
	assert_non_null(find_ready(world, 1, 1));
	assert_true(has_digest(world, 1, "a", 10000));
	/* In a later pass what has its digest is not read again but for what is to be sent. */
	struct push_chunk *chunk;
	while ((chunk = push_chunks_take(&world->push.shared.ready)) != NULL)
		push_chunks_add(&world->push.shared.free, chunk);
	assert_int_equal(ftruncate(world->push.digests_fd, 0), 0);
	begin(world);
	big = give_object(world, 1, 0, 1, 1, 10000, false);
	give_chunk(world, big, 0, 4096, "not looked at");
	give_chunk(world, big, 1, 4096, "not looked at");
	give_chunk(world, big, 2, 1808, NULL);
	finish(world);
	assert_int_equal(atomic_load(&world->push.shared.changed_count), 0);
	char hex[DIGEST_HEX_SIZE];
	digest_of_file(world, "a", 2 * CUT, 1808, hex);
	assert_string_equal(find_ready(world, 1, 2)->digest, hex);
	assert_false(has_digest(world, 1, "a", 10000));
}

static void test_one_file_in_one_chunk_has_one_digest(void **state)
{
	struct world *world = *state;
	world->push.chunk_bytes = 16384;
	free(world->chunks[0].data);
	world->chunks[0].data = must_alloc(16384);
	begin(world);
	struct push_object *object = give_object(world, 1, 0, 1, 1, 10000, false);
	give_chunk(world, object, 0, 10000, NULL);
	finish(world);
	char hex[DIGEST_HEX_SIZE];
	digest_of_file(world, "a", 0, 10000, hex);
	assert_string_equal(find_ready(world, 1, 0)->digest, hex);
	assert_true(has_digest(world, 1, "a", 10000));
}

/* Each way in which a file can differ from its line in the manifest; and the others are sent all the same. */
static void change(struct world *world, int kind)
{
	int root_fd = world->push.root_fd;
	switch (kind) {
	case 0: /* grown */
		put(world, "c", 101, 'C');
		break;
	case 1: /* shrunk */
		put(world, "c", 99, 'C');
		break;
	case 2: { /* modified, by its time */
		struct timespec times[2] = { { .tv_sec = 8 }, { .tv_sec = 8 } };
		assert_int_equal(utimensat(root_fd, "c", times, 0), 0);
		break;
	}
	case 3: /* vanished */
		assert_int_equal(unlinkat(root_fd, "c", 0), 0);
		break;
	case 4: /* a pipe in its place must not hang anybody */
		assert_int_equal(unlinkat(root_fd, "c", 0), 0);
		assert_int_equal(mkfifoat(root_fd, "c", 0600), 0);
		break;
	case 5: /* a link in its place is not followed */
		assert_int_equal(unlinkat(root_fd, "c", 0), 0);
		assert_int_equal(symlinkat("e", root_fd, "c"), 0);
		break;
	case 6: /* an empty file that is not empty any more */
		put(world, "d", 1, 'D');
		break;
	default:
		put(world, "z", 1, 'D');
	}
}

static void test_changed_files_are_named_and_others_sent(void **state)
{
	for (int kind = 0; kind < 8; kind++) {
		if (kind > 0)
			assert_int_equal(setup(state), 0);
		struct world *world = *state;
		change(world, kind);
		begin(world);
		give_all(world);
		finish(world);
		assert_int_equal(world->push.shared.fatal.code, ERR_NONE);
		assert_int_equal(atomic_load(&world->push.shared.changed_count), 1);
		const struct push_note *note = world->push.shared.note_head;
		assert_true(str_eq_c(note->path, kind < 6 ? "c" : kind == 6 ? "d" : "z"));
		assert_non_null(find_ready(world, 1, 2));
		/* A changed file's pack cannot be sent; an empty file beside it does no harm. */
		assert_true((find_ready(world, 2, 0) == NULL) == (kind < 6));
		assert_true(has_digest(world, 1, "a", 10000));
		if (kind < 7)
			assert_int_equal(teardown(state), 0);
	}
}

static void test_all_changed_files_of_a_pack_are_named(void **state)
{
	struct world *world = *state;
	put(world, "c", 1, 'x');
	put(world, "e", 1, 'x');
	begin(world);
	give_all(world);
	finish(world);
	assert_int_equal(atomic_load(&world->push.shared.changed_count), 2);
}

static void test_other_content_than_was_stored_is_a_change(void **state)
{
	struct world *world = *state;
	begin(world);
	struct push_object *big = give_object(world, 1, 0, 1, 1, 10000, false);
	give_chunk(world, big, 0, 4096, NULL);
	give_chunk(world, big, 1, 4096, "00");
	give_chunk(world, big, 2, 1808, NULL);
	finish(world);
	assert_int_equal(atomic_load(&world->push.shared.changed_count), 1);
	assert_null(find_ready(world, 1, 2));
}

/* A folder in which everything changes is given up at once, and only so many entries are remembered. */
static void test_more_changes_than_can_be_sent_again(void **state)
{
	struct world *world = *state;
	struct push *push = &world->push;
	struct err err = ERR_INIT;
	char name[16];
	const unsigned count = PUSH_REVISE_MAX + 200;
	for (unsigned i = 0; i < count; i++) {
		snprintf(name, sizeof(name), "f%04u", i);
		put(world, name, 1, 'f');
	}
	/* a, b, c, d, e; f0000 to f1199; z */
	assert_int_equal(ftruncate(push->manifest_fd, 0), 0);
	assert_int_equal(
		walk_folder(push->root_fd, &world->walk_options, push->manifest_fd, NULL, NULL, &push->walk, &err), 0);
	free(push->shared.digested);
	push->shared.digested = must_zalloc(push->walk.entry_count / 8 + 1, 1);
	for (unsigned i = 0; i < count; i++) {
		snprintf(name, sizeof(name), "f%04u", i);
		put(world, name, 2, 'f');
	}
	begin(world);
	give_chunk(world, give_object(world, 3, 6, 6, 5 + count, count, true), 0, count, NULL);
	finish(world);
	assert_int_equal(push->shared.fatal.code, ERR_SOURCE_CHANGED);
	assert_non_null(strstr(push->shared.fatal.text, "more than 1000 entries"));
	assert_int_equal(atomic_load(&push->shared.changed_count), PUSH_REVISE_MAX);
	unsigned note_count = 0;
	for (const struct push_note *note = push->shared.note_head; note != NULL; note = note->next)
		note_count++;
	assert_int_equal(note_count, PUSH_REVISE_MAX);
}

/* Patience grows by what a limited rate needs, however often the buffers are made anew for a folder that grew. */
static void test_patience_is_not_added_up(void **state)
{
	(void)state;
	struct push_options options = { .limit_rate_bytes = 64 * KIB };
	struct push push = {
		.options = &options, .patience_us = 60 * SEC_US, .give_up_us = 60 * SEC_US, .parallel = 8
	};
	struct err err = ERR_INIT;
	pthread_mutex_init(&push.shared.lock, NULL);
	pthread_cond_init(&push.shared.buffer_came, NULL);
	push.chunk_bytes = 256 * KIB;
	for (uint64_t size = 64 * KIB; size <= 1024 * KIB; size *= 2) {
		push.walk.total_bytes = size;
		assert_int_equal(push_buffers_make(&push, &err), 0);
		uint64_t chunk = size < push.chunk_bytes ? size : push.chunk_bytes;
		uint64_t parallel = max_size(2, 4 * 64 * KIB / chunk);
		assert_int_equal(push.give_up_us, 60 * SEC_US + (int64_t)(parallel * chunk / (64 * KIB)) * SEC_US);
	}
	push_buffers_free(&push);
	free(push.shared.digested);
	pthread_cond_destroy(&push.shared.buffer_came);
	pthread_mutex_destroy(&push.shared.lock);
}

/* A plan that does not fit the folder ends the push; it never sends something else. */
static void test_plans_that_do_not_fit(void **state)
{
	static const uint64_t sizes[] = { 301, 100 }; /* larger than its files, and smaller */
	for (size_t i = 0; i < COUNT_OF(sizes); i++) {
		if (i > 0)
			assert_int_equal(setup(state), 0);
		struct world *world = *state;
		begin(world);
		give_chunk(world, give_object(world, 2, 2, 3, 5, sizes[i], true), 0, sizes[i], NULL);
		finish(world);
		assert_int_equal(world->push.shared.fatal.code, ERR_PEER);
		if (i == 0)
			assert_int_equal(teardown(state), 0);
	}
}

static void test_readers_end_while_they_wait(void **state)
{
	struct world *world = *state;
	begin(world);
	/* One waits for chunks that never come; the other has nothing to do. */
	give_chunk(world, give_object(world, 1, 0, 1, 1, 10000, false), 0, 4096, NULL);
	push_read_end(&world->push);
	assert_null(world->push.shared.object_head);
	/* And while no buffer is free. */
	while (push_chunks_take(&world->push.shared.free) != NULL)
		continue;
	begin(world);
	give_chunk(world, give_object(world, 1, 0, 1, 1, 10000, false), 0, 4096, NULL);
	push_read_end(&world->push);
}

int main(void)
{
#define ROW(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_plan_pages),
		cmocka_unit_test(test_a_chunk_list_keeps_its_order_when_moved),
		cmocka_unit_test(test_backoff_is_jittered_and_bounded),
		cmocka_unit_test(test_answers_of_the_scheduler),
		cmocka_unit_test(test_a_transfer_stays_what_it_is),
		cmocka_unit_test(test_patience_is_not_added_up),
		ROW(test_everything_is_read_once_and_hashed),
		ROW(test_stored_chunks_are_hashed_not_sent),
		ROW(test_one_file_in_one_chunk_has_one_digest),
		ROW(test_changed_files_are_named_and_others_sent),
		ROW(test_all_changed_files_of_a_pack_are_named),
		ROW(test_other_content_than_was_stored_is_a_change),
		ROW(test_more_changes_than_can_be_sent_again),
		ROW(test_plans_that_do_not_fit),
		ROW(test_readers_end_while_they_wait),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
