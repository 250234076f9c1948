#include "app/man.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "app/help.h"
#include "sim/policy.h"

/* The day of HENG_VERSION. It is no clock's: the same source makes the same page. */
#define MAN_DATE "2026-11-30"
/* Where lines of the source are broken, as man pages' readers and checkers expect. */
#define MAN_LINE_BYTES 72

/* What heng keeps where; the one thing in a page that no other table knows. */
static const struct {
	const char *command, *path, *help;
} man_files[] = {
	{ "up", "DIR/uploader.key", "the API key for heng push; made once, kept when it exists" },
	{ "up", "DIR/operator.key", "the API key for heng ctl; made once, kept when it exists" },
	{ "up", "DIR/cluster.key", "the key that scheduler and nodes share; made once, kept when it exists" },
	{ "up", "DIR/final/", "batches that have arrived" },
	{ "up", "DIR/staging/", "batches being put together" },
	{ "up", "DIR/scheduler/", "the scheduler's tables (heng.db) and decision log (decisions.jsonl)" },
	{ "up", "DIR/n1/, DIR/n2/, ...", "the nodes' folders; chunks lie in tmp/ until they are merged" },
	{ "up", "DIR/scheduler.log, DIR/n1.log, ...", "what they had to say" },
	{ "scheduler", "STATE_DIR/heng.db", "the tables: who sent what where and when" },
	{ "scheduler", "STATE_DIR/decisions.jsonl", "the decision log" },
	{ "scheduler", "STATE_DIR/audit/", "archived rows of the audit" },
	{ "scheduler", "STATE_DIR/spool/", "manifests on their way in" },
	{ "scheduler", "FINAL_DIR/BATCH/", "batches that have arrived; .heng/ beside them is heng's own" },
	{ "node", "STATE_DIR/node_id", "the node's name in the ring, when none is configured" },
	{ "node", "DATA_DIR/tmp/", "chunks until they are merged" },
	{ "push", "$XDG_STATE_HOME/heng/network-*",
	  "what earlier pushes found out about the network (~/.local/state/heng/ when that is not set); may be "
	  "removed" },
	{ "explain", "STATE_DIR/decisions.jsonl", "the scheduler's decision log" },
	{ "replay", "STATE_DIR/decisions.jsonl", "the scheduler's decision log" },
	{ "score", "STATE_DIR/decisions.jsonl", "the scheduler's decision log" },
};

/* One character, at the start of s, as roff that shows it and nothing else. Returns how many bytes it has. */
static size_t man_char(struct str s, char target[16])
{
	static const struct {
		char byte;
		const char *roff;
	} escapes[] = {
		{ '\\', "\\e" },  { '-', "\\-" },   { '\'', "\\(aq" }, { '`', "\\(ga" },
		{ '^', "\\(ha" }, { '~', "\\(ti" }, { '"', "\\(dq" },
	};
	unsigned char byte = (unsigned char)s.data[0];
	size_t size = utf8_char_size(s);
	for (size_t i = 0; i < COUNT_OF(escapes); i++) {
		if (s.data[0] == escapes[i].byte) {
			snprintf(target, 16, "%s", escapes[i].roff);
			return 1;
		}
	}
	if (size > 1) {
		uint32_t code = size == 2 ? byte & 0x1fu : size == 3 ? byte & 0x0fu : byte & 0x07u;
		for (size_t i = 1; i < size; i++)
			code = code << 6 | ((unsigned char)s.data[i] & 0x3fu);
		snprintf(target, 16, "\\[u%04X]", code);
		return size;
	}
	/* What is neither printable nor a character has no place in a manual: a question mark shows where it was. */
	snprintf(target, 16, "%c", isprint(byte) ? s.data[0] : '?');
	return 1;
}

/* A word's text, escaped, without looking at where in the line it stands. */
static void man_word(struct str word, struct buf *buf)
{
	char shown[16];
	while (word.size > 0) {
		size_t size = man_char(word, shown);
		(void)buf_append_c(buf, shown);
		word.data += size;
		word.size -= size;
	}
}

static bool man_is_blank(char byte) { return byte == ' ' || (byte >= '\t' && byte <= '\r'); }

