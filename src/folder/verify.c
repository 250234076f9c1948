#include "folder/verify.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "folder/sealer.h"
#include "folder/walk.h"
#include "sys/fs.h"

#define READ_BYTES  (1 * MIB)
#define DETAIL_SIZE 512
#define SHOWN_SIZE  200
#define MODE_MASK   07777u

struct verify {
	const struct verify_options *options;
	struct stored stored;
	struct verify_result result;
	int root_fd;
	struct digest *digest;
	struct key_file *key;  /* NULL: the folder is compared as it is stored */
	struct sealer *sealer; /* with it */
	char *block;
	struct hash128 *paths; /* of every stored entry; sorted once all are known */
	size_t path_count;
	char path[MANIFEST_PATH_MAX + MANIFEST_NAME_MAX + 2]; /* of the entry at hand, with its NUL */
};

const char *verify_kind_name(enum verify_kind kind)
{
	static const char *const names[] = {
		[VERIFY_MISSING] = "missing", [VERIFY_EXTRA] = "extra",   [VERIFY_TYPE] = "type",
		[VERIFY_SIZE] = "size",       [VERIFY_DIGEST] = "digest", [VERIFY_TARGET] = "target",
		[VERIFY_MODE] = "mode",       [VERIFY_MTIME] = "mtime",   [VERIFY_UNREADABLE] = "unreadable",
	};

	return names[kind];
}

PRINTF(4, 5)
static void differs(struct verify *verify, enum verify_kind kind, struct str path, const char *fmt, ...)
{
	char detail[DETAIL_SIZE];
	va_list args;

	va_start(args, fmt);
	vsnprintf(detail, sizeof(detail), fmt, args);
	va_end(args);
	verify->result.difference_count++;
	verify->options->difference(verify->options->owner, kind, path, detail);
}

static const char *type_name(mode_t mode)
{
	return S_ISDIR(mode) ? "a folder" : S_ISREG(mode) ? "a file" : S_ISLNK(mode) ? "a link" : "a special file";
}

/* --- one stored entry --- */

static int interrupted(const struct verify *verify, struct err *err)
{
	return stored_is_interrupted(&verify->options->place) ? err_set(err, ERR_WAITING, "interrupted") : 0;
}

/* Reads to the file's end, whatever size it was said to have. */
static int read_through(struct verify *verify, int fd, uint64_t *ret_bytes, struct err *err)
{
	size_t got = READ_BYTES;
	int result = 0;

	digest_restart(verify->digest);
	for (*ret_bytes = 0; result == 0 && got == READ_BYTES; *ret_bytes += got) {
		result = interrupted(verify, err);
		if (result == 0)
			result = fs_read_all(fd, verify->block, READ_BYTES, (int64_t)*ret_bytes, &got, err);
		if (result < 0)
			return result;
		digest_feed(verify->digest, verify->block, got);
	}
	return result;
}

/* Of a file as it would be stored: what was encrypted within the transfer has the same bytes again. */
static int read_sealed(struct verify *verify, int fd, const struct manifest_entry *entry, uint64_t plain_bytes,
		       struct err *err)
{
	int result = sealer_open(verify->sealer, fd, verify->options->place.transfer_id, entry->path, plain_bytes,
				 verify->options->place.is_interrupted, err);

	digest_restart(verify->digest);
	for (uint64_t at = 0; result == 0 && at < entry->size_bytes; at += READ_BYTES) {
		const size_t size = min_size(READ_BYTES, entry->size_bytes - at);

		result = interrupted(verify, err);
		if (result == 0)
			result = sealer_read(verify->sealer, at, verify->block, size, err);
		if (result == 0)
			digest_feed(verify->digest, verify->block, size);
	}
	return result;
}

static int compare_content(struct verify *verify, const struct manifest_entry *entry, const char *stored_digest,
			   uint64_t size_bytes, struct err *err)
{
	struct err why = ERR_INIT;
	char hex[DIGEST_HEX_SIZE];

	/* A pipe in the file's place, put there meanwhile, does not hold us up. */
	AUTO(fs_close)
	int fd = walk_open(verify->root_fd, verify->path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW, WALK_LINKS_KEEP);
	if (fd < 0) {
		differs(verify, VERIFY_UNREADABLE, entry->path, "%s", strerror(-fd));
		return 0;
	}
	int result = verify->sealer ? read_sealed(verify, fd, entry, size_bytes, &why)
				    : read_through(verify, fd, &size_bytes, &why);
	if (result == -ERR_WAITING) {
		*err = why;
		return result;
	}
	if (result < 0) {
		differs(verify, VERIFY_UNREADABLE, entry->path, "%s", why.text);
		return 0;
	}
	verify->result.bytes += size_bytes;
	digest_hex(verify->digest, hex);
	if (strcmp(hex, stored_digest) != 0)
		differs(verify, VERIFY_DIGEST, entry->path, "%s %s here, %s stored", digest_name(verify->stored.digest),
			hex, stored_digest);
	return 0;
}

