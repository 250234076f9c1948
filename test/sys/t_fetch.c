/* Against a small scripted server: a thread that does on each connection what the test's script says. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "sys/fetch.h"
#include "sys/fs.h"
#include "sys/sock.h"

#define HEAD_SIZE 8192

struct server;
typedef void script_fn(struct server *server, int fd, int connection);

struct server {
	script_fn *script;
	int listen_fd, stop_fds[2];
	char url[96];
	pthread_t thread;
	/* What it saw; read by the test once the call is over. */
	int connection_count, request_count;
	char head[HEAD_SIZE];
	char *body;
	size_t body_size;
};

static void *serve(void *owner)
{
	struct server *server = owner;

	for (;;) {
		struct pollfd polled[2] = { { server->listen_fd, POLLIN, 0 }, { server->stop_fds[0], POLLIN, 0 } };
		(void)poll(polled, 2, -1);
		if (polled[1].revents)
			return NULL;
		int fd = accept4(server->listen_fd, NULL, NULL, SOCK_CLOEXEC);
		if (fd < 0)
			continue;
		server->script(server, fd, server->connection_count++);
		(void)close(fd);
	}
}

static void server_start(struct server *server, script_fn *script)
{
	struct sock_addr addr;
	char text[SOCK_TEXT_SIZE];

	*server = (struct server){ .script = script };
	assert_int_equal(sock_addr_parse("127.0.0.1:0", &addr, NULL), 0);
	server->listen_fd = sock_listen(&addr, false, NULL);
	assert_true(server->listen_fd >= 0);
	assert_int_equal(sock_local(server->listen_fd, &addr), 0);
	(void)snprintf(server->url, sizeof(server->url), "http://%s/path", sock_addr_text(&addr, text));
	assert_int_equal(pipe2(server->stop_fds, O_CLOEXEC), 0);
	assert_int_equal(pthread_create(&server->thread, NULL, serve, server), 0);
}

static void server_stop(struct server *server)
{
	(void)close(server->stop_fds[1]);
	(void)pthread_join(server->thread, NULL);
	(void)close(server->stop_fds[0]);
	(void)close(server->listen_fd);
	free(server->body);
	server->body = NULL;
}

/* Client and server take turns by what goes over the socket; this tells the thread sanitizer, which does not see that. */
static void take_turn(void)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

	(void)pthread_mutex_lock(&lock);
	(void)pthread_mutex_unlock(&lock);
}

static void say(int fd, const char *text)
{
	take_turn();
	(void)!send(fd, text, strlen(text), MSG_NOSIGNAL);
}

/* The next request's head, byte by byte so that nothing of the body is taken. False at the end. */
static bool read_head(struct server *server, int fd)
{
	size_t size = 0;
	char byte;

	while (size < HEAD_SIZE - 1 && recv(fd, &byte, 1, 0) == 1) {
		take_turn();
		server->head[size++] = byte;
		server->head[size] = '\0';
		if (size >= 4 && memcmp(server->head + size - 4, "\r\n\r\n", 4) == 0) {
			server->request_count++;
			return true;
		}
	}
	return false;
}

static void read_body(struct server *server, int fd, size_t size)
{
	free(server->body);
	server->body = malloc(size + 1);
	server->body_size = 0;
	while (server->body_size < size) {
		ssize_t count = recv(fd, server->body + server->body_size, size - server->body_size, 0);
		if (count <= 0)
			return;
		server->body_size += (size_t)count;
	}
}

static size_t length_of(const struct server *server)
{
	const char *field = strstr(server->head, "Content-Length: ");

	return field ? strtoul(field + 16, NULL, 10) : 0;
}

static void drain(int fd)
{
	char junk[65536];

	(void)shutdown(fd, SHUT_WR);
	while (recv(fd, junk, sizeof(junk), 0) > 0)
		;
}

static void take_body(struct server *server, int fd)
{
	if (strstr(server->head, "Expect:"))
		say(fd, "HTTP/1.1 100 Continue\r\n\r\n");
	read_body(server, fd, length_of(server));
}

