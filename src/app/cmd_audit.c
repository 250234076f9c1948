#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/ask.h"
#include "app/audit_show.h"
#include "app/audit_story.h"
#include "base/clock.h"
#include "base/rng.h"
#include "folder/audit_ask.h"
#include "folder/audit_verify.h"

#define QUERY_SIZE (8 * KIB)

const struct cmd_option cmd_audit_options[] = {
	CLIENT_OPTIONS,
	{ "csv", 0, NULL, "rows as CSV, for spreadsheets" },
	{ "file", 0, "PATH", "of a transfer: one file's chunks, by its path in the folder" },
	{ "chunk", 0, "N", "of a file: one chunk, from 0" },
	{ "transfer", 0, "ID", "search: rows of that transfer" },
	{ "node", 0, "ID", "search: rows of that storage node" },
	{ "user", 0, "NAME", "search: rows of that user" },
	{ "kind", 0, "KIND",
	  "search: chunk, state, removed, revised, pulled, operator, hook, alert, refused or audit" },
	{ "outcome", 0, "WORD", "search: rows that ended so (stored, disk_low, completed, ...)" },
	{ "since", 0, "TIME", "search: from then on (2026-01-31, 2026-01-31T08:00:00Z, or 7d: so long ago)" },
	{ "until", 0, "TIME", "search: up to then" },
	{ "head", 0, "ID:HASH", "verify: that row must be there with that hash, as an earlier verify printed it" },
	{ "db", 0, "FILE", "verify: a scheduler's database file instead of the scheduler" },
	{ "archive", 0, "PATH", "verify: an archive, or a folder of them; with --to or --db what follows them too" },
	{ "before", 0, "TIME", "archive: rows older than that" },
	{ .name = NULL },
};

static int usage(struct err *err)
{
	err_hint(err, "heng audit TRANSFER [--file PATH [--chunk N]], or heng audit search|verify|archive");
	return -(int)ERR_USAGE;
}

static enum audit_form form_of(const struct cmd *cmd, const char *const *values)
{
	if (cmd_value(cmd, values, "csv") != NULL)
		return AUDIT_FORM_CSV;
	return cmd_value(cmd, values, "json") != NULL ? AUDIT_FORM_JSON : AUDIT_FORM_TEXT;
}

/* --- rows --- */

struct printer {
	enum audit_form form;
	struct buf buf;
	uint64_t count;
};

static int print_buf(struct buf *buf, struct err *err)
{
	const bool is_good = !buf->is_failed && fwrite(buf->data, 1, buf->size, stdout) == buf->size;

	buf_clear(buf);
	return is_good ? 0 : err_set(err, ERR_SYSTEM, "the output cannot be written");
}

static int print_row(void *owner, const struct audit_row *row, struct err *err)
{
	struct printer *printer = owner;

	audit_show_row(&printer->buf, printer->form, row);
	printer->count++;
	return print_buf(&printer->buf, err);
}

static int print_rows(const struct client *client, const char *query, enum audit_form form, struct err *err)
{
	struct printer printer = { .form = form, .buf = BUF_INIT(MIB) };
	int result;

	audit_show_begin(&printer.buf, form);
	result = printer.buf.size > 0 ? print_buf(&printer.buf, err) : 0;
	if (result == 0)
		result = audit_ask(client, query, print_row, &printer, err);
	if (result == 0 && form == AUDIT_FORM_TEXT && printer.count == 0)
		printf("no rows\n");
	buf_fini(&printer.buf);
	return result;
}

/* --- search --- */

static int add_word(struct buf *query, const char *key, const char *text)
{
	char encoded[3 * 1024 + 1];

	if (text == NULL)
		return 0;
	if (percent_encode(str_from(text), false, encoded, sizeof(encoded)) == 0 && text[0] != '\0')
		return -1;
	buf_printf(query, "%s%s=%s", query->size > 0 ? "&" : "", key, encoded);
	return 0;
}

static int add_time(const struct cmd *cmd, const char *const *values, const char *option, const char *key,
		    struct buf *query, struct err *err)
{
	const char *text = cmd_value(cmd, values, option);
	int64_t wall_us = 0;

	if (text == NULL)
		return 0;
	if (audit_read_time(option, text, clock_wall_us(), &wall_us, err) < 0)
		return -(int)ERR_USAGE;
	buf_printf(query, "%s%s=%" PRId64, query->size > 0 ? "&" : "", key, wall_us);
	return 0;
}

