#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app/boot.h"
#include "app/cmd.h"
#include "app/key.h"
#include "app/up_tls.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/digest.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "sys/fetch.h"
#include "sys/fs.h"
#include "sys/loop.h"

#define UP_NODES_MAX 64
#define UP_READY_US  (30 * SEC_US)
/* Together with one question to a scheduler that hangs and a second for SIGKILL this stays below the 5 s promised for SIGTERM. */
#define UP_STOP_US        (3 * SEC_US)
#define UP_ASK_US         (500 * MSEC_US)
#define UP_STARTS_MAX     8 /* of one child before everything is ready */
#define UP_KEY_FILE_MAX   (64 * KIB)
#define UP_KEY_SIZE       65 /* of a user's key, with its NUL */
#define UP_KEY_LINES_SIZE (ARGON_TEXT_SIZE + 64)
/* Longer than the three probes by which the scheduler notices, so that the node is out of the pool and its work has moved on first. */
#define UP_RESTART_AFTER_S 10

const struct cmd_option cmd_up_options[] = {
	{ "data", 'd', "DIR", "folder for everything: keys, tables, chunks, batches; made when absent" },
	{ "listen", 'l', "HOST:PORT", "where the scheduler serves; port 0 picks one (127.0.0.1:7080)" },
	{ "nodes", 'n', "N", "storage nodes, 1 to 64 (3)" },
	{ "restart-after", 0, "SECONDS|never", "when a node that died is started again (10)" },
	{ "tls", 0, NULL,
	  "TLS everywhere, with an authority of its own (DIR/tls/ca.pem) and certificates that it renews" },
	{ "profile", 0, "FILE", "by which the nodes are scored (the built-in folder profile)" },
	{ "log-places", 0, "spilled|all",
	  "chunks whose placement is logged: spilled, those that did not go to their owner on the ring; or all" },
	{ .name = NULL },
};

struct up {
	char dir[PATH_MAX], listen[128], key_path[PATH_MAX + 32];
	char tls_dir[PATH_MAX + 32]; /* "": without */
	char profile[PATH_MAX];      /* absolute; "": built-in */
	char api_key[UP_KEY_SIZE];   /* the uploader's, with which we ask too */
	char uploader_lines[UP_KEY_LINES_SIZE], operator_lines[UP_KEY_LINES_SIZE];
	const char *loop, *log_places, *store;
	uint64_t node_count;
	bool is_tls;
	int64_t restart_after_us;
	int lock_fd;
	struct boot boot;
};

/* --- the folder --- */
static int up_path(const struct up *up, const char *name, char target[PATH_MAX + 32], struct err *err)
{
	if (snprintf(target, PATH_MAX + 32, "%s/%s", up->dir, name) >= PATH_MAX)
		return err_set(err, ERR_USAGE, "the path of --data is too long");
	return 0;
}

static int up_make_dir(struct up *up, const char *name, struct err *err)
{
	char path[PATH_MAX + 32];
	int r = up_path(up, name, path, err);
	return r < 0 ? r : fs_make_dirs(path, err);
}

/* It goes into configuration files, and a folder into the one line that scripts read. */
static int up_check_path(const char *path, const char *option, struct err *err)
{
	for (const char *c = path; *c != '\0'; c++) {
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			return err_set(err, ERR_USAGE, "the path of %s has a control character in it", option);
	}
	/* YAML is UTF-8, and knows control characters beyond ASCII: U+0085 would be read as a line end. */
	if (!utf8_is_valid(str_from(path)))
		return err_set(err, ERR_USAGE, "the path of %s is not UTF-8", option);
	for (const char *c = path; *c != '\0'; c++) {
		if ((unsigned char)*c == 0xc2 && (unsigned char)c[1] < 0xa0)
			return err_set(err, ERR_USAGE, "the path of %s has a control character in it", option);
	}
	return 0;
}

