/* Merging while the folder is still being sent: what was put together early is used when it is right, and only then. */
/* The world is a second source of this test; tests are built from one. */
#include "folder/merge_world.c"

#include "folder/merge_impl.h"

#define T0 1700000000123456789

static int setup(void **state)
{
	*state = world_new();
	return 0;
}

static int teardown(void **state)
{
	struct world *world = *state;

	world_free(&world);
	return 0;
}

struct seq_of {
	const char *path;
	uint64_t seq;
};

static int find_seq(void *owner, const struct store_entry *entry)
{
	struct seq_of *seq = owner;

	if (str_eq_c(entry->path, seq->path))
		seq->seq = entry->seq;
	return 0;
}

/* Two files of several chunks, one of one, some in a pack, an empty one, a link, folders. */
static void make_source(struct world *world)
{
	char name[64];

	world_folder(world, "d");
	world_folder(world, "d/e");
	world_file(world, "a", 5 * WORLD_CHUNK_BYTES + 3, 1, 0644, T0);
	world_file(world, "b", 2 * WORLD_CHUNK_BYTES, 2, 0400, T0 + 1);
	world_file(world, "one", WORLD_CHUNK_BYTES, 3, 0600, T0 + 2);
	world_file(world, "nothing", 0, 0, 0444, 1);
	for (unsigned i = 0; i < 20; i++) {
		snprintf(name, sizeof(name), "d/e/%02u", i);
		world_file(world, name, 500 + i, 10 + i, 0640, T0 + i);
	}
	assert_int_equal(symlinkat("../a", world->source_fd, "d/link"), 0);
	world_attributes(world, "d/e", 0555, T0 + 5);
	world_attributes(world, "d", 02750, T0 + 6);
	world_attributes(world, ".", 0755, T0 + 7);
}

static int get_count(struct world *world)
{
	return atomic_load(&world->nodes[0].get_count) + atomic_load(&world->nodes[1].get_count);
}

static void refresh(struct world *world)
{
	struct err err = ERR_INIT;

	GOOD(world->store->ops->transfer_get(world->store, world->transfer.id, &world->transfer, &err));
}

/* One chunk after the other, as receipts come. Until the last of them `but_last` are kept back. */
static void send_chunks(struct world *world, size_t but_last)
{
	struct chunk_list *list = chunks_of(world);

	for (size_t i = 0; i + but_last < list->count; i++) {
		if (list->chunks[i].state == CHUNK_STORED)
			continue;
		put_chunk(world, &list->chunks[i]);
		merge_ahead(world->merge, world->transfer.id);
	}
	free(list);
}

static void wait_gets(struct world *world, int count)
{
	int64_t until_us = clock_mono_us() + WAIT_LIMIT_US;

	while (get_count(world) < count) {
		if (clock_mono_us() > until_us)
			fail_msg("%d of %d chunks were pulled ahead", get_count(world), count);
		nap();
	}
}

static void begin(struct world *world)
{
	make_source(world);
	world_merge_start(world);
	plan(world, "batch");
	refresh(world);
}

/* Digests are bound and the transfer goes to merging. */
static void complete(struct world *world)
{
	world_resend(world);
	merge_enqueue(world->merge, world->transfer.id, 0);
}

/* Everything is there when the sender is done: no chunk is asked for twice. */
static void test_all_ahead(void **state)
{
	struct world *world = *state;

	begin(world);
	int count = (int)world->transfer.chunk_count;
	send_chunks(world, 0);
	wait_gets(world, count);
	refresh(world);
	assert_int_equal(world->transfer.state, TRANSFER_UPLOADING);
	assert_string_equal(world->transfer.reason, "");
	complete(world);
	world_assert_completed(world);
	assert_int_equal(get_count(world), count);
}

/* Nothing is made in the final place before, and nothing of what is made ahead waits for the whole. */
static void test_complete_in_the_middle(void **state)
{
	struct world *world = *state;

	begin(world);
	int count = (int)world->transfer.chunk_count;
	send_chunks(world, 3);
	wait_gets(world, count - 3);
	assert_int_equal(faccessat(world->final_fd, "batch", F_OK, 0), -1);
	complete(world);
	world_assert_completed(world);
	assert_int_equal(get_count(world), count);
}

