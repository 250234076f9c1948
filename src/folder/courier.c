#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "folder/courier.h"
#include "folder/receipt.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "sys/fetch.h"

#define URL_SIZE           512
#define CONNECT_TIMEOUT_US (2 * SEC_US)
#define CALL_TIMEOUT_US    (10 * SEC_US)
#define STOP_GRACE_US      (2 * SEC_US)
#define PROBE_SILENCE_US   (10 * SEC_US)
#define INTERVAL_US        (3 * SEC_US)
#define INTERVAL_MIN_US    (SEC_US / 10)
#define INTERVAL_MAX_US    (60 * SEC_US)
#define IDLE_STEP_US       SEC_US
#define ANSWER_MAX         (64 * KIB)
#define REGISTER_BODY_MAX  (4 * KIB)
#define ATTEMPTS_MAX       4096 /* parcels waiting when one that nobody waits for is turned away */

struct courier {
	char receipts_url[URL_SIZE], register_url[URL_SIZE];
	char key_header[128];
	struct store_node node;
	struct fetch *fetch;
	pthread_t thread;
	bool is_thread_started;
	_Atomic bool is_stopping;
	_Atomic int64_t end_mono_us; /* the thread ends then; 0: not known yet */
	_Atomic int64_t probed_mono_us;

	pthread_mutex_t lock; /* protects the queue */
	struct courier_parcel *first, **last_link;
	size_t waiting_count;
	bool is_closed; /* nothing is carried any more */

	/* The thread's own. */
	struct fetch_call post_call, register_call;
	struct buf post_body, register_body;
	struct courier_parcel *batch;
	size_t batch_count;
	bool is_posting, is_registering, is_registered;
	int64_t registered_mono_us; /* last attempt */
	int64_t interval_us;
	bool was_reachable; /* for saying a change once */
};

/* --- parcels --- */

static void deliver_home(struct loop *loop, struct post *post)
{
	struct courier_parcel *parcel = post->owner;

	parcel->done(parcel, loop);
}

static void deliver(struct courier_parcel *parcel)
{
	if (!parcel->home) {
		parcel->done(parcel, NULL);
		return;
	}
	parcel->post = (struct post){ .run = deliver_home, .owner = parcel };
	loop_post(parcel->home, &parcel->post);
}

