#include "plug/store_sqlite.h"

#include <stdlib.h>

static void sql_close(struct store *store)
{
	struct sqlite_store *sqlite = sqlite_of(store);
	struct sql_conn *conn;

	sql_writer_stop(&sqlite->writer);
	while ((conn = sqlite->readers)) {
		sqlite->readers = conn->next;
		sql_conn_close(conn);
		free(conn);
	}
	/* Last, so that SQLite can fold the write-ahead log into the file. */
	sql_conn_close(&sqlite->writer.conn);
	pthread_mutex_destroy(&sqlite->readers_lock);
	free(sqlite->path);
	free(sqlite);
}

static const struct store_ops sqlite_ops = {
	.name = "sqlite",
	.close = sql_close,
	.plan_begin = sql_plan_begin,
	.plan_entry = sql_plan_entry,
	.plan_object = sql_plan_object,
	.plan_chunk = sql_plan_chunk,
	.plan_commit = sql_plan_commit,
	.plan_abort = sql_plan_abort,
	.revise_begin = sql_revise_begin,
	.revise_drop = sql_revise_drop,
	.revise_row = sql_revise_row,
	.revise_commit = sql_revise_commit,
	.transfer_get = sql_transfer_get,
	.transfer_by_batch = sql_transfer_by_batch,
	.transfer_list = sql_transfer_list,
	.transfers_idle = sql_transfers_idle,
	.transfers_uncleaned = sql_transfers_uncleaned,
	.transfer_move = sql_transfer_move,
	.transfer_note = sql_transfer_note,
	.chunks = sql_chunks,
	.objects = sql_objects,
	.entries = sql_entries,
	.chunk_counts = sql_chunk_counts,
	.receipts = sql_receipts,
	.bind_digests = sql_bind_digests,
	.chunks_reopen = sql_chunks_reopen,
	.copies_set = sql_copies_set,
	.chunks_lose = sql_chunks_lose,
	.node_save = sql_node_save,
	.node_list = sql_node_list,
	.order_save = sql_order_save,
	.order_list = sql_order_list,
	.audit = sql_audit_row,
	.audit_rows = sql_audit_rows,
	.audit_head = sql_audit_head,
	.audit_cut = sql_audit_cut,
};

int store_sqlite_open(const char *path, struct store **ret_store, struct err *err)
{
	struct sqlite_store *sqlite = must_zalloc(1, sizeof(*sqlite));
	struct sql_conn *conn = &sqlite->writer.conn;
	int result = sql_conn_open(path, true, conn, err);

	if (result < 0)
		goto no_conn;
	result = sql_migrate(conn, err);
	if (result < 0) {
		err_wrap(err, "database '%s'", path);
		goto no_writer;
	}
	result = sql_writer_start(&sqlite->writer, err);
	if (result < 0)
		goto no_writer;
	pthread_mutex_init(&sqlite->readers_lock, NULL);
	sqlite->path = must_strdup(path);
	sqlite->store.ops = &sqlite_ops;
	*ret_store = &sqlite->store;
	return 0;
no_writer:
	sql_conn_close(conn);
no_conn:
	free(sqlite);
	return result;
}
