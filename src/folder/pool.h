/* The scheduler's view of its nodes: registered by themselves, probed every 3 s, reporting of themselves every 3 s, judged every 2 s, on the ring by
 * their ids with the weight that their score leaves them. The one place that says which node may take work and at which address it is now.
 * Thread-safe. */
#ifndef HENG_FOLDER_POOL_H
#define HENG_FOLDER_POOL_H

#include "folder/keyring.h"
#include "core/judge.h"
#include "core/node.h"
#include "core/ring.h"
#include "plug/store.h"
#include "sys/logfile.h"

#define POOL_NODES_MAX        1024
#define POOL_LISTENERS_MAX    4
#define POOL_WEIGHT_MAX_MILLI 1000000u

struct pool;
struct pool_options {
	struct store *store;
	const struct internal_key *internal_key;
	int64_t probe_interval_us, probe_timeout_us;
	const struct profile *profile; /* copied; NULL: the built-in "folder" */
	struct logfile *log;           /* of decisions; NULL: none. Outlives the pool */
};
struct pool_node {
	char id[STORE_NODE_ID_SIZE];
	char addr[STORE_ADDR_SIZE];
	char incarnation[33];
	char start_id[33]; /* of the process that answered the last good probe; "": it does not tell */
	char domain[STORE_NODE_ID_SIZE];
	uint32_t weight_milli;     /* that counts: the operator's, else the node's own */
	uint32_t weight_own_milli; /* as the node is configured */
	bool is_weight_ordered;
	enum node_order order; /* lost: out until it registers again */
	enum member_state state;
	bool is_disk_low, takes_work;
	char diagnosis[256];                           /* the node's own word on what is wrong, or the probe's error */
	uint64_t free_bytes, total_bytes, inodes_free; /* free: less what the node has promised to writes under way */
	uint64_t floor_bytes;                          /* of the free ones the node never uses so many */
	char fs_name[33];                              /* of its file system (sys/fs.h); "": not known */
	int64_t state_since_mono_us, probed_mono_us;   /* 0: never */
	unsigned missed_count;                         /* probes in a row */
	uint64_t chunk_count_in;                       /* receipts taken since start */
};
/* A node with all that was observed of it and how it was judged. */
struct pool_judged {
	struct pool_node node;
	struct health_view sources[HEALTH_SOURCES];
	struct report report;
	int64_t report_age_us; /* -1: never came */
	struct report_dir dirs[REPORT_DIRS_MAX];
	size_t dir_count;
	char bar_reason[64]; /* "": none */
	struct score_output output;
	uint32_t ring_milli; /* its weight on the ring; 0: it is not there */
};
struct pool_verdict {
	struct profile profile;
	uint64_t table_version;
	char selected[SCORE_ID_SIZE]; /* "": none */
	enum reason reason;
	int64_t now_mono_us;
};

/* Loads known nodes from the store (as Unreachable until probed) and starts the probing thread. */
int pool_start(const struct pool_options *options, struct pool **ret_pool, struct err *err);
/* Ends probing and the calls of pool_on_change, and returns when neither happens any more; everything else still answers. For those who must
 * free what listens before the pool itself goes. Idempotent. */
void pool_halt(struct pool *pool);
void pool_stop(struct pool **pool); /* halts, then frees */
/* -ERR_NODE_CONFLICT when another live node holds the id with another incarnation (names both addresses). A node that registers is probed at once.
 * Blocks: on the store, and up to a second while the former holder of the id is asked. */
int pool_register(struct pool *pool, const struct store_node *node, struct err *err);
/* A node's report of itself. -ERR_STATE when it is not registered here, -ERR_NODE_CONFLICT when another node holds its id. */
int pool_report(struct pool *pool, const struct report_message *message, struct err *err);
/* A node said 503 disk_low (or a client did): out of new work until a probe says otherwise. */
void pool_report_disk_low(struct pool *pool, const char *node_id);
void pool_count_receipt(struct pool *pool, const char *node_id);
/* An operator's word on a node, kept in the store with the audit row before it counts. */
enum pool_word {
	POOL_DRAIN,       /* no new work; what it has stays in use */
	POOL_READY,       /* the end of that */
	POOL_LOST,        /* died for good: what it has stored is asked for again, and it is out until it registers */
	POOL_WEIGHT,      /* its weight, whatever it says itself */
	POOL_WEIGHT_AUTO, /* the end of that */
};
struct pool_order {
	enum pool_word word;
	uint32_t weight_milli; /* of POOL_WEIGHT */
};
/* Blocks: on the store, and up to a second while the node is told. The same order again is no fault. -ERR_NO_NODE, -ERR_STATE (of a lost node nothing
 * else is ordered), -ERR_BAD_REQUEST (the weight). *ret_lost_count: chunks that are to be sent again. */
int pool_order(struct pool *pool, const char *node_id, const struct pool_order *order, const struct store_audit *row,
	       uint64_t *ret_lost_count, struct err *err);
/* How many orders POOL_LOST there were since the start: who waits for a node looks again when it has grown. */
uint64_t pool_lost_count(struct pool *pool);
/* Copies; returns how many exist. */
size_t pool_list(struct pool *pool, struct pool_node *ret_nodes, size_t limit);
bool pool_get(struct pool *pool, const char *node_id, struct pool_node *ret_node);
/* The same with everything; the caller frees the list. Returns how many there are. */
size_t pool_judged(struct pool *pool, struct pool_judged **ret_nodes, struct pool_verdict *ret_verdict);
/* The ring over nodes that take work now, as a counted reference: ring_ref->ring; version grows with each change. */
struct pool_ring_name {
	char id[STORE_NODE_ID_SIZE], domain[STORE_NODE_ID_SIZE];
};
struct pool_ring {
	struct ring *ring;
	struct ring_node *nodes;      /* as the ring was built of them, in its order */
	struct pool_ring_name *names; /* what they point to */
	size_t node_count;
	uint64_t version;
	unsigned use_count;
};
struct pool_ring *pool_ring_get(struct pool *pool);
void pool_ring_put(struct pool *pool, struct pool_ring *ring);
/* Calls fn(owner) from the probing thread after each change of any node's state or of the ring (events, so that nobody polls). At most
 * POOL_LISTENERS_MAX. */
void pool_on_change(struct pool *pool, void (*fn)(void *owner), void *owner);

#endif
