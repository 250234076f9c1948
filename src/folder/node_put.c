#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "folder/node_inside.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"

#define TURN_LIMIT_US     (5 * SEC_US)
#define TURN_DELAY_US     (10 * MSEC_US)
#define TURN_DELAY_MAX_US (160 * MSEC_US)
#define ANSWER_MAX        (4 * KIB)
#define NONCE_LIMIT       (1024 * 1024)

/* One chunk on its way to the disk. It passes between the call's loop and the pool, and belongs to whichever has it:
 *   begin (loop) -> disk_begin (pool) -> body: piece (loop) -> disk_write (pool) -> ... -> disk_commit (pool) -> courier -> answer (loop) */
struct node_put {
	struct node *node;
	struct http_call *call; /* NULL once it is gone */
	struct job job;
	struct timer timer; /* waiting for the chunk's turn: no pool thread is kept for that */
	int64_t turn_until_us, turn_delay_us;
	struct courier_parcel parcel; /* its receipt holds the ids and facts of the chunk from the start */
	struct disk_put *disk_put;
	struct str piece; /* being written */
	char nonce[TICKET_NONCE_SIZE];
	int64_t nonce_expires_wall_us;
	bool is_nonce_used; /* it was shown to the memory of nonces */
	bool is_here;       /* of a request that was made before: the chunk is stored here */
	int result;
	struct err err; /* why it failed; once set, what still comes of the body is not written */
	bool is_repeat;
	uint64_t told_count; /* the disk's, when the receipt was sent */
	/* For the node's report. */
	bool is_counted, is_write;
	int64_t submitted_us;
	int64_t service_us; /* in the pool and on the disk: what the node takes, whatever the client's line and the scheduler take */
};

/* What the node itself is to blame for; refusals and clients that give up are not. */
static bool is_own_failure(enum err_code code)
{
	return code == ERR_DISK || code == ERR_SYSTEM || code == ERR_NO_MEMORY || code == ERR_INTERNAL;
}

static void put_free(struct node_put *put)
{
	const bool is_failed = is_own_failure(put->err.code);

	MUST(put->disk_put == NULL);
	if (put->is_counted)
		self_ended(put->node->self, put->service_us, is_failed, put->is_write || is_failed, clock_mono_us());
	free(put);
}

static bool put_submit(struct node_put *put, void (*run)(struct job *job),
		       void (*done)(struct job *job, struct loop *home))
{
	put->job = (struct job){ .run = run, .done = done, .owner = put };
	put->submitted_us = clock_mono_us();
	return work_submit(put->node->work, &put->job, http_loop(put->call));
}

/* Each job's done begins with it. */
static void put_back(struct node_put *put) { put->service_us += max_i64(0, clock_mono_us() - put->submitted_us); }

static void busy(struct node_put *put)
{
	err_set(&put->err, ERR_BUSY, "the node has too much waiting for its disk");
	err_hint(&put->err, "try again in a moment");
}

/* --- attempts that fail --- */

static void attempt_told(struct courier_parcel *parcel, struct loop *home UNUSED) { free(parcel); }

/* The scheduler keeps a row of every attempt to write a chunk; nobody waits for this one. */
static void tell_attempt(const struct node_put *put, enum err_code outcome)
{
	struct courier_parcel *parcel = must_zalloc(1, sizeof(*parcel));

	parcel->receipt = put->parcel.receipt;
	parcel->receipt.outcome = outcome;
	parcel->receipt.finished_wall_us = node_clock_wall_us(&put->node->clock);
	parcel->done = attempt_told;
	courier_send(put->node->courier, parcel);
}

/* Answers with put->err. Frees put. */
static void fail(struct node_put *put)
{
	/* Waiting for a turn or for the pool was no attempt to write, nor is a repeated request, which is an alert. */
	if (put->err.code != ERR_BUSY && put->err.code != ERR_NONCE_REPLAYED)
		tell_attempt(put, put->err.code);
	http_reply_err(put->call, &put->err);
	put_free(put);
}

