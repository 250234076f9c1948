/* How a merge ends: what is recorded, and what becomes of the chunks. */
#include "folder/merge_impl.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"

#define MOVE_TRIES 5

/* Moves the transfer on if it is still in state merging. -ERR_STATE when somebody else has ended it. */
static int move(struct merge_run *run, enum transfer_state state, const char *reason, bool is_retryable,
		struct err *err)
{
	struct store *store = run->merge->store;
	int result = -ERR_VERSION_CONFLICT;

	for (int i = 0; i < MOVE_TRIES && result == -ERR_VERSION_CONFLICT; i++) {
		result = store->ops->transfer_get(store, run->transfer.id, &run->transfer, err);
		if (result < 0)
			return result;
		if (run->transfer.state != TRANSFER_MERGING)
			return err_set(err, ERR_STATE, "the transfer became %s while it was merged",
				       transfer_state_name(run->transfer.state));
		result = store->ops->transfer_move(store, &run->transfer, state, reason, is_retryable, clock_wall_us(),
						   err);
	}
	return result;
}

void merge_end_unrecorded(struct merge_run *run, const struct err *err, const char *what)
{
	log_err(LOG_ERROR, err, "transfer %s: %s could not be recorded; the merge is tried again soon",
		run->transfer.id, what);
	/* Somebody else's decision stands; anything else may pass. */
	run->is_unrecorded = err->code != ERR_STATE && err->code != ERR_NO_TRANSFER;
}

static void end_failed(struct merge_run *run, const struct err *cause, bool is_retryable)
{
	struct err err = ERR_INIT;
	char reason[STORE_REASON_SIZE];

	snprintf(reason, sizeof(reason), "merge: %.480s", cause->text);
	log_err(LOG_ERROR, cause, "transfer %s: its merge failed", run->transfer.id);
	if (move(run, TRANSFER_FAILED, reason, is_retryable, &err) < 0)
		merge_end_unrecorded(run, &err, "its failure");
	else
		/* Nothing takes up a failed transfer again: a new push is a new one. */
		merge_nodes_forget(run->merge, run->transfer.id);
}

/* What may pass (a full disk, a database that cannot be read) must not cost what was acknowledged: the chunks stay, and the next `complete` merges
 * them. */
static void end_put_off(struct merge_run *run, const struct err *cause)
{
	struct err err = ERR_INIT;
	char reason[STORE_REASON_SIZE];

	snprintf(reason, sizeof(reason), "merge: %.300s%s%.150s", cause->text, cause->hint[0] ? "; " : "", cause->hint);
	log_err(LOG_ERROR, cause, "transfer %s: its merge is put off", run->transfer.id);
	if (move(run, TRANSFER_UPLOADING, reason, true, &err) < 0)
		merge_end_unrecorded(run, &err, "that it is put off");
}

/* Chunks that their nodes do not give are sent again, but not without end: has this merge, like some before it, got no further for them? */
static bool has_stalled(struct merge_run *run)
{
	struct merge *merge = run->merge;
	struct merge_stall *stall = NULL;
	bool result = false;

	pthread_mutex_lock(&merge->lock);
	for (size_t i = 0; i < MERGE_STALLED_MAX && !stall; i++)
		if (strcmp(merge->stalls[i].id, run->transfer.id) == 0)
			stall = &merge->stalls[i];
	if (!stall && run->unpulled_count > 0) {
		stall = &merge->stalls[merge->stall_next++ % MERGE_STALLED_MAX];
		*stall = (struct merge_stall){ .unpulled_count = UINT64_MAX };
		str_copy(str_from(run->transfer.id), stall->id, sizeof(stall->id));
	}
	if (stall) {
		if (run->unpulled_count < stall->unpulled_count)
			stall->count = 0;
		stall->count += run->unpulled_count > 0;
		stall->unpulled_count = run->unpulled_count;
		result = stall->count == MERGE_STALLS_MAX;
	}
	pthread_mutex_unlock(&merge->lock);
	return result;
}

void merge_end_reopened(struct merge_run *run)
{
	struct err err = ERR_INIT;
	char reason[STORE_REASON_SIZE];

	if (run->kept_count == run->reopened_count) {
		log_say(LOG_INFO,
			"transfer %s: nothing is to be sent again, other nodes have it; the merge is done again soon",
			run->transfer.id);
		run->is_to_repeat = true;
		return;
	}
	if (has_stalled(run)) {
		err_set(&err, ERR_PEER, "%u merges in a row got no further: %.400s", MERGE_STALLS_MAX, run->reason);
		end_failed(run, &err, true);
		return;
	}
	if (run->reopened_count > 1)
		snprintf(reason, sizeof(reason), "to be sent again, and %" PRIu64 " more like it: %.420s",
			 run->reopened_count - 1, run->reason);
	else
		snprintf(reason, sizeof(reason), "to be sent again: %.480s", run->reason);
	if (move(run, TRANSFER_UPLOADING, reason, true, &err) < 0)
		merge_end_unrecorded(run, &err, "that chunks are to be sent again");
}

void merge_tell_hooks(struct merge_run *run)
{
	if (run->merge->options.hooks)
		hooks_completed(run->merge->options.hooks, &run->transfer);
}

void merge_end_completed(struct merge_run *run)
{
	struct hooks *hooks = run->merge->options.hooks;
	struct err err = ERR_INIT;
	int result = 0;

	/* Before it is recorded: a crash behind the record must leave the promise. */
	if (hooks && hooks_promise(hooks, run->transfer.id, &err) < 0) {
		merge_end_unrecorded(run, &err, "that its folder is in place");
		return;
	}
	result = move(run, TRANSFER_COMPLETED, "", false, &err);
	if (result == -ERR_STATE) {
		log_err(LOG_WARN, &err, "transfer %s: its folder is withdrawn", run->transfer.id);
		merge_unpublish(run);
		return;
	}
	if (result < 0) {
		merge_end_unrecorded(run, &err, "that its folder is in place");
		return;
	}
	log_say(LOG_INFO, "transfer %s: completed, %" PRIu64 " files, %" PRIu64 " bytes", run->transfer.id,
		run->transfer.file_count, run->transfer.total_bytes);
	merge_tell_hooks(run);
	merge_nodes_forget(run->merge, run->transfer.id);
}

bool merge_is_passing(const struct err *err)
{
	return err->code != ERR_BATCH_EXISTS && err->code != ERR_INTERNAL && err->code != ERR_INTEGRITY;
}

void merge_end_in_failure(struct merge_run *run, const struct err *cause, bool is_retryable)
{
	if (is_retryable)
		end_put_off(run, cause);
	else
		end_failed(run, cause, false);
}
