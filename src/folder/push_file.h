/* A file of the manifest while it is read, from one descriptor: is it what the scan saw, and does it stay so? */
#ifndef HENG_FOLDER_PUSH_FILE_H
#define HENG_FOLDER_PUSH_FILE_H

#include <sys/stat.h>

#include "base/digest.h"
#include "folder/walk.h"
#include "wire/manifest.h"

#define PUSH_REASON_SIZE 256
/* What is read at once: small enough to be hashed while it is still in the processor's cache. */
#define PUSH_PIECE_BYTES (256 * KIB)

struct push_file {
	int fd; /* -1: none is open */
	int root_fd;
	enum walk_links links;
	struct stat before;
};
/* entry->path is NUL-terminated. False: it is not what the manifest says (or not there, or not to be opened), for the reason given in words; nothing
 * is open then. */
bool push_file_open(struct push_file *file, int root_fd, enum walk_links links, const struct manifest_entry *entry,
		    char reason[PUSH_REASON_SIZE]);
/* Closes it. False: it did not stay what it was. hex: the digest of all bytes that were read, or NULL when not all were. A file whose size and time of
 * modification are as they were, but of which something else was changed meanwhile (its mode, its links, or its content with the time set back), is
 * hashed again with `digest`, through `scratch` of PUSH_PIECE_BYTES: that alone says whether the bytes read are one version of it. */
bool push_file_close(struct push_file *file, const struct manifest_entry *entry, const char *hex, struct digest *digest,
		     char *scratch, char reason[PUSH_REASON_SIZE]);

#endif
