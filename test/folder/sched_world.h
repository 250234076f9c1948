/* The world of the scheduler's tests: a real scheduler on a free port, a node that answers probes as told, and calls over the wire, as clients and
 * nodes make them. Include after cmocka.h. */
#ifndef TEST_FOLDER_SCHED_WORLD_H
#define TEST_FOLDER_SCHED_WORLD_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "base/hash.h"
#include "fake_node.h"
#include "folder/receipt.h"
#include "folder/sched.h"
#include "sys/fetch.h"
#include "sys/fs.h"

#define CLUSTER_KEY "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
#define SHA_EMPTY   "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define SHA_A       "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"
#define SHA_B       "3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d"

static char dir[64], key_path[128];
static struct sched *sched;
static struct fake_node node;
static int64_t probe_interval_us, transfer_expiry_us = 7 * 24 * 3600 * SEC_US;
static const char *conf_profile = "", *conf_decision_log = "";
static int conf_places;
static uint64_t conf_transfer_bytes_max;
static int64_t conf_transfer_entries_max;
static struct sched_user users[] = {
	{ .name = "ann", .role = 0 },
	{ .name = "bob", .role = 0 },
	{ .name = "aud", .role = 1 },
	{ .name = "op", .role = 2 },
};
static char user_keys[COUNT_OF(users)][DIGEST_HEX_SIZE];
static char internal_header[128];
static const char *receipt_node = "n1";

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

UNUSED static void await_node(bool is_working)
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
		.probe_interval_us = probe_interval_us,
		.probe_timeout_us = 2 * SEC_US,
		.node_lost_after_us = 30 * SEC_US,
		.transfer_expiry_us = transfer_expiry_us,
		.transfer_bytes_max = conf_transfer_bytes_max,
		.transfer_entries_max = conf_transfer_entries_max,
		.profile = conf_profile,
		.decision_log = conf_decision_log,
		.decision_log_rotate_bytes = 64 * MIB,
		.decision_log_keep = 8,
		.decision_log_places = conf_places,
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
	probe_interval_us = 50 * MSEC_US;
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
UNUSED static void post_a(char id[ULID_SIZE])
{
	post("ann", "batch=books&source=h:/a", folder_a);
	expect_status(201);
	assert_true(str_copy(str_from(text_of("transfer_id")), id, ULID_SIZE));
}

UNUSED static void call_transfer(const char *user, const char *method, const char *id, const char *rest,
				 struct str body)
{
	char path[256];

	snprintf(path, sizeof(path), "/api/v1/transfers/%s%s", id, rest);
	call_as(user, method, path, body);
}

UNUSED static void give_receipt(const char *id, uint64_t file_id, uint64_t index, uint64_t size, enum err_code outcome)
{
	struct store_receipt receipt = {
		.file_id = file_id,
		.chunk_index = index,
		.size_bytes = size,
		.digest = SHA_A,
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

	snprintf(receipt.node_id, sizeof(receipt.node_id), "%s", receipt_node);
	snprintf(receipt.transfer_id, sizeof(receipt.transfer_id), "%s", id);
	receipt_write(&body, &receipt);
	call_with("POST", "/internal/v1/receipts", headers, buf_str(&body));
	buf_fini(&body);
}

UNUSED static void store_all_of_a(const char *id)
{
	give_receipt(id, 1, 0, 65536, ERR_NONE);
	assert_string_equal(answer.text, "ok\n");
	give_receipt(id, 1, 1, 1, ERR_NONE);
	assert_string_equal(answer.text, "ok\n");
	give_receipt(id, 2, 0, 1, ERR_NONE);
	assert_string_equal(answer.text, "ok\n");
}

#endif
