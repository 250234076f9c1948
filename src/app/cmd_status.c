#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/client.h"
#include "base/clock.h"
#include "base/rng.h"

#define STATUS_LIST_MAX 1000

const struct cmd_option cmd_status_options[] = { CLIENT_OPTIONS, { .name = NULL } };
const struct cmd_option cmd_nodes_options[] = { CLIENT_OPTIONS, { .name = NULL } };

static const char *status_text(const json_t *item, const char *name)
{
	const char *text = json_string_value(json_object_get(item, name));
	return text != NULL ? text : "";
}

static uint64_t status_u64(const json_t *item, const char *name)
{
	json_int_t value = json_integer_value(json_object_get(item, name));
	return value > 0 ? (uint64_t)value : 0;
}

/* A percent-encoded name, shown safely. */
static char *status_name(const json_t *item, char *target, size_t target_size)
{
	const char *encoded = status_text(item, "batch_enc");
	char raw[1024];
	size_t size = 0;
	if (!percent_decode(str_from(encoded), raw, sizeof(raw), &size))
		return str_display(str_from(encoded), target, target_size);
	return str_display((struct str){ raw, size }, target, target_size);
}

/* The server's own words, shown safely; longer than a table's field they are cut. */
static char *status_word(const json_t *item, const char *name, char *target, size_t target_size)
{
	return str_display(str_from(status_text(item, name)), target, target_size);
}

/* A server lists its nodes as they came to it; people and scripts look for a name. */
static int status_compare_ids(const void *a, const void *b)
{
	return strcmp(status_text(*(json_t *const *)a, "id"), status_text(*(json_t *const *)b, "id"));
}

static void status_sort_nodes(json_t *root)
{
	json_t *list = json_object_get(root, "nodes"), *sorted = json_array(), *item;
	size_t i, count = json_array_size(list);
	json_t **items = must_zalloc(count + 1, sizeof(json_t *));
	json_array_foreach(list, i, item) items[i] = item;
	qsort(items, count, sizeof(json_t *), status_compare_ids);
	for (i = 0; i < count; i++)
		json_array_append(sorted, items[i]);
	free(items);
	json_object_set_new(root, "nodes", sorted);
}

/* Asks; in JSON mode prints the answer. *ret_root is NULL then. */
static int status_ask(const struct cmd *cmd, const char *const *values, const char *path, json_t **ret_root,
		      struct err *err)
{
	struct client client;
	struct buf answer = BUF_INIT(64 * MIB);
	json_error_t fault;
	*ret_root = NULL;
	int r = client_open(cmd, values, &client, err);
	if (r == 0)
		r = client_get(&client, path, &answer, err);
	if (r == 0) {
		*ret_root = json_loadb(answer.data != NULL ? answer.data : "", answer.size, 0, &fault);
		if (!json_is_object(*ret_root)) {
			json_decref(*ret_root);
			*ret_root = NULL;
			r = err_set(err, ERR_PEER, "the answer is not a JSON object: %s", fault.text);
		}
	}
	if (*ret_root != NULL && json_object_get(*ret_root, "nodes") != NULL)
		status_sort_nodes(*ret_root);
	if (*ret_root != NULL && cmd_value(cmd, values, "json") != NULL) {
		char *text = json_dumps(*ret_root, JSON_COMPACT | JSON_PRESERVE_ORDER);
		printf("%s\n", text != NULL ? text : "{}");
		free(text);
		json_decref(*ret_root);
		*ret_root = NULL;
	}
	buf_fini(&answer);
	return r;
}

static void status_print_list(const json_t *root)
{
	size_t i;
	const json_t *item;
	const json_t *list = json_object_get(root, "transfers");
	if (json_array_size(list) == 0) {
		printf("no transfers\n");
		return;
	}
	printf("%-26s  %-12s %9s %10s %15s  %s\n", "TRANSFER", "STATE", "FILES", "SIZE", "CHUNKS", "BATCH");
	json_array_foreach(list, i, item)
	{
		char id[40], state[24], size[32], chunks[48], batch[700];
		snprintf(chunks, sizeof(chunks), "%llu/%llu", (unsigned long long)status_u64(item, "stored_chunks"),
			 (unsigned long long)status_u64(item, "chunks"));
		printf("%-26s  %-12s %9llu %10s %15s  %s\n", status_word(item, "transfer_id", id, sizeof(id)),
		       status_word(item, "state", state, sizeof(state)), (unsigned long long)status_u64(item, "files"),
		       size_display(status_u64(item, "bytes"), size, sizeof(size)), chunks,
		       status_name(item, batch, sizeof(batch)));
	}
}

static void status_print_time(const json_t *root, const char *name, const char *label)
{
	char text[CLOCK_TEXT_SIZE];
	uint64_t wall_us = status_u64(root, name);
	if (wall_us > 0)
		printf("%-10s %s\n", label, clock_text((int64_t)wall_us, text));
}

