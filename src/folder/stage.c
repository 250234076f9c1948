#include "folder/stage.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sys/fs.h"

#define STAGE_TREE         "tree"
#define STAGE_FOLDERS      "folders"
#define STAGE_PROBE        "probe"
#define STAGE_STEP_BYTES   2048 /* of a path per open: with one name more this stays below PATH_MAX */
#define STAGE_TAIL_BYTES   (64 * KIB)
#define STAGE_DISPLAY_SIZE 200
#define STAGE_MODE_MASK    07777u

/* After each folder's path in the folders file. The last record is found at the end of the file, and so on backwards. */
struct stage_record {
	int64_t mtime_ns;
	uint32_t mode;
	uint32_t path_size;
};

static int path_err(struct err *err, int sys_errno, const char *doing, struct str path)
{
	char shown[STAGE_DISPLAY_SIZE];
	enum err_code code = sys_errno == ENOSPC || sys_errno == EDQUOT ? ERR_NO_SPACE : ERR_SYSTEM;

	err_sys(err, code, sys_errno, "cannot %s '%s' in staging", doing, str_display(path, shown, sizeof(shown)));
	if (code == ERR_NO_SPACE)
		err_hint(err, "free space on the file system of the staging and final folders, then push again");
	return -(int)code;
}

static struct timespec time_of(int64_t mtime_ns)
{
	const int64_t second_ns = 1000000000;
	int64_t seconds = mtime_ns / second_ns, rest_ns = mtime_ns % second_ns;

	/* Times before 1970: the nanoseconds still count upwards. */
	if (rest_ns < 0) {
		seconds--;
		rest_ns += second_ns;
	}
	return (struct timespec){ .tv_sec = (time_t)seconds, .tv_nsec = (long)rest_ns };
}

/* --- the stage --- */

/* What a new file's mode loses to the umask or to a default ACL is measured, as the umask cannot be read without changing it for all threads. */
static int measure_cleared_mode(struct stage *stage, struct err *err)
{
	struct stat st;
	int fd = openat(stage->home_fd, STAGE_PROBE, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0777);

	if (fd < 0)
		return path_err(err, errno, "make the probe file", str_from(STAGE_PROBE));
	int result = fstat(fd, &st);
	int saved_errno = errno;
	close(fd);
	if (result < 0)
		return path_err(err, saved_errno, "look at", str_from(STAGE_PROBE));
	if (unlinkat(stage->home_fd, STAGE_PROBE, 0) < 0)
		return path_err(err, errno, "remove", str_from(STAGE_PROBE));
	stage->cleared_mode = 0777 & ~st.st_mode;
	return 0;
}

