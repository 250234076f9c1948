/* The end of sending: digests of whole files are bound, then the transfer is handed to merging. */
#include "folder/sched_impl.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"

#define DIGEST_LINE_MAX  96u   /* a number, a space, 64 hex digits */
#define DIGEST_BATCH_MAX 2000u /* bound in one commit */
#define MOVE_TRIES_MAX   5

/* --- POST digests --- */

struct digests {
	bool is_found; /* the transfer was looked up */
	struct store_transfer transfer;
	char partial[DIGEST_LINE_MAX]; /* of a line cut by the end of a piece */
	size_t partial_size;
	uint64_t line_count, bound_count;
	uint64_t seqs[DIGEST_BATCH_MAX];
	char values[DIGEST_BATCH_MAX][DIGEST_HEX_SIZE];
	size_t count;
};

struct compare {
	const char *told;
	char shown[256];
	bool is_seen, is_file, is_same;
};

static int compare_each(void *owner, const struct store_entry *entry)
{
	struct compare *compare = owner;

	compare->is_seen = true;
	compare->is_file = entry->type == 'F';
	compare->is_same = strcmp(entry->digest, compare->told) == 0;
	str_display(entry->path, compare->shown, sizeof(compare->shown));
	return 1;
}

/* The folder is being merged, or is merged: a push that comes again must have the same bytes. */
static int digests_compare(struct sched_call *c, struct digests *digests)
{
	struct store *store = c->sched->store;

	for (size_t i = 0; i < digests->count; i++) {
		struct compare compare = { .told = digests->values[i] };
		int result = store->ops->entries(store, digests->transfer.id, digests->seqs[i], digests->seqs[i],
						 compare_each, &compare, &c->err);

		if (result < 0)
			return err_wrap(&c->err, "comparing digests");
		if (!compare.is_seen || !compare.is_file)
			return err_set(&c->err, ERR_BAD_REQUEST, "transfer %s has no file with the number %" PRIu64,
				       digests->transfer.id, digests->seqs[i]);
		if (compare.is_same)
			continue;
		err_set(&c->err, ERR_BATCH_EXISTS,
			"this is not the same folder as the one that was sent: '%s' has other bytes now",
			compare.shown);
		err_hint(&c->err, "send the changed folder under another name with --name");
		return -ERR_BATCH_EXISTS;
	}
	return 0;
}

static int digests_flush(struct sched_call *c, struct digests *digests)
{
	struct store *store = c->sched->store;
	int result = -ERR_STATE;

	if (digests->count == 0)
		return 0;
	if (digests->transfer.state == TRANSFER_UPLOADING)
		result = store->ops->bind_digests(store, digests->transfer.id, digests->seqs,
						  (const char(*)[DIGEST_HEX_SIZE])digests->values, digests->count,
						  &c->err);
	if (result == -ERR_STATE) {
		/* It may have moved on since it was looked up: another push of the same folder was quicker. */
		result = store->ops->transfer_get(store, digests->transfer.id, &digests->transfer, &c->err);
		if (result == 0 && digests->transfer.state == TRANSFER_UPLOADING)
			result = err_set(&c->err, ERR_BUSY, "transfer %s changes its state just now",
					 digests->transfer.id);
		else if (result == 0 && digests->transfer.state == TRANSFER_FAILED)
			result = err_set(&c->err, ERR_STATE, "transfer %s has failed: %s", digests->transfer.id,
					 digests->transfer.reason);
		else if (result == 0)
			result = digests_compare(c, digests);
	}
	if (result < 0)
		return result;
	digests->bound_count += digests->count;
	digests->count = 0;
	return 0;
}

