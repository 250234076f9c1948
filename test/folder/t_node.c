#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/json.h"
#include "core/report.h"
#include "folder/disk.h"
#include "folder/node.h"
#include "folder/receipt.h"
#include "sys/fetch.h"
#include "sys/fs.h"
#include "wire/ticket.h"

#define KEY_HEX "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
static const char T[] = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
static const char hello[] = "hello, chunk";
#define HELLO_SIZE (sizeof(hello) - 1)

/* --- a scheduler that does as it is told --- */

struct script {
	pthread_mutex_t lock; /* protects all below */
	pthread_cond_t changed;
	enum err_code receipt_result;  /* of receipts that say stored */
	enum err_code register_result; /* ERR_NONE: 200 */
	struct store_receipt receipts[64];
	size_t receipt_count, register_count;
	bool is_answer_odd; /* to receipts: one line too many */
	char finished[256]; /* the answer to the next sweeps */
	char asked[256];    /* what the last one asked */
	size_t sweep_count;
	bool is_sweep_held; /* no answer comes until it is released */
	char removed[256];  /* what the node said last that it removes */
	bool is_removal_refused;
	struct report_message report; /* the last one */
	size_t report_count;
};
struct world {
	char path[64];
	struct script script;
	struct work *work;
	struct http_server *server;
	struct sock_addr addr; /* the scheduler's, kept over a restart */
	char url[SOCK_TEXT_SIZE + 16], key_file[128];
	struct node_conf conf;
	struct node *node;
	char node_url[SOCK_TEXT_SIZE + 16];
	struct fetch *fetch;
	struct ticket_keys keys;
	char internal_header[128];
};

static int register_run(struct http_task *task)
{
	struct world *world = task->app;
	enum err_code result;

	pthread_mutex_lock(&world->script.lock);
	result = world->script.register_result;
	world->script.register_count++;
	pthread_cond_broadcast(&world->script.changed);
	pthread_mutex_unlock(&world->script.lock);
	if (result != ERR_NONE)
		return err_set(&task->err, result, "scripted refusal");
	buf_append_c(&task->answer, "{\"probe_interval_us\":100000}");
	return 0;
}

static int receipts_run(struct http_task *task)
{
	struct world *world = task->app;
	struct script *script = &world->script;
	struct str rest = buf_str(&task->body), line;
	int r = 0;

	pthread_mutex_lock(&script->lock);
	while (r == 0 && str_cut(&rest, '\n', &line)) {
		struct store_receipt receipt;

		r = receipt_parse(line, &receipt, &task->err);
		if (r == 0 && script->receipt_count < COUNT_OF(script->receipts))
			script->receipts[script->receipt_count++] = receipt;
		receipt_answer_write(&task->answer, receipt.outcome == ERR_NONE ? script->receipt_result : ERR_NONE);
	}
	if (script->is_answer_odd)
		receipt_answer_write(&task->answer, ERR_NONE);
	pthread_cond_broadcast(&script->changed);
	pthread_mutex_unlock(&script->lock);
	return r;
}

static int finished_run(struct http_task *task)
{
	struct world *world = task->app;
	struct script *script = &world->script;

	pthread_mutex_lock(&script->lock);
	snprintf(script->asked, sizeof(script->asked), "%.*s", STR_ARG(buf_str(&task->body)));
	script->sweep_count++;
	pthread_cond_broadcast(&script->changed);
	while (script->is_sweep_held)
		pthread_cond_wait(&script->changed, &script->lock);
	buf_append_c(&task->answer, script->finished);
	pthread_mutex_unlock(&script->lock);
	return 0;
}

static void finished_begin(struct http_call *call, void *app)
{
	http_run_task(call, ((struct world *)app)->work, 64 * KIB, 64 * KIB, finished_run);
}

/* What is announced is there still. */
static int removed_run(struct http_task *task)
{
	struct world *world = task->app;
	struct script *script = &world->script;
	char path[128];
	int result = 0;

	snprintf(path, sizeof(path), "%s/tmp/%s", world->path, T);
	pthread_mutex_lock(&script->lock);
	snprintf(script->removed, sizeof(script->removed), "%.*s", STR_ARG(buf_str(&task->body)));
	if (script->is_removal_refused || access(path, F_OK) != 0)
		result = err_set(&task->err, ERR_STORE, "scripted refusal");
	pthread_cond_broadcast(&script->changed);
	pthread_mutex_unlock(&script->lock);
	buf_append_c(&task->answer, "{}");
	return result;
}

static void removed_begin(struct http_call *call, void *app)
{
	http_run_task(call, ((struct world *)app)->work, 64 * KIB, 64 * KIB, removed_run);
}

static int report_run(struct http_task *task)
{
	struct world *world = task->app;
	struct script *script = &world->script;
	struct report_message *message = must_zalloc(1, sizeof(*message));
	const int result = report_read(buf_str(&task->body), message, &task->err);

	pthread_mutex_lock(&script->lock);
	if (result == 0) {
		script->report = *message;
		script->report_count++;
		pthread_cond_broadcast(&script->changed);
	}
	pthread_mutex_unlock(&script->lock);
	free(message);
	return result;
}

static void report_begin(struct http_call *call, void *app)
{
	http_run_task(call, ((struct world *)app)->work, 64 * KIB, 64 * KIB, report_run);
}

static void register_begin(struct http_call *call, void *app)
{
	http_run_task(call, ((struct world *)app)->work, 64 * KIB, 64 * KIB, register_run);
}

static void receipts_begin(struct http_call *call, void *app)
{
	http_run_task(call, ((struct world *)app)->work, 4 * MIB, 64 * KIB, receipts_run);
}

static const struct http_route scheduler_routes[] = {
	{ "POST", "/internal/v1/nodes/register", register_begin },
	{ "POST", "/internal/v1/receipts", receipts_begin },
	{ "POST", "/internal/v1/transfers/finished", finished_begin },
	{ "POST", "/internal/v1/reports", report_begin },
	{ "POST", "/internal/v1/removed", removed_begin },
	{ NULL, NULL, NULL },
};

static void scheduler_up(struct world *world)
{
	struct http_options options = http_options_default;
	struct err err = ERR_INIT;

	options.thread_count = 1;
	if (http_server_new(&options, &world->addr, scheduler_routes, world, &world->server, &err) < 0 ||
	    http_server_start(world->server, &err) < 0)
		fail_msg("%s", err.text);
	world->addr = *http_server_addr(world->server);
}

static void scheduler_down(struct world *world)
{
	http_server_stop(world->server, 0);
	http_server_free(&world->server);
}

static void script_receipts(struct world *world, enum err_code result)
{
	pthread_mutex_lock(&world->script.lock);
	world->script.receipt_result = result;
	pthread_mutex_unlock(&world->script.lock);
}

static void script_register(struct world *world, enum err_code result)
{
	pthread_mutex_lock(&world->script.lock);
	world->script.register_result = result;
	pthread_mutex_unlock(&world->script.lock);
}