static int stage_make(struct stage *stage, struct err *err)
{
	if (mkdirat(stage->staging_fd, stage->id, 0700) < 0)
		return path_err(err, errno, "make the folder", str_from(stage->id));
	stage->home_fd = openat(stage->staging_fd, stage->id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (stage->home_fd < 0)
		return path_err(err, errno, "open the folder", str_from(stage->id));
	if (mkdirat(stage->home_fd, STAGE_TREE, 0700) < 0)
		return path_err(err, errno, "make the folder", str_from(STAGE_TREE));
	stage->tree_fd = openat(stage->home_fd, STAGE_TREE, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (stage->tree_fd < 0)
		return path_err(err, errno, "open the folder", str_from(STAGE_TREE));
	stage->folders_fd = openat(stage->home_fd, STAGE_FOLDERS, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (stage->folders_fd < 0)
		return path_err(err, errno, "make the file", str_from(STAGE_FOLDERS));
	return measure_cleared_mode(stage, err);
}

int stage_open(struct stage *stage, int staging_fd, const char *transfer_id, struct err *err)
{
	*stage = (struct stage){ .staging_fd = staging_fd, .home_fd = -1, .tree_fd = -1, .folders_fd = -1 };
	stage->folders_tail = BUF_INIT(2 * STAGE_TAIL_BYTES);
	if (!str_copy(str_from(transfer_id), stage->id, sizeof(stage->id)) ||
	    !ulid_is_valid(stage->id, strlen(stage->id)))
		return err_set(err, ERR_INTERNAL, "'%s' is not the id of a transfer", transfer_id);

	int result = stage_remove(staging_fd, stage->id, err);
	if (result < 0)
		return result;
	result = stage_make(stage, err);
	if (result < 0)
		stage_close(stage);
	return result;
}

void stage_close(struct stage *stage)
{
	fs_close(&stage->folders_fd);
	fs_close(&stage->tree_fd);
	fs_close(&stage->home_fd);
	buf_fini(&stage->folders_tail);
}

int stage_remove(int staging_fd, const char *transfer_id, struct err *err)
{
	int result = fs_remove_tree(staging_fd, transfer_id, err);

	return result < 0 ? err_wrap(err, "while clearing the staging folder of transfer %s", transfer_id) : 0;
}

/* --- finding folders --- */

void stage_cursor_init(struct stage_cursor *cursor, const struct stage *stage)
{
	cursor->stage = stage;
	cursor->dir_fd = -1;
	cursor->dir_size = 0;
}

void stage_cursor_fini(struct stage_cursor *cursor)
{
	fs_close(&cursor->dir_fd);
	cursor->dir_size = 0;
}

/* Opens `dir` ("" is the tree itself) in steps of whole names, since a path near the limit does not fit one call. */
static int open_dir_steps(int tree_fd, struct str dir, struct err *err)
{
	char step[STAGE_STEP_BYTES + MANIFEST_NAME_MAX + 2];
	int fd = -1;

	if (dir.size == 0) {
		fd = fcntl(tree_fd, F_DUPFD_CLOEXEC, 0);
		return fd < 0 ? err_sys(err, ERR_SYSTEM, errno, "cannot duplicate the descriptor of the staging tree")
			      : fd;
	}
	while (dir.size > 0) {
		size_t step_size = dir.size;

		if (dir.size > STAGE_STEP_BYTES) {
			const char *slash = memchr(dir.data + STAGE_STEP_BYTES, '/', dir.size - STAGE_STEP_BYTES);
			if (slash)
				step_size = (size_t)(slash - dir.data);
		}
		if (step_size >= sizeof(step)) {
			fs_close(&fd);
			return err_set(err, ERR_ENTRY_REFUSED, "a name in a path is longer than %d bytes",
				       MANIFEST_NAME_MAX);
		}
		memcpy(step, dir.data, step_size);
		step[step_size] = '\0';
		int next_fd = fs_open_beneath(fd < 0 ? tree_fd : fd, step, O_PATH | O_DIRECTORY, 0, err);
		fs_close(&fd);
		if (next_fd < 0)
			return next_fd;
		fd = next_fd;
		size_t used = step_size < dir.size ? step_size + 1 : step_size;
		dir.data += used;
		dir.size -= used;
	}
	return fd;
}

/* The open parent folder of path (the cursor keeps it) and the last name, with its NUL. */
static int find_parent(struct stage_cursor *cursor, struct str path, char name[MANIFEST_NAME_MAX + 1], struct err *err)
{
	if (path.size == 0 || path.size > MANIFEST_PATH_MAX)
		return err_set(err, ERR_ENTRY_REFUSED, "a path of %zu bytes is not between 1 and %d", path.size,
			       MANIFEST_PATH_MAX);
	const char *slash = memrchr(path.data, '/', path.size);
	struct str dir = { path.data, slash ? (size_t)(slash - path.data) : 0 };
	struct str last = slash ? (struct str){ slash + 1, path.size - dir.size - 1 } : path;

	if (last.size == 0 || last.data == path.data + 1 || !str_copy(last, name, MANIFEST_NAME_MAX + 1) ||
	    str_eq_c(last, ".") || str_eq_c(last, ".."))
		return err_set(err, ERR_ENTRY_REFUSED,
			       "a path begins with '/', or its last name is empty, too long, '.' or '..'");
	if (cursor->dir_fd >= 0 && str_eq(dir, (struct str){ cursor->dir, cursor->dir_size }))
		return cursor->dir_fd;

	int fd = open_dir_steps(cursor->stage->tree_fd, dir, err);
	if (fd < 0) {
		char shown[STAGE_DISPLAY_SIZE];
		return err_wrap(err, "while opening the folder '%s' in staging",
				str_display(dir, shown, sizeof(shown)));
	}
	fs_close(&cursor->dir_fd);
	cursor->dir_fd = fd;
	cursor->dir_size = dir.size;
	if (dir.size > 0)
		memcpy(cursor->dir, dir.data, dir.size);
	return fd;
}

/* --- entries --- */

static int flush_folders(struct stage *stage, struct err *err)
{
	struct buf *tail = &stage->folders_tail;

	if (tail->is_failed)
		return err_set(err, ERR_NO_MEMORY, "no memory for the list of folders");
	if (tail->size == 0)
		return 0;
	int result = fs_write_all(stage->folders_fd, tail->data, tail->size, stage->folders_bytes, err);
	if (result < 0)
		return err_wrap(err, "while writing the list of folders in staging");
	stage->folders_bytes += (int64_t)tail->size;
	buf_clear(tail);
	return 0;
}

int stage_folder(struct stage *stage, struct stage_cursor *cursor, const struct store_entry *entry, struct err *err)
{
	char name[MANIFEST_NAME_MAX + 1];
	struct stage_record record = { entry->mtime_ns, entry->mode & STAGE_MODE_MASK, (uint32_t)entry->path.size };

	if (str_eq_c(entry->path, ".")) {
		stage->root_mode = record.mode;
		stage->root_mtime_ns = record.mtime_ns;
		stage->has_root = true;
		return 0;
	}
	int dir_fd = find_parent(cursor, entry->path, name, err);
	if (dir_fd < 0)
		return dir_fd;
	if (mkdirat(dir_fd, name, 0700) < 0)
		return path_err(err, errno, "make the folder", entry->path);
	buf_append(&stage->folders_tail, entry->path);
	buf_append(&stage->folders_tail, (struct str){ (const char *)&record, sizeof(record) });
	return stage->folders_tail.size < STAGE_TAIL_BYTES ? 0 : flush_folders(stage, err);
}

int stage_link(struct stage_cursor *cursor, const struct store_entry *entry, struct err *err)
{
	char name[MANIFEST_NAME_MAX + 1], target[MANIFEST_PATH_MAX + 1];
	struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, time_of(entry->mtime_ns) };

	int dir_fd = find_parent(cursor, entry->path, name, err);
	if (dir_fd < 0)
		return dir_fd;
	if (!str_copy(entry->target, target, sizeof(target)))
		return err_set(err, ERR_ENTRY_REFUSED, "the target of a link has %zu bytes or a zero byte in it",
			       entry->target.size);
	if (symlinkat(target, dir_fd, name) < 0)
		return path_err(err, errno, "make the link", entry->path);
	if (utimensat(dir_fd, name, times, AT_SYMLINK_NOFOLLOW) < 0)
		return path_err(err, errno, "set the time of the link", entry->path);
	return 0;
}

int stage_file(struct stage_cursor *cursor, struct str path, uint32_t mode, struct err *err)
{
	char name[MANIFEST_NAME_MAX + 1];

	int dir_fd = find_parent(cursor, path, name, err);
	if (dir_fd < 0)
		return dir_fd;
	/* Made with its mode at once, which mostly spares the chmod; a mode without writing does not bind the descriptor that made the file. */
	int fd = openat(dir_fd, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, (mode_t)(mode & 0777));
	return fd < 0 ? path_err(err, errno, "make the file", path) : fd;
}

int stage_unlink(struct stage_cursor *cursor, struct str path, struct err *err)
{
	char name[MANIFEST_NAME_MAX + 1];

	int dir_fd = find_parent(cursor, path, name, err);
	if (dir_fd < 0)
		return dir_fd;
	return unlinkat(dir_fd, name, 0) == 0 ? 0 : path_err(err, errno, "remove", path);
}

int stage_file_end(const struct stage *stage, int *fd, struct str path, uint32_t mode, int64_t mtime_ns,
		   struct err *err)
{
	struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, time_of(mtime_ns) };
	mode_t wanted = (mode_t)(mode & STAGE_MODE_MASK);
	int result = 0;

	if (((wanted & 07000) || (wanted & stage->cleared_mode)) && fchmod(*fd, wanted) < 0)
		result = path_err(err, errno, "set the mode of", path);
	if (result == 0 && futimens(*fd, times) < 0)
		result = path_err(err, errno, "set the time of", path);
	/* Some file systems report a failed write only here. */
	if (close(*fd) < 0 && result == 0)
		result = path_err(err, errno, "close", path);
	*fd = -1;
	return result;
}

/* --- the end --- */

static int finish_folder(struct stage_cursor *cursor, const struct stage_record *record, struct str path,
			 struct err *err)
{
	char name[MANIFEST_NAME_MAX + 1];
	struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, time_of(record->mtime_ns) };

	int dir_fd = find_parent(cursor, path, name, err);
	if (dir_fd < 0)
		return dir_fd;
	/* Whatever it is: one made in a set-group-id folder is not as it was asked for. */
	if (fchmodat(dir_fd, name, (mode_t)record->mode, 0) < 0)
		return path_err(err, errno, "set the mode of the folder", path);
	if (utimensat(dir_fd, name, times, AT_SYMLINK_NOFOLLOW) < 0)
		return path_err(err, errno, "set the time of the folder", path);
	return 0;
}

