#include "folder/walk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/hash.h"
#include "sys/fs.h"
#include "wire/manifest.h"

/* Folders above this depth keep their descriptor while what is below them is walked; deeper ones are opened again, so that a deep tree
 * cannot use up the process's descriptors. */
#define WALK_OPEN_DEPTH  64
#define WALK_FLUSH_BYTES (256 * KIB)
/* Steps between two ticks: entries, names read, comparisons in sorting them. */
#define WALK_TICK_ENTRIES  256
#define WALK_TICK_NAMES    4096
#define WALK_TICK_COMPARES 65536

struct walk_frame {
	char *text; /* the names, each with its NUL */
	const char **names;
	size_t count, at;
	size_t path_size; /* of the folder's own path; 0: the root */
	dev_t device;
	ino_t inode;
	int fd; /* -1: closed meanwhile */
};

struct walk {
	int root_fd, manifest_fd;
	const struct walk_options *options;
	void (*problem)(void *owner, struct str path, const char *reason);
	void *owner;
	struct walk_result result;
	struct buf out;
	uint64_t seq, problem_count, special_count;
	uint64_t step_count, compare_count; /* for the ticks */
	char path[MANIFEST_PATH_MAX + 1];
	size_t path_size;
	struct walk_frame *frames;
	size_t frame_count, frame_capacity;
};

static int walk_open_step(int root_fd, const char *path, int flags, enum walk_links links)
{
	struct open_how how = { .flags = (uint64_t)(unsigned)(flags | O_CLOEXEC),
				.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS };
	if (links != WALK_LINKS_FOLLOW)
		how.resolve |= RESOLVE_NO_SYMLINKS;
	/* The kernel answers EAGAIN when somebody renames a folder while it makes sure that the path stays below the root. */
	for (int i = 0; i < 16; i++) {
		long fd = syscall(SYS_openat2, root_fd, path, &how, sizeof(how));
		if (fd >= 0)
			return (int)fd;
		if (errno != EAGAIN && errno != EINTR)
			return -errno;
	}
	return -EAGAIN;
}

int walk_open(int root_fd, const char *path, int flags, enum walk_links links)
{
	/* The kernel takes paths of up to 4,095 bytes, a manifest has them of up to 4,096. */
	size_t size = strlen(path);
	if (size < PATH_MAX)
		return walk_open_step(root_fd, path, flags, links);
	const char *slash = memrchr(path, '/', PATH_MAX - 1);
	if (slash == NULL)
		return -ENAMETOOLONG;
	char parent[PATH_MAX];
	memcpy(parent, path, (size_t)(slash - path));
	parent[slash - path] = '\0';
	AUTO(fs_close) int fd = walk_open_step(root_fd, parent, O_PATH | O_DIRECTORY, links);
	return fd < 0 ? fd : walk_open_step(fd, slash + 1, flags, links);
}

PRINTF(3, 4) static void walk_complain(struct walk *walk, bool is_special, const char *fmt, ...)
{
	walk->problem_count++;
	walk->special_count += is_special;
	if (walk->problem_count > WALK_PROBLEMS_MAX || walk->problem == NULL)
		return;
	char reason[256];
	va_list args;
	va_start(args, fmt);
	vsnprintf(reason, sizeof(reason), fmt, args);
	va_end(args);
	struct str path = walk->path_size > 0 ? (struct str){ walk->path, walk->path_size } : STR(".");
	walk->problem(walk->owner, path, reason);
}

static int walk_flush(struct walk *walk, struct err *err)
{
	if (walk->out.is_failed)
		return err_set(err, ERR_NO_MEMORY, "no memory for the manifest's text");
	walk->result.crc32c = crc32c(walk->result.crc32c, walk->out.data, walk->out.size);
	int r = fs_write_all(walk->manifest_fd, walk->out.data, walk->out.size, (int64_t)walk->result.manifest_bytes,
			     err);
	if (r < 0)
		return err_wrap(err, "writing the manifest to a temporary file");
	walk->result.manifest_bytes += walk->out.size;
	buf_clear(&walk->out);
	return 0;
}