static size_t receipt_count(struct world *world)
{
	pthread_mutex_lock(&world->script.lock);
	const size_t count = world->script.receipt_count;
	pthread_mutex_unlock(&world->script.lock);
	return count;
}

/* Waits until a receipt of that outcome has come; fails after 10 s. */
static struct store_receipt await_receipt(struct world *world, enum err_code outcome)
{
	struct script *script = &world->script;
	struct store_receipt found = { 0 };
	struct timespec until;
	bool is_found = false;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 10;
	pthread_mutex_lock(&script->lock);
	for (int r = 0; !is_found && r == 0;) {
		for (size_t i = 0; i < script->receipt_count && !is_found; i++) {
			is_found = script->receipts[i].outcome == outcome;
			if (is_found)
				found = script->receipts[i];
		}
		if (!is_found)
			r = pthread_cond_timedwait(&script->changed, &script->lock, &until);
	}
	pthread_mutex_unlock(&script->lock);
	assert_true(is_found);
	return found;
}

/* Waits until `count` sweeps more have asked; fails after 10 s. */
static void await_sweeps(struct world *world, size_t count)
{
	struct script *script = &world->script;
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 10;
	pthread_mutex_lock(&script->lock);
	count += script->sweep_count;
	while (script->sweep_count < count)
		assert_int_equal(pthread_cond_timedwait(&script->changed, &script->lock, &until), 0);
	pthread_mutex_unlock(&script->lock);
}

static void script_sweeps(struct world *world, const char *finished, bool is_held)
{
	pthread_mutex_lock(&world->script.lock);
	snprintf(world->script.finished, sizeof(world->script.finished), "%s", finished);
	world->script.is_sweep_held = is_held;
	pthread_cond_broadcast(&world->script.changed);
	pthread_mutex_unlock(&world->script.lock);
}

/* --- the node and its client --- */

static void node_up(struct world *world)
{
	struct err err = ERR_INIT;
	char text[SOCK_TEXT_SIZE];

	if (node_start(&world->conf, &world->node, &err) < 0)
		fail_msg("%s", err.text);
	snprintf(world->node_url, sizeof(world->node_url), "http://%s", sock_addr_text(node_addr(world->node), text));
}

static int setup_on(void **state, enum loop_backend backend)
{
	struct world *world = must_zalloc(1, sizeof(*world));
	struct err err = ERR_INIT;
	uint8_t key[MAC_SIZE];
	char hex[2 * MAC_SIZE + 1], text[SOCK_TEXT_SIZE];

	snprintf(world->path, sizeof(world->path), "/tmp/t_node-XXXXXX");
	assert_non_null(mkdtemp(world->path));
	pthread_mutex_init(&world->script.lock, NULL);
	pthread_cond_init(&world->script.changed, NULL);
	assert_int_equal(work_new("script", 2, 100, &world->work, &err), 0);
	assert_int_equal(sock_addr_parse("127.0.0.1:0", &world->addr, &err), 0);
	scheduler_up(world);
	snprintf(world->url, sizeof(world->url), "http://%s/", sock_addr_text(&world->addr, text));
	snprintf(world->key_file, sizeof(world->key_file), "%s/keys", world->path);
	assert_int_equal(fs_replace_file(world->key_file, STR("5 " KEY_HEX "\n"), 0600, &err), 0);
	assert_int_equal(ticket_keys_parse(STR("5 " KEY_HEX "\n"), &world->keys, &err), 0);
	mac_derive(world->keys.keys[0].key, TICKET_KEY_SIZE, STR("internal"), key);
	hex_encode(key, sizeof(key), hex);
	snprintf(world->internal_header, sizeof(world->internal_header), "X-Internal-Key: %s", hex);
	world->conf = (struct node_conf){
		.node_id = "n1",
		.listen = "127.0.0.1:0",
		.advertise = "",
		.state_dir = world->path,
		.data_dir = "",
		.scheduler = world->url,
		.cluster_key_file = world->key_file,
		.domain = "",
		.weight_milli = 1000,
		.clock_skew_us = 5 * SEC_US,
		.sweep_interval_us = 3600 * SEC_US,
		.stray_after_us = 24 * 3600 * SEC_US,
		.threads = 1,
		.workers = 4,
		.loop = (int)backend,
	};
	assert_int_equal(fetch_new(&world->fetch, &err), 0);
	node_up(world);
	*state = world;
	return 0;
}

static int setup(void **state) { return setup_on(state, LOOP_AUTO); }
static int setup_epoll(void **state) { return setup_on(state, LOOP_EPOLL); }

static int teardown(void **state)
{
	struct world *world = *state;
	struct err err = ERR_INIT;

	fetch_free(&world->fetch);
	node_stop(&world->node);
	assert_null(world->node);
	if (world->server)
		scheduler_down(world);
	work_free(&world->work);
	assert_int_equal(fs_remove_tree(AT_FDCWD, world->path, &err), 0);
	pthread_cond_destroy(&world->script.changed);
	pthread_mutex_destroy(&world->script.lock);
	free(world);
	return 0;
}

/* One PUT and all that can be wrong with it. */
struct attempt {
	const char *data;
	uint64_t file_id, chunk_index;
	uint64_t object_bytes, chunk_bytes;   /* of the ticket; 0: one chunk of exactly the data */
	const char *digest_of;                /* the bytes the digest is claimed of; NULL: the data */
	const char *digest_header;            /* NULL: the right one */
	int64_t claimed_extra_bytes;          /* X-Chunk-Size says more than is sent */
	int64_t ticket_life_us, sign_life_us; /* 0: a minute */
	const char *token;                    /* NULL: made */
	bool has_no_token;
	/* Answered. */
	char used_token[TICKET_TOKEN_SIZE];
	int status;
	struct err err;
	char body[1024];
};

static void make_token(const struct world *world, struct attempt *attempt, const char *hex, uint64_t size)
{
	struct ticket ticket = {
		.file_id = attempt->file_id,
		.object_bytes = attempt->object_bytes ? attempt->object_bytes : strlen(attempt->data),
		.chunk_bytes = attempt->chunk_bytes ? attempt->chunk_bytes : MIB,
		.digest = DIGEST_SHA256,
		.expires_wall_us = clock_wall_us() + (attempt->ticket_life_us ? attempt->ticket_life_us : 60 * SEC_US),
		.user = "li",
	};
	const struct ticket_request request = { T, attempt->file_id, attempt->chunk_index, size, str_from(hex) };
	char text[TICKET_TEXT_SIZE];
	uint8_t key[TICKET_KEY_SIZE];
	struct err err = ERR_INIT;

	memcpy(ticket.transfer_id, T, sizeof(T));
	assert_int_equal(ticket_issue(&world->keys, &ticket, text, &err), 0);
	ticket_transfer_key(world->keys.keys[0].key, T, key);
	assert_int_equal(ticket_sign(str_from(text), key, &request,
				     clock_wall_us() + (attempt->sign_life_us ? attempt->sign_life_us : 60 * SEC_US),
				     attempt->used_token, &err),
			 0);
}

