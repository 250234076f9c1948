#include <inttypes.h>
#include <stdlib.h>

#include "folder/courier_inside.h"
#include "base/clock.h"
#include "base/log.h"
#include "core/curve.h"

#define ANSWER_MAX     (64 * KIB)
#define RETRY_LEAST_US (50 * MSEC_US)
#define RETRY_BASE_US  (200 * MSEC_US)
#define RETRY_CAP_US   (5 * SEC_US)
#define PATIENCE_US    (3 * SEC_US) /* of a receipt that waits for others to be told; much less than its sender's */

/* --- is the scheduler there? --- */

void courier_note_failure(struct courier *courier, const struct err *err, bool is_refusing, int64_t now_us)
{
	if (courier->is_reachable) {
		log_err(LOG_WARN, err, "receipts cannot be delivered");
		courier->is_failure_told = true;
	}
	courier->is_reachable = false;
	courier->is_refusing = is_refusing;
	err_set(&courier->cause, ERR_SCHEDULER_DOWN, "the chunk is stored, but the scheduler could not be told: %s",
		err->text);
	err_hint(&courier->cause, "the chunk is kept: send it again in a moment");
	/* A scheduler that was away may have forgotten us. */
	courier->is_registered = false;
	courier->failed_mono_us = now_us;
	courier->retry_mono_us = now_us + RETRY_LEAST_US +
				 curve_backoff_us(courier->failure_count++, RETRY_BASE_US, RETRY_CAP_US, &courier->rng);
}

static void note_answer(struct courier *courier)
{
	if (courier->is_failure_told)
		log_say(LOG_INFO, "the scheduler takes receipts again");
	courier->is_failure_told = false;
	courier->is_reachable = true;
	courier->is_refusing = false;
	courier->failure_count = 0;
	courier->retry_mono_us = 0;
}

void courier_post_hurry(struct courier *courier)
{
	courier->retry_mono_us = 0;
	/* Without anything kept, whoever comes next need not be put off. */
	if (!courier->journal || journal_is_empty(courier->journal))
		note_answer(courier);
}

/* --- keeping --- */

int courier_open_journal(struct courier *courier, const struct courier_options *options, struct err *err)
{
	uint64_t lost_bytes = 0;

	if (!options->journal_path)
		return 0;
	courier->kept = must_zalloc(RECEIPT_BATCH_MAX, sizeof(*courier->kept));
	courier->to_keep = must_zalloc(RECEIPT_BATCH_MAX, sizeof(*courier->to_keep));
	if (journal_open(options->journal_path, options->journal_limit_bytes, &courier->journal, &lost_bytes, err) < 0)
		return -(int)err->code;
	if (lost_bytes > 0)
		log_say(LOG_ERROR, "%" PRIu64 " bytes of the receipt journal '%s' are damaged: what they said is lost",
			lost_bytes, options->journal_path);
	courier->is_keeping_failed = options->journal_limit_bytes == 0;
	atomic_store(&courier->kept_count, journal_count(courier->journal));
	if (!journal_is_empty(courier->journal))
		log_say(LOG_INFO, "%zu receipts are kept from before for the scheduler",
			journal_count(courier->journal));
	return 0;
}

/* with_attempts: those that failed too; nobody waits for them. */
static int append_some(struct courier *courier, const struct courier_parcel *parcels, bool with_attempts,
		       struct err *err)
{
	size_t count = 0;

	for (; parcels; parcels = parcels->next) {
		if (parcels->receipt.outcome != ERR_NONE && !with_attempts)
			continue;
		MUST(count < RECEIPT_BATCH_MAX);
		courier->to_keep[count++] = (struct journal_record){ parcels->receipt, parcels->is_repeat };
	}
	return count > 0 ? journal_append(courier->journal, courier->to_keep, count, err) : 0;
}

static int append(struct courier *courier, const struct courier_parcel *parcels, struct err *err)
{
	if (!courier->journal)
		return err_set(err, ERR_LIMIT, "this node has no journal");
	int r = append_some(courier, parcels, journal_has_plenty(courier->journal), err);
	if (r == -ERR_LIMIT)
		r = append_some(courier, parcels, false, err);
	if (r < 0 && !courier->is_keeping_failed)
		log_err(LOG_ERROR, err, "receipts cannot be kept for the scheduler");
	courier->is_keeping_failed = r < 0;
	atomic_store(&courier->kept_count, journal_count(courier->journal));
	return r;
}

