#include <stdio.h>

#include "app/cmd.h"

const struct cmd_option cmd_help_options[] = { { .name = NULL } };
const struct cmd_option cmd_version_options[] = { { .name = NULL } };

int cmd_help_run(const struct cmd *cmd, int operand_count, char **operands, const char *const *values)
{
	(void)values;
	if (operand_count > 0) {
		const struct cmd *other = cmd_find(operands[0]);
		if (other == NULL) {
			struct err err = ERR_INIT;
			err_set(&err, ERR_USAGE, "there is no command '%s'", operands[0]);
			err_hint(&err, "heng help lists them");
			return cmd_fail(&err, "%s", cmd->name);
		}
		cmd_print_help(other);
		return CMD_DONE;
	}
	printf("heng moves folders to storage nodes in chunks, durably, and puts them together again: whole, or not at "
	       "all.\n\n");
	for (const struct cmd *row = cmd_table; row->name != NULL; row++)
		printf("  heng %-10s %-11s %s\n", row->name, row->operands, row->help);
	printf("\nheng help COMMAND lists its options.\n"
	       "Exit codes: 0 done, 1 a fault in heng, 2 usage, 3 refused, 4 incomplete but resumable, 5 integrity.\n");
	return CMD_DONE;
}

int cmd_version_run(const struct cmd *cmd, int operand_count, char **operands, const char *const *values)
{
	(void)cmd, (void)operand_count, (void)operands, (void)values;
	printf("heng %s\n", HENG_VERSION);
	return CMD_DONE;
}
