/* What is owed, as files: outbox/<hook>/<transfer>, "<next seq> <tries>" in it. One that was given up lies in failed/, with the error behind. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "folder/hook_impl.h"
#include "sys/fs.h"

#define PATH_SIZE   4608
#define NAME_SIZE   64
#define RECORD_SIZE 1024

int hook_outbox_open(struct hook *hook, const char *state_dir, struct err *err)
{
	char path[PATH_SIZE];

	if (snprintf(path, sizeof(path), "%s/outbox/%s/failed", state_dir, hook->name) >= (int)sizeof(path))
		return err_set(err, ERR_CONFIG, "the path of the outbox is too long");
	int result = fs_make_dirs(path, err);
	if (result < 0)
		return result;
	hook->failed_fd = fs_open_dir(path, err);
	if (hook->failed_fd < 0)
		return hook->failed_fd;
	*strrchr(path, '/') = '\0';
	hook->dir_fd = fs_open_dir(path, err);
	return hook->dir_fd < 0 ? hook->dir_fd : 0;
}

/* Written beside its place, synced, renamed, the folder synced: it is there whole or as it was. */
static int replace(int dir_fd, const char *name, struct str text, struct err *err)
{
	char part[NAME_SIZE];

	snprintf(part, sizeof(part), "%s.part", name);
	AUTO(fs_close) int fd = openat(dir_fd, part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return err_sys(err, ERR_SYSTEM, errno, "cannot make '%s' in the outbox", part);
	int result = fs_write_all(fd, text.data, text.size, 0, err);
	if (result == 0)
		result = fs_sync_data(fd, "a file of the outbox", err);
	if (result == 0)
		result = fs_rename(dir_fd, part, dir_fd, name, false, err);
	return result < 0 ? result : fs_sync_dir(dir_fd, "the outbox", err);
}

int hook_outbox_save(struct hook *hook, const struct hook_debt *debt, struct err *err)
{
	char text[RECORD_SIZE];
	int size = snprintf(text, sizeof(text), "%" PRIu64 " %" PRIu64 "\n", debt->next_seq, debt->tries);

	return replace(hook->dir_fd, debt->transfer_id, (struct str){ text, (size_t)size }, err);
}

int hook_outbox_add(struct hook *hook, const char *transfer_id, struct err *err)
{
	struct hook_debt debt = { .next_seq = 0 };

	if (faccessat(hook->dir_fd, transfer_id, F_OK, 0) == 0)
		return 0;
	str_copy(str_from(transfer_id), debt.transfer_id, sizeof(debt.transfer_id));
	return hook_outbox_save(hook, &debt, err);
}

static int read_record(int dir_fd, const char *name, struct buf *text, struct err *err)
{
	size_t size = 0;

	AUTO(fs_close) int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return err_sys(err, ERR_SYSTEM, errno, "cannot open '%s' in the outbox", name);
	if (!buf_reserve(text, RECORD_SIZE))
		return err_set(err, ERR_NO_MEMORY, "no memory to read the outbox");
	int result = fs_read_all(fd, text->data, RECORD_SIZE, 0, &size, err);
	text->size = size;
	return result;
}

int hook_outbox_read(struct hook *hook, const char *transfer_id, struct hook_debt *ret_debt, struct err *err)
{
	struct buf text = BUF_INIT(2 * RECORD_SIZE);
	struct str rest, line, word;

	*ret_debt = (struct hook_debt){ .next_seq = 0 };
	str_copy(str_from(transfer_id), ret_debt->transfer_id, sizeof(ret_debt->transfer_id));
	int result = read_record(hook->dir_fd, transfer_id, &text, err);
	rest = buf_str(&text);
	/* Of one that nobody can read, all is told again: once too often does no harm, never does. */
	if (result == 0 && (!str_cut(&rest, '\n', &line) || !str_cut(&line, ' ', &word) ||
			    !str_to_u64(word, &ret_debt->next_seq) || !str_to_u64(line, &ret_debt->tries)))
		ret_debt->next_seq = ret_debt->tries = 0;
	buf_fini(&text);
	return result;
}

int hook_outbox_remove(struct hook *hook, const char *transfer_id, struct err *err)
{
	if (unlinkat(hook->dir_fd, transfer_id, 0) < 0 && errno != ENOENT)
		return err_sys(err, ERR_SYSTEM, errno, "cannot remove '%s' from the outbox", transfer_id);
	return fs_sync_dir(hook->dir_fd, "the outbox", err);
}

int hook_outbox_fail(struct hook *hook, const struct hook_debt *debt, struct err *err)
{
	char text[RECORD_SIZE];
	/* Its tries are over; whoever moves the file back gives it new ones. */
	int size = snprintf(text, sizeof(text), "%" PRIu64 " 0\n%s\n", debt->next_seq, debt->error);

	int result = replace(hook->failed_fd, debt->transfer_id, (struct str){ text, (size_t)size }, err);
	return result < 0 ? result : hook_outbox_remove(hook, debt->transfer_id, err);
}

bool hook_outbox_failed(const struct hook *hook, const char *transfer_id, char error[HOOK_ERROR_SIZE])
{
	struct buf text = BUF_INIT(2 * RECORD_SIZE);
	struct str rest, line;

	bool is_there = read_record(hook->failed_fd, transfer_id, &text, NULL) == 0;
	rest = buf_str(&text);
	error[0] = '\0';
	if (is_there && str_cut(&rest, '\n', &line) && str_cut(&rest, '\n', &line))
		(void)str_copy(line, error, HOOK_ERROR_SIZE);
	buf_fini(&text);
	return is_there;
}

int hook_outbox_list(struct hook *hook, int (*each)(struct hook *hook, const char *transfer_id, struct err *err),
		     struct err *err)
{
	int fd = openat(hook->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	int result = 0;

	if (!dir) {
		fs_close(&fd);
		return err_sys(err, ERR_SYSTEM, errno, "cannot read the outbox of hook '%s'", hook->name);
	}
	for (struct dirent *item = readdir(dir); item && result == 0; item = readdir(dir)) {
		size_t size = strlen(item->d_name);
		if (ulid_is_valid(item->d_name, size))
			result = each(hook, item->d_name, err);
		else if (size > 5 && strcmp(item->d_name + size - 5, ".part") == 0)
			(void)unlinkat(hook->dir_fd, item->d_name, 0);
	}
	closedir(dir);
	return result;
}
