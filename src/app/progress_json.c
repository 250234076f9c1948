#include "app/progress_json.h"

#include <stdlib.h>

#include "base/json.h"
#include "base/mem.h"

void progress_json(struct buf *buf, const struct push_progress *progress, uint64_t rate_bytes)
{
	struct json json;

	json_init(&json, buf);
	json_open(&json, NULL);
	json_c(&json, "event", "progress");
	json_c(&json, "phase", progress->phase);
	json_milli(&json, "seconds", progress->elapsed_us / MSEC_US);
	json_u64(&json, "files_done", progress->files_done);
	json_u64(&json, "files", progress->files_total);
	json_u64(&json, "bytes_done", progress->bytes_done);
	json_u64(&json, "bytes", progress->bytes_total);
	json_u64(&json, "chunks_done", progress->chunks_done);
	json_u64(&json, "chunks", progress->chunks_total);
	json_u64(&json, "chunks_skipped", progress->chunks_skipped);
	json_u64(&json, "chunks_sent", progress->chunks_sent);
	json_u64(&json, "merging_files", progress->merging_files);
	json_u64(&json, "merging_bytes", progress->merging_bytes);
	json_u64(&json, "retries", progress->retries);
	json_u64(&json, "failovers", progress->failovers);
	json_u64(&json, "parallel", progress->parallel);
	json_u64(&json, "limit_rate_bytes", progress->limit_rate_bytes);
	json_u64(&json, "rate_bytes", rate_bytes);
	/* Absent while nobody can tell. */
	if (rate_bytes > 0 && progress->bytes_total >= progress->bytes_done)
		json_u64(&json, "eta_seconds", (progress->bytes_total - progress->bytes_done) / rate_bytes);
	json_c(&json, "waiting_for", progress->waiting_for);
	json_open_list(&json, "nodes");
	for (size_t i = 0; i < progress->share_count; i++) {
		json_open(&json, NULL);
		json_c(&json, "id", progress->shares[i].id);
		json_u64(&json, "bytes", progress->shares[i].bytes);
		json_u64(&json, "chunks", progress->shares[i].chunk_count);
		json_close(&json);
	}
	json_close_list(&json);
	json_close(&json);
}

void progress_json_notice(struct buf *buf, const char *text)
{
	struct json json;

	json_init(&json, buf);
	json_open(&json, NULL);
	json_c(&json, "event", "notice");
	json_c(&json, "text", text);
	json_close(&json);
}

void progress_json_problem(struct buf *buf, struct str path, const char *reason)
{
	struct json json;
	size_t encoded_size = 3 * path.size + 1;
	char *encoded = must_alloc(encoded_size);

	(void)percent_encode(path, true, encoded, encoded_size);
	json_init(&json, buf);
	json_open(&json, NULL);
	json_c(&json, "event", "problem");
	json_c(&json, "path_enc", encoded);
	json_c(&json, "reason", reason);
	json_close(&json);
	free(encoded);
}
