#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "app/cmd.h"
#include "sim/world.h"

#define SIM_POLICIES_MAX 64
#define SIM_TEXT_MAX     (64 * MIB)

const struct cmd_option cmd_sim_options[] = {
	{ "policy", 'p', "A,B", "these policies alone (all)" },
	{ "requests", 'n', "N", "so many instead of the scenario's" },
	{ "seed", 0, "N", "another seed than the scenario's" },
	{ "json", 0, NULL, "print one JSON object" },
	{ "svg", 0, "FILE", "draw the figures" },
	{ "log", 0, "FILE", "write the decision log of the one policy that runs (heng's own keep one)" },
	{ .name = NULL },
};

struct sim_run {
	struct scenario scenario;
	const struct sim_policy *policies[SIM_POLICIES_MAX];
	struct result *results[SIM_POLICIES_MAX];
	size_t count;
	FILE *log;
	int log_errno; /* the first failure to write it */
	bool is_logged;
};

static void sim_log(void *owner, struct str lines)
{
	struct sim_run *run = owner;
	run->is_logged = true;
	if (run->log_errno == 0 && fwrite(lines.data, 1, lines.size, run->log) != lines.size)
		run->log_errno = errno;
}

static int sim_no_policy(struct str name, struct err *err)
{
	char known[512] = "";
	size_t size = 0;
	for (size_t i = 0; sim_policies[i] != NULL && size < sizeof(known) - 1; i++)
		size += (size_t)snprintf(known + size, sizeof(known) - size, "%s%s", i > 0 ? ", " : "",
					 sim_policies[i]->name);
	return err_set(err, ERR_USAGE, "there is no policy '%.*s'; there are: %s", (int)min_size(name.size, 60),
		       name.data, known);
}

static int sim_choose_policies(struct sim_run *run, const char *text, struct err *err)
{
	struct str rest = str_from(text), piece;
	for (size_t i = 0; text == NULL && sim_policies[i] != NULL && run->count < SIM_POLICIES_MAX; i++)
		run->policies[run->count++] = sim_policies[i];
	while (text != NULL && str_cut(&rest, ',', &piece)) {
		char name[64];
		const struct sim_policy *policy = str_copy(piece, name, sizeof(name)) ? sim_policy_find(name) : NULL;
		if (policy == NULL)
			return sim_no_policy(piece, err);
		if (run->count == SIM_POLICIES_MAX)
			return err_set(err, ERR_USAGE, "--policy names more than %d", SIM_POLICIES_MAX);
		run->policies[run->count++] = policy;
	}
	return run->count > 0 ? 0 : err_set(err, ERR_USAGE, "--policy names none");
}

static int sim_read(const struct cmd *cmd, const char *const *values, const char *path, struct arena *arena,
		    struct sim_run *run, struct err *err)
{
	int r = scenario_load(path, arena, &run->scenario, err);
	uint64_t requests = (uint64_t)run->scenario.requests, seed = (uint64_t)run->scenario.seed;
	if (r == 0)
		r = cmd_number(cmd, values, "requests", 1, 10000000000U, &requests, err);
	if (r == 0)
		r = cmd_number(cmd, values, "seed", 0, INT64_MAX, &seed, err);
	run->scenario.requests = (int64_t)requests;
	run->scenario.seed = (int64_t)seed;
	if (r == 0)
		r = sim_choose_policies(run, cmd_value(cmd, values, "policy"), err);
	/* A record names router and set, not the policy: those of several could not be told apart. */
	if (r == 0 && cmd_value(cmd, values, "log") != NULL && run->count > 1) {
		r = err_set(err, ERR_USAGE, "--log keeps the decisions of one policy, and %zu are to run", run->count);
		err_hint(err, "name one, like --policy heng_adaptive");
	}
	return r;
}

static int sim_run_all(struct sim_run *run, struct err *err)
{
	for (size_t i = 0; i < run->count; i++) {
		struct world_conf conf = { .scenario = &run->scenario, .policy = run->policies[i] };
		if (run->log != NULL) {
			conf.log = sim_log;
			conf.log_owner = run;
		}
		run->results[i] = must_zalloc(1, sizeof(*run->results[i]));
		result_init(run->results[i], run->policies[i]->name, &run->scenario);
		clock_t start = clock();
		int r = world_run(&conf, run->results[i], err);
		if (r < 0)
			return r;
		double seconds = (double)max_i64(clock() - start, 1) / CLOCKS_PER_SEC;
		/* Not part of the result, which is the same at each run. */
		fprintf(stderr,
			"%-20s %.1f s of processor time, %.2f million requests and %.2f million events a second\n",
			run->policies[i]->name, seconds, (double)run->results[i]->arrived_count / seconds / 1e6,
			(double)run->results[i]->event_count / seconds / 1e6);
	}
	return 0;
}

