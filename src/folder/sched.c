#include "folder/sched_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "folder/audit_mark.h"
#include "sys/fs.h"

#define WORK_QUEUE_MAX  4096u
#define STOP_GRACE_US   (2 * SEC_US) /* heng up gives 3 s for everything */
#define CONNECTIONS_MAX 4096u

/* --- configuration --- */

#define TEXT(key, field, text, words)                                                                           \
	{                                                                                                       \
		.name = key, .type = CONF_TEXT, .offset = offsetof(struct sched_conf, field), .fallback = text, \
		.help = words                                                                                   \
	}
#define NUMBER(key, kind, field, least, most, text, words)                                                          \
	{                                                                                                           \
		.name = key, .type = kind, .offset = offsetof(struct sched_conf, field), .min = least, .max = most, \
		.fallback = text, .help = words                                                                     \
	}
#define CHOICE(key, field, words_allowed, text, words)                                                            \
	{                                                                                                         \
		.name = key, .type = CONF_CHOICE, .offset = offsetof(struct sched_conf, field), .fallback = text, \
		.choices = words_allowed, .help = words                                                           \
	}

const struct conf_row sched_conf_rows[] = {
	TEXT("listen", listen, "127.0.0.1:7080", "address and port to serve"),
	TEXT("state_dir", state_dir, NULL, "folder of the database, spool and lock"),
	TEXT("store", store, "",
	     "URL of a PostgreSQL database that keeps the tables; default: SQLite's state_dir/heng.db"),
	TEXT("staging_dir", staging_dir, "", "folder where batches are put together; default: state_dir/staging"),
	TEXT("final_dir", final_dir, "",
	     "folder where batches appear, on staging_dir's file system; default: state_dir/final"),
	TEXT("audit_archive_dir", audit_archive_dir, "",
	     "folder where archived rows of the audit go; default: state_dir/audit"),
	TEXT("final", final, "", "or: the bucket where batches appear, s3://BUCKET/PREFIX"),
	TEXT("final_endpoint", final_endpoint, "", "URL of the bucket's server: http(s)://HOST[:PORT]"),
	TEXT("final_region", final_region, "us-east-1", "its region, as requests are signed for it"),
	TEXT("final_credentials_file", final_credentials_file, "",
	     "two lines, key id and secret, for heng alone to read; default: AWS_ACCESS_KEY_ID and "
	     "AWS_SECRET_ACCESS_KEY"),
	NUMBER("final_part_size", CONF_SIZE, final_part_bytes, (int64_t)(5 * MIB), (int64_t)(5 * GIB), "16MiB",
	       "larger files go to the bucket in parts of so many bytes"),
	NUMBER("final_connections", CONF_INT, final_connections, 1, 64, "8", "to the bucket, for one batch at once"),
	NUMBER("final_give_up", CONF_DURATION, final_give_up_us, SEC_US, 24 * 3600 * SEC_US, "5m",
	       "without an answer of the bucket for that long a batch is put off"),
	TEXT("cluster_key_file", cluster_key_file, NULL, "keys shared by scheduler and nodes, the newest first"),
	{ .name = "users",
	  .type = CONF_LIST,
	  .offset = offsetof(struct sched_conf, users),
	  .item_rows = users_conf_rows,
	  .item_size = sizeof(struct sched_user),
	  .help = "who may call" },
	NUMBER("chunk_size", CONF_SIZE, chunk_bytes, (int64_t)SCHED_CHUNK_BYTES_MIN, (int64_t)SCHED_CHUNK_BYTES_MAX,
	       "8MiB", "the cut of large files, unless a client asks for another"),
	NUMBER("copies", CONF_INT, copies, 1, SCHED_COPIES_MAX, "1",
	       "nodes that store each chunk, unless a client asks for another number"),
	NUMBER("ticket_life", CONF_DURATION, ticket_life_us, 10 * SEC_US, 24 * 3600 * SEC_US, "1h",
	       "how long a ticket is good"),
	NUMBER("probe_interval", CONF_DURATION, probe_interval_us, 50 * MSEC_US, 60 * SEC_US, "3s",
	       "between two probes of a node"),
	NUMBER("probe_timeout", CONF_DURATION, probe_timeout_us, 50 * MSEC_US, 60 * SEC_US, "2s",
	       "a slower answer is a missed one"),
	NUMBER("node_lost_after", CONF_DURATION, node_lost_after_us, 100 * MSEC_US, 7 * 24 * 3600 * SEC_US, "30s",
	       "a merge waits that long for a node, then asks for its chunks again"),
	NUMBER("transfer_expiry", CONF_DURATION, transfer_expiry_us, SEC_US, 365 * 24 * 3600 * SEC_US, "7d",
	       "a transfer without progress for that long ends as failed"),
	NUMBER("merge_objects", CONF_INT, merge_objects, 1, 64, "8", "objects merged at once"),
	NUMBER("merge_node_connections", CONF_INT, merge_node_connections, 1, 64, "8",
	       "connections to one node while merging"),
	{ .name = "merge_ahead",
	  .type = CONF_BOOL,
	  .offset = offsetof(struct sched_conf, is_merging_ahead),
	  .fallback = "true",
	  .help = "put folders together while they are still being sent" },
	NUMBER("final_free_floor", CONF_SIZE, final_free_floor_bytes, 0, INT64_MAX, "64MiB",
	       "bytes kept free in the final store"),
	NUMBER("transfer_bytes_max", CONF_SIZE, transfer_bytes_max, 0, INT64_MAX, "0",
	       "what the folder of one transfer may have; 0: no limit"),
	NUMBER("transfer_entries_max", CONF_INT, transfer_entries_max, 0, INT64_MAX, "0",
	       "files, folders and links that it may have; 0: no limit"),
	{ .name = "on_complete",
	  .type = CONF_LIST,
	  .fallback = "",
	  .offset = offsetof(struct sched_conf, on_complete),
	  .item_rows = hook_conf_rows,
	  .item_size = sizeof(struct hook_conf),
	  .help = "who is told of folders that have arrived" },
	TEXT("profile", profile, "", "file of the folder profile by which nodes are scored; default: the built-in one"),
	TEXT("decision_log", decision_log, "",
	     "file that keeps every decision; default: state_dir/decisions.jsonl; off: none"),
	NUMBER("decision_log_rotate", CONF_SIZE, decision_log_rotate_bytes, (int64_t)MIB, (int64_t)(1024 * GIB),
	       "64MiB", "a new file once it is larger"),
	NUMBER("decision_log_keep", CONF_INT, decision_log_keep, 1, 1000, "8", "former files that are kept"),
	CHOICE("decision_log_places", decision_log_places, "spilled|all", "spilled",
	       "which chunks get a line: those that did not go to their owner, or all"),
	NUMBER("threads", CONF_INT, threads, 0, 256, "0", "serving threads; 0: one a core"),
	NUMBER("workers", CONF_INT, workers, 1, 256, "8", "threads for blocking work"),
	CHOICE("loop", loop, "auto|io_uring|epoll", "auto", "event loop"),
	SECURE_ROWS(struct sched_conf),
	SECURE_CLIENT_ROW(struct sched_conf),
	{ .name = "insecure",
	  .type = CONF_BOOL,
	  .offset = offsetof(struct sched_conf, is_insecure),
	  .fallback = "false",
	  .help = "allow listening beyond loopback without TLS" },
	CHOICE("log", log_json, "text|json", "text", "form of log lines"),
	{ .name = NULL },
};

