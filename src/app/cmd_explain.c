#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "app/cmd.h"
#include "app/declog.h"
#include "app/explain.h"

const struct cmd_option cmd_explain_options[] = {
	{ "log", 0, "FILE", "the decision log; - for standard input" },
	{ "set", 0, "ID", "the set, or the transfer, whose decision is asked about" },
	{ "at", 0, "TIME", "the last decision at or before it: RFC 3339, or @ and microseconds since 1970 (the last)" },
	{ "key", 0, "TEXT", "of a transfer: the chunk whose path, number or hash has TEXT in it" },
	{ "router", 0, "ID", "only the tables of this router" },
	{ "rotated", 0, NULL, "read LOG.2, LOG.1, ... before LOG, as far as they exist" },
	{ "json", 0, NULL, "answer in JSON" },
	{ .name = NULL },
};

struct question {
	const char *set, *key, *router;
	int64_t at_us;
	bool is_json;
};
/* The latest record of a kind that answers. */
struct answer {
	struct buf line;
	char where[512], difference[256];
	bool is_found, agrees;
};
#define ANSWER_KINDS (DECIDE_PICK + 1)
struct answers {
	struct answer kinds[ANSWER_KINDS];
	uint64_t other_router_count;
	char other_router[SCORE_ID_SIZE];
	char other_set[JUDGE_SET_SIZE]; /* one that has a table in the log */
};

/* Cheap, for all lines of other sets: reading one costs a hundred times more. A name that JSON may spell in other ways is not looked for. */
static bool may_answer(struct str line, const char *set)
{
	static const char *const always[] = { "\"profile\",\"", "\"plan\",\"" };
	struct str head = { line.data, min_size(line.size, 32) };

	for (size_t i = 0; i < COUNT_OF(always); i++) {
		if (memmem(head.data, head.size, always[i], strlen(always[i])))
			return true;
	}
	for (const char *at = set; *at; at++) {
		if (*at < 0x20 || *at > 0x7e || *at == '"' || *at == '\\')
			return true;
	}
	return memmem(line.data, line.size, set, strlen(set)) != NULL;
}

static bool key_matches(const struct decide_place *place, const char *key)
{
	char hash[17];

	if (!key)
		return true;
	(void)snprintf(hash, sizeof(hash), "%016" PRIx64, place->key_hash);
	return strcmp(hash, key) == 0 ||
	       (place->what.size > 0 && memmem(place->what.data, place->what.size, key, strlen(key)));
}

static bool answers_question(const struct decide_record *record, const struct question *question,
			     struct answers *answers)
{
	if (record->kind >= ANSWER_KINDS || record->kind == DECIDE_PROFILE)
		return false;
	if (record->kind == DECIDE_TABLE && strcmp(record->set, question->set) != 0)
		(void)str_copy(str_from(record->set), answers->other_set, sizeof(answers->other_set));
	if (strcmp(record->set, question->set) != 0 || record->wall_us > question->at_us)
		return false;
	if (record->kind == DECIDE_PLACE)
		return key_matches(&record->place, question->key);
	if (record->kind != DECIDE_TABLE || !question->router)
		return true;
	if (strcmp(record->table.router, question->router) == 0)
		return true;
	answers->other_router_count++;
	(void)str_copy(str_from(record->table.router), answers->other_router, sizeof(answers->other_router));
	return false;
}

static void keep(struct answer *answer, struct str line, const char *where, enum decide_result result,
		 const struct decide_change *change)
{
	buf_clear(&answer->line);
	buf_append(&answer->line, line);
	answer->is_found = true;
	answer->agrees = result != DECIDE_OTHER;
	(void)snprintf(answer->where, sizeof(answer->where), "%s", where);
	(void)snprintf(answer->difference, sizeof(answer->difference), "%s", change->what);
}

/* Lines are replayed on the way, so that each answer says whether it agrees. Lines that are no records are not ours to tell of. */
static int search(struct declog *log, struct decide_replay *replay, const struct question *question,
		  struct answers *answers, struct err *err)
{
	struct str line;
	int result;

	while ((result = declog_next(log, &line, err)) > 0) {
		const struct decide_record *record;
		enum decide_result outcome;
		struct decide_change change;
		struct err fault = ERR_INIT;

		/* One other set is looked at, to be named when the one that was asked for is not there. */
		if ((answers->other_set[0] && !may_answer(line, question->set)) ||
		    decide_replay_line(replay, line, &outcome, &change, &fault) < 0)
			continue;
		record = decide_replay_record(replay);
		if (answers_question(record, question, answers))
			keep(&answers->kinds[record->kind], line, declog_where(log), outcome, &change);
	}
	return result;
}

