/* Is a local folder what was stored? Compares every entry of a completed transfer's manifest with the folder: type, size, mode, modification time,
 * a link's target, and the digest of each file, which is read whole; and finds what the folder has beside them. Only the manifest is fetched. */
#ifndef HENG_FOLDER_VERIFY_H
#define HENG_FOLDER_VERIFY_H

#include "folder/stored.h"

/* An entry may differ in several ways, each of which is told. */
enum verify_kind {
	VERIFY_MISSING,
	VERIFY_EXTRA, /* a folder is told itself, not what is in it */
	VERIFY_TYPE,
	VERIFY_SIZE,
	VERIFY_DIGEST,
	VERIFY_TARGET, /* of a link */
	VERIFY_MODE,
	VERIFY_MTIME,
	VERIFY_UNREADABLE, /* so that it cannot be said to be the same */
};
const char *verify_kind_name(enum verify_kind kind);

struct verify_options {
	struct stored_place place;
	const char *folder;
	const char *
		decrypt; /* the key file: the folder is compared as it is before it is encrypted; NULL: as it is stored */
	/* Raw path ("." is the folder itself) and, in words, what is here and what was stored. */
	void (*difference)(void *owner, enum verify_kind kind, struct str path, const char *detail);
	void *owner;
};
struct verify_result {
	uint64_t entries, files, bytes; /* compared; bytes: those that were read */
	uint64_t difference_count;
};
/* 0: the same. -ERR_INTEGRITY: it differs, and all differences were told. Another code: it could not be found out. */
int verify_folder(const struct verify_options *options, struct verify_result *ret_result, struct err *err);

#endif
