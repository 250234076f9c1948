/* Rows of a plan on their way into the tables: kept until an engine has as many as it takes at once, then inserted by one statement. */
#include "plug/store_sql.h"

#include <string.h>

#define ENTRY_COLUMNS 11 /* as they are bound */
#define CHUNK_COLUMNS 9

/* Of two paths each, a name of which every byte was written as three. */
#define ROWS_TEXT_MAX (SQL_ROWS_MAX * 4 * 64 * KIB)

void sql_rows_init(struct sql_rows *rows) { rows->text = BUF_INIT(ROWS_TEXT_MAX); }

void sql_rows_fini(struct sql_rows *rows) { buf_fini(&rows->text); }

void sql_entry_bind(struct sql_stmt *stmt, int at, int64_t transfer_num, const struct store_entry *entry)
{
	const struct str type = { &entry->type, 1 };

	sql_bind_i64(stmt, at + 1, transfer_num);
	sql_bind_u64(stmt, at + 2, entry->seq);
	sql_bind_str(stmt, at + 3, type);
	sql_bind_i64(stmt, at + 4, entry->mode);
	sql_bind_i64(stmt, at + 5, entry->mtime_ns);
	sql_bind_u64(stmt, at + 6, entry->size_bytes);
	sql_bind_bytes(stmt, at + 7, entry->path);
	sql_bind_bytes(stmt, at + 8, entry->target);
	sql_bind_u64(stmt, at + 9, entry->file_id);
	sql_bind_u64(stmt, at + 10, entry->object_offset);
	sql_bind_text(stmt, at + 11, entry->digest);
}

static void chunk_bind(struct sql_stmt *stmt, int at, int64_t transfer_num, const struct store_chunk *chunk)
{
	sql_bind_i64(stmt, at + 1, transfer_num);
	sql_bind_u64(stmt, at + 2, chunk->file_id);
	sql_bind_u64(stmt, at + 3, chunk->chunk_index);
	sql_bind_u64(stmt, at + 4, chunk->size_bytes);
	sql_bind_text(stmt, at + 5, chunk_state_name(chunk->state));
	sql_bind_text(stmt, at + 6, chunk->target_node);
	sql_bind_text(stmt, at + 7, chunk->actual_node);
	sql_bind_text(stmt, at + 8, chunk->digest);
	sql_bind_i64(stmt, at + 9, chunk->updated_wall_us);
}

static int insert_entries(struct store_plan *plan, struct err *err)
{
	struct sql_conn *conn = sql_plan_conn(plan);
	struct sql_rows *rows = &plan->rows;
	struct sql_stmt *stmt = sql_stmt(conn, SQL_ENTRIES_INSERT, err);
	const char *text = rows->text.data;
	int result;

	if (!stmt)
		return -ERR_STORE;
	for (unsigned i = 0; i < rows->entry_count; i++) {
		struct store_entry *entry = &rows->entries[i];

		/* The text may have moved since it was kept. */
		entry->path.data = text;
		text += entry->path.size;
		entry->target.data = text;
		text += entry->target.size;
		sql_entry_bind(stmt, (int)i * ENTRY_COLUMNS, plan->transfer_num, entry);
	}
	for (unsigned i = rows->entry_count; i < conn->engine->row_count; i++)
		sql_bind_null(stmt, (int)i * ENTRY_COLUMNS + 1);
	result = sql_run(conn, stmt, err, "inserting entries of the plan");
	rows->entry_count = 0;
	buf_clear(&rows->text);
	return result;
}

static int insert_chunks(struct store_plan *plan, struct err *err)
{
	struct sql_conn *conn = sql_plan_conn(plan);
	struct sql_rows *rows = &plan->rows;
	struct sql_stmt *stmt = sql_stmt(conn, SQL_CHUNKS_INSERT, err);

	if (!stmt)
		return -ERR_STORE;
	for (unsigned i = 0; i < rows->chunk_count; i++)
		chunk_bind(stmt, (int)i * CHUNK_COLUMNS, plan->transfer_num, &rows->chunks[i]);
	for (unsigned i = rows->chunk_count; i < conn->engine->row_count; i++)
		sql_bind_null(stmt, (int)i * CHUNK_COLUMNS + 1);
	rows->chunk_count = 0;
	return sql_run(conn, stmt, err, "inserting chunks of the plan");
}

int sql_rows_flush(struct store_plan *plan, struct err *err)
{
	int result = plan->rows.entry_count > 0 ? insert_entries(plan, err) : 0;

	if (result == 0 && plan->rows.chunk_count > 0)
		result = insert_chunks(plan, err);
	return result;
}

int sql_rows_entry(struct store_plan *plan, const struct store_entry *entry, struct err *err)
{
	struct sql_rows *rows = &plan->rows;

	if (!buf_append(&rows->text, entry->path) || !buf_append(&rows->text, entry->target))
		return err_set(err, ERR_LIMIT, "entry %llu: its path is too long", (unsigned long long)entry->seq);
	rows->entries[rows->entry_count++] = *entry;
	return rows->entry_count == sql_plan_conn(plan)->engine->row_count ? insert_entries(plan, err) : 0;
}

int sql_rows_chunk(struct store_plan *plan, const struct store_chunk *chunk, struct err *err)
{
	struct sql_rows *rows = &plan->rows;

	rows->chunks[rows->chunk_count++] = *chunk;
	return rows->chunk_count == sql_plan_conn(plan)->engine->row_count ? insert_chunks(plan, err) : 0;
}