/* With a key only the placement answers; else a set's table and the latest pick from it, or a transfer's latest placement, or its plan. */
static size_t choose(struct answers *answers, bool has_key, const struct answer *ret_chosen[2])
{
	static const enum decide_kind order[] = { DECIDE_TABLE, DECIDE_PICK, DECIDE_PLACE, DECIDE_PLAN };
	size_t count = 0;

	for (size_t i = 0; i < COUNT_OF(order); i++) {
		const struct answer *answer = &answers->kinds[order[i]];

		if (!answer->is_found || (has_key && order[i] != DECIDE_PLACE))
			continue;
		if (count > 0 && order[i] != DECIDE_PICK)
			break;
		ret_chosen[count++] = answer;
	}
	return count;
}

static int not_found(const struct question *question, const struct answers *answers, const char *path)
{
	struct err err = ERR_INIT;

	err_set(&err, ERR_BAD_REQUEST, "no decision about '%s'%s%s in %s%s", question->set,
		question->key ? " with the key " : "", question->key ? question->key : "", path,
		question->at_us == INT64_MAX ? "" : " at or before that time");
	if (answers->other_router_count)
		err_hint(&err, "there are %" PRIu64 " of other routers, such as '%s'", answers->other_router_count,
			 answers->other_router);
	else if (answers->other_set[0] && !question->key)
		err_hint(&err,
			 "there are decisions about other sets, such as '%s'; --rotated reads the older files too",
			 answers->other_set);
	else
		err_hint(&err, "--rotated reads the older files too; of a transfer only chunks that spilled are "
			       "recorded unless the scheduler has decision_log_places: all");
	return cmd_fail(&err, "explain");
}

static int tell(struct decide_replay *replay, const struct question *question, const struct answer *const *chosen,
		size_t count)
{
	struct buf out = BUF_INIT(4 * DECIDE_LINE_MAX);
	struct err err = ERR_INIT;
	struct json json;

	json_init(&json, &out);
	json_open(&json, NULL);
	json_open_list(&json, "decisions");
	for (size_t i = 0; i < count; i++) {
		struct explain_line line = { .where = chosen[i]->where,
					     .agrees = chosen[i]->agrees,
					     .difference = chosen[i]->difference };

		if (decide_read_line(replay, buf_str(&chosen[i]->line), &line.record, &err) < 0) {
			buf_fini(&out);
			return cmd_fail(&err, "explain: %s", chosen[i]->where);
		}
		if (question->is_json) {
			explain_json(&json, &line, buf_str(&chosen[i]->line));
			continue;
		}
		printf("%s", i > 0 ? "\n" : "");
		explain_print(&line);
	}
	json_close_list(&json);
	json_close(&json);
	if (question->is_json)
		printf("%.*s\n", STR_ARG(buf_str(&out)));
	buf_fini(&out);
	return CMD_DONE;
}

static int question_read(const struct cmd *cmd, const char *const *values, struct question *question, struct err *err)
{
	const char *at = cmd_value(cmd, values, "at");

	*question = (struct question){
		.set = cmd_value(cmd, values, "set"),
		.key = cmd_value(cmd, values, "key"),
		.router = cmd_value(cmd, values, "router"),
		.at_us = INT64_MAX,
		.is_json = cmd_value(cmd, values, "json") != NULL,
	};
	if (!question->set || !cmd_value(cmd, values, "log")) {
		err_set(err, ERR_USAGE, "--log and --set must say what is asked about");
		err_hint(err, "heng explain --log decisions.jsonl --set pool");
		return -ERR_USAGE;
	}
	if (at && !declog_time(str_from(at), &question->at_us)) {
		err_set(err, ERR_USAGE, "--at '%s' is no time", at);
		err_hint(err, "like 2026-01-31T08:00:00Z, 2026-01-31T09:00:00.5+01:00 or @1769846400000000");
		return -ERR_USAGE;
	}
	return 0;
}

int cmd_explain_run(const struct cmd *cmd, int operand_count, char **operands, const char *const *values)
{
	const char *path = cmd_value(cmd, values, "log");
	const struct answer *chosen[2];
	struct answers answers = { .other_router_count = 0 };
	struct decide_replay *replay;
	struct question question;
	struct declog *log = NULL;
	struct err err = ERR_INIT;
	size_t count;
	int exit_code;

	(void)operand_count;
	(void)operands;
	if (question_read(cmd, values, &question, &err) < 0 ||
	    declog_open(path, cmd_value(cmd, values, "rotated") != NULL, &log, &err) < 0)
		return cmd_fail(&err, "explain");
	for (size_t i = 0; i < ANSWER_KINDS; i++)
		answers.kinds[i].line = BUF_INIT(DECIDE_LINE_MAX);
	replay = decide_replay_new(NULL, PPM);
	if (search(log, replay, &question, &answers, &err) < 0)
		exit_code = cmd_fail(&err, "explain");
	else if ((count = choose(&answers, question.key != NULL, chosen)) == 0)
		exit_code = not_found(&question, &answers, path);
	else
		exit_code = tell(replay, &question, chosen, count);
	decide_replay_free(&replay);
	for (size_t i = 0; i < ANSWER_KINDS; i++)
		buf_fini(&answers.kinds[i].line);
	declog_close(&log);
	return exit_code;
}
