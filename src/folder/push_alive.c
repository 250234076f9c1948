/* Is the scheduler still there, while it thinks for long? It may read and plan a million entries before it answers, and nothing tells that from one that
 * hangs but a question that is answered at once. */
#include <stdio.h>

#include "folder/push_impl.h"

#define ALIVE_AFTER_US   (1 * SEC_US) /* without anything, and between two questions; sooner for who is impatient */
#define ALIVE_TIMEOUT_US (5 * SEC_US)

static void alive_called(struct fetch *fetch, struct fetch_call *call)
{
	(void)fetch;
	struct push_alive *alive = call->owner;
	alive->is_done = true;
}

/* There must be time for several questions before the push gives up. */
static int64_t ask_at(const struct push *push, int64_t now_us)
{
	return now_us + min_i64(ALIVE_AFTER_US, push->give_up_us / 4);
}

void push_alive_begin(struct push_alive *alive, const struct push *push, int64_t now_us)
{
	*alive = (struct push_alive){ .call = FETCH_CALL_INIT, .heard_us = now_us, .due_us = ask_at(push, now_us) };
}

static void alive_ask(struct push_alive *alive, struct push *push)
{
	snprintf(alive->url, sizeof(alive->url), "%s/health", push->options->url);
	alive->call = FETCH_CALL_INIT;
	alive->call.url = alive->url;
	alive->call.timeout_us = ALIVE_TIMEOUT_US;
	alive->call.done = alive_called;
	alive->call.owner = alive;
	alive->is_running = true;
	alive->is_done = false;
	fetch_start(push->fetch, &alive->call);
}

int64_t push_alive_step(struct push_alive *alive, struct push *push, int64_t bytes_sent, int64_t now_us)
{
	if (bytes_sent > alive->bytes_sent) {
		alive->bytes_sent = bytes_sent;
		alive->heard_us = now_us;
		alive->due_us = ask_at(push, now_us);
	}
	if (alive->is_running && alive->is_done) {
		alive->is_running = false;
		/* Whatever it says: it speaks. */
		if (alive->call.status != 0) {
			alive->heard_us = now_us;
			alive->is_thinking = true;
		}
		buf_fini(&alive->call.answer);
		alive->due_us = ask_at(push, now_us);
	}
	if (!alive->is_running && now_us >= alive->due_us)
		alive_ask(alive, push);
	return now_us - alive->heard_us;
}

void push_alive_end(struct push_alive *alive, struct push *push)
{
	if (alive->is_running)
		fetch_cancel(push->fetch, &alive->call);
	buf_fini(&alive->call.answer);
}