/* Answers every request of a connection, taking its body first. */
static void script_good(struct server *server, int fd, int connection UNUSED)
{
	while (read_head(server, fd)) {
		take_body(server, fd);
		say(fd, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n");
		if (strncmp(server->head, "HEAD", 4) != 0)
			say(fd, "hello");
	}
}

struct world {
	struct fetch *fetch;
	struct server server;
};

static int setup(void **state)
{
	static struct world world;

	world = (struct world){ .fetch = NULL };
	*state = &world;
	return fetch_new(&world.fetch, NULL);
}

static int teardown(void **state)
{
	struct world *world = *state;

	/* First the client: the script of a kept connection ends when its peer does. */
	fetch_free(&world->fetch);
	if (world->server.script)
		server_stop(&world->server);
	return 0;
}

static struct fetch_call call_to(const struct server *server, const char *method)
{
	struct fetch_call call = FETCH_CALL_INIT;

	call.method = method;
	call.url = server->url;
	return call;
}

/* fetch_do, and what the server saw may be looked at afterwards. */
static int run(struct world *world, struct fetch_call *call, struct err *err)
{
	take_turn();
	int result = fetch_do(world->fetch, call, err);
	take_turn();
	return result;
}

static void test_keep_alive(void **state)
{
	struct world *world = *state;
	struct err err = ERR_INIT;

	server_start(&world->server, script_good);
	for (int i = 0; i < 3; i++) {
		struct fetch_call call = call_to(&world->server, "GET");
		call.headers[0] = "X-Api-Key: secret";
		assert_int_equal(run(world, &call, &err), 0);
		assert_int_equal(call.status, 200);
		assert_true(call.is_request_sent);
		assert_true(str_eq_c(buf_str(&call.answer), "hello"));
		buf_fini(&call.answer);
	}
	assert_int_equal(world->server.connection_count, 1);
	assert_int_equal(world->server.request_count, 3);
	assert_int_equal(strncmp(world->server.head, "GET /path HTTP/1.1\r\n", 20), 0);
	assert_non_null(strstr(world->server.head, "\r\nX-Api-Key: secret\r\n"));
	assert_null(strstr(world->server.head, "Content-Type"));
}

static void test_methods_and_bodies(void **state)
{
	static const struct {
		const char *method;
		size_t size, offset;
		bool is_file;
	} rows[] = {
		{ "HEAD", 0, 0, false },       { "DELETE", 0, 0, false },    { "PUT", 0, 0, false },
		{ "POST", 0, 0, false },       { "PUT", 0, 7, true },        { "PUT", 1, 0, false },
		{ "POST", 5000, 0, true },     { "PUT", 3000000, 0, false }, { "PUT", 2999000, 999, true },
		{ "POST", 3000000, 0, false }, { "DELETE", 100, 0, false },
	};
	struct world *world = *state;
	struct err err = ERR_INIT;
	char *data = malloc(3000000), name[] = "/tmp/heng-t-fetch-XXXXXX", first[64];
	int file_fd = mkstemp(name);

	(void)unlink(name);
	for (size_t i = 0; i < 3000000; i++)
		data[i] = (char)(i * 31 + (i >> 8) * 7);
	assert_int_equal(fs_write_all(file_fd, data, 3000000, 0, &err), 0);
	server_start(&world->server, script_good);
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct fetch_call call = call_to(&world->server, rows[i].method);
		if (rows[i].is_file) {
			call.body_fd = file_fd;
			call.body_fd_offset = (int64_t)rows[i].offset;
			call.body_fd_size = (int64_t)rows[i].size;
		} else {
			call.body = (struct str){ data + rows[i].offset, rows[i].size };
		}
		assert_int_equal(run(world, &call, &err), 0);
		assert_int_equal(call.status, 200);
		assert_int_equal(call.bytes_sent, rows[i].size);
		(void)snprintf(first, sizeof(first), "%s /path HTTP/1.1\r\n", rows[i].method);
		assert_int_equal(strncmp(world->server.head, first, strlen(first)), 0);
		if (rows[i].method[0] == 'P')
			assert_non_null(strstr(world->server.head, "Content-Length: "));
		assert_null(strstr(world->server.head, "x-www-form"));
		assert_null(strstr(world->server.head, "Transfer-Encoding"));
		assert_int_equal(world->server.body_size, rows[i].size);
		assert_memory_equal(world->server.body, data + rows[i].offset, rows[i].size);
		buf_fini(&call.answer);
	}
	assert_int_equal(world->server.connection_count, 1);

	/* The file ends before the size that was said. */
	struct fetch_call call = call_to(&world->server, "PUT");
	call.body_fd = file_fd;
	call.body_fd_offset = 2999990;
	call.body_fd_size = 100;
	assert_int_equal(run(world, &call, &err), -ERR_SOURCE_CHANGED);
	buf_fini(&call.answer);
	/* Not to be read at all. */
	call = call_to(&world->server, "PUT");
	call.body_fd = world->server.stop_fds[0];
	call.body_fd_size = 100;
	assert_int_equal(run(world, &call, &err), -ERR_SOURCE);
	assert_int_equal(err.sys_errno, ESPIPE);
	buf_fini(&call.answer);
	(void)close(file_fd);
	free(data);
}

