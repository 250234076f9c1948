/* The calls. Each runs in its caller's thread, between run_begin and run_end. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "folder/pull.h"
#include "folder/push_option.h"
#include "folder/verify.h"
#include "lib/op.h"
#include "sys/quiet.h"

#define LIST_MAX        1000
#define LIST_PATH_SIZE  256
#define WORDS_SIZE      2048
#define NAME_BYTES_SIZE 4609

struct run {
	struct heng_op *op;
	struct quiet_pipe pipe;
	bool is_begun;
	struct err err;
};

static int run_begin(struct run *run, struct heng_op *op, bool has_arguments)
{
	*run = (struct run){ .op = op };
	if (!op || !has_arguments)
		return err_set(&run->err, ERR_USAGE, "the operation or an argument is NULL");
	if (atomic_exchange(&op->is_running, true))
		return err_set(&run->err, ERR_USAGE, "the operation is running already");
	run->is_begun = true;
	quiet_pipe_begin(&run->pipe);
	op_clear(op);
	if (atomic_load(&op->is_stopped))
		return err_set(&run->err, ERR_WAITING, "stopped before it began");
	return 0;
}

static int run_end(struct run *run, int result, struct heng_error **ret_error)
{
	if (result == 0)
		run->err = ERR_INIT;
	MUST(result == 0 || run->err.code != ERR_NONE);
	if (run->is_begun) {
		quiet_pipe_end(&run->pipe);
		atomic_store(&run->op->is_running, false);
	}
	return error_give(&run->err, ret_error);
}

static int check_id(const char *transfer_id, struct err *err)
{
	char shown[64];

	if (ulid_is_valid(transfer_id, strlen(transfer_id)))
		return 0;
	return err_set(err, ERR_USAGE, "'%s' is not a transfer id (26 letters and digits)",
		       str_display(str_from(transfer_id), shown, sizeof(shown)));
}

static struct stored_place place_of(const struct heng_op *op, const char *transfer_id)
{
	return (struct stored_place){ .url = op->client->client.url,
				      .api_key = op->client->client.key,
				      .tls = op->client->client.tls,
				      .transfer_id = transfer_id,
				      .is_interrupted = &op->is_stopped };
}

static void tell_problem(const struct heng_op *op, const char *kind, struct str path, const char *words)
{
	char shown[WORDS_SIZE];

	if (!op->problem)
		return;
	char *copy = must_alloc(path.size + 1);
	memcpy(copy, path.data, path.size);
	copy[path.size] = '\0';
	op->problem(op->problem_owner, kind, copy, path.size, str_display(str_from(words), shown, sizeof(shown)));
	free(copy);
}

/* --- push and pull --- */

static void on_progress(void *owner, const struct push_progress *progress)
{
	struct heng_op *op = owner;
	struct facts *facts = &op->facts;
	char shown[WORDS_SIZE];

	facts_say(facts, HENG_PHASE, progress->phase);
	str_display(str_from(progress->waiting_for ? progress->waiting_for : ""), shown, sizeof(shown));
	facts_say(facts, HENG_WAITING_FOR, shown);
	facts_set(facts, HENG_FILES, progress->files_total);
	facts_set(facts, HENG_BYTES, progress->bytes_total);
	facts_set(facts, HENG_CHUNKS, progress->chunks_total);
	facts_set(facts, HENG_FILES_DONE, progress->files_done);
	facts_set(facts, HENG_BYTES_DONE, progress->bytes_done);
	facts_set(facts, HENG_CHUNKS_DONE, progress->chunks_done);
	facts_set(facts, HENG_CHUNKS_SENT, progress->chunks_sent);
	facts_set(facts, HENG_RETRIES, progress->retries);
	facts_set(facts, HENG_FAILOVERS, progress->failovers);
	facts_set(facts, HENG_ELAPSED_US, (uint64_t)progress->elapsed_us);
	facts_set(facts, HENG_PARALLEL, progress->parallel);
	op_set_rows(op, progress->share_count);
	for (size_t i = 0; i < progress->share_count; i++) {
		facts_say(&op->rows[i], HENG_NODE, progress->shares[i].id);
		facts_set(&op->rows[i], HENG_BYTES_DONE, progress->shares[i].bytes);
		facts_set(&op->rows[i], HENG_CHUNKS_DONE, progress->shares[i].chunk_count);
	}
	if (op->progress)
		op->progress(op->progress_owner, op);
}

static void on_notice(void *owner, const char *line)
{
	const struct heng_op *op = owner;
	char shown[WORDS_SIZE];

	if (op->notice)
		op->notice(op->notice_owner, str_display(str_from(line), shown, sizeof(shown)));
}

static void on_source_problem(void *owner, struct str path, const char *reason)
{
	tell_problem(owner, "source", path, reason);
}

/* Options were checked when they were set. */
static void take_options(const struct heng_op *op, struct push_options *options)
{
	for (const struct op_value *value = op->values; value; value = value->next)
		MUST(push_option_set(options, value->name, value->name, value->value, NULL) == 0);
}

