/* The decision log: JSON Lines that hold all that is needed to compute each choice again. Writing makes text of what was decided; reading makes it
 * the arguments again; replay computes the line anew and compares. Pure: the owner has the file. docs/decisions.md has the fields.
 *
 * Kinds of lines ("kind"): "profile" (the whole profile, before the first line that uses its hash), "table" (a set's new table entry), "plan" (the
 * ring of a batch: nodes, weights, bytes, epsilon), "place" (one key of a batch), "pick" (one choice of a strategy); and "dropped", by which the
 * log's writer says how many lines it could not keep (sys/logfile.h).
 *
 * Every decide_write_* appends one line and its newline. */
#ifndef HENG_CORE_DECIDE_H
#define HENG_CORE_DECIDE_H

#include "core/judge.h"
#include "core/pick.h"

#define DECIDE_LINE_MAX     (4 * MIB)
#define DECIDE_WHAT_SIZE    512
#define DECIDE_PROFILES_MAX 64 /* kept by a replay; the oldest goes */
#define DECIDE_PLANS_MAX    64 /* the least recently used goes */

struct decide_table {
	char set[JUDGE_SET_SIZE];
	char router[SCORE_ID_SIZE]; /* whose table it is */
	int64_t wall_us;
	uint64_t version;
	int64_t elapsed_us;
	struct judge_memory before;
	size_t count;
	const struct score_input *const *inputs;
	const struct score_output *outputs;
	const struct decision *decision;
};
void decide_write_profile(struct buf *buf, const struct profile *profile, int64_t wall_us);
void decide_write_table(struct buf *buf, const struct profile *profile, const struct decide_table *table);

/* A batch assignment (ring.h). plan_id: the transfer. */
void decide_write_plan(struct buf *buf, const char *plan_id, const struct ring_node *nodes, size_t node_count,
		       uint64_t total_bytes, uint32_t epsilon_milli, int64_t wall_us);
struct decide_place {
	const char *plan_id;
	uint64_t key_hash, size_bytes;
	int selected;       /* node index of the ring */
	enum reason reason; /* hash or spill */
	/* What each candidate of the key held before, in the order of ring_candidates, as far as was looked. */
	size_t looked_count;
	const uint16_t *looked;
	const uint64_t *held_bytes, *cap_bytes;
	struct str what; /* for people: path and chunk; control characters are written as \xNN, 511 bytes at most */
	/* Which key of its batch it is, from 1; 0: not told. When no number is missing since 1, replay knows what every node must hold; else it
	 * knows the least. */
	uint64_t number;
};
void decide_write_place(struct buf *buf, const struct ring *ring, const struct decide_place *place, int64_t wall_us);

/* One choice of a strategy: set's route entry, loads, turns and the generator's state as they were BEFORE pick_next. */
struct decide_pick_row {
	char id[SCORE_ID_SIZE]; /* filled in by the reader only: the writer is told the names */
	struct route_candidate candidate;
	struct pick_load load;
	int64_t current; /* of struct pick_turns */
	uint64_t last;
};
struct decide_pick_place { /* a node of the set's ring */
	char id[SCORE_ID_SIZE];
	uint32_t weight_milli;
	uint16_t domain, offset; /* offset: of its candidate in the set; UINT16_MAX: none */
};
struct decide_pick {
	enum pick_strategy strategy;
	uint64_t version;
	struct pick_call call;
	int64_t tau_us;
	struct rng rng;
	/* Of struct pick_turns; as after pick_init when the strategy keeps none. */
	uint64_t picks;
	uint32_t cursor;
	int64_t usual_ns, usual_us;
	enum reason route_reason;
	uint32_t band_count, node_count; /* node_count: of the picker */
	size_t row_count, place_count;   /* place_count 0: the set has no ring */
	struct decide_pick_row *rows;    /* those that may serve, in the order of the route */
	struct decide_pick_place *places;
	/* Filled in by the reader. */
	int chosen;
	enum reason reason;
};
struct decide_pick *decide_pick_before(const struct pick *pick, const struct route *route, size_t set_index,
				       const struct pick_call *call); /* a copy; heap */
void decide_pick_free(struct decide_pick **before);                   /* of a choice that is not worth a line */
/* node_ids: by node index. chosen: what pick_next returned. Frees `before`. */
void decide_write_pick(struct buf *buf, struct decide_pick **before, const char *set, const char *const *node_ids,
		       int chosen, enum reason reason, int64_t wall_us);

/* --- replay --- */
struct decide_replay;
/* what_if: use this profile for every table line instead of the recorded one; NULL: the recorded. It is copied. squeeze_ppm: scores are drawn
 * together by this factor around the mean of those that may serve before judging (PPM: not). Each line is judged from the memory that it recorded,
 * so a changed choice has no consequences for the lines after it. */
struct decide_replay *decide_replay_new(const struct profile *what_if, int64_t squeeze_ppm);
void decide_replay_free(struct decide_replay **replay);
/* No choice: a profile, plan or dropped line; under what_if or squeeze also place and pick lines, which no profile moves. */
enum decide_result { DECIDE_SAME, DECIDE_OTHER, DECIDE_NO_CHOICE };
struct decide_change {
	char set[JUDGE_SET_SIZE];
	int64_t wall_us;
	char recorded[SCORE_ID_SIZE], computed[SCORE_ID_SIZE]; /* selected, "" for nobody */
	int64_t recorded_ppm, computed_ppm; /* their scores under the profile that is used; -1: there is none */
	char what[256];                     /* the first field that differs, with both values */
};
/* Computes the line again, without or with its newline. Without what_if and squeeze the whole line is compared with the one that would be written
 * now, not the choice alone: any other digit is OTHER. With them only the choice is. A line that is no record of this log is -ERR_BAD_REQUEST with
 * what is wrong in words; one whose profile or plan has not been read (it is in an older file) is -ERR_INCOMPLETE; the beginning of a record whose
 * end is missing is -ERR_TRUNCATED: a crash or a full disk leaves such lines, also in the middle of a file. ret_change is always filled in as far as
 * the line tells. */
int decide_replay_line(struct decide_replay *replay, struct str line, enum decide_result *ret_result,
		       struct decide_change *ret_change, struct err *err);

/* Reading for `explain`. The record's memory belongs to the reader and lives until the next line. Errors as above. */
enum decide_kind { DECIDE_PROFILE, DECIDE_TABLE, DECIDE_PLAN, DECIDE_PLACE, DECIDE_PICK, DECIDE_DROPPED };
struct decide_record {
	enum decide_kind kind;
	char set[JUDGE_SET_SIZE]; /* "plan", "place": the plan's id; "profile": its name */
	int64_t wall_us;
	struct decide_table table;      /* "table": as it was recorded */
	const struct profile *profile;  /* "table", "profile" */
	struct decide_place place;      /* "place" */
	const struct ring *ring;        /* "plan", "place" */
	const struct decide_pick *pick; /* "pick" */
	uint64_t dropped_count;         /* "dropped": lines */
	/* Of "table", "place" and "pick", as the line says it: a line that somebody altered may name what is no candidate, whose index is -1. */
	const char *selected;
};
int decide_read_line(struct decide_replay *replay, struct str line, const struct decide_record **ret_record,
		     struct err *err);
/* The record of the last line that was replayed; of a table without the recorded outputs. */
const struct decide_record *decide_replay_record(const struct decide_replay *replay);

#endif
