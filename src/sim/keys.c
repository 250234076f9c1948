#include "sim/keys.h"

#include "base/hash.h"
#include "sim/draw.h"

/* Rejection-inversion (Hoermann, Derflinger 1996, "Rejection-inversion to generate variates from monotone discrete distributions"): inverts the
 * integral of the density's continuous hull and rejects the little that lies between hull and steps. Exact, no table, the same for any count. */

/* log(1 + x) / x and (e^x - 1) / x, continued through 0, where the exponent 1 leads. */
static double log_ratio(double x) { return fabs(x) > 1e-8 ? log1p(x) / x : 1.0 - x * (0.5 - x * (1.0 / 3.0)); }
static double exp_ratio(double x) { return fabs(x) > 1e-8 ? expm1(x) / x : 1.0 + x * 0.5 * (1.0 + x * (1.0 / 3.0)); }

static double density(const struct keys *keys, double x) { return exp(-keys->exponent * log(x)); }
static double integral(const struct keys *keys, double x)
{
	double log_x = log(x);
	return exp_ratio((1.0 - keys->exponent) * log_x) * log_x;
}
static double integral_inverse(const struct keys *keys, double y)
{
	double t = y * (1.0 - keys->exponent);
	/* Rounding may push it past the pole. */
	return exp(log_ratio(t < -1.0 ? -1.0 : t) * y);
}

void keys_init(struct keys *keys, uint64_t count, double exponent)
{
	MUST(count > 0 && exponent >= 0);
	*keys = (struct keys){ .count = count, .exponent = exponent };
	keys->integral_first = integral(keys, 1.5) - 1.0;
	keys->integral_last = integral(keys, (double)count + 0.5);
	keys->squeeze = 2.0 - integral_inverse(keys, integral(keys, 2.5) - density(keys, 2.0));
}

uint64_t keys_draw(const struct keys *keys, struct rng *rng)
{
	if (keys->exponent == 0 || keys->count == 1)
		return (uint64_t)(((unsigned __int128)rng_u64(rng) * keys->count) >> 64);
	for (;;) {
		double u = keys->integral_last + draw_unit(rng) * (keys->integral_first - keys->integral_last);
		double x = integral_inverse(keys, u), k = floor(x + 0.5);
		k = k < 1.0 ? 1.0 : k > (double)keys->count ? (double)keys->count : k;
		if (k - x <= keys->squeeze || u >= integral(keys, k + 0.5) - density(keys, k))
			return (uint64_t)k - 1;
	}
}

uint64_t keys_hash(uint64_t rank) { return hash64(&rank, sizeof(rank)); }
