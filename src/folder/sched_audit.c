/* The audit, asked: rows by what they say, the end of their chain, and where a file's bytes went. Who asks is in the audit too. */
#include "folder/sched_audit.h"
#include "folder/sched_impl.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "plug/audit_line.h"
#include "wire/manifest.h"

#define ROWS_DEFAULT  1000u
#define ROWS_MAX      5000u
#define ANSWER_ENOUGH (8 * MIB) /* a page ends there, whatever it was asked for */
#define WORD_SIZE     65

/* --- the file of a path --- */

struct path_walk {
	struct str path;
	struct sched_entry *ret;
};

static int on_entry(void *owner, const struct store_entry *entry)
{
	struct path_walk *walk = owner;

	if (!str_eq(entry->path, walk->path))
		return 0;
	*walk->ret = (struct sched_entry){ .is_found = true,
					   .seq = entry->seq,
					   .type = entry->type,
					   .size_bytes = entry->size_bytes,
					   .file_id = entry->file_id,
					   .offset = entry->object_offset };
	memcpy(walk->ret->digest, entry->digest, sizeof(entry->digest));
	return 1;
}

static int find_entry(struct sched_call *c, const struct store_transfer *transfer, struct str path,
		      struct sched_entry *ret)
{
	struct store *store = c->sched->store;
	struct path_walk walk = { path, ret };
	char shown[300];
	int result;

	*ret = (struct sched_entry){ .is_found = false };
	result = store->ops->entries(store, transfer->id, 0, UINT64_MAX, on_entry, &walk, &c->err);
	if (result < 0)
		return err_wrap(&c->err, "looking for a path in transfer %s", transfer->id);
	if (!ret->is_found)
		return err_set(&c->err, ERR_BAD_REQUEST, "transfer %s has no entry '%s'", transfer->id,
			       str_display(path, shown, sizeof(shown)));
	if (ret->file_id > 0 && ret->size_bytes > 0 && transfer->chunk_bytes > 0) {
		ret->first_chunk = ret->offset / transfer->chunk_bytes;
		ret->last_chunk = (ret->offset + ret->size_bytes - 1) / transfer->chunk_bytes;
	}
	return 0;
}

/* The query's path; *ret_is_given: there is one. target holds MANIFEST_PATH_MAX + 1. */
static int query_path(struct sched_call *c, char *target, struct str *ret_path, bool *ret_is_given)
{
	size_t size = 0;

	*ret_is_given = http_query_has(c->call, "path");
	*ret_path = (struct str){ target, 0 };
	if (!*ret_is_given)
		return 0;
	if (http_query(c->call, "path", target, MANIFEST_PATH_MAX + 1, &size))
		ret_path->size = size;
	if (size == 0)
		return err_set(&c->err, ERR_BAD_REQUEST, "the query's path has not 1 to %d bytes", MANIFEST_PATH_MAX);
	return 0;
}

static int run_entry(struct sched_call *c)
{
	char path_room[MANIFEST_PATH_MAX + 1];
	struct store_transfer transfer;
	struct sched_entry entry;
	struct json json;
	struct str path;
	bool is_given;
	int result = sched_find(c, &transfer);

	if (result == 0)
		result = query_path(c, path_room, &path, &is_given);
	if (result == 0 && !is_given)
		result = err_set(&c->err, ERR_BAD_REQUEST, "the query names no path");
	if (result == 0)
		result = find_entry(c, &transfer, path, &entry);
	if (result < 0)
		return result;
	json_init(&json, &c->answer);
	json_open(&json, NULL);
	json_u64(&json, "seq", entry.seq);
	json_str(&json, "type", (struct str){ &entry.type, 1 });
	json_u64(&json, "size", entry.size_bytes);
	json_c(&json, "digest", entry.digest);
	json_u64(&json, "file_id", entry.file_id);
	json_u64(&json, "offset", entry.offset);
	json_u64(&json, "first_chunk", entry.first_chunk);
	json_u64(&json, "last_chunk", entry.last_chunk);
	json_i64(&json, "server_time_us", clock_wall_us());
	json_close(&json);
	return 0;
}

