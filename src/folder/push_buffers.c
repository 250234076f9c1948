/* The chunks' buffers: as many are in use as the pace wants, and two more, which are read or wait meanwhile. The others have no memory until they
 * are wanted for the first time. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "folder/push_impl.h"

#define BUFFERS_BYTES  (96 * MIB)
#define BUFFERS_BESIDE 2 /* the calls */
/* With a limited rate so many seconds of it are under way, but two chunks at least: one goes while the other waits for its answer. */
#define LIMITED_S        4
#define LIMITED_PARALLEL 2

/* --- lists --- */
void push_chunks_init(struct push_chunks *list) { *list = (struct push_chunks){ .head = NULL, .tail = NULL }; }

/* tail is NULL while the list is empty, so that a list may be copied or moved as a whole. */
void push_chunks_add(struct push_chunks *list, struct push_chunk *chunk)
{
	chunk->next = NULL;
	if (list->tail == NULL)
		list->head = chunk;
	else
		*list->tail = chunk;
	list->tail = &chunk->next;
}

static void chunks_put_first(struct push_chunks *list, struct push_chunk *chunk)
{
	chunk->next = list->head;
	if (list->head == NULL)
		list->tail = &chunk->next;
	list->head = chunk;
}

struct push_chunk *push_chunks_take(struct push_chunks *list)
{
	struct push_chunk *chunk = list->head;
	if (chunk == NULL)
		return NULL;
	list->head = chunk->next;
	if (list->head == NULL)
		list->tail = NULL;
	return chunk;
}

/* --- the pool --- */
/* A slow rate divided among many chunks would have each of them under way for minutes, and all lost when the push is stopped. */
static unsigned limited_parallel(struct push *push, unsigned parallel, uint64_t chunk_bytes)
{
	uint64_t rate_bytes = push->options->limit_rate_bytes;
	if (rate_bytes == 0 || chunk_bytes == 0)
		return parallel;
	size_t wanted = max_size(LIMITED_PARALLEL, rate_bytes * LIMITED_S / chunk_bytes);
	parallel = (unsigned)min_size(parallel, wanted);
	/* A chunk that is sent again shows no sign of life before it is acknowledged: patience must outlast the way through the limit. */
	push->give_up_us = push->patience_us + (int64_t)(parallel * chunk_bytes * (uint64_t)SEC_US / rate_bytes);
	return parallel;
}

/* Brings what the pace wants into use. False: there is no memory for another one. */
static bool buffers_bring(struct push *push)
{
	while (push->chunk_use_count < push->pace.limit + BUFFERS_BESIDE && push->spare.head != NULL) {
		struct push_chunk *chunk = push->spare.head;
		if (chunk->data == NULL)
			chunk->data = mem_large_alloc(push->chunk_data_bytes);
		if (chunk->data == NULL)
			return false;
		(void)push_chunks_take(&push->spare);
		push->chunk_use_count++;
		push_chunk_release(push, chunk);
	}
	return true;
}

int push_buffers_make(struct push *push, struct err *err)
{
	uint64_t size_bytes = push->chunk_bytes < push->walk.total_bytes ? push->chunk_bytes : push->walk.total_bytes;
	if (push->chunks != NULL && size_bytes <= push->chunk_data_bytes)
		return 0;
	push_buffers_free(push);
	bool is_paced = push->options->parallel == 0 && push->options->limit_rate_bytes == 0;
	unsigned start = limited_parallel(push, push->parallel, size_bytes);
	size_t count = (is_paced ? PUSH_PACE_MOST : start) + BUFFERS_BESIDE;
	if (size_bytes > 0)
		count = max_size(1, min_size(count, BUFFERS_BYTES / size_bytes));
	push->chunk_data_bytes = size_bytes > 0 ? size_bytes : 1;
	push->chunks = must_zalloc(count, sizeof(*push->chunks));
	push->chunk_pool_count = count;
	push_pace_init(&push->pace, start, (unsigned)min_size(count, PUSH_PACE_MOST), !is_paced);
	push_budget_init(&push->budget, clock_mono_us());
	for (size_t i = 0; i < count; i++) {
		struct push_chunk *chunk = &push->chunks[i];
		chunk->push = push;
		chunk->call = FETCH_CALL_INIT;
		push_chunks_add(&push->spare, chunk);
	}
	if (!buffers_bring(push))
		return err_set(err, ERR_NO_MEMORY, "no memory for %u chunks of %llu bytes", push->pace.limit,
			       (unsigned long long)size_bytes);
	if (push->shared.digested == NULL)
		push->shared.digested = must_zalloc(push->walk.entry_count / 8 + 1, 1);
	return 0;
}

void push_buffers_follow(struct push *push)
{
	/* Those that are there will do: the pace must not count on more. */
	if (!buffers_bring(push))
		push->pace.most = (unsigned)max_size(1, push->chunk_use_count - BUFFERS_BESIDE);
}

void push_chunk_release(struct push *push, struct push_chunk *chunk)
{
	buf_fini(&chunk->call.answer);
	if (push->chunk_use_count > push->pace.limit + BUFFERS_BESIDE) {
		push->chunk_use_count--;
		push_chunks_add(&push->spare, chunk);
		return;
	}
	pthread_mutex_lock(&push->shared.lock);
	/* The one that was used last is read into next: its memory is warm, and a small folder touches few of them. */
	chunks_put_first(&push->shared.free, chunk);
	pthread_cond_signal(&push->shared.buffer_came);
	pthread_mutex_unlock(&push->shared.lock);
}

void push_buffers_free(struct push *push)
{
	for (size_t i = 0; i < push->chunk_pool_count; i++) {
		buf_fini(&push->chunks[i].call.answer);
		mem_large_free(push->chunks[i].data, push->chunk_data_bytes);
	}
	free(push->chunks);
	push->chunks = NULL;
	push->chunk_pool_count = push->chunk_use_count = 0;
	push_chunks_init(&push->spare);
	push_chunks_init(&push->shared.free);
}
