#include "folder/keeper.h"
#include "folder/audit_mark.h"
#include "folder/peer.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "sys/fetch.h"

#define ROUND_US          (60 * SEC_US)
#define ROUND_MIN_US      (100 * MSEC_US)
#define GRACE_US          (3600 * SEC_US)
#define REMOVE_TIMEOUT_US (5 * SEC_US)
#define STEP_US           SEC_US
#define PROBES_WAIT_US    (10 * SEC_US)
#define PROBES_STEP_US    (50 * MSEC_US)
#define PAGE_MAX          64u
#define TOLD_MAX          256u

struct keeper {
	struct store *store;
	struct pool *pool;
	int64_t expiry_us, round_us;
	const struct internal_key *internal_key;
	struct fetch *fetch;
	pthread_t thread;
	bool is_thread_started;
	_Atomic bool is_stopping;
	pthread_mutex_t lock; /* protects the next two */
	char told[TOLD_MAX][ULID_SIZE];
	size_t told_count;
};

/* --- expiry --- */

struct page {
	struct store_transfer transfers[PAGE_MAX];
	size_t count;
};

static int page_keep(void *owner, const struct store_transfer *transfer)
{
	struct page *page = owner;

	page->transfers[page->count++] = *transfer;
	return page->count == PAGE_MAX;
}

/* 1: expired; 0: it has moved on meanwhile. */
static int expire_one(struct store *store, const char *id, int64_t before_wall_us, int64_t now_wall_us,
		      struct store_transfer *ret_transfer, struct err *err)
{
	char reason[STORE_REASON_SIZE], since[CLOCK_TEXT_SIZE];
	int result = store->ops->transfer_get(store, id, ret_transfer, err);

	if (result < 0)
		return err_wrap(err, "looking at transfer %s, which may have expired", id);
	/* Chunks that came since the list was made do not change the version: looked at once more. */
	if (ret_transfer->state != TRANSFER_UPLOADING || ret_transfer->updated_wall_us >= before_wall_us)
		return 0;
	snprintf(reason, sizeof(reason), "expired: no progress since %s",
		 clock_text(ret_transfer->updated_wall_us, since));
	result = store->ops->transfer_move(store, ret_transfer, TRANSFER_FAILED, reason, true, now_wall_us, err);
	if (result == -ERR_VERSION_CONFLICT)
		return 0;
	return result < 0 ? err_wrap(err, "ending transfer %s, which has expired", id) : 1;
}

static int expire_all(struct store *store, int64_t before_wall_us, int64_t now_wall_us, struct page *page,
		      void (*expired)(void *owner, const struct store_transfer *transfer), void *owner,
		      size_t *ret_count, struct err *err)
{
	size_t page_count;

	/* Those that end leave the list, so that its beginning is always what remains. */
	do {
		int result = store->ops->transfers_idle(store, before_wall_us, PAGE_MAX, page_keep, page, err);

		if (result < 0)
			return err_wrap(err, "looking for transfers that have expired");
		page_count = 0;
		for (size_t i = 0; i < page->count; i++) {
			struct store_transfer transfer;

			result = expire_one(store, page->transfers[i].id, before_wall_us, now_wall_us, &transfer, err);
			if (result < 0)
				return result;
			page_count += (size_t)result;
			if (result > 0)
				expired(owner, &transfer);
		}
		*ret_count += page_count;
		page->count = 0;
	} while (page_count > 0);
	return 0;
}

int keeper_expire(struct store *store, int64_t expiry_us, int64_t now_wall_us,
		  void (*expired)(void *owner, const struct store_transfer *transfer), void *owner, size_t *ret_count,
		  struct err *err)
{
	struct page *page = must_zalloc(1, sizeof(*page));
	int result = expire_all(store, now_wall_us - expiry_us, now_wall_us, page, expired, owner,
				(*ret_count = 0, ret_count), err);

	free(page);
	return result;
}

static void expired_told(void *owner, const struct store_transfer *transfer)
{
	log_say(LOG_INFO, "transfer %s of user %s has %s", transfer->id, transfer->user, transfer->reason);
	keeper_remove(owner, transfer->id);
}

/* --- removal --- */

struct removal {
	struct fetch_call call;
	char url[320];
	const char *node_id;
	bool is_asked;
};

static bool is_stopping(const struct keeper *keeper) { return atomic_load(&keeper->is_stopping); }

static void removal_ask(struct keeper *keeper, struct removal *removal, const struct pool_node *node,
			const char *transfer_id)
{
	removal->node_id = node->id;
	removal->call = FETCH_CALL_INIT;
	if (node->state == MEMBER_UNREACHABLE) {
		err_set(&removal->call.err, ERR_CONNECT, "the node cannot be reached");
		return;
	}
	snprintf(removal->url, sizeof(removal->url), "%s%s/internal/v1/transfer/%s", peer_scheme(node->addr),
		 node->addr, transfer_id);
	removal->call.method = "DELETE";
	removal->call.url = removal->url;
	removal->call.headers[0] = internal_key_header(keeper->internal_key);
	removal->call.connect_timeout_us = REMOVE_TIMEOUT_US;
	removal->call.timeout_us = REMOVE_TIMEOUT_US;
	removal->is_asked = true;
	fetch_start(keeper->fetch, &removal->call);
}

