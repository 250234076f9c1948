/* Tries of requests on their way, in a pool, and lists of them in the order in which they came. */
#ifndef HENG_SIM_FLIGHT_H
#define HENG_SIM_FLIGHT_H

#include "sim/pool.h"

#define FLIGHT_NONE UINT32_MAX

/* One try of a request. It lives until both its router and its server are done with it. */
struct flight {
	int64_t start_ns, sent_ns; /* when the request arrived; when this try left the router */
	int64_t work_ns, service_ns;
	uint64_t number, key_hash;
	uint32_t older, newer; /* before and after it in the list that it is in */
	uint32_t queue_count;
	uint16_t router, set, node;
	bool is_retry, is_measured, is_failed;
	bool is_given_up; /* by the router */
	bool is_lost;     /* no answer will come */
};
/* A flight is in one list at most: held back at its router until it may go, awaited from then on. */
struct flight_list {
	uint32_t oldest, newest; /* FLIGHT_NONE: empty */
};
#define FLIGHT_LIST_EMPTY ((struct flight_list){ FLIGHT_NONE, FLIGHT_NONE })

static inline bool flight_list_is_empty(const struct flight_list *list) { return list->oldest == FLIGHT_NONE; }
void flight_list_add(struct flight_list *list, const struct pool *flights, uint32_t index); /* as the newest */
void flight_list_remove(struct flight_list *list, const struct pool *flights, uint32_t index);

#endif
