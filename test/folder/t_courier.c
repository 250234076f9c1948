#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "folder/courier.h"
#include "http/server.h"
#include "sys/fs.h"
#include "sys/sock.h"

#define MANY     20000
#define URL_SIZE (SOCK_TEXT_SIZE + 8)

static const struct internal_key shown_key = { .header = "X-Internal-Key: "
							 "00" };
static void refuse_begin(struct http_call *call, void *app)
{
	(void)app;
	struct err err;

	err_set(&err, ERR_NODE_CONFLICT, "scripted refusal");
	http_reply_err(call, &err);
}

/* Takes receipts and never answers, until it is let go. */
struct holder {
	pthread_mutex_t lock; /* protects the rest */
	pthread_cond_t changed;
	bool is_held, is_asked;
	struct work *work;
};

static int hold_run(struct http_task *task)
{
	struct holder *holder = task->app;

	pthread_mutex_lock(&holder->lock);
	holder->is_asked = true;
	pthread_cond_broadcast(&holder->changed);
	while (holder->is_held)
		pthread_cond_wait(&holder->changed, &holder->lock);
	pthread_mutex_unlock(&holder->lock);
	return 0;
}

static void hold_begin(struct http_call *call, void *app)
{
	http_run_task(call, ((struct holder *)app)->work, MIB, MIB, hold_run);
}

static void accept_begin(struct http_call *call, void *app)
{
	(void)app;
	http_reply(call, 200, "application/json", STR("{}"));
}

static const struct http_route holding_routes[] = {
	{ "POST", "/internal/v1/nodes/register", accept_begin },
	{ "POST", "/internal/v1/receipts", hold_begin },
	{ NULL, NULL, NULL },
};

static const struct http_route refusing_routes[] = {
	{ "POST", "/internal/v1/nodes/register", refuse_begin },
	{ NULL, NULL, NULL },
};

/* Registers the node, and refuses its receipts: a scheduler that has another key by now. */
static void refuse_receipts_begin(struct http_call *call, void *app)
{
	(void)app;
	struct err err;

	err_set(&err, ERR_UNAUTHENTICATED, "scripted refusal");
	http_reply_err(call, &err);
}

static const struct http_route keyless_routes[] = {
	{ "POST", "/internal/v1/nodes/register", accept_begin },
	{ "POST", "/internal/v1/receipts", refuse_receipts_begin },
	{ NULL, NULL, NULL },
};

static bool is_stored(void *owner, const struct store_receipt *receipt)
{
	(void)owner;
	(void)receipt;
	return true;
}

static void refused(void *owner, const struct store_receipt *receipt, bool is_repeat, enum err_code code)
{
	(void)owner;
	(void)receipt;
	(void)is_repeat;
	(void)code;
	fail_msg("nothing is refused here");
}

static struct courier *courier_with(const char *url, const char *journal_path)
{
	const struct courier_options options = { .scheduler = url,
						 .internal_key = &shown_key,
						 .node = { .id = "n1", .addr = "127.0.0.1:1" },
						 .journal_path = journal_path,
						 .journal_limit_bytes = 64 * KIB,
						 .is_stored = is_stored,
						 .refused = refused };
	struct courier *courier = NULL;
	struct err err = ERR_INIT;

	assert_int_equal(courier_new(&options, &courier, &err), 0);
	return courier;
}

static struct courier *courier_to(const char *url) { return courier_with(url, NULL); }

/* A receipt that can be written and read. */
static struct store_receipt some_receipt(uint64_t file_id, enum err_code outcome)
{
	struct store_receipt receipt = { .file_id = file_id, .size_bytes = 1, .outcome = outcome };

	snprintf(receipt.transfer_id, sizeof(receipt.transfer_id), "01ARZ3NDEKTSV4RRFFQ69G5FAV");
	snprintf(receipt.digest, sizeof(receipt.digest), "%032d", 1);
	snprintf(receipt.node_id, sizeof(receipt.node_id), "n1");
	return receipt;
}

struct own_folder {
	char folder[64], path[128];
};

static void folder_make(struct own_folder *own)
{
	snprintf(own->folder, sizeof(own->folder), "/tmp/t_courier-XXXXXX");
	assert_non_null(mkdtemp(own->folder));
	snprintf(own->path, sizeof(own->path), "%s/receipts.journal", own->folder);
}

static void count_told(struct courier_parcel *parcel, struct loop *home)
{
	assert_null(home);
	atomic_fetch_add((atomic_uint *)parcel->owner, 1);
}

static struct http_server *serve(const struct http_route *routes, void *app, char url[URL_SIZE])
{
	struct http_options options = http_options_default;
	struct http_server *server = NULL;
	struct sock_addr addr;
	char text[SOCK_TEXT_SIZE];
	struct err err = ERR_INIT;

	options.thread_count = 1;
	assert_int_equal(sock_addr_parse("127.0.0.1:0", &addr, &err), 0);
	assert_int_equal(http_server_new(&options, &addr, routes, app, &server, &err), 0);
	assert_int_equal(http_server_start(server, &err), 0);
	snprintf(url, URL_SIZE, "http://%s", sock_addr_text(http_server_addr(server), text));
	return server;
}

