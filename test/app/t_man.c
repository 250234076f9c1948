/* The manual pages and the completion against the tables that they are made from. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "app/completion.h"
#include "app/help.h"
#include "app/man.h"

static void append_utf8(unsigned code, struct buf *buf)
{
	char bytes[4];
	size_t size = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
	for (size_t i = size; i-- > 1; code >>= 6)
		bytes[i] = (char)(0x80 | (code & 0x3f));
	bytes[0] = (char)((0xf00 >> size & 0xff) | code);
	assert_true(buf_append(buf, (struct str){ bytes, size }));
}

/* Appends what a reader of the roff would see, each run of blanks and line ends as one blank. Fails on an escape that is none of ours. */
static void render(const char *roff, struct buf *shown)
{
	static const struct {
		const char *roff, *shown;
	} escapes[] = {
		{ "\\e", "\\" },  { "\\-", "-" },   { "\\(aq", "'" },  { "\\(ga", "`" },
		{ "\\(ha", "^" }, { "\\(ti", "~" }, { "\\(dq", "\"" }, { "\\&", "" },
		{ "\\fB", "" },   { "\\fI", "" },   { "\\fR", "" },
	};
	while (*roff != '\0') {
		size_t i = 0;
		while (i < COUNT_OF(escapes) && strncmp(roff, escapes[i].roff, strlen(escapes[i].roff)) != 0)
			i++;
		if (i < COUNT_OF(escapes)) {
			assert_true(buf_append_c(shown, escapes[i].shown));
			roff += strlen(escapes[i].roff);
			continue;
		}
		unsigned code;
		int size = 0;
		if (sscanf(roff, "\\[u%X]%n", &code, &size) == 1 && size > 0) {
			append_utf8(code, shown);
			roff += size;
			continue;
		}
		if (*roff == '\\')
			fail_msg("an escape that is none of ours: %.20s", roff);
		bool is_blank = *roff == ' ' || *roff == '\n';
		if (!is_blank || shown->size == 0 || shown->data[shown->size - 1] != ' ')
			assert_true(buf_append(shown, (struct str){ is_blank ? " " : roff, 1 }));
		roff++;
	}
}

/* Requests of ours alone, RS and RE in pairs, no bare minus sign or quote in text, lines that fit. */
static void check_lines(const char *page)
{
	static const char *const requests[] = { ".\\\" ", ".TH ", ".SH ", ".TP\n", ".br\n", ".RS\n", ".RE\n", ".BR " };
	int depth = 0;
	for (const char *line = page, *end; *line != '\0'; line = end + 1) {
		end = strchr(line, '\n');
		assert_non_null(end);
		size_t size = (size_t)(end - line), i = 0;
		assert_true(size > 0 && line[size - 1] != ' ');
		assert_true(line[0] != '\'' && line[0] != ' ');
		if (line[0] == '.') {
			while (i < COUNT_OF(requests) && strncmp(line, requests[i], strlen(requests[i])) != 0)
				i++;
			if (i == COUNT_OF(requests))
				fail_msg("a request that is none of ours: %.*s", (int)size, line);
			depth += strncmp(line, ".RS", 3) == 0;
			depth -= strncmp(line, ".RE", 3) == 0;
			assert_true(depth >= 0);
			continue;
		}
		for (i = 0; i < size; i++) {
			assert_true((unsigned char)line[i] >= 0x20 && (unsigned char)line[i] < 0x7f);
			if (line[i] == '-' && (i == 0 || line[i - 1] != '\\'))
				fail_msg("a bare minus sign: %.*s", (int)size, line);
			if (strchr("'`\"^~", line[i]) != NULL)
				fail_msg("a bare quote: %.*s", (int)size, line);
		}
	}
	assert_int_equal(depth, 0);
}

static void assert_shows(struct buf *shown, const char *text)
{
	AUTO(buf_fini) struct buf want = BUF_INIT(4 * KIB);
	for (const char *at = text; *at != '\0'; at++) {
		if (*at != ' ' || (at > text && at[-1] != ' '))
			assert_true(buf_append(&want, (struct str){ at, 1 }));
	}
	if (strstr(buf_cstr(shown), buf_cstr(&want)) == NULL)
		fail_msg("the page does not show: %s", text);
}

