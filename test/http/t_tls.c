/* The server with TLS, called by our own client over loopback: who is believed, what is shown, and what becomes of those who are slow or in the clear. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "http/server.h"
#include "sys/fetch.h"
#include "sys/tls_world.h"

static struct tls_world world;
static struct tls *server_tls;
static struct http_server *server;
static char url[128];

/* Says who called. */
static void who_begin(struct http_call *call, void *app)
{
	const struct tls_peer *peer = http_peer_cert(call);
	(void)app;
	assert_true(http_is_tls(call));
	http_reply(call, 200, "text/plain", str_from(peer ? peer->subject : "nobody"));
}

static int count_data(struct http_call *call, struct str piece)
{
	*(size_t *)http_state(call) += piece.size;
	return 0;
}

static void count_end(struct http_call *call)
{
	char text[32];
	size_t *count = http_state(call);
	snprintf(text, sizeof(text), "%zu", *count);
	free(count);
	http_reply(call, 200, "text/plain", str_from(text));
}

static void count_gone(struct http_call *call, const struct err *err)
{
	(void)err;
	free(http_state(call));
}

static void count_begin(struct http_call *call, void *app)
{
	static const struct http_sink sink = { count_data, count_end, count_gone };
	(void)app;
	http_set_state(call, must_zalloc(1, sizeof(size_t)));
	http_take_body(call, &sink);
}

static const struct http_route routes[] = {
	{ "GET", "/who", who_begin },
	{ "PUT", "/count", count_begin },
	{ NULL, NULL, NULL },
};

static int set_up(void **state)
{
	struct http_options options = http_options_default;
	struct sock_addr addr;
	struct err err = ERR_INIT;
	char text[SOCK_TEXT_SIZE];
	static const char *const names[] = { "dns:other.example", NULL };
	(void)state;
	tls_world_init(&world);
	tls_world_make(&world, "client", false, names, -DAY_US, DAY_US);
	tls_world_make(&world, "stranger", true, names, -DAY_US, DAY_US);
	server_tls = tls_world_open(&world, "server", "ca.pem", NULL);
	options.thread_count = 1;
	options.head_timeout_us = 300 * MSEC_US;
	options.tls = server_tls;
	assert_int_equal(sock_addr_parse("127.0.0.1:0", &addr, &err), 0);
	if (http_server_new(&options, &addr, routes, NULL, &server, &err) < 0 || http_server_start(server, &err) < 0)
		fail_msg("%s", err.text);
	snprintf(url, sizeof(url), "https://%s/who", sock_addr_text(http_server_addr(server), text));
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	http_server_stop(server, 0);
	http_server_free(&server);
	tls_free(&server_tls);
	tls_world_fini(&world);
	return 0;
}

/* 0, or the negative code; what was answered. */
static int ask(struct fetch *fetch, const char *where, bool is_anonymous, char answer[64], struct err *err)
{
	struct fetch_call call = FETCH_CALL_INIT;
	call.url = where;
	call.is_anonymous = is_anonymous;
	call.timeout_us = 20 * SEC_US;
	int result = fetch_do(fetch, &call, err);
	str_display(buf_str(&call.answer), answer, 64);
	buf_fini(&call.answer);
	return result;
}

static void test_who_believes_whom(void **state)
{
	static const struct {
		const char *name, *ca;
		bool is_anonymous;
		int result;
		const char *answer;
	} rows[] = {
		{ NULL, "ca.pem", false, 0, "nobody" },          { "client", "ca.pem", false, 0, "CN=client" },
		{ "client", "ca.pem", true, 0, "nobody" },       { NULL, "other-ca.pem", false, -ERR_TLS, NULL },
		{ NULL, NULL, false, -ERR_TLS, NULL }, /* the system's authorities do not know it */
		{ "stranger", "ca.pem", false, -ERR_TLS, NULL }, { "stranger", "ca.pem", true, 0, "nobody" },
	};
	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct tls *tls = rows[i].ca || rows[i].name ? tls_world_open(&world, rows[i].name, rows[i].ca, NULL)
							     : NULL;
		struct fetch *fetch;
		struct err err = ERR_INIT;
		char answer[64];
		assert_int_equal(fetch_new(&fetch, NULL), 0);
		fetch_use_tls(fetch, tls);
		int result = ask(fetch, url, rows[i].is_anonymous, answer, &err);
		if (result != rows[i].result)
			fail_msg("row %zu: %d: %s", i, result, err.text);
		if (rows[i].answer)
			assert_string_equal(answer, rows[i].answer);
		else
			assert_true(err.hint[0] != '\0');
		fetch_free(&fetch);
		tls_free(&tls);
	}
}