/* A node that is refused stops; calls that wait for the scheduler's word on their chunks must hear something before, or the server that owes them
 * an answer would never end. */
static void t_refused_at_start(void **state)
{
	(void)state;
	char url[URL_SIZE];
	struct http_server *server = serve(refusing_routes, NULL, url);
	struct courier *courier = courier_to(url);
	atomic_uint told_count = 0;
	struct courier_parcel before = { .done = count_told, .owner = &told_count }, after = before;
	struct err err = ERR_INIT;

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

static void tell(struct courier_parcel *parcel, struct loop *home)
{
	struct holder *holder = parcel->owner;

	(void)home;
	pthread_mutex_lock(&holder->lock);
	parcel->owner = NULL;
	pthread_cond_broadcast(&holder->changed);
	pthread_mutex_unlock(&holder->lock);
}

/* A scheduler that takes receipts and says nothing: the end comes in time all the same. */
static void t_end(void **state)
{
	(void)state;
	struct holder holder = { .is_held = true };
	struct courier_parcel under_way = { .done = tell, .owner = &holder }, late = under_way, waiting = under_way;
	char url[URL_SIZE];
	struct err err = ERR_INIT;

	pthread_mutex_init(&holder.lock, NULL);
	pthread_cond_init(&holder.changed, NULL);
	assert_int_equal(work_new("holder", 1, 10, &holder.work, &err), 0);
	struct http_server *server = serve(holding_routes, &holder, url);
	struct courier *courier = courier_to(url);
	assert_int_equal(courier_start(courier, &err), 0);
	courier_send(courier, &under_way);
	pthread_mutex_lock(&holder.lock);
	while (!holder.is_asked)
		pthread_cond_wait(&holder.changed, &holder.lock);
	pthread_mutex_unlock(&holder.lock);
	courier_send(courier, &waiting);

	const int64_t began_us = clock_mono_us();
	courier_end(courier, 100 * MSEC_US);
	pthread_mutex_lock(&holder.lock);
	while (under_way.owner || waiting.owner)
		pthread_cond_wait(&holder.changed, &holder.lock);
	pthread_mutex_unlock(&holder.lock);
	const int64_t took_us = clock_mono_us() - began_us;
	assert_in_range(took_us, 100 * MSEC_US, 5 * SEC_US);
	assert_int_equal(under_way.err.code, ERR_SCHEDULER_DOWN);
	assert_int_equal(waiting.err.code, ERR_SCHEDULER_DOWN);
	courier_send(courier, &late);
	assert_null(late.owner);
	assert_int_equal(late.err.code, ERR_SCHEDULER_DOWN);
	courier_stop(&courier);

	pthread_mutex_lock(&holder.lock);
	holder.is_held = false;
	pthread_cond_broadcast(&holder.changed);
	pthread_mutex_unlock(&holder.lock);
	http_server_stop(server, 0);
	work_free(&holder.work);
	http_server_free(&server);
	pthread_cond_destroy(&holder.changed);
	pthread_mutex_destroy(&holder.lock);
}

/* The same scheduler, and a journal: who waits behind a batch without an answer is not kept waiting, and the end keeps what is under way. */
static void t_hung(void **state)
{
	(void)state;
	struct holder holder = { .is_held = true };
	struct courier_parcel under_way = { .done = tell, .owner = &holder, .receipt = some_receipt(1, ERR_NONE) };
	struct courier_parcel waiting = under_way, late = under_way;
	struct own_folder own;
	char url[URL_SIZE];
	struct err err = ERR_INIT;

	folder_make(&own);
	waiting.receipt = some_receipt(2, ERR_NONE);
	pthread_mutex_init(&holder.lock, NULL);
	pthread_cond_init(&holder.changed, NULL);
	assert_int_equal(work_new("holder", 1, 10, &holder.work, &err), 0);
	struct http_server *server = serve(holding_routes, &holder, url);
	struct courier *courier = courier_with(url, own.path);
	assert_int_equal(courier_start(courier, &err), 0);
	courier_send(courier, &under_way);
	pthread_mutex_lock(&holder.lock);
	while (!holder.is_asked)
		pthread_cond_wait(&holder.changed, &holder.lock);
	pthread_mutex_unlock(&holder.lock);

	const int64_t began_us = clock_mono_us();
	courier_send(courier, &waiting);
	pthread_mutex_lock(&holder.lock);
	while (waiting.owner)
		pthread_cond_wait(&holder.changed, &holder.lock);
	assert_non_null(under_way.owner);
	pthread_mutex_unlock(&holder.lock);
	/* Well before the call's own time is over. */
	assert_true(clock_mono_us() - began_us < 8 * SEC_US);
	assert_true(waiting.is_kept && waiting.err.code == ERR_NONE);
	courier_end(courier, 0);
	pthread_mutex_lock(&holder.lock);
	while (under_way.owner)
		pthread_cond_wait(&holder.changed, &holder.lock);
	pthread_mutex_unlock(&holder.lock);
	assert_true(under_way.is_kept && under_way.err.code == ERR_NONE);
	/* Too late to be kept: nobody is there any more to do it. */
	courier_send(courier, &late);
	assert_true(!late.is_kept && late.err.code == ERR_SCHEDULER_DOWN);
	courier_stop(&courier);
	courier = courier_with(url, own.path);
	assert_int_equal(courier_kept_count(courier), 2);
	courier_stop(&courier);

	pthread_mutex_lock(&holder.lock);
	holder.is_held = false;
	pthread_cond_broadcast(&holder.changed);
	pthread_mutex_unlock(&holder.lock);
	http_server_stop(server, 0);
	work_free(&holder.work);
	http_server_free(&server);
	pthread_cond_destroy(&holder.changed);
	pthread_mutex_destroy(&holder.lock);
	assert_int_equal(fs_remove_tree(AT_FDCWD, own.folder, &err), 0);
}

/* A scheduler that says no to this node: keeping would promise what may never come true, so its clients go elsewhere. */
static void t_refusing(void **state)
{
	(void)state;
	char url[URL_SIZE];
	struct http_server *server = serve(keyless_routes, NULL, url);
	struct own_folder own;
	struct holder holder = { .is_held = false };
	struct err err = ERR_INIT;

	folder_make(&own);
	pthread_mutex_init(&holder.lock, NULL);
	pthread_cond_init(&holder.changed, NULL);
	struct courier *courier = courier_with(url, own.path);
	assert_int_equal(courier_start(courier, &err), 0);
	for (int i = 0; i < 3; i++) {
		struct courier_parcel parcel = { .done = tell, .owner = &holder, .receipt = some_receipt(1, ERR_NONE) };

		courier_send(courier, &parcel);
		pthread_mutex_lock(&holder.lock);
		while (parcel.owner)
			pthread_cond_wait(&holder.changed, &holder.lock);
		pthread_mutex_unlock(&holder.lock);
		assert_true(!parcel.is_kept && parcel.err.code == ERR_SCHEDULER_DOWN);
		assert_non_null(strstr(parcel.err.text, "scripted refusal"));
	}
	assert_int_equal(courier_kept_count(courier), 0);
	courier_stop(&courier);
	http_server_stop(server, 0);
	http_server_free(&server);
	pthread_cond_destroy(&holder.changed);
	pthread_mutex_destroy(&holder.lock);
	assert_int_equal(fs_remove_tree(AT_FDCWD, own.folder, &err), 0);
}

/* Attempts that failed are kept while there is plenty of room, and never where a good receipt could be. */
static void t_room_for_good_ones(void **state)
{
	(void)state;
	enum { COUNT = 2000 };
	struct courier_parcel *parcels = must_zalloc(COUNT + 1, sizeof(*parcels));
	atomic_uint told_count = 0;
	struct holder holder = { .is_held = false };
	struct own_folder own;
	struct err err = ERR_INIT;

	folder_make(&own);
	pthread_mutex_init(&holder.lock, NULL);
	pthread_cond_init(&holder.changed, NULL);
	struct courier *courier = courier_with("http://127.0.0.1:1", own.path);
	assert_int_equal(courier_start(courier, &err), 0);
	for (size_t i = 0; i < COUNT; i++) {
		parcels[i] = (struct courier_parcel){ .done = count_told, .owner = &told_count };
		parcels[i].receipt = some_receipt(i + 1, ERR_DISK_LOW);
		courier_send(courier, &parcels[i]);
	}
	parcels[COUNT] = (struct courier_parcel){ .done = tell,
						  .owner = &holder,
						  .receipt = some_receipt(1, ERR_NONE) };
	courier_send(courier, &parcels[COUNT]);
	pthread_mutex_lock(&holder.lock);
	while (parcels[COUNT].owner)
		pthread_cond_wait(&holder.changed, &holder.lock);
	pthread_mutex_unlock(&holder.lock);
	assert_true(parcels[COUNT].is_kept && parcels[COUNT].err.code == ERR_NONE);
	courier_stop(&courier);
	assert_int_equal(told_count, COUNT);
	courier = courier_with("http://127.0.0.1:1", own.path);
	assert_in_range(courier_kept_count(courier), 2, COUNT);
	courier_stop(&courier);
	free(parcels);
	pthread_cond_destroy(&holder.changed);
	pthread_mutex_destroy(&holder.lock);
	assert_int_equal(fs_remove_tree(AT_FDCWD, own.folder, &err), 0);
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
	/* One that never started has nobody to wait for. */
	courier_end(courier, 3600 * SEC_US);
	assert_int_equal(told_count, MANY);
	courier_stop(&courier);
	assert_int_equal(told_count, MANY);
	free(parcels);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(t_refused_at_start),
		cmocka_unit_test(t_many_attempts),
		cmocka_unit_test(t_end),
		cmocka_unit_test(t_hung),
		cmocka_unit_test(t_refusing),
		cmocka_unit_test(t_room_for_good_ones),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
