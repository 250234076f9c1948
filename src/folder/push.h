/* The client's side of a transfer: scan, manifest, plan, chunks to the nodes, complete, wait for the merge. */
#ifndef HENG_FOLDER_PUSH_H
#define HENG_FOLDER_PUSH_H

#include <stdatomic.h>

#include "base/digest.h"
#include "base/err.h"
#include "base/rng.h"
#include "folder/walk.h"
#include "wire/seal.h"

#define PUSH_PARALLEL_MAX 64
#define PUSH_BATCH_SIZE   256

struct push_node_share {
	char id[65];
	uint64_t bytes, chunk_count;
};
struct push_progress {
	const char *phase;       /* "scan", "plan", "send", "merge", "done" */
	const char *waiting_for; /* NULL or text */
	uint64_t files_total, bytes_total, chunks_total;
	uint64_t bytes_done, chunks_done, chunks_skipped; /* skipped: stored before this run */
	uint64_t files_done;
	uint64_t chunks_sent, retries, failovers;
	uint64_t limit_rate_bytes; /* as asked for */
	int64_t elapsed_us;
	struct push_node_share shares[64];
	size_t share_count;
	unsigned parallel;                     /* chunks that may be under way now; 0 before the first */
	uint64_t merging_files, merging_bytes; /* put together so far, in the phase "merge" */
};
/* What a new transfer wishes for where no chunk size is asked for: LAN 8 MiB, WAN 1 MiB; AUTO what earlier pushes to this scheduler found. */
enum push_network { PUSH_NETWORK_AUTO, PUSH_NETWORK_LAN, PUSH_NETWORK_WAN };
struct push_options {
	const char *folder;
	const char *url; /* http[s]://host:port */
	const char *api_key;
	struct tls *tls;      /* for https; NULL: the system's authorities, no certificate */
	struct str batch;     /* empty: the folder's own name */
	unsigned parallel;    /* 0: chosen */
	uint64_t chunk_bytes; /* 0: the scheduler's */
	unsigned copies;      /* of each chunk, each on a node of its own: 1 or 2; 0: the scheduler's */
	/* Bytes a second of all bodies together, BUCKET_RATE_MIN_BYTES to BUCKET_RATE_MAX_BYTES; 0: no limit. Fewer chunks go at once then, where it is
	 * slow, and patience (give_up_us) grows by the time that those under way need. */
	uint64_t limit_rate_bytes;
	enum digest_kind digest;
	const char *encrypt;     /* the key file; NULL: the files are sent as they are */
	enum seal_cipher cipher; /* with which they are encrypted */
	enum walk_links links;
	bool is_dry_run;
	int priority;
	int64_t give_up_us;                /* stop when nothing was acknowledged for this long; 0: 60 s */
	const atomic_bool *is_interrupted; /* NULL, or set by a signal handler or another thread: stop, resumable */
	/* Called from the pushing thread about 10 times a second and at each change of phase. */
	void (*progress)(void *owner, const struct push_progress *progress);
	void (*notice)(void *owner, const char *line); /* retries, fail-overs, skipped entries, for people */
	/* An entry that cannot be sent, or that changed while it was: raw path and why. */
	void (*problem)(void *owner, struct str path, const char *reason);
	void *owner;
	const char *resume; /* the transfer to go on with, and no other; NULL: the one that fits, or a new one */
	enum push_network network;
	/* Where it is kept what pushes find out about networks; made when it is not there. NULL: nowhere. */
	const char *state_dir;
};
struct push_result {
	char transfer_id[ULID_SIZE];
	char batch[PUSH_BATCH_SIZE];
	char state[16]; /* the transfer's last known state; "" when there is no transfer yet */
	char final_path[4608];
	uint64_t files, bytes, chunks;
	uint64_t chunks_sent; /* acknowledged in this run, and not there before; each copy counts */
	uint64_t retries, failovers;
	int64_t elapsed_us;
	uint64_t skipped_count; /* entries left out on request */
	uint64_t
		changed_count; /* entries that changed, vanished or could not be read while they were sent, and ended the push */
	uint64_t revised_count; /* entries that changed while they were sent, and were sent again as they were then */
	bool is_resumable;      /* after a failure: the same command continues where this one stopped */
	bool is_taken_away;     /* completed before this push, and its folder was taken out of the final store since */
};
/* Returns 0 when completed (or planned, for a dry run). err: what stopped it. */
int push_folder(const struct push_options *options, struct push_result *ret_result, struct err *err);

#endif