static int digests_line(struct sched_call *c, struct digests *digests, struct str line)
{
	struct str seq_text;
	uint64_t seq;

	digests->line_count++;
	if (!str_cut(&line, ' ', &seq_text) || !str_to_u64(seq_text, &seq) ||
	    !digest_hex_is_valid(digests->transfer.digest, line))
		return err_set(&c->err, ERR_BAD_REQUEST, "line %" PRIu64 " is not '<number> <%s in hex>'",
			       digests->line_count, digest_name(digests->transfer.digest));
	if (seq >= digests->transfer.entry_count)
		return err_set(&c->err, ERR_BAD_REQUEST, "line %" PRIu64 ": transfer %s has no entry %" PRIu64,
			       digests->line_count, digests->transfer.id, seq);
	digests->seqs[digests->count] = seq;
	MUST(str_copy(line, digests->values[digests->count], DIGEST_HEX_SIZE));
	digests->count++;
	return digests->count == DIGEST_BATCH_MAX ? digests_flush(c, digests) : 0;
}

/* Appends to the line that the last piece began. False when it grows past what a line may be. */
static bool digests_keep(struct digests *digests, struct str part)
{
	if (part.size > sizeof(digests->partial) - digests->partial_size)
		return false;
	if (part.size != 0)
		memcpy(digests->partial + digests->partial_size, part.data, part.size);
	digests->partial_size += part.size;
	return true;
}

static int digests_lines(struct sched_call *c, struct digests *digests, struct str piece)
{
	int result = 0;

	while (piece.size != 0 && result == 0) {
		const char *end = memchr(piece.data, '\n', piece.size);
		struct str line = { piece.data, end ? (size_t)(end - piece.data) : piece.size };

		if (!end || digests->partial_size != 0) {
			if (!digests_keep(digests, line))
				return err_set(&c->err, ERR_BAD_REQUEST, "line %" PRIu64 " is too long",
					       digests->line_count + 1);
			line = (struct str){ digests->partial, digests->partial_size };
		}
		if (!end)
			return 0;
		result = digests_line(c, digests, line);
		digests->partial_size = 0;
		piece = (struct str){ end + 1, piece.size - (size_t)(end + 1 - piece.data) };
	}
	return result;
}

static int digests_find(struct sched_call *c, struct digests *digests)
{
	int result = digests->is_found ? 0 : sched_find_to_write(c, &digests->transfer);

	digests->is_found = result == 0;
	return result;
}

static int digests_take(struct sched_call *c, struct str piece)
{
	struct digests *digests = c->state;
	int result = digests_find(c, digests);

	if (result == 0)
		result = digests_lines(c, digests, piece);
	/* What has come is bound now, so that a call cut off later has not been in vain. */
	return result < 0 ? result : digests_flush(c, digests);
}

static int run_digests(struct sched_call *c)
{
	struct digests *digests = c->state;
	struct json json;
	int result = digests_find(c, digests);

	if (result < 0)
		return result;
	if (digests->partial_size != 0)
		return err_set(&c->err, ERR_BAD_REQUEST, "the last line has no end");
	json_init(&json, &c->answer);
	json_open(&json, NULL);
	json_u64(&json, "bound", digests->bound_count);
	json_i64(&json, "server_time_us", clock_wall_us());
	json_close(&json);
	return 0;
}

static void digests_drop(struct sched_call *c) { free(c->state); }

void sched_begin_digests(struct http_call *call, void *app)
{
	struct sched_call *c = sched_client_call(call, app, run_digests);

	if (!c)
		return;
	c->state = must_zalloc(1, sizeof(struct digests));
	c->drop = digests_drop;
	c->take = digests_take;
	c->body_limit_bytes = SCHED_DIGESTS_MAX;
	sched_call_go(c);
}

/* --- POST complete --- */

struct unbound {
	uint64_t count;
	char first[256];
};

static int unbound_each(void *owner, const struct store_entry *entry)
{
	struct unbound *unbound = owner;

	if (entry->type != 'F' || entry->digest[0] != '\0')
		return 0;
	if (unbound->count++ == 0)
		str_display(entry->path, unbound->first, sizeof(unbound->first));
	return 0;
}

