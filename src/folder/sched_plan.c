/* Pages of a plan: what a client sends where, and with which tickets. */
#include "folder/sched_impl.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define CANDIDATES_MAX   5u
#define PAGE_STATES_SIZE 128

struct page {
	struct sched_call *c;
	struct store_transfer transfer;
	uint64_t after_file_id, after_chunk_index;
	size_t limit;
	unsigned state_mask;
	struct store_chunk *chunks; /* one more than limit: is there more? */
	size_t chunk_count;
	struct store_object *objects; /* of the chunks, in the same order */
	size_t object_count;
	struct pool_ring *ring;
	struct pool_node *nodes;
	size_t node_count;
};

static int page_query(struct sched_call *c, struct page *page)
{
	uint64_t limit;
	int result = sched_query_u64(c, "after_file", 0, &page->after_file_id);

	page->c = c;
	if (result == 0)
		result = sched_query_u64(c, "after_chunk", 0, &page->after_chunk_index);
	if (result == 0)
		result = sched_query_u64(c, "limit", SCHED_PAGE_CHUNKS_MAX, &limit);
	if (result < 0)
		return result;
	/* The store counts in signed numbers; nothing of ours comes near. */
	if (page->after_file_id > INT64_MAX || page->after_chunk_index > INT64_MAX)
		return err_set(&c->err, ERR_BAD_REQUEST, "the query's after_file or after_chunk is out of range");
	if (limit == 0)
		return err_set(&c->err, ERR_BAD_REQUEST, "the query's limit is 0");
	page->limit = limit < SCHED_PAGE_CHUNKS_MAX ? (size_t)limit : SCHED_PAGE_CHUNKS_MAX;
	page->state_mask = ~0u;
	return 0;
}

static int chunk_each(void *owner, const struct store_chunk *chunk)
{
	struct page *page = owner;

	if (page->chunk_count > page->limit)
		return 1;
	page->chunks[page->chunk_count++] = *chunk;
	return 0;
}

/* Returns whether there is more after this page, or negative. */
static int page_chunks(struct page *page)
{
	struct sched_call *c = page->c;
	struct store *store = c->sched->store;
	int result;

	page->chunks = must_zalloc(page->limit + 1, sizeof(*page->chunks));
	result = store->ops->chunks(store, page->transfer.id, page->after_file_id, page->after_chunk_index,
				    page->state_mask, page->limit + 1, chunk_each, page, &c->err);
	if (result < 0)
		return err_wrap(&c->err, "reading the plan of transfer %s", page->transfer.id);
	if (page->chunk_count <= page->limit)
		return 0;
	page->chunk_count = page->limit;
	return 1;
}

static int object_each(void *owner, const struct store_object *object)
{
	struct page *page = owner;

	if (page->object_count == page->chunk_count || object->file_id > page->chunks[page->chunk_count - 1].file_id)
		return 1;
	page->objects[page->object_count++] = *object;
	return 0;
}

/* Every object has a chunk, so the objects of a page are those from its first chunk's to its last chunk's, without a gap. */
static int page_objects(struct page *page)
{
	struct sched_call *c = page->c;
	struct store *store = c->sched->store;
	int result;

	if (page->chunk_count == 0)
		return 0;
	page->objects = must_zalloc(page->chunk_count, sizeof(*page->objects));
	result = store->ops->objects(store, page->transfer.id, page->chunks[0].file_id - 1, page->chunk_count,
				     object_each, page, &c->err);
	return result < 0 ? err_wrap(&c->err, "reading the objects of transfer %s", page->transfer.id) : 0;
}