/* --- stored: the receipt, and what the scheduler says to it --- */

/* 202 where the receipt is durable here and the scheduler will hear of it later: the client need not send the chunk again, only wait. */
static void answer_stored(struct node_put *put)
{
	const bool is_kept = put->parcel.is_kept;
	struct buf body = BUF_INIT(ANSWER_MAX);
	struct json json;

	json_init(&json, &body);
	json_open(&json, NULL);
	json_c(&json, "state", is_kept ? "stored_pending" : "stored");
	json_c(&json, "node", put->node->id);
	json_bool(&json, "is_repeat", put->is_repeat);
	json_i64(&json, "server_time_us", node_clock_wall_us(&put->node->clock));
	json_close(&json);
	http_reply_json(put->call, is_kept ? 202 : 200, &body);
	buf_fini(&body);
	put_free(put);
}

static void answer_refused(struct node_put *put)
{
	http_reply_err(put->call, &put->parcel.err);
	put_free(put);
}

static void remove_run(struct job *job)
{
	struct node_put *put = job->owner;
	const struct disk_chunk chunk = node_receipt_chunk(&put->parcel.receipt);

	/* What cannot be removed now goes when the transfer is removed; the refusal is what the client must hear. */
	(void)disk_remove_bytes(put->node->disk, &chunk, put->told_count, NULL);
}

static void remove_done(struct job *job, struct loop *home UNUSED) { answer_refused(job->owner); }

static void receipt_done(struct courier_parcel *parcel, struct loop *home UNUSED)
{
	struct node_put *put = parcel->owner;

	if (parcel->err.code == ERR_NONE)
		answer_stored(put);
	else if (!node_is_useless(parcel->err.code, put->is_repeat) || !put_submit(put, remove_run, remove_done))
		answer_refused(put);
}

static void send_receipt(struct node_put *put)
{
	put->parcel.receipt.outcome = ERR_NONE;
	put->parcel.receipt.finished_wall_us = node_clock_wall_us(&put->node->clock);
	put->parcel.is_repeat = put->is_repeat;
	put->told_count = disk_told_count(put->node->disk);
	put->parcel.done = receipt_done;
	put->parcel.owner = put;
	put->parcel.home = http_loop(put->call);
	courier_send(put->node->courier, &put->parcel);
}

/* --- the body --- */

static void write_run(struct job *job)
{
	struct node_put *put = job->owner;

	put->result = disk_write(put->disk_put, put->piece.data, put->piece.size, &put->err);
	if (put->result < 0)
		disk_abort(&put->disk_put);
}

/* A failed write is told when the next piece or the end comes: until the piece is given back, the body is still the server's. */
static void write_done(struct job *job, struct loop *home UNUSED)
{
	struct node_put *put = job->owner;

	put_back(put);
	http_body_resume(put->call);
}

static int on_data(struct http_call *call, struct str piece)
{
	struct node_put *put = http_state(call);

	if (put->err.code == ERR_NONE) {
		put->piece = piece;
		if (put_submit(put, write_run, write_done))
			return HTTP_BODY_WAIT;
		/* The queue is full, so the abort runs here: it only closes and unlinks. */
		disk_abort(&put->disk_put);
		busy(put);
	}
	fail(put);
	return -ERR_BUSY;
}

static void commit_run(struct job *job)
{
	struct node_put *put = job->owner;

	put->result = disk_commit(&put->disk_put, &put->err);
}

static void commit_done(struct job *job, struct loop *home UNUSED)
{
	struct node_put *put = job->owner;

	put_back(put);
	if (put->result < 0)
		fail(put);
	else
		send_receipt(put);
}

static void on_end(struct http_call *call)
{
	struct node_put *put = http_state(call);

	if (put->err.code == ERR_NONE) {
		if (put_submit(put, commit_run, commit_done))
			return;
		disk_abort(&put->disk_put);
		busy(put);
	}
	fail(put);
}

