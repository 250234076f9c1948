#include "folder/sched_impl.h"

#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "sys/tls.h"

/* At most so many keys are proven by Argon2id at once, each with its memory, and so many wait. */
#define PROVERS       1u
#define PROVERS_QUEUE 64u

int sched_auth_init(struct sched *sched, struct err *err)
{
	keyring_init(&sched->keyring);
	guard_init(&sched->guard);
	sched->users = users_new();
	return work_new("users", PROVERS, PROVERS_QUEUE, &sched->provers, err);
}

void sched_auth_fini(struct sched *sched)
{
	work_free(&sched->provers);
	users_free(&sched->users);
	guard_fini(&sched->guard);
	keyring_fini(&sched->keyring);
}

int sched_auth_load(struct sched *sched, const struct sched_conf *conf, struct err *err)
{
	struct users_list *list;
	char ids[64];
	int result = users_list_new(&conf->users, &list, err);

	if (result == 0)
		result = keyring_load(&sched->keyring, conf->cluster_key_file, err);
	if (result < 0) {
		users_list_free(&list);
		return result;
	}
	const size_t count = users_put(sched->users, &list);

	keyring_ids(&sched->keyring, ids, sizeof(ids));
	log_say(LOG_INFO, "%zu %s may call; the cluster's keys are: %s", count, count == 1 ? "user" : "users", ids);
	return 0;
}

int sched_reload(struct sched *sched, const struct sched_conf *conf, struct err *err)
{
	const int result = sched_auth_load(sched, conf, err);

	(void)secure_look(&sched->tls_watch, sched->tls, true);
	return result;
}

bool sched_auth_is_internal(const struct sched *sched, const struct http_call *call)
{
	/* Where there are certificates the key alone, which every node has, opens nothing. */
	if (sched_wants_certificates(sched) && !peer_is_any_node(http_peer_cert(call)))
		return false;
	return keyring_is_internal(&sched->keyring, http_header(call, "X-Internal-Key"));
}

bool sched_serves_tls(const struct sched *sched) { return sched->tls && tls_is_server(sched->tls); }

bool sched_wants_certificates(const struct sched *sched) { return sched_serves_tls(sched) && tls_has_ca(sched->tls); }

bool sched_is_node(const struct sched_call *c, const char *node_id)
{
	return !sched_wants_certificates(c->sched) || peer_is_node(http_peer_cert(c->call), node_id);
}

int sched_check_node(struct sched_call *c, const char *node_id)
{
	if (sched_is_node(c, node_id))
		return 0;
	err_set(&c->err, ERR_FORBIDDEN, "the certificate that was shown is not node %s's", node_id);
	err_hint(&c->err, "it must name the URI heng:node:%s and be of an authority in tls_ca", node_id);
	return -ERR_FORBIDDEN;
}

/* --- a client's call --- */

/* A key that is nobody's: the caller's address is held to account, and hears no more than that once it has done it often. */
static int failed(struct sched_call *c)
{
	if (!c->is_counted)
		guard_failed(&c->sched->guard, http_peer(c->call), clock_mono_us());
	return -(int)c->err.code;
}

static int slow_down(struct sched_call *c, int64_t wait_us)
{
	c->retry_after_us = wait_us;
	err_set(&c->err, ERR_AUTH_LIMIT, "too many calls from here showed keys that are nobody's");
	err_hint(&c->err, "see that the key is the right one, and wait");
	return -ERR_AUTH_LIMIT;
}

int sched_auth_find(struct sched_call *c)
{
	const struct str key = http_header(c->call, "X-Api-Key");
	const struct tls_peer *peer = http_peer_cert(c->call);
	int64_t wait_us;

	if (key.size == 0 && peer) {
		const int by_cert = users_by_cert(c->sched->users, peer->sha256, peer->subject, clock_wall_us(),
						  &c->account, &c->err);

		c->user = by_cert == 0 ? &c->account : NULL;
		return by_cert < 0 ? failed(c) : 0;
	}
	if (key.size == 0) {
		err_set(&c->err, ERR_UNAUTHENTICATED, "the call shows no API key");
		err_hint(&c->err, "send the header X-Api-Key, or give heng its file by --key-file or HENG_KEY_FILE");
		return -ERR_UNAUTHENTICATED;
	}
	const int result = users_find(c->sched->users, key, clock_mono_us(), clock_wall_us(), &c->account, &c->err);
	if (result == 0) {
		c->user = &c->account;
		return 0;
	}
	if (!guard_begin(&c->sched->guard, http_peer(c->call), clock_mono_us(), &wait_us, &c->is_counted))
		return slow_down(c, wait_us);
	return result < 0 ? failed(c) : result;
}

void sched_auth_undo(struct sched_call *c)
{
	if (c->is_counted)
		guard_passed(&c->sched->guard, http_peer(c->call));
	c->is_counted = false;
}

int sched_auth_prove(struct sched_call *c)
{
	const int result = users_prove(c->sched->users, http_header(c->call, "X-Api-Key"), clock_mono_us(),
				       clock_wall_us(), &c->account, &c->err);

	if (result == 0)
		c->user = &c->account;
	if (result == -ERR_UNAUTHENTICATED)
		return failed(c);
	sched_auth_undo(c);
	return result;
}

struct sched_call *sched_client_call(struct http_call *call, void *app, int (*run)(struct sched_call *c))
{
	struct sched_call *c = sched_call_new(app, call, run);
	const int result = sched_auth_find(c);

	if (result < 0) {
		const struct err err = c->err;

		sched_call_refuse(c, &err);
		return NULL;
	}
	c->is_unproven = result == USERS_UNPROVEN;
	return c;
}

struct sched_call *sched_internal_call(struct http_call *call, void *app, int (*run)(struct sched_call *c))
{
	struct sched *sched = app;
	struct err err = ERR_INIT;

	if (sched_auth_is_internal(sched, call))
		return sched_call_new(sched, call, run);
	if (keyring_is_internal(&sched->keyring, http_header(call, "X-Internal-Key"))) {
		err_set(&err, ERR_UNAUTHENTICATED,
			"this call is for nodes of the cluster, and shows no certificate of one");
		err_hint(&err, "a node's certificate names the URI heng:node:ID and is of an authority in tls_ca");
	} else {
		err_set(&err, ERR_UNAUTHENTICATED,
			"this call is for nodes of the cluster, and shows no cluster key of this scheduler");
		err_hint(&err, "give node and scheduler the same cluster key file");
	}
	http_reply_err(call, &err);
	return NULL;
}
