/* Nonces that outlive their process, and those of a Redis as far as none is needed for it: with one it is test/system/t_nonces. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "plug/nonce.h"
#include "sys/fs.h"
#include "sys/sock.h"

static char dir[64], path[80];

/* In the place of the C library's: what was synced last, and how much of it there was. */
static struct stat synced;
static int sync_count;
int fdatasync(int fd)
{
	assert_int_equal(fstat(fd, &synced), 0);
	sync_count++;
	return (int)syscall(SYS_fdatasync, fd);
}

static int set_up(void **state)
{
	(void)state;
	snprintf(dir, sizeof(dir), "/tmp/heng-t_nonce-XXXXXX");
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/nonces", dir);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	const int fd = fs_open_dir("/tmp", NULL);
	assert_int_equal(fs_remove_tree(fd, dir + 5, NULL), 0);
	close(fd);
	return 0;
}

static struct nonce_store *open_file(int64_t now_us)
{
	struct nonce_store *store;
	struct err err = ERR_INIT;

	if (nonce_file_open(path, 1000, now_us, &store, &err) < 0)
		fail_msg("%s", err.text);
	return store;
}

static int use(struct nonce_store *store, const char *nonce, int64_t expires_us, int64_t now_us)
{
	struct err err = ERR_INIT;
	const int result = store->ops->use(store, str_from(nonce), expires_us, now_us, &err);

	assert_int_equal(result, -(int)err.code);
	return result;
}

static void write_file(const char *text, const char *suffix)
{
	char name[96];

	snprintf(name, sizeof(name), "%s%s", path, suffix);
	assert_int_equal(fs_replace_file(name, str_from(text), 0600, NULL), 0);
}

static void append_file(const char *text)
{
	FILE *file = fopen(path, "ab");

	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

/* A process that was killed knows again what it had accepted, and no more than that. */
static void test_a_start_after_a_kill(void **state)
{
	struct nonce_store *store = open_file(10);

	(void)state;
	assert_int_equal(use(store, "a", 100, 10), 0);
	assert_int_equal(use(store, "b", 200, 10), 0);
	assert_int_equal(use(store, "b", 200, 10), -ERR_NONCE_REPLAYED);
	assert_int_equal(use(store, "a b", 200, 10), -ERR_BAD_REQUEST);
	assert_int_equal(use(store, "a\nb", 200, 10), -ERR_BAD_REQUEST);
	store->ops->free(store);
	append_file("300 tor");
	for (int i = 0; i < 3; i++) {
		store = open_file(50 + i);
		assert_int_equal(use(store, "a", 100, 50), -ERR_NONCE_REPLAYED);
		assert_int_equal(use(store, "b", 200, 50), -ERR_NONCE_REPLAYED);
		/* The line that was torn is nobody's; what comes after it is not lost by it. */
		assert_int_equal(use(store, i == 0 ? "tor" : "x", 300 + i, 50), i == 2 ? -ERR_NONCE_REPLAYED : 0);
		store->ops->free(store);
	}
	store = open_file(150);
	assert_int_equal(use(store, "a", 100, 150), -ERR_TICKET_EXPIRED);
	assert_int_equal(use(store, "tor", 300, 150), -ERR_NONCE_REPLAYED);
	store->ops->free(store);
}

/* The machine was started anew: the system may have lost the last lines, so that all that could have been in them is refused. */
static void test_a_start_of_the_machine(void **state)
{
	struct nonce_store *store;

	(void)state;
	write_file("boot 00000000-other 0\n1000000 a\n5000000 b\n", "");
	write_file("boot 00000000-other 0\n9000000 c\n", ".1");
	for (int i = 0; i < 2; i++) {
		store = open_file(6000000);
		assert_int_equal(use(store, "d", 9000000 + 35 * SEC_US, 6000000), -ERR_CLOCK_SKEW);
		assert_int_equal(use(store, "d", 9000001 + 35 * SEC_US, 6000000), i == 0 ? 0 : -ERR_NONCE_REPLAYED);
		store->ops->free(store);
	}
	/* What is no file of ours says nothing. */
	write_file("nonsense\n99 x\n", "");
	store = open_file(10);
	assert_int_equal(use(store, "x", 99 + 99 * SEC_US, 10), 0);
	store->ops->free(store);
}

/* A machine that stops takes what was not synced, however long nothing had come before: what was accepted is not accepted again. */
static void test_a_crash_of_the_machine(void **state)
{
	const int64_t ages_us[] = { 0, 10 * SEC_US, 3600 * SEC_US, 3601 * SEC_US, 3630 * SEC_US, 3650 * SEC_US };
	const int64_t begin_us = 1000 * SEC_US, life_us = 120 * SEC_US;
	struct nonce_store *store;
	char nonce[16];

	(void)state;
	for (size_t last = 0; last < COUNT_OF(ages_us); last++) {
		unlink(path);
		sync_count = 0;
		store = open_file(begin_us);
		for (size_t i = 0; i <= last; i++) {
			snprintf(nonce, sizeof(nonce), "n%zu", i);
			assert_int_equal(use(store, nonce, begin_us + ages_us[i] + life_us, begin_us + ages_us[i]), 0);
		}
		store->ops->free(store);
		/* With one for the file itself. */
		assert_int_equal(sync_count, last < 2 ? 2 : last < 5 ? 3 : 4);
		FILE *file = fopen(path, "r+b");
		struct stat now;

		assert_non_null(file);
		assert_int_equal(fstat(fileno(file), &now), 0);
		assert_int_equal(now.st_ino, synced.st_ino);
		assert_int_equal(ftruncate(fileno(file), synced.st_size), 0);
		fputs("boot x", file); /* another one */
		fclose(file);
		store = open_file(begin_us + ages_us[last] + SEC_US);
		for (size_t i = 0; i <= last; i++) {
			snprintf(nonce, sizeof(nonce), "n%zu", i);
			assert_true(use(store, nonce, begin_us + ages_us[i] + life_us,
					begin_us + ages_us[last] + SEC_US) < 0);
		}
		store->ops->free(store);
	}
}

/* Long files take turns, and neither grows for ever. */
static void test_files_take_turns(void **state)
{
	struct nonce_store *store;
	struct str header = STR("boot ");
	char name[96];
	int64_t now_us = 10;

	(void)state;
	assert_int_equal(nonce_file_open(path, 300000, now_us, &store, NULL), 0);
	snprintf(name, sizeof(name), "%s.1", path);
	for (int i = 0; i < 150000; i++) {
		char nonce[64];

		snprintf(nonce, sizeof(nonce), "%056d", i);
		now_us = 10 + i;
		assert_int_equal(use(store, nonce, now_us + 1000, now_us), 0);
	}
	store->ops->free(store);
	struct buf text = BUF_INIT(64 * MIB);
	assert_int_equal(fs_read_file(name, 64 * MIB, &text, NULL), 0);
	assert_true(text.size > 4 * MIB && text.size < 5 * MIB && str_starts(buf_str(&text), header));
	buf_fini(&text);
	assert_int_equal(fs_read_file(path, 64 * MIB, &text, NULL), 0);
	assert_true(text.size < 5 * MIB);
	buf_fini(&text);
	store = open_file(now_us);
	char last[64];
	snprintf(last, sizeof(last), "%056d", 149999);
	assert_int_equal(use(store, last, now_us + 1000, now_us), -ERR_NONCE_REPLAYED);
	store->ops->free(store);
}

static void test_urls_of_redis(void **state)
{
	static const struct {
		const char *url;
		bool is_good;
	} rows[] = {
		{ "redis://127.0.0.1:6379/3", true },
		{ "redis://redis.bank", true },
		{ "redis://[::1]/0", true },
		{ "redis://[::1]:6380", true },
		{ "", false },
		{ "redis://", false },
		{ "redis:///1", false },
		{ "redis://u:p@h:1/0", false },
		{ "http://h:1/0", false },
		{ "redis://h:1/x", false },
		{ "redis://h:1/10000", false },
	};
	const struct nonce_redis_options half = { .url = "redis://h", .user = "u" };
	struct nonce_store *store;

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		const struct nonce_redis_options options = { .url = rows[i].url };
		const int r = nonce_redis_new(&options, &store, NULL);

		if ((r == 0) != rows[i].is_good)
			fail_msg("'%s': %d", rows[i].url, r);
		if (store)
			store->ops->free(store);
	}
	assert_int_equal(nonce_redis_new(&half, &store, NULL), -ERR_CONFIG);
}