static int write_object_line(struct page *page, const struct store_object *object)
{
	struct sched_call *c = page->c;
	struct ticket ticket = {
		.file_id = object->file_id,
		.object_bytes = object->size_bytes,
		.chunk_bytes = page->transfer.chunk_bytes,
		.digest = page->transfer.digest,
		.expires_wall_us = clock_wall_us() + c->sched->ticket_life_us,
	};
	struct ticket_keys keys;
	char text[TICKET_TEXT_SIZE] = "-";
	int result = 0;

	memcpy(ticket.transfer_id, page->transfer.id, sizeof(ticket.transfer_id));
	memcpy(ticket.user, page->transfer.user, sizeof(ticket.user));
	/* An auditor reads the plan, and sends nothing. */
	if (sched_may_write(c->user)) {
		keyring_get(&c->sched->keyring, &keys);
		result = ticket_issue(&keys, &ticket, text, &c->err);
		mem_wipe(&keys, sizeof(keys));
	}
	if (result < 0)
		return err_wrap(&c->err, "issuing a ticket");
	buf_printf(&c->answer, "O %" PRIu64 " %d %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %s\n", object->file_id,
		   object->is_pack, object->first_seq, object->last_seq, object->size_bytes, object->chunk_count, text);
	return 0;
}

/* --- the preference list of a chunk --- */

struct preference {
	const char *ids[CANDIDATES_MAX];
	size_t count;
};

static void prefer(struct preference *list, const char *id)
{
	if (list->count == CANDIDATES_MAX || id[0] == '\0')
		return;
	for (size_t i = 0; i < list->count; i++) {
		if (strcmp(list->ids[i], id) == 0)
			return;
	}
	list->ids[list->count++] = id;
}

static const struct pool_node *node_of(const struct page *page, const char *node_id)
{
	for (size_t i = 0; i < page->node_count; i++) {
		if (strcmp(page->nodes[i].id, node_id) == 0)
			return &page->nodes[i];
	}
	return NULL;
}

static bool takes_work(const struct page *page, const char *node_id)
{
	const struct pool_node *node = node_of(page, node_id);

	return node && node->takes_work;
}

/* A node without a label is a domain of its own. */
static bool is_apart(const struct page *page, const char *node_id, const char *other_id)
{
	const struct pool_node *node = node_of(page, node_id), *other = node_of(page, other_id);

	return !node || !other || node->domain[0] == '\0' || strcmp(node->domain, other->domain) != 0;
}

/* From `at` on, those first that work in another failure domain than the holder; the order is kept otherwise. */
static void prefer_apart(const struct page *page, struct preference *list, size_t at, const char *holder_id)
{
	struct preference after = { .count = 0 };
	size_t kept = at;

	for (size_t i = at; i < list->count; i++) {
		const char *id = list->ids[i];

		if (takes_work(page, id) && is_apart(page, id, holder_id))
			list->ids[kept++] = id;
		else
			after.ids[after.count++] = id;
	}
	for (size_t i = 0; i < after.count; i++)
		list->ids[kept++] = after.ids[i];
}

/* Stored once, and a second copy is still to come. */
static bool is_thin(const struct page *page, const struct store_chunk *chunk)
{
	return page->transfer.copies > 1 && page->transfer.state == TRANSFER_UPLOADING &&
	       chunk->state == CHUNK_STORED && chunk->copy_node[0] == '\0';
}

/* Where the second copy of a chunk may go: not to the node that has it, nor to one that takes no work. */
static void drop_useless(const struct page *page, struct preference *list, const char *holder_id)
{
	size_t kept = 0;

	for (size_t i = 0; i < list->count; i++) {
		if (strcmp(list->ids[i], holder_id) != 0 && takes_work(page, list->ids[i]))
			list->ids[kept++] = list->ids[i];
	}
	list->count = kept;
}

/* A stored chunk: where it is, then the rest; or, when a second copy of it is wanted, who may take that. Any other: its target while that takes work,
 * then the ring's order, and the target last when it takes none: it may be back before all others have refused. */
static void preference_of(const struct page *page, const struct store_chunk *chunk, uint64_t key,
			  struct preference *list)
{
	const struct ring *ring = page->ring->ring;
	uint16_t candidates[CANDIDATES_MAX];
	/* Looking for more nodes than there are would walk all of the ring. */
	size_t count = ring_candidates(ring, key, min_size(CANDIDATES_MAX, ring_node_count(ring)), candidates);
	bool is_target_good = takes_work(page, chunk->target_node);

