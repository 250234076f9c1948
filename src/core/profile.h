/* A score profile is data: dimensions with weights and normalisers, rules that multiply, warm-up, slow start, decay, hysteresis. Three are built
 * in; a YAML text tunes one or defines another. The hash names it in the decision log. */
#ifndef HENG_CORE_PROFILE_H
#define HENG_CORE_PROFILE_H

#include "base/err.h"
#include "base/json.h"
#include "core/curve.h"

#define PROFILE_NAME_SIZE 32
#define PROFILE_DIMS_MAX  12
#define PROFILE_RULES_MAX 12
#define PROFILE_TEXT_MAX  (64 * KIB)

enum profile_norm {
#define NORM(name, unit, help) NORM_##name,
#include "core/profile_list.h"
#undef NORM
	NORM_COUNT
};
enum profile_source {
#define RULE(name, unit, help) RULE_##name,
#include "core/profile_rule_list.h"
#undef RULE
	RULE_COUNT
};

struct profile_dim {
	char name[PROFILE_NAME_SIZE];  /* of the dimension: "cpu" */
	char group[PROFILE_NAME_SIZE]; /* "load"; the log sums contributions by it; "": stands alone by its name */
	enum profile_norm norm;
	int64_t weight_ppm; /* of the whole; the dimensions' weights add up to PPM */
	int64_t parameter;  /* in the normaliser's unit; 0: its default */
};
/* Multiplies the score, never to zero but by a factor of 0 that says so. Step: on above `high`, off again below `low` (equal: no latch), factor while
 * on. Ramp: 1 up to `low`, straight down to factor at `high`. For disk_free the directions turn round: a step is on below `low` and off above
 * `high`, a ramp is 1 from `high` up and factor at `low`. */
enum profile_rule_kind { PROFILE_STEP, PROFILE_RAMP };
struct profile_rule {
	char name[PROFILE_NAME_SIZE];
	enum profile_source source;
	enum profile_rule_kind kind;
	int64_t low, high;
	/* Not 0: acts only while the node is above the mean of its peers by this too, in the source's unit. What is high everywhere has nowhere to go:
	 * acting on it sends the work of one from node to node. */
	int64_t above_peers;
	int64_t factor_ppm;
};
/* What a score becomes while reports stay out: decays (seed 004 §3.2), or drifts to the peers' mean (gateway). */
enum profile_stale { PROFILE_DECAY, PROFILE_DRIFT };

struct profile {
	char name[PROFILE_NAME_SIZE];
	struct profile_dim dims[PROFILE_DIMS_MAX];
	size_t dim_count; /* 0: the sum is 1, the rules alone speak */
	struct profile_rule rules[PROFILE_RULES_MAX];
	size_t rule_count;
	enum profile_stale stale;
	struct curve_decay decay;   /* life is also when drifting begins; step how long the drift takes */
	struct curve_warmup warmup; /* start_ppm 0: no warm-up */
	struct curve_start start;   /* floor_ppm PPM: no slow start */
	int64_t blackout_us;        /* after (re)joining reports do not count: the peers' mean */
	int64_t step_up_ppm;        /* most that a score rises from table to table, of itself; 0: no limit */
	int64_t floor_ppm;          /* a node that may serve scores at least this */
	int64_t lead_ppm;           /* hysteresis: a challenger must lead by more */
	int64_t hold_ppm;           /* or the holder be under this share of it */
	int64_t dwell_us;           /* least time between two changes while the holder can serve */
	int64_t band_ppm;           /* members at or above this share of the best are equals */
	int64_t flat_ppm, flat_us;  /* warning: all scores within flat for so long while the metrics differ */
	uint64_t hash;              /* of all the above */
};
extern const char *const profile_norm_names[NORM_COUNT];
extern const char *const profile_source_names[RULE_COUNT];

/* "kv", "gateway", "folder"; NULL: no such. Immutable, made at the first call of profile_builtin in the process by whoever comes first: call once
 * before threads start. */
const struct profile *profile_builtin(const char *name);
/* `base: NAME` names the built-in one that the rest tunes. Dimensions and rules, when given, replace the base's. All faults together, with lines. */
int profile_parse(const char *file_name, struct str text, struct profile *ret_profile, struct err *err);
/* As YAML that profile_parse reads back to the same profile (the same hash). */
void profile_write(struct buf *buf, const struct profile *profile);
/* Of every field but `hash`: for those who make or change a profile themselves. */
uint64_t profile_hash(const struct profile *profile);

#endif