static void test_one_thread_md5(void **state)
{
	struct world *world = *state;

	world->digest = DIGEST_MD5;
	world->options.object_limit_count = 1;
	world->options.node_connection_limit = 1;
	begin(world);
	send_chunks(world, 0);
	complete(world);
	world_assert_completed(world);
}

/* Nodes on this machine are read where the chunks lie, here as there. */
static void test_local(void **state)
{
	struct world *world = *state;

	atomic_store(&world->nodes[0].place, WORLD_PLACE_TRUE);
	atomic_store(&world->nodes[1].place, WORLD_PLACE_TRUE);
	begin(world);
	send_chunks(world, 2);
	complete(world);
	world_assert_completed(world);
	assert_int_equal(get_count(world), 0);
}

static void test_switched_off(void **state)
{
	struct world *world = *state;

	world->options.is_ahead_off = true;
	begin(world);
	send_chunks(world, 0);
	assert_int_equal(world_dir_count(world->staging_fd), 0);
	assert_int_equal(get_count(world), 0);
	complete(world);
	world_assert_completed(world);
}

/* A chunk is sent again with other bytes after the first were put together: the file changed, and its digest is the new one's. */
static void replaced_after(struct world *world, const char *path, size_t size)
{
	struct store *store = world->store;
	struct err err = ERR_INIT;
	uint64_t reopened_count;

	begin(world);
	int count = (int)world->transfer.chunk_count;
	send_chunks(world, 0);
	wait_gets(world, count);
	uint64_t file_id = world_file_id(world, path);
	GOOD(store->ops->chunks_reopen(store, world->transfer.id, file_id, NULL, CHUNK_LOST, "test", 1, &reopened_count,
				       &err));
	assert_int_equal(unlinkat(world->source_fd, path, 0), 0);
	world_file(world, path, size, 4711, 0600, T0);
	send_chunks(world, 0);
	complete(world);
	/* Times of the plan: the new bytes stand under the old entry. */
	world_wait(world, TRANSFER_COMPLETED);
	world_wait_job_end(world);
	int final_fd = openat(world->final_fd, "batch", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(final_fd >= 0);
	assert_same_bytes(world->source_fd, final_fd, path);
	close(final_fd);
	assert_int_equal(get_count(world), count + (int)reopened_count);
}

static void test_file_replaced(void **state) { replaced_after(*state, "a", 5 * WORLD_CHUNK_BYTES + 3); }
static void test_pack_member_replaced(void **state) { replaced_after(*state, "d/e/07", 507); }

/* Rot on a node before the merge: the file alone comes again, as without running ahead. */
static void test_rot(void **state)
{
	struct world *world = *state;
	struct store_chunk bad;

	begin(world);
	struct chunk_list *list = chunks_of(world);
	for (size_t i = 0; i < list->count; i++)
		put_chunk(world, &list->chunks[i]);
	free(list);
	uint64_t file_id = world_file_id(world, "a");
	assert_true(world_chunk(world, file_id, 2, &bad));
	world_flip_byte(world, &bad);
	merge_ahead(world->merge, world->transfer.id);
	wait_gets(world, (int)world->transfer.chunk_count);
	complete(world);
	world_wait(world, TRANSFER_UPLOADING);
	assert_non_null(strstr(world->transfer.reason, "'a'"));
	world_wait_job_end(world);
	assert_int_equal(world_count_in_state(world, CHUNK_PENDING), 6);
	assert_false(world_chunk_is_there(world, &bad));
	/* Running ahead begins anew with what is sent again. */
	send_chunks(world, 0);
	complete(world);
	world_assert_completed(world);
}

/* The digest that is bound in the end is of other bytes than were sent: the whole file is to be read again. */
static void test_digest_of_other_bytes(void **state)
{
	struct world *world = *state;
	struct store *store = world->store;
	struct err err = ERR_INIT;
	char digests[1][DIGEST_HEX_SIZE];
	uint64_t seqs[1] = { 1 };

	begin(world);
	send_chunks(world, 0);
	wait_gets(world, (int)world->transfer.chunk_count);
	bind_all(world);
	digest_of(world->digest, "other", 5, digests[0]);
	GOOD(store->ops->bind_digests(store, world->transfer.id, seqs, (const char(*)[DIGEST_HEX_SIZE])digests, 1,
				      &err));
	refresh(world);
	GOOD(store->ops->transfer_move(store, &world->transfer, TRANSFER_MERGING, "", false, 1, &err));
	merge_enqueue(world->merge, world->transfer.id, 0);
	world_wait(world, TRANSFER_UPLOADING);
	world_wait_job_end(world);
	assert_int_equal(world_count_in_state(world, CHUNK_PENDING), 6);
	complete(world);
	world_assert_completed(world);
}

/* --- entries change under it --- */

static const struct store_ops *true_ops;
static const char *revised_path;
static atomic_bool is_revised;

struct revising {
	int (*each)(void *owner, const struct store_entry *entry);
	void *owner;
};

static int revise_entry(void *owner, const struct store_entry *entry)
{
	struct revising *revising = owner;
	struct store_entry changed = *entry;

	if (atomic_load(&is_revised) && str_eq_c(entry->path, revised_path))
		changed.mode = 0711;
	return revising->each(revising->owner, &changed);
}

static int revised_entries(struct store *store, const char *transfer_id, uint64_t from_seq, uint64_t to_seq_inclusive,
			   int (*each)(void *owner, const struct store_entry *entry), void *owner, struct err *err)
{
	struct revising revising = { each, owner };

	return true_ops->entries(store, transfer_id, from_seq, to_seq_inclusive, revise_entry, &revising, err);
}

static void revised(struct world *world, const char *path)
{
	struct store_ops ops = *world->store->ops;

	true_ops = world->store->ops;
	revised_path = path;
	atomic_store(&is_revised, false);
	ops.entries = revised_entries;
	world->store->ops = &ops;
	begin(world);
	send_chunks(world, 0);
	wait_gets(world, (int)world->transfer.chunk_count);
	atomic_store(&is_revised, true);
	assert_int_equal(fchmodat(world->source_fd, path, 0711, 0), 0);
	complete(world);
	world_assert_completed(world);
	merge_stop(&world->merge);
	world->store->ops = true_ops;
}

static void test_file_revised(void **state) { revised(*state, "b"); }
static void test_member_revised(void **state) { revised(*state, "d/e/03"); }
static void test_empty_file_revised(void **state) { revised(*state, "nothing"); }
static void test_folder_revised(void **state) { revised(*state, "d/e"); }

/* A file of its own and a member of a pack are planned anew, as other objects, while all was put together: other bytes, sizes and times. */
static void test_planned_anew(void **state)
{
	static const struct {
		const char *path;
		size_t size;
	} rows[] = { { "a", 3 * WORLD_CHUNK_BYTES + 1 }, { "d/e/05", 77 } };
	struct world *world = *state;
	struct plan_change changes[COUNT_OF(rows)];
	struct plan_facts facts;
	struct err err = ERR_INIT;

	begin(world);
	send_chunks(world, 0);
	wait_gets(world, (int)world->transfer.chunk_count);
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct seq_of seq = { .path = rows[i].path };
		GOOD(world->store->ops->entries(world->store, world->transfer.id, 0, INT64_MAX, find_seq, &seq, &err));
		assert_int_equal(unlinkat(world->source_fd, rows[i].path, 0), 0);
		world_file(world, rows[i].path, rows[i].size, 99 + (unsigned)i, 0604, T0 + 99);
		changes[i] = (struct plan_change){
			.seq = seq.seq, .size_bytes = rows[i].size, .mtime_ns = T0 + 99, .mode = 0604
		};
	}
	/* Making files anew touched their folders. */
	world_attributes(world, "d/e", 0555, T0 + 5);
	world_attributes(world, ".", 0755, T0 + 7);
	refresh(world);
	GOOD(plan_revised_facts(world->store, &world->transfer, changes, COUNT_OF(changes), &facts, &err));
	struct pool_ring *ring = pool_ring_get(world->pool);
	GOOD(plan_revise(world->store, ring->ring, &world->transfer, changes, COUNT_OF(changes), &facts, NULL, &err));
	pool_ring_put(world->pool, ring);
	assert_true(world_count_in_state(world, CHUNK_PENDING) > 0);
	complete(world);
	world_assert_completed(world);
}