static void take_push_result(struct facts *facts, const struct push_result *result)
{
	facts_say(facts, HENG_TRANSFER_ID, result->transfer_id);
	facts_say(facts, HENG_BATCH, result->batch);
	facts_say(facts, HENG_STATE, result->state);
	facts_say(facts, HENG_FINAL, result->final_path);
	facts_set(facts, HENG_FILES, result->files);
	facts_set(facts, HENG_BYTES, result->bytes);
	facts_set(facts, HENG_CHUNKS, result->chunks);
	facts_set(facts, HENG_CHUNKS_SENT, result->chunks_sent);
	facts_set(facts, HENG_RETRIES, result->retries);
	facts_set(facts, HENG_FAILOVERS, result->failovers);
	facts_set(facts, HENG_SKIPPED, result->skipped_count);
	facts_set(facts, HENG_CHANGED, result->changed_count);
	facts_set(facts, HENG_ELAPSED_US, (uint64_t)result->elapsed_us);
	facts_set(facts, HENG_IS_RESUMABLE, result->is_resumable);
}

int heng_push(struct heng_op *op, const char *folder, struct heng_error **ret_error)
{
	struct run run;
	struct push_result pushed;
	int result = run_begin(&run, op, folder != NULL);

	if (result == 0) {
		struct push_options options = { .folder = folder,
						.url = op->client->client.url,
						.api_key = op->client->client.key,
						.tls = op->client->client.tls,
						.digest = DIGEST_SHA256,
						.is_interrupted = &op->is_stopped,
						.progress = on_progress,
						.notice = on_notice,
						.problem = on_source_problem,
						.owner = op };
		take_options(op, &options);
		result = push_folder(&options, &pushed, &run.err);
		take_push_result(&op->facts, &pushed);
	}
	return run_end(&run, result, ret_error);
}

int heng_pull(struct heng_op *op, const char *transfer_id, const char *target, struct heng_error **ret_error)
{
	struct run run;
	struct pull_result pulled;
	int result = run_begin(&run, op, transfer_id && target);

	if (result == 0)
		result = check_id(transfer_id, &run.err);
	if (result == 0) {
		struct push_options set = { .parallel = 0 };
		take_options(op, &set);
		struct pull_options options = { .place = place_of(op, transfer_id),
						.target = target,
						.parallel = set.parallel,
						.decrypt = set.encrypt,
						.progress = on_progress,
						.owner = op };
		options.place.give_up_us = set.give_up_us;
		result = pull_folder(&options, &pulled, &run.err);
		facts_say(&op->facts, HENG_TRANSFER_ID, transfer_id);
		facts_set(&op->facts, HENG_ENTRIES, pulled.entries);
		facts_set(&op->facts, HENG_FILES_DONE, pulled.files);
		facts_set(&op->facts, HENG_BYTES_DONE, pulled.bytes);
		facts_set(&op->facts, HENG_RETRIES, pulled.retries);
		facts_set(&op->facts, HENG_ELAPSED_US, (uint64_t)pulled.elapsed_us);
		if (result == 0)
			facts_say(&op->facts, HENG_PHASE, "done");
	}
	return run_end(&run, result, ret_error);
}

/* --- verify --- */

static void on_difference(void *owner, enum verify_kind kind, struct str path, const char *detail)
{
	tell_problem(owner, verify_kind_name(kind), path, detail);
}

int heng_verify(struct heng_op *op, const char *folder, const char *transfer_id, struct heng_error **ret_error)
{
	struct run run;
	struct verify_result compared;
	int result = run_begin(&run, op, transfer_id && folder);

	if (result == 0)
		result = check_id(transfer_id, &run.err);
	if (result == 0) {
		struct push_options set = { .parallel = 0 };
		take_options(op, &set);
		struct verify_options options = { .place = place_of(op, transfer_id),
						  .folder = folder,
						  .decrypt = set.encrypt,
						  .difference = on_difference,
						  .owner = op };
		options.place.give_up_us = set.give_up_us;
		result = verify_folder(&options, &compared, &run.err);
		facts_say(&op->facts, HENG_TRANSFER_ID, transfer_id);
		facts_set(&op->facts, HENG_ENTRIES, compared.entries);
		facts_set(&op->facts, HENG_FILES, compared.files);
		facts_set(&op->facts, HENG_BYTES, compared.bytes);
		facts_set(&op->facts, HENG_DIFFERENCES, compared.difference_count);
	}
	return run_end(&run, result, ret_error);
}

/* --- questions --- */

static int ask(const struct heng_op *op, bool is_post, const char *path, json_t **ret_root, struct err *err)
{
	struct client asker = op->client->client;

	asker.is_interrupted = &op->is_stopped;
	int result = client_ask(&asker, is_post, path, ret_root, err);
	mem_wipe(&asker, sizeof(asker));
	return result;
}

