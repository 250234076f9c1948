/* Quotas: what the open transfers of one user, and one transfer alone, may have. */
#include "folder/sched_impl.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "folder/space.h"

#define AMOUNT_SIZE 80

struct quota {
	const char *key, *unit;
	uint64_t limit;       /* 0: none */
	uint64_t used;        /* by others of the user's open transfers */
	uint64_t had, wanted; /* by the transfer in its place, and by the folder */
};

/* Exact, since one byte may decide; and readable. */
static char *amount(const struct quota *quota, uint64_t value, char target[AMOUNT_SIZE])
{
	char shown[32];

	if (strcmp(quota->unit, "bytes") != 0 || value < KIB)
		snprintf(target, AMOUNT_SIZE, "%" PRIu64 " %s", value, quota->unit);
	else
		snprintf(target, AMOUNT_SIZE, "%s (%" PRIu64 " bytes)", size_display(value, shown, sizeof(shown)),
			 value);
	return target;
}

/* What grows no more is let through: a quota that was lowered since stops nobody who takes nothing from it. */
static bool is_over(const struct quota *quota)
{
	return quota->limit != 0 && quota->wanted > quota->had && space_add(quota->used, quota->wanted) > quota->limit;
}

static int refuse_user(const struct quota *quota, const char *user, struct err *err)
{
	char limit[AMOUNT_SIZE], used[AMOUNT_SIZE], wanted[AMOUNT_SIZE];

	err_set(err, ERR_QUOTA,
		"user '%s' may have %s in open transfers (%s): other transfers of that user have %s, and this folder "
		"has %s",
		user, amount(quota, quota->limit, limit), quota->key, amount(quota, quota->used, used),
		amount(quota, quota->wanted, wanted));
	err_hint(err,
		 "let open transfers end, or cancel some (heng list, heng cancel), or have %s raised, then push "
		 "again",
		 quota->key);
	return -ERR_QUOTA;
}

static int refuse_transfer(const struct quota *quota, const char *user, struct err *err)
{
	char limit[AMOUNT_SIZE], wanted[AMOUNT_SIZE];

	err_set(err, ERR_QUOTA, "one transfer may have %s (%s), and this folder of user '%s' has %s",
		amount(quota, quota->limit, limit), quota->key, user, amount(quota, quota->wanted, wanted));
	err_hint(err, "send the folder in parts, or have %s raised", quota->key);
	return -ERR_QUOTA;
}

int sched_quota_check(struct sched *sched, const struct sched_account *user, const struct plan_facts *facts,
		      const struct sched_claim *own, const struct store_transfer *old, struct err *err)
{
	struct quota bytes = { "transfer_bytes_max", "bytes", .limit = sched->transfer_bytes_max };
	struct quota entries = { "transfer_entries_max", "entries", .limit = sched->transfer_entries_max };
	struct sched_need need;
	int result;

	bytes.wanted = facts->total_bytes;
	entries.wanted = facts->entry_count;
	if (old) {
		bytes.had = old->total_bytes;
		entries.had = old->entry_count;
	}
	if (is_over(&bytes))
		return refuse_transfer(&bytes, user->name, err);
	if (is_over(&entries))
		return refuse_transfer(&entries, user->name, err);
	if (user->quota_bytes == 0 && user->quota_entries == 0)
		return 0;
	result = sched_need(sched, user->name, own, old ? old->id : NULL, &need, err);
	if (result < 0)
		return result;
	bytes.key = "quota_bytes";
	bytes.limit = user->quota_bytes;
	bytes.used = need.bytes;
	entries.key = "quota_entries";
	entries.limit = user->quota_entries;
	entries.used = need.entries;
	if (is_over(&bytes))
		return refuse_user(&bytes, user->name, err);
	return is_over(&entries) ? refuse_user(&entries, user->name, err) : 0;
}
