#include "sim/scenario.h"

#define MODIFIER_AT(field) offsetof(struct scenario_modifier, field)
#define CHANGE_AT(field)   offsetof(struct scenario_change, field)
#define AT(field)          offsetof(struct scenario, field)
#define MEMBERS_MAX        (16 << 20)
#define HOUR_US            (3600 * SEC_US)
#define END                  \
	{                    \
		.name = NULL \
	}

#define ROW_NODE                                                                                        \
	{                                                                                               \
		.name = "node", .type = CONF_TEXT, .offset = MODIFIER_AT(node_text), .fallback = "all", \
		.help = "the node's number, from 0, or `all`"                                           \
	}
#define ROW_FACTOR(words)                                                                                \
	{                                                                                                \
		.name = "factor_milli", .type = CONF_INT, .offset = MODIFIER_AT(factor_milli), .min = 1, \
		.max = 1000000, .help = words                                                            \
	}
#define ROW_LENGTH                                                                                                   \
	{                                                                                                            \
		.name = "length", .type = CONF_DURATION, .offset = MODIFIER_AT(length_us), .min = 1, .max = HOUR_US, \
		.help = "how long it lasts"                                                                          \
	}
#define ROW_EVERY                                                                                   \
	{                                                                                           \
		.name = "every", .type = CONF_DURATION, .offset = MODIFIER_AT(every_us), .min = 1,  \
		.max = 24 * HOUR_US, .help = "from one beginning to the next; longer than `length`" \
	}
#define ROW_PHASE                                                                                  \
	{                                                                                          \
		.name = "phase", .type = CONF_DURATION, .offset = MODIFIER_AT(phase_us), .min = 0, \
		.max = 24 * HOUR_US, .fallback = "0s", .help = "when the first begins"             \
	}
#define ROW_STAGGER                                                                                             \
	{                                                                                                       \
		.name = "stagger", .type = CONF_BOOL, .offset = MODIFIER_AT(is_staggered), .fallback = "false", \
		.help = "node i begins i/nodes of `every` later, so that they take turns"                       \
	}

static const char service_choices[] =
#define SERVICE(name, help) #name "|"
#define MODIFIER(name, help)
#include "sim/service_list.h"
#undef SERVICE
#undef MODIFIER
	"";

