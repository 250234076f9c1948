/* Where merged folders appear, behind one interface: a folder on this machine (merge_publish.c), or a bucket (final_s3.c). The merge is the same for
 * both: it puts the folder together in staging and compares every file's digest; what differs is how that becomes visible at once. */
#ifndef HENG_FOLDER_FINAL_H
#define HENG_FOLDER_FINAL_H

#include "folder/merge.h"

struct merge_run;

enum merge_placed { MERGE_NOT_PLACED, MERGE_PLACED, MERGE_PLACED_BEFORE, MERGE_PLACED_BY_OTHER };

struct final_ops {
	/* Does it hold what others than merges may change, so that asking takes a call over the network? */
	bool is_remote;
	/* Is the batch there, and was it this transfer that put it there? BEFORE: it was, in a merge that came to nothing. */
	int (*placed)(struct merge_run *run, enum merge_placed *ret_placed, struct err *err);
	/* From a complete staging tree to a durable batch in its place. */
	int (*publish)(struct merge_run *run, struct err *err);
	/* A crash came between the batch's appearing and the commit: the steps in between, again. */
	int (*publish_again)(struct merge_run *run, struct err *err);
	/* Takes the transfer's batch back from its place. */
	int (*withdraw)(struct merge_run *run, struct err *err);
	/* Is there something of this name already, whoever's? What cannot be asked is not there. */
	bool (*exists)(const struct merge *merge, const char *batch);
	/* Of a completed transfer: the manifest, open for reading; -ERR_STATE when it is no longer there as it was put. */
	int (*open_manifest)(const struct merge *merge, const struct store_transfer *transfer, struct err *err);
};
extern const struct final_ops final_dir_ops, final_s3_ops;

/* --- a bucket --- */
struct final_s3;
struct final_s3_options {
	const char *place; /* "s3://bucket/prefix" */
	const char *endpoint, *region, *credentials_file;
	uint64_t
		part_bytes; /* larger files go in parts of so many bytes, or larger ones where there would be too many */
	unsigned connection_count; /* at once, of one publishing */
	int64_t give_up_us;        /* without an answer for that long a publishing is put off */
};
int final_s3_new(const struct final_s3_options *options, struct final_s3 **ret_s3, struct err *err);
void final_s3_free(struct final_s3 **s3);
/* Refuses a manifest with names that cannot be objects' keys (-ERR_ENTRY_REFUSED), naming the first of them. */
int final_s3_check_names(const struct final_s3 *s3, struct str batch, int manifest_fd, struct err *err);
/* A stretch of a file of a completed transfer, as a file without a name, of exactly that size. */
int final_s3_open_range(const struct merge *merge, const struct store_transfer *transfer, struct str path,
			uint64_t first, uint64_t size, struct err *err);

#endif
