#include <semaphore.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "folder/alert.h"

#define NOW_US (1000 * SEC_US)

static struct alert make(enum err_code code, const char *client, unsigned transfer, int64_t wall_us)
{
	struct alert alert = { .code = code, .count = 1, .first_wall_us = wall_us, .last_wall_us = wall_us };

	snprintf(alert.client, sizeof(alert.client), "%s", client);
	if (transfer)
		snprintf(alert.transfer_id, sizeof(alert.transfer_id), "01ARZ3NDEKTSV4RRFFQ69G%04u", transfer % 10000);
	snprintf(alert.text, sizeof(alert.text), "refused at %lld", (long long)wall_us);
	return alert;
}

static void add(struct alert_table *table, enum err_code code, const char *client, unsigned transfer, int64_t now_us)
{
	const struct alert alert = make(code, client, transfer, now_us);

	alert_table_add(table, &alert, now_us);
}

static size_t due(const struct alert_table *table, int64_t now_us, struct alert alerts[ALERT_SLOTS])
{
	return alert_table_due(table, now_us, alerts, ALERT_SLOTS);
}

/* The first at once, what is the same meanwhile as one more row with its number, and then the next at once again. */
static void test_the_same_again_and_again(void **state)
{
	struct alert_table table = { .fresh_count = 0 };
	struct alert alerts[ALERT_SLOTS];
	char detail[ALERT_TEXT_SIZE + 96];

	(void)state;
	assert_int_equal(due(&table, NOW_US, alerts), 0);
	add(&table, ERR_NONCE_REPLAYED, "10.0.0.1", 1, NOW_US);
	assert_int_equal(due(&table, NOW_US, alerts), 1);
	assert_int_equal(alerts[0].count, 1);
	alert_detail(&alerts[0], detail, sizeof(detail));
	assert_string_equal(detail, "refused at 1000000000");
	/* Not told: it stays, and what comes is added. */
	add(&table, ERR_NONCE_REPLAYED, "10.0.0.1", 1, NOW_US + 1);
	assert_int_equal(due(&table, NOW_US + 1, alerts), 1);
	assert_int_equal(alerts[0].count, 2);
	/* One more comes while these two are being told. */
	add(&table, ERR_NONCE_REPLAYED, "10.0.0.1", 1, NOW_US + 2);
	alert_table_told(&table, &alerts[0], NOW_US + 3);
	assert_int_equal(due(&table, NOW_US + 3, alerts), 0);
	for (int i = 0; i < 1000; i++)
		add(&table, ERR_NONCE_REPLAYED, "10.0.0.1", 1, NOW_US + SEC_US);
	assert_int_equal(due(&table, NOW_US + 2 + ALERT_EVERY_US, alerts), 0);
	assert_int_equal(due(&table, NOW_US + 3 + ALERT_EVERY_US, alerts), 1);
	assert_int_equal(alerts[0].count, 1001);
	alert_detail(&alerts[0], detail, sizeof(detail));
	assert_non_null(strstr(detail, "(and 1000 more of the same since 1970-01-01T00:16:4"));
	alert_table_told(&table, &alerts[0], NOW_US + 3 + ALERT_EVERY_US);
	add(&table, ERR_NONCE_REPLAYED, "10.0.0.1", 1, NOW_US + 100 * SEC_US);
	assert_int_equal(due(&table, NOW_US + 100 * SEC_US, alerts), 1);
	assert_int_equal(alerts[0].count, 1);
	assert_int_equal(alerts[0].first_wall_us, NOW_US + 100 * SEC_US);
}

static void test_what_is_told_apart(void **state)
{
	struct alert_table table = { .fresh_count = 0 };
	struct alert alerts[ALERT_SLOTS];

	(void)state;
	add(&table, ERR_TICKET_BAD, "10.0.0.1", 1, NOW_US);
	add(&table, ERR_TICKET_EXPIRED, "10.0.0.1", 1, NOW_US);
	add(&table, ERR_TICKET_BAD, "10.0.0.2", 1, NOW_US);
	add(&table, ERR_TICKET_BAD, "10.0.0.1", 2, NOW_US);
	add(&table, ERR_TICKET_BAD, "10.0.0.1", 0, NOW_US);
	add(&table, ERR_TICKET_BAD, "10.0.0.1", 1, NOW_US);
	assert_int_equal(due(&table, NOW_US, alerts), 5);
}