/* As the user gave it, made absolute: links in it stay, so that the paths shown are those that the user knows. */
static int up_take_path(const char *given, const char *option, char target[PATH_MAX], struct err *err)
{
	char cwd[PATH_MAX] = "";
	if (given[0] != '/' && getcwd(cwd, sizeof(cwd)) == NULL)
		return err_sys(err, ERR_SYSTEM, errno, "finding the current folder");
	size_t size = strlen(given);
	while (size > 1 && given[size - 1] == '/')
		size--;
	int written = given[0] == '/' ? snprintf(target, PATH_MAX, "%.*s", (int)size, given)
				      : snprintf(target, PATH_MAX, "%s/%.*s", cwd, (int)size, given);
	if (written >= PATH_MAX)
		return err_set(err, ERR_USAGE, "the path of %s is too long", option);
	return up_check_path(target, option, err);
}

static int up_take_dir(struct up *up, const char *dir, struct err *err)
{
	if (dir == NULL || dir[0] == '\0') {
		err_set(err, ERR_USAGE, "no data folder");
		err_hint(err, "heng up --data DIR");
		return -(int)ERR_USAGE;
	}
	return up_take_path(dir, "--data", up->dir, err);
}

/* Reads a key file, or makes one with that text. */
static int up_key(struct up *up, const char *name, const char *fresh, struct buf *ret_text, struct err *err)
{
	char path[PATH_MAX + 32];
	int r = up_path(up, name, path, err);
	if (r < 0)
		return r;
	if (access(path, F_OK) == 0)
		return fs_read_file(path, UP_KEY_FILE_MAX, ret_text, err);
	buf_printf(ret_text, "%s\n", fresh);
	return fs_replace_file(path, buf_str(ret_text), 0600, err);
}

static int up_cluster_key(struct up *up, struct err *err)
{
	struct buf text = BUF_INIT(UP_KEY_FILE_MAX);
	uint8_t key[32];
	char line[2 + 2 * sizeof(key) + 1] = "1 ";
	rng_secret(key, sizeof(key));
	hex_encode(key, sizeof(key), line + 2);
	int r = up_key(up, "cluster.key", line, &text, err);
	mem_wipe(key, sizeof(key));
	mem_wipe(line, sizeof(line));
	if (text.data != NULL)
		mem_wipe(text.data, text.size);
	buf_fini(&text);
	return r;
}

/* What the scheduler is told of a user's key: its Argon2id hash, or, when it is one from before keys had ids, its SHA-256. */
static int up_key_lines(struct str key, char target[UP_KEY_LINES_SIZE], struct err *err)
{
	char id[KEY_ID_SIZE], hash[ARGON_TEXT_SIZE];
	if (!key_id(key, id)) {
		digest_of(DIGEST_SHA256, key.data, key.size, hash);
		snprintf(target, UP_KEY_LINES_SIZE, "    key_sha256: %s\n", hash);
		return 0;
	}
	int r = argon_hash(key, hash, err);
	snprintf(target, UP_KEY_LINES_SIZE, "    key_id: \"%s\"\n    key_argon2: \"%s\"\n", id, hash);
	return r;
}

/* A user's key, for configurations (its hash) and for ourselves. */
static int up_user_key(struct up *up, const char *name, char ret_key[UP_KEY_SIZE], char ret_lines[UP_KEY_LINES_SIZE],
		       struct err *err)
{
	struct buf text = BUF_INIT(UP_KEY_FILE_MAX);
	char fresh[KEY_TEXT_SIZE];
	key_make(fresh);
	int r = up_key(up, name, fresh, &text, err);
	mem_wipe(fresh, sizeof(fresh));
	struct str key = buf_str(&text);
	while (key.size > 0 && (key.data[key.size - 1] == '\n' || key.data[key.size - 1] == ' '))
		key.size--;
	if (r == 0 && (key.size < 32 || !str_copy(key, ret_key, UP_KEY_SIZE)))
		r = err_set(err, ERR_CONFIG, "'%s/%s' does not hold a key of 32 to 64 characters", up->dir, name);
	if (r == 0)
		r = up_key_lines(key, ret_lines, err);
	if (text.data != NULL)
		mem_wipe(text.data, text.size);
	buf_fini(&text);
	return r;
}

/* A node of an earlier start with more of them may have the only copy of a chunk. */
static void up_warn_left_out(const struct up *up)
{
	char name[32], path[PATH_MAX + 32];
	for (uint64_t i = up->node_count + 1; i <= UP_NODES_MAX; i++) {
		snprintf(name, sizeof(name), "n%llu", (unsigned long long)i);
		if (up_path(up, name, path, NULL) == 0 && access(path, F_OK) == 0)
			log_say(LOG_WARN,
				"node %s of an earlier start is left out: what open transfers have there is sent again "
				"(--nodes %llu takes it in)",
				name, (unsigned long long)i);
	}
}

