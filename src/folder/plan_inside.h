/* What plan.c (the plan of a whole manifest) and plan_revise.c (some of its objects planned anew) share. */
#ifndef HENG_FOLDER_PLAN_INSIDE_H
#define HENG_FOLDER_PLAN_INSIDE_H

#include "folder/plan.h"
#include "folder/plan_log.h"

#define PLAN_PIECE_BYTES  (256 * KIB)
#define PLAN_LOAD_EPSILON 250u /* milli: how far above its fair share of the bytes a node may go */

struct plan_writer {
	struct store *store; /* NULL: nothing is written */
	struct store_plan *plan;
	const struct ring *ring;
	struct ring_batch *batch;
	struct plan_log *log; /* NULL: none */
	struct store_transfer *transfer;
	int64_t now_wall_us;
	uint64_t next_file_id;
	struct store_object pack; /* file_id 0: none is open */
};

void plan_count(struct plan_facts *facts, const struct manifest_entry *entry);
int plan_check_ring(const struct ring *ring, struct err *err);
void plan_open_log(struct plan_writer *writer, const char *plan_id, uint64_t total_bytes,
		   const struct plan_record *record);
/* Puts the entry's bytes into an object, which entry->file_id and object_offset then say. Objects go to the plan as they become whole, the last pack
 * with plan_close_pack. */
int plan_place(struct plan_writer *writer, struct store_entry *entry, struct err *err);
int plan_close_pack(struct plan_writer *writer, struct err *err);

#endif
