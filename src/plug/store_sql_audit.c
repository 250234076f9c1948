/* The audit table: every row that is written is linked to the chain in its transaction, and rows go only by way of the anchor. */
#include "plug/store_sql.h"

#include <inttypes.h>
#include <string.h>

/* Rows that one page without a transfer looks at: the ids are dense, so this bounds the work of a filter that fits few. */
#define AUDIT_LOOK_MAX 200000

static int read_hash(struct sql_stmt *stmt, int column, uint8_t target[AUDIT_HASH_SIZE])
{
	const struct str bytes = sql_bytes(stmt, column);

	memset(target, 0, AUDIT_HASH_SIZE);
	if (bytes.size != AUDIT_HASH_SIZE)
		return -ERR_STORE_SCHEMA;
	memcpy(target, bytes.data, bytes.size);
	return 0;
}

static struct str hash_bytes(const uint8_t hash[AUDIT_HASH_SIZE])
{
	return (struct str){ (const char *)hash, AUDIT_HASH_SIZE };
}

static int head_read(struct sql_conn *conn, struct audit_head *ret, uint64_t *ret_newest_id, struct err *err)
{
	struct sql_stmt *stmt = sql_stmt(conn, SQL_AUDIT_HEAD, err);
	int row;

	if (!stmt)
		return -ERR_STORE;
	row = sql_row(conn, stmt, err, "reading where the audit's chain stands");
	if (row < 0)
		return row;
	if (row == 1) {
		*ret_newest_id = sql_u64(stmt, 4);
		ret->last.id = sql_u64(stmt, 0);
		row = read_hash(stmt, 1, ret->last.hash);
		ret->anchor.id = sql_u64(stmt, 2);
		if (read_hash(stmt, 3, ret->anchor.hash) < 0)
			row = -ERR_STORE_SCHEMA;
	} else {
		row = -ERR_STORE_SCHEMA;
	}
	sql_reset(stmt);
	if (row == 0)
		return 0;
	err_set(err, ERR_STORE_SCHEMA, "the table 'audit_head' has not its one row, or a hash in it is none");
	err_hint(err, "somebody has changed the database by hand: restore a backup, and look into why");
	return -ERR_STORE_SCHEMA;
}

/* --- writing --- */

/* The chain's end, read once in each transaction. */
static int chain_ready(struct sql_conn *conn, struct err *err)
{
	struct audit_head head;
	uint64_t newest_id;
	int result;

	if (!conn->audit.hasher)
		conn->audit.hasher = audit_hasher_new();
	if (conn->audit.is_read)
		return 0;
	result = head_read(conn, &head, &newest_id, err);
	if (result < 0)
		return result;
	conn->audit.last = head.last;
	/* A row that somebody put in behind the end holds back no writer: the next one follows the end that was, which accuses what stands between. */
	if (newest_id > head.last.id)
		conn->audit.last.id = newest_id;
	conn->audit.is_read = true;
	return 0;
}

int sql_audit(struct sql_conn *conn, const struct store_audit *audit, const struct store_receipt *receipt,
	      struct err *err)
{
	struct sql_stmt *stmt = sql_stmt(conn, SQL_AUDIT_INSERT, err);
	struct audit_room room;
	struct audit_row row;
	int result;

	if (!stmt)
		return -ERR_STORE;
	result = chain_ready(conn, err);
	if (result < 0)
		return result;
	audit_row_fill(&row, audit, receipt, &room);
	audit_row_link(conn->audit.hasher, &conn->audit.last, &row);
	conn->audit.is_moved = true;
	sql_bind_u64(stmt, 1, row.id);
	for (int i = 0; i < AUDIT_FIELD_COUNT; i++) {
		const struct audit_value *value = &row.fields[i];

		if (value->is_null)
			sql_bind_null(stmt, 2 + i);
		else if (audit_field_is_number((enum audit_field)i))
			sql_bind_i64(stmt, 2 + i, value->number);
		else
			sql_bind_str(stmt, 2 + i, value->text);
	}
	sql_bind_bytes(stmt, 2 + AUDIT_FIELD_COUNT, hash_bytes(row.prev));
	sql_bind_bytes(stmt, 3 + AUDIT_FIELD_COUNT, hash_bytes(row.hash));
	return sql_run(conn, stmt, err, "writing an audit row");
}