#define REFUSAL                                                                            \
	"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 7\r\nContent-Length: 79\r\n\r\n" \
	"{\"error\":\"disk_low\",\"code\":2104,\"message\":\"the disk is low\",\"hint\":\"elsewhere\"}"

/* Refuses before the body when it is asked to say so. */
static void script_refuse_early(struct server *server, int fd, int connection UNUSED)
{
	while (read_head(server, fd)) {
		if (!strstr(server->head, "Expect: 100-continue"))
			read_body(server, fd, length_of(server));
		say(fd, REFUSAL);
	}
}

/* Refuses in the middle of the body. */
static void script_refuse_midway(struct server *server, int fd, int connection UNUSED)
{
	if (!read_head(server, fd))
		return;
	say(fd, "HTTP/1.1 100 Continue\r\n\r\n");
	read_body(server, fd, 100000);
	say(fd, REFUSAL);
	drain(fd);
}

static bool sink_count(struct fetch_call *call, struct str piece)
{
	*(size_t *)call->owner += piece.size;
	return true;
}

static void test_refusals(void **state)
{
	static script_fn *const scripts[] = { script_refuse_early, script_refuse_midway };
	const size_t size = 8 * MIB;
	struct world *world = *state;
	char *data = calloc(size, 1);

	for (size_t i = 0; i < COUNT_OF(scripts); i++) {
		struct err err = ERR_INIT;
		size_t sunk = 0;
		server_start(&world->server, scripts[i]);
		struct fetch_call call = call_to(&world->server, "PUT");
		call.body = (struct str){ data, size };
		call.sink = sink_count;
		call.owner = &sunk;
		assert_int_equal(run(world, &call, &err), -ERR_DISK_LOW);
		assert_int_equal(call.status, 503);
		assert_string_equal(err.text, "the disk is low");
		assert_string_equal(err.hint, "elsewhere");
		assert_int_equal(call.retry_after_us, 7 * SEC_US);
		assert_true(call.is_request_sent);
		assert_true(call.bytes_sent < (int64_t)size);
		if (i == 0)
			assert_int_equal(call.bytes_sent, 0);
		/* The body of an error is not the body that was asked for. */
		assert_int_equal(sunk, 0);
		assert_int_equal(call.answer.size, 79);
		buf_fini(&call.answer);
		/* A call without a body beside it. */
		if (i == 0) {
			call = call_to(&world->server, "GET");
			assert_int_equal(run(world, &call, &err), -ERR_DISK_LOW);
			buf_fini(&call.answer);
		}
		fetch_free(&world->fetch);
		server_stop(&world->server);
		world->server.script = NULL;
		assert_int_equal(fetch_new(&world->fetch, NULL), 0);
	}
	free(data);
}

static const char *answer;

static void script_answer(struct server *server, int fd, int connection UNUSED)
{
	if (read_head(server, fd))
		say(fd, answer);
	drain(fd);
}

static void test_bad_answers(void **state)
{
	static const struct {
		const char *answer;
		enum err_code code;
		int status;
	} rows[] = {
		{ "", ERR_CLOSED, 0 },
		{ "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort", ERR_CLOSED, 200 },
		{ "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel", ERR_CLOSED, 200 },
		{ "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhello", ERR_CLOSED, 200 },
		{ "nonsense\r\n\r\n", ERR_PEER, 0 },
		{ "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", ERR_PEER, 302 },
		{ "HTTP/1.1 500 Oops\r\nContent-Length: 4\r\n\r\noops", ERR_PEER, 500 },
		{ "HTTP/1.1 500 Oops\r\nContent-Length: 400\r\n\r\ncut", ERR_PEER, 500 },
		{ "HTTP/1.1 404 No\r\nContent-Length: 28\r\n\r\n{\"error\":\"no_such_transfer\"}", ERR_NO_TRANSFER,
		  404 },
		{ "HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n01234567890123456789", ERR_LIMIT, 200 },
		{ "HTTP/1.1 200 OK\r\nContent-Length: 16\r\n\r\n0123456789012345", ERR_NONE, 200 },
		{ "HTTP/1.1 200 OK\r\n\r\nuntil close", ERR_NONE, 200 },
		{ "HTTP/1.1 204 None\r\n\r\n", ERR_NONE, 204 },
	};
	struct world *world = *state;

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct err err = ERR_INIT;
		answer = rows[i].answer;
		server_start(&world->server, script_answer);
		struct fetch_call call = call_to(&world->server, "GET");
		call.answer.limit = 16;
		assert_int_equal(run(world, &call, &err), -(int)rows[i].code);
		assert_int_equal(call.status, rows[i].status);
		assert_int_equal(err.code, rows[i].code);
		assert_true(call.is_request_sent);
		buf_fini(&call.answer);
		fetch_free(&world->fetch);
		server_stop(&world->server);
		world->server.script = NULL;
		assert_int_equal(fetch_new(&world->fetch, NULL), 0);
	}
}

