#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/client.h"
#include "app/progress.h"
#include "base/json.h"
#include "folder/push_option.h"

const struct cmd_option cmd_push_options[] = {
	CLIENT_OPTIONS,
	{ "name", 'n', "BATCH", "name of the batch at the other end (the folder's own name)" },
	{ "resume", 0, "TRANSFER",
	  "go on with that transfer and no other; refused when the folder is not as it has it" },
	{ "quiet", 'q', NULL, "say nothing but failures" },
	CLIENT_PROGRESS_OPTION,
	{ "dry-run", 0, NULL, "scan and plan, send nothing" },
	{ "parallel", 'p', "N", "chunks under way at once, 1 to 64 (as many as bring more)" },
	{ "chunk-size", 0, "SIZE", "cut of large files, 64KiB to 64MiB (the scheduler's)" },
	{ "network", 0, "lan|wan|auto",
	  "cut for a new transfer: 8 MiB, 1 MiB, or as earlier pushes to this scheduler found best (auto)" },
	{ "limit-rate", 0, "RATE",
	  "bytes a second over all connections, 4KiB to 1TiB, such as 20MiB; 0: no limit (0)" },
	{ "copies", 0, "1|2", "nodes that store each chunk until the folder is complete (the scheduler's)" },
	{ "digest", 0, "md5|sha256|sm3", "digest of chunks and files (sha256)" },
	{ "encrypt", 0, "FILE", "encrypt the files with the key that heng keygen made" },
	{ "cipher", 0, "aes|sm4", "of --encrypt: AES-256-GCM, or SM4 with SM3 (aes)" },
	{ "links", 0, "keep|skip|follow", "what to do with symbolic links (they are refused)" },
	{ "priority", 0, "N", "0 to 1000: of the folders that wait to be put together the highest goes first (0)" },
	{ .name = NULL },
};

static atomic_bool push_is_stopped; /* set by the signal handler, read by the push */

static void push_stop(int number)
{
	/* The second Ctrl-C ends the process at once: what is acknowledged is safe. */
	signal(number, SIG_DFL);
	push_is_stopped = true;
}

struct push_view {
	struct progress_view progress;
	uint64_t problem_count;
};

static void push_show(void *owner, const struct push_progress *progress)
{
	struct push_view *view = owner;
	progress_show(&view->progress, progress);
}

static void push_note(void *owner, const char *line)
{
	struct push_view *view = owner;
	progress_note(&view->progress, line);
}

static void push_problem(void *owner, struct str path, const char *reason)
{
	struct push_view *view = owner;
	view->problem_count++;
	progress_problem(&view->progress, path, reason);
}

/* What the options allow is said in folder/push_option.c, for the library too. */
static int push_read_options(const struct cmd *cmd, const char *const *values, struct push_options *options,
			     struct err *err)
{
	for (size_t i = 0; cmd->options[i].name != NULL; i++) {
		char label[64];
		const char *name = cmd->options[i].name;
		if (values[i] == NULL || !push_option_exists(name))
			continue;
		snprintf(label, sizeof(label), "--%s", name);
		int r = push_option_set(options, name, label, values[i], err);
		if (r < 0) {
			if (err->hint[0] == '\0')
				err_hint(err, "heng help %s", cmd->name);
			return r;
		}
	}
	return client_give_up(&options->give_up_us, err);
}

/* One line, the last on stdout. */
static void push_print_json(const struct push_result *result, const struct err *err)
{
	struct buf text = BUF_INIT(64 * KIB);
	struct json json;
	json_init(&json, &text);
	json_open(&json, NULL);
	json_c(&json, "transfer_id", result->transfer_id);
	json_c(&json, "batch", result->batch);
	json_c(&json, "state", result->state[0] != '\0' ? result->state : "none");
	json_u64(&json, "files", result->files);
	json_u64(&json, "bytes", result->bytes);
	json_u64(&json, "chunks", result->chunks);
	json_milli(&json, "seconds", result->elapsed_us / MSEC_US);
	json_c(&json, "final", result->final_path);
	json_u64(&json, "chunks_sent", result->chunks_sent);
	json_u64(&json, "retries", result->retries);
	json_u64(&json, "failovers", result->failovers);
	json_u64(&json, "skipped", result->skipped_count);
	json_u64(&json, "changed", result->changed_count);
	json_u64(&json, "revised", result->revised_count);
	client_json_err(&json, err);
	if (err->code != ERR_NONE)
		json_bool(&json, "is_resumable", result->is_resumable);
	json_close(&json);
	printf("%s\n", buf_cstr(&text));
	buf_fini(&text);
}

