/* The scheduler's keeper: transfers that stand still for too long end as failed, and what failed transfers left on the nodes goes. A thread of its own,
 * so that one thing at a time is removed; it looks at most once a minute, and at once when it is told of a transfer.
 *
 * The order makes it safe to die anywhere: a transfer is failed first (committed), then the nodes are asked, then its chunks are marked lost. A failed
 * transfer whose chunks count as stored was not cleaned yet, whoever failed it, and is cleaned after the next start. A node that cannot be asked removes
 * the files itself when it is back (folder/sweep.h). */
#ifndef HENG_FOLDER_KEEPER_H
#define HENG_FOLDER_KEEPER_H

#include "folder/keyring.h"
#include "folder/pool.h"
#include "plug/store.h"

struct keeper;
struct keeper_options {
	struct store *store; /* outlives the keeper, as does the pool */
	struct pool *pool;
	const struct internal_key *internal_key;
	int64_t expiry_us; /* 0: never */
};
int keeper_start(const struct keeper_options *options, struct keeper **ret_keeper, struct err *err);
/* Waits for no node. */
void keeper_stop(struct keeper **keeper);
/* A transfer has failed: its chunks are to go from all nodes, soon. Any thread. */
void keeper_remove(struct keeper *keeper, const char *transfer_id);

/* What the keeper does each round, with the time as an argument: fails every transfer in state uploading that made no progress for expiry_us. Returns
 * how many in *ret_count; expired is called after the commit of each. */
int keeper_expire(struct store *store, int64_t expiry_us, int64_t now_wall_us,
		  void (*expired)(void *owner, const struct store_transfer *transfer), void *owner, size_t *ret_count,
		  struct err *err);

#endif
