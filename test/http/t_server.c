#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/rng.h"
#include "http/server.h"
#include "wire/http1.h"

#define PATIENCE_S      20
#define FILE_SIZE_BYTES (5 * MIB)
#define HOST            "Host: h\r\n"

/* --- the application under the server --- */

struct app {
	struct http_options options;
	struct http_server *server;
	struct work *work;
	int file_fd;
	uint32_t file_crc;
	pthread_mutex_t lock; /* protects what follows */
	pthread_cond_t changed;
	bool is_gate_open;
	unsigned running_count, gone_count, end_count, wait_count;
	enum err_code gone_code;
	bool is_stopped;
};

struct upload {
	struct app *app;
	uint64_t size;
	uint32_t crc;
	struct http_call *call;
	struct str piece;
	struct job job;
};

static void app_change(struct app *app, unsigned *count)
{
	pthread_mutex_lock(&app->lock);
	(*count)++;
	pthread_cond_broadcast(&app->changed);
	pthread_mutex_unlock(&app->lock);
}

static enum err_code app_gone_code(struct app *app)
{
	pthread_mutex_lock(&app->lock);
	enum err_code code = app->gone_code;
	pthread_mutex_unlock(&app->lock);
	return code;
}

static void app_wait(struct app *app, const unsigned *count, unsigned least)
{
	struct timespec due;
	clock_gettime(CLOCK_REALTIME, &due);
	due.tv_sec += PATIENCE_S;
	pthread_mutex_lock(&app->lock);
	while (*count < least)
		assert_int_equal(pthread_cond_timedwait(&app->changed, &app->lock, &due), 0);
	pthread_mutex_unlock(&app->lock);
}

static void app_open_gate(struct app *app)
{
	pthread_mutex_lock(&app->lock);
	app->is_gate_open = true;
	pthread_cond_broadcast(&app->changed);
	pthread_mutex_unlock(&app->lock);
}

static void app_pass_gate(struct app *app)
{
	app_change(app, &app->running_count);
	pthread_mutex_lock(&app->lock);
	while (!app->is_gate_open)
		pthread_cond_wait(&app->changed, &app->lock);
	pthread_mutex_unlock(&app->lock);
}

static void hello_begin(struct http_call *call, void *app)
{
	(void)app;
	http_reply_header(call, "X-Good", "yes");
	http_reply_header(call, "X-Bad", "a\r\nX-Evil: b");
	http_reply(call, 200, "text/plain", STR("hello"));
}

static void echo_begin(struct http_call *call, void *app)
{
	char query[16], text[256];
	size_t size = 0;
	(void)app;
	bool has_query = http_query(call, "q", query, sizeof(query), &size);
	snprintf(text, sizeof(text), "%.*s|%.*s|%s|%.*s", STR_ARG(http_param(call, "first")),
		 STR_ARG(http_param(call, "second")), has_query ? query : "none", STR_ARG(http_header(call, "x-in")));
	assert_null(http_param(call, "third").data);
	http_reply(call, 200, "text/plain", str_from(text));
}

static void upload_answer(struct http_call *call, struct upload *upload)
{
	char text[64];
	snprintf(text, sizeof(text), "%llu %08x", (unsigned long long)upload->size, upload->crc);
	free(upload);
	http_reply(call, 200, "text/plain", str_from(text));
}

static int upload_data(struct http_call *call, struct str piece)
{
	struct upload *upload = http_state(call);
	upload->size += piece.size;
	upload->crc = crc32c(upload->crc, piece.data, piece.size);
	return 0;
}

static void upload_end(struct http_call *call)
{
	struct upload *upload = http_state(call);
	app_change(upload->app, &upload->app->end_count);
	upload_answer(call, upload);
}

static void upload_gone(struct http_call *call, const struct err *err)
{
	struct upload *upload = http_state(call);
	struct app *app = upload->app;
	free(upload);
	pthread_mutex_lock(&app->lock);
	app->gone_code = err->code;
	pthread_mutex_unlock(&app->lock);
	app_change(app, &app->gone_count);
}

static struct upload *upload_new(struct http_call *call, struct app *app)
{
	struct upload *upload = must_zalloc(1, sizeof(*upload));
	upload->app = app;
	upload->call = call;
	http_set_state(call, upload);
	return upload;
}

static void upload_begin(struct http_call *call, void *app)
{
	static const struct http_sink sink = { upload_data, upload_end, upload_gone };
	http_take_body(call, &sink);
	/* The sink must not have been called yet. */
	upload_new(call, app);
}

/* Each piece is looked at on a pool thread, while the loop keeps its memory valid. */
static void pool_run(struct job *job)
{
	struct upload *upload = job->owner;
	upload->crc = crc32c(upload->crc, upload->piece.data, upload->piece.size);
	upload->size += upload->piece.size;
}

static void pool_run_gated(struct job *job)
{
	struct upload *upload = job->owner;
	app_pass_gate(upload->app);
	pool_run(job);
}

static void pool_done(struct job *job, struct loop *home)
{
	struct upload *upload = job->owner;
	(void)home;
	http_body_resume(upload->call);
}

static int pool_submit(struct http_call *call, struct str piece, void (*run)(struct job *))
{
	struct upload *upload = http_state(call);
	app_change(upload->app, &upload->app->wait_count);
	upload->piece = piece;
	upload->job = (struct job){ .run = run, .done = pool_done, .owner = upload };
	assert_true(work_submit(upload->app->work, &upload->job, http_loop(call)));
	return HTTP_BODY_WAIT;
}

static int pool_data(struct http_call *call, struct str piece) { return pool_submit(call, piece, pool_run); }
static int gated_data(struct http_call *call, struct str piece) { return pool_submit(call, piece, pool_run_gated); }

static void pool_begin(struct http_call *call, void *app)
{
	static const struct http_sink sink = { pool_data, upload_end, upload_gone };
	upload_new(call, app);
	http_take_body(call, &sink);
}

static void gated_begin(struct http_call *call, void *app)
{
	static const struct http_sink sink = { gated_data, upload_end, upload_gone };
	upload_new(call, app);
	http_take_body(call, &sink);
}

/* Says that it must wait, but has resumed already: nothing may be lost. */
static int hasty_data(struct http_call *call, struct str piece)
{
	(void)upload_data(call, piece);
	http_body_resume(call);
	return HTTP_BODY_WAIT;
}

static void hasty_begin(struct http_call *call, void *app)
{
	static const struct http_sink sink = { hasty_data, upload_end, upload_gone };
	upload_new(call, app);
	http_take_body(call, &sink);
}

static int reject_data(struct http_call *call, struct str piece)
{
	struct err err;
	(void)piece;
	free(http_state(call));
	err_set(&err, ERR_DIGEST_CONFLICT, "not this one");
	http_reply_err(call, &err);
	return -ERR_DIGEST_CONFLICT;
}

static void reject_begin(struct http_call *call, void *app)
{
	static const struct http_sink sink = { reject_data, upload_end, upload_gone };
	upload_new(call, app);
	http_take_body(call, &sink);
}