static size_t check_keys(struct buf *page, struct buf *shown, const struct conf_row *rows)
{
	size_t count = 0;
	for (const struct conf_row *row = rows; row->name != NULL; row++, count++) {
		char text[1200], takes[HELP_KEY_SIZE];
		snprintf(text, sizeof(text), "\n.TP\n\\fB%s\\fR\n", row->name);
		if (strstr(buf_cstr(page), text) == NULL)
			fail_msg("the page has no entry for the key %s", row->name);
		snprintf(text, sizeof(text), ".TP %s %s .br %s", row->name, row->help, help_key_takes(row, takes));
		assert_shows(shown, text);
		if (row->type == CONF_LIST)
			count += check_keys(page, shown, row->item_rows);
	}
	return count;
}

static void check_page(const struct cmd *cmd)
{
	AUTO(buf_fini) struct buf page = BUF_INIT(MAN_PAGE_BYTES_MAX), shown = BUF_INIT(MAN_PAGE_BYTES_MAX);
	static const char *const headings[] = { "NAME",  "SYNOPSIS",    "DESCRIPTION", "OPTIONS",
						"FILES", "EXIT STATUS", "SEE ALSO" };
	char text[1200];
	man_page(cmd, &page);
	assert_false(page.is_failed);
	const char *roff = buf_cstr(&page);
	check_lines(roff);
	render(strchr(roff, '\n') + 1, &shown);
	for (size_t i = 0; i < COUNT_OF(headings); i++) {
		snprintf(text, sizeof(text), "\n.SH %s\n", headings[i]);
		/* A command that keeps nothing has no files. */
		if (strcmp(headings[i], "FILES") != 0 || cmd == NULL || strcmp(cmd->name, "up") == 0)
			assert_non_null(strstr(roff, text));
	}
	for (const struct help_exit *row = help_exits; row->meaning != NULL; row++) {
		snprintf(text, sizeof(text), "\n.TP\n\\fB%d\\fR\n%s\n", (int)row->code, row->meaning);
		assert_non_null(strstr(roff, text));
	}
	for (const struct cmd *other = cmd_table; other->name != NULL; other++) {
		snprintf(text, sizeof(text), "\n.BR heng\\-%s (1)", other->name);
		assert_true((strstr(roff, text) != NULL) == (other != cmd));
		snprintf(text, sizeof(text), ".TP heng %s%s%s %s", other->name, other->operands[0] ? " " : "",
			 other->operands, other->help);
		if (cmd == NULL)
			assert_shows(&shown, text);
	}
	assert_string_equal(roff + page.size - 5, " (1)\n");
	for (const struct cmd_option *option = cmd != NULL ? cmd->options : NULL; option && option->name; option++) {
		char letter[8] = "";
		if (option->letter != 0)
			snprintf(letter, sizeof(letter), "-%c, ", option->letter);
		snprintf(text, sizeof(text), ".TP %s--%s%s%s %s", letter, option->name, option->value ? " " : "",
			 option->value ? option->value : "", option->help);
		assert_shows(&shown, text);
	}
	const char *what;
	const struct conf_row *rows = cmd != NULL ? help_keys(cmd, &what) : NULL;
	if (rows != NULL)
		assert_true(check_keys(&page, &shown, rows) > 5);
	if (cmd != NULL) {
		snprintf(text, sizeof(text), "heng-%s - %s .SH", cmd->name, cmd->help);
		assert_shows(&shown, text);
	}
}

static void test_every_page(void **state)
{
	(void)state;
	check_page(NULL);
	for (const struct cmd *cmd = cmd_table; cmd->name != NULL; cmd++)
		check_page(cmd);
}