static int put(struct world *world, struct attempt *attempt)
{
	struct fetch_call call = FETCH_CALL_INIT;
	const char *claimed = attempt->digest_of ? attempt->digest_of : attempt->data;
	const uint64_t size = strlen(attempt->data) + (uint64_t)attempt->claimed_extra_bytes;
	char hex[DIGEST_HEX_SIZE], url[256], token_header[TICKET_TOKEN_SIZE + 32], digest_header[128], size_header[64];

	digest_of(DIGEST_SHA256, claimed, strlen(claimed), hex);
	if (attempt->token)
		snprintf(attempt->used_token, sizeof(attempt->used_token), "%s", attempt->token);
	else
		make_token(world, attempt, hex, size);
	snprintf(url, sizeof(url), "%s/api/v1/upload/chunk/%s/%llu/%llu", world->node_url, T,
		 (unsigned long long)attempt->file_id, (unsigned long long)attempt->chunk_index);
	snprintf(token_header, sizeof(token_header), "X-Auth-Token: %s", attempt->used_token);
	snprintf(digest_header, sizeof(digest_header), "%s: %s",
		 attempt->digest_header ? attempt->digest_header : "X-Chunk-SHA256", hex);
	snprintf(size_header, sizeof(size_header), "X-Chunk-Size: %llu", (unsigned long long)size);
	call.method = "PUT";
	call.url = url;
	call.headers[0] = digest_header;
	call.headers[1] = size_header;
	call.headers[2] = attempt->has_no_token ? NULL : token_header;
	call.body = str_from(attempt->data);
	call.timeout_us = 30 * SEC_US;
	(void)fetch_do(world->fetch, &call, &attempt->err);
	attempt->status = call.status;
	snprintf(attempt->body, sizeof(attempt->body), "%.*s", STR_ARG(buf_str(&call.answer)));
	buf_fini(&call.answer);
	return call.status;
}

static void assert_put(struct world *world, struct attempt *attempt, int status, enum err_code code)
{
	attempt->err = ERR_INIT;
	put(world, attempt);
	if (attempt->status != status || (status >= 400 && attempt->err.code != code))
		fail_msg("status %d, %s: %s", attempt->status, err_word(attempt->err.code), attempt->err.text);
}

/* Is the chunk there, and is nothing else? */
static void assert_stored(const struct world *world, uint64_t file_id, uint64_t chunk_index, bool is_stored)
{
	char relative[256], path[512], folder[256];

	disk_chunk_path(T, file_id, chunk_index, relative, sizeof(relative));
	snprintf(path, sizeof(path), "%s/%s", world->path, relative);
	assert_int_equal(access(path, F_OK), is_stored ? 0 : -1);
	snprintf(folder, sizeof(folder), "%s/tmp/%s/%llu", world->path, T, (unsigned long long)file_id);
	DIR *dir = opendir(folder);
	for (const struct dirent *entry; dir && (entry = readdir(dir));)
		assert_null(strstr(entry->d_name, ".part."));
	if (dir)
		closedir(dir);
}

static int internal_call(struct world *world, const char *method, const char *path, bool has_key,
			 struct buf *ret_answer)
{
	struct fetch_call call = FETCH_CALL_INIT;
	struct err err = ERR_INIT;
	char url[256];

	snprintf(url, sizeof(url), "%s%s", world->node_url, path);
	call.method = method;
	call.url = url;
	call.headers[0] = has_key ? world->internal_header : NULL;
	(void)fetch_do(world->fetch, &call, &err);
	*ret_answer = call.answer;
	return call.status;
}

/* --- tests --- */

static void t_put(void **state)
{
	struct world *world = *state;
	struct attempt attempt = { .data = hello, .file_id = 1 };

	assert_put(world, &attempt, 200, ERR_NONE);
	assert_non_null(strstr(attempt.body, "\"is_repeat\":false"));
	assert_non_null(strstr(attempt.body, "\"node\":\"n1\""));
	assert_stored(world, 1, 0, true);
	const struct store_receipt receipt = await_receipt(world, ERR_NONE);
	assert_string_equal(receipt.transfer_id, T);
	assert_string_equal(receipt.node_id, "n1");
	assert_string_equal(receipt.user, "li");
	assert_int_equal(receipt.size_bytes, HELLO_SIZE);
	assert_true(receipt.finished_wall_us >= receipt.started_wall_us && receipt.started_wall_us > 0);
	assert_non_null(strstr(world->node_url, receipt.node_addr));
	assert_non_null(strstr(receipt.client_addr, "127.0.0.1:"));
	/* Again, signed anew: nothing is written, the receipt is given again. */
	assert_put(world, &attempt, 200, ERR_NONE);
	assert_non_null(strstr(attempt.body, "\"is_repeat\":true"));
	assert_int_equal(receipt_count(world), 2);
	/* Other bytes for the same chunk. */
	attempt.data = "hello, other";
	assert_put(world, &attempt, 409, ERR_DIGEST_CONFLICT);
	/* The end of a file that is cut. */
	struct attempt last = {
		.data = "end", .file_id = 2, .chunk_index = 1, .object_bytes = 103, .chunk_bytes = 100
	};
	assert_put(world, &last, 200, ERR_NONE);
	assert_stored(world, 2, 1, true);
}

/* Of the requests that the disk had to do with, and of nothing else. */
static void t_report(void **state)
{
	struct world *world = *state;
	struct script *script = &world->script;
	struct attempt good = { .data = hello, .file_id = 1 },
		       stranger = { .data = hello, .file_id = 2, .has_no_token = true };
	struct timespec until;
	struct report report;

	assert_put(world, &good, 200, ERR_NONE);
	assert_put(world, &good, 200, ERR_NONE); /* a repeat writes nothing */
	assert_put(world, &stranger, 401, ERR_UNAUTHENTICATED);
	good.data = "hello, other";
	assert_put(world, &good, 409, ERR_DIGEST_CONFLICT); /* the client's fault, not the node's */
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 20;
	pthread_mutex_lock(&script->lock);
	while (script->report_count == 0 || script->report.report.requests < 3)
		assert_int_equal(pthread_cond_timedwait(&script->changed, &script->lock, &until), 0);
	report = script->report.report;
	assert_string_equal(script->report.node_id, "n1");
	assert_int_equal(script->report.dir_count, 1); /* state_dir and data_dir are one */
	assert_string_equal(script->report.dirs[0].path, world->path);
	assert_string_equal(script->report.dirs[0].diagnosis, "");
	pthread_mutex_unlock(&script->lock);
	assert_int_equal(report.requests, 3);
	assert_int_equal(report.failures, 0);
	assert_int_equal(report.writes, 1);
	assert_int_equal(report.write_failures, 0);
	assert_int_equal(report.in_flight, 0);
	assert_int_equal(report.leaving, 0);
	assert_true(report.p50_us > 0 && report.p50_us < 10 * SEC_US);
	assert_true(report.disk_free_bytes > 0 && report.disk_free_bytes < report.disk_total_bytes);
}

