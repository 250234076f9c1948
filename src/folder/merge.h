/* Merging: chunks of a transfer become its folder. Pulls from each chunk's actual node, writes into staging, checks size and whole-file digest,
 * then renames the tree into place at once. Starts again from nothing after a crash and ends the same. */
#ifndef HENG_FOLDER_MERGE_H
#define HENG_FOLDER_MERGE_H

#include "folder/hook.h"
#include "folder/keyring.h"
#include "folder/pool.h"
#include "plug/store.h"

struct merge;
struct final_s3;
struct merge_options {
	const char *staging_dir, *final_dir; /* one file system */
	const struct internal_key *internal_key;
	/* The final store is this bucket; final_dir is then its name, s3://bucket/prefix, for people. NULL: the folder final_dir. */
	const struct final_s3 *bucket;
	struct hooks *hooks;            /* told of what is completed; NULL: nobody is */
	unsigned object_limit_count;    /* at once; 8 */
	unsigned node_connection_limit; /* per node; 8 */
	unsigned pull_try_limit;        /* per chunk, while its node answers; 0: 5 */
	int64_t retry_after_us;         /* when the end of a merge could not be recorded, it is tried again; 0: 5 s */
	bool is_ahead_off;              /* nothing is merged before its transfer is complete */
	uint64_t free_floor_bytes;      /* kept free there by what is merged ahead */
	int64_t node_lost_after_us; /* a node that is out this long is waited for no more: its chunks become lost; 30 s */
};
/* Starts the merging thread(s), clears staging of what no merge owns, and resumes every transfer that is in state merging. */
int merge_start(const struct merge_options *options, struct store *store, struct pool *pool, struct merge **ret_merge,
		struct err *err);
void merge_stop(struct merge **merge); /* a running merge is given up; it starts again next time */
/* The transfer is in state merging now. Idempotent. Of those that wait the highest priority is merged first, then the one that came first. Ends with completed (chunk files removed from nodes after the commit), uploading (some chunks
 * pending or lost again; or all stored as before, when the merge met something that may pass, like a full disk), or failed. */
void merge_enqueue(struct merge *merge, const char *transfer_id, int priority);
/* Something of the transfer was stored while it is being sent: it may be put together as far as it has come. Cheap, and never needed: a merge does
 * without. */
void merge_ahead(struct merge *merge, const char *transfer_id);
/* How much of a transfer that is being put together, ahead too, is in staging and right. 0 while none of it is. */
void merge_progress(struct merge *merge, const char *transfer_id, uint64_t *ret_files, uint64_t *ret_bytes);
/* Where a batch is or will be: final_dir/batch. */
void merge_final_path(const struct merge *merge, struct str batch, char *target, size_t target_size);
/* Is there such a batch in the final store already? */
bool merge_batch_exists(const struct merge *merge, struct str batch);
/* Of a completed transfer: is its batch there still? Of a bucket nobody is asked: yes. */
bool merge_batch_is_in_place(const struct merge *merge, struct str batch);
/* Of a completed transfer: the manifest that lies beside its folder, and the folder itself; open for reading. -ERR_STATE when they are there no
 * more, or another transfer's (of the same batch name) took their place. *ret_is_same: it is the folder that was put there; another one, in whose
 * place it is, may be a copy from a backup or anything else: what is in it must be compared. */
int merge_open_manifest(const struct merge *merge, const struct store_transfer *transfer, struct err *err);
int merge_open_batch(const struct merge *merge, const struct store_transfer *transfer, bool *ret_is_same,
		     struct err *err);
bool merge_is_bucket(const struct merge *merge); /* then instead of merge_open_batch: final_s3_open_range */

#endif