static void push_print_done(const struct push_options *options, const struct push_result *result)
{
	char bytes[32], rate[32], batch[600], path[3 * 4608];
	int64_t seconds_milli = max_i64(result->elapsed_us / MSEC_US, 1);
	str_display(str_from(result->batch), batch, sizeof(batch));
	size_display(result->bytes, bytes, sizeof(bytes));
	if (options->is_dry_run) {
		printf("'%s' would be %llu files, %s, in %llu chunks; nothing was sent\n", batch,
		       (unsigned long long)result->files, bytes, (unsigned long long)result->chunks);
		return;
	}
	/* Not "sent of": with two copies each chunk is sent twice. */
	printf("'%s' is complete: %llu files, %s in %lld.%03lld s (%s/s), %llu chunks, %llu sent, %llu retries\n",
	       batch, (unsigned long long)result->files, bytes, (long long)(seconds_milli / 1000),
	       (long long)(seconds_milli % 1000),
	       size_display(result->bytes / (uint64_t)seconds_milli * 1000, rate, sizeof(rate)),
	       (unsigned long long)result->chunks, (unsigned long long)result->chunks_sent,
	       (unsigned long long)result->retries);
	printf("it %s %s (transfer %s)\n", result->is_taken_away ? "was taken away since from" : "is at",
	       str_display(str_from(result->final_path), path, sizeof(path)), result->transfer_id);
}

int cmd_push_run(const struct cmd *cmd, int operand_count, char **operands, const char *const *values)
{
	(void)operand_count;
	struct err err = ERR_INIT;
	struct client client = { 0 };
	struct push_view view = { .problem_count = 0 };
	struct push_options options = { .folder = operands[0],
					.digest = DIGEST_SHA256,
					.is_interrupted = &push_is_stopped,
					.progress = push_show,
					.notice = push_note,
					.problem = push_problem,
					.owner = &view };
	struct push_result result = { 0 };
	char state_dir[PATH_MAX];
	bool is_progress_json = false;
	bool is_json = cmd_value(cmd, values, "json") != NULL, is_quiet = cmd_value(cmd, values, "quiet") != NULL;
	int r = push_read_options(cmd, values, &options, &err);
	if (r == 0)
		r = client_progress(cmd, values, &is_progress_json, &err);
	if (r == 0)
		r = client_open(cmd, values, &client, &err);
	if (r < 0) {
		if (is_json)
			push_print_json(&result, &err);
		client_fini(&client);
		return cmd_fail(&err, "push of '%s' did not start", operands[0]);
	}
	options.url = client.url;
	options.api_key = client.key;
	options.tls = client.tls;
	client_state_dir(state_dir, sizeof(state_dir));
	options.state_dir = state_dir;
	progress_init(&view.progress, is_quiet, is_json, is_progress_json);
	signal(SIGINT, push_stop);
	signal(SIGTERM, push_stop);
	r = push_folder(&options, &result, &err);
	client_fini(&client);
	progress_clear(&view.progress);
	if (result.skipped_count > 0 && !is_quiet && !is_progress_json)
		fprintf(stderr, "%llu links or special files were left out, as asked\n",
			(unsigned long long)result.skipped_count);
	if (is_json)
		push_print_json(&result, &err);
	if (r < 0)
		return cmd_fail(&err, "push of '%s' stopped", result.batch[0] != '\0' ? result.batch : operands[0]);
	if (!is_json && !is_quiet)
		push_print_done(&options, &result);
	return CMD_DONE;
}
