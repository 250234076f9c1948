/* Making transfers, what is refused, and starting. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/mem.h"
#include "sched_world.h"

/* --- making transfers --- */

static void a_transfer_is_planned(void **state)
{
	char id[ULID_SIZE];

	(void)state;
	post_a(id);
	assert_true(ulid_is_valid(id, strlen(id)));
	assert_string_equal(text_of("state"), "uploading");
	assert_string_equal(text_of("batch_enc"), "books");
	assert_string_equal(text_of("digest"), "sha256");
	assert_int_equal(strlen(text_of("transfer_key")), 64);
	assert_true(json_is_false(json_object_get(answer.json, "is_resumed")));
	assert_int_equal(number_of("files"), 3);
	assert_int_equal(number_of("entries"), 5);
	assert_int_equal(number_of("bytes"), 65538);
	assert_int_equal(number_of("objects"), 2);
	assert_int_equal(number_of("chunks"), 3);
	assert_int_equal(number_of("chunk_bytes"), 65536);
	assert_int_equal(number_of("stored_chunks"), 0);
	assert_non_null(strstr(text_of("final"), "/final/books"));
	assert_string_equal(text_of("final_enc"), text_of("final"));
	assert_true(json_is_false(json_object_get(answer.json, "is_in_place")));
	assert_int_equal(json_array_size(json_object_get(answer.json, "nodes")), 1);
	call_transfer("ann", "GET", id, "", STR_NONE);
	expect_status(200);
	assert_int_equal(number_of("pending_chunks"), 3);
	assert_int_equal(number_of("version"), 1);
	assert_true(number_of("created_us") > 0);
	call_as("ann", "GET", "/api/v1/transfers?state=uploading", STR_NONE);
	expect_status(200);
	assert_int_equal(json_array_size(json_object_get(answer.json, "transfers")), 1);
	call_as("ann", "GET", "/api/v1/transfers?state=failed,completed", STR_NONE);
	assert_int_equal(json_array_size(json_object_get(answer.json, "transfers")), 0);
	call_as("ann", "GET", "/api/v1/transfers?state=odd", STR_NONE);
	expect_error(400, "bad_request");
}

static void the_same_folder_is_resumed(void **state)
{
	char id[ULID_SIZE], other[ULID_SIZE];

	(void)state;
	post_a(id);
	post("ann", "batch=books&source=h:/a&chunk_size=65536", folder_a);
	expect_status(200);
	assert_string_equal(text_of("transfer_id"), id);
	assert_true(json_is_true(json_object_get(answer.json, "is_resumed")));
	/* Cuts are whole pages: what is over does not make it another cut. */
	post("ann", "batch=books&source=h:/a&chunk_size=69631", folder_a);
	expect_status(200);
	assert_int_equal(number_of("chunk_bytes"), 65536);
	/* From elsewhere too: it is the same folder. */
	post("ann", "batch=books", folder_a);
	expect_status(200);
	assert_string_equal(text_of("transfer_id"), id);
	post("ann", "batch=others", folder_a);
	expect_status(201);
	assert_true(str_copy(str_from(text_of("transfer_id")), other, sizeof(other)));
	assert_string_not_equal(id, other);
}

static void a_new_scan_supersedes(void **state)
{
	char id[ULID_SIZE];
	int64_t deadline_us = clock_mono_us() + 20 * SEC_US;

	(void)state;
	post_a(id);
	post("ann", "batch=books&source=h:/a", folder_b);
	expect_status(201);
	assert_string_not_equal(text_of("transfer_id"), id);
	call_transfer("ann", "GET", id, "", STR_NONE);
	assert_string_equal(text_of("state"), "failed");
	assert_non_null(strstr(text_of("reason"), "superseded"));
	while (atomic_load(&node.removed_count) == 0)
		assert_true(clock_mono_us() < deadline_us);
	assert_string_equal(node.removed_id, id);
	call_transfer("ann", "POST", id, "/complete", STR_NONE);
	expect_error(409, "wrong_state");
}

