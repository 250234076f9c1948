/* What is simulated, as YAML: docs/simulator.md explains the keys. */
#ifndef HENG_SIM_SCENARIO_H
#define HENG_SIM_SCENARIO_H

#include "base/conf.h"
#include "sim/service.h"

#define SCENARIO_NODES_MAX   4096
#define SCENARIO_ROUTERS_MAX 64
#define SCENARIO_SETS_MAX    65535
#define SCENARIO_CHANGES_MAX 256

enum scenario_placement { SCENARIO_RING, SCENARIO_OWN };
enum scenario_arrivals { SCENARIO_POISSON, SCENARIO_BURSTY };
enum scenario_do { SCENARIO_JOIN, SCENARIO_LEAVE, SCENARIO_CRASH, SCENARIO_VANISH, SCENARIO_RESTART };

/* node: a number, or -1 for all. The lists' items, as read and checked. */
struct scenario_modifier {
	const char *node_text;
	int64_t node;
	int64_t factor_milli;                           /* slow, compaction, cold */
	int64_t at_us, length_us;                       /* slow */
	int64_t every_us, phase_us;                     /* freeze, compaction; phase of node 0 */
	bool is_staggered;                              /* node i begins i / nodes of `every` later */
	int64_t growth_milli_per_min, growth_max_milli; /* leak */
	int64_t fade_count;                             /* cold */
};
struct scenario_change {
	int64_t at_us, node;
	int what;
	int64_t set;     /* join: this set alone; -1: where the placement puts it */
	int64_t sync_us; /* join, restart: until its data is whole */
};
struct scenario {
	const char *name, *title;
	int64_t seed, requests, warmup_us, routers, nodes, workers, queue_limit, sets, replicas;
	int placement;
	int64_t load_milli;
	int service;
	int64_t service_mean_us, service_long_ppm, service_long_milli, service_sigma_milli;
	int64_t network_us, report_delay_us, report_loss_ppm, timeout_us;
	bool is_retried;
	int64_t keys, zipf_milli;
	int arrivals;
	int64_t burst_milli, burst_length_us, burst_every_us;
	struct conf_list slow, freeze, compaction, leak, cold; /* of struct scenario_modifier */
	struct conf_list events;                               /* of struct scenario_change, by time */
};
extern const struct conf_row scenario_rows[];

/* Texts and lists are in the arena. */
int scenario_load(const char *path, struct arena *arena, struct scenario *ret_scenario, struct err *err);
int scenario_parse(const char *name, struct str text, struct arena *arena, struct scenario *ret_scenario,
		   struct err *err);

/* A node that joins is not there from the start. */
bool scenario_is_there_first(const struct scenario *scenario, size_t node);
size_t scenario_first_count(const struct scenario *scenario);
double scenario_gap_ns(const struct scenario *scenario);     /* mean time between two arrivals */
int64_t scenario_length_ns(const struct scenario *scenario); /* until the last arrival, about */
struct service scenario_service(const struct scenario *scenario);
/* The modifiers of one node. The scenario was checked: they fit. */
void scenario_pace(const struct scenario *scenario, size_t node, struct pace *ret_pace);

#endif
