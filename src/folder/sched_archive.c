/* The audit's old rows go to a file of their own, and only then out of the table. Each step begins with what is durable: the file is complete under
 * its name and its folder synced before the first row goes; a scheduler that dies in between has the rows in both places, and writes such a
 * file again. A chain that does not hold goes nowhere: what was done to it is to be seen first. */
#include "folder/sched_audit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "folder/audit_file.h"
#include "plug/audit_line.h"
#include "sys/fs.h"

#define ARCHIVE_ROWS_MAX 100000u /* in one file: what one call does in a second or two */
#define ARCHIVE_PAGE     5000u
#define FLUSH_BYTES      MIB
#define PART_NAME        "audit.part"

struct archive {
	struct sched_call *c;
	int64_t before_wall_us;
	int dir_fd, file_fd;
	struct audit_hasher *hasher;
	struct audit_point from, last; /* the anchor, and the last row that is in the file */
	uint64_t newest_id;
	uint64_t count;
	bool is_end;    /* a row that is to stay was met */
	struct err err; /* of a callback */
	struct buf text;
	char name[AUDIT_FILE_NAME_SIZE];
};

static int flush(struct archive *archive, struct err *err)
{
	int result;

	if (archive->text.is_failed)
		return err_set(err, ERR_NO_MEMORY, "no memory for the archive's rows");
	result = fs_write_all(archive->file_fd, archive->text.data, archive->text.size, -1, err);
	buf_clear(&archive->text);
	return result;
}

static int on_row(void *owner, const struct audit_row *row)
{
	struct archive *archive = owner;

	archive->is_end = row->fields[AUDIT_at_us].number >= archive->before_wall_us || row->id >= archive->newest_id ||
			  archive->count == ARCHIVE_ROWS_MAX;
	if (archive->is_end)
		return 1;
	if (audit_row_check(archive->hasher, &archive->last, row, &archive->err) < 0)
		return 1;
	audit_line_write(&archive->text, row);
	buf_append_c(&archive->text, "\n");
	archive->count++;
	return archive->text.size > FLUSH_BYTES && flush(archive, &archive->err) < 0;
}

static int write_rows(struct archive *archive)
{
	struct store *store = archive->c->sched->store;
	struct audit_query query = { .after = { .id = archive->from.id }, .limit = ARCHIVE_PAGE };
	struct err *err = &archive->c->err;
	bool is_more = true;
	int result;

	archive->text = BUF_INIT(4 * MIB);
	audit_file_begin(&archive->text, &archive->from);
	while (is_more && !archive->is_end) {
		result = store->ops->audit_rows(store, &query, on_row, archive, &query.after, &is_more, err);
		if (result < 0)
			return result;
		if (archive->err.code != ERR_NONE) {
			*err = archive->err;
			return -(int)err->code;
		}
	}
	audit_file_end(&archive->text, &archive->last, archive->count);
	return flush(archive, err);
}

/* Does the file's name say that it ends with a row that the table had when this began? */
static bool is_in_table(const struct archive *archive, const char *name, size_t first_size)
{
	struct str rest = { name + first_size, strlen(name) - first_size }, last;
	uint64_t last_id;

	return str_cut(&rest, '.', &last) && str_to_u64(last, &last_id) && last_id <= archive->newest_id;
}

/* Other files that begin with the same row: written by a scheduler that died before it took their rows out, so all they have is in the table still, and
 * in this file or a later one. Where the database is an older one, restored, a file may have rows that are nowhere else: it stays. */
static void drop_leftovers(const struct archive *archive)
{
	const size_t first_size = sizeof("audit-00000000000000000000-") - 1;
	DIR *dir = opendir(archive->c->sched->archive_dir);
	const struct dirent *item;

	while (dir && (item = readdir(dir))) {
		if (strncmp(item->d_name, archive->name, first_size) == 0 && strcmp(item->d_name, archive->name) != 0 &&
		    is_in_table(archive, item->d_name, first_size))
			(void)unlinkat(archive->dir_fd, item->d_name, 0);
	}
	if (dir)
		(void)closedir(dir);
}

/* Complete and durable under its name, which says which rows are in it. */
static int keep_file(struct archive *archive)
{
	struct err *err = &archive->c->err;
	int result = fs_sync_data(archive->file_fd, archive->name, err);

	if (result == 0 && fchmod(archive->file_fd, 0400) < 0)
		result = err_sys(err, ERR_SYSTEM, errno, "making the archive read-only");
	audit_file_name(archive->from.id + 1, archive->last.id, archive->name);
	if (result == 0)
		result = fs_rename(archive->dir_fd, PART_NAME, archive->dir_fd, archive->name, false, err);
	if (result == 0)
		result = fs_sync_dir(archive->dir_fd, "the folder of archives", err);
	if (result == 0)
		drop_leftovers(archive);
	return result;
}

