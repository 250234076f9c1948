#include "folder/pulled.h"

#include <string.h>

void pulled_init(struct pulled *pulled)
{
	memset(pulled, 0, sizeof(*pulled));
	pthread_mutex_init(&pulled->lock, NULL);
}

void pulled_fini(struct pulled *pulled) { pthread_mutex_destroy(&pulled->lock); }

void pulled_who_set(struct pulled_who *who, const char *transfer_id, const char *user, const struct sock_addr *peer)
{
	memset(who, 0, sizeof(*who));
	MUST(str_copy(str_from(transfer_id), who->transfer_id, sizeof(who->transfer_id)));
	MUST(str_copy(str_from(user), who->user, sizeof(who->user)));
	sock_addr_text(peer, who->host);
	/* Each of a client's connections has a port of its own. */
	char *port = strrchr(who->host, ':');
	if (port)
		memset(port, 0, strlen(port));
}

/* The lock is held. */
static size_t find(const struct pulled *pulled, const struct pulled_who *who)
{
	size_t i = 0;

	while (i < pulled->pull_count && memcmp(&pulled->pulls[i].who, who, sizeof(*who)) != 0)
		i++;
	return i;
}

/* The lock is held. A place for another: the end, or that of who has not asked for longest. */
static size_t make_room(struct pulled *pulled)
{
	size_t oldest = 0;

	if (pulled->pull_count < PULLED_PULLS_MAX)
		return pulled->pull_count++;
	for (size_t i = 1; i < PULLED_PULLS_MAX; i++) {
		if (pulled->pulls[i].asked_us < pulled->pulls[oldest].asked_us)
			oldest = i;
	}
	return oldest;
}

bool pulled_begins(struct pulled *pulled, const struct pulled_who *who, int64_t now_us)
{
	pthread_mutex_lock(&pulled->lock);
	size_t i = find(pulled, who);
	bool is_new = i == pulled->pull_count || now_us - pulled->pulls[i].asked_us > PULLED_IDLE_US;
	if (i == pulled->pull_count) {
		i = make_room(pulled);
		pulled->pulls[i].who = *who;
	}
	pulled->pulls[i].asked_us = now_us;
	pthread_mutex_unlock(&pulled->lock);
	return is_new;
}

void pulled_ends(struct pulled *pulled, const struct pulled_who *who)
{
	pthread_mutex_lock(&pulled->lock);
	size_t i = find(pulled, who);
	if (i < pulled->pull_count)
		pulled->pulls[i] = pulled->pulls[--pulled->pull_count];
	pthread_mutex_unlock(&pulled->lock);
}