/* Nobody listens: it cannot be told, so it is refused; and at once, for a while. */
static void test_redis_that_is_away(void **state)
{
	const struct nonce_redis_options options = { .url = "redis://127.0.0.1:1/0", .timeout_us = 200 * MSEC_US };
	struct nonce_store *store;

	(void)state;
	assert_int_equal(nonce_redis_new(&options, &store, NULL), 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(use(store, "a", 100, 10), -ERR_NONCES);
	assert_int_equal(use(store, "a", 10, 10), -ERR_TICKET_EXPIRED);
	store->ops->free(store);
}

/* A server that says what it was sent: that goes to logs and to clients, and the password is not for them. */
static void *answer_all(void *owner)
{
	const int fd = accept(*(int *)owner, NULL, NULL);
	char bytes[512];
	const struct str said = STR("-ERR unknown command 'AUTH', with args beginning with: 'top-secret' \r\n+OK\r\n");

	assert_true(read(fd, bytes, sizeof(bytes)) > 0);
	assert_int_equal(write(fd, said.data, said.size), said.size);
	while (read(fd, bytes, sizeof(bytes)) > 0)
		;
	close(fd);
	return NULL;
}

static void test_redis_that_repeats_the_password(void **state)
{
	struct nonce_redis_options options = { .timeout_us = 10 * SEC_US };
	struct sock_addr addr;
	struct nonce_store *store;
	char url[SOCK_TEXT_SIZE + 16], text[SOCK_TEXT_SIZE], file[96];
	struct err err = ERR_INIT;
	pthread_t thread;

	(void)state;
	write_file("top-secret\n", ".password");
	snprintf(file, sizeof(file), "%s.password", path);
	assert_int_equal(sock_addr_parse("127.0.0.1:0", &addr, NULL), 0);
	int fd = sock_listen(&addr, false, NULL);
	assert_true(fd >= 0 && fcntl(fd, F_SETFL, 0) == 0);
	assert_int_equal(sock_local(fd, &addr), 0);
	assert_int_equal(pthread_create(&thread, NULL, answer_all, &fd), 0);
	snprintf(url, sizeof(url), "redis://%s/0", sock_addr_text(&addr, text));
	options.url = url;
	options.password_file = file;
	assert_int_equal(nonce_redis_new(&options, &store, NULL), 0);
	assert_int_equal(store->ops->use(store, STR("a"), 100, 10, &err), -ERR_NONCES);
	if (strstr(err.text, "secret") || !strstr(err.text, "password: ERR"))
		fail_msg("%s", err.text);
	store->ops->free(store);
	pthread_join(thread, NULL);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_a_start_after_a_kill, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_a_start_of_the_machine, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_a_crash_of_the_machine, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_files_take_turns, set_up, tear_down),
		cmocka_unit_test(test_urls_of_redis),
		cmocka_unit_test(test_redis_that_is_away),
		cmocka_unit_test_setup_teardown(test_redis_that_repeats_the_password, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
