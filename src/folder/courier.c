#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "folder/courier_inside.h"
#include "base/clock.h"

#define STOP_GRACE_US     (2 * SEC_US)
#define INTERVAL_US       (3 * SEC_US)
#define IDLE_STEP_US      SEC_US
#define REGISTER_BODY_MAX (4 * KIB)

/* --- parcels --- */

static void deliver_home(struct loop *loop, struct post *post)
{
	struct courier_parcel *parcel = post->owner;

	parcel->done(parcel, loop);
}

void courier_deliver(struct courier_parcel *parcel)
{
	if (!parcel->home) {
		parcel->done(parcel, NULL);
		return;
	}
	parcel->post = (struct post){ .run = deliver_home, .owner = parcel };
	loop_post(parcel->home, &parcel->post);
}

void courier_deliver_all(struct courier_parcel *parcels, const struct err *err)
{
	while (parcels) {
		struct courier_parcel *next = parcels->next;

		parcels->err = *err;
		courier_deliver(parcels);
		parcels = next;
	}
}

static void say_closed(struct err *err)
{
	err_set(err, ERR_SCHEDULER_DOWN, "the chunk is stored, but the node stops before the scheduler could be told");
	err_hint(err, "the chunk is kept: send it again when the node is back");
}

void courier_send(struct courier *courier, struct courier_parcel *parcel)
{
	bool was_empty, is_taken;

	parcel->next = NULL;
	parcel->err = ERR_INIT;
	parcel->is_kept = false;
	pthread_mutex_lock(&courier->lock);
	if (courier->is_closed)
		say_closed(&parcel->err);
	else if (!parcel->home && courier->waiting_count >= COURIER_ATTEMPTS_MAX)
		err_set(&parcel->err, ERR_BUSY, "too much waits for the scheduler");
	is_taken = parcel->err.code == ERR_NONE;
	was_empty = !courier->first;
	if (is_taken) {
		*courier->last_link = parcel;
		courier->last_link = &parcel->next;
		courier->waiting_count++;
	}
	pthread_mutex_unlock(&courier->lock);
	if (!is_taken)
		courier_deliver(parcel);
	/* Whoever finds the queue filled knows that the thread has been woken and has not looked yet. */
	else if (was_empty)
		fetch_wake(courier->fetch);
}

struct courier_parcel *courier_take(struct courier *courier, size_t limit, size_t *ret_count)
{
	struct courier_parcel *first, *last = NULL;

	*ret_count = 0;
	pthread_mutex_lock(&courier->lock);
	first = courier->first;
	for (struct courier_parcel *parcel = first; parcel && *ret_count < limit; parcel = parcel->next) {
		last = parcel;
		++*ret_count;
	}
	if (last) {
		courier->first = last->next;
		if (!courier->first)
			courier->last_link = &courier->first;
		last->next = NULL;
		courier->waiting_count -= *ret_count;
	}
	pthread_mutex_unlock(&courier->lock);
	return last ? first : NULL;
}

void courier_note_probe(struct courier *courier) { atomic_store(&courier->probed_mono_us, clock_mono_us()); }

size_t courier_kept_count(struct courier *courier) { return atomic_load(&courier->kept_count); }

/* --- the thread --- */

/* Answers what waits and all that is still to come. By the thread, or when there is none. may_keep: a scheduler that took this node in will be told
 * of these when the node is back. */
static void close_queue(struct courier *courier, bool may_keep)
{
	struct err err = ERR_INIT;
	struct courier_parcel *batch = courier->batch;
	size_t count;

	say_closed(&err);
	pthread_mutex_lock(&courier->lock);
	courier->is_closed = true;
	pthread_mutex_unlock(&courier->lock);
	courier->batch = NULL;
	if (!batch)
		batch = courier_take(courier, RECEIPT_BATCH_MAX, &count);
	for (; batch; batch = courier_take(courier, RECEIPT_BATCH_MAX, &count)) {
		if (may_keep && courier->journal && !courier->is_refusing)
			courier_keep(courier, batch, &err);
		else
			courier_deliver_all(batch, &err);
	}
}

