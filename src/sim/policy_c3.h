/* C3's two halves: the score that ranks replicas, and the rate that a client may send to each (Suresh, Canini, Schmid, Feldmann, NSDI 2015). */
#ifndef HENG_SIM_POLICY_C3_H
#define HENG_SIM_POLICY_C3_H

#include "base/base.h"

#define C3_ALPHA         0.9 /* weight of the new sample */
#define C3_INTERVAL_US   (20 * MSEC_US)
#define C3_BETA          0.2
#define C3_GAMMA         4e-6
#define C3_STEP_MAX      10.0 /* smax */
#define C3_TOKENS_MAX    10.0
#define C3_HYSTERESIS    4   /* intervals after an increase in which the rate does not fall */
#define C3_RECEIVE_SHARE 0.1 /* weight of the last interval in the receive rate */
#define C3_RATE_MIN      0.01

struct c3_node {
	bool is_known;
	double response_us, service_us, queue; /* averages */
};
void c3_feed(struct c3_node *node, double response_us, double service_us, double queue);
/* A request that failed brings no feedback but the time it took. */
void c3_feed_failed(struct c3_node *node, double response_us);
/* R - 1/mu + (1 + os * n + q)^3 / mu, microseconds; lower is better; 0 without feedback. */
double c3_score(const struct c3_node *node, uint32_t outstanding, size_t client_count);

/* Rates are requests in an interval of 20 ms. */
struct c3_rate {
	double rate, rate_before; /* rate_before: Rmax, what it was when it last fell */
	int64_t decreased_us, increased_us;
	int64_t ran_out_us; /* when the last token went; -1: never */
	double tokens;
	int64_t tokens_us;
	double received; /* rate of answers, average over whole intervals */
	int64_t slot;    /* of received_count */
	uint64_t received_count;
};
void c3_rate_init(struct c3_rate *rate, int64_t now_us);
int64_t c3_rate_wait_us(const struct c3_rate *rate, int64_t now_us); /* until there is a token; 0: there is */
void c3_rate_sent(struct c3_rate *rate, int64_t now_us);
/* An answer came (or failed to): the cubic step. The rate falls only where it was the limit, that is where the tokens ran out within an interval:
 * else it would fall below the demand of any server that has time to spare. */
void c3_rate_answered(struct c3_rate *rate, bool is_failed, int64_t now_us);

#endif
