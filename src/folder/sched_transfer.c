#include "folder/sched_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

#define LIST_LIMIT_DEFAULT 100u
#define LIST_LIMIT_MAX     1000u

/* --- whose transfer --- */

int sched_find(struct sched_call *c, struct store_transfer *ret_transfer)
{
	return sched_find_id(c, http_param(c->call, "id"), ret_transfer);
}

int sched_find_id(struct sched_call *c, struct str id, struct store_transfer *ret_transfer)
{
	char text[ULID_SIZE], shown[64];
	int result;

	str_display(id, shown, sizeof(shown));
	if (!ulid_is_valid(id.data, id.size) || !str_copy(id, text, sizeof(text)))
		return err_set(&c->err, ERR_NO_TRANSFER, "there is no transfer '%s'", shown);
	result = c->sched->store->ops->transfer_get(c->sched->store, text, ret_transfer, &c->err);
	if (result == -ERR_NO_TRANSFER)
		return err_set(&c->err, ERR_NO_TRANSFER, "there is no transfer '%s'", shown);
	if (result < 0)
		return err_wrap(&c->err, "looking up transfer %s", shown);
	/* In the same words: that another's transfer exists is nobody's business. */
	if (c->user->role == ROLE_UPLOADER && strcmp(ret_transfer->user, c->user->name) != 0) {
		sched_alert_foreign(c, ret_transfer);
		return err_set(&c->err, ERR_NO_TRANSFER, "there is no transfer '%s'", shown);
	}
	return 0;
}

int sched_find_to_write(struct sched_call *c, struct store_transfer *ret_transfer)
{
	int result = sched_find(c, ret_transfer);

	if (result == 0 && !sched_may_write(c->user))
		result = err_set(&c->err, ERR_FORBIDDEN, "user '%s' is an auditor, who may look but not change",
				 c->user->name);
	return result;
}

int sched_check_inventory(struct sched_call *c, const struct store_transfer *transfer)
{
	struct inventory *inventory = c->sched->inventory;

	if (transfer->state != TRANSFER_UPLOADING || transfer->created_wall_us >= inventory_began_wall_us(inventory) ||
	    inventory_is_settled(inventory))
		return 0;
	c->retry_after_us = SCHED_INVENTORY_RETRY_US;
	return err_set(&c->err, ERR_BUSY,
		       "the scheduler was started a moment ago and is asking the nodes which chunks they hold");
}

int sched_query_u64(struct sched_call *c, const char *name, uint64_t fallback, uint64_t *ret_value)
{
	char text[32], shown[64];
	size_t size = 0;

	*ret_value = fallback;
	if (!http_query(c->call, name, text, sizeof(text), &size))
		return 0;
	if (str_to_u64((struct str){ text, size }, ret_value))
		return 0;
	return err_set(&c->err, ERR_BAD_REQUEST, "the query's %s '%s' is not a number", name,
		       str_display((struct str){ text, size }, shown, sizeof(shown)));
}

/* --- the object --- */

void sched_json_nodes(struct json *json, struct sched *sched)
{
	struct pool_node *nodes = must_zalloc(POOL_NODES_MAX, sizeof(*nodes));
	size_t count = min_size(pool_list(sched->pool, nodes, POOL_NODES_MAX), POOL_NODES_MAX);

	json_open_list(json, "nodes");
	for (size_t i = 0; i < count; i++) {
		json_open(json, NULL);
		json_c(json, "id", nodes[i].id);
		json_c(json, "addr", nodes[i].addr);
		json_bool(json, "takes_work", nodes[i].takes_work);
		json_u64(json, "missed", nodes[i].missed_count);
		json_close(json);
	}
	json_close_list(json);
	free(nodes);
}

