#include "folder/guard.h"

#include <netinet/in.h>

#include "base/hash.h"
#include "base/rng.h"

/* A bucket of `burst` failures that fills by one in every_us, kept as the time when it will be full: one number a slot, and a slot whose time has
 * passed is as good as none. */
static int64_t spend(int64_t full_us, unsigned burst, int64_t every_us, int64_t now_us)
{
	return min_i64(max_i64(full_us, now_us) + every_us, now_us + (int64_t)burst * every_us);
}

/* How long until one is there. */
static int64_t lack_us(int64_t full_us, unsigned burst, int64_t every_us, int64_t now_us)
{
	return max_i64(0, full_us - now_us - (int64_t)(burst - 1) * every_us);
}

void guard_init(struct guard *guard)
{
	memset(guard, 0, sizeof(*guard));
	/* Nobody may find addresses that drive each other out. */
	rng_secret(guard->key, sizeof(guard->key));
	MUST(pthread_mutex_init(&guard->lock, NULL) == 0);
}

void guard_fini(struct guard *guard) { pthread_mutex_destroy(&guard->lock); }

static uint64_t address_of(const struct guard *guard, const struct sock_addr *from)
{
	uint8_t text[sizeof(guard->key) + 16] = { 0 };

	memcpy(text, guard->key, sizeof(guard->key));
	if (from->storage.ss_family == AF_INET) {
		const struct sockaddr_in *v4 = (const void *)&from->storage;

		memcpy(text + sizeof(guard->key), &v4->sin_addr, 4);
	} else if (from->storage.ss_family == AF_INET6) {
		const struct sockaddr_in6 *v6 = (const void *)&from->storage;
		static const uint8_t mapped[12] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff };

		/* IPv4 over an IPv6 socket is as many addresses as IPv4 has. */
		if (memcmp(&v6->sin6_addr, mapped, sizeof(mapped)) == 0)
			memcpy(text + sizeof(guard->key), (const uint8_t *)&v6->sin6_addr + 12, 4);
		else
			memcpy(text + sizeof(guard->key), &v6->sin6_addr, 8);
	}
	return hash64(text, sizeof(text)) | 1;
}

static struct guard_slot *find(struct guard *guard, uint64_t address)
{
	struct guard_slot *set = guard->slots[(address >> 8) % COUNT_OF(guard->slots)];

	for (size_t i = 0; i < COUNT_OF(guard->slots[0]); i++) {
		if (set[i].address == address)
			return &set[i];
	}
	return NULL;
}

bool guard_begin(struct guard *guard, const struct sock_addr *from, int64_t now_us, int64_t *ret_wait_us,
		 bool *ret_is_counted)
{
	const uint64_t address = address_of(guard, from);
	int64_t wait_us = 0;

	pthread_mutex_lock(&guard->lock);
	struct guard_slot *slot = find(guard, address);
	const bool is_known = slot && slot->full_us > now_us;
	if (is_known) {
		wait_us = lack_us(slot->full_us, GUARD_ADDRESS_BURST, GUARD_ADDRESS_EVERY_US, now_us);
		wait_us = max_i64(wait_us,
				  lack_us(guard->total_full_us, GUARD_TOTAL_BURST, GUARD_TOTAL_EVERY_US, now_us));
	}
	*ret_is_counted = is_known && wait_us == 0;
	if (*ret_is_counted) {
		slot->full_us = spend(slot->full_us, GUARD_ADDRESS_BURST, GUARD_ADDRESS_EVERY_US, now_us);
		guard->total_full_us = spend(guard->total_full_us, GUARD_TOTAL_BURST, GUARD_TOTAL_EVERY_US, now_us);
	}
	pthread_mutex_unlock(&guard->lock);
	*ret_wait_us = wait_us;
	return wait_us == 0;
}

void guard_passed(struct guard *guard, const struct sock_addr *from)
{
	const uint64_t address = address_of(guard, from);

	pthread_mutex_lock(&guard->lock);
	struct guard_slot *slot = find(guard, address);
	if (slot)
		slot->full_us -= GUARD_ADDRESS_EVERY_US;
	guard->total_full_us -= GUARD_TOTAL_EVERY_US;
	pthread_mutex_unlock(&guard->lock);
}

void guard_failed(struct guard *guard, const struct sock_addr *from, int64_t now_us)
{
	const uint64_t address = address_of(guard, from);
	struct guard_slot *slot;

	pthread_mutex_lock(&guard->lock);
	slot = find(guard, address);
	if (!slot) {
		/* The one of its set that has the least against it makes room. */
		struct guard_slot *set = guard->slots[(address >> 8) % COUNT_OF(guard->slots)];

		slot = &set[0];
		for (size_t i = 1; i < COUNT_OF(guard->slots[0]); i++) {
			if (set[i].full_us < slot->full_us)
				slot = &set[i];
		}
		*slot = (struct guard_slot){ .address = address };
	}
	slot->full_us = spend(slot->full_us, GUARD_ADDRESS_BURST, GUARD_ADDRESS_EVERY_US, now_us);
	guard->total_full_us = spend(guard->total_full_us, GUARD_TOTAL_BURST, GUARD_TOTAL_EVERY_US, now_us);
	pthread_mutex_unlock(&guard->lock);
}