/* --- routes --- */

/* Open to everybody, and says nothing that would interest anybody. */
static void begin_health(struct http_call *call, void *app)
{
	(void)app;
	http_reply(call, 200, "application/json", STR("{\"status\":\"ok\"}"));
}

static const struct http_route routes[] = {
	{ "GET", "/health", begin_health },
	{ "POST", "/api/v1/transfers", sched_begin_create },
	{ "GET", "/api/v1/transfers", sched_begin_list },
	{ "GET", "/api/v1/transfers/:id", sched_begin_get },
	{ "GET", "/api/v1/transfers/:id/plan", sched_begin_plan },
	{ "GET", "/api/v1/transfers/:id/chunks", sched_begin_chunks },
	{ "GET", "/api/v1/transfers/:id/nodes", sched_begin_transfer_nodes },
	{ "GET", "/api/v1/transfers/:id/manifest", sched_begin_manifest },
	{ "GET", "/api/v1/transfers/:id/files/:seq", sched_begin_file },
	{ "POST", "/api/v1/transfers/:id/digests", sched_begin_digests },
	{ "POST", "/api/v1/transfers/:id/revise", sched_begin_revise },
	{ "POST", "/api/v1/transfers/:id/complete", sched_begin_complete },
	{ "POST", "/api/v1/transfers/:id/cancel", sched_begin_cancel },
	{ "GET", "/api/v1/transfers/:id/entry", sched_begin_entry },
	{ "GET", "/api/v1/audit", sched_begin_audit },
	{ "GET", "/api/v1/audit/head", sched_begin_audit_head },
	{ "POST", "/api/v1/audit/archive", sched_begin_archive },
	{ "GET", "/api/v1/nodes", sched_begin_nodes },
	{ "POST", "/api/v1/nodes/:id", sched_begin_node_order },
	{ "POST", "/internal/v1/nodes/register", sched_begin_register },
	{ "POST", "/internal/v1/receipts", sched_begin_receipts },
	{ "POST", "/internal/v1/reports", sched_begin_reports },
	{ "POST", "/internal/v1/transfers/finished", sched_begin_finished },
	{ "POST", "/internal/v1/alerts", sched_begin_alerts },
	{ "GET", "/metrics", sched_begin_metrics },
	{ "POST", "/internal/v1/removed", sched_begin_removed },
	{ NULL, NULL, NULL },
};

