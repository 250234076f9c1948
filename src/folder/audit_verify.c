#include "folder/audit_verify.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "folder/audit_ask.h"
#include "folder/audit_file.h"

#define STORE_PAGE 5000

void audit_verify_init(struct audit_verify *verify)
{
	memset(verify, 0, sizeof(*verify));
	verify->hasher = audit_hasher_new();
}

void audit_verify_fini(struct audit_verify *verify) { audit_hasher_free(&verify->hasher); }

static void tell(struct audit_verify *verify, const struct err *fault)
{
	verify->fault_count++;
	verify->fault(verify->owner, fault);
}

static bool is_same(const struct audit_point *a, const struct audit_point *b)
{
	return a->id == b->id && memcmp(a->hash, b->hash, sizeof(a->hash)) == 0;
}

/* The next part of the chain begins after this row, which must be the last one seen; or where the part before it began: a scheduler that died before
 * it took the rows of its last archive out has them in both places. */
static void join(struct audit_verify *verify, const struct audit_point *after, const char *what)
{
	struct err fault = ERR_INIT;

	if (verify->is_begun && after->id < verify->last.id && is_same(after, &verify->part)) {
		if (verify->twice.id < verify->last.id)
			verify->twice = verify->last;
	} else if (verify->is_begun && after->id != verify->last.id) {
		err_set(&fault, ERR_AUDIT_BROKEN,
			"%s begins after row %" PRIu64 ", but what is before it ends with row %" PRIu64, what,
			after->id, verify->last.id);
		tell(verify, &fault);
	} else if (verify->is_begun && !is_same(after, &verify->last)) {
		err_set(&fault, ERR_AUDIT_BROKEN, "%s follows another row %" PRIu64 " than the one before it", what,
			after->id);
		tell(verify, &fault);
	}
	if (!verify->is_begun)
		verify->after = *after;
	verify->is_begun = true;
	verify->last = verify->part = *after;
	if (verify->witness.id > 0 && after->id == verify->witness.id)
		verify->is_witness_met = verify->is_witness_met || is_same(after, &verify->witness);
}

static void take(struct audit_verify *verify, const struct audit_row *row)
{
	struct err fault = ERR_INIT;

	verify->row_count += row->id > verify->twice.id;
	if (audit_row_check(verify->hasher, &verify->last, row, &fault) < 0)
		tell(verify, &fault);
	if (row->id == verify->twice.id && !is_same(&verify->last, &verify->twice)) {
		err_set(&fault, ERR_AUDIT_BROKEN,
			"row %" PRIu64 " is another one than in the archive: it, or a row before it, was replaced",
			row->id);
		tell(verify, &fault);
	}
	if (row->id == verify->witness.id && is_same(&verify->last, &verify->witness))
		verify->is_witness_met = true;
}

/* The rows end where the store says that they do. */
static void check_end(struct audit_verify *verify, const struct audit_point *end)
{
	struct err fault = ERR_INIT;

	if (is_same(&verify->last, end))
		return;
	if (verify->last.id < end->id)
		err_set(&fault, ERR_AUDIT_BROKEN,
			"rows %" PRIu64 " to %" PRIu64 " are missing: the newest ones were removed",
			verify->last.id + 1, end->id);
	else if (verify->last.id > end->id)
		err_set(&fault, ERR_AUDIT_BROKEN,
			"rows behind %" PRIu64 ", where the chain ends, were put in, up to row %" PRIu64, end->id,
			verify->last.id);
	else
		err_set(&fault, ERR_AUDIT_BROKEN,
			"the newest row, %" PRIu64 ", is not the one with which the chain ends: it was replaced",
			end->id);
	tell(verify, &fault);
}

/* --- archives --- */

static int on_archived(void *owner, const struct audit_row *row)
{
	take(owner, row);
	return 0;
}

/* Where a file says that it begins is known only when it is read, so its first row is held against that afterwards: by reading it twice. */
static int stop_at_once(void *owner UNUSED, const struct audit_row *row UNUSED) { return 1; }

static int read_file(struct audit_verify *verify, const char *path, struct err *err)
{
	struct audit_point after, last;
	struct err fault = ERR_INIT;
	char what[300], name[256];
	int result = audit_file_read(path, &after, &last, stop_at_once, NULL, err);

	if (result < 0 && result != -ERR_AUDIT_BROKEN)
		return result;
	(void)snprintf(what, sizeof(what), "archive '%s'", str_display(str_from(path), name, sizeof(name)));
	join(verify, &after, what);
	result = audit_file_read(path, &after, &last, on_archived, verify, &fault);
	if (result == -ERR_AUDIT_BROKEN)
		tell(verify, &fault);
	else if (result == 0)
		check_end(verify, &last);
	if (result < 0 && result != -ERR_AUDIT_BROKEN)
		*err = fault;
	return result == -ERR_AUDIT_BROKEN ? 0 : result;
}

