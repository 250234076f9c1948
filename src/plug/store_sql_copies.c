/* Second copies of chunks: counted, dropped, put in the place of a lost first one, and waived. */
#include "plug/store_sql.h"

#include <stdio.h>

int sql_copies_add(struct sql_conn *conn, int64_t transfer_num, int64_t delta_count, int64_t delta_bytes,
		   int64_t now_wall_us, struct err *err)
{
	struct sql_stmt *stmt = sql_stmt(conn, SQL_COPIES_ADD, err);

	if (!stmt)
		return -ERR_STORE;
	sql_bind_i64(stmt, 1, transfer_num);
	sql_bind_i64(stmt, 2, delta_count);
	sql_bind_i64(stmt, 3, delta_bytes);
	sql_bind_i64(stmt, 4, now_wall_us);
	return sql_run(conn, stmt, err, "keeping the counts of a transfer's copies");
}

static void bind_range(struct sql_stmt *stmt, int64_t transfer_num, uint64_t file_id, const char *node_id)
{
	sql_bind_i64(stmt, 1, transfer_num);
	sql_bind_u64(stmt, 2, file_id);
	sql_bind_u64(stmt, 3, file_id ? file_id : UINT64_MAX);
	sql_bind_text(stmt, 4, node_id);
}

int sql_copies_drop(struct sql_conn *conn, int64_t transfer_num, uint64_t file_id, const char *node_id,
		    int64_t now_wall_us, uint64_t *ret_kept_count, struct err *err)
{
	struct sql_stmt *sum = sql_stmt(conn, SQL_COPIES_SUM, err), *drop = sql_stmt(conn, SQL_COPIES_DROP, err);
	int64_t count, bytes;

	if (!sum || !drop)
		return -ERR_STORE;
	bind_range(sum, transfer_num, file_id, node_id);
	if (sql_row(conn, sum, err, "counting a node's copies") < 0)
		return -ERR_STORE;
	count = sql_i64(sum, 0);
	bytes = sql_i64(sum, 1);
	*ret_kept_count = sql_u64(sum, 2);
	sql_reset(sum);
	if (count == 0)
		return 0;
	bind_range(drop, transfer_num, file_id, node_id);
	sql_bind_i64(drop, 5, now_wall_us);
	if (sql_run(conn, drop, err, "giving up a node's copies") < 0)
		return -ERR_STORE;
	return sql_copies_add(conn, transfer_num, -count, -bytes, now_wall_us, err);
}

struct copies_job {
	const char *transfer_id, *why;
	unsigned copies;
	bool is_waived;
	int64_t now_wall_us;
};

static int copies_job(struct sql_conn *conn, void *arg, struct err *err)
{
	const struct copies_job *job = arg;
	struct sql_stmt *stmt = sql_stmt(conn, SQL_COPIES_SET, err);
	struct sql_brief brief;
	char detail[STORE_REASON_SIZE];
	struct store_audit row = { .at_wall_us = job->now_wall_us,
				   .kind = "alert",
				   .transfer_id = brief.id,
				   .user = brief.user,
				   .outcome = "copies_waived",
				   .detail = detail };

	if (!stmt || sql_brief_read(conn, job->transfer_id, &brief, err) < 0)
		return -ERR_STORE;
	if (!brief.is_found)
		return err_set(err, ERR_NO_TRANSFER, "there is no transfer %s", brief.id);
	if (brief.state != TRANSFER_UPLOADING)
		return err_set(err, ERR_STATE, "transfer %s is %s: its copies are settled", brief.id,
			       transfer_state_name(brief.state));
	sql_bind_i64(stmt, 1, brief.num);
	sql_bind_i64(stmt, 2, job->copies);
	sql_bind_i64(stmt, 3, job->is_waived);
	if (sql_run(conn, stmt, err, "keeping how many copies are wanted") < 0)
		return -ERR_STORE;
	if (!job->is_waived)
		return 0;
	(void)snprintf(detail, sizeof(detail), "%llu of %llu chunks have %u copies: %s",
		       (unsigned long long)brief.copied_count, (unsigned long long)brief.chunk_count, job->copies,
		       job->why);
	return sql_audit(conn, &row, NULL, err);
}

int sql_copies_set(struct store *store, const char *transfer_id, unsigned copies, bool is_waived, const char *why,
		   int64_t now_wall_us, struct err *err)
{
	struct copies_job job = { transfer_id, why, copies, is_waived, now_wall_us };

	return sql_writer_do(&sql_store_of(store)->writer, copies_job, &job, err);
}
