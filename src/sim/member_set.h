/* Which nodes may serve which set: the placement, and how it changes when nodes come and go. */
#ifndef HENG_SIM_MEMBER_SET_H
#define HENG_SIM_MEMBER_SET_H

#include "sim/policy.h"
#include "sim/scenario.h"

struct member_set {
	const struct scenario *scenario;
	size_t node_count, set_count, set_capacity;
	struct sim_set *sets;
	uint16_t *nodes; /* set_capacity for each set */
	char (*ids)[24];
	const char **id_list;
	uint32_t *weights_milli;
	bool *is_member;     /* of each node */
	int64_t *pinned_set; /* of each node: the set it joined alone, or -1 */
};
int member_set_init(struct member_set *members, const struct scenario *scenario, struct err *err);
void member_set_fini(struct member_set *members);
/* set -1: where the placement puts it. */
int member_set_join(struct member_set *members, size_t node, int64_t set, struct err *err);
int member_set_leave(struct member_set *members, size_t node, struct err *err);

#endif
