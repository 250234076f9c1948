#include "folder/alert.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"

#define RETRY_US    (5 * SEC_US)
#define ALERT_KINDS 16u /* at least as many as alert_is_due knows */

/* Every row of the list, in its order. */
static const enum err_code codes[] = {
#define ERR(name, number, retry, http, word) ERR_##name,
#include "base/err_list.h"
#undef ERR
};

struct alerts {
	struct alerts_options options;
	_Atomic uint64_t counts[COUNT_OF(codes)];
	pthread_t thread;
	pthread_mutex_t lock; /* protects the rest */
	pthread_cond_t changed;
	bool is_stopping;
	struct alert_table table;
};

bool alert_is_due(enum err_code code)
{
	return code == ERR_UNAUTHENTICATED || code == ERR_FORBIDDEN || code == ERR_TICKET_BAD ||
	       code == ERR_TICKET_EXPIRED || code == ERR_NONCE_REPLAYED || code == ERR_CLOCK_SKEW ||
	       code == ERR_AUTH_LIMIT || code == ERR_DIGEST_CONFLICT;
}

/* --- gathering --- */

static bool is_same(const struct alert *a, const struct alert *b)
{
	return a->code == b->code && strcmp(a->client, b->client) == 0 && strcmp(a->transfer_id, b->transfer_id) == 0;
}

/* A kind that has nothing to tell, the longest silent: it is forgotten for another. */
static struct alert_slot *silent_slot(struct alert_table *table)
{
	struct alert_slot *found = NULL;

	for (size_t i = 0; i < ALERT_SLOTS; i++) {
		struct alert_slot *slot = &table->slots[i];

		if (slot->alert.count == 0 && (!found || slot->told_mono_us < found->told_mono_us))
			found = slot;
	}
	return found;
}

static struct alert_slot *same_slot(struct alert_table *table, const struct alert *alert)
{
	for (size_t i = 0; i < ALERT_SLOTS; i++) {
		if (is_same(&table->slots[i].alert, alert))
			return &table->slots[i];
	}
	return NULL;
}

/* May one more kind be told apart? Addresses and transfers are the caller's to choose, and there may be as many as it likes. */
static bool may_be_fresh(struct alert_table *table, int64_t now_mono_us)
{
	size_t used = 0;

	for (size_t i = 0; i < ALERT_SLOTS; i++)
		used += table->slots[i].alert.count > 0;
	if (table->fresh_mono_us == 0 || now_mono_us - table->fresh_mono_us >= ALERT_EVERY_US) {
		table->fresh_mono_us = now_mono_us;
		table->fresh_count = 0;
	}
	/* The last places are for those that are told apart by their error alone: there are fewer such errors. */
	return used < ALERT_SLOTS - ALERT_KINDS && table->fresh_count < ALERT_FRESH;
}

void alert_table_add(struct alert_table *table, const struct alert *alert, int64_t now_mono_us)
{
	struct alert own = *alert;
	struct alert_slot *slot = same_slot(table, &own);

	if (!slot && !may_be_fresh(table, now_mono_us)) {
		own.client[0] = own.transfer_id[0] = own.user[0] = '\0';
		slot = same_slot(table, &own);
	} else if (!slot) {
		table->fresh_count++;
	}
	if (!slot) {
		slot = silent_slot(table);
		MUST(slot);
		*slot = (struct alert_slot){ .told_mono_us = 0 };
	}
	if (slot->alert.count == 0)
		slot->alert = own;
	else
		slot->alert.count += own.count;
	slot->alert.last_wall_us = max_i64(slot->alert.last_wall_us, own.last_wall_us);
}

size_t alert_table_due(const struct alert_table *table, int64_t now_mono_us, struct alert *ret_alerts, size_t limit)
{
	size_t count = 0;

	for (size_t i = 0; i < ALERT_SLOTS && count < limit; i++) {
		const struct alert_slot *slot = &table->slots[i];

		if (slot->alert.count > 0 &&
		    (now_mono_us < 0 || slot->told_mono_us == 0 || now_mono_us - slot->told_mono_us >= ALERT_EVERY_US))
			ret_alerts[count++] = slot->alert;
	}
	return count;
}

void alert_table_told(struct alert_table *table, const struct alert *alert, int64_t now_mono_us)
{
	struct alert_slot *slot = same_slot(table, alert);

	if (!slot)
		return;
	slot->alert.count -= slot->alert.count < alert->count ? slot->alert.count : alert->count;
	slot->alert.first_wall_us = alert->last_wall_us;
	slot->told_mono_us = now_mono_us;
}

/* --- telling --- */

void alert_detail(const struct alert *alert, char *target, size_t target_size)
{
	char since[CLOCK_TEXT_SIZE];

	if (alert->count <= 1)
		snprintf(target, target_size, "%s", alert->text);
	else
		snprintf(target, target_size, "%s (and %" PRIu64 " more of the same since %s)", alert->text,
			 alert->count - 1, clock_text(alert->first_wall_us, since));
}

static void say(const struct alert *alert)
{
	char detail[ALERT_TEXT_SIZE + 96];

	alert_detail(alert, detail, sizeof(detail));
	log_say(LOG_WARN, "alert: %s from %s%s%s: %s", err_word(alert->code),
		alert->client[0] != '\0' ? alert->client : "several addresses",
		alert->transfer_id[0] != '\0' ? ", transfer " : "", alert->transfer_id, detail);
}

