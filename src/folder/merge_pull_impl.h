/* Private to pulling: what merge_pull.c (the chunks of one object), merge_wrong.c (which of them is at fault) and merge_source.c (which node each came from) share. */
#ifndef HENG_FOLDER_MERGE_PULL_IMPL_H
#define HENG_FOLDER_MERGE_PULL_IMPL_H

#include "folder/merge_impl.h"

#define PULL_ROWS_AHEAD 64
#define PULL_URL_SIZE   256
#define PULL_INDEX_MAX  INT64_MAX /* the store keeps signed numbers */

/* A chunk on its way. It stays in its place of the window until the frontier has passed it. */
struct pull_call {
	struct fetch_call call;
	struct pull *pull;
	struct store_chunk chunk;
	enum { CALL_NONE, CALL_WAITING, CALL_RUNNING, CALL_COMPLETE } state;
	bool is_done;          /* the call has ended and nobody has looked at it */
	bool is_local_failure; /* our side failed: pull->err */
	uint64_t seen_bytes;   /* of this attempt */
	uint64_t kept_bytes;   /* given to the target, over all attempts: a repeat skips them */
	unsigned try_count;
	int64_t not_before_us;
	char url[PULL_URL_SIZE];
};

/* One puller thread. */
struct pull {
	struct merge_run *run;
	struct fetch *fetch;
	struct merge_target *target;
	struct store_object object;
	unsigned window_count, running_count;
	struct pull_call calls[MERGE_WINDOW_MAX]; /* chunk i is in place i % window_count */
	struct store_chunk rows[PULL_ROWS_AHEAD]; /* read ahead from the store */
	size_t row_next, row_count;
	uint64_t rows_seen; /* chunks put into the window */
	/* Of a run ahead. */
	bool is_starved;        /* the next chunk had not come */
	bool is_last_look;      /* the rows were read when nothing more could come */
	uint64_t arrivals_seen; /* when they were read */
	int64_t looked_us;
	uint64_t lost_count; /* of the pool, when the running calls' nodes were last looked at */
	/* Of each chunk of the object, when two nodes may have it: from which one its bytes come, as a place among source_nodes. NULL: there is no choice. */
	uint16_t *sources;
	char source_nodes[POOL_NODES_MAX][STORE_NODE_ID_SIZE]; /* [0] is nobody */
	uint16_t source_node_count;
	struct err err;
};

/* What an object came to. LEFT: a run ahead does not have it, for whatever reason. */
enum outcome { OUTCOME_GOING, OUTCOME_DONE, OUTCOME_AGAIN, OUTCOME_FAILED, OUTCOME_LEFT, OUTCOME_OVER };

static inline uint64_t pull_offset(const struct pull *pull, uint64_t chunk_index)
{
	return chunk_index * pull->run->transfer.chunk_bytes;
}

/* --- merge_source.c --- */
/* A new object: of none of its chunks anything came so far. */
void pull_sources_begin(struct pull *pull);
void pull_sources_end(struct pull *pull);
/* The chunk's actual node is asked for it now. Where bytes of it came already and another node gives the rest, the first one stays its source: it broke
 * off. */
void pull_source_note(struct pull *pull, const struct pull_call *place);
/* Makes the node that the bytes came from the actual one of a row as the tables have it. False: the tables do not name that node any more. */
bool pull_source_choose(const struct pull *pull, struct store_chunk *chunk);

/* --- merge_wrong.c --- */
/* The object's bytes came and do not fit: those chunks that are at fault are to be sent again. pull->err says what was found. */
void pull_object_is_wrong(struct pull *pull);

#endif
