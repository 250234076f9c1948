/* A bounded pool of threads for blocking work: disk, SQL, hashing of large buffers. */
#ifndef HENG_SYS_WORK_H
#define HENG_SYS_WORK_H

#include "sys/loop.h"

struct work;
/* In the caller's memory until done is called. */
struct job {
	void (*run)(struct job *job); /* on a pool thread; may block */
	void (*done)(
		struct job *job, struct
		loop *home); /* afterwards, on the home loop's thread; without a home: on the pool thread, home NULL */
	void *owner;
	/* The rest belongs to the pool. */
	struct loop *home;
	struct post post;
	struct job *next;
};

int work_new(const char *name, unsigned thread_count, size_t queue_limit_count, struct work **ret_work,
	     struct err *err);
void work_free(struct work **work); /* finishes what is queued, joins */
/* false when the queue is full: the caller answers "busy". home may be NULL. */
bool work_submit(struct work *work, struct job *job, struct loop *home) NODISCARD;

#endif
