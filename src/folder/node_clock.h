/* A node's wall clock, corrected by its scheduler's: tickets and signatures are timed by that one, and a machine whose clock is off would refuse every
 * chunk, or take what has expired. Read by any thread, fed by one. */
#ifndef HENG_FOLDER_NODE_CLOCK_H
#define HENG_FOLDER_NODE_CLOCK_H

#include <stdatomic.h>

#include "base/base.h"

struct node_clock {
	_Atomic int64_t offset_us; /* added to this machine's clock */
	int64_t told_us;           /* the offset that the log last spoke of */
};

/* The scheduler's time, as far as we know; before its first word, this machine's. */
int64_t node_clock_wall_us(const struct node_clock *clock);
/* The scheduler said that time in an answer that took round_trip_us and came when this machine's clock was at now_wall_us. Half the trip is the
 * error at most, and what lies within it changes nothing. Logs when the clocks are far apart, and when they no longer are. */
void node_clock_feed(struct node_clock *clock, int64_t server_wall_us, int64_t round_trip_us, int64_t now_wall_us);

#endif