static int up_make_folder(struct up *up, struct err *err)
{
	char name[32], path[PATH_MAX + 32];
	int r = fs_make_dirs(up->dir, err);
	if (r == 0)
		r = up_path(up, "lock", path, err);
	if (r < 0)
		return r;
	up->lock_fd = fs_lock(path, err);
	if (up->lock_fd < 0)
		return err_wrap(err, "taking the lock of '%s'", up->dir);
	fs_clean_replaced(up->dir, 0);
	static const char *const folders[] = { "scheduler", "staging", "final" };
	for (size_t i = 0; r == 0 && i < COUNT_OF(folders); i++)
		r = up_make_dir(up, folders[i], err);
	for (uint64_t i = 1; r == 0 && i <= up->node_count; i++) {
		snprintf(name, sizeof(name), "n%llu", (unsigned long long)i);
		r = up_make_dir(up, name, err);
	}
	if (r < 0)
		return r;
	up_warn_left_out(up);
	char operator_key[UP_KEY_SIZE];
	r = up_cluster_key(up, err);
	if (r == 0)
		r = up_user_key(up, "uploader.key", up->api_key, up->uploader_lines, err);
	if (r == 0)
		r = up_user_key(up, "operator.key", operator_key, up->operator_lines, err);
	if (r == 0 && strcmp(up->api_key, operator_key) == 0)
		r = err_set(err, ERR_CONFIG, "'%s/operator.key' holds the uploader's key", up->dir);
	mem_wipe(operator_key, sizeof(operator_key));
	if (r == 0 && up->is_tls)
		r = up_path(up, "tls", up->tls_dir, err);
	if (r == 0 && up->is_tls)
		r = up_tls_make(up->tls_dir, up->listen, up->node_count, true, err);
	return r < 0 ? r : up_path(up, "uploader.key", up->key_path, err);
}

/* --- the configurations --- */
static void up_yaml(struct buf *text, const char *name, const char *dir, const char *below)
{
	buf_printf(text, "%s: \"", name);
	for (const char *c = dir; *c != '\0'; c++)
		buf_printf(text, *c == '"' || *c == '\\' ? "\\%c" : "%c", *c);
	buf_printf(text, "%s%s\"\n", below[0] != '\0' ? "/" : "", below);
}

static void up_yaml_tls(struct buf *text, const struct up *up, const char *role)
{
	char file[64];
	if (up->tls_dir[0] == '\0')
		return;
	up_yaml(text, "tls_ca", up->tls_dir, "ca.pem");
	snprintf(file, sizeof(file), "%s.pem", role);
	up_yaml(text, "tls_certificate", up->tls_dir, file);
	snprintf(file, sizeof(file), "%s.key", role);
	up_yaml(text, "tls_key", up->tls_dir, file);
}

static int up_write(struct up *up, struct boot_child *child, struct buf *text, struct err *err)
{
	int r = text->is_failed ? err_set(err, ERR_NO_MEMORY, "no memory for a configuration")
				: fs_replace_file(child->conf_path, buf_str(text), 0600, err);
	buf_fini(text);
	(void)up;
	return r;
}

static int up_write_scheduler(struct up *up, struct boot_child *child, struct err *err)
{
	struct buf text = BUF_INIT(64 * KIB);
	buf_printf(&text, "# Written by heng up at each start.\n");
	up_yaml(&text, "listen", up->listen, "");
	up_yaml(&text, "state_dir", up->dir, "scheduler");
	if (up->store && up->store[0] != '\0')
		up_yaml(&text, "store", up->store, "");
	up_yaml(&text, "staging_dir", up->dir, "staging");
	up_yaml(&text, "final_dir", up->dir, "final");
	up_yaml(&text, "cluster_key_file", up->dir, "cluster.key");
	up_yaml(&text, "loop", up->loop, "");
	up_yaml_tls(&text, up, "scheduler");
	up_yaml(&text, "decision_log_places", up->log_places, "");
	if (up->profile[0] != '\0')
		up_yaml(&text, "profile", up->profile, "");
	buf_printf(&text, "users:\n  - name: uploader\n%s    role: uploader\n", up->uploader_lines);
	buf_printf(&text, "  - name: operator\n%s    role: operator\n", up->operator_lines);
	return up_write(up, child, &text, err);
}