/* --- an object that the plan has no more --- */

struct late {
	atomic_bool is_armed, is_held; /* held: its files are known, none of them is made yet */
	uint64_t first_seq, last_seq;
	atomic_uint_least64_t new_file_id; /* 0: not planned anew yet */
	atomic_bool is_list_over;          /* whoever pulls the other objects has seen all, the new one too */
};

static struct late late;

static int late_entries(struct store *store, const char *transfer_id, uint64_t from_seq, uint64_t to_seq_inclusive,
			int (*each)(void *owner, const struct store_entry *entry), void *owner, struct err *err)
{
	int result = true_ops->entries(store, transfer_id, from_seq, to_seq_inclusive, each, owner, err);

	if (from_seq != late.first_seq || to_seq_inclusive != late.last_seq || !atomic_exchange(&late.is_armed, false))
		return result;
	atomic_store(&late.is_held, true);
	while (!atomic_load(&late.is_list_over))
		nap();
	return result;
}

static int late_objects(struct store *store, const char *transfer_id, uint64_t after_file_id, size_t limit,
			int (*each)(void *owner, const struct store_object *object), void *owner, struct err *err)
{
	uint64_t new_file_id = atomic_load(&late.new_file_id);

	if (new_file_id != 0 && after_file_id >= new_file_id)
		atomic_store(&late.is_list_over, true);
	return true_ops->objects(store, transfer_id, after_file_id, limit, each, owner, err);
}