/* Whoever holds this key may send chunks: an auditor may not, and a dry run has no transfer to send to. */
static void json_transfer_key(struct json *json, struct sched_call *c, const struct store_transfer *transfer)
{
	struct ticket_keys keys;
	uint8_t key[TICKET_KEY_SIZE];
	char hex[2 * TICKET_KEY_SIZE + 1] = "";

	if (sched_may_write(c->user) && transfer->id[0] != '\0') {
		keyring_get(&c->sched->keyring, &keys);
		ticket_transfer_key(keys.keys[0].key, transfer->id, key);
		mem_wipe(&keys, sizeof(keys));
		hex_encode(key, sizeof(key), hex);
		mem_wipe(key, sizeof(key));
	}
	json_c(json, "transfer_key", hex);
	mem_wipe(hex, sizeof(hex));
}

void sched_json_transfer(struct json *json, struct sched_call *c, const struct store_transfer *transfer)
{
	char batch_enc[3 * STORE_BATCH_MAX + 1], final[PATH_TEXT_MAX], final_enc[3 * PATH_TEXT_MAX], crc[9];
	struct str batch = str_from(transfer->batch);

	snprintf(crc, sizeof(crc), "%08x", transfer->manifest_crc32c);
	percent_encode(batch, false, batch_enc, sizeof(batch_enc));
	merge_final_path(c->sched->merge, batch, final, sizeof(final));
	percent_encode(str_from(final), true, final_enc, sizeof(final_enc));
	json_c(json, "transfer_id", transfer->id);
	json_c(json, "batch_enc", batch_enc);
	json_c(json, "state", transfer_state_name(transfer->state));
	json_c(json, "digest", digest_name(transfer->digest));
	json_c(json, "seal", transfer->seal);
	json_c(json, "manifest_crc32c", crc);
	json_i64(json, "version", transfer->version);
	json_i64(json, "priority", transfer->priority);
	json_u64(json, "chunk_bytes", transfer->chunk_bytes);
	json_u64(json, "files", transfer->file_count);
	json_u64(json, "bytes", transfer->total_bytes);
	json_u64(json, "entries", transfer->entry_count);
	json_u64(json, "objects", transfer->object_count);
	json_u64(json, "chunks", transfer->chunk_count);
	json_u64(json, "stored_chunks", transfer->stored_chunk_count);
	json_u64(json, "stored_bytes", transfer->stored_bytes);
	json_u64(json, "copies", transfer->copies > 1 ? transfer->copies : 1);
	json_u64(json, "copied_chunks", transfer->copied_chunk_count);
	json_bool(json, "is_copies_waived", transfer->is_copies_waived);
	json_transfer_key(json, c, transfer);
	json_c(json, "final", final);
	json_c(json, "final_enc", final_enc);
	json_bool(json, "is_in_place",
		  transfer->state == TRANSFER_COMPLETED && merge_batch_is_in_place(c->sched->merge, batch));
	json_i64(json, "server_time_us", clock_wall_us());
}

static int json_details(struct json *json, struct sched_call *c, const struct store_transfer *transfer)
{
	uint64_t counts[CHUNK_MERGED + 1] = { 0 };
	uint64_t merging_files, merging_bytes;
	struct store *store = c->sched->store;
	int result = store->ops->chunk_counts(store, transfer->id, counts, &c->err);

	if (result < 0)
		return err_wrap(&c->err, "counting the chunks of transfer %s", transfer->id);
	merge_progress(c->sched->merge, transfer->id, &merging_files, &merging_bytes);
	json_bool(json, "is_resumed", false);
	json_c(json, "reason", transfer->reason);
	json_bool(json, "is_retryable", transfer->is_retryable);
	json_u64(json, "pending_chunks", counts[CHUNK_PENDING]);
	json_u64(json, "lost_chunks", counts[CHUNK_LOST]);
	json_u64(json, "digest_failed_chunks", counts[CHUNK_DIGEST_FAILED]);
	json_u64(json, "merged_chunks", counts[CHUNK_MERGED]);
	json_u64(json, "merging_files", merging_files);
	json_u64(json, "merging_bytes", merging_bytes);
	json_i64(json, "created_us", transfer->created_wall_us);
	json_i64(json, "updated_us", transfer->updated_wall_us);
	json_i64(json, "completed_us", transfer->completed_wall_us);
	hooks_json(c->sched->hooks, transfer->id, json);
	return 0;
}