static int audit_job(struct sql_conn *conn, void *arg, struct err *err) { return sql_audit(conn, arg, NULL, err); }

int sql_audit_row(struct store *store, const struct store_audit *row, struct err *err)
{
	struct store_audit copy = *row;

	return sql_writer_do(&sql_store_of(store)->writer, audit_job, &copy, err);
}

/* --- reading --- */

static void row_read(struct sql_stmt *stmt, struct audit_row *row)
{
	row->id = sql_u64(stmt, 0);
	for (int i = 0; i < AUDIT_FIELD_COUNT; i++) {
		struct audit_value *value = &row->fields[i];
		const bool is_number = audit_field_is_number((enum audit_field)i);

		value->is_null = sql_is_null(stmt, 1 + i);
		value->number = is_number ? sql_i64(stmt, 1 + i) : 0;
		value->text = is_number ? STR("") : sql_bytes(stmt, 1 + i);
		/* Engines may give no place for text of no bytes. */
		if (!value->text.data)
			value->text = STR("");
	}
	/* What is no hash shows as zeros, and fits nothing. */
	(void)read_hash(stmt, 1 + AUDIT_FIELD_COUNT, row->prev);
	(void)read_hash(stmt, 2 + AUDIT_FIELD_COUNT, row->hash);
}

static uint64_t row_number(const struct audit_row *row, enum audit_field field)
{
	return row->fields[field].number > 0 ? (uint64_t)row->fields[field].number : 0;
}

/* What both statements have; to_id: the last row that this page looks at. */
static void query_bind(struct sql_stmt *stmt, const struct audit_query *query, uint64_t to_id)
{
	sql_bind_u64(stmt, 1, query->after.id);
	sql_bind_u64(stmt, 2, to_id);
	sql_bind_u64(stmt, 3, query->limit);
	sql_bind_text(stmt, 4, query->kind);
	sql_bind_text(stmt, 5, query->user);
	sql_bind_text(stmt, 6, query->node_id);
	sql_bind_text(stmt, 7, query->outcome);
	sql_bind_i64(stmt, 8, query->from_wall_us);
	sql_bind_i64(stmt, 9, query->to_wall_us ? query->to_wall_us : INT64_MAX);
}

static void query_bind_transfer(struct sql_stmt *stmt, const struct audit_query *query)
{
	struct audit_place after = query->after;

	/* The first place of the object, less one row, is nearer than the start. */
	if (query->has_file && (after.file_id < query->file_id ||
				(after.file_id == query->file_id && after.chunk_index < query->first_chunk)))
		after = (struct audit_place){ query->file_id, query->first_chunk, 0 };
	sql_bind_u64(stmt, 1, after.id);
	sql_bind_text(stmt, 10, query->transfer_id);
	sql_bind_u64(stmt, 11, after.file_id);
	sql_bind_u64(stmt, 12, after.chunk_index);
	sql_bind_u64(stmt, 13, query->has_file ? query->file_id : UINT64_MAX);
	sql_bind_u64(stmt, 14, query->has_file ? query->last_chunk : UINT64_MAX);
}

struct audit_page {
	const struct audit_query *query;
	int (*each)(void *owner, const struct audit_row *row);
	void *owner;
	size_t count;
	bool is_stopped;
	struct audit_place place;
};

