#include "plug/store_sql.h"

#include <stdio.h>
#include <string.h>

int sql_brief_read(struct sql_conn *conn, const char *id, struct sql_brief *brief, struct err *err)
{
	struct sql_stmt *stmt = sql_stmt(conn, SQL_TRANSFER_BRIEF, err);
	int row;

	if (!stmt)
		return -ERR_STORE;
	memset(brief, 0, sizeof(*brief));
	(void)str_copy(str_from(id), brief->id, sizeof(brief->id));
	sql_bind_text(stmt, 1, id);
	row = sql_row(conn, stmt, err, "looking the transfer up");
	if (row <= 0)
		return row;
	brief->is_found = true;
	brief->num = sql_i64(stmt, 0);
	brief->version = sql_i64(stmt, 2);
	if (!transfer_state_from_name(sql_bytes(stmt, 1), &brief->state) ||
	    !digest_from_name(sql_bytes(stmt, 3), &brief->digest))
		row = err_set(err, ERR_STORE_SCHEMA,
			      "transfer %s has a state or digest in the database that this heng does not know", id);
	sql_text(stmt, 4, brief->user, sizeof(brief->user));
	brief->chunk_count = sql_u64(stmt, 5);
	brief->arrived_count = sql_u64(stmt, 6) + sql_u64(stmt, 7);
	brief->copies = (unsigned)sql_u64(stmt, 8);
	brief->copied_count = sql_u64(stmt, 9);
	brief->is_copies_waived = sql_i64(stmt, 10) != 0;
	sql_reset(stmt);
	return row < 0 ? row : 0;
}

static int brief_get(struct sql_conn *conn, const char *id, struct sql_brief *brief, struct err *err)
{
	int result = sql_brief_read(conn, id, brief, err);

	if (result == 0 && !brief->is_found)
		return err_set(err, ERR_NO_TRANSFER, "there is no transfer %s", id);
	return result;
}

int sql_counters_add(struct sql_conn *conn, int64_t transfer_num, const int64_t *delta, int64_t delta_stored_bytes,
		     int64_t now_wall_us, struct err *err)
{
	struct sql_stmt *stmt = sql_stmt(conn, SQL_TRANSFER_ADD, err);

	if (!stmt)
		return -ERR_STORE;
	sql_bind_i64(stmt, 1, transfer_num);
	for (int i = 0; i < SQL_CHUNK_STATES; i++)
		sql_bind_i64(stmt, 2 + i, delta[i]);
	sql_bind_i64(stmt, 7, delta_stored_bytes);
	sql_bind_i64(stmt, 8, now_wall_us);
	return sql_run(conn, stmt, err, "keeping the transfer's counters");
}

struct move_job {
	const struct store_transfer *transfer;
	enum transfer_state state;
	const char *reason;
	bool is_retryable;
	int64_t now_wall_us;
};

/* What no caller may get wrong: the version, and that nothing is merged or completed while chunks are missing, or copies without a waiver. */
static int move_check(const struct move_job *move, const struct sql_brief *brief, struct err *err)
{
	if (brief->version != move->transfer->version)
		return err_set(err, ERR_VERSION_CONFLICT,
			       "transfer %s changed meanwhile (version %lld, not %lld); it is %s now", brief->id,
			       (long long)brief->version, (long long)move->transfer->version,
			       transfer_state_name(brief->state));
	if ((move->state == TRANSFER_MERGING || move->state == TRANSFER_COMPLETED) &&
	    brief->arrived_count != brief->chunk_count)
		return err_set(err, ERR_INCOMPLETE, "transfer %s cannot be %s: %llu of %llu chunks are stored",
			       brief->id, transfer_state_name(move->state), (unsigned long long)brief->arrived_count,
			       (unsigned long long)brief->chunk_count);
	/* A merge that has begun needs one copy only. */
	if (move->state == TRANSFER_MERGING && brief->state != TRANSFER_MERGING && brief->copies > 1 &&
	    brief->copied_count != brief->chunk_count && !brief->is_copies_waived)
		return err_set(err, ERR_INCOMPLETE, "transfer %s cannot be merged: %llu of %llu chunks have %u copies",
			       brief->id, (unsigned long long)brief->copied_count,
			       (unsigned long long)brief->chunk_count, brief->copies);
	return 0;
}

