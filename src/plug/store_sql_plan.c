#include "plug/store_sql.h"

#include <stdlib.h>

void sql_plan_end(struct store_plan **plan)
{
	struct sql_conn *conn = sql_plan_conn(*plan);

	if (conn->engine->is_in_transaction(conn))
		conn->engine->rollback(conn);
	sql_writer_return(&(*plan)->sql->writer);
	sql_rows_fini(&(*plan)->rows);
	free(*plan);
	*plan = NULL;
}

int sql_plan_open(struct store *store, const char *transfer_id, struct store_plan **ret_plan, struct err *err)
{
	struct sql_store *sql = sql_store_of(store);
	struct store_plan *plan;
	int result = sql_writer_lend(&sql->writer, err);

	if (result < 0)
		return result;
	plan = must_zalloc(1, sizeof(*plan));
	sql_rows_init(&plan->rows);
	plan->sql = sql;
	(void)str_copy(str_from(transfer_id), plan->transfer_id, sizeof(plan->transfer_id));
	if (sql_begin(sql_plan_conn(plan), err) < 0) {
		sql_plan_end(&plan);
		return -ERR_STORE;
	}
	*ret_plan = plan;
	return 0;
}

static int plan_transfer(struct store_plan *plan, const struct store_transfer *transfer, struct err *err)
{
	struct sql_conn *conn = sql_plan_conn(plan);
	struct sql_stmt *stmt = sql_stmt(conn, SQL_TRANSFER_INSERT, err);

	if (!stmt)
		return -ERR_STORE;
	sql_bind_text(stmt, 1, transfer->id);
	sql_bind_text(stmt, 2, transfer->user);
	sql_bind_bytes(stmt, 3, str_from(transfer->batch));
	sql_bind_text(stmt, 4, transfer->source);
	sql_bind_text(stmt, 5, transfer->manifest_digest);
	sql_bind_i64(stmt, 6, transfer->manifest_crc32c);
	sql_bind_text(stmt, 7, digest_name(transfer->digest));
	sql_bind_u64(stmt, 8, transfer->chunk_bytes);
	sql_bind_u64(stmt, 9, transfer->pack_bytes);
	sql_bind_i64(stmt, 10, transfer->is_retryable);
	sql_bind_i64(stmt, 11, transfer->priority);
	sql_bind_text(stmt, 12, transfer->reason);
	sql_bind_text(stmt, 13, transfer->client_addr);
	sql_bind_i64(stmt, 14, transfer->created_wall_us);
	sql_bind_i64(stmt, 15, transfer->updated_wall_us);
	sql_bind_i64(stmt, 16, transfer->copies > 1 ? transfer->copies : 1);
	sql_bind_text(stmt, 17, transfer->seal);
	if (sql_row(conn, stmt, err, "inserting the transfer") <= 0)
		return -ERR_STORE;
	plan->transfer_num = sql_i64(stmt, 0);
	sql_reset(stmt);
	return 0;
}

int sql_plan_begin(struct store *store, const struct store_transfer *transfer, struct store_plan **ret_plan,
		   struct err *err)
{
	struct store_plan *plan;
	int result;

	if (!sql_fits(transfer->chunk_bytes) || !sql_fits(transfer->pack_bytes))
		return err_set(err, ERR_LIMIT, "transfer %s: the chunk size is beyond 2^63 bytes", transfer->id);
	result = sql_plan_open(store, transfer->id, &plan, err);
	if (result < 0)
		return err_wrap(err, "planning transfer %s", transfer->id);
	if (plan_transfer(plan, transfer, err) < 0) {
		sql_plan_end(&plan);
		err_wrap(err, "planning transfer %s", transfer->id);
		return -ERR_STORE;
	}
	*ret_plan = plan;
	return 0;
}

static int revise_entry(struct store_plan *plan, const struct store_entry *entry, struct err *err)
{
	struct sql_conn *conn = sql_plan_conn(plan);
	struct sql_stmt *stmt = sql_stmt(conn, SQL_ENTRY_REVISE, err);
	int64_t changes;

	if (!stmt)
		return -ERR_STORE;
	sql_entry_bind(stmt, 0, plan->transfer_num, entry);
	if (sql_run(conn, stmt, err, "revising an entry of the plan") < 0)
		return -ERR_STORE;
	changes = sql_changes(conn, err);
	if (changes >= 0 && changes != 1)
		return err_set(err, ERR_INTERNAL, "transfer %s has no such entry %llu to revise", plan->transfer_id,
			       (unsigned long long)entry->seq);
	return changes < 0 ? -ERR_STORE : 0;
}

int sql_plan_entry(struct store_plan *plan, const struct store_entry *entry, struct err *err)
{
	if (!sql_fits(entry->seq) || !sql_fits(entry->size_bytes) || !sql_fits(entry->file_id) ||
	    !sql_fits(entry->object_offset))
		return err_set(err, ERR_LIMIT, "entry %llu: a number is beyond 2^63", (unsigned long long)entry->seq);
	if (plan->is_revision)
		return revise_entry(plan, entry, err);
	plan->entry_count++;
	return sql_rows_entry(plan, entry, err);
}

