/* A node for tests of the scheduler: answers probes as told, and counts what it is asked. Include after cmocka.h. */
#ifndef TEST_FOLDER_FAKE_NODE_H
#define TEST_FOLDER_FAKE_NODE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "http/server.h"
#include "plug/store.h"

struct fake_node {
	struct http_server *server;
	char addr[SOCK_TEXT_SIZE];
	pthread_mutex_t lock; /* protects what is answered */
	char id[STORE_NODE_ID_SIZE], incarnation[33], diagnosis[64];
	bool is_low, is_failing; /* failing: every probe gets a 500 */
	uint64_t free_bytes;
	atomic_uint good_count, removed_count;
	char removed_id[64]; /* read after removed_count said so */
	/* Its inventory; without a start_id it has none. */
	char start_id[33];
	const char *held;                            /* NULL: it fails; static text */
	void (*before_held)(void *owner);            /* when it is asked, before it answers; NULL: nothing */
	void (*answer_held)(struct http_call *call); /* instead of `held`; NULL: that */
	void *owner;
	atomic_uint held_count;
};

static void fake_health(struct http_call *call, void *app)
{
	struct fake_node *node = app;
	struct buf body = BUF_INIT(4096);
	struct json json;
	int status;

	pthread_mutex_lock(&node->lock);
	status = node->is_failing ? 500 : 200;
	json_init(&json, &body);
	json_open(&json, NULL);
	json_c(&json, "status", node->diagnosis[0] != '\0' ? "failed" : node->is_low ? "disk_low" : "ok");
	json_c(&json, "node_id", node->id);
	json_c(&json, "incarnation", node->incarnation);
	if (node->start_id[0] != '\0')
		json_c(&json, "start_id", node->start_id);
	json_u64(&json, "free_bytes", node->free_bytes);
	json_u64(&json, "total_bytes", 1000 * (uint64_t)GIB);
	json_u64(&json, "inodes_free", 1000000);
	json_u64(&json, "inodes_total", 2000000);
	json_u64(&json, "reserved_bytes", 1000);
	json_bool(&json, "is_low", node->is_low);
	json_c(&json, "diagnosis", node->diagnosis);
	json_u64(&json, "chunks_written", 0);
	json_u64(&json, "write_failures", 0);
	json_close(&json);
	pthread_mutex_unlock(&node->lock);
	if (status == 200)
		atomic_fetch_add(&node->good_count, 1);
	http_reply_json(call, status, &body);
}

static void fake_remove(struct http_call *call, void *app)
{
	struct fake_node *node = app;

	(void)str_copy(http_param(call, "id"), node->removed_id, sizeof(node->removed_id));
	atomic_fetch_add(&node->removed_count, 1);
	http_reply(call, 200, "application/json", STR("{}"));
}

static uint64_t fake_query(struct http_call *call, const char *name)
{
	char text[24];
	size_t size = 0;
	uint64_t value = 0;

	assert_true(http_query(call, name, text, sizeof(text), &size));
	assert_true(str_to_u64((struct str){ text, size }, &value));
	return value;
}

/* Of a list, what comes after what the query says; a line that is no chunk's as it is. */
static void fake_reply_held(struct http_call *call, const char *held)
{
	const uint64_t after_file = fake_query(call, "after_file"), after_chunk = fake_query(call, "after_chunk");
	struct str rest = str_from(held), line;
	struct buf body = BUF_INIT(4096);

	while (str_cut(&rest, '\n', &line)) {
		unsigned long long file_id, chunk_index;

		if (sscanf(line.data, "%llu %llu ", &file_id, &chunk_index) == 2 &&
		    (file_id < after_file || (file_id == after_file && chunk_index <= after_chunk)))
			continue;
		buf_append(&body, line);
		buf_append_c(&body, "\n");
	}
	buf_append(&body, rest);
	http_reply(call, 200, "text/plain", buf_str(&body));
	buf_fini(&body);
}

static void fake_held(struct http_call *call, void *app)
{
	struct fake_node *node = app;
	const char *held;
	void (*before)(void *owner);

	pthread_mutex_lock(&node->lock);
	held = node->held;
	before = node->before_held;
	pthread_mutex_unlock(&node->lock);
	if (before)
		before(node->owner);
	atomic_fetch_add(&node->held_count, 1);
	if (node->answer_held)
		node->answer_held(call);
	else if (held)
		fake_reply_held(call, held);
	else
		http_reply(call, 500, "text/plain", STR("broken"));
}

static const struct http_route fake_routes[] = {
	{ "GET", "/health", fake_health },
	{ "DELETE", "/internal/v1/transfer/:id", fake_remove },
	{ "GET", "/internal/v1/transfer/:id/chunks", fake_held },
	{ NULL, NULL, NULL },
};

static void fake_start(struct fake_node *node, const char *id, const char *incarnation)
{
	struct http_options options = http_options_default;
	struct sock_addr addr;

	memset(node, 0, sizeof(*node));
	pthread_mutex_init(&node->lock, NULL);
	snprintf(node->id, sizeof(node->id), "%s", id);
	snprintf(node->incarnation, sizeof(node->incarnation), "%s", incarnation);
	node->free_bytes = 100 * (uint64_t)GIB;
	options.thread_count = 1;
	options.backend = LOOP_EPOLL;
	assert_int_equal(sock_addr_parse("127.0.0.1:0", &addr, NULL), 0);
	assert_int_equal(http_server_new(&options, &addr, fake_routes, node, &node->server, NULL), 0);
	assert_int_equal(http_server_start(node->server, NULL), 0);
	sock_addr_text(http_server_addr(node->server), node->addr);
}

static void fake_stop(struct fake_node *node)
{
	if (!node->server)
		return;
	http_server_stop(node->server, 0);
	http_server_free(&node->server);
	pthread_mutex_destroy(&node->lock);
}

#endif
