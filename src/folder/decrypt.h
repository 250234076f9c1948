/* What heng push --encrypt made becomes plain again: a folder as a whole, or one file of it. The target appears complete or not at all. */
#ifndef HENG_FOLDER_DECRYPT_H
#define HENG_FOLDER_DECRYPT_H

#include <stdatomic.h>

#include "base/err.h"
#include "base/str.h"

struct decrypt_options {
	const char *source; /* a folder, as it was pulled or as it lies in the final store, or a file */
	const char *target; /* must not exist; its parent must */
	const char *key_file;
	const char *
		path; /* of a single file within the folder that was pushed; NULL: its name alone. For a folder: NULL */
	const atomic_bool *is_interrupted; /* NULL, or looked at on the way: then it ends with ERR_WAITING */
	/* An entry that no folder of ours can hold (a special file, ...): raw path and why. */
	void (*problem)(void *owner, struct str path, const char *reason);
	void *owner;
};
struct decrypt_result {
	uint64_t files, bytes; /* bytes: plain */
};
/* Modes and times are the source's. -ERR_INTEGRITY: err names the file that does not open. A failure leaves nothing behind. */
int decrypt(const struct decrypt_options *options, struct decrypt_result *ret_result, struct err *err);

#endif