void man_text(struct str text, struct buf *buf)
{
	size_t line_start = buf->size;
	while (line_start > 0 && buf->data[line_start - 1] != '\n')
		line_start--;
	for (bool is_first = true;; is_first = false) {
		while (text.size > 0 && man_is_blank(text.data[0]))
			text.data++, text.size--;
		if (text.size == 0)
			return;
		struct str word = { text.data, 0 };
		while (word.size < text.size && !man_is_blank(text.data[word.size]))
			word.size++;
		text.data += word.size;
		text.size -= word.size;
		if (!is_first) {
			bool is_full = buf->size - line_start + word.size + 1 > MAN_LINE_BYTES;
			(void)buf_append_c(buf, is_full ? "\n" : " ");
			line_start = is_full ? buf->size : line_start;
		}
		/* At a line's start a dot makes a request; quotes are escaped everywhere. */
		if (buf->size == line_start && word.data[0] == '.')
			(void)buf_append_c(buf, "\\&");
		man_word(word, buf);
	}
}

static void man_line(struct buf *buf, const char *text)
{
	man_text(str_from(text), buf);
	(void)buf_append_c(buf, "\n");
}

/* "keep|skip|N", "[TRANSFER]", "squeeze LOG": words in lower case are typed as they are, those in upper case stand for something. */
static void man_placeholder(const char *written, struct buf *buf)
{
	for (struct str rest = str_from(written); rest.size > 0;) {
		struct str piece = { rest.data, 0 };
		while (piece.size < rest.size && strchr("|[], ", rest.data[piece.size]) == NULL)
			piece.size++;
		bool is_literal = piece.size > 0 && islower((unsigned char)piece.data[0]);
		if (piece.size > 0)
			(void)buf_append_c(buf, is_literal ? "\\fB" : "\\fI");
		man_word(piece, buf);
		if (piece.size > 0)
			(void)buf_append_c(buf, "\\fR");
		if (piece.size < rest.size)
			man_word((struct str){ rest.data + piece.size++, 1 }, buf);
		rest.data += piece.size;
		rest.size -= piece.size;
	}
}

static void man_synopsis(const struct cmd *cmd, struct buf *buf)
{
	(void)buf_append_c(buf, ".SH SYNOPSIS\n\\fBheng\\fR ");
	if (cmd == NULL) {
		(void)buf_append_c(buf, "\\fICOMMAND\\fR [\\fIOPTION\\fR...] [\\fIOPERAND\\fR...]\n"
					".br\n\\fBheng help\\fR [\\fICOMMAND\\fR]\n");
		return;
	}
	(void)buf_append_c(buf, "\\fB");
	man_word(str_from(cmd->name), buf);
	(void)buf_append_c(buf, "\\fR [\\fIOPTION\\fR...] ");
	man_placeholder(cmd->operands, buf);
	/* Without operands a blank is left, which readers would show at the line's end. */
	while (buf->size > 0 && buf->data[buf->size - 1] == ' ')
		buf->size--;
	(void)buf_append_c(buf, "\n");
}

static void man_option(const struct cmd_option *option, struct buf *buf)
{
	(void)buf_append_c(buf, ".TP\n");
	if (option->letter != 0)
		(void)buf_printf(buf, "\\fB\\-%c\\fR, ", option->letter);
	(void)buf_append_c(buf, "\\fB\\-\\-");
	man_word(str_from(option->name), buf);
	(void)buf_append_c(buf, "\\fR");
	if (option->value != NULL) {
		(void)buf_append_c(buf, " ");
		man_placeholder(option->value, buf);
	}
	(void)buf_append_c(buf, "\n");
	man_line(buf, option->help);
}

static void man_term(const char *term, struct buf *buf)
{
	(void)buf_append_c(buf, ".TP\n\\fB");
	man_word(str_from(term), buf);
	(void)buf_append_c(buf, "\\fR\n");
}

static void man_keys(const struct conf_row *rows, struct buf *buf)
{
	char takes[HELP_KEY_SIZE];
	for (const struct conf_row *row = rows; row->name != NULL; row++) {
		man_term(row->name, buf);
		man_line(buf, row->help);
		(void)buf_append_c(buf, ".br\n");
		man_line(buf, help_key_takes(row, takes));
		if (row->type != CONF_LIST)
			continue;
		(void)buf_append_c(buf, ".RS\n");
		man_keys(row->item_rows, buf);
		(void)buf_append_c(buf, ".RE\n");
	}
}

static void man_policies(struct buf *buf)
{
	(void)buf_append_c(buf, ".SH POLICIES\n");
	for (size_t i = 0; sim_policies[i] != NULL; i++) {
		man_term(sim_policies[i]->name, buf);
		man_line(buf, sim_policies[i]->help);
		(void)buf_append_c(buf, ".br\n(");
		man_text(str_from(sim_policies[i]->source), buf);
		(void)buf_append_c(buf, ")\n");
	}
}