/* False when the time is outside what 64 bits of nanoseconds can say (years 1677 to 2262). */
static bool walk_mtime_ns(const struct stat *st, int64_t *ret_ns)
{
	int64_t ns;
	if (__builtin_mul_overflow((int64_t)st->st_mtim.tv_sec, (int64_t)1000000000, &ns) ||
	    __builtin_add_overflow(ns, (int64_t)st->st_mtim.tv_nsec, &ns))
		return false;
	*ret_ns = ns;
	return true;
}

static int walk_emit(struct walk *walk, enum manifest_type type, const struct stat *st, struct str target,
		     struct err *err)
{
	struct manifest_entry entry = { .seq = walk->seq,
					.type = type,
					.mode = st->st_mode & 07777,
					.path = walk->path_size > 0 ? (struct str){ walk->path, walk->path_size }
								    : STR("."),
					.target = target };
	if (!walk_mtime_ns(st, &entry.mtime_ns)) {
		walk_complain(walk, false, "its modification time is beyond what can be recorded");
		return 0;
	}
	if (type == MANIFEST_FILE) {
		entry.size_bytes = walk->options->is_sealed
					   ? seal_stored_size(walk->options->cipher, (uint64_t)st->st_size)
					   : (uint64_t)st->st_size;
		walk->result.file_count++;
		walk->result.total_bytes += entry.size_bytes;
	}
	walk->seq++;
	walk->result.entry_count++;
	manifest_write(&walk->out, &entry);
	return walk->out.size >= WALK_FLUSH_BYTES ? walk_flush(walk, err) : 0;
}

static void walk_tick(const struct walk *walk)
{
	if (walk->options->tick != NULL)
		walk->options->tick(walk->owner, walk->result.file_count, walk->result.total_bytes);
}

