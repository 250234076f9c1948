#include "sim/arrival.h"

#include "sim/draw.h"

enum { CALM, BURST };

void arrival_poisson(struct arrival *arrival, double mean_gap_ns)
{
	*arrival = (struct arrival){ .gap_ns = { mean_gap_ns, mean_gap_ns } };
}

void arrival_bursty(struct arrival *arrival, double mean_gap_ns, double factor, double burst_ns, double cycle_ns)
{
	MUST(burst_ns > 0 && burst_ns < cycle_ns && factor * burst_ns <= cycle_ns);
	double share = burst_ns / cycle_ns, calm_factor = (1.0 - factor * share) / (1.0 - share);
	*arrival = (struct arrival){
		.gap_ns = { calm_factor > 0 ? mean_gap_ns / calm_factor : INFINITY, mean_gap_ns / factor },
		.stay_ns = { cycle_ns - burst_ns, burst_ns },
		.left_ns = cycle_ns - burst_ns,
	};
}

int64_t arrival_gap_ns(struct arrival *arrival, struct rng *rng)
{
	if (arrival->stay_ns[CALM] <= 0)
		return (int64_t)(draw_exponential(rng, arrival->gap_ns[CALM]) + 0.5);
	double passed = 0;
	for (;;) {
		double gap = draw_exponential(rng, arrival->gap_ns[arrival->state]);
		if (gap <= arrival->left_ns) {
			arrival->left_ns -= gap;
			return (int64_t)(passed + gap + 0.5);
		}
		/* Exponential gaps have no memory: at the change of state the rest is drawn anew at the new rate. */
		passed += arrival->left_ns;
		arrival->state = arrival->state == CALM ? BURST : CALM;
		arrival->left_ns = draw_exponential(rng, arrival->stay_ns[arrival->state]);
	}
}