static int sim_write_file(const char *path, struct str text, struct err *err)
{
	FILE *file = fopen(path, "we");
	if (file == NULL)
		return err_sys(err, ERR_SYSTEM, errno, "creating '%.200s'", path);
	bool is_written = fwrite(text.data, 1, text.size, file) == text.size;
	if (fclose(file) != 0 || !is_written)
		return err_sys(err, ERR_SYSTEM, errno, "writing '%.200s'", path);
	return 0;
}

static int sim_show(const struct cmd *cmd, const char *const *values, struct sim_run *run, struct err *err)
{
	const struct result *const *results = (const struct result *const *)run->results;
	struct buf text = BUF_INIT(SIM_TEXT_MAX), picture = BUF_INIT(SIM_TEXT_MAX);
	int r = 0;
	if (cmd_value(cmd, values, "json") != NULL)
		result_write_json(&text, &run->scenario, results, run->count);
	else
		result_write_table(&text, &run->scenario, results, run->count);
	if (text.is_failed || fwrite(text.data, 1, text.size, stdout) != text.size || fflush(stdout) != 0)
		r = err_sys(err, ERR_SYSTEM, text.is_failed ? ENOMEM : errno, "writing the figures");
	/* After the figures: those are not lost when the picture cannot be written. */
	if (r == 0 && cmd_value(cmd, values, "svg") != NULL) {
		result_write_svg(&picture, &run->scenario, results, run->count);
		r = sim_write_file(cmd_value(cmd, values, "svg"), buf_str(&picture), err);
	}
	buf_fini(&text);
	buf_fini(&picture);
	return r;
}

/* Figures of nothing look like a fault of the simulator. */
static void sim_warn_empty(const struct sim_run *run)
{
	uint64_t measured_count = 0;
	for (size_t i = 0; i < run->count; i++)
		measured_count += run->results[i]->measured_count;
	if (measured_count == 0)
		fprintf(stderr,
			"heng: all %lld requests arrive within the warm-up, which is left out of the figures\n"
			"hint: ask for more with --requests, or shorten `warmup` in the scenario\n",
			(long long)run->scenario.requests);
}

/* The log is whole on disk, or the command fails: replay must not stumble over a torn one. */
static int sim_close_log(struct sim_run *run, const char *path, struct err *err)
{
	int failed = run->log_errno;
	if (run->log != NULL && fclose(run->log) != 0 && failed == 0)
		failed = errno;
	return failed != 0 ? err_sys(err, ERR_SYSTEM, failed, "writing the decision log '%.200s'", path) : 0;
}

int cmd_sim_run(const struct cmd *cmd, int operand_count, char **operands, const char *const *values)
{
	(void)operand_count;
	struct err err = ERR_INIT, close_err = ERR_INIT;
	AUTO(arena_fini) struct arena arena = ARENA_INIT(16 * MIB);
	const char *log_path = cmd_value(cmd, values, "log");
	struct sim_run run = { .count = 0 };
	int r = sim_read(cmd, values, operands[0], &arena, &run, &err);
	if (r == 0 && log_path != NULL) {
		run.log = fopen(log_path, "we");
		if (run.log == NULL)
			r = err_sys(&err, ERR_SYSTEM, errno, "creating the decision log '%.200s'", log_path);
	}
	if (r == 0)
		r = sim_run_all(&run, &err);
	if (sim_close_log(&run, log_path, &close_err) < 0 && r == 0) {
		err = close_err;
		r = -(int)err.code;
	}
	if (r == 0 && log_path != NULL && !run.is_logged)
		fprintf(stderr, "note: '%s' makes no decision log, so '%.200s' is empty\n", run.policies[0]->name,
			log_path);
	if (r == 0)
		r = sim_show(cmd, values, &run, &err);
	if (r == 0)
		sim_warn_empty(&run);
	for (size_t i = 0; i < run.count; i++) {
		if (run.results[i] != NULL)
			result_fini(run.results[i]);
		free(run.results[i]);
	}
	return r < 0 ? cmd_fail(&err, "sim") : CMD_DONE;
}