static void t_refused(void **state)
{
	struct world *world = *state;
	struct attempt attempt = { .data = hello, .file_id = 1, .digest_of = "hello, chunK" };

	assert_put(world, &attempt, 422, ERR_DIGEST_MISMATCH);
	assert_stored(world, 1, 0, false);
	(void)await_receipt(world, ERR_DIGEST_MISMATCH);
	/* As many digits as the right one has, and signed: only the header tells that they are another kind's. */
	attempt = (struct attempt){ .data = hello, .file_id = 1, .digest_header = "X-Chunk-SM3" };
	assert_put(world, &attempt, 400, ERR_BAD_REQUEST);
	assert_true(strstr(attempt.body, "sha256") && strstr(attempt.body, "X-Chunk-SHA256"));
	attempt = (struct attempt){ .data = hello, .file_id = 1, .digest_header = "X-Chunk-MD5" };
	assert_put(world, &attempt, 400, ERR_BAD_REQUEST);
	attempt = (struct attempt){ .data = hello, .file_id = 1, .claimed_extra_bytes = 1 };
	assert_put(world, &attempt, 400, ERR_CHUNK_SIZE);
	attempt = (struct attempt){ .data = hello, .file_id = 1, .object_bytes = HELLO_SIZE + 1 };
	assert_put(world, &attempt, 400, ERR_CHUNK_SIZE);
	attempt = (struct attempt){ .data = hello, .file_id = 1, .chunk_index = 1 };
	assert_put(world, &attempt, 404, ERR_NO_CHUNK);
	attempt = (struct attempt){ .data = hello, .file_id = 1, .ticket_life_us = -60 * SEC_US };
	assert_put(world, &attempt, 401, ERR_TICKET_EXPIRED);
	attempt = (struct attempt){ .data = hello, .file_id = 1, .sign_life_us = -60 * SEC_US };
	assert_put(world, &attempt, 401, ERR_CLOCK_SKEW);
	attempt = (struct attempt){ .data = hello, .file_id = 1, .token = "a.1.b.c" };
	assert_put(world, &attempt, 401, ERR_TICKET_BAD);
	attempt = (struct attempt){ .data = hello, .file_id = 1, .has_no_token = true };
	assert_put(world, &attempt, 401, ERR_UNAUTHENTICATED);
	attempt = (struct attempt){ .data = hello, .file_id = 1 };
	world->keys.keys[0].key[0] ^= 1;
	assert_put(world, &attempt, 401, ERR_TICKET_BAD);
	world->keys.keys[0].key[0] ^= 1;
	assert_stored(world, 1, 0, false);
	/* None of these spoilt the chunk for an honest sender. */
	assert_put(world, &attempt, 200, ERR_NONE);
}

static void t_replay(void **state)
{
	struct world *world = *state;
	struct attempt attempt = { .data = hello, .file_id = 1 };

	assert_put(world, &attempt, 200, ERR_NONE);
	struct attempt again = { .data = hello, .file_id = 1, .token = attempt.used_token };
	assert_put(world, &again, 409, ERR_NONCE_REPLAYED);
	assert_non_null(strstr(again.err.text, "is stored here"));
	/* The first use failed on its digest: the chunk is not here, and the answer says so. */
	struct attempt wrong = { .data = hello, .file_id = 2, .digest_of = "hello, chunK" };
	assert_put(world, &wrong, 422, ERR_DIGEST_MISMATCH);
	again = (struct attempt){ .data = hello, .file_id = 2, .digest_of = "hello, chunK", .token = wrong.used_token };
	assert_put(world, &again, 409, ERR_NONCE_REPLAYED);
	assert_non_null(strstr(again.err.text, "not stored here"));
}

/* Half a body, then the end of the connection. */
static void t_truncated(void **state)
{
	struct world *world = *state;
	struct attempt attempt = { .data = hello, .file_id = 1 };
	char hex[DIGEST_HEX_SIZE], head[2048], answer[2048];
	size_t got = 0;

	digest_of(DIGEST_SHA256, hello, HELLO_SIZE, hex);
	make_token(world, &attempt, hex, HELLO_SIZE);
	const int size = snprintf(
		head, sizeof(head),
		"PUT /api/v1/upload/chunk/%s/1/0 HTTP/1.1\r\nHost: n\r\nX-Auth-Token: %s\r\nX-Chunk-SHA256: %s\r\n"
		"X-Chunk-Size: %zu\r\nContent-Length: %zu\r\n\r\nhello,",
		T, attempt.used_token, hex, HELLO_SIZE, HELLO_SIZE);
	const struct sock_addr *addr = node_addr(world->node);
	const int fd = socket(addr->storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(fd, (const struct sockaddr *)&addr->storage, addr->size), 0);
	assert_int_equal(send(fd, head, (size_t)size, MSG_NOSIGNAL), size);
	shutdown(fd, SHUT_WR);
	for (ssize_t n; got < sizeof(answer) - 1 && (n = recv(fd, answer + got, sizeof(answer) - 1 - got, 0)) > 0;)
		got += (size_t)n;
	answer[got] = '\0';
	close(fd);
	assert_non_null(strstr(answer, " 400 "));
	assert_non_null(strstr(answer, "truncated_body"));
	(void)await_receipt(world, ERR_TRUNCATED);
	/* The next one gets the turn as soon as the half-written file is gone. */
	assert_put(world, &attempt, 200, ERR_NONE);
	assert_stored(world, 1, 0, true);
}

static void t_scheduler_down(void **state)
{
	struct world *world = *state;
	struct attempt attempt = { .data = hello, .file_id = 1 };

	scheduler_down(world);
	assert_put(world, &attempt, 503, ERR_SCHEDULER_DOWN);
	assert_stored(world, 1, 0, true);
	scheduler_up(world);
	assert_put(world, &attempt, 200, ERR_NONE);
	assert_non_null(strstr(attempt.body, "\"is_repeat\":true"));
	/* A scheduler that was away is told of the node again. */
	struct timespec until;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 10;
	pthread_mutex_lock(&world->script.lock);
	while (world->script.register_count < 2)
		assert_int_equal(pthread_cond_timedwait(&world->script.changed, &world->script.lock, &until), 0);
	pthread_mutex_unlock(&world->script.lock);
}

/* With the journal on, from here. */
static void keep_receipts(struct world *world, uint64_t limit_bytes)
{
	node_stop(&world->node);
	world->conf.receipt_journal_bytes = limit_bytes;
	node_up(world);
}

static unsigned long kept_count(struct world *world)
{
	struct buf answer;
	unsigned long count;

	assert_int_equal(internal_call(world, "GET", "/health", true, &answer), 200);
	const char *at = strstr(buf_cstr(&answer), "\"receipts_kept\":");
	assert_non_null(at);
	count = strtoul(at + sizeof("\"receipts_kept\":") - 1, NULL, 10);
	buf_fini(&answer);
	return count;
}

