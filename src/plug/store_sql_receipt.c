#include "plug/store_sql.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"

struct chunk_row {
	bool is_found;
	uint64_t file_id, chunk_index;
	uint64_t size_bytes;
	enum chunk_state state;
	char digest[DIGEST_HEX_SIZE];
	char actual_node[STORE_NODE_ID_SIZE], copy_node[STORE_NODE_ID_SIZE];
};

#define RUN_SLOTS (2 * SQL_AHEAD_MAX)

/* Many receipts. Neighbours are mostly of one transfer: it is looked up once, its counters are written once, and the chunks of a run of them are
 * asked for at once. A row is kept as it is written, since a run may tell of a chunk twice. */
struct receipt_job {
	struct store_receipt *receipts;
	size_t count;
	int64_t now_wall_us;
	struct chunk_row *rows; /* of the run, each chunk once; SQL_AHEAD_MAX places */
	size_t row_count;
	uint16_t slots[RUN_SLOTS]; /* by the hash of a chunk's numbers: its row's index + 1, or 0 */
	struct sql_brief brief;
	int64_t delta[SQL_CHUNK_STATES];
	int64_t delta_stored_bytes;
	int64_t delta_copied_count, delta_copied_bytes;
	bool is_changed;
};

/* What a good receipt changes. */
enum receipt_news { NEWS_NONE, NEWS_STORED, NEWS_COPIED, NEWS_SEEN };

static int receipt_flush(struct sql_conn *conn, struct receipt_job *job, struct err *err)
{
	int result = 0;

	if (job->is_changed)
		result = sql_counters_add(conn, job->brief.num, job->delta, job->delta_stored_bytes, job->now_wall_us,
					  err);
	if (result == 0 && job->delta_copied_count != 0)
		result = sql_copies_add(conn, job->brief.num, job->delta_copied_count, job->delta_copied_bytes,
					job->now_wall_us, err);
	memset(job->delta, 0, sizeof(job->delta));
	job->delta_stored_bytes = job->delta_copied_count = job->delta_copied_bytes = 0;
	job->is_changed = false;
	return result;
}

static int receipt_transfer(struct sql_conn *conn, struct receipt_job *job, const char *id, struct err *err)
{
	if (strcmp(job->brief.id, id) == 0)
		return 0;
	if (receipt_flush(conn, job, err) < 0)
		return -ERR_STORE;
	return sql_brief_read(conn, id, &job->brief, err);
}

static void chunk_bind(struct sql_stmt *stmt, int64_t num, uint64_t file_id, uint64_t chunk_index)
{
	sql_bind_i64(stmt, 1, num);
	sql_bind_u64(stmt, 2, file_id);
	sql_bind_u64(stmt, 3, chunk_index);
}

static int chunk_read(struct sql_conn *conn, struct sql_stmt *stmt, struct chunk_row *row, struct err *err)
{
	int result = sql_row(conn, stmt, err, "reading a chunk");

	row->is_found = result > 0;
	if (result <= 0)
		return result;
	row->size_bytes = sql_u64(stmt, 0);
	result = 0;
	if (!chunk_state_from_name(sql_bytes(stmt, 1), &row->state))
		result = err_set(err, ERR_STORE_SCHEMA,
				 "a chunk has a state in the database that this heng does not know");
	sql_text(stmt, 2, row->digest, sizeof(row->digest));
	sql_text(stmt, 3, row->actual_node, sizeof(row->actual_node));
	sql_text(stmt, 4, row->copy_node, sizeof(row->copy_node));
	sql_reset(stmt);
	return result;
}

/* The place of the chunk's row, or the free one where it is to be noted. */
static uint16_t *run_slot(struct receipt_job *job, const struct store_receipt *receipt)
{
	const uint64_t key[2] = { receipt->file_id, receipt->chunk_index };
	size_t i = hash64(key, sizeof(key)) % RUN_SLOTS;

	while (job->slots[i] != 0 && (job->rows[job->slots[i] - 1].file_id != receipt->file_id ||
				      job->rows[job->slots[i] - 1].chunk_index != receipt->chunk_index))
		i = (i + 1) % RUN_SLOTS;
	return &job->slots[i];
}