/* What a command does, knows and reads. */
static void man_command(const struct cmd *cmd, struct buf *buf)
{
	static const struct cmd_option help = { "help", 0, NULL, "list the options" };
	const char *what;
	const struct conf_row *rows = help_keys(cmd, &what);
	(void)buf_append_c(buf, ".SH DESCRIPTION\n");
	(void)buf_printf(buf, "\\fBheng %s\\fR:\n", cmd->name);
	man_text(str_from(cmd->help), buf);
	(void)buf_append_c(buf, ".\n");
	if (rows != NULL)
		(void)buf_printf(buf, "Its %s is a file in YAML, whose keys are listed below.\n", what);
	(void)buf_append_c(buf, ".SH OPTIONS\n");
	for (const struct cmd_option *option = cmd->options; option->name != NULL; option++)
		man_option(option, buf);
	man_option(&help, buf);
	if (rows != NULL) {
		(void)buf_append_c(buf, ".SH ");
		for (const char *at = what; *at != '\0'; at++)
			(void)buf_printf(buf, "%c", toupper((unsigned char)*at));
		(void)buf_append_c(buf, "\n");
		man_keys(rows, buf);
	}
	if (help_has_policies(cmd))
		man_policies(buf);
}

static void man_overview(struct buf *buf)
{
	(void)buf_append_c(buf, ".SH DESCRIPTION\n");
	man_line(buf, help_about);
	(void)buf_append_c(buf, ".SH COMMANDS\n");
	for (const struct cmd *row = cmd_table; row->name != NULL; row++) {
		(void)buf_printf(buf, ".TP\n\\fBheng %s\\fR ", row->name);
		man_placeholder(row->operands, buf);
		while (buf->size > 0 && buf->data[buf->size - 1] == ' ')
			buf->size--;
		(void)buf_append_c(buf, "\n");
		man_line(buf, row->help);
	}
	(void)buf_append_c(buf, ".SH OPTIONS\nEach command has its own, in its own page.\n"
				".TP\n\\fB\\-h\\fR, \\fB\\-\\-help\\fR\nlist the commands\n"
				".TP\n\\fB\\-\\-version\\fR\nprint the version\n");
}

static void man_ends(const struct cmd *cmd, struct buf *buf)
{
	(void)buf_append_c(buf, ".SH EXIT STATUS\n");
	for (const struct help_exit *row = help_exits; row->meaning != NULL; row++) {
		(void)buf_printf(buf, ".TP\n\\fB%d\\fR\n", (int)row->code);
		man_line(buf, row->meaning);
	}
	bool has_heading = false;
	for (size_t i = 0; i < COUNT_OF(man_files); i++) {
		if (cmd != NULL && strcmp(cmd->name, man_files[i].command) != 0)
			continue;
		if (cmd == NULL && strcmp(man_files[i].command, "up") != 0)
			continue;
		if (!has_heading)
			(void)buf_append_c(buf, ".SH FILES\n");
		if (!has_heading && cmd == NULL)
			(void)buf_append_c(buf, "Below the folder that \\fBheng up\\fR was given:\n");
		has_heading = true;
		man_term(man_files[i].path, buf);
		man_line(buf, man_files[i].help);
	}
	(void)buf_append_c(buf, ".SH SEE ALSO\n");
	if (cmd != NULL)
		(void)buf_append_c(buf, ".BR heng (1),\n");
	for (const struct cmd *row = cmd_table, *next; row->name != NULL; row = next) {
		next = row + 1;
		/* The page itself is left out of the list, and no comma follows the last one. */
		if (next->name != NULL && next == cmd)
			next++;
		if (row != cmd)
			(void)buf_printf(buf, ".BR heng\\-%s (1)%s\n", row->name, next->name != NULL ? "," : "");
	}
}

void man_page(const struct cmd *cmd, struct buf *buf)
{
	(void)buf_append_c(buf,
			   ".\\\" Made by heng help \\-\\-man: change the rows in the source, not this.\n.TH HENG");
	if (cmd != NULL)
		(void)buf_append_c(buf, "\\-");
	for (const char *at = cmd != NULL ? cmd->name : ""; *at != '\0'; at++)
		(void)buf_printf(buf, "%c", toupper((unsigned char)*at));
	(void)buf_printf(buf, " 1 %s \"heng %s\" \"heng manual\"\n.SH NAME\nheng", MAN_DATE, HENG_VERSION);
	if (cmd != NULL)
		(void)buf_printf(buf, "\\-%s", cmd->name);
	(void)buf_append_c(buf, " \\- ");
	man_line(buf, cmd != NULL ? cmd->help : "moves folders to storage nodes and keeps them whole");
	man_synopsis(cmd, buf);
	if (cmd != NULL)
		man_command(cmd, buf);
	else
		man_overview(buf);
	man_ends(cmd, buf);
}
