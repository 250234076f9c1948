#include "folder/fold.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unicase.h>
#include <uninorm.h>
#include <unistd.h>
#include <unistr.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/rng.h"
#include "folder/plan.h"
#include "sys/fs.h"

#define PAIRS_SHOWN_MAX 4
#define NAME_SHOWN_SIZE 100

bool fold_is_any(const struct fold *fold) { return fold->is_case || fold->is_form; }

/* --- asking the file system --- */

static int make(int dir_fd, const char *name, bool *ret_is_there, struct err *err)
{
	const int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);

	*ret_is_there = fd < 0 && errno == EEXIST;
	if (fd < 0 && errno != EEXIST)
		return err_sys(err, ERR_SYSTEM, errno, "cannot make '%s'", name);
	if (fd >= 0)
		close(fd);
	return 0;
}

/* Are `first` and `second`, behind a beginning that nobody else has, one name there? A file system that takes only the first has no two of them
 * either: names that it refuses are told when they are made. */
static int ask(int dir_fd, const char *first, const char *second, bool *ret_is_one, struct err *err)
{
	char first_name[64], second_name[64];
	uint64_t number;
	bool is_there = false;
	int result;

	rng_secret(&number, sizeof(number));
	(void)snprintf(first_name, sizeof(first_name), FS_PROBE_PREFIX "%016llx-%s", (unsigned long long)number, first);
	(void)snprintf(second_name, sizeof(second_name), FS_PROBE_PREFIX "%016llx-%s", (unsigned long long)number,
		       second);
	result = make(dir_fd, first_name, &is_there, err);
	if (result == 0)
		result = make(dir_fd, second_name, ret_is_one, err);
	(void)unlinkat(dir_fd, first_name, 0);
	(void)unlinkat(dir_fd, second_name, 0);
	return result;
}

int fold_probe(const char *dir, struct fold *ret_fold, struct err *err)
{
	AUTO(fs_close) int dir_fd = fs_open_dir(dir, err);
	int result = dir_fd < 0 ? dir_fd : 0;

	*ret_fold = (struct fold){ .is_case = false };
	if (result == 0)
		result = ask(dir_fd, "NAME", "name", &ret_fold->is_case, err);
	if (result == 0)
		result = ask(dir_fd, "\xc3\xa9", "e\xcc\x81", &ret_fold->is_form, err);
	return result < 0 ? err_wrap(err, "asking how names are compared in '%s'", dir) : 0;
}

/* --- folding a path --- */

static void fold_ascii(struct str path, struct buf *target)
{
	for (size_t i = 0; i < path.size; i++) {
		const char c = path.data[i];

		buf_append(target,
			   (struct str){ c >= 'A' && c <= 'Z' ? &"abcdefghijklmnopqrstuvwxyz"[c - 'A'] : &path.data[i],
					 1 });
	}
}

void fold_path(const struct fold *fold, struct str path, struct buf *target)
{
	const uint8_t *bytes = (const uint8_t *)path.data;
	uint8_t *folded = NULL;
	size_t size = 0;

	if (path.size > 0 && u8_check(bytes, path.size) == NULL && fold_is_any(fold)) {
		if (fold->is_case)
			folded = u8_casefold(bytes, path.size, NULL, fold->is_form ? UNINORM_NFD : NULL, NULL, &size);
		else
			folded = u8_normalize(UNINORM_NFD, bytes, path.size, NULL, &size);
		/* It says no for want of memory alone. */
		MUST(folded);
		buf_append(target, (struct str){ (const char *)folded, size });
		free(folded);
	} else if (fold->is_case) {
		fold_ascii(path, target);
	} else {
		buf_append(target, path);
	}
}

/* --- a whole manifest --- */

struct seen {
	struct hash128 hash;
	uint64_t seq;
};

struct pair {
	uint64_t seq[2];
	char name[2][NAME_SHOWN_SIZE];
};

struct checking {
	const struct fold *fold;
	struct buf folded;
	struct seen *seen;
	size_t seen_count, seen_capacity;
	struct pair pairs[PAIRS_SHOWN_MAX];
	size_t pair_count, twice_count;
};

