#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "sys/loop_impl.h"

void op_list_init(struct op_list *list) { list->head.prev = list->head.next = &list->head; }

void op_list_append(struct op_list *list, struct op *op)
{
	op->next = &list->head;
	op->prev = list->head.prev;
	op->prev->next = op;
	list->head.prev = op;
}

void op_list_remove(struct op *op)
{
	if (!op->next)
		return;
	op->prev->next = op->next;
	op->next->prev = op->prev;
	op->prev = op->next = NULL;
}

struct op *op_list_take(struct op_list *list)
{
	struct op *op = list->head.next;

	if (op == &list->head)
		return NULL;
	op_list_remove(op);
	return op;
}

static const char *const backend_names[] = {
	[LOOP_AUTO] = "auto",
	[LOOP_URING] = "io_uring",
	[LOOP_EPOLL] = "epoll",
};

bool loop_backend_from_name(const char *name, enum loop_backend *ret_backend)
{
	for (size_t i = 0; i < COUNT_OF(backend_names); i++) {
		if (strcmp(name, backend_names[i]) == 0) {
			*ret_backend = (enum loop_backend)i;
			return true;
		}
	}
	return false;
}

enum loop_backend loop_backend(const struct loop *loop) { return loop->backend; }

static int backend_init(struct loop *loop, enum loop_backend backend, struct err *err)
{
	if (backend != LOOP_EPOLL) {
		int result = loop_uring_init(loop, err);
		if (result == 0 || backend == LOOP_URING)
			return result;
	}
	return loop_epoll_init(loop, err);
}

int loop_new(enum loop_backend backend, struct loop **ret_loop, struct err *err)
{
	struct loop *loop = must_zalloc(1, sizeof(*loop));
	int result;

	*ret_loop = NULL;
	op_list_init(&loop->submitted);
	op_list_init(&loop->finished);
	loop_tick(loop);
	timer_wheel_init(&loop->wheel, loop->now_us);
	/* Non-blocking: a multishot poll may report more wake-ups than there are counts left to read. */
	loop->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (loop->wake_fd < 0) {
		result = err_sys(err, ERR_SYSTEM, errno, "cannot make an event loop (eventfd)");
		free(loop);
		return result;
	}
	result = backend_init(loop, backend, err);
	if (result < 0) {
		(void)close(loop->wake_fd);
		free(loop);
		return result;
	}
	*ret_loop = loop;
	return 0;
}

void loop_free(struct loop **loop_ptr)
{
	struct loop *loop = *loop_ptr;

	if (!loop)
		return;
	MUST(loop->pending_count == 0);
	loop->ops->free(loop);
	(void)close(loop->wake_fd);
	free(loop);
	*loop_ptr = NULL;
}

static void submit(struct loop *loop, struct op *op, enum op_kind kind, int fd)
{
	MUST(!op->is_pending && op->done);
	op->kind = (int)kind;
	op->fd = fd;
	op->stage = 0;
	op->result = 0;
	op->is_pending = true;
	op->is_cancelled = false;
	loop->pending_count++;
	op_list_append(&loop->submitted, op);
}

void loop_accept(struct loop *loop, struct op *op, int fd) { submit(loop, op, OP_ACCEPT, fd); }

void loop_connect(struct loop *loop, struct op *op, int fd, const struct sockaddr *addr, socklen_t addr_size)
{
	op->data = (void *)(uintptr_t)addr;
	op->size = addr_size;
	submit(loop, op, OP_CONNECT, fd);
}

void loop_recv(struct loop *loop, struct op *op, int fd, void *target, size_t size)
{
	op->data = target;
	op->size = size;
	submit(loop, op, OP_RECV, fd);
}

void loop_send(struct loop *loop, struct op *op, int fd, const void *data, size_t size)
{
	op->data = (void *)(uintptr_t)data;
	op->size = size;
	submit(loop, op, OP_SEND, fd);
}

void loop_sendfile(struct loop *loop, struct op *op, int fd, int file_fd, int64_t offset, size_t size)
{
	op->file_fd = file_fd;
	op->offset = offset;
	op->size = size;
	op->buffer = NULL;
	submit(loop, op, OP_SENDFILE, fd);
}

