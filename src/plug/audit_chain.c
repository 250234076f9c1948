#include "plug/audit_chain.h"
#include "base/mem.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const struct {
	const char *name;
	uint8_t number;
	bool is_number;
} FIELDS[AUDIT_FIELD_COUNT] = {
#define NUMBER                                true
#define TEXT                                  false
#define AUDIT_FIELD(field_number, name, type) [AUDIT_##name] = { #name, field_number, type },
#include "plug/audit_field_list.h"
#undef AUDIT_FIELD
#undef NUMBER
#undef TEXT
};

const char *audit_field_name(enum audit_field field)
{
	MUST((unsigned)field < AUDIT_FIELD_COUNT);
	return FIELDS[field].name;
}

bool audit_field_is_number(enum audit_field field)
{
	MUST((unsigned)field < AUDIT_FIELD_COUNT);
	return FIELDS[field].is_number;
}

/* --- what a row says --- */

static void set_text(struct audit_row *row, enum audit_field field, const char *text, struct audit_room *room)
{
	const struct str given = str_from(text);
	char *target = field == AUDIT_detail ? room->detail : room->others[field];
	const size_t target_size = field == AUDIT_detail ? sizeof(room->detail) : sizeof(room->others[0]);

	if (text && !utf8_is_valid(given))
		text = str_display(given, target, target_size);
	row->fields[field] = (struct audit_value){ .is_null = !text, .text = str_from(text ? text : "") };
}

static void set_number(struct audit_row *row, enum audit_field field, int64_t number)
{
	row->fields[field] = (struct audit_value){ .number = number, .text = STR("") };
}

/* As the tables keep it: signed. */
static void set_u64(struct audit_row *row, enum audit_field field, uint64_t number)
{
	set_number(row, field, number > INT64_MAX ? INT64_MAX : (int64_t)number);
}

static void fill_attempt(struct audit_row *row, const struct store_receipt *receipt, struct audit_room *room)
{
	set_text(row, AUDIT_result, receipt->result == ERR_NONE ? "ok" : err_word(receipt->result), room);
	set_u64(row, AUDIT_size_bytes, receipt->size_bytes);
	set_text(row, AUDIT_digest, receipt->digest, room);
	set_text(row, AUDIT_node_addr, receipt->node_addr, room);
	set_text(row, AUDIT_client_addr, receipt->client_addr, room);
	set_text(row, AUDIT_request_id, receipt->request_id, room);
	set_text(row, AUDIT_user_agent, receipt->user_agent, room);
	set_text(row, AUDIT_disk_path, receipt->disk_path, room);
	set_number(row, AUDIT_started_us, receipt->started_wall_us);
	set_number(row, AUDIT_finished_us, receipt->finished_wall_us);
}

void audit_row_fill(struct audit_row *row, const struct store_audit *audit, const struct store_receipt *receipt,
		    struct audit_room *room)
{
	memset(row, 0, sizeof(*row));
	for (size_t i = 0; i < AUDIT_FIELD_COUNT; i++)
		row->fields[i] = (struct audit_value){ .is_null = true, .text = STR("") };
	set_number(row, AUDIT_at_us, audit->at_wall_us);
	set_text(row, AUDIT_kind, audit->kind, room);
	set_text(row, AUDIT_transfer_id, audit->transfer_id, room);
	set_text(row, AUDIT_user, audit->user, room);
	set_text(row, AUDIT_node_id, audit->node_id, room);
	set_text(row, AUDIT_outcome, audit->outcome, room);
	set_text(row, AUDIT_detail, audit->detail, room);
	set_u64(row, AUDIT_file_id, audit->file_id);
	set_u64(row, AUDIT_chunk_index, audit->chunk_index);
	set_text(row, AUDIT_algorithm, audit->algorithm, room);
	set_text(row, AUDIT_client_addr, audit->client_addr, room);
	set_text(row, AUDIT_request_id, audit->request_id, room);
	set_text(row, AUDIT_user_agent, audit->user_agent, room);
	if (receipt)
		fill_attempt(row, receipt, room);
}

/* --- its bytes --- */

/* Small pieces are gathered: the digest is called for many of them at once. */
struct audit_hasher {
	struct digest *digest;
	size_t used;
	uint8_t pieces[1024];
};

struct audit_hasher *audit_hasher_new(void)
{
	struct audit_hasher *hasher = must_zalloc(1, sizeof(*hasher));

	hasher->digest = digest_new(DIGEST_SHA256);
	return hasher;
}

void audit_hasher_free(struct audit_hasher **hasher)
{
	if (!*hasher)
		return;
	digest_free(&(*hasher)->digest);
	free(*hasher);
	*hasher = NULL;
}

