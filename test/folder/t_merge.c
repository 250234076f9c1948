/* Merging against a real store and scripted nodes: what arrives is what was sent, or the transfer says what must come again. */
/* The world is a second source of this test; tests are built from one. */
#include "folder/merge_world.c"

#include <sys/syscall.h>

#include "base/hash.h"
#include "folder/merge_impl.h"
#include "wire/manifest.h"

#define T0 1700000000123456789
#define NAME_255                                                                                               \
	"nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn" \
	"nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn" \
	"nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn"

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

/* A bit of everything: packs, a file of three chunks, nothing, links, names that are no text. */
static void make_source(struct world *world)
{
	char name[64];

	world_folder(world, "sub");
	world_folder(world, "sub/empty");
	world_folder(world, "sub/deep");
	world_file(world, "big", 2 * WORLD_CHUNK_BYTES + 17, 1, 0644, T0);
	world_file(world, "exact", 2 * WORLD_CHUNK_BYTES, 2, 0400, T0 + 1);
	world_file(world, "one", WORLD_CHUNK_BYTES, 3, 04755, T0 + 2);
	world_file(world, "nothing", 0, 0, 0444, 1);
	world_file(world, "sub/\xff\xfe\n", 100, 4, 0600, T0 + 3);
	world_file(world, "sub/" NAME_255, 1, 5, 0666, 999999999);
	for (unsigned i = 0; i < 60; i++) {
		snprintf(name, sizeof(name), "sub/deep/small%02u", i);
		world_file(world, name, 1000 + 97 * i, 100 + i, i % 2 ? 0444 : 0640, T0 + 1000 + i);
	}
	assert_int_equal(symlinkat("../one", world->source_fd, "sub/link"), 0);
	world_attributes(world, "sub/empty", 0700, T0 + 4);
	world_attributes(world, "sub/deep", 0555, T0 + 5);
	world_attributes(world, "sub", 02750, T0 + 6);
	world_attributes(world, ".", 0555, T0 + 7);
}

struct text {
	struct buf manifest; /* without the lines that begin with # */
	size_t digest_count;
};

static void read_manifest(struct world *world, const char *batch, struct text *text)
{
	char path[512];
	struct buf whole = BUF_INIT(MIB);
	struct err err = ERR_INIT;
	struct str rest, line;

	snprintf(path, sizeof(path), "%s/.heng/%s.manifest", world->final_dir, batch);
	GOOD(fs_read_file(path, MIB, &whole, &err));
	rest = buf_str(&whole);
	while (str_cut(&rest, '\n', &line)) {
		if (str_starts(line, STR("# "))) {
			text->digest_count++;
			assert_int_equal(line.size -
						 (size_t)((const char *)memrchr(line.data, ' ', line.size) - line.data),
					 1 + 2 * digest_size(world->digest));
			continue;
		}
		buf_append(&text->manifest, line);
		buf_append_c(&text->manifest, "\n");
	}
	buf_fini(&whole);
}

static void merge_everything(struct world *world)
{
	struct text text = { .manifest = BUF_INIT(MIB) };

	make_source(world);
	world_send(world, "batch \xe4\xb8\xad");
	world_merge_start(world);
	/* More than once is not more than that. */
	merge_enqueue(world->merge, world->transfer.id, 0);
	merge_enqueue(world->merge, world->transfer.id, 0);
	world_assert_completed(world);
	assert_string_equal(world->transfer.reason, "");

	read_manifest(world, world->transfer.batch, &text);
	assert_int_equal(text.digest_count, world->transfer.file_count);
	assert_int_equal(crc32c(0, text.manifest.data, text.manifest.size), world->transfer.manifest_crc32c);
	buf_fini(&text.manifest);

	char path[256];
	merge_final_path(world->merge, str_from(world->transfer.batch), path, sizeof(path));
	assert_int_equal(access(path, F_OK), 0);
	assert_true(merge_batch_exists(world->merge, str_from(world->transfer.batch)));
	assert_false(merge_batch_exists(world->merge, STR("other")));
}

static void test_everything(void **state) { merge_everything(*state); }

static void test_everything_md5_one_by_one(void **state)
{
	struct world *world = *state;

	world->digest = DIGEST_MD5;
	world->options.object_limit_count = 1;
	world->options.node_connection_limit = 1;
	merge_everything(world);
}

/* One object of many chunks: several at once, hashed behind the frontier. */
static void test_window(void **state)
{
	struct world *world = *state;

	world_file(world, "big", 40 * WORLD_CHUNK_BYTES + 1, 9, 0644, T0);
	atomic_store(&world->nodes[0].cut_count, MERGE_TRIES_MAX - 1);
	world->options.node_connection_limit = 3;
	world_send(world, "batch");
	world_merge_start(world);
	world_assert_completed(world);
}