static int is_archive(const struct dirent *item)
{
	const size_t size = strlen(item->d_name);

	return strncmp(item->d_name, "audit-", 6) == 0 && size > 6 && strcmp(item->d_name + size - 6, ".jsonl") == 0;
}

int audit_verify_archive(struct audit_verify *verify, const char *path, struct err *err)
{
	struct dirent **items = NULL;
	struct stat st;
	char file[4352];
	int count, result = 0;

	if (stat(path, &st) < 0)
		return err_sys(err, ERR_SYSTEM, errno, "cannot look at '%s'", path);
	if (!S_ISDIR(st.st_mode))
		return read_file(verify, path, err);
	count = scandir(path, &items, is_archive, alphasort);
	if (count < 0)
		return err_sys(err, ERR_SYSTEM, errno, "cannot read folder '%s'", path);
	if (count == 0)
		result = err_set(err, ERR_USAGE, "there is no archive (audit-*.jsonl) in '%s'", path);
	for (int i = 0; i < count; i++) {
		if (result == 0 && snprintf(file, sizeof(file), "%s/%s", path, items[i]->d_name) < (int)sizeof(file))
			result = read_file(verify, file, err);
		free(items[i]);
	}
	free(items);
	return result;
}

/* --- the rows that are not archived --- */

static int on_asked(void *owner, const struct audit_row *row, struct err *err UNUSED)
{
	take(owner, row);
	return 0;
}

int audit_verify_server(struct audit_verify *verify, const struct client *client, struct err *err)
{
	struct audit_head head;
	char query[64];
	int result = audit_ask_head(client, &head, err);

	if (result < 0)
		return result;
	join(verify, &head.anchor, "the scheduler's audit");
	/* What is written meanwhile, also of this reading, is for the next look. */
	(void)snprintf(query, sizeof(query), "to_id=%" PRIu64, head.last.id);
	if (head.last.id > 0)
		result = audit_ask(client, query, on_asked, verify, err);
	if (result == 0)
		check_end(verify, &head.last);
	return result;
}

static int on_stored(void *owner, const struct audit_row *row)
{
	take(owner, row);
	return 0;
}

int audit_verify_store(struct audit_verify *verify, struct store *store, struct err *err)
{
	struct audit_query query = { .limit = STORE_PAGE };
	struct audit_head head;
	bool is_more = true;
	int result = store->ops->audit_head(store, &head, err);

	if (result < 0)
		return result;
	join(verify, &head.anchor, "the database's audit");
	/* From the first on, although what was archived is gone: a row that stands there again was put in. */
	while (result == 0 && is_more)
		result = store->ops->audit_rows(store, &query, on_stored, verify, &query.after, &is_more, err);
	if (result == 0)
		check_end(verify, &head.last);
	return result;
}

int audit_verify_end(struct audit_verify *verify, struct err *err)
{
	const struct audit_point *witness = &verify->witness;
	struct err fault = ERR_INIT;

	if (verify->last.id < verify->twice.id) {
		err_set(&fault, ERR_AUDIT_BROKEN,
			"the archive ends with row %" PRIu64 ", but what has its rows too ends with row %" PRIu64,
			verify->twice.id, verify->last.id);
		tell(verify, &fault);
	}
	if (witness->id > 0 && !verify->is_witness_met && witness->id < verify->after.id)
		return err_set(err, ERR_USAGE,
			       "row %" PRIu64
			       ", whose hash was given, is archived: name the archive too, or a later row",
			       witness->id);
	if (witness->id > verify->last.id) {
		err_set(&fault, ERR_AUDIT_BROKEN,
			"row %" PRIu64
			", whose hash was given, is not there any more: the newest rows were removed, and "
			"the chain's end was set back to row %" PRIu64,
			witness->id, verify->last.id);
		tell(verify, &fault);
	} else if (witness->id > 0 && !verify->is_witness_met) {
		err_set(&fault, ERR_AUDIT_BROKEN,
			"row %" PRIu64
			" has not the hash that was given: it, or a row before it, was replaced, and all "
			"that follow were linked anew",
			witness->id);
		tell(verify, &fault);
	}
	if (verify->fault_count == 0)
		return 0;
	return err_set(err, ERR_AUDIT_BROKEN, "%" PRIu64 " fault%s in the chain of %" PRIu64 " rows",
		       verify->fault_count, verify->fault_count == 1 ? "" : "s", verify->row_count);
}
