/* The node's sweep: chunk files that outlived their transfer go. They are left by a node that was away when its scheduler asked for their removal, by
 * a late repeat of a chunk after the merge, by a transfer that failed or was superseded. A thread of its own asks the scheduler which of the transfers
 * with files here are finished, and removes those: at its start, then at an interval. More rarely it looks for unfinished chunks that nobody writes. Each
 * removal is announced to the scheduler first, which writes it into the audit: without its word nothing goes. */
#ifndef HENG_FOLDER_SWEEP_H
#define HENG_FOLDER_SWEEP_H

#include "folder/disk.h"
#include "folder/keyring.h"

struct sweep;
struct sweep_options {
	struct disk *disk;     /* outlives the sweep */
	const char *scheduler; /* URL, http://host:port */
	const struct internal_key *internal_key;
	const char *node_id;
	int64_t interval_us;    /* from the end of one to the start of the next */
	int64_t stray_after_us; /* an unfinished chunk's file that nobody has written for that long goes */
};
int sweep_start(const struct sweep_options *options, struct sweep **ret_sweep, struct err *err);
/* Waits for no answer, only for the removal of one transfer that may be under way. */
void sweep_stop(struct sweep **sweep);

#endif
