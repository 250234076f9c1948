#include <stdio.h>
#include <string.h>

#include "app/ask.h"

const struct cmd_option cmd_nodes_options[] = { CLIENT_OPTIONS, { .name = NULL } };

/* A word of one source of health; "-" from one that never spoke. */
static char *nodes_source(const json_t *item, const char *source, char *target, size_t target_size)
{
	const json_t *view = json_object_get(json_object_get(item, "sources"), source);
	ask_word(view, "word", target, target_size);
	if (target[0] == '\0' || strcmp(target, "unknown") == 0)
		snprintf(target, target_size, "-");
	return target;
}

static void nodes_age(const json_t *item, char *target, size_t target_size)
{
	if (json_is_integer(json_object_get(item, "report_age_us")))
		snprintf(target, target_size, "%.1f s", (double)ask_u64(item, "report_age_us") / 1e6);
	else
		snprintf(target, target_size, "-");
}

static void nodes_share(const json_t *item, const char *name, char *target, size_t target_size)
{
	snprintf(target, target_size, "%.1f%%", 100 * ask_number(item, name));
}

/* Why it takes no work, what its score suffers from, what it says itself. */
static void nodes_why(const json_t *item, struct buf *why)
{
	char text[512];
	size_t i;
	const json_t *acted;
	if (ask_text(item, "barred")[0] != '\0')
		buf_printf(why, "no work: %s", ask_word(item, "barred", text, sizeof(text)));
	json_array_foreach(json_object_get(item, "acted"), i, acted)
	{
		buf_printf(why, "%s%s x %.3g", why->size > 0 ? ", " : "", ask_word(acted, "name", text, sizeof(text)),
			   ask_number(acted, "factor"));
	}
	if (ask_text(item, "order")[0] != '\0')
		buf_printf(why, "%sby order: %s", why->size > 0 ? "; " : "",
			   ask_word(item, "order", text, sizeof(text)));
	if (json_is_true(json_object_get(item, "is_weight_ordered")))
		buf_printf(why, "%sweight by order, its own is %.4g", why->size > 0 ? "; " : "",
			   ask_number(item, "weight_own"));
	if (ask_text(item, "diagnosis")[0] != '\0')
		buf_printf(why, "%s%s", why->size > 0 ? "; " : "", ask_word(item, "diagnosis", text, sizeof(text)));
}

#define NODES_FORMAT "%-12s %-29s %-11s %-8s %-9s %-8s %-4s %6s %13s %6s %6s %7s %21s  %s\n"

static void nodes_print(const json_t *item)
{
	char id[70], addr[70], state[24], probe[16], heartbeat[16], gossip[16], score[16], weight[32], share[16],
		received[16], age[24], free_text[32], total_text[32], space[70];
	struct buf why = BUF_INIT(8 * KIB);
	snprintf(score, sizeof(score), "%.3f", ask_number(item, "score"));
	snprintf(weight, sizeof(weight), "%.4g / %.4g", ask_number(item, "weight_effective"),
		 ask_number(item, "weight"));
	nodes_share(item, "share_expected", share, sizeof(share));
	nodes_share(item, "share_received", received, sizeof(received));
	nodes_age(item, age, sizeof(age));
	snprintf(space, sizeof(space), "%s / %s",
		 size_display(ask_u64(item, "free_bytes"), free_text, sizeof(free_text)),
		 size_display(ask_u64(item, "total_bytes"), total_text, sizeof(total_text)));
	nodes_why(item, &why);
	printf(NODES_FORMAT, ask_word(item, "id", id, sizeof(id)), ask_word(item, "addr", addr, sizeof(addr)),
	       ask_word(item, "state", state, sizeof(state)), nodes_source(item, "probe", probe, sizeof(probe)),
	       nodes_source(item, "heartbeat", heartbeat, sizeof(heartbeat)),
	       nodes_source(item, "gossip", gossip, sizeof(gossip)),
	       json_is_true(json_object_get(item, "takes_work")) ? "yes" : "no", score, weight, share, received, age,
	       space, buf_cstr(&why));
	buf_fini(&why);
}

int cmd_nodes_run(const struct cmd *cmd, int operand_count, char **operands, const char *const *values)
{
	(void)operand_count, (void)operands;
	struct err err = ERR_INIT;
	json_t *root = NULL;
	if (ask_json(cmd, values, "/api/v1/nodes", &root, &err) < 0)
		return cmd_fail(&err, "nodes");
	if (root == NULL)
		return CMD_DONE;
	size_t i;
	const json_t *item;
	printf(NODES_FORMAT, "NODE", "ADDRESS", "STATE", "PROBE", "HEARTBEAT", "GOSSIP", "WORK", "SCORE", "WEIGHT",
	       "SHARE", "GOT", "REPORT", "FREE", "");
	json_array_foreach(json_object_get(root, "nodes"), i, item) nodes_print(item);
	json_decref(root);
	return CMD_DONE;
}
