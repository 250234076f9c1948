#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "folder/node_inside.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "sys/fs.h"

#define CONNECTION_LIMIT 1024
#define JOB_LIMIT        (4 * CONNECTION_LIMIT)
#define BODY_LIMIT_BYTES ((uint64_t)1 * GIB)
#define STOP_GRACE_US    (2 * SEC_US) /* heng up gives 3 s for everything */

#define FIELD(member) offsetof(struct node_conf, member)
const struct conf_row node_conf_rows[] = {
	{ "node_id", CONF_TEXT, FIELD(node_id), .fallback = "",
	  .help = "1-64 of A-Za-z0-9._-; empty: made once, kept in state_dir" },
	{ "listen", CONF_TEXT, FIELD(listen), .fallback = "127.0.0.1:7081",
	  .help = "address and port to serve on; port 0 picks one" },
	{ "advertise", CONF_TEXT, FIELD(advertise), .fallback = "",
	  .help = "address and port that others use; empty: the listening one" },
	{ "state_dir", CONF_TEXT, FIELD(state_dir), .help = "folder of the node's own files" },
	{ "data_dir", CONF_TEXT, FIELD(data_dir), .fallback = "", .help = "folder of the chunks; empty: state_dir" },
	{ "scheduler", CONF_TEXT, FIELD(scheduler), .help = "the scheduler's URL, http[s]://host:port" },
	{ "cluster_key_file", CONF_TEXT, FIELD(cluster_key_file),
	  .help = "file of the cluster's keys, the same everywhere" },
	{ "domain", CONF_TEXT, FIELD(domain), .fallback = "", .help = "failure domain (rack, room); empty: none" },
	{ "weight_milli", CONF_INT, FIELD(weight_milli), 0, 1000 * 1000, "1000",
	  .help = "share of the work; 1000 is one unit" },
	{ "free_floor", CONF_SIZE, FIELD(free_floor_bytes), .fallback = "1GiB", .help = "space never used" },
	{ "free_floor_percent", CONF_INT, FIELD(free_floor_percent), 0, 99, "5",
	  .help = "share of the file system never used" },
	{ "clock_skew", CONF_DURATION, FIELD(clock_skew_us), 0, 3600 * SEC_US, "30s",
	  .help = "how far clocks may differ" },
	{ "sweep_interval", CONF_DURATION, FIELD(sweep_interval_us), 100 * MSEC_US, (int64_t)24 * 3600 * SEC_US, "60s",
	  .help = "between two looks for files of transfers that are over" },
	{ "stray_after", CONF_DURATION, FIELD(stray_after_us), SEC_US, (int64_t)365 * 24 * 3600 * SEC_US, "24h",
	  .help = "an unfinished chunk's file that nobody has written for that long goes" },
	{ "receipt_journal", CONF_SIZE, FIELD(receipt_journal_bytes), .fallback = "64MiB",
	  .help = "receipts kept in state_dir while the scheduler is away; 0: none" },
	{ "nonces", CONF_TEXT, FIELD(nonces), .fallback = "",
	  .help = "where used nonces are remembered: redis://host:port/db; empty: memory and state_dir/nonces" },
	{ "nonces_user", CONF_TEXT, FIELD(nonces_user), .fallback = "", .help = "user of that Redis; empty: none" },
	{ "nonces_password_file", CONF_TEXT, FIELD(nonces_password_file), .fallback = "",
	  .help = "file of its password; empty: none" },
	SECURE_ROWS(struct node_conf),
	{ "threads", CONF_INT, FIELD(threads), 0, 256, "0", .help = "network threads; 0: one per core" },
	{ "workers", CONF_INT, FIELD(workers), 1, 256, "16", .help = "threads for the disk" },
	{ "loop", CONF_CHOICE, FIELD(loop), .fallback = "auto", .choices = "auto|io_uring|epoll",
	  .help = "the event loop's back end" },
	{ "insecure", CONF_BOOL, FIELD(is_insecure), .fallback = "false",
	  .help = "allow listening beyond loopback without TLS" },
	{ "log", CONF_CHOICE, FIELD(log_json), .fallback = "text", .choices = "text|json",
	  .help = "form of the log's lines" },
	{ .name = NULL },
};

/* --- who may call --- */

static bool node_serves_tls(const struct node *node) { return node->tls && tls_is_server(node->tls); }

