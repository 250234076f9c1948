#include <inttypes.h>

#include "app/cmd.h"
#include "app/tally.h"

const struct cmd_option cmd_score_options[] = {
	{ "factor", 0, "F", "squeeze: what is left of each score's distance from its set's mean, 0.001 to 1 (0.5)" },
	{ "rotated", 0, NULL, "read LOG.2, LOG.1, ... before LOG, as far as they exist" },
	{ .name = NULL },
};

/* "0.5", "0.125", ".5", "1": a share above 0 with at most three decimals. */
static bool factor_read(const char *text, int64_t *ret_ppm)
{
	struct str rest = str_from(text), whole = STR_NONE;
	uint64_t units = 0, decimals = 0;

	if (!str_cut(&rest, '.', &whole))
		return false;
	if (whole.size > 0 && !str_to_u64(whole, &units))
		return false;
	if (rest.size > 3 || (rest.size > 0 && !str_to_u64(rest, &decimals)) || units > 1)
		return false;
	for (size_t i = rest.size; i < 6; i++)
		decimals *= 10;
	*ret_ppm = (int64_t)(units * PPM + decimals);
	return *ret_ppm > 0 && *ret_ppm <= PPM;
}

static int squeeze(struct declog *log, const char *path, int64_t factor_ppm)
{
	struct decide_replay *replay = decide_replay_new(NULL, factor_ppm);
	struct changes changes = { .shown_count = 0 };
	struct tally tally = { .other = changes_feed, .owner = &changes };
	struct err err = ERR_INIT;
	int result = tally_run(&tally, log, replay, &err);
	uint64_t count = tally.same_count + tally.other_count;
	char factor[24], share[24];

	decide_replay_free(&replay);
	if (result < 0) {
		changes_fini(&changes);
		return cmd_fail(&err, "reading of %s stopped after %" PRIu64 " lines", path, declog_line_count(log));
	}
	printf("with the scores of each set drawn together by %s, %" PRIu64 " of %" PRIu64 " choices stay the same",
	       declog_share(factor_ppm, factor, sizeof(factor)), tally.same_count, count);
	if (count > 0)
		printf(" (%s)", declog_share((int64_t)((unsigned __int128)tally.same_count * PPM / count), share,
					     sizeof(share)));
	printf("\n");
	changes_print(&changes, tally.other_count);
	changes_fini(&changes);
	tally_print(&tally);
	return CMD_DONE;
}

int cmd_score_run(const struct cmd *cmd, int operand_count, char **operands, const char *const *values)
{
	const char *factor = cmd_value(cmd, values, "factor");
	int64_t factor_ppm = PPM / 2;
	struct err err = ERR_INIT;
	struct declog *log = NULL;
	int exit_code;

	(void)operand_count;
	if (strcmp(operands[0], "squeeze") != 0) {
		err_set(&err, ERR_USAGE, "'%s' is nothing that can be done to scores", operands[0]);
		err_hint(&err, "heng score squeeze LOG");
		return cmd_fail(&err, "score");
	}
	if (factor && !factor_read(factor, &factor_ppm)) {
		err_set(&err, ERR_USAGE, "--factor '%s' is not above 0 and at most 1, with three decimals at most",
			factor);
		err_hint(&err, "like 0.5");
		return cmd_fail(&err, "score squeeze");
	}
	if (declog_open(operands[1], cmd_value(cmd, values, "rotated") != NULL, &log, &err) < 0)
		return cmd_fail(&err, "score squeeze");
	/* With a factor of 1 nothing is drawn together: then whole lines are compared, as `heng replay` does. */
	exit_code = squeeze(log, operands[1], factor_ppm);
	declog_close(&log);
	return exit_code;
}