static const struct conf_row slow_rows[] = {
	ROW_NODE,
	ROW_FACTOR("work takes so many thousandths of its time"),
	{ .name = "at",
	  .type = CONF_DURATION,
	  .offset = MODIFIER_AT(at_us),
	  .min = 0,
	  .max = 24 * HOUR_US,
	  .fallback = "0s",
	  .help = "from this time on" },
	{ .name = "length",
	  .type = CONF_DURATION,
	  .offset = MODIFIER_AT(length_us),
	  .min = 0,
	  .max = 24 * HOUR_US,
	  .fallback = "0s",
	  .help = "for this long; 0s: to the end" },
	END,
};
static const struct conf_row freeze_rows[] = { ROW_NODE, ROW_LENGTH, ROW_EVERY, ROW_PHASE, ROW_STAGGER, END };
static const struct conf_row compaction_rows[] = {
	ROW_NODE,   ROW_FACTOR("meanwhile work takes so many thousandths of its time"),
	ROW_LENGTH, ROW_EVERY,
	ROW_PHASE,  ROW_STAGGER,
	END,
};
static const struct conf_row leak_rows[] = {
	ROW_NODE,
	{ .name = "growth_milli",
	  .type = CONF_INT,
	  .offset = MODIFIER_AT(growth_milli_per_min),
	  .min = 1,
	  .max = 1000000,
	  .help = "each minute since the node's start adds so many thousandths to the time that work takes" },
	{ .name = "max_milli",
	  .type = CONF_INT,
	  .offset = MODIFIER_AT(growth_max_milli),
	  .min = 1000,
	  .max = 1000000,
	  .fallback = "10000",
	  .help = "up to so many thousandths in all" },
	END,
};
static const struct conf_row cold_rows[] = {
	ROW_NODE,
	ROW_FACTOR("after a join or restart work takes so many thousandths of its time at first"),
	{ .name = "requests",
	  .type = CONF_INT,
	  .offset = MODIFIER_AT(fade_count),
	  .min = 1,
	  .max = 1000000000,
	  .fallback = "1000",
	  .help = "after so many requests served 1/e of the excess is left" },
	END,
};
static const struct conf_row event_rows[] = {
	{ .name = "at",
	  .type = CONF_DURATION,
	  .offset = CHANGE_AT(at_us),
	  .min = 0,
	  .max = 24 * HOUR_US,
	  .help = "when" },
	{ .name = "node",
	  .type = CONF_INT,
	  .offset = CHANGE_AT(node),
	  .min = 0,
	  .max = SCENARIO_NODES_MAX - 1,
	  .help = "the node's number, from 0" },
	{ .name = "do",
	  .type = CONF_CHOICE,
	  .offset = CHANGE_AT(what),
	  .choices = "join|leave|crash|vanish|restart",
	  .help = "join: a node that was not there comes; leave: it gets nothing new and ends what it has; crash: "
		  "connections to it "
		  "break and are refused; vanish: it answers no more; restart: a crashed or vanished one is back" },
	{ .name = "set",
	  .type = CONF_INT,
	  .offset = CHANGE_AT(set),
	  .min = -1,
	  .max = SCENARIO_SETS_MAX - 1,
	  .fallback = "-1",
	  .help = "join: one more replica of this set alone; -1: where the placement puts it" },
	{ .name = "sync",
	  .type = CONF_DURATION,
	  .offset = CHANGE_AT(sync_us),
	  .min = 0,
	  .max = HOUR_US,
	  .fallback = "30s",
	  .help = "join, restart: so long it reports itself unverified, with growing sync progress" },
	END,
};

#define LIST(key, words)                                                                                     \
	{                                                                                                    \
		.name = #key, .type = CONF_LIST, .offset = AT(key), .fallback = "", .item_rows = key##_rows, \
		.item_size = sizeof(struct scenario_modifier), .help = words                                 \
	}

