/* GET /metrics of a node. */
#include <stdlib.h>

#include "folder/node_inside.h"
#include "folder/metrics.h"

struct metrics {
	struct node *node;
	struct http_call *call;
	struct job job;
	struct buf text;
};

static void metrics_run(struct job *job)
{
	struct metrics *metrics = job->owner;
	struct node *node = metrics->node;
	struct buf *text = &metrics->text;
	struct disk_counts counts;
	struct fs_space space;
	uint64_t reserved_bytes;
	bool is_low;

	metrics_common(text, "node", node->alerts);
	disk_counts(node->disk, &counts);
	prom_value(text, "heng_chunks_written_total", PROM_COUNTER, "Chunks that were written here.",
		   counts.chunks_written);
	prom_value(text, "heng_write_failures_total", PROM_COUNTER, "Writes of chunks that failed by the disk.",
		   counts.write_failures);
	prom_value(text, "heng_receipts_kept", PROM_GAUGE, "Receipts that wait for the scheduler.",
		   courier_kept_count(node->courier));
	prom_value(text, "heng_drained", PROM_GAUGE, "Does an operator let it run empty?",
		   atomic_load(&node->is_drained));
	if (disk_space(node->disk, &space, &reserved_bytes, &is_low, NULL) == 0) {
		prom_value(text, "heng_free_bytes", PROM_GAUGE,
			   "Free space of the chunks' file system, less what is promised.", space.free_bytes);
		prom_value(text, "heng_total_bytes", PROM_GAUGE, "Its size.", space.total_bytes);
		prom_value(text, "heng_disk_low", PROM_GAUGE, "Is it under the floor, so that nothing is taken?",
			   is_low);
	}
}

static void metrics_done(struct job *job, struct loop *home UNUSED)
{
	struct metrics *metrics = job->owner;

	http_reply(metrics->call, 200, PROM_TYPE, buf_str(&metrics->text));
	buf_fini(&metrics->text);
	free(metrics);
}

/* For a collector on this machine, or with the cluster's key: a node knows no users. */
void node_metrics_begin(struct http_call *call, void *app)
{
	struct node *node = app;
	struct metrics *metrics;
	struct err err;

	if (!sock_addr_is_loopback(http_peer(call)) && node_refuse_stranger(node, call))
		return;
	metrics = must_zalloc(1, sizeof(*metrics));
	*metrics = (struct metrics){ .node = node, .call = call, .text = BUF_INIT(METRICS_BYTES_MAX) };
	metrics->job = (struct job){ .run = metrics_run, .done = metrics_done, .owner = metrics };
	if (work_submit(node->work, &metrics->job, http_loop(call)))
		return;
	free(metrics);
	err_set(&err, ERR_BUSY, "the node has too much waiting for its disk");
	http_reply_err(call, &err);
}
