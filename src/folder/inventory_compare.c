#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "folder/disk.h"
#include "folder/peer.h"
#include "folder/held.h"
#include "folder/inventory_impl.h"

#define PAGE_ROWS          HELD_PAGE_MAX
#define RECEIPTS_MAX       512u /* in one commit */
#define CONNECT_TIMEOUT_US (2 * SEC_US)
#define CALL_TIMEOUT_US    (60 * SEC_US)
#define URL_SIZE           512
#define REQUEST_ID         "inventory"
#define USER_AGENT         "heng-scheduler/inventory"
#define ROW_STATES         (1u << CHUNK_PENDING | 1u << CHUNK_STORED | 1u << CHUNK_DIGEST_FAILED | 1u << CHUNK_LOST)

/* A page of the tables beside the node's list of the same range. */
struct page {
	struct inventory_worker *worker;
	struct store_transfer transfer; /* as it was before the tables were read */
	struct inventory_found *found;
	struct store_chunk *rows; /* that are on this node, or could be of use there; PAGE_ROWS places */
	size_t row_count, next_row;
	struct store_receipt *receipts; /* of what is to be adopted; RECEIPTS_MAX places */
	size_t receipt_count;
	struct store_chunk *missing; /* PAGE_ROWS places */
	size_t missing_count;
};

/* --- the tables --- */

/* By the tables. */
static bool is_here(const struct page *page, const struct store_chunk *row)
{
	const char *node_id = page->worker->node.id;

	return row->state == CHUNK_STORED &&
	       (strcmp(row->actual_node, node_id) == 0 || strcmp(row->copy_node, node_id) == 0);
}

static int keep_row(void *owner, const struct store_chunk *chunk)
{
	struct page *page = owner;

	/* What is stored elsewhere is no business of this node's, unless a second copy is wanted. */
	if (chunk->state == CHUNK_STORED && !is_here(page, chunk) &&
	    (page->transfer.copies < 2 || chunk->copy_node[0] != '\0'))
		return 0;
	page->rows[page->row_count++] = *chunk;
	return page->row_count == PAGE_ROWS;
}

/* Nothing is done on old facts: a merge may have taken chunks away, or given them up, since the page began. */
static int check_unchanged(struct page *page, struct err *err)
{
	struct store *store = page->worker->store;
	struct store_transfer now;
	int result = store->ops->transfer_get(store, page->transfer.id, &now, err);

	if (result == 0 && (now.version != page->transfer.version || now.state != TRANSFER_UPLOADING))
		result = err_set(err, ERR_VERSION_CONFLICT, "transfer %s changed meanwhile", now.id);
	return result;
}

static int adopt(struct page *page, struct err *err)
{
	struct store *store = page->worker->store;
	const size_t count = page->receipt_count;
	int result;

	page->receipt_count = 0;
	if (count == 0)
		return 0;
	result = check_unchanged(page, err);
	if (result == 0)
		result = store->ops->receipts(store, page->receipts, count, err);
	for (size_t i = 0; i < count && result == 0; i++)
		page->found->adopted_count += page->receipts[i].result == ERR_NONE;
	return result;
}

static int give_up_missing(struct page *page, struct err *err)
{
	struct store *store = page->worker->store;
	char why[STORE_REASON_SIZE];
	uint64_t lost_count = 0, kept_count = 0;
	int result;

	if (page->missing_count == 0)
		return 0;
	result = check_unchanged(page, err);
	snprintf(why, sizeof(why), "node %s does not have it any more", page->worker->node.id);
	if (result == 0)
		result = store->ops->chunks_lose(store, page->transfer.id, TRANSFER_UPLOADING, page->worker->node.id,
						 page->missing, page->missing_count, why, clock_wall_us(), &lost_count,
						 &kept_count, err);
	page->found->lost_count += lost_count;
	page->found->kept_count += kept_count;
	return result;
}

/* --- the comparison --- */

static void receipt_fill(const struct page *page, const struct held_chunk *held, struct store_receipt *receipt)
{
	const struct pool_node *node = &page->worker->node;
	const int64_t now_us = clock_wall_us();

	memset(receipt, 0, sizeof(*receipt));
	memcpy(receipt->transfer_id, page->transfer.id, sizeof(receipt->transfer_id));
	memcpy(receipt->user, page->transfer.user, sizeof(receipt->user));
	memcpy(receipt->node_id, node->id, sizeof(receipt->node_id));
	memcpy(receipt->node_addr, node->addr, sizeof(receipt->node_addr));
	memcpy(receipt->digest, held->digest, sizeof(receipt->digest));
	receipt->digest_kind = page->transfer.digest;
	receipt->file_id = held->file_id;
	receipt->chunk_index = held->chunk_index;
	receipt->size_bytes = held->size_bytes;
	snprintf(receipt->request_id, sizeof(receipt->request_id), REQUEST_ID);
	snprintf(receipt->user_agent, sizeof(receipt->user_agent), USER_AGENT);
	disk_chunk_path(page->transfer.id, held->file_id, held->chunk_index, receipt->disk_path,
			sizeof(receipt->disk_path));
	receipt->started_wall_us = receipt->finished_wall_us = now_us;
	receipt->outcome = ERR_NONE;
}

static void note_missing(struct page *page, const struct store_chunk *row)
{
	if (is_here(page, row))
		page->missing[page->missing_count++] = *row;
}

