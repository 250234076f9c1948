/* A real scheduler on a free port, with a node that answers probes as told. Requests go over the wire, as clients' and nodes' do. */
#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/hash.h"
#include "base/mem.h"
#include "fake_node.h"
#include "folder/receipt.h"
#include "folder/sched.h"
#include "sys/fetch.h"
#include "sys/fs.h"
#include "wire/manifest.h"
#include "wire/ticket.h"

#define CLUSTER_KEY "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
#define SHA_EMPTY   "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define SHA_A       "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"
#define SHA_B       "3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d"

static char dir[64], key_path[128];
static struct sched *sched;
static struct fake_node node;
static struct sched_user users[] = {
	{ .name = "ann", .role = 0 },
	{ .name = "bob", .role = 0 },
	{ .name = "aud", .role = 1 },
	{ .name = "op", .role = 2 },
};
static char user_keys[COUNT_OF(users)][DIGEST_HEX_SIZE];
static char internal_header[128];

/* --- calling --- */

struct answer {
	int status;
	struct err err;
	char text[128 * 1024];
	json_t *json; /* NULL when it is none */
	int64_t retry_after_us;
};
static struct answer answer;

static void call_with(const char *method, const char *path, const char *const *headers, struct str body)
{
	struct fetch_call call = FETCH_CALL_INIT;
	struct fetch *fetch = NULL;
	char url[1024], addr[SOCK_TEXT_SIZE];

	json_decref(answer.json);
	memset(&answer, 0, sizeof(answer));
	snprintf(url, sizeof(url), "http://%s%s", sock_addr_text(sched_addr(sched), addr), path);
	call.method = method;
	call.url = url;
	for (size_t i = 0; headers && headers[i]; i++)
		call.headers[i] = headers[i];
	call.body = body;
	call.timeout_us = 30 * SEC_US;
	assert_int_equal(fetch_new(&fetch, NULL), 0);
	(void)fetch_do(fetch, &call, &answer.err);
	answer.status = call.status;
	answer.retry_after_us = call.retry_after_us;
	assert_true(call.answer.size < sizeof(answer.text));
	if (call.answer.size != 0)
		memcpy(answer.text, call.answer.data, call.answer.size);
	answer.json = json_loadb(answer.text, call.answer.size, JSON_REJECT_DUPLICATES, NULL);
	buf_fini(&call.answer);
	fetch_free(&fetch);
}

static void call_as(const char *user, const char *method, const char *path, struct str body)
{
	char key[64];
	const char *headers[] = { key, NULL };

	snprintf(key, sizeof(key), "X-Api-Key: key of %s", user);
	call_with(method, path, headers, body);
}

static const char *text_of(const char *key)
{
	const char *text = json_string_value(json_object_get(answer.json, key));

	return text ? text : "";
}
static uint64_t number_of(const char *key)
{
	json_t *value = json_object_get(answer.json, key);

	if (!json_is_integer(value))
		fail_msg("no number '%s' in: %s", key, answer.text);
	return (uint64_t)json_integer_value(value);
}

static void expect_error(int status, const char *word)
{
	if (answer.status != status || strcmp(text_of("error"), word) != 0)
		fail_msg("awaited %d %s, got %d: %s (%s)", status, word, answer.status, answer.text, answer.err.text);
	assert_true(number_of("server_time_us") > 1500000000000000u);
}
static void expect_status(int status)
{
	if (answer.status != status)
		fail_msg("awaited %d, got %d: %s (%s)", status, answer.status, answer.text, answer.err.text);
}

/* --- the world of a test --- */

static void register_node(const struct fake_node *from)
{
	char body[512];
	const char *headers[] = { internal_header, "Content-Type: application/json", NULL };

	snprintf(body, sizeof(body),
		 "{\"node_id\":\"%s\",\"addr\":\"%s\",\"incarnation\":\"%s\",\"weight_milli\":1000,\"domain\":\"\"}",
		 from->id, from->addr, from->incarnation);
	call_with("POST", "/internal/v1/nodes/register", headers, str_from(body));
}

static bool node_works(void)
{
	call_as("op", "GET", "/api/v1/nodes", STR_NONE);
	expect_status(200);
	return json_is_true(json_object_get(json_array_get(json_object_get(answer.json, "nodes"), 0), "takes_work"));
}