/* --- start --- */

/* A path below state_dir, or the one that is configured. */
static char *path_or(const char *configured, const char *state_dir, const char *name)
{
	char path[PATH_TEXT_MAX];

	if (configured && configured[0] != '\0')
		return must_strdup(configured);
	snprintf(path, sizeof(path), "%s/%s", state_dir, name);
	return must_strdup(path);
}

static int check_conf(const struct sched_conf *conf, struct sock_addr *ret_addr, struct err *err)
{
	int result = sock_addr_parse(conf->listen, ret_addr, err);

	if (result < 0)
		return err_wrap(err, "the listening address");
	if (conf->state_dir[0] == '\0' || strlen(conf->state_dir) > 4000)
		return err_set(err, ERR_CONFIG, "state_dir is empty or too long");
	if (conf->chunk_bytes < SCHED_CHUNK_BYTES_MIN || conf->chunk_bytes > SCHED_CHUNK_BYTES_MAX)
		return err_set(err, ERR_CONFIG, "chunk_size is not within 64 KiB and 64 MiB");
	return 0;
}

/* A folder that cannot be asked is for the merge to complain of. */
static void ask_folding(struct sched *sched)
{
	struct err err = ERR_INIT;

	fs_clean_probes(sched->staging_dir);
	if (fold_probe(sched->staging_dir, &sched->fold, &err) < 0)
		log_err(LOG_WARN, &err, "it is not known whether the final store folds names");
	else if (fold_is_any(&sched->fold))
		log_say(LOG_WARN,
			"the file system of '%s' does not tell %s apart: folders with names that differ in nothing "
			"else "
			"are refused",
			sched->staging_dir,
			!sched->fold.is_form  ? "upper and lower case"
			: sched->fold.is_case ? "cases and Unicode forms"
					      : "Unicode forms");
}

static int open_bucket(struct sched *sched, const struct sched_conf *conf, struct err *err)
{
	const struct final_s3_options options = { .place = conf->final,
						  .endpoint = conf->final_endpoint,
						  .region = conf->final_region,
						  .credentials_file = conf->final_credentials_file,
						  .part_bytes = conf->final_part_bytes,
						  .connection_count = (unsigned)conf->final_connections,
						  .give_up_us = conf->final_give_up_us };

	if (!conf->final || conf->final[0] == '\0')
		return 0;
	if (conf->final_dir && conf->final_dir[0] != '\0')
		return err_set(err, ERR_CONFIG, "final and final_dir are both set: batches appear in one of them");
	/* For people, as a path with the batch's name behind it. */
	free(sched->final_dir);
	sched->final_dir = must_strdup(conf->final);
	for (size_t size = strlen(sched->final_dir); size > 0 && sched->final_dir[size - 1] == '/'; size--)
		sched->final_dir[size - 1] = '\0';
	return final_s3_new(&options, &sched->bucket, err);
}

