#include "folder/sched_impl.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "sys/fs.h"

#define API_KEY_MAX 512 /* bytes of a key's text that we hash */

static bool user_name_is_valid(struct str name)
{
	if (name.size == 0 || name.size >= STORE_USER_SIZE || !utf8_is_valid(name))
		return false;
	for (size_t i = 0; i < name.size; i++) {
		if ((unsigned char)name.data[i] < 0x20 || name.data[i] == 0x7f)
			return false;
	}
	return true;
}

static int check_user(const struct sched_user *users, size_t index, struct err *err)
{
	const struct sched_user *user = &users[index];
	char shown[128];

	str_display(str_from(user->name), shown, sizeof(shown));
	if (!user_name_is_valid(str_from(user->name)))
		return err_set(err, ERR_CONFIG,
			       "user %zu: '%s' is no user name: 1 to 64 bytes without control characters", index + 1,
			       shown);
	if (!digest_hex_is_valid(DIGEST_SHA256, str_from(user->key_sha256))) {
		err_set(err, ERR_CONFIG, "user '%s': key_sha256 is not a SHA-256 in lower-case hex", shown);
		err_hint(err, "printf %%s 'the key' | sha256sum");
		return -ERR_CONFIG;
	}
	for (size_t i = 0; i < index; i++) {
		if (strcmp(users[i].name, user->name) == 0)
			return err_set(err, ERR_CONFIG, "user '%s' stands twice in the list", shown);
		/* Which of the two a caller is could not be told. */
		if (strcmp(users[i].key_sha256, user->key_sha256) == 0)
			return err_set(err, ERR_CONFIG, "users '%s' and '%s' have the same key", users[i].name, shown);
	}
	return 0;
}

int sched_auth_load(struct sched *sched, const struct sched_conf *conf, struct err *err)
{
	const struct sched_user *users = conf->users.items;
	int result = keyring_load(&sched->keyring, conf->cluster_key_file, err);

	if (result < 0)
		return result;
	if (conf->users.count == 0)
		return err_set(err, ERR_CONFIG, "there are no users, so that nobody could send anything");
	for (size_t i = 0; i < conf->users.count; i++) {
		result = check_user(users, i, err);
		if (result < 0)
			return result;
	}
	sched->users = must_zalloc(conf->users.count, sizeof(*sched->users));
	for (size_t i = 0; i < conf->users.count; i++) {
		struct sched_account *account = &sched->users[i];

		MUST(str_copy(str_from(users[i].name), account->name, sizeof(account->name)));
		MUST(str_copy(str_from(users[i].key_sha256), account->key_sha256, sizeof(account->key_sha256)));
		account->role = users[i].role;
		account->quota_bytes = users[i].quota_bytes;
		account->quota_entries = (uint64_t)users[i].quota_entries;
	}
	sched->user_count = conf->users.count;
	return 0;
}

void sched_auth_wipe(struct sched *sched)
{
	free(sched->users);
	keyring_fini(&sched->keyring);
}

const struct sched_account *sched_auth_user(const struct sched *sched, const struct http_call *call, struct err *err)
{
	struct str key = http_header(call, "X-Api-Key");
	const struct sched_account *found = NULL;
	char hex[DIGEST_HEX_SIZE];

	if (key.size == 0 || key.size > API_KEY_MAX) {
		err_set(err, ERR_UNAUTHENTICATED, "the call shows no API key");
		err_hint(err, "send the header X-Api-Key, or give heng its file by --key-file or HENG_KEY_FILE");
		return NULL;
	}
	digest_of(DIGEST_SHA256, key.data, key.size, hex);
	/* Every user is compared, so that time tells nothing about which one was near. */
	for (size_t i = 0; i < sched->user_count; i++) {
		if (str_eq_secret(str_from(hex), str_from(sched->users[i].key_sha256)))
			found = &sched->users[i];
	}
	mem_wipe(hex, sizeof(hex));
	if (!found)
		err_set(err, ERR_UNAUTHENTICATED, "the API key is not one of this scheduler's");
	return found;
}

bool sched_auth_is_internal(const struct sched *sched, const struct http_call *call)
{
	return keyring_is_internal(&sched->keyring, http_header(call, "X-Internal-Key"));
}

struct sched_call *sched_client_call(struct http_call *call, void *app, int (*run)(struct sched_call *c))
{
	struct sched *sched = app;
	struct err err = ERR_INIT;
	const struct sched_account *user = sched_auth_user(sched, call, &err);
	struct sched_call *c;

	if (!user) {
		http_reply_err(call, &err);
		return NULL;
	}
	c = sched_call_new(sched, call, run);
	c->user = user;
	return c;
}

struct sched_call *sched_internal_call(struct http_call *call, void *app, int (*run)(struct sched_call *c))
{
	struct sched *sched = app;
	struct err err = ERR_INIT;

	if (sched_auth_is_internal(sched, call))
		return sched_call_new(sched, call, run);
	err_set(&err, ERR_UNAUTHENTICATED,
		"this call is for nodes of the cluster, and shows no cluster key of this scheduler");
	err_hint(&err, "give node and scheduler the same cluster key file");
	http_reply_err(call, &err);
	return NULL;
}