static void abort_run(struct job *job)
{
	struct node_put *put = job->owner;

	disk_abort(&put->disk_put);
}

static void abort_done(struct job *job, struct loop *home UNUSED) { put_free(job->owner); }

static void on_gone(struct http_call *call, const struct err *err)
{
	struct node_put *put = http_state(call);

	put->call = NULL;
	tell_attempt(put, put->err.code == ERR_NONE ? err->code : put->err.code);
	/* Without a home, since the loop may end before the pool does. */
	put->job = (struct job){ .run = abort_run, .done = abort_done, .owner = put };
	if (work_submit(put->node->work, &put->job, NULL))
		return;
	disk_abort(&put->disk_put);
	put_free(put);
}

static const struct http_sink put_sink = { on_data, on_end, on_gone };

/* --- nonces --- */

/* What configurations in memory leave out is as good as empty. */
int node_open_nonces(struct node *node, const struct node_conf *conf, struct err *err)
{
	const struct nonce_redis_options options = {
		.url = conf->nonces,
		.user = conf->nonces_user,
		.password_file = conf->nonces_password_file,
	};
	char path[PATH_MAX];

	if (conf->nonces && conf->nonces[0] != '\0')
		return nonce_redis_new(&options, &node->nonces, err);
	if (snprintf(path, sizeof(path), "%s/nonces", conf->state_dir) >= (int)sizeof(path))
		return err_set(err, ERR_CONFIG, "state_dir is too long");
	return nonce_file_open(path, NONCE_LIMIT, clock_wall_us(), &node->nonces, err);
}

/* A nonce that was used: a gateway sent a request again, or somebody copied one. Whether the chunk is here is what a client wants to know. */
static int replayed(struct node_put *put)
{
	const struct store_receipt *receipt = &put->parcel.receipt;

	put->is_here = disk_has(put->node->disk, receipt->transfer_id, receipt->file_id, receipt->chunk_index);
	err_set(&put->err, ERR_NONCE_REPLAYED,
		"this request was made before with the same nonce; chunk %" PRIu64 " of file %" PRIu64 " is %s",
		receipt->chunk_index, receipt->file_id, put->is_here ? "stored here" : "not stored here");
	err_hint(&put->err, "sign each attempt anew");
	return -ERR_NONCE_REPLAYED;
}

/* Once for each request, however often it asks for its chunk's turn. Here, as it may cost a write or a call. */
static int use_nonce(struct node_put *put)
{
	struct nonce_store *nonces = put->node->nonces;

	if (put->is_nonce_used)
		return 0;
	const int r = nonces->ops->use(nonces, str_from(put->nonce), put->nonce_expires_wall_us,
				       node_clock_wall_us(&put->node->clock), &put->err);
	put->is_nonce_used = r == 0;
	return r == -ERR_NONCE_REPLAYED ? replayed(put) : r;
}

/* --- beginning --- */

static void begin_run(struct job *job)
{
	struct node_put *put = job->owner;
	const struct disk_chunk chunk = node_receipt_chunk(&put->parcel.receipt);

	put->err = ERR_INIT;
	put->result = use_nonce(put);
	if (put->result < 0)
		return;
	put->result = disk_begin(put->node->disk, &chunk, &put->disk_put, &put->err);
	/* What is here already is as good as ever. */
	if (put->result == DISK_WRITE && atomic_load(&put->node->is_drained)) {
		disk_abort(&put->disk_put);
		put->result = err_set(&put->err, ERR_NODE_DRAINED,
				      "node %s is being drained by an operator and takes nothing new", put->node->id);
	}
}

static void begin_done(struct job *job, struct loop *home);

static void turn_again(struct timer *timer, int64_t now_us UNUSED)
{
	struct node_put *put = timer->owner;

	if (put_submit(put, begin_run, begin_done))
		return;
	busy(put);
	fail(put);
}

