/* heng's own choices on core's own code, as a door of it runs them: reports make node views, every two seconds (and at once when a state changes)
 * scores become a table, and each request is a look-up in it. Decisions are core's and in integers. */
#include "core/decide.h"
#include "core/node.h"
#include "core/pick.h"
#include "sim/policy.h"

#define RT_TAU_US  (10 * SEC_US)
#define RECHECK_US (100 * MSEC_US) /* least time between tables that requests call for */
#define NAME_SIZE  32

/* One set's candidates, by their place in the set. */
struct heng_set {
	char name[NAME_SIZE];
	size_t count;
	uint16_t *nodes;
	struct score_input *inputs;
	const struct score_input **input_pointers;
	struct score_output *outputs;
	struct judge_memory memory;
	struct decision decision;
	bool is_judged;
	int64_t judged_us;
};
/* What the door knows of a node beside its view. */
struct heng_node {
	struct node_view view;
	int64_t since_us;              /* when we began to listen to it */
	int64_t rtt_sum_us, rtt_count; /* since the last tick */
	int64_t rtt_mean_us;           /* -1: unknown */
};
struct heng {
	const struct sim_view *view;
	const struct profile *profile;
	const struct member_rules *rules;
	char router[NAME_SIZE];
	struct heng_node *nodes;
	struct heng_set *sets;
	struct pick pick;
	struct route *route;
	uint64_t version, flips;
	int64_t tick_us, rechecked_us;
	bool is_profile_logged;
	struct buf lines;
};

static void set_drop(struct heng_set *set)
{
	free(set->nodes);
	free(set->inputs);
	free(set->input_pointers);
	free(set->outputs);
}

/* Takes the set's members as they are now. What the last table left of those that stay is kept. */
static void set_lay_out(struct heng *heng, size_t set_index)
{
	struct heng_set *set = &heng->sets[set_index], old = *set;
	const struct sim_set *members = &heng->view->sets[set_index];

	/* Core judges so many at once; a door with more would deal them out to several sets. */
	set->count = min_size(members->count, SCORE_SET_MAX);
	set->nodes = must_zalloc(set->count, sizeof(set->nodes[0]));
	set->inputs = must_zalloc(set->count, sizeof(set->inputs[0]));
	set->input_pointers = must_zalloc(set->count, sizeof(set->input_pointers[0]));
	set->outputs = must_zalloc(set->count, sizeof(set->outputs[0]));
	set->is_judged = false; /* places mean other nodes now */
	for (size_t i = 0; i < set->count; i++) {
		set->nodes[i] = members->nodes[i];
		set->input_pointers[i] = &set->inputs[i];
		set->outputs[i].score_ppm = -1;
		for (size_t j = 0; j < old.count; j++) {
			if (old.nodes[j] == set->nodes[i])
				set->outputs[i] = old.outputs[j];
		}
	}
	set_drop(&old);
}

static bool set_is_current(const struct heng *heng, size_t set_index)
{
	const struct heng_set *set = &heng->sets[set_index];
	const struct sim_set *members = &heng->view->sets[set_index];

	return set->count == min_size(members->count, SCORE_SET_MAX) &&
	       memcmp(set->nodes, members->nodes, set->count * sizeof(set->nodes[0])) == 0;
}

static void send_lines(struct heng *heng)
{
	MUST(!heng->lines.is_failed);
	heng->view->log(heng->view->log_owner, buf_str(&heng->lines));
	buf_clear(&heng->lines);
}

static void log_table(struct heng *heng, const struct heng_set *set, const struct judge_memory *before,
		      int64_t elapsed_us, int64_t now_us)
{
	struct decide_table table = {
		.wall_us = now_us, /* the simulated world's own time, so that a seed gives the same log */
		.version = heng->version,
		.elapsed_us = elapsed_us,
		.before = *before,
		.count = set->count,
		.inputs = set->input_pointers,
		.outputs = set->outputs,
		.decision = &set->decision,
	};

	snprintf(table.set, sizeof(table.set), "%s", set->name);
	snprintf(table.router, sizeof(table.router), "%s", heng->router);
	if (!heng->is_profile_logged)
		decide_write_profile(&heng->lines, heng->profile, now_us);
	heng->is_profile_logged = true;
	decide_write_table(&heng->lines, heng->profile, &table);
	send_lines(heng);
}