static int cut(struct archive *archive)
{
	struct store *store = archive->c->sched->store;
	struct sched_audit_room room;
	struct store_audit row;
	char hex[AUDIT_HASH_HEX_SIZE], detail[256];

	hex_encode(archive->last.hash, AUDIT_HASH_SIZE, hex);
	(void)snprintf(detail, sizeof(detail), "rows %" PRIu64 " to %" PRIu64 " are in %s, the last one's hash is %s",
		       archive->from.id + 1, archive->last.id, archive->name, hex);
	sched_audit_note(archive->c, "operator", "archived", NULL, detail, &row, &room);
	return store->ops->audit_cut(store, &archive->from, &archive->last, &row, &archive->c->err);
}

static int open_part(struct archive *archive)
{
	struct err *err = &archive->c->err;
	const char *dir = archive->c->sched->archive_dir;
	int result = fs_make_dirs(dir, err);

	if (result < 0)
		return result;
	archive->dir_fd = fs_open_dir(dir, err);
	if (archive->dir_fd < 0)
		return archive->dir_fd;
	(void)unlinkat(archive->dir_fd, PART_NAME, 0);
	archive->file_fd = openat(archive->dir_fd, PART_NAME, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	return archive->file_fd < 0 ? err_sys(err, ERR_SYSTEM, errno, "making '%s/%s'", dir, PART_NAME) : 0;
}

static int archive_rows(struct archive *archive)
{
	int result = open_part(archive);

	if (result == 0)
		result = write_rows(archive);
	if (result == 0 && archive->count > 0)
		result = keep_file(archive);
	if (result == 0 && archive->count > 0)
		result = cut(archive);
	if (archive->dir_fd >= 0 && (result < 0 || archive->count == 0))
		(void)unlinkat(archive->dir_fd, PART_NAME, 0);
	fs_close(&archive->file_fd);
	fs_close(&archive->dir_fd);
	buf_fini(&archive->text);
	return result;
}

static int answer(const struct archive *archive)
{
	struct json json;
	char hex[AUDIT_HASH_HEX_SIZE];

	json_init(&json, &archive->c->answer);
	json_open(&json, NULL);
	json_u64(&json, "rows", archive->count);
	if (archive->count > 0) {
		hex_encode(archive->last.hash, AUDIT_HASH_SIZE, hex);
		json_u64(&json, "from_id", archive->from.id + 1);
		json_u64(&json, "to_id", archive->last.id);
		json_c(&json, "hash", hex);
		json_c(&json, "folder", archive->c->sched->archive_dir);
		json_c(&json, "file", archive->name);
	}
	json_bool(&json, "more", archive->count == ARCHIVE_ROWS_MAX);
	json_i64(&json, "server_time_us", clock_wall_us());
	json_close(&json);
	return 0;
}

static int run_archive(struct sched_call *c)
{
	struct archive archive = { .c = c, .dir_fd = -1, .file_fd = -1, .err = ERR_INIT };
	struct audit_head head;
	uint64_t before;
	int result;

	if (c->user->role != ROLE_OPERATOR)
		return err_set(&c->err, ERR_FORBIDDEN, "user '%s' is no operator, who alone may archive the audit",
			       c->user->name);
	result = sched_query_u64(c, "before_us", 0, &before);
	if (result == 0 && (before == 0 || before > INT64_MAX))
		result = err_set(&c->err, ERR_BAD_REQUEST, "the query does not say before which time (before_us)");
	if (result < 0)
		return result;
	if (pthread_mutex_trylock(&c->sched->archive_lock) != 0)
		return err_set(&c->err, ERR_BUSY, "the audit is being archived by another call");
	result = c->sched->store->ops->audit_head(c->sched->store, &head, &c->err);
	archive.before_wall_us = (int64_t)before;
	archive.from = archive.last = head.anchor;
	archive.newest_id = head.last.id;
	archive.hasher = audit_hasher_new();
	if (result == 0)
		result = archive_rows(&archive);
	audit_hasher_free(&archive.hasher);
	pthread_mutex_unlock(&c->sched->archive_lock);
	return result < 0 ? err_wrap(&c->err, "archiving the audit") : answer(&archive);
}

void sched_begin_archive(struct http_call *call, void *app)
{
	struct sched_call *c = sched_client_call(call, app, run_archive);

	if (c)
		sched_call_go(c);
}