static void *courier_run(void *owner)
{
	struct courier *courier = owner;

	(void)pthread_setname_np(pthread_self(), "courier");
	for (;;) {
		const int64_t now_us = clock_mono_us();
		const int64_t end_us = atomic_load(&courier->end_mono_us);
		const bool is_stopping = atomic_load(&courier->is_stopping);
		int64_t step_us = min_i64(IDLE_STEP_US, courier->interval_us);

		step_us = min_i64(step_us, courier_post_step(courier, now_us, is_stopping));
		if (end_us == 0)
			courier_register_step(courier, now_us);
		if ((end_us != 0 && now_us >= end_us) || (is_stopping && !courier->is_posting))
			break;
		/* A wake ends the wait at once; the limit is for the clock of registrations, and for the end. */
		if (end_us != 0)
			step_us = min_i64(step_us, end_us - now_us);
		fetch_step(courier->fetch, step_us);
	}
	fetch_cancel(courier->fetch, &courier->post_call);
	close_queue(courier, true);
	return NULL;
}

static int fill(struct courier *courier, const struct courier_options *options, struct err *err)
{
	size_t size = strlen(options->scheduler);
	int receipts_size, register_size;

	while (size > 0 && options->scheduler[size - 1] == '/')
		size--;
	receipts_size = snprintf(courier->receipts_url, COURIER_URL_SIZE, "%.*s/internal/v1/receipts", (int)size,
				 options->scheduler);
	register_size = snprintf(courier->register_url, COURIER_URL_SIZE, "%.*s/internal/v1/nodes/register", (int)size,
				 options->scheduler);
	if (size == 0 || receipts_size >= COURIER_URL_SIZE || register_size >= COURIER_URL_SIZE)
		return err_set(err, ERR_CONFIG, "the scheduler's URL is empty or too long");
	courier->internal_key = options->internal_key;
	courier->node = options->node;
	courier->interval_us = INTERVAL_US;
	courier->is_stored = options->is_stored;
	courier->refused = options->refused;
	courier->owner = options->owner;
	courier->is_reachable = true;
	rng_seed_kernel(&courier->rng);
	courier->last_link = &courier->first;
	courier->post_body = BUF_INIT((size_t)RECEIPT_BATCH_MAX * RECEIPT_LINE_MAX);
	courier->register_body = BUF_INIT(REGISTER_BODY_MAX);
	const int r = internal_fetch_new(courier->internal_key, &courier->fetch, err);
	return r < 0 ? r : courier_open_journal(courier, options, err);
}

int courier_new(const struct courier_options *options, struct courier **ret_courier, struct err *err)
{
	struct courier *courier = must_zalloc(1, sizeof(*courier));
	int r;

	MUST(pthread_mutex_init(&courier->lock, NULL) == 0);
	r = fill(courier, options, err);
	if (r < 0) {
		courier_stop(&courier);
		return r;
	}
	*ret_courier = courier;
	return 0;
}

int courier_start(struct courier *courier, struct err *err)
{
	struct err local = ERR_INIT;
	int r = courier_register_first(courier, err ? err : &local);
	int number;

	if (r == 0) {
		number = pthread_create(&courier->thread, NULL, courier_run, courier);
		if (number != 0)
			r = err_sys(err, ERR_SYSTEM, number, "cannot start the courier's thread");
	}
	courier->is_thread_started = r == 0;
	/* The server is up already, and cannot end before the calls that wait for us have their answers. */
	if (r < 0)
		close_queue(courier, false);
	return r;
}

void courier_end(struct courier *courier, int64_t grace_us)
{
	int64_t none = 0;

	/* The first word counts. */
	(void)atomic_compare_exchange_strong(&courier->end_mono_us, &none, clock_mono_us() + grace_us);
	if (courier->is_thread_started)
		fetch_wake(courier->fetch);
	else
		close_queue(courier, false);
}

void courier_stop(struct courier **courier)
{
	struct courier *c = *courier;

	if (!c)
		return;
	atomic_store(&c->is_stopping, true);
	if (c->is_thread_started) {
		courier_end(c, STOP_GRACE_US);
		pthread_join(c->thread, NULL);
	}
	if (c->fetch)
		fetch_free(&c->fetch);
	close_queue(c, false);
	journal_close(&c->journal);
	free(c->kept);
	free(c->to_keep);
	buf_fini(&c->post_call.answer);
	buf_fini(&c->register_call.answer);
	buf_fini(&c->post_body);
	buf_fini(&c->register_body);
	pthread_mutex_destroy(&c->lock);
	free(c);
	*courier = NULL;
}
