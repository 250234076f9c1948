#include <stdio.h>
#include <string.h>

#include "app/ask.h"
#include "base/clock.h"
#include "base/rng.h"

#define STATUS_LIST_MAX 1000

const struct cmd_option cmd_status_options[] = { CLIENT_OPTIONS, { .name = NULL } };

/* A percent-encoded name, shown safely. */
static char *status_name(const json_t *item, char *target, size_t target_size)
{
	const char *encoded = ask_text(item, "batch_enc");
	char raw[1024];
	size_t size = 0;
	if (!percent_decode(str_from(encoded), raw, sizeof(raw), &size))
		return str_display(str_from(encoded), target, target_size);
	return str_display((struct str){ raw, size }, target, target_size);
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
	printf("%-26s  %-12s %4s %9s %10s %15s  %s\n", "TRANSFER", "STATE", "PRIO", "FILES", "SIZE", "CHUNKS", "BATCH");
	json_array_foreach(list, i, item)
	{
		char id[40], state[24], size[32], chunks[48], batch[700];
		snprintf(chunks, sizeof(chunks), "%llu/%llu", (unsigned long long)ask_u64(item, "stored_chunks"),
			 (unsigned long long)ask_u64(item, "chunks"));
		printf("%-26s  %-12s %4llu %9llu %10s %15s  %s\n", ask_word(item, "transfer_id", id, sizeof(id)),
		       ask_word(item, "state", state, sizeof(state)), (unsigned long long)ask_u64(item, "priority"),
		       (unsigned long long)ask_u64(item, "files"),
		       size_display(ask_u64(item, "bytes"), size, sizeof(size)), chunks,
		       status_name(item, batch, sizeof(batch)));
	}
}

static void status_print_time(const json_t *root, const char *name, const char *label)
{
	char text[CLOCK_TEXT_SIZE];
	uint64_t wall_us = ask_u64(root, name);
	if (wall_us > 0)
		printf("%-10s %s\n", label, clock_text((int64_t)wall_us, text));
}

/* One copy is what everybody expects: nothing is said about it. */
static void status_print_copies(const json_t *root)
{
	uint64_t copies = ask_u64(root, "copies");
	if (copies < 2)
		return;
	printf("%-10s %llu wanted, %llu of %llu chunks have them%s\n", "copies", (unsigned long long)copies,
	       (unsigned long long)ask_u64(root, "copied_chunks"), (unsigned long long)ask_u64(root, "chunks"),
	       json_is_true(json_object_get(root, "is_copies_waived"))
		       ? "; merged with fewer, as no other node took work"
		       : "");
}

/* Of those who were told all there is nothing to say. */
static void status_print_hooks(const json_t *root)
{
	size_t i;
	const json_t *item;
	json_array_foreach(json_object_get(root, "hooks"), i, item)
	{
		char name[80], text[700];
		bool is_given_up = strcmp(ask_text(item, "state"), "given_up") == 0;
		printf("%-10s %s: %s, %llu tries failed%s%s\n", "hook", ask_word(item, "name", name, sizeof(name)),
		       is_given_up ? "given up" : "still to be told", (unsigned long long)ask_u64(item, "tries"),
		       ask_text(item, "error")[0] != '\0' ? ": " : "", ask_word(item, "error", text, sizeof(text)));
	}
}

static void status_print_one(const json_t *root)
{
	char text[4 * 4608], size[32], stored[32];
	printf("%-10s %s\n", "transfer", ask_word(root, "transfer_id", text, sizeof(text)));
	printf("%-10s %s\n", "batch", status_name(root, text, sizeof(text)));
	printf("%-10s %s\n", "state", ask_word(root, "state", text, sizeof(text)));
	if (ask_text(root, "reason")[0] != '\0')
		printf("%-10s %s\n", "reason", ask_word(root, "reason", text, sizeof(text)));
	printf("%-10s %llu\n", "priority", (unsigned long long)ask_u64(root, "priority"));
	printf("%-10s %llu, %s\n", "files", (unsigned long long)ask_u64(root, "files"),
	       size_display(ask_u64(root, "bytes"), size, sizeof(size)));
	printf("%-10s %llu of %llu stored (%s), %llu pending, %llu lost, %llu failed, %llu merged\n", "chunks",
	       (unsigned long long)ask_u64(root, "stored_chunks"), (unsigned long long)ask_u64(root, "chunks"),
	       size_display(ask_u64(root, "stored_bytes"), stored, sizeof(stored)),
	       (unsigned long long)ask_u64(root, "pending_chunks"), (unsigned long long)ask_u64(root, "lost_chunks"),
	       (unsigned long long)ask_u64(root, "digest_failed_chunks"),
	       (unsigned long long)ask_u64(root, "merged_chunks"));
	status_print_copies(root);
	printf("%-10s %s\n", "digest", ask_word(root, "digest", text, sizeof(text)));
	if (ask_text(root, "seal")[0] != '\0')
		printf("%-10s %s (cipher and key)\n", "encrypted", ask_word(root, "seal", text, sizeof(text)));
	printf("%-10s %s\n", "final", ask_word(root, "final", text, sizeof(text)));
	status_print_time(root, "created_us", "created");
	status_print_time(root, "updated_us", "updated");
	status_print_time(root, "completed_us", "completed");
	status_print_hooks(root);
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
		r = ask_json(cmd, values, path, &root, &err);
	if (r < 0)
		return cmd_fail(&err, "status");
	if (root != NULL && operand_count > 0)
		status_print_one(root);
	else if (root != NULL)
		status_print_list(root);
	json_decref(root);
	return CMD_DONE;
}
