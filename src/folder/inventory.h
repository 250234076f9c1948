/* The scheduler's inventory: what nodes really hold, put right in the tables. Each start of a node, and each start of the scheduler, has every node asked
 * for the chunks of all transfers that are being uploaded:
 *   - a chunk that is there and that the tables do not know as stored is adopted, by a receipt like the node's own: what the tables lost (a database that
 *     was restored from a copy), and what a node had made durable and could not tell before it died, is not sent again;
 *   - a chunk that the tables call stored there, and that is not, becomes lost: its disk was replaced, or an old copy of its folder put back. A client is
 *     asked for it now, not when the merge fails.
 * A few threads, so that a slow node holds up none of the others. The tables are read before the node is asked: what was stored by then must be there. A row
 * that changed meanwhile is left alone, as is all of a transfer whose state changed. */
#ifndef HENG_FOLDER_INVENTORY_H
#define HENG_FOLDER_INVENTORY_H

#include "folder/keyring.h"
#include "folder/pool.h"
#include "plug/store.h"

struct inventory;
struct inventory_options {
	struct store *store; /* outlives the inventory, as does the pool */
	struct pool *pool;
	const struct internal_key *internal_key;
	int64_t settle_us;  /* after the start; see inventory_is_settled. 0: 10 s */
	unsigned try_limit; /* how often a node that does not tell is asked. 0: 10 */
};
int inventory_start(const struct inventory_options *options, struct inventory **ret_inventory, struct err *err);
/* After pool_halt. Waits for no node. */
void inventory_stop(struct inventory **inventory);

/* Since the start of the scheduler, has every node that can be reached been asked once? True in any case settle_us after the start. Until then, that a chunk of
 * a transfer from before the start is missing in the tables says little. Any thread. */
bool inventory_is_settled(struct inventory *inventory);
/* When the scheduler started: younger transfers have no history that could have been lost. */
int64_t inventory_began_wall_us(const struct inventory *inventory);

#endif
