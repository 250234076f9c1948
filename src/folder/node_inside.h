/* What node.c (the node's life), node_identity.c (who it is), node_health.c (how it is), node_chunk.c (giving and removing chunks), node_put.c (taking chunks) and node_kept.c
 * (chunks whose receipts were kept while the scheduler was away) share. */
#ifndef HENG_FOLDER_NODE_INSIDE_H
#define HENG_FOLDER_NODE_INSIDE_H

#include <pthread.h>
#include <stdatomic.h>

#include "folder/alert.h"
#include "folder/courier.h"
#include "folder/disk.h"
#include "folder/keyring.h"
#include "folder/node.h"
#include "folder/node_clock.h"
#include "folder/node_report.h"
#include "folder/peer.h"
#include "folder/secure.h"
#include "folder/sweep.h"
#include "plug/nonce.h"
#include "plug/self.h"
#include "wire/ticket.h"

struct node {
	char id[STORE_NODE_ID_SIZE];
	char addr_text[STORE_ADDR_SIZE]; /* where others reach us */
	char incarnation[33];
	char start_id[33]; /* of this process: tells the scheduler that the node was started anew */
	struct keyring keyring;
	int64_t clock_skew_us;
	struct node_clock clock;
	int lock_fd, data_lock_fd;
	struct disk *disk;
	struct work *work;
	struct nonce_store *nonces;
	struct alerts *alerts;
	char *scheduler_url; /* without a slash at its end; owned */
	struct courier *courier;
	struct sweep *sweep;
	struct self *self;
	struct node_report *report;
	struct http_server *server;
	struct tls *tls; /* NULL: none */
	struct secure_watch tls_watch;
	atomic_bool is_drained; /* by the scheduler's last probe: nothing new is taken */

	pthread_mutex_t health_lock; /* protects the rest */
	bool is_checking;
	int64_t check_started_us, checked_us;
	char diagnosis[400]; /* of the last self-check; "": passed */
};

/* PUT /api/v1/upload/chunk/:transfer/:file/:chunk */
void node_put_begin(struct http_call *call, void *app);
/* The memory of nonces that the configuration asks for (node_put.c). */
int node_open_nonces(struct node *node, const struct node_conf *conf, struct err *err);

/* A stored chunk whose receipt the scheduler refused with `code`: will nobody ever ask for it? is_repeat: it was here before. (node_kept.c) */
bool node_is_useless(enum err_code code, bool is_repeat);
/* The chunk that a receipt is of; its texts are the receipt's. (node_kept.c) */
struct disk_chunk node_receipt_chunk(const struct store_receipt *receipt);
/* The courier's callbacks; owner: the node. */
bool node_kept_is_stored(void *owner, const struct store_receipt *receipt);
void node_kept_refused(void *owner, const struct store_receipt *receipt, bool is_repeat, enum err_code code);

/* node_alert.c */
int node_alerts_start(struct node *node, struct err *err);
/* Whatever its error, this one is an alert. */
void node_alert(struct node *node, const struct http_call *call, const struct err *err);
/* Of the HTTP server: a call was refused. */
void node_refused(void *app, const struct http_call *call, const struct err *err);
void node_metrics_begin(struct http_call *call, void *app); /* node_metrics.c */

/* GET /internal/v1/transfer/:transfer/chunks (node_inventory.c) */
void node_list_begin(struct http_call *call, void *app);
/* GET /health (node_health.c) */
void node_health_begin(struct http_call *call, void *app);
/* GET /internal/v1/chunk/:transfer/:file/:chunk, the same with /place, and DELETE; DELETE /internal/v1/transfer/:transfer (node_chunk.c) */
void node_read_begin(struct http_call *call, void *app);
void node_place_begin(struct http_call *call, void *app);
void node_remove_chunk_begin(struct http_call *call, void *app);
void node_remove_begin(struct http_call *call, void *app);
/* Is it the scheduler? It has a key of the cluster's, and shows its certificate where there are any. */
bool node_is_internal(const struct node *node, const struct http_call *call);
/* Answers a caller who is not the scheduler (no internal key; or no certificate of it, where there are any), and returns true. */
bool node_refuse_stranger(const struct node *node, struct http_call *call);

/* Reads id and incarnation from conf->state_dir, or makes them; and makes the start's (node_identity.c). */
int node_open_identity(struct node *node, const struct node_conf *conf, struct err *err);
bool node_id_is_valid(const char *id);

/* The ids of a chunk, from the path's parameters; -ERR_BAD_REQUEST. */
int node_chunk_ids(const struct http_call *call, char ret_transfer_id[ULID_SIZE], uint64_t *ret_file_id,
		   uint64_t *ret_chunk_index, struct err *err);

#endif
