/* The staging tree of one transfer: staging_dir/<transferId>/tree is filled with folders, files and links, gets its modes and times, and is
 * renamed into the final store as a whole. Paths are raw bytes of up to 4096: nothing is ever opened by a path from the root of the machine,
 * only relative to an open folder, and folders are found in steps that fit one system call. */
#ifndef HENG_FOLDER_STAGE_H
#define HENG_FOLDER_STAGE_H

#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/rng.h"
#include "plug/store.h"
#include "wire/manifest.h"

/* One per transfer. Making folders (and the record of them) is for one thread; files may be made by many, each with its own cursor. */
struct stage {
	char id[ULID_SIZE];
	int staging_fd;       /* borrowed */
	int home_fd, tree_fd; /* staging_dir/<id> and its tree */
	int folders_fd; /* what every folder's mode and time will be; read backwards at the end, so deepest first */
	int64_t folders_bytes;
	struct buf folders_tail; /* of that file, not written yet */
	mode_t cleared_mode;     /* what the umask (or the file system) takes from the mode given to open */
	uint32_t root_mode;
	int64_t root_mtime_ns;
	bool has_root;
};

/* The folder that was used last, kept open: neighbours in a manifest mostly share it. */
struct stage_cursor {
	const struct stage *stage;
	int dir_fd; /* -1: none */
	size_t dir_size;
	char dir[MANIFEST_PATH_MAX + 1];
};

/* Removes what an earlier attempt left and begins anew. stage_close only closes; stage_remove removes. */
int stage_open(struct stage *stage, int staging_fd, const char *transfer_id, struct err *err);
void stage_close(struct stage *stage);
int stage_remove(int staging_fd, const char *transfer_id, struct err *err);

void stage_cursor_init(struct stage_cursor *cursor, const struct stage *stage);
void stage_cursor_fini(struct stage_cursor *cursor);

/* The folder is 0700 until stage_finish gives it its own mode and time. The root's entry (path ".") is only remembered. */
int stage_folder(struct stage *stage, struct stage_cursor *cursor, const struct store_entry *entry, struct err *err);
int stage_link(struct stage_cursor *cursor, const struct store_entry *entry, struct err *err);
/* A new file, open for reading and writing. Refuses one that exists. */
int stage_file(struct stage_cursor *cursor, struct str path, uint32_t mode, struct err *err);
/* Removes what stands there; a folder does not go. */
int stage_unlink(struct stage_cursor *cursor, struct str path, struct err *err);
/* Mode and time, then closes; *fd becomes -1 in any case. */
int stage_file_end(const struct stage *stage, int *fd, struct str path, uint32_t mode, int64_t mtime_ns,
		   struct err *err);

/* Modes and times of all folders, deepest first. */
int stage_finish(struct stage *stage, struct err *err);
/* The tree's inode number: it stays the same when the tree is renamed. */
int stage_inode(const struct stage *stage, uint64_t *ret_inode, struct err *err);
/* Renames the tree to final_fd/name unless that exists, and makes this durable; the tree must have been synced. With ERR_BATCH_EXISTS nothing
 * has changed. */
int stage_publish(struct stage *stage, int final_fd, const char *name, struct err *err);
/* The root's own mode and time on an open folder: applied again after a crash, since a mode that forbids writing is set after the rename. */
int stage_root_attributes(int dir_fd, uint32_t mode, int64_t mtime_ns, struct err *err);

#endif