/* Nodes on this machine: their files are read where they lie, and nothing goes over the network. */
static void test_local(void **state)
{
	struct world *world = *state;

	atomic_store(&world->nodes[0].place, WORLD_PLACE_TRUE);
	atomic_store(&world->nodes[1].place, WORLD_PLACE_TRUE);
	merge_everything(world);
	assert_int_equal(atomic_load(&world->nodes[0].get_count) + atomic_load(&world->nodes[1].get_count), 0);
}

/* A path that leads to another file here (another mount namespace, say) is not taken for the chunk. */
static void test_local_but_another_file(void **state)
{
	struct world *world = *state;

	atomic_store(&world->nodes[0].place, WORLD_PLACE_OTHER_FILE);
	atomic_store(&world->nodes[1].place, WORLD_PLACE_TRUE);
	merge_everything(world);
	assert_true(atomic_load(&world->nodes[0].get_count) > 0);
	assert_int_equal(atomic_load(&world->nodes[1].get_count), 0);
}

/* Blocks of zeros are not written, whichever way they come, and a file that ends in them is as long as it was. */
static void holes(struct world *world)
{
	struct stat st;

	int fd = openat(world->source_fd, "holes", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, "x", 1, 3 * WORLD_CHUNK_BYTES + 5), 1);
	assert_int_equal(ftruncate(fd, 6 * WORLD_CHUNK_BYTES + 7), 0);
	close(fd);
	world_send(world, "batch");
	world_merge_start(world);
	world_assert_completed(world);
	assert_int_equal(fstatat(world->final_fd, "batch/holes", &st, 0), 0);
	assert_true(st.st_blocks * 512 <= WORLD_CHUNK_BYTES / 2);
}

static void test_holes(void **state) { holes(*state); }

static void test_holes_local(void **state)
{
	struct world *world = *state;

	atomic_store(&world->nodes[0].place, WORLD_PLACE_TRUE);
	atomic_store(&world->nodes[1].place, WORLD_PLACE_TRUE);
	holes(world);
}

static void test_no_bytes(void **state)
{
	struct world *world = *state;

	world_folder(world, "only");
	world_file(world, "only/nothing", 0, 0, 0600, T0);
	world_send(world, "batch");
	world_merge_start(world);
	world_assert_completed(world);
	assert_int_equal(world->transfer.chunk_count, 0);
}

static void test_many_small(void **state)
{
	struct world *world = *state;
	char name[64];

	/* Packs with more members than are held at once. */
	world_folder(world, "d");
	for (unsigned i = 0; i < 900; i++) {
		snprintf(name, sizeof(name), "d/%03u", i);
		world_file(world, name, 1 + i % 50, i, 0644, T0 + i);
	}
	world_send(world, "batch");
	world_merge_start(world);
	world_assert_completed(world);
}

/* Answers that break off, and a node that has trouble for a moment: tried again, from where it stopped. */
static void test_broken_answers(void **state)
{
	struct world *world = *state;

	make_source(world);
	atomic_store(&world->nodes[0].cut_count, 3);
	atomic_store(&world->nodes[1].cut_count, 3);
	world->options.object_limit_count = 2;
	world_send(world, "batch");
	world_merge_start(world);
	world_assert_completed(world);
}

static void assert_again(struct world *world, uint64_t file_id, enum chunk_state chunk_state, uint64_t count)
{
	struct chunk_list *list = chunks_of(world);

	world_wait_job_end(world);
	for (size_t i = 0; i < list->count; i++) {
		enum chunk_state expected = list->chunks[i].file_id == file_id ? chunk_state : CHUNK_STORED;
		assert_int_equal(list->chunks[i].state, expected);
	}
	free(list);
	assert_int_equal(world_count_in_state(world, chunk_state), count);
	assert_int_equal(faccessat(world->final_fd, world->transfer.batch, F_OK, 0), -1);
}

static void send_again(struct world *world)
{
	world_resend(world);
	merge_enqueue(world->merge, world->transfer.id, 0);
	world_assert_completed(world);
}

/* One byte of one chunk is wrong on its node: only that file comes again, and the node has forgotten the bad chunk only. */
static void test_wrong_chunk(void **state)
{
	struct world *world = *state;
	struct store_chunk bad, good;

	make_source(world);
	world_send(world, "batch");
	uint64_t file_id = world_file_id(world, "big");
	assert_true(world_chunk(world, file_id, 1, &bad));
	assert_true(world_chunk(world, file_id, 2, &good));
	world_flip_byte(world, &bad);
	world_merge_start(world);
	world_wait(world, TRANSFER_UPLOADING);
	assert_non_null(strstr(world->transfer.reason, "'big'"));
	assert_non_null(strstr(world->transfer.reason, bad.actual_node));
	assert_again(world, file_id, CHUNK_PENDING, 3);
	assert_false(world_chunk_is_there(world, &bad));
	assert_true(world_chunk_is_there(world, &good));
	send_again(world);
}