static int prepare_dirs(struct sched *sched, struct err *err)
{
	char lock[PATH_TEXT_MAX];
	AUTO(fs_close) int state_fd = -1;
	int result = fs_make_dirs(sched->state_dir, err);

	if (result == 0)
		result = fs_make_dirs(sched->staging_dir, err);
	if (result == 0)
		result = sched->bucket ? 0 : fs_make_dirs(sched->final_dir, err);
	if (result < 0)
		return result;
	snprintf(lock, sizeof(lock), "%s/lock", sched->state_dir);
	sched->lock_fd = fs_lock(lock, err);
	if (sched->lock_fd < 0)
		return sched->lock_fd;
	/* Spooled manifests of calls that a crash ended: their clients send them again. */
	state_fd = fs_open_dir(sched->state_dir, err);
	if (state_fd < 0)
		return state_fd;
	result = fs_remove_tree(state_fd, "spool", err);
	if (result == 0)
		result = fs_make_dirs(sched->spool_dir, err);
	if (result < 0)
		return err_wrap(err, "clearing the spool folder");
	ask_folding(sched);
	/* Before a bucket it is staging that needs room. */
	sched->final_fd = fs_open_dir(sched->bucket ? sched->staging_dir : sched->final_dir, err);
	return sched->final_fd < 0 ? sched->final_fd : 0;
}

static int start_parts(struct sched *sched, const struct sched_conf *conf, struct err *err)
{
	struct merge_options merging = {
		.staging_dir = sched->staging_dir,
		.final_dir = sched->final_dir,
		.bucket = sched->bucket,
		.internal_key = &sched->keyring.internal,
		.object_limit_count = (unsigned)conf->merge_objects,
		.node_connection_limit = (unsigned)conf->merge_node_connections,
		.node_lost_after_us = conf->node_lost_after_us,
		.is_ahead_off = !conf->is_merging_ahead,
		.free_floor_bytes = conf->final_free_floor_bytes,
	};
	struct pool_options pooling = {
		.internal_key = &sched->keyring.internal,
		.probe_interval_us = conf->probe_interval_us,
		.probe_timeout_us = conf->probe_timeout_us,
		.profile = &sched->profile,
	};
	struct keeper_options keeping = {
		.internal_key = &sched->keyring.internal,
		.expiry_us = conf->transfer_expiry_us,
	};
	struct hook_options telling = {
		.list = conf->on_complete.items,
		.count = conf->on_complete.count,
		.state_dir = sched->state_dir,
		.final_place = sched->final_dir,
	};
	struct inventory_options listing = { .internal_key = &sched->keyring.internal };
	char database[PATH_TEXT_MAX];
	int result;

	snprintf(database, sizeof(database), "%s/heng.db", sched->state_dir);
	result = conf->store && conf->store[0] != '\0' ? store_pg_open(conf->store, &sched->store, err)
						       : store_sqlite_open(database, &sched->store, err);
	if (result == 0)
		audit_mark_start(sched->store);
	if (result == 0)
		result = sched_alerts_start(sched, err);
	if (result == 0)
		result = work_new("work", (unsigned)conf->workers, WORK_QUEUE_MAX, &sched->work, err);
	if (result == 0)
		result = work_new("plan", SCHED_PLANNERS, WORK_QUEUE_MAX, &sched->plans, err);
	if (result == 0)
		result = sched_open_decisions(sched, conf, err);
	pooling.store = sched->store;
	pooling.log = sched->decisions;
	if (result == 0)
		result = pool_start(&pooling, &sched->pool, err);
	telling.store = sched->store;
	if (result == 0)
		result = hooks_start(&telling, &sched->hooks, err);
	merging.hooks = sched->hooks;
	if (result == 0)
		result = merge_start(&merging, sched->store, sched->pool, &sched->merge, err);
	keeping.store = sched->store;
	keeping.pool = sched->pool;
	if (result == 0)
		result = keeper_start(&keeping, &sched->keeper, err);
	listing.store = sched->store;
	listing.pool = sched->pool;
	if (result == 0)
		result = inventory_start(&listing, &sched->inventory, err);
	return result;
}

static int start_server(struct sched *sched, const struct sched_conf *conf, const struct sock_addr *addr,
			struct err *err)
{
	struct http_options options = http_options_default;
	int result;

	options.tls = sched_serves_tls(sched) ? sched->tls : NULL;
	options.thread_count = (unsigned)conf->threads;
	options.backend = (enum loop_backend)conf->loop;
	options.connection_limit_count = CONNECTIONS_MAX;
	options.body_limit_bytes = SCHED_MANIFEST_MAX;
	options.refused = sched_refused;
	result = http_server_new(&options, addr, routes, sched, &sched->server, err);
	return result < 0 ? result : http_server_start(sched->server, err);
}

