/* What a plan leaves in the decision log: its ring, and the chunks that did not go to their owner (or every chunk). It assigns the chunks of a batch
 * as ring_batch_assign does; as long as nobody has its share full there is nothing to look for, so it costs next to nothing. */
#ifndef HENG_FOLDER_PLAN_LOG_H
#define HENG_FOLDER_PLAN_LOG_H

#include "core/ring.h"
#include "sys/logfile.h"

struct plan_log;
struct plan_log_options {
	struct logfile *file;
	bool is_every; /* a line for every chunk, not for spilled ones alone */
	const char *plan_id;
	/* All outlive the log. nodes: as the ring was built of them. The batch is still empty. */
	const struct ring *ring;
	const struct ring_node *nodes;
	size_t node_count;
	struct ring_batch *batch;
	uint64_t total_bytes, key_bytes_max; /* of the batch, of one key at most */
	uint32_t epsilon_milli;
	int64_t wall_us;
};

struct plan_log *plan_log_new(const struct plan_log_options *options);
/* Does what ring_batch_assign does. path and chunk_index: for people. */
int plan_log_assign(struct plan_log *log, uint64_t key_hash, uint64_t size_bytes, struct str path,
		    uint64_t chunk_index);
/* The plan is durable: what is collected goes to the file. */
void plan_log_commit(struct plan_log *log);
void plan_log_free(struct plan_log **log);

#endif
