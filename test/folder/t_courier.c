#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/mem.h"
#include "folder/courier.h"
#include "http/server.h"
#include "sys/sock.h"

#define MANY 20000

static void refuse_begin(struct http_call *call, void *app)
{
	(void)app;
	struct err err;

	err_set(&err, ERR_NODE_CONFLICT, "scripted refusal");
	http_reply_err(call, &err);
}

static const struct http_route refusing_routes[] = {
	{ "POST", "/internal/v1/nodes/register", refuse_begin },
	{ NULL, NULL, NULL },
};

static struct courier *courier_to(const char *url)
{
	const struct courier_options options = { .scheduler = url,
						 .internal_key = "00",
						 .node = { .id = "n1", .addr = "127.0.0.1:1" } };
	struct courier *courier = NULL;
	struct err err = ERR_INIT;

	assert_int_equal(courier_new(&options, &courier, &err), 0);
	return courier;
}

static void count_told(struct courier_parcel *parcel, struct loop *home)
{
	assert_null(home);
	atomic_fetch_add((atomic_uint *)parcel->owner, 1);
}

/* A node that is refused stops; calls that wait for the scheduler's word on their chunks must hear something before, or the server that owes them
 * an answer would never end. */
static void t_refused_at_start(void **state)
{
	(void)state;
	struct http_options options = http_options_default;
	struct http_server *server = NULL;
	struct sock_addr addr;
	char text[SOCK_TEXT_SIZE], url[SOCK_TEXT_SIZE + 8];
	atomic_uint told_count = 0;
	struct courier_parcel before = { .done = count_told, .owner = &told_count }, after = before;
	struct err err = ERR_INIT;

	options.thread_count = 1;
	assert_int_equal(sock_addr_parse("127.0.0.1:0", &addr, &err), 0);
	assert_int_equal(http_server_new(&options, &addr, refusing_routes, NULL, &server, &err), 0);
	assert_int_equal(http_server_start(server, &err), 0);
	snprintf(url, sizeof(url), "http://%s", sock_addr_text(http_server_addr(server), text));

	struct courier *courier = courier_to(url);
	courier_send(courier, &before);
	assert_int_equal(told_count, 0);
	assert_int_equal(courier_start(courier, &err), -ERR_NODE_CONFLICT);
	assert_int_equal(told_count, 1);
	assert_int_equal(before.err.code, ERR_SCHEDULER_DOWN);
	courier_send(courier, &after);
	assert_int_equal(told_count, 2);
	assert_int_equal(after.err.code, ERR_SCHEDULER_DOWN);
	courier_stop(&courier);
	assert_int_equal(told_count, 2);
	http_server_stop(server, 0);
	http_server_free(&server);
}

/* Nobody waits for the word of a failed attempt, so nothing slows down whoever makes them: with the scheduler away they must not fill the memory. */
static void t_many_attempts(void **state)
{
	(void)state;
	struct courier *courier = courier_to("http://127.0.0.1:1");
	struct courier_parcel *parcels = must_zalloc(MANY, sizeof(*parcels));
	atomic_uint told_count = 0;

	for (size_t i = 0; i < MANY; i++) {
		parcels[i] = (struct courier_parcel){ .done = count_told, .owner = &told_count };
		courier_send(courier, &parcels[i]);
	}
	/* The first wait, the last were turned away. */
	assert_in_range(told_count, MANY / 2, MANY - 1000);
	assert_int_equal(parcels[0].err.code, ERR_NONE);
	assert_int_equal(parcels[MANY - 1].err.code, ERR_BUSY);
	courier_stop(&courier);
	assert_int_equal(told_count, MANY);
	free(parcels);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(t_refused_at_start),
		cmocka_unit_test(t_many_attempts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