void courier_keep(struct courier *courier, struct courier_parcel *parcels, const struct err *cause)
{
	struct err err = ERR_INIT, why = ERR_INIT;

	if (!parcels)
		return;
	if (append(courier, parcels, &why) == 0) {
		while (parcels) {
			struct courier_parcel *next = parcels->next;

			parcels->is_kept = true;
			courier_deliver(parcels);
			parcels = next;
		}
		return;
	}
	err_set(&err, ERR_SCHEDULER_DOWN, "%s; nor can the receipt be kept: %s", cause->text, why.text);
	err_hint(&err, "%s", why.hint[0] != '\0' ? why.hint : "the chunk is stored: send it again in a moment");
	courier_deliver_all(parcels, &err);
}

static void keep_queue(struct courier *courier)
{
	struct courier_parcel *parcels;
	size_t count;

	while ((parcels = courier_take(courier, RECEIPT_BATCH_MAX, &count)) != NULL) {
		if (courier->is_refusing)
			courier_deliver_all(parcels, &courier->cause);
		else
			courier_keep(courier, parcels, &courier->cause);
	}
}

/* --- answers --- */

/* Fills `results` for each of the receipts; false when the lines do not fit them. */
static bool read_answer(struct str text, size_t count, enum err_code *results, struct err *err)
{
	struct str line;
	size_t line_count = 0;

	while (str_cut(&text, '\n', &line)) {
		if (line_count == count || receipt_answer_parse(line, &results[line_count], err) < 0) {
			line_count = SIZE_MAX;
			break;
		}
		line_count++;
	}
	if (line_count == count)
		return true;
	err_set(err, ERR_SCHEDULER_DOWN, "the scheduler's answer does not fit the %zu receipts that it was sent",
		count);
	return false;
}

static void tell_batch(struct courier_parcel *parcel, const enum err_code *results)
{
	for (size_t i = 0; parcel; i++) {
		struct courier_parcel *next = parcel->next;
		const struct store_receipt *receipt = &parcel->receipt;

		if (results[i] != ERR_NONE)
			err_set(&parcel->err, results[i],
				"the scheduler did not take the receipt of chunk %" PRIu64 " of file %" PRIu64 ": %s",
				receipt->chunk_index, receipt->file_id, err_word(results[i]));
		courier_deliver(parcel);
		parcel = next;
	}
}

static void drop_kept(struct courier *courier)
{
	struct err err = ERR_INIT;

	if (journal_drop(courier->journal, &err) < 0)
		log_err(LOG_WARN, &err, "the receipt journal could not be shortened");
	atomic_store(&courier->kept_count, journal_count(courier->journal));
	if (journal_is_empty(courier->journal))
		log_say(LOG_INFO, "the scheduler has every receipt that was kept for it");
}

static void told_kept(struct courier *courier, const enum err_code *results, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const struct journal_record *record = &courier->kept[i];

		if (results[i] != ERR_NONE && record->receipt.outcome == ERR_NONE)
			courier->refused(courier->owner, &record->receipt, record->is_repeat, results[i]);
	}
	drop_kept(courier);
}

static void post_done(struct fetch *fetch UNUSED, struct fetch_call *call)
{
	struct courier *courier = call->owner;
	struct courier_parcel *batch = courier->batch;
	const size_t kept_count = courier->kept_under_way_count;
	enum err_code results[RECEIPT_BATCH_MAX];
	struct err err = call->err;

	courier->batch = NULL;
	courier->kept_under_way_count = 0;
	courier->is_posting = false;
	if (err.code == ERR_NONE && call->status >= 200 && call->status < 300 &&
	    read_answer(buf_str(&call->answer), kept_count > 0 ? kept_count : courier->batch_count, results, &err)) {
		note_answer(courier);
		if (kept_count > 0)
			told_kept(courier, results, kept_count);
		else
			tell_batch(batch, results);
		return;
	}
	if (err.code == ERR_NONE)
		err_set(&err, ERR_PEER, "it answered with HTTP status %d", call->status);
	/* Where the scheduler itself says no, waiting will not help: the client shall go to another node. */
	courier_note_failure(courier, &err, call->status >= 300 && call->status < 500, clock_mono_us());
	if (courier->is_refusing)
		courier_deliver_all(batch, &courier->cause);
	else
		courier_keep(courier, batch, &courier->cause);
	keep_queue(courier);
}

/* --- batches --- */

