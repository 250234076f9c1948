/* How often callers may fail to say who they are: per source address and in all, in bounded memory. Only those who failed are slowed down; whoever
 * shows a good key is never asked here. An address of IPv6 counts by its first 64 bits. Time is an argument, the monotonic clock's. */
#ifndef HENG_FOLDER_GUARD_H
#define HENG_FOLDER_GUARD_H

#include <pthread.h>

#include "sys/sock.h"

#define GUARD_ADDRESS_BURST    20u          /* failures of one address that are free ... */
#define GUARD_ADDRESS_EVERY_US (3 * SEC_US) /* ... and one more comes back in that time */
#define GUARD_TOTAL_BURST      500u         /* of all together */
#define GUARD_TOTAL_EVERY_US   (100 * MSEC_US)

struct guard_slot {
	uint64_t address; /* hashed; 0: free */
	int64_t full_us;  /* when all its failures are forgiven */
};
struct guard {
	pthread_mutex_t lock; /* protects the rest */
	uint8_t key[16];
	int64_t total_full_us;
	struct guard_slot slots[1024][4];
};

void guard_init(struct guard *guard);
void guard_fini(struct guard *guard);
/* May a key of this address be looked at closely? Once those of all have failed too often, not when this one has failed at all lately. False: in
 * *ret_wait_us it may again. Of an address that has failed lately this counts as a failure already (*ret_is_counted), until guard_passed: looking
 * takes a while, and any number that come at once would all be let in before the first is found wrong. */
bool guard_begin(struct guard *guard, const struct sock_addr *from, int64_t now_us, int64_t *ret_wait_us,
		 bool *ret_is_counted);
/* What guard_begin has counted was no failure. */
void guard_passed(struct guard *guard, const struct sock_addr *from);
/* What it has not counted was one. */
void guard_failed(struct guard *guard, const struct sock_addr *from, int64_t now_us);

#endif