/* Who serves, who is first and why, who is as good: when none of it changed the table is the one before with newer numbers. */
static bool is_same_table(const struct decision *a, const struct decision *b)
{
	return a->selected == b->selected && a->reason == b->reason && a->is_flat == b->is_flat &&
	       a->band_count == b->band_count && a->order_count == b->order_count &&
	       memcmp(a->order, b->order, a->order_count * sizeof(a->order[0])) == 0;
}

static void take_inputs(struct heng *heng, struct heng_set *set, int64_t now_us)
{
	for (size_t i = 0; i < set->count; i++) {
		struct heng_node *node = &heng->nodes[set->nodes[i]];
		struct score_input *input = &set->inputs[i];
		const struct score_output *last = &set->outputs[i];

		node_view_input(&node->view, heng->pick.loads[set->nodes[i]].in_flight, node->rtt_mean_us, now_us,
				input);
		/* Silence counts from when we began to listen: a router that has just started knows nobody, which is nobody's fault. */
		if (input->age_us < 0)
			input->age_us = now_us - node->since_us;
		/* A node is in many sets and scores differently in each, so these belong to the set. */
		input->rules_on = last->rules_on;
		input->score_before_ppm = last->score_ppm;
		if (strcmp(input->id, set->memory.selected) == 0)
			set->memory.failed_picks = heng->pick.loads[set->nodes[i]].fails_in_row;
	}
}

static void judge_one(struct heng *heng, struct heng_set *set, int64_t now_us)
{
	int64_t elapsed_us = set->judged_us >= 0 ? now_us - set->judged_us : 0;
	struct decision last = set->decision;
	struct judge_memory before;

	take_inputs(heng, set, now_us);
	before = set->memory;
	score_set(heng->profile, set->input_pointers, set->count, set->outputs);
	judge_set(heng->profile, &set->memory, elapsed_us, set->input_pointers, set->outputs, set->count,
		  &set->decision);
	if (before.selected[0] != '\0' && set->decision.selected >= 0 && set->decision.is_changed)
		heng->flips++;
	if (heng->view->log && !(set->is_judged && is_same_table(&last, &set->decision)))
		log_table(heng, set, &before, elapsed_us, now_us);
	set->is_judged = true;
	set->judged_us = now_us;
}

static void judge_all(struct heng *heng, int64_t now_us)
{
	struct route_builder *builder;
	size_t candidate_count = 0;

	heng->version++;
	for (size_t i = 0; i < heng->view->set_count; i++) {
		judge_one(heng, &heng->sets[i], now_us);
		candidate_count += heng->sets[i].count;
	}
	builder = route_builder_new(heng->view->set_count, candidate_count);
	for (size_t i = 0; i < heng->view->set_count; i++) {
		const struct heng_set *set = &heng->sets[i];

		route_builder_add(builder, &set->decision, set->outputs, set->nodes, set->count, NULL, NULL);
	}
	route_free(&heng->route);
	heng->route = route_builder_end(&builder, heng->version, now_us);
}

static void node_begin(struct heng *heng, uint16_t node, int64_t now_us)
{
	struct heng_node *known = &heng->nodes[node];

	*known = (struct heng_node){ .since_us = now_us, .rtt_mean_us = -1 };
	node_view_init(&known->view, heng->view->node_ids[node], heng->view->weights_milli[node], MEMBER_HEALTHY,
		       now_us);
}

