/* What the scheduler's sources share and nobody else sees. */
#ifndef HENG_FOLDER_SCHED_IMPL_H
#define HENG_FOLDER_SCHED_IMPL_H

#include <pthread.h>

#include "base/json.h"
#include "folder/alert.h"
#include "folder/final.h"
#include "folder/fold.h"
#include "folder/guard.h"
#include "folder/inventory.h"
#include "folder/keeper.h"
#include "folder/keyring.h"
#include "folder/merge.h"
#include "folder/plan.h"
#include "folder/pool.h"
#include "folder/pulled.h"
#include "folder/peer.h"
#include "folder/sched.h"
#include "folder/users.h"
#include "plug/store.h"
#include "sys/logfile.h"
#include "wire/ticket.h"

#define SCHED_CHUNK_BYTES_MIN    ((uint64_t)64 * KIB)
#define SCHED_CHUNK_BYTES_MAX    ((uint64_t)64 * MIB)
#define SCHED_COPIES_MAX         2u
#define SCHED_PLANNERS           2u /* manifests planned at once */
#define SCHED_PAGE_CHUNKS_MAX    2000u
#define SCHED_MANIFEST_MAX       ((uint64_t)8 * GIB)
#define SCHED_DIGESTS_MAX        ((uint64_t)2 * GIB)
#define SCHED_RECEIPTS_MAX       ((uint64_t)4 * MIB)
#define SCHED_FINISHED_MAX       4096u /* transfers asked about in one call */
#define SCHED_REGISTER_MAX       ((uint64_t)16 * KIB)
#define SCHED_ORDER_MAX          ((uint64_t)4 * KIB)
#define SCHED_BUCKET_RANGE_MAX   ((uint64_t)16 * MIB) /* pull_file.c asks for no more */
#define SCHED_ANSWER_MAX         (16 * MIB)
#define SCHED_NO_SPACE_RETRY_US  (60 * SEC_US)
#define SCHED_INVENTORY_RETRY_US SEC_US
#define PATH_TEXT_MAX            4608

/* One of a few planners at work: its batch is nobody else's meanwhile, and its space is spoken for. */
struct sched_claim {
	bool is_taken;
	uint64_t number; /* later ones have higher ones */
	char user[STORE_USER_SIZE];
	char batch[STORE_BATCH_MAX + 1];
	uint64_t bytes, entries;
	uint64_t node_bytes; /* with all copies */
};

struct sched {
	struct store *store;
	struct pool *pool;
	struct merge *merge;
	struct hooks *hooks;
	struct final_s3 *bucket; /* the final store, unless it is the folder final_dir */
	struct keeper *keeper;
	struct inventory *inventory;
	struct profile profile;
	struct logfile *decisions; /* NULL: none is kept */
	bool is_every_place;
	struct work *work;  /* short calls on the store */
	struct work *plans; /* its threads are the planners */
	struct http_server *server;
	struct tls *tls; /* NULL: none */
	struct secure_watch tls_watch;
	bool is_insecure; /* nodes without TLS are taken by a scheduler with it */
	struct keyring keyring;
	struct users *users;
	struct guard guard;
	struct alerts *alerts;
	struct work *provers; /* its thread checks keys by Argon2id */
	char *state_dir, *spool_dir, *staging_dir, *final_dir;
	int lock_fd, final_fd;
	struct fold fold; /* how names are compared in staging, when we started */
	uint64_t chunk_bytes, final_free_floor_bytes;
	uint64_t transfer_bytes_max, transfer_entries_max; /* of one transfer; 0: none */
	unsigned copies;
	int64_t started_mono_us;
	int64_t ticket_life_us, probe_interval_us;
	pthread_mutex_t claim_lock; /* protects claims, claim_count */
	struct sched_claim claims[SCHED_PLANNERS];
	uint64_t claim_count; /* that there ever were */
	struct pulled pulled;
	char *archive_dir;            /* of the audit's old rows */
	pthread_mutex_t archive_lock; /* one archives at a time; protects what is in the folder */
};

