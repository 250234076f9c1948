/* Who may call the scheduler: the users of its configuration, which can be read anew while calls go on, and how a key becomes one of them.
 * Keys are kept as hashes alone. One of Argon2id is checked once, on a pool thread, and remembered for a while as an HMAC of the key under a secret of this
 * process; a key of heng's own making says by its id which hash to try. */
#ifndef HENG_FOLDER_USERS_H
#define HENG_FOLDER_USERS_H

#include "base/argon.h"
#include "base/conf.h"
#include "base/digest.h"
#include "plug/store.h"

#define USERS_KEY_MAX       512 /* bytes of a key's text that are looked at */
#define USERS_ID_SIZE       33
#define USERS_REMEMBERED_US (300 * SEC_US)

enum sched_role { ROLE_UPLOADER, ROLE_AUDITOR, ROLE_OPERATOR };

/* As it stands in the configuration. */
struct sched_user {
	const char *name;
	const char *key_sha256;                 /* hex of the SHA-256 of the API key's text; "": none */
	const char *key_id;                     /* what the key's text begins with, before its first dot */
	const char *key_argon2;                 /* PHC text of the key's whole text; "": none */
	const char *cert_sha256, *cert_subject; /* of the user's client certificate; "": none */
	const char *expires;                    /* 2027-03-31 or 2027-03-31T18:00:00Z; "": never */
	bool is_disabled;
	int role;             /* enum sched_role */
	uint64_t quota_bytes; /* of all its open transfers together; 0: none */
	int64_t quota_entries;
};
extern const struct conf_row users_conf_rows[];

/* As calls know it. */
struct sched_account {
	char name[STORE_USER_SIZE];
	int role;
	uint64_t quota_bytes, quota_entries; /* of all its open transfers together; 0: none */
};

struct users;
struct users_list;
struct users *users_new(void); /* nobody yet */
void users_free(struct users **users);
/* Checks a list as it was read; -ERR_CONFIG says whose entry is wrong. */
int users_list_new(const struct conf_list *items, struct users_list **ret_list, struct err *err);
void users_list_free(struct users_list **list);
/* The list counts from now on; *list is taken over. What is remembered of keys is forgotten. Returns how many users there are. */
size_t users_put(struct users *users, struct users_list **list);

/* The user of a client certificate that was verified: by its SHA-256, else by its subject. As users_find. */
int users_by_cert(struct users *users, const char *sha256, const char *subject, int64_t now_wall_us,
		  struct sched_account *ret_account, struct err *err);

enum { USERS_UNPROVEN = 1 };
/* Whose key is it? Quick. 0: *ret_account is filled. USERS_UNPROVEN: users_prove can tell. -ERR_UNAUTHENTICATED: nobody's, or of a user who may not call any more.
 * Any thread, as all below. */
int users_find(struct users *users, struct str key, int64_t now_mono_us, int64_t now_wall_us,
	       struct sched_account *ret_account, struct err *err);
/* The same, by Argon2id: on a pool thread. */
int users_prove(struct users *users, struct str key, int64_t now_mono_us, int64_t now_wall_us,
		struct sched_account *ret_account, struct err *err);

bool users_name_is_valid(struct str name);
/* 0 for "": never. A day ends with its last second, in UTC. */
bool users_expiry(struct str text, int64_t *ret_wall_us);

#endif
