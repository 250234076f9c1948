#include "plug/store_sql.h"

#include <string.h>

struct lose_job {
	const char *transfer_id, *node_id, *why;
	enum transfer_state state;
	const struct store_chunk *chunks;
	size_t count;
	int64_t now_wall_us;
	uint64_t lost_count, lost_bytes;
	uint64_t kept_count, kept_bytes; /* by the other copy, which is the only one then */
};

/* The node that has the chunk still; "": none. */
static const char *other_node(const struct lose_job *job, const struct store_chunk *chunk)
{
	return strcmp(chunk->actual_node, job->node_id) == 0 ? chunk->copy_node : chunk->actual_node;
}

/* 1: done; 0: it is not stored as it was, or was not on that node. */
static int lose_chunk(struct sql_conn *conn, const struct lose_job *job, int64_t num, const struct store_chunk *chunk,
		      struct err *err)
{
	struct sql_stmt *stmt = sql_stmt(conn, SQL_CHUNK_LOSE, err);
	const char *other = other_node(job, chunk);
	const bool is_kept = other[0] != '\0';
	int64_t changes;

	if (!stmt)
		return -ERR_STORE;
	if (strcmp(chunk->actual_node, job->node_id) != 0 && strcmp(chunk->copy_node, job->node_id) != 0)
		return 0;
	sql_bind_i64(stmt, 1, num);
	sql_bind_u64(stmt, 2, chunk->file_id);
	sql_bind_u64(stmt, 3, chunk->chunk_index);
	sql_bind_text(stmt, 4, chunk->actual_node);
	sql_bind_text(stmt, 5, chunk->copy_node);
	sql_bind_text(stmt, 6, chunk->digest);
	sql_bind_i64(stmt, 7, chunk->updated_wall_us);
	sql_bind_text(stmt, 8, chunk_state_name(is_kept ? CHUNK_STORED : CHUNK_LOST));
	sql_bind_text(stmt, 9, other);
	sql_bind_text(stmt, 10, is_kept ? chunk->digest : "");
	sql_bind_i64(stmt, 11, job->now_wall_us);
	if (sql_run(conn, stmt, err, "marking a chunk lost") < 0)
		return -ERR_STORE;
	changes = sql_changes(conn, err);
	return changes < 0 ? -ERR_STORE : changes > 0;
}

static int lose_and_note(struct sql_conn *conn, struct lose_job *job, const struct sql_brief *brief,
			 const struct store_chunk *chunk, struct err *err)
{
	const bool is_kept = other_node(job, chunk)[0] != '\0';
	const struct store_audit row = { .at_wall_us = job->now_wall_us,
					 .kind = "chunk",
					 .transfer_id = brief->id,
					 .user = brief->user,
					 .node_id = job->node_id,
					 .outcome = is_kept ? "copy_lost" : chunk_state_name(CHUNK_LOST),
					 .detail = job->why,
					 .file_id = chunk->file_id,
					 .chunk_index = chunk->chunk_index };
	const int result = lose_chunk(conn, job, brief->num, chunk, err);

	if (result <= 0)
		return result;
	job->kept_count += is_kept;
	job->lost_count += !is_kept;
	job->lost_bytes += is_kept ? 0 : chunk->size_bytes;
	job->kept_bytes += is_kept ? chunk->size_bytes : 0;
	return sql_audit(conn, &row, NULL, err);
}

static int lose_job(struct sql_conn *conn, void *arg, struct err *err)
{
	struct lose_job *job = arg;
	int64_t delta[SQL_CHUNK_STATES] = { 0 };
	struct sql_brief brief;
	int result = sql_brief_read(conn, job->transfer_id, &brief, err);

	job->lost_count = job->lost_bytes = job->kept_count = job->kept_bytes = 0;
	if (result == 0 && !brief.is_found)
		result = err_set(err, ERR_NO_TRANSFER, "there is no transfer %s", job->transfer_id);
	if (result < 0 || brief.state != job->state)
		return result;
	for (size_t i = 0; i < job->count && result == 0; i++)
		result = lose_and_note(conn, job, &brief, &job->chunks[i], err);
	if (result == 0 && job->kept_count > 0)
		result = sql_copies_add(conn, brief.num, -(int64_t)job->kept_count, -(int64_t)job->kept_bytes,
					job->now_wall_us, err);
	if (result < 0 || job->lost_count == 0)
		return result;
	delta[CHUNK_LOST] = (int64_t)job->lost_count;
	delta[CHUNK_STORED] = -delta[CHUNK_LOST];
	return sql_counters_add(conn, brief.num, delta, -(int64_t)job->lost_bytes, job->now_wall_us, err);
}

int sql_chunks_lose(struct store *store, const char *transfer_id, enum transfer_state state, const char *node_id,
		    const struct store_chunk *chunks, size_t count, const char *why, int64_t now_wall_us,
		    uint64_t *ret_lost_count, uint64_t *ret_kept_count, struct err *err)
{
	struct lose_job job = { .transfer_id = transfer_id,
				.node_id = node_id,
				.state = state,
				.why = why,
				.chunks = chunks,
				.count = count,
				.now_wall_us = now_wall_us };
	const int result = sql_writer_do(&sql_store_of(store)->writer, lose_job, &job, err);

	*ret_lost_count = result < 0 ? 0 : job.lost_count;
	*ret_kept_count = result < 0 ? 0 : job.kept_count;
	return result;
}
