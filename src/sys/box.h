/* Between threads: a bounded queue of pointers (blocking, many to many) and a latest-wins letter-box. */
#ifndef HENG_SYS_BOX_H
#define HENG_SYS_BOX_H

#include "base/base.h"

struct queue;
struct queue *queue_new(size_t capacity_count);
void queue_free(struct queue **queue);                /* nobody may be waiting */
bool queue_push(struct queue *queue, void *item);     /* waits for room; false once closed */
bool queue_try_push(struct queue *queue, void *item); /* false when full or closed */
/* Waits; NULL once closed and empty. timeout_us -1: for ever; NULL on time-out too. */
void *queue_pop(struct queue *queue, int64_t timeout_us);
void queue_close(struct queue *queue); /* wakes everybody */

/* One pointer, latest wins: letterbox_put gives the value it displaced (caller frees), letterbox_take empties it. */
struct letterbox {
	_Atomic(void *) letter;
};
void *letterbox_put(struct letterbox *box, void *letter);
void *letterbox_take(struct letterbox *box);

#endif