static int walk_compare_names(const void *a, const void *b, void *arg)
{
	struct walk *walk = arg;
	if (++walk->compare_count % WALK_TICK_COMPARES == 0)
		walk_tick(walk);
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* All names of an open folder, sorted by their bytes. Returns 0 or -errno. */
static int walk_read_names(struct walk *walk, int dir_fd, struct walk_frame *frame)
{
	/* A descriptor of its own, since closedir closes what it was given. */
	int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	if (dir == NULL) {
		int failed_errno = errno;
		fs_close(&fd);
		return -failed_errno;
	}
	struct buf text = BUF_INIT(SIZE_MAX / 4);
	for (;;) {
		errno = 0;
		const struct dirent *item = readdir(dir);
		if (item == NULL)
			break;
		if (strcmp(item->d_name, ".") == 0 || strcmp(item->d_name, "..") == 0)
			continue;
		buf_append(&text, (struct str){ item->d_name, strlen(item->d_name) + 1 });
		if (++frame->count % WALK_TICK_NAMES == 0)
			walk_tick(walk);
	}
	int failed_errno = text.is_failed ? ENOMEM : errno;
	closedir(dir);
	if (failed_errno != 0) {
		buf_fini(&text);
		return -failed_errno;
	}
	frame->text = text.data;
	frame->names = calloc(frame->count + 1, sizeof(*frame->names));
	if (frame->names == NULL)
		return -ENOMEM;
	size_t offset = 0;
	for (size_t i = 0; i < frame->count; i++) {
		frame->names[i] = frame->text + offset;
		offset += strlen(frame->names[i]) + 1;
	}
	qsort_r(frame->names, frame->count, sizeof(*frame->names), walk_compare_names, walk);
	return 0;
}

static void walk_frame_fini(struct walk_frame *frame)
{
	fs_close(&frame->fd);
	free(frame->text);
	free(frame->names);
}

/* The folder at walk->path becomes the top frame. A folder that cannot be read is a problem, not the end of the walk. */
static void walk_push(struct walk *walk, int fd, const struct stat *st)
{
	struct walk_frame frame = { .path_size = walk->path_size, .device = st->st_dev, .inode = st->st_ino, .fd = fd };
	int r = walk_read_names(walk, fd, &frame);
	if (r < 0) {
		walk_complain(walk, false, "the folder cannot be read: %s", strerror(-r));
		walk_frame_fini(&frame);
		return;
	}
	if (walk->frame_count == walk->frame_capacity) {
		size_t capacity = walk->frame_capacity > 0 ? 2 * walk->frame_capacity : 32;
		struct walk_frame *frames = realloc(walk->frames, capacity * sizeof(*frames));
		MUST(frames != NULL); /* at most one frame for two bytes of a path */
		walk->frames = frames;
		walk->frame_capacity = capacity;
	}
	if (walk->frame_count > WALK_OPEN_DEPTH)
		fs_close(&walk->frames[walk->frame_count - 1].fd);
	walk->frames[walk->frame_count++] = frame;
}

static int walk_folder_entry(struct walk *walk, const struct stat *seen, struct err *err)
{
	for (size_t i = 0; i < walk->frame_count; i++) {
		if (walk->frames[i].device == seen->st_dev && walk->frames[i].inode == seen->st_ino) {
			walk_complain(walk, true, "the link leads back to a folder above it");
			return 0;
		}
	}
	int fd = walk_open(walk->root_fd, walk->path, O_RDONLY | O_DIRECTORY, walk->options->links);
	if (fd < 0) {
		walk_complain(walk, false, "the folder cannot be opened: %s", strerror(-fd));
		return 0;
	}
	int r = walk_emit(walk, MANIFEST_DIR, seen, STR_NONE, err);
	if (r < 0) {
		fs_close(&fd);
		return r;
	}
	walk_push(walk, fd, seen);
	return 0;
}

static int walk_keep_link(struct walk *walk, int dir_fd, const char *name, const struct stat *st, struct err *err)
{
	char target[MANIFEST_PATH_MAX + 1];
	ssize_t size = readlinkat(dir_fd, name, target, sizeof(target));
	if (size < 0) {
		walk_complain(walk, false, "the link cannot be read: %s", strerror(errno));
		return 0;
	}
	if (size == 0 || (size_t)size > MANIFEST_PATH_MAX) {
		walk_complain(walk, true, "the link's target is empty or longer than %d bytes", MANIFEST_PATH_MAX);
		return 0;
	}
	return walk_emit(walk, MANIFEST_LINK, st, (struct str){ target, (size_t)size }, err);
}

/* What a link leads to, when that lies below the root. False when a problem was noted. */
static bool walk_follow(struct walk *walk, struct stat *ret_st)
{
	int fd = walk_open(walk->root_fd, walk->path, O_PATH, WALK_LINKS_FOLLOW);
	if (fd < 0) {
		walk_complain(walk, true, "%s",
			      fd == -EXDEV    ? "the link leads out of the folder"
			      : fd == -ELOOP  ? "the link leads in a circle"
			      : fd == -ENOENT ? "the link leads to nothing"
					      : strerror(-fd));
		return false;
	}
	int r = fstat(fd, ret_st);
	if (r < 0)
		walk_complain(walk, false, "what the link leads to cannot be examined: %s", strerror(errno));
	fs_close(&fd);
	return r == 0;
}

static const char *walk_kind(mode_t mode)
{
	if (S_ISFIFO(mode))
		return "a named pipe";
	if (S_ISSOCK(mode))
		return "a socket";
	if (S_ISBLK(mode))
		return "a block device";
	if (S_ISCHR(mode))
		return "a character device";
	return "neither a file nor a folder";
}

static int walk_entry(struct walk *walk, int dir_fd, const char *name, struct err *err)
{
	struct stat st;
	if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
		walk_complain(walk, false,
			      errno == ENOENT ? "it vanished during the scan" : "it cannot be examined: %s",
			      strerror(errno));
		return 0;
	}
	if (S_ISLNK(st.st_mode)) {
		switch (walk->options->links) {
		case WALK_LINKS_KEEP:
			return walk_keep_link(walk, dir_fd, name, &st, err);
		case WALK_LINKS_SKIP:
			walk->result.skipped_count++;
			return 0;
		case WALK_LINKS_REFUSE:
			walk_complain(walk, true, "a symbolic link (say --links=keep, skip or follow)");
			return 0;
		case WALK_LINKS_FOLLOW:
			if (!walk_follow(walk, &st))
				return 0;
		}
	}
	if (S_ISDIR(st.st_mode))
		return walk_folder_entry(walk, &st, err);
	if (!S_ISREG(st.st_mode)) {
		if (walk->options->links == WALK_LINKS_SKIP)
			walk->result.skipped_count++;
		else
			walk_complain(walk, true, "%s", walk_kind(st.st_mode));
		return 0;
	}
	/* Found now rather than after gigabytes of other files. */
	if (faccessat(dir_fd, name, R_OK, AT_EACCESS) < 0) {
		walk_complain(walk, false, "it may not be read: %s", strerror(errno));
		return 0;
	}
	return walk_emit(walk, MANIFEST_FILE, &st, STR_NONE, err);
}

