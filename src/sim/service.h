/* How long serving takes. The work of a request is drawn once, before anyone chooses; a node's pace turns work into time. */
#ifndef HENG_SIM_SERVICE_H
#define HENG_SIM_SERVICE_H

#include "base/rng.h"

enum service_kind {
#define SERVICE(name, help) SERVICE_##name,
#define MODIFIER(name, help)
#include "sim/service_list.h"
#undef SERVICE
#undef MODIFIER
	SERVICES
};
struct service {
	enum service_kind kind;
	double mean_ns;
	double long_share, long_factor; /* bimodal */
	double sigma;                   /* lognormal */
};
int64_t service_draw_ns(const struct service *service, struct rng *rng); /* at least 1 */

enum pace_kind {
#define SERVICE(name, help)
#define MODIFIER(name, help) PACE_##name,
#include "sim/service_list.h"
#undef SERVICE
#undef MODIFIER
	PACES
};
extern const char *const pace_names[PACES];
/* One modifier of one node. */
struct pace_rule {
	enum pace_kind kind;
	double factor;                       /* slow, compaction, cold: times as long */
	int64_t from_ns, length_ns;          /* slow: 0 length is for ever; the first freeze or compaction */
	int64_t every_ns;                    /* freeze, compaction: begins again; > length_ns */
	double growth_per_ns, growth_factor; /* leak: what is added to the factor, up to growth_factor */
	double fade_count;                   /* cold: after so many requests 1/e of the excess is left */
};
#define PACE_RULES_MAX 8
struct pace {
	size_t rule_count, freeze_count; /* the freezes are the first of the rules */
	int64_t started_ns;
	bool is_cold;          /* it came, or came back, with nothing cached */
	uint64_t served_count; /* since then */
	struct pace_rule rules[PACE_RULES_MAX];
};
void pace_init(struct pace *pace);
/* False: no room, or with this freeze the node could stand still for ever. */
bool pace_add(struct pace *pace, const struct pace_rule *rule);
void pace_restart(struct pace *pace, int64_t now_ns); /* also for a node that joins */
/* Time that work takes when it begins now, without freezes. A change of factor while it runs does not count. */
int64_t pace_stretch_ns(const struct pace *pace, int64_t work_ns, int64_t now_ns);
/* The clock stands still in a freeze. When `duration` is over that begins now: */
int64_t pace_end_ns(const struct pace *pace, int64_t now_ns, int64_t duration_ns);
int64_t pace_thaw_ns(const struct pace *pace, int64_t now_ns); /* now when it is not frozen, else the freeze's end */
int64_t pace_active_ns(const struct pace *pace, int64_t from_ns, int64_t until_ns); /* without freezes */

#endif
