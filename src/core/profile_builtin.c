#include "core/profile_impl.h"

#define MINUTE_US (60 * SEC_US)

/* A score lives three report intervals; then each 5 s take a tenth of it (seed 004 §3.2). */
#define DECAY                                                                                               \
	{                                                                                                   \
		.life_us = 9 * SEC_US, .step_us = 5 * SEC_US, .factor_ppm = 900000, .zero_below_ppm = 50000 \
	}
/* Seed 004 §5.2, the later and faster of its two curves, and its rule for data that was never verified. */
#define WARMUP(first_ppm)                                                                                       \
	{                                                                                                       \
		.hold_us = 5 * MINUTE_US, .step_us = 30 * SEC_US, .start_ppm = (first_ppm), .step_ppm = 100000, \
		.unverified_ppm = 500000, .fast_progress_ppm = 800000                                           \
	}
/* Hysteresis, band and warning are the same everywhere: they speak of scores, not of what is scored. */
#define STEADY                                                                                        \
	.lead_ppm = 100000, .hold_ppm = 800000, .dwell_us = 0, .band_ppm = 800000, .flat_ppm = 20000, \
	.flat_us = 5 * MINUTE_US

#define DIM(dim_name, dim_group, dim_norm, weight)                                                    \
	{                                                                                             \
		.name = dim_name, .group = dim_group, .norm = NORM_##dim_norm, .weight_ppm = (weight) \
	}
#define STEP(rule_name, from, off, on, factor)                                                              \
	{                                                                                                   \
		.name = rule_name, .source = RULE_##from, .kind = PROFILE_STEP, .low = (off), .high = (on), \
		.factor_ppm = (factor)                                                                      \
	}
#define GATE(rule_name, from, off, on, above, factor)                                                       \
	{                                                                                                   \
		.name = rule_name, .source = RULE_##from, .kind = PROFILE_STEP, .low = (off), .high = (on), \
		.above_peers = (above), .factor_ppm = (factor)                                              \
	}
#define RAMP(rule_name, from, first, last, factor)                                                              \
	{                                                                                                       \
		.name = rule_name, .source = RULE_##from, .kind = PROFILE_RAMP, .low = (first), .high = (last), \
		.factor_ppm = (factor)                                                                          \
	}

const struct profile profile_neutral = {
	.stale = PROFILE_DECAY,
	.decay = DECAY,
	.warmup = WARMUP(0),
	.start = { .hold_us = 30 * SEC_US, .floor_ppm = PPM },
	STEADY,
};

static struct profile builtins[] = {
	{
		.name = "kv",
		.dims = {
			DIM("health", "", health, 300000),
			/* load, a quarter of the whole, is 0.4 cpu + 0.3 memory + 0.3 disk. */
			DIM("cpu", "load", cpu_per_core, 100000),
			DIM("memory", "load", memory, 75000),
			DIM("disk", "load", disk_queue, 75000),
			DIM("latency", "", latency, 250000),
			DIM("data_ready", "", data_ready, 200000),
		},
		.dim_count = 6,
		.rules = {
			STEP("migrating", migrating, 0, 0, 800000),
			STEP("leaving", leaving, 0, 0, 500000),
			/* Back only with some room to spare: a load that hovers at the mark would swing the score fivefold. */
			STEP("overload", load, 850000, 900000, 200000),
		},
		.rule_count = 3,
		.stale = PROFILE_DECAY,
		.decay = DECAY,
		.warmup = WARMUP(400000),
		.start = { .hold_us = 30 * SEC_US, .floor_ppm = PPM },
		STEADY,
	},
	{
		.name = "gateway",
		.dims = {
			DIM("cpu", "", cpu_per_core, 400000),
			DIM("memory", "", memory, 100000),
			DIM("conn_share", "", conn_share, 300000),
			DIM("rt_ratio", "", rt_ratio, 200000),
		},
		.dim_count = 4,
		.rules = {
			/* The gate. The sum alone leaves a dying node 40 % of a fair share. Without the comparison with the peers a busy pool
			 * gates one node after the other, whose work is what drives the next one over the mark (simulated: p99 doubles). */
			GATE("cpu_gate", cpu, 800000, 900000, 150000, 100000),
			GATE("rt_gate", rt, 800 * MSEC_US, 1000 * MSEC_US, 200 * MSEC_US, 100000),
			STEP("migrating", migrating, 0, 0, 800000),
			/* There is no health dimension here that would take its part, so this is health's own figure. */
			STEP("leaving", leaving, 0, 0, 150000),
		},
		.rule_count = 4,
		.stale = PROFILE_DRIFT,
		/* Three refreshes without news, then ten seconds to the peers' mean. */
		.decay = { .life_us = 9 * SEC_US, .step_us = 10 * SEC_US, .factor_ppm = 900000, .zero_below_ppm = 50000 },
		.warmup = WARMUP(0),
		.start = { .hold_us = 30 * SEC_US, .ramp_us = 0, .floor_ppm = 100000 },
		.blackout_us = 10 * SEC_US,
		.step_up_ppm = 200000,
		.floor_ppm = 20000,
		STEADY,
	},
	{
		.name = "folder",
		.rules = {
			STEP("cpu", cpu, 700000, 800000, 600000),
			RAMP("disk_free", disk_free, 70000, 150000, 500000),
			RAMP("disk_io", disk_io, 50 * MSEC_US, 500 * MSEC_US, 300000),
			RAMP("tcp_conns", tcp_conns, 5000, 20000, 500000),
			RAMP("write_failures", write_failures, 10000, 200000, 200000),
			STEP("migrating", migrating, 0, 0, 800000),
			STEP("leaving", leaving, 0, 0, 500000),
			STEP("dirs_failed", dirs_failed, 0, 0, 0),
		},
		.rule_count = 8,
		.stale = PROFILE_DECAY,
		.decay = DECAY,
		.warmup = WARMUP(0),
		.start = { .hold_us = 30 * SEC_US, .floor_ppm = PPM },
		.floor_ppm = 10000,
		STEADY,
	},
};

const struct profile *profile_builtin(const char *name)
{
	static bool is_made;

	if (!is_made) {
		for (size_t i = 0; i < COUNT_OF(builtins); i++)
			builtins[i].hash = profile_hash(&builtins[i]);
		is_made = true;
	}
	for (size_t i = 0; i < COUNT_OF(builtins); i++) {
		if (strcmp(builtins[i].name, name) == 0)
			return &builtins[i];
	}
	return NULL;
}
