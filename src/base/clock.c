#include "base/clock.h"

#include <time.h>

static int64_t read_us(clockid_t id)
{
	struct timespec now;

	MUST(clock_gettime(id, &now) == 0);
	return (int64_t)now.tv_sec * SEC_US + (int64_t)now.tv_nsec / 1000;
}

int64_t clock_mono_us(void) { return read_us(CLOCK_MONOTONIC); }

int64_t clock_wall_us(void) { return read_us(CLOCK_REALTIME); }

char *clock_text(int64_t wall_us, char target[CLOCK_TEXT_SIZE])
{
	/* Rounded down, before 1970 too. */
	int64_t rest_us = (wall_us % SEC_US + SEC_US) % SEC_US;
	time_t second = (time_t)((wall_us - wall_us % SEC_US) / SEC_US - (wall_us % SEC_US < 0 ? 1 : 0));
	struct tm parts;
	size_t size;

	/* Every int64_t of microseconds is a year that a struct tm holds. */
	MUST(gmtime_r(&second, &parts));
	size = strftime(target, CLOCK_TEXT_SIZE, "%Y-%m-%dT%H:%M:%S", &parts);
	snprintf(target + size, CLOCK_TEXT_SIZE - size, ".%03dZ", (int)(rest_us / MSEC_US));
	return target;
}
