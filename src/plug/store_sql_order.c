/* What operators order about nodes. */
#include "plug/store_sql.h"

#include <stdio.h>

struct order_job {
	const struct store_order *order;
	const struct store_audit *row;
	int64_t now_wall_us;
	uint64_t lost_count;
};

/* The transfers are gone through by number, each once: what is reopened would be found again by nobody. */
static int lose_chunks(struct sql_conn *conn, struct order_job *job, struct err *err)
{
	const char *node_id = job->order->node_id;
	char id[ULID_SIZE], why[128];
	int64_t after = 0;

	(void)snprintf(why, sizeof(why), "an operator declared node %s lost", node_id);
	for (;;) {
		struct sql_stmt *stmt = sql_stmt(conn, SQL_ORDER_HOLDS, err);
		uint64_t count = 0;
		int row;

		if (!stmt)
			return -ERR_STORE;
		sql_bind_i64(stmt, 1, after);
		sql_bind_text(stmt, 2, node_id);
		row = sql_row(conn, stmt, err, "finding what a lost node had");
		if (row <= 0)
			return row;
		after = sql_i64(stmt, 0);
		sql_text(stmt, 1, id, sizeof(id));
		sql_reset(stmt);
		row = sql_reopen(conn, id, 0, node_id, CHUNK_LOST, why, job->now_wall_us, &count, err);
		if (row < 0)
			return row;
		job->lost_count += count;
	}
}

static int order_job(struct sql_conn *conn, void *arg, struct err *err)
{
	struct order_job *job = arg;
	const struct store_order *order = job->order;
	struct sql_stmt *stmt = sql_stmt(conn, SQL_ORDER_SAVE, err);
	int result;

	job->lost_count = 0;
	if (!stmt)
		return -ERR_STORE;
	sql_bind_text(stmt, 1, order->node_id);
	sql_bind_text(stmt, 2, node_order_name(order->order));
	if (order->is_weight_ordered)
		sql_bind_i64(stmt, 3, order->weight_milli);
	else
		sql_bind_null(stmt, 3);
	sql_bind_i64(stmt, 4, job->now_wall_us);
	result = sql_run(conn, stmt, err, "keeping what is ordered about a node");
	if (result == 0 && order->order == NODE_ORDER_LOST)
		result = lose_chunks(conn, job, err);
	if (result == 0 && job->row)
		result = sql_audit(conn, job->row, NULL, err);
	return result;
}

int sql_order_save(struct store *store, const struct store_order *order, const struct store_audit *row,
		   int64_t now_wall_us, uint64_t *ret_lost_count, struct err *err)
{
	struct order_job job = { order, row, now_wall_us, 0 };
	int result = sql_writer_do(&sql_store_of(store)->writer, order_job, &job, err);

	*ret_lost_count = result < 0 ? 0 : job.lost_count;
	return result;
}

int sql_order_list(struct store *store, int (*each)(void *owner, const struct store_order *order), void *owner,
		   struct err *err)
{
	struct sql_stmt *stmt = sql_reader_stmt(store, SQL_ORDER_LIST, err);
	int row;

	if (!stmt)
		return -ERR_STORE;
	while ((row = sql_row(stmt->conn, stmt, err, "listing what is ordered about nodes")) > 0) {
		struct store_order order = { .is_weight_ordered = !sql_is_null(stmt, 2) };

		sql_text(stmt, 0, order.node_id, sizeof(order.node_id));
		if (!node_order_from_name(sql_bytes(stmt, 1), &order.order)) {
			row = err_set(err, ERR_STORE, "the store has an order for node %s that is none", order.node_id);
			break;
		}
		order.weight_milli = (uint32_t)sql_i64(stmt, 2);
		if (each(owner, &order) != 0)
			break;
	}
	return sql_reader_end(store, stmt, row);
}
