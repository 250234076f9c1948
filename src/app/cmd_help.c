#include <stdio.h>
#include <string.h>

#include "app/cmd.h"
#include "app/completion.h"
#include "app/help.h"
#include "app/man.h"
#include "base/buf.h"
#include "base/conf_value.h"
#include "folder/node.h"
#include "folder/sched.h"
#include "sim/policy.h"
#include "sim/scenario.h"

const struct cmd_option cmd_help_options[] = {
	{ "man", 0, NULL, "print the manual page instead, in roff; without a command that of heng" },
	{ "completion", 0, NULL, "print the completion script for bash" },
	{ .name = NULL },
};
const struct cmd_option cmd_version_options[] = { { .name = NULL } };

const char help_about[] =
	"heng moves folders to storage nodes in chunks, durably, and puts them together again: whole, or not at all.";

const struct help_exit help_exits[] = {
	{ CMD_DONE, "done" },
	{ CMD_FAULT, "a fault in heng" },
	{ CMD_USAGE, "usage" },
	{ CMD_REFUSED, "refused" },
	{ CMD_INCOMPLETE, "incomplete but resumable" },
	{ CMD_INTEGRITY, "integrity" },
	{ .meaning = NULL },
};

const struct conf_row *help_keys(const struct cmd *cmd, const char **ret_what)
{
	static const struct {
		const char *name, *what;
		const struct conf_row *rows;
	} readers[] = {
		{ "scheduler", "configuration", sched_conf_rows },
		{ "node", "configuration", node_conf_rows },
		{ "sim", "scenario", scenario_rows },
	};
	for (size_t i = 0; i < COUNT_OF(readers); i++) {
		if (strcmp(cmd->name, readers[i].name) == 0) {
			*ret_what = readers[i].what;
			return readers[i].rows;
		}
	}
	return NULL;
}

const char *help_key_takes(const struct conf_row *row, char text[HELP_KEY_SIZE])
{
	char allowed[CONF_WHY_SIZE];
	conf_value_allowed(row, allowed);
	if (row->type == CONF_LIST)
		snprintf(text, HELP_KEY_SIZE, "%s, each with:", allowed);
	else if (row->fallback == NULL)
		snprintf(text, HELP_KEY_SIZE, "%s; required", allowed);
	else if (row->fallback[0] == '\0')
		snprintf(text, HELP_KEY_SIZE, "%s; may be left out", allowed);
	else
		snprintf(text, HELP_KEY_SIZE, "%s; default: %s", allowed, row->fallback);
	return text;
}

bool help_has_policies(const struct cmd *cmd) { return strcmp(cmd->name, "sim") == 0; }

static void help_print_keys(const struct conf_row *rows, int indent)
{
	char takes[HELP_KEY_SIZE];
	for (const struct conf_row *row = rows; row->name != NULL; row++) {
		printf("%*s%-*s %s\n%27s%s\n", indent, "", 26 - indent, row->name, row->help, "",
		       help_key_takes(row, takes));
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
	if (help_has_policies(cmd))
		help_print_policies();
	const char *what;
	const struct conf_row *rows = help_keys(cmd, &what);
	if (rows != NULL) {
		printf("\nKeys of the %s:\n", what);
		help_print_keys(rows, 2);
	}
}

static void help_print_overview(void)
{
	printf("%s\n\n", help_about);
	for (const struct cmd *row = cmd_table; row->name != NULL; row++)
		printf("  heng %-10s %-11s %s\n", row->name, row->operands, row->help);
	printf("\nheng help COMMAND lists its options.\nExit codes: ");
	for (const struct help_exit *row = help_exits; row->meaning != NULL; row++)
		printf("%s%d %s", row > help_exits ? ", " : "", (int)row->code, row->meaning);
	printf(".\n");
}

/* Prints a page or a script whole, or says why there is none. */
static int help_print(const struct cmd *cmd, struct buf *text)
{
	if (text->is_failed) {
		struct err err = ERR_INIT;
		err_set(&err, ERR_NO_MEMORY, "there is no memory for the text");
		return cmd_fail(&err, "%s", cmd->name);
	}
	(void)fwrite(text->data, 1, text->size, stdout);
	return CMD_DONE;
}

int cmd_help_run(const struct cmd *cmd, int operand_count, char **operands, const char *const *values)
{
	struct err err = ERR_INIT;
	bool is_man = cmd_value(cmd, values, "man") != NULL;
	const struct cmd *other = operand_count > 0 ? cmd_find(operands[0]) : NULL;
	if (operand_count > 0 && other == NULL) {
		err_set(&err, ERR_USAGE, "there is no command '%s'", operands[0]);
		err_hint(&err, "heng help lists them");
		return cmd_fail(&err, "%s", cmd->name);
	}
	if (cmd_value(cmd, values, "completion") != NULL) {
		if (is_man || other != NULL) {
			err_set(&err, ERR_USAGE, "--completion stands alone: one script serves all commands");
			err_hint(&err, "heng help --completion");
			return cmd_fail(&err, "%s", cmd->name);
		}
		AUTO(buf_fini) struct buf script = BUF_INIT(COMPLETION_BYTES_MAX);
		completion_script(&script);
		return help_print(cmd, &script);
	}
	if (is_man) {
		AUTO(buf_fini) struct buf page = BUF_INIT(MAN_PAGE_BYTES_MAX);
		man_page(other, &page);
		return help_print(cmd, &page);
	}
	if (other != NULL)
		cmd_print_help(other);
	else
		help_print_overview();
	return CMD_DONE;
}

int cmd_version_run(const struct cmd *cmd, int operand_count, char **operands, const char *const *values)
{
	(void)cmd, (void)operand_count, (void)operands, (void)values;
	printf("heng %s\n", HENG_VERSION);
	return CMD_DONE;
}
