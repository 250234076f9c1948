/* File systems on which two names may be one: they fold upper and lower case (vfat, exfat, SMB shares, ext4 folders marked +F) or the Unicode forms of a
 * letter (é as one code point, or as e and an accent). Two files of a folder would overwrite one another there. */
#ifndef HENG_FOLDER_FOLD_H
#define HENG_FOLDER_FOLD_H

#include "base/buf.h"
#include "wire/manifest.h"

struct fold {
	bool is_case, is_form;
};

bool fold_is_any(const struct fold *fold);

/* Asks the file system, by making names in the folder `dir` and removing them: a crash in between leaves what fs_clean_probes removes. A few
 * calls and no sync, so it may be asked for each transfer. */
int fold_probe(const char *dir, struct fold *ret_fold, struct err *err);

/* Appends the path as it would be compared there: equal for names that are one. By Unicode's full case folding and canonical decomposition, which
 * fold at least what file systems do; of a path that is not UTF-8 only the letters A to Z. */
void fold_path(const struct fold *fold, struct str path, struct buf *target);

/* Refuses a manifest with entries that would be one there (-ERR_ENTRY_REFUSED), naming the first pairs. The manifest has passed plan_scan. Takes
 * 24 bytes an entry, and time, so it is for file systems that do fold. */
int fold_check(int manifest_fd, const struct fold *fold, struct err *err);

#endif