/* --- GET one, its nodes, and many --- */

int sched_answer_transfer(struct sched_call *c, const struct store_transfer *transfer)
{
	struct json json;

	json_init(&json, &c->answer);
	json_open(&json, NULL);
	sched_json_transfer(&json, c, transfer);
	int result = json_details(&json, c, transfer);
	sched_json_nodes(&json, c->sched);
	json_close(&json);
	return result;
}

static int run_get(struct sched_call *c)
{
	struct store_transfer transfer;
	int result = sched_find(c, &transfer);

	return result < 0 ? result : sched_answer_transfer(c, &transfer);
}

void sched_begin_get(struct http_call *call, void *app)
{
	struct sched_call *c = sched_client_call(call, app, run_get);

	if (c)
		sched_call_go(c);
}

static int run_transfer_nodes(struct sched_call *c)
{
	struct store_transfer transfer;
	struct json json;
	int result = sched_find(c, &transfer);

	if (result < 0)
		return result;
	json_init(&json, &c->answer);
	json_open(&json, NULL);
	sched_json_nodes(&json, c->sched);
	json_transfer_key(&json, c, &transfer);
	json_i64(&json, "server_time_us", clock_wall_us());
	json_close(&json);
	return 0;
}

void sched_begin_transfer_nodes(struct http_call *call, void *app)
{
	struct sched_call *c = sched_client_call(call, app, run_transfer_nodes);

	if (c)
		sched_call_go(c);
}

struct list_walk {
	struct sched_call *c;
	struct json *json;
};

static int list_each(void *owner, const struct store_transfer *transfer)
{
	struct list_walk *walk = owner;

	json_open(walk->json, NULL);
	sched_json_transfer(walk->json, walk->c, transfer);
	json_c(walk->json, "reason", transfer->reason);
	json_i64(walk->json, "created_us", transfer->created_wall_us);
	json_i64(walk->json, "updated_us", transfer->updated_wall_us);
	json_i64(walk->json, "completed_us", transfer->completed_wall_us);
	json_close(walk->json);
	return walk->json->buf->is_failed;
}

static int list_states(struct sched_call *c, unsigned *ret_mask)
{
	enum transfer_state state;
	char text[256];
	struct str rest, word;
	size_t size = 0;

	*ret_mask = ~0u;
	if (!http_query(c->call, "state", text, sizeof(text), &size) || size == 0)
		return 0;
	*ret_mask = 0;
	rest = (struct str){ text, size };
	while (str_cut(&rest, ',', &word)) {
		char shown[64];

		if (!transfer_state_from_name(word, &state))
			return err_set(&c->err, ERR_BAD_REQUEST, "'%s' is no state of a transfer",
				       str_display(word, shown, sizeof(shown)));
		*ret_mask |= 1u << state;
	}
	return 0;
}

static int run_list(struct sched_call *c)
{
	struct json json;
	struct list_walk walk = { .c = c, .json = &json };
	const char *user = c->user->role == ROLE_UPLOADER ? c->user->name : NULL;
	struct store *store = c->sched->store;
	uint64_t limit;
	unsigned mask;
	int result = list_states(c, &mask);

	if (result == 0)
		result = sched_query_u64(c, "limit", LIST_LIMIT_DEFAULT, &limit);
	if (result < 0)
		return result;
	json_init(&json, &c->answer);
	json_open(&json, NULL);
	json_open_list(&json, "transfers");
	result = store->ops->transfer_list(store, user, mask, limit < LIST_LIMIT_MAX ? (size_t)limit : LIST_LIMIT_MAX,
					   list_each, &walk, &c->err);
	if (result < 0)
		return err_wrap(&c->err, "listing transfers");
	json_close_list(&json);
	json_i64(&json, "server_time_us", clock_wall_us());
	json_close(&json);
	return 0;
}

void sched_begin_list(struct http_call *call, void *app)
{
	struct sched_call *c = sched_client_call(call, app, run_list);

	if (c)
		sched_call_go(c);
}
