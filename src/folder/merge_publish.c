#include "folder/merge_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "folder/audit_mark.h"
#include "sys/fs.h"
#include "wire/manifest.h"

#define OWNER_SIZE 256
#define NAME_SIZE  (STORE_BATCH_MAX + 32)
#define PATH_SIZE  8192

/* --- putting in place --- */

static void system_name(const struct store_transfer *transfer, const char *suffix, char target[NAME_SIZE])
{
	snprintf(target, NAME_SIZE, "%s.%s", transfer->batch, suffix);
}

static int system_path(const struct merge *merge, const char *name, char target[PATH_SIZE], struct err *err)
{
	int size = snprintf(target, PATH_SIZE, "%s/" MERGE_SYSTEM_FOLDER "/%s", merge->final_dir, name);

	return size < PATH_SIZE ? 0 : err_set(err, ERR_CONFIG, "the path of the final folder is too long");
}

/* Who is about to put the batch in place, and which tree: the inode number goes with the tree when it is renamed, so the folder that stands there
 * after a crash is known to be that tree and not one that came from elsewhere in between. The version tells a merge that is gone on with from one that
 * ended without being able to take its tree back: the transfer may have been revised since. The last line is where the audit's chain stood: the folder
 * may outlive the database, and be a witness of it. */
static int write_owner(struct merge_run *run, struct err *err)
{
	char name[NAME_SIZE], path[PATH_SIZE], text[OWNER_SIZE], mark[AUDIT_MARK_SIZE];
	struct store *store = run->merge->store;
	struct audit_head head;
	uint64_t inode = 0;

	int result = stage_inode(&run->stage, &inode, err);
	if (result == 0)
		result = store->ops->audit_head(store, &head, err);
	if (result < 0)
		return result;
	system_name(&run->transfer, "owner", name);
	result = system_path(run->merge, name, path, err);
	if (result < 0)
		return result;
	audit_mark_text(&head.last, mark);
	int size = snprintf(text, sizeof(text), "%s\n%" PRIu64 "\n%" PRId64 "\n%s\n", run->transfer.id, inode,
			    run->transfer.version, mark);
	result = fs_replace_file(path, (struct str){ text, (size_t)size }, 0644, err);
	return result < 0 ? err_wrap(err, "while noting whose the folder in the final place will be") : 0;
}

struct owner {
	uint64_t inode, version; /* version 0: none was noted */
};

/* Did this transfer put the batch in place, and which tree was it? */
static bool read_owner(const struct merge *merge, const struct store_transfer *transfer, struct owner *ret_owner)
{
	char name[NAME_SIZE], path[PATH_SIZE];
	struct buf text = BUF_INIT(OWNER_SIZE);
	struct str rest, id, number;
	bool is_ours = false;

	system_name(transfer, "owner", name);
	if (system_path(merge, name, path, NULL) == 0 && fs_read_file(path, OWNER_SIZE, &text, NULL) == 0) {
		rest = buf_str(&text);
		is_ours = str_cut(&rest, '\n', &id) && str_cut(&rest, '\n', &number) && str_eq_c(id, transfer->id) &&
			  str_to_u64(number, &ret_owner->inode);
		if (!str_cut(&rest, '\n', &number) || !str_to_u64(number, &ret_owner->version))
			ret_owner->version = 0;
	}
	buf_fini(&text);
	return is_ours;
}

static int dir_placed(struct merge_run *run, enum merge_placed *ret_placed, struct err *err)
{
	const struct store_transfer *transfer = &run->transfer;
	struct merge *merge = run->merge;
	struct stat st;
	struct owner owner;

	*ret_placed = MERGE_NOT_PLACED;
	if (fstatat(merge->final_fd, transfer->batch, &st, AT_SYMLINK_NOFOLLOW) < 0) {
		if (errno == ENOENT)
			return 0;
		return err_sys(err, ERR_SYSTEM, errno, "cannot look for the batch in the final folder");
	}
	if (!S_ISDIR(st.st_mode) || !read_owner(merge, transfer, &owner) || owner.inode != st.st_ino)
		*ret_placed = MERGE_PLACED_BY_OTHER;
	else
		*ret_placed = owner.version == (uint64_t)transfer->version ? MERGE_PLACED : MERGE_PLACED_BEFORE;
	return 0;
}

/* --- giving it back --- opened first and judged then: who publishes the same batch again notes himself as its owner before he replaces anything,
 * so what was opened while the owner is still this transfer is this transfer's. */

static int no_more(const struct store_transfer *transfer, const char *what, struct err *err)
{
	err_set(err, ERR_STATE, "%s of transfer %s is no longer in the final folder as it was put there", what,
		transfer->id);
	err_hint(err, "it was taken away, or replaced by another batch of that name");
	return -(int)ERR_STATE;
}

static int dir_open_manifest(const struct merge *merge, const struct store_transfer *transfer, struct err *err)
{
	char name[NAME_SIZE];
	struct owner owner;

	system_name(transfer, "manifest", name);
	AUTO(fs_close) int fd = openat(merge->system_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 && errno != ENOENT)
		return err_sys(err, ERR_SYSTEM, errno, "cannot open the manifest of transfer %s", transfer->id);
	if (fd < 0 || !read_owner(merge, transfer, &owner))
		return no_more(transfer, "the manifest", err);
	int result = fd;
	fd = -1;
	return result;
}

int merge_open_batch(const struct merge *merge, const struct store_transfer *transfer, bool *ret_is_same,
		     struct err *err)
{
	struct stat st;
	struct owner owner;

