/* Work in a process that may not be ours alone: threads that take nobody's signals, and writes to what has gone that raise none. */
#ifndef HENG_SYS_QUIET_H
#define HENG_SYS_QUIET_H

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>

/* pthread_create of a thread in which all signals are blocked: handlers run in the threads of whoever installed them. Returns its errno. */
int quiet_thread(pthread_t *ret_thread, void *(*run)(void *owner), void *owner);

/* Blocks SIGPIPE in this thread (and those it starts meanwhile), whatever the process does about it; the end takes back what came meanwhile. In
 * pairs, in one thread; one pair inside another is harmless. */
struct quiet_pipe {
	sigset_t before;
	bool was_pending;
};
void quiet_pipe_begin(struct quiet_pipe *pipe);
void quiet_pipe_end(const struct quiet_pipe *pipe);

#endif