/* post_body has the receipts. */
static void start_post(struct courier *courier)
{
	struct fetch_call *call = &courier->post_call;

	fetch_call_post(call, courier->receipts_url, internal_key_header(courier->internal_key),
			"Content-Type: text/plain", buf_str(&courier->post_body));
	call->connect_timeout_us = COURIER_CONNECT_TIMEOUT_US;
	call->timeout_us = COURIER_CALL_TIMEOUT_US;
	call->answer = BUF_INIT(ANSWER_MAX);
	call->done = post_done;
	call->owner = courier;
	courier->is_posting = true;
	if (courier->post_body.is_failed) {
		err_set(&call->err, ERR_NO_MEMORY, "no memory for a batch of receipts");
		post_done(courier->fetch, call);
		return;
	}
	fetch_start(courier->fetch, call);
}

static void post_batch(struct courier *courier)
{
	courier->batch = courier_take(courier, RECEIPT_BATCH_MAX, &courier->batch_count);
	if (!courier->batch)
		return;
	courier->waiting_since_us = 0;
	buf_clear(&courier->post_body);
	for (const struct courier_parcel *parcel = courier->batch; parcel; parcel = parcel->next)
		receipt_write(&courier->post_body, &parcel->receipt);
	start_post(courier);
}

/* A chunk that is gone, with its merged transfer or with its disk, must not be called stored any more. Its attempt is told all the same. */
static void mark_gone(struct courier *courier, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct store_receipt *receipt = &courier->kept[i].receipt;

		if (receipt->outcome == ERR_NONE && !courier->is_stored(courier->owner, receipt))
			receipt->outcome = ERR_CHUNK_GONE;
	}
}

/* The next batch of the journal; 0: none, or it cannot be read. */
static size_t read_kept(struct courier *courier)
{
	struct err err = ERR_INIT;
	uint64_t lost_bytes = 0;
	size_t count = 0;
	int r = 0;

	if (courier->journal && !journal_is_empty(courier->journal))
		r = journal_read(courier->journal, courier->kept, RECEIPT_BATCH_MAX, &count, &lost_bytes, &err);
	if (lost_bytes > 0)
		log_say(LOG_ERROR, "%" PRIu64 " bytes of the receipt journal are damaged: what they said is lost",
			lost_bytes);
	if (r < 0 && !courier->is_reading_failed)
		log_err(LOG_ERROR, &err, "kept receipts cannot be delivered");
	courier->is_reading_failed = r < 0;
	if (r < 0)
		return 0;
	mark_gone(courier, count);
	return count;
}

static bool post_kept(struct courier *courier)
{
	const size_t count = read_kept(courier);

	if (count == 0)
		return false;
	buf_clear(&courier->post_body);
	for (size_t i = 0; i < count; i++)
		receipt_write(&courier->post_body, &courier->kept[i].receipt);
	courier->kept_under_way_count = count;
	start_post(courier);
	return true;
}

static bool is_anything_waiting(struct courier *courier)
{
	pthread_mutex_lock(&courier->lock);
	const bool is_waiting = courier->first != NULL;
	pthread_mutex_unlock(&courier->lock);
	return is_waiting;
}

int64_t courier_post_step(struct courier *courier, int64_t now_us, bool is_stopping)
{
	const bool can_keep = courier->journal && !courier->is_refusing && !courier->is_keeping_failed;
	/* A scheduler that asks how we are is there. */
	const bool is_due = now_us >= courier->retry_mono_us ||
			    atomic_load(&courier->probed_mono_us) > courier->failed_mono_us;

	if (!courier->is_reachable && can_keep && !is_stopping)
		keep_queue(courier);
	/* One batch at a time is under way, which is also how a scheduler that is away is probed. Those kept go first. Nobody who waits for an answer
	 * serves as a probe, unless there is no other way; then whoever else waits hears what comes of it. */
	if (!courier->is_posting && !is_stopping && is_due && !post_kept(courier) &&
	    (courier->is_reachable || !can_keep || courier->is_reading_failed))
		post_batch(courier);
	if (!courier->is_posting && courier->retry_mono_us > now_us)
		return courier->retry_mono_us - now_us;
	if (!is_anything_waiting(courier)) {
		courier->waiting_since_us = 0;
		return PATIENCE_US;
	}
	if (courier->waiting_since_us == 0)
		courier->waiting_since_us = now_us;
	const int64_t left_us = courier->waiting_since_us + PATIENCE_US - now_us;
	if (left_us > 0)
		return left_us;
	if (can_keep && !is_stopping) {
		err_set(&courier->cause, ERR_SCHEDULER_DOWN,
			"the chunk is stored, but the scheduler takes too long to be told");
		keep_queue(courier);
	}
	return PATIENCE_US;
}
