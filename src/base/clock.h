/* Time as an argument. core and the machines take instants; only the edges read a clock, through this. */
#ifndef HENG_BASE_CLOCK_H
#define HENG_BASE_CLOCK_H

#include "base/base.h"

int64_t clock_mono_us(void); /* CLOCK_MONOTONIC */
int64_t clock_wall_us(void); /* microseconds since 1970, UTC */

#define CLOCK_TEXT_SIZE 32
/* RFC 3339 with milliseconds, UTC: 2026-01-31T08:00:00.123Z. Returns target. */
char *clock_text(int64_t wall_us, char target[CLOCK_TEXT_SIZE]);

#endif
