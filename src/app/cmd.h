/* Subcommands: a table of options each, from which parsing and help are made, and what all of them share: exit codes and how a failure is
 * told to the user. */
#ifndef HENG_APP_CMD_H
#define HENG_APP_CMD_H

#include "base/err.h"
#include "base/str.h"

enum cmd_exit {
	CMD_DONE = ERR_EXIT_DONE,
	CMD_FAULT = ERR_EXIT_FAULT,
	CMD_USAGE = ERR_EXIT_USAGE,
	CMD_REFUSED = ERR_EXIT_REFUSED,
	CMD_INCOMPLETE = ERR_EXIT_INCOMPLETE,
	CMD_INTEGRITY = ERR_EXIT_INTEGRITY,
};

struct cmd_option {
	const char *name;  /* long; NULL ends the table */
	char letter;       /* short, or 0 */
	const char *value; /* what stands for the value in the help; NULL: a flag */
	const char *help;
};
#define CMD_OPTIONS_MAX 24

struct cmd {
	const char *name, *operands;
	int operands_min, operands_max;
	const char *help;
	const struct cmd_option *options;
	int (*run)(const struct cmd *cmd, int operand_count, char **operands,
		   const char *const *values); /* exit code */
};
extern const struct cmd cmd_table[];          /* ends with a NULL name */
const struct cmd *cmd_find(const char *name); /* or NULL */

/* argv[0] is the command's name. Returns its exit code. */
int cmd_run(const struct cmd *cmd, int argc, char **argv);
/* Inside run: the value of an option, "" for a flag that was given, NULL when it was not. */
const char *cmd_value(const struct cmd *cmd, const char *const *values, const char *name);
/* Options; for a command that reads a configuration its keys too (cmd_help.c). */
void cmd_print_help(const struct cmd *cmd);

/* Tells the user on stderr: what stopped and why, what to do, the code. Returns the exit code. */
int cmd_fail(const struct err *err, const char *fmt, ...) PRINTF(2, 3);

/* Value readers: a wrong value is a usage error that names option, value and what is allowed. An absent value leaves *ret as it is. */
int cmd_number(const struct cmd *cmd, const char *const *values, const char *name, uint64_t min, uint64_t max,
	       uint64_t *ret, struct err *err);
int cmd_choice(const struct cmd *cmd, const char *const *values, const char *name, const char *const *choices, int *ret,
	       struct err *err);

#define CMD(name, words, least, most, line)                    \
	extern const struct cmd_option cmd_##name##_options[]; \
	int cmd_##name##_run(const struct cmd *cmd, int operand_count, char **operands, const char *const *values);
#include "app/cmd_list.h"
#undef CMD

#endif
