#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "plug/nonce.h"

/* The contract of a memory of nonces, over every driver. */
static const struct {
	const char *name;
	struct nonce_store *(*new)(size_t limit_count);
} drivers[] = {
	{ "memory", nonce_mem_new },
};

static int use(struct nonce_store *store, const char *nonce, int64_t expires_us, int64_t now_us)
{
	struct err err = ERR_INIT;
	int result = store->ops->use(store, str_from(nonce), expires_us, now_us, &err);

	assert_int_equal(result, -(int)err.code);
	return result;
}

static void test_once_until_it_expires(void **state)
{
	static const struct {
		const char *why, *nonce;
		int64_t expires_us, now_us;
		enum err_code code;
	} rows[] = {
		{ "first", "a", 100, 10, ERR_NONE },
		{ "replayed", "a", 100, 11, ERR_NONCE_REPLAYED },
		{ "replayed with another expiry", "a", 900, 11, ERR_NONCE_REPLAYED },
		{ "another", "b", 50, 11, ERR_NONE },
		{ "a prefix is another", "aa", 50, 11, ERR_NONE },
		{ "expired before it was used", "c", 12, 12, ERR_TICKET_EXPIRED },
		{ "the last moment", "b", 50, 49, ERR_NONCE_REPLAYED },
		{ "forgotten once expired, and then too late anyway", "b", 50, 50, ERR_TICKET_EXPIRED },
		{ "the clock was set back: what was forgotten stays used", "b", 50, 20, ERR_TICKET_EXPIRED },
		{ "others live on", "a", 100, 60, ERR_NONCE_REPLAYED },
		{ "empty", "", 100, 60, ERR_BAD_REQUEST },
		{ "a new life", "b", 200, 120, ERR_NONE },
	};

	(void)state;
	for (size_t d = 0; d < COUNT_OF(drivers); d++) {
		struct nonce_store *store = drivers[d].new(16);

		assert_string_equal(store->ops->name, drivers[d].name);
		for (size_t i = 0; i < COUNT_OF(rows); i++) {
			if (use(store, rows[i].nonce, rows[i].expires_us, rows[i].now_us) != -(int)rows[i].code)
				fail_msg("%s: %s", drivers[d].name, rows[i].why);
		}
		store->ops->free(store);
	}
}

static void test_sizes(void **state)
{
	char nonce[257];
	struct err err = ERR_INIT;

	(void)state;
	memset(nonce, 'x', sizeof(nonce));
	for (size_t d = 0; d < COUNT_OF(drivers); d++) {
		struct nonce_store *store = drivers[d].new(16);

		assert_int_equal(store->ops->use(store, (struct str){ nonce, 257 }, 9, 1, &err), -ERR_BAD_REQUEST);
		assert_int_equal(store->ops->use(store, (struct str){ nonce, 256 }, 9, 1, &err), 0);
		assert_int_equal(store->ops->use(store, (struct str){ nonce, 255 }, 9, 1, NULL), 0);
		assert_int_equal(store->ops->use(store, (struct str){ nonce, 255 }, 9, 1, NULL), -ERR_NONCE_REPLAYED);
		store->ops->free(store);
	}
}

static void test_full_then_room_again(void **state)
{
	char nonce[16];

	(void)state;
	for (size_t d = 0; d < COUNT_OF(drivers); d++) {
		struct nonce_store *store = drivers[d].new(100), *none = drivers[d].new(0);

		assert_int_equal(use(none, "a", 9, 1), -ERR_BUSY);
		none->ops->free(none);
		/* Expiries out of order, so that what goes first is not what came first. */
		for (int i = 0; i < 100; i++) {
			(void)snprintf(nonce, sizeof(nonce), "n%d", i);
			assert_int_equal(use(store, nonce, 1000 + i * 37 % 100, 1), 0);
		}
		assert_int_equal(use(store, "more", 2000, 1), -ERR_BUSY);
		assert_int_equal(use(store, "n0", 2000, 1),
				 -ERR_NONCE_REPLAYED); /* full or not, a replay is a replay */
		/* At 1029 thirty have expired: exactly thirty fit. */
		for (int i = 0; i < 30; i++) {
			(void)snprintf(nonce, sizeof(nonce), "m%d", i);
			assert_int_equal(use(store, nonce, 3000, 1029), 0);
		}
		assert_int_equal(use(store, "more", 3000, 1029), -ERR_BUSY);
		for (int i = 0; i < 100; i++) {
			(void)snprintf(nonce, sizeof(nonce), "n%d", i);
			assert_int_equal(use(store, nonce, 3000, 1029),
					 i * 37 % 100 <= 29 ? -ERR_BUSY : -ERR_NONCE_REPLAYED);
		}
		store->ops->free(store);
	}
}

static void test_long_run_keeps_its_order(void **state)
{
	char nonce[16];

	(void)state;
	for (size_t d = 0; d < COUNT_OF(drivers); d++) {
		struct nonce_store *store = drivers[d].new(64);

		for (int i = 0; i < 20000; i++) {
			(void)snprintf(nonce, sizeof(nonce), "n%d", i);
			assert_int_equal(use(store, nonce, i + 1 + i * 7919 % 60, i), 0);
			if (i * 7919 % 60 > 0)
				assert_int_equal(use(store, nonce, i + 100, i), -ERR_NONCE_REPLAYED);
		}
		store->ops->free(store);
	}
}

struct racer {
	pthread_t thread;
	struct nonce_store *store;
	unsigned won_count;
};

static void *racer_main(void *arg)
{
	struct racer *racer = arg;
	char nonce[16];

	for (int i = 0; i < 2000; i++) {
		int size = snprintf(nonce, sizeof(nonce), "n%d", i);

		racer->won_count += racer->store->ops->use(racer->store, (struct str){ nonce, (size_t)size }, 9, 1,
							   NULL) == 0;
	}
	return NULL;
}

static void test_one_of_many_wins(void **state)
{
	(void)state;
	for (size_t d = 0; d < COUNT_OF(drivers); d++) {
		struct nonce_store *store = drivers[d].new(2000);
		struct racer racers[4] = {
			{ .store = store }, { .store = store }, { .store = store }, { .store = store }
		};
		unsigned won_count = 0;

		for (size_t i = 0; i < 4; i++)
			assert_int_equal(pthread_create(&racers[i].thread, NULL, racer_main, &racers[i]), 0);
		for (size_t i = 0; i < 4; i++) {
			pthread_join(racers[i].thread, NULL);
			won_count += racers[i].won_count;
		}
		assert_int_equal(won_count, 2000);
		store->ops->free(store);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_once_until_it_expires), cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_full_then_room_again),  cmocka_unit_test(test_long_run_keeps_its_order),
		cmocka_unit_test(test_one_of_many_wins),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