static void await_node(bool is_working)
{
	int64_t deadline_us = clock_mono_us() + 20 * SEC_US;

	while (node_works() != is_working) {
		if (clock_mono_us() > deadline_us)
			fail_msg("the node did not come to be as awaited: %s", answer.text);
	}
}

static struct sched_conf conf_of(void)
{
	struct sched_conf conf = {
		.listen = "127.0.0.1:0",
		.state_dir = dir,
		.staging_dir = "",
		.final_dir = "",
		.cluster_key_file = key_path,
		.users = { users, COUNT_OF(users) },
		.chunk_bytes = 64 * KIB,
		.ticket_life_us = 3600 * SEC_US,
		.probe_interval_us = 50 * MSEC_US,
		.probe_timeout_us = 2 * SEC_US,
		.node_lost_after_us = 30 * SEC_US,
		.merge_objects = 2,
		.merge_node_connections = 2,
		.threads = 2,
		.workers = 4,
		.loop = LOOP_EPOLL,
	};

	return conf;
}

static void start_sched(void)
{
	struct sched_conf conf = conf_of();
	struct err err = ERR_INIT;

	if (sched_start(&conf, &sched, &err) < 0)
		fail_msg("the scheduler does not start: %s", err.text);
}

static int set_up(void **state)
{
	uint8_t cluster[32], derived[32];
	char hex[65];

	(void)state;
	snprintf(dir, sizeof(dir), "/tmp/heng-t_sched-XXXXXX");
	assert_non_null(mkdtemp(dir));
	snprintf(key_path, sizeof(key_path), "%s/cluster.key", dir);
	assert_int_equal(fs_replace_file(key_path, STR("7 " CLUSTER_KEY "\n"), 0600, NULL), 0);
	assert_true(hex_decode(STR(CLUSTER_KEY), cluster, sizeof(cluster)));
	mac_derive(cluster, sizeof(cluster), STR("internal"), derived);
	hex_encode(derived, sizeof(derived), hex);
	snprintf(internal_header, sizeof(internal_header), "X-Internal-Key: %s", hex);
	for (size_t i = 0; i < COUNT_OF(users); i++) {
		char key[64];
		int size = snprintf(key, sizeof(key), "key of %s", users[i].name);

		digest_of(DIGEST_SHA256, key, (size_t)size, user_keys[i]);
		users[i].key_sha256 = user_keys[i];
	}
	start_sched();
	fake_start(&node, "n1", "first");
	register_node(&node);
	expect_status(200);
	assert_int_equal(number_of("probe_interval_us"), 50 * MSEC_US);
	await_node(true);
	return 0;
}

static int tear_down(void **state)
{
	int fd;

	(void)state;
	json_decref(answer.json);
	answer.json = NULL;
	sched_stop(&sched);
	fake_stop(&node);
	fd = fs_open_dir("/tmp", NULL);
	assert_int_equal(fs_remove_tree(fd, dir + 5, NULL), 0);
	close(fd);
	return 0;
}

/* --- manifests --- */

/* Three files: a of 1 byte and an empty one, in a folder, and a large one of 65537 bytes: a pack, then a file of two chunks. */
static const char folder_a[] = "heng-manifest 1\n"
			       "D 755 0 .\n"
			       "F 644 0 65537 big\n"
			       "D 755 0 d\n"
			       "F 644 0 1 d/a\n"
			       "F 644 0 0 d/empty\n"
			       "end 5 65538\n";
static const char folder_b[] = "heng-manifest 1\nD 755 0 .\nF 644 0 2 a\nend 2 2\n";
static const char folder_empty[] = "heng-manifest 1\nD 755 0 .\nend 1 0\n";

static void post_crc(const char *user, const char *query, struct str manifest, uint32_t crc)
{
	char key[64], crc_header[64], path[512];
	const char *headers[] = { key, crc_header, NULL };

	snprintf(key, sizeof(key), "X-Api-Key: key of %s", user);
	snprintf(crc_header, sizeof(crc_header), "X-Manifest-CRC32C: %08x", crc);
	snprintf(path, sizeof(path), "/api/v1/transfers?%s", query);
	call_with("POST", path, headers, manifest);
}