const struct conf_row scenario_rows[] = {
	{ .name = "name", .type = CONF_TEXT, .offset = AT(name), .help = "short, for files and tables" },
	{ .name = "title", .type = CONF_TEXT, .offset = AT(title), .help = "one line for people" },
	{ .name = "seed",
	  .type = CONF_INT,
	  .offset = AT(seed),
	  .min = 0,
	  .max = INT64_MAX,
	  .fallback = "1",
	  .help = "the same seed gives every policy the same arrivals and the same work" },
	{ .name = "requests",
	  .type = CONF_INT,
	  .offset = AT(requests),
	  .min = 1,
	  .max = 10000000000,
	  .fallback = "1000000",
	  .help = "how many arrive, warm-up included" },
	{ .name = "warmup",
	  .type = CONF_DURATION,
	  .offset = AT(warmup_us),
	  .min = 0,
	  .max = HOUR_US,
	  .fallback = "10s",
	  .help = "requests that arrive before are left out of all figures" },
	{ .name = "routers",
	  .type = CONF_INT,
	  .offset = AT(routers),
	  .min = 1,
	  .max = SCENARIO_ROUTERS_MAX,
	  .fallback = "2",
	  .help = "each has a policy of its own and sees its own requests alone; a request comes to one of them at "
		  "random" },
	{ .name = "nodes",
	  .type = CONF_INT,
	  .offset = AT(nodes),
	  .min = 1,
	  .max = SCENARIO_NODES_MAX,
	  .help = "all that are ever there: those with a `join` among the events come later" },
	{ .name = "workers",
	  .type = CONF_INT,
	  .offset = AT(workers),
	  .min = 1,
	  .max = 1024,
	  .fallback = "4",
	  .help = "requests that a node serves at a time" },
	{ .name = "queue",
	  .type = CONF_INT,
	  .offset = AT(queue_limit),
	  .min = 0,
	  .max = 10000000,
	  .fallback = "1024",
	  .help = "requests that wait at a node; more are refused at once" },
	{ .name = "sets",
	  .type = CONF_INT,
	  .offset = AT(sets),
	  .min = 1,
	  .max = SCENARIO_SETS_MAX,
	  .fallback = "1",
	  .help = "sets of nodes (shards, pools): a request may be served by any node of its key's set" },
	{ .name = "replicas",
	  .type = CONF_INT,
	  .offset = AT(replicas),
	  .min = 0,
	  .max = SCENARIO_NODES_MAX,
	  .fallback = "0",
	  .help = "nodes of each set; 0: all" },
	{ .name = "placement",
	  .type = CONF_CHOICE,
	  .offset = AT(placement),
	  .choices = "ring|own",
	  .fallback = "ring",
	  .help = "ring: each set's nodes are the first on heng's ring; own: set i has the i-th `replicas` nodes for "
		  "itself" },
	{ .name = "load_milli",
	  .type = CONF_INT,
	  .offset = AT(load_milli),
	  .min = 1,
	  .max = 10000,
	  .fallback = "700",
	  .help = "arriving work, thousandths of what the nodes that are there from the start can do at nominal "
		  "speed" },
	{ .name = "service",
	  .type = CONF_CHOICE,
	  .offset = AT(service),
	  .choices = service_choices,
	  .fallback = "exponential",
	  .help = "distribution of a request's work" },
	{ .name = "service_mean",
	  .type = CONF_DURATION,
	  .offset = AT(service_mean_us),
	  .min = 1,
	  .max = HOUR_US,
	  .fallback = "10ms",
	  .help = "mean work of a request" },
	{ .name = "service_long_ppm",
	  .type = CONF_INT,
	  .offset = AT(service_long_ppm),
	  .min = 1,
	  .max = 999999,
	  .fallback = "50000",
	  .help = "bimodal: millionths of the requests that are long" },
	{ .name = "service_long_milli",
	  .type = CONF_INT,
	  .offset = AT(service_long_milli),
	  .min = 1000,
	  .max = 1000000,
	  .fallback = "10000",
	  .help = "bimodal: a long one's work, thousandths of a short one's" },
	{ .name = "service_sigma_milli",
	  .type = CONF_INT,
	  .offset = AT(service_sigma_milli),
	  .min = 1,
	  .max = 5000,
	  .fallback = "1000",
	  .help = "lognormal: standard deviation of the logarithm, thousandths" },
	{ .name = "network",
	  .type = CONF_DURATION,
	  .offset = AT(network_us),
	  .min = 0,
	  .max = 10 * SEC_US,
	  .fallback = "200us",
	  .help = "from router to node, and the same back" },
	{ .name = "report_delay",
	  .type = CONF_DURATION,
	  .offset = AT(report_delay_us),
	  .min = 0,
	  .max = 60 * SEC_US,
	  .fallback = "50ms",
	  .help = "from a node's report (one each 3 s) until the routers have it" },
	{ .name = "report_loss_ppm",
	  .type = CONF_INT,
	  .offset = AT(report_loss_ppm),
	  .min = 0,
	  .max = 1000000,
	  .fallback = "0",
	  .help = "millionths of the reports that a router does not get" },
	{ .name = "timeout",
	  .type = CONF_DURATION,
	  .offset = AT(timeout_us),
	  .min = 1,
	  .max = HOUR_US,
	  .fallback = "5s",
	  .help = "a router waits so long for an answer; the node goes on with the work all the same" },
	{ .name = "retry",
	  .type = CONF_BOOL,
	  .offset = AT(is_retried),
	  .fallback = "false",
	  .help = "a request that failed is sent once more, to another node" },
	{ .name = "keys",
	  .type = CONF_INT,
	  .offset = AT(keys),
	  .min = 1,
	  .max = 1000000000,
	  .fallback = "1000000",
	  .help = "how many; key k (0 is the hottest) belongs to set k modulo sets" },
	{ .name = "zipf_milli",
	  .type = CONF_INT,
	  .offset = AT(zipf_milli),
	  .min = 0,
	  .max = 5000,
	  .fallback = "0",
	  .help = "exponent of Zipf's law over the keys, thousandths; 0: all alike" },
	{ .name = "arrivals",
	  .type = CONF_CHOICE,
	  .offset = AT(arrivals),
	  .choices = "poisson|bursty",
	  .fallback = "poisson",
	  .help = "an open loop: requests come whatever became of the former ones" },
	{ .name = "burst_milli",
	  .type = CONF_INT,
	  .offset = AT(burst_milli),
	  .min = 1000,
	  .max = 100000,
	  .fallback = "2000",
	  .help = "bursty: rate in a burst, thousandths of the mean; what is between is calmer by as much" },
	{ .name = "burst_length",
	  .type = CONF_DURATION,
	  .offset = AT(burst_length_us),
	  .min = 1,
	  .max = HOUR_US,
	  .fallback = "500ms",
	  .help = "bursty: mean length of a burst (exponential)" },
	{ .name = "burst_every",
	  .type = CONF_DURATION,
	  .offset = AT(burst_every_us),
	  .min = 1,
	  .max = HOUR_US,
	  .fallback = "5s",
	  .help = "bursty: mean time from burst to burst" },
	LIST(slow, "nodes that are slower (or faster) by a factor"),
	LIST(freeze, "nodes that stand still for a while, again and again; what waits, waits"),
	LIST(compaction, "nodes that are slower for a while, again and again"),
	LIST(leak, "nodes that become slower and slower until they are restarted"),
	LIST(cold, "nodes that are slow after a join or restart, until they have served enough"),
	{ .name = "events",
	  .type = CONF_LIST,
	  .fallback = "",
	  .offset = AT(events),
	  .item_rows = event_rows,
	  .item_size = sizeof(struct scenario_change),
	  .help = "nodes that come, go, fail and return" },
	END,
};

