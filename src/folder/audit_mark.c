#include "folder/audit_mark.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"

void audit_mark_text(const struct audit_point *point, char target[AUDIT_MARK_SIZE])
{
	char hex[AUDIT_HASH_HEX_SIZE];

	hex_encode(point->hash, AUDIT_HASH_SIZE, hex);
	(void)snprintf(target, AUDIT_MARK_SIZE, "%" PRIu64 ":%s", point->id, hex);
}

static void mark(const struct audit_head *head)
{
	char text[AUDIT_MARK_SIZE];

	audit_mark_text(&head->last, text);
	log_say(LOG_INFO, "audit head %s", text);
}

void audit_mark(struct store *store, int64_t now_us, int64_t *last_us, uint64_t *last_id)
{
	struct err err = ERR_INIT;
	struct audit_head head;

	if (*last_us != 0 && now_us - *last_us < AUDIT_MARK_INTERVAL_US)
		return;
	*last_us = now_us;
	if (store->ops->audit_head(store, &head, &err) < 0)
		log_err(LOG_WARN, &err, "where the audit's chain ends could not be told");
	else if (head.last.id != *last_id)
		mark(&head);
	*last_id = head.last.id;
}

static int on_row(void *owner, const struct audit_row *row)
{
	struct audit_point *newest = owner;

	newest->id = row->id;
	memcpy(newest->hash, row->hash, sizeof(newest->hash));
	return 0;
}

/* The row with which the chain should end, and whatever stands behind it. */
static int check_end(struct store *store, const struct audit_head *head, struct err *err)
{
	const struct audit_query query = { .after = { .id = head->last.id - 1 }, .limit = 2 };
	struct audit_point newest = head->anchor;
	struct audit_place place;
	bool is_more;
	int result = store->ops->audit_rows(store, &query, on_row, &newest, &place, &is_more, err);

	if (result < 0 || memcmp(&newest, &head->last, sizeof(newest)) == 0)
		return result;
	if (newest.id > head->last.id)
		return err_set(err, ERR_AUDIT_BROKEN,
			       "a row %" PRIu64 " was put in behind row %" PRIu64 ", the last one", newest.id,
			       head->last.id);
	return err_set(err, ERR_AUDIT_BROKEN, "row %" PRIu64 ", the last one, was %s", head->last.id,
		       newest.id == head->last.id ? "replaced" : "removed");
}

void audit_mark_start(struct store *store)
{
	struct err err = ERR_INIT, fault = ERR_INIT;
	struct audit_head head;
	struct store_audit row = { .kind = "alert", .outcome = err_word(ERR_AUDIT_BROKEN), .detail = fault.text };
	int result = store->ops->audit_head(store, &head, &err);

	if (result == 0 && head.last.id > 0)
		result = check_end(store, &head, &fault);
	if (result == -ERR_AUDIT_BROKEN) {
		err_hint(&fault, "somebody changed the database by hand: heng audit verify names every such row");
		log_err(LOG_ERROR, &fault, "the audit is not as it was written");
		row.at_wall_us = clock_wall_us();
		result = store->ops->audit(store, &row, &err);
	} else if (result < 0 && fault.code != ERR_NONE) {
		err = fault;
	}
	if (result < 0)
		log_err(LOG_WARN, &err, "the end of the audit's chain could not be looked at");
	else if (head.last.id > 0)
		mark(&head);
}
