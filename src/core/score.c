#include "core/score.h"
#include "core/score_norm.h"

/* A score may always rise by this much, else one that is near 0 would need minutes to come back. */
#define STEP_LEAST_PPM 50000

/* Sums over the set, before any one is scored. */
struct scene {
	const struct profile *profile;
	struct score_flow flow;
	/* Of each rule's source, over those that can take work and know it. */
	__int128 source_sums[PROFILE_RULES_MAX];
	int64_t source_counts[PROFILE_RULES_MAX];
	bool is_start_off; /* more than half of the set is new: slow start would slow nothing but the start */
};

static int64_t start_factor(const struct profile *profile, const struct score_input *input)
{
	if (input->joined_age_us < 0 || profile->start.floor_ppm >= PPM)
		return PPM;
	return curve_start_ppm(&profile->start, input->joined_age_us);
}

static void look_around(struct scene *scene, const struct score_input *const *inputs, size_t count)
{
	size_t able_count = 0, starting_count = 0;

	for (size_t i = 0; i < count; i++) {
		if (!score_is_able(inputs[i]))
			continue;
		able_count++;
		starting_count += start_factor(scene->profile, inputs[i]) < PPM ? 1 : 0;
		if (inputs[i]->in_flight < 0)
			continue;
		scene->flow.in_flight_sum += inputs[i]->in_flight;
		scene->flow.weight_sum += max_i64(inputs[i]->weight_milli, 1);
	}
	/* Nobody who could take work has told: then a node that cannot is measured against itself. */
	scene->flow.weight_sum = max_i64(scene->flow.weight_sum, 1);
	scene->is_start_off = starting_count * 2 > able_count;
}

/* One dimension of all candidates. Who does not know counts as the mean of those who do and can take work. */
static void score_dim(const struct scene *scene, size_t dim_index, const struct score_input *const *inputs,
		      size_t count, struct score_output *outputs)
{
	const struct profile_dim *dim = &scene->profile->dims[dim_index];
	int64_t sum_ppm = 0, known_count = 0, mean_ppm;

	for (size_t i = 0; i < count; i++) {
		int64_t value_ppm = score_norm(dim, inputs[i], &scene->flow);

		outputs[i].dim_ppm[dim_index] = value_ppm;
		if (value_ppm < 0 || !score_is_able(inputs[i]))
			continue;
		sum_ppm += value_ppm;
		known_count++;
	}
	mean_ppm = known_count > 0 ? (sum_ppm + known_count / 2) / known_count : PPM;
	for (size_t i = 0; i < count; i++) {
		if (outputs[i].dim_ppm[dim_index] >= 0)
			continue;
		outputs[i].dim_ppm[dim_index] = mean_ppm;
		outputs[i].dims_assumed |= (uint32_t)1 << dim_index;
	}
}

static int64_t weighted_sum(const struct profile *profile, const struct score_output *output)
{
	int64_t sum = 0;

	if (profile->dim_count == 0)
		return PPM;
	for (size_t i = 0; i < profile->dim_count; i++)
		sum += profile->dims[i].weight_ppm * output->dim_ppm[i];
	return min_i64((sum + PPM / 2) / PPM, PPM);
}

/* 1 - the weighted value of group "load", over those of its dimensions that are known of this node; -1: none is. */
static int64_t load_of(const struct profile *profile, const struct score_output *output)
{
	int64_t sum = 0, weight_sum = 0;

	for (size_t i = 0; i < profile->dim_count; i++) {
		const struct profile_dim *dim = &profile->dims[i];

		if (strcmp(dim->group, "load") != 0 || (output->dims_assumed & ((uint32_t)1 << i)) != 0)
			continue;
		sum += dim->weight_ppm * output->dim_ppm[i];
		weight_sum += dim->weight_ppm;
	}
	return weight_sum > 0 ? PPM - (sum + weight_sum / 2) / weight_sum : -1;
}

/* What is known of one candidate between its own score and the final one. */
struct working {
	/* Products of all rules, of those about facts alone, of those that are no echo of what strategies see themselves. */
	int64_t rules_ppm, facts_ppm, news_ppm;
	int64_t share_ppm; /* how far the peers' mean stands in for its metrics: PPM is wholly */
};

/* Many small factors must not round to a zero that none of them says. */
static int64_t times_factor(int64_t product_ppm, int64_t factor_ppm)
{
	return max_i64(score_times(product_ppm, factor_ppm), product_ppm > 0 && factor_ppm > 0 ? 1 : 0);
}

