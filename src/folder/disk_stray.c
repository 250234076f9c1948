/* Files that were begun and never committed, and that nobody writes any more. disk_open removes those of former processes; these are what a failed
 * removal left. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "folder/disk_inside.h"

struct search {
	struct disk *disk;
	int64_t before_wall_us;
	struct disk_stray *strays;
	size_t count, limit;
	char transfer_id[ULID_SIZE];
	uint64_t file_id;
};

static int64_t written_wall_us(const struct stat *facts)
{
	return (int64_t)facts->st_mtim.tv_sec * SEC_US + facts->st_mtim.tv_nsec / 1000;
}

/* The name of the chunk that such a file was to become; false when this is no name of ours. */
static bool chunk_of(struct disk_stray *stray, char chunk_name[DISK_NAME_SIZE])
{
	const char *part = strstr(stray->name, ".part.");
	const char *last = part ? memrchr(stray->name, '_', (size_t)(part - stray->name)) : NULL;

	if (!last || !str_to_u64((struct str){ last + 1, (size_t)(part - last - 1) }, &stray->chunk_index))
		return false;
	disk_chunk_name(stray->transfer_id, stray->file_id, stray->chunk_index, chunk_name, DISK_NAME_SIZE);
	return strncmp(stray->name, chunk_name, strlen(chunk_name)) == 0;
}

static bool is_stray(struct disk *disk, int dir_fd, struct disk_stray *stray, int64_t before_wall_us)
{
	char chunk_name[DISK_NAME_SIZE];
	struct stat facts;

	if (!chunk_of(stray, chunk_name) || fstatat(dir_fd, stray->name, &facts, AT_SYMLINK_NOFOLLOW) < 0)
		return false;
	stray->size_bytes = (uint64_t)facts.st_size;
	/* A writer that lost its turn ends at its next step without touching the file. */
	return S_ISREG(facts.st_mode) && written_wall_us(&facts) < before_wall_us &&
	       !disk_is_written(disk, disk_name_key(chunk_name), stray->name);
}

static int look_at_file(void *owner, int dir_fd, const char *name, struct err *err UNUSED)
{
	struct search *search = owner;
	struct disk_stray stray = { .file_id = search->file_id };

	if (!disk_is_unfinished(name) || !str_copy(str_from(name), stray.name, sizeof(stray.name)))
		return 0;
	memcpy(stray.transfer_id, search->transfer_id, sizeof(stray.transfer_id));
	if (is_stray(search->disk, dir_fd, &stray, search->before_wall_us))
		search->strays[search->count++] = stray;
	return search->count == search->limit ? 1 : 0;
}

static int look_at_folder(void *owner, int dir_fd, const char *name, struct err *err)
{
	struct search *search = owner;

	if (search->count == search->limit)
		return 1;
	if (!str_to_u64(str_from(name), &search->file_id))
		return 0;
	return disk_enter(dir_fd, name, look_at_file, owner, err);
}

static int look_at_transfer(void *owner, int dir_fd, const char *name, struct err *err)
{
	struct search *search = owner;

	if (search->count == search->limit)
		return 1;
	if (!ulid_is_valid(name, strlen(name)) ||
	    !str_copy(str_from(name), search->transfer_id, sizeof(search->transfer_id)))
		return 0;
	return disk_enter(dir_fd, name, look_at_folder, owner, err);
}

int disk_strays(struct disk *disk, int64_t before_wall_us, struct disk_stray *ret_strays, size_t limit, struct err *err)
{
	struct search search = { .disk = disk, .before_wall_us = before_wall_us, .strays = ret_strays, .limit = limit };
	struct err local = ERR_INIT;
	struct err *to = err ? err : &local;
	const int fd = fs_open_beneath(disk->root_fd, "tmp", O_RDONLY | O_DIRECTORY, 0, to);
	const int r = fd < 0 ? fd : disk_each_entry(fd, look_at_transfer, &search, to);

	return r < 0 ? err_wrap(to, "looking for unfinished chunks that nobody writes") : (int)search.count;
}

int disk_remove_stray(struct disk *disk, const struct disk_stray *stray, int64_t before_wall_us, struct err *err)
{
	struct err local = ERR_INIT;
	struct err *to = err ? err : &local;
	struct disk_stray now = *stray;
	char folder[DISK_FOLDER_SIZE];
	AUTO(fs_close) int fd = -1;

	disk_folder_path(stray->transfer_id, stray->file_id, folder, sizeof(folder));
	fd = fs_open_beneath(disk->root_fd, folder, O_RDONLY | O_DIRECTORY, 0, to);
	if (fd < 0 && to->sys_errno == ENOENT)
		return 0;
	if (fd < 0)
		return err_wrap(to, "removing an unfinished chunk");
	if (!is_stray(disk, fd, &now, before_wall_us) || unlinkat(fd, now.name, 0) == 0 || errno == ENOENT)
		return 0;
	return err_sys(to, ERR_DISK, errno, "cannot remove the unfinished chunk '%s'", now.name);
}