static void a_batch_that_exists(void **state)
{
	char path[128], id[ULID_SIZE];

	(void)state;
	post_a(id);
	post("ann", "batch=books&source=h:/elsewhere", folder_b);
	expect_error(409, "batch_exists");
	post("ann", "batch=books", folder_b); /* no source is not the same source */
	expect_error(409, "batch_exists");
	post("bob", "batch=books&source=h:/a", folder_a);
	expect_error(409, "batch_exists");
	post("ann", "batch=books&digest=md5", folder_a);
	expect_error(409, "batch_exists");
	post("ann", "batch=books&seal=aes:0123456789abcdef", folder_a);
	expect_error(409, "batch_exists");
	/* A folder that nobody sent. */
	snprintf(path, sizeof(path), "%s/final/there", dir);
	assert_int_equal(mkdir(path, 0700), 0);
	post("ann", "batch=there", folder_a);
	expect_error(409, "batch_exists");
}

static void a_dry_run_keeps_nothing(void **state)
{
	(void)state;
	post("ann", "batch=books&dry_run=1", folder_a);
	expect_status(201);
	assert_string_equal(text_of("transfer_id"), "");
	assert_string_equal(text_of("transfer_key"), "");
	assert_int_equal(number_of("chunks"), 3);
	call_as("ann", "GET", "/api/v1/transfers", STR_NONE);
	assert_int_equal(json_array_size(json_object_get(answer.json, "transfers")), 0);
}

static void no_node_takes_work(void **state)
{
	(void)state;
	pthread_mutex_lock(&node.lock);
	node.is_low = true;
	pthread_mutex_unlock(&node.lock);
	await_node(false);
	post("ann", "batch=books", folder_a);
	expect_error(503, "no_nodes");
}

static void no_room(void **state)
{
	char id[ULID_SIZE];
	int64_t deadline_us = clock_mono_us() + 20 * SEC_US;

	(void)state;
	pthread_mutex_lock(&node.lock);
	node.free_bytes = 1000 + 65538 + 10;
	pthread_mutex_unlock(&node.lock);
	do {
		assert_true(clock_mono_us() < deadline_us);
		call_as("op", "GET", "/api/v1/nodes", STR_NONE);
	} while (json_integer_value(json_object_get(json_array_get(json_object_get(answer.json, "nodes"), 0),
						    "free_bytes")) != 65548);
	post_a(id); /* fits just so */
	post("ann", "batch=more", folder_a);
	expect_error(507, "no_space");
	assert_int_equal(answer.retry_after_us, 60 * SEC_US);
	post("ann", "batch=small", folder_b); /* 2 bytes do */
	expect_status(201);
	/* What is stored needs no more room. */
	give_receipt(id, 1, 0, 65536, ERR_NONE);
	post("ann", "batch=again", folder_b);
	expect_status(201);
	/* Superseding gives its room back first. */
	post("ann", "batch=books&source=h:/a&chunk_size=131072", folder_a);
	expect_status(201);
}

/* --- refusals --- */

static void batch_names(void **state)
{
	char long_name[256] = "batch=";
	const struct {
		const char *query;
		int status;
	} rows[] = {
		{ "", 400 },
		{ "batch=", 400 },
		{ "batch=.hidden", 400 },
		{ "batch=..", 400 },
		{ "batch=a/b", 400 },
		{ "batch=a%2Fb", 400 },
		{ "batch=a%00b", 400 },
		{ "batch=a%0Ab", 400 },
		{ "batch=%7f", 400 },
		{ long_name, 400 },
		{ "batch=%zz", 400 },
		{ "batch=a%20b", 201 },
		{ "batch=%ff%fe", 201 },
		{ "batch=%E4%BD%A0", 201 },
	};

	(void)state;
	memset(long_name + 6, 'x', 201);
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		post("ann", rows[i].query, folder_empty);
		if (answer.status != rows[i].status)
			fail_msg("query '%s': %d %s", rows[i].query, answer.status, answer.text);
		if (rows[i].status == 400)
			assert_string_equal(text_of("error"), "batch_name");
	}
	assert_string_equal(text_of("batch_enc"), "%E4%BD%A0");
	long_name[206] = '\0';
	post("ann", long_name, folder_empty);
	expect_status(201);
}

static void a_wish_counts_for_a_new_transfer_only(void **state)
{
	char id[ULID_SIZE];

	(void)state;
	post("ann", "batch=books&source=h:/a&chunk_wish=131073", folder_a);
	expect_status(201);
	assert_int_equal(number_of("chunk_bytes"), 131072);
	assert_true(str_copy(str_from(text_of("transfer_id")), id, ULID_SIZE));
	/* Whatever is learnt meanwhile, the transfer under way is the same push. */
	post("ann", "batch=books&source=h:/a&chunk_wish=1048576", folder_a);
	expect_status(200);
	assert_string_equal(text_of("transfer_id"), id);
	assert_int_equal(number_of("chunk_bytes"), 131072);
	/* A demand is stronger than a wish, and another cut is another push. */
	post("ann", "batch=books&source=h:/a&chunk_size=65536&chunk_wish=1048576", folder_a);
	expect_status(201);
	assert_int_equal(number_of("chunk_bytes"), 65536);
	assert_string_not_equal(text_of("transfer_id"), id);
}