/* Wrong bytes are found whichever way they came. */
static void test_local_wrong_chunk(void **state)
{
	struct world *world = *state;
	struct store_chunk chunk;

	atomic_store(&world->nodes[0].place, WORLD_PLACE_TRUE);
	atomic_store(&world->nodes[1].place, WORLD_PLACE_TRUE);
	world_file(world, "three", 3 * WORLD_CHUNK_BYTES, 3, 0644, T0);
	world_send(world, "batch");
	assert_true(world_chunk(world, world_file_id(world, "three"), 1, &chunk));
	world_flip_byte(world, &chunk);
	world_merge_start(world);
	world_wait(world, TRANSFER_UPLOADING);
	assert_false(world_chunk_is_there(world, &chunk));
	send_again(world);
}

static void test_wrong_pack(void **state)
{
	struct world *world = *state;
	struct store_chunk bad;

	make_source(world);
	world_send(world, "batch");
	uint64_t file_id = world_file_id(world, "sub/deep/small07");
	assert_true(world_chunk(world, file_id, 0, &bad));
	world_flip_byte(world, &bad);
	world_merge_start(world);
	world_wait(world, TRANSFER_UPLOADING);
	assert_again(world, file_id, CHUNK_PENDING, 1);
	assert_false(world_chunk_is_there(world, &bad));
	send_again(world);
}

/* Somebody is writing the bad chunk while it is to be removed. */
static void test_wrong_chunk_while_busy(void **state)
{
	struct world *world = *state;
	struct store_chunk bad;

	make_source(world);
	world_send(world, "batch");
	uint64_t file_id = world_file_id(world, "one");
	assert_true(world_chunk(world, file_id, 0, &bad));
	world_flip_byte(world, &bad);
	atomic_store(&world_node_of(world, &bad)->busy_count, 2);
	world_merge_start(world);
	world_wait(world, TRANSFER_UPLOADING);
	assert_again(world, file_id, CHUNK_PENDING, 1);
	assert_false(world_chunk_is_there(world, &bad));
	send_again(world);
}

/* The chunks are right and the file's digest is not: the client read two different files. All chunks must come anew, so no node keeps one. */
static void test_wrong_digest(void **state)
{
	struct world *world = *state;
	struct store *store = world->store;
	struct err err = ERR_INIT;
	char digests[2][DIGEST_HEX_SIZE];
	uint64_t seqs[2] = { 0, 0 };
	struct store_chunk chunk;

	world_file(world, "a", 3 * WORLD_CHUNK_BYTES, 1, 0644, T0);
	world_file(world, "b", 0, 1, 0644, T0);
	plan(world, "batch");
	struct chunk_list *list = chunks_of(world);
	for (size_t i = 0; i < list->count; i++)
		put_chunk(world, &list->chunks[i]);
	free(list);
	seqs[0] = 1;
	seqs[1] = 2;
	digest_of(world->digest, "other", 5, digests[0]);
	digest_of(world->digest, "other", 5, digests[1]);
	GOOD(store->ops->bind_digests(store, world->transfer.id, seqs, (const char(*)[DIGEST_HEX_SIZE])digests, 2,
				      &err));
	GOOD(store->ops->transfer_get(store, world->transfer.id, &world->transfer, &err));
	GOOD(store->ops->transfer_move(store, &world->transfer, TRANSFER_MERGING, "", false, 1, &err));
	world_merge_start(world);
	world_wait(world, TRANSFER_UPLOADING);
	assert_again(world, 1, CHUNK_PENDING, 3);
	for (uint64_t i = 0; i < 3; i++) {
		assert_true(world_chunk(world, 1, i, &chunk));
		assert_false(world_chunk_is_there(world, &chunk));
	}
	send_again(world);
}

static void test_chunk_gone(void **state)
{
	struct world *world = *state;
	struct store_chunk gone;
	char name[128];

	make_source(world);
	world_send(world, "batch");
	uint64_t file_id = world_file_id(world, "exact");
	assert_true(world_chunk(world, file_id, 0, &gone));
	world_chunk_name(world, &gone, name);
	assert_int_equal(unlinkat(world_node_of(world, &gone)->dir_fd, name, 0), 0);
	world_merge_start(world);
	world_wait(world, TRANSFER_UPLOADING);
	assert_non_null(strstr(world->transfer.reason, gone.actual_node));
	assert_again(world, file_id, CHUNK_LOST, 2);
	send_again(world);
}

