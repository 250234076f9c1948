/* Who fetches completed folders back, for the audit: one row for a pull, however many files it asks for. A pull is what one user asks of one transfer
 * from one address; it ends when its manifest is asked for again, or after a time without a request. Remembered in memory alone and for a bounded
 * number: what is forgotten gets a row too many, never one too few. */
#ifndef HENG_FOLDER_PULLED_H
#define HENG_FOLDER_PULLED_H

#include <pthread.h>

#include "plug/store.h"
#include "sys/sock.h"

#define PULLED_PULLS_MAX 64
#define PULLED_IDLE_US   (600 * SEC_US)

struct pulled_who {
	char transfer_id[ULID_SIZE], user[STORE_USER_SIZE],
		host[SOCK_TEXT_SIZE]; /* host: the address without its port */
};
struct pulled {
	pthread_mutex_t lock; /* protects the rest */
	struct {
		struct pulled_who who;
		int64_t asked_us; /* the last request */
	} pulls[PULLED_PULLS_MAX];
	size_t pull_count;
};
void pulled_init(struct pulled *pulled);
void pulled_fini(struct pulled *pulled);
void pulled_who_set(struct pulled_who *who, const char *transfer_id, const char *user, const struct sock_addr *peer);
/* A file is asked for: true when it is the first of its pull. */
bool pulled_begins(struct pulled *pulled, const struct pulled_who *who, int64_t now_us);
/* What comes next is another pull. */
void pulled_ends(struct pulled *pulled, const struct pulled_who *who);

#endif