static int page_rows(struct sql_conn *conn, struct sql_stmt *stmt, struct audit_page *page, struct err *err)
{
	struct audit_row row;
	int got;

	while ((got = sql_row(conn, stmt, err, "reading the audit")) > 0) {
		row_read(stmt, &row);
		page->count++;
		page->place = (struct audit_place){ row_number(&row, AUDIT_file_id),
						    row_number(&row, AUDIT_chunk_index), row.id };
		if (page->each(page->owner, &row) != 0) {
			page->is_stopped = true;
			break;
		}
	}
	sql_reset(stmt);
	return got < 0 ? got : 0;
}

/* The newest id there is, or the one that is asked for, whatever comes first. */
static int query_end(struct sql_conn *conn, const struct audit_query *query, uint64_t *ret_to_id, struct err *err)
{
	struct audit_head head;
	uint64_t newest_id = 0;
	int result = head_read(conn, &head, &newest_id, err);

	*ret_to_id = query->to_id ? query->to_id : newest_id;
	return result;
}

static uint64_t page_end(uint64_t to_id, uint64_t after_id)
{
	return to_id > after_id + AUDIT_LOOK_MAX ? after_id + AUDIT_LOOK_MAX : to_id;
}

static int page_run(struct sql_conn *conn, struct audit_page *page, bool *ret_more, struct err *err)
{
	const struct audit_query *query = page->query;
	const bool is_of_transfer = query->transfer_id != NULL;
	struct sql_stmt *stmt = sql_stmt(conn, is_of_transfer ? SQL_AUDIT_OF_TRANSFER : SQL_AUDIT_PAGE, err);
	uint64_t to_id, end_id;
	int result;

	if (!stmt)
		return -ERR_STORE;
	result = query_end(conn, query, &to_id, err);
	if (result < 0)
		return result;
	end_id = is_of_transfer ? to_id : page_end(to_id, query->after.id);
	query_bind(stmt, query, end_id);
	if (is_of_transfer)
		query_bind_transfer(stmt, query);
	result = page_rows(conn, stmt, page, err);
	*ret_more = page->is_stopped || page->count == query->limit;
	if (result < 0 || *ret_more || is_of_transfer)
		return result;
	page->place = (struct audit_place){ .id = end_id };
	*ret_more = end_id < to_id;
	return 0;
}

int sql_audit_rows(struct store *store, const struct audit_query *query,
		   int (*each)(void *owner, const struct audit_row *row), void *owner, struct audit_place *ret_place,
		   bool *ret_more, struct err *err)
{
	struct sql_store *sql = sql_store_of(store);
	struct audit_page page = { .query = query, .each = each, .owner = owner, .place = query->after };
	struct sql_conn *conn = sql_reader_get(sql, err);
	int result;

	*ret_more = false;
	if (!conn)
		return -ERR_STORE;
	result = page_run(conn, &page, ret_more, err);
	*ret_place = page.place;
	sql_reader_put(sql, conn);
	return result;
}

int sql_audit_head(struct store *store, struct audit_head *ret, struct err *err)
{
	struct sql_store *sql = sql_store_of(store);
	struct sql_conn *conn = sql_reader_get(sql, err);
	uint64_t newest_id;
	int result;

	if (!conn)
		return -ERR_STORE;
	result = head_read(conn, ret, &newest_id, err);
	sql_reader_put(sql, conn);
	return result;
}

/* --- taking out what is archived --- */

struct cut_job {
	const struct audit_point *from, *to;
	const struct store_audit *row;
};

static int point_set(struct sql_conn *conn, enum sql_id id, const struct audit_point *point, struct err *err)
{
	struct sql_stmt *stmt = sql_stmt(conn, id, err);

	if (!stmt)
		return -ERR_STORE;
	sql_bind_u64(stmt, 1, point->id);
	sql_bind_bytes(stmt, 2, hash_bytes(point->hash));
	return sql_run(conn, stmt, err, "keeping the anchor of the audit's chain");
}