static void take_text(struct facts *facts, enum heng_fact fact, const json_t *item, const char *name)
{
	char shown[WORDS_SIZE];
	const char *text = json_string_value(json_object_get(item, name));

	facts_say(facts, fact, str_display(str_from(text ? text : ""), shown, sizeof(shown)));
}

/* Percent-encoded there, raw bytes here. What does not decode is left out: it is no name. */
static void take_bytes(struct facts *facts, enum heng_fact fact, const json_t *item, const char *name)
{
	char raw[NAME_BYTES_SIZE];
	size_t size = 0;
	const char *text = json_string_value(json_object_get(item, name));

	if (text && percent_decode(str_from(text), raw, sizeof(raw) - 1, &size)) {
		raw[size] = '\0';
		facts_say(facts, fact, raw);
	}
}

static void take_transfer(struct facts *facts, const json_t *item)
{
	static const struct {
		enum heng_fact fact;
		const char *name;
	} numbers[] = {
		{ HENG_FILES, "files" },
		{ HENG_BYTES, "bytes" },
		{ HENG_ENTRIES, "entries" },
		{ HENG_CHUNKS, "chunks" },
		{ HENG_STORED_CHUNKS, "stored_chunks" },
		{ HENG_STORED_BYTES, "stored_bytes" },
		{ HENG_PENDING_CHUNKS, "pending_chunks" },
		{ HENG_LOST_CHUNKS, "lost_chunks" },
		{ HENG_MERGED_CHUNKS, "merged_chunks" },
		{ HENG_CREATED_US, "created_us" },
		{ HENG_UPDATED_US, "updated_us" },
		{ HENG_COMPLETED_US, "completed_us" },
	};
	for (size_t i = 0; i < COUNT_OF(numbers); i++) {
		json_int_t value = json_integer_value(json_object_get(item, numbers[i].name));
		facts_set(facts, numbers[i].fact, value > 0 ? (uint64_t)value : 0);
	}
	facts_set(facts, HENG_IS_IN_PLACE, json_is_true(json_object_get(item, "is_in_place")));
	take_text(facts, HENG_TRANSFER_ID, item, "transfer_id");
	take_text(facts, HENG_STATE, item, "state");
	take_text(facts, HENG_REASON, item, "reason");
	take_text(facts, HENG_DIGEST, item, "digest");
	take_bytes(facts, HENG_BATCH, item, "batch_enc");
	take_bytes(facts, HENG_FINAL, item, "final_enc");
}

static int ask_about(struct heng_op *op, bool is_post, const char *transfer_id, const char *suffix,
		     struct heng_error **ret_error)
{
	struct run run;
	char path[LIST_PATH_SIZE];
	json_t *root = NULL;
	int result = run_begin(&run, op, transfer_id != NULL);

	if (result == 0)
		result = check_id(transfer_id, &run.err);
	if (result == 0) {
		snprintf(path, sizeof(path), "/api/v1/transfers/%s%s", transfer_id, suffix);
		result = ask(op, is_post, path, &root, &run.err);
	}
	if (result == 0)
		take_transfer(&op->facts, root);
	json_decref(root);
	return run_end(&run, result, ret_error);
}

int heng_status(struct heng_op *op, const char *transfer_id, struct heng_error **ret_error)
{
	return ask_about(op, false, transfer_id, "", ret_error);
}

int heng_cancel(struct heng_op *op, const char *transfer_id, struct heng_error **ret_error)
{
	return ask_about(op, true, transfer_id, "/cancel", ret_error);
}

/* They become part of a URL; whether there are such states the scheduler says. */
static int check_states(const char *states, struct err *err)
{
	if (states[0] != '\0' && strlen(states) < LIST_PATH_SIZE / 2 &&
	    strspn(states, "abcdefghijklmnopqrstuvwxyz_,") == strlen(states))
		return 0;
	return err_set(err, ERR_USAGE, "the states are not words with commas between them, like uploading,merging");
}

int heng_list(struct heng_op *op, const char *states, struct heng_error **ret_error)
{
	struct run run;
	char path[LIST_PATH_SIZE];
	json_t *root = NULL;
	const json_t *list, *item;
	size_t i;
	int result = run_begin(&run, op, true);

	if (result == 0 && states)
		result = check_states(states, &run.err);
	if (result == 0) {
		snprintf(path, sizeof(path), "/api/v1/transfers?limit=%d%s%s", LIST_MAX, states ? "&state=" : "",
			 states ? states : "");
		result = ask(op, false, path, &root, &run.err);
	}
	list = json_object_get(root, "transfers");
	if (result == 0 && (!json_is_array(list) || json_array_size(list) > LIST_MAX))
		result = err_set(&run.err, ERR_PEER, "the answer is not a list of at most %d transfers", LIST_MAX);
	if (result == 0) {
		op_set_rows(op, json_array_size(list));
		json_array_foreach(list, i, item) take_transfer(&op->rows[i], item);
	}
	json_decref(root);
	return run_end(&run, result, ret_error);
}
