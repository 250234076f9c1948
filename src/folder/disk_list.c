/* What is here of a transfer, a page at a time: what a node tells a scheduler that asks. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "folder/disk_inside.h"

/* Digests that nobody remembers are computed from the bytes: a page ends early rather than reading for longer than its caller waits. */
#define COMPUTE_BYTES_MAX ((uint64_t)256 * MIB)

/* The lowest numbers of those that are offered, however many come: a heap whose top is the highest kept. */
struct lowest {
	uint64_t from, to;
	uint64_t *values;
	size_t count, limit;
	bool is_cut; /* others were left out */
	/* Of chunks: what the names in the folder begin with. */
	const char *transfer_id;
	uint64_t file_id;
};

struct listing {
	struct disk *disk;
	const char *transfer_id;
	enum digest_kind kind;
	const struct held_range *range;
	struct held_chunk *chunks;
	size_t count, limit;
	uint64_t computed_bytes;
	bool is_sync_due; /* one of them was not made durable by this process */
	bool has_more;
};

static void lowest_sink(struct lowest *low)
{
	uint64_t *v = low->values;

	for (size_t i = 0, child; (child = 2 * i + 1) < low->count; i = child) {
		if (child + 1 < low->count && v[child + 1] > v[child])
			child++;
		if (v[i] >= v[child])
			return;
		const uint64_t value = v[i];
		v[i] = v[child];
		v[child] = value;
	}
}

static void lowest_offer(struct lowest *low, uint64_t value)
{
	uint64_t *v = low->values;

	if (value < low->from || value > low->to)
		return;
	if (low->count == low->limit) {
		low->is_cut = true;
		if (value >= v[0])
			return;
		v[0] = value;
		lowest_sink(low);
		return;
	}
	size_t i = low->count++;
	v[i] = value;
	for (size_t parent; i > 0 && v[parent = (i - 1) / 2] < v[i]; i = parent) {
		const uint64_t other = v[parent];
		v[parent] = v[i];
		v[i] = other;
	}
}

