#include "app/explain.h"

#include <inttypes.h>

#include "app/declog.h"

static const char *node_text(const char *id, char target[SCORE_ID_SIZE])
{
	return str_display(str_from(id), target, SCORE_ID_SIZE);
}

/* Wide enough for the names that are shown, so that columns stand under their heads. */
static int node_width(size_t width) { return (int)min_size(max_size(width, 8), 32); }

/* --- tables --- */

/* Those that may serve in the order of the decision, then the others as they were given. Returns how many. */
static size_t rank(const struct decide_record *record, uint16_t ranked[SCORE_SET_MAX])
{
	const struct decide_table *table = &record->table;
	bool seen[SCORE_SET_MAX] = { false };
	size_t count = 0;

	for (size_t i = 0; i < table->decision->order_count; i++) {
		uint16_t index = table->decision->order[i];

		if (!seen[index])
			ranked[count++] = index;
		seen[index] = true;
	}
	for (size_t i = 0; i < table->count; i++) {
		if (!seen[i])
			ranked[count++] = (uint16_t)i;
	}
	return count;
}

static void print_how(const struct decide_record *record, const uint16_t *ranked, size_t count, int width)
{
	char id[SCORE_ID_SIZE], span[24], base[16], sum[24], cap[24], decay[24], start[24], score[24];

	printf("%4s %-*s %-11s %-8s %-9s %-8s %-8s %8s %6s %6s %6s %6s %6s %7s %7s\n", "RANK", width, "NODE", "STATE",
	       "PROBE", "HEARTBEAT", "GOSSIP", "TRAFFIC", "AGE", "SUM", "CAP", "DECAY", "START", "SCORE", "BASE",
	       "WEIGHT");
	for (size_t i = 0; i < count; i++) {
		const struct score_input *input = record->table.inputs[ranked[i]];
		const struct score_output *output = &record->table.outputs[ranked[i]];
		char place[8] = "-", weight[16];

		if (i < record->table.decision->order_count)
			(void)snprintf(place, sizeof(place), "%zu", i + 1);
		(void)snprintf(base, sizeof(base), "%" PRIu32, input->weight_milli);
		(void)snprintf(weight, sizeof(weight), "%" PRIu32, output->weight_milli);
		printf("%4s %-*s %-11s %-8s %-9s %-8s %-8s %8s %6s %6s %6s %6s %6s %7s %7s\n", place, width,
		       node_text(input->id, id), member_state_name(input->state),
		       health_word_name(input->words[HEALTH_PROBE]), health_word_name(input->words[HEALTH_HEARTBEAT]),
		       health_word_name(input->words[HEALTH_GOSSIP]), health_word_name(input->words[HEALTH_TRAFFIC]),
		       explain_span(input->age_us, span), declog_share(output->sum_ppm, sum, sizeof(sum)),
		       declog_share(output->cap_ppm, cap, sizeof(cap)),
		       declog_share(output->decay_ppm, decay, sizeof(decay)),
		       declog_share(output->start_ppm, start, sizeof(start)),
		       declog_share(output->score_ppm, score, sizeof(score)), base, weight);
	}
}

/* value x weight, as they add up to the sum. */
static void print_dims(const struct decide_record *record, const uint16_t *ranked, size_t count, int width)
{
	const struct profile *profile = record->profile;
	char id[SCORE_ID_SIZE], cell[64], value[24], weight[24];

	if (profile->dim_count == 0)
		return;
	printf("\n%-*s", width, "NODE");
	for (size_t d = 0; d < profile->dim_count; d++)
		printf(" %*s", (int)max_size(strlen(profile->dims[d].name), 14), profile->dims[d].name);
	printf("\n");
	for (size_t i = 0; i < count; i++) {
		const struct score_output *output = &record->table.outputs[ranked[i]];

		printf("%-*s", width, node_text(record->table.inputs[ranked[i]]->id, id));
		for (size_t d = 0; d < profile->dim_count; d++) {
			const struct profile_dim *dim = &profile->dims[d];

			(void)snprintf(cell, sizeof(cell), "%s%s x %s", output->dims_assumed >> d & 1 ? "~" : "",
				       declog_share(output->dim_ppm[d], value, sizeof(value)),
				       declog_share(dim->weight_ppm, weight, sizeof(weight)));
			printf(" %*s", (int)max_size(strlen(dim->name), 14), cell);
		}
		printf("\n");
	}
}