static void post(const char *user, const char *query, const char *manifest)
{
	post_crc(user, query, str_from(manifest), crc32c(0, manifest, strlen(manifest)));
}

/* Posts folder_a and keeps its id. */
static void post_a(char id[ULID_SIZE])
{
	post("ann", "batch=books&source=h:/a", folder_a);
	expect_status(201);
	assert_true(str_copy(str_from(text_of("transfer_id")), id, ULID_SIZE));
}

static void call_transfer(const char *user, const char *method, const char *id, const char *rest, struct str body)
{
	char path[256];

	snprintf(path, sizeof(path), "/api/v1/transfers/%s%s", id, rest);
	call_as(user, method, path, body);
}

static void give_receipt(const char *id, uint64_t file_id, uint64_t index, uint64_t size, enum err_code outcome)
{
	struct store_receipt receipt = {
		.file_id = file_id,
		.chunk_index = index,
		.size_bytes = size,
		.digest = SHA_A,
		.node_id = "n1",
		.node_addr = "127.0.0.1:9",
		.client_addr = "127.0.0.1:8",
		.request_id = "r1",
		.user = "ann",
		.user_agent = "test",
		.disk_path = "p",
		.started_wall_us = 1,
		.finished_wall_us = 2,
		.outcome = outcome,
	};
	const char *headers[] = { internal_header, NULL };
	struct buf body = BUF_INIT(4096);

	snprintf(receipt.transfer_id, sizeof(receipt.transfer_id), "%s", id);
	receipt_write(&body, &receipt);
	call_with("POST", "/internal/v1/receipts", headers, buf_str(&body));
	buf_fini(&body);
}

static void store_all_of_a(const char *id)
{
	give_receipt(id, 1, 0, 65536, ERR_NONE);
	assert_string_equal(answer.text, "ok\n");
	give_receipt(id, 1, 1, 1, ERR_NONE);
	assert_string_equal(answer.text, "ok\n");
	give_receipt(id, 2, 0, 1, ERR_NONE);
	assert_string_equal(answer.text, "ok\n");
}

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