static void await_kept(struct world *world, unsigned long count)
{
	const int64_t end_us = clock_mono_us() + 10 * SEC_US;

	while (kept_count(world) != count)
		if (clock_mono_us() > end_us)
			fail_msg("%lu receipts are kept, not %lu", kept_count(world), count);
}

static void t_kept(void **state)
{
	struct world *world = *state;
	struct attempt attempt = { .data = hello, .file_id = 1 };
	struct attempt wrong = { .data = hello, .file_id = 9, .digest_of = "hello, chunK" };

	keep_receipts(world, MIB);
	scheduler_down(world);
	for (uint64_t id = 1; id <= 3; id++) {
		attempt.file_id = id;
		assert_put(world, &attempt, 202, ERR_NONE);
		assert_non_null(strstr(attempt.body, "\"state\":\"stored_pending\""));
		assert_non_null(strstr(attempt.body, "\"is_repeat\":false"));
		assert_stored(world, id, 0, true);
	}
	assert_put(world, &attempt, 202, ERR_NONE);
	assert_non_null(strstr(attempt.body, "\"is_repeat\":true"));
	assert_put(world, &wrong, 422, ERR_DIGEST_MISMATCH);
	await_kept(world, 5);
	/* They outlive the node. */
	node_stop(&world->node);
	node_up(world);
	assert_int_equal(kept_count(world), 5);
	assert_int_equal(receipt_count(world), 0);
	/* Those kept are told first, in their order; then it is as ever. */
	scheduler_up(world);
	(void)await_receipt(world, ERR_DIGEST_MISMATCH);
	await_kept(world, 0);
	assert_int_equal(receipt_count(world), 5);
	for (uint64_t i = 0; i < 3; i++)
		assert_int_equal(world->script.receipts[i].file_id, i + 1);
	assert_string_equal(world->script.receipts[0].user, "li");
	attempt.file_id = 4;
	assert_put(world, &attempt, 200, ERR_NONE);
	node_stop(&world->node);
	node_up(world);
	assert_int_equal(kept_count(world), 0);
}

/* An answer that fits nothing is none: what it was about is kept, and told again. */
static void t_kept_odd_answer(void **state)
{
	struct world *world = *state;
	struct attempt attempt = { .data = hello, .file_id = 1 };

	keep_receipts(world, MIB);
	script_receipts(world, ERR_INTERNAL);
	assert_put(world, &attempt, 500, ERR_INTERNAL);
	pthread_mutex_lock(&world->script.lock);
	world->script.is_answer_odd = true;
	pthread_mutex_unlock(&world->script.lock);
	assert_put(world, &attempt, 202, ERR_NONE);
	assert_put(world, &attempt, 202, ERR_NONE);
	pthread_mutex_lock(&world->script.lock);
	world->script.is_answer_odd = false;
	world->script.receipt_result = ERR_NONE;
	pthread_mutex_unlock(&world->script.lock);
	await_kept(world, 0);
	assert_put(world, &attempt, 200, ERR_NONE);
}

/* What the scheduler says to a kept receipt has the consequence that it would have had at once. */
static void t_kept_refused(void **state)
{
	struct world *world = *state;
	static const struct {
		enum err_code code;
		bool is_kept;
	} rows[] = {
		{ ERR_NO_TRANSFER, false }, { ERR_MERGING, true },          { ERR_STATE, false },
		{ ERR_NO_CHUNK, false },    { ERR_DIGEST_CONFLICT, false }, { ERR_BAD_REQUEST, true },
		{ ERR_CHUNK_SIZE, false },
	};

	keep_receipts(world, MIB);
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct attempt attempt = { .data = hello, .file_id = i + 1 };

		scheduler_down(world);
		assert_put(world, &attempt, 202, ERR_NONE);
		script_receipts(world, rows[i].code);
		scheduler_up(world);
		await_kept(world, 0);
		/* The removal is a job of its own. */
		const int64_t end_us = clock_mono_us() + 10 * SEC_US;
		char relative[256], path[512];
		disk_chunk_path(T, i + 1, 0, relative, sizeof(relative));
		snprintf(path, sizeof(path), "%s/%s", world->path, relative);
		while (!rows[i].is_kept && access(path, F_OK) == 0 && clock_mono_us() < end_us)
			fetch_step(world->fetch, MSEC_US);
		assert_stored(world, i + 1, 0, rows[i].is_kept);
	}
}

/* A chunk that went away meanwhile is not called stored; its attempt is told. */
static void t_kept_gone(void **state)
{
	struct world *world = *state;
	struct attempt attempt = { .data = hello, .file_id = 1 };
	struct buf answer;
	char path[128];

	keep_receipts(world, MIB);
	scheduler_down(world);
	assert_put(world, &attempt, 202, ERR_NONE);
	attempt.file_id = 2;
	assert_put(world, &attempt, 202, ERR_NONE);
	snprintf(path, sizeof(path), "/internal/v1/chunk/%s/1/0", T);
	assert_int_equal(internal_call(world, "DELETE", path, true, &answer), 200);
	buf_fini(&answer);
	scheduler_up(world);
	await_kept(world, 0);
	assert_int_equal(receipt_count(world), 2);
	assert_int_equal(world->script.receipts[0].outcome, ERR_CHUNK_GONE);
	assert_int_equal(world->script.receipts[1].outcome, ERR_NONE);
}

/* Told again after a crash, when other bytes took the chunk's place: those are not its, and stay. */
static void t_kept_replaced(void **state)
{
	struct world *world = *state;
	struct attempt old = { .data = "hello, chunK", .file_id = 1 }, new = { .data = hello, .file_id = 1 };
	char journal[128], path[128];
	struct err err = ERR_INIT;
	struct buf answer;

	keep_receipts(world, MIB);
	snprintf(journal, sizeof(journal), "%s/receipts.journal", world->path);
	scheduler_down(world);
	assert_put(world, &old, 202, ERR_NONE);
	AUTO(buf_fini) struct buf text = BUF_INIT(0);
	assert_int_equal(fs_read_file(journal, MIB, &text, &err), 0);
	scheduler_up(world);
	await_kept(world, 0);
	snprintf(path, sizeof(path), "/internal/v1/chunk/%s/1/0", T);
	assert_int_equal(internal_call(world, "DELETE", path, true, &answer), 200);
	buf_fini(&answer);
	assert_put(world, &new, 200, ERR_NONE);
	node_stop(&world->node);
	assert_int_equal(fs_replace_file(journal, buf_str(&text), 0600, &err), 0);
	script_receipts(world, ERR_DIGEST_CONFLICT);
	node_up(world);
	await_kept(world, 0);
	assert_int_equal(receipt_count(world), 3);
	assert_int_equal(world->script.receipts[2].outcome, ERR_CHUNK_GONE);
	assert_stored(world, 1, 0, true);
}

