/* A storage node: serves the chunk interface of docs/api.md on one disk, sends receipts to the scheduler, answers probes. */
#ifndef HENG_FOLDER_NODE_H
#define HENG_FOLDER_NODE_H

#include "base/conf.h"
#include "folder/secure.h"
#include "http/server.h"

struct node_conf {
	const char *node_id;   /* "": created once and kept in state_dir/node_id */
	const char *listen;    /* "127.0.0.1:7081"; port 0 picks one */
	const char *advertise; /* the address others use; "": the listening one */
	const char *state_dir; /* node_id, incarnation, receipts.journal, lock */
	const char *data_dir;  /* "": state_dir */
	const char *scheduler; /* URL */
	const char *cluster_key_file;
	const char *domain;
	int64_t weight_milli;
	uint64_t free_floor_bytes;
	int64_t free_floor_percent;
	int64_t clock_skew_us;
	int64_t sweep_interval_us, stray_after_us;
	uint64_t receipt_journal_bytes;
	const char *nonces; /* "": a file in state_dir; redis://host:port/db */
	const char *nonces_user, *nonces_password_file;
	int64_t threads, workers;
	int loop; /* enum loop_backend */
	struct secure_conf tls;
	bool is_insecure;
	int log_json;
};
extern const struct conf_row node_conf_rows[];

struct node;
int node_start(const struct node_conf *conf, struct node **ret_node,
	       struct err *err); /* serving and registered (or trying to) when it returns */
const struct sock_addr *node_addr(const struct node *node);
/* Takes over the cluster keys of a configuration that was read anew, and what the files of TLS hold now, while calls go on; of the rest nothing.
 * What cannot be used stays as it was. */
int node_reload(struct node *node, const struct node_conf *conf, struct err *err);
/* Every few seconds, from one thread, the one that reloads: looks whether the files of TLS have changed. */
void node_look(struct node *node);
void node_stop(struct node **node); /* lets running chunks finish for a moment */

#endif