static void other_arguments(void **state)
{
	static const char *const rows[] = { "batch=b&digest=sha1",         "batch=b&chunk_size=65535",
					    "batch=b&chunk_size=67108865", "batch=b&chunk_size=-1",
					    "batch=b&priority=x",          "batch=b&priority=1001",
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

/* --- plans --- */

static void plan_pages(void **state)
{
	static const uint64_t file_ids[] = { 1, 1, 2 }, indexes[] = { 0, 1, 0 };
	struct ticket_keys keys;
	char id[ULID_SIZE];
	uint64_t after_file = 0, after_chunk = 0;

	(void)state;
	assert_int_equal(ticket_keys_parse(STR("7 " CLUSTER_KEY "\n"), &keys, NULL), 0);
	post_a(id);
	for (size_t i = 0; i < 3; i++) {
		unsigned long long file_id, chunk_index, size, object_file_id, first, last, bytes, count;
		char path[128], ticket_text[TICKET_TEXT_SIZE], line_state[32], digest[80], target[80];
		int is_pack, more;
		long long time_us;
		struct ticket ticket;

		snprintf(path, sizeof(path), "/plan?after_file=%llu&after_chunk=%llu&limit=1",
			 (unsigned long long)after_file, (unsigned long long)after_chunk);
		call_transfer("ann", "GET", id, path, STR_NONE);
		expect_status(200);
		assert_int_equal(
			sscanf(answer.text,
			       "O %llu %d %llu %llu %llu %llu %511s\nC %llu %llu %llu %31s %79s %79s\nN %d %lld\n",
			       &object_file_id, &is_pack, &first, &last, &bytes, &count, ticket_text, &file_id,
			       &chunk_index, &size, line_state, digest, target, &more, &time_us),
			15);
		assert_int_equal(object_file_id, file_ids[i]);
		assert_int_equal(file_id, file_ids[i]);
		assert_int_equal(chunk_index, indexes[i]);
		assert_int_equal(is_pack, file_id == 2);
		assert_int_equal(first, file_id == 2 ? 3 : 1);
		assert_int_equal(last, first);
		assert_int_equal(bytes, file_id == 2 ? 1 : 65537);
		assert_int_equal(count, file_id == 2 ? 1 : 2);
		assert_int_equal(size, chunk_index == 0 && file_id == 1 ? 65536 : 1);
		assert_string_equal(line_state, "pending");
		assert_string_equal(digest, "-");
		assert_string_equal(target, "n1");
		assert_int_equal(more, i < 2);
		assert_int_equal(ticket_open(&keys, str_from(ticket_text), &ticket, NULL), 0);
		assert_string_equal(ticket.transfer_id, id);
		assert_string_equal(ticket.user, "ann");
		assert_int_equal(ticket.file_id, file_id);
		assert_int_equal(ticket_chunk_size(&ticket, chunk_index), size);
		after_file = file_id;
		after_chunk = chunk_index;
	}
	call_transfer("ann", "GET", id, "/plan?after_file=2", STR_NONE);
	assert_int_equal(strncmp(answer.text, "N 0 ", 4), 0);
	call_transfer("ann", "GET", id, "/plan?limit=0", STR_NONE);
	expect_error(400, "bad_request");
	call_transfer("ann", "GET", id, "/plan?after_file=18446744073709551615", STR_NONE);
	expect_error(400, "bad_request");
}

static void plans_show_what_is_stored(void **state)
{
	char id[ULID_SIZE];

	(void)state;
	post_a(id);
	give_receipt(id, 1, 1, 1, ERR_NONE);
	assert_string_equal(answer.text, "ok\n");
	call_transfer("ann", "GET", id, "/plan", STR_NONE);
	assert_non_null(strstr(answer.text, "C 1 1 1 stored " SHA_A " n1\n"));
	assert_non_null(strstr(answer.text, "C 1 0 65536 pending - n1\n"));
	call_transfer("ann", "GET", id, "/chunks?state=stored", STR_NONE);
	expect_status(200);
	assert_int_equal(json_array_size(json_object_get(answer.json, "chunks")), 1);
	assert_true(json_is_false(json_object_get(answer.json, "more")));
	call_transfer("ann", "GET", id, "/chunks?state=pending,lost&limit=1", STR_NONE);
	assert_int_equal(json_array_size(json_object_get(answer.json, "chunks")), 1);
	assert_true(json_is_true(json_object_get(answer.json, "more")));
	call_transfer("ann", "GET", id, "/chunks?state=odd", STR_NONE);
	expect_error(400, "bad_request");
	call_transfer("ann", "GET", id, "", STR_NONE);
	assert_int_equal(number_of("stored_chunks"), 1);
	assert_int_equal(number_of("pending_chunks"), 2);
	call_as("ann", "GET", "/api/v1/nodes", STR_NONE);
	assert_int_equal(json_integer_value(json_object_get(json_array_get(json_object_get(answer.json, "nodes"), 0),
							    "chunks_in")),
			 1);
}

/* A target that takes no work is still named, since it may be back before the others refuse. */
static void a_target_that_is_out(void **state)
{
	char id[ULID_SIZE];

	(void)state;
	post_a(id);
	pthread_mutex_lock(&node.lock);
	node.is_low = true;
	pthread_mutex_unlock(&node.lock);
	await_node(false);
	call_transfer("ann", "GET", id, "/plan", STR_NONE);
	expect_status(200);
	assert_non_null(strstr(answer.text, "C 2 0 1 pending - n1\n"));
	call_transfer("ann", "GET", id, "/nodes", STR_NONE);
	assert_true(
		json_is_false(json_object_get(json_array_get(json_object_get(answer.json, "nodes"), 0), "takes_work")));
}

/* --- nodes' calls --- */

static void receipts_that_are_refused(void **state)
{
	const char *headers[] = { internal_header, NULL };
	char id[ULID_SIZE], unknown[] = "01ARZ3NDEKTSV4RRFFQ69G5FAV";

	(void)state;
	post_a(id);
	give_receipt(unknown, 1, 0, 1, ERR_NONE);
	assert_string_equal(answer.text, "no_such_transfer\n");
	give_receipt(id, 9, 0, 1, ERR_NONE);
	assert_string_equal(answer.text, "no_such_chunk\n");
	give_receipt(id, 1, 0, 5, ERR_NONE);
	assert_string_equal(answer.text, "chunk_size\n");
	call_with("POST", "/internal/v1/receipts", headers, STR("nonsense\n\nmore\n"));
	expect_status(200);
	assert_string_equal(answer.text, "bad_request\nbad_request\nbad_request\n");
	call_with("POST", "/internal/v1/receipts", headers, STR("no end"));
	expect_error(400, "bad_request");
	call_with("POST", "/internal/v1/receipts", headers, STR_NONE);
	expect_error(400, "bad_request");
	call_transfer("ann", "GET", id, "", STR_NONE);
	assert_int_equal(number_of("pending_chunks"), 3);
}

static void a_low_disk_by_receipt(void **state)
{
	char id[ULID_SIZE];

	(void)state;
	post_a(id);
	pthread_mutex_lock(&node.lock);
	node.is_low = true; /* so that no probe contradicts */
	pthread_mutex_unlock(&node.lock);
	give_receipt(id, 1, 0, 65536, ERR_DISK_LOW);
	assert_string_equal(answer.text, "ok\n");
	assert_false(node_works());
}

static void registrations(void **state)
{
	static const char *const rows[] = {
		"",
		"[]",
		"{}",
		"{\"node_id\":\"n2\"}",
		"{\"node_id\":\"n 2\",\"addr\":\"127.0.0.1:1\",\"incarnation\":\"i\",\"weight_milli\":1000}",
		"{\"node_id\":\"n2\",\"addr\":\"nowhere\",\"incarnation\":\"i\",\"weight_milli\":1000}",
		"{\"node_id\":\"n2\",\"addr\":\"127.0.0.1:1\",\"incarnation\":\"i\",\"weight_milli\":-1}",
		"{\"node_id\":\"n2\",\"addr\":\"127.0.0.1:1\",\"incarnation\":\"i\",\"weight_milli\":1.5}",
		"{\"node_id\":\"n2\",\"addr\":\"127.0.0.1:1\",\"incarnation\":\"i\",\"weight_milli\":1,\"domain\":7}",
	};
	const char *headers[] = { internal_header, NULL };
	struct fake_node twin;

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		call_with("POST", "/internal/v1/nodes/register", headers, str_from(rows[i]));
		expect_error(400, "bad_request");
	}
	fake_start(&twin, "n1", "second");
	register_node(&twin);
	expect_error(409, "node_id_in_use");
	assert_non_null(strstr(text_of("message"), twin.addr));
	assert_non_null(strstr(text_of("message"), node.addr));
	fake_stop(&twin);
}

/* --- digests and the end --- */

static void digests_are_checked(void **state)
{
	static const char *const rows[] = { "x\n",
					    "1\n",
					    "1 \n",
					    "1 abc\n",
					    "-1 " SHA_A "\n",
					    "5 " SHA_A "\n",
					    "1 " SHA_A,
					    "2 " SHA_A "\n",
					    "0 " SHA_A "\n",
					    "1  " SHA_A "\n",
					    "\n" };
	char id[ULID_SIZE], *many;

	(void)state;
	post_a(id);
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		call_transfer("ann", "POST", id, "/digests", str_from(rows[i]));
		if (answer.status != 400)
			fail_msg("row %zu: %d %s", i, answer.status, answer.text);
	}
	call_transfer("ann", "POST", id, "/digests", STR_NONE);
	expect_status(200);
	assert_int_equal(number_of("bound"), 0);
	/* Many lines: they cross pieces and batches. */
	many = malloc(30000 * 68 + 1);
	for (size_t i = 0; i < 30000; i++)
		snprintf(many + i * 67, 68, "%d %s\n", i % 2 == 0 ? 3 : 4, SHA_A);
	call_transfer("ann", "POST", id, "/digests", str_from(many));
	free(many);
	expect_status(200);
	assert_int_equal(number_of("bound"), 30000);
}

