#include "sys/quiet.h"

#include <errno.h>
#include <time.h>

#include "base/base.h"

int quiet_thread(pthread_t *ret_thread, void *(*run)(void *owner), void *owner)
{
	sigset_t all, before;

	(void)sigfillset(&all);
	MUST(pthread_sigmask(SIG_SETMASK, &all, &before) == 0);
	int number = pthread_create(ret_thread, NULL, run, owner);
	MUST(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
	return number;
}

static bool is_pipe_pending(void)
{
	sigset_t pending;

	return sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE) == 1;
}

void quiet_pipe_begin(struct quiet_pipe *pipe)
{
	sigset_t pipe_alone;

	(void)sigemptyset(&pipe_alone);
	(void)sigaddset(&pipe_alone, SIGPIPE);
	pipe->was_pending = is_pipe_pending();
	MUST(pthread_sigmask(SIG_BLOCK, &pipe_alone, &pipe->before) == 0);
}

void quiet_pipe_end(const struct quiet_pipe *pipe)
{
	const struct timespec now = { 0 };
	sigset_t pipe_alone;

	(void)sigemptyset(&pipe_alone);
	(void)sigaddset(&pipe_alone, SIGPIPE);
	/* One that waited before this began is somebody else's. */
	while (!pipe->was_pending && is_pipe_pending()) {
		if (sigtimedwait(&pipe_alone, NULL, &now) < 0 && errno != EINTR)
			break;
	}
	MUST(pthread_sigmask(SIG_SETMASK, &pipe->before, NULL) == 0);
}
