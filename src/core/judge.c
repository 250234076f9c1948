#include "core/judge.h"

#define FAILED_PICKS_MAX  2 /* so many time-outs in a row, and the selected one can no longer serve */
#define DIFFER_MIN_TENTHS 1 /* dimensions differ when their values spread by more than a tenth of the greatest */

const char *const reason_names[REASONS] = {
#define REASON(name, help) [REASON_##name] = #name,
#include "core/reason_list.h"
#undef REASON
};
const char *const reason_helps[REASONS] = {
#define REASON(name, help) [REASON_##name] = help,
#include "core/reason_list.h"
#undef REASON
};

bool reason_find(const char *name, enum reason *ret_reason)
{
	for (size_t i = 0; i < REASONS; i++) {
		if (strcmp(reason_names[i], name) == 0) {
			*ret_reason = (enum reason)i;
			return true;
		}
	}
	return false;
}

/* One that may serve. */
struct rank {
	int64_t score_ppm;
	const char *id;
	uint16_t index;
	bool is_out; /* its weight is 0 */
	bool is_band;
};

static int compare_ranks(const void *a_void, const void *b_void)
{
	const struct rank *a = a_void, *b = b_void;
	int by_id;

	if (a->is_out != b->is_out)
		return a->is_out ? 1 : -1;
	if (a->score_ppm != b->score_ppm)
		return a->score_ppm > b->score_ppm ? -1 : 1;
	by_id = strcmp(a->id, b->id);
	if (by_id != 0)
		return by_id;
	/* The same id twice is the caller's mistake; the order must not depend on the sorter even then. */
	return a->index < b->index ? -1 : 1;
}

/* Best first, those that are out behind. Returns how many may serve. */
static size_t rank_all(const struct score_input *const *inputs, const struct score_output *outputs, size_t count,
		       struct rank *ranks)
{
	size_t serving_count = 0;

	for (size_t i = 0; i < count; i++) {
		if (!outputs[i].may_serve)
			continue;
		ranks[serving_count++] = (struct rank){ .score_ppm = outputs[i].score_ppm,
							.id = inputs[i]->id,
							.index = (uint16_t)i,
							.is_out = inputs[i]->weight_milli == 0 };
	}
	qsort(ranks, serving_count, sizeof(*ranks), compare_ranks);
	return serving_count;
}

/* How many of the first ones are to be chosen among: those that are not out, or all when all are. */
static size_t count_in(const struct rank *ranks, size_t count)
{
	size_t in_count = 0;

	while (in_count < count && !ranks[in_count].is_out)
		in_count++;
	return in_count > 0 ? in_count : count;
}

/* Whether the best has so much the better score that the holder must go: the two halves of the hysteresis. */
static bool is_beaten(const struct profile *profile, int64_t holder_ppm, int64_t best_ppm)
{
	return best_ppm - holder_ppm > profile->lead_ppm || holder_ppm * PPM < profile->hold_ppm * best_ppm;
}

/* The offset in ranks of the one to be selected. */
static size_t select_rank(const struct profile *profile, const struct judge_memory *memory, const struct rank *ranks,
			  size_t count, enum reason *ret_reason)
{
	size_t holder = 0;

	if (memory->selected[0] == '\0') {
		*ret_reason = REASON_first;
		return 0;
	}
	while (holder < count && strcmp(ranks[holder].id, memory->selected) != 0)
		holder++;
	if (holder == count) {
		*ret_reason = REASON_failover;
		return 0;
	}
	if (memory->failed_picks >= FAILED_PICKS_MAX && count > 1) {
		/* Whatever it scores: its score is what has proved wrong. */
		*ret_reason = REASON_failover;
		return holder == 0 ? 1 : 0;
	}
	if (ranks[holder].score_ppm == ranks[0].score_ppm) {
		*ret_reason = REASON_best;
		return holder;
	}
	if (!is_beaten(profile, ranks[holder].score_ppm, ranks[0].score_ppm)) {
		*ret_reason = REASON_held_by_hysteresis;
		return holder;
	}
	if (memory->held_us < max_i64(profile->dwell_us, memory->dwell_us)) {
		*ret_reason = REASON_held_by_dwell;
		return holder;
	}
	*ret_reason = REASON_best;
	return 0;
}

/* Marks those that are as good as the best. One that is still warming up is no equal, unless there is nothing else. */
static void mark_band(const struct profile *profile, const struct score_output *outputs, struct rank *ranks,
		      size_t count)
{
	bool is_any_whole = false;

	for (size_t i = 0; i < count; i++) {
		ranks[i].is_band = ranks[i].score_ppm * PPM >= profile->band_ppm * ranks[0].score_ppm;
		is_any_whole |= ranks[i].is_band && outputs[ranks[i].index].cap_ppm >= PPM;
	}
	for (size_t i = 0; i < count && is_any_whole; i++)
		ranks[i].is_band = ranks[i].is_band && outputs[ranks[i].index].cap_ppm >= PPM;
}

