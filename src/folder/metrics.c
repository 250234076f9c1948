#include "folder/metrics.h"

struct walk {
	struct buf *target;
	const char *name;
	bool is_alerts_only;
};

static void each(void *owner, enum err_code code, uint64_t count)
{
	const struct walk *walk = owner;
	const struct prom_label label = { "error", err_word(code) };

	if (!walk->is_alerts_only || alert_is_due(code))
		prom_sample(walk->target, walk->name, &label, 1, count);
}

void metrics_common(struct buf *target, const char *role, const struct alerts *alerts)
{
	const struct prom_label labels[] = { { "role", role }, { "version", HENG_VERSION } };
	struct walk walk = { .target = target, .name = "heng_errors_total" };

	prom_family(target, "heng_info", PROM_GAUGE, "What runs.");
	prom_sample(target, "heng_info", labels, COUNT_OF(labels), 1);
	prom_family(target, walk.name, PROM_COUNTER, "Calls that were answered with an error, by its word.");
	alerts_each(alerts, each, &walk);
	walk.name = "heng_alerts_total";
	walk.is_alerts_only = true;
	prom_family(target, walk.name, PROM_COUNTER, "Those of them that are alerts: of the security kind.");
	alerts_each(alerts, each, &walk);
}
