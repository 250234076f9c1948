/* on_complete: what is told of each folder that has arrived, by a command or by a POST to somebody's server. Told at least once, in the order in
 * which transfers were completed (and each: file, of files in the order of the manifest), whatever dies in between: before a transfer is recorded
 * as completed, each hook's debt is a file in state_dir/outbox, which goes when the delivery was confirmed. Each hook has a thread and a queue of its
 * own: a slow one holds up nobody else. */
#ifndef HENG_FOLDER_HOOK_H
#define HENG_FOLDER_HOOK_H

#include "base/conf.h"
#include "base/json.h"
#include "plug/store.h"

#define HOOK_NAME_SIZE 65

enum hook_each { HOOK_EACH_TRANSFER, HOOK_EACH_FILE };
struct hook_conf {
	const char *name;
	struct conf_list command; /* of const char *: argv */
	const char *webhook;      /* URL */
	const char *secret_file;  /* signs what is posted; "": not signed */
	int each;                 /* enum hook_each */
	int64_t timeout_us;       /* of one delivery */
	int64_t tries;
	int64_t retry_after_us; /* the first; doubled each time, up to a minute */
};
extern const struct conf_row hook_conf_rows[];

struct hooks;
struct hook_options {
	const struct hook_conf *list; /* read by hooks_start only */
	size_t count;
	const char *state_dir;
	const char *final_place; /* of the final store: a folder's path, or s3://bucket/prefix */
	struct store *store;
};
/* Takes up what is owed from before. */
int hooks_start(const struct hook_options *options, struct hooks **ret_hooks, struct err *err);
void hooks_stop(struct hooks **hooks); /* what is not delivered stays owed */
/* The transfer is about to be recorded as completed: durable when this returns 0. Again and again is fine. */
int hooks_promise(struct hooks *hooks, const char *transfer_id, struct err *err);
/* It was recorded. Never blocks. */
void hooks_completed(struct hooks *hooks, const struct store_transfer *transfer);
/* "hooks": a list of what is still owed of the transfer, and of what was given up. */
void hooks_json(struct hooks *hooks, const char *transfer_id, struct json *json);

#endif
