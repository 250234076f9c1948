/* What earlier pushes found out about the way to a scheduler and its nodes: a small file for each scheduler's URL, from which the next transfer takes
 * its chunk size and its number of chunks at once. It is an advice, never needed: what cannot be read counts as nothing, what cannot be written is
 * left. */
#ifndef HENG_FOLDER_PUSH_LEARNT_H
#define HENG_FOLDER_PUSH_LEARNT_H

#include "base/str.h"
#include "folder/push_pace.h"

struct push_learnt {
	uint64_t chunk_bytes; /* to wish for; 0: the scheduler's own */
	unsigned parallel;    /* to begin with; 0: nothing is known */
	uint64_t rate_bytes;  /* a second, of the best round */
	int64_t round_trip_us;
	uint32_t failure_ppm; /* attempts that were refused for too much at once, or took too long */
};
#define PUSH_LEARNT_LAN_BYTES ((uint64_t)8 * MIB)
#define PUSH_LEARNT_WAN_BYTES ((uint64_t)1 * MIB)

/* From one push. False: too little came of it to learn from. round_trip_us: the quickest small answer, 0 unknown. */
bool push_learnt_from(const struct push_pace *pace, int64_t round_trip_us, struct push_learnt *ret_learnt);
/* Text of the file; all zero when it is damaged or about another URL. */
void push_learnt_parse(struct str text, const char *url, struct push_learnt *ret_learnt);
size_t push_learnt_print(const struct push_learnt *learnt, const char *url, char *target, size_t target_size);

/* dir: NULL or "" for none. */
void push_learnt_read(const char *dir, const char *url, struct push_learnt *ret_learnt);
/* Durable; does nothing where the new says what the old one says. */
void push_learnt_write(const char *dir, const char *url, const struct push_learnt *old, const struct push_learnt *now);

#endif