/* The next name of the top frame, or back to the frame below it. */
static int walk_step(struct walk *walk, struct err *err)
{
	struct walk_frame *frame = &walk->frames[walk->frame_count - 1];
	if (frame->at == frame->count) {
		walk_frame_fini(frame);
		walk->frame_count--;
		return 0;
	}
	const char *name = frame->names[frame->at++];
	size_t name_size = strlen(name);
	walk->path_size = frame->path_size;
	if (frame->fd < 0) {
		walk->path[walk->path_size] = '\0';
		frame->fd = walk_open(walk->root_fd, walk->path, O_RDONLY | O_DIRECTORY, walk->options->links);
		if (frame->fd < 0) {
			walk_complain(walk, false, "the folder cannot be opened again: %s", strerror(-frame->fd));
			frame->fd = -1;
			frame->at = frame->count;
			return 0;
		}
	}
	size_t need = walk->path_size + (walk->path_size > 0) + name_size;
	if (need > MANIFEST_PATH_MAX || name_size > MANIFEST_NAME_MAX) {
		walk_complain(walk, false, "the path of '%.80s' in it is longer than %d bytes", name,
			      MANIFEST_PATH_MAX);
		return 0;
	}
	if (walk->path_size > 0)
		walk->path[walk->path_size++] = '/';
	memcpy(walk->path + walk->path_size, name, name_size + 1);
	walk->path_size = need;
	return walk_entry(walk, frame->fd, name, err);
}

static int walk_run(struct walk *walk, struct err *err)
{
	struct stat st;
	if (fstat(walk->root_fd, &st) < 0)
		return err_sys(err, ERR_SOURCE, errno, "examining the folder");
	if (!S_ISDIR(st.st_mode))
		return err_set(err, ERR_SOURCE, "it is not a folder");
	int fd = openat(walk->root_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return err_sys(err, ERR_SOURCE, errno, "opening the folder");
	manifest_write_head(&walk->out);
	int r = walk_emit(walk, MANIFEST_DIR, &st, STR_NONE, err);
	if (r < 0) {
		fs_close(&fd);
		return r;
	}
	walk_push(walk, fd, &st);
	while (walk->frame_count > 0) {
		if (walk->options->is_interrupted != NULL && atomic_load(walk->options->is_interrupted))
			return err_set(err, ERR_WAITING, "interrupted after %llu entries",
				       (unsigned long long)walk->result.entry_count);
		if (walk->step_count++ % WALK_TICK_ENTRIES == 0)
			walk_tick(walk);
		r = walk_step(walk, err);
		if (r < 0)
			return r;
	}
	if (walk->problem_count > 0) {
		err_set(err, walk->special_count > 0 ? ERR_SOURCE_SPECIAL : ERR_SOURCE,
			"%llu %s of the folder cannot be sent", (unsigned long long)walk->problem_count,
			walk->problem_count == 1 ? "entry" : "entries");
		if (walk->special_count > 0)
			err_hint(err, "links: --links=keep|skip|follow; other special files: move them away, or "
				      "--links=skip");
		return -(int)(walk->special_count > 0 ? ERR_SOURCE_SPECIAL : ERR_SOURCE);
	}
	manifest_write_end(&walk->out, walk->result.entry_count, walk->result.total_bytes);
	return walk_flush(walk, err);
}

int walk_folder(int root_fd, const struct walk_options *options, int manifest_fd,
		void (*problem)(void *owner, struct str path, const char *reason), void *owner,
		struct walk_result *ret_result, struct err *err)
{
	struct walk walk = { .root_fd = root_fd,
			     .manifest_fd = manifest_fd,
			     .options = options,
			     .problem = problem,
			     .owner = owner,
			     .out = BUF_INIT(4 * MIB) };
	int r = walk_run(&walk, err);
	while (walk.frame_count > 0)
		walk_frame_fini(&walk.frames[--walk.frame_count]);
	free(walk.frames);
	buf_fini(&walk.out);
	*ret_result = walk.result;
	return r;
}
