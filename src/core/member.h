/* The membership state machine of a node as a table: events in, state out. Pure; one rule set per door. */
#ifndef HENG_CORE_MEMBER_H
#define HENG_CORE_MEMBER_H

#include "base/base.h"

enum member_state { MEMBER_HEALTHY, MEMBER_SUSPECT, MEMBER_LEAVING, MEMBER_UNREACHABLE, MEMBER_REMOVED };
enum member_event { MEMBER_PROBE_GOOD, MEMBER_PROBE_MISSED, MEMBER_LEAVE, MEMBER_DRAINED, MEMBER_STAY };

/* What three misses in a row mean differs by door: folder takes the node out at once. */
struct member_rules {
	unsigned missed_limit_count; /* in a row */
	enum member_state missed_state;
	unsigned good_limit_count; /* in a row, to come back from Unreachable */
};
extern const struct member_rules member_rules_folder; /* 3, UNREACHABLE, 2 */

struct member {
	enum member_state state;
	unsigned missed_count, good_count; /* in a row */
	int64_t since_us;                  /* when the state was entered */
	bool is_leaving; /* told to leave: a node that was unreachable meanwhile comes back as leaving */
};

void member_init(struct member *member, enum member_state state, int64_t now_us);
/* Returns true when the state changed. Removed is the end: nothing leads out of it. */
bool member_step(struct member *member, const struct member_rules *rules, enum member_event event, int64_t now_us);
const char *member_state_name(enum member_state state); /* "healthy", ... */
bool member_takes_work(enum member_state state);        /* Healthy and Suspect */

#endif