static void sum_sources(struct scene *scene, const struct score_input *const *inputs, size_t count,
			const struct score_output *outputs)
{
	for (size_t i = 0; i < scene->profile->rule_count; i++) {
		const struct profile_rule *rule = &scene->profile->rules[i];

		for (size_t j = 0; rule->above_peers > 0 && j < count; j++) {
			int64_t value = score_source(rule->source, inputs[j], load_of(scene->profile, &outputs[j]));

			if (value < 0 || !score_is_able(inputs[j]))
				continue;
			scene->source_sums[i] += value;
			scene->source_counts[i]++;
		}
	}
}

/* Is the node out of the common by the rule's source, or has it no peers to be compared with? */
static bool is_above_peers(const struct scene *scene, size_t rule_index, const struct score_input *input, int64_t value)
{
	const struct profile_rule *rule = &scene->profile->rules[rule_index];
	__int128 sum = scene->source_sums[rule_index];
	int64_t count = scene->source_counts[rule_index];

	if (score_is_able(input) && value >= 0) {
		sum -= value;
		count--;
	}
	return rule->above_peers == 0 || count <= 0 ||
	       (__int128)value * count - sum >= (__int128)rule->above_peers * count;
}

static void apply_rules(const struct scene *scene, const struct score_input *input, struct score_output *output,
			struct working *working)
{
	const struct profile *profile = scene->profile;
	int64_t load_ppm = load_of(profile, output);

	working->rules_ppm = PPM;
	working->facts_ppm = PPM;
	working->news_ppm = PPM;
	for (size_t i = 0; i < profile->rule_count; i++) {
		const struct profile_rule *rule = &profile->rules[i];
		uint32_t bit = (uint32_t)1 << i;
		int64_t value = score_source(rule->source, input, load_ppm);
		bool is_on;

		output->rule_ppm[i] = score_rule(rule, value, (input->rules_on & bit) != 0, &is_on);
		if (value >= 0 && !is_above_peers(scene, i, input, value)) {
			output->rule_ppm[i] = PPM;
			is_on = false;
		}
		output->rules_on |= is_on ? bit : 0;
		working->rules_ppm = times_factor(working->rules_ppm, output->rule_ppm[i]);
		if (score_is_fact(rule->source))
			working->facts_ppm = times_factor(working->facts_ppm, output->rule_ppm[i]);
		if (!score_is_echo(rule->source))
			working->news_ppm = times_factor(working->news_ppm, output->rule_ppm[i]);
	}
}

static int64_t assumed_share(const struct profile *profile, const struct score_input *input)
{
	if (input->joined_age_us >= 0 && input->joined_age_us < profile->blackout_us)
		return PPM;
	if (profile->stale != PROFILE_DRIFT)
		return 0;
	if (input->age_us < 0)
		return PPM;
	if (input->age_us <= profile->decay.life_us)
		return 0;
	return min_i64(PPM, score_ratio(input->age_us - profile->decay.life_us, max_i64(profile->decay.step_us, 1)));
}

/* What each scores of its own: min(sum * rules, cap) * decay. */
static void score_own(const struct scene *scene, const struct score_input *input, struct score_output *output,
		      struct working *working)
{
	const struct profile *profile = scene->profile;

	output->sum_ppm = weighted_sum(profile, output);
	apply_rules(scene, input, output, working);
	working->share_ppm = assumed_share(profile, input);
	output->is_assumed = working->share_ppm > 0;
	output->cap_ppm = PPM;
	if (profile->warmup.start_ppm > 0 && input->joined_age_us >= 0)
		output->cap_ppm = curve_warmup_ppm(&profile->warmup, input->joined_age_us,
						   input->report.sync_progress_ppm, input->report.verified > 0,
						   input->was_ever_verified);
	output->decay_ppm = profile->stale == PROFILE_DECAY ? curve_decay_ppm(&profile->decay, input->age_us) : PPM;
	output->score_ppm = score_times(min_i64(times_factor(output->sum_ppm, working->rules_ppm), output->cap_ppm),
					output->decay_ppm);
}

/* The own score, or as far as it is assumed that of the peers. Facts about the node and its cap hold even then. */
static int64_t mix(const struct score_output *output, const struct working *working, int64_t mean_ppm)
{
	int64_t stand_in_ppm = min_i64(times_factor(mean_ppm, working->facts_ppm), output->cap_ppm);

	return score_times(output->score_ppm, PPM - working->share_ppm) + score_times(stand_in_ppm, working->share_ppm);
}