static struct heng *heng_new(const struct sim_view *view, uint64_t seed, enum pick_strategy strategy,
			     const char *profile, const struct member_rules *rules)
{
	struct heng *heng = must_zalloc(1, sizeof(*heng));

	heng->view = view;
	heng->profile = profile_builtin(profile);
	heng->rules = rules;
	heng->lines = BUF_INIT(2 * DECIDE_LINE_MAX);
	snprintf(heng->router, sizeof(heng->router), "router-%zu", view->router_index);
	heng->nodes = must_zalloc(view->node_count, sizeof(heng->nodes[0]));
	heng->sets = must_zalloc(view->set_count, sizeof(heng->sets[0]));
	pick_init(&heng->pick, strategy, view->node_count, view->set_count, seed);
	for (size_t i = 0; i < view->set_count; i++) {
		snprintf(heng->sets[i].name, sizeof(heng->sets[i].name), "set-%zu", i);
		heng->sets[i].judged_us = -1;
		set_lay_out(heng, i);
	}
	return heng;
}

/* The router starts when it first hears the time. */
static struct heng *begun(void *policy, int64_t now_us)
{
	struct heng *heng = policy;

	if (heng->route)
		return heng;
	for (size_t i = 0; i < heng->view->node_count; i++)
		node_begin(heng, (uint16_t)i, now_us);
	heng->tick_us = now_us;
	heng->rechecked_us = now_us;
	judge_all(heng, now_us);
	return heng;
}

static void heng_free(void *policy)
{
	struct heng *heng = policy;

	for (size_t i = 0; i < heng->view->set_count; i++)
		set_drop(&heng->sets[i]);
	free(heng->sets);
	free(heng->nodes);
	route_free(&heng->route);
	pick_fini(&heng->pick);
	buf_fini(&heng->lines);
	free(heng);
}

/* The node index, or -1. A set that has nobody, or whose request has used up its tries, is checked again at once, but a storm of failures makes no
 * storm of tables. */
static int choose(struct heng *heng, size_t set_index, const struct pick_call *call)
{
	const struct route_set *set;
	enum reason reason;
	int offset = pick_next(&heng->pick, heng->route, set_index, call, &reason);

	if (offset < 0 && call->now_us - heng->rechecked_us >= RECHECK_US) {
		heng->rechecked_us = call->now_us;
		judge_all(heng, call->now_us);
		if (reason == REASON_none)
			offset = pick_next(&heng->pick, heng->route, set_index, call, &reason);
	}
	if (offset < 0)
		return -1;
	set = &heng->route->sets[set_index];
	return heng->route->candidates[set->first + (size_t)offset].node_index;
}

static int heng_choose(void *policy, size_t set_index, uint64_t key_hash, int64_t now_us)
{
	return choose(begun(policy, now_us), set_index, &(struct pick_call){ .key_hash = key_hash, .now_us = now_us });
}

static int heng_retry(void *policy, size_t set_index, uint64_t key_hash, uint16_t tried, int64_t now_us)
{
	struct pick_call call = { .key_hash = key_hash, .now_us = now_us, .tried = { tried }, .tried_count = 1 };

	return choose(begun(policy, now_us), set_index, &call);
}

static void heng_sent(void *policy, uint16_t node, int64_t now_us)
{
	struct heng *heng = policy;

	pick_sent(&heng->pick, node, now_us);
}

static void heng_answered(void *policy, uint16_t node, const struct sim_answer *answer, int64_t now_us)
{
	struct heng *heng = policy;
	struct heng_node *known = &heng->nodes[node];
	int64_t rtt_us = max_i64(answer->rtt_ns, 0) / 1000, rtt_ns = answer->rtt_ns;

	/* A node that fails fast must not look fast. */
	if (answer->is_failed) {
		rtt_us = max_i64(rtt_us, max_i64(heng->view->timeout_us, known->view.p99_smooth_us));
		rtt_ns = rtt_us * 1000;
	}
	known->rtt_sum_us += rtt_us;
	known->rtt_count++;
	pick_done(&heng->pick, node, answer->is_failed, rtt_ns, now_us);
	if (heng->rules->traffic_limit_count > 0 &&
	    node_view_traffic(&known->view, heng->rules, !answer->is_failed, now_us))
		judge_all(heng, now_us);
}

static void heng_report(void *policy, uint16_t node, const struct report *report, uint64_t sequence, int64_t now_us)
{
	struct heng *heng = begun(policy, now_us);

	if (node_view_report(&heng->nodes[node].view, heng->rules, report, sequence, now_us))
		judge_all(heng, now_us);
}