	list->count = 0;
	if (chunk->state == CHUNK_STORED || chunk->state == CHUNK_MERGED) {
		prefer(list, chunk->actual_node);
		prefer(list, chunk->copy_node);
	}
	if (is_target_good)
		prefer(list, chunk->target_node);
	for (size_t i = 0; i < count; i++)
		prefer(list, ring_node_id(ring, candidates[i]));
	prefer(list, chunk->target_node);
	if (is_thin(page, chunk)) {
		drop_useless(page, list, chunk->actual_node);
		prefer_apart(page, list, 0, chunk->actual_node);
	} else if (page->transfer.copies > 1 && list->count > 1 && chunk->state != CHUNK_STORED) {
		prefer_apart(page, list, 1, list->ids[0]);
	}
}

static void write_chunk_line(const struct page *page, const struct store_chunk *chunk, uint64_t key)
{
	struct buf *answer = &page->c->answer;
	struct preference list;

	preference_of(page, chunk, key, &list);
	buf_printf(answer, "C %" PRIu64 " %" PRIu64 " %" PRIu64 " %s %s", chunk->file_id, chunk->chunk_index,
		   chunk->size_bytes, is_thin(page, chunk) ? "copy" : chunk_state_name(chunk->state),
		   chunk->digest[0] != '\0' ? chunk->digest : "-");
	for (size_t i = 0; i < list.count; i++)
		buf_printf(answer, " %s", list.ids[i]);
	buf_append_c(answer, "\n");
}

/* --- the page --- */

struct path_copy {
	char bytes[MANIFEST_PATH_MAX];
	size_t size;
	bool is_found;
};

static int path_each(void *owner, const struct store_entry *entry)
{
	struct path_copy *copy = owner;

	if (entry->path.size > sizeof(copy->bytes))
		return 1;
	memcpy(copy->bytes, entry->path.data, entry->path.size);
	copy->size = entry->path.size;
	copy->is_found = true;
	return 1;
}

/* A large file's chunks are placed by its path, which only its entry knows. */
static int object_path(const struct page *page, const struct store_object *object, struct path_copy *copy)
{
	struct sched_call *c = page->c;
	struct store *store = c->sched->store;
	int result;

	copy->is_found = false;
	copy->size = 0;
	if (object->is_pack)
		return 0;
	result = store->ops->entries(store, page->transfer.id, object->first_seq, object->first_seq, path_each, copy,
				     &c->err);
	if (result < 0)
		return err_wrap(&c->err, "reading an entry of transfer %s", page->transfer.id);
	if (!copy->is_found)
		return err_set(&c->err, ERR_INTEGRITY, "object %" PRIu64 " of transfer %s has no entry",
			       object->file_id, page->transfer.id);
	return 0;
}

static int write_lines(struct page *page)
{
	struct sched_call *c = page->c;
	struct path_copy path;
	size_t chunk = 0;

	for (size_t i = 0; i < page->object_count; i++) {
		const struct store_object *object = &page->objects[i];
		int result = object_path(page, object, &path);

		if (result == 0)
			result = write_object_line(page, object);
		if (result < 0)
			return result;
		for (; chunk < page->chunk_count && page->chunks[chunk].file_id == object->file_id; chunk++) {
			uint64_t key = plan_chunk_key(page->transfer.id, (struct str){ path.bytes, path.size },
						      object->file_id, object->is_pack,
						      page->chunks[chunk].chunk_index);

			write_chunk_line(page, &page->chunks[chunk], key);
		}
	}
	if (chunk != page->chunk_count)
		return err_set(&c->err, ERR_INTEGRITY, "chunk %" PRIu64 "/%" PRIu64 " of transfer %s has no object",
			       page->chunks[chunk].file_id, page->chunks[chunk].chunk_index, page->transfer.id);
	return 0;
}