static void begin_done(struct job *job, struct loop *home)
{
	struct node_put *put = job->owner;

	put_back(put);
	if (put->result == DISK_WRITE) {
		put->err = ERR_INIT;
		put->is_write = true;
		/* The first piece may come, or the call be found gone, before this returns. */
		http_take_body(put->call, &put_sink);
		return;
	}
	if (put->result == DISK_HAVE) {
		put->is_repeat = true;
		send_receipt(put);
		return;
	}
	if (put->result == -ERR_NONCE_REPLAYED)
		http_reply_header(put->call, "X-Chunk-State", put->is_here ? "stored" : "absent");
	/* Another writer has the chunk's turn. Busy by the system's word (no descriptors left) is for the sender to hear at once. */
	if (put->result == -ERR_BUSY && put->err.sys_errno == 0 && loop_now_us(home) < put->turn_until_us) {
		put->timer = (struct timer){ .fire = turn_again, .owner = put };
		loop_timer_set(home, &put->timer, put->turn_delay_us);
		put->turn_delay_us = min_i64(2 * put->turn_delay_us, TURN_DELAY_MAX_US);
		return;
	}
	fail(put);
}

int node_chunk_ids(const struct http_call *call, char ret_transfer_id[ULID_SIZE], uint64_t *ret_file_id,
		   uint64_t *ret_chunk_index, struct err *err)
{
	const struct str transfer_id = http_param(call, "transfer");

	if (!ulid_is_valid(transfer_id.data, transfer_id.size) || !str_copy(transfer_id, ret_transfer_id, ULID_SIZE))
		return err_set(err, ERR_BAD_REQUEST, "the transfer id in the path is not a ULID");
	if (!str_to_u64(http_param(call, "file"), ret_file_id) || *ret_file_id == 0 || *ret_file_id > INT64_MAX)
		return err_set(err, ERR_BAD_REQUEST, "the file id in the path is not a number from 1");
	if (!str_to_u64(http_param(call, "chunk"), ret_chunk_index) || *ret_chunk_index > INT64_MAX)
		return err_set(err, ERR_BAD_REQUEST, "the chunk index in the path is not a number from 0");
	return 0;
}

/* As much of it as fits: it goes into an audit row and decides nothing. */
static void copy_cut(struct str text, char *target, size_t target_size)
{
	text.size = min_size(text.size, target_size - 1);
	(void)str_copy(text, target, target_size);
}

/* The first that is there counts. */
static bool read_digest(const struct http_call *call, struct store_receipt *receipt)
{
	static const enum digest_kind ORDER[] = { DIGEST_SHA256, DIGEST_MD5, DIGEST_SM3 };

	for (size_t i = 0; i < COUNT_OF(ORDER); i++) {
		const struct str digest = http_header(call, digest_header(ORDER[i]));

		if (digest.size == 0)
			continue;
		receipt->digest_kind = ORDER[i];
		return digest_hex_is_valid(ORDER[i], digest) &&
		       str_copy(digest, receipt->digest, sizeof(receipt->digest));
	}
	return false;
}

/* What the request says of itself. The token is looked at before the rest, so that a stranger learns nothing from our other complaints. */
static int read_request(struct node_put *put, struct str *ret_token, struct err *err)
{
	const struct http_call *call = put->call;
	struct store_receipt *receipt = &put->parcel.receipt;
	const int64_t body_bytes = http_body_size(call);

	*ret_token = http_header(call, "X-Auth-Token");
	if (ret_token->size == 0)
		return err_set(err, ERR_UNAUTHENTICATED, "the request has no X-Auth-Token");
	if (node_chunk_ids(call, receipt->transfer_id, &receipt->file_id, &receipt->chunk_index, err) < 0)
		return -ERR_BAD_REQUEST;
	if (!read_digest(call, receipt))
		return err_set(err, ERR_BAD_REQUEST,
			       "the chunk's digest (X-Chunk-SHA256, X-Chunk-MD5 or X-Chunk-SM3) is missing or not "
			       "lower-case hex");
	if (body_bytes < 0)
		return err_set(err, ERR_LENGTH_REQUIRED, "a chunk is sent with a Content-Length");
	if (!str_to_u64(http_header(call, "X-Chunk-Size"), &receipt->size_bytes) ||
	    receipt->size_bytes != (uint64_t)body_bytes)
		return err_set(err, ERR_CHUNK_SIZE, "X-Chunk-Size is missing or is not the Content-Length, %" PRId64,
			       body_bytes);
	return 0;
}

