#include "folder/decrypt.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/rng.h"
#include "folder/key_file.h"
#include "folder/place.h"
#include "folder/walk.h"
#include "sys/fs.h"
#include "wire/manifest.h"
#include "wire/unseal.h"

#define PIECE_BYTES (256 * KIB)
#define SHOWN_SIZE  300

struct work {
	const struct decrypt_options *options;
	struct decrypt_result *result;
	struct unseal *unseal;
	char *piece;
	int root_fd; /* of a folder */
	struct stage stage;
	struct stage_cursor cursor;
	/* The file at hand. */
	int fd;
	uint64_t written_bytes;
	bool ends_in_hole;
};

static int write_plain(void *owner, const void *plain, size_t size, struct err *err)
{
	struct work *work = owner;
	const int result = fs_write_sparse(work->fd, plain, size, (int64_t)work->written_bytes, &work->ends_in_hole,
					   err);

	work->written_bytes += size;
	return result;
}

static int interrupted(const struct work *work, struct err *err)
{
	const atomic_bool *is_interrupted = work->options->is_interrupted;

	return is_interrupted && atomic_load(is_interrupted) ? err_set(err, ERR_WAITING, "interrupted") : 0;
}

/* From one open file into another, work->fd. */
static int open_bytes(struct work *work, int from_fd, struct str path, uint64_t stored_bytes, struct err *err)
{
	size_t got = PIECE_BYTES;
	int result = 0;

	work->written_bytes = 0;
	work->ends_in_hole = false;
	unseal_begin(work->unseal, path, stored_bytes);
	for (uint64_t at = 0; result == 0 && got == PIECE_BYTES; at += got) {
		result = interrupted(work, err);
		if (result == 0)
			result = fs_read_all(from_fd, work->piece, PIECE_BYTES, (int64_t)at, &got, err);
		if (result == 0)
			result = unseal_feed(work->unseal, work->piece, got, err);
	}
	if (result == 0)
		result = unseal_end(work->unseal, err);
	if (result == 0 && work->ends_in_hole)
		result = fs_set_size(work->fd, work->written_bytes, err);
	if (result < 0)
		return result;
	work->result->files++;
	work->result->bytes += work->written_bytes;
	return 0;
}

/* --- a folder --- */

static int open_entry(struct work *work, const struct manifest_entry *entry, struct err *err)
{
	char path[MANIFEST_PATH_MAX + 1], shown[SHOWN_SIZE];
	struct stat st;

	MUST(str_copy(entry->path, path, sizeof(path)));
	AUTO(fs_close)
	int from_fd = walk_open(work->root_fd, path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW, WALK_LINKS_KEEP);
	if (from_fd < 0 || fstat(from_fd, &st) < 0 || !S_ISREG(st.st_mode))
		return err_sys(err, ERR_SOURCE, from_fd < 0 ? -from_fd : EIO, "opening '%s'",
			       str_display(entry->path, shown, sizeof(shown)));
	work->fd = stage_file(&work->cursor, entry->path, entry->mode, err);
	if (work->fd < 0)
		return work->fd;
	int result = open_bytes(work, from_fd, entry->path, (uint64_t)st.st_size, err);
	if (result == 0)
		result = stage_file_end(&work->stage, &work->fd, entry->path, entry->mode, entry->mtime_ns, err);
	fs_close(&work->fd);
	return result < 0 ? err_wrap(err, "'%s'", str_display(entry->path, shown, sizeof(shown))) : 0;
}

static int on_entry(void *owner, const struct manifest_entry *entry, struct err *err)
{
	struct work *work = owner;
	const struct store_entry made = { .seq = entry->seq,
					  .type = (char)entry->type,
					  .mode = entry->mode,
					  .mtime_ns = entry->mtime_ns,
					  .path = entry->path,
					  .target = entry->target };
	const int result = interrupted(work, err);

	if (result < 0)
		return result;
	if (entry->type == MANIFEST_DIR)
		return stage_folder(&work->stage, &work->cursor, &made, err);
	return entry->type == MANIFEST_LINK ? stage_link(&work->cursor, &made, err) : open_entry(work, entry, err);
}

/* The scan's own manifest, entry by entry. */
static int each_entry(struct work *work, int manifest_fd, struct err *err)
{
	struct manifest_parser *parser = manifest_parser_new(&manifest_limits_default, on_entry, work);
	char *text = must_alloc(PIECE_BYTES);
	size_t got = PIECE_BYTES;
	int result = 0;

	for (int64_t at = 0; result == 0 && got == PIECE_BYTES; at += (int64_t)got) {
		result = fs_read_all(manifest_fd, text, PIECE_BYTES, at, &got, err);
		if (result == 0)
			result = manifest_feed(parser, (struct str){ text, got }, err);
	}
	if (result == 0)
		result = manifest_end(parser, err);
	free(text);
	manifest_parser_free(&parser);
	return result;
}

