/* What the help, the manual pages (man.h) and the completion (completion.h) are all made from, besides the tables of commands and options. */
#ifndef HENG_APP_HELP_H
#define HENG_APP_HELP_H

#include "app/cmd.h"
#include "base/conf.h"

extern const char help_about[]; /* heng in one sentence */

struct help_exit {
	enum cmd_exit code;
	const char *meaning;
};
extern const struct help_exit help_exits[]; /* ends with a NULL meaning */

/* The keys of the file that a command reads, and what that file is ("configuration"); NULL for a command without one. */
const struct conf_row *help_keys(const struct cmd *cmd, const char **ret_what);
#define HELP_KEY_SIZE 512
/* What a key takes and what holds when it is left out: "a whole number, 1 to 64; default: 8". Returns text. */
const char *help_key_takes(const struct conf_row *row, char text[HELP_KEY_SIZE]);
/* Whether a command compares policies, so that its help lists them. */
bool help_has_policies(const struct cmd *cmd);

#endif
