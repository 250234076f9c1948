#include "sim/pool.h"

#define FIRST_CAPACITY 64

void pool_fini(struct pool *pool)
{
	free(pool->items);
	free(pool->idle);
	*pool = (struct pool){ .item_size = pool->item_size };
}

uint32_t pool_take(struct pool *pool)
{
	if (pool->idle_count == 0) {
		uint32_t capacity = pool->capacity == 0 ? FIRST_CAPACITY : 2 * pool->capacity;
		MUST(capacity > pool->capacity);
		pool->items = realloc(pool->items, pool->item_size * capacity);
		pool->idle = realloc(pool->idle, sizeof(*pool->idle) * capacity);
		MUST(pool->items != NULL && pool->idle != NULL);
		memset(pool->items + pool->item_size * pool->capacity, 0,
		       pool->item_size * (capacity - pool->capacity));
		for (uint32_t index = capacity; index > pool->capacity; index--)
			pool->idle[pool->idle_count++] = index - 1;
		pool->capacity = capacity;
	}
	return pool->idle[--pool->idle_count];
}

void pool_give(struct pool *pool, uint32_t index)
{
	MUST(index < pool->capacity && pool->idle_count < pool->capacity);
	pool->idle[pool->idle_count++] = index;
}