int sql_plan_object(struct store_plan *plan, const struct store_object *object, struct err *err)
{
	struct sql_conn *conn = sql_plan_conn(plan);
	struct sql_stmt *stmt;

	if (!sql_fits(object->file_id) || !sql_fits(object->first_seq) || !sql_fits(object->last_seq) ||
	    !sql_fits(object->size_bytes) || !sql_fits(object->chunk_count))
		return err_set(err, ERR_LIMIT, "object %llu: a number is beyond 2^63",
			       (unsigned long long)object->file_id);
	stmt = sql_stmt(conn, SQL_OBJECT_INSERT, err);
	if (!stmt)
		return -ERR_STORE;
	sql_bind_i64(stmt, 1, plan->transfer_num);
	sql_bind_u64(stmt, 2, object->file_id);
	sql_bind_i64(stmt, 3, object->is_pack);
	sql_bind_u64(stmt, 4, object->first_seq);
	sql_bind_u64(stmt, 5, object->last_seq);
	sql_bind_u64(stmt, 6, object->size_bytes);
	sql_bind_u64(stmt, 7, object->chunk_count);
	if (sql_run(conn, stmt, err, "inserting an object of the plan") < 0)
		return -ERR_STORE;
	plan->object_count++;
	if (object->file_id > plan->last_file_id)
		plan->last_file_id = object->file_id;
	return 0;
}

int sql_plan_chunk(struct store_plan *plan, const struct store_chunk *chunk, struct err *err)
{
	if (!sql_fits(chunk->file_id) || !sql_fits(chunk->chunk_index) || !sql_fits(chunk->size_bytes))
		return err_set(err, ERR_LIMIT, "chunk %llu of object %llu: a number is beyond 2^63",
			       (unsigned long long)chunk->chunk_index, (unsigned long long)chunk->file_id);
	plan->chunk_count++;
	plan->state_counts[chunk->state]++;
	if (chunk->state == CHUNK_STORED || chunk->state == CHUNK_MERGED)
		plan->stored_bytes += (int64_t)chunk->size_bytes;
	return sql_rows_chunk(plan, chunk, err);
}

/* The counts of a transfer decide when it is complete: they must be those of its rows. */
int sql_plan_check(const struct store_plan *plan, const struct store_transfer *transfer, struct err *err)
{
	if (transfer->entry_count == plan->entry_count && transfer->object_count == plan->object_count &&
	    transfer->chunk_count == plan->chunk_count && sql_fits(transfer->file_count) &&
	    sql_fits(transfer->total_bytes))
		return 0;
	return err_set(err, ERR_INTERNAL,
		       "the plan has %llu entries, %llu objects, %llu chunks, its totals say %llu, %llu, %llu",
		       (unsigned long long)plan->entry_count, (unsigned long long)plan->object_count,
		       (unsigned long long)plan->chunk_count, (unsigned long long)transfer->entry_count,
		       (unsigned long long)transfer->object_count, (unsigned long long)transfer->chunk_count);
}

static int plan_totals(struct store_plan *plan, const struct store_transfer *transfer, struct err *err)
{
	struct sql_conn *conn = sql_plan_conn(plan);
	struct sql_stmt *stmt = sql_stmt(conn, SQL_TRANSFER_PLANNED, err);

	if (!stmt)
		return -ERR_STORE;
	sql_bind_i64(stmt, 1, plan->transfer_num);
	sql_bind_u64(stmt, 2, transfer->entry_count);
	sql_bind_u64(stmt, 3, transfer->file_count);
	sql_bind_u64(stmt, 4, transfer->object_count);
	sql_bind_u64(stmt, 5, transfer->chunk_count);
	sql_bind_u64(stmt, 6, transfer->total_bytes);
	for (int i = 0; i < SQL_CHUNK_STATES; i++)
		sql_bind_i64(stmt, 7 + i, plan->state_counts[i]);
	sql_bind_i64(stmt, 12, plan->stored_bytes);
	sql_bind_i64(stmt, 13, transfer->updated_wall_us);
	return sql_run(conn, stmt, err, "keeping the plan's totals");
}

int sql_plan_commit(struct store_plan **plan, const struct store_transfer *transfer, struct err *err)
{
	struct store_plan *p = *plan;
	char detail[64];
	const struct store_audit row = {
		.at_wall_us = transfer->updated_wall_us,
		.kind = "state",
		.transfer_id = p->transfer_id,
		.user = transfer->user,
		.outcome = transfer_state_name(TRANSFER_UPLOADING),
		.detail = detail,
	};
	int result = sql_rows_flush(p, err);

	/* By the key's id an auditor tells who could read it. */
	snprintf(detail, sizeof(detail), "planned%s%s", transfer->seal[0] ? ", encrypted " : "", transfer->seal);
	if (result == 0)
		result = sql_plan_conn(p)->engine->settle(sql_plan_conn(p), err);
	if (result == 0)
		result = sql_plan_check(p, transfer, err);

	if (result == 0)
		result = plan_totals(p, transfer, err);
	if (result == 0)
		result = sql_audit(sql_plan_conn(p), &row, NULL, err);
	if (result == 0)
		result = sql_commit(sql_plan_conn(p), err);
	if (result < 0)
		err_wrap(err, "planning transfer %s", p->transfer_id);
	sql_plan_end(plan);
	return result;
}

void sql_plan_abort(struct store_plan **plan)
{
	if (*plan)
		sql_plan_end(plan);
}