static void deliver_all(struct courier_parcel *parcels, const struct err *err)
{
	while (parcels) {
		struct courier_parcel *next = parcels->next;

		parcels->err = *err;
		deliver(parcels);
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
	pthread_mutex_lock(&courier->lock);
	if (courier->is_closed)
		say_closed(&parcel->err);
	else if (!parcel->home && courier->waiting_count >= ATTEMPTS_MAX)
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
		deliver(parcel);
	/* Whoever finds the queue filled knows that the thread has been woken and has not looked yet. */
	else if (was_empty)
		fetch_wake(courier->fetch);
}

/* Takes up to `limit` from the front of the queue. */
static struct courier_parcel *take(struct courier *courier, size_t limit, size_t *ret_count)
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

/* --- receipts --- */

static void note_reachable(struct courier *courier, bool is_reachable, const struct err *err)
{
	if (is_reachable && !courier->was_reachable)
		log_say(LOG_INFO, "the scheduler takes receipts again");
	if (!is_reachable && courier->was_reachable)
		log_err(LOG_WARN, err, "receipts cannot be delivered");
	courier->was_reachable = is_reachable;
	/* A scheduler that was away may have forgotten us. */
	if (!is_reachable)
		courier->is_registered = false;
}

static void refuse_parcel(struct courier_parcel *parcel, enum err_code code)
{
	const struct store_receipt *receipt = &parcel->receipt;

	if (code == ERR_NONE)
		return;
	err_set(&parcel->err, code,
		"the scheduler did not take the receipt of chunk %" PRIu64 " of file %" PRIu64 ": %s",
		receipt->chunk_index, receipt->file_id, err_word(code));
}

/* Gives each parcel its line of the answer; false when the lines do not fit the batch: then nothing was given. */
static bool read_answer(struct courier *courier, struct str text, struct err *err)
{
	enum err_code results[RECEIPT_BATCH_MAX];
	struct str line;
	size_t count = 0;

	while (str_cut(&text, '\n', &line)) {
		if (count == courier->batch_count || receipt_answer_parse(line, &results[count], err) < 0) {
			count = SIZE_MAX;
			break;
		}
		count++;
	}
	if (count != courier->batch_count) {
		err_set(err, ERR_SCHEDULER_DOWN,
			"the scheduler's answer does not fit the %zu receipts that it was sent", courier->batch_count);
		return false;
	}
	count = 0;
	for (struct courier_parcel *parcel = courier->batch; parcel; parcel = parcel->next)
		refuse_parcel(parcel, results[count++]);
	return true;
}

static void post_done(struct fetch *fetch UNUSED, struct fetch_call *call)
{
	struct courier *courier = call->owner;
	struct courier_parcel *batch = courier->batch;
	struct err err = ERR_INIT;
	bool is_answered = false;

	if (call->status >= 200 && call->status < 300 && call->err.code == ERR_NONE)
		is_answered = read_answer(courier, buf_str(&call->answer), &err);
	else
		err_set(&err, ERR_SCHEDULER_DOWN, "the chunk is stored, but the scheduler could not be told: %s",
			call->err.text);
	note_reachable(courier, is_answered, &err);
	courier->batch = NULL;
	courier->batch_count = 0;
	courier->is_posting = false;
	if (!is_answered) {
		err_hint(&err, "the chunk is kept: send it again in a moment");
		deliver_all(batch, &err);
		return;
	}
	while (batch) {
		struct courier_parcel *next = batch->next;

		deliver(batch);
		batch = next;
	}
}

static void post_batch(struct courier *courier)
{
	courier->batch = take(courier, RECEIPT_BATCH_MAX, &courier->batch_count);
	if (!courier->batch)
		return;
	buf_clear(&courier->post_body);
	for (const struct courier_parcel *parcel = courier->batch; parcel; parcel = parcel->next)
		receipt_write(&courier->post_body, &parcel->receipt);
	buf_fini(&courier->post_call.answer);
	courier->post_call = FETCH_CALL_INIT;
	courier->post_call.method = "POST";
	courier->post_call.url = courier->receipts_url;
	courier->post_call.headers[0] = courier->key_header;
	courier->post_call.headers[1] = "Content-Type: text/plain";
	courier->post_call.body = buf_str(&courier->post_body);
	courier->post_call.connect_timeout_us = CONNECT_TIMEOUT_US;
	courier->post_call.timeout_us = CALL_TIMEOUT_US;
	courier->post_call.answer = BUF_INIT(ANSWER_MAX);
	courier->post_call.done = post_done;
	courier->post_call.owner = courier;
	courier->is_posting = true;
	if (courier->post_body.is_failed) {
		err_set(&courier->post_call.err, ERR_NO_MEMORY, "no memory for a batch of receipts");
		post_done(courier->fetch, &courier->post_call);
		return;
	}
	fetch_start(courier->fetch, &courier->post_call);
}

/* --- registration --- */

static void fill_register_call(struct courier *courier)
{
	struct json json;

	buf_clear(&courier->register_body);
	json_init(&json, &courier->register_body);
	json_open(&json, NULL);
	json_c(&json, "node_id", courier->node.id);
	json_c(&json, "addr", courier->node.addr);
	json_c(&json, "incarnation", courier->node.incarnation);
	json_u64(&json, "weight_milli", courier->node.weight_milli);
	json_c(&json, "domain", courier->node.domain);
	json_close(&json);
	buf_fini(&courier->register_call.answer);
	courier->register_call = FETCH_CALL_INIT;
	courier->register_call.method = "POST";
	courier->register_call.url = courier->register_url;
	courier->register_call.headers[0] = courier->key_header;
	courier->register_call.headers[1] = "Content-Type: application/json";
	courier->register_call.body = buf_str(&courier->register_body);
	courier->register_call.connect_timeout_us = CONNECT_TIMEOUT_US;
	courier->register_call.timeout_us = CALL_TIMEOUT_US;
	courier->register_call.owner = courier;
	courier->registered_mono_us = clock_mono_us();
}

static void take_interval(struct courier *courier, struct str body)
{
	json_t *root = json_loadb(body.data ? body.data : "", body.size, JSON_REJECT_DUPLICATES, NULL);
	const json_t *interval = json_object_get(root, "probe_interval_us");

	if (json_is_integer(interval))
		courier->interval_us = max_i64(INTERVAL_MIN_US, min_i64(json_integer_value(interval), INTERVAL_MAX_US));
	json_decref(root);
}

static void register_done(struct fetch *fetch UNUSED, struct fetch_call *call)
{
	struct courier *courier = call->owner;

	courier->is_registering = false;
	if (call->status >= 200 && call->status < 300 && call->err.code == ERR_NONE) {
		if (!courier->is_registered)
			log_say(LOG_INFO, "registered with the scheduler as '%s' at %s", courier->node.id,
				courier->node.addr);
		courier->is_registered = true;
		take_interval(courier, buf_str(&call->answer));
		return;
	}
	/* Said at each attempt when the scheduler itself refuses: an operator has to do something about it. */
	if (call->status != 0)
		log_err(LOG_ERROR, &call->err, "the scheduler refused to register this node");
	courier->is_registered = false;
}

static bool should_register(const struct courier *courier, int64_t now_us)
{
	const int64_t since_us = now_us - courier->registered_mono_us;

	if (courier->is_registering)
		return false;
	if (!courier->is_registered)
		return since_us >= courier->interval_us;
	return since_us >= PROBE_SILENCE_US && now_us - atomic_load(&courier->probed_mono_us) >= PROBE_SILENCE_US;
}

void courier_note_probe(struct courier *courier) { atomic_store(&courier->probed_mono_us, clock_mono_us()); }

static int register_first(struct courier *courier, struct err *err)
{
	int r;

	fill_register_call(courier);
	r = fetch_do(courier->fetch, &courier->register_call, err);
	if (r == 0) {
		courier->is_registered = true;
		take_interval(courier, buf_str(&courier->register_call.answer));
		return 0;
	}
	/* No answer, or a scheduler that is in trouble itself: it may be back later. Anything else is about us. */
	if (courier->register_call.status == 0 || courier->register_call.status >= 500) {
		log_err(LOG_WARN, err, "cannot register with the scheduler yet, trying on");
		return 0;
	}
	return err_wrap(err, "the scheduler at %s refused to register node '%s'", courier->register_url,
			courier->node.id);
}

/* --- the thread --- */

/* Answers what waits and all that is still to come. By the thread, or when there is none. */
static void close_queue(struct courier *courier)
{
	struct err err = ERR_INIT;
	size_t count;

	say_closed(&err);
	pthread_mutex_lock(&courier->lock);
	courier->is_closed = true;
	pthread_mutex_unlock(&courier->lock);
	deliver_all(courier->batch, &err);
	courier->batch = NULL;
	deliver_all(take(courier, SIZE_MAX, &count), &err);
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

		if (!courier->is_posting && !is_stopping)
			post_batch(courier);
		if (end_us == 0 && should_register(courier, now_us)) {
			fill_register_call(courier);
			courier->register_call.done = register_done;
			courier->is_registering = true;
			fetch_start(courier->fetch, &courier->register_call);
		}
		if ((end_us != 0 && now_us >= end_us) || (is_stopping && !courier->is_posting))
			break;
		/* A wake ends the wait at once; the limit is for the clock of registrations, and for the end. */
		if (end_us != 0)
			step_us = min_i64(step_us, end_us - now_us);
		fetch_step(courier->fetch, step_us);
	}
	fetch_cancel(courier->fetch, &courier->post_call);
	close_queue(courier);
	return NULL;
}