bool node_is_internal(const struct node *node, const struct http_call *call)
{
	/* Where there are certificates the key alone, which every node has, opens nothing. */
	if (node_serves_tls(node) && tls_has_ca(node->tls) && !peer_is_scheduler(http_peer_cert(call)))
		return false;
	return keyring_is_internal(&node->keyring, http_header(call, "X-Internal-Key"));
}

bool node_refuse_stranger(const struct node *node, struct http_call *call)
{
	struct err err;

	if (node_is_internal(node, call))
		return false;
	if (keyring_is_internal(&node->keyring, http_header(call, "X-Internal-Key"))) {
		err_set(&err, ERR_UNAUTHENTICATED,
			"this is for the scheduler: the call shows no certificate of this "
			"cluster with its name");
		err_hint(&err,
			 "the scheduler's certificate names the URI heng:scheduler and is of an authority in tls_ca");
	} else {
		err_set(&err, ERR_UNAUTHENTICATED,
			"this is for the scheduler: X-Internal-Key is missing or not of this cluster");
		err_hint(&err, "do scheduler and node hold the same cluster key file?");
	}
	http_reply_err(call, &err);
	return true;
}

static const struct http_route routes[] = {
	{ "PUT", "/api/v1/upload/chunk/:transfer/:file/:chunk", node_put_begin },
	{ "GET", "/internal/v1/chunk/:transfer/:file/:chunk", node_read_begin },
	{ "GET", "/internal/v1/chunk/:transfer/:file/:chunk/place", node_place_begin },
	{ "DELETE", "/internal/v1/chunk/:transfer/:file/:chunk", node_remove_chunk_begin },
	{ "GET", "/internal/v1/transfer/:transfer/chunks", node_list_begin },
	{ "DELETE", "/internal/v1/transfer/:transfer", node_remove_begin },
	{ "GET", "/metrics", node_metrics_begin },
	{ "GET", "/health", node_health_begin },
	{ NULL, NULL, NULL },
};

/* --- starting --- */

static bool is_one_folder(const char *a, const char *b)
{
	struct stat stat_a, stat_b;

	return stat(a, &stat_a) == 0 && stat(b, &stat_b) == 0 && stat_a.st_dev == stat_b.st_dev &&
	       stat_a.st_ino == stat_b.st_ino;
}

static int lock_folder(const char *dir, struct err *err)
{
	char path[PATH_MAX];

	if (snprintf(path, sizeof(path), "%s/lock", dir) >= (int)sizeof(path))
		return err_set(err, ERR_CONFIG, "the path '%.200s...' is too long", dir);
	return fs_lock(path, err);
}

static int open_folders(struct node *node, const struct node_conf *conf, struct err *err)
{
	const char *data_dir = conf->data_dir[0] != '\0' ? conf->data_dir : conf->state_dir;
	const struct disk_options options = {
		.path = data_dir,
		.free_floor_bytes = conf->free_floor_bytes,
		.free_floor_percent = (unsigned)conf->free_floor_percent,
	};
	int r = fs_make_dirs(conf->state_dir, err);

	if (r == 0)
		r = fs_make_dirs(data_dir, err);
	if (r < 0)
		return r;
	node->lock_fd = lock_folder(conf->state_dir, err);
	if (node->lock_fd < 0)
		return node->lock_fd;
	/* Two nodes on one data_dir would remove each other's chunks. */
	if (!is_one_folder(conf->state_dir, data_dir)) {
		node->data_lock_fd = lock_folder(data_dir, err);
		if (node->data_lock_fd < 0)
			return node->data_lock_fd;
	}
	fs_clean_replaced(conf->state_dir, 0);
	fs_clean_probes(conf->state_dir);
	fs_clean_probes(data_dir);
	r = node_open_identity(node, conf, err);
	if (r == 0)
		r = disk_open(&options, &node->disk, err);
	node->checked_us = clock_mono_us();
	return r;
}

static int64_t told_time(const void *app)
{
	const struct node *node = app;

	return node_clock_wall_us(&node->clock);
}