/* A list of modifiers with what it is a modifier of. */
static const struct {
	size_t offset;
	enum pace_kind kind;
} modifier_lists[] = {
	{ AT(slow), PACE_slow }, { AT(freeze), PACE_freeze }, { AT(compaction), PACE_compaction },
	{ AT(leak), PACE_leak }, { AT(cold), PACE_cold },
};

static const struct conf_list *list_at(const struct scenario *scenario, size_t index)
{
	return (const void *)((const char *)scenario + modifier_lists[index].offset);
}

static bool pace_try(const struct scenario *scenario, size_t node, struct pace *ret_pace)
{
	pace_init(ret_pace);
	for (size_t l = 0; l < COUNT_OF(modifier_lists); l++) {
		const struct scenario_modifier *items = list_at(scenario, l)->items;
		for (size_t i = 0; i < list_at(scenario, l)->count; i++) {
			const struct scenario_modifier *item = &items[i];
			if (item->node >= 0 && item->node != (int64_t)node)
				continue;
			int64_t turn_us = item->is_staggered ? item->every_us * (int64_t)node / scenario->nodes : 0;
			struct pace_rule rule = {
				.kind = modifier_lists[l].kind,
				.factor = (double)item->factor_milli / 1e3,
				.from_ns = (item->at_us + item->phase_us + turn_us) * 1000,
				.length_ns = item->length_us * 1000,
				.every_ns = item->every_us * 1000,
				.growth_per_ns = (double)item->growth_milli_per_min / 1e3 / 60e9,
				.growth_factor = (double)item->growth_max_milli / 1e3,
				.fade_count = (double)item->fade_count,
			};
			if (!pace_add(ret_pace, &rule))
				return false;
		}
	}
	return true;
}

void scenario_pace(const struct scenario *scenario, size_t node, struct pace *ret_pace)
{
	MUST(pace_try(scenario, node, ret_pace));
}

