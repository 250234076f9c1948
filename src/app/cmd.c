#include "app/cmd.h"

#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const struct cmd cmd_table[] = {
#define CMD(name, words, least, most, line) { #name, words, least, most, line, cmd_##name##_options, cmd_##name##_run },
#include "app/cmd_list.h"
#undef CMD
	{ .name = NULL },
};

const struct cmd *cmd_find(const char *name)
{
	for (const struct cmd *cmd = cmd_table; cmd->name != NULL; cmd++) {
		if (strcmp(cmd->name, name) == 0)
			return cmd;
	}
	return NULL;
}

int cmd_fail(const struct err *err, const char *fmt, ...)
{
	char what[512], line[2048], hint[1024];
	va_list args;
	va_start(args, fmt);
	vsnprintf(what, sizeof(what), fmt, args);
	va_end(args);
	/* Names of files and words of servers are in it: neither may move the terminal's cursor. */
	str_display(str_from(what), line, sizeof(line));
	fprintf(stderr, "heng: %s: ", line);
	str_display(str_from(err->text), line, sizeof(line));
	fprintf(stderr, "%s\n", line);
	if (err->hint[0] != '\0')
		fprintf(stderr, "hint: %s\n", str_display(str_from(err->hint), hint, sizeof(hint)));
	fprintf(stderr, "code: HENG-%d\n", (int)err->code);
	return (int)err_exit(err->code);
}

static size_t cmd_option_count(const struct cmd *cmd)
{
	size_t count = 0;
	while (cmd->options[count].name != NULL)
		count++;
	MUST(count <= CMD_OPTIONS_MAX);
	return count;
}

const char *cmd_value(const struct cmd *cmd, const char *const *values, const char *name)
{
	for (size_t i = 0; cmd->options[i].name != NULL; i++) {
		if (strcmp(cmd->options[i].name, name) == 0)
			return values[i];
	}
	MUST(false && "an option that is in no table");
	return NULL;
}

static int cmd_usage(const struct cmd *cmd, const char *fmt, const char *detail)
{
	struct err err = ERR_INIT;
	char text[600];
	snprintf(text, sizeof(text), "%s%s", fmt, detail);
	err_set(&err, ERR_USAGE, "%s", text);
	err_hint(&err, "heng help %s", cmd->name);
	return cmd_fail(&err, "%s", cmd->name);
}

int cmd_run(const struct cmd *cmd, int argc, char **argv)
{
	size_t count = cmd_option_count(cmd);
	struct option rows[CMD_OPTIONS_MAX + 2] = { { 0 } };
	char letters[2 * CMD_OPTIONS_MAX + 2] = ":";
	const char *values[CMD_OPTIONS_MAX] = { NULL };
	size_t letters_size = 1;
	/* Long options come back as 256 and their row; short ones as their letter. */
	for (size_t i = 0; i < count; i++) {
		const struct cmd_option *option = &cmd->options[i];
		rows[i] = (struct option){ .name = option->name,
					   .has_arg = option->value != NULL,
					   .val = 256 + (int)i };
		if (option->letter == 0)
			continue;
		letters[letters_size++] = option->letter;
		if (option->value != NULL)
			letters[letters_size++] = ':';
	}
	rows[count] = (struct option){ .name = "help", .val = 255 };
	optind = 0;
	opterr = 0;
	int found;
	while ((found = getopt_long(argc, argv, letters, rows, NULL)) != -1) {
		if (found == 255) {
			cmd_print_help(cmd);
			return CMD_DONE;
		}
		if (found == '?')
			return cmd_usage(cmd,
					 "unknown option, or one given a value that takes none: ", argv[optind - 1]);
		if (found == ':')
			return cmd_usage(cmd, "this option needs a value: ", argv[optind - 1]);
		size_t row = found >= 256 ? (size_t)(found - 256) : 0;
		while (found < 256 && cmd->options[row].letter != (char)found)
			row++;
		values[row] = optarg != NULL ? optarg : "";
	}
	int operand_count = argc - optind;
	if (operand_count < cmd->operands_min)
		return cmd_usage(cmd, "missing: ", cmd->operands);
	if (operand_count > cmd->operands_max)
		return cmd_usage(cmd, "one word too many: ", argv[optind + cmd->operands_max]);
	return cmd->run(cmd, operand_count, argv + optind, values);
}

int cmd_number(const struct cmd *cmd, const char *const *values, const char *name, uint64_t min, uint64_t max,
	       uint64_t *ret, struct err *err)
{
	const char *text = cmd_value(cmd, values, name);
	uint64_t number;
	if (text == NULL)
		return 0;
	if (!str_to_u64(str_from(text), &number) || number < min || number > max) {
		err_set(err, ERR_USAGE, "--%s '%s' is not a number from %llu to %llu", name, text,
			(unsigned long long)min, (unsigned long long)max);
		err_hint(err, "heng help %s", cmd->name);
		return -(int)ERR_USAGE;
	}
	*ret = number;
	return 0;
}

int cmd_choice(const struct cmd *cmd, const char *const *values, const char *name, const char *const *choices, int *ret,
	       struct err *err)
{
	const char *text = cmd_value(cmd, values, name);
	char allowed[256] = "";
	size_t size = 0;
	if (text == NULL)
		return 0;
	for (int i = 0; choices[i] != NULL; i++) {
		if (strcmp(choices[i], text) == 0) {
			*ret = i;
			return 0;
		}
		int written = snprintf(allowed + size, sizeof(allowed) - size, "%s%s", i > 0 ? ", " : "", choices[i]);
		size = min_size(sizeof(allowed) - 1, size + (size_t)written);
	}
	err_set(err, ERR_USAGE, "--%s '%s' is none of: %s", name, text, allowed);
	err_hint(err, "heng help %s", cmd->name);
	return -(int)ERR_USAGE;
}