int stage_finish(struct stage *stage, struct err *err)
{
	AUTO(stage_cursor_fini) struct stage_cursor cursor;
	char block[MANIFEST_PATH_MAX + sizeof(struct stage_record)];
	int64_t end = 0;

	stage_cursor_init(&cursor, stage);
	int result = flush_folders(stage, err);
	/* Parents stand before their children, so backwards is deepest first: a folder's time is set after its last entry was made, and its mode
	 * after nobody needs to enter it. */
	for (end = stage->folders_bytes; result == 0 && end > 0;) {
		struct stage_record record;
		size_t size = (size_t)min_i64(end, (int64_t)sizeof(block)), got = 0;

		result = fs_read_all(stage->folders_fd, block, size, end - (int64_t)size, &got, err);
		if (result < 0)
			return err_wrap(err, "while reading the list of folders in staging");
		if (got != size || size < sizeof(record))
			return err_set(err, ERR_SYSTEM, "the list of folders in staging was cut short by somebody");
		memcpy(&record, block + size - sizeof(record), sizeof(record));
		if (record.path_size > size - sizeof(record))
			return err_set(err, ERR_SYSTEM, "the list of folders in staging was changed by somebody");
		result = finish_folder(
			&cursor, &record,
			(struct str){ block + size - sizeof(record) - record.path_size, record.path_size }, err);
		end -= (int64_t)(sizeof(record) + record.path_size);
	}
	if (result < 0 || !stage->has_root)
		return result;
	/* Renaming a folder to another parent needs the right to write in it, so that right is taken away only afterwards. */
	return stage_root_attributes(stage->tree_fd, stage->root_mode | 0700, stage->root_mtime_ns, err);
}