static void other_arguments(void **state)
{
	static const char *const rows[] = { "batch=b&digest=sha1",
					    "batch=b&seal=aes",
					    "batch=b&seal=des:0123456789abcdef",
					    "batch=b&seal=aes:0123456789ABCDEF",
					    "batch=b&chunk_size=65535",
					    "batch=b&chunk_size=67108865",
					    "batch=b&chunk_size=-1",
					    "batch=b&chunk_wish=65535",
					    "batch=b&chunk_wish=1MiB",
					    "batch=b&priority=x",
					    "batch=b&priority=1001",
					    "batch=b&dry_run=yes" };
	const char *no_crc[] = { "X-Api-Key: key of ann", NULL };

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		post("ann", rows[i], folder_empty);
		expect_error(400, "bad_request");
	}
	call_with("POST", "/api/v1/transfers?batch=b", no_crc, str_from(folder_empty));
	expect_error(400, "bad_request");
}

static void manifests_that_are_refused(void **state)
{
	static const struct {
		const char *text;
		int status;
		const char *word, *named;
	} rows[] = {
		{ "", 400, "manifest_invalid", "" },
		{ "hello\n", 400, "manifest_invalid", "" },
		{ "heng-manifest 1\nD 755 0 .\n", 400, "manifest_invalid", "" },
		{ "heng-manifest 1\nD 755 0 .\nF 644 0 1 ../../etc/passwd\nend 2 1\n", 422, "entry_refused",
		  "../../etc/passwd" },
		{ "heng-manifest 1\nD 755 0 .\nF 644 0 1 /etc/passwd\nend 2 1\n", 422, "entry_refused", "/etc/passwd" },
		{ "heng-manifest 1\nD 755 0 .\nF 644 0 1 twin\nF 644 0 1 twin\nend 3 2\n", 422, "entry_refused",
		  "twin" },
		{ "heng-manifest 1\nD 755 0 .\nF 644 0 1 a\nF 644 0 1 a/b\nend 3 2\n", 422, "entry_refused", "a/b" },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		post("ann", "batch=b", rows[i].text);
		expect_error(rows[i].status, rows[i].word);
		assert_non_null(strstr(text_of("message"), rows[i].named));
	}
	post_crc("ann", "batch=b", str_from(folder_a), 0x12345678);
	expect_error(400, "manifest_crc");
	call_as("op", "GET", "/api/v1/transfers", STR_NONE);
	assert_int_equal(json_array_size(json_object_get(answer.json, "transfers")), 0);
}

static size_t spooled_count(void)
{
	char path[128];
	size_t count = 0;
	DIR *spool;

	snprintf(path, sizeof(path), "%s/spool", dir);
	spool = opendir(path);
	assert_non_null(spool);
	for (const struct dirent *item; (item = readdir(spool)) != NULL;)
		count += item->d_name[0] != '.';
	closedir(spool);
	return count;
}