static void tell_due(struct alerts *alerts, int64_t now_mono_us, bool *is_failing)
{
	struct alert due[ALERT_SLOTS];
	struct err err = ERR_INIT;

	pthread_mutex_lock(&alerts->lock);
	const size_t count = alert_table_due(&alerts->table, now_mono_us, due, ALERT_SLOTS);
	pthread_mutex_unlock(&alerts->lock);
	if (count == 0)
		return;
	const bool is_told = alerts->options.tell(alerts->options.owner, due, count, &err) == 0;
	if (!is_told && !*is_failing)
		log_err(LOG_ERROR, &err, "alerts could not be written down, and are kept");
	/* While it cannot be told nobody is to miss it here; but once, not at each attempt. */
	for (size_t i = 0; i < count && (is_told || !*is_failing); i++)
		say(&due[i]);
	*is_failing = !is_told;
	if (!is_told)
		return;
	pthread_mutex_lock(&alerts->lock);
	for (size_t i = 0; i < count; i++)
		alert_table_told(&alerts->table, &due[i], clock_mono_us());
	pthread_mutex_unlock(&alerts->lock);
}

/* A new alert wakes it, unless it has just failed: then more of them do not make the other side be asked more often. */
static void wait_a_while(struct alerts *alerts, bool is_failing)
{
	struct timespec until;
	int result = 0;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += (is_failing ? RETRY_US : SEC_US) / SEC_US;
	do
		result = pthread_cond_timedwait(&alerts->changed, &alerts->lock, &until);
	while (is_failing && !alerts->is_stopping && result == 0);
}

static void *alerts_main(void *arg)
{
	struct alerts *alerts = arg;
	bool is_failing = false, is_stopping = false;

	while (!is_stopping) {
		tell_due(alerts, clock_mono_us(), &is_failing);
		pthread_mutex_lock(&alerts->lock);
		struct alert one;
		if (!alerts->is_stopping &&
		    (is_failing || alert_table_due(&alerts->table, clock_mono_us(), &one, 1) == 0))
			wait_a_while(alerts, is_failing);
		is_stopping = alerts->is_stopping;
		pthread_mutex_unlock(&alerts->lock);
	}
	tell_due(alerts, -1, &is_failing);
	return NULL;
}

int alerts_start(const struct alerts_options *options, struct alerts **ret_alerts, struct err *err)
{
	struct alerts *alerts = must_zalloc(1, sizeof(*alerts));
	pthread_condattr_t attributes;

	*ret_alerts = NULL;
	alerts->options = *options;
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&alerts->changed, &attributes);
	pthread_condattr_destroy(&attributes);
	pthread_mutex_init(&alerts->lock, NULL);
	const int fault = pthread_create(&alerts->thread, NULL, alerts_main, alerts);
	if (fault != 0) {
		pthread_cond_destroy(&alerts->changed);
		pthread_mutex_destroy(&alerts->lock);
		free(alerts);
		return err_sys(err, ERR_SYSTEM, fault, "cannot start the thread of alerts");
	}
	*ret_alerts = alerts;
	return 0;
}

void alerts_stop(struct alerts **alerts_ref)
{
	struct alerts *alerts = *alerts_ref;

	if (!alerts)
		return;
	pthread_mutex_lock(&alerts->lock);
	alerts->is_stopping = true;
	pthread_cond_signal(&alerts->changed);
	pthread_mutex_unlock(&alerts->lock);
	pthread_join(alerts->thread, NULL);
	pthread_cond_destroy(&alerts->changed);
	pthread_mutex_destroy(&alerts->lock);
	free(alerts);
	*alerts_ref = NULL;
}

void alerts_note(struct alerts *alerts, const struct alert *alert, const char *client_addr)
{
	struct alert own = *alert;
	const char *colon = strrchr(client_addr, ':');
	const struct str client = { client_addr, colon ? (size_t)(colon - client_addr) : strlen(client_addr) };

	if (!str_copy(client, own.client, sizeof(own.client)))
		own.client[0] = '\0';
	own.count = 1;
	own.first_wall_us = own.last_wall_us = clock_wall_us();
	pthread_mutex_lock(&alerts->lock);
	alert_table_add(&alerts->table, &own, clock_mono_us());
	pthread_cond_signal(&alerts->changed);
	pthread_mutex_unlock(&alerts->lock);
}

void alerts_count(struct alerts *alerts, enum err_code code)
{
	for (size_t i = 0; i < COUNT_OF(codes); i++) {
		if (codes[i] == code)
			atomic_fetch_add_explicit(&alerts->counts[i], 1, memory_order_relaxed);
	}
}

void alerts_each(const struct alerts *alerts, void (*each)(void *owner, enum err_code code, uint64_t count),
		 void *owner)
{
	for (size_t i = 0; i < COUNT_OF(codes); i++) {
		const uint64_t count = atomic_load_explicit(&alerts->counts[i], memory_order_relaxed);

		if (count > 0)
			each(owner, codes[i], count);
	}
}
