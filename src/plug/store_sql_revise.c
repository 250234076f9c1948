/* A plan revised: some objects go, others take their place, in one transaction. */
#include "plug/store_sql.h"

#include "base/clock.h"

static int revise_check(const struct store_transfer *transfer, struct str state, int64_t version, struct err *err)
{
	if (version == transfer->version && str_eq_c(state, transfer_state_name(TRANSFER_UPLOADING)))
		return 0;
	return err_set(err, ERR_VERSION_CONFLICT,
		       "transfer %s changed meanwhile (version %lld, not %lld); it is %.*s now", transfer->id,
		       (long long)version, (long long)transfer->version, STR_ARG(state));
}

static int revise_read(struct store_plan *plan, const struct store_transfer *transfer, struct err *err)
{
	struct sql_conn *conn = sql_plan_conn(plan);
	struct sql_stmt *stmt = sql_stmt(conn, SQL_REVISE_GET, err);
	int row;

	if (!stmt)
		return -ERR_STORE;
	sql_bind_text(stmt, 1, transfer->id);
	row = sql_row(conn, stmt, err, "looking up the transfer that is revised");
	if (row <= 0)
		return row < 0 ? row : err_set(err, ERR_NO_TRANSFER, "there is no transfer %s", transfer->id);
	row = revise_check(transfer, sql_bytes(stmt, 1), sql_i64(stmt, 2), err);
	plan->transfer_num = sql_i64(stmt, 0);
	plan->entry_count = sql_u64(stmt, 3);
	plan->object_count = sql_u64(stmt, 4);
	plan->chunk_count = sql_u64(stmt, 5);
	plan->last_file_id = sql_u64(stmt, 6);
	sql_reset(stmt);
	return row;
}

int sql_revise_begin(struct store *store, const struct store_transfer *transfer, struct store_plan **ret_plan,
		     uint64_t *ret_next_file_id, struct err *err)
{
	struct store_plan *plan;
	int result = sql_plan_open(store, transfer->id, &plan, err);

	if (result < 0)
		return result;
	plan->is_revision = true;
	result = revise_read(plan, transfer, err);
	if (result < 0) {
		sql_plan_end(&plan);
		return result;
	}
	*ret_next_file_id = plan->last_file_id + 1;
	*ret_plan = plan;
	return 0;
}

/* What the object's chunks counted for is taken back. */
static int drop_counts(struct store_plan *plan, uint64_t file_id, struct err *err)
{
	struct sql_conn *conn = sql_plan_conn(plan);
	struct sql_stmt *stmt = sql_stmt(conn, SQL_REVISE_SUM, err);
	int row;

	if (!stmt)
		return -ERR_STORE;
	sql_bind_i64(stmt, 1, plan->transfer_num);
	sql_bind_u64(stmt, 2, file_id);
	while ((row = sql_row(conn, stmt, err, "counting the chunks of an object")) > 0) {
		enum chunk_state state;

		if (!chunk_state_from_name(sql_bytes(stmt, 0), &state)) {
			sql_reset(stmt);
			return err_set(err, ERR_STORE_SCHEMA,
				       "a chunk has a state in the database that this heng does not know");
		}
		plan->state_counts[state] -= sql_i64(stmt, 1);
		plan->chunk_count -= sql_u64(stmt, 1);
		if (state == CHUNK_STORED || state == CHUNK_MERGED)
			plan->stored_bytes -= sql_i64(stmt, 2);
	}
	return row;
}

static int drop_rows(struct store_plan *plan, enum sql_id id, uint64_t file_id, struct err *err)
{
	struct sql_conn *conn = sql_plan_conn(plan);
	struct sql_stmt *stmt = sql_stmt(conn, id, err);

	if (!stmt)
		return -ERR_STORE;
	sql_bind_i64(stmt, 1, plan->transfer_num);
	sql_bind_u64(stmt, 2, file_id);
	return sql_run(conn, stmt, err, "dropping an object of the plan");
}

int sql_revise_drop(struct store_plan *plan, uint64_t file_id, struct err *err)
{
	uint64_t kept_count;
	int64_t changes;
	/* Of the counters of second copies, those of this object go first; nothing stays by its other copy. */
	int result = sql_copies_drop(sql_plan_conn(plan), plan->transfer_num, file_id, NULL, clock_wall_us(),
				     &kept_count, err);

	if (result == 0)
		result = drop_counts(plan, file_id, err);
	if (result == 0)
		result = drop_rows(plan, SQL_REVISE_DROP_CHUNKS, file_id, err);
	if (result == 0)
		result = drop_rows(plan, SQL_REVISE_DROP_OBJECT, file_id, err);
	if (result < 0)
		return result;
	changes = sql_changes(sql_plan_conn(plan), err);
	if (changes < 0)
		return -ERR_STORE;
	if (changes != 1)
		return err_set(err, ERR_INTERNAL, "transfer %s has no object %llu to drop", plan->transfer_id,
			       (unsigned long long)file_id);
	plan->object_count--;
	return 0;
}

int sql_revise_row(struct store_plan *plan, const struct store_audit *row, struct err *err)
{
	return sql_audit(sql_plan_conn(plan), row, NULL, err);
}

static int revise_totals(struct store_plan *plan, const struct store_transfer *transfer, struct err *err)
{
	struct sql_conn *conn = sql_plan_conn(plan);
	struct sql_stmt *stmt = sql_stmt(conn, SQL_REVISE_TOTALS, err);

	if (!stmt)
		return -ERR_STORE;
	sql_bind_i64(stmt, 1, plan->transfer_num);
	sql_bind_text(stmt, 2, transfer->manifest_digest);
	sql_bind_i64(stmt, 3, transfer->manifest_crc32c);
	sql_bind_u64(stmt, 4, transfer->object_count);
	sql_bind_u64(stmt, 5, transfer->chunk_count);
	sql_bind_u64(stmt, 6, transfer->total_bytes);
	for (int i = 0; i < SQL_CHUNK_STATES; i++)
		sql_bind_i64(stmt, 7 + i, plan->state_counts[i]);
	sql_bind_i64(stmt, 12, plan->stored_bytes);
	sql_bind_u64(stmt, 13, plan->last_file_id);
	sql_bind_i64(stmt, 14, transfer->updated_wall_us);
	return sql_run(conn, stmt, err, "keeping the revised plan's totals");
}

int sql_revise_commit(struct store_plan **plan, const struct store_transfer *transfer, struct err *err)
{
	struct store_plan *p = *plan;
	int result = sql_rows_flush(p, err);

	if (result == 0)
		result = sql_plan_conn(p)->engine->settle(sql_plan_conn(p), err);
	if (result == 0)
		result = sql_plan_check(p, transfer, err);
	if (result == 0)
		result = revise_totals(p, transfer, err);
	if (result == 0)
		result = sql_commit(sql_plan_conn(p), err);
	if (result < 0)
		err_wrap(err, "revising transfer %s", p->transfer_id);
	sql_plan_end(plan);
	return result;
}
