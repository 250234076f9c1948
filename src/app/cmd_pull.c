#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "app/client.h"
#include "app/progress.h"
#include "base/json.h"
#include "folder/pull.h"

const struct cmd_option cmd_pull_options[] = {
	CLIENT_OPTIONS,
	{ "quiet", 'q', NULL, "say nothing but failures" },
	CLIENT_PROGRESS_OPTION,
	{ "parallel", 'p', "N", "files under way at once, 1 to 64 (8)" },
	{ "decrypt", 0, "FILE", "open the files of heng push --encrypt with its key while they come" },
	{ .name = NULL },
};

static atomic_bool pull_is_stopped; /* set by the signal handler, read by the pull */

static void pull_stop(int number)
{
	/* The second Ctrl-C ends the process at once, and leaves the hidden folder beside the target. */
	signal(number, SIG_DFL);
	pull_is_stopped = true;
}

static void pull_show(void *owner, const struct push_progress *progress) { progress_show(owner, progress); }

static void pull_print_json(const struct pull_options *options, const struct pull_result *result, const struct err *err)
{
	struct buf text = BUF_INIT(64 * KIB);
	struct json json;

	json_init(&json, &text);
	json_open(&json, NULL);
	json_c(&json, "transfer_id", options->place.transfer_id);
	json_c(&json, "folder", options->target);
	json_u64(&json, "entries", result->entries);
	json_u64(&json, "files", result->files);
	json_u64(&json, "bytes", result->bytes);
	json_u64(&json, "retries", result->retries);
	json_milli(&json, "seconds", result->elapsed_us / MSEC_US);
	client_json_err(&json, err);
	json_close(&json);
	printf("%s\n", buf_cstr(&text));
	buf_fini(&text);
}

static void pull_print_done(const struct pull_options *options, const struct pull_result *result)
{
	char path[3 * 4608], bytes[32];
	int64_t seconds_milli = result->elapsed_us / MSEC_US;

	printf("'%s' is complete: %llu files, %s in %lld.%03lld s, each as it was stored; %llu retries\n",
	       str_display(str_from(options->target), path, sizeof(path)), (unsigned long long)result->files,
	       size_display(result->bytes, bytes, sizeof(bytes)), (long long)(seconds_milli / 1000),
	       (long long)(seconds_milli % 1000), (unsigned long long)result->retries);
}

int cmd_pull_run(const struct cmd *cmd, int operand_count, char **operands, const char *const *values)
{
	(void)operand_count;
	struct err err = ERR_INIT;
	struct client client = { 0 };
	struct progress_view view;
	struct pull_result result = { 0 };
	struct pull_options options = { .place = { .transfer_id = operands[0], .is_interrupted = &pull_is_stopped },
					.target = operands[1],
					.progress = pull_show,
					.owner = &view };
	bool is_json = cmd_value(cmd, values, "json") != NULL, is_quiet = cmd_value(cmd, values, "quiet") != NULL;
	uint64_t parallel = 0;
	bool is_progress_json = false;
	int r = cmd_number(cmd, values, "parallel", 1, PULL_PARALLEL_MAX, &parallel, &err);

	if (r == 0 && !ulid_is_valid(operands[0], strlen(operands[0])))
		r = err_set(&err, ERR_USAGE, "'%s' is not a transfer id (26 letters and digits)", operands[0]);
	if (r == 0)
		r = client_progress(cmd, values, &is_progress_json, &err);
	if (r == 0)
		r = client_give_up(&options.place.give_up_us, &err);
	if (r == 0)
		r = client_open(cmd, values, &client, &err);
	if (r == 0) {
		options.place.url = client.url;
		options.place.api_key = client.key;
		options.place.tls = client.tls;
		options.parallel = (unsigned)parallel;
		options.decrypt = cmd_value(cmd, values, "decrypt");
		progress_init(&view, is_quiet, is_json, is_progress_json);
		signal(SIGINT, pull_stop);
		signal(SIGTERM, pull_stop);
		/* A terminal that goes away leaves no half a folder behind, and does not end what nohup started. */
		if (signal(SIGHUP, pull_stop) == SIG_IGN)
			signal(SIGHUP, SIG_IGN);
		r = pull_folder(&options, &result, &err);
		progress_clear(&view);
	}
	client_fini(&client);
	if (is_json)
		pull_print_json(&options, &result, &err);
	if (r < 0)
		return cmd_fail(&err, "pull of transfer %s stopped", operands[0]);
	if (!is_json && !is_quiet)
		pull_print_done(&options, &result);
	return CMD_DONE;
}
