#include <stdio.h>
#include <string.h>

#include "app/ask.h"
#include "base/rng.h"

const struct cmd_option cmd_cancel_options[] = { CLIENT_OPTIONS, { .name = NULL } };

int cmd_cancel_run(const struct cmd *cmd, int operand_count, char **operands, const char *const *values)
{
	(void)operand_count;
	struct err err = ERR_INIT;
	char path[256], reason[4 * 512];
	json_t *root = NULL;
	int r = 0;
	if (!ulid_is_valid(operands[0], strlen(operands[0])))
		r = err_set(&err, ERR_USAGE, "'%s' is not a transfer id (26 letters and digits)", operands[0]);
	snprintf(path, sizeof(path), "/api/v1/transfers/%.26s/cancel", operands[0]);
	if (r == 0)
		r = ask_json_post(cmd, values, path, &root, &err);
	if (r < 0)
		return cmd_fail(&err, "cancel");
	/* One that had failed before keeps its reason: that is told rather than what was asked for. */
	if (root != NULL)
		printf("transfer %s has ended: %s\n", operands[0], ask_word(root, "reason", reason, sizeof(reason)));
	json_decref(root);
	return CMD_DONE;
}
