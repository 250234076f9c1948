/* Files that survive a crash. The order is always: write, sync the data, rename, sync the folder. Blocking: call from a pool thread.
 * Paths below a root are opened with openat2(RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS). */
#ifndef HENG_SYS_FS_H
#define HENG_SYS_FS_H

#include <sys/stat.h>

#include "base/err.h"
#include "base/buf.h"
#include "base/digest.h"

#define FS_BLOCK_BYTES ((size_t)4096) /* of a hole; where a file system has larger blocks, fewer holes come of it */

/* Descriptors and memory dropped at scope end: AUTO(fs_close) int fd = -1; */
void fs_close(int *fd);

/* Opens below root_fd without following links anywhere in the path; flags as open(2), O_CLOEXEC added. Returns fd or negative code. */
int fs_open_beneath(int root_fd, const char *path, int flags, mode_t mode, struct err *err);
/* mkdir -p, mode 0700 for what it makes, each new folder's parent synced. */
int fs_make_dirs(const char *path, struct err *err);
int fs_make_dirs_at(int root_fd, const char *path, struct err *err); /* below root, not synced */
int fs_open_dir(const char *path, struct err *err);                  /* O_PATH-less O_DIRECTORY fd, or negative */

int fs_write_all(int fd, const void *data, size_t size, int64_t offset,
		 struct err *err); /* pwrite until done; offset -1: write() */
/* Into a file that is being made and has no bytes there yet: whole blocks of zeros are left out, so that a sparse file stays one. When they are the
 * last of it the file is too short until fs_set_size says where it ends. */
int fs_write_sparse(int fd, const void *data, size_t size, int64_t offset, bool *ret_ends_in_hole, struct err *err);
int fs_set_size(int fd, uint64_t size_bytes, struct err *err);
int fs_read_all(int fd, void *target, size_t size, int64_t offset, size_t *ret_size,
		struct err *err); /* until size or end of file */
/* The whole small file; refuses one larger than limit. */
int fs_read_file(const char *path, size_t limit_bytes, struct buf *ret_text, struct err *err);
/* Of the whole file, read from its start. */
int fs_digest(int fd, enum digest_kind kind, char target[DIGEST_HEX_SIZE], struct err *err);
/* Durably replaces path: temp file beside it, write, fdatasync, rename, fsync of the folder. */
int fs_replace_file(const char *path, struct str data, mode_t mode, struct err *err);
/* Removes such temp files from the folder, left there by processes that were killed, when nobody has written them for so long. 0: all, for a folder
 * where nobody else replaces files just now. */
void fs_clean_replaced(const char *path, int64_t age_us);

/* A file without a name, in $TMPDIR, /tmp or $XDG_RUNTIME_DIR: it vanishes with the process, whatever happens to it. Returns fd. */
int fs_temp_file(struct err *err);

/* So many bytes of one file become a part of another by sharing their blocks, where the file system can (XFS with reflink, btrfs, bcachefs): both
 * offsets at whole blocks, the size too unless it ends its file. False: it can not. */
bool fs_clone_range(int from_fd, int64_t from_offset, uint64_t size, int to_fd, int64_t to_offset);

int fs_sync_data(int fd, const char *what,
		 struct err *err); /* fdatasync; after a failure the file's state is unknown */
int fs_sync_dir(int dir_fd, const char *what, struct err *err);
int fs_sync_tree(int fd, struct err *err); /* syncfs of the file system that fd is on */

/* rename within or between open folders, then the caller syncs. RENAME_NOREPLACE when is_exclusive. -EEXIST tells by err->sys_errno. */
int fs_rename(int from_dir_fd, const char *from, int to_dir_fd, const char *to, bool is_exclusive, struct err *err);
/* rm -r of name below dir_fd, never following a link; absent is fine. */
int fs_remove_tree(int dir_fd, const char *name, struct err *err);

struct fs_space {
	uint64_t total_bytes, free_bytes; /* free to an unprivileged writer */
	uint64_t inodes_total, inodes_free;
	/* The same for all that share the space, on this machine: also for subvolumes, bind mounts and overlays, whose devices have other numbers. */
	uint64_t fs_id;
	bool is_network; /* on all machines then */
};
int fs_space(int fd, struct fs_space *ret_space, struct err *err);
/* 32 hex digits that tell this file system from all others of this and of other machines, the same for all processes and containers under one kernel,
 * until it boots anew; "" where the kernel does not tell. Subvolumes of one btrfs have the same name, and so has an export of NFS, SMB or Ceph on all machines
 * that mount it by the same words. An overlay has that of its upper layer, unless the kernel (6.6 and newer) gave it an identity of its own. */
#define FS_NAME_SIZE 33
void fs_name(const struct fs_space *space, char target[FS_NAME_SIZE]);

/* Takes a lock file (flock) for the life of the process; refuses in words, naming the holder's pid, when another holds it. Returns fd. */
int fs_lock(const char *path, struct err *err);

/* The directory self-check of the core's reports: exists, is a folder, a probe file can be made, written, synced, renamed, its folder synced,
 * and it can be deleted. err holds the diagnosis: path, step, errno in words, what to do. */
int fs_check_dir(const char *path, struct err *err);
/* Removes what checks that a crash cut short left there. For a folder that nobody else checks, before the first check. */
void fs_clean_probes(const char *path);
#define FS_PROBE_PREFIX ".probe-" /* of the names that such checks make */

#endif
