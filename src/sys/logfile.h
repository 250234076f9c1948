/* A file of lines that rotates and is synced by time: decision log, access log. Lines are collected in memory and written by one thread, so that
 * the caller never waits for a disk. While the disk is full or failing, lines are kept in the queue up to its bound and tried again each interval;
 * beyond the bound they are dropped and counted, and the count is written as a line of its own as soon as it can:
 *   {"kind":"dropped","lines":12,"wall_us":1767225600000000} */
#ifndef HENG_SYS_LOGFILE_H
#define HENG_SYS_LOGFILE_H

#include "base/err.h"
#include "base/buf.h"

struct logfile;
struct logfile_conf {
	const char *path;         /* rotated to path.1, path.2, ...; the highest is the oldest */
	uint64_t rotate_bytes;    /* a new file once this is passed, after a whole line; 0: never */
	unsigned keep_count;      /* rotated files kept */
	int64_t sync_interval_us; /* written at the latest after it and synced; 0: 1 s */
	uint64_t queue_bytes;     /* collected at most; 0: 64 MiB */
	/* Called on the writing thread before the first line of each new file, and before the first one of this process in a file that is there
	 * already; its lines come first there (the profiles in use, say). May be NULL. */
	void (*head)(void *owner, struct buf *buf);
	/* Called on the writing thread when writing begins to fail, with why, and with NULL when it works again. dropped_count: lines lost since the
	 * start. May be NULL. */
	void (*told)(void *owner, const struct err *fault, uint64_t dropped_count);
	void *owner;
};
/* Appends to what is there; a torn last line (kill -9, power) is ended first, so that readers see one broken line and no two that run together.
 * Refused with -ERR_BUSY while another process writes the file. A file that somebody moves away or deletes is made anew within an interval. */
int logfile_open(const struct logfile_conf *conf, struct logfile **ret_file, struct err *err);
/* Whole lines, each ended by a newline. Any thread. False when they were dropped. */
bool logfile_write(struct logfile *file, struct str lines);
/* Returns when all that was written before is on disk; on failure the lines are kept and tried again. */
int logfile_sync(struct logfile *file, struct err *err);
uint64_t logfile_dropped(const struct logfile *file); /* lines since the start */
/* Writes and syncs what is left, with one try; what cannot be written then is lost. No other thread may use the file any more. */
void logfile_close(struct logfile **file);

#endif