static void put_flush(struct audit_hasher *hasher)
{
	digest_feed(hasher->digest, hasher->pieces, hasher->used);
	hasher->used = 0;
}

static void put_bytes(struct audit_hasher *hasher, const void *data, size_t size)
{
	if (size > sizeof(hasher->pieces) - hasher->used)
		put_flush(hasher);
	if (size > sizeof(hasher->pieces)) {
		digest_feed(hasher->digest, data, size);
		return;
	}
	if (size > 0)
		memcpy(hasher->pieces + hasher->used, data, size);
	hasher->used += size;
}

static void put_number(struct audit_hasher *hasher, uint64_t value, size_t size)
{
	uint8_t bytes[8];

	for (size_t i = 0; i < size; i++)
		bytes[i] = (uint8_t)(value >> (8 * (size - 1 - i)));
	put_bytes(hasher, bytes, size);
}

void audit_row_hash(struct audit_hasher *hasher, const struct audit_row *row, uint8_t target[AUDIT_HASH_SIZE])
{
	static const char FORM[] = "heng-audit-1\n";

	digest_restart(hasher->digest);
	hasher->used = 0;
	put_bytes(hasher, FORM, sizeof(FORM) - 1);
	put_bytes(hasher, row->prev, sizeof(row->prev));
	put_number(hasher, row->id, 8);
	for (size_t i = 0; i < AUDIT_FIELD_COUNT; i++) {
		const struct audit_value *value = &row->fields[i];

		if (value->is_null)
			continue;
		MUST(value->text.size <= UINT32_MAX);
		put_number(hasher, FIELDS[i].number, 1);
		if (FIELDS[i].is_number) {
			put_bytes(hasher, "i", 1);
			put_number(hasher, (uint64_t)value->number, 8);
		} else {
			put_bytes(hasher, "t", 1);
			put_number(hasher, value->text.size, 4);
			put_bytes(hasher, value->text.data, value->text.size);
		}
	}
	put_flush(hasher);
	digest_bytes(hasher->digest, target);
}

void audit_row_link(struct audit_hasher *hasher, struct audit_point *last, struct audit_row *row)
{
	row->id = last->id + 1;
	memcpy(row->prev, last->hash, sizeof(row->prev));
	audit_row_hash(hasher, row, row->hash);
	last->id = row->id;
	memcpy(last->hash, row->hash, sizeof(last->hash));
}

/* --- and whether they are those that were written --- */

static int broken(struct err *err, const struct audit_point *before, const struct audit_row *row, bool is_same)
{
	const uint64_t id = row->id;

	if (id <= before->id)
		return err_set(err, ERR_AUDIT_BROKEN,
			       "row %" PRIu64 " stands after row %" PRIu64 ": it was put in or moved", id, before->id);
	if (!is_same)
		return err_set(err, ERR_AUDIT_BROKEN,
			       "row %" PRIu64 " was changed: its fields do not give the hash it was written with", id);
	if (id == before->id + 2)
		return err_set(err, ERR_AUDIT_BROKEN,
			       "row %" PRIu64 " is missing: row %" PRIu64 " follows row %" PRIu64, id - 1, id,
			       before->id);
	if (id > before->id + 1)
		return err_set(err, ERR_AUDIT_BROKEN,
			       "rows %" PRIu64 " to %" PRIu64 " are missing: row %" PRIu64 " follows row %" PRIu64,
			       before->id + 1, id - 1, id, before->id);
	if (before->id == 0)
		return err_set(err, ERR_AUDIT_BROKEN,
			       "row %" PRIu64
			       " is not the first that was written: what was before it was removed, or it "
			       "was replaced",
			       id);
	return err_set(err, ERR_AUDIT_BROKEN,
		       "row %" PRIu64 " does not follow row %" PRIu64
		       " as it is now: one of the two was replaced, with a new "
		       "hash",
		       id, before->id);
}

int audit_row_check(struct audit_hasher *hasher, struct audit_point *last, const struct audit_row *row, struct err *err)
{
	const struct audit_point before = *last;
	uint8_t hash[AUDIT_HASH_SIZE];
	bool is_same;

	audit_row_hash(hasher, row, hash);
	is_same = memcmp(hash, row->hash, sizeof(hash)) == 0;
	/* What the row claims, not what it is: else one changed row would accuse its successor too. */
	last->id = row->id;
	memcpy(last->hash, row->hash, sizeof(last->hash));
	if (is_same && row->id == before.id + 1 && memcmp(row->prev, before.hash, sizeof(before.hash)) == 0)
		return 0;
	return broken(err, &before, row, is_same);
}