void loop_read(struct loop *loop, struct op *op, int file_fd, int64_t offset, void *target, size_t size)
{
	op->data = target;
	op->size = size;
	op->offset = offset;
	submit(loop, op, OP_READ, file_fd);
}

void loop_finish(struct loop *loop, struct op *op, int result)
{
	MUST(!op->is_pending && op->done);
	op->is_pending = true;
	op->is_cancelled = false;
	op->result = result;
	loop->pending_count++;
	op_list_append(&loop->finished, op);
}

void loop_cancel(struct loop *loop, struct op *op)
{
	if (!op->is_pending || op->is_cancelled)
		return;
	op->is_cancelled = true;
	loop->ops->cancel(loop, op);
}

void loop_complete(struct loop *loop, struct op *op, int result)
{
	op->is_pending = false;
	loop->pending_count--;
	op->done(loop, op, result);
}

void loop_tick(struct loop *loop) { loop->now_us = clock_mono_us(); }

int64_t loop_now_us(const struct loop *loop) { return loop->now_us; }

void loop_timer_set(struct loop *loop, struct timer *timer, int64_t delay_us)
{
	timer_set(&loop->wheel, timer, loop->now_us + max_i64(delay_us, 0));
}

void loop_timer_stop(struct loop *loop, struct timer *timer) { timer_stop(&loop->wheel, timer); }

static void wake(struct loop *loop)
{
	const uint64_t one = 1;

	while (write(loop->wake_fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

void loop_clear_wake(struct loop *loop)
{
	uint64_t count;

	while (read(loop->wake_fd, &count, sizeof(count)) < 0 && errno == EINTR)
		;
}

void loop_post(struct loop *loop, struct post *post)
{
	struct post *newest = atomic_load(&loop->posted);

	do {
		post->next = newest;
	} while (!atomic_compare_exchange_weak(&loop->posted, &newest, post));
	/* Whoever put the first one wakes the loop for all that follow until it collects them. */
	if (!newest)
		wake(loop);
}

static void run_posts(struct loop *loop)
{
	struct post *newest = atomic_exchange(&loop->posted, NULL), *oldest = NULL;

	while (newest) {
		struct post *next = newest->next;
		newest->next = oldest;
		oldest = newest;
		newest = next;
	}
	while (oldest) {
		struct post *post = oldest;
		oldest = post->next;
		post->run(loop, post);
	}
}

/* Up to the one that was last when this began: what their callbacks finish at once is for the next turn, so that timers get theirs. */
static void run_finished(struct loop *loop)
{
	struct op *last = loop->finished.head.prev;

	if (last == &loop->finished.head)
		return;
	for (bool is_last = false; !is_last;) {
		struct op *op = op_list_take(&loop->finished);
		is_last = op == last;
		loop_complete(loop, op, op->result);
	}
}

/* Writing to a closed connection must be a result, not a signal; sendfile has no flag to say so. */
static void start(struct loop *loop)
{
	sigset_t pipe_signal;

	(void)sigemptyset(&pipe_signal);
	(void)sigaddset(&pipe_signal, SIGPIPE);
	(void)pthread_sigmask(SIG_BLOCK, &pipe_signal, NULL);
	loop->ops->start(loop);
	loop->is_started = true;
}

void loop_turn(struct loop *loop, int64_t timeout_us)
{
	int64_t wait_us;

	if (!loop->is_started)
		start(loop);
	wait_us = timer_wheel_wait_us(&loop->wheel, clock_mono_us());
	if (wait_us < 0 || (timeout_us >= 0 && timeout_us < wait_us))
		wait_us = timeout_us;
	if (atomic_load(&loop->posted) || !op_list_is_empty(&loop->finished))
		wait_us = 0;
	loop->ops->turn(loop, wait_us);
	run_finished(loop);
	(void)timer_wheel_step(&loop->wheel, loop->now_us);
	run_posts(loop);
}

void loop_run(struct loop *loop)
{
	while (!atomic_exchange(&loop->is_stopping, false))
		loop_turn(loop, -1);
}

void loop_stop(struct loop *loop)
{
	atomic_store(&loop->is_stopping, true);
	wake(loop);
}
