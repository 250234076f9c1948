#include "core/robust.h"

#include "core/curve.h"

#define KEEP_PPM      900000 /* of the former estimate when answers follow one another closely */
#define LIMIT_TIMES   8
#define STALLED_TIMES 2
#define RTT_MAX_NS    (INT64_C(3600) * 1000 * 1000 * 1000)

static int64_t stall_limit_us(const struct robust *robust, int64_t peers_ns)
{
	return ROBUST_STALL * (max_i64(robust->estimate_ns, peers_ns) / 1000 + 1);
}

int64_t robust_stall(const struct robust *robust, int64_t peers_ns, int64_t silent_us)
{
	int64_t limit_us;

	/* Before the first answer of anybody nothing is usual. */
	if (robust->estimate_ns < 0 && peers_ns < 0)
		return 0;
	limit_us = stall_limit_us(robust, peers_ns);
	return silent_us < limit_us ? 0 : silent_us / limit_us;
}

void robust_feed(struct robust *robust, int64_t rtt_ns, int64_t peers_ns, int64_t silent_us, int64_t now_us)
{
	int64_t old_ns = robust->estimate_ns, times = LIMIT_TIMES, age_us = now_us - robust->stamp_us, keep_ppm;

	rtt_ns = min_i64(max_i64(rtt_ns, 0), RTT_MAX_NS);
	if (robust_stall(robust, peers_ns, silent_us) > 0)
		robust->stalled_us = now_us;
	/* What was held up tells of the stall and little of the node: it does not outweigh what is old either. */
	if (robust->stalled_us != 0 && now_us - rtt_ns / 1000 < robust->stalled_us) {
		times = STALLED_TIMES;
		age_us = robust->estimate_ns < 0 ? age_us : 0;
	}
	/* The first answer is measured against the peers: a node that froze as we came is no slower for it. */
	if (old_ns < 0)
		old_ns = peers_ns;
	if (old_ns < 0) {
		robust->estimate_ns = rtt_ns;
	} else {
		keep_ppm = KEEP_PPM * curve_exp_ppm(age_us, ROBUST_TAU_US) / PPM;
		rtt_ns = min_i64(rtt_ns, times * max_i64(old_ns, 1));
		robust->estimate_ns = rtt_ns + (int64_t)((__int128)(old_ns - rtt_ns) * keep_ppm / PPM);
	}
	robust->stamp_us = now_us;
}

int64_t robust_read(const struct robust *robust, int64_t peers_ns, bool is_idle, int64_t now_us)
{
	int64_t excess_ns;

	if (robust->estimate_ns < 0)
		return peers_ns;
	excess_ns = robust->estimate_ns - peers_ns;
	if (!is_idle || peers_ns < 0 || excess_ns <= 0)
		return robust->estimate_ns;
	return peers_ns +
	       (int64_t)((__int128)excess_ns * curve_exp_ppm(now_us - robust->stamp_us, ROBUST_TAU_US) / PPM);
}