static int move_merged(struct sql_conn *conn, int64_t num, int64_t now_wall_us, struct err *err)
{
	struct sql_stmt *chunks = sql_stmt(conn, SQL_CHUNK_MERGE_ALL, err),
			*counters = sql_stmt(conn, SQL_TRANSFER_MERGED, err);

	if (!chunks || !counters)
		return -ERR_STORE;
	sql_bind_i64(chunks, 1, num);
	sql_bind_i64(chunks, 2, now_wall_us);
	sql_bind_i64(counters, 1, num);
	if (sql_run(conn, chunks, err, "turning stored chunks to merged") < 0)
		return -ERR_STORE;
	return sql_run(conn, counters, err, "keeping the transfer's counters");
}

static int move_job(struct sql_conn *conn, void *arg, struct err *err)
{
	const struct move_job *move = arg;
	struct sql_brief brief;
	struct store_audit row = { .at_wall_us = move->now_wall_us,
				   .kind = "state",
				   .transfer_id = brief.id,
				   .user = brief.user,
				   .outcome = transfer_state_name(move->state),
				   .detail = move->reason };
	struct sql_stmt *stmt = sql_stmt(conn, SQL_TRANSFER_MOVE, err);
	int result;

	if (!stmt)
		return -ERR_STORE;
	result = brief_get(conn, move->transfer->id, &brief, err);
	if (result == 0)
		result = move_check(move, &brief, err);
	if (result < 0)
		return result;
	sql_bind_i64(stmt, 1, brief.num);
	sql_bind_text(stmt, 2, transfer_state_name(move->state));
	sql_bind_text(stmt, 3, move->reason);
	sql_bind_i64(stmt, 4, move->is_retryable);
	sql_bind_i64(stmt, 5, move->now_wall_us);
	if (sql_run(conn, stmt, err, "moving the transfer") < 0)
		return -ERR_STORE;
	if (move->state == TRANSFER_COMPLETED && move_merged(conn, brief.num, move->now_wall_us, err) < 0)
		return -ERR_STORE;
	return sql_audit(conn, &row, NULL, err);
}

int sql_transfer_move(struct store *store, struct store_transfer *transfer, enum transfer_state state,
		      const char *reason, bool is_retryable, int64_t now_wall_us, struct err *err)
{
	char kept[STORE_REASON_SIZE] = "";
	struct move_job move = { transfer, state, kept, is_retryable, now_wall_us };
	int result;

	/* A reason longer than its place is cut, the same in the database as in memory. */
	if (reason)
		memcpy(kept, reason, strnlen(reason, sizeof(kept) - 1));
	result = sql_writer_do(&sql_store_of(store)->writer, move_job, &move, err);
	if (result < 0)
		return result;
	memcpy(transfer->reason, kept, sizeof(kept));
	transfer->state = state;
	transfer->version++;
	transfer->is_retryable = is_retryable;
	transfer->updated_wall_us = now_wall_us;
	if (state == TRANSFER_COMPLETED)
		transfer->completed_wall_us = now_wall_us;
	return 0;
}

struct note_job {
	const char *id, *reason;
};

static int note_job(struct sql_conn *conn, void *arg, struct err *err)
{
	const struct note_job *note = arg;
	struct sql_stmt *stmt = sql_stmt(conn, SQL_TRANSFER_NOTE, err);
	int64_t changes;

	if (!stmt)
		return -ERR_STORE;
	sql_bind_text(stmt, 1, note->id);
	sql_bind_text(stmt, 2, note->reason);
	if (sql_run(conn, stmt, err, "noting a reason") < 0)
		return -ERR_STORE;
	changes = sql_changes(conn, err);
	if (changes == 0)
		return err_set(err, ERR_NO_TRANSFER, "there is no transfer %s", note->id);
	return changes < 0 ? -ERR_STORE : 0;
}