/* --- one call (sched_call.c) --- the body's pieces and then the call itself run as jobs; the answer is given on the call's loop. */
struct sched_call {
	struct sched *sched;
	struct http_call *call;
	struct sched_account account;
	const struct sched_account *user; /* `account`, once it is known: before check, take and run. NULL: internal */
	bool is_unproven;                 /* whose key it is costs an Argon2id, on a pool thread */
	bool is_counted;                  /* as a failure of its caller's, before it is known to be one */
	/* Once the user is known, on the call's loop: may the call be made at all? Before any of its body is taken. NULL: it may. */
	int (*check)(struct sched_call *c);
	uint64_t body_limit_bytes, body_bytes;
	/* On a pool thread, for each piece of the body. NULL: the body is collected in `body`. */
	int (*take)(struct sched_call *c, struct str piece);
	int (*run)(struct sched_call
			   *c); /* on a pool thread of `work`, after the body: fills status and answer, or fails */
	void (*drop)(struct sched_call *c); /* frees state; NULL allowed */
	struct work *work;
	void *state;
	struct buf body;
	struct buf answer;
	const char *type; /* of the answer; NULL: JSON */
	/* Instead of `answer`: so many bytes of a file, which belongs to the call. -1: no file. */
	int file_fd;
	uint64_t file_offset, file_bytes;
	char content_range[80]; /* that header's value, or "" */
	int status;
	int64_t retry_after_us;
	int result;
	struct err err;
	/* sched_call.c's own. */
	struct job job;
	struct str piece;
};
/* From begin. Fill take, drop, state, limits, type, work as needed, then sched_call_go. It answers and frees itself. */
struct sched_call *sched_call_new(struct sched *sched, struct http_call *call, int (*run)(struct sched_call *c));
void sched_call_go(struct sched_call *c);
/* Answers with the error instead of going. */
void sched_call_refuse(struct sched_call *c, const struct err *err);

/* --- who calls (sched_auth.c) --- */
int sched_auth_init(struct sched *sched, struct err *err);
void sched_auth_fini(struct sched *sched);
/* Users and cluster keys of the configuration, together or not at all. */
int sched_auth_load(struct sched *sched, const struct sched_conf *conf, struct err *err);
/* Whose call is it? 0: c->user is set. USERS_UNPROVEN: sched_auth_prove, on a pool thread, can tell. Negative: c->err says why not. */
int sched_auth_find(struct sched_call *c);
int sched_auth_prove(struct sched_call *c);
void sched_auth_undo(struct sched_call *c); /* it is not going to be told: no failure of the caller's */
bool sched_auth_is_internal(const struct sched *sched, const struct http_call *call);
/* Does the scheduler serve with TLS; and must nodes prove by a certificate who they are? */
bool sched_serves_tls(const struct sched *sched);
bool sched_wants_certificates(const struct sched *sched);
/* May the caller of an internal call speak for that node? False only where certificates are wanted, and it shows another's. */
bool sched_is_node(const struct sched_call *c, const char *node_id);
/* -ERR_FORBIDDEN when not. */
int sched_check_node(struct sched_call *c, const char *node_id);
/* begin of a client's call: it may go, or it is answered and NULL returned. Who calls is known before check, take and run, not yet in begin. */
struct sched_call *sched_client_call(struct http_call *call, void *app, int (*run)(struct sched_call *c));
struct sched_call *sched_internal_call(struct http_call *call, void *app, int (*run)(struct sched_call *c));
static inline bool sched_may_write(const struct sched_account *user) { return user->role != ROLE_AUDITOR; }

/* --- alerts (sched_alert.c) --- */
int sched_alerts_start(struct sched *sched, struct err *err); /* after the store */
/* Of the HTTP server: a call was refused. */
void sched_refused(void *app, const struct http_call *call, const struct err *err);
/* An uploader asked for another's transfer. */
void sched_alert_foreign(struct sched_call *c, const struct store_transfer *transfer);
void sched_begin_alerts(struct http_call *call, void *app);

void sched_begin_metrics(struct http_call *call, void *app); /* sched_metrics.c */

/* --- the transfer of a call's path (sched_transfer.c) --- another's is as good as none */
int sched_find(struct sched_call *c, struct store_transfer *ret_transfer);
/* The same of a transfer that the query names. */
int sched_find_id(struct sched_call *c, struct str id, struct store_transfer *ret_transfer);
/* The same, and the caller may change it. */
int sched_find_to_write(struct sched_call *c, struct store_transfer *ret_transfer);
/* The transfer object of docs/api.md, without the closing brace: the caller adds to it. */
void sched_json_transfer(struct json *json, struct sched_call *c, const struct store_transfer *transfer);
void sched_json_nodes(struct json *json, struct sched *sched);
/* The whole answer of GET: the object, the state's counts and times, the nodes. */
int sched_answer_transfer(struct sched_call *c, const struct store_transfer *transfer);
/* -ERR_BUSY, with Retry-After, while the tables may lack what nodes hold of the transfer: just after the scheduler's start. */
int sched_check_inventory(struct sched_call *c, const struct store_transfer *transfer);
/* A decimal query argument; fallback when it is absent. */
int sched_query_u64(struct sched_call *c, const char *name, uint64_t fallback, uint64_t *ret_value);

/* --- one transfer, to go on with (sched_resume.c) --- */
struct resume_ask {
	const char *transfer_id;
	struct str batch; /* empty: whatever it is */
	enum digest_kind digest;
	const char *seal;     /* "": not encrypted */
	uint64_t chunk_bytes; /* 0: whatever it is */
	int manifest_fd;
	const struct plan_facts *facts;
};
/* The caller's own, not at its end, and of the same folder; else -ERR_NO_TRANSFER, -ERR_STATE or -ERR_OTHER_FOLDER, which names the first entries
 * that differ. */