static void the_end_needs_everything(void **state)
{
	char id[ULID_SIZE];

	(void)state;
	post_a(id);
	call_transfer("ann", "POST", id, "/complete", STR_NONE);
	expect_error(409, "incomplete");
	assert_non_null(strstr(text_of("message"), "3 of 3"));
	give_receipt(id, 1, 0, 65536, ERR_NONE);
	give_receipt(id, 2, 0, 1, ERR_NONE);
	call_transfer("ann", "POST", id, "/complete", STR_NONE);
	expect_error(409, "incomplete");
	assert_non_null(strstr(text_of("message"), "1 of 3"));
	give_receipt(id, 1, 1, 1, ERR_NONE);
	call_transfer("ann", "POST", id, "/digests", STR("1 " SHA_A "\n3 " SHA_A "\n"));
	expect_status(200);
	call_transfer("ann", "POST", id, "/complete", STR_NONE);
	expect_error(409, "incomplete");
	assert_non_null(strstr(text_of("message"), "d/empty"));
	call_transfer("ann", "POST", id, "/digests", STR("4 " SHA_EMPTY "\n"));
	call_transfer("ann", "POST", id, "/complete", STR_NONE);
	expect_status(202);
	assert_string_equal(text_of("state"), "merging");
	assert_string_equal(text_of("transfer_id"), id);
}