/* What came of it, for good: a row for each node. */
static int removal_record(struct keeper *keeper, const struct removal *removal, const struct store_transfer *transfer,
			  struct err *err)
{
	bool is_removed = removal->call.err.code == ERR_NONE;
	char detail[STORE_REASON_SIZE];
	const struct store_audit row = { .at_wall_us = clock_wall_us(),
					 .kind = "removed",
					 .transfer_id = transfer->id,
					 .user = transfer->user,
					 .node_id = removal->node_id,
					 .outcome = is_removed ? "ok" : err_word(removal->call.err.code),
					 .detail = detail };

	if (is_removed) {
		snprintf(detail, sizeof(detail), "all chunk files of the transfer: %.400s", transfer->reason);
	} else {
		snprintf(detail, sizeof(detail), "chunk files stay until the node's own sweep: %.400s",
			 removal->call.err.text);
		log_err(LOG_WARN, &removal->call.err,
			"node %s keeps chunk files of transfer %s, which failed; its own sweep will remove them",
			removal->node_id, transfer->id);
	}
	return keeper->store->ops->audit(keeper->store, &row, err);
}

/* Asks all nodes at once: any may have files of chunks whose receipt never came. False when the keeper stops meanwhile. */
static bool removal_run(struct keeper *keeper, struct removal *removals, const struct pool_node *nodes, size_t count,
			const char *transfer_id)
{
	for (size_t i = 0; i < count; i++)
		removal_ask(keeper, &removals[i], &nodes[i], transfer_id);
	while (fetch_running_count(keeper->fetch) > 0 && !is_stopping(keeper))
		fetch_step(keeper->fetch, STEP_US);
	if (fetch_running_count(keeper->fetch) == 0)
		return true;
	for (size_t i = 0; i < count; i++)
		if (removals[i].is_asked && removals[i].call.is_running)
			fetch_cancel(keeper->fetch, &removals[i].call);
	return false;
}

static int clean_nodes(struct keeper *keeper, const struct store_transfer *transfer, struct err *err)
{
	size_t limit = pool_list(keeper->pool, NULL, 0);
	struct pool_node *nodes = must_zalloc(limit + 1, sizeof(*nodes));
	struct removal *removals = must_zalloc(limit + 1, sizeof(*removals));
	size_t count = min_size(pool_list(keeper->pool, nodes, limit), limit);
	int result = 0;

	if (!removal_run(keeper, removals, nodes, count, transfer->id))
		result = err_set(err, ERR_WAITING, "the scheduler stops");
	for (size_t i = 0; i < count; i++) {
		if (result == 0)
			result = removal_record(keeper, &removals[i], transfer, err);
		buf_fini(&removals[i].call.answer);
	}
	free(removals);
	free(nodes);
	return result;
}

/* In this order: a crash before the last step has everything asked and recorded once more, a crash after it nothing. */
static void clean(struct keeper *keeper, const struct store_transfer *transfer)
{
	struct store *store = keeper->store;
	struct err err = ERR_INIT;
	uint64_t count = 0;
	int result = clean_nodes(keeper, transfer, &err);

	if (result == 0)
		result = store->ops->chunks_reopen(store, transfer->id, 0, NULL, CHUNK_LOST, transfer->reason,
						   clock_wall_us(), &count, &err);
	if (result == 0)
		log_say(LOG_INFO, "transfer %s is cleaned up: %" PRIu64 " chunks are given up", transfer->id, count);
	else if (!is_stopping(keeper))
		log_err(LOG_WARN, &err, "transfer %s is not cleaned up yet", transfer->id);
}

/* One that keeper_remove named. It may be cleaned already, by the list of all that is not. */
static bool clean_told(struct keeper *keeper)
{
	struct store_transfer transfer;
	struct err err = ERR_INIT;
	char id[ULID_SIZE];
	bool is_told;

	pthread_mutex_lock(&keeper->lock);
	is_told = keeper->told_count > 0;
	if (is_told)
		memcpy(id, keeper->told[--keeper->told_count], sizeof(id));
	pthread_mutex_unlock(&keeper->lock);
	if (!is_told)
		return false;
	if (keeper->store->ops->transfer_get(keeper->store, id, &transfer, &err) < 0)
		log_err(LOG_WARN, &err, "transfer %s cannot be cleaned up now", id);
	else if (transfer.state == TRANSFER_FAILED)
		clean(keeper, &transfer);
	return true;
}