void sched_begin_entry(struct http_call *call, void *app)
{
	struct sched_call *c = sched_client_call(call, app, run_entry);

	if (c)
		sched_call_go(c);
}

/* --- what is asked --- */

/* A query's words live as long as the question. */
struct question {
	struct audit_query query;
	char transfer_id[WORD_SIZE], user[WORD_SIZE], node_id[WORD_SIZE], kind[WORD_SIZE], outcome[WORD_SIZE];
	char path_room[MANIFEST_PATH_MAX + 1];
};

/* NULL when it is absent. A word that is too long fits nothing, and is refused so that it is not cut to one that does. */
static int query_word(struct sched_call *c, const char *name, char target[WORD_SIZE], const char **ret_word)
{
	size_t size = 0;

	*ret_word = NULL;
	if (!http_query_has(c->call, name))
		return 0;
	if (!http_query(c->call, name, target, WORD_SIZE, &size) || size == 0 || memchr(target, '\0', size))
		return err_set(&c->err, ERR_BAD_REQUEST, "the query's %s has not 1 to %d bytes", name, WORD_SIZE - 1);
	*ret_word = target;
	return 0;
}

/* A number that the tables can hold. */
static int query_number(struct sched_call *c, const char *name, uint64_t fallback, uint64_t *ret_value)
{
	char text[32];
	size_t size;

	if (http_query_has(c->call, name) && !http_query(c->call, name, text, sizeof(text), &size))
		return err_set(&c->err, ERR_BAD_REQUEST, "the query's %s is not a number", name);
	int result = sched_query_u64(c, name, fallback, ret_value);
	if (result == 0 && *ret_value > INT64_MAX)
		result = err_set(&c->err, ERR_BAD_REQUEST, "the query's %s is beyond 2^63", name);
	return result;
}

/* "FILE.CHUNK.ID", as a page ended with. */
static int query_place(struct sched_call *c, struct audit_place *ret)
{
	uint64_t *const parts[] = { &ret->file_id, &ret->chunk_index, &ret->id };
	char text[80];
	struct str rest = { text, 0 }, part;
	bool is_good;

	if (!http_query_has(c->call, "after"))
		return 0;
	is_good = http_query(c->call, "after", text, sizeof(text), &rest.size);
	for (size_t i = 0; i < COUNT_OF(parts); i++)
		is_good = is_good && str_cut(&rest, '.', &part) && str_to_u64(part, parts[i]) && *parts[i] <= INT64_MAX;
	return is_good && rest.size == 0
		       ? 0
		       : err_set(&c->err, ERR_BAD_REQUEST, "the query's after is no place that a page ended with");
}

static int query_file(struct sched_call *c, struct question *question, const struct store_transfer *transfer)
{
	struct audit_query *query = &question->query;
	struct sched_entry entry = { .is_found = false };
	struct str path;
	bool is_path;
	uint64_t file_id, chunk, first, last;
	int result = query_path(c, question->path_room, &path, &is_path);

	if (result == 0)
		result = query_number(c, "file_id", INT64_MAX, &file_id);
	if (result == 0)
		result = query_number(c, "chunk", INT64_MAX, &chunk);
	if (result == 0)
		result = query_number(c, "first_chunk", chunk != INT64_MAX ? chunk : 0, &first);
	if (result == 0)
		result = query_number(c, "last_chunk", chunk, &last);
	if (result == 0 && is_path)
		result = find_entry(c, transfer, path, &entry);
	if (result < 0)
		return result;
	query->has_file = is_path || file_id != INT64_MAX;
	query->file_id = is_path ? entry.file_id : file_id;
	/* Of a path they count from the file's first, of a file id from the object's. */
	query->first_chunk = entry.first_chunk + first;
	query->last_chunk = !is_path || last < entry.last_chunk - entry.first_chunk ? entry.first_chunk + last
										    : entry.last_chunk;
	if (!query->has_file && (first > 0 || last != INT64_MAX))
		return err_set(&c->err, ERR_BAD_REQUEST, "a chunk is one of a file: name path or file_id");
	if (query->has_file && !query->transfer_id)
		return err_set(&c->err, ERR_BAD_REQUEST, "a file is one of a transfer: name the transfer");
	if (is_path && entry.file_id == 0)
		return err_set(&c->err, ERR_BAD_REQUEST, "that entry has no bytes, so no chunk was sent for it");
	return 0;
}