int sched_resume(struct sched_call *c, const struct resume_ask *ask, struct store_transfer *ret_transfer);

/* --- the profile, and the log of what is decided by it (sched_decisions.c) --- */
int sched_load_profile(struct sched *sched, const char *path, struct err *err);
int sched_open_decisions(struct sched *sched, const struct sched_conf *conf, struct err *err);

/* --- what is spoken for (sched_need.c) --- */
struct sched_need {
	uint64_t node_bytes;     /* still to be sent to nodes, with all copies */
	uint64_t bytes, entries; /* of the folders */
};
/* Of all transfers that are open or being planned, of one user or of all (NULL). own: the caller's claim: neither it nor later ones count.
 * except_id: a transfer that does not count, since it is about to go or to be another; NULL: none. */
int sched_need(struct sched *sched, const char *user, const struct sched_claim *own, const char *except_id,
	       struct sched_need *ret_need, struct err *err);
/* -ERR_BUSY while another call has claimed the batch. */
int sched_claim(struct sched *sched, const char *user, struct str batch, const struct plan_facts *facts,
		unsigned copies, struct sched_claim **ret_claim, struct err *err);
void sched_unclaim(struct sched *sched, struct sched_claim *claim);
uint64_t sched_all_copies(uint64_t bytes, unsigned copies);

/* --- space (sched_space.c) --- */
/* Is there room for a transfer of this size beside all that sched_need counts? */
int sched_space_check(struct sched *sched, const struct plan_facts *facts, unsigned copies,
		      const struct sched_claim *own, const char *except_id, struct err *err);

/* --- quotas (sched_quota.c) --- */
/* May the user have a transfer of this size beside its others, and may anybody? -ERR_QUOTA. old: what the folder takes the place of (superseded,
 * or revised), or NULL: that does not count, and a folder that is no larger is never refused. */
int sched_quota_check(struct sched *sched, const struct sched_account *user, const struct plan_facts *facts,
		      const struct sched_claim *own, const struct store_transfer *old, struct err *err);

/* The CRC-32C that the caller says its manifest has (sched_create.c). */
int sched_read_crc(struct sched_call *c, uint32_t *ret_crc32c);
/* Revises the plan of a transfer of the caller's as it was read, and reads it again (sched_revise.c). facts: of the whole manifest with the changes.
 * claim: the call's own. -ERR_VERSION_CONFLICT when it moved meanwhile. */
int sched_revise(struct sched_call *c, struct store_transfer *transfer, const struct plan_change *changes, size_t count,
		 const struct plan_facts *facts, const struct sched_claim *claim);

/* --- second copies (sched_copies.c) --- */
/* Has every chunk its copies? -ERR_INCOMPLETE when some lack one that a node could take. When none could, and nothing has changed about that for a
 * while, fewer will do: that is waived in the store, with an audit row, and *transfer is read anew. */
int sched_copies_check(struct sched_call *c, struct store_transfer *transfer);
/* A push of a transfer under way that asks for another number of copies than the first one did. */
int sched_copies_ask(struct sched_call *c, struct store_transfer *transfer, unsigned copies);

/* --- routes' begins --- */
void sched_begin_create(struct http_call *call, void *app);
void sched_begin_get(struct http_call *call, void *app);
void sched_begin_list(struct http_call *call, void *app);
void sched_begin_plan(struct http_call *call, void *app);
void sched_begin_chunks(struct http_call *call, void *app);
void sched_begin_transfer_nodes(struct http_call *call, void *app);
void sched_begin_manifest(struct http_call *call, void *app);
void sched_begin_file(struct http_call *call, void *app);
void sched_begin_digests(struct http_call *call, void *app);
void sched_begin_revise(struct http_call *call, void *app);
void sched_begin_complete(struct http_call *call, void *app);
void sched_begin_cancel(struct http_call *call, void *app);
void sched_begin_nodes(struct http_call *call, void *app);
void sched_begin_node_order(struct http_call *call, void *app); /* sched_order.c */
void sched_begin_register(struct http_call *call, void *app);
void sched_begin_receipts(struct http_call *call, void *app);
void sched_begin_reports(struct http_call *call, void *app);
void sched_begin_finished(struct http_call *call, void *app);
void sched_begin_audit(struct http_call *call, void *app); /* sched_audit.c, as the next two */
void sched_begin_audit_head(struct http_call *call, void *app);
void sched_begin_entry(struct http_call *call, void *app);
void sched_begin_archive(struct http_call *call, void *app); /* sched_archive.c */
void sched_begin_removed(struct http_call *call, void *app); /* sched_removed.c */

#endif