static void revise_member(struct world *world, const char *path, size_t size)
{
	struct seq_of seq = { .path = path };
	struct plan_facts facts;
	struct err err = ERR_INIT;

	GOOD(true_ops->entries(world->store, world->transfer.id, 0, INT64_MAX, find_seq, &seq, &err));
	assert_int_equal(unlinkat(world->source_fd, path, 0), 0);
	world_file(world, path, size, 99, 0604, T0 + 99);
	const struct plan_change change = { .seq = seq.seq, .size_bytes = size, .mtime_ns = T0 + 99, .mode = 0604 };
	refresh(world);
	GOOD(plan_revised_facts(world->store, &world->transfer, &change, 1, &facts, &err));
	struct pool_ring *ring = pool_ring_get(world->pool);
	GOOD(plan_revise(world->store, ring->ring, &world->transfer, &change, 1, &facts, NULL, &err));
	pool_ring_put(world->pool, ring);
}

/* A pack is on its way here when one of its members is planned anew, and goes on, for a while, when the pack in its place is here already: what it
 * makes then must not stand where the new one's files were. */
static void test_former_object_comes_late(void **state)
{
	struct world *world = *state;
	struct store_ops ops = *world->store->ops;
	struct chunk_list *list;

	true_ops = world->store->ops;
	ops.entries = late_entries;
	ops.objects = late_objects;
	world->store->ops = &ops;
	world->options.object_limit_count = 2;
	begin(world);
	struct seq_of first = { .path = "d/e/00" }, last = { .path = "d/e/19" };
	struct err err = ERR_INIT;
	GOOD(true_ops->entries(world->store, world->transfer.id, 0, INT64_MAX, find_seq, &first, &err));
	GOOD(true_ops->entries(world->store, world->transfer.id, 0, INT64_MAX, find_seq, &last, &err));
	late.first_seq = first.seq;
	late.last_seq = last.seq;
	atomic_store(&late.new_file_id, 0);
	atomic_store(&late.is_held, false);
	atomic_store(&late.is_list_over, false);

	/* The others' chunks but that of "one", then the pack's, of which half comes. */
	uint64_t pack_id = world_file_id(world, "d/e/00"), one_id = world_file_id(world, "one");
	list = chunks_of(world);
	int count = 0;
	for (size_t i = 0; i < list->count; i++)
		if (list->chunks[i].file_id != pack_id && list->chunks[i].file_id != one_id) {
			put_chunk(world, &list->chunks[i]);
			merge_ahead(world->merge, world->transfer.id);
			count++;
		}
	wait_gets(world, count);
	atomic_store(&late.is_armed, true);
	for (size_t i = 0; i < list->count; i++)
		if (list->chunks[i].file_id == pack_id) {
			for (unsigned n = 0; n < WORLD_NODE_COUNT; n++)
				atomic_store(&world->nodes[n].cut_count,
					     strcmp(world->nodes[n].id, list->chunks[i].target_node) == 0);
			put_chunk(world, &list->chunks[i]);
			merge_ahead(world->merge, world->transfer.id);
		}
	free(list);
	while (!atomic_load(&late.is_held))
		nap();
	revise_member(world, "d/e/01", 77);
	world_attributes(world, "d/e", 0555, T0 + 5);
	atomic_store(&late.new_file_id, world_file_id(world, "d/e/01"));
	assert_int_not_equal(atomic_load(&late.new_file_id), pack_id);
	send_chunks(world, 0);
	while (!atomic_load(&late.is_list_over))
		nap();
	complete(world);
	world_assert_completed(world);
	merge_stop(&world->merge);
	world->store->ops = true_ops;
}