static void refuse_begin(struct http_call *call, void *app)
{
	struct err err;
	(void)app;
	err_set(&err, ERR_FORBIDDEN, "no");
	http_reply_err(call, &err);
}

/* Takes the body only after a trip to the pool, as a handler does that must ask a database first. */
struct later {
	struct http_call *call;
	struct job job;
};

static void later_run(struct job *job) { (void)job; }

static void later_done(struct job *job, struct loop *home)
{
	static const struct http_sink sink = { upload_data, upload_end, upload_gone };
	struct later *later = job->owner;
	struct http_call *call = later->call;
	(void)home;
	free(later);
	upload_new(call, http_app(call));
	http_take_body(call, &sink);
}

static void later_begin(struct http_call *call, void *arg)
{
	struct app *app = arg;
	struct later *later = must_zalloc(1, sizeof(*later));
	later->call = call;
	later->job = (struct job){ .run = later_run, .done = later_done, .owner = later };
	assert_true(work_submit(app->work, &later->job, http_loop(call)));
}

static void file_begin(struct http_call *call, void *arg)
{
	struct app *app = arg;
	char text[32];
	uint64_t offset = 0;
	if (http_query(call, "offset", text, sizeof(text), NULL))
		assert_true(str_to_u64(str_from(text), &offset));
	http_reply_file(call, 200, "application/octet-stream", dup(app->file_fd), (int64_t)offset,
			FILE_SIZE_BYTES - offset);
}

static void big_begin(struct http_call *call, void *app)
{
	struct buf body = BUF_INIT(8 * MIB);
	(void)app;
	while (body.size < 3 * MIB)
		buf_printf(&body, "[%zu]", body.size);
	http_reply_json(call, 200, &body);
}

static int task_run(struct http_task *task)
{
	struct str mode = http_header(task->call, "x-mode");
	if (str_eq_c(mode, "gate"))
		app_pass_gate(task->app);
	if (str_eq_c(mode, "fail")) {
		task->retry_after_us = 1500 * MSEC_US;
		return err_set(&task->err, ERR_NO_SPACE, "full");
	}
	if (str_eq_c(mode, "mute"))
		return -ERR_INTERNAL;
	if (str_eq_c(mode, "large")) {
		for (int i = 0; i < 1000; i++)
			buf_append_c(&task->answer, "0123456789");
		return 0;
	}
	if (str_eq_c(mode, "empty")) {
		task->status = 204;
		return 0;
	}
	task->status = 201;
	buf_printf(&task->answer, "{\"got\":\"%.*s\"}", STR_ARG(buf_str(&task->body)));
	return 0;
}

static void task_begin(struct http_call *call, void *arg)
{
	struct app *app = arg;
	http_run_task(call, app->work, 64, KIB, task_run);
}

static const struct http_route routes[] = {
	{ "GET", "/hello", hello_begin },
	{ "GET", "/", hello_begin },
	{ "GET", "/echo/:first/x/:second", echo_begin },
	{ "PUT", "/upload", upload_begin },
	{ "POST", "/upload", upload_begin },
	{ "PUT", "/pool", pool_begin },
	{ "PUT", "/gated", gated_begin },
	{ "PUT", "/hasty", hasty_begin },
	{ "PUT", "/reject", reject_begin },
	{ "PUT", "/refuse", refuse_begin },
	{ "PUT", "/later", later_begin },
	{ "GET", "/file", file_begin },
	{ "GET", "/big", big_begin },
	{ "POST", "/task", task_begin },
	{ NULL, NULL, NULL },
};

static void make_file(struct app *app)
{
	struct rng rng;
	char *data = must_alloc(FILE_SIZE_BYTES);
	rng_seed(&rng, 7);
	for (size_t at = 0; at < FILE_SIZE_BYTES; at += sizeof(uint64_t)) {
		uint64_t number = rng_u64(&rng);
		memcpy(data + at, &number, sizeof(number));
	}
	app->file_fd = memfd_create("t_server", MFD_CLOEXEC);
	assert_true(app->file_fd >= 0);
	for (size_t at = 0; at < FILE_SIZE_BYTES;) {
		ssize_t put = write(app->file_fd, data + at, FILE_SIZE_BYTES - at);
		assert_true(put > 0);
		at += (size_t)put;
	}
	app->file_crc = crc32c(0, data, FILE_SIZE_BYTES);
	free(data);
}

static struct app *app_new(enum loop_backend backend)
{
	struct app *app = must_zalloc(1, sizeof(*app));
	struct err err;
	app->options = http_options_default;
	app->options.thread_count = 2;
	app->options.backend = backend;
	pthread_mutex_init(&app->lock, NULL);
	pthread_cond_init(&app->changed, NULL);
	make_file(app);
	if (work_new("test", 2, 64, &app->work, &err) < 0)
		fail_msg("%s", err.text);
	return app;
}

static void app_start(struct app *app)
{
	struct sock_addr addr;
	struct err err;
	if (sock_addr_parse("127.0.0.1:0", &addr, &err) < 0 ||
	    http_server_new(&app->options, &addr, routes, app, &app->server, &err) < 0 ||
	    http_server_start(app->server, &err) < 0)
		fail_msg("%s", err.text);
	assert_true(sock_port(http_server_addr(app->server)) > 0);
}

static void app_free(struct app *app)
{
	app_open_gate(app);
	if (app->server)
		http_server_stop(app->server, 0);
	work_free(&app->work);
	http_server_free(&app->server);
	close(app->file_fd);
	pthread_mutex_destroy(&app->lock);
	pthread_cond_destroy(&app->changed);
	free(app);
}

/* --- a client --- */

struct client {
	int fd;
	struct buf in;
	struct http1_head head;
	struct buf body;
	size_t body_size;
	uint32_t body_crc;
};

