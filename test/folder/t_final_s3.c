/* A bucket as the final store, without one: what is configured, which names it takes, the keys it makes. What needs a server is test/system/t_s3. */
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

#include "folder/final_s3.h"
#include "sys/fs.h"

static struct final_s3 *open_with(const char *place, const char *endpoint, struct err *err)
{
	const struct final_s3_options options = { .place = place,
						  .endpoint = endpoint,
						  .region = "us-east-1",
						  .credentials_file = "",
						  .part_bytes = 16 * MIB,
						  .connection_count = 2,
						  .give_up_us = SEC_US };
	struct final_s3 *final;

	*err = ERR_INIT;
	return final_s3_new(&options, &final, err) == 0 ? final : NULL;
}

static void configurations(void **state UNUSED)
{
	static const struct {
		const char *place, *endpoint, *says;
	} rows[] = {
		{ "/srv/final", "http://h", "not s3://BUCKET" },
		{ "s3://", "http://h", "names no bucket" },
		{ "s3:///x", "http://h", "name of a bucket" },
		{ "s3://UPPER/x", "http://h", "name of a bucket" },
		{ "s3://ab", "http://h", "name of a bucket" },
		{ "s3://abc/../x", "http://h", "prefix" },
		{ "s3://abc//x", "http://h", "prefix" },
		{ "s3://abc/\xff", "http://h", "prefix" },
		{ "s3://abc", "", "final_endpoint" },
		{ "s3://abc", "ftp://h", "final_endpoint" },
		{ "s3://abc", "http://", "final_endpoint" },
		{ "s3://abc", "http://h/path", "final_endpoint" },
		{ "s3://abc", "http://user@h", "final_endpoint" },
	};
	struct err err;

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		assert_null(open_with(rows[i].place, rows[i].endpoint, &err));
		if (err.code != ERR_CONFIG || !strstr(err.text, rows[i].says))
			fail_msg("%s %s: %s", rows[i].place, rows[i].endpoint, err.text);
	}
	unsetenv("AWS_SECRET_ACCESS_KEY");
	assert_null(open_with("s3://abc/x", "http://h", &err));
	assert_non_null(strstr(err.text, "credentials"));
	setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
}

static void keys(void **state UNUSED)
{
	struct err err;
	char key[FINAL_S3_KEY_SIZE], longest[S3_KEY_MAX + 1];
	struct final_s3 *final = open_with("s3://abc/a b/c//", "https://h:443/", &err);

	assert_non_null(final);
	assert_int_equal(final_s3_key(final, "batch", "d/f", key, &err), 0);
	assert_string_equal(key, "a b/c/batch/d/f");
	assert_int_equal(final_s3_key(final, "batch", NULL, key, &err), 0);
	assert_string_equal(key, "a b/c/batch/");
	assert_int_equal(final_s3_manifest_key(final, "batch", key, &err), 0);
	assert_string_equal(key, "a b/c/.heng/batch.manifest");
	memset(longest, 'x', sizeof(longest) - 1);
	longest[S3_KEY_MAX] = '\0';
	assert_int_equal(final_s3_key(final, "batch", longest, key, &err), -(int)ERR_ENTRY_REFUSED);
	longest[S3_KEY_MAX - strlen("a b/c/batch/")] = '\0';
	assert_int_equal(final_s3_key(final, "batch", longest, key, &err), 0);
	assert_int_equal(strlen(key), S3_KEY_MAX);
	final_s3_free(&final);
}

static int check(const char *batch, struct str path, struct err *err)
{
	struct final_s3 *final = open_with("s3://abc/pre", "http://h:80", err);
	struct buf text = BUF_INIT(MIB);
	const struct manifest_entry root = { .type = MANIFEST_DIR, .mode = 0755, .path = STR(".") },
				    file = { .seq = 1, .type = MANIFEST_FILE, .mode = 0644, .path = path };

	assert_non_null(final);
	manifest_write_head(&text);
	manifest_write(&text, &root);
	manifest_write(&text, &file);
	manifest_write_end(&text, 2, 0);
	AUTO(fs_close) int fd = fs_temp_file(err);
	assert_true(fd >= 0);
	assert_int_equal(fs_write_all(fd, text.data, text.size, 0, err), 0);
	int result = final_s3_check_names(final, str_from(batch), fd, err);
	buf_fini(&text);
	final_s3_free(&final);
	return result;
}