/* Whoever calls from as many addresses and about as many transfers as it likes gets few rows, and not one refusal is uncounted. */
static void test_a_flood(void **state)
{
	static const enum err_code codes[] = {
		ERR_UNAUTHENTICATED, ERR_FORBIDDEN,  ERR_TICKET_BAD, ERR_TICKET_EXPIRED,
		ERR_NONCE_REPLAYED,  ERR_CLOCK_SKEW, ERR_AUTH_LIMIT, ERR_DIGEST_CONFLICT
	};
	struct alert_table table = { .fresh_count = 0 };
	struct alert alerts[ALERT_SLOTS];
	uint64_t count = 0;
	size_t row_count = 0;
	const unsigned total = 60000;

	(void)state;
	for (unsigned i = 0; i < total; i++) {
		char client[32];
		const int64_t now_us = NOW_US + i * MSEC_US;

		snprintf(client, sizeof(client), "10.0.%u.%u", i / 256 % 256, i % 256);
		add(&table, codes[i % COUNT_OF(codes)], client, i, now_us);
		/* Told every second, but for a time when nobody listens. */
		if (i % 1000 == 999 && (i < 20000 || i > 40000)) {
			const size_t now_count = due(&table, now_us, alerts);

			row_count += now_count;
			for (size_t k = 0; k < now_count; k++) {
				count += alerts[k].count;
				alert_table_told(&table, &alerts[k], now_us);
			}
		}
	}
	const size_t last_count = due(&table, -1, alerts);
	for (size_t k = 0; k < last_count; k++)
		count += alerts[k].count;
	assert_int_equal(count, total);
	/* A minute: six whiles. */
	assert_true(row_count + last_count <= 7 * (ALERT_FRESH + COUNT_OF(codes)));
}

struct told {
	unsigned calls, fail_count;
	uint64_t count;
};

static int tell(void *owner, const struct alert *alerts, size_t count, struct err *err)
{
	struct told *told = owner;

	told->calls++;
	if (told->calls <= told->fail_count)
		return err_set(err, ERR_CLOSED, "nobody is there");
	for (size_t i = 0; i < count; i++)
		told->count += alerts[i].count;
	return 0;
}

static void count_each(void *owner, enum err_code code, uint64_t count)
{
	assert_int_equal(code, ERR_TICKET_BAD);
	*(uint64_t *)owner += count;
}

/* What was not told while it ran is told when it ends. */
static void test_the_end_tells_the_rest(void **state)
{
	struct told told = { .fail_count = 1 };
	const struct alerts_options options = { .tell = tell, .owner = &told };
	struct alert alert = { .code = ERR_TICKET_BAD, .text = "x" };
	struct alerts *alerts;
	uint64_t counted = 0;

	(void)state;
	assert_int_equal(alerts_start(&options, &alerts, NULL), 0);
	for (int i = 0; i < 50; i++) {
		alerts_count(alerts, ERR_TICKET_BAD);
		alerts_note(alerts, &alert, "[::1]:99");
	}
	alerts_each(alerts, count_each, &counted);
	assert_int_equal(counted, 50);
	alerts_stop(&alerts);
	assert_null(alerts);
	assert_true(told.count == 50 ||
		    told.calls == 1); /* all of it, unless the last attempt was the one that failed */
}

/* The other side is away: it is not asked more often because there is more to tell. */
struct nobody {
	atomic_int told_count;
	sem_t told;
};

static int tell_nobody(void *owner, const struct alert *alerts UNUSED, size_t count UNUSED, struct err *err)
{
	struct nobody *nobody = owner;

	atomic_fetch_add(&nobody->told_count, 1);
	sem_post(&nobody->told);
	return err_set(err, ERR_SCHEDULER_DOWN, "nobody hears it");
}

static void test_nobody_hears(void **state)
{
	const struct alert alert = make(ERR_TICKET_BAD, "", 1, NOW_US);
	struct nobody nobody = { .told_count = 0 };
	const struct alerts_options options = { .tell = tell_nobody, .owner = &nobody };
	struct alerts *alerts;

	(void)state;
	assert_int_equal(sem_init(&nobody.told, 0, 0), 0);
	assert_int_equal(alerts_start(&options, &alerts, NULL), 0);
	alerts_note(alerts, &alert, "192.0.2.1:1");
	alerts_note(alerts, &alert, "192.0.2.1:1");
	assert_int_equal(sem_wait(&nobody.told), 0);
	/* That something does not happen has no readiness to wait for: only time for it to happen in. */
	for (int i = 0; i < 100; i++) {
		alerts_note(alerts, &alert, "192.0.2.1:1");
		usleep(2000);
	}
	assert_int_equal(atomic_load(&nobody.told_count), 1);
	/* The end does not wait for its time. */
	alerts_stop(&alerts);
	assert_int_equal(atomic_load(&nobody.told_count), 2);
	sem_destroy(&nobody.told);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nobody_hears),           cmocka_unit_test(test_the_same_again_and_again),
		cmocka_unit_test(test_what_is_told_apart),     cmocka_unit_test(test_a_flood),
		cmocka_unit_test(test_the_end_tells_the_rest),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
