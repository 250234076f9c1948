#include "folder/keyring.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "sys/fs.h"

#define KEY_FILE_MAX (64 * KIB)

/* Calls that were begun before a rotation still point to the former text, so none is freed before the end: one for each change of the first key. */
struct keyring_header {
	struct keyring_header *next;
	char text[KEYRING_HEADER_SIZE];
};

/* The lock is no part of what a caller that only looks may not change. */
static pthread_rwlock_t *lock_of(const struct keyring *keyring) { return (pthread_rwlock_t *)&keyring->lock; }

void keyring_init(struct keyring *keyring)
{
	memset(keyring, 0, sizeof(*keyring));
	atomic_init(&keyring->internal.header, "X-Internal-Key: ");
	MUST(pthread_rwlock_init(&keyring->lock, NULL) == 0);
}

void keyring_fini(struct keyring *keyring)
{
	for (struct keyring_header *header = keyring->headers, *next; header; header = next) {
		next = header->next;
		mem_wipe(header->text, sizeof(header->text));
		free(header);
	}
	pthread_rwlock_destroy(&keyring->lock);
	mem_wipe(keyring, sizeof(*keyring));
}

int internal_fetch_new(const struct internal_key *key, struct fetch **ret_fetch, struct err *err)
{
	int result = fetch_new(ret_fetch, err);

	if (result == 0)
		fetch_use_tls(*ret_fetch, key->tls);
	return result;
}

static int read_keys(const char *path, struct ticket_keys *ret_keys, struct err *err)
{
	struct buf text = BUF_INIT(KEY_FILE_MAX);
	int result = fs_read_file(path, KEY_FILE_MAX, &text, err);

	if (result == 0)
		result = ticket_keys_parse(buf_str(&text), ret_keys, err);
	if (text.data)
		mem_wipe(text.data, text.size);
	buf_fini(&text);
	return result < 0 ? err_wrap(err, "reading the cluster keys of %s", path) : 0;
}

/* Only the first key's: nobody else's is shown. */
static void show_first(struct keyring *keyring)
{
	struct keyring_header *header = must_zalloc(1, sizeof(*header));

	snprintf(header->text, sizeof(header->text), "X-Internal-Key: %s", keyring->internal_hex[0]);
	header->next = keyring->headers;
	keyring->headers = header;
	atomic_store(&keyring->internal.header, header->text);
}

int keyring_load(struct keyring *keyring, const char *path, struct err *err)
{
	struct ticket_keys keys;
	uint8_t derived[MAC_SIZE];
	char former[KEYRING_HEX_SIZE];
	int result = read_keys(path, &keys, err);

	if (result < 0)
		return result;
	pthread_rwlock_wrlock(&keyring->lock);
	memcpy(former, keyring->internal_hex[0], sizeof(former));
	mem_wipe(keyring->internal_hex, sizeof(keyring->internal_hex));
	keyring->keys = keys;
	for (size_t i = 0; i < keys.count; i++) {
		mac_derive(keys.keys[i].key, TICKET_KEY_SIZE, STR("internal"), derived);
		hex_encode(derived, sizeof(derived), keyring->internal_hex[i]);
	}
	if (memcmp(former, keyring->internal_hex[0], sizeof(former)) != 0)
		show_first(keyring);
	pthread_rwlock_unlock(&keyring->lock);
	mem_wipe(former, sizeof(former));
	mem_wipe(derived, sizeof(derived));
	mem_wipe(&keys, sizeof(keys));
	return 0;
}

void keyring_get(const struct keyring *keyring, struct ticket_keys *ret_keys)
{
	pthread_rwlock_rdlock(lock_of(keyring));
	*ret_keys = keyring->keys;
	pthread_rwlock_unlock(lock_of(keyring));
}

bool keyring_is_internal(const struct keyring *keyring, struct str shown)
{
	bool is_known = false;

	pthread_rwlock_rdlock(lock_of(keyring));
	/* Every key is compared, found or not, so that the time says nothing. */
	for (size_t i = 0; i < keyring->keys.count; i++)
		is_known |= str_eq_secret(shown, str_from(keyring->internal_hex[i]));
	pthread_rwlock_unlock(lock_of(keyring));
	return is_known;
}

void keyring_ids(const struct keyring *keyring, char *target, size_t target_size)
{
	struct buf text = BUF_INIT(target_size - 1);

	pthread_rwlock_rdlock(lock_of(keyring));
	for (size_t i = 0; i < keyring->keys.count; i++)
		buf_printf(&text, "%s%" PRIu32, i > 0 ? ", " : "", keyring->keys.keys[i].id);
	pthread_rwlock_unlock(lock_of(keyring));
	if (!str_copy(buf_str(&text), target, target_size))
		target[0] = '\0';
	buf_fini(&text);
}