static int fill(struct courier *courier, const struct courier_options *options, struct err *err)
{
	size_t size = strlen(options->scheduler);
	int receipts_size, register_size;

	while (size > 0 && options->scheduler[size - 1] == '/')
		size--;
	receipts_size = snprintf(courier->receipts_url, URL_SIZE, "%.*s/internal/v1/receipts", (int)size,
				 options->scheduler);
	register_size = snprintf(courier->register_url, URL_SIZE, "%.*s/internal/v1/nodes/register", (int)size,
				 options->scheduler);
	if (size == 0 || receipts_size >= URL_SIZE || register_size >= URL_SIZE)
		return err_set(err, ERR_CONFIG, "the scheduler's URL is empty or too long");
	(void)snprintf(courier->key_header, sizeof(courier->key_header), "X-Internal-Key: %s", options->internal_key);
	courier->node = options->node;
	courier->interval_us = INTERVAL_US;
	courier->was_reachable = true;
	courier->last_link = &courier->first;
	courier->post_body = BUF_INIT((size_t)RECEIPT_BATCH_MAX * RECEIPT_LINE_MAX);
	courier->register_body = BUF_INIT(REGISTER_BODY_MAX);
	return fetch_new(&courier->fetch, err);
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
	int r = register_first(courier, err ? err : &local);
	int number;

	if (r == 0) {
		number = pthread_create(&courier->thread, NULL, courier_run, courier);
		if (number != 0)
			r = err_sys(err, ERR_SYSTEM, number, "cannot start the courier's thread");
	}
	courier->is_thread_started = r == 0;
	/* The server is up already, and cannot end before the calls that wait for us have their answers. */
	if (r < 0)
		close_queue(courier);
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
		close_queue(courier);
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
	close_queue(c);
	buf_fini(&c->post_call.answer);
	buf_fini(&c->register_call.answer);
	buf_fini(&c->post_body);
	buf_fini(&c->register_body);
	pthread_mutex_destroy(&c->lock);
	free(c);
	*courier = NULL;
}
