#include "sys/timer.h"

#define SLOT_BITS  6
#define SLOT_MASK  (TIMER_SLOTS - 1)
#define SPAN_MS(l) ((int64_t)1 << (SLOT_BITS * ((l) + 1))) /* how far ahead level l reaches */

void timer_wheel_init(struct timer_wheel *wheel, int64_t now_us)
{
	*wheel = (struct timer_wheel){ .now_ms = now_us / MSEC_US };
}

static void link_first(struct timer **head, struct timer *timer)
{
	timer->next = *head;
	timer->link = head;
	if (*head)
		(*head)->link = &timer->next;
	*head = timer;
}

static void unlink_timer(struct timer *timer)
{
	*timer->link = timer->next;
	if (timer->next)
		timer->next->link = timer->link;
	timer->next = NULL;
	timer->link = NULL;
}

/* Into the lowest level that reaches its time. earliest_ms: the first tick whose slot will still be looked at. */
static void place(struct timer_wheel *wheel, struct timer *timer, int64_t earliest_ms)
{
	/* Rounded up, so that none fires early. */
	int64_t due_ms = timer->due_us / MSEC_US + (timer->due_us % MSEC_US != 0);
	unsigned level = 0;

	due_ms = max_i64(due_ms, earliest_ms);
	/* Farther than the wheel reaches: it waits in the farthest slot and is placed anew from there. */
	due_ms = min_i64(due_ms, wheel->now_ms + SPAN_MS(TIMER_LEVELS - 1) - 1);
	while (due_ms - wheel->now_ms >= SPAN_MS(level))
		level++;
	unsigned slot = (unsigned)(due_ms >> (SLOT_BITS * level)) & SLOT_MASK;
	link_first(&wheel->slots[level][slot], timer);
	wheel->used[level] |= (uint64_t)1 << slot;
}

void timer_set(struct timer_wheel *wheel, struct timer *timer, int64_t due_us)
{
	timer_stop(wheel, timer);
	timer->due_us = max_i64(due_us, 1);
	place(wheel, timer, wheel->now_ms + (wheel->is_stepping ? 1 : 0));
	wheel->set_count++;
}

void timer_stop(struct timer_wheel *wheel, struct timer *timer)
{
	if (timer->due_us == 0)
		return;
	unlink_timer(timer);
	timer->due_us = 0;
	wheel->set_count--;
}

/* The first tick at which a slot that holds timers starts; now_ms itself for its own slot; INT64_MAX when nothing is set. */
static int64_t next_tick(const struct timer_wheel *wheel)
{
	int64_t first_ms = INT64_MAX;

	for (unsigned level = 0; level < TIMER_LEVELS; level++) {
		int64_t base = wheel->now_ms >> (SLOT_BITS * level);
		/* Above level 0 the current slot was emptied on arrival: what is in it now belongs to the next round. */
		unsigned distance = level == 0 ? 0 : 1;

		if (wheel->used[level] == 0)
			continue;
		for (unsigned i = 0; i < TIMER_SLOTS; i++, distance++) {
			if (!wheel->slots[level][(base + distance) & SLOT_MASK])
				continue;
			first_ms = min_i64(first_ms, (base + distance) << (SLOT_BITS * level));
			break;
		}
	}
	return first_ms;
}

/* On arrival at a tick: slots that start here hand their timers down. */
static void cascade(struct timer_wheel *wheel)
{
	for (unsigned level = TIMER_LEVELS - 1; level > 0; level--) {
		unsigned shift = SLOT_BITS * level;
		unsigned slot = (unsigned)(wheel->now_ms >> shift) & SLOT_MASK;

		if ((wheel->now_ms & (((int64_t)1 << shift) - 1)) != 0 || !(wheel->used[level] >> slot & 1))
			continue;
		/* Emptied first: a timer beyond the wheel's reach may go back into the slot it comes from. */
		struct timer *list = wheel->slots[level][slot];
		wheel->slots[level][slot] = NULL;
		wheel->used[level] &= ~((uint64_t)1 << slot);
		while (list) {
			struct timer *timer = list;
			list = timer->next;
			place(wheel, timer, wheel->now_ms);
		}
	}
}

static size_t fire_current_slot(struct timer_wheel *wheel, int64_t now_us)
{
	unsigned slot = (unsigned)wheel->now_ms & SLOT_MASK;
	struct timer *list = wheel->slots[0][slot];
	size_t fired_count = 0;

	wheel->slots[0][slot] = NULL;
	wheel->used[0] &= ~((uint64_t)1 << slot);
	if (list)
		list->link = &list;
	/* Any of these may be stopped or moved from fire, so the list's head is looked at anew each time. */
	while (list) {
		struct timer *timer = list;
		timer_stop(wheel, timer);
		timer->fire(timer, now_us);
		fired_count++;
	}
	return fired_count;
}

size_t timer_wheel_step(struct timer_wheel *wheel, int64_t now_us)
{
	int64_t target_ms = now_us / MSEC_US;
	size_t fired_count = 0;

	if (target_ms < wheel->now_ms)
		return 0;
	wheel->is_stepping = true;
	for (;;) {
		fired_count += fire_current_slot(wheel, now_us);
		if (wheel->now_ms == target_ms)
			break;
		/* Ticks at which nothing can happen are skipped. */
		wheel->now_ms = min_i64(target_ms, next_tick(wheel));
		cascade(wheel);
	}
	wheel->is_stepping = false;
	return fired_count;
}

int64_t timer_wheel_wait_us(const struct timer_wheel *wheel, int64_t now_us)
{
	if (wheel->set_count == 0)
		return -1;
	return max_i64(0, next_tick(wheel) * MSEC_US - now_us);
}
