/* How fast a node answers, as an estimate that a pause does not move: the strategy `adaptive` compares nodes by it. A plain or peak EWMA takes the
 * answers of one two-second freeze for a slow node and shuns it long after it has woken; this one
 *  - bounds what one answer may say (8 times the estimate; twice, when it was held up by a stall), so that a burst of late answers moves little
 *    and a node that stays slow is still known within a dozen answers;
 *  - weighs a fresh answer the more the older the estimate is;
 *  - lets an estimate worse than the peers' fade towards theirs while the node is idle, so that it is tried again, one request at a time.
 * A stall is silence: no answer for several times the usual while requests are in flight. It is known before any late answer comes. */
#ifndef HENG_CORE_ROBUST_H
#define HENG_CORE_ROBUST_H

#include "base/base.h"

#define ROBUST_TAU_US (5 * SEC_US) /* of fading and of the answers' weight */
#define ROBUST_STALL  3            /* times the usual latency without any answer */

struct robust {
	int64_t estimate_ns; /* -1: no answer yet */
	int64_t stamp_us;    /* of the last answer */
	int64_t stalled_us;  /* end of the last stall; 0: none. Requests sent before it were held up by it */
};
#define ROBUST_INIT ((struct robust){ .estimate_ns = -1 })

/* An answer. peers_ns: what is usual among the node's peers (-1: unknown). silent_us: since the former answer of the node, or since the first request
 * of those in flight. */
void robust_feed(struct robust *robust, int64_t rtt_ns, int64_t peers_ns, int64_t silent_us, int64_t now_us);
/* The estimate as of now. is_idle: nothing is in flight to it. Unknown: the peers'; -1 when that is unknown too. */
int64_t robust_read(const struct robust *robust, int64_t peers_ns, bool is_idle, int64_t now_us);
/* How many times the stall's limit the silence lasts; 0: no stall. */
int64_t robust_stall(const struct robust *robust, int64_t peers_ns, int64_t silent_us);

#endif
