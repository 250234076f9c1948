/* The node's sweep: chunk files that outlived their transfer go. They are left by a node that was away when its scheduler asked for their removal, by
 * a late repeat of a chunk after the merge, by a transfer that failed or was superseded. A thread of its own asks the scheduler which of the transfers
 * with files here are finished, and removes those: at its start, then at an interval. */
#ifndef HENG_FOLDER_SWEEP_H
#define HENG_FOLDER_SWEEP_H

#include "folder/disk.h"

struct sweep;
struct sweep_options {
	struct disk *disk;        /* outlives the sweep */
	const char *scheduler;    /* URL, http://host:port */
	const char *internal_key; /* hex */
	int64_t interval_us;      /* from the end of one to the start of the next */
};
int sweep_start(const struct sweep_options *options, struct sweep **ret_sweep, struct err *err);
/* Waits for no answer, only for the removal of one transfer that may be under way. */
void sweep_stop(struct sweep **sweep);

#endif