static int run_search(const struct cmd *cmd, const char *const *values, const struct client *client, struct err *err)
{
	static const char *const words[] = { "transfer", "node", "user", "kind", "outcome" };
	struct buf query = BUF_INIT(QUERY_SIZE);
	int result = 0;

	for (size_t i = 0; i < COUNT_OF(words) && result == 0; i++) {
		if (add_word(&query, words[i], cmd_value(cmd, values, words[i])) < 0)
			result = err_set(err, ERR_USAGE, "--%s is too long", words[i]);
	}
	if (result == 0)
		result = add_time(cmd, values, "since", "from_us", &query, err);
	if (result == 0)
		result = add_time(cmd, values, "until", "to_us", &query, err);
	if (result == 0)
		result = print_rows(client, buf_cstr(&query), form_of(cmd, values), err);
	buf_fini(&query);
	return result;
}

/* --- one transfer --- */

static int run_transfer(const struct cmd *cmd, const char *transfer_id, const char *const *values,
			const struct client *client, struct err *err)
{
	const char *path = cmd_value(cmd, values, "file");
	struct audit_story_options options = {
		.transfer_id = transfer_id, .path = path, .chunk_index = UINT64_MAX, .form = form_of(cmd, values)
	};
	char query[64];
	int result;

	if (!ulid_is_valid(transfer_id, strlen(transfer_id))) {
		err_set(err, ERR_USAGE,
			"'%s' is neither a transfer id (26 letters and digits) nor a word of this command",
			transfer_id);
		return usage(err);
	}
	result = cmd_number(cmd, values, "chunk", 0, INT64_MAX, &options.chunk_index, err);
	if (result < 0)
		return result;
	if (path == NULL && options.chunk_index != UINT64_MAX)
		return err_set(err, ERR_USAGE, "--chunk is one of a file: name it with --file");
	if (path != NULL)
		return audit_story(client, &options, err);
	(void)snprintf(query, sizeof(query), "transfer=%s", transfer_id);
	return print_rows(client, query, options.form, err);
}

/* --- verify --- */

static int read_witness(const char *text, struct audit_point *ret, struct err *err)
{
	struct str rest = str_from(text), id;

	if (str_cut(&rest, ':', &id) && str_to_u64(id, &ret->id) && ret->id > 0 && ret->id <= INT64_MAX &&
	    rest.size == 2 * (size_t)AUDIT_HASH_SIZE && hex_decode(rest, ret->hash, sizeof(ret->hash)))
		return 0;
	err_set(err, ERR_USAGE, "--head '%s' is not a row's number and its hash", text);
	err_hint(err, "like 4711:0123... with 64 hex digits, as an earlier `heng audit verify` printed it");
	return -(int)ERR_USAGE;
}

static void say_fault(void *owner, const struct err *fault)
{
	const bool *is_json = owner;
	char shown[2048];

	if (!*is_json) {
		printf("fault: %s\n", str_display(str_from(fault->text), shown, sizeof(shown)));
		return;
	}
	struct buf text = BUF_INIT(16 * KIB);
	struct json json;
	json_init(&json, &text);
	json_open(&json, NULL);
	json_c(&json, "fault", fault->text);
	json_close(&json);
	printf("%s\n", buf_cstr(&text));
	buf_fini(&text);
}

static void say_verified_json(const struct audit_verify *verify, const char *hex, const struct err *err)
{
	struct buf text = BUF_INIT(16 * KIB);
	struct json json;

	json_init(&json, &text);
	json_open(&json, NULL);
	json_bool(&json, "is_whole", err->code == ERR_NONE);
	json_u64(&json, "rows", verify->row_count);
	json_u64(&json, "faults", verify->fault_count);
	json_u64(&json, "after_id", verify->after.id);
	json_u64(&json, "last_id", verify->last.id);
	json_c(&json, "last_hash", hex);
	client_json_err(&json, err);
	json_close(&json);
	printf("%s\n", buf_cstr(&text));
	buf_fini(&text);
}

static void say_verified(const struct audit_verify *verify, const char *hex)
{
	printf("%" PRIu64 " rows, %s\n", verify->row_count,
	       verify->fault_count == 0 ? "each as it was written" : "not all as they were written");
	if (verify->after.id > 0)
		printf("rows up to %" PRIu64 " are archived and were not looked at: see --archive\n", verify->after.id);
	if (verify->witness.id > 0 && verify->is_witness_met)
		printf("row %" PRIu64 " has the hash that was given\n", verify->witness.id);
	printf("head %" PRIu64 ":%s\n", verify->last.id, hex);
}

