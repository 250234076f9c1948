/* What becomes of a whole decision log in a replay: how many of its choices agree, and which lines say nothing. */
#ifndef HENG_APP_TALLY_H
#define HENG_APP_TALLY_H

#include "app/declog.h"

struct tally {
	uint64_t same_count, other_count;
	uint64_t torn_count;    /* the writer was stopped in the middle */
	uint64_t unread_count;  /* their profile or plan is in an older file */
	uint64_t bad_count;     /* no records, or their profile or plan should be in this log and is not */
	uint64_t dropped_count; /* lines that the writer could not keep, by its own word */
	int64_t took_us;
	/* Called for each choice that comes out differently. */
	void (*other)(void *owner, const char *where, const struct decide_change *change);
	void *owner;
};
/* Replays the log to its end; lines that are none of its records are told on stderr, the first few of each kind. Fails only when the log cannot be
 * read. */
int tally_run(struct tally *tally, struct declog *log, struct decide_replay *replay, struct err *err);
/* A line for each kind of lines that were not replayed. */
void tally_print(const struct tally *tally);

#define CHANGES_SHOWN 20
struct change_node {
	char id[SCORE_ID_SIZE]; /* "": nobody */
	uint64_t won_count, lost_count;
};
/* The choices that would be others, and who would win or lose by it. */
struct changes {
	struct decide_change shown[CHANGES_SHOWN];
	char where[CHANGES_SHOWN][64];
	size_t shown_count;
	struct change_node *nodes;
	size_t node_count, node_capacity;
};
void changes_feed(void *owner, const char *where,
		  const struct decide_change *change); /* for tally: owner is the struct changes */
void changes_print(const struct changes *changes, uint64_t other_count);
void changes_fini(struct changes *changes);

#endif
