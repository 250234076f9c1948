/* The membership state machine of a node as a table: events in, state out. Pure; one rule set per door. */
#ifndef HENG_CORE_MEMBER_H
#define HENG_CORE_MEMBER_H

#include "core/health.h"

enum member_state { MEMBER_HEALTHY, MEMBER_SUSPECT, MEMBER_LEAVING, MEMBER_UNREACHABLE, MEMBER_REMOVED };
enum member_event {
	MEMBER_PROBE_GOOD,    /* a good probe or report, while no other source says failed */
	MEMBER_PROBE_MISSED,  /* one more miss of a source */
	MEMBER_GOSSIP_FAILED, /* the peers confirm the failure: the end of a Suspect; alone it is no reason to doubt */
	MEMBER_SUSPICION_EXPIRED, /* suspect for longer than the limit, and no source says good */
	MEMBER_TRAFFIC_FAILED,    /* as many failures in a row on live traffic as the rules allow */
	MEMBER_LEAVE,
	MEMBER_DRAINED, /* the end of one that was told to leave, whatever state it is in meanwhile */
	MEMBER_STAY,
};

/* What differs by door. A source's misses are counted by health.h. */
struct member_rules {
	unsigned missed_limit_count; /* in a row, of one source */
	enum member_state missed_state;
	unsigned good_limit_count; /* in a row, to come back from Unreachable */
	unsigned
		traffic_limit_count; /* failures in a row on live traffic: Unreachable at once; 0: traffic is no source */
	int64_t suspicion_limit_us; /* how long one may stay Suspect; 0: for ever */
};
extern const struct member_rules member_rules_folder;  /* 3 misses: UNREACHABLE; 2 good; no traffic */
extern const struct member_rules member_rules_kv;      /* 3 misses: SUSPECT; 2 good; 30 s of suspicion; no traffic */
extern const struct member_rules member_rules_gateway; /* 3 misses: UNREACHABLE; 2 good; 3 traffic failures */

struct member {
	enum member_state state;
	unsigned missed_count, good_count; /* in a row */
	int64_t since_us;                  /* when the state was entered */
	bool is_leaving; /* told to leave: a node that was suspect or unreachable meanwhile comes back as leaving */
};

void member_init(struct member *member, enum member_state state, int64_t now_us);
/* Returns true when the state changed. Removed is the end: nothing leads out of it. */
bool member_step(struct member *member, const struct member_rules *rules, enum member_event event, int64_t now_us);
const char *member_state_name(enum member_state state); /* "healthy", ... */
bool member_state_find(const char *name, enum member_state *ret_state);
int64_t member_health_ppm(enum member_state state); /* Healthy 1.0, Suspect 0.3, Leaving 0.15, others 0 */

#endif
