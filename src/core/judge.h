/* From scores to a set's table entry: who is selected, why, who else is as good. Pure; what it remembers from tick to tick is an argument, so that
 * the decision log can hold it and replay can give it back. */
#ifndef HENG_CORE_JUDGE_H
#define HENG_CORE_JUDGE_H

#include "core/score.h"

#define JUDGE_TICK_US  (2 * SEC_US)
#define JUDGE_AWAY_US  (30 * SEC_US)
#define JUDGE_SET_SIZE 65

enum reason {
#define REASON(name, help) REASON_##name,
#include "core/reason_list.h"
#undef REASON
	REASONS
};
extern const char *const reason_names[REASONS], *const reason_helps[REASONS];
bool reason_find(const char *name, enum reason *ret_reason);

/* What the last tick left. The selected one by id: the candidates may change. */
struct judge_memory {
	char selected[SCORE_ID_SIZE]; /* "": none yet */
	unsigned failed_picks; /* timeouts in a row of the selected one's last picks: 2 mean it can no longer serve */
	int64_t held_us;       /* how long it has been selected */
	int64_t flat_us;       /* for how long the scores have been flat */
	/* A better score alone does not end the selection before, beside the profile's dwell. JUDGE_AWAY_US after the one before was left because its
	 * picks failed: its score says what it said when it failed, and would win it back at once; else 0. */
	int64_t dwell_us;
};
struct decision {
	int selected; /* index; -1: nobody may serve */
	enum reason reason;
	bool is_changed;  /* another one than before */
	bool is_flat;     /* the flat-score warning stands */
	int64_t best_ppm; /* the highest score of those that may serve (and have a weight, if any has) */
	/* Those that may serve, best first: the selected, the rest of the band, the others; equal scores by id. A weight of 0 means that somebody took
	 * the node out: it comes behind all that have one, and is selected or in the band only when none has. */
	size_t order_count;
	size_t band_count; /* how many of them are the band; members whose cap is below PPM only when all are */
	uint16_t order[SCORE_SET_MAX];
};
/* elapsed_us: since the last tick of this set. memory is taken and renewed. */
void judge_set(const struct profile *profile, struct judge_memory *memory, int64_t elapsed_us,
	       const struct score_input *const *inputs, const struct score_output *outputs, size_t count,
	       struct decision *ret_decision);

#endif