static void status_print_one(const json_t *root)
{
	char text[4 * 4608], size[32], stored[32];
	printf("%-10s %s\n", "transfer", status_word(root, "transfer_id", text, sizeof(text)));
	printf("%-10s %s\n", "batch", status_name(root, text, sizeof(text)));
	printf("%-10s %s\n", "state", status_word(root, "state", text, sizeof(text)));
	if (status_text(root, "reason")[0] != '\0')
		printf("%-10s %s\n", "reason", status_word(root, "reason", text, sizeof(text)));
	printf("%-10s %llu, %s\n", "files", (unsigned long long)status_u64(root, "files"),
	       size_display(status_u64(root, "bytes"), size, sizeof(size)));
	printf("%-10s %llu of %llu stored (%s), %llu pending, %llu lost, %llu failed, %llu merged\n", "chunks",
	       (unsigned long long)status_u64(root, "stored_chunks"), (unsigned long long)status_u64(root, "chunks"),
	       size_display(status_u64(root, "stored_bytes"), stored, sizeof(stored)),
	       (unsigned long long)status_u64(root, "pending_chunks"),
	       (unsigned long long)status_u64(root, "lost_chunks"),
	       (unsigned long long)status_u64(root, "digest_failed_chunks"),
	       (unsigned long long)status_u64(root, "merged_chunks"));
	printf("%-10s %s\n", "digest", status_word(root, "digest", text, sizeof(text)));
	printf("%-10s %s\n", "final", status_word(root, "final", text, sizeof(text)));
	status_print_time(root, "created_us", "created");
	status_print_time(root, "updated_us", "updated");
	status_print_time(root, "completed_us", "completed");
}

int cmd_status_run(const struct cmd *cmd, int operand_count, char **operands, const char *const *values)
{
	struct err err = ERR_INIT;
	char path[256];
	json_t *root = NULL;
	int r = 0;
	snprintf(path, sizeof(path), "/api/v1/transfers?limit=%d", STATUS_LIST_MAX);
	if (operand_count > 0) {
		if (!ulid_is_valid(operands[0], strlen(operands[0])))
			r = err_set(&err, ERR_USAGE, "'%s' is not a transfer id (26 letters and digits)", operands[0]);
		snprintf(path, sizeof(path), "/api/v1/transfers/%s", operands[0]);
	}
	if (r == 0)
		r = status_ask(cmd, values, path, &root, &err);
	if (r < 0)
		return cmd_fail(&err, "status");
	if (root != NULL && operand_count > 0)
		status_print_one(root);
	else if (root != NULL)
		status_print_list(root);
	json_decref(root);
	return CMD_DONE;
}

/* A weight may come as 1, 1.5 or text; people see what the server said. */
static void status_weight(const json_t *item, char *target, size_t target_size)
{
	const json_t *weight = json_object_get(item, "weight");
	if (json_is_number(weight))
		snprintf(target, target_size, "%.3g", json_number_value(weight));
	else
		str_display(str_from(json_is_string(weight) ? json_string_value(weight) : "-"), target, target_size);
}

int cmd_nodes_run(const struct cmd *cmd, int operand_count, char **operands, const char *const *values)
{
	(void)operand_count, (void)operands;
	struct err err = ERR_INIT;
	json_t *root = NULL;
	if (status_ask(cmd, values, "/api/v1/nodes", &root, &err) < 0)
		return cmd_fail(&err, "nodes");
	if (root == NULL)
		return CMD_DONE;
	const json_t *list = json_object_get(root, "nodes");
	size_t i;
	const json_t *item;
	uint64_t chunks_total = 0;
	json_array_foreach(list, i, item) chunks_total += status_u64(item, "chunks_in");
	printf("%-12s %-21s %-12s %-10s %6s %21s %6s  %s\n", "NODE", "ADDRESS", "STATE", "TAKES WORK", "WEIGHT", "FREE",
	       "SHARE", "");
	json_array_foreach(list, i, item)
	{
		char id[70], addr[70], state[24], weight[24], free_text[32], total_text[32], space[70], share[16],
			diagnosis[512];
		uint64_t chunks = status_u64(item, "chunks_in");
		status_weight(item, weight, sizeof(weight));
		snprintf(space, sizeof(space), "%s / %s",
			 size_display(status_u64(item, "free_bytes"), free_text, sizeof(free_text)),
			 size_display(status_u64(item, "total_bytes"), total_text, sizeof(total_text)));
		snprintf(share, sizeof(share), "%llu%%",
			 (unsigned long long)(chunks_total > 0 ? chunks * 100 / chunks_total : 0));
		printf("%-12s %-21s %-12s %-10s %6s %21s %6s  %s\n", status_word(item, "id", id, sizeof(id)),
		       status_word(item, "addr", addr, sizeof(addr)), status_word(item, "state", state, sizeof(state)),
		       json_is_true(json_object_get(item, "takes_work")) ? "yes" : "no", weight, space, share,
		       status_word(item, "diagnosis", diagnosis, sizeof(diagnosis)));
	}
	json_decref(root);
	return CMD_DONE;
}
