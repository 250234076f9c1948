/* The queue of what is to happen, by (time, sequence): events of one time come in the order in which they were put. What always lies the same delay
 * ahead (a network's way, a timeout) goes into a lane, which needs no sorting; the rest into a heap. Memory grows with what is pending, so that in
 * the long run nothing is allocated per event. */
#ifndef HENG_SIM_EVENT_H
#define HENG_SIM_EVENT_H

#include "base/base.h"

#define EVENT_LANES 5

struct event {
	int64_t time_ns;
	uint64_t order; /* sequence << 8 | kind */
	uint32_t a, b;  /* the owner's */
};
static inline unsigned event_kind(const struct event *event) { return (unsigned)(event->order & 0xff); }

struct event_lane {
	struct event *ring;
	size_t capacity, head, count; /* capacity: a power of two */
};
struct event_queue {
	uint64_t sequence;
	struct event_lane lanes[EVENT_LANES];
	struct event *heap;
	size_t heap_capacity, heap_count;
	struct event heads[EVENT_LANES + 1]; /* the first of each lane and of the heap; time_ns INT64_MAX: empty */
};
void event_queue_init(struct event_queue *queue);
void event_queue_fini(struct event_queue *queue);
/* time_ns must not be before that of the lane's last one. kind: 0..255. */
void event_put_lane(struct event_queue *queue, size_t lane, int64_t time_ns, unsigned kind, uint32_t a, uint32_t b);
void event_put(struct event_queue *queue, int64_t time_ns, unsigned kind, uint32_t a, uint32_t b);
/* False: empty. */
bool event_next(struct event_queue *queue, struct event *ret_event);

#endif