static void t_kept_full(void **state)
{
	struct world *world = *state;
	struct attempt attempt = { .data = hello, .file_id = 1 };
	unsigned kept = 0;

	keep_receipts(world, 2 * KIB);
	scheduler_down(world);
	while (put(world, &attempt) == 202 && kept < 20) {
		kept++;
		attempt.file_id++;
	}
	assert_in_range(kept, 2, 10);
	assert_int_equal(attempt.err.code, ERR_SCHEDULER_DOWN);
	assert_int_equal(attempt.status, 503);
	assert_non_null(strstr(attempt.err.text, "is full"));
	assert_stored(world, attempt.file_id, 0, true);
	scheduler_up(world);
	await_kept(world, 0);
	assert_put(world, &attempt, 200, ERR_NONE);
	assert_non_null(strstr(attempt.body, "\"is_repeat\":true"));
}

static void t_scheduler_refuses(void **state)
{
	struct world *world = *state;
	static const struct {
		enum err_code code;
		int status;
		bool is_kept;
	} rows[] = {
		{ ERR_NO_TRANSFER, 404, false }, { ERR_MERGING, 409, true },          { ERR_STATE, 409, false },
		{ ERR_NO_CHUNK, 404, false },    { ERR_DIGEST_CONFLICT, 409, false },
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct attempt attempt = { .data = hello, .file_id = i + 1 };

		script_receipts(world, rows[i].code);
		assert_put(world, &attempt, rows[i].status, rows[i].code);
		assert_stored(world, i + 1, 0, rows[i].is_kept);
	}
	/* A chunk that was here before the refusal stays, unless its transfer is unknown. */
	struct attempt attempt = { .data = hello, .file_id = 50 };
	script_receipts(world, ERR_NONE);
	assert_put(world, &attempt, 200, ERR_NONE);
	script_receipts(world, ERR_STATE);
	assert_put(world, &attempt, 409, ERR_STATE);
	assert_stored(world, 50, 0, true);
	script_receipts(world, ERR_NO_TRANSFER);
	assert_put(world, &attempt, 404, ERR_NO_TRANSFER);
	assert_stored(world, 50, 0, false);
}

static void t_internal(void **state)
{
	struct world *world = *state;
	struct attempt attempt = { .data = hello, .file_id = 1 };
	struct buf answer;
	char chunk_path[128], transfer_path[128];

	snprintf(chunk_path, sizeof(chunk_path), "/internal/v1/chunk/%s/1/0", T);
	snprintf(transfer_path, sizeof(transfer_path), "/internal/v1/transfer/%s", T);
	assert_put(world, &attempt, 200, ERR_NONE);
	assert_int_equal(internal_call(world, "GET", chunk_path, false, &answer), 401);
	buf_fini(&answer);
	assert_int_equal(internal_call(world, "DELETE", transfer_path, false, &answer), 401);
	buf_fini(&answer);
	assert_int_equal(internal_call(world, "GET", chunk_path, true, &answer), 200);
	assert_int_equal(answer.size, HELLO_SIZE);
	assert_memory_equal(answer.data, hello, HELLO_SIZE);
	buf_fini(&answer);
	for (int round = 0; round < 2; round++) {
		assert_int_equal(internal_call(world, "DELETE", transfer_path, true, &answer), 200);
		buf_fini(&answer);
		assert_int_equal(internal_call(world, "GET", chunk_path, true, &answer), 404);
		assert_non_null(strstr(buf_cstr(&answer), "chunk_not_here"));
		buf_fini(&answer);
	}
	assert_int_equal(internal_call(world, "DELETE", "/internal/v1/transfer/..%2f", true, &answer), 400);
	buf_fini(&answer);
	assert_int_equal(internal_call(world, "GET", "/internal/v1/chunk/x/1/0", true, &answer), 400);
	buf_fini(&answer);
	assert_int_equal(internal_call(world, "GET", "/health", false, &answer), 200);
	assert_non_null(strstr(buf_cstr(&answer), "\"status\":\"ok\""));
	assert_non_null(strstr(buf_cstr(&answer), "\"chunks_written\":1"));
	buf_fini(&answer);
}

static void t_remove_chunk(void **state)
{
	struct world *world = *state;
	struct attempt attempt = { .data = hello, .file_id = 1 };
	char path[128], hex[DIGEST_HEX_SIZE];
	struct buf answer;

	snprintf(path, sizeof(path), "/internal/v1/chunk/%s/1/0", T);
	assert_int_equal(internal_call(world, "DELETE", path, true, &answer), 404);
	assert_non_null(strstr(buf_cstr(&answer), "chunk_not_here"));
	buf_fini(&answer);
	assert_put(world, &attempt, 200, ERR_NONE);
	assert_int_equal(internal_call(world, "DELETE", path, false, &answer), 401);
	buf_fini(&answer);
	assert_stored(world, 1, 0, true);
	assert_int_equal(internal_call(world, "DELETE", path, true, &answer), 200);
	assert_string_equal(buf_cstr(&answer), "{}");
	buf_fini(&answer);
	assert_stored(world, 1, 0, false);
	assert_int_equal(internal_call(world, "DELETE", "/internal/v1/chunk/x/1/0", true, &answer), 400);
	buf_fini(&answer);
	/* Other bytes are no conflict then: nothing remembers the old ones. */
	attempt.data = "hello, other";
	assert_put(world, &attempt, 200, ERR_NONE);
	assert_int_equal(internal_call(world, "DELETE", path, true, &answer), 200);
	buf_fini(&answer);
	/* While somebody writes it: the node has said 100, so the turn is taken. */
	digest_of(DIGEST_SHA256, hello, HELLO_SIZE, hex);
	attempt.data = hello;
	make_token(world, &attempt, hex, HELLO_SIZE);
	char head[2048], said[64];
	const int size = snprintf(head, sizeof(head),
				  "PUT /api/v1/upload/chunk/%s/1/0 HTTP/1.1\r\nHost: n\r\nX-Auth-Token: %s\r\n"
				  "X-Chunk-SHA256: %s\r\nX-Chunk-Size: %zu\r\nContent-Length: %zu\r\n"
				  "Expect: 100-continue\r\n\r\n",
				  T, attempt.used_token, hex, HELLO_SIZE, HELLO_SIZE);
	const struct sock_addr *addr = node_addr(world->node);
	const int fd = socket(addr->storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(fd, (const struct sockaddr *)&addr->storage, addr->size), 0);
	assert_int_equal(send(fd, head, (size_t)size, MSG_NOSIGNAL), size);
	assert_true(recv(fd, said, sizeof(said), 0) > 0);
	assert_memory_equal(said, "HTTP/1.1 100", 12);
	assert_int_equal(internal_call(world, "DELETE", path, true, &answer), 503);
	assert_non_null(strstr(buf_cstr(&answer), "\"busy\""));
	buf_fini(&answer);
	close(fd);
}