/* The client goes away in the middle of its manifest. */
static void a_truncated_manifest_leaves_nothing(void **state)
{
	static const char head[] = "POST /api/v1/transfers?batch=cut HTTP/1.1\r\nHost: x\r\nX-Api-Key: key of ann\r\n"
				   "X-Manifest-CRC32C: 00000000\r\nContent-Length: 1000\r\n\r\nheng-manifest 1\n";
	const struct sock_addr *addr = sched_addr(sched);
	int fd = socket(addr->storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char text[4096];

	(void)state;
	assert_int_equal(connect(fd, (const struct sockaddr *)&addr->storage, addr->size), 0);
	assert_int_equal(send(fd, head, sizeof(head) - 1, MSG_NOSIGNAL), (ssize_t)sizeof(head) - 1);
	assert_int_equal(shutdown(fd, SHUT_WR), 0);
	/* The end of the answer says that the server is done with the call. */
	while (recv(fd, text, sizeof(text), 0) > 0)
		;
	close(fd);
	assert_int_equal(spooled_count(), 0);
	post("ann", "batch=cut", folder_a);
	expect_status(201);
	assert_int_equal(spooled_count(), 0);
}

static void who_may_call(void **state)
{
	static const struct {
		const char *method, *path;
	} rows[] = {
		{ "POST", "/api/v1/transfers?batch=b" },
		{ "GET", "/api/v1/transfers" },
		{ "GET", "/api/v1/transfers/01ARZ3NDEKTSV4RRFFQ69G5FAV" },
		{ "GET", "/api/v1/transfers/01ARZ3NDEKTSV4RRFFQ69G5FAV/plan" },
		{ "GET", "/api/v1/transfers/01ARZ3NDEKTSV4RRFFQ69G5FAV/chunks" },
		{ "GET", "/api/v1/transfers/01ARZ3NDEKTSV4RRFFQ69G5FAV/nodes" },
		{ "POST", "/api/v1/transfers/01ARZ3NDEKTSV4RRFFQ69G5FAV/digests" },
		{ "POST", "/api/v1/transfers/01ARZ3NDEKTSV4RRFFQ69G5FAV/complete" },
		{ "GET", "/api/v1/nodes" },
		{ "POST", "/internal/v1/nodes/register" },
		{ "POST", "/internal/v1/receipts" },
	};
	const char *wrong[] = { "X-Api-Key: key of eve", NULL };
	const char *clients[] = { "X-Api-Key: key of op", NULL };

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		call_with(rows[i].method, rows[i].path, NULL, STR_NONE);
		expect_error(401, "unauthenticated");
		call_with(rows[i].method, rows[i].path, wrong, STR_NONE);
		expect_error(401, "unauthenticated");
	}
	/* A client's key is no cluster key. */
	call_with("POST", "/internal/v1/receipts", clients, STR("x\n"));
	expect_error(401, "unauthenticated");
	call_with("GET", "/health", NULL, STR_NONE);
	expect_status(200);
	assert_string_equal(text_of("status"), "ok");
}

static void whose_transfer(void **state)
{
	static const char *const parts[] = { "", "/plan", "/chunks", "/nodes" };
	static const char *const writes[] = { "/digests", "/complete" };
	char id[ULID_SIZE], unknown[] = "01ARZ3NDEKTSV4RRFFQ69G5FAV";

	(void)state;
	post_a(id);
	for (size_t i = 0; i < COUNT_OF(parts); i++) {
		call_transfer("bob", "GET", id, parts[i], STR_NONE);
		expect_error(404, "no_such_transfer");
		call_transfer("ann", "GET", unknown, parts[i], STR_NONE);
		expect_error(404, "no_such_transfer");
		call_transfer("ann", "GET", "not-an-id", parts[i], STR_NONE);
		expect_error(404, "no_such_transfer");
		call_transfer("aud", "GET", id, parts[i], STR_NONE);
		expect_status(200);
		call_transfer("op", "GET", id, parts[i], STR_NONE);
		expect_status(200);
	}
	for (size_t i = 0; i < COUNT_OF(writes); i++) {
		call_transfer("bob", "POST", id, writes[i], STR_NONE);
		expect_error(404, "no_such_transfer");
		call_transfer("aud", "POST", id, writes[i], STR_NONE);
		expect_error(403, "forbidden");
	}
	call_as("bob", "GET", "/api/v1/transfers", STR_NONE);
	assert_int_equal(json_array_size(json_object_get(answer.json, "transfers")), 0);
	call_as("aud", "GET", "/api/v1/transfers", STR_NONE);
	assert_int_equal(json_array_size(json_object_get(answer.json, "transfers")), 1);
	/* An auditor gets nothing to send with. */
	call_transfer("aud", "GET", id, "", STR_NONE);
	assert_string_equal(text_of("transfer_key"), "");
	call_transfer("aud", "GET", id, "/plan", STR_NONE);
	assert_non_null(strstr(answer.text, " -\n"));
	post("aud", "batch=b", folder_a);
	expect_error(403, "forbidden");
}

/* --- starting --- */

