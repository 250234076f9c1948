#include "folder/push_pace.h"

#define ROUND_LEAST_US (200 * MSEC_US)
#define ROUND_LONG_US  (5 * SEC_US)
#define STEP           2u
/* Fewer than this only refusals bring about: below it a slow answer is the node's, not a queue of our own. */
#define CALM_LIMIT       4u
#define HOLD_LEAST_COUNT 4u
#define HOLD_MOST_COUNT  64u

static void round_begin(struct push_pace *pace, int64_t now_us)
{
	pace->round = (struct push_pace_round){ .began_us = now_us };
}

void push_pace_init(struct push_pace *pace, unsigned start, unsigned most, bool is_fixed)
{
	*pace = (struct push_pace){ .most = most > 0 ? most : 1,
				    .is_fixed = is_fixed,
				    .hold_next_count = HOLD_LEAST_COUNT,
				    .cut_us = INT64_MIN,
				    .first_us = -1 };
	pace->limit = start < pace->most ? start : pace->most;
	if (pace->limit == 0)
		pace->limit = 1;
	round_begin(pace, -1);
}

static void know(struct push_pace *pace, uint64_t rate)
{
	pace->known_limit = pace->limit;
	pace->known_rate = rate;
}

static void move(struct push_pace *pace, unsigned limit) { pace->limit = limit < pace->most ? limit : pace->most; }

static void hold(struct push_pace *pace)
{
	pace->hold_count = pace->hold_next_count;
	pace->hold_next_count = pace->hold_next_count * 2 < HOLD_MOST_COUNT ? pace->hold_next_count * 2
									    : HOLD_MOST_COUNT;
}

/* Perhaps fewer do as well: the next round tells. */
static unsigned fewer(unsigned limit)
{
	unsigned less = limit - limit / 8 - (limit < 8);

	return less >= CALM_LIMIT ? less : limit;
}

/* More were under way than in the round before. A quarter of what they would bring if nothing but their number held the push back is proof that
 * they are of use; without it they only wait for one another. */
static void judge_more(struct push_pace *pace, uint64_t rate)
{
	uint64_t gain = pace->known_rate / pace->known_limit * (pace->limit - pace->known_limit) / 4;

	if (rate >= pace->known_rate + gain) {
		know(pace, rate);
		pace->hold_next_count = HOLD_LEAST_COUNT;
		move(pace, pace->limit + STEP);
		return;
	}
	pace->limit = fewer(pace->known_limit);
	hold(pace);
}

static void judge_fewer(struct push_pace *pace, uint64_t rate)
{
	if (rate < pace->known_rate - pace->known_rate / 20) {
		pace->limit = pace->known_limit;
		return;
	}
	/* Compared with the best of them, so that many small losses cannot add up. */
	know(pace, rate > pace->known_rate ? rate : pace->known_rate);
	pace->limit = fewer(pace->limit);
}

static void judge_same(struct push_pace *pace, uint64_t rate)
{
	/* Slowly, so that one slow round does not make the next one look like a gain. */
	pace->known_rate = pace->known_rate - pace->known_rate / 8 + rate / 8;
	if (pace->hold_count > 0)
		pace->hold_count--;
	else
		move(pace, pace->limit + STEP);
}

static void judge(struct push_pace *pace, uint64_t rate)
{
	if (pace->limit < pace->sure_limit) {
		move(pace, pace->limit + STEP < pace->sure_limit ? pace->limit + STEP : pace->sure_limit);
		return;
	}
	if (pace->known_limit == 0) {
		know(pace, rate);
		move(pace, pace->limit + STEP);
	} else if (pace->limit > pace->known_limit) {
		judge_more(pace, rate);
	} else if (pace->limit < pace->known_limit) {
		judge_fewer(pace, rate);
	} else {
		judge_same(pace, rate);
	}
}

void push_pace_acked(struct push_pace *pace, uint64_t bytes, int64_t took_us, int64_t now_us)
{
	struct push_pace_round *round = &pace->round;

	if (pace->first_us < 0)
		pace->first_us = now_us - took_us;
	pace->last_us = now_us;
	pace->acked_count++;
	pace->acked_bytes += bytes;
	if (round->began_us < 0) {
		round_begin(pace, now_us);
		return;
	}
	round->bytes += bytes;
	round->count++;
	round->took_us += took_us;
	int64_t passed_us = now_us - round->began_us;
	/* Answers that come in bursts must not make one round look better than the next. */
	unsigned wanted_count = passed_us < ROUND_LONG_US ? 2 * pace->limit : pace->limit;
	if (passed_us < ROUND_LEAST_US || round->count < wanted_count)
		return;
	/* By Little's law so many were under way all the time. Where the folder is read, or answers come, slower than the limit allows, the limit is not
	 * what holds the push back, and the round says nothing about it. */
	bool is_full = round->took_us / 3 * 4 >= passed_us * pace->limit;
	uint64_t rate = (uint64_t)((unsigned __int128)round->bytes * (uint64_t)SEC_US / (uint64_t)passed_us);
	round_begin(pace, now_us);
	if (rate > pace->best_rate)
		pace->best_rate = rate;
	if (is_full && !pace->is_fixed)
		judge(pace, rate);
}

void push_pace_refused(struct push_pace *pace, int64_t started_us, int64_t now_us)
{
	pace->refused_count++;
	if (pace->is_fixed || started_us < pace->cut_us)
		return;
	pace->sure_limit = pace->limit - pace->limit / 4;
	pace->limit = pace->limit / 2 > PUSH_PACE_LEAST ? pace->limit / 2 : PUSH_PACE_LEAST;
	if (pace->limit > pace->most)
		pace->limit = pace->most;
	pace->known_limit = 0;
	pace->hold_count = 0;
	pace->cut_us = now_us;
	round_begin(pace, now_us);
}
