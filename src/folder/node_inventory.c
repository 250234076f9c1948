/* What the node holds, told to a scheduler that asks. */
#include <stdlib.h>
#include <string.h>

#include "folder/node_inside.h"

/* An absent number is `fallback`. */
static int query_u64(const struct http_call *call, const char *name, uint64_t fallback, uint64_t *ret_value,
		     struct err *err)
{
	char text[24];
	size_t size = 0;

	*ret_value = fallback;
	if (!http_query(call, name, text, sizeof(text), &size))
		return 0;
	if (str_to_u64((struct str){ text, size }, ret_value) && *ret_value <= INT64_MAX)
		return 0;
	return err_set(err, ERR_BAD_REQUEST, "the query's %s is not a number in range", name);
}

/* Whoever asks means a certain node: at its address there may be another one now, whose chunks are not that one's. */
static int check_name(const struct node *node, const struct http_call *call, struct err *err)
{
	char text[STORE_NODE_ID_SIZE];
	size_t size = 0;

	if (!http_query(call, "node", text, sizeof(text), &size))
		return err_set(err, ERR_BAD_REQUEST, "the query does not say which node is meant");
	if (!str_eq_c((struct str){ text, size }, node->id))
		return err_set(err, ERR_NODE_CONFLICT, "this is node '%s', not the one that is asked", node->id);
	return 0;
}

static int read_query(const struct http_task *task, enum digest_kind *ret_kind, struct held_range *range,
		      uint64_t *ret_limit, struct err *err)
{
	const struct http_call *call = task->call;
	char text[16];
	size_t size = 0;
	int r = check_name(task->app, call, err);

	if (r == 0)
		r = query_u64(call, "after_file", 0, &range->after_file_id, err);
	if (r == 0)
		r = query_u64(call, "after_chunk", 0, &range->after_chunk_index, err);
	if (r == 0)
		r = query_u64(call, "last_file", INT64_MAX, &range->last_file_id, err);
	if (r == 0)
		r = query_u64(call, "last_chunk", INT64_MAX, &range->last_chunk_index, err);
	if (r == 0)
		r = query_u64(call, "limit", HELD_PAGE_MAX, ret_limit, err);
	if (r < 0)
		return r;
	if (*ret_limit == 0 || *ret_limit > HELD_PAGE_MAX)
		return err_set(err, ERR_BAD_REQUEST, "the query's limit is not 1 to %u", HELD_PAGE_MAX);
	if (!http_query(call, "digest", text, sizeof(text), &size) ||
	    !digest_from_name((struct str){ text, size }, ret_kind))
		return err_set(err, ERR_BAD_REQUEST, "the query's digest is none of " DIGEST_NAMES);
	return 0;
}

static int list_run(struct http_task *task)
{
	struct node *node = task->app;
	char transfer_id[ULID_SIZE];
	enum digest_kind kind;
	struct held_range range;
	struct held_chunk *chunks;
	uint64_t limit;
	size_t count = 0;
	bool has_more = false;
	int r = read_query(task, &kind, &range, &limit, &task->err);

	if (r < 0)
		return r;
	if (!str_copy(http_param(task->call, "transfer"), transfer_id, sizeof(transfer_id)))
		return err_set(&task->err, ERR_BAD_REQUEST, "the transfer id is not a ULID");
	chunks = must_alloc((size_t)limit * sizeof(*chunks));
	r = disk_list(node->disk, transfer_id, kind, &range, (size_t)limit, chunks, &count, &has_more, &task->err);
	if (r == 0) {
		for (size_t i = 0; i < count; i++)
			held_write(&task->answer, &chunks[i]);
		held_write_end(&task->answer, has_more);
	}
	free(chunks);
	return r;
}

void node_list_begin(struct http_call *call, void *app)
{
	struct node *node = app;

	if (!node_refuse_stranger(node, call))
		http_run_task(call, node->work, 0, HELD_ANSWER_MAX, list_run);
}
