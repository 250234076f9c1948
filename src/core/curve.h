/* How numbers move in time: averages that forget, decay, warm-up, slow start, back-off. Integers only; shares are millionths (ppm). */
#ifndef HENG_CORE_CURVE_H
#define HENG_CORE_CURVE_H

#include "base/base.h"
#include "base/rng.h"

#define PPM 1000000

/* e^(-elapsed/tau) in millionths; elapsed <= 0 gives PPM, tau <= 0 forgets at once. Off by at most 1, never rises with elapsed. */
int64_t curve_exp_ppm(int64_t elapsed_us, int64_t tau_us);
/* old + (sample - old) * (1 - e^(-elapsed/tau)); old < 0 (unknown) gives the sample, sample < 0 the old. */
int64_t curve_ewma(int64_t old, int64_t sample, int64_t elapsed_us, int64_t tau_us);

/* The peak EWMA of Finagle's PeakEwma.scala: up at once, down by e^(-dt/tau), also while nothing comes. cost_ns < 0: no sample yet. A lower sample
 * less than tau/16384 after the last is passed over: its weight would be lost in rounding, and a peak would stand still under many samples. */
struct curve_peak {
	int64_t cost_ns;
	int64_t stamp_us;
};
#define CURVE_PEAK_INIT ((struct curve_peak){ .cost_ns = -1 })
void curve_peak_feed(struct curve_peak *peak, int64_t rtt_ns, int64_t tau_us, int64_t now_us);
int64_t curve_peak_read(const struct curve_peak *peak, int64_t tau_us, int64_t now_us); /* ns; -1: no sample */

/* A score without news: whole for `life`, then times factor for each step that is complete (9 s + 5 s: 0.9), 0 once below zero_below. age < 0
 * (never heard): 0. */
struct curve_decay {
	int64_t life_us, step_us;
	int64_t factor_ppm, zero_below_ppm;
};
int64_t curve_decay_ppm(const struct curve_decay *decay, int64_t age_us);

/* The cap of a worker that is new or back (seed 004 §2.4, §5.2): start for hold, then one step more for each step_us that is complete; twice as
 * fast, counted from the end of hold, while progress is above fast_progress; never above unverified before its data was verified for the first
 * time; none at all (PPM) while it is verified. start_ppm 0: no warm-up. */
struct curve_warmup {
	int64_t hold_us, step_us;
	int64_t start_ppm, step_ppm, unverified_ppm, fast_progress_ppm;
};
/* age < 0: not warming, PPM. progress < 0: unknown. is_verified: its data is verified as aligned now. Asked anew each tick, so that nothing can
 * latch: a node is recovering for as long as this gives less than PPM. */
int64_t curve_warmup_ppm(const struct curve_warmup *warmup, int64_t age_us, int64_t progress_ppm, bool is_verified,
			 bool was_ever_verified);

/* Slow start (seed 003, problem 1): floor for hold, then straight to PPM over ramp (0: at once). age < 0 or floor_ppm PPM: not starting, PPM. */
struct curve_start {
	int64_t hold_us, ramp_us;
	int64_t floor_ppm;
};
int64_t curve_start_ppm(const struct curve_start *start, int64_t age_us);

/* Exponential back-off with full jitter: a time of 0..min(cap, base * 2^attempt), attempt from 0; 0 when base or cap is not above 0. */
int64_t curve_backoff_us(unsigned attempt, int64_t base_us, int64_t cap_us, struct rng *rng);

#endif