static void test_chunk_of_wrong_length(void **state)
{
	static const int64_t changes[] = { -1, 1 };
	struct world *world = *state;
	struct store_chunk chunk;
	char name[128];

	make_source(world);
	world_send(world, "batch");
	uint64_t file_id = world_file_id(world, "big");
	world_merge_start(world);
	world_assert_completed(world);
	(void)file_id;
	for (size_t i = 0; i < COUNT_OF(changes); i++) {
		snprintf(name, sizeof(name), "batch%zu", i);
		for (unsigned n = 0; n < WORLD_NODE_COUNT; n++)
			atomic_store(&world->nodes[n].forget_count, 0);
		world_send(world, name);
		file_id = world_file_id(world, "big");
		assert_true(world_chunk(world, file_id, 1, &chunk));
		world_chunk_name(world, &chunk, name);
		int fd = openat(world_node_of(world, &chunk)->dir_fd, name, O_WRONLY | O_CLOEXEC);
		assert_int_equal(ftruncate(fd, (off_t)((int64_t)chunk.size_bytes + changes[i])), 0);
		close(fd);
		merge_enqueue(world->merge, world->transfer.id, 0);
		world_wait(world, TRANSFER_UPLOADING);
		assert_again(world, file_id, CHUNK_PENDING, 3);
		assert_false(world_chunk_is_there(world, &chunk));
		send_again(world);
	}
}

/* A node is away when the merge begins: it is waited for, the transfer says so, and it is found again at its new address. */
static void test_node_down_and_back(void **state)
{
	struct world *world = *state;
	uint64_t files, bytes;

	make_source(world);
	world_send(world, "batch");
	world_node_stop(world, 0);
	world_merge_start(world);
	world_wait_note(world, "node n1");
	assert_int_equal(atomic_load(&world->nodes[0].get_count), 0);
	merge_progress(world->merge, world->transfer.id, &files, &bytes);
	assert_true(files < world->transfer.file_count && bytes < world->transfer.total_bytes);
	world_node_start(world, 0);
	world_assert_completed(world);
	merge_progress(world->merge, world->transfer.id, &files, &bytes);
	assert_true(files == 0 && bytes == 0);
	assert_string_equal(world->transfer.reason, "");
}

static void test_node_gone_for_good(void **state)
{
	struct world *world = *state;

	make_source(world);
	world_send(world, "batch");
	struct chunk_list *before = chunks_of(world);
	world->options.node_lost_after_us = 300 * MSEC_US;
	world_node_stop(world, 1);
	world_merge_start(world);
	world_wait(world, TRANSFER_UPLOADING);
	assert_non_null(strstr(world->transfer.reason, "node n2"));
	world_wait_job_end(world);
	struct chunk_list *after = chunks_of(world);
	for (size_t i = 0; i < before->count; i++) {
		bool was_there = strcmp(before->chunks[i].actual_node, "n2") == 0;
		assert_int_equal(after->chunks[i].state, was_there ? CHUNK_LOST : CHUNK_STORED);
	}
	free(before);
	free(after);
	world_node_start(world, 1);
	wait_for_ring(world);
	send_again(world);
}

/* An operator's word ends the waiting, however long it would be. */
static void test_node_declared_lost(void **state)
{
	struct world *world = *state;
	const struct pool_order order = { .word = POOL_LOST };
	uint64_t lost_count = 99;

	make_source(world);
	world_send(world, "batch");
	struct chunk_list *before = chunks_of(world);
	world->options.node_lost_after_us = 3600 * SEC_US;
	world_node_stop(world, 1);
	world_merge_start(world);
	world_wait_note(world, "node n2");
	assert_int_equal(pool_order(world->pool, "n2", &order, NULL, &lost_count, NULL), 0);
	/* What a merge is at is the merge's to reopen. */
	assert_int_equal(lost_count, 0);
	world_wait(world, TRANSFER_UPLOADING);
	assert_non_null(strstr(world->transfer.reason, "declared node n2 lost"));
	world_wait_job_end(world);
	struct chunk_list *after = chunks_of(world);
	for (size_t i = 0; i < before->count; i++) {
		bool was_there = strcmp(before->chunks[i].actual_node, "n2") == 0;
		assert_int_equal(after->chunks[i].state, was_there ? CHUNK_LOST : CHUNK_STORED);
	}
	free(before);
	free(after);
	world_node_start(world, 1);
	wait_for_ring(world);
	send_again(world);
}