/* --- giving up --- */

static void test_cancelled(void **state)
{
	struct world *world = *state;
	struct err err = ERR_INIT;

	begin(world);
	send_chunks(world, 2);
	wait_gets(world, (int)world->transfer.chunk_count - 2);
	assert_int_equal(world_dir_count(world->staging_fd), 1);
	refresh(world);
	GOOD(world->store->ops->transfer_move(world->store, &world->transfer, TRANSFER_FAILED, "cancelled", false, 1,
					      &err));
	world_wait_job_end(world);
	assert_int_equal(world_dir_count(world->final_fd), 1);
}

/* A floor that the disk is below already: it does not even begin. */
static void test_no_space(void **state)
{
	struct world *world = *state;

	world->options.free_floor_bytes = (uint64_t)1 << 60;
	begin(world);
	send_chunks(world, 0);
	assert_int_equal(get_count(world), 0);
	complete(world);
	world_assert_completed(world);
}

/* What a node does meanwhile is nobody's concern before the merge proper: nothing is noted, nothing reopened. */
static void test_node_trouble(void **state)
{
	struct world *world = *state;

	begin(world);
	atomic_store(&world->nodes[0].is_answering_503, true);
	send_chunks(world, 1);
	wait_gets(world, 3);
	refresh(world);
	assert_int_equal(world->transfer.state, TRANSFER_UPLOADING);
	assert_string_equal(world->transfer.reason, "");
	assert_int_equal(world_count_in_state(world, CHUNK_STORED), world->transfer.chunk_count - 1);
	atomic_store(&world->nodes[0].is_answering_503, false);
	complete(world);
	world_assert_completed(world);
}

static void test_node_down(void **state)
{
	struct world *world = *state;
	char note[STORE_NODE_ID_SIZE + 8];

	begin(world);
	struct chunk_list *list = chunks_of(world);
	const char *down = list->chunks[0].target_node;
	for (size_t i = 0; i < list->count; i++) {
		if (strcmp(list->chunks[i].target_node, down) == 0)
			continue;
		put_chunk(world, &list->chunks[i]);
		merge_ahead(world->merge, world->transfer.id);
	}
	unsigned index = strcmp(down, world->nodes[0].id) == 0 ? 0 : 1;
	snprintf(note, sizeof(note), "node %s", down);
	free(list);
	world_node_stop(world, index);
	complete(world);
	world_wait_note(world, note);
	world_node_start(world, index);
	world_assert_completed(world);
}

static atomic_bool is_entries_held;

/* Fails, but not before it is let go. */
static int held_entries(struct store *store, const char *transfer_id, uint64_t from_seq, uint64_t to_seq_inclusive,
			int (*each)(void *owner, const struct store_entry *entry), void *owner, struct err *err)
{
	bool was_held = atomic_load(&is_entries_held);

	while (atomic_load(&is_entries_held))
		nap();
	if (was_held)
		return err_set(err, ERR_STORE, "reading entries: database or disk is full");
	return true_ops->entries(store, transfer_id, from_seq, to_seq_inclusive, each, owner, err);
}

/* It comes to nothing just when the merge is wanted: the merge begins from nothing, at once. */
static void test_given_up_while_wanted(void **state)
{
	struct world *world = *state;
	struct store_ops ops = *world->store->ops;

	begin(world);
	struct chunk_list *list = chunks_of(world);
	for (size_t i = 0; i < list->count; i++)
		put_chunk(world, &list->chunks[i]);
	free(list);
	world_resend(world);
	/* Back to where it would be if the last receipt were just coming in. */
	struct err err = ERR_INIT;
	GOOD(world->store->ops->transfer_move(world->store, &world->transfer, TRANSFER_UPLOADING, "", true, 1, &err));
	true_ops = world->store->ops;
	ops.entries = held_entries;
	atomic_store(&is_entries_held, true);
	world->store->ops = &ops;
	merge_ahead(world->merge, world->transfer.id);
	while (world_dir_count(world->staging_fd) == 0)
		nap();
	GOOD(true_ops->transfer_move(world->store, &world->transfer, TRANSFER_MERGING, "", true, 1, &err));
	merge_enqueue(world->merge, world->transfer.id, 0);
	atomic_store(&is_entries_held, false);
	world_wait(world, TRANSFER_COMPLETED);
	world_wait_job_end(world);
	merge_stop(&world->merge);
	world->store->ops = true_ops;
	world_assert_completed(world);
}