/* Where nodes, and who reads the ready line, reach a scheduler that listens everywhere. */
static void up_url(const struct up *up, char target[256])
{
	const char *addr = up->boot.children[0].addr, *port = strrchr(addr, ':');
	const char *scheme = up->tls_dir[0] != '\0' ? "https" : "http";
	if (strncmp(addr, "0.0.0.0:", 8) == 0 && port != NULL)
		snprintf(target, 256, "%s://127.0.0.1%s", scheme, port);
	else if (strncmp(addr, "[::]:", 5) == 0 && port != NULL)
		snprintf(target, 256, "%s://[::1]%s", scheme, port);
	else
		snprintf(target, 256, "%s://%s", scheme, addr);
}

static int up_write_node(struct up *up, struct boot_child *child, struct err *err)
{
	struct buf text = BUF_INIT(64 * KIB);
	char url[256];
	up_url(up, url);
	buf_printf(&text, "# Written by heng up at each start.\nnode_id: %s\nlisten: \"127.0.0.1:0\"\n", child->name);
	up_yaml(&text, "state_dir", up->dir, child->name);
	up_yaml(&text, "scheduler", url, "");
	up_yaml(&text, "cluster_key_file", up->dir, "cluster.key");
	up_yaml(&text, "loop", up->loop, "");
	up_yaml_tls(&text, up, child->name);
	/* Small floors, so that a first try works on a small disk; a short interval, so that what is left behind goes while somebody looks. */
	buf_printf(&text, "free_floor: 64MiB\nfree_floor_percent: 1\nsweep_interval: 5s\n");
	return up_write(up, child, &text, err);
}

static int up_name_child(struct up *up, struct boot_child *child, const char *name, const char *command,
			 struct err *err)
{
	char path[PATH_MAX + 32], file[64];
	snprintf(child->name, sizeof(child->name), "%s", name);
	child->command = command;
	child->restart_after_us = strcmp(command, "node") == 0 ? up->restart_after_us : 0;
	snprintf(file, sizeof(file), "%s.yaml", name);
	int r = up_path(up, file, path, err);
	if (r < 0)
		return r;
	child->conf_path = must_strdup(path);
	snprintf(file, sizeof(file), "%s.log", name);
	r = up_path(up, file, path, err);
	if (r == 0)
		child->log_path = must_strdup(path);
	return r;
}

/* --- getting ready --- */
static int up_check_child(const struct boot_child *child, struct err *err)
{
	char text[400];
	if (child->pid != 0 || child->start_count < UP_STARTS_MAX)
		return 0;
	boot_describe_end(child, text, sizeof(text));
	err_set(err, ERR_REFUSED, "%s", text);
	err_hint(err, "all of it: %s", child->log_path);
	return -(int)ERR_REFUSED;
}

static int up_too_late(const struct up *up, const char *what, struct err *err)
{
	err_set(err, ERR_TIMEOUT, "%s after %lld s", what, (long long)(UP_READY_US / SEC_US));
	err_hint(err, "the logs: %s/*.log", up->dir);
	return -(int)ERR_TIMEOUT;
}

/* Until children first..end have said where they serve. 1: told to stop meanwhile. */
static int up_await(struct up *up, size_t first, size_t end, int64_t until_us, struct err *err)
{
	for (;;) {
		size_t serving = 0;
		int r = 0;
		for (size_t i = 0; i < up->boot.child_count; i++) {
			r = r < 0 ? r : up_check_child(&up->boot.children[i], err);
			serving += i >= first && i < end && up->boot.children[i].addr[0] != '\0';
		}
		if (r < 0)
			return r;
		if (up->boot.is_told_to_stop)
			return 1;
		if (serving == end - first)
			return 0;
		if (clock_mono_us() >= until_us)
			return up_too_late(up, first == 0 ? "the scheduler does not serve" : "not every node serves",
					   err);
		r = boot_step(&up->boot, 100 * MSEC_US, err);
		if (r < 0)
			return r;
	}
}