static void clean_all(struct keeper *keeper, struct page *page)
{
	struct store *store = keeper->store;
	struct err err = ERR_INIT;
	char after[ULID_SIZE] = "";

	do {
		page->count = 0;
		if (store->ops->transfers_uncleaned(store, after, PAGE_MAX, page_keep, page, &err) < 0) {
			log_err(LOG_WARN, &err, "cannot look for failed transfers whose chunks are still there");
			return;
		}
		for (size_t i = 0; i < page->count && !is_stopping(keeper); i++) {
			clean(keeper, &page->transfers[i]);
			memcpy(after, page->transfers[i].id, sizeof(after));
		}
	} while (page->count == PAGE_MAX && !is_stopping(keeper));
}

/* --- the thread --- */

static void keep_round(struct keeper *keeper, bool is_expiring, struct page *page)
{
	struct err err = ERR_INIT;
	size_t count;

	if (is_expiring &&
	    keeper_expire(keeper->store, keeper->expiry_us, clock_wall_us(), expired_told, keeper, &count, &err) < 0)
		log_err(LOG_WARN, &err, "transfers that have expired stay for now");
	while (!is_stopping(keeper) && clean_told(keeper))
		;
	clean_all(keeper, page);
}

static bool are_probed(struct keeper *keeper)
{
	size_t limit = pool_list(keeper->pool, NULL, 0);
	struct pool_node *nodes = must_zalloc(limit + 1, sizeof(*nodes));
	size_t count = min_size(pool_list(keeper->pool, nodes, limit), limit);
	bool result = true;

	for (size_t i = 0; i < count; i++)
		result &= nodes[i].probed_mono_us != 0;
	free(nodes);
	return result;
}

/* After a start the addresses of nodes are those of last time, until a probe says who answers there now. */
static void await_probes(struct keeper *keeper)
{
	const int64_t until_us = clock_mono_us() + PROBES_WAIT_US;

	while (!is_stopping(keeper) && !are_probed(keeper) && clock_mono_us() < until_us)
		fetch_step(keeper->fetch, PROBES_STEP_US);
}

static void *keeper_main(void *owner)
{
	struct keeper *keeper = owner;
	struct page *page = must_zalloc(1, sizeof(*page));
	/* While the scheduler was away nobody could make progress: clients get some time to come back. */
	const int64_t expire_from_us = clock_mono_us() + min_i64(keeper->expiry_us, GRACE_US);

	int64_t marked_us = 0;
	uint64_t marked_id = 0;

	(void)pthread_setname_np(pthread_self(), "keeper");
	await_probes(keeper);
	while (!is_stopping(keeper)) {
		int64_t now_us = clock_mono_us(), next_us = now_us + keeper->round_us;

		audit_mark(keeper->store, now_us, &marked_us, &marked_id);
		keep_round(keeper, keeper->expiry_us > 0 && now_us >= expire_from_us, page);
		for (; now_us < next_us && !is_stopping(keeper); now_us = clock_mono_us())
			if (!clean_told(keeper))
				fetch_step(keeper->fetch, next_us - now_us);
	}
	free(page);
	return NULL;
}

void keeper_remove(struct keeper *keeper, const char *transfer_id)
{
	pthread_mutex_lock(&keeper->lock);
	/* Too many at once: they are found by the next round. */
	if (keeper->told_count < TOLD_MAX)
		MUST(str_copy(str_from(transfer_id), keeper->told[keeper->told_count++], ULID_SIZE));
	pthread_mutex_unlock(&keeper->lock);
	fetch_wake(keeper->fetch);
}

int keeper_start(const struct keeper_options *options, struct keeper **ret_keeper, struct err *err)
{
	struct keeper *keeper = must_zalloc(1, sizeof(*keeper));
	int result, number;

	keeper->store = options->store;
	keeper->pool = options->pool;
	keeper->expiry_us = options->expiry_us;
	keeper->round_us = options->expiry_us > 0 ? max_i64(ROUND_MIN_US, min_i64(ROUND_US, options->expiry_us / 4))
						  : ROUND_US;
	keeper->internal_key = options->internal_key;
	pthread_mutex_init(&keeper->lock, NULL);
	result = internal_fetch_new(keeper->internal_key, &keeper->fetch, err);
	if (result < 0) {
		keeper_stop(&keeper);
		return err_wrap(err, "starting the keeper of transfers");
	}
	number = pthread_create(&keeper->thread, NULL, keeper_main, keeper);
	if (number != 0) {
		keeper_stop(&keeper);
		return err_sys(err, ERR_SYSTEM, number, "cannot start the keeper's thread");
	}
	keeper->is_thread_started = true;
	*ret_keeper = keeper;
	return 0;
}

void keeper_stop(struct keeper **keeper_ref)
{
	struct keeper *keeper = *keeper_ref;

	if (!keeper)
		return;
	atomic_store(&keeper->is_stopping, true);
	if (keeper->is_thread_started) {
		fetch_wake(keeper->fetch);
		pthread_join(keeper->thread, NULL);
	}
	fetch_free(&keeper->fetch);
	pthread_mutex_destroy(&keeper->lock);
	free(keeper);
	*keeper_ref = NULL;
}