static int write_page(struct page *page)
{
	struct sched_call *c = page->c;
	int more = page_chunks(page), result = more < 0 ? more : page_objects(page);

	if (result < 0)
		return result;
	page->nodes = must_zalloc(POOL_NODES_MAX, sizeof(*page->nodes));
	page->node_count = min_size(pool_list(c->sched->pool, page->nodes, POOL_NODES_MAX), POOL_NODES_MAX);
	page->ring = pool_ring_get(c->sched->pool);
	result = write_lines(page);
	pool_ring_put(c->sched->pool, page->ring);
	if (result < 0)
		return result;
	buf_printf(&c->answer, "N %d %" PRId64 "\n", more, clock_wall_us());
	return 0;
}

static int run_plan_page(struct sched_call *c)
{
	struct page page = { .c = c };
	int result = sched_find(c, &page.transfer);

	/* Whoever sends by this plan would send again what is on the nodes. */
	if (result == 0 && page.transfer.stored_chunk_count < page.transfer.chunk_count)
		result = sched_check_inventory(c, &page.transfer);
	if (result == 0)
		result = page_query(c, &page);
	if (result == 0)
		result = write_page(&page);
	free(page.chunks);
	free(page.objects);
	free(page.nodes);
	return result;
}

void sched_begin_plan(struct http_call *call, void *app)
{
	struct sched_call *c = sched_client_call(call, app, run_plan_page);

	if (!c)
		return;
	c->type = "text/plain; charset=utf-8";
	sched_call_go(c);
}

/* --- GET chunks --- */

static int chunk_states(struct sched_call *c, unsigned *ret_mask)
{
	char text[PAGE_STATES_SIZE], shown[64];
	enum chunk_state state;
	struct str rest, word;
	size_t size = 0;

	if (!http_query(c->call, "state", text, sizeof(text), &size) || size == 0)
		return 0;
	*ret_mask = 0;
	rest = (struct str){ text, size };
	while (str_cut(&rest, ',', &word)) {
		if (!chunk_state_from_name(word, &state))
			return err_set(&c->err, ERR_BAD_REQUEST, "'%s' is no state of a chunk",
				       str_display(word, shown, sizeof(shown)));
		*ret_mask |= 1u << state;
	}
	return 0;
}

static void json_chunk(struct json *json, const struct store_chunk *chunk)
{
	json_open(json, NULL);
	json_u64(json, "file_id", chunk->file_id);
	json_u64(json, "chunk_index", chunk->chunk_index);
	json_u64(json, "size", chunk->size_bytes);
	json_c(json, "state", chunk_state_name(chunk->state));
	json_c(json, "target_node", chunk->target_node);
	json_c(json, "actual_node", chunk->actual_node);
	json_c(json, "copy_node", chunk->copy_node);
	json_c(json, "digest", chunk->digest);
	json_close(json);
}

static int run_chunks(struct sched_call *c)
{
	struct page page = { .c = c };
	struct json json;
	int more, result = sched_find(c, &page.transfer);

	if (result == 0)
		result = page_query(c, &page);
	if (result == 0)
		result = chunk_states(c, &page.state_mask);
	if (result < 0)
		return result;
	more = page_chunks(&page);
	if (more >= 0) {
		json_init(&json, &c->answer);
		json_open(&json, NULL);
		json_open_list(&json, "chunks");
		for (size_t i = 0; i < page.chunk_count; i++)
			json_chunk(&json, &page.chunks[i]);
		json_close_list(&json);
		json_bool(&json, "more", more == 1);
		json_i64(&json, "server_time_us", clock_wall_us());
		json_close(&json);
	}
	free(page.chunks);
	return more < 0 ? more : 0;
}

void sched_begin_chunks(struct http_call *call, void *app)
{
	struct sched_call *c = sched_client_call(call, app, run_chunks);

	if (c)
		sched_call_go(c);
}