/* What the scheduler calls over goes, nothing else, and nothing on a muddled answer. */
static void t_sweep(void **state)
{
	static const char *const muddled[] = { "01ARZ3NDEKTSV4RRFFQ69G5FAW\n", "\n", "../..\n", "x" };
	struct world *world = *state;
	struct attempt attempt = { .data = hello, .file_id = 1 };
	char transfer[64], path[128];

	snprintf(path, sizeof(path), "%s/tmp/%s", world->path, T);
	snprintf(transfer, sizeof(transfer), "%s\n", T);
	node_stop(&world->node);
	world->conf.sweep_interval_us = 100 * MSEC_US;
	node_up(world);
	assert_put(world, &attempt, 200, ERR_NONE);
	await_sweeps(world, 2);
	pthread_mutex_lock(&world->script.lock);
	assert_string_equal(world->script.asked, transfer);
	pthread_mutex_unlock(&world->script.lock);
	assert_stored(world, 1, 0, true);
	for (size_t i = 0; i < COUNT_OF(muddled); i++) {
		script_sweeps(world, muddled[i], false);
		await_sweeps(world, 2);
		assert_stored(world, 1, 0, true);
	}
	/* Nor before the scheduler has written it down. */
	pthread_mutex_lock(&world->script.lock);
	world->script.is_removal_refused = true;
	pthread_mutex_unlock(&world->script.lock);
	script_sweeps(world, transfer, false);
	await_sweeps(world, 3);
	assert_stored(world, 1, 0, true);
	pthread_mutex_lock(&world->script.lock);
	assert_string_equal(world->script.removed, "over 01ARZ3NDEKTSV4RRFFQ69G5FAV\n");
	pthread_mutex_unlock(&world->script.lock);
	/* Stopping waits for no answer. */
	script_sweeps(world, transfer, true);
	await_sweeps(world, 1);
	pthread_mutex_lock(&world->script.lock);
	world->script.is_removal_refused = false;
	pthread_mutex_unlock(&world->script.lock);
	const int64_t began_us = clock_mono_us();
	node_stop(&world->node);
	assert_true(clock_mono_us() - began_us < 3 * SEC_US);
	assert_stored(world, 1, 0, true);
	/* At its start already, and the node's folder is empty then: nothing is asked any more. */
	script_sweeps(world, transfer, false);
	world->conf.sweep_interval_us = 3600 * SEC_US;
	node_up(world);
	for (const int64_t until_us = clock_mono_us() + 10 * SEC_US; access(path, F_OK) == 0;)
		assert_true(clock_mono_us() < until_us);
}

/* Waits until the node has said that it removes this; fails after 10 s. */
static void await_removed(struct world *world, const char *lines)
{
	struct script *script = &world->script;
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 10;
	pthread_mutex_lock(&script->lock);
	while (strcmp(script->removed, lines) != 0)
		if (pthread_cond_timedwait(&script->changed, &script->lock, &until) != 0)
			fail_msg("not '%s' but '%s'", lines, script->removed);
	pthread_mutex_unlock(&script->lock);
}

static void make_old_file(const char *path, int64_t age_us)
{
	const int64_t at_us = clock_wall_us() - age_us;
	const struct timespec at = { .tv_sec = at_us / SEC_US, .tv_nsec = at_us % SEC_US * 1000 };
	const struct timespec times[2] = { at, at };

	assert_int_equal(fs_replace_file(path, STR("begun"), 0600, NULL), 0);
	assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

/* Unfinished files: those of a former process go at the start, those of a live one once they are old; the scheduler hears of both. */
static void t_unfinished(void **state)
{
	struct world *world = *state;
	struct attempt attempt = { .data = hello, .file_id = 1 };
	char old[256], young[256];

	assert_put(world, &attempt, 200, ERR_NONE);
	snprintf(old, sizeof(old), "%s/tmp/%s/1/%s_1_7.part.old", world->path, T, T);
	snprintf(young, sizeof(young), "%s/tmp/%s/1/%s_1_7.part.young", world->path, T, T);
	node_stop(&world->node);
	make_old_file(old, 0);
	make_old_file(young, 0);
	world->conf.stray_after_us = 60 * SEC_US;
	world->conf.sweep_interval_us = 50 * MSEC_US;
	node_up(world);
	await_removed(world, "unfinished 2\n");
	assert_int_equal(access(old, F_OK), -1);
	assert_int_equal(access(young, F_OK), -1);
	node_stop(&world->node);
	/* The look for old ones comes a while after the start's: files are made meanwhile. */
	world->conf.stray_after_us = SEC_US;
	node_up(world);
	make_old_file(old, 3600 * SEC_US);
	make_old_file(young, -3600 * SEC_US);
	await_removed(world, "stray 01ARZ3NDEKTSV4RRFFQ69G5FAV 1 7 5\n");
	for (const int64_t until_us = clock_mono_us() + 10 * SEC_US; access(old, F_OK) == 0;)
		assert_true(clock_mono_us() < until_us);
	assert_int_equal(access(young, F_OK), 0);
	assert_int_equal(unlink(young), 0);
	assert_stored(world, 1, 0, true);
}

/* What is here, told to the scheduler alone, and only by the node that is meant. */
static void t_list(void **state)
{
	static const struct {
		const char *query;
		bool has_no_key;
		int status;
		const char *answer;
	} rows[] = {
		{ "?node=n1&digest=sha256", true, 401, "\"unauthenticated\"" },
		{ "?digest=sha256", false, 400, "which node" },
		{ "?node=n2&digest=sha256", false, 409, "\"node_id_in_use\"" },
		{ "?node=n1", false, 400, "digest" },
		{ "?node=n1&digest=crc", false, 400, "digest" },
		{ "?node=n1&digest=sha256&limit=0", false, 400, "limit" },
		{ "?node=n1&digest=sha256&limit=4097", false, 400, "limit" },
		{ "?node=n1&digest=sha256&after_file=-1", false, 400, "after_file" },
		{ "?node=n1&digest=sha256&last_chunk=9223372036854775808", false, 400, "last_chunk" },
		{ "?node=n1&digest=sha256&last_file=1", false, 200, "1 0 12 sha256:" },
		{ "?node=n1&digest=sha256&limit=1", false, 200, "N 1\n" },
		{ "?node=n1&digest=sha256&after_file=2", false, 200, "N 0\n" },
	};
	struct world *world = *state;
	struct attempt attempt = { .data = hello, .file_id = 1 }, other = { .data = hello, .file_id = 2 };
	struct buf answer;
	char path[256];

	assert_put(world, &attempt, 200, ERR_NONE);
	assert_put(world, &other, 200, ERR_NONE);
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		snprintf(path, sizeof(path), "/internal/v1/transfer/%s/chunks%s", T, rows[i].query);
		if (internal_call(world, "GET", path, !rows[i].has_no_key, &answer) != rows[i].status ||
		    !strstr(buf_cstr(&answer), rows[i].answer))
			fail_msg("%s: %s", rows[i].query, buf_cstr(&answer));
		buf_fini(&answer);
	}
	assert_int_equal(
		internal_call(world, "GET", "/internal/v1/transfer/x/chunks?node=n1&digest=md5", true, &answer), 400);
	buf_fini(&answer);
}