/* Rows and list are in the same order: what the list leaves out is not there. */
static int take_held(void *owner, const struct held_chunk *held, struct err *err)
{
	struct page *page = owner;
	const struct store_chunk *row;
	int order = 1;

	for (; page->next_row < page->row_count; page->next_row++) {
		row = &page->rows[page->next_row];
		order = held_compare(row->file_id, row->chunk_index, held->file_id, held->chunk_index);
		if (order >= 0)
			break;
		note_missing(page, row);
	}
	/* Stored elsewhere as well, or of no plan: goes with the transfer. */
	if (order != 0 || page->next_row == page->row_count)
		return 0;
	row = &page->rows[page->next_row++];
	/* Of a stored one, bytes that are not those of the receipt are for the merge to find: it has them removed before it asks for others. */
	if (is_here(page, row) || (row->state == CHUNK_STORED && strcmp(row->digest, held->digest) != 0) ||
	    held->size_bytes != row->size_bytes || held->kind != page->transfer.digest)
		return 0;
	receipt_fill(page, held, &page->receipts[page->receipt_count++]);
	return page->receipt_count == RECEIPTS_MAX ? adopt(page, err) : 0;
}

/* --- the node's list --- */

static int ask(struct inventory_worker *worker, const char *url, struct err *err)
{
	struct fetch_call *call = &worker->call;

	buf_fini(&call->answer);
	*call = FETCH_CALL_INIT;
	call->url = url;
	call->headers[0] = internal_key_header(worker->internal_key);
	call->connect_timeout_us = CONNECT_TIMEOUT_US;
	call->timeout_us = CALL_TIMEOUT_US;
	call->answer = BUF_INIT(HELD_ANSWER_MAX);
	call->is_interrupted = worker->is_stopping;
	return fetch_do(worker->fetch, call, err);
}

/* What lies before the next row is of no interest, so the list is wanted from there on. Whatever a node tells, each of its pages thus deals with a row at
 * least: it cannot lead from chunk to chunk for ever that no plan has, or a former one had. */
static void skip_to_row(const struct page *page, struct held_range *range)
{
	const struct store_chunk *row = &page->rows[page->next_row];

	range->after_file_id = row->chunk_index > 0 ? row->file_id : row->file_id - 1;
	range->after_chunk_index = row->chunk_index > 0 ? row->chunk_index - 1 : INT64_MAX;
}

static int compare_range(struct page *page, struct held_range range, struct err *err)
{
	const struct inventory_worker *worker = page->worker;
	bool has_more = true;
	char url[URL_SIZE];

	while (has_more && page->next_row < page->row_count) {
		int result;

		skip_to_row(page, &range);
		snprintf(url, sizeof(url),
			 "%s%s/internal/v1/transfer/%s/chunks?node=%s&digest=%s&after_file=%" PRIu64
			 "&after_chunk=%" PRIu64 "&last_file=%" PRIu64 "&last_chunk=%" PRIu64,
			 peer_scheme(worker->node.addr), worker->node.addr, page->transfer.id, worker->node.id,
			 digest_name(page->transfer.digest), range.after_file_id, range.after_chunk_index,
			 range.last_file_id, range.last_chunk_index);
		result = ask(page->worker, url, err);
		if (result == 0)
			result = held_parse(buf_str(&worker->call.answer), &range, take_held, page, &has_more, err);
		if (result < 0)
			return result;
	}
	for (; page->next_row < page->row_count; page->next_row++)
		note_missing(page, &page->rows[page->next_row]);
	return 0;
}

/* 1: there may be more; 0: that was all. The range's end is the page's last row. */
static int compare_page(struct page *page, struct held_range *range, struct err *err)
{
	struct store *store = page->worker->store;
	int result;

	page->row_count = page->next_row = page->missing_count = page->receipt_count = 0;
	result = store->ops->chunks(store, page->transfer.id, range->after_file_id, range->after_chunk_index,
				    ROW_STATES, SIZE_MAX, keep_row, page, err);
	if (result < 0 || page->row_count == 0)
		return result;
	range->last_file_id = page->rows[page->row_count - 1].file_id;
	range->last_chunk_index = page->rows[page->row_count - 1].chunk_index;
	result = compare_range(page, *range, err);
	if (result == 0)
		result = adopt(page, err);
	if (result == 0)
		result = give_up_missing(page, err);
	range->after_file_id = range->last_file_id;
	range->after_chunk_index = range->last_chunk_index;
	return result < 0 ? result : page->row_count == PAGE_ROWS;
}

static int compare_pages(struct page *page, struct err *err)
{
	struct held_range range = { .after_file_id = 0 };
	int result = 1;

	while (result > 0 && !atomic_load(page->worker->is_stopping))
		result = compare_page(page, &range, err);
	return result < 0 ? err_wrap(err, "comparing the chunks of transfer %s", page->transfer.id) : 0;
}

int inventory_compare(struct inventory_worker *worker, const char *transfer_id, struct inventory_found *found,
		      struct err *err)
{
	struct page page = { .worker = worker, .found = found };
	struct store *store = worker->store;
	int result = store->ops->transfer_get(store, transfer_id, &page.transfer, err);

	if (result < 0 || page.transfer.state != TRANSFER_UPLOADING)
		return result;
	page.rows = must_alloc(PAGE_ROWS * sizeof(*page.rows));
	page.missing = must_alloc(PAGE_ROWS * sizeof(*page.missing));
	page.receipts = must_alloc(RECEIPTS_MAX * sizeof(*page.receipts));
	result = compare_pages(&page, err);
	free(page.receipts);
	free(page.missing);
	free(page.rows);
	return result;
}