int stage_root_attributes(int dir_fd, uint32_t mode, int64_t mtime_ns, struct err *err)
{
	struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, time_of(mtime_ns) };

	if (fchmod(dir_fd, (mode_t)(mode & STAGE_MODE_MASK)) < 0)
		return err_sys(err, ERR_SYSTEM, errno, "cannot set the mode of the merged folder");
	if (futimens(dir_fd, times) < 0)
		return err_sys(err, ERR_SYSTEM, errno, "cannot set the time of the merged folder");
	return 0;
}

int stage_inode(const struct stage *stage, uint64_t *ret_inode, struct err *err)
{
	struct stat st;

	if (fstat(stage->tree_fd, &st) < 0)
		return err_sys(err, ERR_SYSTEM, errno, "cannot look at the staging tree");
	*ret_inode = st.st_ino;
	return 0;
}

int stage_publish(struct stage *stage, int final_fd, const char *name, struct err *err)
{
	char shown[STAGE_DISPLAY_SIZE];
	struct err cause = ERR_INIT;

	int result = fs_rename(stage->home_fd, STAGE_TREE, final_fd, name, true, &cause);
	if (result < 0 && cause.sys_errno == EEXIST)
		return err_set(err, ERR_BATCH_EXISTS,
			       "'%s' exists in the final folder already and is not this transfer's",
			       str_display(str_from(name), shown, sizeof(shown)));
	if (result < 0) {
		if (err)
			*err = cause;
		return err_wrap(err, "while moving the merged folder into place as '%s'",
				str_display(str_from(name), shown, sizeof(shown)));
	}
	if (stage->has_root && (stage->root_mode & 0700) != 0700) {
		result = stage_root_attributes(stage->tree_fd, stage->root_mode, stage->root_mtime_ns, err);
		if (result == 0)
			result = fs_sync_dir(stage->tree_fd, "the merged folder", err);
		if (result < 0)
			return result;
	}
	return fs_sync_dir(final_fd, "the final folder", err);
}