int sched_start(const struct sched_conf *conf, struct sched **ret_sched, struct err *err)
{
	struct sched *sched;
	struct sock_addr addr;
	int result = check_conf(conf, &addr, err);

	*ret_sched = NULL;
	if (result < 0)
		return result;
	sched = must_zalloc(1, sizeof(*sched));
	sched->lock_fd = sched->final_fd = -1;
	pthread_mutex_init(&sched->claim_lock, NULL);
	pthread_mutex_init(&sched->archive_lock, NULL);
	pulled_init(&sched->pulled);
	sched->state_dir = must_strdup(conf->state_dir);
	sched->spool_dir = path_or(NULL, conf->state_dir, "spool");
	sched->staging_dir = path_or(conf->staging_dir, conf->state_dir, "staging");
	sched->final_dir = path_or(conf->final_dir, conf->state_dir, "final");
	sched->archive_dir = path_or(conf->audit_archive_dir, conf->state_dir, "audit");
	sched->chunk_bytes = conf->chunk_bytes;
	sched->copies = conf->copies > 1 ? (unsigned)conf->copies : 1;
	sched->started_mono_us = clock_mono_us();
	sched->final_free_floor_bytes = conf->final_free_floor_bytes;
	sched->transfer_bytes_max = conf->transfer_bytes_max;
	sched->transfer_entries_max = (uint64_t)conf->transfer_entries_max;
	sched->ticket_life_us = conf->ticket_life_us;
	sched->probe_interval_us = conf->probe_interval_us;
	sched->is_insecure = conf->is_insecure;
	result = sched_auth_init(sched, err);
	if (result == 0)
		result = secure_open(&conf->tls, &sched->tls, err);
	sched->keyring.internal.tls = sched->tls;
	if (result == 0)
		result = secure_check_listen(&addr, conf->listen, sched->tls, conf->is_insecure, "keys and manifests",
					     err);
	if (result == 0)
		result = secure_check_name(sched->tls, NULL, err);
	if (result == 0)
		result = open_bucket(sched, conf, err);
	if (result == 0)
		result = sched_auth_load(sched, conf, err);
	if (result == 0)
		result = sched_load_profile(sched, conf->profile, err);
	if (result == 0)
		result = prepare_dirs(sched, err);
	if (result == 0)
		result = start_parts(sched, conf, err);
	if (result == 0)
		result = start_server(sched, conf, &addr, err);
	if (result < 0) {
		sched_stop(&sched);
		return err_wrap(err, "starting the scheduler");
	}
	*ret_sched = sched;
	return 0;
}

void sched_look(struct sched *sched) { (void)secure_look(&sched->tls_watch, sched->tls, false); }

const struct sock_addr *sched_addr(const struct sched *sched) { return http_server_addr(sched->server); }

/* From the outside in: no calls, then nothing that works for calls, then what they worked with. */
void sched_stop(struct sched **sched_ref)
{
	struct sched *sched = *sched_ref;

	if (!sched)
		return;
	if (sched->server)
		http_server_stop(sched->server, STOP_GRACE_US);
	work_free(&sched->provers);
	work_free(&sched->plans);
	work_free(&sched->work);
	http_server_free(&sched->server);
	/* No call is left that could be refused; what was refused is still written down. */
	alerts_stop(&sched->alerts);
	if (sched->pool)
		pool_halt(sched->pool);
	inventory_stop(&sched->inventory);
	keeper_stop(&sched->keeper);
	merge_stop(&sched->merge);
	hooks_stop(&sched->hooks);
	final_s3_free(&sched->bucket);
	pool_stop(&sched->pool);
	if (sched->decisions)
		logfile_close(&sched->decisions);
	if (sched->store) {
		int64_t never_us = 0;
		uint64_t no_id = 0;

		audit_mark(sched->store, clock_mono_us(), &never_us, &no_id);
		sched->store->ops->close(sched->store);
	}
	fs_close(&sched->final_fd);
	fs_close(&sched->lock_fd);
	sched_auth_fini(sched);
	tls_free(&sched->tls);
	pthread_mutex_destroy(&sched->claim_lock);
	pulled_fini(&sched->pulled);
	pthread_mutex_destroy(&sched->archive_lock);
	free(sched->state_dir);
	free(sched->spool_dir);
	free(sched->staging_dir);
	free(sched->archive_dir);
	free(sched->final_dir);
	free(sched);
	*sched_ref = NULL;
}
