/* What the common part of the loop and its two back ends share. For src/sys/loop*.c alone. */
#ifndef HENG_SYS_LOOP_IMPL_H
#define HENG_SYS_LOOP_IMPL_H

#include <stdatomic.h>

#include "sys/loop.h"

enum op_kind { OP_ACCEPT = 1, OP_CONNECT, OP_RECV, OP_SEND, OP_SENDFILE, OP_READ };

/* A ring of operations through op.prev and op.next around a sentinel: whoever holds an operation can take it out. */
struct op_list {
	struct op head;
};

struct loop_ops {
	/* Called on the loop's own thread, before the first turn. */
	void (*start)(struct loop *loop);
	/* Submits what is in loop->submitted, waits (0: not at all, -1: for ever), calls loop_tick, delivers. */
	void (*turn)(struct loop *loop, int64_t wait_us);
	/* The operation is pending and is_cancelled was just set. One that is still in loop->submitted needs nothing more. */
	void (*cancel)(struct loop *loop, struct op *op);
	void (*free)(struct loop *loop); /* what the back end holds, not the loop */
};

struct loop {
	const struct loop_ops *ops;
	enum loop_backend backend;
	void *state;              /* the back end's */
	struct op_list submitted; /* asked for, not looked at yet */
	struct op_list finished;  /* by loop_finish: their callbacks are due */
	size_t pending_count;
	struct timer_wheel wheel;
	int64_t now_us;
	bool is_started;
	int wake_fd;                   /* an eventfd: written when `posted` stops being empty, and by loop_stop */
	_Atomic(struct post *) posted; /* newest first */
	atomic_bool is_stopping;
};

int loop_epoll_init(struct loop *loop, struct err *err);
int loop_uring_init(struct loop *loop, struct err *err);

void op_list_init(struct op_list *list);
void op_list_append(struct op_list *list, struct op *op);
void op_list_remove(struct op *op);            /* no-op when in no list */
struct op *op_list_take(struct op_list *list); /* the first, or NULL */
static inline bool op_list_is_empty(const struct op_list *list) { return list->head.next == &list->head; }
static inline bool op_is_listed(const struct op *op) { return op->next != NULL; }

void loop_tick(struct loop *loop);       /* reads the clock */
void loop_clear_wake(struct loop *loop); /* after wake_fd became readable */
/* Ends the operation: it may be submitted again, or its memory be gone, when this returns. */
void loop_complete(struct loop *loop, struct op *op, int result);

#endif
