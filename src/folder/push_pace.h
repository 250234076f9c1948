/* How many chunks of a push are under way at once. Additive increase while more of them bring more throughput; multiplicative decrease when
 * nodes are busy, time out or stall; a step back when more of them bring latency alone. Pure: time and samples in, a limit out. */
#ifndef HENG_FOLDER_PUSH_PACE_H
#define HENG_FOLDER_PUSH_PACE_H

#include "base/base.h"

#define PUSH_PACE_LEAST 2
#define PUSH_PACE_START 8
#define PUSH_PACE_MOST  64

/* What a round at one limit came to. A round lasts 200 ms at least, and until twice as many chunks were acknowledged as may be under way, but once
 * as many will do after 5 s. */
struct push_pace_round {
	int64_t began_us; /* -1: with the next sample */
	uint64_t bytes;
	unsigned count;
	int64_t took_us; /* of all its chunks together */
};

struct push_pace {
	unsigned limit, most;
	bool is_fixed;
	unsigned sure_limit; /* below it a cut is made good without asking what it brings */
	struct push_pace_round round;
	unsigned known_limit;                 /* 0: none; what the next round is compared with */
	uint64_t known_rate;                  /* bytes a second */
	unsigned hold_count, hold_next_count; /* rounds before more is tried again */
	int64_t cut_us;                       /* the last decrease for a refusal */
	/* Of the whole push, for what is remembered of the network. */
	uint64_t acked_count, acked_bytes, refused_count;
	int64_t first_us, last_us; /* of the samples */
	uint64_t best_rate;        /* of a round */
};

/* start: within 2 and most. is_fixed: the user's number, which nothing moves. */
void push_pace_init(struct push_pace *pace, unsigned start, unsigned most, bool is_fixed);
/* A chunk was acknowledged `took_us` after it was sent. */
void push_pace_acked(struct push_pace *pace, uint64_t bytes, int64_t took_us, int64_t now_us);
/* An attempt that began then was answered with busy, timed out or stalled. One cut is made for all that were under way together. */
void push_pace_refused(struct push_pace *pace, int64_t started_us, int64_t now_us);

#endif