static void client_open(struct client *client, const struct app *app)
{
	const struct sock_addr *addr = http_server_addr(app->server);
	struct timeval patience = { .tv_sec = PATIENCE_S };
	*client = (struct client){ .in = BUF_INIT(64 * MIB), .body = BUF_INIT(MIB) };
	client->fd = socket(addr->storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(client->fd >= 0);
	/* Before the timeouts are set: the kernel then resumes it by itself when it is interrupted. */
	assert_int_equal(connect(client->fd, (const struct sockaddr *)&addr->storage, addr->size), 0);
	setsockopt(client->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	setsockopt(client->fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
}

static void client_close(struct client *client)
{
	close(client->fd);
	buf_fini(&client->in);
	buf_fini(&client->body);
}

static bool client_try_send(struct client *client, const char *data, size_t size)
{
	while (size > 0) {
		ssize_t sent = send(client->fd, data, size, MSG_NOSIGNAL);
		if (sent < 0 && errno == EINTR)
			continue;
		if (sent <= 0)
			return false;
		data += sent;
		size -= (size_t)sent;
	}
	return true;
}

static void client_say(struct client *client, const char *text)
{
	assert_true(client_try_send(client, text, strlen(text)));
}

/* Bytes received, 0 at the end. */
static ssize_t client_fill(struct client *client)
{
	assert_true(buf_reserve(&client->in, 64 * KIB));
	ssize_t got;
	/* The kernel takes a former test's ring down in this thread, which made it, and that ends a call with a timeout early. */
	do
		got = recv(client->fd, client->in.data + client->in.size, 64 * KIB, 0);
	while (got < 0 && errno == EINTR);
	if (got > 0)
		client->in.size += (size_t)got;
	return got;
}

/* The status, or 0 at the connection's end. The body's text is in client->body (its first MiB), its size and checksum beside. */
static int client_read_for(struct client *client, bool is_head_request)
{
	int result;
	http1_head_init(&client->head, HTTP1_RESPONSE);
	client->head.is_head_request = is_head_request;
	while ((result = http1_head_parse(&client->head, client->in.data, client->in.size)) == HTTP1_MORE) {
		ssize_t got = client_fill(client);
		if (got < 0)
			fail_msg("no answer: %s", strerror(errno));
		if (got == 0) {
			assert_int_equal(client->in.size, 0);
			return 0;
		}
	}
	if (result < 0)
		fail_msg("bad answer: %s", client->head.fault);
	if (client->head.status >= 200)
		assert_int_equal(http1_header_get(&client->head, client->in.data, STR("x-request-id")).size, 16);
	struct http1_body body;
	size_t at = client->head.head_size;
	http1_body_init(&body, &client->head);
	buf_clear(&client->body);
	client->body_size = 0;
	client->body_crc = 0;
	for (;;) {
		size_t used;
		struct str piece;
		result = http1_body_step(&body, client->in.data + at, client->in.size - at, &used, &piece);
		assert_true(result >= 0);
		at += used;
		client->body_size += piece.size;
		if (piece.size > 0)
			client->body_crc = crc32c(client->body_crc, piece.data, piece.size);
		if (piece.size > 0 && client->body.size + piece.size < MIB)
			buf_append(&client->body, piece);
		if (result == HTTP1_DONE)
			break;
		if (at == client->in.size && client_fill(client) <= 0)
			fail_msg("the answer's body ends early");
	}
	/* Keeps the head for those who look at it: consumed by the next read. */
	int status = client->head.status;
	if (client->head.framing != HTTP1_UNTIL_CLOSE) {
		size_t head_size = client->head.head_size;
		memmove(client->in.data + head_size, client->in.data + at, client->in.size - at);
		client->in.size -= at - head_size;
	}
	return status;
}

static bool client_has_header(struct client *client, const char *name, const char *value)
{
	struct str found = http1_header_get(&client->head, client->in.data, str_from(name));
	return value ? str_eq_c(found, value) : found.data == NULL;
}

static void client_forget_head(struct client *client) { buf_consume(&client->in, client->head.head_size); }

static int client_read(struct client *client)
{
	int status = client_read_for(client, false);
	if (status > 0)
		client_forget_head(client);
	return status;
}

static int client_ask(struct client *client, const char *text)
{
	client_say(client, text);
	return client_read(client);
}

static void assert_body(struct client *client, const char *text)
{
	if (!str_eq_c(buf_str(&client->body), text))
		fail_msg("body '%.*s', not '%s'", STR_ARG(buf_str(&client->body)), text);
}

static bool body_has(struct client *client, const char *text) { return strstr(buf_cstr(&client->body), text) != NULL; }

/* Everything until the connection ends; a reset is not an end. */
static void assert_closed(struct client *client)
{
	ssize_t got;
	while ((got = client_fill(client)) > 0)
		;
	if (got < 0)
		fail_msg("the connection was not closed in order: %s", strerror(errno));
}

/* --- the tests --- */

static void test_keep_alive_and_pipeline(void **state)
{
	struct app *app = *state;
	struct client client;
	app_start(app);
	client_open(&client, app);
	for (int i = 0; i < 3; i++) {
		client_say(&client, "GET /hello HTTP/1.1\r\n" HOST "\r\n");
		assert_int_equal(client_read_for(&client, false), 200);
		assert_true(client_has_header(&client, "x-good", "yes"));
		assert_true(client_has_header(&client, "x-bad", NULL));
		assert_true(client_has_header(&client, "x-evil", NULL));
		assert_true(client_has_header(&client, "connection", NULL));
		assert_true(client_has_header(&client, "content-length", "5"));
		assert_body(&client, "hello");
		client_forget_head(&client);
	}
	/* Many at once, with bodies between them and an empty line, answered in order. */
	client_say(&client,
		   "GET /echo/1/x/2 HTTP/1.1\r\n" HOST "\r\n"
		   "PUT /upload HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\nabc"
		   "\r\nGET /echo/3/x/4 HTTP/1.1\r\n" HOST "\r\n"
		   "PUT /upload HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nT: u\r\n\r\n"
		   "HEAD /hello HTTP/1.1\r\n" HOST "\r\n"
		   "PUT /refuse HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\nabc"
		   "GET /hello HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"
		   "GET /hello HTTP/1.0\r\n\r\n");
	assert_int_equal(client_read(&client), 200);
	assert_body(&client, "1|2|none|");
	assert_int_equal(client_read(&client), 200);
	assert_body(&client, "3 364b3fb7");
	assert_int_equal(client_read(&client), 200);
	assert_body(&client, "3|4|none|");
	assert_int_equal(client_read(&client), 200);
	assert_body(&client, "3 364b3fb7");
	assert_int_equal(client_read_for(&client, true), 200);
	assert_true(client_has_header(&client, "content-length", "5"));
	client_forget_head(&client);
	assert_int_equal(client_read(&client), 403);
	assert_int_equal(client_read_for(&client, false), 200);
	assert_true(client_has_header(&client, "connection", "keep-alive"));
	client_forget_head(&client);
	assert_int_equal(client_read_for(&client, false), 200);
	assert_true(client_has_header(&client, "connection", "close"));
	client_forget_head(&client);
	assert_int_equal(client_read(&client), 0);
	client_close(&client);
}

static void test_a_thousand_pipelined(void **state)
{
	struct app *app = *state;
	struct client client;
	struct buf text = BUF_INIT(MIB);
	app_start(app);
	client_open(&client, app);
	for (int i = 0; i < 1000; i++)
		buf_printf(&text, "GET /echo/%d/x/y HTTP/1.1\r\n" HOST "\r\n", i);
	assert_true(client_try_send(&client, text.data, text.size));
	for (int i = 0; i < 1000; i++) {
		char expected[32];
		snprintf(expected, sizeof(expected), "%d|y|none|", i);
		assert_int_equal(client_read(&client), 200);
		assert_body(&client, expected);
	}
	buf_fini(&text);
	client_close(&client);
}

static void test_byte_by_byte(void **state)
{
	static const char text[] = "PUT /upload HTTP/1.1\r\n" HOST
				   "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"
				   "GET /hello HTTP/1.1\r\n" HOST "\r\n";
	struct app *app = *state;
	struct client client;
	app_start(app);
	client_open(&client, app);
	sock_set_nodelay(client.fd);
	for (size_t i = 0; i < sizeof(text) - 1; i++)
		assert_true(client_try_send(&client, text + i, 1));
	assert_int_equal(client_read(&client), 200);
	assert_body(&client, "3 364b3fb7");
	assert_int_equal(client_read(&client), 200);
	assert_body(&client, "hello");
	client_close(&client);
}

static void test_routes(void **state)
{
	static const struct {
		const char *request;
		int status;
		const char *body, *allow;
	} rows[] = {
		{ "GET /echo/a/x/b?q=c HTTP/1.1\r\n" HOST "X-In: d\r\n\r\n", 200, "a|b|c|d", NULL },
		{ "GET /%65cho/a%2Fb/x/%20+?z&q=%41+b&q=2 HTTP/1.1\r\n" HOST "\r\n", 200, "a/b| +|A+b|", NULL },
		{ "GET /echo/a/x/b?q=0123456789abcdefg HTTP/1.1\r\n" HOST "\r\n", 200, "a|b|none|", NULL },
		{ "GET /echo/a/x/b?q=%4 HTTP/1.1\r\n" HOST "\r\n", 200, "a|b|none|", NULL },
		{ "GET http://else/hello HTTP/1.1\r\n" HOST "\r\n", 200, "hello", NULL },
		{ "GET http://else HTTP/1.1\r\n" HOST "\r\n", 200, "hello", NULL },
		{ "GET / HTTP/1.1\r\n" HOST "\r\n", 200, "hello", NULL },
		{ "GET /echo//x/b HTTP/1.1\r\n" HOST "\r\n", 404, NULL, NULL },
		{ "GET /echo/a/x/b/ HTTP/1.1\r\n" HOST "\r\n", 404, NULL, NULL },
		{ "GET /hello/ HTTP/1.1\r\n" HOST "\r\n", 404, NULL, NULL },
		{ "GET //hello HTTP/1.1\r\n" HOST "\r\n", 404, NULL, NULL },
		{ "GET /a/../hello HTTP/1.1\r\n" HOST "\r\n", 404, NULL, NULL },
		{ "GET /HELLO HTTP/1.1\r\n" HOST "\r\n", 404, NULL, NULL },
		{ "OPTIONS * HTTP/1.1\r\n" HOST "\r\n", 404, NULL, NULL },
		{ "GET /%zz HTTP/1.1\r\n" HOST "\r\n", 400, NULL, NULL },
		{ "GET /a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a HTTP/1.1\r\n" HOST "\r\n",
		  404, NULL, NULL },
		{ "DELETE /upload HTTP/1.1\r\n" HOST "\r\n", 405, NULL, "PUT, POST" },
		{ "put /upload HTTP/1.1\r\n" HOST "\r\n", 405, NULL, "PUT, POST" },
		{ "POST /hello HTTP/1.1\r\n" HOST "Content-Length: 0\r\n\r\n", 405, NULL, "GET, HEAD" },
		{ "PUT /hello HTTP/1.1\r\n" HOST "Content-Length: 2\r\n\r\nab", 405, NULL, "GET, HEAD" },
		{ "CONNECT h:80 HTTP/1.1\r\n" HOST "\r\n", 501, NULL, NULL },
		{ "PUT /upload HTTP/1.1\r\n" HOST "Content-Length: 0\r\n\r\n", 200, "0 00000000", NULL },
		{ "PUT /upload HTTP/1.1\r\n" HOST "\r\n", 200, "0 00000000", NULL },
		{ "PUT /upload HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 200, "0 00000000",
		  NULL },
		{ "PUT /hasty HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\nabc", 200, "3 364b3fb7", NULL },
		{ "PUT /later HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\nabc", 200, "3 364b3fb7", NULL },
	};
	struct app *app = *state;
	struct client client;
	app_start(app);
	/* All on one connection: none of these answers is a reason to close. */
	client_open(&client, app);
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		client_say(&client, rows[i].request);
		int status = client_read_for(&client, false);
		if (status != rows[i].status)
			fail_msg("%s: %d", rows[i].request, status);
		if (rows[i].allow && !client_has_header(&client, "allow", rows[i].allow))
			fail_msg("%s: wrong Allow", rows[i].request);
		if (rows[i].body)
			assert_body(&client, rows[i].body);
		else
			assert_true(body_has(&client, "\"error\":"));
		client_forget_head(&client);
	}
	client_close(&client);
}

static void test_bad_requests(void **state)
{
	static const struct {
		const char *request;
		int status;
		const char *word;
	} rows[] = {
		{ "\x16\x03\x01\x02", 400, "bad_request" },
		{ "hello\r\n", 400, "bad_request" },
		{ "GET / HTTP/1.1\r\n\r\n", 400, "bad_request" },
		{ "GET / HTTP/1.1\nHost: h\n\n", 400, "bad_request" },
		{ "GET / HTTP/3.0\r\n", 505, "http_version" },
		{ "PUT /upload HTTP/1.1\r\n" HOST "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		  400, "bad_request" },
		{ "PUT /upload HTTP/1.1\r\n" HOST "Transfer-Encoding: gzip, chunked\r\n\r\n", 501, "not_implemented" },
		{ "PUT /upload HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\nxyz\r\n", 400, "bad_request" },
		{ "PUT /upload HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n3\r\nabcX", 400, "bad_request" },
		{ "PUT /upload HTTP/1.1\r\n" HOST "Content-Length: 1099511627777\r\n\r\nabc", 413, "limit" },
		{ "PUT /upload HTTP/1.1\r\n" HOST "Expect: magic\r\nContent-Length: 300000\r\n\r\n", 417,
		  "expectation_failed" },
		{ "PUT /nowhere HTTP/1.1\r\n" HOST "Content-Length: 300000\r\n\r\nabc", 404, "no_such_path" },
		{ "PUT /reject HTTP/1.1\r\n" HOST "Content-Length: 300000\r\n\r\nabc", 409, "digest_conflict" },
		{ "PUT /reject HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", 409,
		  "digest_conflict" },
	};
	struct app *app = *state;
	app_start(app);
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct client client;
		client_open(&client, app);
		client_say(&client, rows[i].request);
		int status = client_read_for(&client, false);
		if (status != rows[i].status || !body_has(&client, rows[i].word))
			fail_msg("%s: %d %s", rows[i].request, status, buf_cstr(&client.body));
		assert_true(client_has_header(&client, "connection", "close"));
		assert_closed(&client);
		client_close(&client);
	}
	/* The framing broke under two sinks: each was told once; the early replies of /reject are none of that. */
	app_wait(app, &app->gone_count, 2);
	http_server_stop(app->server, 0);
	assert_int_equal(app->gone_count, 2);
}

static uint32_t send_random(struct client *client, size_t size, size_t chunk_bytes)
{
	struct rng rng;
	uint32_t crc = 0;
	char *data = must_alloc(64 * KIB);
	rng_seed(&rng, 42);
	while (size > 0) {
		size_t now = min_size(size, chunk_bytes ? chunk_bytes : 64 * KIB);
		for (size_t i = 0; i < now; i++)
			data[i] = (char)(rng_u64(&rng) >> 56);
		crc = crc32c(crc, data, now);
		if (chunk_bytes) {
			char line[32];
			snprintf(line, sizeof(line), "%zx\r\n", now);
			client_say(client, line);
		}
		assert_true(client_try_send(client, data, now));
		if (chunk_bytes)
			client_say(client, "\r\n");
		size -= now;
	}
	if (chunk_bytes)
		client_say(client, "0\r\n\r\n");
	free(data);
	return crc;
}

static void test_large_body_by_the_pool(void **state)
{
	struct app *app = *state;
	struct client client;
	char expected[64];
	app_start(app);
	client_open(&client, app);
	for (int is_chunked = 0; is_chunked <= 1; is_chunked++) {
		size_t size = is_chunked ? 3 * MIB + 17 : 20 * MIB;
		if (is_chunked)
			client_say(&client, "PUT /pool HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n");
		else
			client_say(&client, "PUT /pool HTTP/1.1\r\n" HOST "Content-Length: 20971520\r\n\r\n");
		uint32_t crc = send_random(&client, size, is_chunked ? 10007 : 0);
		/* The next request right behind the body. */
		client_say(&client, "GET /hello HTTP/1.1\r\n" HOST "\r\n");
		assert_int_equal(client_read(&client), 200);
		snprintf(expected, sizeof(expected), "%zu %08x", size, crc);
		assert_body(&client, expected);
		assert_int_equal(client_read(&client), 200);
		assert_body(&client, "hello");
	}
	client_close(&client);
}

/* More comes behind a chunked body than any head may be large: all of it belongs to the next requests. */
static void test_much_behind_a_chunked_body(void **state)
{
	struct app *app = *state;
	struct client client;
	struct buf text = BUF_INIT(4 * MIB);
	app_start(app);
	client_open(&client, app);
	buf_append_c(&text, "PUT /pool HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
	for (int i = 0; i < 5000; i++)
		buf_printf(&text, "GET /echo/%d/x/y HTTP/1.1\r\n" HOST "\r\n", i);
	pid_t writer = fork();
	assert_true(writer >= 0);
	if (writer == 0)
		_exit(client_try_send(&client, text.data, text.size) ? 0 : 1);
	assert_int_equal(client_read(&client), 200);
	assert_body(&client, "3 364b3fb7");
	for (int i = 0; i < 5000; i++) {
		char expected[32];
		snprintf(expected, sizeof(expected), "%d|y|none|", i);
		assert_int_equal(client_read(&client), 200);
		assert_body(&client, expected);
	}
	buf_fini(&text);
	client_close(&client);
}

static void test_expect(void **state)
{
	struct app *app = *state;
	struct client client;
	app_start(app);
	client_open(&client, app);
	/* Refused: no 100, and no body is needed for the answer. */
	client_say(&client, "PUT /refuse HTTP/1.1\r\n" HOST "Expect: 100-continue\r\nContent-Length: 5\r\n\r\n");
	assert_int_equal(client_read(&client), 403);
	assert_closed(&client);
	client_close(&client);

	client_open(&client, app);
	for (int i = 0; i < 2; i++) {
		client_say(&client,
			   i == 0 ? "PUT /upload HTTP/1.1\r\n" HOST "Expect: 100-continue\r\nContent-Length: 3\r\n\r\n"
				  : "PUT /later HTTP/1.1\r\n" HOST "Expect: 100-continue\r\nContent-Length: 3\r\n\r\n");
		assert_int_equal(client_read(&client), 100);
		assert_int_equal(client_ask(&client, "abc"), 200);
		assert_body(&client, "3 364b3fb7");
	}
	/* The body is there already: it is not asked for. */
	assert_int_equal(client_ask(&client, "PUT /upload HTTP/1.1\r\n" HOST
					     "Expect: 100-continue\r\nContent-Length: 3\r\n\r\nabc"),
			 200);
	/* Nothing to send: nothing to wait for. */
	assert_int_equal(client_ask(&client, "PUT /upload HTTP/1.1\r\n" HOST "Expect: 100-continue\r\n\r\n"), 200);
	client_close(&client);
}

static void test_oversized_head(void **state)
{
	struct app *app = *state;
	struct client client;
	size_t sent = 0;
	char block[4096];
	app_start(app);
	/* A gigabyte of header is offered; the server must have answered and closed long before. */
	client_open(&client, app);
	client_say(&client, "GET /hello HTTP/1.1\r\n" HOST "X: ");
	memset(block, 'a', sizeof(block));
	while (sent < GIB && client_try_send(&client, block, sizeof(block)))
		sent += sizeof(block);
	assert_true(sent < 64 * MIB);
	client_close(&client);

	client_open(&client, app);
	client_say(&client, "GET /hello HTTP/1.1\r\n" HOST "X: ");
	for (size_t i = 0; i < 64 * KIB; i += sizeof(block))
		assert_true(client_try_send(&client, block, sizeof(block)));
	assert_int_equal(client_read(&client), 431);
	assert_true(body_has(&client, "header_limit"));
	assert_closed(&client);
	client_close(&client);

	client_open(&client, app);
	client_say(&client, "GET /hello HTTP/1.1\r\n" HOST);
	for (int i = 0; i < 100; i++)
		client_say(&client, "X: y\r\n");
	assert_int_equal(client_read(&client), 431);
	client_close(&client);

	client_open(&client, app);
	client_say(&client, "GET /");
	for (int i = 0; i < 2; i++)
		assert_true(client_try_send(&client, block, sizeof(block)));
	assert_int_equal(client_read(&client), 431);
	client_close(&client);
}

/* These wait for real, briefly: what is tested is time. */
static void test_slow_clients(void **state)
{
	struct app *app = *state;
	struct client client;
	app->options.head_timeout_us = 150 * MSEC_US;
	app->options.idle_timeout_us = 150 * MSEC_US;
	app->options.body_stall_timeout_us = 150 * MSEC_US;
	app_start(app);
	/* A byte now and then does not extend the time for the head. */
	client_open(&client, app);
	int64_t start_us = clock_mono_us();
	struct pollfd poll_fd = { .fd = client.fd, .events = POLLIN };
	client_say(&client, "GET /hello HTTP/1.1\r\nX: ");
	while (poll(&poll_fd, 1, 20) == 0 && clock_mono_us() - start_us < PATIENCE_S * SEC_US)
		client_say(&client, "a");
	assert_int_equal(client_read(&client), 408);
	assert_true(clock_mono_us() - start_us >= 150 * MSEC_US);
	assert_closed(&client);
	client_close(&client);
	/* Nothing at all, and nothing more: closed without a word. */
	client_open(&client, app);
	assert_int_equal(client_read(&client), 0);
	client_close(&client);
	client_open(&client, app);
	assert_int_equal(client_ask(&client, "GET /hello HTTP/1.1\r\n" HOST "\r\n"), 200);
	assert_int_equal(client_read(&client), 0);
	client_close(&client);
	/* In the middle of a body. */
	client_open(&client, app);
	assert_int_equal(client_ask(&client, "PUT /upload HTTP/1.1\r\n" HOST "Content-Length: 10\r\n\r\nabc"), 408);
	assert_true(body_has(&client, "too_slow"));
	assert_closed(&client);
	client_close(&client);
	app_wait(app, &app->gone_count, 1);
	assert_int_equal(app_gone_code(app), ERR_SLOW);
	assert_int_equal(app->end_count, 0);
}

/* A client that does not read its answer. */
static void test_slow_reader(void **state)
{
	struct app *app = *state;
	struct client client;
	app->options.send_stall_timeout_us = 150 * MSEC_US;
	app->options.connection_limit_count = 1;
	app_start(app);
	client_open(&client, app);
	/* More than any socket buffer takes. */
	for (int i = 0; i < 20; i++)
		client_say(&client, "GET /file HTTP/1.1\r\n" HOST "\r\n");
	/* Its place becomes free again. */
	int64_t start_us = clock_mono_us();
	int status;
	do {
		struct client other;
		client_open(&other, app);
		status = client_ask(&other, "GET /hello HTTP/1.1\r\n" HOST "\r\n");
		client_close(&other);
	} while (status == 503 && clock_mono_us() - start_us < PATIENCE_S * SEC_US);
	assert_int_equal(status, 200);
	client_close(&client);
}

static void test_disconnect_in_body(void **state)
{
	struct app *app = *state;
	struct client client;
	app_start(app);
	/* In order: the server still answers. */
	client_open(&client, app);
	client_say(&client, "PUT /upload HTTP/1.1\r\n" HOST "Content-Length: 10\r\n\r\nabc");
	shutdown(client.fd, SHUT_WR);
	assert_int_equal(client_read(&client), 400);
	assert_true(body_has(&client, "truncated_body"));
	assert_closed(&client);
	client_close(&client);
	app_wait(app, &app->gone_count, 1);
	assert_int_equal(app_gone_code(app), ERR_TRUNCATED);
	/* By a reset. */
	client_open(&client, app);
	client_say(&client, "PUT /upload HTTP/1.1\r\n" HOST "Expect: 100-continue\r\nContent-Length: 10\r\n\r\n");
	assert_int_equal(client_read(&client), 100);
	setsockopt(client.fd, SOL_SOCKET, SO_LINGER, &(struct linger){ .l_onoff = 1 }, sizeof(struct linger));
	client_close(&client);
	app_wait(app, &app->gone_count, 2);
	/* While the sink holds a piece: it hears of it when it has given the piece back. */
	client_open(&client, app);
	client_say(&client, "PUT /gated HTTP/1.1\r\n" HOST "Content-Length: 10\r\n\r\nabc");
	app_wait(app, &app->running_count, 1);
	client_close(&client);
	pthread_mutex_lock(&app->lock);
	assert_int_equal(app->gone_count, 2);
	pthread_mutex_unlock(&app->lock);
	app_open_gate(app);
	app_wait(app, &app->gone_count, 3);
	http_server_stop(app->server, 0);
	assert_int_equal(app->gone_count, 3);
	assert_int_equal(app->end_count, 0);
}

static void test_body_limit(void **state)
{
	struct app *app = *state;
	struct client client;
	app->options.body_limit_bytes = 1000;
	app_start(app);
	client_open(&client, app);
	client_say(&client, "PUT /upload HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n");
	for (int i = 0; i < 11; i++)
		client_say(&client, "64\r\n0123456789012345678901234567890123456789012345678901234567890123456789012345"
				    "678901234567890123456789\r\n");
	assert_int_equal(client_read(&client), 413);
	assert_closed(&client);
	client_close(&client);
	app_wait(app, &app->gone_count, 1);
	client_open(&client, app);
	assert_int_equal(client_ask(&client, "PUT /upload HTTP/1.1\r\n" HOST "Content-Length: 1001\r\n\r\n"), 413);
	client_close(&client);
}

/* The client goes on sending after an early answer: it must be able to read that answer. */
static void test_early_answer_survives(void **state)
{
	struct app *app = *state;
	struct client client;
	char block[16 * 1024];
	app_start(app);
	memset(block, 'x', sizeof(block));
	client_open(&client, app);
	client_say(&client, "PUT /refuse HTTP/1.1\r\n" HOST "Content-Length: 2097152\r\n\r\n");
	for (size_t sent = 0; sent < 2 * MIB; sent += sizeof(block))
		assert_true(client_try_send(&client, block, sizeof(block)));
	assert_int_equal(client_read(&client), 403);
	assert_closed(&client);
	client_close(&client);
	/* A small rest is read away instead, and the connection lives. */
	client_open(&client, app);
	for (int i = 0; i < 3; i++) {
		client_say(&client, "PUT /refuse HTTP/1.1\r\n" HOST "Content-Length: 65536\r\n\r\n");
		assert_int_equal(client_read(&client), 403);
		for (int j = 0; j < 4; j++)
			assert_true(client_try_send(&client, block, sizeof(block)));
	}
	assert_int_equal(client_ask(&client, "GET /hello HTTP/1.1\r\n" HOST "\r\n"), 200);
	client_close(&client);
}

static void test_files_and_large_answers(void **state)
{
	struct app *app = *state;
	struct client client;
	app_start(app);
	client_open(&client, app);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(client_ask(&client, "GET /file HTTP/1.1\r\n" HOST "\r\n"), 200);
		assert_int_equal(client.body_size, FILE_SIZE_BYTES);
		assert_int_equal(client.body_crc, app->file_crc);
	}
	assert_int_equal(client_ask(&client, "GET /file?offset=5242870 HTTP/1.1\r\n" HOST "\r\n"), 200);
	assert_int_equal(client.body_size, 10);
	assert_int_equal(client_ask(&client, "GET /file?offset=5242880 HTTP/1.1\r\n" HOST "\r\n"), 200);
	assert_int_equal(client.body_size, 0);
	client_say(&client, "HEAD /file HTTP/1.1\r\n" HOST "\r\n");
	assert_int_equal(client_read_for(&client, true), 200);
	assert_true(client_has_header(&client, "content-length", "5242880"));
	client_forget_head(&client);
	assert_int_equal(client_ask(&client, "GET /big HTTP/1.1\r\n" HOST "\r\n"), 200);
	assert_true(client.body_size >= 3 * MIB);
	client_say(&client, "HEAD /big HTTP/1.1\r\n" HOST "\r\n");
	assert_int_equal(client_read_for(&client, true), 200);
	client_forget_head(&client);
	assert_int_equal(client_ask(&client, "GET /hello HTTP/1.1\r\n" HOST "\r\n"), 200);
	client_close(&client);
}

/* The file becomes shorter than was promised: the client must see a broken answer, not a whole one. */
static void test_file_cut_short(void **state)
{
	struct app *app = *state;
	struct client client;
	app_start(app);
	assert_int_equal(ftruncate(app->file_fd, 100000), 0);
	client_open(&client, app);
	client_say(&client, "GET /file HTTP/1.1\r\n" HOST "\r\n");
	while (client_fill(&client) > 0)
		;
	assert_true(client.in.size >= 100000 && client.in.size < 101000);
	client_close(&client);
}

static void test_tasks(void **state)
{
	struct app *app = *state;
	struct client client;
	app_start(app);
	client_open(&client, app);
	assert_int_equal(client_ask(&client, "POST /task HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\nabc"), 201);
	assert_body(&client, "{\"got\":\"abc\"}");
	assert_int_equal(client_ask(&client, "POST /task HTTP/1.1\r\n" HOST
					     "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"),
			 201);
	assert_body(&client, "{\"got\":\"abc\"}");
	assert_int_equal(client_ask(&client, "POST /task HTTP/1.1\r\n" HOST "X-Mode: empty\r\n\r\n"), 204);
	client_say(&client, "POST /task HTTP/1.1\r\n" HOST "X-Mode: fail\r\n\r\n");
	assert_int_equal(client_read_for(&client, false), 507);
	assert_true(client_has_header(&client, "retry-after", "2"));
	assert_true(body_has(&client, "no_space"));
	client_forget_head(&client);
	assert_int_equal(client_ask(&client, "POST /task HTTP/1.1\r\n" HOST "X-Mode: mute\r\n\r\n"), 500);
	assert_int_equal(client_ask(&client, "POST /task HTTP/1.1\r\n" HOST "X-Mode: large\r\n\r\n"), 500);
	assert_int_equal(client_ask(&client, "POST /task HTTP/1.1\r\n" HOST "Content-Length: 65\r\n\r\n"
					     "01234567890123456789012345678901234567890123456789012345678901234"),
			 413);
	assert_int_equal(client_ask(&client,
				    "POST /task HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n41\r\n"
				    "01234567890123456789012345678901234567890123456789012345678901234\r\n0\r\n\r\n"),
			 413);
	client_close(&client);
	/* Gone before its body was whole. */
	client_open(&client, app);
	client_say(&client, "POST /task HTTP/1.1\r\n" HOST "Content-Length: 10\r\n\r\nabc");
	shutdown(client.fd, SHUT_WR);
	assert_int_equal(client_read(&client), 400);
	client_close(&client);
}

static void test_pool_full(void **state)
{
	struct app *app = *state;
	struct client clients[5];
	struct err err;
	unsigned count = 0, busy_count = 0;
	work_free(&app->work);
	assert_int_equal(work_new("small", 1, 1, &app->work, &err), 0);
	app_start(app);
	/* One runs, one waits; the others are told to come back. */
	client_open(&clients[count], app);
	client_say(&clients[count++], "POST /task HTTP/1.1\r\n" HOST "X-Mode: gate\r\n\r\n");
	app_wait(app, &app->running_count, 1);
	for (; count < COUNT_OF(clients); count++) {
		client_open(&clients[count], app);
		client_say(&clients[count], "POST /task HTTP/1.1\r\n" HOST "X-Mode: gate\r\n\r\n");
	}
	struct pollfd polls[COUNT_OF(clients)];
	for (unsigned i = 0; i < count; i++)
		polls[i] = (struct pollfd){ .fd = clients[i].fd, .events = POLLIN };
	while (busy_count < 3) {
		assert_true(poll(polls, count, PATIENCE_S * 1000) > 0);
		for (unsigned i = 0; i < count; i++) {
			if (!(polls[i].revents & POLLIN))
				continue;
			assert_int_equal(client_read_for(&clients[i], false), 503);
			assert_true(client_has_header(&clients[i], "retry-after", "1"));
			polls[i].fd = -1;
			busy_count++;
		}
	}
	app_open_gate(app);
	for (unsigned i = 0; i < count; i++) {
		if (polls[i].fd >= 0)
			assert_int_equal(client_read(&clients[i]), 201);
		client_close(&clients[i]);
	}
}

static void test_connection_limit(void **state)
{
	struct app *app = *state;
	struct client clients[4], other;
	app->options.connection_limit_count = COUNT_OF(clients);
	app_start(app);
	for (size_t i = 0; i < COUNT_OF(clients); i++) {
		client_open(&clients[i], app);
		assert_int_equal(client_ask(&clients[i], "GET /hello HTTP/1.1\r\n" HOST "\r\n"), 200);
	}
	for (int i = 0; i < 20; i++) {
		client_open(&other, app);
		client_say(&other, "GET /hello HTTP/1.1\r\n" HOST "\r\n");
		assert_int_equal(client_read_for(&other, false), 503);
		assert_true(client_has_header(&other, "retry-after", "1"));
		assert_true(body_has(&other, "busy"));
		assert_closed(&other);
		client_close(&other);
	}
	for (size_t i = 0; i < COUNT_OF(clients); i++) {
		assert_int_equal(client_ask(&clients[i], "GET /hello HTTP/1.1\r\n" HOST "\r\n"), 200);
		client_close(&clients[i]);
	}
	/* Their places come back as soon as the server has seen the ends. */
	int status, tries = 0;
	do {
		client_open(&other, app);
		status = client_ask(&other, "GET /hello HTTP/1.1\r\n" HOST "\r\n");
		client_close(&other);
	} while (status == 503 && ++tries < 1000);
	assert_int_equal(status, 200);
}

static int64_t burnt_us(void)
{
	struct rusage usage;
	getrusage(RUSAGE_SELF, &usage);
	return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * SEC_US + usage.ru_utime.tv_usec +
	       usage.ru_stime.tv_usec;
}

/* Without descriptors accepting fails: the server must wait and then take the connection, and not burn the processor meanwhile. */
static void test_out_of_descriptors(void **state)
{
	struct app *app = *state;
	struct rlimit before, low;
	int taken[256];
	size_t count = 0;
	/* Lowered first, as io_uring looks at the limit when it is asked to accept, not when it accepts. */
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	low = before;
	low.rlim_cur = COUNT_OF(taken);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
	app_start(app);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	while (count < COUNT_OF(taken) && (taken[count] = dup(fd)) >= 0)
		count++;

	const struct sock_addr *addr = http_server_addr(app->server);
	int64_t start_us = burnt_us();
	assert_int_equal(connect(fd, (const struct sockaddr *)&addr->storage, addr->size), 0);
	assert_int_equal(send(fd, "GET /hello HTTP/1.0\r\n\r\n", 23, MSG_NOSIGNAL), 23);
	struct pollfd poll_fd = { .fd = fd, .events = POLLIN };
	/* A descriptor of the test before may come free late, and the connection be taken at once: then there is nothing to see here. */
	if (poll(&poll_fd, 1, 250) == 0)
		assert_true(burnt_us() - start_us < 100 * MSEC_US);
	while (count > 0)
		close(taken[--count]);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	char text[12];
	assert_int_equal(poll(&poll_fd, 1, PATIENCE_S * 1000), 1);
	assert_int_equal(recv(fd, text, sizeof(text), MSG_WAITALL), 12);
	assert_memory_equal(text, "HTTP/1.1 200", 12);
	close(fd);
}

static void *stop_main(void *arg)
{
	struct app *app = arg;
	http_server_stop(app->server, 0);
	pthread_mutex_lock(&app->lock);
	app->is_stopped = true;
	pthread_mutex_unlock(&app->lock);
	return NULL;
}

static void test_stop_while_a_call_runs(void **state)
{
	struct app *app = *state;
	struct client idle, busy, sending, held;
	pthread_t stopper;
	app_start(app);
	client_open(&idle, app);
	assert_int_equal(client_ask(&idle, "GET /hello HTTP/1.1\r\n" HOST "\r\n"), 200);
	client_open(&busy, app);
	client_say(&busy, "POST /task HTTP/1.1\r\n" HOST "X-Mode: gate\r\n\r\n");
	client_open(&sending, app);
	client_say(&sending, "PUT /upload HTTP/1.1\r\n" HOST "Expect: 100-continue\r\nContent-Length: 10\r\n\r\n");
	assert_int_equal(client_read(&sending), 100);
	client_open(&held, app);
	client_say(&held, "PUT /gated HTTP/1.1\r\n" HOST "Content-Length: 10\r\n\r\nabc");
	app_wait(app, &app->running_count, 2);
	assert_int_equal(pthread_create(&stopper, NULL, stop_main, app), 0);
	/* All are cut; but the pool still works for two of the calls, so that the server has to wait for them. */
	assert_int_equal(client_read(&idle), 0);
	assert_int_equal(client_read(&busy), 0);
	assert_true(client_fill(&sending) <= 0);
	assert_true(client_fill(&held) <= 0);
	app_wait(app, &app->gone_count, 1);
	pthread_mutex_lock(&app->lock);
	assert_false(app->is_stopped);
	assert_int_equal(app->gone_count, 1);
	pthread_mutex_unlock(&app->lock);
	app_open_gate(app);
	pthread_join(stopper, NULL);
	assert_int_equal(app->gone_count, 2);
	client_close(&idle);
	client_close(&busy);
	client_close(&sending);
	client_close(&held);
}

static void *graceful_stop_main(void *arg)
{
	struct app *app = arg;
	http_server_stop(app->server, PATIENCE_S * SEC_US);
	return NULL;
}

static void test_stop_with_grace(void **state)
{
	struct app *app = *state;
	struct client idle, busy;
	pthread_t stopper;
	app_start(app);
	client_open(&idle, app);
	assert_int_equal(client_ask(&idle, "GET /hello HTTP/1.1\r\n" HOST "\r\n"), 200);
	client_open(&busy, app);
	client_say(&busy, "POST /task HTTP/1.1\r\n" HOST "X-Mode: gate\r\nContent-Length: 2\r\n\r\nok");
	app_wait(app, &app->running_count, 1);
	assert_int_equal(pthread_create(&stopper, NULL, graceful_stop_main, app), 0);
	assert_int_equal(client_read(&idle), 0); /* so the stop has begun, at least there */
	app_open_gate(app);
	assert_int_equal(client_read(&busy), 201);
	assert_body(&busy, "{\"got\":\"ok\"}");
	client_close(&busy);
	pthread_join(stopper, NULL);
	client_close(&idle);
}

static void test_port_in_use(void **state)
{
	struct app *app = *state;
	struct http_server *second = NULL;
	struct err err;
	app_start(app);
	assert_true(http_server_new(&app->options, http_server_addr(app->server), routes, app, &second, &err) < 0);
	assert_null(second);
	assert_true(err.text[0] != '\0');
}

static void *hammer_main(void *arg)
{
	struct app *app = arg;
	for (int i = 0; i < 20; i++) {
		struct client client;
		client_open(&client, app);
		for (int j = 0; j < 5; j++) {
			client_say(&client, "PUT /pool HTTP/1.1\r\n" HOST "Content-Length: 100000\r\n\r\n");
			uint32_t crc = send_random(&client, 100000, 0);
			char expected[64];
			snprintf(expected, sizeof(expected), "100000 %08x", crc);
			assert_int_equal(client_read(&client), 200);
			assert_body(&client, expected);
		}
		client_close(&client);
	}
	return NULL;
}

static void test_many_clients(void **state)
{
	struct app *app = *state;
	pthread_t threads[8];
	app_start(app);
	for (size_t i = 0; i < COUNT_OF(threads); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, hammer_main, app), 0);
	for (size_t i = 0; i < COUNT_OF(threads); i++)
		pthread_join(threads[i], NULL);
	http_server_stop(app->server, 0);
	assert_int_equal(app->end_count, COUNT_OF(threads) * 100);
	assert_int_equal(app->gone_count, 0);
}

static int set_up(void **state)
{
	enum loop_backend backend = *(const enum loop_backend *)*state;
	*state = app_new(backend);
	return 0;
}

static int tear_down(void **state)
{
	app_free(*state);
	return 0;
}

#define TEST(fn)                                 \
	{                                        \
#fn, fn, set_up, tear_down, NULL \
	}

int main(void)
{
	static enum loop_backend backends[] = { LOOP_EPOLL, LOOP_URING };
	static const struct CMUnitTest rows[] = {
		TEST(test_keep_alive_and_pipeline),
		TEST(test_a_thousand_pipelined),
		TEST(test_byte_by_byte),
		TEST(test_routes),
		TEST(test_bad_requests),
		TEST(test_large_body_by_the_pool),
		TEST(test_much_behind_a_chunked_body),
		TEST(test_expect),
		TEST(test_oversized_head),
		TEST(test_slow_clients),
		TEST(test_slow_reader),
		TEST(test_disconnect_in_body),
		TEST(test_body_limit),
		TEST(test_early_answer_survives),
		TEST(test_files_and_large_answers),
		TEST(test_file_cut_short),
		TEST(test_tasks),
		TEST(test_pool_full),
		TEST(test_connection_limit),
		TEST(test_out_of_descriptors),
		TEST(test_stop_while_a_call_runs),
		TEST(test_stop_with_grace),
		TEST(test_port_in_use),
		TEST(test_many_clients),
	};
	int failed_count = 0;
	for (size_t i = 0; i < COUNT_OF(backends); i++) {
		struct CMUnitTest tests[COUNT_OF(rows)];
		struct loop *loop = NULL;
		struct err err;
		if (loop_new(backends[i], &loop, &err) < 0) {
			printf("skipped: %s\n", err.text);
			continue;
		}
		loop_free(&loop);
		memcpy(tests, rows, sizeof(rows));
		for (size_t j = 0; j < COUNT_OF(rows); j++)
			tests[j].initial_state = &backends[i];
		failed_count += cmocka_run_group_tests_name(backends[i] == LOOP_EPOLL ? "epoll" : "io_uring", tests,
							    NULL, NULL);
	}
	return failed_count;
}
