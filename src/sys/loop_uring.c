#include <errno.h>
#include <limits.h>
#include <liburing.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sys/loop_impl.h"

#define SQ_ENTRIES       256
#define CQ_ENTRIES       4096
#define BUFFER_SIZE      (256 * KIB) /* of a sendfile */
#define BUFFERS_KEPT_MAX 16

/* Linux 6.1. Older kernels lack some of it and get epoll: one good path is better than several that nobody runs. */
#define SETUP_FLAGS                                                                          \
	(IORING_SETUP_R_DISABLED | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | \
	 IORING_SETUP_COOP_TASKRUN | IORING_SETUP_SUBMIT_ALL | IORING_SETUP_CQSIZE)

/* User data is an operation's address, or one of these. */
#define TAG_CANCEL ((uint64_t)1)
#define TAG_WAKE   ((uint64_t)2)

enum { STAGE_READ, STAGE_SEND };

struct uring_state {
	struct io_uring ring;
	struct op_list cancels; /* with the kernel, to be asked back */
	struct op_list ended;   /* cancelled before the kernel saw them */
	bool is_wake_armed;
	void *buffers[BUFFERS_KEPT_MAX];
	size_t buffer_count;
};

static void *buffer_get(struct uring_state *state)
{
	return state->buffer_count > 0 ? state->buffers[--state->buffer_count] : must_alloc(BUFFER_SIZE);
}

static void buffer_put(struct uring_state *state, struct op *op)
{
	if (!op->buffer)
		return;
	if (state->buffer_count < BUFFERS_KEPT_MAX)
		state->buffers[state->buffer_count++] = op->buffer;
	else
		free(op->buffer);
	op->buffer = NULL;
}

/* NULL when the queue stays full, as the kernel would not take more now. */
static struct io_uring_sqe *get_sqe(struct uring_state *state)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&state->ring);

	if (sqe)
		return sqe;
	(void)io_uring_submit(&state->ring);
	return io_uring_get_sqe(&state->ring);
}

static void prepare_sendfile(struct uring_state *state, struct io_uring_sqe *sqe, struct op *op)
{
	if (op->stage == STAGE_READ) {
		op->buffer = op->buffer ? op->buffer : buffer_get(state);
		io_uring_prep_read(sqe, op->file_fd, op->buffer, (unsigned)min_size(op->size, BUFFER_SIZE),
				   (uint64_t)op->offset);
	} else {
		/* WAITALL: the buffer is small, so that sending it whole in the kernel saves turns and reading twice. */
		io_uring_prep_send(sqe, op->fd, op->buffer, (size_t)op->result, MSG_NOSIGNAL | MSG_WAITALL);
	}
}

