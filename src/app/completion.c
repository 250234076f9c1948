#include "app/completion.h"

#include <ctype.h>
#include <string.h>

/* Before the rows: the words as heng will get them. */
static const char completion_head[] =
	"# Completion of heng " HENG_VERSION " for bash; made by: heng help --completion\n"
	"_heng()\n"
	"{\n"
	"\tlocal IFS=$' \\t\\n'\n"
	"\tlocal -a words=() operands=()\n"
	"\tlocal -A takes=()\n"
	"\tlocal command word kind='' raw='' cut='' before='' choice i count=0 is_over=''\n"
	"\t# Readline cuts words at = and : as well; here the pieces are one word again.\n"
	"\tfor ((i = 1; i <= COMP_CWORD; i++)); do\n"
	"\t\tif ((${#words[@]})) && [[ ${COMP_WORDS[i]} =~ ^[=:]+$ || ${COMP_WORDS[i - 1]} =~ ^[=:]+$ ]]; then\n"
	"\t\t\twords[-1]+=${COMP_WORDS[i]}\n"
	"\t\telse\n"
	"\t\t\twords+=(\"${COMP_WORDS[i]}\")\n"
	"\t\tfi\n"
	"\tdone\n"
	"\tCOMPREPLY=()\n"
	"\tcommand=${words[0]}\n"
	"\tword=${words[-1]}\n"
	"\t# Only the last piece is what readline will replace.\n"
	"\traw=${COMP_WORDS[COMP_CWORD]}\n"
	"\t[[ $raw =~ ^[=:]+$ ]] && raw=''\n"
	"\tcut=${word%\"$raw\"}\n";

/* After them: what may stand where the cursor is. */
static const char completion_tail[] =
	"\tfor ((i = 1; i < ${#words[@]} - 1; i++)); do\n"
	"\t\tif [[ -n $is_over || ${words[i]} != -?* ]]; then\n"
	"\t\t\tcount=$((count + 1))\n"
	"\t\telif [[ ${words[i]} == -- ]]; then\n"
	"\t\t\tis_over=yes\n"
	"\t\telif [[ ${takes[${words[i]}]:-flag} != flag ]]; then\n"
	"\t\t\ti=$((i + 1))\n"
	"\t\t\t((i == ${#words[@]} - 1)) && kind=${takes[${words[i - 1]}]}\n"
	"\t\tfi\n"
	"\tdone\n"
	"\tif [[ -n $kind ]]; then\n"
	"\t\t:\n"
	"\telif [[ -z $is_over && $word == --*=* ]]; then\n"
	"\t\tbefore=${word%%=*}=\n"
	"\t\tkind=${takes[${word%%=*}]:-any}\n"
	"\telif [[ -z $is_over && $word == -* ]] || ((count >= ${#operands[@]} && ${#words[@]} > 1)); then\n"
	"\t\tkind=\"=${!takes[*]}\"\n"
	"\telse\n"
	"\t\tkind=${operands[count]}\n"
	"\tfi\n"
	"\tcase $kind in\n"
	"\t=*)\n"
	"\t\tfor choice in ${kind#=}; do\n"
	"\t\t\t[[ $before$choice == \"$word\"* ]] || continue\n"
	"\t\t\tchoice=$before$choice\n"
	"\t\t\tCOMPREPLY+=(\"${choice#\"$cut\"}\")\n"
	"\t\tdone\n"
	"\t\t;;\n"
	"\tfile) compopt -o default ;;\n"
	"\tfolder) compopt -o dirnames ;;\n"
	"\tesac\n"
	"}\n"
	"complete -F _heng heng\n";

static void completion_commands(struct buf *buf)
{
	for (const struct cmd *cmd = cmd_table; cmd->name != NULL; cmd++)
		(void)buf_printf(buf, "%s%s", cmd == cmd_table ? "" : " ", cmd->name);
}

static bool completion_is_word(struct str s)
{
	for (size_t i = 0; i < s.size; i++) {
		unsigned char byte = (unsigned char)s.data[i];
		if (!islower(byte) && !isdigit(byte) && !(i > 0 && (byte == '-' || byte == '_')))
			return false;
	}
	return s.size > 0;
}

void completion_kind(struct str written, struct buf *buf)
{
	static const struct str yaml = { ".yaml", 5 };
	bool has_word = false;
	while (written.size > 0 && written.data[0] == '[')
		written.data++, written.size--;
	while (written.size > 0 && strchr("].", written.data[written.size - 1]) != NULL)
		written.size--;
	if (str_eq_c(written, "FILE") || str_eq_c(written, "LOG") ||
	    (written.size > yaml.size &&
	     str_eq((struct str){ written.data + written.size - yaml.size, yaml.size }, yaml))) {
		(void)buf_append_c(buf, "file");
		return;
	}
	if (str_eq_c(written, "DIR") || str_eq_c(written, "FOLDER")) {
		(void)buf_append_c(buf, "folder");
		return;
	}
	if (str_eq_c(written, "COMMAND")) {
		(void)buf_append_c(buf, "'=");
		completion_commands(buf);
		(void)buf_append_c(buf, "'");
		return;
	}
	for (struct str piece; str_cut(&written, '|', &piece);) {
		/* SECONDS in "SECONDS|never" is for the user to think of. */
		if (!completion_is_word(piece))
			continue;
		(void)buf_printf(buf, "%s%.*s", has_word ? " " : "'=", STR_ARG(piece));
		has_word = true;
	}
	(void)buf_append_c(buf, has_word ? "'" : "any");
}

static void completion_row(const struct cmd *cmd, struct buf *buf)
{
	(void)buf_printf(buf, "\t%s)\n\t\ttakes=([--help]=flag", cmd->name);
	for (const struct cmd_option *option = cmd->options; option->name != NULL; option++) {
		for (int is_short = 0; is_short < (option->letter != 0 ? 2 : 1); is_short++) {
			if (is_short)
				(void)buf_printf(buf, " [-%c]=", option->letter);
			else
				(void)buf_printf(buf, " [--%s]=", option->name);
			if (option->value != NULL)
				completion_kind(str_from(option->value), buf);
			else
				(void)buf_append_c(buf, "flag");
		}
	}
	(void)buf_append_c(buf, ")\n");
	bool has_operand = false;
	struct str rest = str_from(cmd->operands);
	for (struct str piece; str_cut(&rest, ' ', &piece);) {
		(void)buf_append_c(buf, has_operand ? " " : "\t\toperands=(");
		completion_kind(piece, buf);
		has_operand = true;
	}
	(void)buf_append_c(buf, has_operand ? ")\n\t\t;;\n" : "\t\t;;\n");
}

void completion_script(struct buf *buf)
{
	(void)buf_append_c(buf, completion_head);
	/* The command itself is no row of any command. */
	(void)buf_append_c(buf, "\tif ((${#words[@]} == 1)); then\n\t\tkind='=");
	completion_commands(buf);
	(void)buf_append_c(buf, " --help --version'\n\t\tcommand=''\n\tfi\n\tcase $command in\n");
	for (const struct cmd *cmd = cmd_table; cmd->name != NULL; cmd++)
		completion_row(cmd, buf);
	(void)buf_append_c(buf, "\tesac\n");
	(void)buf_append_c(buf, completion_tail);
}
