#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "app/client.h"
#include "app/progress.h"
#include "base/clock.h"
#include "base/json.h"
#include "folder/verify.h"

const struct cmd_option cmd_verify_options[] = {
	CLIENT_OPTIONS,
	{ "quiet", 'q', NULL, "say nothing when the folder is the same" },
	{ "decrypt", 0, "FILE", "the folder is as it was before heng push --encrypt with this key" },
	{ .name = NULL },
};

static atomic_bool verify_is_stopped; /* set by the signal handler, read by the comparison */

static void verify_stop(int number)
{
	signal(number, SIG_DFL);
	verify_is_stopped = true;
}

/* Only the manifest is fetched: that is all that there is to wait for. */
struct verify_wait {
	struct progress_view view;
	int64_t started_us;
};

static void verify_waiting(void *owner, const char *text)
{
	struct verify_wait *wait = owner;
	struct push_progress progress = { .phase = "verify",
					  .waiting_for = text,
					  .elapsed_us = clock_mono_us() - wait->started_us };
	progress_show(&wait->view, &progress);
}

/* One line for each difference: in JSON an object of its own, so that any number of them passes. */
static void verify_show(void *owner, enum verify_kind kind, struct str path, const char *detail)
{
	const bool *is_json = owner;
	char shown[4 * (MANIFEST_PATH_MAX + 1)], words[2048];

	if (!*is_json) {
		printf("%-10s %s: %s\n", verify_kind_name(kind), str_display(path, shown, sizeof(shown)),
		       str_display(str_from(detail), words, sizeof(words)));
		return;
	}
	struct buf text = BUF_INIT(128 * KIB);
	struct json json;
	json_init(&json, &text);
	json_open(&json, NULL);
	json_c(&json, "difference", verify_kind_name(kind));
	percent_encode(path, true, shown, sizeof(shown));
	json_c(&json, "path_enc", shown);
	json_c(&json, "detail", detail);
	json_close(&json);
	printf("%s\n", buf_cstr(&text));
	buf_fini(&text);
}

static void verify_print_json(const char *transfer_id, const struct verify_result *result, const struct err *err)
{
	struct buf text = BUF_INIT(64 * KIB);
	struct json json;

	json_init(&json, &text);
	json_open(&json, NULL);
	json_c(&json, "transfer_id", transfer_id);
	json_bool(&json, "is_same", err->code == ERR_NONE);
	json_u64(&json, "entries", result->entries);
	json_u64(&json, "files", result->files);
	json_u64(&json, "bytes", result->bytes);
	json_u64(&json, "differences", result->difference_count);
	client_json_err(&json, err);
	json_close(&json);
	printf("%s\n", buf_cstr(&text));
	buf_fini(&text);
}

int cmd_verify_run(const struct cmd *cmd, int operand_count, char **operands, const char *const *values)
{
	(void)operand_count;
	struct err err = ERR_INIT;
	struct client client = { 0 };
	struct verify_result result = { 0 };
	bool is_json = cmd_value(cmd, values, "json") != NULL, is_quiet = cmd_value(cmd, values, "quiet") != NULL;
	struct verify_wait wait = { .started_us = clock_mono_us() };
	struct verify_options options = { .place = { .transfer_id = operands[1],
						     .is_interrupted = &verify_is_stopped,
						     .waiting = verify_waiting,
						     .owner = &wait },
					  .folder = operands[0],
					  .difference = verify_show,
					  .owner = &is_json };
	int r = 0;

	if (!ulid_is_valid(operands[1], strlen(operands[1])))
		r = err_set(&err, ERR_USAGE, "'%s' is not a transfer id (26 letters and digits)", operands[1]);
	if (r == 0)
		r = client_give_up(&options.place.give_up_us, &err);
	if (r == 0)
		r = client_open(cmd, values, &client, &err);
	if (r == 0) {
		options.decrypt = cmd_value(cmd, values, "decrypt");
		options.place.url = client.url;
		options.place.api_key = client.key;
		options.place.tls = client.tls;
		signal(SIGINT, verify_stop);
		signal(SIGTERM, verify_stop);
		progress_init(&wait.view, is_quiet, is_json, false);
		r = verify_folder(&options, &result, &err);
		progress_clear(&wait.view);
	}
	client_fini(&client);
	if (is_json)
		verify_print_json(operands[1], &result, &err);
	if (r < 0)
		return cmd_fail(&err, "verifying '%s' against transfer %s", operands[0], operands[1]);
	if (!is_json && !is_quiet) {
		char path[3 * 4608], bytes[32];
		printf("'%s' is what was stored: %llu entries, %llu files, %s\n",
		       str_display(str_from(operands[0]), path, sizeof(path)), (unsigned long long)result.entries,
		       (unsigned long long)result.files, size_display(result.bytes, bytes, sizeof(bytes)));
	}
	return CMD_DONE;
}
