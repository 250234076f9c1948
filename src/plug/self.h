/* The report a process makes of itself: sys/host's facts as core's report, with a self-check of its folders. The one place where the two meet, for
 * storage nodes and for agents. */
#ifndef HENG_PLUG_SELF_H
#define HENG_PLUG_SELF_H

#include "core/report.h"
#include "sys/host.h"

#define SELF_WINDOW_US (300 * SEC_US) /* of the latencies */

struct self;
/* data_dir: for the disk fields; NULL: none. dirs: folders to check, at most REPORT_DIRS_MAX; copied. */
struct self *self_new(const char *node_id, const char *incarnation, const char *data_dir, const char *const *dirs,
		      size_t dir_count);
void self_free(struct self **self);
/* Below these a folder fails its check though it can be written: free bytes, free share of its file system, free inodes. Without a call: 64 MiB, 0 %,
 * 256. Before the first measure. */
void self_set_floors(struct self *self, uint64_t free_bytes, unsigned free_percent, uint64_t inodes_count);
/* Counters and latencies of the process's own requests; any thread. Each began is followed by one ended. */
void self_began(struct self *self);
void self_ended(struct self *self, int64_t latency_us, bool is_failed, bool is_write, int64_t now_us);
/* Fills everything but wal_lag_*, sync_progress_ppm, verified, migrating, leaving (unknown): the caller knows those. Checks the folders when the last
 * check is older than check_interval_us; between two checks their results stand. Rates are over the time since the former call. Blocking: from a
 * pool thread, one caller at a time. */
void self_measure(struct self *self, int64_t check_interval_us, int64_t now_us, struct report_message *ret_message);

#endif