static int verify_database(struct audit_verify *verify, const char *path, struct err *err)
{
	struct store *store;
	int result = store_sqlite_open_audit(path, &store, err);

	if (result < 0)
		return result;
	result = audit_verify_store(verify, store, err);
	store->ops->close(store);
	return result;
}

static int run_verify(const struct cmd *cmd, const char *const *values, struct err *err)
{
	const char *head = cmd_value(cmd, values, "head"), *db = cmd_value(cmd, values, "db"),
		   *archive = cmd_value(cmd, values, "archive");
	bool is_json = cmd_value(cmd, values, "json") != NULL;
	struct audit_verify verify;
	struct client client;
	char hex[AUDIT_HASH_HEX_SIZE];
	int result = 0;

	audit_verify_init(&verify);
	verify.fault = say_fault;
	verify.owner = &is_json;
	if (head != NULL)
		result = read_witness(head, &verify.witness, err);
	if (result == 0 && archive != NULL)
		result = audit_verify_archive(&verify, archive, err);
	if (result == 0 && db != NULL)
		result = verify_database(&verify, db, err);
	else if (result == 0 && (archive == NULL || cmd_value(cmd, values, "to") != NULL))
		result = client_open(cmd, values, &client, err) < 0 ? -(int)err->code
								    : audit_verify_server(&verify, &client, err);
	if (result == 0)
		result = audit_verify_end(&verify, err);
	hex_encode(verify.last.hash, AUDIT_HASH_SIZE, hex);
	if (is_json)
		say_verified_json(&verify, hex, err);
	else if (result == 0 || result == -ERR_AUDIT_BROKEN)
		say_verified(&verify, hex);
	audit_verify_fini(&verify);
	return result;
}

/* --- archive --- */

static int run_archive(const struct cmd *cmd, const char *const *values, const struct client *client, struct err *err)
{
	const char *before = cmd_value(cmd, values, "before");
	const bool is_json = cmd_value(cmd, values, "json") != NULL;
	int64_t before_us = 0;
	char path[128], file[300], hash[80], folder[4 * 1100];
	json_t *root = NULL;
	bool is_more = true;
	uint64_t total = 0;
	int result = 0;

	if (before == NULL)
		result = err_set(err, ERR_USAGE, "it is not said before which time: --before TIME");
	else
		result = audit_read_time("before", before, clock_wall_us(), &before_us, err);
	(void)snprintf(path, sizeof(path), "/api/v1/audit/archive?before_us=%" PRId64, before_us);
	while (result == 0 && is_more) {
		result = client_ask(client, true, path, &root, err);
		if (result < 0)
			break;
		is_more = json_is_true(json_object_get(root, "more"));
		total += ask_u64(root, "rows");
		if (is_json)
			(void)(json_dumpf(root, stdout, JSON_COMPACT) == 0 && printf("\n"));
		else if (ask_u64(root, "rows") > 0)
			printf("rows %" PRIu64 " to %" PRIu64 " are in %s/%s, hash %s\n", ask_u64(root, "from_id"),
			       ask_u64(root, "to_id"), ask_word(root, "folder", folder, sizeof(folder)),
			       ask_word(root, "file", file, sizeof(file)), ask_word(root, "hash", hash, sizeof(hash)));
		json_decref(root);
	}
	if (result == 0 && total == 0 && !is_json)
		printf("no rows are that old\n");
	return result;
}

int cmd_audit_run(const struct cmd *cmd, int operand_count, char **operands, const char *const *values)
{
	struct err err = ERR_INIT;
	struct client client;
	const char *word = operands[0];
	const bool is_verify = strcmp(word, "verify") == 0;
	int result = is_verify ? 0 : client_open(cmd, values, &client, &err);

	(void)operand_count;
	if (result < 0)
		return cmd_fail(&err, "audit");
	if (is_verify)
		result = run_verify(cmd, values, &err);
	else if (strcmp(word, "search") == 0)
		result = run_search(cmd, values, &client, &err);
	else if (strcmp(word, "archive") == 0)
		result = run_archive(cmd, values, &client, &err);
	else
		result = run_transfer(cmd, word, values, &client, &err);
	return result < 0 ? cmd_fail(&err, "audit") : CMD_DONE;
}