static void test_stop_and_resume(void **state)
{
	struct world *world = *state;

	begin(world);
	send_chunks(world, 2);
	wait_gets(world, (int)world->transfer.chunk_count - 2);
	int64_t began_us = clock_mono_us();
	merge_stop(&world->merge);
	assert_true(clock_mono_us() - began_us < 5 * SEC_US);
	/* As after a kill: the next start clears what is there. */
	assert_int_equal(world_dir_count(world->staging_fd), 1);
	world_merge_start(world);
	assert_int_equal(world_dir_count(world->staging_fd), 0);
	send_chunks(world, 1);
	complete(world);
	world_assert_completed(world);
}

/* --- records --- */

static void test_records(void **state)
{
	(void)state;
	struct merge_records records = { .fd = memfd_create("records", MFD_CLOEXEC) };
	struct merge_record record = { .facts = 0 };
	struct err err = ERR_INIT;

	for (uint64_t seq = 0; seq < 3 * MERGE_RECORDS_MAX; seq++) {
		/* One gap of one, and another at the end of a page. */
		if (seq == 7 || seq == MERGE_RECORDS_MAX)
			continue;
		record.facts = seq + 1;
		memset(record.digest, (int)(seq & 0xff), sizeof(record.digest));
		GOOD(merge_records_put(&records, seq, &record, &err));
	}
	GOOD(merge_records_flush(&records, &err));
	for (uint64_t seq = 0; seq < 4 * MERGE_RECORDS_MAX; seq += 3) {
		bool is_there = seq != 7 && seq != MERGE_RECORDS_MAX && seq < 3 * MERGE_RECORDS_MAX;
		GOOD(merge_records_get(&records, seq, &record, &err));
		assert_int_equal(record.facts, is_there ? seq + 1 : 0);
	}
	GOOD(merge_records_get(&records, 7, &record, &err));
	assert_int_equal(record.facts, 0);
	GOOD(merge_records_get(&records, MERGE_RECORDS_MAX + 1, &record, &err));
	assert_int_equal(record.facts, MERGE_RECORDS_MAX + 2);
	assert_int_equal(record.digest[31], 1);
	merge_records_fini(&records);
	close(records.fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_all_ahead, setup, teardown),
		cmocka_unit_test_setup_teardown(test_complete_in_the_middle, setup, teardown),
		cmocka_unit_test_setup_teardown(test_one_thread_md5, setup, teardown),
		cmocka_unit_test_setup_teardown(test_local, setup, teardown),
		cmocka_unit_test_setup_teardown(test_switched_off, setup, teardown),
		cmocka_unit_test_setup_teardown(test_file_replaced, setup, teardown),
		cmocka_unit_test_setup_teardown(test_pack_member_replaced, setup, teardown),
		cmocka_unit_test_setup_teardown(test_rot, setup, teardown),
		cmocka_unit_test_setup_teardown(test_digest_of_other_bytes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_file_revised, setup, teardown),
		cmocka_unit_test_setup_teardown(test_member_revised, setup, teardown),
		cmocka_unit_test_setup_teardown(test_empty_file_revised, setup, teardown),
		cmocka_unit_test_setup_teardown(test_folder_revised, setup, teardown),
		cmocka_unit_test_setup_teardown(test_planned_anew, setup, teardown),
		cmocka_unit_test_setup_teardown(test_former_object_comes_late, setup, teardown),
		cmocka_unit_test_setup_teardown(test_cancelled, setup, teardown),
		cmocka_unit_test_setup_teardown(test_no_space, setup, teardown),
		cmocka_unit_test_setup_teardown(test_node_trouble, setup, teardown),
		cmocka_unit_test_setup_teardown(test_node_down, setup, teardown),
		cmocka_unit_test_setup_teardown(test_given_up_while_wanted, setup, teardown),
		cmocka_unit_test_setup_teardown(test_stop_and_resume, setup, teardown),
		cmocka_unit_test(test_records),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