static int check_modifiers(struct scenario *scenario, struct err *err)
{
	for (size_t l = 0; l < COUNT_OF(modifier_lists); l++) {
		struct scenario_modifier *items = list_at(scenario, l)->items;
		const char *key = pace_names[modifier_lists[l].kind];
		bool is_cycle = modifier_lists[l].kind == PACE_freeze || modifier_lists[l].kind == PACE_compaction;
		for (size_t i = 0; i < list_at(scenario, l)->count; i++) {
			items[i].node = -1;
			bool is_all = strcmp(items[i].node_text, "all") == 0;
			if (!is_all && (!str_to_i64(str_from(items[i].node_text), &items[i].node) ||
					items[i].node < 0 || items[i].node >= scenario->nodes))
				return err_set(err, ERR_CONFIG, "%s %zu: node must be 'all' or 0 to %lld, not '%.40s'",
					       key, i + 1, (long long)scenario->nodes - 1, items[i].node_text);
			if (is_cycle && items[i].length_us >= items[i].every_us)
				return err_set(err, ERR_CONFIG, "%s %zu: 'every' must be longer than 'length'", key,
					       i + 1);
		}
	}
	for (size_t node = 0; node < (size_t)scenario->nodes; node++) {
		struct pace pace;
		if (!pace_try(scenario, node, &pace))
			return err_set(err, ERR_CONFIG,
				       "node %zu has more than %d modifiers, or freezes that leave it less than a "
				       "hundredth of its "
				       "time",
				       node, PACE_RULES_MAX);
	}
	return 0;
}

static int compare_changes(const void *a, const void *b)
{
	const struct scenario_change *x = a, *y = b;
	if (x->at_us != y->at_us)
		return x->at_us < y->at_us ? -1 : 1;
	/* qsort keeps no order among equals, so node and deed decide. */
	if (x->node != y->node)
		return x->node < y->node ? -1 : 1;
	return x->what - y->what;
}

enum presence { ABSENT, UP, DOWN, LEFT };

/* Each event must meet its node in a state that it can leave. */
static int check_changes(struct scenario *scenario, struct err *err)
{
	struct scenario_change *changes = scenario->events.items;
	enum presence states[SCENARIO_NODES_MAX];
	if (scenario->events.count > SCENARIO_CHANGES_MAX)
		return err_set(err, ERR_CONFIG, "events: at most %d, not %zu", SCENARIO_CHANGES_MAX,
			       scenario->events.count);
	if (scenario->events.count > 1)
		qsort(changes, scenario->events.count, sizeof(*changes), compare_changes);
	for (size_t node = 0; node < (size_t)scenario->nodes; node++)
		states[node] = scenario_is_there_first(scenario, node) ? UP : ABSENT;
	for (size_t i = 0; i < scenario->events.count; i++) {
		const struct scenario_change *change = &changes[i];
		if (change->node >= scenario->nodes)
			return err_set(err, ERR_CONFIG, "events: there is no node %lld, only 0 to %lld",
				       (long long)change->node, (long long)scenario->nodes - 1);
		if (change->set >= scenario->sets)
			return err_set(err, ERR_CONFIG, "events: there is no set %lld, only 0 to %lld",
				       (long long)change->set, (long long)scenario->sets - 1);
		enum presence before = states[change->node];
		bool is_sound = change->what == SCENARIO_JOIN      ? before == ABSENT
				: change->what == SCENARIO_RESTART ? before == DOWN
								   : before == UP;
		if (!is_sound)
			return err_set(err, ERR_CONFIG,
				       "events: node %lld cannot do that at %.3f s: only an absent node joins, and "
				       "once; only one that "
				       "is up leaves, crashes or vanishes; only one that crashed or vanished restarts",
				       (long long)change->node, (double)change->at_us / 1e6);
		states[change->node] = change->what == SCENARIO_JOIN || change->what == SCENARIO_RESTART ? UP
				       : change->what == SCENARIO_LEAVE                                  ? LEFT
													 : DOWN;
	}
	return 0;
}

