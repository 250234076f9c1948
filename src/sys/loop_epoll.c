#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <unistd.h>

#include "sys/loop_impl.h"

#define EVENTS_MAX 256
#define ACCEPT_BATCH \
	64 /* at most this many in one turn, so that a flood of connections does not starve those that are there */
#define SENDFILE_MAX     MIB
#define STAGE_CONNECTING 1

/* What waits on one descriptor. Nothing here is trusted about the descriptor itself: the caller may have closed it and got the same number
 * for another socket. So an operation is always tried first, and interest is one-shot, set anew for each wait. */
struct waiters {
	struct op *receiver, *sender;
	bool is_known; /* a guess: epoll has this number already */
};

struct epoll_state {
	int epoll_fd;
	struct waiters *table; /* by descriptor */
	size_t table_count;
	struct op_list ended; /* op.result is set (an accept: has something to accept, or is cancelled) */
};

static struct op **waiter_of(struct epoll_state *state, const struct op *op)
{
	struct waiters *waiters = &state->table[op->fd];

	return op->kind == OP_ACCEPT || op->kind == OP_RECV ? &waiters->receiver : &waiters->sender;
}

static void grow_table(struct epoll_state *state, int fd)
{
	size_t count = state->table_count ? state->table_count : 64;

	if ((size_t)fd < state->table_count)
		return;
	while (count <= (size_t)fd)
		count *= 2;
	struct waiters *table = must_zalloc(count, sizeof(*table));
	if (state->table_count > 0)
		memcpy(table, state->table, state->table_count * sizeof(*table));
	free(state->table);
	state->table = table;
	state->table_count = count;
}

static int try_connect(struct op *op)
{
	int number = 0;
	socklen_t size = sizeof(number);

	if (op->stage != STAGE_CONNECTING) {
		op->stage = STAGE_CONNECTING;
		if (connect(op->fd, op->data, (socklen_t)op->size) == 0)
			return 0;
		return errno == EINPROGRESS || errno == EINTR ? -EAGAIN : -errno;
	}
	if (getsockopt(op->fd, SOL_SOCKET, SO_ERROR, &number, &size) < 0)
		return -errno;
	return -number;
}

/* One system call; -EAGAIN means: wait. */
static int try_once(struct op *op)
{
	off_t offset = op->offset;
	ssize_t count = 0;

	switch ((enum op_kind)op->kind) {
	case OP_ACCEPT:
		return 0; /* accepted while delivering */
	case OP_CONNECT:
		return try_connect(op);
	case OP_RECV:
		count = recv(op->fd, op->data, min_size(op->size, INT_MAX), MSG_DONTWAIT);
		break;
	case OP_SEND:
		count = send(op->fd, op->data, min_size(op->size, INT_MAX), MSG_DONTWAIT | MSG_NOSIGNAL);
		break;
	case OP_SENDFILE:
		count = sendfile(op->fd, op->file_fd, &offset, min_size(op->size, SENDFILE_MAX));
		break;
	case OP_READ:
		count = pread(op->fd, op->data, min_size(op->size, INT_MAX), offset);
		break;
	}
	return count < 0 ? -errno : (int)count;
}

/* True when the operation has ended and its result is set. */
static bool try_op(struct op *op)
{
	if (op->is_cancelled) {
		op->result = -ECANCELED;
		return true;
	}
	do {
		op->result = try_once(op);
	} while (op->result == -EINTR);
	return op->result != -EAGAIN;
}

/* Tells epoll what this descriptor waits for. 0 or -errno. */
static int arm(struct epoll_state *state, int fd)
{
	struct waiters *waiters = &state->table[fd];
	struct epoll_event event = { .events = EPOLLONESHOT, .data.fd = fd };

	if (waiters->receiver)
		event.events |= EPOLLIN | EPOLLRDHUP;
	if (waiters->sender)
		event.events |= EPOLLOUT;
	int first = waiters->is_known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
	waiters->is_known = true;
	if (epoll_ctl(state->epoll_fd, first, fd, &event) == 0)
		return 0;
	if (errno != ENOENT && errno != EEXIST)
		return -errno;
	int second = first == EPOLL_CTL_MOD ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
	return epoll_ctl(state->epoll_fd, second, fd, &event) == 0 ? 0 : -errno;
}

/* Takes the operation off its descriptor; it ends in this turn. */
static void end_waiter(struct epoll_state *state, struct op **waiter)
{
	struct op *op = *waiter;

	*waiter = NULL;
	op_list_append(&state->ended, op);
}

static void arm_waiters(struct epoll_state *state, int fd)
{
	struct waiters *waiters = &state->table[fd];

	if (!waiters->receiver && !waiters->sender)
		return;
	int result = arm(state, fd);
	if (result == 0)
		return;
	if (waiters->receiver) {
		waiters->receiver->result = result;
		end_waiter(state, &waiters->receiver);
	}
	if (waiters->sender) {
		waiters->sender->result = result;
		end_waiter(state, &waiters->sender);
	}
}