static void test_text_is_shown_exactly(void **state)
{
	(void)state;
	static const struct {
		const char *text, *roff;
	} rows[] = {
		{ "", "" },
		{ "   ", "" },
		{ ".TH evil", "\\&.TH evil" },
		{ "  .so /etc/passwd", "\\&.so /etc/passwd" },
		{ "'br", "\\(aqbr" },
		{ "\n.br\n'x", "\\&.br \\(aqx" },
		{ "a\\b\\", "a\\eb\\e" },
		{ "\\fBbold", "\\efBbold" },
		{ "-n --x a-b", "\\-n \\-\\-x a\\-b" },
		{ "\"q\" `c` ~ ^", "\\(dqq\\(dq \\(gac\\(ga \\(ti \\(ha" },
		{ "é 中 😀", "\\[u00E9] \\[u4E2D] \\[u1F600]" },
		{ "\x01\xff\x7f", "???" },
		{ "12345678901234567890123456789012345678901234567890123456789012345678901 .x",
		  "12345678901234567890123456789012345678901234567890123456789012345678901\n\\&.x" },
		{ "12345678901234567890123456789012345678901234567890123456789012345678901 'x -",
		  "12345678901234567890123456789012345678901234567890123456789012345678901\n\\(aqx \\-" },
	};
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		AUTO(buf_fini) struct buf buf = BUF_INIT(4 * KIB);
		man_text(str_from(rows[i].text), &buf);
		assert_string_equal(buf_cstr(&buf), rows[i].roff);
	}
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		AUTO(buf_fini) struct buf buf = BUF_INIT(4 * KIB), shown = BUF_INIT(4 * KIB);
		man_text(str_from(rows[i].text), &buf);
		render(buf_cstr(&buf), &shown);
		if (rows[i].roff[0] != '?' && strpbrk(rows[i].text, "\n") == NULL && rows[i].text[0] != ' ')
			assert_string_equal(buf_cstr(&shown), rows[i].text);
	}
	/* In a line that has begun a dot is a dot. */
	AUTO(buf_fini) struct buf buf = BUF_INIT(4 * KIB);
	assert_true(buf_append_c(&buf, ".TP\n("));
	man_text(str_from(".x"), &buf);
	assert_string_equal(buf_cstr(&buf), ".TP\n(.x");
}

static void test_what_does_not_fit_is_told(void **state)
{
	(void)state;
	AUTO(buf_fini) struct buf page = BUF_INIT(200), script = BUF_INIT(200);
	man_page(&cmd_table[0], &page);
	completion_script(&script);
	assert_true(page.is_failed && script.is_failed);
}

static void test_kinds(void **state)
{
	(void)state;
	static const struct {
		const char *written, *kind;
	} rows[] = {
		{ "", "any" },
		{ "N", "any" },
		{ "BATCH", "any" },
		{ "[TRANSFER]", "any" },
		{ "FILE", "file" },
		{ "[FILE]", "file" },
		{ "FILE...", "file" },
		{ "FILES", "any" },
		{ "LOG", "file" },
		{ "SCENARIO.yaml", "file" },
		{ ".yaml", "any" },
		{ "DIR", "folder" },
		{ "[FOLDER]", "folder" },
		{ "squeeze", "'=squeeze'" },
		{ "md5|sha256|sm3", "'=md5 sha256 sm3'" },
		{ "1|2", "'=1 2'" },
		{ "[a|b-c|d_e]", "'=a b-c d_e'" },
		{ "SECONDS|never", "'=never'" },
		{ "HOST:PORT", "any" },
		{ "$(id)|`id`|a b|'|;", "any" },
	};
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		AUTO(buf_fini) struct buf buf = BUF_INIT(4 * KIB);
		completion_kind(str_from(rows[i].written), &buf);
		assert_string_equal(buf_cstr(&buf), rows[i].kind);
	}
}

static void test_script_knows_every_command_and_option(void **state)
{
	(void)state;
	AUTO(buf_fini) struct buf script = BUF_INIT(COMPLETION_BYTES_MAX);
	completion_script(&script);
	assert_false(script.is_failed);
	for (const struct cmd *cmd = cmd_table; cmd->name != NULL; cmd++) {
		char text[200];
		snprintf(text, sizeof(text), "\n\t%s)\n\t\ttakes=(", cmd->name);
		const char *row = strstr(buf_cstr(&script), text);
		assert_non_null(row);
		row += strlen(text);
		size_t size = strcspn(row, "\n");
		for (const struct cmd_option *option = cmd->options; option->name != NULL; option++) {
			char line[8192];
			assert_true(str_copy((struct str){ row, size }, line, sizeof(line)));
			snprintf(text, sizeof(text), " [--%s]=%s", option->name, option->value ? "" : "flag");
			assert_non_null(strstr(line, text));
			snprintf(text, sizeof(text), " [-%c]=%s", option->letter, option->value ? "" : "flag");
			assert_true(option->letter == 0 || strstr(line, text) != NULL);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_page),
		cmocka_unit_test(test_text_is_shown_exactly),
		cmocka_unit_test(test_what_does_not_fit_is_told),
		cmocka_unit_test(test_kinds),
		cmocka_unit_test(test_script_knows_every_command_and_option),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