static void starts_that_are_refused(void **state)
{
	struct sched_conf conf = conf_of();
	struct sched_user twice[] = { users[0], users[0] };
	struct sched_user bad[] = { { .name = "ann", .key_sha256 = "not hex" } };
	struct sched *other = NULL;
	struct err err = ERR_INIT;

	(void)state;
	/* The state folder is taken. */
	assert_true(sched_start(&conf, &other, &err) < 0);
	assert_null(other);
	conf.listen = "0.0.0.0:0";
	assert_int_equal(sched_start(&conf, &other, &err), -ERR_CONFIG);
	assert_non_null(strstr(err.text, "TLS"));
	conf = conf_of();
	conf.users.count = 0;
	assert_int_equal(sched_start(&conf, &other, &err), -ERR_CONFIG);
	conf.users = (struct conf_list){ twice, 2 };
	assert_int_equal(sched_start(&conf, &other, &err), -ERR_CONFIG);
	conf.users = (struct conf_list){ bad, 1 };
	assert_int_equal(sched_start(&conf, &other, &err), -ERR_CONFIG);
	conf = conf_of();
	conf.cluster_key_file = "/nonexistent/key";
	assert_true(sched_start(&conf, &other, &err) < 0);
}

static void configuration_is_read(void **state)
{
	static const char text[] = "state_dir: /var/lib/heng\n"
				   "cluster_key_file: /etc/heng/cluster.key\n"
				   "chunk_size: 1MiB\n"
				   "users:\n"
				   "  - name: ann\n"
				   "    key_sha256: " SHA_A "\n"
				   "  - name: op\n"
				   "    key_sha256: " SHA_B "\n"
				   "    role: operator\n";
	struct arena arena = ARENA_INIT(MIB);
	struct sched_conf conf;
	struct err err = ERR_INIT;
	const struct sched_user *list;

	(void)state;
	if (conf_parse("t", str_from(text), sched_conf_rows, &conf, sizeof(conf), &arena, &err) < 0)
		fail_msg("%s", err.text);
	assert_string_equal(conf.listen, "127.0.0.1:7080");
	assert_int_equal(conf.chunk_bytes, MIB);
	assert_int_equal(conf.ticket_life_us, 3600 * SEC_US);
	assert_int_equal(conf.probe_interval_us, 3 * SEC_US);
	assert_int_equal(conf.merge_objects, 8);
	assert_false(conf.is_insecure);
	assert_int_equal(conf.users.count, 2);
	list = conf.users.items;
	assert_string_equal(list[0].name, "ann");
	assert_int_equal(list[0].role, 0);
	assert_int_equal(list[1].role, 2);
	arena_fini(&arena);
	assert_true(conf_parse("t", STR("state_dir: /x\ncluster_key_file: /k\nchunk_size: 1KiB\n"), sched_conf_rows,
			       &conf, sizeof(conf), &arena, &err) < 0);
	arena_fini(&arena);
}

/* What was refused and not yet told is written down by a scheduler that stops: the second of a kind waits for a while, and nobody could tell it later. */
static void alerts_before_a_stop(void **state)
{
	const char *headers[] = { "X-Api-Key: nobody's", NULL };

	(void)state;
	for (int i = 0; i < 3; i++) {
		call_with("GET", "/api/v1/nodes", headers, STR_NONE);
		expect_error(401, "unauthenticated");
	}
	sched_stop(&sched);
	start_sched();
	call_as("op", "GET", "/api/v1/audit?kind=alert", STR_NONE);
	expect_status(200);
	uint64_t count = 0, more;
	for (const char *at = answer.text; (at = strstr(at, "the API key is not one of")) != NULL; at++) {
		const char *told = strstr(at, "(and "), *end = strchr(at, '\n');

		more = told && (!end || told < end) ? strtoull(told + 5, NULL, 10) : 0;
		count += 1 + more;
	}
	if (count != 3)
		fail_msg("%d of 3 refusals are in the audit: %s", (int)count, answer.text);
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(a_transfer_is_planned),
		CASE(the_same_folder_is_resumed),
		CASE(a_new_scan_supersedes),
		CASE(a_batch_that_exists),
		CASE(a_dry_run_keeps_nothing),
		CASE(no_node_takes_work),
		CASE(no_room),
		CASE(batch_names),
		CASE(a_wish_counts_for_a_new_transfer_only),
		CASE(other_arguments),
		CASE(manifests_that_are_refused),
		CASE(a_truncated_manifest_leaves_nothing),
		CASE(who_may_call),
		CASE(whose_transfer),
		CASE(starts_that_are_refused),
		CASE(alerts_before_a_stop),
		cmocka_unit_test(configuration_is_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