static int open_server(struct node *node, const struct node_conf *conf, struct err *err)
{
	struct http_options options = http_options_default;
	struct sock_addr addr;
	char text[SOCK_TEXT_SIZE];
	int r = sock_addr_parse(conf->listen, &addr, err);

	if (r < 0)
		return r;
	r = secure_check_listen(&addr, conf->listen, node->tls, conf->is_insecure, "chunks and tickets", err);
	if (r < 0)
		return r;
	options.tls = node_serves_tls(node) ? node->tls : NULL;
	options.thread_count = (unsigned)conf->threads;
	options.backend = (enum loop_backend)conf->loop;
	options.connection_limit_count = CONNECTION_LIMIT;
	options.body_limit_bytes = BODY_LIMIT_BYTES;
	options.wall_us = told_time;
	options.refused = node_refused;
	r = http_server_new(&options, &addr, routes, node, &node->server, err);
	if (r < 0)
		return r;
	sock_addr_text(http_server_addr(node->server), text);
	if (conf->advertise[0] == '\0' && (strncmp(text, "0.0.0.0:", 8) == 0 || strncmp(text, "[::]:", 5) == 0)) {
		err_set(err, ERR_CONFIG,
			"listening on all addresses (%s) says nothing about where others reach this node", text);
		err_hint(err, "set 'advertise' to an address and port that clients and the scheduler can reach");
		return -ERR_CONFIG;
	}
	const char *shown = conf->advertise[0] != '\0' ? peer_host(conf->advertise) : text;
	const int size = snprintf(node->addr_text, sizeof(node->addr_text), "%s%s", options.tls ? "https://" : "",
				  shown);
	return (size_t)size < sizeof(node->addr_text) ? 0
						      : err_set(err, ERR_CONFIG, "advertise '%s' is too long", shown);
}

static int open_courier(struct node *node, const struct node_conf *conf, struct err *err)
{
	char journal_path[PATH_MAX];
	struct courier_options options = {
		.scheduler = conf->scheduler,
		.internal_key = &node->keyring.internal,
		.node.weight_milli = (uint32_t)conf->weight_milli,
		.journal_path = journal_path,
		.journal_limit_bytes = conf->receipt_journal_bytes,
		.is_stored = node_kept_is_stored,
		.refused = node_kept_refused,
		.owner = node,
	};

	if (snprintf(journal_path, sizeof(journal_path), "%s/receipts.journal", conf->state_dir) >=
	    (int)sizeof(journal_path))
		return err_set(err, ERR_CONFIG, "state_dir is too long");
	(void)snprintf(options.node.id, sizeof(options.node.id), "%s", node->id);
	(void)snprintf(options.node.addr, sizeof(options.node.addr), "%s", node->addr_text);
	(void)snprintf(options.node.incarnation, sizeof(options.node.incarnation), "%s", node->incarnation);
	if (conf->domain[0] != '\0' && !node_id_is_valid(conf->domain))
		return err_set(err, ERR_CONFIG, "domain is not up to 64 of A-Z a-z 0-9 . _ -");
	(void)snprintf(options.node.domain, sizeof(options.node.domain), "%s", conf->domain);
	return courier_new(&options, &node->courier, err);
}

static int open_sweep(struct node *node, const struct node_conf *conf, struct err *err)
{
	const struct sweep_options options = {
		.disk = node->disk,
		.scheduler = conf->scheduler,
		.internal_key = &node->keyring.internal,
		.node_id = node->id,
		.interval_us = conf->sweep_interval_us,
		.stray_after_us = conf->stray_after_us,
	};

	return sweep_start(&options, &node->sweep, err);
}

static void open_self(struct node *node, const struct node_conf *conf)
{
	const char *data_dir = conf->data_dir[0] != '\0' ? conf->data_dir : conf->state_dir;
	const char *const dirs[] = { conf->state_dir, data_dir };

	node->self = self_new(node->id, node->incarnation, data_dir, dirs,
			      is_one_folder(conf->state_dir, data_dir) ? 1 : COUNT_OF(dirs));
	/* The floor of space is the disk's business, which counts what is promised as well and says "disk_low". */
	self_set_floors(node->self, 0, 0, 0);
}

/* What the process cannot measure on itself. */
static void fill_report(void *owner, struct report *report)
{
	struct node *node = owner;
	struct fs_space space;
	uint64_t reserved_bytes;
	bool is_low;

	report->migrating = report->leaving = 0;
	/* A disk that cannot tell its space is told by the folders' check. */
	if (disk_space(node->disk, &space, &reserved_bytes, &is_low, NULL) == 0)
		report->disk_free_bytes = (int64_t)space.free_bytes;
}

