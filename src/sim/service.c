#include "sim/service.h"

#include "sim/draw.h"

#define FADED_COUNT 30.0 /* e^-30 is nothing */

static double draw_constant(const struct service *service, struct rng *rng)
{
	(void)rng;
	return service->mean_ns;
}

static double draw_exponential_work(const struct service *service, struct rng *rng)
{
	return draw_exponential(rng, service->mean_ns);
}

static double draw_bimodal(const struct service *service, struct rng *rng)
{
	double short_ns = service->mean_ns / (1.0 + service->long_share * (service->long_factor - 1.0));
	return draw_unit(rng) <= service->long_share ? short_ns * service->long_factor : short_ns;
}

/* The mean of e^N(mu, sigma) is e^(mu + sigma^2 / 2). */
static double draw_lognormal(const struct service *service, struct rng *rng)
{
	return service->mean_ns * exp(service->sigma * draw_normal(rng) - service->sigma * service->sigma / 2.0);
}

int64_t service_draw_ns(const struct service *service, struct rng *rng)
{
	static double (*const draws[SERVICES])(const struct service *, struct rng *) = {
		[SERVICE_constant] = draw_constant,
		[SERVICE_exponential] = draw_exponential_work,
		[SERVICE_bimodal] = draw_bimodal,
		[SERVICE_lognormal] = draw_lognormal,
	};
	/* A lognormal one may in theory be of any size; an hour is beyond all that a router waits for. */
	double work = fmin(draws[service->kind](service, rng), 3600e9);
	return max_i64((int64_t)(work + 0.5), 1);
}

const char *const pace_names[PACES] = {
#define SERVICE(name, help)
#define MODIFIER(name, help) [PACE_##name] = #name,
#include "sim/service_list.h"
#undef SERVICE
#undef MODIFIER
};

void pace_init(struct pace *pace) { *pace = (struct pace){ 0 }; }

bool pace_add(struct pace *pace, const struct pace_rule *rule)
{
	if (pace->rule_count == PACE_RULES_MAX)
		return false;
	if (rule->kind == PACE_freeze) {
		double frozen_share = (double)rule->length_ns / (double)rule->every_ns;
		for (size_t i = 0; i < pace->freeze_count; i++)
			frozen_share += (double)pace->rules[i].length_ns / (double)pace->rules[i].every_ns;
		/* Freezes that together last less than the whole time leave a gap somewhere; others need not. */
		if (frozen_share > 0.99)
			return false;
	}
	/* Freezes come first, as they are looked at most. */
	size_t place = rule->kind == PACE_freeze ? pace->freeze_count++ : pace->rule_count;
	memmove(&pace->rules[place + 1], &pace->rules[place], (pace->rule_count - place) * sizeof(*rule));
	pace->rules[place] = *rule;
	pace->rule_count++;
	return true;
}

void pace_restart(struct pace *pace, int64_t now_ns)
{
	pace->started_ns = now_ns;
	pace->is_cold = true;
	pace->served_count = 0;
}

/* The first interval of a rule that ends after now. */
static void cycle_next(const struct pace_rule *rule, int64_t now_ns, int64_t *ret_start_ns, int64_t *ret_end_ns)
{
	int64_t start = rule->from_ns;
	if (now_ns >= start) {
		start += (now_ns - start) / rule->every_ns * rule->every_ns;
		if (now_ns >= start + rule->length_ns)
			start += rule->every_ns;
	}
	*ret_start_ns = start;
	*ret_end_ns = start + rule->length_ns;
}

static double factor_slow(const struct pace *pace, const struct pace_rule *rule, int64_t now_ns)
{
	(void)pace;
	bool is_on = now_ns >= rule->from_ns && (rule->length_ns == 0 || now_ns < rule->from_ns + rule->length_ns);
	return is_on ? rule->factor : 1.0;
}

static double factor_none(const struct pace *pace, const struct pace_rule *rule, int64_t now_ns)
{
	(void)pace, (void)rule, (void)now_ns;
	return 1.0;
}

static double factor_compaction(const struct pace *pace, const struct pace_rule *rule, int64_t now_ns)
{
	(void)pace;
	int64_t start, end;
	cycle_next(rule, now_ns, &start, &end);
	return now_ns >= start ? rule->factor : 1.0;
}

static double factor_leak(const struct pace *pace, const struct pace_rule *rule, int64_t now_ns)
{
	return fmin(1.0 + rule->growth_per_ns * (double)(now_ns - pace->started_ns), rule->growth_factor);
}

static double factor_cold(const struct pace *pace, const struct pace_rule *rule, int64_t now_ns)
{
	(void)now_ns;
	double faded = (double)pace->served_count / rule->fade_count;
	return pace->is_cold && faded < FADED_COUNT ? 1.0 + (rule->factor - 1.0) * exp(-faded) : 1.0;
}

int64_t pace_stretch_ns(const struct pace *pace, int64_t work_ns, int64_t now_ns)
{
	static double (*const factors[PACES])(const struct pace *, const struct pace_rule *, int64_t) = {
		[PACE_slow] = factor_slow, [PACE_freeze] = factor_none, [PACE_compaction] = factor_compaction,
		[PACE_leak] = factor_leak, [PACE_cold] = factor_cold,
	};
	if (pace->rule_count == pace->freeze_count)
		return work_ns;
	double factor = 1.0;
	for (size_t i = pace->freeze_count; i < pace->rule_count; i++)
		factor *= factors[pace->rules[i].kind](pace, &pace->rules[i], now_ns);
	return max_i64((int64_t)((double)work_ns * factor + 0.5), 1);
}

int64_t pace_thaw_ns(const struct pace *pace, int64_t now_ns)
{
	/* A freeze may begin within another and end after it. */
	for (bool is_moved = pace->freeze_count > 0; is_moved;) {
		is_moved = false;
		for (size_t i = 0; i < pace->freeze_count; i++) {
			int64_t start, end;
			cycle_next(&pace->rules[i], now_ns, &start, &end);
			if (start <= now_ns) {
				now_ns = end;
				is_moved = true;
			}
		}
	}
	return now_ns;
}

/* When the next freeze begins; now must not be in one. */
static int64_t next_freeze_ns(const struct pace *pace, int64_t now_ns)
{
	int64_t next = INT64_MAX;
	for (size_t i = 0; i < pace->freeze_count; i++) {
		int64_t start, end;
		cycle_next(&pace->rules[i], now_ns, &start, &end);
		next = min_i64(next, start);
	}
	return next;
}

int64_t pace_end_ns(const struct pace *pace, int64_t now_ns, int64_t duration_ns)
{
	if (pace->freeze_count == 0)
		return now_ns + duration_ns;
	for (;;) {
		now_ns = pace_thaw_ns(pace, now_ns);
		int64_t freeze = next_freeze_ns(pace, now_ns);
		if (duration_ns <= freeze - now_ns)
			return now_ns + duration_ns;
		duration_ns -= freeze - now_ns;
		now_ns = freeze;
	}
}

int64_t pace_active_ns(const struct pace *pace, int64_t from_ns, int64_t until_ns)
{
	if (pace->freeze_count == 0)
		return until_ns - from_ns;
	int64_t active = 0;
	for (;;) {
		from_ns = pace_thaw_ns(pace, from_ns);
		if (from_ns >= until_ns)
			return active;
		int64_t next = min_i64(next_freeze_ns(pace, from_ns), until_ns);
		active += next - from_ns;
		from_ns = next;
	}
}