static void fill_receipt(struct node_put *put, const struct ticket *ticket)
{
	struct store_receipt *receipt = &put->parcel.receipt;
	char client[SOCK_TEXT_SIZE];

	copy_cut(str_from(put->node->id), receipt->node_id, sizeof(receipt->node_id));
	copy_cut(str_from(put->node->addr_text), receipt->node_addr, sizeof(receipt->node_addr));
	copy_cut(str_from(sock_addr_text(http_peer(put->call), client)), receipt->client_addr,
		 sizeof(receipt->client_addr));
	copy_cut(str_from(http_request_id(put->call)), receipt->request_id, sizeof(receipt->request_id));
	copy_cut(str_from(ticket->user), receipt->user, sizeof(receipt->user));
	copy_cut(http_header(put->call, "User-Agent"), receipt->user_agent, sizeof(receipt->user_agent));
	disk_chunk_path(receipt->transfer_id, receipt->file_id, receipt->chunk_index, receipt->disk_path,
			sizeof(receipt->disk_path));
	receipt->started_wall_us = node_clock_wall_us(&put->node->clock);
}

/* Everything that can be said without the disk. */
static int authorize(struct node_put *put, struct err *err)
{
	struct node *node = put->node;
	const int64_t now_wall_us = node_clock_wall_us(&node->clock);
	struct store_receipt *receipt = &put->parcel.receipt;
	struct ticket_keys keys;
	struct ticket ticket;
	struct str token;
	int r = read_request(put, &token, err);

	if (r < 0)
		return r;
	const struct ticket_request request = {
		.transfer_id = receipt->transfer_id,
		.file_id = receipt->file_id,
		.chunk_index = receipt->chunk_index,
		.size_bytes = receipt->size_bytes,
		.digest_hex = str_from(receipt->digest),
	};
	keyring_get(&node->keyring, &keys);
	r = ticket_check(&keys, token, &request, now_wall_us, node->clock_skew_us, &ticket, put->nonce,
			 &put->nonce_expires_wall_us, err);
	mem_wipe(&keys, sizeof(keys));
	if (r < 0)
		return r;
	/* The signature covers the digits; of two kinds with as many, only the header tells which they are. */
	if (receipt->digest_kind != ticket.digest)
		return err_set(err, ERR_BAD_REQUEST, "this transfer's chunks are named by their %s digest, in %s",
			       digest_name(ticket.digest), digest_header(ticket.digest));
	fill_receipt(put, &ticket);
	return 0;
}

void node_put_begin(struct http_call *call, void *app)
{
	struct node_put *put = must_zalloc(1, sizeof(*put));
	int r;

	put->node = app;
	put->call = call;
	put->turn_delay_us = TURN_DELAY_US;
	put->turn_until_us = loop_now_us(http_loop(call)) + TURN_LIMIT_US;
	http_set_state(call, put);
	r = authorize(put, &put->err);
	if (r < 0) {
		/* Signed by who holds the key, and more than the ticket allows: no client of ours does that. */
		if (r == -ERR_NO_CHUNK || r == -ERR_CHUNK_SIZE)
			node_alert(put->node, call, &put->err);
		http_reply_err(call, &put->err);
		put_free(put);
		return;
	}
	put->is_counted = true;
	self_began(put->node->self);
	if (put_submit(put, begin_run, begin_done))
		return;
	busy(put);
	fail(put);
}
