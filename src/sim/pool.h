/* Items by number, taken and given back; memory grows with what is out at a time. An item's address holds until the next take. */
#ifndef HENG_SIM_POOL_H
#define HENG_SIM_POOL_H

#include "base/base.h"

struct pool {
	size_t item_size;
	char *items;
	uint32_t *idle; /* a stack */
	uint32_t capacity, idle_count;
};
#define POOL_INIT(type) ((struct pool){ .item_size = sizeof(type) })
void pool_fini(struct pool *pool);
uint32_t pool_take(
	struct pool *pool); /* what the item held when it was given back is still there; zeroes the first time */
void pool_give(struct pool *pool, uint32_t index);
static inline void *pool_at(const struct pool *pool, uint32_t index) { return pool->items + pool->item_size * index; }
static inline uint32_t pool_out_count(const struct pool *pool) { return pool->capacity - pool->idle_count; }

#endif
