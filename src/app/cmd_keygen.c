#include <stdio.h>

#include "app/cmd.h"
#include "folder/key_file.h"

const struct cmd_option cmd_keygen_options[] = {
	{ .name = NULL },
};

int cmd_keygen_run(const struct cmd *cmd, int operand_count, char **operands, const char *const *values)
{
	(void)cmd, (void)operand_count, (void)values;
	char id[SEAL_ID_SIZE], shown[600];
	struct err err = ERR_INIT;

	if (key_file_make(operands[0], id, &err) < 0)
		return cmd_fail(&err, "no key was made");
	printf("key %s is in %s; keep a copy where the files are not: without it nobody opens them\n", id,
	       str_display(str_from(operands[0]), shown, sizeof(shown)));
	return CMD_DONE;
}
