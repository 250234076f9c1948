/* Chunks whose receipts were kept while the scheduler was away: their senders are gone, or wait elsewhere for what becomes of them. */
#include <inttypes.h>
#include <stdlib.h>

#include "folder/node_inside.h"
#include "base/log.h"

/* Refused for good and written just now: nobody will ever ask for these bytes. While merging, they may be what the merge is waiting for. */
bool node_is_useless(enum err_code code, bool is_repeat)
{
	switch (code) {
	case ERR_NO_TRANSFER:
		return true;
	case ERR_NO_CHUNK:
	case ERR_CHUNK_SIZE:
	case ERR_STATE:
	case ERR_DIGEST_CONFLICT:
		return !is_repeat;
	default:
		return false;
	}
}

struct disk_chunk node_receipt_chunk(const struct store_receipt *receipt)
{
	return (struct disk_chunk){
		.transfer_id = receipt->transfer_id,
		.file_id = receipt->file_id,
		.chunk_index = receipt->chunk_index,
		.size_bytes = receipt->size_bytes,
		.digest = receipt->digest_kind,
		.digest_hex = receipt->digest,
		.request_id = receipt->request_id,
	};
}

bool node_kept_is_stored(void *owner, const struct store_receipt *receipt)
{
	struct node *node = owner;
	const struct disk_chunk chunk = node_receipt_chunk(receipt);

	return disk_may_have(node->disk, &chunk, false);
}

struct kept_removal {
	struct node *node;
	struct job job;
	struct store_receipt receipt;
};

static void removal_run(struct job *job)
{
	struct kept_removal *removal = job->owner;
	const struct disk_chunk chunk = node_receipt_chunk(&removal->receipt);

	/* A receipt may be told twice, and other bytes be there by then; or the same ones, which somebody sent again since this process began. What is not
	 * removed now goes when the transfer is removed. */
	(void)disk_remove_bytes(removal->node->disk, &chunk, 0, NULL);
}

static void removal_done(struct job *job, struct loop *home UNUSED) { free(job->owner); }

void node_kept_refused(void *owner, const struct store_receipt *receipt, bool is_repeat, enum err_code code)
{
	struct node *node = owner;
	const bool is_useless = node_is_useless(code, is_repeat);

	log_say(LOG_WARN,
		"the scheduler did not take the receipt of chunk %" PRIu64 " of file %" PRIu64
		" of transfer %s, kept while it was away: %s%s",
		receipt->chunk_index, receipt->file_id, receipt->transfer_id, err_word(code),
		is_useless ? "; the chunk is removed" : "");
	if (!is_useless)
		return;
	struct kept_removal *removal = must_zalloc(1, sizeof(*removal));
	removal->node = node;
	removal->receipt = *receipt;
	removal->job = (struct job){ .run = removal_run, .done = removal_done, .owner = removal };
	if (work_submit(node->work, &removal->job, NULL))
		return;
	removal_run(&removal->job);
	free(removal);
}
