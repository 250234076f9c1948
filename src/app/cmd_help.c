#include <stdio.h>
#include <string.h>

#include "app/cmd.h"
#include "base/conf_value.h"
#include "folder/node.h"
#include "folder/sched.h"
#include "sim/policy.h"
#include "sim/scenario.h"

const struct cmd_option cmd_help_options[] = { { .name = NULL } };
const struct cmd_option cmd_version_options[] = { { .name = NULL } };

static void help_print_keys(const struct conf_row *rows, int indent)
{
	char allowed[CONF_WHY_SIZE];
	for (const struct conf_row *row = rows; row->name != NULL; row++) {
		printf("%*s%-*s %s\n%*s", indent, "", 26 - indent, row->name, row->help, 27, "");
		printf("%s", conf_value_allowed(row, allowed));
		if (row->type == CONF_LIST)
			printf(", each with:\n");
		else if (row->fallback == NULL)
			printf("; required\n");
		else if (row->fallback[0] == '\0')
			printf("; may be left out\n");
		else
			printf("; default: %s\n", row->fallback);
		if (row->type == CONF_LIST)
			help_print_keys(row->item_rows, indent + 2);
	}
}

static void help_print_policies(void)
{
	printf("\nPolicies:\n");
	for (size_t i = 0; sim_policies[i] != NULL; i++)
		printf("  %-24s %s\n%27s(%s)\n", sim_policies[i]->name, sim_policies[i]->help, "",
		       sim_policies[i]->source);
}

void cmd_print_help(const struct cmd *cmd)
{
	printf("heng %s%s%s%s: %s\n", cmd->name, cmd->options[0].name != NULL ? " [OPTION...]" : "",
	       cmd->operands[0] != '\0' ? " " : "", cmd->operands, cmd->help);
	for (const struct cmd_option *option = cmd->options; option->name != NULL; option++) {
		char left[64];
		snprintf(left, sizeof(left), "%s%c%s--%s%s%s", option->letter != 0 ? "-" : " ",
			 option->letter != 0 ? option->letter : ' ', option->letter != 0 ? ", " : "  ", option->name,
			 option->value != NULL ? " " : "", option->value != NULL ? option->value : "");
		printf("  %-32s %s\n", left, option->help);
	}
	static const struct {
		const char *name;
		const struct conf_row *rows;
	} readers[] = { { "scheduler", sched_conf_rows }, { "node", node_conf_rows }, { "sim", scenario_rows } };
	if (strcmp(cmd->name, "sim") == 0)
		help_print_policies();
	for (size_t i = 0; i < COUNT_OF(readers); i++) {
		if (strcmp(cmd->name, readers[i].name) != 0)
			continue;
		printf("\nKeys of the %s:\n", readers[i].rows == scenario_rows ? "scenario" : "configuration");
		help_print_keys(readers[i].rows, 2);
	}
}

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
