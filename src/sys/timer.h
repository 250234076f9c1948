/* A hierarchical timer wheel; now is an argument, so that tests wind it by hand. Resolution 1 ms. */
#ifndef HENG_SYS_TIMER_H
#define HENG_SYS_TIMER_H

#include "base/base.h"

struct timer {
	void (*fire)(struct timer *timer, int64_t now_us);
	void *owner;
	int64_t due_us; /* 0: not set */
	/* The wheel's own: the next in the slot, and the pointer that points here (so that stopping need not know the slot). */
	struct timer *next, **link;
};

#define TIMER_LEVELS 5
#define TIMER_SLOTS  64

struct timer_wheel {
	int64_t now_ms;
	size_t set_count;
	bool is_stepping;
	uint64_t used[TIMER_LEVELS]; /* a bit a slot; one may be set though its slot is empty by now */
	struct timer *slots[TIMER_LEVELS][TIMER_SLOTS];
};

void timer_wheel_init(struct timer_wheel *wheel, int64_t now_us);
void timer_set(struct timer_wheel *wheel, struct timer *timer, int64_t due_us); /* re-setting moves it */
void timer_stop(struct timer_wheel *wheel, struct timer *timer);
/* Fires everything due by now_us; never early. A timer may set or stop any timer from fire; one set there for now or the past
 * fires a tick later, so that a timer which sets itself again cannot hold a step for ever. Returns how many fired. */
size_t timer_wheel_step(struct timer_wheel *wheel, int64_t now_us);
/* Microseconds until something may be due (a lower bound), -1 when nothing is set. */
int64_t timer_wheel_wait_us(const struct timer_wheel *wheel, int64_t now_us);

#endif