static void park(struct epoll_state *state, struct op *op)
{
	grow_table(state, op->fd);
	struct op **waiter = waiter_of(state, op);
	MUST(!*waiter);
	*waiter = op;
	arm_waiters(state, op->fd);
}

static void try_submitted(struct loop *loop, struct epoll_state *state)
{
	for (struct op *op; (op = op_list_take(&loop->submitted)) != NULL;) {
		if (op->fd < 0) {
			op->result = -EBADF;
			op_list_append(&state->ended, op);
		} else if (try_op(op)) {
			op_list_append(&state->ended, op);
		} else {
			park(state, op);
		}
	}
}

static void take_event(struct epoll_state *state, const struct epoll_event *event)
{
	int fd = event->data.fd;

	if ((size_t)fd >= state->table_count)
		return;
	struct waiters *waiters = &state->table[fd];
	bool is_broken = (event->events & (EPOLLERR | EPOLLHUP)) != 0;
	if (waiters->receiver && (is_broken || (event->events & (EPOLLIN | EPOLLRDHUP)) != 0) &&
	    try_op(waiters->receiver))
		end_waiter(state, &waiters->receiver);
	if (waiters->sender && (is_broken || (event->events & EPOLLOUT) != 0) && try_op(waiters->sender))
		end_waiter(state, &waiters->sender);
	arm_waiters(state, fd);
}

/* Accepts a batch; afterwards the operation waits, or goes on in the next turn, or has ended. */
static void deliver_accept(struct loop *loop, struct epoll_state *state, struct op *op)
{
	op->result = 0;
	for (int i = 0; i < ACCEPT_BATCH && !op->is_cancelled; i++) {
		int fd = accept4(op->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd >= 0) {
			op->done(loop, op, fd);
			continue;
		}
		/* A connection that was gone before it was taken is no fault of the listener. */
		if (errno == EINTR || errno == ECONNABORTED)
			continue;
		if (errno == EAGAIN) {
			park(state, op);
			return;
		}
		loop_complete(loop, op, -errno);
		return;
	}
	if (op->is_cancelled)
		loop_complete(loop, op, -ECANCELED);
	else
		op_list_append(&loop->submitted, op);
}

static void deliver(struct loop *loop, struct epoll_state *state)
{
	for (struct op *op; (op = op_list_take(&state->ended)) != NULL;) {
		if (op->kind == OP_ACCEPT && op->result >= 0)
			deliver_accept(loop, state, op);
		else
			loop_complete(loop, op, op->result);
	}
}

static void epoll_turn(struct loop *loop, int64_t wait_us)
{
	struct epoll_state *state = loop->state;
	struct epoll_event events[EVENTS_MAX];
	int wait_ms = -1;

	try_submitted(loop, state);
	if (!op_list_is_empty(&state->ended))
		wait_us = 0;
	/* Rounded up: waking before the time would mean turning again and again until it has come. */
	if (wait_us >= 0)
		wait_ms = (int)min_i64((wait_us + MSEC_US - 1) / MSEC_US, INT_MAX);
	int count = epoll_wait(state->epoll_fd, events, EVENTS_MAX, wait_ms);
	loop_tick(loop);
	for (int i = 0; i < count; i++) {
		if (events[i].data.fd == loop->wake_fd)
			loop_clear_wake(loop);
		else
			take_event(state, &events[i]);
	}
	deliver(loop, state);
}

/* In no list: it waits on its descriptor, or is the accept whose callback runs just now. */
static void epoll_cancel(struct loop *loop, struct op *op)
{
	struct epoll_state *state = loop->state;

	if (op_is_listed(op) || op->fd < 0 || (size_t)op->fd >= state->table_count)
		return;
	struct op **waiter = waiter_of(state, op);
	if (*waiter != op)
		return;
	*waiter = NULL;
	op_list_append(&loop->submitted, op);
}

static void epoll_start(struct loop *loop) { (void)loop; }

static void epoll_free(struct loop *loop)
{
	struct epoll_state *state = loop->state;

	(void)close(state->epoll_fd);
	free(state->table);
	free(state);
}

static const struct loop_ops epoll_ops = {
	.start = epoll_start,
	.turn = epoll_turn,
	.cancel = epoll_cancel,
	.free = epoll_free,
};

int loop_epoll_init(struct loop *loop, struct err *err)
{
	struct epoll_event event = { .events = EPOLLIN, .data.fd = loop->wake_fd };
	int epoll_fd = epoll_create1(EPOLL_CLOEXEC);

	if (epoll_fd < 0)
		return err_sys(err, ERR_SYSTEM, errno, "cannot make an event loop (epoll_create1)");
	if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, loop->wake_fd, &event) < 0) {
		int number = errno;
		(void)close(epoll_fd);
		return err_sys(err, ERR_SYSTEM, number, "cannot make an event loop (epoll_ctl)");
	}
	struct epoll_state *state = must_zalloc(1, sizeof(*state));
	state->epoll_fd = epoll_fd;
	op_list_init(&state->ended);
	loop->state = state;
	loop->ops = &epoll_ops;
	loop->backend = LOOP_EPOLL;
	return 0;
}
