#include "core/curve.h"

/* Thirty binary places: one step of a decay must not vanish at a hundred thousand samples a second, as millionths would. */
#define Q30             ((int64_t)1 << 30)
#define LOG2_E_Q30      ((int64_t)1549082005)
#define LN_2_Q30        ((int64_t)744261118)
#define TABLE_BITS      6
#define PEAK_SKIP_SHIFT 14

/* 2^(-i/64) in 30 binary places. */
static const int64_t powers_q30[1 << TABLE_BITS] = {
	1073741824, 1062175491, 1050733751, 1039415261, 1028218693, 1017142735, 1006186087, 995347464,
	984625594,  974019220,  963527098,  953147997,  942880699,  932724001,  922676710,  912737649,
	902905651,  893179563,  883558244,  874040567,  864625413,  855311680,  846098274,  836984114,
	827968132,  819049271,  810226483,  801498734,  792865000,  784324269,  775875538,  767517817,
	759250125,  751071493,  742980960,  734977579,  727060411,  719228525,  711481005,  703816941,
	696235434,  688735596,  681316545,  673977412,  666717336,  659535466,  652430958,  645402981,
	638450708,  631573326,  624770026,  618040012,  611382493,  604796689,  598281827,  591837143,
	585461881,  579155293,  572916640,  566745190,  560640218,  554601009,  548626854,  542717053,
};

/* e^(-elapsed/tau) = 2^(-y): whole halvings, a table for the next six bits of y, and 1 - z + z²/2 for the rest, which is a little above e^-z (by
 * less than 2^-22), so that the curve falls also from one row of the table to the next. */
static int64_t exp_q30(int64_t elapsed_us, int64_t tau_us)
{
	__int128 y;
	int64_t fraction, z, rest;

	if (elapsed_us <= 0)
		return Q30;
	if (tau_us <= 0)
		return 0;
	y = (__int128)elapsed_us * LOG2_E_Q30 / tau_us;
	if (y >= (__int128)30 * Q30)
		return 0;
	fraction = (int64_t)y & (Q30 - 1);
	z = (fraction & ((Q30 >> TABLE_BITS) - 1)) * LN_2_Q30 >> 30;
	rest = Q30 - z + (z * z >> 31);
	return (powers_q30[fraction >> (30 - TABLE_BITS)] * rest >> 30) >> (int64_t)(y >> 30);
}

int64_t curve_exp_ppm(int64_t elapsed_us, int64_t tau_us)
{
	return (exp_q30(elapsed_us, tau_us) * PPM + Q30 / 2) >> 30;
}

/* from, of which share_q30 is left, and to for the rest. Both at least 0; rounded to the nearest. */
static int64_t curve_between(int64_t from, int64_t to, int64_t share_q30)
{
	__int128 sum = (__int128)from * share_q30 + (__int128)to * (Q30 - share_q30);

	return (int64_t)((sum + Q30 / 2) >> 30);
}

int64_t curve_ewma(int64_t old, int64_t sample, int64_t elapsed_us, int64_t tau_us)
{
	if (old < 0)
		return sample;
	if (sample < 0)
		return old;
	return curve_between(old, sample, exp_q30(elapsed_us, tau_us));
}

void curve_peak_feed(struct curve_peak *peak, int64_t rtt_ns, int64_t tau_us, int64_t now_us)
{
	rtt_ns = max_i64(rtt_ns, 0);
	if (peak->cost_ns < 0 || rtt_ns >= peak->cost_ns) {
		peak->stamp_us = peak->cost_ns < 0 ? now_us : max_i64(peak->stamp_us, now_us);
		peak->cost_ns = rtt_ns;
		return;
	}
	if (now_us <= peak->stamp_us || now_us - peak->stamp_us < tau_us >> PEAK_SKIP_SHIFT)
		return;
	peak->cost_ns = curve_between(peak->cost_ns, rtt_ns, exp_q30(now_us - peak->stamp_us, tau_us));
	peak->stamp_us = now_us;
}

int64_t curve_peak_read(const struct curve_peak *peak, int64_t tau_us, int64_t now_us)
{
	if (peak->cost_ns < 0)
		return -1;
	return now_us <= peak->stamp_us ? peak->cost_ns
					: curve_between(peak->cost_ns, 0, exp_q30(now_us - peak->stamp_us, tau_us));
}

int64_t curve_decay_ppm(const struct curve_decay *decay, int64_t age_us)
{
	int64_t left_ppm = PPM, steps;

	if (age_us < 0)
		return 0;
	if (age_us <= decay->life_us || decay->factor_ppm >= PPM)
		return PPM;
	if (decay->step_us <= 0 || decay->factor_ppm < 0)
		return 0;
	/* Rounded down, so that each step takes something and the loop ends. */
	for (steps = (age_us - decay->life_us) / decay->step_us; steps > 0 && left_ppm > 0; steps--) {
		left_ppm = left_ppm * decay->factor_ppm / PPM;
		if (left_ppm < decay->zero_below_ppm)
			return 0;
	}
	return left_ppm;
}

int64_t curve_warmup_ppm(const struct curve_warmup *warmup, int64_t age_us, int64_t progress_ppm, bool is_verified,
			 bool was_ever_verified)
{
	int64_t cap_ppm = warmup->start_ppm;

	if (age_us < 0 || is_verified || warmup->start_ppm <= 0)
		return PPM;
	if (age_us >= warmup->hold_us) {
		unsigned speed = progress_ppm > warmup->fast_progress_ppm ? 2 : 1;
		__int128 steps = (__int128)(age_us - warmup->hold_us) * speed / max_i64(warmup->step_us, 1);

		cap_ppm = (int64_t)(cap_ppm + steps * warmup->step_ppm < PPM ? cap_ppm + steps * warmup->step_ppm
									     : PPM);
	}
	if (!was_ever_verified)
		cap_ppm = min_i64(cap_ppm, warmup->unverified_ppm);
	return min_i64(cap_ppm, PPM);
}

int64_t curve_start_ppm(const struct curve_start *start, int64_t age_us)
{
	int64_t ramped_us;

	if (age_us < 0 || start->floor_ppm >= PPM)
		return PPM;
	if (age_us < start->hold_us)
		return start->floor_ppm;
	ramped_us = age_us - start->hold_us;
	if (ramped_us >= start->ramp_us)
		return PPM;
	return start->floor_ppm + (int64_t)((__int128)(PPM - start->floor_ppm) * ramped_us / start->ramp_us);
}

int64_t curve_backoff_us(unsigned attempt, int64_t base_us, int64_t cap_us, struct rng *rng)
{
	int64_t ceiling_us;

	if (base_us <= 0 || cap_us <= 0)
		return 0;
	ceiling_us = attempt >= 63 || base_us > cap_us >> attempt ? cap_us : base_us << attempt;
	return (int64_t)rng_below(rng, (uint64_t)ceiling_us + 1);
}
