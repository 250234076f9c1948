/* The completion-shaped event loop: an operation is submitted and comes back once with a result. Two back ends with one contract:
 * io_uring (one submit per turn, single issuer, deferred task run, multishot accept) and epoll. One thread runs a loop; only
 * loop_post may be called from others. */
#ifndef HENG_SYS_LOOP_H
#define HENG_SYS_LOOP_H

#include <sys/socket.h>

#include "base/err.h"
#include "sys/timer.h"

struct loop;
struct op;

/* result: bytes or descriptor (>= 0), or -errno. recv of 0 is the peer's end. */
typedef void op_fn(struct loop *loop, struct op *op, int result);

/* Lives in the caller's memory from submission until its callback (cancelled operations call back with -ECANCELED too).
 * Zero it once before first use; an op may be submitted again from within its callback. */
struct op {
	op_fn *done;
	void *owner;
	/* The rest belongs to the loop. */
	int kind, fd, file_fd;
	void *data;
	size_t size;
	int64_t offset;
	void *buffer; /* of a sendfile where the bytes pass through user space */
	unsigned stage;
	bool is_pending, is_cancelled;
	struct op *prev, *next;
	int result;
};

/* A message from another thread: run(loop, post) on the loop's thread, in posting order. */
struct post {
	void (*run)(struct loop *loop, struct post *post);
	void *owner;
	struct post *next;
};

enum loop_backend { LOOP_AUTO, LOOP_URING, LOOP_EPOLL };

/* AUTO probes io_uring and falls back to epoll; URING fails with words where the kernel forbids it. The loop must be run by one thread,
 * the one that first calls loop_turn. */
int loop_new(enum loop_backend backend, struct loop **ret_loop, struct err *err);
void loop_free(struct loop **loop); /* no operation may be pending */
enum loop_backend loop_backend(const struct loop *loop);
/* Name for configs: "auto", "io_uring", "epoll". */
bool loop_backend_from_name(const char *name, enum loop_backend *ret_backend);

/* Sockets must be non-blocking; a descriptor has at most one receiving (accept, recv) and one sending (connect, send, sendfile) operation
 * pending, and may be closed once these have called back. What an operation points to stays alive until its callback. A callback is never
 * run from within the call that submits. */

/* Multishot: done is called with each accepted descriptor (non-blocking, close-on-exec) until cancelled or failed; an error other than
 * -ECANCELED (say -EMFILE) ends the shot: submit it again, later. */
void loop_accept(struct loop *loop, struct op *op, int fd);
void loop_connect(struct loop *loop, struct op *op, int fd, const struct sockaddr *addr, socklen_t addr_size);
void loop_recv(struct loop *loop, struct op *op, int fd, void *target, size_t size);
void loop_send(struct loop *loop, struct op *op, int fd, const void *data, size_t size); /* may be short; no SIGPIPE */
/* File to socket without a copy through user space where the back end can (sendfile in epoll; splice or read+send in uring); may be short.
 * The offset is the file's, not its position. */
void loop_sendfile(struct loop *loop, struct op *op, int fd, int file_fd, int64_t offset, size_t size);
/* From a file; 0 at its end. Where the back end is epoll the read blocks like a sendfile does: for what is likely in memory. */
void loop_read(struct loop *loop, struct op *op, int file_fd, int64_t offset, void *target, size_t size);
/* For streams that make one operation of several: ends one that is with no back end. Its callback comes in this turn or the next, as ever
 * not from within this call. Such an operation is not for loop_cancel. */
void loop_finish(struct loop *loop, struct op *op, int result);
/* Asks for the operation to end soon; its callback still comes, once, later: with -ECANCELED, or with its result when it was done before
 * the request came through. An accept gives no descriptor after this. No-op when not pending. */
void loop_cancel(struct loop *loop, struct op *op);

/* Timers: microseconds of the monotonic clock, from the loop's now. See timer.h. */
int64_t loop_now_us(const struct loop *loop);                                  /* read once per turn */
void loop_timer_set(struct loop *loop, struct timer *timer, int64_t delay_us); /* moves one that is set */
void loop_timer_stop(struct loop *loop, struct timer *timer);

/* From any thread. The post must stay alive until run is called; threads that post must be done before loop_free. */
void loop_post(struct loop *loop, struct post *post);

/* One turn: submits what was asked for, waits for the first of completion, timer, post, or timeout_us (-1: no limit), runs callbacks.
 * May return early with nothing done. */
void loop_turn(struct loop *loop, int64_t timeout_us);
/* Turns until loop_stop (any thread) is called. */
void loop_run(struct loop *loop);
void loop_stop(struct loop *loop);

#endif