/* Chunks whose numbers are beyond what the tables hold are none. */
static bool is_askable(const struct chunk_row *row) { return sql_fits(row->file_id) && sql_fits(row->chunk_index); }

/* Reads the chunks of receipts from..to-1, which are of the transfer at hand. */
static int run_read(struct sql_conn *conn, struct receipt_job *job, size_t from, size_t to, struct err *err)
{
	struct sql_stmt *stmt = sql_stmt(conn, SQL_CHUNK_GET, err);
	int result = stmt ? 0 : -ERR_STORE;

	memset(job->slots, 0, sizeof(job->slots));
	job->row_count = 0;
	for (size_t i = from; i < to; i++) {
		const struct store_receipt *receipt = &job->receipts[i];
		uint16_t *slot = run_slot(job, receipt);

		if (*slot != 0)
			continue;
		job->rows[job->row_count++] = (struct chunk_row){ .file_id = receipt->file_id,
								  .chunk_index = receipt->chunk_index };
		*slot = (uint16_t)job->row_count;
	}
	for (size_t i = 0; i < job->row_count && result == 0; i++) {
		if (!is_askable(&job->rows[i]))
			continue;
		chunk_bind(stmt, job->brief.num, job->rows[i].file_id, job->rows[i].chunk_index);
		result = sql_ahead(stmt, err);
	}
	for (size_t i = 0; i < job->row_count && result == 0; i++) {
		if (!is_askable(&job->rows[i]))
			continue;
		chunk_bind(stmt, job->brief.num, job->rows[i].file_id, job->rows[i].chunk_index);
		result = chunk_read(conn, stmt, &job->rows[i], err);
	}
	return result;
}

static void chunk_moved(struct receipt_job *job, struct chunk_row *row, enum chunk_state to)
{
	job->delta[row->state]--;
	job->delta[to]++;
	job->is_changed = true;
	row->state = to;
}

static int chunk_to_stored(struct sql_conn *conn, struct receipt_job *job, const struct store_receipt *receipt,
			   struct chunk_row *row, struct err *err)
{
	struct sql_stmt *stmt = sql_stmt(conn, SQL_CHUNK_STORED, err);

	if (!stmt)
		return -ERR_STORE;
	chunk_bind(stmt, job->brief.num, receipt->file_id, receipt->chunk_index);
	sql_bind_text(stmt, 4, receipt->node_id);
	sql_bind_text(stmt, 5, receipt->digest);
	sql_bind_i64(stmt, 6, receipt->finished_wall_us);
	chunk_moved(job, row, CHUNK_STORED);
	(void)str_copy(str_from(receipt->node_id), row->actual_node, sizeof(row->actual_node));
	(void)str_copy(str_from(receipt->digest), row->digest, sizeof(row->digest));
	job->delta_stored_bytes += (int64_t)row->size_bytes;
	return sql_run(conn, stmt, err, "marking a chunk stored");
}

static int chunk_to_copied(struct sql_conn *conn, struct receipt_job *job, const struct store_receipt *receipt,
			   struct chunk_row *row, struct err *err)
{
	struct sql_stmt *stmt = sql_stmt(conn, SQL_CHUNK_COPIED, err);

	if (!stmt)
		return -ERR_STORE;
	chunk_bind(stmt, job->brief.num, receipt->file_id, receipt->chunk_index);
	sql_bind_text(stmt, 4, receipt->node_id);
	sql_bind_i64(stmt, 5, receipt->finished_wall_us);
	(void)str_copy(str_from(receipt->node_id), row->copy_node, sizeof(row->copy_node));
	job->delta_copied_count++;
	job->delta_copied_bytes += (int64_t)row->size_bytes;
	return sql_run(conn, stmt, err, "noting a chunk's second copy");
}

