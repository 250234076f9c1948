/* What hooks owe, on disk: whatever lies there, nothing is lost and nothing is taken for more than it is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <arpa/inet.h>
#include <pthread.h>
#include <sys/socket.h>
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
	/* Moved back by hand it goes on where it was, with as many tries as any other. */
	assert_int_equal(fs_rename(hook.failed_fd, ONE, hook.dir_fd, ONE, false, &err), 0);
	assert_int_equal(hook_outbox_read(&hook, ONE, &back, &err), 0);
	assert_int_equal(back.next_seq, 7);
	assert_int_equal(back.tries, 0);
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

/* --- webhooks --- */

/* Takes one connection and says this, and so many bytes more. */
struct answerer {
	int fd;
	const char *head;
	size_t more_bytes;
};

static void *answer(void *arg)
{
	struct answerer *answerer = arg;
	static char zeros[4096];
	char request[4096];
	AUTO(fs_close) int fd = accept(answerer->fd, NULL, NULL);

	if (fd < 0 || recv(fd, request, sizeof(request), 0) < 0 ||
	    send(fd, answerer->head, strlen(answerer->head), MSG_NOSIGNAL) < 0)
		return NULL;
	for (size_t sent = 0; sent < answerer->more_bytes; sent += sizeof(zeros))
		if (send(fd, zeros, sizeof(zeros), MSG_NOSIGNAL) < 0)
			return NULL;
	return NULL;
}

/* What %d is in the URL. */
PRINTF(1, 0)
static int call_url(const char *format, int port, struct err *err)
{
	struct hooks hooks = { .final_place = (char *)"/final" };
	struct store_transfer transfer = { .id = ONE, .batch = "batch", .user = "ann" };
	char url[256];

	snprintf(url, sizeof(url), format, port);
	struct hook hook = { .hooks = &hooks, .name = "one", .webhook = url, .timeout_us = 10 * SEC_US };
	assert_int_equal(fetch_new(&hook.fetch, err), 0);
	int result = hook_call(&hook, &transfer, NULL, 1, err);
	fetch_free(&hook.fetch);
	return result;
}

PRINTF(1, 0)
static int call_server(const char *format, const char *head, size_t more_bytes, struct err *err)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t size = sizeof(address);
	struct answerer answerer = { .fd = socket(AF_INET, SOCK_STREAM, 0), .head = head, .more_bytes = more_bytes };
	pthread_t thread;

	assert_int_equal(bind(answerer.fd, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(answerer.fd, 8), 0);
	assert_int_equal(getsockname(answerer.fd, (struct sockaddr *)&address, &size), 0);
	assert_int_equal(pthread_create(&thread, NULL, answer, &answerer), 0);
	int result = call_url(format, ntohs(address.sin_port), err);
	assert_int_equal(pthread_join(thread, NULL), 0);
	fs_close(&answerer.fd);
	return result;
}

/* A webhook's path is often all its secret, and what failed is shown to users. */
static void no_secret_of_a_url_is_told(void **state UNUSED)
{
	struct err err = ERR_INIT;

	assert_int_equal(call_url("http://ann:SECRET@127.0.0.1:%d/T0/SECRET?key=SECRET", 1, &err), -(int)ERR_CONNECT);
	assert_null(strstr(err.text, "SECRET"));
	assert_null(strstr(err.text, "ann"));
	assert_non_null(strstr(err.text, "http://127.0.0.1:1:"));
	assert_int_equal(call_server("http://127.0.0.1:%d/T0/SECRET?key=SECRET",
				     "HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n", 0, &err),
			 -(int)ERR_REFUSED);
	assert_null(strstr(err.text, "SECRET"));
	assert_non_null(strstr(err.text, "500"));
	assert_true(call_server("http://127.0.0.1:%d/SECRET", "no HTTP at all\r\n\r\n", 0, &err) < 0);
	assert_null(strstr(err.text, "SECRET"));
}

/* A yes is a yes, however much is said with it, and if it breaks off. */
static void the_status_is_the_answer(void **state UNUSED)
{
	struct err err = ERR_INIT;

	assert_int_equal(call_server("http://127.0.0.1:%d/", "HTTP/1.1 200 OK\r\nContent-Length: 3145728\r\n\r\n",
				     3 * MIB, &err),
			 0);
	assert_int_equal(call_server("http://127.0.0.1:%d/", "HTTP/1.1 204 OK\r\n\r\n", 0, &err), 0);
	assert_int_equal(
		call_server("http://127.0.0.1:%d/", "HTTP/1.1 200 OK\r\nContent-Length: 4096000\r\n\r\n", 4096, &err),
		0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_debt_and_its_end),       cmocka_unit_test(what_a_crash_leaves),
		cmocka_unit_test(configurations),           cmocka_unit_test(no_secret_of_a_url_is_told),
		cmocka_unit_test(the_status_is_the_answer),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
