#include "core/member.h"

#define MEMBER_STATES (MEMBER_REMOVED + 1)
#define MEMBER_EVENTS (MEMBER_STAY + 1)

const struct member_rules member_rules_folder = { .missed_limit_count = 3,
						  .missed_state = MEMBER_UNREACHABLE,
						  .good_limit_count = 2 };
const struct member_rules member_rules_kv = { .missed_limit_count = 3,
					      .missed_state = MEMBER_SUSPECT,
					      .good_limit_count = 2,
					      .suspicion_limit_us = 30 * SEC_US };
const struct member_rules member_rules_gateway = {
	.missed_limit_count = 3, .missed_state = MEMBER_UNREACHABLE, .good_limit_count = 2, .traffic_limit_count = 3
};

/* What an event means in a state. Those that count are decided by the rules when their count is full. */
enum member_move { KEEP, TO_SERVICE, TO_LEAVING, TO_UNREACHABLE, TO_REMOVED, COUNT_GOOD, COUNT_MISSED };

static const enum member_move moves[MEMBER_STATES][MEMBER_EVENTS] = {
	[MEMBER_HEALTHY] = { [MEMBER_PROBE_MISSED] = COUNT_MISSED,
			     [MEMBER_TRAFFIC_FAILED] = TO_UNREACHABLE,
			     [MEMBER_LEAVE] = TO_LEAVING },
	[MEMBER_SUSPECT] = { [MEMBER_PROBE_GOOD] = TO_SERVICE,
			     [MEMBER_PROBE_MISSED] = COUNT_MISSED,
			     [MEMBER_GOSSIP_FAILED] = TO_UNREACHABLE,
			     [MEMBER_SUSPICION_EXPIRED] = TO_UNREACHABLE,
			     [MEMBER_TRAFFIC_FAILED] = TO_UNREACHABLE,
			     [MEMBER_LEAVE] = TO_LEAVING,
			     [MEMBER_DRAINED] = TO_REMOVED },
	/* A leaving node that answers goes on leaving; one that does not is as doubtful or unreachable as any. */
	[MEMBER_LEAVING] = { [MEMBER_PROBE_MISSED] = COUNT_MISSED,
			     [MEMBER_TRAFFIC_FAILED] = TO_UNREACHABLE,
			     [MEMBER_DRAINED] = TO_REMOVED,
			     [MEMBER_STAY] = TO_SERVICE },
	[MEMBER_UNREACHABLE] = { [MEMBER_PROBE_GOOD] = COUNT_GOOD, [MEMBER_DRAINED] = TO_REMOVED },
	[MEMBER_REMOVED] = { [MEMBER_PROBE_GOOD] = KEEP },
};

static const char *const names[MEMBER_STATES] = {
	[MEMBER_HEALTHY] = "healthy",         [MEMBER_SUSPECT] = "suspect", [MEMBER_LEAVING] = "leaving",
	[MEMBER_UNREACHABLE] = "unreachable", [MEMBER_REMOVED] = "removed",
};

void member_init(struct member *member, enum member_state state, int64_t now_us)
{
	*member = (struct member){ .state = state, .since_us = now_us, .is_leaving = state == MEMBER_LEAVING };
}

static void member_count(struct member *member, enum member_event event)
{
	switch (event) {
	case MEMBER_PROBE_GOOD:
		member->missed_count = 0;
		member->good_count += member->good_count < UINT32_MAX;
		break;
	case MEMBER_PROBE_MISSED:
		member->good_count = 0;
		member->missed_count += member->missed_count < UINT32_MAX;
		break;
	case MEMBER_GOSSIP_FAILED:
	case MEMBER_SUSPICION_EXPIRED:
	case MEMBER_TRAFFIC_FAILED:
		/* The good words before the failure are no part of the way back. */
		member->good_count = 0;
		break;
	case MEMBER_LEAVE:
	case MEMBER_STAY:
		member->is_leaving = event == MEMBER_LEAVE;
		break;
	case MEMBER_DRAINED:
		break;
	}
}

static enum member_state member_next(const struct member *member, const struct member_rules *rules,
				     enum member_event event)
{
	enum member_state service = member->is_leaving ? MEMBER_LEAVING : MEMBER_HEALTHY;

	switch (moves[member->state][event]) {
	case TO_SERVICE:
		return service;
	case TO_LEAVING:
		return MEMBER_LEAVING;
	case TO_UNREACHABLE:
		return MEMBER_UNREACHABLE;
	case TO_REMOVED:
		/* One that was told to leave may have gone by the time somebody confirms that it is drained. */
		return member->is_leaving ? MEMBER_REMOVED : member->state;
	case COUNT_GOOD:
		return member->good_count < rules->good_limit_count ? member->state : service;
	case COUNT_MISSED:
		return member->missed_count < rules->missed_limit_count ? member->state : rules->missed_state;
	case KEEP:
		break;
	}
	return member->state;
}

bool member_step(struct member *member, const struct member_rules *rules, enum member_event event, int64_t now_us)
{
	enum member_state next;

	MUST((unsigned)member->state < MEMBER_STATES && (unsigned)event < MEMBER_EVENTS);
	member_count(member, event);
	next = member_next(member, rules, event);
	if (next == member->state)
		return false;
	member->state = next;
	member->since_us = now_us;
	return true;
}

const char *member_state_name(enum member_state state)
{
	MUST((unsigned)state < MEMBER_STATES);
	return names[state];
}

bool member_state_find(const char *name, enum member_state *ret_state)
{
	for (unsigned i = 0; i < MEMBER_STATES; i++) {
		if (strcmp(names[i], name) == 0) {
			*ret_state = (enum member_state)i;
			return true;
		}
	}
	return false;
}

int64_t member_health_ppm(enum member_state state)
{
	static const int64_t values_ppm[MEMBER_STATES] = {
		[MEMBER_HEALTHY] = 1000000,
		[MEMBER_SUSPECT] = 300000,
		[MEMBER_LEAVING] = 150000,
	};

	MUST((unsigned)state < MEMBER_STATES);
	return values_ppm[state];
}