/* An uploader asks about transfers of their own; others need no transfer, and may ask about one that the tables do not know. */
static int query_transfer(struct sched_call *c, struct question *question, struct store_transfer *ret_transfer)
{
	int result = query_word(c, "transfer", question->transfer_id, &question->query.transfer_id);

	if (result < 0)
		return result;
	if (c->user->role == ROLE_UPLOADER && !question->query.transfer_id)
		return err_set(&c->err, ERR_FORBIDDEN,
			       "user '%s' is an uploader, who may ask about a transfer of their own: name one",
			       c->user->name);
	if (c->user->role == ROLE_UPLOADER || http_query_has(c->call, "path")) {
		if (!question->query.transfer_id)
			return err_set(&c->err, ERR_BAD_REQUEST, "a file is one of a transfer: name the transfer");
		return sched_find_id(c, str_from(question->query.transfer_id), ret_transfer);
	}
	return 0;
}

static int read_question(struct sched_call *c, struct question *question)
{
	struct audit_query *query = &question->query;
	struct store_transfer transfer;
	uint64_t limit = 0, from = 0, to = 0;
	int result;

	memset(question, 0, sizeof(*question));
	result = query_transfer(c, question, &transfer);
	if (result == 0)
		result = query_file(c, question, &transfer);
	if (result == 0)
		result = query_word(c, "user", question->user, &query->user);
	if (result == 0)
		result = query_word(c, "node", question->node_id, &query->node_id);
	if (result == 0)
		result = query_word(c, "kind", question->kind, &query->kind);
	if (result == 0)
		result = query_word(c, "outcome", question->outcome, &query->outcome);
	if (result == 0)
		result = query_number(c, "from_us", 0, &from);
	if (result == 0)
		result = query_number(c, "to_us", 0, &to);
	if (result == 0)
		result = query_number(c, "to_id", 0, &query->to_id);
	if (result == 0)
		result = query_number(c, "limit", ROWS_DEFAULT, &limit);
	if (result == 0)
		result = query_place(c, &query->after);
	if (result < 0)
		return result;
	query->from_wall_us = (int64_t)from;
	query->to_wall_us = (int64_t)to;
	query->limit = limit < 1 ? 1 : limit < ROWS_MAX ? (size_t)limit : ROWS_MAX;
	return 0;
}

/* --- who saw what --- */

void sched_audit_note(const struct sched_call *c, const char *kind, const char *outcome, const char *transfer_id,
		      const char *detail, struct store_audit *ret_row, struct sched_audit_room *room)
{
	const struct str agent = http_header(c->call, "User-Agent");

	sock_addr_text(http_peer(c->call), room->client_addr);
	(void)snprintf(room->user_agent, sizeof(room->user_agent), "%.*s",
		       (int)min_size(agent.size, sizeof(room->user_agent) - 1), agent.data ? agent.data : "");
	*ret_row = (struct store_audit){ .at_wall_us = clock_wall_us(),
					 .kind = kind,
					 .outcome = outcome,
					 .transfer_id = transfer_id,
					 .user = c->user->name,
					 .detail = detail,
					 .client_addr = room->client_addr,
					 .request_id = http_request_id(c->call),
					 .user_agent = room->user_agent };
}

static void describe(struct buf *text, const char *name, const char *word)
{
	if (word)
		buf_printf(text, "%s%s=%s", text->size > 0 ? " " : "", name, word);
}