static void prepare(struct uring_state *state, struct io_uring_sqe *sqe, struct op *op)
{
	switch ((enum op_kind)op->kind) {
	case OP_ACCEPT:
		io_uring_prep_multishot_accept(sqe, op->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		break;
	case OP_CONNECT:
		io_uring_prep_connect(sqe, op->fd, op->data, (socklen_t)op->size);
		break;
	case OP_RECV:
		io_uring_prep_recv(sqe, op->fd, op->data, min_size(op->size, INT_MAX), 0);
		break;
	case OP_SEND:
		io_uring_prep_send(sqe, op->fd, op->data, min_size(op->size, INT_MAX), MSG_NOSIGNAL);
		break;
	case OP_SENDFILE:
		prepare_sendfile(state, sqe, op);
		break;
	case OP_READ:
		io_uring_prep_read(sqe, op->fd, op->data, (unsigned)min_size(op->size, INT_MAX), (uint64_t)op->offset);
		break;
	}
	io_uring_sqe_set_data(sqe, op);
}

/* False when some had to stay for the next turn. */
static bool prepare_all(struct loop *loop, struct uring_state *state)
{
	struct io_uring_sqe *sqe;

	if (!state->is_wake_armed) {
		sqe = get_sqe(state);
		if (!sqe)
			return false;
		io_uring_prep_poll_multishot(sqe, loop->wake_fd, POLLIN);
		io_uring_sqe_set_data64(sqe, TAG_WAKE);
		state->is_wake_armed = true;
	}
	while (!op_list_is_empty(&loop->submitted)) {
		struct op *op = loop->submitted.head.next;
		if (op->is_cancelled) {
			op_list_remove(op);
			op->result = -ECANCELED;
			op_list_append(&state->ended, op);
			continue;
		}
		sqe = get_sqe(state);
		if (!sqe)
			return false;
		op_list_remove(op);
		prepare(state, sqe, op);
	}
	/* After the operations: the kernel works in this order, so a request never overtakes what it asks back. */
	while (!op_list_is_empty(&state->cancels)) {
		sqe = get_sqe(state);
		if (!sqe)
			return false;
		io_uring_prep_cancel(sqe, op_list_take(&state->cancels), 0);
		io_uring_sqe_set_data64(sqe, TAG_CANCEL);
	}
	return true;
}

static void submit_and_wait(struct uring_state *state, int64_t wait_us)
{
	struct io_uring_cqe *cqe;
	int result;

	if (wait_us == 0) {
		result = io_uring_submit_and_get_events(&state->ring);
	} else if (wait_us < 0) {
		result = io_uring_submit_and_wait(&state->ring, 1);
	} else {
		struct __kernel_timespec timeout = {
			.tv_sec = wait_us / SEC_US,
			.tv_nsec = wait_us % SEC_US * 1000,
		};
		result = io_uring_submit_and_wait_timeout(&state->ring, &cqe, 1, &timeout, NULL);
	}
	/* Interrupted, out of time, a moment without memory, completions to be taken first: the next turn goes on. But a loop run by two
	 * threads is our own mistake. */
	MUST(result != -EEXIST && result != -EBADFD);
}

/* An accept goes on until the kernel says that it was the last one. */
static void take_accept(struct loop *loop, struct op *op, int result, bool has_more)
{
	if (op->is_cancelled && result >= 0) {
		(void)close(result);
		result = -ECANCELED;
	}
	if (has_more) {
		if (result >= 0)
			op->done(loop, op, result);
		return;
	}
	op_list_remove(op);
	if (result < 0 && result != -ECONNABORTED && result != -EINTR) {
		loop_complete(loop, op, result);
		return;
	}
	/* The kernel ended the shot, though nothing is wrong (its queue was full, say): ask again, unless the callback ended it. */
	op_list_append(&loop->submitted, op);
	if (result >= 0)
		op->done(loop, op, result);
}

static void take_op(struct loop *loop, struct uring_state *state, struct op *op, int result, bool has_more)
{
	if (op->kind == OP_ACCEPT) {
		take_accept(loop, op, result, has_more);
		return;
	}
	op_list_remove(op);
	if (result == -EINTR) {
		op_list_append(&loop->submitted, op);
		return;
	}
	if (op->kind == OP_SENDFILE && op->stage == STAGE_READ && result > 0) {
		op->stage = STAGE_SEND;
		op->result = result;
		op_list_append(&loop->submitted, op);
		return;
	}
	if (op->kind == OP_SENDFILE)
		buffer_put(state, op);
	loop_complete(loop, op, result);
}

static void deliver(struct loop *loop, struct uring_state *state)
{
	for (struct op *op; (op = op_list_take(&state->ended)) != NULL;) {
		if (op->kind == OP_SENDFILE)
			buffer_put(state, op);
		loop_complete(loop, op, op->result);
	}
	/* Counted first: what arrives meanwhile waits for the next turn, so that timers and posts get theirs. */
	for (unsigned left = io_uring_cq_ready(&state->ring); left > 0; left--) {
		struct io_uring_cqe *cqe = NULL;
		if (io_uring_peek_cqe(&state->ring, &cqe) != 0 || !cqe)
			break;
		uint64_t tag = cqe->user_data;
		int result = cqe->res;
		bool has_more = (cqe->flags & IORING_CQE_F_MORE) != 0;
		io_uring_cqe_seen(&state->ring, cqe);
		if (tag == TAG_CANCEL)
			continue;
		if (tag == TAG_WAKE) {
			state->is_wake_armed = has_more;
			if (result >= 0)
				loop_clear_wake(loop);
			continue;
		}
		take_op(loop, state, (struct op *)(uintptr_t)tag, result, has_more);
	}
}

static void uring_turn(struct loop *loop, int64_t wait_us)
{
	struct uring_state *state = loop->state;

	if (!prepare_all(loop, state) || !op_list_is_empty(&state->ended) || io_uring_cq_ready(&state->ring) > 0)
		wait_us = 0;
	submit_and_wait(state, wait_us);
	loop_tick(loop);
	deliver(loop, state);
}

static void uring_cancel(struct loop *loop, struct op *op)
{
	struct uring_state *state = loop->state;

	/* In a list: not with the kernel yet, or just ended. */
	if (!op_is_listed(op))
		op_list_append(&state->cancels, op);
}

static void uring_start(struct loop *loop)
{
	struct uring_state *state = loop->state;

	/* From here on the ring belongs to this thread. By system call, as liburing 2.3 declares io_uring_enable_rings but does not export it. */
	MUST(syscall(SYS_io_uring_register, state->ring.ring_fd, IORING_REGISTER_ENABLE_RINGS, NULL, 0) == 0);
}

static void uring_free(struct loop *loop)
{
	struct uring_state *state = loop->state;

	io_uring_queue_exit(&state->ring);
	while (state->buffer_count > 0)
		free(state->buffers[--state->buffer_count]);
	free(state);
}

static const struct loop_ops uring_ops = {
	.start = uring_start,
	.turn = uring_turn,
	.cancel = uring_cancel,
	.free = uring_free,
};

int loop_uring_init(struct loop *loop, struct err *err)
{
	struct io_uring_params params = { .flags = SETUP_FLAGS, .cq_entries = CQ_ENTRIES };
	struct uring_state *state = must_zalloc(1, sizeof(*state));
	int result = io_uring_queue_init_params(SQ_ENTRIES, &state->ring, &params);

	if (result < 0) {
		free(state);
		err_sys(err, ERR_SYSTEM, -result, "io_uring cannot be used here");
		if (result == -EPERM || result == -ENOSYS)
			err_hint(err, "allow it (sysctl kernel.io_uring_disabled=0, the container's seccomp profile) "
				      "or use epoll");
		else
			err_hint(err, "heng wants the io_uring of Linux 6.1 or later; use epoll on this kernel");
		return -ERR_SYSTEM;
	}
	op_list_init(&state->cancels);
	op_list_init(&state->ended);
	loop->state = state;
	loop->ops = &uring_ops;
	loop->backend = LOOP_URING;
	return 0;
}
