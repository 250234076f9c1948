/* What hooks owe, on disk: whatever lies there, nothing is lost and nothing is taken for more than it is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/mem.h"
#include "folder/hook_impl.h"
#include "sys/fs.h"

#define ONE "01ARZ3NDEKTSV4RRFFQ69G5FAV"
#define TWO "01ARZ3NDEKTSV4RRFFQ69G5FAW"

static char dir[64];

static int setup(void **state UNUSED)
{
	snprintf(dir, sizeof(dir), "/tmp/heng-hook-XXXXXX");
	return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state UNUSED)
{
	AUTO(fs_close) int fd = fs_open_dir("/tmp", NULL);
	return fs_remove_tree(fd, dir + strlen("/tmp/"), NULL);
}

static void open_outbox(struct hook *hook)
{
	struct err err = ERR_INIT;

	*hook = (struct hook){ .name = "one", .dir_fd = -1, .failed_fd = -1 };
	if (hook_outbox_open(hook, dir, &err) < 0)
		fail_msg("%s", err.text);
}

static void close_outbox(struct hook *hook)
{
	fs_close(&hook->dir_fd);
	fs_close(&hook->failed_fd);
}

static size_t seen;
static int count(struct hook *hook UNUSED, const char *transfer_id, struct err *err UNUSED)
{
	seen++;
	assert_true(strcmp(transfer_id, ONE) == 0 || strcmp(transfer_id, TWO) == 0);
	return 0;
}

static size_t listed(struct hook *hook)
{
	seen = 0;
	assert_int_equal(hook_outbox_list(hook, count, NULL), 0);
	return seen;
}

static void a_debt_and_its_end(void **state UNUSED)
{
	struct hook_debt debt = { .transfer_id = ONE, .next_seq = 7, .tries = 2, .error = "it said no" }, back;
	struct err err = ERR_INIT;
	struct hook hook;
	char error[HOOK_ERROR_SIZE];

	open_outbox(&hook);
	assert_int_equal(hook_outbox_add(&hook, ONE, &err), 0);
	assert_int_equal(hook_outbox_save(&hook, &debt, &err), 0);
	/* Promised once more, after a merge that was repeated: how far it has come stays. */
	assert_int_equal(hook_outbox_add(&hook, ONE, &err), 0);
	close_outbox(&hook);
	open_outbox(&hook);
	assert_int_equal(hook_outbox_read(&hook, ONE, &back, &err), 0);
	assert_int_equal(back.next_seq, 7);
	assert_int_equal(back.tries, 2);
	assert_false(hook_outbox_failed(&hook, ONE, error));
	assert_int_equal(hook_outbox_fail(&hook, &debt, &err), 0);
	assert_true(hook_outbox_failed(&hook, ONE, error));
	assert_string_equal(error, "it said no");
	assert_int_equal(listed(&hook), 0);
	assert_int_equal(hook_outbox_remove(&hook, ONE, &err), 0);
	close_outbox(&hook);
}

static void what_a_crash_leaves(void **state UNUSED)
{
	static const char *const texts[] = { "", "\n", "7\n", "seven 2\n", "7 2", "7 2 3\n", "-1 0\n" };
	struct hook_debt back;
	struct err err = ERR_INIT;
	struct hook hook;
	char path[128];

	open_outbox(&hook);
	for (size_t i = 0; i < COUNT_OF(texts); i++) {
		snprintf(path, sizeof(path), "%s/outbox/one/%s", dir, TWO);
		assert_int_equal(fs_replace_file(path, str_from(texts[i]), 0600, &err), 0);
		assert_int_equal(hook_outbox_read(&hook, TWO, &back, &err), 0);
		bool is_good = strcmp(texts[i], "7 2") == 0;
		assert_int_equal(back.next_seq, is_good ? 7 : 0);
	}
	/* Half-written ones go, and what is none of ours is left alone. */
	snprintf(path, sizeof(path), "%s/outbox/one/%s.part", dir, ONE);
	assert_int_equal(fs_replace_file(path, STR("1"), 0600, &err), 0);
	assert_int_equal(listed(&hook), 1);
	assert_int_not_equal(access(path, F_OK), 0);
	close_outbox(&hook);
}

static void configurations(void **state UNUSED)
{
	static const char *program[] = { "/bin/true" }, *relative[] = { "true" };
	static const struct {
		struct hook_conf conf;
		const char *says;
	} rows[] = {
		{ { .name = "", .command = { program, 1 } }, "name" },
		{ { .name = ".hidden", .command = { program, 1 } }, "name" },
		{ { .name = "a/b", .command = { program, 1 } }, "name" },
		{ { .name = "a" }, "a command or a webhook" },
		{ { .name = "a", .command = { program, 1 }, .webhook = "http://x/" }, "not both" },
		{ { .name = "a", .command = { relative, 1 } }, "absolute" },
		{ { .name = "a", .webhook = "ftp://x/" }, "http" },
		{ { .name = "a", .webhook = "http://x/", .secret_file = "/nowhere/secret" }, "/nowhere/secret" },
	};
	struct err err = ERR_INIT;
	struct hooks *hooks;

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct hook_conf conf = rows[i].conf;
		const struct hook_options options = {
			.list = &conf, .count = 1, .state_dir = dir, .final_place = "/final"
		};

		conf.webhook = conf.webhook ? conf.webhook : "";
		conf.secret_file = conf.secret_file ? conf.secret_file : "";
		assert_true(hooks_start(&options, &hooks, &err) < 0);
		assert_null(hooks);
		assert_non_null(strstr(err.text, rows[i].says));
	}
	struct hook_conf twice[] = { { .name = "a", .command = { program, 1 }, .webhook = "", .secret_file = "" },
				     { .name = "a", .command = { program, 1 }, .webhook = "", .secret_file = "" } };
	const struct hook_options options = { .list = twice, .count = 2, .state_dir = dir, .final_place = "/final" };
	assert_true(hooks_start(&options, &hooks, &err) < 0);
	assert_non_null(strstr(err.text, "twice"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_debt_and_its_end),
		cmocka_unit_test(what_a_crash_leaves),
		cmocka_unit_test(configurations),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