static int check(struct scenario *scenario, struct err *err)
{
	size_t first_count = scenario_first_count(scenario);
	if (first_count == 0)
		return err_set(err, ERR_CONFIG, "no node is there from the start");
	if (scenario->sets * (scenario->replicas > 0 ? scenario->replicas : scenario->nodes) > MEMBERS_MAX)
		return err_set(err, ERR_CONFIG, "sets times replicas: at most %d", MEMBERS_MAX);
	if (scenario->replicas == 0 && scenario->placement == SCENARIO_OWN)
		return err_set(err, ERR_CONFIG, "placement 'own' needs 'replicas'");
	/* Divided, not multiplied: nothing to overflow. */
	if (scenario->placement == SCENARIO_OWN && scenario->sets > (int64_t)first_count / scenario->replicas)
		return err_set(err, ERR_CONFIG,
			       "placement 'own': %lld sets of %lld replicas need more than the %zu nodes that are "
			       "there from the start",
			       (long long)scenario->sets, (long long)scenario->replicas, first_count);
	for (int64_t i = 0; scenario->placement == SCENARIO_OWN && i < scenario->sets * scenario->replicas; i++) {
		if (!scenario_is_there_first(scenario, (size_t)i))
			return err_set(err, ERR_CONFIG,
				       "placement 'own': node %lld belongs to a set, so it cannot join later: the "
				       "nodes that join come after all sets' nodes",
				       (long long)i);
	}
	if (scenario->arrivals == SCENARIO_BURSTY &&
	    (scenario->burst_length_us >= scenario->burst_every_us ||
	     (double)scenario->burst_milli / 1e3 * (double)scenario->burst_length_us >
		     (double)scenario->burst_every_us))
		return err_set(err, ERR_CONFIG,
			       "bursts bring more than there is: burst_milli / 1000 * burst_length must not exceed "
			       "burst_every");
	int r = check_modifiers(scenario, err);
	return r < 0 ? r : check_changes(scenario, err);
}

int scenario_load(const char *path, struct arena *arena, struct scenario *ret_scenario, struct err *err)
{
	int r = conf_load(path, scenario_rows, ret_scenario, sizeof(*ret_scenario), arena, err);
	if (r == 0 && (r = check(ret_scenario, err)) < 0)
		err_wrap(err, "%s", path);
	return r;
}

int scenario_parse(const char *name, struct str text, struct arena *arena, struct scenario *ret_scenario,
		   struct err *err)
{
	int r = conf_parse(name, text, scenario_rows, ret_scenario, sizeof(*ret_scenario), arena, err);
	if (r == 0 && (r = check(ret_scenario, err)) < 0)
		err_wrap(err, "%s", name);
	return r;
}

bool scenario_is_there_first(const struct scenario *scenario, size_t node)
{
	const struct scenario_change *changes = scenario->events.items;
	for (size_t i = 0; i < scenario->events.count; i++) {
		if (changes[i].what == SCENARIO_JOIN && changes[i].node == (int64_t)node)
			return false;
	}
	return true;
}

size_t scenario_first_count(const struct scenario *scenario)
{
	size_t count = 0;
	for (size_t node = 0; node < (size_t)scenario->nodes; node++)
		count += scenario_is_there_first(scenario, node);
	return count;
}

double scenario_gap_ns(const struct scenario *scenario)
{
	double workers = (double)scenario_first_count(scenario) * (double)scenario->workers;
	return (double)scenario->service_mean_us * 1e3 / workers / ((double)scenario->load_milli / 1e3);
}

int64_t scenario_length_ns(const struct scenario *scenario)
{
	return (int64_t)(scenario_gap_ns(scenario) * (double)scenario->requests);
}

struct service scenario_service(const struct scenario *scenario)
{
	return (struct service){
		.kind = (enum service_kind)scenario->service,
		.mean_ns = (double)scenario->service_mean_us * 1e3,
		.long_share = (double)scenario->service_long_ppm / 1e6,
		.long_factor = (double)scenario->service_long_milli / 1e3,
		.sigma = (double)scenario->service_sigma_milli / 1e3,
	};
}