int sql_transfer_note(struct store *store, const char *id, const char *reason, struct err *err)
{
	char kept[STORE_REASON_SIZE] = "";
	struct note_job note = { id, kept };

	if (reason)
		memcpy(kept, reason, strnlen(reason, sizeof(kept) - 1));
	return sql_writer_do(&sql_store_of(store)->writer, note_job, &note, err);
}

struct bind_job {
	const char *transfer_id;
	const uint64_t *seqs;
	const char (*digests)[DIGEST_HEX_SIZE];
	size_t count;
};

static void bind_one(struct sql_stmt *stmt, const struct bind_job *job, int64_t num, size_t i)
{
	sql_bind_i64(stmt, 1, num);
	sql_bind_u64(stmt, 2, job->seqs[i]);
	sql_bind_text(stmt, 3, job->digests[i]);
}

static int bind_run(struct sql_conn *conn, const struct bind_job *job, const struct sql_brief *brief, size_t from,
		    size_t to, struct err *err)
{
	struct sql_stmt *stmt = sql_stmt(conn, SQL_ENTRY_BIND, err);
	int row = stmt ? 0 : -ERR_STORE;

	for (size_t i = from; i < to && row >= 0; i++) {
		if (!digest_hex_is_valid(brief->digest, str_from(job->digests[i])))
			return err_set(err, ERR_BAD_REQUEST, "transfer %s, entry %llu: this is no %s digest", brief->id,
				       (unsigned long long)job->seqs[i], digest_name(brief->digest));
		bind_one(stmt, job, brief->num, i);
		row = sql_ahead(stmt, err);
	}
	for (size_t i = from; i < to && row >= 0; i++) {
		bind_one(stmt, job, brief->num, i);
		row = sql_row(conn, stmt, err, "binding a file's digest");
		if (row == 0)
			return err_set(err, ERR_BAD_REQUEST, "transfer %s has no file with the number %llu", brief->id,
				       (unsigned long long)job->seqs[i]);
		sql_reset(stmt);
	}
	return row < 0 ? row : 0;
}

static int bind_job(struct sql_conn *conn, void *arg, struct err *err)
{
	const struct bind_job *job = arg;
	struct sql_brief brief;
	int result = brief_get(conn, job->transfer_id, &brief, err);

	if (result == 0 && brief.state != TRANSFER_UPLOADING)
		result = err_set(err, ERR_STATE, "transfer %s is %s: its files' digests are fixed", brief.id,
				 transfer_state_name(brief.state));
	for (size_t i = 0; i < job->count && result == 0; i += SQL_AHEAD_MAX)
		result = bind_run(conn, job, &brief, i, min_size(i + SQL_AHEAD_MAX, job->count), err);
	return result;
}

int sql_bind_digests(struct store *store, const char *transfer_id, const uint64_t *seqs,
		     const char (*digests)[DIGEST_HEX_SIZE], size_t count, struct err *err)
{
	struct bind_job job = { transfer_id, seqs, digests, count };

	return sql_writer_do(&sql_store_of(store)->writer, bind_job, &job, err);
}

struct reopen_job {
	const char *transfer_id, *node_id, *why;
	uint64_t file_id, count, kept_count;
	enum chunk_state state;
	int64_t now_wall_us;
};

static void reopen_bind(struct sql_stmt *stmt, const struct reopen_job *job, int64_t num)
{
	sql_bind_i64(stmt, 1, num);
	sql_bind_u64(stmt, 2, job->file_id);
	sql_bind_u64(stmt, 3, job->file_id ? job->file_id : UINT64_MAX);
	sql_bind_text(stmt, 4, job->node_id);
}

