#include "sim/flight.h"

static struct flight *at(const struct pool *flights, uint32_t index) { return pool_at(flights, index); }

void flight_list_add(struct flight_list *list, const struct pool *flights, uint32_t index)
{
	struct flight *flight = at(flights, index);
	flight->older = list->newest;
	flight->newer = FLIGHT_NONE;
	if (list->newest != FLIGHT_NONE)
		at(flights, list->newest)->newer = index;
	else
		list->oldest = index;
	list->newest = index;
}

void flight_list_remove(struct flight_list *list, const struct pool *flights, uint32_t index)
{
	const struct flight *flight = at(flights, index);
	if (flight->older != FLIGHT_NONE)
		at(flights, flight->older)->newer = flight->newer;
	else
		list->oldest = flight->newer;
	if (flight->newer != FLIGHT_NONE)
		at(flights, flight->newer)->older = flight->older;
	else
		list->newest = flight->older;
}