/* The selected, the rest of the band, the others; each by rank. */
static void write_order(struct rank *ranks, size_t count, size_t selected, struct decision *ret_decision)
{
	size_t next = 0;

	ret_decision->order[next++] = ranks[selected].index;
	for (size_t i = 0; i < count; i++) {
		if (i != selected && ranks[i].is_band)
			ret_decision->order[next++] = ranks[i].index;
	}
	ret_decision->band_count = next;
	for (size_t i = 0; i < count; i++) {
		if (i != selected && !ranks[i].is_band)
			ret_decision->order[next++] = ranks[i].index;
	}
	ret_decision->order_count = next;
}

static bool do_metrics_differ(const struct profile *profile, const struct score_output *outputs,
			      const struct rank *ranks, size_t count)
{
	for (size_t dim = 0; dim < profile->dim_count; dim++) {
		int64_t least_ppm = INT64_MAX, most_ppm = -1;

		for (size_t i = 0; i < count; i++) {
			const struct score_output *output = &outputs[ranks[i].index];

			/* An assumed value is the mean of the others and says nothing. */
			if ((output->dims_assumed & ((uint32_t)1 << dim)) != 0)
				continue;
			least_ppm = min_i64(least_ppm, output->dim_ppm[dim]);
			most_ppm = max_i64(most_ppm, output->dim_ppm[dim]);
		}
		if (most_ppm >= 0 && (most_ppm - least_ppm) * 10 > most_ppm * DIFFER_MIN_TENTHS)
			return true;
	}
	return false;
}

/* All scores alike though what they are made of is not: scoring has become round robin (seed 004 §5.1). */
static bool are_scores_flat(const struct profile *profile, const struct score_output *outputs, const struct rank *ranks,
			    size_t count)
{
	if (count < 2 || profile->flat_us == 0)
		return false;
	if ((ranks[0].score_ppm - ranks[count - 1].score_ppm) * PPM > profile->flat_ppm * ranks[0].score_ppm)
		return false;
	return do_metrics_differ(profile, outputs, ranks, count);
}

static int64_t add_time(int64_t a_us, int64_t b_us)
{
	int64_t sum_us;

	return __builtin_add_overflow(a_us, b_us, &sum_us) ? INT64_MAX : sum_us;
}

void judge_set(const struct profile *profile, struct judge_memory *memory, int64_t elapsed_us,
	       const struct score_input *const *inputs, const struct score_output *outputs, size_t count,
	       struct decision *ret_decision)
{
	struct rank ranks[SCORE_SET_MAX];
	size_t serving_count, in_count, selected;
	bool is_failed;
	const char *id;

	MUST(count <= SCORE_SET_MAX);
	*ret_decision = (struct decision){ .selected = -1, .reason = REASON_none };
	serving_count = rank_all(inputs, outputs, count, ranks);
	in_count = count_in(ranks, serving_count);
	elapsed_us = max_i64(elapsed_us, 0);
	memory->held_us = add_time(max_i64(memory->held_us, 0), elapsed_us);
	memory->flat_us = are_scores_flat(profile, outputs, ranks, in_count)
				  ? add_time(max_i64(memory->flat_us, 0), elapsed_us)
				  : 0;
	ret_decision->is_flat = profile->flat_us > 0 && memory->flat_us >= profile->flat_us;
	if (serving_count == 0) {
		ret_decision->is_changed = memory->selected[0] != '\0';
		*memory = (struct judge_memory){ .selected = "" };
		return;
	}
	selected = select_rank(profile, memory, ranks, in_count, &ret_decision->reason);
	mark_band(profile, outputs, ranks, in_count);
	write_order(ranks, serving_count, selected, ret_decision);
	ret_decision->selected = ranks[selected].index;
	ret_decision->best_ppm = ranks[0].score_ppm;
	id = ranks[selected].id;
	ret_decision->is_changed = strcmp(id, memory->selected) != 0;
	if (ret_decision->is_changed) {
		is_failed = memory->failed_picks >= FAILED_PICKS_MAX && ret_decision->reason == REASON_failover;
		MUST(str_copy(str_from(id), memory->selected, sizeof(memory->selected)));
		memory->dwell_us = is_failed ? JUDGE_AWAY_US : 0;
		memory->failed_picks = 0;
		memory->held_us = 0;
	}
}
