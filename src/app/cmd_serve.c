#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app/boot.h"
#include "app/cmd.h"
#include "base/conf.h"
#include "base/log.h"
#include "folder/node.h"
#include "folder/sched.h"
#include "sys/fs.h"
#include "sys/sock.h"

#define SERVE_CONF_BYTES_MAX (16 * MIB)
#define SERVE_LOOK_S         2

const struct cmd_option cmd_scheduler_options[] = {
	{ "config", 'c', "FILE", "its configuration (YAML)" },
	{ .name = NULL },
};
const struct cmd_option cmd_node_options[] = {
	{ "config", 'c', "FILE", "its configuration (YAML)" },
	{ .name = NULL },
};

/* Before any thread starts, so that all inherit it: the signals come to serve_until_told only. */
static void serve_block_signals(sigset_t *signals)
{
	sigemptyset(signals);
	sigaddset(signals, SIGTERM);
	sigaddset(signals, SIGINT);
	sigaddset(signals, SIGHUP);
	sigprocmask(SIG_BLOCK, signals, NULL);
}

/* Tells whoever started this process (heng up, a test) where it serves now, when they gave a descriptor for it. */
static int serve_tell_ready(const struct sock_addr *addr, struct err *err)
{
	const char *text = getenv("HENG_READY_FD");
	uint64_t fd;
	if (text == NULL)
		return 0;
	if (!str_to_u64(str_from(text), &fd) || fd > INT16_MAX || fcntl((int)fd, F_GETFD) < 0)
		return err_set(err, ERR_CONFIG, "HENG_READY_FD '%s' is not an open descriptor", text);
	char addr_text[SOCK_TEXT_SIZE], line[SOCK_TEXT_SIZE + 2];
	int size = snprintf(line, sizeof(line), "%s\n", sock_addr_text(addr, addr_text));
	int r = fs_write_all((int)fd, line, (size_t)size, -1, err);
	close((int)fd);
	return r < 0 ? err_wrap(err, "telling on descriptor %s that it serves", text) : 0;
}

/* What reads a role's configuration again, into memory of its own, and gives it to the role. */
struct serve_reload {
	const struct cmd *cmd;
	const char *const *values;
	void *role;
	int (*run)(const struct serve_reload *reload, struct arena *arena, struct err *err);
	void (*look)(void *role); /* between signals, every few seconds */
};

static void serve_reload(const struct serve_reload *reload)
{
	AUTO(arena_fini) struct arena arena = ARENA_INIT(SERVE_CONF_BYTES_MAX);
	struct err err = ERR_INIT;
	if (reload->run(reload, &arena, &err) < 0)
		log_err(LOG_ERROR, &err, "told to read the configuration again: everything stays as it was");
	else
		log_say(LOG_INFO, "the configuration was read again");
}

static int serve_until_told(const sigset_t *signals, const struct serve_reload *reload)
{
	const struct timespec look_each = { .tv_sec = SERVE_LOOK_S };
	for (;;) {
		const int number = sigtimedwait(signals, NULL, &look_each);
		if (number == SIGHUP)
			serve_reload(reload);
		else if (number > 0)
			return number;
		reload->look(reload->role);
	}
}

static int serve_load(const struct cmd *cmd, const char *const *values, const struct conf_row *rows, void *conf,
		      size_t conf_size, struct arena *arena, struct err *err)
{
	const char *path = cmd_value(cmd, values, "config");
	if (path == NULL) {
		err_set(err, ERR_USAGE, "no configuration");
		err_hint(err, "heng %s -c FILE", cmd->name);
		return -(int)ERR_USAGE;
	}
	return conf_load(path, rows, conf, conf_size, arena, err);
}

static int scheduler_reload(const struct serve_reload *reload, struct arena *arena, struct err *err)
{
	struct sched_conf conf;
	const int r = serve_load(reload->cmd, reload->values, sched_conf_rows, &conf, sizeof(conf), arena, err);
	return r < 0 ? r : sched_reload(reload->role, &conf, err);
}

static void scheduler_look(void *role) { sched_look(role); }

int cmd_scheduler_run(const struct cmd *cmd, int operand_count, char **operands, const char *const *values)
{
	(void)operand_count, (void)operands;
	AUTO(arena_fini) struct arena arena = ARENA_INIT(SERVE_CONF_BYTES_MAX);
	struct err err = ERR_INIT;
	struct sched_conf conf;
	sigset_t signals;
	if (serve_load(cmd, values, sched_conf_rows, &conf, sizeof(conf), &arena, &err) < 0)
		return cmd_fail(&err, "the scheduler does not start");
	log_setup("scheduler", LOG_INFO, conf.log_json != 0);
	boot_raise_file_limit();
	boot_forbid_core();
	serve_block_signals(&signals);
	struct sched *sched;
	if (sched_start(&conf, &sched, &err) < 0)
		return cmd_fail(&err, "the scheduler does not start");
	char addr[SOCK_TEXT_SIZE];
	log_say(LOG_INFO, "serving on %s", sock_addr_text(sched_addr(sched), addr));
	const struct serve_reload reload = {
		.cmd = cmd, .values = values, .role = sched, .run = scheduler_reload, .look = scheduler_look
	};
	if (serve_tell_ready(sched_addr(sched), &err) == 0)
		log_say(LOG_INFO, "stopping: %s", strsignal(serve_until_told(&signals, &reload)));
	sched_stop(&sched);
	return err.code != ERR_NONE ? cmd_fail(&err, "the scheduler stops") : CMD_DONE;
}

static int node_reload_conf(const struct serve_reload *reload, struct arena *arena, struct err *err)
{
	struct node_conf conf;
	const int r = serve_load(reload->cmd, reload->values, node_conf_rows, &conf, sizeof(conf), arena, err);
	return r < 0 ? r : node_reload(reload->role, &conf, err);
}

static void node_look_role(void *role) { node_look(role); }

int cmd_node_run(const struct cmd *cmd, int operand_count, char **operands, const char *const *values)
{
	(void)operand_count, (void)operands;
	AUTO(arena_fini) struct arena arena = ARENA_INIT(SERVE_CONF_BYTES_MAX);
	struct err err = ERR_INIT;
	struct node_conf conf;
	sigset_t signals;
	if (serve_load(cmd, values, node_conf_rows, &conf, sizeof(conf), &arena, &err) < 0)
		return cmd_fail(&err, "the node does not start");
	char name[80];
	snprintf(name, sizeof(name), "node %s", conf.node_id[0] != '\0' ? conf.node_id : "?");
	log_setup(name, LOG_INFO, conf.log_json != 0);
	boot_raise_file_limit();
	boot_forbid_core();
	serve_block_signals(&signals);
	struct node *node;
	if (node_start(&conf, &node, &err) < 0)
		return cmd_fail(&err, "the node does not start");
	char addr[SOCK_TEXT_SIZE];
	log_say(LOG_INFO, "serving on %s", sock_addr_text(node_addr(node), addr));
	const struct serve_reload reload = {
		.cmd = cmd, .values = values, .role = node, .run = node_reload_conf, .look = node_look_role
	};
	if (serve_tell_ready(node_addr(node), &err) == 0)
		log_say(LOG_INFO, "stopping: %s", strsignal(serve_until_told(&signals, &reload)));
	node_stop(&node);
	return err.code != ERR_NONE ? cmd_fail(&err, "the node stops") : CMD_DONE;
}
