/* Private to the decide files: fields of a line as rows, so that writer and reader cannot disagree, and what a replay keeps from line to line. */
#ifndef HENG_CORE_DECIDE_IMPL_H
#define HENG_CORE_DECIDE_IMPL_H

#include <jansson.h>

#include "core/decide.h"

/* Times and durations of a line: far above any real one, far below what sums could overflow. */
#define DECIDE_TIME_MAX_US ((int64_t)1 << 60)
/* The largest uint64_t that JSON readers take for a whole number; above, it is written as text. */
#define DECIDE_NUMBER_MAX ((uint64_t)INT64_MAX)

enum decide_type { DECIDE_I64, DECIDE_U32, DECIDE_U64, DECIDE_HEX, DECIDE_BOOL };
/* A field whose value is its fallback is left out of the line. */
struct decide_field {
	const char *name; /* NULL ends the rows */
	enum decide_type type;
	size_t offset;       /* in the struct that the rows describe */
	int64_t least, most; /* I64 and U32 */
	int64_t fallback;    /* DECIDE_ALWAYS: it is never left out */
};
#define DECIDE_ALWAYS INT64_MIN

void decide_put_fields(struct json *json, const struct decide_field *fields, const void *from);
/* Control characters and stray bytes become \xNN. Cut to size - 1 bytes, which is what the reader has room for. */
void decide_put_text(struct json *json, const char *key, struct str text, size_t size);
void decide_put_hex(struct json *json, const char *key, uint64_t value);
void decide_put_u64(struct json *json, const char *key, uint64_t value);

/* Each fails with -ERR_BAD_REQUEST in words. */
int decide_get_fields(const json_t *object, const struct decide_field *fields, void *to, struct err *err);
int decide_get_i64(const json_t *object, const char *key, int64_t least, int64_t most, int64_t *ret, struct err *err);
/* Absent, and null, read as "" when may_lack. */
int decide_get_text(const json_t *object, const char *key, bool may_lack, char *target, size_t target_size,
		    struct err *err);
int decide_get_hex(const json_t *value, const char *key, uint64_t *ret, struct err *err);
/* Absent reads as an empty list when may_lack. */
int decide_get_list(const json_t *object, const char *key, bool may_lack, size_t limit_count, const json_t **ret_list,
		    struct err *err);
int decide_get_reason(const json_t *object, const char *key, enum reason *ret_reason, struct err *err);

/* A batch whose keys' lines may follow. */
struct decide_plan {
	char id[JUDGE_SET_SIZE];
	struct ring *ring;
	struct ring_batch *batch; /* for the caps */
	uint64_t *held_bytes;     /* by node: what it holds at least; exactly while is_whole */
	uint64_t next_number;
	bool is_whole;      /* no key is missing since the first */
	uint64_t used_line; /* when it was last used: the least recently used one goes */
};

struct decide_replay {
	bool is_what_if;
	struct profile what_if;
	int64_t squeeze_ppm;
	struct profile *profiles; /* DECIDE_PROFILES_MAX of them */
	size_t profile_count, profile_next;
	struct decide_plan plans[DECIDE_PLANS_MAX];
	bool is_profile_forgotten, is_plan_forgotten; /* there were more than are kept */
	uint64_t line_count;
	/* The first line was a profile, as every file begins: what a line refers to was written before it, and after this. */
	bool has_head;
	int64_t head_wall_us;

	/* The line at hand. */
	json_t *root;
	struct decide_record record;
	struct decision decision;
	struct score_input *inputs; /* capacity of all four: table_capacity */
	const struct score_input **input_pointers;
	struct score_output *outputs;  /* as recorded */
	struct score_output *computed; /* anew */
	size_t table_capacity;
	struct decide_plan *plan;
	uint16_t looked[RING_NODES_MAX];
	uint64_t held_bytes[RING_NODES_MAX], cap_bytes[RING_NODES_MAX];
	char what[DECIDE_WHAT_SIZE];
	struct decide_pick *pick;
	struct ring *pick_ring;
	char recorded_selected[SCORE_ID_SIZE]; /* as the line says, whether there is such a node or not */
	struct buf text;                       /* the line as it would be written now */
};

/* Each reads replay->root into replay->record. with_outputs: the recorded results too, for people. */
int decide_table_read(struct decide_replay *replay, bool with_outputs, struct err *err);
int decide_plan_read(struct decide_replay *replay, struct err *err);
int decide_place_read(struct decide_replay *replay, struct err *err);
int decide_pick_read(struct decide_replay *replay, struct err *err);

/* Each computes the line that was read anew, into replay->text, and tells the choice in *change. */
void decide_table_again(struct decide_replay *replay, struct decide_change *change);
void decide_place_again(struct decide_replay *replay, struct decide_change *change);
void decide_pick_again(struct decide_replay *replay, struct decide_change *change);
/* Only the choice, by the replay's profile and squeeze. */
void decide_table_what_if(struct decide_replay *replay, struct decide_change *change);

/* The line refers to something that was not read: an older file has it (-ERR_INCOMPLETE), or, when is_told_here says that it must have come
 * before the line in this log, the line was altered or that one is missing (-ERR_BAD_REQUEST). */
int decide_lacks(bool is_told_here, const char *what, const char *name, struct err *err);

const struct profile *decide_profile_find(const struct decide_replay *replay, uint64_t hash); /* or NULL */
void decide_plan_drop(struct decide_plan *plan);

#endif