static bool sink_stop(struct fetch_call *call, struct str piece)
{
	if (call->owner)
		err_set(&call->err, ERR_DIGEST_MISMATCH, "not the '%.*s' it should be", STR_ARG(piece));
	return false;
}

static void test_sinks(void **state)
{
	struct world *world = *state;
	struct err err = ERR_INIT;
	size_t sunk = 0;

	server_start(&world->server, script_good);
	struct fetch_call call = call_to(&world->server, "GET");
	call.sink = sink_count;
	call.owner = &sunk;
	assert_int_equal(run(world, &call, &err), 0);
	assert_int_equal(sunk, 5);
	assert_int_equal(call.answer.size, 0);
	call = call_to(&world->server, "GET");
	call.sink = sink_stop;
	assert_int_equal(run(world, &call, &err), -ERR_CLOSED);
	call = call_to(&world->server, "GET");
	call.sink = sink_stop;
	call.owner = &sunk;
	assert_int_equal(run(world, &call, &err), -ERR_DIGEST_MISMATCH);
	assert_non_null(strstr(err.text, "hello"));
}

/* Answers once, then closes, as a server does that was restarted. */
static void script_once(struct server *server, int fd, int connection UNUSED)
{
	if (!read_head(server, fd))
		return;
	take_body(server, fd);
	say(fd, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
}

/* Takes a second request on the first connection and closes without a word: the race that a keep-alive client must bear. */
static void script_race(struct server *server, int fd, int connection)
{
	script_once(server, fd, connection);
	if (!read_head(server, fd) || connection == 0)
		return;
	take_body(server, fd);
	say(fd, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
}

static void test_dead_connections(void **state)
{
	static script_fn *const scripts[] = { script_once, script_race };
	struct world *world = *state;
	struct err err = ERR_INIT;

	for (size_t i = 0; i < COUNT_OF(scripts); i++) {
		server_start(&world->server, scripts[i]);
		for (int n = 0; n < 2; n++) {
			struct fetch_call call = call_to(&world->server, "PUT");
			call.body = STR("a body that must come whole");
			assert_int_equal(run(world, &call, &err), 0);
			assert_int_equal(world->server.body_size, call.body.size);
			assert_memory_equal(world->server.body, call.body.data, call.body.size);
			buf_fini(&call.answer);
		}
		assert_int_equal(world->server.connection_count, 2);
		fetch_free(&world->fetch);
		server_stop(&world->server);
		world->server.script = NULL;
		assert_int_equal(fetch_new(&world->fetch, NULL), 0);
	}
}

static void test_nobody_there(void **state)
{
	static const struct {
		const char *url, *header;
		enum err_code code;
	} rows[] = {
		{ "http://127.0.0.1:1/", NULL, ERR_CONNECT },
		{ "gopher://127.0.0.1/", NULL, ERR_USAGE },
		{ "file:///etc/passwd", NULL, ERR_USAGE },
		{ "http://", NULL, ERR_USAGE },
		{ "http://127.0.0.1:99999/", NULL, ERR_USAGE },
		{ "http://127.0.0.1:1/", "X: a\r\nInjected: b", ERR_USAGE },
		{ "http://127.0.0.1:1/", "no colon", ERR_USAGE },
	};
	struct world *world = *state;

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct fetch_call call = FETCH_CALL_INIT;
		struct err err = ERR_INIT;
		call.url = rows[i].url;
		call.headers[0] = rows[i].header;
		assert_int_equal(run(world, &call, &err), -(int)rows[i].code);
		assert_int_equal(call.status, 0);
		assert_false(call.is_request_sent);
		assert_true(err.text[0] != '\0');
		buf_fini(&call.answer);
	}
}

static void script_silent(struct server *server, int fd, int connection UNUSED)
{
	char junk[16];

	(void)read_head(server, fd);
	while (recv(fd, junk, sizeof(junk), 0) > 0)
		;
}

static void test_timeouts(void **state)
{
	struct world *world = *state;
	struct err err = ERR_INIT;
	struct sock_addr addr;
	char text[SOCK_TEXT_SIZE], url[96];
	int fds[8];

	server_start(&world->server, script_silent);
	struct fetch_call call = call_to(&world->server, "GET");
	call.timeout_us = 30 * MSEC_US;
	assert_int_equal(run(world, &call, &err), -ERR_TIMEOUT);
	assert_true(call.is_request_sent);

	/* A listener with a full queue answers no more. */
	assert_int_equal(sock_addr_parse("127.0.0.1:0", &addr, NULL), 0);
	int listen_fd = sock_listen(&addr, false, NULL);
	assert_int_equal(listen(listen_fd, 0), 0);
	assert_int_equal(sock_local(listen_fd, &addr), 0);
	for (size_t i = 0; i < COUNT_OF(fds); i++) {
		fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		(void)connect(fds[i], (struct sockaddr *)&addr.storage, addr.size);
	}
	(void)snprintf(url, sizeof(url), "http://%s/", sock_addr_text(&addr, text));
	call = (struct fetch_call)FETCH_CALL_INIT;
	call.url = url;
	call.connect_timeout_us = 30 * MSEC_US;
	assert_int_equal(run(world, &call, &err), -ERR_CONNECT);
	assert_false(call.is_request_sent);
	for (size_t i = 0; i < COUNT_OF(fds); i++)
		(void)close(fds[i]);
	(void)close(listen_fd);
}

struct many {
	struct fetch_call call;
	int left, done_count;
	bool is_starting;
};

static void on_done(struct fetch *fetch, struct fetch_call *call)
{
	struct many *many = call->owner;

	assert_false(many->is_starting);
	assert_int_equal(call->err.code, many->left < 0 ? ERR_USAGE : ERR_NONE);
	many->done_count++;
	if (many->left > 0) {
		const char *url = call->url;
		many->left--;
		buf_fini(&call->answer);
		*call = FETCH_CALL_INIT;
		call->url = url;
		call->done = on_done;
		call->owner = many;
		fetch_start(fetch, call);
	}
}

static void test_callbacks(void **state)
{
	struct world *world = *state;
	struct many many = { .call = FETCH_CALL_INIT, .left = 4 };

	server_start(&world->server, script_good);
	many.call.url = world->server.url;
	many.call.done = on_done;
	many.call.owner = &many;
	many.is_starting = true;
	fetch_start(world->fetch, &many.call);
	many.is_starting = false;
	assert_int_equal(fetch_running_count(world->fetch), 1);
	while (fetch_running_count(world->fetch) > 0)
		fetch_step(world->fetch, SEC_US);
	assert_int_equal(many.done_count, 5);
	buf_fini(&many.call.answer);

	/* One that cannot even start reports from the step as well. */
	many = (struct many){ .call = FETCH_CALL_INIT, .left = -1, .is_starting = true };
	many.call.url = world->server.url;
	many.call.headers[0] = "bad\n";
	many.call.done = on_done;
	many.call.owner = &many;
	fetch_start(world->fetch, &many.call);
	many.is_starting = false;
	assert_int_equal(many.done_count, 0);
	fetch_step(world->fetch, -1);
	assert_int_equal(many.done_count, 1);
	assert_int_equal(fetch_running_count(world->fetch), 0);
}

static void test_cancel_and_free(void **state)
{
	struct world *world = *state;
	struct many many[3];

	server_start(&world->server, script_silent);
	for (size_t i = 0; i < COUNT_OF(many); i++) {
		many[i] = (struct many){ .call = FETCH_CALL_INIT };
		many[i].call.url = world->server.url;
		many[i].call.done = on_done;
		many[i].call.owner = &many[i];
		if (i == 2) {
			many[i].call.headers[0] = "bad";
			many[i].left = -1;
		}
		fetch_start(world->fetch, &many[i].call);
	}
	fetch_step(world->fetch, 0);
	/* The hopeless one was told; the others run. */
	assert_int_equal(many[2].done_count, 1);
	assert_int_equal(fetch_running_count(world->fetch), 2);
	fetch_cancel(world->fetch, &many[0].call);
	fetch_cancel(world->fetch, &many[0].call);
	assert_int_equal(fetch_running_count(world->fetch), 1);
	fetch_free(&world->fetch);
	assert_null(world->fetch);
	fetch_free(&world->fetch);
	assert_int_equal(many[0].done_count + many[1].done_count, 0);
}

/* No burst lets a body end before its time, and it arrives whole. One that queues for its turn can be cancelled. */
static void test_limited_rate(void **state)
{
	struct world *world = *state;
	const size_t size = 64 * KIB;
	struct fetch_call gone = FETCH_CALL_INIT, file = FETCH_CALL_INIT;
	char *body = malloc(size);
	AUTO(fs_close) int fd = memfd_create("body", MFD_CLOEXEC);
	int64_t began_us;

	for (size_t i = 0; i < size; i++)
		body[i] = (char)(i * 31 >> 3);
	assert_int_equal(fs_write_all(fd, body, size, 0, NULL), 0);
	server_start(&world->server, script_good);
	fetch_limit_rate(world->fetch, MIB / 2);
	began_us = clock_mono_us();
	gone.method = file.method = "PUT";
	gone.url = file.url = world->server.url;
	gone.body = (struct str){ body, size };
	file.body_fd = fd;
	file.body_fd_size = (int64_t)size;
	/* The server takes one connection at a time: when this one is let go, the next is served. */
	fetch_start(world->fetch, &gone);
	/* Without waiting, since a step that waits may end its turn's queueing as well. */
	while (!gone.is_queued)
		fetch_step(world->fetch, 0);
	fetch_cancel(world->fetch, &gone);
	assert_false(gone.is_queued);
	assert_int_equal(fetch_do(world->fetch, &file, NULL), 0);
	/* 64 KiB at 512 KiB/s: an eighth of a second. */
	assert_true(clock_mono_us() - began_us >= SEC_US / 8);
	assert_int_equal(file.bytes_sent, size);
	assert_int_equal(world->server.body_size, size);
	assert_memory_equal(world->server.body, body, size);
	buf_fini(&gone.answer);
	buf_fini(&file.answer);
	/* Taken away, it holds nothing back, and what has no body was never held. */
	fetch_limit_rate(world->fetch, 0);
	file = FETCH_CALL_INIT;
	file.url = world->server.url;
	assert_int_equal(fetch_do(world->fetch, &file, NULL), 0);
	buf_fini(&file.answer);
	free(body);
}

static void *interrupt_it(void *owner)
{
	atomic_store((atomic_bool *)owner, true);
	return NULL;
}

static void test_interrupt(void **state)
{
	struct world *world = *state;
	struct err err = ERR_INIT;
	atomic_bool is_interrupted = false;
	pthread_t thread;

	/* Nothing else ends this: the server says nothing, and there is no limit. */
	server_start(&world->server, script_silent);
	struct fetch_call call = call_to(&world->server, "GET");
	call.is_interrupted = &is_interrupted;
	assert_int_equal(pthread_create(&thread, NULL, interrupt_it, &is_interrupted), 0);
	assert_int_equal(fetch_do(world->fetch, &call, &err), -ERR_WAITING);
	(void)pthread_join(thread, NULL);
	assert_int_equal(fetch_running_count(world->fetch), 0);
}

static void *wake_it(void *owner)
{
	fetch_wake(owner);
	return NULL;
}

static void test_wake(void **state)
{
	struct world *world = *state;
	pthread_t thread;

	/* Without a call and without a limit only the wake ends this. */
	assert_int_equal(pthread_create(&thread, NULL, wake_it, world->fetch), 0);
	fetch_step(world->fetch, -1);
	(void)pthread_join(thread, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_keep_alive, setup, teardown),
		cmocka_unit_test_setup_teardown(test_methods_and_bodies, setup, teardown),
		cmocka_unit_test_setup_teardown(test_refusals, setup, teardown),
		cmocka_unit_test_setup_teardown(test_bad_answers, setup, teardown),
		cmocka_unit_test_setup_teardown(test_sinks, setup, teardown),
		cmocka_unit_test_setup_teardown(test_dead_connections, setup, teardown),
		cmocka_unit_test_setup_teardown(test_nobody_there, setup, teardown),
		cmocka_unit_test_setup_teardown(test_timeouts, setup, teardown),
		cmocka_unit_test_setup_teardown(test_callbacks, setup, teardown),
		cmocka_unit_test_setup_teardown(test_cancel_and_free, setup, teardown),
		cmocka_unit_test_setup_teardown(test_limited_rate, setup, teardown),
		cmocka_unit_test_setup_teardown(test_interrupt, setup, teardown),
		cmocka_unit_test_setup_teardown(test_wake, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