static int note_entry(void *owner, const struct manifest_entry *entry, struct err *err)
{
	struct checking *checking = owner;

	if (checking->seen_count == checking->seen_capacity) {
		const size_t capacity = max_size(1024, checking->seen_capacity * 2);
		struct seen *bigger = reallocarray(checking->seen, capacity, sizeof(*bigger));

		if (!bigger)
			return err_set(err, ERR_NO_MEMORY, "no memory to compare the folder's names");
		checking->seen = bigger;
		checking->seen_capacity = capacity;
	}
	buf_clear(&checking->folded);
	fold_path(checking->fold, entry->path, &checking->folded);
	checking->seen[checking->seen_count++] = (struct seen){
		.hash = hash128(checking->folded.data ? checking->folded.data : "", checking->folded.size),
		.seq = entry->seq,
	};
	return 0;
}

static int compare_seen(const void *left, const void *right)
{
	const struct seen *a = left, *b = right;

	if (a->hash.high != b->hash.high)
		return a->hash.high < b->hash.high ? -1 : 1;
	if (a->hash.low != b->hash.low)
		return a->hash.low < b->hash.low ? -1 : 1;
	return a->seq < b->seq ? -1 : a->seq > b->seq;
}

/* The pairs whose second stands first in the manifest are shown, so that the same folder is always refused in the same words. */
static void keep_pair(struct checking *checking, uint64_t first_seq, uint64_t second_seq)
{
	size_t at = checking->pair_count;

	checking->twice_count++;
	while (at > 0 && checking->pairs[at - 1].seq[1] > second_seq)
		at--;
	if (at == PAIRS_SHOWN_MAX)
		return;
	if (checking->pair_count < PAIRS_SHOWN_MAX)
		checking->pair_count++;
	memmove(&checking->pairs[at + 1], &checking->pairs[at],
		(checking->pair_count - 1 - at) * sizeof(checking->pairs[0]));
	checking->pairs[at] = (struct pair){ .seq = { first_seq, second_seq } };
}

static void find_pairs(struct checking *checking)
{
	const struct seen *seen = checking->seen;

	qsort(checking->seen, checking->seen_count, sizeof(*seen), compare_seen);
	for (size_t i = 1, first = 0; i < checking->seen_count; i++) {
		if (seen[i].hash.high == seen[first].hash.high && seen[i].hash.low == seen[first].hash.low)
			keep_pair(checking, seen[first].seq, seen[i].seq);
		else
			first = i;
	}
}

static int name_entry(void *owner, const struct manifest_entry *entry, struct err *err UNUSED)
{
	struct checking *checking = owner;

	for (size_t i = 0; i < checking->pair_count; i++) {
		for (int which = 0; which < 2; which++) {
			if (checking->pairs[i].seq[which] == entry->seq)
				str_display(entry->path, checking->pairs[i].name[which], NAME_SHOWN_SIZE);
		}
	}
	return 0;
}

static int refuse(const struct checking *checking, struct err *err)
{
	const struct fold *fold = checking->fold;
	char list[480];
	size_t size = 0, shown = 0;

	for (; shown < checking->pair_count; shown++) {
		const struct pair *pair = &checking->pairs[shown];
		const int added = snprintf(list + size, sizeof(list) - size, "%s'%s' and '%s'", shown > 0 ? ", " : "",
					   pair->name[0], pair->name[1]);

		/* Pairs are shown whole. */
		if ((size_t)added >= sizeof(list) - size)
			break;
		size += (size_t)added;
	}
	list[size] = '\0';
	err_set(err, ERR_ENTRY_REFUSED, "the final store does not tell %s apart, and %zu %s overwrite others: %s%s",
		fold->is_case && fold->is_form ? "cases and Unicode forms"
		: fold->is_case                ? "upper and lower case"
					       : "Unicode forms",
		checking->twice_count, checking->twice_count == 1 ? "entry would" : "entries would", list,
		shown < checking->twice_count ? ", ..." : "");
	err_hint(err,
		 "rename one of each pair, or have staging_dir and final_dir on a file system that keeps names apart");
	return -ERR_ENTRY_REFUSED;
}

int fold_check(int manifest_fd, const struct fold *fold, struct err *err)
{
	struct plan_facts facts;
	struct checking checking = { .fold = fold, .folded = BUF_INIT(16 * MANIFEST_PATH_MAX) };
	int result = plan_scan_each(manifest_fd, note_entry, &checking, &facts, err);

	if (result == 0)
		find_pairs(&checking);
	if (result == 0 && checking.pair_count > 0)
		result = plan_scan_each(manifest_fd, name_entry, &checking, &facts, err);
	if (result == 0 && checking.pair_count > 0)
		result = refuse(&checking, err);
	buf_fini(&checking.folded);
	free(checking.seen);
	return result;
}