static void print_rules(const struct decide_record *record, const uint16_t *ranked, size_t count, int width)
{
	const struct profile *profile = record->profile;
	char id[SCORE_ID_SIZE], factor[24];

	printf("\n%-*s RULES THAT ACTED\n", width, "NODE");
	for (size_t i = 0; i < count; i++) {
		const struct score_output *output = &record->table.outputs[ranked[i]];
		bool has_acted = false;

		printf("%-*s", width, node_text(record->table.inputs[ranked[i]]->id, id));
		for (size_t r = 0; r < profile->rule_count; r++) {
			if (output->rule_ppm[r] == PPM)
				continue;
			printf("%s %s x %s", has_acted ? "," : "", profile->rules[r].name,
			       declog_share(output->rule_ppm[r], factor, sizeof(factor)));
			has_acted = true;
		}
		printf("%s\n", has_acted ? "" : " none");
	}
}

void explain_table(const struct decide_record *record)
{
	uint16_t ranked[SCORE_SET_MAX];
	size_t total_count = rank(record, ranked), count = min_size(total_count, EXPLAIN_ROWS), longest = 0;
	int width;

	for (size_t i = 0; i < count; i++)
		longest = max_size(longest, strlen(record->table.inputs[ranked[i]]->id));
	width = node_width(longest);
	print_how(record, ranked, count, width);
	print_dims(record, ranked, count, width);
	if (record->profile->rule_count > 0)
		print_rules(record, ranked, count, width);
	if (total_count > count)
		printf("... and %zu more: --json has all\n", total_count - count);
}

/* --- batches --- */

void explain_place(const struct decide_record *record)
{
	const struct decide_place *place = &record->place;
	size_t count = min_size(place->looked_count, EXPLAIN_ROWS);
	char id[SCORE_ID_SIZE], held[24], cap[24];

	printf("%4s %-20s %12s %12s  %s\n", "RANK", "NODE", "HELD", "MAY HOLD", "ROOM FOR IT");
	for (size_t i = 0; i < count; i++)
		printf("%4zu %-20s %12s %12s  %s\n", i + 1, node_text(ring_node_id(record->ring, place->looked[i]), id),
		       size_display(place->held_bytes[i], held, sizeof(held)),
		       size_display(place->cap_bytes[i], cap, sizeof(cap)),
		       ring_batch_fits(place->held_bytes[i], place->cap_bytes[i], place->size_bytes) ? "yes" : "no");
	if (place->looked_count > count)
		printf("... and %zu more: --json has all\n", place->looked_count - count);
}

void explain_plan(const struct decide_record *record)
{
	size_t node_count = ring_node_count(record->ring), count = min_size(node_count, EXPLAIN_ROWS);
	uint64_t weight_sum = 0;
	char id[SCORE_ID_SIZE], share[24];

	for (size_t i = 0; i < node_count; i++)
		weight_sum += ring_node_weight_milli(record->ring, i);
	printf("%-20s %12s %12s\n", "NODE", "WEIGHT", "SHARE");
	for (size_t i = 0; i < count; i++) {
		uint64_t weight = ring_node_weight_milli(record->ring, i);

		printf("%-20s %12" PRIu64 " %12s\n", node_text(ring_node_id(record->ring, i), id), weight,
		       declog_share(weight_sum ? (int64_t)(weight * PPM / weight_sum) : -1, share, sizeof(share)));
	}
	if (node_count > count)
		printf("... and %zu more: --json has all\n", node_count - count);
}

/* --- picks --- */

void explain_pick(const struct decide_record *record)
{
	const struct decide_pick *pick = record->pick;
	size_t count = min_size(pick->row_count, EXPLAIN_ROWS);
	char id[SCORE_ID_SIZE], score[24], start[24];

	printf("%4s %-20s %6s %9s %6s %9s %6s %12s %12s\n", "RANK", "NODE", "SCORE", "WEIGHT", "START", "IN FLIGHT",
	       "FAILS", "PEAK MS", "ESTIMATE MS");
	for (size_t i = 0; i < count; i++) {
		const struct decide_pick_row *row = &pick->rows[i];
		const int64_t costs_ns[] = { row->load.peak.cost_ns, row->load.robust.estimate_ns };
		char costs[2][32];

		for (size_t k = 0; k < 2; k++) {
			(void)snprintf(costs[k], sizeof(costs[k]), "-");
			if (costs_ns[k] >= 0)
				(void)snprintf(costs[k], sizeof(costs[k]), "%" PRId64 ".%03d", costs_ns[k] / 1000000,
					       (int)(costs_ns[k] / 1000 % 1000));
		}
		printf("%4zu %-20s %6s %9" PRIu32 " %6s %9" PRIu32 " %6" PRIu32 " %12s %12s\n", i + 1,
		       node_text(row->id, id), declog_share(row->candidate.score_ppm, score, sizeof(score)),
		       row->candidate.weight_milli, declog_share(row->candidate.start_ppm, start, sizeof(start)),
		       row->load.in_flight, row->load.fails_in_row, costs[0], costs[1]);
	}
	if (pick->row_count > count)
		printf("... and %zu more: --json has all\n", pick->row_count - count);
	if (pick->call.tried_count)
		printf("retry: %zu nodes had failed this request before\n", pick->call.tried_count);
}
