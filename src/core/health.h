/* What each source says of a node's life, side by side: the caller's probe, the node's own heartbeat (its reports), its peers' gossip, and live
 * traffic. No source overrules another; member.h draws the conclusion. */
#ifndef HENG_CORE_HEALTH_H
#define HENG_CORE_HEALTH_H

#include "base/base.h"

enum health_source { HEALTH_PROBE, HEALTH_HEARTBEAT, HEALTH_GOSSIP, HEALTH_TRAFFIC, HEALTH_SOURCES };
enum health_word {
	HEALTH_UNKNOWN,
	HEALTH_GOOD,
	HEALTH_DOUBTFUL,
	HEALTH_FAILED
}; /* doubtful: fewer misses than the limit */

struct health_view {
	enum health_word word;
	unsigned missed_count, good_count; /* in a row */
	int64_t heard_us;                  /* last good word; 0: never */
	int64_t since_us;                  /* when `word` became what it is */
};
struct health {
	struct health_view views[HEALTH_SOURCES];
};
void health_init(struct health *health);
/* A good word of the source. Returns true when its word changed. */
bool health_good(struct health *health, enum health_source source, int64_t now_us);
/* A miss: a probe failed, a report did not come in its interval, a peer doubts, a request timed out or got a 5xx. */
bool health_missed(struct health *health, enum health_source source, unsigned missed_limit_count, int64_t now_us);
/* Gossip that confirms a failure needs no count. Only a good word, or none any more, leads out of failed: further misses do not. */
bool health_failed(struct health *health, enum health_source source, int64_t now_us);
/* The source has nothing to say any more: its word is unknown and its counts are 0. When it last said good is kept. */
bool health_forget(struct health *health, enum health_source source, int64_t now_us);
/* Whether any source but `except` (HEALTH_SOURCES: none) says good, or failed. */
bool health_any(const struct health *health, enum health_word word, enum health_source except);
const char *health_source_name(enum health_source source); /* "probe", "heartbeat", ... */
const char *health_word_name(enum health_word word);       /* "unknown", "good", "doubtful", "failed" */

#endif
