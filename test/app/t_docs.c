/* What is written for people against what the program reads: docs/configuration.md, docs/simulator.md and the examples in etc/. Run from the tree's top. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/conf_value.h"
#include "folder/node.h"
#include "folder/sched.h"
#include "sim/scenario.h"
#include "sys/fs.h"

#define FILE_MAX_BYTES (1 * MIB)

static void read_text(const char *path, struct buf *ret_text)
{
	struct err err = ERR_INIT;
	*ret_text = (struct buf)BUF_INIT(FILE_MAX_BYTES);
	if (fs_read_file(path, FILE_MAX_BYTES, ret_text, &err) < 0)
		fail_msg("%s: %s", path, err.text);
}

/* Every row has its line, with what is allowed and the default as the binary has them. Returns how many rows there are. */
static size_t check_rows(const char *path, const char *section, const struct conf_row *rows)
{
	size_t count = 0;
	for (const struct conf_row *row = rows; row->name != NULL; row++, count++) {
		char line[1024], allowed[CONF_WHY_SIZE];
		const char *fallback = row->fallback == NULL ? "required" : row->fallback;
		snprintf(line, sizeof(line), "\n| `%s` | %s | %s | ", row->name, conf_value_allowed(row, allowed),
			 fallback[0] != '\0' ? fallback : "may be left out");
		if (strstr(section, line) == NULL)
			fail_msg("%s has no line that begins:%s", path, line);
		assert_true(row->help != NULL && row->help[0] != '\0');
		if (row->type == CONF_LIST)
			count += check_rows(path, section, row->item_rows);
	}
	return count;
}

static void test_every_key_is_documented(void **state)
{
	(void)state;
	static const struct {
		const char *path, *heading;
		const struct conf_row *rows;
	} sections[] = {
		{ "docs/configuration.md", "\n## Keys of the scheduler\n", sched_conf_rows },
		{ "docs/configuration.md", "\n## Keys of a node\n", node_conf_rows },
		{ "docs/simulator.md", "\n## Keys of a scenario\n", scenario_rows },
	};
	for (size_t i = 0; i < COUNT_OF(sections); i++) {
		struct buf text;
		read_text(sections[i].path, &text);
		char *section = strstr(buf_cstr(&text), sections[i].heading);
		assert_non_null(section);
		char *end = strstr(section + strlen(sections[i].heading), "\n## ");
		assert_non_null(end);
		*end = '\0';
		size_t count = check_rows(sections[i].path, section, sections[i].rows), documented = 0;
		for (const char *line = section; (line = strstr(line, "\n| `")) != NULL; line++)
			documented++;
		/* Nor is there one that has gone. */
		assert_int_equal(documented, count);
		buf_fini(&text);
	}
}

/* Takes the # off the keys that stand with their default, so that the whole file is read. */
static void uncomment_keys(char *text)
{
	for (char *line = text; line != NULL; line = strchr(line, '\n')) {
		line += *line == '\n';
		size_t size = line[0] == '#' && line[1] == ' ' ? strspn(line + 2, "abcdefghijklmnopqrstuvwxyz_") : 0;
		if (size > 0 && line[2 + size] == ':')
			memmove(line, line + 2, strlen(line + 2) + 1);
	}
}

static void check_example(const char *path, const struct conf_row *rows, void *conf, size_t conf_size,
			  struct arena *arena)
{
	struct err err = ERR_INIT;
	struct buf text;
	if (conf_load(path, rows, conf, conf_size, arena, &err) < 0)
		fail_msg("%s", err.text);
	read_text(path, &text);
	char *all = must_strdup(buf_cstr(&text));
	uncomment_keys(all);
	if (conf_parse(path, str_from(all), rows, conf, conf_size, arena, &err) < 0)
		fail_msg("uncommented: %s", err.text);
	for (const struct conf_row *row = rows; row->name != NULL; row++) {
		char line[80];
		snprintf(line, sizeof(line), "\n%s:", row->name);
		if (strstr(all, line) == NULL)
			fail_msg("%s does not show %s", path, row->name);
	}
	free(all);
	buf_fini(&text);
}

static void test_examples_are_whole(void **state)
{
	(void)state;
	AUTO(arena_fini) struct arena arena = ARENA_INIT(MIB);
	struct sched_conf scheduler;
	struct node_conf node;
	check_example("etc/scheduler.yaml", sched_conf_rows, &scheduler, sizeof(scheduler), &arena);
	assert_int_equal(scheduler.users.count, 3);
	assert_false(scheduler.is_insecure);
	check_example("etc/node.yaml", node_conf_rows, &node, sizeof(node), &arena);
	assert_string_equal(node.node_id, "store-1");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_key_is_documented),
		cmocka_unit_test(test_examples_are_whole),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