/* A node says again that it has what it has by the tables: who found it missing there a moment ago (chunks_lose) is wrong by now. */
static int chunk_was_seen(struct sql_conn *conn, const struct receipt_job *job, const struct store_receipt *receipt,
			  struct err *err)
{
	struct sql_stmt *stmt = sql_stmt(conn, SQL_CHUNK_SEEN, err);

	if (!stmt)
		return -ERR_STORE;
	chunk_bind(stmt, job->brief.num, receipt->file_id, receipt->chunk_index);
	sql_bind_i64(stmt, 4, receipt->finished_wall_us);
	return sql_run(conn, stmt, err, "noting a chunk that was stored again");
}

static int chunk_to_failed(struct sql_conn *conn, struct receipt_job *job, const struct store_receipt *receipt,
			   struct chunk_row *row, struct err *err)
{
	struct sql_stmt *stmt = sql_stmt(conn, SQL_CHUNK_FAILED, err);

	if (!stmt)
		return -ERR_STORE;
	chunk_bind(stmt, job->brief.num, receipt->file_id, receipt->chunk_index);
	sql_bind_i64(stmt, 4, receipt->finished_wall_us);
	chunk_moved(job, row, CHUNK_DIGEST_FAILED);
	return sql_run(conn, stmt, err, "marking a chunk digest_failed");
}

/* A kept receipt may come when its chunk has been found by an inventory, merged from its node and removed there, as all merged chunks are: what it
 * tells of is an attempt that stored the chunk, and who asks the audit who sent it needs that row. */
static bool receipt_was_merged(const struct chunk_row *row, const struct store_receipt *receipt)
{
	return receipt->outcome == ERR_CHUNK_GONE && row->is_found && row->state == CHUNK_MERGED &&
	       row->size_bytes == receipt->size_bytes && strcmp(row->digest, receipt->digest) == 0 &&
	       (strcmp(row->actual_node, receipt->node_id) == 0 || strcmp(row->copy_node, receipt->node_id) == 0);
}

/* What a good receipt is worth, given its transfer and chunk, and what it changes. */
static enum err_code receipt_judge(const struct sql_brief *brief, const struct chunk_row *row,
				   const struct store_receipt *receipt, enum receipt_news *ret_news)
{
	bool is_here = row->is_found && (row->state == CHUNK_STORED || row->state == CHUNK_MERGED);
	bool is_same = is_here && row->size_bytes == receipt->size_bytes && strcmp(row->digest, receipt->digest) == 0;

	*ret_news = NEWS_NONE;
	if (brief->state == TRANSFER_MERGING || brief->state == TRANSFER_COMPLETED)
		return is_same ? ERR_NONE : ERR_MERGING;
	if (brief->state != TRANSFER_UPLOADING)
		return ERR_STATE;
	if (!row->is_found)
		return ERR_NO_CHUNK;
	if (row->size_bytes != receipt->size_bytes)
		return ERR_CHUNK_SIZE;
	if (is_here && !is_same)
		return ERR_DIGEST_CONFLICT;
	if (is_here) {
		/* One node's second word is a repeat, and a third node's copy is more than anybody asked for. */
		if (strcmp(row->actual_node, receipt->node_id) == 0 || strcmp(row->copy_node, receipt->node_id) == 0)
			*ret_news = NEWS_SEEN;
		else if (brief->copies > 1 && row->copy_node[0] == '\0')
			*ret_news = NEWS_COPIED;
		return ERR_NONE;
	}
	/* Text that is no digest could never be merged. */
	if (!digest_hex_is_valid(brief->digest, str_from(receipt->digest)))
		return ERR_BAD_REQUEST;
	*ret_news = NEWS_STORED;
	return ERR_NONE;
}

