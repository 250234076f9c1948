#include <inttypes.h>

#include "app/cmd.h"
#include "app/tally.h"
#include "base/clock.h"

#define REPLAY_DIFFERS 1

const struct cmd_option cmd_replay_options[] = {
	{ "rotated", 0, NULL, "read LOG.2, LOG.1, ... before LOG, as far as they exist" },
	{ "profile", 0, "FILE", "what if: which choices would this score profile change?" },
	{ .name = NULL },
};

struct first {
	struct decide_change change;
	char where[512];
	bool is_set;
};

static void first_keep(void *owner, const char *where, const struct decide_change *change)
{
	struct first *first = owner;

	if (first->is_set)
		return;
	first->is_set = true;
	first->change = *change;
	(void)snprintf(first->where, sizeof(first->where), "%s", where);
}

static const char *shown_node(const char *id, char *target, size_t target_size)
{
	return id[0] ? str_display(str_from(id), target, target_size) : "nobody";
}

static void first_print(const struct first *first)
{
	const struct decide_change *change = &first->change;
	char set[JUDGE_SET_SIZE], recorded[SCORE_ID_SIZE], computed[SCORE_ID_SIZE], time[CLOCK_TEXT_SIZE];
	char what[2 * sizeof(change->what)];

	printf("first difference: %s, set '%s' at %s\n", first->where,
	       str_display(str_from(change->set), set, sizeof(set)), clock_text(change->wall_us, time));
	printf("  choice:   recorded %s, computed %s\n", shown_node(change->recorded, recorded, sizeof(recorded)),
	       shown_node(change->computed, computed, sizeof(computed)));
	printf("  field:    %s\n", str_display(str_from(change->what), what, sizeof(what)));
}

static void print_speed(const struct tally *tally, const struct declog *log)
{
	int64_t took_us = max_i64(tally->took_us, 1);
	uint64_t lines = declog_line_count(log);

	printf("%" PRIu64 " lines in %" PRId64 ".%03d s, %" PRIu64 " a second\n", lines, took_us / SEC_US,
	       (int)(took_us % SEC_US / MSEC_US), (uint64_t)((unsigned __int128)lines * SEC_US / (uint64_t)took_us));
}

/* Does the log agree with what is computed from it? */
static int replay_check(struct declog *log, const char *path)
{
	struct decide_replay *replay = decide_replay_new(NULL, PPM);
	struct first first = { .is_set = false };
	struct tally tally = { .other = first_keep, .owner = &first };
	struct err err = ERR_INIT;
	int result = tally_run(&tally, log, replay, &err);

	decide_replay_free(&replay);
	if (result < 0)
		return cmd_fail(&err, "replay of %s stopped after %" PRIu64 " lines", path, declog_line_count(log));
	printf("%" PRIu64 " of %" PRIu64 " recorded choices agree, %" PRIu64 " differ\n", tally.same_count,
	       tally.same_count + tally.other_count, tally.other_count);
	if (first.is_set)
		first_print(&first);
	tally_print(&tally);
	print_speed(&tally, log);
	/* Lines of which none could be replayed are no agreement. */
	if (tally.other_count || tally.bad_count || (tally.unread_count && !tally.same_count))
		return REPLAY_DIFFERS;
	return CMD_DONE;
}

static int replay_what_if(struct declog *log, const char *path, const char *profile_path)
{
	struct changes changes = { .shown_count = 0 };
	struct tally tally = { .other = changes_feed, .owner = &changes };
	struct err err = ERR_INIT;
	struct profile profile;
	struct decide_replay *replay;
	int result;

	if (declog_profile(profile_path, &profile, &err) < 0)
		return cmd_fail(&err, "cannot use the profile");
	replay = decide_replay_new(&profile, PPM);
	result = tally_run(&tally, log, replay, &err);
	decide_replay_free(&replay);
	if (result < 0) {
		changes_fini(&changes);
		return cmd_fail(&err, "replay of %s stopped after %" PRIu64 " lines", path, declog_line_count(log));
	}
	printf("with the profile '%s' %" PRIu64 " of %" PRIu64 " choices would be others\n", profile.name,
	       tally.other_count, tally.same_count + tally.other_count);
	changes_print(&changes, tally.other_count);
	changes_fini(&changes);
	tally_print(&tally);
	print_speed(&tally, log);
	return CMD_DONE;
}

int cmd_replay_run(const struct cmd *cmd, int operand_count, char **operands, const char *const *values)
{
	const char *profile_path = cmd_value(cmd, values, "profile");
	struct err err = ERR_INIT;
	struct declog *log = NULL;
	int exit_code;

	(void)operand_count;
	if (declog_open(operands[0], cmd_value(cmd, values, "rotated") != NULL, &log, &err) < 0)
		return cmd_fail(&err, "replay");
	exit_code = profile_path ? replay_what_if(log, operands[0], profile_path) : replay_check(log, operands[0]);
	declog_close(&log);
	return exit_code;
}
