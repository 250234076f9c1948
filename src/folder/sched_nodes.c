/* What nodes report of themselves, and what is shown of them. */
#include "folder/sched_impl.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

/* --- reports --- */

static int run_report(struct sched_call *c)
{
	struct report_message *message = must_zalloc(1, sizeof(*message));
	struct json json;
	struct err why = ERR_INIT;
	int result = report_read(buf_str(&c->body), message, &why);

	if (result < 0) {
		/* To its sender a bad report is a bad request, with the same words and the same cure. */
		c->err = why;
		c->err.code = ERR_BAD_REQUEST;
		result = -ERR_BAD_REQUEST;
	} else {
		result = sched_check_node(c, message->node_id);
	}
	if (result == 0)
		result = pool_report(c->sched->pool, message, &c->err);
	free(message);
	if (result < 0)
		return result;
	json_init(&json, &c->answer);
	json_open(&json, NULL);
	json_i64(&json, "server_time_us", clock_wall_us());
	json_close(&json);
	return 0;
}

void sched_begin_reports(struct http_call *call, void *app)
{
	struct sched_call *c = sched_internal_call(call, app, run_report);

	if (!c)
		return;
	c->body_limit_bytes = REPORT_BODY_MAX;
	sched_call_go(c);
}

/* --- GET nodes --- */

/* What all nodes have together, for the shares. */
struct sums {
	uint64_t ring_milli, chunks_in;
};

static int64_t share_milli(uint64_t part, uint64_t whole) { return whole == 0 ? 0 : (int64_t)(part * 1000 / whole); }

/* Side by side: no source overrules another. */
static void json_sources(struct json *json, const struct pool_judged *judged, int64_t now_us)
{
	json_open(json, "sources");
	for (int i = 0; i < HEALTH_SOURCES; i++) {
		const struct health_view *view = &judged->sources[i];

		json_open(json, health_source_name((enum health_source)i));
		json_c(json, "word", health_word_name(view->word));
		json_u64(json, "missed", view->missed_count);
		if (view->heard_us != 0)
			json_i64(json, "heard_age_us", max_i64(0, now_us - view->heard_us));
		json_close(json);
	}
	json_close(json);
}

static void json_factor(struct json *json, const char *what, const char *name, int64_t factor_ppm)
{
	json_open(json, NULL);
	json_c(json, "what", what);
	json_c(json, "name", name);
	json_milli(json, "factor", factor_ppm / 1000);
	json_close(json);
}

/* All that lowers the score, each with its factor. */
static void json_acted(struct json *json, const struct profile *profile, const struct score_output *output)
{
	json_open_list(json, "acted");
	for (size_t i = 0; i < profile->rule_count; i++) {
		if (output->rule_ppm[i] < PPM)
			json_factor(json, "rule", profile->rules[i].name, output->rule_ppm[i]);
	}
	if (output->cap_ppm < PPM)
		json_factor(json, "cap", "warm-up", output->cap_ppm);
	if (output->decay_ppm < PPM)
		json_factor(json, "decay", "no news", output->decay_ppm);
	if (output->start_ppm < PPM)
		json_factor(json, "start", "slow start", output->start_ppm);
	json_close_list(json);
	json_open_list(json, "dimensions");
	for (size_t i = 0; i < profile->dim_count; i++) {
		json_open(json, NULL);
		json_c(json, "name", profile->dims[i].name);
		json_milli(json, "value", output->dim_ppm[i] / 1000);
		json_milli(json, "weight", profile->dims[i].weight_ppm / 1000);
		json_bool(json, "is_assumed", (output->dims_assumed >> i & 1) != 0);
		json_close(json);
	}
	json_close_list(json);
}

static void json_report(struct json *json, const struct pool_judged *judged)
{
	if (judged->report_age_us < 0)
		return;
	json_i64(json, "report_age_us", judged->report_age_us);
	json_open(json, "report");
	report_json(json, &judged->report);
	json_close(json);
	json_open_list(json, "dirs");
	for (size_t i = 0; i < judged->dir_count; i++) {
		json_open(json, NULL);
		json_c(json, "path", judged->dirs[i].path);
		json_c(json, "diagnosis", judged->dirs[i].diagnosis);
		json_close(json);
	}
	json_close_list(json);
}

static void json_node(struct json *json, const struct pool_judged *judged, const struct pool_verdict *verdict,
		      const struct sums *sums)
{
	const struct pool_node *node = &judged->node;

	json_open(json, NULL);
	json_c(json, "id", node->id);
	json_c(json, "addr", node->addr);
	json_c(json, "state", member_state_name(node->state));
	json_bool(json, "takes_work", node->takes_work);
	json_c(json, "barred", judged->bar_reason);
	json_bool(json, "is_disk_low", node->is_disk_low);
	json_milli(json, "weight", node->weight_milli);
	json_milli(json, "weight_own", node->weight_own_milli);
	json_bool(json, "is_weight_ordered", node->is_weight_ordered);
	json_c(json, "order", node_order_name(node->order));
	json_c(json, "domain", node->domain);
	json_u64(json, "free_bytes", node->free_bytes);
	json_u64(json, "floor_bytes", node->floor_bytes);
	json_u64(json, "total_bytes", node->total_bytes);
	json_c(json, "fs", node->fs_name);
	json_c(json, "diagnosis", node->diagnosis);
	json_u64(json, "missed", node->missed_count);
	json_u64(json, "chunks_in", node->chunk_count_in);
	json_sources(json, judged, verdict->now_mono_us);
	json_milli(json, "score", judged->output.score_ppm / 1000);
	json_milli(json, "weight_effective", judged->ring_milli);
	json_milli(json, "share_expected", share_milli(judged->ring_milli, sums->ring_milli));
	json_milli(json, "share_received", share_milli(node->chunk_count_in, sums->chunks_in));
	json_acted(json, &verdict->profile, &judged->output);
	json_report(json, judged);
	json_close(json);
}

static int run_nodes(struct sched_call *c)
{
	struct pool_judged *nodes;
	struct pool_verdict verdict;
	struct sums sums = { .ring_milli = 0 };
	size_t count = pool_judged(c->sched->pool, &nodes, &verdict);
	struct json json;

	for (size_t i = 0; i < count; i++) {
		sums.ring_milli += nodes[i].ring_milli;
		sums.chunks_in += nodes[i].node.chunk_count_in;
	}
	json_init(&json, &c->answer);
	json_open(&json, NULL);
	json_open_list(&json, "nodes");
	for (size_t i = 0; i < count; i++)
		json_node(&json, &nodes[i], &verdict, &sums);
	json_close_list(&json);
	json_c(&json, "profile", verdict.profile.name);
	json_u64(&json, "table_version", verdict.table_version);
	json_c(&json, "selected", verdict.selected);
	json_c(&json, "reason", reason_names[verdict.reason]);
	json_i64(&json, "server_time_us", clock_wall_us());
	json_close(&json);
	free(nodes);
	return 0;
}

void sched_begin_nodes(struct http_call *call, void *app)
{
	struct sched_call *c = sched_client_call(call, app, run_nodes);

	if (c)
		sched_call_go(c);
}
