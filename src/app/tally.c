#include "app/tally.h"

#include <inttypes.h>

#include "base/clock.h"

#define TOLD_MAX 5 /* lines of one kind that are named; the rest are counted */

static void tell(uint64_t *count, const char *where, const struct err *err)
{
	char shown[1024];

	if (++*count > TOLD_MAX)
		return;
	fprintf(stderr, "heng: %s: %s\n", where, str_display(str_from(err->text), shown, sizeof(shown)));
	if (*count == 1 && err->hint[0])
		fprintf(stderr, "hint: %s\n", err->hint);
}

static void tally_line(struct tally *tally, struct declog *log, struct decide_replay *replay, struct str line)
{
	enum decide_result result;
	struct decide_change change;
	struct err fault = ERR_INIT;
	const struct decide_record *record;

	if (decide_replay_line(replay, line, &result, &change, &fault) < 0) {
		uint64_t *count = &tally->bad_count;

		if (fault.code == ERR_TRUNCATED)
			count = &tally->torn_count;
		else if (fault.code == ERR_INCOMPLETE)
			count = &tally->unread_count;
		tell(count, declog_where(log), &fault);
		return;
	}
	record = decide_replay_record(replay);
	if (record->kind == DECIDE_DROPPED)
		tally->dropped_count += record->dropped_count;
	tally->same_count += result == DECIDE_SAME;
	if (result != DECIDE_OTHER)
		return;
	tally->other_count++;
	tally->other(tally->owner, declog_where(log), &change);
}

int tally_run(struct tally *tally, struct declog *log, struct decide_replay *replay, struct err *err)
{
	int64_t began_us = clock_mono_us();
	struct str line;
	int result;

	while ((result = declog_next(log, &line, err)) > 0)
		tally_line(tally, log, replay, line);
	tally->took_us = clock_mono_us() - began_us;
	return result;
}

void tally_print(const struct tally *tally)
{
	if (tally->torn_count)
		printf("%" PRIu64 " torn lines, which a stopped writer left: no differences\n", tally->torn_count);
	if (tally->unread_count)
		printf("%" PRIu64 " lines not replayed: the profile or plan that they use is in an older file\n",
		       tally->unread_count);
	if (tally->dropped_count)
		printf("%" PRIu64 " lines were never written: the disk could not keep up, says the log itself\n",
		       tally->dropped_count);
	if (tally->bad_count)
		printf("%" PRIu64 " lines are no records of a decision log, or lack what must stand before them\n",
		       tally->bad_count);
}

/* --- changes --- */

/* Sorted by id, so that a large pool costs no more than a small one. */
static struct change_node *changes_node(struct changes *changes, const char *id)
{
	size_t low = 0, high = changes->node_count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		int order = strcmp(changes->nodes[middle].id, id);

		if (order == 0)
			return &changes->nodes[middle];
		if (order < 0)
			low = middle + 1;
		else
			high = middle;
	}
	if (changes->node_count == changes->node_capacity) {
		size_t capacity = max_size(2 * changes->node_capacity, 16);
		struct change_node *nodes = must_zalloc(capacity, sizeof(*nodes));

		if (changes->node_count)
			memcpy(nodes, changes->nodes, changes->node_count * sizeof(*nodes));
		free(changes->nodes);
		changes->nodes = nodes;
		changes->node_capacity = capacity;
	}
	memmove(&changes->nodes[low + 1], &changes->nodes[low], (changes->node_count - low) * sizeof(*changes->nodes));
	changes->node_count++;
	changes->nodes[low] = (struct change_node){ .won_count = 0 };
	(void)snprintf(changes->nodes[low].id, sizeof(changes->nodes[low].id), "%s", id);
	return &changes->nodes[low];
}

void changes_feed(void *owner, const char *where, const struct decide_change *change)
{
	struct changes *changes = owner;

	changes_node(changes, change->recorded)->lost_count++;
	changes_node(changes, change->computed)->won_count++;
	if (changes->shown_count == CHANGES_SHOWN)
		return;
	changes->shown[changes->shown_count] = *change;
	(void)snprintf(changes->where[changes->shown_count], sizeof(changes->where[0]), "%s", where);
	changes->shown_count++;
}

static const char *name_of(const char *id, char *target, size_t target_size)
{
	return id[0] ? str_display(str_from(id), target, target_size) : "nobody";
}

void changes_print(const struct changes *changes, uint64_t other_count)
{
	char set[JUDGE_SET_SIZE], from[SCORE_ID_SIZE], to[SCORE_ID_SIZE], time[CLOCK_TEXT_SIZE];
	char from_score[24], to_score[24];

	if (other_count == 0)
		return;
	printf("\n%-12s %-24s %-16s %-16s %7s   %-16s %7s\n", "WHERE", "TIME", "SET", "FROM", "SCORE", "TO", "SCORE");
	for (size_t i = 0; i < changes->shown_count; i++) {
		const struct decide_change *change = &changes->shown[i];

		printf("%-12s %-24s %-16s %-16s %7s   %-16s %7s\n", changes->where[i],
		       clock_text(change->wall_us, time), str_display(str_from(change->set), set, sizeof(set)),
		       name_of(change->recorded, from, sizeof(from)),
		       declog_share(change->recorded_ppm, from_score, sizeof(from_score)),
		       name_of(change->computed, to, sizeof(to)),
		       declog_share(change->computed_ppm, to_score, sizeof(to_score)));
	}
	if (other_count > changes->shown_count)
		printf("... and %" PRIu64 " more\n", other_count - changes->shown_count);
	printf("\n%-16s %9s %9s\n", "NODE", "WINS", "LOSES");
	for (size_t i = 0; i < changes->node_count; i++)
		printf("%-16s %9" PRIu64 " %9" PRIu64 "\n", name_of(changes->nodes[i].id, from, sizeof(from)),
		       changes->nodes[i].won_count, changes->nodes[i].lost_count);
}

void changes_fini(struct changes *changes)
{
	free(changes->nodes);
	*changes = (struct changes){ .shown_count = 0 };
}