static int cut_check(struct sql_conn *conn, const struct cut_job *job, struct err *err)
{
	struct sql_stmt *stmt = sql_stmt(conn, SQL_AUDIT_HASH, err);
	uint8_t hash[AUDIT_HASH_SIZE];
	struct audit_head head;
	uint64_t newest_id;
	int row;

	if (!stmt)
		return -ERR_STORE;
	row = head_read(conn, &head, &newest_id, err);
	if (row < 0)
		return row;
	if (head.anchor.id != job->from->id || memcmp(head.anchor.hash, job->from->hash, AUDIT_HASH_SIZE) != 0)
		return err_set(err, ERR_VERSION_CONFLICT,
			       "the audit was archived up to row %" PRIu64 " meanwhile, not %" PRIu64, head.anchor.id,
			       job->from->id);
	if (job->to->id <= job->from->id || job->to->id >= head.last.id)
		return err_set(err, ERR_VERSION_CONFLICT, "the audit has no rows to take out up to %" PRIu64,
			       job->to->id);
	sql_bind_u64(stmt, 1, job->to->id);
	row = sql_row(conn, stmt, err, "reading an audit row's hash");
	if (row < 0)
		return row;
	if (row == 0 || read_hash(stmt, 0, hash) < 0 || memcmp(hash, job->to->hash, sizeof(hash)) != 0)
		row = -ERR_VERSION_CONFLICT;
	sql_reset(stmt);
	if (row < 0)
		return err_set(err, ERR_VERSION_CONFLICT, "row %" PRIu64 " of the audit is not the one in the archive",
			       job->to->id);
	return 0;
}

static int cut_job(struct sql_conn *conn, void *arg, struct err *err)
{
	const struct cut_job *job = arg;
	struct sql_stmt *stmt = sql_stmt(conn, SQL_AUDIT_CUT, err);
	int result;

	if (!stmt)
		return -ERR_STORE;
	result = cut_check(conn, job, err);
	if (result == 0)
		result = point_set(conn, SQL_AUDIT_ANCHOR_SET, job->to, err);
	if (result < 0)
		return result;
	sql_bind_u64(stmt, 1, job->to->id);
	result = sql_run(conn, stmt, err, "taking archived rows out of the audit");
	return result < 0 ? result : sql_audit(conn, job->row, NULL, err);
}

int sql_audit_cut(struct store *store, const struct audit_point *from, const struct audit_point *to,
		  const struct store_audit *row, struct err *err)
{
	struct cut_job job = { from, to, row };

	return sql_writer_do(&sql_store_of(store)->writer, cut_job, &job, err);
}

/* --- the rows from before --- */

static int link_row(struct sql_conn *conn, struct audit_row *row, struct err *err)
{
	struct sql_stmt *stmt = sql_stmt(conn, SQL_AUDIT_LINK, err);

	if (!stmt)
		return -ERR_STORE;
	/* Its own number, be it that some are missing: the chain then says so. */
	memcpy(row->prev, conn->audit.last.hash, sizeof(row->prev));
	audit_row_hash(conn->audit.hasher, row, row->hash);
	conn->audit.last.id = row->id;
	memcpy(conn->audit.last.hash, row->hash, sizeof(row->hash));
	sql_bind_u64(stmt, 1, row->id);
	sql_bind_bytes(stmt, 2, hash_bytes(row->prev));
	sql_bind_bytes(stmt, 3, hash_bytes(row->hash));
	return sql_run(conn, stmt, err, "linking an audit row");
}

int sql_audit_chain_old(struct sql_conn *conn, struct err *err)
{
	struct sql_stmt *next = sql_stmt(conn, SQL_AUDIT_NEXT, err);
	struct audit_row row;
	int result;

	if (!next || chain_ready(conn, err) < 0)
		return -ERR_STORE;
	memset(&conn->audit.last, 0, sizeof(conn->audit.last));
	for (;;) {
		sql_bind_u64(next, 1, conn->audit.last.id);
		result = sql_row(conn, next, err, "reading the audit");
		if (result <= 0)
			return result;
		row_read(next, &row);
		result = link_row(conn, &row, err);
		sql_reset(next);
		if (result < 0)
			return result;
		conn->audit.is_moved = true;
	}
}