/* Is everything here that merging needs? */
static int check_complete(struct sched_call *c, struct store_transfer *transfer)
{
	struct store *store = c->sched->store;
	uint64_t counts[CHUNK_MERGED + 1] = { 0 }, missing;
	struct unbound unbound = { .count = 0 };
	int result = store->ops->chunk_counts(store, transfer->id, counts, &c->err);

	if (result < 0)
		return err_wrap(&c->err, "counting the chunks of transfer %s", transfer->id);
	missing = counts[CHUNK_PENDING] + counts[CHUNK_LOST] + counts[CHUNK_DIGEST_FAILED];
	/* What is missing here may be on a node, which has not been asked yet. */
	if (missing > 0 && sched_check_inventory(c, transfer) < 0)
		return -ERR_BUSY;
	if (missing > 0) {
		err_set(&c->err, ERR_INCOMPLETE,
			"%" PRIu64 " of %" PRIu64 " chunks are not stored: %" PRIu64 " pending, %" PRIu64
			" lost, %" PRIu64 " failed their digest",
			missing, transfer->chunk_count, counts[CHUNK_PENDING], counts[CHUNK_LOST],
			counts[CHUNK_DIGEST_FAILED]);
		err_hint(&c->err, "ask for the plan again and send what is not stored");
		return -ERR_INCOMPLETE;
	}
	/* The counts must add up: a plan that lost a row would otherwise merge into a shorter folder. */
	if (counts[CHUNK_STORED] + counts[CHUNK_MERGED] != transfer->chunk_count)
		return err_set(&c->err, ERR_INTEGRITY, "transfer %s has %" PRIu64 " chunks in its plan, not %" PRIu64,
			       transfer->id, counts[CHUNK_STORED] + counts[CHUNK_MERGED], transfer->chunk_count);
	result = store->ops->entries(store, transfer->id, 0, transfer->entry_count, unbound_each, &unbound, &c->err);
	if (result < 0)
		return err_wrap(&c->err, "reading the entries of transfer %s", transfer->id);
	if (unbound.count > 0) {
		err_set(&c->err, ERR_INCOMPLETE, "%" PRIu64 " files have no digest yet, the first is '%s'",
			unbound.count, unbound.first);
		err_hint(&c->err, "send the digests of all files, empty ones too");
		return -ERR_INCOMPLETE;
	}
	return sched_copies_check(c, transfer);
}

/* One look and one attempt. -ERR_VERSION_CONFLICT: somebody else moved it meanwhile. */
static int try_complete(struct sched_call *c, struct store_transfer *transfer)
{
	struct store *store = c->sched->store;
	int result = sched_find_to_write(c, transfer);

	if (result < 0)
		return result;
	switch (transfer->state) {
	case TRANSFER_COMPLETED:
		c->status = 200;
		return 0;
	case TRANSFER_MERGING:
		c->status = 202;
		break;
	case TRANSFER_UPLOADING:
		result = check_complete(c, transfer);
		if (result == 0)
			result = store->ops->transfer_move(store, transfer, TRANSFER_MERGING, "", true, clock_wall_us(),
							   &c->err);
		if (result < 0)
			return result;
		log_say(LOG_INFO, "transfer %s is complete and goes to merging", transfer->id);
		c->status = 202;
		break;
	case TRANSFER_CREATED:
	case TRANSFER_DISTRIBUTING:
		return err_set(&c->err, ERR_INCOMPLETE, "transfer %s is being planned", transfer->id);
	case TRANSFER_FAILED:
		err_set(&c->err, ERR_STATE, "transfer %s has failed: %s", transfer->id, transfer->reason);
		err_hint(&c->err, "push the folder again");
		return -ERR_STATE;
	}
	merge_enqueue(c->sched->merge, transfer->id, transfer->priority);
	return 0;
}

static int run_complete(struct sched_call *c)
{
	struct store_transfer transfer;
	int result = -ERR_VERSION_CONFLICT;

	for (int i = 0; i < MOVE_TRIES_MAX && result == -ERR_VERSION_CONFLICT; i++)
		result = try_complete(c, &transfer);
	return result < 0 ? result : sched_answer_transfer(c, &transfer);
}

void sched_begin_complete(struct http_call *call, void *app)
{
	struct sched_call *c = sched_client_call(call, app, run_complete);

	if (c)
		sched_call_go(c);
}
