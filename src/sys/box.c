#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "sys/box.h"

struct queue {
	pthread_mutex_t lock; /* protects all below */
	pthread_cond_t has_item, has_room;
	size_t capacity_count, item_count, first_index;
	bool is_closed;
	void *items[];
};

struct queue *queue_new(size_t capacity_count)
{
	struct queue *queue = must_zalloc(1, sizeof(*queue) + capacity_count * sizeof(void *));
	pthread_condattr_t attr;

	MUST(capacity_count > 0);
	queue->capacity_count = capacity_count;
	/* The monotonic clock: a wait must not depend on somebody setting the wall clock. */
	MUST(pthread_condattr_init(&attr) == 0 && pthread_condattr_setclock(&attr, CLOCK_MONOTONIC) == 0);
	MUST(pthread_mutex_init(&queue->lock, NULL) == 0);
	MUST(pthread_cond_init(&queue->has_item, &attr) == 0 && pthread_cond_init(&queue->has_room, &attr) == 0);
	(void)pthread_condattr_destroy(&attr);
	return queue;
}

void queue_free(struct queue **queue)
{
	if (!*queue)
		return;
	(void)pthread_cond_destroy(&(*queue)->has_item);
	(void)pthread_cond_destroy(&(*queue)->has_room);
	(void)pthread_mutex_destroy(&(*queue)->lock);
	free(*queue);
	*queue = NULL;
}

static bool push(struct queue *queue, void *item, bool may_wait)
{
	bool is_pushed = false;

	MUST(item);
	(void)pthread_mutex_lock(&queue->lock);
	while (may_wait && !queue->is_closed && queue->item_count == queue->capacity_count)
		(void)pthread_cond_wait(&queue->has_room, &queue->lock);
	if (!queue->is_closed && queue->item_count < queue->capacity_count) {
		queue->items[(queue->first_index + queue->item_count) % queue->capacity_count] = item;
		queue->item_count++;
		(void)pthread_cond_signal(&queue->has_item);
		is_pushed = true;
	}
	(void)pthread_mutex_unlock(&queue->lock);
	return is_pushed;
}

bool queue_push(struct queue *queue, void *item) { return push(queue, item, true); }
bool queue_try_push(struct queue *queue, void *item) { return push(queue, item, false); }

static struct timespec deadline_after(int64_t timeout_us)
{
	struct timespec at;

	(void)clock_gettime(CLOCK_MONOTONIC, &at);
	at.tv_sec += timeout_us / SEC_US;
	at.tv_nsec += timeout_us % SEC_US * 1000;
	if (at.tv_nsec >= 1000000000) {
		at.tv_sec++;
		at.tv_nsec -= 1000000000;
	}
	return at;
}

void *queue_pop(struct queue *queue, int64_t timeout_us)
{
	struct timespec deadline = deadline_after(max_i64(timeout_us, 0));
	void *item = NULL;
	int result = 0;

	(void)pthread_mutex_lock(&queue->lock);
	while (queue->item_count == 0 && !queue->is_closed && result != ETIMEDOUT) {
		if (timeout_us < 0)
			(void)pthread_cond_wait(&queue->has_item, &queue->lock);
		else
			result = pthread_cond_timedwait(&queue->has_item, &queue->lock, &deadline);
	}
	if (queue->item_count > 0) {
		item = queue->items[queue->first_index];
		queue->first_index = (queue->first_index + 1) % queue->capacity_count;
		queue->item_count--;
		(void)pthread_cond_signal(&queue->has_room);
	}
	(void)pthread_mutex_unlock(&queue->lock);
	return item;
}

void queue_close(struct queue *queue)
{
	(void)pthread_mutex_lock(&queue->lock);
	queue->is_closed = true;
	(void)pthread_cond_broadcast(&queue->has_item);
	(void)pthread_cond_broadcast(&queue->has_room);
	(void)pthread_mutex_unlock(&queue->lock);
}

void *letterbox_put(struct letterbox *box, void *letter) { return atomic_exchange(&box->letter, letter); }
void *letterbox_take(struct letterbox *box) { return atomic_exchange(&box->letter, NULL); }
