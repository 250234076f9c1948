/* What nodes are about to remove of themselves: written into the audit before they do. */
#include "folder/sched_impl.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "folder/pool_health.h"
#include "folder/removed.h"

static int record(struct sched_call *c, const char *node_id, const struct removed *removed)
{
	struct store *store = c->sched->store;
	char detail[128];
	const struct store_audit row = { .at_wall_us = clock_wall_us(),
					 .kind = "removed",
					 .transfer_id = removed->transfer_id[0] != '\0' ? removed->transfer_id : NULL,
					 .node_id = node_id,
					 .outcome = "ok",
					 .detail = detail,
					 .file_id = removed->file_id,
					 .chunk_index = removed->chunk_index };

	switch (removed->kind) {
	case REMOVED_OVER:
		snprintf(detail, sizeof(detail), "the node's sweep: all files of a transfer that is over");
		break;
	case REMOVED_STRAY:
		snprintf(detail, sizeof(detail),
			 "the node's sweep: an unfinished file of %" PRIu64 " bytes that nobody has written for long",
			 removed->size_bytes);
		break;
	case REMOVED_UNFINISHED:
		snprintf(detail, sizeof(detail),
			 "at the node's start: %" PRIu64 " unfinished files that a former process had begun",
			 removed->count);
		break;
	}
	return store->ops->audit(store, &row, &c->err);
}

static int read_node_id(struct sched_call *c, char target[STORE_NODE_ID_SIZE])
{
	size_t size = 0;

	if (http_query(c->call, "node", target, STORE_NODE_ID_SIZE - 1, &size) &&
	    pool_id_is_valid((struct str){ target, size })) {
		target[size] = '\0';
		return 0;
	}
	return err_set(&c->err, ERR_BAD_REQUEST, "the query does not say which node it is");
}

/* All lines are looked at before the first is written. */
static int check_lines(struct sched_call *c, size_t *ret_count)
{
	struct str rest = buf_str(&c->body), line;
	struct removed removed;

	*ret_count = 0;
	while (str_cut(&rest, '\n', &line)) {
		if (removed_parse(line, &removed, &c->err) < 0)
			return -ERR_BAD_REQUEST;
		if (++*ret_count > REMOVED_LINES_MAX)
			return err_set(&c->err, ERR_LIMIT, "more than %u lines in one call", REMOVED_LINES_MAX);
	}
	return 0;
}

static int run_removed(struct sched_call *c)
{
	struct str rest = buf_str(&c->body), line;
	char node_id[STORE_NODE_ID_SIZE];
	struct removed removed;
	struct json json;
	size_t count = 0;
	int result = read_node_id(c, node_id);

	if (result == 0)
		result = sched_check_node(c, node_id);
	if (result == 0)
		result = check_lines(c, &count);
	while (result == 0 && str_cut(&rest, '\n', &line)) {
		result = removed_parse(line, &removed, &c->err);
		if (result == 0)
			result = record(c, node_id, &removed);
	}
	if (result < 0)
		return err_wrap(&c->err, "writing down what a node removes");
	json_init(&json, &c->answer);
	json_open(&json, NULL);
	json_u64(&json, "recorded", count);
	json_i64(&json, "server_time_us", clock_wall_us());
	json_close(&json);
	return 0;
}

void sched_begin_removed(struct http_call *call, void *app)
{
	struct sched_call *c = sched_internal_call(call, app, run_removed);

	if (!c)
		return;
	c->body_limit_bytes = REMOVED_LINES_MAX * REMOVED_LINE_MAX;
	sched_call_go(c);
}