/* How many of our nodes take work, by the scheduler's word; negative when it does not answer. */
static int up_count_nodes(const struct up *up, struct fetch *fetch, struct err *err)
{
	char base[256], url[300], header[100];
	up_url(up, base);
	snprintf(url, sizeof(url), "%s/api/v1/nodes", base);
	snprintf(header, sizeof(header), "X-Api-Key: %s", up->api_key);
	struct fetch_call call = FETCH_CALL_INIT;
	call.url = url;
	call.headers[0] = header;
	call.timeout_us = UP_ASK_US;
	int count = fetch_do(fetch, &call, err);
	if (count == 0) {
		json_error_t fault;
		json_t *root = json_loadb(call.answer.data != NULL ? call.answer.data : "", call.answer.size, 0,
					  &fault);
		size_t i;
		json_t *item;
		json_array_foreach(json_object_get(root, "nodes"), i, item)
		{
			const char *id = json_string_value(json_object_get(item, "id"));
			bool takes_work = json_is_true(json_object_get(item, "takes_work"));
			for (size_t j = 1; id != NULL && takes_work && j < up->boot.child_count; j++)
				count += strcmp(up->boot.children[j].name, id) == 0;
		}
		json_decref(root);
	}
	buf_fini(&call.answer);
	return count;
}

static int up_open_fetch(const struct up *up, struct tls **ret_tls, struct fetch **ret_fetch, struct err *err)
{
	char path[PATH_MAX + 64];
	const struct tls_files files = { .ca = path };
	snprintf(path, sizeof(path), "%s/ca.pem", up->tls_dir);
	int r = up->tls_dir[0] != '\0' ? tls_new(&files, ret_tls, err) : 0;
	if (r == 0)
		r = fetch_new(ret_fetch, err);
	if (r == 0)
		fetch_use_tls(*ret_fetch, *ret_tls);
	return r;
}

static int up_await_nodes(struct up *up, int64_t until_us, struct err *err)
{
	struct fetch *fetch = NULL;
	struct tls *tls = NULL;
	int r = up_open_fetch(up, &tls, &fetch, err);
	if (r < 0) {
		tls_free(&tls);
		return r;
	}
	for (;;) {
		r = up_await(up, 1, up->boot.child_count, until_us, err);
		if (r != 0)
			break;
		struct err asked = ERR_INIT;
		int count = up_count_nodes(up, fetch, &asked);
		if (count == (int)up->node_count)
			break;
		if (clock_mono_us() >= until_us) {
			r = up_too_late(up, count < 0 ? asked.text : "not every node is registered and takes work",
					err);
			break;
		}
		r = boot_step(&up->boot, 50 * MSEC_US, err);
		if (r < 0)
			break;
	}
	fetch_free(&fetch);
	tls_free(&tls);
	return r;
}

/* Scheduler, then nodes, then ready. 1: told to stop meanwhile. */
static int up_start(struct up *up, struct err *err)
{
	int64_t until_us = clock_mono_us() + UP_READY_US;
	struct boot_child *scheduler = &up->boot.children[0];
	int r = up_name_child(up, scheduler, "scheduler", "scheduler", err);
	if (r == 0)
		r = up_write_scheduler(up, scheduler, err);
	for (uint64_t i = 1; r == 0 && i <= up->node_count; i++) {
		char name[16];
		snprintf(name, sizeof(name), "n%llu", (unsigned long long)i);
		r = up_name_child(up, &up->boot.children[i], name, "node", err);
	}
	if (r == 0)
		r = boot_start(&up->boot, scheduler, err);
	if (r == 0)
		r = up_await(up, 0, 1, until_us, err);
	if (r != 0)
		return r;
	/* The port that was picked is kept from now on: nodes and clients know it. */
	snprintf(up->listen, sizeof(up->listen), "%s", scheduler->addr);
	r = up_write_scheduler(up, scheduler, err);
	for (uint64_t i = 1; r == 0 && i <= up->node_count; i++) {
		r = up_write_node(up, &up->boot.children[i], err);
		if (r == 0)
			r = boot_start(&up->boot, &up->boot.children[i], err);
	}
	return r < 0 ? r : up_await_nodes(up, until_us, err);
}