static int receipt_apply(struct sql_conn *conn, struct receipt_job *job, struct store_receipt *receipt, struct err *err)
{
	struct chunk_row *row;
	enum receipt_news news;

	if (!job->brief.is_found) {
		receipt->result = ERR_NO_TRANSFER;
		return 0;
	}
	row = &job->rows[*run_slot(job, receipt) - 1];
	if (receipt_was_merged(row, receipt))
		receipt->outcome = ERR_NONE;
	if (receipt->outcome != ERR_NONE) {
		receipt->result = ERR_NONE;
		if (receipt->outcome == ERR_DIGEST_MISMATCH && job->brief.state == TRANSFER_UPLOADING &&
		    row->is_found && row->state == CHUNK_PENDING)
			return chunk_to_failed(conn, job, receipt, row, err);
		return 0;
	}
	receipt->result = receipt_judge(&job->brief, row, receipt, &news);
	if (news == NEWS_STORED)
		return chunk_to_stored(conn, job, receipt, row, err);
	if (news == NEWS_SEEN)
		return chunk_was_seen(conn, job, receipt, err);
	return news == NEWS_COPIED ? chunk_to_copied(conn, job, receipt, row, err) : 0;
}

static int receipt_audit(struct sql_conn *conn, const struct receipt_job *job, const struct store_receipt *receipt,
			 struct err *err)
{
	const struct store_audit row = {
		.at_wall_us = job->now_wall_us,
		.kind = "chunk",
		.transfer_id = receipt->transfer_id,
		.user = receipt->user,
		.node_id = receipt->node_id,
		.outcome = receipt->outcome == ERR_NONE ? "stored" : err_word(receipt->outcome),
		.algorithm = digest_name(receipt->digest_kind),
		.file_id = receipt->file_id,
		.chunk_index = receipt->chunk_index,
	};

	return sql_audit(conn, &row, receipt, err);
}

/* Neighbours of one transfer, from `from` on. */
static size_t run_end(const struct receipt_job *job, size_t from)
{
	size_t to = from + 1;

	while (to < job->count && to - from < SQL_AHEAD_MAX &&
	       strcmp(job->receipts[to].transfer_id, job->receipts[from].transfer_id) == 0)
		to++;
	return to;
}

static int receipt_run(struct sql_conn *conn, struct receipt_job *job, size_t from, size_t to, struct err *err)
{
	int result = receipt_transfer(conn, job, job->receipts[from].transfer_id, err);

	if (result == 0 && job->brief.is_found)
		result = run_read(conn, job, from, to, err);
	if (result < 0)
		return err_wrap(err, "receipts of transfer %s", job->receipts[from].transfer_id);
	for (size_t i = from; i < to; i++) {
		struct store_receipt *receipt = &job->receipts[i];

		result = receipt_apply(conn, job, receipt, err);
		if (result == 0)
			result = receipt_audit(conn, job, receipt, err);
		if (result < 0)
			return err_wrap(err, "receipt of chunk %llu/%llu of transfer %s",
					(unsigned long long)receipt->file_id, (unsigned long long)receipt->chunk_index,
					receipt->transfer_id);
	}
	return 0;
}

static int receipt_job(struct sql_conn *conn, void *arg, struct err *err)
{
	struct receipt_job *job = arg;
	int result = 0;

	*job = (struct receipt_job){
		.receipts = job->receipts, .count = job->count, .now_wall_us = job->now_wall_us, .rows = job->rows
	};
	for (size_t from = 0, to; from < job->count && result == 0; from = to) {
		to = run_end(job, from);
		result = receipt_run(conn, job, from, to, err);
	}
	return result < 0 ? result : receipt_flush(conn, job, err);
}

int sql_receipts(struct store *store, struct store_receipt *receipts, size_t count, struct err *err)
{
	struct receipt_job job = { .receipts = receipts, .count = count, .now_wall_us = clock_wall_us() };
	int result;

	if (count == 0)
		return 0;
	job.rows = must_zalloc(min_size(count, SQL_AHEAD_MAX), sizeof(*job.rows));
	result = sql_writer_do(&sql_store_of(store)->writer, receipt_job, &job, err);
	free(job.rows);
	return result;
}