/* Somebody said 0 and meant it, so that no floor may lift it: the state, a rule, a cap, news that are too old. */
static bool is_zero_meant(const struct score_input *input, const struct score_output *output,
			  const struct working *working)
{
	if (input->state == MEMBER_UNREACHABLE || input->state == MEMBER_REMOVED)
		return true;
	return working->facts_ppm == 0 || output->cap_ppm == 0 || output->decay_ppm == 0 ||
	       (working->rules_ppm == 0 && working->share_ppm == 0);
}

/* What the node's standing leaves of its weight: the score without its dimensions and without the rules that echo load. */
static int64_t standing(const struct score_input *input, const struct working *working,
			const struct score_output *output)
{
	int64_t rules_ppm = score_times(working->news_ppm, PPM - working->share_ppm) +
			    score_times(working->facts_ppm, working->share_ppm);
	int64_t sum_ppm = max_i64(output->sum_ppm, 1), cap_ppm = PPM;

	/* The cap is one of the score: it takes as much of the weight as of the score. */
	if (score_times(sum_ppm, rules_ppm) > output->cap_ppm)
		cap_ppm = output->cap_ppm * PPM / max_i64(score_times(sum_ppm, rules_ppm), 1);
	return score_times(
		score_times(score_times(rules_ppm, cap_ppm), score_times(output->decay_ppm, output->start_ppm)),
		member_health_ppm(input->state));
}

/* Slow start, the step limit, the floor; then what follows from the score. output->score_ppm: before those. */
static void finish(const struct scene *scene, const struct score_input *input, const struct working *working,
		   struct score_output *output)
{
	const struct profile *profile = scene->profile;
	int64_t before_ppm = min_i64(input->score_before_ppm, PPM), limit_ppm;
	bool is_able = score_is_able(input);

	output->start_ppm = scene->is_start_off ? PPM : start_factor(profile, input);
	output->score_ppm = times_factor(output->score_ppm, output->start_ppm);
	if (profile->step_up_ppm > 0 && before_ppm >= 0) {
		limit_ppm = before_ppm + max_i64(score_times(before_ppm, profile->step_up_ppm), STEP_LEAST_PPM);
		output->is_step_limited = output->score_ppm > limit_ppm;
		output->score_ppm = min_i64(output->score_ppm, limit_ppm);
	}
	if (is_zero_meant(input, output, working))
		output->score_ppm = 0;
	else if (is_able)
		output->score_ppm = max_i64(output->score_ppm, profile->floor_ppm);
	output->may_serve = is_able && output->score_ppm > 0;
	if (output->may_serve && input->weight_milli > 0) {
		output->weight_milli = (uint32_t)max_i64(score_times(input->weight_milli, output->score_ppm), 1);
		output->standing_milli = (uint32_t)max_i64(
			score_times(input->weight_milli, standing(input, working, output)), 1);
	}
}

void score_set(const struct profile *profile, const struct score_input *const *inputs, size_t count,
	       struct score_output *ret_outputs)
{
	struct scene scene = { .profile = profile };
	struct working workings[SCORE_SET_MAX];
	int64_t mean_sum_ppm = 0, mean_count = 0, mean_ppm;

	MUST(count <= SCORE_SET_MAX);
	if (count == 0)
		return;
	memset(ret_outputs, 0, count * sizeof(*ret_outputs));
	look_around(&scene, inputs, count);
	for (size_t i = 0; i < profile->dim_count; i++)
		score_dim(&scene, i, inputs, count, ret_outputs);
	sum_sources(&scene, inputs, count, ret_outputs);
	for (size_t i = 0; i < count; i++) {
		score_own(&scene, inputs[i], &ret_outputs[i], &workings[i]);
		if (!score_is_able(inputs[i]) || is_zero_meant(inputs[i], &ret_outputs[i], &workings[i]) ||
		    ret_outputs[i].is_assumed)
			continue;
		mean_sum_ppm += ret_outputs[i].score_ppm;
		mean_count++;
	}
	/* Nobody to take the mean of: all that are assumed are alike, which is all that can be said of them. */
	mean_ppm = mean_count > 0 ? (mean_sum_ppm + mean_count / 2) / mean_count : PPM;
	for (size_t i = 0; i < count; i++) {
		ret_outputs[i].score_ppm = mix(&ret_outputs[i], &workings[i], mean_ppm);
		finish(&scene, inputs[i], &workings[i], &ret_outputs[i]);
	}
}