/* A node that answers, but not with its chunks: they must come again, the others stay. */
static void test_node_refuses(void **state)
{
	struct world *world = *state;

	make_source(world);
	world_send(world, "batch");
	struct chunk_list *before = chunks_of(world);
	atomic_store(&world->nodes[0].is_answering_503, true);
	world->options.pull_try_limit = 2;
	world_merge_start(world);
	world_wait(world, TRANSFER_UPLOADING);
	assert_non_null(strstr(world->transfer.reason, "node n1 did not give chunk"));
	assert_non_null(strstr(world->transfer.reason, "disk cannot be read"));
	world_wait_job_end(world);
	struct chunk_list *after = chunks_of(world);
	for (size_t i = 0; i < before->count; i++) {
		const struct store_chunk *chunk = &before->chunks[i];
		bool is_reopened = false;

		for (size_t k = 0; k < before->count; k++)
			is_reopened |= before->chunks[k].file_id == chunk->file_id &&
				       strcmp(before->chunks[k].actual_node, "n1") == 0;
		assert_int_equal(after->chunks[i].state, is_reopened ? CHUNK_LOST : CHUNK_STORED);
		assert_true(world_chunk_is_there(world, chunk));
	}
	free(before);
	free(after);
	atomic_store(&world->nodes[0].is_answering_503, false);
	send_again(world);
}

/* Not for ever, unless each time fewer are refused. */
static void test_node_refuses_for_good(void **state)
{
	struct world *world = *state;

	make_source(world);
	world_send(world, "batch");
	atomic_store(&world->nodes[0].is_answering_503, true);
	atomic_store(&world->nodes[1].is_answering_503, true);
	world->options.pull_try_limit = 1;
	world_merge_start(world);
	for (int merges = 1; merges < 5; merges++) {
		world_wait(world, TRANSFER_UPLOADING);
		world_wait_job_end(world);
		if (merges == 2)
			atomic_store(&world->nodes[1].is_answering_503, false);
		world_resend(world);
		merge_enqueue(world->merge, world->transfer.id, 0);
	}
	world_wait(world, TRANSFER_FAILED);
	assert_true(world->transfer.is_retryable);
	assert_non_null(strstr(world->transfer.reason, "disk cannot be read"));
	world_wait_job_end(world);
	assert_int_equal(world_dir_count(world->final_fd), 1);
	for (unsigned i = 0; i < WORLD_NODE_COUNT; i++)
		world_wait_empty(world->nodes[i].dir_fd, "a node");
}

/* --- crashes --- */

static void put_owner(struct world *world, const char *id, uint64_t inode, int64_t version)
{
	char path[512], text[128];
	struct err err = ERR_INIT;

	snprintf(path, sizeof(path), "%s/.heng", world->final_dir);
	GOOD(fs_make_dirs(path, &err));
	snprintf(path, sizeof(path), "%s/.heng/%s.owner", world->final_dir, world->transfer.batch);
	snprintf(text, sizeof(text), "%s\n%llu\n%lld\n", id, (unsigned long long)inode, (long long)version);
	GOOD(fs_replace_file(path, str_from(text), 0644, &err));
}

