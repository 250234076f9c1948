#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "app/ask.h"

#define WEIGHT_MAX_MILLI 1000000u

const struct cmd_option cmd_ctl_options[] = { CLIENT_OPTIONS, { .name = NULL } };

static int usage(struct err *err)
{
	err_hint(err, "heng ctl node ID lost|drain|ready, or heng ctl node ID weight N|auto");
	return -(int)ERR_USAGE;
}

/* It goes into a path, so what could mean something there is refused here, before anything is asked. */
static int check_id(const char *id, struct err *err)
{
	size_t size = strlen(id);
	if (size >= 1 && size <= 64 &&
	    strspn(id, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ._-") == size)
		return 0;
	err_set(err, ERR_USAGE, "'%s' is no node id: 1 to 64 of A-Z a-z 0-9 . _ -", id);
	return usage(err);
}

static int weight_body(const char *text, char *target, size_t target_size, struct err *err)
{
	uint64_t weight_milli = 0;
	if (text == NULL) {
		err_set(err, ERR_USAGE, "no weight");
		return usage(err);
	}
	if (strcmp(text, "auto") == 0) {
		snprintf(target, target_size, "{\"weight_milli\":null}");
		return 0;
	}
	if (!str_to_u64(str_from(text), &weight_milli) || weight_milli > WEIGHT_MAX_MILLI) {
		err_set(err, ERR_USAGE, "weight '%s' is neither a number of thousandths, 0 to %u, nor auto", text,
			WEIGHT_MAX_MILLI);
		return usage(err);
	}
	snprintf(target, target_size, "{\"weight_milli\":%" PRIu64 "}", weight_milli);
	return 0;
}

static int read_operands(int operand_count, char **operands, char *body, size_t body_size, struct err *err)
{
	const char *what = operands[2], *value = operand_count > 3 ? operands[3] : NULL;
	if (strcmp(operands[0], "node") != 0) {
		err_set(err, ERR_USAGE, "'%s' is nothing that takes orders", operands[0]);
		return usage(err);
	}
	int r = check_id(operands[1], err);
	if (r < 0)
		return r;
	if (strcmp(what, "weight") == 0)
		return weight_body(value, body, body_size, err);
	if ((strcmp(what, "lost") != 0 && strcmp(what, "drain") != 0 && strcmp(what, "ready") != 0) || value != NULL) {
		err_set(err, ERR_USAGE, "'%s%s%s' is no order", what, value != NULL ? " " : "",
			value != NULL ? value : "");
		return usage(err);
	}
	snprintf(body, body_size, "{\"order\":\"%s\"}", what);
	return 0;
}

static void print_node(const json_t *root, bool is_lost)
{
	char id[70], state[24], order[16];
	printf("node %s: %s, takes %s, weight %.4g%s", ask_word(root, "id", id, sizeof(id)),
	       ask_word(root, "state", state, sizeof(state)),
	       json_is_true(json_object_get(root, "takes_work")) ? "work" : "no new work", ask_number(root, "weight"),
	       json_is_true(json_object_get(root, "is_weight_ordered")) ? " by order" : "");
	if (ask_text(root, "order")[0] != '\0')
		printf(", order: %s", ask_word(root, "order", order, sizeof(order)));
	printf("\n");
	if (is_lost)
		printf("%llu chunks are to be sent again\n", (unsigned long long)ask_u64(root, "lost_chunks"));
}

int cmd_ctl_run(const struct cmd *cmd, int operand_count, char **operands, const char *const *values)
{
	struct err err = ERR_INIT;
	struct client client = { 0 };
	struct buf answer = BUF_INIT(MIB);
	char body[64], path[128];
	json_t *root = NULL;
	int r = read_operands(operand_count, operands, body, sizeof(body), &err);
	if (r == 0)
		r = client_open(cmd, values, &client, &err);
	if (r == 0) {
		snprintf(path, sizeof(path), "/api/v1/nodes/%s", operands[1]);
		r = client_post(&client, path, str_from(body), &answer, &err);
	}
	client_fini(&client);
	if (r == 0 && cmd_value(cmd, values, "json") != NULL) {
		printf("%.*s\n", STR_ARG(str_trim(buf_str(&answer))));
	} else if (r == 0) {
		root = json_loadb(answer.data != NULL ? answer.data : "", answer.size, 0, NULL);
		if (json_is_object(root))
			print_node(root, strcmp(operands[2], "lost") == 0);
		else
			r = err_set(&err, ERR_PEER, "the answer is not a JSON object");
		json_decref(root);
	}
	buf_fini(&answer);
	return r < 0 ? cmd_fail(&err, "ctl") : CMD_DONE;
}