	AUTO(fs_close)
	int fd = openat(merge->final_fd, transfer->batch, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 && errno != ENOENT && errno != ENOTDIR && errno != ELOOP)
		return err_sys(err, ERR_SYSTEM, errno, "cannot open the folder of transfer %s", transfer->id);
	if (fd < 0 || fstat(fd, &st) < 0 || !read_owner(merge, transfer, &owner))
		return no_more(transfer, "the folder", err);
	*ret_is_same = owner.inode == st.st_ino;
	int result = fd;
	fd = -1;
	return result;
}

int merge_check_still_merging(struct merge_run *run, struct err *err)
{
	struct store_transfer now;
	struct store *store = run->merge->store;

	int result = store->ops->transfer_get(store, run->transfer.id, &now, err);
	if (result < 0)
		return result;
	if (now.state != TRANSFER_MERGING)
		return err_set(err, ERR_STATE, "the transfer became %s while it was merged",
			       transfer_state_name(now.state));
	return 0;
}

static int publish_manifest(struct merge_run *run, struct err *err)
{
	char name[NAME_SIZE];

	system_name(&run->transfer, "manifest", name);
	int result = fs_rename(run->stage.home_fd, MERGE_MANIFEST, run->merge->system_fd, name, false, err);
	if (result == 0)
		result = fs_sync_dir(run->merge->system_fd, "the final folder's own folder", err);
	return result < 0 ? err_wrap(err, "while putting the manifest beside the folder") : 0;
}

static int dir_publish(struct merge_run *run, struct err *err)
{
	int result = stage_finish(&run->stage, err);

	/* One sync for everything: files, folders, links, the manifest. Nothing is visible before it has returned. */
	if (result == 0)
		result = fs_sync_tree(run->stage.tree_fd, err);
	if (result == 0)
		result = merge_check_still_merging(run, err);
	if (result == 0)
		result = write_owner(run, err);
	if (result == 0)
		result = publish_manifest(run, err);
	if (result == 0)
		result = stage_publish(&run->stage, run->merge->final_fd, run->transfer.batch, err);
	return result;
}

static int on_root(void *owner, const struct store_entry *entry)
{
	struct store_entry *root = owner;

	*root = *entry;
	return 1;
}

/* The mode that the folder has in the end may keep its own owner from opening it; who is root does not notice. */
static int open_placed(struct merge_run *run, struct err *err)
{
	const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, final_fd = run->merge->final_fd;
	int fd = openat(final_fd, run->transfer.batch, flags);

	if (fd < 0 && errno == EACCES) {
		if (fchmodat(final_fd, run->transfer.batch, 0700, 0) < 0)
			return err_sys(err, ERR_SYSTEM, errno, "cannot change the mode of the merged folder");
		fd = openat(final_fd, run->transfer.batch, flags);
	}
	return fd >= 0 ? fd : err_sys(err, ERR_SYSTEM, errno, "cannot open the merged folder");
}

static int dir_publish_again(struct merge_run *run, struct err *err)
{
	struct merge *merge = run->merge;
	struct store_entry root = { .type = 0 };

	int result = merge->store->ops->entries(merge->store, run->transfer.id, 0, 0, on_root, &root, err);
	if (result < 0)
		return result;
	AUTO(fs_close) int fd = open_placed(run, err);
	if (fd < 0)
		return fd;
	if (root.type == MANIFEST_DIR)
		result = stage_root_attributes(fd, root.mode, root.mtime_ns, err);
	if (result == 0)
		result = fs_sync_dir(fd, "the merged folder", err);
	if (result == 0)
		result = fs_sync_dir(merge->final_fd, "the final folder", err);
	return result;
}

static int take_back(struct merge *merge, const struct store_transfer *transfer, struct err *err)
{
	AUTO(fs_close) int home_fd = openat(merge->staging_fd, transfer->id, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (home_fd < 0)
		return err_sys(err, ERR_SYSTEM, errno, "cannot open the transfer's staging folder");
	/* A root without the right to write cannot change its parent. */
	if (fchmodat(merge->final_fd, transfer->batch, 0700, 0) < 0)
		return err_sys(err, ERR_SYSTEM, errno, "cannot change the mode of the merged folder");
	int result = fs_rename(merge->final_fd, transfer->batch, home_fd, "withdrawn", true, err);
	return result < 0 ? result : fs_sync_dir(merge->final_fd, "the final folder", err);
}

static int dir_withdraw(struct merge_run *run, struct err *err)
{
	struct merge *merge = run->merge;
	char name[NAME_SIZE];

	system_name(&run->transfer, "owner", name);
	int result = fs_make_dirs_at(merge->staging_fd, run->transfer.id, err);
	if (result == 0)
		result = take_back(merge, &run->transfer, err);
	if (result == 0 && unlinkat(merge->system_fd, name, 0) < 0)
		log_say(LOG_WARN, "transfer %s: its owner file stays", run->transfer.id);
	return result;
}

static bool dir_exists(const struct merge *merge, const char *batch)
{
	struct stat st;

	return fstatat(merge->final_fd, batch, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

const struct final_ops final_dir_ops = {
	.placed = dir_placed,
	.publish = dir_publish,
	.publish_again = dir_publish_again,
	.withdraw = dir_withdraw,
	.exists = dir_exists,
	.open_manifest = dir_open_manifest,
};

void merge_unpublish(struct merge_run *run)
{
	enum merge_placed placed;
	struct err err = ERR_INIT;

	if (run->merge->final->placed(run, &placed, &err) < 0 ||
	    (placed != MERGE_PLACED && placed != MERGE_PLACED_BEFORE))
		return;
	if (run->merge->final->withdraw(run, &err) < 0)
		log_err(LOG_ERROR, &err, "transfer %s: its folder was put in place, and cannot be taken back now",
			run->transfer.id);
}