static int compare_u64(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static int offer_file(void *owner, int dir_fd UNUSED, const char *name, struct err *err UNUSED)
{
	uint64_t file_id;

	/* Only names that we would give: "07" is nobody's folder. */
	if (name[0] != '0' && str_to_u64(str_from(name), &file_id))
		lowest_offer(owner, file_id);
	return 0;
}

static int offer_chunk(void *owner, int dir_fd UNUSED, const char *name, struct err *err UNUSED)
{
	struct lowest *low = owner;
	const char *last = strrchr(name, '_'), *end = last ? strchr(last, '.') : NULL;
	char expected[DISK_NAME_SIZE];
	uint64_t chunk_index;

	if (!end || !str_to_u64((struct str){ last + 1, (size_t)(end - last - 1) }, &chunk_index))
		return 0;
	disk_chunk_name(low->transfer_id, low->file_id, chunk_index, expected, sizeof(expected));
	if (strcmp(name, expected) == 0)
		lowest_offer(low, chunk_index);
	return 0;
}

/* Fills `low` from the folder `path`; one that is not there, or is no folder, is empty. */
static int collect(struct listing *list, const char *path, struct lowest *low,
		   int (*offer)(void *owner, int dir_fd, const char *name, struct err *err), struct err *err)
{
	struct err local = ERR_INIT;
	const int fd = fs_open_beneath(list->disk->root_fd, path, O_RDONLY | O_DIRECTORY, 0, &local);
	int r;

	if (fd < 0 && (local.sys_errno == ENOENT || local.sys_errno == ENOTDIR || local.sys_errno == ELOOP))
		return 0;
	if (fd < 0) {
		*err = local;
		return disk_fail(list->disk, err, "cannot open a folder of chunks");
	}
	r = disk_each_entry(fd, offer, low, err);
	if (r < 0)
		return disk_fail(list->disk, err, "cannot list a folder of chunks");
	/* Empty: there is no array either. */
	if (low->count > 0)
		qsort(low->values, low->count, sizeof(*low->values), compare_u64);
	return 0;
}

/* 1: the digest is known; 0: it would have to be computed from more bytes than this page may read. */
static int find_digest(struct listing *list, int fd, struct hash128 key, struct held_chunk *chunk, struct err *err)
{
	if (disk_remembered_digest(list->disk, key, list->kind, chunk->digest))
		return 1;
	list->is_sync_due = true;
	if (disk_attribute_digest(fd, list->kind, chunk->digest))
		return 1;
	/* At least one, however large it is. */
	if (list->computed_bytes > 0 && chunk->size_bytes > COMPUTE_BYTES_MAX - list->computed_bytes)
		return 0;
	list->computed_bytes = chunk->size_bytes < COMPUTE_BYTES_MAX - list->computed_bytes
				       ? list->computed_bytes + chunk->size_bytes
				       : COMPUTE_BYTES_MAX;
	if (fs_digest(fd, list->kind, chunk->digest, err) < 0)
		return disk_fail(list->disk, err, "cannot read a stored chunk");
	return 1;
}

/* 1: go on; 0: the page ends before this chunk. */
static int list_chunk(struct listing *list, uint64_t file_id, uint64_t chunk_index, struct err *err)
{
	struct held_chunk *chunk = &list->chunks[list->count];
	char name[DISK_NAME_SIZE];
	struct err local = ERR_INIT;
	uint64_t size_bytes = 0;
	struct stat facts;
	AUTO(fs_close) int fd = disk_read(list->disk, list->transfer_id, file_id, chunk_index, &size_bytes, &local);
	int r;

	/* Removed since its folder was read; or nothing that we would have made. */
	if (fd == -ERR_CHUNK_GONE)
		return 1;
	if (fd < 0) {
		*err = local;
		return fd;
	}
	if (fstat(fd, &facts) < 0)
		return err_sys(err, ERR_DISK, errno, "cannot look at a stored chunk");
	if (!S_ISREG(facts.st_mode))
		return 1;
	*chunk = (struct held_chunk){
		.file_id = file_id, .chunk_index = chunk_index, .size_bytes = size_bytes, .kind = list->kind
	};
	disk_chunk_name(list->transfer_id, file_id, chunk_index, name, sizeof(name));
	r = find_digest(list, fd, disk_name_key(name), chunk, err);
	if (r > 0)
		list->count++;
	return r;
}

/* 1: the folder is through; 0: the page is full. */
static int list_file(struct listing *list, uint64_t file_id, struct lowest *low, struct err *err)
{
	const struct held_range *range = list->range;
	char path[DISK_FOLDER_SIZE];
	int r;

	low->count = 0;
	low->is_cut = false;
	low->file_id = file_id;
	low->transfer_id = list->transfer_id;
	low->from = file_id == range->after_file_id ? range->after_chunk_index + 1 : 0;
	low->to = file_id == range->last_file_id ? range->last_chunk_index : INT64_MAX;
	disk_folder_path(list->transfer_id, file_id, path, sizeof(path));
	r = collect(list, path, low, offer_chunk, err);
	if (r < 0)
		return r;
	for (size_t i = 0; i < low->count; i++) {
		if (list->count == list->limit)
			return 0;
		r = list_chunk(list, file_id, low->values[i], err);
		if (r <= 0)
			return r;
	}
	/* More chunks than a whole page holds, of which some have gone meanwhile: the next page goes on where this one ends. */
	return low->is_cut ? 0 : 1;
}

static int list_files(struct listing *list, struct lowest *files, struct lowest *chunks, struct err *err)
{
	char path[DISK_FOLDER_SIZE];
	int r;

	snprintf(path, sizeof(path), "tmp/%s", list->transfer_id);
	files->from = list->range->after_file_id > 0 ? list->range->after_file_id : 1;
	files->to = list->range->last_file_id;
	for (;;) {
		files->count = 0;
		files->is_cut = false;
		r = collect(list, path, files, offer_file, err);
		if (r < 0)
			return r;
		for (size_t i = 0; i < files->count; i++) {
			r = list_file(list, files->values[i], chunks, err);
			if (r < 0)
				return r;
			if (r == 0) {
				list->has_more = true;
				return 0;
			}
		}
		/* Folders without chunks may be many: only then is there another round. */
		if (!files->is_cut)
			return 0;
		files->from = files->values[files->count - 1] + 1;
	}
}

/* A chunk that a former process named may lack the sync of that name: one sync of the file system for all of the page. */
static int make_durable(struct listing *list, struct err *err)
{
	struct disk *disk = list->disk;
	char name[DISK_NAME_SIZE];

	if (!list->is_sync_due)
		return 0;
	if (fs_sync_tree(disk->tmp_fd, err) < 0)
		return disk_fail(disk, err, "cannot sync the chunks that are here");
	pthread_mutex_lock(&disk->lock);
	for (size_t i = 0; i < list->count; i++) {
		const struct held_chunk *chunk = &list->chunks[i];

		disk_chunk_name(list->transfer_id, chunk->file_id, chunk->chunk_index, name, sizeof(name));
		memo_set_digest(disk->memo, disk_name_key(name), list->kind, chunk->digest);
	}
	pthread_mutex_unlock(&disk->lock);
	return 0;
}

int disk_list(struct disk *disk, const char *transfer_id, enum digest_kind kind, const struct held_range *range,
	      size_t limit, struct held_chunk *ret_chunks, size_t *ret_count, bool *ret_more, struct err *err)
{
	struct err local = ERR_INIT;
	struct err *to = err ? err : &local;
	struct listing list = { .disk = disk,
				.transfer_id = transfer_id,
				.kind = kind,
				.range = range,
				.chunks = ret_chunks,
				.limit = limit };
	struct lowest files = { .limit = limit + 1 }, chunks = { .limit = limit + 1 };
	int r;

	*ret_count = 0;
	*ret_more = false;
	if (!ulid_is_valid(transfer_id, strlen(transfer_id)))
		return err_set(to, ERR_BAD_REQUEST, "the transfer id is not a ULID");
	MUST(limit > 0);
	files.values = must_alloc(files.limit * sizeof(*files.values));
	chunks.values = must_alloc(chunks.limit * sizeof(*chunks.values));
	r = list_files(&list, &files, &chunks, to);
	free(files.values);
	free(chunks.values);
	if (r == 0)
		r = make_durable(&list, to);
	if (r < 0)
		return err_wrap(to, "listing the chunks of transfer %s", transfer_id);
	*ret_count = list.count;
	*ret_more = list.has_more;
	return 0;
}
