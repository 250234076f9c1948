#include "sim/policy.h"

const struct sim_policy *const sim_policies[] = {
#define POLICY(name) &sim_policy_##name,
#include "sim/policy_list.h"
#undef POLICY
	NULL,
};

const struct sim_policy *sim_policy_find(const char *name)
{
	for (size_t i = 0; sim_policies[i]; i++) {
		if (strcmp(sim_policies[i]->name, name) == 0)
			return sim_policies[i];
	}
	return NULL;
}
