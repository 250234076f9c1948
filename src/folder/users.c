#include "folder/users.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"

#define REMEMBERED_SETS    256u
#define REMEMBERED_WAYS    4u
#define USERS_SUBJECT_SIZE 256 /* as long as a subject is told (sys/tls.h): a longer one is cut, and is nobody's */

const struct conf_row users_conf_rows[] = {
	{ .name = "name",
	  .type = CONF_TEXT,
	  .offset = offsetof(struct sched_user, name),
	  .help = "how the user is called in logs and audit" },
	{ .name = "key_id",
	  .type = CONF_TEXT,
	  .offset = offsetof(struct sched_user, key_id),
	  .fallback = "",
	  .help = "what the user's key begins with, before its dot" },
	{ .name = "key_argon2",
	  .type = CONF_TEXT,
	  .offset = offsetof(struct sched_user, key_argon2),
	  .fallback = "",
	  .help = "Argon2id hash of the API key's text, as heng key new prints it" },
	{ .name = "key_sha256",
	  .type = CONF_TEXT,
	  .offset = offsetof(struct sched_user, key_sha256),
	  .fallback = "",
	  .help = "hex of the SHA-256 of the API key's text: for keys of 256 random bits only" },
	{ .name = "cert_sha256",
	  .type = CONF_TEXT,
	  .offset = offsetof(struct sched_user, cert_sha256),
	  .fallback = "",
	  .help = "SHA-256 of the user's client certificate (DER), lower-case hex" },
	{ .name = "cert_subject",
	  .type = CONF_TEXT,
	  .offset = offsetof(struct sched_user, cert_subject),
	  .fallback = "",
	  .help = "subject of the user's client certificate (RFC 2253), whichever it is" },
	{ .name = "role",
	  .type = CONF_CHOICE,
	  .offset = offsetof(struct sched_user, role),
	  .fallback = "uploader",
	  .choices = "uploader|auditor|operator",
	  .help = "uploader: own transfers; auditor: sees all; operator: may do all" },
	{ .name = "expires",
	  .type = CONF_TEXT,
	  .offset = offsetof(struct sched_user, expires),
	  .fallback = "",
	  .help = "last day (2027-03-31) or moment (2027-03-31T18:00:00Z) of the user, UTC; empty: never" },
	{ .name = "disabled",
	  .type = CONF_BOOL,
	  .offset = offsetof(struct sched_user, is_disabled),
	  .fallback = "false",
	  .help = "the user may not call, whatever key is shown" },
	{ .name = "quota_bytes",
	  .type = CONF_SIZE,
	  .offset = offsetof(struct sched_user, quota_bytes),
	  .max = INT64_MAX,
	  .fallback = "0",
	  .help = "what the folders of the user's open transfers may have together; 0: no limit" },
	{ .name = "quota_entries",
	  .type = CONF_INT,
	  .offset = offsetof(struct sched_user, quota_entries),
	  .max = INT64_MAX,
	  .fallback = "0",
	  .help = "files, folders and links that they may have together; 0: no limit" },
	{ .name = NULL },
};

struct user {
	struct sched_account account;
	char key_sha256[DIGEST_HEX_SIZE];
	char key_id[USERS_ID_SIZE];
	char key_argon2[ARGON_TEXT_SIZE];
	char cert_sha256[DIGEST_HEX_SIZE], cert_subject[USERS_SUBJECT_SIZE];
	int64_t expires_wall_us; /* 0: never */
	bool is_disabled;
};
struct users_list {
	size_t count;
	struct user *items;
};

/* A key that was proven: its HMAC, and whose it is. */
struct remembered {
	uint8_t mac[MAC_SIZE];
	size_t user_index;
	int64_t until_mono_us; /* 0: nothing is remembered here */
};

struct users {
	uint8_t secret[MAC_SIZE];
	pthread_rwlock_t list_lock; /* protects list, generation */
	struct users_list *list;
	uint64_t generation;
	pthread_mutex_t lock; /* protects what follows; taken inside of the other */
	struct remembered remembered[REMEMBERED_SETS][REMEMBERED_WAYS];
};

/* --- reading the list --- */

