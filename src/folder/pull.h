/* The way back: a completed transfer becomes a folder again. Everything is written into a hidden folder beside the target, each file's digest is
 * compared with the manifest's, all is synced, and one rename puts it in place: the target appears complete or not at all. */
#ifndef HENG_FOLDER_PULL_H
#define HENG_FOLDER_PULL_H

#include "folder/push.h"
#include "folder/stored.h"

#define PULL_PARALLEL_MAX     64
#define PULL_PARALLEL_DEFAULT 8

struct pull_options {
	struct stored_place place;
	const char *target; /* must not exist; its parent must */
	unsigned parallel;  /* files under way at once; 0: 8 */
	const char *
		decrypt; /* the key file with which the files are opened while they come; NULL: they are left as they are stored */
	/* Called from the pulling thread about 10 times a second; nodes have no part in it, so there are no shares. NULL allowed. */
	void (*progress)(void *owner, const struct push_progress *progress);
	void *owner;
};
struct pull_result {
	uint64_t files, bytes, entries;
	uint64_t retries;
	int64_t elapsed_us;
};
/* Returns 0 when the target is in place, durable. A failure leaves nothing behind. -ERR_INTEGRITY: what came is not what was stored, err names the
 * file. */
int pull_folder(const struct pull_options *options, struct pull_result *ret_result, struct err *err);

#endif
