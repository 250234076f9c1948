/* The scheduler: takes manifests, plans, gives tickets, keeps the tables, probes nodes, merges. Serves docs/api.md. */
#ifndef HENG_FOLDER_SCHED_H
#define HENG_FOLDER_SCHED_H

#include "folder/secure.h"
#include "folder/hook.h"
#include "folder/users.h"
#include "http/server.h"

struct sched_conf {
	const char *listen;
	const char *state_dir; /* heng.db, spool/, lock */
	const char *store;     /* URL of a PostgreSQL database; "": heng.db */
	const char *staging_dir, *final_dir;
	const char *audit_archive_dir;
	const char *final; /* "": the folder final_dir; "s3://bucket/prefix" */
	const char *final_endpoint, *final_region, *final_credentials_file;
	uint64_t final_part_bytes;
	int64_t final_connections, final_give_up_us;
	const char *cluster_key_file;
	struct conf_list users; /* of struct sched_user */
	uint64_t chunk_bytes;   /* default cut, 8 MiB; clients may ask for 64 KiB .. 64 MiB */
	int64_t copies;         /* of each chunk, on so many nodes: 1 or 2; clients may ask for the other */
	int64_t ticket_life_us; /* 1 h */
	int64_t probe_interval_us, probe_timeout_us; /* 3 s, 2 s */
	int64_t node_lost_after_us;
	int64_t transfer_expiry_us; /* 7 days; 0: never */
	int64_t merge_objects, merge_node_connections;
	bool is_merging_ahead; /* true */
	uint64_t final_free_floor_bytes;
	uint64_t transfer_bytes_max; /* of one transfer; 0: none */
	int64_t transfer_entries_max;
	const char *profile;      /* file of a folder profile; "" or NULL: the built-in */
	const char *decision_log; /* path; "" or NULL: state_dir/decisions.jsonl; "off": none */
	uint64_t decision_log_rotate_bytes;
	int64_t decision_log_keep;
	int decision_log_places; /* spilled | all */
	int64_t threads, workers;
	int loop;
	struct secure_conf tls;
	bool is_insecure;
	int log_json;
	struct conf_list on_complete; /* of struct hook_conf */
};
extern const struct conf_row sched_conf_rows[];

struct sched;
int sched_start(const struct sched_conf *conf, struct sched **ret_sched, struct err *err);
const struct sock_addr *sched_addr(const struct sched *sched);
/* Takes over the cluster keys and users of a configuration that was read anew, and what the files of TLS hold now, while calls go on; of the rest
 * nothing. What cannot be used stays as it was. */
int sched_reload(struct sched *sched, const struct sched_conf *conf, struct err *err);
/* Every few seconds, from one thread, the one that reloads: looks whether the files of TLS have changed. */
void sched_look(struct sched *sched);
void sched_stop(struct sched **sched);

#endif