static int reopen_rows(struct sql_conn *conn, struct reopen_job *job, int64_t num, struct err *err)
{
	struct sql_stmt *sum = sql_stmt(conn, SQL_CHUNK_REOPEN_SUM, err),
			*update = sql_stmt(conn, SQL_CHUNK_REOPEN, err);
	int64_t delta[SQL_CHUNK_STATES] = { 0 }, bytes;

	if (!sum || !update)
		return -ERR_STORE;
	reopen_bind(sum, job, num);
	if (sql_row(conn, sum, err, "counting stored chunks") < 0)
		return -ERR_STORE;
	delta[job->state] = sql_i64(sum, 0);
	delta[CHUNK_STORED] = -delta[job->state];
	bytes = sql_i64(sum, 1);
	sql_reset(sum);
	reopen_bind(update, job, num);
	sql_bind_text(update, 5, chunk_state_name(job->state));
	sql_bind_i64(update, 6, job->now_wall_us);
	if (sql_run(conn, update, err, "reopening chunks") < 0)
		return -ERR_STORE;
	job->count = (uint64_t)delta[job->state];
	return sql_counters_add(conn, num, delta, -bytes, job->now_wall_us, err);
}

static int reopen_job(struct sql_conn *conn, void *arg, struct err *err)
{
	struct reopen_job *job = arg;
	struct sql_brief brief;
	struct store_audit row = { .at_wall_us = job->now_wall_us,
				   .kind = "chunk",
				   .transfer_id = brief.id,
				   .user = brief.user,
				   .node_id = job->node_id,
				   .outcome = chunk_state_name(job->state),
				   .file_id = job->file_id };
	char detail[STORE_REASON_SIZE];
	int result = brief_get(conn, job->transfer_id, &brief, err);

	job->count = job->kept_count = 0;
	if (result == 0 && brief.copied_count > 0)
		result = sql_copies_drop(conn, brief.num, job->file_id, job->node_id, job->now_wall_us,
					 &job->kept_count, err);
	if (result == 0)
		result = reopen_rows(conn, job, brief.num, err);
	if (result < 0)
		return result;
	if (job->kept_count > 0)
		(void)snprintf(detail, sizeof(detail), "%llu chunks reopened, %llu kept by their other copy: %s",
			       (unsigned long long)job->count, (unsigned long long)job->kept_count,
			       job->why ? job->why : "");
	else
		(void)snprintf(detail, sizeof(detail), "%llu chunks reopened: %s", (unsigned long long)job->count,
			       job->why ? job->why : "");
	row.detail = detail;
	return sql_audit(conn, &row, NULL, err);
}

int sql_reopen(struct sql_conn *conn, const char *transfer_id, uint64_t file_id, const char *node_id,
	       enum chunk_state state, const char *why, int64_t now_wall_us, uint64_t *ret_count, struct err *err)
{
	struct reopen_job job = { transfer_id, node_id, why, file_id, 0, 0, state, now_wall_us };
	int result = reopen_job(conn, &job, err);

	*ret_count = job.count;
	return result;
}

int sql_chunks_reopen(struct store *store, const char *transfer_id, uint64_t file_id, const char *node_id,
		      enum chunk_state state, const char *why, int64_t now_wall_us, uint64_t *ret_count,
		      struct err *err)
{
	struct reopen_job job = { transfer_id, node_id, why, file_id, 0, 0, state, now_wall_us };
	int result;

	MUST(state == CHUNK_PENDING || state == CHUNK_LOST || state == CHUNK_DIGEST_FAILED);
	result = sql_writer_do(&sql_store_of(store)->writer, reopen_job, &job, err);
	*ret_count = result < 0 ? 0 : job.count;
	return result;
}

static int node_job(struct sql_conn *conn, void *arg, struct err *err)
{
	const struct store_node *node = arg;
	struct sql_stmt *stmt = sql_stmt(conn, SQL_NODE_SAVE, err);

	if (!stmt)
		return -ERR_STORE;
	sql_bind_text(stmt, 1, node->id);
	sql_bind_text(stmt, 2, node->addr);
	sql_bind_text(stmt, 3, node->incarnation);
	sql_bind_i64(stmt, 4, node->weight_milli);
	sql_bind_text(stmt, 5, node->domain);
	sql_bind_i64(stmt, 6, node->seen_wall_us);
	return sql_run(conn, stmt, err, "saving a node");
}

int sql_node_save(struct store *store, const struct store_node *node, struct err *err)
{
	struct store_node copy = *node;

	return sql_writer_do(&sql_store_of(store)->writer, node_job, &copy, err);
}
