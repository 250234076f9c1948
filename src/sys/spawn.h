/* Running another program: no shell, a text for its input, its output bounded, a time within which it must end. Blocking: for a thread of its own. */
#ifndef HENG_SYS_SPAWN_H
#define HENG_SYS_SPAWN_H

#include <stdatomic.h>

#include "base/buf.h"
#include "base/err.h"

struct spawn {
	/* Asked. argv[0] is a path (nothing is searched for), both end with NULL. The program gets nothing else: no open descriptor, no signal that is
	 * blocked or ignored, the root as its folder, a process group of its own. */
	const char *const *argv, *const *env;
	struct str input;
	int64_t timeout_us;
	const atomic_bool *is_interrupted; /* NULL, or set from anywhere: the program is ended, -ERR_WAITING */
	/* Answered. What it wrote to both its outputs, up to the buffer's limit: the rest is read and thrown away. Caller frees. */
	struct buf output;
	bool is_output_cut;
};

/* 0 when it ended with 0. Else -ERR_REFUSED (another number, or a signal), -ERR_TIMEOUT, -ERR_WAITING, -ERR_SYSTEM (it could not be started). One
 * that does not end in time is asked to (SIGTERM), and after 2 s made to, with all of its process group. */
int spawn_run(struct spawn *spawn, struct err *err);

#endif