static void compare_target(struct verify *verify, int fd, const struct manifest_entry *entry)
{
	char target[MANIFEST_PATH_MAX + 1], here[SHOWN_SIZE], stored[SHOWN_SIZE];
	ssize_t size = readlinkat(fd, "", target, sizeof(target));

	if (size < 0) {
		differs(verify, VERIFY_UNREADABLE, entry->path, "the link cannot be read: %s", strerror(errno));
		return;
	}
	if (!str_eq((struct str){ target, (size_t)size }, entry->target))
		differs(verify, VERIFY_TARGET, entry->path, "leads to '%s' here, to '%s' as stored",
			str_display((struct str){ target, (size_t)size }, here, sizeof(here)),
			str_display(entry->target, stored, sizeof(stored)));
}

static void compare_attributes(struct verify *verify, const struct stat *st, const struct manifest_entry *entry)
{
	const int64_t second_ns = 1000000000;
	int64_t seconds = entry->mtime_ns / second_ns, rest_ns = entry->mtime_ns % second_ns;

	/* Times before 1970: the nanoseconds still count upwards. */
	if (rest_ns < 0) {
		seconds--;
		rest_ns += second_ns;
	}
	/* A link has no mode of its own. */
	if (entry->type != MANIFEST_LINK && (st->st_mode & MODE_MASK) != (entry->mode & MODE_MASK))
		differs(verify, VERIFY_MODE, entry->path, "%04o here, %04o stored", st->st_mode & MODE_MASK,
			entry->mode & MODE_MASK);
	if (st->st_mtim.tv_sec != seconds || st->st_mtim.tv_nsec != rest_ns)
		differs(verify, VERIFY_MTIME, entry->path, "%lld.%09ld here, %lld.%09ld stored (seconds since 1970)",
			(long long)st->st_mtim.tv_sec, st->st_mtim.tv_nsec, (long long)seconds, (long)rest_ns);
}

static mode_t stored_type(const struct manifest_entry *entry)
{
	return entry->type == MANIFEST_DIR ? S_IFDIR : entry->type == MANIFEST_LINK ? S_IFLNK : S_IFREG;
}

static int compare_entry(struct verify *verify, const struct manifest_entry *entry, const char *stored_digest,
			 struct err *err)
{
	struct stat st;

	/* Beneath the folder and through no link: what is reached through one is not in the folder. */
	AUTO(fs_close) int fd = walk_open(verify->root_fd, verify->path, O_PATH | O_NOFOLLOW, WALK_LINKS_KEEP);
	if (fd == -ENOENT || fd == -ENOTDIR || fd == -ELOOP) {
		differs(verify, VERIFY_MISSING, entry->path, "%s", type_name(stored_type(entry)));
		return 0;
	}
	if (fd < 0 || fstat(fd, &st) < 0) {
		differs(verify, VERIFY_UNREADABLE, entry->path, "%s", strerror(fd < 0 ? -fd : errno));
		return 0;
	}
	if ((st.st_mode & S_IFMT) != stored_type(entry)) {
		differs(verify, VERIFY_TYPE, entry->path, "%s here, %s stored", type_name(st.st_mode),
			type_name(stored_type(entry)));
		return 0;
	}
	compare_attributes(verify, &st, entry);
	if (entry->type == MANIFEST_LINK)
		compare_target(verify, fd, entry);
	if (entry->type != MANIFEST_FILE)
		return 0;
	verify->result.files++;
	uint64_t wanted_bytes = entry->size_bytes;
	if (verify->sealer && !seal_plain_size(verify->stored.cipher, entry->size_bytes, &wanted_bytes))
		differs(verify, VERIFY_SIZE, entry->path, "%" PRIu64 " stored bytes are no encrypted file's",
			entry->size_bytes);
	else if ((uint64_t)st.st_size == wanted_bytes)
		return compare_content(verify, entry, stored_digest, wanted_bytes, err);
	else
		differs(verify, VERIFY_SIZE, entry->path, "%lld bytes here, %" PRIu64 " stored", (long long)st.st_size,
			wanted_bytes);
	return 0;
}

static int on_entry(void *owner, const struct manifest_entry *entry, const char *digest, struct err *err)
{
	struct verify *verify = owner;
	int result = interrupted(verify, err);

	if (result < 0)
		return result;
	MUST(verify->path_count < verify->stored.entry_count);
	MUST(str_copy(entry->path, verify->path, sizeof(verify->path)));
	verify->paths[verify->path_count++] = hash128(entry->path.data, entry->path.size);
	verify->result.entries++;
	return compare_entry(verify, entry, digest, err);
}

