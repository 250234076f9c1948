#include "plug/nonce.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/rng.h"

#define NONCE_TEXT_MAX 256
#define NONCE_KEY_SIZE 16
#define NONE           UINT32_MAX

/* A nonce is kept as 128 bits of its hash. A secret goes in first, so that nobody can prepare nonces that meet in one chain. */
struct nonce_entry {
	struct hash128 hash;
	int64_t expires_wall_us;
	uint32_t next; /* in its chain, or in the list of free entries */
};

struct nonce_mem {
	struct nonce_store store;
	uint8_t key[NONCE_KEY_SIZE];
	size_t limit_count, chain_mask;
	pthread_mutex_t lock; /* protects the fields below */
	struct nonce_entry *entries;
	uint32_t *chains; /* by hash: the first entry's number */
	uint32_t *heap;   /* entry numbers, the first to expire at the top */
	size_t live_count;
	size_t touched_count; /* entries that were ever used: the others' memory is not there yet */
	uint32_t free_entry;
	int64_t latest_wall_us; /* the clock may be set back; what was dropped must not become new by that */
};

static struct nonce_mem *nonce_of(struct nonce_store *store) { return CONTAINER_OF(store, struct nonce_mem, store); }

static bool heap_is_before(const struct nonce_mem *mem, size_t a, size_t b)
{
	return mem->entries[mem->heap[a]].expires_wall_us < mem->entries[mem->heap[b]].expires_wall_us;
}

static void heap_swap(struct nonce_mem *mem, size_t a, size_t b)
{
	uint32_t number = mem->heap[a];

	mem->heap[a] = mem->heap[b];
	mem->heap[b] = number;
}

static void heap_add(struct nonce_mem *mem, uint32_t number)
{
	size_t place = mem->live_count++;

	mem->heap[place] = number;
	for (; place > 0 && heap_is_before(mem, place, (place - 1) / 2); place = (place - 1) / 2)
		heap_swap(mem, place, (place - 1) / 2);
}

static uint32_t heap_take(struct nonce_mem *mem)
{
	uint32_t top = mem->heap[0];
	size_t place = 0, child;

	mem->heap[0] = mem->heap[--mem->live_count];
	while ((child = 2 * place + 1) < mem->live_count) {
		if (child + 1 < mem->live_count && heap_is_before(mem, child + 1, child))
			child++;
		if (!heap_is_before(mem, child, place))
			break;
		heap_swap(mem, place, child);
		place = child;
	}
	return top;
}

static void drop_expired(struct nonce_mem *mem)
{
	while (mem->live_count && mem->entries[mem->heap[0]].expires_wall_us <= mem->latest_wall_us) {
		uint32_t number = heap_take(mem), *link;

		link = &mem->chains[mem->entries[number].hash.low & mem->chain_mask];
		while (*link != number)
			link = &mem->entries[*link].next;
		*link = mem->entries[number].next;
		mem->entries[number].next = mem->free_entry;
		mem->free_entry = number;
	}
}

static bool nonce_is_known(const struct nonce_mem *mem, struct hash128 hash)
{
	for (uint32_t i = mem->chains[hash.low & mem->chain_mask]; i != NONE; i = mem->entries[i].next) {
		if (mem->entries[i].hash.low == hash.low && mem->entries[i].hash.high == hash.high)
			return true;
	}
	return false;
}

static void nonce_keep(struct nonce_mem *mem, struct hash128 hash, int64_t expires_wall_us)
{
	uint32_t number = mem->free_entry, *chain = &mem->chains[hash.low & mem->chain_mask];

	if (number != NONE)
		mem->free_entry = mem->entries[number].next;
	else
		number = (uint32_t)mem->touched_count++;
	mem->entries[number] = (struct nonce_entry){ .hash = hash, .expires_wall_us = expires_wall_us, .next = *chain };
	*chain = number;
	heap_add(mem, number);
}

static int use_locked(struct nonce_mem *mem, struct hash128 hash, int64_t expires_wall_us, int64_t now_wall_us,
		      struct err *err)
{
	mem->latest_wall_us = max_i64(mem->latest_wall_us, now_wall_us);
	drop_expired(mem);
	if (nonce_is_known(mem, hash))
		return err_set(err, ERR_NONCE_REPLAYED, "this nonce was used before");
	if (expires_wall_us <= mem->latest_wall_us)
		return err_set(err, ERR_TICKET_EXPIRED, "this nonce has expired");
	if (mem->live_count == mem->limit_count)
		return err_set(err, ERR_BUSY, "%zu nonces are remembered and none has expired: no room for another",
			       mem->limit_count);
	nonce_keep(mem, hash, expires_wall_us);
	return 0;
}

static int nonce_mem_use(struct nonce_store *store, struct str nonce, int64_t expires_wall_us, int64_t now_wall_us,
			 struct err *err)
{
	struct nonce_mem *mem = nonce_of(store);
	uint8_t text[NONCE_KEY_SIZE + NONCE_TEXT_MAX];
	int result;

	if (nonce.size == 0 || nonce.size > NONCE_TEXT_MAX)
		return err_set(err, ERR_BAD_REQUEST, "a nonce has 1 to %d bytes, this one %zu", NONCE_TEXT_MAX,
			       nonce.size);
	memcpy(text, mem->key, NONCE_KEY_SIZE);
	memcpy(text + NONCE_KEY_SIZE, nonce.data, nonce.size);
	pthread_mutex_lock(&mem->lock);
	result = use_locked(mem, hash128(text, NONCE_KEY_SIZE + nonce.size), expires_wall_us, now_wall_us, err);
	pthread_mutex_unlock(&mem->lock);
	return result;
}

static void nonce_mem_free(struct nonce_store *store)
{
	struct nonce_mem *mem = nonce_of(store);

	pthread_mutex_destroy(&mem->lock);
	free(mem->entries);
	free(mem->chains);
	free(mem->heap);
	free(mem);
}

static const struct nonce_ops nonce_mem_ops = { .name = "memory", .use = nonce_mem_use, .free = nonce_mem_free };

struct nonce_store *nonce_mem_new(size_t limit_count)
{
	struct nonce_mem *mem = must_zalloc(1, sizeof(*mem));
	size_t chain_count = 1;

	MUST(limit_count < NONE);
	while (chain_count < limit_count)
		chain_count *= 2;
	mem->store.ops = &nonce_mem_ops;
	mem->limit_count = limit_count;
	mem->chain_mask = chain_count - 1;
	mem->free_entry = NONE;
	mem->latest_wall_us = INT64_MIN;
	mem->entries = must_zalloc(limit_count + 1, sizeof(*mem->entries));
	mem->heap = must_zalloc(limit_count + 1, sizeof(*mem->heap));
	mem->chains = must_alloc(chain_count * sizeof(*mem->chains));
	memset(mem->chains, 0xff, chain_count * sizeof(*mem->chains)); /* NONE everywhere */
	rng_secret(mem->key, sizeof(mem->key));
	pthread_mutex_init(&mem->lock, NULL);
	return &mem->store;
}