static void t_disk_low(void **state)
{
	struct world *world = *state;
	struct attempt attempt = { .data = hello, .file_id = 1 };
	struct buf answer;

	node_stop(&world->node);
	world->conf.free_floor_bytes = (uint64_t)1 << 60;
	node_up(world);
	assert_put(world, &attempt, 503, ERR_DISK_LOW);
	(void)await_receipt(world, ERR_DISK_LOW);
	assert_int_equal(internal_call(world, "GET", "/health", false, &answer), 200);
	assert_non_null(strstr(buf_cstr(&answer), "\"status\":\"disk_low\""));
	buf_fini(&answer);
}

static void ask_health(struct world *world, bool has_key, const char *order, bool is_drained)
{
	struct fetch_call call = FETCH_CALL_INIT;
	char url[256];

	snprintf(url, sizeof(url), "%s/health", world->node_url);
	call.url = url;
	call.headers[0] = order;
	call.headers[1] = has_key ? world->internal_header : NULL;
	assert_int_equal(fetch_do(world->fetch, &call, NULL), 0);
	assert_non_null(strstr(buf_cstr(&call.answer), is_drained ? "\"is_drained\":true" : "\"is_drained\":false"));
	buf_fini(&call.answer);
}

/* A drained node takes nothing new; what it has it still vouches for. Only the cluster tells it. */
static void t_drained(void **state)
{
	struct world *world = *state;
	struct attempt attempt = { .data = hello, .file_id = 1 }, other = { .data = hello, .file_id = 2 };

	assert_put(world, &attempt, 200, ERR_NONE);
	ask_health(world, false, "X-Node-Order: drain", false);
	ask_health(world, true, "X-Node-Order: drain", true);
	ask_health(world, true, "X-Other: none", true);
	ask_health(world, false, "X-Node-Order: none", true);
	assert_put(world, &other, 503, ERR_NODE_DRAINED);
	(void)await_receipt(world, ERR_NODE_DRAINED);
	assert_put(world, &attempt, 200, ERR_NONE);
	ask_health(world, true, "X-Node-Order: none", false);
	assert_put(world, &other, 200, ERR_NONE);
}

/* Many at once over one connection each, some for the same chunk: one file, everybody answered. */
static char big[300001];
struct sender {
	struct world own; /* keys and addresses as the world's, a fetch of its own */
	uint64_t file_id;
	int status;
};

static void *send_one(void *owner)
{
	struct sender *sender = owner;
	struct attempt attempt = { .data = big, .file_id = sender->file_id };

	sender->status = put(&sender->own, &attempt);
	return NULL;
}

static void t_many_at_once(void **state)
{
	struct world *world = *state;
	enum { COUNT = 12 };
	struct sender senders[COUNT];
	pthread_t threads[COUNT];
	struct err err = ERR_INIT;

	memset(big, 'x', sizeof(big) - 1);
	for (int i = 0; i < COUNT; i++) {
		senders[i].file_id = (uint64_t)i / 4 + 1;
		senders[i].own.keys = world->keys;
		memcpy(senders[i].own.node_url, world->node_url, sizeof(world->node_url));
		assert_int_equal(fetch_new(&senders[i].own.fetch, &err), 0);
		assert_int_equal(pthread_create(&threads[i], NULL, send_one, &senders[i]), 0);
	}
	for (int i = 0; i < COUNT; i++) {
		pthread_join(threads[i], NULL);
		fetch_free(&senders[i].own.fetch);
		assert_int_equal(senders[i].status, 200);
		assert_stored(world, senders[i].file_id, 0, true);
	}
}

static void t_start(void **state)
{
	struct world *world = *state;
	struct node_conf conf = world->conf;
	struct node *second = NULL;
	struct err err = ERR_INIT;
	char path[128], left[192];

	/* The folder is in use. */
	assert_true(node_start(&conf, &second, &err) < 0);
	assert_non_null(strstr(err.text, "lock"));
	/* The id is in use elsewhere, says the scheduler. */
	snprintf(path, sizeof(path), "%s/second", world->path);
	conf.state_dir = path;
	script_register(world, ERR_NODE_CONFLICT);
	assert_int_equal(node_start(&conf, &second, &err), -ERR_NODE_CONFLICT);
	assert_non_null(strstr(err.text, "scripted refusal"));
	script_register(world, ERR_NONE);
	/* Another node's folder. */
	conf.node_id = "n2";
	assert_int_equal(node_start(&conf, &second, &err), -ERR_CONFIG);
	assert_non_null(strstr(err.text, "'n1'"));
	/* In the clear over a network: only when told so. */
	conf.node_id = "n1";
	conf.listen = "0.0.0.0:0";
	assert_int_equal(node_start(&conf, &second, &err), -ERR_CONFIG);
	assert_non_null(strstr(err.hint, "insecure"));
	conf.is_insecure = true;
	assert_int_equal(node_start(&conf, &second, &err), -ERR_CONFIG);
	assert_non_null(strstr(err.hint, "advertise"));
	/* Somebody else's data. */
	conf.listen = "127.0.0.1:0";
	conf.data_dir = world->path;
	assert_true(node_start(&conf, &second, &err) < 0);
	assert_non_null(strstr(err.text, "lock"));
	/* With nothing wrong and no scheduler in sight it starts all the same, and what a killed process was writing goes. */
	snprintf(left, sizeof(left), "%s/second/.receipts.journal.0123456789abcdef", world->path);
	assert_int_equal(close(open(left, O_CREAT | O_WRONLY | O_CLOEXEC, 0600)), 0);
	conf.data_dir = "";
	conf.scheduler = "http://127.0.0.1:1";
	if (node_start(&conf, &second, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(access(left, F_OK), -1);
	node_stop(&second);
	assert_null(second);
}

#define NODE_TEST(name)       cmocka_unit_test_setup_teardown(name, setup, teardown)
#define NODE_TEST_EPOLL(name) cmocka_unit_test_setup_teardown(name, setup_epoll, teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		NODE_TEST(t_put),
		NODE_TEST(t_refused),
		NODE_TEST(t_replay),
		NODE_TEST(t_truncated),
		NODE_TEST(t_scheduler_down),
		NODE_TEST(t_scheduler_refuses),
		NODE_TEST(t_kept),
		NODE_TEST(t_kept_odd_answer),
		NODE_TEST(t_kept_refused),
		NODE_TEST(t_kept_gone),
		NODE_TEST(t_kept_replaced),
		NODE_TEST(t_kept_full),
		NODE_TEST(t_internal),
		NODE_TEST(t_remove_chunk),
		NODE_TEST(t_sweep),
		NODE_TEST(t_unfinished),
		NODE_TEST(t_list),
		NODE_TEST(t_disk_low),
		NODE_TEST(t_drained),
		NODE_TEST(t_report),
		NODE_TEST(t_many_at_once),
		NODE_TEST(t_start),
		NODE_TEST_EPOLL(t_put),
		NODE_TEST_EPOLL(t_truncated),
		NODE_TEST_EPOLL(t_many_at_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