/* What cannot be renewed now may be in an hour: the certificates that are there are good for weeks. */
static void up_renew(const struct up *up)
{
	struct err err = ERR_INIT;
	if (up->tls_dir[0] != '\0' && up_tls_make(up->tls_dir, up->listen, up->node_count, false, &err) < 0)
		log_err(LOG_ERROR, &err, "renewing certificates");
}

static int up_run(struct up *up, struct err *err)
{
	int r = boot_init(&up->boot, (size_t)up->node_count + 1, err);
	if (r == 0)
		r = up_start(up, err);
	if (r == 0) {
		char url[256];
		up_url(up, url);
		up->boot.is_settled = true;
		printf("ready %s data=%s key=%s", url, up->dir, up->key_path);
		if (up->tls_dir[0] != '\0')
			printf(" ca=%s/ca.pem", up->tls_dir);
		printf("\n");
		fflush(stdout);
		while (r == 0 && !up->boot.is_told_to_stop) {
			up_renew(up);
			r = boot_step(&up->boot, up->tls_dir[0] != '\0' ? UP_TLS_LOOK_US : -1, err);
		}
	}
	boot_stop(&up->boot, UP_STOP_US);
	boot_fini(&up->boot);
	return r < 0 ? r : 0;
}

static int up_read_options(const struct cmd *cmd, const char *const *values, struct up *up, struct err *err)
{
	const char *listen = cmd_value(cmd, values, "listen"), *restart = cmd_value(cmd, values, "restart-after");
	const char *profile = cmd_value(cmd, values, "profile");
	static const char *const places[] = { "spilled", "all", NULL };
	int places_index = 0;
	uint64_t restart_after_s = UP_RESTART_AFTER_S;
	bool is_never = restart != NULL && strcmp(restart, "never") == 0;
	enum loop_backend backend;
	up->node_count = 3;
	up->is_tls = cmd_value(cmd, values, "tls") != NULL;
	int r = up_take_dir(up, cmd_value(cmd, values, "data"), err);
	if (r == 0 && profile != NULL && profile[0] != '\0')
		r = up_take_path(profile, "--profile", up->profile, err);
	if (r == 0)
		r = cmd_number(cmd, values, "nodes", 1, UP_NODES_MAX, &up->node_count, err);
	if (r == 0 && !is_never)
		r = cmd_number(cmd, values, "restart-after", 0, 7 * 24 * 3600, &restart_after_s, err);
	if (r == 0)
		r = cmd_choice(cmd, values, "log-places", places, &places_index, err);
	if (r < 0)
		return r;
	up->log_places = places[places_index];
	up->restart_after_us = is_never ? BOOT_NEVER : (int64_t)restart_after_s * SEC_US;
	snprintf(up->listen, sizeof(up->listen), "%s", listen != NULL ? listen : "127.0.0.1:7080");
	if (strpbrk(up->listen, "\"\\\n\r\t ") != NULL || strrchr(up->listen, ':') == NULL)
		return err_set(err, ERR_USAGE, "--listen '%s' is not HOST:PORT", up->listen);
	up->store = getenv("HENG_STORE");
	up->loop = getenv("HENG_LOOP");
	if (up->loop == NULL)
		up->loop = "auto";
	if (!loop_backend_from_name(up->loop, &backend))
		return err_set(err, ERR_USAGE, "HENG_LOOP '%s' is none of: auto, io_uring, epoll", up->loop);
	return 0;
}

int cmd_up_run(const struct cmd *cmd, int operand_count, char **operands, const char *const *values)
{
	(void)operand_count, (void)operands;
	struct err err = ERR_INIT;
	struct up up = { .lock_fd = -1, .boot = { .signal_fd = -1 } };
	log_setup("up", LOG_INFO, false);
	int r = up_read_options(cmd, values, &up, &err);
	if (r == 0)
		r = up_make_folder(&up, &err);
	if (r == 0)
		r = up_run(&up, &err);
	fs_close(&up.lock_fd);
	mem_wipe(up.api_key, sizeof(up.api_key));
	return r < 0 ? cmd_fail(&err, "heng up on '%s' stops", up.dir) : CMD_DONE;
}