static void names(void **state UNUSED)
{
	static const struct {
		const char *batch;
		struct str path;
		enum err_code code;
	} rows[] = {
		{ "b", STR("a b+%&<>'\"?#"), ERR_NONE }, { "b", STR("\xe4\xbd\xa0\xf0\x9f\x98\x80"), ERR_NONE },
		{ "\xe4\xbd\xa0", STR("a"), ERR_NONE },  { "b", STR("\xff"), ERR_ENTRY_REFUSED },
		{ "b", STR("a\nb"), ERR_ENTRY_REFUSED }, { "b", STR("\x7f"), ERR_ENTRY_REFUSED },
		{ "b\xff", STR("a"), ERR_BATCH_NAME },   { "b\t", STR("a"), ERR_BATCH_NAME },
	};
	struct err err = ERR_INIT;
	char path[1200], *end = path;

	for (size_t i = 0; i < COUNT_OF(rows); i++)
		assert_int_equal(check(rows[i].batch, rows[i].path, &err), -(int)rows[i].code);
	/* "pre/b/" and a '/' for a folder: 1,017 bytes are left. One name may have 255. A manifest wants parents, so the longest is the batch's. */
	memset(path, 'y', sizeof(path));
	end += STORE_BATCH_MAX;
	*end = '\0';
	assert_int_equal(check(path, STR("a"), &err), 0);
	memset(path, 'y', sizeof(path));
	path[1010] = '\0';
	assert_int_equal(check(path, STR("a"), &err), -(int)ERR_BATCH_NAME);
	path[1000] = '\0';
	assert_int_equal(check(path, STR("a"), &err), 0);
	assert_int_equal(check(path, STR("aaaaaaaaaaaaaaaaaaaaaa"), &err), -(int)ERR_ENTRY_REFUSED);
}

static int setup(void **state UNUSED)
{
	setenv("AWS_ACCESS_KEY_ID", "id", 1);
	return setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
}

/* --- a bucket in which nothing is --- */

#define EMPTY "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

static void *serve(void *arg)
{
	const int *listen_fd = arg;
	char request[8192];
	int fd;

	while ((fd = accept(*listen_fd, NULL, NULL)) >= 0) {
		if (recv(fd, request, sizeof(request), 0) > 0)
			(void)send(fd, EMPTY, strlen(EMPTY), MSG_NOSIGNAL);
		fs_close(&fd);
	}
	return NULL;
}

/* An entry as a folder takes it, and no bucket. */
static int entries(struct store *store UNUSED, const char *transfer_id UNUSED, uint64_t from_seq,
		   uint64_t to_seq UNUSED, int (*each)(void *owner, const struct store_entry *entry), void *owner,
		   struct err *err UNUSED)
{
	static char path[S3_KEY_MAX + 2];
	struct store_entry entry = { .seq = 1, .type = MANIFEST_FILE, .path = { path, sizeof(path) - 1 } };

	memset(path, 'a', sizeof(path) - 1);
	if (from_seq <= 1)
		(void)each(owner, &entry);
	return 0;
}

static void a_path_that_was_planned_for_a_folder(void **state UNUSED)
{
	static const struct store_ops ops = { .entries = entries };
	struct store store = { .ops = &ops };
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t size = sizeof(address);
	int listen_fd = socket(AF_INET, SOCK_STREAM, 0);
	struct merge *merge = calloc(1, sizeof(*merge));
	struct merge_run *run = calloc(1, sizeof(*run));
	char endpoint[64];
	pthread_t thread;
	struct err err;

	assert_true(merge && run);
	assert_int_equal(bind(listen_fd, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(listen_fd, 8), 0);
	assert_int_equal(getsockname(listen_fd, (struct sockaddr *)&address, &size), 0);
	assert_int_equal(pthread_create(&thread, NULL, serve, &listen_fd), 0);
	snprintf(endpoint, sizeof(endpoint), "http://127.0.0.1:%d", ntohs(address.sin_port));
	merge->store = &store;
	struct final_s3 *final = open_with("s3://abc/x", endpoint, &err);
	merge->bucket = final;
	assert_non_null(final);
	run->merge = merge;
	snprintf(run->transfer.batch, sizeof(run->transfer.batch), "batch");
	assert_int_equal(final_s3_publish(run, &err), -(int)ERR_ENTRY_REFUSED);
	assert_non_null(strstr(err.text, "entry 1"));
	(void)shutdown(listen_fd, SHUT_RDWR);
	assert_int_equal(pthread_join(thread, NULL), 0);
	fs_close(&listen_fd);
	final_s3_free(&final);
	free(merge);
	free(run);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(configurations), cmocka_unit_test(keys),
					    cmocka_unit_test(names),
					    cmocka_unit_test(a_path_that_was_planned_for_a_folder) };

	return cmocka_run_group_tests(tests, setup, NULL);
}