bool users_name_is_valid(struct str name)
{
	if (name.size == 0 || name.size >= STORE_USER_SIZE || !utf8_is_valid(name))
		return false;
	for (size_t i = 0; i < name.size; i++) {
		if ((unsigned char)name.data[i] < 0x20 || name.data[i] == 0x7f)
			return false;
	}
	return true;
}

static bool id_is_valid(struct str id)
{
	if (id.size == 0 || id.size >= USERS_ID_SIZE)
		return false;
	for (size_t i = 0; i < id.size; i++) {
		const char c = id.data[i];

		if (!((c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' ||
		      c == '-'))
			return false;
	}
	return true;
}

bool users_expiry(struct str text, int64_t *ret_wall_us)
{
	char copy[32], again[32], zone = '\0';
	struct tm tm = { 0 };
	int year, month, day, hour = 23, minute = 59, second = 59, size = 0;

	*ret_wall_us = 0;
	if (text.size == 0)
		return true;
	if (!str_copy(text, copy, sizeof(copy)))
		return false;
	const int fields = sscanf(copy, "%4d-%2d-%2d%nT%2d:%2d:%2d%c%n", &year, &month, &day, &size, &hour, &minute,
				  &second, &zone, &size);
	if (fields != 3 && (fields != 7 || zone != 'Z'))
		return false;
	if (copy[size] != '\0')
		return false;
	tm = (struct tm){ .tm_year = year - 1900,
			  .tm_mon = month - 1,
			  .tm_mday = day,
			  .tm_hour = hour,
			  .tm_min = minute,
			  .tm_sec = second };
	const time_t at = timegm(&tm);
	/* What timegm had to put right (a 31st of June) comes back as another text. */
	if (at <= 0 || strftime(again, sizeof(again), fields == 3 ? "%Y-%m-%d" : "%Y-%m-%dT%H:%M:%SZ", &tm) == 0 ||
	    strcmp(again, copy) != 0)
		return false;
	*ret_wall_us = ((int64_t)at + (fields == 3)) * SEC_US;
	return true;
}

static int check_key(const struct sched_user *user, const char *shown, struct err *err)
{
	if (user->key_sha256[0] == '\0' && user->key_argon2[0] == '\0' && user->cert_sha256[0] == '\0' &&
	    user->cert_subject[0] == '\0') {
		err_set(err, ERR_CONFIG, "user '%s' has no key: neither key_argon2 nor key_sha256, and no certificate",
			shown);
		err_hint(err, "heng key new NAME makes one, and prints what belongs here");
		return -ERR_CONFIG;
	}
	if (user->key_sha256[0] != '\0' && !digest_hex_is_valid(DIGEST_SHA256, str_from(user->key_sha256))) {
		err_set(err, ERR_CONFIG, "user '%s': key_sha256 is not a SHA-256 in lower-case hex", shown);
		err_hint(err, "printf %%s 'the key' | sha256sum");
		return -ERR_CONFIG;
	}
	if (user->cert_sha256[0] != '\0' && !digest_hex_is_valid(DIGEST_SHA256, str_from(user->cert_sha256)))
		return err_set(err, ERR_CONFIG, "user '%s': cert_sha256 is not a SHA-256 in lower-case hex", shown);
	if (strlen(user->cert_subject) >= USERS_SUBJECT_SIZE)
		return err_set(err, ERR_CONFIG, "user '%s': cert_subject is longer than %d bytes", shown,
			       USERS_SUBJECT_SIZE - 1);
	if (user->key_argon2[0] != '\0' && argon_text_check(str_from(user->key_argon2), err) < 0)
		return err_wrap(err, "user '%s': key_argon2", shown);
	if ((user->key_argon2[0] != '\0') != (user->key_id[0] != '\0') ||
	    (user->key_id[0] != '\0' && !id_is_valid(str_from(user->key_id)))) {
		err_set(err, ERR_CONFIG,
			"user '%s': key_argon2 and key_id go together, and an id is 1 to %d of A-Z a-z 0-9 _ -", shown,
			USERS_ID_SIZE - 1);
		err_hint(err, "heng key new NAME prints both");
		return -ERR_CONFIG;
	}
	return 0;
}

static int check_user(const struct sched_user *users, size_t index, int64_t *ret_expires_wall_us, struct err *err)
{
	const struct sched_user *user = &users[index];
	char shown[128];

	str_display(str_from(user->name), shown, sizeof(shown));
	if (!users_name_is_valid(str_from(user->name)))
		return err_set(err, ERR_CONFIG,
			       "user %zu: '%s' is no user name: 1 to 64 bytes without control characters", index + 1,
			       shown);
	if (check_key(user, shown, err) < 0)
		return -ERR_CONFIG;
	if (!users_expiry(str_from(user->expires), ret_expires_wall_us))
		return err_set(err, ERR_CONFIG,
			       "user '%s': expires is neither a day such as 2027-03-31 nor a moment such as "
			       "2027-03-31T18:00:00Z",
			       shown);
	for (size_t i = 0; i < index; i++) {
		if (strcmp(users[i].name, user->name) == 0)
			return err_set(err, ERR_CONFIG, "user '%s' stands twice in the list", shown);
		/* Which of the two a caller is could not be told. */
		if ((user->key_sha256[0] != '\0' && strcmp(users[i].key_sha256, user->key_sha256) == 0) ||
		    (user->key_id[0] != '\0' && strcmp(users[i].key_id, user->key_id) == 0))
			return err_set(err, ERR_CONFIG, "users '%s' and '%s' have the same key", users[i].name, shown);
		if ((user->cert_sha256[0] != '\0' && strcmp(users[i].cert_sha256, user->cert_sha256) == 0) ||
		    (user->cert_subject[0] != '\0' && strcmp(users[i].cert_subject, user->cert_subject) == 0))
			return err_set(err, ERR_CONFIG, "users '%s' and '%s' have the same certificate", users[i].name,
				       shown);
	}
	return 0;
}

/* A configuration that was not read from a file leaves out what it does not need. */
static struct sched_user whole(const struct sched_user *from)
{
	struct sched_user user = *from;

	user.key_sha256 = user.key_sha256 ? user.key_sha256 : "";
	user.key_id = user.key_id ? user.key_id : "";
	user.key_argon2 = user.key_argon2 ? user.key_argon2 : "";
	user.cert_sha256 = user.cert_sha256 ? user.cert_sha256 : "";
	user.cert_subject = user.cert_subject ? user.cert_subject : "";
	user.expires = user.expires ? user.expires : "";
	return user;
}

static void fill(struct user *user, const struct sched_user *from, int64_t expires_wall_us)
{
	MUST(str_copy(str_from(from->name), user->account.name, sizeof(user->account.name)));
	MUST(str_copy(str_from(from->key_sha256), user->key_sha256, sizeof(user->key_sha256)));
	MUST(str_copy(str_from(from->key_id), user->key_id, sizeof(user->key_id)));
	MUST(str_copy(str_from(from->key_argon2), user->key_argon2, sizeof(user->key_argon2)));
	MUST(str_copy(str_from(from->cert_sha256), user->cert_sha256, sizeof(user->cert_sha256)));
	MUST(str_copy(str_from(from->cert_subject), user->cert_subject, sizeof(user->cert_subject)));
	user->account.role = from->role;
	user->account.quota_bytes = from->quota_bytes;
	user->account.quota_entries = (uint64_t)from->quota_entries;
	user->expires_wall_us = expires_wall_us;
	user->is_disabled = from->is_disabled;
}

int users_list_new(const struct conf_list *items, struct users_list **ret_list, struct err *err)
{
	const struct sched_user *given = items->items;
	struct sched_user *users;
	struct users_list *list;
	int result = 0;

	*ret_list = NULL;
	if (items->count == 0)
		return err_set(err, ERR_CONFIG, "there are no users, so that nobody could send anything");
	users = must_zalloc(items->count, sizeof(*users));
	list = must_zalloc(1, sizeof(*list));
	list->count = items->count;
	list->items = must_zalloc(items->count, sizeof(*list->items));
	for (size_t i = 0; result == 0 && i < items->count; i++) {
		int64_t expires_wall_us;

		users[i] = whole(&given[i]);
		result = check_user(users, i, &expires_wall_us, err);
		if (result == 0)
			fill(&list->items[i], &users[i], expires_wall_us);
	}
	free(users);
	if (result < 0)
		users_list_free(&list);
	*ret_list = list;
	return result;
}

void users_list_free(struct users_list **list)
{
	if (!*list)
		return;
	free((*list)->items);
	free(*list);
	*list = NULL;
}

/* --- life --- */

struct users *users_new(void)
{
	struct users *users = must_zalloc(1, sizeof(*users));

	users->list = must_zalloc(1, sizeof(*users->list));
	rng_secret(users->secret, sizeof(users->secret));
	MUST(pthread_rwlock_init(&users->list_lock, NULL) == 0);
	MUST(pthread_mutex_init(&users->lock, NULL) == 0);
	return users;
}

void users_free(struct users **users)
{
	if (!*users)
		return;
	users_list_free(&(*users)->list);
	pthread_rwlock_destroy(&(*users)->list_lock);
	pthread_mutex_destroy(&(*users)->lock);
	mem_wipe(*users, sizeof(**users));
	free(*users);
	*users = NULL;
}

size_t users_put(struct users *users, struct users_list **list)
{
	pthread_rwlock_wrlock(&users->list_lock);
	struct users_list *former = users->list;
	const size_t count = (*list)->count;

	users->list = *list;
	users->generation++;
	/* What is remembered speaks of places in the former list. */
	pthread_mutex_lock(&users->lock);
	mem_wipe(users->remembered, sizeof(users->remembered));
	pthread_mutex_unlock(&users->lock);
	pthread_rwlock_unlock(&users->list_lock);
	*list = NULL;
	users_list_free(&former);
	return count;
}

/* --- who is it --- */

static int unknown(struct err *err)
{
	return err_set(err, ERR_UNAUTHENTICATED, "the API key is not one of this scheduler's");
}

/* The key is the user's; may the user still call? */
static int admit(const struct user *user, int64_t now_wall_us, struct sched_account *ret_account, struct err *err)
{
	char at[CLOCK_TEXT_SIZE];

	if (user->is_disabled)
		return err_set(err, ERR_UNAUTHENTICATED, "user '%s' is disabled", user->account.name);
	if (user->expires_wall_us != 0 && now_wall_us >= user->expires_wall_us)
		return err_set(err, ERR_UNAUTHENTICATED, "user '%s' expired at %s", user->account.name,
			       clock_text(user->expires_wall_us, at));
	*ret_account = user->account;
	return 0;
}

static struct remembered *set_of(struct users *users, const uint8_t mac[MAC_SIZE])
{
	return users->remembered[mac[0] % REMEMBERED_SETS];
}

/* With list_lock held. */
static const struct user *recall(struct users *users, const uint8_t mac[MAC_SIZE], int64_t now_mono_us)
{
	const struct user *found = NULL;
	const struct str wanted = { (const char *)mac, MAC_SIZE };

	pthread_mutex_lock(&users->lock);
	const struct remembered *set = set_of(users, mac);
	for (size_t i = 0; i < REMEMBERED_WAYS; i++) {
		if (set[i].until_mono_us > now_mono_us &&
		    str_eq_secret((struct str){ (const char *)set[i].mac, MAC_SIZE }, wanted))
			found = &users->list->items[set[i].user_index];
	}
	pthread_mutex_unlock(&users->lock);
	return found;
}

static void remember(struct users *users, const uint8_t mac[MAC_SIZE], size_t user_index, int64_t now_mono_us)
{
	pthread_mutex_lock(&users->lock);
	struct remembered *set = set_of(users, mac), *place = &set[0];
	for (size_t i = 1; i < REMEMBERED_WAYS; i++) {
		if (set[i].until_mono_us < place->until_mono_us)
			place = &set[i];
	}
	*place = (struct remembered){ .user_index = user_index, .until_mono_us = now_mono_us + USERS_REMEMBERED_US };
	memcpy(place->mac, mac, MAC_SIZE);
	pthread_mutex_unlock(&users->lock);
}

/* The user whose key has this id, or the list's count. An id is no secret. */
static size_t index_by_id(const struct users_list *list, struct str key)
{
	struct str id;
	size_t i = 0;

	if (!memchr(key.data, '.', key.size) || !str_cut(&key, '.', &id) || id.size == 0)
		return list->count;
	while (i < list->count && !str_eq_c(id, list->items[i].key_id))
		i++;
	return i;
}

static const struct user *by_sha256(const struct users_list *list, struct str key)
{
	const struct user *found = NULL;
	char hex[DIGEST_HEX_SIZE];

	digest_of(DIGEST_SHA256, key.data, key.size, hex);
	/* Every user is compared, so that time tells nothing about which one was near. */
	for (size_t i = 0; i < list->count; i++) {
		if (str_eq_secret(str_from(hex), str_from(list->items[i].key_sha256)))
			found = &list->items[i];
	}
	mem_wipe(hex, sizeof(hex));
	return found;
}

int users_find(struct users *users, struct str key, int64_t now_mono_us, int64_t now_wall_us,
	       struct sched_account *ret_account, struct err *err)
{
	uint8_t mac[MAC_SIZE];
	int result = -ERR_UNAUTHENTICATED;

	if (key.size == 0 || key.size > USERS_KEY_MAX)
		return unknown(err);
	mac_sha256(users->secret, sizeof(users->secret), key.data, key.size, mac);
	pthread_rwlock_rdlock(&users->list_lock);
	const struct user *user = recall(users, mac, now_mono_us);
	if (!user)
		user = by_sha256(users->list, key);
	if (user)
		result = admit(user, now_wall_us, ret_account, err);
	else if (index_by_id(users->list, key) < users->list->count)
		result = USERS_UNPROVEN;
	else
		unknown(err);
	pthread_rwlock_unlock(&users->list_lock);
	mem_wipe(mac, sizeof(mac));
	return result;
}

int users_prove(struct users *users, struct str key, int64_t now_mono_us, int64_t now_wall_us,
		struct sched_account *ret_account, struct err *err)
{
	char text[ARGON_TEXT_SIZE] = "";
	uint8_t mac[MAC_SIZE];
	uint64_t generation;
	bool fits = false;
	int result;

	pthread_rwlock_rdlock(&users->list_lock);
	const size_t index = index_by_id(users->list, key);
	generation = users->generation;
	if (index < users->list->count)
		memcpy(text, users->list->items[index].key_argon2, sizeof(text));
	pthread_rwlock_unlock(&users->list_lock);
	if (text[0] == '\0')
		return unknown(err);
	/* Not under the lock: it takes long, and a new list must not wait for it. */
	result = argon_check(text, key, &fits, err);
	if (result < 0)
		return err_wrap(err, "checking an API key");
	if (!fits)
		return unknown(err);
	mac_sha256(users->secret, sizeof(users->secret), key.data, key.size, mac);
	pthread_rwlock_rdlock(&users->list_lock);
	if (users->generation != generation) {
		result = err_set(err, ERR_BUSY, "the list of users has just changed");
	} else {
		result = admit(&users->list->items[index], now_wall_us, ret_account, err);
		remember(users, mac, index, now_mono_us);
	}
	pthread_rwlock_unlock(&users->list_lock);
	mem_wipe(mac, sizeof(mac));
	return result;
}

int users_by_cert(struct users *users, const char *sha256, const char *subject, int64_t now_wall_us,
		  struct sched_account *ret_account, struct err *err)
{
	const struct user *found = NULL;
	/* What fills its place may be the beginning of another, longer one. */
	const bool is_whole = strlen(subject) < USERS_SUBJECT_SIZE - 1;
	int result;

	pthread_rwlock_rdlock(&users->list_lock);
	for (size_t i = 0; !found && i < users->list->count; i++) {
		if (users->list->items[i].cert_sha256[0] != '\0' &&
		    strcmp(users->list->items[i].cert_sha256, sha256) == 0)
			found = &users->list->items[i];
	}
	for (size_t i = 0; !found && is_whole && i < users->list->count; i++) {
		if (users->list->items[i].cert_subject[0] != '\0' &&
		    strcmp(users->list->items[i].cert_subject, subject) == 0)
			found = &users->list->items[i];
	}
	if (found)
		result = admit(found, now_wall_us, ret_account, err);
	else
		result = err_set(err, ERR_UNAUTHENTICATED, "the client certificate is no user's of this scheduler");
	pthread_rwlock_unlock(&users->list_lock);
	return result;
}
