#include "folder/node_clock.h"

#include "base/clock.h"
#include "base/log.h"

/* Apart by that much, and by that much more than was said, is worth a line: someone reads the machine's other logs by that clock. */
#define TELL_US (5 * SEC_US)
/* Clocks that are kept by NTP agree better than an answer on its way can tell: below that, correcting would only blur the order of records. */
#define AGREES_US (100 * MSEC_US)

int64_t node_clock_wall_us(const struct node_clock *clock)
{
	return clock_wall_us() + atomic_load_explicit(&clock->offset_us, memory_order_relaxed);
}

static int64_t apart(int64_t a_us, int64_t b_us) { return a_us > b_us ? a_us - b_us : b_us - a_us; }

static void tell(struct node_clock *clock, int64_t offset_us)
{
	const double seconds = (double)offset_us / SEC_US;

	if (apart(offset_us, 0) >= TELL_US && apart(offset_us, clock->told_us) >= TELL_US) {
		log_say(LOG_WARN,
			"this machine's clock is %.1f s %s the scheduler's: its time is used for tickets and records; "
			"set the clock (is NTP running?)",
			offset_us > 0 ? seconds : -seconds, offset_us > 0 ? "behind" : "ahead of");
		clock->told_us = offset_us;
	} else if (apart(offset_us, 0) < TELL_US && clock->told_us != 0) {
		log_say(LOG_INFO, "this machine's clock agrees with the scheduler's again");
		clock->told_us = 0;
	}
}

void node_clock_feed(struct node_clock *clock, int64_t server_wall_us, int64_t round_trip_us, int64_t now_wall_us)
{
	/* Later than the year 9999, or before 1970, is no time but a fault of the peer; sums with it would overflow. */
	if (server_wall_us <= 0 || server_wall_us > INT64_C(253402300800) * SEC_US || round_trip_us < 0)
		return;
	const int64_t offset_us = server_wall_us + round_trip_us / 2 - now_wall_us;

	const int64_t kept_us = atomic_load_explicit(&clock->offset_us, memory_order_relaxed);

	/* It says no more than "within half the trip". */
	if (apart(offset_us, kept_us) > round_trip_us / 2 + AGREES_US)
		atomic_store_explicit(&clock->offset_us, offset_us, memory_order_relaxed);
	tell(clock, offset_us);
}