/* While it is merging (this node has no chunks to give, so it stays so, or comes back), digests are only compared. */
static void digests_after_the_end(void **state)
{
	int64_t deadline_us = clock_mono_us() + 20 * SEC_US;
	char id[ULID_SIZE];

	(void)state;
	/* An empty folder needs no node, so that it does get to its end. */
	post("ann", "batch=empty", "heng-manifest 1\nD 755 0 .\nF 644 0 0 none\nend 2 0\n");
	expect_status(201);
	assert_true(str_copy(str_from(text_of("transfer_id")), id, sizeof(id)));
	call_transfer("ann", "POST", id, "/digests", STR("1 " SHA_EMPTY "\n"));
	expect_status(200);
	call_transfer("ann", "POST", id, "/complete", STR_NONE);
	expect_status(202);
	do {
		assert_true(clock_mono_us() < deadline_us);
		call_transfer("ann", "GET", id, "", STR_NONE);
	} while (strcmp(text_of("state"), "merging") == 0);
	assert_string_equal(text_of("state"), "completed");
	assert_true(number_of("completed_us") > 0);
	call_transfer("ann", "POST", id, "/complete", STR_NONE);
	expect_status(200);
	call_transfer("ann", "POST", id, "/digests", STR("1 " SHA_EMPTY "\n"));
	expect_status(200);
	assert_int_equal(number_of("bound"), 1);
	call_transfer("ann", "POST", id, "/digests", STR("1 " SHA_B "\n"));
	expect_error(409, "batch_exists");
	assert_non_null(strstr(text_of("message"), "none"));
	/* The same folder again is done already; another under the name is refused. */
	post("ann", "batch=empty", "heng-manifest 1\nD 755 0 .\nF 644 0 0 none\nend 2 0\n");
	expect_status(200);
	assert_string_equal(text_of("state"), "completed");
	post("ann", "batch=empty", folder_a);
	expect_error(409, "batch_exists");
}

static void what_is_said_survives_a_restart(void **state)
{
	char id[ULID_SIZE];

	(void)state;
	post_a(id);
	store_all_of_a(id);
	sched_stop(&sched);
	start_sched();
	await_node(true); /* by the store: it did not register again */
	call_transfer("ann", "GET", id, "", STR_NONE);
	expect_status(200);
	assert_int_equal(number_of("stored_chunks"), 3);
	post("ann", "batch=books&source=h:/a", folder_a);
	expect_status(200);
	assert_string_equal(text_of("transfer_id"), id);
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
		CASE(other_arguments),
		CASE(manifests_that_are_refused),
		CASE(a_truncated_manifest_leaves_nothing),
		CASE(who_may_call),
		CASE(whose_transfer),
		CASE(plan_pages),
		CASE(plans_show_what_is_stored),
		CASE(a_target_that_is_out),
		CASE(receipts_that_are_refused),
		CASE(a_low_disk_by_receipt),
		CASE(registrations),
		CASE(digests_are_checked),
		CASE(the_end_needs_everything),
		CASE(digests_after_the_end),
		CASE(what_is_said_survives_a_restart),
		CASE(starts_that_are_refused),
		cmocka_unit_test(configuration_is_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
