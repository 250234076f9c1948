/* The pool's tick, apart from its threads: from what is known of each node to who gets how much of the new work. Times come in, so that tests wind
 * them by hand. The owner serialises. */
#ifndef HENG_FOLDER_POOL_JUDGE_H
#define HENG_FOLDER_POOL_JUDGE_H

#include "core/judge.h"
#include "core/node.h"
#include "plug/store.h"

/* A weight on the ring moves by this share of the node's base weight or more, or not at all: each move sends some keys elsewhere. */
#define POOL_WEIGHT_STEP_PPM 50000
/* A score that moved by this share of what it was is a new table in the decision log. */
#define POOL_LOG_STEP_PPM 10000
/* And without any change there is a table so often, so that the log shows that the pool was judged. */
#define POOL_LOG_SILENCE_US (60 * SEC_US)
#define POOL_SET_NAME       "pool"

/* One node as the tick sees it. */
struct pool_member {
	struct node_view view;
	char domain[STORE_NODE_ID_SIZE];
	const char *bar; /* the pool's own word: no new work, for this reason; NULL: none */
	/* What the last step found. */
	struct score_output output;
	bool takes_work;
	/* As it stands on the ring; 0: it does not. */
	uint32_t ring_milli, ring_base_milli;
	char ring_domain[STORE_NODE_ID_SIZE];
	/* As the last line of the decision log has it. */
	int64_t logged_ppm;
	enum member_state logged_state;
	bool was_logged, logged_takes_work;
};

struct pool_judge {
	struct profile profile;
	struct judge_memory memory;
	struct decision decision;
	uint64_t version;             /* of the table; grows with each change of it */
	int64_t judged_us, ticked_us; /* 0: never */
	int64_t logged_us;            /* 0: never */
	char logged_selected[SCORE_ID_SIZE];
	/* As many as there are members. */
	struct score_input *inputs;
	const struct score_input **refs;
	struct score_output *outputs;
	size_t capacity;
};

void pool_judge_init(struct pool_judge *judge, const struct profile *profile);
void pool_judge_fini(struct pool_judge *judge);
/* Judges all members anew: their output, takes_work, and whether they are on the ring with which weight. Time passes for them (missed reports) when a
 * tick has gone by since it last did. A new table is appended to `lines` (NULL: nobody wants it). Returns true when the ring must be made anew of
 * each member's ring_milli. count <= SCORE_SET_MAX. */
bool pool_judge_step(struct pool_judge *judge, struct pool_member *const *members, size_t count, int64_t now_us,
		     int64_t now_wall_us, struct buf *lines);
/* When the next step is due, if nothing happens before. */
int64_t pool_judge_due_us(const struct pool_judge *judge);

#endif