static int scan(struct work *work, int *ret_fd, struct err *err)
{
	const struct walk_options walk = { .links = WALK_LINKS_KEEP, .is_interrupted = work->options->is_interrupted };
	struct walk_result walked;

	work->root_fd = fs_open_dir(work->options->source, err);
	if (work->root_fd < 0)
		return work->root_fd;
	*ret_fd = fs_temp_file(err);
	if (*ret_fd < 0)
		return *ret_fd;
	const int result = walk_folder(work->root_fd, &walk, *ret_fd, work->options->problem, work->options->owner,
				       &walked, err);
	return result < 0 ? err_wrap(err, "scanning '%.300s'", work->options->source) : 0;
}

static int open_scanned(struct work *work, int manifest_fd, struct err *err)
{
	char id[ULID_SIZE];
	struct place place;
	int result = place_open(&place, work->options->target, err);

	ulid_make(clock_wall_us(), id);
	if (result == 0)
		result = stage_open(&work->stage, place.temp_fd, id, err);
	if (result == 0) {
		stage_cursor_init(&work->cursor, &work->stage);
		result = each_entry(work, manifest_fd, err);
		stage_cursor_fini(&work->cursor);
		if (result == 0)
			result = place_put(&place, &work->stage, work->options->target, work->options->is_interrupted,
					   err);
		stage_close(&work->stage);
	}
	return place_close(&place, result, err);
}

/* Scanned before anything is made: the target may be within the source, and what is made there is none of it. */
static int open_folder(struct work *work, struct err *err)
{
	AUTO(fs_close) int manifest_fd = -1;
	int result = scan(work, &manifest_fd, err);

	if (result == 0)
		result = open_scanned(work, manifest_fd, err);
	fs_close(&work->root_fd);
	return result;
}

/* --- one file --- */

static struct str name_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return str_from(slash ? slash + 1 : path);
}

/* In a hidden folder beside the target, as folders are. */
static int open_file(struct work *work, int from_fd, const struct stat *st, struct err *err)
{
	const struct str path = work->options->path ? str_from(work->options->path) : name_of(work->options->source);
	const struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, st->st_mtim };
	struct place place;
	int result = place_open(&place, work->options->target, err);

	if (result == 0) {
		work->fd = openat(place.temp_fd, "plain", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		result = work->fd < 0 ? err_sys(err, ERR_SYSTEM, errno, "making a temporary file") : 0;
	}
	if (result == 0)
		result = open_bytes(work, from_fd, path, (uint64_t)st->st_size, err);
	if (result == 0 && (fchmod(work->fd, st->st_mode & 07777) < 0 || futimens(work->fd, times) < 0))
		result = err_sys(err, ERR_SYSTEM, errno, "setting mode and time");
	if (result == 0)
		result = fs_sync_data(work->fd, "the file", err);
	fs_close(&work->fd);
	if (result == 0) {
		result = fs_rename(place.temp_fd, "plain", place.parent_fd, place.name, true, err);
		if (result < 0 && err->sys_errno == EEXIST)
			result = err_set(err, ERR_REFUSED, "'%.300s' exists already", work->options->target);
		if (result == 0)
			result = fs_sync_dir(place.parent_fd, "the target's folder", err);
	}
	result = place_close(&place, result, err);
	return result < 0 ? err_wrap(err, "'%.300s'", work->options->source) : 0;
}

static int open_source(struct work *work, struct err *err)
{
	struct stat st;
	AUTO(fs_close) int fd = open(work->options->source, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

	if (fd < 0 || fstat(fd, &st) < 0)
		return err_sys(err, ERR_SOURCE, errno, "opening '%.300s'", work->options->source);
	if (S_ISREG(st.st_mode))
		return open_file(work, fd, &st, err);
	if (!S_ISDIR(st.st_mode))
		return err_set(err, ERR_SOURCE, "'%.300s' is neither a file nor a folder", work->options->source);
	if (work->options->path)
		return err_set(err, ERR_USAGE, "a path is for a single file; '%.300s' is a folder",
			       work->options->source);
	return open_folder(work, err);
}

int decrypt(const struct decrypt_options *options, struct decrypt_result *ret_result, struct err *err)
{
	struct work work = { .options = options, .result = ret_result, .root_fd = -1, .fd = -1 };
	struct key_file *key;
	int result = key_file_load(options->key_file, &key, err);

	*ret_result = (struct decrypt_result){ 0 };
	if (result < 0)
		return result;
	work.piece = must_alloc(PIECE_BYTES);
	work.unseal = unseal_new(key->key, write_plain, &work);
	result = open_source(&work, err);
	unseal_free(&work.unseal);
	key_file_free(&key);
	free(work.piece);
	return result;
}