static void take_time(void *owner, int64_t server_wall_us, int64_t round_trip_us)
{
	struct node *node = owner;

	node_clock_feed(&node->clock, server_wall_us, round_trip_us, clock_wall_us());
}

static int open_report(struct node *node, const struct node_conf *conf, struct err *err)
{
	const struct node_report_options options = {
		.scheduler = conf->scheduler,
		.internal_key = &node->keyring.internal,
		.self = node->self,
		.fill = fill_report,
		.take_time = take_time,
		.owner = node,
	};

	return node_report_start(&options, &node->report, err);
}

static int start_alerts(struct node *node, const struct node_conf *conf, struct err *err)
{
	size_t size = strlen(conf->scheduler);

	while (size > 0 && conf->scheduler[size - 1] == '/')
		size--;
	node->scheduler_url = strndup(conf->scheduler, size);
	return node->scheduler_url ? node_alerts_start(node, err) : err_set(err, ERR_NO_MEMORY, "no memory to start");
}

int node_start(const struct node_conf *conf, struct node **ret_node, struct err *err)
{
	struct node *node = must_zalloc(1, sizeof(*node));
	struct err local = ERR_INIT;
	struct err *to = err ? err : &local;
	int r;

	*to = ERR_INIT;
	node->lock_fd = -1;
	node->data_lock_fd = -1;
	node->clock_skew_us = conf->clock_skew_us;
	MUST(pthread_mutex_init(&node->health_lock, NULL) == 0);
	keyring_init(&node->keyring);
	r = open_folders(node, conf, to);
	if (r == 0)
		r = secure_open(&conf->tls, &node->tls, to);
	if (r == 0)
		r = secure_check_name(node->tls, node->id, to);
	node->keyring.internal.tls = node->tls;
	if (r == 0)
		r = keyring_load(&node->keyring, conf->cluster_key_file, to);
	if (r == 0)
		r = node_open_nonces(node, conf, to);
	if (r == 0)
		open_self(node, conf);
	if (r == 0)
		r = work_new("disk", (unsigned)conf->workers, JOB_LIMIT, &node->work, to);
	if (r == 0)
		r = start_alerts(node, conf, to);
	if (r == 0)
		r = open_server(node, conf, to);
	if (r == 0)
		r = open_courier(node, conf, to);
	if (r == 0)
		r = http_server_start(node->server, to);
	/* After the server: the scheduler probes a node the moment it registers. */
	if (r == 0)
		r = courier_start(node->courier, to);
	if (r == 0)
		r = open_sweep(node, conf, to);
	if (r == 0)
		r = open_report(node, conf, to);
	if (r < 0) {
		node_stop(&node);
		return r;
	}
	*ret_node = node;
	return 0;
}

int node_reload(struct node *node, const struct node_conf *conf, struct err *err)
{
	char ids[64];
	const int r = keyring_load(&node->keyring, conf->cluster_key_file, err);

	if (r < 0)
		return r;
	keyring_ids(&node->keyring, ids, sizeof(ids));
	log_say(LOG_INFO, "the cluster's keys are now: %s", ids);
	(void)secure_look(&node->tls_watch, node->tls, true);
	return 0;
}

void node_look(struct node *node) { (void)secure_look(&node->tls_watch, node->tls, false); }

const struct sock_addr *node_addr(const struct node *node) { return http_server_addr(node->server); }

void node_stop(struct node **node)
{
	struct node *n = *node;

	if (!n)
		return;
	if (n->courier)
		courier_end(n->courier, STOP_GRACE_US);
	/* From the top down: calls under way still need the courier and the pool, and the pool's jobs the disk. */
	if (n->server)
		http_server_stop(n->server, STOP_GRACE_US);
	sweep_stop(&n->sweep);
	node_report_stop(&n->report);
	courier_stop(&n->courier);
	if (n->work)
		work_free(&n->work);
	if (n->server)
		http_server_free(&n->server);
	/* Its last words to the scheduler go by TLS too. */
	alerts_stop(&n->alerts);
	tls_free(&n->tls);
	disk_close(&n->disk);
	self_free(&n->self);
	free(n->scheduler_url);
	if (n->nonces)
		n->nonces->ops->free(n->nonces);
	fs_close(&n->data_lock_fd);
	fs_close(&n->lock_fd);
	keyring_fini(&n->keyring);
	pthread_mutex_destroy(&n->health_lock);
	mem_wipe(n, sizeof(*n));
	free(n);
	*node = NULL;
}
