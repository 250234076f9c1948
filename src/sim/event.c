#include "sim/event.h"

#define HEAP_ARITY 4
#define FIRST_SIZE 64

static const struct event event_none = { .time_ns = INT64_MAX, .order = UINT64_MAX };

static bool is_before(const struct event *a, const struct event *b)
{
	return a->time_ns < b->time_ns || (a->time_ns == b->time_ns && a->order < b->order);
}

static struct event *events_grown(struct event *events, size_t *capacity)
{
	*capacity = *capacity == 0 ? FIRST_SIZE : 2 * *capacity;
	struct event *grown = realloc(events, *capacity * sizeof(*events));
	MUST(grown != NULL);
	return grown;
}

void event_queue_init(struct event_queue *queue)
{
	*queue = (struct event_queue){ 0 };
	for (size_t i = 0; i < COUNT_OF(queue->heads); i++)
		queue->heads[i] = event_none;
}

void event_queue_fini(struct event_queue *queue)
{
	for (size_t i = 0; i < EVENT_LANES; i++)
		free(queue->lanes[i].ring);
	free(queue->heap);
	event_queue_init(queue);
}

/* A ring that is full is unrolled into one of twice its size. */
static void lane_grow(struct event_lane *lane)
{
	size_t old_capacity = lane->capacity;
	struct event *ring = must_alloc((old_capacity == 0 ? FIRST_SIZE : 2 * old_capacity) * sizeof(*ring));
	lane->capacity = old_capacity == 0 ? FIRST_SIZE : 2 * old_capacity;
	for (size_t i = 0; i < lane->count; i++)
		ring[i] = lane->ring[(lane->head + i) & (old_capacity - 1)];
	free(lane->ring);
	lane->ring = ring;
	lane->head = 0;
}

void event_put_lane(struct event_queue *queue, size_t lane_index, int64_t time_ns, unsigned kind, uint32_t a,
		    uint32_t b)
{
	MUST(lane_index < EVENT_LANES && kind < 256);
	struct event_lane *lane = &queue->lanes[lane_index];
	struct event event = { time_ns, queue->sequence++ << 8 | kind, a, b };
	if (lane->count == lane->capacity)
		lane_grow(lane);
	if (lane->count == 0)
		queue->heads[lane_index] = event;
	else
		MUST(lane->ring[(lane->head + lane->count - 1) & (lane->capacity - 1)].time_ns <= time_ns);
	lane->ring[(lane->head + lane->count++) & (lane->capacity - 1)] = event;
}

void event_put(struct event_queue *queue, int64_t time_ns, unsigned kind, uint32_t a, uint32_t b)
{
	MUST(kind < 256);
	struct event event = { time_ns, queue->sequence++ << 8 | kind, a, b };
	if (queue->heap_count == queue->heap_capacity)
		queue->heap = events_grown(queue->heap, &queue->heap_capacity);
	size_t place = queue->heap_count++;
	while (place > 0) {
		size_t parent = (place - 1) / HEAP_ARITY;
		if (!is_before(&event, &queue->heap[parent]))
			break;
		queue->heap[place] = queue->heap[parent];
		place = parent;
	}
	queue->heap[place] = event;
	queue->heads[EVENT_LANES] = queue->heap[0];
}

/* Takes the top away: the last one sinks from there. */
static void heap_pop(struct event_queue *queue)
{
	struct event *heap = queue->heap;
	size_t count = --queue->heap_count, place = 0;
	if (count == 0) {
		queue->heads[EVENT_LANES] = event_none;
		return;
	}
	struct event last = heap[count];
	for (;;) {
		size_t first = place * HEAP_ARITY + 1, end = min_size(first + HEAP_ARITY, count), least = first;
		if (first >= count)
			break;
		for (size_t child = first + 1; child < end; child++)
			least = is_before(&heap[child], &heap[least]) ? child : least;
		if (!is_before(&heap[least], &last))
			break;
		heap[place] = heap[least];
		place = least;
	}
	heap[place] = last;
	queue->heads[EVENT_LANES] = heap[0];
}

static void lane_pop(struct event_queue *queue, size_t lane_index)
{
	struct event_lane *lane = &queue->lanes[lane_index];
	lane->head = (lane->head + 1) & (lane->capacity - 1);
	lane->count--;
	queue->heads[lane_index] = lane->count > 0 ? lane->ring[lane->head] : event_none;
}

bool event_next(struct event_queue *queue, struct event *ret_event)
{
	size_t best = 0;
	for (size_t i = 1; i < COUNT_OF(queue->heads); i++)
		best = is_before(&queue->heads[i], &queue->heads[best]) ? i : best;
	*ret_event = queue->heads[best];
	if (ret_event->time_ns == INT64_MAX)
		return false;
	if (best == EVENT_LANES)
		heap_pop(queue);
	else
		lane_pop(queue, best);
	return true;
}
