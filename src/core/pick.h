/* Chooses a candidate for one request from the route table and what this thread knows itself: a look-up and a few comparisons, no scoring, no
 * allocation, no lock. All state is plain data of the caller, so that a choice can be recorded and replayed. */
#ifndef HENG_CORE_PICK_H
#define HENG_CORE_PICK_H

#include "base/rng.h"
#include "core/curve.h"
#include "core/robust.h"
#include "core/route.h"

#define PICK_SCAN_MAX    8 /* up to so many candidates all are compared, above two (or three) drawn ones */
#define PICK_TRIED_MAX   4
#define PICK_TAU_US      (10 * SEC_US)
#define PICK_TRIES       2 /* of one request, the retry included */
#define PICK_FAILS_LIMIT 2 /* time-outs in a row on a set's first choice: degrade */
/* So long after its last failure a choice that timed out is not tried; then one request at a time shows whether it is well again. Without that
 * nobody would ever ask it, and its count of failures would stand for ever. */
#define PICK_FAILS_HOLD_US SEC_US
/* What a failure of unknown duration counts as: never fast. */
#define PICK_FAILED_NS ((int64_t)SEC_US * 1000)

/* What one thread knows of one node. */
struct pick_load {
	uint32_t in_flight;
	uint32_t fails_in_row;
	struct curve_peak peak;
	int64_t answered_us; /* when the last answer came, or the first request was sent while none was in flight; 0: never */
	struct robust robust; /* of the strategies that keep it */
	int64_t peers_ns;     /* what was usual in the last of its sets that looked; -1: unknown */
};
/* What one thread keeps for one set: whose turn it is. Arrays by node index. */
struct pick_turns {
	uint64_t picks;   /* made so far; a retry is none */
	uint32_t cursor;  /* round robin: the node index that had its turn last */
	int64_t *current; /* smooth round robin; NULL in the other strategies */
	uint64_t *last;   /* of nodes in slow start: `picks` when it was last chosen, or when its waiting began */
	int64_t usual_ns,
		usual_us; /* adaptive: the usual latency in the set, and when that was worked out; 0: not yet */
};
struct pick_call {
	uint64_t key_hash;
	int64_t now_us;
	uint16_t tried[PICK_TRIED_MAX]; /* node indexes that failed this request already */
	size_t tried_count;
};

enum pick_strategy {
#define PICK(name, help) PICK_##name,
#include "core/pick_list.h"
#undef PICK
	PICK_STRATEGIES
};
extern const char *const pick_names[PICK_STRATEGIES], *const pick_helps[PICK_STRATEGIES];
bool pick_find(const char *name, enum pick_strategy *ret_strategy);

/* One thread's picker over nodes 0..node_count-1 and sets 0..set_count-1: ceilings, since routes come and go. A choice depends on the route and
 * on the fields below alone. */
struct pick {
	enum pick_strategy strategy;
	size_t node_count, set_count;
	struct pick_load *loads;
	struct pick_turns *turns; /* NULL when the strategy keeps none */
	int64_t tau_us;
	struct rng rng;
};
void pick_init(struct pick *pick, enum pick_strategy strategy, size_t node_count, size_t set_count, uint64_t seed);
void pick_fini(struct pick *pick);

/* The offset in the set's candidates (route->candidates[set.first + offset]), or -1: nobody may serve (reason none) or the tries are used up
 * (reason unavailable: the set must be checked again at once). The degrade rules of spec 10 are in here: when the choice timed out on its last two
 * picks, or this is the retry, one of the best three at random that was not tried; after two tries nobody. Never a tried node twice. A node with
 * weight 0 is chosen by no strategy that shares by weight (all but best, band, random3), and by those only when there is no other. */
int pick_next(struct pick *pick, const struct route *route, size_t set_index, const struct pick_call *call,
	      enum reason *ret_reason);
/* The owner tells what became of it. rtt_ns of a failure should be max(threshold, p99): a node that fails fast must not look fast. A request that
 * the client gave up is no failure and has rtt_ns -1: nothing is learnt from it. */
/* Another process may answer under the node's index now (it joined anew): what was known of its speed and failures is dropped. */
void pick_forget(struct pick *pick, uint16_t node_index);
void pick_sent(struct pick *pick, uint16_t node_index, int64_t now_us);
void pick_done(struct pick *pick, uint16_t node_index, bool is_failed, int64_t rtt_ns, int64_t now_us);

#endif