/* --- what is here and was not stored --- */

static int compare_hashes(const void *a, const void *b)
{
	const struct hash128 *x = a, *y = b;

	if (x->high != y->high)
		return x->high < y->high ? -1 : 1;
	return x->low < y->low ? -1 : x->low > y->low;
}

static int compare_names(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static bool is_stored(const struct verify *verify, struct str path)
{
	struct hash128 hash = hash128(path.data, path.size);

	return bsearch(&hash, verify->paths, verify->path_count, sizeof(hash), compare_hashes) != NULL;
}

/* The name's path is put together behind the folder's, which is in verify->path already. */
static void look_at_name(struct verify *verify, size_t folder_size, int dir_fd, const char *name)
{
	size_t size = folder_size, name_size = strlen(name);
	struct stat st;

	if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
		return;
	if (size > 0)
		verify->path[size++] = '/';
	/* Linux names have at most 255 bytes; a folder's path at most 4,096. */
	MUST(name_size < sizeof(verify->path) - size);
	memcpy(verify->path + size, name, name_size + 1);
	struct str path = { verify->path, size + name_size };
	if (!is_stored(verify, path))
		differs(verify, VERIFY_EXTRA, path, "%s",
			fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 ? type_name(st.st_mode) : strerror(errno));
}

static int on_folder(void *owner, const struct manifest_entry *entry, const char *digest, struct err *err)
{
	struct verify *verify = owner;
	struct dirent **names = NULL;
	int result = interrupted(verify, err);

	(void)digest;
	if (result < 0 || entry->type != MANIFEST_DIR)
		return result;
	MUST(str_copy(entry->path, verify->path, sizeof(verify->path)));
	AUTO(fs_close)
	int fd = walk_open(verify->root_fd, verify->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, WALK_LINKS_KEEP);
	/* Missing, or no folder: told already. */
	if (fd == -ENOENT || fd == -ENOTDIR || fd == -ELOOP)
		return 0;
	int count = fd < 0 ? fd : scandirat(fd, ".", &names, NULL, compare_names);
	if (count < 0) {
		differs(verify, VERIFY_UNREADABLE, entry->path, "%s", strerror(fd < 0 ? -fd : errno));
		return 0;
	}
	size_t folder_size = str_eq_c(entry->path, ".") ? 0 : entry->path.size;
	for (int i = 0; i < count; i++) {
		look_at_name(verify, folder_size, fd, names[i]->d_name);
		free(names[i]);
	}
	free(names);
	return 0;
}

/* --- all of it --- */

static int verify_all(struct verify *verify, struct err *err)
{
	/* Bounded by what a manifest may hold; the server's number was compared with the manifest's own. */
	verify->paths = calloc(verify->stored.entry_count + 1, sizeof(*verify->paths));
	if (!verify->paths)
		return err_set(err, ERR_NO_MEMORY, "no memory for %" PRIu64 " entries", verify->stored.entry_count);
	verify->block = must_alloc(READ_BYTES);
	verify->digest = digest_new(verify->stored.digest);
	if (verify->key)
		verify->sealer = sealer_new(verify->stored.cipher, verify->key->key);
	int result = stored_each(&verify->stored, on_entry, verify, err);
	if (result == 0) {
		qsort(verify->paths, verify->path_count, sizeof(*verify->paths), compare_hashes);
		result = stored_each(&verify->stored, on_folder, verify, err);
	}
	digest_free(&verify->digest);
	sealer_free(&verify->sealer);
	free(verify->block);
	free(verify->paths);
	return result;
}

int verify_folder(const struct verify_options *options, struct verify_result *ret_result, struct err *err)
{
	struct verify *verify = must_zalloc(1, sizeof(*verify));

	verify->options = options;
	verify->root_fd = open(options->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int result = verify->root_fd < 0 ? err_sys(err, ERR_SOURCE, errno, "cannot open the folder") : 0;
	if (result == 0)
		result = stored_open(&options->place, &verify->stored, err);
	if (result == 0) {
		if (options->decrypt)
			result = stored_key(&verify->stored, options->decrypt, &verify->key, err);
		if (result == 0)
			result = verify_all(verify, err);
		key_file_free(&verify->key);
		stored_close(&verify->stored);
	}
	*ret_result = verify->result;
	if (result == 0 && verify->result.difference_count > 0)
		result = err_set(err, ERR_INTEGRITY, "%" PRIu64 " %s from what was stored",
				 verify->result.difference_count,
				 verify->result.difference_count == 1 ? "difference" : "differences");
	fs_close(&verify->root_fd);
	free(verify);
	return result;
}
