/* The client's scan of a folder: names, sizes, times; contents unread. Depth first, each folder's names in byte order, relative opens only,
 * never out of the root. Writes the manifest text to a file. */
#ifndef HENG_FOLDER_WALK_H
#define HENG_FOLDER_WALK_H

#include <stdatomic.h>

#include "base/buf.h"
#include "base/err.h"
#include "wire/seal.h"

enum walk_links { WALK_LINKS_REFUSE, WALK_LINKS_KEEP, WALK_LINKS_SKIP, WALK_LINKS_FOLLOW };
struct walk_options {
	enum walk_links links;
	bool is_sealed; /* the files' sizes are written as those that `cipher` makes of them */
	enum seal_cipher cipher;
	const atomic_bool *is_interrupted; /* NULL, or looked at on the way: then the walk ends with ERR_WAITING */
	/* NULL, or called now and then on the way, also within one large folder: what was found so far. */
	void (*tick)(void *owner, uint64_t file_count, uint64_t total_bytes);
};
struct walk_result {
	uint64_t entry_count, file_count, total_bytes;
	uint64_t manifest_bytes; /* the size of the text written */
	uint32_t crc32c;
	uint64_t skipped_count; /* links or special files left out by --links=skip */
};
#define WALK_PROBLEMS_MAX 1000
/* root_fd: the folder. manifest_fd: an empty file, written from its start. problem is called for each entry that cannot be sent (special
 * file, link with REFUSE, unreadable folder, ...) with its raw path and the reason; the walk goes on to gather all (at most
 * WALK_PROBLEMS_MAX are reported), and ends with ERR_SOURCE or ERR_SOURCE_SPECIAL. With FOLLOW, cycles are found by (device, inode). */
int walk_folder(int root_fd, const struct walk_options *options, int manifest_fd,
		void (*problem)(void *owner, struct str path, const char *reason), void *owner,
		struct walk_result *ret_result, struct err *err);
/* Opens an entry as the walk saw it: beneath the root, through links only with FOLLOW (and then never out of the root). Returns a
 * descriptor, or -errno. */
int walk_open(int root_fd, const char *path, int flags, enum walk_links links);

#endif
