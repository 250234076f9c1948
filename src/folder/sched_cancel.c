/* POST cancel: a transfer ends by the word of its owner or of an operator. */
#include "folder/sched_impl.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"

#define MOVE_TRIES_MAX 5

static int is_too_late(struct sched_call *c, const struct store_transfer *transfer)
{
	char final[PATH_TEXT_MAX], shown[PATH_TEXT_MAX];

	if (transfer->state == TRANSFER_MERGING) {
		/* Half a folder cannot be taken back from the final store in a way that everybody would notice. */
		err_set(&c->err, ERR_MERGING, "transfer %s is being merged, and cannot be cancelled meanwhile",
			transfer->id);
		err_hint(&c->err, "heng status %s shows how it ends; should chunks be missing, cancel it then",
			 transfer->id);
		return -ERR_MERGING;
	}
	merge_final_path(c->sched->merge, str_from(transfer->batch), final, sizeof(final));
	err_set(&c->err, ERR_STATE, "transfer %s is completed: its folder has arrived", transfer->id);
	err_hint(&c->err, "remove the folder itself if nobody needs it: %s",
		 str_display(str_from(final), shown, sizeof(shown)));
	return -ERR_STATE;
}

/* One look and one attempt. -ERR_VERSION_CONFLICT: somebody else moved it meanwhile. */
static int try_cancel(struct sched_call *c, struct store_transfer *transfer)
{
	struct store *store = c->sched->store;
	char reason[STORE_REASON_SIZE];
	int result = sched_find_to_write(c, transfer);

	if (result < 0)
		return result;
	/* Ended before, by whatever: that is what was asked for. */
	if (transfer->state == TRANSFER_FAILED)
		return 0;
	if (transfer->state == TRANSFER_MERGING || transfer->state == TRANSFER_COMPLETED)
		return is_too_late(c, transfer);
	snprintf(reason, sizeof(reason), "cancelled by %s", c->user->name);
	result = store->ops->transfer_move(store, transfer, TRANSFER_FAILED, reason, false, clock_wall_us(), &c->err);
	if (result < 0)
		return result;
	log_say(LOG_INFO, "transfer %s of user %s is %s", transfer->id, transfer->user, reason);
	keeper_remove(c->sched->keeper, transfer->id);
	return 0;
}

static int run_cancel(struct sched_call *c)
{
	struct store_transfer transfer;
	int result = -ERR_VERSION_CONFLICT;

	for (int i = 0; i < MOVE_TRIES_MAX && result == -ERR_VERSION_CONFLICT; i++)
		result = try_cancel(c, &transfer);
	return result < 0 ? result : sched_answer_transfer(c, &transfer);
}

void sched_begin_cancel(struct http_call *call, void *app)
{
	struct sched_call *c = sched_client_call(call, app, run_cancel);

	if (c)
		sched_call_go(c);
}
