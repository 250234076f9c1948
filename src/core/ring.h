/* A weighted consistent-hash ring (Karger et al. 1997; many places a key: Appleton, O'Reilly 2015; bounded loads: Mirrokni, Thorup,
 * Zadimoghaddam 2016). Immutable once built; safe to read from any thread. Does not know health: the caller passes the eligible nodes. A pure
 * function of (ids, weights), never of list order: virtual node i of a node depends on its id and i alone; equal hashes are ordered by id.
 *
 * A key has RING_PROBES places on the ring and belongs to the node whose point follows closest, clockwise, upon any of them. As on a ring with
 * one place a key, a change of a node's weight or membership moves only keys to or from that node. But shares are even: 160 random arcs a unit
 * deviate by 8 % from their share (one in three nodes by more than 5 %), whatever the hash; with 12 places the mean is 0.9 % and, simulated over
 * 180 pools of 3 to 100 nodes of weights 1 to 4, the worst node of a pool is off by 1.4 % (3 nodes) to 4.2 % (100 nodes) on average and one
 * node in a thousand by more than 5 % (7 % at most). ring_batch bounds the rest. */
#ifndef HENG_CORE_RING_H
#define HENG_CORE_RING_H

#include "base/err.h"

#define RING_POINTS_PER_UNIT   160
#define RING_WEIGHT_UNIT_MILLI 1000
#define RING_PROBES            12 /* part of the placement, as is 160: another number moves keys */
#define RING_NODES_MAX         4096
#define RING_POINTS_MAX        (16u << 20)

struct ring;
struct ring_node {
	const char *id; /* 1-64 of A-Za-z0-9._- */
	/* 1000 = 160 virtual nodes; rounded down to whole points, at least 1 point when not 0; 0: no points */
	uint32_t weight_milli;
	const char *domain; /* failure domain label or NULL */
};

/* Copies what it needs. Refuses duplicate ids (-ERR_NODE_CONFLICT), malformed ones (-ERR_CONFIG), too many nodes or points (-ERR_LIMIT). No
 * nodes at all is a ring without points. */
int ring_build(const struct ring_node *nodes, size_t node_count, struct ring **ret_ring, struct err *err);
void ring_free(struct ring **ring);
size_t ring_node_count(const struct ring *ring);
size_t ring_point_count(const struct ring *ring);
/* node_index: the position in `nodes` given to ring_build */
const char *ring_node_id(const struct ring *ring, size_t node_index);
uint32_t ring_node_weight_milli(const struct ring *ring, size_t node_index); /* as given */
/* A small number of the ring's own, the same for nodes of the same domain. */
uint16_t ring_node_domain(const struct ring *ring, size_t node_index);

uint64_t ring_hash_key(const void *key, size_t size);
/* The owner's node index, or -1 on a ring without points. */
int ring_owner(const struct ring *ring, uint64_t key_hash);
/* The preference list: the owner, then who would own the key if those before were gone; distinct domains first (a node without a label is a
 * domain of its own), then the nodes passed over for that. Only nodes with points. Returns how many were written (<= want). */
size_t ring_candidates(const struct ring *ring, uint64_t key_hash, size_t want, uint16_t *ret_indexes);

/* Bounded assignment of a batch by bytes: each node may hold at most (1 + epsilon) of its weighted share of total_bytes; a key whose owner
 * has no room spills to its next candidate (ring_candidates), and to its owner when nobody has. Deterministic for the same order of calls. The
 * ring must outlive the batch. */
struct ring_batch;
struct ring_batch *ring_batch_new(const struct ring *ring, uint64_t total_bytes, uint32_t epsilon_milli);
void ring_batch_free(struct ring_batch **batch);
/* The node's index, or -1 on a ring without points. */
int ring_batch_assign(struct ring_batch *batch, uint64_t key_hash, uint64_t size_bytes);
/* What a node holds of the batch and the most it may hold. It holds more when some key fitted nowhere. */
void ring_batch_load(const struct ring_batch *batch, size_t node_index, uint64_t *ret_held_bytes,
		     uint64_t *ret_cap_bytes);
/* Whether a node takes a key: the rule by which the batch goes down the list of candidates. */
bool ring_batch_fits(uint64_t held_bytes, uint64_t cap_bytes, uint64_t size_bytes);

#endif