/* Durable before the first row leaves. */
static int record_read(struct sched_call *c, const struct question *question)
{
	const struct audit_query *query = &question->query;
	struct store *store = c->sched->store;
	struct buf detail = BUF_INIT(KIB);
	struct sched_audit_room room;
	struct store_audit row;
	int result;

	describe(&detail, "user", query->user);
	describe(&detail, "node", query->node_id);
	describe(&detail, "kind", query->kind);
	describe(&detail, "outcome", query->outcome);
	if (query->has_file)
		buf_printf(&detail, "%sfile_id=%" PRIu64, detail.size > 0 ? " " : "", query->file_id);
	buf_printf(&detail, "%safter=%" PRIu64 ".%" PRIu64 ".%" PRIu64 " limit=%zu", detail.size > 0 ? " " : "",
		   query->after.file_id, query->after.chunk_index, query->after.id, query->limit);
	sched_audit_note(c, "audit", "read", query->transfer_id, buf_cstr(&detail), &row, &room);
	result = store->ops->audit(store, &row, &c->err);
	buf_fini(&detail);
	return result < 0 ? err_wrap(&c->err, "recording who reads the audit") : 0;
}

/* --- the rows --- */

static int on_row(void *owner, const struct audit_row *row)
{
	struct sched_call *c = owner;

	audit_line_write(&c->answer, row);
	buf_append_c(&c->answer, "\n");
	return c->answer.size > ANSWER_ENOUGH;
}

static int run_audit(struct sched_call *c)
{
	struct store *store = c->sched->store;
	struct question question;
	struct audit_place place = { 0 };
	struct audit_head head;
	struct json json;
	char text[80];
	bool is_more = false;
	int result = read_question(c, &question);

	if (result == 0)
		result = store->ops->audit_head(store, &head, &c->err);
	/* The rows that tell of this reading are not part of it, or it might never end. */
	if (result == 0 && question.query.to_id == 0)
		question.query.to_id = head.last.id;
	if (result == 0)
		result = record_read(c, &question);
	if (result == 0 && question.query.to_id > 0)
		result = store->ops->audit_rows(store, &question.query, on_row, c, &place, &is_more, &c->err);
	if (result < 0)
		return err_wrap(&c->err, "reading the audit");
	(void)snprintf(text, sizeof(text), "%" PRIu64 ".%" PRIu64 ".%" PRIu64, place.file_id, place.chunk_index,
		       place.id);
	json_init(&json, &c->answer);
	json_open(&json, NULL);
	json_bool(&json, "more", is_more);
	json_c(&json, "after", text);
	json_u64(&json, "to_id", question.query.to_id);
	json_i64(&json, "server_time_us", clock_wall_us());
	json_close(&json);
	buf_append_c(&c->answer, "\n");
	c->type = "application/x-ndjson";
	return 0;
}

void sched_begin_audit(struct http_call *call, void *app)
{
	struct sched_call *c = sched_client_call(call, app, run_audit);

	if (c)
		sched_call_go(c);
}

/* --- the end of the chain --- anybody with a key may keep it as a witness: it tells nothing else */

static int run_head(struct sched_call *c)
{
	struct store *store = c->sched->store;
	struct audit_head head;
	struct json json;
	char hex[AUDIT_HASH_HEX_SIZE];

	if (store->ops->audit_head(store, &head, &c->err) < 0)
		return err_wrap(&c->err, "reading where the audit's chain stands");
	json_init(&json, &c->answer);
	json_open(&json, NULL);
	json_u64(&json, "id", head.last.id);
	hex_encode(head.last.hash, AUDIT_HASH_SIZE, hex);
	json_c(&json, "hash", hex);
	json_u64(&json, "anchor_id", head.anchor.id);
	hex_encode(head.anchor.hash, AUDIT_HASH_SIZE, hex);
	json_c(&json, "anchor_hash", hex);
	json_i64(&json, "server_time_us", clock_wall_us());
	json_close(&json);
	return 0;
}

void sched_begin_audit_head(struct http_call *call, void *app)
{
	struct sched_call *c = sched_client_call(call, app, run_head);

	if (c)
		sched_call_go(c);
}
