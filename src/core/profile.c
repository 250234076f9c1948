#include "core/profile_impl.h"
#include "base/hash.h"

#include <inttypes.h>

#define HOUR_US (3600 * SEC_US)
#define LONG_US (30 * 24 * HOUR_US) /* nothing in here is meant to last longer */

const char *const profile_norm_names[NORM_COUNT] = {
#define NORM(name, unit, help) [NORM_##name] = #name,
#include "core/profile_list.h"
#undef NORM
};
const char *const profile_source_names[RULE_COUNT] = {
#define RULE(name, unit, help) [RULE_##name] = #name,
#include "core/profile_rule_list.h"
#undef RULE
};

#define SHARE(key, field, low, high, words)                                      \
	{                                                                        \
		key, CONF_INT, offsetof(struct profile, field), low, high, words \
	}
#define TIME(key, field, low, words)                                                     \
	{                                                                                \
		key, CONF_DURATION, offsetof(struct profile, field), low, LONG_US, words \
	}
const struct profile_number profile_numbers[PROFILE_NUMBERS] = {
	TIME("decay_life", decay.life_us, 0, "how long a score lives without a report"),
	TIME("decay_step", decay.step_us, MSEC_US, "after that: how often it decays, or how long it drifts"),
	SHARE("decay_factor_ppm", decay.factor_ppm, 0, PPM, "what is left after each step"),
	SHARE("decay_zero_below_ppm", decay.zero_below_ppm, 0, PPM, "less than this is 0"),
	TIME("warmup_hold", warmup.hold_us, 0, "how long a new node stays at the first cap"),
	TIME("warmup_step", warmup.step_us, MSEC_US, "after that: how often the cap rises"),
	SHARE("warmup_start_ppm", warmup.start_ppm, 0, PPM, "the first cap; 0: no warm-up"),
	SHARE("warmup_step_ppm", warmup.step_ppm, 1, PPM, "by how much it rises"),
	SHARE("warmup_unverified_ppm", warmup.unverified_ppm, 0, PPM, "the cap until its data was verified once"),
	SHARE("warmup_fast_progress_ppm", warmup.fast_progress_ppm, 0, PPM, "sync progress from which it rises faster"),
	TIME("start_hold", start.hold_us, 0, "slow start: how long at its floor"),
	TIME("start_ramp", start.ramp_us, 0, "and how long from there to full; 0s: at once"),
	SHARE("start_floor_ppm", start.floor_ppm, 1, PPM, "share of its score meanwhile; 1000000: no slow start"),
	TIME("blackout", blackout_us, 0, "after (re)joining reports do not count for so long"),
	SHARE("step_up_ppm", step_up_ppm, 0, 10 * PPM, "most that a score rises from table to table; 0: no limit"),
	SHARE("floor_ppm", floor_ppm, 0, PPM, "a node that may serve scores at least this"),
	SHARE("lead_ppm", lead_ppm, 0, PPM, "a challenger must lead by more than this"),
	SHARE("hold_ppm", hold_ppm, 0, PPM, "or the holder be under this share of it"),
	TIME("dwell", dwell_us, 0, "least time between two changes"),
	SHARE("band_ppm", band_ppm, 0, PPM, "at or above this share of the best is as good"),
	SHARE("flat_ppm", flat_ppm, 0, PPM, "warn when all scores lie within this share of the best"),
	TIME("flat", flat_us, 0, "for so long though the metrics differ; 0s: never"),
};
#undef SHARE
#undef TIME

int64_t profile_number_get(const struct profile *profile, const struct profile_number *number)
{
	int64_t value;

	memcpy(&value, (const char *)profile + number->offset, sizeof(value));
	return value;
}

char *profile_number_text(enum conf_type type, int64_t value, char target[PROFILE_NUMBER_SIZE])
{
	static const struct {
		int64_t scale_us;
		const char *name;
	} UNITS[] = { { HOUR_US, "h" }, { 60 * SEC_US, "m" }, { SEC_US, "s" }, { MSEC_US, "ms" }, { 1, "us" } };
	size_t i = 0;

	if (type != CONF_DURATION) {
		snprintf(target, PROFILE_NUMBER_SIZE, "%" PRId64, value);
		return target;
	}
	if (value == 0) {
		snprintf(target, PROFILE_NUMBER_SIZE, "0s");
		return target;
	}
	while (value % UNITS[i].scale_us != 0)
		i++;
	snprintf(target, PROFILE_NUMBER_SIZE, "%" PRId64 "%s", value / UNITS[i].scale_us, UNITS[i].name);
	return target;
}

/* Names are in quotes, since some that are allowed ("null") mean something else to YAML without. */
void profile_write(struct buf *buf, const struct profile *profile)
{
	char text[PROFILE_NUMBER_SIZE];

	buf_printf(buf, "name: \"%s\"\nstale: %s\n", profile->name,
		   profile->stale == PROFILE_DRIFT ? "drift" : "decay");
	for (size_t i = 0; i < COUNT_OF(profile_numbers); i++) {
		const struct profile_number *number = &profile_numbers[i];

		buf_printf(buf, "%s: %s\n", number->name,
			   profile_number_text(number->type, profile_number_get(profile, number), text));
	}
	buf_printf(buf, "dims:%s\n", profile->dim_count == 0 ? " []" : "");
	for (size_t i = 0; i < profile->dim_count; i++) {
		const struct profile_dim *dim = &profile->dims[i];

		buf_printf(buf,
			   "  - name: \"%s\"\n    group: \"%s\"\n    norm: %s\n    weight_ppm: %" PRId64
			   "\n    parameter: %" PRId64 "\n",
			   dim->name, dim->group, profile_norm_names[dim->norm], dim->weight_ppm, dim->parameter);
	}
	buf_printf(buf, "rules:%s\n", profile->rule_count == 0 ? " []" : "");
	for (size_t i = 0; i < profile->rule_count; i++) {
		const struct profile_rule *rule = &profile->rules[i];

		buf_printf(buf,
			   "  - name: \"%s\"\n    source: %s\n    kind: %s\n    low: %" PRId64 "\n    high: %" PRId64
			   "\n    above_peers: %" PRId64 "\n    factor_ppm: %" PRId64 "\n",
			   rule->name, profile_source_names[rule->source], rule->kind == PROFILE_RAMP ? "ramp" : "step",
			   rule->low, rule->high, rule->above_peers, rule->factor_ppm);
	}
}

uint64_t profile_hash(const struct profile *profile)
{
	/* Of the text, as that holds every field once, in one order, without padding. */
	struct buf buf = BUF_INIT(PROFILE_TEXT_MAX);
	uint64_t hash;

	profile_write(&buf, profile);
	MUST(!buf.is_failed);
	hash = hash64(buf.data, buf.size);
	buf_fini(&buf);
	return hash;
}