static void heng_tick(void *policy, int64_t now_us)
{
	struct heng *heng = begun(policy, now_us);
	int64_t elapsed_us = now_us - heng->tick_us;

	for (size_t i = 0; i < heng->view->node_count; i++) {
		struct heng_node *node = &heng->nodes[i];

		node_view_step(&node->view, heng->rules, now_us);
		if (node->rtt_count == 0)
			continue;
		node->rtt_mean_us = curve_ewma(node->rtt_mean_us, node->rtt_sum_us / node->rtt_count, elapsed_us,
					       RT_TAU_US);
		node->rtt_sum_us = 0;
		node->rtt_count = 0;
	}
	heng->tick_us = now_us;
	judge_all(heng, now_us);
}

/* Who comes, or comes back, warms up; its reports say when its data is whole. */
static void heng_changed(void *policy, uint16_t node, bool is_member, bool is_new, int64_t now_us)
{
	struct heng *heng = begun(policy, now_us);

	(void)is_new;
	if (is_member) {
		node_begin(heng, node, now_us);
		node_view_join(&heng->nodes[node].view, true, now_us);
		pick_forget(&heng->pick, node);
	}
	for (size_t i = 0; i < heng->view->set_count; i++) {
		struct heng_set *set = &heng->sets[i];

		if (!set_is_current(heng, i))
			set_lay_out(heng, i);
		for (size_t j = 0; j < set->count; j++) {
			if (set->nodes[j] == node)
				set->outputs[j] = (struct score_output){ .score_ppm = -1 };
		}
	}
	judge_all(heng, now_us);
}

static uint64_t heng_flips(void *policy)
{
	const struct heng *heng = policy;

	return heng->flips;
}

static void *heng_best_new(const struct sim_view *view, uint64_t seed)
{
	return heng_new(view, seed, PICK_best, "kv", &member_rules_kv);
}

static void *heng_band_new(const struct sim_view *view, uint64_t seed)
{
	return heng_new(view, seed, PICK_band, "kv", &member_rules_kv);
}

static void *heng_weighted_ewma_new(const struct sim_view *view, uint64_t seed)
{
	return heng_new(view, seed, PICK_weighted_ewma, "gateway", &member_rules_gateway);
}

static void *heng_adaptive_new(const struct sim_view *view, uint64_t seed)
{
	return heng_new(view, seed, PICK_adaptive, "gateway", &member_rules_gateway);
}

#define HENG_SOURCE                                                                                                 \
	"heng's core as it ships: reports every 3 s, a table every 2 s and at each change of state; no probes, no " \
	"gossip; at most "                                                                                          \
	"1024 members of a set"
#define HENG_COMMON                                                                                                    \
	.source = HENG_SOURCE, .free = heng_free, .choose = heng_choose, .sent = heng_sent, .answered = heng_answered, \
	.retry = heng_retry, .report = heng_report, .tick = heng_tick, .tick_us = JUDGE_TICK_US,                       \
	.changed = heng_changed

const struct sim_policy sim_policy_heng_best = {
	.name = "heng_best",
	.help = "the table's selected node, by profile kv with its hysteresis",
	.new = heng_best_new,
	.flips = heng_flips,
	HENG_COMMON,
};
const struct sim_policy sim_policy_heng_band = {
	.name = "heng_band",
	.help = "of the nodes whose kv score is at least 80 % of the best the one with the fewest requests in flight",
	.new = heng_band_new,
	.flips = heng_flips,
	HENG_COMMON,
};
/* It selects nobody: the score is a weight. */
const struct sim_policy sim_policy_heng_weighted_ewma = {
	.name = "heng_weighted_ewma",
	.help = "least (in flight + 1) * peak EWMA of latency / weight, the weight by profile gateway",
	.new = heng_weighted_ewma_new,
	HENG_COMMON,
};
const struct sim_policy sim_policy_heng_adaptive = {
	.name = "heng_adaptive",
	.help = "heng's default: fewest in flight by weight; who is slower than usual or stands still is avoided for "
		"it",
	.new = heng_adaptive_new,
	HENG_COMMON,
};