/* The process ended between the rename and the commit: the folder is there and marked as this transfer's. */
static void test_killed_after_rename(void **state)
{
	struct world *world = *state;
	struct stat st;

	world_file(world, "a", 100, 1, 0644, T0);
	world_attributes(world, ".", 0500, T0);
	world_send(world, "batch");
	/* The source stands in for the merged tree: same file system, a rename away. The root's own mode was not set yet. */
	assert_int_equal(renameat(world->root_fd, "source", world->final_fd, "batch"), 0);
	assert_int_equal(fchmod(world->source_fd, 0700), 0);
	assert_int_equal(fstat(world->source_fd, &st), 0);
	put_owner(world, world->transfer.id, st.st_ino, world->transfer.version);
	assert_int_equal(mkdirat(world->staging_fd, world->transfer.id, 0700), 0);
	world_merge_start(world);
	world_assert_completed(world);
	assert_int_equal(fstat(world->source_fd, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0500);
	assert_int_equal(atomic_load(&world->nodes[0].get_count) + atomic_load(&world->nodes[1].get_count), 0);
}

/* The thread's rights alone; threads that it makes have the same. */
static void act_as(unsigned user) { assert_int_equal(syscall(SYS_setresuid, -1, user, -1), 0); }

static void give_to(const struct world *world, unsigned user)
{
	assert_int_equal(fchown(world->root_fd, user, (gid_t)-1), 0);
	assert_int_equal(fchown(world->staging_fd, user, (gid_t)-1), 0);
	assert_int_equal(fchown(world->final_fd, user, (gid_t)-1), 0);
	assert_int_equal(fchownat(world->final_fd, ".heng", user, (gid_t)-1, 0), 0);
	assert_int_equal(fchown(world->source_fd, user, (gid_t)-1), 0);
}

/* The same, but the root had its mode already, by which its owner may not read it, and the scheduler is no more than that owner. */
static void test_killed_after_mode(void **state)
{
	static const unsigned modes[] = { 0, 0300, 0111, 0700 };

	if (geteuid() != 0)
		skip(); /* what other users may not do, nobody can pretend */
	for (size_t i = 0; i < COUNT_OF(modes); i++) {
		struct world *world = *state;
		struct stat st;

		world_file(world, "a", 100, 1, 0644, T0);
		world_attributes(world, ".", modes[i], T0);
		world_send(world, "batch");
		assert_int_equal(renameat(world->root_fd, "source", world->final_fd, "batch"), 0);
		assert_int_equal(fstat(world->source_fd, &st), 0);
		put_owner(world, world->transfer.id, st.st_ino, world->transfer.version);
		assert_int_equal(mkdirat(world->staging_fd, world->transfer.id, 0700), 0);
		assert_int_equal(fchownat(world->staging_fd, world->transfer.id, 65534, (gid_t)-1, 0), 0);
		give_to(world, 65534);
		act_as(65534);
		world_merge_start(world);
		act_as(0);
		world_assert_completed(world);
		assert_int_equal(fstat(world->source_fd, &st), 0);
		assert_int_equal(st.st_mode & 07777, modes[i]);
		assert_int_equal(st.st_mtim.tv_nsec, T0 % 1000000000);
		teardown(state);
		setup(state);
	}
}

/* The folder is in place, but it is not the scheduler's to finish: the push is told, and the merge can be done anew. */
static void test_killed_and_taken_over(void **state)
{
	struct world *world = *state;
	struct stat st;

	if (geteuid() != 0)
		skip();
	world_file(world, "a", 100, 1, 0644, T0);
	world_attributes(world, ".", 0300, T0);
	world_send(world, "batch");
	assert_int_equal(renameat(world->root_fd, "source", world->final_fd, "batch"), 0);
	assert_int_equal(fstat(world->source_fd, &st), 0);
	put_owner(world, world->transfer.id, st.st_ino, world->transfer.version);
	give_to(world, 65534);
	assert_int_equal(fchown(world->source_fd, 65533, (gid_t)-1), 0);
	act_as(65534);
	world_merge_start(world);
	act_as(0);
	world_wait(world, TRANSFER_UPLOADING);
	assert_true(world->transfer.is_retryable);
	assert_non_null(strstr(world->transfer.reason, "Operation not permitted"));
	assert_int_equal(world_count_in_state(world, CHUNK_STORED), world->transfer.chunk_count);
}

/* A merge put its folder in place, could not make that durable, and could not take it back; then a file was revised. The former folder makes way. */
static void test_put_in_place_before(void **state)
{
	struct world *world = *state;
	struct stat st, after;

	world_file(world, "a", 100, 1, 0644, T0);
	world_send(world, "batch");
	assert_int_equal(mkdirat(world->final_fd, "batch", 0500), 0);
	assert_int_equal(fstatat(world->final_fd, "batch", &st, 0), 0);
	put_owner(world, world->transfer.id, st.st_ino, world->transfer.version - 2);
	world_merge_start(world);
	world_assert_completed(world);
	assert_int_equal(fstatat(world->final_fd, "batch", &after, 0), 0);
	assert_int_not_equal(after.st_ino, st.st_ino);
	assert_int_equal(fstatat(world->final_fd, "batch/a", &after, 0), 0);
	assert_int_equal(after.st_size, 100);
	world_wait_job_end(world);
	assert_int_equal(world_dir_count(world->staging_fd), 0);
}

/* A folder of that name which is not this transfer's is never touched, whatever the owner file looks like. */
static void test_foreign_folder(void **state)
{
	struct world *world = *state;
	struct stat st;

	world_file(world, "a", 100, 1, 0644, T0);
	for (int row = 0; row < 4; row++) {
		char batch[32];
		snprintf(batch, sizeof(batch), "batch%d", row);
		world_send(world, batch);
		assert_int_equal(mkdirat(world->final_fd, batch, 0711), 0);
		assert_int_equal(fstatat(world->final_fd, batch, &st, 0), 0);
		if (row == 1)
			put_owner(world, world->transfer.id, st.st_ino + 1, world->transfer.version);
		if (row == 2)
			put_owner(world, "01HZZZZZZZZZZZZZZZZZZZZZZZ", st.st_ino, world->transfer.version);
		if (row == 3)
			put_owner(world, "", 0, 0);
		if (!world->merge)
			world_merge_start(world);
		merge_enqueue(world->merge, world->transfer.id, 0);
		world_wait(world, TRANSFER_FAILED);
		assert_false(world->transfer.is_retryable);
		assert_non_null(strstr(world->transfer.reason, batch));
		struct stat after;
		assert_int_equal(fstatat(world->final_fd, batch, &after, 0), 0);
		assert_int_equal(after.st_ino, st.st_ino);
		assert_int_equal(after.st_mode & 07777, 0711);
	}
}

/* Stopping does not wait for what a merge waits for; the next start resumes it, and clears what no merge owns. */
static void test_stop_and_resume(void **state)
{
	struct world *world = *state;
	struct err err = ERR_INIT;

	make_source(world);
	world_send(world, "batch");
	world_node_stop(world, 0);
	world_merge_start(world);
	world_wait_note(world, "node n1");
	int64_t began_us = clock_mono_us();
	merge_stop(&world->merge);
	assert_true(clock_mono_us() - began_us < 5 * SEC_US);
	GOOD(world->store->ops->transfer_get(world->store, world->transfer.id, &world->transfer, &err));
	assert_int_equal(world->transfer.state, TRANSFER_MERGING);
	assert_int_equal(world_dir_count(world->staging_fd), 1);

	assert_int_equal(mkdirat(world->staging_fd, "01HZZZZZZZZZZZZZZZZZZZZZZZ", 0700), 0);
	assert_int_equal(mkdirat(world->staging_fd, "01HZZZZZZZZZZZZZZZZZZZZZZZ/tree", 0700), 0);
	world_node_start(world, 0);
	world_merge_start(world);
	assert_int_equal(faccessat(world->staging_fd, "01HZZZZZZZZZZZZZZZZZZZZZZZ", F_OK, 0), -1);
	world_assert_completed(world);
}

/* --- others decide meanwhile --- */

static const struct store_ops *true_ops;

/* As if another caller had ended the transfer just before this one completes it. */
static int superseding_move(struct store *store, struct store_transfer *transfer, enum transfer_state state,
			    const char *reason, bool is_retryable, int64_t now_wall_us, struct err *err)
{
	if (state == TRANSFER_COMPLETED) {
		struct store_transfer other = *transfer;
		assert_int_equal(
			true_ops->transfer_move(store, &other, TRANSFER_FAILED, "superseded", false, now_wall_us, err),
			0);
	}
	return true_ops->transfer_move(store, transfer, state, reason, is_retryable, now_wall_us, err);
}

static void test_ended_by_others_while_published(void **state)
{
	struct world *world = *state;
	struct store_ops ops = *world->store->ops;

	make_source(world);
	world_send(world, "batch");
	true_ops = world->store->ops;
	ops.transfer_move = superseding_move;
	world->store->ops = &ops;
	world_merge_start(world);
	world_wait(world, TRANSFER_FAILED);
	world_wait_job_end(world);
	merge_stop(&world->merge);
	world->store->ops = true_ops;
	assert_string_equal(world->transfer.reason, "superseded");
	assert_int_equal(faccessat(world->final_fd, "batch", F_OK, 0), -1);
}

/* --- what the merge needs fails for a while --- */

static atomic_int entries_fault_count, move_fault_count;

static int full_disk(struct err *err) { return err_set(err, ERR_STORE, "reading entries: database or disk is full"); }

static int faulty_entries(struct store *store, const char *transfer_id, uint64_t from_seq, uint64_t to_seq_inclusive,
			  int (*each)(void *owner, const struct store_entry *entry), void *owner, struct err *err)
{
	if (atomic_fetch_sub(&entries_fault_count, 1) > 0)
		return full_disk(err);
	return true_ops->entries(store, transfer_id, from_seq, to_seq_inclusive, each, owner, err);
}

static int faulty_move(struct store *store, struct store_transfer *transfer, enum transfer_state state,
		       const char *reason, bool is_retryable, int64_t now_wall_us, struct err *err)
{
	if (transfer->state == TRANSFER_MERGING && atomic_fetch_sub(&move_fault_count, 1) > 0)
		return full_disk(err);
	return true_ops->transfer_move(store, transfer, state, reason, is_retryable, now_wall_us, err);
}

/* A full disk must not cost what has been acknowledged: nothing is sent again, the merge alone is asked for again. */
static void test_put_off(void **state)
{
	struct world *world = *state;
	struct store_ops ops = *world->store->ops;

	make_source(world);
	world_send(world, "batch");
	true_ops = world->store->ops;
	ops.entries = faulty_entries;
	world->store->ops = &ops;
	atomic_store(&entries_fault_count, 1);
	world_merge_start(world);
	world_wait(world, TRANSFER_UPLOADING);
	assert_true(world->transfer.is_retryable);
	assert_non_null(strstr(world->transfer.reason, "disk is full"));
	assert_int_equal(world_count_in_state(world, CHUNK_STORED), world->transfer.chunk_count);
	assert_int_equal(world_dir_count(world->staging_fd), 0);
	world_resend(world);
	merge_enqueue(world->merge, world->transfer.id, 0);
	world_assert_completed(world);
	merge_stop(&world->merge);
	world->store->ops = true_ops;
}

/* How a merge ended cannot be recorded: it is tried again by itself, as nobody may be there to ask for it. */
static void test_end_not_recorded(void **state)
{
	struct world *world = *state;
	struct store_ops ops = *world->store->ops;

	make_source(world);
	world_send(world, "batch");
	true_ops = world->store->ops;
	ops.entries = faulty_entries;
	ops.transfer_move = faulty_move;
	world->store->ops = &ops;
	world->options.retry_after_us = MSEC_US;
	/* First the failure of a merge, then its success. */
	atomic_store(&entries_fault_count, 1);
	atomic_store(&move_fault_count, 2);
	world_merge_start(world);
	world_wait(world, TRANSFER_COMPLETED);
	for (unsigned i = 0; i < WORLD_NODE_COUNT; i++)
		world_wait_empty(world->nodes[i].dir_fd, "a node");
	merge_stop(&world->merge);
	world_assert_completed(world);
	assert_true(atomic_load(&move_fault_count) < 0);
	world->store->ops = true_ops;
}

static void test_two_file_systems(void **state)
{
	struct world *world = *state;
	struct err err = ERR_INIT;

	world->options.staging_dir = "/dev/shm/t_merge-staging";
	int result = merge_start(&world->options, world->store, world->pool, &world->merge, &err);
	rmdir("/dev/shm/t_merge-staging");
	assert_int_equal(result, -ERR_CONFIG);
	assert_null(world->merge);
	assert_non_null(strstr(err.text, "file system"));
	world->options.staging_dir = world->options.final_dir;
	assert_int_equal(merge_start(&world->options, world->store, world->pool, &world->merge, &err), -ERR_CONFIG);
	assert_non_null(strstr(err.text, "both"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_everything, setup, teardown),
		cmocka_unit_test_setup_teardown(test_everything_md5_one_by_one, setup, teardown),
		cmocka_unit_test_setup_teardown(test_window, setup, teardown),
		cmocka_unit_test_setup_teardown(test_local, setup, teardown),
		cmocka_unit_test_setup_teardown(test_local_but_another_file, setup, teardown),
		cmocka_unit_test_setup_teardown(test_local_wrong_chunk, setup, teardown),
		cmocka_unit_test_setup_teardown(test_holes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_holes_local, setup, teardown),
		cmocka_unit_test_setup_teardown(test_no_bytes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_many_small, setup, teardown),
		cmocka_unit_test_setup_teardown(test_broken_answers, setup, teardown),
		cmocka_unit_test_setup_teardown(test_wrong_chunk, setup, teardown),
		cmocka_unit_test_setup_teardown(test_wrong_pack, setup, teardown),
		cmocka_unit_test_setup_teardown(test_wrong_chunk_while_busy, setup, teardown),
		cmocka_unit_test_setup_teardown(test_wrong_digest, setup, teardown),
		cmocka_unit_test_setup_teardown(test_chunk_gone, setup, teardown),
		cmocka_unit_test_setup_teardown(test_chunk_of_wrong_length, setup, teardown),
		cmocka_unit_test_setup_teardown(test_node_down_and_back, setup, teardown),
		cmocka_unit_test_setup_teardown(test_node_gone_for_good, setup, teardown),
		cmocka_unit_test_setup_teardown(test_node_declared_lost, setup, teardown),
		cmocka_unit_test_setup_teardown(test_node_refuses, setup, teardown),
		cmocka_unit_test_setup_teardown(test_node_refuses_for_good, setup, teardown),
		cmocka_unit_test_setup_teardown(test_killed_after_rename, setup, teardown),
		cmocka_unit_test_setup_teardown(test_killed_after_mode, setup, teardown),
		cmocka_unit_test_setup_teardown(test_killed_and_taken_over, setup, teardown),
		cmocka_unit_test_setup_teardown(test_put_in_place_before, setup, teardown),
		cmocka_unit_test_setup_teardown(test_foreign_folder, setup, teardown),
		cmocka_unit_test_setup_teardown(test_stop_and_resume, setup, teardown),
		cmocka_unit_test_setup_teardown(test_ended_by_others_while_published, setup, teardown),
		cmocka_unit_test_setup_teardown(test_put_off, setup, teardown),
		cmocka_unit_test_setup_teardown(test_end_not_recorded, setup, teardown),
		cmocka_unit_test_setup_teardown(test_two_file_systems, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