/* A name that the certificate does not have; the clear where TLS is spoken; a certificate that was renewed under a kept fetch. */
static void test_names_and_renewal(void **state)
{
	struct tls *tls = tls_world_open(&world, "client", "ca.pem", NULL);
	struct fetch *fetch;
	struct err err = ERR_INIT;
	char answer[64], other[160];
	static const char *const names[] = { "dns:localhost", "ip:127.0.0.1", NULL };
	static const char *const wrong[] = { "dns:elsewhere", NULL };
	(void)state;
	assert_int_equal(fetch_new(&fetch, NULL), 0);
	fetch_use_tls(fetch, tls);
	assert_int_equal(ask(fetch, url, false, answer, &err), 0);
	snprintf(other, sizeof(other), "http%s", url + 5);
	assert_true(ask(fetch, other, false, answer, &err) < 0);
	tls_world_make(&world, "server", false, names, -DAY_US, 3 * DAY_US);
	assert_int_equal(tls_reload(server_tls, false, &err), 1);
	tls_world_make(&world, "client", false, wrong, -DAY_US, 3 * DAY_US);
	assert_int_equal(tls_reload(tls, false, &err), 1);
	assert_int_equal(ask(fetch, url, false, answer, &err), 0);
	assert_string_equal(answer, "CN=client");
	fetch_free(&fetch);
	tls_world_make(&world, "server", false, wrong, -DAY_US, 3 * DAY_US);
	assert_int_equal(tls_reload(server_tls, false, &err), 1);
	assert_int_equal(fetch_new(&fetch, NULL), 0);
	fetch_use_tls(fetch, tls);
	assert_int_equal(ask(fetch, url, false, answer, &err), -ERR_TLS);
	assert_non_null(strstr(err.hint, "subjectAltName"));
	fetch_free(&fetch);
	tls_world_make(&world, "server", false, names, -DAY_US, 3 * DAY_US);
	assert_int_equal(tls_reload(server_tls, false, &err), 1);
	tls_free(&tls);
}

static void test_a_large_body(void **state)
{
	enum { SIZE = 5 * 1024 * 1024 + 3 };
	struct tls *tls = tls_world_open(&world, NULL, "ca.pem", NULL);
	struct fetch *fetch;
	struct err err = ERR_INIT;
	char where[160];
	char *body = must_zalloc(1, SIZE);
	(void)state;
	snprintf(where, sizeof(where), "%.*s/count", (int)(strlen(url) - 4), url);
	assert_int_equal(fetch_new(&fetch, NULL), 0);
	fetch_use_tls(fetch, tls);
	for (int i = 0; i < 3; i++) {
		struct fetch_call call = FETCH_CALL_INIT;
		call.method = "PUT";
		call.url = where;
		call.body = (struct str){ body, SIZE };
		if (fetch_do(fetch, &call, &err) < 0)
			fail_msg("%s", err.text);
		assert_true(str_eq_c(buf_str(&call.answer), "5242883"));
		buf_fini(&call.answer);
	}
	free(body);
	fetch_free(&fetch);
	tls_free(&tls);
}

/* Who connects and says nothing, or half a hello, is not waited for. */
static void test_slow_handshakes(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++) {
		const struct sock_addr *addr = http_server_addr(server);
		struct timeval patience = { .tv_sec = 20 };
		char bytes[64];
		int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
		assert_int_equal(connect(fd, (const struct sockaddr *)&addr->storage, addr->size), 0);
		if (i == 1)
			assert_int_equal(send(fd, "\x16\x03\x01\x02\x00\x01\x00", 7, MSG_NOSIGNAL), 7);
		assert_true(recv(fd, bytes, sizeof(bytes), 0) <= 0);
		(void)close(fd);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_who_believes_whom),
		cmocka_unit_test(test_names_and_renewal),
		cmocka_unit_test(test_a_large_body),
		cmocka_unit_test(test_slow_handshakes),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
